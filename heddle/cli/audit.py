"""``heddle audit``: what is published and stored, checked on demand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, OptionalBegin, OptionalEnd, WarehouseOption
from heddle.cli.output import print_diagnostics, print_json, print_rows, telling_errors
from heddle.cli.progress import stages
from heddle.cli.root import app
from heddle.cli.sessions import engine_of_command
from optimizer.errors.diagnostics import Diagnostic
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.audit.checks.recompute import Difference
    from spark_jobs.operations.audit import Recomputation
    from spark_jobs.operations.file_checks import CheckedFiles

SHOWN = 50
"""Differences that are shown; ``--json`` has all."""

DEFAULT_SHARE = "5%"


@app.command(
    epilog="Examples: heddle audit --from 2013-07-01 --to 2013-07-08   |   heddle audit --all --from 2013-07-01 "
    "--to 2013-07-02   |   heddle audit --share 20% --from 2013-07-01 --to 2013-08-01 --json   |   heddle audit --files"
)
def audit(
    warehouse: WarehouseOption,
    begin: OptionalBegin = None,
    end: OptionalEnd = None,
    is_all: Annotated[bool, typer.Option("--all", help="Recompute every window.")] = False,
    share: Annotated[
        str | None,
        typer.Option(
            help=f"The share of the windows to recompute, e.g. 20%. Default: {DEFAULT_SHARE}.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        str, typer.Option(help="Decides which windows. Default: others each time.", show_default=False)
    ] = "",
    files: Annotated[
        bool, typer.Option("--files", help="Instead, read every file of the tables and compare it with its checksum.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Recompute published answers from raw events, and compare. With --files, read every stored file and compare it
    with what was committed. Exit 0: all are equal; 1: some differ, and are listed; 2: the call is wrong. A
    difference in a window whose sources have changed since is outdated: `heddle repair` publishes it again.
    Publishes nothing."""
    if files:
        if begin or end or is_all or share or seed:
            raise typer.BadParameter("--files checks all tables: leave --from, --to, --all, --share and --seed out")
        raise typer.Exit(_audit_files(warehouse, as_json))
    if begin is None or end is None or (is_all and share is not None):
        raise typer.BadParameter("give --from and --to, and --all or --share or neither; or --files")
    chosen_share = 1.0 if is_all else _share_of(share or DEFAULT_SHARE)
    raise typer.Exit(_audit_answers(warehouse, (begin, end), chosen_share, seed, as_json))


def _audit_answers(warehouse: str, interval: tuple[str, str], share: float, seed: str, as_json: bool) -> int:
    """Recompute a share of the published windows; the exit code: 1 if some answers differ."""
    with telling_errors():
        from spark_jobs.operations.audit import recompute_published
        from spark_jobs.streams.sources.decoding import parse_instant

        opened, clock = existing_warehouse(warehouse), time.time_ns()
        begin, end = map(parse_instant, interval)
        with engine_of_command("heddle audit") as (engine, report):
            outcome = recompute_published(opened, begin, end, share, clock // 1000, engine, report, seed or str(clock))
    if as_json:
        print_json({"format_version": 1, **outcome.to_json()})
    else:
        show(outcome)
    return 1 if outcome.wrong else 0


def _audit_files(warehouse: str, as_json: bool) -> int:
    """Read every file of the tables; the exit code: 1 if one is damaged."""
    from spark_jobs.operations.file_checks import check_files

    with telling_errors(), stages("reading the logs") as report:
        checked = check_files(existing_warehouse(warehouse), report=report)
    if as_json:
        print_json(checked.to_json())
    show_files(checked)
    return 1 if checked.damaged else 0


def show_files(checked: CheckedFiles) -> None:
    """Print on standard error the numbers of files and bytes read, and each damaged file."""
    read = f"{number_of(checked.files, 'file')} of {checked.bytes:,} bytes read, {len(checked.damaged)} damaged"
    bare = checked.without_checksum
    without = f"; {bare:,} without a checksum of the complete file" if bare else ""
    terminal.errors.print(read + without, highlight=False)
    print_diagnostics(
        [Diagnostic("HDL-534", f"{file.table}: {file.reason}", file.mended_by) for file in checked.damaged]
    )


def _share_of(text: str) -> float:
    """A share in (0, 1] of a text like ``5%`` or ``0.05``."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise typer.BadParameter(f"{text!r} is no share: write e.g. 5% or 0.05, at most 100%", param_hint="--share")
    return share


def show(result: Recomputation) -> None:
    """Print the outcome of a recomputation for people."""
    terminal.console.print(
        f"{number_of(result.answers, 'answer')} of {number_of(result.windows, 'window')} in "
        f"{number_of(result.intervals, 'interval')} recomputed: {number_of(len(result.wrong), 'difference')}"
        + (f", {len(result.outdated)} outdated" if result.outdated else ""),
        highlight=False,
    )
    for title, differences in (("different answers", result.wrong), ("outdated (heddle repair)", result.outdated)):
        if differences:
            rows = [_row(difference) for difference in differences[:SHOWN]]
            print_rows(title, ("query", "window ends", "group", "output", "published", "recomputed"), rows)
            if len(differences) > SHOWN:
                terminal.console.print(f"… {len(differences) - SHOWN:,} more: --json lists all", highlight=False)
    for note in result.notes:
        terminal.console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)


def _row(difference: Difference) -> tuple[str, ...]:
    shown = difference.to_json()
    group = ", ".join("null" if value is None else value for value in difference.group)
    values = [shown.get(name, "") for name in ("output", "published", "recomputed")]
    texts = ["null" if value is None else str(value) for value in values]
    texts = [shown["what"], "", ""] if "what" in shown else texts
    return difference.query, shown["window_end"], group, *texts
