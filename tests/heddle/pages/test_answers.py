"""Answers, one query, streams and days as pages: true figures, no user's markup, and the server that shows them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from heddle.cli import serve
from heddle.pages import answers, lines, picture, query, streams, trends
from heddle.pages.app import HEADERS, build_app
from heddle.pages.formats import CostUnit
from heddle.pages.lines import COLUMNS, line_chart, sparkline, thinned
from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.accounts import accounts
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import (
    ACQ,
    LONG,
    TIMESTAMP,
    Output,
    Source,
    Stream,
    Window,
    Workload,
)
from spark_jobs.operations.metrics import CONTENT_TYPE
from spark_jobs.operations.series import (
    Choice,
    Compared,
    ComparedRun,
    Line,
    Listing,
    PlanCost,
    Sample,
    Span,
    StreamDay,
    Streams,
    StreamView,
    TrendDay,
    Trends,
)
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.heddle.pages.answers_values import HOSTILE, HOUR, SAMPLES, WINDOW, listing, view
from tests.heddle.pages.markup import read
from tests.heddle.pages.operations_values import NOW


# ------------------------------------------------------------------------------------------------- answers
def test_the_list_says_what_is_newest_late_and_missing() -> None:
    html = answers.page(listing())
    page = read(html)
    assert "running 119" in page.text and "120 queries, page 1 of 3" in page.text
    assert "n, sum of 4 groups" in page.text and "n, sum of 1 group" in page.text
    assert "late by 1 min 30 s" in page.text and "2 answers with an error; no answer in the newest run" in page.text
    assert "2 h, every 1 h" in page.text and "2026-02-27 and 2026-02-28" in page.text
    assert "query?name=volume" in page.links and "answers?page=2" in page.links
    assert "script" not in page.elements and "&lt;script&gt;alert(1)" in html


def test_what_was_chosen_stays_in_the_form_and_the_pages() -> None:
    filtered_listing = replace(listing(), choice=Choice("a b&", "ops", "running", 2))
    html = answers.page(filtered_listing)
    assert "answers?q=a%20b%26&amp;owner=ops&amp;state=running&amp;page=3" in html
    assert 'value="a b&amp;"' in html and '<option value="ops" selected>' in html
    assert "No query is like this" in read(answers.page(replace(filtered_listing, queries=()))).text


def test_without_a_query_the_list_says_what_to_do() -> None:
    page = read(answers.page(Listing(NOW, Choice())))
    assert "No query yet" in page.text and "heddle run" in page.text and "form" not in page.elements


# ------------------------------------------------------------------------------------------------- one query
def test_the_page_of_a_query() -> None:
    html = query.page(view())
    page = read(html)
    assert "published again as revision 2" in html and html.count('class="revised"') == 2
    assert "query?name=volume&span=month" in page.links and 'aria-current="true">last week' in html
    assert "the 2 of 9 groups with the largest newest values" in page.text
    assert "5.00% of the cost of plan version 2" in page.text
    assert "12.0 CPU-s of the 240.0 CPU-s" in page.text and "Estimate: 61.5 CPU-s" in page.text
    assert "heddle compare has not run it unshared" in page.text and "saved" not in page.text
    assert "./?version=2&tree=trades-1#chosen" in page.links
    assert "HDL-601" in page.text and "run-1" in page.text
    # texts of several lines are shown in lines
    assert "heddle.open(" in html
    assert "sum(volume)\nFROM trades" in query.page(
        view(query=replace(view().query, text="SELECT sum(volume)\nFROM trades"))
    )


def test_what_is_saved_is_said_only_where_it_was_measured() -> None:
    cost = view().cost
    assert cost is not None
    compared = Compared("2026-02-28T00:00:00Z", 0, DAY, 90.0, 12.0)
    text = read(query.page(view(cost=replace(cost, compared=compared)))).text
    assert "90.0 CPU-s unshared" in text and "78.0 CPU-s saved" in text
    dearer = read(query.page(view(cost=replace(cost, compared=replace(compared, unshared=2.0))))).text
    assert "10.0 CPU-s more" in dearer and "saved" not in dearer


def test_a_query_without_answers_runs_or_a_plan() -> None:
    text = read(
        query.page(view(outputs=(), answers=0, runs=(), cost=None, failures=0, failed=(), top=(), groups=0))
    ).text
    assert "No answer in this span" in text and "No run yet" in text and "No plan that is stored has it" in text


def test_snippets_quote_names_and_folders(tmp_path: Path) -> None:
    """What is copied reads exactly this query: whatever its name and folder are."""
    name, house = 'it\'s "its"', str(tmp_path / "a'b")
    odd = view(query=replace(view().query, name=name), warehouse=house)
    snippets = {snippet.title: snippet.text for snippet in query.snippets(odd)}
    for title in ("Python", "DuckDB", "Spark"):
        compile(snippets[title], title, "exec")
    statement = 'SELECT * FROM "it\'s ""its""" ORDER BY window_end DESC LIMIT 20'
    assert shlex.split(snippets["Shell"]) == ["heddle", "read", name, "--warehouse", house, "--format", "csv"]
    assert shlex.split(snippets["SQL"]) == ["heddle", "sql", statement, "--warehouse", house]
    assert repr(statement) in snippets["DuckDB"] and repr(name) in snippets["Python"]


# ------------------------------------------------------------------------------------------ streams and days
def test_streams_say_where_events_are_missing_or_late() -> None:
    stream = StreamView(
        "trades", 3, 9 * HOUR, (SAMPLES,), ((HOUR, 3 * HOUR),), (StreamDay("2026-02-28", 1234, 5, 1, 17, 4),)
    )
    html = streams.page(Streams(NOW, Span("month"), (stream, replace(stream, name=HOSTILE, rates=(), days=()))))
    page = read(html)
    assert "1970-01-01 01:00 – 03:00" in page.text and "2026-02-28 1,234 5 1 17 4" in page.text
    assert "refused or left out 21" in page.text and "No run has read events of this span" in page.text
    assert "No stream yet" in read(streams.page(Streams(NOW, Span("month")))).text


def test_what_unshared_runs_would_cost_is_called_an_estimate() -> None:
    days = tuple(TrendDay(f"2026-02-0{day}", 24, 0, 1000, 5000, 60.0, 240.0, day - 1) for day in (1, 2))
    plans = (PlanCost(1, "paper", 10.0, 40.0), PlanCost(2, "paper", 12.0, 40.0))
    html = trends.page(Trends(NOW, Span("month"), days, (), plans))
    page = read(html)
    assert "estimate: unshared 480.0 (−75 %)" in page.text and "is no measurement" in page.text
    assert "2026-02-02 24 – 1,000 5,000 60.0 240.0 1" in page.text
    assert "Nothing was measured unshared" in page.text and "version 2: 12, unshared 40" in html
    compared = ComparedRun("2026-02-02T00:00:00Z", 0, DAY, 100, 5, 60.0, 20.0)
    measured = read(trends.page(Trends(NOW, Span("month"), days, (compared,), plans))).text
    assert "60.0 20.0 5 of 100 400.0" in measured and "Nothing was measured unshared" not in measured
    assert "Nothing to show" in read(trends.page(Trends(NOW, Span("month")))).text


# ------------------------------------------------------------------------------------------------- drawings
def test_a_thinned_line_keeps_its_ends_extremes_and_revisions() -> None:
    samples = [Sample(number, float((number * 7919) % 1009), 1 + (number == 5001)) for number in range(20_000)]
    line = thinned(samples, 0, 19_999)
    assert len(line) <= 4 * COLUMNS + 1 and list(line) == sorted(line) and set(line) <= set(samples)
    assert {samples[0], samples[-1], samples[5001]} <= set(line)
    values = [sample.value for sample in samples]
    assert (min(sample.value for sample in line), max(sample.value for sample in line)) == (min(values), max(values))
    assert thinned(samples[:50], 0, 50) == samples[:50]


def test_a_line_is_broken_where_samples_are_missing() -> None:
    times = [number for number in range(24) if number not in range(8, 14)]
    chart = line_chart("n", [Line("", "", tuple(Sample(number * HOUR, 1.0, 1) for number in times))])
    assert chart is not None and chart.lines[0].path.count("M") == 2
    unbroken = line_chart("n", [Line("", "", SAMPLES)])
    assert unbroken is not None and unbroken.lines[0].path.count("M") == 1
    assert line_chart("n", [Line("", "", ())]) is None


@pytest.mark.parametrize(
    "values", [(0.0,), (5.0, 5.0), (-1.0, -3.0), (1e-12, 2e-12), (-1e300, 1e300), (1e15, 1e15 + 1)]
)
def test_every_value_has_a_place_in_the_chart(values: tuple[float, ...]) -> None:
    samples = tuple(Sample(number, value, 1) for number, value in enumerate(values))
    chart = line_chart("n", [Line("", "", samples)])
    assert chart is not None and sparkline(samples).startswith("M")
    for point in chart.lines[0].points:
        assert 0 <= float(point.x) <= lines.WIDTH and 0 <= float(point.y) <= lines.HEIGHT
    assert 2 <= len(chart.values) <= 8


@pytest.mark.parametrize("queries", (6, 90))
def test_the_picture_of_a_plan_has_widths_that_are_costs(queries: int) -> None:
    stream = Stream("trades", Source("csv", "x"), (("ts", TIMESTAMP),), "ts")
    outputs = (Output("n", "count", None, None, LONG),)
    known = [
        ACQ(f"q{number}", "trades", Window((number % 7 + 2) * HOUR, (number % 3 + 1) * HOUR), outputs)
        for number in range(queries)
    ]
    plan = build_plan(Workload(tuple(known), (stream,)), {"trades": Fraction(1)}, "no-share")
    drawn = picture.picture(plan, accounts(plan), {}, CostUnit.of(plan), links=True)
    assert drawn is not None
    kinds = [node.kind for node in drawn.nodes]
    assert kinds.count("stream") == 1 and kinds.count("tree") == min(queries, picture.TREES_DRAWN + 1)
    labels = [node.label for node in drawn.nodes if node.kind == "leaf"]
    assert ("q0" in labels) == (queries == 6) and ("1 query" in labels) == (queries == 90)
    assert (f"{queries - picture.TREES_DRAWN} more trees" in [node.label for node in drawn.nodes]) == (queries == 90)
    heights = {kind: sum(float(node.height) for node in drawn.nodes if node.kind == kind) for kind in set(kinds)}
    assert heights["stream"] == pytest.approx(picture.COST, abs=0.1)
    assert all(height == pytest.approx(picture.COST, rel=0.1) for height in heights.values())


# ------------------------------------------------------------------------------------------------- the server
@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    stream = Stream("trades", Source("csv", "x"), (("ts", TIMESTAMP),), "ts")
    acq = ACQ("volume", "trades", WINDOW, (Output("n", "count", None, None, LONG),), owner="ops")
    plan = build_plan(Workload((acq,), (stream,)), {"trades": Fraction(1)}, "weave-share")
    publish_plan(Warehouse.open(tmp_path / "house"), plan, "test", "because")
    return TestClient(serve.pages_of(tmp_path / "house", "127.0.0.1", ""), base_url="http://127.0.0.1:8765")


def test_the_server_shows_every_page_and_changes_nothing(client: TestClient, tmp_path: Path) -> None:
    before = sorted(path for path in (tmp_path / "house").rglob("*"))
    for path in ("", "plan", "answers", "query?name=volume", "streams", "trends", "operations", "history", "refresh"):
        answer = client.get("/" + path)
        assert answer.status_code == 200, path
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        read(answer.text)
    assert "query?name=volume" in client.get("/").text and "only reads" in client.get("/refresh").text
    # a menu has no page of what its server cannot do; Airflow's can
    assert ">Refresh<" not in client.get("/answers").text and ">Refresh<" in answers.page(listing())
    assert client.get("/?tree=trades-1").text.count('id="chosen"') == 1
    for path in ("refresh", "apply", "answers"):
        assert client.post("/" + path).status_code in (404, 405)
    assert sorted(path for path in (tmp_path / "house").rglob("*")) == before


def test_the_answers_of_a_span_are_files(client: TestClient) -> None:
    forms = (("csv", "text/csv", '"window_start","window_end","n"'), ("json", "application/json", "{"))
    for form, kind, begin in forms:
        answer = client.get("/query-data", params={"name": "volume", "format": form, "from": "2026-01-01"})
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        assert answer.headers["content-disposition"] == f'attachment; filename="volume.{form}"'
        assert answer.text.startswith(begin)
    assert "HDL-507" in client.get("/query-data", params={"name": 'no"such\r\n'}).text


def test_an_unknown_address_is_answered_by_a_page(client: TestClient) -> None:
    for path, home in (("nowhere", "./"), ("a/b/c", "../../"), ("?version=9", "./")):
        answer = client.get("/" + path)
        assert answer.status_code == 404 and f"{home}answers" in read(answer.text).links, path


def test_the_server_has_metrics_for_prometheus(client: TestClient, tmp_path: Path) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"] == CONTENT_TYPE
    (family,) = (each for each in text_string_to_metric_families(answer.text) if each.name == "heddle_query_blocked")
    assert [sample.labels for sample in family.samples] == [{"stream": "trades", "query": "volume", "owner": "ops"}]
    (tmp_path / "house" / "heddle.json").write_text("{")
    assert client.get("/metrics").status_code >= 400


def test_what_is_not_there_is_said_without_repeating_it(client: TestClient) -> None:
    for path in ("docs", "openapi.json", "?version=9", "?version=x", "history?version=0", "data-docs/x.html", "radius"):
        assert client.get("/" + path).status_code == 404, path
    unknown = client.get("/query", params={"name": HOSTILE})
    assert unknown.status_code == 404 and "HDL-521" in unknown.text and "<script" not in unknown.text
    odd = {"q": HOSTILE, "owner": HOSTILE, "state": HOSTILE, "page": "1e9"}
    assert client.get("/answers", params=odd).status_code == 200
    odd = {"name": "volume", "span": HOSTILE, "from": "9999-99-99", "to": "2013-07-01T00:00", "group": HOSTILE}
    shown = client.get("/query", params=odd)
    assert shown.status_code == 200 and "<script" not in shown.text
    assert client.get("/query", params={"name": "volume", "from": "0001-01-01", "to": "9999-12-31"}).status_code == 200


def test_a_page_from_elsewhere_whose_name_leads_here_is_not_answered(client: TestClient) -> None:
    assert client.get("/answers", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/answers", headers={"Host": "localhost:8765"}).status_code == 200


def test_without_a_warehouse_pages_say_what_to_do(tmp_path: Path) -> None:
    client = TestClient(build_app(lambda: tmp_path / "nothing"))
    for path, message in (("answers", "No query yet"), ("", "No plan yet"), ("streams", "No stream yet")):
        assert message in client.get("/" + path).text
    for path in ("trends", "operations", "history"):
        assert client.get("/" + path).status_code == 200
    missing = client.get("/query?name=volume")
    assert missing.status_code == 404 and "HDL-502" in missing.text
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("host", "token", "fine"),
    [
        *(("127.0.0.1", "", True), ("127.8.9.1", "", True), ("::1", "", True), ("localhost", "", True)),
        *(("0.0.0.0", "", False), ("192.168.1.4", "", False), ("example.com", "", False), ("0.0.0.0", "x", True)),
    ],
)
def test_others_reach_the_pages_only_with_a_token(host: str, token: str, fine: bool) -> None:
    if fine:
        return serve.check_host(host, token)
    with pytest.raises(HeddleError, match="HDL-572"):
        serve.check_host(host, token)


def test_a_port_that_is_taken_and_a_server_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve.listening("127.0.0.1", 0) as listener:
        listener.listen()
        with pytest.raises(HeddleError, match="HDL-573"):
            serve.listening("127.0.0.1", listener.getsockname()[1])
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(HeddleError, match="HDL-571 uvicorn is not installed[^$]*make setup"):
        serve.pages_of(Path(), "127.0.0.1", "")


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "heddle.cli.app", "serve", "--warehouse", str(tmp_path / "house"), "--port", "0"]
    wide = os.environ | {"COLUMNS": "500"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=wide) as server:
        assert server.stderr is not None
        try:
            first_line = server.stderr.readline()
            assert "No authentication" in first_line
            with urllib.request.urlopen(first_line.split()[0], timeout=60) as answer:
                assert "No query yet" in answer.read().decode()
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0 and "Traceback" not in server.stderr.read()
        finally:
            server.kill()
