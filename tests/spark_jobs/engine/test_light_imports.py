"""What is set aside is not looked through again, and a process ends without a word."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNTED = (
    "import gc; from spark_jobs.engine.light_imports import set_aside; set_aside(); print(gc.get_freeze_count() > 0)"
)


@pytest.mark.parametrize(
    ("before", "is_frozen"),
    [("pass", "True"), ("import duckdb; duckdb.sql('SELECT 1').fetchall()", "False")],
)
def test_a_process_ends_without_a_word(before: str, is_frozen: str) -> None:
    """DuckDB tells of all its types once nobody collects them any more."""
    program = f"{before}; {COUNTED}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (is_frozen, "")


def test_what_checks_load_is_set_aside_once() -> None:
    """Whatever a run leaves is garbage again."""
    program = (
        "import gc; from spark_jobs.audit.checks.suite import great_expectations; great_expectations(); "
        "first = gc.get_freeze_count(); kept = [[] for _ in range(1000)]; great_expectations(); "
        "import duckdb; duckdb.sql('SELECT 1').fetchall(); print(first > 100_000, gc.get_freeze_count() <= first)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")
