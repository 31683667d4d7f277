"""``heddle validate``, ``plan``, ``explain``, ``diff``, ``what-if`` and ``rollback``."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from heddle.cli import changes, terminal
from heddle.cli.changes import plan_changes, print_changes, show_diff
from heddle.cli.inputs import build_requested_plan, opened_warehouse, plan_bare_windows, stored_plan
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
    House,
    OptionalFiles,
    OptionalHouse,
    OptionalStreams,
    PlanFormat,
    Rates,
    Streams,
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
from heddle.cli.root import app
from heddle.cli.terminal import PlainConsole
from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.plan.definition import SharingPlan
    from optimizer.workload.values import Workload


@app.command(epilog="Example: heddle validate dags/workload/flights.sql --streams dags/workload/streams.yaml")
def validate(files: Files, streams: Streams, as_json: AsJson = False) -> None:
    """Check queries, streams and the first rows of their data: every problem with its code, its place and what to do
    about it."""
    from spark_jobs.planning.requested import load_inputs
    from spark_jobs.sources.inspection import inspect

    with telling_errors():
        inputs = load_inputs(files, streams)
    seen = []
    for stream in inputs.workload.streams:
        queries = inputs.workload.queries_of(stream.name)
        look = inspect(stream, sorted({name for query in queries for name in query.columns()}))
        # what nobody reads keeps nothing from running
        told = [replace(one, severity=one.severity if queries else "warning") for one in look.diagnostics]
        inputs = replace(inputs, diagnostics=(*inputs.diagnostics, *told))
        seen.append(look)
    if as_json:
        usable = [
            {
                "name": query.name,
                "stream": query.stream,
                "owner": query.owner,
                "fingerprint": query.fingerprint,
            }
            for query in inputs.workload.queries
        ]
        diagnostics = [found.to_json() for found in inputs.diagnostics]
        print_json({"queries": usable, "streams": [look.to_json() for look in seen], "diagnostics": diagnostics})
    else:
        print_diagnostics(inputs.diagnostics)
        for look in seen:
            terminal.console.print(str(look), markup=False, highlight=False, soft_wrap=True)
        terminal.console.print(
            f"{number_of(len(inputs.workload.queries), 'query')} usable, {number_of(len(inputs.errors), 'error')}"
        )
    raise typer.Exit(1 if inputs.errors else 0)


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
        ),
    ] = None,
    algorithm: AlgorithmOption = Algorithm.best,
    cost_model: CostOption = CostModel.paper,
    warehouse: OptionalHouse = None,
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
    """Which queries share an execution tree, and what that costs beside No Share and Shared. FILES with --warehouse:
    beside what is registered, as `heddle run` would plan them, and what that changes; nothing is stored. Needs no
    JVM."""
    if exactly and (not files or warehouse is None):
        raise typer.BadParameter("--exactly is for FILES and --warehouse")
    if as_json and format not in (PlanFormat.text, PlanFormat.json):
        raise typer.BadParameter(f"--json is --format json, not {format.value}")
    failed = False
    facts: dict[str, Any] = {}
    made: SharingPlan | None = None
    format = PlanFormat.json if as_json else format
    if windows is not None and format in (PlanFormat.mermaid, PlanFormat.html):
        raise typer.BadParameter("--windows has no streams and queries to draw: use --format text or json")
    with telling_errors():
        started = time.process_time()
        if windows is not None:
            if files or warehouse is not None:
                raise typer.BadParameter("give --windows, or FILES and --streams, or --warehouse")
            bare, failed = plan_bare_windows(windows, rate or [], algorithm, cost_model, counter, budget)
            data = bare.to_json(summary)
        elif warehouse is not None and not files:
            made, facts["plan_version"] = stored_plan(warehouse)
        elif files and streams is not None:
            house = opened_warehouse(warehouse)
            made, failed, asked = build_requested_plan(
                files, streams, rate or [], algorithm, cost_model, house, counter, budget, exactly
            )
            facts["seconds"] = round(time.process_time() - started, 6)
            if house is not None:
                changed = plan_changes(house, asked, made)
                print_changes(changed)
                if format is PlanFormat.json:
                    facts["changes"] = changed
        else:
            raise typer.BadParameter("give FILES and --streams, or --warehouse, or --windows")
    if made is not None:
        from optimizer.plan.export import to_json

        data = to_json(made) | facts
        if summary:
            for tree in data["trees"]:
                tree["query_count"] = len(tree.pop("queries"))
    _deliver_plan(made, data, facts, format, output)
    raise typer.Exit(1 if failed else 0)


def _deliver_plan(
    made: SharingPlan | None, data: dict[str, Any], facts: dict[str, Any], format: PlanFormat, output: Path | None
) -> None:
    """Print a plan, or write it to a file. ``facts``: what else its page says."""
    if format is PlanFormat.text and output is None:
        show_plan(data)
        return
    if format is PlanFormat.text:
        plain = PlainConsole(width=160, color_system=None, force_terminal=False)
        with plain.capture() as captured:
            show_plan(data, plain)
        text = captured.get()
    elif format is PlanFormat.json:
        text = json_text(data)
    else:
        assert made is not None
        text = _drawn(made, facts, format)
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
        for found in tree.get("sequences", ()):
            told, alone = found["cost"], found["baselines"]["unshared"]
            shared, patterns = len(found["shared"]), len(found["queries"])
            console.print(
                f"sequences of {tree['id']}: {number_of(patterns, 'pattern')}, {number_of(shared, 'piece')} shared; "
                f"{told:.4g} operations a window and key, {alone:.4g} unshared"
                + (", proven" if found["proven"] else ""),
                highlight=False,
            )
    for found in data.get("schedules", ()):
        console.print(f"refreshes: {found['summary']}", highlight=False)
    rates = ", ".join(f"{name} {float(Fraction(value)):.4g}/s" for name, value in data["rates"].items())
    console.print(f"rates: {rates}", highlight=False)
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
    query: Annotated[str, typer.Argument(help="Name of the query.", show_default=False)],
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    rate: Rates = None,
    algorithm: AlgorithmOption = Algorithm.best,
    cost_model: CostOption = CostModel.paper,
    warehouse: OptionalHouse = None,
    as_json: AsJson = False,
) -> None:
    """Why a query shares, with whom, what it would cost alone, and why the nearest others are in other trees."""
    from optimizer.plan.explain import explain as explain_query

    with telling_errors():
        if warehouse is not None and not files:
            made, _ = stored_plan(warehouse)
        elif files and streams is not None:
            made, *_ = build_requested_plan(
                files, streams, rate or [], algorithm, cost_model, opened_warehouse(warehouse)
            )
        else:
            raise typer.BadParameter("give FILES and --streams, or --warehouse")
        if query not in {found.name for found in made.workload.queries}:
            hint = meant(query, (found.name for found in made.workload.queries))
            raise HeddleError("HDL-507", f"there is no query {query} in the plan", hint)
        found = explain_query(made, query)
    if as_json:
        print_json(found.to_json())
    else:
        for line in found.lines():
            terminal.console.print(line, markup=False, highlight=False, soft_wrap=True)


# --------------------------------------------------------------------------------------------- diff
@app.command(
    epilog="Examples: heddle diff --warehouse var/warehouse   |   heddle diff 3 7 --warehouse var/warehouse --json"
)
def diff(
    warehouse: House,
    plan_a: Annotated[
        int | None, typer.Argument(help="A plan version. Default: the one before PLAN_B.", show_default=False)
    ] = None,
    plan_b: Annotated[
        int | None, typer.Argument(help="A plan version. Default: the newest.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What one stored plan changes of another: queries, trees, costs, and which stored partials stay valid."""
    from optimizer.plan.diff import diff as diff_plans

    with telling_errors():
        new, new_version = stored_plan(warehouse, plan_b)
        if plan_a is None and new_version == 1:
            raise HeddleError("HDL-506", f"{warehouse} has one plan version: there is nothing to compare it with")
        old, old_version = stored_plan(warehouse, plan_a if plan_a is not None else new_version - 1)
        change = diff_plans(old, new)
    if as_json:
        versions = {"old": old_version, "new": new_version}
        print_json(change.to_json() | {"versions": versions, "cost_models": [old.cost_model, new.cost_model]})
        return
    terminal.console.print(f"plan version {old_version} -> {new_version}", highlight=False)
    if old.cost_model != new.cost_model:
        terminal.console.print(f"  costs cannot be compared: {old.cost_model} and {new.cost_model}", highlight=False)
    show_diff(change, new)


# ------------------------------------------------------------------------------------------ what-if
@app.command(
    "what-if",
    epilog="Examples: heddle what-if --warehouse var/warehouse --add new.sql --remove hourly_volume   "
    "|   heddle what-if q.sql --streams streams.yaml --rate tradesx10",
)
def what_if(
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    warehouse: OptionalHouse = None,
    add: Annotated[list[Path] | None, typer.Option("--add", help="A workload file; may be given again.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="A query's name; may be given again.")] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", help="STREAM=TUPLES_PER_SECOND, or STREAMxFACTOR; may be given again."),
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
    """Cost and trees if queries came or went or rates changed, beside the stored plan (or FILES'). Stores nothing."""
    from spark_jobs.planning.requested import model_of
    from spark_jobs.planning.what_if import RateChange
    from spark_jobs.planning.what_if import what_if as ask

    failed = False
    with telling_errors():
        changes = [RateChange.parse(text) for text in rate or []]
        if warehouse is not None and not files:
            base, _ = stored_plan(warehouse)
        elif files and streams is not None:
            chosen = algorithm or Algorithm.best, cost_model or CostModel.paper
            base, failed, _ = build_requested_plan(
                files, streams, base_rate or [], *chosen, opened_warehouse(warehouse)
            )
        else:
            raise typer.BadParameter("give FILES and --streams, or --warehouse")
        extra, rates, wrong = _additional(base, add or [], streams, changes)
        model = None
        if cost_model is not None and cost_model.value != base.cost_model:
            model = model_of(cost_model.value, [], opened_warehouse(warehouse))
        found = ask(
            base, extra.queries, remove or [], changes, extra, rates, algorithm.value if algorithm else None, model
        )
    if as_json:
        kept = {"cost_kept": float(found.kept), "cost_model": found.after.cost_model}
        print_json(found.diff.to_json() | kept)
    else:
        unit = unit_text(found.after.cost_model)
        before, kept_cost, after = float(found.before.cost), float(found.kept), float(found.after.cost)
        terminal.console.print("what if (nothing is stored)")
        terminal.console.print(f"  now                        {before:>12.6g} {unit}", highlight=False)
        terminal.console.print(f"  then, trees as they are    {kept_cost:>12.6g} {unit}", highlight=False)
        terminal.console.print(f"  then, planned again        {after:>12.6g} {unit}", highlight=False)
        show_diff(found.diff, found.after)
    raise typer.Exit(1 if failed or wrong else 0)


def _additional(
    base: SharingPlan, files: Sequence[Path], streams: Path | None, changes: Sequence[Any]
) -> tuple[Workload, dict[str, Fraction], bool]:
    """The queries to add, the rates of streams that only they read, and whether something was not usable."""
    from optimizer.language.parser import load_workload, workload_files
    from optimizer.workload.values import Workload
    from spark_jobs.planning.requested import load_inputs, rates_of

    known = {stream.name: stream for stream in base.workload.streams}
    diagnostics: list[Diagnostic] = []
    if files and streams is not None:
        inputs = load_inputs([], streams)
        diagnostics += inputs.diagnostics
        known = {stream.name: stream for stream in inputs.workload.streams} | known
    found, wrong = load_workload(workload_files(files), known)
    diagnostics += wrong
    read = {stream.name for stream in base.workload.streams}
    new = Workload(tuple(query for query in found.queries if query.stream not in read), found.streams)
    given = {change.stream: change.number for change in changes if not change.is_factor and change.stream not in read}
    rates, _, unreadable = rates_of(new, given)
    diagnostics += unreadable
    print_diagnostics(diagnostics)
    return found, rates, any(told.severity == "error" for told in diagnostics)


@app.command(epilog="Examples: heddle rollback 3 --warehouse var/warehouse --reason 'slower since 4'")
def rollback(
    plan_version: Annotated[int, typer.Argument(help="The version to go back to.", show_default=False)],
    warehouse: House,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the plan.")] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make an earlier plan the plan in force, queries and all, as a new version: runs that started keep theirs, stored
    partial aggregates of its synopses are used again. Queries that are paused stay so; queries that came since are
    removed, once somebody has agreed. The next refresh plans anew from the registered files."""
    from optimizer.plan.diff import diff as diff_plans
    from spark_jobs.planning.changes import replanned, rolling_back
    from spark_jobs.planning.publication import publish_plan
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        house = Warehouse.open(warehouse, create=False)
        current, newest = stored_plan(warehouse)
        earlier, _ = stored_plan(warehouse, plan_version)
        asked = rolling_back(earlier, house)
        if len(asked.workload.queries) < len(earlier.workload.queries):
            earlier = replanned(earlier, asked.workload)
        change, lines = diff_plans(current, earlier), asked.lines
        version = newest
        if not dry_run:
            changes.confirm_removal(asked.removed, yes)
            because = reason or f"back to version {plan_version}"
            version, _ = publish_plan(house, earlier, "heddle rollback", because, asked)
    print_changes(lines)
    if as_json:
        told = {"from": newest, "to": plan_version, "version": version, "dry_run": dry_run, "changes": lines}
        print_json(change.to_json() | told)
        return
    terminal.console.print(
        f"plan version {newest} -> {plan_version}" + ("" if dry_run else f", as {version}"), highlight=False
    )
    show_diff(change, earlier)
