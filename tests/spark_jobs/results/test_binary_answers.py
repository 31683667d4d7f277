"""Sketches in answers: bytes in typed tables, frames, SQL and a query's own table."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import datasketches
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from heddle.cli.answers import plain_value
from optimizer.aggregates.algebra import AGGREGATES
from optimizer.workload.values import (
    ACQ,
    BINARY,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    AnswerTable,
    Column,
    Output,
    Source,
    Stream,
    Window,
    Workload,
)
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.connect import connect
from spark_jobs.results.frames import scan
from spark_jobs.results.read import read
from spark_jobs.results.relations import relation
from spark_jobs.results.views import DIALECTS, select, sql_type, table_named
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.case_runs import planned
from tests.workloads import Case


def test_sketches_are_bytes_wherever_answers_are_read(tmp_path: Path) -> None:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("size", pa.int64())])
    events = pa.table([[at * SECOND for at in range(10)], ["a", "b"] * 5, [*range(8), None, None]], schema=schema)
    (tmp_path / "events").mkdir()
    pq.write_table(events, tmp_path / "events" / "part.parquet")
    types = (("ts", TIMESTAMP), ("kind", STRING), ("size", LONG))
    stream = Stream("events", Source("parquet", str(tmp_path / "events")), types, "ts")
    output = Output("sizes", "hll_sketch", Column("size"), LONG, AGGREGATES["hll_sketch"].output_type(LONG))
    output = replace(output, parameter=Decimal(12))
    table = AnswerTable("sketches")
    query = ACQ("sketches", "events", Window(4 * SECOND, 4 * SECOND), (output,), table=table)
    case = Case(Workload((query,), (stream,)), events, 0, 12 * SECOND)
    warehouse, version = planned(case, tmp_path / "house", "weave-share")
    with without_audit():
        run(in_process(), warehouse, version, 0, 12 * SECOND, "run-1")

    answers = read(warehouse, "sketches")
    assert answers.schema.field("sizes").type == pa.binary()
    sketches = answers["sizes"].to_pylist()
    # no value in the last window
    assert [_estimate(sketch) for sketch in sketches] == [4, 4, None]
    frame = scan(warehouse, "sketches").collect().sort("window_end")
    assert frame["sizes"].to_list() == sketches
    with connect(warehouse) as connection:
        rows = connection.execute('SELECT sizes FROM "sketches" ORDER BY window_end').fetchall()
    assert [row[0] for row in rows] == sketches
    own = DeltaTable(str(tmp_path / "house" / "tables" / "sketches"))
    assert own.to_pyarrow_table().sort_by("window_end")["sizes"].to_pylist() == sketches
    assert str(plain_value(sketches[0])).startswith("AgEH")
    known = relation(warehouse, "sketches")
    for dialect in DIALECTS:
        assert "64" in select(known, table_named("results", dialect), dialect).sql(dialect), dialect
        assert sql_type(BINARY).sql(dialect) in ("BINARY", "VARBINARY", "BYTES", "BYTEA", "BLOB")


def _estimate(sketch: bytes | None) -> int | None:
    return None if sketch is None else round(datasketches.hll_sketch.deserialize(sketch).get_estimate())
