"""Records and fields of CSV text by patterns: for the line of an error, and for reading record by record."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from optimizer.workload.values import Source


class CsvGrammar(NamedTuple):
    """Patterns of a file's bytes: a quoted text and what follows it in its field, a field, a record with its end."""

    quoted: re.Pattern[bytes] | None
    field: re.Pattern[bytes]
    record: re.Pattern[bytes]


@cache
def csv_grammar(delimiter: str, quote: str | None) -> CsvGrammar:
    """Return the patterns of files with a delimiter and a quote (None: no text is quoted)."""
    comma = re.escape(delimiter.encode())
    field, quoted = rb"[^%b\r\n]*+" % comma, None
    if quote is not None:
        mark = re.escape(quote.encode())
        text = rb"(?:[^%b]++|%b%b)*+" % (mark, mark, mark)
        quoted = re.compile(rb"%b(%b)%b(.*)" % (mark, text, mark), re.DOTALL)
        field = rb"(?:%b%b%b%b|(?!%b)%b)" % (mark, text, mark, field, mark, field)
    record = rb"%b(?:%b%b)*+(?:\r\n|\r|\n|\Z)" % (field, comma, field)
    return CsvGrammar(quoted, re.compile(field), re.compile(record))


def fields_of_record(source: Source, record: bytes) -> list[bytes]:
    """The fields of a complete record, without their quotes."""
    grammar, fields, at = csv_grammar(source.delimiter, source.quote), [], 0
    while (match := grammar.field.match(record, at)) is not None:
        inside = grammar.quoted.fullmatch(match[0]) if grammar.quoted is not None else None
        mark = (source.quote or "").encode()
        fields.append(match[0] if inside is None else inside[1].replace(mark * 2, mark) + inside[2])
        at = match.end() + 1
        if record[match.end() : at] != source.delimiter.encode():
            break
    return fields


class CsvRecord(NamedTuple):
    """Position of a record: bytes [begin, end), its first line; ``end`` None: a quote is still open at the end."""

    line: int
    begin: int
    end: int | None


def csv_records(source: Source, data: bytes | mmap.mmap, start: int = 0) -> Iterator[CsvRecord]:
    """All records but empty lines, which are none."""
    pattern = csv_grammar(source.delimiter, source.quote).record
    line, at = 1 + line_ends(data[:start]), start
    while at < len(data):
        match = pattern.match(data, at)
        if match is None or match[0] not in (b"\n", b"\r\n", b"\r"):
            yield CsvRecord(line, at, None if match is None else match.end())
        if match is None:
            return
        line, at = line + line_ends(match[0]), match.end()


def line_ends(text: bytes) -> int:
    """Return the number of line ends in a text: LF, CR LF or CR."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
