"""The job of a session of the DAG ``aggregate_windows``: every refresh as it falls due, until an instant.

spark-submit spark_jobs/jobs/live_session.py --warehouse DIR --until T --name NAME
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":  # spark-submit puts this file's folder first; the project root is its parent
    sys.path[0] = str(next(folder for folder in Path(__file__).resolve().parents if (folder / "heddle").is_dir()))

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import format_instant
from spark_jobs.audit.checks import suite
from spark_jobs.engine.light_imports import arrow_alone, numba_alone
from spark_jobs.engine.submitted import engine_of_job, log, run_job

if TYPE_CHECKING:
    from spark_jobs.pipeline.run.live import LiveSession
    from spark_jobs.store.warehouse.publish_log import RunRecord

STOPPED = 75
"""Exit code of a session that was stopped before its time: its retry continues (EX_TEMPFAIL of sysexits.h)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer each refresh as it falls due, as the arguments define it. The exit code: 1 if the last refresh could not
    be answered, :data:`STOPPED`.
    """
    parser = argparse.ArgumentParser(description="answer each refresh as it falls due")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--until", required=True)
    parser.add_argument("--name", required=True, help="how the names of its runs begin")
    options = parser.parse_args(arguments)
    suite.begin(None)
    arrow_alone()
    numba_alone()
    from spark_jobs.operations.maintenance import merge_logs
    from spark_jobs.pipeline.run.live import LiveSession, wait_for
    from spark_jobs.streams.sources.decoding import parse_instant

    engine = engine_of_job(quick=False)
    until = parse_instant(options.until)
    try:
        warehouse = wait_for(options.warehouse, until, log)
        if warehouse is None:
            return 0
        parent = os.getppid()
        session = LiveSession(
            warehouse,
            engine,
            until,
            report=log,
            name=options.name,
            overloaded=_overloaded,
            meanwhile=partial(merge_logs, warehouse, log),
            # whoever takes over from a task that is gone starts a session of its own
            abandoned=lambda: os.getppid() != parent,
        )
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def end(number: int, _: object) -> None:
            session.stop()
            # told again, it ends at once
            for each, handler in before.items():
                signal.signal(each, handler)

        for number in before:
            signal.signal(number, end)
        session.make_ready()
        return _answer(session)
    finally:
        suite.end()
        engine.stop()


def _answer(session: LiveSession) -> int:
    from spark_jobs.operations.notify import send_alerts
    from spark_jobs.store.settings import settings

    sends = "notify" in settings().texts
    failed = False
    for outcome in session.refreshes():
        for warning in send_alerts(session.warehouse, session.clock()).problems if sends else ():
            print(warning, file=sys.stderr, flush=True)
        failed = isinstance(outcome, HeddleError)
        if isinstance(outcome, HeddleError):
            print(outcome, file=sys.stderr, flush=True)
            continue
        print(json.dumps(outcome.to_json()), flush=True)
        for problem in outcome.diagnostics:
            print(Diagnostic(**problem), file=sys.stderr, flush=True)
    if session.was_stopped:
        log("told to end before its time")
        return STOPPED
    return int(failed)


def _overloaded(record: RunRecord, at: int) -> None:
    message = f"the refresh of {format_instant(record.end)} was not done when the next was due, at {format_instant(at)}"
    print(f"heddle: overloaded: {message}: the next stands for all that are missed", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run_job(main))
