"""Which rows of results a revision replaces, and in what order rows are written: by query, as they were within one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.pipeline.run.publication import answers_at
from spark_jobs.store.warehouse import data_files

RUNS = st.lists(st.tuples(st.sampled_from(["a", "b", "é", "Z", ""]), st.integers(1, 9)), min_size=1, max_size=12)


@given(RUNS, st.integers(1, 6), st.sampled_from([1, 3, 1 << 30]), st.integers(1, 9))
def test_rows_are_laid_out_by_query_whether_moved_in_runs_or_one_by_one(
    runs: Sequence[tuple[str, int]], chunk: int, long: int, most: int
) -> None:
    names = [name for name, count in runs for _ in range(count)]
    rows = pa.table({"query": names, "at": range(len(names))})
    rows = pa.concat_tables([rows.slice(first, chunk) for first in range(0, len(rows), chunk)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "LONG_RUN", long)
        patch.setattr(data_files, "FILE_ROWS", most)
        files = list(data_files._by_query(rows))
    laid_out_rows = [tuple(row.values()) for file in files for row in file.to_pylist()]
    assert laid_out_rows == sorted(zip(names, range(len(names)), strict=True), key=lambda row: row[0].encode())
    # a query is in one file
    assert sum(len(set(file["query"].to_pylist())) for file in files) == len(set(names))


ANSWERS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6)), max_size=20)
INSTANTS = st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 6), max_size=4))


@given(ANSWERS, st.dictionaries(st.sampled_from("abcd"), st.integers(0, 6)), st.none() | INSTANTS)
def test_answers_that_are_replaced_are_those_of_their_query_and_instant(
    answers: Sequence[tuple[str, int]], until: dict[str, int], instants: dict[str, list[int]] | None
) -> None:
    stored = pa.table(
        {
            "query": pa.array([name for name, _ in answers], pa.string()),
            "instant": pa.array([at for _, at in answers], pa.timestamp("us", "UTC")),
        }
    )
    chosen = None if instants is None else {name: np.array(at, dtype=np.int64) for name, at in instants.items()}
    expected = [
        name in until and at <= until[name] and (instants is None or at in instants.get(name, []))
        for name, at in answers
    ]
    assert answers_at(stored, until, chosen).to_pylist() == expected
