"""How evenly a run's stages use 64 cores when the data is skewed.

    python -m tests.benchmarks.skew [--events N] [--shapes SHAPE ...] [--states STATE ...] [--range SECONDS]
        [--rounds N] [--json FILE]

Measures every task of the partials and finals stages, one after the other on one core, and lays them on 64 simulated
cores. A stage passes if it ends within 1.3 x (task seconds / 64) + 2 s, and takes at most 1.1 times the CPU seconds of
one task that does all of it, or half a second more.

Shapes:

- ``key``: one key has half of the events, 200 others have the rest;
- ``ungrouped``: one query without groups;
- ``day``: an interval of seven days, one of which has all events, in one file.

Each is answered with ``sums``, exact ``distinct`` counts of a column with mostly unique values, and a ``median`` and a
percentile of doubles.

Every figure is also extrapolated to a billion events. Partial aggregates of distinct counts and medians grow with the
events: the divided stage is measured again with a task's memory and all thresholds divided by the same factor, and the
seconds of its tasks are multiplied by it. Those of one task are multiplied alone, which favors it: it would read what
does not fit into its memory many times. Splits grow in number, not in size. Partial aggregates of sums do not grow.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import division, finals_stage
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import data_files
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.cluster import Timing, makespan
from tests.benchmarks.peers import plan_of
from tests.benchmarks.trades import DAY_START
from tests.chaos.world import without_audit

CORES = 64

LAUNCH, BEGIN = 0.0025, 0.003
"""Seconds that the driver takes to launch a task, and a Python worker to begin it, over Unix sockets."""

BILLION = 10**9

SCHEMA = (("ts", TIMESTAMP), ("key", STRING), ("id", LONG), ("price", DOUBLE), ("volume", LONG))

STATES = {
    "sums": "sum(volume) AS volume, avg(price) AS mean",
    "distinct": "count(DISTINCT id) AS ids",
    "median": "median(price) AS middle, percentile(price, 0.9) AS high",
}

GROWING = ("distinct", "median")
"""States whose partial aggregates grow with the events."""

STAGES = ("partials", "finals")


@dataclass(frozen=True)
class Shape:
    """``hot``: the share of the events that one key has; ``by``: the group columns; ``days`` of the interval;
    ``is_one_file``: all events are in one file, else a million in each."""

    hot: float = 0.0
    by: str = "key"
    days: int = 1
    is_one_file: bool = False

    def query(self, states: str, seconds: int) -> str:
        """The text of a query."""
        columns = f"{self.by}, " if self.by else ""
        groups = f" GROUP BY {self.by}" if self.by else ""
        window = f"WINDOW RANGE '{seconds} seconds' SLIDE '{max(1, seconds // 6)} seconds' ON ts"
        return f"-- name: {states}\nSELECT {columns}{STATES[states]} FROM skewed {window}{groups};\n"


SHAPES = {
    "key": Shape(hot=0.5),
    "ungrouped": Shape(by=""),
    "day": Shape(days=7, is_one_file=True),
}


def generate(folder: Path, shape: Shape, events: int) -> Stream:
    """The stream of a shape, in order of time, in row groups of a million events."""
    folder.mkdir()
    chance = np.random.default_rng(7)
    # the middle day has all events
    begin, rows = DAY_START + shape.days // 2 * DAY, 1_000_000
    names = pa.array(["HOT", *(f"K{number:03d}" for number in range(200))])
    tables = []
    for first in range(0, events, rows):
        count = min(rows, events - first)
        span = (begin + DAY * first // events, begin + DAY * (first + count) // events)
        keys = np.where(chance.random(count) < shape.hot, 0, chance.integers(1, 201, count))
        columns = {
            "ts": pa.array(np.sort(chance.integers(*span, count))).cast(pa.timestamp("us", "UTC")),
            "key": names.take(pa.array(keys)),
            "id": chance.integers(0, 4 * events, count),
            "price": chance.lognormal(3.0, 0.5, count),
            "volume": chance.integers(1, 5000, count),
        }
        tables.append(pa.table(columns))
    if shape.is_one_file:
        pq.write_table(pa.concat_tables(tables), folder / "all.parquet", row_group_size=rows)
    else:
        for number, table in enumerate(tables):
            pq.write_table(table, folder / f"{number:05}.parquet")
    return Stream("skewed", Source("parquet", str(folder)), SCHEMA, "ts")


def measured(stream: Stream, text: str, days: int, events: int, cores: int) -> dict[str, list[float]]:
    """CPU seconds of each task of a run, by stage."""
    workers = Timing(cores, is_split=False)
    workload = Workload(tuple(parse(text, {stream.name: stream}).queries), (stream,))
    with tempfile.TemporaryDirectory() as root:
        house = Warehouse.open(root)
        version, _ = publish_plan(house, plan_of(workload, events))
        end = DAY_START + days * DAY
        with without_audit():
            run(Engine("simulated", given=workers), house, version, DAY_START, end, "skew", as_of=end + DAY)
    return {stage: [done.seconds for done in workers.stages[stage]] for stage in STAGES}


@dataclass(frozen=True)
class Verdict:
    """One stage on simulated cores: ``total`` and ``largest`` CPU seconds of its ``tasks``, when it ends, the bound for
    that, and its CPU as a multiple of that ``undivided``."""

    shape: str
    states: str
    events: int
    stage: str
    tasks: int
    total: float
    largest: float
    makespan: float
    bound: float
    undivided: float

    @property
    def ratio(self) -> float:
        """CPU of the divided stage as a multiple of one task's."""
        return self.total / self.undivided

    @property
    def passes(self) -> bool:
        """Whether the stage ends in time and costs little more CPU."""
        return self.makespan <= self.bound and (self.ratio <= 1.1 or self.total - self.undivided < 0.5)


def judged(shape: str, states: str, events: int, stage: str, times: list[float], undivided: float) -> Verdict:
    """The verdict on a stage."""
    span = makespan(times, CORES, LAUNCH, BEGIN)
    bound = 1.3 * sum(times) / CORES + 2
    return Verdict(shape, states, events, stage, len(times), sum(times), max(times), span, bound, undivided)


@contextmanager
def scaled(factor: int, is_divided: bool) -> Iterator[None]:
    """Treat partial aggregates as if they were a number of times as large; divide the stage, or do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals_stage, "ROWS_A_TASK", finals_stage.ROWS_A_TASK // factor)
        patch.setattr(division, "BYTES_A_TASK", division.BYTES_A_TASK // factor if is_divided else 1 << 62)
        patch.setattr(data_files, "GROUP_BYTES", data_files.GROUP_BYTES // factor)
        patch.setenv("HEDDLE_TASK_MEMORY", str(settings().task_memory.bytes // factor))
        yield


def verdicts(name: str, states: str, folder: Path, events: int, seconds: int, rounds: int) -> Iterator[Verdict]:
    """The verdicts on both stages of one shape and state, as measured and for a billion events."""
    shape = SHAPES[name]
    if not (folder / name).exists():
        generate(folder / name, shape, events)
        generate(folder / f"{name}-few", shape, 10_000)
    stream, few = (
        Stream("skewed", Source("parquet", str(folder / place)), SCHEMA, "ts") for place in (name, f"{name}-few")
    )
    text = shape.query(states, seconds)

    def cheapest(factor: int, cores: int) -> dict[str, list[float]]:
        with scaled(factor, is_divided=cores > 1):
            measurements = [measured(stream, text, shape.days, events, cores) for _ in range(rounds)]
        return {stage: min((measurement[stage] for measurement in measurements), key=sum) for stage in STAGES}

    # kernels are loaded
    measured(few, text, shape.days, events, 1)
    undivided, divided = cheapest(1, 1), cheapest(1, CORES)
    for stage in STAGES:
        yield judged(name, states, events, stage, divided[stage], sum(undivided[stage]))
    factor = BILLION // events
    splits = [seconds for seconds in divided["partials"] for _ in range(factor)]
    yield judged(name, states, BILLION, "partials", splits, factor * sum(undivided["partials"]))
    times, undivided_sum = divided["finals"], sum(undivided["finals"])
    if states in GROWING:
        times, undivided_sum = (
            [factor * seconds for seconds in cheapest(factor, CORES)["finals"]],
            factor * undivided_sum,
        )
    yield judged(name, states, BILLION, "finals", times, undivided_sum)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="skewed data on simulated cores")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--states", nargs="+", choices=STATES, default=list(STATES))
    parser.add_argument("--range", type=int, default=600, help="seconds of the windows, which slide by a sixth")
    parser.add_argument("--rounds", type=int, default=2, help="of which the cheapest counts")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, all_verdicts = Console(width=120), list[Verdict]()
    columns = ("shape", "states", "events", "stage", "tasks", "task s", "largest", "ends", "bound", "CPU", "passes")
    table = Table(*columns)
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shapes:
            for states in options.states:
                console.print(f"{shape}, {states} …")
                all_verdicts += verdicts(shape, states, Path(folder), options.events, options.range, options.rounds)
    for verdict in all_verdicts:
        figures = (
            f"{value:.2f}" for value in (verdict.total, verdict.largest, verdict.makespan, verdict.bound, verdict.ratio)
        )
        cells = (verdict.shape, verdict.states, f"{verdict.events:.0e}", verdict.stage, str(verdict.tasks))
        table.add_row(*cells, *figures, "yes" if verdict.passes else "no")
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(verdict) for verdict in all_verdicts], indent=1))


if __name__ == "__main__":
    main()
