"""Inputs of commands: files, streams, rates, a stored plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heddle.cli.options import Algorithm, CostModel, Counter
from heddle.cli.output import print_diagnostics
from heddle.cli.progress import stages
from optimizer.errors.diagnostics import HeddleError

if TYPE_CHECKING:
    from optimizer.plan.bare_windows import WindowPlan
    from optimizer.plan.definition import SharingPlan
    from spark_jobs.pipeline.planning.plan_workload import PlannedWorkload
    from spark_jobs.pipeline.planning.requested import PlanningRequest
    from spark_jobs.store.warehouse.warehouse import Warehouse


def planning_request(
    files: Sequence[Path], streams: Path, rates: Sequence[str] | None, algorithm: Algorithm, cost_model: CostModel
) -> PlanningRequest:
    """The request of a command's options. Raises HDL-112 for a rate that is none."""
    from spark_jobs.pipeline.planning.requested import PlanningRequest, parse_rates

    return PlanningRequest(tuple(files), streams, parse_rates(rates or ()), algorithm.value, cost_model.value)


def planned_workload(request: PlanningRequest, warehouse: Warehouse | None) -> PlannedWorkload:
    """Plan a workload under a line of progress, and print what is wrong with it."""
    from spark_jobs.pipeline.planning.plan_workload import plan_workload

    with stages("reading the queries") as report:
        planned = plan_workload(request, warehouse, report)
    print_diagnostics(planned.diagnostics)
    return planned


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
    from spark_jobs.pipeline.planning.requested import model_of, parse_rate

    if len(rates) != 1:
        raise HeddleError("HDL-112", f"--windows needs one --rate, not {len(rates)}", "e.g. --rate 1200 (tuples/s)")
    rate = parse_rate(rates[0])
    bare_windows, diagnostics = read_windows(windows)
    print_diagnostics(diagnostics)
    seconds = SECONDS if budget is None else budget
    model = model_of(cost_model.value, [])
    return plan_windows(bare_windows, rate, algorithm.value, model, counter.value, seconds), bool(diagnostics)


def existing_warehouse(folder: str) -> Warehouse:
    """The warehouse in a folder, which has to be there. If it is the project's own, its plans are read with the places
    that its streams have now."""
    from spark_jobs.pipeline.planning.project_streams import of_project
    from spark_jobs.store.settings import said
    from spark_jobs.store.warehouse.warehouse import Warehouse

    return of_project(Warehouse.open(folder, create=False), said("warehouse"), said("streams"))


def opened_warehouse(warehouse: str | None) -> Warehouse | None:
    """The warehouse in a folder that has to be one; None if no folder is given."""
    return existing_warehouse(warehouse) if warehouse is not None else None


def stored_plan(warehouse: str, version: int | None = None) -> tuple[SharingPlan, int]:
    """A stored plan and its version (None: the newest)."""
    from spark_jobs.store.warehouse.plans import current_version, load_plan

    opened = existing_warehouse(warehouse)
    chosen = version if version is not None else current_version(opened) or 0
    return load_plan(opened, chosen), chosen
