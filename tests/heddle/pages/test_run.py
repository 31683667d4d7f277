"""The page of a run: what Spark's log and the run's record say, links that lead somewhere, no user's markup."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path

import pytest

from heddle.pages import run
from heddle.pages.served import run_html
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import DAY
from spark_jobs.engine.event_log import SeenApplication, SeenJob, SeenStage
from spark_jobs.engine.workers import Job
from spark_jobs.operations.seen import SeenRun, newest_row_of
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.heddle.pages.operations_values import HOSTILE

UI = "http://127.0.0.1:4040"
RECORD = RunRecord(
    "a run", 2, 0, DAY, 1, engine="spark local[2]", engine_because="as set", application="local-17", ui=UI,
    jobs=[asdict(Job("partials flights", (0,), 10, 1, 2.1, 336_776, 4.5)), asdict(Job("finals", (1,), 4, 0, 0.5))],
)  # fmt: skip


def seen(
    record: RunRecord = RECORD, event: str = "published", application: SeenApplication | None = None, history: str = ""
) -> SeenRun:
    text = json.dumps(record.to_json())
    row = LogRow(0, DAY, 1, record.run_id, event, 2, None, 3, 4, 5, text)  # type: ignore[arg-type]
    return SeenRun(row, application, history or None)


def logged(**told: object) -> SeenApplication:
    failed = SeenStage(0, 10, 10, 1, 2, 2.0, 3_500, 250_000_000, {"ValueError: boom": 1})
    jobs = {
        0: SeenJob(0, "a run", "partials flights", 1_795_743_457_781, "succeeded", 2.1, "", {0: failed}),
        1: SeenJob(1, "a run", "finals", 1_795_743_460_000, "failed", 0.5, "Job 1 cancelled", {1: SeenStage(1, 4)}),
    }
    app = SeenApplication("local-17", True, True, 3, {"2": "killed by YARN"}, {"a run": 2, "another/run": 3}, jobs)
    return replace(app, **told)  # type: ignore[arg-type]


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.split("</style>")[1])).split())


def links(page: str) -> list[str]:
    return [link for link in map(unescape, re.findall(r'href="([^"]*)"', page)) if "?" in link or ":" in link]


def test_what_spark_logged_is_shown() -> None:
    page = run.page(seen(application=logged()))
    text = text_of(page)
    assert "1970-01-01 – 1970-01-02" in text and "spark local[2]" in text and "Application local-17" in text
    assert "0 partials flights succeeded 2026-11-27 01:37:37 2.1 10 1 3.5 4.5" in text
    assert "1 finals failed 2026-11-27 01:37:40 0.5 4 – 0.0" in text
    assert "job 0 ValueError: boom 1" in text and "job 1 Job 1 cancelled 1" in text
    assert "executor 2 killed by YARN 1" in text and "3 executors, 1 lost" in text
    assert "0 0 10 10 1 2 2.0 3.5 0.2" in text and "1 other run: another/run" in text
    # nobody answers there any more
    assert links(page) == ["run?id=another%2Frun"]


def test_without_a_log_the_record_is_shown() -> None:
    text = text_of(run.page(seen()))
    assert "event log of it is not there" in text
    assert "0 partials flights 2.1 10 1 4.5" in text and "1 finals 0.5 4 – 0.0" in text
    assert "Stages" not in text and "Failures" not in text


@pytest.mark.parametrize(("event", "application"), [("allocated", None), ("published", logged(ended=False))])
def test_while_an_application_lives_its_own_pages_are_linked(event: str, application: SeenApplication | None) -> None:
    page = run.page(seen(event=event, application=application))
    assert UI in links(page) and ("no end" in text_of(page)) == (event == "allocated")
    for address in ("javascript:alert(1)", "http://a b", 'http://a"b', "", "file:///etc/passwd"):
        assert UI not in links(run.page(seen(replace(RECORD, ui=address), event, application)))
        assert all(":" not in link for link in links(run.page(seen(replace(RECORD, ui=address), event, application))))


def test_the_history_server_is_linked_where_there_is_one() -> None:
    assert links(run.page(seen(history="https://history:18080"))) == ["https://history:18080/history/local-17/"]
    assert links(run.page(seen(replace(RECORD, application=""), history="https://history:18080"))) == []


def test_a_run_without_spark_says_so() -> None:
    record = RunRecord("here", 2, 0, DAY, 1, engine="local", engine_because="few events")
    text = text_of(run.page(seen(record)))
    assert "few events" in text and "Spark did nothing for this run" in text
    begun = text_of(run.page(seen(RunRecord("new", 2, 0, DAY, 1), "allocated")))
    assert "nothing yet" in begun and "No job is known" in begun


def test_hostile_text_stays_text() -> None:
    stage = SeenStage(0, 1, reasons={HOSTILE: 1})
    jobs = {0: SeenJob(0, HOSTILE, HOSTILE, 1 << 53, "failed", 1e300, HOSTILE, {0: stage})}
    groups = {HOSTILE: 1, **{f"{HOSTILE}{number}": 1 for number in range(50)}}
    application = SeenApplication(HOSTILE, False, False, 1, {HOSTILE: HOSTILE}, groups, jobs)
    record = RunRecord(HOSTILE, 2, 0, DAY, 1, engine=HOSTILE, engine_because=HOSTILE, application=HOSTILE, ui=HOSTILE)
    record.diagnostics = [Diagnostic(HOSTILE, HOSTILE, HOSTILE).to_json()]
    page = run.page(seen(record, application=application, history="https://history"))
    assert "<script" not in page and "\u202e" not in page and "\x1b" not in page
    assert all(not link.startswith("javascript:") for link in links(page))


def test_the_newest_row_of_a_run_or_a_session_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = Warehouse.open(tmp_path / "house")
    for run_id in ("one", "session/two/a", "session/two/b", "twofold"):
        record = RunRecord(run_id, 1, 0, DAY, 1)
        publish_log.log_event(house, record, "allocated", "hash", None)
        publish_log.log_event(house, record, "failed", "hash", None)

    def newest(run_id: str, revision: int | None = None) -> tuple[str, str] | None:
        row = newest_row_of(house, run_id, revision)
        return None if row is None else (row.run_id, row.event)

    assert newest("one") == ("one", "failed") and newest("one", 1) == ("one", "failed") and newest("one", 2) is None
    # as Airflow calls the run that is a session
    assert newest("two") == ("session/two/b", "failed") and newest("session/two/a") == ("session/two/a", "failed")
    assert newest("three") is None and newest("") is None
    assert run_html(str(tmp_path / "house"), "none", None) is None
    assert "session/two/b" in str(run_html(str(tmp_path / "house"), "two", None))
    monkeypatch.setenv("HEDDLE_SPARK_HISTORY", "javascript:alert(1)")
    with pytest.raises(HeddleError, match="HDL-120 HEDDLE_SPARK_HISTORY"):
        run_html(str(tmp_path / "house"), "one", None)
