"""Processes that are killed at a write to the file system, workers that are killed in a task, disks that are full.

``make chaos`` kills at every write of a run, a new plan and maintenance. A failure prints the command that repeats it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_jobs.maintenance as maintenance
from spark_jobs.planning import current_version
from tests.chaos.driver import Drivers, Order, drivers
from tests.chaos.world import PLANS, Race, begun, copied, without_audit

ROUNDS = int(os.environ.get("HEDDLE_CHAOS", "0"))
SEED = int(os.environ.get("HEDDLE_CHAOS_SEED", "0"))

CASES = [
    Order("", "run"),
    Order("", "run", begin=0, end=120, run_id="more"),
    Order("", "plan", plan=1),
    Order("", "maintain"),
]


@pytest.fixture(scope="module")
def driver() -> Iterator[Drivers]:
    with drivers() as made:
        yield made


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A world to copy, with enough small files to be merged, and the place where copies live."""
    folder = tmp_path_factory.mktemp("kills")
    place, template = folder / "place", folder / "template"
    place.mkdir()
    with without_audit():
        world = begun(place)
        for begin in range(0, 60, 6):
            world.run(1, begin, begin + 6, f"small {begin}")
    shutil.move(place, template)
    return template, place


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
            maintenance.maintain(played.world.warehouse)
        played.closing()
        wrong = played.wrong()
        assert wrong == [], f"after the retry: {told}: {wrong[:5]}"
        newest = played.world.warehouse.version("results")
        maintenance.maintain(played.world.warehouse, retention=0)
        wrong = played.seen_wrong(since=newest + 1)
        assert wrong == [], f"after what is left over was removed: {told}: {wrong[:5]}"
        named = {file["path"] for file in played.world.warehouse.files("results", "", "9")}
        there = {str(path.relative_to(played.world.warehouse.root / "results")) for path in data_files(played)}
        assert there == named
        # and everything goes on
        record = played.world.run(current_version(played.world.warehouse) or 0, 30, 90, "goes on", recompute=True)
        assert record.status == "published" and played.seen_wrong(since=newest + 1) == []


def data_files(played: Race) -> list[Path]:
    return list((played.world.warehouse.root / "results").rglob("day=*/*.parquet"))


def killed(places: tuple[Path, Path], driver: Drivers, number: int, moment: int) -> None:
    played, order, told = set_out(places, driver, number, moment=moment)
    if not told.startswith("killed"):
        return  # the last moments differ by what a log line says
    repeat = f"HEDDLE_CHAOS_SEED={number * 1000 + moment} make test PYTEST='tests/chaos/test_kills.py -k some_moments'"
    recovers(played, order, f"{order.what} {told}; once more: {repeat}")


def moments(places: tuple[Path, Path], driver: Drivers, number: int) -> int:
    _, _, told = set_out(places, driver, number, moment=0)
    said, _, count = told.partition(", ")[0].partition(" at ")
    if said == "no answer":
        pytest.skip("processes cannot be traced here")
    assert said == "done", told
    return int(count)


def test_a_process_is_killed_at_some_moments(places: tuple[Path, Path], driver: Drivers) -> None:
    """With HEDDLE_CHAOS_SEED: at that one alone."""
    if SEED:
        return killed(places, driver, SEED // 1000, SEED % 1000)
    chance = random.Random(1)
    for number, draws in ((0, 3), (2, 1), (3, 1)):
        count = moments(places, driver, number)
        for moment in chance.sample(range(1, count + 1), draws):
            killed(places, driver, number, moment)


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_process_is_killed_at_every_moment(places: tuple[Path, Path], driver: Drivers, number: int) -> None:
    count = moments(places, driver, number)
    chosen = range(1, count + 1) if ROUNDS else random.Random(2).sample(range(1, count + 1), 10)
    for moment in chosen:
        killed(places, driver, number, moment)
    print(f"{CASES[number].what}: killed at {len(chosen)} of {count} writes, 0 violations")


# ------------------------------------------------------------------------------------------- no room
def full(places: tuple[Path, Path], driver: Drivers, number: int, room: int) -> str:
    """No file gets longer than ``room`` bytes: a full disk that each writer notices at another byte."""
    played, order, told = set_out(places, driver, number, room=room)
    recovers(played, order, f"{order.what} with {room} bytes: {told}")
    return told.partition(" at ")[0]


def test_a_full_disk_is_told_and_leaves_nothing_behind(places: tuple[Path, Path], driver: Drivers) -> None:
    assert [full(places, driver, 0, room) for room in (0, 700, 3000)] == ["HDL-542"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_full_disk_at_every_size(places: tuple[Path, Path], driver: Drivers, number: int) -> None:
    told = [full(places, driver, number, room) for room in (0, 30, 300, 600, 1000, 1500, 2500, 4000, 6000, 9000)]
    print(f"{CASES[number].what}: {told}")
    assert set(told) <= {"HDL-542", "done"}
