"""Charts of what the sharing benchmark measured, one SVG file for each kind of workload and quantity.

    python -m tests.benchmarks.charts FILE.json FOLDER

Both axes are logarithmic: queries to the right, upwards what was spent. Files are ``sharing_KIND_QUANTITY.svg``. They
are written by hand, without a library, a few kilobytes each, and follow what the reader prefers, light or dark.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 62, 496, 44, 352
"""Where the axes are; the names of the lines stand to the right."""

LABEL_HEIGHT = 16

COLOURS = {
    "heddle": ("#0f766e", "#2dd4bf"),
    "spark": ("#c2410c", "#fb923c"),
    "statement": ("#b45309", "#fbbf24"),
    "duckdb": ("#7e22ce", "#c084fc"),
    "polars": ("#1d4ed8", "#60a5fa"),
    "clickhouse": ("#be123c", "#fb7185"),
    "datafusion": ("#4d7c0f", "#a3e635"),
    "flink": ("#be185d", "#f472b6"),
    "scan": ("#6b7280", "#9ca3af"),
    "parquet": ("#6b7280", "#9ca3af"),
}
"""Of a line, on white and on black."""


@dataclass(frozen=True)
class Line:
    """A line of a chart. ``points``: (queries, value); a value that is not above zero has no place and is left out."""

    name: str
    title: str
    points: tuple[tuple[int, float], ...]


def draw(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw each workload of a document that the benchmark wrote; the files. Without workloads there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for workload in document.get("workloads", ()):
        for quantity, (title, lines_of) in QUANTITIES.items():
            lines = [line for line in lines_of(workload) if line.points]
            if lines:
                path = folder / f"sharing_{workload['kind']}_{quantity}.svg"
                path.write_text(svg(f"{workload['kind']}, {workload['events']:,} events: {title}", lines))
                paths.append(path)
    return paths


# ------------------------------------------------------------------------------------------- the lines
def _spent(workload: Mapping[str, Any], measure: str, unit: float, grows: bool) -> list[Line]:
    """A line for the shared run, each peer and the scan. ``grows``: what peers spend on one query is taken times the
    number of queries."""
    sizes = [point["queries"] for point in workload["shared"]]

    def line(name: str, title: str, values: Sequence[Sequence[float | None]], factors: Sequence[float]) -> Line:
        points = []
        for size, measured, factor in zip(sizes, values, factors, strict=True):
            value = statistics.median([value for value in measured if value is not None] or [0.0]) * factor / unit
            if value > 0:
                points.append((size, value))
        return Line(name, title, tuple(points))

    once = [1.0 for _ in sizes]
    shared = [[] if point["run"]["failure"] else point["run"][measure] for point in workload["shared"]]
    lines = [line("heddle", "Heddle, all of it", shared, once)]
    for name, peer in workload["peers"].items():
        spent = [] if peer["failure"] else peer[measure]
        lines.append(line(name, peer["title"], [spent for _ in sizes], list(map(float, sizes)) if grows else once))
    return [*lines, line("scan", "one plain scan-and-group", [workload["scan"][measure] for _ in sizes], once)]


def _written(workload: Mapping[str, Any]) -> list[Line]:
    """The warehouse of the shared run, beside the answers alone as a peer would write them, a file a query."""
    shared = [
        (point["queries"], point["written_bytes"] / 1e6) for point in workload["shared"] if point["written_bytes"]
    ]
    bytes_of = [peer["answer_bytes"] for peer in workload["peers"].values() if peer["answer_bytes"]]
    plain = [
        (point["queries"], point["answers"] * statistics.mean(bytes_of) / 1e6)
        for point in workload["shared"]
        if bytes_of and point["answers"]
    ]
    titles = ("Heddle, the whole warehouse", "answers alone, as Parquet")
    return [Line("heddle", titles[0], tuple(shared)), Line("parquet", titles[1], tuple(plain))]


QUANTITIES: dict[str, tuple[str, Callable[[Mapping[str, Any]], list[Line]]]] = {
    "cpu": ("CPU seconds", lambda workload: _spent(workload, "cpu", 1.0, grows=True)),
    "wall": ("wall seconds", lambda workload: _spent(workload, "wall", 1.0, grows=True)),
    "memory": ("peak memory, MB", lambda workload: _spent(workload, "memory", 1e6, grows=False)),
    "written": ("bytes written, MB", _written),
}


# --------------------------------------------------------------------------------------------- drawing
def svg(title: str, lines: Sequence[Line]) -> str:
    """A chart of some lines, each with a point."""
    sizes = sorted({size for line in lines for size, _ in line.points})
    values = [value for line in lines for _, value in line.points]
    low, high = _below(min(values)), _above(max(values))
    x = _scale(sizes[0], sizes[-1], LEFT + 12, RIGHT - 12)
    y = _scale(low, high, BOTTOM, TOP)
    parts = [f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>']
    for tick in _ticks(low, high):
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,.4g}</text>')
    for size in sizes:
        parts.append(f'<text x="{x(size):.1f}" y="{BOTTOM + 20}" text-anchor="middle">{size:,}</text>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 38}" text-anchor="middle">queries</text>')
    labels = _apart([y(line.points[-1][1]) for line in lines])
    ours_on_top = sorted(zip(lines, labels, strict=True), key=lambda pair: pair[0].name == "heddle")
    for line, label in ours_on_top:
        places = [f"{x(size):.1f} {y(value):.1f}" for size, value in line.points]
        parts.append(f'<g class="{escape(line.name)}"><path class="line" d="M{"L".join(places)}"/>')
        parts += [f'<circle cx="{place.split()[0]}" cy="{place.split()[1]}" r="3.5"/>' for place in places]
        parts.append(f'<path class="to" d="M{places[-1]}L{RIGHT + 10} {label:.1f}"/>')
        last = f"{line.points[-1][1]:,.3g}" if line.points[-1][1] < 100 else f"{line.points[-1][1]:,.0f}"
        parts.append(f'<text x="{RIGHT + 14}" y="{label + 4:.1f}">{escape(line.title)}: {last}</text></g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(title)}</title><style>{_style(lines)}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _style(lines: Sequence[Line]) -> str:
    """Colours for light, and for dark."""
    light, dark = (
        "".join(f".{line.name}{{color:{COLOURS.get(line.name, COLOURS['scan'])[side]}}}" for line in lines)
        for side in (0, 1)
    )
    return (
        "text{font:12px system-ui,sans-serif;fill:#374151}.title{font-size:14px;font-weight:600}"
        ".grid{stroke:#d1d5db;stroke-width:1}.line{fill:none;stroke:currentColor;stroke-width:2}"
        ".to{fill:none;stroke:currentColor;stroke-width:.75;stroke-dasharray:2 2}circle,g text{fill:currentColor}"
        f".heddle .line{{stroke-width:3.5}}.heddle text{{font-weight:600}}{light}"
        "@media (prefers-color-scheme:dark){text{fill:#d1d5db}.grid{stroke:#4b5563}g text{fill:currentColor}"
        + dark
        + "}"
    )


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A logarithmic scale; of a single value the middle."""
    if low == high:
        return lambda value: (start + end) / 2
    return lambda value: start + (end - start) * math.log(value / low) / math.log(high / low)


def _below(value: float) -> float:
    """The greatest of 1, 2, 5, 10, ... that is not above a value."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1, 2, 5) if step == 1 or step * power <= value)


def _above(value: float) -> float:
    """The least of 1, 2, 5, 10, ... that is above a value."""
    power = 10.0 ** math.floor(math.log10(value))
    return min(step * power for step in (1, 2, 5, 10) if step * power > value)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two values, and between them 2 and 5 if there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def _apart(places: Sequence[float]) -> list[float]:
    """The heights of labels, as near to their own as they do not cover each other within the chart."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    heights = list(places)
    for above, number in zip(order, order[1:], strict=False):
        heights[number] = max(heights[number], heights[above] + LABEL_HEIGHT)
    over = max(0.0, heights[order[-1]] - (BOTTOM + 8)) if order else 0.0
    for below, number in zip([None, *reversed(order)], reversed(order), strict=False):
        heights[number] = (
            heights[number] - over if below is None else min(heights[number], heights[below] - LABEL_HEIGHT)
        )
    return heights


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="charts", description="Charts of what the sharing benchmark measured")
    parser.add_argument("document", type=Path, metavar="FILE.json")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    for path in draw(json.loads(options.document.read_text()), options.folder):
        print(path)


if __name__ == "__main__":
    main()
