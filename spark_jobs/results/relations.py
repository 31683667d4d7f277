"""Every query as a relation with its name: columns with types that stay the same, whatever the query meant before.

The results table stores outputs in lists by carrier and group values as texts in ``key``, since thousands of
queries share it. A *relation* has the columns of a query as it is now. Each *definition* that the query ever had
determines the *slot* of each of these columns in a row that it answered. Nothing of the results is read for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.windows.alignment import longest_pause
from optimizer.workload.attributes import described_column, shown_columns
from optimizer.workload.values import ACQ, LONG, REACHED, STRING, TIMESTAMP, Output, Type
from spark_jobs.results.rows import places
from spark_jobs.store.warehouse.plans import PlannedDefinition, definitions
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.expressions import arrow_type

Role = Literal["time", "position", "group", "output", "revision", "error"]

OWN = ("window_start", "window_end", "instant", "position", "revision", "error")
"""Columns that relations have in addition to those of their queries."""

LONGEST_LONG = 19
"""Digits that every integer fits."""


@dataclass(frozen=True)
class RelationColumn:
    """A column: its type is one of the language, so never a list. ``role``: what it is for."""

    name: str
    type: Type
    description: str
    role: Role


@dataclass(frozen=True)
class Slot:
    """Position of a value in a row of the results: the column ``carrier`` and, in ``longs``, ``doubles``, ``texts``
    and ``key``, the ``index`` in its list.
    """

    carrier: str
    index: int = 0


@dataclass(frozen=True)
class Definition:
    """An earlier or present meaning of a query. Rows that it answered have its ``fingerprint``; those from before
    results had one have null and one of ``plan_versions``. ``slots``: the slot of each column of the relation in
    such a row; None: it has no such output, or one of another type, so the column is null.
    """

    fingerprint: str
    plan_versions: tuple[int, ...]
    slots: tuple[Slot | None, ...]


@dataclass(frozen=True)
class Arrangement:
    """Definitions that have every column of the relation in the same slot, so that their rows are read together: rows
    with one of these fingerprints, and those with none and one of these plan versions."""

    slots: tuple[Slot | None, ...]
    fingerprints: tuple[str, ...]
    plan_versions: tuple[int, ...]


@dataclass(frozen=True)
class Relation:
    """A query as a table. ``columns``: ``window_start``, ``window_end``, then ``instant`` of historical windows or
    ``position`` of windows of rows, group columns, outputs, ``revision`` and ``error``. ``definitions``: all that the
    query ever had in a plan, the newest, whose columns these are, first. ``period``: the longest time between two
    windows, in microseconds, and ``lateness`` how much later they are complete; None for windows of rows and sessions.
    ``text``: as registered. ``end_before``: without ``instant``, so long before it (microseconds) a window ends."""

    name: str
    owner: str
    stream: str
    text: str
    period: int | None
    lateness: int
    columns: tuple[RelationColumn, ...]
    definitions: tuple[Definition, ...]
    end_before: int = 0

    def named(self, *roles: Role) -> list[str]:
        """The names of the columns of some roles, in their order."""
        return [column.name for column in self.columns if column.role in roles]

    @property
    def grain(self) -> list[str]:
        """The columns whose values, nulls among them, no two rows share."""
        return ["window_start", *self.named("time", "position", "group")[1:]]

    @property
    def arrangements(self) -> list[Arrangement]:
        """Its definitions by where they have the columns, the newest first."""
        alike: dict[tuple[Slot | None, ...], list[Definition]] = {}
        for definition in self.definitions:
            alike.setdefault(definition.slots, []).append(definition)
        return [
            Arrangement(
                slots,
                tuple(definition.fingerprint for definition in definitions),
                tuple(sorted({version for definition in definitions for version in definition.plan_versions})),
            )
            for slots, definitions in alike.items()
        ]

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return pa.schema([(column.name, arrow_type(column.type)) for column in self.columns])


class Relations(Mapping[str, Relation]):
    """The relations of all queries that were ever in a plan, by name. Each is made on first use."""

    def __init__(self, planned: Mapping[str, Sequence[PlannedDefinition]], unmarked: range) -> None:
        self._planned, self._unmarked = planned, unmarked
        self._made: dict[str, Relation] = {}

    def __getitem__(self, name: str) -> Relation:
        if name not in self._made:
            self._made[name] = _relation(self._planned[name], self._unmarked)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._planned))

    def __len__(self) -> int:
        return len(self._planned)

    def first_version(self, name: str) -> int:
        """The version of the plan in which a query came up."""
        return min(each.plan_versions[0] for each in self._planned[name])


def relations(warehouse: Warehouse, results: DeltaTable | None = None) -> Relations:
    """The relations of a warehouse, of removed and paused queries too. ``results``: the version of the results that
    they are for, read before this is called; None: of now. One pass over the plans' table."""
    unmarked = versions_without_fingerprints(warehouse.table("results") if results is None else results)
    return Relations(definitions(warehouse), unmarked)


def relation(warehouse: Warehouse, name: str, results: DeltaTable | None = None) -> Relation:
    """One query's relation, for a version of the results; None: for any, so that its definitions have all versions of
    the plan. Raises HDL-507 if no plan has known it."""
    planned = definitions(warehouse, name)
    if name not in planned:
        raise unknown(name, definitions(warehouse))
    unmarked = range(1 << 62) if results is None else versions_without_fingerprints(results)
    return _relation(planned[name], unmarked)


def unknown(name: str, known: Mapping[str, object]) -> HeddleError:
    """The error of a name that no plan has known."""
    hint = meant(name, known) or "no plan is stored: `heddle run` makes one"
    return HeddleError("HDL-507", f"no plan knows a query {name}", hint)


def versions_without_fingerprints(results: DeltaTable) -> range:
    """The versions of the plan that may have answered rows without a fingerprint, by Delta's statistics."""
    files = pa.table(results.get_add_actions(flatten=True))
    names = ("null_count.fingerprint", "min.plan_version", "max.plan_version")
    nulls, least, most = (
        files[name].to_pylist() if name in files.schema.names else [None] * len(files) for name in names
    )
    spans = [(low, high) for low, high, count in zip(least, most, nulls, strict=True) if count != 0]
    if not spans:
        return range(0)
    if any(bound is None for span in spans for bound in span):
        return range(1 << 62)
    return range(min(low for low, _ in spans), max(high for _, high in spans) + 1)


# ------------------------------------------------------------------------------------------ of one query
def _relation(planned: Sequence[PlannedDefinition], unmarked: range) -> Relation:
    newest = planned[-1]
    every = [
        (each.query, _definition(each), tuple(version for version in each.plan_versions if version in unmarked))
        for each in reversed(planned)
    ]
    return _made(newest.query, newest.stream.lateness, every)


def _definition(planned: PlannedDefinition) -> str:
    """Fingerprint in the rows of a definition; it is independent of the instants that a run answers."""
    return planned.fingerprint if planned.query.window.at is None else planned.query.definition


def _made(query: ACQ, lateness: int, every: Sequence[tuple[ACQ, str, tuple[int, ...]]]) -> Relation:
    columns = tuple(column for column, _ in slotted(query))
    marked: dict[str, Definition] = {}
    for meaning, fingerprint, versions in every:
        before = marked[fingerprint].plan_versions if fingerprint in marked else ()
        marked[fingerprint] = Definition(fingerprint, tuple(sorted({*before, *versions})), _slots(columns, meaning))
    period = longest_pause(query.window) if query.kind.has_instants else None
    texts = query.name, query.owner, query.stream, query.text
    end_before = query.window.end_before - query.window.ago
    return Relation(*texts, period, lateness, columns, tuple(marked.values()), end_before)


def _slots(columns: Sequence[RelationColumn], query: ACQ) -> tuple[Slot | None, ...]:
    slots_by_name = {column.name: (column.type, slot) for column, slot in slotted(query)}
    passed = {name: (column.type, Slot(name)) for column in columns if (name := column.name) in OWN}
    every = passed | slots_by_name
    return tuple(
        every[column.name][1] if column.name in every and holds(column.type, every[column.name][0]) else None
        for column in columns
    )


def holds(type: Type, other: Type) -> bool:
    """Return whether every value of another type is one of this type: it is the same, or an exact one with fewer
    digits.
    """
    if type.name != "decimal" or other.name not in ("long", "decimal"):
        return type.name == other.name
    integer_digits = LONGEST_LONG if other.name == "long" else other.precision - other.scale
    return type.scale >= other.scale and type.precision - type.scale >= integer_digits


def slotted(query: ACQ) -> list[tuple[RelationColumn, Slot]]:
    """The columns of a query's relation, each with its slot in a row that the query answered."""
    end = "end of the window (UTC), exclusive"
    if query.kind.ends_with_pauses:
        end = "end of the session (UTC): the gap behind its last event; an event at it would belong to the session"
    columns = [
        (
            RelationColumn("window_start", TIMESTAMP, "start of the window (UTC), inclusive", "time"),
            Slot("window_start"),
        ),
        (RelationColumn("window_end", TIMESTAMP, end, "time"), Slot("window_end")),
    ]
    if query.window.ago:
        meaning = "the instant (UTC) that the window is the answer for"
        columns.append((RelationColumn("instant", TIMESTAMP, meaning, "time"), Slot("instant")))
    if query.kind.counts_rows:
        meaning = "the number of the window's first row"
        columns.append((RelationColumn("position", LONG, meaning, "position"), Slot("position")))
    used_names = {name.lower() for name in OWN}
    selected = query.select or [name for name, _ in query.group_by]
    for at, (name, (source, type)) in enumerate(zip(selected, query.group_by, strict=True)):
        meaning = f"group: {described_column(source, query.stream)}"
        columns.append((RelationColumn(_free(name, used_names), type, meaning, "group"), Slot("key", at)))
    for output, place in zip(query.outputs, places(query), strict=True):
        column = RelationColumn(_free(output.name, used_names), output.type, _meaning(output), "output")
        columns.append((column, Slot(*place)))
    meaning = "the publication of its interval that the row is of; the newest alone is kept"
    columns.append((RelationColumn("revision", LONG, meaning, "revision"), Slot("revision")))
    meaning = "why an output could not be given (HDL-601, HDL-612); null where all could"
    columns.append((RelationColumn("error", STRING, meaning, "error"), Slot("error")))
    return columns


def _free(name: str, taken: set[str]) -> str:
    """Column name that does not collide: an earlier Heddle allowed names that relations have themselves."""
    while name.lower() in taken:
        name += "_"
    taken.add(name.lower())
    return name


def _meaning(output: Output) -> str:
    if output.parts:
        return f"made of {', '.join(map(_meaning, output.parts))}"
    if output.function == REACHED:
        return f"keys that reach step {output.parameter}"
    of = ", ".join(shown_columns(output.columns())) or ("the sequences" if output.event is None else output.event)
    parameter = "" if output.parameter is None else f" {output.parameter}"
    error = "" if output.error is None else f", within an error of {output.error}"
    return f"{output.function}{parameter} of {of if output.argument or output.event else 'all events'}{error}"
