"""Columns that answers have beside those of their query, and queries whose own have the same names."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from optimizer.language.parser import parse
from optimizer.language.words import RESERVED
from optimizer.plan.builder import build_plan
from optimizer.workload.values import Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.results.read import read
from spark_jobs.results.relations import OWN
from spark_jobs.windows.loading import Reader
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import DAY, MINUTE, SCHEMA, Laboratory, steady

HISTORICAL = "WINDOW RANGE '20 minutes' SLIDE '20 minutes' ENDING '20 minutes' AGO ON ts"
ROWS = "WINDOW ROWS 20 SLIDE 10 ON ts"


def test_what_is_read_beside_is_reserved() -> None:
    """And what rows of results say of themselves, now and as far as it is decided."""
    assert set(OWN) | {"query", "plan_version", "run_id", "fingerprint"} == set(RESERVED)


@pytest.mark.parametrize("window", (HISTORICAL, ROWS))
def test_answers_of_an_older_heddle_are_kept_apart(window: str, tmp_path: Path) -> None:
    """It let queries name their columns so: both are read, the query's with an underscore."""
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady())
    stream = Stream("trades", Source("parquet", str(lab.source())), SCHEMA, "ts")
    outputs = ", ".join(f"sum(volume) AS output_{number}" for number in range(len(OWN)))
    (query,) = parse(f"SELECT {outputs} FROM trades {window}", {"trades": stream}, "old.sql").queries
    names = [name.title() if name == "error" else name for name in OWN]
    old = replace(query, outputs=tuple(replace(o, name=n) for o, n in zip(query.outputs, names, strict=True)))
    plan = build_plan(Workload((old,), (stream,)), {"trades": Fraction(1)})
    version, _ = publish_plan(lab.warehouse, plan)
    with without_audit():
        assert lab.run(version, 0, 80).status == "published"
    table = read(lab.warehouse, "old_1")
    own_columns = ["window_start", "window_end", "position" if window == ROWS else "instant"]
    assert table.column_names == [*own_columns, *(f"{name}_" for name in names)] and len(table)
    assert all(row["window_end"] > row["window_start"] for row in table.to_pylist())
    assert table["Error_"].to_pylist() == table["instant_"].to_pylist() and min(table["instant_"].to_pylist()) > 0
    if window == HISTORICAL:
        answers = Reader(lab.warehouse.root).query("old_1").at(DAY + 60 * MINUTE)
        published = {row["instant"]: row["instant_"] for row in table.to_pylist()}
        assert [published[row["instant"]] for row in answers.to_pylist()] == answers["instant_"].to_pylist()
