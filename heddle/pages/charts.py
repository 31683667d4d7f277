"""SVG coordinates of the columns of a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heddle.pages.formats import count, figure

WIDTH, HEIGHT, LEFT = 1040, 96, 64
"""Width of the picture, height of its columns, and width of the space to the left of them, in units of the SVG."""


@dataclass(frozen=True)
class Column:
    """One column: its title in words; (kind, value)s stacked from below; a mark at a value above them, or None."""

    title: str
    parts: Sequence[tuple[str, float]]
    mark: float | None = None


@dataclass(frozen=True)
class Shape:
    """A rectangle of a CSS class ``kind``; coordinates as texts."""

    kind: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True)
class DrawnColumn:
    """A column's rectangles, and the path of its mark ("": none)."""

    title: str
    shapes: Sequence[Shape]
    mark: str


@dataclass(frozen=True)
class Chart:
    """Stacked columns, each a run or a day, oldest left; ``label``: what is charted; ``largest``: the value on top."""

    label: str
    largest: str
    columns: Sequence[DrawnColumn]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT


def chart(columns: Sequence[Column], unit: str, noun: str = "run") -> Chart:
    """The chart of at least one column, whose values are in ``unit``; ``noun``: what a column is of."""
    tops = [max(sum(value for _, value in column.parts), column.mark or 0.0) for column in columns]
    largest = max(tops) or 1.0
    pitch = (WIDTH - LEFT - 4) / max(len(columns), 12)
    width = max(pitch * 0.72, 1.0)
    drawn = [_drawn(column, LEFT + place * pitch, width, largest) for place, column in enumerate(columns)]
    return Chart(f"{unit} of {count(len(columns), noun)}", figure(largest), drawn)


def _drawn(column: Column, x: float, width: float, largest: float) -> DrawnColumn:
    y, shapes = float(HEIGHT), []
    for kind, value in column.parts:
        height = value / largest * (HEIGHT - 10)
        y -= height
        if value:
            shapes.append(Shape(kind, f"{x:.1f}", f"{y:.1f}", f"{width:.1f}", f"{max(height, 1):.1f}"))
    mark = ""
    if column.mark is not None:
        at = HEIGHT - column.mark / largest * (HEIGHT - 10)
        mark = f"M{x - 1:.1f} {at:.1f}h{width + 2:.1f}"
    return DrawnColumn(column.title, shapes, mark)
