"""Hypothesis strategies: streams of awkward events and workloads of sliding-window queries over them.

Everything is built as values, never as text, and typed by the language's own rules, as the parser would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from optimizer.aggregates.algebra import AGGREGATES, SEQUENCES, Aggregate
from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import instants
from optimizer.workload import values
from optimizer.workload.derived import derived_type
from optimizer.workload.event_patterns import Pattern
from optimizer.workload.expression import exact_literal, family_of, type_of
from optimizer.workload.grouping_sets import grouping_column
from optimizer.workload.notation import written
from optimizer.workload.ordered import is_ordered_by, state_in_time, value_in_order
from optimizer.workload.values import (
    ACQ,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Calendar,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Order,
    Output,
    Source,
    Stream,
    Top,
    Type,
    Window,
    Workload,
    decimal,
)

SCHEMA: tuple[tuple[str, Type], ...] = (
    ("carrier", STRING),
    ("code", INT),
    ("huge", LONG),
    ("volume", LONG),
    ("price", DOUBLE),
    ("wild", DOUBLE),
    ("fee", decimal(10, 2)),
    ("fine", decimal(30, 6)),
    ("late", BOOLEAN),
    ("due", DATE),
    ("seen", TIMESTAMP),
)
TYPES = dict(SCHEMA)
GROUPS = ("carrier", "code", "late", "due", "fee")

_BIGGEST = 2**63 - 1
POOLS: dict[str, list[Any]] = {
    "carrier": ["AA", "B6", "", "é", 'say "x"', "a,b", "100%_", "back\\slash"],
    "code": [0, 1, 2, -1, 2**31 - 1, -(2**31)],
    "huge": [_BIGGEST, -_BIGGEST - 1, _BIGGEST - 1, 2**62, 2**53 + 1, -(2**53) - 1, 0, 1],
    "volume": [0, 1, 2, 3, 5, 100, -7, 1_000_003],
    "price": [0.1, 0.2, 0.3, 1.5, -2.25, 1e-3, 99.99, 1234.5678],
    "wild": [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1e-160, 1e300, -1e300, 1e16, 1.0, -1e16, 0.1],
    "fee": [Decimal(text) for text in ("0.00", "0.01", "-0.01", "12.34", "99999999.99", "-99999999.99")],
    "fine": [Decimal(text) for text in ("0.000001", "999999999999999999999999.999999", "-1.500000", "0.000000")],
    "late": [True, False],
    "due": [date(1969, 12, 31), date(1970, 1, 1), date(2013, 7, 4), date(2024, 2, 29)],
    "seen": [-1, 0, 1_372_636_800_000_000, 1_372_636_800_000_001],
}
_TICKS = (SECOND, 60 * SECOND, 1_000_003, 3600 * SECOND, 250_000)
_ANCHORS = (
    0,
    -86_400 * SECOND,
    1_372_636_800 * SECOND,
    1_372_636_800 * SECOND - 30,
    1_700_000_000 * SECOND + 7,
)


@dataclass(frozen=True)
class Case:
    """One generated test: a workload over one stream, its events (time column ``ts``), and an interval
    ``[begin, end)`` in microseconds."""

    workload: Workload
    events: pa.Table
    begin: int
    end: int

    @property
    def stream(self) -> Stream:
        return self.workload.streams[0]


def arrow_schema() -> pa.Schema:
    """The events as files hold them."""
    types = {
        "boolean": pa.bool_(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    fields = [pa.field("ts", types["timestamp"])]
    for name, type in SCHEMA:
        if type.name == "decimal":
            arrow = pa.decimal128(type.precision, type.scale)
        else:
            arrow = types.get(type.name, pa.int32() if type == INT else pa.int64())
        fields.append(pa.field(name, arrow))
    return pa.schema(fields)


# --------------------------------------------------------------------------------------------- events
@st.composite
def events(draw: st.DrawFn, begin: int, end: int, tick: int, most: int = 30) -> pa.Table:
    """Events around [begin, end): clustered at ticks and a microsecond beside them, with equal times, gaps,
    nulls in every column (the time too), or none at all; in no order."""
    marks = (end - begin) // tick + 1
    instants = st.one_of(
        st.builds(lambda at, by: begin + at * tick + by, st.integers(-3, marks), st.sampled_from((-1, 0, 0, 1))),
        st.integers(begin - 3 * tick, end + tick),
        st.just(begin + marks // 2 * tick),
    )
    times = draw(st.lists(instants, min_size=draw(st.sampled_from((0, 1, most // 3))), max_size=most))
    columns: dict[str, list[Any]] = {"ts": [None if draw(st.integers(0, 40)) == 7 else time for time in times]}
    for name, _ in SCHEMA:
        # a column has few values, one value, or nulls only, as real ones do
        pool = draw(st.lists(st.sampled_from([*POOLS[name], None]), min_size=1, max_size=4))
        columns[name] = [draw(st.sampled_from(pool)) for _ in times]
    return pa.table(columns, schema=arrow_schema())


# ------------------------------------------------------------------------------------------- queries
def _literal_of(name: str) -> st.SearchStrategy[Literal]:
    type, pool = TYPES[name], st.sampled_from(POOLS[name])
    if type.name in ("long", "decimal"):
        return pool.map(exact_literal)
    if type.name == "date":
        return pool.map(lambda value: Literal(value.isoformat(), DATE))
    return pool.map(lambda value: Literal(value, type))


_CALLS = (
    Call("=", (Call("date_part", (Column("seen"), Literal("minute", STRING))), exact_literal(0))),
    Call("regexp_like", (Column("carrier"), Literal("^[A-Z]+", STRING))),
    Call("if", (Column("late"), Call("<", (Column("code"), exact_literal(1))), Column("late"))),
    Call(">", (Call("ln", (Column("price"),)), Literal(0.0, DOUBLE))),
    Call("is_null", (Call("cast", (Column("carrier"), Literal("int", STRING))),)),
)
"""Conditions with calls that filters in normal form keep as they are."""


@st.composite
def _comparisons(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from([name for name, _ in SCHEMA]))
    kind = draw(st.sampled_from(("compare", "compare", "in", "null", "like", "columns", "calls")))
    if kind == "calls":
        return draw(st.sampled_from(_CALLS))
    if kind == "null":
        return Call("is_null", (Column(name),))
    if kind == "in":
        return Call("in", (Column(name), *draw(st.lists(_literal_of(name), min_size=1, max_size=3))))
    if kind == "like":
        pattern = draw(st.sampled_from(("A%", "%_", "_", "100\\%%", "%\\\\%", "é", "")))
        return Call("like", (Column("carrier"), Literal(pattern, STRING)))
    operator = draw(st.sampled_from(("=", "!=", "<", "<=", ">", ">=")))
    if kind == "columns":
        left, right = draw(
            st.sampled_from(
                (
                    ("volume", "code"),
                    ("price", "wild"),
                    ("volume", "price"),
                    ("volume", "fee"),
                    ("huge", "wild"),
                )
            )
        )
        return Call(operator, (Column(left), Column(right)))
    return Call(operator, (Column(name), draw(_literal_of(name))))


def filters() -> st.SearchStrategy[Expression | None]:
    """No filter, a comparison, or a few under AND, OR, NOT."""
    comparison = _comparisons()
    both = st.builds(
        lambda name, parts: Call(name, tuple(parts)),
        st.sampled_from(("and", "or")),
        st.lists(comparison, min_size=2, max_size=3),
    )
    return st.one_of(st.none(), st.none(), comparison, both, comparison.map(lambda part: Call("not", (part,))))


_COMPUTED: tuple[Expression, ...] = (
    Call("+", (Column("volume"), Column("code"))),
    Call("*", (Column("volume"), Column("huge"))),
    Call("-", (Column("code"), exact_literal(3))),
    Call("*", (Column("fee"), Column("code"))),
    Call("+", (Column("fee"), Column("volume"))),
    Call("/", (Column("volume"), Column("code"))),
    Call("*", (Column("price"), Column("volume"))),
    Call("neg", (Column("huge"),)),
    Call("abs", (Column("wild"),)),
    Call("coalesce", (Column("volume"), exact_literal(0))),
    Call("coalesce", (Column("price"), Column("volume"))),
    Call("if", (Column("late"), Column("volume"), Literal(None, LONG))),
    Call("if", (Call("<", (Column("code"), exact_literal(2))), Column("fee"), exact_literal(1))),
    Call("cast", (Column("wild"), Literal("int", STRING))),
    Call("cast", (Column("fine"), Literal("decimal(20,2)", STRING))),
    Call("mod", (Column("volume"), exact_literal(3))),
    Call("round", (Column("fine"), exact_literal(1))),
    Call("greatest", (Column("volume"), Column("code"))),
    Call("date_part", (Column("seen"), Literal("hour", STRING))),
    Call("date_part", (Call("at_zone", (Column("seen"), Literal("Asia/Kathmandu", STRING))), Literal("hour", STRING))),
    Call("length", (Column("carrier"),)),
    Call("substring", (Column("carrier"), exact_literal(1), exact_literal(2))),
)

DERIVED: tuple[Expression, ...] = (
    Call("date_trunc", (Column("ts"), Literal("hour", STRING))),
    Call("date_part", (Call("at_zone", (Column("ts"), Literal("Europe/Berlin", STRING))), Literal("hour", STRING))),
    Call("lower", (Column("carrier"),)),
    Call("if", (Column("late"), Column("carrier"), Literal("", STRING))),
    Call("mod", (Column("code"), exact_literal(2))),
    Call("cast", (Column("seen"), Literal("date", STRING))),
    Call("round", (Column("fee"), exact_literal(0))),
    Call(">", (Column("volume"), exact_literal(1))),
    Column("carrier"),
)
"""What queries group by besides columns."""


FRACTIONS = ("0.5", "0.25", "0.75", "0.1", "0.9", "0.29", "0.99", "0.999", "0.001", "1", "1.0")
ERRORS = ("0.001", "0.01", "0.05", "0.1", "0.3", "0.5")
_TAKEN: dict[str, Callable[[Type], bool]] = {
    "a column": lambda type: True,
    "a number": lambda type: type.is_numeric,
    "an integer": lambda type: type.name == "long",
    "a double": lambda type: type == DOUBLE,
    "an integer or a text": lambda type: type.name in ("long", "string"),
    "an integer or a double": lambda type: type.name in ("long", "double"),
    "an integer, a double or a text": lambda type: type.name in ("long", "double", "string"),
    "a condition": lambda type: type == BOOLEAN,
    "a text": lambda type: type == STRING,
    "a timestamp": lambda type: type == TIMESTAMP,
}


def takes(aggregate: Aggregate, type: Type) -> bool:
    """Whether an aggregate applies to values of a type."""
    return _TAKEN[aggregate.takes](type)


@st.composite
def _arguments(draw: st.DrawFn, takes: str) -> tuple[Expression, Type]:
    """A column, an expression or a condition that an aggregate applies to, and its type."""
    every = [*(Column(name) for name, _ in SCHEMA), *_COMPUTED]
    typed = [(expression, type_of(expression, TYPES)) for expression in every]
    candidates = st.sampled_from([(expression, type) for expression, type in typed if _TAKEN[takes](type)])
    if takes == "a condition":
        return draw(st.one_of(candidates, _comparisons().map(lambda condition: (condition, BOOLEAN))))
    return draw(candidates)


@st.composite
def _in_time(draw: st.DrawFn, name: str, aggregate: Aggregate) -> Output:
    """An output of values in an order, as the language makes them."""
    if aggregate.signature == "state":
        condition, _ = draw(_arguments("a condition"))
        argument = state_in_time(condition, "ts")
        longest = draw(st.sampled_from((None, None, Decimal(1), Decimal(900_000_000), Decimal(86_400_000_000))))
        return Output(name, aggregate.name, argument, LONG, aggregate.output_type(LONG), parameter=longest)
    if aggregate.signature == "ordered":
        counter, type = draw(_arguments("a number").filter(lambda each: each[1] != DOUBLE))
        argument = value_in_order(counter, type, "ts")
        return Output(name, aggregate.name, argument, STRING, DOUBLE, None, type)
    kinds = _arguments("a column").filter(lambda each: each[1] != DOUBLE)
    value, type = draw(kinds if aggregate.signature == "ordered+k" else st.one_of(_arguments("a text"), kinds))
    keys = st.tuples(_arguments("a column").filter(lambda each: is_ordered_by(each[1])), st.booleans())
    key = draw(st.one_of(st.none(), keys.map(lambda drawn: (*drawn[0], drawn[1]))))
    separator = draw(st.sampled_from(("", ",", ", ", "k1")))
    if aggregate.signature == "ordered+k":
        parameter, separator = Decimal(draw(st.sampled_from((1, 2, 3, 1000)))), ""
    else:
        parameter = Decimal(len(separator))
    is_distinct = aggregate.signature != "ordered+k" and key is None and draw(st.booleans())
    argument = value_in_order(value, type, "ts", key, separator, is_distinct)
    return Output(name, aggregate.name, argument, STRING, STRING, None, type, parameter)


@st.composite
def outputs(draw: st.DrawFn, name: str, functions: tuple[str, ...] = tuple(sorted(AGGREGATES))) -> Output:
    """One output: count(*) or any aggregate of a column or an expression that it applies to, ordered by any other,
    with any parameter; one holistic output in three permits an error."""
    function = draw(st.sampled_from(functions))
    aggregate = AGGREGATES[function]
    if aggregate.star and draw(st.booleans()):
        return Output(name, function, None, None, aggregate.output_type(None))
    if aggregate.signature == "state" or aggregate.signature.startswith("ordered"):
        return draw(_in_time(name, aggregate))
    argument, type = draw(_arguments(aggregate.takes))
    by: tuple[Expression | None, Type | None] = (None, None)
    if aggregate.signature in ("value+by", "number+number"):
        by = draw(_arguments("a column" if aggregate.signature == "value+by" else "a number"))
    elif aggregate.signature == "value+time":
        by = (Column("ts"), TIMESTAMP)
    possible = {
        "value+fraction": st.sampled_from(FRACTIONS).map(Decimal),
        "value+k": st.sampled_from((1, 1, 2, 3, 1000)).map(Decimal),
        "value+lgk": st.sampled_from((4, 12, 21)).map(Decimal),
        "value+entries": st.sampled_from((5, 12)).map(Decimal),
        "value+size": st.sampled_from((8, 200)).map(Decimal),
    }
    parameter = draw(possible.get(aggregate.signature, st.none()))
    permitted = st.one_of(st.none(), st.none(), st.sampled_from(ERRORS).map(Decimal))
    error = draw(permitted) if aggregate.sketch else None
    several = st.lists(st.sampled_from(FRACTIONS).map(Decimal), min_size=1, max_size=3).map(tuple)
    parameters = draw(several) if aggregate.signature == "value+fractions" else ()
    options = {"parameter": parameter, "error": error, "parameters": parameters}
    return Output(name, function, argument, type, aggregate.output_type(type, by[1]), *by, **options)


_THRESHOLDS: dict[str, st.SearchStrategy[Literal]] = {
    "number": st.one_of(
        st.sampled_from((0, 1, 2, 3, 5, -7, 100, 2**53 + 1, Decimal("0.01"), Decimal("-1.5"))).map(exact_literal),
        st.sampled_from((0.0, 0.1, 1.5, 1e16, -1e300)).map(lambda value: Literal(value, DOUBLE)),
    ),
    "string": st.sampled_from((*POOLS["carrier"], '[["AA", 1]]')).map(lambda value: Literal(value, STRING)),
    "boolean": st.booleans().map(lambda value: Literal(value, BOOLEAN)),
    "date": st.sampled_from(POOLS["due"]).map(lambda value: Literal(value.isoformat(), DATE)),
    "timestamp": st.sampled_from(POOLS["seen"]).map(lambda value: Literal(value, TIMESTAMP)),
}


@st.composite
def conditions(draw: st.DrawFn, name: str, made: tuple[Output, ...]) -> Condition:
    """A threshold of one of the query's outputs or of another aggregate."""
    output = draw(st.one_of(st.sampled_from(made), outputs(name)).filter(lambda candidate: candidate.type != BINARY))
    family = family_of(output.type)
    threshold = draw(_THRESHOLDS[output.type.name if family == "time" else family])
    return Condition(output, draw(st.sampled_from((">=", "!=", ">", ">=", "<", "<=", "="))), threshold)


_ROWS_COUNTED = Output("", "count", None, None, LONG)

_RECKONED = ("count", "sum", "avg", "min", "max", "count_distinct", "median", "first", "bool_or")
"""Aggregates that expressions over aggregates are drawn from: mostly certain to the last bit."""


def _is_reckoned(part: Output) -> bool:
    """Whether an expression may be made of an aggregate: neither of one itself, nor of the bytes of a sketch."""
    return not part.parts and part.type != BINARY


@st.composite
def reckoned(draw: st.DrawFn, name: str, made: tuple[Output, ...] = (), condition: bool | None = None) -> Output:
    """An output made of up to three others by a few operators, a condition if it has to be one."""
    drawn = [_ROWS_COUNTED, *draw(st.lists(outputs("", _RECKONED), min_size=1, max_size=3))]
    plain = list(dict.fromkeys(replace(part, name="", error=None) for part in (*made, *drawn) if _is_reckoned(part)))
    parts = tuple(replace(part, name=str(number)) for number, part in enumerate(plain))
    types = {part.name: part.type for part in parts}
    known: list[tuple[Expression, Type]] = [(Column(part.name), part.type) for part in parts]

    def add(function: str, *arguments: Expression) -> None:
        try:
            call = Call(function, arguments)
            known.append((call, derived_type(call, types)))
        except HeddleError:
            pass

    for _ in range(draw(st.integers(1, 4))):
        operand, type = draw(st.sampled_from(known))
        other = draw(st.sampled_from([expression for expression, _ in known]))
        literal = draw(_THRESHOLDS[type.name if family_of(type) == "time" else family_of(type)])
        function = draw(st.sampled_from(("+", "-", "*", "/", "neg", "abs", "coalesce", "<", "=", "is_null", "in")))
        if function in ("neg", "abs", "is_null"):
            add(function, operand)
        else:
            add(function, operand, literal if function == "in" or draw(st.booleans()) else other)
    for _ in range(draw(st.integers(0, 2)) if condition else 0):
        flags = [expression for expression, type in known if type == BOOLEAN]
        if flags:
            add(draw(st.sampled_from(("and", "or"))), draw(st.sampled_from(flags)), draw(st.sampled_from(flags)))
    able = [pair for pair in known if condition is None or (pair[1] == BOOLEAN)]
    if not able:
        able = [(Call("is_null", (Column("0"),)), BOOLEAN)]
    expression, type = able[-1]
    return Output(name, values.DERIVED, None, None, type, parts=parts, expression=expression)


@st.composite
def tops(draw: st.DrawFn, made: tuple[Output, ...]) -> Top:
    """The first few groups of each window, by one or two outputs or others."""
    comparable = [output for output in made if output.type != BINARY] or [_ROWS_COUNTED]
    keys = st.one_of(st.sampled_from(comparable), outputs("", _RECKONED), reckoned(""))
    orders = st.builds(lambda output, *how: Order(replace(output, name=""), *how), keys, st.booleans(), st.booleans())
    return Top(draw(st.sampled_from((1, 1, 2, 3, 1000))), tuple(draw(st.lists(orders, min_size=1, max_size=2))))


@st.composite
def windows(draw: st.DrawFn, tick: int) -> Window:
    """From templates, ranges that are no multiples of the slide, slides beyond the range, and odd
    microseconds; one in four historical, by a multiple of the slide or not."""
    slide = draw(st.sampled_from((1, 2, 3, 4, 5, 6, 10))) * tick
    agos = st.one_of(st.integers(1, 4).map(lambda k: k * slide), st.integers(1, 9).map(lambda k: k * tick))
    ago = draw(st.one_of(agos, st.integers(1, 3 * tick))) if draw(st.integers(0, 3)) == 3 else 0
    kind = draw(st.sampled_from(("multiple", "multiple", "any", "short", "odd")))
    if draw(st.integers(0, 7)) == 0:
        return Window(draw(st.integers(1, 12)) * tick, slide, ago, offset=draw(st.integers(1, slide - 1)))
    if kind == "multiple":
        return Window(slide * draw(st.integers(1, 6)), slide, ago)
    if kind == "short":
        return Window(draw(st.integers(1, slide // tick)) * tick, slide, ago)
    if kind == "odd":
        return Window(slide + draw(st.integers(-tick + 1, 3 * tick)), slide, ago)
    return Window(draw(st.integers(1, 24)) * tick, slide, ago)


ZONES = (
    *("Europe/Berlin", "Europe/Berlin", "America/New_York", "UTC", "Asia/Kathmandu", "Australia/Lord_Howe"),
    *("Pacific/Apia", "America/Sao_Paulo", "America/St_Johns", "Pacific/Chatham", "Africa/Casablanca", "Asia/Gaza"),
)
"""Of whole, half and quarter hours; of half an hour's daylight saving; without a certain day; that change their clocks
at midnight, or a minute after it; that change them four times a year."""

CHANGES = tuple(
    int(datetime.fromisoformat(text).timestamp()) * SECOND
    for text in (
        *("2024-03-31T01:00Z", "2024-10-27T01:00Z", "2024-03-10T07:00Z", "2024-11-03T06:00Z", "2024-02-29T12:00Z"),
        *("2023-12-31T22:00Z", "2011-12-30T10:00Z", "2018-11-04T03:00Z", "2018-02-18T02:00Z", "2008-11-02T02:31Z"),
        *("2024-04-06T15:00Z", "2024-10-05T15:30Z", "2024-04-14T02:00Z", "2011-03-31T22:01Z", "1970-01-01T00:00Z"),
        *("2000-02-29T00:00Z", "2023-04-30T22:00Z"),
    )
)
"""Instants about which clocks change, and months, years and February end."""


@st.composite
def irregular_windows(draw: st.DrawFn) -> Window:
    """Cumulative windows and those of calendars, of each unit, on short spans."""
    zone, hour = draw(st.sampled_from(ZONES)), 3600 * SECOND
    kind = draw(st.sampled_from(("days", "days", "months", "cumulative", "by the clock", "by the clock", "steps")))
    if kind == "cumulative":
        step = draw(st.sampled_from((hour // 4, hour, 5 * hour, 24 * hour)))
        count = draw(st.integers(1, 9))
        return Window(step * count, step, cumulative=True, offset=draw(st.integers(0, count - 1)) * step)
    if kind == "by the clock":
        step = draw(st.sampled_from((hour // 4, hour // 2, hour, 6 * hour, 12 * hour)))
        size = draw(st.sampled_from(((1, "day"), (1, "day"), (2, "day"), (7, "day"))))
        offset = step * draw(st.sampled_from((0, 0, 1, 2))) % (24 * hour)
        return Window.of_calendar(Calendar(zone, size, None, offset), step, cumulative=True)
    if kind == "steps":
        spans = (((7, "day"), (1, "day")), ((1, "month"), (1, "day")), ((3, "month"), (1, "month")))
        offset = draw(st.sampled_from((0, 0, 6 * hour, hour // 2)))
        return Window.of_calendar(Calendar(zone, *draw(st.sampled_from(spans)), offset), cumulative=True)
    units = "month" if kind == "months" else "day"
    slide = draw(st.sampled_from((1, 1, 2, 3) if units == "month" else (1, 1, 1, 2, 3, 7)))
    length = draw(st.integers(1, 4)) if units == "month" else draw(st.sampled_from((1, 1, 2, 3, 7)))
    weekday = draw(st.integers(0, 6)) * 24 * hour if units == "day" and slide == 7 else 0
    offset = weekday + draw(st.sampled_from((0, 0, 6 * hour, 2 * hour, hour // 2)))
    return Window.of_calendar(Calendar(zone, (length, units), (slide, units), offset))


@st.composite
def calendar_cases(draw: st.DrawFn, most_queries: int = 4, most_events: int = 40) -> Case:
    """A test of irregular windows beside ordinary ones, about the changes of clocks and the ends of months."""
    tick = draw(st.sampled_from((900 * SECOND, 3600 * SECOND, 3600 * SECOND, 12 * 3600 * SECOND)))
    begin = draw(st.sampled_from(CHANGES)) + draw(st.integers(-30, 2)) * tick + draw(st.sampled_from((-1, 0, 0, 1)))
    end = begin + draw(st.integers(1, 60)) * tick + draw(st.sampled_from((0, 0, 1)))
    drawn_queries = []
    for number in range(draw(st.integers(1, most_queries))):
        query = draw(queries(f"q{number}", tick))
        if draw(st.integers(0, 3)):
            query = replace(query, window=draw(irregular_windows()))
        drawn_queries.append(query)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    table = draw(events(begin - draw(st.sampled_from((0, 10, 60))) * tick, end, tick, most_events))
    return Case(Workload(tuple(drawn_queries), (stream,)), table, begin, end)


@st.composite
def with_sets(draw: st.DrawFn, query: ACQ) -> ACQ:
    """A query with group columns by several sets of them."""
    names = [name for name, _ in query.group_by]
    if not names:
        return query
    subsets = st.lists(st.sampled_from(names), unique=True).map(frozenset)
    chosen = set(draw(st.lists(subsets, min_size=1, max_size=4)))
    # each column is in one of them
    chosen.add(frozenset(names) - frozenset[str]().union(*chosen))
    sets = sorted(
        (tuple(name for name in names if name in of_set) for of_set in chosen), key=lambda of_set: -len(of_set)
    )
    if len(sets) < 2:
        return query
    group_by = (*query.group_by, (grouping_column(sets), LONG))
    return replace(query, group_by=group_by, select=(*query.select, "level"), sets=tuple(sets))


CALENDAR_AGOS = ((1, "month"), (1, "month"), (12, "month"), (3, "month"), (1, "day"), (7, "day"))
"""How far back historical windows of a calendar are moved."""


@st.composite
def several_windows(draw: st.DrawFn, tick: int) -> Window:
    """Two to four windows with the same instants: of any lengths, historical, cumulative, of a calendar."""
    if draw(st.integers(0, 3)) == 0:
        return draw(_several_of_a_calendar())
    slide = draw(st.sampled_from((1, 2, 3, 5))) * tick
    phase = draw(st.sampled_from((0, 0, 0, 1, slide // 2, slide - 1)))
    agos = st.one_of(st.just(0), st.integers(1, 4).map(lambda k: k * slide), st.integers(1, 3 * tick))
    regular = st.builds(lambda k, ago: Window(k * slide + phase, slide, ago), st.integers(not phase, 7), agos)
    cumulative = st.builds(lambda k, ago: Window(k * slide, slide, ago, cumulative=True), st.integers(1, 6), agos)
    one = regular if phase else st.one_of(regular, regular, cumulative)
    return Window.of_several(draw(st.lists(one, min_size=2, max_size=4, unique=True)))


@st.composite
def _several_of_a_calendar(draw: st.DrawFn) -> Window:
    """Two to four windows of a calendar, or a historical one."""
    zone, units = draw(st.sampled_from(ZONES)), draw(st.sampled_from(("day", "day", "month", "clock")))
    if units == "clock":
        step = draw(st.sampled_from((900, 3600, 21_600))) * SECOND
        sizes = [((count, unit), None, True) for count, unit in ((1, "day"), (2, "day"), (7, "day"), (1, "month"))]
    else:
        step, slide = 0, (1, units)
        sizes = [((count, units), slide, is_cumulative) for count in (1, 2, 3, 7) for is_cumulative in (False, True)]
        sizes += [((count, "month"), slide, True) for count in (1, 3) if units == "day"]
    offset = draw(st.sampled_from((0, 0, 0, 6))) * 3600 * SECOND
    agos = st.sampled_from((None, None, *CALENDAR_AGOS))
    chosen = draw(st.lists(st.tuples(st.sampled_from(sizes), agos), min_size=2, max_size=4, unique=True))
    if draw(st.integers(0, 3)) == 0:
        chosen = [(chosen[0][0], draw(st.sampled_from(CALENDAR_AGOS)))]
    return Window.of_several(
        Window.of_calendar(Calendar(zone, size, slide, offset, ago), step, cumulative)
        for (size, slide, cumulative), ago in chosen
    )


@st.composite
def over_several(draw: st.DrawFn, query: ACQ, window: Window) -> ACQ:
    """The query over several windows, each aggregate over one of them."""

    def over(output: Output) -> Output:
        if output.parts:
            return replace(output, parts=tuple(map(over, output.parts)))
        return replace(output, window=draw(st.integers(0, len(window.parts) - 1)))

    return replace(query, window=window).with_outputs(over)


@st.composite
def several_cases(draw: st.DrawFn, most_queries: int = 4, most_events: int = 40) -> Case:
    """A test of queries over several windows and by several grouping sets, beside ordinary ones."""
    tick = draw(st.sampled_from((900 * SECOND, 3600 * SECOND, 12 * 3600 * SECOND)))
    begin = draw(st.sampled_from(CHANGES)) + draw(st.integers(-30, 2)) * tick + draw(st.sampled_from((-1, 0, 0, 1)))
    end = begin + draw(st.integers(1, 40)) * tick + draw(st.sampled_from((0, 0, 1)))
    drawn_queries = []
    for number in range(draw(st.integers(1, most_queries))):
        query = draw(queries(f"q{number}", tick))
        if draw(st.integers(0, 3)):
            query = draw(refreshed(draw(over_several(query, draw(several_windows(tick)))), begin, end))
        drawn_queries.append(draw(with_sets(query)) if draw(st.integers(0, 2)) == 0 else query)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    table = draw(events(begin - draw(st.sampled_from((0, 10, 60))) * tick, end, tick, most_events))
    return Case(Workload(tuple(drawn_queries), (stream,)), table, begin, end)


@st.composite
def queries(draw: st.DrawFn, name: str, tick: int, computes: bool = True) -> ACQ:
    """``computes``: it may group by expressions."""
    groups = draw(st.lists(st.sampled_from(GROUPS), max_size=2, unique=True))
    select = tuple(f"by_{group}" for group in groups) if draw(st.booleans()) else tuple(groups)
    expression = draw(st.sampled_from(DERIVED)) if computes and len(groups) < 2 else Column("carrier")
    derived = () if isinstance(expression, Column) else ((written(expression), expression),)
    select += tuple("computed" for _ in derived)
    selected = tuple(draw(outputs(f"out_{index}")) for index in range(draw(st.integers(1, 3))))
    if draw(st.integers(0, 2)) == 0:
        selected = (*selected, draw(reckoned("made", selected)))
    count = draw(st.sampled_from((0, 0, 0, 1, 2)))
    having = tuple(draw(conditions(f"compared_{index}", selected)) for index in range(count))
    if draw(st.integers(0, 4)) == 0:
        having = (*having, Condition(draw(reckoned("having", (), True)), "=", Literal(True, BOOLEAN)))
    top = draw(tops(selected)) if groups and draw(st.integers(0, 3)) == 0 else None
    return ACQ(
        name,
        "events",
        draw(windows(tick)),
        selected,
        draw(filters()),
        (
            *((group, TYPES[group]) for group in groups),
            *((group, type_of(formula, {**TYPES, "ts": TIMESTAMP})) for group, formula in derived),
        ),
        select,
        having=having,
        derived=derived,
        top=top,
    )


@st.composite
def refreshed(draw: st.DrawFn, query: ACQ, begin: int, end: int) -> ACQ:
    """One query in four has to answer only some of its instants, as runs ask of those with a refresh bound."""
    if draw(st.integers(0, 3)):
        return query
    slide = query.window.slide
    possible = instants(query.window, begin - 2 * slide, end + 2 * slide).tolist()[:64]
    at = draw(st.lists(st.sampled_from(possible), max_size=5, unique=True)) if possible else []
    return replace(query, window=replace(query.window, at=tuple(sorted(at))))


@st.composite
def cases(draw: st.DrawFn, most_queries: int = 6, most_events: int = 30) -> Case:
    """A whole test; the stream's source is a placeholder until a test writes the events somewhere."""
    tick = draw(st.sampled_from(_TICKS))
    begin = draw(st.sampled_from(_ANCHORS)) + draw(st.integers(-20, 20)) * tick
    end = begin + draw(st.integers(1, 40)) * tick + draw(st.sampled_from((0, 0, 1, tick // 2)))
    drawn = [draw(queries(f"q{index}", tick)) for index in range(draw(st.integers(1, most_queries)))]
    refreshed_queries = tuple(draw(refreshed(query, begin, end)) for query in drawn)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    # events from as far back as the windows of the interval can reach, so that history matters
    reach = max(query.window.reach for query in refreshed_queries)
    table = draw(events(begin - draw(st.sampled_from((0, reach))), end, tick, most_events))
    return Case(Workload(refreshed_queries, (stream,)), table, begin, end)


@st.composite
def long_cases(draw: st.DrawFn, most_queries: int = 4, most_events: int = 30) -> Case:
    """A test of windows of up to ten years, up to a million times their slide, beside shorter ones; few of their
    instants are due."""
    day = 24 * 3600 * SECOND
    slide = draw(st.sampled_from((300 * SECOND, 900 * SECOND, 3600 * SECOND, day, 7 * day)))
    begin = draw(st.sampled_from(CHANGES)) + draw(st.integers(-30, 2)) * slide + draw(st.sampled_from((-1, 0, 0, 1)))
    end = begin + draw(st.integers(1, 6)) * slide
    drawn_queries = []
    for number in range(draw(st.integers(1, most_queries))):
        query = draw(queries(f"q{number}", slide))
        if draw(st.integers(0, 3)):
            size = draw(st.integers(1, min(1_000_000, 3660 * day // slide))) * slide
            size -= draw(st.sampled_from((0, 0, 1, slide // 2)))
            query = replace(query, window=Window(size, slide, draw(st.sampled_from((0, 0, 0, 400 * day)))))
        drawn_queries.append(query)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    reach = max(query.window.reach for query in drawn_queries)
    first = begin - draw(st.sampled_from((0, reach, reach + 100 * day)))
    table = draw(events(first, end, draw(st.sampled_from((slide, max(slide, (end - first) // 20)))), most_events))
    return Case(Workload(tuple(drawn_queries), (stream,)), table, begin, end)


@st.composite
def leveled_cases(draw: st.DrawFn, most_queries: int = 3, most_events: int = 40) -> Case:
    """A test of windows of months and a few years, which contain complete days, months and years. Many events are
    within a tick of where windows, months and years begin and end."""
    hour, day = 3600 * SECOND, 24 * 3600 * SECOND
    slide = draw(st.sampled_from((hour, 6 * hour, day, day, 7 * day)))
    begin = draw(st.sampled_from(CHANGES)) // hour * hour + draw(st.integers(-5, 40)) * day
    end = begin + draw(st.integers(1, 4 if slide < day else 40)) * day + draw(st.sampled_from((0, 0, 1)))
    drawn_queries = []
    for number in range(draw(st.integers(1, most_queries))):
        query = draw(queries(f"q{number}", slide))
        if drawn_queries and draw(st.integers(0, 2)):
            # of one family, so that windows of one query begin inside periods that another one covers
            query = replace(drawn_queries[0], name=query.name)
        size = draw(st.sampled_from((30, 62, 100, 366, 730, 800))) * day - draw(st.sampled_from((0, 0, slide, 1)))
        kind = draw(st.sampled_from(("fixed", "fixed", "fixed", "calendar", "cumulative", "short")))
        if kind == "fixed":
            query = replace(query, window=Window(size, slide, draw(st.sampled_from((0, 0, hour, 40 * day)))))
        elif kind == "calendar":
            length, offset = draw(st.integers(1, 24)), draw(st.sampled_from((0, 0, 6 * hour)))
            calendar = Calendar(draw(st.sampled_from(ZONES)), (length, "month"), (1, "month"), offset)
            query = replace(query, window=Window.of_calendar(calendar))
        elif kind == "cumulative":
            step = slide * draw(st.sampled_from((1, 4)))
            query = replace(query, window=Window(400 * day // step * step, step, cumulative=True))
        drawn_queries.append(query)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    first = begin - max(query.window.reach for query in drawn_queries)
    table = draw(events(first, end, draw(st.sampled_from((slide, 30 * day, 91 * day))), most_events))
    if draw(st.booleans()) and len(table):
        months = np.arange(first // day, end // day).astype("datetime64[D]").astype("datetime64[M]")
        edges = np.unique(months).astype("datetime64[D]").astype(np.int64) * day
        chosen = [
            draw(st.sampled_from(edges.tolist())) + draw(st.sampled_from((-1, 0, 0, day))) for _ in range(len(table))
        ]
        table = table.set_column(0, table.schema.field(0), pa.array(chosen).cast(table.schema.field(0).type))
    return Case(Workload(tuple(drawn_queries), (stream,)), table, begin, end)


@st.composite
def row_queries(draw: st.DrawFn, name: str) -> ACQ:
    """A query over windows of rows, of the stream or of each key that some of its group columns make."""
    query = draw(queries(name, SECOND, computes=False))
    names = [group for group, _ in query.group_by]
    per = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    slide = draw(st.sampled_from((1, 1, 2, 3, 5)))
    ranges = st.one_of(st.integers(1, 4).map(lambda times: times * slide), st.integers(1, 9))
    return replace(query, window=Window(draw(ranges), slide, per=tuple(sorted(per))), top=None)


@st.composite
def row_cases(draw: st.DrawFn, most_queries: int = 4, most_events: int = 40) -> Case:
    """A test of windows of rows: events on up to a week, many at equal times and about midnight, some alike."""
    tick = draw(st.sampled_from((SECOND, 3600 * SECOND, 12 * 3600 * SECOND)))
    begin = draw(st.sampled_from(_ANCHORS)) + draw(st.integers(-20, 20)) * tick
    end = begin + draw(st.integers(1, 14)) * tick + draw(st.sampled_from((0, 1)))
    drawn_queries = tuple(draw(row_queries(f"q{index}")) for index in range(draw(st.integers(1, most_queries))))
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    first = begin - draw(st.sampled_from((0, 6 * tick)))
    parts = draw(st.lists(events(first, end, tick, most_events // 2), min_size=1, max_size=3))
    table = pa.concat_tables(parts)
    if len(table) and draw(st.booleans()):
        again = draw(st.lists(st.integers(0, len(table) - 1), max_size=most_events // 2))
        table = pa.concat_tables([table, table.take(pa.array(again, pa.int64()))])
    return Case(Workload(drawn_queries, (stream,)), table, begin, end)


@st.composite
def session_queries(draw: st.DrawFn, name: str, tick: int) -> ACQ:
    """A query over sessions of its groups, of some of its group columns, or of the stream's filtered events."""
    query = draw(queries(name, tick))
    if draw(st.integers(0, 3)):
        # most conditions leave few events and no sessions
        query = replace(query, filter=None, having=())
    names = [group for group, _ in query.group_by]
    plain = [group for group in names if group not in dict(query.derived)]
    per = draw(st.one_of(st.just(names), st.lists(st.sampled_from(plain), unique=True) if plain else st.just([])))
    gap = draw(st.integers(1, 4)) * tick + draw(st.sampled_from((-1, 0, 0, 1)))
    longest = max(gap, draw(st.sampled_from((0, 2, 5, 12, 100))) * tick)
    return replace(query, window=Window.of_sessions(gap, longest, tuple(sorted(per))), top=None)


@st.composite
def session_cases(draw: st.DrawFn, most_queries: int = 4, most_events: int = 40) -> Case:
    """A test of sessions of several gaps, some longer than they may be: events about midnight, many a gap apart."""
    tick = draw(st.sampled_from((SECOND, 900 * SECOND, 3600 * SECOND, 12 * 3600 * SECOND)))
    begin = draw(st.sampled_from(_ANCHORS)) + draw(st.integers(-20, 20)) * tick + draw(st.sampled_from((-1, 0, 0, 1)))
    end = begin + draw(st.integers(1, 40)) * tick + draw(st.sampled_from((0, 1)))
    drawn_queries = tuple(
        draw(session_queries(f"q{index}", tick)) for index in range(draw(st.integers(1, most_queries)))
    )
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    first = begin - draw(st.sampled_from((0, 10, 120))) * tick
    table = pa.concat_tables(draw(st.lists(events(first, end, tick, most_events // 2), min_size=1, max_size=3)))
    # some come again, a gap later
    gaps = [query.window.pause for query in drawn_queries]
    for _ in range(draw(st.integers(1, 3)) if len(table) else 0):
        rows = draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=most_events // 4))
        again = table.take(pa.array(rows, pa.int64()))
        after = [draw(st.sampled_from(gaps)) + draw(st.sampled_from((0, 0, 0, -1, 1))) for _ in rows]
        moments = pc.add(again["ts"].cast(pa.int64()), pa.array(after, pa.int64())).cast(table["ts"].type)
        table = pa.concat_tables([table, again.set_column(0, "ts", moments)])
    return Case(Workload(drawn_queries, (stream,)), table, begin, end)


SEQUENCED = ("volume", "huge", "code", "price", "wild", "fee", "due", "seen")
"""Columns that aggregates of event sequences take."""


def reached(name: str, step: int) -> Output:
    """The number of keys that reach a step of a sequence."""
    return Output(name, "reached", None, None, LONG, parameter=Decimal(step))


@st.composite
def sequence_outputs(draw: st.DrawFn, name: str, pattern: Pattern) -> Output:
    function = draw(st.sampled_from(("count", *(name for name in SEQUENCES if name != "reached" or pattern.per))))
    if function == "reached":
        return reached(name, draw(st.integers(1, len(pattern.events))))
    stranger = "none such"
    event = draw(st.sampled_from((*pattern.events, *pattern.events, stranger)))
    if function == "count" and draw(st.booleans()):
        event_or_none = draw(st.sampled_from((None, None, event)))
        return Output(name, function, None, None, SEQUENCES["count"](None), event=event_or_none)
    numbers = tuple(column for column in SEQUENCED if TYPES[column].is_numeric)
    column = draw(st.sampled_from(SEQUENCED if function in ("min", "max", "count") else numbers))
    return Output(name, function, Column(column), TYPES[column], SEQUENCES[function](TYPES[column]), event=event)


@st.composite
def sequence_queries(draw: st.DrawFn, name: str, tick: int, types: tuple[str, ...]) -> ACQ:
    groups = draw(st.sampled_from(((), (), ("late",), ("code",), ("late", "code"))))
    per = tuple(sorted({*groups, *draw(st.sampled_from(((), (), ("late",), ("due",))))}))
    length = draw(st.sampled_from((1, 2, 2, 3, 4)))
    events = tuple(draw(st.lists(st.sampled_from(types), min_size=length, max_size=length)))
    gap = st.sampled_from(((), (), *((each,) for each in types), tuple(sorted(types)), ("none such",)))
    absent = tuple(draw(st.lists(gap, min_size=length - 1, max_size=length - 1))) if draw(st.booleans()) else ()
    pattern = Pattern(events, "carrier", per, absent if any(absent) else ())
    selected = tuple(draw(sequence_outputs(f"out_{index}", pattern)) for index in range(draw(st.integers(1, 3))))
    if draw(st.integers(0, 2)) == 0:
        plain = dict.fromkeys(replace(part, name="") for part in selected)
        parts = tuple(replace(part, name=str(number)) for number, part in enumerate(plain))
        first, last = Column("0"), Column(str(len(parts) - 1))
        able = [Call("is_null", (first,)), Call("=", (first, first)), Call("coalesce", (last, last))]
        if all(part.type.is_numeric for part in (parts[0], parts[-1])):
            able += [Call(function, (first, last)) for function in ("+", "-", "*", "/", "<")]
        expression = draw(st.sampled_from(able))
        type = derived_type(expression, {part.name: part.type for part in parts})
        selected = (*selected, Output("made", values.DERIVED, None, None, type, parts=parts, expression=expression))
    having: tuple[Condition, ...] = ()
    if draw(st.integers(0, 3)) == 0:
        counted = Output("compared", "count", None, None, SEQUENCES["count"](None))
        if per and draw(st.booleans()):
            counted = reached("compared", draw(st.integers(1, length)))
        having = (Condition(counted, draw(st.sampled_from((">", "<=", "="))), exact_literal(draw(st.integers(0, 3)))),)
    chosen = tuple((group, TYPES[group]) for group in groups)
    window = draw(windows(tick))
    # most filters leave too little for a sequence
    filter = draw(filters()) if draw(st.integers(0, 3)) == 0 else None
    return ACQ(name, "events", window, selected, filter, chosen, groups, having=having, pattern=pattern)


@st.composite
def sequence_cases(draw: st.DrawFn, most_queries: int = 4, most_events: int = 30) -> Case:
    """A test of event sequences: few types, few keys, many equal times, perhaps beside queries over the events."""
    case = draw(cases(most_queries, most_events))
    tick = draw(st.sampled_from(_TICKS))
    types = tuple(draw(st.lists(st.sampled_from(POOLS["carrier"]), min_size=1, max_size=2, unique=True)))
    number = draw(st.integers(1, most_queries))
    drawn_queries = [draw(sequence_queries(f"s{index}", tick, types)) for index in range(number)]
    refreshed_queries = tuple(draw(refreshed(query, case.begin, case.end)) for query in drawn_queries)
    event_queries = case.workload.queries if draw(st.integers(0, 3)) == 0 else ()
    reach = max(query.window.reach for query in refreshed_queries)
    end = case.begin + draw(st.integers(1, 30)) * tick
    table = draw(events(case.begin - draw(st.sampled_from((0, reach))), end, tick, most_events))
    if len(table):
        drawn = draw(
            st.lists(st.sampled_from((*types, *types, *types, None)), min_size=len(table), max_size=len(table))
        )
        table = table.set_column(table.column_names.index("carrier"), "carrier", pa.array(drawn, pa.string()))
    return Case(Workload((*refreshed_queries, *event_queries), case.workload.streams), table, case.begin, end)


def spans_of(case: Case, pieces: int) -> list[tuple[int, int]]:
    """The case's interval cut into consecutive intervals, ``pieces`` at most."""
    step = timedelta(microseconds=-(-(case.end - case.begin) // pieces)) // timedelta(microseconds=1)
    cuts = [*range(case.begin, case.end, step), case.end]
    return list(zip(cuts, cuts[1:], strict=False))
