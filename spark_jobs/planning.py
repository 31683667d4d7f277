"""From workload files to a stored sharing plan, without a JVM: what ``refresh_sharing_plan`` runs.

A plan version is a set of immutable rows of ``sharing_plans``. A refresh that changes neither the queries nor the
trees keeps the version that is there, so rates that wander a little do not churn plans.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as ds

from optimizer import refreshes
from optimizer.cost import COST_MODELS, CostModel, measured
from optimizer.cost import cost_model as named_model
from optimizer.errors import Diagnostic, HeddleError
from optimizer.parser import load_workload
from optimizer.plan import SharingPlan, build_plan, diff, from_rows, to_json, to_rows
from optimizer.query import ACQ, Stream, Workload
from optimizer.schedule import Schedule
from optimizer.search import ALGORITHMS
from optimizer.shards import Profile
from optimizer.streams import load_streams
from optimizer.synopsis import families_of
from optimizer.window import DAY
from spark_jobs import lifecycle
from spark_jobs.calibration import fit_of
from spark_jobs.sources import discover_schema
from spark_jobs.statistics import Measured, last_groups, last_measured, measure_source, profile
from spark_jobs.tables import INSTANT, MARKER, Warehouse, micros

StrPath = str | Path

RATE = re.compile(r"\d{1,30}/\d{1,30}|(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?", re.ASCII)
_LONGEST_RATE = 100

TOLERANCE = 0.05
"""How much dearer than a plan from scratch the plan in force may become before it is replaced."""


OWNER_QUOTA = 10_000
"""The most queries of one owner, unless ``HEDDLE_OWNER_QUOTA`` says otherwise."""


@dataclass(frozen=True)
class Inputs:
    """A workload as registered, with everything that was found wrong with it (the rest is usable)."""

    workload: Workload
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> list[Diagnostic]:
        return [found for found in self.diagnostics if found.severity == "error"]


def owner_quota() -> int:
    """The most queries of one owner, from ``HEDDLE_OWNER_QUOTA``. Raises HDL-120 if that is no number."""
    text = os.environ.get("HEDDLE_OWNER_QUOTA") or str(OWNER_QUOTA)
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise HeddleError("HDL-120", f"HEDDLE_OWNER_QUOTA is {text!r}", "a whole number of queries, 0 or more")
    return int(text)


def source_roots() -> list[str] | None:
    """The folders that streams are read from, from ``HEDDLE_SOURCES`` (None: any but the system's)."""
    text = os.environ.get("HEDDLE_SOURCES")
    return [folder for folder in text.split(os.pathsep) if folder] if text else None


def load_inputs(files: Sequence[StrPath], streams_file: StrPath) -> Inputs:
    """Read streams and queries. Bad streams and queries are left out and reported; the others are returned.

    Streams lie in :func:`source_roots`, an owner has at most :func:`owner_quota` queries.
    Raises HDL-111 if a file is missing.
    """
    quota = owner_quota()
    for path in [*files, streams_file]:
        if not Path(path).is_file():
            raise HeddleError("HDL-111", f"there is no file {path}", "check the path", file=str(path))
    streams, found = load_streams(streams_file, source_roots())
    diagnostics = list(found)
    known: dict[str, Stream] = {}
    for name, stream in streams.items():
        try:
            known[name] = stream if stream.schema else replace(stream, schema=discover_schema(stream))
        except HeddleError as error:
            diagnostics.append(error.diagnostic)
    workload, found = load_workload(list(files), known, quota=quota)
    return Inputs(workload, (*diagnostics, *found))


def rates_of(
    workload: Workload, given: Mapping[str, Fraction], warehouse: Warehouse | None = None
) -> tuple[dict[str, Fraction], list[Measured], list[Diagnostic]]:
    """The rate of each stream that a query reads: as given, else measured from its source now.

    A source that cannot be read is reported, and planned at the rate recorded last in ``warehouse``, or else at one
    tuple a second: its queries stay registered and the other streams go on. Returns rates, measurements and
    diagnostics. Raises HDL-407 for a rate of an unknown stream.
    """
    for name in given:
        if name not in {stream.name for stream in workload.streams}:
            raise HeddleError("HDL-407", f"a rate is given for {name}, which is no stream")
    rates: dict[str, Fraction] = {}
    measurements, diagnostics = [], []
    for name in dict.fromkeys(query.stream for query in workload.queries):
        if name in given:
            rates[name] = given[name]
            continue
        try:
            measurements.append(measure_source(workload.stream(name), warehouse))
            rates[name] = measurements[-1].rate
        except HeddleError as error:
            diagnostics.append(error.diagnostic)
            known = last_measured(warehouse, name) if warehouse is not None else None
            rates[name] = known if known is not None else Fraction(1)
    return rates, measurements, diagnostics


def profiles_of(workload: Workload, rates: Mapping[str, Fraction]) -> dict[str, Profile]:
    """A sample of each stream of which different filters or group-bys may share partial aggregates, or that is asked
    for event sequences; streams that cannot be read have none (and are reported where their rate is measured)."""
    found: dict[str, Profile] = {}
    for name in dict.fromkeys(query.stream for query in workload.queries):
        queries = workload.queries_of(name)
        if len(families_of(queries)) > 1 or any(query.pattern is not None for query in queries):
            try:
                found[name] = profile(workload.stream(name), queries, rates[name])
            except HeddleError:
                continue
    return found


def model_of(name: str, measurements: Sequence[Measured], warehouse: Warehouse | None = None) -> CostModel:
    """The cost model of a name; ``measured`` knows the groups per fragment that were measured.

    With a ``warehouse``: by the costs that were fitted to its runs (``heddle calibrate --warehouse``), and by the
    groups that were recorded last where there is no measurement now.
    """
    if name != "measured":
        return named_model(name)
    groups = {found.stream: found.groups_per_fragment for found in measurements if found.groups_per_fragment}
    if warehouse is None:
        return measured(groups_per_fragment=groups)
    return measured(fit_of(warehouse).coefficients, last_groups(warehouse) | groups)


def parse_rates(texts: Sequence[str]) -> dict[str, Fraction]:
    """``STREAM=TUPLES_PER_SECOND`` options as exact fractions. Raises HDL-112."""
    rates: dict[str, Fraction] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        try:
            rate = parse_rate(number)
        except HeddleError:
            rate = Fraction(-1)
        if not name or rate < 0:
            raise HeddleError("HDL-112", f"{text!r} is not STREAM=TUPLES_PER_SECOND", "e.g. trades=1200")
        if rates.setdefault(name, rate) != rate:
            raise HeddleError("HDL-112", f"stream {name} is given two rates, {rates[name]} and {rate}", "give one")
    return rates


def parse_rate(text: str) -> Fraction:
    """Tuples per second as an exact fraction, at least 0: 1200, 0.5, 1e6, 6/5. Raises HDL-112."""
    try:
        # an exponent of many digits would be a number of as many gigabytes
        rate = Fraction(text.strip()) if RATE.fullmatch(text.strip()) else Fraction(-1)
    except ZeroDivisionError:
        rate = Fraction(-1)
    if rate < 0:
        raise HeddleError("HDL-112", f"{text!r} is no rate in tuples per second", "e.g. 1200")
    return rate


# ------------------------------------------------------------------------------------- stored versions
def current_version(warehouse: Warehouse) -> int | None:
    """The newest plan version, or None."""
    return max((row["plan_version"] for row in warehouse.rows("sharing_plans", ["plan_version"])), default=None)


def load_plan(warehouse: Warehouse, version: int) -> SharingPlan:
    """A stored plan. Raises HDL-506 if there is no such version."""
    mine = ds.field("plan_version") == version
    stored = warehouse.dataset("sharing_plans").to_table(columns=["row"], filter=mine)["row"]
    rows = [json.loads(row) for row in stored.to_pylist()]
    if not rows:
        newest = current_version(warehouse)
        hint = "make one with `heddle run` or the DAG refresh_sharing_plan" if newest is None else f"newest: {newest}"
        raise HeddleError("HDL-506", f"there is no plan version {version} in {warehouse.root}", hint)
    return from_rows(rows)


@dataclass(frozen=True)
class Change:
    """Queries to pause or to resume (``event``: paused, resumed), as thought out on a plan version."""

    event: Literal["paused", "resumed"]
    names: tuple[str, ...]
    plan_version: int


def publish_plan(
    warehouse: Warehouse,
    plan: SharingPlan,
    created_by: str = "",
    reason: str = "",
    paused: Sequence[ACQ] | None = None,
    change: Change | None = None,
    expected: int | None = None,
) -> tuple[int, bool]:
    """Store a plan as the next version and register its queries; keep the current one if it says the same.

    ``paused``: the paused queries of the workload, which the plan does not have; those that are paused and not among
    them are removed (None: all that are paused stay as they are). ``change``: what the plan pauses or resumes.
    ``expected``: the version that is to be in force until then (0: none).
    Returns the version and whether it is new. Raises HDL-522, and stores nothing, if somebody has paused or resumed
    queries since the plan was made, so that it has one that is paused or lacks one that is not; HDL-551 if another
    version than the expected one is in force that says something else.
    """
    with warehouse.lease() as token:
        since, told_since = warehouse.version("sharing_plans"), warehouse.version("workload_queries")
        newest = current_version(warehouse)
        told = lifecycle.events(warehouse)
        same = newest is not None and load_plan(warehouse, newest).fingerprint == plan.fingerprint
        if expected is not None and not same and (newest or 0) != expected:
            raise overtaken(newest, expected)
        version = newest if newest is not None and same else (newest or 0) + 1
        # a clock that was turned back does not turn history round
        now = max([time.time_ns() // 1000, *(micros(row["at"]) + 1 for row in told[-1:])])
        at = pa.scalar(now, INSTANT).as_py()
        held, rows = lifecycle.registered(told), []
        if change is not None:
            wanted = change.event == "paused"
            moved = [held[name] for name in change.names if held[name].paused != wanted]
            rows = [lifecycle.event_row(one.query, change.event, at, version, reason) for one in moved]
            held = lifecycle.registered([*told, *rows])
        resting = {name for name, one in held.items() if one.paused}
        differ = resting.intersection(query.name for query in plan.workload.queries)
        differ |= {query.name for query in paused or ()} - resting
        if differ or (change is not None and change.plan_version != newest):
            which = f": {', '.join(sorted(differ)[:12])}" if differ else ""
            raise HeddleError("HDL-522", f"queries were paused, resumed or planned meanwhile{which}", "run it again")
        # told once, however often this is cut off and tried again: what is registered already is no change
        rows += [
            lifecycle.event_row(query, event, at, version, reason)
            for query, event in lifecycle.changes(held, plan.workload.queries, paused)
        ]
        warehouse.append("workload_queries", rows, token, since=told_since)
        if same:
            return version, False
        rows = [
            {
                "plan_version": version,
                "created_at": at,
                "created_by": created_by,
                "reason": reason,
                "fingerprint": plan.fingerprint,
                "stream": row["stream"],
                "tree": row["tree_id"],
                "query": row["query"],
                "row": json.dumps(row),
            }
            for row in to_rows(plan)
        ]
        warehouse.append("sharing_plans", rows, token, ("sharing_plans", version), since)
    return version, True


def overtaken(newest: int | None, expected: int) -> HeddleError:
    """Another plan is in force than when something was decided."""
    message = f"the plan in force is version {newest or 'none'}, not {expected or 'none'} as when this was decided"
    hint = "nothing was applied: make a new dry run and look at its difference"
    return HeddleError("HDL-551", message, hint)


def without_paused(workload: Workload, warehouse: Warehouse | None) -> tuple[Workload, tuple[ACQ, ...]]:
    """A workload less the queries that are paused, and those. Raises HDL-113 if all of them are."""
    names = lifecycle.paused(lifecycle.registered(lifecycle.events(warehouse))) if warehouse is not None else {}
    resting = tuple(query for query in workload.queries if query.name in names)
    running = tuple(query for query in workload.queries if query.name not in names)
    if resting and not running:
        raise HeddleError("HDL-113", "every usable query is paused", "`heddle resume` some")
    return replace(workload, queries=running), resting


def replanned(base: SharingPlan, workload: Workload, rates: Mapping[str, Fraction] | None = None) -> SharingPlan:
    """A plan for other queries that leaves those of ``base`` as they are, at its rates (``rates``: of more streams)."""
    known = {**(rates or {}), **dict(base.rates)}
    profiles = profiles_of(workload, known)
    return build_plan(
        workload, known, base.algorithm, base.model, previous=base, tolerance=float("inf"), profiles=profiles
    )


def pause_or_resume(
    warehouse: Warehouse, event: Literal["paused", "resumed"], names: Sequence[str], reason: str = ""
) -> dict[str, Any]:
    """Take queries out of the plan in force until they are resumed, or put them back: at once, as a new plan version
    that moves no other query. Runs that began keep their plan.

    Returns ``version`` (in force afterwards), ``changed``, ``queries`` (whose state changed), ``already`` (those that
    were so before) and ``diff`` (lines for people). Raises HDL-506 before the first plan, HDL-521 for an unknown name,
    HDL-522 if another plan was stored meanwhile, HDL-523 if no query would be left, HDL-524 if no plan knows the stream
    of a query.
    """
    version = current_version(warehouse) or 0
    base = load_plan(warehouse, version)
    held = lifecycle.registered(lifecycle.events(warehouse))
    names = list(dict.fromkeys(names))
    lifecycle.check_registered(held, names)
    moved = [name for name in names if held[name].paused != (event == "paused")]
    # by what is registered, not by the plan in force: a change that was cut off between the two is completed
    wanted = [name for name, one in held.items() if not one.removed and one.paused == (name in moved)]
    if not wanted:
        raise HeddleError(
            "HDL-523", "no query would be left to run", "to stop everything, pause the DAG or stop `heddle tick`"
        )
    planned = {query.name: query for query in base.workload.queries}
    earlier = last_with(warehouse, [name for name in wanted if name not in planned])
    streams = {stream.name: stream for plan in (*earlier, base) for stream in plan.workload.streams}
    rates = {name: rate for plan in earlier for name, rate in plan.rates}
    order = [query.name for plan in (*reversed(earlier), base) for query in plan.workload.queries]
    place = {name: number for number, name in reversed(list(enumerate(order)))}
    queries = [held[name].query for name in sorted(wanted, key=lambda name: place.get(name, len(order)))]
    if unknown := [query for query in queries if query.stream not in streams]:
        hint = "take it out of its file, refresh the plan, and put it back"
        raise HeddleError("HDL-524", f"no plan knows the stream {unknown[0].stream} of {unknown[0].name}", hint)
    plan = replanned(base, Workload(tuple(queries), tuple(streams.values())), rates)
    change = Change(event, tuple(names), version)
    stored, changed = publish_plan(warehouse, plan, f"heddle {_COMMANDS[event]}", reason, None, change)
    return {
        "version": stored,
        "changed": changed,
        "queries": moved,
        "already": [name for name in names if name not in moved],
        "diff": diff(base, plan).lines(),
    }


_COMMANDS = {"paused": "pause", "resumed": "resume"}


def last_with(warehouse: Warehouse, names: Sequence[str]) -> list[SharingPlan]:
    """The newest plans that have queries of these names, oldest first."""
    versions: dict[str, int] = {}
    if names:
        for row in warehouse.rows("sharing_plans", ["plan_version", "query"]):
            versions[row["query"]] = max(versions.get(row["query"], 0), row["plan_version"])
    return [load_plan(warehouse, version) for version in sorted({versions[name] for name in names if name in versions})]


# ----------------------------------------------------------------------------------------------- live runs
@dataclass(frozen=True)
class Due:
    """The next live run: over (begin, end] (microseconds) by a plan version; ``late`` if it comes too late for some of
    the refreshes in between."""

    plan_version: int
    begin: int
    end: int
    late: bool


def refreshed_at(warehouse: Warehouse, instant: int) -> dict[str, int]:
    """When queries with a refresh bound were last answered, as the run that ended at an instant left it; empty if none
    did."""
    rows = _published_rows(warehouse, ds.field("interval_end") == pa.scalar(instant, INSTANT))
    if not rows:
        return {}
    newest = max(rows, key=lambda row: row["table_version"])
    return dict(json.loads(newest["record"]).get("refreshed", {}))


def frontier(warehouse: Warehouse) -> int | None:
    """Up to where live runs have published (microseconds); None before the first."""
    # the records are long: those of the newest intervals are looked at first
    rows = _published_rows(warehouse, ds.field("interval_end").is_valid())
    for row in sorted(rows, key=lambda row: row["interval_end"], reverse=True):
        if json.loads(row["record"]).get("live"):
            return micros(row["interval_end"])
    return None


def _published_rows(warehouse: Warehouse, filter: Any) -> list[dict[str, Any]]:
    table = warehouse.dataset("publish_log")
    columns = ["interval_end", "table_version", "record"]
    found: list[dict[str, Any]] = table.to_table(
        columns, filter=filter & (ds.field("event") == "published")
    ).to_pylist()
    return found


@dataclass(frozen=True)
class InForce:
    """Of the plan in force what decides when runs are due: its version, its schedules, and how long after an instant
    (microseconds) the latest late events have had their time."""

    version: int
    schedules: tuple[Schedule, ...]
    delay: int


def in_force(warehouse: Warehouse) -> InForce | None:
    """When runs are due by the plan in force; None before the first plan."""
    version = current_version(warehouse)
    if version is None:
        return None
    plan = load_plan(warehouse, version)
    return InForce(version, plan.schedules, max(stream.lateness for stream in plan.workload.streams))


def due(warehouse: Warehouse, clock: int, begin: int | None = None) -> Due | None:
    """The live run that is due at a clock (microseconds), or None if nothing is.

    Live runs follow one another without a gap: each begins where the one before it ended, and ends at the newest
    instant that the schedule asks for and that late events have had their time for. If there are several since, the
    run is late: it stands for all of them. Without queries with a refresh bound (or once their lifetimes are over),
    every midnight is such an instant, and no run is late. The first run begins at ``begin``, or at the instant before
    its own.
    """
    found = in_force(warehouse)
    if found is None:
        return None
    complete, reached = clock - found.delay, frontier(warehouse)
    since = complete if reached is None else reached
    if not found.schedules or refreshes.next_tick(found.schedules, since) is None:
        end = complete - complete % DAY
        first = reached if reached is not None else end - DAY if begin is None else begin
        return Due(found.version, first, end, False) if end > first else None
    if reached is None:
        newest = refreshes.newest(found.schedules, complete)
        if newest is None:
            return None
        before = refreshes.newest(found.schedules, newest - 1) if begin is None else begin
        return Due(found.version, before, newest, False) if before is not None and before < newest else None
    if complete <= reached:
        return None
    wanted = refreshes.ticks(found.schedules, reached, complete, refreshed_at(warehouse, reached))
    return Due(found.version, reached, wanted[-1][0], len(wanted) > 1) if wanted else None


def comparable_plan(warehouse: Warehouse | None, algorithm: str, cost_model: str) -> SharingPlan | None:
    """The plan in force, if it came from the same search under the same cost model; another search that is asked
    for keeps nothing of it for its own sake."""
    newest = current_version(warehouse) if warehouse is not None else None
    if warehouse is None or newest is None:
        return None
    plan = load_plan(warehouse, newest)
    return plan if (plan.algorithm, plan.cost_model) == (algorithm, cost_model) else None


def refresh_plan(
    warehouse: StrPath,
    workload: Sequence[StrPath],
    streams: StrPath,
    algorithm: str = "best",
    cost_model: str = "paper",
    rates: Mapping[str, Fraction | float | str] | None = None,
    tolerance: float = TOLERANCE,
    dry_run: bool = False,
    reason: str = "",
    created_by: str = "",
    expected: int | None = None,
    expected_plan: str | None = None,
) -> dict[str, Any]:
    """Recompute the sharing plan from the registered workload and the measured rates, and store it if it changed.

    ``rates``: tuples per second that override what is measured. ``tolerance``: the plan in force is kept, with the
    queries that came woven in, while it costs at most ``1 + tolerance`` times the plan from scratch. A dry run writes
    nothing at all. ``expected``: the version that is to be in force until the plan is stored (0: none; else HDL-551);
    ``expected_plan``: the fingerprint that the plan is to have, as a dry run told it (else HDL-560).
    Returns ``version`` (of the plan in force afterwards; None before any), ``changed``, ``fingerprint``, ``plan`` (as
    ``heddle plan --json``), ``diff`` (lines for people, with the answers whose partials are recomputed), ``paused``
    (names of queries that are left out until they are resumed), ``diagnostics``. Raises HeddleError if no query is
    usable or all are paused (HDL-113).
    """
    if algorithm not in ALGORITHMS or cost_model not in COST_MODELS:
        known = f"known: {', '.join(ALGORITHMS)}; {', '.join(COST_MODELS)}"
        raise HeddleError("HDL-112", f"there is no search {algorithm!r} by the cost model {cost_model!r}", known)
    if not 0 <= tolerance < float("inf"):
        raise HeddleError("HDL-112", f"{tolerance!r} is no tolerance", "0.05 permits a plan 5 % dearer than a new one")
    given = {name: parse_rate(str(rate)[:_LONGEST_RATE]) for name, rate in (rates or {}).items()}
    inputs = load_inputs(workload, streams)
    if not inputs.workload.queries:
        first = "; ".join(f"{found.code} {found.message}" for found in inputs.diagnostics[:3])
        raise HeddleError("HDL-113", f"no usable query: {first}", "`heddle validate` says all that is wrong")
    existing = (Path(warehouse) / MARKER).exists()
    house = Warehouse.open(warehouse) if existing or not dry_run else None
    asked, paused = without_paused(inputs.workload, house)
    found, measurements, unreadable = rates_of(asked, given, house)
    newest = current_version(house) if house else None
    old = load_plan(house, newest) if house and newest is not None else None
    model = model_of(cost_model, measurements, house)
    previous = comparable_plan(house, algorithm, cost_model)
    profiles = profiles_of(asked, found)
    plan = build_plan(asked, found, algorithm, model, previous=previous, tolerance=tolerance, profiles=profiles)
    if expected_plan is not None and plan.fingerprint != expected_plan:
        message = "by the queries and rates of now the plan is another than the one that was to be applied"
        raise HeddleError("HDL-560", message, "make a new dry run and look at its difference")
    changed = old is None or old.fingerprint != plan.fingerprint
    version = newest
    if not dry_run and house is not None:
        version, changed = publish_plan(house, plan, created_by, reason, paused, expected=expected)
        with house.lease() as token:
            house.append("stream_statistics", [measurement.row(created_by) for measurement in measurements], token)
    return {
        "version": version,
        "changed": changed,
        "dry_run": dry_run,
        "fingerprint": plan.fingerprint,
        "plan": to_json(plan),
        "diff": diff(old, plan).lines(),
        "paused": [query.name for query in paused],
        "diagnostics": [found.to_json() for found in (*inputs.diagnostics, *unreadable)],
    }


def watermark_delay(streams: StrPath) -> int:
    """The largest lateness of the declared streams, in microseconds: how long after its end an interval is complete."""
    known, _ = load_streams(streams, source_roots())
    return max((stream.lateness for stream in known.values()), default=0)
