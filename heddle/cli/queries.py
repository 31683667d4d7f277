"""``heddle queries``, ``pause``, ``resume``, ``remove`` and ``quarantine``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heddle.cli import changes, terminal
from heddle.cli.options import AsJson, DryRun, House, Names, Reason, Yes
from heddle.cli.output import interval_text, print_json, print_rows, print_table, telling_errors
from heddle.cli.root import app
from heddle.cli.run import arrival_row
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.warehouse.warehouse import Warehouse

STATES = ("running", "paused", "expired", "removed")
"""Of queries, in the order in which they are counted."""


@app.command(
    epilog="Examples: heddle quarantine --warehouse house   |   heddle quarantine --warehouse DIR --release part-7.csv"
)
def quarantine(
    warehouse: House,
    take: Annotated[
        list[str] | None, typer.Option("--release", help="Take in what is refused of a file.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The files with events that came later than their stream's allowed_lateness, so that they are left out of what is
    published; --release takes them in: `heddle repair` publishes anew what they change. Needs no JVM."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.sources.ledger import refusals, release
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        house = Warehouse.open(warehouse, create=False)
        released = release(house, take) if take else []
        found = refusals(house)
    if as_json:
        print_json(
            {
                "format_version": 1,
                "refused": [arrival_row(one) for one in found],
                "released": [arrival_row(one) for one in released],
            }
        )
        return
    for one in released:
        terminal.console.print(
            f"released: {number_of(one.late, 'event')} of {one.path}; `heddle repair` takes them in", highlight=False
        )
    rows = [
        [one.stream, Path(one.path).name, format_instant(one.arrived), f"{one.late:,}", spans]
        for one in found
        for spans in ["; ".join(interval_text(*span) for span in one.refused)]
    ]
    if rows:
        print_rows("events that came too late", ("stream", "file", "came", "events", "of"), rows)
    else:
        terminal.console.print("no event came too late", highlight=False)


@app.command(epilog="Example: heddle pause hourly_volume by_host --warehouse var/warehouse --reason 'costs too much'")
def pause(names: Names, warehouse: House, reason: Reason = "", as_json: AsJson = False) -> None:
    """Answer some queries no more until they are resumed: a new plan version without them, at once, and so every later
    one. They stay registered and their published answers stay, also where their intervals are run again. Needs no
    JVM."""
    _pause_or_resume(names, warehouse, "paused", reason, as_json)


@app.command(epilog="Example: heddle resume hourly_volume --warehouse var/warehouse")
def resume(names: Names, warehouse: House, reason: Reason = "", as_json: AsJson = False) -> None:
    """Answer paused queries again, from the next run on, by a new plan version; `heddle backfill` fills the gap. Needs
    no JVM."""
    _pause_or_resume(names, warehouse, "resumed", reason, as_json)


def _pause_or_resume(
    names: Sequence[str], warehouse: Path, event: Literal["paused", "resumed"], reason: str, as_json: bool
) -> None:
    from spark_jobs.planning.changes import pause_or_resume
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        found = pause_or_resume(Warehouse.open(warehouse, create=False), event, names, reason)
    if as_json:
        print_json(found)
        return
    for what, which in ((event, found["queries"]), (f"{event} already", found["already"])):
        if which:
            terminal.console.print(f"{what}: {', '.join(which)}", highlight=False, soft_wrap=True)
    terminal.console.print(f"plan version {found['version']}{' (new)' if found['changed'] else ''}", highlight=False)
    for line in found["diff"]:
        terminal.console.print(f"  {line}", highlight=False, soft_wrap=True)


@app.command(
    epilog="Examples: heddle remove by_host --warehouse house   "
    "|   heddle remove by_host --warehouse house --with-answers --dry-run"
)
def remove(
    names: Names,
    warehouse: House,
    with_answers: Annotated[
        bool, typer.Option("--with-answers", help="Delete their published answers too, also of queries removed before.")
    ] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Unregister queries, by a new plan version that moves no other. Their published answers stay, unless they are to
    go too: how many, and of when, is shown first. Needs no JVM."""
    from spark_jobs.planning.changes import remove_queries
    from spark_jobs.warehouse.registry import check_registered, events, registered
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        house, names = Warehouse.open(warehouse, create=False), list(dict.fromkeys(names))
        held = registered(events(house))
        live = [name for name in names if name in held and not held[name].removed]
        answers = _deleted(house, names, True) if with_answers else []
        check_registered(held, [name for name in names if name not in {*live, *(one["query"] for one in answers)}])
        found: dict[str, Any] = {"queries": [], "diff": []}
        if live:
            # what cannot be removed is told before anything is asked
            found |= remove_queries(house, live, reason, dry_run=True)
        agreed = not answers or yes
        if answers and not (yes or as_json):
            print_rows(
                "published answers that go",
                ("query", "answers", "first", "last"),
                [[one["query"], f"{one['answers']:,}", one["first"], one["last"]] for one in answers],
            )
        if not (agreed or dry_run) and changes.is_at_terminal():
            agreed = typer.confirm("Remove the queries and delete these answers?", err=True)
            if not agreed:
                terminal.errors.print("nothing was changed")
                raise typer.Exit(1)
        done = agreed and not dry_run
        if done and live:
            found |= remove_queries(house, live, reason)
        if done and answers:
            answers = _deleted(house, names, False)
        if as_json:
            print_json(found | {"answers": answers, "dry_run": not done})
        else:
            _show_removal(found, answers, done)
        if not (agreed or dry_run):
            raise HeddleError("HDL-527", "answers are deleted once somebody agrees: nothing was changed", "say --yes")


def _deleted(house: Warehouse, names: Sequence[str], dry_run: bool) -> list[dict[str, Any]]:
    """The published answers of some queries, deleted unless it is a dry run; none of those that have none."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.results.deletion import delete_answers

    return [
        {
            "query": one.query,
            "answers": one.answers,
            "first": format_instant(one.first) if one.first is not None else "",
            "last": format_instant(one.last) if one.last is not None else "",
        }
        for one in delete_answers(house, names, dry_run)
        if one.answers
    ]


def _show_removal(removal: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], done: bool) -> None:
    for line in removal["diff"]:
        terminal.console.print(line, highlight=False, soft_wrap=True)
    would = "" if done else "would be "
    if removal["queries"]:
        version = f"plan version {removal['version']}{' (new)' if removal['changed'] else ''}: " if done else ""
        terminal.console.print(
            f"{version}{would}removed: {', '.join(removal['queries'])}", highlight=False, soft_wrap=True
        )
    for one in answers:
        told = f"{one['query']}: {one['answers']:,} published answers {would}deleted, {one['first']} .. {one['last']}"
        terminal.console.print(told, highlight=False, soft_wrap=True)


@app.command(
    epilog="Examples: heddle queries --warehouse var/warehouse   "
    "|   heddle queries --warehouse var/warehouse --history hourly_volume"
)
def queries(
    warehouse: House,
    history: Annotated[
        str | None, typer.Option("--history", help="All that happened to this query.", metavar="QUERY")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", help="The clock that lifetimes are compared with (UTC). Default: now.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every query that was ever registered: whose it is, whether it is running, paused, expired or removed, since when
    and until when, and the newest plan that has it. Needs no JVM."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.sources.decoding import parse_instant
    from spark_jobs.warehouse.plans import newest_versions
    from spark_jobs.warehouse.registry import check_registered, events, registered
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        clock = parse_instant(at) if at is not None else time.time_ns() // 1000
        house = Warehouse.open(warehouse, create=False)
        told = events(house)
        held = registered(told)
        if history is not None and history not in held:
            check_registered(held, [history])
    if history is not None:
        mine = [
            {
                "at": format_instant(event.at),
                "event": event.event,
                "owner": event.owner,
                "fingerprint": event.fingerprint,
                "plan_version": event.plan_version,
                "reason": event.reason,
                "text": event.text,
            }
            for event in told
            if event.query == history
        ]
        if as_json:
            print_json({"query": history, "events": mine})
        else:
            print_table(
                f"history of {history}", ("at", "event", "owner", "fingerprint", "plan_version", "reason"), mine
            )
        return
    versions = newest_versions(house)
    found = [
        {
            "query": name,
            "owner": one.query.owner,
            "state": one.state(clock),
            "paused": one.paused,
            "stream": one.query.stream,
            "registered": format_instant(one.since),
            "until": format_instant(one.query.until) if one.query.until is not None else None,
            "fingerprint": one.query.fingerprint,
            "plan_version": versions.get(name),
            "text": one.query.text,
        }
        for name, one in sorted(held.items())
    ]
    if as_json:
        print_json({"queries": found})
        return
    states = [one["state"] for one in found]
    counted = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    columns = ("query", "owner", "state", "stream", "registered", "until", "fingerprint", "plan_version")
    print_table(counted or "no query was ever registered", columns, found)
