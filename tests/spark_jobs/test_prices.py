"""What a run is about to cost: an interval, by what runs took beside their predictions, or that nobody knows yet."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heddle.cli import run as commands
from heddle.cli import terminal
from heddle.cli.app import app
from heddle.cli.terminal import PlainConsole
from spark_jobs.costs.prediction import ENOUGH, spread
from spark_jobs.run.estimate import RunEstimate
from spark_jobs.run.history import prices
from spark_jobs.warehouse import publish_log
from tests.chaos.orders import InProcess
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    made = Laboratory(InProcess(), tmp_path)  # type: ignore[arg-type]
    made.write(steady())
    return made


def took(lab: Laboratory, version: int, number: int, seconds: float, predicted: float | None) -> None:
    """A run that was predicted and took so much, as the log has it."""
    record = publish_log.RunRecord(f"run {number}", version, DAY + number * DAY, DAY + number * DAY + MINUTE, number)
    record.cpu_seconds, record.predicted_cpu_seconds = {"finals": seconds}, predicted
    publish_log.log_event(lab.warehouse, record, "published", f"content {number}", number)


def heddle(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout


def test_nothing_is_known_before_enough_was_measured(lab: Laboratory) -> None:
    version = lab.plan()
    span = ("--from", "2013-07-01", "--to", "2013-07-01T02:00", "--every", "1 hour", "--dry-run")
    for number in range(1, ENOUGH):
        took(lab, version, number, 7.0, 10.0)
    took(lab, version, ENOUGH, 7.0, None)
    code, out = heddle("backfill", "--warehouse", str(lab.warehouse.root), *span)
    assert spread(lab.warehouse) is None and code == 0
    assert "2 runs, about 151 events; CPU seconds: not known yet" in out
    found = json.loads(heddle("backfill", "--warehouse", str(lab.warehouse.root), *span, "--json")[1])["runs"]
    assert [(run["least"], run["most"]) for run in found] == [(None, None)] * 2


def test_the_interval_is_that_of_the_newest_runs(lab: Laboratory) -> None:
    version = lab.plan()
    for number in range(1, 31):
        took(lab, version, number, 1000.0 if number < 11 else 10.0 + number, 10.0)
    assert spread(lab.warehouse) == (2.3, 3.8)
    clock = DAY + 500 * MINUTE
    first, second = prices(lab.warehouse, version, DAY, DAY + 120 * MINUTE, clock, 60 * MINUTE)
    assert first.least == pytest.approx(2.3 * first.cpu_seconds, abs=0.01)
    assert first.most == pytest.approx(3.8 * first.cpu_seconds, abs=0.01)
    # Spark is started once, and what is not checked costs less
    assert first.cpu_seconds - second.cpu_seconds > 5
    unchecked = prices(lab.warehouse, version, DAY, DAY + 120 * MINUTE, clock, 60 * MINUTE, "none")
    assert unchecked[0].cpu_seconds < first.cpu_seconds - 0.5


def test_what_is_published_costs_nothing(lab: Laboratory) -> None:
    with without_audit():
        version = lab.plan()
        lab.run(version, 0, 60)
    first, second = prices(lab.warehouse, version, DAY, DAY + 120 * MINUTE, DAY + 500 * MINUTE, 60 * MINUTE)
    assert (first.published, first.least, first.most) == (True, 0.0, 0.0) and second.least is None
    assert commands._price([first]) == "0" and commands._price([first, second]) == "not known yet"
    assert commands._price([first, RunEstimate(0, 1, False, 5, 3.0, 1.4, 6.2)]) == "1 to 6"


def test_who_watches_a_run_is_told_its_price(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    stored = commands._StoredRequest(lab.warehouse, None, lab.plan(), True, [], False)  # type: ignore[arg-type]
    commands._show_price(stored, DAY + 30 * MINUTE, DAY + 90 * MINUTE, None)
    monkeypatch.setattr(terminal, "errors", PlainConsole(file=screen, force_terminal=True, color_system=None))
    commands._show_price(stored, DAY + 30 * MINUTE, DAY + 90 * MINUTE, None)
    assert "events to read; CPU seconds: not known yet" in screen.getvalue()
