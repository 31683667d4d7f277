"""Final aggregates: which answers exist and qualify, what they are, and the files that hold them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.language.parser import parse
from optimizer.synopses.synopsis import Synopsis, synopses_of
from optimizer.workload.values import ACQ, BOOLEAN, DATE, TIMESTAMP, Type, decimal
from spark_jobs.results import writer
from spark_jobs.results.rows import group_values, places, typed
from spark_jobs.store.warehouse import schemas
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile, bucket_of, write_files
from spark_jobs.store.warehouse.schemas import ANSWERS, RESULTS
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.finals import window_query
from spark_jobs.windows.finals.stage import finals_of, finals_task
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from tests.sizes import examples
from tests.spark_jobs.kernels import differences, kernel_answers, of_query
from tests.spark_jobs.windows.partial_cases import SECOND, STREAM, events, synopsis
from tests.workloads import Case, cases, outputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400 * SECOND
LENIENT = settings(deadline=None, suppress_health_check=list(HealthCheck))


def answered(made: Synopsis, query: ACQ, batch: pa.RecordBatch, begin: int, end: int) -> list[dict[str, Any]]:
    partials = partials_of([batch], STREAM, [FillRequest(made, -100 * SECOND, 100 * SECOND)])
    batches = list(finals_of(partials, made, [query], begin * SECOND, end * SECOND))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, ANSWERS).to_pylist()
    return rows


# --------------------------------------------------------------------------------------- what a row holds
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


def test_keys_are_read_back_column_by_column() -> None:
    keys = pa.array(['["a\\"b",null]', '["é","[1]"]', '["a\\"b",null]'])
    for given_keys in (keys, pa.chunked_array([keys]), keys.dictionary_encode()):
        assert [column.to_pylist() for column in group_values(given_keys, 2)] == [
            ['a"b', "é", 'a"b'],
            [None, "[1]", None],
        ]
    assert group_values(pa.chunked_array([], pa.string()), 0) == []
    assert [len(column) for column in group_values(pa.chunked_array([], pa.string()), 2)] == [0, 0]


@pytest.mark.parametrize(
    ("stored", "type", "expected"),
    [
        (pa.array([1, 0, None]), BOOLEAN, [True, False, None]),
        (pa.array([0, None]), DATE, [date(1970, 1, 1), None]),
        (pa.array(["1970-01-02"]), DATE, [date(1970, 1, 2)]),
        (pa.array(["1000000", None]), TIMESTAMP, [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None]),
        (pa.array(["1.50", None]), decimal(5, 2), [Decimal("1.50"), None]),
    ],
)
def test_stored_values_are_typed(stored: pa.Array, type: Type, expected: list[Any]) -> None:
    for column in (stored, pa.chunked_array([stored])):
        assert typed(column, type).to_pylist() == expected


# --------------------------------------------------------------------------------------- which answers exist
def test_a_window_exists_if_it_holds_an_event_of_the_group_that_passes_the_filter() -> None:
    query_synopsis, query = synopsis(
        "symbol, count(volume) AS n", slide=10, range_=20, rest="WHERE price > 0 GROUP BY symbol"
    )
    batch = events(
        {"at": 15, "symbol": "A", "price": 1.0},  # volume null: the window exists, its count is 0
        {"at": 25, "symbol": "B", "price": -1.0, "volume": 1},
        {"at": 45, "symbol": None, "price": 1.0, "volume": 1},
    )
    answers = answered(query_synopsis, query, batch, 0, 60)
    assert [(row["key"], row["window_start"].second, row["longs"]) for row in answers] == [
        ('["A"]', 0, [0]),
        ('["A"]', 10, [0]),
        ("[null]", 30, [1]),
        ("[null]", 40, [1]),
    ]
    assert all(row["instant"] == row["window_end"] and row["position"] is None for row in answers)


@pytest.mark.parametrize("begin, end, ends", [(20, 30, [30]), (19, 30, [20, 30]), (20, 29, []), (20, 40, [30, 40])])
def test_only_windows_that_end_in_the_half_open_interval(begin: int, end: int, ends: list[int]) -> None:
    query_synopsis, query = synopsis("count(*) AS n", slide=10, range_=10)
    answers = answered(query_synopsis, query, events(*({"at": at} for at in range(50))), begin, end)
    assert [row["window_end"].second for row in answers] == ends
    assert all(row["longs"] == [10] for row in answers)


def test_a_historical_window_is_the_answer_of_a_later_instant() -> None:
    text = "SELECT count(*) AS n FROM trades WINDOW RANGE '20 seconds' SLIDE '10 seconds' ENDING '15 seconds' AGO ON ts"
    ((synopsis, (query,)),) = synopses_of(STREAM, parse(text, {"trades": STREAM}).queries).items()
    answers = answered(synopsis, query, events({"at": 7}, {"at": 12}), 20, 40)
    spans = [(row["window_start"].second, row["window_end"].second, row["instant"].second) for row in answers]
    assert spans == [(55, 15, 30), (5, 25, 40)] and [row["longs"] for row in answers] == [[2], [2]]


def test_an_overflow_is_told_on_its_row_alone() -> None:
    query_synopsis, query = synopsis("sum(volume) AS v, count(*) AS n")
    huge = 2**63 - 1
    batch = events({"at": 1, "volume": huge}, {"at": 2, "volume": 1}, {"at": 11, "volume": huge})
    first, second = answered(query_synopsis, query, batch, 0, 20)
    assert first["longs"] == [None, 2] and first["error"] == "HDL-601 v does not fit long"
    assert second["longs"] == [huge, 1] and second["error"] is None


HUGE = [{"at": 1, "volume": 2**63 - 1}, {"at": 2, "volume": 1}]


@pytest.mark.parametrize(
    ("having", "expected"),
    [
        ("sum(volume) > 4", [(20, [5], None), (30, [9], None)]),
        ("n >= 2 AND sum(volume) >= 5", [(20, [5], None)]),
        ("sum(price) > 0", []),  # null satisfies nothing
        ("sum(price) <= 0", []),
        ("max(volume) = 9", [(30, [9], None)]),
        ("count(*) < 2", [(10, [1], None), (30, [9], None)]),
    ],
)
def test_only_answers_that_satisfy_every_threshold_exist(having: str, expected: list[tuple[int, Any, Any]]) -> None:
    query_synopsis, query = synopsis("sum(volume) AS v, count(*) AS n", rest=f"HAVING {having}")
    query = replace(query, outputs=query.outputs[:1])
    batch = events({"at": 1, "volume": 1}, {"at": 11, "volume": 2}, {"at": 12, "volume": 3}, {"at": 21, "volume": 9})
    answers = answered(query_synopsis, query, batch, 0, 30)
    assert [(row["instant"].second, row["longs"], row["error"]) for row in answers] == expected


def test_a_threshold_that_overflows_makes_an_error_of_the_whole_answer() -> None:
    """Nobody knows whether the answer qualifies: it fails closed, unless another threshold is missed anyway."""
    query_synopsis, query = synopsis(
        "min(volume) AS low, sum(volume) AS v", rest="HAVING sum(volume) > 5 AND count(*) > 1"
    )
    (row,) = answered(query_synopsis, query, events(*HUGE, {"at": 11, "volume": 2**63 - 1}), 0, 10)
    assert row["longs"] == [None, None] and row["error"].startswith("HDL-601 HAVING: ")
    query_synopsis, query = synopsis("min(volume) AS low", rest="HAVING sum(volume) > 5 AND count(*) > 2")
    assert answered(query_synopsis, query, events(*HUGE), 0, 10) == []


@pytest.mark.parametrize("function", sorted(AGGREGATES))
def test_every_aggregate_answers_as_the_oracle(function: str) -> None:
    @settings(LENIENT, max_examples=examples(6))
    @given(cases(most_queries=2, most_events=20), outputs("out", (function,)), st.booleans())
    def check(case: Case, output: Any, together: bool) -> None:
        queries = tuple(replace(query, outputs=(output,), having=()) for query in case.workload.queries)
        output_case = replace(case, workload=replace(case.workload, queries=queries))
        table = kernel_answers(output_case, "shared", [3], case.begin, case.end, [0] * len(queries) if together else [])
        assert differences(output_case, table) == []

    check()


@settings(LENIENT, max_examples=examples(15))
@given(cases(), st.integers(1, 9), st.integers(1, 5))
def test_answers_do_not_depend_on_how_much_is_done_at_once(case: Case, block: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_query, "BLOCK", block)
        patch.setattr(window_query, "CHUNK", chunk)
        patch.setattr(window_query, "CHUNK_ELEMENTS", chunk)
        table = kernel_answers(case, "shared", [], case.begin, case.end, [0] * 6)
    assert differences(case, table) == []
    for query in case.workload.queries:
        query_rows = of_query(table, query)
        grain = list(zip(query_rows["key"].to_pylist(), query_rows["instant"].to_pylist(), strict=True))
        assert grain == sorted(grain)


# ------------------------------------------------------------------------------------------------ files
def test_buckets_are_the_same_for_ever() -> None:
    """Stored files are laid out by them: another hash would miss what older versions wrote."""
    assert BUCKETS == 64
    assert bucket_of(["[]", '["A"]', "[null]"]).tolist() == [41, 44, 51]


STAMP = {
    "plan_version": pa.scalar(3, pa.int64()),
    "revision": pa.scalar(1, pa.int64()),
    "run_id": pa.scalar("r", pa.string()),
}


def committed(
    folder: Path, made: Synopsis, query: ACQ, batch: pa.RecordBatch, days: int = 2, tasks: int = BUCKETS
) -> tuple[Warehouse, list[DataFile]]:
    """The answers of some days, by so many tasks, published; and the files that hold them."""
    warehouse = Warehouse.open(folder)
    partials = partials_of([batch], STREAM, [FillRequest(made, 0, days * DAY)])
    stored = [str(folder / "partials" / file.path) for file in write_files(warehouse.path("partials"), partials)]
    task = finals_task([SynopsisWork(made, (query,), 0, days * DAY)], 0, stored, warehouse.path("results"), STAMP)
    files = [
        file for first in range(tasks) for file in task(range(first, BUCKETS, tasks)) if isinstance(file, DataFile)
    ]
    assert DeltaTable(warehouse.path("results")).to_pyarrow_dataset().count_rows() == 0  # not committed yet
    labels = sorted(file.day for file in files)
    none = lambda rows: pa.array([False] * len(rows))  # noqa: E731
    warehouse.replace("results", files, (labels[0], labels[-1]), none, "i", 1)
    return warehouse, files


@pytest.mark.parametrize("tasks", [BUCKETS, 2])
def test_the_tasks_of_all_buckets_answer_each_group_once_and_by_day(tmp_path: Path, tasks: int) -> None:
    query_synopsis, query = synopsis("symbol, count(*) AS n", slide=43_200, range_=86_400, rest="GROUP BY symbol")
    rows = [{"at": 43_200 * half + 5, "symbol": f"S{number}"} for number in range(40) for half in range(2)]
    warehouse, files = committed(tmp_path, query_synopsis, query, events(*rows), tasks=tasks)
    assert len(files) <= 2 * tasks and {file.day for file in files} == {"1970-01-01", "1970-01-02"}
    table = DeltaTable(warehouse.path("results")).to_pyarrow_table()
    answers = sorted((row["key"], row["instant"].hour, row["day"], row["longs"][0]) for row in table.to_pylist())
    # the windows that end at 12:00 and 24:00 of the first day, and at 12:00 of the second
    assert answers == sorted(
        (f'["S{number}"]', hour, day, count)
        for number in range(40)
        for hour, day, count in ((12, "1970-01-01", 1), (0, "1970-01-01", 2), (12, "1970-01-02", 1))
    )


def test_tasks_answer_instants_that_are_no_edges(tmp_path: Path) -> None:
    """Those of historical windows: the last edge before the end of the interval may come earlier."""
    text = "SELECT count(*) AS n FROM trades WINDOW RANGE '20 seconds' SLIDE '20 seconds' ENDING '15 seconds' AGO ON ts"
    ((synopsis, members),) = synopses_of(STREAM, parse(text, {"trades": STREAM}).queries).items()
    partials = partials_of([events(*({"at": at} for at in range(30)))], STREAM, [FillRequest(synopsis, 0, 60 * SECOND)])
    stored = [str(tmp_path / file.path) for file in write_files(tmp_path, partials)]
    part = SynopsisWork(synopsis, tuple(members), 0, synopsis.fragments.last_edge(60 * SECOND), 60 * SECOND)
    (file,) = finals_task([part], 20 * SECOND, stored, str(tmp_path / "results"), STAMP)(range(BUCKETS))
    assert isinstance(file, DataFile)
    rows = pq.read_table(tmp_path / "results" / file.path, partitioning=None)
    assert [(row["instant"].second, row["longs"]) for row in rows.to_pylist()] == [(40, [20]), (0, [5])]


@pytest.mark.parametrize("pending", [1, 10, 1 << 20])
def test_row_groups_and_days_do_not_change_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pending: int
) -> None:
    """Small row groups, several families with the same and with other keys, errors, nulls and texts."""
    monkeypatch.setattr(writer, "ROW_GROUP", pending)
    monkeypatch.setattr(writer, "PENDING", pending)
    window = "FROM trades WINDOW RANGE '2 days' SLIDE '12 hours' ON ts"
    text = f"""
    -- name: a
    SELECT symbol, sum(volume) AS v, max(symbol) AS s, avg(price) AS p {window} GROUP BY symbol;
    -- name: b
    SELECT symbol, count(*) AS n {window} WHERE volume > 0 GROUP BY symbol;
    -- name: c
    SELECT symbol, late, min(fee) AS f {window} GROUP BY symbol, late;
    """
    queries = parse(text, {"trades": STREAM}).queries
    batch = events(
        *({"at": 40_000 * at, "symbol": f"S{at % 3}", "late": at % 2 == 0, "price": at / 7} for at in range(9)),
        *({"at": 50_000, "symbol": "S1", "volume": 2**63 - 1} for _ in range(2)),
    )
    ((synopsis, members),) = synopses_of(STREAM, queries, [["a", "b", "c"]]).items()
    warehouse = Warehouse.open(tmp_path)
    partials = partials_of([batch], STREAM, [FillRequest(synopsis, 0, 6 * DAY)])
    stored = [str(tmp_path / "partials" / file.path) for file in write_files(warehouse.path("partials"), partials)]
    task = finals_task(
        [SynopsisWork(synopsis, tuple(members), 0, 6 * DAY)], 0, stored, warehouse.path("results"), STAMP
    )
    files = [file for file in task(range(BUCKETS)) if isinstance(file, DataFile)]
    assert len({file.day for file in files}) == len(files) > 3
    tables = [pq.read_table(tmp_path / "results" / file.path, partitioning=None) for file in files]
    assert [file.rows for file in files] == [len(table) for table in tables]
    expected = pa.Table.from_batches(list(finals_of(partials, synopsis, members, 0, 6 * DAY)), ANSWERS)
    grain = [("query", "ascending"), ("key", "ascending"), ("instant", "ascending")]
    read = pa.concat_tables(tables, promote_options="default").sort_by(grain)
    assert expected.num_rows > 30 and pc.sum(pc.is_valid(expected["error"])).as_py() > 0
    for column in ANSWERS.names:
        actual = [read[column].to_pylist()] if column in read.schema.names else [[None] * len(read)]
        assert actual == [expected.sort_by(grain)[column].to_pylist()], column
    for file, table in zip(files, tables, strict=True):
        metadata = pq.read_metadata(tmp_path / "results" / file.path)
        for row_group in range(metadata.num_row_groups):
            columns = [metadata.row_group(row_group).column(at) for at in range(metadata.num_columns)]
            encodings = {column.path_in_schema: column.encodings for column in columns}
            assert all("RLE_DICTIONARY" in encodings[name] for name in ("query", "key", "run_id"))
        bounds = json.loads(file.stats)
        assert bounds["numRecords"] == len(table)
        for name in ("query", "key", "run_id", "plan_version", "stream"):
            values = table[name].to_pylist()
            actual = bounds["minValues"][name], bounds["maxValues"][name], bounds["nullCount"][name]
            assert actual == (min(values), max(values), 0)
        errors = table["error"].drop_null().to_pylist()
        assert bounds["nullCount"]["error"] == len(table) - len(errors)
        assert bounds["maxValues"]["error"] == max(errors, default=None)


def test_readers_that_prune_by_statistics_find_every_row(tmp_path: Path) -> None:
    """delta-rs takes a column without bounds, beside others that have some, for one that nothing can match; files lack
    the columns that are null throughout."""
    query_synopsis, query = synopsis("symbol, sum(volume) AS v", slide=43_200, range_=43_200, rest="GROUP BY symbol")
    batch = events({"at": 5, "symbol": "A", "volume": 1}, *[{"at": 6, "symbol": "B", "volume": 2**62}] * 2)
    warehouse, files = committed(tmp_path, query_synopsis, query, batch, days=1, tasks=1)
    names = pq.read_schema(tmp_path / "results" / files[0].path).names
    assert set(RESULTS.names) - set(names) == {"day", "position", "doubles", "texts"}
    table = DeltaTable(warehouse.path("results"))
    dataset = table.to_pyarrow_dataset()
    noon = pa.scalar(DAY // 2, schemas.INSTANT)
    for column, value, expected in (
        ("query", query.name, 2),
        ("query", "y", 0),
        ("key", '["A"]', 1),
        ("run_id", "r", 2),
        ("stream", "trades", 2),
        ("plan_version", 3, 2),
        ("window_end", noon, 2),
        ("instant", noon, 2),
    ):
        assert dataset.count_rows(filter=ds.field(column) == value) == expected, column
    assert dataset.count_rows(filter=ds.field("error").is_valid()) == 1
    assert dataset.count_rows(filter=ds.field("position").is_null() & ds.field("texts").is_null()) == 2
    expected_rows = [('["A"]', [1], None), ('["B"]', [None], None)]
    columns = ["key", "longs", "texts"]
    assert sorted(tuple(row.values()) for row in table.to_pyarrow_table(columns=columns).to_pylist()) == expected_rows
    assert pl.scan_delta(warehouse.path("results")).select(columns).sort("key").collect().rows() == expected_rows
    assert (
        duckdb.sql("SELECT key, longs, texts FROM dataset WHERE position IS NULL ORDER BY key").fetchall()
        == expected_rows
    )


@pytest.mark.spark
def test_spark_reads_files_that_lack_columns(spark: SparkSession, tmp_path: Path) -> None:
    query_synopsis, query = synopsis("symbol, max(price) AS p", slide=43_200, range_=43_200, rest="GROUP BY symbol")
    batch = events(*({"at": at, "symbol": f"S{at % 7}", "price": at / 3} for at in range(50)))
    warehouse, _ = committed(tmp_path, query_synopsis, query, batch, days=1, tasks=2)
    rows = spark.read.format("delta").load(warehouse.path("results")).orderBy("key").collect()
    answer_of_key = {row.key: (row.doubles, row.longs, row.position, row.run_id) for row in rows}
    latest = {f"S{at % 7}": at for at in range(50)}
    assert answer_of_key == {f'["{symbol}"]': ([at / 3], None, None, "r") for symbol, at in latest.items()}
    assert {row.instant.timestamp() for row in rows} == {43_200.0}
