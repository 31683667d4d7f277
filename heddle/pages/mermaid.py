"""A sharing plan as a Mermaid flowchart: plain text whose labels have Mermaid's syntax, so it needs no template."""

from __future__ import annotations

import re
from collections import Counter

from heddle.pages.formats import CostUnit, figure
from optimizer.errors.diagnostics import count
from optimizer.plan.accounts import dearest
from optimizer.plan.definition import SharingPlan

TREES_SHOWN = 24
"""Trees in the flowchart, of each stream, and on the page of a plan: those that cost most."""

NAMES_SHOWN = 8
"""Queries of each tree."""


def mermaid(plan: SharingPlan) -> str:
    """The plan as a Mermaid flowchart: streams, their trees (the dearest), and the queries of each tree."""
    unit = CostUnit.of(plan)
    lines = ["flowchart LR"]
    shown = Counter[str]()
    numbers = {stream: number for number, (stream, _) in enumerate(plan.rates)}
    # a flowchart of more than some hundred nodes is refused by its renderers
    chosen = {tree.id for tree, _ in dearest(plan, 4 * TREES_SHOWN)}
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
    return re.sub(r"[^\w .,:/+()-]", lambda match: f"#{ord(match[0])};", text)
