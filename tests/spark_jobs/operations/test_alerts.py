"""Alerts on their way: each once, none lost when a process dies, through a webhook, a callable and a notifier."""

from __future__ import annotations

import importlib
import json
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from spark_jobs.operations import alerts as passes
from spark_jobs.operations.alerts import CLAIM, Alert, pass_alerts, sample, sendings, view_alerts
from spark_jobs.operations.conditions import Condition, Key
from spark_jobs.operations.notify import send_alerts, sender
from spark_jobs.pipeline.run import checks_stage
from spark_jobs.store.warehouse import alerts_log
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.in_process import PASSED, Clock, Said, heddle, without_spark
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.webhook import SECRET, webhook

NOW = DAY + 1000 * MINUTE
ROOT = Path(__file__).resolve().parents[3]


# ------------------------------------------------------------------------------------ generated histories
class Death(BaseException):
    """The process dies."""


def condition(query: str, since: int) -> Condition:
    return Condition(query, "failed", "HDL-404", f"owner of {query}", since, 1, 2, f"{query} failed", "do this")


@contextmanager
def scripted(current: list[Condition]) -> Iterator[None]:
    """Within it the conditions are those that the caller puts into a list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "watched", lambda *arguments: None)
        patch.setattr(passes, "conditions", lambda seen: list(current))
        yield


_PASSES = st.tuples(st.sets(st.sampled_from("abc")), st.sampled_from(["fine", "refused", "dies before", "dies after"]))


@given(history=st.lists(_PASSES, max_size=8))
@example(history=[({"a"}, "dies before"), (set(), "fine")])
@example(history=[({"a"}, "refused"), (set(), "dies after"), ({"a"}, "fine"), (set(), "dies after")])
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_condition_is_raised_and_resolved_once_and_arrives(
    history: Sequence[tuple[set[str], str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    warehouse = Warehouse.open(tmp_path_factory.mktemp("house"))
    arrived: list[dict[str, Any]] = []
    current: list[Condition] = []
    expected: list[tuple[str, str]] = []
    deaths_after = 0
    with scripted(current):
        for number, (failing, fate) in enumerate([*history, (set(), "fine"), (set(), "fine")]):
            now = NOW + number * 2 * CLAIM
            was = {each.query for each in current}
            since = {each.query: each.since for each in current}
            current[:] = [condition(query, since.get(query, now)) for query in sorted(failing)]
            expected += [(query, "open") for query in failing - was] + [(query, "resolved") for query in was - failing]

            def send(batch: Sequence[dict[str, Any]], fate: str = fate) -> None:
                if fate == "dies before":
                    raise Death
                if fate == "refused":
                    raise OSError("no route")
                arrived.extend(batch)
                if fate == "dies after":
                    raise Death

            before = len(arrived)
            try:
                passed = pass_alerts(warehouse, now, send)
                assert bool(passed.problems) <= (fate == "refused")
            except Death:
                deaths_after += len(arrived) - before
    first = list({alert["id"]: alert for alert in arrived}.values())
    assert Counter((alert["query"], alert["state"]) for alert in first) == Counter(expected)
    for query in "abc":
        # an alert comes before its resolution, and that before the next alert
        states = [alert["state"] for alert in first if alert["query"] == query]
        assert states == ["open", "resolved"] * (len(states) // 2)
    assert len(arrived) <= len(first) + deaths_after
    assert all(sending.sent for sending in sendings(alerts_log.rows(warehouse)))


def test_two_processes_send_an_alert_once(tmp_path: Path) -> None:
    warehouse, current = Warehouse.open(tmp_path), [condition("a", 1)]
    arrived: list[str] = []

    def other(batch: Sequence[dict[str, Any]]) -> None:
        # while this one sends, another process looks
        assert pass_alerts(warehouse, NOW + 1, lambda again: arrived.append("twice")).sent == ()
        arrived.extend(alert["id"] for alert in batch)

    with scripted(current):
        assert len(pass_alerts(warehouse, NOW, other).sent) == 1
        assert len(arrived) == 1
        version = warehouse.version("alerts")
        assert pass_alerts(warehouse, NOW + 2, other).sent == () and warehouse.version("alerts") == version


def test_what_is_raised_by_records_that_are_old_by_now_is_looked_at_again_under_the_lease(tmp_path: Path) -> None:
    """Between the look of a pass and its lease another process may have repaired what was wrong."""
    warehouse, looks = Warehouse.open(tmp_path), [[condition("a", 1)], []]
    arrived: list[Any] = []
    with scripted([]), pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "conditions", lambda seen: looks.pop(0))
        assert pass_alerts(warehouse, NOW, arrived.append).sent == () and arrived == []


def test_no_value_of_an_event_is_stored_with_an_alert(tmp_path: Path) -> None:
    warehouse = Warehouse.open(tmp_path)
    with scripted([condition("a", 1)]):
        pass_alerts(warehouse, NOW, lambda batch: None)
    stored = json.dumps([row.alert for row in alerts_log.rows(warehouse)])
    assert "a failed" not in stored and "do this" not in stored and '"query": "a"' in stored


# ------------------------------------------------------------------------------------------ real runs
@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady(240))
    lab.write(steady(240), "quotes")
    return lab


WORKLOAD = """
-- name: traded
-- owner: desk
SELECT count(*) AS n FROM trades WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts;
-- name: quoted
-- owner: research
SELECT count(*) AS n FROM quotes WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts;
-- name: never
-- owner: research
SELECT count(*) AS n FROM quotes WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts WHERE symbol = 'X' GROUP BY symbol;
-- name: fresh
-- owner: desk
SELECT count(*) AS n FROM trades WINDOW RANGE '10 minutes' SLIDE AT MOST '20 minutes' ON ts;
"""


def told(got: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """What arrived since it was asked for last."""
    shown = sorted((alert["query"], alert["kind"], alert["state"], alert["channel"]) for alert in got)
    got.clear()
    return shown


def test_failed_blocked_late_and_silent_queries_reach_their_owners(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_OWNERS", "desk=#desk,*=#all")
    clock = time.time_ns() // 1000
    with webhook() as (url, got), without_audit():

        def sent(at: int = clock) -> list[tuple[str, str, str, str]]:
            assert send_alerts(laboratory.warehouse, at, url).problems == ()
            return told(got)

        version = laboratory.plan(WORKLOAD)
        for hour in range(3):
            laboratory.run(version, hour * 60, (hour + 1) * 60, f"run {hour}")
        # three runs without an answer, and others have
        assert sent() == [("never", "silent", "open", "#all")]
        # a stream that cannot be read
        content = laboratory.source("quotes").read_bytes()
        laboratory.source("quotes").write_bytes(b"PAR1")
        laboratory.run(version, 180, 200, "broken")
        assert sent() == [(name, "failed", "open", "#all") for name in ("never", "quoted")]
        assert sent() == []
        laboratory.source("quotes").write_bytes(content)
        laboratory.run(version, 180, 200, "mended")
        assert sent() == [(name, "failed", "resolved", "#all") for name in ("never", "quoted")]
        # checks that fail keep the interval unpublished
        with pytest.MonkeyPatch.context() as patch:
            wrong = [{"check": "shared=unshared(traded)", "success": False, "detail": "3 of 4 differ"}]
            patch.setattr(checks_stage, "audit", lambda *arguments: [dict(check) for check in wrong])
            with pytest.raises(HeddleError, match="HDL-530"):
                laboratory.run(version, 200, 220, "wrong")
        owners = {"fresh": "#desk", "never": "#all", "quoted": "#all", "traded": "#desk"}
        assert sent() == [(name, "blocked", "open", owners[name]) for name in sorted(owners)]
        # a live run fills the hole; a day later it is overdue
        end = round(DAY + 220 * MINUTE)
        laboratory.run(version, 200, 220, "live", live=True, as_of=end)
        assert sent(end) == [(name, "blocked", "resolved", owners[name]) for name in sorted(owners)]
        assert sent(end + 22 * MINUTE) == [("fresh", "late", "open", "#desk")]
        laboratory.run(version, 220, 240, "live again", live=True, as_of=end + 20 * MINUTE)
        assert sent(end + 23 * MINUTE) == [("fresh", "late", "resolved", "#desk")]
        assert [each.key for each in view_alerts(laboratory.warehouse, end).current] == [("never", "silent", "HDL-637")]


def test_a_hole_is_told_of_until_it_is_filled_however_old(laboratory: Laboratory) -> None:
    version = laboratory.plan(WORKLOAD)
    laboratory.source("quotes").unlink()
    with without_audit(), webhook() as (url, got):
        laboratory.run(version, 0, 60, "broken")
        now = time.time_ns() // 1000
        send_alerts(laboratory.warehouse, now, url)
        assert [(name, state) for name, _, state, _ in told(got)] == [("never", "open"), ("quoted", "open")]
        month = 30 * 24 * 60 * MINUTE
        send_alerts(laboratory.warehouse, now + month, url)
        assert told(got) == []
        laboratory.write(steady(240), "quotes")
        laboratory.run(version, 0, 60, "mended")
        send_alerts(laboratory.warehouse, now + month, url)
        assert [(name, state) for name, _, state, _ in told(got)] == [("never", "resolved"), ("quoted", "resolved")]


# ------------------------------------------------------------------------------------------- channels
ALERT = sample(NOW, "desk").to_json()


@pytest.mark.parametrize(
    ("answer", "told_of"), [(500, "HTTP 500"), (302, "HTTP 302 (redirects are not followed)"), (404, "HTTP 404")]
)
def test_a_webhook_that_does_not_take_alerts_is_reported_without_its_secret(answer: int, told_of: str) -> None:
    with webhook() as (other, others), webhook(answer, other) as (url, _):
        with pytest.raises(HeddleError) as raised:
            sender(url, {})([ALERT])
        assert raised.value.code == "HDL-635" and told_of in str(raised.value) and SECRET not in str(raised.value)
        assert others == []


def test_a_server_that_is_not_there_is_reported_without_the_secret() -> None:
    with pytest.raises(HeddleError) as raised:
        sender(f"http://127.0.0.1:1/services/{SECRET}?token={SECRET}", {})([ALERT])
    assert raised.value.code == "HDL-635" and "127.0.0.1:1" in str(raised.value) and SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "target",
    ["http://example.com/x", "ftp://example.com", "no path", "module", "https://", "a:b:c", "https://a b", "../x:y"],
)
def test_a_target_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(HeddleError) as raised:
        sender(target, {})
    assert raised.value.code == "HDL-120" and raised.value.diagnostic.message == "HEDDLE_NOTIFY is '***'"


def test_the_secrets_of_a_webhook_are_redacted_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"https://us3rt0ken@hooks.example.com/services/{SECRET}?key=anotherL0ngKey&x=1"
    for variable in ("HEDDLE_NOTIFY", "AIRFLOW__HEDDLE__NOTIFY"):
        monkeypatch.setenv(variable, url)
        for text in (url, f"/services/{SECRET}", SECRET, "key is anotherL0ngKey", "us3rt0ken"):
            shown = redacted(f"error: {text} failed")
            assert not any(secret in shown for secret in (SECRET, "anotherL0ngKey", "us3rt0ken")), text
        assert redacted("hooks.example.com did not answer") == "hooks.example.com did not answer"
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HEDDLE_NOTIFY", "house.alerts:send")
    assert redacted("house.alerts:send failed") == "house.alerts:send failed"


def _module(name: str, monkeypatch: pytest.MonkeyPatch, **content: Any) -> None:
    made = ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)


def test_a_callable_gets_the_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    _module("house_alerts", monkeypatch, send=got.append, number=7)
    sender("house_alerts:send", {})([ALERT])
    sender("house_alerts.send", {})([ALERT])
    assert got == [[ALERT], [ALERT]]
    for target in ("house_alerts:number", "house_alerts:nothing", "no_such_module_of_ours:send"):
        with pytest.raises(HeddleError, match="HDL-635"):
            sender(target, {})


def test_a_notifier_of_airflow_renders_each_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow")
    from airflow.sdk import BaseNotifier

    got: list[str] = []

    class Notifier(BaseNotifier):
        template_fields = ("text",)

        def __init__(self) -> None:
            super().__init__()
            self.text = "{{ alert.query }} of {{ alert.owner }} in {{ dag_id }}"

        def notify(self, context: Any) -> None:
            got.append(self.text)

    _module("house_notifier", monkeypatch, Notifier=Notifier, ready=Notifier())
    others = [ALERT | {"query": query} for query in ("one", "two")]
    for target in ("house_notifier.Notifier", "house_notifier:ready"):
        sender(target, {"dag_id": "aggregate_windows"})(others)
    assert got == ["one of desk in aggregate_windows", "two of desk in aggregate_windows"] * 2


def test_a_callable_that_fails_is_a_warning_and_is_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def send(alerts: Any) -> None:
        calls.append(alerts)
        if len(calls) == 1:
            raise SystemExit("no")

    _module("house_alerts", monkeypatch, send=send)
    warehouse = Warehouse.open(tmp_path)
    with scripted([condition("a", 1)]):
        (problem,) = send_alerts(warehouse, NOW, "house_alerts:send").problems
        assert problem.code == "HDL-635" and problem.severity == "warning" and "SystemExit" in problem.message
        (failed,) = sendings(alerts_log.rows(warehouse))
        assert failed.failures == 1 and not failed.sent
        assert len(send_alerts(warehouse, NOW + 1, "house_alerts:send").sent) == 1
    assert calls[0] == calls[1]


# -------------------------------------------------------------------------------------------- examples
class _Smtp(socketserver.StreamRequestHandler):
    mails: list[str]

    def handle(self) -> None:
        self.wfile.write(b"220 stub\r\n")
        for line in self.rfile:
            word = line.strip().upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    text += part
                self.mails.append(text.decode())
            if word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 fine\r\n")


@pytest.fixture
def example_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


ALERTS = [
    ALERT | {"query": query, "channel": channel, "message": f"{query} <!channel> is late"}
    for query, channel in (("a", "desk@example.com"), ("b", "data@example.com"), ("c", "desk@example.com"))
]


@pytest.mark.usefixtures("example_modules")
def test_the_example_by_email_sends_one_mail_to_each_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    mails: list[str] = []
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), type("Smtp", (_Smtp,), {"mails": mails}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ALERTS_SMTP", f"127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("ALERTS_FROM", "heddle@example.com")
    sender("alerts_by_email:send", {})(ALERTS)
    server.shutdown()
    server.server_close()
    assert len(mails) == 2 and "To: data@example.com" in mails[0] and "To: desk@example.com" in mails[1]
    assert "Subject: test: a test and 1 more" in mails[1] and "c <!channel> is late" in mails[1]


@pytest.mark.usefixtures("example_modules")
def test_the_example_to_slack_posts_to_the_webhook_of_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook(200) as (desk, of_desk), webhook(200) as (rest, of_rest):
        monkeypatch.setenv("SLACK_WEBHOOKS", json.dumps({"desk@example.com": desk, "*": rest}))
        sender("alerts_to_slack:send", {})(ALERTS)
        assert [body["text"] for body in of_desk] == [
            ":wave: a &lt;!channel&gt; is late\n:wave: c &lt;!channel&gt; is late"
        ]
        assert [body["text"] for body in of_rest] == [":wave: b &lt;!channel&gt; is late"]


@pytest.mark.usefixtures("example_modules")
def test_the_example_of_a_receiver_prints_each_alert_once(capsys: pytest.CaptureFixture[str]) -> None:
    server = importlib.import_module("alerts_receiver").main(0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    send = sender(f"http://127.0.0.1:{server.server_port}/alerts", {})
    send([ALERT])
    send([ALERT])
    server.shutdown()
    server.server_close()
    assert capsys.readouterr().out == f"desk: test {ALERT['message']}\n"


# --------------------------------------------------------------------------------------- the command
@contextmanager
def environment(**variables: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEDDLE_NOTIFY", raising=False)
        for name, text in variables.items():
            patch.setenv(name, text)
        yield


def command(*arguments: str, **variables: str) -> Said:
    with environment(**variables):
        return heddle(*arguments)


def test_the_command_lists_sends_and_tests_and_prints_no_secret(laboratory: Laboratory) -> None:
    version = laboratory.plan(WORKLOAD)
    laboratory.source("quotes").unlink()
    with without_audit():
        laboratory.run(version, 0, 60, "broken")
    place = ("--warehouse", str(laboratory.warehouse.place))
    listed = json.loads(command("alerts", *place, "--json").out)["alerts"]
    assert [(alert["query"], alert["code"], alert["sent"]) for alert in listed] == [
        (name, "HDL-401", False) for name in ("never", "quoted")
    ]
    unset = command("alerts", *place, "--test")
    assert unset.code == 2 and "HDL-124" in unset.err
    with webhook() as (url, got):
        tested = command("alerts", *place, "--test", HEDDLE_NOTIFY=url, HEDDLE_OWNERS="desk=#desk,*=#all")
        assert tested.code == 0, tested.err
        assert [(name, kind) for name, kind, _, _ in told(got)] == [("heddle_test", "test")] * 2
        sent = command("alerts", *place, "--send", HEDDLE_NOTIFY=url)
        assert sent.code == 0 and "sent 2 alerts" in sent.err and len(got) == 2
    again = command("alerts", *place)
    assert again.code == 0 and "HDL-401" in again.out and "yes" in again.out
    with webhook(500) as (url, _):
        refused = command("alerts", *place, "--test", HEDDLE_NOTIFY=url)
        assert refused.code == 1 and "HDL-635" in refused.err
    config = command("config", HEDDLE_NOTIFY=url)
    for output in (tested, sent, again, refused, config):
        assert SECRET not in output.out + output.err


WEB_REQUESTS = ROOT / "examples" / "web-requests"


def test_commands_send_alerts_when_they_end_and_keep_their_exit_codes(tmp_path: Path) -> None:
    house, clock = ("--warehouse", str(tmp_path / "house")), Clock(micros(datetime(2025, 3, 4, 2, tzinfo=UTC)))
    day = ("--from", "2025-03-03", "--to", "2025-03-04")
    run = ("run", str(WEB_REQUESTS / "queries.sql"), "--streams", str(WEB_REQUESTS / "streams.yaml"), *house, *day)
    wrong = [{"check": "shared=unshared(slow_paths)", "success": False, "detail": "3 of 4 differ"}]
    with webhook() as (url, got):
        with without_spark(clock, wrong):
            blocked = command(*run, HEDDLE_NOTIFY=url)
        assert blocked.code == 1 and "HDL-530" in blocked.err and "sent" in blocked.err
        queries = {alert["query"] for alert in got}
        assert "slow_paths" in queries and {(a["kind"], a["state"]) for a in got} == {("blocked", "open")}
        got.clear()
        with without_spark(clock):
            for once in (command(*run, HEDDLE_NOTIFY=url), command("repair", *house, HEDDLE_NOTIFY=url)):
                assert once.code == 0, once.err
        assert {alert["query"] for alert in got} == queries and len(got) == len(queries)
        assert {alert["state"] for alert in got} == {"resolved"}
        got.clear()
        # a process that follows the schedule sends after each refresh
        night = Clock(micros(datetime(2025, 3, 5, 1, tzinfo=UTC)))
        following = ("tick", *house, "--follow", "--from", "2025-03-04", "--until", "2025-03-05T00:30")
        for checks, code, state in ((wrong, 1, "open"), (PASSED, 0, "resolved")):
            with without_spark(night, checks):
                followed = command(*following, HEDDLE_NOTIFY=url)
            assert followed.code == code, followed.err
            assert {alert["query"] for alert in got if alert["kind"] == "blocked"} == queries
            assert {alert["state"] for alert in got if alert["kind"] == "blocked"} == {state}
            got.clear()
        # a command that has nothing to do looks as well
        at = ("--at", "2025-03-04T00:10")
        with without_spark(clock):
            assert command("tick", *house, *at, HEDDLE_NOTIFY=url).code == 0
            assert command("tick", *house, "--at", "2025-03-06T23:50", HEDDLE_NOTIFY="https://no one").code == 0
    # an alert that cannot be sent is a warning
    with without_spark(Clock(micros(datetime(2025, 3, 8, tzinfo=UTC))), wrong):
        refused = command(*run, "--recompute", HEDDLE_NOTIFY=f"http://127.0.0.1:1/{SECRET}")
    assert refused.code == 1 and "warning HDL-635" in refused.err and SECRET not in refused.out + refused.err


def test_a_project_file_cannot_say_where_alerts_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heddle.toml").write_text('notify = "os:system"\n')
    refused = command("config", HEDDLE_HOME=str(tmp_path))
    assert refused.code == 2 and "HDL-123" in refused.err and "HEDDLE_NOTIFY" in refused.err


def test_a_project_file_names_the_channels_of_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heddle.toml").write_text('[owners]\ndesk = "#desk"\n"*" = "#all, too"\n')
    monkeypatch.chdir(tmp_path)
    channels: Mapping[str, str] = {owner: sample(NOW, owner).to_json()["channel"] for owner in ("desk", "other")}
    assert channels == {"desk": "#desk", "other": "#all, too"}


def test_an_alert_is_the_same_after_it_was_stored() -> None:
    alert = Alert.of(condition("a", 5), NOW)
    assert Alert.from_row(alert.to_row()) == replace(alert, message="", hint="")
    key: Key = ("a", "failed", "HDL-404")
    assert alert.key == key and alert.id.endswith("-open") and alert.resolved(NOW).id.endswith("-resolved")
