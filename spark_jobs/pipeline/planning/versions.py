"""Compare stored versions of a plan, and go back to an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import PlanDiff, diff
from spark_jobs.pipeline.planning import publication
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class VersionDiff:
    """Differences between the versions ``old_version`` and ``new_version`` of the plan. None: it is of files, and was
    not stored."""

    old_version: int | None
    new_version: int | None
    old: SharingPlan
    new: SharingPlan

    @property
    def change(self) -> PlanDiff:
        return diff(self.old, self.new)

    def to_json(self) -> dict[str, Any]:
        """The difference as ``heddle diff --json`` prints it."""
        versions = {"old": self.old_version, "new": self.new_version}
        return self.change.to_json() | {
            "versions": versions,
            "cost_models": [self.old.cost_model, self.new.cost_model],
        }


def diff_of_versions(warehouse: Warehouse, old: int | None, new: int | None, name: str) -> VersionDiff:
    """The change between two versions (None: the one before, and the newest). ``name``: the warehouse in messages.

    Raises HDL-506 if there is no such version, or nothing before it.
    """
    later = new if new is not None else current_version(warehouse) or 0
    plan = load_plan(warehouse, later)
    if old is None and later == 1:
        raise HeddleError("HDL-506", f"{name} has one plan version: there is nothing to compare it with")
    earlier = old if old is not None else later - 1
    return VersionDiff(earlier, later, load_plan(warehouse, earlier), plan)


@dataclass(frozen=True)
class Rollback:
    """Going back from the plan in force (``newest``) to an earlier version: the plan that comes into force, as
    ``version`` (that of ``newest`` in a dry run), and what that changes of queries, in lines."""

    newest: int
    to: int
    version: int
    dry_run: bool
    plan: SharingPlan
    change: PlanDiff
    lines: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The rollback as ``heddle rollback --json`` prints it."""
        versions = {"from": self.newest, "to": self.to, "version": self.version}
        return self.change.to_json() | versions | {"dry_run": self.dry_run, "changes": list(self.lines)}


def roll_back(
    warehouse: Warehouse, to: int, reason: str, dry_run: bool, confirm: Callable[[Sequence[str]], None]
) -> Rollback:
    """Make an earlier version the plan in force, as a new version. ``confirm``: raises unless somebody agrees that
    these queries are removed."""
    # what plans is compiled, which those who compare need not wait for
    from spark_jobs.pipeline.planning.changes import rolling_back
    from spark_jobs.pipeline.planning.plan_workload import replan

    newest = current_version(warehouse) or 0
    current, earlier = load_plan(warehouse, newest), load_plan(warehouse, to)
    request = rolling_back(earlier, warehouse)
    if len(request.workload.queries) < len(earlier.workload.queries):
        earlier = replan(earlier, request.workload, dict(earlier.rates))
    change, version = diff(current, earlier), newest
    if not dry_run:
        confirm(request.removed)
        because = reason or f"back to version {to}"
        version, _ = publication.publish_plan(warehouse, earlier, "heddle rollback", because, request)
    return Rollback(newest, to, version, dry_run, earlier, change, tuple(request.lines))
