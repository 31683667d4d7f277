"""The inspection of staged files finds each kind of damage; the suite says which rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.query import ACQ, DOUBLE, LONG, STRING, Column, Output, Window
from spark_jobs.final_aggregates import RESULTS
from spark_jobs.quality import BUCKETS_OF, FINDINGS, expectations, inspect

HOUR = 3_600_000_000
NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)
BEGIN = int(NOON.timestamp()) * 1_000_000
PRICE = Column("price")
QUERY = ACQ(
    "q",
    "trades",
    Window(2 * HOUR, HOUR),
    (
        Output("n", "count", None, None, LONG),
        Output("low", "min", PRICE, DOUBLE, DOUBLE),
        Output("mean", "avg", PRICE, DOUBLE, DOUBLE),
        Output("high", "max", PRICE, DOUBLE, DOUBLE),
    ),
    group_by=(("symbol", STRING),),
    select=("symbol",),
)


def answer(hour: int, symbol: str | None, **changes: Any) -> dict[str, Any]:
    start = NOON + timedelta(hours=hour)
    row = {
        **{"stream": "trades", "query": "q", "window_start": start, "window_end": start + timedelta(hours=2)},
        **{"key": [symbol], "longs": [3], "doubles": [1.0, 2.0, 3.0], "texts": [], "error": None},
        **{"plan_version": 1, "revision": 1, "run_id": "r"},
    }
    return row | changes


def found(tmp_path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    path = tmp_path / "day=2013-07-01" / "part.parquet"
    path.parent.mkdir()
    schema = pa.schema([pa.field(field.name, field.type) for field in RESULTS if field.name != "day"])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    told = inspect(str(path), [QUERY], BEGIN, {"trades": BEGIN + 6 * HOUR}).to_pylist()
    assert told[-1]["query"] == BUCKETS_OF
    return {name: value for name, value in told[0].items() if value}


GOOD = [answer(0, "A"), answer(1, "A"), answer(0, "B"), answer(1, None, longs=[0], doubles=[None, None, None])]


def test_right_answers_are_found_right(tmp_path: Path) -> None:
    assert found(tmp_path, GOOD) == {"query": "q", "answers": 4}


@pytest.mark.parametrize(
    ("bad", "finding"),
    [
        (answer(0, "A"), "repeated"),
        (answer(2, "A", window_start=NOON + timedelta(minutes=90)), "wrong_window"),
        (answer(5, "A"), "wrong_window"),  # ends after the interval
        (answer(-2, "A"), "wrong_window"),  # ends at its begin: belongs to the interval before
        (answer(2, "A", key=["A", "B"]), "wrong_shape"),
        (answer(2, "A", doubles=[1.0, 2.0]), "wrong_shape"),
        (answer(2, "A", longs=[-1]), "negative_counts"),
        (answer(2, "A", doubles=[1.0, 3.5, 3.0]), "disordered"),
        (answer(2, "A", doubles=[1.0, 0.5, 3.0]), "disordered"),
        (answer(2, "A", query="unknown"), "wrong_shape"),
        (answer(2, "A", window_end=None), "null_keys"),
    ],
)
def test_each_damage_is_found(tmp_path: Path, bad: dict[str, Any], finding: str) -> None:
    rows = [*GOOD, bad]
    path = tmp_path / "day=2013-07-01" / "part.parquet"
    path.parent.mkdir()
    schema = pa.schema([pa.field(field.name, field.type) for field in RESULTS if field.name != "day"])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    told = inspect(str(path), [QUERY], BEGIN, {"trades": BEGIN + 6 * HOUR}).to_pylist()
    assert sum(row[finding] for row in told) == 1 and any(row["examples"] for row in told if row[finding])
    quiet = set(FINDINGS) - {finding, "wrong_window"}
    assert sum(row[name] for row in told for name in quiet) == 0


def test_the_suite_fails_on_what_was_found_and_names_it(tmp_path: Path) -> None:
    import pandas as pd

    columns = ["query", "answers", *FINDINGS, "examples"]
    summary = pd.DataFrame([["q", 5, *([0] * len(FINDINGS)), ""]], columns=columns)
    assert all(check["success"] for check in expectations(summary))
    summary.loc[0, ["repeated", "examples"]] = [1, "q 2013-07-01 12:00:00 ['A']"]
    failed = [check for check in expectations(summary) if not check["success"]]
    assert [check["check"] for check in failed] == ["gx:expect_column_values_to_be_in_set(repeated)"]
    assert "q: 1" in failed[0]["detail"] and "12:00:00" in failed[0]["detail"]
