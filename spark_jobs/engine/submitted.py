"""Shared parts of the jobs that are submitted to Spark: their engine, its log, and how they end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, NoReturn

from optimizer.errors.crashes import Terminated, exit_code_of

if TYPE_CHECKING:
    from spark_jobs.engine.choice import Engine
    from spark_jobs.engine.workers import Job


def _terminated(number: int, frame: object) -> NoReturn:
    raise Terminated


@contextmanager
def terminable() -> Iterator[None]:
    """Within, SIGTERM is an interruption as Ctrl-C is: what was begun is cancelled, and the record has an end."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_job(job: Callable[[], int]) -> int:
    """Run a job that was submitted to Spark and return its exit code.

    The code is 143 if SIGTERM ends it, or the end of the process that started it.
    """
    with terminable():
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            Thread(target=_end_with_parent, args=(sys.stdin.fileno(),), daemon=True).start()
        return exit_code_of(job)


def _end_with_parent(stdin: int) -> None:
    """Wait until spark-submit, which has the other end of this process's standard input, is gone, and end this
    process.

    Otherwise further computations would fail, but finished ones would still be published.
    """
    while os.read(stdin, 4096):
        pass
    # to the main thread, which may wait for something: a signal to another one would not wake it
    signal.pthread_kill(main_thread().ident or 0, signal.SIGTERM)


def engine_of_job(name: str = "heddle", **options: Any) -> Engine:
    """The engine of a job. It logs the address of Spark's pages, and a line for each stage."""
    from spark_jobs.engine.choice import Engine

    return Engine(name, lambda: log("starting Spark"), _started, default="spark", finished=_finished, **options)


def log(line: str) -> None:
    """A line of the log of a job. It is lost if nobody reads any more: the job still has to end well."""
    with suppress(OSError):
        print(f"heddle: {line}", flush=True)


def _started(spark: Any) -> None:
    from spark_jobs.engine.choice import spark_workers

    workers = spark_workers(spark, "")
    if workers.application:
        log(f"Spark application {workers.application}{f': {workers.ui}' if workers.ui else ''}")


def _finished(job: Job) -> None:
    log(job.line)
