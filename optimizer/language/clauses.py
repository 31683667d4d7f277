"""The clauses that are ours, not SQL's: windows of time and of rows, patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokens import Token, TokenType

from optimizer.language.refusals import QUOTED, Refused, shown_text

ROW_WINDOW = "WINDOW ROWS 10000 SLIDE 500 ON <time column>"

PATTERN = "PATTERN SEQ(A, B, C) ON <type column> PARTITION BY <key column>"

COUNT_TEXT = re.compile(r"0*[1-9]\d{0,17}", re.ASCII)


@dataclass(frozen=True)
class WindowWords:
    """The WINDOW clause: its words were checked, no value was read yet."""

    rows: bool
    range: Token
    at_most: bool
    slide: Token
    ago: Token | None
    per: list[Token]
    on: Token


@dataclass(frozen=True)
class PatternWords:
    """The PATTERN clause: its words were checked, no value was read yet. ``seq``: where it begins."""

    seq: Token
    events: list[Token]
    on: Token
    per: list[Token]


@dataclass(frozen=True)
class Clauses:
    """What :meth:`_Reader._cut` found: our clauses, and the offset of HAVING (0: none)."""

    window: WindowWords
    pattern: PatternWords | None
    error: Token | None
    having: int


class ClauseReader:
    """Reads one clause word by word; ``hint`` is said wherever something else stands."""

    def __init__(self, tokens: Sequence[Token], cursor: int, hint: str) -> None:
        self.tokens, self.cursor, self.hint = tokens, cursor, hint

    def follows(self, word: str) -> bool:
        """Whether the next token is this word, not quoted."""
        token = self.tokens[self.cursor] if self.cursor < len(self.tokens) else None
        return token is not None and token.token_type not in QUOTED and token.text.upper() == word

    def word(self, *words: str) -> Token:
        """Take one of some words, or refuse what stands there."""
        return self._take(any(self.follows(word) for word in words), f"expected {' or '.join(words)} here")

    def token(self, kind: TokenType, what: str) -> Token:
        """Take a token of a kind, or refuse what stands there."""
        return self._take(self._kind() == kind, f"expected {what} here")

    def name(self, message: str) -> Token:
        """A column or option: any word but a literal or a sign."""
        kind, word = self._kind(), self.tokens[min(self.cursor, len(self.tokens) - 1)].text
        named = kind == TokenType.IDENTIFIER or (kind != TokenType.STRING and word.isidentifier())
        return self._take(kind is not None and named, message)

    def names(self, message: str) -> list[Token]:
        """Columns between commas."""
        found = [self.name(message)]
        while self.follows(","):
            self.word(",")
            found.append(self.name(message))
        return found

    def event(self) -> Token:
        """An event type: a word, a quoted text or a whole number."""
        if self._kind() in (TokenType.STRING, TokenType.NUMBER):
            return self._take(True, "")
        return self.name("SEQ names event types")

    def _kind(self) -> TokenType | None:
        return self.tokens[self.cursor].token_type if self.cursor < len(self.tokens) else None

    def _take(self, fits: bool, message: str) -> Token:
        ended = self.cursor >= len(self.tokens)
        token = self.tokens[-1 if ended else self.cursor]
        if not fits:
            got = "the end" if ended else shown_text(token.text)
            raise Refused("HDL-107", f"{message}, not {got}", self.hint, token.start)
        self.cursor += 1
        return token
