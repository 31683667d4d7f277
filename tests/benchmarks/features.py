"""Measures two queries of 104 features each, next to Spark, DuckDB, Polars and hops as Chronon describes them.

    python -m tests.benchmarks.sharing --workloads features [--events N] [--keys N] [--rounds N] [--no-spark]
        [--data DIR] [--json FILE]

A query has 13 aggregates over 8 windows of each customer (:mod:`tests.benchmarks.feature_queries`). ``recent`` slides
by 5 minutes and has windows from 5 minutes to 730 days; ``daily`` slides by a day and has windows from a day to 730
days, for the windows of a query are a whole number of slides apart.
Each has a warehouse of its own, which a first run fills; its cost is reported as ``fill``.

- The *update* answers one further instant of ``recent``, after a file with a few new events.
- The *backfill* answers 90 instants of ``daily``, of a history that is stored.

Heddle answers each with all checks, and with none. ``in memory`` is the latter without the CPU time in which Parquet is
encoded. Peers read all events and compute until the rows are in memory; ``written`` also writes these as Parquet
(:mod:`tests.benchmarks.feature_peers`). Chronon's hops are stored before, as Heddle's partial aggregates are. In each
round all take turns, the first is not counted. Seconds are CPU seconds of the process tree. The exit code is 1 if
answers of some customers differ from Heddle's; those of the hops may, and the share that does is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, SECOND, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results import writer
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.feature_peers import Peer, peers_of
from tests.benchmarks.feature_queries import (
    BEGIN,
    FIRST_DAY,
    INSTANTS,
    NOW,
    STEP,
    QuerySet,
    daily,
    generate,
    recent,
    stream_of,
    write_events,
)
from tests.benchmarks.peers import difference, spent_by
from tests.benchmarks.sharing import machine

COMPARED = 400
"""Customers whose answers are compared, about."""

GOALS = {"backfill": 20.0, "update": 50.0}
"""Times that the cheapest exact peer costs of Heddle in memory."""


# ------------------------------------------------------------------------------------------------ Heddle
class Store:
    """A warehouse of one query. ``checks``: as of a run."""

    def __init__(self, folder: Path, query: ACQ, source: Path, events: int, checks: str) -> None:
        workload = Workload((query,), (stream_of(source),))
        self.folder, self.query, self.checks = folder, query, checks
        self.warehouse = Warehouse.open(folder)
        self.engine = Engine("features", given=LocalWorkers(1))
        rates = {stream.name: Fraction(events * SECOND, NOW - BEGIN) for stream in workload.streams}
        self.version, _ = publish_plan(self.warehouse, build_plan(workload, rates, "best"))

    def copy(self, folder: Path, checks: str) -> Store:
        """A warehouse with the same content: immutable files are linked."""
        shutil.copytree(self.folder, folder, copy_function=_linked)
        other = object.__new__(Store)
        vars(other).update(vars(self) | {"folder": folder, "checks": checks, "warehouse": Warehouse.open(folder)})
        return other

    def run(self, begin: int, end: int) -> RunRecord:
        """Answer the instants in (begin, end]."""
        now = NOW + 2 * DAY
        return run(self.engine, self.warehouse, self.version, begin, end, f"{begin}", as_of=now, checks=self.checks)

    def answers(self, begin: int, end: int) -> pa.Table:
        """What was published for the instants in (begin, end]."""
        return read(self.warehouse, self.query.name, begin, end)


def _linked(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


@contextmanager
def encoding() -> Iterator[list[float]]:
    """CPU seconds in which this process encodes answers as Parquet."""
    seconds: list[float] = []

    class Timed(pq.ParquetWriter):
        def write_table(self, *given: Any, **named: Any) -> None:
            before = time.process_time()
            super().write_table(*given, **named)
            seconds.append(time.process_time() - before)

    with patch.object(writer.pq, "ParquetWriter", Timed):
        yield seconds


# --------------------------------------------------------------------------------------------- measuring
@dataclass
class Task:
    """The update or the backfill: what each way to answer spent, a value a round, by ``in memory`` and ``written``."""

    name: str
    fill: float = 0.0
    rows: int = 0
    spent: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    stages: dict[str, list[float]] = field(default_factory=dict)
    features: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, float] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    def add(self, way: str, in_memory: float, written: float) -> None:
        """Note a round."""
        series = self.spent.setdefault(way, {"in memory": [], "written": []})
        series["in memory"].append(in_memory)
        series["written"].append(written)

    def median(self, way: str, what: str = "in memory") -> float:
        """CPU seconds."""
        return statistics.median(self.spent[way][what])

    def ratio(self, way: str) -> float:
        """Times what Heddle costs in memory: the median of the rounds' ratios."""
        pairs = zip(self.spent[way]["in memory"], self.spent["heddle"]["in memory"], strict=False)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    def to_json(self, exact: Sequence[str]) -> dict[str, Any]:
        """All figures; ``exact``: the peers whose answers are."""
        best = min((way for way in exact if way in self.spent), key=self.median)
        return {
            "fill": self.fill,
            "rows": self.rows,
            "cpu_seconds": {
                way: {what: statistics.median(values) for what, values in series.items()}
                for way, series in self.spent.items()
            },
            "over_heddle": {way: self.ratio(way) for way in self.spent},
            "best_exact": best,
            "goal": GOALS[self.name],
            "stages": {stage: statistics.median(values) for stage, values in self.stages.items()},
            "features": self.features,
            "wrong": self.wrong,
            "differing": self.differing,
        }


def measure(options: argparse.Namespace, scratch: Path, report: Callable[[str], None]) -> list[Task]:
    """The update and the backfill, in interleaved rounds."""
    events = generate(options.data, options.events, options.keys)
    source = scratch / "events"
    shutil.copytree(events, source, copy_function=os.link)
    tasks = []
    with peers_of(source, options.keys, not options.no_spark) as peers:
        for measuring, queries in ((_updates, recent(source)), (_backfills, daily(source))):
            task = Task("update" if measuring is _updates else "backfill")
            tasks.append(task)
            store = Store(scratch / task.name, queries.query, source, options.events, "none")
            spent, _ = spent_by(partial(_fill, store, queries))
            task.fill = spent.cpu
            report(f"{task.name}: filled by Heddle, {spent.cpu:.1f} CPU s")
            for peer in peers:
                spent, _ = spent_by(partial(peer.prepare, queries))
                report(f"{task.name}: {peer.title} prepared, {spent.cpu:.1f} CPU s")
            measuring(task, queries, store, peers, options, report)
            shutil.rmtree(store.folder)
    return tasks


def _fill(store: Store, queries: QuerySet) -> None:
    if queries.is_daily:
        for instant in (FIRST_DAY, FIRST_DAY + (INSTANTS + 1) * DAY):
            store.run(instant - DAY, instant)
    else:
        store.run(NOW - STEP, NOW)


def _updates(
    task: Task,
    queries: QuerySet,
    store: Store,
    peers: Sequence[Peer],
    options: argparse.Namespace,
    report: Callable[[str], None],
) -> None:
    checked = store.copy(store.folder.with_name("checked"), "all")
    new = max(10, int(options.events * STEP / (NOW - BEGIN)))
    for number in range(options.rounds + 1):
        instant = NOW + number * STEP
        path = store.folder.parent / "events" / f"new-{number:03d}.parquet"
        write_events(path, np.random.default_rng((17, number)), new, (instant, instant + STEP), options.keys)
        bounds = (instant, instant + STEP)
        _round(task, queries, (store, checked), peers, bounds, number, report)
    shutil.rmtree(checked.folder)


def _backfills(
    task: Task,
    queries: QuerySet,
    store: Store,
    peers: Sequence[Peer],
    options: argparse.Namespace,
    report: Callable[[str], None],
) -> None:
    for number in range(options.rounds + 1):
        copies = [store.copy(store.folder.with_name(f"copy-{checks}"), checks) for checks in ("none", "all")]
        bounds = (FIRST_DAY, FIRST_DAY + INSTANTS * DAY)
        _round(task, queries, copies, peers, bounds, number, report)
        for copy in copies:
            shutil.rmtree(copy.folder)


def _round(
    task: Task,
    queries: QuerySet,
    stores: Sequence[Store],
    peers: Sequence[Peer],
    bounds: tuple[int, int],
    number: int,
    report: Callable[[str], None],
) -> None:
    """One round of the update or the backfill; the first compares answers and is not counted."""
    for store in stores:
        with encoding() as seconds:
            spent, record = spent_by(partial(store.run, *bounds))
        way = "heddle" if store.checks == "none" else "heddle, all checks"
        report(f"{task.name}, round {number}: {way} {spent.cpu:.2f} CPU s, {sum(seconds):.2f} of it encoding")
        if number:
            task.add(way, spent.cpu - sum(seconds), spent.cpu)
        if number and store.checks == "none":
            for stage, cpu in record.cpu_seconds.items():
                task.stages.setdefault(stage, []).append(cpu)
            task.features = dict(record.features)
            report(f"{record.cpu_seconds}")
    ours = None if number else stores[0].answers(*bounds)
    for peer in peers:
        if (number and not peer.is_repeated) or not peer.can(queries):
            continue
        spent, answers = spent_by(partial(peer.answers, queries, bounds))
        scaled = spent.cpu * peer.scale(queries)
        written = spent_by(partial(_write, answers, stores[0].folder))[0].cpu * peer.scale(queries)
        report(f"{task.name}, round {number}: {peer.title} {scaled:.2f} CPU s")
        if number or not peer.is_repeated:
            task.add(peer.title, scaled, scaled + written)
        if ours is not None:
            task.rows = len(ours)
            _compare(task, queries, peer, ours, answers)


def _write(answers: pa.Table | None, folder: Path) -> None:
    if answers is not None:
        pq.write_table(answers, folder.with_name("answers.parquet"))


def _compare(task: Task, queries: QuerySet, peer: Peer, ours: pa.Table, answers: pa.Table | None) -> None:
    if answers is None:
        return
    if not peer.is_exact:
        task.wrong[peer.title] = wrong_share(queries.query, ours, answers)
        return
    every = peer.every * max(1, pc.count_distinct(ours["customer"]).as_py() // COMPARED // peer.every)
    some = [_some_customers(table, every) for table in (ours, answers)]
    problem = difference(queries.query, *some)
    if not problem and len(ours) != len(answers) and peer.scale(queries) == 1:
        problem = f"{len(ours):,} answers and {len(answers):,}"
    if problem:
        task.differing.append(f"{peer.title}: {problem[:400]}")


def _some_customers(table: pa.Table, every: int) -> pa.Table:
    customers = table["customer"].cast(pa.int64()).to_numpy()
    return table.filter(pa.array(customers % every == 0))


def wrong_share(query: ACQ, exact: pa.Table, answers: pa.Table) -> float:
    """Share of values in ``answers`` that are not those of ``exact``; rows that only one of them has are wrong."""
    rows = []
    for table in (exact, answers):
        columns = [table["window_start"].cast(pa.int64()), table["customer"].cast(pa.int64())]
        rows.append(pa.table(columns, names=["start", "customer"]).append_column("row", [np.arange(len(table))]))
    both = rows[0].join(rows[1], ["start", "customer"], right_suffix=" of answers", join_type="inner")
    places = [both[name].to_numpy() for name in ("row", "row of answers")]
    wrong = 0
    for output in query.outputs:
        ours, theirs = (table[output.name].cast(pa.float64()).to_numpy() for table in (exact, answers))
        is_same = np.isclose(ours[places[0]], theirs[places[1]], rtol=1e-9, atol=1e-9, equal_nan=True)
        wrong += int((~is_same).sum())
    lonely = len(exact) + len(answers) - 2 * len(both)
    outputs = len(query.outputs)
    return (wrong + lonely * outputs) / ((len(both) + lonely) * outputs)


# --------------------------------------------------------------------------------------------- reporting
def shown(task: Task) -> Table:
    """The figures of a task, for people."""
    title = f"{task.name}: {task.rows:,} rows, CPU seconds"
    table = Table("way", "in memory", "times", "written", "wrong", title=title)
    for way in sorted(task.spent, key=task.median):
        wrong = f"{task.wrong[way]:.2%}" if way in task.wrong else ""
        ratio, written = f"{task.ratio(way):.2f}", f"{task.median(way, 'written'):.2f}"
        table.add_row(way, f"{task.median(way):.2f}", ratio, written, wrong)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the medians, and write the JSON. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="sharing --workloads features", description="Two queries of 104 features")
    parser.add_argument("--events", type=int, default=50_000_000, help="events of 822 days (50,000,000)")
    parser.add_argument("--keys", type=int, default=100_000, help="customers (100,000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds after the warming one (3)")
    parser.add_argument("--no-spark", action="store_true", help="without Spark")
    parser.add_argument("--data", type=Path, default=Path("var/bench"), help="where the events are kept (var/bench)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    parser.add_argument("--charts", help=argparse.SUPPRESS)  # make bench gives it always; there are none
    options = parser.parse_args(arguments)
    if min(options.events, options.keys, options.rounds) < 1:
        parser.error("--events, --keys and --rounds must be at least 1")
    console, report = Console(width=None if sys.stdout.isatty() else 140), Console(stderr=True).print
    options.data.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"events": options.events, "keys": options.keys, "rounds": options.rounds}
    document["machine"] = machine()
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        tasks = measure(options, Path(scratch), report)
    for task in tasks:
        exact = [way for way in task.spent if way not in task.wrong and not way.startswith("heddle")]
        document[task.name] = task.to_json(exact)
        console.print(shown(task))
        best = document[task.name]["best_exact"]
        console.print(f"{best} costs {task.ratio(best):.2f} times Heddle; the goal is {GOALS[task.name]:g}")
        for problem in task.differing:
            console.print(f"differs: {problem}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if any(task.differing for task in tasks) else 0


if __name__ == "__main__":
    sys.exit(main())
