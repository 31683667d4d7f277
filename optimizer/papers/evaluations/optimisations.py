"""Weave Share's Figure 14 again: planning time with the three optimisations of the paper's section 8.

All variants are the same plain Python and visit edges one by one, as the paper describes them.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 8, Example 4, Figure 14.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from optimizer.papers.evaluations.outcome import Measurement, Report, Row, Value
from optimizer.papers.evaluations.window_workload import TICK, Windows, generate
from optimizer.search.weave_share import weave_share
from optimizer.workload.values import SECOND


class _Tree:
    """A tree as section 8 has it: queries (slide, inner edge), and its edges in (0, composite slide]."""

    def __init__(self, queries: list[tuple[int, int]], overlap: float) -> None:
        self.queries, self.overlap = queries, overlap
        self.period = math.lcm(*(slide for slide, _ in queries))
        edges: set[int] = set()
        for slide, inner in queries:
            edges.update(range(slide, self.period + 1, slide), range(inner or slide, self.period + 1, slide))
        self.edges = sorted(edges)
        self.bitmap = bytearray(self.period)
        for edge in self.edges:
            self.bitmap[edge % self.period] = 1

    def cost(self) -> float:
        return len(self.edges) / self.period * self.overlap

    def stretched(self, period: int) -> Iterable[int]:
        return (edge + offset for offset in range(0, period, self.period) for edge in self.edges)


class _Planning:
    """Weave Share with some of the optimisations; ``comparisons`` counts tests of one edge (or bit)."""

    def __init__(self, lookup: bool, bitmap: bool, smaller: bool, limit: float) -> None:
        self.lookup, self.bitmap, self.smaller = lookup, bitmap, smaller
        self.deadline = time.process_time() + limit
        self.comparisons = 0

    def run(self, windows: Windows, rate: float) -> list[list[tuple[int, int]]] | None:
        """The trees' queries; None when the time is over. ``rate``: tuples per unit of the windows."""
        trees = {
            number: _Tree([(slide, length % slide)], length / slide)
            for number, (length, slide) in enumerate(zip(windows.ranges.tolist(), windows.slides.tolist(), strict=True))
        }
        table = np.full((len(trees), len(trees)), -np.inf)
        unknown = list(combinations(trees, 2))
        while True:
            for x, y in unknown:
                if time.process_time() > self.deadline:
                    return None
                table[x, y] = self.benefit(trees[x], trees[y], rate)
            best = table.max()
            if best <= 0:
                return sorted(sorted(tree.queries) for tree in trees.values())
            # of equal benefits the first pair: all variants merge alike
            x, y = divmod(int(table.argmax()), len(table))
            other = trees.pop(y)
            trees[x] = _Tree(trees[x].queries + other.queries, trees[x].overlap + other.overlap)
            table[y, :] = table[:, y] = -np.inf
            unknown = [(min(x, z), max(x, z)) for z in trees if z != x] if self.lookup else list(combinations(trees, 2))

    def benefit(self, x: _Tree, y: _Tree, rate: float) -> float:
        period = math.lcm(x.period, y.period)
        x_edges, y_edges = len(x.edges) * (period // x.period), len(y.edges) * (period // y.period)
        # the edges of one tree are looked for among those of the other
        probed, probing = (y, x) if self.smaller and x_edges < y_edges else (x, y)
        common = (self.by_bitmap if self.bitmap else self.by_queries)(probed, probing, period)
        return rate + x.cost() + y.cost() - (x_edges + y_edges - common) / period * (x.overlap + y.overlap)

    def by_queries(self, probed: _Tree, probing: _Tree, period: int) -> int:
        """Example 4: is an edge a multiple of a query's slide, or so after its inner edge?"""
        common = 0
        for edge in probing.stretched(period):
            for slide, inner in probed.queries:
                self.comparisons += 2
                if edge % slide == 0 or (edge - inner) % slide == 0:
                    common += 1
                    break
        return common

    def by_bitmap(self, probed: _Tree, probing: _Tree, period: int) -> int:
        common = 0
        for edge in probing.stretched(period):
            self.comparisons += 1
            common += probed.bitmap[edge % probed.period]
        return common


VARIANTS = {
    "naive": (False, False, False),
    "cost_lookup": (True, False, False),
    "edge_bitmap": (True, True, False),
    "probe_side": (True, True, True),
}


def figure_14(scale: str, report: Report) -> Measurement:
    """Slides up to 12 (a composite slide of at most 27,720): edges are visited one by one, in plain Python."""
    counts = {"tiny": (6, 10), "quick": (10, 20, 40, 80, 160, 250), "full": (10, 20, 40, 80, 160, 250, 500)}[scale]
    limit = {"tiny": 1.0, "quick": 15.0, "full": 120.0}[scale]
    rows: list[Row] = []
    over: set[str] = set()
    for done, count in enumerate(counts):
        report(done, len(counts), f"{count} ACQs")
        windows = generate(count, 12, 0.7, 10)
        row: Row = {"acqs": count}
        plans = []
        for name, (lookup, bitmap, smaller) in VARIANTS.items():
            row[f"{name}_seconds"] = row[f"{name}_comparisons"] = None
            if name in over:
                continue
            planning = _Planning(lookup, bitmap, smaller, limit)
            begin = time.process_time()
            plan = planning.run(windows, 100 * TICK / SECOND)
            if plan is None:
                over.add(name)
                continue
            row[f"{name}_seconds"] = time.process_time() - begin
            row[f"{name}_comparisons"] = planning.comparisons
            plans.append(plan)
        begin = time.process_time()
        row["trees"] = len(weave_share(windows.problem(100, tick=TICK)))
        row["ours_seconds"] = time.process_time() - begin
        row["same_plan"] = all(plan == plans[0] for plan in plans)
        rows.append(row)
    report(len(counts), len(counts), "done")
    finished = [row for row in rows if row["naive_seconds"] is not None]
    last = finished[-1]
    steps = list(VARIANTS)
    measured: dict[str, tuple[Value, Value]] = {}
    for unit in ("seconds", "comparisons"):
        for before, after in zip(steps, steps[1:], strict=False):
            ratio = last[f"{before}_{unit}"] / last[f"{after}_{unit}"]
            measured[f"{unit}: {before} / {after} at {last['acqs']} ACQs"] = (10, ratio)
        ratio = last[f"naive_{unit}"] / last[f"probe_side_{unit}"]
        measured[f"{unit}: naive / all three at {last['acqs']} ACQs"] = (1000, ratio)
    measured[f"seconds: naive / ours at {last['acqs']} ACQs"] = (None, last["naive_seconds"] / last["ours_seconds"])
    measured["same plan in every variant"] = ("yes", "yes" if all(row["same_plan"] for row in rows) else "NO")
    fewer, faster = (last[f"naive_{unit}"] / last[f"probe_side_{unit}"] for unit in ("comparisons", "seconds"))
    summary = (
        f"At {last['acqs']} ACQs (of those tried, the most that the naive search ends in {limit:g} s) all three "
        f"optimisations make {fewer:.3g} times fewer comparisons and are {faster:.3g} times faster; the paper's three "
        "orders of magnitude are at 250 ACQs. What Cost Lookup and the bitmap gain grows with the number of ACQs; the "
        "probe side gains little."
    )
    return Measurement(rows, summary, measured)
