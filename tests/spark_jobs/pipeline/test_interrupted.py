"""A run that somebody stops, or that breaks where nobody expected it: the log says so, and the next one goes on."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heddle.cli.app import app
from spark_jobs.pipeline.run import checks_stage, finals_stage, narrowing, preparation, publication, stage_tasks
from spark_jobs.store.warehouse import publish_log
from spark_jobs.windows.partials import stored_coverage
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import Laboratory, steady

STEPS: dict[str, tuple[Any, str]] = {
    "list": (preparation, "listed"),
    "fill": (stage_tasks, "write_partials"),
    "store what is complete": (stored_coverage, "store_coverage"),
    "find what changed": (narrowing, "changed_windows"),
    "answer": (finals_stage, "write_finals"),
    "check": (checks_stage, "audit"),
    "log the checks": (publication, "log_checks"),
    "publish": (publication, "publish"),
}


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write(steady())
    return laboratory


def stopped(lab: Laboratory, step: str, error: BaseException, after: bool = False) -> tuple[int, BaseException]:
    """A run that ends at a step, or after it; the plan, and how it ended."""
    with without_audit(), pytest.MonkeyPatch.context() as patch:
        version = lab.plan()
        assert lab.run(version, 0, 60, "before").status == "published"
        lab.write([*steady(), (30.5, "A", 1.0, 5)])
        owner, name = STEPS[step]
        original = getattr(owner, name)

        def ending(*arguments: Any, **options: Any) -> Any:
            if after:
                original(*arguments, **options)
            raise error

        patch.setattr(owner, name, ending)
        with pytest.raises(type(error)) as ended:
            lab.run(version, 0, 60, "stopped")
    return version, ended.value


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_run_is_on_record_and_nothing_was_published(step: str, lab: Laboratory) -> None:
    version, ended = stopped(lab, step, KeyboardInterrupt())
    assert str(ended) == "nothing was published"
    allocated = [row for row in lab.log("allocated") if row["run_id"] == "stopped"]
    failed = [json.loads(row["record"])["diagnostics"] for row in lab.log("failed")]
    # one that had no revision yet is not in the log at all
    assert len(failed) == len(allocated) == (step != "list")
    assert all(
        [(diagnostic["code"], diagnostic["message"]) for diagnostic in diagnostics] == [("HDL-903", "interrupted")]
        for diagnostics in failed
    )
    assert len(lab.log("published")) == 1
    with without_audit():
        assert lab.run(version, 0, 60, "again").status == "published" and lab.wrong(version, 0, 60) == []


def test_a_publication_that_stands_is_not_told_to_have_failed(lab: Laboratory) -> None:
    version, ended = stopped(lab, "publish", KeyboardInterrupt(), after=True)
    assert str(ended) == "it was published" and lab.log("failed") == [] and len(lab.log("published")) == 2
    with without_audit():
        assert lab.run(version, 0, 60, "again").status == "unchanged" and lab.wrong(version, 0, 60) == []


@pytest.mark.parametrize("step", ("answer", "check", "publish"))
def test_a_run_that_breaks_has_an_end_with_a_reason(step: str, lab: Laboratory) -> None:
    version, _ = stopped(lab, step, ZeroDivisionError("a bug"))
    (failed,) = lab.log("failed")
    (diagnostic,) = json.loads(failed["record"])["diagnostics"]
    assert (
        diagnostic["code"] == ("HDL-531" if step == "check" else "HDL-900")
        and "ZeroDivisionError: a bug" in diagnostic["message"]
    )
    with without_audit():
        assert lab.run(version, 0, 60, "again").status == "published" and lab.wrong(version, 0, 60) == []


def test_a_log_that_cannot_be_written_hides_no_error(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish_log, "log_event", full)
    with without_audit():
        version = lab.plan()
        monkeypatch.setattr(finals_stage, "write_finals", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lab.run(version, 0, 60)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("status",), "interrupted\n"),
        (("tick", "--at", "2013-07-03"), "interrupted: nothing was published\n"),
        (("repair",), "interrupted: nothing was published\n"),
    ],
)
def test_the_command_line_says_that_it_was_interrupted(
    command: tuple[str, ...], said: str, lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.store.warehouse.warehouse import Warehouse

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Warehouse, "open", interrupted)
    done = CliRunner().invoke(app, [*command, "--warehouse", str(lab.warehouse.root)])
    assert (done.exit_code, done.stderr) == (130, said)


class PanicException(BaseException):
    """As Rust code panics in Python."""


@pytest.mark.parametrize("error", (ZeroDivisionError("a bug"), PanicException("a bug")))
@pytest.mark.parametrize("debug", (False, True))
def test_the_command_line_tells_of_what_nobody_foresaw(
    error: BaseException, debug: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.store.warehouse.warehouse import Warehouse

    def broken(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(Warehouse, "open", broken)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HEDDLE_DEBUG", "")
    done = CliRunner().invoke(app, [*(["--debug"] if debug else []), "status", "--warehouse", "house"])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert f"error HDL-900 {type(error).__name__}: a bug\n    hint: " in done.stderr
    assert ("Traceback" in done.stderr) == debug and len(list(tmp_path.iterdir())) == (not debug)
