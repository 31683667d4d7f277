"""From workload files to a stored plan, without a JVM: rates as given, and plans that are kept while they are good."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.pipeline.planning.plan_workload import comparable_plan
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.pipeline.planning.requested import parse_rate, parse_rates
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse

STREAMS = """
streams:
  trades:
    source: {format: parquet, path: trades}
    schema: {ts: timestamp, symbol: string, volume: long}
    time: ts
"""
WINDOWS = [(3600, 300), (7200, 600), (1000, 420), (86400, 3600), (5000, 700), (900, 60)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "streams.yaml").write_text(STREAMS)
    return tmp_path


def refresh(place: Path, windows: list[tuple[int, int]], rate: float, **asked: object) -> dict:
    queries = [
        f"-- name: q{number}\nSELECT symbol, sum(volume) AS total FROM trades\n"
        f"WINDOW RANGE '{size} seconds' SLIDE '{slide} seconds' ON ts GROUP BY symbol;\n"
        for number, (size, slide) in enumerate(windows)
    ]
    (place / "queries.sql").write_text("\n".join(queries))
    return refresh_plan(
        place / "warehouse", [place / "queries.sql"], place / "streams.yaml", rates={"trades": rate}, **asked
    ).to_json()


def groups(outcome: dict) -> set[frozenset[str]]:
    return {frozenset(tree["queries"]) for tree in outcome["plan"]["trees"]}


def test_a_plan_within_the_tolerance_is_kept(place: Path) -> None:
    """At another rate another plan is cheapest; the one in force stays as long as the tolerance allows."""
    first = refresh(place, WINDOWS, 1.0)
    assert (first["version"], first["changed"]) == (1, True)
    unchanged = refresh(place, WINDOWS, 0.001, tolerance=1000.0)
    assert (unchanged["version"], unchanged["changed"]) == (1, False) and groups(unchanged) == groups(first)
    assert (
        unchanged["plan"]["baselines"]["from_scratch"] < unchanged["plan"]["cost"] and not unchanged["plan"]["optimal"]
    )
    replaced = refresh(place, WINDOWS, 0.001, tolerance=0.0)
    assert (replaced["version"], replaced["changed"]) == (2, True) and replaced["plan"]["optimal"]
    assert replaced["plan"]["cost"] == unchanged["plan"]["baselines"]["from_scratch"]


def test_a_new_query_moves_no_other_within_the_tolerance(place: Path) -> None:
    first = refresh(place, WINDOWS, 0.02)
    second = refresh(place, [*WINDOWS, (1800, 90)], 0.02, tolerance=1.0)
    assert second["version"] == 2
    old = groups(first)
    for tree in groups(second):
        assert tree - {"q6"} in old | {frozenset()} or any(part < tree for part in old)
    assert not any(line.startswith(">") for line in second["diff"])
    assert any("computed from history at the next run" in line for line in second["diff"])


def test_another_search_keeps_nothing(place: Path) -> None:
    refresh(place, WINDOWS, 0.02)
    warehouse = Warehouse.open(place / "warehouse")
    plan = comparable_plan(warehouse, "best", "paper")
    assert plan is not None and plan.fingerprint == load_plan(warehouse, 1).fingerprint
    assert comparable_plan(warehouse, "shared", "paper") is None
    assert comparable_plan(warehouse, "best", "measured") is None
    assert comparable_plan(None, "best", "paper") is None
    assert len(refresh(place, WINDOWS, 0.02, algorithm="shared", tolerance=10.0)["plan"]["trees"]) == 1


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1200", 1200),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("6/5", Fraction(6, 5)),
        ("1e6", 10**6),
        ("0", 0),
    ],
)
def test_rates(text: str, rate: Fraction) -> None:
    assert parse_rate(f" {text} ") == rate
    assert parse_rates([f"trades = {text}"]) == {"trades": rate}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "1/0", "1e999999999", "many", "1 2", "0x10"])
def test_bad_rates(text: str) -> None:
    with pytest.raises(HeddleError, match="HDL-112"):
        parse_rate(text)
    with pytest.raises(HeddleError, match="HDL-112"):
        parse_rates([f"trades={text}"])


def test_contradicting_rates() -> None:
    assert parse_rates(["trades=5", "trades=5.0"]) == {"trades": 5}
    with pytest.raises(HeddleError, match="two rates"):
        parse_rates(["trades=5", "trades=6"])
