"""Finds the records of JSON text of any layout: lines, several records on a line, arrays, an array inside objects.

A :class:`Walker` reads a file block by block. It offers whole lines, or whole elements of an array, to a quick parser,
and takes a block apart value by value with Python's own parser if the quick one is not certain about it. Numbers stay
the texts that they are written as.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, printable
from spark_jobs.streams.sources.csv_source import BOM, HEAD, check_text

BLOCK = 4 << 20
"""Bytes that are read at once."""

LONGEST = 32 << 20
"""Bytes of the longest record."""

SEGMENT = 1 << 16
"""Bytes that are taken apart before the quick parser is tried inside an array."""

MOST_LINES = 90_000
"""Lines that the quick parser is given at most: pyarrow takes 100,000 rows at once."""

_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_KEY = re.compile(rb'\{[ \t\r\n]*"(?:[^"\\]|\\.)*"')

_SLACK = 16
"""Characters of the longest token, but for texts: an error so close to the end of a block may be none."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Repeated(dict[str, Any]):
    """An object that has keys twice: ``names``."""

    names: frozenset[str] = frozenset()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) == len(pairs):
        return record
    keys = [key for key, _ in pairs]
    repeated = Repeated(record)
    repeated.names = frozenset(key for key in record if keys.count(key) > 1)
    return repeated


DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=_object)


class JsonRecord(NamedTuple):
    """A record: its value, the line in which it begins, and its place in the file's value (``$[3]``; ``$``: a line)."""

    value: dict[str, Any]
    line: int
    place: str


Quick = Callable[[bytes, bool], pa.RecordBatch | None]
"""Parses lines, or elements of an array with commas between them (True); None: it is not certain."""


class Walker:
    """The records of one file, in order.

    - ``stream``, ``path``: for messages;
    - ``file``: its content, at the first byte;
    - ``records``: the keys that lead to the array whose elements are records; none: top-level values are records,
      or arrays of them;
    - ``quick``: the quick parser; None: none;
    - ``block``: bytes that are read at once.
    """

    def __init__(
        self,
        stream: str,
        path: str,
        file: io.BufferedIOBase,
        records: tuple[str, ...] = (),
        quick: Quick | None = None,
        block: int = BLOCK,
    ) -> None:
        self.stream, self.path, self.file = stream, path, file
        self.records, self.quick, self.block = records, quick, block
        # bytes from `begin` on are not consumed; `text` is the first of them, consumed up to `at`
        self.data, self.begin, self.is_end, self.passed = b"", 0, False, 0
        self.text, self.at, self.decoded = "", 0, 0
        # the line of the character at `counted`
        self.line, self.counted = 1, 0
        self.slow_end, self.misses = 0, 0

    def walk(self) -> Iterator[JsonRecord | pa.RecordBatch]:
        """Yield records, and batches of those that the quick parser took.

        Raises HDL-415 for another format, HDL-420 for text that is not UTF-8, HDL-422 for a record that is too long,
        HDL-456 if the array of records appears twice, HDL-481 for text that is no record.
        """
        self._fill(self.block)
        check_text(self.stream, self.path, self.data[:HEAD], "JSON")
        while True:
            if self.at >= self.slow_end:
                self._sync()
                self._fill(self.block)
                batch, size = (None, SEGMENT) if self.records else self._lines()
                if batch is not None:
                    yield batch
                    continue
                self._decode(size)
                self.slow_end = len(self.text)
            self._skip_space(is_top=True)
            if self.at < len(self.text):
                yield from self._value()
            elif self._is_done():
                return
            else:
                self.slow_end = 0

    @property
    def consumed(self) -> int:
        """Bytes of the records so far, nearly: characters of the newest ones count as bytes."""
        return self.passed + self.begin + self.at

    # ------------------------------------------------------------------------------------------- bytes
    def _fill(self, size: int) -> None:
        """Read until so many bytes are not consumed, or the file ends."""
        while not self.is_end and len(self.data) - self.begin < size:
            block = self.file.read(size - len(self.data) + self.begin)
            self.is_end = not block
            self.passed += self.begin
            self.data, self.begin = self.data[self.begin :] + block, 0

    def _sync(self) -> None:
        """Forget the text, consumed or not."""
        self._drop()
        self.text, self.decoded, self.slow_end = "", 0, 0

    def _decode(self, size: int) -> None:
        """Take the text of the next bytes."""
        part = self.data[self.begin : self.begin + size]
        is_last = self.is_end and self.begin + size >= len(self.data)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            self.text = decoder.decode(part, final=is_last)
        except UnicodeDecodeError as error:
            line = self.line + part.count(b"\n", 0, error.start)
            shown = part[max(0, error.start - 20) : error.start + 20]
            message = f"stream {self.stream}: {self.path}, line {line}, is not UTF-8: {shown!r}"
            raise HeddleError("HDL-420", message, "save the file as UTF-8") from None
        self.decoded = len(part) - len(decoder.getstate()[0])

    def _more(self) -> bool:
        """Extend the text, whose consumed part is forgotten; False: there is no more. Raises HDL-422."""
        self._drop()
        unread, slow = self.decoded, self.slow_end
        if unread > LONGEST:
            message = f"stream {self.stream}: {self.path}, line {self.line}: the record that begins here is longer than"
            raise HeddleError("HDL-422", f"{message} {LONGEST} bytes", "is a quote or a bracket never closed?")
        size = max(2 * unread, SEGMENT)
        self._fill(size)
        if len(self.data) - self.begin <= unread:
            return False
        self._decode(size)
        self.slow_end = max(slow, 0)
        return True

    def _drop(self) -> None:
        """Forget the consumed text."""
        self.line = self._line()
        used = self.text[: self.at]
        size = self.at if used.isascii() else len(used.encode())
        self.begin, self.decoded = self.begin + size, self.decoded - size
        self.text, self.slow_end = self.text[self.at :], self.slow_end - self.at
        self.at = self.counted = 0

    def _is_done(self) -> bool:
        return self.is_end and self.begin + self.decoded >= len(self.data)

    def _line(self) -> int:
        """The line of the first character that is not consumed."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    # ------------------------------------------------------------------------------------------- quick
    def _is_tried(self) -> bool:
        """Return whether the quick parser is tried: seldom, where it has failed again and again."""
        return self.quick is not None and (self.misses < 4 or self.misses % 8 == 0)

    def _lines(self) -> tuple[pa.RecordBatch | None, int]:
        """Complete lines, parsed quickly, and their bytes, consumed if they could be."""
        if self.begin == 0 and self.line == 1 and self.data.startswith(BOM):
            self.begin = len(BOM)
        if self.data[self.begin : self.begin + SEGMENT].lstrip(b" \t\r\n").startswith(b"["):
            return None, SEGMENT
        size = len(self.data) if self.is_end else self.data.rfind(b"\n", self.begin) + 1
        size = min(size, self.begin + self.block) if self.is_end else size
        if size < len(self.data):
            size = self.data.rfind(b"\n", self.begin, size) + 1
        while size - self.begin > MOST_LINES and self.data.count(b"\n", self.begin, size) > MOST_LINES:
            size = self.data.rfind(b"\n", self.begin, self.begin + (size - self.begin) // 2) + 1
        size = max(size - self.begin, 0)
        if not size or not self._is_tried():
            self.misses += not self._is_tried()
            return None, size or self.block
        part = self.data[self.begin : self.begin + size]
        batch = self._quickly(part, False)
        if batch is not None:
            self.line += part.count(b"\n")
            self.begin += size
        return batch, size

    def _elements(self) -> pa.RecordBatch | None:
        """Elements of an array, parsed quickly and consumed, with the comma behind the last. The text is forgotten."""
        self._sync()
        self._fill(self.block)
        begin = self.begin
        while self.data[begin : begin + 1] in (b" ", b"\t", b"\r", b"\n"):
            begin += 1
        first = _FIRST_KEY.match(self.data, begin)
        if first is None or not self._is_tried():
            self.misses += first is not None
            return None
        # where another element that begins alike follows a bracket and a comma; the parser sees whether it does
        after = before = min(begin + self.block, len(self.data))
        for _ in range(64):
            after = self.data.rfind(first[0], first.end(), after)
            if after < 0:
                return None
            before = len(self.data[max(begin, after - 256) : after].rstrip(b" \t\r\n")) + max(begin, after - 256)
            if self.data[before - 1 : before] == b",":
                break
        else:
            return None
        batch = self._quickly(self.data[begin : before - 1], True)
        if batch is not None:
            self.line += self.data.count(b"\n", self.begin, after)
            self.begin = after
        return batch

    def _quickly(self, part: bytes, is_array: bool) -> pa.RecordBatch | None:
        assert self.quick is not None
        batch = self.quick(part, is_array)
        self.misses = 0 if batch is not None else self.misses + 1
        return batch

    # ------------------------------------------------------------------------------------------- values
    def _skip_space(self, is_top: bool = False) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = self.at if match is None else match.end()
        # files that were put together, or the first of them, have a mark at the beginning of a line
        while is_top and self.text.startswith("\ufeff", self.at) and (self.at == 0 or self.text[self.at - 1] == "\n"):
            self.at += 1
            self._skip_space()

    def _next(self) -> str:
        """The next character that is no space, which is not consumed; empty at the end."""
        while True:
            self._skip_space()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def _raw(self) -> Any:
        """The next value, consumed."""
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.at)
            except RecursionError:
                raise self._refused("is nested too deeply", "", "leave such records out") from None
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated string") or error.pos >= len(self.text) - _SLACK
                if is_cut and self._more():
                    continue
                at = self.at
                self._line()
                line = self.line + self.text.count("\n", at, error.pos)
                shown = self.text[max(at, error.pos - 40) : error.pos + 40]
                raise self._no_record(f"{error.msg.lower()} here", shown, line) from None
            if end == len(self.text) and isinstance(value, Number) and self._more():
                continue
            self.at = end
            return value

    def _value(self) -> Iterator[JsonRecord | pa.RecordBatch]:
        """The records of a value at the top."""
        if self.text[self.at] == "[":
            yield from self._array("$", self.records)
        elif self.records and self.text[self.at] == "{":
            yield from self._object("$", self.records)
        else:
            yield self._record("$")

    def _record(self, place: str) -> JsonRecord:
        line = self._line()
        value = self._raw()
        if not isinstance(value, dict):
            raise self._no_record(f"{json_kind(value)} is no record", json.dumps(value)[:80], line)
        return JsonRecord(value, line, place)

    def _array(self, place: str, records: tuple[str, ...]) -> Iterator[JsonRecord | pa.RecordBatch]:
        """The records of an array; ``records``: keys inside its elements that lead to them."""
        self.at += 1
        number = 0
        if self._next() == "]":
            self.at += 1
            return
        while True:
            if self.at >= self.slow_end and not records and self.quick is not None:
                batch = self._elements()
                if batch is not None:
                    number += batch.num_rows
                    yield batch
                    continue
                self._fill(SEGMENT)
                self._decode(SEGMENT)
                self.slow_end = len(self.text)
            mark = self._next()
            if mark == "{" and records:
                yield from self._object(f"{place}[{number}]", records)
            elif mark in ("", "]", ","):
                raise self._cut(mark)
            else:
                yield self._record(f"{place}[{number}]")
            number += 1
            mark = self._next()
            if mark not in (",", "]") or not mark:
                raise self._cut(mark)
            self.at += 1
            if mark == "]":
                return

    def _object(self, place: str, records: tuple[str, ...]) -> Iterator[JsonRecord | pa.RecordBatch]:
        """The records of an array in an object, which ``records`` leads to."""
        begin, array_key, seen = self._line(), records[0], False
        self.at += 1
        if self._next() == "}":
            self.at += 1
        else:
            while True:
                if self._next() != '"':
                    raise self._cut(self._next())
                key = str(self._raw())
                if self._next() != ":":
                    raise self._cut(self._next())
                self.at += 1
                mark = self._next()
                if key.lower() != array_key.lower():
                    self._raw()
                elif seen:
                    message = f"stream {self.stream}: {self.path}, line {self._line()}: {place} has {array_key} twice"
                    raise HeddleError("HDL-456", message, "rename one")
                else:
                    seen = True
                    yield from self._inside(f"{place}.{key}", records[1:], mark)
                mark = self._next()
                if mark not in (",", "}") or not mark:
                    raise self._cut(mark)
                self.at += 1
                if mark == "}":
                    break
        if not seen:
            raise self._no_record(f"{place} has no {array_key}", "", begin, "correct `records` below `source`")

    def _inside(self, place: str, records: tuple[str, ...], mark: str) -> Iterator[JsonRecord | pa.RecordBatch]:
        line = self._line()
        if mark == "[":
            yield from self._array(place, records)
        elif mark == "{" and records:
            yield from self._object(place, records)
        elif (value := self._raw()) is not None:
            message = f"{place} is {json_kind(value)}, no array of records"
            raise self._no_record(message, "", line, "correct `records` below `source`")

    # ------------------------------------------------------------------------------------------- errors
    def _cut(self, mark: str) -> HeddleError:
        what = "the file ends within a value" if not mark else "a value, or a comma between values, is missing"
        return self._no_record(what, self.text[max(0, self.at - 40) : self.at + 40], self._line())

    def _no_record(self, what: str, text: str, line: int, hint: str = "") -> HeddleError:
        shown = f": {printable(text, 80)}" if text else ""
        message = f"stream {self.stream}: {self.path}, line {line}: {what}{shown}"
        return HeddleError("HDL-481", message, hint or "is it half written? each record is a JSON object")

    def _refused(self, what: str, text: str, hint: str) -> HeddleError:
        return self._no_record(f"the record that begins here {what}", text, self._line(), hint)


def json_kind(value: Any) -> str:
    """Return what a JSON value is, in words."""
    if isinstance(value, Number):
        return "a number"
    names = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return next((name for type_, name in names.items() if isinstance(value, type_)), "a value")
