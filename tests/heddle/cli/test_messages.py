"""What commands take from their arguments, and what they print of results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from heddle.cli import importing, intervals, plan
from heddle.cli.app import app
from heddle.cli.importing import _text
from heddle.cli.intervals import _missing
from heddle.cli.options import PlanFormat, _said_warehouse
from heddle.cli.start import MISMATCHES_SHOWN, _about
from heddle.cli.tables import _done
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import DAY


@pytest.mark.parametrize(
    ("params", "given", "warehouse"),
    [
        ({}, None, "of the project"),
        ({}, "mine", "mine"),
        ({"files": ["a"]}, None, None),
        ({"windows": "b"}, None, None),
    ],
)
def test_files_and_windows_need_no_warehouse(
    params: dict[str, Any], given: str | None, warehouse: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.store.settings.said", lambda name: "of the project")
    assert _said_warehouse(SimpleNamespace(params=params), given) == warehouse  # type: ignore[arg-type]


def test_a_job_of_too_many_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.migration.importing.FILE_BYTES", 8)
    (tmp_path / "job.sql").write_text("SELECT 1")
    assert importing._text(str(tmp_path / "job.sql")) == "SELECT 1"
    (tmp_path / "job.sql").write_text("SELECT 1;")
    with pytest.raises(HeddleError, match="HDL-111"):
        _text(str(tmp_path / "job.sql"))


@pytest.mark.parametrize(
    ("begin", "end", "command"),
    [
        (None, None, "e.g. heddle run --from 1970-01-03 --to 1970-01-04"),
        ("1970-01-02", None, "e.g. heddle run --to 1970-01-04"),
        ("1970-01-05", None, "e.g. heddle run --to 1970-01-06"),
        (None, "1970-01-02", "e.g. heddle run --from 1970-01-01"),
    ],
)
def test_an_interval_is_proposed_of_the_newest_day(
    begin: str | None, end: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "_command", lambda context: ["heddle", "run"])
    monkeypatch.setattr(
        "spark_jobs.pipeline.planning.requested.load_inputs", lambda files, streams: SimpleNamespace(workload=None)
    )
    covered = [("trades: two days and a half", 2 * DAY + DAY // 2), ("quotes: none", None)]
    monkeypatch.setattr("spark_jobs.operations.preview.spans_of_data", lambda workload: covered)
    error = _missing(None, [], Path("streams.yaml"), begin, end)  # type: ignore[arg-type]
    assert error.diagnostic.code == "HDL-477" and error.diagnostic.hint == command


def test_dropping_a_table_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr("heddle.cli.tables.existing_warehouse", lambda warehouse: "warehouse")
    monkeypatch.setattr("spark_jobs.results.table_upkeep.drop", lambda warehouse, name: dropped.append(name))
    monkeypatch.setattr("spark_jobs.results.table_upkeep.table_listings", lambda warehouse, problems: ["listing"])
    with pytest.raises(HeddleError, match="HDL-527"):
        _done("w", None, "sums", yes=False)
    assert not dropped
    assert _done("w", None, "sums", yes=True) == (["listing"], False) and dropped == ["sums"]


def test_copies_are_listed_or_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SimpleNamespace(severity="error", code="HDL-433", message="no", hint="", file=None, line=0, column=0)
    streams = tmp_path / "streams.yaml"
    streams.write_text("streams: {}\n")
    results: list[tuple[list[str], list[Any]]] = [(["trades: 3 rows"], []), ([], []), ([], [problem])]
    outputs = []
    monkeypatch.setattr("heddle.cli.landing.print_diagnostics", lambda problems: None)
    for result in results:
        monkeypatch.setattr("spark_jobs.streams.copies.readers.bring_named", lambda *arguments, result=result: result)
        done = CliRunner().invoke(app, ["copy", "--streams", str(streams)])
        outputs.append((done.exit_code, "trades: 3 rows" in done.output, "no stream has a copy" in done.output))
    assert outputs == [(0, True, False), (0, False, True), (1, False, False)]


def test_a_preview_lists_answers_that_differ_from_published_ones() -> None:
    def mismatch(kind: str) -> Any:
        return SimpleNamespace(kind=kind, lines=lambda: [f"{kind}: here", f"{kind}: there"])

    published = SimpleNamespace(mismatches=[mismatch("missing"), *[mismatch("differs")] * (MISMATCHES_SHOWN + 1)])
    shown: Any = SimpleNamespace(incomplete=0, published=published)
    assert _about(shown, is_compared=False) == ["differs: here", "differs: there"] * MISMATCHES_SHOWN
    shown.published = None
    assert _about(shown, is_compared=True) == ["published: nothing, the warehouse has no such query"]


def test_a_plan_is_printed_where_no_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[Any] = []
    monkeypatch.setattr(plan, "show_plan", printed.append)
    shown: Any = SimpleNamespace(data={"trees": []}, break_even="")
    plan._deliver_plan(shown, PlanFormat.text, None)
    assert printed == [{"trees": []}]
