"""How runs grow with a stream that does not fit in memory: 10 million, 100 million and a billion events in day files.

    python -m tests.benchmarks.scale [--days N ...] [--events N] [--queries N] [--every DAYS] [--peers PEER ...]
        [--sample N] [--data DIR] [--json FILE]

Ten million events a day (``--events``) in files of a million rows, written one after the other, so that generating
holds one of them; for each number of days (1, 10, 100) regular queries are answered into a fresh warehouse by the runs
of a backfill, each over so many days (``--every``, 1), as ``heddle backfill`` does: Spark starts where there is enough
to do for it (``HEDDLE_ENGINE``). A day of another stream warms everything up. Shown are CPU and wall seconds, the
peak memory of the process tree (the greatest sum that was read, every second: this process, and the JVM and its Python
workers if there are), the bytes of the stream and those of the warehouse, answers, and what a run took in the last
tenth of the runs beside the first; then all of it as multiples of the least number of days: where everything is linear,
those are the numbers of days.

``--peers`` (DuckDB and Polars) answer a sample of the queries over all days at once, each in the way that was the
cheapest over the warming day; compared are their answers of the warming day. Streams and warehouses are removed as soon
as they were measured. A day takes 73 MB, so a billion events are 7.3 GB; the disk needs that and the warehouse.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream
from spark_jobs.engine import choice
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.engines import PEERS, Engine
from tests.benchmarks.peers import Setting, difference, plan_of, spent_by
from tests.benchmarks.sharing import machine
from tests.benchmarks.trades import DAY_START, KEYS, REGULAR, ROWS_PER_FILE
from tests.benchmarks.workers import own_processes, read_meanwhile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG))
"""What regular queries read."""


def write_days(folder: Path, days: int, events: int, seed: int = 7) -> Stream:
    """A stream of so many days with so many events each, in order of time, in files of a million rows by day."""
    symbols = pa.array([f"SYM{key:03d}" for key in range(KEYS)])
    files = -(-events // ROWS_PER_FILE)
    folder.mkdir(parents=True)
    for day in range(days):
        chance = np.random.default_rng((seed, day))
        for number in range(files):
            rows = min(ROWS_PER_FILE, events - number * ROWS_PER_FILE)
            begin, end = (DAY_START + day * DAY + DAY * part // files for part in (number, number + 1))
            # prices are in cents, times in milliseconds: as they are in life, and as they are compressed
            times = np.sort(chance.integers(begin // 1000, end // 1000, rows)) * 1000
            columns = {
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "symbol": symbols.take(pa.array(chance.integers(0, KEYS, rows))),
                "price": np.round(chance.lognormal(3.0, 0.5, rows), 2),
                "volume": chance.integers(1, 5000, rows),
            }
            pq.write_table(pa.table(columns), folder / f"day-{day:04d}-{number:04d}.parquet", compression="zstd")
    return Stream("trades", Source("parquet", str(folder.resolve())), SCHEMA, "ts")


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ------------------------------------------------------------------------------------------- measuring
@dataclass
class Size:
    """What a number of days cost: seconds of all runs, and a value each run; bytes. ``peers``: CPU, wall seconds and
    peak memory of one query, on average."""

    days: int
    events: int
    cpu: float = 0.0
    wall: float = 0.0
    memory: int = 0
    answers: int = 0
    stream_bytes: int = 0
    written_bytes: int = 0
    runs: list[float] = field(default_factory=list)
    peers: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def last_over_first(self) -> float:
        """What the last tenth of the runs took, as times of the first."""
        tenth = max(1, len(self.runs) // 10)
        return statistics.median(self.runs[-tenth:]) / statistics.median(self.runs[:tenth])


def resident() -> int:
    """The sum of the resident memory of our processes, in bytes. What several have in common counts once for each:
    their proportional shares take too long to read."""
    total = 0
    for process in own_processes():
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def answer(
    spark: choice.Engine | SparkSession, stream: Stream, root: Path, size: Size, queries: int, every: int
) -> Warehouse:
    """The runs of a backfill into a fresh warehouse; ``size`` is told what they took."""
    warehouse = Warehouse.open(root)
    version, _ = publish_plan(warehouse, plan_of(REGULAR.workload(stream, queries), size.events // size.days))
    memory: list[int] = []
    with read_meanwhile(lambda: memory.append(resident())):
        for day in range(0, size.days, every):
            begin, end = (DAY_START + at * DAY for at in (day, min(day + every, size.days)))
            spent, record = spent_by(
                partial(run, spark, warehouse, version, begin, end, f"scale-{day}", as_of=end + DAY)
            )
            size.cpu += spent.cpu
            size.wall += spent.wall
            size.answers += record.answers
            size.runs.append(spent.cpu)
    size.memory, size.written_bytes = max(memory), bytes_of(root)
    return warehouse


def measure(
    spark: choice.Engine | SparkSession,
    days: Sequence[int],
    events: int,
    queries: int,
    every: int,
    peers: Sequence[str],
    sample: int,
    scratch: Path,
    report: Callable[[str], None],
) -> list[Size]:
    """Each number of days, the fewest first. ValueError if a peer does not answer the warming day as we do."""
    report("warming up")
    first = write_days(scratch / "first", 1, events, seed=8)
    sampled = REGULAR.sample(REGULAR.workload(first, queries).queries, sample)
    warehouse = answer(spark, first, scratch / "warehouse", Size(1, events), queries, every)
    best: dict[str, dict[str, str]] = {}
    for name in peers:
        engine = _engine(name, first, 1)
        peer_answers = engine.tables(sampled)
        for query in sampled:
            if problem := difference(query, read(warehouse, query.name), peer_answers[query.name]):
                raise ValueError(f"{query.name}: {name} does not answer as we do: {problem}")
        engine.prepare(sampled)
        best[name] = engine.best
        engine.close()
    shutil.rmtree(scratch / "first")
    shutil.rmtree(scratch / "warehouse")
    sizes = []
    for number in sorted(days):
        size = Size(number, number * events)
        report(f"{size.events:,} events: generating")
        stream = write_days(scratch / "events", number, events)
        size.stream_bytes = bytes_of(scratch / "events")
        report(f"{size.events:,} events: {queries} queries shared")
        answer(spark, stream, scratch / "warehouse", size, queries, every)
        shutil.rmtree(scratch / "warehouse")
        for name in peers:
            report(f"{size.events:,} events: {PEERS[name].title}")
            engine = _engine(name, stream, number)
            engine.best = best[name]
            spent, _ = spent_by(partial(engine.answer, sampled), engine.processes)
            engine.close()
            size.peers[name] = {
                "cpu": spent.cpu / len(sampled),
                "wall": spent.wall / len(sampled),
                "memory": spent.memory,
            }
        shutil.rmtree(scratch / "events")
        sizes.append(size)
    return sizes


def _engine(name: str, stream: Stream, days: int) -> Engine:
    """An engine that answers the windows of so many days."""
    engine = PEERS[name](Setting(cast("SparkSession", None), stream, (DAY_START, DAY_START + days * DAY)))
    assert isinstance(engine, Engine)
    return engine


# ------------------------------------------------------------------------------------------- reporting
def shown(found: Sequence[Size], queries: int) -> list[Table]:
    """The sizes, and their ratios to the first."""
    measured = Table(title=f"{queries} regular queries", title_justify="left")
    ratios = Table(title=f"as multiples of {found[0].events:,} events", title_justify="left")
    for table in (measured, ratios):
        table.add_column("")
        for size in found:
            table.add_column(f"{size.events:,} events", justify="right")
    least = found[0]
    rows: dict[str, tuple[Callable[[Size], float], Callable[[float], str]]] = {
        "CPU s": (lambda size: size.cpu, lambda value: f"{value:,.1f}"),
        "wall s": (lambda size: size.wall, lambda value: f"{value:,.1f}"),
        "peak memory, GB": (lambda size: size.memory / 1e9, lambda value: f"{value:.2f}"),
        "stream, GB": (lambda size: size.stream_bytes / 1e9, lambda value: f"{value:.2f}"),
        "warehouse, GB": (lambda size: size.written_bytes / 1e9, lambda value: f"{value:.2f}"),
        "answers": (lambda size: size.answers, lambda value: f"{value:,.0f}"),
    }
    for name in least.peers:
        rows[f"{PEERS[name].title}: CPU s *"] = (
            lambda size, name=name: size.peers[name]["cpu"] * queries,
            lambda value: f"{value:,.1f}",
        )
        rows[f"{PEERS[name].title}: peak memory, GB"] = (
            lambda size, name=name: size.peers[name]["memory"] / 1e9,
            lambda value: f"{value:.2f}",
        )
    for name, (value_of, text) in rows.items():
        measured.add_row(name, *(text(value_of(size)) for size in found))
        ratios.add_row(name, *(f"{value_of(size) / value_of(least):.2f}" for size in found))
    measured.add_row(
        "a run at the end, as times of one at the start", *(f"{size.last_over_first:.2f}" for size in found)
    )
    measured.caption = "* a sample's mean times the number of queries; answers are dropped, ours are published."
    return [measured, ratios]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--days", type=int, nargs="+", default=[1, 10, 100], help="sizes of the stream (1 10 100)")
    parser.add_argument("--events", type=int, default=10_000_000, help="events a day (10,000,000)")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--every", type=int, default=1, help="days that one run of the backfill answers (1)")
    parser.add_argument("--peers", nargs="*", choices=("duckdb", "polars"), default=[], metavar="PEER")
    parser.add_argument("--sample", type=int, default=3, help="queries that each peer answers (3)")
    parser.add_argument(
        "--data", type=Path, default=Path("var/bench"), help="where streams and warehouses lie meanwhile"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if min(options.events, options.queries, options.every, options.sample, *options.days) < 1:
        parser.error("every number must be at least 1")
    options.data.mkdir(parents=True, exist_ok=True)
    spark = choice.Engine("bench", quick=False)
    report = Console(stderr=True).print
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        measured_sizes = measure(
            spark,
            options.days,
            options.events,
            options.queries,
            options.every,
            options.peers,
            options.sample,
            Path(scratch),
            report,
        )
    for table in shown(measured_sizes, options.queries):
        Console(width=None if sys.stdout.isatty() else 140).print(table)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        sizes = [asdict(size) for size in measured_sizes]
        document: dict[str, Any] = {
            "machine": machine(),
            "queries": options.queries,
            "every": options.every,
            "sizes": sizes,
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
