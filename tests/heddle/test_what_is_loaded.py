"""What commands load: one that computes nothing waits for nothing that computes."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"

HEAVY = {"pandas", "numba", "scipy", "polars", "duckdb", "pyspark", "matplotlib", "psycopg2", "great_expectations"}
"""Libraries that take a tenth of a second or more to import."""

COMMANDS = {
    "validate queries.sql --streams streams.yaml": set(),
    "status --warehouse warehouse": {"sqlglot"},
    "queries --warehouse warehouse": {"sqlglot"},
    "read by_symbol --warehouse warehouse": {"sqlglot"},
    "diff --warehouse warehouse": {"sqlglot"},
    "explain by_symbol --warehouse warehouse": {"sqlglot"},
    "config": {"sqlglot", "pyarrow", "numpy", "deltalake", "tomllib"},
    "--help": {"sqlglot", "pyarrow", "numpy", "deltalake"},
}
"""Commands, and what else each does without."""

CODE = """
import sys
from heddle.cli.app import app
try:
    app()
finally:
    print(sorted(set(sys.modules) & {names}), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("loaded")
    with tarfile.open(FIXTURES / "warehouse_0_1.tar.xz") as archive:
        archive.extractall(found, filter="data")
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_loaded_that_is_not_needed(command: str, place: Path) -> None:
    code = CODE.format(names=HEAVY | COMMANDS[command])
    given, here = [sys.executable, "-c", code, *command.split()], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(given, cwd=place, env=here, capture_output=True, text=True)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
