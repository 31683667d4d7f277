"""Guess the delimiter, header, columns, types and time formats of undeclared CSV files from the beginning of some
files.

Values that are read with the guess are still checked one by one (:mod:`spark_jobs.streams.sources.csv_source`).
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Type
from spark_jobs.store.storage import Place, store_error
from spark_jobs.streams.sources.compression import CODECS
from spark_jobs.streams.sources.objects import beginning_of
from spark_jobs.streams.sources.text_values import DECIMAL, INTEGER, SPECIAL, instants_in_format, instants_of_texts

HEAD = 1 << 18
"""Bytes of a file's beginning that are looked at."""

ROWS = 2000
"""Records of a file's beginning that are looked at."""

FIRST_LINES = 50
"""Lines by which a header is recognised."""

DELIMITERS = ",;\t|"

NULLS = ("NA", "N/A", "null", "NULL", "None", "none", "\\N", "-", "?", "#N/A", "n/a")
"""Texts that often mean null; the empty text always does."""

LONGEST_INTEGER = 18
"""Digits of which every number is one of 64 bits."""

_DATES = (
    *("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d", "%Y%m%d"),
    *("%d %b %Y", "%d-%b-%Y", "%d/%b/%Y", "%b %d %Y", "%b %d, %Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y"),
)
_TIMES = (
    *("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M", "T%H:%M:%S", "T%H:%M:%S.%f", " %H:%M:%S,%f"),
    *(" %I:%M %p", " %I:%M:%S %p", ", %H:%M", ", %H:%M:%S", ":%H:%M:%S", "%H%M%S"),
)
FORMATS = tuple(
    f"{date}{time}{zone}" for date in _DATES for time in _TIMES for zone in (("", " %z", "%z") if time else ("",))
)
"""The ways to write an instant that are tried, where it is not in ISO 8601."""


@dataclass(frozen=True)
class GuessedColumn:
    """A column of CSV files.

    - ``type``: fits all sampled values;
    - ``formats``: formats of times that are not in ISO 8601, each of which fits all of them;
    - ``has_zone``: whether its times include their zone;
    - ``null``: texts without which the type would not be string;
    - ``texts``: the sampled texts.
    """

    name: str
    type: Type
    texts: pa.Array
    formats: tuple[str, ...] = ()
    has_zone: bool = False
    null: tuple[str, ...] = ()


@dataclass(frozen=True)
class CsvGuess:
    """Guess for CSV files. ``row_bytes``: approximate size of a record."""

    delimiter: str
    header: bool
    columns: tuple[GuessedColumn, ...]
    row_bytes: float


def guess_csv(paths: Sequence[Path | Place]) -> CsvGuess:
    """Guess the format of some files of one kind. Raises HDL-135 for files that are no CSV in UTF-8, or have no
    records.
    """
    heads = [head_of(path) for path in paths]
    texts = [head.text for head in heads if head.text.strip()]
    if not texts:
        raise _not_csv(paths[0], "is empty", "name another file, or wait until it has events")
    delimiter = _delimiter(texts[0])
    files = [_records(text, delimiter) for text in texts]
    header = _has_header(files[0])
    names = files[0][0] if header else [f"column_{number}" for number in range(1, len(files[0][0]) + 1)]
    repeated = next((name for name in names if names.count(name) > 1), None) if len(names) < 1000 else None
    if repeated is not None:
        raise _not_csv(paths[0], f"has two columns {repeated!r}", "rename one in its header")
    rows = [row for records in files for row in records[header:] if len(row) == len(names)]
    if not rows:
        begins = texts[0].lstrip().startswith(("#", "//", "--"))
        hint = "remove lines that are comments" if begins else "see its first lines"
        raise _not_csv(paths[0], "has no records, or none of as many fields as the first line has", hint)
    size = sum(head.stored for head in heads) / sum(max(1, text.rstrip().count("\n") + 1 - header) for text in texts)
    columns = [guess_column(name, list(values)) for name, values in zip(names, zip(*rows, strict=True), strict=True)]
    return CsvGuess(delimiter, header, tuple(columns), size)


def header_of(path: Path | Place) -> tuple[str, list[str] | None]:
    """Guess the delimiter of a file, and the names in its header if it has one. Raises HDL-135."""
    text = head_of(path).text
    if not text.strip():
        raise _not_csv(path, "is empty", "name another file, or wait until it has events")
    text = "".join(text.splitlines(keepends=True)[:FIRST_LINES])
    delimiter = _delimiter(text)
    records = _records(text, delimiter)
    return delimiter, records[0] if _has_header(records) else None


def _not_csv(path: Path | Place, what: str, hint: str) -> HeddleError:
    return HeddleError("HDL-135", f"{path} {what}", hint)


class Head(NamedTuple):
    """The beginning of a text file, whether it is all of the file, and how many bytes of the file it takes."""

    text: str
    is_all: bool
    stored: float


def head_of(path: Path | Place, ends_in_line: bool = True) -> Head:
    """Return the beginning of a text file (``ends_in_line``: to the end of a line). Raises HDL-135."""
    try:
        data, is_all, ratio = beginning_of(path, HEAD)
    except OSError as error:
        if isinstance(path, Place):
            raise store_error(path, error) from error
        hint = "check the path and its permissions" if error.strerror else "its name or its content is wrong"
        raise _not_csv(path, f"cannot be read: {error.strerror or error}", hint) from None
    kind = next((ending for ending, codec in CODECS.items() if data.startswith(codec.magic)), "")
    if kind or data[:2] == b"PK":
        name = f"rename it to {path.name}{kind}, or " if kind else ""
        raise _not_csv(path, "is compressed", f"{name}decompress it: {CODECS[kind].command if kind else 'unzip'}")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _not_csv(path, "is UTF-16", "save it as UTF-8, e.g. by `iconv -f UTF-16 -t UTF-8`")
    if b"\0" in data:
        raise _not_csv(path, "is no text", "name CSV files, Parquet files or a Delta table")
    cut = data.rfind(b"\n") + 1 if ends_in_line and not is_all else 0
    data = data[:cut] if cut else data
    try:
        # the last character may be cut
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=is_all or cut > 0)
        return Head(text, is_all, len(data) / ratio)
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8, e.g. by `iconv -f WINDOWS-1252 -t UTF-8`"
        raise _not_csv(path, f"is not UTF-8 at byte {error.start}", hint) from None


def _records(text: str, delimiter: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [row for row in itertools.islice(reader, ROWS) if row]
    except csv.Error:
        return [line.split(delimiter) for line in text.splitlines()[:ROWS] if line]


def has_commas(column: GuessedColumn) -> bool:
    """Return whether a column of texts contains numbers with a decimal comma."""
    known = pc.drop_null(column.texts).filter(pc.not_equal(pc.drop_null(column.texts), ""))
    has_comma = bool(pc.any(pc.match_substring(known, ",")).as_py())
    return column.type == STRING and has_comma and _is_all(r"[+-]?[0-9][0-9. ]*,[0-9]+|[0-9]+")(known)


def _delimiter(text: str) -> str:
    """The character that divides most records into the same number of fields, of several the most fields."""

    def rating(delimiter: str) -> tuple[float, int]:
        widths = [len(row) for row in _records(text, delimiter)]
        usual = max(set(widths), key=widths.count, default=1)
        return (widths.count(usual) / len(widths) if usual > 1 else 0.0, usual)

    return max(DELIMITERS, key=rating)


def _has_header(records: Sequence[Sequence[str]]) -> bool:
    """Return whether the first record contains names: no values like those in the records below."""
    return not any(_is_value(field) for field in records[0])


def _is_value(text: str) -> bool:
    """Return whether a text is a number or a time."""
    if re.fullmatch(f"{DECIMAL}|{INTEGER}", text.strip()):
        return True
    return bool(re.match(r"\d", text.strip())) and bool(_formats(pa.array([text.strip()])) or _is_iso(pa.array([text])))


def guess_column(name: str, values: Sequence[str]) -> GuessedColumn:
    """Return the guess for a column, from some of its texts."""
    trimmed = [value.strip() for value in values]
    missing = [text for text in NULLS if text in set(trimmed)]
    known = pa.array([text for text in trimmed if text and text not in missing], pa.string())
    texts = pa.array([None if not text or text in missing else text for text in trimmed], pa.string())
    if not len(known):
        return GuessedColumn(name, STRING, texts)
    guessed = next((type for type, fits in _KINDS if fits(known)), None)
    if guessed is not None and guessed not in (DATE, TIMESTAMP):
        return GuessedColumn(name, guessed, texts, null=tuple(missing))
    has_zone = bool(pc.any(pc.match_substring_regex(known, r"(Z|[+-]\d\d:?\d\d)$")).as_py())
    if guessed is not None:
        return GuessedColumn(name, guessed, texts, (), guessed == TIMESTAMP and has_zone, tuple(missing))
    formats = _formats(known)
    if formats:
        has_zone = "%z" in formats[0]
        return GuessedColumn(name, TIMESTAMP, texts, formats, has_zone, tuple(missing))
    return GuessedColumn(name, STRING, pa.array(trimmed, pa.string()))


def _is_all(pattern: str) -> Callable[[pa.Array], bool]:
    return lambda texts: bool(pc.all(pc.match_substring_regex(texts, f"^({pattern})$")).as_py())


def _is_integer(texts: pa.Array) -> bool:
    # 00123 is a code, no number
    if not _is_all(r"[+-]?(0|[1-9][0-9]*)")(texts):
        return False
    return bool(pc.max(pc.utf8_length(texts)).as_py() <= LONGEST_INTEGER)


def _is_number(texts: pa.Array) -> bool:
    if pc.any(pc.match_substring_regex(texts, r"^[+-]?(0[0-9]+|[0-9]{19,})$")).as_py():
        return False
    return _is_all(f"{DECIMAL}|{SPECIAL}")(texts)


def _is_iso(texts: pa.Array) -> bool:
    try:
        instants_of_texts(texts)
    except pa.ArrowInvalid:
        return False
    return True


def _is_iso_date(texts: pa.Array) -> bool:
    return _is_all(r"\d{4}-\d\d-\d\d")(texts) and _is_iso(texts)


_KINDS: tuple[tuple[Type, Callable[[pa.Array], bool]], ...] = (
    (BOOLEAN, _is_all("(?i)true|false")),
    (LONG, _is_integer),
    (DOUBLE, _is_number),
    (DATE, _is_iso_date),
    (TIMESTAMP, _is_iso),
)


def _formats(texts: pa.Array) -> tuple[str, ...]:
    """The formats that all texts fit, the one whose times ascend most often first."""
    if not _is_all(r"[0-9A-Za-z].*[0-9].*")(texts) or pc.max(pc.utf8_length(texts)).as_py() > 40:
        return ()
    some = texts.slice(0, 20)
    fitting = [pattern for pattern in FORMATS if fits_format(some, pattern)]
    fitting = [pattern for pattern in fitting if fits_format(texts, pattern)]
    return tuple(sorted(fitting, key=lambda pattern: _descents(texts, pattern)))


def fits_format(texts: pa.Array, pattern: str) -> bool:
    """Return whether all texts are instants in a format of ``strptime``."""
    try:
        instants_in_format(texts, pattern)
    except (pa.ArrowInvalid, ValueError):
        return False
    return True


def _descents(texts: pa.Array, pattern: str) -> int:
    times = instants_in_format(texts, pattern).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return int((np.diff(times) < 0).sum())


def is_nameable(name: str) -> bool:
    """Return whether a declared schema can have a column of this name."""
    return bool(name) and len(name) <= 255 and printable(name) == name


def left_out(names: Iterable[str]) -> list[str]:
    """Names that no schema can have: not printable, or equal to an earlier one except for case."""
    seen: set[str] = set()
    bad = []
    for name in names:
        if not is_nameable(name) or name.lower() in seen:
            bad.append(name)
        seen.add(name.lower())
    return bad
