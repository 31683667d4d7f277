"""Lay out workload files: a clause a line, keywords in capitals, comments in place.

Only words are read. A statement is cut as :mod:`optimizer.language.statements` cuts it, into the words that sqlglot
sees. The same words are written again in the same order with other white space between them. The neighbours of a word
decide whether it is a keyword, so names keep their letters. Unknown words do not change. The result is cut into words
again: if these differ, the statement stays as it was written.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokens import TokenType

from optimizer.errors.diagnostics import Diagnostic
from optimizer.language.keywords import Comment, Word, mark_keywords
from optimizer.language.parser import parse
from optimizer.language.statements import SETTING, Statement, settings_of, split_statements

WIDTH = 110
"""Characters of a line, if the words allow it."""

INDENT = "    "

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)

_MEANINGS = ("HDL-2", "HDL-122")
"""Codes of what a query means, which is known with its streams alone."""


@dataclass(frozen=True)
class LaidOut:
    """A workload file as it should be, and what is wrong with statements that were left as they are."""

    text: str
    diagnostics: tuple[Diagnostic, ...]


def lay_out(text: str, file: str = "") -> LaidOut:
    """Lay out a workload file. ``file``: its name in findings. Linear in the text; laying out twice changes nothing
    more.

    Statements with an error in their words or clauses do not change. Whether their names exist does not matter.
    """
    ending = "\r\n" if "\r\n" in text else "\n"
    text = text.replace("\r\n", "\n")
    wrong = tuple(
        diagnostic for diagnostic in parse(text, {}, file).diagnostics if not diagnostic.code.startswith(_MEANINGS)
    )
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    places = sorted(lines[diagnostic.line - 1] + diagnostic.column - 1 for diagnostic in wrong)
    pieces: list[str] = []
    at = 0
    for statement in split_statements(text):
        header = _header(text, at, statement.start)
        is_wrong = bisect_left(places, at) < bisect_right(places, statement.end)
        laid, at = (None, 0) if is_wrong else _laid_out(statement, text)
        if laid is None:
            at = statement.end + text.startswith(";", statement.end)
            laid = text[statement.start : at].rstrip()
        pieces += [header, laid]
    pieces.append(_header(text, at, len(text)))
    laid_out = "".join(pieces).rstrip()
    laid_out = laid_out + "\n" if laid_out else ""
    return LaidOut(laid_out.replace("\n", ending) if _settings(laid_out) == _settings(text) else text, wrong)


def _settings(text: str) -> list[object]:
    """The settings in the comments of a file, query by query."""
    settings = [settings_of(statement, "") for statement in split_statements(text)]
    return [
        (
            *map(setting.__getattribute__, ("name", "owner", "until", "table", "asset")),
            *(each._replace(at=0) for each in setting.expect),
            len(setting.broken),
        )
        for setting in settings
    ]


def _header(text: str, begin: int, end: int) -> str:
    """Lay out the text between two statements: comments from the first column, single empty lines, one before the
    first.
    """
    header = text[begin:end]
    if _COMMENT.sub("", header).strip():
        # a stray semicolon ends settings
        return header
    lines = [line.rstrip() for line in header.split("\n")]
    # the last stands before the statement, on its line
    lines = lines[: len(lines) if lines[-1] else -1]
    behind = ""
    if text[text.rfind("\n", 0, begin) + 1 : begin].strip() and lines:
        behind, lines = f"  {lines[0].strip()}".rstrip(), lines[1:]
    if "/*" not in header:
        lines = [_setting(line.strip()) for line in lines]
    header_lines: list[str] = []
    for line in lines:
        if line or (header_lines and header_lines[-1]):
            header_lines.append(line)
    return behind + ("\n\n" if begin else "") + "".join(f"{line}\n" for line in header_lines)


def _setting(comment: str) -> str:
    match = SETTING.fullmatch(comment)
    if match is None:
        return comment
    return f"-- {' '.join(match[1].lower().replace('(', ' (').split())}" + (
        "" if match[2] is None else f": {match[2].strip()}"
    )


# ------------------------------------------------------------------------------------------ one statement
def _laid_out(statement: Statement, text: str) -> tuple[str | None, int]:
    """A statement with a semicolon, and where in the file what follows begins; None if it cannot be laid out."""
    source = text[statement.start : statement.end]
    words = _words(statement.text, source)
    if words is None:
        return None, 0
    behind = statement.end + 1
    if not text.startswith(";", statement.end):
        # the semicolon stands behind the last word: a comment there comes to be one of the next query
        if any(SETTING.fullmatch(comment.text) for comment in words[-1].comments):
            return None, 0
        words[-1].comments = []
        behind = statement.start + words[-1].end
    mark_keywords(words)
    page = _Page(words).text()
    again = list(split_statements(page))
    copy = _words(again[0].text, page[: again[0].end]) if len(again) == 1 else None
    return (page if copy is not None and _same(words, copy) else None), behind


def _same(words: Sequence[Word], others: Sequence[Word]) -> bool:
    if len(words) != len(others):
        return False
    return all(
        word.kinds == other.kinds
        and word.written == other.raw
        and [comment.text for comment in word.comments] == [comment.text for comment in other.comments]
        for word, other in zip(words, others, strict=True)
    )


def _words(blanked: str, source: str) -> list[Word] | None:
    """The words of a statement, each with the comments after it; None if they cannot be separated."""
    try:
        tokens = Spark().tokenize(blanked)
    except TokenError:
        return None
    if not tokens or any(token.comments for token in tokens):
        return None
    words: list[Word] = []
    for token in tokens:
        if words and token.start < words[-1].end:
            # 5L arrives as three words at one place
            words[-1].kinds += (token.token_type,)
            continue
        gap = source[words[-1].end : token.start] if words else ""
        if words:
            words[-1].comments = _comments(gap)
        words.append(Word(source[token.start : token.end + 1], (token.token_type,), token.end + 1, bool(gap)))
    words[-1].comments = _comments(source[words[-1].end :])
    for word, after in itertools.pairwise(words):
        if after.kind == TokenType.COMMA:
            # `a -- why` with its comma on the next line
            word.comments, after.comments = [], word.comments + after.comments
    return words


def _comments(gap: str) -> list[Comment]:
    comments = []
    at = 0
    for comment in _COMMENT.finditer(gap):
        ends = comment[0].startswith("--") or re.match(r"[ \t]*\n", gap[comment.end() :]) is not None
        comments.append(Comment(comment[0].rstrip(), "\n" in gap[at : comment.start()], ends))
        at = comment.end()
    return comments


class _Page:
    """The words of one statement as lines."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.lines = [""]
        self.is_ended = False

    def text(self) -> str:
        """All of it, with the semicolon."""
        begins = [at for at, word in enumerate(self.words) if word.begins_clause or not at]
        for begin, end in itertools.pairwise([*begins, len(self.words)]):
            self._end_line()
            self._write(self.words[begin:end])
        if self.is_ended:
            self._end_line()
        return "\n".join(self.lines) + ";"

    def _write(self, clause: Sequence[Word]) -> None:
        """Write a clause, on one line if it fits and no comment ends a line within it."""
        comments = [comment for word in clause[:-1] for comment in word.comments]
        width = sum(len(word.written) + word.has_space for word in clause) + sum(
            len(comment.text) + 2 for comment in comments
        )
        is_long = width > WIDTH or any(comment.ends_line or comment.begins_line for comment in comments)
        for at, word in enumerate(clause):
            if is_long and at and clause[0].breaks == "," and (at == 1 or clause[at - 1].separates):
                self._end_line(INDENT)
            elif is_long and at and clause[0].breaks == "AND" and word.connects:
                self._end_line("  ")
            self._put(word, INDENT if at + 1 < len(clause) else "")

    def _put(self, word: Word, indent: str) -> None:
        """A word and the comments behind it. ``indent``: of a comment that begins a line, and of what follows it."""
        if self.is_ended:
            self._end_line(INDENT)
        self.lines[-1] += (" " if self.lines[-1].strip() and word.has_space else "") + word.written
        for comment in word.comments:
            if comment.begins_line or self.is_ended:
                self._end_line(indent)
            self.lines[-1] += ("  " if self.lines[-1].strip() else "") + comment.text
            self.is_ended = comment.ends_line or comment.begins_line

    def _end_line(self, indent: str = "") -> None:
        self.is_ended = False
        if ended := self.lines[-1].rstrip():
            self.lines[-1:] = [ended, indent]
        else:
            self.lines[-1] = indent
