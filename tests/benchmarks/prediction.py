"""How well the measured cost model predicts the CPU time of runs.

    python -m tests.benchmarks.prediction [--events N] [--queries N ...] [--json FILE]

Over the stream and the workloads of :mod:`tests.benchmarks.sharing` and one Spark session. The first run is of a cold
session. Every workload runs twice, each time into a fresh warehouse: *unknown* with a plan that does not know how many
groups a fragment has, *known* with one that was told by what the first run recorded, as each refresh of a plan is.
*Predicted* is what was foreseen of a run, *explained* what the same costs make of what the run counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Stream
from spark_jobs.planning.publication import publish_plan
from spark_jobs.planning.requested import model_of
from spark_jobs.session.session import start_session
from spark_jobs.warehouse.warehouse import Warehouse
from tests.benchmarks.peers import shared_run
from tests.benchmarks.trades import generate, workload_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Predicted:
    """One run: CPU seconds as measured, predicted before it, and explained after it."""

    queries: int
    groups: str
    trees: int
    answers: int
    measured: float
    predicted: float
    explained: float

    def error(self, value: float) -> float:
        return (value - self.measured) / self.measured


def measure(spark: SparkSession, stream: Stream, events: int, queries: int, scratch: Path) -> list[Predicted]:
    """Run one workload twice, into ``scratch``."""
    workload = workload_of(stream, queries)
    rates = {stream.name: Fraction(events * SECOND, DAY)}
    before: Warehouse | None = None
    found = []
    for groups in ("unknown", "known"):
        plan = build_plan(workload, rates, "weave-share", model_of("measured", [], before))
        before = Warehouse.open(scratch / f"{queries}-{groups}")
        record = shared_run(spark, before, publish_plan(before, plan)[0])
        seen: list[Any] = [sum(record.cpu_seconds.values()), record.predicted_cpu_seconds, record.explained_cpu_seconds]
        found.append(Predicted(queries, groups, len(plan.trees), record.answers, *seen))
    return found


def table(found: list[Predicted]) -> Table:
    """What was measured, for people."""
    shown = Table(title="CPU seconds of whole runs")
    for heading in ("queries", "groups", "trees", "answers", "measured", "predicted", "error", "explained", "error"):
        shown.add_column(heading, justify="right")
    for one in found:
        shown.add_row(
            str(one.queries),
            one.groups,
            str(one.trees),
            f"{one.answers:,}",
            f"{one.measured:.1f}",
            f"{one.predicted:.1f}",
            f"{one.error(one.predicted):+.0%}",
            f"{one.explained:.1f}",
            f"{one.error(one.explained):+.0%}",
        )
    return shown


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="prediction", description="Predicted CPU seconds beside measured ones")
    parser.add_argument("--events", type=int, default=1_000_000, help="events in the day (1,000,000)")
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 100], help="workload sizes (10 100)")
    parser.add_argument("--data", type=Path, default=Path("var/bench"), help="where the stream is kept (var/bench)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    options = parser.parse_args(arguments)
    stream = generate(options.data, options.events)
    spark = start_session("bench")
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        found = [one for n in options.queries for one in measure(spark, stream, options.events, n, Path(scratch))]
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    if options.json:
        document = {"format_version": 1, "events": options.events, "runs": [asdict(one) for one in found]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
