"""The wheel and the sdist: what is in them, and a project with nothing but the wheel, in fresh environments."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from optimizer.errors.installing import EXTRAS
from tests.building.environments import ROOT, VERSIONS, Environment, built, environment, interpreter, run, run_tests

VISITS = "time,page,seconds\n2025-03-03T08:05:00Z,home,12\n2025-03-03T08:25:00Z,shop,40\n2025-03-03T08:50:00Z,home,6\n"

FILES = ("mine/queries", "--streams", "mine/streams.yaml")

INSTANTS = ("2025-03-03", "2025-03-03T08:20", "2025-03-03T08:40", "2025-03-04")

THEIRS = """
import spark_jobs.my_job, optimizer
assert (spark_jobs.my_job.ANSWER, optimizer.ANSWER) == (42, 43)
import heddle
print(len(heddle.read("visits_15min", "mine/warehouse")))
assert spark_jobs.my_job.ANSWER == 42 and spark_jobs.__file__ == optimizer.__file__.replace("optimizer", "spark_jobs")
"""
"""A program of a team that has packages of these names."""


def test_every_package_of_an_extra_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()


def test_no_text_installs_heddle_from_the_index() -> None:
    """The index has a package of this name that is not this code."""
    files = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    files += [path for name in ("heddle", "optimizer", "spark_jobs") for path in (ROOT / name).rglob("*.py")]
    assert len(files) > 300
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install\s+['\"]?heddle\b|(?<![\w./-])heddle\[", text), path


class Distributions(NamedTuple):
    """What is built of the checkout."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return Distributions(*built(tmp_path_factory.mktemp("dist")))


@pytest.mark.slow
def test_the_wheel_owns_one_name_and_has_its_data(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        names = wheel.namelist()
        (metadata,) = [wheel.read(name).decode() for name in names if name.endswith("/METADATA")]
    info = distributions.wheel.name.split("-py3")[0] + ".dist-info"
    assert {name.partition("/")[0] for name in names} == {"heddle", info}
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "heddle").rglob("*") if path.is_file()}
    assert {name for name in shipped if "__pycache__" not in name} <= set(names)
    schemas = {f"heddle/schemas/{path.name}" for path in (ROOT / "docs" / "schemas").iterdir()}
    assert schemas | {"heddle/_jobs/log4j2.properties", "heddle/py.typed"} <= set(names)
    assert not [name for name in names if "papers" in name]
    assert "# Heddle\n" in metadata and "Classifier: Programming Language :: Python :: 3.13\n" in metadata


@pytest.mark.slow
def test_the_sdist_is_the_whole_repository(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = set(run(["git", "ls-files"]).splitlines())
    assert {name for name in tracked if (ROOT / name).exists()} <= names


# --------------------------------------------------------------------------------------- without a checkout
@pytest.fixture(scope="module", params=VERSIONS)
def project(
    request: pytest.FixtureRequest, distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """A project that was made with the base installation of the wheel, as the README makes one."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} on this machine")
    installed = environment(tmp_path_factory.mktemp(f"python{request.param}"), python)
    installed.install(str(distributions.wheel))
    (installed.place / "mine").mkdir()
    (installed.place / "mine" / "visits.csv").write_text(VISITS)
    installed.done("heddle", "init", "mine/visits.csv", "--folder", "mine")
    return installed


def published(project: Environment, *options: str, house: str = "mine/warehouse", **variables: str) -> str:
    span = ["--from", "2025-03-03", "--to", "2025-03-04", "--warehouse", house]
    return project.done("heddle", "run", *FILES, *span, *options, **variables)


def of_checkout(project: Environment, *command: str) -> str:
    """Run a command of the checkout in the folder of a project."""
    program = [sys.executable, "-m", "heddle.cli.app", *command]
    options = os.environ | {"PYTHONPATH": str(ROOT), "HEDDLE_HOME": str(ROOT)}
    done = subprocess.run(program, cwd=project.place, env=options, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answers(project: Environment, house: str = "mine/warehouse") -> str:
    return project.done("heddle", "read", "visits_15min", "--warehouse", house, "--format", "csv")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_project_needs_the_base_installation_only(project: Environment) -> None:
    assert "1 query usable" in project.done("heddle", "validate", *FILES)
    assert "visits_15min: 1 answer" in project.done("heddle", "preview", *FILES)
    assert "9 answers to 1 query" in published(project)
    expected = re.findall(r'(?s)```text\n("window_start".*?)```', (ROOT / "README.md").read_text())
    assert [answers(project)] == expected


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_is_missing_is_said_with_the_command_for_the_wheel(
    project: Environment, distributions: Distributions
) -> None:
    """Before anything is written."""
    span = ["--from", "2025-03-03", "--to", "2025-03-04", "--warehouse", "mine/other"]
    command = ["heddle", "run", *FILES, *span]
    for engine, dsn, package, extra in (
        ("spark", "", "pyspark", "spark"),
        ("local", "postgresql://heddle@127.0.0.1:1/postgres", "psycopg", "lease"),
    ):
        done = project.run(*command, "--engine", engine, HEDDLE_LEASE_DSN=dsn)
        assert done.returncode == 1 and f"HDL-904 {package} is not installed" in done.stderr
        assert f"pip install './{distributions.wheel.name}[{extra}]'" in done.stderr
    assert not (project.place / "mine" / "other").exists()
    done = project.run("heddle", "jars")
    assert done.returncode == 1 and "HDL-520" in done.stderr and "heddle jars --fetch" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_team_has_packages_of_its_own_of_these_names(project: Environment) -> None:
    published(project)
    theirs = project.place / "dags"
    (theirs / "spark_jobs").mkdir(parents=True, exist_ok=True)
    (theirs / "optimizer").mkdir(exist_ok=True)
    for name, answer in (("spark_jobs/__init__", 41), ("spark_jobs/my_job", 42), ("optimizer/__init__", 43)):
        (theirs / f"{name}.py").write_text(f"ANSWER = {answer}\n")
    assert project.done(project.python, "-c", THEIRS, PYTHONPATH=str(theirs)) == "9\n"
    assert "9 answers" in published(project, house="mine/beside", PYTHONPATH=str(theirs))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", ["wheel", "checkout"])
def test_a_warehouse_moves_between_checkout_and_wheel(project: Environment, first: str) -> None:
    house = f"mine/moved_{first}"
    for number, (begin, end) in enumerate(pairwise(INSTANTS)):
        command = ["run", *FILES, "--warehouse", house, "--from", begin, "--to", end]
        if (number % 2 == 0) == (first == "wheel"):
            project.done("heddle", *command)
        else:
            of_checkout(project, *command)
    read = ["read", "visits_15min", "--warehouse", house, "--format", "csv"]
    assert project.done("heddle", *read) == of_checkout(project, *read)
    assert len(answers(project, house).splitlines()) == 10
    status = ["status", "--warehouse", house, "--json"]
    assert project.done("heddle", *status) == of_checkout(project, *status)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pages_are_served(project: Environment, distributions: Distributions) -> None:
    published(project)
    project.install(f"{distributions.wheel}[serve]")
    command = [str(project.folder / "bin" / "heddle"), "serve", "--warehouse", "mine/warehouse", "--port", "0"]
    server = subprocess.Popen(
        command, cwd=project.place, env=project.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        address = next(match[0] for line in server.stdout if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
        with urllib.request.urlopen(f"{address}/answers") as response:
            assert response.status == 200 and b"visits_15min" in response.read()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_jars_are_fetched_and_spark_runs(
    project: Environment, distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Into the user's cache, and read-only packages are enough; a team's `spark_jobs` does not disturb the workers."""
    project.install(f"{distributions.wheel}[spark]")
    fetched = tmp_path_factory.getbasetemp() / "fetched"
    if fetched.exists():
        shutil.copytree(fetched, project.home / ".cache" / "heddle" / "ivy")
    folder = Path(project.done("heddle", "jars", "--fetch").strip())
    assert folder == project.home / ".cache" / "heddle" / "ivy" / "jars" and any(folder.glob("*delta-spark*.jar"))
    if not fetched.exists():
        shutil.copytree(folder.parent, fetched)
    assert project.done("heddle", "jars").strip() == str(folder)
    theirs = project.place / "theirs"
    (theirs / "spark_jobs").mkdir(parents=True)
    (theirs / "spark_jobs" / "__init__.py").write_text("")
    record = published(project, "--engine", "spark", "--json", house="mine/on_spark", PYTHONPATH=str(theirs))
    published(project)
    assert '"engine": "spark local' in record and answers(project, "mine/on_spark") == answers(project)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_fast_tests_pass_with_the_wheel(tmp_path: Path) -> None:
    assert run_tests(["--numprocesses", "2", "--dist", "loadfile"], tmp_path) == 0
