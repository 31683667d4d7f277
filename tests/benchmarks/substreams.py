"""Measures substream filters: collective indexes against asking every substream, on trades of 5,000 symbols.

    python -m tests.benchmarks.substreams [--symbols N] [--per-day N] [--lookups N] [--json FILE]

COUNT and SUM: updates and look-ups in turn, windows of 15 minutes to 3 hours, selectivity 4 %, symbols traded by
Zipf's law; CI-COUNT and CI-SUM with p levels of each size and an exact check, against R-INT on each substream
(:func:`optimizer.papers.evaluations.arasu_widom.filter_rates`). MAX: the staircases' segment tree against walking down
every staircase. HAVING: stored fragments of all groups, any window, against two searches in each group. What is
compared answers the same questions in turns in one process, in compiled loops (HAVING: calls from Python), and has to
find the same keys.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from optimizer.combine.threshold_index import HavingIndex
from optimizer.papers.evaluations.arasu_widom import MINUTE, SPANS, filter_rates, trades
from optimizer.papers.reference.ci_max_min import CollectiveExtreme, add_stair, find_stairs, more_stairs

POINTS = (1, 2, 4, 8, 16)

Row = dict[str, Any]


@numba.njit(cache=True)
def walk_each(stairs, cutoff, v, out):
    """What the segment tree is measured against: each substream's staircase is walked down to the cutoff."""
    count = 0
    for key in range(len(stairs.last)):
        stair, best = stairs.last[key], -1
        while stair >= 0 and stairs.moments[stair] >= cutoff:
            best, stair = stair, stairs.before[stair]
        out[count] = key
        count += best >= 0 and stairs.values[best] > v
    return count


@numba.njit(cache=True)
def ask_maxima(stairs, keys, times, values, spans, v, limit, by_tree, found):
    out = np.empty(len(stairs.last), np.int64)
    for at in range(len(keys)):
        now = times[at]
        while not add_stair(stairs, keys[at], now, values[at]):
            stairs = more_stairs(stairs, now - limit)
        if by_tree:
            count = find_stairs(stairs, now - spans[at] + 1, v, out)
        else:
            count = walk_each(stairs, now - spans[at] + 1, v, out)
        found[at, 0], found[at, 1] = count, out[:count].sum()
    return stairs


def maxima(symbols: int, per_day: int, lookups: int) -> Row:
    """Prices around a level of each symbol's own; the threshold is one that 4 % of the levels exceed."""
    trace = trades(symbols, per_day, lookups)
    rng = np.random.default_rng(1)
    levels = rng.normal(0, 1000, symbols)
    prices = (levels[trace.keys] + rng.normal(0, 50, len(trace.keys))).astype(np.int64)
    v = int(np.quantile(levels, 0.96))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    indexes = {}
    for by_tree in seconds:
        indexes[by_tree] = CollectiveExtreme(symbols, span_limit=max(SPANS))
        indexes[by_tree].update_many(trace.keys[: trace.before], trace.times[: trace.before], prices[: trace.before])
    key_counts = {by_tree: np.empty((lookups, 2), np.int64) for by_tree in seconds}
    for turn, piece in enumerate(np.array_split(np.arange(lookups), 11)):
        rows = slice(trace.before + piece[0], trace.before + piece[-1] + 1)
        arguments = trace.keys[rows], trace.times[rows], prices[rows], trace.spans[piece], v, max(SPANS)
        for by_tree, index in indexes.items():
            begin = time.process_time()
            index.stairs = ask_maxima(index.stairs, *arguments, by_tree, key_counts[by_tree][piece[0] : piece[-1] + 1])
            if turn:
                seconds[by_tree].append((time.process_time() - begin) / (2 * len(piece)))
    tree, walk = (1 / median(seconds[by_tree]) for by_tree in (True, False))
    return {
        "keys_found": float(key_counts[True][:, 0].mean()),
        "stairs": int((indexes[True].stairs.owners >= 0).sum()),
        "each_rate": walk,
        "ours_rate": tree,
        "ours_over_each": tree / walk,
        "same_answers": bool((key_counts[True] == key_counts[False]).all()),
    }


@numba.njit(cache=True)
def search_each(starts, totals, groups, start, end, v, out):
    """What :class:`HavingIndex` is measured against: two searches in each group, and running totals."""
    count = 0
    for group in range(len(groups) - 1):
        begin, stop = groups[group], groups[group + 1]
        low = begin + np.searchsorted(starts[begin:stop], start)
        high = low + np.searchsorted(starts[low:stop], end)
        out[count] = group
        count += low < high and totals[high] - totals[low] > v
    return count


def having(symbols: int, per_day: int, lookups: int, width: int) -> Row:
    """Counts of trades by symbol and fragments of ``width`` seconds; windows within the first three hours."""
    trace = trades(symbols, per_day, lookups)
    cells, counts = np.unique(trace.keys * 2**40 + trace.times // (width * MINUTE // 60), return_counts=True)
    starts = (cells % 2**40) * (width * MINUTE // 60)
    groups = np.searchsorted(cells >> 40, np.arange(symbols + 1))
    begin = time.process_time()
    index = HavingIndex(starts, groups, counts)
    built = time.process_time() - begin
    rng = np.random.default_rng(2)
    out = np.empty(symbols, np.int64)
    seconds: dict[str, list[float]] = {"ours": [], "each": []}
    same, key_counts = True, []
    for turn in range(lookups):
        span = int(rng.choice(SPANS))
        start = int(rng.integers(0, max(SPANS) - span + 1))
        v = int(np.quantile(index.sums(start, start + span, np.arange(symbols)), 0.96))
        took, keys = _timed(lambda s=start, e=start + span, v=v: index.above(s, e, v))
        each, count = _timed(
            lambda s=start, e=start + span, v=v: search_each(index.starts, index.totals, index.groups, s, e, v, out)
        )
        same &= keys.tolist() == out[:count].tolist()
        key_counts.append(count)
        if turn:
            seconds["ours"].append(took)
            seconds["each"].append(each)
    ours, each_rate = (1 / median(seconds[name]) for name in ("ours", "each"))
    return {
        "fragments": len(starts),
        "step": index.step,
        "build_seconds": built,
        "keys_found": float(np.mean(key_counts)),
        "each_rate": each_rate,
        "ours_rate": ours,
        "ours_over_each": ours / each_rate,
        "same_answers": same,
    }


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    returned = work()
    return time.process_time() - begin, returned


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.substreams", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--symbols", type=int, default=5_000)
    parser.add_argument("--per-day", type=int, default=2_000_000, help="trades of a day of six and a half hours")
    parser.add_argument("--lookups", type=int, default=3_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    size = chosen.symbols, chosen.per_day, chosen.lookups

    def silent(done: int, total: int, text: str) -> None:
        """A benchmark prints its tables only."""

    rows_by_title: dict[str, list[Row]] = {
        "COUNT (CI-COUNT)": filter_rates(trades(*size), POINTS, 5, silent),
        "SUM (CI-SUM)": filter_rates(trades(*size, weighted=True), POINTS, 5, silent),
        "MAX (CI-MAX)": [maxima(*size)],
        "HAVING over fragments": [
            {"fragment_seconds": width, **having(*size[:2], min(size[2], 300), width)} for width in (300, 30, 1)
        ],
    }
    console = Console(width=200)
    for title, rows in rows_by_title.items():
        table = Table(*(name.replace("_", " ") for name in rows[0]), title=title, title_justify="left")
        for row in rows:
            table.add_row(*map(shown, row.values()))
        console.print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows_by_title, indent=2))
    return 0 if all(row["same_answers"] for rows in rows_by_title.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
