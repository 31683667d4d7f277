"""Reading streams: every format to the same types, every bad file to a coded message, no event lost by pruning."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import format_instant
from optimizer.workload.values import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Source,
    Stream,
    Workload,
    decimal,
)
from spark_jobs.pipeline.costs import measurements
from spark_jobs.pipeline.costs.measurements import measure_source
from spark_jobs.pipeline.run.preparation import listed
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources import decoding, file_statuses
from spark_jobs.streams.sources.decoding import check_columns, discover_schema, parse_instant, read_split, times_of
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.formats import parquet as parquet_module
from spark_jobs.streams.sources.ledger import ledger
from spark_jobs.streams.sources.splits import FIRST, LAST, ContentName, Split, snapshot_token

SCHEMA = (
    ("ts", TIMESTAMP),
    ("symbol", STRING),
    ("volume", LONG),
    ("price", DOUBLE),
    ("open", BOOLEAN),
    ("due", DATE),
    ("fee", decimal(15, 2)),
)
HEADER = "ts,symbol,volume,price\n"
JULY = 1_372_636_800_000_000  # 2013-07-01T00:00:00Z


def stream(format: str, path: Path) -> Stream:
    return Stream("trades", Source(format, str(path)), SCHEMA, "ts")


def read(source: Stream, columns: Sequence[str]) -> pa.Table:
    """All events, as a run reads them: listed, checked, decoded."""
    splits = splits_of(source)
    check_columns(source, splits, list(columns))
    batches = [batch for split in splits for batch in read_split(source, split, list(columns))]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in ["ts", *columns]})


def micros(table: pa.Table, name: str = "ts") -> list[int | None]:
    assert table.schema.field(name).type == pa.timestamp("us", tz="UTC")
    values: list[int | None] = table[name].cast(pa.int64()).to_pylist()
    return values


def csv(folder: Path, text: str, columns: Sequence[str] = ("symbol", "volume", "price")) -> pa.Table:
    path = folder / "trades.csv"
    path.write_text(text, encoding="utf-8")
    return read(stream("csv", path), columns)


def parquet(folder: Path, columns: dict[str, Any], wanted: Sequence[str] = (), **options: Any) -> pa.Table:
    path = folder / "trades.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return read(stream("parquet", path), wanted)


# ----------------------------------------------------------------------------------------------- CSV
def test_csv_fields_are_typed_and_empty_ones_null(tmp_path: Path) -> None:
    text = HEADER + "2013-07-01T00:00:00,A,5,1.5\n2013-07-01T00:00:01,,,\n"
    table = csv(tmp_path, text)
    assert table.schema.types == [pa.timestamp("us", tz="UTC"), pa.string(), pa.int64(), pa.float64()]
    assert table.to_pylist()[1] | {"ts": None} == {"ts": None, "symbol": None, "volume": None, "price": None}
    assert table["volume"].to_pylist() == [5, None]


def test_a_quoted_empty_field_is_an_empty_string_not_null(tmp_path: Path) -> None:
    table = csv(tmp_path, HEADER + '2013-07-01T00:00:00,"",1,1\n2013-07-01T00:00:00,,1,1\n')
    assert table["symbol"].to_pylist() == ["", None]


def test_csv_quoting_and_byte_order_mark(tmp_path: Path) -> None:
    table = csv(tmp_path, "\ufeff" + HEADER + '2013-07-01T00:00:00,"say ""x"", y\nz",1,1\n')
    assert table["symbol"].to_pylist() == ['say "x", y\nz']


def test_nan_and_infinities_in_csv(tmp_path: Path) -> None:
    rows = "".join(f"2013-07-01T00:00:00,A,1,{price}\n" for price in ("NaN", "Inf", "-Infinity"))
    nan, *infinite = csv(tmp_path, HEADER + rows)["price"].to_pylist()
    assert math.isnan(nan) and infinite == [math.inf, -math.inf]


def test_booleans_dates_and_decimals_in_csv(tmp_path: Path) -> None:
    text = "ts,open,due,fee\n2013-07-01T00:00:00,true,2013-07-04,-12.3\n2013-07-01T00:00:00,FALSE,,\n"
    table = csv(tmp_path, text, ["open", "due", "fee"])
    assert table["open"].to_pylist() == [True, False]
    assert table["due"].to_pylist() == [dt.date(2013, 7, 4), None]
    assert table["fee"].to_pylist() == [Decimal("-12.30"), None]


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("2013-07-01T00:00:00", 0),
        ("2013-07-01 00:00:00", 0),
        ("2013-07-01T00:00:00Z", 0),
        ("2013-07-01T00:00:00.250", 0.25),
        ("2013-07-01T02:00:00+02:00", 0),
        ("2013-06-30 19:00:00-05:00", 0),
        ("2013-06-30T19:00:00-0500", 0),
        ("2013-06-30T19:00:00-05", 0),
        ("2013-07-02", 86_400),
        ("1969-12-31T23:59:59.999999Z", -1_372_636_800 - 0.000001),
    ],
)
def test_timestamps_are_utc_unless_they_name_a_zone(tmp_path: Path, text: str, seconds: float) -> None:
    # beside a row with a zone and one without: a file may mix them
    rows = f"{text},A,1,1\n2013-07-01T00:00:00Z,A,1,1\n2013-07-01T00:00:00,A,1,1\n"
    expected = JULY + round(seconds * 1_000_000)
    assert micros(csv(tmp_path, HEADER + rows)) == [expected, JULY, JULY]
    assert parse_instant(text) == expected


@pytest.mark.parametrize(
    "row, column, value",
    [
        ("2013-07-01T00:00:00,A,many,1", "volume", "many"),
        ("2013-07-01T00:00:00,A,9223372036854775808,1", "volume", "9223372036854775808"),
        ("2013-07-01T00:00:00,A,1,dear", "price", "dear"),
        ("yesterday,A,1,1", "ts", "yesterday"),
    ],
)
def test_a_bad_value_is_named_with_its_column(tmp_path: Path, row: str, column: str, value: str) -> None:
    with pytest.raises(HeddleError, match=rf"HDL-404 .*column {column} .*{value}"):
        csv(tmp_path, HEADER + "2013-07-01T00:00:00,A,1,1\n" + row + "\n")


def test_the_column_is_named_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match="HDL-404 .*column price .*dear"):
        csv(tmp_path, "volume,price,symbol,ts\n1,dear,A,2013-07-01\n", ["price"])


def test_a_missing_column_is_named_beside_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match=r"HDL-403 .*no column volume") as raised:
        csv(tmp_path, "ts,symbol,price\n2013-07-01T00:00:00,A,1\n")
    assert raised.value.diagnostic.hint == "it has price, symbol, ts"


def test_a_half_written_csv_line_is_coded(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match="HDL-421 .*line 3: 2 fields, the header has 4"):
        csv(tmp_path, HEADER + "2013-07-01T00:00:00,A,1,1\n2013-07-01T00:0,A")


@pytest.mark.parametrize("text", ["", HEADER])
def test_an_empty_csv_file_holds_no_events(tmp_path: Path, text: str) -> None:
    assert csv(tmp_path, text).num_rows == 0


@pytest.mark.parametrize("format", ["csv", "parquet", "delta"])
def test_a_missing_source_is_coded(tmp_path: Path, format: str) -> None:
    with pytest.raises(HeddleError, match="HDL-401 "):
        splits_of(stream(format, tmp_path / "absent"))


def test_a_folder_without_files_of_the_format_is_coded(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(HeddleError, match=r"HDL-401 .*no \.csv file"):
        splits_of(stream("csv", tmp_path))


# ------------------------------------------------------------------------------------------- Parquet
def test_narrow_types_are_widened_and_dictionaries_decoded(tmp_path: Path) -> None:
    table = parquet(
        tmp_path,
        {
            "ts": pa.array([JULY // 1000] * 2, pa.timestamp("ms")),
            "volume": pa.array([7, None], pa.int8()),
            "price": pa.array([1.5, None], pa.float32()),
            "symbol": pa.array(["A", None]).dictionary_encode(),
            "fee": pa.array([3, None], pa.int32()),
        },
        ["volume", "price", "symbol", "fee"],
    )
    assert micros(table) == [JULY, JULY]
    assert table.schema.types[1:] == [pa.int64(), pa.float64(), pa.string(), pa.decimal128(15, 2)]
    assert table.slice(0, 1).to_pylist()[0] | {"ts": 0} == {
        "ts": 0,
        "volume": 7,
        "price": 1.5,
        "symbol": "A",
        "fee": Decimal("3.00"),
    }
    assert [column.null_count for column in table.columns[1:]] == [1, 1, 1, 1]


def test_encoded_strings_are_the_decoded_ones(tmp_path: Path) -> None:
    """Row groups with other dictionaries, nulls; columns that are no strings, or not in the file, stay as they are."""
    path = tmp_path / "trades.parquet"
    symbols = ["A", "B", None, "A", "C", "B", "", "D"]
    times = pa.array([JULY] * len(symbols), pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times, "symbol": symbols, "volume": range(8)}), path, row_group_size=3)
    source = stream("parquet", path)
    (split,) = splits_of(source)
    split = replace(split, constants=(("venue", "X"),))
    source = replace(source, schema=(*source.schema, ("venue", STRING)))
    names = ["symbol", "volume", "venue"]
    (plain,) = read_split(source, split, names)
    (encoded,) = read_split(source, split, names, names)
    assert encoded.to_pylist() == plain.to_pylist()
    assert [str(type) for type in encoded.schema.types[2:]] == ["int64", "string"]
    assert pa.types.is_dictionary(encoded.schema.field("symbol").type) and plain.schema.field("symbol").type == "string"


def test_a_column_of_nothing_but_nulls_has_its_declared_type(tmp_path: Path) -> None:
    times = pa.array([JULY], pa.timestamp("us"))
    table = parquet(tmp_path, {"ts": times, "volume": pa.nulls(1)}, ["volume"])
    assert table["volume"].type == pa.int64() and table["volume"].to_pylist() == [None]


@pytest.mark.parametrize("nulls", [False, True])
def test_nanoseconds_are_floored_also_before_the_epoch_and_beside_nulls(tmp_path: Path, nulls: bool) -> None:
    values = [-1, -1500, 1999, *([None] if nulls else [])]
    table = parquet(tmp_path, {"ts": pa.array(values, pa.timestamp("ns"))})
    # an event one nanosecond before the epoch lies in the fragment that ends there
    assert micros(table) == [-1, -2, 1, *([None] if nulls else [])]


def test_a_zone_of_the_column_changes_no_instant(tmp_path: Path) -> None:
    times = pa.array([JULY, JULY + 1], pa.timestamp("us", "America/New_York"))
    assert micros(parquet(tmp_path, {"ts": times})) == [JULY, JULY + 1]


def test_timestamps_may_be_text(tmp_path: Path) -> None:
    times = pa.array(["2013-07-01", "2013-07-01 02:00:00+02:00", None, " 2013-07-01T00:00:00 ", "0000-12-31"])
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert micros(parquet(tmp_path, {"ts": times.cast(kind)})) == [JULY, JULY, None, JULY, None]


@pytest.mark.parametrize(
    "name, values",
    [
        ("volume", pa.array([1.0])),
        ("volume", pa.array(["1"])),
        ("symbol", pa.array([1])),
        ("price", pa.array([[1.0]])),
        ("open", pa.array([1])),
        ("ts", pa.array([JULY])),
    ],
)
def test_a_changed_column_type_is_found_before_anything_is_read(tmp_path: Path, name: str, values: pa.Array) -> None:
    path = tmp_path / "trades.parquet"
    pq.write_table(pa.table({"ts": pa.array([JULY], pa.timestamp("us")), name: values}), path)
    source = stream("parquet", path)
    with pytest.raises(HeddleError, match=f"HDL-404 .*column {name} .*declared"):
        check_columns(source, splits_of(source), [name])


def test_values_beyond_64_bits_are_coded_not_wrapped(tmp_path: Path) -> None:
    columns = {"ts": pa.array([JULY], pa.timestamp("us")), "volume": pa.array([2**64 - 1], pa.uint64())}
    with pytest.raises(HeddleError, match="HDL-404 .*volume"):
        parquet(tmp_path, columns, ["volume"])


def test_a_truncated_file_is_coded(tmp_path: Path) -> None:
    path = tmp_path / "trades.parquet"
    pq.write_table(pa.table({"ts": pa.array([JULY], pa.timestamp("us"))}), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(HeddleError, match="HDL-402 .*trades.parquet cannot be read") as raised:
        splits_of(stream("parquet", path))
    assert "half written" in raised.value.diagnostic.hint


def test_hidden_files_of_a_folder_are_no_part_of_it(tmp_path: Path) -> None:
    times = pa.table({"ts": pa.array([JULY], pa.timestamp("us"))})
    (tmp_path / "day=1").mkdir()
    (tmp_path / "_temporary").mkdir()
    for name in ("a.parquet", "day=1/b.parquet", ".a.parquet", "_temporary/c.parquet"):
        pq.write_table(times, tmp_path / name)
    (tmp_path / "_SUCCESS").write_text("")
    splits = splits_of(stream("parquet", tmp_path))
    assert [Path(split.path).name for split in splits] == ["a.parquet", "b.parquet"]


# ------------------------------------------------------------------------- what fails, fails its stream
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_statistics_beyond_the_years_say_nothing_and_rows_beyond_them_are_counted(tmp_path: Path, unit: str) -> None:
    edges = {"ms": [FIRST // 1000 - 1, LAST // 1000, 1 << 62], "us": [FIRST - 1, LAST, 1 << 62], "ns": []}[unit]
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    splits_read = []
    for at in [*edges, None]:
        path = tmp_path / "trades.parquet"
        pq.write_table(pa.table({"ts": pa.array([JULY // 10**6 * per_second, at], pa.timestamp(unit))}), path)
        (split,) = splits_of(stream("parquet", path))
        (batch,) = read_split(stream("parquet", path), split, [])
        times, _, missing = times_of(batch, stream("parquet", path))
        splits_read.append((split.begin, split.end, times.tolist(), missing))
    assert splits_read == [(None, None, [JULY], 1)] * (len(edges) + 1)


def test_events_of_any_time_stop_neither_listing_nor_measuring(tmp_path: Path) -> None:
    """Two streams: one of events at and beyond both ends of the calendar, in two files, and one of July."""
    events = [[FIRST, LAST - 1], [FIRST - 1, JULY, LAST, 1 << 62], [JULY]]
    for number, times in enumerate(events):
        folder = tmp_path / ("july" if number == 2 else "far")
        folder.mkdir(exist_ok=True)
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"ts": pa.array(times, pa.timestamp("us")), "volume": range(len(times))}), path)
        os.utime(path, (1, -(10**11)))  # and came before year 1
    streams = {name: replace(stream("parquet", tmp_path / name), name=name) for name in ("far", "july")}
    text = "".join(
        f"-- name: of_{name}\nSELECT count(*) AS n FROM {name} WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;\n"
        for name in streams
    )
    workload = Workload(parse(text, streams).queries, tuple(streams.values()))
    plan = build_plan(workload, dict.fromkeys(streams, Fraction(1)), "weave-share")
    warehouse = Warehouse.open(tmp_path / "warehouse")
    for _ in range(2):  # also what the ledger has of them
        listing = listed(warehouse, plan, JULY, "run")
        assert not listing.problems and not listing.failed
        assert [len(splits) for splits in listing.sources.values()] == [2, 1]
    assert len(ledger(warehouse, "far")) == 2
    measured = [measure_source(streams[name]) for name in streams]
    assert [(measurement.begin, measurement.end, measurement.rows) for measurement in measured] == [
        (FIRST, LAST, 3),
        (JULY, JULY + 1, 1),
    ]
    for measurement in measured:
        measurement.row("run")


@pytest.mark.parametrize(
    "failure", [OverflowError("x"), TypeError("x"), KeyError("x"), RecursionError("x"), pa.ArrowKeyError("x")]
)
def test_whatever_goes_wrong_while_a_stream_is_looked_at_is_its_coded_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    path = tmp_path / "trades.parquet"
    pq.write_table(pa.table({"ts": pa.array([JULY], pa.timestamp("us")), "volume": [1]}), path)
    source = stream("parquet", path)
    splits = splits_of(source)

    def fail(*arguments: Any, **options: Any) -> Any:
        raise failure

    for owner, name, look in [
        (parquet_module, "column_places", lambda: splits_of(source)),
        (parquet_module, "column_places", lambda: check_columns(source, splits, ["volume"])),
        (parquet_module, "column_places", lambda: discover_schema(replace(source, schema=()))),
        (decoding, "_converted", lambda: list(read_split(source, splits[0], ["volume"]))),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            with pytest.raises(HeddleError, match=f"HDL-409 .*trades.parquet .*{type(failure).__name__}"):
                look()


# -------------------------------------------------------------------------------------------- places
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_links_lead_nowhere_but_to_the_folders_of_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        times = pa.table({"ts": pa.array([JULY], pa.timestamp("us"))})
        if format == "csv":
            (folder / "a.csv").write_text("ts\n2013-07-01\n")
        else:
            pq.write_table(times, folder / "a.parquet")
    (inside / "folder").symlink_to(outside)
    (inside / f"same.{format}").symlink_to(inside / f"a.{format}")
    source = stream(format, inside)
    monkeypatch.setenv("HEDDLE_SOURCES", f"{tmp_path / 'other'}:{inside}")
    assert [Path(split.path).name for split in splits_of(source)] == [f"a.{format}", f"same.{format}"]
    (inside / f"loop.{format}").symlink_to(inside / f"loop.{format}")
    assert len(splits_of(source)) == 2
    (inside / f"b.{format}").symlink_to(outside / f"a.{format}")
    with pytest.raises(HeddleError, match=r"HDL-458 .*b\.\w+ leads to where no stream is read from") as raised:
        splits_of(source)
    assert "HEDDLE_SOURCES" in raised.value.diagnostic.hint
    monkeypatch.delenv("HEDDLE_SOURCES")
    assert len(splits_of(source)) == 3
    (inside / f"c.{format}").symlink_to("/proc/self/status")
    with pytest.raises(HeddleError, match="HDL-458 "):
        splits_of(source)
    # the configured folder itself, when it is read
    monkeypatch.setenv("HEDDLE_SOURCES", str(outside))
    with pytest.raises(HeddleError, match="HDL-458 "):
        splits_of(source)


# --------------------------------------------------------------------------------------------- Delta
def test_partition_columns_of_delta_are_read(tmp_path: Path) -> None:
    events = pa.table(
        {"ts": pa.array([JULY, JULY + 1, JULY + 2], pa.timestamp("us", "UTC")), "symbol": ["A", "B", None]}
    )
    write_deltalake(tmp_path, events, partition_by=["symbol"])
    table = read(stream("delta", tmp_path), ["symbol"])
    assert sorted(zip(micros(table), table["symbol"].to_pylist(), strict=True)) == [
        (JULY, "A"),
        (JULY + 1, "B"),
        (JULY + 2, None),
    ]


def test_removed_files_of_delta_are_not_read(tmp_path: Path) -> None:
    for volume in (1, 2):
        events = pa.table({"ts": pa.array([JULY], pa.timestamp("us", "UTC")), "volume": [volume]})
        write_deltalake(tmp_path, events, mode="overwrite")
    assert read(stream("delta", tmp_path), ["volume"])["volume"].to_pylist() == [2]


def test_a_file_of_the_delta_log_that_is_gone_is_coded(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"ts": pa.array([JULY], pa.timestamp("us", "UTC"))}))
    next(tmp_path.glob("*.parquet")).unlink()
    with pytest.raises(HeddleError, match="HDL-402 .*in the table's log but not on disk"):
        splits_of(stream("delta", tmp_path))


def test_delta_statistics_in_milliseconds_hide_no_event(tmp_path: Path) -> None:
    """Delta cuts the statistics of timestamps to milliseconds, and a null time keeps Parquet's own unused."""
    last = JULY + 123_999
    write_deltalake(tmp_path, pa.table({"ts": pa.array([JULY, last, None], pa.timestamp("us", "UTC"))}))
    (split,) = splits_of(stream("delta", tmp_path))
    assert split.end is not None
    assert split.may_hold(last, last + 1)
    assert not split.may_hold(last + 1000, last + 2000)


# ------------------------------------------------------------------------------------- pruning, tokens
def test_splits_know_the_times_they_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "SPLIT_ROWS", 10)
    path = tmp_path / "trades.parquet"
    times = pa.array([JULY + second * 1_000_000 for second in range(25)], pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times}), path, row_group_size=5)
    splits = splits_of(stream("parquet", path))
    assert [split.row_groups for split in splits] == [(0, 1), (2, 3), (4,)]
    assert [(split.begin, split.end) for split in splits] == [
        (JULY, JULY + 9_000_001),
        (JULY + 10_000_000, JULY + 19_000_001),
        (JULY + 20_000_000, JULY + 24_000_001),
    ]
    second = splits[1]
    assert second.may_hold(JULY + 19_000_000, JULY + 30_000_000)
    assert not second.may_hold(JULY + 19_000_001, JULY + 30_000_000)
    assert second.may_hold(JULY, JULY + 10_000_001)
    assert not second.may_hold(JULY, JULY + 10_000_000)
    # together they are the file, each event once
    source = stream("parquet", path)
    rows = [value for split in splits for batch in read_split(source, split, []) for value in batch["ts"].to_pylist()]
    assert rows == [moment.replace(tzinfo=dt.UTC) for moment in times.to_pylist()]


def test_a_split_without_statistics_may_hold_anything() -> None:
    assert Split("a", "x").may_hold(-(10**18), -(10**18) + 1)


def test_tokens_change_with_content_and_only_where_it_can_matter(tmp_path: Path) -> None:
    source = stream("parquet", tmp_path)

    def write(name: str, second: int, rows: int = 1) -> None:
        times = pa.array([JULY + second * 1_000_000] * rows, pa.timestamp("us"))
        pq.write_table(pa.table({"ts": times}), tmp_path / name)

    def token(begin: int, end: int) -> str:
        return snapshot_token(splits_of(source), JULY + begin * 1_000_000, JULY + end * 1_000_000)

    write("a.parquet", 0)
    write("b.parquet", 100)
    early, late = token(0, 50), token(50, 150)
    assert token(0, 50) == early != late
    write("b.parquet", 100, rows=2)
    assert token(0, 50) == early
    assert token(50, 150) != late
    write("c.parquet", 10)
    assert token(0, 50) != early


@pytest.mark.parametrize("option", [{"delimiter": ";"}, {"null": ("A",)}, {"time_unit": "s"}, {"quote": None}])
def test_another_way_of_reading_a_file_changes_the_token(tmp_path: Path, option: dict[str, Any]) -> None:
    path = tmp_path / "trades.csv"
    path.write_text(HEADER + "2013-07-01,A,1,1\n")
    source = stream("csv", path)
    changed = replace(source, source=replace(source.source, **option))
    names = [ContentName(splits_of(variant), []).of(0, 1) for variant in (source, changed)]
    assert names[0] != names[1] and ContentName(splits_of(source), []).is_of(names[0], 0, 1)
    assert not ContentName(splits_of(source), []).is_of(names[1], 0, 1)


@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1000), ("us", 1), ("ns", Fraction(1, 1000))])
def test_integer_times_count_their_unit(tmp_path: Path, format: str, unit: str, factor: Fraction) -> None:
    numbers = [int(JULY / factor) + 1, -1, None]
    events = pa.table({"ts": pa.array(numbers, pa.int64()), "volume": [1, 2, 3]})
    if format == "parquet":
        pq.write_table(events, tmp_path / "a.parquet")
    else:
        write_deltalake(tmp_path, events)
    declared = stream(format, tmp_path)
    declared = replace(declared, source=replace(declared.source, time_unit=unit))
    declared, _ = discover_schema(replace(declared, schema=()))
    expected = [None if number is None else math.floor(number * factor) for number in numbers]
    assert micros(read(declared, ["volume"])) == expected
    (split,) = splits_of(declared)
    assert all(split.may_hold(at, at + 1) for at in expected if at is not None)


def test_a_rewrite_of_the_same_size_changes_the_token(tmp_path: Path) -> None:
    path = tmp_path / "trades.csv"
    path.write_text(HEADER + "2013-07-01,A,1,1\n")
    source = stream("csv", path)
    before = snapshot_token(splits_of(source), 0, 1)
    path.write_text(HEADER + "2013-07-01,A,2,1\n")
    os.utime(path, ns=(1, 1))  # whatever the clock's resolution
    assert snapshot_token(splits_of(source), 0, 1) != before


# -------------------------------------------------------------------------------------------- the rest
def test_events_without_a_time_are_set_apart_and_counted(tmp_path: Path) -> None:
    text = HEADER + "2013-07-01T00:00:00,A,1,1\n,B,2,1\n,C,3,1\n"
    (batch,) = csv(tmp_path, text).to_batches()
    times, timed_events, missing = times_of(batch, stream("csv", tmp_path))
    assert (times.tolist(), timed_events["symbol"].to_pylist(), missing) == ([JULY], ["A"], 2)


def test_schemas_are_discovered_where_the_source_declares_one(tmp_path: Path) -> None:
    columns = {
        "ts": pa.array([JULY], pa.timestamp("ns", "UTC")),
        "a": pa.array([1], pa.int8()),
        "b": pa.array([1], pa.int32()),
        "c": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
        "d": pa.array(["x"]).dictionary_encode(),
        "nested": pa.array([[1]]),
    }
    path = tmp_path / "trades.parquet"
    pq.write_table(pa.table(columns), path)
    discovered, diagnostics = discover_schema(stream("parquet", path))
    assert not diagnostics
    assert discovered.schema == (("ts", TIMESTAMP), ("a", BYTE), ("b", INT), ("c", decimal(9, 2)), ("d", STRING))
    with pytest.raises(HeddleError, match="HDL-406"):
        discover_schema(stream("csv", path))
    delta = tmp_path / "delta"
    write_deltalake(
        delta, pa.table({"ts": columns["ts"].cast(pa.timestamp("us", "UTC")), "p": ["x"]}), partition_by=["p"]
    )
    assert DeltaTable(delta).version() == 0
    assert discover_schema(stream("delta", delta))[0].schema == (("ts", TIMESTAMP), ("p", STRING))


def test_instants_are_printed_and_read_back() -> None:
    assert format_instant(JULY) == "2013-07-01T00:00:00Z"
    for instant in (JULY, JULY + 1, 0, -1, JULY + 500_000):
        assert parse_instant(format_instant(instant)) == instant
    for text in ("", "soon", "2013-13-01", "2013-07-01T25:00:00", "0000-12-31", "9999-12-31T23:59:59-01:00"):
        with pytest.raises(HeddleError, match="HDL-114"):
            parse_instant(text)


def test_a_rate_of_many_files_is_that_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        times = [JULY + number * 1000 + at for at in range(5)]
        path = tmp_path / f"{number:02}.parquet"
        pq.write_table(pa.table({"ts": pa.array(times, pa.timestamp("us")), "volume": range(5)}), path)
    every = measure_source(stream("parquet", tmp_path))
    assert (every.rows, every.begin, every.end) == (100, JULY, JULY + 19_005)
    monkeypatch.setattr(measurements, "MANY", 10)
    monkeypatch.setattr(measurements, "SAMPLED", 4)
    read: list[str] = []
    metadata = pq.read_metadata
    monkeypatch.setattr(
        pq, "read_metadata", lambda path, **options: read.append(str(path)) or metadata(path, **options)
    )
    status_paths: list[str] = []
    status = file_statuses.status_of
    monkeypatch.setattr(file_statuses, "status_of", lambda path: status_paths.append(path) or status(path))
    assert measure_source(stream("parquet", tmp_path)) == every
    assert len(set(read)) <= 4 and len(status_paths) <= 4
