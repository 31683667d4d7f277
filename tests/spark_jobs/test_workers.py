"""Spark's Python workers: forked from a process that has imported what tasks need, and no slower for it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from types import ModuleType

import pytest

from spark_jobs.run import workers

NEEDED = [
    *("numba", "pyarrow.parquet", "pyspark.worker"),
    *("spark_jobs.finals.stage", "spark_jobs.partials.lifting", "spark_jobs.run.partials_task"),
]


def test_workers_are_forked_with_what_their_tasks_import() -> None:
    """Each would import it anew otherwise, a second and more: so it was once, and nobody saw it."""
    program = "import json, sys, spark_jobs.run.workers; print(json.dumps(sorted(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(NEEDED) <= set(json.loads(told.stdout))


def test_what_a_task_imports_is_set_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(workers, "_known", len(sys.modules))
    monkeypatch.setattr(workers, "_spark_main", lambda infile, outfile: done.append(infile))
    workers.main("first", None)
    assert done == ["first"]
    monkeypatch.setitem(sys.modules, "imported_by_a_task", ModuleType("imported_by_a_task"))
    workers.main("second", None)
    workers.main("third", None)
    assert done == ["first", "second", "collect", "freeze", "third"]
