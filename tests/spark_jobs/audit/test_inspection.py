"""Columns of staged files as the inspection reads them, and what it counts in several files."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.audit.checks.inspection import Findings, _parsed, single_chunk, summed
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


JSON = st.recursive(
    st.one_of(st.none(), st.text(max_size=3), st.integers(-9, 9), st.booleans()),
    lambda values: st.one_of(st.lists(values, max_size=3), st.dictionaries(st.text(max_size=2), values, max_size=2)),
    max_leaves=4,
)


@given(
    st.one_of(JSON.map(json.dumps), st.text('["a], \\nu0\t\u2003', max_size=9)),
    st.sampled_from(["", " ", "\n", "\u2003", "]"]),
)
@example('["a"', "")
@example('["a"],["b"]', "")
@example("", "")
def test_a_key_is_a_list_of_texts_and_nulls_or_wrong(text: str, behind: str) -> None:
    try:
        values = json.loads(text + behind)
    except ValueError:
        values = None
    is_key = isinstance(values, list) and all(value is None or isinstance(value, str) for value in values)
    assert _parsed(text + behind) == (values if is_key else None)
