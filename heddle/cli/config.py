"""``heddle config``: the settings in force here and now; ``heddle schema``: the schemas of a project's files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from heddle.cli import terminal
from heddle.cli.options import AsJson
from heddle.cli.output import print_json, telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import printable

if TYPE_CHECKING:
    from spark_jobs.store.settings import Described


@app.command(epilog="Example: heddle config --json")
def config(as_json: AsJson = False) -> None:
    """Show every setting and where its value comes from. That is an environment variable, a line of heddle.toml, or
    the default. Options of a command come before all of them. Secrets are not shown."""
    from spark_jobs.store.settings import describe

    with telling_errors():
        rows, path = describe()
    if as_json:
        print_json({"project_file": str(path) if path else None, "settings": [asdict(row) for row in rows]})
    else:
        show_settings(rows, path)


class Schema(StrEnum):
    """Files that have a schema."""

    streams = "streams"
    project = "heddle.toml"


@app.command(epilog="Examples: heddle schema streams   |   heddle schema heddle.toml > heddle.schema.json")
def schema(
    file: Annotated[Schema, typer.Argument(help="Of which file: streams.yaml or heddle.toml.", show_default=False)],
) -> None:
    """Print the JSON schema of streams.yaml or of heddle.toml. Editors complete and check the files with it."""
    sys.stdout.write(schema_text(file))


def schema_text(file: Schema) -> str:
    """The JSON schema of a file, as it is shipped."""
    from optimizer.workload.streams_schema import streams_schema
    from spark_jobs.store.settings import schema as project_schema

    json_schema = streams_schema() if file is Schema.streams else project_schema()
    return json.dumps(json_schema, indent=2) + "\n"


def show_settings(rows: Sequence[Described], path: Path | None) -> None:
    """The settings as a table, and the project file."""
    table = Table("setting", "value", "from", title="settings", title_justify="left")
    for row in rows:
        source = f"{row.source}:{row.line}" if row.line else row.source
        table.add_row(row.name, Text(printable(row.value), overflow="fold"), source)
    terminal.console.print(table)
    lines = [f"project file: {path}" if path else "there is no heddle.toml here, above, or in HEDDLE_HOME"]
    if any(row.source == "default" and row.name in ("warehouse", "streams", "workload") for row in rows):
        lines.append("the defaults of warehouse, streams and workload are for DAGs and pages alone: commands have none")
    terminal.console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
