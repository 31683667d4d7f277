"""Spark sessions of commands, and what is seen of them while they go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.text import Text

from heddle.cli import terminal
from heddle.cli.output import interval_text
from optimizer.errors.diagnostics import printable

if TYPE_CHECKING:
    from spark_jobs.warehouse.warehouse import Warehouse


@contextmanager
def spark_session(name: str, **options: Any) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """A session for one command, and what shows a line of what goes on."""
    from spark_jobs.session.session import start_session

    with terminal.errors.status("starting Spark") as status:
        spark = start_session(name, **options)
        try:
            yield spark, lambda line: status.update(Text(printable(line)))
        finally:
            spark.stop()


def publish_intervals(
    house: Warehouse, version: int, spans: Sequence[tuple[int, int]], kind: str, checks: str | None = None
) -> list[dict[str, Any]]:
    """Several intervals in one session, with a progress bar; what was published stays if one fails."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from spark_jobs.run.interval import run as run_interval
    from spark_jobs.session.session import start_session

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    records = []
    with Progress(*columns, console=terminal.errors) as bar:
        line = bar.add_task("starting Spark", total=len(spans))
        spark = start_session(f"heddle {kind}")
        try:
            for begin, end in spans:
                bar.update(line, description=interval_text(begin, end))
                run_id = f"{kind}/{interval_text(begin, end)}"
                records.append(run_interval(spark, house, version, begin, end, run_id, checks=checks).to_json())
                bar.advance(line)
        finally:
            spark.stop()
    return records


def publish_interval(
    house: Warehouse,
    version: int,
    begin: int,
    end: int,
    recompute: bool,
    live_at: int | None = None,
    late: bool = False,
    checks: str | None = None,
) -> dict[str, Any]:
    """One interval in a session of its own; ``live_at``: the clock of a live run."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.run.interval import run as run_interval

    run_id = f"cli/{format_instant(begin)}/{format_instant(end)}"
    with spark_session("heddle run") as (spark, report):
        record = run_interval(
            spark,
            house,
            version,
            begin,
            end,
            run_id,
            recompute=recompute,
            as_of=live_at,
            live=live_at is not None,
            late=late,
            checks=checks,
            report=report,
        )
    return record.to_json()
