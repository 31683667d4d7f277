"""``heddle upgrade``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.changes import is_at_terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, WarehouseOption
from heddle.cli.output import print_json, print_table, seconds_text, telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.operations.upgrade import Upgrade


@app.command(
    epilog="Examples: heddle upgrade --check --warehouse DIR   |   heddle upgrade --apply --warehouse DIR --yes"
)
def upgrade(
    warehouse: WarehouseOption,
    apply: Annotated[
        bool, typer.Option("--apply/--check", help="Make the changes, or show them: then exit 1 if there are any.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before earlier versions are shut out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show or apply what this version changes in a warehouse. It prints the formats, and what changes so that this
    version of Heddle can write to it. Needs no JVM."""
    from spark_jobs.operations.upgrade import apply_upgrade, check_upgrade

    with telling_errors():
        opened = existing_warehouse(warehouse)
        pending = check_upgrade(opened)
        if apply:
            confirm_upgrade(pending, yes)
            apply_upgrade(opened)
    if as_json:
        print_json(pending.to_json() | {"applied": apply})
    else:
        show_upgrade(pending, apply)
    if pending.steps and not apply:
        raise typer.Exit(1)


def confirm_upgrade(pending: Upgrade, yes: bool) -> None:
    """Say how to go back, and ask the user to confirm an upgrade after which earlier versions cannot go on. Raises
    HDL-646 if there is no terminal."""
    for back in pending.back:
        print_back(back)
    if not pending.back or yes:
        return
    if not is_at_terminal():
        message = f"earlier versions of Heddle cannot go on with {pending.warehouse} after this"
        raise HeddleError("HDL-646", message, "say --yes if none uses it any more; nothing was changed")
    if not typer.confirm("Upgrade it?", err=True):
        terminal.errors.print("nothing was changed")
        raise typer.Exit(1)


def print_back(back: str) -> None:
    """Print how to take an upgrade back."""
    text = f"earlier versions of Heddle cannot go on after this. To go back, {back}"
    terminal.errors.print(text, highlight=False, markup=False, soft_wrap=True)


def show_upgrade(upgrade: Upgrade, is_done: bool) -> None:
    """The formats and the steps for people."""
    rows = [asdict(each) for each in upgrade.formats]
    print_table(f"formats of {upgrade.warehouse}", ("what", "stored", "then"), rows)
    if not upgrade.steps:
        terminal.console.print("nothing to upgrade: this version writes the formats that are there", highlight=False)
    for step in upgrade.steps:
        took = "" if is_done else f": about {seconds_text(step.seconds)}"
        terminal.console.print(f"{step.what}{took}", highlight=False, markup=False, soft_wrap=True)
        if step.back and not is_done:
            print_back(step.back)
    if upgrade.steps:
        done = f"{number_of(len(upgrade.steps), 'step')} {'done' if is_done else 'to do: heddle upgrade --apply'}"
        terminal.console.print(done, highlight=False)
