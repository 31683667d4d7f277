"""The one owner of ``quarantine``: the events that runs left out, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.store.warehouse.schemas import micros, moment
from spark_jobs.store.warehouse.warehouse import Warehouse

WITHOUT_TIME = "HDL-410"
"""Events without a usable event time. A row is about one file, which every run that reads it notes again."""

_OF_FILE = "without a usable time in "


@dataclass(frozen=True)
class LeftOut:
    """So many events (``rows``) of a stream ("" : of several, as an earlier Heddle noted them) that a run left out for
    the reason of a ``code``. ``at``: when that was noted (microseconds)."""

    run_id: str
    stream: str
    code: str
    rows: int
    detail: str
    at: int

    @property
    def file(self) -> str:
        """The file of events without a usable time, as :func:`without_time` has it; empty: several, or another code."""
        is_of_file = self.code == WITHOUT_TIME and self.detail.startswith(_OF_FILE)
        return self.detail.removeprefix(_OF_FILE) if is_of_file else ""


def without_time(run_id: str, stream: str, file: str, rows: int, at: int) -> LeftOut:
    """Events of a file without a usable time. ``file``: relative to the stream's path; empty: several files."""
    return LeftOut(run_id, stream, WITHOUT_TIME, rows, f"{_OF_FILE}{file}" if file else "of other files", at)


def newest_of_each(left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """The rows, of events without a time only the newest of each file: several runs count the same events."""
    found: dict[object, LeftOut] = {}
    for number, row in enumerate(left_out):
        key = (row.stream, row.detail) if row.code == WITHOUT_TIME and row.stream else number
        if key not in found or found[key].at <= row.at:
            found[key] = row
    return list(found.values())


def log(warehouse: Warehouse, left_out: Sequence[LeftOut], token: int, transaction: tuple[str, int]) -> None:
    """Add rows under a lease, once for each ``transaction`` (name and version)."""
    rows = [{**vars(row), "at": moment(row.at)} for row in left_out]
    warehouse.append("quarantine", rows, token, transaction)


def rows(warehouse: Warehouse) -> list[LeftOut]:
    """All that was left out, in the order of the table."""
    return [
        LeftOut(row["run_id"], row["stream"], row["code"], row["rows"], row["detail"] or "", micros(row["at"]))
        for row in warehouse.rows("quarantine")
    ]
