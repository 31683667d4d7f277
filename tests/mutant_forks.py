"""A pytest plugin that runs the collected tests over mutants of the product (:mod:`tests.mutants`).

:class:`Forks` runs them over many mutants, each in a fork of the process that imported the tests. Loaded by its name
(``-p tests.mutant_forks``), it only orders and limits the tests of a process: the environment says how.

Tests run first whose text, or that of the helpers that they call, has the nearest of the mutant's names. Generated
tests run after others. A test that takes too many CPU seconds or too much memory ends the process.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import math
import os
import re
import resource
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from tests.benchmarks.mutants import code_in, function_in

MEMORY = 8 << 30
"""Bytes that a process may hold."""

FAILED, PASSED = 1, 0
"""Exit codes of a fork."""


@dataclass(frozen=True)
class Mutation:
    """A function's mutation and the tests near it.

    ``module``, ``function``: their names; no ``module`` if tests do not import it. ``text``: of the mutated module.
    ``files``: of tests, in order. ``names``: with their distances. ``has_spark``: whether Spark's tests run.
    ``seconds``: the CPU seconds of a test.
    """

    module: str
    function: str
    text: str
    files: Sequence[str]
    names: Mapping[str, int]
    has_spark: bool
    seconds: int

    def place(self) -> bool:
        """Mutate the function in this process; False if that is not possible."""
        if not self.module:
            return False
        function = function_in(self.module, self.function)
        path = str(sys.modules[self.module].__file__)
        code = code_in(compile(self.text, path, "exec"), self.function.split("."))
        if function is None or code is None or code.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = code
        for kernel in kernels_of(function):
            kernel._cache = NullCache()
            kernel._reset_overloads()
        named = vars(sys.modules[self.module]).get(self.function)
        if isinstance(named, functools._lru_cache_wrapper):
            named.cache_clear()
        return True


def kernels_of(function: types.FunctionType) -> list[Dispatcher]:
    """Return the kernels that a function is compiled into: its own, those that call it, also through other functions
    and intrinsics, and all of a module whose overloads may call it."""
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith(("optimizer.", "spark_jobs."))]
    values = {id(_plain(value)): value for module in modules for value in module.values() if _plain(value)}
    callers: dict[int, list[int]] = {}
    for number, value in values.items():
        caller = _plain(value)
        for name in _names_in(caller.__code__):
            callers.setdefault(id(_plain(caller.__globals__.get(name))), []).append(number)
    reached = [id(function)]
    for number in reached:
        value = values.get(number)
        following = callers.get(number, [])
        if isinstance(value, types.FunctionType) and "overload" in value.__globals__:
            kernels = (each for each in value.__globals__.values() if isinstance(each, Dispatcher))
            following = [*following, *(id(each.py_func) for each in kernels)]
        reached += [each for each in dict.fromkeys(following) if each not in reached]
    return [values[number] for number in reached if isinstance(values.get(number), Dispatcher)]


def _plain(value: Any) -> Any:
    """The Python function of a kernel, an intrinsic or a function; None of anything else."""
    function = getattr(value, "py_func" if isinstance(value, Dispatcher) else "_defn", value)
    return function if isinstance(function, types.FunctionType) else None


def _names_in(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


class Forks:
    """Runs tests over mutations, ``jobs`` at once.

    ``most``: CPU seconds after which no other test of a mutation starts.
    ``report``: is called with the number of a mutation, ``noticed`` or ``survived``, and the test that failed.
    ``unplaced``: numbers of the mutations that no fork can make; all if they are ``apart``.
    ``failing``: tests that noticed a mutation and fail without one.
    """

    def __init__(
        self,
        mutations: Sequence[Mutation],
        jobs: int,
        report: Callable[[int, str, str], None],
        apart: bool,
        most: float,
    ) -> None:
        self.mutations, self.jobs, self.report, self.apart, self.most = mutations, jobs, report, apart, most
        self.unplaced: list[int] = []
        self.failing: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise pytest.UsageError("tests cannot be collected without a mutation")
        running: dict[int, tuple[int, Path]] = {}
        noticing: set[str] = set()
        with tempfile.TemporaryDirectory(prefix="mutants-") as name:
            folder = Path(name)
            remaining = list(enumerate(self.mutations))
            while remaining or running:
                while remaining and len(running) < self.jobs:
                    number, mutation = remaining.pop(0)
                    if self.apart or not _is_placed(mutation):
                        self.unplaced.append(number)
                        continue
                    items = ordered(session.items, mutation)
                    process = _forked(session, items, folder / str(number), mutation.seconds, mutation, self.most)
                    running[process] = number, folder / str(number)
                if running:
                    process, status = os.wait()
                    if process in running:
                        number, place = running.pop(process)
                        test = _last(place)
                        is_noticed = os.waitstatus_to_exitcode(status) != PASSED
                        if is_noticed:
                            noticing.add(test)
                        self.report(number, "noticed" if is_noticed else "survived", test if is_noticed else "")
            items = [item for item in session.items if item.nodeid in noticing]
            if items:
                process = _forked(session, items, folder / "again", max(each.seconds for each in self.mutations))
                _, status = os.waitpid(process, 0)
                self.failing = (folder / "again" / "failed").read_text().splitlines()
                if os.waitstatus_to_exitcode(status) not in (PASSED, FAILED):
                    self.failing.append(_last(folder / "again"))
        return True


def _is_placed(mutation: Mutation) -> bool:
    """Whether a fork can make a mutation. Imports the module."""
    if not mutation.module:
        return False
    try:
        importlib.import_module(mutation.module)
    except ImportError:
        return False
    process = os.fork()
    if process == 0:
        code = FAILED
        with suppress(BaseException):
            code = PASSED if mutation.place() else FAILED
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == PASSED


def _last(folder: Path) -> str:
    return (folder / "running").read_text()


def _forked(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    folder: Path,
    seconds: int,
    mutation: Mutation | None = None,
    most: float = math.inf,
) -> int:
    """Run tests in a fork, over a mutation until one fails or ``most`` CPU seconds are used; return the number of its
    process."""
    (folder / "temporary").mkdir(parents=True)
    (folder / "running").write_text("")
    (folder / "failed").write_text("")
    process = os.fork()
    if process:
        return process
    code = FAILED
    try:
        os.environ |= {"TMPDIR": str(folder / "temporary")}
        tempfile.tempdir = None
        config = session.config
        config.pluginmanager.unregister(name="terminalreporter")
        config._tmp_path_factory._basetemp = folder / "temporary"  # type: ignore[attr-defined]
        limits = Limits(folder / "running", seconds)
        config.pluginmanager.register(limits)
        if mutation is not None:
            assert mutation.place()
        begin = time.process_time()
        for item, following in zip(items, [*items[1:], None], strict=True):
            before = session.testsfailed
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed > before:
                with (folder / "failed").open("a") as file:
                    file.write(f"{item.nodeid}\n")
                if mutation is not None:
                    break
            if time.process_time() - begin > most:
                break
        code = FAILED if session.testsfailed else PASSED
        session._setupstate.teardown_exact(None)
    finally:
        os._exit(code)


class Limits:
    """A plugin that writes the name of each test to a file as it starts, and limits its CPU ``seconds``."""

    def __init__(self, running: Path, seconds: int) -> None:
        self.running, self.seconds = running, seconds
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running.write_text(nodeid)
        last = int(time.process_time()) + self.seconds
        resource.setrlimit(resource.RLIMIT_CPU, (last, resource.RLIM_INFINITY))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Limits(Path(os.environ["MUTANT_RUNNING"]), int(os.environ["MUTANT_SECONDS"])))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    files = list(dict.fromkeys(argument.partition("::")[0] for argument in config.args))
    names = json.loads(os.environ["MUTANT_NAMES"])
    items[:] = ordered(items, Mutation("", "", "", files, names, True, 0))


def ordered(items: Sequence[pytest.Item], mutation: Mutation) -> list[pytest.Item]:
    """Return the tests of a mutation's files in the order in which they run: Spark's last."""
    files = {file: number for number, file in enumerate(mutation.files)}

    def order(item: pytest.Item) -> tuple[bool, int, bool, int]:
        functions = _functions(item.path)
        text = functions.get(item.name.partition("[")[0], "")
        text += "".join(function for name, function in functions.items() if f"{name}(" in text)
        is_generated = hasattr(getattr(item, "obj", None), "hypothesis")
        return _needs_spark(item), nearest(mutation.names, text), is_generated, files[_file_of(item)]

    chosen = (item for item in items if _file_of(item) in files and (mutation.has_spark or not _needs_spark(item)))
    return sorted(chosen, key=order)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _needs_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None


def nearest(names: Mapping[str, int], text: str) -> int:
    """Return the least distance of the names that are in a text; more than all of them without any."""
    distances = [distance for name, distance in names.items() if re.search(rf"\b{name}\b", text)]
    return min(distances, default=len(names))


@functools.cache
def _functions(path: Path) -> dict[str, str]:
    """The functions of a file, with the lines of each."""
    text = path.read_text()
    lines = text.splitlines()
    return {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }
