"""What commands are given: files, streams, rates, a stored plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heddle.cli.options import Algorithm, CostModel, Counter
from heddle.cli.output import print_diagnostics
from heddle.cli.progress import Stages, stages
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.plan.bare_windows import WindowPlan
    from optimizer.plan.definition import SharingPlan
    from spark_jobs.planning.registration import RegistrationRequest
    from spark_jobs.planning.requested import Inputs
    from spark_jobs.warehouse.warehouse import Warehouse


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
) -> tuple[SharingPlan, bool, RegistrationRequest]:
    """The plan of some files and of what is registered beside them, whether something in them or in their streams was
    not usable, and what the plan changes of what is registered.

    A warehouse knows what is registered, measured costs and rates, and the plan in force that is kept if it is about as
    cheap. ``exactly``: the files are the whole workload; ``prune``: queries that the files no longer have are removed.
    """
    with stages("reading the queries") as report:
        return _requested_plan(
            files, streams, rates, algorithm, cost_model, warehouse, counter, budget, exactly, prune, report
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
    report: Stages,
) -> tuple[SharingPlan, bool, RegistrationRequest]:
    from optimizer.plan.builder import build_plan
    from optimizer.search.search import SECONDS
    from spark_jobs.planning.refresh import comparable_plan
    from spark_jobs.planning.registration import registering
    from spark_jobs.planning.requested import TOLERANCE, model_of, parse_rates, profiles_of, rates_of

    inputs = _inputs(files, streams, warehouse)
    if not inputs.workload.queries:
        hint = "see the messages above" if inputs.errors else "write one: SELECT … FROM stream WINDOW …"
        raise HeddleError("HDL-113", "there is no usable query", hint)
    asked = registering(inputs, warehouse, exactly, prune)
    workload = asked.workload
    report("measuring the streams")
    found, measurements, unreadable = rates_of(workload, parse_rates(rates), warehouse)
    print_diagnostics([*asked.diagnostics, *unreadable])
    model, seconds = model_of(cost_model.value, measurements, warehouse), SECONDS if budget is None else budget
    report(f"planning {number_of(len(workload.queries), 'query')}")
    previous = comparable_plan(warehouse, algorithm.value, cost_model.value)
    plan = build_plan(
        workload,
        found,
        algorithm.value,
        model,
        counter.value,
        seconds,
        previous,
        TOLERANCE,
        profiles_of(workload, found, model),
    )
    refused = [found for found in asked.diagnostics if found.severity == "error"]
    return plan, bool(inputs.errors or refused or unreadable), asked


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
    """The warehouse in a folder, which has to be there."""
    from spark_jobs.warehouse.warehouse import Warehouse

    return Warehouse.open(folder, create=False)


def opened_warehouse(warehouse: str | None) -> Warehouse | None:
    """The warehouse in a folder that has to be one; None if no folder is given."""
    return existing_warehouse(warehouse) if warehouse is not None else None


def stored_plan(warehouse: str, version: int | None = None) -> tuple[SharingPlan, int]:
    """A stored plan and its version (None: the newest)."""
    from spark_jobs.warehouse.plans import current_version, load_plan

    house = existing_warehouse(warehouse)
    chosen = version if version is not None else current_version(house) or 0
    return load_plan(house, chosen), chosen
