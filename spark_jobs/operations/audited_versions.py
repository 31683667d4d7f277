"""The versions of dimensions that published answers are recomputed with: those that their publication noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import format_instant
from optimizer.workload.values import DimensionVersion
from spark_jobs.pipeline.run.dimensions import MOST_CHOICES, version_named, versions_noted, with_versions
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse


class NotedVersions(NamedTuple):
    """The versions of dimensions that a publication noted.

    Parameters
    ----------
    newest
        By the dimension's name the version of the answers that the run computed, or the error of one that is gone.
    others
        By name the earlier versions of the answers that the run left as they were.
    """

    newest: Mapping[str, DimensionVersion | HeddleError]
    others: Mapping[str, Sequence[DimensionVersion]]

    def other_plans(self, plan: SharingPlan) -> list[SharingPlan]:
        """The plan with every other choice of the versions."""
        known = {name: version for name, version in self.newest.items() if isinstance(version, DimensionVersion)}
        choices = product(*((version, *self.others.get(name, ())) for name, version in known.items()))
        # the first choice is that of the newest ones
        some = islice(choices, 1, MOST_CHOICES)
        return [with_versions(plan, dict(zip(known, chosen, strict=True))) for chosen in some]


def noted_versions(warehouse: Warehouse, row: LogRow) -> NotedVersions:
    """The versions of dimensions that a publication noted. A dimension is gone if one of its versions is."""
    ids: dict[str, list[str]] = {}
    for _, _, noted in row.record.read.values():
        for name, of_stream in versions_noted(noted).items():
            ids[name] = list(dict.fromkeys((*ids.get(name, ()), *of_stream)))
    newest: dict[str, DimensionVersion | HeddleError] = {}
    others: dict[str, list[DimensionVersion]] = {}
    for name, of_dimension in ids.items():
        versions = [version_named(warehouse, name, id) for id in of_dimension]
        known = [version for version in versions if version is not None]
        if len(known) < len(versions):
            newest[name] = _gone(name, row)
        else:
            newest[name], others[name] = known[0], known[1:]
    return NotedVersions(newest, others)


def _gone(name: str, row: LogRow) -> HeddleError:
    span = f"{format_instant(row.begin)} .. {format_instant(row.end)}"
    message = f"dimension {name}: its version of {span} is gone; queries that join it are not recomputed"
    hint = f"heddle run --from {format_instant(row.begin)} --to {format_instant(row.end)}"
    return HeddleError("HDL-497", message, hint)
