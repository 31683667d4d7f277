"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole test process: starting one costs more than most tests."""
    from spark_jobs.session.session import start_session

    # hundreds of generated plans stay in the driver's caches
    os.environ.setdefault("HEDDLE_DRIVER_MEMORY", "5g")
    session = start_session("tests", "local[2]")
    _sessions.append(session)
    yield session
    _sessions.clear()
    session.stop()


_sessions: list[SparkSession] = []


@pytest.fixture(autouse=True)
def _the_session_stays() -> Iterator[None]:
    """A command that is tested in this process may stop the session of all tests: that test fails, not those after."""
    yield
    for session in _sessions:
        if session.sparkContext._jsc is None:
            _sessions.clear()
            pytest.fail("this test stopped the Spark session of all tests: give what it runs one of its own")
