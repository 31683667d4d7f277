"""``heddle land``: a folder of raw files, or a topic of Kafka, into a Delta table."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.options import AsJson, Streams
from heddle.cli.output import print_diagnostics, print_json, telling_errors
from heddle.cli.root import app
from heddle.cli.start import showing_progress
from optimizer.errors.diagnostics import count

if TYPE_CHECKING:
    from spark_jobs.streams.landing.folders import LandedFolder
    from spark_jobs.streams.landing.land import Landed, Topic


class RecordFormat(StrEnum):
    """Format of records."""

    json = "json"
    avro = "avro"


class Starting(StrEnum):
    """Position in a topic to begin at."""

    earliest = "earliest"
    latest = "latest"


@app.command(
    epilog="Examples: heddle land raw/orders --to data/orders   |   heddle land raw/orders --to data/orders --again "
    "2024-01-31.csv   |   heddle land trades --servers broker:9092 --streams streams.yaml   |   heddle land clicks-v2 "
    "--servers broker:9092 --stream clicks --to data/clicks --format avro --avro-schema clicks.avsc"
)
def land(
    source: Annotated[
        str, typer.Argument(help="The folder; with --servers the topic.", metavar="FOLDER|TOPIC", show_default=False)
    ],
    streams: Streams,
    servers: Annotated[
        str | None, typer.Option("--servers", help="Of Kafka: host:port, several with commas between them.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream",
            help="The stream that files or records are read by. Default: that whose source the folder is; of a topic "
            "that of its name. Of a folder also the stream of the table, in place of --to.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The folder of the table. Default: where the stream of format delta is read from."),
    ] = None,
    again: Annotated[
        list[str] | None,
        typer.Option("--again", help="A file that has landed: replace its rows in the table. Repeatable."),
    ] = None,
    format: Annotated[RecordFormat, typer.Option("--format", help="How records are written.")] = RecordFormat.json,
    avro_schema: Annotated[
        Path | None, typer.Option("--avro-schema", help="The Avro schema that records are written by.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="A folder of the topic's own. Default: in the table's.")
    ] = None,
    starting: Annotated[
        Starting, typer.Option("--starting", help="Where to begin in a topic the first time.")
    ] = Starting.earliest,
    as_json: AsJson = False,
) -> None:
    """Copy new files or records of Kafka into a Delta table. Each JSON or CSV file of a folder, or each record of a
    topic, is copied exactly once. Rows that do not fit the stream go to a table next to it, with the reason. Exits
    with 1 if not all rows of the folder's files are in the table."""
    _check_options(servers, again, format, avro_schema, checkpoint, starting)
    if servers is None:
        _land_folder(source, streams, stream, to, again or [], as_json)
        return
    with telling_errors():
        from spark_jobs.streams.landing.land import topic_of

        chosen = topic_of(source, servers, streams, stream, to, avro_schema, checkpoint, starting.value)
        landed = _landed(chosen)
    records = count(landed.landed, "record")
    line = f"{records} of {landed.topic} landed in {landed.table}, {landed.quarantined:,} in quarantine"
    _print_landed(landed, line, as_json)


def _check_options(
    servers: str | None,
    again: list[str] | None,
    format: RecordFormat,
    avro_schema: Path | None,
    checkpoint: Path | None,
    starting: Starting,
) -> None:
    """Raise BadParameter for options that do not go together."""
    if servers is not None and again:
        raise typer.BadParameter("--again names files of a folder, and --servers is for topics")
    if (format is RecordFormat.avro) != (avro_schema is not None):
        raise typer.BadParameter("--format avro and --avro-schema FILE go together")
    if servers is None and (avro_schema is not None or checkpoint is not None or starting is Starting.latest):
        raise typer.BadParameter("--format, --checkpoint and --starting are for topics: add --servers")


def _land_folder(
    folder: str, streams: Path, stream: str | None, to: Path | None, again: list[str], as_json: bool
) -> None:
    with telling_errors():
        from spark_jobs.streams.landing.folders import land_folder, raw_folder_of

        raw = raw_folder_of(folder, streams, stream, to, again)
        with showing_progress() as report:
            landed = land_folder(raw, report)
    files, rows = count(landed.files, "new file"), count(landed.landed, "row")
    line = f"{files}: {rows} landed in {landed.table}, {landed.quarantined:,} in quarantine"
    _print_landed(landed, line, as_json)
    if landed.commits and not raw.is_read and not as_json:
        place = "source: {format: delta, path: " + landed.table + "}"
        line = f"to read the table, declare a stream in {streams}: {place} and time: {raw.stream.time}"
        terminal.console.print(line, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(0 if landed.is_complete else 1)


def _print_landed(landed: Landed | LandedFolder, line: str, as_json: bool) -> None:
    print_diagnostics(landed.diagnostics)
    if as_json:
        print_json(landed.to_json())
    else:
        terminal.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _landed(topic: Topic) -> Landed:
    """Land a topic in a separate session."""
    from heddle.cli.sessions import spark_session
    from spark_jobs.streams.landing.kafka import check_servers, session_settings
    from spark_jobs.streams.landing.land import land as land_topic

    # before a session is started, which takes longer
    settings = session_settings()
    check_servers(topic.servers)
    with spark_session("heddle land", settings=settings) as (spark, report):
        return land_topic(spark, topic, report=report)


@app.command(
    epilog="Examples: heddle copy --streams streams.yaml   |   heddle copy orders clicks --streams streams.yaml"
)
def copy(
    names: Annotated[
        list[str] | None, typer.Argument(help="Streams. Default: all that have a copy.", metavar="STREAM")
    ] = None,
    *,
    streams: Streams,
    as_json: AsJson = False,
) -> None:
    """Update the copies of streams that only Spark reads. These are tables of catalogues, databases, ORC and Avro.
    Every run does that itself before it reads them."""
    with telling_errors():
        from spark_jobs.streams.copies.readers import bring_named

        with showing_progress() as report:
            copied, problems = bring_named(streams, names or [], report)
    print_diagnostics(problems)
    if as_json:
        print_json({"copies": [each.to_json() for each in copied]})
    for each in [] if as_json else copied:
        terminal.console.print(str(each), highlight=False, markup=False, soft_wrap=True)
    if not copied and not problems and not as_json:
        terminal.console.print("no stream has a copy: Heddle reads them itself", highlight=False)
    raise typer.Exit(1 if any(problem.severity == "error" for problem in problems) else 0)
