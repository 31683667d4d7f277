"""The audit of what Heddle is made of that needs no network (``make audit-dependencies``): everything that is installed
is pinned, asked for and whole, and nothing else is imported.

What it does not say is whether a version has a known vulnerability: that takes a database of advisories
(``make audit-dependencies AUDIT=online``, which fails if it cannot ask for every package).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OWN = {"build_wheel", "heddle", "optimizer", "spark_jobs", "plugins", "dags", "docker", "tests"}
PLACES = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
"""Folders of installed packages. Whoever imports setuptools has the packages that it brings along on the path."""
TOOLS = {"pip", "uv", "heddle"}
"""Installed by the Makefile itself, before the pins or after them."""
THROUGH = {
    "adbc_driver_manager": "adbc-driver-postgresql",
    "click": "typer",
    "httpx": "apache-airflow",
    "llvmlite": "numba",
    "markupsafe": "jinja2",
    "packaging": "pytest",
    "pendulum": "apache-airflow",
    "pydantic": "fastapi",
    "sqlalchemy": "apache-airflow",
    "starlette": "fastapi",
    "structlog": "apache-airflow",
}
"""Imported packages that come with one that is asked for, and are part of what it offers."""


ELSEWHERE = {"chdb", "datafusion", "pyflink"}
"""Of environments of their own (make peers), whose workers alone import them."""


def lines(name: str) -> list[str]:
    stripped_lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [line for line in stripped_lines if line]


@pytest.fixture(scope="module")
def installed() -> dict[str, Distribution]:
    return {canonicalize_name(distribution.name): distribution for distribution in distributions(path=PLACES)}


def pinned() -> dict[str, str]:
    pins = [line.partition("==") for line in lines("constraints.txt")]
    return {canonicalize_name(name): version for name, _, version in pins}


def requirements() -> list[Requirement]:
    """What pyproject.toml asks for, with all extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(line) for line in (*project["dependencies"], *(line for extra in extras for line in extra))]


def asked() -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements()}


def test_every_pin_is_one_version_from_the_index() -> None:
    for line in lines("constraints.txt"):
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.+!]*", line), line
    assert len(pinned()) == len(lines("constraints.txt")) and asked() <= pinned().keys()
    for requirement in requirements():
        assert requirement.url is None and requirement.specifier, requirement
        assert pinned()[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_what_is_installed_is_what_is_pinned(installed: dict[str, Distribution]) -> None:
    versions = {name: distribution.version for name, distribution in installed.items() if name not in TOOLS}
    assert versions == pinned()
    (version,) = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "uv" not in installed or installed["uv"].version == version
    from_elsewhere = [name for name, distribution in installed.items() if distribution.read_text("direct_url.json")]
    assert set(from_elsewhere) <= {"heddle"}


def test_nothing_is_installed_that_nobody_asked_for(installed: dict[str, Distribution]) -> None:
    """From the requirements by the packages' own requirements, extras that they ask for among them."""
    required: set[tuple[str, str]] = set()
    open_ = [(canonicalize_name(package.name), extra) for package in requirements() for extra in ("", *package.extras)]
    while open_:
        name, extra = open_.pop()
        if (name, extra) in required or name not in installed:
            continue
        required.add((name, extra))
        for text in installed[name].requires or []:
            package = Requirement(text)
            if package.marker is None or package.marker.evaluate({"extra": extra}):
                open_ += [(canonicalize_name(package.name), other) for other in ("", *package.extras)]
    assert installed.keys() - {name for name, _ in required} - TOOLS == set()


def test_what_is_installed_fits_together() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_what_is_asked_for_is_imported() -> None:
    provides = packages_distributions()
    own = OWN | {path.stem for path in (ROOT / "plugins").glob("*.py")}
    for path in sorted(path for folder in OWN for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in {name.partition(".")[0] for name in names} - own - sys.stdlib_module_names - ELSEWHERE:
                packages = {canonicalize_name(package) for package in provides.get(name, [])} | {THROUGH.get(name, "")}
                assert packages & asked(), f"{path.relative_to(ROOT)} imports {name}, which nothing asks for"


def test_the_jar_fits_the_version_of_spark() -> None:
    from spark_jobs.engine.session import DELTA

    assert re.fullmatch(r"io\.delta:delta-spark_[0-9._]+:\d+\.\d+\.\d+", DELTA)
    assert pinned()["delta-spark"] == DELTA.rpartition(":")[2]
    # the jar is of one minor version of Spark, and no other is asked for
    ((major, minor),) = re.findall(r"delta-spark_(\d+)\.(\d+)_", DELTA)
    assert pinned()["pyspark"] == pinned()["pyspark-client"]
    for specifier in (each.specifier for each in requirements() if each.name in ("pyspark", "pyspark-client")):
        assert f"{major}.{minor}.0" in specifier and f"{major}.{int(minor) + 1}.0" not in specifier
