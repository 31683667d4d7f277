"""Answers in arrays as rows of the results table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from optimizer.workload.instants import DAY
from optimizer.workload.values import Window
from spark_jobs.results.rows import AnswerRows, CarrierColumn, ResultColumns, stamped
from spark_jobs.store.warehouse.schemas import RESULTS

CARRIED = {
    "longs": CarrierColumn(np.zeros(0, np.int64), None, 0),
    "doubles": CarrierColumn(np.zeros(0), None, 0),
    "texts": CarrierColumn(np.zeros(0, object), None, 0),
}


def answer_rows(keys: pa.StringArray, group: Sequence[int], instants: Sequence[int] | None = None) -> AnswerRows:
    """Answers without outputs of some groups."""
    moments = np.array([0] * len(group) if instants is None else instants, np.int64)
    return AnswerRows("trades", "q", Window(5, 5), keys, np.array(group, np.int64), moments, CARRIED, {})


def test_parts_with_keys_of_their_own_have_one_dictionary() -> None:
    first, second = pa.array(["a", "b", "c", "d"]), pa.array(["c", "e"])
    parts = [(first, [3, 1]), (first, [1, 3]), (second, [0, 1]), (first, [2])]
    column = ResultColumns([answer_rows(*part) for part in parts]).of("key")
    assert column.to_pylist() == ["d", "b", "b", "d", "c", "e", "c"]
    assert sorted(column.dictionary.to_pylist()) == ["b", "c", "d", "e"]
    # all keys between the first and the last
    column = ResultColumns([answer_rows(first, [2, 1, 2])]).of("key")
    assert column.to_pylist() == ["c", "b", "c"] and column.dictionary.to_pylist() == ["b", "c"]


def test_an_answer_of_midnight_belongs_to_the_day_before() -> None:
    batch = answer_rows(pa.array(["[]"]), [0, 0, 0, 0], [DAY - 1, DAY, DAY + 1, 2 * DAY]).rows()
    constants: dict[str, pa.Scalar] = {"plan_version": pa.scalar(1), "revision": pa.scalar(0)}
    table = stamped(batch, "trades", constants | {"run_id": pa.scalar("r")}, {"q": "f"})
    assert table.schema == RESULTS and table["fingerprint"].to_pylist() == ["f"] * 4
    assert table["day"].to_pylist() == ["1970-01-01", "1970-01-01", "1970-01-02", "1970-01-02"]
