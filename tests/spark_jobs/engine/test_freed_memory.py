"""Memory that a run frees is taken again without the system, and given back when the run has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from spark_jobs.engine.freed_memory import KEEPING

PAGES = 64 << 8
"""Of 64 MB."""

SCRIPT = """
import json, resource
from spark_jobs.engine.freed_memory import give_back, keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    len(b"x" * (64 << 20))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = {kept}
found = [faults(), faults()]
give_back()
print(json.dumps([kept, *found, faults()]))
"""


def told(kept: str, environment: Mapping[str, str] | None = None) -> list[int]:
    """Whether memory is kept, then the page faults of taking 64 MB: once, again, and after it was given back."""
    known = {name: value for name, value in os.environ.items() if name not in KEEPING}
    command = [sys.executable, "-c", SCRIPT.format(kept=kept)]
    ended = subprocess.run(command, env=known | dict(environment or {}), capture_output=True, text=True, check=True)
    measurements: list[int] = json.loads(ended.stdout)
    return measurements


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_freed_memory_is_taken_again_until_it_is_given_back() -> None:
    is_kept, first, again, afterwards = told("keep_freed_memory()")
    assert is_kept
    assert first > PAGES // 2 and afterwards > PAGES // 2
    assert again < PAGES // 64


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_processes_are_told_by_their_environment() -> None:
    _, first, again, afterwards = told("None", KEEPING)
    assert first > PAGES // 2 and max(again, afterwards) < PAGES // 64


def test_what_the_environment_says_stands() -> None:
    assert told("keep_freed_memory()", {"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"})[0] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are Linux's")
def test_arrays_of_commands_are_of_small_pages() -> None:
    script = "from spark_jobs.engine.light_imports import arrow_alone; arrow_alone(); "
    script += "from numpy._core.multiarray import _get_madvise_hugepage as huge; print(huge())"
    known = {name: value for name, value in os.environ.items() if name not in KEEPING}

    def told_with(**environment: str) -> str:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=known | environment, capture_output=True, text=True, check=True).stdout

    assert told_with() == "False\n"
    assert told_with(NUMPY_MADVISE_HUGEPAGE="1") == "True\n"
