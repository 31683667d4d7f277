"""``heddle land``: a topic of Kafka into a Delta table."""

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
    epilog="Examples: heddle land trades --servers broker:9092 --streams streams.yaml   "
    "|   heddle land clicks-v2 --servers broker:9092 --stream clicks --to data/clicks --format avro "
    "--avro-schema clicks.avsc"
)
def land(
    topic: Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC", show_default=False)],
    servers: Annotated[str, typer.Option("--servers", help="host:port, several with commas between them.")],
    streams: Streams,
    stream: Annotated[
        str | None, typer.Option("--stream", help="The stream whose columns records have. Default: the topic's name.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="The folder of the table. Default: where the stream is read from.")
    ] = None,
    format: Annotated[RecordFormat, typer.Option("--format", help="How records are written.")] = RecordFormat.json,
    avro_schema: Annotated[
        Path | None, typer.Option("--avro-schema", help="The Avro schema that records are written by.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="A folder of the topic's own. Default: in the table's.")
    ] = None,
    starting: Annotated[
        Starting, typer.Option("--starting", help="Where to begin the first time.")
    ] = Starting.earliest,
    as_json: AsJson = False,
) -> None:
    """Copy the current records of a Kafka topic into a Delta table that a stream is read from, each record exactly
    once. Records that do not fit the stream go to a table next to it, with the reason.
    """
    if (format is RecordFormat.avro) != (avro_schema is not None):
        raise typer.BadParameter("--format avro and --avro-schema FILE go together")
    with telling_errors():
        from spark_jobs.streams.landing.land import topic_of

        chosen = topic_of(topic, servers, streams, stream, to, avro_schema, checkpoint, starting.value)
        landed = _landed(chosen)
    print_diagnostics(landed.diagnostics)
    if as_json:
        print_json(landed.to_json())
        return
    records = count(landed.landed, "record")
    line = f"{records} of {landed.topic} landed in {landed.table}, {landed.quarantined:,} in quarantine"
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
    """Bring the copies of streams that only Spark reads (tables of catalogues, databases, ORC, Avro) up to date.
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
