"""GroupBys of Chronon, as it compiles them to JSON, as one query each: a list of windows is several named windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.refusals import Refused, shown_text
from optimizer.migration.binding import Relation
from optimizer.migration.documents import (
    Definition,
    Reporter,
    column_named,
    elements,
    expression_in,
    members,
    path_of,
    place,
    text_of,
    words_near,
)
from optimizer.migration.relations import Reader
from optimizer.migration.words import DIFFERS, LEFT_OUT, Dialect
from optimizer.migration.writing import valid_name
from optimizer.workload.instants import DAY, duration_text, parse_duration

EVENTS = "events"
"""The name of a source's rows in the statement that a GroupBy is."""

UNBOUNDED = 2**31 - 1
"""Length of a window without a beginning, as Chronon has it inside."""

_UNITS = {"0": "hour", "1": "day", "2": "minute", "hours": "hour", "days": "day", "minutes": "minute"}

_OPERATIONS = (
    *("min", "max", "first", "last", "unique_count", "approx_unique_count", "count", "sum", "average", "variance"),
    *("skew", "kurtosis", "approx_percentile", "last_k", "first_k", "top_k", "bottom_k", "histogram"),
    *("approx_histogram_k", "bounded_unique_count"),
)
"""Chronon's operations, by their numbers."""

_FUNCTIONS = {
    "min": "min",
    "max": "max",
    "first": "first",
    "last": "last",
    "approx_unique_count": "approx_count_distinct",
    "count": "count",
    "sum": "sum",
    "average": "avg",
    "variance": "var_pop",
    "skew": "skewness",
    "kurtosis": "kurtosis",
    "last_k": "last_k",
    "approx_histogram_k": "approx_top_k",
}

_LACKING = {
    "first_k": "first(x) gives one value, last_k(x, k) the latest ones",
    "top_k": "the greatest values are no aggregate; top_k(x, k) counts the most frequent ones, max(x) gives one",
    "bottom_k": "collect_set(x, k) gives the k least distinct values",
    "histogram": "top_k(x, k) counts the k most frequent values",
}

_SUFFIXES = {"last_k": "last", "first_k": "first", "top_k": "top", "bottom_k": "bottom"}

_HOPS = ((12 * DAY, DAY), (DAY // 2, DAY // 24), (0, DAY // 288))
"""How far apart windows end that Chronon answers at every request: of those longer than the first of each."""


@dataclass(frozen=True)
class _Part:
    """An aggregate over one window, as Chronon unpacks them. ``length``: in microseconds."""

    name: str
    call: exp.Expr
    length: int
    at: int


@dataclass
class _GroupBy:
    """A GroupBy while it is read."""

    node: yaml.Node
    report: Reporter
    tables: dict[str, str]
    parts: list[_Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = valid_name(text_of(path_of(self.node, "metaData", "name"), "group_by"))

    def warn(self, code: str, message: str, hint: str, at: int) -> None:
        self.report.add(Refused(code, message, hint, at), self.name, "warning")

    def read(self) -> Definition | None:
        """The query; None if nothing is left of it. Raises :class:`Refused` for what prevents all of it."""
        events, time = self._events()
        for aggregation in elements(path_of(self.node, "aggregations")):
            try:
                self.parts += self._unpacked(aggregation)
            except Refused as refused:
                self.report.add(refused, self.name, "error")
        if not self.parts:
            if not elements(path_of(self.node, "aggregations")):
                raise Refused("HDL-143", "a GroupBy without aggregations", "Heddle aggregates events", place(self.node))
            return None
        self.parts = self._lasting(events, time)
        if not self.parts:
            return None
        relation = self._relation(events, time, self.parts, self._derivations(events, time))
        self._note()
        owner = valid_name(team) if (team := text_of(path_of(self.node, "metaData", "team"))) else ""
        return Definition(self.name, owner, place(self.node), words_near(self.node), relation)

    # ------------------------------------------------------------------------------------------ source
    def _events(self) -> tuple[Relation, str]:
        """The rows of the source, and the name of their time."""
        sources = elements(path_of(self.node, "sources"))
        if len(sources) != 1:
            hint = "union them in a job before"
            raise Refused("HDL-142", f"a GroupBy of {len(sources)} sources", hint, place(self.node))
        source = members(sources[0])
        node = source.get("events")
        if node is None:
            kind = next(iter(source), "no source")
            hint = "entities are mutated, and joins are made before: land what they give as events"
            raise Refused("HDL-142", f"a source of {shown_text(kind)}, not of events", hint, place(sources[0]))
        if text_of(path_of(node, "isCumulative")) in ("true", "1"):
            hint = "declare a stream that has each event once"
            raise Refused(
                "HDL-142", "a cumulative source: every partition repeats the events before", hint, place(node)
            )
        query = members(path_of(node, "query"))
        time_node = query.get("timeColumn")
        time = expression_in(time_node) if time_node is not None else exp.Null()
        if not isinstance(time, exp.Column):
            hint = "declare the column in streams.yaml, with its unit, and name it"
            raise Refused("HDL-144", "the time of the events is no plain column", hint, place(time_node or node))
        for key in ("startPartition", "endPartition"):
            if key in query:
                hint = "declare the files of the stream"
                self.warn(LEFT_OUT, f"{key} is left out", hint, place(query[key]))
        items = tuple((name, expression_in(value)) for name, value in members(query.get("selects")).items())
        where = [expression_in(condition) for condition in elements(query.get("wheres"))]
        table, *partitions = text_of(path_of(node, "table")).split("/")
        where += [_partition(partition, path_of(node, "table") or node) for partition in partitions]
        name = table.rpartition(".")[2]
        if not name:
            raise Refused("HDL-142", "the source names no table", "", place(node))
        if self.tables.setdefault(name.lower(), table.lower()) != table.lower():
            message = f"{self.tables[name.lower()]} and {table} are two tables of one name"
            raise Refused("HDL-142", message, "give one of the streams another name", place(node))
        named = "" if time.name.lower() in (item.lower() for item, _ in items) else time.name
        items += ((named, time),) if named else ()
        return Relation(name, items, not query.get("selects"), tuple(where)), time.name

    # ------------------------------------------------------------------------------------- aggregates
    def _unpacked(self, node: yaml.Node) -> Iterator[_Part]:
        """The parts of an aggregation, one for each window."""
        operation = text_of(path_of(node, "operation")).lower()
        operation = _OPERATIONS[int(operation)] if operation.isdecimal() and int(operation) < 20 else operation
        column = text_of(path_of(node, "inputColumn"))
        arguments = {name: text_of(value) for name, value in members(path_of(node, "argMap")).items()}
        name = f"{column}_{_SUFFIXES.get(operation, operation)}"
        name += arguments.get("k", "") if operation in _SUFFIXES else ""
        if elements(path_of(node, "buckets")):
            hint = "group by the bucket in a query of its own"
            raise Refused("HDL-143", f"{name}: an aggregate by buckets", hint, place(node))
        call = _call(operation, column, arguments, node)
        windows = path_of(node, "windows")
        listed = windows.value if isinstance(windows, yaml.SequenceNode) else [None]
        for window in listed:
            try:
                yield self._part(name, call, window, node)
            except Refused as refused:
                self.report.add(refused, self.name, "error")

    def _part(self, name: str, call: exp.Expr, window: yaml.Node | None, node: yaml.Node) -> _Part:
        near = window if window is not None else node
        length = text_of(path_of(window, "length"))
        unit = _UNITS.get(text_of(path_of(window, "timeUnit")).lower(), "")
        if not members(window) or (length.lstrip("-").isdecimal() and not 0 < int(length) < UNBOUNDED):
            hint = "give it windows, or write it over window life AS (RANGE UNBOUNDED) in the query"
            raise Refused("HDL-141", f"{name} has no window: it is over all events", hint, place(near))
        try:
            micros = parse_duration(f"{length} {unit}")
        except HeddleError as error:
            raise Refused.of(error, place(near)) from None
        return _Part(f"{name}_{length}{unit[:1]}", call, micros, place(near))

    # ------------------------------------------------------------------------------------------ query
    def _keys(self) -> list[exp.Expr]:
        return [column_named(text_of(key)) for key in elements(path_of(self.node, "keyColumns"))]

    def _relation(self, events: Relation, time: str, parts: list[_Part], derived: list[exp.Expr]) -> Relation:
        """The grouping with some of the parts. ``derived``: expressions over them, which are selected instead."""
        longest = max(part.length for part in parts)
        items = [_selected(part, longest, time) for part in parts]
        keys = self._keys()
        window = exp.Anonymous(
            this="window",
            expressions=[
                column_named(time),
                *(exp.Literal.string(duration_text(n)) for n in (longest, self._slide(parts))),
            ],
        )
        tree = exp.Select(
            expressions=[*keys, *items],
            from_=exp.From(this=exp.Table(this=exp.to_identifier(EVENTS))),
            group=exp.Group(expressions=[window, *(key.copy() for key in keys)]),
        )
        if keys:
            given_key = exp.or_(*(exp.Not(this=exp.Is(this=key.copy(), expression=exp.Null())) for key in keys))
            tree.set("where", exp.Where(this=given_key))
        if derived:
            inner = exp.Subquery(this=tree, alias=exp.TableAlias(this=exp.to_identifier("answers")))
            tree = exp.Select(expressions=[*(key.copy() for key in keys), *derived], from_=exp.From(this=inner))
        return Reader(Dialect.spark, {EVENTS: events}, {}).read(tree)

    def _is_temporal(self) -> bool:
        accuracy = text_of(path_of(self.node, "accuracy"))
        topics = [path_of(source, "events", "topic") for source in elements(path_of(self.node, "sources"))]
        return accuracy in ("0", "TEMPORAL") or (not accuracy and any(topics))

    def _slide(self, parts: list[_Part]) -> int:
        if not self._is_temporal():
            return DAY
        return min(next(hop for longer, hop in _HOPS if part.length > longer) for part in parts)

    def _derivations(self, events: Relation, time: str) -> list[exp.Expr]:
        """The items of the SELECT list that derivations are; empty if there are none."""
        items: list[exp.Expr] = []
        for node in elements(path_of(self.node, "derivations")):
            name, value = text_of(path_of(node, "name")), path_of(node, "expression")
            if name == "*" or value is None:
                items += [column_named(part.name) for part in self.parts]
                continue
            try:
                item = exp.Alias(this=expression_in(value), alias=exp.to_identifier(name, quoted=True))
                self._relation(events, time, self.parts, [item])
            except Refused as refused:
                self.report.add(refused, self.name, "error")
                continue
            items.append(item)
        return items

    def _lasting(self, events: Relation, time: str) -> list[_Part]:
        """The parts that our parser takes; the others are reported."""
        if self._problem(events, time, self.parts) is None:
            return self.parts
        problems = [(part, self._problem(events, time, [part])) for part in self.parts]
        lasting = [part for part, problem in problems if problem is None]
        if not lasting and len({problem.message for _, problem in problems if problem is not None}) == 1:
            # of the source, not of an aggregate: it is reported once, at its words
            return self.parts[:1]
        for part, problem in problems:
            if problem is not None:
                message = f"{part.name}: {problem.message}"
                self.report.add(Refused(problem.code, message, problem.hint, part.at), self.name, "error")
        return lasting

    def _problem(self, events: Relation, time: str, parts: list[_Part]) -> Refused | None:
        """The first reason why there is no query of some parts; None: there is one."""
        try:
            return next(iter(self.report.problems(self._relation(events, time, parts, []), self.name)), None)
        except Refused as refused:
            return refused

    def _note(self) -> None:
        at = place(self.node)
        if self._is_temporal():
            every = duration_text(self._slide(self.parts))
            message = f"Chronon answers at each request, the query every {every}"
            self.warn(DIFFERS, message, "change its SLIDE", at)
        if any(part.call.name == "last_k" for part in self.parts):
            self.warn(DIFFERS, "last_k lists the latest value last, Chronon first", "check that this is wanted", at)


def group_bys(root: yaml.Node, report: Reporter, tables: dict[str, str]) -> Iterator[Definition]:
    """The GroupBys of a document, also those that a Join joins, as queries.

    ``tables``: the full name of each stream, by its last part in lower case.
    """
    nodes = [root] if isinstance(root, yaml.MappingNode) else elements(root)
    for node in nodes:
        parts = [path_of(part, "groupBy") for part in elements(path_of(node, "joinParts"))]
        if parts:
            hint = "join their answers when you read: heddle sql"
            at = place(node)
            report.add(Refused(LEFT_OUT, "the join is left out: its GroupBys are queries", hint, at), "", "warning")
        for each in [part for part in parts if part is not None] or [node]:
            group_by = _GroupBy(each, report, tables)
            try:
                definition = group_by.read()
            except Refused as refused:
                report.add(refused, group_by.name, "error")
                continue
            if definition is not None:
                yield definition


def is_chronon(root: yaml.Node) -> bool:
    """Return whether a document is a GroupBy or a Join of Chronon, or a list of these."""
    first = root if isinstance(root, yaml.MappingNode) else next(iter(elements(root)), None)
    keys = members(first)
    return ("sources" in keys and ("keyColumns" in keys or "aggregations" in keys)) or "joinParts" in keys


def _selected(part: _Part, longest: int, time: str) -> exp.Expr:
    """An aggregate, over the end of the window if its own is shorter."""
    call: exp.Expr = part.call.copy()
    if part.length != longest:
        length = exp.Interval(this=exp.Literal.string(duration_text(part.length)))
        begin = exp.Sub(this=exp.Placeholder(this="end"), expression=length)
        call = exp.Filter(this=call, expression=exp.Where(this=exp.GTE(this=column_named(time), expression=begin)))
        if part.call.name == "least":
            inner, most = part.call.expressions
            call.set("this", inner.copy())
            call = exp.Anonymous(this="least", expressions=[call, most.copy()])
    return exp.Alias(this=call, alias=exp.to_identifier(part.name, quoted=True))


def _call(operation: str, column: str, arguments: dict[str, str], node: yaml.Node) -> exp.Expr:
    """The call of an operation."""
    if not column:
        raise Refused("HDL-146", "an aggregation without an inputColumn", "", place(node))
    if operation in _LACKING:
        raise Refused("HDL-104", f"{column}: there is no aggregate {operation}", _LACKING[operation], place(node))
    value, k = column_named(column), arguments.get("k", "")
    if k and not (k.isdecimal() and len(k) < 6):
        raise Refused("HDL-146", f"k is {shown_text(k)}, no number", "", place(node))
    if operation in ("unique_count", "bounded_unique_count"):
        count = exp.Anonymous(this="count", expressions=[exp.Distinct(expressions=[value])])
        most = exp.Literal.number(k or "8")
        return count if operation == "unique_count" else exp.Anonymous(this="least", expressions=[count, most])
    if operation == "approx_percentile":
        try:
            ranks = [float(rank) for rank in arguments.get("percentiles", "0.5").strip(" []").split(",")]
        except ValueError:
            raise Refused("HDL-146", "percentiles that are no numbers", "", place(node)) from None
        array = exp.Anonymous(
            this="array", expressions=[exp.Literal.number(f"{rank:.6f}".rstrip("0")) for rank in ranks]
        )
        return exp.Anonymous(this="approx_percentile", expressions=[value, array])
    name = _FUNCTIONS.get(operation)
    if name is None:
        raise Refused("HDL-146", f"there is no operation {shown_text(operation)}", "", place(node))
    takes = [exp.Literal.number(k or "8")] if name in ("last_k", "approx_top_k") else []
    return exp.Anonymous(this=name, expressions=[value, *takes])


def _partition(text: str, node: yaml.Node) -> exp.Expr:
    """The condition of a partition in the name of a table: ``system=mobile``."""
    name, equal, value = text.partition("=")
    if not (name and equal):
        raise Refused("HDL-142", f"the name of a table with {shown_text(text)}", "", place(node))
    return exp.EQ(this=column_named(name), expression=exp.Literal.string(value))
