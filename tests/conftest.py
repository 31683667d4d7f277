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
    from spark_jobs.session import start_session

    # hundreds of generated plans stay in the driver's caches
    os.environ.setdefault("HEDDLE_DRIVER_MEMORY", "5g")
    session = start_session("tests", "local[2]")
    yield session
    session.stop()
