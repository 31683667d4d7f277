"""Partial aggregates: what a fragment keeps, and that neither order nor the cutting of events changes a bit of it."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.aggregates import exact_total
from optimizer.parser import parse
from optimizer.query import ACQ, BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, decimal
from optimizer.synopsis import Synopsis, synopses_of
from spark_jobs.expressions import arrow_type
from spark_jobs.partial_aggregates import (
    PARTIALS,
    Span,
    columns_of_synopsis,
    combine,
    group_keys,
    lift,
    lists,
    matrix,
    partials_of,
)

SCHEMA = (
    ("ts", TIMESTAMP),
    ("symbol", STRING),
    ("price", DOUBLE),
    ("volume", LONG),
    ("fee", decimal(30, 2)),
    ("late", BOOLEAN),
)
STREAM = Stream("trades", Source("csv", "trades.csv"), SCHEMA, "ts")
ARROW = pa.schema([(name, arrow_type(type)) for name, type in SCHEMA])
SECOND = 1_000_000


def synopsis(select: str, slide: int = 10, range_: int = 10, rest: str = "") -> tuple[Synopsis, ACQ]:
    text = f"SELECT {select} FROM trades WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' ON ts {rest}"
    found = parse(text, {"trades": STREAM})
    assert found.diagnostics == ()
    ((made, (query,)),) = synopses_of(STREAM, found.queries).items()
    return made, query


def events(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Events with ``at`` in seconds; columns that are not named are null."""
    table = [{"ts": None if row["at"] is None else row["at"] * SECOND} | row for row in rows]
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in ARROW.names} for row in table], ARROW)


def of_state(made: Synopsis, row: dict[str, Any], kind: str) -> Any:
    for carrier in ("longs", "doubles", "texts"):
        for state, at in made.layout(carrier):
            if state.kind == kind:
                return row[carrier][at : at + state.width]
    raise AssertionError(f"no state {kind}")


# ------------------------------------------------------------------------------------------- lifting
def test_a_row_a_fragment_and_group_with_its_day_and_bounds() -> None:
    made, _ = synopsis("symbol, count(*) AS n, sum(volume) AS s", range_=15, rest="GROUP BY symbol")
    batch = events(
        {"at": 1, "symbol": "A", "volume": 5},
        {"at": 4, "symbol": "A", "volume": None},
        {"at": 6, "symbol": "A", "volume": 7},
        {"at": 6, "symbol": None, "volume": -1},
    )
    rows = partials_of([batch], STREAM, [Span(made, 0, 10 * SECOND)]).to_pylist()
    # range 15, slide 10: edges at 0, 5, 10, …
    assert [(row["fragment_start"], row["fragment_end"], json.loads(row["key"])) for row in rows] == [
        (0, 5 * SECOND, ["A"]),
        (5 * SECOND, 10 * SECOND, ["A"]),
        (5 * SECOND, 10 * SECOND, [None]),
    ]
    assert {(row["day"], row["stream"], row["fingerprint"]) for row in rows} == {
        ("1970-01-01", "trades", made.fingerprint)
    }
    assert [of_state(made, row, "rows") for row in rows] == [[2], [1], [1]]
    assert [of_state(made, row, "count") for row in rows] == [[1], [1], [1]]
    sums = np.array([of_state(made, row, "sum") for row in rows], dtype=np.int64)
    assert exact_total(sums).tolist() == [5, 7, -1]


def test_only_events_of_the_span_and_filter_are_lifted_and_all_are_counted() -> None:
    made, _ = synopsis("count(*) AS n", rest="WHERE volume > 0")
    batch = events(
        {"at": -1, "volume": 9},
        {"at": 0, "volume": 1},
        {"at": 9, "volume": None},
        {"at": 9, "volume": 0},
        {"at": 10, "volume": 9},
        {"at": None, "volume": 9},
    )
    tables, inside, without_time = lift(batch, STREAM, [Span(made, 0, 10 * SECOND)])
    (row,) = pa.concat_tables(tables).to_pylist()
    assert of_state(made, row, "rows") == [1]
    assert (inside, without_time) == (3, 1)
    assert columns_of_synopsis(made) == {"volume"}


def test_extremes_of_nothing_but_nulls_leave_no_trace() -> None:
    made, _ = synopsis("min(price) AS a, max(symbol) AS b, min(fee) AS c, max(late) AS d")
    null, one = events({"at": 1}), events({"at": 2, "price": 2.5, "symbol": "x", "fee": Decimal("-3.10"), "late": True})
    span = Span(made, 0, 10 * SECOND)
    both, alone = partials_of([null, one], STREAM, [span]), partials_of([one], STREAM, [span])
    (row,), (other,) = both.to_pylist(), alone.to_pylist()
    assert of_state(made, row, "rows") == [2]
    assert (row["doubles"], row["texts"]) == (other["doubles"], other["texts"])
    assert sorted(row["texts"]) == ["-3.10", "x"]


@pytest.mark.parametrize("value", [10**28 - 1, -(10**28) + 1, 2**64, -(2**64), -1])
def test_wide_decimals_are_kept_exactly(value: int) -> None:
    made, _ = synopsis("sum(fee) AS s")
    fee = Decimal(value).scaleb(-2)
    batch = events({"at": 1, "fee": fee}, {"at": 2, "fee": fee}, {"at": 3})
    (row,) = partials_of([batch], STREAM, [Span(made, 0, 10 * SECOND)]).to_pylist()
    assert exact_total(np.array([of_state(made, row, "sum")], dtype=np.int64))[0] == 2 * value


# ----------------------------------------------------------------------------------------- group keys
def test_keys_tell_nulls_empty_strings_and_separators_apart() -> None:
    first = pa.array(["a", "", None, 'a","b', "a", "null"])
    second = pa.array([True, None, None, False, True, None])
    codes, keys = group_keys([first, second], 6)
    found = [json.loads(keys[code]) for code in codes]
    assert found == [["a", "true"], ["", None], [None, None], ['a","b', "false"], ["a", "true"], ["null", None]]
    assert len(set(keys)) == 5 and codes[0] == codes[4]


def test_no_group_by_is_one_group() -> None:
    codes, keys = group_keys([], 3)
    assert (codes.tolist(), keys) == ([0, 0, 0], ["[]"])


# ------------------------------------------------------------------------------------------ combining
rows_of_events = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(-30, 30),
            "symbol": st.sampled_from([None, "", "A", "B"]),
            "price": st.sampled_from([None, 0.1, 1e16, -1e16, 3.3, -0.0, 1e-9]),
            "volume": st.sampled_from([None, 2**63 - 1, -(2**63), 1, 0]),
            "fee": st.sampled_from([None, Decimal("0.01"), Decimal(-(10**27))]),
        }
    ),
    min_size=1,
    max_size=25,
)
SELECT = (
    "symbol, count(*) AS n, sum(volume) AS v, sum(price) AS p, stddev(price) AS d, min(price) AS lo, "
    "max(volume) AS hi, min(symbol) AS s, max(fee) AS f, sum(fee) AS g"
)


@settings(max_examples=60, deadline=None)
@given(rows_of_events, st.lists(st.integers(0, 25), max_size=3), st.integers(0, 2**32))
def test_rows_stored_in_any_order_combine_to_the_same_bits(
    found: list[dict[str, Any]], cuts: list[int], seed: int
) -> None:
    """However a run finds the pieces of a cell (files have random names), the combined row is the same."""
    made, _ = synopsis(SELECT, range_=15, rest="GROUP BY symbol")
    bounds = sorted({0, len(found), *(cut for cut in cuts if cut < len(found))})
    span = Span(made, -30 * SECOND, 40 * SECOND)
    pieces = [
        table
        for low, high in zip(bounds, bounds[1:], strict=False)
        for table in lift(events(*found[low:high]), STREAM, [span])[0]
    ]
    rows = pa.concat_tables(pieces)
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    one, other = combine(made, rows), combine(made, rows.take(pa.array(order)))
    # as text: NaN equals itself there, and the zeros are told apart
    assert str(one.to_pylist()) == str(other.to_pylist())
    # a row a cell, and what is combined already stays as it is
    cells = [(row["fragment_start"], row["key"]) for row in one.to_pylist()]
    assert len(set(cells)) == len(cells)
    assert str(combine(made, one).to_pylist()) == str(one.to_pylist())
    assert sum(of_state(made, row, "rows")[0] for row in one.to_pylist()) == len(found)


def test_stored_rows_have_the_tables_schema() -> None:
    made, _ = synopsis("count(*) AS n")
    found = partials_of([events({"at": 1})], STREAM, [Span(made, 0, 10 * SECOND)])
    assert found.schema.names == PARTIALS.names
    assert partials_of([], STREAM, [Span(made, 0, 10 * SECOND)]).num_rows == 0


def test_matrices_survive_being_stored_as_lists() -> None:
    values = np.arange(6).reshape(3, 2)
    assert (matrix(lists(values, pa.int64()), 2) == values).all()
    assert lists(values, pa.int64(), values != 3).to_pylist() == [[0, 1], [2, None], [4, 5]]
    assert lists(np.zeros((2, 0), dtype=np.int64), pa.int64()).to_pylist() == [[], []]
