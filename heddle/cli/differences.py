"""``heddle diff``: changes from one plan to another, of versions that are stored or of workload files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.changes import prices_of_a_day, show_diff, show_prices_of_a_day
from heddle.cli.inputs import existing_warehouse, opened_warehouse, planned_workload, planning_request, stored_plan
from heddle.cli.options import Algorithm, AsJson, CostModel, OptionalStreams, Rates
from heddle.cli.output import LISTED, json_text, unit_text, write_text
from heddle.cli.reports import DiffFormat, by_file, command, json_asked, reporting
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic, printable

if TYPE_CHECKING:
    from spark_jobs.pipeline.costs.learned import Predicted
    from spark_jobs.pipeline.planning.versions import VersionDiff


@app.command(
    epilog="Examples: heddle diff --warehouse var/warehouse   |   heddle diff 3 7 --warehouse var/warehouse --json   "
    "|   heddle diff --before main/queries --after queries --streams streams.yaml --format markdown"
)
def diff(
    plan_a: Annotated[
        int | None, typer.Argument(help="A plan version. Default: the one before PLAN_B.", show_default=False)
    ] = None,
    plan_b: Annotated[
        int | None, typer.Argument(help="A plan version. Default: the newest.", show_default=False)
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            help="The warehouse with the stored plans. Default, without --before: HEDDLE_WAREHOUSE, heddle.toml.",
        ),
    ] = None,
    before: Annotated[
        list[Path] | None, typer.Option("--before", help="Workload files as they were; may be given again.")
    ] = None,
    after: Annotated[
        list[Path] | None,
        typer.Option("--after", help="Workload files to compare with --before, or with the newest stored plan."),
    ] = None,
    streams: OptionalStreams = None,
    rate: Rates = None,
    format: Annotated[
        DiffFormat, typer.Option("--format", help="Text, JSON, annotations of GitHub, or a comment in Markdown.")
    ] = DiffFormat.text,
    output: Annotated[Path | None, typer.Option("--output", help="Write Markdown or JSON to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two plans. It shows queries, trees, costs, and which stored partials stay valid, of versions in a
    warehouse or of workload files (--after). Stores nothing."""
    format = DiffFormat.json if json_asked(format, as_json) else format
    _check_options(plan_a, before, after, streams, format, output)
    with reporting(format, None) as cases:
        if after and streams is not None:
            compared, problems = _diff_of_files(before or (), after, streams, rate or (), warehouse)
            cases += by_file((), problems)
        else:
            compared, problems = _diff_of_versions(plan_a, plan_b, warehouse), ()
        is_priced = bool(after) or format is DiffFormat.markdown
        prices = prices_of_a_day(compared.old, compared.new, warehouse) if is_priced else {}
    _deliver(compared, prices, format, output)
    raise typer.Exit(1 if any(problem.severity == "error" for problem in problems) else 0)


def _check_options(
    version: int | None,
    before: Sequence[Path] | None,
    after: Sequence[Path] | None,
    streams: Path | None,
    format: DiffFormat,
    output: Path | None,
) -> None:
    if before and not after:
        raise typer.BadParameter("--before needs --after, the files to compare with")
    if after and (version is not None or streams is None):
        raise typer.BadParameter("--after needs --streams, and no plan version")
    if output is not None and format not in (DiffFormat.markdown, DiffFormat.json):
        raise typer.BadParameter("--output is for --format markdown or json")


def _diff_of_versions(old: int | None, new: int | None, warehouse: str | None) -> VersionDiff:
    from spark_jobs.pipeline.planning.versions import diff_of_versions
    from spark_jobs.store.settings import required

    folder = warehouse or str(required("warehouse"))
    return diff_of_versions(existing_warehouse(folder), old, new, folder)


def _diff_of_files(
    before: Sequence[Path], after: Sequence[Path], streams: Path, rates: Sequence[str], warehouse: str | None
) -> tuple[VersionDiff, Sequence[Diagnostic]]:
    """The plan of some files compared with that of others, or with the newest stored plan, and what is wrong with the
    files. Rates are those of the plan before, so that only the queries make a difference."""
    from dataclasses import replace

    from spark_jobs.pipeline.planning.versions import VersionDiff
    from spark_jobs.store.settings import required

    search = Algorithm.best, CostModel.paper
    requested = planning_request(after, streams, rates, *search)
    if before:
        was = planned_workload(planning_request(before, streams, rates, *search), opened_warehouse(warehouse)).plan
        version, opened = None, None
    else:
        folder = warehouse or str(required("warehouse"))
        was, version = stored_plan(folder)
        opened = existing_warehouse(folder)
    known = dict(was.rates)
    planned = planned_workload(replace(requested, rates=known | dict(requested.rates), exactly=True), opened)
    return VersionDiff(version, None, was, planned.plan), planned.diagnostics


def _deliver(compared: VersionDiff, prices: Mapping[str, Predicted], format: DiffFormat, output: Path | None) -> None:
    priced = {"run_over_a_day": {name: price.to_json() for name, price in prices.items()}} if prices else {}
    if format is DiffFormat.markdown:
        text = markdown(compared, prices)
    elif format is DiffFormat.json:
        text = json_text(compared.to_json() | priced)
    else:
        show_version_diff(compared)
        show_prices_of_a_day(prices)
        change = compared.change
        counts = f"{len(change.added)} added, {len(change.removed)} removed, {len(change.changed)} changed"
        text = f"{command('notice', 'heddle diff', f'queries: {counts}')}\n" if format is DiffFormat.github else ""
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)


def show_version_diff(difference: VersionDiff) -> None:
    """Print the changes from one plan to another."""
    old, new = difference.old, difference.new
    terminal.console.print(_title(difference), highlight=False)
    if old.cost_model != new.cost_model:
        terminal.console.print(f"  costs cannot be compared: {old.cost_model} and {new.cost_model}", highlight=False)
    show_diff(difference.change, new)


def _title(difference: VersionDiff) -> str:
    if difference.old_version is None:
        return "plan of the files before -> after"
    return f"plan version {difference.old_version} -> {difference.new_version or 'files'}"


# ------------------------------------------------------------------------------------------- Markdown
def markdown(compared: VersionDiff, prices: Mapping[str, Predicted]) -> str:
    """The changes as a comment on a pull request: figures, queries by what happens to them, what is read again."""
    change, old, new = compared.change, compared.old, compared.new
    lines = [f"### Heddle: {_title(compared)}", "", "| | before | after | change |", "|---|---:|---:|---:|"]
    for what, before, after in (
        ("queries", len(old.workload.queries), len(new.workload.queries)),
        ("execution trees", len(old.trees), len(new.trees)),
    ):
        lines.append(f"| {what} | {before:,} | {after:,} | {f'{after - before:+,}' if after != before else ''} |")
    before_cost, after_cost = change.cost
    percent = f"{(after_cost - before_cost) / before_cost:+.1%}" if before_cost and after_cost != before_cost else ""
    if old.cost_model == new.cost_model:
        lines.append(f"| cost, {unit_text(new.cost_model)} | {before_cost:.6g} | {after_cost:.6g} | {percent} |")
    if prices:
        now, then = (prices.get(name) for name in ("now", "then"))
        shown = [f"{price.least:.1f} to {price.most:.1f}" if price else "" for price in (now, then)]
        lines.append(f"| a run over a day, CPU seconds | {shown[0]} | {shown[1]} | |")
    lines.append("")
    regrouped = [f"{query} ({old} -> {tree})" for query, old, tree in change.moved]
    for what, names in (
        ("Streams declared otherwise", change.streams),
        ("Added", change.added),
        ("Removed", change.removed),
        ("Changed", change.changed),
        ("Regrouped", regrouped),
    ):
        if names:
            more = f", … {len(names) - LISTED:,} more" if len(names) > LISTED else ""
            lines.append(f"- **{what}** ({len(names):,}): {', '.join(map(_code, names[:LISTED]))}{more}")
    if change.is_empty:
        lines.append("- Same queries in the same trees.")
    lines.append(
        f"- Stored partials: {change.reused:,} kept, {change.built:,} new, {change.derived:,} made of stored rows. "
        f"{len(change.rebuilt):,} of {len(new.workload.queries):,} queries read history again."
    )
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """A text as code, in which neither HTML nor mentions nor Markdown act."""
    return f"`{printable(text).replace('`', chr(39)).replace('|', '/')}`"
