"""JSON files in every layout and in blocks of every size: read as Python's json module does, or refused by code."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.workload.nested import Nested
from optimizer.workload.streams import load_streams, parse_column, parse_type, with_schema
from optimizer.workload.values import Source, Stream, Workload
from spark_jobs.operations.in_process import answers_of
from spark_jobs.streams.sources import compression, json_source, json_text
from spark_jobs.streams.sources.decoding import check_columns, discover_schema, read_split
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import inspect
from spark_jobs.streams.sources.proposals import look, propose, time_of
from tests.sizes import examples

JULY = 1_372_636_800_000_000
MARK = "\ufeff"

SCHEMA = {
    "at": "timestamp",
    "n": "long",
    "small": "short",
    "x": "double",
    "money": "decimal(38,4)",
    "note": "string",
    "ok": "boolean",
    "p": "struct<m: double, deep: struct<k: long>>",
    "tags": "array<string>",
    "rows": "array<struct<v: long>>",
    "by": "map<string, long>",
}
QUICK = ["at", "n", "small", "x", "money", "note", "ok", "p.m", "p.deep.k", "tags[1]", "rows[0].v"]
COLUMNS = [*QUICK, "by['a b']"]
"""All columns, and those that pyarrow reads, which has no maps."""


def stream_of(path: Path | str, schema: Mapping[str, str] = SCHEMA, time: str = "at", **source: Any) -> Stream:
    types = {name: parse_column(text) for name, text in schema.items()}
    plain = {name: type for name, type in types.items() if not isinstance(type, Nested)}
    nested = [(name, type) for name, type in types.items() if isinstance(type, Nested)]
    return with_schema(Stream("s", Source("json", str(path), **source), (), time), plain, nested)


def read(stream: Stream, columns: Sequence[str] = COLUMNS, **options: Any) -> list[dict[str, Any]]:
    """The rows by the reader alone."""
    return [
        row
        for batch in json_source.read_json(stream, stream.source.path, list(columns), **options)
        for row in batch.to_pylist()
    ]


def refused(stream: Stream, columns: Sequence[str] = COLUMNS, **options: Any) -> str:
    """The error of reading: its code and its message."""
    with pytest.raises(HeddleError) as error:
        read(stream, columns, **options)
    return str(error.value.diagnostic)


# ------------------------------------------------------------------------------------------- the oracle
def inner(value: Any, *path: str | int) -> Any:
    for step in path:
        if value is None:
            return None
        value = value.get(step) if isinstance(step, str) else next(iter(value[step : step + 1]), None)
    return value


def expected(record: dict[str, Any]) -> dict[str, Any]:
    """The values of a record whose values all fit, by Python's decoder with decimals."""
    at = inner(record, "at")
    money = inner(record, "money")
    x, m = inner(record, "x"), inner(record, "p", "m")
    return {
        "at": None if at is None else dt.datetime.fromisoformat(at),
        "n": inner(record, "n"),
        "small": inner(record, "small"),
        "x": None if x is None else float(x),
        "money": None if money is None else Decimal(money),
        "note": inner(record, "note"),
        "ok": inner(record, "ok"),
        "p.m": None if m is None else float(m),
        "p.deep.k": inner(record, "p", "deep", "k"),
        "tags[1]": inner(record, "tags", 1),
        "rows[0].v": inner(record, "rows", 0, "v"),
        "by['a b']": inner(record, "by", "a b"),
    }


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or (left == right and str(left) == str(right))
    return bool(left == right)


# ------------------------------------------------------------------------------------------- generated
def in_text(value: Any, ascii: bool) -> str:
    """A value as JSON, with decimals from their digits."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {in_text(each, ascii)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(in_text(each, ascii) for each in value) + "]"
    return json.dumps(value, ensure_ascii=ascii)


LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(['"', "\\", "},{", "} null", '"at":', "\u212a", "{id}x", "]}", "\x00", "a\nb", "", "Info: -Inf"]),
)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)).map(
    lambda moment: moment.isoformat()
)
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), LONGS, st.floats(), TEXTS),
    lambda some: st.one_of(st.lists(some, max_size=3), st.dictionaries(TEXTS, some, max_size=3)),
    max_leaves=6,
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, st.none())


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "at": MOMENTS,
    "n": LONGS,
    "small": st.integers(-(1 << 15), (1 << 15) - 1),
    "x": st.one_of(st.floats(), LONGS),
    "money": st.one_of(
        st.decimals(-(10**33), 10**33, places=4, allow_nan=False),
        st.decimals(-(10**33), 10**33, places=4, allow_nan=False).map(str),
    ),
    "note": TEXTS,
    "ok": st.booleans(),
    "p": st.fixed_dictionaries(
        {},
        optional={"m": maybe(st.floats()), "deep": maybe(st.fixed_dictionaries({}, optional={"k": LONGS})), "z": ANY},
    ),
    "tags": st.lists(maybe(TEXTS), max_size=3),
    "rows": st.lists(maybe(st.fixed_dictionaries({}, optional={"v": LONGS, "w": ANY})), max_size=2),
    "by": st.dictionaries(st.sampled_from(["a b", "c"]), maybe(LONGS)),
    "unused": ANY,
}
RECORDS = st.fixed_dictionaries({}, optional={name: maybe(values) for name, values in FIELDS.items()})
"""Records that fit, keys missing and in the order of the fields."""


@st.composite
def files(draw: st.DrawFn) -> tuple[list[dict[str, Any]], str, str | None]:
    """Records, a file that holds them, and the path to its records."""
    records = draw(st.lists(RECORDS, max_size=12))
    ascii = draw(st.booleans())
    if draw(st.booleans()):
        for record in records:
            draw(st.randoms()).shuffle(keys := list(record))
            items = [(key, record[key]) for key in keys]
            record.clear()
            record.update(items)
    other = draw(st.sampled_from([{}, {"note": "NOTE", "p": "P"}, {"n": "N"}]))
    texts = [
        in_text({other.get(key, key) if draw(st.booleans()) else key: each for key, each in record.items()}, ascii)
        for record in records
    ]
    space = draw(st.sampled_from(["", " ", "\n", "\r\n \t"]))
    layout = draw(st.sampled_from(["lines", "concatenated", "array", "arrays", "features", "deep", "mixed"]))
    mark = draw(st.sampled_from(["", MARK]))
    if layout == "lines":
        ends = draw(st.sampled_from(["\n", "\r\n", "\n\n \n"]))
        return records, mark + ends.join(texts) + draw(st.sampled_from(["", "\n"])), None
    if layout == "concatenated":
        return records, mark + space.join(texts), None
    together = f"[{space}{f',{space}'.join(texts)}{space}]"
    if layout == "array":
        return records, mark + together + space, None
    if layout == "features":
        beside = f'"note"{space}:{space}{in_text(draw(ANY), ascii)}'
        return records, f'{mark}{{"type": 1, "features": {together},{space}{beside}}}', "features"
    cut = draw(st.integers(0, len(texts)))
    parts = [f"[{','.join(texts[:cut])}]", f"[{f',{space}'.join(texts[cut:])}]"]
    if layout == "arrays":
        return records, parts[0] + space + parts[1] + "\n", None
    if layout == "deep":
        lines = [f'{{"a": {{"z": [1], "items": {part}}}, "b": null}}' for part in parts]
        return records, "\n".join([*lines, '{"A": {"items": null}}']), "a.items"
    return records, "\n".join([parts[0], *texts[cut:]]), None


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(file=files(), block=st.integers(16, 400), codec=st.sampled_from(["", "", "", ".gz", ".bz2", ".zst"]))
def test_every_layout_is_read_as_pythons_json_reads_it(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[list[dict[str, Any]], str, str | None], block: int, codec: str
) -> None:
    records, text, path = file
    place = tmp_path_factory.getbasetemp() / f"some.json{codec}"
    place.write_bytes(compressed(codec, text.encode()))
    stream = stream_of(place, records=path)
    want = [expected(each) for each in records]
    for is_quick in (True, False):
        for size in (block, json_text.BLOCK):
            columns = QUICK if is_quick else COLUMNS
            rows = read(stream, columns, block=size, is_quick=is_quick)
            assert len(rows) == len(want)
            for row, wanted in zip(rows, want, strict=True):
                for name in columns:
                    assert same(row[name], wanted[name]), (name, row[name], wanted[name], is_quick, size)


def compressed(codec: str, content: bytes) -> bytes:
    if codec == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as file:
            file.write(content)
        return bytes(sink.getvalue())
    return gzip.compress(content) if codec == ".gz" else bz2.compress(content) if codec else content


# ------------------------------------------------------------------------------------------- corrupted
PIECES = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\",
        b"\n",
        b" ",
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xef\xbb\xbf",
        b"0",
        b"-",
    ),
    *(
        b"null",
        b"NaN",
        b"Infinity",
        b"-Inf",
        b"1e400",
        b"1.5",
        b"true",
        b"'",
        b"//",
        b"\\ud800",
        b"\\udc00",
        b"\\u0041",
    ),
    *(b'"AT": null', b'"at":', b'"N":1,', b'"n":1,', b'"Note":"x",', b"99999999999999999999", b"\x0b", b"\xe2\x84\xaa"),
    *(b"} null {", b"}\n[{", b"},{", b'{"r":', b"]}null"),
]


def outcome(stream: Stream, **options: Any) -> Any:
    """The rows; None if the file is refused, for the first of perhaps several reasons that a reader comes across."""
    try:
        return [{name: str(value) for name, value in row.items()} for row in read(stream, QUICK, **options)]
    except HeddleError as error:
        assert error.diagnostic.code in ("HDL-404", "HDL-420", "HDL-456", "HDL-481")
        assert "line " in error.diagnostic.message or error.diagnostic.code == "HDL-420"
        return None


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    file=files(),
    changes=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 8), st.sampled_from([b"", *PIECES])), min_size=1, max_size=3
    ),
    block=st.integers(16, 400),
)
def test_corrupted_files_are_read_alike_or_refused_alike(
    tmp_path_factory: pytest.TempPathFactory,
    file: tuple[list[dict[str, Any]], str, str | None],
    changes: list[tuple[float, int, bytes]],
    block: int,
) -> None:
    content = file[1].encode()
    for at, removed, put in changes:
        place = int(at * len(content))
        content = content[:place] + put + content[place + removed :]
    place_of_file = tmp_path_factory.getbasetemp() / "corrupted.json"
    place_of_file.write_bytes(content)
    stream = stream_of(place_of_file, records=file[2])
    slow = outcome(stream, is_quick=False)
    assert outcome(stream) == slow
    assert outcome(stream, block=block) == slow
    if slow is not None and file[2] is None and MARK not in content.decode():
        assert len(slow) == len(by_python(content.decode()))


def by_python(text: str) -> list[Any]:
    """The records of a text by Python's decoder, which accepts what is no JSON between them less strictly."""
    decoder, at, records = json.JSONDecoder(), 0, list[Any]()
    while (at := re.compile(r"[ \t\r\n]*").match(text, at).end()) < len(text):  # type: ignore[union-attr]
        value, at = decoder.raw_decode(text, at)
        records += value if isinstance(value, list) else [value]
    return records


# ------------------------------------------------------------------------------------------- one by one
def file_of(folder: Path, text: str | bytes, name: str = "some.json") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    return path


AT = '"at": "2013-07-01T00:00:00Z"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'{{{AT}, "n": 1}}\n{{{AT}, "n": 1.5}}',
            "column n of {path}, line 2, $.n, does not fit its declared type",
        ),
        (f'{{{AT}, "n": 9223372036854775808}}', "line 1, $.n, does not fit"),
        (f'{{{AT}, "small": 40000}}', "column small of {path}, line 1, $.small, does not fit its declared type short"),
        (f'[{{{AT}}},\n{{{AT},\n"p": {{"m": "x"}}}}]', "column p.m of {path}, line 2, $[1].p.m, does not fit"),
        (f'{{{AT}, "p": 5}}', "line 1, $.p"),
        (
            f'{{{AT}, "note": {{"a": 1}}}}',
            "column note of {path}, line 1, $.note, does not fit its declared type",
        ),
        (f'{{{AT}, "note": "\\ud800"}}', "half of a character"),
        (f'{{{AT}, "ok": "maybe"}}', "line 1, $.ok, does not fit its declared type boolean: 'maybe'"),
        (f'{{{AT}, "money": 1.23456}}', "does not fit its declared type decimal(38,4): '1.23456'"),
        (f'{{{AT}, "n": NaN}}', "line 1, $.n, does not fit its declared type long: 'NaN'"),
        ('{"at": 1372636800}', "column at of {path}, line 1, $.at, does not fit its declared type timestamp"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_line_and_place(tmp_path: Path, text: str, message: str) -> None:
    path = file_of(tmp_path, text)
    for is_quick in (True, False):
        told = refused(stream_of(path), QUICK, is_quick=is_quick)
        assert "HDL-404" in told and message.format(path=path) in told


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (f'{{{AT}}}\n{{"n": 1, "s": "x', "HDL-481", "line 2: unterminated string starting at here"),
        (f"[{{{AT}}}, {{{AT}}}", "HDL-481", "line 1: the file ends within a value"),
        (f"[{{{AT}}},]", "HDL-481", "a value, or a comma between values, is missing"),
        (f"{{{AT}}}\n\nnull\n", "HDL-481", "line 3: null is no record"),
        (f"{{{AT}}} null\n", "HDL-481", "line 1: null is no record"),
        (f"{{{AT}}}\n[1]", "HDL-481", "line 2: a number is no record"),
        (f"{{'n': 1}}\n{{{AT}}}", "HDL-481", "line 1"),
        (f'{{{AT}, "n": 1, "n": 1}}', "HDL-456", "line 1, $: the key n appears twice"),
        (f'{{{AT}, "N": 1, "nn": 1}}\n{{"N": 1, "N": 2}}', "HDL-456", "line 2, $: the key N appears twice"),
        (f'{{{AT}, "NOTE": "a", "Note": "b"}}', "HDL-456", "keys NOTE and Note differ by case at most"),
        (b'{"note": "\xff"}', "HDL-420", "line 1, is not UTF-8"),
        ("{}".encode("utf-16"), "HDL-420", "is UTF-16 or UTF-32"),
        ("[" * 100_000, "HDL-481", "line 1"),
        ('{"z":' * 100_000, "HDL-481", "is nested too deeply"),
    ],
)
def test_a_file_that_is_no_json_is_refused(tmp_path: Path, text: str | bytes, code: str, message: str) -> None:
    path = file_of(tmp_path, text)
    for is_quick in (True, False):
        told = refused(stream_of(path), QUICK, is_quick=is_quick)
        assert code in told and message in told and str(path) in told


def test_keys_are_known_in_any_case_and_texts_of_numbers_are_numbers(tmp_path: Path) -> None:
    lines = [
        f'{{{AT}, "N": 1, "NOTE": 5, "x": "NaN", "MONEY": "0.1"}}',
        f'{{{AT}, "n": null, "N": 2, "note": true, "x": -Infinity, "ok": 1, "p": {{"M": 0.5}}}}',
        f'{{{AT}, "n": "-7", "x": "", "\\u004eote": "1e3", "small": 1}}',
    ]
    stream = stream_of(file_of(tmp_path, "\n".join(lines)))
    for is_quick in (True, False):
        first, second, third = read(stream, QUICK, is_quick=is_quick)
        assert (first["n"], first["note"], first["money"]) == (1, "5", Decimal("0.1000")) and math.isnan(first["x"])
        assert (second["n"], second["note"], second["x"], second["ok"]) == (None, "true", -math.inf, True)
        assert (second["p.m"], third["n"], third["x"], third["note"]) == (0.5, -7, None, "1e3")


def test_numbers_are_read_from_their_digits(tmp_path: Path) -> None:
    exact = "123456789012345678901234567890.1234"
    path = file_of(tmp_path, f'{{{AT}, "n": 9007199254740993, "money": {exact}, "x": 0.1}}\n')
    (row,) = read(stream_of(path))
    assert (row["n"], row["money"], row["x"]) == (9007199254740993, Decimal(exact), 0.1)


@pytest.mark.parametrize("text", ["", "\n\n", "[]", " [ ]\n", "\ufeff"])
def test_a_file_without_records_has_none(tmp_path: Path, text: str) -> None:
    assert read(stream_of(file_of(tmp_path, text))) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"type": 1}', "line 1: $ has no features"),
        ('{"features": 5}', "line 1: $.features is a number, no array of records"),
        ('\n{"features": [{}], "features": []}', "line 2: $ has features twice"),
        ('{"features": [{"n": 1}]', "the file ends within a value"),
        ('{"features": [[{"n": 1}]]}', "an array is no record"),
    ],
)
def test_the_array_of_records_is_there_once(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(stream_of(file_of(tmp_path, text), records="features"))


def test_a_longer_record_than_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "LONGEST", 1 << 18)
    path = file_of(tmp_path, f'{{{AT}, "note": "{"x" * (1 << 18)}"}}\n')
    assert len(read(stream_of(path))[0]["note"]) == 1 << 18
    path = file_of(tmp_path, f'{{{AT}, "note": "{"x" * (1 << 20)}')
    assert "HDL-422" in refused(stream_of(path))


def test_times_count_units_and_have_formats(tmp_path: Path) -> None:
    moment = dt.datetime(2013, 7, 1, tzinfo=dt.UTC)
    path = file_of(tmp_path, '{"p": {"at": 1372636800000}}\n{"p": {"at": "1372636800000"}}\n')
    stream = stream_of(path, {"p": "struct<at: long>"}, "p.at", time_unit="ms")
    assert stream.type_of("p.at") == parse_column("timestamp")
    assert read(stream, ["p.at"]) == [{"p.at": moment}] * 2
    path = file_of(tmp_path, '{"at": "01/07/2013"}\n{"at": "-"}')
    stream = stream_of(path, {"at": "timestamp"}, timestamp_format="%d/%m/%Y", null=("-",))
    assert read(stream, ["at"]) == [{"at": moment}, {"at": None}]


def test_memory_is_bounded_however_an_array_is_written(tmp_path: Path) -> None:
    """Elements of one line, each batch a part of them."""
    record = f'{{{AT}, "n": 1, "rows": [{{"v": 1}}, {{"v": 2}}]}}'
    path = file_of(tmp_path, "[" + ",".join([record] * 20_000) + "]")
    sizes = [
        len(batch) for batch in json_source.read_json(stream_of(path), str(path), ["n", "rows[0].v"], block=1 << 16)
    ]
    assert sum(sizes) == 20_000 and max(sizes) < 2000


def test_blocks_are_parsed_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written plainly is not taken apart value by value: lines, arrays, and arrays in objects."""
    records = [{"at": "2013-07-01T00:00:00Z", "n": n, "note": "é}{", "x": 0.5, "p": {"m": 1}} for n in range(20_000)]
    array = json.dumps(records)
    monkeypatch.setattr(json_source._Rows, "add", lambda self, record: slow.append(record))
    for text, path in (("\n".join(map(json.dumps, records)), None), (array, None), (f'{{"f": {array}}}', "f")):
        slow: list[Any] = []
        stream = stream_of(file_of(tmp_path, text), records=path)
        rows = sum(
            batch.num_rows for batch in json_source.read_json(stream, stream.source.path, ["at", "n", "note", "p.m"])
        )
        assert len(slow) + rows == 20_000 and len(slow) < 2000


# ------------------------------------------------------------------------------------------- compressed
@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_damaged_archive_is_an_error_of_its_file(tmp_path: Path, ending: str, format: str) -> None:
    rows = [f'{{{AT}, "n": {n}}}' if format == "json" else f"2013-07-01T00:00:00Z,{n}" for n in range(3000)]
    content = "\n".join(["at,n", *rows] if format == "csv" else rows).encode() + b"\n"
    path = tmp_path / f"some.{format}{ending}"
    stream = with_schema(
        Stream("s", Source(format, str(path)), (), "at"), {"at": parse_type("timestamp"), "n": parse_type("long")}
    )

    def read_rows() -> int:
        (split,) = splits_of(stream)
        check_columns(stream, [split], ["n"])
        return sum(batch.num_rows for batch in read_split(stream, split, ["n"]))

    archive = compressed(ending, content)
    path.write_bytes(archive)
    assert read_rows() == 3000
    # of several members, as `cat` makes them
    more = compressed(ending, content if format == "json" else b"2013-07-01T00:00:00Z,1\n")
    path.write_bytes(archive + more)
    assert read_rows() == (6000 if format == "json" else 3001)
    for damaged in (
        archive[:-5],
        archive[: len(archive) // 2],
        archive[: len(archive) // 2] + b"\0" * 99,
        archive + b"x",
    ):
        path.write_bytes(damaged)
        with pytest.raises(HeddleError, match=r"HDL-402.*some\."):
            read_rows()
    path.write_bytes(content)
    with pytest.raises(HeddleError, match=rf"(?s)HDL-415.*as its name states.*rename it without {ending}"):
        read_rows()
    plain = tmp_path / f"plain.{format}"
    plain.write_bytes(archive)
    stream = with_schema(Stream("s", Source(format, str(plain)), (), "at"), dict(stream.schema))
    with pytest.raises(HeddleError, match=rf"(?s)HDL-415.*not {format.upper()}.*{ending}"):
        read_rows()


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "FREE", 1 << 20)
    path = tmp_path / "bomb.json.bz2"
    path.write_bytes(bz2.compress(b" " * (16 << 20)))
    (split,) = splits_of(stream_of(path))
    with pytest.raises(HeddleError, match=r"HDL-480.*bomb.json.bz2"):
        list(read_split(stream_of(path), split, []))


def test_csv_errors_of_a_compressed_file_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "some.csv.gz"
    path.write_bytes(gzip.compress(b"at,n\n2013-07-01,1\n2013-07-01,x\n"))
    stream = with_schema(
        Stream("s", Source("csv", str(path)), (), "at"), {"at": parse_type("timestamp"), "n": parse_type("long")}
    )
    (split,) = splits_of(stream)
    with pytest.raises(HeddleError, match=r"HDL-404.*line 3"):
        list(read_split(stream, split, ["n"]))


# ------------------------------------------------------------------------------------------- proposed
def proposed(path: Path) -> tuple[Stream, tuple[str, ...]]:
    data = look(path)
    proposal = propose(data, time_of(data))
    return proposal.stream, proposal.notes


def test_a_declaration_is_proposed_of_a_sample(tmp_path: Path) -> None:
    events = [
        {"when": 1372636800000 + n, "who": f"u{n}", "code": "01", "paid": f"{n}.50", "x": [n], "gone": None}
        | {"m": [n, "a"][n % 2], "in": {"a": n, "b": {"c": n / 2}}, "big": 10**25, "kind": ["a", {"b": 1}][n % 2]}
        | {"list": [{"q": 1, "t": "2013-07-01"}]}
        for n in range(10)
    ]
    path = file_of(tmp_path, "\n".join(map(json.dumps, events)), "some.ndjson")
    stream, notes = proposed(path)
    assert stream.source == Source("json", str(path), time_unit="ms") and stream.time == "when"
    assert {name: str(type) for name, type in stream.schema} == {
        **{
            "when": "timestamp",
            "who": "string",
            "code": "string",
            "paid": "double",
            "m": "string",
            "big": "decimal(38,0)",
        }
    }
    assert {name: str(type) for name, type in stream.nested} == {
        "x": "array<long>",
        "in": "struct<a: long, b: struct<c: double>>",
        "list": "array<struct<q: long, t: string>>",
    }
    assert any("10 records of 1 file" in note for note in notes) and "left out: 'gone', 'kind'" in notes
    assert len(read(stream, ["when", "in.b.c", "list[0].q"])) == 10


@pytest.mark.parametrize("ending", [".geojson", ".json.gz", ".json.zst"])
def test_an_array_inside_an_object_is_proposed_with_its_path_and_a_nested_time(tmp_path: Path, ending: str) -> None:
    features = [{"id": n, "properties": {"time": f"2013-07-01T00:00:{n:02}Z", "mag": n / 2}} for n in range(60)]
    text = json.dumps({"type": "FeatureCollection", "metadata": {"n": [1]}, "features": features}, indent=1)
    path = file_of(
        tmp_path, compressed(ending.removeprefix(".json"), text.encode()) if "json." in ending else text, "q" + ending
    )
    stream, _ = proposed(path)
    assert (stream.name, stream.source.records, stream.time) == ("q", "features", "properties.time")
    assert len(read(stream, ["properties.time", "properties.mag"])) == 60
    # a time in its middle is known too: all of a small file is read
    assert inspect(stream, []).last == int(dt.datetime(2013, 7, 1, 0, 0, 59, tzinfo=dt.UTC).timestamp() * 1e6)


def test_a_stream_without_a_schema_has_that_of_a_sample(tmp_path: Path) -> None:
    path = file_of(tmp_path, '{"p": {"at": "2013-07-01T00:00:00Z", "d": "2013-07-01"}, "n": 1}\n')
    stream, (warning,) = discover_schema(Stream("s", Source("json", str(path)), (), "p.at"))
    assert warning.code == "HDL-482" and warning.severity == "warning"
    assert (str(dict(stream.nested)["p"]), str(stream.type_of("n"))) == ("struct<at: timestamp, d: string>", "long")


# ------------------------------------------------------------------------------------------- declared
def declared(folder: Path, source: str, time: str = "at", schema: str = "{at: timestamp}") -> tuple[Any, list[str]]:
    file = folder / "streams.yaml"
    file.write_text(
        f"streams: {{s: {{source: {{format: json, path: data, {source}}}, time: '{time}', schema: {schema}}}}}"
    )
    streams, problems = load_streams(file, None, str(folder / "copies"))
    return streams.get("s"), [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("source", "is_copied"),
    [
        ("", False),
        ("reader: direct, records: a.b, 'null': [NA], timestamp_format: '%Y-%m-%d'", False),
        ("reader: spark", True),
        ("since: 2020-01-01", True),
        ("options: {multiLine: 'true'}", True),
    ],
)
def test_spark_reads_what_only_spark_has_keys_for(tmp_path: Path, source: str, is_copied: bool) -> None:
    stream, problems = declared(tmp_path, source)
    assert not problems and (stream.source.origin is not None) == is_copied
    assert stream.source.format == ("delta" if is_copied else "json")


@pytest.mark.parametrize(
    ("source", "time", "code"),
    [
        ("records: a, reader: spark", "at", "HDL-457"),
        ("reader: direct, since: 2020-01-01", "at", "HDL-457"),
        ("records: a..b", "at", "HDL-457"),
        ("records: '.'", "at", "HDL-457"),
        ("", "p.x", "HDL-455"),
        ("", "p.none", "HDL-455"),
        ("", "p", "HDL-455"),
        ("", "list[0]", "HDL-455"),
        ("reader: spark", "p.at", "HDL-455"),
    ],
)
def test_a_wrong_declaration_is_refused(tmp_path: Path, source: str, time: str, code: str) -> None:
    schema = "{at: timestamp, p: 'struct<at: timestamp, x: double>', list: array<long>}"
    _, problems = declared(tmp_path, source, time, schema)
    assert [code in problem for problem in problems] == [True], problems


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_a_field_may_be_the_time_of_events_and_windows_are_on_it(tmp_path: Path, format: str) -> None:
    """Answers by the time inside a struct are those by the same time in a column of its own."""
    rows = [{"t": 1372636800 + 40 * n, "p": {"at": 1372636800 + 40 * n, "n": n}} for n in range(200)]
    (tmp_path / "data").mkdir()
    if format == "json":
        (tmp_path / "data" / "a.json").write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "a.parquet")
    nested = "{source: {format: %s, path: data, time_unit: s}, time: p.at, schema: {p: 'struct<at: long, n: long>'}}"
    flat = "{source: {format: %s, path: data, time_unit: s}, time: t, schema: {t: long, p: 'struct<n: long>'}}"
    (tmp_path / "streams.yaml").write_text(f"streams: {{nested: {nested % format}, flat: {flat % format}}}")
    streams, problems = load_streams(tmp_path / "streams.yaml")
    assert not problems
    text = "SELECT count(*) AS c, sum(p.n) AS s FROM {0} WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON {1};"
    parsed = parse("\n".join([text.format("nested", "p.at"), text.format("flat", "t")]), streams)
    assert not parsed.diagnostics
    answers, problems_of_run = answers_of(
        Workload(tuple(parsed.queries), tuple(streams.values())), JULY, JULY + 3 * 3600 * 10**6
    )
    assert not problems_of_run
    first, second = answers.values()
    assert len(first) > 10 and first.equals(second)


def test_columns_of_folders_are_read_where_they_are_declared_and_missed_where_not(tmp_path: Path) -> None:
    for day in (1, 2):
        folder = tmp_path / "data" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "a.json").write_text(f"{{{AT}}}\n{{{AT}}}")
    stream, problems = declared(tmp_path, "partitions: [day]", schema="{at: timestamp, day: long}")
    assert not problems
    batches = [batch for split in splits_of(stream) for batch in read_split(stream, split, ["day"])]
    assert [day for batch in batches for day in batch.column("day").to_pylist()] == [1, 1, 2, 2]
    stream, problems = declared(tmp_path, "", schema="{at: timestamp, day: long}")
    assert not problems
    with pytest.raises(HeddleError, match=r"(?s)HDL-403.*write `partitions: \[day\]`"):
        check_columns(stream, splits_of(stream), ["day"])


def test_a_misspelt_key_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text(f'{{{AT}, "name": 1}}')
    stream, _ = declared(tmp_path, "", schema="{at: timestamp, nmae: long}")
    (warning,) = inspect(stream, ["nmae"]).diagnostics
    assert (warning.code, warning.severity) == ("HDL-403", "warning")
    assert "nmae is null in the first 1 records" in str(warning)


# ------------------------------------------------------------------------------------------- decimals
DIGITS = st.text("0123456789", max_size=50) | st.integers(0, 200).map("0".__mul__)
NUMBERS = st.builds(
    lambda sign, first, more, fraction, exponent: f"{sign}{first}{more if first != '0' else ''}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    st.sampled_from("0123456789"),
    DIGITS,
    st.just("") | DIGITS.filter(len).map(".{}".format),
    st.just("") | st.just("") | st.integers(-160, 160).map("e{}".format),
)


def in_decimal(text: str, precision: int, scale: int) -> Decimal | None:
    """The number that a text is, by Python's exact arithmetic; None: it does not fit."""
    units = Fraction(text) * 10**scale
    if units.denominator != 1 or abs(units) >= 10**precision:
        return None
    return Decimal(int(units)).scaleb(-scale, Context(prec=200))


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    texts=st.lists(NUMBERS, min_size=1, max_size=3),
    type=st.sampled_from([(38, 4), (38, 38), (38, 0), (10, 2), (5, 0)]),
)
def test_decimals_are_exact_or_refused(tmp_path: Path, texts: list[str], type: tuple[int, int]) -> None:
    """pyarrow loses digits of long numbers, and wraps round: what is read is the number that is written, or HDL-404."""
    want = [in_decimal(text, *type) for text in texts]
    declared_type = parse_type("decimal({},{})".format(*type))
    schema = {"at": parse_type("timestamp"), "d": declared_type}
    json_file = file_of(tmp_path, "\n".join(f'{{{AT}, "d": {text}}}' for text in texts))
    csv_file = file_of(tmp_path, "at,d\n" + "".join(f"2013-07-01,{text}\n" for text in texts), "some.csv")
    for format, path in (("json", json_file), ("csv", csv_file)):
        stream = with_schema(Stream("s", Source(format, str(path)), (), "at"), schema)
        (split,) = splits_of(stream)
        try:
            got = [value for batch in read_split(stream, split, ["d"]) for value in batch.column("d").to_pylist()]
        except HeddleError as error:
            assert error.diagnostic.code == "HDL-404" and None in want
        else:
            assert got == want
