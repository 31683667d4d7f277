"""Double quotes: text, as in Spark, where a reader from PostgreSQL, DuckDB or Snowflake means a column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlglot.tokens import Token, TokenType

from optimizer.language.refusals import Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.words import resolve_name

CODE = "HDL-243"
"""Code of a double-quoted text that is also the name of a column or an output."""

_LITERAL_ONLY = (TokenType.ALIAS, TokenType.L_BRACKET)
"""Words after which a text names an output (``AS "total"``) or a key of a map (``tags["os"]``)."""

_CLAUSES_OF_OUTPUTS = (TokenType.HAVING, TokenType.ORDER_BY)
"""Clauses in which the name of an output has a meaning."""


def quoted_names(tokens: Sequence[Token], scope: Scope, outputs: Collection[str]) -> Iterable[Refused]:
    """Yield a refusal for each double-quoted text that is also a name where a name may stand.

    Parameters
    ----------
    tokens
        All words of the statement.
    outputs
        Names that the SELECT list gives to outputs. They count in HAVING and ORDER BY.
    """
    columns = [*scope.schema, *dict(scope.stream.nested)]
    outputs_known, in_sequence = False, False
    for before, token in zip([None, *tokens], tokens, strict=False):
        outputs_known |= token.token_type in _CLAUSES_OF_OUTPUTS
        in_sequence = _is_in_sequence(in_sequence, before, token)
        is_literal = in_sequence or (before is not None and before.token_type in _LITERAL_ONLY)
        if is_literal or token.token_type != TokenType.STRING or scope.text[token.start] != '"':
            continue
        name, of = resolve_name(token.text, columns), f"a column of stream {scope.stream.name}"
        if name is None and outputs_known:
            name, of = resolve_name(token.text, outputs), "an output of this query"
        if name is not None:
            message = f'"{shown_text(token.text)[1:-1]}" in double quotes is text here, and {name} is {of}'
            hint = f"write {_as_name(name)} for the name, or '{token.text}' for the text"
            yield Refused(CODE, message, hint, token.start)


def _is_in_sequence(in_sequence: bool, before: Token | None, token: Token) -> bool:
    """Return whether a word is between the parentheses of SEQ, which contain event types."""
    if before is not None and before.text.upper() == "SEQ" and token.token_type == TokenType.L_PAREN:
        return True
    return in_sequence and token.token_type != TokenType.R_PAREN


def _as_name(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
