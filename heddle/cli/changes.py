"""Changes that a command would make: shown to the user and confirmed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from heddle.cli import terminal
from heddle.cli.inputs import opened_warehouse
from heddle.cli.output import LISTED, print_rows, seconds_text, unit_text
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.plan.definition import SharingPlan
    from optimizer.plan.diff import PlanDiff
    from optimizer.workload.values import Window
    from spark_jobs.pipeline.costs.learned import Predicted
    from spark_jobs.pipeline.planning.registration import RegistrationRequest
    from spark_jobs.store.warehouse.warehouse import Warehouse


def show_diff(change: PlanDiff, new: SharingPlan) -> None:
    """Print the changes of a plan as tables for people. ``new``: the plan that the change ends in."""
    unit = unit_text(new.cost_model)
    terminal.console.print(f"  cost  {_figures(*change.cost)} {unit}", highlight=False)
    regrouped = [f"{query} ({old} -> {tree})" for query, old, tree in change.moved]
    for what, names in (
        ("streams declared otherwise", change.streams),
        ("added", change.added),
        ("removed", change.removed),
        ("changed", change.changed),
        ("regrouped", regrouped),
    ):
        if names:
            listing = ", ".join(names[:LISTED]) + (f", … {len(names) - LISTED} more" if len(names) > LISTED else "")
            terminal.console.print(f"  {what}: {len(names)}  {listing}", highlight=False, markup=False, soft_wrap=True)
    if change.is_empty:
        terminal.console.print("  same queries in the same trees")
    rows = [row for row in change.trees if row[2] != row[3]]
    if rows:
        print_rows(
            f"trees that change ({unit})",
            ("old", "new", "cost before", "cost after"),
            [(old or "-", tree or "-", f"{before:.6g}", f"{after:.6g}") for old, tree, before, after in rows],
        )
    derived = f", {change.derived} made of stored rows" if change.derived else ""
    terminal.console.print(
        f"  stored partials: {number_of(change.reused, 'synopsis')} kept, {change.built} new{derived}; "
        f"{len(change.rebuilt)} of {number_of(len(new.workload.queries), 'query')} to read history again",
        highlight=False,
    )
    if change.rebuilt:
        windows = {query.name: query.window for query in new.workload.queries}
        print_rows(
            "history that the next run reads again",
            ("query", "because", "windows a group", "back"),
            [(query, reason, f"{count:,}", _back(windows[query])) for query, reason, count in change.rebuilt],
        )


def _back(window: Window) -> str:
    from optimizer.workload.instants import irregular_words

    words = irregular_words(window)
    return seconds_text(window.range / 1_000_000) if words is None else words[0]


def _figures(before: float, after: float) -> str:
    percent = f" ({(after - before) / before:+.1%})" if before and before != after else ""
    return f"{before:.6g} -> {after:.6g}{percent}"


def prices_of_a_day(before: SharingPlan, after: SharingPlan, warehouse: str | None) -> dict[str, Predicted]:
    """Predicted costs of runs over a day by a plan as it is and as it would be, if they are known."""
    from spark_jobs.pipeline.costs.fit import SHIPPED, Fit
    from spark_jobs.pipeline.costs.learned import Learned
    from spark_jobs.pipeline.costs.measurements import last_groups, machine
    from spark_jobs.pipeline.run.break_even import price_of_a_day

    opened = opened_warehouse(warehouse)
    learned = Learned(Fit(SHIPPED), [], machine()) if opened is None else Learned.of(opened)
    groups = {} if opened is None else last_groups(opened)
    plans = {"now": before, "then": after}
    prices = {name: price_of_a_day(learned, plan, groups) for name, plan in plans.items()}
    return {name: price for name, price in prices.items() if price is not None}


def show_prices_of_a_day(prices: Mapping[str, Predicted]) -> None:
    """Print what a run over a day costs now and then."""
    for name, price in prices.items():
        caveat = "" if price.is_measured else " (half to twice what is predicted: too few runs were measured here)"
        spent = f"a run over a day, {name}: {price.least:.1f} to {price.most:.1f} CPU seconds{caveat}"
        terminal.console.print(spent, highlight=False, soft_wrap=True)


def plan_changes(warehouse: Warehouse, request: RegistrationRequest, made: SharingPlan) -> list[str]:
    """Changes that registering some queries makes to a warehouse's plan, in lines."""
    from spark_jobs.pipeline.planning.registration import changes
    from spark_jobs.store.warehouse.plans import current_version, load_plan

    version = current_version(warehouse)
    return changes(request, load_plan(warehouse, version) if version is not None else None, made)


def print_changes(lines: Sequence[str]) -> None:
    """Print the queries that a plan adds, changes and removes: the first ones of the added, all of the others."""
    colours = {"+": "green", "-": "red", "~": "yellow"}
    added = 0
    for line in lines:
        if line[1:8] != " query " or line[0] == ">":
            continue
        added += line.startswith("+")
        if not line.startswith("+") or added <= LISTED:
            terminal.errors.print(line, style=colours.get(line[0], ""), highlight=False, soft_wrap=True)
    if added > LISTED:
        terminal.errors.print(f"+ {added - LISTED} more queries", style="green", highlight=False)


def confirm_removal(removed: Sequence[str], yes: bool) -> None:
    """Ask the user to confirm that queries are removed. Raises HDL-525 if there is no terminal."""
    if not removed or yes:
        return
    if not is_at_terminal():
        names = ", ".join(removed[:12]) + (" …" if len(removed) > 12 else "")
        message = f"{len(removed)} registered {'query' if len(removed) == 1 else 'queries'} would be removed: {names}"
        raise HeddleError("HDL-525", message, "say --yes if they are to go; nothing was changed")
    for name in removed:
        terminal.errors.print(f"- query {name}", style="red", highlight=False, soft_wrap=True)
    if not typer.confirm("Remove them? Their published answers stay.", err=True):
        terminal.errors.print("nothing was changed")
        raise typer.Exit(1)


def is_at_terminal() -> bool:
    """Return whether a user at a terminal can answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()
