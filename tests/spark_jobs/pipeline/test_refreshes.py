"""Queries with a refresh bound through whole runs: which instants are answered, live, late, again and by backfill."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.plan import instants_due
from spark_jobs.pipeline.planning.live_runs import DueRun, due, frontier, refreshed_at
from spark_jobs.store.warehouse.plans import load_plan
from tests import oracle
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.spark_jobs.pipeline.refresh_bounds import BOUND, BOUNDS, made, scheduled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXACT = "-- name: exact" + BOUND.partition("-- name: exact")[2]


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path) -> Laboratory:
    return made(engine, tmp_path)


def instants(laboratory: Laboratory, query: str) -> list[int]:
    """Minutes at which a query is answered."""
    return sorted({round((row["window_end"].timestamp() * 1e6 - DAY) / MINUTE) for row in laboratory.rows(query)})


def gaps(minutes: Sequence[int]) -> list[int]:
    return [later - earlier for earlier, later in itertools.pairwise(minutes)]


def test_answers_exist_at_the_scheduled_instants_alone_and_are_right(laboratory: Laboratory) -> None:
    version = laboratory.plan(BOUND)
    record = laboratory.run(version, 30, 90)
    expected = scheduled(laboratory, version, 30, 90)
    assert laboratory.wrong(version, 30, 90, expected) == []
    for name, bound in BOUNDS.items():
        assert instants(laboratory, name) == expected[name]
        assert max(gaps([30, *expected[name]])) <= bound
    # exact slides keep their instants, whatever the schedule
    assert instants(laboratory, "exact") == [40, 50, 60, 70, 80, 90]
    assert sum(tick["queries"] for tick in record.refreshes) == sum(map(len, expected.values()))
    assert record.refreshed["rare"] == DAY + expected["rare"][-1] * MINUTE and record.lateness == {}


def test_ticks_publish_what_one_backfill_does(laboratory: Laboratory) -> None:
    version = laboratory.plan(BOUND)
    at = 40
    for number in range(8):
        due_run = due(laboratory.warehouse, DAY + (at + 1) * MINUTE, None if number else DAY + 30 * MINUTE)
        assert due_run is not None and not due_run.late
        begin, end = ((instant - DAY) // MINUTE for instant in (due_run.begin, due_run.end))
        laboratory.run(version, begin, end, f"tick {number}", live=True, as_of=DAY + (at + 1) * MINUTE)
        # nothing is due again, and a retry changes nothing
        assert due(laboratory.warehouse, DAY + (at + 1) * MINUTE) is None
        assert laboratory.run(version, begin, end, f"tick {number}", live=True).status == "unchanged"
        at = (instants_due.next_tick(load_plan(laboratory.warehouse, version).schedules, due_run.end) - DAY) // MINUTE
    reached = frontier(laboratory.warehouse)
    assert reached is not None
    live = {name: laboratory.rows(name) for name in [*BOUNDS, "exact"]}
    end = (reached - DAY) // MINUTE
    assert laboratory.wrong(version, 30, end, scheduled(laboratory, version, 30, end)) == []
    other = Laboratory(laboratory.spark, laboratory.folder / "backfill")
    other.write(steady(240))
    other.write([], "quotes")
    again = other.plan(BOUND)
    other.run(again, 30, end)
    run_columns = ("plan_version", "revision", "run_id")
    for name, rows in live.items():
        assert [drop(row, run_columns) for row in rows] == [drop(row, run_columns) for row in other.rows(name)]


def drop(row: dict[str, object], names: Sequence[str]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in names}


def test_a_late_run_stands_for_all_it_missed_and_recovers(laboratory: Laboratory) -> None:
    version = laboratory.plan(BOUND)
    schedules = load_plan(laboratory.warehouse, version).schedules
    laboratory.run(version, 30, 40, "first", live=True)
    before = {name: instants(laboratory, name) for name in BOUNDS}
    assert refreshed_at(laboratory.warehouse, DAY + 40 * MINUTE).keys() == BOUNDS.keys()
    # the next run could only start when a quarter of an hour had gone by
    due_run = due(laboratory.warehouse, DAY + 55 * MINUTE)
    end = (instants_due.newest(schedules, DAY + 55 * MINUTE) - DAY) // MINUTE
    assert due_run == DueRun(version, DAY + 40 * MINUTE, DAY + end * MINUTE, True)
    record = laboratory.run(version, 40, end, "late", live=True, late=True)
    # one instant for all, exact slides whole; nothing is dropped
    for name, bound in BOUNDS.items():
        assert instants(laboratory, name) == [*before[name], end]
        assert record.lateness[name] == (end - before[name][-1] - bound) * MINUTE
    assert instants(laboratory, "exact") == [40, 50]
    assert [tick["queries"] for tick in record.refreshes] == [4]
    answered = {name: [*before[name], end] for name in BOUNDS}
    assert laboratory.wrong(version, 30, end, answered) == []
    # in time again: no query beyond its bound from there
    following = instants_due.next_tick(schedules, DAY + end * MINUTE)
    due_run = due(laboratory.warehouse, following + MINUTE // 2)
    assert due_run == DueRun(version, DAY + end * MINUTE, following, False)
    record = laboratory.run(version, end, end + 20, "recovered", live=True)
    assert record.lateness == {}
    for name, bound in BOUNDS.items():
        assert max(gaps([minute for minute in instants(laboratory, name) if minute >= end])) <= bound


def test_a_new_schedule_keeps_the_bounds_of_queries_it_took_over(laboratory: Laboratory) -> None:
    laboratory.plan(BOUND)
    first = laboratory.run(1, 30, 41, "first", live=True)
    # without the query that ran most often, the others have another rhythm
    version = laboratory.plan(BOUND.replace("AT MOST '2 minutes'", "AT MOST '7 minutes'"))
    assert version == 2
    record = laboratory.run(version, 41, 80, "second", live=True)
    assert record.lateness == {}
    for name in ("seldom", "rare", "shuttles"):
        assert max(gaps(instants(laboratory, name))) <= BOUNDS[name]
    # ages are counted in executed data time: also a late retry of the first run repeats nothing
    assert laboratory.run(1, 30, 41, "first", live=True, recompute=True).refreshes == first.refreshes


def test_the_clock_may_go_backwards(laboratory: Laboratory) -> None:
    version = laboratory.plan(BOUND)
    laboratory.run(version, 30, 50, live=True)
    assert due(laboratory.warehouse, DAY + 45 * MINUTE) is None
    assert due(laboratory.warehouse, DAY + 50 * MINUTE) is None


def test_a_query_ends_with_its_lifetime(laboratory: Laboratory) -> None:
    until = "-- until: 2013-07-01T00:43\n"
    version = laboratory.plan(until + BOUND.replace("-- name: exact", until + "-- name: exact"))
    expected = scheduled(laboratory, version, 30, 60)
    laboratory.run(version, 30, 60)
    assert instants(laboratory, "often") == [minute for minute in expected["often"] if minute <= 43]
    assert instants(laboratory, "exact") == [40]
    assert instants(laboratory, "seldom") == expected["seldom"]
    record = laboratory.run(version, 60, 70, "later")
    assert max(instants(laboratory, "often")) <= 43 and record.answers > 0


def test_only_live_runs_move_the_frontier(laboratory: Laboratory) -> None:
    version = laboratory.plan(BOUND)
    laboratory.run(version, 30, 60)
    assert frontier(laboratory.warehouse) is None
    laboratory.run(version, 20, 30, "live", live=True)
    assert frontier(laboratory.warehouse) == DAY + 30 * MINUTE


def test_without_refresh_bounds_live_runs_are_daily(laboratory: Laboratory) -> None:
    version = laboratory.plan("SELECT count(*) AS n FROM trades WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts;")
    day = 1440 * MINUTE
    assert due(laboratory.warehouse, DAY + 30 * MINUTE) == DueRun(version, DAY - day, DAY, False)
    laboratory.run(version, -1440, 0, live=True)
    assert due(laboratory.warehouse, DAY + 30 * MINUTE) is None
    assert due(laboratory.warehouse, DAY + 3 * day + 1) == DueRun(version, DAY, DAY + 3 * day, False)


@pytest.mark.spark
def test_the_command_line_ticks_and_tells_how_late_queries_are(spark: SparkSession, tmp_path: Path) -> None:
    laboratory = made(spark, tmp_path)
    version = laboratory.plan(BOUND)
    house = str(laboratory.warehouse.root)
    laboratory.run(version, 30, 40, "first", live=True)
    laboratory.run(version, 40, 56, "late", live=True, late=True)
    code, out = heddle("status", "--warehouse", house, "--json")
    status = {refresh["query"]: refresh for refresh in json.loads(out)["refreshes"]}
    assert code == 0 and status["often"]["at_most_seconds"] == 120 and status["often"]["late_runs"] == 1
    assert (
        status["often"]["late_seconds"] == (56 - 40 - 2) * 60 and status["often"]["answered"] == "2013-07-01T00:56:00Z"
    )
    status = heddle("status", "--warehouse", house)[1]
    assert "late in these runs: 4" in status and re.search(
        r"recomputed unshared from raw events: [1-9]\d*, different 0", status
    )
    code, out = heddle("tick", "--warehouse", house, "--at", "2013-07-01T00:56:30")
    assert code == 0 and "nothing is due at 2013-07-01T00:56:30Z" in out
    assert json.loads(heddle("tick", "--warehouse", house, "--at", "2013-07-01T00:56:30", "--json")[1])["status"]
    # look-ups answer a query with a refresh bound at any step, scheduled or not
    code, out = heddle("lookup", "often", "--warehouse", house, "--at", "2013-07-01T00:47", "--format", "json")
    query = load_plan(laboratory.warehouse, version).workload.query("often")
    lookup_query = oracle.asked_at(query, [DAY + 47 * MINUTE])
    expected = oracle.answers(lookup_query, laboratory.events["trades"], "ts", DAY, DAY + 60 * MINUTE)
    rows = json.loads(out)["rows"]
    assert code == 0 and len(rows) == len(expected) == 2
    assert {row["v"] for row in rows} == {row[0].value for row in expected.values()}


def heddle(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout


def test_after_the_last_lifetime_live_runs_are_daily(laboratory: Laboratory) -> None:
    until = "-- until: 2013-07-01T00:43\n"
    version = laboratory.plan("".join(until + "-- name:" + text for text in BOUND.split("-- name:")[1:5]) + EXACT)
    laboratory.run(version, 30, 40, live=True)
    last = due(laboratory.warehouse, DAY + 300 * MINUTE)
    assert last is not None and DAY + 40 * MINUTE < last.end <= DAY + 43 * MINUTE
    laboratory.run(version, 40, (last.end - DAY) // MINUTE, "last", live=True)
    assert due(laboratory.warehouse, DAY + 300 * MINUTE) is None
    assert due(laboratory.warehouse, DAY + 1441 * MINUTE) == DueRun(version, last.end, DAY + 1440 * MINUTE, False)
