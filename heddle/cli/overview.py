"""``heddle`` without a command: the state of the project in this folder, and what to type next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from heddle.cli import terminal
from heddle.cli.output import interval_text, telling_errors
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.operations.status import WarehouseStatus

START: tuple[str, ...] = ("heddle init   (creates a project from the files here; or name a file, folder or database)",)
FIRST_RUN = (
    "heddle validate   (checks streams and queries)",
    "heddle preview    (shows answers; publishes nothing)",
    "heddle run        (prints the times of your data, and the command for them)",
)


def show_overview() -> None:
    """Print the state of the project, and the commands that lead on."""
    from spark_jobs.store.settings import describe, said

    with telling_errors():
        project, warehouse = describe()[1], said("warehouse")
        if warehouse is None:
            lines = ["There is no project in this folder."] if project is None else [f"project    {project}"]
            steps = START if project is None else ('warehouse = "…"   (in heddle.toml)',)
        else:
            state = _stored(warehouse)
            lines = [f"project    {project}"] if project else []
            lines += [f"warehouse  {warehouse}", *(_published(state) if state else ["           nothing is published"])]
            steps = next_steps(state) if state else FIRST_RUN
    lines += ["next:", *(f"  {step}" for step in steps), "`heddle --help` lists all commands."]
    terminal.console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def next_steps(state: WarehouseStatus) -> tuple[str, ...]:
    """The commands that lead on from a state of a warehouse."""
    newest = state.runs[0] if state.runs else None
    if newest is None:
        return FIRST_RUN[-1:]
    if newest.event == "failed":
        return ("heddle status   (says why the newest run failed)", "heddle validate")
    steps = [f"heddle read {query.name}" for query in state.plan.workload.queries[:1]]
    if state.older or state.on_older:
        steps.append("heddle repair --dry-run   (answers of earlier declarations or dimensions)")
    return (*steps, "heddle tick     (answers what is due now)", "heddle repair   (answers again what changed since)")


def _stored(warehouse: str) -> WarehouseStatus | None:
    """The state of a warehouse; None if it does not exist yet."""
    from optimizer.workload.urls import scheme_of
    from spark_jobs.operations.status import read_status

    if scheme_of(warehouse) is None and not Path(warehouse, "heddle.json").exists():
        return None
    from heddle.cli.inputs import existing_warehouse

    return read_status(existing_warehouse(warehouse), 1)


def _published(state: WarehouseStatus) -> list[str]:
    """Lines about the plan and the newest run."""
    queries = number_of(len(state.plan.workload.queries), "query")
    intervals = number_of(state.intervals, "interval")
    lines = [f"plan       version {state.plan_version}: {queries}; {intervals} published"]
    for row in state.runs[:1]:
        lines.append(f"newest run {row.event}: {interval_text(row.begin, row.end)}, {row.record.answers:,} answers")
    return lines
