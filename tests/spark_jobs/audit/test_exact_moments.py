"""Moments of integers and decimals are the doubles nearest to the exact values, whatever their size and the cuts."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.aggregates.exact_moments import Enclosed, ExactIntegers, quotients, rooted, roots
from optimizer.aggregates.states import bits_of, limbs_for
from optimizer.language.parser import parse
from optimizer.synopses.synopsis import former_of, synopses_of
from optimizer.workload.values import (
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    Output,
    Source,
    Stream,
    Type,
    Workload,
    decimal,
)
from spark_jobs.audit.checks import suite
from spark_jobs.audit.unshared.agreement import agrees
from spark_jobs.audit.unshared.audited import evidence
from spark_jobs.audit.unshared.exact_moments import nearest_root
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.loading import Reader
from spark_jobs.windows.partials.cells import Cells, concatenated
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.kernels import lift_exact_powers, lift_exact_products
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.partials.states import carry
from tests.chaos.orders import in_process
from tests.exact_moments import paired, shape, spread_of_exact
from tests.former_rows import as_before
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.kernels import decoded, differences, kernel_answers
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.spark_jobs.windows.lift_requests import kinds, watched
from tests.spark_jobs.windows.row_store import Store
from tests.spark_jobs.windows.row_store import wrong as wrong_rows
from tests.spark_jobs.windows.stored_partials import stored
from tests.workloads import Case

SECOND = 1_000_000
NUMBERS: dict[str, Type] = {
    "big": LONG,
    "long": LONG,
    "whole": INT,
    "money": decimal(9, 2),
    "narrow": decimal(18, 18),
    "wide": decimal(38, 10),
    "tiny": decimal(38, 38),
}
STREAM = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), ("kind", STRING), *NUMBERS.items()), "ts")
ONE = ("variance", "var_pop", "stddev", "stddev_pop", "skewness", "kurtosis")
TWO = ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2")
FAST = settings(
    max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def most(type: Type) -> int:
    """The greatest value of a type, unscaled."""
    if type.name == "decimal":
        return int(10**type.precision) - 1
    return 2**31 - 1 if type == INT else 2**63 - 1


@st.composite
def numbers(draw: st.DrawFn, type: Type, count: int) -> list[Any]:
    """Values about a mean near or far, near one another or not, some equal, some null, some as great as can be."""
    top = most(type)
    mean = draw(st.sampled_from((0, 1, 1000, top // 10**4, top // 92 * 80, -top, top)))
    off = draw(st.sampled_from((0, 1, 9, 1000, top // 10**6, top)))
    extremes = st.sampled_from((top, -top, 0, 1, -1))
    near = st.integers(-off, off).map(lambda by: max(-top, min(top, mean + by)))
    chosen = st.none() if draw(st.integers(0, 9)) == 0 else near
    drawn = st.one_of(near, near, near, chosen, extremes if draw(st.booleans()) else near)
    integers = draw(st.lists(drawn, min_size=count, max_size=count))
    if type.name == "decimal":
        with localcontext(prec=80):
            return [None if integer is None else Decimal(integer).scaleb(-type.scale) for integer in integers]
    return integers


@st.composite
def outputs(draw: st.DrawFn) -> str:
    names = st.sampled_from(sorted(NUMBERS))
    calls = st.one_of(
        st.tuples(st.sampled_from(ONE), names).map(lambda call: f"{call[0]}({call[1]})"),
        st.tuples(st.sampled_from(TWO), names, names).map(lambda call: f"{call[0]}({call[1]}, {call[2]})"),
        names.map(lambda name: f"avg({name})"),
    )
    drawn_calls = draw(st.lists(calls, min_size=2, max_size=5, unique=True))
    return ", ".join(f"{call} AS a{number}" for number, call in enumerate(drawn_calls))


@st.composite
def exact_cases(draw: st.DrawFn, rows: bool = False) -> Case:
    count = draw(st.integers(1, 14))
    times = draw(st.lists(st.integers(0, 39), min_size=count, max_size=count))
    columns = {name: draw(numbers(type, count)) for name, type in NUMBERS.items()}
    kinds_ = draw(st.lists(st.sampled_from("AB"), min_size=count, max_size=count))
    columns = {"ts": [at * SECOND for at in times], "kind": kinds_, **columns}
    table = pa.table({name: pa.array(columns[name], arrow_type(type)) for name, type in STREAM.schema})
    windows = (
        ("ROWS 3 SLIDE 2 ON ts", "ROWS 5 SLIDE 1 ON ts")
        if rows
        else (
            "RANGE '10 seconds' SLIDE '4 seconds' ON ts",
            "RANGE '6 seconds' SLIDE '2 seconds' ON ts",
            "RANGE '30 seconds' SLIDE '10 seconds' ON ts",
        )
    )
    texts = [
        f"-- name: q{number}\nSELECT {'kind, ' * grouped}{draw(outputs())} FROM events "
        f"WINDOW {draw(st.sampled_from(windows))}{' GROUP BY kind' * grouped};\n"
        for number, grouped in enumerate(draw(st.lists(st.booleans(), min_size=1, max_size=2)))
    ]
    parsed = parse("".join(texts), {"events": STREAM})
    assert not [problem for problem in parsed.diagnostics if problem.severity == "error"], parsed.diagnostics
    return Case(Workload(parsed.queries, (STREAM,)), table, 0, 60 * SECOND)


@FAST
@given(exact_cases(), st.lists(st.integers(0, 100), max_size=3), st.lists(st.integers(0, 1), max_size=3))
def test_windows_of_time_under_any_cut_are_exact(case: Case, cuts: list[int], homes: list[int]) -> None:
    table = kernel_answers(case, "weave-share", cuts, case.begin, case.end, homes)
    assert differences(case, table) == []


@FAST
@given(exact_cases(rows=True), st.lists(st.integers(0, 100), max_size=2))
def test_windows_of_rows_are_exact(case: Case, cuts: list[int]) -> None:
    assert wrong_rows(case, Store(case, cuts).answers(case.begin, case.end)) == []


@settings(FAST, max_examples=examples(6))
@given(exact_cases())
def test_lookups_are_exact(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        house = stored(Path(folder) / "house", case.workload, decoded(case), [(case.begin, case.end)])
        for query in case.workload.queries:
            expected = answers(query, case.events, "ts", case.begin, case.end)
            assert compare(query, Reader(house).query(query.name).between(case.begin, case.end), expected) == []


@FAST
@given(exact_cases(), st.integers(0, 2**32))
def test_equal_events_have_equal_bits_in_any_order_and_under_any_cut(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    table = decoded(case)
    for synopsis in synopses_of(STREAM, case.workload.queries):
        span = FillRequest(synopsis, 0, 60 * SECOND)
        cells = []
        for _ in range(2):
            order = list(range(len(table)))
            chance.shuffle(order)
            cut = chance.randint(0, len(order))
            pieces = [table.take(pa.array(part, pa.int64())).combine_chunks() for part in (order[:cut], order[cut:])]
            rows = [partials_of(piece.to_batches(), STREAM, [span]) for piece in pieces]
            cells.append(concatenated([Cells.decode(synopsis, some) for some in rows if len(some)]).combined())
        assert cells[0].longs.tolist() == cells[1].longs.tolist()


# ------------------------------------------------------------------------------------ the judge
@settings(FAST, max_examples=examples(60))
@given(st.data(), st.sampled_from(sorted(NUMBERS)), st.sampled_from(sorted(NUMBERS)), st.integers(1, 9))
def test_the_judge_takes_the_exact_answer_and_no_neighbour(
    data: st.DataObject, first: str, second: str, count: int
) -> None:
    x, y = (data.draw(numbers(NUMBERS[name], count)) for name in (first, second))
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    values = [value for value in x if value is not None]
    for function in (*ONE, *TWO):
        by = (Column("y"), NUMBERS[second]) if function in TWO else (None, None)
        output = Output("it", function, Column("x"), NUMBERS[first], DOUBLE, *by)
        given_ = ([a for a, _ in pairs], [b for _, b in pairs]) if function in TWO else (values, ())
        if function in TWO:
            expected = paired(function, pairs).value if pairs else None
        elif function in ("skewness", "kurtosis"):
            expected = shape(function, values).value if values else None
        else:
            expected = spread_of_exact(function, values).value
        row = {f"it {name}" if name else "it": value for name, value in evidence(output, *given_).items()}
        assert row["it"] == expected
        assert agrees(output, expected, row)
        for wrong in (0.0, None) if expected is None else (math.nextafter(expected, math.inf), expected + 1, None):
            assert agrees(output, wrong, row) == (wrong == expected)


@given(st.integers(0, 10**40), st.integers(1, 10**40))
def test_roots_of_quotients_are_rounded_once(above: int, below: int) -> None:
    assert rooted(above, below) == nearest_root(Fraction(above, below))


# ------------------------------------------------------------------------------- arithmetic of answers
LARGE = st.one_of(
    st.integers(-(2**20), 2**20),
    st.integers(-(2**63), 2**63 - 1),
    # all bits drawn: of wide ranges Hypothesis prefers small numbers
    st.builds(
        lambda bits, seed, sign: sign * random.Random(seed).getrandbits(bits),
        st.integers(60, 250),
        st.integers(0, 2**32),
        st.sampled_from((1, -1)),
    ),
)


def as_integers(values: Sequence[int], limbs: int = 9) -> ExactIntegers:
    mask = 2**32 - 1
    rows = [[(value >> 32 * at) & mask for at in range(limbs - 1)] + [value >> 32 * (limbs - 1)] for value in values]
    return ExactIntegers.sums(np.array(rows, dtype=np.int64))


@settings(FAST, max_examples=examples(150))
@given(st.lists(st.tuples(LARGE, LARGE, st.integers(1, 10**6)), min_size=1, max_size=6), st.booleans())
def test_polynomials_are_settled_and_rounded_whatever_cancels(rows: list[tuple[int, int, int]], near: bool) -> None:
    a = [first for first, _, _ in rows]
    b = [first + other % 7 if near else other for first, other, _ in rows]
    n = [number for _, _, number in rows]
    difference = (as_integers(a) * as_integers(a) - as_integers(b) * as_integers(b)).settled()
    exact = [x * x - y * y for x, y in zip(a, b, strict=True)]
    valid = np.ones(len(rows), dtype=bool)
    for exact_value, high, low, bound in zip(
        exact, difference.near.high, difference.near.low, difference.near.bound, strict=True
    ):
        off = abs(Fraction(exact_value) - Fraction(float(high)) - Fraction(float(low)))
        assert off <= Fraction(float(bound)) and (exact_value == 0) == (high == 0)
    counts = ExactIntegers.counts(np.array(n))
    assert quotients(difference, counts, valid).tolist() == [
        exact_value / number for exact_value, number in zip(exact, n, strict=True)
    ]
    squared = (difference * difference).settled()
    assert roots(squared, counts, valid).tolist() == [
        rooted(exact_value * exact_value, number) for exact_value, number in zip(exact, n, strict=True)
    ]


def test_enclosures_of_python_integers_are_exact_where_they_can_be() -> None:
    enclosed = Enclosed.of(np.array([0, 2**53 + 1, 2**300 + 1, -1], dtype=object))
    assert enclosed.bound.tolist()[0] == enclosed.bound.tolist()[3] == 0.0
    assert enclosed.high[1] + enclosed.low[1] == 2**53 and enclosed.low[1] == 1.0


@pytest.mark.parametrize("type", [*NUMBERS.values(), Type("long", 3)], ids=str)
def test_limbs_hold_the_powers_of_four_thousand_million_extremes(type: Type) -> None:
    for exponent in (2, 3, 4):
        limbs = limbs_for(exponent * bits_of(type))
        extreme = most(type) + 1 if type.name == "long" and type.digits > 3 else most(type) if type.scale else 999
        assert extreme**exponent * 2**32 >> 32 * (limbs - 1) <= 2**63


EDGES = sorted({sign * (2**bits + by) for bits in (0, 15, 20, 31, 32, 62, 63) for by in (-1, 0, 1) for sign in (1, -1)})


def halves(values: Sequence[int], wide: bool) -> tuple[Any, Any]:
    """The low and the high words of integers; no high ones if they are not wide."""
    words = [[(value >> 64 * word) % 2**64 for value in values] for word in (0, 1)]
    low, high = (np.array(word, dtype=np.uint64).view(np.int64) for word in words)
    return low, high if wide else high[:0]


@pytest.mark.parametrize("wide", [False, True])
def test_kernels_lift_each_power_and_product_of_numbers_at_the_limits_of_their_ways(wide: bool) -> None:
    values = [*EDGES, *((10**38 - 1, -(2**64), 2**96 - 1, -(10**38)) if wide else ())]
    if not wide:
        values = [value for value in values if -(2**63) <= value < 2**63]
    cells = np.arange(len(values), dtype=np.int32)
    everywhere, nowhere = np.empty(0, dtype=np.int32), np.empty(0, dtype=bool)

    def lifted(kernel: Any, *args: Any, limbs: int) -> list[int]:
        out = np.zeros((len(values), limbs), dtype=np.int64)
        kernel(cells, everywhere, *args[0], nowhere, out, 0, limbs, *args[1:])
        carry(out)
        return [sum(int(limb) << 32 * at for at, limb in enumerate(row)) for row in out]

    for exponent in (1, 2, 3, 4):
        limbs = limbs_for(exponent * (127 if wide else 63))
        assert lifted(lift_exact_powers, halves(values, wide), exponent, limbs=limbs) == [
            value**exponent for value in values
        ]
    for turn in range(0, len(values), 3):
        rotated = [values[(at + turn) % len(values)] for at in range(len(values))]
        sides = (*halves(values, wide), *halves(rotated, wide))
        assert lifted(lift_exact_products, sides, limbs=limbs_for(254 if wide else 126)) == [
            value * other for value, other in zip(values, rotated, strict=True)
        ]


# -------------------------------------------------------------------------------------- seen wrong once
def lowered_alone(function: str, values: Sequence[int]) -> float:
    """A moment of integers of 64 bits."""
    text = f"-- name: q\nSELECT {function}(big) AS a FROM events WINDOW RANGE '60 seconds' SLIDE '60 seconds' ON ts;"
    columns: dict[str, Any] = {name: [None] * len(values) for name, _ in STREAM.schema}
    columns |= {"ts": [0] * len(values), "big": values}
    table = pa.table({name: pa.array(columns[name], arrow_type(type)) for name, type in STREAM.schema})
    case = Case(Workload(parse(text, {"events": STREAM}).queries, (STREAM,)), table, 0, 60 * SECOND)
    moment: float = kernel_answers(case, "weave-share", (), 0, 60 * SECOND)["doubles"].to_pylist()[0][0]
    return moment


def test_what_lost_all_digits_in_doubles() -> None:
    assert lowered_alone("stddev", [8 * 10**18 + 1] * 3) == 0.0
    assert lowered_alone("variance", [10**17 + offset for offset in (7, 13, 16)]) == 21.0
    assert lowered_alone("var_pop", [-(2**63), 2**63 - 1]) == (2**63 - 0.5) ** 2


# --------------------------------------------------------------------------------------- former partials
QUERY = """
-- name: spreads
SELECT symbol, {} FROM trades WINDOW RANGE '60 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""
MANY = "sum(volume) AS v, stddev(volume) AS s, min(price) AS low, count(volume) AS n, corr(volume, volume) AS c"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setattr(suite, "expectations", lambda *args: [])
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write([(at, who, price, 10**17 + (volume or 0)) for at, who, price, volume in steady(300)])
    return laboratory


def test_of_former_partials_only_moments_are_lifted_again(lab: Laboratory) -> None:
    with as_before():
        version = lab.plan(QUERY.format(MANY))
        lab.run(version, 60, 180, "before")
    assert lab.wrong(version, 60, 180) != []
    with watched() as seen:
        record = lab.run(version, 180, 240, "after")
    given_, new = (
        {
            frozenset(state_kinds)
            for request, state_kinds in zip(seen, kinds(seen), strict=True)
            if (request.into is None) == is_whole
        }
        for is_whole in (False, True)
    )
    lacking = {"rows", "power_2", "pair_x", "pair_y", "pair_xx", "pair_yy", "pair_xy"}
    assert given_ == {frozenset(lacking)} and new == {frozenset({*lacking, "count", "sum", "min", "both"})}
    assert record.features["partial_rows_read"] > 0
    # nothing changed for what was published before: it stays as it is until it is asked for anew
    assert lab.run(version, 60, 180, "again").rows_scanned == 0 and lab.wrong(version, 60, 180) != []
    lab.run(version, 60, 180, "recomputed", recompute=True)
    assert lab.wrong(version, 60, 240) == []


def test_former_partials_are_looked_up_as_they_were(lab: Laboratory) -> None:
    with as_before():
        version = lab.plan(QUERY.format("sum(volume) AS v, stddev(price) AS s, var_pop(volume) AS w"))
        lab.run(version, 60, 180, "before")
        before = Reader(lab.warehouse).query("spreads").between(DAY + 80 * MINUTE, DAY + 180 * MINUTE).to_pylist()
    assert (
        Reader(lab.warehouse).query("spreads").between(DAY + 80 * MINUTE, DAY + 180 * MINUTE).to_pylist()
        == before
        != []
    )


def test_states_without_moments_have_no_former_form() -> None:
    text = QUERY.format("sum(volume) AS v, min(price) AS s, regr_count(volume, price) AS n, median(volume) AS m")
    stream = Stream(
        "trades",
        Source("parquet", "trades"),
        (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG)),
        "ts",
    )
    for synopsis, queries in synopses_of(stream, parse(text, {"trades": stream}).queries).items():
        assert former_of(synopsis, queries) == synopsis
