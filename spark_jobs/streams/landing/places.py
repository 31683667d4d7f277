"""Places of a topic: the tables, the checkpoint, and a check that they belong together.

A checkpoint records how far a topic was read, a table the records made of it. Either one without the other would lose
records or double them. So both are marked: the checkpoint with the identities of its tables, the table with the
identity of the checkpoint of each of its topics. A mismatch is refused before anything is read.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.streams.landing.records import QUARANTINE, Records

TOPICS, LOCK, MARKER = "_heddle_topics.json", "_heddle_land.lock", "heddle.json"


@dataclass(frozen=True)
class Landing:
    """Destination of a topic: ``table``, ``quarantine`` and ``checkpoint`` are folders; ``identity`` is the
    checkpoint's, and names the transactions of both tables.
    """

    table: Path
    quarantine: Path
    checkpoint: Path
    identity: str

    @property
    def application(self) -> str:
        """The id of its transactions."""
        return f"heddle-land/{self.identity}"


@contextmanager
def landing(topic: str, table: Path, checkpoint: Path | None, records: Records) -> Iterator[Landing]:
    """Create or open the places of a topic, for one process at a time.

    Raises HDL-627 if another process lands into the table, or if the table, its columns and the checkpoint do not
    belong together.
    """
    quarantine = table.with_name(f"{table.name}_quarantine")
    checkpoint = checkpoint or table / "_checkpoints" / topic
    table.mkdir(parents=True, exist_ok=True)
    with (table / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another process is landing a topic into {table}"
            raise HeddleError("HDL-627", message, "wait until it is done") from None
        tables = {"table": delta_table(table, records.table), "quarantine": delta_table(quarantine, QUARANTINE)}
        identity = _bound(topic, table, checkpoint, tables)
        place = Landing(table, quarantine, checkpoint, identity)
        _check_reached(place)
        yield place


def delta_table(folder: Path, schema: pa.Schema) -> str:
    """Make a Delta table, or check one and add the columns that it lacks; its identity."""
    from deltalake import DeltaTable, Field
    from deltalake import Schema as DeltaSchema

    if not (folder / "_delta_log").is_dir():
        # readable by whatever reads Delta: no deletion vectors, no column mapping
        folder.mkdir(parents=True, exist_ok=True)
        return str(DeltaTable.create(str(folder), schema).metadata().id)
    table = DeltaTable(str(folder))
    present = {field.name: field for field in pa.schema(table.schema().to_arrow())}
    required = {field.name: field for field in pa.schema(DeltaSchema.from_arrow(schema).to_arrow())}
    changed = [name for name, field in required.items() if name in present and present[name].type != field.type]
    superfluous = [name for name in present if name not in required]
    if changed or superfluous:
        message = f"the table {folder} has other columns than the stream: {', '.join(sorted({*changed, *superfluous}))}"
        raise HeddleError("HDL-627", message, "declare them as they are there, or land into another folder")
    added = [field for field in DeltaSchema.from_arrow(schema).fields if field.name not in present]
    if added:
        table.alter.add_columns([Field(field.name, field.type, nullable=True) for field in added])
    return str(table.metadata().id)


def _bound(topic: str, table: Path, checkpoint: Path, tables: dict[str, str]) -> str:
    """The identity of a checkpoint that belongs to these tables. Raises HDL-627 if it does not."""
    known: dict[str, Any] = _read(table / TOPICS) or {}
    marked = _read(checkpoint / MARKER)
    if marked is None:
        if (checkpoint / "offsets").exists():
            message = f"{checkpoint} is a checkpoint of another program"
            raise HeddleError("HDL-627", message, "give another --checkpoint")
        if topic in known:
            message = f"{table} has records of {topic} that another checkpoint brought: some would be there twice"
            hint = f"give the --checkpoint that was at {known[topic]['checkpoint']}, or land into another folder"
            raise HeddleError("HDL-627", message, hint)
        marked = {"identity": uuid.uuid4().hex, "topic": topic, **tables}
        checkpoint.mkdir(parents=True, exist_ok=True)
        _write(checkpoint / MARKER, marked)
    wrong = [name for name, value in {"topic": topic, **tables}.items() if marked.get(name) != value]
    if wrong:
        message = f"the checkpoint {checkpoint} is of another {' and '.join(wrong)}: records would be lost"
        raise HeddleError("HDL-627", message, "give the folder that it is of, or another --checkpoint")
    entry = {"identity": marked["identity"], "checkpoint": str(checkpoint)}
    if known.get(topic, entry)["identity"] != entry["identity"]:
        message = f"{table} has records of {topic} that another checkpoint brought: some would be there twice"
        raise HeddleError("HDL-627", message, f"give the --checkpoint that was at {known[topic]['checkpoint']}")
    _write(table / TOPICS, known | {topic: entry})
    return str(marked["identity"])


def _check_reached(place: Landing) -> None:
    """Raise HDL-627 if the tables have batches that the checkpoint does not know: later batches would be skipped."""
    from deltalake import DeltaTable

    offsets = place.checkpoint / "offsets"
    begun = [int(path.name) for path in offsets.iterdir() if path.name.isdecimal()] if offsets.is_dir() else []
    for folder in (place.table, place.quarantine):
        version = DeltaTable(str(folder)).transaction_version(place.application)
        if version is not None and version > max(begun, default=-1):
            message = f"{folder} has records that the checkpoint {place.checkpoint} does not know of"
            raise HeddleError("HDL-627", message, "put the checkpoint back as it was, or land into another folder")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise HeddleError("HDL-627", f"{path} is damaged", "put it back as it was, or land into another folder")
    return parsed


def _write(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(path)
