"""A sharing plan for people: one self-contained HTML page.

It is bounded: a plan of thousands of queries shows the dearest trees and the number of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from heddle.pages.folding import Table, fold
from heddle.pages.formats import CostUnit, Saved, bar_width, cut, duration, figure, length, number, saved, window_text
from heddle.pages.mermaid import TREES_SHOWN
from heddle.pages.picture import Picture, picture
from heddle.pages.render import render
from heddle.pages.timeline import Timeline, timeline
from optimizer.errors.diagnostics import count
from optimizer.plan.accounts import Account, accounts, dearest
from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.rhythms import rhythms, summary
from optimizer.workload.attributes import shown_column, shown_expression
from optimizer.workload.values import Window

OPEN_TREES = 4
"""Trees of the page that are not folded."""

QUERIES_SHOWN = 12
"""Rows of a tree's table before the fold."""

QUERIES_FOLDED = 60
"""Rows of a tree's table below the fold."""

REFRESHES_KEPT = 200
"""Queries with a refresh bound in the page, those refreshed most often first."""

OWNERS_SHOWN = 10
OWNERS_FOLDED = 90


# ---------------------------------------------------------------------------------- what the page shows
@dataclass(frozen=True)
class Tile:
    """A figure at the top of a page; ``kind``: a CSS class."""

    label: str
    value: str
    note: str
    kind: str = ""


@dataclass(frozen=True)
class CostBar:
    """The plan's cost, or that of a baseline; ``width`` in percent of the largest."""

    name: str
    meaning: str
    text: str
    width: str
    kind: str


@dataclass(frozen=True)
class OwnerRow:
    """The queries of an owner: costs alone and here as texts, and their part of the plan's."""

    name: str
    queries: int
    alone: str
    here: str
    part: str
    width: str
    saved: Saved


@dataclass(frozen=True)
class RhythmRow:
    """Refresh times of a query with a refresh bound, as texts."""

    query: str
    bound: str
    average: str
    longest: str


@dataclass(frozen=True)
class TreeBar:
    """The cost of a tree; ``alone_width`` that of its queries alone, "" where it is not drawn behind it."""

    anchor: str
    name: str
    queries: int
    width: str
    alone_width: str
    cost: str
    saved: Saved


@dataclass(frozen=True)
class WindowText:
    """A window's range, and everything else about it."""

    range: str
    period: str


@dataclass(frozen=True)
class QueryRow:
    """A query of a tree; ``filter`` and ``groups`` are "" without any."""

    name: str
    owner: str
    window: WindowText
    filter: str
    groups: str
    alone: str
    here: str
    saved: Saved


@dataclass(frozen=True)
class TreeCard:
    """A tree with its timeline and its queries."""

    anchor: str
    name: str
    is_open: bool
    is_chosen: bool
    about: str
    saved: Saved
    timeline: Timeline
    queries: Table[QueryRow]


@dataclass(frozen=True)
class PlanPage:
    """All that the page of a plan shows. ``refreshes``: None if no query has a refresh bound."""

    queries: int
    facts: Sequence[tuple[str, str]]
    tiles: Sequence[Tile]
    unit: str
    cost_model: str
    costs: Sequence[CostBar]
    owners: Table[OwnerRow]
    refreshes: Table[RhythmRow] | None
    refresh_summaries: Sequence[str]
    trees_note: str
    tree_bars: Sequence[TreeBar]
    picture: Picture | None
    trees: Sequence[TreeCard]
    left_out: str


# ---------------------------------------------------------------------------------------------- page
def page(plan: SharingPlan, facts: Mapping[str, str] | None = None, in_menu: bool = False, chosen: str = "") -> str:
    """The plan as one HTML page without scripts or anything from elsewhere, light and dark.

    ``facts``: more lines for its head, such as the plan's version. ``in_menu``: whether it is one of the pages of the
    server, and has their menu above it. ``chosen``: a tree that is shown open, however little it costs.
    """
    return render("plan.html.j2", plan=plan_page(plan, facts or {}, chosen, in_menu), in_menu=in_menu)


def no_plan() -> str:
    """The page if no plan is stored yet."""
    return render("no_plan.html.j2")


def plan_page(plan: SharingPlan, facts: Mapping[str, str], chosen: str = "", links: bool = False) -> PlanPage:
    """Content of a plan's page, counted and put into words."""
    unit = CostUnit.of(plan)
    books = accounts(plan)
    shown = _shown(plan, chosen)
    trees_note, tree_bars = _tree_bars(plan, books, shown, unit)
    return PlanPage(
        queries=len(plan.workload.queries),
        facts=_facts(plan, facts),
        tiles=_tiles(plan, unit),
        unit=unit.name,
        cost_model=plan.cost_model,
        costs=_costs(plan, unit),
        owners=_owners(plan, books, unit),
        refreshes=_refreshes(plan),
        refresh_summaries=[summary(schedule) for schedule in plan.schedules],
        trees_note=trees_note,
        tree_bars=tree_bars,
        picture=picture(plan, books, {bar.name: bar.anchor for bar in tree_bars}, unit, links),
        trees=_trees(plan, books, shown, unit, chosen),
        left_out=_left_out(plan, shown, unit),
    )


def _facts(plan: SharingPlan, facts: Mapping[str, str]) -> list[tuple[str, str]]:
    rates = ", ".join(f"{name} {figure(float(rate))}/s" for name, rate in plan.rates[:6])
    rates += f", … {len(plan.rates) - 6} more" if len(plan.rates) > 6 else ""
    every = {"algorithm": plan.algorithm, "cost model": plan.cost_model, "tuples": rates or "none", **facts}
    return [(name, value) for name, value in every.items() if value]


def _tiles(plan: SharingPlan, unit: CostUnit) -> list[Tile]:
    def saving(name: str, cost: Fraction) -> Tile:
        if not plan.cost or not cost:
            return Tile(f"against {name}", "0 %", "nothing costs anything")
        note = f"which costs {float(cost / plan.cost):.3g} times this" if cost != plan.cost else "which costs the same"
        return Tile(f"against {name}", saved(cost, plan.cost).text, note, "good" if plan.cost < cost else "")

    queries, trees = len(plan.workload.queries), len(plan.trees)
    a_tree = "no query" if not trees else f"{queries / trees:.3g} queries each" if queries > trees else "one query each"
    return [
        Tile("queries", number(queries), f"over {count(len(plan.rates), 'stream')}"),
        Tile("execution trees", number(trees), a_tree),
        Tile("cost", _bound(plan, "plan") + unit.text(plan.cost), unit.name),
        saving("No Share", plan.no_share),
        saving("Shared", plan.shared),
    ]


def _bound(plan: SharingPlan, name: str) -> str:
    """``≤ `` before a cost if edges could not all be counted exactly: of a tree, ``shared``, or ``plan`` (any tree)."""
    if name == "plan":
        return "≤ " if set(plan.upper_bounds) - {"shared", "weave_share"} else ""
    return "≤ " if name in plan.upper_bounds else ""


def _costs(plan: SharingPlan, unit: CostUnit) -> list[CostBar]:
    proven = "proven to be the cheapest" if plan.optimal else "each query where it costs least"
    costs = [("This plan", plan.cost, proven, _bound(plan, "plan"))]
    if plan.weave_share is not None and plan.algorithm != "weave-share":
        costs.append(("Weave Share", plan.weave_share, "the published greedy search", ""))
    costs.append(("No Share", plan.no_share, "every query in a tree of its own", ""))
    costs.append(("Shared", plan.shared, "one tree for each stream", _bound(plan, "shared")))
    largest = float(max(cost for _, cost, _, _ in costs))
    return [
        CostBar(name, meaning, bound + unit.text(cost), bar_width(float(cost), largest), "base" if place else "own")
        for place, (name, cost, meaning, bound) in enumerate(costs)
    ]


def _owners(plan: SharingPlan, books: Sequence[Account], unit: CostUnit) -> Table[OwnerRow]:
    by_owner: dict[str, list[Account]] = {}
    for account in books:
        by_owner.setdefault(account.query.owner, []).append(account)
    ranked = sorted(by_owner.items(), key=lambda item: (-sum(account.here for account in item[1]), item[0]))
    rows = []
    for name, own in ranked[: OWNERS_SHOWN + OWNERS_FOLDED]:
        alone, shared = sum((a.alone for a in own), Fraction(0)), sum((a.here for a in own), Fraction(0))
        part = f"{float(shared / plan.cost):.0%}" if plan.cost else "0%"
        width = bar_width(float(shared), float(plan.cost))
        rows.append(OwnerRow(name, len(own), unit.text(alone), unit.text(shared), part, width, saved(alone, shared)))
    columns = [("owner", 24), ("queries", 12), ("each alone", 17), ("here", 14), ("of the plan", 20), ("saved", 13)]
    return Table("owners", columns, fold(rows, OWNERS_SHOWN, len(ranked), "owner"))


def _refreshes(plan: SharingPlan) -> Table[RhythmRow] | None:
    """Refreshes of queries with a refresh bound; None without any."""
    every = [rhythm for schedule in plan.schedules for rhythm in rhythms(schedule)]
    if not every:
        return None
    rows = [
        RhythmRow(rhythm.query, duration(rhythm.bound), duration(round(rhythm.average)), duration(rhythm.longest))
        for rhythm in sorted(every, key=lambda rhythm: (rhythm.average, rhythm.query))[:REFRESHES_KEPT]
    ]
    columns = [("query", 49), ("at most asked", 17), ("on average", 17), ("longest", 17)]
    return Table("owners", columns, fold(rows, OWNERS_SHOWN, len(every), "query"))


# --------------------------------------------------------------------------------------------- trees
Priced = tuple[ExecutionTree, Fraction]
"""A tree and its cost per second."""


def _shown(plan: SharingPlan, chosen: str) -> list[Priced]:
    """The trees that the page shows, in the plan's order: the dearest, and the one that was chosen."""
    known = {tree.id for tree, _ in dearest(plan, TREES_SHOWN)} | {chosen}
    return [priced for priced in zip(plan.trees, plan.tree_costs, strict=True) if priced[0].id in known]


def _tree_bars(
    plan: SharingPlan, books: Sequence[Account], shown: Sequence[Priced], unit: CostUnit
) -> tuple[str, list[TreeBar]]:
    """Description of the bars, and the bars of the trees shown, the dearest first."""
    alone = {tree.id: Fraction(0) for tree in plan.trees}
    for account in books:
        alone[account.tree] += account.alone
    places = {tree.id: place for place, (tree, _) in enumerate(shown)}
    largest = max([float(cost) for _, cost in shown], default=0.0)
    before = max([float(alone[tree.id]) for tree, _ in shown], default=0.0)
    # beside savings of more than nine tenths the costs themselves would not be seen
    compared = before < 10 * largest
    largest = max(largest, before) if compared else largest
    bars = [
        TreeBar(
            anchor=f"t{places[tree.id]}",
            name=tree.id,
            queries=len(tree.queries),
            width=bar_width(float(cost), largest),
            alone_width=bar_width(float(alone[tree.id]), largest) if compared else "",
            cost=_bound(plan, tree.id) + unit.text(cost),
            saved=saved(alone[tree.id], cost),
        )
        for tree, cost in sorted(shown, key=lambda pair: -pair[1])
    ]
    return "cost of each, in front of that of its queries alone" if compared else "cost of each", bars


def _left_out(plan: SharingPlan, shown: Sequence[Priced], unit: CostUnit) -> str:
    trees = len(plan.trees) - len(shown)
    if not trees:
        return ""
    queries = len(plan.workload.queries) - sum(len(tree.queries) for tree, _ in shown)
    cost = plan.cost - sum(cost for _, cost in shown)
    return (
        f"Left out: {count(trees, 'tree')} that cost less, with {count(queries, 'query')}; together "
        f"{unit.text(cost)} {unit.name}."
    )


def _trees(
    plan: SharingPlan, books: Sequence[Account], shown: Sequence[Priced], unit: CostUnit, chosen: str
) -> list[TreeCard]:
    by_tree: dict[str, list[Account]] = {}
    for account in books:
        by_tree.setdefault(account.tree, []).append(account)
    cards = []
    for place, (tree, cost) in enumerate(shown):
        own = by_tree[tree.id]
        about = [
            count(len(tree.queries), "query"),
            f"composite slide {length(tree.composite_slide, tree.per)}",
            _edge_count(tree),
            f"{_bound(plan, tree.id)}{unit.text(cost)} {unit.name}",
        ]
        cards.append(
            TreeCard(
                anchor=f"t{place}",
                name=tree.id,
                is_open=tree.id == chosen or place < OPEN_TREES,
                is_chosen=tree.id == chosen,
                about=" · ".join(about),
                saved=saved(sum((account.alone for account in own), Fraction(0)), cost),
                timeline=timeline(tree),
                queries=_queries(own, unit),
            )
        )
    return cards


def _edge_count(tree: ExecutionTree) -> str:
    if tree.edges is None:
        return f"at most {figure(float(tree.edge_rate))} edges a second"
    shown = number(tree.edges) if tree.edges < 10**9 else f"10^{math.floor(math.log10(tree.edges))}"
    return f"{shown} {'edge' if tree.edges == 1 else 'edges'} in it"


def _queries(books: Sequence[Account], unit: CostUnit) -> Table[QueryRow]:
    rows = [
        QueryRow(
            name=account.query.name,
            owner=account.query.owner,
            window=_window(account.query.window),
            filter="" if account.query.filter is None else shown_expression(account.query.filter),
            groups=", ".join(shown_column(name) for name, _ in account.query.group_by),
            alone=unit.text(account.alone),
            here=unit.text(account.here),
            saved=saved(account.alone, account.here),
        )
        for account in books[: QUERIES_SHOWN + QUERIES_FOLDED]
    ]
    columns = [("query", 27), ("window", 19), ("filter and groups", 27), ("alone", 9), ("here", 9), ("saved", 9)]
    return Table("queries", columns, fold(rows, QUERIES_SHOWN, len(books), "query"))


def _window(window: Window) -> WindowText:
    text, about = window_text(window)
    if window.ago and window.is_regular:
        about += f", ending {duration(window.ago)} ago"
    if window.per:
        about += f", per {cut(', '.join(map(shown_column, window.per)), 40)}"
    return WindowText(text, about)
