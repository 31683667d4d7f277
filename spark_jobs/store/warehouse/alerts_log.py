"""The one owner of ``alerts``: the alerts that were raised, and which of them were sent.

The table is an outbox. A row ``raised`` says that a condition began or ended, and is written once, in a commit that no
other process can make too. The rows after it say what came of sending it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from spark_jobs.store.warehouse.schemas import moment
from spark_jobs.store.warehouse.warehouse import Warehouse

Event = Literal["raised", "claimed", "sent", "failed"]
"""``claimed``: a process sends it, and no other does before ``until``. ``failed``: it could not be sent."""


@dataclass(frozen=True)
class AlertRow:
    """A row of the log: what happened to the alert ``id``, and when (``at``, ``until``; microseconds).

    ``alert``: of a row ``raised`` what is stored of it, as JSON values.
    """

    id: str
    event: Event
    at: int
    until: int = 0
    alert: Mapping[str, Any] = field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """Return the row as the table stores it, but for its number."""
        stored = json.dumps(dict(self.alert), sort_keys=True) if self.alert else None
        return {
            **{"id": self.id, "event": self.event, "alert": stored},
            **{"at": moment(self.at), "until": moment(self.until)},
        }


def rows(warehouse: Warehouse) -> list[AlertRow]:
    """All rows of the log, in the order in which they were added."""
    stored = warehouse.stored_rows("alerts").sort_by("number")
    # as numbers at once: a datetime for each takes longer than reading them
    moments = {"at": pa.int64(), "until": pa.int64()}
    schema = pa.schema([field.with_type(moments.get(field.name, field.type)) for field in stored.schema])
    return [
        AlertRow(row["id"], row["event"], row["at"], row["until"] or 0, json.loads(row["alert"] or "{}"))
        for row in stored.cast(schema).to_pylist()
    ]


def log(warehouse: Warehouse, added: Sequence[AlertRow], token: int, since: int | None = None) -> None:
    """Add rows under a lease, behind those of the table's version ``since``; None: its version now."""
    since = warehouse.version("alerts") if since is None else since
    first = (warehouse.latest_number("alerts", "number") or 0) + 1
    stored = [row.to_row() | {"number": number} for number, row in enumerate(added, first)]
    warehouse.append("alerts", stored, token, since=since)
