"""Heddle: thousands of sliding-window aggregates over the same streams, computed once.

What is named here is Heddle's public face in Python; the command line is made of the same. Nothing slow is imported
before it is used.

>>> import heddle
>>> house = heddle.open("var/warehouse")                              # doctest: +SKIP
>>> house.read("network_delay_5h", since="2013-07-01").to_pandas()    # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import polars
    from pyspark.sql import SparkSession

    from heddle.house import Answers, House, Moment, QueryExplanation, StoredPlan
    from optimizer.errors.diagnostics import HeddleError as Error

__all__ = ["Answers", "Error", "House", "Moment", "QueryExplanation", "StoredPlan", "__version__"]
__all__ += ["connect", "open", "read", "register", "scan"]

Place = str | os.PathLike[str]
"""The folder of a warehouse."""


def open(warehouse: Place) -> House:
    """The warehouse in a folder, which has to be there.

    Raises HDL-501 for a folder that holds something else, HDL-502 if there is none, HDL-503 for another format.
    """
    from heddle.house import House
    from spark_jobs.store.warehouse.warehouse import Warehouse

    return House(Warehouse.open(warehouse, create=False))


def read(query: str, warehouse: Place, since: Moment | None = None, until: Moment | None = None) -> Answers:
    """The published answers of a query: :meth:`House.read`."""
    return open(warehouse).read(query, since, until)


def scan(query: str, warehouse: Place) -> polars.LazyFrame:
    """A query's answers as a lazy frame of Polars: :meth:`House.scan`."""
    return open(warehouse).scan(query)


def connect(warehouse: Place, queries: Sequence[str] | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in which every query, or each of ``queries``, is a view: :meth:`House.connect`."""
    return open(warehouse).connect(queries)


def register(spark: SparkSession, warehouse: Place) -> list[str]:
    """Make every query a temporary view of a Spark session: :meth:`House.register`."""
    return open(warehouse).register(spark)


def __getattr__(name: str) -> Any:
    """Import one of the names above when it is first used: DAG files and plugins import this package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("heddle")
    if name == "Error":
        from optimizer.errors.diagnostics import HeddleError

        return HeddleError
    if name in __all__:
        from heddle import house

        return getattr(house, name)
    raise AttributeError(f"module 'heddle' has no attribute {name!r}")
