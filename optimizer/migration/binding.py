"""Expressions of a job in terms of the stream that they read in the end.

Every expression is *bound*: its columns are those of the stream. The bounds of the window, which no expression of
Heddle's may use, and the number of a row are markers, :class:`sqlglot.exp.Placeholder`, which the guards let no text
have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from optimizer.language.nodes import place_of
from optimizer.language.refusals import Refused, shown_text
from optimizer.migration.buckets import BUCKET, TOOLKIT, of_bucket
from optimizer.migration.functions import calls_aggregate
from optimizer.migration.joins import ImportedJoin
from optimizer.migration.moments import UNIT_FIRST
from optimizer.migration.windows import (
    BOUNDS,
    COLUMNS,
    FIELDS,
    GROUP_WINDOWS,
    SESSION_WINDOW,
    ImportedWindow,
    of_call,
)
from optimizer.migration.words import Dialect, function_of

MOST_NODES = 4096
"""Nodes that one SELECT puts in for its views and subselects: views that double each other's columns end here."""

WINDOW, RANK = "window", "rank"
"""Markers: the window as a struct or one of its bounds, and the number of a row within it."""

BOUND_MARKERS = (WINDOW, "start", "end")


@dataclass(frozen=True)
class Grouped:
    """A grouping of events by windows: ``sets`` of keys, one unless it is GROUPING SETS.

    ``ranked``: the order by which rows within a window are numbered; ``top``: the number of rows that remain.
    """

    sets: tuple[tuple[exp.Expr, ...], ...]
    having: tuple[exp.Expr, ...] = ()
    ranked: exp.Ordered | None = None
    top: int | None = None


@dataclass(frozen=True)
class Relation:
    """Rows: events of ``stream`` that satisfy all of ``where``, grouped or not.

    ``items``: the columns that are named, in order, each with its expression; ``star``: all of the stream's are there
    besides. ``windowed``: the rows have the columns of a windowing table function. ``joins``: the dimensions that are
    joined with the stream. ``notes``: what differs or is left out, each a warning.
    """

    stream: str
    items: tuple[tuple[str, exp.Expr], ...] = ()
    star: bool = True
    where: tuple[exp.Expr, ...] = ()
    window: ImportedWindow | None = None
    windowed: bool = False
    grouped: Grouped | None = None
    joins: tuple[ImportedJoin, ...] = ()
    notes: tuple[Refused, ...] = ()

    @property
    def columns(self) -> dict[str, exp.Expr]:
        """The named columns, by name in lower case."""
        return {name.lower(): node for name, node in self.items if name}


@dataclass
class Binder:
    """Express one SELECT in terms of the stream.

    ``window``: the window seen so far; ``nodes``: the number of nodes put in for columns of views and subselects;
    ``joined``: names of the tables that this SELECT joins, in lower case.
    """

    source: Relation
    names: frozenset[str]
    dialect: Dialect
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    window: ImportedWindow | None = None
    nodes: int = 0
    joined: frozenset[str] = frozenset()

    def bind(self, node: exp.Expr, aliases: bool = False) -> exp.Expr:
        """A copy in terms of the stream. ``aliases``: it may contain names of the SELECT list."""
        bound = exp.Paren(this=node.copy()).transform(lambda part: self._part(part, aliases), copy=False)
        for dot in list(bound.find_all(exp.Dot)):
            if is_marker(dot.this) and dot.expression.name.lower() in FIELDS:
                dot.replace(marker(FIELDS[dot.expression.name.lower()], dot))
        inner: exp.Expr = bound.this
        return inner

    def _part(self, node: exp.Expr, aliases: bool) -> exp.Expr:
        if isinstance(node, exp.Select | exp.Subquery | exp.SetOperation | exp.Exists):
            raise Refused("HDL-142", "a subselect in an expression", "only FROM takes one", place_of(node))
        if isinstance(node, exp.Column):
            return self._column(node, aliases)
        if isinstance(node, exp.Anonymous):
            return self._call(node)
        return node

    def _call(self, call: exp.Anonymous) -> exp.Expr:
        name = function_of(call.name)
        if name in BOUNDS and self.dialect is Dialect.flink:
            self._meet(call, name.partition("_")[0])
            return marker(BOUNDS[name], call)
        if name == "window_time" and self.dialect is Dialect.spark:
            return marker("end", call)
        if name == BUCKET:
            self._meet(call, name)
            return marker("start", call)
        if name in TOOLKIT and self.dialect is Dialect.timescale:
            raise Refused("HDL-104", f"{name}() of TimescaleDB is no aggregate here", TOOLKIT[name], place_of(call))
        if name.endswith("_proctime") or name == "proctime":
            raise Refused("HDL-144", "processing time", "windows go by a column of the events", place_of(call))
        if name in (GROUP_WINDOWS if self.dialect is Dialect.flink else (WINDOW, SESSION_WINDOW)):
            self._meet(call, name)
            return marker(WINDOW, call)
        if name in UNIT_FIRST and len(call.expressions) == 3 and type(call.expressions[0]) is exp.Column:
            # a unit is no column
            unit = call.expressions[0]
            unit.replace(exp.Var(this=unit.name))
        return call

    def _meet(self, call: exp.Anonymous, name: str) -> None:
        bound = call.copy()
        bound.set("expressions", [_unqualified(self.bind(argument)) for argument in call.expressions])
        met = of_bucket(bound, self.dialect) if name == BUCKET else of_call(bound, name)
        if (self.window or self.source.window) not in (None, met):
            raise Refused("HDL-143", "a second window in one query", "a query has one: write two", place_of(call))
        self.window = met

    def _column(self, node: exp.Column, aliases: bool) -> exp.Expr:
        parts = list(node.parts)
        if any(not isinstance(part, exp.Identifier) for part in parts):
            return node
        name = parts[0].name.lower()
        if len(parts) == 2 and name in self.joined:
            return node
        is_qualified = len(parts) > 1 and name in self.names and name not in self.source.columns
        if is_qualified:
            parts = parts[1:]
            name = parts[0].name.lower()
        bound = self._named(name, parts[0], aliases, node)
        if is_qualified and self.joined and type(bound) is exp.Column and not bound.args.get("table"):
            # a dimension may have a column of the same name
            bound.set("table", exp.to_identifier(self.source.stream))
        if len(parts) == 1:
            return bound
        if is_marker(bound) and parts[1].name.lower() in FIELDS and len(parts) == 2:
            return marker(FIELDS[parts[1].name.lower()], node)
        for part in parts[1:]:
            bound = exp.Dot(this=bound, expression=part.copy())
        return bound

    def _named(self, name: str, part: exp.Expr, aliases: bool, node: exp.Column) -> exp.Expr:
        columns = self.source.columns
        if aliases and name in self.aliases and not _calls_aggregated(node):
            return self._put_in(self.aliases[name], node)
        if name in columns:
            return self._put_in(columns[name], node)
        if self.source.windowed and name in COLUMNS:
            return marker(COLUMNS[name], node)
        if self.window is not None and name in (WINDOW, SESSION_WINDOW):
            return marker(WINDOW, node)
        if not self.source.star and not self.joined:
            raise Refused("HDL-202", f"there is no column {shown_text(part.name)}", "", place_of(node))
        column = exp.Column(this=part.copy())
        column.this.meta.update(part.meta)
        return column

    def _put_in(self, expression: exp.Expr, node: exp.Column) -> exp.Expr:
        self.nodes += sum(1 for _ in expression.walk())
        if self.nodes > MOST_NODES:
            raise _too_long(place_of(node))
        return inside(expression)


def _unqualified(node: exp.Expr) -> exp.Expr:
    """A column without its stream, as a window names it."""
    return exp.Column(this=node.this.copy()) if type(node) is exp.Column and node.args.get("table") else node


def _calls_aggregated(node: exp.Expr) -> bool:
    """Return whether a node is inside an aggregate, where the names of the SELECT list mean nothing."""
    parent = node.parent
    while parent is not None and not calls_aggregate(parent):
        parent = parent.parent
    return parent is not None


def _too_long(at: int) -> Refused:
    return Refused("HDL-303", "with its views and subselects put in the query is too long", "write it out", at)


def marker(name: str, near: exp.Expr | None = None) -> exp.Expr:
    """A marker, at the place of a node."""
    node = exp.Placeholder(this=name)
    if near is not None:
        node.meta["start"] = place_of(near)
    return node


def is_marker(node: exp.Expr, *names: str) -> bool:
    """Return whether a node is a marker with one of the names; without names, of the window."""
    return isinstance(node, exp.Placeholder) and node.name in (names or BOUND_MARKERS)


def is_of_window(node: exp.Expr) -> bool:
    """Return whether an expression is only the window, its start or its end."""
    return is_marker(node)


def markers(node: exp.Expr | None) -> Iterator[exp.Placeholder]:
    """The markers in an expression."""
    if node is not None:
        yield from node.find_all(exp.Placeholder)


def inside(node: exp.Expr) -> exp.Expr:
    """A copy of an expression that can be put inside another."""
    simple = exp.Column | exp.Literal | exp.Anonymous | exp.Paren | exp.Placeholder | exp.Case | exp.Cast | exp.Filter
    simple |= exp.Window
    return node.copy() if isinstance(node, simple) else exp.Paren(this=node.copy())
