"""``heddle config``: the settings as they are here and now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from heddle.cli import terminal
from heddle.cli.options import AsJson
from heddle.cli.output import print_json, telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import printable

if TYPE_CHECKING:
    from spark_jobs.settings import Described


@app.command(epilog="Example: heddle config --json")
def config(as_json: AsJson = False) -> None:
    """Every setting, and where its value comes from: an environment variable, a line of heddle.toml, or the default.
    Options of a command go before all of them. Secrets are not shown."""
    from spark_jobs.settings import describe

    with telling_errors():
        rows, path = describe()
    if as_json:
        print_json({"project_file": str(path) if path else None, "settings": [asdict(row) for row in rows]})
    else:
        show_settings(rows, path)


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
