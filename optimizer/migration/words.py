"""A statement of a job's SQL as words: limited first, and spelled so that sqlglot reads it as it is meant.

sqlglot has no dialect for Flink. Its texts are cut into words by the tokenizer of ``drill``, which quotes as Flink does
(backticks for names, doubled quotes, no backslashes), those of TimescaleDB by the one of ``postgres``. Windowing table
functions are taken out of FROM, and the rest is read by the parser of ``spark``. Functions arrive under names that it
does not know, as in :mod:`optimizer.language.syntax`: as they were written, and in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.drill import Drill
from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from optimizer.language.foreign_windows import split_arguments
from optimizer.language.guards import check_nesting
from optimizer.language.refusals import QUOTED, Refused, shown_text
from optimizer.language.words import Limits, check_characters


class Dialect(StrEnum):
    """SQL dialect of a job."""

    spark = "spark"
    flink = "flink"
    timescale = "timescale"


LIMITS = replace(Limits(), bytes=64 << 10, tokens=8192, connectives=1024)
"""Limits of one statement, which may be several queries' worth of views and subselects."""

LEFT_OUT = "HDL-140"
"""The code of what a job has and no query needs: a warning."""

DIFFERS = "HDL-147"
"""The code of what a query does not say as the job does: a warning."""

WINDOW_NAMES = ("tumble", "hop", "cumulate", "session")

_MARK = "="
"""Before the name of a function or of a window that was cut out; nobody can write such a name unquoted."""

_AS_THEY_ARE = ("cast", "extract", "filter", "over", "in", "values", "exists", "using", "group", "as", "on")

_TAKES_SUBQUERY = (TokenType.LIKE, TokenType.ILIKE, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.GT)

_OPERATORS = (
    *(TokenType.AND, TokenType.OR, TokenType.XOR, TokenType.NOT, TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE),
    TokenType.INSERT,
)

_BEFORE_TYPE = (TokenType.ALIAS, TokenType.DCOLON, TokenType.LT, TokenType.COLON)


@dataclass(frozen=True)
class CutWindow:
    """A windowing table function that stood in FROM: ``HOP(TABLE bids, DESCRIPTOR(bidtime), …)``.

    ``source``: the parts of the table's name; ``time``: the column's word; ``durations`` by role: size, slide, step,
    offset, gap; ``per``: the columns of PARTITION BY.
    """

    function: str
    source: tuple[str, ...]
    time: str
    durations: dict[str, str]
    at: int
    per: tuple[str, ...] = ()


_ROLES = {
    "tumble": ("size", "offset"),
    "hop": ("slide", "size", "offset"),
    "cumulate": ("step", "size", "offset"),
    "session": ("gap",),
}


_TOKENIZERS: dict[Dialect, type[Drill | Postgres | Spark]] = {
    Dialect.spark: Spark,
    Dialect.flink: Drill,
    Dialect.timescale: Postgres,
}


def limited_tokens(text: str, dialect: Dialect) -> list[Token]:
    """The words of a statement whose comments are blanked, within the limits. Raises :class:`Refused`."""
    size = len(text.encode(errors="surrogatepass"))
    if size > LIMITS.bytes:
        raise Refused("HDL-301", f"the statement has {size} bytes, the limit is {LIMITS.bytes}", "split it")
    check_characters(text, 0)
    try:
        tokens = _TOKENIZERS[dialect]().tokenize(text)
    except TokenError:
        raise Refused("HDL-146", "this text cannot be split into words", "look for stray quotes") from None
    if not tokens or any(token.comments for token in tokens):
        raise Refused("HDL-146", "templates are not read", "render the job first", max(text.find("{"), 0))
    if len(tokens) > LIMITS.tokens:
        raise Refused("HDL-302", f"the statement has {len(tokens)} words, the limit is {LIMITS.tokens}", "split it")
    check_nesting(tokens, LIMITS)
    for token in tokens:
        _check_token(token)
    return tokens


def _check_token(token: Token) -> None:
    if len(token.text) > LIMITS.literal:
        message = f"a word or literal of {len(token.text)} characters; the limit is {LIMITS.literal}"
        raise Refused("HDL-305", message, "", token.start)
    if token.token_type in (TokenType.L_BRACE, TokenType.BLOCK_START, TokenType.PARAMETER, TokenType.PLACEHOLDER):
        raise Refused("HDL-146", "templates and placeholders are not read", "render the job first", token.start)
    if token.token_type == TokenType.STRING and "${" in token.text:
        raise Refused("HDL-146", "substitutions are not read", "write the value", token.start)


def closing(tokens: Sequence[Token], opened: int) -> int:
    """Index of the parenthesis that closes the one at ``opened``."""
    depth = 0
    for at in range(opened, len(tokens)):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[at].token_type, 0)
        if depth == 0:
            return at
    return len(tokens) - 1


# --------------------------------------------------------------------------------- windows in FROM
def cut_windows(tokens: list[Token]) -> tuple[list[Token], list[CutWindow]]:
    """The words with a plain name (:func:`cut_number`) for every windowing table function, and these functions."""
    remaining: list[Token] = []
    windows: list[CutWindow] = []
    at = 0
    while at < len(tokens):
        inner = at + 2 if _is(tokens, at, TokenType.TABLE) and _is(tokens, at + 1, TokenType.L_PAREN) else at
        if not _is_window_table(tokens, inner):
            remaining.append(tokens[at])
            at += 1
            continue
        end = closing(tokens, inner + 1)
        windows.append(_window_table(tokens[inner], tokens[inner + 2 : end]))
        remaining.append(_word(tokens[inner], f"{_MARK}{len(windows) - 1}"))
        if inner != at and not _is(tokens, end + 1, TokenType.R_PAREN):
            raise Refused("HDL-146", "TABLE( ) holds one windowing function", "", tokens[at].start)
        at = end + 1 + (inner != at)
    return remaining, windows


def cut_number(name: str, quoted: bool) -> int | None:
    """Index of the cut window that a table's name stands for; None for a name that was written."""
    return int(name[1:]) if name.startswith(_MARK) and name[1:].isdecimal() and not quoted else None


def _is(tokens: Sequence[Token], at: int, kind: TokenType) -> bool:
    return at < len(tokens) and tokens[at].token_type == kind


def _is_window_table(tokens: Sequence[Token], at: int) -> bool:
    called = at < len(tokens) and tokens[at].token_type not in QUOTED and _is(tokens, at + 1, TokenType.L_PAREN)
    return (
        called
        and tokens[at].text.lower() in WINDOW_NAMES
        and (_is(tokens, at + 2, TokenType.TABLE) or _is(tokens, at + 3, TokenType.FARROW))
    )


def _window_table(name: Token, inside: Sequence[Token]) -> CutWindow:
    function = name.text.lower()
    source: tuple[str, ...] = ()
    time = ""
    per: tuple[str, ...] = ()
    durations: dict[str, str] = {}
    roles = iter(_ROLES[function])
    for argument in split_arguments(inside):
        role = ""
        if _is(argument, 1, TokenType.FARROW):
            role, argument = argument[0].text.lower(), argument[2:]
        if _is(argument, 0, TokenType.TABLE):
            names = argument[1:]
            cut = next((at for at, token in enumerate(names) if token.token_type == TokenType.PARTITION_BY), len(names))
            names, per = names[:cut], tuple(token.text for token in names[cut + 1 :])
            if not names or any((token.token_type == TokenType.DOT) == (at % 2 == 0) for at, token in enumerate(names)):
                raise Refused("HDL-146", f"{name.text} takes TABLE and a name", "make the rest a view", name.start)
            source = tuple(token.text for token in names[::2])
        elif per and not time and len(argument) == 1 and argument[0].token_type == TokenType.VAR:
            per = (*per, argument[0].text)
        elif argument and argument[0].text.upper() == "DESCRIPTOR":
            if len(argument) != 4:
                raise Refused("HDL-144", "windows are on one column", "", argument[0].start)
            time = argument[2].text
        else:
            durations[role or next(roles, "offset")] = interval_text(argument, name)
    if not (source and time and durations):
        hint = f"{name.text.upper()}(TABLE t, DESCRIPTOR(time), INTERVAL '10' MINUTES)"
        raise Refused("HDL-146", f"{name.text} lacks its table, its column or its durations", hint, name.start)
    return CutWindow(function, source, time, durations, name.start, per)


def interval_text(words: Sequence[Token], near: Token) -> str:
    """``INTERVAL '10' MINUTES`` as the text ``10 minutes``."""
    plain = [word for word in words if word.token_type != TokenType.INTERVAL]
    if len(plain) == 2 and plain[0].text.strip().isdecimal() and plain[1].text.isalpha():
        return f"{int(plain[0].text)} {plain[1].text.lower()}"
    if len(plain) == 1 and plain[0].token_type == TokenType.STRING:
        return plain[0].text
    start = words[0].start if words else near.start
    raise Refused("HDL-144", "a duration is an interval of one unit", "INTERVAL '10' MINUTES", start)


# ------------------------------------------------------------------------------------ other spellings
def spelled(tokens: list[Token]) -> list[Token]:
    """The words as sqlglot's parser of Spark reads them as they are meant."""
    return _opaque(_rewritten(tokens))


def _word(token: Token, text: str, kind: TokenType = TokenType.VAR) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _rewritten(tokens: Sequence[Token]) -> list[Token]:
    """``FLOOR(t TO HOUR)`` as date_trunc, ``SUBSTRING(x FROM 1 FOR 2)`` with commas, ``TRY_CAST`` as a cast's call."""
    done: list[Token] = []
    at = 0
    while at < len(tokens):
        token, name = tokens[at], tokens[at].text.lower()
        called = _is(tokens, at + 1, TokenType.L_PAREN) and token.token_type not in QUOTED
        if called and name in ("floor", "try_cast", "substring", "substr"):
            end = closing(tokens, at + 1)
            done += _respelled(name, token, _rewritten(tokens[at + 2 : end]))
            at = end
        else:
            done.append(token)
        at += 1
    return done


def _respelled(name: str, token: Token, inside: list[Token]) -> list[Token]:
    """Respell a function with a special syntax as a plain call."""
    opened, closed = _word(token, "(", TokenType.L_PAREN), _word(token, ")", TokenType.R_PAREN)
    comma = _word(token, ",", TokenType.COMMA)
    if name == "try_cast":
        return [_word(token, f"{_MARK}try_cast"), opened, _word(token, "CAST"), opened, *inside, closed, closed]
    if name == "floor" and len(inside) > 2 and inside[-2].text.upper() == "TO":
        unit = _word(token, inside[-1].text.lower(), TokenType.STRING)
        return [_word(token, f"{_MARK}date_trunc"), opened, unit, comma, *inside[:-2], closed]
    if name.startswith("sub"):
        inside = [comma if word.token_type in (TokenType.FROM, TokenType.FOR) else word for word in inside]
    return [token, opened, *inside, closed]


def _opaque(tokens: Sequence[Token]) -> list[Token]:
    """Functions under names that sqlglot does not know; WINDOW, a column of Spark's, as a plain word."""
    done = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        called = after is not None and after.token_type == TokenType.L_PAREN and token.token_type not in QUOTED
        names = token.token_type == TokenType.VAR or token.text.lower() in WINDOW_NAMES
        callable_ = names or token.token_type in Spark.Parser.FUNC_TOKENS
        behind = before.token_type if before is not None else None
        is_type = token.token_type in Spark.Parser.TYPE_TOKENS and behind in _BEFORE_TYPE
        is_unchanged = token.text.lower() in _AS_THEY_ARE or token.text.startswith(_MARK) or is_type
        subquery = token.token_type in Spark.Parser.SUBQUERY_PREDICATES and behind in _TAKES_SUBQUERY
        operator = token.token_type in _OPERATORS
        is_defined = before is not None and before.token_type in (TokenType.WITH, TokenType.TABLE, TokenType.VIEW)
        if called and callable_ and not (is_unchanged or subquery or operator or is_defined):
            token = _word(token, _MARK + token.text)
        elif token.token_type == TokenType.WINDOW:
            token = _word(token, token.text)
        done.append(token)
    return done


def function_of(name: str) -> str:
    """A function's name in lower case, without the mark that it was hidden under."""
    return name.removeprefix(_MARK).lower()


def tree_of(tokens: list[Token], text: str) -> exp.Expr:
    """The tree of one statement's words. Raises :class:`Refused`."""
    parser = Spark().parser(error_level=ErrorLevel.IMMEDIATE, error_message_context=10 * LIMITS.bytes)
    try:
        trees = parser.parse(tokens, text)
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        near, at = str(details.get("highlight") or ""), len(str(details.get("start_context") or ""))
        message = f"the statement cannot be read near {shown_text(near)}" if near else "the statement cannot be read"
        raise Refused("HDL-146", message, "is it of the other dialect?", at) from None
    except RecursionError:
        raise
    except Exception as error:
        # a slip of sqlglot's costs its own statement alone
        raise Refused("HDL-146", f"the statement cannot be read ({type(error).__name__})", "write it plainer") from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise Refused("HDL-146", "this is not a single statement", "", tokens[0].start if tokens else 0)
    return tree


# ----------------------------------------------------------------------------------------- statements
@dataclass(frozen=True)
class Head:
    """The words before a query: the table that receives its rows, by the parts of its name (empty: none), and column
    names.
    """

    parts: tuple[str, ...]
    columns: tuple[str, ...]
    is_view: bool

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self.parts[-1] if self.parts else ""


_IGNORED = (
    *("SET", "RESET", "USE", "DROP", "SHOW", "DESCRIBE", "DESC", "ADD", "REMOVE", "LOAD", "UNLOAD"),
    *("BEGIN", "END", "REFRESH", "CACHE", "UNCACHE", "ANALYZE", "EXPLAIN"),
    *("ALTER", "CALL", "COMMENT", "GRANT"),
)

_POLICIES = (
    *("ADD_CONTINUOUS_AGGREGATE_POLICY", "REMOVE_CONTINUOUS_AGGREGATE_POLICY", "ADD_RETENTION_POLICY"),
    *("ADD_COMPRESSION_POLICY", "ADD_COLUMNSTORE_POLICY", "CREATE_HYPERTABLE", "SET_CHUNK_TIME_INTERVAL", "ADD_JOB"),
)
"""Functions of TimescaleDB that are called for what they do."""


def cut_head(tokens: list[Token]) -> tuple[Head, list[Token]]:
    """Split a statement into its head and the words of its query. Raises HDL-140 for a statement without a query."""
    words = [token.text.upper() for token in tokens[:12]]
    first = words[0] if words else ""
    begin = _query(tokens) if first in ("INSERT", "CREATE") else None
    if first == "SELECT" and len(words) > 2 and words[1] in _POLICIES and words[2] == "(":
        raise Refused(LEFT_OUT, f"{words[1].lower()} is left out", _policy_hint(tokens), tokens[0].start)
    if [token.text.upper() for token in tokens[-3:]] == ["WITH", "NO", "DATA"]:
        tokens = tokens[:-3]
    if first in ("SELECT", "WITH", "("):
        return Head((), (), False), tokens
    if first in _IGNORED or (first == "CREATE" and begin is None):
        raise Refused(LEFT_OUT, f"{first} is no query: left out", _hint(words), tokens[0].start)
    if begin is None or first not in ("INSERT", "CREATE"):
        message = f"{shown_text(tokens[0].text)} begins no statement that is read"
        hint = "SELECT, WITH, INSERT INTO … SELECT and CREATE VIEW … AS SELECT are"
        raise Refused("HDL-146", message, hint, tokens[0].start)
    return _target(tokens[:begin]), tokens[begin:]


def _policy_hint(tokens: Sequence[Token]) -> str:
    """The times of a policy in Heddle's words."""
    times: dict[str, str] = {}
    for at, token in enumerate(tokens):
        if _is(tokens, at + 1, TokenType.FARROW):
            rest = [word.text for word in tokens[at + 2 : at + 5] if word.token_type == TokenType.STRING]
            times[token.text.lower()] = rest[0] if rest else ""
    schedule, end = times.get("schedule_interval", ""), times.get("end_offset", "")
    parts = [f"run it every {schedule[:40]}"] * bool(schedule) + [f"set lateness: {end[:40]} of the stream"] * bool(end)
    return "; ".join(parts) or "nothing has to be done"


def _hint(words: Sequence[str]) -> str:
    if "CREATE" in words and "TABLE" in words:
        return "declare where its events come from in streams.yaml"
    return "nothing has to be done if no query depends on it"


def _query(tokens: Sequence[Token]) -> int | None:
    """Index at which the query begins: the first SELECT or WITH outside parentheses, after AS for CREATE."""
    depth = 0
    creates = tokens[0].text.upper() == "CREATE"
    for at, token in enumerate(tokens):
        kind = token.token_type
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(kind, 0)
        is_with = kind == TokenType.WITH and (not creates or tokens[at - 1].text.upper() == "AS")
        opens = kind == TokenType.L_PAREN and _is(tokens, at + 1, TokenType.SELECT)
        if ((kind == TokenType.SELECT or is_with) and not depth) or (opens and depth == 1):
            return at
    return None


_BEFORE_NAME = (
    *("INSERT", "INTO", "OVERWRITE", "TABLE", "CREATE", "OR", "REPLACE", "GLOBAL", "TEMPORARY", "TEMP"),
    *("MATERIALIZED", "VIEW", "IF", "NOT", "EXISTS", "LIVE", "STREAMING"),
)


def _target(tokens: Sequence[Token]) -> Head:
    """The table or view that a query's rows go to: the last part of its name, and the columns behind it."""
    at = 0
    is_view = False
    while at < len(tokens) and tokens[at].text.upper() in _BEFORE_NAME and tokens[at].token_type not in QUOTED:
        is_view |= tokens[at].text.upper() in ("VIEW", "CREATE")
        at += 1
    first = at
    while _is(tokens, at + 1, TokenType.DOT):
        at += 2
    if at >= len(tokens):
        raise Refused("HDL-146", "the statement does not name its table", "", tokens[0].start)
    columns: list[str] = []
    if _is(tokens, at + 1, TokenType.L_PAREN):
        inside = tokens[at + 2 : closing(tokens, at + 1)]
        columns = [argument[0].text for argument in split_arguments(inside) if argument]
    parts = tuple(token.text for token in tokens[first : at + 1 : 2])
    return Head(parts, tuple(columns), is_view)


_STATEMENT_SET = re.compile(r"\s*(EXECUTE\s+STATEMENT\s+SET(\s+BEGIN\b)?|BEGIN\s+STATEMENT\s+SET)\s*", re.IGNORECASE)


def without_statement_set(text: str) -> str:
    """The text with Flink's ``EXECUTE STATEMENT SET BEGIN`` blanked, so that its statements are read one by one."""
    match = _STATEMENT_SET.match(text)
    if text.strip().upper() == "END":
        return ""
    return " " * match.end() + text[match.end() :] if match else text


def places(tokens: Sequence[Token]) -> dict[str, int]:
    """Offset of the first occurrence of each word, by the word in lower case."""
    offsets: dict[str, int] = {}
    for token in tokens:
        offsets.setdefault(token.text.lower(), token.start)
    return offsets
