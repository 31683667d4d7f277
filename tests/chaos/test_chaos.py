"""A sweep of faults: whatever dies where, readers see whole intervals that equal the oracle, also before the retry.

``make chaos`` plays more of them (``CHAOS=rounds``); a failure prints its history, and the command that repeats it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from spark_jobs.audit.checks import suite
from spark_jobs.pipeline.run import preparation
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse import warehouse as warehouse_module
from spark_jobs.windows.partials import stored_coverage
from tests.chaos.conftest import Counted
from tests.chaos.harness import FAILPOINTS, PLANS, History, play
from tests.spark_jobs.laboratory import Laboratory

if TYPE_CHECKING:
    pass

ROUNDS = int(os.environ.get("HEDDLE_CHAOS", "0"))
"""Rounds over all failpoints; 0: each goes off once, three in a history."""

THREES = [FAILPOINTS[first : first + 3] for first in range(0, len(FAILPOINTS), 3)]


@pytest.fixture(autouse=True)
def without_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts that Great Expectations judges are tested elsewhere; here the judge is the oracle."""
    monkeypatch.setattr(suite, "expectations", lambda *args: [])


@pytest.mark.parametrize("number", range(len(THREES)))
def test_every_failpoint_once(engine: Any, tmp_path: Path, number: int) -> None:
    play(Laboratory(engine, tmp_path), number, THREES[number])


def back_and_forth(laboratory: Laboratory) -> None:
    """An interval by a plan, a larger one by another, the first again: its content is what it was, its answers not."""
    history = History(laboratory, random.Random(0))
    for plan, end in ((0, 60), (1, 180), (0, 60)):
        history.version = laboratory.plan(PLANS[plan])
        history.run(0, end, None)


def test_going_back_to_an_earlier_plan_publishes_again(engine: Any, tmp_path: Path) -> None:
    back_and_forth(Laboratory(engine, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1000 + max(1, ROUNDS)))
def test_rounds(engine: Any, tmp_path: Path, seed: int, counted: Counted) -> None:
    deaths = 0
    for number, failpoints in enumerate(THREES):
        place = tmp_path / str(number)
        place.mkdir()
        deaths += play(Laboratory(engine, place), seed * 100 + number, failpoints).deaths
    assert deaths > len(FAILPOINTS) // 2
    counted("failpoints, in histories", len(FAILPOINTS), rounds=1, deaths=deaths)


# ------------------------------------------------------------------------- the judge can tell
def nothing_replaced(table: str) -> Callable[[pytest.MonkeyPatch], None]:
    def broken(patch: pytest.MonkeyPatch) -> None:
        original = warehouse_module.Warehouse.replace

        def replace(self: Any, name: str, written: Any, days: Any, replaced: Any, *args: Any, **kwargs: Any) -> int:
            if name == table:

                def replaced(rows: pa.Table) -> pa.Array:
                    return pa.array([False] * len(rows))

            return original(self, name, written, days, replaced, *args, **kwargs)

        patch.setattr(warehouse_module.Warehouse, "replace", replace)

    return broken


def stale_partials(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stored_coverage, "stored_for", lambda *args: lambda *piece: True)


def stale_content(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preparation, "content_hash", lambda *args: "always the same")


def overlaps_overlooked(patch: pytest.MonkeyPatch) -> None:
    def published(warehouse: Any, plan: Any, begin: int, end: int, content: str) -> Any:
        rows = [row for row in publish_log.rows_of_interval(warehouse, begin, end) if row.event == "published"]
        same = [row for row in rows if row.content == content]
        return same[-1] if same else None

    patch.setattr(publish_log, "same_publication", published)


def nothing_removed_by_maintenance(patch: pytest.MonkeyPatch) -> None:
    original = DeltaTable.create_write_transaction

    def write(self: Any, actions: Any, *args: Any, **kwargs: Any) -> None:
        original(self, [action for action in actions if isinstance(action, AddAction)], *args, **kwargs)

    patch.setattr(DeltaTable, "create_write_transaction", write)


def every_revision_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish_log, "revision_of", lambda *args: 1)


@pytest.mark.parametrize(
    "broken",
    [
        nothing_replaced("results"),
        nothing_replaced("partials"),
        stale_partials,
        stale_content,
        overlaps_overlooked,
        nothing_removed_by_maintenance,
        every_revision_anew,
    ],
    ids=[
        "results not replaced",
        "partials not replaced",
        "stale partials",
        "stale content",
        "overlaps",
        "merge",
        "revision",
    ],
)
def test_a_broken_warehouse_is_found_out(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    for seed in range(8):
        place = tmp_path / str(seed)
        place.mkdir()
        try:
            back_and_forth(Laboratory(engine, place)) if seed == 0 else play(
                Laboratory(engine, place), seed, (), steps=4
            )
        except Exception as error:  # the judge, the run's own checks or the warehouse: any of them may tell
            assert str(error)
            return
    pytest.fail("nobody noticed")
