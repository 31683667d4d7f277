"""``heddle queries``, ``pause``, ``resume``, ``remove`` and ``quarantine``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heddle.cli import changes, terminal
from heddle.cli.completion import complete_queries
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, DryRun, Names, Reason, WarehouseOption, Yes
from heddle.cli.output import (
    LISTED,
    interval_text,
    print_diagnostics,
    print_json,
    print_rows,
    print_table,
    telling_errors,
)
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.operations.queries import QueryListing
    from spark_jobs.pipeline.planning.removal import Removal
    from spark_jobs.results.deletion import Deleted
    from spark_jobs.store.warehouse.quarantine import LeftOut
    from spark_jobs.streams.sources.ledger import Arrival

STATES = ("running", "paused", "expired", "removed")
"""States of queries, in the order in which they are counted."""


@app.command(
    epilog="Examples: heddle quarantine --warehouse house   |   heddle quarantine --warehouse DIR --release part-7.csv"
)
def quarantine(
    warehouse: WarehouseOption,
    take: Annotated[
        list[str] | None, typer.Option("--release", help="Take in what is refused of a file.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List events that are left out of the published answers. These are events that came later than their stream's
    allowed_lateness, which --release accepts (`heddle repair` then publishes the changes), and events without a
    usable time. Needs no JVM."""
    from spark_jobs.streams.sources.refusals import refusals, release
    from spark_jobs.streams.sources.untimed import standing_without_time, without_time_json

    with telling_errors():
        opened = existing_warehouse(warehouse)
        released = release(opened, take) if take else []
        refused, untimed = refusals(opened), standing_without_time(opened)
    if as_json:
        files = {"refused": list(map(arrival_row, refused)), "released": list(map(arrival_row, released))}
        print_json({"format_version": 1} | files | without_time_json(untimed))
    else:
        show_quarantine(refused, released, untimed)


def arrival_row(arrival: Arrival) -> dict[str, Any]:
    """A file of the ledger for programs; how it is recognised is the ledger's own."""
    own = ("stamps", "moves", "listings", "listed", "declared", "is_spanned", "clusters")
    return {name: value for name, value in asdict(arrival).items() if name not in own}


def show_quarantine(refused: Sequence[Arrival], released: Sequence[Arrival], untimed: Sequence[LeftOut] = ()) -> None:
    """The files that were taken in, those of which events are refused, and those with events without a time."""
    from optimizer.workload.instants import format_instant

    for file in released:
        terminal.console.print(
            f"released: {number_of(file.late, 'event')} of {file.path}; `heddle repair` takes them in", highlight=False
        )
    rows = []
    for file in refused:
        spans = "; ".join(interval_text(*span) for span in file.refused)
        rows.append((file.stream, Path(file.path).name, format_instant(file.arrived), f"{file.late:,}", spans))
    if rows:
        print_rows("events that came too late", ("stream", "file", "came", "events", "of"), rows)
    else:
        terminal.console.print("no event came too late", highlight=False)
    if untimed:
        events = [(row.stream, row.file, f"{row.rows:,}") for row in untimed]
        print_rows("events without a usable time", ("stream", "file", "events"), events)


@app.command(epilog="Example: heddle pause hourly_volume by_host --warehouse var/warehouse --reason 'costs too much'")
def pause(names: Names, warehouse: WarehouseOption, reason: Reason = "", as_json: AsJson = False) -> None:
    """Stop answering some queries until they are resumed. A new plan version is without them at once, and so is
    every later one. They stay registered, and their published answers stay, also where their intervals are run
    again. Needs no JVM."""
    _pause_or_resume(names, warehouse, "paused", reason, as_json)


@app.command(epilog="Example: heddle resume hourly_volume --warehouse var/warehouse")
def resume(names: Names, warehouse: WarehouseOption, reason: Reason = "", as_json: AsJson = False) -> None:
    """Answer paused queries again, from the next run on. A new plan version has them. The command prints the
    intervals that they missed, with the `heddle backfill` that fills them. Needs no JVM."""
    _pause_or_resume(names, warehouse, "resumed", reason, as_json)


def _pause_or_resume(
    names: Sequence[str], warehouse: str, event: Literal["paused", "resumed"], reason: str, as_json: bool
) -> None:
    from spark_jobs.pipeline.planning.changes import pause_or_resume

    with telling_errors():
        report = pause_or_resume(existing_warehouse(warehouse), event, names, reason)
    if as_json:
        print_json(report)
        return
    for what, queries in ((event, report["queries"]), (f"{event} already", report["already"])):
        if queries:
            terminal.console.print(f"{what}: {', '.join(queries)}", highlight=False, soft_wrap=True)
    terminal.console.print(f"plan version {report['version']}{' (new)' if report['changed'] else ''}", highlight=False)
    for line in report["diff"]:
        terminal.console.print(f"  {line}", highlight=False, soft_wrap=True)
    _show_unanswered(report["unanswered"], warehouse)


def _show_unanswered(unanswered: Mapping[str, Sequence[tuple[str, str]]], warehouse: str) -> None:
    """Print the intervals that resumed queries missed, and the commands that fill them."""
    missed: dict[tuple[str, str], list[str]] = {}
    for name, spans in unanswered.items():
        for span in spans:
            missed.setdefault(span, []).append(name)
    for (first, last), names in sorted(missed.items())[:LISTED]:
        fill = f"heddle backfill --warehouse {shlex.quote(warehouse)} --from {first} --to {last}"
        line = f"published without {', '.join(names)}: {first} .. {last}; to make up for it: {fill}"
        terminal.console.print(line, highlight=False, soft_wrap=True)
    if len(missed) > LISTED:
        terminal.console.print(f"and {number_of(len(missed) - LISTED, 'more span')} (--json has all)", highlight=False)


@app.command(
    epilog="Examples: heddle remove by_host --warehouse house   "
    "|   heddle remove by_host --warehouse house --with-answers --dry-run"
)
def remove(
    names: Names,
    warehouse: WarehouseOption,
    with_answers: Annotated[
        bool, typer.Option("--with-answers", help="Delete their published answers too, also of queries removed before.")
    ] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Unregister queries. A new plan version moves no other query. Published answers stay, unless you remove them
    too: how many, and of when, is shown first. Needs no JVM."""
    from spark_jobs.pipeline.planning.removal import remove as remove_registered

    def agree(answers: Sequence[Deleted]) -> bool:
        return _have_agreed(answers, yes, as_json, dry_run)

    with telling_errors():
        opened = existing_warehouse(warehouse)
        removal = remove_registered(opened, names, reason, with_answers, dry_run, agree)
        if as_json:
            print_json(removal.to_json())
        else:
            show_removal(removal)
        print_diagnostics(removal.diagnostics)
        if not (removal.agreed or dry_run):
            raise HeddleError("HDL-527", "answers are deleted once somebody agrees: nothing was changed", "say --yes")


def _have_agreed(answers: Sequence[Deleted], yes: bool, as_json: bool, dry_run: bool) -> bool:
    """Show which published answers go, and have somebody agree; whether that was so."""
    from spark_jobs.pipeline.planning.removal import deleted_json

    if not answers or yes:
        return True
    if not as_json:
        rows = [deleted_json(deleted) | {"answers": f"{deleted.answers:,}"} for deleted in answers]
        columns = ("query", "answers", "first", "last")
        print_rows("published answers that go", columns, [[row[name] for name in columns] for row in rows])
    if dry_run or not changes.is_at_terminal():
        return False
    if not typer.confirm("Remove the queries and delete these answers?", err=True):
        terminal.errors.print("nothing was changed")
        raise typer.Exit(1)
    return True


def show_removal(removal: Removal) -> None:
    """Print what was, or would be, removed from the plan and from the published answers."""
    change = removal.to_json()
    for line in change["diff"]:
        terminal.console.print(line, highlight=False, soft_wrap=True)
    would = "" if removal.is_done else "would be "
    if change["queries"]:
        version = (
            f"plan version {change['version']}{' (new)' if change['changed'] else ''}: " if removal.is_done else ""
        )
        names = ", ".join(change["queries"])
        terminal.console.print(f"{version}{would}removed: {names}", highlight=False, soft_wrap=True)
    for row in change["answers"]:
        line = f"{row['query']}: {row['answers']:,} published answers {would}deleted, {row['first']} .. {row['last']}"
        terminal.console.print(line, highlight=False, soft_wrap=True)


@app.command(
    epilog="Examples: heddle queries --warehouse var/warehouse   "
    "|   heddle queries --warehouse var/warehouse --history hourly_volume"
)
def queries(
    warehouse: WarehouseOption,
    history: Annotated[
        str | None,
        typer.Option(
            "--history", help="All that happened to this query.", metavar="QUERY", autocompletion=complete_queries
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", help="The clock that lifetimes are compared with (UTC). Default: now.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every query that was ever registered. It prints the owner, whether the query is running, paused, expired
    or removed, since when and until when, and the newest plan that has it. Needs no JVM."""
    from spark_jobs.operations.queries import history_of, list_queries
    from spark_jobs.streams.sources.decoding import parse_instant

    with telling_errors():
        clock = parse_instant(at) if at is not None else time.time_ns() // 1000
        opened = existing_warehouse(warehouse)
        if history is not None:
            return show_history(history, history_of(opened, history), as_json)
        listed = list_queries(opened, clock)
    if as_json:
        print_json({"queries": [query.to_json() for query in listed]})
    else:
        show_queries(listed)


def show_history(name: str, events: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """All that happened to a query, for people or for programs."""
    if as_json:
        print_json({"query": name, "events": list(events)})
    else:
        print_table(f"history of {name}", ("at", "event", "owner", "fingerprint", "plan_version", "reason"), events)


def show_queries(listed: Sequence[QueryListing]) -> None:
    """Every query as a table, and how many there are in each state."""
    states = [query.state for query in listed]
    counted = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    columns = ("query", "owner", "state", "stream", "registered", "until", "fingerprint", "plan_version")
    print_table(counted or "no query was ever registered", columns, [query.to_json() for query in listed])
