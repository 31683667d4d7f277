"""Workers and executors of Spark that are killed in the middle of a task.

python -m tests.chaos.executors MASTER FOLDER     # a run in which executors are killed; prints what came of it
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from spark_jobs.audit.checks import suite
from spark_jobs.pipeline.run import partials_stage, stage_tasks
from spark_jobs.store.warehouse.data_files import BUCKETS
from tests.spark_jobs.laboratory import Laboratory, steady


def this_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def its_executor() -> None:
    """The JVM that this worker belongs to, and with it the worker."""
    for process in psutil.Process().parents():
        if "java" in process.name():
            process.kill()
            break
    this_worker()


def dying(task: Callable[..., Iterator[Any]], marker: str, kill: Callable[[], None]) -> Callable[..., Iterator[Any]]:
    """A task that has written its files and dies before it says so; the next attempt, wherever, goes on."""

    def once(numbers: Iterable[int], *count: Any) -> Iterator[Any]:
        outcomes = list(task(numbers, *count))
        if not outcomes:
            return iter(outcomes)
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return iter(outcomes)
        kill()
        return iter([])

    return once


STAGES: dict[str, tuple[Any, str]] = {
    "lift_task": (partials_stage, "lift_task"),
    "finals_task": (stage_tasks, "done"),
}
"""Where the tasks of both stages are looked up."""


@contextmanager
def killed_in(stage: str, marker: Path, kill: Callable[[], None]) -> Iterator[None]:
    """Once, in the first task of ``lift_task`` or ``finals_task`` that ends."""
    owner, name = STAGES[stage]
    original = getattr(owner, name)
    with pytest.MonkeyPatch.context() as patch:
        if stage == "finals_task":
            patch.setattr(owner, name, _outcomes_of(original, marker, kill))
        else:
            patch.setattr(owner, name, lambda *args, **kwargs: dying(original(*args, **kwargs), str(marker), kill))
        yield


def _outcomes_of(held: Callable[..., Any], marker: Path, kill: Callable[[], None]) -> Callable[..., Any]:
    def outcomes(run: Any, task: Any, pieces: int, *args: Any) -> Any:
        return held(run, dying(task, str(marker), kill) if pieces == BUCKETS else task, pieces, *args)

    return outcomes


def unnamed(laboratory: Laboratory, table: str) -> int:
    """Data files that no commit names."""
    root = laboratory.warehouse.root / table
    committed_paths = {file["path"] for file in laboratory.warehouse.files(table, "", "9")}
    return len({str(path.relative_to(root)) for path in root.rglob("day=*/*.parquet")} - committed_paths)


def main() -> None:
    from spark_jobs.engine.session import start_session

    suite.expectations = lambda *args: []  # type: ignore[assignment]
    folder = Path(sys.argv[2])
    laboratory = Laboratory(start_session("chaos", sys.argv[1]), folder)
    laboratory.write(steady(180))
    laboratory.write([], "quotes")
    version = laboratory.plan()
    report = {}
    for number, stage in enumerate(("lift_task", "finals_task")):
        begin = 60 * number
        with killed_in(stage, folder / stage, its_executor):
            record = laboratory.run(version, begin, begin + 60, stage)
        report[stage] = [record.status, (folder / stage).exists()]
    report["wrong"] = laboratory.wrong(version, 0, 120)
    report["unnamed"] = [unnamed(laboratory, table) for table in ("partials", "results")]
    print("RESULT" + json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
