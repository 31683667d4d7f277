"""Spark sessions of commands, and what is seen of them while they go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from heddle.cli.alerts import alerting
from heddle.cli.output import interval_text
from heddle.cli.progress import Stages, stages, watched

if TYPE_CHECKING:
    from spark_jobs.engine.choice import Engine
    from spark_jobs.pipeline.run.live import LiveSession
    from spark_jobs.pipeline.run.values import ReleaseRequest
    from spark_jobs.store.warehouse.warehouse import Warehouse


def check_engine(requested: str | None) -> None:
    """Check that what an engine needs is there, before a command writes anything: as
    :meth:`spark_jobs.engine.choice.Engine.check`."""
    from spark_jobs.engine.choice import Engine

    Engine("heddle run", requested=requested).check()


@contextmanager
def engine_of_command(name: str, **options: Any) -> Iterator[tuple[Engine, Stages]]:
    """The engine of one command, and the stages that it reports."""
    from spark_jobs.engine.choice import Engine
    from spark_jobs.engine.submitted import terminable

    with terminable(), stages("starting") as report, ExitStack() as watching:
        engine = Engine(
            name,
            lambda: report("starting Spark"),
            lambda spark: watching.enter_context(watched(report, engine.tasks_done)),
            **options,
        )
        try:
            yield engine, report
        finally:
            if engine.is_started:
                watching.close()
                report("stopping Spark")
            engine.stop()


@contextmanager
def spark_session(name: str, **options: Any) -> Iterator[tuple[Any, Stages]]:
    """Yield a session for one command, and the receiver of its stages."""
    with engine_of_command(name, **options) as (engine, report):
        yield engine.session(), report


@contextmanager
def live_session(
    warehouse: Warehouse, begin: int | None, until: int | None, checks: str | None, engine: str | None
) -> Iterator[LiveSession]:
    """A session that answers each refresh as it falls due. Ctrl-C and SIGTERM end it when the refresh that is being
    answered is; a second one at once."""
    from spark_jobs.audit.checks import suite
    from spark_jobs.engine.light_imports import numba_alone

    # what is begun early is there early
    suite.begin(checks)
    numba_alone()
    from spark_jobs.operations.lineage_delivery import reported_run
    from spark_jobs.operations.maintenance import merge_logs
    from spark_jobs.pipeline.run.live import LiveSession

    with engine_of_command("heddle tick", requested=engine, quick=False) as (computing, report):
        session = LiveSession(
            warehouse,
            computing,
            until,
            begin,
            checks,
            report,
            meanwhile=lambda: merge_logs(warehouse, report),
            run=reported_run,
        )
        session.make_ready()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def end(number: int, _: object) -> None:
            report("ending after this refresh")
            session.stop()
            for each, handler in before.items():
                signal.signal(each, handler)

        for number in before:
            signal.signal(number, end)
        try:
            yield session
        finally:
            suite.end()
            for each, handler in before.items():
                signal.signal(each, handler)


def publish_intervals(
    warehouse: Warehouse,
    version: int,
    spans: Sequence[tuple[int, int]],
    kind: str,
    checks: str | None = None,
    engine: str | None = None,
) -> list[dict[str, Any]]:
    """Several intervals in one session; what was published stays if one fails."""
    from spark_jobs.operations.lineage_delivery import reported_run

    records: list[dict[str, Any]] = []
    if not spans:
        return records
    with alerting(warehouse), engine_of_command(f"heddle {kind}", requested=engine) as (computing, report):
        for number, (begin, end) in enumerate(spans, 1):
            span = interval_text(begin, end)
            report.of(number, len(spans), span)
            run_id = f"{kind}/{span}"
            record = reported_run(computing, warehouse, version, begin, end, run_id, checks=checks, report=report)
            records.append(record.to_json())
        report.of(1, 1, "")
    return records


def publish_interval(
    warehouse: Warehouse,
    version: int,
    begin: int,
    end: int,
    recompute: bool,
    live_at: int | None = None,
    late: bool = False,
    checks: str | None = None,
    engine: str | None = None,
    allow_empty: bool = True,
    release: ReleaseRequest | None = None,
) -> dict[str, Any]:
    """Publish one interval in a separate session. ``live_at``: the clock of a live run.

    Raises what :func:`spark_jobs.pipeline.run.interval.run` raises.
    """
    from optimizer.workload.instants import format_instant
    from spark_jobs.operations.lineage_delivery import reported_run

    run_id = f"{'cli' if release is None else 'release'}/{format_instant(begin)}/{format_instant(end)}"
    with alerting(warehouse, live_at), engine_of_command("heddle run", requested=engine) as (computing, report):
        record = reported_run(
            computing,
            warehouse,
            version,
            begin,
            end,
            run_id,
            recompute=recompute,
            as_of=live_at,
            live=live_at is not None,
            late=late,
            checks=checks,
            allow_empty=allow_empty,
            release=release,
            report=report,
        )
    return record.to_json()
