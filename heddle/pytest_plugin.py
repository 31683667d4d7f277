"""A plugin of pytest: the tests of a file of ``heddle test`` are tests of pytest.

pytest loads it wherever Heddle is installed, so it imports nothing else of Heddle until it collects such a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from spark_jobs.operations.query_tests import Outcome, QuerySuite, QueryTest

LARGEST = 1 << 20
"""Bytes of a file of tests that are read."""

_KEYS = (rb"^tests\s*:", rb"^[\s-]+query\s*:", rb"^[\s-]+(given|expect)\s*:")
"""Lines that a file of tests of queries has; other YAML files with ``tests:`` are left alone."""


@pytest.hookimpl
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect YAML files that test queries."""
    if file_path.suffix not in (".yaml", ".yml") or not _has_query_tests(file_path):
        return None
    return QueryTestFile.from_parent(parent, path=file_path)


def _has_query_tests(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST)
    except OSError:
        return False
    return all(re.search(key, text, re.MULTILINE) for key in _KEYS)


class QueryTestFile(pytest.File):
    """A file of tests of queries."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each test. A file that cannot be read is an error of its collection, at its line."""
        from optimizer.errors.diagnostics import HeddleError
        from spark_jobs.operations.query_tests import QuerySuite

        try:
            suite = QuerySuite.read(_shown(self.path))
        except HeddleError as error:
            raise self.CollectError(str(error)) from None
        for test in suite.tests:
            yield QueryTestItem.from_parent(self, name=test.name, suite=suite, test=test)


def _shown(path: Path) -> Path:
    """A path as people write it: relative to the working folder if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


class QueryTestItem(pytest.Item):
    """A test of a query."""

    def __init__(self, *, suite: QuerySuite, test: QueryTest, **named: Any) -> None:
        super().__init__(**named)
        self.suite, self.test = suite, test

    def runtest(self) -> None:
        """Answer the query and compare."""
        outcome = self.suite.outcome(self.test)
        if not outcome.has_passed:
            raise AnswersDiffer(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The difference, as ``heddle test`` shows it, below the place of the test."""
        if isinstance(excinfo.value, AnswersDiffer):
            return f"{self.test.file}:{self.test.line}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Path, line (from 0) and name of the test."""
        return self.path, self.test.line - 1, self.name


class AnswersDiffer(AssertionError):
    """A query does not answer as its test expects."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("\n".join([f"query {outcome.test.query}", *outcome.lines(), *map(str, outcome.problems)]))
