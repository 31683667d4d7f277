"""A pytest plugin that sums the CPU seconds of tests, those of child processes included, and lists the dearest.

python -m pytest -p tests.cpu_seconds FILE ...

A fixture counts with the test that sets it up or tears it down. Children that end without being waited for are lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import psutil
import pytest

LISTED = 25
"""How many files and how many tests are listed."""

MOST = 5.0
"""CPU seconds from which on a test of ``make test`` is listed that tries no less there than in ``make test-slow``."""

_read = [0.0]
_by_test: Counter[str] = Counter()
_full: set[str] = set()


def used() -> float:
    """CPU seconds of this process and all that it started, since they began."""
    own_process = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in [own_process, *own_process.children(recursive=True)])


def pytest_collection_finish() -> None:
    _read[0] = used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # a look at all processes takes some milliseconds: one a test, which does not count
    if report.when == "teardown":
        report.cpu_seconds = used() - _read[0]
        _read[0] = used()
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _by_test[report.nodeid] += getattr(report, "cpu_seconds", 0.0)
    if not {"longer", "reduced"} & set(report.keywords):
        _full.add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    by_file: Counter[str] = Counter()
    for test, seconds in _by_test.items():
        by_file[test.partition("::")[0]] += seconds
    terminalreporter.section(f"{by_file.total():.0f} CPU seconds of tests")
    for name, seconds in [*by_file.most_common(LISTED), *_by_test.most_common(LISTED)]:
        terminalreporter.line(f"{seconds:7.2f} {name}")
    dear = [(name, seconds) for name, seconds in _by_test.most_common() if seconds > MOST and name in _full]
    terminalreporter.section(f"{len(dear)} tests take over {MOST:.0f} and are neither longer nor reduced")
    for name, seconds in dear:
        terminalreporter.line(f"{seconds:7.2f} {name}")
