"""``heddle release``."""

from __future__ import annotations

from typing import Annotated

import typer

from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, EngineOption, Query, WarehouseOption
from heddle.cli.output import telling_errors
from heddle.cli.root import app
from heddle.cli.run import show_run
from heddle.cli.sessions import publish_interval
from optimizer.errors.diagnostics import HeddleError


@app.command(
    epilog="Example: heddle release daily_rides --warehouse house --interval 2026-01-06/2026-01-07 "
    "--reason 'a holiday: few rides are right'"
)
def release(
    query: Query,
    warehouse: WarehouseOption,
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded with the publication.", show_default=False)],
    interval: Annotated[
        str | None, typer.Option("--interval", help="The blocked interval, if there are several.", metavar="FROM/TO")
    ] = None,
    revision: Annotated[
        int | None, typer.Option("--revision", help="Only if this revision is the blocked one.")
    ] = None,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Publish the answers of a query that its expectations have blocked, of one interval and revision. They are
    computed again from the same events. If anything has changed since, the command refuses."""
    from spark_jobs.pipeline.run.release import release_request

    with telling_errors():
        opened = existing_warehouse(warehouse)
        blocked, request = release_request(opened, query, reason, _span(interval), revision)
        span = blocked.begin, blocked.end
        record = publish_interval(opened, blocked.plan_version, *span, False, engine=engine, release=request)
    raise typer.Exit(show_run(record, as_json))


def _span(interval: str | None) -> tuple[int, int] | None:
    """The interval that is named, in microseconds. Raises HDL-568 for what is none, HDL-114 for what is no instant."""
    from spark_jobs.streams.sources.decoding import parse_instant

    if interval is None:
        return None
    first, slash, last = interval.partition("/")
    if not slash:
        raise HeddleError("HDL-568", f"{interval!r} is no interval", "--interval 2026-01-06/2026-01-07")
    return parse_instant(first), parse_instant(last)
