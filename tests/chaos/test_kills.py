"""Processes that are killed at a write to the file system, workers that are killed in a task, disks that are full.

``make chaos`` kills at every write of a run, a new plan and maintenance. A failure prints the command that repeats it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.audit.checks import suite
from spark_jobs.operations import maintenance as maintenance_module
from spark_jobs.store.warehouse.plans import current_version
from tests.chaos.conftest import Counted
from tests.chaos.driver import ROOT, UNTRACEABLE, Drivers, Order, drivers
from tests.chaos.executors import killed_in, this_worker
from tests.chaos.world import PLANS, Race, copied, template, without_audit
from tests.dags.standalone_cluster import standalone_cluster
from tests.spark_jobs.laboratory import Laboratory, steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("HEDDLE_CHAOS", "0"))
SEED = int(os.environ.get("HEDDLE_CHAOS_SEED", "0"))

PARTS = 5
"""`make chaos` plays them in so many parts."""

CASES = [
    Order("", "run"),
    Order("", "run", begin=0, end=120, run_id="more"),
    Order("", "plan", plan=1),
    Order("", "maintain"),
]


@pytest.fixture(scope="module")
def driver() -> Iterator[Drivers]:
    with drivers() as started_drivers:
        yield started_drivers


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return template(tmp_path_factory.mktemp("kills"), crowded=True)


def set_out(places: tuple[Path, Path], driver: Drivers, number: int, **given: int | None) -> tuple[Race, Order, str]:
    """Carry out a case on a fresh copy; the order, and how it went."""
    played = copied(*places, random.Random(0), lambda name: None)
    order = Order(**{**CASES[number].__dict__, "folder": str(played.world.folder), **given})  # type: ignore[arg-type]
    outcome = driver(order)
    return played, order, f"{outcome.said} at {outcome.moments}, {outcome.last}"


def recovers(played: Race, order: Order, told: str) -> None:
    """What readers see is whole, now, after the retry, and when what nobody refers to is removed."""
    with without_audit(), played.watched():
        wrong = played.seen_wrong()
        assert wrong == [], f"before the retry: {told}: {wrong[:5]}"
        if order.what == "run":
            played.world.run(order.version, order.begin, order.end, order.run_id)
        elif order.what == "plan":
            played.world.plan(PLANS[order.plan])
        else:
            maintenance_module.maintain(played.world.warehouse)
        played.closing()
        wrong = played.wrong()
        assert wrong == [], f"after the retry: {told}: {wrong[:5]}"
        newest = played.world.warehouse.version("results")
        maintenance_module.maintain(played.world.warehouse, retention=0)
        wrong = played.seen_wrong(since=newest + 1)
        assert wrong == [], f"after what is left over was removed: {told}: {wrong[:5]}"
        committed_paths = {file["path"] for file in played.world.warehouse.files("results", "", "9")}
        present_paths = {str(path.relative_to(played.world.warehouse.root / "results")) for path in data_files(played)}
        assert present_paths == committed_paths
        # and everything goes on
        record = played.world.run(current_version(played.world.warehouse) or 0, 30, 90, "goes on", recompute=True)
        assert record.status == "published" and played.seen_wrong(since=newest + 1) == []


def data_files(played: Race) -> list[Path]:
    return list((played.world.warehouse.root / "results").rglob("day=*/*.parquet"))


def killed(places: tuple[Path, Path], driver: Drivers, number: int, moment: int) -> None:
    played, order, outcome = set_out(places, driver, number, moment=moment)
    if outcome.startswith("done"):
        return  # the last moments differ by what a log line says
    assert outcome.startswith("killed"), outcome
    repeat = f"HEDDLE_CHAOS_SEED={number * 1000 + moment} make test PYTEST='tests/chaos/test_kills.py -k some_moments'"
    recovers(played, order, f"{order.what} {outcome}; once more: {repeat}")


def moments(places: tuple[Path, Path], driver: Drivers, number: int) -> int:
    _, _, outcome = set_out(places, driver, number, moment=0)
    answer, _, count = outcome.partition(", ")[0].partition(" at ")
    if answer == UNTRACEABLE:
        pytest.skip(UNTRACEABLE)
    assert answer == "done", outcome
    return int(count)


def test_a_process_is_killed_at_some_moments(places: tuple[Path, Path], driver: Drivers) -> None:
    """With HEDDLE_CHAOS_SEED: at that one alone."""
    if SEED:
        return killed(places, driver, SEED // 1000, SEED % 1000)
    killed_somewhere(places, driver, 0, 1)


@pytest.mark.longer
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_process_is_killed_at_more_moments(places: tuple[Path, Path], driver: Drivers, number: int) -> None:
    killed_somewhere(places, driver, number, 4)


def killed_somewhere(places: tuple[Path, Path], driver: Drivers, number: int, draws: int) -> None:
    count = moments(places, driver, number)
    for moment in random.Random(1).sample(range(1, count + 1), draws):
        killed(places, driver, number, moment)


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_process_is_killed_at_every_moment(
    places: tuple[Path, Path], driver: Drivers, number: int, part: int, counted: Counted
) -> None:
    count = moments(places, driver, number)
    chosen = range(1, count + 1) if ROUNDS else random.Random(2).sample(range(1, count + 1), 10)
    for moment in chosen[part::PARTS]:
        killed(places, driver, number, moment)
    counted("processes killed at a write", len(chosen[part::PARTS]))


# ------------------------------------------------------------------------------------------- no room
def full(places: tuple[Path, Path], driver: Drivers, number: int, room: int) -> str:
    """No file gets longer than ``room`` bytes: a full disk that each writer notices at another byte."""
    played, order, outcome = set_out(places, driver, number, room=room)
    recovers(played, order, f"{order.what} with {room} bytes: {outcome}")
    return outcome.partition(" at ")[0]


@pytest.mark.parametrize(("number", "room"), [(0, 700), (3, 6000)])
def test_a_full_disk_is_told_and_leaves_nothing_behind(
    places: tuple[Path, Path], driver: Drivers, number: int, room: int
) -> None:
    """Also if what does not fit is the checkpoint of a log, which is no commit."""
    assert full(places, driver, number, room) == "HDL-542"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_full_disk_at_every_size(places: tuple[Path, Path], driver: Drivers, number: int) -> None:
    outcomes = [full(places, driver, number, room) for room in (0, 30, 300, 600, 1000, 1500, 2500, 4000, 6000, 9000)]
    print(f"{CASES[number].what}: {outcomes}")
    assert set(outcomes) <= {"HDL-542", "done"}


# ------------------------------------------------------------------------------------ Spark's own processes
@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.parametrize("stage", ["lift_task", pytest.param("finals_task", marks=pytest.mark.slow)])
def test_a_worker_that_is_killed_fails_the_run_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """In local mode a task is not tried again: the run fails, as a whole, and its retry goes on."""
    monkeypatch.setattr(suite, "expectations", lambda *args: [])
    laboratory = Laboratory(spark, tmp_path)
    laboratory.write(steady(120))
    laboratory.write([], "quotes")
    version = laboratory.plan()
    with killed_in(stage, tmp_path / "killed", this_worker), pytest.raises(Exception, match="worker|exited|EOF"):
        laboratory.run(version, 0, 60)
    assert (tmp_path / "killed").exists() and laboratory.warehouse.version("results") == 0
    assert laboratory.run(version, 0, 60).status == "published" and laboratory.wrong(version, 0, 60) == []


@pytest.mark.slow
def test_an_executor_that_is_killed_in_a_task_doubles_nothing(tmp_path: Path) -> None:
    """On a cluster the task is tried again elsewhere: what the first attempt wrote is named by no commit."""
    with standalone_cluster(tmp_path) as url:
        command = [sys.executable, "-m", "tests.chaos.executors", url, str(tmp_path)]
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT")] or [done.stderr[-4000:]]
    report = json.loads(line.removeprefix("RESULT"))
    assert report["lift_task"] == report["finals_task"] == ["published", True] and report["wrong"] == []
    assert min(report["unnamed"]) > 0, "no file was left behind: was a task killed at all?"
    print(f"executors killed in two stages: {report}")
