"""The words of a statement, counted and checked before any recursive code sees them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from optimizer.language.foreign_windows import native_windows
from optimizer.language.refusals import Refused, shown_text
from optimizer.language.words import CALLABLE, FORBIDDEN, FORMS, OPAQUE, OPERANDS, SOURCES, Limits, did_you_mean
from optimizer.workload.nested import DEEPEST

_INDEXED = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_BRACKET}


def guarded_tokens(text: str, limits: Limits) -> list[Token]:
    """The words of a statement whose comments are blanked. Linear in the text; raises :class:`Refused`."""
    tokens = counted_tokens(text, limits)
    first = tokens[0]
    if first.token_type == TokenType.WITH:
        raise Refused("HDL-103", "common table expressions are not allowed", SOURCES, first.start)
    if first.token_type != TokenType.SELECT:
        raise Refused("HDL-102", f"a query starts with SELECT, not {shown_text(first.text)}", "", first.start)
    check_nesting(tokens, limits)
    _check_paths(tokens)
    tokens = native_windows(tokens)
    for before, token, after in zip([None, *tokens[:-1]], tokens, [*tokens[1:], None], strict=True):
        _check_characters(token, text, limits)
        _check_kind(token, after, is_first=token is first)
        names_type = before is not None and before.token_type in (TokenType.ALIAS, TokenType.DCOLON)
        if names_type and after is not None and after.token_type == TokenType.LT:
            raise Refused("HDL-103", "values are cast to plain types", "CAST(x AS double)", token.start)
        if not (names_type and token.token_type == TokenType.DECIMAL):
            _check_call(token, after)
    return tokens


def counted_tokens(text: str, limits: Limits) -> list[Token]:
    """The words of a text, once their number and size are known to be permitted; raises :class:`Refused`."""
    size = len(text.encode(errors="surrogatepass"))
    if size > limits.bytes:
        raise Refused("HDL-301", f"the query has {size} bytes, the limit is {limits.bytes}", "split it")
    try:
        tokens = Spark().tokenize(text)
    except TokenError:
        raise Refused("HDL-101", "this text cannot be split into words", "look for stray quotes") from None
    # our own comments are blanked: what is left are those of other languages
    if not tokens or any(token.comments for token in tokens):
        raise Refused("HDL-103", "templates are not allowed", "write the value", max(text.find("{"), 0))
    if len(tokens) > limits.tokens:
        raise Refused("HDL-302", f"the query has {len(tokens)} words, the limit is {limits.tokens}", "split it")
    return tokens


def check_nesting(tokens: Sequence[Token], limits: Limits) -> None:
    """Bound recursion before any recursive code runs: parentheses, and prefix operators not yet ended."""
    prefixes, total, connectives = [0], 0, 0
    opened: list[Token] = []
    previous: Token | None = None
    for token in tokens:
        kind = token.token_type
        if kind in (TokenType.L_PAREN, TokenType.CASE):
            prefixes.append(0)
            opened.append(token)
        elif kind == TokenType.END and opened and opened[-1].token_type == TokenType.CASE:
            opened.pop()
            total -= prefixes.pop()
        elif kind == TokenType.R_PAREN:
            if opened and opened[-1].token_type == TokenType.CASE:
                raise Refused("HDL-101", "this CASE is never ended", "close it with END", opened[-1].start)
            if not opened:
                raise Refused("HDL-101", "this parenthesis was never opened", "remove it", token.start)
            opened.pop()
            total -= prefixes.pop()
        elif kind in (TokenType.AND, TokenType.OR, TokenType.COMMA, TokenType.WHEN, TokenType.THEN, TokenType.ELSE):
            connectives += 1
            total -= prefixes[-1]
            prefixes[-1] = 0
        elif kind == TokenType.NOT or (
            kind in (TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
            and (previous is None or previous.token_type not in OPERANDS)
        ):
            prefixes[-1] += 1
            total += 1
        if len(opened) + total > limits.depth:
            message = f"expressions are nested more than {limits.depth} deep here"
            raise Refused("HDL-303", message, "remove parentheses", token.start)
        if connectives > limits.connectives:
            message = f"the query has more than {limits.connectives} ANDs, ORs and commas"
            raise Refused("HDL-304", message, "use IN or BETWEEN, or split the query", token.start)
        previous = token
    if opened:
        is_case = opened[-1].token_type == TokenType.CASE
        message = "this CASE is never ended" if is_case else "this parenthesis is never closed"
        raise Refused("HDL-101", message, "close it with END" if is_case else "close it", opened[-1].start)


def _check_paths(tokens: Sequence[Token]) -> None:
    """Check that brackets follow a name and contain one constant; limit the number of consecutive dots and brackets."""
    steps, number = 0, 0
    hint = "write m['key'] or a[0]; names that are words of SQL stand in backticks"
    while number < len(tokens):
        token, before = tokens[number], tokens[number - 1] if number else None
        number += 1
        if token.token_type == TokenType.DOT:
            steps += 1
        elif token.token_type == TokenType.L_BRACKET:
            steps += 1
            is_field = number > 2 and tokens[number - 3].token_type == TokenType.DOT
            if before is None or not (is_field or before.token_type in _INDEXED):
                raise Refused("HDL-103", "brackets follow the name of a column", hint, token.start)
            number += number < len(tokens) and tokens[number].token_type == TokenType.DASH
            kinds = [token.token_type for token in tokens[number : number + 2]]
            if kinds not in ([TokenType.STRING, TokenType.R_BRACKET], [TokenType.NUMBER, TokenType.R_BRACKET]):
                raise Refused("HDL-103", "brackets hold one text or whole number", hint, token.start)
            number += 2
        elif before is None or before.token_type != TokenType.DOT:
            steps = 0
        if steps > DEEPEST + 1:
            raise Refused("HDL-303", f"names are nested more than {DEEPEST} deep here", "", token.start)


def _check_characters(token: Token, text: str, limits: Limits) -> None:
    if len(token.text) > limits.literal:
        message = f"a word or literal of {len(token.text)} characters; the limit is {limits.literal}"
        raise Refused("HDL-305", message, "", token.start)
    if token.token_type in FORBIDDEN:
        raise Refused("HDL-103", *FORBIDDEN[token.token_type], token.start)


def _check_kind(token: Token, after: Token | None, is_first: bool) -> None:
    if token.token_type == TokenType.SELECT and not is_first:
        hint = "one SELECT over one stream: no subqueries, no UNION"
        raise Refused("HDL-103", "subqueries and set operations are not allowed", hint, token.start)
    if token.token_type == TokenType.STRING and "${" in token.text:
        raise Refused("HDL-103", "substitutions are not allowed in strings", "write the value", token.start)
    if token.token_type == TokenType.COMMA and after is not None and after.token_type == TokenType.FROM:
        raise Refused("HDL-101", "nothing follows this comma", "remove it", token.start)
    if token.token_type == TokenType.IDENTIFIER and not token.text:
        raise Refused("HDL-101", "this name is empty", "write a name between the quotes", token.start)


def _check_call(token: Token, after: Token | None) -> None:
    if after is None or after.token_type != TokenType.L_PAREN:
        return
    if token.text.lower() in ("convert", "transform"):
        hint = "a cast is written CAST(x AS type)"
        raise Refused("HDL-103", f"{token.text} is not allowed", hint, token.start)
    # sqlglot reads what may be a type twice, and what is inside it again twice: 2^depth times in all
    if token.token_type in Spark.Parser.TYPE_TOKENS and token.text.lower() not in OPAQUE:
        hint = did_you_mean(token.text, [*FORMS, *CALLABLE], "functions")
        raise Refused("HDL-104", f"there is no function {shown_text(token.text)}", hint, token.start)
