"""The command line: exit codes, JSON for programs, bad input beside good, no JVM where none is needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from heddle.cli.app import app
from heddle.cli.root import MODULES
from optimizer.errors.installing import install_hint
from optimizer.papers.evaluations.outcome import Chart, Experiment, Measurement, Report
from optimizer.plan.builder import build_plan
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.planning.requested import load_inputs
from spark_jobs.store.warehouse.warehouse import Warehouse

ROOT = Path(__file__).resolve().parents[2]

STREAMS = """
streams:
  trades:
    source: {format: csv, path: trades.csv}
    schema: {ts: timestamp, symbol: string, price: double, volume: long}
    time: ts
    lateness: 10 minutes
"""
GOOD = """
-- name: a
SELECT symbol, max(price) AS hi FROM trades WINDOW RANGE '16 seconds' SLIDE '4 seconds' ON ts GROUP BY symbol;
-- name: b
SELECT sum(volume) AS vol FROM trades WINDOW RANGE '10 seconds' SLIDE '5 seconds' ON ts;
-- name: c
SELECT count(*) AS n FROM trades WINDOW RANGE '8 seconds' SLIDE '4 seconds' ON ts;
"""
BAD = "-- name: bad\nSELECT sum(symbl) FROM trades WINDOW RANGE '8 seconds' SLIDE '4 seconds' ON ts;\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "good.sql").write_text(GOOD)
    (tmp_path / "bad.sql").write_text(BAD)
    rows = [f"2024-03-01 00:00:{second:02},{'AB'[second % 2]},{second}.5,{second}" for second in range(60)]
    (tmp_path / "trades.csv").write_text("\n".join(["ts,symbol,price,volume", *rows, ""]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def heddle(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_validate_reports_places_and_goes_on(place: Path) -> None:
    assert heddle("validate", "good.sql", "--streams", "streams.yaml")[0] == 0
    code, out, err = heddle("validate", "good.sql", "bad.sql", "--streams", "streams.yaml")
    assert code == 1 and "3 queries usable, 1 error\n" in out
    assert "bad.sql:2:12: error HDL-202 [bad]" in err and "did you mean symbol?" in err
    code, out, _ = heddle("validate", "bad.sql", "--streams", "streams.yaml", "--json")
    report = json.loads(out)
    assert code == 1 and report["format_version"] == 1
    assert [(d["code"], d["line"], d["column"]) for d in report["diagnostics"]] == [("HDL-202", 2, 12)]


def test_plan_is_the_papers_third_example(place: Path) -> None:
    """Weave Share Example 3: {a, c} together and b alone cost 4.3 at 1.2 tuples a second, 5.5 apart, 4.4 in one."""
    code, out, _ = heddle("plan", "good.sql", "--streams", "streams.yaml", "--rate", "trades=1.2", "--json")
    plan = json.loads(out)
    assert code == 0 and plan["format_version"] == 1 and plan["cost_model"] == "paper"
    assert plan["cost"] == pytest.approx(4.3) and plan["rates"] == {"trades": "6/5"}
    costs = {"no_share": 5.5, "shared": 4.4, "weave_share": 4.3}
    assert plan["baselines"] == {name: pytest.approx(cost) for name, cost in costs.items()}
    assert [tree["queries"] for tree in plan["trees"]] == [["a", "c"], ["b"]]
    first = plan["trees"][0]
    assert (first["composite_slide"], first["edges"]) == (4, 1)
    assert Fraction(first["edge_rate"]) == Fraction(1, 4) and Fraction(first["overlap_factor"]) == 6
    _, out, _ = heddle("plan", "good.sql", "--streams", "streams.yaml", "--algorithm", "shared", "--json")
    assert len(json.loads(out)["trees"]) == 1
    # without --rate it is measured: 60 events in 59 seconds and a microsecond
    assert Fraction(json.loads(out)["rates"]["trades"]) == Fraction(60_000_000, 59_000_001)


def test_a_bad_query_does_not_keep_the_others_from_a_plan(place: Path) -> None:
    code, out, err = heddle("plan", "good.sql", "bad.sql", "--streams", "streams.yaml", "--json")
    assert code == 1 and "HDL-202" in err
    assert sum(len(tree["queries"]) for tree in json.loads(out)["trees"]) == 3


def test_explain_says_with_whom_and_what_alone(place: Path) -> None:
    code, out, _ = heddle("explain", "a", "good.sql", "--streams", "streams.yaml", "--rate", "trades=1.2")
    assert code == 0 and "in tree trades-1" in out and "c  1.00" in out and "cost alone" in out
    assert heddle("explain", "nope", "good.sql", "--streams", "streams.yaml")[0] == 1


def test_wrong_usage_ends_with_2(place: Path) -> None:
    streams = ("--streams", "streams.yaml")
    assert heddle("plan", "missing.sql", *streams)[0] == 2
    assert heddle("plan", "good.sql")[0] == 2
    assert heddle("plan", "good.sql", *streams, "--rate", "trades")[0] == 2
    assert heddle("plan", "good.sql", *streams, "--rate", "other=1")[0] == 2
    assert heddle("plan", "good.sql", *streams, "--algorithm", "magic")[0] == 2
    assert heddle("status", "--warehouse", str(place))[0] == 2  # a folder of something else
    assert heddle("read", "a", "--warehouse", str(place / "none"))[0] == 2
    span = ("--from", "2024-03-02", "--to", "2024-03-01")
    assert heddle("run", "good.sql", *streams, "--warehouse", str(place / "w"), *span)[0] == 2
    assert not (place / "w").exists()


def test_compare_needs_a_published_run(place: Path) -> None:
    inputs = load_inputs(["good.sql"], "streams.yaml")
    publish_plan(Warehouse.open("w"), build_plan(inputs.workload, {"trades": 1}))
    code, _, err = heddle("compare", "--warehouse", "w", "--from", "2024-03-01", "--to", "2024-03-02")
    assert code == 1 and "HDL-508" in err


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert heddle("--version") == (0, f"heddle {project['version']}\n", "")


def test_every_command_helps_with_examples() -> None:
    names = list(MODULES)
    assert {"validate", "plan", "explain", "diff", "what-if", "run", "read", "status", "experiments", "compare"} <= set(
        names
    )
    for command in names:
        code, out, _ = heddle(command, "--help")
        assert code == 0 and "Example" in out and f"heddle {command}" in " ".join(out.split())
        assert "--json" in out or command in ("serve", "sql-server", "schema", "contract")


# ------------------------------------------------------------------------------- plans in other formats
def test_a_plan_in_every_format(place: Path) -> None:
    call = ("plan", "good.sql", "--streams", "streams.yaml", "--rate", "trades=1.2")
    plain, formatted = (json.loads(heddle(*call, *way)[1]) for way in (("--json",), ("--format", "json")))
    assert plain.pop("seconds") >= 0 and formatted.pop("seconds") >= 0 and plain == formatted
    code, out, _ = heddle(*call, "--format", "mermaid")
    assert code == 0 and out.startswith("flowchart LR\n") and '["a<br/>c"]' in out
    code, out, err = heddle(*call, "--format", "html", "--output", "plan.html")
    page = (place / "plan.html").read_text()
    assert (code, out) == (0, "") and "wrote plan.html" in err
    assert page.startswith("<!doctype html>") and "operations/s" in page and "<script" not in page
    assert heddle(*call, "--format", "html")[1] == page
    assert heddle(*call, "--output", "plan.txt")[0] == 0
    text = (place / "plan.txt").read_text()
    assert "trades-1" in text and "No Share" in text and "\x1b" not in text
    assert heddle(*call, "--json", "--output", "plan.json")[0] == 0
    assert json.loads((place / "plan.json").read_text())["cost"] == pytest.approx(4.3)
    code, _, err = heddle(*call, "--format", "html", "--output", "no/such/folder/plan.html")
    assert code == 2 and "HDL-115" in err
    assert heddle(*call, "--format", "pdf")[0] == heddle(*call, "--format", "html", "--json")[0] == 2
    code, out, _ = heddle("plan", "good.sql", "bad.sql", *call[2:], "--format", "mermaid")
    assert code == 1 and out.startswith("flowchart")


# ------------------------------------------------------------------------------------ diff and what-if
MORE = "-- name: d\nSELECT count(*) AS n FROM trades WINDOW RANGE '9 seconds' SLIDE '4 seconds' ON ts;\n"


@pytest.fixture
def house(place: Path) -> Path:
    """Three stored plans: a, b, c at 1.2 tuples/s; with d; and all in one tree at 10 tuples/s."""
    (place / "more.sql").write_text(MORE)
    warehouse = Warehouse.open(place / "house")
    for files, rate in ((["good.sql"], "1.2"), (["good.sql", "more.sql"], "1.2"), (["good.sql", "more.sql"], "10")):
        workload = load_inputs(files, "streams.yaml").workload
        assert publish_plan(warehouse, build_plan(workload, {"trades": Fraction(rate)}, "weave-share"))[1]
    return place / "house"


def stored_files(folder: Path) -> set[Path]:
    # holding the lease touches its file
    return {path for path in folder.rglob("*") if path.is_file() and "lease" not in path.name}


def test_diff_of_two_stored_plans(house: Path) -> None:
    code, out, _ = heddle("diff", "1", "2", "--warehouse", "house", "--json")
    report = json.loads(out)
    assert code == 0 and report["format_version"] == 1 and report["versions"] == {"old": 1, "new": 2}
    assert (report["added"], report["removed"], report["changed"], report["moved"]) == (["d"], [], [], [])
    assert (report["cost"]["old"], report["cost"]["new"]) == (pytest.approx(4.3), pytest.approx(6.45))
    # d joins b: the fragments of both change, those of a and c stay
    assert report["synopses"] == {"reused": 2, "new": 1}
    assert report["rebuilt"] == [
        {"query": "b", "reason": "its synopsis' edges changed", "windows": 2},
        {"query": "d", "reason": "new query", "windows": 3},
    ]
    code, out, _ = heddle("diff", "1", "2", "--warehouse", "house")
    assert code == 0 and "4.3 -> 6.45 (+50.0%) operations/s" in out and "added: 1  d" in out
    assert "2 synopses kept, 1 new; 2 of 4 queries to read history again" in out
    assert any(re.search(r"b .* edges changed .* 2 .* 10 s", line) for line in out.splitlines())


def test_diff_defaults_to_the_newest_two(house: Path) -> None:
    report = json.loads(heddle("diff", "--warehouse", "house", "--json")[1])
    assert report["versions"] == {"old": 2, "new": 3}
    assert {move["query"] for move in report["moved"]} == {"b", "d"}
    assert json.loads(heddle("diff", "1", "--warehouse", "house", "--json")[1])["versions"] == {"old": 1, "new": 3}
    code, out, _ = heddle("diff", "2", "2", "--warehouse", "house")
    assert code == 0 and "same queries in the same trees" in out and "0 of 4 queries" in out
    assert heddle("diff", "1", "9", "--warehouse", "house")[0] == 1
    assert heddle("diff", "one", "2", "--warehouse", "house")[0] == 2
    assert heddle("diff", "--warehouse", "nowhere")[0] == 2


def test_what_if_answers_and_stores_nothing(house: Path) -> None:
    before = stored_files(house)
    code, out, _ = heddle("what-if", "--warehouse", "house", "--remove", "d", "--rate", "tradesx0.12", "--json")
    report = json.loads(out)
    # at 1.2 tuples/s without d: the third example again; one tree of a, b and c costs 4.4
    assert code == 0 and report["removed"] == ["d"] and report["cost"]["new"] == pytest.approx(4.3)
    assert report["cost"]["old"] == pytest.approx(16.15) and report["cost_kept"] == pytest.approx(4.4)
    for rate in ("trades=1.2", "trades×0.12", "trades*0.12"):
        same = json.loads(heddle("what-if", "--warehouse", "house", "--remove", "d", "--rate", rate, "--json")[1])
        assert same == report
    code, out, _ = heddle("what-if", "--warehouse", "house", "--remove", "d", "--rate", "trades=1.2")
    assert code == 0 and "nothing is stored" in out and "16.15 -> 4.3 (-73.4%)" in out
    priced = json.loads(heddle("what-if", "--warehouse", "house", "--cost-model", "measured", "--json")[1])
    assert priced["cost_model"] == "measured" and priced["cost"]["new"] <= priced["cost"]["old"] < 1e-3
    assert stored_files(house) == before


def test_what_if_from_files_adds_and_replaces(place: Path) -> None:
    (place / "more.sql").write_text(MORE + GOOD.replace("'10 seconds'", "'20 seconds'").split(";")[1] + ";")
    base = ("what-if", "good.sql", "--streams", "streams.yaml", "--base-rate", "trades=1.2")
    report = json.loads(heddle(*base, "--add", "more.sql", "--json")[1])
    assert (report["added"], report["changed"]) == (["d"], ["b"])
    # today's trees {a, c} and {b} with b over 20 s, and d alone: 2.7 + 2.0 + (1.2 + 0.5 * 9/4)
    assert report["cost"]["old"] == pytest.approx(4.3) and report["cost_kept"] == pytest.approx(2.7 + 2.0 + 2.325)
    assert report["cost"]["new"] <= report["cost_kept"]
    code, out, err = heddle(*base, "--add", "bad.sql", "--json")
    assert code == 1 and "HDL-202" in err and json.loads(out)["added"] == []


def test_what_if_over_a_new_stream(house: Path, place: Path) -> None:
    (place / "two.yaml").write_text(STREAMS + STREAMS.replace("streams:", "").replace("trades:", "orders:"))
    (place / "orders.sql").write_text(MORE.replace("trades", "orders").replace("name: d", "name: o"))
    call = ("what-if", "--warehouse", "house", "--streams", "two.yaml", "--add", "orders.sql", "--json")
    report = json.loads(heddle(*call, "--rate", "orders=5")[1])
    assert report["added"] == ["o"] and report["cost"]["new"] == pytest.approx(16.15 + 5 + 2 / 4 * 9 / 4)
    assert json.loads(heddle(*call)[1])["added"] == ["o"]  # measured, from the file


def test_what_if_used_wrongly(house: Path) -> None:
    command = ("what-if", "--warehouse", "house")
    assert heddle(*command, "--remove", "nobody")[0] == 1
    assert heddle(*command, "--rate", "trades")[0] == 2
    assert heddle(*command, "--rate", "trades=-1")[0] == 2
    assert heddle(*command, "--rate", "trades=1/0")[0] == 2
    assert heddle(*command, "--rate", "orders=1")[0] == 2
    assert heddle(*command, "--add", "missing.sql")[0] == 2
    assert heddle("what-if")[0] == 2


# ------------------------------------------------------------------------------------------ experiments
@pytest.fixture
def two_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins that measure nothing, under the real names of the library."""

    def measure(scale: str, report: Report) -> Measurement:
        report(1, 2, "half of it")
        return Measurement([{"x": 1, "y": 2.5}, {"x": 2, "y": 4.5}], f"measured at {scale}", {"speed-up": (10, 12.5)})

    chart = Chart("x", "queries", {"y": "ours"}, "seconds")
    known = [
        Experiment("f1-7", "f1", "7", "More queries [1, 100]", "it is 10 times as fast", 3, chart, measure),
        Experiment("weave-share-4", "weave-share", "4", "Costs", "it is cheaper", 1, chart, measure),
    ]
    monkeypatch.setattr(
        "optimizer.papers.evaluations.catalogue.EXPERIMENTS", {experiment.name: experiment for experiment in known}
    )


@pytest.mark.usefixtures("two_experiments")
def test_experiments_are_listed_measured_and_written(place: Path) -> None:
    code, out, _ = heddle("experiments", "--list")
    assert code == 0 and "[1, 100]" in out and "it is cheaper" in out
    report = json.loads(heddle("experiments", "f1", "--list", "--json")[1])["experiments"]
    assert [(experiment["name"], experiment["figure"]) for experiment in report] == [("f1-7", "7")]
    code, out, _ = heddle("experiments", "f1", "--output", "found", "--json")
    (report,) = json.loads(out)["experiments"]
    assert code == 0 and report["measured"] == {"speed-up": {"paper": 10, "measured": 12.5}}
    assert (report["scale"], report["summary"]) == ("quick", "measured at quick")
    assert sorted(report["files"]) == ["found/f1-7.csv", "found/f1-7.png"] and (place / "found/f1-7.png").stat().st_size
    code, out, _ = heddle("experiments", "weave-share", "--figure", "4", "--full", "--output", "found")
    assert code == 0 and "the paper says: it is cheaper" in out and "measured at full" in out
    assert "speed-up" in out and "1.25" in out and "found/weave-share-4.csv" in out
    assert (place / "found/weave-share-4.csv").read_text().splitlines()[0] == "x,y"


@pytest.mark.usefixtures("two_experiments")
def test_experiments_used_wrongly(place: Path) -> None:
    code, _, err = heddle("experiments", "f1", "--figure", "99")
    assert code == 2 and "HDL-116" in err and "figures: 7" in err
    assert heddle("experiments")[0] == 2
    assert heddle("experiments", "f2")[0] == 2
    (place / "taken").write_text("")
    assert heddle("experiments", "f1", "--output", "taken")[0] == 2


@pytest.mark.usefixtures("two_experiments")
def test_experiments_name_what_is_not_installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = heddle("experiments", "f1", "--output", "charts")
    assert (code, out) == (1, "") and "HDL-904 matplotlib" in err and install_hint("papers") in err
    assert "measured" not in err and not (place / "charts").exists()
    assert heddle("experiments", "--list")[0] == 0
    monkeypatch.setitem(sys.modules, "optimizer.papers", None)
    for arguments in (["f1", "--output", "charts"], ["--list"]):
        code, out, err = heddle("experiments", *arguments)
        assert (code, out) == (1, "") and "HDL-904" in err and "repository" in err and "make setup" in err
    assert not (place / "charts").exists()


@pytest.mark.spark
def test_a_run_is_published_read_back_and_repeated_in_vain(place: Path) -> None:
    """The whole command in processes of its own, as people call it."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "heddle.cli.app", *arguments]
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(place)}
        return subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment, timeout=300)

    span = ("--from", "2024-03-01", "--to", "2024-03-01T00:00:20")
    run = ("run", "good.sql", "bad.sql", "--streams", "streams.yaml", "--warehouse", "house", *span)
    first = call(*run, "--json")
    record = json.loads(first.stdout)
    assert first.returncode == 1 and "HDL-202" in first.stderr, first.stderr  # the bad query was told, the rest done
    assert (record["status"], record["revision"]) == ("published", 1)
    again = call(*run)
    assert "nothing changed since revision 1" in again.stdout
    csv = call("read", "b", "--warehouse", "house", "--format", "csv").stdout.splitlines()
    assert csv[0] == '"window_start","window_end","vol"'
    # windows of 10 s that end at 5, 10, 15 and 20 s: sums of the seconds they cover
    assert [line.split(",")[2] for line in csv[1:]] == ["10", "45", "95", "145"]
    answers = heddle("read", "a", "--warehouse", "house", "--format", "json")[1]
    assert heddle("read", "a", "--warehouse", "house", "--json")[1] == answers
    rows = json.loads(answers)
    assert rows["columns"] == ["window_start", "window_end", "symbol", "hi"]
    assert rows["rows"][0]["window_end"] == "2024-03-01T00:00:04Z"
    assert heddle("read", "c", "--warehouse", "house", "--format", "parquet", "--output", "c.parquet")[0] == 0
    assert pq.read_table(place / "c.parquet")["n"].to_pylist() == [4, 8, 8, 8, 8]
    status = json.loads(heddle("status", "--warehouse", "house", "--json")[1])
    assert (status["plan_version"], status["intervals_published"], status["checks_failed"]) == (1, 1, 0)


@pytest.mark.parametrize(("folder", "code"), [("none", "HDL-502"), (".", "HDL-501"), ("planned", "HDL-506")])
def test_who_has_no_plan_yet_is_told_how_files_are_planned(folder: str, code: str, place: Path) -> None:
    Warehouse.open("planned")
    exit_code, _, err = heddle("plan", "--warehouse", folder)
    assert exit_code in (1, 2) and f"error {code} " in err and "heddle plan FILES --streams streams.yaml" in err
