"""What commands are given: files, streams, rates, a stored plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from heddle.cli.options import Algorithm, CostModel, Counter
from heddle.cli.output import print_diagnostics
from heddle.cli.progress import Stages, stages
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.plan.bare_windows import WindowPlan
    from optimizer.plan.definition import SharingPlan
    from optimizer.plan.reuse import Searched
    from optimizer.workload.values import Stream
    from spark_jobs.planning.registration import RegistrationRequest
    from spark_jobs.planning.requested import Inputs
    from spark_jobs.warehouse.warehouse import Warehouse


class RequestedPlan(NamedTuple):
    """The plan of some files and of what is registered beside them.

    ``has_failed``: whether something in them or in their streams was not usable. ``request``: what the plan changes of
    what is registered. ``searched``: what it was searched with. ``holds``: whether it is the plan in force, which was
    not searched again. ``sources``: the declared streams with a digest of each listing (None: not all tell their
    changes, or there was something to say).
    """

    plan: SharingPlan
    has_failed: bool
    request: RegistrationRequest
    searched: Searched
    holds: bool = False
    sources: tuple[tuple[Stream, str], ...] | None = None


def _inputs(files: Sequence[Path], streams: Path, warehouse: Warehouse | None) -> Inputs:
    from spark_jobs.planning.requested import load_inputs

    inputs = load_inputs(files, streams, warehouse)
    print_diagnostics(inputs.diagnostics)
    return inputs


def build_requested_plan(
    files: Sequence[Path],
    streams: Path,
    rates: Sequence[str],
    algorithm: Algorithm,
    cost_model: CostModel,
    warehouse: Warehouse | None = None,
    counter: Counter = Counter.auto,
    budget: float | None = None,
    exactly: bool = False,
    prune: bool = False,
    reuse: bool = False,
) -> RequestedPlan:
    """Plan some files, and what is registered beside them.

    A warehouse knows what is registered, measured costs and rates, and the plan in force that is kept if it is about as
    cheap. ``exactly``: the files are the whole workload; ``prune``: queries that the files no longer have are removed.
    ``reuse``: the plan in force is not searched again if its queries mean the same and rates are about the same.
    """
    with stages("reading the queries") as report:
        return _requested_plan(
            files, streams, rates, algorithm, cost_model, warehouse, counter, budget, exactly, prune, reuse, report
        )


def _requested_plan(
    files: Sequence[Path],
    streams: Path,
    rates: Sequence[str],
    algorithm: Algorithm,
    cost_model: CostModel,
    warehouse: Warehouse | None,
    counter: Counter,
    budget: float | None,
    exactly: bool,
    prune: bool,
    reuse: bool,
    report: Stages,
) -> RequestedPlan:
    from spark_jobs.planning.kept_plan import reusable_plan, sources_of
    from spark_jobs.planning.registration import registering
    from spark_jobs.planning.requested import TOLERANCE, model_of, parse_rates, rates_of

    inputs = _inputs(files, streams, warehouse)
    if not inputs.workload.queries:
        hint = "see the messages above" if inputs.errors else "write one: SELECT … FROM stream WINDOW …"
        raise HeddleError("HDL-113", "there is no usable query", hint)
    asked = registering(inputs, warehouse, exactly, prune)
    workload = asked.workload
    report("measuring the streams")
    sources = sources_of(inputs.workload.streams) if reuse else None
    found, measurements, unreadable = rates_of(workload, parse_rates(rates), warehouse)
    print_diagnostics([*asked.diagnostics, *unreadable])
    model = model_of(cost_model.value, measurements, warehouse)
    refused = [found for found in asked.diagnostics if found.severity == "error"]
    has_failed = bool(inputs.errors or refused or unreadable)
    if inputs.diagnostics or asked.diagnostics or unreadable:
        # what there is to say is said each time
        sources = None
    kept = reusable_plan(warehouse, workload, found, algorithm.value, model, TOLERANCE) if reuse else None
    if kept is not None:
        return RequestedPlan(kept.plan, has_failed, asked, kept.searched, True, sources)
    # a search takes longer to import than all else that a command needs which finds nothing to do
    from optimizer.plan.builder import build_plan
    from optimizer.plan.reuse import Searched
    from optimizer.search.search import SECONDS
    from spark_jobs.planning.refresh import comparable_plan
    from spark_jobs.planning.requested import profiles_of

    report(f"planning {number_of(len(workload.queries), 'query')}")
    previous = comparable_plan(warehouse, algorithm.value, cost_model.value)
    plan = build_plan(
        workload,
        found,
        algorithm.value,
        model,
        counter.value,
        SECONDS if budget is None else budget,
        previous,
        TOLERANCE,
        profiles_of(workload, found, model),
    )
    return RequestedPlan(plan, has_failed, asked, Searched.of(plan, model), False, sources)


def plan_bare_windows(
    windows: Path,
    rates: Sequence[str],
    algorithm: Algorithm,
    cost_model: CostModel,
    counter: Counter,
    budget: float | None,
) -> tuple[WindowPlan, bool]:
    """The plan of a CSV file of windows, and whether some rows were not usable."""
    from optimizer.plan.bare_windows import plan_windows, read_windows
    from optimizer.search.search import SECONDS
    from spark_jobs.planning.requested import model_of, parse_rate

    if len(rates) != 1:
        raise HeddleError("HDL-112", f"--windows needs one --rate, not {len(rates)}", "e.g. --rate 1200 (tuples/s)")
    rate = parse_rate(rates[0])
    found, diagnostics = read_windows(windows)
    print_diagnostics(diagnostics)
    seconds = SECONDS if budget is None else budget
    model = model_of(cost_model.value, [])
    return plan_windows(found, rate, algorithm.value, model, counter.value, seconds), bool(diagnostics)


def existing_warehouse(folder: str) -> Warehouse:
    """The warehouse in a folder, which has to be there. If it is the project's own, its plans are read with the places
    that its streams have now."""
    from spark_jobs.planning.project_streams import of_project
    from spark_jobs.settings import said
    from spark_jobs.warehouse.warehouse import Warehouse

    return of_project(Warehouse.open(folder, create=False), said("warehouse"), said("streams"))


def opened_warehouse(warehouse: str | None) -> Warehouse | None:
    """The warehouse in a folder that has to be one; None if no folder is given."""
    return existing_warehouse(warehouse) if warehouse is not None else None


def stored_plan(warehouse: str, version: int | None = None) -> tuple[SharingPlan, int]:
    """A stored plan and its version (None: the newest)."""
    from spark_jobs.warehouse.plans import current_version, load_plan

    house = existing_warehouse(warehouse)
    chosen = version if version is not None else current_version(house) or 0
    return load_plan(house, chosen), chosen
