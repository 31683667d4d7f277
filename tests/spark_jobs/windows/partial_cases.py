"""Streams, events, states and synopses of which tests make partial aggregates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from optimizer.aggregates.states import ROWS, State
from optimizer.language.parser import parse
from optimizer.synopses.synopsis import Synopsis, synopses_of
from optimizer.workload.values import (
    ACQ,
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Expression,
    Literal,
    Source,
    Stream,
    decimal,
)
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.partials.fill_request import FillRequest
from tests.sizes import examples

SCHEMA = (
    ("ts", TIMESTAMP),
    ("symbol", STRING),
    ("price", DOUBLE),
    ("volume", LONG),
    ("fee", decimal(30, 2)),
    ("tip", decimal(10, 2)),
    ("late", BOOLEAN),
    ("due", DATE),
)
STREAM = Stream("trades", Source("csv", "trades.csv"), SCHEMA, "ts")
ARROW = pa.schema([(name, arrow_type(type)) for name, type in SCHEMA])
SECOND = 1_000_000
TYPES = dict(SCHEMA)
NULLS = dict.fromkeys(name for name, _ in SCHEMA[1:])


def synopsis(select: str, slide: int = 10, range_: int = 10, rest: str = "") -> tuple[Synopsis, ACQ]:
    text = f"SELECT {select} FROM trades WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' ON ts {rest}"
    parsed = parse(text, {"trades": STREAM})
    assert parsed.diagnostics == ()
    ((synopsis_of_query, (query,)),) = synopses_of(STREAM, parsed.queries).items()
    return synopsis_of_query, query


def events(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Events with ``at`` in seconds; columns that are not named are null."""
    table = [{"ts": None if row["at"] is None else row["at"] * SECOND} | row for row in rows]
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in ARROW.names} for row in table], ARROW)


PREDICATES: dict[Expression | None, Callable[[dict[str, Any]], bool]] = {
    None: lambda row: True,
    Call(">", (Column("volume"), Literal(0, LONG))): lambda row: row["volume"] is not None and row["volume"] > 0,
    Call("=", (Column("symbol"), Literal("A", STRING))): lambda row: row["symbol"] == "A",
    Call("is_null", (Column("price"),)): lambda row: row["price"] is None,
}


def state(kind: str, name: str, by: str | None = None, error: str | None = None) -> State:
    type = None if kind == "count" else TYPES[name]
    ordered = (Column(by), TYPES[by]) if by else (None, None)
    return State(kind, Column(name), type, *ordered, Decimal(error) if error else None)


STATES = (
    *(state("count", name) for name in ("price", "symbol", "volume")),
    *(state(kind, "price") for kind in ("exact_sum", "exact_sum_squares", "exact_sum_cubes", "exact_sum_fourths")),
    *(state(kind, "price") for kind in ("min", "max", "values")),
    *(state(kind, "volume") for kind in ("sum", "power_2", "min", "max", "values")),
    *(state(kind, "volume") for kind in ("bit_and", "bit_or", "bit_xor")),
    *(state(kind, name) for kind in ("sum", "min", "max", "values") for name in ("fee", "tip")),
    *(state(kind, name) for kind in ("min", "max", "values") for name in ("symbol", "late", "due")),
    state("least_by", "price", "symbol"),
    state("greatest_by", "symbol", "price"),
    state("least_by", "fee", "volume"),
    state("greatest_by", "volume", "tip"),
    state("first", "tip", "ts"),
    state("last", "late", "ts"),
    *(state("registers", name, error="0.2") for name in ("price", "symbol", "volume", "fee", "tip")),
)
GROUPS = ("symbol", "late", "due", "tip")
rows_of_events = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(-30, 30) | st.none(),
            "symbol": st.sampled_from([None, "", "A", "B", "é"]),
            "price": st.sampled_from([None, 0.1, 1e16, -1e16, 3.3, -0.0, 0.0, 1e-9, math.nan, math.inf, 1e300]),
            "volume": st.sampled_from([None, 2**63 - 1, -(2**63), 1, 0, -1]),
            "fee": st.sampled_from([None, Decimal("0.01"), Decimal(-(10**27)), Decimal("-0.01"), Decimal(2**64)]),
            "tip": st.sampled_from([None, Decimal("0.01"), Decimal("-99999999.99"), Decimal("12.00")]),
            "late": st.sampled_from([None, True, False]),
            "due": st.sampled_from([None, date(1969, 12, 31)]),
        }
    ),
    max_size=25,
)


@st.composite
def spans(draw: st.DrawFn) -> FillRequest:
    """Any synopsis over a few edges, predicates, group columns and states, somewhere in [-40 s, 40 s)."""
    edges = draw(st.sampled_from([((10, 0),), ((10, 0), (10, 5)), ((20, 0),), ((7, 0),), ((15, 3), (20, 10))]))
    edges = tuple((slide * SECOND, shift * SECOND) for slide, shift in edges)
    predicates = tuple(draw(st.lists(st.sampled_from(list(PREDICATES)), min_size=1, max_size=3, unique=True)))
    names = sorted(draw(st.sets(st.sampled_from(GROUPS), max_size=2)))
    states = draw(st.lists(st.sampled_from(STATES), max_size=6, unique=True))
    group_by = tuple((name, TYPES[name]) for name in names)
    synopsis = Synopsis("trades", "ts", edges, predicates, group_by, (ROWS, *states), tuple(names[:1]))
    instants = synopsis.fragments.between(-40 * SECOND, 40 * SECOND).tolist()
    begin, end = sorted(draw(st.tuples(st.sampled_from(instants[:4]), st.sampled_from(instants[4:]))))
    return FillRequest(synopsis, begin, end)


def pieces(found: Sequence[dict[str, Any]], cuts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    bounds = sorted({0, len(found), *(cut for cut in cuts if cut < len(found))})
    for low, high in zip(bounds, bounds[1:], strict=False):
        yield events(*found[low:high])


def simple(
    *group_by: str, predicates: tuple[Expression | None, ...] = (None,), states: tuple[State, ...] = ()
) -> Synopsis:
    columns = tuple((name, TYPES[name]) for name in group_by)
    chosen = states or (state("count", "volume"), state("sum", "volume"))
    return Synopsis("trades", "ts", ((10 * SECOND, 0),), predicates, columns, (ROWS, *chosen), group_by)


MANY = settings(
    max_examples=examples(50),
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
cuts = st.lists(st.integers(0, 25), max_size=3)
