"""Measures the structures that combine many windows over one array of fragments, the published ones beside ours.

    python -m tests.benchmarks.intervals [--fragments N] [--answers N] [--rounds N] [--json FILE] [--costs]

Random windows over random values, one group. One row a structure: CPU nanoseconds per fragment (or element) to build
or to update, and per answer; medians over rounds in which every structure takes its turn, so that a slow moment of the
machine meets all of them. Structures that answer slowly get fewer answers. Answers of one aggregate are compared.
``--costs`` measures the coefficients of ``optimizer.combine.choose.COSTS`` instead and prints them as they stand there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from optimizer.aggregates.sketches import registers_of
from optimizer.aggregates.state_kinds import ADD, ADD_DOUBLE, GREATEST_PAIR, MAX
from optimizer.combine.choose import STRUCTURES, combine_pairs, combine_runs
from optimizer.combine.distinct import DistinctCounter
from optimizer.combine.frequent import modes, top_k
from optimizer.combine.hyperloglog import hll_counts
from optimizer.combine.prefix_sums import PrefixSums
from optimizer.combine.sparse_tables import SparseTable
from optimizer.combine.wavelet_matrix import WaveletMatrix
from optimizer.papers.reference.interval_quantiles import BaseIntervalQuantiles
from optimizer.papers.reference.online_intervals import (
    BaseIntervals,
    LandmarkIntervals,
    MaterializeNone,
    RunningIntervals,
    SearchTree,
)

Array = np.ndarray[Any, Any]

GOALS = {
    ("SUM of integers", "running totals"): 50e6,
    ("MAX", "sparse table"): 20e6,
    ("median", "wavelet matrix"): 1e6,
}
"""Answers per second and core."""


@dataclass(frozen=True)
class Contender:
    """``build()`` makes the structure and puts all fragments in; ``answer(built, low, high)`` answers the windows.

    ``share``: the part of the windows that it is given. ``forward``: windows that slide on by one fragment, in order,
    instead of random ones; what then looks like building is part of answering.
    """

    aggregate: str
    name: str
    build: Callable[[], Any]
    answer: Callable[[Any, Array, Array], Array]
    share: float = 1.0
    forward: bool = False


@dataclass(frozen=True)
class Data:
    """What is combined: integers, doubles as double-doubles, weights, hashes; and the windows."""

    values: Array
    sums: Array
    weights: Array
    elements: tuple[Array, Array]
    windows: tuple[Array, Array]
    sliding: tuple[Array, Array]


PRECISION = 12


def made(fragments: int, answers: int, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 1000, fragments)
    bounds = np.sort(rng.integers(0, fragments + 1, (answers, 2)), axis=1)
    low, high = np.minimum(bounds[:, 0], fragments - 1), np.maximum(bounds[:, 1], bounds[:, 0] + 1)
    ends = np.arange(1, fragments + 1)
    hashes = rng.integers(0, 2**64, 1000, dtype=np.uint64)[values]
    return Data(
        values,
        np.stack([rng.random(fragments), np.zeros(fragments)], axis=1),
        rng.integers(1, 9, fragments),
        registers_of(hashes, PRECISION),
        (low, np.minimum(high, fragments)),
        (np.maximum(ends - fragments // 100, 0), ends),
    )


def contenders(data: Data) -> list[Contender]:
    values, matrix, size = data.values, data.values[:, None], len(data.values)
    wide = np.random.default_rng(1).integers(0, 2**50, size)
    ones = np.ones(size, dtype=np.int64)
    candidates = [
        Contender("SUM of integers", "running totals", lambda: PrefixSums(matrix), combine),
        Contender("SUM of integers", "R-INT", lambda: filled(RunningIntervals(size), values), look_up),
        *published("SUM of integers", values, ADD, int),
        *published("SUM of doubles", data.sums[:, 0], ADD_DOUBLE, float),
        Contender("MAX", "sparse table", lambda: SparseTable(matrix, MAX), combine),
        Contender(
            "MAX",
            "L-INT, all widths",
            lambda: filled(LandmarkIntervals(size, range(1, size + 1), MAX), values),
            look_up,
        ),
        *published("MAX", values, MAX, int),
    ]
    for aggregate, elements in (("median", values), ("median of 50 bits", wide)):
        candidates += [
            Contender(aggregate, "wavelet matrix", partial(WaveletMatrix, elements), median, 0.5),
            Contender(
                aggregate,
                "B-INT-QNT",
                partial(lambda x: filled(BaseIntervalQuantiles(size), x), elements),
                online_median,
                0.02,
            ),
            Contender(aggregate, "sort each", lambda: None, partial(sort_each, elements), 0.0003),
        ]
    return [
        *candidates,
        Contender("weighted median", "wavelet matrix", lambda: WaveletMatrix(wide, data.weights), weighted_median, 0.5),
        Contender(
            "DISTINCT", "grid", lambda: DistinctCounter(values), lambda built, low, high: built.count(low, high), 0.5
        ),
        Contender("DISTINCT", "sort each", lambda: None, partial(distinct_of_each, values), 0.0003),
        sliding("MAX", "two stacks", combine_runs, matrix, MAX),
        sliding("SUM of doubles", "two stacks", combine_runs, data.sums, ADD_DOUBLE),
        sliding("argmax", "two stacks", combine_pairs, values, data.weights, True),
        sliding("mode", "tournament", modes, values, ones),
        sliding("top 10", "tournament", lambda *shape: top_k(*shape, 10)[0], values, ones),
        sliding("HyperLogLog", "descending maxima", lambda *shape: hll_counts(*shape, PRECISION), *data.elements),
    ]


def published(aggregate: str, values: Array, operation: int, dtype: type) -> list[Contender]:
    kinds: tuple[tuple[str, Any, float], ...] = (
        ("B-INT", BaseIntervals, 0.3),
        ("PSoup's search tree", SearchTree, 0.1),
        ("materialize none", MaterializeNone, 0.0003),
    )
    return [
        Contender(
            aggregate, name, partial(lambda x: filled(x(len(values), operation, dtype), values), kind), look_up, share
        )
        for name, kind, share in kinds
    ]


def sliding(aggregate: str, name: str, function: Callable[..., Array], *arguments: Any) -> Contender:
    def answer(built: Any, low: Array, high: Array) -> Array:
        return function(*arguments, np.zeros_like(low), low, high)

    return Contender(f"sliding {aggregate}", name, lambda: None, answer, forward=True)


def filled(structure: Any, values: Array) -> Any:
    structure.update_many(values)
    return structure


def look_up(built: Any, low: Array, high: Array) -> Array:
    return built.lookup_many(low + 1, high)


def combine(built: Any, low: Array, high: Array) -> Array:
    combined = built.combine(low, high)
    return combined[:, 0] if combined.shape[1] == 1 else combined[:, 0] + combined[:, 1]


def median(built: Any, low: Array, high: Array) -> Array:
    return built.quantile(low, high, (high - low + 1) // 2)


def weighted_median(built: Any, low: Array, high: Array) -> Array:
    return built.quantile(low, high, (built.count(low, high) + 1) // 2)


def online_median(built: Any, low: Array, high: Array) -> Array:
    return built.lookup_many(low + 1, high, (high - low + 1) // 2)


def sort_each(values: Array, built: Any, low: Array, high: Array) -> Array:
    middles = (high - low + 1) // 2 - 1
    runs = zip(low.tolist(), high.tolist(), middles.tolist(), strict=True)
    return np.array([np.partition(values[first:last], middle)[middle] for first, last, middle in runs])


def distinct_of_each(values: Array, built: Any, low: Array, high: Array) -> Array:
    return np.array([len(np.unique(values[first:last])) for first, last in zip(low, high, strict=True)])


def nanoseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.thread_time_ns()
    returned = work()
    return time.thread_time_ns() - started, returned


def measure(fragments: int, answers: int, rounds: int) -> list[dict[str, Any]]:
    data = made(fragments, answers)
    field = contenders(data)
    measured: list[list[tuple[float, float]]] = [[] for _ in field]
    for turn in range(rounds + 1):
        known: dict[str, Array] = {}
        for contender, times in zip(field, measured, strict=True):
            low, high = data.sliding if contender.forward else data.windows
            count = len(low) if contender.forward else max(30, int(len(low) * contender.share))
            low, high = low[:count], high[:count]
            building, built = nanoseconds(contender.build)
            answering, answered = nanoseconds(lambda: contender.answer(built, low, high))  # noqa: B023
            if turn:  # the first turn compiles, or reads what was compiled
                times.append((building / fragments, answering / count))
            first = known.setdefault(contender.aggregate, answered)
            shared = min(len(first), len(answered))
            if answered.ndim == 1 and not np.allclose(first[:shared], answered[:shared], rtol=1e-12, atol=0):
                raise AssertionError(f"{contender.aggregate}: {contender.name} answers otherwise")
    rows = []
    for contender, times in zip(field, measured, strict=True):
        build, answer = (statistics.median(column) for column in zip(*times, strict=True))
        goal = GOALS.get((contender.aggregate, contender.name))
        rows.append(
            {
                "aggregate": contender.aggregate,
                "structure": contender.name,
                "build_ns": build,
                "answer_ns": answer,
                "answers_per_second": 1e9 / answer,
                "goal": goal,
            }
        )
    return rows


# ---------------------------------------------------------------------------------- the chooser's costs
def costs(fragments: int, rounds: int) -> dict[str, dict[str, float]]:
    """The coefficients of COSTS, each from two sizes of the same work."""
    rng = np.random.default_rng(0)
    longs = rng.integers(0, 2**40, fragments)
    columns = longs, longs, np.arange(fragments)
    many, few = 4 * fragments, 100

    def runs_of(count: int, width: int | None = None) -> tuple[Array, Array]:
        low = rng.integers(0, fragments - (width or 1), count)
        return low, low + width if width else rng.integers(low + 1, fragments + 1)

    def timed(name: str, low: Array, high: Array) -> float:
        group = np.zeros_like(low)
        work = [
            nanoseconds(lambda: STRUCTURES[name](columns, GREATEST_PAIR, group, low, high)) for _ in range(rounds + 1)
        ]
        return min(took for took, _ in work[1:])  # what it takes undisturbed

    short, long = timed("fold", *runs_of(fragments, 1)), timed("fold", *runs_of(fragments, 65))
    low = np.linspace(0, fragments - 65, many).astype(np.int64)
    few_runs, many_runs = (timed("two-stacks", low[::step], low[::step] + 64) for step in (80, 1))
    forward = (many_runs - few_runs) / (len(low) - len(low[::80]))
    start, full = timed("sparse", *runs_of(few)), timed("sparse", *runs_of(many))
    return {
        "fold": {"answer": short / fragments, "covered": (long - short) / fragments / 64},
        "two-stacks": {"answer": forward, "passed": (few_runs - len(low[::80]) * forward) / fragments},
        "sparse": {"fragment": start / fragments, "answer": (full - start) / (many - few)},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.intervals", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--fragments", type=int, default=100_000)
    parser.add_argument("--answers", type=int, default=1_000_000, help="windows that the quick structures answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--costs", action="store_true", help="measure the coefficients of the chooser instead")
    chosen = parser.parse_args(arguments)
    console = Console(width=140)
    if chosen.costs:
        measured = costs(chosen.fragments, chosen.rounds)
        for name, coefficients in measured.items():
            shown = ", ".join(f"{key}={max(value, 0.0):.1f}" for key, value in coefficients.items())
            console.print(f'    "{name}": Cost({shown}),')
    else:
        measured = measure(chosen.fragments, chosen.answers, chosen.rounds)
        table = Table("aggregate", "structure", "ns a fragment", "ns an answer", "answers/s", "goal")
        for row in measured:
            goal = (
                f"{row['goal']:,.0f} {'met' if row['answers_per_second'] >= row['goal'] else 'MISSED'}"
                if row["goal"]
                else ""
            )
            rate = f"{row['answers_per_second']:,.0f}"
            table.add_row(
                row["aggregate"], row["structure"], f"{row['build_ns']:.1f}", f"{row['answer_ns']:.1f}", rate, goal
            )
        console.print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
