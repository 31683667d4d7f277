"""Which answers are read of a span of instants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from spark_jobs.results.read import _rows
from spark_jobs.store.warehouse.schemas import INSTANT

INSTANTS = [DAY, DAY + 1, 2 * DAY, 2 * DAY + 1]
TABLE = pa.table(
    {
        "query": ["q"] * 4 + ["other"],
        "instant": pa.array([*INSTANTS, DAY + 1], pa.int64()).cast(INSTANT),
        "day": [day_label(instant - 1) for instant in (*INSTANTS, DAY + 1)],
    }
)
WAREHOUSE: Any = SimpleNamespace(path=lambda name: name, dataset=lambda name, current, where: ds.dataset(TABLE))


@pytest.mark.parametrize(
    ("begin", "end", "instants"),
    [(None, None, INSTANTS), (DAY, 2 * DAY, INSTANTS[1:3]), (None, DAY, INSTANTS[:1]), (2 * DAY, None, INSTANTS[3:])],
)
def test_instants_are_after_the_begin_and_up_to_the_end(
    begin: int | None, end: int | None, instants: list[int]
) -> None:
    rows = _rows(WAREHOUSE, "q", begin, end)
    assert rows["instant"].cast(pa.int64()).to_pylist() == instants
    assert rows["fingerprint"].null_count == len(instants)
