"""The records of a JSON file one by one, with the text that each is written as, and what is none.

A file of lines is read line by line if it has text that is no JSON: the next line begins anew. Of any other layout
(arrays, objects over several lines) such text leaves it open where the next record begins.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.csv_source import BOM, HEAD, check_text
from spark_jobs.streams.sources.json_source import records_path
from spark_jobs.streams.sources.json_text import DECODER, LONGEST, JsonRecord, Walker, json_kind
from spark_jobs.streams.sources.objects import opened
from spark_jobs.streams.sources.splits import Split

_SPACES = " \t\r\n"


class JsonPiece(NamedTuple):
    """A record, or what is in its place: value, line, place in the file's value, text, and why it is no record
    (None: it is one) with the error's code."""

    value: Any
    line: int
    place: str
    text: str
    problem: str | None = None
    code: str = "HDL-481"


class SeveralLines(HeddleError):
    """HDL-481: text that is no JSON in a file whose records are not lines."""


class _Walked(JsonRecord):
    """A record with its text, and why it is none."""

    text: str
    problem: str | None


class _Pieces(Walker):
    """A walker that gives values that are no objects, too, and the text of each."""

    is_dropped = False

    def _drop(self) -> None:
        super()._drop()
        self.is_dropped = True

    def _record(self, place: str) -> JsonRecord:
        line, begin, self.is_dropped = self._line(), self.at, False
        value = self._raw()
        record = _Walked(value if isinstance(value, dict) else {}, line, place)
        record.text = self.text[0 if self.is_dropped else begin : self.at]
        record.problem = None if isinstance(value, dict) else f"{json_kind(value)} is no record"
        return record


def of_walker(stream: Stream, split: Split) -> Iterator[JsonPiece]:
    """Yield the records of a file in any layout. Raises what :meth:`Walker.walk` does for text that is no JSON;
    :class:`SeveralLines` if a record before it has several lines."""
    is_long = bool(records_path(stream))
    with opened(split.path, split.version) as file:
        try:
            for record in _Pieces(stream.name, split.path, file, records_path(stream)).walk():
                assert isinstance(record, _Walked)
                is_long = is_long or record.place != "$" or "\n" in record.text
                yield JsonPiece(record.value, record.line, record.place, record.text, record.problem)
        except HeddleError as error:
            if is_long:
                raise SeveralLines.of(error.diagnostic) from None
            raise


def of_lines(stream: Stream, split: Split) -> Iterator[JsonPiece]:
    """Yield the records of a file of lines, and each line that is none.

    Raises HDL-415 for another format, HDL-422 for a line that is too long, HDL-481 if no line is a record, or the file
    begins with an array.
    """
    with opened(split.path, split.version) as file:
        beginning = file.read(HEAD)
        check_text(stream.name, split.path, beginning, "JSON")
        file.seek(0)
        if beginning.removeprefix(BOM).lstrip().startswith(b"["):
            raise SeveralLines("HDL-481", f"stream {stream.name}: {split.path} is an array that is no JSON")
        yield from _lines(stream, split, file)


def _lines(stream: Stream, split: Split, file: io.BufferedIOBase) -> Iterator[JsonPiece]:
    number, is_json = 0, False
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise HeddleError("HDL-422", f"stream {stream.name}: {split.path}, line {number}, is longer than {LONGEST}")
        line = line.removeprefix(BOM).rstrip(b"\r\n")
        if not line.strip():
            continue
        for piece in _of_line(line, number):
            is_json = is_json or piece.problem is None
            yield piece
    if number and not is_json:
        message = f"stream {stream.name}: {split.path}: no line is a JSON object"
        raise SeveralLines("HDL-481", message, "is it another format?")


def _of_line(line: bytes, number: int) -> list[JsonPiece]:
    """The records of a line; one piece that is none if anything on it is no JSON."""
    text = line.decode(errors="surrogateescape")

    def bad(problem: str, code: str = "HDL-481") -> list[JsonPiece]:
        return [JsonPiece({}, number, "$", text, problem, code)]

    try:
        line.decode()
    except UnicodeDecodeError as error:
        return bad(f"it is not UTF-8 (byte {error.start + 1})", "HDL-420")
    if text[0] in _SPACES:
        return bad("it begins with a space, and other lines are no JSON")
    pieces, at = list[JsonPiece](), 0
    while at < len(text):
        try:
            value, end = DECODER.raw_decode(text, at)
        except RecursionError:
            return bad("it is nested too deeply")
        except json.JSONDecodeError as error:
            return bad(f"{error.msg.lower()} at character {error.pos + 1}: {printable(text[error.pos :], 40)}")
        pieces += _of_value(value, number, text[at:end])
        at = end + len(text) - end - len(text[end:].lstrip(_SPACES))
    return pieces


def _of_value(value: Any, number: int, text: str) -> list[JsonPiece]:
    if not isinstance(value, list):
        problem = None if isinstance(value, dict) else f"{json_kind(value)} is no record"
        return [JsonPiece(value if isinstance(value, dict) else {}, number, "$", text, problem)]
    return [
        JsonPiece(each, number, f"$[{at}]", text)
        if isinstance(each, dict)
        else JsonPiece({}, number, f"$[{at}]", text, f"{json_kind(each)} is no record")
        for at, each in enumerate(value)
    ]
