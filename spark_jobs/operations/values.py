"""Values that an operator sees of a warehouse: read by :mod:`spark_jobs.operations.read`, drawn by the operating
view.

Instants of data are microseconds since 1970 (UTC), intervals are [begin, end), and instants of the clock are
datetimes that know their zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from optimizer.errors.diagnostics import Diagnostic
from spark_jobs.pipeline.costs.money import CpuPrice

Status = Literal["published", "failed", "no end"]


@dataclass(frozen=True)
class Run:
    """One run of the log.

    - ``begin``, ``end``: its interval (microseconds); times in seconds;
    - ``status``: ``"no end"`` is a run that got a revision and neither published nor failed: it runs, or it died;
    - ``problems``: errors;
    - ``fewer``: queries that have fewer answers in the interval by this run, with the numbers before and after;
    - ``empty``: those that have none;
    - ``docs``: name of its Data Docs page, "" if there is none;
    - ``checked``: the extent of the checks (:data:`spark_jobs.store.settings.CHECKS`);
    - ``engine``: the engine that computed;
    - ``application``, ``jobs``: of Spark, its id and a line a job.
    """

    run_id: str
    status: Status
    at: datetime
    begin: int
    end: int
    revision: int
    plan_version: int
    answers: int = 0
    queries: int = 0
    events: int = 0
    measured: float | None = None
    predicted: float | None = None
    wall: float | None = None
    passed: int = 0
    checks: int = 0
    live: bool = False
    late: bool = False
    lateness: tuple[tuple[str, int], ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    fewer: tuple[tuple[str, int, int], ...] = ()
    empty: tuple[str, ...] = ()
    docs: str = ""
    checked: str = "all"
    engine: str = ""
    application: str = ""
    jobs: tuple[str, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Return whether the run published an interval without a single answer."""
        return self.status == "published" and not self.answers


@dataclass(frozen=True)
class Refreshed:
    """A query with a refresh bound (microseconds): ``answered`` last at that instant, late in ``late_runs`` of the runs
    shown, by at most ``latest``, in the newest run by ``now``."""

    query: str
    bound: int
    average: int
    answered: int | None
    latest: int
    late_runs: int
    now: int


@dataclass(frozen=True)
class Check:
    """One check of a run's answers that failed."""

    run_id: str
    at: datetime
    begin: int
    end: int
    name: str
    detail: str


@dataclass(frozen=True)
class Sampled:
    """Queries that one run recomputed unshared, and how many of them differed. ``names``: of those that did."""

    run_id: str
    at: datetime
    queries: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Publication:
    """One publication of an interval, and why it came after the one before."""

    revision: int
    at: datetime
    run_id: str
    plan_version: int
    answers: int
    events: int
    why: str


@dataclass(frozen=True)
class Revised:
    """An interval that was published more than once, its publications oldest first."""

    begin: int
    end: int
    publications: tuple[Publication, ...]


class Touched(NamedTuple):
    """Numbers of answers of a query that differ, are new, or were removed."""

    query: str
    changed: int
    new: int
    gone: int


@dataclass(frozen=True)
class Radius:
    """Changes of one publication for readers; ``answers``: of the interval, before and after."""

    begin: int
    end: int
    revision: int
    answers: tuple[int, int]
    queries: tuple[Touched, ...]


@dataclass(frozen=True)
class Stale:
    """A published interval whose source has changed since: late ``events``, the ``fragments`` that they fall into, and
    the queries and windows that may be others now."""

    begin: int
    end: int
    revision: int
    events: int
    fragments: int
    queries: int
    windows: int


@dataclass(frozen=True)
class Quarantined:
    """Rows of a stream in quarantine for one reason, over all runs."""

    stream: str
    code: str
    rows: int
    runs: int
    last: datetime
    detail: str


@dataclass(frozen=True)
class Saving:
    """CPU seconds of an owner's queries over the runs shown: their part in what was measured, and unshared.

    A run's measured CPU seconds are divided as its plan's cost is: an owner's part is measured × here / cost, and
    unshared it would have been measured × alone / cost, where *here* and *alone* are the sums over the owner's queries
    of :class:`optimizer.plan.accounts.Account`, and *cost* is the plan's.
    """

    owner: str
    queries: int
    part: float
    unshared: float


@dataclass(frozen=True)
class Version:
    """A stored plan version, as its history lists it. Costs are per second in the unit of its model."""

    number: int
    made: datetime
    by: str
    because: str
    algorithm: str
    cost_model: str
    cost: float
    no_share: float
    queries: int
    trees: int


@dataclass(frozen=True)
class Operations:
    """All that the operating view shows. ``stale`` None: not checked, because a check lists all sources.

    ``price``: the price of a CPU hour, if it is set; ``covered``: microseconds of event time that the runs whose
    costs are divided in ``savings`` published. ``sampled``: of all runs ever, oldest first; ``recomputed`` their
    sum; ``all_checks``: (passed, failed) ever.
    """

    now: datetime
    plan_version: int | None = None
    queries: int = 0
    runs: tuple[Run, ...] = ()
    refreshed: tuple[Refreshed, ...] = ()
    failed_checks: tuple[Check, ...] = ()
    all_checks: tuple[int, int] = (0, 0)
    sampled: tuple[Sampled, ...] = ()
    revised: tuple[Revised, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    savings: tuple[Saving, ...] = ()
    unpriced: int = 0
    stale: tuple[Stale, ...] | None = None
    looked_at: int = 0
    intervals: int = 0
    price: CpuPrice | None = None
    covered: int = 0
