"""Compiles the kernels of event sequences and of the search for plans once, ahead of their first use.

python -m optimizer.plan.compiling
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from optimizer.plan.bare_windows import Windows, plan_windows
from optimizer.sequences.answering import answers
from optimizer.sequences.events import Events
from optimizer.sequences.executors import choose
from optimizer.sequences.matches import Measure, SequenceQuery
from optimizer.sequences.passes import EXECUTORS, Pass
from optimizer.workload.values import SECOND


def compile_search() -> None:
    """Compile what plans are searched with where there are too many windows to prove an optimum."""
    chance = np.random.default_rng(0)
    for count in (40, 300):
        slides = chance.integers(1, 50 * count, count) * SECOND
        ranges = 3 * slides + chance.integers(0, slides)
        plan_windows(Windows(np.arange(count), ranges, slides), Fraction(1), seconds=0.1)


def compile_kernels(executors: Sequence[str] = EXECUTORS) -> None:
    """Compile what these executors (and measures, with ``windows``) need into Numba's cache, where it is not there."""
    ones = np.ones(3, dtype=np.int64)
    raw = ones, np.array([1, 2, 2]), np.zeros(3, dtype=np.int32), {"whole": (ones, None), "double": (ones / 2, None)}
    Events.of(*raw[:3])
    Events.of(ones, np.array([1, 1 << 60, 2]), raw[2])
    sequence_queries = [SequenceQuery((0, 0, 0, 0, 0, 0), 8, 4)]
    for executor in executors:
        events = Events.of(*raw)
        (group,) = choose(events, sequence_queries, executor)
        none = np.zeros(0, dtype=np.int64)
        for take in Pass(events, sequence_queries, None, replace(group, bits=0.0)).ladder():
            take(none)
    if "windows" in executors:
        # so often that sums take 128 bits
        events = replace(Events.of(*raw), count=np.full(2, 1 << 31))
        measures = tuple(Measure("sum", name, 0) for name in ("whole", "double"))
        measured = SequenceQuery((0, 0), 8, 4, (*measures, Measure("max", "whole", 0)))
        answers(events, [measured])
        (group,) = choose(events, [measured], "windows")
        for measure in (*measures, Measure("max", "whole", 0)):
            Pass(events, [measured], None, group).measured(measure)


def main() -> None:
    """Compile all kernels in two processes, and print how long it took."""
    print("compiling kernels (once, a minute or two) ...", end=" ", flush=True)
    begin = time.monotonic()
    # what these have in common is little
    steps: list[Callable[[], None]] = [
        partial(compile_kernels, ["windows"]),
        partial(compile_kernels, ["landmarks"]),
        compile_search,
    ]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for done in [pool.apply_async(step) for step in steps]:
            done.get()
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
