"""Measures training sets: features of many labels, from a file of labels into a file with their features.

    python -m tests.benchmarks.labels [--labels N] [--events N] [--keys N] [--outputs N] [--accuracy refreshed|exact]
        [--known now|then] [--spark] [--json FILE]

Events are spread over 90 days and the keys (a few have many), in files of a day each; labels have a random moment in
the last 30 of these days and the key of a random event. The queries have windows of a day, 7 and 30 days; their outputs
are sums, counts, least and greatest values and means. Seconds are CPU seconds of the process tree, with the check of
2,000 labels; memory is the peak of the largest process. ``--spark``: labels are a DataFrame of Spark, and so is what
comes back.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import threading
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, LONG, SECOND, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse

BEGIN = 1_767_225_600 * SECOND
DAYS = 90

OUTPUTS = ("count(*)", "sum(amount)", "avg(amount)", "max(amount)", "min(amount)", "sum(price)", "max(price)")

WINDOWS = ("1 day", "7 days", "30 days")


def queries(outputs: int) -> str:
    """One query a window, which have as many outputs together."""
    texts = []
    for at, window in enumerate(WINDOWS):
        chosen = [OUTPUTS[number // len(WINDOWS)] for number in range(outputs) if number % len(WINDOWS) == at]
        items = ", ".join(f"{text} AS f{number}" for number, text in enumerate(chosen))
        if chosen:
            name = f"d{window.split()[0]}"
            over = f"WINDOW RANGE '{window}' SLIDE '1 hour' ON t"
            texts.append(f"-- name: {name}\nSELECT user, {items} FROM payments {over} GROUP BY user;")
    return "\n".join(texts)


def write_events(folder: Path, events: int, keys: int, seed: int = 1) -> np.ndarray[Any, Any]:
    """Write the events, and return the key of each."""
    chance = np.random.default_rng(seed)
    folder.mkdir()
    users = (chance.pareto(1.2, events) * keys / 50).astype(np.int64) % keys
    for day in range(DAYS):
        size = events // DAYS
        own = users[day * size : (day + 1) * size]
        times = np.sort(chance.integers(0, DAY, size)) + BEGIN + day * DAY
        table = pa.table(
            {
                "t": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "user": own,
                "amount": chance.integers(0, 1000, size),
                "price": np.round(chance.random(size) * 100, 2),
            }
        )
        pq.write_table(table, folder / f"{day:03}.parquet")
        os.utime(folder / f"{day:03}.parquet", ns=((BEGIN + (day + 1) * DAY) * 1000,) * 2)
    return users


def write_labels(file: Path, labels: int, users: np.ndarray[Any, Any], seed: int = 2) -> None:
    """Write the labels in pieces of a million."""
    chance = np.random.default_rng(seed)
    writer = None
    for first in range(0, labels, 1 << 20):
        size = min(1 << 20, labels - first)
        times = chance.integers(BEGIN + 60 * DAY, BEGIN + DAYS * DAY, size)
        table = pa.table(
            {
                "id": np.arange(first, first + size),
                "at": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "user": users[chance.integers(0, len(users), size)],
            }
        )
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def house_of(folder: Path, outputs: int) -> Warehouse:
    """A warehouse with the plan of the queries, and nothing stored."""
    schema = (("t", TIMESTAMP), ("user", LONG), ("amount", LONG), ("price", DOUBLE))
    stream = Stream("payments", Source("parquet", str(folder / "payments")), schema, "t", lateness=300 * SECOND)
    parsed = parse(queries(outputs), {"payments": stream})
    assert not parsed.errors, parsed.errors
    warehouse = Warehouse.open(folder / "house")
    publish_plan(warehouse, build_plan(Workload(parsed.queries, (stream,)), {"payments": Fraction(1)}, "shared"))
    return warehouse


def used() -> float:
    """CPU seconds of this process and of children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measure(warehouse: Warehouse, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The cost of one feature set from file to file."""
    from spark_jobs.engine.choice import Engine
    from spark_jobs.operations.feature_files import features_of_file
    from spark_jobs.operations.feature_labels import feature_request

    names = [query.name for query in _plan(warehouse).workload.queries]
    request = feature_request(names, "at", {}, arguments.accuracy, arguments.known)
    engine = Engine("labels", requested=arguments.engine)
    before, began = used(), time.perf_counter()
    written = features_of_file(warehouse, request, folder / "labels.parquet", folder / "train.parquet", engine)
    workers = engine.workers.name
    engine.stop()
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "labels": written.rows,
        "outputs": written.features,
        "recomputed": written.recomputed,
        "engine": workers,
        "cpu_seconds": round(used() - before, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mib": peak // 1024,
    }


def measure_spark(warehouse: Warehouse, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The cost of the same with a DataFrame of Spark, without the start of the session."""
    import psutil

    import heddle
    from spark_jobs.engine.session import start_session

    spark = start_session("labels", "local[2]")
    labels = spark.read.parquet(str(folder / "labels.parquet"))
    names = [query.name for query in _plan(warehouse).workload.queries]

    def spent() -> float:
        own = psutil.Process()
        return sum(sum(process.cpu_times()[:4]) for process in [own, *own.children(recursive=True)])

    peak = [0]

    def watch() -> None:
        while not done.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if "python" in process.name():
                        peak[0] = max(peak[0], process.memory_info().rss)

    done = threading.Event()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before, began = spent(), time.perf_counter()
    house = heddle.House(warehouse)
    made = house.features(labels, names, at="at", accuracy=arguments.accuracy, known=arguments.known)
    after, seconds = spent(), time.perf_counter() - began
    done.set()
    result = {"labels": made.count(), "outputs": len(made.columns) - 3, "engine": "spark local[2]"}
    spark.stop()
    figures = {"cpu_seconds": round(after - before, 1), "seconds": round(seconds, 1)}
    return result | figures | {"peak_mib_of_a_worker": peak[0] >> 20}


def _plan(warehouse: Warehouse) -> Any:
    from spark_jobs.store.warehouse.plans import current_version, load_plan

    return load_plan(warehouse, current_version(warehouse) or 0)


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=10_000_000)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--outputs", type=int, default=20)
    parser.add_argument("--accuracy", default="exact")
    parser.add_argument("--known", default="now")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        users = write_events(folder / "payments", arguments.events, arguments.keys)
        write_labels(folder / "labels.parquet", arguments.labels, users)
        warehouse = house_of(folder, arguments.outputs)
        result = (measure_spark if arguments.spark else measure)(warehouse, folder, arguments)
    result |= {"events": arguments.events, "keys": arguments.keys, "accuracy": arguments.accuracy}
    result |= {"known": arguments.known}
    line = json.dumps(result)
    print(line)
    if arguments.json:
        arguments.json.write_text(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
