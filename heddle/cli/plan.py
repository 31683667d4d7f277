"""``heddle validate``, ``plan``, ``explain``, ``what-if`` and ``rollback``."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from heddle.cli import changes, terminal
from heddle.cli.changes import plan_changes, prices_of_a_day, print_changes, show_diff, show_prices_of_a_day
from heddle.cli.completion import complete_queries, complete_streams
from heddle.cli.inputs import (
    existing_warehouse,
    opened_warehouse,
    plan_bare_windows,
    planned_workload,
    planning_request,
    stored_plan,
)
from heddle.cli.options import (
    Algorithm,
    AlgorithmOption,
    AsJson,
    CostModel,
    CostOption,
    Counter,
    CounterOption,
    DryRun,
    Exactly,
    Files,
    OptionalFiles,
    OptionalStreams,
    OptionalWarehouse,
    PlanFormat,
    Query,
    Rates,
    Streams,
    WarehouseOption,
    Yes,
)
from heddle.cli.output import (
    TREES_SHOWN,
    json_text,
    print_diagnostics,
    print_json,
    seconds_text,
    telling_errors,
    unit_text,
    write_text,
)
from heddle.cli.reports import JUnit, ReportFormat, ReportOption, by_file, json_asked, reporting
from heddle.cli.root import app
from heddle.cli.terminal import PlainConsole
from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.plan.definition import SharingPlan
    from optimizer.workload.values import Workload
    from spark_jobs.pipeline.costs.learned import Predicted
    from spark_jobs.pipeline.planning.requested import PlanningRequest
    from spark_jobs.pipeline.planning.validation import Validation
    from spark_jobs.pipeline.planning.versions import Rollback
    from spark_jobs.pipeline.planning.what_if import RateChange, WhatIf
    from spark_jobs.store.warehouse.warehouse import Warehouse


@app.command(
    epilog="Examples: heddle validate dags/workload/flights.sql --streams dags/workload/streams.yaml   "
    "|   heddle validate --format github --junit validate.xml"
)
def validate(
    files: Files,
    streams: Streams,
    format: ReportOption = ReportFormat.text,
    junit: JUnit = None,
    as_json: AsJson = False,
) -> None:
    """Check queries, streams and the first rows of their data. Every problem has its code, its place and what to do
    about it."""
    from spark_jobs.pipeline.planning.validation import validate_files
    from spark_jobs.store.settings import said
    from spark_jobs.store.warehouse.warehouse import Warehouse

    as_json = json_asked(format, as_json)
    with reporting(format, junit) as cases:
        own = said("warehouse")
        warehouse = Warehouse.open(own, create=False) if own is not None and Warehouse.stands(own) else None
        validation = validate_files(files, streams, warehouse)
        cases += by_file((*validation.inputs.read, str(streams)), validation.inputs.diagnostics)
    if as_json:
        print_json(validation.to_json())
    else:
        show_validation(validation)
    raise typer.Exit(1 if validation.inputs.errors else 0)


def show_validation(validation: Validation) -> None:
    """Everything that is wrong, what each stream holds, and how many queries are usable."""
    inputs = validation.inputs
    print_diagnostics(inputs.diagnostics)
    for inspection in (*validation.streams, *validation.dimensions):
        terminal.console.print(str(inspection), markup=False, highlight=False, soft_wrap=True)
    terminal.console.print(
        f"{number_of(len(inputs.workload.queries), 'query')} usable, {number_of(len(inputs.errors), 'error')}"
    )


# --------------------------------------------------------------------------------------------- plan
@app.command(
    epilog="Examples: heddle plan q.sql --streams streams.yaml --rate trades=1200 --json   "
    "|   heddle plan --warehouse var/warehouse --format html --output plan.html   "
    "|   heddle plan --windows windows.csv --rate 1200 --summary"
)
def plan(
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            help="STREAM=TUPLES_PER_SECOND, may be given again (default: measured from the source); "
            "with --windows the number alone.",
            autocompletion=complete_streams,
        ),
    ] = None,
    algorithm: AlgorithmOption = Algorithm.best,
    cost_model: CostOption = CostModel.paper,
    warehouse: OptionalWarehouse = None,
    windows: Annotated[
        Path | None,
        typer.Option("--windows", help="Plan bare windows: a CSV file with columns range,slide in seconds."),
    ] = None,
    counter: CounterOption = Counter.auto,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0.0,
            max=3600.0,
            help="CPU seconds to improve on Weave Share (for best).",
            show_default="0.4",
        ),
    ] = None,
    exactly: Exactly = False,
    summary: Annotated[bool, typer.Option("--summary", help="Leave the lists of queries out.")] = False,
    format: Annotated[
        PlanFormat, typer.Option("--format", help="A table, JSON, a Mermaid flowchart or a self-contained page.")
    ] = PlanFormat.text,
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which queries share an execution tree, and the cost. It compares the cost with No Share and Shared.
    FILES with --warehouse: together with the registered queries, as `heddle run` would plan them, and the changes;
    nothing is stored. Needs no JVM."""
    _check_plan_options(files, streams, warehouse, windows, exactly, format, as_json)
    format = PlanFormat.json if as_json else format
    with telling_errors():
        if windows is not None:
            bare, has_failed = plan_bare_windows(windows, rate or [], algorithm, cost_model, counter, budget)
            shown = _ShownPlan(bare.to_json(summary), {}, None, has_failed)
        elif files and streams is not None:
            request = planning_request(files, streams, rate, algorithm, cost_model)
            request = replace(request, counter=counter.value, budget=budget, exactly=exactly)
            shown = _plan_of_files(request, warehouse, format is PlanFormat.json, summary)
        elif warehouse is not None:
            stored, version = _planned(warehouse)
            shown = _shown(stored, {"plan_version": version}, summary, warehouse=existing_warehouse(warehouse))
    _deliver_plan(shown, format, output)
    raise typer.Exit(1 if shown.has_failed else 0)


def _planned(warehouse: str) -> tuple[SharingPlan, int]:
    """The newest plan of a warehouse, and its version. If there is none yet, the error's hint explains how files are
    planned.
    """
    try:
        return stored_plan(warehouse)
    except HeddleError as error:
        if error.code not in ("HDL-501", "HDL-502", "HDL-506"):
            raise
        hint = "before the first `heddle run`, name what to plan: heddle plan FILES --streams streams.yaml"
        raise HeddleError(error.code, error.diagnostic.message, hint) from None


class _ShownPlan(NamedTuple):
    """A plan as JSON, the other ``facts`` of its page, the plan itself (None: of bare windows), whether some of its
    input was not usable, and the point from which sharing wins.
    """

    data: dict[str, Any]
    facts: dict[str, Any]
    plan: SharingPlan | None
    has_failed: bool = False
    break_even: str = ""


def _check_plan_options(
    files: Sequence[Path] | None,
    streams: Path | None,
    warehouse: str | None,
    windows: Path | None,
    exactly: bool,
    format: PlanFormat,
    as_json: bool,
) -> None:
    if exactly and (not files or warehouse is None):
        raise typer.BadParameter("--exactly is for FILES and --warehouse")
    if as_json and format not in (PlanFormat.text, PlanFormat.json):
        raise typer.BadParameter(f"--json is --format json, not {format.value}")
    if windows is not None and not as_json and format in (PlanFormat.mermaid, PlanFormat.html):
        raise typer.BadParameter("--windows has no streams and queries to draw: use --format text or json")
    if windows is not None and (files or warehouse is not None):
        raise typer.BadParameter("give --windows, or FILES and --streams, or --warehouse")
    if windows is None and (streams is None if files else warehouse is None):
        raise typer.BadParameter("give FILES and --streams, or --warehouse, or --windows")


def _plan_of_files(request: PlanningRequest, folder: str | None, is_json: bool, summary: bool) -> _ShownPlan:
    """A plan of files, with what a warehouse has registered: what it changes there is printed, and in its JSON."""
    started = time.process_time()
    warehouse = opened_warehouse(folder)
    planned = planned_workload(request, warehouse)
    facts: dict[str, Any] = {"seconds": round(time.process_time() - started, 6)}
    if warehouse is not None:
        changed = plan_changes(warehouse, planned.registration, planned.plan)
        print_changes(changed)
        facts |= {"changes": changed} if is_json else {}
    return _shown(planned.plan, facts, summary, planned.has_failed, warehouse)


def _shown(
    plan: SharingPlan,
    facts: dict[str, Any],
    summary: bool,
    has_failed: bool = False,
    warehouse: Warehouse | None = None,
) -> _ShownPlan:
    from optimizer.plan.export import to_json
    from spark_jobs.audit.unshared.comparison import stored_comparisons
    from spark_jobs.pipeline.costs.learned import known_costs
    from spark_jobs.pipeline.run.break_even import of_plan

    compared = stored_comparisons(warehouse) if warehouse is not None else ()
    break_even = of_plan(known_costs(warehouse), plan, compared[-1].samples if compared else ())
    data = to_json(plan) | facts | ({"break_even": break_even.to_json()} if break_even is not None else {})
    if summary:
        for tree in data["trees"]:
            tree["query_count"] = len(tree.pop("queries"))
    return _ShownPlan(data, facts, plan, has_failed, "" if break_even is None else break_even.sentence())


def _deliver_plan(shown: _ShownPlan, format: PlanFormat, output: Path | None) -> None:
    """Print a plan, or write it to a file."""
    if format is PlanFormat.text and output is None:
        show_plan(shown.data)
        if shown.break_even:
            terminal.console.print(shown.break_even, highlight=False, soft_wrap=True)
        return
    if format is PlanFormat.text:
        plain = PlainConsole(width=160, color_system=None, force_terminal=False)
        with plain.capture() as captured:
            show_plan(shown.data, plain)
            if shown.break_even:
                plain.print(shown.break_even, highlight=False, soft_wrap=True)
        text = captured.get()
    elif format is PlanFormat.json:
        text = json_text(shown.data)
    else:
        assert shown.plan is not None
        text = _drawn(shown.plan, shown.facts, format)
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)


def _drawn(plan: SharingPlan, facts: dict[str, Any], format: PlanFormat) -> str:
    """A plan as a flowchart or as a page, which alone needs templates."""
    if format is PlanFormat.mermaid:
        from heddle.pages.mermaid import mermaid

        return mermaid(plan)
    from heddle.pages.plan import page

    # a plan's page is the same whenever it is drawn
    return page(plan, {name.replace("_", " "): str(value) for name, value in facts.items() if name != "seconds"})


def show_plan(data: dict[str, Any], console: Console = terminal.console) -> None:
    """A plan (as ``heddle plan --json``) as a table for people."""
    unit = unit_text(data["cost_model"])
    bounded = set(data["upper_bounds"])
    table = Table(title=f"{data['algorithm']}: {number_of(len(data['trees']), 'execution tree')}", title_justify="left")
    for name, justify in (
        ("tree", "left"),
        ("queries", "right"),
        ("composite slide", "right"),
        ("edges", "right"),
        ("edges/s", "right"),
        ("overlap", "right"),
        (unit, "right"),
        ("members", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    shown_trees = sorted(data["trees"], key=lambda tree: -tree["cost"])[:TREES_SHOWN]
    listed = {tree["id"] for tree in shown_trees}
    for tree in data["trees"]:
        if tree["id"] not in listed:
            continue
        queries = tree.get("queries", [])
        table.add_row(
            tree["id"],
            f"{tree.get('query_count', len(queries)):,}",
            f"{_large(tree['composite_slide'])} rows" if "rows_per" in tree else seconds_text(tree["composite_slide"]),
            "uncounted" if tree["edges"] is None else _large(tree["edges"]),
            ("≤ " if tree["id"] in bounded else "") + f"{float(Fraction(tree['edge_rate'])):.4g}",
            f"{float(Fraction(tree['overlap_factor'])):.4g}",
            ("≤ " if tree["id"] in bounded else "") + f"{tree['cost']:.4g}",
            ", ".join(queries[:2]) + (f", … {len(queries) - 2} more" if len(queries) > 2 else ""),
        )
    console.print(table)
    if len(data["trees"]) > TREES_SHOWN:
        console.print(
            f"… and {number_of(len(data['trees']) - TREES_SHOWN, 'cheaper tree')} (--json shows all)", highlight=False
        )
    for tree in shown_trees:
        for section in tree.get("sequences", ()):
            prefixes = section["prefixes"]
            console.print(
                f"sequences of {tree['id']}: {number_of(len(section['queries']), 'pattern')}, "
                f"{number_of(len(section['shared']), 'prefix')} shared; a run counts "
                f"{number_of(prefixes['counted'], 'prefix')}, {prefixes['unshared']:,} without sharing",
                highlight=False,
            )
    for section in data.get("schedules", ()):
        console.print(f"refreshes: {section['summary']}", highlight=False)
    rates = ", ".join(f"{name} {float(Fraction(value)):.4g}/s" for name, value in data["rates"].items())
    console.print(f"rates: {rates}", highlight=False)
    if blind := ", ".join(data.get("blind", ())):
        console.print(f"no sample of {blind}: a fragment counts as one group", highlight=False)
    baselines = data["baselines"]
    if data["algorithm"] == "weave-share":
        baselines = baselines | {"weave_share": None}
    for name, cost, is_bound in (
        ("this plan", data["cost"], bool(bounded - {"shared", "weave_share"})),
        ("Weave Share", baselines["weave_share"], "weave_share" in bounded),
        ("No Share", baselines["no_share"], False),
        ("Shared", baselines["shared"], "shared" in bounded),
        ("From scratch", baselines.get("from_scratch"), False),
        ("Factor Windows", baselines.get("factor_windows"), False),
    ):
        if cost is not None:
            times = f"  {cost / data['cost']:.2f} times" if data["cost"] else ""
            shown = ("≤ " if is_bound else "") + f"{cost:,.4f}"
            console.print(f"  {name:<14}{shown:>14} {unit}{times}", highlight=False)
    if data["optimal"]:
        console.print("  no plan is cheaper (proven)", highlight=False)
    elif least := data["lower_bound"]:
        above = f"this one at most {data['cost'] / least - 1:.0%} more than the cheapest"
        console.print(f"  no plan costs less than {least:,.4f} {unit}, {above} (proven)", highlight=False)
    if bounded:
        console.print("  ≤: edges that cannot all be counted exactly; a certified upper bound", highlight=False)


def _large(number: int) -> str:
    return f"{number:,}" if number < 10**12 else f"10^{math.floor(math.log10(number))}"


# ------------------------------------------------------------------------------------------ explain
@app.command(
    epilog="Examples: heddle explain hourly_volume q.sql --streams streams.yaml   "
    "|   heddle explain hourly_volume --warehouse var/warehouse"
)
def explain(
    query: Query,
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    rate: Rates = None,
    algorithm: AlgorithmOption = Algorithm.best,
    cost_model: CostOption = CostModel.paper,
    warehouse: OptionalWarehouse = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a query shares. It shows with which others, what the query would cost alone, and why the nearest
    others are in other trees."""
    from optimizer.plan.explain import explain as explain_query

    with telling_errors():
        plan, _ = _plan_of(files, streams, rate or [], algorithm, cost_model, warehouse)
        names = [known.name for known in plan.workload.queries]
        if query not in names:
            raise HeddleError("HDL-507", f"there is no query {query} in the plan", meant(query, names))
        explanation, versions = explain_query(plan, query), _versions(plan, query, warehouse)
    if as_json:
        print_json(explanation.to_json() | ({"dimensions": versions} if versions else {}))
    else:
        for line in (*explanation.lines(), *(f"dimension {name} is in version {id}" for name, id in versions.items())):
            terminal.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _versions(plan: SharingPlan, name: str, warehouse: str | None) -> dict[str, str]:
    """The versions of the dimensions of a query that the newest run used, by the names of the dimensions."""
    opened = opened_warehouse(warehouse)
    query = plan.workload.query(name)
    stream = plan.workload.stream(query.stream)
    if opened is None or not stream.dimensions:
        return {}
    from spark_jobs.pipeline.run.dimensions import versions_of
    from spark_jobs.streams.sources.dimension_versions import with_current_versions

    return {name: ids[0] for name, ids in versions_of(with_current_versions(opened, stream), query.columns()).items()}


def _plan_of(
    files: Sequence[Path] | None,
    streams: Path | None,
    rates: Sequence[str],
    algorithm: Algorithm,
    cost_model: CostModel,
    warehouse: str | None,
) -> tuple[SharingPlan, bool]:
    """The plan stored in a warehouse, or that of files, and whether something in them was not usable."""
    if warehouse is not None and not files:
        return stored_plan(warehouse)[0], False
    if not files or streams is None:
        raise typer.BadParameter("give FILES and --streams, or --warehouse")
    request = planning_request(files, streams, rates, algorithm, cost_model)
    planned = planned_workload(request, opened_warehouse(warehouse))
    return planned.plan, planned.has_failed


# ------------------------------------------------------------------------------------------ what-if
@app.command(
    "what-if",
    epilog="Examples: heddle what-if --warehouse var/warehouse --add new.sql --remove hourly_volume   "
    "|   heddle what-if q.sql --streams streams.yaml --rate tradesx10",
)
def what_if(
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    warehouse: OptionalWarehouse = None,
    add: Annotated[list[Path] | None, typer.Option("--add", help="A workload file; may be given again.")] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", help="A query's name; may be given again.", autocompletion=complete_queries),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            help="STREAM=TUPLES_PER_SECOND, or STREAMxFACTOR; may be given again.",
            autocompletion=complete_streams,
        ),
    ] = None,
    base_rate: Annotated[
        list[str] | None,
        typer.Option("--base-rate", help="STREAM=TUPLES_PER_SECOND before the change, for FILES. Default: measured."),
    ] = None,
    algorithm: Annotated[
        Algorithm | None, typer.Option("--algorithm", help="Default: the plan's.", show_default=False)
    ] = None,
    cost_model: Annotated[
        CostModel | None, typer.Option("--cost-model", help="Default: the plan's.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the plan if queries or rates changed. It compares cost and trees with the stored plan (or FILES').
    Stores nothing."""
    from spark_jobs.pipeline.planning.what_if import RateChange

    with telling_errors():
        changes = [RateChange.parse(text) for text in rate or []]
        search = algorithm or Algorithm.best, cost_model or CostModel.paper
        base, failed = _plan_of(files, streams, base_rate or [], *search, warehouse)
        answer, wrong = _what_if(base, add or [], remove or [], streams, changes, algorithm, cost_model, warehouse)
        prices = prices_of_a_day(answer.before, answer.after, warehouse)
    if as_json:
        print_json(_what_if_json(answer, prices))
    else:
        show_what_if(answer)
        show_prices_of_a_day(prices)
    raise typer.Exit(1 if failed or wrong else 0)


def _what_if_json(answer: WhatIf, prices: Mapping[str, Predicted]) -> dict[str, Any]:
    costs = {"cost_kept": float(answer.kept), "cost_model": answer.after.cost_model}
    return answer.diff.to_json() | costs | {"run_over_a_day": {name: price.to_json() for name, price in prices.items()}}


def _what_if(
    base: SharingPlan,
    add: Sequence[Path],
    remove: Sequence[str],
    streams: Path | None,
    changes: Sequence[RateChange],
    algorithm: Algorithm | None,
    cost_model: CostModel | None,
    warehouse: str | None,
) -> tuple[WhatIf, bool]:
    """The plan as it is and as it would be, and whether something in the files to add was not usable."""
    from spark_jobs.pipeline.planning.requested import model_of
    from spark_jobs.pipeline.planning.what_if import what_if as plan_again

    extra, rates, wrong = _additional(base, add, streams, changes)
    model = None
    if cost_model is not None and cost_model.value != base.cost_model:
        model = model_of(cost_model.value, [], opened_warehouse(warehouse))
    chosen = algorithm.value if algorithm else None
    return plan_again(base, extra.queries, remove, changes, extra, rates, chosen, model), wrong


def show_what_if(answer: WhatIf) -> None:
    """Print the cost of a plan now and after the changes, and the changes."""
    unit = unit_text(answer.after.cost_model)
    before, kept_cost, after = float(answer.before.cost), float(answer.kept), float(answer.after.cost)
    terminal.console.print("what if (nothing is stored)")
    terminal.console.print(f"  now                        {before:>12.6g} {unit}", highlight=False)
    terminal.console.print(f"  then, trees as they are    {kept_cost:>12.6g} {unit}", highlight=False)
    terminal.console.print(f"  then, planned again        {after:>12.6g} {unit}", highlight=False)
    show_diff(answer.diff, answer.after)


def _additional(
    base: SharingPlan, files: Sequence[Path], streams: Path | None, changes: Sequence[RateChange]
) -> tuple[Workload, dict[str, Fraction], bool]:
    """The queries to add, the rates of streams that only they read, and whether something was not usable."""
    from optimizer.language.files import workload_files
    from optimizer.language.parser import load_workload
    from optimizer.workload.values import Workload
    from spark_jobs.pipeline.planning.requested import load_inputs, rates_of
    from spark_jobs.store.settings import settings

    known = {stream.name: stream for stream in base.workload.streams}
    diagnostics: list[Diagnostic] = []
    if files and streams is not None:
        inputs = load_inputs([], streams)
        diagnostics += inputs.diagnostics
        known = {stream.name: stream for stream in inputs.workload.streams} | known
    workload, wrong = load_workload(workload_files(files), known, owner=settings().owner)
    diagnostics += wrong
    read = {stream.name for stream in base.workload.streams}
    new = Workload(tuple(query for query in workload.queries if query.stream not in read), workload.streams)
    numbers = {change.stream: change.number for change in changes if not change.is_factor and change.stream not in read}
    rates, _, unreadable = rates_of(new, numbers)
    diagnostics += unreadable
    print_diagnostics(diagnostics)
    return workload, rates, any(diagnostic.severity == "error" for diagnostic in diagnostics)


@app.command(epilog="Examples: heddle rollback 3 --warehouse var/warehouse --reason 'slower since 4'")
def rollback(
    plan_version: Annotated[int, typer.Argument(help="The version to go back to.", show_default=False)],
    warehouse: WarehouseOption,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the plan.")] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make an earlier plan current again, as a new version. Running runs keep their plan, and stored partial
    aggregates of its synopses are reused. Paused queries stay paused. Queries that were added since are removed,
    after you confirm it. The next refresh plans again from the registered files."""
    from spark_jobs.pipeline.planning.versions import roll_back

    def confirm(removed: Sequence[str]) -> None:
        changes.confirm_removal(removed, yes)

    with telling_errors():
        result = roll_back(existing_warehouse(warehouse), plan_version, reason, dry_run, confirm)
    print_changes(result.lines)
    if as_json:
        print_json(result.to_json())
    else:
        show_rollback(result)


def show_rollback(result: Rollback) -> None:
    """Print the version that comes into force again, and the changes."""
    stored = "" if result.dry_run else f", as {result.version}"
    terminal.console.print(f"plan version {result.newest} -> {result.to}{stored}", highlight=False)
    show_diff(result.change, result.plan)
