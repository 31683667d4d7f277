"""Windows of rows against the oracle: numbering, whole windows and answers, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import DAY
from optimizer.workload.values import (
    ACQ,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    Output,
    Source,
    Stream,
    Window,
    Workload,
)
from spark_jobs.audit.checks import inspection, recompute, row_windows
from spark_jobs.audit.checks.inspection import inspect
from spark_jobs.audit.checks.staged_answers import Staged as Answers
from spark_jobs.audit.checks.suite import FINDINGS
from spark_jobs.audit.unshared.windows import unshared
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.workers import Task
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile
from spark_jobs.store.warehouse.schemas import ANSWERS, RESULTS
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.windows.finals.stage import finals_task
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from spark_jobs.windows.row_windows.answers import finals_of_rows, row_answers
from spark_jobs.windows.row_windows.lifting import RowLifting, rows_task
from spark_jobs.windows.row_windows.numbering import Counts, first_day
from tests.chaos.orders import in_process
from tests.oracle import answers, column_names, compare
from tests.sizes import examples
from tests.spark_jobs.windows.row_store import Store, wrong
from tests.workloads import Case, row_cases, spans_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH, HOUR, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(hours=1), timedelta(microseconds=1)
FAST = settings(
    max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@FAST
@given(row_cases(), st.booleans(), st.lists(st.integers(0, 100), max_size=2))
def test_rows_are_answered_as_by_the_oracle(case: Case, apart: bool, cuts: list[int]) -> None:
    assert wrong(case, Store(case, cuts, apart).answers(case.begin, case.end)) == []


@settings(FAST, max_examples=examples(15))
@given(row_cases(), st.integers(1, 5))
def test_consecutive_runs_answer_what_one_does(case: Case, pieces: int) -> None:
    store = Store(case)
    assert wrong(case, pa.concat_tables([store.answers(*span) for span in spans_of(case, pieces)])) == []


@settings(FAST, max_examples=examples(15))
@given(row_cases(), st.data())
def test_a_late_row_renumbers_those_behind_it(case: Case, data: st.DataObject) -> None:
    """All days from its own on are stored anew; the earlier ones stay."""
    times = [time for time in case.events["ts"].cast(pa.int64()).to_pylist() if time is not None]
    if not times:
        return
    late = data.draw(st.integers(0, len(case.events) - 1))
    before = pa.concat_tables([case.events.slice(0, late), case.events.slice(late + 1)])
    store = Store(Case(case.workload, before, case.begin, case.end))
    time = case.events["ts"].cast(pa.int64())[late].as_py()
    store.fill(case.events, (time if time is not None else max(times)) // DAY * DAY)
    assert wrong(case, store.answers(case.begin, case.end)) == []


# -------------------------------------------------------------------------------------------- single cases
TRADES = Stream(
    "trades", Source("parquet", "trades"), (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("n", LONG)), "ts"
)


def trades(*rows: tuple[float, str | None, float | None, int | None]) -> pa.Table:
    """(hour, symbol, price, n)"""
    timed_rows = [(round(hour * 3_600_000_000), symbol, price, n) for hour, symbol, price, n in rows]
    types = [arrow_type(type) for _, type in TRADES.schema]
    columns = [pa.array(values, type) for values, type in zip(zip(*timed_rows, strict=True), types, strict=True)]
    return pa.table(columns, names=["ts", "symbol", "price", "n"])


def asked(text: str) -> ACQ:
    parsed = parse(text, {"trades": TRADES})
    assert not [problem for problem in parsed.diagnostics if problem.severity == "error"]
    return parsed.queries[0]


def told(query: ACQ, events: pa.Table, begin: float = 0, end: float = 240) -> list[tuple[object, ...]]:
    """(position, first hour, instant - 1 microsecond in hours, key, outputs) of each answer."""
    case = Case(Workload((query,), (TRADES,)), events, round(begin * 3_600_000_000), round(end * 3_600_000_000))
    rows = Store(case).answers(case.begin, case.end).to_pylist()
    hours = [((row["window_start"] - EPOCH) / HOUR, (row["instant"] - EPOCH - MICROSECOND) / HOUR) for row in rows]
    assert all(row["window_end"] == row["instant"] for row in rows)
    return [
        (row["position"], *span, row["key"], *row["longs"], *row["doubles"], *row["texts"])
        for row, span in zip(rows, hours, strict=True)
    ]


def test_a_window_is_answered_when_its_last_row_is_there_whatever_the_filter() -> None:
    query = asked("SELECT sum(n) AS s FROM trades WINDOW ROWS 3 SLIDE 2 ON ts WHERE price > 1")
    events = trades(
        (1, "A", 2, 1), (2, "A", 0, 10), (30, "B", 2, 100), (31, "B", 0, 7), (50, "A", 0, 7), (51, "A", 9, 5)
    )
    # rows 4, 5 wait for a third one
    assert told(query, events) == [(0, 1, 30, "[]", 101), (2, 30, 50, "[]", 100)]
    assert told(query, events, 30, 50) == [(0, 1, 30, "[]", 101)]
    assert told(query, events, 30.5, 50.5) == [(2, 30, 50, "[]", 100)]


def test_rows_of_each_key_are_numbered_apart_and_null_is_a_key() -> None:
    query = asked(
        "SELECT symbol, max(n) AS m, count(*) AS c FROM trades WINDOW ROWS 2 SLIDE 1 PARTITION BY symbol ON ts "
        "GROUP BY symbol"
    )
    events = trades((1, "A", 0, 1), (2, None, 0, 2), (3, "B", 0, 3), (26, None, 0, 4), (27, "A", 0, 5), (28, "A", 0, 6))
    assert told(query, events) == [
        (0, 1, 27, '["A"]', 5, 2),
        (1, 27, 28, '["A"]', 6, 2),
        (0, 2, 26, "[null]", 4, 2),
    ]


def test_equal_times_are_in_the_order_of_all_columns_also_of_those_that_no_query_reads() -> None:
    query = asked("SELECT max(n) AS m FROM trades WINDOW ROWS 1 SLIDE 1 ON ts")
    rows = [
        *((1, None, nan, 0), (1, "A", None, 1), (1, "A", -inf, 2), (1, "A", -0.0, 4), (1, "A", 0.0, 3)),
        *(
            (1, "A", nan, None),
            (1, "A", nan, 6),
            (1, "a", 0.0, 7),
            (1, "é", 0.0, 8),
            (2, None, 0.0, 9),
            (2, "A", 0.0, 8),
        ),
    ]
    expected = [(number, *(2 * (1 + number // 9,)), "[]", n) for number, (*_, n) in enumerate(rows)]
    for shuffled in (rows, rows[::-1], rows[5:] + rows[:5]):
        assert told(query, trades(*shuffled)) == expected


def test_a_slide_beyond_the_range_leaves_rows_out() -> None:
    query = asked("SELECT sum(n) AS s FROM trades WINDOW ROWS 2 SLIDE 5 ON ts")
    events = trades(*((hour, "A", 0, 10**hour) for hour in range(12)))
    assert [row[0::4] for row in told(query, events)] == [(0, 11), (5, 1_100_000), (10, 110_000_000_000)]


def counts(*rows: tuple[int, int, int]) -> Counts:
    """(key, day, rows), in order"""
    key, days, row_counts = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    size = int(key.max()) + 1
    return Counts(("symbol",), days * DAY, key, row_counts, (pa.array([str(number) for number in range(size)]),), size)


def test_a_run_goes_back_to_the_day_of_the_first_row_of_its_first_window() -> None:
    # rows 0-9, 10-11, 12 of key 0; 0-1, 2-3 of key 1
    day_counts = counts((0, 1, 10), (0, 5, 2), (0, 9, 1), (1, 3, 2), (1, 9, 2))
    for range_, slide, begin, end, first in (
        (1, 1, 9, 10, 9),
        (2, 1, 9, 10, 3),  # rows 1, 2 of key 1
        (4, 1, 9, 10, 1),  # rows 9 - 12 of key 0
        (3, 1, 9, 10, 3),
        (3, 3, 9, 10, 3),  # key 1: rows 0 - 2; key 0: none ends there
        (4, 4, 9, 10, 3),  # key 1: rows 0 - 3; key 0: rows 12 - 15 are not there
        (2, 2, 5, 6, 5),
        (2, 1, 5, 6, 1),
        (5, 5, 3, 4, 4),  # no window ends: nothing is read
        (100, 1, 0, 20, 20),
    ):
        assert day_counts.history_start([Window(range_, slide, per=("symbol",))], begin * DAY, end * DAY) == first * DAY
    # an interval that ends at midnight reads nothing of the next day, and all of a day that it begins
    pairs = [Window(2, 1, per=("symbol",))]
    assert day_counts.history_start(pairs, 8 * DAY, 9 * DAY) == 9 * DAY
    assert day_counts.history_start(pairs, 9 * DAY, 9 * DAY + 1) == 3 * DAY
    both = [Window(1, 1, per=("symbol",)), Window(4, 1, per=("symbol",))]
    assert day_counts.history_start(both, 9 * DAY + 5, 9 * DAY + 6) == DAY


def test_days_are_numbered_together_while_they_have_few_rows() -> None:
    day_counts = counts((0, 0, 3), (0, 1, 3), (0, 4, 9), (1, 1, 1), (1, 5, 2))
    assert day_counts.blocks(0, 7 * DAY, most=7) == [(0, 4 * DAY), (4 * DAY, 5 * DAY), (5 * DAY, 7 * DAY)]
    assert day_counts.blocks(2 * DAY, 2 * DAY) == []


def test_a_stream_that_changed_since_it_was_counted_is_refused() -> None:
    query = asked("SELECT sum(n) AS s FROM trades WINDOW ROWS 1 SLIDE 1 ON ts")
    events = trades((1, "A", 0, 1), (2, "A", 0, 1))
    store = Store(Case(Workload((query,), (TRADES,)), events.slice(1), 0, DAY))
    lifting = RowLifting(TRADES, store.requests(0, DAY), store.counts())
    with pytest.raises(HeddleError, match="HDL-408"):
        list(lifting.cells(lambda columns: events.select(["ts", *columns]).to_batches(), 0, DAY))


def test_missing_partial_rows_are_refused_not_left_out() -> None:
    query = asked("SELECT sum(n) AS s FROM trades WINDOW ROWS 4 SLIDE 1 ON ts")
    store = Store(Case(Workload((query,), (TRADES,)), trades(*((hour, "A", 0, 1) for hour in range(0, 96, 6))), 0, DAY))
    ((synopsis, queries),) = store.synopses.items()
    rows = store.stored[synopsis]
    days = rows["fragment_start"]
    assert len(list(finals_of_rows(rows.filter(pc.greater(days, 0)), synopsis, queries, 3 * DAY, 4 * DAY))) == 1
    with pytest.raises(HeddleError, match="HDL-518"):
        list(finals_of_rows(rows.filter(pc.not_equal(days, 2 * DAY)), synopsis, queries, 3 * DAY, 4 * DAY))
    with pytest.raises(HeddleError, match="HDL-518"):
        list(finals_of_rows(pa.concat_tables([rows, rows]), synopsis, queries, 3 * DAY, 4 * DAY))


TEXTS = (
    "symbol, sum(n) AS s, last(price) AS p FROM trades WINDOW ROWS 7 SLIDE 2 PARTITION BY symbol ON ts GROUP BY symbol",
    "symbol, count(*) AS c FROM trades WINDOW ROWS 9 SLIDE 3 ON ts WHERE price > 2 GROUP BY symbol",
    "n, symbol, max(price) AS m FROM trades WINDOW ROWS 4 SLIDE 4 PARTITION BY symbol ON ts GROUP BY n, symbol",
)


@dataclass
class Staged:
    """What the tasks wrote for the days [1, 4) of five: two source files whose rows belong together, a block a day, the
    buckets in two tasks."""

    store: Store
    workload: Workload
    files: list[DataFile]
    paths: list[str]

    @property
    def rows(self) -> pa.Table:
        """As a reader of the table sees them: a column that no query of a file has is null."""
        stored = [
            pq.read_table(path).append_column("day", pa.array([file.day] * file.rows))
            for path, file in zip(self.paths, self.files, strict=True)
        ]
        return pa.concat_tables([RESULTS.empty_table(), *stored], promote_options="permissive")


def staged(folder: Path, format: str = "parquet", texts: Sequence[str] = TEXTS) -> Staged:
    queries = tuple(replace(asked(f"SELECT {text}"), name=f"q{number}") for number, text in enumerate(texts))
    events = trades(*((hour // 3 * 2, "ABC"[hour % 3], hour % 5, hour % 7) for hour in range(150)))
    (folder / "trades").mkdir()
    for part in range(2):
        rows = events.filter(pc.equal(events["n"], 3) if part else pc.not_equal(events["n"], 3))
        write = pacsv.write_csv if format == "csv" else pq.write_table
        write(rows, folder / "trades" / f"{part}.{format}")
    stream = replace(TRADES, source=Source(format, str(folder / "trades")))
    assert first_day(stream, splits_of(stream)) == 0
    workload = Workload(queries, (stream,))
    store = Store(Case(workload, events, 0, 5 * DAY))

    blocks = [(day * DAY, day * DAY + DAY) for day in range(5)]
    task = rows_task(
        stream, splits_of(stream), blocks, store.requests(0, 5 * DAY), store.counts(), str(folder / "partials")
    )
    outcome = LocalWorkers().run(task, 5, 1, "rows")
    files = [file for file in outcome.results if isinstance(file, DataFile)]
    assert outcome.counts["events"] == 150 and {file.day for file in files} == {
        f"1970-01-0{day}" for day in range(1, 6)
    }

    paths = [str(folder / "partials" / file.path) for file in files]
    parts = [SynopsisWork(synopsis, members, 0, 5 * DAY, 4 * DAY) for synopsis, members in store.synopses.items()]
    stamp = {"plan_version": pa.scalar(1), "revision": pa.scalar(2), "run_id": pa.scalar("r")}
    task = finals_task(parts, DAY, paths, str(folder / "results"), stamp, answering=row_answers)
    files = [file for half in (0, 1) for file in _files(task, range(half, BUCKETS, 2))]
    return Staged(store, workload, files, [str(folder / "results" / file.path) for file in files])


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_the_tasks_write_what_the_kernels_give(tmp_path: Path, format: str) -> None:
    staged_run = staged(tmp_path, format)
    rows = staged_run.rows
    assert set(rows.schema.names) == set(RESULTS.names)
    order = [(name, "ascending") for name in ("query", "key", "position")]
    expected = staged_run.store.answers(DAY, 4 * DAY).sort_by(order)
    assert rows["texts"].null_count == len(rows) and not any(expected["texts"].to_pylist())
    written = rows.select(ANSWERS.names).cast(ANSWERS).drop_columns("texts").sort_by(order)
    assert written.to_pylist() == expected.drop_columns("texts").to_pylist()
    last = pc.subtract(rows["instant"].cast(pa.int64()), 1).cast(pa.timestamp("us"))
    assert pc.all(pc.equal(pc.strftime(last, "%Y-%m-%d"), rows["day"])).as_py()


def _files(task: Task, numbers: Iterable[int]) -> list[DataFile]:
    return [outcome for outcome in task(numbers) if isinstance(outcome, DataFile)]


def test_too_many_groups_fail_alone() -> None:
    queries = tuple(
        replace(asked(f"SELECT {by}, sum(n) AS s FROM trades WINDOW ROWS 2 SLIDE 1 ON ts GROUP BY {by}"), name=by)
        for by in ("symbol", "n")
    )
    events = trades(*((hour, "AB"[hour % 2], 0, hour) for hour in range(20)))
    store = Store(Case(Workload(queries, (TRADES,)), events, 0, DAY))
    lifting = RowLifting(TRADES, store.requests(0, DAY), store.counts(), group_limit=19)
    cells = list(lifting.cells(lambda columns: events.select(["ts", *columns]).to_batches(), 0, DAY))
    (failed,) = lifting.failed.values()
    assert (failed.code, "of n in" in failed.message) == ("HDL-602", True)
    assert {part.synopsis.fingerprint for part in cells} == {s.fingerprint for s in store.synopses} - {
        failed.fingerprint
    }


def test_a_day_that_takes_too_much_memory_fails_alone() -> None:
    query = asked("SELECT sum(n) AS s FROM trades WINDOW ROWS 2 SLIDE 1 ON ts")
    events = trades(*((hour, "AB"[hour % 2], 0, hour) for hour in range(20)))
    store = Store(Case(Workload((query,), (TRADES,)), events, 0, DAY))
    lifting = RowLifting(TRADES, store.requests(0, DAY), store.counts(), memory=TaskMemory(1 << 10))
    assert list(lifting.cells(lambda columns: events.select(["ts", *columns]).to_batches(), 0, DAY)) == []
    (failed,) = lifting.failed.values()
    assert (failed.code, "more than 256 bytes" in failed.message) == ("HDL-610", True)


# -------------------------------------------------------------------------------------------- the audit
def findings(path: str, made: Staged) -> dict[str, int]:
    bucket_by = {query.name: query.window.per or () for query in made.workload.queries}
    inspected_rows = inspect(path, made.workload.queries, DAY, {"trades": 4 * DAY}, bucket_by).rows
    totals = {finding: sum(row[finding] for row in inspected_rows) for finding in FINDINGS}
    return {finding: count for finding, count in totals.items() if count}


def changed(path: str, column: str, change: Callable[[Any], Any]) -> None:
    """Change a column's value in the first row of a staged file."""
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    values[0] = change(values[0])
    at, field = rows.schema.names.index(column), rows.schema.field(column)
    pq.write_table(rows.set_column(at, field, pa.array(values, field.type)), path)


@pytest.mark.parametrize(
    "column, change",
    [
        ("position", lambda position: position + 1),
        ("position", lambda position: None),
        ("instant", lambda instant: instant - timedelta(days=2)),
        ("window_end", lambda end: end - MICROSECOND),
        ("window_start", lambda start: start + timedelta(days=9)),
    ],
)
def test_wrong_windows_are_found_in_staged_files(tmp_path: Path, column: str, change: Callable[[Any], Any]) -> None:
    staged_run = staged(tmp_path)
    assert [findings(path, staged_run) for path in staged_run.paths] == [{}] * len(staged_run.paths)
    changed(staged_run.paths[0], column, change)
    assert findings(staged_run.paths[0], staged_run) == {"wrong_window": 1}


def test_sampled_windows_are_recomputed_from_raw_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "DRAWS", 1000)
    staged_run = staged(tmp_path)
    plan = build_plan(staged_run.workload, {"trades": Fraction(1)}, "weave-share")
    (third,) = (query for query in staged_run.workload.queries if query.name == "q2")
    alone = build_plan(replace(staged_run.workload, queries=(third,)), {"trades": Fraction(1)}, "weave-share")
    sources, engine = {"trades": splits_of(staged_run.workload.streams[0])}, in_process()

    def checked(plan: SharingPlan) -> dict[str, str]:
        checks = row_windows.recomputed_rows(
            engine, Answers(staged_run.paths), plan, sources, DAY, {"trades": 4 * DAY}, "seed"
        )
        return {check["check"][-3:-1]: check["success"] * "right" or check["detail"] for check in checks}

    inspected_rows = inspection.summed(map(inspection.inspection_of(plan, DAY, {"trades": 4 * DAY}), staged_run.paths))
    assert not any(row[name] for row in inspected_rows for name in FINDINGS)
    assert checked(plan) == dict.fromkeys(("q0", "q1", "q2"), "right")
    path = next(path for path in staged_run.paths if "q2" in pq.read_table(path)["query"].to_pylist())
    rows = pq.read_table(path)
    query_rows = rows.filter(pc.equal(rows["query"], "q2"))
    for column, change, message in (
        ("doubles", lambda values: [values[0] + 1], "m is"),
        ("key", lambda key: key.replace(key[2], "9", 1), "should not exist"),
        ("window_start", lambda start: start + timedelta(hours=1), "holds 3 of 4 rows"),
    ):
        pq.write_table(query_rows, path)
        changed(path, column, change)
        assert message in checked(alone)["q2"], column
    pq.write_table(query_rows.slice(1), path)
    assert checked(alone)["q2"] != "right"


@pytest.mark.parametrize("text", ("sum(n) AS s FROM trades WINDOW ROWS 9 SLIDE 3 ON ts", TEXTS[0]))
def test_a_window_that_is_missing_is_noticed_whichever_is_sampled(text: str, tmp_path: Path) -> None:
    """At the begin, between others and at the end of an interval; of several keys, those whose key is sampled."""
    staged_run = staged(tmp_path, texts=(text,))
    plan = build_plan(staged_run.workload, {"trades": Fraction(1)}, "weave-share")
    sources, engine = {"trades": splits_of(staged_run.workload.streams[0])}, in_process()
    rows = pa.concat_tables([pq.read_table(path) for path in staged_run.paths])
    (tmp_path / "left").mkdir()

    def is_right(remaining_rows: pa.Table) -> bool:
        pq.write_table(remaining_rows, tmp_path / "left" / "answers.parquet")
        arguments = Answers([str(tmp_path / "left" / "answers.parquet")]), plan, sources, DAY, {"trades": 4 * DAY}
        (check,) = row_windows.recomputed_rows(engine, *arguments, "seed")
        return bool(check["success"])

    assert is_right(rows)
    keys = rows["key"].to_pylist()
    missed = [
        keys[number]
        for number in range(len(rows))
        if is_right(pa.concat_tables([rows.slice(0, number), rows.slice(number + 1)]))
    ]
    assert not is_right(rows.slice(0, 0))
    # nothing of the keys that were looked at, whatever was left out
    assert not missed if len(set(keys)) == 1 else 0 < len(missed) < len(rows)


@settings(FAST, max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(case=row_cases(most_queries=1), most=st.sampled_from((3, 1_000_000)))
def test_rows_that_make_a_window_are_noticed_where_there_is_none(case: Case, most: int) -> None:
    """Of whatever part of the interval they are looked for in; where the oracle has no window, there is no error."""
    (query,) = case.workload.queries
    if not row_windows._answers_all(query):
        return
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_windows, "FEW_EVENTS", most)
        (Path(place) / "trades").mkdir()
        pq.write_table(case.events, Path(place) / "trades" / "0.parquet")
        (stream,) = case.workload.streams
        source = replace(stream.source, format="parquet", path=str(Path(place) / "trades"))
        workload = Workload((query,), (replace(stream, source=source),))
        plan = build_plan(workload, {stream.name: Fraction(1)}, "weave-share")
        sources = {stream.name: splits_of(workload.streams[0])}
        checks = row_windows.recomputed_rows(
            in_process(), Answers([]), plan, sources, case.begin, {stream.name: case.end}, "seed"
        )
    is_right = all(check["success"] for check in checks)
    assert is_right or len(answers(query, case.events, "ts", case.begin, case.end))
    events = case.events.filter(_within(case.events["ts"], case.begin, case.end))
    per = [name for name, _ in query.group_by if name in (query.window.per or ())]
    counts = (
        [events.num_rows] if not per else events.group_by(per).aggregate([([], "count_all")])["count_all"].to_pylist()
    )
    if most > len(case.events):
        assert is_right == (max(counts, default=0) < query.window.range + query.window.slide - 1)


def _within(times: Any, begin: int, end: int) -> Any:
    moments = times.cast(pa.int64())
    return pc.and_(pc.greater_equal(moments, begin), pc.less(moments, end))


# --------------------------------------------------------------------------------------------- beside Spark
@pytest.mark.longer
@pytest.mark.spark
@settings(
    FAST, max_examples=examples(8), suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(case=row_cases(most_queries=2))
def test_the_oracle_agrees_with_sparks_row_number(spark: SparkSession, case: Case) -> None:
    # Spark 4.2 loses the rows of a table with empty batches before them
    frame = spark.createDataFrame(case.events.combine_chunks())
    instant = pa.timestamp("us", "UTC")
    for query in case.workload.queries:
        # what is compared here is which rows are in which window: one exact output says that
        query = replace(query, outputs=(LISTED,), having=())
        types = [instant, instant, pa.int64(), *(arrow_type(type) for _, type in query.group_by), pa.string()]
        names = column_names(query)
        rows = unshared(frame, query, "ts").toArrow()
        rows = rows.cast(pa.schema(list(zip([*names[:2], "position", *names[2:]], types, strict=True))))
        ends = rows["window_end"].cast(pa.int64())
        rows = rows.filter(pc.and_(pc.greater(ends, case.begin), pc.less_equal(ends, case.end)))
        assert compare(query, rows, answers(query, case.events, "ts", case.begin, case.end)) == []


LISTED = Output("listed", "top_k", Column("seen"), TIMESTAMP, STRING, parameter=Decimal(1000))
