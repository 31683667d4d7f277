"""Shell completion of names: registered queries and declared streams.

Nothing is planned and no answer is read. An error completes nothing and prints nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import typer

from heddle.cli.root import prepare


def complete_queries(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The registered queries that begin so, each with its owner and stream."""
    # the shell has asked in the middle of a line that somebody types
    with suppress(BaseException):
        prepare("complete")
        from spark_jobs.store.settings import said
        from spark_jobs.store.warehouse.registry import live_names
        from spark_jobs.store.warehouse.warehouse import Warehouse

        folder = context.params.get("warehouse") or said("warehouse")
        warehouse = Warehouse.existing(folder) if folder else None
        if warehouse is not None:
            return [(name, owner) for name, owner in live_names(warehouse).items() if name.startswith(incomplete)]
    return []


def complete_streams(context: typer.Context, incomplete: str) -> list[str]:
    """The declared streams that begin so, as ``--rate`` takes them."""
    with suppress(BaseException):
        from optimizer.workload.streams import load_streams
        from spark_jobs.store.settings import said

        path = context.params.get("streams") or said("streams")
        names = load_streams(Path(path))[0] if path else {}
        return [f"{name}=" for name in names if name.startswith(incomplete)]
    return []
