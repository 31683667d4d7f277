"""``heddle audit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, House
from heddle.cli.output import print_diagnostics, print_json, telling_errors
from heddle.cli.progress import stages
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.operations.file_checks import CheckedFiles


@app.command(epilog="Example: heddle audit --files --warehouse var/warehouse")
def audit(
    warehouse: House,
    files: Annotated[
        bool, typer.Option("--files", help="Read every file of the tables, and compare it with what was committed.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Compare what is stored with what was committed. Exits with 1 if a file is damaged. Changes nothing; needs no
    JVM."""
    from spark_jobs.operations.file_checks import check_files

    with telling_errors(), stages("reading the logs") as report:
        checked = check_files(existing_warehouse(warehouse), report=report)
    if as_json:
        print_json(checked.to_json())
    show_files(checked)
    raise typer.Exit(1 if checked.damaged else 0)


def show_files(checked: CheckedFiles) -> None:
    """What was read, on standard error, and each file that is damaged."""
    read = f"{number_of(checked.files, 'file')} of {checked.bytes:,} bytes read, {len(checked.damaged)} damaged"
    bare = checked.without_checksum
    without = f"; {bare:,} without a checksum of the complete file" if bare else ""
    terminal.errors.print(read + without, highlight=False)
    print_diagnostics(
        [Diagnostic("HDL-534", f"{file.table}: {file.reason}", file.mended_by) for file in checked.damaged]
    )
