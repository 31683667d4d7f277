"""CSV files of any dialect, in blocks of every size: read as Python's csv module does, or refused by code."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.streams import TIME_UNITS
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
    Source,
    Stream,
    Type,
    decimal,
)
from spark_jobs.streams.sources import csv_source
from spark_jobs.streams.sources.decoding import check_columns, read_split
from spark_jobs.streams.sources.files import splits_of
from tests.sizes import examples

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
BITS = {BYTE: 8, SHORT: 16, INT: 32, LONG: 64}


# ----------------------------------------------------------------------- what a value is, said once more
INFINITE = {
    sign + word: -math.inf if sign == "-" else math.inf
    for sign in ("", "+", "-")
    for word in ("Infinity", "Inf", "inf")
}


class Misfit(Exception):
    """A text that is no value of its column's type."""


def micros(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // dt.timedelta(microseconds=1)


def expected_value(source: Source, type: Type, text: str, quoted: bool) -> Any:
    """What a field says, by Python's own means."""
    if type == STRING:
        return None if not quoted and (text == "" or text in source.null) else text
    text = text.strip(" \t\n\r\v\f")
    if text == "" or text in source.null:
        return None
    try:
        if type.name == "timestamp":
            if source.time_unit is not None:
                above, below = TIME_UNITS[source.time_unit]
                number = expected_integer(text, 64) * above // below
                if not -(2**63) <= number < 2**63:
                    raise Misfit(text)
                return number
            if source.timestamp_format is not None:
                return micros(dt.datetime.strptime(text, source.timestamp_format))
            return micros(dt.datetime.fromisoformat(text))
        if type.name == "long":
            return expected_integer(text, BITS[type])
        if type == DOUBLE:
            if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII):
                return float(text)
            return {"NaN": math.nan, "nan": math.nan}[text] if "n" in text[:1].lower() else INFINITE[text]
        if type.name == "decimal":
            number = Decimal(text)
            rounded = number.quantize(Decimal(1).scaleb(-type.scale))
            if number != rounded or abs(rounded) >= Decimal(10) ** (type.precision - type.scale):
                raise Misfit(text)
            return rounded
        if type == BOOLEAN:
            return {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}[text.lower()]
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):  # strptime takes 2013-7-4 as well
            raise Misfit(text)
        return dt.datetime.strptime(text, "%Y-%m-%d").date()
    except (ValueError, KeyError, ArithmeticError):
        raise Misfit(text) from None


def expected_integer(text: str, bits: int) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise Misfit(text)
    return int(text)


# ------------------------------------------------------------------------------------------ dialects
@dataclass(frozen=True)
class Dialect:
    """A file as somebody writes it: how it is to be read, and its bytes."""

    source: Source
    schema: tuple[tuple[str, Type], ...]
    content: bytes
    quoting: int


TEXTS = st.one_of(
    st.sampled_from(["", "A", "NA", "-", "x", 'say "it"', "it's", "a,b", "a;b", "ü€", "\ufeff", " padded ", "#x", "1"]),
    st.sampled_from(["two\nlines", "two\r\nlines", "two\rlines", "\n", "\r\n", '"\r\n"', '""', "'\n'", '\n"', "\r"]),
    st.text("ab\"'\r\n,;\t|", max_size=9),
)
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.sampled_from(["", "1e5", "1E-05", "+1.5", ".5", "5.", "NaN", "nan", "Inf", "-Infinity", "+inf", "-inf", "1"]),
)
GARBAGE = {
    "ts": ["yesterday", "0x10", "2013-02-30", "2013-07-01T25:00:00", "1.5", "-"],
    "price": ["0x10", "1_0", "1,5", "1.2.3", "-nan", "INF", "nan(2)", "1d", "1e", "٣"],
    "volume": ["0x10", "0X1f", "1_0", "1.0", "--1", "9223372036854775808", "many", "٣", "0b1", "1 2"],
    "open": ["yes", "2", "truely", "N"],
    "due": ["2013-02-30", "2013-7-4", "0000-01-01", "04.07.2013", "2013-07-04T00:00:00"],
    "fee": ["1.234", "10000000", "0x1", "1,25", "1.25.3"],
}
"""What is no value of a column; of ``volume`` the numbers next to its type's range beside them."""

TIMES = st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1))
FORMATS = ["%d/%m/%Y %H:%M", "%Y%m%d%H%M%S.%f", "%b %d, %Y %I:%M:%S %p", "%m/%d/%y %H:%M:%S", "%Y-%m-%d %H:%M:%S%z"]


def integers(type: Type) -> st.SearchStrategy[str]:
    most = 2 ** (BITS[type] - 1)
    edges = st.sampled_from([str(-most), str(most - 1), "+5", "007", "-0", "", " 5", "5 "])
    return st.integers(-most, most - 1).map(str) | edges


def times(source: Source) -> st.SearchStrategy[str]:
    if source.time_unit is not None:
        above, below = TIME_UNITS[source.time_unit]
        return TIMES.map(lambda moment: str(micros(moment) * below // above))
    if source.timestamp_format is not None:
        pattern = source.timestamp_format
        zone = dt.timezone(dt.timedelta(hours=-3, minutes=-30))
        return TIMES.map(lambda moment: moment.replace(tzinfo=zone).strftime(pattern))
    return st.tuples(TIMES, st.sampled_from([" ", "T"]), st.sampled_from(["", "Z", "+02:00", "-0530"])).map(
        lambda parts: parts[0].isoformat(parts[1]) + parts[2]
    ) | st.sampled_from(["2013-07-01", "2013-07-01 12:30"])


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    quote = draw(st.sampled_from(['"', '"', "'", None]))
    source = Source(
        "csv",
        "",
        delimiter=draw(st.sampled_from([",", ";", "\t", "|"])),
        header=draw(st.booleans()),
        quote=quote,
        null=draw(st.sampled_from([(), ("NA",), ("NA", "-")])),
        **draw(
            st.one_of(
                st.just({}),
                st.sampled_from(FORMATS).map(lambda pattern: {"timestamp_format": pattern}),
                st.sampled_from(sorted(TIME_UNITS)).map(lambda unit: {"time_unit": unit}),
            )
        ),
    )
    width = draw(st.sampled_from([BYTE, SHORT, INT, LONG]))
    kinds: dict[str, tuple[Type, st.SearchStrategy[str]]] = {
        "ts": (TIMESTAMP, times(source)),
        "text": (STRING, TEXTS),
        "price": (DOUBLE, FLOATS),
        "volume": (width, integers(width)),
        "open": (BOOLEAN, st.sampled_from(["true", "FALSE", "t", "0", ""])),
        "due": (DATE, st.dates(dt.date(1900, 1, 1)).map(str) | st.just("")),
        "fee": (decimal(9, 2), st.sampled_from(["1.25", "-3", "", "1e2"])),
        "last": (STRING, TEXTS),
    }
    other_names = draw(st.lists(st.sampled_from(sorted(set(kinds) - {"ts"})), unique=True, min_size=1, max_size=4))
    names = draw(st.permutations(["ts", *other_names]))
    rows = draw(st.lists(st.tuples(*(kinds[name][1] for name in names)), min_size=1, max_size=12))
    fault = draw(st.sampled_from(["", "", "value", "value", "line", "byte", "cut"]))
    if fault == "value":
        place, at = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(names) - 1))
        edge = 2 ** (BITS[width] - 1)
        wrong = {"volume": [*GARBAGE["volume"], str(edge), str(-edge - 1)] * 2} if names[at] == "volume" else GARBAGE
        row = list(rows[place])
        row[at] = draw(st.sampled_from(wrong.get(names[at], ["x"])))
        rows[place] = tuple(row)
    quoting = csv.QUOTE_NONE if quote is None else draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    if quote is None:
        rows = [tuple(re.sub(r"[\r\n]", "", field.replace(source.delimiter, "")) for field in row) for row in rows]
    ends = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    broken = draw(st.integers(0, len(rows))) if fault == "line" else -1
    file = io.StringIO()
    writer = csv.writer(file, delimiter=source.delimiter, quotechar=quote, quoting=quoting, lineterminator=ends)
    if source.header:
        writer.writerow(names)
    for place, row in enumerate(rows):
        if draw(st.integers(0, 9)) == 0:
            file.write(ends)
        if place == broken:
            file.write(draw(st.sampled_from(["# comment", "a", source.delimiter * 9])) + ends)
        writer.writerow(row)
    content = (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + file.getvalue().encode()
    if draw(st.booleans()):
        content = content.rstrip(b"\r\n")
    at = draw(st.integers(0, len(content)))
    if fault == "cut":
        content = content[: max(at, len(content) - 20)]
    if fault == "byte":
        what = draw(st.sampled_from([b"\xff", b'"', b"'", b",", b";", b"\n", b"\r", b"x"]))
        content = content[:at] + what + content[at:]
    return Dialect(source, tuple((name, kinds[name][0]) for name in names), content, quoting)


# ------------------------------------------------------------------------------------------ the oracle
def records(dialect: Dialect, content: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """The first line and the fields of each record, as Python's csv module reads them."""
    source = dialect.source
    text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=source.delimiter,
        quotechar=source.quote,
        quoting=csv.QUOTE_NONE if source.quote is None else csv.QUOTE_MINIMAL,
    )
    line = 1
    for row in reader:
        if row:
            yield line, [field.encode("latin-1") for field in row]
        line = reader.line_num + 1


def expected(dialect: Dialect, wanted: list[str]) -> tuple[list[dict[str, Any]], dict[str, set[int]]]:
    """The events, or the codes that may be told and the lines that they may name (none: any)."""
    faults: dict[str, set[int]] = {}
    numbered_records = list(records(dialect, dialect.content))
    # an open quote swallows what is put behind it
    beyond = [fields for _, fields in records(dialect, dialect.content + b"\nZZ")]
    if beyond[-1] != [b"ZZ"]:
        faults["HDL-422"] = set()
    names = [name.encode() for name, _ in dialect.schema]
    if dialect.source.header and numbered_records:
        names = numbered_records.pop(0)[1]
        for name in wanted:
            if names.count(name.encode()) != 1:
                return [], faults | {"HDL-403": set(), "HDL-420": set(), "HDL-423": set()}
        if any(b"\xff" in name for name in names):
            return [], faults | {"HDL-420": set()}
    types, events = dict(dialect.schema), []
    for line, fields in numbered_records:
        if len(fields) != len(names):
            faults.setdefault("HDL-421", set()).add(line)
            continue
        values = {}
        for name in wanted:
            quoted = dialect.quoting == csv.QUOTE_ALL
            try:
                text = fields[names.index(name.encode())].decode()
                values[name] = expected_value(dialect.source, types[name], text, quoted)
            except UnicodeDecodeError:
                faults.setdefault("HDL-420", set()).add(line)
            except Misfit:
                faults.setdefault("HDL-404", set()).add(line)
        events.append(values)
    return events, faults


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, float) and math.isnan(theirs):
        return isinstance(ours, float) and math.isnan(ours)
    return type(ours) is type(theirs) and ours == theirs


def read(dialect: Dialect, wanted: list[str], block: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, patch.object(csv_source, "BLOCK", block):
        path = Path(folder, "events.csv")
        path.write_bytes(dialect.content)
        source = Source(**(vars(dialect.source) | {"path": str(path)}))
        stream = Stream("events", source, dialect.schema, "ts")
        splits = splits_of(stream)
        check_columns(stream, splits, wanted)
        batches = [batch for split in splits for batch in read_split(stream, split, wanted)]
        rows = []
        for batch in batches:
            assert not batch.validate(full=True)
            instants = batch.column("ts").cast(pa.int64()).to_pylist()
            rows += [row | {"ts": at} for row, at in zip(batch.to_pylist(), instants, strict=True)]
        return rows


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dialect=dialects(), data=st.data())
def test_files_of_any_dialect_are_read_as_python_reads_them_or_refused(dialect: Dialect, data: st.DataObject) -> None:
    names = [name for name, _ in dialect.schema]
    some = data.draw(st.just(names) | st.lists(st.sampled_from(names), unique=True))
    column_names = ["ts", *(name for name in some if name != "ts")]
    events, faults = expected(dialect, column_names)
    # long enough for any record, so that a block may end anywhere in the next one
    all_fields = [fields for _, fields in records(dialect, dialect.content)]
    longest = max([50, *(len(b"".join(fields)) * 2 + 3 * len(fields) for fields in all_fields)])
    # behind a quote, a carriage return or a line feed, from where pyarrow begins to read
    first = re.match(
        rb"(\xef\xbb\xbf)?([\r\n]*[^\r\n]*(\r\n|\r|\n|$))?" if dialect.source.header else b"", dialect.content
    )
    assert first is not None
    begin = first.end() - 3
    awkward = [at - begin for at, byte in enumerate(dialect.content, 1) if byte in b"\r\n\"'" and at - begin > longest]
    ends = st.integers(longest, longest + 60) | st.sampled_from(awkward or [longest])
    for block in set(data.draw(st.lists(ends, min_size=4, max_size=4))):
        try:
            rows = read(dialect, column_names, block)
        except HeddleError as error:
            diagnostic = error.diagnostic
            assert diagnostic.code in faults, (str(error), events, faults)
            line = re.search(r", line (\d+)", diagnostic.message)
            if line is not None and faults[diagnostic.code]:
                assert int(line[1]) in faults[diagnostic.code], (str(error), faults)
            event(diagnostic.code)
            continue
        assert not faults
        event("read")
        assert len(rows) == len(events)
        for ours, expected_row in zip(rows, events, strict=True):
            assert all(same(ours[name], expected_row[name]) for name in column_names), (ours, expected_row)


# -------------------------------------------------------------------------------------- one by one
HEADER = "ts,text,volume\n"
SCHEMA = (("ts", TIMESTAMP), ("text", STRING), ("volume", SHORT), ("price", DOUBLE), ("open", BOOLEAN))
ROW = "2013-07-01T00:00:00,A,1\n"


def rows_of(content: str | bytes, wanted: list[str], block: int = 1 << 20, **options: Any) -> list[dict[str, Any]]:
    """The events of a file, times as microseconds."""
    data = content if isinstance(content, bytes) else content.encode()
    schema = options.pop("schema", SCHEMA)
    return read(Dialect(Source("csv", "", **options), schema, data, csv.QUOTE_MINIMAL), wanted, block)


def refused(content: str | bytes, wanted: list[str], block: int = 1 << 20, **options: Any) -> str:
    with pytest.raises(HeddleError) as raised:
        rows_of(content, wanted, block, **options)
    diagnostic = raised.value.diagnostic
    return f"{diagnostic.code} {diagnostic.message} ({diagnostic.hint})"


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_block_may_end_anywhere(ends: str) -> None:
    """Also between the two characters of a line end inside quotes, and between two quotes."""
    texts = ["two\r\nlines", '"', '""\n"', ',\r\n2013-07-01T00:00:00,"B,2\r\n', "\r", "\r\r\n\n", "plain", '"\r\n"']
    records = [
        f'2013-07-01T00:00:00,"{text.replace(chr(34), chr(34) * 2)}",{place}' for place, text in enumerate(texts)
    ]
    content = ends.join(["ts,text,volume", *records, ""])
    expected = [{"ts": 1_372_636_800_000_000, "text": text, "volume": place} for place, text in enumerate(texts)]
    for block in range(70, 70 + len(content)):
        assert rows_of(content, ["ts", "text", "volume"], block) == expected, block


def test_a_quote_that_never_closes_is_told_with_its_line_not_read_as_a_text() -> None:
    content = HEADER + ROW * 3 + '2013-07-01T00:00:00,"two\nlines",1\n2013-07-01T00:00:00,"B,1\n' + ROW * 9
    for block in (80, 1 << 20):
        assert re.search("HDL-422 .*line 7: a quote is opened and never closed", refused(content, ["ts"], block))
    last = "text,ts\nA,2013-07-01\n" + '"B",2013-07-01\n"C,2013-07-02\n'
    assert "HDL-422" in refused(last, ["ts"]) and "line 4" in refused(last, ["ts"])
    assert "HDL-422" in refused('ts,"text\n' + ROW, ["ts"])
    assert "HDL-422" in refused('text,ts\nA,2013-07-01\nA,"2013-07-02', ["ts"])
    assert [row["text"] for row in rows_of(HEADER + '2013-07-01,"B,1\n', ["ts", "text"], quote=None)] == ['"B']


def test_a_record_longer_than_a_block_is_told_with_its_line() -> None:
    content = HEADER + ROW * 9 + f'2013-07-01T00:00:00,"{"x" * 500}",1\n' + ROW
    assert re.search(
        "HDL-422 .*line 11: the record that begins here is longer than 100 bytes", refused(content, ["ts"], 100)
    )


@pytest.mark.parametrize(
    "value", ["0x10", "32768", "-32769", "9223372036854775808", "9" * 40, "1_0", "1.0", "1e3", "--1", "+-1", "+", "٣"]
)
def test_integers_are_digits_within_their_types_range(value: str) -> None:
    message = refused(HEADER + ROW * 30 + f'2013-07-01,"a\nb",1\n2013-07-01,A,{value}\n', ["ts", "volume"], 100)
    assert (
        message.startswith("HDL-404 stream events: column volume of ") and ", line 34, " in message and value in message
    )
    assert "a whole number from -32768 to 32767" in message


def test_integers_may_have_a_sign_spaces_and_zeros_before_them() -> None:
    values = {"+5": 5, "007": 7, " -3 ": -3, "-32768": -32768, "32767": 32767, "-0": 0, '""': None, "": None}
    content = HEADER + "".join(f"2013-07-01,A,{value}\n" for value in values)
    assert [row["volume"] for row in rows_of(content, ["ts", "volume"])] == list(values.values())


def test_an_integer_beyond_its_type_is_told_where_no_letter_is_in_the_column() -> None:
    assert "HDL-404" in refused(HEADER + "2013-07-01,A,40000\n", ["ts", "volume"])
    assert "line 2" in refused(HEADER + "2013-07-01,A,40000\n", ["ts", "volume"])


@pytest.mark.parametrize("value", ["NAN", "-nan", "INF", "nan(2)", "0x1p3", "1.5d", "1,5", "1.2.3", "infinity", "."])
def test_doubles_are_decimals_or_what_spark_calls_the_others(value: str) -> None:
    message = refused(f'ts,price\n2013-07-01,1.5\n2013-07-01,"{value}"\n', ["ts", "price"])
    assert "HDL-404" in message and "line 3" in message and "NaN, Infinity" in message


def test_bytes_that_are_not_utf8_are_told_with_their_line_unless_nobody_reads_them() -> None:
    content = HEADER.encode() + ROW.encode() + b"2013-07-01,caf\xe9,1\n"
    message = refused(content, ["ts", "text"])
    assert "HDL-420" in message and "line 3" in message
    assert len(rows_of(content, ["ts", "volume"])) == 2
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        assert "HDL-420" in refused((HEADER + ROW).encode(encoding), ["ts"])
    assert "HDL-420" in refused("ts,é\n".encode("latin-1"), ["ts"])


def test_a_byte_order_mark_is_none_within_a_text() -> None:
    for before in ("", "\ufeff"):
        content = before + "text,ts\n\ufeffA,2013-07-01\n"
        assert [row["text"] for row in rows_of(content, ["ts", "text"])] == ["\ufeffA"]


def test_a_column_that_stands_twice_is_refused_if_it_is_read() -> None:
    content = "ts,text,volume,text\n2013-07-01,A,1,B\n"
    assert re.search("HDL-423 .*2 columns text", refused(content, ["ts", "text"]))
    assert [row["volume"] for row in rows_of(content, ["ts", "volume"])] == [1]
    assert "HDL-423" in refused("ts,text,ts\n2013-07-01,A,2013-07-02\n", ["ts"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEADER.replace(",", ";") + ROW.replace(",", ";"), "write `delimiter: ';'`"),
        (HEADER.replace(",", "\t"), "write `delimiter: tab`"),
        (ROW, "write `header: false`"),
        ("# made by x\n" + HEADER + ROW, "begins with a comment"),
        ("ts , text, volume\n", "spaces around the names"),
        ("a,b,c\n", "it has a, b, c"),
    ],
)
def test_a_header_without_the_time_column_says_the_likely_cause(content: str, said: str) -> None:
    message = refused(content, ["ts"])
    assert message.startswith("HDL-403 ") and said in message


@pytest.mark.parametrize(
    "line", ["# a comment\n", "2013-07-01,A\n", "2013-07-01,A,1,2\n", "  \n", '2013-07-01,"A,1"\n']
)
def test_a_line_of_other_fields_than_the_header_is_told_with_its_number(line: str) -> None:
    message = refused(HEADER + ROW + '2013-07-01,"a\nb",1\n\n' + line + ROW, ["ts"])
    assert "HDL-421" in message and "line 6: " in message and "the header has 3" in message
    assert ("comments" in message) == line.startswith("#")


def test_files_without_a_header_have_the_schemas_columns() -> None:
    schema = (("ts", TIMESTAMP), ("text", STRING), ("volume", SHORT))
    assert [row["text"] for row in rows_of("\ufeff" + ROW, ["ts", "text"], schema=schema, header=False)] == ["A"]
    assert "the `schema` has 5" in refused(ROW, ["ts"], header=False)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("30/02/2015 10:00", "%d/%m/%Y %H:%M"),
        ("12/13/2015 10:00", "%d/%m/%Y %H:%M"),
        ("1/1/2015 24:00", "%d/%m/%Y %H:%M"),
        ("1/1/2015 10:00 ", "%d/%m/%Y %H:%M "),
        ("1/1/2015T10:00", "%d/%m/%Y %H:%M"),
        ("2015-01-01 00:00 AM", "%Y-%m-%d %I:%M %p"),
        ("Foo 1 2015", "%b %d %Y"),
        ("2015-01-01 +0260", "%Y-%m-%d %z"),
    ],
)
def test_times_out_of_their_format_are_refused(text: str, pattern: str) -> None:
    message = refused(f"ts\n\n{text}\n", ["ts"], timestamp_format=pattern)
    assert "HDL-404" in message and "line 3" in message and "timestamp_format" in message


def test_times_beyond_what_can_be_told_are_those_that_no_event_has() -> None:
    assert rows_of("ts\n9223372036854775807\n", ["ts"], time_unit="s") == [{"ts": None}]
    assert rows_of("ts\n-1\n-1001\n", ["ts"], time_unit="ns") == [{"ts": -1}, {"ts": -2}]


@pytest.mark.parametrize(("text", "said"), [("05/03/2015 20:17", "timestamp_format"), ("1425586673", "`time_unit: s`")])
def test_a_time_in_another_form_says_how_to_declare_it(text: str, said: str) -> None:
    assert said in refused(f"ts,text\n{text},A\n", ["ts"])


def test_what_begins_and_ends_a_file_is_seen_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    rows = [f'2013-07-01T00:{at // 60:02}:{at % 60:02},"two\nlines, {at}",{at}\n' for at in range(3600)]
    path.write_text(HEADER + "".join(rows))
    stream = Stream("events", Source("csv", str(path)), SCHEMA, "ts")
    with patch.object(csv_source, "HEAD", 500):
        first = csv_source.head(stream, str(path), ["ts", "volume"])
        assert first is not None and 0 < len(first) < 20 and first["volume"].to_pylist()[0] == 0
        last = csv_source.last_times(stream, str(path)).cast(pa.int64()).to_pylist()
    assert 0 < len(last) < 20 and max(last) == 1_372_636_800_000_000 + 3599 * 1_000_000


def test_long_texts_are_cut_in_messages() -> None:
    assert csv_source._short("x" * 60) == "x" * 60 and csv_source._short("x" * 61) == "x" * 59 + "…"
