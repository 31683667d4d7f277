"""The formats of a warehouse, and what is rewritten if this version of Heddle is to write to it. Needs no JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from optimizer.errors.diagnostics import count as number_of
from optimizer.plan.stored_rows import DECLARATION
from spark_jobs.results import current_dimensions, own_table
from spark_jobs.store.warehouse.marker import heddle_version
from spark_jobs.store.warehouse.plans import current_version
from spark_jobs.store.warehouse.schemas import COLUMNS, FORMAT, MARKER, TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse

SECONDS = 1.0
"""Seconds, about, of a commit that changes no data."""


@dataclass(frozen=True)
class StoredFormat:
    """A format that a warehouse has: of what, the ``stored`` one, and what becomes of it."""

    what: str
    stored: str
    then: str = "stays"


@dataclass(frozen=True)
class Step:
    """A change that an upgrade makes: what, about how long it takes, and how a user takes it back to go on with an
    earlier version (empty: earlier versions go on all the same)."""

    what: str
    seconds: float
    back: str


@dataclass(frozen=True)
class Upgrade:
    """The formats of a warehouse and the ``steps`` of its upgrade. ``written_by``: the version of Heddle that wrote the
    formats; empty: one that stored none."""

    warehouse: str
    written_by: str
    heddle: str
    formats: tuple[StoredFormat, ...]
    steps: tuple[Step, ...]

    @property
    def back(self) -> list[str]:
        """Instructions for taking back the steps after which earlier versions cannot go on."""
        return [step.back for step in self.steps if step.back]

    def to_json(self) -> dict[str, Any]:
        """The formats and steps as ``heddle upgrade --json`` prints them."""
        return asdict(self)


def check_upgrade(warehouse: Warehouse) -> Upgrade:
    """The formats of a warehouse, and what an upgrade changes. Writes nothing."""
    marker = warehouse.marker
    missing = {name: _missing(warehouse, name) for name in TABLES}
    steps = []
    if marker.is_older:
        added = [f"{name}.{column}" for name in ("results", "partials") for column in missing[name]]
        steps.append(Step(f"add {' and '.join(added)}", SECONDS * (1 + len(added)), way_back(warehouse)))
    now = f"format {FORMAT}, columns {COLUMNS}"
    stored = f"format {marker.format}, columns {marker.columns}"
    formats = [
        StoredFormat("warehouse", stored, now if steps else "stays"),
        *(_format_of(warehouse, name, missing[name], bool(steps)) for name in TABLES),
        *_own_tables(warehouse),
        *_plans(warehouse),
    ]
    return Upgrade(str(warehouse.place), marker.heddle, heddle_version(), tuple(formats), tuple(steps))


def apply_upgrade(warehouse: Warehouse) -> Upgrade:
    """Make the changes of :func:`check_upgrade`, and return what they were."""
    upgrade = check_upgrade(warehouse)
    if upgrade.steps:
        warehouse.bring_up()
    return upgrade


_COMPUTED = ("partials", "stream_statistics")
"""Tables with rows that code before version 2 of the columns cannot read, and that runs fill again."""


def way_back(warehouse: Warehouse) -> str:
    """Instructions for going on with code before version 2 of the columns: the marker to copy, then a script."""
    marker = warehouse.path(MARKER)
    deleted = f"for table in {_COMPUTED}: DeltaTable(f'{warehouse.place}/{{table}}').delete()"
    return (
        f"copy {marker}.{warehouse.marker.columns} over {marker} and empty two tables, which runs fill again:\n"
        f"from deltalake import DeltaTable\n{deleted}"
    )


def _missing(warehouse: Warehouse, name: str) -> list[str]:
    known = {field.name for field in warehouse.table(name).schema().fields}
    return [column for column in TABLES[name][0].names if column not in known]


def _format_of(warehouse: Warehouse, name: str, missing: Sequence[str], is_older: bool) -> StoredFormat:
    table = warehouse.table(name)
    files = pa.table(table.get_add_actions(flatten=True))
    rows = pc.sum(files["num_records"]).as_py() or 0
    stored = f"{_protocol(table)}; {rows:,} rows"
    column, form = _NEWER.get(name, ("", ""))
    if column and rows:
        nulls = f"null_count.{column}"
        known = files[nulls] if nulls in files.schema.names else pa.nulls(len(files), pa.int64())
        newer = rows - (pc.sum(pc.coalesce(known, files["num_records"])).as_py() or 0)
        stored += f", {newer:,} {form}"
    when = "gets" if is_older and name in ("results", "partials") else "the next row adds"
    return StoredFormat(name, stored, f"{when} {', '.join(missing)}" if missing else "stays")


_NEWER = {"partials": ("numbers", "with numbers as bytes"), "results": ("fingerprint", "with a fingerprint")}
"""Of the tables whose rows have two forms: the column that only rows of the newer form have, and what these are."""


def _protocol(table: DeltaTable) -> str:
    protocol = table.protocol()
    return f"Delta reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"


def _own_tables(warehouse: Warehouse) -> Iterator[StoredFormat]:
    names = {
        "tables of queries": own_table.names(warehouse),
        "tables of dimensions": current_dimensions.table_names(warehouse),
    }
    for what, tables in names.items():
        for protocol, count in Counter(_protocol(warehouse.table(name)) for name in tables).items():
            yield StoredFormat(what, f"{protocol}; {number_of(count, 'table')}")


def _plans(warehouse: Warehouse) -> list[StoredFormat]:
    newest = current_version(warehouse)
    if newest is None:
        return []
    first = warehouse.stored_rows("sharing_plans", ["row"], ds.field("plan_version") == 1)
    is_named = any(DECLARATION in row for row in first["row"][:1].to_pylist())
    form = "with digests of declarations" if is_named else "the first without digests of declarations"
    return [StoredFormat("plans", f"{number_of(newest, 'version')}, {form}")]
