"""The evaluation of schedule synchronisation again: throughput and latency of local schedulers that share a processor.

The simulation counts whole microseconds, so it depends on no machine. Each of eight groups of queries has a synopsis
and a local scheduler. All synopses are updated every second. Among the local schedulers with something to run, the one
that has used the processor least gets it until its execution ends. A joint execution costs a scan of the longest window
(a fixed cost per interval) and a fixed cost per query. Top-k lists and quantiles are holistic, so no work after the
scan is shared. The higher data rate doubles both costs, as it doubles the distinct values.

*Calibration.* The paper prints no costs. It says that No-S and CS are overloaded already with few queries, and that HS
becomes overloaded as queries grow. An interval's cost is set so that hybrid's own schedule of 240 queries takes
:data:`HYBRID_LOAD` of the processor at the low rate. A query costs as much as a scan of :data:`POST_INTERVALS`
intervals. Near this value the paper's ratios between hybrid, conservative and late-pending appear. The more a query
costs, the less is shared, and the closer all curves are. Aggressive scheduling then loses its lead over late-pending,
as the paper says (:data:`DEAR_POST_INTERVALS`), but so does hybrid over conservative. No such costs overload CS but not
HS with 40 queries, as the paper's figures would need: the loads of their schedules differ too little.

References
----------
Golab, Bijay & Ozsu, "Multi-query optimization of sliding window aggregates by schedule synchronization", University of
Waterloo CS-2006-26, 2006: section 5, Table 1, Figures 5-8. Deviations: latency counts the interval that a query still
waits in at the end, so that a query that is never executed again counts too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, partial
from statistics import fmean
from typing import NamedTuple

import numpy as np

from optimizer.papers.evaluations.outcome import Chart, Experiment, Measurement, Report, Row, Value
from optimizer.papers.reference.local_schedulers import LocalScheduler, Task
from optimizer.schedule.fixed_periods import fixed_periods_cost, hybrid_periods, own_periods
from optimizer.schedule.groups import Group, SubGroup
from optimizer.schedule.planner import plan_schedule

STEP = 1_000_000
"""Microseconds between two updates of the synopses."""

GROUPS = 8

RATES = {"low": 1, "high": 2}
"""1,500 and 3,000 tuples a second, as factors of all costs."""

HYBRID_LOAD = Fraction(1)
"""Share of the processor that hybrid's own schedule of 240 queries takes at the low rate."""

POST_INTERVALS = 1
"""Cost of a query in addition to the scan, in intervals scanned."""

DEAR_POST_INTERVALS = 40
"""The same where a query costs about as much as scanning its window: what Figures 7 and 8 are compared with besides."""

ONE_TIME_INTERVALS = 60
"""Intervals scanned after every update by a one-time query: a window of average length."""

TECHNIQUES = {
    "no_s": ("No-S", "no-sharing", True),
    "as": ("AS", "aggressive", True),
    "cs": ("CS", "conservative", True),
    "hs": ("HS", "hybrid", True),
    "h_ls": ("H-LS", "late", True),
    "h_lp": ("H-LP", "late-pending", True),
    "ours": ("free riders", "free-riders", True),
    "lazy": ("free riders, lazy", "free-riders", False),
}
"""Label, mode of :class:`optimizer.papers.reference.local_schedulers.LocalScheduler`, work-conserving. The paper's are
(Algorithms 1-3)."""


class Size(NamedTuple):
    """``per_group``: queries a group; ``seconds`` simulated; ``inputs``: random workloads that are averaged."""

    per_group: tuple[int, ...]
    seconds: int
    inputs: int


SIZES = {
    "tiny": Size((2, 6), 30, 1),
    "quick": Size((5, 10, 20, 30), 60, 2),
    "full": Size((5, 10, 20, 30), 200, 5),
}


class Measured(NamedTuple):
    """Measurements of one simulation.

    Attributes
    ----------
    throughput
        Queries re-executed per second.
    latency
        Updates of the synopsis between executions beyond the query's period (never negative), a mean of queries.
    met
        Share of the requested refreshes: an early one counts for the part of its period that has passed.
    executions
        Joint executions per second.
    busy
        Share of the time in which queries are executed, without one-time queries.
    """

    throughput: float
    latency: float
    met: float
    executions: float
    busy: float


def workload(per_group: int, interval: int, post: int, seed: int, groups: int = GROUPS) -> tuple[Group, ...]:
    """The paper's: windows of 20 to 100 intervals, SLIDE from 1 to half the window, both uniform.

    ``interval`` and ``post``: microseconds for an interval scanned, and of a query's own.
    """
    rng = np.random.default_rng(seed)
    generated = []
    for number in range(groups):
        by_slide: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for query in range(per_group):
            window = int(rng.integers(20, 101))
            by_slide[int(rng.integers(1, window // 2 + 1))].append((window, f"g{number}q{query}"))
        subgroups = [
            SubGroup(slide, interval * max(each)[0], tuple(name for _, name in each), post * len(each))
            for slide, each in sorted(by_slide.items())
        ]
        generated.append(Group(f"g{number}", tuple(subgroups)))
    return tuple(generated)


@lru_cache(maxsize=8)
def interval_cost(inputs: int, post_intervals: int = POST_INTERVALS) -> int:
    """Microseconds of scanning an interval at the low rate (module docstring)."""
    loads = [
        sum(fixed_periods_cost(group, hybrid_periods(group)) for group in workload(30, 1, post_intervals, seed))
        for seed in range(inputs)
    ]
    return int(HYBRID_LOAD * STEP * inputs / sum(loads))


def simulate(
    groups: Sequence[Group],
    mode: str,
    seconds: int,
    *,
    work_conserving: bool = True,
    one_time: int = 0,
    step: int = STEP,
) -> Measured:
    """Local schedulers, one a group, share a processor. Scans and post costs are microseconds.

    ``one_time``: microseconds of the one-time queries of each update. Updates that fall into an execution are made when
    it is over: an answer reflects the synopses as they were when its execution began.
    """
    schedulers = [LocalScheduler([group], mode, work_conserving=work_conserving) for group in groups]
    used = [0] * len(groups)
    known: dict[tuple[Task, ...], tuple[int, tuple[str, ...]]] = {}
    slides = {name: each.period for group in groups for each in group.subgroups for name in each.queries}
    last = dict.fromkeys(slides, 0)
    extra: dict[str, list[int]] = {name: [] for name in slides}
    met = dict.fromkeys(slides, 0.0)
    clock, updates, executions, refreshed, busy, end = 0, 0, 0, 0, 0, seconds * STEP
    while clock < end:
        while (updates + 1) * step <= clock:
            updates += 1
            clock += one_time
            for scheduler in schedulers:
                scheduler.update()
        place, tasks = _next(schedulers, used)
        if not tasks:
            clock = (updates + 1) * step
            continue
        if tasks not in known:
            known[tasks] = int(schedulers[place].cost(tasks)), schedulers[place].executed(tasks)
        cost, queries = known[tasks]
        clock += cost
        if clock > end:
            break
        used[place] += cost
        busy += cost
        executions += 1
        refreshed += len(queries)
        schedulers[place].done(tasks)
        for name in queries:
            gap = updates - last[name]
            extra[name].append(max(0, gap - slides[name]))
            met[name] += min(1, gap / slides[name])
            last[name] = updates
    total = end // step
    for name, slide in slides.items():
        if total - last[name] > slide:
            extra[name].append(total - last[name] - slide)
    return Measured(
        refreshed / seconds,
        fmean(fmean(delays) if delays else 0 for delays in extra.values()),
        sum(met.values()) / sum(total / slide for slide in slides.values()),
        executions / seconds,
        busy / end,
    )


def _next(schedulers: Sequence[LocalScheduler], used: Sequence[int]) -> tuple[int, tuple[Task, ...]]:
    for place in sorted(range(len(schedulers)), key=used.__getitem__):
        if tasks := schedulers[place].choose():
            return place, tasks
    return 0, ()


_measured: dict[tuple[str, str], list[Row]] = {}
"""Rows by rate and scale: Figures 5 and 6 share simulations, and so do 7 and 8."""


def _rows(rate: str, scale: str, report: Report) -> list[Row]:
    """A row per number of queries."""
    size = SIZES[scale]
    steps = len(size.per_group) * size.inputs
    if (rate, scale) not in _measured:
        rows: list[Row] = []
        for per_group in size.per_group:
            row: Row = {"queries": per_group * GROUPS} | _schedules(per_group, rate, size)
            measured: dict[str, list[Measured]] = defaultdict(list)
            for seed in range(size.inputs):
                report(len(rows) * size.inputs + seed, steps, f"{per_group * GROUPS} queries")
                for name in TECHNIQUES:
                    measured[name].append(_simulated(name, per_group, rate, size, seed))
            for name, simulations in measured.items():
                for column in Measured._fields:
                    row[f"{name}_{column}"] = fmean(getattr(each, column) for each in simulations)
            rows.append(row)
        _measured[rate, scale] = rows
    report(steps, steps, "done")
    return _measured[rate, scale]


def _simulated(
    name: str, per_group: int, rate: str, size: Size, seed: int, post_intervals: int = POST_INTERVALS
) -> Measured:
    _, mode, conserving = TECHNIQUES[name]
    interval = interval_cost(size.inputs, post_intervals) * RATES[rate]
    groups = workload(per_group, interval, post_intervals * interval, seed)
    return simulate(groups, mode, size.seconds, work_conserving=conserving, one_time=ONE_TIME_INTERVALS * interval)


def _schedules(per_group: int, rate: str, size: Size) -> Row:
    """Processor load of conservative, hybrid and the cheapest schedules, and the number of tasks of the former two."""
    interval = interval_cost(size.inputs) * RATES[rate]
    samples: dict[str, list[float]] = defaultdict(list)
    for seed in range(size.inputs):
        groups = workload(per_group, interval, POST_INTERVALS * interval, seed)
        periods = {"cs": list(map(own_periods, groups)), "hs": list(map(hybrid_periods, groups))}
        for name, chosen in periods.items():
            samples[f"{name}_tasks"].append(sum(len(set(each)) for each in chosen))
            samples[f"{name}_load"].append(float(sum(map(fixed_periods_cost, groups, chosen))) / STEP)
        samples["ours_load"].append(float(plan_schedule(STEP, groups).cost) / STEP)
    return {name: fmean(values) for name, values in samples.items()}


class Figure(NamedTuple):
    """Column of :func:`_rows` that a figure shows, and the paper's claim."""

    rate: str
    column: str
    claim: str


FIGURES = {
    "5": Figure(
        "low",
        "throughput",
        "No-S and CS lowest; HS doubles CS with half of its tasks; H-LS, H-LP add to it as queries grow; AS very good",
    ),
    "6": Figure(
        "low",
        "latency",
        "No-S particularly bad; HS an order of magnitude below CS; H-LS and H-LP lower still; AS is poor",
    ),
    "7": Figure(
        "high",
        "throughput",
        "H-LP more than doubles HS and is the clear winner; HS gains less over CS than before; AS drops",
    ),
    "8": Figure("high", "latency", "H-LP is the clear winner; No-S is extremely high, CS poor"),
}


SAID: dict[str, dict[tuple[str, str], Value]] = {
    "5": {("hs", "cs"): 2, ("h_lp", "hs"): "more than 1", ("as", "h_lp"): "very good"},
    "6": {("hs", "cs"): 0.1, ("h_lp", "hs"): "less than 1", ("as", "h_lp"): "more than 1"},
    "7": {("hs", "cs"): "more than 1", ("h_lp", "hs"): 2, ("as", "h_lp"): "less than 1"},
    "8": {("hs", "cs"): "less than 1", ("h_lp", "hs"): "less than 1", ("as", "h_lp"): "more than 1"},
}
"""The paper's claims of one technique over another."""


def _figure(figure: str, scale: str, report: Report) -> Measurement:
    rate, column, _ = FIGURES[figure]
    rows = _rows(rate, scale, report)
    last = rows[-1]
    at = f"{last['queries']} queries"
    measured: dict[str, tuple[Value, Value]] = {
        f"{column}, {_label(technique)} over {_label(other)}, {at}": (
            claim,
            _ratio(last[f"{technique}_{column}"], last[f"{other}_{column}"]),
        )
        for (technique, other), claim in (SAID[figure] | {("ours", "h_lp"): None, ("lazy", "h_lp"): None}).items()
    }
    if column == "latency":
        few = rows[0]
        measured[f"latency, CS, {few['queries']} queries"] = ("high", few["cs_latency"])
        measured[f"latency, HS, {few['queries']} queries"] = ("about 0" if rate == "low" else None, few["hs_latency"])
    if rate == "high":
        size = SIZES[scale]
        as_, h_lp = (
            fmean(
                getattr(_simulated(name, size.per_group[-1], rate, size, seed, DEAR_POST_INTERVALS), column)
                for seed in range(size.inputs)
            )
            for name in ("as", "h_lp")
        )
        quantity = f"{column}, AS over H-LP, {at} that cost {DEAR_POST_INTERVALS} intervals each"
        measured[quantity] = SAID[figure]["as", "h_lp"], _ratio(as_, h_lp)
    if column == "throughput":
        measured[f"tasks, HS over CS, {at}"] = (0.5, _ratio(last["hs_tasks"], last["cs_tasks"]))
        measured[f"cost of the schedule, HS over CS, {at}"] = (None, _ratio(last["hs_load"], last["cs_load"]))
        for name in ("hs", "as", "h_lp", "ours"):
            measured[f"share of the refreshes asked for, {_label(name)}, {at}"] = (None, last[f"{name}_met"])
    unit = "queries/s" if column == "throughput" else "updates late"
    listed = ", ".join(f"{label} {last[f'{name}_{column}']:.3g}" for name, (label, _, _) in TECHNIQUES.items())
    return Measurement(rows, " ".join([f"{at}, {unit}: {listed}.", *_differences(figure, last)]), measured)


def _label(name: str) -> str:
    return TECHNIQUES[name][0]


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _differences(figure: str, row: Row) -> list[str]:
    """Explain how the largest workload differs from the paper's claims."""
    remarks = []
    if row["as_throughput"] > row["h_lp_throughput"] and row["as_latency"] < row["h_lp_latency"]:
        remarks.append(
            "Unlike in the paper AS beats H-LP: a joint run pays for its longest window only, so it refreshes what is "
            "not due for next to nothing, which counts as throughput, and its eight tasks come round quickly."
        )
        if row["ours_met"] > row["as_met"]:
            remarks.append("Free riders meet more of what is asked for than either.")
    if figure == "5" and row["hs_throughput"] < 2 * row["cs_throughput"]:
        remarks.append(
            f"HS does not double CS: its schedule takes {row['hs_load']:.2f} of the processor, that of CS "
            f"{row['cs_load']:.2f}; the rest of its gain is from tasks that stay together when they are late."
        )
    if figure == "6" and row["hs_latency"] > 0.1 * row["cs_latency"]:
        remarks.append("HS stays above a tenth of CS's latency: both queue once the processor is full.")
    return remarks


EXPERIMENTS = tuple(
    Experiment(
        f"golab-{figure}",
        "golab",
        figure,
        f"Schedule synchronisation: {shown.column} at the {shown.rate} data rate",
        shown.claim,
        0.3,
        Chart(
            "queries",
            "queries",
            {f"{name}_{shown.column}": label for name, (label, _, _) in TECHNIQUES.items()},
            "queries re-executed per second" if shown.column == "throughput" else "updates beyond the SLIDE asked for",
        ),
        partial(_figure, figure),
    )
    for figure, shown in FIGURES.items()
)
