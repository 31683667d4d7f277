"""Query text to typed values, for text that nobody trusts.

Strategy: limit first, cut second, parse third, allow-list last. A linear scanner of our own splits a file
into statements (so that a broken one costs only itself) and blanks comments. Bytes, tokens, nesting and
connectives are counted on the token list of the *stock* sqlglot tokenizer before any recursive code sees it.
Our own clauses are cut out of that list, the rest is parsed by stock sqlglot (dialect ``spark``, never a
subclass; it sees our functions under names that it does not know, so that each arrives as it was written),
and the tree is mapped node by node to :mod:`optimizer.query` values. A node, an argument of a node
or a function that is not named here is refused, so new syntax of a later sqlglot is refused too. The text
itself goes no further.
"""

from __future__ import annotations

import bisect
import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from optimizer.aggregates import AGGREGATES, LEAST_ERROR, MOST_ERROR, SEQUENCES, check_error
from optimizer.errors import Diagnostic, HeddleError
from optimizer.expression import call_type, moment, negated, number
from optimizer.predicates import normal
from optimizer.query import (
    ACQ,
    BOOLEAN,
    DATE,
    DOUBLE,
    SECOND,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Output,
    Pattern,
    Stream,
    Type,
    Window,
    Workload,
    columns_of,
)

DAY = 86_400 * SECOND

FILE_BYTES = 64 << 20
"""Largest workload file that is read."""


@dataclass(frozen=True)
class Limits:
    """What one query may ask for. Durations in microseconds; ``ratio`` is the largest range/slide;
    ``literal`` the longest string or name in characters; ``depth`` counts parentheses and prefix operators
    around one place; ``connectives`` ANDs, ORs and commas of a query; ``rows`` the longest range of a window of rows;
    ``outputs`` what a query computes, in SELECT and HAVING; ``pattern`` the longest event sequence."""

    bytes: int = 8192
    tokens: int = 2048
    depth: int = 24
    connectives: int = 256
    literal: int = 256
    slide: int = SECOND
    range: int = 366 * DAY
    rows: int = 10_000_000
    ratio: int = 1440
    group_columns: int = 4
    outputs: int = 32
    pattern: int = 64


@dataclass(frozen=True)
class ParseResult:
    """The queries that can be answered, in file order, and everything found wrong or worth knowing.

    ``positions``: line and column (1-based) where each of the queries begins.
    """

    queries: tuple[ACQ, ...]
    diagnostics: tuple[Diagnostic, ...]
    positions: tuple[tuple[int, int], ...] = ()

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self.diagnostics if found.severity == "error")


# -------------------------------------------------------------------------------------------- durations
_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
    "day": DAY,
    "week": 7 * DAY,
}
_LONGEST_DURATION = 256
_TERM = re.compile(r"([+-]?\d{1,18}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII)


def parse_duration(text: str) -> int:
    """Microseconds of a duration like ``'90 seconds'`` or ``'1 day 6 hours'``; may be zero or negative.

    Raises HDL-204 if it is malformed, uses months or years, or is not a whole number of microseconds.
    """
    example = "write it like '5 minutes', '90 seconds' or '1 day 6 hours'"
    if len(text) > _LONGEST_DURATION:
        raise HeddleError("HDL-204", f"a duration of {len(text)} characters", example)
    total, rest = Fraction(0), text.strip().lower()
    if not rest:
        raise HeddleError("HDL-204", "the duration is empty", example)
    while rest:
        term = _TERM.match(rest)
        if term is None:
            raise HeddleError("HDL-204", f"{text!r} is not a duration", example)
        unit = term[2].removesuffix("s")
        if unit in ("month", "year", "quarter"):
            raise HeddleError(
                "HDL-204", f"{text!r}: {unit}s have no fixed length", "write the days: '30 days', '365 days'"
            )
        if unit not in _UNITS:
            close = difflib.get_close_matches(unit, _UNITS, 1)
            hint = f"did you mean {close[0]}s?" if close else "units: " + ", ".join(name + "s" for name in _UNITS)
            raise HeddleError("HDL-204", f"{text!r}: there is no unit {term[2]}", hint)
        total += Fraction(term[1]) * _UNITS[unit]
        rest = rest[term.end() :].lstrip()
    if total.denominator != 1:
        raise HeddleError("HDL-204", f"{text!r} is not a whole number of microseconds")
    return int(total)


def duration_text(microseconds: int) -> str:
    """A duration in words: ``90 minutes``."""
    for unit, size in reversed(_UNITS.items()):
        if microseconds % size == 0 and abs(microseconds) >= size:
            count = microseconds // size
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return "0 seconds"


def _instant(text: str) -> int | None:
    """An ISO 8601 instant or date as microseconds UTC; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _rows_text(count: int) -> str:
    return f"{count} row" + ("" if count == 1 else "s")


# ------------------------------------------------------------------------------------------- statements
@dataclass
class _Statement:
    """One statement of a file: ``text`` has comments blanked and ``start`` is its offset in the file."""

    start: int
    text: str
    end: int
    comments: list[tuple[int, str]] = field(default_factory=list)
    broken: list[tuple[int, str, str, str]] = field(default_factory=list)


_PIECE = re.compile(
    r"""(?P<line>--[^\n]*) | (?P<block>/\*) | (?P<end>;)
    | (?P<string>'(?:[^'\\\n]|\\[^\n])*' | "(?:[^"\\\n]|\\[^\n])*" | `[^`\n]*`)
    | (?P<open>['"`][^\n]*)""",
    re.VERBOSE,
)
_SETTING = re.compile(r"--\s*(name|owner|until)\s*:(.*)", re.IGNORECASE)
_RULES = {
    "name": "1 to 128 letters, digits, _ . - (a letter or _ first)",
    "owner": "1 to 128 printable characters",
    "until": "an instant in ISO 8601, UTC without a zone: 2026-12-31 or 2026-12-31T18:00:00",
}
_NAMED_LINE = re.compile(r"^[ \t]*--\s*name\s*:", re.IGNORECASE | re.MULTILINE)


def _statements(text: str) -> Iterator[_Statement]:
    """Split a file in one linear pass.

    Statements end at ``;`` or where a ``-- name:`` line begins the next one. Strings end on their line, so a
    forgotten quote or an unclosed comment is found where it is and the scan recovers at the next statement.
    """
    blanked: list[str] = []
    comments: list[tuple[int, str]] = []
    broken: list[tuple[int, str, str, str]] = []
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

    def flush() -> Iterator[_Statement]:
        nonlocal begin, blanked, comments, broken
        if begin is not None or broken:
            start = begin if begin is not None else broken[0][0]
            yield _Statement(start, "".join(blanked), position, comments, broken)
        begin, blanked, comments, broken = None, [], [], []

    while True:
        piece = _PIECE.search(text, position)
        keep(piece.start() if piece else len(text))
        if piece is None:
            break
        if piece["line"]:
            starts_line = not text[text.rfind("\n", 0, piece.start()) + 1 : piece.start()].strip()
            setting = _SETTING.fullmatch(piece["line"])
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


# --------------------------------------------------------------------------------------------- refusals
class _Refused(Exception):
    """Ends the reading of one clause; ``at`` is an offset in the statement's text."""

    def __init__(self, code: str, message: str, hint: str = "", at: int = 0) -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.at = code, message, hint, at

    @classmethod
    def of(cls, error: HeddleError, at: int) -> _Refused:
        found = error.diagnostic
        return cls(found.code, found.message, found.hint, at)


_SOURCES = "a query reads one stream: FROM <stream>"
_CLAUSES: dict[str, tuple[str, str, str]] = {
    "joins": ("JOIN", "joins are not allowed", _SOURCES),
    "laterals": ("LATERAL", "LATERAL is not allowed", _SOURCES),
    "order": ("ORDER BY", "ORDER BY is not allowed", "answers are a table: order them when you read it"),
    "sort": ("SORT BY", "SORT BY is not allowed", "answers are a table: order them when you read it"),
    "cluster": ("CLUSTER BY", "CLUSTER BY is not allowed", "the plan decides how work is split"),
    "distribute": ("DISTRIBUTE BY", "DISTRIBUTE BY is not allowed", "the plan decides how work is split"),
    "limit": ("LIMIT", "LIMIT is not allowed", "answers are a table: limit them when you read it"),
    "offset": ("OFFSET", "OFFSET is not allowed", "answers are a table: limit them when you read it"),
    "distinct": ("DISTINCT", "SELECT DISTINCT is not allowed", "use GROUP BY"),
    "qualify": ("QUALIFY", "QUALIFY is not allowed", "filter events in WHERE"),
    "windows": (
        "WINDOW",
        "named windows are not allowed",
        "write WINDOW RANGE '1 hour' SLIDE '5 minutes' ON <time>",
    ),
}
_NAMES_OF_SYNTAX: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Star: ("*", "name the columns; only count(*) takes a star"),
    exp.NullSafeEQ: ("<=>", "write `a = b OR (a IS NULL AND b IS NULL)`"),
    exp.Mod: ("%", "arithmetic is + - * /"),
    exp.IntDiv: ("integer division", "arithmetic is + - * /"),
    exp.RegexpLike: ("a regular expression", "use LIKE with % and _"),
    exp.ILike: ("ILIKE", "write lower(x) LIKE 'text%'"),
    exp.Escape: ("ESCAPE", "a backslash escapes % and _"),
    exp.Concat: ("joining strings", "a quote inside a string is written \\'"),
    exp.Distinct: ("DISTINCT", "only count takes it: count(DISTINCT x)"),
    exp.Filter: ("FILTER", "filter events in WHERE"),
    exp.WithinGroup: ("WITHIN GROUP", "write percentile(x, 0.5) or percentile_disc(x, 0.5)"),
    exp.IgnoreNulls: ("IGNORE NULLS", "every aggregate skips nulls"),
    exp.RespectNulls: ("RESPECT NULLS", "every aggregate skips nulls"),
    exp.Order: ("ORDER BY in a function", "first and last go by time; min_by(x, y) and max_by(x, y) by any order"),
    exp.Window: ("OVER", "windows are declared once: WINDOW RANGE … SLIDE … ON <time>"),
    exp.Placeholder: ("a placeholder", "write the value"),
    exp.Tuple: ("a list of values", "only IN takes a list"),
}
_FORBIDDEN: dict[TokenType, tuple[str, str]] = {
    TokenType.CASE: ("CASE is not allowed", "write a query for each case, or filter in WHERE"),
    TokenType.INTERVAL: ("INTERVAL is not allowed", "durations are quoted: RANGE '1 hour'"),
    TokenType.L_BRACE: ("substitutions are not allowed", "write the value"),
    TokenType.BLOCK_START: ("templates are not allowed", "write the value"),
    TokenType.PARAMETER: ("substitutions are not allowed", "write the value"),
    TokenType.PLACEHOLDER: ("placeholders are not allowed", "write the value"),
    TokenType.L_BRACKET: ("brackets are not allowed", "columns are plain values"),
    TokenType.ARROW: ("-> is not allowed", ""),
    TokenType.COLON: (": is not allowed", ""),
    TokenType.PIPE_GT: ("|> is not allowed", "write one SELECT"),
    TokenType.SEMICOLON: ("a statement ends here", "one statement at a time"),
}
_MEANT = {"mean": "avg", "average": "avg", "len": "count", "std": "stddev", "var": "variance"}
_MEANT |= {"ifnull": "coalesce", "nvl": "coalesce", "ucase": "upper", "lcase": "lower"}
_MEANT |= {"percentile_cont": "percentile", "quantile": "percentile", "quantile_cont": "percentile"}
_MEANT |= {"quantile_disc": "percentile_disc", "approx_quantile": "approx_percentile"}
_MEANT |= {"approx_distinct": "approx_count_distinct", "arg_min": "min_by", "argmin": "min_by"}
_MEANT |= {"arg_max": "max_by", "argmax": "max_by", "first_value": "first", "last_value": "last"}
_MEANT |= {"any_value": "first", "logical_and": "bool_and", "logical_or": "bool_or"}
_CALLABLE = ("abs", "lower", "upper", "coalesce")
_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/",
}  # fmt: skip
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NOT_IN_HAVING: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Or: ("OR", "conditions are joined by AND; write a query for each alternative"),
    exp.Not: ("NOT", "write the opposite comparison"),
    exp.Between: ("BETWEEN", "write x >= 1 AND x <= 2"),
    exp.In: ("IN", "write a query for each value, or two thresholds"),
    exp.Is: ("IS", "an aggregate that is null satisfies no comparison"),
    exp.Like: ("LIKE", "filter texts in WHERE"),
}


@dataclass(frozen=True)
class _Form:
    """How a function is written: the first ``least`` of its ``roles`` have to stand in its parentheses.

    ``function`` is the aggregate that answers it. ``error`` and ``k`` are those of a call that names none.
    """

    function: str
    roles: tuple[str, ...]
    least: int
    error: Decimal | None = None
    k: Decimal | None = None

    @property
    def counts(self) -> str:
        most = len(self.roles)
        return f"{self.least} to {most} arguments" if self.least < most else f"{most} argument" + "s" * (most > 1)


_ROLES = {
    "value": ("x",),
    "value+time": ("x",),
    "value+by": ("x", "y"),
    "value+fraction": ("x", "fraction"),
    "value+k": ("x", "k"),
}
"""By the signature of an aggregate: ``x`` and ``y`` are expressions, all others numbers."""

_QUANTILE = _Form("percentile_disc", ("x", "fraction", "accuracy"), 2, LEAST_ERROR)
_FORMS = {
    **{name: _Form(name, roles := _ROLES[found.signature], len(roles)) for name, found in AGGREGATES.items()},
    "approx_count_distinct": _Form("count_distinct", ("x", "error"), 1, Decimal("0.05")),
    "approx_percentile": _QUANTILE,
    "percentile_approx": _QUANTILE,
    "approx_top_k": _Form("top_k", ("x", "k"), 1, Decimal("0.01"), Decimal(5)),
}
"""Every aggregate as it is written. Approximations have the names of Spark's and its defaults, but for the accuracy of
a percentile (there 10,000), which is the best that is allowed, and the error of ``approx_top_k``, which Spark bounds by
the number of its counters."""

_PARAMETERS = {"fraction": "HDL-214", "k": "HDL-215"}
_RANGES = {
    "HDL-214": "0.5 is the median, 0.99 the value that one in a hundred exceeds",
    "HDL-215": "top_k(x, 10) has the ten most frequent values",
    "HDL-216": "0.01 permits one per cent, an accuracy of 100 the same",
}
_OPAQUE = {*_FORMS, *_CALLABLE, *_MEANT}
_SUFFIXES = {exp.DType.BIGINT: "L", exp.DType.DOUBLE: "D", exp.DType.DECIMAL: "BD"}
_MOMENTS = {
    exp.DType.DATE: DATE,
    exp.DType.TIMESTAMP: TIMESTAMP,
    exp.DType.TIMESTAMPTZ: TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: TIMESTAMP,
}
_OPERANDS = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN}
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)
_NULL = Type("null")
"""Type of NULL until what stands beside it is known; never leaves this module."""

_QUERY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_MOST_COMPARED = 256
"""Known names that a wrong one is compared with, to say what may have been meant."""

_RESERVED = ("window_start", "window_end")
_MOST_PROBLEMS = 32
"""Findings about one query that are reported, the first ones."""

_SHOWN = 60
"""Characters of somebody's text that a message repeats."""


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters that nobody sees, or that make a text look like another: controls, zero width, direction of writing, tags,
halves of characters. The joiners U+200C and U+200D are not among them: some scripts need them in literals."""


def _check_characters(text: str, start: int) -> None:
    found = _UNSEEN.search(text)
    if found is not None:
        message = f"the character U+{ord(found[0]):04X} cannot be seen and is not allowed"
        raise _Refused("HDL-119", message, "remove it", start + found.start())


def _quoted(name: str) -> str:
    """A name as it has to be written."""
    return name if name.isidentifier() else f"`{name}`"


def _resolve(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant, as Spark resolves: case does not matter unless two names differ by it."""
    known = list(known)
    if name in known:
        return name
    same = [candidate for candidate in known if candidate.lower() == name.lower()]
    return same[0] if len(same) == 1 else None


def _did_you_mean(name: str, known: Iterable[str], what: str) -> str:
    known = list(itertools.islice(known, _MOST_COMPARED))
    known.sort()
    lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), lower, 1)
    if close:
        return f"did you mean {lower[close[0]]}?"
    return f"{what}: " + ", ".join(known[:12]) + (", …" if len(known) > 12 else "") if known else ""


def _opaque(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with the functions of the language under names that sqlglot does not know.

    It has ideas of its own of many: it drops a third argument of percentile, reads any(x) as a quantifier and
    forgets where min_by stood. Under an unknown name each arrives as a plain call with all that was written.
    """
    found = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        called = after is not None and after.token_type == TokenType.L_PAREN and token.token_type not in _QUOTED
        quantifier = before is not None and before.token_type in (TokenType.LIKE, TokenType.ILIKE)
        # any other function too: it has shortcuts of its own for a thousand, some double their work at every level
        function = token.token_type == TokenType.VAR and token.text.upper() != "GROUP"  # WITHIN GROUP (ORDER BY x)
        if called and not quantifier and (function or token.text.lower() in _OPAQUE):
            token = Token(TokenType.VAR, "=" + token.text, token.line, token.col, token.start, token.end)
        found.append(token)
    return found


def _bare(node: exp.Expr) -> exp.Expr:
    """The node inside some parentheses."""
    while type(node) is exp.Paren:
        node = node.this
    return node


def _is_constant(node: exp.Expr) -> bool:
    while type(node) in (exp.Paren, exp.Neg):
        node = node.this
    return type(node) in (exp.Literal, exp.Boolean, exp.Null, exp.Cast, exp.TryCast)


def _plain(value: Decimal) -> Decimal:
    """The same number without exponent and without zeros at its end, so that equal ones are written alike."""
    text = f"{value:f}"
    return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)


def _check_accuracy(value: Decimal) -> None:
    least, most = int(1 / MOST_ERROR), int(1 / LEAST_ERROR)
    if value not in range(least, most + 1):
        raise ValueError(f"an accuracy (1/error) is a whole number from {least} to {most}, not {value}")


def _added(output: Output, computed: list[Output]) -> Output:
    """The output of ``computed`` that is the same but for its name, else this one, added under a name of its own."""
    for other in computed:
        if replace(output, name=other.name) == other:
            return other
    names = {other.name.lower() for other in computed}
    while output.name.lower() in names:
        output = replace(output, name=output.name + "_")
    computed.append(output)
    return output


# ---------------------------------------------------------------------------------- our clauses, as words
_TIME_WINDOW = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON <time column>"
_ROW_WINDOW = "WINDOW ROWS 10000 SLIDE 500 ON <time column>"
_PATTERN = "PATTERN SEQ(A, B, C) ON <type column> PARTITION BY <key column>"
_COUNT = re.compile(r"0*[1-9]\d{0,17}", re.ASCII)


@dataclass(frozen=True)
class _WindowWords:
    """The WINDOW clause: its words were checked, no value was read yet."""

    rows: bool
    range: Token
    at_most: bool
    slide: Token
    ago: Token | None
    per: list[Token]
    on: Token


@dataclass(frozen=True)
class _PatternWords:
    """The PATTERN clause: its words were checked, no value was read yet. ``seq``: where it begins."""

    seq: Token
    events: list[Token]
    on: Token
    per: list[Token]


@dataclass(frozen=True)
class _Clauses:
    """What :meth:`_Reader._cut` found: our clauses, and the offset of HAVING (0: none)."""

    window: _WindowWords
    pattern: _PatternWords | None
    error: Token | None
    having: int


class _Words:
    """Reads one clause word by word; ``hint`` is said wherever something else stands."""

    def __init__(self, tokens: Sequence[Token], cursor: int, hint: str) -> None:
        self.tokens, self.cursor, self.hint = tokens, cursor, hint

    def follows(self, word: str) -> bool:
        token = self.tokens[self.cursor] if self.cursor < len(self.tokens) else None
        return token is not None and token.token_type not in _QUOTED and token.text.upper() == word

    def word(self, *words: str) -> Token:
        return self._take(any(self.follows(word) for word in words), f"expected {' or '.join(words)} here")

    def token(self, kind: TokenType, what: str) -> Token:
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
            got = "the end" if ended else _shown(token.text)
            raise _Refused("HDL-107", f"{message}, not {got}", self.hint, token.start)
        self.cursor += 1
        return token


# ------------------------------------------------------------------------------------------- one query
class _Reader:
    """Reads one statement; clauses are read one by one so that several mistakes are reported at once."""

    def __init__(self, text: str, streams: Mapping[str, Stream], limits: Limits) -> None:
        self.text, self.streams, self.limits = text, streams, limits
        self.problems: list[_Refused] = []
        self.warnings: list[_Refused] = []
        self.stream: Stream | None = None
        self.schema: dict[str, Type] = {}
        self.error: Decimal | None = None
        self.error_taken = False
        self.pattern: Pattern | None = None
        self.event: str | None = None
        """The event type whose attributes an aggregate over sequences reads, once it is known."""
        self.of_event = False
        self.refused: dict[str, _Refused] = {}
        """Why an output has no value, by its alias: a HAVING on it is wrong for the same reason."""

    def read(self, name: str, owner: str, source: str) -> ACQ | None:
        """The query, or None with :attr:`problems`."""
        try:
            tokens = self._tokens()
            clauses, rest = self._cut(tokens)
            tree = self._tree(rest)
            self._from(tree)
        except _Refused as refused:
            self.problems.append(refused)
            return None
        assert self.stream is not None
        group_by = self._group_by(tree)
        window, filter = None, None
        try:
            window = self._window(clauses.window, group_by)
        except _Refused as refused:
            self.problems.append(refused)
        try:
            self.pattern = self._pattern(clauses.pattern, window, group_by)
        except _Refused as refused:
            # what the aggregates mean depends on it
            self.problems.append(refused)
            return None
        self._permit(clauses.error)
        outputs, select = self._select(tree, group_by)
        groups = dict(zip(select, group_by, strict=True)) | {column: column for column in group_by}
        having = self._having(tree, outputs, groups, clauses.having)
        where = tree.args.get("where")
        if where is not None:
            try:
                filter, found = self._expression(where.this, 0)
                if found not in (BOOLEAN, _NULL):
                    self._refuse("HDL-203", f"WHERE needs a condition, not {found}", "compare it", where.this)
                filter = normal(_settled(filter, BOOLEAN), self.schema)
            except _Refused as refused:
                self.problems.append(refused)
        if self.problems or window is None:
            return None
        if clauses.error is not None and not self.error_taken:
            takers = ", ".join(name for name, aggregate in AGGREGATES.items() if aggregate.sketch)
            message = "WITH (error = …) changes nothing: every aggregate of the query is exact or names its own error"
            self.warnings.append(_Refused("HDL-218", message, f"{takers} take it", clauses.error.start))
        grouped = tuple(group_by.items())
        return ACQ(
            name, self.stream.name, window, outputs, filter, grouped, select, owner, source, having, self.pattern
        )

    def _refuse(self, code: str, message: str, hint: str, node: exp.Expr) -> NoReturn:
        raise _Refused(code, message, hint, self._at(node))

    def _at(self, node: exp.Expr) -> int:
        # TRUE and NULL have no place of their own: what they stand in has
        for near in (node, node.parent):
            starts = [found.meta["start"] for found in near.walk() if "start" in found.meta] if near else []
            if starts:
                return min(starts)
        return 0

    # ------------------------------------------------------------------------------------------ tokens
    def _tokens(self) -> list[Token]:
        limits = self.limits
        size = len(self.text.encode(errors="surrogatepass"))
        if size > limits.bytes:
            raise _Refused("HDL-301", f"the query has {size} bytes, the limit is {limits.bytes}", "split it")
        try:
            tokens = Spark().tokenize(self.text)
        except TokenError:
            raise _Refused("HDL-101", "this text cannot be split into words", "look for stray quotes") from None
        # our own comments are blanked: what is left are those of other languages
        if not tokens or any(token.comments for token in tokens):
            raise _Refused("HDL-103", "templates are not allowed", "write the value", max(self.text.find("{"), 0))
        if len(tokens) > limits.tokens:
            raise _Refused("HDL-302", f"the query has {len(tokens)} words, the limit is {limits.tokens}", "split it")
        first = tokens[0]
        if first.token_type == TokenType.WITH:
            raise _Refused("HDL-103", "common table expressions are not allowed", _SOURCES, first.start)
        if first.token_type != TokenType.SELECT:
            raise _Refused("HDL-102", f"a query starts with SELECT, not {_shown(first.text)}", "", first.start)
        self._check_nesting(tokens)
        for token, after in zip(tokens, [*tokens[1:], None], strict=True):
            self._check_token(token, after, first)
        return tokens

    def _check_token(self, token: Token, after: Token | None, first: Token) -> None:
        source = self.text[token.start : token.end + 1]
        if len(token.text) > self.limits.literal:
            limit = self.limits.literal
            raise _Refused(
                "HDL-305",
                f"a word or literal of {len(token.text)} characters; the limit is {limit}",
                "",
                token.start,
            )
        if token.token_type in _FORBIDDEN:
            raise _Refused("HDL-103", *_FORBIDDEN[token.token_type], token.start)
        # 5L arrives as 5 :: BIGINT, all three at the same place
        if token.token_type == TokenType.DCOLON and source == "::":
            raise _Refused("HDL-103", "casts are not allowed", "the stream's schema fixes the types", token.start)
        if token.token_type == TokenType.SELECT and token is not first:
            hint = "one SELECT over one stream: no subqueries, no UNION"
            raise _Refused("HDL-103", "subqueries and set operations are not allowed", hint, token.start)
        if token.token_type == TokenType.STRING and "${" in token.text:
            raise _Refused("HDL-103", "substitutions are not allowed in strings", "write the value", token.start)
        if token.token_type == TokenType.COMMA and after is not None and after.token_type == TokenType.FROM:
            raise _Refused("HDL-101", "nothing follows this comma", "remove it", token.start)
        if token.token_type == TokenType.IDENTIFIER and not token.text:
            raise _Refused("HDL-101", "this name is empty", "write a name between the quotes", token.start)
        called = after is not None and after.token_type == TokenType.L_PAREN
        if called and token.text.lower() in ("cast", "try_cast", "convert", "transform"):
            hint = "the stream's schema fixes the types"
            raise _Refused("HDL-103", f"{token.text} is not allowed", hint, token.start)
        # sqlglot reads what may be a type twice, and what is inside it again twice: 2^depth times in all
        if called and token.token_type in Spark.Parser.TYPE_TOKENS and token.text.lower() not in _OPAQUE:
            hint = _did_you_mean(token.text, [*_FORMS, *_CALLABLE], "functions")
            raise _Refused("HDL-104", f"there is no function {_shown(token.text)}", hint, token.start)

    def _check_nesting(self, tokens: Sequence[Token]) -> None:
        """Bound recursion before any recursive code runs: parentheses, and prefix operators not yet ended."""
        prefixes, total, connectives = [0], 0, 0
        opened: list[Token] = []
        previous: Token | None = None
        for token in tokens:
            kind = token.token_type
            if kind == TokenType.L_PAREN:
                prefixes.append(0)
                opened.append(token)
            elif kind == TokenType.R_PAREN:
                if not opened:
                    raise _Refused("HDL-101", "this parenthesis was never opened", "remove it", token.start)
                opened.pop()
                total -= prefixes.pop()
            elif kind in (TokenType.AND, TokenType.OR, TokenType.COMMA):
                connectives += 1
                total -= prefixes[-1]
                prefixes[-1] = 0
            elif kind == TokenType.NOT or (
                kind in (TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
                and (previous is None or previous.token_type not in _OPERANDS)
            ):
                prefixes[-1] += 1
                total += 1
            if len(opened) + total > self.limits.depth:
                message = f"expressions are nested more than {self.limits.depth} deep here"
                raise _Refused("HDL-303", message, "remove parentheses", token.start)
            if connectives > self.limits.connectives:
                message = f"the query has more than {self.limits.connectives} ANDs, ORs and commas"
                raise _Refused("HDL-304", message, "use IN or BETWEEN, or split the query", token.start)
            previous = token
        if opened:
            raise _Refused("HDL-101", "this parenthesis is never closed", "close it", opened[-1].start)

    # --------------------------------------------------------------------------------------- our clauses
    def _cut(self, tokens: list[Token]) -> tuple[_Clauses, list[Token]]:
        """Our own clauses, and the tokens of all the others."""
        depth, source, found, patterns = 0, None, list[int](), list[int]()
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
                found.append(index)
            elif token.token_type == TokenType.HAVING:
                having = token.start
            elif token.text.upper() == "PATTERN" and after is not None and after.text.upper() == "SEQ":
                patterns.append(index)
            elif token.token_type == TokenType.WITH and after is not None and after.text.lower() in ("(", "error"):
                options = index if options is None else options
        if source is None:
            raise _Refused("HDL-101", "the query has no FROM", _SOURCES, tokens[-1].start)
        if not found:
            message = "the query has no WINDOW clause"
            raise _Refused("HDL-107", message, f"after the stream, write {_TIME_WINDOW}", source.start)
        for clause, places in (("WINDOW", found), ("PATTERN", patterns)):
            if len(places) > 1:
                raise _Refused("HDL-107", f"a query has one {clause} clause", "", tokens[places[1]].start)
        error, last = None, len(tokens)
        if options is not None:
            error, last = self._options(tokens, options), options
        window, behind = self._window_words(tokens[:last], found[0])
        ours, pattern = [(found[0], behind)], None
        if patterns:
            pattern, behind = self._pattern_words(tokens[:last], patterns[0])
            ours.append((patterns[0], behind))
        rest, at = list[Token](), 0
        for begin, behind in sorted(ours):
            after = tokens[behind] if behind < last else None
            follows = any(behind == other for other, _ in ours)
            if after is not None and not follows and after.token_type in (*_OPERANDS, TokenType.L_PAREN):
                message = f"{_shown(after.text)} cannot follow the {tokens[begin].text.upper()} clause"
                hint = "WHERE, GROUP BY, HAVING, WITH or the end follow it"
                raise _Refused("HDL-101", message, hint, after.start)
            rest += tokens[at:begin]
            at = behind
        return _Clauses(window, pattern, error, having), rest + tokens[at:last]

    def _window_words(self, tokens: list[Token], begin: int) -> tuple[_WindowWords, int]:
        """The WINDOW clause that begins at a token, and the index of the token behind it."""
        words = _Words(tokens, begin + 1, f"write {_TIME_WINDOW}")
        rows = words.word("RANGE", "ROWS").text.upper() == "ROWS"
        if rows:
            words.hint = f"write {_ROW_WINDOW}"
        kind, what = (TokenType.NUMBER, "a number of rows") if rows else (TokenType.STRING, "a quoted duration")
        range = words.token(kind, what)
        words.word("SLIDE")
        bound = words.word("AT") if words.follows("AT") else None
        if bound is not None:
            words.word("MOST")
            if rows:
                hint = "write SLIDE with a number of rows, or RANGE '…' SLIDE AT MOST '…'"
                raise _Refused("HDL-107", "a refresh bound is a span of time, not a number of rows", hint, bound.start)
        slide, ago, per = words.token(kind, what), None, list[Token]()
        if words.follows("ENDING"):
            ending = words.word("ENDING")
            if rows:
                hint = "ENDING … AGO shifts windows of time: RANGE '…' SLIDE '…' ENDING '7 days' AGO"
                raise _Refused("HDL-107", "ENDING has no meaning for a number of rows", hint, ending.start)
            ago = words.token(TokenType.STRING, what)
            words.word("AGO")
        if rows and words.follows("PARTITION BY"):
            words.word("PARTITION BY")
            per += words.names("PARTITION BY names columns")
        words.word("ON")
        on = words.name("ON names the time column")
        return _WindowWords(rows, range, bound is not None, slide, ago, per, on), words.cursor

    def _pattern_words(self, tokens: list[Token], begin: int) -> tuple[_PatternWords, int]:
        """The PATTERN clause that begins at a token, and the index of the token behind it."""
        words = _Words(tokens, begin + 1, f"write {_PATTERN}")
        seq = words.word("SEQ")
        words.word("(")
        events = [words.event()]
        while words.follows(","):
            words.word(",")
            events.append(words.event())
        words.word(")")
        words.word("ON")
        on, per = words.name("ON names the column of the event types"), list[Token]()
        if words.follows("PARTITION BY"):
            words.word("PARTITION BY")
            per += words.names("PARTITION BY names columns")
        return _PatternWords(seq, events, on, per), words.cursor

    def _options(self, tokens: list[Token], begin: int) -> Token:
        """The number of ``WITH (error = …)``, which ends the query."""
        words = _Words(tokens, begin + 1, "write WITH (error = 0.01)")
        words.word("(")
        option = words.name("WITH ( ) holds the permitted error")
        if option.text.lower() != "error":
            message = f"there is no option {_shown(option.text)}"
            raise _Refused("HDL-107", message, "error is the only one: WITH (error = 0.01)", option.start)
        words.word("=")
        error = words.token(TokenType.NUMBER, "a number")
        words.word(")")
        if words.cursor < len(tokens):
            token = tokens[words.cursor]
            raise _Refused("HDL-107", "nothing follows WITH (…)", "move it to the end of the query", token.start)
        return error

    def _window(self, words: _WindowWords, group_by: Mapping[str, Type]) -> Window:
        assert self.stream is not None
        read, said = (self._rows, _rows_text) if words.rows else (self._duration, duration_text)
        first = "ROWS" if words.rows else "RANGE"
        range, slide = read(first, words.range), read("SLIDE", words.slide)
        ago = self._duration("AGO", words.ago) if words.ago is not None else 0
        if not words.rows and slide < self.limits.slide:
            message = f"SLIDE is shorter than {duration_text(self.limits.slide)}"
            raise _Refused("HDL-306", message, "", words.slide.start)
        if Fraction(range, slide) > self.limits.ratio:
            least = said(-(-range // self.limits.ratio))
            message = f"{first} is more than {self.limits.ratio} times SLIDE"
            raise _Refused("HDL-308", message, f"a slide of {least} or more is allowed with it", words.slide.start)
        if _resolve(words.on.text, [self.stream.time]) is None:
            message = f"windows of {self.stream.name} are on {self.stream.time}, not {_shown(words.on.text)}"
            raise _Refused("HDL-205", message, f"write ON {self.stream.time}", words.on.start)
        if slide > range:
            self.warnings.append(
                _Refused(
                    "HDL-210",
                    f"the slide ({said(slide)}) is longer than the range ({said(range)})",
                    f"the events between two windows are in none: of every {said(slide)} only {said(range)} "
                    + ("need count" if words.at_most else "count, the first: windows are [k*slide, k*slide + range)"),
                    words.slide.start,
                )
            )
        if words.at_most:
            return self._bound(words, range, slide, ago)
        per = tuple(sorted({self._counted_by(token, group_by) for token in words.per})) if words.rows else None
        return Window(range, slide, ago, per)

    def _bound(self, words: _WindowWords, range: int, bound: int, ago: int) -> Window:
        """A window that is refreshed at instants of the schedule's choice, multiples of the stream's step."""
        assert self.stream is not None
        step, said = self.stream.step, duration_text
        if bound < step:
            message = f"AT MOST is shorter than the step of {self.stream.name} ({said(step)})"
            hint = f"allow {said(step)} or more, or give the stream a shorter `step` in streams.yaml"
            raise _Refused("HDL-224", message, hint, words.slide.start)
        if range % step:
            message = f"RANGE is no multiple of the step of {self.stream.name} ({said(step)})"
            hint = f"{said(range - range % step or step)} is, or give the stream another `step` in streams.yaml"
            raise _Refused("HDL-225", message, hint, words.range.start)
        # a bound is kept just as well by the multiple of the step below it
        return Window(range, step, ago, at_most=bound - bound % step)

    def _pattern(
        self, words: _PatternWords | None, window: Window | None, group_by: Mapping[str, Type]
    ) -> Pattern | None:
        if words is None:
            return None
        assert self.stream is not None
        if window is not None and window.is_rows:
            message = "an event sequence lies in a window of time, not in a number of rows"
            raise _Refused("HDL-220", message, f"write {_TIME_WINDOW}", words.seq.start)
        if len(words.events) > self.limits.pattern:
            message = f"SEQ has {len(words.events)} events; the limit is {self.limits.pattern}"
            raise _Refused("HDL-220", message, "split it into shorter sequences", words.seq.start)
        on = self._known(words.on)
        if self.schema[on].name not in ("string", "long"):
            message = f"{on} is {self.schema[on]}: event types are strings or integers"
            raise _Refused("HDL-221", message, "name the column that tells what an event is", words.on.start)
        events = tuple(self._event_type(token, on) for token in words.events)
        per = set(group_by)
        for token in words.per:
            column = self._known(token)
            if column == self.stream.time or self.schema[column] == DOUBLE:
                what = "the time column" if column == self.stream.time else "the double column"
                message = f"sequences by {what} {column}"
                raise _Refused("HDL-206", message, "name an integer, decimal or string column", token.start)
            per.add(column)
        if len(per) > self.limits.group_columns:
            message = f"PARTITION BY and GROUP BY name {len(per)} columns; the limit is {self.limits.group_columns}"
            raise _Refused("HDL-309", message, "", words.seq.start)
        return Pattern(events, on, tuple(sorted(per)))

    def _event_type(self, token: Token, on: str) -> str:
        written = self.text[token.start : token.end + 1]
        if self.schema[on].name == "string":
            if token.token_type == TokenType.NUMBER:
                hint = f"quote it: '{written}'"
                raise _Refused("HDL-221", f"{on} is a string: {_shown(written)} is a number", hint, token.start)
            return token.text
        if token.token_type != TokenType.NUMBER or not written.isdecimal() or len(written) > 18:
            message = f"{on} is {self.schema[on]}: {_shown(token.text)} is no value of it"
            raise _Refused("HDL-221", message, "write whole numbers: SEQ(1, 2, 3)", token.start)
        return str(int(written))

    def _known(self, token: Token) -> str:
        column = _resolve(token.text, self.schema)
        if column is None:
            assert self.stream is not None
            message = f"stream {self.stream.name} has no column {_shown(token.text)}"
            raise _Refused("HDL-202", message, _did_you_mean(token.text, self.schema, "columns"), token.start)
        return column

    def _duration(self, word: str, token: Token) -> int:
        try:
            value = parse_duration(token.text)
        except HeddleError as error:
            raise _Refused.of(error, token.start) from None
        if value <= 0:
            raise _Refused("HDL-204", f"{word} must be longer than zero", "", token.start)
        if value > self.limits.range:
            message = f"{word} is longer than {duration_text(self.limits.range)}"
            raise _Refused("HDL-307", message, "", token.start)
        return value

    def _rows(self, word: str, token: Token) -> int:
        written = self.text[token.start : token.end + 1]
        if not _COUNT.fullmatch(written):
            message = f"{word} takes a whole number of rows, not {_shown(written)}"
            raise _Refused("HDL-204", message, "one row or more", token.start)
        if int(written) > self.limits.rows:
            raise _Refused("HDL-307", f"{word} is more than {self.limits.rows:,} rows", "", token.start)
        return int(written)

    def _counted_by(self, token: Token, group_by: Mapping[str, Type]) -> str:
        column = self._known(token)
        # a GROUP BY that was refused is incomplete
        if column not in group_by and not self.problems:
            message = f"rows are counted for each {column}, which the query does not group by"
            raise _Refused("HDL-219", message, f"add GROUP BY {column}, or leave PARTITION BY out", token.start)
        return column

    # ------------------------------------------------------------------------------------ stock clauses
    def _tree(self, tokens: list[Token]) -> exp.Select:
        # so much context that the length of start_context is the position of the error
        parser = Spark().parser(error_level=ErrorLevel.IMMEDIATE, error_message_context=10 * self.limits.bytes)
        try:
            trees = parser.parse(_opaque(tokens), self.text)
        except ParseError as error:
            found = error.errors[0] if error.errors else {}
            near, description = str(found.get("highlight") or ""), str(found.get("description") or "")
            message = f"the query cannot be read near {_shown(near)}" if near else "the query cannot be read"
            if description.startswith("Expecting"):
                message += f": {description[0].lower()}{description[1:]}"
            elif description.startswith("The number of provided arguments"):
                message += ": too many arguments"
            elif description.startswith("Required keyword"):
                message += ": something is missing"
            raise _Refused("HDL-101", message, "", len(str(found.get("start_context") or ""))) from None
        except RecursionError:
            raise _Refused("HDL-303", "expressions are nested too deeply", "remove parentheses") from None
        except Exception as error:
            # a slip of sqlglot's on text that nobody means: it costs its own query alone
            raise _Refused(
                "HDL-101", f"the query cannot be read ({type(error).__name__})", "write it plainer"
            ) from None
        tree = trees[0] if len(trees) == 1 else None
        if not isinstance(tree, exp.Select):
            message = "this is not a plain SELECT"
            raise _Refused("HDL-103", message, "one SELECT over one stream", tokens[0].start)
        for name, value in tree.args.items():
            if value and name not in ("expressions", "from_", "where", "group", "having"):
                word, message, hint = _CLAUSES.get(name, ("", f"{name} is not allowed", _SOURCES))
                at = next((token.start for token in tokens if word and token.text.upper() == word), tokens[0].start)
                if name == "joins":
                    at = self._at(value[0])
                raise _Refused("HDL-103", message, hint, at)
        return tree

    def _from(self, tree: exp.Select) -> None:
        source = tree.args.get("from_")
        if source is None:
            # the word stands somewhere, as something else
            raise _Refused("HDL-101", "the query has no FROM", _SOURCES)
        table = source.this
        if type(table) is not exp.Table or not isinstance(table.this, exp.Identifier):
            self._refuse("HDL-103", "FROM takes the name of a stream", _SOURCES, source)
        for name, value in table.args.items():
            if value and name != "this":
                what = {"db": "paths and qualified names", "alias": "aliases of streams"}.get(name, name)
                self._refuse("HDL-103", f"{what}: not allowed in FROM", _SOURCES, table)
        found = _resolve(table.name, self.streams)
        if found is None:
            hint = _did_you_mean(table.name, self.streams, "streams") or "declare it in streams.yaml"
            self._refuse("HDL-201", f"there is no stream {_shown(table.name)}", hint, table)
        self.stream = self.streams[str(found)]
        if not self.stream.schema:
            message = f"the columns of stream {self.stream.name} are not known"
            self._refuse("HDL-213", message, "give it a `schema` in streams.yaml", table)
        self.schema = dict(self.stream.schema)

    def _group_by(self, tree: exp.Select) -> dict[str, Type]:
        """Group columns with their types, in order."""
        assert self.stream is not None
        group, found = tree.args.get("group"), dict[str, Type]()
        if group is None:
            return found
        try:
            for name, value in group.args.items():
                if value and name != "expressions":
                    self._refuse("HDL-206", f"GROUP BY {name.upper()} is not allowed", "name the columns", tree)
            for node in group.expressions:
                if type(node) is not exp.Column:
                    message = "GROUP BY takes column names"
                    self._refuse("HDL-206", message, "expressions and positions are not allowed", node)
                column, type_ = self._column(node)
                if column == self.stream.time:
                    hint = "the windows already divide time: choose RANGE and SLIDE"
                    self._refuse("HDL-206", f"grouping by the time column {column}", hint, node)
                if type_ == DOUBLE:
                    hint = "equal doubles are chance: group by an integer, decimal or string column"
                    self._refuse("HDL-206", f"grouping by the double column {column}", hint, node)
                if column in found:
                    self._refuse("HDL-206", f"{column} is grouped by twice", "", node)
                found[column] = type_
            if len(found) > self.limits.group_columns:
                message = f"{len(found)} group columns; the limit is {self.limits.group_columns}"
                self._refuse("HDL-309", message, "", group.expressions[self.limits.group_columns])
        except _Refused as refused:
            self.problems.append(refused)
        return found

    def _select(self, tree: exp.Select, group_by: dict[str, Type]) -> tuple[tuple[Output, ...], tuple[str, ...]]:
        outputs: list[Output] = []
        names: dict[str, str] = {}
        taken: dict[str, exp.Expr] = {}
        for item in tree.expressions:
            try:
                node, alias = item, ""
                if type(item) is exp.Alias:
                    node, alias = item.this, item.alias
                if type(node) is exp.Column:
                    column, _ = self._column(node)
                    if column not in group_by:
                        self._refuse(
                            "HDL-207",
                            f"{column} is neither grouped by nor aggregated",
                            f"add GROUP BY {column}, or write max({column})",
                            node,
                        )
                    if column in names:
                        self._refuse("HDL-208", f"{column} is selected twice", "", node)
                    names[column] = name = alias or column
                else:
                    output = self._output(node, alias)
                    outputs.append(output)
                    name = output.name
                if alias and not (alias.isidentifier() and len(alias) <= 64):
                    self._refuse(
                        "HDL-208",
                        f"{_shown(alias)} cannot name a column of the answers",
                        "letters, digits and underscores, not starting with a digit",
                        item,
                    )
                self._take(name, taken, item)
            except _Refused as refused:
                self.problems.append(refused)
                self.refused[item.alias.lower()] = refused
        for column in group_by:
            if column not in names:
                try:
                    self._take(column, taken, tree.args["group"])
                except _Refused as refused:
                    self.problems.append(refused)
        if not outputs and not self.problems:
            self.problems.append(_Refused("HDL-105", "the query computes no aggregate", "add count(*) or another"))
        if len(outputs) > self.limits.outputs:
            message = f"{len(outputs)} outputs; the limit is {self.limits.outputs}"
            self.problems.append(_Refused("HDL-310", message, "split the query"))
        return tuple(outputs), tuple(names.get(column, column) for column in group_by)

    def _take(self, name: str, taken: dict[str, exp.Expr], item: exp.Expr) -> None:
        if name.lower() in _RESERVED:
            self._refuse("HDL-208", f"{name} is the name of a column that every answer has", "use AS", item)
        if name.lower() in taken:
            self._refuse("HDL-208", f"two columns of the answers are named {name}", "use AS", item)
        taken[name.lower()] = item

    def _output(self, node: exp.Expr, alias: str) -> Output:
        assert self.stream is not None
        written = self._function(node) or ""
        if written not in _FORMS:
            if written in _CALLABLE or type(node) in _BINARY or type(node) in (exp.Paren, exp.Literal, exp.Neg):
                hint = "combine aggregates when you read the answers; inside an aggregate arithmetic is allowed"
                self._refuse("HDL-105", "SELECT takes group columns and single aggregates", hint, node)
            self._unknown(node)
        arguments = self._arguments(node)
        if arguments and type(arguments[0]) is exp.Distinct:
            if written != "count":
                what, hint = _NAMES_OF_SYNTAX[exp.Distinct]
                self._refuse("HDL-103", f"{what} is not allowed in {written}", hint, node)
            written, arguments = "count_distinct", arguments[0].expressions
        form = _FORMS[written]
        aggregate = AGGREGATES[form.function]
        if not form.least <= len(arguments) <= len(form.roles):
            example = f"{written}({', '.join(form.roles)})"
            self._refuse("HDL-104", f"{written} takes {form.counts}, not {len(arguments)}", f"write {example}", node)
        given = dict(zip(form.roles, arguments, strict=False))
        if self.pattern is not None:
            return self._of_sequences(node, alias, written, given["x"])
        argument, found = self._value(given["x"])
        if written == "count" and isinstance(argument, Literal) and argument.value is not None:
            argument, found = None, None
        by, by_type = self._value(given["y"]) if "y" in given else (None, None)
        name = alias or "_".join([written, *dict.fromkeys([*columns_of(argument), *columns_of(by)])])[:64]
        if aggregate.signature == "value+time":
            by, by_type = Column(self.stream.time), self.schema[self.stream.time]
        try:
            type_ = aggregate.output_type(found, by_type)
        except TypeError as reason:
            raise _Refused("HDL-203", str(reason), "", self._at(node)) from None
        parameter, error = form.k, None
        for role, code in _PARAMETERS.items():
            if role in given:
                parameter = self._constant(given[role], code, f"the {role} of {written}", aggregate.check_parameter)
        if aggregate.sketch:
            error = self._permitted(given, form, written)
        return Output(name, form.function, argument, found, type_, by, by_type, parameter, error)

    def _of_sequences(self, node: exp.Expr, alias: str, written: str, given: exp.Expr) -> Output:
        """An aggregate over the sequences: ``count(*)``, ``count(E)`` or a function of E's attributes."""
        assert self.pattern is not None
        if written not in SEQUENCES:
            hint = f"{', '.join(SEQUENCES)} apply to event sequences"
            self._refuse("HDL-222", f"{written} does not apply to event sequences", hint, node)
        given = _bare(given)
        self.event, argument, found = None, None, None
        is_event = type(given) is exp.Column and not given.args.get("table") and written == "count"
        if is_event and isinstance(given.this, exp.Identifier) and given.name not in self.schema:
            self.event = self._event(given.name, given)
        elif is_event and given.name in self.pattern.events:
            self.event = given.name
        else:
            self.of_event = True
            try:
                argument, found = self._value(given)
            finally:
                self.of_event = False
            if isinstance(argument, Literal) and written == "count" and argument.value is not None:
                argument, found = None, None
            elif argument is not None and self.event is None:
                example = f"{written}({_quoted(self.pattern.events[0])}.x)"
                message = f"{written} over sequences needs an attribute of an event"
                self._refuse("HDL-222", message, f"write {example}", given)
        try:
            type_ = SEQUENCES[written](found)
        except TypeError as reason:
            raise _Refused("HDL-203", str(reason), "", self._at(node)) from None
        read = [*([self.event] if self.event else []), *dict.fromkeys(columns_of(argument))]
        name = alias or re.sub(r"\W", "_", "_".join([written, *read]))[:64]
        return Output(name, written, argument, found, type_, event=self.event)

    def _event(self, name: str, node: exp.Expr) -> str:
        """An event type by its name in an aggregate; one that the pattern does not have is in no sequence."""
        assert self.pattern is not None
        if name not in self.pattern.events:
            hint = _did_you_mean(name, self.pattern.events, "event types")
            message = f"{_shown(name)} is no event type of {self.pattern}: no sequence has one"
            self.warnings.append(_Refused("HDL-223", message, hint, self._at(node)))
        return name

    def _value(self, node: exp.Expr) -> tuple[Expression | None, Type | None]:
        """An argument of an aggregate with its type; neither for a star."""
        if type(node) is exp.Star:
            return None, None
        value, found = self._expression(node, 0)
        return _settled(value, BOOLEAN), BOOLEAN if found == _NULL else found

    def _permitted(self, given: Mapping[str, exp.Expr], form: _Form, written: str) -> Decimal | None:
        """The error that an aggregate may have: its own argument, else the query's, else that of its form."""
        if "error" in given:
            return self._constant(given["error"], "HDL-216", f"the error of {written}", check_error)
        if "accuracy" in given:
            accuracy = self._constant(given["accuracy"], "HDL-216", f"the accuracy of {written}", _check_accuracy)
            return _plain((1 / accuracy).quantize(Decimal("1e-9"), ROUND_FLOOR))
        if self.error is not None:
            self.error_taken = True
            return self.error
        return form.error

    def _permit(self, token: Token | None) -> None:
        """Read the number of WITH (error = …)."""
        try:
            if token is not None:
                self.error = _checked(number(token.text), "HDL-216", check_error, token.start)
        except HeddleError as error:
            self.problems.append(_Refused.of(error, token.start if token else 0))
        except _Refused as refused:
            self.problems.append(refused)

    def _constant(self, node: exp.Expr, code: str, what: str, check: Callable[[Decimal], None]) -> Decimal:
        if not _is_constant(node):
            self._refuse(code, f"{what} is a number that stands in the query", _RANGES[code], node)
        value, found = self._expression(node, 0)
        if not isinstance(value, Literal) or not found.is_numeric:
            self._refuse(code, f"{what} is a number, not {found}", _RANGES[code], node)
        return _checked(value, code, check, self._at(node))

    # ------------------------------------------------------------------------------------------- having
    def _having(
        self, tree: exp.Select, outputs: Sequence[Output], groups: Mapping[str, str], start: int
    ) -> tuple[Condition, ...]:
        """The thresholds of HAVING, which starts at an offset; ``groups``: the group columns, by column and alias."""
        having = tree.args.get("having")
        pending, found, computed = [having.this] if having else [], list[Condition](), list(outputs)
        while pending:
            node = _bare(pending.pop())
            if type(node) is exp.And:
                pending += [node.expression, node.this]
                continue
            try:
                found.append(self._condition(node, outputs, computed, groups))
            except _Refused as refused:
                if refused not in self.problems:
                    refused.at = refused.at or start
                    self.problems.append(refused)
        if len(computed) > max(len(outputs), self.limits.outputs):
            message = f"{len(computed)} aggregates in SELECT and HAVING; the limit is {self.limits.outputs}"
            self.problems.append(_Refused("HDL-310", message, "split the query", start))
        return tuple(dict.fromkeys(found))

    def _condition(
        self, node: exp.Expr, outputs: Sequence[Output], computed: list[Output], groups: Mapping[str, str]
    ) -> Condition:
        """One threshold. ``computed``: the outputs and what earlier thresholds compare; gets what this one adds."""
        comparison = _BINARY.get(type(node), "")
        if comparison not in _FLIPPED:
            what, hint = _NOT_IN_HAVING.get(type(node), ("other conditions", "sum(x) > 10, any(y) = TRUE"))
            self._refuse("HDL-217", f"HAVING takes comparisons joined by AND, not {what}", hint, node)
        subject, constant = _bare(node.this), _bare(node.expression)
        if _is_constant(subject):
            subject, constant, comparison = constant, subject, _FLIPPED[comparison]
        if _is_constant(subject) or not _is_constant(constant):
            hint = "an aggregate or the name of an output on one side, a number, text or moment on the other"
            self._refuse("HDL-217", "HAVING compares an aggregate with a constant", hint, node)
        if type(subject) is exp.Column:
            output = self._named(subject, outputs, groups)
        elif self._function(subject) in _FORMS:
            output = _added(self._output(subject, ""), computed)
        else:
            hint = "inside an aggregate arithmetic is allowed"
            self._refuse("HDL-217", "HAVING compares single aggregates, not other expressions", hint, node)
        value, found = self._expression(constant, 0)
        if found == _NULL:
            self._refuse("HDL-217", "a comparison with NULL is never true", "compare with a value", node)
        call, _ = self._call(comparison, [(Column(output.name), output.type), (value, found)], node)
        assert isinstance(call, Call) and isinstance(call.arguments[1], Literal)
        return Condition(output, comparison, call.arguments[1])

    def _named(self, node: exp.Expr, outputs: Sequence[Output], groups: Mapping[str, str]) -> Output:
        """The output that a name in HAVING refers to."""
        names = {output.name: output for output in outputs}
        column = None
        if not node.args.get("table"):
            if node.name.lower() in self.refused:
                raise self.refused[node.name.lower()]
            name = _resolve(node.name, names)
            if name is not None:
                return names[name]
            name = _resolve(node.name, groups)
            column = groups[name] if name else _resolve(node.name, self.schema)
            if column is None:
                hint = _did_you_mean(node.name, [*names, *self.schema], "outputs and columns")
                self._refuse("HDL-202", f"there is no output or column {_shown(node.name)}", hint, node)
        column = column or self._column(node)[0]
        if column in groups:
            hint = "a condition on it belongs in WHERE"
            self._refuse("HDL-217", f"HAVING is for aggregates; {column} is a group column", hint, node)
        hint = f"filter events in WHERE, or aggregate it: max({column})"
        self._refuse("HDL-217", f"HAVING is for aggregates; {column} has many values in a window", hint, node)

    # -------------------------------------------------------------------------------------- expressions
    def _function(self, node: exp.Expr) -> str | None:
        """The function's name as written: sqlglot maps many names to one node, the language does not."""
        if not isinstance(node, exp.Func) or "start" not in node.meta:
            return None
        return self.text[node.meta["start"] : node.meta["end"] + 1].lower()

    def _arguments(self, node: exp.Expr) -> list[exp.Expr]:
        self._only(node, "this", "expressions")
        return node.expressions

    def _unknown(self, node: exp.Expr) -> NoReturn:
        """Say why a node is not of the language."""
        if type(node) in _NAMES_OF_SYNTAX:
            what, hint = _NAMES_OF_SYNTAX[type(node)]
            self._refuse("HDL-103", f"{what} is not allowed here", hint, node)
        name = self._function(node)
        if name is None:
            self._refuse("HDL-103", f"{type(node).__name__.lower()} is not allowed here", "", node)
        hint = _did_you_mean(name, [*_FORMS, *_CALLABLE], "functions")
        if name in _MEANT:
            hint = f"did you mean {_MEANT[name]}?"
        self._refuse("HDL-104", f"there is no function {_shown(name)}", hint, node)

    def _column(self, node: exp.Expr) -> tuple[str, Type]:
        assert self.stream is not None
        for name, value in node.args.items():
            if value and name not in ("this", "table"):
                self._refuse("HDL-103", "nested names are not allowed", "columns are plain names", node)
        if not isinstance(node.this, exp.Identifier):
            self._unknown(node.this)
        table = node.args.get("table")
        if self.of_event:
            assert self.pattern is not None
            if table is None:
                example = f"{_quoted(self.pattern.events[0])}.{node.this.name}"
                message = f"{_shown(node.this.name)}: of which event of the sequence?"
                self._refuse("HDL-222", message, f"write {example}", node)
            if self.event not in (None, table.name):
                message = f"an aggregate reads one event of a sequence, not {self.event} and {table.name}"
                self._refuse("HDL-222", message, "aggregate them one by one", node)
            self.event = self.event or self._event(table.name, table)
        elif table is not None and _resolve(table.name, [self.stream.name]) is None:
            self._refuse(
                "HDL-202",
                f"{_shown(table.name)} is not the stream of this query",
                f"write {self.stream.name}.{node.this.name}",
                node,
            )
        found = _resolve(node.this.name, self.schema)
        if found is None:
            message = f"stream {self.stream.name} has no column {_shown(node.this.name)}"
            self._refuse("HDL-202", message, _did_you_mean(node.this.name, self.schema, "columns"), node)
        return str(found), self.schema[str(found)]

    def _expression(self, node: exp.Expr, depth: int) -> tuple[Expression, Type]:
        """The value of a node and its type; every kind of node that the language has is named here."""
        # chains like a + b + c lean to the left: no parenthesis, but as deep
        if depth > 2 * self.limits.depth:
            self._refuse("HDL-303", "the expression is too long", "shorten the chain of operators", node)
        kind = type(node)
        if kind is exp.Paren:
            return self._expression(self._only(node, "this"), depth + 1)
        if kind is exp.Column:
            name, found = self._column(node)
            return Column(name), found
        if kind in (exp.Literal, exp.Boolean, exp.Null, exp.TryCast, exp.Cast):
            literal = self._literal(node)
            return literal, literal.type
        if kind in (exp.And, exp.Or):
            operands = []
            while type(node) is kind:
                operands.append(node.expression)
                node = node.this
            read = [self._expression(operand, depth + 1) for operand in (node, *reversed(operands))]
            return self._call("and" if kind is exp.And else "or", read, node)
        if kind is exp.Not:
            return self._call("not", [self._expression(self._only(node, "this"), depth + 1)], node)
        if kind is exp.Neg:
            value, found = self._expression(self._only(node, "this"), depth + 1)
            if isinstance(value, Literal) and found.is_numeric:
                return (literal := negated(value)), literal.type
            return self._call("neg", [(value, found)], node)
        if kind is exp.Is and type(node.expression) is exp.Null:
            value, found = self._expression(node.this, depth + 1)
            return self._call("is_null", [(value, found)], node)
        if kind is exp.Is:
            self._refuse("HDL-103", "IS takes NULL or NOT NULL", "write the condition itself", node)
        if kind in (exp.In, exp.Like, exp.Between):
            return self._predicate(node, depth)
        if kind in _BINARY:
            self._only(node, "this", "expression", "typed", "safe")
            sides = [self._expression(side, depth + 1) for side in (node.this, node.expression)]
            return self._call(_BINARY[kind], sides, node)
        function = self._function(node)
        if function in _CALLABLE:
            arguments = [self._expression(argument, depth + 1) for argument in self._arguments(node)]
            return self._call(function, arguments, node)
        if function in _FORMS:
            hint = "aggregates belong in SELECT and HAVING"
            self._refuse("HDL-105", f"the aggregate {function} cannot stand here", hint, node)
        self._unknown(node)

    def _predicate(self, node: exp.Expr, depth: int) -> tuple[Expression, Type]:
        """IN, LIKE and BETWEEN, negated or not."""
        self._only(node, "this", "expression", "expressions", "low", "high", "negate")
        names = {exp.In: "expressions", exp.Like: "expression"}
        subject = self._expression(node.this, depth + 1)
        if type(node) is exp.Between:
            low, high = (self._expression(node.args[side], depth + 1) for side in ("low", "high"))
            found = self._call(
                "and", [self._call(">=", [subject, low], node), self._call("<=", [subject, high], node)], node
            )
        else:
            items = node.args.get(names[type(node)]) or []
            items = items if isinstance(items, list) else [items]
            read = [subject, *(self._expression(item, depth + 1) for item in items)]
            found = self._call("in" if type(node) is exp.In else "like", read, node)
        return self._call("not", [found], node) if node.args.get("negate") else found

    def _only(self, node: exp.Expr, *names: str) -> exp.Expr:
        """Refuse a node with an argument that is not expected; its first expected argument."""
        for name, value in node.args.items():
            if value and name not in names:
                self._refuse("HDL-103", f"{name} is not allowed here", "", node)
        return node.args[names[0]]

    def _literal(self, node: exp.Expr) -> Literal:
        try:
            if type(node) is exp.Null:
                return Literal(None, _NULL)
            if type(node) is exp.Boolean:
                return Literal(bool(node.this), BOOLEAN)
            if type(node) is exp.Literal:
                return Literal(node.this, STRING) if node.is_string else number(node.this)
            # `date '…'`, `timestamp '…'` and suffixed numbers are left: real casts were refused as tokens
            inner, target = node.this, node.args["to"].this
            if type(inner) is exp.Literal and inner.is_string and target in _MOMENTS:
                return moment(inner.this, _MOMENTS[target])
            if type(inner) is exp.Literal and target in _SUFFIXES:
                found = number(inner.this)
                if target == exp.DType.DOUBLE:
                    return Literal(float(found.value), DOUBLE)
                return found
        except HeddleError as error:
            raise _Refused.of(error, self._at(node)) from None
        self._refuse("HDL-103", "casts are not allowed", "the stream's schema fixes the types", node)

    def _call(self, name: str, arguments: Sequence[tuple[Expression, Type]], node: exp.Expr) -> tuple[Expression, Type]:
        """A call with its type, after giving NULLs and date strings the type of what stands beside them."""
        known = [type_ for _, type_ in arguments if type_ != _NULL]
        beside = known[0] if known else DOUBLE if name in ("+", "-", "*", "/", "neg", "abs") else BOOLEAN
        if name in ("like", "lower", "upper"):
            beside = STRING
        values, types = [], []
        try:
            moments = [type_ for type_ in known if type_.name in ("date", "timestamp")]
            for value, type_ in arguments:
                if type_ == _NULL:
                    value, type_ = _settled(value, beside), beside
                elif type_ == STRING and isinstance(value, Literal) and moments:
                    value = moment(value.value, moments[0])
                    type_ = value.type
                values.append(value)
                types.append(type_)
            call = Call(name, tuple(values))
            return call, call_type(name, types, call.arguments)
        except HeddleError as error:
            raise _Refused.of(error, self._at(node)) from None


def _checked(literal: Literal, code: str, check: Callable[[Decimal], None], at: int) -> Decimal:
    """A number as it was written, unless it is out of range."""
    value = Decimal(str(literal.value))
    try:
        check(value)
    except ValueError as error:
        raise _Refused(code, str(error), _RANGES[code], at) from None
    return _plain(value)


def _settled(value: Expression, type: Type) -> Expression:
    """The value, with a NULL of no type given one."""
    return Literal(None, type) if isinstance(value, Literal) and value.type == _NULL else value


# ----------------------------------------------------------------------------------------------- files
def parse(text: str, streams: Mapping[str, Stream], file: str = "", limits: Limits | None = None) -> ParseResult:
    """All the queries of one workload file.

    Never raises for bad text: a query that cannot be used is left out and said why, with line and column in
    ``file`` (1-based, columns in characters); the others are returned. Linear in the text.

    Statements end with ``;``. A line ``-- name: x`` before a statement names it (otherwise the file's stem
    and its number in the file do), ``-- owner: y`` says whose it is, ``-- until: instant`` the last instant that
    it answers. A statement is::

        SELECT <group column or aggregate> [AS name], … FROM stream
        [PATTERN SEQ(type, …) ON column [PARTITION BY column, …]]
        WINDOW RANGE '…' SLIDE [AT MOST] '…' [ENDING '…' AGO] ON time
             | ROWS n SLIDE m [PARTITION BY column, …] ON time
        [WHERE condition] [GROUP BY column, …]
        [HAVING <aggregate or output> <comparison> <constant> AND …] [WITH (error = number)]

    with the WINDOW and PATTERN clauses anywhere behind FROM and WITH at the end.

    - ``PATTERN``: what is aggregated are the sequences of events of these types, in strictly ascending time, all in
      one window and equal in the columns of PARTITION BY and GROUP BY; ``count(*)`` counts them, ``count(E)``,
      ``sum(E.x)``, ``avg``, ``min`` and ``max`` go over their events of type E. WHERE leaves events out before.
    - ``AT MOST``: a refresh bound. Windows end at those multiples of the stream's step that the schedule chooses, never
      further apart than the bound; RANGE is a multiple of the step.
    - ``ENDING``: every window is shifted back by so much, see :class:`optimizer.query.Window`.
    - ``ROWS``: the stream's rows, all of them, are numbered from 0 in the order of time, rows of equal time in that of
      the values of all the stream's columns; window k is over the rows [k*m, k*m + n), and WHERE leaves rows out
      within it. ``PARTITION BY`` numbers the rows of each of its keys by themselves; its columns are group columns.
    - ``HAVING``: only answers that satisfy all thresholds exist. An aggregate that is null satisfies none.
    - ``WITH (error = …)``: what distinct counts, percentiles, modes and top-k may be off by, in HAVING too, unless one
      of them names its own error, as Spark's approximate functions can; without any, answers are exact.
    """
    limits = limits or Limits()
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    queries: dict[str, ACQ] = {}
    diagnostics: list[Diagnostic] = []
    where: dict[str, int] = {}

    def position(at: int) -> tuple[int, int]:
        line = bisect.bisect_right(lines, at)
        return line, at - lines[line - 1] + 1

    def report(at: int, query: str, code: str, message: str, hint: str, severity: str = "error") -> None:
        diagnostics.append(Diagnostic(code, message, hint, file, *position(at), query, severity))

    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(file).stem) or "query"
    stem = stem if _QUERY_NAME.match(stem) else "_" + stem
    for ordinal, statement in enumerate(_statements(text), 1):
        name, owner, until = f"{stem[:100]}_{ordinal}", "", None
        bad = list(statement.broken)
        given: set[str] = set()
        for at, comment in statement.comments:
            setting = _SETTING.fullmatch(comment)
            if setting is None:
                continue
            what, value = setting[1].lower(), setting[2].strip()
            if what in given:
                bad.append((at, "HDL-109", f"a second {what} for one query", "is a semicolon missing above?"))
            given.add(what)
            if what == "owner" and value.isprintable() and 0 < len(value) <= 128:
                owner = value
            elif what == "name" and _QUERY_NAME.fullmatch(value):
                name = value
            elif what == "until" and (instant := _instant(value)) is not None:
                until = instant
            else:
                bad.append((at, "HDL-109", f"{_shown(value)} is no {what}", _RULES[what]))
        try:
            # in its comments too, which may be made to look like the query
            for at, comment in statement.comments:
                _check_characters(comment, at)
            _check_characters(
                text[statement.start : min(statement.end, statement.start + limits.bytes)], statement.start
            )
        except _Refused as refused:
            bad.append((refused.at, refused.code, refused.message, refused.hint))
        if name in where:
            hint = f"the first is in line {position(where[name])[0]} and is kept"
            bad.append((statement.start, "HDL-209", f"two queries are named {name}", hint))
        where.setdefault(name, statement.start)
        for at, code, message, hint in bad:
            report(at, name, code, message, hint)
        if bad:
            continue
        reader = _Reader(statement.text, streams, limits)
        query = reader.read(name, owner, text[statement.start : statement.end].rstrip())
        for found in reader.problems[:_MOST_PROBLEMS]:
            report(statement.start + found.at, name, found.code, found.message, found.hint)
        for found in reader.warnings:
            report(statement.start + found.at, name, found.code, found.message, found.hint, "warning")
        if query is not None and query.window.is_rows and until is not None:
            hint = "remove -- until, or ask for a window of time"
            report(statement.start, name, "HDL-109", "a query over a number of rows has no lifetime", hint)
        elif query is not None:
            queries[name] = replace(query, until=until)
    positions = tuple(position(where[name]) for name in queries)
    return ParseResult(tuple(queries.values()), tuple(diagnostics), positions)


def load_workload(
    files: Iterable[str | Path],
    streams: Mapping[str, Stream],
    limits: Limits | None = None,
    quota: int | None = None,
) -> tuple[Workload, tuple[Diagnostic, ...]]:
    """The workload of some files, and what was found wrong with them.

    ``quota``: the most queries of one owner (those without one are one owner's); the first ones are kept, the others
    are refused one by one (HDL-311).

    A file that cannot be read gives HDL-111, a name that an earlier file has HDL-209; the first one is kept.
    """
    queries: dict[str, ACQ] = {}
    origin: dict[str, str] = {}
    held: dict[str, int] = {}
    diagnostics: list[Diagnostic] = []
    for path in files:
        try:
            with Path(path).open("rb") as opened:
                content = opened.read(FILE_BYTES + 1)
            if len(content) > FILE_BYTES:
                diagnostics.append(Diagnostic("HDL-111", f"is larger than {FILE_BYTES} bytes", "split it", str(path)))
                continue
            text = content.decode("utf-8-sig")
        except OSError as error:
            diagnostics.append(Diagnostic("HDL-111", f"cannot be read: {error.strerror}", file=str(path)))
            continue
        except UnicodeDecodeError as error:
            message = f"is not UTF-8 text (byte {error.start})"
            diagnostics.append(Diagnostic("HDL-111", message, "save it as UTF-8", file=str(path)))
            continue
        found = parse(text, streams, str(path), limits)
        diagnostics += found.diagnostics
        for query, position in zip(found.queries, found.positions, strict=True):
            if query.name in queries:
                message = f"two queries are named {query.name}"
                hint = f"the first is in {origin[query.name]} and is kept"
                diagnostics.append(Diagnostic("HDL-209", message, hint, str(path), *position, query.name))
            elif quota is not None and held.get(query.owner, 0) >= quota:
                whose = f"of {query.owner}" if query.owner else "without an owner"
                message, hint = (
                    f"there are {quota} queries {whose} already, the quota",
                    "remove some, or raise HEDDLE_OWNER_QUOTA",
                )
                diagnostics.append(Diagnostic("HDL-311", message, hint, str(path), *position, query.name))
            else:
                held[query.owner] = held.get(query.owner, 0) + 1
                queries[query.name], origin[query.name] = query, str(path)
    return Workload(tuple(queries.values()), tuple(streams.values())), tuple(diagnostics)
