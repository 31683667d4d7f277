"""Runs through Spark Connect: a server whose workers know nothing of this project, and the same rows as otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter as Counts
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.engine.connect import ConnectWorkers, archive, check_version, remote_session
from spark_jobs.results.read import read
from spark_jobs.store.settings import PROJECT
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.connect_server import connect_server
from tests.spark_jobs.laboratory import Laboratory, steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = """
-- name: by_symbol
SELECT symbol, count(*) AS n, sum(volume) AS total, avg(price) AS mean, approx_count_distinct(volume) AS about
FROM trades WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
-- name: middle
SELECT median(price) AS middle, collect_set(symbol, 3) AS symbols
FROM trades WINDOW RANGE '40 minutes' SLIDE '15 minutes' ON ts WHERE volume > 0;
-- name: newest
SELECT symbol, sum(price) AS money FROM trades WINDOW ROWS 20 SLIDE 5 PARTITION BY symbol ON ts GROUP BY symbol;
-- name: busiest
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol
ORDER BY n DESC LIMIT 1;
"""


class LocalFrame:
    """As much of a data frame as a stage asks for: each task gets its numbers in batches, and some tasks fail once."""

    def __init__(self, pieces: list[list[int]]) -> None:
        self.pieces = pieces

    def mapInArrow(self, task: Any, ddl: str) -> LocalFrame:
        self.task = task
        return self

    def toArrow(self) -> Any:
        import pyarrow as pa

        done = []
        for number, piece in enumerate(self.pieces):
            batches = [pa.RecordBatch.from_pydict({"id": [n]}) for n in piece]
            if number % 2:
                # what an attempt has told that fails in the end is forgotten
                next(iter(self.task(iter(batches))), None)
            done += list(self.task(iter(batches)))
        # tasks end in any order
        return pa.Table.from_batches(reversed(done)) if done else pa.table({"first": [], "place": [], "content": []})


class LocalSession:
    """Stands in for a session of Spark Connect."""

    def __init__(self) -> None:
        self.tags: set[str] = set()

    def addTag(self, tag: str) -> None:
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def range(self, begin: int, end: int, step: int, pieces: int) -> LocalFrame:
        assert self.tags == {"a  run"}
        edges = [begin + (end - begin) * n // pieces for n in range(pieces + 1)]
        return LocalFrame([list(range(*pair)) for pair in zip(edges, edges[1:], strict=False)])


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_a_stage_gives_all_outcomes_in_order_and_counts_each_task_once(pieces: int) -> None:
    session = LocalSession()
    workers = ConnectWorkers(session, "a, run")  # type: ignore[arg-type]

    def task(numbers: Any, count: Any) -> Iterator[tuple[str, int]]:
        for number in numbers:
            count("seen", 1)
            yield "x", number
            yield "y", number

    outcome = workers.run(task, 4, pieces, "a stage")
    assert outcome.results == [(name, number) for number in range(4) for name in "xy"]
    assert outcome.counts == {"seen": 4} and session.tags == set()
    assert [(job.description, job.tasks) for job in workers.jobs] == [("a stage", min(4, pieces))]


def test_the_archive_is_the_code_that_tasks_import(tmp_path: Path) -> None:
    place = archive(tmp_path, PROJECT)
    assert archive(tmp_path, PROJECT) == place
    code = "import spark_jobs.pipeline.run.partials_task as task, optimizer, sys; print(task.__file__)"
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(place), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    imported_from = []
    for _ in range(2):
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        imported_from.append(done.stdout)
        assert done.stdout.startswith(str(tmp_path / "cache" / "heddle" / place.stem)), done.stderr
    # what is compiled is found again by its path, also of another session's archive
    other = archive(tmp_path / "other", PROJECT) if (tmp_path / "other").mkdir() is None else place
    done = subprocess.run(
        command, env=environment | {"PYTHONPATH": str(other)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert {*imported_from, done.stdout} == {imported_from[0]}
    # a cache that cannot be written is done without
    (tmp_path / "file").write_text("")
    environment["XDG_CACHE_HOME"] = str(tmp_path / "file")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "partials_task" in done.stdout and str(tmp_path) not in done.stdout, done.stderr


@pytest.mark.parametrize(
    "url", ["http://x", "sc://", "sc://a:b", "sc://127.0.0.1:1/;token=abc", "sc://127.0.0.1:99999"]
)
def test_a_server_that_is_not_there_is_told_at_once(url: str) -> None:
    with pytest.raises(HeddleError, match="HDL-529") as caught:
        remote_session(url, "x", PROJECT)
    assert "token=abc" not in str(caught.value)


@pytest.mark.parametrize(
    ("version", "is_refused"), [("3.5.1", True), ("4.1.0", True), ("5.2.0", True), ("4.2.9", False)]
)
def test_a_server_of_another_version_is_refused(version: str, is_refused: bool) -> None:
    if not is_refused:
        check_version(version, "host:15002")
        return
    with pytest.raises(HeddleError, match=f"HDL-529 .*host:15002 is Spark {version}"):
        check_version(version, "host:15002")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.mark.longer
def test_runs_store_and_answer_the_same(server: str, spark: SparkSession, tmp_path: Path) -> None:
    ours, connect_folder = tmp_path / "classic", tmp_path / "connect"
    for folder in (ours, connect_folder):
        folder.mkdir()
        laboratory = Laboratory(spark, folder)
        laboratory.write([*steady(180), (17.25, None, None, 3), (None, "A", 1.0, 1)])
        version = laboratory.plan(QUERIES)
        if folder is ours:
            laboratory.run(version, 0, 120)
            laboratory.run(version, 120, 180)
    script = f"""
from spark_jobs.engine.session import start_session
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.warehouse import Warehouse
spark = start_session("test")
assert "connect" in type(spark).__module__
warehouse = Warehouse.open({str(connect_folder / "warehouse")!r})
for begin, end in ((0, 120), (120, 180)):
    day, minute = 1_372_636_800_000_000, 60_000_000
    record = run(spark, warehouse, {version}, day + begin * minute, day + end * minute, "run")
    print(record.answers, [check for check in record.checks if not check["success"]], record.rows_scanned)
spark.stop()
"""
    environment = os.environ | {"HEDDLE_SPARK_REMOTE": server, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    houses = [Warehouse.open(folder / "warehouse") for folder in (ours, connect_folder)]
    for name in ("by_symbol", "middle", "newest", "busiest"):
        answers = [read(house, name).to_pylist() for house in houses]
        assert answers[0] == answers[1] and answers[0], name
    rows = [house.dataset("partials").to_table().to_pylist() for house in houses]
    # but for those that say which files they are of
    stored_rows = [[row for row in of if row["bucket"] >= 0] for of in rows]
    row_counts = [
        Counts(repr(sorted((name, row[name]) for name in row.keys() - {"run_id"})) for row in of) for of in stored_rows
    ]
    assert row_counts[0] == row_counts[1] and row_counts[0]
    scanned = [record["rows_scanned"] for record in _records(houses[0])]
    assert scanned == [record["rows_scanned"] for record in _records(houses[1])] and any(scanned)


def _records(house: Warehouse) -> list[dict[str, Any]]:
    from spark_jobs.store.warehouse import publish_log

    return [{"rows_scanned": row.record.rows_scanned} for row in publish_log.publications(house)]
