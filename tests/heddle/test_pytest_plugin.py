"""The plugin of pytest: files of ``heddle test`` as tests, and no cost for others."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest_plugins = ["pytester"]

STREAMS = """
streams:
  trades:
    source: {format: csv, path: nothing_is_here.csv}
    schema: {ts: timestamp, symbol: string, price: double}
    time: ts
"""

QUERIES = """
-- name: hourly
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY symbol;
"""

TESTS = """
tests:
  - name: counts each symbol
    query: hourly
    given:
      - {ts: 2013-07-01T00:10:00, symbol: A, price: 1}
    expect:
      - {window_end: 2013-07-01T01:00:00, symbol: A, n: 1}
  - name: expects too much
    query: hourly
    given:
      - {ts: 2013-07-01T00:10:00, symbol: A, price: 1}
    expect:
      - {window_end: 2013-07-01T01:00:00, symbol: A, n: 7}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("WAREHOUSE", "STREAMS", "WORKLOAD"):
        monkeypatch.delenv(f"HEDDLE_{name}", raising=False)
    files = {"streams.yaml": STREAMS, "queries.sql": QUERIES, "tests/volume.yaml": TESTS}
    files["heddle.toml"] = 'streams = "streams.yaml"\nworkload = "queries.sql"\n'
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A run of pytest in a process of its own: pytester forgets modules that a run in this one imports."""
    return project.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_each_test_of_a_file_is_an_item_and_failures_show_the_difference(project: pytest.Pytester) -> None:
    result = run(project, "-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*volume.yaml::counts each symbol PASSED*"])
    result.stdout.fnmatch_lines(["tests/volume.yaml:9: query hourly", "differs", "- *n: 7", "+ *n: 1"])


def test_a_test_can_be_chosen_by_name(project: pytest.Pytester) -> None:
    run(project, "tests/volume.yaml", "-k", "counts").assert_outcomes(passed=1, deselected=1)


def test_a_file_with_a_mistake_is_an_error_at_its_line(project: pytest.Pytester) -> None:
    (project.path / "tests/volume.yaml").write_text(TESTS + "    tollerance: 1\n")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*tests/volume.yaml:9:1: error HDL-132*tollerance*"])


def test_other_yaml_files_are_left_alone(project: pytest.Pytester) -> None:
    (project.path / "tests/volume.yaml").unlink()
    (project.path / "recipe.yaml").write_text("tests:\n  - python: {imports: [query]}\n")
    (project.path / "test_a.py").write_text("def test_a(): pass\n")
    run(project).assert_outcomes(passed=1)


def test_a_run_without_such_files_imports_nothing_of_heddle(project: pytest.Pytester) -> None:
    (project.path / "tests/volume.yaml").unlink()
    check = """
import sys
def test_nothing_heavy_is_imported():
    heavy = {"pyarrow", "numpy", "yaml", "sqlglot", "typer", "spark_jobs", "optimizer"} & set(sys.modules)
    assert "heddle.pytest_plugin" in sys.modules and not heavy, heavy
"""
    (project.path / "test_light.py").write_text(check)
    run(project).assert_outcomes(passed=1)


def test_the_package_declares_the_plugin() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared["pytest11"] == {"heddle": "heddle.pytest_plugin"}
