"""SVG coordinates and paths of the lines of a time series.

If there are more samples than a chart has room for, each column of pixels keeps its first, last, lowest and highest
(M4), so the drawing looks the same. A line is broken where samples are missing.

References
----------
Jugel, Jerzak, Hackenbroich & Markl, "M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from heddle.pages.formats import figure, instant
from spark_jobs.operations.series import Line, Sample

WIDTH, HEIGHT, LEFT, TOP, BELOW = 1040, 220, 64, 8, 22
"""Width of the picture, its height above the axis, and the space left of the lines, above and below them; units of the
SVG.
"""

COLUMNS = 120
"""Columns of pixels that samples are put into."""

COLOURS = 8
"""Lines that have a colour of their own: CSS classes ``line0`` to ``line7``."""

TICKS = 5
"""Instants below the chart, at most."""

BREAK = 3.5
"""Times the usual distance of two samples from which on nothing is drawn between them."""

SPARK_WIDTH, SPARK_HEIGHT = 160, 32


@dataclass(frozen=True)
class Point:
    """A point that can be pointed at: its place and its text. ``kind``: ``dot``, or ``revised`` for a later
    revision.
    """

    x: str
    y: str
    kind: str
    title: str


@dataclass(frozen=True)
class DrawnLine:
    """A line of a colour; ``label``: whose it is."""

    colour: str
    label: str
    path: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Label:
    """A text on an axis."""

    at: str
    text: str
    anchor: str = "middle"


@dataclass(frozen=True)
class LineChart:
    """Lines over time. ``title``: the charted quantity, for people who do not see the chart."""

    title: str
    lines: Sequence[DrawnLine]
    values: Sequence[Label]
    instants: Sequence[Label]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    below: int = BELOW


def line_chart(name: str, lines: Sequence[Line], unit: str = "") -> LineChart | None:
    """The chart of some lines; None without a sample."""
    samples = [sample for line in lines for sample in line.samples]
    if not samples:
        return None
    begin, end = min(sample.instant for sample in samples), max(sample.instant for sample in samples)
    steps = _steps(min(sample.value for sample in samples), max(sample.value for sample in samples))
    low, high = steps[0], steps[-1]

    def x(at: int) -> float:
        return LEFT + (at - begin) / ((end - begin) or 1) * (WIDTH - LEFT - 8) if end > begin else (LEFT + WIDTH) / 2

    def y(value: float) -> float:
        return TOP + (high - value) / ((high - low) or 1) * (HEIGHT - TOP)

    drawn = []
    for number, line in enumerate(lines):
        shown = thinned(line.samples, begin, end)
        breaks = _missing(line.samples) if line.breaks is None else line.breaks
        parts = _unbroken(shown, breaks)
        path = "".join(
            ("M" if place == 0 else "L") + f"{x(sample.instant):.1f} {y(sample.value):.1f}"
            for part in parts
            for place, sample in enumerate(part)
        )
        points = [
            Point(f"{x(sample.instant):.1f}", f"{y(sample.value):.1f}", *_said(sample, line.label, unit))
            for sample in shown
        ]
        drawn.append(DrawnLine(f"line{number % COLOURS}", line.label, path, points))
    values = [Label(f"{y(step):.1f}", figure(step)) for step in steps]
    title = f"{name}, {len(samples):,} values from {instant(begin)} to {instant(end)}"
    instants = [
        Label(f"{x(at):.1f}", text, "end" if x(at) > WIDTH - 70 else "middle") for at, text in _instants(begin, end)
    ]
    return LineChart(title, drawn, values, instants)


def sparkline(samples: Sequence[Sample], breaks: Sequence[int] = ()) -> str:
    """The path of a small line without axes, in a box of :data:`SPARK_WIDTH` by :data:`SPARK_HEIGHT`. ``breaks``: the
    instants of samples before which it is broken."""
    begin, end = samples[0].instant, samples[-1].instant
    low, high = min(sample.value for sample in samples), max(sample.value for sample in samples)
    if len(samples) == 1:
        return f"M2 {SPARK_HEIGHT / 2:.0f}h{SPARK_WIDTH - 4}"

    def point(sample: Sample) -> str:
        x = 2 + (sample.instant - begin) / ((end - begin) or 1) * (SPARK_WIDTH - 4)
        y = SPARK_HEIGHT / 2 if high == low else 3 + (high - sample.value) / (high - low) * (SPARK_HEIGHT - 6)
        return f"{x:.1f} {y:.1f}"

    # a sample between two breaks is a dot
    parts = _unbroken(thinned(samples, begin, end), breaks)
    return "".join("M" + "L".join(map(point, part)) + "h1" * (len(part) == 1) for part in parts)


def thinned(samples: Sequence[Sample], begin: int, end: int) -> Sequence[Sample]:
    """Visible samples of those by instant in [begin, end], and all of a later revision."""
    if len(samples) <= 2 * COLUMNS:
        return samples

    def column(sample: Sample) -> int:
        return (sample.instant - begin) * COLUMNS // (end - begin + 1)

    seen: set[Sample] = {sample for sample in samples if sample.revision > 1}
    for _, some in groupby(samples, column):
        own = list(some)
        seen |= {own[0], own[-1], min(own, key=_value), max(own, key=_value)}
    return sorted(seen)


def _value(sample: Sample) -> float:
    return sample.value


def _missing(samples: Sequence[Sample]) -> list[int]:
    """The instants of the samples before which others are missing, by the usual distance of two."""
    distances = sorted(later.instant - earlier.instant for earlier, later in pairwise(samples))
    usual = distances[len(distances) // 2] if distances else 0
    return [later.instant for earlier, later in pairwise(samples) if later.instant - earlier.instant > usual * BREAK]


def _unbroken(kept: Sequence[Sample], breaks: Sequence[int]) -> list[list[Sample]]:
    """The samples that are drawn, in parts; ``breaks``: the instants, ascending, at which parts begin."""
    parts: list[list[Sample]] = []
    number = -1
    for sample in kept:
        before, number = number, bisect_right(breaks, sample.instant)
        if number != before:
            parts.append([])
        parts[-1].append(sample)
    return parts


def _said(sample: Sample, label: str, unit: str) -> tuple[str, str]:
    """Kind and text of a point."""
    of = f"{label}, " if label else ""
    text = f"{of}{instant(sample.instant)}: {figure(sample.value)}{f' {unit}' if unit else ''}"
    if sample.revision > 1:
        return "revised", f"{text}, published again as revision {sample.revision}"
    return "dot", text


def _steps(low: float, high: float) -> list[float]:
    """Three to six round values that a scale from ``low`` to ``high`` has; it begins at 0 unless that is far off."""
    if low > 0 and low < high * 0.75:
        low = 0.0
    if high < 0 and high > low * 0.75:
        high = 0.0
    if high <= low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, last + 1)]


def _instants(begin: int, end: int) -> list[tuple[int, str]]:
    """Round instants between two, at most :data:`TICKS`, with their texts."""
    minute = 60_000_000
    sizes = [minute * size for size in (1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 7 * 1440, 14 * 1440)]
    sizes += [minute * 1440 * size for size in (30, 60, 90, 180, 365, 1825, 18250)]
    step = next((size for size in sizes if (end - begin) / size <= TICKS), sizes[-1])
    first = -(-begin // step) * step
    instants = [(at, instant(at)) for at in range(first, end + 1, step)][: TICKS + 1]
    return instants or [(begin, instant(begin))]
