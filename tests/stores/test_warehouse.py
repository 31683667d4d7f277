"""A warehouse in a store: whole runs against the oracle, whatever the store does; commits, and what they cost."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from heddle.local.object_store import ObjectStore
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.spark_jobs.laboratory import Laboratory, steady
from tests.stores.proxy import Fate, Rule, StoreProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS = "/_delta_log/"


class StoreLaboratory(Laboratory):
    """A laboratory whose warehouse is in a store; its sources are local."""

    def __init__(self, spark: SparkSession, folder: Path, place: str) -> None:
        self.spark, self.folder, self.events = spark, folder, {}
        self.warehouse = Warehouse.open(place)


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path, place: str) -> Iterator[StoreLaboratory]:
    # the session may have begun before the store was known
    env, before = spark.sparkContext.environment, dict(spark.sparkContext.environment)
    env.update({name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_", "AZURITE_"))})
    yield StoreLaboratory(spark, tmp_path, place)
    env.clear()
    env.update(before)


def row(run_id: str) -> dict[str, object]:
    at = dt.datetime(2013, 7, 1, tzinfo=dt.UTC)
    return {"run_id": run_id, "stream": "s", "code": "c", "rows": 1, "detail": "", "at": at}


# ------------------------------------------------------------------------------------------- commits
def test_a_commit_whose_answer_is_lost_is_known_as_ours(place: str, proxy: StoreProxy) -> None:
    house = Warehouse.open(place)
    for table, run_id in (("quarantine", "a"), ("quarantine", "b")):
        proxy.set(0.0, Rule(Fate.LOSE_ANSWER, "PUT", f"{table}{LOGS}"))
        with house.lease() as token:
            house.append(table, [row(run_id)], token)
    proxy.set()
    assert sorted(stored_row["run_id"] for stored_row in house.rows("quarantine")) == ["a", "b"]


def test_a_commit_of_another_is_not_ours(place: str, proxy: StoreProxy) -> None:
    house = Warehouse.open(place)
    current = house.table("quarantine")
    with house.lease() as token:
        house.append("quarantine", [row("other")], token)
        with pytest.raises(HeddleError, match="HDL-510"):
            house.append("quarantine", [row("late")], token, since=int(current.version()))
    assert [stored_row["run_id"] for stored_row in house.rows("quarantine")] == ["other"]


APPENDS = """
import datetime as dt, sys
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse.warehouse import Warehouse
house, made, at = Warehouse.open(sys.argv[1]), 0, dt.datetime(2013, 7, 1, tzinfo=dt.UTC)
row = {"run_id": sys.argv[2], "stream": "s", "code": "c", "rows": 1, "detail": "", "at": at}
while made < int(sys.argv[3]):
    house.leased(lambda token: house.append("quarantine", [row], token))
    made += 1
"""


def test_writers_lose_and_double_nothing(place: str) -> None:
    Warehouse.open(place)
    running = [
        subprocess.Popen([sys.executable, "-c", APPENDS, place, name, "12"], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    for process in running:
        _, problem = process.communicate(timeout=300)
        assert process.returncode == 0, problem
    rows = Warehouse.open(place).rows("quarantine")
    assert sorted(each["run_id"] for each in rows) == ["a"] * 12 + ["b"] * 12


def test_a_table_that_was_read_stays_as_it_was(place: str) -> None:
    house = Warehouse.open(place)
    with house.lease() as token:
        house.append("quarantine", [row("a")], token)
        before = house.table("quarantine")
        house.append("quarantine", [row("b")], token)
    assert house.table("quarantine").version() == 2 and before.version() == 1
    assert house.dataset("quarantine", before).count_rows() == 1
    assert house.dataset("quarantine").count_rows() == 2


# ------------------------------------------------------------------------------------------- runs
def test_runs_repair_and_maintenance(lab: StoreLaboratory, proxy: StoreProxy) -> None:
    lab.write(steady(120))
    version = lab.plan()
    for begin in (0, 60):
        lab.run(version, begin, begin + 60, f"run {begin}")
    assert lab.wrong(version, 0, 120) == []
    lab.write([*steady(120), (30, "A", 1.5, 7), (90, "C", None, 3)])
    clock = 1 << 60
    assert len(outdated(lab.warehouse, clock, 0)) == 2
    for begin in (0, 60):
        lab.run(version, begin, begin + 60, f"again {begin}")
    assert lab.wrong(version, 0, 120) == [] and outdated(lab.warehouse, clock, 0) == []
    maintain(lab.warehouse, retention=0)
    assert lab.wrong(version, 0, 120) == []
    live_files = {file["path"] for table in ("partials", "results") for file in lab.warehouse.files(table, "", "9")}
    stored = Place.of(str(lab.warehouse.place))
    stored_files = {file.name for table in ("partials", "results") for file in (stored / table).listed(recursive=True)}
    assert {name for name in stored_files if name.endswith(".parquet") and "_delta_log" not in name} == live_files


def test_windows_of_rows_are_audited(lab: StoreLaboratory) -> None:
    lab.write(steady(60))
    version = lab.plan("-- name: by_rows\nSELECT sum(volume) AS s FROM trades WINDOW ROWS 3 SLIDE 2 ON ts;")
    record = lab.run(version, 0, 60)
    assert record.failed == [] and len(lab.warehouse.rows("results")) > 0


@pytest.mark.parametrize(
    "rules",
    [
        (Rule(Fate.LOSE_ANSWER, "PUT", LOGS, times=1 << 30),),
        (Rule(Fate.REFUSE, "GET", "", times=6, skip=5), Rule(Fate.REFUSE, "PUT", "", times=5, skip=2)),
        (Rule(Fate.LOSE_ANSWER, "PUT", "/day", times=3),),
    ],
    ids=["every answer to a commit is lost", "fewer requests are asked for", "answers to data are lost"],
)
def test_runs_while_the_store_suffers(lab: StoreLaboratory, proxy: StoreProxy, rules: tuple[Rule, ...]) -> None:
    lab.write(steady(60))
    version = lab.plan()
    proxy.set(0.0, *rules)
    lab.run(version, 0, 60)
    proxy.set()
    assert lab.wrong(version, 0, 60) == []


def test_a_server_that_ends_and_comes_back(lab: StoreLaboratory, server: ObjectStore, proxy: StoreProxy) -> None:
    lab.write(steady(60))
    version = lab.plan()
    proxy.set(0.0, Rule(Fate.REFUSE, "PUT", "results/day", times=1 << 30))
    with pytest.raises(HeddleError):
        lab.run(version, 0, 60)
    server.stop()
    server.start()
    proxy.set()
    lab.run(version, 0, 60)
    assert lab.wrong(version, 0, 60) == []


def test_requests_do_not_grow_with_history(lab: StoreLaboratory, proxy: StoreProxy) -> None:
    lab.write(steady(600))
    version = lab.plan()
    request_counts = []
    for number in range(10):
        proxy.counts()
        lab.run(version, 60 * number, 60 * number + 60, f"run {number}")
        request_counts.append(proxy.counts().total())
    # the first run fills what the others find
    assert max(request_counts[6:]) <= 1.5 * max(request_counts[1:4]), request_counts
