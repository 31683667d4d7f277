"""Records are read strictly: what fits is the same value, what does not is told why; JSON and Avro alike."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Source,
    Stream,
    Type,
    decimal,
)
from spark_jobs.streams.landing.avro import DEEPEST, AvroSchema
from spark_jobs.streams.landing.records import BROKER_COLUMNS, KEPT, Records

COLUMNS: tuple[tuple[str, Type], ...] = (
    ("ts", TIMESTAMP),
    ("ok", BOOLEAN),
    ("small", BYTE),
    ("big", LONG),
    ("price", DOUBLE),
    ("name", STRING),
    ("day", DATE),
    ("money", decimal(10, 2)),
)
TIME = "2013-07-01T08:30:00Z"

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "ok", "type": ["null", "boolean"]},
            {"name": "tags", "type": {"type": "array", "items": {"type": "map", "values": "string"}}},
            {"name": "small", "type": ["null", "int"]},
            {"name": "big", "type": ["null", "long"]},
            {"name": "price", "type": ["null", "double"]},
            {"name": "name", "type": ["null", "string"]},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {
                "name": "money",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            },
        ],
    }
)


def records(unit: str | None = None, avro: str | None = None, columns: Any = COLUMNS) -> Records:
    stream = Stream("s", Source("delta", "/data", time_unit=unit), columns, "ts")
    return Records.of(stream, None if avro is None else AvroSchema.of(avro))


def read(reader: Records, *values: bytes | None) -> list[dict[str, Any]]:
    count = len(values)
    batch = pa.record_batch(
        {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )
    (decoded,) = reader.read(iter([batch]))
    decoded.validate(full=True)
    return decoded.to_pylist()


def why(reader: Records, value: bytes) -> str | None:
    (row,) = read(reader, value)
    return row["_heddle_why"]


def record(**fields: Any) -> bytes:
    return json.dumps({"ts": TIME} | fields).encode()


VALUES = st.fixed_dictionaries(
    {"ts": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))},
    optional={
        "ok": st.none() | st.booleans(),
        "small": st.none() | st.integers(-128, 127),
        "big": st.none() | st.integers(-(2**63), 2**63 - 1),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "name": st.none() | st.text(st.characters(codec="utf-8")),
        "day": st.none() | st.dates(),
        "money": st.none() | st.decimals(-99_999_999, 99_999_999, places=2),
    },
)


@given(st.lists(VALUES, max_size=5))
def test_what_is_written_as_json_is_read_as_it_was(events: list[dict[str, Any]]) -> None:
    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Decimal) else value

    rows = read(
        records(), *(json.dumps({k: plain(v) for k, v in each.items()} | {"x": [{}]}).encode() for each in events)
    )
    assert [row["_heddle_why"] for row in rows] == [None] * len(events)
    for row, event in zip(rows, events, strict=True):
        assert {name: row[name] for name, _ in COLUMNS} == {name: event.get(name) for name, _ in COLUMNS}
        assert row["_heddle_value"] is None and row["kafka_id"] == f"3:{row['kafka_offset']}"


@given(st.lists(VALUES, max_size=5))
def test_what_is_written_as_avro_is_read_as_it_was(events: list[dict[str, Any]]) -> None:
    rows = read(records(avro=AVRO), *map(encoded, events))
    assert [row["_heddle_why"] for row in rows] == [None] * len(events)
    for row, event in zip(rows, events, strict=True):
        assert {name: row[name] for name, _ in COLUMNS} == {name: event.get(name) for name, _ in COLUMNS}


@given(VALUES, st.data())
def test_a_damaged_avro_record_is_told_and_never_an_error(event: dict[str, Any], data: st.DataObject) -> None:
    content = encoded(event)
    cut = data.draw(st.integers(0, len(content) - 1))
    reader = records(avro=AVRO)
    # its last fields are unions: each is a byte at least
    assert why(reader, content[:cut]) is not None
    assert "longer" in str(why(reader, content + b"\0"))
    assert why(reader, b"\0\0\0\0\1" + content) is not None
    read(reader, data.draw(st.binary(max_size=40)))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_whatever_stands_there_a_record_is_read_or_told(value: Any) -> None:
    for name, _ in COLUMNS:
        (row,) = read(records(), record(**{name: value}))
        assert row["_heddle_why"] is None or row["_heddle_why"].startswith((name, "it is not JSON", "it is JSON"))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_told(content: bytes) -> None:
    read(records(), content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (record(small=128), "small: a number that no byte holds"),
        (record(big=2**63), "big: a number that no long holds"),
        (record(big=1.0), "big: a number with a point where a whole number is expected"),
        (record(big=True), "big: true or false where a whole number is expected"),
        (record(ok=1), "ok: a whole number where true or false is expected"),
        (record(name=1), "name: a whole number where a text is expected"),
        (record(name="\ud800"), "name: a text with half a character (a lone surrogate)"),
        (record(price="1"), "price: a text where a number is expected"),
        (b'{"ts": "2013-07-01", "price": 1e999}', "price: a number that no double holds"),
        (b'{"ts": "2013-07-01", "price": NaN}', "it is not JSON: NaN is no number there"),
        (record(money="1.234"), "money: a number that no decimal(10,2) holds exactly"),
        (record(money=10**8), "money: a number that no decimal(10,2) holds exactly"),
        (record(money="1e2"), "money: a text where a decimal number, or a text of one, is expected"),
        (record(day="2013-02-30"), "day: a date that no calendar has"),
        (record(day=1), "day: a whole number where a date like 2013-07-04 is expected"),
        (record(ts=1), "ts: a whole number where a time in ISO 8601 is expected"),
        (record(ts="2013-W01-1"), "ts: a text where a time in ISO 8601 is expected"),
        (record(ts=None), "ts: there is no event time"),
        (b'{"ts": "2013-07-01", "ts": "2013-07-02"}', "a key appears twice in one object"),
        (b'{"ts": "2013-07-01"} {}', "it is not JSON (character 21)"),
        (b"[1]", "it is a list, no JSON object"),
        (b"null", "it is null, no JSON object"),
        (b"\xef\xbb\xbf{}", "it is not JSON (character 0)"),
        (b"[" * 100_000, "it is JSON that cannot be read: a number is too long, or brackets are too deep"),
        (
            b'{"x": ' + b"1" * 5000 + b"}",
            "it is JSON that cannot be read: a number is too long, or brackets are too deep",
        ),
    ],
)
def test_why_a_record_does_not_fit(content: bytes, expected: str) -> None:
    assert why(records(), content) == expected


def test_times_in_integers_and_texts() -> None:
    at = datetime(2013, 7, 1, 8, 30, tzinfo=UTC)
    for value in (1372667400000, TIME, "2013-07-01 10:30:00+02:00", "2013-07-01T08:30"):
        (row,) = read(records("ms"), json.dumps({"ts": value}).encode())
        assert row["ts"] == at, value
    assert "outside the years" in str(why(records("ms"), b'{"ts": 99999999999999999}'))


def test_of_what_does_not_fit_some_bytes_are_kept() -> None:
    (row,) = read(records(), b"x" * (KEPT + 1))
    assert (len(row["_heddle_value"]), row["_heddle_value_bytes"], row["_heddle_key"]) == (KEPT, KEPT + 1, b"k")


@pytest.mark.parametrize(
    "column", [("kafka_offset", STRING), ("KAFKA_ID", STRING), ("_heddle_why", STRING), ("a b", LONG), ("absent", LONG)]
)
def test_columns_that_no_landed_table_has(column: tuple[str, Type]) -> None:
    with pytest.raises(HeddleError) as caught:
        records(columns=(*COLUMNS, column), avro=AVRO)
    assert caught.value.diagnostic.code == "HDL-626"
    assert records(columns=(*COLUMNS, ("kafka_id", STRING))).table.names.count("kafka_id") == 1
    assert set(BROKER_COLUMNS) < set(records().table.names)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '"long"', '{"type": "record"}', '{"type":"record","name":"a","fields":[{"name":"b","type":"nothing"}]}']
    + ['{"type":"record","name":"a","fields":[{"name":"b","type":' + "[" * 30 + "]" * 30 + "}]}"],
)
def test_schemas_that_are_none(text: str) -> None:
    with pytest.raises(HeddleError) as caught:
        AvroSchema.of(text)
    assert caught.value.diagnostic.code == "HDL-626"


def test_named_types_and_records_in_records() -> None:
    pair = {
        "type": "record",
        "name": "Pair",
        "namespace": "a.b",
        "fields": [{"name": "next", "type": ["null", "Pair"]}],
    }
    side = {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}
    fields = [{"name": "pair", "type": pair}, {"name": "one", "type": side}, {"name": "other", "type": "Side"}]
    schema = AvroSchema.of(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert schema.decoded(b"\2\0\2\0") == {"pair": {"next": {"next": None}}, "one": "SELL", "other": "BUY"}
    deep = why(records(avro=AVRO), b"\2" * 100_000)
    assert deep is not None


def test_types_are_at_most_so_deep() -> None:
    def schema(arrays: int) -> str:
        kind: Any = {"type": "long"}
        for _ in range(arrays):
            kind = {"type": "array", "items": kind}
        return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})

    # the record, its field, the arrays, and a type in braces
    deepest = DEEPEST - 2
    value: Any = 3
    for _ in range(deepest):
        value = [value]
    assert AvroSchema.of(schema(deepest)).decoded(b"\2" * deepest + b"\6" + b"\0" * deepest) == {"a": value}
    with pytest.raises(HeddleError, match="HDL-626 .* more than 20 deep"):
        AvroSchema.of(schema(deepest + 1))


# ------------------------------------------------------------------------------------------- Avro, written by its rules
def number(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    encoded_bytes = b""
    while zigzag > 127:
        encoded_bytes += bytes([zigzag & 127 | 128])
        zigzag >>= 7
    return encoded_bytes + bytes([zigzag])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def encoded(event: dict[str, Any]) -> bytes:
    def optional(name: str, write: Any) -> bytes:
        value = event.get(name)
        return b"\0" if value is None else b"\2" + write(value)

    micros = (event["ts"] - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
    # a block of two maps, one of them empty; then one whose size is written
    tags = number(2) + b"\0" + number(1) + text(b"k") + text(b"v") + b"\0" + number(-1) + number(1) + b"\0" + b"\0"
    return b"".join(
        [
            number(micros),
            optional("ok", lambda value: bytes([value])),
            tags,
            optional("small", number),
            optional("big", number),
            optional("price", lambda value: struct.pack("<d", value)),
            optional("name", lambda value: text(value.encode())),
            optional("day", lambda value: number(value.toordinal() - date(1970, 1, 1).toordinal())),
            optional("money", lambda value: text(int(value * 100).to_bytes(8, "big", signed=True))),
        ]
    )
