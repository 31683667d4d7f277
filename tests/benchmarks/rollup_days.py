"""Measures Heddle next to the rollups that an engineer would build instead (:mod:`tests.benchmarks.rollup`).

    python -m tests.benchmarks.sharing --rollup [--on-spark] [--workloads KIND ...] [--queries N ...]
        [--peers ENGINE ...] [--events N] [--rounds N] [--data DIR] [--json FILE]

An uncounted trial runs every statement of every way and compares its answers with Heddle's. The cheapest combination
for each family is then measured: the finest granules alone, or levels; a query or a window at a time; each statement in
its own cheapest way, or all in one.

Each round runs in turn Heddle (:data:`OURS`; on Spark with ``--on-spark``) and each engine: the first day from nothing,
then the second day on what the first stored. Seconds are CPU seconds of the process tree, each with two
threads. Ratios are medians of the rounds' ratios. An engine writes one Parquet file a query: the windows that end in
the day, with the outputs computed, in declared types.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.table import Table

from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.values import ACQ, Source, Stream
from spark_jobs.engine import choice
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.peers import Interval, Measured, difference, noted, plan_of, spent_by
from tests.benchmarks.rollup import ROLLUPS, TYPES, Day, Family, Rollup, Tuning, Unit, Way, families_of, units_of
from tests.benchmarks.small import ROOT
from tests.benchmarks.spark_intervals import submitted
from tests.benchmarks.trades import Kind, generate

HOPELESS = 3.0
"""A way that took this many times the cheapest for :data:`PATIENCE` statements in a row is tried no longer, nor are the
finest granules once what they lost is this many times what levels cost."""
PATIENCE = 5


# ------------------------------------------------------------------------------------------------- tuning
Ours = Callable[[str, Interval], pa.Table]
"""Heddle's answers of a query for the windows that end in an interval."""


def tune(rollup: Rollup, family: Family, day: Day, folder: Path, ours: Ours, variants: dict[str, float]) -> Tuning:
    """Try every way to answer a family, compare the answers with Heddle's, and return the cheapest way.

    ``variants``: to what each combination costs, in CPU seconds, this family's are added.
    """

    def timed(statements: Sequence[str]) -> float:
        began = rollup.worker.cpu_seconds()
        rollup.run(statements)
        return rollup.worker.cpu_seconds() - began

    rollup.set_day(day)
    build = timed(rollup.build(family, day))
    levels = math.fsum(timed(rollup.level(family, granule, finer)) for granule, finer in family.levels.items())
    dense = {}
    if "framed" in rollup.ways:
        tables = (family.granule, *family.levels)
        dense = {granule: timed(rollup.densify(family, granule)) for granule in tables}
    units = {batch: units_of([family], batch) for batch in ("query", "window")}
    spent: dict[Unit, dict[Way, float]] = {unit: {} for batch in units.values() for unit in batch}

    def attempt(unit: Unit, way: Way) -> float:
        def once() -> float:
            empty(folder)
            return timed(rollup.answers(unit, way, folder))

        first = once()
        for query in unit.queries:
            compare(query, ours(query.name, day.interval), folder, rollup.title)
        return min(first, once()) if first < HOPELESS / 2 * min(spent[unit].values(), default=math.inf) else first

    def try_all(unit: Unit, granule: int, lost: dict[str, int]) -> float:
        """The least CPU seconds from a granule; ``lost``: how often each way was hopeless in a row, renewed."""
        ways = [Way(granule, how) for how in rollup.ways if lost[how] < PATIENCE]
        for way in ways:
            if way not in spent[unit]:
                spent[unit][way] = attempt(unit, way)
        least = min(spent[unit][way] for way in ways)
        for way in ways:
            lost[way.how] = lost[way.how] + 1 if spent[unit][way] > HOPELESS * least else 0
        return least

    lost = dict.fromkeys(rollup.ways, 0)
    from_levels = {unit: try_all(unit, unit.granule, lost) for unit in spent}
    lost, excess = dict.fromkeys(rollup.ways, 0), 0.0
    for unit in spent:
        if excess <= HOPELESS * levels:  # else it does not get cheaper any more than levels are with what makes them
            excess += try_all(unit, family.granule, lost) - from_levels[unit]
    rollup.run(rollup.forget(family))
    tunings: dict[str, tuple[float, Tuning]] = {}
    subsets = [(how,) for how in rollup.ways] + ([rollup.ways] if len(rollup.ways) > 1 else [])
    for is_finest, batch, hows in product((True, False), units, subsets):
        chosen: dict[Unit, Way] = {}
        for unit in units[batch]:
            ways = [Way(family.granule if is_finest else unit.granule, how) for how in hows]
            if known := [way for way in ways if way in spent[unit]]:
                chosen[unit] = min(known, key=spent[unit].__getitem__)
        tuning = Tuning(family, not is_finest and bool(family.levels), chosen)
        total = build + levels * tuning.levels + math.fsum(dense[granule] for granule in tuning.dense)
        total += math.fsum(spent[unit][way] for unit, way in chosen.items())
        if len(chosen) < len(units[batch]):
            total = math.inf
        how = hows[0] if len(hows) == 1 else "each its best"
        label = f"{'finest' if is_finest else 'levels'}, a {batch} at a time, {how}"
        tunings[label] = total, tuning
        variants[label] = variants.get(label, 0.0) + total
    total, best = min(tunings.values(), key=lambda each: each[0])
    variants["chosen"] = variants.get("chosen", 0.0) + total
    return best


def compare(query: ACQ, ours: pa.Table, folder: Path, title: str) -> None:
    """ValueError if the file of a query's answers does not hold what ours are, in the declared types."""
    peer_answers = pq.read_table(folder / f"{query.name}.parquet")
    problem = difference(query, ours, peer_answers)
    if problem is None:
        types = {output.name: TYPES[output.type.name][1] for output in query.outputs}
        ends, starts = (
            peer_answers[name].cast(pa.timestamp("us")).cast(pa.int64()) for name in ("window_end", "window_start")
        )
        if wrong := [name for name, type in types.items() if peer_answers.schema.field(name).type != type]:
            problem = f"{wrong[0]} is of type {peer_answers.schema.field(wrong[0]).type}"
        elif pc.any(pc.not_equal(pc.subtract(ends, starts), query.window.range)).as_py():
            problem = "window_end is not the same"
    if problem:
        raise ValueError(f"{title}: {query.name} is not what Heddle answers: {problem}")


def empty(folder: Path) -> None:
    """Make a folder that holds nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


# ---------------------------------------------------------------------------------------------- measuring
DAYS = (0, 1)
OURS = {
    "all": "Heddle, local engine",
    "none": "Heddle, local engine, --checks none",
    "spark": "Heddle on Spark, a session that stays",
    "submit": "Heddle on Spark, a spark-submit a day",
}
"""Ways to run Heddle; all but the second with all checks."""

Spending = tuple[Measured, Measured]
"""Of the first day, of the second."""


def _unmeasured() -> Spending:
    return Measured(), Measured()


@dataclass
class Size:
    """A number of queries: what Heddle spent, by way (:data:`OURS`), and each engine over its rollup; by engine what
    the variants cost in the trial."""

    queries: int
    plan: SharingPlan
    answers: list[int] = field(default_factory=list)
    ours: dict[str, Spending] = field(default_factory=dict)
    peers: dict[str, Spending] = field(default_factory=dict)
    variants: dict[str, dict[str, float]] = field(default_factory=dict)

    def ratio(self, peer: str, day: int, way: str = "all") -> float:
        """How many times an engine's CPU seconds are Heddle's, run in a way: the median of the rounds'."""
        peer_cpu, ours = self.peers[peer][day].cpu, self.ours[way][day].cpu
        ratios = [their / our for their, our in zip(peer_cpu, ours, strict=False)]
        return statistics.median(ratios) if ratios else math.nan

    def to_json(self) -> dict[str, Any]:
        return {
            "queries": self.queries,
            "answers": self.answers,
            "heddle": {way: [asdict(day) for day in spent] for way, spent in self.ours.items()},
            "rollups": {
                name: {
                    "days": [asdict(day) for day in spent],
                    "over_heddle": {way: [_number(self.ratio(name, day, way)) for day in DAYS] for way in self.ours},
                    "trial": {label: _number(cpu) for label, cpu in self.variants.get(name, {}).items()},
                }
                for name, spent in self.peers.items()
            },
        }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Ground:
    """Where a workload is measured: the days' events, how many a day, a folder for all that is written, and what
    Heddle's runs compute with, which stays warm: ``spark`` only where Heddle is measured on Spark, too."""

    streams: Sequence[Stream]
    events: int
    scratch: Path
    local: choice.Engine
    spark: choice.Engine | None = None

    @classmethod
    def of(
        cls, data: Path, events: int, scratch: Path, local: choice.Engine, spark: choice.Engine | None = None
    ) -> Ground:
        """The days' events are kept in ``data``."""
        return cls([generate(data, events, day=day) for day in DAYS], events, scratch, local, spark)

    @property
    def ways(self) -> Sequence[str]:
        """The ways in which Heddle is measured."""
        return list(OURS) if self.spark is not None else list(OURS)[:2]

    @property
    def stream(self) -> Stream:
        """What Heddle reads: the events that have arrived."""
        return replace(self.streams[0], source=Source("parquet", str(self.scratch.resolve() / "stream")))

    def arrive(self, day: int) -> None:
        """The events of a day become part of the stream; those of the first are all."""
        folder = Path(self.stream.source.path)
        if not day:
            empty(folder)
        for path in sorted(Path(self.streams[day].source.path).iterdir()):
            os.link(path, folder / f"day{day}-{path.name}")

    def day(self, number: int) -> Day:
        return Day(number, Path(self.streams[number].source.path), self.scratch.resolve() / "store")

    @property
    def folder(self) -> Path:
        """Of an engine's answers."""
        return self.scratch.resolve() / "answers"

    def clear_store(self, families: Sequence[Family]) -> None:
        for family in families:
            empty(self.scratch / "store" / family.name)


class Comparison:
    """The rounds of one number of queries."""

    def __init__(
        self, ground: Ground, kind: Kind, queries: int, rollups: Mapping[str, Rollup], report: Callable[[str], None]
    ) -> None:
        ground.arrive(0)
        self.ground, self.rollups, self.report = ground, rollups, report
        self.workload = kind.workload(ground.stream, queries)
        self.families = families_of(self.workload.queries)
        self.tunings: dict[str, list[Tuning]] = {}
        self.title = f"{kind.name}, {queries:,} queries"
        self.size = Size(queries, plan_of(self.workload, ground.events))
        self.size.ours = {way: _unmeasured() for way in ground.ways}
        self.size.peers = {name: _unmeasured() for name in rollups}

    def warm_up(self) -> None:
        """Tune each engine, compare all of its answers of both days with Heddle's, and warm everything up."""
        with self._noted(self.size.ours["all"], "warming up: Heddle") as _, self._heddle("all", True) as warehouse:

            @lru_cache(512)
            def ours(query: str, interval: Interval) -> pa.Table:
                return read(warehouse, query, *interval)

            for name, rollup in self.rollups.items():
                with self._noted(self.size.peers[name], f"trial: {rollup.title}"):
                    self._tune(name, ours)
                    self._refresh(name, True, ours)
        if self.ground.spark is not None:
            with self._noted(self.size.ours["spark"], "warming up: Spark"), self._heddle("spark", True):
                pass

    def measure(self, number: int, rounds: int) -> None:
        """A round: Heddle and each engine in turn."""
        for way in self.ground.ways:
            with self._noted(self.size.ours[way], f"round {number} of {rounds}: {OURS[way]}") as going:
                if going:
                    with self._heddle(way, False):
                        pass
        for name, rollup in self.rollups.items():
            with self._noted(self.size.peers[name], f"round {number} of {rounds}: {rollup.title}") as going:
                if going:
                    self._refresh(name, False)

    def _noted(self, spending: Spending, saying: str) -> AbstractContextManager[bool]:
        return noted(spending[0], f"{self.title}, {saying}", self.report)

    def _tune(self, name: str, ours: Ours) -> None:
        rollup, day = self.rollups[name], self.ground.day(0)
        trials, rollup.cold_trials = rollup.cold_trials + 1, 0
        for _ in range(trials):
            variants = self.size.variants[name] = {}
            self.ground.clear_store(self.families)
            self.tunings[name] = [
                tune(rollup, family, day, self.ground.folder, ours, variants) for family in self.families
            ]

    def _refresh(self, name: str, warming: bool, ours: Ours | None = None) -> None:
        """Both days by an engine."""
        rollup = self.rollups[name]
        self.ground.clear_store(self.families)
        for number in DAYS:
            empty(self.ground.folder)
            day = self.ground.day(number)
            action = partial(rollup.refresh, self.tunings[name], day, self.ground.folder)
            self.size.peers[name][number].add(spent_by(action, rollup.processes)[0], warming)
            if ours is not None:
                for query in self.workload.queries:
                    compare(query, ours(query.name, day.interval), self.ground.folder, rollup.title)

    @contextmanager
    def _heddle(self, way: str, warming: bool) -> Iterator[Warehouse]:
        """Both days by Heddle into a fresh warehouse, which exists as long as the context."""
        root = self.ground.scratch / "warehouse"
        warehouse = Warehouse.open(root)
        try:
            version, _ = publish_plan(warehouse, self.size.plan)
            for number in DAYS:
                self.ground.arrive(number)
                spent, _ = spent_by(partial(self._publish, way, warehouse, version, number))
                self.size.ours[way][number].add(spent, warming)
            rows = publish_log.newest_rows(warehouse, "interval_end", publish_log.PUBLISHED, len(DAYS))
            self.size.answers = [row.record.answers or 0 for row in reversed(rows)]
            yield warehouse
        finally:
            shutil.rmtree(root)

    def _publish(self, way: str, warehouse: Warehouse, version: int, number: int) -> None:
        """A day by Heddle."""
        begin, end = self.ground.day(number).interval
        if way == "submit":
            arguments = ["--warehouse", str(warehouse.root), "--plan-version", str(version), "--run-id", f"day{number}"]
            arguments += ["--from", format_instant(begin), "--to", format_instant(end)]
            environment = os.environ | {"PYTHONPATH": str(ROOT), "HEDDLE_ENGINE": "spark"}
            subprocess.run(submitted(ROOT, arguments), cwd=ROOT, env=environment, capture_output=True, check=True)
            return
        engine = self.ground.spark if way == "spark" else self.ground.local
        assert engine is not None
        checks = "none" if way == "none" else "all"
        run(engine, warehouse, version, begin, end, f"day{number}", as_of=end + DAY, checks=checks)


def measure(
    ground: Ground,
    kind: Kind,
    sizes: Sequence[int],
    rounds: int,
    rollups: Mapping[str, Rollup],
    report: Callable[[str], None],
) -> Iterator[Size]:
    """Measure Heddle and rollups over two days, a number of queries after another.

    What fails, or answers otherwise than Heddle, is reported and from then on left out.
    """
    for queries in sorted(sizes):
        comparison = Comparison(ground, kind, queries, rollups, report)
        comparison.warm_up()
        for number in range(1, rounds + 1):
            comparison.measure(number, rounds)
        yield comparison.size


def tables(kind: str, events: int, found: Sequence[Size]) -> list[Table]:
    """What was measured of one kind of workload, for people."""
    shown = Table(title=f"{kind}, {events:,} events a day, rollups", title_justify="left", caption_justify="left")
    shown.add_column("queries")
    tried = Table("trial, CPU seconds of the first day", title=f"{kind}, variants of rollups", title_justify="left")
    for size in found:
        shown.add_column(f"{size.queries:,}", justify="right")
        shown.add_column("second day", justify="right")
        tried.add_column(f"{size.queries:,}", justify="right")
    shown.add_row("answers", *(f"{answers:,}" for size in found for answers in size.answers), end_section=True)
    for way in found[0].ours:
        shown.add_row(OURS[way], *(_seconds(day) for size in found for day in size.ours[way]), style="bold")
    shown.add_section()
    for name in found[0].peers:
        cells = []
        for size, day in product(found, DAYS):
            spent = size.peers[name]
            ratios = "; ".join(f"{size.ratio(name, day, way):.2f}" for way in size.ours)
            cells.append("fails" if spent[0].failure else f"{_seconds(spent[day])} ({ratios})")
        shown.add_row(ROLLUPS[name].title, *cells)
        for label in dict.fromkeys(label for size in found for label in size.variants.get(name, {})):
            cells = [f"{size.variants.get(name, {}).get(label, math.inf):.2f}" for size in found]
            tried.add_row(f"{ROLLUPS[name].title}: {label}", *cells)
    shown.caption = "CPU seconds, medians; in brackets: times Heddle's, in the ways above."
    return [shown, tried]


def _seconds(spent: Measured) -> str:
    return "fails" if spent.failure else f"{spent.median:.2f}"
