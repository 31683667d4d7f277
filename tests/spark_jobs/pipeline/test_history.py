"""Backfills, repairs of what came late, and plans taken back: the same answers, and only what is needed is run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from spark_jobs.jobs.repair_results import main
from spark_jobs.pipeline.run.history import chunks, outdated, prices
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.publish_log import LogRow, publications, standing
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Laboratory, serve_commands, steady

if TYPE_CHECKING:
    pass

NOW = DAY + 10 * 1440 * MINUTE


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 10**5))
def test_chunks_tile_an_interval_at_the_same_places(begin: int, length: int, every: int) -> None:
    every = max(every, length // 50 + 1)
    spans = list(chunks(begin, begin + length, every))
    assert spans[0][0] == begin and spans[-1][1] == begin + length
    assert all(first[1] == second[0] and first[1] % every == 0 for first, second in zip(spans, spans[1:], strict=False))
    assert all(0 < last - first <= every for first, last in spans)


def test_an_empty_backfill_is_refused() -> None:
    with pytest.raises(HeddleError, match="HDL-504"):
        list(chunks(5, 5))
    with pytest.raises(HeddleError, match="longer --every"):
        list(chunks(0, 10**18, 10))


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    lab = Laboratory(engine, tmp_path)
    lab.write(steady(180))
    lab.write([], "quotes")
    serve_commands(engine, monkeypatch)
    return lab


def heddle(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def at(minute: int) -> str:
    return f"2013-07-01T{minute // 60:02}:{minute % 60:02}"


def test_a_backfill_says_its_price_and_goes_on_where_it_was(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    house = str(laboratory.warehouse.root)
    command = ("backfill", "--warehouse", house, "--from", at(30), "--to", at(170), "--every", "1 hour")
    code, out = heddle(*command, "--dry-run", "--json")
    runs = json.loads(out)["runs"]
    assert code == 0 and laboratory.log("published") == []
    assert [(run["begin"] - DAY) // MINUTE for run in runs] == [30, 60, 120]
    assert not any(run["published"] for run in runs) and all(run["cpu_seconds"] > 0 for run in runs)
    # the first run reads the history of its windows besides
    assert runs[0]["events"] >= 30
    # cut off after the first run
    laboratory.run(version, 30, 60)
    run_prices = prices(laboratory.warehouse, version, DAY + 30 * MINUTE, DAY + 170 * MINUTE, NOW, 60 * MINUTE)
    assert [price.published for price in run_prices] == [True, False, False] and run_prices[0].events == 0
    assert heddle(*command)[0] == 0
    assert [row["revision"] for row in laboratory.log("published")] == [1, 1, 1]
    assert laboratory.wrong(version, 30, 170) == []
    code, out = heddle(*command)
    assert code == 0 and "0 runs, about 0 events" in out and len(laboratory.log("published")) == 3


def test_repair_publishes_again_what_changed_and_nothing_else(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    house = str(laboratory.warehouse.root)
    for begin in (0, 60, 120):
        laboratory.run(version, begin, begin + 60, f"run {begin}")
    assert outdated(laboratory.warehouse, NOW) == []
    assert "as they are" in heddle("repair", "--warehouse", house)[1]
    laboratory.write([*steady(180), (100.5, "A", 7.0, 5), (100.5, "C", 1.0, 1)])
    intervals = outdated(laboratory.warehouse, NOW)
    # one file, rewritten: whatever it may hold has changed; each interval is told with what may be others now
    assert {(interval.begin - DAY) // MINUTE for interval in intervals} >= {60, 120}
    assert intervals[0].radius.queries == ("by_symbol", "all") and intervals[0].radius.files == 2
    before = laboratory.versions()
    code, out = heddle("repair", "--warehouse", house, "--dry-run", "--json")
    assert code == 0 and len(json.loads(out)["outdated"]) == len(intervals) and laboratory.versions() == before
    assert laboratory.wrong(version, 0, 180) != []
    assert heddle("repair", "--warehouse", house)[0] == 0
    assert laboratory.wrong(version, 0, 180) == []
    assert outdated(laboratory.warehouse, NOW) == []
    assert len(standing(publications(laboratory.warehouse))) == 3


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=12))
def test_what_stands_is_what_no_later_publication_covers(spans: list[tuple[int, int]]) -> None:
    rows = [
        LogRow(begin, begin + length, 1, "run", "published", 1, None, 0, number, number)
        for number, (begin, length) in enumerate(spans)
    ]
    expected = [
        row.at
        for row in rows
        if not any(other.begin <= row.begin and other.end >= row.end for other in rows[row.at + 1 :])
    ]
    assert sorted(row.at for row in standing(rows)) == expected


def test_the_job_of_the_dag_ends_its_log_with_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    late = SimpleNamespace(begin=0, end=DAY, radius="one day")
    failed = Diagnostic("HDL-602", "too many groups", query="busy")
    record = SimpleNamespace(diagnostics=[failed.to_json()], to_json=dict)
    outcomes = iter([record, HeddleError("HDL-541", "another run has published")])

    def run(*_: object) -> object:
        if isinstance(outcome := next(outcomes), HeddleError):
            raise outcome
        return outcome

    for name, replacement in {
        "store.warehouse.warehouse.Warehouse": SimpleNamespace(open=lambda *_, **__: None),
        "pipeline.planning.project_streams.of_project": lambda *_: None,
        "store.warehouse.publish_log.lost_publications": lambda *_: [],
        "pipeline.run.history.outdated": lambda *_: [late, SimpleNamespace(begin=DAY, end=2 * DAY, radius="one day")],
        "engine.choice.Engine": lambda *_, **__: SimpleNamespace(stop=lambda: print("stopped")),
        "pipeline.run.interval.run": run,
    }.items():
        monkeypatch.setattr(f"spark_jobs.{name}", replacement)
    assert main(["--warehouse", "w", "--plan-version", "1", "--days", "1"]) == 1
    out, stderr = capfd.readouterr()
    assert out.endswith("stopped\n")
    assert stderr == "error HDL-602 [busy] too many groups\nerror HDL-541 another run has published\n"


def test_the_job_of_the_dag_repairs_what_is_recent(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    version = laboratory.plan()
    laboratory.run(version, 0, 60)
    laboratory.write([*steady(180), (30.5, "A", 7.0, 5)])
    house = ["--warehouse", str(laboratory.warehouse.root), "--plan-version", str(version)]
    assert main([*house, "--days", "1"]) == 0 and laboratory.wrong(version, 0, 60) != []
    assert main([*house, "--days", "100000"]) == 0 and laboratory.wrong(version, 0, 60) == []


def test_a_later_publication_stands_for_what_it_covers(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    laboratory.run(version, 0, 60, "a")
    laboratory.run(version, 60, 120, "b")
    laboratory.run(version, 0, 120, "both")
    assert [row.run_id for row in standing(publications(laboratory.warehouse))] == ["both"]
    # a new plan makes nothing outdated
    laboratory.plan(QUERIES.replace("25 minutes", "35 minutes"))
    assert outdated(laboratory.warehouse, NOW) == []


def test_rollback_takes_the_earlier_plan_as_a_new_version(laboratory: Laboratory) -> None:
    first = laboratory.plan()
    laboratory.run(first, 30, 90)
    second = laboratory.plan(QUERIES.replace("25 minutes", "35 minutes"))
    house = str(laboratory.warehouse.root)
    code, out = heddle("rollback", str(first), "--warehouse", house, "--dry-run")
    assert code == 0 and "by_symbol" in out and current_version(laboratory.warehouse) == second
    code, out = heddle("rollback", str(first), "--warehouse", house, "--reason", "slower", "--json")
    report = json.loads(out)
    assert (report["from"], report["to"], report["version"]) == (second, first, 3)
    assert load_plan(laboratory.warehouse, 3).fingerprint == load_plan(laboratory.warehouse, first).fingerprint
    # what its synopses hold is used again, and the answers are those of before
    assert laboratory.run(3, 30, 90, "again").status == "unchanged"
    assert heddle("rollback", "9", "--warehouse", house)[0] != 0
