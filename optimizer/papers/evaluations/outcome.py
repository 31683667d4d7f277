"""Experiments and their outcomes, written as CSV, plot and a table of the papers' values next to ours."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Report = Callable[[int, int, str], None]
"""Progress: steps done, steps in all, what is being done."""

Row = dict[str, Any]
Value = float | int | str | None

SCALES = ("tiny", "quick", "full")
"""``tiny`` is for tests (a second or two), ``quick`` ends in about half a minute, ``full`` has the paper's ranges."""


@dataclass(frozen=True)
class Chart:
    """A plot of rows: a line per column of ``y`` (column to label), or one column's line per value of ``by``.

    ``log``: the axes on a logarithmic scale, of "x" and "y". ``paper``: the paper's printed values, dashed:
    (label, x, y), where None for x or y is a line across the plot.
    """

    x: str
    x_label: str
    y: Mapping[str, str]
    y_label: str
    by: str = ""
    by_label: str = "{}"
    log: str = ""
    paper: tuple[tuple[str, float | None, float | None], ...] = ()


class Measurement(NamedTuple):
    """Result of a run: rows of the CSV, a summary in words, and by quantity (the paper's value, ours)."""

    rows: list[Row]
    summary: str
    measured: dict[str, tuple[Value, Value]]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper, and the function that measures it again.

    Attributes
    ----------
    name
        As in :data:`optimizer.papers.evaluations.catalogue.EXPERIMENTS`; also the name of the files written.
    paper, figure
        "f1" or "weave-share", and the figure's number ("table2" for F1's Table 2).
    claim
        The paper's claim.
    minutes
        Approximate duration of the full scale.
    """

    name: str
    paper: str
    figure: str
    title: str
    claim: str
    minutes: float
    chart: Chart
    measure: Callable[[str, Report], Measurement] = field(repr=False)

    def run(self, scale: str = "quick", report: Report = lambda done, total, text: None) -> Outcome:
        """Measure at a scale of :data:`SCALES`. Raises ValueError for an unknown scale."""
        if scale not in SCALES:
            raise ValueError(f"unknown scale {scale!r}: one of {', '.join(SCALES)}")
        return Outcome(self, scale, *self.measure(scale, report))


@dataclass(frozen=True)
class Outcome:
    """Outcome of one run of an experiment.

    ``measured``: by quantity, the paper's value and ours (None: not printed, or not reached).
    """

    experiment: Experiment
    scale: str
    rows: list[Row]
    summary: str
    measured: dict[str, tuple[Value, Value]]


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """Write an outcome's CSV and PNG into a folder (made if missing), named after the experiment; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table_path, plot_path = (folder / f"{outcome.experiment.name}.{kind}" for kind in ("csv", "png"))
    columns = list(dict.fromkeys(column for row in outcome.rows for column in row))
    with table_path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(outcome.rows)
    _plot(outcome, plot_path)
    return [table_path, plot_path]


def table(outcomes: Iterable[Outcome]) -> str:
    """A Markdown table of the papers' values, the measured values, and their ratio (measured over paper)."""
    lines = ["| experiment | quantity | paper says | we measured | ratio |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        for quantity, (paper, ours) in outcome.measured.items():
            cells = [outcome.experiment.name, quantity, _shown(paper), _shown(ours), _ratio(paper, ours)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ratio(paper: Value, ours: Value) -> str:
    if isinstance(paper, str) or isinstance(ours, str) or not paper or ours is None:
        return ""
    return _shown(ours / paper)


def _shown(value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _plot(outcome: Outcome, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chart = outcome.experiment.chart
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    groups = list(dict.fromkeys(row[chart.by] for row in outcome.rows)) if chart.by else [None]
    for group in groups:
        rows = [row for row in outcome.rows if group is None or row[chart.by] == group]
        for column, label in chart.y.items():
            points = [(row[chart.x], row[column]) for row in rows if row.get(column) is not None]
            if points:
                name = label if group is None else chart.by_label.format(_shown(group))
                axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
    for label, x, y in chart.paper:
        if x is not None and y is not None:
            axes.plot([x], [y], marker="x", markersize=9, color="black", linestyle="none")
            axes.annotate(label, (x, y), textcoords="offset points", xytext=(0, 8), ha="center", fontsize=8)
        elif x is not None:
            axes.axvline(x, linestyle="--", color="grey", label=f"paper: {label}")
        elif y is not None:
            axes.axhline(y, linestyle="--", color="black", label=f"paper: {label}")
    # zero has no logarithm: it is drawn linearly up to the smallest value beside it
    values = sorted({row[chart.x] for row in outcome.rows} - {0}) if "x" in chart.log else []
    if values and any(row[chart.x] == 0 for row in outcome.rows):
        axes.set_xscale("symlog", linthresh=values[0])
        axes.set_xlim(left=0)
    elif values:
        axes.set_xscale("log")
    if "y" in chart.log:
        axes.set_yscale("log")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.set_title(f"{outcome.experiment.title}\npaper: {outcome.experiment.claim}", fontsize=10, wrap=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
