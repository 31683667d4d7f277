"""The refresh of the sharing plan, as ``refresh_sharing_plan`` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.export import to_json
from optimizer.search.cost import COST_MODELS
from optimizer.search.search import ALGORITHMS
from optimizer.workload.streams import load_streams
from spark_jobs.pipeline.costs.measurements import log
from spark_jobs.pipeline.planning import publication
from spark_jobs.pipeline.planning.kept_plan import note_plan
from spark_jobs.pipeline.planning.plan_workload import plan_workload
from spark_jobs.pipeline.planning.registration import RegistrationRequest, changes
from spark_jobs.pipeline.planning.requested import LONGEST_RATE, TOLERANCE, PlanningRequest, StrPath, parse_rate
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import plans
from spark_jobs.store.warehouse.places import relocated_as
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class PlanOutcome:
    """Outcome of a refresh of the plan, or of its dry run.

    Attributes
    ----------
    version
        The version in force afterwards; None before any.
    changed
        Whether that version is new. In a dry run also whether queries would come, go or change.
    dry_run
        Whether the refresh writes nothing.
    plan
        The plan of the workload.
    diff
        Lines for people, with the answers whose partials are recomputed.
    paused
        Names of queries that are not planned until they are resumed.
    diagnostics
        Findings about files, queries and streams; in a dry run also HDL-526.
    """

    version: int | None
    changed: bool
    dry_run: bool
    plan: SharingPlan
    diff: tuple[str, ...]
    paused: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON data; ``plan`` is as ``heddle plan --json`` prints it."""
        return {
            "version": self.version,
            "changed": self.changed,
            "dry_run": self.dry_run,
            "fingerprint": self.plan.fingerprint,
            "plan": to_json(self.plan),
            "diff": list(self.diff),
            "paused": list(self.paused),
            "diagnostics": [problem.to_json() for problem in self.diagnostics],
        }


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
) -> PlanOutcome:
    """Plan the workload's files, which are the whole workload, at the measured rates, and store the plan if it
    changed.

    Parameters
    ----------
    warehouse, workload, streams
        The warehouse, which is created if it is missing; the workload files; the file that declares the streams.
    algorithm, cost_model
        Names of a search and of a cost model.
    rates
        Tuples per second by stream, in place of those that are measured.
    tolerance
        The plan in force is kept, extended by new queries, while it costs at most ``1 + tolerance`` times the plan
        from scratch.
    dry_run
        Whether to write nothing at all.
    reason, created_by
        Stored with the plan.
    expected
        The version that has to be in force until the plan is stored (0: none).
    expected_plan
        The fingerprint that the plan has to have, as a dry run returned it.
    allow_removals
        Whether any number of registered queries that the files lack may be removed.

    Raises
    ------
    HeddleError
        HDL-112 for an unknown search or cost model, a wrong rate or tolerance; HDL-113 if no query is usable or all
        are paused; HDL-526 if the files seem to be lacking; HDL-551 for another version than expected; HDL-560 for
        another plan than expected.
    """
    if algorithm not in ALGORITHMS or cost_model not in COST_MODELS:
        known = f"known: {', '.join(ALGORITHMS)}; {', '.join(COST_MODELS)}"
        raise HeddleError("HDL-112", f"there is no search {algorithm!r} by the cost model {cost_model!r}", known)
    if not 0 <= tolerance < float("inf"):
        raise HeddleError("HDL-112", f"{tolerance!r} is no tolerance", "0.05 permits a plan 5 % dearer than a new one")
    by_stream = {name: parse_rate(str(rate)[:LONGEST_RATE]) for name, rate in (rates or {}).items()}
    request = PlanningRequest(
        tuple(workload), streams, by_stream, algorithm, cost_model, tolerance=tolerance, exactly=True
    )
    existing = Warehouse.open(warehouse) if Warehouse.stands(warehouse) else None
    planned = plan_workload(request, existing)
    plan, registration = planned.plan, planned.registration
    if expected_plan is not None and plan.fingerprint != expected_plan:
        message = "by the queries and rates of now the plan is another than the one that was to be applied"
        raise HeddleError("HDL-560", message, "make a new dry run and look at its difference")
    doubt = None if allow_removals else too_many(registration)
    if doubt is not None and not dry_run:
        raise doubt
    version = plans.current_version(existing) if existing is not None else None
    old = plans.load_plan(existing, version) if existing is not None and version is not None else None
    old = None if old is None else relocated_as(old, {stream.name: stream for stream in plan.workload.streams})
    changed = old is None or old.fingerprint != plan.fingerprint or any(line[0] in "+-~" for line in registration.lines)
    if not dry_run:
        writable = existing if existing is not None else Warehouse.open(warehouse)
        noted = partial(note_plan, writable, plan, planned.searched)
        version, changed = publication.publish_plan(
            writable, plan, created_by, reason, registration, expected=expected, noted=noted
        )
        log(writable, [measurement.row(created_by) for measurement in planned.measurements])
    return PlanOutcome(
        version,
        changed,
        dry_run,
        plan,
        tuple(changes(registration, old, plan)),
        tuple(query.name for query in registration.paused),
        (*planned.diagnostics, *([doubt.diagnostic] if doubt else [])),
    )


def too_many(request: RegistrationRequest) -> HeddleError | None:
    """HDL-526 if the files of the workload seem to be lacking: more than a tenth of the registered queries would go,
    and at least three, or all that came from one file."""
    live, removed = request.live, set(request.removed)
    # a file that has other queries by now is there
    present_files = {
        *request.files.values(),
        *(registration.file for name, registration in live.items() if name not in removed),
    }
    emptied_files = sorted({str(live[name].file) for name in removed if live[name].file not in (None, *present_files)})
    if not emptied_files and (len(removed) < 3 or 10 * len(removed) <= len(live)):
        return None
    files = (
        f", among them all of {', '.join(emptied_files[:3])}{' …' if len(emptied_files) > 3 else ''}"
        if emptied_files
        else ""
    )
    names = ", ".join(request.removed[:12]) + (" …" if len(removed) > 12 else "")
    return HeddleError(
        "HDL-526",
        f"{len(removed)} of {len(live)} registered queries would be removed{files}: {names}",
        "see that the folder of the workload is there; if they are to go, set allow_removals, or `heddle remove` them",
    )


def watermark_delay(streams: StrPath) -> int:
    """The largest lateness of the declared streams, in microseconds: how long after its end an interval is complete."""
    known, _ = load_streams(streams, settings().source_roots, settings().copies)
    return max((stream.lateness for stream in known.values()), default=0)
