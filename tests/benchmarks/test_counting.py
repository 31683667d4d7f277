"""Peers count event sequences as Heddle does: every way of every engine, beside a choice of all combinations; and what
their own functions for sequences answer instead, of three events and of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, SECOND, Source, Stream
from tests.benchmarks import engines
from tests.benchmarks.counting import WAYS, Counting
from tests.benchmarks.engines import PEERS, ClickHouse, DuckDB, Engine, Flink, installed
from tests.benchmarks.peers import INTERVAL, Setting, SparkJobs
from tests.benchmarks.purchases import LENGTHS, PATTERNS, SCHEMA, purchases
from tests.benchmarks.rendering import rendered
from tests.benchmarks.sharing import measure, tables
from tests.benchmarks.trades import DAY_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Purchase = tuple[int, int, str]
"""Seconds of the day, customer, item."""

COUNTERS = [name for name, peer in PEERS.items() if peer.counts_sequences and issubclass(peer, Engine)]

THREE = [(10, 1, "I00"), (20, 1, "I01"), (30, 1, "I01")]
"""One purchase of the first item, then two of the second: two sequences SEQ(I00, I01)."""


def asked(pattern: Sequence[str], range_: int = 3600, slide: int = 600, group_by: str = "") -> ACQ:
    text = (
        f"-- name: asked\nSELECT count(*) AS found FROM purchases PATTERN SEQ({', '.join(pattern)}) ON item "
        f"PARTITION BY customer WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' ON ts {group_by};"
    )
    stream = Stream("purchases", Source("parquet", "nowhere"), SCHEMA, "ts")
    (query,) = parse(text, {"purchases": stream}).queries
    return query


def expected(query: ACQ, events: Sequence[Purchase]) -> Counter[tuple[int, ...]]:
    """Sequences by the window's start (microseconds) and group, by trying every choice of events."""
    sequences: Counter[tuple[int, ...]] = Counter()
    for first, last, customer in choices(query, [(DAY_START + time * SECOND, *fields) for time, *fields in events]):
        for number in windows_of(query, first, last):
            sequences[number * query.window.slide, *((customer,) if query.group_by else ())] += 1
    return sequences


def choices(query: ACQ, events: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, int, int]]:
    """For every choice of events that is a sequence: when it begins, when it ends, and the customer."""
    assert query.pattern is not None

    def longer(first: int, last: int, customer: int, places: Sequence[str]) -> Iterator[tuple[int, int, int]]:
        if not places:
            yield first, last, customer
            return
        for time, who, item in events:
            if item == places[0] and who == customer and last < time < first + query.window.range:
                yield from longer(first, time, customer, places[1:])

    for time, customer, item in events:
        if item == query.pattern.events[0]:
            yield from longer(time, time, customer, query.pattern.events[1:])


def windows_of(query: ACQ, first: int, last: int) -> list[int]:
    """The numbers of the windows that hold two instants and end in the interval."""
    range_, slide = query.window.range, query.window.slide
    numbers = range((last - range_) // slide + 1, first // slide + 1)
    return [number for number in numbers if INTERVAL[0] < number * slide + range_ <= INTERVAL[1]]


def table_of(events: Sequence[Purchase]) -> pa.Table:
    rows = sorted(events)
    times = pa.array([DAY_START + time * SECOND for time, _, _ in rows], pa.int64())
    columns = {"customer": pa.array([row[1] for row in rows], pa.int64()), "item": pa.array([row[2] for row in rows])}
    return pa.table({"ts": times.cast(pa.timestamp("us", "UTC"))} | columns)


def events_of(table: pa.Table) -> list[Purchase]:
    times = [(time - DAY_START) // SECOND for time in table["ts"].cast(pa.int64()).to_pylist()]
    return list(zip(times, table["customer"].to_pylist(), table["item"].to_pylist(), strict=True))


def counts_in(query: ACQ, table: pa.Table) -> Counter[tuple[int, ...]]:
    names = ["window_start", *(name for name, _ in query.group_by), "found"]
    rows = zip(*(map(int, table[name].to_pylist()) for name in names), strict=True)
    return Counter({tuple(grain): count for *grain, count in rows})


# ------------------------------------------------------------------------------------------------- SQL
ITEMS = st.sampled_from(["I00", "I01", "I02"])


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1), ITEMS), max_size=14),
    st.lists(ITEMS, min_size=1, max_size=4),
    st.integers(1, 25),
    st.integers(1, 10),
    st.booleans(),
)
def test_every_way_counts_every_choice_of_events(
    events: list[Purchase], pattern: list[str], range_: int, slide: int, grouped: bool
) -> None:
    # equal times, an item twice in a pattern, ranges that are no multiple of the slide, or less than it
    query = asked(pattern, range_, slide, "GROUP BY customer" if grouped else "")
    bought = table_of(events)
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("bought", bought)

    def repeat(rows: str, first: str, last: str, most: int) -> str:
        return f"SELECT *, unnest(range({first}, {last})) AS k FROM ({rows}) AS repeated"

    count = Counting(query, INTERVAL, "bought", "epoch_us(ts)", "//", repeat)
    for way in WAYS:
        assert counts_in(query, connection.sql(count.statement(way)).to_arrow_table()) == expected(query, events), way


def test_what_is_no_count_of_sequences_is_refused(tmp_path: Path) -> None:
    (query, *_) = PATTERNS["sequences"].workload(purchases(tmp_path, 10, 1), 1).queries
    plain = ACQ("plain", query.stream, query.window, query.outputs)
    with pytest.raises(ValueError, match="does not count sequences"):
        Counting(plain, INTERVAL, "bought", "ts", "//", lambda rows, first, last, most: rows)


def test_the_generated_purchases_and_patterns(tmp_path: Path) -> None:
    for kind in PATTERNS.values():
        stream = kind.stream(tmp_path, 5_000)
        bought = pq.read_table(stream.source.path)
        times = bought["ts"].cast("int64").to_numpy()
        assert len(bought) == 5_000 and (times[1:] >= times[:-1]).all() and not (times % SECOND).any()
        assert times[0] >= DAY_START and times[-1] < DAY_START + DAY
        assert len(bought["customer"].unique()) == 5_000 // (24 * kind.hourly)
        queries = kind.workload(stream, 100).queries
        assert kind.workload(stream, 10).queries == queries[:10]
        patterns = [query.pattern.events for query in queries if query.pattern is not None]
        assert len(set(patterns)) == 100 and Counter(map(len, patterns)) == dict.fromkeys(LENGTHS, 25)
        sampled = kind.sample(queries, 5)
        assert [query.name for query in sampled] == ["q0002", "q0000", "q0001", "q0003"]
        assert kind.sample(queries[:1], 4) == list(queries[:1])


# --------------------------------------------------------------------------------------------- engines
@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Purchases of three customers in two hours, some of them at the same second."""
    folder = tmp_path_factory.mktemp("purchases")
    day = events_of(pq.read_table(purchases(folder, 240, 3).source.path))
    bought = [(time // 1200 * 100, customer, f"I{int(item[1:]) % 4:02d}") for time, customer, item in day]
    return written(folder / "few", bought)


def written(folder: Path, events: Sequence[Purchase]) -> Stream:
    folder.mkdir()
    pq.write_table(table_of(events), folder / "part.parquet")
    return Stream("purchases", Source("parquet", str(folder)), SCHEMA, "ts")


@pytest.fixture(scope="module", params=COUNTERS)
def engine_name(request: pytest.FixtureRequest) -> str:
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed: make peers")
    return str(request.param)


def over(name: str, stream: Stream) -> Engine:
    peer = PEERS[name](Setting(cast("SparkSession", None), stream))
    assert isinstance(peer, Engine)
    return peer


@pytest.fixture(scope="module")
def engine(engine_name: str, stream: Stream) -> Iterator[Engine]:
    peer = over(engine_name, stream)
    yield peer
    peer.close()


ASKED = {
    2: asked(["I00", "I01"]),
    3: asked(["I00", "I01", "I00"], 3000, 1200, "GROUP BY customer"),
    4: asked(["I01", "I03", "I00", "I02"], 1200, 600),
}


def test_every_engine_counts_every_choice_of_events_in_each_of_its_ways(engine: Engine, stream: Stream) -> None:
    events = events_of(pq.read_table(stream.source.path))
    assert len({(time, customer) for time, customer, _ in events}) < len(events)
    # a job of Flink takes seconds, of whatever little
    for length in (3,) if isinstance(engine, Flink) else ASKED:
        query = ASKED[length]
        right = expected(query, events)
        assert counts_in(query, engine.tables([query])["asked"]) == right and sum(right.values()) > 20
        assert set(engine.spent["asked"]) >= set(WAYS)
    engine.prepare([ASKED[3]])
    assert engine.best["asked"] in WAYS
    engine.answer([ASKED[3]])


@pytest.mark.longer
@pytest.mark.spark
def test_spark_counts_every_choice_of_events(spark: SparkSession, stream: Stream) -> None:
    events = events_of(pq.read_table(stream.source.path))
    peer = SparkJobs(Setting(spark, stream))
    for query, way in product(ASKED.values(), WAYS):
        assert counts_in(query, peer.counted(query, way).toArrow()) == expected(query, events), way
    assert counts_in(ASKED[4], peer.tables([ASKED[4]])["asked"]) == expected(ASKED[4], events)


def test_a_way_that_took_too_long_is_not_tried_for_longer_patterns(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "TOO_LONG", -1.0)
    duck = over("duckdb", stream)
    duck.worker.close()
    monkeypatch.setattr(duck.worker, "run", lambda statement, into: None)
    monkeypatch.setattr(duck.worker, "cpu_seconds", lambda: 0.0)
    duck._run(ASKED[3], "joined", "")
    assert duck.ways_of(ASKED[4]) == ["stepped", "paned"]
    assert duck.ways_of(ASKED[3]) == duck.ways_of(ASKED[2]) == list(WAYS)


# --------------------------------------------------------------------------------- what others ask instead
def instead(name: str, stream: Stream, query: ACQ, folder: Path) -> dict[str, pa.Table]:
    """What an engine's own functions for sequences answer."""
    peer = over(name, stream)
    tables_by_function = {}
    for other, statement in peer.others(query).items():
        (folder / other).mkdir()
        peer.worker.run(statement, folder / other)
        tables_by_function[other] = pq.read_table(folder / other)
    peer.close()
    return tables_by_function


def test_three_events_are_two_sequences_and_one_of_what_others_count(engine_name: str, tmp_path: Path) -> None:
    query = asked(["I00", "I01"], 3600, 3600)
    assert expected(query, THREE) == {(DAY_START,): 2}
    tables_by_function = instead(engine_name, written(tmp_path / "three", THREE), query, tmp_path)
    assert set(tables_by_function) == {
        "clickhouse": {"windowFunnel", "sequenceCount"},
        "flink": {"match_recognize"},
    }.get(engine_name, set())
    for table in tables_by_function.values():
        assert table.column(table.num_columns - 1).to_pylist() == [1]


def test_functions_of_clickhouse_say_which_windows_of_a_key_have_a_sequence(stream: Stream, tmp_path: Path) -> None:
    if not installed("clickhouse"):
        pytest.skip("clickhouse is not installed: make peers")
    # in a second of its own each, for sequenceCount takes equal times in any order
    events = [
        (10 * time + at, *fields) for at, (time, *fields) in enumerate(events_of(pq.read_table(stream.source.path)))
    ]
    bought = cast("list[Purchase]", [(time % 86_400, *fields) for time, *fields in events])
    query = asked(["I00", "I01", "I02"], 7200, 3600, "GROUP BY customer")
    right = expected(query, bought)
    tables_by_function = instead("clickhouse", written(tmp_path / "apart", bought), query, tmp_path)
    assert issubclass(PEERS["clickhouse"], ClickHouse) and len(right) > 10
    assert counts_in(query, tables_by_function["windowFunnel"]) == dict.fromkeys(right, 1)
    chains = counts_in(query, tables_by_function["sequenceCount"])
    assert chains.keys() == right.keys() and chains < right


@pytest.mark.spark
@pytest.mark.longer
def test_a_small_comparison_of_sequences(spark: SparkSession, tmp_path: Path) -> None:
    kind = PATTERNS["sequences"]
    setting = Setting(spark, kind.stream(tmp_path, 2_000))
    chosen = {name: PEERS[name](setting) for name in ("spark", "duckdb")}
    comparison = measure(setting, 2_000, kind, [4, 1], 1, 4, chosen, tmp_path / "scratch", lambda line: None)
    assert isinstance(chosen["duckdb"], DuckDB)
    chosen["duckdb"].close()
    for size in comparison.shared.values():
        assert not size.run.failure and size.answers > 0 and size.compared
    assert len(comparison.shared[4].compared) == 4
    shown = rendered(tables(comparison))
    assert "stepped" in shown and "scan-and-group" not in shown and "fails" not in shown
    assert set(comparison.to_json()["peers"]["duckdb"]["ways"]) == set(comparison.sampled["duckdb"])
