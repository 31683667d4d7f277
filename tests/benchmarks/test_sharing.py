"""The benchmark itself, scaled down: every peer answers as the oracle and the shared run do, and it says what it
measured."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from optimizer.workload.values import ACQ, SECOND, Stream
from tests import oracle
from tests.benchmarks import peers, workers
from tests.benchmarks.engines import PEERS, DuckDB, Engine, Flink, installed
from tests.benchmarks.growth import CURVES, Point, curve_table, grow
from tests.benchmarks.peers import (
    INTERVAL,
    Peer,
    Setting,
    canonical,
    difference,
    scan_and_group,
    spent_by,
)
from tests.benchmarks.query_sql import Fragments, states_of
from tests.benchmarks.rendering import rendered
from tests.benchmarks.sharing import measure, tables
from tests.benchmarks.trades import DAY_START, FILTERS, HEAVY, KINDS, REGULAR, generate, workload_of
from tests.benchmarks.workers import own_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 1_000
SPARKS = ("spark", "statement")
"""Those that run in Spark, which test_unshared.py compares with the oracle in its own ways."""

ENGINES = [name for name in PEERS if name not in SPARKS]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return generate(tmp_path_factory.mktemp("trades"), EVENTS, keys=20)


@pytest.fixture(scope="module")
def setting(spark: SparkSession, stream: Stream) -> Setting:
    return Setting(spark, stream)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, stream: Stream) -> Iterator[Engine]:
    """An engine, which needs no Spark session."""
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed: make peers")
    peer = PEERS[request.param](Setting(cast("SparkSession", None), stream))
    assert isinstance(peer, Engine)
    yield peer
    peer.close()


def test_the_generated_stream(tmp_path: Path) -> None:
    stream = generate(tmp_path, 5_000)
    table = pq.read_table(stream.source.path)
    times = table["ts"].cast("int64").to_numpy()
    assert len(table) == 5_000 and (times[1:] >= times[:-1]).all()
    assert times[0] >= DAY_START and times[-1] < DAY_START + 86_400 * SECOND
    assert [len(table[name].unique()) for name in ("symbol", "exchange", "side")] == [200, 12, 2]
    assert table.equals(pq.read_table(generate(tmp_path / "again", 5_000).source.path))


def test_the_generated_workloads(tmp_path: Path) -> None:
    stream = generate(tmp_path, 100)
    for kind in KINDS.values():
        queries = workload_of(stream, 300, kind).queries
        assert workload_of(stream, 10, kind).queries == queries[:10]
        for query in queries:
            assert query.window.range % (kind.granule * SECOND) == 0 == query.window.slide % (kind.granule * SECOND)
            assert 1.5 <= query.window.overlap_factor <= 9.5
            assert bool(query.window.range % query.window.slide) or not kind.ragged
        assert len({query.filter for query in queries}) == len(kind.filters)
        assert len({query.group_by for query in queries}) == len(kind.group_bys)


def test_a_sample_is_spread_over_the_overlap_factors(tmp_path: Path) -> None:
    queries = workload_of(generate(tmp_path, 100), 200).queries
    sampled = REGULAR.sample(queries, 4)
    ordered = sorted(query.window.overlap_factor for query in queries)
    quarters = [ordered[50 * part] for part in range(4)]
    for least, query in zip(quarters, sorted(sampled, key=lambda query: query.window.overlap_factor), strict=True):
        assert query.window.overlap_factor >= least
    assert [query.name for query in sampled] == sorted(query.name for query in sampled)
    assert REGULAR.sample(queries[:3], 4) == list(queries[:3])


def test_processes_that_end_are_counted_as_long_as_they_live(monkeypatch: pytest.MonkeyPatch) -> None:
    this_process, idle, short = (1, 0.0), (2, 0.0), (3, 0.0)
    readings = [{this_process: 10.0, idle: 7.0}, {this_process: 10.5, short: 2.0}, {this_process: 11.0}]
    seen = threading.Event()

    def read_next() -> dict[tuple[int, float], float]:
        if len(readings) == 1:
            seen.set()
            return readings[0]
        return readings.pop(0)

    monkeypatch.setattr(workers, "READ_EVERY", 0.0)
    monkeypatch.setattr(peers, "_used", read_next)
    spent, was_seen = spent_by(lambda: seen.wait(60))
    # what the idle one used came before, what the short one used is not lost
    assert was_seen and spent.cpu == 1.0 + 2.0 and spent.memory > 0


# ------------------------------------------------------------------------------------------------ peers
@pytest.fixture(scope="module")
def expected(stream: Stream) -> dict[ACQ, pa.Table]:
    """Some queries of every kind with the oracle's answers: all aggregates, group-bys and forms of fragments."""
    queries = [
        replace(query, name=f"{kind.name} {query.name}")
        for kind in KINDS.values()
        for query in [query for query in workload_of(stream, 40, kind).queries if is_short(query)][:4]
    ]
    functions = {output.function for query in queries for output in query.outputs}
    assert functions == {"count", "sum", "avg", "min", "max", "stddev"}
    assert {query.filter is None for query in queries} == {True, False}
    assert {len(query.group_by) for query in queries} == {1, 2}
    forms = [Fragments.of(query.window) for query in queries]
    assert {(form.a_slide, form.second is None) for form in forms} == {(1, True), (2, True), (2, False)}
    events = pq.read_table(stream.source.path)
    return {query: answers_of(query, events) for query in queries}


def is_short(query: ACQ) -> bool:
    """Whether a query has few answers."""
    return query.window.slide >= 600 * SECOND


def answers_of(query: ACQ, events: pa.Table) -> pa.Table:
    expected_answers = oracle.answers(query, events, "ts", *INTERVAL)
    names = ["window_start", *(name for name, _ in query.group_by), *(output.name for output in query.outputs)]
    rows = [(*key, *(cell.value for cell in cells)) for key, cells in expected_answers.items()]
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.parametrize("name", SPARKS)
def test_spark_answers_as_the_oracle(name: str, setting: Setting, expected: dict[ACQ, pa.Table]) -> None:
    check_answers(PEERS[name](setting), expected)


def test_every_engine_answers_as_the_oracle_in_each_of_its_ways(engine: Engine, expected: dict[ACQ, pa.Table]) -> None:
    pairs = list(expected.items())
    # a job of Flink takes seconds, of whatever little: a query of each kind
    check_answers(engine, dict(pairs[:: 4 if isinstance(engine, Flink) else 1]))
    assert set(engine.best.values()) <= set(engine.ways) and len(engine.best) == 2


def check_answers(peer: Peer, expected: dict[ACQ, pa.Table]) -> None:
    queries = list(expected)
    answers = peer.tables(queries)
    for query, right in expected.items():
        assert difference(query, right, answers[query.name]) is None, query.name
    peer.prepare(queries[:2])
    peer.answer(queries[:2])


def test_environments_are_pinned_and_a_missing_one_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workers, "ENVIRONMENTS", tmp_path)
    apart = [name for name in ENGINES if not installed(name)]
    folder = Path(__file__).with_name("environments")
    assert sorted(apart) == ["clickhouse", "datafusion", "flink"]
    # that of dbt is for a slow test
    assert sorted(path.stem for path in folder.glob("*.txt")) == sorted([*apart, "dbt"])
    for name in apart:
        pins = [line for line in (folder / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
        assert pins and all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^=\s]+", pin) for pin in pins)
        with pytest.raises(RuntimeError, match="make peers"):
            workers.Worker(name, 1)


def test_what_an_engine_cannot_do_is_told_and_the_next_statement_runs(engine: Engine) -> None:
    with pytest.raises(RuntimeError):
        engine.worker.run("SELECT nothing FROM nowhere")
    engine.answer([query for query in workload_of(engine.stream, 10).queries if is_short(query)][:1])
    assert engine.worker.cpu_seconds() > 0 and engine.processes()[0].pid == engine.worker.process.pid
    assert not {process.pid for process in own_processes()} & {process.pid for process in engine.processes()}


def test_differences_are_seen(stream: Stream) -> None:
    query = next(query for query in workload_of(stream, 20).queries if query.outputs[0].function == "avg")
    right = canonical(query, answers_of(query, pq.read_table(stream.source.path)))
    name = query.outputs[0].name
    values = right[name].to_numpy()
    at = right.schema.get_field_index(name)
    assert difference(query, right, right.take(np.arange(len(right))[::-1])) is None
    assert "answers and" in (difference(query, right, right.slice(1)) or "")
    for factor, seen in ((1 + 1e-12, False), (1 + 1e-6, True)):
        other = right.set_column(at, name, pa.array(values * factor))
        assert (difference(query, right, other) is not None) == seen
    moved = right.set_column(0, "window_start", pa.array(right["window_start"].to_numpy() + query.window.slide))
    assert difference(query, right, moved) == "window_start is not the same"


@pytest.mark.spark
@pytest.mark.longer
def test_one_scan_holds_what_the_workload_needs(setting: Setting, tmp_path: Path) -> None:
    workload = workload_of(setting.stream, 40, replace(HEAVY, filters=HEAVY.filters[1:3]))
    scan_and_group(setting.spark, workload, HEAVY.granule, tmp_path / "scan")
    groups = pq.read_table(tmp_path / "scan")
    keys = ["granule", "symbol", "side", "exchange", "satisfied"]
    assert len(groups.group_by(keys).aggregate([])) == len(groups)
    events = pq.read_table(setting.stream.source.path)
    filtered = events.filter(pc.or_(pc.greater(events["volume"], 1000), pc.equal(events["exchange"], "X03")))
    counts = groups[f"state{list(states_of(workload.queries)).index('count(*)')}"]
    assert pc.sum(counts).as_py() == len(filtered) < EVENTS
    assert set(groups["satisfied"].to_pylist()) == {1, 2, 3}


# ----------------------------------------------------------------------------------------- whole rounds
@pytest.mark.spark
@pytest.mark.longer
def test_a_small_comparison(setting: Setting, tmp_path: Path) -> None:
    chosen = {name: PEERS[name](setting) for name in ("duckdb", "polars")}
    messages: list[str] = []
    comparison = measure(setting, EVENTS, HEAVY, [5, 3], 1, 2, chosen, tmp_path, messages.append)
    assert [size.queries for size in comparison.shared.values()] == [3, 5]
    for size in comparison.shared.values():
        assert not size.run.failure and len(size.run.cpu) == len(size.planning.cpu) == 1 and size.answers > 0
        assert size.compared and {*size.compared} <= {query.name for query in size.plan.workload.queries}
    assert {*comparison.shared[5].compared} == {*comparison.sampled["polars"]} == {*comparison.sampled["duckdb"]}
    assert len(messages) == 2 * (len(chosen) + 3) and len(list(tmp_path.iterdir())) == 1
    document = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    ratio = document["shared"][1]["peers_over_shared"]["duckdb"]
    assert ratio == pytest.approx(5 * comparison.peers["duckdb"].cpu[0] / comparison.shared[5].run.cpu[0])
    assert document["shared"][1]["over_scan"] == pytest.approx(comparison.shared[5].run.cpu[0] / comparison.scan.cpu[0])
    assert sum(document["shared"][0]["stage_cpu"].values()) == pytest.approx(comparison.shared[3].run.cpu[0], abs=0.01)
    shown = rendered(tables(comparison))
    assert "Flink SQL batch, one job a query" in shown and shown.count("not measured") == 5 * 2
    assert "fails" not in shown and f"{comparison.shared[5].answers:,}" in shown


class Forgetful(DuckDB):
    def tables(self, queries: Sequence[ACQ]) -> dict[str, pa.Table]:
        return {name: table.slice(1) for name, table in super().tables(queries).items()}


class Broken(DuckDB):
    def answer(self, queries: Sequence[ACQ]) -> None:
        raise MemoryError("no room\nfor that")


@pytest.mark.spark
@pytest.mark.longer
def test_wrong_answers_and_failures_are_noted(setting: Setting, tmp_path: Path) -> None:
    for cheat, wrong in ((Forgetful, True), (Broken, False)):
        cheating = cheat(setting)
        comparison = measure(setting, EVENTS, REGULAR, [2], 1, 2, {"duckdb": cheating}, tmp_path, lambda line: None)
        cheating.close()
        assert ("duckdb does not answer as we do" in comparison.shared[2].run.failure) == wrong
        assert (comparison.peers["duckdb"].failure == "no room") == (not wrong)
        assert rendered(tables(comparison)).count("fails") >= 1
        json.dumps(comparison.to_json(), allow_nan=False)


def test_the_points_of_every_curve() -> None:
    assert [len(curve.points(10)) for curve in CURVES.values()] == [9, 3, 4, 3]


@pytest.mark.spark
@pytest.mark.longer
def test_growth(setting: Setting, tmp_path: Path) -> None:
    points = [Point(keys, replace(REGULAR, filters=FILTERS[:2]), 2, EVENTS, keys) for keys in (5, 20)]
    grown_points = grow(setting.spark, tmp_path, "keys", points, 1, tmp_path / "scratch", lambda line: None)
    assert [grown.point.keys for grown in grown_points] == [5, 20] and grown_points[0].answers < grown_points[1].answers
    spent = [grown.run.median for grown in grown_points]
    assert f"{(spent[1] - spent[0]) / 15 * 1000:+.3f}" in rendered([curve_table("keys", grown_points)])
    json.dumps([grown.to_json() for grown in grown_points], allow_nan=False)
