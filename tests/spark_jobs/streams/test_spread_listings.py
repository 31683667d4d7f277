"""Many files are opened and read by tasks: a listing is the same as one that this process makes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.engine import configuration
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.spark import SparkWorkers
from spark_jobs.engine.workers import Workers, unavailable
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.pipeline.run.preparation import listed
from spark_jobs.pipeline.run.values import SourceListing
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources import ledger, recognition
from tests.spark_jobs.laboratory import DAY, MINUTE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("volume", LONG))
QUERIES = """
-- name: totals
SELECT symbol, sum(volume) AS total FROM trades WINDOW RANGE '40 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""
FILES, CLOCK = 7, 400 * DAY


@pytest.fixture(autouse=True)
def _few_files_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "OPENED_A_TASK", 1)
    monkeypatch.setattr(recognition, "BYTES_A_TASK", 1)


def events(number: int) -> pa.Table:
    """The events of a file, one a minute; the last files lack a column that no query needs."""
    minutes = range(number * 20, number * 20 + 20)
    table = pa.table(
        {
            "ts": pa.array([DAY + minute * MINUTE for minute in minutes], pa.timestamp("us", tz="UTC")),
            "symbol": ["AB"[minute % 2] for minute in minutes],
            "volume": pa.array([minute * 7 % 13 for minute in minutes], pa.int64()),
            "note": pa.array([""] * len(minutes)),
        }
    )
    return table if number < FILES - 2 else table.drop_columns("note")


def source(folder: Path, format: str = "parquet") -> Stream:
    folder.mkdir()
    for number in range(FILES):
        path = folder / f"{number}.{format}"
        pq.write_table(events(number), path) if format == "parquet" else pcsv.write_csv(events(number), path)
    return Stream("trades", Source(format, str(folder)), SCHEMA, "ts")


def plan_of(stream: Stream, text: str = QUERIES) -> SharingPlan:
    workload = Workload(parse(text, {"trades": stream}).queries, (stream,))
    return build_plan(workload, {"trades": Fraction(1)}, "no-share")


def known(listing: SourceListing) -> list[Any]:
    """What a listing says of its files, but for the moments at which they were noted."""
    arrivals = sorted(listing.arrivals["trades"].all(), key=lambda arrival: arrival.identity)
    return [
        listing.sources["trades"],
        [replace(arrival, noted=0, moves=()) for arrival in arrivals],
        listing.problems,
        listing.unfit,
        listing.failed,
    ]


@pytest.fixture
def workers(spark: SparkSession) -> Iterator[SparkWorkers]:
    yield SparkWorkers(spark.sparkContext, "listing")


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_tasks_list_what_this_process_would(format: str, tmp_path: Path, workers: SparkWorkers) -> None:
    stream = source(tmp_path / "events", format)
    listings = []
    for name, available in (("here", unavailable), ("tasks", lambda: workers)):
        warehouse = Warehouse.open(tmp_path / name)
        first = listed(warehouse, plan_of(stream), CLOCK, "run", available=available)
        again = listed(warehouse, plan_of(stream), CLOCK, "again", trust=False, available=available)
        listings.append([known(first), known(again)])
        assert len(first.sources["trades"]) == FILES
    assert listings[0] == listings[1]
    assert [job.tasks for job in workers.jobs] == [2, 2, 2, 2]


def test_a_changed_byte_is_noticed_by_tasks(tmp_path: Path, workers: SparkWorkers) -> None:
    stream, warehouse = source(tmp_path / "events"), Warehouse.open(tmp_path / "warehouse")
    before = listed(warehouse, plan_of(stream), CLOCK, "run", available=lambda: workers)
    path = tmp_path / "events" / "3.parquet"
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    after = listed(warehouse, plan_of(stream), CLOCK, "again", available=lambda: workers)
    first, second = ({split.path: split.identity for split in listing.sources["trades"]} for listing in (before, after))
    assert [Path(name).name for name in first if first[name] != second[name]] == ["3.parquet"]


def test_a_broken_file_and_a_lacking_column_are_the_same_errors(tmp_path: Path, workers: SparkWorkers) -> None:
    stream = source(tmp_path / "events")
    unfit = plan_of(replace(stream, schema=(*SCHEMA, ("side", STRING))), QUERIES.replace("symbol", "side"))
    broken = source(tmp_path / "broken")
    # of several broken files that of the task that fails first is named
    (tmp_path / "broken" / "4.parquet").write_bytes(b"PAR1 and nothing else")
    for plan in (unfit, plan_of(broken)):
        local, tasks = (
            listed(Warehouse.open(tmp_path / "warehouse"), plan, CLOCK, available=available)
            for available in (unavailable, lambda: workers)
        )
        assert local.problems and (local.problems, local.unfit, local.failed) == (
            tasks.problems,
            tasks.unfit,
            tasks.failed,
        )


def test_a_run_on_spark_lists_in_jobs_of_its_own(tmp_path: Path, spark: SparkSession) -> None:
    stream = source(tmp_path / "events")
    answers = []
    for name, engine in (("spark", spark), ("local", Engine("tests", requested="local"))):
        warehouse = Warehouse.open(tmp_path / name)
        version, _ = publish_plan(warehouse, plan_of(stream))
        record = run(engine, warehouse, version, DAY, DAY + 140 * MINUTE, "run", as_of=CLOCK)
        again = run(engine, warehouse, version, DAY, DAY + 140 * MINUTE, "again", as_of=CLOCK)
        assert (record.status, again.status) == ("published", "unchanged")
        rows = read(warehouse, "totals").to_pylist()
        answers.append(sorted((str(row["window_end"]), row["symbol"], row["total"]) for row in rows))
        lists = [job["description"] for job in record.jobs if job["description"].startswith("list")]
        assert lists == (["list trades: 7 files", "list trades: contents"] if name == "spark" else [])
    assert answers[0] and answers[0] == answers[1]


def test_a_run_without_spark_says_so_however_many_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "has_java", lambda: False)
    warehouse = Warehouse.open(tmp_path / "warehouse")
    version, _ = publish_plan(warehouse, plan_of(source(tmp_path / "events")))
    with pytest.raises(HeddleError, match="HDL-535"):
        run(Engine("tests", requested="spark"), warehouse, version, DAY, DAY + 140 * MINUTE, "run", as_of=CLOCK)


def test_workers_are_asked_for_only_if_there_is_much_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def none() -> Workers | None:
        pytest.fail("few files start no workers")

    stream = source(tmp_path / "events")
    listed(Warehouse.open(tmp_path / "warehouse"), plan_of(stream), CLOCK, "run", available=none)
