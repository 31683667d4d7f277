"""``heddle init``, ``streams``, ``preview`` and ``test``: from data to first answers, before anything is published."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from heddle.cli import changes, terminal
from heddle.cli.answers import show_answers
from heddle.cli.databases import database_project
from heddle.cli.inputs import opened_warehouse
from heddle.cli.options import AsJson, DryRun, Files, Streams
from heddle.cli.output import print_diagnostics, print_json, telling_errors
from heddle.cli.reports import Case, JUnit, ReportFormat, ReportOption, json_asked, reporting
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic, printable
from optimizer.errors.diagnostics import count as number_of
from spark_jobs.results.encoding import plain_value

if TYPE_CHECKING:
    from spark_jobs.operations.dimension_profiles import DimensionProfile
    from spark_jobs.operations.preview import Preview
    from spark_jobs.operations.project import Project
    from spark_jobs.operations.query_tests import Outcome
    from spark_jobs.operations.stream_profiles import ColumnProfile, StreamProfile
    from spark_jobs.pipeline.run.values import Report
    from spark_jobs.streams.sources.proposals import Data, TimeCandidate

PATIENCE = 1.0
"""Seconds after which it is shown what goes on."""


@contextmanager
def showing_progress() -> Iterator[Report]:
    """Yield a function that shows a line of progress on a terminal, once the work takes more than a second."""
    begin, status = time.monotonic(), terminal.errors.status("")

    def report(line: str) -> None:
        status.update(Text(printable(line)))
        if terminal.errors.is_terminal and time.monotonic() - begin > PATIENCE:
            status.start()

    try:
        yield report
    finally:
        status.stop()


# ---------------------------------------------------------------------------------------------- init
@app.command(
    epilog="Examples: heddle init   |   heddle init visits.csv   "
    "|   heddle init 'data/*.parquet' --time ts --name requests --yes   |   heddle init s3://bucket/visits/   "
    "|   heddle init postgresql://me@db/shop --table public.orders"
)
def init(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="CSV, JSON and Parquet files, folders of them, Delta tables, patterns, or URLs of them in a store; "
            "or the URL or file of a database. None: what lies here and below. Files of one schema are one stream.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    time_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--time",
            help="The column of times, of several streams STREAM=COLUMN; may be given again. Default: the likeliest.",
            metavar="COLUMN",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the stream. Default: that of the file.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Of a database: the table, as schema.table. None: they are listed.")
    ] = None,
    folder: Annotated[Path, typer.Option("--folder", help="Write the project here.")] = Path(),
    airflow: Annotated[
        bool, typer.Option("--airflow", help="Also a folder of DAGs, and the environment that Airflow needs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the likeliest.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Create a project from your data. It writes streams.yaml, first queries and heddle.toml, and overwrites
    nothing. Of several tables, those with times become streams, and those that they refer to dimensions. Needs no
    JVM, unless only Spark knows the columns."""
    from spark_jobs.operations.project import plan_project

    is_asking = not (yes or as_json) and changes.is_at_terminal()
    with telling_errors():
        arguments = (folder, time_columns, name, airflow, _ask if is_asking else None)
        project: Project | None = database_project(paths or (), table, is_asking, as_json, *arguments)
        if project is None:
            project = plan_project(paths or (), *arguments)
        print_diagnostics(project.problems)
        written = [] if dry_run else project.write()
    _show_project(project, written, as_json)


def _ask(data: Data, likeliest: TimeCandidate, name: str) -> tuple[TimeCandidate, str]:
    """Have somebody choose the time column, where there are several, and the name of a stream unless it is empty."""
    from spark_jobs.streams.sources.proposals import time_of

    terminal.errors.print(f"{data.path}: {data.format}", highlight=False, markup=False)
    chosen, likely = likeliest, data.likely_times or data.candidates
    if len(likely) > 1:
        for candidate in likely:
            terminal.errors.print(f"  {candidate}", highlight=False, markup=False)
        column = typer.prompt("Which column is the time of an event?", default=likeliest.name, err=True)
        chosen = time_of(data, column)
    return chosen, str(typer.prompt("Name of the stream", default=name, err=True)) if name else name


def _show_project(project: Project, written: Sequence[Path], as_json: bool) -> None:
    """Print the inspected data, the written files, and the next steps."""
    if as_json:
        streams = [
            proposal.inspection.to_json() | {"time": proposal.stream.time, "event_id": proposal.stream.event_id}
            for proposal in project.proposals
        ]
        dimensions = [dimension.to_json() for dimension in project.dimensions]
        report = {"streams": streams, "dimensions": dimensions, "files": dict(project.files)}
        print_json(report | {"written": [str(path) for path in written]})
        return
    for proposal in project.proposals:
        print_diagnostics(proposal.inspection.diagnostics)
    for line in project.about:
        terminal.console.print(Text(printable(line)), soft_wrap=True)
    for name, text in project.files:
        terminal.console.print(Text(f"{'wrote' if written else 'would write'} {project.folder / name}"), soft_wrap=True)
        if not written and not name.endswith(".json"):
            terminal.console.print(Text(text), soft_wrap=True)
    terminal.console.print(Text("\n".join(["next:", *(f"  {step}" for step in project.next_steps)])), soft_wrap=True)


# ------------------------------------------------------------------------------------------- streams
@app.command(epilog="Examples: heddle streams   |   heddle streams visits --streams streams.yaml --json")
def streams(
    streams: Streams,
    name: Annotated[
        str | None, typer.Argument(help="A stream or dimension; none: all.", metavar="[NAME]", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe the data of streams and dimensions. It prints times, the rate over time, columns with their values,
    keys, and problems. Long streams are described by a sample. Needs no JVM."""
    from spark_jobs.operations.dimension_profiles import dimension_profiles
    from spark_jobs.operations.stream_profiles import profiles

    with telling_errors(), showing_progress() as report:
        report("reading")
        stream_profiles, problems = profiles(streams, name)
        dimensions = dimension_profiles(streams, name)
    print_diagnostics(problems)
    _show_profiles(stream_profiles, dimensions, as_json)
    profiled: Sequence[StreamProfile | DimensionProfile] = [*stream_profiles, *dimensions]
    wrong = [*problems, *(problem for profile in profiled for problem in profile.diagnostics)]
    raise typer.Exit(1 if any(problem.severity == "error" for problem in wrong) else 0)


def _show_profiles(streams: Sequence[StreamProfile], dimensions: Sequence[DimensionProfile], as_json: bool) -> None:
    if as_json:
        listed: dict[str, Sequence[StreamProfile | DimensionProfile]] = {"streams": streams}
        listed |= {"dimensions": dimensions} if dimensions else {}
        print_json({what: [profile.to_json() for profile in of] for what, of in listed.items()})
        return
    for profile in streams:
        _show_profile(profile)
    for dimension in dimensions:
        _show_dimension(dimension)


def _show_dimension(profile: DimensionProfile) -> None:
    from optimizer.workload.instants import duration_text, format_instant

    dimension = profile.dimension
    print_diagnostics(profile.diagnostics)
    rows = "rows not read" if profile.rows is None else number_of(profile.rows, "row")
    lines = [
        f"dimension {dimension.name}: {dimension.source.format}, {number_of(profile.files, 'file')}, {rows}",
        f"  key: {', '.join(dimension.key)}",
    ]
    if dimension.valid_from is not None:
        until = f" until {dimension.valid_to}" if dimension.valid_to is not None else ", until the next row of its key"
        bounds = [format_instant(moment) for moment in (profile.first, profile.last) if moment is not None]
        lines.append(f"  a row is valid from {dimension.valid_from}{until}: {' to '.join(bounds)}")
    repair = f"the last {duration_text(dimension.repair)}" if dimension.repair else "nothing: published answers stay"
    lines.append(f"  a change revises {repair}")
    if profile.joined_by is not None:
        lines.append(f"  joined by {', '.join(profile.joined_by) or 'no query of the project'}")
    lines.append(f"  read from {dimension.source.path}")
    for line in lines:
        terminal.console.print(Text(printable(line)), soft_wrap=True)
    _show_columns(dimension.name, profile.rows or 0, profile.columns)


def _show_profile(profile: StreamProfile) -> None:
    from optimizer.workload.instants import duration_text
    from spark_jobs.streams.copies.readers import reason, unseen

    stream = profile.stream
    print_diagnostics(profile.diagnostics)
    inspection, origin = profile.inspection, stream.source.origin
    kind = stream.source.format if origin is None else origin.format
    lines = [f"{stream.name}: {kind}, {number_of(inspection.files, 'file')}, {inspection.events_text}"]
    if inspection.first is not None:
        lines.append(f"  {stream.time}: {inspection.span_text}")
        if profile.counts:
            lines.append(f"  |{profile.bars}| events by {duration_text(profile.span)}, at most {max(profile.counts):,}")
    lines.append(f"  read by {reason(stream)}")
    if unseen(stream):
        lines.append(f"  not seen {unseen(stream)}")
    for line in lines:
        terminal.console.print(Text(printable(line)), soft_wrap=True)
    _show_columns(stream.name, profile.sample, profile.columns, profile.is_sampled)


def _show_columns(name: str, rows: int, columns: Sequence[ColumnProfile], is_sampled: bool = False) -> None:
    if not columns:
        return
    count = number_of(rows, "row")
    how = f"a sample of {count}" if is_sampled else f"all {count}"
    table = Table(title=f"{name}, by {how}", title_justify="left")
    at_least = "≥ " if is_sampled else ""
    for heading in ("column", "type", "null", "distinct", "least", "greatest"):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("null", "distinct") else "left")
    for column in columns[:COLUMNS_SHOWN]:
        cells = (column.name, str(column.type), f"{column.nulls:.0%}", f"{at_least}{column.distinct:,}", column.least)
        table.add_row(*(Text(printable(cell)) for cell in (*cells, column.greatest)))
    terminal.console.print(table)
    if len(columns) > COLUMNS_SHOWN:
        terminal.console.print(f"… {len(columns) - COLUMNS_SHOWN:,} more columns (--json has all)")


COLUMNS_SHOWN = 60
"""Columns of a stream that are shown to people."""


# ------------------------------------------------------------------------------------------- preview
@app.command(
    epilog="Examples: heddle preview   |   heddle preview queries/volume.sql --last '1 day' --limit 5   "
    "|   heddle preview --query hourly_volume --against house"
)
def preview(
    files: Files,
    streams: Streams,
    last: Annotated[
        str | None,
        typer.Option(
            "--last",
            help="All windows that end in the last so long of the data, e.g. '1 day'. "
            "Default: the newest complete window, and the one that has the newest event.",
        ),
    ] = None,
    query: Annotated[list[str] | None, typer.Option("--query", help="Only this query; may be given again.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most answers of a query; 0: all.")] = 20,
    against: Annotated[
        str | None, typer.Option("--against", help="Compare with what is published in this warehouse.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show answers on the newest windows, without publishing them. The code of a run computes them. Needs no JVM
    and no warehouse."""
    from optimizer.workload.instants import parse_duration
    from spark_jobs.operations.preview import preview as previewed
    from spark_jobs.pipeline.planning.requested import load_inputs

    with telling_errors(), showing_progress() as report:
        inputs = load_inputs(files, streams)
        print_diagnostics(inputs.diagnostics)
        span = None if last is None else parse_duration(last)
        shown, problems = previewed(inputs.workload, span, query or (), opened_warehouse(against), report)
    _show_previews(shown, problems, limit, as_json, against is not None)
    raise typer.Exit(1 if inputs.errors or any(problem.severity == "error" for problem in problems) else 0)


def _show_previews(
    shown: Sequence[Preview], problems: Sequence[Diagnostic], limit: int, as_json: bool, is_compared: bool
) -> None:
    print_diagnostics(problems)
    if as_json:
        print_json({"queries": [_preview_json(preview, limit, is_compared) for preview in shown]})
        return
    for preview in shown:
        show_answers(preview.answers, preview.query.name, limit)
        for line in _about(preview, is_compared):
            terminal.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


MISMATCHES_SHOWN = 5
"""Answers that are not as published, of a query."""


def _about(shown: Preview, is_compared: bool) -> list[str]:
    """Lines below the answers of a preview."""
    from optimizer.workload.instants import format_instant

    lines = []
    if shown.incomplete:
        newest = format_instant(shown.newest)
        if shown.sample is not None:
            newest = f"about {newest} (a sample of {number_of(shown.sample, 'row')})"
        count = number_of(shown.incomplete, "answer")
        lines.append(f"newest event {newest}: windows that end later are not complete ({count})")
    if is_compared:
        lines.append(
            "published: nothing, the warehouse has no such query" if shown.published is None else str(shown.published)
        )
    if shown.published is not None:
        wrong = [mismatch for mismatch in shown.published.mismatches if mismatch.kind == "differs"]
        lines += [line for mismatch in wrong[:MISMATCHES_SHOWN] for line in mismatch.lines()]
    return lines


def _preview_json(shown: Preview, limit: int, is_compared: bool) -> dict[str, Any]:
    from optimizer.workload.instants import format_instant

    table = shown.answers.slice(0, limit) if limit else shown.answers
    rows = [{name: plain_value(value) for name, value in row.items()} for row in table.to_pylist()]
    preview = {
        "name": shown.query.name,
        "answers": len(shown.answers),
        "incomplete": shown.incomplete,
        "newest_event": format_instant(shown.newest),
        "newest_event_sample": shown.sample,
        "columns": shown.answers.schema.names,
        "rows": rows,
    }
    if is_compared:
        preview["published"] = None if shown.published is None else shown.published.to_json()
    return preview


# --------------------------------------------------------------------------------------------- tests
@app.command(
    epilog="Examples: heddle test   |   heddle test volume.yaml --json   |   heddle test --format github --junit t.xml"
)
def test(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of tests (YAML), or folders of them. Default: tests.", show_default=False),
    ] = None,
    format: ReportOption = ReportFormat.text,
    junit: JUnit = None,
    as_json: AsJson = False,
) -> None:
    """Test queries on rows that you wrote down. Exit code 1 if a test fails. pytest runs the same files
    (docs/ci.md). Needs no JVM and no warehouse."""
    from spark_jobs.operations.query_tests import run_tests

    as_json = json_asked(format, as_json)
    with reporting(format, junit) as cases, showing_progress() as report:
        outcomes = run_tests(paths or [Path("tests")], report)
        cases += map(_case_of, outcomes)
    if as_json:
        print_json({"tests": [outcome.to_json() for outcome in outcomes]})
    else:
        _show_outcomes(outcomes)
    raise typer.Exit(0 if all(outcome.has_passed for outcome in outcomes) else 1)


def _case_of(outcome: Outcome) -> Case:
    test = outcome.test
    return Case(str(test.file), test.name, test.line, outcome.problems, outcome.lines(), outcome.seconds)


LINES_SHOWN = 40
"""Lines of what differs that are shown of a test."""


def _show_outcomes(outcomes: Sequence[Outcome]) -> None:
    """A line for each test, below those that failed what differs, and how many passed."""
    for outcome in outcomes:
        word, colour = ("PASSED", "green") if outcome.has_passed else ("FAILED", "bold red")
        line = Text(f"{outcome.test.file}::{printable(outcome.test.name)} ").append(word, colour)
        terminal.console.print(line, highlight=False, soft_wrap=True)
        lines = outcome.lines()
        for shown in lines[:LINES_SHOWN]:
            colour = {"-": "red", "+": "green"}.get(shown[0], "")
            terminal.console.print(Text(f"    {printable(shown)}", colour), highlight=False, soft_wrap=True)
        if len(lines) > LINES_SHOWN:
            terminal.console.print(f"    … {len(lines) - LINES_SHOWN:,} more lines (--json has all)")
        print_diagnostics(outcome.problems)
    passed = sum(outcome.has_passed for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    terminal.console.print(f"{passed} passed, {len(outcomes) - passed} failed in {seconds:.1f} s", highlight=False)
