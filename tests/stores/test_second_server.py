"""All tests of stores, once more against servers of other hands, and of Azure's protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.store.settings import PROJECT
from tests.stores import azurite, versitygw

WHICH = "HEDDLE_TEST_STORE"

SERVERS = {
    "versitygw": (versitygw.BINARY, "versitygw is not built: `make versitygw` does it, with Go"),
    "azurite": (azurite.SCRIPT, "Azurite is not there: `make azurite` fetches it, with npm"),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(bool(os.environ.get(WHICH)), reason="it is what runs")
@pytest.mark.parametrize("name", SERVERS)
def test_another_implementation_keeps_the_same_promises(name: str, tmp_path: Path) -> None:
    program, lacking = SERVERS[name]
    if not program.exists():
        pytest.skip(lacking)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "tests/stores"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'inner'}"],
        cwd=PROJECT,
        env=os.environ | {WHICH: name},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
