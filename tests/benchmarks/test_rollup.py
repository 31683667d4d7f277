"""Rollups of every installed engine answer as the oracle does, in each of their ways, on both days."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, SECOND, Source, Stream
from spark_jobs.engine import choice
from tests import oracle
from tests.benchmarks import rollup_days
from tests.benchmarks.engines import installed
from tests.benchmarks.peers import Interval, Setting
from tests.benchmarks.rendering import rendered
from tests.benchmarks.rollup import ROLLUPS, Day, DuckDBRollup, Rollup, Unit, Way, families_of, units_of
from tests.benchmarks.rollup_days import Ground, compare, empty, measure, tables, tune
from tests.benchmarks.trades import DAY_START, HEAVY, REGULAR, SCHEMA, workload_of
from tests.sizes import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = Stream("trades", Source("parquet", "trades"), SCHEMA, "ts")
FILTERS = ("", "WHERE volume > 20", "WHERE price < 3 OR side = 'B'")
GROUPS = ("symbol", "side", "symbol, side")
OUTPUTS = (
    "count(*) AS trades",
    "count(price) AS priced, sum(price) AS money",
    "sum(volume) AS volume, avg(volume) AS size",
    "min(price) AS low, max(volume) AS largest",
    "stddev(price) AS spread, avg(price) AS mean",
    "stddev(volume) AS spread",
)
TICK = 900
"""Seconds."""


@st.composite
def workloads(draw: st.DrawFn) -> list[ACQ]:
    filter, groups = draw(st.sampled_from(FILTERS)), draw(st.sampled_from(GROUPS))
    texts = []
    for number in range(draw(st.integers(1, 4))):
        slide = TICK * draw(st.sampled_from((1, 2, 4, 8, 16)))
        range_ = TICK * draw(st.integers(1, 40))
        text = f"-- name: q{number}\nSELECT {groups}, {draw(st.sampled_from(OUTPUTS))} FROM trades "
        text += f"WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' ON ts {filter} GROUP BY {groups};\n"
        texts.append(text)
    parsed = parse("".join(texts), {STREAM.name: STREAM})
    assert not parsed.diagnostics or parsed.queries
    return list(parsed.queries)


@st.composite
def events(draw: st.DrawFn, day: int) -> pa.Table:
    """Few events of a day, many at its edges and at those of granules, with nulls; perhaps none of a symbol."""
    ticks = DAY // (TICK * SECOND)
    at = st.one_of(st.sampled_from((0, 1, ticks - 1)), st.integers(0, ticks - 1))
    instant = st.builds(lambda tick, offset: (tick * TICK + offset) * SECOND, at, st.sampled_from((0, 1, TICK - 1)))
    prices = st.one_of(st.none(), st.integers(-40, 40).map(lambda value: value / 8))
    volumes = st.one_of(st.none(), st.integers(-50, 50))
    row = st.tuples(instant, st.sampled_from("ab"), st.sampled_from("BS"), prices, volumes)
    rows = draw(st.lists(row, min_size=1, max_size=25))
    times, symbols, sides, priced, sized = zip(*rows, strict=True)
    return pa.table(
        {
            "ts": pa.array([DAY_START + day * DAY + time for time in times], pa.timestamp("us", "UTC")),
            "symbol": pa.array(symbols),
            "exchange": pa.array(["X00"] * len(rows)),
            "side": pa.array(sides),
            "price": pa.array(priced, pa.float64()),
            "volume": pa.array(sized, pa.int64()),
        }
    )


@pytest.fixture(scope="module", params=[name for name in ROLLUPS if name != "spark"])
def rollup(request: pytest.FixtureRequest) -> Iterator[Rollup]:
    """An engine that needs no Spark session, told that numbers may be null."""
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed: make peers")
    yield from started(request.param, cast("SparkSession", None))


def started(name: str, spark: SparkSession) -> Iterator[Rollup]:
    rollup = ROLLUPS[name](Setting(spark, STREAM))
    rollup.null_columns = frozenset({"price", "volume"})
    rollup.begin()
    yield rollup
    rollup.close()


@settings(max_examples=examples(8))
@given(st.data())
def test_every_way_answers_as_the_oracle(rollup: Rollup, data: st.DataObject) -> None:
    check_ways(rollup, data.draw(workloads()), [data.draw(events(day)) for day in (0, 1)])


@pytest.mark.spark
@pytest.mark.longer
def test_every_way_of_spark_answers_as_the_oracle(spark: SparkSession) -> None:
    # Spark takes seconds for each example: those that fail are not made smaller
    @settings(max_examples=examples(3), phases=[Phase.explicit, Phase.generate])
    @given(st.data())
    def check(rollup: Rollup, data: st.DataObject) -> None:
        check_ways(rollup, data.draw(workloads()), [data.draw(events(day)) for day in (0, 1)])

    for rollup in started("spark", spark):
        check(rollup)


def check_ways(rollup: Rollup, queries: list[ACQ], days: list[pa.Table]) -> None:
    """Compare all ways with the oracle on both days."""
    history = pa.concat_tables(days)

    def expected(name: str, interval: Interval) -> pa.Table:
        (query,) = (query for query in queries if query.name == name)
        return answers_of(query, history, interval)

    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollup_days, "PATIENCE", math.inf)
        patch.setattr(rollup_days, "HOPELESS", math.inf)
        folder = Path(place) / "answers"
        for family in families_of(queries):
            empty(Path(place) / "store" / family.name)
        for number, table in enumerate(days):
            day = Day(number, Path(place) / f"day{number}", Path(place) / "store")
            day.events.mkdir()
            pq.write_table(table, day.events / "events.parquet")
            for family in families_of(queries):
                variants: dict[str, float] = {}
                tuning = tune(rollup, family, day, folder, expected, variants)
                assert math.isfinite(sum(variants.values()))
                for file in day.stored(family)[-1:]:
                    remove(file)
                empty(folder)
                rollup.refresh([tuning], day, folder)
                for query in family.queries:
                    compare(query, expected(query.name, day.interval), folder, rollup.title)


def remove(path: Path) -> None:
    for file in path.iterdir() if path.is_dir() else [path]:
        file.unlink()


def answers_of(query: ACQ, table: pa.Table, interval: Interval) -> pa.Table:
    """What the oracle answers."""
    expected_answers = oracle.answers(query, table, "ts", *interval)
    names = ["window_start", *(name for name, _ in query.group_by), *(output.name for output in query.outputs)]
    types = [pa.int64(), *(pa.string() for _ in query.group_by), *(pa.float64() for _ in query.outputs)]
    rows = [(*key, *(cell.value for cell in cells)) for key, cells in expected_answers.items()]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(list(column), type) for column, type in zip(columns, types, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def test_units_and_levels() -> None:
    queries = workload_of(STREAM, 100, HEAVY).queries
    families = families_of(queries)
    assert len(families) == len({(query.filter, query.group_by) for query in queries})
    for family in families:
        windows = units_of([family], "window")
        assert sum(len(unit.queries) for unit in windows) == len(units_of([family], "query")) == len(family.queries)
        for unit in windows:
            assert len({(query.window.range, query.window.slide) for query in unit.queries}) == 1
            assert unit.granule in (family.granule, *family.levels)
        for granule, finer in family.levels.items():
            assert granule > finer and granule % finer == 0 and (finer == family.granule or finer in family.levels)


class Forgetful(DuckDBRollup):
    def answers(self, unit: Unit, way: Way, folder: Path) -> list[str]:
        statements = super().answers(unit, way, folder)
        return [statement.replace("FROM combined", "FROM combined LIMIT 5") for statement in statements]


@pytest.mark.longer
def test_a_small_measurement(tmp_path: Path) -> None:
    engine = choice.Engine("bench")
    ground = Ground.of(tmp_path, 1_000, tmp_path / "scratch", engine)
    setting = Setting(cast("SparkSession", None), ground.stream)
    rollups: dict[str, Rollup] = {"duckdb": DuckDBRollup(setting), "polars": Forgetful(setting)}
    messages: list[str] = []
    (size,) = measure(ground, REGULAR, [3], 2, rollups, messages.append)
    for rollup in rollups.values():
        rollup.close()
    engine.stop()
    right, wrong = size.peers["duckdb"], size.peers["polars"]
    assert not right[0].failure and "is not what Heddle answers" in wrong[0].failure
    assert [len(day.cpu) for spent in (right, *size.ours.values()) for day in spent] == [2] * 6
    assert size.answers[0] > 0 and not wrong[0].cpu
    document = json.loads(json.dumps(size.to_json(), allow_nan=False))
    ratios = [their / our for their, our in zip(right[1].cpu, size.ours["none"][1].cpu, strict=True)]
    assert document["rollups"]["duckdb"]["over_heddle"]["none"][1] == pytest.approx(sum(ratios) / 2)
    shown = rendered(tables("regular", 1_000, [size]))
    assert "fails" in shown and f"{size.answers[1]:,}" in shown and "levels, a window at a time" in shown
