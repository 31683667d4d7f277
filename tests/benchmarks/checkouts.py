"""Measures Heddle's local run in several checkouts, such as before and after a change.

    python -m tests.benchmarks.checkouts CHECKOUT ... [--workloads KIND ...] [--queries N ...] [--events N]
        [--rounds N] [--data DIR]

A process for each checkout publishes the day with this code's interpreter and that checkout's code. Each round runs
them in turn, after one that warms up. The tables have CPU seconds by stage, medians of the rounds; the ratio is the
median of the rounds' ratios to the first checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Spent = dict[str, float]
"""CPU seconds by stage, and of the run as ``run``."""


class Checkout:
    """The process that runs a checkout's code."""

    def __init__(self, root: Path, arguments: Sequence[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(root), "HEDDLE_HOME": str(root)}
        command = [sys.executable, __file__, "--serve", *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True)

    def run(self, kind: str, queries: int) -> Spent:
        """Publish the day once."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([kind, queries]), file=self._process.stdin, flush=True)
        spent: Spent = json.loads(self._process.stdout.readline())
        return spent

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(data: Path, events: int) -> None:
    """Publish the day for each line of standard input, with the code of the working directory."""
    from spark_jobs.engine.light_imports import arrow_alone

    arrow_alone()  # as commands do

    from optimizer.workload.instants import DAY
    from spark_jobs.engine.choice import Engine
    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.pipeline.run.interval import run
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from tests.benchmarks.peers import plan_of, spent_by
    from tests.benchmarks.trades import DAY_START, KINDS, generate

    answers, plans = os.fdopen(os.dup(1), "w"), dict[tuple[str, int], Any]()
    os.dup2(2, 1)
    stream, engine = generate(data, events), Engine("bench", requested="local")
    for line in sys.stdin:
        kind, queries = json.loads(line)
        if (kind, queries) not in plans:
            plans[kind, queries] = plan_of(KINDS[kind].workload(stream, queries), events)
        with tempfile.TemporaryDirectory(dir=data) as root:
            warehouse = Warehouse.open(Path(root) / "warehouse")
            version, _ = publish_plan(warehouse, plans[kind, queries])
            day = DAY_START, DAY_START + DAY
            spent, record = spent_by(lambda: run(engine, warehouse, version, *day, "run", as_of=day[1] + DAY))  # noqa: B023
        print(json.dumps(record.cpu_seconds | {"run": spent.cpu, "MB": spent.memory / 1e6}), file=answers, flush=True)
    engine.stop()


def measure(roots: Sequence[Path], kind: str, queries: int, rounds: int, arguments: Sequence[str]) -> list[list[Spent]]:
    """What each checkout spent in each round."""
    checkouts = list[Checkout]()
    try:
        for root in roots:
            # the first one makes the stream, if it is not there
            checkouts.append(Checkout(root, arguments))
            checkouts[-1].run(kind, queries)
        return [[checkout.run(kind, queries) for checkout in checkouts] for _ in range(rounds)]
    finally:
        for checkout in checkouts:
            checkout.close()


def lines(roots: Sequence[Path], rounds: Sequence[Sequence[Spent]]) -> Iterator[str]:
    """What was measured, for people."""
    for name in rounds[0][0]:
        medians = [statistics.median(spent[at].get(name, 0.0) for spent in rounds) for at in range(len(roots))]
        yield f"{name:10}" + "".join(f"{median:10.2f}" for median in medians)
    ratios = [statistics.median(spent[at]["run"] / spent[0]["run"] for spent in rounds) for at in range(len(roots))]
    yield f"{'ratio':10}" + "".join(f"{ratio:10.3f}" for ratio in ratios)


def main() -> None:
    parser = argparse.ArgumentParser(prog="checkouts", description="Heddle's local run in several checkouts")
    add = parser.add_argument
    add("checkouts", nargs="*", type=Path, metavar="CHECKOUT", help="folders; ratios are to the first")
    add("--workloads", nargs="+", default=["regular"], metavar="KIND", help="kinds of workloads (regular)")
    add("--queries", type=int, nargs="+", default=[10, 100, 500], help="workload sizes (10 100 500)")
    add("--events", type=int, default=10_000_000, help="events in the day (10,000,000)")
    add("--rounds", type=int, default=5, help="measured rounds after the warming one (5)")
    add("--data", type=Path, default=Path("var/bench"), help="where the stream is kept (var/bench)")
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.data, options.events)
        return
    options.data.mkdir(parents=True, exist_ok=True)
    arguments = ["--data", str(options.data.resolve()), "--events", str(options.events)]
    roots = [root.resolve() for root in options.checkouts]
    for kind in options.workloads:
        for queries in options.queries:
            rounds = measure(roots, kind, queries, options.rounds, arguments)
            print(f"{kind}, {queries} queries, {options.events:,} events, CPU seconds of {', '.join(map(str, roots))}")
            print("\n".join(lines(roots, rounds)), flush=True)


if __name__ == "__main__":
    main()
