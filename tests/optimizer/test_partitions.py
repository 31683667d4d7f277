"""Folders whose names are columns and times: how they are declared, what their texts are, which time they span."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.declarations import declaration_digest
from optimizer.workload.partitions import (
    Misplaced,
    margin_of,
    parse_partitions,
    span_in,
    split_pattern,
    texts_in,
    unescaped,
)
from optimizer.workload.streams import load_streams, parse_type
from optimizer.workload.values import DATE, LONG, STRING, TIMESTAMP, Partition, Source, Stream, from_json, to_json

HOUR = 3_600_000_000
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9998, 12, 30))


def micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def exact(*names: str, folders: str = "") -> Source:
    return Source("csv", "/data", partitions=tuple(Partition(name, None, True) for name in names), folders=folders)


@given(MOMENTS)
def test_the_time_of_a_moment_is_in_the_span_of_each_of_its_folders(moment: dt.datetime) -> None:
    year, month = f"{moment.year:04}", f"{moment.month:02}"
    day, hour = f"{moment.day:02}", f"{moment.hour:02}"
    layouts = [
        (exact("day"), [f"day={year}-{month}-{day}"], 24),
        (exact("DT"), [f"dt={year}{month}{day}", "region=eu"], 24),
        (exact("date", "hour"), [f"date={year}-{month}-{day}", f"hour={moment.hour}"], 1),
        (exact("year", "month", "day"), [f"year={year}", f"month={moment.month}", f"day={day}"], 24),
        (exact("d", "m", "y", "h"), [f"h={hour}", f"d={day}", f"m={month}", f"y={year}"], 1),
        (exact("at"), [f"at={year}-{month}-{day} {hour}%3A00%3A00"], 1),
        (exact("at"), [f"at={year}{month}{day}{hour}"], 1),
        (exact("year", "month", "day", folders="{year}/{month}/{day}"), [year, month, day, "deeper"], 24),
        (
            exact("year", "month", "day", "hour", folders="{year}{month}{day}/h{hour}"),
            [year + month + day, f"h{hour}"],
            1,
        ),
    ]
    for source, folders, hours in layouts:
        span = span_in(source, folders)
        assert span is not None and span[1] - span[0] == hours * HOUR and span[0] <= micros(moment) < span[1]
        # of the first folders alone no more is known, and never less than all say
        for end in range(len(folders)):
            some = span_in(source, folders[:end], is_partial=True)
            assert some is None or (some[0] <= span[0] and some[1] >= span[1])
        low, high = margin_of(span)
        assert span[0] - low == high - span[1] == min(hours * HOUR, 24 * HOUR)
    for source, folders in ((exact("ym"), [f"ym={year}-{month}"]), (exact("year"), [f"year={year}"])):
        span = span_in(source, folders)
        assert span is not None and span[0] <= micros(moment) < span[1]
        assert span[0] == micros(
            moment.replace(
                month=1 if "year" in folders[0] else moment.month, day=1, hour=0, minute=0, second=0, microsecond=0
            )
        )


@given(st.text().filter(lambda text: text != "__HIVE_DEFAULT_PARTITION__"), st.booleans())
def test_an_escaped_text_comes_back(text: str, is_short: bool) -> None:
    # as Spark escapes: what a folder's name cannot have, and the percent sign
    escaped = quote(text, safe="" if is_short else "é ü+,;~!*()'&$@") if is_short else text.replace("%", "%25")
    try:
        assert unescaped(escaped) == text
    except Misplaced:
        assert any(0xD800 <= ord(letter) < 0xE000 for letter in text)


@pytest.mark.parametrize(
    ("text", "expected"), [("%zz", "%zz"), ("a%", "a%"), ("100%25", "100%"), ("%C3%A9", "é"), ("a+b", "a+b"), ("", "")]
)
def test_what_is_no_encoding_stays(text: str, expected: str) -> None:
    assert unescaped(text) == expected


def test_texts_of_folders() -> None:
    source = Source("csv", "/data", partitions=(Partition("day"), Partition("Region")))
    assert texts_in(source, ["x", "REGION=a%2Fb", "day=1=2", "n=3"]) == {"Region": "a/b", "day": "1=2"}
    assert texts_in(source, ["day=", "region=__HIVE_DEFAULT_PARTITION__"]) == {"day": "", "Region": None}
    for folders in (["day=1"], ["region=1"], [], ["day=1", "day=2", "region=3"], ["day=%FF", "region=1"]):
        with pytest.raises(Misplaced):
            texts_in(source, folders)
    pattern = Source("csv", "/data", partitions=(Partition("a"), Partition("year")), folders="x-{a}/y{year}")
    assert texts_in(pattern, ["x-b c%20", "y2024", "more"]) == {"a": "b c%20", "year": "2024"}
    for folders in (["x-b"], ["b", "y2024"], ["x-b", "y24"]):
        with pytest.raises(Misplaced):
            texts_in(pattern, folders)


@pytest.mark.parametrize(
    ("source", "folders"),
    [
        (exact("day"), ["day=tomorrow"]),
        (exact("day"), ["day=2024-02-30"]),
        (exact("day"), ["day=31"]),
        (exact("year", "day"), ["year=2024", "day=31"]),
        (exact("date", "year"), ["date=2024-01-31", "year=2023"]),
    ],
)
def test_exact_folders_without_a_time_are_misplaced(source: Source, folders: list[str]) -> None:
    with pytest.raises(Misplaced):
        span_in(source, folders)


def test_folders_that_are_not_exact_limit_nothing() -> None:
    assert span_in(Source("csv", "/d", partitions=(Partition("day"),)), ["day=2024-01-31"]) is None
    assert span_in(exact("day"), ["day=__HIVE_DEFAULT_PARTITION__"]) is None


def test_patterns_are_split_from_their_folder() -> None:
    assert split_pattern("logs/{year}/{month}") == ("logs", "{year}/{month}")
    assert split_pattern("s3://b/logs/y={year}/x/{hour}/") == ("s3://b/logs", "y={year}/x/{hour}")
    assert split_pattern("/{a}") == ("/", "{a}") and split_pattern("{a}") == (".", "{a}")
    assert split_pattern("a/{b c}") == ("a/{b c}", "")


def declared(tmp_path: Path, source: str, more: str = "") -> tuple[Stream | None, list[str]]:
    path = tmp_path / "streams.yaml"
    path.write_text(f"streams:\n  s:\n    source: {source}\n    time: ts\n{more}")
    streams, diagnostics = load_streams(path)
    return streams.get("s"), [diagnostic.code for diagnostic in diagnostics]


def test_partitions_are_declared(tmp_path: Path) -> None:
    schema = "    schema: {ts: timestamp, Region: string, day: date}\n"
    stream, codes = declared(tmp_path, "{format: csv, path: lake, partitions: [day, region], files: '*.txt'}", schema)
    assert stream is not None and codes == []
    assert stream.source.partitions == (Partition("day"), Partition("Region")) and stream.source.files == "*.txt"
    words = "{day: exact, zip: string, n: 'decimal(10, 2) exact', k: auto, e: }"
    stream, codes = declared(tmp_path, f"{{format: parquet, path: lake, partitions: {words}}}")
    assert stream is not None and [str(each.type) for each in stream.source.partitions[:3]] == [
        "None",
        "string",
        "decimal(10,2)",
    ]
    assert [each.is_exact for each in stream.source.partitions] == [True, False, True, False, False]
    assert from_json(to_json(stream)) == stream
    source = '{format: csv, path: "logs/{year}/{month}/{shop}", partitions: exact}'
    stream, codes = declared(tmp_path, source, "    schema: {ts: timestamp, shop: string}\n")
    assert stream is not None and stream.source.path == str(tmp_path / "logs")
    assert stream.source.folders == "{year}/{month}/{shop}"
    assert [each.name for each in stream.source.partitions if each.is_exact] == ["year", "month"]
    typed = declared(tmp_path, "{format: csv, path: lake, partitions: {n: long}}", "    schema: {ts: timestamp}\n")[0]
    assert typed is not None and dict(typed.schema) == {"ts": TIMESTAMP, "n": LONG}


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("{format: csv, path: lake, partitions: [day]}", "HDL-457"),
        ("{format: csv, path: lake, partitions: exact}", "HDL-457"),
        ("{format: csv, path: lake, partitions: [a, A]}", "HDL-456"),
        ("{format: csv, path: lake, partitions: {a: number}}", "HDL-454"),
        ("{format: csv, path: lake, partitions: {x: string}}", "HDL-454"),
        ("{format: csv, path: lake, files: 'a/*.csv'}", "HDL-457"),
        ("{format: csv, path: lake, files: ''}", "HDL-457"),
        ('{format: csv, path: "a/{year}/{year}"}', "HDL-457"),
        ('{format: csv, path: "a/{year}/{b"}', "HDL-457"),
        ('{format: csv, path: "a/{year}", partitions: [month]}', "HDL-457"),
        ('{format: csv, path: "a/{day}", partitions: exact}', "HDL-457"),
        ("{format: orc, path: lake, partitions: [a]}", "HDL-457"),
        ("{format: parquet, path: lake, reader: spark, partitions: [a]}", "HDL-457"),
        ("{format: parquet, path: lake, reader: spark, files: '*.x'}", "HDL-457"),
    ],
)
def test_partitions_that_are_wrong_are_reported(tmp_path: Path, source: str, code: str) -> None:
    stream, codes = declared(tmp_path, source, "    schema: {ts: timestamp, x: long}\n")
    assert stream is None and codes == [code]


def test_a_word_is_a_type_or_exact() -> None:
    with pytest.raises(HeddleError, match="HDL-454"):
        parse_partitions({"day": "exactly"}, "", parse_type)
    assert parse_partitions({"day": "date exact"}, "", parse_type) == (Partition("day", DATE, True),)


def test_only_a_column_of_folders_has_another_declaration() -> None:
    schema = (("ts", TIMESTAMP), ("region", STRING), ("x", LONG))
    plain = Stream("s", Source("csv", "/d"), schema, "ts")
    parted = Stream("s", Source("csv", "/d", partitions=(Partition("region"),), files="*.x"), schema, "ts")
    assert declaration_digest(plain, ["x"]) == declaration_digest(parted, ["x"])
    assert declaration_digest(plain, ["region"]) != declaration_digest(parted, ["region"])
