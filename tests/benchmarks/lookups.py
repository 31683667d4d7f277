"""Measures answers on demand (:mod:`spark_jobs.windows.lookups.lookups`) from a warehouse, the published structures
beside them.

    python -m tests.benchmarks.lookups [--groups N] [--fragments N] [--answers N] [--rounds N] [--json FILE]

A warehouse is written as a run leaves its partial aggregates (every group has two trades a minute), and read back.
Ours, in batches: random instants and random groups, from the instant to the value (``Lookups.batch``); one at a time:
calls of ``Lookups.single`` from Python. Event sequences are of the same events; one at a time, the first round matches
the windows of each group, block by block. Published: the structures of Arasu & Widom over the same fragments, one group
after the other; these are given the positions of each window, found beforehand. CPU time, medians over rounds in which
each takes its turn; what is compared has to give the same answers. Windows of an hour that slide by a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from optimizer.aggregates.state_kinds import ADD, MAX
from optimizer.language.parser import parse
from optimizer.papers.reference.interval_quantiles import BaseIntervalQuantiles
from optimizer.papers.reference.online_intervals import BaseIntervals, LandmarkIntervals, RunningIntervals, SearchTree
from optimizer.plan.builder import build_plan
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.loading import QueryLookups, Reader
from spark_jobs.windows.lookups.lookups import Lookups
from tests.benchmarks.intervals import filled, look_up, nanoseconds, online_median
from tests.spark_jobs.windows.stored_partials import stored

Array = np.ndarray[Any, Any]

MINUTE = 60_000_000
BEGIN = 1_372_636_800_000_000
WIDTH = 60
"""Fragments of a window."""

STREAM = Stream(
    "trades",
    Source("parquet", "trades.parquet"),
    (("ts", TIMESTAMP), ("symbol", STRING), ("kind", STRING), ("volume", LONG)),
    "ts",
)
QUERIES = {
    "SUM": "sum(volume)",
    "MAX": "max(volume)",
    "quantile": "percentile_disc(volume, 0.5)",
}
SEQUENCES = "sequences"
"""The greatest volume among the B of all sequences A, B, C of a group, whose events are of four kinds."""
GOALS = {"SUM": 50e6, "MAX": 20e6, "quantile": 1e6}
"""Look-ups a second and core in batches."""
GOAL_OF_ONE = 200e3

SHARES = {"SUM": 1.0, "MAX": 1.0, "quantile": 0.1}


def written(root: Path, groups: int, fragments: int) -> Warehouse:
    """A warehouse with the partial aggregates of so many groups in so many fragments."""
    rng = np.random.default_rng(0)
    size = 2 * groups * fragments
    times = BEGIN + np.repeat(np.arange(fragments), 2 * groups) * MINUTE + rng.integers(0, MINUTE, size)
    symbols = pa.array([f"S{number}" for number in range(groups)]).take(pa.array(np.arange(size) // 2 % groups))
    events = pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "symbol": symbols,
            "kind": pa.array(list("ABCD")).take(pa.array(rng.integers(0, 4, size))),
            "volume": rng.integers(0, 2**40, size),
        }
    )
    text = "".join(
        f"-- name: {name}\nSELECT symbol, {select} AS value FROM trades "
        f"WINDOW RANGE '{WIDTH} minutes' SLIDE '1 minute' ON ts GROUP BY symbol;\n"
        for name, select in QUERIES.items()
    )
    text += (
        f"-- name: {SEQUENCES}\nSELECT symbol, max(B.volume) AS value FROM trades PATTERN SEQ(A, B, C) ON kind "
        f"WINDOW RANGE '{WIDTH} minutes' SLIDE '1 minute' ON ts GROUP BY symbol;\n"
    )
    parsed = parse(text, {"trades": STREAM})
    assert parsed.diagnostics == ()
    workload = Workload(parsed.queries, (STREAM,))
    assert len(build_plan(workload, {"trades": Fraction(1)}).trees) == 2
    return stored(root, workload, events, [(BEGIN + WIDTH * MINUTE - 1, BEGIN + fragments * MINUTE)])


@dataclass(frozen=True)
class Contender:
    """``answer(share)`` answers the first ``share`` of the look-ups and returns how many, and their values."""

    aggregate: str
    name: str
    answer: Callable[[float], tuple[int, Array]]
    share: float
    goal: float | None = None


@dataclass(frozen=True)
class Asked:
    """Look-ups: instants, groups; and the runs of cells that these mean."""

    times: Array
    groups: Array
    low: Array
    high: Array


def asked_of(lookups: Lookups, fragments: int, answers: int) -> Asked:
    rng = np.random.default_rng(1)
    last = rng.integers(WIDTH, fragments, answers)
    groups = rng.integers(0, len(lookups.groups), answers)
    high = groups * (len(lookups.cells) // len(lookups.groups)) + last
    return Asked(BEGIN + last * MINUTE + rng.integers(0, MINUTE, answers), groups, high - WIDTH, high)


def contenders(reader: Reader, fragments: int, answers: int) -> tuple[list[Contender], dict[str, float]]:
    candidates, loads = [], {}
    for aggregate in QUERIES:
        took, lookups = nanoseconds(partial(reader.query, aggregate))
        loads[f"{aggregate}: load, cells as arrays"] = took / 1e6
        requests = asked_of(lookups, fragments, answers)
        (first, second) = (nanoseconds(partial(lookups.at, int(requests.times[0])))[0] for _ in range(2))
        loads[f"{aggregate}: first table of all groups at an instant"] = first / 1e6
        loads[f"{aggregate}: another one"] = second / 1e6
        share = SHARES[aggregate]
        candidates += [
            Contender(aggregate, "ours, batch", partial(batch, lookups, requests), share, GOALS[aggregate]),
            Contender(aggregate, "ours, one at a time", partial(singly, lookups, requests), 0.02, GOAL_OF_ONE),
        ]
        runs = requests.low, requests.high
        if aggregate == "quantile":
            (state,) = (state for state in lookups.cells.synopsis.states if state.kind == "values")
            elements = lookups._multiset(state)
            runs = elements.offsets[requests.low], elements.offsets[requests.high]
            values, size = elements.values, len(elements.values)
            built = filled(BaseIntervalQuantiles(size), values)
            candidates.append(Contender(aggregate, "B-INT-QNT", partial(published, online_median, built, *runs), 0.01))
            continue
        values, size = per_cell(lookups, aggregate), len(lookups.cells)
        operation = ADD if aggregate == "SUM" else MAX
        structures: dict[str, Any] = {
            "L-INT": LandmarkIntervals(size, [WIDTH], operation),
            "B-INT": BaseIntervals(size, operation),
            "PSoup's search tree": SearchTree(size, operation),
        }
        if operation == ADD:
            structures = {"R-INT": RunningIntervals(size)} | structures
        for name, structure in structures.items():
            share = 1.0 if name[1:] == "-INT" and name[0] in "RL" else 0.1
            answer = partial(published, look_up, filled(structure, values), *runs)
            candidates.append(Contender(aggregate, name, answer, share))
    took, lookups = nanoseconds(partial(reader.query, SEQUENCES))
    loads[f"{SEQUENCES}: load"] = took / 1e6
    for what in ("first table of all groups at an instant", "another one"):
        loads[f"{SEQUENCES}: {what}"] = nanoseconds(partial(lookups.at, int(requests.times[0])))[0] / 1e6
    candidates += [
        Contender(SEQUENCES, "ours, batch", partial(batch, lookups, requests), 1.0),
        Contender(SEQUENCES, "ours, one at a time", partial(singly, lookups, requests), 0.02),
    ]
    return candidates, loads


def per_cell(lookups: Lookups, aggregate: str) -> Array:
    (kind,) = {"SUM": ["sum"], "MAX": ["max"]}[aggregate]
    column = next(column for state, column in lookups.cells.states.items() if state.kind == kind)
    values = column.values  # type: ignore[union-attr]
    return values[:, 0] + (values[:, 1] << 32) if aggregate == "SUM" else np.ascontiguousarray(values[:, 0])


def batch(lookups: QueryLookups, asked: Asked, share: float) -> tuple[int, Array]:
    count = int(len(asked.times) * share)
    values, valid = lookups.batch(asked.times[:count], asked.groups[:count])["value"]
    assert valid.all()
    return count, values


def singly(lookups: QueryLookups, asked: Asked, share: float) -> tuple[int, Array]:
    count = int(len(asked.times) * share)
    names = [lookups.groups[group][0] for group in asked.groups[:count].tolist()]
    return count, np.array([lookups.single(at, name)[0] for at, name in zip(asked.times[:count].tolist(), names)])  # type: ignore[index] # noqa: B905


def published(
    ask: Callable[[Any, Array, Array], Array], built: Any, low: Array, high: Array, share: float
) -> tuple[int, Array]:
    count = int(len(low) * share)
    return count, ask(built, low[:count], high[:count])


def measure(groups: int, fragments: int, answers: int, rounds: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(written(Path(folder) / "house", groups, fragments))
        field, loads = contenders(reader, fragments, answers)
    measured: list[list[float]] = [[] for _ in field]
    for turn in range(rounds + 1):
        known: dict[str, Array] = {}
        for contender, times in zip(field, measured, strict=True):
            took, (count, answered) = nanoseconds(partial(contender.answer, contender.share))
            if turn:  # the first turn compiles, or reads what was compiled, and builds
                times.append(took / count)
            first = known.setdefault(contender.aggregate, answered)
            shared = min(len(first), len(answered))
            if not np.array_equal(first[:shared], answered[:shared]):
                raise AssertionError(f"{contender.aggregate}: {contender.name} answers otherwise")
    rows = [
        {
            "aggregate": contender.aggregate,
            "name": contender.name,
            "answer_ns": statistics.median(times),
            "answers_per_second": 1e9 / statistics.median(times),
            "goal": contender.goal,
        }
        for contender, times in zip(field, measured, strict=True)
    ]
    return rows, loads


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.lookups", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--fragments", type=int, default=3_000, help="minutes of the stream")
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    started = time.perf_counter()
    rows, loads = measure(chosen.groups, chosen.fragments, chosen.answers, chosen.rounds)
    console = Console(width=140)
    table = Table("aggregate", "structure", "ns a look-up", "look-ups/s", "goal")
    for row in rows:
        met = "met" if row["goal"] and row["answers_per_second"] >= row["goal"] else "MISSED"
        goal = f"{row['goal']:,.0f} {met}" if row["goal"] else ""
        table.add_row(
            row["aggregate"], row["name"], f"{row['answer_ns']:,.1f}", f"{row['answers_per_second']:,.0f}", goal
        )
    console.print(table)
    for what, milliseconds in loads.items():
        console.print(f"{what}: {milliseconds:,.1f} ms", highlight=False)
    console.print(f"{chosen.groups * chosen.fragments:,} cells; {time.perf_counter() - started:.0f} s", highlight=False)
    if chosen.json:
        chosen.json.write_text(json.dumps({"look_ups": rows, "milliseconds": loads}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
