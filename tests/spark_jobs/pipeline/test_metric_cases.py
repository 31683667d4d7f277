"""Examples with answers that others computed: several windows in an answer, rollups, durations, local time, offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.calendars import micros

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "fixtures/metric_cases.json").read_text(encoding="utf-8"))
}
TYPES = {"timestamp": TIMESTAMP, "varchar": STRING, "bigint": LONG}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def answered(
    engine: Any, folder: Path, input: Mapping[str, Any], text: str, begin: str, end: str, columns: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The rows of a query over the tables of a case, of some columns, for the instants in (begin, end]."""
    streams = {}
    for name, table in input.items():
        schema = tuple((column.partition(": ")[0], TYPES[column.partition(": ")[2]]) for column in table["columns"])
        values = [
            [moment(value) if type_ == TIMESTAMP and value else value for value in column]
            for column, (_, type_) in zip(zip(*table["rows"], strict=True), schema, strict=True)
        ]
        (folder / name).mkdir()
        pq.write_table(pa.table(values, names=[column for column, _ in schema]), folder / name / "1.parquet")
        streams[name] = Stream(name, Source("parquet", str(folder / name)), schema, "t")
    parsed = parse(f"-- name: q\n{text}", streams)
    assert not parsed.errors, parsed.errors
    stream = streams[parsed.queries[0].stream]
    plan = build_plan(Workload(parsed.queries, (stream,)), {stream.name: Fraction(1)}, "weave-share")
    warehouse = Warehouse.open(folder / "house")
    version, _ = publish_plan(warehouse, plan)
    span = micros(moment(begin)), micros(moment(end))
    record = run(engine, warehouse, version, *span, "run", as_of=span[1] + 10**13)
    assert record.status == "published", record.diagnostics
    rows = read(warehouse, "q").to_pylist()
    return sorted((tuple(_plain(row[name]) for name in columns) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 10)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() if isinstance(value, datetime) else value


def expected(table: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, table["rows"]), key=repr)


@pytest.mark.parametrize("name", ["M1", "M2", "R1"])
def test_answers(engine: Any, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    span, table = case["run"], case["expected"]
    rows = answered(engine, tmp_path, case["input"], case["query"], span["from"], span["to"], table["columns"])
    assert rows == expected(table)


def test_groups_that_have_fallen_silent(engine: Any, tmp_path: Path) -> None:
    case, table = CASES["M2"], CASES["M2"]["expected_with_having"]
    text, span = f"{case['query']}\n{table['having']}", case["run"]
    rows = answered(engine, tmp_path, case["input"], text, span["from"], span["to"], table["columns"])
    assert rows == expected(table)


def test_hours_by_the_clock_of_a_zone(engine: Any, tmp_path: Path) -> None:
    case, table = CASES["X2"], CASES["X2"]["expected"]["by_hour over all events"]
    # the window of 366 days that holds all events, which starts at a multiple of its length
    text = case["queries"]["by_hour"]
    rows = answered(
        engine, tmp_path, case["input"], text, "2026-01-01", "2028-01-01", ["window_end", *table["columns"]]
    )
    assert sorted((row[1:] for row in rows), key=repr) == expected(table)


def test_days_that_begin_at_six(engine: Any, tmp_path: Path) -> None:
    case, table = CASES["X2"], CASES["X2"]["expected"]["shifts"]
    text = case["queries"]["shifts"]
    rows = answered(engine, tmp_path, case["input"], text, "2026-03-01", "2026-12-01", table["columns"])
    assert rows == expected(table)


@pytest.mark.parametrize("name", sorted(CASES["X1"]["expected"]))
def test_durations(engine: Any, tmp_path: Path, name: str) -> None:
    case, table = CASES["X1"], CASES["X1"]["expected"][name]
    size, end = name.split(", ")
    # the windows of two hours slide by the same hour
    text = case["query"].replace("'1 hour'", f"'{size}' SLIDE '1 hour'")
    last = moment(f"2026-06-01T{end}:00")
    first = (last - timedelta(hours=1)).replace(tzinfo=None).isoformat()
    rows = answered(engine, tmp_path, case["input"], text, first, f"2026-06-01T{end}:00", table["columns"])
    assert rows == expected(table)


@pytest.mark.parametrize("gap", ["10 minutes", "15 minutes", "30 minutes"])
def test_sessions(engine: Any, tmp_path: Path, gap: str) -> None:
    case, table = CASES["S1"], CASES["S1"]["expected"][gap]
    text = case["query"].format(gap=gap).replace(" FROM", ", session_length() = 0 AS single FROM", 1)
    clicks = {"clicks": case["input"]["clicks"]}
    rows = answered(engine, tmp_path, clicks, text, "2026-05-01", "2026-05-03", table["columns"])
    assert rows == expected(table)
