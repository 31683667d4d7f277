"""How the shared run grows with queries, events, keys and filters.

Each curve changes one thing and leaves the others as they are; its points run in turn, round by round, each with its
own plan into a fresh warehouse, and beside each the plain scan-and-group at the finest granularity of its workload. A
first round warms everything up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from optimizer.plan.definition import SharingPlan
from tests.benchmarks.peers import Measured, noted, plan_of, scan_and_group, shared, spent_by
from tests.benchmarks.trades import FILTERS, KEYS, REGULAR, Kind, generate, workload_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_SLIDES = Kind("long slides", 300, (600, 1200, 1800, 3600))
"""As regular, without the short slides: with thousands of keys those have tens of millions of answers a query."""


@dataclass(frozen=True)
class Point:
    """One point of a curve: ``x`` is what the curve changes."""

    x: int
    kind: Kind
    queries: int
    events: int
    keys: int = KEYS


@dataclass(frozen=True)
class Curve:
    """``points``: of the number of events. What one ``unit`` more costs is shown, which is ``size`` of x."""

    unit: str
    size: int
    points: Callable[[int], Sequence[Point]]


CURVES = {
    "queries": Curve(
        "query", 1, lambda events: [Point(x, REGULAR, x, events) for x in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
    ),
    "events": Curve(
        "million events", 10**6, lambda events: [Point(x, REGULAR, 100, x) for x in (events // 10, events, 5 * events)]
    ),
    "keys": Curve(
        "thousand keys", 1000, lambda events: [Point(x, LONG_SLIDES, 20, events, x) for x in (20, 200, 2_000, 20_000)]
    ),
    "filters": Curve(
        "filter", 1, lambda events: [Point(x, replace(REGULAR, filters=FILTERS[:x]), 100, events) for x in (1, 4, 16)]
    ),
}


@dataclass
class Grown:
    """What one point of a curve cost."""

    curve: str
    point: Point
    plan: SharingPlan
    answers: int = 0
    run: Measured = field(default_factory=Measured)
    scan: Measured = field(default_factory=Measured)

    def to_json(self) -> dict[str, Any]:
        return {
            "curve": self.curve,
            "x": self.point.x,
            "queries": self.point.queries,
            "events": self.point.events,
            "keys": self.point.keys,
            "trees": len(self.plan.trees),
            "answers": self.answers,
            "run": asdict(self.run),
            "scan": asdict(self.scan),
        }


def grow(
    spark: SparkSession,
    folder: Path,
    name: str,
    points: Sequence[Point],
    rounds: int,
    scratch: Path,
    report: Callable[[str], None],
) -> list[Grown]:
    """Measure a curve's points, over streams that are kept in ``folder``; one that fails is reported and left out."""
    grown_points = []
    for point in points:
        workload = workload_of(generate(folder, point.events, point.keys), point.queries, point.kind)
        grown_points.append(Grown(name, point, plan_of(workload, point.events)))
    for number in range(rounds + 1):
        for grown in grown_points:
            saying = f"{name}, {f'round {number} of {rounds}' if number else 'warming up'}: {grown.point.x:,}"
            with noted(grown.run, saying, report) as going:
                if not going:
                    continue
                with shared(spark, grown.plan, scratch / "warehouse") as (spent, record, _):
                    grown.run.add(spent, not number)
                    grown.answers = record.answers
                scan = partial(scan_and_group, spark, grown.plan.workload, grown.point.kind.granule, scratch / "scan")
                grown.scan.add(spent_by(scan)[0], not number)
    return grown_points


def curve_table(name: str, found: Sequence[Grown]) -> Table:
    """One curve, for people."""
    curve = CURVES[name]
    table = Table(title=f"growth with {name}: CPU seconds, medians", title_justify="left")
    for heading in (
        name,
        "queries",
        "trees",
        "answers",
        "shared run",
        f"each {curve.unit} more",
        "one scan",
        "of scan",
    ):
        table.add_column(heading, justify="right")
    before: Grown | None = None
    for grown in found:
        added = "" if before is None else _added(before, grown, curve.size)
        table.add_row(
            f"{grown.point.x:,}",
            str(grown.point.queries),
            str(len(grown.plan.trees)),
            f"{grown.answers:,}",
            "fails" if grown.run.failure else f"{grown.run.median:.2f}",
            added,
            f"{grown.scan.median:.2f}",
            f"{grown.run.median / grown.scan.median:.2f}",
        )
        before = grown
    return table


def _added(before: Grown, now: Grown, size: int) -> str:
    return f"{(now.run.median - before.run.median) / (now.point.x - before.point.x) * size:+.3f}"
