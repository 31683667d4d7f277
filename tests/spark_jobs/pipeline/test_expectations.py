"""A query whose answers are not what its owner expects keeps its former answers; all others are published."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heddle.cli.run import exit_code_of
from heddle.pages import data_docs
from heddle.pages import query as query_page
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.expectations import with_expectations
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.expectations import Expectation
from optimizer.workload.values import Source, Stream, Workload
from spark_jobs.audit.checks import judging
from spark_jobs.audit.checks.data_docs import FOLDER, document_file, read_document
from spark_jobs.audit.checks.expected import Judged
from spark_jobs.jobs import aggregate_windows, repair_results
from spark_jobs.operations.alerts import view_alerts
from spark_jobs.operations.answers import read_query
from spark_jobs.operations.scrape import statistics_of
from spark_jobs.operations.series import Span
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import checks_stage, publication, stream_events
from spark_jobs.pipeline.run.interval import run
from spark_jobs.pipeline.run.release import blocked_answers, release_request
from spark_jobs.results.read import check_answered, read
from spark_jobs.store.warehouse import publish_log
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, SCHEMA, Laboratory, outdated, steady, table_of

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "fixtures/metric_cases.json").read_text(encoding="utf-8"))
}

BLOCKED, WARNED = "HDL-539", "HDL-565"

BODY = {
    "prices": "SELECT symbol, max(price) AS high FROM trades WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts "
    "GROUP BY symbol",
    "counts": "SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts "
    "GROUP BY symbol",
    "total": "SELECT sum(volume) AS total FROM trades WINDOW RANGE '30 minutes' SLIDE '10 minutes' ON ts",
}


def text_of(**expectations: str | list[str]) -> str:
    """The workload, each query with its lines of expectations."""
    pieces = []
    for name, body in BODY.items():
        lines = expectations.get(name, [])
        lines = [lines] if isinstance(lines, str) else lines
        pieces += [*(f"-- expect{line if line.startswith((' (', ':')) else ': ' + line}" for line in lines)]
        pieces += [f"-- name: {name}", body + ";"]
    # headers follow the statement before, so the name comes first
    text, block = [], []
    for piece in pieces:
        if piece.startswith("-- name"):
            text += [piece, *block]
            block = []
        elif piece.startswith("-- expect"):
            block.append(piece)
        else:
            text.append(piece)
    return "\n".join(text)


def codes(record: Any) -> list[tuple[str, str]]:
    return [(each["code"], each["query"]) for each in record.diagnostics]


@pytest.fixture
def lab(engine: Any, tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady())
    return laboratory


def instants(lab: Laboratory, name: str) -> list[float]:
    ends = [row["window_end"].timestamp() for row in read(lab.warehouse, name).to_pylist()]
    return sorted({(at * 1e6 - DAY) / MINUTE for at in ends})


def test_a_block_keeps_one_query_back_and_a_warning_none(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="high < 100.5", counts=" (warn): n > 1000", total="rows between 1 and 100"))
    record = lab.run(version, 60, 120, "run-1")
    assert record.status == "published" and not record.has_failed
    assert record.blocked == {"prices": ["high < 100.5"]}
    assert codes(record) == [(BLOCKED, "prices"), (WARNED, "counts")]
    assert "symbol=" in record.diagnostics[0]["message"] and "not as expected" in record.diagnostics[0]["message"]
    assert instants(lab, "prices") == [] and instants(lab, "counts") == instants(lab, "total") == [*range(70, 121, 10)]
    rows = lab.warehouse.rows("quality_results")
    by_check = {row["check"]: row for row in rows if row["query"]}
    assert {row["query"]: row["success"] for row in by_check.values()} == {
        "prices": False,
        "counts": False,
        "total": True,
    }
    assert by_check["expect(rows between 1 and 100)"]["observed"] == 6 == len(lab.rows("total"))
    assert (
        by_check["expect(high < 100.5)"]["severity"] == "block" and by_check["expect(high < 100.5)"]["unexpected"] > 0
    )

    # the next interval is judged on its own, and a run over the same one judges again
    assert lab.run(version, 50, 60, "run-2").blocked == {"prices": ["high < 100.5"]}
    again = lab.run(version, 60, 120, "run-1")
    assert (again.status, again.revision, again.blocked) == ("published", 2, {"prices": ["high < 100.5"]})
    assert again.narrow and lab.run(version, 60, 120, "run-1").revision == 3


def test_a_changed_expectation_applies_from_the_next_run_on_and_publishes_what_was_blocked(lab: Laboratory) -> None:
    first = lab.plan(text_of(prices="high < 100.5"))
    lab.run(first, 60, 120, "run-1")
    changed = lab.plan(text_of(prices="high < 1000"))
    assert changed == first  # the same plan: an expectation changes no answer
    record = lab.run(changed, 60, 120, "run-1")
    assert (record.status, record.revision, record.blocked) == ("published", 2, {})
    assert record.narrow and lab.wrong(first, 60, 120) == []
    assert lab.run(changed, 60, 120, "run-1").status == "unchanged"


def test_what_is_blocked_is_repaired_with_what_came_late(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="max(high) > 200"))
    lab.run(version, 0, 60, "run-0")
    lab.run(version, 60, 120, "run-1")
    (stale, again) = outdated(lab.warehouse, DAY + 500 * MINUTE)
    assert [each.radius.blocked for each in (stale, again)] == [("prices",), ("prices",)]
    lab.write([*steady(), (70.5, "A", 900.0, 1)])
    record = lab.run(version, 60, 120, "run-2")
    assert record.blocked == {}
    assert not [line for line in lab.wrong(version, 0, 120) if not line.startswith("prices: window 2013-07-01T00")]
    assert instants(lab, "prices") == [*range(70, 121, 10)]
    (stale,) = outdated(lab.warehouse, DAY + 500 * MINUTE)
    assert stale.radius.blocked == ("prices",)


def test_a_narrow_revision_is_judged_with_the_answers_that_stay(lab: Laboratory) -> None:
    # a file each, so that the late event is all that changes
    lab.source().unlink()
    lab.source().mkdir()
    pq.write_table(table_of(steady()), lab.source() / "1.parquet")
    version = lab.plan(text_of(prices=["rows = 12", "mean(high) < 150"]))
    assert lab.run(version, 60, 120, "run-1").blocked == {}
    pq.write_table(table_of([(70.5, "A", 2000.0, 1)]), lab.source() / "2.parquet")
    record = lab.run(version, 60, 120, "run-2")
    assert record.narrow and record.blocked == {"prices": ["mean(high) < 150"]}
    (row,) = [row for row in lab.warehouse.rows("quality_results") if row["revision"] == 2 and row["bound"] == "12"]
    assert row["observed"] == 12
    before = lab.rows("prices")
    assert len(before) == 12 and max(row["high"] for row in before) < 200


def test_a_crash_between_the_commit_and_its_log_keeps_what_is_blocked(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    log = publish_log.log_event

    def crash(*arguments: Any) -> None:
        if arguments[2] == "published":
            raise RuntimeError("power cut")
        log(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(publish_log, "log_event", crash)
        with pytest.raises(RuntimeError, match="power cut"):
            lab.run(version, 60, 120, "run-1")
    retried = lab.run(version, 60, 120, "run-1")
    # it is no publication of everything: what is blocked is judged again
    assert (retried.status, retried.revision, retried.blocked) == ("published", 2, {"prices": ["high < 100.5"]})
    first, _ = lab.log("published")
    assert '"blocked": {"prices"' in first["record"]


def test_a_crash_between_judging_and_publishing_goes_on_under_the_same_revision(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    with monkeypatch.context() as patch:
        patch.setattr(checks_stage, "CheckedRun", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lab.run(version, 60, 120, "run-1")
    assert lab.log("published") == []
    retried = lab.run(version, 60, 120, "run-1")
    assert (retried.revision, retried.blocked) == (1, {"prices": ["high < 100.5"]})
    assert instants(lab, "counts") == [*range(70, 121, 10)] and instants(lab, "prices") == []


# ------------------------------------------------------------------------------------------------- release
def released(lab: Laboratory, query: str, reason: str = "a holiday", **options: Any) -> Any:
    blocked, request = release_request(lab.warehouse, query, reason, **options)
    return run(
        lab.spark,
        lab.warehouse,
        blocked.plan_version,
        blocked.begin,
        blocked.end,
        "release",
        release=request,
    )


def test_a_release_publishes_what_was_blocked_of_one_query(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="high < 100.5", counts="n > 1000"))
    lab.run(version, 60, 120, "run-1")
    assert [(each.query, each.revision) for each in blocked_answers(lab.warehouse)] == [("counts", 1), ("prices", 1)]
    record = released(lab, "prices")
    assert (record.revision, record.blocked) == (2, {"counts": ["n > 1000"]})
    assert record.released == {"prices": "a holiday"}
    assert ("HDL-567", "prices") in codes(record) and ("HDL-539", "prices") not in codes(record)
    assert instants(lab, "prices") == [*range(70, 121, 10)] and instants(lab, "counts") == []
    assert [each.query for each in blocked_answers(lab.warehouse)] == ["counts"]
    released(lab, "counts", revision=2)
    assert lab.wrong(version, 60, 120) == [] and blocked_answers(lab.warehouse) == []
    # what is released stays so: a run finds nothing to do
    assert lab.run(version, 60, 120, "run-1").status == "unchanged"


def test_a_release_is_of_one_revision_and_needs_a_reason(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    lab.run(version, 0, 60, "run-0")
    lab.run(version, 60, 120, "run-1")
    span = (DAY + 60 * MINUTE, DAY + 120 * MINUTE)
    refused: list[dict[str, Any]] = [
        {"query": "prices", "reason": " ", "interval": span},
        {"query": "prices"},
        {"query": "price"},
        {"query": "prices", "interval": (0, 1)},
        {"query": "prices", "interval": span, "revision": 7},
    ]
    for options in refused:
        with pytest.raises(HeddleError, match="HDL-568"):
            released(lab, **options)
    blocked, request = release_request(lab.warehouse, "prices", "why", span)
    lab.write([*steady(), (70.5, "A", 900.0, 1)])
    with pytest.raises(HeddleError, match="HDL-568"):
        run(lab.spark, lab.warehouse, version, blocked.begin, blocked.end, "release", release=request)
    assert instants(lab, "prices") == []


def test_the_owner_is_alerted_until_the_answers_are_published(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    lab.run(version, 60, 120, "run-1")
    now = publish_log.now_micros()
    (condition,) = [each for each in view_alerts(lab.warehouse, now).current if each.kind == "blocked"]
    assert (condition.query, condition.code, condition.kind) == ("prices", BLOCKED, "blocked")
    assert "high < 100.5" in condition.message
    released(lab, "prices")
    assert [each for each in view_alerts(lab.warehouse, now + 10**6).current if each.kind == "blocked"] == []


def test_exit_code_3_says_that_all_else_is_published(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    record = lab.run(version, 60, 120, "run-1").to_json()
    assert exit_code_of([record]) == 3
    assert exit_code_of([record | {"diagnostics": []}]) == 0
    failed = {"severity": "error", "code": "HDL-602", "query": "x"}
    assert exit_code_of([record, record | {"diagnostics": [failed]}]) == 1


@settings(max_examples=examples(4, 30), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_blocks_isolate_queries_whatever_is_run_repaired_and_released(engine: Any, data: st.DataObject) -> None:
    """Published is of each query what it was when it was last not blocked, over runs, retries, repairs, releases."""
    with TemporaryDirectory() as folder:
        lab = Laboratory(engine, Path(folder))
        events = steady()
        lab.write(events)
        published: dict[tuple[str, int], list[Any]] = {}
        for step in range(data.draw(st.integers(2, 5))):
            bad = data.draw(st.sets(st.sampled_from(sorted(BODY))))
            version = lab.plan(text_of(**{name: "rows > 1000" if name in bad else "rows > 0" for name in BODY}))
            action = data.draw(st.sampled_from(("run", "late", "release", "again")))
            begin = data.draw(st.sampled_from((0, 60)))
            if action == "late":
                events = [*events, (begin + 30.5 + step / 10, "A", 100.0 + step, 1)]
                lab.write(events)
            blocked = blocked_answers(lab.warehouse)
            if action == "release" and blocked:
                chosen = data.draw(st.sampled_from(blocked))
                try:
                    released(lab, chosen.query, interval=(chosen.begin, chosen.end))
                    answers = answers_of(lab, chosen.query, chosen.begin, chosen.end)
                    published[chosen.query, (chosen.begin - DAY) // MINUTE] = answers
                except HeddleError as error:
                    assert error.code == "HDL-568"
                continue
            record = lab.run(version, begin, begin + 60, f"run-{step}")
            if record.status == "unchanged":
                continue
            judged = set(BODY) if not record.narrow else None
            for name in BODY:
                now = answers_of(lab, name, DAY + begin * MINUTE, DAY + (begin + 60) * MINUTE)
                if name in record.blocked:
                    assert now == published.get((name, begin), []), name
                else:
                    published[name, begin] = now
                    assert now and (judged is None or name not in bad)


def answers_of(lab: Laboratory, name: str, begin: int, end: int) -> list[Any]:
    return read(lab.warehouse, name, begin, end).to_pylist()


# ------------------------------------------------------------------------------------------ records and pages
def test_observed_values_are_recorded_for_passes_and_drawn_on_the_page(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices=["mean(high) < 1000", "rows > 1000"]))
    for begin in (0, 40, 80):
        lab.run(version, begin, begin + 40, f"run-{begin}")
    broken, met = read_query(lab.warehouse, "prices", Span("all")).expected
    assert (met.is_met, broken.is_met, broken.bound) == (True, False, "> 1000")
    assert [sample.value for sample in broken.samples] == [8.0, 8.0, 8.0] and len(met.samples) == 3
    released(lab, "prices", interval=(DAY, DAY + 40 * MINUTE))
    page = query_page.page(read_query(lab.warehouse, "prices", Span("all")))
    assert "rows &gt; 1000" in page and "blocked" in page and "a holiday" in page and "data-docs/" in page
    (name,) = re.findall(r"data-docs/([0-9a-f]+\.html)", page)[:1]
    file = document_file(lab.warehouse.place / FOLDER, name)
    assert file is not None
    docs = data_docs.page(read_document(file))
    assert "high" in docs and "Unsuccessful Expectations" in docs and "HDL-557" not in docs


# ---------------------------------------------------------------------------------------------------- volume
def test_e2_the_volume_of_a_week_before(engine: Any, tmp_path: Path) -> None:
    case = CASES["E2"]
    lab, day = Laboratory(engine, tmp_path), 1440
    first = datetime.fromisoformat("2026-01-05").replace(tzinfo=UTC)
    events = []
    for date, rows in case["input"]["rows published by interval"]["rows"]:
        at = (datetime.fromisoformat(date).replace(tzinfo=UTC) - first).days * day
        events += [(at + 1.0, f"s{number}", 1.0, 1) for number in range(rows)]
    lab.write(events)
    lines = "\n".join(case["expectations"])
    version = lab.plan(
        f"{lines}\n-- name: daily\nSELECT symbol, count(*) AS n FROM trades "
        "WINDOW RANGE '1 day' SLIDE '1 day' ON ts GROUP BY symbol;"
    )
    days = [row[0] for row in case["input"]["rows published by interval"]["rows"]]
    for date in days:
        begin = (datetime.fromisoformat(date).replace(tzinfo=UTC) - first).days * day
        lab.run(version, begin, begin + day, f"run-{date}")
    rows = {row["interval_start"]: row for row in lab.warehouse.rows("quality_results") if row["query"]}
    for expected in case["expected"]:
        begin = (datetime.fromisoformat(expected["interval"]).replace(tzinfo=UTC) - first).days * day
        row = rows[datetime.fromtimestamp((DAY + begin * MINUTE) / 1e6, UTC)]
        assert row["success"] == expected["success"]
        assert row["observed"] == (None if expected["ratio"] is None else pytest.approx(expected["ratio"]))
        assert ("skipped" in row["detail"]) == (expected["ratio"] is None)


# --------------------------------------------------------------------------------------------------- streams
def plan_of_stream(lab: Laboratory, *expect: tuple[str, str]) -> int:
    """A plan of the queries over trades, whose events are expected to be so."""
    stated = tuple(Expectation(text, severity) for text, severity in expect)
    stream = Stream("trades", Source("parquet", str(lab.source())), SCHEMA, "ts", expect=stated)
    stream = with_expectations(stream, "streams.yaml")
    parsed = parse(text_of(), {"trades": stream})
    plan = build_plan(Workload(parsed.queries, (stream,)), {"trades": Fraction(1)}, "weave-share")
    return publish_plan(lab.warehouse, plan)[0]


def test_a_blocked_column_of_a_stream_blocks_the_queries_that_read_it(lab: Laboratory) -> None:
    lab.write([*steady(), (70.5, "A", -5.0, 1), (71.5, None, 100.0, 1)])
    expected = [
        ("price > 0 mostly 0.999", "block"),
        ("symbol is not null", "warn"),
        ("volume between 0 and 100", "block"),
    ]
    version = plan_of_stream(lab, *expected)
    assert lab.run(version, 0, 60, "run-0").blocked == {}
    record = lab.run(version, 60, 120, "run-1")
    assert record.blocked == {"prices": ["of stream trades: price > 0 mostly 0.999"]}
    assert codes(record) == [(BLOCKED, ""), (WARNED, "")] and not record.has_failed
    assert "price=-5.0" in record.diagnostics[0]["message"] and "prices" in record.diagnostics[0]["message"]
    assert instants(lab, "prices") == [*range(10, 61, 10)] and instants(lab, "counts") == [*range(10, 121, 10)]
    rows = {row["check"]: row for row in lab.warehouse.rows("quality_results") if row["revision"] == 1 and row["query"]}
    assert {row["kind"] for row in rows.values()} == {"events"} and {row["query"] for row in rows.values()} == {
        "trades"
    }
    (condition,) = [
        each for each in view_alerts(lab.warehouse, publish_log.now_micros()).current if each.kind == "blocked"
    ]
    assert condition.query == "prices" and "price > 0" in condition.message
    with pytest.raises(HeddleError, match="HDL-547"):
        check_answered(lab.warehouse, "prices", DAY + 60 * MINUTE)
    # the next interval is judged on its own, and what is corrected is published by a repair
    lab.write([*steady(180), (71.5, None, 100.0, 1)])
    assert lab.run(version, 120, 180, "run-2").blocked == {}
    assert lab.run(version, 60, 120, "repair").blocked == {}
    assert lab.wrong(version, 0, 180) == []


def test_a_stream_that_no_query_reads_by_a_column_blocks_nothing(lab: Laboratory) -> None:
    version = plan_of_stream(lab, ("volume > 1000", "block"))
    record = lab.run(version, 60, 120, "run-1")
    assert record.blocked == {"total": ["of stream trades: volume > 1000"]}
    released(lab, "total")
    assert lab.wrong(version, 60, 120) == []


def test_events_beyond_the_sample_are_thinned(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_events, "MOST_EVENTS", 40)
    version = plan_of_stream(lab, ("price > 0", "block"))
    lab.run(version, 60, 120, "run-1")
    (row,) = [row for row in lab.warehouse.rows("quality_results") if row["kind"] == "events"]
    assert "0 of 20 rows" in row["detail"] and "1 of 3 events" in row["detail"]


# --------------------------------------------------------------------------------------------- two runs at once
def test_of_two_runs_at_once_one_publishes_what_is_not_blocked(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    commit = publication.commit
    lab.run(version, 60, 120, "run-0")

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(publication, "commit", commit)
        lab.run(version, 60, 120, "run-2")
        return commit(*arguments)

    monkeypatch.setattr(publication, "commit", overtaken)
    with pytest.raises(HeddleError, match="HDL-512|HDL-541"):
        lab.run(version, 60, 120, "run-1")
    assert [each.revision for each in blocked_answers(lab.warehouse)] == [3]
    assert instants(lab, "prices") == [] and instants(lab, "total") == [*range(70, 121, 10)]


def test_two_counts_that_differ_are_told_and_the_stricter_one_blocks(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        judging, "verdicts_of", lambda result, template, frames: [Judged(False, np.array([0]))] * len(frames)
    )
    version = lab.plan(text_of(prices="high > 0"))
    record = lab.run(version, 60, 120, "run-1")
    assert codes(record) == [("HDL-566", "prices"), (BLOCKED, "prices")] and list(record.blocked) == ["prices"]
    assert "finds 1 unexpected rows, Heddle 0" in record.diagnostics[0]["message"]


def test_without_great_expectations_nothing_is_published(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError("no module named great_expectations")

    monkeypatch.setattr(judging, "great_expectations", missing)
    version = lab.plan(text_of(prices="high > 0"))
    with pytest.raises(ImportError):
        lab.run(version, 60, 120, "run-1")
    (failed,) = lab.log("failed")
    assert "HDL-531" in failed["record"] and lab.log("published") == []
    # what expects nothing needs it not
    assert lab.run(lab.plan(text_of()), 60, 120, "run-2").status == "published"


def test_jobs_of_dags_end_well_when_a_query_is_blocked(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A task that failed would be tried again, and keep the announcements of all other answers back."""
    version = lab.plan(text_of(prices="high < 100.5"))
    for module in (aggregate_windows, repair_results):
        monkeypatch.setattr(module, "engine_of_job", lambda *_: lab.spark)
    monkeypatch.setattr(type(lab.spark), "stop", lambda self: None)
    house = ["--warehouse", str(lab.warehouse.root), "--plan-version", str(version)]
    span = ["--from", "2013-07-01T01:00:00Z", "--to", "2013-07-01T02:00:00Z", "--run-id", "scheduled"]
    assert aggregate_windows.main([*house, *span]) == 0
    assert "HDL-539" in capfd.readouterr().err
    assert repair_results.main([*house, "--days", "100000"]) == 0
    assert "HDL-539" in capfd.readouterr().err
    (newest,) = publish_log.newest_rows(lab.warehouse, "at", publish_log.PUBLISHED, 1)
    assert newest.revision == 2 and statistics_of(newest)["heddle.blocked_queries"] == 1


def test_the_owner_is_alerted_of_warnings_until_the_newest_interval_has_none(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices=" (warn): high < 100.5", counts="n > 0"))
    lab.run(version, 0, 60, "run-0")
    lab.run(version, 60, 120, "run-1")
    (condition,) = [
        each for each in view_alerts(lab.warehouse, publish_log.now_micros()).current if each.kind != "late"
    ]
    assert condition.key == ("prices", "unexpected", WARNED) and "high < 100.5" in condition.message
    assert (condition.begin, condition.end) == (DAY, DAY + 120 * MINUTE)
    lab.write(steady(180))
    lab.run(lab.plan(text_of(prices=" (warn): high < 1000")), 120, 180, "run-2")
    assert view_alerts(lab.warehouse, publish_log.now_micros()).current == []


def test_freshness_is_judged_of_the_newest_interval_alone(lab: Laboratory) -> None:
    """A backfill would never be fresh."""
    version = lab.plan(text_of(prices="max(window_end) newer than 30 minutes"))
    now = DAY + 149 * MINUTE
    assert lab.run(version, 0, 60, "old", as_of=now).blocked == {}
    assert lab.run(version, 60, 120, "new", as_of=now).blocked == {}
    late = lab.run(version, 60, 120, "late", as_of=DAY + 150 * MINUTE, recompute=True)
    assert late.blocked == {"prices": ["max(window_end) newer than 30 minutes"]}
    assert "an age of 30 minutes" in late.diagnostics[0]["message"]
    outcomes = {(row["run_id"], row["success"]): row for row in lab.warehouse.rows("quality_results") if row["query"]}
    assert "skipped" in outcomes["old", True]["detail"] and outcomes["new", True]["observed"] == 29 * 60
