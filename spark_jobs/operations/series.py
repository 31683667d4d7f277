"""Values that the pages of answers show, read by :mod:`spark_jobs.operations.answers`.

Instants of data, and spans of time, are microseconds, instants since 1970 (UTC); moments of the clock are datetimes
that know their zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from optimizer.workload.values import ACQ, Window

Grouping = Literal["", "sum", "largest"]
"""Ways to make one number of the answers of several groups: not at all, their sum, or the largest."""


class Sample(NamedTuple):
    """The value of an output at an instant, and which revision of the interval published it."""

    instant: int
    value: float
    revision: int


@dataclass(frozen=True)
class Line:
    """The samples of one group, by instant. ``key``: the group as results have it; ``label``: as people read it;
    ``breaks``: instants of samples before which the line is broken; None: where some seem to be missing."""

    key: str
    label: str
    samples: tuple[Sample, ...]
    breaks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class OutputLines:
    """The lines of one numeric output."""

    output: str
    lines: tuple[Line, ...]


# -------------------------------------------------------------------------------------------- all queries
@dataclass(frozen=True)
class Sparkline:
    """The newest samples of a query's first numeric output; ``grouping`` is the way several groups are combined.
    ``groups``: the number of them in the newest sample; ``breaks``: as those of :class:`Line`.
    """

    output: str
    groups: int
    grouping: Grouping
    samples: tuple[Sample, ...]
    breaks: tuple[int, ...] = ()


@dataclass(frozen=True)
class ListedQuery:
    """A query in the list of answers.

    ``newest``: its newest window [start, end) and the revision of it; None: it has none in the days read. ``late``: by
    how much its refresh bound was exceeded in the newest live run, None without a bound. ``is_missing``: that run left
    it without an answer. ``errors``: answers with an error in the days read. ``text``: its newest answer in words,
    where no output is a number.
    """

    name: str
    owner: str
    stream: str
    state: str
    window: Window
    newest: tuple[int, int, int] | None = None
    late: int | None = None
    is_missing: bool = False
    errors: int = 0
    sparkline: Sparkline | None = None
    text: str = ""


@dataclass(frozen=True)
class Choice:
    """Selection of the listed queries: those whose name or stream has ``text``, of an ``owner``, in a ``state``
    ("": all); and the number of the page, from 1.
    """

    text: str = ""
    owner: str = ""
    state: str = ""
    page: int = 1


@dataclass(frozen=True)
class Listing:
    """A page of the list of answers. ``total``: how many queries are chosen; ``states``: how many are in each state, of
    all; ``days``: the first and last day of results that was read ("": there are none); ``late``: of all queries, those
    that were answered too late in the newest live run."""

    now: datetime
    choice: Choice
    queries: tuple[ListedQuery, ...] = ()
    total: int = 0
    pages: int = 1
    states: Mapping[str, int] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    days: tuple[str, str] = ("", "")
    late: int = 0


# -------------------------------------------------------------------------------------------- one query
SpanName = Literal["day", "week", "month", "all", "between"]


@dataclass(frozen=True)
class Span:
    """The instants (begin, end] that are shown; None: no limit."""

    name: SpanName
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class FailedAnswer:
    """An answer that could not be given: of an instant and a group, with its code."""

    instant: int
    group: str
    code: str


@dataclass(frozen=True)
class Group:
    """A group of a query's answers, and its newest value of the first numeric output (None: it has none)."""

    key: str
    label: str
    value: float | None


@dataclass(frozen=True)
class QueryRun:
    """One run that answered a query, or had to. ``late``: its lateness; ``part``: CPU seconds, the query's part of
    those measured of the run; ``checked``: the extent of the checks of its answers
    (:data:`spark_jobs.store.settings.CHECKS`).
    """

    run_id: str
    status: str
    at: datetime
    begin: int
    end: int
    revision: int
    plan_version: int
    late: int
    measured: float | None
    part: float | None
    checked: str = "all"


@dataclass(frozen=True)
class Compared:
    """Measurement of ``heddle compare`` of a query in an interval, in CPU seconds: the unshared run of the query,
    and its ``part`` of the shared run.
    """

    at: str
    begin: int
    end: int
    unshared: float
    part: float


@dataclass(frozen=True)
class QueryCost:
    """Cost of a query in the plan that answers it.

    - ``tree``: the query's tree, with its number of ``sharers``, of which ``names`` are some;
    - ``anchor``: the place of the tree in the plan's page;
    - ``share``: the query's part of the plan's cost, from 0 to 1;
    - ``part``: the same part of the CPU seconds that were measured of ``runs`` runs;
    - ``unshared``: the measurement of these runs if the query had a separate tree, by the cost model;
    - ``a_month``: the cost of its part in a month at the price of a CPU hour, as text, "" without a price.
    """

    plan_version: int
    tree: str
    sharers: int
    names: tuple[str, ...]
    share: float
    runs: int
    measured: float
    part: float
    unshared: float
    compared: Compared | None = None
    a_month: str = ""


@dataclass(frozen=True)
class Happened:
    """An event in the history of a query, with its time and reason."""

    at: int
    event: str
    plan_version: int | None
    reason: str


@dataclass(frozen=True)
class ExpectedSeries:
    """Outcomes of an expectation of a query.

    ``text``, ``severity``, ``bound``: of the newest outcome, which says whether it ``is_met``, what was ``observed``
    and ``detail``; ``sample``: rows that are not as expected; ``begin``, ``end``: its interval. ``samples``: observed
    values by the end of their interval, oldest first.
    """

    text: str
    severity: str
    bound: str
    is_met: bool
    observed: float | None
    detail: str
    sample: tuple[str, ...]
    begin: int
    end: int
    samples: tuple[Sample, ...]
    docs: str = ""


@dataclass(frozen=True)
class QueryView:
    """All that the page of one query shows.

    ``answers``: in the span, of the definition in force; ``earlier``: those of definitions before it, which are not
    drawn; ``groups``: how many the span has, of which ``top`` have the largest newest values; ``group``: the key of the
    one that was chosen, "" for the top ones; ``revised``: samples of a revision after the first. ``released``:
    intervals that were published although an expectation blocked them, with the reason.
    """

    now: datetime
    query: ACQ
    state: str
    since: int
    file: str
    span: Span
    outputs: tuple[OutputLines, ...]
    answers: int
    earlier: int
    groups: int
    top: tuple[Group, ...]
    group: str
    revised: int
    failed: tuple[FailedAnswer, ...]
    failures: int
    runs: tuple[QueryRun, ...]
    cost: QueryCost | None
    history: tuple[Happened, ...]
    warehouse: str
    newest: tuple[int, int, int] | None = None
    late: int | None = None
    expected: tuple[ExpectedSeries, ...] = ()
    released: tuple[tuple[int, int, str], ...] = ()


# -------------------------------------------------------------------------------------------- streams and days
@dataclass(frozen=True)
class StreamDay:
    """Events and files of a stream on a UTC day: ``events`` whose time is on it, each once. Of the files that
    arrived on it their number, the number that brought events from before the newest one known (``unordered``),
    and the number of their events that were ``refused`` as too late. ``quarantined``: rows that runs of this day
    excluded.
    """

    day: str
    events: int
    files: int
    unordered: int
    refused: int
    quarantined: int


@dataclass(frozen=True)
class StreamView:
    """One stream over time.

    ``rates``: events a second by their time, by the hour or, of long spans, by the day, in parts between which no run
    read events; ``newest``: the end of the newest events that the ledger or a run knows of; ``gaps``: spans
    [begin, end) that no run has read, or without an event, newest first.
    """

    name: str
    queries: int
    newest: int | None
    rates: tuple[tuple[Sample, ...], ...]
    gaps: tuple[tuple[int, int], ...]
    days: tuple[StreamDay, ...]


@dataclass(frozen=True)
class DimensionView:
    """A dimension that queries of the plan in force join.

    ``columns``: those in use; ``queries``: how many join it; ``repair``: how far back a change revises answers
    (microseconds), 0: not at all; ``rows``: of the ``version`` that a run used last, None: no run has used it;
    ``table``: the table of the warehouse that has them, empty: there is none.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    queries: int
    repair: int
    version: str | None = None
    rows: int | None = None
    table: str = ""


@dataclass(frozen=True)
class Streams:
    """The streams of a warehouse in a span, and its dimensions now."""

    now: datetime
    span: Span
    streams: tuple[StreamView, ...] = ()
    dimensions: tuple[DimensionView, ...] = ()


@dataclass(frozen=True)
class TrendDay:
    """The publications whose intervals end on a UTC day.

    ``answers``, ``events``: of the newest publication of each interval; ``measured``: CPU seconds of all of them, None
    if none was measured; ``unshared``: what these would have been without sharing, by the cost model; ``late``: queries
    that were answered too late, once a run.
    """

    day: str
    runs: int
    failed: int
    answers: int
    events: int
    measured: float | None
    unshared: float | None
    late: int


@dataclass(frozen=True)
class ComparedRun:
    """Measurement of ``heddle compare`` of an interval: CPU seconds of the shared run, and of ``sampled`` of its
    ``queries`` unshared.
    """

    at: str
    begin: int
    end: int
    queries: int
    sampled: int
    shared: float
    unshared: float


@dataclass(frozen=True)
class PlanCost:
    """The cost of a plan version, in the unit of its model, and that of its queries unshared."""

    version: int
    cost_model: str
    cost: float
    no_share: float


@dataclass(frozen=True)
class Trends:
    """A warehouse over days."""

    now: datetime
    span: Span
    days: tuple[TrendDay, ...] = ()
    compared: tuple[ComparedRun, ...] = ()
    plans: tuple[PlanCost, ...] = ()
