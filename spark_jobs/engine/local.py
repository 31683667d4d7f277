"""Runs tasks on this machine, without a JVM: in this process, or in several that are forked from one."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

from optimizer.errors.installing import PROJECT
from spark_jobs.engine.freed_memory import KEEPING, keep_freed_memory
from spark_jobs.engine.workers import Job, StageOutcome, Task, counting, outcome_of, shares


class LocalWorkers:
    """Processes of this machine.

    ``processes``: how many; with one, a stage is one task, done in this process. ``point``: called before and
    after the tasks of a stage, with what that moment is. Several processes start with the first stage.
    """

    def __init__(self, processes: int = 1, point: Callable[[str], None] = lambda name: None) -> None:
        self.name = "local" if processes == 1 else f"local, {processes} processes"
        self.application = self.ui = ""
        self.jobs: list[Job] = []
        self.is_warm = True
        self.processes, self._point = processes, point
        self._pool: _Processes | None = None

    @property
    def width(self) -> int:
        """The number of processes."""
        return self.processes

    def run(self, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
        """Run a task in this process or in processes of this machine:
        :meth:`spark_jobs.engine.workers.Workers.run`.
        """
        if pieces == 0:
            return StageOutcome([])
        self._point("before tasks")
        counted, parts = counting(task), shares(pieces, most)
        if self.processes == 1 or len(parts) == 1:
            keep_freed_memory()
            # as one task: what it writes is in fewer files, and rows of one cell are one
            yielded = list(counted(range(pieces)))
        else:
            self._pool = self._pool or _Processes(self.processes)
            try:
                yielded = self._pool.done(counted, parts)
            except BaseException:
                # the others go on with tasks that nobody waits for
                self.close()
                raise
        self._point("after tasks")
        return outcome_of(yielded)

    def tasks_done(self) -> tuple[int, int]:
        """Return zeros: the tasks of local processes are not known."""
        return 0, 0

    def session(self) -> None:
        """Return None: there is no session of Spark."""

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class _Processes:
    """Workers forked from a process that has imported what tasks need
    (:mod:`spark_jobs.pipeline.run.local_workers`)."""

    def __init__(self, count: int) -> None:
        self._idle: SimpleQueue[Any] = SimpleQueue()
        with ExitStack() as stack:
            pairs = [socket.socketpair() for _ in range(count)]
            for _, other in pairs:
                stack.callback(other.close)
            descriptors = [other.fileno() for _, other in pairs]
            paths = [str(PROJECT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "spark_jobs.pipeline.run.local_workers", *map(str, descriptors)],
                stdin=subprocess.PIPE,
                pass_fds=descriptors,
                env=KEEPING | os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))},
            )
        self._sockets = [own for own, _ in pairs]
        for own in self._sockets:
            self._idle.put(own.makefile("rwb"))

    def done(self, task: Callable[[Iterable[int]], Iterator[Any]], parts: list[range]) -> list[Any]:
        """Run a task for each share of the numbers, and return its outcomes in order. Raises what it raises."""
        from pyspark import cloudpickle

        work = cloudpickle.dumps(task)
        with ThreadPoolExecutor(len(self._sockets)) as threads:
            futures = [threads.submit(self._one, work, numbers) for numbers in parts]
            try:
                return [outcome for future in futures for outcome in future.result()]
            except BaseException:
                self.close()
                threads.shutdown(cancel_futures=True)
                raise

    def _one(self, work: bytes, numbers: range) -> list[Any]:
        worker = self._idle.get()
        try:
            pickle.dump((work, numbers), worker)
            worker.flush()
            yielded, error = pickle.load(worker)
        except (OSError, EOFError) as error:
            raise RuntimeError("a worker process of this machine ended: killed, or out of memory") from error
        finally:
            self._idle.put(worker)
        if error is not None:
            raise error
        return list(yielded)

    def close(self) -> None:
        """End the processes, also in the middle of a task."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        for own in self._sockets:
            own.close()
