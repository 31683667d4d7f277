"""Measures refresh bounds under overload: the whole pipeline, driven faster than it can serve.

    python -m tests.benchmarks.refreshes [--queries N] [--seconds N] [--rate N] [--step SECONDS] [--json FILE]

Golab et al.'s workload: eight groups of queries over the same packets (group-bys of addresses, protocols and ports),
windows of 20 to 100 updates of the synopses, refresh bounds from one update to half a window. Every scheduler drives
the same runs (partials, finals, checks, publication) into a warehouse of its own in one Spark session, in turns of a
few runs each; its clock is the wall time that its own runs took, so that it falls behind as it would alone.
No-sharing, conservative, hybrid, late and late-pending run one group a run, as published
(:mod:`optimizer.papers.reference.local_schedulers`); *ours* is what live runs do (:mod:`optimizer.plan.schedules`):
the plan's schedule, and late runs that stand for all that was missed, of all groups.

Throughput is queries re-executed per second of clock; latency how many updates more than its bound lie between two
executions of a query, on average (each query's last, unfinished one included); *left* the queries that were never
executed. At the end load falls: *in time* says that ours then answers every query within its bound.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.papers.reference.local_schedulers import LocalScheduler, Task
from optimizer.plan import instants_due
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.schedule.groups import Group
from optimizer.workload.values import LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.engine.session import start_session
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = 1_767_268_800 * SECOND
"""2026-01-01T12:00:00Z: when the clocks start."""

GROUPS = (
    ("source",), ("destination",), ("source", "destination"), ("protocol",),
    ("port",), ("protocol", "port"), ("source", "protocol"), ("destination", "protocol"),
)  # fmt: skip
OUTPUTS = ("sum(size) AS load", "max(size) AS largest", "avg(size) AS mean", "count(*) AS packets")
MODES = ("no-sharing", "conservative", "hybrid", "late", "late-pending")
SCHEMA = (
    ("ts", TIMESTAMP),
    ("source", STRING),
    ("destination", STRING),
    ("protocol", STRING),
    ("port", STRING),
    ("size", LONG),
)
VALUES = {"source": 100, "destination": 100, "protocol": 10, "port": 100}
TURN = 3
"""Runs that a scheduler makes before the next has its turn."""


# -------------------------------------------------------------------------------------------- the workload
def packets(folder: Path, rate: int, seconds: int, seed: int = 1) -> Stream:
    """``rate`` packets a second from 200 seconds before noon, a file a minute."""
    chance = np.random.default_rng(seed)
    target = folder / "packets"
    target.mkdir()
    for number, begin in enumerate(range(-200, seconds, 60)):
        rows = 60 * rate
        times = np.sort(chance.integers(NOON + begin * SECOND, NOON + (begin + 60) * SECOND, rows))
        columns: dict[str, Any] = {"ts": pa.array(times).cast(pa.timestamp("us", "UTC"))}
        for name, count in VALUES.items():
            columns[name] = pa.array([f"{name}{key}" for key in range(count)]).take(
                pa.array(chance.integers(0, count, rows))
            )
        columns["size"] = chance.integers(40, 1500, rows)
        pq.write_table(pa.table(columns), target / f"part-{number:04d}.parquet")
    return Stream("packets", Source("parquet", str(target)), SCHEMA, "ts")


def workload(stream: Stream, queries: int, seed: int = 1) -> Workload:
    chance = random.Random(seed)
    step = stream.step // SECOND
    text = []
    for number in range(queries):
        group = ", ".join(GROUPS[number % len(GROUPS)])
        window = chance.randint(20, 100)
        bound = chance.randint(1, window // 2)
        text.append(
            f"-- name: q{number}\nSELECT {group}, {chance.choice(OUTPUTS)} FROM packets WINDOW RANGE '{window * step} "
            f"seconds' SLIDE AT MOST '{bound * step} seconds' ON ts GROUP BY {group};\n"
        )
    parsed = parse("".join(text), {"packets": stream})
    assert not parsed.errors, parsed.errors
    return Workload(parsed.queries, (stream,))


# -------------------------------------------------------------------------------------------- the schedulers
@dataclass
class Clocked(ABC):
    """A scheduler with its own clock (microseconds) and warehouse; ``executed``: instants by query."""

    name: str
    plan: SharingPlan
    warehouse: Warehouse
    version: int
    clock: float = float(NOON)
    reached: int = NOON
    runs: int = 0
    executed: dict[str, list[int]] = field(default_factory=dict)
    spent: list[float] = field(default_factory=list)

    @property
    def step(self) -> int:
        return self.plan.schedules[0].step

    def next_step(self) -> int:
        """The newest step, once it is later than the last run's; the clock waits for it if need be."""
        self.clock = max(self.clock, self.reached - self.reached % self.step + self.step)
        return int(self.clock) - int(self.clock) % self.step

    def execute(self, spark: SparkSession, instant: int, names: Sequence[str]) -> None:
        """One run that answers some queries at an instant."""
        begun = time.perf_counter()
        due = [(instant, tuple(names))]
        with patch("spark_jobs.pipeline.run.refreshes.ticks", lambda *args: due):
            run(spark, self.warehouse, self.version, self.reached, instant, f"run {self.runs}", as_of=instant)
        seconds = time.perf_counter() - begun
        self.spent.append(seconds)
        self.clock += seconds * SECOND
        self.reached, self.runs = instant, self.runs + 1
        for name in names:
            self.executed.setdefault(name, []).append(instant)

    @abstractmethod
    def turn(self, spark: SparkSession) -> None:
        """One run: what the scheduler executes next, once its clock has come to it."""


@dataclass
class Published(Clocked):
    """Algorithms 1 to 3: a group a run, whichever is most urgent."""

    scheduler: LocalScheduler | None = None

    def turn(self, spark: SparkSession) -> None:
        if self.scheduler is None:
            (schedule,) = self.plan.schedules
            self.scheduler = LocalScheduler(schedule.groups, self.name, work_conserving=False, fixed=schedule.fixed)
        while True:
            instant = self.next_step()
            number = (instant - NOON) // self.step
            if number > self.scheduler.now:
                self.scheduler.update(number)
            chosen: tuple[Task, ...] = self.scheduler.choose()
            if chosen:
                break
            self.clock = float(instant + self.step)
        self.execute(spark, instant, self.scheduler.executed(chosen))
        self.scheduler.done(chosen)


@dataclass
class Ours(Clocked):
    """What live runs do: the newest scheduled instant, late if there were several."""

    def turn(self, spark: SparkSession) -> None:
        known = {name: times[-1] for name, times in self.executed.items()}
        schedules = self.plan.schedules
        due = instants_due.ticks(schedules, self.reached, int(self.clock), known)
        while not due:
            self.clock = float(int(self.clock) - int(self.clock) % self.step + self.step)
            due = instants_due.ticks(schedules, self.reached, int(self.clock), known)
        instant, names = due[-1]
        if len(due) > 1:
            ((instant, names),) = instants_due.late(schedules, self.reached, instant, known)
        self.execute(spark, instant, names)


def made(name: str, plan: SharingPlan, folder: Path) -> Clocked:
    warehouse = Warehouse.open(folder / name)
    version, _ = publish_plan(warehouse, plan)
    return (Ours if name == "ours" else Published)(name, plan, warehouse, version)


# -------------------------------------------------------------------------------------------- figures
def bounds_of(groups: Sequence[Group]) -> Iterator[tuple[str, int]]:
    return ((name, each.period) for group in groups for each in group.subgroups for name in each.queries)


def figures(found: Clocked) -> dict[str, Any]:
    latencies = []
    for name, period in bounds_of(found.plan.schedules[0].groups):
        times = [NOON, *found.executed.get(name, []), int(found.clock)]
        gaps = [
            max(0, (later - earlier) // found.step - period) for earlier, later in zip(times, times[1:], strict=False)
        ]
        # the last one is not over
        latencies.append(statistics.fmean(gaps[:-1] or gaps))
    seconds = (found.clock - NOON) / SECOND
    executions = sum(map(len, found.executed.values()))
    return {
        "scheduler": found.name,
        "runs": found.runs,
        "seconds_a_run": round(statistics.fmean(found.spent), 2),
        "queries_a_run": round(executions / found.runs, 1),
        "throughput": round(executions / seconds, 2),
        "latency": round(statistics.fmean(latencies), 1),
        "left": len(found.plan.workload.queries) - len(found.executed),
    }


def in_time(found: Clocked, spark: SparkSession, runs: int) -> bool:
    """Load falls: runs take no time of the clock. Is every query within its bound from the first run on?"""
    begin = None
    for _ in range(runs):
        found.turn(spark)
        found.clock -= found.spent[-1] * SECOND
        begin = begin or found.reached
    return all(
        later - earlier <= period * found.step
        for name, period in bounds_of(found.plan.schedules[0].groups)
        for times in [[*(at for at in found.executed.get(name, []) if at >= begin), found.reached]]
        for earlier, later in itertools.pairwise([begin, *times])
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="refresh bounds under overload")
    parser.add_argument("--queries", type=int, default=240)
    parser.add_argument("--seconds", type=int, default=60, help="of clock for each scheduler")
    parser.add_argument("--rate", type=int, default=1500, help="packets a second")
    parser.add_argument("--step", type=int, default=1, help="seconds between two updates of the synopses")
    parser.add_argument("--schedulers", nargs="+", default=[*MODES, "ours"], choices=[*MODES, "ours"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        stream = packets(folder, options.rate, options.seconds * 4 + 240)
        stream = Stream(stream.name, stream.source, stream.schema, stream.time, 0, options.step * SECOND)
        plan = build_plan(workload(stream, options.queries), {"packets": Fraction(options.rate)})
        spark = start_session("benchmark")
        try:
            warm = made("ours", plan, folder / "warm")
            for _ in range(2):
                warm.turn(spark)
            schedulers = [made(name, plan, folder / "measured") for name in options.schedulers]
            limit = NOON + options.seconds * SECOND
            while any(scheduler.clock < limit for scheduler in schedulers):
                for scheduler in schedulers:
                    for _ in range(TURN):
                        if scheduler.clock < limit:
                            scheduler.turn(spark)
                progress = ", ".join(
                    f"{scheduler.name} {(scheduler.clock - NOON) / SECOND:.0f} s" for scheduler in schedulers
                )
                console.print(progress, highlight=False, soft_wrap=True)
            rows = [figures(scheduler) for scheduler in schedulers]
            recovered = [in_time(scheduler, spark, 12) for scheduler in schedulers if scheduler.name == "ours"]
        finally:
            spark.stop()
    table = Table(title=f"{options.queries} queries, {options.rate} packets/s, an update every {options.step} s")
    for name in rows[0]:
        table.add_column(
            name.replace("_", " "), justify="left" if name == "scheduler" else "right", no_wrap=True, overflow="fold"
        )
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)
    if recovered:
        console.print(f"ours in time once load falls: {recovered[0]}")
    if options.json:
        options.json.write_text(
            json.dumps({"rows": rows, "recovered": recovered, **vars(options)}, default=str, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
