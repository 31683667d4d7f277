"""The one owner of ``quarantine``: the events that runs left out, and why."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.warehouse.schemas import micros, moment
from spark_jobs.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class LeftOut:
    """So many events (``rows``) of a stream ("" : of several) that a run left out for the reason of a ``code``.
    ``at``: when that was noted (microseconds)."""

    run_id: str
    stream: str
    code: str
    rows: int
    detail: str
    at: int


def log(warehouse: Warehouse, left_out: LeftOut, token: int, transaction: tuple[str, int]) -> None:
    """Add a row under a lease, once for each ``transaction`` (name and version)."""
    row = {**vars(left_out), "at": moment(left_out.at)}
    warehouse.append("quarantine", [row], token, transaction)


def rows(warehouse: Warehouse) -> list[LeftOut]:
    """All that was left out, in the order of the table."""
    return [
        LeftOut(row["run_id"], row["stream"], row["code"], row["rows"], row["detail"] or "", micros(row["at"]))
        for row in warehouse.rows("quarantine")
    ]
