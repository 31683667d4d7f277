"""Columns of staged files as the inspection reads them, and what it counts in several files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.audit.checks.inspection import Findings, single_chunk, summed
from spark_jobs.audit.checks.suite import FINDINGS


@pytest.mark.parametrize("chunks", [[], [[1, 2]], [[1], [2, 3]], [[], [1]]])
def test_a_column_of_several_chunks_keeps_all_values(chunks: list[list[int]]) -> None:
    column = pa.chunked_array(chunks, pa.int64())
    assert single_chunk(column).to_pylist() == sum(chunks, [])


def test_findings_of_files_add_up() -> None:
    def file(query: str, answers: int, wrong: int, example: str) -> Findings:
        row = {"query": query, "answers": answers, **dict.fromkeys(FINDINGS, 0), "wrong_window": wrong}
        return Findings("", [row | {"examples": example}], None)

    rows = summed([file("b", 2, 1, "x"), file("a", 3, 0, ""), file("b", 5, 2, "y")])
    assert [(row["query"], row["answers"], row["wrong_window"], row["examples"]) for row in rows] == [
        ("a", 3, 0, ""),
        ("b", 7, 3, "x; y"),
    ]
