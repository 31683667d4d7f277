"""Values: JSON round trips, fingerprints and what cannot be built."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.workload.values import (
    BYTE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    Literal,
    Source,
    Stream,
    Type,
    Window,
    Workload,
    decimal,
    from_json,
    to_json,
)
from tests.sizes import examples
from tests.workloads import Case, cases


@settings(max_examples=examples(35), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(most_events=1))
def test_workloads_survive_json(case: Case) -> None:
    written = json.dumps(to_json(case.workload), allow_nan=False)
    through = from_json(json.loads(written))
    # compared as written: a literal NaN differs from itself
    assert json.dumps(to_json(through), allow_nan=False) == written
    assert through == case.workload or '"nan"' in written
    assert through.fingerprint == case.workload.fingerprint


@given(st.one_of(st.floats(allow_nan=False), st.decimals(allow_nan=False), st.text(), st.booleans(), st.none()))
def test_literals_survive_json(value: object) -> None:
    literal = Literal(value, DOUBLE)
    through = from_json(json.loads(json.dumps(to_json(literal), allow_nan=False)))
    assert through == literal
    assert type(through.value) is type(value)
    if isinstance(value, float):
        assert math.copysign(1.0, through.value) == math.copysign(1.0, value)
    if isinstance(value, Decimal):
        assert str(through.value) == str(value)  # 1.0 and 1.00 have different types


def test_nan_survives_json() -> None:
    assert math.isnan(from_json(to_json(Literal(math.nan, DOUBLE))).value)


def test_a_query_is_known_by_its_meaning_alone(case_of_two: Workload) -> None:
    query = case_of_two.queries[0]
    assert replace(query, owner="x", text="y", asset=True).fingerprint == query.fingerprint
    assert replace(query, window=Window(7, 7)).fingerprint != query.fingerprint
    assert replace(query, filter=Literal(True, Type("boolean"))).fingerprint != query.fingerprint


def test_a_workloads_fingerprint_ignores_the_order_of_its_queries(case_of_two: Workload) -> None:
    a, b = case_of_two.queries
    assert Workload((b, a), case_of_two.streams).fingerprint == case_of_two.fingerprint
    assert Workload((a,), case_of_two.streams).fingerprint != case_of_two.fingerprint


def test_names_are_unique(case_of_two: Workload) -> None:
    a, _ = case_of_two.queries
    with pytest.raises(ValueError, match="unique"):
        Workload((a, a), case_of_two.streams)


@pytest.fixture
def case_of_two() -> Workload:
    from optimizer.workload.values import ACQ, Output

    stream = Stream("events", Source("csv", "events.csv"), (("ts", TIMESTAMP), ("x", LONG)), "ts")
    total = Output("total", "sum", Column("x"), LONG, LONG)
    queries = [ACQ(name, "events", Window(seconds, 5), (total,)) for name, seconds in (("a", 10), ("b", 12))]
    return Workload(tuple(queries), (stream,))


def test_queries_know_their_columns(case_of_two: Workload) -> None:
    query = replace(case_of_two.queries[0], filter=Column("flag"), group_by=(("who", STRING),))
    assert query.columns() == ["flag", "who", "x"]
    assert case_of_two.stream("events").type_of("x") == LONG
    assert case_of_two.stream("events").type_of("y") is None


@pytest.mark.parametrize("window", [(0, 1), (1, 0), (-1, 1)])
def test_windows_are_positive(window: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Window(*window)


def test_the_overlap_factor_is_exact() -> None:
    assert Window(10, 4).overlap_factor == Fraction(5, 2)


def test_types_have_names_and_limits() -> None:
    assert [str(type) for type in (BYTE, INT, LONG, decimal(9, 2))] == ["byte", "int", "long", "decimal(9,2)"]
    assert decimal(9, 2).is_exact and not DOUBLE.is_exact and DOUBLE.is_numeric and not STRING.is_numeric
    for precision, scale in ((0, 0), (39, 0), (5, 6), (5, -1)):
        with pytest.raises(ValueError, match="out of range"):
            decimal(precision, scale)
