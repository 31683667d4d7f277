"""Heddle: thousands of sliding-window aggregates over the same streams, computed once.

What is named here is Heddle's public face in Python; the command line is made of the same. Nothing slow is imported
before it is used.

>>> import heddle
>>> house = heddle.open("var/warehouse")                              # doctest: +SKIP
>>> house.read("network_delay_5h", since="2013-07-01").to_pandas()    # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import Any

from heddle.house import Answers, House, Moment, QueryExplanation, StoredPlan
from optimizer.errors.diagnostics import HeddleError as Error

__all__ = ["Answers", "Error", "House", "Moment", "QueryExplanation", "StoredPlan", "__version__", "open"]


def open(warehouse: str | os.PathLike[str]) -> House:
    """The warehouse in a folder, which has to be there.

    Raises HDL-501 for a folder that holds something else, HDL-502 if there is none, HDL-503 for another format.
    """
    from spark_jobs.warehouse.warehouse import Warehouse

    return House(Warehouse.open(warehouse, create=False))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("heddle")
    raise AttributeError(f"module 'heddle' has no attribute {name!r}")
