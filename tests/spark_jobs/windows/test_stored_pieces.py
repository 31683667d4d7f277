"""Which pieces of partials are stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from optimizer.workload.instants import DAY
from spark_jobs.windows.partials.stored_coverage import coverage

ROWS = [
    # stream, fingerprint, key, day, begin, end
    ("trades", "f", None, "1970-01-01", 0, 10),
    ("trades", "f", None, "1970-01-01", 10, 20),
    ("trades", "f", "[]", "1970-01-01", 10, 20),
    ("trades", "f", None, "1970-01-01", 20, DAY),
    ("trades", "f", None, "1970-01-02", DAY, DAY + 5),
    ("quotes", "g", None, "1970-01-01", 0, 10),
]
NAMES = ("stream", "fingerprint", "key", "day", "fragment_start", "fragment_end")
TABLE = pa.table(dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True)) | {"texts": [["c"]] * len(ROWS)})
WAREHOUSE: Any = SimpleNamespace(path=lambda name: "partials", dataset=lambda *given: ds.dataset(TABLE))


@pytest.mark.parametrize(
    ("within", "begins"),
    [(None, [0, 10, 20, DAY]), ((10, 20), [10]), ((9, 21), [0, 10, 20]), ((0, 1), [0]), ((DAY, DAY + 1), [DAY])],
)
def test_pieces_that_only_touch_a_span_are_not_in_it(within: tuple[int, int] | None, begins: list[int]) -> None:
    stored_pieces = coverage(WAREHOUSE, ["f"], within=within)
    assert [piece[0] for piece in stored_pieces.get("f", [])] == begins


def test_pieces_of_a_stream_are_of_all_its_synopses() -> None:
    assert coverage(WAREHOUSE, None, stream="quotes") == {"g": [(0, 10, "c")]}
    assert coverage(WAREHOUSE, []) == {}
