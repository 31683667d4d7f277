"""``heddle features``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, EngineOption, WarehouseOption
from heddle.cli.output import print_diagnostics, print_json, telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.engine.choice import Engine
    from spark_jobs.operations.feature_files import FeatureFile


class Accuracy(StrEnum):
    """The end of the windows of features."""

    refreshed = "refreshed"
    exact = "exact"


class Known(StrEnum):
    """The events that features know."""

    now = "now"
    then = "then"


@app.command(
    epilog="Examples: heddle features labels.parquet --at seen_at --queries by_user,by_shop --output train.parquet   "
    "|   heddle features labels.csv --at ts --queries by_user --key user_id=user --accuracy exact --output train.csv"
)
def features(
    labels: Annotated[Path, typer.Argument(help="The labels: a file of Parquet or CSV.", show_default=False)],
    warehouse: WarehouseOption,
    at: Annotated[str, typer.Option("--at", help="The column of the labels' moments (UTC without a zone).")],
    queries: Annotated[
        list[str], typer.Option("--queries", help="Names of queries, separated by commas; may be given again.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: .parquet or .csv.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", help="A column of the labels that is a group column of another name.", metavar="COLUMN=GROUP"
        ),
    ] = None,
    accuracy: Annotated[
        Accuracy,
        typer.Option(
            "--accuracy", help="The newest answer that was complete at the moment, or windows that end at it."
        ),
    ] = Accuracy.refreshed,
    known: Annotated[
        Known, typer.Option("--known", help="Count all events that are there now, or only those that had arrived then.")
    ] = Known.now,
    delay: Annotated[
        str | None, typer.Option("--delay", help="Features end so long before the moment, e.g. '5 minutes'.")
    ] = None,
    upto: Annotated[bool, typer.Option("--upto", help="Also write up to which instant events count.")] = False,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Add the answers of queries as of the moment of each label: a training set that knows nothing of the future."""
    from spark_jobs.operations.feature_files import features_of_file
    from spark_jobs.operations.feature_labels import feature_request

    keys, names = dict(map(_pair, key or ())), [name for text in queries for name in text.split(",") if name]
    with telling_errors(), _engine(engine) as own:
        request = feature_request(names, at, keys, accuracy.value, known.value, delay, upto)
        written = features_of_file(existing_warehouse(warehouse), request, labels, output, own)
    print_diagnostics(written.findings)
    if as_json:
        facts = {"output": str(output), "labels": written.rows, "features": written.features}
        print_json(facts | {"recomputed": written.recomputed})
    else:
        _show(written, output)


@contextmanager
def _engine(name: str | None) -> Iterator[Engine]:
    """The engine of the command."""
    from spark_jobs.engine.choice import Engine

    engine = Engine("heddle features", requested=name)
    try:
        yield engine
    finally:
        engine.stop()


def _show(written: FeatureFile, output: Path) -> None:
    line = f"wrote {number_of(written.rows, 'label')} with {number_of(written.features, 'feature')} to {output}"
    checked = f"{number_of(written.recomputed, 'label')} recomputed"
    terminal.errors.print(f"{line}, {checked}", highlight=False, markup=False, soft_wrap=True)


def _pair(text: str) -> tuple[str, str]:
    """The columns of ``--key``."""
    column, sign, group = text.partition("=")
    if not (column and sign and group):
        raise typer.BadParameter(f"--key is {text!r}: write COLUMN=GROUP, e.g. user_id=user")
    return column, group
