"""``heddle status`` and ``maintain``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from heddle.cli import terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, DryRun, WarehouseOption
from heddle.cli.output import (
    TREES_SHOWN,
    interval_text,
    print_diagnostics,
    print_json,
    print_rows,
    seconds_text,
    telling_errors,
)
from heddle.cli.progress import stages
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.operations.maintenance import Maintained
    from spark_jobs.operations.status import QueryLateness, WarehouseStatus
    from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord


@app.command(
    epilog="Examples: heddle maintain --warehouse DIR --dry-run   |   heddle maintain --warehouse DIR --keep '90 days'"
)
def maintain(
    warehouse: WarehouseOption,
    keep: Annotated[
        str, typer.Option("--keep", help="Keep partial aggregates so long beyond the longest window.")
    ] = "30 days",
    retention: Annotated[
        str, typer.Option("--retention", help="Keep files that nothing refers to so long, for readers.")
    ] = "7 days",
    erase: Annotated[
        bool, typer.Option("--erase", help="After rows were deleted from a source: remove what still holds them.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files, and remove what is not used. It drops partial aggregates that no recent plan uses, and
    files that nothing refers to. Answers do not change; runs and readers continue. Needs no JVM."""
    from optimizer.workload.instants import parse_duration
    from spark_jobs.operations.maintenance import maintain as maintain_warehouse

    with telling_errors(), stages("reading the logs") as report:
        opened = existing_warehouse(warehouse)
        spans = parse_duration(keep), parse_duration(retention)
        if min(spans) < 0:
            raise HeddleError("HDL-115", "--keep and --retention are durations, not negative", "e.g. '7 days'")
        done = maintain_warehouse(opened, *spans, dry_run, report=report, erase=erase)
    if as_json:
        print_json(done.to_json() | {"dry_run": dry_run})
    else:
        show_maintenance(done, dry_run)
        if erase:
            show_erasure(done, dry_run)


def show_erasure(done: Maintained, dry_run: bool) -> None:
    """Print what contained rows that were deleted from their source, and what still does, until when."""
    would = "would be " if dry_run else ""
    dropped = f"{done.rows_of_changed_sources:,} partial rows of changed sources {would}dropped"
    texts = number_of(done.texts_erased, "text or page").replace("text or pages", "texts or pages")
    terminal.console.print(f"{dropped}; {texts} with values {would}erased", highlight=False)
    rows = []
    for holder in done.holders:
        shown = holder.to_json()
        rows.append((holder.what, f"{len(holder.files):,}", shown["until"] or "", holder.remedy))
    print_rows("what may still hold rows that are gone", ("what", "files", "until", "or removed by"), rows)


def show_maintenance(done: Maintained, dry_run: bool) -> None:
    """Print what maintenance did, or would do, for people."""
    would = "would be " if dry_run else ""
    for line in done.damaged:
        lost = f"damaged: {line}; the partial aggregates of its day {would}dropped, and computed again when needed"
        terminal.errors.print(lost, highlight=False, markup=False)
    # into how many files is known once it is done
    into = "" if dry_run else f" into {done.into:,}"
    terminal.console.print(f"{number_of(done.merged, 'small file')} {would}merged{into}", highlight=False)
    dropped = f"{done.rows_of_no_plan:,} of no recent plan, {done.rows_too_old:,} older than any window"
    terminal.console.print(f"partial rows {would}dropped: {dropped}", highlight=False)
    unused = number_of(done.removed, "unused file")
    terminal.console.print(f"{unused} {would}removed", highlight=False)


class StatusFormat(StrEnum):
    """Formats of ``heddle status``."""

    table = "table"
    json = "json"
    openmetrics = "openmetrics"


@app.command(
    epilog="Examples: heddle status --warehouse var/warehouse   |   heddle status --warehouse DIR --format openmetrics"
)
def status(
    warehouse: WarehouseOption,
    last: Annotated[int, typer.Option("--last", help="How many runs to show.")] = 10,
    format: Annotated[
        StatusFormat, typer.Option("--format", help="How to print; openmetrics is for Prometheus.")
    ] = StatusFormat.table,
    as_json: AsJson = False,
) -> None:
    """Show the plan, the newest runs, published intervals and checks. Needs no JVM."""
    if format is StatusFormat.openmetrics:
        if as_json:
            raise typer.BadParameter("--json is --format json, not openmetrics")
        print_metrics(warehouse)
        return
    from spark_jobs.operations.status import read_status

    with telling_errors():
        state = read_status(existing_warehouse(warehouse), last)
    if as_json or format is StatusFormat.json:
        print_json(state.to_json())
    else:
        show_status(state)


def print_metrics(warehouse: str) -> None:
    """Print the metrics of a warehouse as OpenMetrics text."""
    from spark_jobs.operations.scrape import scraped

    with telling_errors():
        text = scraped(str(existing_warehouse(warehouse).place), time.time_ns() // 1000)
    print(text, end="", flush=True)


def show_status(state: WarehouseStatus) -> None:
    """The state of a warehouse for people."""
    from spark_jobs.pipeline.planning.query_files import missing_warnings
    from spark_jobs.pipeline.run.declarations import warnings_of

    plan, checks = state.plan, state.checks
    terminal.console.print(
        f"plan version {state.plan_version}: {number_of(len(plan.workload.queries), 'query')} "
        f"in {number_of(len(plan.trees), 'tree')}; {number_of(state.intervals, 'interval')} published; "
        f"checks passed {checks.passed}, failed {checks.failed}",
        highlight=False,
    )
    compared = f"{checks.recomputed:,}, different {checks.different}"
    terminal.console.print(f"sampled queries recomputed unshared from raw events: {compared}", highlight=False)
    terminal.console.print(_runs_table(state.runs))
    if any(row.record.engine.startswith("spark local") for row in state.runs):
        from spark_jobs.engine.configuration import is_archived

        archive = "used" if is_archived() else "none for this Java and these jars: run `make setup`"
        terminal.console.print(f"class archive of Spark's JVM: {archive}", highlight=False)
    if state.refreshes:
        _show_refreshes(state.refreshes)
    older = [*warnings_of(state.older), *(version.warning for version in state.on_older)]
    print_diagnostics([*missing_warnings(state.missing), *state.problems, *older])
    from spark_jobs.store.warehouse.quarantine import WITHOUT_TIME
    from spark_jobs.streams.sources.untimed import warnings

    # what runs said of events without a time may have been corrected since
    logged = [Diagnostic(**stored) for row in state.runs for stored in row.record.diagnostics]
    current = [*warnings(state.without_time), *dict.fromkeys(state.warnings)]
    print_diagnostics([*current, *(issue for issue in logged if issue.code != WITHOUT_TIME and issue not in current)])


_RUN_COLUMNS = (
    *("at", "interval", "status", "revision", "plan", "answers", "events"),
    *("CPU-s", "predicted", "error", "wall s", "checks", "engine"),
)


def _runs_table(runs: Sequence[LogRow]) -> Table:
    from spark_jobs.operations.status import logged_at

    table = Table(title="last runs", title_justify="left")
    for name in _RUN_COLUMNS:
        table.add_column(name)
    for row in runs:
        record = row.record
        table.add_row(
            logged_at(row)[:19],
            interval_text(row.begin, row.end),
            row.event,
            str(record.revision),
            str(record.plan_version),
            f"{record.answers:,}",
            f"{record.rows_scanned:,}",
            f"{sum(record.cpu_seconds.values()):.1f}",
            # older runs were not predicted, nor are those that failed
            _formatted(record.predicted_cpu_seconds, ".1f"),
            _formatted(record.prediction_error, "+.0%"),
            f"{sum(record.wall_seconds.values()):.1f}",
            checks_text(record),
            record.engine or "-",
        )
    return table


def checks_text(record: RunRecord) -> str:
    """Number of a run's checks that passed, and whether all were made."""
    passed = f"{sum(check['success'] for check in record.checks)}/{len(record.checks)}"
    return {"none": "none", "sample": f"{passed} sample"}.get(record.checked, passed)


def _show_refreshes(refreshes: Sequence[QueryLateness]) -> None:
    late = sum(refresh.latest > 0 for refresh in refreshes)
    terminal.console.print(
        f"queries with a refresh bound: {len(refreshes)}, late in these runs: {late}", highlight=False
    )
    rows = []
    for refresh in sorted(refreshes, key=lambda refresh: -refresh.latest)[:TREES_SHOWN]:
        shown = refresh.to_json()
        rows.append(
            [
                refresh.query,
                seconds_text(shown["at_most_seconds"]),
                seconds_text(shown["every_seconds"]),
                shown["answered"] or "never",
                seconds_text(shown["late_seconds"]) if refresh.latest else "",
                str(refresh.late_runs) if refresh.late_runs else "",
            ]
        )
    print_rows("refreshes", ("query", "at most", "scheduled", "answered", "latest by", "late runs"), rows)


def _formatted(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)
