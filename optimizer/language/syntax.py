"""The clauses of stock SQL, as sqlglot parses them: a plain SELECT over one stream, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.tokens import Token, TokenType

from optimizer.language.nodes import refuse
from optimizer.language.refusals import QUOTED, Findings, Refused, shown_text
from optimizer.language.words import (
    CLAUSES,
    LEFT_OUT,
    OPAQUE,
    READ_BY_SQLGLOT,
    SOURCES,
    Limits,
    did_you_mean,
    resolve_name,
)
from optimizer.workload.streams import has_columns
from optimizer.workload.values import Stream


def parse_select(tokens: Sequence[Token], text: str, limits: Limits, findings: Findings) -> exp.Select:
    """The tree of a statement without our own clauses; raises the last refusal, after telling the others."""
    trees = _parse(tokens, text, limits)
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Select):
        raise Refused("HDL-103", "this is not a plain SELECT", "one SELECT over one stream", tokens[0].start)
    refused = []
    for name, value in tree.args.items():
        if value and name not in ("expressions", "from_", "where", "group", "having", "order", "limit", "joins"):
            word, message, hint = CLAUSES.get(name, ("", f"{name} is not allowed", SOURCES))
            at = next((token.start for token in tokens if word and token.text.upper() == word), tokens[0].start)
            refused.append(Refused("HDL-103", message, hint, at))
    if refused:
        *earlier, last = sorted(refused, key=lambda refusal: refusal.at)
        findings.problems.extend(earlier)
        raise last
    return tree


def _parse(tokens: Sequence[Token], text: str, limits: Limits) -> list[exp.Expr | None]:
    # so much context that the length of start_context is the position of the error
    parser = Spark().parser(error_level=ErrorLevel.IMMEDIATE, error_message_context=10 * limits.bytes)
    try:
        return parser.parse(_with_opaque_names(tokens), text)
    except ParseError as error:
        raise _unreadable(error) from None
    except RecursionError:
        raise Refused("HDL-303", "expressions are nested too deeply", "remove parentheses") from None
    except Exception as error:
        # a slip of sqlglot's on text that nobody means: it costs its own query alone
        raise Refused("HDL-101", f"the query cannot be read ({type(error).__name__})", "write it plainer") from None


def _unreadable(error: ParseError) -> Refused:
    details = error.errors[0] if error.errors else {}
    near, description = str(details.get("highlight") or ""), str(details.get("description") or "")
    message = f"the query cannot be read near {shown_text(near)}" if near else "the query cannot be read"
    if description.startswith("Expecting"):
        message += f": {description[0].lower()}{description[1:]}"
    elif description.startswith("The number of provided arguments"):
        message += ": too many arguments"
    elif description.startswith("Required keyword"):
        message += ": something is missing"
    hint = (
        "double quotes hold text: write AS before a name in quotes, or the name without them" if near[:1] == '"' else ""
    )
    return Refused("HDL-101", message, hint, len(str(details.get("start_context") or "")))


def _with_opaque_names(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with functions of the language renamed to names that sqlglot does not know.

    sqlglot interprets many of them: it drops a third argument of percentile, reads any(x) as a quantifier and loses the
    position of min_by. Under an unknown name each becomes a plain call with all of its arguments.
    """
    opaque = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        called = after is not None and after.token_type == TokenType.L_PAREN and token.token_type not in QUOTED
        quantifier = before is not None and before.token_type in (TokenType.LIKE, TokenType.ILIKE)
        # any other function too: it has shortcuts of its own for a thousand, some double their work at every level
        function = token.token_type == TokenType.VAR and token.text.upper() != "GROUP"  # WITHIN GROUP (ORDER BY x)
        known = token.text.lower() not in READ_BY_SQLGLOT
        if called and known and not quantifier and (function or token.text.lower() in OPAQUE):
            token = Token(TokenType.VAR, "=" + token.text, token.line, token.col, token.start, token.end)
        opaque.append(token)
    return opaque


def stream_of(tree: exp.Select, streams: Mapping[str, Stream], unreadable: Collection[str]) -> Stream:
    """The stream that FROM names."""
    source = tree.args.get("from_")
    if source is None:
        # the word stands somewhere, as something else
        raise Refused("HDL-101", "the query has no FROM", SOURCES)
    table = source.this
    if type(table) is not exp.Table or not isinstance(table.this, exp.Identifier):
        refuse("HDL-103", "FROM takes the name of a stream", SOURCES, source)
    for name, value in table.args.items():
        if value and name != "this" and not (name == "alias" and tree.args.get("joins")):
            what = {"db": "paths and qualified names", "alias": "aliases of streams"}.get(name, name)
            refuse("HDL-103", f"{what}: not allowed in FROM", SOURCES, table)
    name = resolve_name(table.name, streams)
    if name is None and (declared := resolve_name(table.name, unreadable)) is not None:
        refuse(LEFT_OUT, f"stream {declared} cannot be read", "the error above says what is wrong", table)
    if name is None:
        dimensions = {dimension.name for stream in streams.values() for dimension in stream.dimensions}
        if resolve_name(table.name, dimensions) is not None:
            hint = f"write FROM <stream> JOIN {table.name} USING (<key>)"
            refuse("HDL-201", f"{shown_text(table.name)} is a dimension, not a stream", hint, table)
        hint = did_you_mean(table.name, streams, "streams") or "declare it in streams.yaml"
        refuse("HDL-201", f"there is no stream {shown_text(table.name)}", hint, table)
    stream = streams[name]
    if not has_columns(stream):
        message = f"the columns of stream {stream.name} are not known"
        refuse("HDL-213", message, "give it a `schema` in streams.yaml", table)
    return stream
