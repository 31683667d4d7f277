"""Compare the cost of a shared run with some of its queries unshared: the value of ``heddle compare``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import format_instant, instant_of_text
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.data_files import reading, writing
from spark_jobs.store.warehouse.publish_log import RunRecord, now_micros
from spark_jobs.store.warehouse.warehouse import Warehouse

FILE = "comparisons.jsonl"
"""File of a warehouse with its comparisons, a line each."""


def measured_run(warehouse: Warehouse, begin: int, end: int) -> RunRecord:
    """The newest measured publication of exactly the interval [begin, end). Raises HDL-508 if there is none."""
    rows = publish_log.rows_of_interval(warehouse, begin, end)
    runs = [row.record for row in rows if row.event == "published" and row.record.cpu_seconds]
    if not runs:
        raise HeddleError("HDL-508", "no run of this interval has been published", "see `heddle status`")
    return runs[-1]


@dataclass(frozen=True)
class Comparison:
    """A ``shared`` run of a plan of ``queries`` queries, and a sample of them unshared, as
    :func:`spark_jobs.audit.unshared.measure.measure` gives it. Times in CPU seconds."""

    queries: int
    samples: tuple[Mapping[str, Any], ...]
    shared: RunRecord

    @property
    def shared_cpu(self) -> float:
        return sum(self.shared.cpu_seconds.values())

    @property
    def shared_cpu_without_checks(self) -> float:
        return sum(spent for name, spent in self.shared.cpu_seconds.items() if name != "audit")

    def extrapolated(self, measure: str) -> float:
        """Extrapolated cost of all queries unshared, by the mean of the sample: ``rows_scanned`` or ``cpu_seconds``."""
        return sum(sample[measure] for sample in self.samples) / len(self.samples) * self.queries

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle compare --json`` prints them."""
        return {
            "queries": self.queries,
            "sampled": [dict(sample) for sample in self.samples],
            "shared": {
                "rows_scanned": self.shared.rows_scanned,
                "cpu_seconds": self.shared_cpu,
                "cpu_seconds_without_checks": self.shared_cpu_without_checks,
            },
            "unshared_extrapolated": {name: self.extrapolated(name) for name in ("rows_scanned", "cpu_seconds")},
        }


@dataclass(frozen=True)
class StoredComparison:
    """A comparison as a warehouse stores it.

    - ``at``: when it was made (text);
    - ``begin``, ``end``: the interval [begin, end) (microseconds) that the run published;
    - ``plan_version``, ``queries``: the plan of the run, and its number of queries;
    - ``shared``: CPU seconds of the run;
    - ``samples``: as in :class:`Comparison`.
    """

    at: str
    begin: int
    end: int
    plan_version: int
    queries: int
    shared: float
    samples: tuple[Mapping[str, Any], ...]


def keep_comparison(warehouse: Warehouse, comparison: Comparison) -> None:
    """Keep a comparison in the warehouse. Raises HDL-542 or HDL-545 if it cannot be written."""
    shared = comparison.shared
    line = {
        "at": format_instant(now_micros()),
        "begin": format_instant(shared.begin),
        "end": format_instant(shared.end),
        "plan_version": shared.plan_version,
        "queries": comparison.queries,
        "shared": comparison.shared_cpu,
        "samples": [dict(sample) for sample in comparison.samples],
    }
    file = warehouse.place / FILE
    with warehouse.lease(), writing(file):
        lines = [*_lines(warehouse), line]
        file.put("".join(f"{json.dumps(saved)}\n" for saved in lines).encode())


def stored_comparisons(warehouse: Warehouse) -> list[StoredComparison]:
    """The stored comparisons, oldest first. Raises HDL-543 if they cannot be read."""
    return [
        StoredComparison(
            line["at"],
            instant_of_text(line["begin"]) or 0,
            instant_of_text(line["end"]) or 0,
            line["plan_version"],
            line["queries"],
            line["shared"],
            tuple(line["samples"]),
        )
        for line in _lines(warehouse)
    ]


def _lines(warehouse: Warehouse) -> list[dict[str, Any]]:
    file = warehouse.place / FILE
    with reading(file):
        try:
            text = file.read().decode()
        except FileNotFoundError:
            return []
    return [json.loads(line) for line in text.splitlines()]
