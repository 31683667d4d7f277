"""``heddle status`` and ``maintain``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from heddle.cli import terminal
from heddle.cli.answers import plain_value
from heddle.cli.inputs import stored_plan
from heddle.cli.options import AsJson, DryRun, House
from heddle.cli.output import (
    RECOMPUTED,
    TREES_SHOWN,
    print_diagnostics,
    print_json,
    print_rows,
    seconds_text,
    telling_errors,
)
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.plan.definition import SharingPlan


STATES = ("running", "paused", "expired", "removed")


@app.command(
    epilog="Examples: heddle maintain --warehouse DIR --dry-run   |   heddle maintain --warehouse DIR --keep '90 days'"
)
def maintain(
    warehouse: House,
    keep: Annotated[
        str, typer.Option("--keep", help="Keep partial aggregates so long beyond the longest window.")
    ] = "30 days",
    retention: Annotated[
        str, typer.Option("--retention", help="Keep files that nothing refers to so long, for readers.")
    ] = "7 days",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files, drop partial aggregates that no recent plan uses, remove files that nothing refers to. Answers
    do not change; runs and readers go on. Needs no JVM."""
    from optimizer.workload.instants import parse_duration
    from spark_jobs.operations.maintenance import maintain as maintain_warehouse
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors(), terminal.errors.status("reading the logs") as status:
        house = Warehouse.open(warehouse, create=False)
        spans = parse_duration(keep), parse_duration(retention)
        if min(spans) < 0:
            raise HeddleError("HDL-115", "--keep and --retention are durations, not negative", "e.g. '7 days'")
        found = maintain_warehouse(house, *spans, dry_run, report=lambda line: status.update(line))
    if as_json:
        print_json(found.to_json() | {"dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    for line in found.damaged:
        told = f"damaged: {line}; the partial aggregates of its day {would}dropped, and computed again when needed"
        terminal.errors.print(told, highlight=False, markup=False)
    # into how many files is known once it is done
    into = "" if dry_run else f" into {found.into:,}"
    terminal.console.print(f"{number_of(found.merged, 'small file')} {would}merged{into}", highlight=False)
    dropped = f"{found.rows_of_no_plan:,} of no recent plan, {found.rows_too_old:,} older than any window"
    terminal.console.print(f"partial rows {would}dropped: {dropped}", highlight=False)
    unused = number_of(found.removed, "unused file")
    terminal.console.print(f"{unused} {would}removed", highlight=False)


@app.command(epilog="Example: heddle status --warehouse var/warehouse")
def status(
    warehouse: House,
    last: Annotated[int, typer.Option("--last", help="How many runs to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """The plan in force, the last runs, what is published and how the checks went. Needs no JVM."""
    from optimizer.plan.export import to_json
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        house = Warehouse.open(warehouse, create=False)
        made, version = stored_plan(warehouse)
    log = sorted(house.rows("publish_log"), key=lambda row: row["at"], reverse=True)
    runs = [row for row in log if row["event"] in ("published", "failed")]
    intervals = {(row["interval_start"], row["interval_end"]) for row in runs if row["event"] == "published"}
    checks = house.rows("quality_results")
    data = {
        "warehouse": str(house.root),
        "plan_version": version,
        "plan_cost": to_json(made)["cost"],
        "queries": len(made.workload.queries),
        "trees": len(made.trees),
        "intervals_published": len(intervals),
        "checks_passed": sum(row["success"] for row in checks),
        "checks_failed": sum(not row["success"] for row in checks),
        "recomputed": {
            "queries": sum(row["check"].startswith(RECOMPUTED) for row in checks),
            "different": sum(row["check"].startswith(RECOMPUTED) and not row["success"] for row in checks),
        },
        "refreshes": _lateness(made, runs),
        "runs": [
            json.loads(row["record"]) | {"event": row["event"], "at": plain_value(row["at"])} for row in runs[:last]
        ],
    }
    if as_json:
        print_json(data)
        return
    terminal.console.print(
        f"plan version {version}: {number_of(data['queries'], 'query')} in {number_of(data['trees'], 'tree')}; "
        f"{number_of(len(intervals), 'interval')} published; "
        f"checks passed {data['checks_passed']}, failed {data['checks_failed']}",
        highlight=False,
    )
    compared = data["recomputed"]
    told = f"{compared['queries']:,}, different {compared['different']}"
    terminal.console.print(f"sampled queries recomputed unshared from raw events: {told}", highlight=False)
    table = Table(title="last runs", title_justify="left")
    for name in (
        "at",
        "interval",
        "status",
        "revision",
        "plan",
        "answers",
        "events",
        "CPU-s",
        "predicted",
        "error",
        "wall s",
        "checks",
    ):
        table.add_column(name)
    for found in data["runs"]:
        passed = sum(check["success"] for check in found["checks"])
        table.add_row(
            found["at"][:19],
            f"{found['begin']} .. {found['end']}",
            found["event"],
            str(found["revision"]),
            str(found["plan_version"]),
            f"{found['answers']:,}",
            f"{found['rows_scanned']:,}",
            f"{sum(found['cpu_seconds'].values()):.1f}",
            # older runs were not predicted, nor are those that failed
            _told(found.get("predicted_cpu_seconds"), ".1f"),
            _told(found.get("prediction_error"), "+.0%"),
            f"{sum(found['wall_seconds'].values()):.1f}",
            f"{passed}/{len(found['checks'])}",
        )
    terminal.console.print(table)
    if data["refreshes"]:
        late = [found for found in data["refreshes"] if found["late_seconds"]]
        terminal.console.print(
            f"queries with a refresh bound: {len(data['refreshes'])}, late in these runs: {len(late)}",
            highlight=False,
        )
        shown = sorted(data["refreshes"], key=lambda found: -found["late_seconds"])[:TREES_SHOWN]
        rows = [
            [
                found["query"],
                seconds_text(found["at_most_seconds"]),
                seconds_text(found["every_seconds"]),
                found["answered"] or "never",
                seconds_text(found["late_seconds"]) if found["late_seconds"] else "",
                str(found["late_runs"]) if found["late_runs"] else "",
            ]
            for found in shown
        ]
        print_rows("refreshes", ("query", "at most", "scheduled", "answered", "latest by", "late runs"), rows)
    for found in data["runs"]:
        print_diagnostics([Diagnostic(**told) for told in found["diagnostics"]])


def _lateness(made: SharingPlan, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each query with a refresh bound when it was answered last, and how late it was, newest run first."""
    from optimizer.plan.rhythms import rhythms
    from optimizer.workload.instants import format_instant

    records = [json.loads(row["record"]) for row in runs if row["event"] == "published"]
    found = []
    for one in (one for schedule in made.schedules for one in rhythms(schedule)):
        answered = max((record.get("refreshed", {}).get(one.query, 0) for record in records), default=0)
        late = [record["lateness"][one.query] for record in records if one.query in record.get("lateness", {})]
        found.append(
            {
                "query": one.query,
                "at_most_seconds": one.bound / 1e6,
                "every_seconds": float(one.average) / 1e6,
                "answered": format_instant(answered) if answered else None,
                "late_seconds": max(late, default=0) / 1e6,
                "late_runs": len(late),
            }
        )
    return found


def _told(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)
