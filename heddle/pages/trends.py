"""A warehouse day by day: what runs cost, answered and read, how late they were, and what plans cost.

The values are read by :func:`spark_jobs.operations.trends.read_trends`. What unshared runs would have cost is an
estimate of the cost model unless ``heddle compare`` has measured it, and is called one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heddle.pages.charts import Chart, Column, chart
from heddle.pages.folding import Table, fold
from heddle.pages.formats import count, figure, number, saved, seconds
from heddle.pages.operations import CHARTED, ROWS_SHOWN
from heddle.pages.plan import Tile
from heddle.pages.render import render
from heddle.pages.spans import Link, span_links
from spark_jobs.operations.series import ComparedRun, PlanCost, SpanName, TrendDay, Trends

SPANS: Sequence[SpanName] = ("week", "month", "all")

SEEN = 10
"""Times its column that a mark may be high: next to a higher one the columns would not be visible."""


@dataclass(frozen=True)
class DayChart:
    """A chart by day; ``title`` and ``note`` in words."""

    title: str
    note: str
    chart: Chart


@dataclass(frozen=True)
class TrendsPage:
    """All that the page of trends shows."""

    trends: Trends
    spans: Sequence[Link]
    tiles: Sequence[Tile]
    charts: Sequence[DayChart]
    days: Table[TrendDay]
    compared: Table[ComparedRun]
    plans: Chart | None


def page(trends: Trends) -> str:
    """The trends as a page."""
    return render("trends.html.j2", page=trends_page(trends))


def trends_page(trends: Trends) -> TrendsPage:
    """Content of the page of trends, counted and put into words."""
    days = list(reversed(trends.days))
    columns = [
        *(("day (UTC)", 16), ("runs", 8), ("failed", 8), ("answers", 14), ("events read", 14), ("CPU-s", 12)),
        *(("unshared (estimate)", 16), ("late", 12)),
    ]
    compared = [
        *(("interval (UTC)", 28), ("compared (UTC)", 20), ("shared, all", 12), ("unshared, sample", 16)),
        *(("sample", 10), ("all, extrapolated", 14)),
    ]
    return TrendsPage(
        trends=trends,
        spans=span_links(trends.span, lambda name: f"trends?span={name}", SPANS),
        tiles=_tiles(trends.days),
        charts=_charts(trends.days),
        days=Table("log trenddays", columns, fold(days, ROWS_SHOWN, len(days), "day")),
        compared=Table("log compared", compared, fold(trends.compared, ROWS_SHOWN, len(trends.compared), "comparison")),
        plans=_plans(trends.plans),
    )


def _tiles(days: Sequence[TrendDay]) -> list[Tile]:
    if not days:
        return []
    measured = [day for day in days if day.measured is not None]
    priced = [day for day in measured if day.unshared is not None]
    spent, unshared = sum(day.measured or 0.0 for day in priced), sum(day.unshared or 0.0 for day in priced)
    published = sum(day.runs for day in days)
    failed, late = sum(day.failed for day in days), sum(day.late for day in days)
    estimate = f"estimate: unshared {seconds(unshared)} ({saved(unshared, spent).text})" if unshared else "no estimate"
    return [
        Tile("CPU seconds", seconds(sum(day.measured or 0.0 for day in measured)), estimate),
        Tile("answers", number(sum(day.answers for day in days)), f"in {count(len(days), 'day')}"),
        Tile("runs failed", number(failed), f"beside {count(published, 'publication')}", "ill" if failed else "good"),
        Tile("late", number(late), "times that a query was answered too late", "ill" if late else "good"),
    ]


def _charts(days: Sequence[TrendDay]) -> list[DayChart]:
    shown = days[-CHARTED:]
    measured = [day for day in shown if day.measured is not None]
    charts = []
    if measured:
        highest = max(day.measured or 0.0 for day in measured)
        is_seen = all((day.unshared or 0.0) <= SEEN * highest for day in measured)
        columns = [
            Column(
                f"{day.day}: {seconds(day.measured)} CPU-s, estimate unshared {seconds(day.unshared) or 'none'}",
                [("own", day.measured or 0.0)],
                day.unshared if is_seen else None,
            )
            for day in measured
        ]
        note = "measured; the line is the estimate of unshared runs" if is_seen else "measured"
        charts.append(DayChart("CPU seconds a day", note, chart(columns, "CPU seconds", "day")))
    values: list[tuple[str, str, Callable[[TrendDay], int]]] = [
        ("Answers a day", "own", lambda day: day.answers),
        ("Events read a day", "own", lambda day: day.events),
        ("Late answers a day", "end", lambda day: day.late),
    ]
    for title, kind, value in values:
        if any(value(day) for day in shown):
            columns = [Column(f"{day.day}: {value(day):,}", [(kind, float(value(day)))]) for day in shown]
            charts.append(DayChart(title, "", chart(columns, title, "day")))
    return charts


def _plans(plans: Sequence[PlanCost]) -> Chart | None:
    """The costs of plan versions, those of the newest one's cost model; None without any."""
    shown = [plan for plan in plans if plan.cost_model == plans[-1].cost_model][-CHARTED:]
    if not shown:
        return None
    highest = max(plan.cost for plan in shown)
    is_seen = all(plan.no_share <= SEEN * highest for plan in shown)
    columns = [
        Column(
            f"version {plan.version}: {figure(plan.cost)}, unshared {figure(plan.no_share)}",
            [("own", plan.cost)],
            plan.no_share if is_seen else None,
        )
        for plan in shown
    ]
    unit = "operations/s" if plans[-1].cost_model == "paper" else "CPU-s/s"
    return chart(columns, f"cost ({unit})", "version")
