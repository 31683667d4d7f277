"""Histories of a warehouse under faults, and the one invariant that must hold after every step.

A *history* is drawn from a seed: runs of intervals in any order, some repeated, some of them by other plans, late
events, maintenance, backfills over several intervals. In each a *failpoint* goes off once, at a drawn step: the process
"dies" there (an exception that nothing in the code knows), before or after the effect. Then the run is tried again, as
Airflow would. After every step, whatever happened, an independent judge compares what readers see with the DuckDB
oracle over the events as they were when each interval was last published.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

import spark_jobs.maintenance as maintenance
import spark_jobs.run as running
from spark_jobs import tables
from spark_jobs.planning import load_plan
from spark_jobs.read import read
from tests import oracle
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Event, Laboratory, steady, table_of


class Died(BaseException):
    """The process is gone: nothing in the code may catch it to go on."""


@dataclass(frozen=True)
class Failpoint:
    """Dies at the ``call``-th call of a function, before or after its effect."""

    owner: Any
    name: str
    after: bool
    call: int = 1

    def __str__(self) -> str:
        place = getattr(self.owner, "__name__", str(self.owner)).rpartition(".")[2]
        return f"{place}.{self.name} {'after' if self.after else 'before'} call {self.call}"

    @contextmanager
    def armed(self) -> Iterator[None]:
        held, left = getattr(self.owner, self.name), [self.call]

        def dying(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not self.after:
                raise Died(str(self))
            result = held(*given, **named)
            if left[0] == 0:
                raise Died(str(self))
            return result

        setattr(self.owner, self.name, dying)
        try:
            yield
        finally:
            setattr(self.owner, self.name, held)


STEPS: tuple[tuple[Any, str, int], ...] = (
    (running, "_prepared", 1),
    (running, "_reconcile", 1),
    (running, "_revision", 1),
    (running, "_write_partials", 1),
    (running, "_store", 1),
    (running, "_written", 1),
    (running, "_write_finals", 1),
    (running, "_outcomes", 2),
    (running, "audit", 1),
    (running, "_log_checks", 1),
    (running, "_publish", 1),
    (running, "_log_statistics", 1),
    (running, "_log", 1),
    (running, "write_files", 1),
    (tables.Warehouse, "replace", 2),
    (tables.Warehouse, "append", 3),
    (tables.Warehouse, "check_lease", 4),
    (DeltaTable, "create_write_transaction", 2),
    (tables, "write_deltalake", 3),
)
"""Where a run can die: owner, function, and how often it is called at least."""

FAILPOINTS = tuple(
    Failpoint(owner, name, after, call)
    for owner, name, calls in STEPS
    for call in range(1, calls + 1)
    for after in (False, True)
)

PLANS = (
    QUERIES,
    QUERIES.replace("25 minutes", "35 minutes"),
    QUERIES
    + "-- name: more\nSELECT max(price) AS high FROM trades WINDOW RANGE '30 minutes' SLIDE '15 minutes' ON ts;\n",
)
INTERVALS = ((0, 60), (60, 120), (120, 180))


@dataclass
class History:
    """What happened to one warehouse, and what each minute's answers must be of: the events at the time that they were
    published, and the plan."""

    laboratory: Laboratory
    chance: random.Random
    events: list[Event] = field(default_factory=lambda: steady(180))
    version: int = 0
    published: dict[tuple[int, int], tuple[int, list[Event]]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    deaths: int = 0

    def __post_init__(self) -> None:
        self.laboratory.write(self.events)
        self.laboratory.write([], "quotes")
        self.version = self.laboratory.plan(self.chance.choice(PLANS))

    # ----------------------------------------------------------------------------------------- what happens
    def step(self, failpoint: Failpoint | None) -> None:
        what = self.chance.choices(("run", "late", "plan", "repeat", "maintain"), (6, 2, 2, 3, 1))[0]
        if what == "late":
            at = self.chance.randrange(180) + 0.25
            self.events = [*self.events, (at, self.chance.choice("ABC"), 1.0 + len(self.events), 3)]
            self.laboratory.write(self.events)
        elif what == "plan":
            self.version = self.laboratory.plan(self.chance.choice(PLANS))
        elif what == "maintain":
            maintenance.maintain(self.laboratory.warehouse)
        self.told.append(f"{what} (version {self.version})")
        begin, end = self.chance.choice((*INTERVALS, (0, 180)))
        if what == "repeat" and self.published:
            begin, end = self.chance.choice(sorted(self.published))
        self.run(begin, end, failpoint)

    def run(self, begin: int, end: int, failpoint: Failpoint | None) -> None:
        run_id = f"run {len(self.told)}"
        self.told.append(f"{run_id} of {begin}..{end}" + (f", dies at {failpoint}" if failpoint else ""))
        if failpoint is not None:
            try:
                with failpoint.armed():
                    self.laboratory.run(self.version, begin, end, run_id)
            except Died:
                self.deaths += 1
                # readers see the interval as it was, or as it will be, whole
                self.judge(maybe=(begin, end))
        self.laboratory.run(self.version, begin, end, run_id)
        self.record(begin, end)
        self.judge()

    def record(self, begin: int, end: int) -> None:
        """What readers must see from now on; a larger interval replaces what it covers."""
        self.published = {
            span: what for span, what in self.published.items() if not (begin <= span[0] and span[1] <= end)
        }
        self.published[begin, end] = self.version, list(self.events)

    # ----------------------------------------------------------------------------------------- the judge
    def pieces(self, extra: tuple[int, int] | None = None) -> list[tuple[int, int, int, list[Event]]]:
        """What stands: (begin, end, plan version, events) without overlap, later publications over earlier ones."""
        spans = dict(self.published)
        if extra is not None:
            spans.pop(extra, None)
            spans[extra] = self.version, list(self.events)
        found: list[tuple[int, int, int, list[Event]]] = []
        for (begin, end), what in spans.items():
            cut = []
            for low, high, *rest in found:
                cut += [(low, min(high, begin), *rest)] if low < begin else []
                cut += [(max(low, end), high, *rest)] if high > end else []
            found = [*cut, (begin, end, *what)]  # type: ignore[list-item]
        return found

    def wrong(self, extra: tuple[int, int] | None = None) -> list[str]:
        warehouse, found = self.laboratory.warehouse, []
        rows = DeltaTable(warehouse.path("results")).to_pyarrow_table(columns=["query", "instant"])
        seen = {(row["query"], (int(row["instant"].timestamp() * 1e6) - DAY) / MINUTE) for row in rows.to_pylist()}
        for begin, end, version, events in self.pieces(extra):
            low, high = DAY + begin * MINUTE, DAY + end * MINUTE
            queries = load_plan(warehouse, version).workload.queries
            strangers = {name for name, at in seen if begin < at <= end} - {query.name for query in queries}
            found += [f"{name} is published in {begin}..{end}, and nobody asked for it" for name in strangers]
            for query in queries:
                expected = oracle.answers(query, table_of(events), "ts", low, high)
                answers = read(warehouse, query.name) if any(name == query.name for name, _ in seen) else None
                if answers is None:
                    found += [f"{query.name} has no answers"] * bool(expected)
                    continue
                ends = answers["window_end"].cast("timestamp[us]").cast("int64")
                inside = pc.and_(pc.greater(ends, low), pc.less_equal(ends, high))
                found += oracle.compare(query, answers.filter(inside), expected)
        return found

    def judge(self, maybe: tuple[int, int] | None = None) -> None:
        """One invariant: what is published equals the oracle, and no interval's revision was published twice."""
        wrong = self.wrong()
        if wrong and maybe is not None:
            wrong = self.wrong(maybe)
        log = [row for row in self.laboratory.warehouse.rows("publish_log") if row["event"] == "published"]
        keys = [(row["interval_start"], row["interval_end"], row["revision"]) for row in log]
        if len(set(keys)) < len(keys):
            wrong.append("one revision of an interval was published twice")
        if wrong:
            raise AssertionError("\n".join([*self.told, *wrong[:5]]))


def play(laboratory: Laboratory, seed: int, failpoints: tuple[Failpoint, ...], steps: int = 3) -> History:
    """One history: a failpoint goes off at each step."""
    history = History(laboratory, random.Random(seed))
    for number in range(steps):
        history.step(failpoints[number % len(failpoints)] if failpoints else None)
    return history
