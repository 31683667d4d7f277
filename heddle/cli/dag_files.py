"""``heddle airflow export``: DAG files for an Airflow that exists."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from heddle.airflow.names import check_prefix
from heddle.cli import terminal
from heddle.cli.options import AsJson
from heddle.cli.output import print_diagnostics, print_json, telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic, printable


class Action(StrEnum):
    """Actions of the command."""

    export = "export"


@app.command(
    epilog="Examples: heddle airflow export ~/airflow/dags/heddle   "
    "|   heddle airflow export dags/team_a --project /srv/team_a --prefix team_a_ --owner team_a --pool team_a"
)
def airflow(
    action: Annotated[Action, typer.Argument(help="export: write the DAG files.", show_default=False)],
    folder: Annotated[
        Path, typer.Argument(help="A folder of its own in Airflow's folder of DAGs.", metavar="DIR", show_default=False)
    ],
    project: Annotated[
        Path | None,
        typer.Option(
            "--project",
            help="The folder of heddle.toml, on every machine of Airflow. Default: the project here; if there is none, "
            "what HEDDLE_PROJECT or HEDDLE_HOME says in Airflow's environment.",
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Begins the names of DAGs and assets: a set of its own for this project.")
    ] = "",
    owner: Annotated[str, typer.Option("--owner", help="Owner of the tasks. Default: heddle.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="Pool of the tasks. Default: Airflow's.")] = "",
    connection: Annotated[str, typer.Option("--connection", help="Connection for Spark. Default: spark_default.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over files that somebody edited.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write Heddle's DAG files into a folder of DAGs. After an upgrade it renews them. A file that somebody edited
    stays (HDL-585)."""
    from heddle.airflow.exporting import dag_files, write_files

    with telling_errors():
        check_prefix(prefix)
        named = _project(project)
        options = {"project": named, "prefix": prefix, "owner": owner, "pool": pool, "connection": connection}
        files = dag_files(folder, {key: value for key, value in options.items() if value})
        written = write_files(files, force)
    if as_json:
        paths = {"written": [str(file.path) for file in written], "files": [str(file.path) for file in files]}
        print_json(paths | {"project": named or None})
    else:
        lines = [f"{'wrote' if file in written else 'unchanged'} {file.path}" for file in files]
        _print_lines([*lines, f"project: {named or 'as the environment of Airflow says'}"])


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        terminal.console.print(Text(printable(line)), soft_wrap=True)


def _project(folder: Path | None) -> str:
    """The absolute path of the project, "" if there is none. Warns of one that is not on this machine."""
    from spark_jobs.store.project_file import NAME
    from spark_jobs.store.settings import describe

    if folder is None:
        _, path = describe()
        return "" if path is None else str(path.parent.absolute())
    if not (folder / NAME).is_file():
        message = f"{folder.absolute()} has no {NAME} on this machine"
        hint = "it has to be there on every machine of Airflow"
        print_diagnostics([Diagnostic("HDL-583", message, hint, severity="warning")])
    return str(folder.absolute())
