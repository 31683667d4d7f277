"""Small mutations of the product, and which tests near the code notice them.

    python -m tests.mutants --seed 1 --count 100 [--only FOLDER] [--survivors] [--json FILE]

The seed draws folders in proportion to their code lines, and in each folder from all small mutations of its functions
(:func:`tests.benchmarks.mutants.edits_of`). Each mutation is put into a scratch copy of the checkout, and the tests of
its folder run there until one fails. Outcomes:

- ``noticed`` by the first test that fails, or by the limit of CPU seconds (a mutant that loops).
- ``equivalent``: ``tests/equivalent_mutants.json`` says why no answer can change. No test runs.
- ``survived``: all tests pass. Write a direct test, or add the mutant and the reason to that file.

Outcomes are kept in a JSON file after each mutant. The command continues where it stopped; ``--survivors`` tries
survivors again.

A test file belongs to a product folder if at least 30 % of the names that it imports from the product come from there
(:data:`SHARE`), and if the file stands in a folder of tests that is near (:data:`FLOORS`). Folders that everything
imports (:data:`GROUND`) count only in files that import little else. :data:`ALSO` adds tests that import little. Tests
marked slow, longer or spark do not run.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tests.benchmarks.mutants import Edit, edits_of

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("heddle", "optimizer", "spark_jobs", "plugins", "dags")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")

SHARE = 0.3
"""Least share of a test file's imports of the product that come from its folder."""

GROUND = (
    "optimizer/workload",
    "optimizer/errors",
    "spark_jobs",
    "spark_jobs/store",
    "heddle",
    "spark_jobs/store/warehouse",
    "spark_jobs/engine",
)
"""Folders that tests of all other folders import, too."""

GROUND_SHARE = 0.6
"""The same of a folder of :data:`GROUND`."""

FLOORS = {
    "optimizer": ("optimizer",),
    "spark_jobs": ("spark_jobs", "heddle"),
    "heddle": ("heddle",),
    "dags": ("plugins", "dags"),
    "kafka": ("spark_jobs",),
}
"""The product's top folders that each folder of tests is near to. Others hold tests of whole runs."""

ALSO = {
    "heddle": ("tests/heddle/test_opened_warehouse.py",),
    "heddle/cli": ("tests/spark_jobs/test_cli.py", "tests/spark_jobs/operations/test_first_steps.py"),
    "heddle/local": ("tests/dags/test_attempts.py",),
    "plugins": ("tests/dags/test_timetable.py",),
    "dags": ("tests/dags/test_dags.py", "tests/dags/test_load_flights.py"),
    "spark_jobs/jobs": ("tests/spark_jobs/pipeline/test_history.py", "tests/spark_jobs/engine/test_submitted.py"),
    "spark_jobs/streams/sources/formats": (
        "tests/spark_jobs/streams/test_stored_names.py",
        "tests/spark_jobs/streams/test_sources.py",
    ),
    "spark_jobs/windows/finals": ("tests/spark_jobs/windows/test_final_aggregates.py",),
    "spark_jobs/windows/row_windows": (
        "tests/spark_jobs/windows/test_rows.py",
        "tests/spark_jobs/windows/test_row_derivation.py",
    ),
}
"""Tests that reach a folder through the command line, Airflow or a run, and so import little of it."""

LEAST_LIMIT = 60
"""CPU seconds that the tests of a mutant may take at least; otherwise thrice the time without a mutation."""

KERNEL_LIMIT = 300
"""CPU seconds more if the mutant's module has kernels: all kernels compile again."""


@dataclass(frozen=True)
class Drawn:
    """A mutation of a product file: its ``path`` below the checkout, and the ``edit`` of its text."""

    path: str
    edit: Edit

    @property
    def name(self) -> str:
        return f"{self.path}:{self.edit.function}:{self.edit.change}:{self.edit.occurrence}"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: its ``kind``, and the test that noticed it or the reason why nothing changes."""

    mutant: str
    folder: str
    line: int
    kind: str
    detail: str


# ------------------------------------------------------------------------------------------------ drawing
def product_files() -> dict[str, list[str]]:
    """Return the Python files of each product folder."""
    listing = subprocess.run(
        ["git", "ls-files", *(f"{top}/*.py" for top in PRODUCT)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folders: dict[str, list[str]] = {}
    for path in sorted(listing.stdout.split()):
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return folders


def code_lines(text: str) -> int:
    """Return the number of lines that are neither blank nor only a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


def draw(seed: int, count: int, only: str | None = None) -> list[Drawn]:
    """Return ``count`` mutants, of all product folders or only of one; a greater count adds to a smaller one's."""
    files = product_files()
    if only is not None and only not in files:
        raise SystemExit(f"{only} is no product folder; choose from {', '.join(files)}")
    texts = {path: (ROOT / path).read_text() for paths in files.values() for path in paths}
    remaining: dict[str, Iterator[Drawn]] = {}

    def shuffled(folder: str) -> Iterator[Drawn]:
        mutants = [Drawn(path, edit) for path in files[folder] for edit in edits_of(texts[path])]
        random.Random(f"{seed} {folder}").shuffle(mutants)
        return iter(mutants)

    chance = random.Random(seed)
    names = [only] if only is not None else list(files)
    weights = [sum(code_lines(texts[path]) for path in files[name]) for name in names]
    drawn: list[Drawn] = []
    while len(drawn) < count:
        folder = chance.choices(names, weights)[0]
        mutant = next(remaining.setdefault(folder, shuffled(folder)), None)
        if mutant is not None:
            drawn.append(mutant)
        elif only is not None:
            break
    return drawn


# ------------------------------------------------------------------------------------------ tests of folders
def imported(test_file: Path) -> Counter[str]:
    """Return how many names a test file imports from each product module, by the module's path."""
    modules: Counter[str] = Counter()
    for node in ast.walk(ast.parse(test_file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.update(_module(f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            modules.update(_module(alias.name) for alias in node.names)
    del modules[""]
    return modules


def _module(name: str) -> str:
    """The path of the module that a dotted name is, or is in; empty if it is not the product's."""
    parts = name.split(".")
    for first in ("", "plugins"):
        for length in range(len(parts), 0, -1):
            path = Path(first, *parts[:length])
            if path.parts[0] in PRODUCT:
                for file in (path.with_suffix(".py"), path / "__init__.py"):
                    if (ROOT / file).is_file():
                        return file.as_posix()
    return ""


@cache
def near_files_of_folders() -> Mapping[str, Mapping[str, Counter[str]]]:
    """Return the test files of each product folder, with what they import."""
    folders: dict[str, dict[str, Counter[str]]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        inner = file.relative_to(ROOT / "tests").parts
        name = file.relative_to(ROOT).as_posix()
        modules = imported(file)
        counts: Counter[str] = Counter()
        for path, count in modules.items():
            counts[path.rpartition("/")[0]] += count
        above = sum(count for folder, count in counts.items() if folder not in GROUND)
        for folder, count in counts.items():
            is_ground = folder in GROUND
            is_near = folder.partition("/")[0] in FLOORS.get(inner[0], ())
            if is_near and count >= (GROUND_SHARE * counts.total() if is_ground else SHARE * above):
                folders.setdefault(folder, {})[name] = modules
        for folder, names in ALSO.items():
            if name in names:
                folders.setdefault(folder, {})[name] = modules
    return folders


def near_files(path: str) -> list[str]:
    """Return the test files of a module's folder: those that import the module come first, then the short ones."""
    files = near_files_of_folders().get(path.rpartition("/")[0], {})
    return sorted(files, key=lambda file: (path not in files[file], (ROOT / file).stat().st_size))


# ------------------------------------------------------------------------------------------------- running
class Scratch:
    """A copy of the checkout's files, as they are now, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.root, self.temporary = folder / "checkout", folder / "temporary"
        self.temporary.mkdir()
        listing = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        kernels = [file.relative_to(ROOT).as_posix() for top in PRODUCT for file in (ROOT / top).rglob("*.nb?")]
        for name in [*listing.stdout.splitlines(), *kernels]:
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        (self.root / ".venv").symlink_to((ROOT / ".venv").resolve())

    def run(self, files: Sequence[str], limit: float, kernels: Path | None = None) -> tuple[str, str, float]:
        """Run tests until one fails.

        Returns:
            ``passed``, ``failed`` or ``none`` (no test was selected); the failed test; CPU seconds.
        """
        environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "HEDDLE_HOME": str(self.root),
            "HEDDLE_TESTS": "quick",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self.temporary),
        }
        if kernels is not None:
            environment["NUMBA_CACHE_DIR"] = str(kernels)
        options = ["-q", "-x", "--tb=no", "--timeout=0", "--hypothesis-profile=unshrunk", "-p", "no:cacheprovider"]
        marks = "not slow and not longer and not spark"
        command = [sys.executable, "-m", "pytest", *options, "-m", marks, *files]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5)),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        for folder in self.temporary.iterdir():
            shutil.rmtree(folder, ignore_errors=True) if folder.is_dir() else folder.unlink()
        if result.returncode in (0, 5):
            return ("passed" if not result.returncode else "none"), "", seconds
        if result.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "failed", "limit of CPU seconds", seconds
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result.stdout, re.MULTILINE)
        return "failed", failed[1] if failed else f"exit code {result.returncode}", seconds

    def outcome(self, mutant: Drawn, limit: float) -> Outcome:
        """Run the tests of a mutant's folder over it."""
        file = self.root / mutant.path
        text = file.read_text()
        times = file.stat()
        has_kernels = "njit" in text
        kernels = Path(tempfile.mkdtemp(dir=self.root.parent)) if has_kernels else None
        file.write_text(mutant.edit.apply(text))
        try:
            state, test, _ = self.run(near_files(mutant.path), limit + KERNEL_LIMIT * has_kernels, kernels)
        finally:
            # compiled kernels and modules belong to a file's time
            file.write_text(text)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            if kernels is not None:
                shutil.rmtree(kernels)
        kind = "noticed" if state == "failed" else "survived"
        return outcome_of(mutant, kind, test)


def outcome_of(mutant: Drawn, kind: str, detail: str) -> Outcome:
    """Return the outcome of a mutant."""
    return Outcome(mutant.name, mutant.path.rpartition("/")[0], mutant.edit.line, kind, detail)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the counts of outcomes by folder, as lines of text."""
    kinds = ("noticed", "equivalent", "survived")
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.folder, Counter())[outcome.kind] += 1
        counts.setdefault("all", Counter())[outcome.kind] += 1
    lines = [f"{'folder':32}{'drawn':>8}" + "".join(f"{kind:>12}" for kind in kinds)]
    for folder in sorted(counts, key=lambda name: (name == "all", name)):
        numbers = "".join(f"{counts[folder][kind]:12}" for kind in kinds)
        lines.append(f"{folder:32}{counts[folder].total():8}{numbers}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="mutants that are drawn")
    parser.add_argument("--only", metavar="FOLDER", help="draw all of them from this product folder")
    parser.add_argument("--survivors", action="store_true", help="try those again that survived")
    parser.add_argument("--json", type=Path, default=ROOT / "var" / "mutants.json", help="where outcomes are kept")
    options = parser.parse_args()
    reasons = json.loads(EQUIVALENT.read_text())
    stored = json.loads(options.json.read_text()) if options.json.exists() else []
    outcomes = {row["mutant"]: Outcome(**row) for row in stored}
    drawn = draw(options.seed, options.count, options.only)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        scratch = Scratch(Path(name))
        for mutant in drawn:
            previous = outcomes.get(mutant.name)
            if mutant.name in reasons:
                outcome = outcome_of(mutant, "equivalent", reasons[mutant.name])
            elif previous is not None and not (previous.kind == "survived" and options.survivors):
                outcome = previous
            else:
                folder = mutant.path.rpartition("/")[0]
                if folder not in seconds:
                    state, test, seconds[folder] = scratch.run(near_files(mutant.path), 3600)
                    if state == "failed":
                        raise SystemExit(f"{test} fails without a mutation")
                outcome = scratch.outcome(mutant, max(LEAST_LIMIT, 3 * seconds[folder]))
            outcomes[mutant.name] = outcome
            print(f"{outcome.kind:11} {outcome.mutant} (line {outcome.line})  {outcome.detail}", flush=True)
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes.values()], indent=1) + "\n")
    print(table(outcomes[mutant.name] for mutant in drawn))


if __name__ == "__main__":
    main()
