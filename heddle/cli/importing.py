"""``heddle import``: queries from a job of Spark or Flink, or from definitions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.options import AsJson, JobDialect, OptionalStreams
from heddle.cli.output import print_diagnostics, print_json, telling_errors, write_text
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.migration.importing import Imported


@app.command(
    "import",
    epilog="Examples: heddle import job.sql --dialect flink -o queries.sql   "
    "|   heddle import - --streams streams.yaml",
)
def import_job(
    file: Annotated[
        str,
        typer.Argument(
            help="A file of statements or definitions; - reads standard input.", metavar="FILE", show_default=False
        ),
    ],
    dialect: Annotated[
        JobDialect | None,
        typer.Option("--dialect", help="Whose SQL it is. Default: as functions tell, else Spark's."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the queries to this file.")] = None,
    streams: OptionalStreams = None,
    as_json: AsJson = False,
) -> None:
    """Write queries from jobs of other products. It reads the statements of Spark SQL, Flink SQL or TimescaleDB,
    GroupBys of Chronon (JSON), and metrics of dbt (YAML), and reports the obstacle for each other job. With streams
    it checks the queries against them, without only their syntax. Needs no JVM."""
    with telling_errors():
        imported = _imported(file, dialect, streams)
    print_diagnostics(imported.diagnostics)
    if as_json:
        findings = [diagnostic.to_json() for diagnostic in imported.diagnostics]
        print_json({"queries": list(imported.names), "text": imported.text, "diagnostics": findings})
    elif output is None:
        sys.stdout.write(imported.text)
    if output is not None:
        write_text(output, imported.text)
    summary = f"{number_of(len(imported.names), 'query')} imported, {number_of(len(imported.errors), 'error')}"
    terminal.errors.print(summary, highlight=False)
    raise typer.Exit(1 if imported.errors else 0)


def _imported(file: str, dialect: JobDialect | None, streams: Path | None) -> Imported:
    """The job in a file, or on standard input, as queries."""
    from optimizer.migration.importing import dialect_of, import_job
    from optimizer.migration.words import Dialect
    from spark_jobs.pipeline.planning.requested import load_inputs

    known = None
    if streams is not None:
        inputs = load_inputs((), streams)
        print_diagnostics(inputs.diagnostics)
        known = {stream.name: stream for stream in inputs.workload.streams}
    name = "standard input" if file == "-" else file
    stem = "query" if file == "-" else Path(file).stem
    text = _text(file)
    return import_job(text, dialect_of(text) if dialect is None else Dialect(dialect.value), name, known, stem)


def _text(file: str) -> str:
    """The text of a job. Raises HDL-111 for a file that cannot be read, or is too large."""
    from optimizer.migration.importing import FILE_BYTES

    try:
        if file == "-":
            content = sys.stdin.buffer.read(FILE_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(FILE_BYTES + 1)
        if len(content) > FILE_BYTES:
            raise HeddleError("HDL-111", f"is larger than {FILE_BYTES} bytes", "split it", file=file)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise HeddleError("HDL-111", f"cannot be read: {error.strerror}", "check the path", file=file) from None
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text (byte {error.start})"
        raise HeddleError("HDL-111", message, "save it as UTF-8", file=file) from None
