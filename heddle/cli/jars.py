"""``heddle jars``."""

from __future__ import annotations

from typing import Annotated

import typer

from heddle.cli.options import AsJson
from heddle.cli.output import print_json, telling_errors
from heddle.cli.root import app


@app.command(epilog="Examples: heddle jars   |   heddle jars --fetch   |   heddle jars --fetch --kafka")
def jars(
    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch the missing ones from Maven, about 90 MB.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Those of `heddle land`, another 125 MB.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print or fetch the jars that Spark needs. It prints their folder (HEDDLE_JARS). Exit code 1 if they are not
    there."""
    from spark_jobs.operations.jars import spark_jars

    with telling_errors():
        folder = str(spark_jars(fetch, kafka))
    if as_json:
        print_json({"folder": folder})
    else:
        typer.echo(folder)
