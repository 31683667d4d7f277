"""The command line: exit codes, JSON for programs, bad input beside good, no JVM where none is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from spark_jobs.cli import app

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
    assert code == 1 and "3 queries usable, 1 errors" in out
    assert "bad.sql:2:12: error HDL-202 [bad]" in err and "did you mean symbol?" in err
    code, out, _ = heddle("validate", "bad.sql", "--streams", "streams.yaml", "--json")
    told = json.loads(out)
    assert code == 1 and told["format_version"] == 1
    assert [(d["code"], d["line"], d["column"]) for d in told["diagnostics"]] == [("HDL-202", 2, 12)]


def test_plan_is_the_papers_third_example(place: Path) -> None:
    """Weave Share Example 3: {a, c} together and b alone cost 4.3 at 1.2 tuples a second, 5.5 apart, 4.4 in one."""
    code, out, _ = heddle("plan", "good.sql", "--streams", "streams.yaml", "--rate", "trades=1.2", "--json")
    plan = json.loads(out)
    assert code == 0 and plan["format_version"] == 1 and plan["cost_model"] == "paper"
    assert plan["cost"] == pytest.approx(4.3) and plan["rates"] == {"trades": "6/5"}
    assert plan["baselines"] == {"no_share": pytest.approx(5.5), "shared": pytest.approx(4.4)}
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


def test_every_command_helps_with_examples() -> None:
    for command in ("validate", "plan", "explain", "run", "read", "status", "compare"):
        code, out, _ = heddle(command, "--help")
        assert code == 0 and "Example" in out and f"heddle {command}" in " ".join(out.split())


@pytest.mark.spark
def test_a_run_is_published_read_back_and_repeated_in_vain(place: Path) -> None:
    """The whole command in processes of its own, as people call it."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spark_jobs.cli", *arguments]
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
    rows = json.loads(call("read", "a", "--warehouse", "house", "--format", "json").stdout)
    assert rows["columns"] == ["window_start", "window_end", "symbol", "hi"]
    assert rows["rows"][0]["window_end"] == "2024-03-01T00:00:04Z"
    assert call("read", "c", "--warehouse", "house", "--format", "parquet", "--output", "c.parquet").returncode == 0
    assert pq.read_table(place / "c.parquet")["n"].to_pylist() == [4, 8, 8, 8, 8]
    status = json.loads(call("status", "--warehouse", "house", "--json").stdout)
    assert (status["plan_version"], status["intervals_published"], status["checks_failed"]) == (1, 1, 0)
