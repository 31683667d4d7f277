"""``heddle alerts``, and the alerts that other commands send."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli import terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, WarehouseOption
from heddle.cli.output import print_diagnostics, print_json, print_rows, telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.store.warehouse.warehouse import Warehouse


@app.command(
    epilog="Examples: heddle alerts --warehouse house   |   heddle alerts --warehouse house --send   |   "
    "heddle alerts --warehouse house --test"
)
def alerts(
    warehouse: WarehouseOption,
    at: Annotated[
        str | None, typer.Option("--at", help="The clock (UTC). Default: now.", metavar="INSTANT", show_default=False)
    ] = None,
    send: Annotated[bool, typer.Option("--send", help="Send what was not sent yet, as a run does at its end.")] = False,
    test: Annotated[bool, typer.Option("--test", help="Send a sample to every channel.")] = False,
    as_json: AsJson = False,
) -> None:
    """List failed, blocked, late and silent queries. It names their owners. HEDDLE_NOTIFY names where alerts go.
    Exit 1 if --send or --test could not send."""
    if send and test:
        raise typer.BadParameter("--send and --test exclude each other")
    with telling_errors():
        opened, clock = existing_warehouse(warehouse), _clock(at)
        target = _required_target() if send or test else None
        if test:
            _send_samples(str(target), clock)
            return
        has_failed = _send(opened, clock, target) if send else False
        listed = _listed(opened, clock)
    print_json({"alerts": listed}) if as_json else show_alerts(listed)
    raise typer.Exit(int(has_failed))


def _clock(at: str | None) -> int:
    from spark_jobs.streams.sources.decoding import parse_instant

    return parse_instant(at) if at else time.time_ns() // 1000


def _required_target() -> str:
    """The value of HEDDLE_NOTIFY. Raises HDL-124 without one."""
    from spark_jobs.store.settings import settings

    target = settings().notify
    if target is None:
        hint = "HEDDLE_NOTIFY='https://…' or HEDDLE_NOTIFY='module:callable' in the environment"
        raise HeddleError("HDL-124", "nothing says where alerts go", hint)
    return target


def _send(warehouse: Warehouse, now: int, target: str | None = None) -> bool:
    """Send what was not sent; print what was; whether something failed."""
    from spark_jobs.operations.notify import send_alerts

    passed = send_alerts(warehouse, now, target)
    print_diagnostics(passed.problems)
    if passed.sent:
        terminal.errors.print(f"sent {number_of(len(passed.sent), 'alert')}", highlight=False)
    return bool(passed.problems)


def _send_samples(target: str, now: int) -> None:
    """Send an alert that is about nothing to every channel. Raises HDL-635."""
    from spark_jobs.operations.alerts import sample, undelivered
    from spark_jobs.operations.notify import sender
    from spark_jobs.store.settings import settings

    owners = list({channel: owner for owner, channel in settings().owners.items()}.values()) or [""]
    try:
        sender(target, {})([sample(now, owner).to_json() for owner in owners])
    except (Exception, SystemExit) as error:
        problem = undelivered(error)
        raise HeddleError(problem.code, problem.message, problem.hint) from None
    terminal.console.print(f"sent {number_of(len(owners), 'sample')}", highlight=False)


def _listed(warehouse: Warehouse, now: int) -> list[dict[str, Any]]:
    """The conditions of now as JSON values, with what became of their alerts."""
    from dataclasses import replace

    from spark_jobs.operations.alerts import Alert, open_alerts, view_alerts

    view = view_alerts(warehouse, now)
    known, by_id = open_alerts(view.raised), {sending.alert.id: sending for sending in view.raised}
    listed = []
    for condition in view.current:
        alert, raised = Alert.of(condition, now), known.get(condition.key)
        sending = by_id[raised.id] if raised is not None else None
        if raised is not None:
            alert = replace(alert, since=raised.since, at=raised.at)
        state = {"sent": sending is not None and sending.sent, "failures": sending.failures if sending else 0}
        listed.append(alert.to_json() | state)
    return listed


def show_alerts(listed: list[dict[str, Any]]) -> None:
    """The open alerts for people."""
    if not listed:
        terminal.console.print("no query is failed, blocked, late or silent", highlight=False)
        return
    rows = [
        [row["query"], row["kind"], row["code"], row["owner"], row["since"][:19], "yes" if row["sent"] else "no"]
        for row in listed
    ]
    print_rows("open alerts", ("query", "kind", "code", "owner", "since", "sent"), rows)
    for row in listed[:SHOWN]:
        terminal.console.print(f"{row['message']}\n    hint: {row['hint']}", highlight=False, markup=False)


SHOWN = 20
"""Alerts whose messages are shown."""


def send_after(warehouse: Warehouse, clock: int | None = None) -> None:
    """Send the alerts of a warehouse after a run, at its clock (microseconds; None: now), if HEDDLE_NOTIFY is set. What
    fails is a warning."""
    from spark_jobs.store.settings import settings

    if "notify" in settings().texts:
        _send(warehouse, time.time_ns() // 1000 if clock is None else clock)


@contextmanager
def alerting(warehouse: Warehouse, clock: int | None = None) -> Iterator[None]:
    """Send the alerts of a warehouse once the runs within it have ended, however they end."""
    try:
        yield
    except Exception:
        send_after(warehouse, clock)
        raise
    send_after(warehouse, clock)
