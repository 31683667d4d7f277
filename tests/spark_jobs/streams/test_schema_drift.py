"""Files of one stream whose columns drift: each value is what it was in its file, or refused by a code.

The oracle has the values as Python's own integers, decimals, floats and texts, from before they were written: nothing
of the reader. What fits the column's type has to be taken, so refusing everything is no way out either.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.expression import exact_literal, type_of
from optimizer.workload.values import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Source,
    Stream,
    Type,
    decimal,
)
from spark_jobs.pipeline.planning.requested import load_inputs
from spark_jobs.streams.sources.decoding import check_columns, discover_schema, missing_columns, read_split, times_of
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.streams.sources.files import splits_of
from tests.sizes import examples

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_800_000_000
JULY = 1_372_636_800_000_000  # 2013-07-01T00:00:00Z
DECLARED = [BYTE, SHORT, INT, LONG, DOUBLE, STRING, BOOLEAN, DATE, TIMESTAMP, decimal(5, 2), decimal(18, 0)]
DECLARED += [decimal(38, 4)]
LIMITS = {BYTE: 2**7, SHORT: 2**15, INT: 2**31, LONG: 2**63}
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
NUMBERS = count()


@dataclass(frozen=True)
class Values:
    """A column of one file: as it is written, and its values as Python's own (moments in microseconds, dates in
    days)."""

    array: pa.Array
    values: tuple[Any, ...]
    kind: str


def integers(bits: int, signed: bool) -> st.SearchStrategy[Values]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [
        edge + by
        for edge in (0, *(sign * 2**n for n in (7, 8, 15, 16, 31, 32, 53, 63) for sign in (1, -1)))
        for by in (-1, 0, 1)
    ]
    number = st.sampled_from([edge for edge in edges if low <= edge <= high]) | st.integers(-9, 9).map(
        lambda x: max(low, min(high, x))
    )
    type = getattr(pa, f"{'' if signed else 'u'}int{bits}")()
    return rows(number).map(lambda numbers: Values(pa.array(numbers, type), tuple(numbers), "integer"))


def rows(value: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(value | st.none(), min_size=3, max_size=3)


def floats(width: int) -> st.SearchStrategy[Values]:
    dtype = {16: np.float16, 32: np.float32, 64: np.float64}[width]
    kind = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}[width]

    def values_of(numbers: list[float | None]) -> Values:
        return Values(pa.array([None if x is None else dtype(x) for x in numbers], kind), tuple(numbers), "float")

    return rows(st.floats(width=width)).map(values_of)


@st.composite
def decimals(draw: st.DrawFn) -> Values:
    precision = draw(st.sampled_from([1, 3, 5, 9, 18, 19, 38, 40]))
    scale = draw(st.sampled_from([0, 1, 2, 4, precision]).filter(lambda scale: scale <= precision))
    kinds = [pa.decimal256] + [pa.decimal128] * (precision <= 38)
    kinds += [pa.decimal64] * (precision <= 18) + [pa.decimal32] * (precision <= 9)
    unscaled = st.sampled_from([0, 1, -1, 100, 10**precision - 1, 1 - 10**precision, 10 ** (precision // 2)])
    with localcontext(prec=100):
        numbers = [
            None if x is None else Decimal(x if abs(x) < 10**precision else 1).scaleb(-scale)
            for x in draw(rows(unscaled))
        ]
    return Values(pa.array(numbers, draw(st.sampled_from(kinds))(precision, scale)), tuple(numbers), "decimal")


@st.composite
def texts(draw: st.DrawFn) -> Values:
    strings = draw(rows(st.sampled_from(["", "a", "ä", "1", "2013-07-01", "null"])))
    kind = draw(
        st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
    )
    return Values(
        pa.array(strings, pa.string()).cast(kind) if kind != pa.string() else pa.array(strings, kind),
        tuple(strings),
        "text",
    )


@st.composite
def moments(draw: st.DrawFn) -> Values:
    unit = draw(st.sampled_from(["s", "ms", "us", "ns"]))
    zone = draw(st.sampled_from([None, "UTC", "America/New_York"]))
    edges = [0, -1, 1, 999, -1001, JULY, FIRST, FIRST - 1, LAST - 1, LAST, 2**60]
    if unit == "ns":
        ticks = draw(rows(st.sampled_from([0, -1, -1500, 1999, 2**62, -(2**62)])))
        known = [None if x is None else x // 1000 for x in ticks]
    else:
        ticks = [None if x is None else x // UNITS[unit] for x in draw(rows(st.sampled_from(edges)))]
        if unit in ("ms", "us") and draw(st.booleans()):
            ticks[0] = 2**62  # in microseconds that is more than 64 bits hold
        known = [None if x is None else x * UNITS[unit] for x in ticks]
    return Values(pa.array(ticks, pa.int64()).cast(pa.timestamp(unit, zone)), tuple(known), "moment")


def dates() -> st.SearchStrategy[Values]:
    days = rows(
        st.sampled_from(
            [0, -1, 20_000, FIRST // 86_400_000_000, LAST // 86_400_000_000 - 1, LAST // 86_400_000_000, 2**31 - 1]
        )
    )
    return days.map(
        lambda day_numbers: Values(pa.array(day_numbers, pa.int32()).cast(pa.date32()), tuple(day_numbers), "date")
    )


COLUMNS = st.one_of(
    *(integers(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    *(floats(width) for width in (16, 32, 64)),
    decimals(),
    decimals(),
    texts(),
    moments(),
    dates(),
    rows(st.booleans()).map(lambda found: Values(pa.array(found, pa.bool_()), tuple(found), "boolean")),
    st.just(Values(pa.nulls(3), (None,) * 3, "null")),
    st.just(Values(pa.array([[1], None, []]), ("list",) * 3, "list")),
    st.just(Values(pa.array([b"\xff", None, b"a"]), (b"\xff", None, b"a"), "binary")),
)


@dataclass(frozen=True)
class File:
    """Of three rows; ``time`` and ``value``: the columns, or None where it has none of them."""

    time: Values
    value: Values | None
    names: tuple[str, ...]


@st.composite
def files(draw: st.DrawFn, times: st.SearchStrategy[Values], values: st.SearchStrategy[Values]) -> File:
    names = draw(
        st.permutations([draw(st.sampled_from(["ts", "ts", "TS"])), draw(st.sampled_from(["v", "v", "V"])), "other"])
    )
    return File(draw(times), draw(values | st.none()), tuple(names))


def write(path: Path, file: File) -> None:
    columns = {"ts": file.time, "v": file.value, "other": Values(pa.array([1, 2, 3]), (), "integer")}
    arrays = {name: values.array for name in file.names if (values := columns[name.lower()]) is not None}
    pq.write_table(pa.table(arrays), path, row_group_size=2)


def fits(kind: str, value: Any, declared: Type) -> bool:
    """Whether a value of a file can be had in a type, so that it is the same value."""
    if value is None or kind == "null":
        return True
    if declared.name == "long":
        return kind == "integer" and -LIMITS[declared] <= value < LIMITS[declared]
    if declared.name == "double":
        return kind == "float" or (kind == "integer" and abs(value) <= 2**53)
    if declared.name == "decimal":
        with localcontext(prec=100):
            return (
                kind in ("integer", "decimal")
                and Decimal(value) == round(Decimal(value), declared.scale)
                and abs(Decimal(value)) < Decimal(10) ** (declared.precision - declared.scale)
            )
    if declared == DATE:
        return kind == "date" and FIRST <= value * 86_400_000_000 < LAST
    if declared == TIMESTAMP:
        if kind == "text":
            return bool(value == "2013-07-01")
        return kind in ("date", "moment") and FIRST <= as_read(kind, value, declared) < LAST
    return kind == {STRING: "text", BOOLEAN: "boolean"}[declared]


def as_read(kind: str, value: Any, declared: Type) -> Any:
    """The value in the type that it is read as, as rows of Arrow give it."""
    if value is None or kind == "null":
        return None
    if declared == TIMESTAMP:
        return JULY if kind == "text" else value * 86_400_000_000 if kind == "date" else value
    return float(value) if declared == DOUBLE else value


def plain(array: Any) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    return list(array.to_pylist())


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    def key(value: Any) -> Any:
        return repr(value) if isinstance(value, float) else (value is None, type(value) is bool, value)

    return [key(value) for value in found] == [key(value) for value in expected]


def read(stream: Stream) -> tuple[list[int], pa.Table, int]:
    """The times and the values of all events, and the number of rows without a time."""
    splits = splits_of(stream)
    check_columns(stream, splits, ["v"])
    read = [times_of(batch, stream) for split in splits for batch in read_split(stream, split, ["v"])]
    table = pa.Table.from_batches([batch for _, batch, _ in read])
    return [int(at) for times, _, _ in read for at in times], table, sum(missing for *_, missing in read)


def check(stream: Stream, drifting: Sequence[File]) -> None:
    """The events of some files are what they were, computed with too, or refused though it is known why."""
    declared = stream.type_of("v")
    assert declared is not None
    pairs = [(file.value.kind, x) for file in drifting if file.value is not None for x in file.value.values]
    kinds = {file.value.kind for file in drifting if file.value is not None}
    allowed = {"long": {"integer"}, "double": {"integer", "float"}, "decimal": {"integer", "decimal"}}
    allowed |= {"date": {"date"}, "timestamp": {"date", "moment", "text"}, "string": {"text"}, "boolean": {"boolean"}}
    readable = kinds <= allowed[declared.name] | {"null"} and all(fits(kind, x, declared) for kind, x in pairs)
    try:
        times, table, missing = read(stream)
    except HeddleError as error:
        assert error.diagnostic.code in ("HDL-403", "HDL-404"), error
        wide = {file.value.array.type for file in drifting if file.value is not None and file.value.kind == "decimal"}
        # decimals of 40 digits are no type of ours
        assert not (readable and kinds) or any(type.precision > 38 for type in wide), error
        return
    assert readable
    known, values = [], []
    for file in drifting:
        for row in range(3):
            at = as_read(file.time.kind, file.time.values[row], TIMESTAMP)
            if at is not None and FIRST <= at < LAST:
                known.append(at)
                value = file.value
                values.append(None if value is None else as_read(value.kind, value.values[row], declared))
    assert times == known and missing == 3 * len(drifting) - len(known)
    read_values = plain(table["v"])
    assert same(read_values, values), (read_values, values)
    if declared.is_numeric:
        computed(table, declared, values)


def computed(table: pa.Table, declared: Type, values: Sequence[Any]) -> None:
    """Sums and filters over ``v + v`` and ``v * v`` by the real expressions, beside Python's own numbers."""
    schema = {"v": declared}
    for function in ("+", "*"):
        expression = Call(function, (Column("v"), Column("v")))
        try:
            type_of(expression, schema)
        except HeddleError as error:
            assert error.diagnostic.code == "HDL-211"
            continue
        with localcontext(prec=200):
            expected = [None if x is None else x + x if function == "+" else x * x for x in values]
            evaluated = plain(evaluate(expression, table, schema).combine_chunks())
            assert same(evaluated, expected), (function, evaluated, expected)
            if declared.is_exact:
                assert sum(x for x in evaluated if x is not None) == sum(x for x in expected if x is not None)
                holds = evaluate(Call(">", (expression, exact_literal(30_000))), table, schema)
                assert holds.to_pylist() == [None if x is None else x > 30_000 for x in expected]


def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(f"drift{next(NUMBERS)}")


def column(type: pa.DataType, *values: Any) -> Values:
    return Values(pa.array(values, type), values, "integer")


TIMES = moments() | dates()
STILL = st.just(Values(pa.array([0, 1, 2], pa.timestamp("us")), (0, 1, 2), "moment"))
NAMES = ("ts", "v", "other")
NOW = Values(pa.array([0, 1, 2], pa.timestamp("us")), (0, 1, 2), "moment")
FAR = Values(pa.array([FIRST - 1, LAST, 2**62], pa.timestamp("us")), (FIRST - 1, LAST, 2**62), "moment")
DRIFT = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@DRIFT
@given(st.lists(files(TIMES, COLUMNS), min_size=1, max_size=3), st.sampled_from(DECLARED))
@example([File(NOW, column(pa.int64(), 4_000_000_000, 1, 2), NAMES)], SHORT)
@example([File(FAR, column(pa.int64(), 1, 2, 3), NAMES), File(NOW, None, NAMES)], LONG)
@example(
    [File(NOW, Values(pa.array(["2013-07-01", None, None]), ("2013-07-01", None, None), "text"), NAMES)], TIMESTAMP
)
def test_whatever_drifts_under_a_declared_type(
    tmp_path_factory: pytest.TempPathFactory, drifting: list[File], declared: Type
) -> None:
    place = folder(tmp_path_factory)
    for number, file in enumerate(drifting):
        write(place / f"{number}.parquet", file)
    stream = Stream("events", Source("parquet", str(place)), (("ts", TIMESTAMP), ("v", declared)), "ts")
    check(stream, drifting)


@DRIFT
@given(st.lists(files(TIMES, COLUMNS), min_size=1, max_size=2), st.lists(files(TIMES, COLUMNS), min_size=0, max_size=2))
@example([File(NOW, column(pa.int32(), 1, 2, 3), NAMES)], [File(NOW, column(pa.int64(), 2**62, 1, 2), NAMES)])
@example([File(NOW, column(pa.int32(), 1, 2, 3), NAMES), File(NOW, column(pa.int64(), 2**62, 1, 2), NAMES)], [])
@example([File(NOW, column(pa.uint8(), 255, 2, 3), NAMES)], [File(NOW, column(pa.uint32(), 2**32 - 1, 1, 2), NAMES)])
def test_whatever_drifts_after_a_type_was_discovered(
    tmp_path_factory: pytest.TempPathFactory, first: list[File], later: list[File]
) -> None:
    place = folder(tmp_path_factory)
    stream = Stream("events", Source("parquet", str(place)), (), "ts")
    for number, file in enumerate([*first, *later]):
        write(place / f"{number}.parquet", file)
        if number == len(first) - 1:
            try:
                stream, diagnostics = discover_schema(stream)
            except HeddleError as error:
                assert error.diagnostic.code in ("HDL-455", "HDL-456"), error
                return
    (name,) = [column_name for column_name, _ in stream.schema if column_name.lower() == "v"] or [None]
    kinds = [file.value for file in first if file.value is not None and file.value.kind != "null"]
    if name is None:
        # no column, or none of one type
        assert not kinds or diagnostics or {values.kind for values in kinds} <= {"list", "binary", "decimal"}
        return
    declared = stream.type_of(name)
    assert declared is not None
    stream = Stream("events", stream.source, (("ts", TIMESTAMP), ("v", declared)), "ts")
    assert {column_name.lower() for column_name in ("ts", "v", "other")} >= {
        column_name.lower() for column_name, _ in stream.schema
    }
    check(stream, [*first, *later])


# ------------------------------------------------------------------------------------ what is told of it
def tables(place: Path, *held: dict[str, Any]) -> None:
    for number, columns in enumerate(held):
        times = pa.array([number] * len(next(iter(columns.values()))), pa.timestamp("us"))
        pq.write_table(pa.table({"ts": times, **columns}), place / f"{number}.parquet", row_group_size=2)


def declared_as(place: Path, **columns: Type) -> Stream:
    return Stream("events", Source("parquet", str(place)), (("ts", TIMESTAMP), *columns.items()), "ts")


def test_a_value_that_does_not_fit_is_told_with_its_file_column_and_row(tmp_path: Path) -> None:
    tables(tmp_path, {"v": [1, 2, 3]}, {"v": pa.array([1, 2, 3, 4, 40_000, 50_000])})
    with pytest.raises(
        HeddleError, match=r"HDL-404 .*column v of .*1\.parquet .*type short: row 5, '40000'.*32767"
    ) as raised:
        read(declared_as(tmp_path, v=SHORT))
    assert "whenever the plan is refreshed" in raised.value.diagnostic.hint


def test_the_widest_type_of_all_files_is_discovered(tmp_path: Path) -> None:
    big = decimal(20, 4)
    tables(
        tmp_path,
        {"a": pa.array([1], pa.int8()), "b": pa.array([1], pa.int32()), "c": [Decimal("1.5")], "d": pa.nulls(1)},
        {"a": pa.array([1], pa.uint16()), "b": [1.5], "c": pa.array([1], pa.decimal128(20, 4)), "d": ["x"]},
        {"e": [dt.date(2020, 1, 1)], "a": pa.array([1], pa.int16())},
    )
    stream, diagnostics = discover_schema(declared_as(tmp_path))
    assert not diagnostics
    assert dict(stream.schema) == {"ts": TIMESTAMP, "a": INT, "b": DOUBLE, "c": big, "d": STRING, "e": DATE}


def test_a_column_without_a_common_type_is_left_out_and_told_of(tmp_path: Path) -> None:
    tables(tmp_path, {"v": [1], "w": [1]}, {"v": ["x"], "w": [2]}, {"v": [1]})
    stream, (diagnostic,) = discover_schema(declared_as(tmp_path))
    assert [name for name, _ in stream.schema] == ["ts", "w"]
    assert (diagnostic.code, diagnostic.severity) == ("HDL-431", "warning")
    assert "column v" in diagnostic.message and "0.parquet" in diagnostic.message and "1.parquet" in diagnostic.message


def test_what_was_left_out_is_told_when_streams_are_registered(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    tables(tmp_path / "events", {"v": [1], "w": [1]}, {"v": ["x"], "w": [2]})
    (tmp_path / "streams.yaml").write_text("streams: {events: {source: {format: parquet, path: events}, time: ts}}")
    text = "-- name: {}\nSELECT sum({}) AS s FROM events WINDOW RANGE '1 minute' SLIDE '1 minute' ON ts;\n"
    (tmp_path / "q.sql").write_text("".join(text.format(f"of_{name}", name) for name in "vw"))
    inputs = load_inputs([tmp_path / "q.sql"], tmp_path / "streams.yaml")
    assert [query.name for query in inputs.workload.queries] == ["of_w"]
    assert [diagnostic.code for diagnostic in inputs.diagnostics] == ["HDL-431", "HDL-202"]
    assert [diagnostic.code for diagnostic in inputs.errors] == ["HDL-202"]
    pq.write_table(pa.table({"ts": [1.5]}), tmp_path / "events" / "z.parquet")
    assert "HDL-431" in [
        diagnostic.code for diagnostic in load_inputs([tmp_path / "q.sql"], tmp_path / "streams.yaml").errors
    ]


@pytest.mark.parametrize(
    "columns, code, options",
    [
        ({"ts": pa.array([1])}, "HDL-455", {}),
        ({"ts": ["2013-07-01"]}, "HDL-455", {}),
        ({"ts": [dt.date(2013, 7, 1)]}, "HDL-455", {}),
        ({"v": [1]}, "HDL-455", {}),
        ({"ts": pa.array([1], pa.timestamp("us")), "v": [1], "V": [2]}, "HDL-456", {}),
        ({"ts": pa.array([1], pa.timestamp("us")), "id": [1.5]}, "HDL-461", {"event_id": "id"}),
        ({"ts": pa.array([1], pa.timestamp("us"))}, "HDL-461", {"event_id": "id"}),
    ],
)
@pytest.mark.parametrize("of_delta", [False, True])
def test_a_discovered_schema_is_checked_as_a_declared_one(
    tmp_path: Path, columns: dict[str, Any], code: str, options: dict[str, str], of_delta: bool
) -> None:
    if of_delta and "V" not in columns:  # no Delta table has such columns
        write_deltalake(tmp_path, pa.table(columns))
    else:
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    format = "delta" if (tmp_path / "_delta_log").exists() else "parquet"
    with pytest.raises(HeddleError, match=code):
        discover_schema(Stream("events", Source(format, str(tmp_path)), (), "ts", **options))


def test_names_that_no_schema_could_declare_are_no_columns(tmp_path: Path) -> None:
    tables(tmp_path, {"v": [1], "": [1], "a\nb": [1], "x" * 256: [1]})
    stream, _ = discover_schema(declared_as(tmp_path))
    assert [name for name, _ in stream.schema] == ["ts", "v"]


def test_columns_that_no_file_has_are_told_apart_from_those_that_some_have(tmp_path: Path) -> None:
    tables(tmp_path, {"v": [1]}, {"w": [2]})
    stream = declared_as(tmp_path, v=LONG, W=LONG, x=LONG)
    splits = splits_of(stream)
    assert missing_columns(stream, splits, ["v", "W", "x"]) == ["x"]
    check_columns(stream, splits, ["v", "W"])
    with pytest.raises(HeddleError, match="HDL-403 .*no column x"):
        check_columns(stream, splits, ["v", "x"])
    batch_rows = [batch.to_pylist() for split in splits for batch in read_split(stream, split, ["v", "W"])]
    assert [(row["v"], row["W"]) for (row,) in batch_rows] == [(1, None), (None, 2)]
    for name in ("v", "x"):
        with pytest.raises(HeddleError, match=f"HDL-403 .*no column {name}"):
            check_columns(Stream(**{**vars(stream), "event_id": name}), splits, [])


def test_a_file_without_the_time_column_is_coded(tmp_path: Path) -> None:
    tables(tmp_path, {"v": [1]})
    pq.write_table(pa.table({"v": [1]}), tmp_path / "z.parquet")
    stream = declared_as(tmp_path, v=LONG)
    with pytest.raises(HeddleError, match=r"HDL-403 .*z\.parquet has no column ts"):
        check_columns(stream, splits_of(stream), ["v"])


def test_bytes_that_are_no_text_are_coded(tmp_path: Path) -> None:
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\xfe")]
    )
    tables(tmp_path, {"v": text})
    for encoded in ([], ["v"]):
        with pytest.raises(HeddleError, match="HDL-404 .*column v"):
            stream = declared_as(tmp_path, v=STRING)
            for split in splits_of(stream):
                list(read_split(stream, split, ["v"], encoded))


def test_digits_beyond_a_files_own_type_are_coded(tmp_path: Path) -> None:
    """A decimal of five digits stored in 64 bits may hold more."""
    beyond = pa.Array.from_buffers(pa.decimal128(5, 2), 1, [None, pa.py_buffer((10**9).to_bytes(16, "little"))])
    tables(tmp_path, {"v": beyond})
    with pytest.raises(HeddleError, match="HDL-404 .*column v"):
        read(declared_as(tmp_path, v=decimal(5, 2)))


def test_times_of_spark_before_1677_and_after_2262(tmp_path: Path) -> None:
    """Spark writes 96 bits by default; as nanoseconds they would wrap round."""
    times = pa.array([FIRST, LAST - 1, 1, -1, None], pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times, "v": range(5)}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    read_times, _, missing = read(declared_as(tmp_path, v=LONG))
    assert (read_times, missing) == ([FIRST, LAST - 1, 1, -1], 1)


def test_floats_are_read_as_the_doubles_that_they_are(tmp_path: Path) -> None:
    tables(tmp_path, {"v": pa.array([0.1, math.nan, -0.0], pa.float32())})
    _, table, _ = read(declared_as(tmp_path, v=DOUBLE))
    assert same(table["v"].to_pylist(), [float(np.float32(0.1)), math.nan, -0.0])
