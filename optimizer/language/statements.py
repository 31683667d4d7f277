"""Cuts a workload file into statements, with the settings in their comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from optimizer.language.refusals import shown_text
from optimizer.language.words import QUERY_NAME
from optimizer.workload.instants import instant_of_text
from optimizer.workload.values import AnswerTable

Broken = tuple[int, str, str, str]


@dataclass
class Statement:
    """One statement of a file: ``text`` has comments blanked and ``start`` is its offset in the file.

    ``broken``: errors that are known before any clause is read, by offset in the file, code, message and hint.
    """

    start: int
    text: str
    end: int
    comments: list[tuple[int, str]] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)


class Expected(NamedTuple):
    """A line ``-- expect: …`` before a statement.

    ``at``: the offset of its ``text`` in the file; ``severity``: as written, "" for none; ``is_suite``: the text names
    a file.
    """

    at: int
    severity: str
    text: str
    is_suite: bool


@dataclass(frozen=True)
class Settings:
    """Settings of a query, in the comments before its statement. ``until``: in microseconds."""

    name: str
    owner: str
    until: int | None
    table: AnswerTable | None
    broken: tuple[Broken, ...]
    asset: bool = False
    expect: tuple[Expected, ...] = ()


_PIECE = re.compile(
    r"""(?P<line>--[^\n]*) | (?P<block>/\*) | (?P<end>;)
    | (?P<string>'(?:[^'\\\n]|\\[^\n])*' | "(?:[^"\\\n]|\\[^\n])*" | `[^`\n]*`)
    | (?P<open>['"`][^\n]*)""",
    re.VERBOSE,
)

SETTING = re.compile(
    r"--\s*((?:name|owner|until|table|asset|expect(?:\s+suite)?(?:\s*\([^():]*\))?)(?=\s*:)|asset(?=\s*$))\s*(?::(.*))?",
    re.IGNORECASE,
)
"""Name and value. A flag may have no value, and then no other text: ``-- asset prices`` is a remark."""

_RULES = {
    "name": "1 to 128 letters, digits, _ . - (a letter or _ first)",
    "owner": "1 to 128 printable characters",
    "until": "an instant in ISO 8601, UTC without a zone: 2026-12-31 or 2026-12-31T18:00:00",
    "asset": "yes or no; `-- asset` alone says yes",
    "table": "a name as a query's, to which may be added: , change data feed",
}

_EXPECT = re.compile(r"expect(\s+suite)?\s*(?:\(([^()]*)\))?", re.IGNORECASE)

_TABLE = re.compile(rf"({QUERY_NAME.pattern})(\s*,\s*change\s+data\s+feed)?", re.ASCII | re.IGNORECASE)

_NAMED_LINE = re.compile(r"^[ \t]*--\s*name\s*:", re.IGNORECASE | re.MULTILINE)


def split_statements(text: str) -> Iterator[Statement]:
    """Split a file in one linear pass.

    Statements end at ``;`` or where a ``-- name:`` line begins the next one. Strings end on their line, so a forgotten
    quote or an unclosed comment is reported at its place and the scan recovers at the next statement.
    """
    blanked: list[str] = []
    comments: list[tuple[int, str]] = []
    broken: list[Broken] = []
    begin: int | None = None
    position, closed = 0, text.rfind("*/")

    def keep(until: int) -> None:
        nonlocal begin, position
        piece = text[position:until]
        if begin is None and piece.strip():
            begin = position + len(piece) - len(piece.lstrip())
            blanked.append(text[begin:until])
        elif begin is not None:
            blanked.append(piece)
        position = until

    def blank(until: int) -> None:
        nonlocal position
        if begin is not None:
            blanked.append(re.sub(r"[^\n]", " ", text[position:until]))
        position = until

    def flush() -> Iterator[Statement]:
        nonlocal begin, blanked, comments, broken
        if begin is not None or broken:
            start = begin if begin is not None else broken[0][0]
            yield Statement(start, "".join(blanked), position, comments, broken)
        begin, blanked, comments, broken = None, [], [], []

    while True:
        piece = _PIECE.search(text, position)
        keep(piece.start() if piece else len(text))
        if piece is None:
            break
        if piece["line"]:
            starts_line = not text[text.rfind("\n", 0, piece.start()) + 1 : piece.start()].strip()
            setting = SETTING.fullmatch(piece["line"])
            if setting and setting[1].lower() == "name" and starts_line and (begin is not None or broken):
                yield from flush()
            if begin is None:
                comments.append((position, piece["line"]))
            blank(piece.end())
        elif piece["block"]:
            if text.startswith("/*+", position):
                broken.append((position, "HDL-103", "hints are not allowed", "the optimizer plans the sharing"))
            if position + 2 <= closed:
                blank(text.index("*/", position + 2) + 2)
                continue
            broken.append((position, "HDL-108", "this comment is never closed", "close it with */"))
            resume = _NAMED_LINE.search(text, position)
            blank(resume.start() if resume else len(text))
            yield from flush()
        elif piece["end"]:
            yield from flush()
            position = piece.end()
        elif piece["string"]:
            keep(piece.end())
        else:
            hint = f"close it with {piece['open'][0]} on the same line"
            broken.append((position, "HDL-108", "this quote is never closed", hint))
            keep(piece.end())
            if piece["open"].rstrip().endswith(";"):
                yield from flush()
    yield from flush()


def settings_of(statement: Statement, name: str) -> Settings:
    """The settings in a statement's comments. ``name``: that of a query without one."""
    owner, until, table, asset = "", None, None, False
    broken: list[Broken] = []
    expect: list[Expected] = []
    settings_seen: set[str] = set()
    for at, comment in statement.comments:
        setting = SETTING.fullmatch(comment)
        if setting is None:
            continue
        what, value = setting[1].lower(), "yes" if setting[2] is None else setting[2].strip()
        if (expected := _EXPECT.fullmatch(what)) is not None:
            begin = at + setting.start(2) + len(setting[2]) - len(setting[2].lstrip())
            expect.append(Expected(begin, (expected[2] or "").strip(), value, expected[1] is not None))
            continue
        if what in settings_seen:
            broken.append((at, "HDL-109", f"a second {what} for one query", "is a semicolon missing above?"))
        settings_seen.add(what)
        if what == "owner" and value.isprintable() and 0 < len(value) <= 128:
            owner = value
        elif what == "name" and QUERY_NAME.fullmatch(value):
            name = value
        elif what == "until" and (instant := instant_of_text(value)) is not None:
            until = instant
        elif what == "table" and (match := _TABLE.fullmatch(value)) is not None:
            table = AnswerTable(match[1], match[2] is not None)
        elif what == "asset" and value.lower() in ("yes", "no"):
            asset = value.lower() == "yes"
        else:
            broken.append((at, "HDL-109", f"{shown_text(value)} is no {what}", _RULES[what]))
    return Settings(name, owner, until, table, tuple(broken), asset, tuple(expect))
