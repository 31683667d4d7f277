"""The metrics of a warehouse as OpenMetrics text, for Prometheus and whatever else scrapes it.

A pure module: :func:`exposition` makes the text of a :class:`Snapshot` and a clock. :mod:`spark_jobs.operations.scrape`
reads the snapshot of a warehouse. Names and labels are declared in :data:`METRICS`, which docs/monitor.md lists.

An exposition has at most :data:`MOST_SERIES` series. Of queries, owners, and streams with rows in quarantine the first
have series of their own, in an order that stays the same from scrape to scrape; all others are one series whose labels
are :data:`OTHER`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from spark_jobs.operations.values import Saving

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

MOST_SERIES = 5_000

MOST_QUERIES = MOST_SERIES // 5
"""Queries with series of their own, at most four each: those with a refresh bound come first, the shortest bound before
the others, then the others; of equals by name."""

MOST_OWNERS = 100
"""Owners with series of their own, by name."""

MOST_QUARANTINED = 100
"""Pairs of stream and code with a series of their own, by name."""

OTHER = "other"
"""Value of the labels of the series that sums all that have none."""


class Metric(NamedTuple):
    """A family: its name without suffixes, its type, its meaning, its labels and its unit, which ends the name."""

    name: str
    type: Literal["gauge", "counter", "info"]
    meaning: str
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def sample(self) -> str:
        """Name of its samples, by which expressions select them."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.type, "")


_QUERY = ("stream", "query", "owner")

METRICS = (
    Metric("heddle_build", "info", "Version of Heddle that wrote this.", ("version",)),
    Metric("heddle_plan_version", "gauge", "Version of the plan in force."),
    Metric("heddle_plan_trees", "gauge", "Execution trees of the plan in force."),
    Metric("heddle_registered_queries", "gauge", "Registered queries by state.", ("owner", "state")),
    Metric(
        "heddle_query_answered_until_timestamp_seconds",
        "gauge",
        "Event time up to which a query is answered. Of all other queries: the earliest.",
        _QUERY,
        "seconds",
    ),
    Metric(
        "heddle_query_lag_seconds",
        "gauge",
        "Time since then: how old the newest answer is. Of all other queries: the longest.",
        _QUERY,
        "seconds",
    ),
    Metric("heddle_query_late_refreshes", "counter", "Runs in which a query exceeded its refresh bound.", _QUERY),
    Metric("heddle_query_blocked", "gauge", "1 if the newest run could not answer the query, else 0.", _QUERY),
    Metric("heddle_runs", "counter", "Runs that ended: published or failed.", ("outcome",)),
    Metric(
        "heddle_run_ended_timestamp_seconds", "gauge", "When the newest such run ended.", ("outcome",), unit="seconds"
    ),
    Metric("heddle_last_run_cpu_seconds", "gauge", "CPU time of the newest publication.", unit="seconds"),
    Metric("heddle_last_run_predicted_cpu_seconds", "gauge", "CPU time that was predicted for it.", unit="seconds"),
    Metric("heddle_last_run_wall_seconds", "gauge", "Duration of the newest publication.", unit="seconds"),
    Metric("heddle_cpu_seconds", "counter", "CPU time of all runs, by stage.", ("stage",), "seconds"),
    Metric("heddle_scanned_events", "counter", "Events that runs read."),
    Metric("heddle_answers", "counter", "Answers that runs published, revisions included."),
    Metric("heddle_published_intervals", "counter", "Intervals that were published at least once."),
    Metric("heddle_checks", "counter", "Checks of answers: passed or failed.", ("outcome",)),
    Metric(
        "heddle_recomputed_queries",
        "counter",
        "Queries recomputed from raw events, by agreement with the shared answers: equal or different.",
        ("outcome",),
    ),
    Metric("heddle_quarantined_events", "gauge", "Events that runs skipped, by error code.", ("stream", "code")),
    Metric(
        "heddle_owner_cpu_seconds",
        "gauge",
        "An owner's part in the CPU time of the newest 50 runs.",
        ("owner",),
        "seconds",
    ),
    Metric(
        "heddle_owner_unshared_cpu_seconds",
        "gauge",
        "The same if no query shared anything, by the plan's cost model.",
        ("owner",),
        "seconds",
    ),
)
"""All metrics, in the order of the exposition."""


@dataclass(frozen=True)
class QueryState:
    """A query of the plan in force: its refresh bound and up to where it is answered (microseconds; None: none, and
    never), the number of runs in which it was late, and whether the newest run could not answer it."""

    name: str
    stream: str
    owner: str
    bound: int | None = None
    answered_until: int | None = None
    late_refreshes: int = 0
    is_blocked: bool = False


@dataclass(frozen=True)
class Snapshot:
    """State of a warehouse. Moments are microseconds since 1970.

    - ``registered``: number of queries by owner and state;
    - ``runs``, ``ended``: by outcome, the number of runs and when the newest ended;
    - ``cpu_micros``: CPU time of all runs by stage;
    - ``last_run``: CPU seconds, predicted CPU seconds and duration of the newest publication, by metric;
    - ``checks``, ``recomputed``: numbers by outcome;
    - ``quarantined``: events by stream and code.
    """

    version: str
    plan_version: int | None = None
    trees: int = 0
    registered: Mapping[tuple[str, str], int] = field(default_factory=dict)
    queries: Sequence[QueryState] = ()
    runs: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    last_run: Mapping[str, float] = field(default_factory=dict)
    cpu_micros: Mapping[str, int] = field(default_factory=dict)
    scanned_events: int = 0
    answers: int = 0
    intervals: int = 0
    checks: Mapping[str, int] = field(default_factory=dict)
    recomputed: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    savings: Sequence[Saving] = ()


Series = dict[tuple[str, ...], float]
"""Values of a metric by the values of its labels."""


def exposition(snapshot: Snapshot, now: int) -> str:
    """The OpenMetrics text of a snapshot. ``now``: the clock for lags (microseconds)."""
    series = series_of(snapshot, now)
    lines: list[str] = []
    for metric in METRICS:
        if not series.get(metric.name):
            continue
        lines.append(f"# TYPE {metric.name} {metric.type}")
        if metric.unit:
            lines.append(f"# UNIT {metric.name} {metric.unit}")
        lines.append(f"# HELP {metric.name} {_escaped(metric.meaning)}")
        for values, value in series[metric.name].items():
            pairs = zip(metric.labels, values, strict=True)
            labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in pairs)
            lines.append(
                f"{metric.sample}{{{labels}}} {_number(value)}" if labels else f"{metric.sample} {_number(value)}"
            )
    return "\n".join([*lines, "# EOF", ""])


def series_of(snapshot: Snapshot, now: int) -> dict[str, Series]:
    """The series of each metric, at most :data:`MOST_SERIES`. ``now``: the clock (microseconds)."""
    series: dict[str, Series] = {"heddle_build": {(snapshot.version,): 1}}
    if snapshot.plan_version is not None:
        series["heddle_plan_version"] = {(): snapshot.plan_version}
        series["heddle_plan_trees"] = {(): snapshot.trees}
    series["heddle_registered_queries"] = _of_owners(snapshot.registered)
    series |= _of_queries(snapshot.queries, now)
    series["heddle_runs"] = {(outcome,): count for outcome, count in sorted(snapshot.runs.items())}
    series["heddle_run_ended_timestamp_seconds"] = {(name,): at / 1e6 for name, at in sorted(snapshot.ended.items())}
    series |= {name: {(): seconds} for name, seconds in snapshot.last_run.items()}
    series["heddle_cpu_seconds"] = {(stage,): spent / 1e6 for stage, spent in sorted(snapshot.cpu_micros.items())}
    totals = ("scanned_events", "answers")
    series |= {f"heddle_{name}": {(): getattr(snapshot, name)} for name in totals}
    series["heddle_published_intervals"] = {(): snapshot.intervals}
    series["heddle_checks"] = {(outcome,): count for outcome, count in sorted(snapshot.checks.items())}
    series["heddle_recomputed_queries"] = {(outcome,): count for outcome, count in sorted(snapshot.recomputed.items())}
    series["heddle_quarantined_events"] = _of_quarantine(snapshot.quarantined)
    part = {(saving.owner,): saving.part for saving in snapshot.savings}
    unshared = {(saving.owner,): saving.unshared for saving in snapshot.savings}
    series["heddle_owner_cpu_seconds"] = _of_owners(part)
    series["heddle_owner_unshared_cpu_seconds"] = _of_owners(unshared)
    return series


def _of_queries(queries: Sequence[QueryState], now: int) -> dict[str, Series]:
    ordered = sorted(queries, key=lambda query: (query.bound is None, query.bound or 0, query.name))
    # a query that has the name of the sum is a part of it
    named = [query for query in ordered if query.name != OTHER][:MOST_QUERIES]
    shown = {query.name for query in named}
    rest = [query for query in queries if query.name not in shown]
    series: dict[str, Series] = {metric.name: {} for metric in METRICS if metric.labels == _QUERY}
    for query in named:
        _add_query(series, (query.stream, query.name, query.owner), [query], now)
    if rest:
        _add_query(series, (OTHER, OTHER, OTHER), rest, now)
    return series


def _add_query(series: dict[str, Series], labels: tuple[str, ...], queries: Sequence[QueryState], now: int) -> None:
    """Add the series of one query, or of several as one."""
    answered = min((query.answered_until for query in queries if query.answered_until is not None), default=None)
    if answered is not None:
        series["heddle_query_answered_until_timestamp_seconds"][labels] = answered / 1e6
        series["heddle_query_lag_seconds"][labels] = max(now - answered, 0) / 1e6
    if any(query.bound is not None for query in queries):
        series["heddle_query_late_refreshes"][labels] = sum(query.late_refreshes for query in queries)
    series["heddle_query_blocked"][labels] = sum(query.is_blocked for query in queries)


def _of_owners(values: Mapping[Any, float]) -> Series:
    """Values by an owner and further labels, those of the first owners by name; of all others their sums."""
    shown = set(sorted({owner for owner, *_ in values if owner != OTHER})[:MOST_OWNERS])
    return _summed(((owner if owner in shown else OTHER, *more), value) for (owner, *more), value in values.items())


def _of_quarantine(values: Mapping[tuple[str, str], int]) -> Series:
    shown = set(sorted(key for key in values if key[0] != OTHER)[:MOST_QUARANTINED])
    return _summed((key if key in shown else (OTHER, OTHER), value) for key, value in values.items())


def _summed(pairs: Iterable[tuple[tuple[str, ...], float]]) -> Series:
    summed: Series = {}
    for key, value in pairs:
        summed[key] = summed.get(key, 0) + value
    return dict(sorted(summed.items()))


def _escaped(text: str) -> str:
    # a lone half of a surrogate pair is no text in UTF-8
    plain = text.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return repr(float(value)) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")


def metrics_table() -> str:
    """The metrics as a Markdown table, which docs/monitor.md has."""
    lines = ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.sample}` | {metric.type} | {labels} | {metric.meaning} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(metrics_table() + "\n")
