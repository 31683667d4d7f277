"""What a shared run took beside some of its queries unshared: the value of ``heddle compare``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.publish_log import RunRecord
from spark_jobs.warehouse.warehouse import Warehouse


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
    :func:`spark_jobs.unshared.measure.measure` gives it. Times in CPU seconds."""

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
        """What all queries would come to unshared by the mean of the sample: ``rows_scanned`` or ``cpu_seconds``."""
        return sum(sample[measure] for sample in self.samples) / len(self.samples) * self.queries

    def to_json(self) -> dict[str, Any]:
        """As ``heddle compare --json`` prints it."""
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
