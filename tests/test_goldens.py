"""What is typed, printed, stored and shown, as texts: nothing of it changes unnoticed (:mod:`tests.goldens`).

The warehouse is the fixture of :mod:`tests.test_former_warehouse`: what its tables hold is the same on every machine,
the measured seconds too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from heddle.pages import answers, data_docs, history, operations, plan, query, refresh, streams, trends
from heddle.pages.refresh import Refresh
from optimizer.errors.diagnostics import Diagnostic
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.export import to_json as plan_json
from optimizer.plan.stored_rows import to_rows
from optimizer.workload.streams import load_streams
from optimizer.workload.values import Workload
from optimizer.workload.values import to_json as stored
from spark_jobs.audit.checks.data_docs import document
from spark_jobs.audit.checks.suite import FINDINGS, expectations
from spark_jobs.operations.answers import list_answers, read_query
from spark_jobs.operations.read import change_of, read_operations, read_radius, read_versions
from spark_jobs.operations.series import Choice, Listing, Span, Streams, Trends
from spark_jobs.operations.trends import read_streams, read_trends
from spark_jobs.operations.values import (
    Check,
    Operations,
    Publication,
    Quarantined,
    Refreshed,
    Revised,
    Run,
    Sampled,
    Saving,
    Stale,
)
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.schemas import TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.goldens import as_json, check, outline, styles
from tests.in_process import COMMAND, Clock, heddle, without_spark

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = ROOT / "tests" / "fixtures" / "warehouse_0_1.tar.xz"
MINUTE = 60_000_000
START = 1_372_716_000_000_000
"""2013-07-01T22:00:00Z, as in fixtures/make_warehouse.py."""

NOW = datetime(2013, 7, 2, 3, 5, tzinfo=UTC)
RATES = ("--rate", "trades=1", "--rate", "orders=1/2")
FILES = ("--streams", "streams.yaml")
HOUSE = ("--warehouse", "warehouse")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The warehouse and its sources, unpacked into the current folder; commands of this fixture change nothing."""
    place = tmp_path_factory.mktemp("world")
    unpacked(place)
    with pytest.MonkeyPatch.context() as patch, without_spark(Clock(START + 305 * MINUTE)):
        patch.chdir(place)
        (place / "small.sql").write_text(SMALL)
        (place / "windows.csv").write_text("range,slide\n16,4\n10,5\n8,4\n7,0\n")
        yield place


def unpacked(place: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")


SMALL = """\
-- name: by_symbol
-- owner: desk
SELECT symbol, sum(volume) AS total FROM trades WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol;
-- name: middle
SELECT median(price) AS middle FROM trades WINDOW RANGE '90 minutes' SLIDE '30 minutes' ON ts WHERE volume > 0;
-- name: rows
SELECT count(*) AS n FROM trades WINDOW ROWS 5 SLIDE 3 PARTITION BY symbol ON ts GROUP BY symbol;
-- name: pairs
SELECT count(*) AS found FROM trades PATTERN SEQ(A, B) ON symbol WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts;
-- name: bound
SELECT max(price) AS high FROM orders WINDOW RANGE '1 hour' SLIDE AT MOST '1 hour' ON ts;
-- name: sparse
SELECT count(*) AS n FROM orders WINDOW RANGE '10 minutes' SLIDE '1 hour' ON ts;
-- name: wrong
SELECT sum(volum) AS total FROM trades WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts;
-- name: hostile
SELECT count(*) AS n FROM trades, orders WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts;
"""


# ------------------------------------------------------------------------------------------------- commands
def plain(text: str) -> str:
    """A command's text without colours, progress, spaces that end lines, long rules, its place, what is measured."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace(str(Path.cwd()), "<place>")
    numbers = "seconds|explained_cpu_seconds|predicted_cpu_seconds|prediction_error|processes|suites"
    text = re.sub(rf'"({numbers})": -?[\d.e-]+', r'"\1": 0', text)
    text = re.sub(r'"predicted_between": \[\s*[\d.]+,\s*[\d.]+\s*\]', '"predicted_between": [0, 0]', text)
    text = re.sub(r"([─━])\1+", r"\1", text)
    lines = (re.sub(r" +│$", " │", line.rstrip()) for line in text.splitlines())
    return "\n".join(line for line in lines if not re.search(r" \d+/\d+ \d+:\d\d:\d\d$", line))


def told(commands: Sequence[Sequence[str]]) -> str:
    """What some commands say, one after the other."""
    parts = []
    for command in commands:
        run = heddle(*command)
        line = " ".join(f"'{word}'" if " " in word else word for word in command)
        parts += [f"$ heddle {line}", plain(compact(run.out)), *(f"! {text}" for text in plain(run.err).splitlines())]
        parts.append(f"exit code {run.code}\n")
    return "\n".join(parts)


def compact(text: str) -> str:
    """JSON in fewer lines; any other text as it is."""
    if not text.startswith("{"):
        return text
    return as_json(steady(json.loads(text)))


def steady(data: Any) -> Any:
    """Data without what is measured while a command runs."""
    if isinstance(data, dict):
        clocks = ("cpu_seconds", "wall_seconds")
        return {
            key: dict.fromkeys(value, 0) if key in clocks and isinstance(value, dict) else steady(value)
            for key, value in data.items()
        }
    return list(map(steady, data)) if isinstance(data, list) else data


def test_help(world: Path) -> None:
    names = sorted(COMMAND.commands)  # type: ignore[attr-defined]
    check("help.txt", told([["--help"], *([name, "--help"] for name in names)]))


def test_commands_on_files(world: Path) -> None:
    small = ("small.sql", *FILES)
    planned = (*small, *RATES, "--algorithm")
    both = [
        ("validate", *small),
        ("plan", *planned, "weave-share"),
        ("explain", "by_symbol", *planned, "weave-share"),
        ("explain", "pairs", *planned, "shared"),
        ("what-if", *small, "--base-rate", "trades=1", "--base-rate", "orders=1/2", *("--algorithm", "weave-share"),
         "--add", "more.sql", "--remove", "rows", "--rate", "tradesx10"),
        ("plan", "--windows", "windows.csv", "--rate", "1.2", "--algorithm", "weave-share"),
    ]  # fmt: skip
    as_text = [
        ("plan", *planned, "optimal", "--cost-model", "measured", "--summary"),
        ("plan", *planned, "no-share", "--format", "mermaid"),
        ("plan", "small.sql", "queries.sql", *FILES, *RATES, "--algorithm", "weave-share"),
        ("explain", "by_simbol", *planned, "shared"),
        ("plan", "missing.sql", *FILES),
        ("plan", "small.sql"),
    ]
    check("commands_on_files.txt", told([argv for each in both for argv in (each, (*each, "--json"))] + as_text))


def test_commands_on_a_warehouse(world: Path) -> None:
    both = [
        ("plan", *HOUSE),
        ("plan", "small.sql", *FILES, *RATES, *HOUSE, "--algorithm", "weave-share", "--summary"),
        ("explain", "ranks", *HOUSE),
        ("explain", "bound", *HOUSE),
        ("diff", *HOUSE),
        ("diff", "1", "4", *HOUSE),
        ("what-if", *HOUSE, "--remove", "spread", "--add", "small.sql", "--algorithm", "weave-share"),
        ("queries", *HOUSE, "--at", "2013-07-03"),
        ("queries", *HOUSE, "--history", "replaced"),
        ("status", *HOUSE),
        ("read", "by_symbol", *HOUSE, "--from", "2013-07-01T23:00:00"),
        ("read", "rows", *HOUSE),
        ("lookup", "by_symbol", *HOUSE, "--at", "2013-07-01T23:30:00"),
        ("lookup", "ranks", *HOUSE, "--range", "1 hour", "--ending-at", "2013-07-02T01:00:00"),
        ("quarantine", *HOUSE),
        ("repair", *HOUSE, "--dry-run"),
        ("backfill", *HOUSE, "--from", "2013-07-01T22:00:00", "--to", "2013-07-02T04:00:00", "--every", "2 hours",
         "--dry-run"),
        ("rollback", "1", *HOUSE, "--dry-run"),
        ("remove", "gone", "spread", *HOUSE, "--with-answers", "--dry-run"),
        ("maintain", *HOUSE, "--dry-run", "--keep", "36500 days", "--retention", "36500 days"),
    ]  # fmt: skip
    as_text = [
        ("plan", *HOUSE, "--format", "mermaid"),
        ("read", "pattern", *HOUSE, "--format", "csv"),
        ("read", "ranks", *HOUSE, "--limit", "3"),
        ("read", "by_simbol", *HOUSE),
        ("read", "wide", *HOUSE, "--to", "2013-07-01T20:00:00"),
        ("lookup", "wide", *HOUSE, "--at", "2013-07-02T01:30:00", "--format", "csv"),
        ("lookup", "wide", *HOUSE, "--at", "2013-07-02T01:30:10"),
        ("lookup", "before", *HOUSE, "--at", "2013-07-02T01:00:00"),
        ("rollback", "9", *HOUSE),
        ("status", "--warehouse", "trades"),
    ]
    check("commands_on_a_warehouse.txt", told([argv for each in both for argv in (each, (*each, "--json"))] + as_text))


def test_commands_that_change_a_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(tmp_path)
    monkeypatch.chdir(tmp_path)
    with without_spark(Clock(START + 335 * MINUTE)):
        commands = [
            ("upgrade", *HOUSE),
            ("upgrade", *HOUSE, "--apply", "--yes"),
            ("tick", *HOUSE, "--at", "2013-07-02T02:40:00", "--json"),
            ("tick", *HOUSE, "--at", "2013-07-02T02:41:00"),
            ("tick", *HOUSE, "--at", "2013-07-02T03:30:00"),
            ("repair", *HOUSE, "--json"),
            ("repair", *HOUSE),
            ("pause", "spread", *HOUSE, "--json"),
            ("pause", "spread", "nobody", *HOUSE),
            ("resume", "spread", *HOUSE),
            ("quarantine", *HOUSE, "--release", "orders/late.parquet"),
            ("remove", "rows", *HOUSE),
            ("remove", "busy", *HOUSE, "--with-answers", "--yes", "--json"),
            ("rollback", "1", *HOUSE),
            ("rollback", "1", *HOUSE, "--yes"),
        ]
        text = told(commands)
    text = re.sub(r"CPU seconds: .*", "CPU seconds: …", text)
    check("commands_that_change_a_warehouse.txt", text)


# ------------------------------------------------------------------------------------------- what is stored
LANGUAGE = """
SELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts
SELECT count(*) AS n FROM trades WINDOW RANGE '90 seconds' SLIDE '1 second' ON ts
SELECT count(*) AS n FROM trades WINDOW RANGE '1 minute' SLIDE '1 hour' ON ts
SELECT count(*) AS n FROM trades WINDOW RANGE '2 hours 30 minutes' SLIDE '1 hour' ENDING '7 days' AGO ON ts
SELECT count(*) AS n FROM trades WINDOW RANGE '48 hours' SLIDE AT MOST '8 hours' ON ts
SELECT count(*) AS n FROM trades WINDOW ROWS 100 SLIDE 10 ON ts
SELECT symbol, sum(volume) FROM trades WINDOW ROWS 7 SLIDE 3 PARTITION BY symbol ON ts WHERE ok GROUP BY symbol
SELECT symbol, day, ok, qty, count(*) AS n FROM trades @W GROUP BY symbol, day, ok, qty
SELECT day, symbol, max(price) AS high FROM trades @W GROUP BY symbol, day
SELECT avg(price) AS a, variance(price) AS b, var_pop(qty) AS c, stddev(fee) AS d, stddev_pop(price) AS e FROM trades @W
SELECT first(price) AS a, last(symbol) AS b, min_by(symbol, price) AS c, max_by(day, volume) AS d FROM trades @W
SELECT every(ok) AS a, some(qty > 1) AS b, bit_and(qty) AS c, bit_or(volume) AS d, bit_xor(qty) AS e FROM trades @W
SELECT count(DISTINCT symbol) AS a, count_distinct(qty + 1) AS b, mode(symbol) AS c, top_k(day, 3) AS d FROM trades @W
SELECT median(price) AS a, percentile(fee, 0.9) AS b, percentile_disc(symbol, 0.25) AS c FROM trades @W
SELECT approx_count_distinct(symbol, 0.02) AS a, approx_percentile(price, 0.5, 100) AS b FROM trades @W
SELECT approx_top_k(symbol, 7) AS a FROM trades @W
SELECT count(DISTINCT symbol) AS a, median(price) AS b FROM trades @W WITH (error = 0.01)
SELECT sum(qty * 2 + volume) AS a, sum(fee / 3) AS b, avg(abs(-price)) AS c, max(coalesce(qty, 0)) AS d FROM trades @W
SELECT count(*) AS n FROM trades @W WHERE symbol = 'NYSE' AND price * volume > 1e6
SELECT count(*) AS n FROM trades @W WHERE price * volume > 1e6 AND 'NYSE' = symbol
SELECT count(*) AS n FROM trades @W WHERE NOT (qty <= 3 OR symbol IS NULL)
SELECT count(*) AS n FROM trades @W WHERE symbol IN ('a', 'b', 'c') AND qty NOT IN (1, 2)
SELECT count(*) AS n FROM trades @W WHERE qty BETWEEN 1 AND 5 AND price NOT BETWEEN -1.5 AND 2
SELECT count(*) AS n FROM trades @W WHERE symbol LIKE 'A%' AND lower(symbol) NOT LIKE '%_x'
SELECT count(*) AS n FROM trades @W WHERE day >= '2013-07-04' AND ts < timestamp '2013-07-04 18:30:00'
SELECT count(*) AS n FROM trades @W WHERE upper(symbol) = 'X' OR fee <> 12.34 OR ok
SELECT symbol, count(*) AS n FROM trades @W GROUP BY symbol HAVING count(*) > 2 AND sum(volume) >= 10
SELECT count(*) AS n, avg(price) AS mean FROM trades @W HAVING avg(price) < 1.5
SELECT count(*) AS n FROM trades PATTERN SEQ(A, B) ON symbol @W
SELECT qty, count(*) AS n, avg(B.price) FROM trades PATTERN SEQ(A, B, B) ON symbol PARTITION BY ok @W GROUP BY qty
SELECT sum(A.fee) AS a, count(B) AS b, count(B.qty) AS c, min(A.day) AS d FROM trades PATTERN SEQ(A, B) ON symbol @W
SELECT count(`New York`) AS n FROM trades PATTERN SEQ('New York', B) ON symbol @W WHERE price > 0 HAVING count(*) > 5
SELECT count(*) AS n FROM trades PATTERN SEQ(1, 2, 1) ON qty PARTITION BY symbol @W
SELECT symbol, count(*) AS error_count FROM trades @W WHERE `qty` = 1 AND trades.ok GROUP BY symbol
-- owner: market-data\\nSELECT count(*) AS n FROM trades @W
-- until: 2026-12-31T18:00\\nSELECT count(*) AS n FROM trades @W
select COUNT(1) as n from trades window range '60 minutes' slide '300 seconds' on ts -- as the first
"""
TRADES = """
streams:
  trades:
    source: {format: parquet, path: trades}
    schema: {ts: timestamp, symbol: string, price: double, volume: long, qty: int, fee: "decimal(10,2)", day: date,
             ok: boolean}
    time: ts
"""


def test_fingerprints(tmp_path: Path) -> None:
    """Of every clause of the language: what is stored of a query, and the hash by which its answers are known."""
    (tmp_path / "streams.yaml").write_text(TRADES)
    declared, wrong = load_streams(tmp_path / "streams.yaml")
    assert not wrong
    # a plan's fingerprint has the paths of its sources
    streams = {name: replace(stream, source=replace(stream.source, path=name)) for name, stream in declared.items()}
    fingerprints, queries = {}, []
    for number, line in enumerate(LANGUAGE.strip().splitlines()):
        text = line.replace("\\n", "\n").replace("@W", "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts")
        parsed = parse(f"-- name: q{number}\n{text};", streams)
        assert [note.code for note in parsed.diagnostics if note.severity == "error"] == [], (line, parsed.diagnostics)
        (query,) = parsed.queries
        queries.append(query)
        fields = {name: value for name, value in stored(query).items() if name not in ("text", "name")}
        assert query.definition == query.fingerprint
        fingerprints[line] = {"fingerprint": query.fingerprint, "stored": fields}
    assert len(fingerprints) == len({query.name for query in queries}) > 30
    check("queries.json", as_json(fingerprints))
    plan = build_plan(Workload(tuple(queries), tuple(streams.values())), {"trades": Fraction(10)}, "weave-share")
    rows = [{name: _parsed(value) for name, value in row.items()} for row in to_rows(plan)]
    for row in rows:
        # that stands in the other golden
        row.pop("query_definition")
    sequences = {query.name for query in queries if query.pattern is not None}
    chosen = [row for n, row in enumerate(rows) if n % 9 == 0 or row["query"] in sequences or row["schedules"]]
    check("plan_of_the_language.json", as_json({"plan": plan_json(plan), "rows": chosen[:8]}))


def _parsed(value: Any) -> Any:
    """A stored text as data, if it is JSON."""
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def test_schemas() -> None:
    lines = []
    for name, (schema, partitions) in sorted(TABLES.items()):
        lines.append(f"{name}, partitioned by {', '.join(partitions) or 'nothing'}")
        lines += [f"  {field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema]
    check("tables.txt", "\n".join(lines))


# -------------------------------------------------------------------------------------------------- pages
DAY = 86_400_000_000
HOSTILE = "<script>alert('x')</script>\"'&amp;<!--]]>\u202e\x1b[31m<a href=javascript:alert(1)>"


def ill() -> Operations:
    """An operating view in which everything is wrong that may be."""

    def run(number: int, status: Any = "published", **overrides: Any) -> Run:
        defaults = {"measured": 10.0, "predicted": 12.0, "wall": 5.0, "passed": 14, "checks": 14}
        begin, at = number * DAY, NOW - timedelta(hours=30 - number)
        return Run(f"run-{number}", status, at, begin, begin + DAY, 1, 2, 1000, 3, 50_000, **(defaults | overrides))

    silent = Diagnostic("HDL-413", "stream orders has no events", "is it fed?", severity="warning")
    problem = Diagnostic("HDL-530", "the checks failed", "look at them")
    return Operations(
        NOW,
        2,
        3,
        (
            run(4, "no end", measured=None, predicted=None, wall=None),
            run(3, "failed", problems=(problem,), passed=13, live=True),
            run(2, late=True, lateness=(("watch", DAY),), warnings=(silent,), fewer=(("volume", 9, 3),), live=True),
            run(1, empty=("volume", HOSTILE), docs="0123456789abcdef.html"),
        ),
        (Refreshed("watch", 8 * DAY, 6 * DAY, DAY, 2 * DAY, 1, DAY), Refreshed(HOSTILE, DAY, DAY, None, 0, 0, 0)),
        (Check("run-3", NOW, 3 * DAY, 4 * DAY, "shared=unshared(volume)", "3 answers differ"),),
        (55, 1),
        (Sampled("run-1", NOW - timedelta(hours=29), 3, ()), Sampled("run-3", NOW, 2, ("volume",))),
        (
            Revised(
                0,
                DAY,
                (
                    Publication(1, NOW - timedelta(days=1), "run-1", 1, 100, 5000, "first publication"),
                    Publication(2, NOW, "repair/1", 2, 103, 5010, "plan version 1 → 2; +3 answers"),
                ),
            ),
        ),
        (Quarantined("trades", "HDL-410", 1234, 2, NOW, "no time"), Quarantined("", "HDL-411", 1, 1, NOW, HOSTILE)),
        (Saving("ops", 2, 15.0, 45.0), Saving("", 1, 5.0, 5.0), Saving(HOSTILE, 1, 6.0, 5.0)),
        1,
        (Stale(0, DAY, 1, 74, 2, 3, 40),),
        2,
        2,
    )


OUTCOME: dict[str, Any] = {
    "version": 4,
    "changed": True,
    "plan": {"cost": 2.0, "cost_model": "paper", "baselines": {"no_share": 4.0, "weave_share": None}, "trees": [1, 2]},
    "diff": ["+ query a", "- query b", "~ query c (window)", "> query d", "  plan: cost 1 -> 2", HOSTILE],
    "diagnostics": [{"code": "HDL-401", "message": "no file", "hint": "look"}],
}
GIVEN = {"algorithm": "shared", "cost_model": "measured", "tolerance": "x", "rates": "a=1\nb=2", "reason": HOSTILE}


def refreshes() -> dict[str, str]:
    """The pages of a refresh by hand."""
    conf = {"dry_run": True, "reason": "more queries", "algorithm": "best", "allow_removals": True}
    dry = Refresh("manual__1+00:00", "success", NOW, "anna", conf, OUTCOME)
    many = OUTCOME | {"diagnostics": [{"code": "HDL-526", "message": "8 of 9 would be removed", "hint": "the folder"}]}
    wrong = Diagnostic("HDL-552", "the tolerance is no number of at least 0", "0.05 permits a plan 5 % dearer")
    running = Refresh(HOSTILE, "queued", None, "", {"reason": "x" * 200})
    return {
        "form": refresh.form(()),
        "form_again": refresh.form((dry, running), GIVEN | {"allow_removals": "yes"}, wrong, True),
        "refused": refresh.refused(wrong),
        "dry_run": refresh.outcome(dry, 4),
        "dry_run_overtaken": refresh.outcome(dry, 5, wrong),
        "dry_run_removes": refresh.outcome(Refresh("m", "success", NOW, "", conf, many), 4),
        "dry_run_unchanged": refresh.outcome(Refresh("m", "success", NOW, "", conf, OUTCOME | {"changed": False}), 4),
        "applied": refresh.outcome(Refresh("m", "success", NOW, "anna", {}, OUTCOME), 4),
        "failed": refresh.outcome(Refresh("m", "failed", NOW, "anna", {}, None, HOSTILE), 4),
        "running": refresh.outcome(running, 0),
    }


def of_answers(house: Warehouse) -> dict[str, str]:
    """The pages of answers, streams and days, of the fixture and of nothing."""

    def shown(name: str, span: Span, group: str = "") -> str:
        return query.page(replace(read_query(house, name, span, group, NOW), warehouse="/the/warehouse"))

    return {
        "answers": answers.page(list_answers(house, Choice(), NOW)),
        "answers_chosen": answers.page(list_answers(house, Choice("symbol", "", "running", 7), NOW)),
        "answers_of_nothing": answers.page(Listing(NOW, Choice())),
        "query": shown("by_symbol", Span("all")),
        "query_without_answers": shown("bound", Span("between", 0, 1)),
        "streams": streams.page(read_streams(house, Span("all"), NOW)),
        "streams_of_nothing": streams.page(Streams(NOW, Span("month"))),
        "trends": trends.page(read_trends(house, Span("all"), NOW)),
        "trends_of_nothing": trends.page(Trends(NOW, Span("month"))),
        "read_only": refresh.read_only(),
        "not_shown": refresh.refused(Diagnostic("HDL-521", f"there is no registered query {HOSTILE}", "look"), False),
    }


@pytest.fixture(scope="module")
def pages(world: Path) -> dict[str, str]:
    """Every page, by name."""
    house = Warehouse.open("warehouse", create=False)
    versions, total = read_versions(house)
    html_pages = {
        "plan": heddle("plan", *HOUSE, "--format", "html").out,
        "plan_in_airflow": plan.page(
            load_plan(house, 1), {"version": "1", "by": HOSTILE, "because": "<b>"}, in_menu=True
        ),
        "operations": operations.page(read_operations(house, NOW, look=True)),
        "operations_ill": operations.page(ill()),
        "operations_of_nothing": operations.page(Operations(NOW)),
        "operations_before_runs": operations.page(Operations(NOW, 1)),
        "revision": operations.radius(read_radius(house, START + 120 * MINUTE, START + 240 * MINUTE, 1)),
        "history": history.page(versions, total, 4, 4, change_of(house, 4), NOW),
        "history_first": history.page(versions, total, 4, 1, change_of(house, 1), NOW),
        "history_of_nothing": history.page((), 0, 0, None, None, NOW),
        **{f"refresh_{name}": page for name, page in refreshes().items()},
        **of_answers(house),
    }
    return {name: page.replace(str(Path.cwd()), "/place") for name, page in html_pages.items()}


PAGES = (
    *("plan", "plan_in_airflow", "operations", "operations_ill", "revision", "history", "refresh_form_again"),
    *("answers", "query", "streams", "trends"),
)
"""Pages with a file of their own; the others are shorter and stand together."""


@pytest.mark.parametrize("name", PAGES)
def test_pages(pages: dict[str, str], name: str) -> None:
    check(f"pages/{name}.txt", outline(pages[name]))


def test_short_pages(pages: dict[str, str]) -> None:
    short = [f"==== {name}\n{outline(page)}" for name, page in pages.items() if name not in PAGES]
    check("pages/others.txt", "\n\n".join(short))


def test_styles(pages: dict[str, str]) -> None:
    check("pages/style.css", styles(list(pages.values())))


def test_data_docs() -> None:
    row = {"query": "volume", "answers": 40, **dict.fromkeys(FINDINGS, 0), "examples": ""}
    hostile = row | {"query": "<script>alert(1)</script><img src=x>", "repeated": 3, "examples": "<b>"}
    pages: list[str] = []
    facts = {"answers of": "2013-07-01 .. 2013-07-02", "files": "3"}
    expectations(pd.DataFrame([row, hostile]), lambda result: pages.append(data_docs.page(document(result, facts))))
    check("pages/data_docs.txt", re.sub(r"20\d\d-?\d\d-?\d\dT[\d:.]+(Z|\+00:00)", "<now>", outline(pages[0])))
    check("pages/style.css", styles(pages))


# ------------------------------------------------------------------------------------------------- Airflow
PROBE = """
import json, os, sys
from pathlib import Path
from airflow.api_fastapi.app import create_auth_manager
create_auth_manager()
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException
from fastapi.routing import APIRoute
from heddle.airflow import operators, pages
from heddle.airflow.plugin import HeddlePlugin
from heddle.pages import served

root = Path(sys.argv[1])
bag = BundleDagBag(root / "dags", bundle_path=root / "dags", bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
app = pages.airflow_app()

def submitted(operator):
    SparkSubmitOperator.execute = lambda self, context: None
    operator.execute({"run_id": "manual__1"})
    # where the job's file lies may change, what it is given may not
    return {"arguments": operator.application_args, "settings": sorted(operator.conf), "name": operator.name,
            "connection": operator._conn_id}

def viewed(place):
    os.environ.update({} if place is None else {"HEDDLE_CATALOG_SCHEMA": place})
    try:
        return submitted(operators.ViewsOperator(task_id="d", announced={"plan_version": 3}))
    except AirflowSkipException as skipped:
        return str(skipped)

pinned = {"plan_version": 3, "from": "2013-07-01T00:00:00Z", "to": "2013-07-02T00:00:00Z"}
plugin = HeddlePlugin()
found = {
    "routes": sorted([route.path, sorted(route.methods)] for route in app.routes if isinstance(route, APIRoute)),
    "other routes": [route.path for route in app.routes if not isinstance(route, APIRoute)],
    "mounted": [[one["name"], one["url_prefix"]] for one in plugin.fastapi_apps],
    "views": plugin.external_views,
    "links": [link.name for link in HeddlePlugin.operator_extra_links],
    "headers": pages.HEADERS,
    "without a plan": served.plan_html(Path("no/such/folder"), None),
    "submitted": {
        "aggregate": submitted(operators.AggregateOperator(task_id="a", pinned=pinned)),
        "live": submitted(operators.AggregateOperator(task_id="b", pinned=pinned | {"live": True, "late": True})),
        "repair": submitted(operators.RepairOperator(task_id="c", outdated={"plan_version": 3, "days": 7})),
        "views": [viewed(None), viewed("main.answers")],
    },
    "dags": {
        name: {
            "description": dag.description, "tags": sorted(dag.tags), "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs, "start": dag.start_date.isoformat(),
            "timetable": [type(dag.timetable).__name__, getattr(dag.timetable, "expression", "")],
            "params": {key: param.serialize() for key, param in
                       ((key, dag.params.get_param(key)) for key in dag.params)},
            "tasks": {
                task.task_id: {
                    "after": sorted(task.upstream_task_ids), "retries": task.retries,
                    "delay": str(task.retry_delay),
                    "outlets": [getattr(asset, "uri", asset.name) for asset in task.outlets],
                    "kind": task.task_type,
                } for task in dag.tasks
            },
            "text": dag.doc_md,
        } for name, dag in sorted(bag.dags.items())
    },
}
print("RESULT" + json.dumps(found, default=str))
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plugin and the DAGs, as a process of their own has them."""
    home = tmp_path_factory.mktemp("airflow")
    base = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "HEDDLE"))}
    environment = base | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "HEDDLE_HOME": str(ROOT),
        "HEDDLE_WAREHOUSE": "warehouse",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
    }
    call = [sys.executable, "-c", PROBE, str(ROOT)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, cwd=home)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout + done.stderr
    description: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT"))
    return description


def test_airflow(airflow: dict[str, Any]) -> None:
    facts = {name: value for name, value in airflow.items() if name != "without a plan"}
    check("airflow.json", as_json(facts) + "\n" + outline(airflow["without a plan"]))
