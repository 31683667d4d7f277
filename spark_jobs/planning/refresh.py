"""The refresh of the sharing plan, as ``refresh_sharing_plan`` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.plan.export import to_json
from optimizer.plan.reuse import Searched
from optimizer.search.cost import COST_MODELS
from optimizer.search.search import ALGORITHMS
from optimizer.workload.streams import load_streams
from spark_jobs.costs.measurements import log
from spark_jobs.planning import publication, requested
from spark_jobs.planning.kept_plan import note_plan
from spark_jobs.planning.registration import RegistrationRequest, changes, registering
from spark_jobs.planning.requested import LONGEST_RATE, TOLERANCE, StrPath, model_of, parse_rate, profiles_of, rates_of
from spark_jobs.settings import settings
from spark_jobs.warehouse import plans
from spark_jobs.warehouse.places import relocated_as
from spark_jobs.warehouse.warehouse import Warehouse


def comparable_plan(warehouse: Warehouse | None, algorithm: str, cost_model: str) -> SharingPlan | None:
    """The plan in force, if it came from the same search under the same cost model; another search that is asked
    for keeps nothing of it for its own sake."""
    newest = plans.current_version(warehouse) if warehouse is not None else None
    if warehouse is None or newest is None:
        return None
    plan = plans.load_plan(warehouse, newest)
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
    allow_removals: bool = False,
) -> dict[str, Any]:
    """Recompute the sharing plan from the workload's files, which are all of it, and the measured rates, and store it
    if it changed.

    ``rates``: tuples per second that override what is measured. ``tolerance``: the plan in force is kept, with the
    queries that came woven in, while it costs at most ``1 + tolerance`` times the plan from scratch. A dry run writes
    nothing at all. ``expected``: the version that is to be in force until the plan is stored (0: none; else HDL-551);
    ``expected_plan``: the fingerprint that the plan is to have, as a dry run told it (else HDL-560). Registered queries
    that the files lack are removed, but not so many that the files themselves seem to be lacking (HDL-526, which a dry
    run tells among its diagnostics), unless ``allow_removals``.
    Returns ``version`` (of the plan in force afterwards; None before any), ``changed`` (whether it is new; of a dry run
    also whether queries would come, go or change), ``fingerprint``, ``plan`` (as ``heddle plan --json``), ``diff``
    (lines for people, with the answers whose partials are recomputed), ``paused``
    (names of queries that are left out until they are resumed), ``diagnostics``. Raises HeddleError if no query is
    usable or all are paused (HDL-113).
    """
    if algorithm not in ALGORITHMS or cost_model not in COST_MODELS:
        known = f"known: {', '.join(ALGORITHMS)}; {', '.join(COST_MODELS)}"
        raise HeddleError("HDL-112", f"there is no search {algorithm!r} by the cost model {cost_model!r}", known)
    if not 0 <= tolerance < float("inf"):
        raise HeddleError("HDL-112", f"{tolerance!r} is no tolerance", "0.05 permits a plan 5 % dearer than a new one")
    given = {name: parse_rate(str(rate)[:LONGEST_RATE]) for name, rate in (rates or {}).items()}
    existing = Warehouse.open(warehouse) if Warehouse.stands(warehouse) else None
    inputs = requested.load_inputs(workload, streams, existing)
    if not inputs.workload.queries:
        first = "; ".join(f"{found.code} {found.message}" for found in inputs.diagnostics[:3])
        raise HeddleError("HDL-113", f"no usable query: {first}", "`heddle validate` says all that is wrong")
    house = Warehouse.open(warehouse) if existing is None and not dry_run else existing
    asked = registering(inputs, house, exactly=True)
    found, measurements, unreadable = rates_of(asked.workload, given, house)
    newest = plans.current_version(house) if house else None
    old = plans.load_plan(house, newest) if house and newest is not None else None
    model = model_of(cost_model, measurements, house)
    previous = comparable_plan(house, algorithm, cost_model)
    profiles = profiles_of(asked.workload, found, model)
    plan = build_plan(
        asked.workload, found, algorithm, model, previous=previous, tolerance=tolerance, profiles=profiles
    )
    if expected_plan is not None and plan.fingerprint != expected_plan:
        message = "by the queries and rates of now the plan is another than the one that was to be applied"
        raise HeddleError("HDL-560", message, "make a new dry run and look at its difference")
    doubt = None if allow_removals else too_many(asked)
    if doubt is not None and not dry_run:
        raise doubt
    old = None if old is None else relocated_as(old, {stream.name: stream for stream in plan.workload.streams})
    changed = old is None or old.fingerprint != plan.fingerprint or any(line[0] in "+-~" for line in asked.lines)
    version = newest
    if not dry_run and house is not None:
        noted = partial(note_plan, house, plan, Searched.of(plan, model))
        version, changed = publication.publish_plan(
            house, plan, created_by, reason, asked, expected=expected, noted=noted
        )
        log(house, [measurement.row(created_by) for measurement in measurements])
    diagnostics = (*inputs.diagnostics, *asked.diagnostics, *unreadable, *([doubt.diagnostic] if doubt else []))
    return {
        "version": version,
        "changed": changed,
        "dry_run": dry_run,
        "fingerprint": plan.fingerprint,
        "plan": to_json(plan),
        "diff": changes(asked, old, plan),
        "paused": [query.name for query in asked.paused],
        "diagnostics": [found.to_json() for found in diagnostics],
    }


def too_many(request: RegistrationRequest) -> HeddleError | None:
    """HDL-526 if the files of the workload seem to be lacking: more than a tenth of the registered queries would go,
    and at least three, or all that came from one file."""
    live, gone = request.live, set(request.removed)
    # a file that has other queries by now is there
    there = {*request.files.values(), *(one.file for name, one in live.items() if name not in gone)}
    whole = sorted({str(live[name].file) for name in gone if live[name].file not in (None, *there)})
    if not whole and (len(gone) < 3 or 10 * len(gone) <= len(live)):
        return None
    files = f", among them all of {', '.join(whole[:3])}{' …' if len(whole) > 3 else ''}" if whole else ""
    named = ", ".join(request.removed[:12]) + (" …" if len(gone) > 12 else "")
    return HeddleError(
        "HDL-526",
        f"{len(gone)} of {len(live)} registered queries would be removed{files}: {named}",
        "see that the folder of the workload is there; if they are to go, set allow_removals, or `heddle remove` them",
    )


def watermark_delay(streams: StrPath) -> int:
    """The largest lateness of the declared streams, in microseconds: how long after its end an interval is complete."""
    known, _ = load_streams(streams, settings().source_roots, settings().copies)
    return max((stream.lateness for stream in known.values()), default=0)
