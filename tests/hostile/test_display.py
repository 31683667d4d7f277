"""Hostile but legal names and values where people see them: the page, the terminal, JSON, the routes of the plugin."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from heddle.cli import answers, changes, output, terminal
from heddle.cli import plan as plan_module
from heddle.cli.app import app
from heddle.pages import answers as answers_page
from heddle.pages import query as query_page
from heddle.pages import streams as streams_page
from heddle.pages.mermaid import mermaid
from heddle.pages.plan import page
from heddle.pages.refresh import refused
from optimizer.errors.diagnostics import Diagnostic, printable
from optimizer.language.parser import load_workload
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff
from optimizer.workload.values import Stream, Workload
from spark_jobs.operations.series import (
    Choice,
    FailedAnswer,
    Group,
    Happened,
    Line,
    ListedQuery,
    Listing,
    OutputLines,
    QueryCost,
    QueryRun,
    QueryView,
    Sample,
    Span,
    Sparkline,
    StreamDay,
    Streams,
    StreamView,
)
from tests.hostile import attacks
from tests.hostile.attacks import LEGAL
from tests.hostile.guard import SECRET_NAME, STREAMS, Canary, filled

ROOT = Path(__file__).resolve().parents[2]
TRICKS = (
    "<script>alert(1)</script>",
    "[red]x[/red]",
    "[/]",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202eredro",
    "a\r\nb",
    "\x9b2J",
    ":smile:",
    "</code></details>",
    '"><img src=x onerror=alert(1)>',
    "[link=file:///etc/passwd]y[/link]",
)
ACTIVE = ("\x1b", "\x07", "\x9b", "\u202e", "\r", "<script", "<img", '</code></details>"')


def _plan(canary: Canary, names: bool) -> SharingPlan:
    """A plan of the legal texts; ``names``: of queries, streams and columns with names that no parser lets pass, as the
    Python API may make them."""
    texts = [f"-- name: q{number}\n{filled(text, canary)}" for number, text in enumerate(LEGAL)]
    (canary.path.parent / "legal.sql").write_text(";\n".join(texts))
    workload, diagnostics = load_workload([canary.path.parent / "legal.sql"], STREAMS)
    assert not diagnostics and len(workload.queries) == len(LEGAL)
    if names:
        stream = STREAMS["trades"]
        hostile = Stream(TRICKS[0] + TRICKS[3], stream.source, stream.schema, stream.time)
        queries = tuple(replace(workload.queries[0], name=trick, owner=trick, stream=hostile.name) for trick in TRICKS)
        workload = Workload(queries, (hostile,))
    return build_plan(workload, {stream.name: Fraction(10) for stream in workload.streams}, "weave-share")


@pytest.mark.parametrize("names", (False, True))
def test_the_page_and_the_flowchart(names: bool, canary: Canary) -> None:
    plan = _plan(canary, names)
    for trick in TRICKS:
        html, chart = page(plan, {"because": trick, trick: "x" * 10_000}), mermaid(plan)
        canary.check(html, chart)
        assert not [active for active in ACTIVE if active in html or active in chart]
        assert "<script" not in html and html.count("<details") == html.count("</details>")
        assert "x" * 1000 not in html
    assert "&lt;script&gt;alert(1)" in page(plan)
    assert "\\x1b[31m" in page(plan, {"because": TRICKS[3]})


@pytest.mark.parametrize("trick", TRICKS)
def test_the_pages_of_answers(trick: str, canary: Canary) -> None:
    """Names, owners, streams, groups, codes and texts that nobody would choose, in every place of a page."""
    moment, span = datetime(2026, 3, 1, tzinfo=UTC), Span("all")
    query = replace(_plan(canary, False).workload.queries[0], name=trick, owner=trick, stream=trick, text=trick)
    line = Line(trick, trick, (Sample(0, 1.0, 2), Sample(60_000_000, 2.0, 1)))
    listed = ListedQuery(trick, trick, trick, "running", query.window, text=trick)
    drawn = replace(listed, sparkline=Sparkline(trick, 2, "sum", line.samples))
    run = QueryRun(trick, "failed", moment, 0, 60_000_000, 1, 1, 0, 1.0, 1.0)
    cost = QueryCost(1, trick, 9, (trick,), 0.1, 1, 1.0, 1.0, 1.0)
    view = QueryView(
        *(moment, query, "running", 0, trick, span, (OutputLines(trick, (line, line)),), 2, 1, 9),
        *((Group(trick, trick, 1.0),), trick, 1, (FailedAnswer(0, trick, trick),), 1, (run,), cost),
        *((Happened(0, "replaced", 1, trick),), trick),
    )
    stream = StreamView(trick, 1, 0, (line.samples,), ((0, 1),), (StreamDay("2026-03-01", 1, 1, 1, 1, 1),))
    pages = (
        answers_page.page(
            Listing(moment, Choice(trick, trick, trick), (listed, drawn), 60, 2, {"running": 2}, (trick,))
        ),
        query_page.page(view),
        streams_page.page(Streams(moment, span, (stream,))),
        refused(Diagnostic("HDL-521", trick, trick), False),
        page(_plan(canary, True), {"because": trick}, in_menu=True, chosen=trick),
    )
    canary.check(*pages)
    for html in pages:
        assert not [active for active in ACTIVE if active in html]
        assert html.count("<script") == 0 and html.count("<a ") == html.count("</a>")


def _terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The command line's consoles on a colour terminal."""
    out = io.StringIO()
    console = terminal.PlainConsole(file=out, width=400, force_terminal=True, color_system="truecolor")
    monkeypatch.setattr(terminal, "console", console)
    monkeypatch.setattr(terminal, "errors", console)
    return out


def _literal(text: str) -> str:
    """A text as a terminal has to show it."""
    return printable(text.split("\n")[-1])


@pytest.mark.parametrize("trick", TRICKS)
def test_terminal_tables_show_texts_as_they_are(trick: str, canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    out = _terminal(monkeypatch)
    table = pa.table({"symbol": [trick, None], f"{trick}n": [1.5, 2.5], "error": [trick, trick]})
    answers.show_answers(table, trick)
    output.print_rows(trick, ("query", trick), [[trick, trick]])
    output.print_diagnostics([Diagnostic("HDL-101", trick, trick, trick, 1, 1, trick)])
    written = out.getvalue()
    assert written.count(_literal(trick)) >= 8
    # the console's own styles are escape sequences too: none of the trick's
    for active in ("\x1b[31mred", "\x1b]", "\x07", "\x9b", "\u202e", "\x1b[31mx", "\x1b]8;", "\U0001f604"):
        assert active not in written


def test_the_place_of_a_mistake_is_shown_in_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mark under it, however wide the characters before it; nothing of a line with a secret, or of data."""
    out = _terminal(monkeypatch)
    file = tmp_path / "error.sql"
    line = f"SELECT '日本',\tsum(symbl) {'x' * 300} \x1b[31m"
    file.write_text(f"-- first\n{line}\npath: s3://me:password1@store/x\n")
    column = line.index("symbl") + 1
    output.print_diagnostics([Diagnostic("HDL-202", "no column", "did you mean symbol?", str(file), 2, column, "q")])
    first, shown, mark, hint = out.getvalue().splitlines()
    assert f"{file}:2:{column}: \x1b[1;31merror HDL-202\x1b[0m [q] no column" == first
    assert hint == "    \x1b[36mhint:\x1b[0m did you mean symbol?"
    assert shown.startswith("    SELECT '日本', sum(symbl) xxx") and len(shown) < 160 and "\x1b" not in shown
    assert mark == "    " + " " * len("SELECT 'wide', sum(") + "^"
    for diagnostic in (
        Diagnostic("HDL-457", "a key", "", str(file), 3, 7),
        Diagnostic("HDL-458", "a path", "", str(file), 2, 3),
        Diagnostic("HDL-404", "a row", "", str(file), 2, 3),
        Diagnostic("HDL-101", "gone", "", str(tmp_path / "gone"), 2, 3),
        Diagnostic("HDL-101", "gone", "", str(file), 99, 3),
        Diagnostic("HDL-101", "no place", "", str(file)),
    ):
        out.truncate(0)
        out.seek(0)
        output.print_diagnostics([diagnostic])
        assert "password1" not in out.getvalue() and "SELECT" not in out.getvalue()


def test_a_log_has_the_message_alone(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(attacks.STREAM.replace("@PATH", "trades.csv"))
    (tmp_path / "w.sql").write_text("SELECT sum(symbl) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts")
    done = CliRunner().invoke(app, ["validate", str(tmp_path / "w.sql"), "--streams", str(tmp_path / "streams.yaml")])
    assert "HDL-202" in done.stderr and "^" not in done.stderr and "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((0.00092735, "0.00092735"), (92.21612345, "92.216"), (83872.0, "83,872"), (1234567.891, "1,234,567.89")),
        *((0.5, "0.5"), (0.0, "0"), (-1234.5678, "-1,234.57"), (999.996, "1,000"), (1e-9, "1e-09"), (1e20, "1e+20")),
        *((5e-324, "4.9407e-324"), (float("nan"), "nan"), (float("-inf"), "-inf"), (0.1 + 0.2, "0.3")),
    ],
)
def test_doubles_have_their_significant_digits(value: float, shown: str) -> None:
    assert answers._cell(value) == shown


def test_plans_and_differences_in_the_terminal(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    from optimizer.plan.export import to_json

    out = _terminal(monkeypatch)
    plan, other = _plan(canary, True), _plan(canary, False)
    plan_module.show_plan(to_json(plan), terminal.console)
    changes.show_diff(diff(None, plan), plan)
    changes.show_diff(diff(other, plan), plan)
    written = out.getvalue()
    canary.check(written)
    assert "[red]x[/red]" in written and "\\x1b[31mred" in written
    assert not [active for active in ("\x1b[31mred", "\x1b]", "\x07", "\x9b", "\u202e") if active in written]


def test_the_command_line(canary: Canary, tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        attacks.STREAM.replace("@PATH", "trades.csv").replace("symbol: string", "symbol: string, qty: int, ok: boolean")
    )
    (tmp_path / "trades.csv").write_text("ts,symbol,qty,ok\n2013-01-01 00:00:00,A,1,true\n")
    texts = [f"-- name: q{number}\n{filled(text, canary)}" for number, text in enumerate(LEGAL)]
    texts += [filled(text, canary) for _, text in attacks.queries() if len(text) < 3000]
    (tmp_path / "w.sql").write_bytes(";\n".join(texts).encode(errors="replace"))
    run = CliRunner()
    files = [str(tmp_path / "w.sql"), "--streams", str(tmp_path / "streams.yaml")]
    for command in (["validate"], ["validate", "--json"], ["plan", "--rate", "trades=1"], ["plan", "--json"]):
        done = run.invoke(app, [command[0], *files, *command[1:]])
        # 1: queries were refused, as told; nothing else went wrong
        assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
        canary.check(done.stdout, done.stderr)
        assert not [active for active in ("\x1b", "\x07", "\x9b", "\u202e", "\x00") if active in done.output]
        if "--json" in command:
            assert json.loads(done.stdout)["format_version"] == 1
    assert "[red]x[/red]" in json.loads(run.invoke(app, ["validate", *files, "--json"]).stdout)["queries"][1]["owner"]


PROBE = """
import json, os, sys
from airflow.api_fastapi.core_api import security
security.requires_access_dag = lambda *_, **__: (lambda: None)
from fractions import Fraction
from fastapi.testclient import TestClient
from optimizer.plan.builder import build_plan
from optimizer.workload.values import ACQ, LONG, SECOND, TIMESTAMP, Output, Source, Stream, Window, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from heddle.airflow import pages
# Airflow's database is empty
pages.project_of = lambda prefix: None
given = json.loads(sys.argv[1])
stream = Stream("trades", Source("csv", "x"), (("ts", TIMESTAMP),), "ts")
outputs = (Output("n", "count", None, None, LONG),)
query = ACQ("q", "trades", Window(8 * SECOND, 4 * SECOND), outputs, owner=given["trick"])
plan = build_plan(Workload((query,), (stream,)), {"trades": Fraction(1)}, "shared")
publish_plan(Warehouse.open(os.environ["HEDDLE_WAREHOUSE"]), plan, given["trick"], given["trick"])
client = TestClient(pages.airflow_app(), raise_server_exceptions=False)
asked = [("/", {"version": version}) for version in given["versions"]] + [(path, {}) for path in given["paths"]]
found = []
for path, parameters in asked:
    done = client.get(path, params=parameters)
    found.append([path, parameters, done.status_code, done.text])
good = client.get("/", params={"version": "1"})
print("RESULT" + json.dumps([found, good.status_code, good.text, good.headers["content-security-policy"]]))
"""
PATHS = (
    "/..%2f..%2fetc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/static/../../etc/passwd",
    "/docs",
    "/x" * 2000,
    "/<script>",
)


def test_the_routes_of_the_plugin(canary: Canary, tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(tmp_path / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "HEDDLE_WAREHOUSE": str(tmp_path / "house"),
        "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
    }
    versions = [text.replace("@CANARY", str(canary.path)).replace("@SECRET", SECRET_NAME) for text in attacks.VERSIONS]
    probe_input = json.dumps({"versions": versions, "paths": PATHS, "trick": "".join(TRICKS)})
    done = subprocess.run(
        [sys.executable, "-c", PROBE, probe_input], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout + done.stderr
    responses, status, html, policy = json.loads(lines[-1].removeprefix("RESULT"))
    for path, parameters, code, text in responses:
        assert code == 404 and "No such page" in text, (path, parameters, code, text[:300])
        canary.check(text)
        shown = re.sub(r"<[^>]*>", "", text.partition("<main")[2])
        assert not any(len(value) > 3 and value in shown for value in parameters.values())
    assert status == 200 and "default-src 'none'" in policy
    canary.check(html, done.stdout, done.stderr)
    assert not [active for active in ACTIVE if active in html]
