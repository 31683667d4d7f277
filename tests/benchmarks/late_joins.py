"""Measures early and late joins of the same queries while their dimension changes.

    python -m tests.benchmarks.late_joins [--events N] [--products N] [--queries N] [--changed N] [--data DIR]
        [--json FILE]

Events of eight days, a Parquet file each, are joined with a dimension of products. The queries group by attributes and
compare them, over windows of up to two days. The first run answers the first seven days; then some products get
another category, and a second run answers the eighth day, whose windows reach back. Both plans do the same, each in a
warehouse of its own. Answers are compared; the exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Dimension, Source, Stream, Workload
from spark_jobs.engine import choice
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.peers import spent_by
from tests.benchmarks.sharing import machine
from tests.benchmarks.trades import DAY_START

DAYS = 8
"""Days of the stream; the last one is answered after the dimension has changed."""

GROUPS = ("category", "department", "category, shop", "department, shop", "category, department")
FILTERS = ("", "WHERE category <> 'category 07'", "WHERE department IS NOT NULL", "WHERE shop <> 'shop 3'")
WINDOWS = ("RANGE '1 day' SLIDE '1 hour'", "RANGE '2 days' SLIDE '6 hours'", "RANGE '6 hours'")


def generate(folder: Path, events: int, products: int) -> Stream:
    """The stream and its dimension."""
    chance = np.random.default_rng(3)
    (folder / "orders").mkdir(exist_ok=True)
    for day in range(DAYS):
        rows, begin = events // DAYS, DAY_START + day * DAY
        table = {
            "t": pa.array(np.sort(chance.integers(begin, begin + DAY, rows))).cast(pa.timestamp("us", "UTC")),
            "product_id": chance.integers(0, products, rows),
            "shop": pa.array([f"shop {number}" for number in range(8)]).take(pa.array(chance.integers(0, 8, rows))),
            "qty": chance.integers(1, 9, rows),
        }
        pq.write_table(pa.table(table), folder / "orders" / f"{day}.parquet")
    describe(folder, products, 0)
    schema = (("product_id", LONG), ("category", STRING), ("department", STRING))
    source = Source("parquet", str(folder / "products.parquet"))
    columns = (("t", TIMESTAMP), ("product_id", LONG), ("shop", STRING), ("qty", LONG))
    dimension = Dimension("products", source, ("product_id",), schema)
    return Stream("orders", Source("parquet", str(folder / "orders")), columns, "t", dimensions=(dimension,))


def describe(folder: Path, products: int, changed: int) -> None:
    """Write the dimension, with another category for the first ``changed`` products."""
    numbers = np.arange(products)
    category = np.where(numbers < changed, numbers + 1, numbers) % 30
    names = pa.array([f"category {number:02d}" for number in range(30)])
    departments = pa.array([f"department {number}" for number in range(6)])
    table = {"product_id": numbers, "category": names.take(pa.array(category))}
    pq.write_table(
        pa.table(table | {"department": departments.take(pa.array(numbers % 6))}), folder / "products.parquet"
    )


def workload(stream: Stream, queries: int) -> Workload:
    """Queries that group by attributes, over windows of several lengths."""
    chance, texts = np.random.default_rng(5), list[str]()
    for number in range(queries):
        groups, filter, window = (pool[int(chance.integers(len(pool)))] for pool in (GROUPS, FILTERS, WINDOWS))
        texts.append(
            f"-- name: q{number:02d}\nSELECT {groups}, count(*) AS n, sum(qty) AS total FROM orders"
            f" LEFT JOIN products USING (product_id) {filter} WINDOW {window} ON t GROUP BY {groups}"
        )
    parsed = parse(";\n".join(texts), {stream.name: stream})
    if parsed.diagnostics:
        raise ValueError(f"the workload is not valid: {parsed.diagnostics[:3]}")
    return Workload(tuple(parsed.queries), (stream,))


def measure(
    folder: Path, stream: Stream, options: argparse.Namespace, late: Collection[str], name: str
) -> dict[str, Any]:
    """Both runs of one of the plans: CPU seconds, events read, partial rows; and the answers."""
    queries = workload(stream, options.queries)
    plan = build_plan(queries, {"orders": Fraction(options.events, DAYS * 86_400)}, "best", "measured", late=late)
    warehouse = Warehouse.open(folder / name)
    version, _ = publish_plan(warehouse, plan)
    describe(folder, options.products, 0)
    measured: dict[str, Any] = {"synopses": len(plan.synopses())}
    engine = choice.Engine("bench", requested="local")
    try:
        for label, first, last in (("first", 0, DAYS - 1), ("changed", DAYS - 1, DAYS)):
            begin, end = DAY_START + first * DAY, DAY_START + last * DAY
            later = DAY_START + 100 * DAY
            action = partial(run, engine, warehouse, version, begin, end, label, as_of=later)
            spent, record = spent_by(action)
            rows = sum(file["num_records"] or 0 for file in warehouse.files("partials", "1970-01-01", "2999-12-31"))
            stages = record.cpu_seconds
            print(
                f"{name} {label}: {spent.cpu:.1f} CPU s, {record.rows_scanned:,} events, {rows:,} rows, load "
                f"{os.getloadavg()[0]:.1f}, {stages}",
                file=sys.stderr,
            )
            measured[label] = {"cpu": spent.cpu, "events": record.rows_scanned, "partial_rows": rows, "stages": stages}
            describe(folder, options.products, options.changed)
    finally:
        engine.stop()
    measured["answers"] = {query.name: read(warehouse, query.name) for query in queries.queries}
    return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each run, and write the JSON. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="late_joins", description="Early and late joins of the same queries")
    for option, value, what in (
        ("--events", 1_000_000, "events of eight days"),
        ("--products", 2_000, "products in the dimension"),
        ("--queries", 12, "queries"),
        ("--changed", 20, "products that get another category"),
    ):
        parser.add_argument(option, type=int, default=value, help=f"{what} ({value:,})")
    parser.add_argument("--data", type=Path, help="where the stream is made (a temporary folder)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        folder = Path(scratch)
        stream = generate(folder, options.events, options.products)
        names = [query.name for query in workload(stream, options.queries).queries]
        document: dict[str, Any] = {"events": options.events, "products": options.products, "machine": machine()}
        # the first run of a process compiles kernels
        measure(folder, stream, options, names, "warming")
        for name, late in (("early", []), ("late", names)):
            document[name] = measure(folder, stream, options, late, name)
    answers = [document[name].pop("answers") for name in ("early", "late")]
    differing = [name for name in names if not _sorted(answers[0][name]).equals(_sorted(answers[1][name]))]
    document["differing"] = differing
    print(json.dumps(document, indent=2))
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if differing else 0


def _sorted(table: pa.Table) -> pa.Table:
    table = table.drop_columns([name for name in ("plan_version", "revision", "run_id") if name in table.column_names])
    return table.sort_by([(name, "ascending") for name in table.column_names])


if __name__ == "__main__":
    sys.exit(main())
