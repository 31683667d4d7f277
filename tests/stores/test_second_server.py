"""All tests of stores, once more against a server of other hands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.settings import PROJECT
from tests.stores.versitygw import BINARY

WHICH = "HEDDLE_TEST_STORE"


@pytest.mark.slow
@pytest.mark.skipif(bool(os.environ.get(WHICH)), reason="it is what runs")
def test_another_implementation_keeps_the_same_promises(tmp_path: Path) -> None:
    if not BINARY.exists():
        pytest.skip("versitygw is not built: `make versitygw` does it, with Go")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "tests/stores"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'inner'}"],
        cwd=PROJECT,
        env=os.environ | {WHICH: "versitygw"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
