"""The one owner of ``quarantine``: the events that runs skipped, with the reason."""

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
    """Events of a stream that a run skipped for the reason of a ``code``: their number (``rows``).

    The stream is "" for several streams, as an earlier Heddle noted them. ``at``: the time of the note (microseconds).
    """

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
    newest: dict[object, LeftOut] = {}
    for number, row in enumerate(left_out):
        key = (row.stream, row.detail) if row.code == WITHOUT_TIME and row.stream else number
        if key not in newest or newest[key].at <= row.at:
            newest[key] = row
    return list(newest.values())


def log(warehouse: Warehouse, left_out: Sequence[LeftOut], token: int, transaction: tuple[str, int]) -> None:
    """Add rows under a lease, once for each ``transaction`` (name and version)."""
    rows = [{**vars(row), "at": moment(row.at)} for row in left_out]
    warehouse.append("quarantine", rows, token, transaction)


def rows(warehouse: Warehouse) -> list[LeftOut]:
    """All rows of skipped events, in the order of the table."""
    return [
        LeftOut(row["run_id"], row["stream"], row["code"], row["rows"], row["detail"] or "", micros(row["at"]))
        for row in warehouse.rows("quarantine")
    ]
