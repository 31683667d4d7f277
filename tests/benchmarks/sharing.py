"""Measures the shared pipeline beside one plain Spark job a query, and beside one plain scan-and-group.

    python -m tests.benchmarks.sharing [--events N] [--queries N ...] [--rounds N] [--sample N] [--json FILE]

Over one generated stream (a day, 200 keys) and one Spark session, each round runs in turn: (a) the whole
shared pipeline into a fresh warehouse: partials, finals, audit, publication; (b) a sample of the queries,
spread evenly over the workload, each as the plain sliding-window job that people write today, answers
dropped; (c) one plain scan-and-group of the same states at the finest granularity of the workload, written
to Parquet. A first round warms everything up and is reported apart. Seconds are CPU seconds of the whole
process tree (this process, the JVM and its Python workers); (b) is the sample's mean times the number of
queries.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.parser import parse
from optimizer.plan import build_plan
from optimizer.query import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from optimizer.window import DAY
from spark_jobs.planning import publish_plan
from spark_jobs.run import RunRecord, run
from spark_jobs.session import cpu_seconds, start_session
from spark_jobs.tables import Warehouse
from spark_jobs.unshared import native_frame, unshared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_START = 1_372_636_800 * SECOND
"""2013-07-01T00:00:00Z."""

GRANULE = 30
"""Seconds: every range and slide is a multiple, so it is the finest granularity that any plan needs."""

KEYS = 200
ROWS_PER_FILE = 1_000_000


# ------------------------------------------------------------------------------------------ generating
def generate(folder: Path, events: int, seed: int = 7) -> Stream:
    """``events`` events over one day in Parquet files of a million rows, in order of time; kept if already
    there."""
    done = folder / f"trades-{events}"
    if not done.exists():
        partial = folder / f"trades-{events}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        chance = np.random.default_rng(seed)
        names = pa.array([f"SYM{key:03d}" for key in range(KEYS)])
        files = -(-events // ROWS_PER_FILE)
        for number in range(files):
            rows = min(ROWS_PER_FILE, events - number * ROWS_PER_FILE)
            begin, end = (DAY_START + DAY * number // files, DAY_START + DAY * (number + 1) // files)
            times = np.sort(chance.integers(begin, end, rows))
            symbols = names.take(pa.array(chance.integers(0, KEYS, rows)))
            table = pa.table(
                {
                    "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                    "symbol": symbols,
                    "price": chance.lognormal(3.0, 0.5, rows),
                    "volume": chance.integers(1, 5000, rows),
                }
            )
            pq.write_table(table, partial / f"part-{number:04d}.parquet")
        partial.rename(done)
    schema = (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG))
    return Stream("trades", Source("parquet", str(done.resolve())), schema, "ts")


OUTPUTS = (
    "sum(volume) AS volume",
    "avg(price) AS mean",
    "min(price) AS low, max(price) AS high",
    "count(*) AS trades",
    "stddev(price) AS spread",
    "sum(volume) AS volume, avg(price) AS mean",
)


def workload_of(stream: Stream, queries: int, seed: int = 11) -> Workload:
    """``queries`` ACQs per symbol: slides of 1 to 60 minutes, ranges of 1.5 to 9.5 slides, all different."""
    chance = random.Random(seed)
    seen: set[tuple[int, int, str]] = set()
    statements: list[str] = []
    while len(statements) < queries:
        slide = 60 * chance.choice((1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60))
        range_ = slide * chance.randint(3, 19) // 2
        outputs = chance.choice(OUTPUTS)
        if (range_, slide, outputs) in seen:
            continue
        seen.add((range_, slide, outputs))
        statements.append(
            f"-- name: q{len(statements):04d}\n"
            f"SELECT symbol, {outputs} FROM trades WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' "
            "ON ts GROUP BY symbol;\n"
        )
    found = parse("\n".join(statements), {stream.name: stream})
    if len(found.queries) != queries:
        raise ValueError(f"the generated workload is not valid: {found.diagnostics[:3]}")
    return Workload(tuple(found.queries), (stream,))


# ------------------------------------------------------------------------------------------- measuring
@dataclass
class Measured:
    """CPU and wall seconds of one way to answer one workload, a value a round; ``cold`` the warming round's
    CPU."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    cold: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.cpu)

    def add(self, spent: tuple[float, float], warming: bool) -> None:
        if warming:
            self.cold = spent[0]
        else:
            self.cpu.append(spent[0])
            self.wall.append(spent[1])


@dataclass
class Comparison:
    """One workload size: the shared run, the unshared one extrapolated from its sample, the
    scan-and-group."""

    queries: int
    events: int
    trees: int = 0
    answers: int = 0
    planning_cpu: float = 0.0
    sampled: list[str] = field(default_factory=list)
    shared: Measured = field(default_factory=Measured)
    unshared: Measured = field(default_factory=Measured)
    scan: Measured = field(default_factory=Measured)
    stages: dict[str, list[float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        medians = {name: statistics.median(values) for name, values in self.stages.items()}
        total = sum(medians.values())
        return asdict(self) | {
            "shared_cpu": self.shared.median,
            "unshared_cpu": self.unshared.median,
            "scan_cpu": self.scan.median,
            "unshared_over_shared": self.unshared.median / self.shared.median,
            "shared_over_scan": self.shared.median / self.scan.median,
            "stage_cpu": medians,
            "stage_share": {name: value / total for name, value in medians.items()},
        }


def spent_by(action: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """(CPU seconds of the process tree, wall seconds) of an action, and what it returned."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = action()
    return (cpu_seconds() - cpu, time.perf_counter() - wall), result


def shared_run(spark: SparkSession, warehouse: Warehouse, version: int) -> RunRecord:
    """(a): the whole pipeline over the day; ``as_of`` far enough that nothing is withheld."""
    return run(spark, warehouse, version, DAY_START, DAY_START + DAY, "bench", as_of=DAY_START + 2 * DAY)


def plain_job(spark: SparkSession, workload: Workload, name: str) -> None:
    """(b): one query as the job that people write today; its answers are computed and dropped."""
    query = workload.query(name)
    stream = workload.stream(query.stream)
    answers = unshared(native_frame(spark, stream), query, stream.time)
    answers.write.format("noop").mode("overwrite").save()


def scan_and_group(spark: SparkSession, stream: Stream, target: Path) -> None:
    """(c): the states that the workload needs, grouped by granule and symbol in one plain job, as Parquet."""
    from pyspark.sql import functions as F

    granule = F.floor(F.unix_micros("ts") / (GRANULE * SECOND)).alias("granule")
    grouped = (
        native_frame(spark, stream)
        .groupBy(granule, "symbol")
        .agg(
            F.count(F.lit(1)).alias("trades"),
            F.sum("volume").alias("volume"),
            F.sum("price").alias("price"),
            F.min("price").alias("low"),
            F.max("price").alias("high"),
            F.sum(F.col("price") * F.col("price")).alias("squares"),
        )
    )
    grouped.write.mode("overwrite").parquet(str(target))


def measure(
    spark: SparkSession,
    stream: Stream,
    events: int,
    queries: int,
    rounds: int,
    sample: int,
    scratch: Path,
    report: Callable[[str], None],
) -> Comparison:
    """Interleave (a), (b) and (c) for one workload size."""
    workload = workload_of(stream, queries)
    found = Comparison(queries, events)
    sample = min(sample, queries)
    found.sampled = [f"q{index * queries // sample:04d}" for index in range(sample)]
    rates = {stream.name: Fraction(events * SECOND, DAY)}
    (found.planning_cpu, _), plan = spent_by(lambda: build_plan(workload, rates, "weave-share", "measured"))
    found.trees = len(plan.trees)
    for number in range(rounds + 1):
        warming = number == 0
        report(f"{queries} queries, " + ("warming up" if warming else f"round {number} of {rounds}"))
        root = scratch / f"warehouse-{queries}-{number}"
        warehouse = Warehouse.open(root)
        version, _ = publish_plan(warehouse, plan)
        spent, record = spent_by(lambda at=warehouse, pinned=version: shared_run(spark, at, pinned))  # type: ignore[misc]
        found.shared.add(spent, warming)
        found.answers = record.answers
        if not warming:
            for stage, seconds in record.cpu_seconds.items():
                found.stages.setdefault(stage, []).append(seconds)
        shutil.rmtree(root)
        cpu, wall = 0.0, 0.0
        for name in found.sampled:
            (job_cpu, job_wall), _ = spent_by(lambda named=name: plain_job(spark, workload, named))  # type: ignore[misc]
            cpu, wall = cpu + job_cpu, wall + job_wall
        found.unshared.add((cpu / sample * queries, wall / sample * queries), warming)
        spent, _ = spent_by(lambda: scan_and_group(spark, stream, scratch / "scan"))
        found.scan.add(spent, warming)
    return found


# ------------------------------------------------------------------------------------------- reporting
def tables(found: Sequence[Comparison]) -> list[Table]:
    """What was measured, for people."""
    medians = Table(title="CPU seconds, medians (process tree)")
    for heading in (
        "queries",
        "trees",
        "answers",
        "planning",
        "shared",
        "one job each*",
        "scan-and-group",
        "saving",
        "of scan",
    ):
        medians.add_column(heading, justify="right")
    stages = Table(title="Stages of the shared run, CPU seconds and share")
    names = list(dict.fromkeys(name for one in found for name in one.stages))
    for heading in ("queries", *names, "rest"):
        stages.add_column(heading, justify="right")
    for one in found:
        data = one.to_json()
        medians.add_row(
            str(one.queries),
            str(one.trees),
            f"{one.answers:,}",
            f"{one.planning_cpu:.2f}",
            f"{one.shared.median:.1f}",
            f"{one.unshared.median:.0f}",
            f"{one.scan.median:.1f}",
            f"{data['unshared_over_shared']:.1f}x",
            f"{data['shared_over_scan']:.2f}x",
        )
        total = one.shared.median
        cells = [data["stage_cpu"].get(name, 0.0) for name in names]
        cells.append(max(0.0, total - math.fsum(cells)))
        stages.add_row(str(one.queries), *(f"{cell:.1f} ({cell / total:.0%})" for cell in cells))
    medians.caption = "* extrapolated from a sample: its mean times the number of queries"
    return [medians, stages]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sharing", description="Shared pipeline beside one Spark job a query")
    parser.add_argument("--events", type=int, default=10_000_000, help="events in the day (10,000,000)")
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 100, 500], help="workload sizes (10 100 500)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after the warming one (3)")
    parser.add_argument("--sample", type=int, default=4, help="queries run unshared in each round (4)")
    parser.add_argument("--data", type=Path, default=Path("var/bench"), help="where the stream is kept (var/bench)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    options = parser.parse_args(arguments)
    if min(options.events, options.rounds, options.sample, *options.queries) < 1:
        parser.error("--events, --queries, --rounds and --sample must be at least 1")
    console = Console()
    err = Console(stderr=True)
    stream = generate(options.data, options.events)
    spark = start_session("bench", quick=False)
    found = []
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        for queries in options.queries:
            found.append(
                measure(
                    spark,
                    stream,
                    options.events,
                    queries,
                    options.rounds,
                    options.sample,
                    Path(scratch),
                    err.print,
                )
            )
    for table in tables(found):
        console.print(table)
    if options.json:
        comparisons = [one.to_json() for one in found]
        document = {"format_version": 1, "granule_seconds": GRANULE, "keys": KEYS, "comparisons": comparisons}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
