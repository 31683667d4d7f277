"""Histories of a warehouse under faults, and the one invariant that must hold after every step.

A *history* is drawn from a seed: runs of intervals in any order, some repeated, some of them by other plans, late
events, maintenance, backfills over several intervals. In each a *failpoint* goes off once, at a drawn step: the process
"dies" there (an exception that nothing in the code knows), before or after the effect. Then the run is tried again, as
Airflow would. After every step, whatever happened, an independent judge compares what readers see with the DuckDB
oracle over the events as they were when each interval was last published.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from spark_jobs.operations import maintenance as maintenance_module
from spark_jobs.pipeline.run import checks_stage, finals_stage, preparation, publication, stage_tasks
from spark_jobs.results import own_table, tables
from spark_jobs.results.read import read
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse import warehouse as warehouse_module
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.windows.partials import stored_coverage
from tests import oracle
from tests.spark_jobs import followed
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
        original, remaining_calls = getattr(self.owner, self.name), [self.call]

        def dying(*args: Any, **kwargs: Any) -> Any:
            remaining_calls[0] -= 1
            if remaining_calls[0] == 0 and not self.after:
                raise Died(str(self))
            result = original(*args, **kwargs)
            if remaining_calls[0] == 0:
                raise Died(str(self))
            return result

        setattr(self.owner, self.name, dying)
        try:
            yield
        finally:
            setattr(self.owner, self.name, original)


STEPS: tuple[tuple[Any, str, int], ...] = (
    (preparation, "prepare", 1),
    (publish_log, "reconcile", 1),
    (publish_log, "revision_of", 1),
    (stage_tasks, "write_partials", 1),
    (stored_coverage, "store_coverage", 1),
    (finals_stage, "write_finals", 1),
    (stage_tasks, "done", 3),
    (checks_stage, "audit", 1),
    (publication, "log_checks", 1),
    (publication, "publish", 1),
    (tables, "follow", 1),
    (own_table, "replace", 1),
    (publication, "log_statistics", 1),
    (publish_log, "log_event", 1),
    (stored_coverage, "write_files", 1),
    (warehouse_module.Warehouse, "replace", 2),
    (warehouse_module.Warehouse, "append", 3),
    (warehouse_module.Warehouse, "check_lease", 4),
    (DeltaTable, "create_write_transaction", 2),
    (warehouse_module, "write_deltalake", 3),
)
"""Where a run can die: owner, function, and how often it is called at least."""

FAILPOINTS = tuple(
    Failpoint(owner, name, after, call)
    for owner, name, calls in STEPS
    for call in range(1, calls + 1)
    for after in (False, True)
)

TABLED = QUERIES.replace("-- name: all\n", "-- name: all\n-- table: all\n")

PLANS = (
    TABLED,
    TABLED.replace("25 minutes", "35 minutes"),
    TABLED
    + "-- name: more\nSELECT max(price) AS high FROM trades WINDOW RANGE '30 minutes' SLIDE '15 minutes' ON ts;\n",
)
INTERVALS = ((0, 60), (60, 120), (120, 180))


Publication = tuple[int, int, int, list[Event]]
"""Of the minutes (begin, end], by a plan version, over these events."""


def standing(published: Sequence[Publication]) -> list[Publication]:
    """The pieces of time without overlap with the newest publication of each."""
    pieces: list[Publication] = []
    for begin, end, *what in published:
        cut: list[Publication] = []
        for low, high, version, events in pieces:
            cut += [(low, min(high, begin), version, events)] if low < begin else []
            cut += [(max(low, end), high, version, events)] if high > end else []
        pieces = [*cut, (begin, end, *what)]  # type: ignore[list-item]
    return pieces


@dataclass
class History:
    """What happened to one warehouse, and what each minute's answers of a query must be of: the events at the time that
    they were published last by a plan that has it, and that plan."""

    laboratory: Laboratory
    chance: random.Random
    events: list[Event] = field(default_factory=lambda: steady(180))
    version: int = 0
    published: list[Publication] = field(default_factory=list)
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
            maintenance_module.maintain(self.laboratory.warehouse)
        self.told.append(f"{what} (version {self.version})")
        begin, end = self.chance.choice((*INTERVALS, (0, 180)))
        if what == "repeat" and self.published:
            begin, end = self.chance.choice(sorted({(low, high) for low, high, *_ in self.published}))
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
                self.judge(maybe=(begin, end, self.version, self.events))
        self.laboratory.run(self.version, begin, end, run_id)
        self.published.append((begin, end, self.version, self.events))
        self.judge()

    # ----------------------------------------------------------------------------------------- the judge
    def wrong(self, extra: Publication | None = None) -> list[str]:
        warehouse, violations = self.laboratory.warehouse, []
        published = [*self.published, *([extra] if extra is not None else [])]
        plans = {version: load_plan(warehouse, version).workload for _, _, version, _ in published}
        queries = {version: {query.name: query for query in plan.queries} for version, plan in plans.items()}
        rows = DeltaTable(warehouse.path("results")).to_pyarrow_table(columns=["query", "instant"])
        seen = {(row["query"], (int(row["instant"].timestamp() * 1e6) - DAY) / MINUTE) for row in rows.to_pylist()}
        for name in sorted({name for known in queries.values() for name in known} | {name for name, _ in seen}):
            pieces = standing([publication for publication in published if name in queries[publication[2]]])
            instants = {at for of, at in seen if of == name}
            strange = {at for at in instants if not any(low < at <= high for low, high, *_ in pieces)}
            violations += [f"{name} is published at {sorted(strange)[:3]}, and nobody asked for it"] * bool(strange)
            answers = read(warehouse, name) if instants else None
            for begin, end, version, events in pieces:
                low, high = DAY + begin * MINUTE, DAY + end * MINUTE
                query = queries[version][name]
                expected = oracle.answers(query, table_of(events), "ts", low, high)
                if answers is None:
                    violations += [f"{name} has no answers"] * bool(expected)
                    continue
                ends = answers["window_end"].cast("timestamp[us]").cast("int64")
                inside = pc.and_(pc.greater(ends, low), pc.less_equal(ends, high))
                violations += oracle.compare(query, answers.filter(inside), expected)
        return violations

    def judge(self, maybe: Publication | None = None) -> None:
        """One invariant: what is published equals the oracle, and no interval's revision was published twice."""
        wrong = self.wrong()
        if wrong and maybe is not None:
            wrong = self.wrong(maybe)
        log = [row for row in self.laboratory.warehouse.rows("publish_log") if row["event"] == "published"]
        keys = [(row["interval_start"], row["interval_end"], row["revision"]) for row in log]
        if len(set(keys)) < len(keys):
            wrong.append("one revision of an interval was published twice")
        wrong += followed.torn(self.laboratory.warehouse)
        if maybe is None:
            wrong += followed.wrong(self.laboratory.warehouse)
        if wrong:
            raise AssertionError("\n".join([*self.told, *wrong[:5]]))


def play(laboratory: Laboratory, seed: int, failpoints: tuple[Failpoint, ...], steps: int = 3) -> History:
    """One history: a failpoint goes off at each step."""
    history = History(laboratory, random.Random(seed))
    for number in range(steps):
        history.step(failpoints[number % len(failpoints)] if failpoints else None)
    return history
