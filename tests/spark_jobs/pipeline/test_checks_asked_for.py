"""How much of a run's answers is checked is asked for, kept with the run, and told to who reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heddle.cli.app import app
from heddle.pages import operations, query
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.audit.checks import audit as audit_module
from spark_jobs.operations.answers import read_query
from spark_jobs.operations.read import read_operations
from spark_jobs.pipeline.run import checks_stage
from spark_jobs.store.warehouse import publish_log
from tests.chaos.orders import in_process
from tests.spark_jobs.laboratory import Laboratory, steady


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write(steady())
    return laboratory


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the audit was asked for: ``inspected`` all answers, ``recomputed`` a sample."""
    requested: list[str] = []

    def note(what: str) -> Any:
        return lambda *arguments, **options: requested.append(what) or [{"check": what, "success": True, "detail": ""}]

    monkeypatch.setattr(audit_module.suite, "expectations", note("inspected"))
    monkeypatch.setattr(audit_module, "recomputed", note("recomputed"))
    monkeypatch.setattr(audit_module, "recomputed_rows", lambda *arguments: [])
    monkeypatch.delenv("HEDDLE_CHECKS", raising=False)
    return requested


def heddle(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("level", "made"), [(None, ["inspected", "recomputed"]), ("all", ["inspected", "recomputed"]), ("none", [])]
)
def test_a_run_checks_what_is_asked_for(level: str | None, made: list[str], lab: Laboratory, asked: list[str]) -> None:
    record = lab.run(lab.plan(), 0, 60, checks=level)
    assert asked == made == [check["check"] for check in record.checks]
    assert record.checked == (level or "all") and record.status == "published"
    assert ("HDL-532" in [diagnostic["code"] for diagnostic in record.diagnostics]) == (level == "none")


def test_a_sample_is_recomputed_and_no_more(lab: Laboratory, asked: list[str]) -> None:
    assert lab.run(lab.plan(), 0, 60, checks="sample").checked == "sample" and asked == ["recomputed"]


def test_the_setting_says_what_nobody_asked_for(
    lab: Laboratory, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_CHECKS", "none")
    version = lab.plan()
    assert lab.run(version, 0, 60).checked == "none" and asked == []
    assert lab.run(version, 60, 120, "other", checks="sample").checked == "sample"
    monkeypatch.setenv("HEDDLE_CHECKS", "some")
    with pytest.raises(HeddleError, match="HDL-120 HEDDLE_CHECKS is 'some'"):
        lab.run(version, 0, 60)


def test_who_asks_for_more_has_all_of_it_checked(lab: Laboratory, asked: list[str]) -> None:
    version = lab.plan()
    assert lab.run(version, 0, 60, checks="none").revision == 1
    assert lab.run(version, 0, 60, "again", checks="none").status == "unchanged"
    record = lab.run(version, 0, 60, "checked")
    assert (record.status, record.revision, record.checked, record.narrow) == ("published", 2, "all", False)
    assert lab.run(version, 0, 60, "once more", checks="none").status == "unchanged"
    assert asked == ["inspected", "recomputed"] and lab.wrong(version, 0, 60) == []
    assert publish_log.unchecked(lab.warehouse) == []


def test_readers_are_told(lab: Laboratory, asked: list[str]) -> None:
    version, house = lab.plan(), ("--warehouse", str(lab.warehouse.root))
    lab.run(version, 0, 60, checks="none")
    lab.run(version, 60, 120, "other")
    code, out, stderr = heddle("read", "by_symbol", *house)
    line = "note: 2013-07-01T00:00:00Z .. 2013-07-01T01:00:00Z was published with --checks none"
    assert code == 0 and stderr.splitlines() == [line] and "by_symbol" in out
    unchecked = json.loads(heddle("read", "by_symbol", *house, "--json")[1])["unchecked"]
    assert unchecked == [{"begin": "2013-07-01T00:00:00Z", "end": "2013-07-01T01:00:00Z", "checks": "none"}]
    assert heddle("read", "by_symbol", *house, "--from", "2013-07-01T01:00:00")[2] == ""
    assert "unchecked" not in json.loads(heddle("read", "all", *house, "--json", "--from", "2013-07-01T01:00")[1])
    code, out, stderr = heddle("status", *house)
    assert " none " in out and "warning HDL-532" in stderr
    assert [run["checked"] for run in json.loads(heddle("status", *house, "--json")[1])["runs"]] == ["all", "none"]


def test_pages_tell_of_them(lab: Laboratory, asked: list[str]) -> None:
    lab.run(lab.plan(), 0, 60, checks="none")
    view = read_operations(lab.warehouse)
    assert [run.checked for run in view.runs] == ["none"] and "<td>none</td>" in operations.page(view)
    assert "unchecked" in query.page(read_query(lab.warehouse, "by_symbol"))


def test_an_earlier_record_was_of_checked_answers(lab: Laboratory, asked: list[str]) -> None:
    stored = lab.run(lab.plan(), 0, 60).to_json()
    del stored["checked"]
    assert publish_log.RunRecord.from_json(stored).checked == "all"


def test_commands_take_it(lab: Laboratory, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lab.plan()
    house = ("--warehouse", str(lab.warehouse.root))
    span = ("--from", "2013-07-01", "--to", "2013-07-01T02:00", "--every", "1 hour")
    code, out, _ = heddle("backfill", *house, *span, "--checks", "none", "--json")
    assert code == 0 and [record["checked"] for record in json.loads(out)["records"]] == ["none", "none"]
    later = ("--from", "2013-07-01T02:00", "--to", "2013-07-01T02:30")
    code, out, _ = heddle("backfill", *house, *later, "--checks", "sample", "--json")
    assert code == 0 and [record["checked"] for record in json.loads(out)["records"]] == ["sample"]
    assert asked == ["recomputed"] and checks_stage.UNCHECKED.severity == "warning"
    assert heddle("tick", *house, "--checks", "some")[0] == 2


def test_the_newest_windows_come_first(lab: Laboratory, asked: list[str]) -> None:
    lab.run(lab.plan(), 0, 120)
    house = ("--warehouse", str(lab.warehouse.root))
    rows = json.loads(heddle("read", "by_symbol", *house, "--json")[1])["rows"]
    last = json.loads(heddle("read", "by_symbol", *house, "--last", "2", "--json")[1])["rows"]
    ends = sorted({row["window_end"] for row in rows})
    assert last == [row for end in (ends[-1], ends[-2]) for row in rows if row["window_end"] == end] and len(last) == 4
    assert len(json.loads(heddle("read", "by_symbol", *house, "--last", "500", "--json")[1])["rows"]) == len(rows)
    assert heddle("read", "by_symbol", *house, "--last", "0")[0] == 2
