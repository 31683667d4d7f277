"""A plan as one picture: its streams, the trees that read them, and their queries; widths are costs. SVG coordinates.

A plan of many queries is drawn by its trees, each with the number of its queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from urllib.parse import quote

from heddle.pages.formats import CostUnit, count, cut
from optimizer.plan.accounts import Account, dearest
from optimizer.plan.definition import SharingPlan

TREES_DRAWN = 14
"""Trees of a picture, the dearest; the others are drawn as one."""

QUERIES_DRAWN = 30
"""Queries of a plan up to which each is drawn by itself."""

WIDTH, COST, SLOT = 1040, 240, 19
"""Width of the picture; height of the plan's cost; height that a label needs: units of the SVG."""

COLUMNS = (150, 470, 800)
"""Left edges of the bars of streams, trees and queries."""

BAR, GAP = 12, 4
"""Width of a bar, and its distance to the next."""


@dataclass(frozen=True)
class Node:
    """A bar with its label; ``address``: the target of its link ("": none); ``title``: its text when pointed at."""

    kind: str
    x: str
    y: str
    height: str
    label_x: str
    label_y: str
    anchor: str
    label: str
    note: str
    address: str
    title: str


@dataclass(frozen=True)
class Ribbon:
    """Connection of one bar to another: a curve as wide as its cost."""

    path: str
    width: str


@dataclass(frozen=True)
class Picture:
    """The picture of a plan; ``label``: for those who do not see it."""

    label: str
    height: int
    nodes: Sequence[Node]
    ribbons: Sequence[Ribbon]
    width: int = WIDTH
    bar: int = BAR


@dataclass(frozen=True)
class _Part:
    """A bar before it has a place: its cost, and by whom it is fed (its number in the column before)."""

    label: str
    note: str
    address: str
    cost: Fraction
    source: int = 0


def picture(
    plan: SharingPlan, books: Sequence[Account], anchors: Mapping[str, str], unit: CostUnit, links: bool
) -> Picture | None:
    """The picture of a plan that costs anything. ``anchors``: of trees on the page; ``links``: whether queries have
    pages."""
    if not plan.cost:
        return None
    drawn = dearest(plan, TREES_DRAWN)
    own = {tree.id for tree, _ in drawn}
    undrawn = [priced for priced in zip(plan.trees, plan.tree_costs, strict=True) if priced[0].id not in own]
    accounts: dict[str, list[Account]] = defaultdict(list)
    for account in books:
        accounts[account.tree].append(account)
    by_query = len(plan.workload.queries) <= QUERIES_DRAWN
    streams: list[_Part] = []
    trees: list[_Part] = []
    queries: list[_Part] = []
    for stream in dict.fromkeys(tree.stream for tree in plan.trees):
        total = Fraction(0)
        for tree, cost in (priced for priced in drawn if priced[0].stream == stream):
            address = f"#{anchors[tree.id]}" if tree.id in anchors else ""
            trees.append(_Part(tree.id, unit.text(cost), address, cost, len(streams)))
            queries += _queries(accounts[tree.id], len(trees) - 1, trees[-1], by_query, unit, links)
            total += cost
        if more_trees := [priced for priced in undrawn if priced[0].stream == stream]:
            cost = sum((cost for _, cost in more_trees), Fraction(0))
            trees.append(_Part(count(len(more_trees), "more tree"), unit.text(cost), "", cost, len(streams)))
            size = sum(len(tree.queries) for tree, _ in more_trees)
            queries.append(_Part(count(size, "query"), "", "", cost, len(trees) - 1))
            total += cost
        streams.append(_Part(stream, unit.text(total), "", total))
    return _drawn(plan, (streams, trees, queries), unit)


def _queries(
    accounts: Sequence[Account], tree: int, part: _Part, by_query: bool, unit: CostUnit, links: bool
) -> list[_Part]:
    """The queries of a tree, each by itself or together."""
    if not by_query:
        return [_Part(count(len(accounts), "query"), "", part.address, part.cost, tree)]
    return [
        _Part(
            account.query.name,
            unit.text(account.here),
            f"query?name={quote(account.query.name, safe='')}" if links else "",
            max(account.here, Fraction(0)),
            tree,
        )
        for account in accounts
    ]


def _drawn(plan: SharingPlan, columns: Sequence[Sequence[_Part]], unit: CostUnit) -> Picture:
    scale = COST / float(plan.cost)
    heights = [[max(float(part.cost) * scale, 1.0) for part in column] for column in columns]
    needed = [sum(max(height, SLOT) + GAP for height in column) for column in heights]
    total = max(needed)
    nodes, ribbons = [], []
    middles: list[list[float]] = []
    for number, (column, sizes) in enumerate(zip(columns, heights, strict=True)):
        # columns that need less are spread over the height of the one that needs most
        gap = (total - needed[number]) / (len(column) + 1)
        y, own = gap, []
        for part, size in zip(column, sizes, strict=True):
            slot = max(size, SLOT) + GAP
            own.append(y + slot / 2)
            nodes.append(_node(part, number, y + slot / 2, size, unit))
            y += slot + gap
        middles.append(own)
    for number in (1, 2):
        ribbons += _ribbons(columns[number], heights[number], heights[number - 1], middles, number)
    label = f"{count(len(columns[0]), 'stream')}, {count(len(plan.trees), 'tree')}, "
    label += f"{count(len(plan.workload.queries), 'query')}; widths are costs"
    return Picture(label, round(total) + 2, nodes, ribbons)


def _node(part: _Part, column: int, middle: float, size: float, unit: CostUnit) -> Node:
    is_first = column == 0
    x = COLUMNS[column]
    return Node(
        ("stream", "tree", "leaf")[column],
        str(x),
        f"{middle - size / 2:.1f}",
        f"{size:.1f}",
        str(x - 8 if is_first else x + BAR + 8),
        f"{middle + 4:.1f}",
        "end" if is_first else "start",
        cut(part.label, 18 if is_first else 26),
        part.note,
        part.address,
        f"{part.label}: {unit.text(part.cost)} {unit.name}",
    )


def _ribbons(
    parts: Sequence[_Part],
    sizes: Sequence[float],
    before: Sequence[float],
    middles: Sequence[Sequence[float]],
    column: int,
) -> list[Ribbon]:
    """Ribbons that feed the parts of a column, below one another at the bar that they come from."""
    begin, end = COLUMNS[column - 1] + BAR, COLUMNS[column]
    used = [middle - size / 2 for middle, size in zip(middles[column - 1], before, strict=True)]
    fed = [0.0] * len(before)
    for part, size in zip(parts, sizes, strict=True):
        fed[part.source] += size
    ribbons = []
    for part, size, middle in zip(parts, sizes, middles[column], strict=True):
        # smallest bars are drawn larger than they are: together they may not leave the bar that feeds them
        width = size * min(1.0, before[part.source] / fed[part.source])
        start = used[part.source] + width / 2
        used[part.source] += width
        half = (begin + end) / 2
        path = f"M{begin} {start:.1f}C{half:.0f} {start:.1f} {half:.0f} {middle:.1f} {end} {middle:.1f}"
        ribbons.append(Ribbon(path, f"{max(width, 0.5):.1f}"))
    return ribbons
