"""Final aggregates: which answers exist, where their outputs stand, and the files that hold them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from optimizer.query import ACQ
from optimizer.synopsis import Synopsis
from spark_jobs.files import BUCKETS, DataFile, bucket_of, write_files
from spark_jobs.final_aggregates import ANSWERS, RESULTS, Part, finals_of, finals_task, places
from spark_jobs.partial_aggregates import Span, partials_of
from spark_jobs.tables import Warehouse
from tests.spark_jobs.test_partial_aggregates import SECOND, STREAM, events, synopsis

DAY = 86_400 * SECOND


def answered(made: Synopsis, query: ACQ, batch: pa.RecordBatch, begin: int, end: int) -> list[dict[str, object]]:
    partials = partials_of([batch], STREAM, [Span(made, -100 * SECOND, 100 * SECOND)])
    batches = list(finals_of(partials, made, [query], begin * SECOND, end * SECOND))
    rows: list[dict[str, object]] = pa.Table.from_batches(batches, ANSWERS).to_pylist()
    return rows


def test_outputs_stand_in_the_list_of_their_carrier_in_the_querys_order() -> None:
    _, query = synopsis(
        "avg(price) AS a, count(*) AS n, min(symbol) AS s, sum(fee) AS f, max(price) AS b, max(late) AS l"
    )
    assert places(query) == [
        ("doubles", 0),
        ("longs", 0),
        ("texts", 0),
        ("texts", 1),
        ("doubles", 1),
        ("longs", 1),
    ]


def test_a_window_exists_if_it_holds_an_event_of_the_group_that_passes_the_filter() -> None:
    made, query = synopsis("symbol, count(volume) AS n", slide=10, range_=20, rest="WHERE price > 0 GROUP BY symbol")
    batch = events(
        {"at": 15, "symbol": "A", "price": 1.0},  # volume null: the window exists, its count is 0
        {"at": 25, "symbol": "B", "price": -1.0, "volume": 1},
        {"at": 45, "symbol": None, "price": 1.0, "volume": 1},
    )
    found = answered(made, query, batch, 0, 60)
    assert [(row["key"], row["window_start"].second, row["longs"]) for row in found] == [  # type: ignore[attr-defined]
        (["A"], 0, [0]),
        (["A"], 10, [0]),
        ([None], 30, [1]),
        ([None], 40, [1]),
    ]


@pytest.mark.parametrize("begin, end, ends", [(20, 30, [30]), (19, 30, [20, 30]), (20, 29, []), (20, 40, [30, 40])])
def test_only_windows_that_end_in_the_half_open_interval(begin: int, end: int, ends: list[int]) -> None:
    made, query = synopsis("count(*) AS n", slide=10, range_=10)
    found = answered(made, query, events(*({"at": at} for at in range(50))), begin, end)
    assert [row["window_end"].second for row in found] == ends  # type: ignore[attr-defined]
    assert all(row["longs"] == [10] for row in found)


def test_an_overflow_is_told_on_its_row_alone() -> None:
    made, query = synopsis("sum(volume) AS v, count(*) AS n")
    huge = 2**63 - 1
    batch = events({"at": 1, "volume": huge}, {"at": 2, "volume": 1}, {"at": 11, "volume": huge})
    first, second = answered(made, query, batch, 0, 20)
    assert first["longs"] == [None, 2] and first["error"] == "HDL-601 v does not fit long"
    assert second["longs"] == [huge, 1] and second["error"] is None


# ------------------------------------------------------------------------------------------------ files
def test_buckets_are_the_same_for_ever() -> None:
    """Stored files are laid out by them: another hash would miss what older versions wrote."""
    assert BUCKETS == 64
    assert bucket_of(["[]", '["A"]', "[null]"]).tolist() == [41, 44, 51]


def test_the_tasks_of_all_buckets_answer_each_group_once_and_by_day(tmp_path: Path) -> None:
    made, query = synopsis("symbol, count(*) AS n", slide=43_200, range_=86_400, rest="GROUP BY symbol")
    warehouse = Warehouse.open(tmp_path)
    rows = [{"at": 43_200 * half + 5, "symbol": f"S{number}"} for number in range(40) for half in range(2)]
    span = Span(made, 0, DAY)
    partials = partials_of([events(*rows)], STREAM, [span])
    stored = [str(tmp_path / "partials" / file.path) for file in write_files(warehouse.path("partials"), partials)]
    stamp = {
        "plan_version": pa.scalar(1, pa.int64()),
        "revision": pa.scalar(1, pa.int64()),
        "run_id": pa.scalar("r", pa.string()),
    }
    task = finals_task([Part(made, (query,), 0, 2 * DAY)], 0, stored, warehouse.path("results"), stamp)
    files = [
        DataFile.of(text)
        for bucket in range(BUCKETS)
        for described in task(iter([pa.RecordBatch.from_pydict({"id": [bucket]})]))
        for text in described.column("file").to_pylist()
    ]
    assert DeltaTable(warehouse.path("results")).to_pyarrow_dataset().count_rows() == 0  # not committed yet
    warehouse.replace(
        "results", files, ("1970-01-01", "1970-01-02"), lambda rows: pa.array([False] * len(rows)), "i", 1
    )
    table = DeltaTable(warehouse.path("results")).to_pyarrow_table()
    answers = sorted((row["key"][0], row["window_end"].hour, row["day"], row["longs"][0]) for row in table.to_pylist())
    # the windows that end at 12:00 and 24:00 of the first day, and at 12:00 of the second
    assert answers == sorted(
        (f"S{number}", hour, day, count)
        for number in range(40)
        for hour, day, count in ((12, "1970-01-01", 1), (0, "1970-01-01", 2), (12, "1970-01-02", 1))
    )


def test_readers_that_prune_by_statistics_find_every_row(tmp_path: Path) -> None:
    """delta-rs takes a column without bounds, beside others that have some, for one that nothing can match."""
    warehouse = Warehouse.open(tmp_path)
    instant = pa.scalar(5, pa.timestamp("us", tz="UTC")).as_py()
    row = {
        "day": "1970-01-01",
        "stream": "trades",
        "query": "q",
        "window_start": instant,
        "window_end": instant,
        "key": ["A"],
        "longs": [],
        "doubles": [],
        "texts": [],
        "error": None,
        "plan_version": 3,
        "revision": 1,
        "run_id": "r",
    }
    other = row | {"query": "z", "error": "HDL-601 v does not fit long", "run_id": "s"}
    files = list(write_files(warehouse.path("results"), pa.Table.from_pylist([row, other], schema=RESULTS)))
    assert json.loads(files[0].stats)["numRecords"] == 2
    warehouse.replace("results", files, ("1970-01-01",) * 2, lambda rows: pa.array([False] * len(rows)), "i", 1)
    results = DeltaTable(warehouse.path("results")).to_pyarrow_dataset()
    for column, value, expected in (
        ("query", "q", 1),
        ("run_id", "s", 1),
        ("stream", "trades", 2),
        ("plan_version", 3, 2),
        ("window_end", instant, 2),
        ("query", "y", 0),
    ):
        assert results.count_rows(filter=ds.field(column) == value) == expected, column
    assert results.count_rows(filter=ds.field("error").is_valid()) == 1
