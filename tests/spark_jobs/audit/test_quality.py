"""The inspection of staged files finds each kind of damage; the suite says which rows; samples are what they cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.workload.values import (
    BOOLEAN,
    DOUBLE,
    LONG,
    STRING,
    Calendar,
    Condition,
    Literal,
    Output,
    Window,
)
from spark_jobs.audit.checks import recompute
from spark_jobs.audit.checks.inspection import BUCKETS_OF, inspect, summed
from spark_jobs.audit.checks.recompute import compare
from spark_jobs.audit.checks.staged_answers import Staged
from spark_jobs.audit.checks.suite import FINDINGS, expectations
from spark_jobs.engine.choice import engine_of
from spark_jobs.store.warehouse.data_files import bucket_of
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.streams.sources.files import splits_of
from tests.sizes import examples
from tests.spark_jobs.audit.answer_rows import BEGIN, HOUR, LATE, NOON, PRICE, QUERY, SCHEMA, VOLUME, answer, written
from tests.spark_jobs.laboratory import Laboratory, steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGO = replace(QUERY, name="ago", window=Window(2 * HOUR, HOUR, ago=30 * 60_000_000))
OTHERS = replace(
    QUERY,
    name="others",
    outputs=(
        Output("mean", "avg", VOLUME, LONG, DOUBLE),
        Output("spread", "stddev", VOLUME, LONG, DOUBLE),
        Output("values", "count_distinct", VOLUME, LONG, LONG),
        Output("all", "bool_and", LATE, BOOLEAN, BOOLEAN),
        Output("middle", "median", PRICE, DOUBLE, DOUBLE),
        Output("least", "min", PRICE, DOUBLE, DOUBLE),
    ),
    group_by=(),
    select=(),
)
QUERIES = (QUERY, AGO, OTHERS)


GRAIN = ("stream", "query", "window_start", "window_end", "instant", "key")


def other(hour: int, **changes: Any) -> dict[str, Any]:
    values = {"query": "others", "key": "[]", "longs": [2, 1], "doubles": [1.0, 0.5, 1.5, 1.0]}
    return answer(hour, "A", **(values | changes))


def earlier(hour: int, **changes: Any) -> dict[str, Any]:
    """An answer of a historical window, which ends half an hour before its instant."""
    row = answer(hour, "A", query="ago")
    half = timedelta(minutes=30)
    return row | {"window_start": row["window_start"] - half, "window_end": row["window_end"] - half} | changes


def found(path: str) -> list[dict[str, Any]]:
    findings = inspect(path, QUERIES, BEGIN, {"trades": BEGIN + 6 * HOUR}).rows
    assert findings[-1]["query"] == BUCKETS_OF
    return findings


NULLS = {"longs": [0], "doubles": [None, None, None]}
GOOD = [answer(0, "A"), answer(1, "A"), answer(0, "B"), answer(1, None, **NULLS), earlier(1), other(0), other(1)]


def spans_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """The first and the last instant of each query's answers, in microseconds."""
    moments: dict[str, list[int]] = {}
    for row in rows:
        moments.setdefault(row["query"], []).append(
            (row["instant"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        )
    return {name: [min(every), max(every)] for name, every in moments.items()}


@pytest.mark.parametrize("size", [1, 3, 100])
def test_right_answers_are_found_right(tmp_path: Path, size: int) -> None:
    rows = found(written(tmp_path, GOOD, size))
    by_query = {row["query"]: {name: value for name, value in row.items() if value} for row in rows}
    numbers = sorted(set(bucket_of(["[]", '["A"]', '["B"]', "[null]"]).tolist()))
    buckets = json.loads(by_query.pop(BUCKETS_OF)["examples"])
    assert buckets == {"day": "2013-07-01", "spans": spans_of(GOOD), "buckets": numbers}
    assert by_query == {
        name: {"query": name, "answers": count} for name, count in (("q", 4), ("ago", 1), ("others", 2))
    }


def moved(query: str) -> list[dict[str, Any]]:
    """Answers that end at the begin, just after it, at the end and just after that."""
    return [answer(hour, "A", query=query, position=hour + 2 if query == "rows" else None) for hour in (-2, -1, 4, 5)]


@pytest.mark.parametrize("name", ["q", "rows", "so far"])
def test_windows_that_end_at_the_begin_or_after_the_end_are_wrong(tmp_path: Path, name: str) -> None:
    windows = {"q": QUERY.window, "rows": Window(2, 1, per=()), "so far": Window(HOUR, HOUR, cumulative=True)}
    rows = moved(name)
    if name == "so far":
        rows = [row | {"window_start": row["window_end"] - timedelta(hours=1)} for row in rows]
    query = replace(QUERY, name=name, window=windows[name])
    (counts, _) = inspect(written(tmp_path, rows), [query], BEGIN, {"trades": BEGIN + 6 * HOUR}).rows
    assert (counts["answers"], counts["wrong_window"]) == (4, 2)


def test_a_window_of_rows_spans_time(tmp_path: Path) -> None:
    rows = [answer(hour, "A", query="rows", position=hour) for hour in (0, 1)]
    rows[1]["window_start"] = rows[1]["window_end"]
    query = replace(QUERY, name="rows", window=Window(2, 1, per=()))
    (counts, _) = inspect(written(tmp_path, rows), [query], BEGIN, {"trades": BEGIN + 6 * HOUR}).rows
    assert (counts["answers"], counts["wrong_window"]) == (2, 1)


def test_only_instants_that_were_asked_for_are_right(tmp_path: Path) -> None:
    path = written(tmp_path, [answer(0, "A"), answer(1, "A"), answer(2, "A")])
    query = replace(QUERY, window=replace(QUERY.window, at=(BEGIN + 2 * HOUR, BEGIN + 4 * HOUR)))
    (row, _) = inspect(path, [query], BEGIN, {"trades": BEGIN + 6 * HOUR}).rows
    assert (row["answers"], row["wrong_window"]) == (3, 1)


@pytest.mark.parametrize(
    ("window", "midnight"),
    [
        (Window(24 * HOUR, HOUR, cumulative=True), 0),
        (Window.of_calendar(Calendar("Europe/Berlin", (1, "day"), None), HOUR, cumulative=True), -2),
    ],
)
def test_windows_of_any_length_are_those_that_are_due(tmp_path: Path, window: Window, midnight: int) -> None:
    """``midnight``: in hours UTC."""
    begins = NOON.replace(hour=0) + timedelta(hours=midnight)
    right = [answer(hour, "A", window_start=begins) for hour in range(-1, 5)]
    wrong = [
        answer(0, "B", window_start=begins + timedelta(hours=1)),  # not where the day begins
        answer(1, "B"),
        answer(-2, "B", window_start=begins),  # in the interval before
        answer(5, "B", window_start=begins),  # behind the interval
        answer(2, "B", window_start=begins, window_end=NOON + timedelta(hours=3)),
        answer(3, "B", window_start=begins)
        | dict.fromkeys(("window_end", "instant"), NOON + timedelta(hours=5, minutes=30)),
        answer(4, "B") | dict.fromkeys(("window_start", "window_end", "instant"), datetime(9999, 1, 1, tzinfo=UTC)),
    ]
    query = replace(QUERY, window=window)
    for rows, count in ((right, 0), (wrong, len(wrong))):
        (row, _) = inspect(written(tmp_path, rows), [query], BEGIN, {"trades": BEGIN + 6 * HOUR}).rows
        assert (row["answers"], row["wrong_window"]) == (len(rows), count)


@pytest.mark.parametrize(
    ("bad", "finding"),
    [
        (answer(0, "A"), "repeated"),
        (earlier(1), "repeated"),
        (answer(2, "A", window_start=NOON + timedelta(minutes=90)), "wrong_window"),
        (answer(2, "A", instant=NOON + timedelta(hours=5)), "wrong_window"),
        (earlier(2, instant=NOON + timedelta(hours=3, minutes=30)), "wrong_window"),
        (answer(5, "A"), "wrong_window"),  # ends after the interval
        (answer(-2, "A"), "wrong_window"),  # ends at its begin: belongs to the interval before
        (answer(2, "A", key='["A","B"]'), "wrong_shape"),
        (answer(2, "A", key="A"), "wrong_shape"),
        (answer(2, "A", key="[1]"), "wrong_shape"),
        (answer(2, "A", doubles=[1.0, 2.0]), "wrong_shape"),
        (answer(2, "A", longs=None), "wrong_shape"),
        (answer(2, "A", texts=["a"]), "wrong_shape"),
        (answer(2, "A", stream="quotes"), "wrong_shape"),
        (answer(2, "A", query="unknown"), "wrong_shape"),
        (answer(2, "A", longs=[-1]), "negative_counts"),
        (other(2, longs=[-1, 1]), "negative_counts"),
        (answer(2, "A", doubles=[1.0, 3.5, 3.0]), "disordered"),
        (answer(2, "A", doubles=[1.0, 0.5, 3.0]), "disordered"),
        (other(2, doubles=[1.0, 0.5, 0.5, 1.0]), "disordered"),
        (answer(2, "A", longs=[None]), "impossible"),
        (other(2, longs=[None, 1]), "impossible"),
        (other(2, longs=[2, 2]), "impossible"),
        (other(2, doubles=[float("inf"), 0.5, 1.5, 1.0]), "impossible"),
        (other(2, doubles=[1.0, float("nan"), 1.5, 1.0]), "impossible"),
        (other(2, doubles=[1.0, -0.5, 1.5, 1.0]), "impossible"),
        *((answer(2, "A", **{name: None}), "null_keys") for name in GRAIN),
    ],
)
def test_each_damage_is_found(tmp_path: Path, bad: dict[str, Any], finding: str) -> None:
    findings = found(written(tmp_path, [*GOOD, bad]))
    assert sum(row[finding] for row in findings) == 1 and any(row["examples"] for row in findings if row[finding])
    quiet = set(FINDINGS) - {finding, "wrong_window"} - ({"wrong_shape"} if finding == "null_keys" else set())
    assert sum(row[name] for row in findings for name in quiet) == 0


def test_an_answer_that_says_its_error_may_lack_its_count(tmp_path: Path) -> None:
    failed = answer(2, "B", longs=[None], doubles=[None] * 3, error="HDL-601 HAVING: x does not fit long")
    assert not any(row[finding] for row in found(written(tmp_path, [*GOOD, failed])) for finding in FINDINGS)


def test_files_may_lack_columns_that_are_null_throughout_and_no_others(tmp_path: Path) -> None:
    without = pa.schema([column for column in SCHEMA if column.name not in ("position", "texts")])
    assert not any(row[finding] for row in found(written(tmp_path, GOOD, schema=without)) for finding in FINDINGS)
    for column in ("key", "run_id", "instant"):
        schema = pa.schema([field for field in SCHEMA if field.name != column])
        findings = found(written(tmp_path, GOOD, schema=schema))
        assert sum(row["wrong_schema"] for row in findings) == len(GOOD), column
    findings = found(written(tmp_path, GOOD, schema=SCHEMA.append(pa.field("extra", pa.int64()))))
    assert sum(row["wrong_schema"] for row in findings) == len(GOOD)


@settings(max_examples=examples(65), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from("qqa"), st.integers(0, 2), st.sampled_from(["A", "é", None])), max_size=12),
    st.integers(1, 12),
    st.booleans(),
)
def test_repeats_are_counted_in_any_order_and_across_row_groups(
    tmp_path: Path, grains: list[tuple[str, int, str | None]], size: int, ascending: bool
) -> None:
    """Also where rows ascend, so that only neighbours are compared."""
    rows = [
        answer(hour, who) if name == "q" else earlier(hour, key=answer(0, who)["key"]) for name, hour, who in grains
    ]
    if ascending:
        rows.sort(key=lambda row: (row["query"], row["key"], row["instant"]))
    repeats = {row["query"]: row["repeated"] for row in found(written(tmp_path, rows, size))}
    for name, query in (("q", "q"), ("a", "ago")):
        counts = Counter(grain for grain in grains if grain[0] == name)
        assert repeats.get(query, 0) == sum(count - 1 for count in counts.values())


def test_buckets_are_those_that_the_tasks_spread_groups_by(tmp_path: Path) -> None:
    both = replace(QUERY, group_by=(("symbol", STRING), ("side", STRING)), select=("symbol", "side"))
    path = written(tmp_path, [answer(0, "A", key='["A","B"]'), answer(0, "A", key='["C",null]')])

    def bucket_examples(bucket_by: dict[str, tuple[str, ...]]) -> str:
        return str(inspect(path, [both], BEGIN, {"trades": BEGIN + 6 * HOUR}, bucket_by).rows[-1]["examples"])

    for bucket_by, keys in (
        ({}, ['["A","B"]', '["C",null]']),
        ({"q": ("side",)}, ['["B"]', "[null]"]),
        ({"q": ()}, ["[]"]),
    ):
        assert bucket_examples(bucket_by).endswith(f'"buckets": {sorted(bucket_of(keys).tolist())}}}')


def test_groups_of_a_bucket_may_lie_in_two_files_but_no_answer_may(tmp_path: Path) -> None:
    """Tasks that have little memory divide the groups of a bucket."""
    (bucket,) = bucket_of(['["A"]'])
    symbols = (f"S{number}" for number in range(1000))
    same = next(symbol for symbol in symbols if bucket_of([f'["{symbol}"]'])[0] == bucket)

    def repeated(*files: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
        inspections = []
        for number, rows in enumerate(files):
            (tmp_path / str(number)).mkdir(exist_ok=True)
            inspections.append(
                inspect(written(tmp_path / str(number), rows), QUERIES, BEGIN, {"trades": BEGIN + 6 * HOUR})
            )
        return [(row["query"], row["repeated"], row["examples"]) for row in summed(inspections) if row["repeated"]]

    assert repeated([answer(0, "A"), answer(2, "A")], [answer(0, same), answer(1, same)]) == []
    ((query, count, example),) = repeated([answer(0, "A"), answer(2, "A")], [answer(1, same), answer(2, "A")])
    assert (query, count) == ("q", 1) and '["A"]' in example
    # at instants that the other file has none of, nothing is compared
    assert repeated([answer(0, "A"), answer(1, "A")], [answer(2, "A")]) == []


def test_the_suite_fails_on_what_was_found_and_names_it(tmp_path: Path) -> None:
    import pandas as pd

    columns = ["query", "answers", *FINDINGS, "examples"]
    summary = pd.DataFrame([["q", 5, *([0] * len(FINDINGS)), ""]], columns=columns)
    assert all(check["success"] for check in expectations(summary))
    summary.loc[0, ["repeated", "examples"]] = [1, "q 2013-07-01 12:00:00 ['A']"]
    failed = [check for check in expectations(summary) if not check["success"]]
    assert [check["check"] for check in failed] == ["gx:expect_column_sum_to_be_between(repeated)"]
    assert "q: 1" in failed[0]["detail"] and "12:00:00" in failed[0]["detail"]


# ------------------------------------------------------------------------------------------ what is compared
def test_answers_are_compared_as_having_lets_them_be() -> None:
    total = Output("total", "sum", VOLUME, LONG, LONG)
    having = (Condition(total, ">", Literal(10, LONG)),)
    query = replace(QUERY, outputs=(Output("n", "count", None, None, LONG),), having=having)

    def recomputed(symbol: str, total: int) -> dict[str, Any]:
        return {"window_end": NOON + timedelta(hours=2), "symbol": symbol, "n": 1} | {
            "having 0": total,
            "having 0 count": 1,
        }

    def ours(symbol: str, **changes: Any) -> dict[str, Any]:
        return answer(0, symbol, longs=[1]) | changes

    huge = 2**63
    assert compare(query, [ours("A")], [recomputed("A", 11), recomputed("B", 10)]) == []
    assert "is missing" in str(compare(query, [], [recomputed("A", 11)])[0])
    assert "should not exist" in str(compare(query, [ours("A")], [recomputed("A", 10)])[0])
    assert "should not exist" in str(compare(query, [ours("C")], [])[0])
    assert "n is 2" in str(compare(query, [ours("A", longs=[2])], [recomputed("A", 11)])[0])
    assert compare(query, [ours("A", longs=[None], error="HDL-601 x")], [recomputed("A", huge)]) == []


@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.parametrize("local, few", [(True, False), (True, True), (False, True), (False, False)])
def test_samples_are_recomputed_wherever_they_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool, few: bool
) -> None:
    """By the driver or by tasks, all groups or some: the staged answers agree, and damage is told."""
    monkeypatch.setattr(recompute, "LOCAL_EVENTS", 10**9 if local else -1)
    monkeypatch.setattr(recompute, "SAMPLED_EVENTS", 4000 if few else 10**9)
    monkeypatch.setattr(recompute, "DRAWS", 100)
    laboratory = Laboratory(spark, tmp_path)
    laboratory.write([(minute, f"S{minute % 50}", price, volume) for minute, _, price, volume in steady(300)])
    text = """
    -- name: some
    SELECT symbol, count(*) AS n, sum(volume) AS total, avg(price) AS mean, median(volume) AS middle FROM trades
    WINDOW RANGE '150 minutes' SLIDE '50 minutes' ENDING '10 minutes' AGO ON ts GROUP BY symbol HAVING sum(volume) > 3;
    """
    version = laboratory.plan(text)
    laboratory.run(version, 0, 300, recompute=True)
    paths = [str(path) for path in (tmp_path / "warehouse" / "results").glob("day=*/*.parquet")]
    plan = load_plan(laboratory.warehouse, version)
    begin, end = (1_372_636_800_000_000 + minutes * 60_000_000 for minutes in (0, 300))
    sources = {"trades": splits_of(plan.workload.stream("trades"))}

    def checked() -> tuple[bool, str]:
        arguments = Staged(paths), plan, sources, begin, {"trades": end}, "seed"
        (check,) = recompute.recomputed(engine_of(spark, "tests"), *arguments)
        assert ("recomputed by Spark" in check["detail"]) is (check["success"] and not local and not few)
        return check["success"], check["detail"]

    success, detail = checked()
    assert success and not detail.startswith("0 answers"), detail
    rows = pq.ParquetFile(paths[0]).read()
    changed = rows.set_column(rows.schema.names.index("doubles"), "doubles", pa.array([[1e9, 1.0]] * len(rows)))
    pq.write_table(changed, paths[0])
    assert "mean is 1000000000.0" in checked()[1]
    pq.write_table(rows.slice(0, 0), paths[0])
    assert "is missing" in checked()[1]


@pytest.mark.spark
def test_events_of_a_late_window_are_recomputed_beside_those_of_early_ones(spark: SparkSession, tmp_path: Path) -> None:
    """Splits that another query needs hold nothing of a window: no row behind them may get lost."""
    laboratory = Laboratory(spark, tmp_path)
    laboratory.write([(minute, "S", price, volume) for minute, _, price, volume in steady(300)])
    text = "SELECT count(*) AS n FROM trades WINDOW RANGE '20 minutes' SLIDE '20 minutes' ON ts"
    plan = load_plan(laboratory.warehouse, laboratory.plan(f"-- name: late\n{text};\n-- name: early\n{text};"))
    stream = plan.workload.stream("trades")
    table = pq.read_table(stream.source.path)
    (folder := tmp_path / "parts").mkdir()
    for part in range(6):
        pq.write_table(table.slice(50 * part, 50), folder / f"{part}.parquet")
    splits = splits_of(replace(stream, source=replace(stream.source, path=str(folder))))
    at = [1_372_636_800_000_000 + minutes * 60_000_000 for minutes in (0, 160, 220, 240)]
    late, early = plan.workload.queries
    recomputed_queries = [
        recompute.RecomputedQuery(late, ((at[2], at[3]),), None),
        recompute.RecomputedQuery(early, ((at[0], at[1]),), None),
    ]
    raw_events = list(recompute.raw_events(engine_of(spark, "tests"), plan, {"trades": splits}, recomputed_queries))
    counts = {events.wanted.query.name: events.frame(spark).count() for events in raw_events}
    assert counts == {"late": 20, "early": 160}
