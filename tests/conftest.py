"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole test process: starting one costs more than most tests."""
    from spark_jobs.session import start_session

    session = start_session("tests", "local[2]")
    yield session
    session.stop()
