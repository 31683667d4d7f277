"""Measures the edge counters on trees from a few slides to thousands of fragments.

    python -m tests.benchmarks.edges [--budget N ...] [--json FILE]

One row for each tree: every exact counter (a dash where it refuses), the floats of a plan search, what one
more query costs by conditioning, and how wide certified intervals are for some budgets. All in one process and from
cold caches; a counter that answers twice is not asked again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from optimizer.windows.alignment import Progression, absorb
from optimizer.windows.edge_counting import COUNTERS, EdgeCounter, edge_rate
from optimizer.windows.edge_sets import CountRefused

F1_AT_MOST = 30
"""Beyond so many progressions F1 would only be seen to reach its limit, after many seconds."""

Edges = tuple[Progression, ...]


def fragmented(count: int, longest: int, seed: int = 0) -> Edges:
    """Random windows whose slides do not divide their ranges: two progressions each."""
    rng = random.Random(seed)
    slides = [rng.randint(2, longest) for _ in range(count)]
    return absorb(edge for slide in slides for edge in ((slide, 0), (slide, rng.randrange(slide))))


def trees() -> dict[str, Edges]:
    primes = [n for n in range(2, 98) if all(n % d for d in range(2, n))]
    return {
        "slides 2..6": absorb((slide, 0) for slide in range(2, 7)),
        "25 primes": tuple((prime, 0) for prime in primes),
        "slides 501..1000": tuple((slide, 0) for slide in range(501, 1001)),
        "slides 2501..5000": tuple((slide, 0) for slide in range(2501, 5001)),
        **{f"{n} fragmented <= 1000": fragmented(n, 1_000) for n in (5, 20, 100, 200, 300, 400)},
        **{f"{n} fragmented <= 10000": fragmented(n, 10_000) for n in (50, 400, 1_500)},
    }


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    try:
        returned = work()
    except CountRefused:
        returned = None
    return time.perf_counter() - started, returned


def measure(edges: Edges, budgets: Sequence[int]) -> dict[str, Any]:
    row: dict[str, Any] = {"progressions": len(edges)}
    for name in COUNTERS:
        if name.startswith("f1") and len(edges) > F1_AT_MOST:
            row[name] = None
            continue
        took, rate = seconds(lambda name=name: edge_rate(edges, name))  # type: ignore[misc]
        row[name] = None if rate is None else took
    counter = EdgeCounter()
    row["floats"], density = seconds(lambda: counter.density(edges))
    row["increment"], _ = seconds(lambda: counter.increment(edges, density, ((60, 0), (60, 7))))
    for budget in budgets:
        took, (low, high) = seconds(lambda budget=budget: EdgeCounter(budget=budget).density(edges))  # type: ignore[misc]
        row[f"budget {budget}"] = {"low": low, "high": high, "seconds": took}
    return row


def shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return f"{value['low']:.4f} +{value['high'] - value['low']:.1g} ({value['seconds']:.2f} s)"
    return f"{value * 1000:.3g} ms" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.edges", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--budget", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    rows = {name: measure(edges, chosen.budget) for name, edges in trees().items()}
    table = Table("tree", *next(iter(rows.values())))
    for name, row in rows.items():
        table.add_row(name, *(shown(value) for value in row.values()))
    Console(width=200).print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
