"""From workload files to a stored sharing plan, without a JVM: what ``refresh_sharing_plan`` runs.

A plan version is a set of immutable rows of ``sharing_plans``. A refresh that changes neither the queries nor the
trees keeps the version that is there, so rates that wander a little do not churn plans.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors import Diagnostic, HeddleError
from optimizer.parser import load_workload
from optimizer.plan import SharingPlan, build_plan, diff, from_rows, to_json, to_rows
from optimizer.query import SECOND, Stream, Workload
from optimizer.query import to_json as values_to_json
from optimizer.streams import load_streams
from spark_jobs.sources import discover_schema, read_split, splits_of
from spark_jobs.tables import INSTANT, Warehouse

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Inputs:
    """A workload as registered, with everything that was found wrong with it (the rest is usable)."""

    workload: Workload
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> list[Diagnostic]:
        return [found for found in self.diagnostics if found.severity == "error"]


def load_inputs(files: Sequence[StrPath], streams_file: StrPath) -> Inputs:
    """Read streams and queries. Bad streams and queries are left out and reported; the others are returned.

    Raises HDL-111 if a file is missing.
    """
    for path in [*files, streams_file]:
        if not Path(path).is_file():
            raise HeddleError("HDL-111", f"there is no file {path}", "check the path", file=str(path))
    streams, found = load_streams(streams_file)
    diagnostics = list(found)
    known: dict[str, Stream] = {}
    for name, stream in streams.items():
        try:
            known[name] = stream if stream.schema else replace(stream, schema=discover_schema(stream))
        except HeddleError as error:
            diagnostics.append(error.diagnostic)
    workload, found = load_workload(list(files), known)
    return Inputs(workload, (*diagnostics, *found))


def measured_rate(stream: Stream) -> Fraction:
    """Tuples per second of a stream: its rows over the span of its event times; 0 without any.

    From file statistics where the format has them; a CSV source is read once.
    """
    rows, begin, end = 0, None, None
    for split in splits_of(stream):
        low, high, count = split.begin, split.end, split.rows
        if low is None or high is None or count is None:
            count = 0
            for batch in read_split(stream, split, []):
                times = batch.column(stream.time).drop_null()
                if len(times):
                    bounds = pc.min_max(times.cast(pa.int64())).as_py()
                    low = bounds["min"] if low is None else min(low, bounds["min"])
                    high = bounds["max"] + 1 if high is None else max(high, bounds["max"] + 1)
                    count += len(times)
        if low is None or high is None:
            continue
        rows += count
        begin = low if begin is None else min(begin, low)
        end = high if end is None else max(end, high)
    if not rows or begin is None or end is None:
        return Fraction(0)
    # at least a second: one burst of events has no measurable rate
    return Fraction(rows * SECOND, max(end - begin, SECOND))


def rates_of(workload: Workload, given: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The rate of each stream that a query reads: as given, else measured. Raises HDL-407 for unknown names."""
    for name in given:
        if name not in {stream.name for stream in workload.streams}:
            raise HeddleError("HDL-407", f"a rate is given for {name}, which is no stream")
    used = dict.fromkeys(query.stream for query in workload.queries)
    return {name: given[name] if name in given else measured_rate(workload.stream(name)) for name in used}


def parse_rates(texts: Sequence[str]) -> dict[str, Fraction]:
    """``STREAM=TUPLES_PER_SECOND`` options as exact fractions. Raises HDL-112."""
    rates = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            rates[name.strip()] = Fraction(number.strip())
        except (ValueError, ZeroDivisionError):
            raise HeddleError("HDL-112", f"{text!r} is not STREAM=TUPLES_PER_SECOND", "e.g. trades=1200") from None
        if not name.strip() or rates[name.strip()] < 0:
            raise HeddleError("HDL-112", f"{text!r} is not STREAM=TUPLES_PER_SECOND", "e.g. trades=1200")
    return rates


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


def publish_plan(
    warehouse: Warehouse, plan: SharingPlan, created_by: str = "", reason: str = ""
) -> tuple[int, bool]:
    """Store a plan as the next version and register its queries; keep the current one if it says the same.

    Returns the version and whether it is new.
    """
    with warehouse.lease() as token:
        newest = current_version(warehouse)
        if newest is not None and load_plan(warehouse, newest).fingerprint == plan.fingerprint:
            return newest, False
        version = (newest or 0) + 1
        at = pa.scalar(time.time_ns() // 1000, INSTANT).as_py()
        _register(warehouse, plan.workload, at, token, version)
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
        warehouse.append("sharing_plans", rows, token, ("sharing_plans", version))
    return version, True


def _register(warehouse: Warehouse, workload: Workload, at: Any, token: int, version: int) -> None:
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
    warehouse.append("workload_queries", rows, token, ("workload_queries", version))


def refresh_plan(
    warehouse: StrPath,
    workload: Sequence[StrPath],
    streams: StrPath,
    algorithm: str = "weave-share",
    cost_model: str = "paper",
    rates: Mapping[str, Fraction | float | str] | None = None,
    dry_run: bool = False,
    reason: str = "",
    created_by: str = "",
) -> dict[str, Any]:
    """Recompute the sharing plan from the registered workload and the measured rates, and store it if it changed.

    ``rates``: tuples per second that override what is measured. A dry run writes nothing at all. Returns
    ``version`` (of the plan in force afterwards; None before any), ``changed``, ``plan`` (as ``heddle plan --json``),
    ``diff`` (lines for people), ``diagnostics``. Raises HeddleError if no query is usable (HDL-113).
    """
    inputs = load_inputs(workload, streams)
    if not inputs.workload.queries:
        raise HeddleError("HDL-113", "no usable query:\n" + "\n".join(map(str, inputs.diagnostics)))
    given = {name: Fraction(str(rate)) for name, rate in (rates or {}).items()}
    plan = build_plan(
        inputs.workload, rates_of(inputs.workload, given), algorithm=algorithm, model=cost_model
    )
    existing = (Path(warehouse) / "heddle.json").exists()
    house = Warehouse.open(warehouse) if existing or not dry_run else None
    newest = current_version(house) if house else None
    old = load_plan(house, newest) if house and newest is not None else None
    changed = old is None or old.fingerprint != plan.fingerprint
    version = newest
    if not dry_run and house is not None:
        version, changed = publish_plan(house, plan, created_by, reason)
    return {
        "version": version,
        "changed": changed,
        "dry_run": dry_run,
        "plan": to_json(plan),
        "diff": diff(old, plan).lines(),
        "diagnostics": [found.to_json() for found in inputs.diagnostics],
    }


def watermark_delay(streams: StrPath) -> int:
    """The largest lateness of the declared streams, in microseconds: how long after its end an interval is complete."""
    known, _ = load_streams(streams)
    return max((stream.lateness for stream in known.values()), default=0)
