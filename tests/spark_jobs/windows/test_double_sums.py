"""The same events have the same bits: sums of doubles under any cut, order, plan, kind of window and memory."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.values import DOUBLE, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.audit.checks import suite
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.results.read import read
from spark_jobs.store.settings import TaskMemory
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.loading import Reader
from spark_jobs.windows.partials.cells import Cells, concatenated
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import Lifting, partials_of
from tests.chaos.orders import in_process
from tests.doubles import expected_mean, expected_sum, hard_lists
from tests.former_rows import as_before
from tests.sizes import examples
from tests.spark_jobs.kernels import decoded, kernel_answers, of_query
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.spark_jobs.windows.row_store import Store
from tests.spark_jobs.windows.stored_partials import stored
from tests.workloads import Case

SECOND = 1_000_000
SCHEMA = (("ts", TIMESTAMP), ("kind", STRING), ("x", DOUBLE), ("y", DOUBLE))
STREAM = Stream("events", Source("parquet", "events"), SCHEMA, "ts")
WINDOWS = ((10, 4), (6, 2), (30, 10), (7, 7))
"""Ranges and slides, seconds."""

OUTPUTS = (
    "sum(x) AS a, avg(x) AS b",
    "stddev(x) AS a, sum(x) AS b, kurtosis(x) AS c",
    "corr(x, y) AS a, covar_samp(x, y) AS b, regr_intercept(y, x) AS c",
    "geometric_mean(x) AS a, skewness(y) AS b, avg(y) AS c",
    "sum(x) - sum(y) AS a, sum(x) AS b",
)
FAST = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))


def case_of(times: Sequence[int], columns: Mapping[str, Sequence[Any]], texts: Sequence[str]) -> Case:
    """Events at some seconds, and queries over them."""
    rows = {"ts": [at * SECOND for at in times], **columns}
    table = pa.table({name: pa.array(rows[name], arrow_type(type)) for name, type in SCHEMA})
    parsed = parse("".join(f"-- name: q{number}\n{text};\n" for number, text in enumerate(texts)), {"events": STREAM})
    assert not [problem for problem in parsed.diagnostics if problem.severity == "error"], parsed.diagnostics
    return Case(Workload(parsed.queries, (STREAM,)), table, 0, 60 * SECOND)


@st.composite
def double_cases(draw: st.DrawFn, rows: bool = False) -> Case:
    """Doubles that sums go wrong of, nulls among them, under several queries."""
    x = draw(hard_lists(most=10, special=True))
    count = len(x)
    y = (draw(hard_lists(most=10)) * count)[:count]
    kinds = draw(st.lists(st.sampled_from("AB"), min_size=count, max_size=count))
    times = draw(st.lists(st.integers(0, 59), min_size=count, max_size=count, unique=rows and count < 59))
    values: dict[str, Sequence[Any]] = {
        "kind": kinds,
        "x": [None if draw(st.integers(0, 9)) == 0 else value for value in x],
        "y": [None if draw(st.integers(0, 9)) == 0 else value for value in y],
    }
    texts = []
    for output in draw(st.lists(st.sampled_from(OUTPUTS), min_size=1, max_size=3)):
        range_, slide = draw(st.sampled_from(WINDOWS))
        window = "ROWS 4 SLIDE 2" if rows else f"RANGE '{range_} seconds' SLIDE '{slide} seconds'"
        texts.append(f"SELECT kind, {output} FROM events WINDOW {window} ON ts GROUP BY kind")
    return case_of(times, values, texts)


Bits = dict[tuple[Any, ...], list[str | None]]


def bits(table: pa.Table) -> Bits:
    """Each answer's doubles, bit by bit; NaN equals itself."""
    bits_by_row = {}
    for row in table.to_pylist():
        place = tuple(row[name] for name in ("query", "key", "instant", "position") if name in row)
        assert place not in bits_by_row
        bits_by_row[place] = [None if value is None else float.hex(value) for value in row["doubles"]] + [row["error"]]
    return bits_by_row


def shuffled(case: Case, chance: random.Random) -> Case:
    order = list(range(len(case.events)))
    chance.shuffle(order)
    return Case(case.workload, case.events.take(pa.array(order, pa.int64())), case.begin, case.end)


@FAST
@given(double_cases(), st.integers(0, 2**32))
def test_windows_of_time_have_the_same_bits_in_any_order_cut_and_plan(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    bits_of_runs = []
    for algorithm in ("weave-share", "shared", "no-share"):
        cuts = [chance.randrange(100) for _ in range(chance.randrange(4))]
        homes = [chance.randrange(2) for _ in range(chance.randrange(4))]
        bits_of_runs.append(bits(kernel_answers(shuffled(case, chance), algorithm, cuts, case.begin, case.end, homes)))
    middle = chance.randrange(1, 60) * SECOND
    parts = [kernel_answers(case, "weave-share", (), *part) for part in ((0, middle), (middle, case.end))]
    bits_of_runs.append({place: value for part in parts for place, value in bits(part).items()})
    assert bits_of_runs[0] == bits_of_runs[1] == bits_of_runs[2] == bits_of_runs[3]


@FAST
@given(double_cases())
def test_sums_and_means_are_those_of_rational_arithmetic(case: Case) -> None:
    queries = [f"SELECT sum(x) AS a, avg(x) AS b FROM events WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' "
               "ON ts" for range_, slide in WINDOWS]  # fmt: skip
    rows = case.events.to_pydict()
    sums_case = case_of(
        [at // SECOND for at in map(micros, rows["ts"])], {k: rows[k] for k in ("kind", "x", "y")}, queries
    )
    events = list(zip(map(micros, rows["ts"]), rows["x"], strict=True))
    table = kernel_answers(sums_case, "shared", (3,), sums_case.begin, sums_case.end)
    assert len(table)
    for row in table.to_pylist():
        start, end = micros(row["window_start"]), micros(row["window_end"])
        values = [x for at, x in events if start <= at < end and x is not None]
        expected = [expected_sum(values), expected_mean(values)] if values else [None, None]
        assert str(row["doubles"]) == str(expected)


def micros(instant: Any) -> int:
    return round(instant.timestamp() * SECOND)


@FAST
@given(double_cases(rows=True), st.lists(st.integers(0, 100), max_size=3))
def test_windows_of_rows_have_the_same_bits_under_any_cut(case: Case, cuts: list[int]) -> None:
    together, apart = Store(case), Store(case, cuts, apart=True)
    assert bits(together.answers(case.begin, case.end)) == bits(apart.answers(case.begin, case.end))


@settings(FAST, max_examples=examples(5))
@given(double_cases())
def test_lookups_have_the_bits_of_answers(case: Case) -> None:
    table = kernel_answers(case, "weave-share", (), case.begin, case.end)
    with tempfile.TemporaryDirectory() as folder:
        intervals = [(0, 20 * SECOND), (20 * SECOND, case.end)]
        house = stored(Path(folder) / "house", case.workload, decoded(case), intervals)
        for query in case.workload.queries:
            lookups = Reader(house).query(query.name)
            doubles = {(row["instant"], row["key"]): row["doubles"] for row in of_query(table, query).to_pylist()}
            names = [output.name for output in query.outputs]
            for row in lookups.between(case.begin, case.end).to_pylist():
                expected = str(doubles[row["window_end"], f'["{row["kind"]}"]'])
                assert str([row[name] for name in names]) == expected
                single = lookups.single(micros(row["window_end"]), row["kind"])
                assert single is not None and str(list(single)) == expected


@FAST
@given(double_cases(), st.integers(0, 2**32), st.sampled_from((1 << 10, 1 << 14, 1 << 30)))
def test_partial_rows_are_the_same_bits_whatever_memory_they_are_made_in(case: Case, seed: int, most: int) -> None:
    chance, table = random.Random(seed), decoded(case)
    for synopsis in synopses_of(STREAM, case.workload.queries):
        span = FillRequest(synopsis, 0, 60 * SECOND)
        written: list[pa.Table] = []
        lifting = Lifting(STREAM, [span], TaskMemory(most), written.extend)
        order = list(range(len(table)))
        chance.shuffle(order)
        for at in range(0, len(order), 3):
            for batch in table.take(pa.array(order[at : at + 3], pa.int64())).combine_chunks().to_batches():
                lifting.add(batch)
            lifting._lift_waiting()
        written += lifting.tables()
        all_cells = Cells.decode(synopsis, partials_of(table.to_batches(), STREAM, [span])).combined()
        parts = concatenated([Cells.decode(synopsis, rows) for rows in written if len(rows)]).combined()
        assert parts.encode().equals(all_cells.encode())


# ------------------------------------------------------------------------------------------- whole runs
QUERY = """
-- name: money
SELECT symbol, sum(price) AS money, stddev(price) AS spread, count(*) AS n, sum(volume) AS v, min(price) AS low
FROM trades WINDOW RANGE '60 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
-- name: huge
SELECT avg(price) AS mean, sum(price) AS money FROM trades WINDOW RANGE '40 minutes' SLIDE '20 minutes' ON ts;
"""


def laboratory(engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    """Prices about 100 among prices of ±1e308."""
    monkeypatch.setattr(suite, "expectations", lambda *args: [])
    lab = Laboratory(engine, folder)
    lab.write(
        [
            (at, who, price if number % 7 == 0 else 1e308 if number % 3 else -1e308, volume)
            for number, (at, who, price, volume) in enumerate(steady(300))
        ]
    )
    return lab


@pytest.fixture
def lab(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return laboratory(engine, tmp_path, monkeypatch)


@pytest.fixture
def driver_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    """Tasks run in this process: those of others would not store what earlier versions did."""
    return laboratory(in_process(), tmp_path, monkeypatch)


def answers(lab: Laboratory) -> list[str]:
    return sorted(str(row) for name in ("money", "huge") for row in read(lab.warehouse, name).to_pylist())


def test_runs_over_other_intervals_publish_the_same_bits(lab: Laboratory, tmp_path: Path) -> None:
    version = lab.plan(QUERY)
    lab.run(version, 0, 300)
    other = Laboratory(lab.spark, tmp_path / "other")
    other.write([])
    lab.source().replace(other.source())
    version = other.plan(QUERY)
    for begin, end in ((0, 70), (70, 90), (90, 300)):
        other.run(version, begin, end, f"{begin}")
    assert answers(other) == answers(lab) != []
    assert not any("nan" in row or "inf" in row for row in answers(lab) if "huge" in row)


def test_former_sums_are_lifted_again_and_all_else_of_them_is_reused(driver_lab: Laboratory) -> None:
    lab = driver_lab
    with as_before():
        version = lab.plan(QUERY)
        lab.run(version, 0, 180, "before")
    before = answers(lab)
    # what was published stays as it is, and nothing is outdated by it
    assert lab.run(version, 0, 180, "again").rows_scanned == 0 and answers(lab) == before
    assert outdated(lab.warehouse, DAY + 400 * MINUTE) == []
    record = lab.run(version, 180, 300, "after")
    assert record.features["partial_rows_read"] > 0
    lab.run(version, 0, 180, "recomputed", recompute=True)
    recomputed = answers(lab)
    fresh = lab.warehouse
    lab.warehouse = type(fresh).open(lab.folder / "fresh")
    lab.run(lab.plan(QUERY), 0, 300, "fresh")
    assert answers(lab) == recomputed


def test_former_rows_are_looked_up(driver_lab: Laboratory) -> None:
    lab = driver_lab
    with as_before():
        version = lab.plan(QUERY)
        lab.run(version, 60, 180, "before")
    looked_up = Reader(lab.warehouse).query("money").between(DAY + 60 * MINUTE, DAY + 180 * MINUTE).to_pylist()
    assert sorted(map(str, looked_up)) == sorted(str(row) for row in read(lab.warehouse, "money").to_pylist()) != []
