"""Find the keywords of a statement, and where its clauses, lists and conditions can be broken into lines.

The neighbours of a word decide, since many words of the language may also be names of columns: ``END`` is a keyword
only after the value of a ``CASE``, ``SLIDE`` only in a WINDOW clause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot.dialects.spark import Spark
from sqlglot.tokens import TokenType


@dataclass(frozen=True)
class Comment:
    """A comment behind a word: whether it begins a line, and whether a line ends behind it."""

    text: str
    begins_line: bool
    ends_line: bool


@dataclass
class Word:
    """A word as written, with its properties.

    Attributes
    ----------
    kinds
        Kinds of sqlglot's tokens at its place; most words have one.
    end
        The offset after the word in its statement.
    has_space
        Whether white space precedes it: first as written, then as laid out.
    comments
        Comments between it and the next word.
    is_keyword
        Whether it is written in capitals.
    begins_clause, breaks
        Whether a line begins with it, and the word at which its clause is broken if it is long: ``,`` or ``AND``.
    separates, connects
        Whether it is a comma, an AND or an OR of its clause, not of something in parentheses.
    """

    raw: str
    kinds: tuple[TokenType, ...]
    end: int
    has_space: bool
    comments: list[Comment] = field(default_factory=list)
    is_keyword: bool = False
    begins_clause: bool = False
    breaks: str = ""
    separates: bool = False
    connects: bool = False

    @property
    def kind(self) -> TokenType:
        return self.kinds[0]

    @property
    def word(self) -> str:
        """In capitals, with one space between its parts; of what is no word, as it is."""
        return " ".join(self.raw.upper().split()) if _WORD.fullmatch(self.raw) else self.raw

    @property
    def written(self) -> str:
        """The word as laid out."""
        return self.word if self.is_keyword else self.raw


_WORD = re.compile(r"[A-Za-z]+(\s+[A-Za-z]+)*")

_CLAUSES = {
    TokenType.SELECT: ",",
    TokenType.FROM: "",
    TokenType.WHERE: "AND",
    TokenType.GROUP_BY: ",",
    TokenType.HAVING: "AND",
    TokenType.ORDER_BY: ",",
}
"""Words that begin a clause wherever they occur outside parentheses, with the words at which the clause is broken."""

_TWO = {
    "WINDOW": ("RANGE", "ROWS", "CUMULATE", "SESSION", "TUMBLE", "HOP"),
    "PATTERN": ("SEQ",),
    "WITH": ("(", "ERROR"),
}
"""Words that begin a clause before some others."""

_SIDES = {TokenType.INNER, TokenType.LEFT, TokenType.OUTER}
"""Words before JOIN."""

_OF_WINDOWS = {"RANGE", "ROWS", "CUMULATE", "TUMBLE", "HOP", "SLIDE", "STEP", "AT", "MOST", "ENDING", "AGO", "IN"}
_OF_WINDOWS |= {"SESSION", "GAP", "UP", "TO", "UNBOUNDED"}

_UNITS = re.compile(r"(MICROSECOND|MILLISECOND|SECOND|MINUTE|HOUR|DAY|WEEK|MONTH|QUARTER|YEAR)S?")

_ALWAYS = {
    *(TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY),
    *(TokenType.PARTITION_BY, TokenType.ON, TokenType.ALIAS, TokenType.AND, TokenType.OR, TokenType.NOT),
    *(TokenType.LIKE, TokenType.RLIKE, TokenType.BETWEEN, TokenType.WHEN, TokenType.THEN, TokenType.ELSE),
    *(TokenType.DISTINCT, TokenType.WITH),
}
"""Words that are no names."""

_CONSTANTS = {TokenType.NULL, TokenType.TRUE, TokenType.FALSE}

_BINARY = {
    *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.NULLSAFE_EQ),
    *(TokenType.SLASH, TokenType.MOD, TokenType.DPIPE),
}

_SIGNS = {TokenType.PLUS, TokenType.DASH, TokenType.STAR}
"""Operators that may precede a single value, or ``*`` for all columns."""

_VALUES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING}
_VALUES |= {TokenType.R_PAREN, TokenType.R_BRACKET}

_NAMES = Spark.Parser.ID_VAR_TOKENS


def mark_keywords(words: Sequence[Word]) -> None:
    """Find the keywords, the clauses and the spaces of one statement's words."""
    around = [None, *words, None]
    depth, cases, between = 0, 0, 0
    clause = ""
    for at, word in enumerate(words):
        before, after = around[at], around[at + 2]
        depth -= word.kind in (TokenType.R_PAREN, TokenType.R_BRACKET)
        is_name = before is not None and before.kind in (TokenType.DOT, TokenType.ALIAS, TokenType.ON)
        joins = _joins(words, at) if depth == 0 and not is_name else False
        is_joining = before is not None and before.is_keyword and before.kind in (*_SIDES, TokenType.JOIN)
        if joins and not is_joining:
            word.begins_clause, word.breaks, word.is_keyword, clause = True, "", True, "JOIN"
        elif depth == 0 and not is_name and (breaks := _clause(word, after)) is not None:
            word.begins_clause, word.breaks, word.is_keyword, clause = True, breaks, True, word.word
        elif joins:
            word.is_keyword = True
        elif not is_name:
            word.is_keyword = _is_keyword(word, before, after, clause if depth == 0 else "", cases, words, at)
        cases += word.is_keyword * ((word.kind == TokenType.CASE) - (word.kind == TokenType.END))
        between += depth == 0 and word.kind == TokenType.BETWEEN
        word.separates = depth == 0 and word.kind == TokenType.COMMA
        if depth == 0 and not cases and word.kind in (TokenType.AND, TokenType.OR):
            word.connects = not (word.kind == TokenType.AND and between)
            between -= not word.connects
        word.has_space = _has_space(word, before, around[at - 1] if at else None)
        depth += word.kind in (TokenType.L_PAREN, TokenType.L_BRACKET)


def _joins(words: Sequence[Word], at: int) -> bool:
    """Return whether a word is one of a join: JOIN, or INNER, LEFT or OUTER before it."""
    end = at
    while end < len(words) and words[end].kind in _SIDES:
        end += 1
    return end < len(words) and words[end].kind == TokenType.JOIN


def _clause(word: Word, after: Word | None) -> str | None:
    """The word at which the clause that begins here is broken; None if no clause begins."""
    if word.kind in _CLAUSES:
        return _CLAUSES[word.kind]
    follows = after is not None and after.kind not in (TokenType.STRING, TokenType.IDENTIFIER)
    return "" if follows and after is not None and after.word in _TWO.get(word.word, ()) else None


def _is_keyword(
    word: Word, before: Word | None, after: Word | None, clause: str, cases: int, words: Sequence[Word], at: int
) -> bool:
    """Return whether a word that begins no clause is a keyword. ``clause``: the clause around it, outside parentheses;
    ``cases``: the number of open CASEs.
    """
    kind, text, follows = word.kind, word.word, "" if after is None else after.word
    behind_value = before is not None and _is_value(before)
    if kind in _ALWAYS:
        return True
    if kind in _CONSTANTS:
        return not behind_value and follows not in (".", "(")
    if kind == TokenType.CASE:
        return any(later.kind == TokenType.WHEN for later in words[at:]) and follows not in (".", ",", ")", "=")
    if kind == TokenType.END:
        return cases > 0 and behind_value
    if kind == TokenType.IS:
        return behind_value and follows in ("NOT", "NULL", "TRUE", "FALSE", "DISTINCT")
    if text in ("IN", "FILTER") and follows == "(":
        return behind_value
    if kind == TokenType.INTERVAL:
        return after is not None and after.kind in (TokenType.STRING, TokenType.NUMBER)
    if _UNITS.fullmatch(text) and at > 1 and words[at - 2].kind == TokenType.INTERVAL and words[at - 2].is_keyword:
        return True
    if clause == "WINDOW":
        return (
            text in _OF_WINDOWS and before is not None and before.kind not in (TokenType.PARTITION_BY, TokenType.COMMA)
        )
    if clause == "JOIN":
        return text == "USING" and follows == "("
    if clause == "PATTERN":
        return text == "SEQ" and follows == "("
    if clause == "ORDER BY":
        return (kind in (TokenType.ASC, TokenType.DESC) and behind_value) or (
            kind == TokenType.LIMIT and after is not None and after.kind == TokenType.NUMBER
        )
    return False


def _is_value(word: Word) -> bool:
    if word.kind == TokenType.END or word.kind in _CONSTANTS:
        return True
    return word.kind in _VALUES or (
        word.kind in _NAMES and not word.is_keyword and _WORD.fullmatch(word.raw) is not None
    )


def _has_space(word: Word, before: Word | None, earlier: Word | None) -> bool:
    """Return whether a space precedes a word: as its neighbours require, else as written."""
    if before is None:
        return False
    if word.kind == TokenType.COMMA or before.kind == TokenType.L_PAREN or word.kind == TokenType.R_PAREN:
        return False
    if before.word == "SEQ" and word.kind == TokenType.L_PAREN:
        return False
    if before.kind == TokenType.COMMA or word.is_keyword or before.is_keyword:
        return before.kind != TokenType.L_BRACKET or word.has_space
    if word.kind == TokenType.L_PAREN:
        return word.has_space and before.kind not in (TokenType.VAR, TokenType.IDENTIFIER)
    if word.kind in _BINARY or before.kind in _BINARY:
        return True
    if word.kind in _SIGNS and _is_value(before):
        return True
    if before.kind in _SIGNS and earlier is not None and _is_value(earlier):
        return True
    return word.has_space
