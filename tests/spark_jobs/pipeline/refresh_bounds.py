"""Queries with a refresh bound, a warehouse with their events, and the minutes at which a plan refreshes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optimizer.plan import instants_due
from spark_jobs.store.warehouse.plans import load_plan
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady

BOUND = """
-- name: often
SELECT symbol, sum(volume) AS v FROM trades WINDOW RANGE '10 minutes' SLIDE AT MOST '2 minutes' ON ts GROUP BY symbol;
-- name: seldom
SELECT symbol, max(price) AS high FROM trades WINDOW RANGE '15 minutes' SLIDE AT MOST '3 minutes' ON ts
GROUP BY symbol;
-- name: rare
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '30 minutes' SLIDE AT MOST '5 minutes' ON ts GROUP BY symbol;
-- name: shuttles
SELECT count(*) AS n FROM trades PATTERN SEQ(A, B) ON symbol
WINDOW RANGE '6 minutes' SLIDE AT MOST '4 minutes' ON ts;
-- name: exact
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""
BOUNDS = {"often": 2, "seldom": 3, "rare": 5, "shuttles": 4}


def made(engine: Any, folder: Path) -> Laboratory:
    laboratory = Laboratory(engine, folder)
    laboratory.write(steady(240))
    laboratory.write([], "quotes")
    return laboratory


def at_minutes(ticks: instants_due.Ticks) -> dict[str, list[int]]:
    """Minutes at which each query is refreshed."""
    minutes: dict[str, list[int]] = {name: [] for name in BOUNDS}
    for instant, names in ticks:
        for name in names:
            minutes[name].append((instant - DAY) // MINUTE)
    return minutes


def scheduled(laboratory: Laboratory, version: int, begin: int, end: int) -> dict[str, list[int]]:
    schedules = load_plan(laboratory.warehouse, version).schedules
    return at_minutes(instants_due.ticks(schedules, DAY + begin * MINUTE, DAY + end * MINUTE))
