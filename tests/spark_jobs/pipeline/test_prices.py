"""What a run is about to cost: an interval, by what runs took beside their predictions, or a factor of two."""

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
from spark_jobs.pipeline.costs.learned import ENOUGH, JUDGED, REMEMBERED
from spark_jobs.pipeline.costs.measurements import Measured, Recorded, machine
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.pipeline.run.estimate import RunEstimate
from spark_jobs.pipeline.run.history import prices
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write(steady())
    return laboratory


def took(lab: Laboratory, count: int, seconds: float, predicted: float) -> None:
    """So many runs that were predicted and took so much, as a warehouse has them."""
    features = {"runs": 1, "queries": 2}
    rows = [
        Measured("trades", DAY, DAY + MINUTE, 1).row(
            f"run {number}",
            {"finals": seconds},
            features,
            Recorded(features, {}, features, "another plan", machine(), predicted).about,
        )
        for number in range(count)
    ]
    with lab.warehouse.lease() as token:
        lab.warehouse.append("stream_statistics", rows, token)


def heddle(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout


SPAN = ("--from", "2013-07-01", "--to", "2013-07-01T02:00", "--every", "1 hour", "--dry-run")


def test_before_enough_was_measured_a_price_is_within_a_factor_of_two_and_says_so(lab: Laboratory) -> None:
    lab.plan()
    took(lab, ENOUGH + JUDGED - 1, 1.0, 1.1)
    house = str(lab.warehouse.root)
    code, out = heddle("backfill", "--warehouse", house, *SPAN)
    assert code == 0 and "2 runs, about 120 events; CPU seconds: " in out and "*: half to twice" in out
    for run in json.loads(heddle("backfill", "--warehouse", house, *SPAN, "--json")[1])["runs"]:
        assert not run["is_measured"] and run["measured_runs"] == ENOUGH + JUDGED - 1
        assert run["least"] == pytest.approx(run["cpu_seconds"] / 2, abs=2e-3)
        assert run["most"] == pytest.approx(run["cpu_seconds"] * 2, abs=2e-3)


def test_the_interval_is_what_the_newest_runs_were_off_by(lab: Laboratory) -> None:
    version = lab.plan()
    took(lab, 2 * REMEMBERED, 1.0, 1.3)
    clock = DAY + 500 * MINUTE
    first, second = prices(lab.warehouse, version, DAY, DAY + 120 * MINUTE, clock, 60 * MINUTE)
    assert first.is_measured and first.measured_runs == REMEMBERED
    assert first.most / first.cpu_seconds == pytest.approx(1.3, rel=0.01)
    assert first.cpu_seconds / first.least == pytest.approx(1.3, rel=0.01)
    # what is imported is imported once, and what is not checked costs less
    assert first.cpu_seconds - second.cpu_seconds > 2
    unchecked = prices(lab.warehouse, version, DAY, DAY + 120 * MINUTE, clock, 60 * MINUTE, "none")
    assert unchecked[0].cpu_seconds < first.cpu_seconds - 0.5
    out = heddle("backfill", "--warehouse", str(lab.warehouse.root), *SPAN)[1]
    assert " to " in out and "*: half to twice" not in out


def test_what_is_published_costs_nothing(lab: Laboratory) -> None:
    with without_audit():
        version = lab.plan()
        lab.run(version, 0, 60)
    first, second = prices(lab.warehouse, version, DAY, DAY + 120 * MINUTE, DAY + 500 * MINUTE, 60 * MINUTE)
    assert (first.published, first.least, first.most) == (True, 0.0, 0.0) and second.least > 0
    assert commands._price([first]) == "0" and commands._price([first, second]).endswith(" *")
    known = RunEstimate(0, 1, False, 5, 3.0, 1.4, 6.2, 30, is_measured=True)
    assert commands._price([first, known]) == "1.4 to 6.2" and commands._price([known, known]) == "3 to 12"


def test_who_watches_a_run_is_told_its_price(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    stored = commands._StoredRequest(lab.warehouse, None, lab.plan(), True, [], False)
    commands._show_price(stored, DAY + 30 * MINUTE, DAY + 90 * MINUTE, None)
    monkeypatch.setattr(terminal, "errors", PlainConsole(file=screen, force_terminal=True, color_system=None))
    commands._show_price(stored, DAY + 30 * MINUTE, DAY + 90 * MINUTE, None)
    assert "events to read; CPU seconds: " in screen.getvalue() and "*: half to twice" in screen.getvalue()


def test_events_of_csv_files_are_in_the_price(tmp_path: Path) -> None:
    """Whose statistics nobody wrote down."""
    folder = Path(__file__).parents[3] / "examples" / "web-requests"
    house = str(tmp_path / "house")
    refresh_plan(house, [folder / "queries.sql"], folder / "streams.yaml")
    command = ("backfill", "--warehouse", house, "--from", "2025-03-03", "--to", "2025-03-04", "--every", "1 hour")
    events = [run["events"] for run in json.loads(heddle(*command, "--dry-run", "--json")[1])["runs"]]
    written = len((folder / "data" / "requests.csv").read_text().splitlines()) - 1
    # of four hours, a quarter each
    assert sum(events) == pytest.approx(written, rel=0.02) and max(events) < 0.3 * written


@pytest.mark.parametrize("every", [20, 45, 60, 240])
def test_the_events_in_a_price_are_those_that_are_read(lab: Laboratory, every: int) -> None:
    """Of each run of a backfill, however short beside its windows."""
    version = lab.plan()
    priced = prices(lab.warehouse, version, DAY, DAY + 240 * MINUTE, DAY + 500 * MINUTE, every * MINUTE)
    with without_audit():
        ran = [
            lab.run(version, (price.begin - DAY) / MINUTE, (price.end - DAY) / MINUTE, str(price.begin))
            for price in priced
        ]
    assert [price.events for price in priced] == pytest.approx([record.rows_scanned for record in ran], abs=6)
    assert sum(price.events for price in priced) > 100
