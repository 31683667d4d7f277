"""``heddle audit``: what is published is recomputed on demand; what differs is listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from heddle.cli.app import app
from spark_jobs.engine.choice import Engine
from spark_jobs.operations.audit import recompute_published
from tests.chaos.orders import in_process
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Laboratory, steady

MORE = (
    QUERIES
    + """
-- name: rows
SELECT symbol, sum(volume) AS total FROM trades WINDOW ROWS 6 SLIDE 3 PARTITION BY symbol ON ts GROUP BY symbol;
-- name: rare
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '10 minutes' SLIDE '5 minutes' ENDING '10 minutes' AGO ON ts
WHERE volume > 11 GROUP BY symbol HAVING count(*) > 0;
"""
)


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write(steady(120))
    version = laboratory.plan(MORE)
    laboratory.run(version, 0, 60, as_of=1 << 60)
    laboratory.run(version, 60, 120, "second", as_of=1 << 60)
    return laboratory


def audited(lab: Laboratory, *arguments: str) -> tuple[int, dict[str, Any]]:
    span = ["--from", "2013-07-01", "--to", "2013-07-01T02:00:00"]
    done = CliRunner().invoke(app, ["audit", "--warehouse", str(lab.folder / "warehouse"), *span, *arguments, "--json"])
    return done.exit_code, json.loads(done.stdout) if done.stdout.startswith("{") else {}


def rewritten(lab: Laboratory, change: Callable[[pa.Table], pa.Table]) -> None:
    """Let the table of answers have other rows, in a commit that no run made."""
    table = DeltaTable(str(lab.folder / "warehouse" / "results"))
    write_deltalake(table, change(table.to_pyarrow_table()), mode="overwrite")


def damaged(lab: Laboratory, query: str) -> int:
    """Change a value in every published answer of a query; how many there are."""
    changed = 0

    def change(rows: pa.Table) -> pa.Table:
        nonlocal changed
        names = rows["query"].to_pylist()
        longs = [
            [value[0] + 1, *value[1:]] if name == query else value
            for name, value in zip(names, rows["longs"].to_pylist(), strict=True)
        ]
        changed = names.count(query)
        column = pa.chunked_array([pa.array(longs, pa.list_(pa.int64()))])
        return rows.set_column(rows.schema.names.index("longs"), "longs", column)

    rewritten(lab, change)
    return changed


def test_what_is_right_is_found_right(lab: Laboratory) -> None:
    code, report = audited(lab, "--all")
    assert code == 0 and report["wrong"] == report["outdated"] == []
    published = sum(len(lab.rows(name)) for name in ("by_symbol", "all", "rows", "rare"))
    assert (report["intervals"], report["answers"]) == (2, published) and report["windows"] > 40


def test_what_is_wrong_is_listed_and_a_share_finds_its_share(lab: Laboratory) -> None:
    count = damaged(lab, "by_symbol")
    code, report = audited(lab, "--all")
    assert code == 1 and len(report["wrong"]) == count and report["outdated"] == []
    first = report["wrong"][0]
    assert first["query"] == "by_symbol" and first["output"] == "n"
    assert first["published"] == first["recomputed"] + 1 and first["group"] in (["A"], ["B"])
    code, report = audited(lab, "--share", "50%", "--seed", "1")
    assert code == 1 and 0.3 * count <= len(report["wrong"]) <= 0.7 * count


def test_answers_of_changed_sources_are_outdated_not_wrong(lab: Laboratory) -> None:
    lab.write([*steady(120), (70.5, "A", 1.0, 1)])
    code, report = audited(lab, "--all")
    assert code == 0 and report["wrong"] == []
    assert {difference["query"] for difference in report["outdated"]} >= {"by_symbol", "all"}


def test_missing_answers_are_wrong(lab: Laboratory) -> None:
    rewritten(lab, lambda rows: rows.filter(pa.array([name != "all" for name in rows["query"].to_pylist()])))
    code, report = audited(lab, "--all")
    assert code == 1 and {(difference["query"], difference["what"]) for difference in report["wrong"]} == {
        ("all", "is missing")
    }


@pytest.mark.parametrize("wrong", [["--all", "--share", "5%"], ["--share", "0"], ["--share", "200%"], ["--share", "x"]])
def test_a_wrong_call_is_refused(lab: Laboratory, wrong: list[str]) -> None:
    assert audited(lab, *wrong) == (2, {})


def test_a_later_publication_counts_where_intervals_overlap(lab: Laboratory) -> None:
    lab.run(1, 30, 90, "third", as_of=1 << 60, recompute=True)
    recomputation = recompute_published(
        lab.warehouse, DAY, DAY + 120 * MINUTE, 1.0, 1 << 60, Engine("unused"), lambda line: None
    )
    assert recomputation.wrong == [] and recomputation.intervals == 3
