"""Measures event sequence aggregation: A-Seq and Sharon's executor against Heddle's.

    python -m tests.benchmarks.sequences [--points NAME ...] [--rounds N] [--windows N] [--ticks N] [--executors]
                                         [--measures] [--json FILE]

Everybody gets the same compacted events (compacting is a row of its own), counts the same matches in the same windows
and takes turns in one process; CPU seconds, medians over the rounds. A-Seq and Sharon as published have a count for
each START event; *pooled* they share one among those of a pane, as Heddle does
(:mod:`optimizer.papers.reference.sharon`). Sharon runs the cheapest plan by the costs of its executor. ``ahead`` is
Heddle's rate over a row's; the goal for A-Seq is as published. ``--executors`` compares Heddle's executors with each
other instead, ``--measures`` what sums and extremes of the same matches take.
Streams: purchases (20 keys with thousands of events each per window); position reports (4,000 keys with 50 each).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from optimizer.papers.evaluations.sequence_streams import HOURS, Stream, position_reports, purchases, workload
from optimizer.papers.evaluations.sharon import EXECUTORS, case_of, executors, race, same_answers
from optimizer.sequences import answering
from optimizer.sequences.answering import answers
from optimizer.sequences.events import Events
from optimizer.sequences.executors import Group, choose
from optimizer.sequences.matches import Measure, SequenceQuery
from optimizer.sequences.passes import EXECUTORS as OURS

Row = dict[str, Any]


class Point(NamedTuple):
    """What is asked: queries of a length, where they have how long a piece in common (and how many different ones);
    events per window; range/slide; how many times ahead of A-Seq Heddle is to be; of cars or of customers."""

    queries: int = 20
    length: int = 10
    shared: str = "middle"
    piece: int = 5
    window: int = 200_000
    ratio: int = 10
    goal: float | None = None
    common: int = 1
    cars: bool = False


POINTS = {
    "20 queries": Point(goal=6),
    "120 queries": Point(queries=120, goal=12),
    "120 queries, shared ends": Point(queries=120, shared="suffix", goal=40),
    "120 queries, long shared ends": Point(queries=120, shared="suffix", piece=8, goal=40),
    "length 30": Point(length=30, piece=15),
    "range/slide 60": Point(ratio=60),
    "1.2M events a window": Point(window=1_200_000, goal=30),
    "20 queries, Linear Road": Point(shared="halves", common=11, cars=True),
    "120 queries, Linear Road": Point(queries=120, shared="halves", common=11, cars=True),
}


def drawn(point: Point, windows: float, ticks: int) -> tuple[Stream, list[tuple[int, ...]]]:
    """The stream and the patterns of a point."""
    if point.cars:
        stream = position_reports(HOURS * 3600 - windows * point.window / 4_000, ticks=ticks)
    else:
        stream = purchases(round(windows * point.window), ticks=ticks)
    return stream, workload(point.queries, point.length, point.shared, stream, point.common, piece=point.piece)


def measure(point: Point, windows: float, rounds: int, ticks: int) -> list[Row]:
    """A row for each of Heddle, A-Seq and Sharon's executor."""
    stream, patterns = drawn(point, windows, ticks)
    Events.of(stream.key, stream.time, stream.type)  # compiled code is loaded
    begin = time.process_time()
    case = case_of(stream, patterns, point.window, point.ratio)
    compacting = time.process_time() - begin
    seconds, answers_by_executor = race(executors(case), case.events, rounds)
    rates = {name: case.total / took for name, took in seconds.items()}
    rows = [
        {
            "executor": EXECUTORS.get(name, name),
            "events_per_second": rate,
            "cpu_seconds": seconds[name],
            "ahead": rates["ours"] / rate,
            "goal": point.goal if name == "a_seq" else 1.0 if name.startswith("sharon") else None,
            "same_answers": same_answers([answers_by_executor["a_seq"], answers_by_executor[name]]),
        }
        for name, rate in rates.items()
    ]
    return [
        {"executor": "compacting", "events_per_second": case.total / compacting, "cpu_seconds": compacting},
        *rows,
    ]


LONGER = {
    "20 queries, range/slide 240": Point(ratio=240),
    "20 queries, range/slide 1440": Point(ratio=1440),
}
"""Points at which only executors are compared."""

SLOW = 3.0
"""Times the CPU time of what is chosen from which on an executor is measured once."""

KINDS = {"counts": (1,), "three ranges": (1, 2, 5), "sum": (1,)}
"""What is asked at each point, and by what the queries' ranges are divided, in turns."""


def compare_executors(point: Point, kind: str, windows: float, rounds: int, ticks: int) -> Row:
    """CPU seconds of Heddle's executors, as times of those it chooses; medians over rounds in which all take turns."""
    stream, patterns = drawn(point, windows, ticks)
    case = case_of(stream, patterns, point.window, point.ratio)
    amounts = np.random.default_rng(5).integers(1, 10_000, len(stream.key))
    events = Events.of(stream.key, stream.time, stream.type, {"amount": (amounts, None)})
    ranges = [case.range // part for part in KINDS[kind]]
    queries = [
        SequenceQuery(
            pattern,
            ranges[number % len(ranges)],
            case.slide,
            (Measure("sum", "amount", pattern[len(pattern) // 2]),) if kind == "sum" else (),
        )
        for number, pattern in enumerate(patterns)
    ]
    chosen: set[str] = set()

    def noted(*arguments: Any) -> list[Group]:
        groups = choose(*arguments)
        chosen.update(group.executor for group in groups)
        return groups

    with patch.object(answering, "choose", noted):
        answers(events, queries)
    work = {name or "chosen": partial(answers, events, queries, name) for name in (None, *OURS)}
    results: dict[str, Any] = {}
    measured: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, run in work.items():
            if number < 2 or measured[name][1] < SLOW * measured["chosen"][1]:
                begin = time.process_time()
                results[name] = run()
                measured[name].append(time.process_time() - begin)
    # the first round compiles, or reads what was compiled
    seconds = {name: statistics.median(each[1:]) for name, each in measured.items()}
    return {
        "chosen": sorted(chosen),
        "cpu_seconds": round(seconds["chosen"], 4),
        "times": {name: round(seconds[name] / seconds["chosen"], 3) for name in OURS},
        "same_answers": same_answers([results["chosen"], *(results[name] for name in OURS)]),
    }


MEASURED: dict[str, tuple[tuple[str, str, int], ...]] = {
    "counts alone": (),
    "sum": (("sum", "whole", 5),),
    "avg": (("sum", "whole", 5), ("known", "whole", 5)),
    "avg, some null": (("sum", "nullable", 5), ("known", "nullable", 5)),
    "min": (("min", "whole", 1),),
    "max": (("max", "whole", -1),),
    "sum of doubles": (("sum", "double", 5),),
    "avg, min and max": (("sum", "whole", 5), ("known", "whole", 5), ("min", "whole", 1), ("max", "whole", -1)),
}
"""Functions, columns, and at which place of its pattern every query measures."""


def measure_measures(point: Point, windows: float, rounds: int, ticks: int) -> list[Row]:
    """What measures take beside counts, of the same events; all take turns."""
    stream, patterns = drawn(point, windows, ticks)
    case = case_of(stream, patterns, point.window, point.ratio)
    rng = np.random.default_rng(5)
    size = len(stream.key)
    columns: dict[str, Any] = {
        "whole": (rng.integers(1, 10_000, size), None),
        "nullable": (rng.integers(-500, 10_000, size), rng.random(size) < 0.9),
        "double": (rng.integers(0, 10_000, size) / 100, None),
    }
    events = Events.of(stream.key, stream.time, stream.type, columns)
    measured: dict[str, list[float]] = {name: [] for name in MEASURED}
    for _ in range(rounds + 1):
        for name, measures in MEASURED.items():
            queries = [
                SequenceQuery(
                    pattern,
                    case.range,
                    case.slide,
                    tuple(Measure(of, column, pattern[at]) for of, column, at in measures),
                )
                for pattern in patterns
            ]
            begin = time.process_time()
            answers(events, queries)
            measured[name].append(time.process_time() - begin)
    # the first round compiles, or reads what was compiled
    seconds = {name: statistics.median(each[1:]) for name, each in measured.items()}
    return [
        {"measures": name, "cpu_seconds": took, "times_counts": took / seconds["counts alone"]}
        for name, took in seconds.items()
    ]


def shown(row: Row) -> list[str]:
    ahead, goal = row.get("ahead"), row.get("goal")
    return [
        row["executor"],
        f"{row['events_per_second'] / 1e6:,.2f}",
        f"{row['cpu_seconds']:.3f}",
        "" if ahead is None else f"{ahead:.2f}",
        "" if goal is None else f"{goal:g} {'met' if ahead >= goal else 'MISSED'}",
        "" if ahead is None else "yes" if row["same_answers"] else "NO",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.sequences", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--points", nargs="*", choices=POINTS | LONGER, default=list(POINTS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=float, default=3, help="length of the stream, in windows")
    parser.add_argument("--ticks", type=int, default=1, help="of time per second (the paper's times are in seconds)")
    parser.add_argument("--executors", action="store_true", help="Heddle's executors with each other, instead")
    parser.add_argument("--measures", action="store_true", help="what measures take beside counts, instead")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    console = Console(width=140)
    rows_by_point: dict[str, list[Row]] = {}
    if chosen.executors:
        table = Table("point", "asked", "chosen", *OURS, "same")
        for name in chosen.points:
            for kind in KINDS:
                point = (POINTS | LONGER)[name]
                row = compare_executors(point, kind, chosen.windows, chosen.rounds, chosen.ticks)
                rows_by_point.setdefault(name, []).append({"asked": kind, **row})
                times = [f"{row['times'][each]:.2f}" for each in OURS]
                table.add_row(name, kind, " ".join(row["chosen"]), *times, "yes" if row["same_answers"] else "NO")
            if chosen.json:
                chosen.json.write_text(json.dumps({"ticks": chosen.ticks, "points": rows_by_point}, indent=1))
        console.print(table)
        return 0
    if chosen.measures:
        for name in chosen.points:
            rows = measure_measures(POINTS[name], chosen.windows, chosen.rounds, chosen.ticks)
            rows_by_point[name] = rows
            table = Table("measures", "CPU s", "times counts", title=name, title_justify="left")
            for row in rows:
                table.add_row(row["measures"], f"{row['cpu_seconds']:.3f}", f"{row['times_counts']:.2f}")
            console.print(table)
        if chosen.json:
            chosen.json.write_text(json.dumps({"ticks": chosen.ticks, "points": rows_by_point}, indent=2))
        return 0
    for name in chosen.points:
        point = POINTS[name]
        rows = measure(point, chosen.windows, chosen.rounds, chosen.ticks)
        rows_by_point[name] = rows
        title = (
            f"{name}: {point.queries} queries of {point.length} types, {point.shared} of {point.piece} in common, "
            f"{point.window:,} events per window, range/slide {point.ratio}"
        )
        table = Table("executor", "M events/s", "CPU s", "ahead", "goal", "same", title=title, title_justify="left")
        for row in rows:
            table.add_row(*shown(row))
        console.print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps({"ticks": chosen.ticks, "points": rows_by_point}, indent=2))
    return 0 if all(row.get("same_answers", True) for rows in rows_by_point.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
