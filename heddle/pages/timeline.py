"""SVG coordinates and paths of a tree's edges: its windows and shared fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np

from heddle.pages.formats import length
from optimizer.plan.definition import ExecutionTree
from optimizer.windows.alignment import edge_period, progressions
from optimizer.workload.instants import irregular_words
from optimizer.workload.values import SECOND, Window

LANES_SHOWN = 10
"""Distinct windows drawn of each tree."""

FRAGMENTS_SHOWN = 96
"""Fragments on one timeline, about: of longer composite slides the beginning is drawn."""

FEWEST_FRAGMENTS = 12
"""Fewest fragments on a timeline: short composite slides are repeated until there are enough."""

GUTTER, WIDTH, LANE, TOP = 176, 1040, 26, 8
"""Width of the labels on the left and of the picture, height of one lane and above the first, in units of the SVG."""


@dataclass(frozen=True)
class Lane:
    """One distinct window: its label, and the paths of its line, one window, its starts and its ends.

    ``goes_on``: the window is longer than the drawing.
    """

    y: int
    range: str
    slide: str
    line: str
    window: str
    goes_on: bool
    starts: str
    ends: str


@dataclass(frozen=True)
class Tick:
    """A label of the axis below."""

    x: str
    mark: str
    label: str


@dataclass(frozen=True)
class Timeline:
    """A tree's timeline. ``bottom``: where its lanes end; ``even``, ``odd``: paths of every other fragment; ``hidden``:
    distinct windows that have no lane; ``covers``: what is drawn, in words."""

    covers: str
    width: int
    height: int
    bottom: int
    labels_x: int
    grid: str
    lanes: tuple[Lane, ...]
    hidden: int
    even: str
    odd: str
    fragments: int
    ticks: tuple[Tick, ...]


def timeline(tree: ExecutionTree) -> Timeline:
    """The timeline of a composite slide, of several where they are short, or of the beginning of one with more than
    about :data:`FRAGMENTS_SHOWN` fragments."""
    span, covers = extent(tree)
    windows = Counter(query.window for query in tree.queries)
    every = sorted(windows, key=lambda window: (window.slide, window.range))
    # fine and coarse ones alike
    shown = [every[round(at)] for at in np.linspace(0, len(every) - 1, min(LANES_SHOWN, len(every)))]
    hidden = len(windows) - len(shown)
    scale = (WIDTH - GUTTER - 14) / span

    def x(instant: int) -> str:
        return f"{GUTTER + float(instant) * scale:.1f}".removesuffix(".0")

    bottom = TOP + LANE * len(shown) + (18 if hidden else 0)
    edges = _edges(tree, span)
    cells = [f"M{x(a)} {bottom + 6}H{x(b)}v16H{x(a)}z" for a, b in zip(edges, edges[1:], strict=False)]
    return Timeline(
        covers=covers,
        width=WIDTH,
        height=bottom + 46,
        bottom=bottom,
        labels_x=GUTTER - 12,
        grid="".join(f"M{x(at)} {TOP}V{bottom}" for at in edges),
        lanes=tuple(_lane(number, window, windows[window], tree, span, x) for number, window in enumerate(shown)),
        hidden=hidden,
        even="".join(cells[0::2]),
        odd="".join(cells[1::2]),
        fragments=len(edges) - 1,
        ticks=tuple(
            Tick(x(at), f"M{x(at)} {bottom + 22}v4", length(at, tree.per) if at else "0")
            for at in range(0, span + 1, _step(span))
        ),
    )


def _lane(number: int, window: Window, queries: int, tree: ExecutionTree, span: int, x: Callable[[int], str]) -> Lane:
    y = TOP + LANE * number + LANE // 2
    starts: Sequence[int] = range(-window.ago % window.slide, span + 1, window.slide)
    ends: Sequence[int] = range((window.range - window.ago) % window.slide or window.slide, span + 1, window.slide)
    words = irregular_words(window)
    if words is not None:
        # a window of a calendar starts and ends at some of its edges
        edges = [range(shift, span + 1, slide) for slide, shift in progressions([window])]
        starts = range(0, span + 1, window.range) if window.calendar is None else sorted(chain(*edges))
        starts = [] if window.since is not None else starts
        ends = sorted(chain(*edges))
    size = span + 1 if window.has_origin else window.range
    range_text, slide_text = words or (length(window.range, tree.per), length(window.slide, tree.per))
    return Lane(
        y=y,
        range=range_text,
        slide=slide_text + (f" × {queries}" if queries > 1 else ""),
        line=f"M{GUTTER} {y}H{x(span)}",
        window=f"M{x(0)} {y}H{x(min(size, span))}",
        goes_on=size > span,
        starts="".join(f"M{x(at)} {y}v-9" for at in starts),
        ends="".join(f"M{x(at)} {y}v9" for at in ends),
    )


def extent(tree: ExecutionTree) -> tuple[int, str]:
    """Microseconds (or rows) that a tree's timeline covers, and what they are in words."""
    period, unit = tree.composite_slide, Fraction(SECOND, tree.tick)
    fragments = period * tree.edge_rate / unit
    if fragments > FRAGMENTS_SHOWN:
        slide = min(edge_period(window) for window in tree.windows)
        span = max(int(FRAGMENTS_SHOWN * unit / tree.edge_rate) // slide, 1) * slide
        return span, f"The first {length(span, tree.per)} of a composite slide of {length(period, tree.per)}"
    times = max(1, -(-FEWEST_FRAGMENTS // max(round(fragments), 1)))
    if times == 1:
        return period, f"One composite slide, {length(period, tree.per)}"
    return times * period, f"{times} composite slides of {length(period, tree.per)}"


def _edges(tree: ExecutionTree, span: int) -> Sequence[int]:
    """Edges of a tree in [0, span], and both ends of that."""
    edges = [np.arange(shift, span + 1, slide, dtype=np.int64) for slide, shift in progressions(tree.windows)]
    return [int(at) for at in np.unique(np.concatenate([*edges, np.array([0, span])]))]


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
