"""The columns of a query's lineage are exactly those that decide its answers, each by the way in which it does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.plan.column_lineage import ColumnLineage, Dependency, column_lineage
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream
from tests.sizes import examples
from tests.workloads import Case, calendar_cases, cases, row_cases, sequence_cases, session_cases, several_cases

SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG), ("venue", STRING))
TRADES = Stream("trades", Source("parquet", "x"), SCHEMA, "ts")


@settings(max_examples=examples(60), deadline=None)
@given(
    case=st.one_of(cases(), calendar_cases(), several_cases(), row_cases(), sequence_cases(), session_cases()),
    is_known=st.booleans(),
)
def test_lineage_has_exactly_the_deciding_columns(case: Case, is_known: bool) -> None:
    stream = replace(case.stream, event_id=case.stream.schema[1][0] if is_known else None)
    expected = {stream.time} | ({stream.event_id} if is_known else set())
    for query in case.workload.queries:
        lineage = column_lineage(query, stream)
        assert lineage.columns == expected | set(query.deciding_columns(stream))
        assert (len(lineage.groups), len(lineage.outputs)) == (len(query.group_by), len(query.outputs))


def lineage_of(text: str) -> ColumnLineage:
    parsed = parse(text, {"trades": TRADES})
    assert not [problem for problem in parsed.diagnostics if problem.severity == "error"]
    return column_lineage(parsed.queries[0], TRADES)


WINDOW = "WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts"


def test_each_column_has_its_own_sources() -> None:
    lineage = lineage_of(
        "-- name: q\nSELECT symbol, upper(venue) AS at, count(*) AS n, sum(price * volume) / sum(volume) AS mean, "
        f"max_by(price, volume) AS largest FROM trades {WINDOW} WHERE volume > 3 GROUP BY symbol, upper(venue)"
    )
    assert lineage.groups == ((("symbol", Dependency.IDENTITY),), (("venue", Dependency.TRANSFORMATION),))
    count, mean, largest = lineage.outputs
    assert count == ()
    assert mean == (("price", Dependency.AGGREGATION), ("volume", Dependency.AGGREGATION))
    assert largest == (("price", Dependency.AGGREGATION), ("volume", Dependency.SORT))
    assert lineage.window == (("ts", Dependency.TRANSFORMATION),)
    assert set(lineage.answers) == {
        ("ts", Dependency.WINDOW),
        ("volume", Dependency.FILTER),
        ("symbol", Dependency.GROUP_BY),
        ("venue", Dependency.GROUP_BY),
    }


def test_conditions_and_orders_of_answers_decide_which_exist() -> None:
    lineage = lineage_of(
        f"-- name: q\nSELECT symbol, count(*) AS n FROM trades {WINDOW} GROUP BY symbol "
        "HAVING max(price) > 5 ORDER BY sum(volume) DESC LIMIT 3"
    )
    assert {("price", Dependency.FILTER), ("volume", Dependency.SORT)} <= set(lineage.answers)
    assert lineage.outputs == ((),)
