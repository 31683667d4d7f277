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
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from optimizer import refreshes
from optimizer.cost import COST_MODELS, CostModel, measured
from optimizer.cost import cost_model as named_model
from optimizer.errors import Diagnostic, HeddleError
from optimizer.parser import load_workload
from optimizer.plan import SharingPlan, build_plan, diff, from_rows, to_json, to_rows
from optimizer.query import Stream, Workload
from optimizer.query import to_json as values_to_json
from optimizer.schedule import Schedule
from optimizer.search import ALGORITHMS
from optimizer.shards import Profile
from optimizer.streams import load_streams
from optimizer.synopsis import families_of
from optimizer.window import DAY
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
    rows = [json.loads(row["row"]) for row in warehouse.rows("sharing_plans") if row["plan_version"] == version]
    if not rows:
        newest = current_version(warehouse)
        hint = "make one with `heddle run` or the DAG refresh_sharing_plan" if newest is None else f"newest: {newest}"
        raise HeddleError("HDL-506", f"there is no plan version {version} in {warehouse.root}", hint)
    return from_rows(rows)


def publish_plan(warehouse: Warehouse, plan: SharingPlan, created_by: str = "", reason: str = "") -> tuple[int, bool]:
    """Store a plan as the next version and register its queries; keep the current one if it says the same.

    Returns the version and whether it is new.
    """
    with warehouse.lease() as token:
        since = warehouse.version("sharing_plans")
        newest = current_version(warehouse)
        if newest is not None and load_plan(warehouse, newest).fingerprint == plan.fingerprint:
            return newest, False
        version = (newest or 0) + 1
        at = pa.scalar(time.time_ns() // 1000, INSTANT).as_py()
        _register(warehouse, plan.workload, at, token)
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


def _register(warehouse: Warehouse, workload: Workload, at: Any, token: int) -> None:
    """What differs from what is registered: nothing, if this was done before."""
    since = warehouse.version("workload_queries")
    last: dict[str, dict[str, Any]] = {}
    for row in sorted(warehouse.rows("workload_queries"), key=lambda row: row["at"]):
        last[row["query"]] = row
    live = {name: row for name, row in last.items() if row["event"] != "removed"}
    events = []
    for query in workload.queries:
        before = live.pop(query.name, None)
        if before is None or before["fingerprint"] != query.fingerprint:
            events.append((query, "registered" if before is None else "replaced"))
    rows = [
        {
            "query": query.name,
            "fingerprint": query.fingerprint,
            "owner": query.owner,
            "text": query.text,
            "definition": json.dumps(values_to_json(query)),
            "event": event,
            "at": at,
        }
        for query, event in events
    ]
    rows += [row | {"event": "removed", "at": at} for row in live.values()]
    warehouse.append("workload_queries", rows, token, since=since)


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
    table = DeltaTable(warehouse.path("publish_log")).to_pyarrow_dataset()
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
) -> dict[str, Any]:
    """Recompute the sharing plan from the registered workload and the measured rates, and store it if it changed.

    ``rates``: tuples per second that override what is measured. ``tolerance``: the plan in force is kept, with the
    queries that came woven in, while it costs at most ``1 + tolerance`` times the plan from scratch. A dry run writes
    nothing at all. Returns ``version`` (of the plan in force afterwards; None before any), ``changed``, ``plan`` (as
    ``heddle plan --json``), ``diff`` (lines for people, with the answers whose partials are recomputed),
    ``diagnostics``. Raises HeddleError if no query is usable (HDL-113).
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
    found, measurements, unreadable = rates_of(inputs.workload, given, house)
    newest = current_version(house) if house else None
    old = load_plan(house, newest) if house and newest is not None else None
    model = model_of(cost_model, measurements, house)
    previous = comparable_plan(house, algorithm, cost_model)
    profiles = profiles_of(inputs.workload, found)
    plan = build_plan(
        inputs.workload, found, algorithm, model, previous=previous, tolerance=tolerance, profiles=profiles
    )
    changed = old is None or old.fingerprint != plan.fingerprint
    version = newest
    if not dry_run and house is not None:
        version, changed = publish_plan(house, plan, created_by, reason)
        with house.lease() as token:
            house.append("stream_statistics", [measurement.row(created_by) for measurement in measurements], token)
    return {
        "version": version,
        "changed": changed,
        "dry_run": dry_run,
        "plan": to_json(plan),
        "diff": diff(old, plan).lines(),
        "diagnostics": [found.to_json() for found in (*inputs.diagnostics, *unreadable)],
    }


def watermark_delay(streams: StrPath) -> int:
    """The largest lateness of the declared streams, in microseconds: how long after its end an interval is complete."""
    known, _ = load_streams(streams, source_roots())
    return max((stream.lateness for stream in known.values()), default=0)
