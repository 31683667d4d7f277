"""Hypothesis strategies: dimensions, and workloads over a stream that is joined with them; the join by DuckDB.

A case begins as one of :mod:`tests.workloads`. Then some columns that its queries read are read from dimensions
instead, which have columns of the same names and types. So attributes stand wherever columns may.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from deltalake import write_deltalake
from hypothesis import strategies as st

from optimizer.workload.attribute_names import JoinedAttribute
from optimizer.workload.computed_keys import key_name
from optimizer.workload.instants import DAY
from optimizer.workload.notation import written
from optimizer.workload.predicates import normal, tidied
from optimizer.workload.values import (
    ACQ,
    DATE,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Dimension,
    Expression,
    Literal,
    Output,
    Source,
    Stream,
    Type,
    Workload,
    columns_of,
    decimal,
)
from spark_jobs.streams.sources.expressions import arrow_type
from tests.workloads import POOLS, SCHEMA, TYPES, Case, arrow_schema, cases, sequence_cases

KEYED = ("carrier", "code", "huge", "volume", "fee", "fine", "late", "due", "seen")
"""Columns of types that keys may have."""

FORMATS = ("parquet", "csv", "delta")

MORE_KEYS: dict[str, list[Any]] = {
    "carrier": ["aa", "b6", "É", "AAx", "é x", "0", "1"],
    "due": [date(2013, 7, 1), date(1970, 2, 1)],
    "code": [3, 7, 12],
    "fee": [Decimal("-12.34")],
}
"""Values that computed keys have, in addition to those of the columns."""


def _call(function: str, *constants: Literal) -> Callable[[Expression], Expression]:
    return lambda value: Call(function, (value, *constants))


COMPUTED: dict[tuple[str, int], list[tuple[str, Callable[[Expression], Expression], str]]] = {
    ("string", 0): [
        ("carrier", _call("upper"), "upper({})"),
        ("carrier", _call("lower"), "lower({})"),
        ("carrier", _call("coalesce", Literal("AA", STRING)), "coalesce({}, 'AA')"),
        ("carrier", _call("concat", Literal("x", STRING)), "({} || 'x')"),
        ("carrier", _call("concat", Literal("X'`", STRING)), "({} || 'X''`')"),
        ("code", _call("cast", Literal("string", STRING)), "{}::VARCHAR"),
        ("late", _call("if", Literal("AA", STRING), Literal("B6", STRING)), "CASE WHEN {} THEN 'AA' ELSE 'B6' END"),
    ],
    ("long", 0): [
        ("carrier", _call("length"), "length({})"),
        ("code", _call("+", Literal(1, Type("long", 1))), "({}::BIGINT + 1)"),
        ("due", _call("date_part", Literal("month", STRING)), "month({})"),
        ("volume", _call("coalesce", Literal(1, Type("long", 1))), "coalesce({}, 1)"),
    ],
    ("decimal", 2): [
        ("fee", _call("neg"), "(-{})"),
        ("fee", _call("coalesce", Literal(Decimal("12.34"), decimal(4, 2))), "coalesce({}, 12.34)"),
    ],
    ("decimal", 6): [("fine", _call("abs"), "abs({})")],
    ("boolean", 0): [
        ("late", _call("not"), "(NOT {})"),
        ("code", _call(">", Literal(0, Type("long", 1))), "({} > 0)"),
        ("carrier", _call("is_null"), "({} IS NULL)"),
    ],
    ("date", 0): [
        ("seen", _call("cast", Literal("date", STRING)), "({})::DATE"),
        ("due", _call("coalesce", Literal("2013-07-04", DATE)), "coalesce({}, DATE '2013-07-04')"),
    ],
    ("timestamp", 0): [
        ("seen", _call("date_trunc", Literal("day", STRING)), "date_trunc('day', {})"),
        ("ts", _call("date_trunc", Literal("hour", STRING)), "date_trunc('hour', {})"),
        ("due", _call("cast", Literal("timestamp", STRING)), "({})::TIMESTAMPTZ"),
    ],
}
"""Computed keys of a type and scale: a column, the value of it, and DuckDB's SQL for that."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class JoinedCase:
    """A case whose queries join dimensions.

    Parameters
    ----------
    case
        The workload over a stream with dimensions, and its events.
    rows
        Of each dimension the rows, as its file holds them.
    spans
        Of each dimension with validities the span [from, to) of each row, null: open.
    joins
        The joins that the queries make: whether there is a row, each by its name.
    computed
        Of each computed key the column that it is computed of, and DuckDB's SQL for it, with ``{}`` for the column.
    """

    case: Case
    rows: Mapping[str, pa.Table]
    spans: Mapping[str, Sequence[tuple[int | None, int | None]]]
    joins: Mapping[str, JoinedAttribute]
    computed: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def _type_of(column: str) -> pa.DataType:
    return arrow_schema().field(column).type


def _day(moment: int | None) -> date | None:
    return None if moment is None else (_EPOCH + timedelta(microseconds=moment)).date()


@st.composite
def _spans(draw: st.DrawFn, moments: Sequence[int], is_closed: bool) -> list[tuple[int | None, int | None]]:
    """Spans that do not overlap, of the rows of one key; ``is_closed``: each has an end of its own."""
    cuts = sorted(draw(st.lists(st.sampled_from(moments), min_size=1, max_size=5, unique=True)))
    if not is_closed:
        starts: list[int | None] = [None if at == 0 and draw(st.booleans()) else cut for at, cut in enumerate(cuts)]
        return list(zip(starts, [*cuts[1:], None], strict=True))
    spans: list[tuple[int | None, int | None]] = []
    for low, high in zip(cuts, [*cuts[1:], None], strict=True):
        if not spans and draw(st.integers(0, 3)) == 0:
            spans.append((None, low))
        # neighbours may meet, or leave a gap
        if not spans or draw(st.integers(0, 3)):
            spans.append((low, high))
        elif draw(st.booleans()):
            # valid at no time
            spans.append((low, low))
    return spans


@st.composite
def _dimension(
    draw: st.DrawFn, name: str, moments: Sequence[int]
) -> tuple[Dimension, pa.Table, list[tuple[int | None, int | None]]]:
    """A dimension with all columns of the schema beside a key of some of their types."""
    like = draw(st.lists(st.sampled_from(KEYED), min_size=1, max_size=3, unique=True))
    key = tuple(f"{column} key" if draw(st.booleans()) else f"key_{column}" for column in like)
    values_of = {column: [*POOLS[column], *MORE_KEYS.get(column, ()), None] for column in like}
    pools = [draw(st.lists(st.sampled_from(values_of[column]), min_size=1, unique=True)) for column in like]
    least = 0
    if len(like) == 1 and draw(st.booleans()):
        # many keys, so that also computed ones have rows
        pools, least = [values_of[like[0]]], min(len(values_of[like[0]]), 6)
    drawn = draw(st.lists(st.tuples(*map(st.sampled_from, pools)), min_size=least, max_size=8, unique=True))
    has_null = [any(value is None for value in values) for values in drawn]
    validity = draw(st.sampled_from((None, None, "from", "both", "both", "days")))
    spans: list[tuple[int | None, int | None]] = []
    keys: list[tuple[Any, ...]] = []
    for values, is_null in zip(drawn, has_null, strict=True):
        bounds = moments if validity != "days" else sorted({at - at % DAY for at in moments})
        own = draw(_spans(bounds, validity != "from")) if validity else [(None, None)]
        # rows with a null in the key match nothing, however many there are
        own = own * 2 if is_null else own
        keys += [values] * len(own)
        spans += own
    order = draw(st.permutations(range(len(keys))))
    keys, spans = [keys[at] for at in order], [spans[at] for at in order]
    columns = {column: pa.array([values[at] for values in keys], _type_of(like[at])) for at, column in enumerate(key)}
    for column, _ in SCHEMA:
        pool = draw(st.lists(st.sampled_from([*POOLS[column], None]), min_size=1, max_size=4))
        columns[column] = pa.array([draw(st.sampled_from(pool)) for _ in keys], _type_of(column))
    schema = [(column, TYPES[like[at]]) for at, column in enumerate(key)] + list(SCHEMA)
    ends: tuple[str | None, str | None] = (None, None)
    if validity:
        ends = ("since", None if validity == "from" else "until")
        type_ = DATE if validity == "days" else TIMESTAMP
        for number, column in enumerate(filter(None, ends)):
            at = [span[number] for span in spans]
            moment = pa.array(at, pa.int64()).cast(pa.timestamp("us", "UTC"))
            columns[column] = pa.array([_day(each) for each in at], pa.date32()) if validity == "days" else moment
            schema.append((column, type_))
    names = [column for column, _ in schema]
    dimension = Dimension(name, Source("parquet", name), key, tuple(schema), *ends)
    return dimension, pa.table(columns).select(names), spans if validity else []


@st.composite
def _joins(
    draw: st.DrawFn, dimensions: Sequence[Dimension], types: Mapping[str, Type], computed: dict[str, tuple[str, str]]
) -> dict[str, JoinedAttribute]:
    """Some joins: a dimension may be joined twice, by attributes of those joined before, and by what is computed of
    columns and attributes, which is added to ``computed``."""
    joins: dict[str, JoinedAttribute] = {}
    for dimension in draw(st.lists(st.sampled_from(dimensions), min_size=1, max_size=3)):
        keys = []
        for key in dimension.key:
            type_ = dict(dimension.schema)[key]
            form = type_.name, type_.scale
            if draw(st.integers(0, 2)) == 0:
                keys.append(draw(_computed(form, joins, types, computed)))
                continue
            columns = [name for name in KEYED if (TYPES[name].name, TYPES[name].scale) == form]
            others = [each._replace(column=name).name for each in joins.values() for name in columns]
            keys.append(draw(st.sampled_from([*columns, *others])))
        attribute = JoinedAttribute(dimension.name, tuple(keys), None)
        joins[attribute.name] = attribute
    return joins


@st.composite
def _computed(
    draw: st.DrawFn,
    form: tuple[str, int],
    joins: Mapping[str, JoinedAttribute],
    types: Mapping[str, Type],
    computed: dict[str, tuple[str, str]],
) -> str:
    """A computed key of a type and scale."""
    column, build, sql = draw(st.sampled_from(COMPUTED[form]))
    others = [each._replace(column=column).name for each in joins.values()] if column != "ts" else []
    name = draw(st.sampled_from([column, *others]))
    key = key_name(tidied(build(Column(name)), types))
    computed[key] = name, sql
    return key


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    if isinstance(expression, Column):
        return Column(names.get(expression.name, expression.name))
    if isinstance(expression, Call):
        return Call(expression.function, tuple(_renamed(part, names) for part in expression.arguments))
    return expression


def _output(output: Output, names: Mapping[str, str]) -> Output:
    argument = None if output.argument is None else _renamed(output.argument, names)
    by = None if output.by is None else _renamed(output.by, names)
    return replace(output, argument=argument, by=by, parts=tuple(_output(part, names) for part in output.parts))


def joined_query(query: ACQ, names: Mapping[str, str], inner: Sequence[str], types: Mapping[str, Any]) -> ACQ:
    """A query that reads other columns; ``names``: by those that it reads now; ``inner``: joins that need a row."""
    computed = {name: _renamed(expression, names) for name, expression in query.derived}
    derived = {name: written(expression) for name, expression in computed.items()}
    conditions = [*([] if query.filter is None else [_renamed(query.filter, names)]), *map(Column, inner)]
    filter = Call("and", tuple(conditions)) if len(conditions) > 1 else next(iter(conditions), None)
    top = query.top
    if top is not None:
        orders = (replace(order, output=_output(order.output, names)) for order in top.orders)
        top = replace(top, orders=tuple(orders))
    return replace(
        query,
        outputs=tuple(_output(output, names) for output in query.outputs),
        filter=normal(filter, types),
        group_by=tuple((derived.get(name, names.get(name, name)), type_) for name, type_ in query.group_by),
        select=query.select or tuple(name for name, _ in query.group_by),
        having=tuple(replace(each, output=_output(each.output, names)) for each in query.having),
        derived=tuple((derived[name], expression) for name, expression in computed.items()),
        top=top,
    )


def _cases(most_queries: int, most_events: int) -> st.SearchStrategy[Case]:
    return st.one_of(cases(most_queries, most_events), sequence_cases(most_queries, most_events))


@st.composite
def joined_cases(
    draw: st.DrawFn,
    most_queries: int = 4,
    most_events: int = 30,
    of: Callable[[int, int], st.SearchStrategy[Case]] = _cases,
) -> JoinedCase:
    """A case of ``of`` whose queries join up to three dimensions."""
    case = draw(of(most_queries, most_events))
    times = [at for at in case.events["ts"].cast(pa.int64()).to_pylist() if at is not None] or [case.begin]
    moments = sorted({at + by for at in times for by in (-1, 0, 1)} | {case.begin, case.end})
    declared = [draw(_dimension(f"d{number}", moments)) for number in range(draw(st.integers(1, 2)))]
    dimensions = tuple(dimension for dimension, _, _ in declared)
    stream, computed = replace(case.stream, dimensions=dimensions), dict[str, tuple[str, str]]()
    joins = draw(_joins(dimensions, stream.types, computed))
    queries = []
    for query in case.workload.queries:
        used = draw(st.lists(st.sampled_from(list(joins)), max_size=3, unique=True))
        inner = [name for name in used if draw(st.booleans())]
        kept = set() if query.pattern is None else {query.pattern.on, *query.pattern.per}
        if draw(st.booleans()):
            # such a query may be joined late
            kept |= {column for output in query.computed for column in output.columns()}
            kept |= {column for _, expression in query.derived for column in columns_of(expression)}
        names = {}
        for column, _ in SCHEMA if used else ():
            if column not in kept and draw(st.integers(0, 2)):
                names[column] = joins[draw(st.sampled_from(used))]._replace(column=column).name
        queries.append(joined_query(query, names, inner, stream.types))
    # a run that counts events without a row fails at one without a time yet (test_an_event_without_a_time_is_left_out)
    timed = case.events.filter(case.events["ts"].is_valid())
    joined = replace(case, workload=Workload(tuple(queries), (stream,)), events=timed)
    rows = {dimension.name: table for dimension, table, _ in declared}
    spans_of_dimensions = {dimension.name: spans for dimension, _, spans in declared}
    return JoinedCase(joined, rows, spans_of_dimensions, joins, computed)


def with_matches(joined: JoinedCase) -> JoinedCase:
    """The case whose dimensions have rows for keys of its events, as far as a join is by columns of the events."""
    rows, spans, events = dict(joined.rows), dict(joined.spans), joined.case.events
    for dimension in joined.case.stream.dimensions:
        of_columns = [
            each
            for each in joined.joins.values()
            if each.dimension == dimension.name
            and set(each.keys) <= set(events.column_names)
            and [_type_of(key) for key in each.keys]
            == [rows[dimension.name].schema.field(key).type for key in dimension.key]
        ]
        table = rows[dimension.name]
        if not of_columns or not len(table):
            continue
        columns = [events[name].to_pylist() for name in of_columns[0].keys]
        present = [values for values in dict.fromkeys(zip(*columns, strict=True)) if None not in values]
        former = list(zip(*(table[name].to_pylist() for name in dimension.key), strict=True))
        distinct = [values for values in dict.fromkeys(former) if None not in values]
        keys = dict(zip(distinct, present, strict=False))
        stays = [values in keys for values in former]
        table = table.filter(pa.array(stays, pa.bool_()))
        remaining = [keys[values] for values in former if values in keys]
        for at, name in enumerate(dimension.key):
            values = pa.array([values[at] for values in remaining], table.schema.field(name).type)
            table = table.set_column(table.column_names.index(name), name, values)
        rows[dimension.name] = table
        spans[dimension.name] = [span for span, is_here in zip(spans[dimension.name], stays, strict=False) if is_here]
    return replace(joined, rows=rows, spans=spans)


def without_rows(joined: JoinedCase, dimension: Dimension, stays: Sequence[bool]) -> JoinedCase:
    """The case with the rows of a dimension that stay, given as flags of them; where a row without an end of its own is
    followed by another one now, or by none, its span ends otherwise."""
    table = joined.rows[dimension.name].filter(pa.array(stays, pa.bool_()))
    spans = [span for span, is_here in zip(joined.spans[dimension.name], stays, strict=False) if is_here]
    if dimension.valid_from is not None and dimension.valid_to is None:
        keys = list(zip(*(table[name].to_pylist() for name in dimension.key), strict=True))
        begins: dict[tuple[Any, ...], list[int]] = {}
        for key, (begin, _) in zip(keys, spans, strict=True):
            begins.setdefault(key, []).extend([] if begin is None else [begin])
        spans = [
            (begin, min((each for each in begins[key] if begin is None or each > begin), default=None))
            for key, (begin, _) in zip(keys, spans, strict=True)
        ]
    rows = {**joined.rows, dimension.name: table}
    return replace(joined, rows=rows, spans={**joined.spans, dimension.name: spans})


# ---------------------------------------------------------------------------------------------- the join
def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def joined_events(joined: JoinedCase, columns: Collection[str] | None = None) -> pa.Table:
    """The events with attributes of the joins as columns, by DuckDB: a LEFT JOIN on the definition. ``columns``: the
    names of the attributes; None: all."""
    events = joined.case.events
    selected, froms = ["e.*"], ["events e"]
    known = {name: f"e.{_quoted(name)}" for name in events.column_names}
    schema = list(events.schema)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("events", events)
        for number, (name, attribute) in enumerate(joined.joins.items()):
            dimension, alias = joined.case.stream.dimension(attribute.dimension), f"j{number}"
            table = joined.rows[dimension.name].append_column(
                "its row", pa.array(range(len(joined.rows[dimension.name])))
            )
            for key, (column, sql) in joined.computed.items():
                if column in known:
                    known[key] = sql.format(known[column])
            on = [
                f"{known[key]} = {alias}.{_quoted(column)}"
                for key, column in zip(attribute.keys, dimension.key, strict=True)
            ]
            spans = joined.spans[dimension.name]
            if dimension.valid_from is not None:
                for at, (column, test) in enumerate((("its begin", ">="), ("its end", "<"))):
                    moments = pa.array([span[at] for span in spans], pa.int64()).cast(pa.timestamp("us", "UTC"))
                    table = table.append_column(column, moments)
                    end = f"{alias}.{_quoted(column)}"
                    on.append(f"e.ts IS NOT NULL AND ({end} IS NULL OR e.ts {test} {end})")
            connection.register(f"rows{number}", table)
            froms.append(f"LEFT JOIN rows{number} {alias} ON {' AND '.join(on)}")
            known[name] = f'{alias}."its row" IS NOT NULL'
            types = {name: pa.bool_()}
            for column, _ in dimension.schema:
                attribute_name = attribute._replace(column=column).name
                known[attribute_name] = f"{alias}.{_quoted(column)}"
                types[attribute_name] = table.schema.field(column).type
            wanted = [each for each in types if columns is None or each in columns]
            selected += [f"{known[each]} AS {_quoted(each)}" for each in wanted]
            schema += [pa.field(each, types[each]) for each in wanted]
        rows = connection.sql(f"SELECT {', '.join(selected)} FROM {' '.join(froms)}").to_arrow_table()
    return rows.cast(pa.schema(schema)).combine_chunks()


def with_joined_events(joined: JoinedCase) -> Case:
    """The case with the attributes among its events, as the oracle takes it."""
    columns = {column for query in joined.case.workload.queries for column in query.columns()}
    return replace(joined.case, events=joined_events(joined, columns))


def write_rows(rows: pa.Table, path: Path, format: str) -> None:
    """The rows of a dimension as a file, or table, of a format."""
    if format == "delta":
        write_deltalake(str(path), rows, mode="overwrite")
    elif format == "csv":
        pacsv.write_csv(rows, path)
    else:
        pq.write_table(rows, path)


def with_stored_dimensions(joined: JoinedCase, folder: Path, formats: Sequence[str]) -> JoinedCase:
    """The case with the rows of its dimensions written to a folder, which is made."""
    folder.mkdir()
    dimensions = []
    for number, dimension in enumerate(joined.case.stream.dimensions):
        # a Delta table without files is none for Heddle
        format = formats[number % len(formats)] if len(joined.rows[dimension.name]) else "parquet"
        path = folder / f"{dimension.name}.{format}"
        write_rows(joined.rows[dimension.name], path, format)
        dimensions.append(replace(dimension, source=Source(format, str(path))))
    stream = replace(joined.case.stream, dimensions=tuple(dimensions))
    case = replace(joined.case, workload=Workload(joined.case.workload.queries, (stream,)))
    return replace(joined, case=case)


def in_order(table: pa.Table) -> list[list[str]]:
    """The rows of a table as texts, in an order of their own; times as numbers."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.itercolumns()
    ]
    return sorted(map(list, zip(*(map(str, column.to_pylist()) for column in columns), strict=True)))


def as_read(table: pa.Table, stream: Stream) -> pa.Table:
    """A table in the types of the stream's columns."""
    return table.cast(pa.schema([(name, arrow_type(stream.types[name])) for name in table.column_names]))
