"""Small mutations of the product, and which tests near the code notice them.

    python -m tests.mutants --seed 1 --count 100 [--only FOLDER] [--survivors] [--most SECONDS] [--jobs N] [--apart]

The seed draws folders in proportion to their code lines, and in each folder from all small mutations of its functions
(:func:`tests.benchmarks.mutants.edits_of`). One process imports all tests. For each mutation a fork of it changes the
function (:mod:`tests.mutant_forks`) and runs the tests of its folder until one fails. Outcomes:

- ``noticed`` by the first test that fails, or by its limit of CPU seconds (a mutant that loops).
- ``equivalent``: ``tests/equivalent_mutants.json`` says why no answer can change. No test runs.
- ``survived``: all tests pass. Write a direct test, or add the mutant and the reason to that file.

A mutation that no fork can make, of a DAG file for example, is written into a copy of the checkout (``--apart``: all
are). Tests that start other processes notice only those.

Outcomes are kept in a JSON file after each mutant. The command continues where it stopped; ``--survivors`` tries
survivors again. At the end the tests that failed run without a mutation, and the command fails if one of them does.

A test file belongs to a module if it imports it and stands in the folder of tests that mirrors the module's. It belongs
to all modules of a product folder if at least 30 % of the names that it imports from the product come from there
(:data:`SHARE`), and if the file stands in a folder of tests that is near (:data:`FLOORS`). Folders that everything
imports (:data:`GROUND`) count only in files that import little else. :data:`ALSO` adds tests that import little. Tests
marked slow or longer do not run, those marked spark only over modules that name pyspark.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
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
from typing import Any

import pytest

from tests.benchmarks.mutants import Edit, edits_of
from tests.mutant_forks import Forks, Mutation, nearest

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
    "dags": ("heddle", "plugins", "dags"),
    "kafka": ("spark_jobs",),
}
"""The product's top folders that each folder of tests is near to. Others hold tests of whole runs."""

ALSO = {
    "heddle": ("tests/heddle/test_opened_warehouse.py",),
    "heddle/cli": ("tests/spark_jobs/test_cli.py", "tests/spark_jobs/operations/test_first_steps.py"),
    "heddle/local": ("tests/dags/test_attempts.py",),
    "heddle/airflow": ("tests/dags/test_timetable.py",),
    "heddle/airflow/definitions": ("tests/dags/test_dags.py",),
    "plugins": ("tests/dags/test_attempts.py",),
    "dags": ("tests/dags/test_dags.py", "tests/dags/test_load_flights.py"),
    "spark_jobs/jobs": ("tests/spark_jobs/pipeline/test_history.py", "tests/spark_jobs/engine/test_submitted.py"),
    "spark_jobs/streams/sources/formats": (
        "tests/spark_jobs/streams/test_stored_names.py",
        "tests/spark_jobs/streams/test_sources.py",
    ),
    "spark_jobs/windows/features": ("tests/spark_jobs/operations/test_feature_sets.py",),
    "spark_jobs/windows/finals": ("tests/spark_jobs/windows/test_final_aggregates.py",),
    "spark_jobs/windows/row_windows": (
        "tests/spark_jobs/windows/test_rows.py",
        "tests/spark_jobs/windows/test_row_derivation.py",
    ),
    "spark_jobs/windows/sessions": (
        "tests/spark_jobs/windows/test_sessions.py",
        "tests/spark_jobs/test_differential.py",
    ),
}
"""Tests that reach a folder through the command line, Airflow or a run, and so import little of it."""

TEST_SECONDS = 60
"""CPU seconds that a test may take over a mutant."""

MARKS = "not slow and not longer"

KERNEL_SECONDS = 300
"""CPU seconds more if kernels compile again."""

OPTIONS = ["-q", "--tb=no", "--timeout=900", "--hypothesis-profile=unshrunk", "-p", "no:cacheprovider"]
"""Options of pytest."""


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
def imports_of(path: str) -> Counter[str]:
    """Return how many names a file below the checkout imports from each product module, by the module's path."""
    return imported(ROOT / path)


@cache
def reached(path: str) -> frozenset[str]:
    """Return the product modules that a file imports, and that these import."""
    modules: set[str] = set()
    remaining = [path]
    while remaining:
        new = imports_of(remaining.pop()).keys() - modules
        modules |= new
        remaining += new
    return frozenset(modules)


@cache
def near_files_of_folders() -> Mapping[str, Mapping[str, Counter[str]]]:
    """Return the test files of each product folder, with what they import."""
    folders: dict[str, dict[str, Counter[str]]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        inner = file.relative_to(ROOT / "tests").parts
        name = file.relative_to(ROOT).as_posix()
        modules = imports_of(name)
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


def near_files(path: str, names: Mapping[str, int] | None = None) -> list[str]:
    """Return the test files of a module's folder, in the order in which they run.

    Files that import the module come first, and of these the ones that have the nearest of some ``names``. Files of
    which no import reaches the module come last. Of equal ones short files come first.
    """
    files = {**near_files_of_folders().get(path.rpartition("/")[0], {}), **_mirroring(path)}

    def order(file: str) -> tuple[Any, ...]:
        text = (ROOT / file).read_text()
        return path not in files[file], path not in reached(file), nearest(names or {}, text), len(text)

    return sorted(files, key=order)


@cache
def _mirroring(path: str) -> dict[str, Counter[str]]:
    """The test files that import a module and stand in the folder of tests that mirrors its own."""
    parts = Path(path).parent.parts
    own = Path("tests", *parts[:2])
    folder = own if (ROOT / own).is_dir() else own.parent
    files = [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / folder).glob("test_*.py"))]
    return {file: imports_of(file) for file in files if path in imports_of(file)}


def names_near(text: str, function: str) -> dict[str, int]:
    """Return the names by which tests may reach a function of a module's ``text``, with their distances: the function's
    own name 0, the names of what calls it 1, and so on."""
    uses: dict[str, set[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            uses[node.name] = _names_in(node)
        elif isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            for method in methods:
                uses.setdefault(method.name, set()).update(_names_in(method))
            # a method that nobody names runs through its class
            uses.setdefault(node.name, set()).update(method.name for method in methods)
    distances = {function.rpartition(".")[2]: 0}
    remaining = list(distances)
    for name in remaining:
        for user in sorted(uses):
            if name in uses[user] and user not in distances:
                distances[user] = distances[name] + 1
                remaining.append(user)
    return {name: distance for name, distance in distances.items() if not name.startswith("__")}


def _names_in(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def kernel_files(path: str) -> list[Path]:
    """Return the compiled kernels that a mutation of a module makes stale, below the checkout."""
    modules = [module for paths in product_files().values() for module in paths]
    stale = [module for module in modules if module == path or path in reached(module)]
    if "njit" not in (ROOT / path).read_text():
        return []
    return [
        file.relative_to(ROOT)
        for module in map(Path, stale)
        for file in (ROOT / module.parent / "__pycache__").glob(f"{module.stem}.*.nb?")
    ]


# ------------------------------------------------------------------------------------------------- running
class Scratch:
    """A copy of the checkout's files, as they are now, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.root, self.temporary = folder / "checkout", folder / "temporary"
        self.temporary.mkdir(parents=True)
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
        for name in (".venv", ".cache"):
            (self.root / name).symlink_to((ROOT / name).resolve())

    def run(self, tests: Sequence[str], seconds: int, marks: str, names: Mapping[str, int]) -> tuple[bool, str]:
        """Run the tests of some files, first those that have the nearest of some ``names``, until one fails: whether
        they pass, and the last test that started."""
        running = self.temporary.with_name("running")
        running.write_text("")
        environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "HEDDLE_HOME": str(self.root),
            "TMPDIR": str(self.temporary),
            "MUTANT_RUNNING": str(running),
            "MUTANT_SECONDS": str(seconds),
            "MUTANT_NAMES": json.dumps(names),
        }
        result = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, "-p", "tests.mutant_forks", "-x", "-m", marks, *tests],
            cwd=self.root,
            env=environment,
            capture_output=True,
            check=False,
        )
        for folder in self.temporary.iterdir():
            shutil.rmtree(folder, ignore_errors=True) if folder.is_dir() else folder.unlink()
        if result.returncode in (-signal.SIGTERM, -signal.SIGINT):
            raise SystemExit("tests were interrupted")
        return result.returncode in (0, 5), running.read_text() or f"exit code {result.returncode}"

    def outcome(self, mutant: Drawn) -> Outcome:
        """Run the tests of a mutant's folder over it until one fails."""
        file = self.root / mutant.path
        text = file.read_text()
        times = file.stat()
        kernels = kernel_files(mutant.path)
        for kernel in kernels:
            (self.root / kernel).unlink(missing_ok=True)
        file.write_text(mutant.edit.apply(text))
        try:
            names = names_near(text, mutant.edit.function)
            files, seconds = near_files(mutant.path, names), TEST_SECONDS
            if kernels:
                seconds += KERNEL_SECONDS
            marks = MARKS if "pyspark" in text else f"{MARKS} and not spark"
            passes, test = self.run(files, seconds, marks, names)
        finally:
            # compiled kernels and modules belong to a file's time
            file.write_text(text)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            for kernel in kernels:
                for compiled in (self.root / kernel).parent.glob(f"{kernel.name.partition('.')[0]}.*.nb?"):
                    compiled.unlink()
            for kernel in kernels:
                shutil.copy2(ROOT / kernel, self.root / kernel)
        return outcome_of(mutant, "survived" if passes else "noticed", "" if passes else test)


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
    parser.add_argument("--most", type=float, default=math.inf, help="CPU seconds of tests a mutant (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are tried at once")
    parser.add_argument("--apart", action="store_true", help="try each in a copy of the checkout")
    parser.add_argument("--json", type=Path, default=ROOT / "var" / "mutants.json", help="where outcomes are kept")
    options = parser.parse_args()
    reasons = json.loads(EQUIVALENT.read_text())
    stored = json.loads(options.json.read_text()) if options.json.exists() else []
    outcomes = {row["mutant"]: Outcome(**row) for row in stored}
    drawn = draw(options.seed, options.count, options.only)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    os.environ |= {"HEDDLE_HOME": str(ROOT), "HEDDLE_TESTS": "quick", "SPARK_LOCAL_IP": "127.0.0.1"}

    def keep(mutant: Drawn, kind: str, detail: str) -> None:
        outcomes[mutant.name] = outcome_of(mutant, kind, detail)
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes.values()], indent=1) + "\n")
        print(f"{kind:11} {mutant.name} (line {mutant.edit.line})  {detail}", file=terminal, flush=True)

    again = ("survived",) if options.survivors else ()
    remaining = []
    for mutant in drawn:
        if mutant.name in reasons:
            outcomes[mutant.name] = outcome_of(mutant, "equivalent", reasons[mutant.name])
        elif mutant.name not in outcomes or outcomes[mutant.name].kind in again:
            remaining.append(mutant)
    mutations = [_mutation(mutant) for mutant in remaining]
    # pytest captures the standard output
    with os.fdopen(os.dup(1), "w") as terminal:
        report = lambda number, *outcome: keep(remaining[number], *outcome)  # noqa: E731
        forks = Forks(mutations, options.jobs, report, options.apart, options.most)
        files = sorted({file for mutation in mutations for file in mutation.files})
        if mutations:
            pytest.main([*OPTIONS, "-m", MARKS, *files], plugins=[forks])
        with tempfile.TemporaryDirectory(prefix="mutants-") as name:
            scratch = Scratch(Path(name)) if forks.unplaced else None
            for number in forks.unplaced:
                assert scratch is not None
                outcome = scratch.outcome(remaining[number])
                keep(remaining[number], outcome.kind, outcome.detail)
    print(table(outcomes[mutant.name] for mutant in drawn))
    if forks.failing:
        raise SystemExit(f"fail without a mutation, too: {', '.join(forks.failing)}")


def _mutation(mutant: Drawn) -> Mutation:
    text = (ROOT / mutant.path).read_text()
    names = names_near(text, mutant.edit.function)
    files = near_files(mutant.path, names)
    # tests load the DAG files themselves
    module = "" if mutant.path.startswith("dags/") else mutant.path.removeprefix("plugins/")[:-3].replace("/", ".")
    has_spark, seconds = "pyspark" in text, TEST_SECONDS + KERNEL_SECONDS * ("njit" in text)
    return Mutation(module, mutant.edit.function, mutant.edit.apply(text), files, names, has_spark, seconds)


if __name__ == "__main__":
    main()
