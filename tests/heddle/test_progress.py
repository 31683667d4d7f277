"""What long commands tell of their stages: to people at a terminal, to programs that ask, to nobody else."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from heddle.cli import progress, terminal
from heddle.cli.app import app
from heddle.cli.progress import Form, Stages, watched
from heddle.cli.terminal import PlainConsole
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.spark import SparkWorkers
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import Laboratory, steady


class Clock:
    """A second passes between two looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a terminal is sent."""
    sent = io.StringIO()
    monkeypatch.setattr(terminal, "errors", PlainConsole(file=sent, force_terminal=True, color_system=None, width=120))
    yield sent
    progress.choose(Form.auto)


def test_a_terminal_shows_the_stage_that_goes_on_and_those_that_ended(screen: io.StringIO) -> None:
    shown: list[str] = []
    report = Stages(Form.auto, shown.append, Clock())
    report("listing sources")
    report("scanning events")
    report.count(3, 12)
    report.count(3, 12)
    report.count(12, 12)
    report.of(2, 3, "the second day")
    report("running q unshared (1 of 5)")
    report.end()
    report.end()
    assert shown == [
        "listing sources",
        "scanning events",
        "scanning events, 3 of 12 tasks",
        "scanning events, 12 of 12 tasks",
        "the second day (2 of 3): running q unshared (1 of 5)",
    ]
    assert screen.getvalue().splitlines() == [
        "  listing sources  2.0 s",
        "  scanning events, 12 of 12 tasks  4.0 s",
        "  the second day (2 of 3): running q unshared (1 of 5)  2.0 s",
    ]


def test_what_took_no_time_has_no_line(screen: io.StringIO) -> None:
    report = Stages(Form.auto, lambda line: None, lambda: 7.0)
    report("listing sources")
    report.end()
    assert screen.getvalue() == ""


def test_programs_get_an_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = io.StringIO()
    monkeypatch.setattr(terminal, "errors", PlainConsole(file=sent))
    report = Stages(Form.json, lambda line: None, Clock())
    report("scanning\nevents")
    report.count(1, 2)
    report.end()
    assert list(map(json.loads, sent.getvalue().splitlines())) == [
        {"stage": "scanning\nevents", "event": "begin", "seconds": 1.0},
        {"stage": "scanning\nevents", "event": "progress", "seconds": 2.0, "done": 1, "total": 2},
        {"stage": "scanning\nevents", "event": "end", "seconds": 3.0, "done": 1, "total": 2},
    ]


@pytest.mark.parametrize("form", Form)
def test_who_is_no_terminal_is_told_nothing_unasked(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = io.StringIO()
    monkeypatch.setattr(terminal, "errors", PlainConsole(file=sent))
    progress.choose(form)
    with progress.stages("planning") as report:
        report("publishing")
    progress.choose(Form.auto)
    assert bool(sent.getvalue()) == (form is Form.json)


def tracker(*stages: tuple[int, int] | None) -> Any:
    """Spark's, of active stages with so many tasks done of so many; None: one that has just ended."""
    infos = [stage and SimpleNamespace(numCompletedTasks=stage[0], numTasks=stage[1]) for stage in stages]
    return SimpleNamespace(getActiveStageIds=lambda: range(len(infos)), getStageInfo=infos.__getitem__)


def test_tasks_are_those_of_all_active_stages() -> None:
    def done(*stages: tuple[int, int] | None) -> tuple[int, int]:
        context = SimpleNamespace(master="local", statusTracker=lambda: tracker(*stages), applicationId="", uiWebUrl="")
        return SparkWorkers(context, "run").tasks_done()  # type: ignore[arg-type]

    assert done((1, 4), None, (2, 2)) == (3, 6) and done() == (0, 0)


def test_tasks_are_watched_until_the_session_ends(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    seen = Stages(Form.auto, lambda line: None)
    seen("scanning events")
    looks = iter([(1, 9)])
    counts = []

    def count(done: int, total: int) -> None:
        counts.append((done, total))

    monkeypatch.setattr(seen, "count", count)
    before = set(progress.threading.enumerate())
    with watched(seen, lambda: next(looks)):
        for watcher in set(progress.threading.enumerate()) - before:
            watcher.join()  # it ends when nothing can be asked any more
    assert counts == [(1, 9)]


def heddle(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_commands_tell_their_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady())
    lab.plan()
    house = ("--warehouse", str(lab.warehouse.root))
    span = ("--from", "2013-07-01", "--to", "2013-07-01T02:00", "--every", "1 hour")
    with without_audit():
        code, _, stderr = heddle("--progress", "json", "backfill", *house, *span)
        assert code == 0
        begun = [event["stage"] for event in map(json.loads, stderr.splitlines()) if event["event"] == "begin"]
        second = "2013-07-01T01:00:00Z .. 2013-07-01T02:00:00Z (2 of 2): "
        names = ["listing sources", "scanning events", "answering queries", "checking the answers", "publishing"]
        assert begun[:2] == ["listing sources", "starting"] and "starting Spark" not in begun
        assert [stage for stage in begun if stage.startswith(second)] == [second + name for name in names]
        assert heddle("backfill", *house, *span)[2] == ""
        monkeypatch.setenv("HEDDLE_ENGINE", "spark")
        session = SimpleNamespace(stop=lambda: None)
        monkeypatch.setattr("spark_jobs.engine.session.start_context", lambda *arguments, **options: session)
        monkeypatch.setattr("spark_jobs.engine.choice.spark_workers", lambda *arguments: LocalWorkers())
        later = ("--from", "2013-07-01T02:00", "--to", "2013-07-01T03:00")
        lines = heddle("--progress", "json", "backfill", *house, *later)[2].splitlines()
        stages = [json.loads(line) for line in lines if line.startswith("{")]
        begun = [event["stage"] for event in stages if event["event"] == "begin"]
        assert "starting Spark" in begun and begun[-1] == "stopping Spark"
    for command in (("maintain", "--dry-run"), ("repair", "--dry-run")):
        stderr = heddle("--progress", "json", *command, *house)[2]
        assert {json.loads(line)["event"] for line in stderr.splitlines()} == {"begin", "end"}
        assert heddle("--progress", "none", *command, *house)[2] == ""
    assert heddle("--progress", "loud", "status", *house)[0] == 2


def test_planning_has_stages(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2] / "examples/sensor-readings"
    arguments = ("plan", str(root / "queries.sql"), "--streams", str(root / "streams.yaml"), "--json")
    code, out, stderr = heddle("--progress", "json", *arguments)
    begun = [event["stage"] for event in map(json.loads, stderr.splitlines()) if event["event"] == "begin"]
    assert code == 0 and json.loads(out)
    assert begun == ["reading the queries", "measuring the streams", "planning 3 queries"]
