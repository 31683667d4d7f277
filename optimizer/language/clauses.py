"""The clauses that are ours, not SQL's: windows of time and of rows, patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokens import Token, TokenType

from optimizer.language.refusals import QUOTED, TIME_WINDOW, Refused, shown_text
from optimizer.language.words import OPERANDS, SOURCES
from optimizer.workload.nested import Path, Step
from optimizer.workload.window_kinds import ROWS, SESSION, TIME, WindowKind

ROW_WINDOW = "WINDOW ROWS 10000 SLIDE 500 ON <time column>"

CUMULATIVE_WINDOW = "WINDOW CUMULATE '1 day' STEP '1 hour' ON <time column>"

SEVERAL_WINDOWS = "WINDOW h AS (RANGE '1 hour'), d AS (RANGE '1 day') SLIDE '15 minutes' ON <time column>"

LIFETIME_WINDOW = "WINDOW RANGE UNBOUNDED SLIDE '1 day' ON <time column>"

SESSION_WINDOW = "WINDOW SESSION GAP '30 minutes' UP TO '1 day' ON <time column>"

TOGETHER = "\x00"
"""Between the names of windows after one OVER: no name that is written has this character."""

_WRITTEN = {"ROWS": ROW_WINDOW, "CUMULATE": CUMULATIVE_WINDOW, "SESSION": SESSION_WINDOW}

PATTERN = "PATTERN SEQ(A, B, C) ON <type column> PARTITION BY <key column>"


@dataclass(frozen=True)
class WindowWords:
    """A window of the WINDOW clause: its words were checked, no value was read yet. ``first_word``: RANGE, ROWS,
    CUMULATE or SESSION, whose range is UP TO; ``range``: of RANGE UNBOUNDED this word; ``slide``: that of STEP and GAP
    too, and of a window without either its range; ``zone``: that of IN; ``name``: by which aggregates name it;
    ``starting``: that of STARTING AT."""

    first_word: str
    range: Token
    at_most: bool
    slide: Token
    ago: Token | None
    per: list[Token]
    zone: Token | None
    on: Token
    name: Token | None = None
    starting: Token | None = None

    @property
    def kind(self) -> WindowKind:
        return {"ROWS": ROWS, "SESSION": SESSION}.get(self.first_word, TIME)

    @property
    def rows(self) -> bool:
        return self.kind.counts_rows

    @property
    def is_unbounded(self) -> bool:
        """Return whether its windows start with the first event."""
        return self.range.token_type not in (TokenType.STRING, TokenType.NUMBER)

    @property
    def second_word(self) -> str:
        return "STEP" if self.first_word == "CUMULATE" and self.name is None else "SLIDE"


@dataclass(frozen=True)
class PatternWords:
    """The PATTERN clause: its words were checked, no value was read yet. ``seq``: where it begins; ``absent``: after
    which of the events (-1: none) the type of each NOT comes.
    """

    seq: Token
    events: list[Token]
    absent: list[tuple[int, Token]]
    on: Token
    per: list[Token]


@dataclass(frozen=True)
class Clauses:
    """A statement in clauses. ``having``: the offset of HAVING (0: none); ``rest``: the tokens of all that is SQL's."""

    windows: tuple[WindowWords, ...]
    pattern: PatternWords | None
    error: Token | None
    having: int
    rest: list[Token]


@dataclass(frozen=True)
class _Places:
    """Positions of clauses: FROM, the indices of our clauses, the offset of HAVING."""

    source: Token
    windows: list[int]
    patterns: list[int]
    options: int | None
    having: int


def cut_clauses(tokens: list[Token]) -> Clauses:
    """Our own clauses, and the tokens of all the others."""
    places = _places(tokens)
    if not places.windows:
        message = "the query has no WINDOW clause"
        raise Refused("HDL-107", message, f"after the stream, write {TIME_WINDOW}", places.source.start)
    for clause, indices in (("WINDOW", places.windows), ("PATTERN", places.patterns)):
        if len(indices) > 1:
            raise Refused("HDL-107", f"a query has one {clause} clause", "", tokens[indices[1]].start)
    error = _options(tokens, places.options) if places.options is not None else None
    ended = tokens[: places.options]
    windows, behind = _windows(ended, places.windows[0])
    ours, pattern = [(places.windows[0], behind)], None
    if places.patterns:
        pattern, behind = _pattern_words(ended, places.patterns[0])
        ours.append((places.patterns[0], behind))
    return Clauses(windows, pattern, error, places.having, _with_names_together(_without(ended, sorted(ours))))


def _places(tokens: Sequence[Token]) -> _Places:
    depth, source = 0, None
    windows, patterns = list[int](), list[int]()
    options: int | None = None
    having = 0
    for index, token in enumerate(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        if depth or (source is None and token.token_type != TokenType.FROM):
            continue
        if token.token_type == TokenType.FROM:
            source = token
        elif token.token_type == TokenType.WINDOW:
            windows.append(index)
        elif token.token_type == TokenType.HAVING:
            having = token.start
        elif token.text.upper() == "PATTERN" and after is not None and after.text.upper() == "SEQ":
            patterns.append(index)
        elif token.token_type == TokenType.WITH and after is not None and after.text.lower() in ("(", "error"):
            options = index if options is None else options
    if source is None:
        raise Refused("HDL-101", "the query has no FROM", SOURCES, tokens[-1].start)
    return _Places(source, windows, patterns, options, having)


def _without(tokens: list[Token], ours: Sequence[tuple[int, int]]) -> list[Token]:
    """The tokens without our clauses, each from where it begins to behind its end, in order."""
    remaining, at = list[Token](), 0
    for begin, behind in ours:
        after = tokens[behind] if behind < len(tokens) else None
        follows = any(behind == other for other, _ in ours)
        if after is not None and not follows and after.token_type in (*OPERANDS, TokenType.L_PAREN):
            message = f"{shown_text(after.text)} cannot follow the {tokens[begin].text.upper()} clause"
            hint = "WHERE, GROUP BY, HAVING, WITH or the end follow it"
            raise Refused("HDL-101", message, hint, after.start)
        remaining += tokens[at:begin]
        at = behind
    return remaining + tokens[at:]


def _windows(tokens: Sequence[Token], begin: int) -> tuple[tuple[WindowWords, ...], int]:
    """The windows of the WINDOW clause that begins at a token, and the index of the token behind it."""
    if [token.text.upper() for token in tokens[begin + 2 : begin + 4]] != ["AS", "("]:
        window, behind = _window_words(tokens, begin)
        return (window,), behind
    words = ClauseReader(tokens, begin + 1, f"write {SEVERAL_WINDOWS}")
    named = [_named_window(words)]
    while words.follows(","):
        words.word(",")
        named.append(_named_window(words))
    slide, bound, zone = None, None, None
    if words.follows("SLIDE"):
        words.word("SLIDE")
        bound = _bound(words, rows=False) if words.follows("AT") else None
        slide = words.token(TokenType.STRING, "a quoted duration")
    starting = _starting(words)
    if words.follows("IN"):
        words.word("IN")
        zone = words.token(TokenType.STRING, "a quoted time zone")
    words.word("ON")
    on = words.path("ON names the time column")
    windows = (
        WindowWords(first_word, range, bound is not None, slide or range, ago, [], zone, on, name, starting)
        for name, first_word, range, ago in named
    )
    return tuple(windows), words.cursor


def _named_window(words: ClauseReader) -> tuple[Token, str, Token, Token | None]:
    """``name AS (RANGE '…' [ENDING '…' AGO])`` or ``name AS (CUMULATE '…')``: name, first word, length, AGO."""
    name, ago = words.name("expected the name of a window here"), None
    words.word("AS")
    words.word("(")
    first_word = words.word("RANGE", "CUMULATE").text.upper()
    range = _range(words, first_word, TokenType.STRING, "a quoted duration")
    if words.follows("ENDING"):
        words.word("ENDING")
        ago = words.token(TokenType.STRING, "a quoted duration")
        words.word("AGO")
    words.word(")")
    return name, first_word, range, ago


def _with_names_together(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with ``OVER (h, d)`` as one name behind OVER."""
    together, index = list[Token](), 0
    while index < len(tokens):
        token = tokens[index]
        together.append(token)
        index += 1
        if token.token_type != TokenType.OVER or index == len(tokens) or tokens[index].token_type != TokenType.L_PAREN:
            continue
        behind = next((at for at in range(index, len(tokens)) if tokens[at].token_type == TokenType.R_PAREN), None)
        names = tokens[index + 1 : behind]
        commas = all((each.token_type == TokenType.COMMA) == bool(at % 2) for at, each in enumerate(names))
        if behind is None or len(names) % 2 == 0 or not commas:
            continue
        first, last = tokens[index], tokens[behind]
        text = TOGETHER.join(["", *(each.text for each in names[::2])])
        together.append(Token(TokenType.VAR, text, first.line, first.col, first.start, last.end))
        index = behind + 1
    return together


def _window_words(tokens: Sequence[Token], begin: int) -> tuple[WindowWords, int]:
    """The WINDOW clause that begins at a token, and the index of the token behind it."""
    words = ClauseReader(tokens, begin + 1, f"write {TIME_WINDOW}")
    first_word = words.word("RANGE", "ROWS", "CUMULATE", "SESSION").text.upper()
    rows = first_word == "ROWS"
    if first_word in _WRITTEN:
        words = ClauseReader(tokens, words.cursor, f"write {_WRITTEN[first_word]}")
    if first_word == "SESSION":
        return _session_words(words)
    kind, what = (TokenType.NUMBER, "a number of rows") if rows else (TokenType.STRING, "a quoted duration")
    slide = range = _range(words, first_word, kind, what)
    bound, ago, per, zone = None, None, list[Token](), None
    if first_word == "CUMULATE" or words.follows("SLIDE"):
        words.word("STEP" if first_word == "CUMULATE" else "SLIDE")
        bound = _bound(words, rows) if first_word != "CUMULATE" and words.follows("AT") else None
        slide = words.token(kind, what)
    if words.follows("ENDING"):
        ending = words.word("ENDING")
        if rows:
            hint = "ENDING … AGO shifts windows of time: RANGE '…' SLIDE '…' ENDING '7 days' AGO"
            raise Refused("HDL-107", "ENDING has no meaning for a number of rows", hint, ending.start)
        ago = words.token(TokenType.STRING, what)
        words.word("AGO")
    if rows and words.follows("PARTITION BY"):
        words.word("PARTITION BY")
        per += words.names("PARTITION BY names columns")
    starting = None if rows else _starting(words)
    if not rows and words.follows("IN"):
        words.word("IN")
        zone = words.token(TokenType.STRING, "a quoted time zone")
    words.word("ON")
    on = words.path("ON names the time column")
    window = WindowWords(first_word, range, bound is not None, slide, ago, per, zone, on, None, starting)
    return window, words.cursor


def _range(words: ClauseReader, first_word: str, kind: TokenType, what: str) -> Token:
    """The length of a window, or UNBOUNDED."""
    if not words.follows("UNBOUNDED"):
        return words.token(kind, what)
    unbounded = words.word("UNBOUNDED")
    if first_word != "RANGE":
        message = f"{first_word} UNBOUNDED has no meaning"
        raise Refused("HDL-107", message, f"all events since the first: {LIFETIME_WINDOW}", unbounded.start)
    if words.follows("PRECEDING"):
        message = "windows since the first event are RANGE UNBOUNDED"
        raise Refused("HDL-107", message, "leave PRECEDING out", words.word("PRECEDING").start)
    return unbounded


def _session_words(words: ClauseReader) -> tuple[WindowWords, int]:
    """The rest of ``SESSION GAP '…' UP TO '…' [PARTITION BY columns] ON t``."""
    words.word("GAP")
    gap = words.token(TokenType.STRING, "a quoted duration")
    words.word("UP")
    words.word("TO")
    longest, per = words.token(TokenType.STRING, "a quoted duration"), list[Token]()
    if words.follows("PARTITION BY"):
        words.word("PARTITION BY")
        per += words.names("PARTITION BY names columns")
    words.word("ON")
    on = words.path("ON names the time column")
    return WindowWords("SESSION", longest, False, gap, None, per, None, on), words.cursor


def _starting(words: ClauseReader) -> Token | None:
    """STARTING AT, which shifts all windows."""
    if not words.follows("STARTING"):
        return None
    words.word("STARTING")
    words.word("AT")
    return words.token(TokenType.STRING, "a quoted time of day or length")


def _bound(words: ClauseReader, rows: bool) -> Token:
    """AT MOST, which makes a refresh bound of a slide."""
    bound = words.word("AT")
    words.word("MOST")
    if rows:
        hint = "write SLIDE with a number of rows, or RANGE '…' SLIDE AT MOST '…'"
        raise Refused("HDL-107", "a refresh bound is a span of time, not a number of rows", hint, bound.start)
    return bound


def _pattern_words(tokens: Sequence[Token], begin: int) -> tuple[PatternWords, int]:
    """The PATTERN clause that begins at a token, and the index of the token behind it."""
    words = ClauseReader(tokens, begin + 1, f"write {PATTERN}")
    seq = words.word("SEQ")
    words.word("(")
    events, absent = list[Token](), list[tuple[int, Token]]()
    while True:
        event = words.event()
        # NOT by itself is an event type
        if event.text.upper() == "NOT" and event.token_type not in QUOTED and not words.follows(",", ")"):
            absent.append((len(events) - 1, words.event()))
        else:
            events.append(event)
        if not words.follows(","):
            break
        words.word(",")
    words.word(")")
    words.word("ON")
    on, per = words.name("ON names the column of the event types"), list[Token]()
    if words.follows("PARTITION BY"):
        words.word("PARTITION BY")
        per += words.names("PARTITION BY names columns")
    return PatternWords(seq, events, absent, on, per), words.cursor


def _options(tokens: Sequence[Token], begin: int) -> Token:
    """The number of ``WITH (error = …)``, which ends the query."""
    words = ClauseReader(tokens, begin + 1, "write WITH (error = 0.01)")
    words.word("(")
    option = words.name("WITH ( ) holds the permitted error")
    if option.text.lower() != "error":
        message = f"there is no option {shown_text(option.text)}"
        raise Refused("HDL-107", message, "error is the only one: WITH (error = 0.01)", option.start)
    words.word("=")
    error = words.token(TokenType.NUMBER, "a number")
    words.word(")")
    if words.cursor < len(tokens):
        token = tokens[words.cursor]
        raise Refused("HDL-107", "nothing follows WITH (…)", "move it to the end of the query", token.start)
    return error


class ClauseReader:
    """Read one clause word by word; ``hint`` is added to every refusal."""

    def __init__(self, tokens: Sequence[Token], cursor: int, hint: str) -> None:
        self.tokens, self.cursor, self.hint = tokens, cursor, hint

    def follows(self, *words: str) -> bool:
        """Return whether the next token is one of these words, not quoted."""
        token = self.tokens[self.cursor] if self.cursor < len(self.tokens) else None
        return token is not None and token.token_type not in QUOTED and token.text.upper() in words

    def word(self, *words: str) -> Token:
        """Take one of the given words, or refuse the next token."""
        return self._take(self.follows(*words), f"expected {' or '.join(words)} here")

    def token(self, kind: TokenType, what: str) -> Token:
        """Take a token of a kind, or refuse the next token."""
        return self._take(self._kind() == kind, f"expected {what} here")

    def name(self, message: str) -> Token:
        """A column or option: any word but a literal or a sign."""
        kind, word = self._kind(), self.tokens[min(self.cursor, len(self.tokens) - 1)].text
        if kind == TokenType.STRING:
            token = self.tokens[self.cursor]
            hint = "write it without quotes, or in backticks"
            raise Refused("HDL-107", f"{message}, not the text {shown_text(token.text)}", hint, token.start)
        is_name = kind == TokenType.IDENTIFIER or word.isidentifier()
        return self._take(kind is not None and is_name, message)

    def path(self, message: str) -> Token:
        """A column, or a field of a nested one, as one token."""
        first = last = self.name(message)
        steps: list[Step] = []
        while self.follows("."):
            self.word(".")
            last = self.name(message)
            steps.append(Step(True, last.text))
        if not steps:
            return first
        text = Path(first.text, tuple(steps)).name(())
        return Token(first.token_type, text, first.line, first.col, first.start, last.end)

    def names(self, message: str) -> list[Token]:
        """Columns between commas."""
        names = [self.name(message)]
        while self.follows(","):
            self.word(",")
            names.append(self.name(message))
        return names

    def event(self) -> Token:
        """Take an event type: a word, a quoted text or an integer."""
        if self._kind() in (TokenType.STRING, TokenType.NUMBER):
            return self._take(True, "")
        return self.name("SEQ names event types")

    def _kind(self) -> TokenType | None:
        return self.tokens[self.cursor].token_type if self.cursor < len(self.tokens) else None

    def _take(self, fits: bool, message: str) -> Token:
        ended = self.cursor >= len(self.tokens)
        token = self.tokens[-1 if ended else self.cursor]
        if not fits:
            token_text = "the end" if ended else shown_text(token.text)
            raise Refused("HDL-107", f"{message}, not {token_text}", self.hint, token.start)
        self.cursor += 1
        return token
