"""The one way from a workload to a plan: load, register, measure, search. Nothing is stored.

:func:`plan_workload` plans files and what is registered. :func:`replan` plans other queries from a stored plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count
from optimizer.plan.definition import SharingPlan
from optimizer.plan.reuse import Searched
from optimizer.search.cost import CostModel
from optimizer.workload.values import Stream, Workload
from spark_jobs.pipeline.costs.measurements import Measured
from spark_jobs.pipeline.planning import requested
from spark_jobs.pipeline.planning.kept_plan import reusable_plan, sources_of
from spark_jobs.pipeline.planning.registration import RegistrationRequest, registering
from spark_jobs.pipeline.planning.requested import (
    Inputs,
    PlanningRequest,
    densities_of,
    model_of,
    profiles_of,
    rates_of,
)
from spark_jobs.store.warehouse import plans
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_versions import changes_a_day


@dataclass(frozen=True)
class PlannedWorkload:
    """The plan of a workload, and what it was made from.

    Attributes
    ----------
    plan
        The plan of the files and of what is registered.
    registration
        What the plan changes of what is registered.
    diagnostics
        What is wrong with files, queries and streams, in the order in which it was noticed.
    has_failed
        Whether a file, a query or a stream was not usable. The plan has the others.
    searched
        What the plan was searched with.
    measurements
        The streams whose rates were measured.
    holds
        Whether it is the plan in force, which was not searched again.
    sources
        The declared streams with a digest of each listing. None: a listing does not show every change of its stream,
        there are diagnostics, or the request does not reuse a plan.
    """

    plan: SharingPlan
    registration: RegistrationRequest
    diagnostics: tuple[Diagnostic, ...]
    has_failed: bool
    searched: Searched
    measurements: tuple[Measured, ...]
    holds: bool = False
    sources: tuple[tuple[Stream, str], ...] | None = None


def plan_workload(
    request: PlanningRequest, warehouse: Warehouse | None = None, report: Callable[[str], None] = lambda stage: None
) -> PlannedWorkload:
    """Plan the files of a request together with what a warehouse has registered.

    ``warehouse`` also has measured costs and rates, and the plan in force, which is kept if it is about as cheap.
    ``report`` receives a line as each stage begins. Raises HDL-113 if no query is usable, and what loading, registering
    (:func:`registering`) and measuring (:func:`rates_of`) raise. The ``causes`` of an error include the diagnostics of
    the files.
    """
    inputs = requested.load_inputs(request.files, request.streams, warehouse)
    try:
        return _planned(request, inputs, warehouse, report)
    except HeddleError as error:
        error.causes = (*inputs.diagnostics, *error.causes)
        raise


def _planned(
    request: PlanningRequest, inputs: Inputs, warehouse: Warehouse | None, report: Callable[[str], None]
) -> PlannedWorkload:
    if not inputs.workload.queries:
        first = "; ".join(f"{problem.code} {problem.message}" for problem in inputs.diagnostics[:3])
        hint = "`heddle validate` lists every problem" if first else "write one: SELECT … FROM stream WINDOW …"
        raise HeddleError("HDL-113", f"there is no usable query{': ' if first else ''}{first}", hint)
    registration = registering(inputs, warehouse, request.exactly, request.prune)
    workload = registration.workload
    report("measuring the streams")
    sources = sources_of(inputs.workload.streams) if request.reuse else None
    rates, measurements, unreadable = rates_of(workload, request.rates, warehouse)
    model = model_of(request.cost_model, measurements, warehouse)
    diagnostics = (*inputs.diagnostics, *registration.diagnostics, *unreadable)
    has_failed = any(problem.severity == "error" for problem in diagnostics)
    # a plan with diagnostics is made again each time, so that they are printed each time
    sources = None if diagnostics else sources
    reusable, profiles = None, cache(partial(profiles_of, workload, rates, model))
    if request.reuse:
        reusable = reusable_plan(
            warehouse,
            workload,
            rates,
            request.algorithm,
            model,
            request.tolerance,
            lambda: densities_of(workload, profiles()),
        )
    if reusable is not None:
        plan, searched = reusable.plan, reusable.searched
    else:
        # importing a search takes longer than all else that a command needs if its plan holds
        from optimizer.plan.builder import build_plan
        from optimizer.search.search import SECONDS

        report(f"planning {count(len(workload.queries), 'query')}")
        plan = build_plan(
            workload,
            rates,
            request.algorithm,
            model,
            request.counter,
            SECONDS if request.budget is None else request.budget,
            comparable_plan(warehouse, request.algorithm, request.cost_model),
            request.tolerance,
            profiles(),
            changes=_changes(workload, warehouse),
        )
        searched = Searched.of(plan, model, densities_of(workload, profiles()))
    is_reused = reusable is not None
    return PlannedWorkload(
        plan, registration, diagnostics, has_failed, searched, tuple(measurements), is_reused, sources
    )


def _changes(workload: Workload, warehouse: Warehouse | None) -> dict[str, float]:
    """Changes a day of the dimensions of which a warehouse knows them, by name."""
    names = {dimension.name for stream in workload.streams for dimension in stream.dimensions}
    if warehouse is None or not names:
        return {}
    known = {name: changes_a_day(warehouse, name) for name in sorted(names)}
    return {name: changes for name, changes in known.items() if changes is not None}


def comparable_plan(warehouse: Warehouse | None, algorithm: str, cost_model: str) -> SharingPlan | None:
    """Return the plan in force if it came from the same search and cost model. A plan of another search is not kept
    for its own sake."""
    newest = plans.current_version(warehouse) if warehouse is not None else None
    if warehouse is None or newest is None:
        return None
    plan = plans.load_plan(warehouse, newest)
    return plan if (plan.algorithm, plan.cost_model) == (algorithm, cost_model) else None


def replan(
    base: SharingPlan,
    workload: Workload,
    rates: Mapping[str, Fraction],
    algorithm: str | None = None,
    model: CostModel | None = None,
    keeps_trees: bool = True,
) -> SharingPlan:
    """Plan other queries, or other rates, from a stored plan.

    Parameters
    ----------
    base
        The stored plan. Queries that share a synopsis in it go on sharing it.
    workload, rates
        The queries, and the tuples per second of every stream that they read.
    algorithm, model
        None: those of ``base``.
    keeps_trees
        Whether queries of ``base`` stay in their trees, whatever that costs.
    """
    from optimizer.plan.builder import build_plan

    chosen = model or base.model
    return build_plan(
        workload,
        rates,
        algorithm or base.algorithm,
        chosen,
        previous=base if keeps_trees else None,
        tolerance=float("inf") if keeps_trees else 0,
        profiles=profiles_of(workload, rates, chosen),
        sharing=() if keeps_trees else base.synopses_by_name,
        joined={} if keeps_trees else base.joined_late,
    )
