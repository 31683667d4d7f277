"""What commands load: one that computes nothing waits for nothing that computes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command_from_info
from typer.models import CommandInfo

from heddle.cli.app import app
from heddle.cli.options import Format
from heddle.cli.root import MODULES, _Plain

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"

HEAVY = {
    "pandas",
    "numba",
    "scipy",
    "polars",
    "duckdb",
    "pyspark",
    "matplotlib",
    "psycopg",
    "great_expectations",
    "pydantic",
}
"""Libraries that take a tenth of a second or more to import."""

COMMANDS = {
    "validate queries.sql --streams streams.yaml": set(),
    # names of queries are read from their files
    "status --warehouse warehouse": set(),
    "queries --warehouse warehouse": {"sqlglot"},
    "read by_symbol --warehouse warehouse": {"sqlglot"},
    "diff --warehouse warehouse": {"sqlglot"},
    "explain by_symbol --warehouse warehouse": {"sqlglot"},
    "config": {"sqlglot", "pyarrow", "numpy", "deltalake", "tomllib"},
    "read --help": {"sqlglot", "pyarrow", "numpy", "deltalake", "heddle.cli.run"},
    "--help": {"sqlglot", "pyarrow", "numpy", "deltalake"},
    "--version": {"sqlglot", "pyarrow", "numpy", "deltalake", "yaml", "heddle.cli.plan"},
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
    folder = tmp_path_factory.mktemp("loaded")
    with tarfile.open(FIXTURES / "warehouse_0_1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_loaded_that_is_not_needed(command: str, place: Path) -> None:
    code = CODE.format(names=HEAVY | COMMANDS[command])
    argv, environment = [sys.executable, "-c", code, *command.split()], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_lookup_loads_numba_without_the_rest(place: Path) -> None:
    code = CODE.format(names=HEAVY - {"numba"} | {"scipy.linalg"})
    argv = [sys.executable, "-c", code, "lookup", "by_symbol", "--warehouse", "warehouse", "--at", "2024-03-01T12:00"]
    done = subprocess.run(
        argv, cwd=place, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert set(ast.literal_eval(done.stderr.splitlines()[-1])) <= {"scipy"}, done.stderr


CHECKS = """
import sys
import pandas as pd
from spark_jobs.audit.checks.suite import FINDINGS, expectations
summary = pd.DataFrame([["q", 5, *([0] * len(FINDINGS)), ""]], columns=["query", "answers", *FINDINGS, "examples"])
assert all(check["success"] for check in expectations(summary, lambda result: result.to_json_dict()))
summary.loc[0, "repeated"] = 1
assert not all(check["success"] for check in expectations(summary, lambda result: result.to_json_dict()))
late = {"altair.vegalite", "scipy.stats._stats_py", "jsonschema.validators", "mistune.core"}
print(sorted(set(sys.modules) & {"pyspark", "sqlalchemy", *late}))
import altair
import jsonschema
import mistune
import scipy.stats
assert round(scipy.stats.norm.cdf(0), 9) == 0.5 and altair.Chart is not None
jsonschema.validate(1, {"type": "integer"})
assert "<em>" in mistune.html("*a*")
print("scipy.stats._stats_py" in sys.modules, sys.meta_path[0].__class__.__name__)
"""


def test_checks_load_what_they_are_about_and_leave_the_rest_usable() -> None:
    """Of what Great Expectations imports: neither Spark nor SQL; the rest with its first use."""
    done = subprocess.run([sys.executable, "-c", CHECKS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == "[]" and last.startswith("True ") and "Deferred" not in last


def test_every_command_is_declared_where_it_is_looked_for() -> None:
    for module in set(MODULES.values()):
        import_module(module)
    modules = {name: info.callback.__module__ for name, info in app.declared.items() if info.callback is not None}
    assert modules == MODULES


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (str, "a", "a"),
        (str | None, None, None),
        (Path, "a/b", Path("a/b")),
        (Path | None, "a", Path("a")),
        (list[Path], ("a", "b"), [Path("a"), Path("b")]),
        (list[str] | None, ("a",), ["a"]),
        (int, "12", 12),
        (float | None, "0.5", 0.5),
        (Format, "csv", Format.csv),
        (Format, Format.json, Format.json),
        (bool, "true", True),
    ],
)
def test_plain_parameters_become_what_typer_makes_of_them(kind: Any, value: Any, made: Any) -> None:
    def command(given: kind) -> None:  # type: ignore[valid-type]
        """Nothing."""

    command.__annotations__ = {"given": kind}
    param = get_command_from_info(
        CommandInfo(callback=command), pretty_exceptions_short=True, rich_markup_mode=None
    ).params[0]
    runtime_param = param.get_runtime_param()  # type: ignore[attr-defined]
    assert _Plain(param).coerce(value, param, None) == runtime_param.coerce(value, param=param, ctx=None) == made
