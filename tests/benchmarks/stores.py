"""Measures a run of the demo's queries with the warehouse in a folder and in an S3 server, and counts its requests.

    python -m tests.benchmarks.stores [--days N] [--delay SECONDS] [--wide] [--json FILE]

Three warehouses in turns, day by day: a folder, a store, and a store each of whose requests is held for a while. One
row a run: wall seconds, and requests by kind. The flights are in a folder. The goal: 400 requests a run, and at most
10 seconds more than in a folder where a request takes 30 ms.

``--wide``: 100 queries over 10 million events in 64 files instead, the events as well in the folder or the store, each
round into a new warehouse. The goal: 2.0 times the folder's wall time where a request takes 30 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from heddle.local.object_store import ObjectStore
from spark_jobs.engine.session import start_session
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.settings import PROJECT
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.peers import plan_of, shared_run
from tests.benchmarks.trades import generate, workload_of
from tests.stores.proxy import StoreProxy

FIRST = date(2013, 7, 1)
REQUESTS, SECONDS = 400, 10.0
"""The goals."""

FILES = 64


def _instant(day: date) -> int:
    return (day - date(1970, 1, 1)).days * 86_400_000_000


def measure(days: int, delay: float, console: Console) -> list[dict[str, Any]]:
    """One row a place and day."""
    workload = PROJECT / "dags" / "workload"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore.over(Path(folder) / "objects")
        store.start()
        store.make_bucket("heddle-bench")
        proxy = StoreProxy(store.port)
        os.environ.update(store.environment | {"AWS_ENDPOINT_URL": proxy.url})
        spark = start_session("stores", "local[2]")
        places = {
            "folder": (str(Path(folder) / "warehouse"), 0.0),
            "store": ("s3://heddle-bench/near", 0.0),
            f"store, {delay * 1000:.0f} ms": ("s3://heddle-bench/far", delay),
        }
        try:
            for name, (place, _) in places.items():
                refresh_plan(place, sorted(workload.glob("*.sql")), workload / "streams.yaml", reason=name)
            for number in range(days):
                day = FIRST + timedelta(days=number)
                for name, (place, latency) in places.items():
                    proxy.set(latency)
                    proxy.counts()
                    begun = time.perf_counter()
                    record = run(
                        spark,
                        Warehouse.open(place),
                        1,
                        _instant(day),
                        _instant(day + timedelta(days=1)),
                        f"{name} {day}",
                    )
                    took, counts = time.perf_counter() - begun, proxy.counts()
                    rows.append({"place": name, "day": str(day), "seconds": took, "answers": record.answers, **counts})
                    console.print(f"{name} {day}: {took:.1f} s, {sum(counts.values())} requests")
        finally:
            spark.stop()
            proxy.stop()
            store.stop()
    return rows


def measure_wide(rounds: int, delay: float, console: Console, events: int = 10_000_000) -> list[dict[str, Any]]:
    """One row a place and round."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        generated = generate(Path(folder), events)
        source, files = Path(folder) / "trades", pq.ParquetDataset(generated.source.path).files
        source.mkdir()
        pieces = -(-FILES // len(files))
        for file in files:
            table = pq.read_table(file)
            size = -(-len(table) // pieces)
            for number in range(pieces):
                pq.write_table(table.slice(number * size, size), source / f"{Path(file).stem}-{number}.parquet")
        store = ObjectStore.over(Path(folder) / "objects")
        store.start()
        store.make_bucket("heddle-bench")
        proxy = StoreProxy(store.port)
        os.environ.update(store.environment | {"AWS_ENDPOINT_URL": proxy.url})
        for path in source.iterdir():
            (Place.of("s3://heddle-bench/trades") / path.name).put(path.read_bytes())
        spark = start_session("stores", "local[2]")
        try:
            plan = plan_of(workload_of(generated, 100), events)
            for number in range(rounds):
                for name, root, latency in (
                    ("folder", folder, 0.0),
                    ("store", "s3://heddle-bench", 0.0),
                    (f"store, {delay * 1000:.0f} ms", "s3://heddle-bench", delay),
                ):
                    stream = replace(generated, source=replace(generated.source, path=f"{root}/trades"))
                    workload = replace(plan.workload, streams=(stream,))
                    warehouse = Warehouse.open(f"{root}/wide-{number}-{len(rows)}")
                    version, _ = publish_plan(warehouse, replace(plan, workload=workload))
                    proxy.set(latency)
                    proxy.counts()
                    begun = time.perf_counter()
                    record = shared_run(spark, warehouse, version)
                    took, counts = time.perf_counter() - begun, proxy.counts()
                    proxy.set(0.0)
                    rows.append(
                        {"place": name, "day": str(number), "seconds": took, "answers": record.answers, **counts}
                    )
                    console.print(f"{name}, round {number}: {took:.1f} s, {sum(counts.values())} requests")
        finally:
            spark.stop()
            proxy.stop()
            store.stop()
    return rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="a warehouse in a store")
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console()
    rows = (measure_wide if options.wide else measure)(options.days, options.delay, console)
    kinds = sorted({kind for row in rows for kind in row if kind.isupper()})
    table = Table("place", "day", "seconds", "answers", *kinds, "requests")
    for row in rows:
        counts = [row.get(kind, 0) for kind in kinds]
        table.add_row(
            row["place"], row["day"], f"{row['seconds']:.1f}", str(row["answers"]), *map(str, counts), str(sum(counts))
        )
    console.print(table)
    console.print(f"goals: {REQUESTS} requests, {SECONDS:.0f} s more than in a folder")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
