"""What tables are in a project that ``heddle init`` makes: streams of events, dimensions of these, or nothing.

A table without a time column is a dimension if a key of it is unique. So is a small table with times of its rows, such
as the start of a campaign, if events of other tables refer to its key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of
from optimizer.workload.streams import MOST_DIMENSIONS
from optimizer.workload.values import BOOLEAN, STRING, TIMESTAMP, Dimension, Source, Type
from spark_jobs.operations.yaml_lines import column_line, source_lines
from spark_jobs.streams.sources.proposals import Data
from spark_jobs.streams.sources.table_keys import (
    TRIED,
    KeyReference,
    UndeclaredTable,
    references_to,
    unique_key,
)

LARGEST = 1_000_000
"""Rows of a dimension that is proposed."""

FEWER = 20
"""A table with times is a dimension if the events that refer to it are so many times its rows."""

NAMED = 12
"""Tables that a warning names."""

OF_ROWS = re.compile(
    r"(?i)(start|end|begin|valid|since|until|from$|to$|creat|updat|modif|birth|sign|join|regist|open|clos|launch|hire|found)"
)
"""Names of times that belong to a thing rather than to an event."""

GROUPS = (2, 50)
"""Least and largest number of different values of an attribute that a first query groups by."""

MOST_NULLS = 0.5
"""Share of nulls from which a first query groups by no attribute."""


@dataclass(frozen=True)
class ProposedDimension:
    """A table that events refer to, with its ``key`` and its number of ``rows``.

    ``references``: the columns of streams that refer to it; ``times``: its own columns with times; ``groups``: those
    of a few words, by which a query may group.
    """

    name: str
    data: Data
    key: tuple[str, ...]
    rows: int
    references: tuple[KeyReference, ...]
    times: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"dimension {self.name}: {self.about}"

    @property
    def about(self) -> str:
        """Its size, its key and who refers to it, for people."""
        text = f"{number_of(self.rows, 'row')}, key {', '.join(self.key)}"
        if self.references:
            text += "; for " + ", ".join(f"{each.table}.{each.column}" for each in self.references[:4])
        if self.times:
            text += f" (a stream with --time {self.name}={self.times[0]})"
        return text

    def to_json(self) -> dict[str, Any]:
        """The dimension as ``heddle init --json`` prints it."""
        references = [f"{each.table}.{each.column}" for each in self.references]
        return {"name": self.name, "key": list(self.key), "rows": self.rows, "referred_by": references}

    @property
    def schema(self) -> tuple[tuple[str, Type], ...]:
        """The columns that a declaration has to name; none if the files declare them."""
        guess = self.data.guess
        if guess is None:
            return ()
        written = {column.name for column in guess.columns if column.formats}
        return tuple(
            (name, STRING if type == TIMESTAMP and name in written else type) for name, type in self.data.columns
        )

    @property
    def source(self) -> Source:
        """Place and form of its rows."""
        return UndeclaredTable(self.name, self.data).stream.source

    @property
    def declared(self) -> Dimension:
        """The dimension as queries see it."""
        return Dimension(self.name, self.source, self.key, self.schema or self.data.columns)


@dataclass(frozen=True)
class TableRoles:
    """The tables by what they are, and the reasons why some are left out.

    ``foreign``: of each stream the columns that refer to dimensions.
    """

    streams: tuple[str, ...]
    dimensions: tuple[ProposedDimension, ...]
    left_out: tuple[Diagnostic, ...]
    foreign: Mapping[str, tuple[str, ...]]


def roles_of(looked: Mapping[str, Data], with_times: Collection[str] = ()) -> TableRoles:
    """Return what each table is, by its name. ``with_times``: tables that are streams whatever else they may be.

    A table that cannot be read is left out, with the reason, unless it has times: a look at the stream tells it.
    """
    tables, problems = dict[str, UndeclaredTable](), list[Diagnostic]()
    timed = [name for name, data in looked.items() if data.likely_times or name in with_times]
    dimensions, unused = dict[str, ProposedDimension](), list[UndeclaredTable]()
    for name, data in looked.items():
        try:
            tables[name] = UndeclaredTable(name, data)
        except HeddleError as error:
            problems += [] if name in timed else [replace(error.diagnostic, severity="warning")]
    for name, table in tables.items():
        others = [tables[other] for other in timed if other != name and other in tables]
        try:
            dimension = _dimension_of(table, others, name in timed) if name not in with_times else None
            unused += [table] if dimension is None and name not in timed else []
        except HeddleError as error:
            dimension = None
            problems += [] if name in timed else [replace(error.diagnostic, severity="warning")]
        if dimension is not None:
            dimensions[name] = dimension
    # those that events refer to come first if there are too many
    ordered = sorted(dimensions, key=lambda name: not dimensions[name].references)
    chosen = {name: dimensions[name] for name in dimensions if name in ordered[:MOST_DIMENSIONS]}
    streams = tuple(name for name in timed if name not in chosen)
    declared = tuple(_with_references(dimension, streams) for dimension in chosen.values())
    foreign = {
        name: tuple(each.column for dimension in declared for each in dimension.references if each.table == name)
        for name in streams
    }
    problems += [*_left_out(unused), *_too_many(ordered[MOST_DIMENSIONS:])]
    return TableRoles(streams, declared, tuple(problems), foreign)


def _dimension_of(
    table: UndeclaredTable, others: Sequence[UndeclaredTable], has_times: bool
) -> ProposedDimension | None:
    """A table as a dimension; None if it is none. Raises what reading raises."""
    if has_times:
        return _dimension_with_times(table, others)
    # one row is a document rather than a table
    key = unique_key(table) if 1 < table.rows <= LARGEST else ()
    if not key:
        return None
    return _dimension(table, key, references_to(table, key[0], others) if len(key) == 1 else [])


def _too_many(names: Sequence[str]) -> list[Diagnostic]:
    """The warning about dimensions beyond the largest number, if there are any."""
    if not names:
        return []
    message = f"of the dimensions {MOST_DIMENSIONS} are proposed; left out: {', '.join(names[:NAMED])}"
    message += f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [Diagnostic("HDL-496", message, "name the files or folders that you need", severity="warning")]


def _dimension(table: UndeclaredTable, key: tuple[str, ...], references: Sequence[KeyReference]) -> ProposedDimension:
    """A table as a dimension. Raises what reading raises."""
    words = [name for name, type in table.types.items() if type in (STRING, BOOLEAN) and name not in key]
    groups = [name for name in words[:TRIED] if table.can_read(1) and _is_group(table.columns([name])[name])]
    return ProposedDimension(table.name, table.data, key, table.rows, tuple(references), groups=tuple(groups))


def _is_group(values: pa.ChunkedArray) -> bool:
    different = pc.count_distinct(values).as_py()
    return GROUPS[0] <= different <= min(
        GROUPS[1], max(GROUPS[0], len(values) // 2)
    ) and values.null_count <= MOST_NULLS * len(values)


def _with_references(dimension: ProposedDimension, streams: Sequence[str]) -> ProposedDimension:
    """A dimension with those references that are of streams."""
    return replace(dimension, references=tuple(each for each in dimension.references if each.table in streams))


def _dimension_with_times(table: UndeclaredTable, others: Sequence[UndeclaredTable]) -> ProposedDimension | None:
    """A table with times as a dimension, if events of others refer to it; else None."""
    if not others or table.rows > LARGEST:
        return None
    key = unique_key(table)
    references = references_to(table, key[0], others) if len(key) == 1 else []
    if not references:
        return None
    referring = {each.table for each in references}
    events = sum(other.rows for other in others if other.name in referring)
    times = tuple(candidate.name for candidate in table.data.likely_times)
    if events < FEWER * table.rows and not all(OF_ROWS.search(time) for time in times):
        return None
    return replace(_dimension(table, key, references), times=times)


def _left_out(tables: Sequence[UndeclaredTable]) -> Iterator[Diagnostic]:
    """Why tables are neither streams nor dimensions, by reason."""
    reasons: dict[str, list[UndeclaredTable]] = {}
    for table in tables:
        is_long = table.rows > LARGEST
        why = f"more than {LARGEST:,} rows, too many for a dimension" if is_long else "no unique key of other columns"
        reasons.setdefault(f"no column of times, and {why}", []).append(table)
    for why, those in reasons.items():
        names = ", ".join(Path(str(table.data.path)).name for table in those[:NAMED])
        names += f" and {len(those) - NAMED} more" if len(those) > NAMED else ""
        hint = f"if a column has times: heddle init … --time {those[0].name}=COLUMN"
        verb = "is" if len(those) == 1 else "are"
        yield Diagnostic("HDL-494", f"{names} {verb} left out: {why}", hint, severity="warning")


# -------------------------------------------------------------------------------------------- streams.yaml
def dimensions_lines(dimensions: Sequence[ProposedDimension], folder: Path) -> Iterator[str]:
    """The lines of streams.yaml that declare dimensions, with paths relative to ``folder``."""
    if not dimensions:
        return
    yield ""
    yield "# Tables that queries join by their key."
    yield "dimensions:"
    for dimension in dimensions:
        yield f"  {dimension.name}:"
        yield f"    # {dimension.about}"
        yield from source_lines(dimension.source, folder)
        yield f"    key: [{', '.join(map(column_line, dimension.key))}]"
        if dimension.schema:
            yield "    schema:"
            yield from (f"      {column_line(name, type)}" for name, type in dimension.schema)
