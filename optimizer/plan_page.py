"""A sharing plan for people: one self-contained HTML page, and a Mermaid flowchart.

Both are bounded: a plan of thousands of queries gives the dearest trees and says how many are left out. Names,
owners and filters are users' text: everything is escaped, and the page loads nothing and runs nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from optimizer.cost import SearchProblem
from optimizer.markup import LOGO, bar, count, cut, document, duration, escape, figure, folded_table
from optimizer.plan import ExecutionTree, SharingPlan
from optimizer.query import ACQ, SECOND, Call, Column, Expression, Literal, Window
from optimizer.refreshes import rhythms, summary
from optimizer.window import progressions

TREES_SHOWN = 24
"""Trees drawn on the page and in the flowchart, of each stream: those that cost most."""

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
NAMES_SHOWN = 8

LANES_SHOWN = 10
"""Distinct windows drawn of each tree."""

FRAGMENTS_SHOWN = 96
"""Fragments on one timeline, about: of longer composite slides the beginning is drawn."""

FEWEST_FRAGMENTS = 12
"""Short composite slides are repeated until so many fragments are seen."""


# -------------------------------------------------------------------------------------------- costs
@dataclass(frozen=True)
class Account:
    """What one query costs per second, in the plan's unit: in a tree of its own, and here.

    Here a query pays for the fragments that its own windows combine and for its answers; what is left of its
    tree's cost, one pass over the stream above all, the tree's queries pay in equal parts. So the parts add up to
    the plan's cost (what it would cost less without one query is :func:`optimizer.plan.explain`'s).
    """

    query: ACQ
    tree: str
    alone: Fraction
    here: Fraction


def accounts(plan: SharingPlan) -> list[Account]:
    """The account of every query, by tree. The sum of ``here`` is the plan's cost, of ``alone`` No Share's."""
    known: dict[tuple[str, Window], Fraction] = {}
    found = []
    for tree, cost in zip(plan.trees, plan.tree_costs, strict=True):
        rate = plan.rate(tree.stream)
        own = [tree.edge_rate * plan.model.weight(query) + plan.model.constant(query) for query in tree.queries]
        rest = (cost - sum(own)) / len(own)
        for query, part in zip(tree.queries, own, strict=True):
            if (tree.stream, query.window) not in known:
                known[tree.stream, query.window] = SearchProblem.of([query], rate, plan.model).tree_cost([0])
            found.append(Account(query, tree.id, known[tree.stream, query.window], part + rest))
    return found


@dataclass(frozen=True)
class _Unit:
    """Costs of one plan as texts: operations/s, or CPU time of a fitting size."""

    name: str
    scale: float = 1.0

    @classmethod
    def of(cls, plan: SharingPlan) -> _Unit:
        if plan.cost_model == "paper":
            return cls("operations/s")
        largest = float(max(plan.cost, plan.no_share, plan.shared))
        for name, scale in (("CPU-s/s", 1.0), ("CPU-ms/s", 1e3), ("CPU-µs/s", 1e6)):
            if largest * scale >= 1:
                return cls(name, scale)
        return cls("CPU-ns/s", 1e9)

    def text(self, cost: Fraction | float) -> str:
        return figure(float(cost) * self.scale)


def _saved(before: Fraction | float, after: Fraction | float) -> str:
    """The part of a cost that is saved: ``−56 %``."""
    if not before:
        return "0 %"
    percent = float(1 - Fraction(after) / Fraction(before)) * 100
    sign = "−" if percent > 0 else "+"
    # neither a little nor almost all is rounded away
    if percent == 100 or 9.95 <= abs(percent) < 99 or percent < -99:
        return f"{sign}{abs(percent):,.0f} %"
    if percent > 99.9:
        return "over −99.9 %"
    return f"{sign}{abs(percent):.1f} %" if abs(percent) >= 0.05 else "0 %"


# ---------------------------------------------------------------------------------------- texts of values
def _length(units: int, per: tuple[str, ...] | None) -> str:
    """A length of windows that are counted so: a span of time, or rows."""
    if per is None:
        return duration(units)
    return count(units, "row") if units < 10**12 else f"10^{math.floor(math.log10(units))} rows"


def _window(window: Window) -> str:
    most = "at most " if window.at_most else ""
    about = f"{_length(window.range, window.per)} <small>every {most}{_length(window.period, window.per)}"
    if window.ago:
        about += f", ending {duration(window.ago)} ago"
    if window.per:
        about += f", per {escape(cut(', '.join(window.per), 40))}"
    return about + "</small>"


_INFIX = {"=", "!=", "<", "<=", ">", ">=", "and", "or", "like", "+", "-", "*", "/"}


def _sql(value: Expression | None, nested: bool = False) -> str:
    """An expression as SQL for people (not to be parsed again)."""
    if isinstance(value, Column):
        return value.name
    if isinstance(value, Literal):
        if value.value is None or isinstance(value.value, bool):
            return "null" if value.value is None else str(value.value).lower()
        return f"'{value.value}'" if value.type.name in ("string", "date") else str(value.value)
    if not isinstance(value, Call):
        return ""
    parts = [_sql(part, True) for part in value.arguments]
    if value.function in _INFIX and len(parts) > 1:
        word = value.function.upper() if value.function.isalpha() else value.function
        text = f" {word} ".join(parts)
        return f"({text})" if nested else text
    if value.function == "in":
        return f"{parts[0]} IN ({', '.join(parts[1:])})"
    if value.function == "is_null":
        return f"{parts[0]} IS NULL"
    if value.function == "not":
        return f"NOT {parts[0]}"
    return f"-{parts[0]}" if value.function == "neg" else f"{value.function}({', '.join(parts)})"


def _dearest(plan: SharingPlan, most: int) -> list[tuple[ExecutionTree, Fraction]]:
    """The trees that cost most, in the plan's order."""
    priced = list(zip(plan.trees, plan.tree_costs, strict=True))
    chosen = sorted(range(len(priced)), key=lambda number: (-priced[number][1], number))[:most]
    return [priced[number] for number in sorted(chosen)]


# ------------------------------------------------------------------------------------------- Mermaid
def mermaid(plan: SharingPlan) -> str:
    """The plan as a Mermaid flowchart: streams, their trees (the dearest), and the queries of each tree."""
    unit = _Unit.of(plan)
    lines = ["flowchart LR"]
    shown = Counter[str]()
    numbers = {stream: number for number, (stream, _) in enumerate(plan.rates)}
    # a flowchart of more than some hundred nodes is refused by its renderers
    chosen = {tree.id for tree, _ in _dearest(plan, 4 * TREES_SHOWN)}
    for stream, rate in plan.rates:
        lines.append(f'  s{numbers[stream]}(["{_label(stream)}<br/>{_label(figure(float(rate)))} tuples/s"])')
    for number, (tree, cost) in enumerate(zip(plan.trees, plan.tree_costs, strict=True)):
        if tree.id not in chosen or shown[tree.stream] == TREES_SHOWN:
            continue
        shown[tree.stream] += 1
        about = f"{count(len(tree.queries), 'query')}<br/>{_label(f'{unit.text(cost)} {unit.name}')}"
        names = [_label(query.name) for query in tree.queries[:NAMES_SHOWN]]
        if (hidden := len(tree.queries) - len(names)) > 0:
            names.append(f"... {hidden} more")
        lines.append(f'  s{numbers[tree.stream]} --> t{number}["{_label(tree.id)}<br/>{about}"]')
        lines.append(f'  t{number} --> q{number}["{"<br/>".join(names)}"]')
    for stream, _ in plan.rates:
        if hidden := sum(tree.stream == stream for tree in plan.trees) - shown[stream]:
            lines.append(f'  s{numbers[stream]} --> m{numbers[stream]}["... {count(hidden, "more tree")}"]')
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Text inside a quoted Mermaid label: what could be markup goes by its code point."""
    return re.sub(r"[^\w .,:/+()-]", lambda found: f"#{ord(found[0])};", text)


# ---------------------------------------------------------------------------------------------- page
def page(plan: SharingPlan, facts: Mapping[str, str] | None = None, menu: str = "") -> str:
    """The plan as one HTML page without scripts or anything from elsewhere, light and dark.

    ``facts``: more lines for its head, such as the plan's version. ``menu``: markup above it, where it is one of
    several pages.
    """
    unit = _Unit.of(plan)
    books = accounts(plan)
    body = [
        menu,
        _head(plan, facts or {}),
        _tiles(plan, unit),
        '<div class="pair">',
        _baselines(plan, unit),
        _owners(plan, books, unit),
        "</div>",
        _refreshes(plan),
        _tree_bars(plan, books, unit),
        _trees(plan, books, unit),
        _footnotes(plan),
    ]
    return document(f"Sharing plan: {count(len(plan.workload.queries), 'query')}", body)


def _head(plan: SharingPlan, facts: Mapping[str, str]) -> str:
    rates = ", ".join(f"{name} {figure(float(rate))}/s" for name, rate in plan.rates[:6])
    rates += f", … {len(plan.rates) - 6} more" if len(plan.rates) > 6 else ""
    told = {"algorithm": plan.algorithm, "cost model": plan.cost_model, "tuples": rates or "none", **facts}
    chips = "".join(
        f"<span><i>{escape(name)}</i> {escape(cut(value, 600))}</span>" for name, value in told.items() if value
    )
    return f'<header>{LOGO}<div><h1>Sharing plan</h1><p class="chips">{chips}</p></div></header>'


def _tiles(plan: SharingPlan, unit: _Unit) -> str:
    def tile(label: str, value: str, note: str, kind: str = "") -> str:
        return (
            f'<div class="tile {kind}"><p>{escape(label)}</p><strong>{escape(value)}</strong>'
            f"<small>{escape(note)}</small></div>"
        )

    def saving(name: str, cost: Fraction) -> str:
        if not plan.cost or not cost:
            return tile(f"against {name}", "0 %", "nothing costs anything")
        note = f"which costs {float(cost / plan.cost):.3g} times this" if cost != plan.cost else "which costs the same"
        return tile(f"against {name}", _saved(cost, plan.cost), note, "good" if plan.cost < cost else "")

    queries, trees = len(plan.workload.queries), len(plan.trees)
    a_tree = "no query" if not trees else f"{queries / trees:.3g} queries each" if queries > trees else "one query each"
    return (
        '<section class="tiles">'
        + tile("queries", f"{queries:,}", f"over {count(len(plan.rates), 'stream')}")
        + tile("execution trees", f"{trees:,}", a_tree)
        + tile("cost", _bound(plan, "plan") + unit.text(plan.cost), unit.name)
        + saving("No Share", plan.no_share)
        + saving("Shared", plan.shared)
        + "</section>"
    )


def _bound(plan: SharingPlan, name: str) -> str:
    """``≤ `` before a cost if edges could not all be counted exactly: of a tree, ``shared``, or ``plan`` (any tree)."""
    if name == "plan":
        return "≤ " if set(plan.upper_bounds) - {"shared", "weave_share"} else ""
    return "≤ " if name in plan.upper_bounds else ""


def _baselines(plan: SharingPlan, unit: _Unit) -> str:
    proven = "proven to be the cheapest" if plan.optimal else "each query where it costs least"
    costs = [("This plan", plan.cost, proven, _bound(plan, "plan"))]
    if plan.weave_share is not None and plan.algorithm != "weave-share":
        costs.append(("Weave Share", plan.weave_share, "the published greedy search", ""))
    costs.append(("No Share", plan.no_share, "every query in a tree of its own", ""))
    costs.append(("Shared", plan.shared, "one tree for each stream", _bound(plan, "shared")))
    largest = float(max(cost for _, cost, _, _ in costs))
    rows = [
        f'<div class="cost"><div><b>{name}</b> <small>{meaning}</small><em>{bound}{unit.text(cost)}</em></div>'
        f'<div class="track">{bar(float(cost), largest, "base" if number else "own")}</div></div>'
        for number, (name, cost, meaning, bound) in enumerate(costs)
    ]
    return f'<section class="card"><h2>Cost <small>{unit.name}</small></h2>{"".join(rows)}</section>'


def _owners(plan: SharingPlan, books: Sequence[Account], unit: _Unit) -> str:
    held: dict[str, list[Account]] = {}
    for account in books:
        held.setdefault(account.query.owner, []).append(account)
    ranked = sorted(held.items(), key=lambda item: (-sum(account.here for account in item[1]), item[0]))
    rows = []
    for name, own in ranked[: OWNERS_SHOWN + OWNERS_FOLDED]:
        alone, here = sum((a.alone for a in own), Fraction(0)), sum((a.here for a in own), Fraction(0))
        rows.append(
            f"<tr><td>{escape(cut(name, 40)) or '<i>no owner</i>'}</td><td>{len(own):,}</td>"
            f"<td>{unit.text(alone)}</td><td>{unit.text(here)}</td>"
            f'<td><div class="part"><div class="track">{bar(float(here), float(plan.cost), "own")}</div>'
            f"{_percent(here, plan.cost)}</div></td>{_saving_cell(alone, here)}</tr>"
        )
    head = "<th>owner</th><th>queries</th><th>each alone</th><th>here</th><th>of the plan</th><th>saved</th>"
    widths = (24, 12, 17, 14, 20, 13)
    table = folded_table("owners", widths, head, rows, OWNERS_SHOWN, len(ranked), "owner")
    return f'<section class="card"><h2>Who saves</h2>{table}</section>'


def _refreshes(plan: SharingPlan) -> str:
    """When queries with a refresh bound are answered; nothing without any."""
    found = [one for schedule in plan.schedules for one in rhythms(schedule)]
    if not found:
        return ""
    rows = [
        f"<tr><td>{escape(cut(one.query, 48))}</td><td>{duration(one.bound)}</td>"
        f"<td>{duration(round(one.average))}</td><td>{duration(one.longest)}</td></tr>"
        for one in sorted(found, key=lambda one: (one.average, one.query))[:REFRESHES_KEPT]
    ]
    head = "<th>query</th><th>at most asked</th><th>on average</th><th>longest</th>"
    table = folded_table("owners", (49, 17, 17, 17), head, rows, OWNERS_SHOWN, len(found), "query")
    told = "".join(f'<p class="quiet">{escape(summary(schedule))}.</p>' for schedule in plan.schedules)
    return f'<section class="card"><h2>Refreshes <small>of SLIDE AT MOST</small></h2>{told}{table}</section>'


def _saving_cell(alone: Fraction, here: Fraction) -> str:
    return f'<td class="{"good" if here <= alone else "bad"}">{_saved(alone, here)}</td>'


def _percent(part: Fraction, whole: Fraction) -> str:
    return f"{float(part / whole):.0%}" if whole else "0%"


def _tree_bars(plan: SharingPlan, books: Sequence[Account], unit: _Unit) -> str:
    alone = {tree.id: Fraction(0) for tree in plan.trees}
    for account in books:
        alone[account.tree] += account.alone
    shown = _dearest(plan, TREES_SHOWN)
    places = {tree.id: number for number, (tree, _) in enumerate(shown)}
    largest = max([float(cost) for _, cost in shown], default=0.0)
    before = max([float(alone[tree.id]) for tree, _ in shown], default=0.0)
    # beside savings of more than nine tenths the costs themselves would not be seen
    compared = before < 10 * largest
    largest = max(largest, before) if compared else largest
    rows = []
    for tree, cost in sorted(shown, key=lambda pair: -pair[1]):
        behind = bar(float(alone[tree.id]), largest, "base") if compared else ""
        rows.append(
            f'<a class="tree" href="#t{places[tree.id]}"><span>{escape(cut(tree.id, 28))}</span>'
            f"<small>{count(len(tree.queries), 'query')}</small>"
            f'<div class="track">{behind}{bar(float(cost), largest, "own")}</div>'
            f"<em>{_bound(plan, tree.id)}{unit.text(cost)}</em><small>{_saved(alone[tree.id], cost)}</small></a>"
        )
    told = "cost of each, in front of that of its queries alone" if compared else "cost of each"
    return (
        f'<section class="card"><h2>Execution trees <small>{told}, {unit.name}</small></h2>'
        f"{''.join(rows)}{_left_out(plan, shown, unit)}</section>"
    )


def _left_out(plan: SharingPlan, shown: Sequence[tuple[ExecutionTree, Fraction]], unit: _Unit) -> str:
    trees = len(plan.trees) - len(shown)
    if not trees:
        return ""
    queries = len(plan.workload.queries) - sum(len(tree.queries) for tree, _ in shown)
    cost = plan.cost - sum(cost for _, cost in shown)
    return (
        f'<p class="quiet">Left out: {count(trees, "tree")} that cost less, with '
        f"{count(queries, 'query')}; together {unit.text(cost)} {unit.name}.</p>"
    )


def _trees(plan: SharingPlan, books: Sequence[Account], unit: _Unit) -> str:
    held: dict[str, list[Account]] = {}
    for account in books:
        held.setdefault(account.tree, []).append(account)
    shown = _dearest(plan, TREES_SHOWN)
    found = []
    for number, (tree, cost) in enumerate(shown):
        mine = held[tree.id]
        alone = sum(account.alone for account in mine)
        about = [
            count(len(tree.queries), "query"),
            f"composite slide {_length(tree.composite_slide, tree.per)}",
            _edge_count(tree),
            f"{_bound(plan, tree.id)}{unit.text(cost)} {unit.name}",
        ]
        opened = " open" if number < OPEN_TREES else ""
        found.append(
            f'<details class="card" id="t{number}"{opened}><summary><h3>{escape(cut(tree.id, 60))}</h3>'
            f'<span>{" · ".join(about)}</span><b class="good">{_saved(alone, cost)}</b></summary>'
            f'<div class="wide">{timeline(tree)}</div>{_queries(mine, unit)}</details>'
        )
    legend = (
        '<p class="legend"><span class="key start"></span> windows start <span class="key end"></span> windows end '
        '<span class="key window"></span> one window <span class="key fragment"></span> fragments that all the '
        "tree’s queries share <span>(left: range / slide × queries)</span></p>"
    )
    return f"<section><h2>Edges and queries</h2>{legend}{''.join(found)}{_left_out(plan, shown, unit)}</section>"


def _edge_count(tree: ExecutionTree) -> str:
    if tree.edges is None:
        return f"at most {figure(float(tree.edge_rate))} edges a second"
    shown = f"{tree.edges:,}" if tree.edges < 10**9 else f"10^{math.floor(math.log10(tree.edges))}"
    return f"{shown} {'edge' if tree.edges == 1 else 'edges'} in it"


def _queries(mine: Sequence[Account], unit: _Unit) -> str:
    head = "<th>query</th><th>window</th><th>filter and groups</th><th>alone</th><th>here</th><th>saved</th>"
    rows = [_row(account, unit) for account in mine[: QUERIES_SHOWN + QUERIES_FOLDED]]
    return folded_table("queries", (27, 19, 27, 9, 9, 9), head, rows, QUERIES_SHOWN, len(mine), "query")


def _row(account: Account, unit: _Unit) -> str:
    query = account.query
    owner = f"<small>{escape(cut(query.owner, 40))}</small>" if query.owner else ""
    about = []
    if query.filter is not None:
        text = _sql(query.filter)
        about.append(f'<code title="{escape(cut(text, 600))}">{escape(cut(text, 56))}</code>')
    if query.group_by:
        about.append("by " + escape(cut(", ".join(name for name, _ in query.group_by), 56)))
    return (
        f"<tr><td>{escape(cut(query.name, 60))}{owner}</td>"
        f"<td>{_window(query.window)}</td>"
        f"<td>{'<br>'.join(about) or '<small>everything</small>'}</td><td>{unit.text(account.alone)}</td>"
        f"<td>{unit.text(account.here)}</td>{_saving_cell(account.alone, account.here)}</tr>"
    )


def _footnotes(plan: SharingPlan) -> str:
    meaning = (
        "Costs are operations per second as the Weave Share paper counts them: tuples read by each tree, and fragments "
        "combined into answers."
        if plan.cost_model == "paper"
        else "Costs are CPU time per second of stream, from measured coefficients."
    )
    return (
        f"<footer><p>{meaning} <b>Alone</b>: in a tree of its own. <b>Here</b>: the fragments that the query’s own "
        "windows combine, its answers, and an equal part of the rest of its tree’s cost, so that the parts add up. A "
        "query can pay more for finer cuts than it saves and the plan still be cheaper for it. Windows start on "
        "multiples of their slide since 1970; fragments are cut at every start and end of a window of the tree, and at "
        "midnight UTC.</p></footer>"
    )


# ------------------------------------------------------------------------------------------- timeline
_GUTTER, _WIDTH, _LANE, _TOP = 176, 1040, 26, 8


def timeline(tree: ExecutionTree) -> str:
    """A tree's edges as SVG: a lane for each distinct window, the shared fragments below.

    It covers a composite slide, several where they are short, or the beginning of one with more than about
    :data:`FRAGMENTS_SHOWN` fragments.
    """
    span, covers = _extent(tree)
    windows = Counter(query.window for query in tree.queries)
    every = sorted(windows, key=lambda window: (window.slide, window.range))
    # fine and coarse ones alike
    lanes = [every[round(at)] for at in np.linspace(0, len(every) - 1, min(LANES_SHOWN, len(every)))]
    hidden = len(windows) - len(lanes)
    scale = (_WIDTH - _GUTTER - 14) / span

    def x(instant: float) -> str:
        return f"{_GUTTER + float(instant) * scale:.1f}".removesuffix(".0")

    bottom = _TOP + _LANE * len(lanes) + (18 if hidden else 0)
    edges = _edges(tree, span)
    drawn = [f'<path class="grid" d="{"".join(f"M{x(at)} {_TOP}V{bottom}" for at in edges)}"/>']
    for number, window in enumerate(lanes):
        y = _TOP + _LANE * number + _LANE // 2
        starts = range(-window.ago % window.slide, span + 1, window.slide)
        ends = range((window.range - window.ago) % window.slide or window.slide, span + 1, window.slide)
        queries = f" × {windows[window]}" if windows[window] > 1 else ""
        until = min(window.range, span)
        drawn += [
            f'<text x="{_GUTTER - 12}" y="{y + 4}" text-anchor="end">{_length(window.range, tree.per)} '
            f'<tspan class="dim">/ {_length(window.slide, tree.per)}{queries}</tspan></text>',
            f'<path class="lane" d="M{_GUTTER} {y}H{x(span)}"/>',
            f'<path class="window{" on" if window.range > span else ""}" d="M{x(0)} {y}H{x(until)}"/>',
            f'<path class="start" d="{"".join(f"M{x(at)} {y}v-9" for at in starts)}"/>',
            f'<path class="end" d="{"".join(f"M{x(at)} {y}v9" for at in ends)}"/>',
        ]
    if hidden:
        drawn.append(
            f'<text class="dim" x="{_GUTTER - 12}" y="{bottom - 4}" text-anchor="end">'
            f"… {count(hidden, 'more window')}</text>"
        )
    for parity, kind in enumerate(("even", "odd")):
        cells = list(zip(edges, edges[1:], strict=False))[parity::2]
        path = "".join(f"M{x(first)} {bottom + 6}H{x(last)}v16H{x(first)}z" for first, last in cells)
        drawn.append(f'<path class="{kind}" d="{path}"/>')
    drawn.append(
        f'<text x="{_GUTTER - 12}" y="{bottom + 18}" text-anchor="end">{count(len(edges) - 1, "fragment")}</text>'
    )
    step = _step(span)
    for at in range(0, span + 1, step):
        drawn.append(f'<path class="axis" d="M{x(at)} {bottom + 22}v4"/>')
        drawn.append(
            f'<text class="dim" x="{x(at)}" y="{bottom + 38}" text-anchor="middle">'
            f"{_length(at, tree.per) if at else 0}</text>"
        )
    height = bottom + 46
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="edges over {escape(covers)}">'
        f'{"".join(drawn)}</svg><p class="quiet">{escape(covers)}</p>'
    )


def _extent(tree: ExecutionTree) -> tuple[int, str]:
    """Microseconds (or rows) that a tree's timeline covers, and what they are in words."""
    period, unit = tree.composite_slide, Fraction(SECOND, tree.tick)
    fragments = period * tree.edge_rate / unit
    if fragments > FRAGMENTS_SHOWN:
        slide = min(window.slide for window in tree.windows)
        span = max(int(FRAGMENTS_SHOWN * unit / tree.edge_rate) // slide, 1) * slide
        return span, f"The first {_length(span, tree.per)} of a composite slide of {_length(period, tree.per)}"
    times = max(1, -(-FEWEST_FRAGMENTS // max(round(fragments), 1)))
    if times == 1:
        return period, f"One composite slide, {_length(period, tree.per)}"
    return times * period, f"{times} composite slides of {_length(period, tree.per)}"


def _edges(tree: ExecutionTree, span: int) -> list[int]:
    """Edges of a tree in [0, span], and both ends of that."""
    found = [np.arange(shift, span + 1, slide, dtype=np.int64) for slide, shift in progressions(tree.windows)]
    return [int(at) for at in np.unique(np.concatenate([*found, np.array([0, span])]))]


_STEPS = [
    size * unit
    for unit, sizes in (
        (1, (1, 10, 100, 1_000, 10_000, 100_000)),
        (SECOND, (1, 2, 5, 10, 15, 30)),
        (60 * SECOND, (1, 2, 5, 10, 15, 30)),
        (3_600 * SECOND, (1, 2, 3, 6, 12)),
        (86_400 * SECOND, (1, 2, 7, 14, 28, 91, 364, 3_640, 36_400, 364_000)),
    )
    for size in sizes
]


def _step(span: int) -> int:
    """A round distance of the axis' labels: at most nine fit."""
    return next((step for step in _STEPS if span / step <= 9), max(span // 4, 1))
