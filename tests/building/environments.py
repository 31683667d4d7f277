"""Wheels, and environments in which they are installed without the checkout.

    python -m tests.building.environments [PYTEST ARGUMENTS]

builds the wheel, installs it with everything that the tests need into a new environment, maps a copy of the tests to
the names of the wheel and runs them there. Default: the tests of `make test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build_wheel import mapped

ROOT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).with_name("uv"))
VERSIONS = ("3.11", "3.12", "3.13")

EXTRAS = "spark,iceberg,airflow,lease,demo,polars,papers,serve,dev"
"""The extras of `make setup`."""

OF_CHECKOUT = ("building", "benchmarks/test_", "test_documentation", "test_house", "test_imports", "test_dependencies")
OF_CHECKOUT += (
    "test_mutants",
    "test_recipes",
    "docker/test_compose",
    "optimizer/test_codes",
    "optimizer/test_kernel_stamps",
)
"""Tests of the repository itself: of its text, its Makefile and its folders."""

INHERITED = ("JAVA_HOME", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Variables that say where Java and the network are."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the folder in which its commands run. ``home``: that of their user."""

    folder: Path
    place: Path
    home: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def install(self, *requirements: str) -> None:
        """Install packages, the versions of constraints.txt where it has some."""
        constraints = str(ROOT / "constraints.txt")
        run([UV, "pip", "install", "--quiet", "--python", self.python, *requirements, "--constraints", constraints])

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of its commands; nothing of the checkout's is seen."""
        variables = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "GX_ANALYTICS_ENABLED": "false",
        }
        return variables | {name: os.environ[name] for name in INHERITED if name in os.environ}

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment."""
        return subprocess.run(command, cwd=self.place, env=self.variables | variables, capture_output=True, text=True)

    def done(self, *command: str, **variables: str) -> str:
        """Run a command that has to succeed; what it prints."""
        outcome = self.run(*command, **variables)
        assert outcome.returncode == 0, f"{command}\n{outcome.stdout}\n{outcome.stderr}"
        return outcome.stdout


def run(command: Sequence[str]) -> str:
    """Run a command of the checkout that has to succeed; what it prints."""
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert outcome.returncode == 0, f"{command}\n{outcome.stdout}\n{outcome.stderr}"
    return outcome.stdout


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of the checkout, built into a folder; the wheel from the sdist."""
    run([UV, "build", "--quiet", "--out-dir", str(folder), str(ROOT)])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def interpreter(version: str) -> str | None:
    """A Python of a version that is installed on this machine."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [*map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))), shutil.which(f"python{version}")]
    for path in filter(None, candidates):
        # a shim may stand for a Python that is not there
        if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


def environment(folder: Path, python: str) -> Environment:
    """A new, empty environment."""
    (folder / "place").mkdir(parents=True)
    (folder / "home").mkdir()
    run([UV, "venv", "--quiet", "--python", python, str(folder / "venv")])
    return Environment(folder / "venv", folder / "place", folder / "home")


def copy_tests(folder: Path) -> None:
    """Copy the checkout without its packages, Python files with the names of the wheel."""
    for name in run(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).splitlines():
        if name.partition("/")[0] in ("heddle", "optimizer", "spark_jobs") or not (ROOT / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".py"):
            (folder / name).write_text(mapped((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copy(ROOT / name, folder / name)


def add_papers(installed: Environment) -> None:
    """Put the papers' algorithms, which tests compare with, into an environment: the wheel has none."""
    package = installed.done(installed.python, "-c", "import heddle; print(heddle.__path__[0])").strip()
    for path in (ROOT / "optimizer" / "papers").rglob("*.py"):
        target = Path(package) / "_optimizer" / path.relative_to(ROOT / "optimizer")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(mapped(path.read_text(encoding="utf-8")), encoding="utf-8")


def run_tests(arguments: Sequence[str], folder: Path, python: str = sys.executable) -> int:
    """Run tests against the installed wheel; the exit code of pytest."""
    wheel, _ = built(folder / "dist")
    installed = environment(folder, python)
    installed.install(f"{wheel}[{EXTRAS}]")
    add_papers(installed)
    copy_tests(installed.place)
    ignored = [f"--ignore-glob=*/tests/{name}*" for name in OF_CHECKOUT]
    jars = {"HEDDLE_JARS": str(ROOT / ".cache" / "ivy" / "jars"), "HEDDLE_TESTS": "quick"}
    command = [installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ignored, *arguments]
    return subprocess.call(command, cwd=installed.place, env=installed.variables | jars)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(run_tests(sys.argv[1:], Path(temporary)))
