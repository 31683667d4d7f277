"""Columns of staged files as the inspection reads them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.audit.checks.inspection import single_chunk


@pytest.mark.parametrize("chunks", [[], [[1, 2]], [[1], [2, 3]], [[], [1]]])
def test_a_column_of_several_chunks_keeps_all_values(chunks: list[list[int]]) -> None:
    column = pa.chunked_array(chunks, pa.int64())
    assert single_chunk(column).to_pylist() == sum(chunks, [])
