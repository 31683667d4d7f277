"""Which buckets of partials make a row group together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.store.warehouse import data_files
from spark_jobs.store.warehouse.data_files import _together


@pytest.mark.parametrize(
    ("numbers", "groups"), [(1, [(0, 4)]), (100, [(0, 2), (2, 4)]), (200, [(0, 1), (1, 2), (2, 3), (3, 4)])]
)
def test_large_states_make_row_groups_of_few_rows(
    numbers: int, groups: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "BUCKET_BYTES", 900)
    part = pa.table({"bucket": [0, 1, 2, 3], "longs": pa.array([[7] * numbers] * 4, pa.list_(pa.int64()))})
    assert list(_together(part, np.array([[0, 1, 2, 3, 4]]), 10)) == groups


def test_many_rows_of_a_bucket_are_alone() -> None:
    part = pa.table({"bucket": [0, 1, 1, 2], "longs": pa.array([[7]] * 4, pa.list_(pa.int64()))})
    assert list(_together(part, np.array([[0, 1, 3, 4]]), 2)) == [(0, 1), (1, 2), (2, 3)]
