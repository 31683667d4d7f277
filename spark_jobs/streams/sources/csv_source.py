"""Reads CSV files: records as RFC 4180 has them, values strictly by their declared types, errors with their line.

pyarrow finds the fields and leaves them as bytes; what is a value of which type is decided here. Line ends in quoted
texts belong to the text wherever a block ends. A line of another number of fields than the header, a quote that never
closes, a text in another encoding and a value that is none of its type are refused, never guessed at.
"""

from __future__ import annotations

import io
import json
import mmap
import re
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pcsv

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import TIMESTAMP, Source, Stream
from spark_jobs.store.storage import ObjectVersion
from spark_jobs.streams.sources.compression import CODECS
from spark_jobs.streams.sources.csv_records import CsvRecord, csv_grammar, csv_records, fields_of_record, line_ends
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.objects import mapped, opened
from spark_jobs.streams.sources.text_values import BITS, converter

BLOCK = 32 << 20
"""Bytes that are read at once. No record may be longer."""

HEAD = 1 << 16
"""Bytes at the beginning, and at the end, of a file that a look at it reads."""

BOM = b"\xef\xbb\xbf"
_END = uuid.uuid4().hex[:16].encode()
"""An extra record after the last one: it is read as a record unless a quote is still open."""


class Layout(NamedTuple):
    """Offset in bytes at which a file's events begin, and its column names in order."""

    start: int
    names: tuple[str, ...]


# ------------------------------------------------------------------------------------------- reading
def read(
    stream: Stream, path: str, wanted: Sequence[str], version: ObjectVersion | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of the columns ``wanted``, in order, of the types that the stream declares. ``version``: of the
    file, if it is in a store.

    Raises HDL-403, HDL-404 and HDL-420 to HDL-423, with the file and, but for its header, the line.
    """
    with opened(path, version) as file:
        layout = _layout(stream, path, file, wanted)
        if layout is not None:
            file.seek(layout.start)
            yield from _typed(stream, path, wanted, layout, file)


def check_columns(stream: Stream, path: str, wanted: Sequence[str], version: ObjectVersion | None = None) -> None:
    """Raises what :func:`read` would of a file's beginning, of whose values it looks at none."""
    with opened(path, version, look=True) as file:
        _layout(stream, path, file, wanted)


def names_of(stream: Stream, path: str, version: ObjectVersion | None = None) -> tuple[str, ...]:
    """A file's columns in order; none of an empty file."""
    with opened(path, version, look=True) as file:
        layout = _layout(stream, path, file, [])
    return () if layout is None else layout.names


def _typed(
    stream: Stream, path: str, wanted: Sequence[str], layout: Layout, file: io.BufferedIOBase
) -> Iterator[pa.RecordBatch]:
    places = [layout.names.index(name) for name in wanted]
    seen, ended = 0, False
    try:
        for batch in _raw(stream.source, file, len(layout.names), places):
            ended = batch.num_rows > 0 and batch.column(0)[-1].as_py() == _END
            rows = batch.num_rows - ended
            if rows:
                columns = [
                    _column(stream, path, layout, name, batch.column(place).slice(0, rows), seen)
                    for place, name in enumerate(wanted)
                ]
                yield pa.RecordBatch.from_arrays(columns, names=list(wanted))
            seen += rows
    except pa.ArrowInvalid as error:
        raise _malformed(stream, path, layout, error) from error
    if not ended:
        raise _malformed(stream, path, layout, None)


def _raw(source: Source, file: io.BufferedIOBase, width: int, places: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The fields at some places as bytes; behind all others a record that has :data:`_END` at the first place."""
    names = [str(place) for place in range(width)]
    last = [b""] * width
    last[places[0]] = _END
    end = b"\n" + source.delimiter.encode().join(last) + b"\n"
    options = pcsv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),
        include_columns=[str(place) for place in places],
        null_values=["", *source.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parsing = pcsv.ParseOptions(
        delimiter=source.delimiter, quote_char=source.quote or False, newlines_in_values=source.quote is not None
    )
    reading = pcsv.ReadOptions(block_size=BLOCK, use_threads=False, column_names=names)
    with pcsv.open_csv(
        _Blocks(file, end), read_options=reading, parse_options=parsing, convert_options=options
    ) as reader:
        yield from reader


class _Blocks(io.RawIOBase):
    """A file from its current position, then ``end``, arranged so that pyarrow loses nothing.

    pyarrow drops a line feed that begins a block if the block before ended in a carriage return, also inside quotes: no
    block ends so. It drops a byte order mark at the beginning, also one that is part of a text: another one
    precedes it.
    """

    def __init__(self, file: io.BufferedIOBase, end: bytes) -> None:
        begin = file.read(len(BOM))
        file.seek(-len(begin), io.SEEK_CUR)
        self.file, self.held, self.end = file, BOM if begin == BOM else b"", end

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        # blocks are large: no copies of those that need none
        block = self.file.read(max(size - len(self.held), 0))
        if self.held:
            block = self.held + block
        if len(block) < size and self.end:
            block, self.end = block + self.end, b""
        self.held = b""
        if len(block) > size:
            block, self.held = block[:size], block[size:]
        complete = block.rstrip(b"\r")
        if complete and len(complete) < len(block):
            block, self.held = complete, block[len(complete) :] + self.held
        return block


# ------------------------------------------------------------------------------------------- records
def _line(source: Source, path: str, layout: Layout, number: int) -> int:
    """The line of a file in which its record of a number, counted from 0, begins."""
    with mapped(path) as data:
        return next(islice(csv_records(source, data, layout.start), number, None)).line


def _malformed(stream: Stream, path: str, layout: Layout, error: pa.ArrowInvalid | None) -> HeddleError:
    """The error, with its line, that prevents parsing a file. pyarrow reports the record's number at most."""
    match = re.search(r"Row #(\d+)", str(error))
    source, width = stream.source, len(layout.names)
    with mapped(path) as data:
        for number, record in enumerate(csv_records(source, data, layout.start), 1):
            if record.end is None:
                return _open_quote(stream, path, record.line + line_ends(_until_open(source, data[record.begin :])))
            if record.end - record.begin >= BLOCK:
                return _too_long(stream, path, record.line)
            if match is not None and number < int(match[1]):
                continue
            text = data[record.begin : record.end]
            if (count := len(fields_of_record(source, text))) != width:
                return _ragged(stream, path, record.line, text, count, width, record.end == len(data))
    return HeddleError("HDL-402", f"stream {stream.name}: {path} cannot be read: {error or 'it changed meanwhile'}")


def _until_open(source: Source, record: bytes) -> bytes:
    """A record that does not end, as far as the quote that is left open."""
    field, at = csv_grammar(source.delimiter, source.quote).field, 0
    while (match := field.match(record, at)) is not None:
        at = match.end() + 1
    return record[:at]


def _open_quote(stream: Stream, path: str, line: int) -> HeddleError:
    return HeddleError(
        "HDL-422",
        f"stream {stream.name}: {path}, line {line}: a quote is opened and never closed",
        f"close it, double a {stream.source.quote} that is part of a text, or write `quote: none` below `source` if no "
        "text is quoted",
    )


def _too_long(stream: Stream, path: str, line: int) -> HeddleError:
    return HeddleError(
        "HDL-422",
        f"stream {stream.name}: {path}, line {line}: the record that begins here is longer than {BLOCK} bytes",
        "is a quote never closed?",
    )


def _ragged(stream: Stream, path: str, line: int, record: bytes, count: int, width: int, is_last: bool) -> HeddleError:
    whose = "the header has" if stream.source.header else "the `schema` has"
    hint = f"quote a text that has a {stream.source.delimiter!r} in it"
    if record.startswith((b"#", b"//", b"--")):
        hint = "remove lines that are comments: they would be read as events"
    elif is_last and not record.endswith((b"\n", b"\r")):
        hint = "is it half written? write to another name and rename it when it is complete"
    return HeddleError(
        "HDL-421", f"stream {stream.name}: {path}, line {line}: {_counted(count)}, {whose} {width}", hint
    )


def _counted(count: int) -> str:
    return f"{count} field{'s' if count != 1 else ''}"


# -------------------------------------------------------------------------------------------- header
def _layout(stream: Stream, path: str, file: io.BufferedIOBase, wanted: Sequence[str]) -> Layout | None:
    """Read the beginning of a file; None: the file is empty."""
    source = stream.source
    pattern = csv_grammar(source.delimiter, source.quote).record
    data = file.read(HEAD)
    check_text(stream.name, path, data, "CSV")
    start = len(BOM) if data.startswith(BOM) else 0
    while True:
        begin = start + len(data[start:]) - len(data[start:].lstrip(b"\r\n"))
        match = pattern.match(data, begin)
        # what ends where the data end may go on
        more = b"" if match is not None and match.end() < len(data) else file.read(len(data))
        if not more:
            break
        data += more
        if len(data) > 2 * BLOCK:
            raise _too_long(stream, path, 1 + line_ends(data[:begin]))
    if begin == len(data):
        return None
    if match is None:
        raise _open_quote(stream, path, 1 + line_ends(data[:begin] + _until_open(source, data[begin:])))
    fields = fields_of_record(source, match[0])
    if not source.header:
        declared = tuple(name for name, _ in stream.schema)
        if len(fields) != len(declared):
            line = 1 + line_ends(data[:begin])
            raise _ragged(stream, path, line, match[0], len(fields), len(declared), match.end() == len(data))
        return Layout(start, declared)
    try:
        names = tuple(field.decode() for field in fields)
    except UnicodeDecodeError:
        message = f"stream {stream.name}: the header of {path} is not UTF-8"
        raise HeddleError("HDL-420", message, "save the file as UTF-8") from None
    for name in wanted:
        if name not in names:
            present = f"it has {', '.join(sorted(map(_short, names))[:20])}"
            hint = "; ".join(filter(None, (_why_missing(stream, names, match[0]), present)))
            raise HeddleError("HDL-403", f"stream {stream.name}: {path} has no column {name}", hint)
        if names.count(name) > 1:
            raise HeddleError(
                "HDL-423",
                f"stream {stream.name}: {path} has {names.count(name)} columns {name}",
                "rename all but one in the file's header, or leave the header out and write `header: false` below "
                "`source`",
            )
    return Layout(match.end(), names)


_OTHER_FORMATS = {
    b"\x1f\x8b": ("compressed (gzip)", "gunzip"),
    b"\x28\xb5\x2f\xfd": ("compressed (zstd)", "unzstd"),
    b"BZh": ("compressed (bzip2)", "bunzip2"),
    b"\xfd7zXZ\x00": ("compressed (xz)", "unxz"),
    b"\x04\x22\x4d\x18": ("compressed (lz4)", "unlz4"),
    b"PK\x03\x04": ("a zip archive or a workbook", "unzip, or save the sheet as CSV"),
    b"PAR1": ("Parquet", ""),
    b"Obj\x01": ("Avro", ""),
    b"ORC": ("ORC", ""),
}
"""Formats by the first bytes of a file, and the command that turns it into CSV. Letters count only with a binary
byte.
"""


def check_text(stream: str, path: str, data: bytes, what: str) -> None:
    """Raises HDL-415 if the beginning of a file is that of another format than ``what``, HDL-420 if it is UTF-16."""
    if (kind := _other_format(data)) is not None:
        hint = f"decompress it: {kind[1]}" if kind[1] else "correct `format`, or the file"
        known = next((ending for ending, codec in CODECS.items() if codec.command == kind[1]), None)
        if known is not None:
            hint = f"rename it so that its name ends in {known}, or decompress it: {kind[1]}"
        raise HeddleError("HDL-415", f"stream {stream}: {path} is {kind[0]}, not {what}", hint)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]:
        message = f"stream {stream}: {path} is UTF-16 or UTF-32"
        raise HeddleError("HDL-420", message, "save it as UTF-8, e.g. by `iconv -f UTF-16 -t UTF-8`")


def _other_format(data: bytes) -> tuple[str, str] | None:
    for magic, kind in _OTHER_FORMATS.items():
        is_certain = not magic.isalpha() or any(byte < 9 or 13 < byte < 27 for byte in data[:512])
        if data.startswith(magic) and is_certain:
            return kind
    return None


def _why_missing(stream: Stream, names: Sequence[str], header: bytes) -> str:
    """The likely cause of a column that is not in the header; empty: none is."""
    declared = [name for name, _ in stream.schema]
    for mark, shown in ((";", "';'"), ("\t", "tab"), ("|", "'|'"), (",", "','"), (":", "':'")):
        pieces = [piece.strip(" \"'") for piece in header.decode().strip("\r\n").split(mark)]
        if mark != stream.source.delimiter and len(set(pieces) & set(declared)) > 1:
            return f"write `delimiter: {shown}` below `source`: that is what the header has between its columns"
    if header.startswith((b"#", b"//", b"--")):
        return "the file begins with a comment: remove it"
    stripped = [name.strip() for name in names]
    if set(stripped) & set(declared) - set(names):
        return "there are spaces around the names of the header: remove them"
    if not set(names) & set(declared) and any(re.match(r"[+-]?[0-9]", name) for name in stripped):
        return "the first line looks like an event: if the file has no header, write `header: false` below `source`"
    return ""


# -------------------------------------------------------------------------------------- head and tail
def head(
    stream: Stream, path: str, wanted: Sequence[str], version: ObjectVersion | None = None
) -> pa.RecordBatch | None:
    """The first events of a file; None without any. Raises what :func:`read` raises of them."""
    with opened(path, version, look=True) as file:
        layout = _layout(stream, path, file, wanted)
        if layout is None:
            return None
        file.seek(layout.start)
        data, size = b"", HEAD
        while more := file.read(size):
            data, size = data + more, len(data) + len(more)
            if not (more := file.read(1)):
                break  # these are all records, and the last one is complete
            data += more
            records = [record for record in csv_records(stream.source, data) if record.end is not None]
            # what ends where the data end may go on
            if len(records) > 1 or len(data) >= BLOCK:
                data = data[: records[-1].begin] if len(records) > 1 else data
                break
    return next(_typed(stream, path, wanted, layout, io.BytesIO(data)), None)


def last_times(stream: Stream, path: str, version: ObjectVersion | None = None) -> pa.Array:
    """The times in a file's last lines; empty if these cannot be parsed."""
    source = stream.source
    with opened(path, version, look=True) as file:
        layout = _layout(stream, path, file, [stream.time])
        if layout is None:
            return pa.array([], arrow_type(TIMESTAMP))
        begin = max(layout.start, file.seek(0, io.SEEK_END) - HEAD)
        file.seek(begin)
        data = file.read(HEAD)
    convert = converter(stream, stream.time, TIMESTAMP)
    starts = [0] if begin == layout.start else [match.end() for match in islice(re.finditer(rb"[\r\n]+", data), 20)]
    for start in starts:
        # the line may begin within a quoted text
        records = [
            fields_of_record(source, data[record.begin : record.end]) for record in csv_records(source, data, start)
        ]
        if not records or any(len(fields) != len(layout.names) for fields in records):
            continue
        texts = [fields[layout.names.index(stream.time)] for fields in records]
        with suppress(pa.ArrowInvalid):
            return convert(pa.array(texts, pa.binary()).cast(pa.string()))
    return pa.array([], arrow_type(TIMESTAMP))


class ApartRecord(NamedTuple):
    """A record: its first line, the first bytes of it, its size in bytes, and why it has no fields (None: it has)."""

    line: int
    beginning: bytes
    size: int
    problem: HeddleError | None


def read_apart(
    stream: Stream, path: str, wanted: Sequence[str], version: ObjectVersion | None = None, rows: int = 4096
) -> Iterator[tuple[list[ApartRecord], list[pa.Array]]]:
    """Yield all records of a file, ``rows`` at a time, and the fields at the columns ``wanted`` of those without a
    problem, as bytes (null where they are null). No value is looked at.

    Raises what :func:`check_columns` does, and HDL-402.
    """
    check_columns(stream, path, wanted, version)
    with opened(path, version, look=True) as file:
        layout = _layout(stream, path, file, wanted)
    if layout is None:
        return
    places = [layout.names.index(name) for name in wanted]
    with mapped(path, version) as data:
        numbered = csv_records(stream.source, data, layout.start)
        while some := _some(numbered, rows):
            apart = [_apart(stream, path, layout, data, record) for record in some]
            content = b"".join(
                data[record.begin : record.end]
                for record, (*_, problem) in zip(some, apart, strict=True)
                if problem is None
            )
            try:
                batches = list(_raw(stream.source, io.BytesIO(content), len(layout.names), places))
                columns = [pa.concat_arrays([batch.column(at) for batch in batches]) for at in range(len(places))]
            except pa.ArrowInvalid as error:
                raise _malformed(stream, path, layout, error) from error
            good = sum(problem is None for *_, problem in apart)
            if len(columns[0]) != good + 1:
                raise _malformed(stream, path, layout, None)
            yield apart, [column.slice(0, good) for column in columns]


def _some(records: Iterator[CsvRecord], rows: int) -> list[CsvRecord]:
    """The next records, of a few MiB together unless one has more."""
    some, size = list[CsvRecord](), 0
    for record in records:
        some.append(record)
        size += (record.end or record.begin + BLOCK) - record.begin
        if len(some) == rows or size > 4 << 20:
            break
    return some


def _apart(stream: Stream, path: str, layout: Layout, data: mmap.mmap, record: CsvRecord) -> ApartRecord:
    end = len(data) if record.end is None else record.end
    problem = None
    if record.end is None:
        open_at = record.line + line_ends(_until_open(stream.source, data[record.begin : record.begin + BLOCK]))
        problem = _open_quote(stream, path, open_at)
    elif end - record.begin >= BLOCK:
        problem = _too_long(stream, path, record.line)
    else:
        text, width = data[record.begin : end], len(layout.names)
        if (fields := len(fields_of_record(stream.source, text))) != width:
            problem = _ragged(stream, path, record.line, text, fields, width, end == len(data))
    return ApartRecord(record.line, data[record.begin : min(end, record.begin + HEAD)], end - record.begin, problem)


# ------------------------------------------------------------------------------------------- values
def _column(stream: Stream, path: str, layout: Layout, name: str, values: pa.Array, seen: int) -> pa.Array:
    """Values of one column's fields; ``seen``: the number of records before them."""
    type = stream.type_of(name)
    assert type is not None
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        row = first_bad(values, lambda some: some.cast(pa.string()))
        if _END in values[row].as_py():
            raise _malformed(stream, path, layout, None) from None
        raise HeddleError(
            "HDL-420",
            f"stream {stream.name}: column {name} of {path}, line {_line(stream.source, path, layout, seen + row)}, is "
            f"not UTF-8: {values[row].as_py()[:60]!r}",
            "save the file as UTF-8",
        ) from None
    convert = converter(stream, name, type)
    try:
        return convert(texts)
    except pa.ArrowInvalid:
        row = first_bad(texts, convert)
        if _END in values[row].as_py():
            raise _malformed(stream, path, layout, None) from None
        raise misfit(stream, path, name, _line(stream.source, path, layout, seen + row), texts[row].as_py()) from None


def misfit(stream: Stream, path: str, name: str, line: int, text: str, place: str = "") -> HeddleError:
    """HDL-404: a value that is none of its column's declared type. ``place``: inside the line."""
    type, source = stream.type_of(name), stream.source
    assert type is not None
    if type.name == "long":
        most = 1 << (BITS[type.digits] - 1)
        expected = f"a whole number from {-most} to {most - 1}"
    elif type.name != "timestamp":
        expected = _EXPECTED[type.name]
    elif name == stream.time and source.time_unit is not None:
        expected = f"a whole number of {source.time_unit} since 1970, as `time_unit` says"
    elif source.timestamp_format is not None:
        expected = f"a time like {source.timestamp_format}, as `timestamp_format` says"
    else:
        expected = _way_of_writing(text)
    is_marker = not place and text.isalpha() and len(text) <= LONGEST_MARKER
    marker = f", or add `null: [{json.dumps(text, ensure_ascii=False)}]` to `source` if it means no value"
    return HeddleError(
        "HDL-404",
        f"stream {stream.name}: column {name} of {path}, line {line}{place and ', ' + place}, does not fit its "
        f"declared type {type}: "
        f"{_short(text)!r}",
        f"expected {expected}; correct streams.yaml, or the file{marker if is_marker else ''}",
    )


LONGEST_MARKER = 12
"""Characters of a text that may be how a file writes that there is no value: nil, missing."""


_EXPECTED = {
    "double": "a decimal number, NaN, Infinity or Inf (or nan, inf), perhaps with a sign",
    "decimal": "a number of so many digits, at most so many of them after the point",
    "boolean": "true, false, t, f, 1 or 0",
    "date": "a date like 2013-07-04, not before year 1",
}


def _way_of_writing(text: str) -> str:
    """Hint for a time that is not in ISO 8601."""
    if re.fullmatch(r"[0-9]{9,19}", text):
        unit = next(unit for unit, digits in (("s", 11), ("ms", 14), ("us", 17), ("ns", 19)) if len(text) <= digits)
        return f"a time in ISO 8601; if these are numbers since 1970, write `time_unit: {unit}` below `source`"
    return (
        "a time in ISO 8601; if all are like this one, write e.g. `timestamp_format: '%d/%m/%Y %H:%M'` below `source`"
    )


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def first_bad(values: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> int:
    """Return the place of the first value that cannot be converted."""

    def fails(count: int) -> bool:
        try:
            convert(values.slice(0, count))
        except pa.ArrowInvalid:
            return True
        return False

    return bisect_left(range(len(values) + 1), True, key=fails) - 1
