"""Helpers for nodes of sqlglot's tree: their position, their text, and a check for unexpected parts."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from optimizer.language.refusals import Refused, shown_text
from optimizer.language.words import CALLABLE, FORMS, MEANT, NAMES_OF_SYNTAX, did_you_mean


def place_of(node: exp.Expr) -> int:
    """The offset in the statement where a node begins."""
    # TRUE and NULL have no place of their own: what they stand in has
    for near in (node, node.parent):
        starts = [part.meta["start"] for part in near.walk() if "start" in part.meta] if near else []
        if starts:
            return min(starts)
    return 0


def refuse(code: str, message: str, hint: str, node: exp.Expr) -> NoReturn:
    """Refuse a node, at its place in the text."""
    raise Refused(code, message, hint, place_of(node))


def refuse_unknown(node: exp.Expr, text: str) -> NoReturn:
    """Say why a node is not of the language."""
    if type(node) in NAMES_OF_SYNTAX:
        what, hint = NAMES_OF_SYNTAX[type(node)]
        refuse("HDL-103", f"{what} is not allowed here", hint, node)
    name = function_name(node, text)
    if name is None:
        refuse("HDL-103", f"{type(node).__name__.lower()} is not allowed here", "", node)
    hint = did_you_mean(name, [*FORMS, *CALLABLE], "functions")
    if name in MEANT:
        hint = f"did you mean {MEANT[name]}?"
    refuse("HDL-104", f"there is no function {shown_text(name)}", hint, node)


def function_name(node: exp.Expr, text: str) -> str | None:
    """The function's name as written: sqlglot maps many names to one node, the language does not."""
    if not isinstance(node, exp.Func) or "start" not in node.meta:
        return None
    if "name" in node.meta:
        return str(node.meta["name"])
    return text[node.meta["start"] : node.meta["end"] + 1].lower()


def put_in_session_lengths(tree: exp.Select, text: str, time: str) -> None:
    """Replace ``session_length()`` by ``max(t) - min(t)``, the seconds from a session's first event to its last."""
    for call in list(tree.find_all(exp.Anonymous)):
        if function_name(call, text) != "session_length" or call.expressions:
            continue
        bounds = [exp.Anonymous(this=name, expressions=[exp.column(time)]) for name in ("max", "min")]
        for bound in bounds:
            bound.meta.update({**call.meta, "name": bound.name})
        length: exp.Expr = exp.Sub(this=bounds[0], expression=bounds[1])
        if call.parent is tree and call.arg_key == "expressions":
            call.replace(exp.alias_(length, "session_length"))
        else:
            call.replace(exp.Paren(this=length))


def only_argument(node: exp.Expr, *names: str) -> exp.Expr:
    """Refuse a node with an argument that is not expected; its first expected argument."""
    for name, value in node.args.items():
        if value and name not in names:
            refuse("HDL-103", f"{name} is not allowed here", "", node)
    return node.args[names[0]]


def call_arguments(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call of a name that sqlglot does not know."""
    only_argument(node, "this", "expressions")
    return node.expressions


def is_name(node: exp.Expr) -> bool:
    """Return whether a node names a column, or a leaf of a nested one."""
    return type(node) in (exp.Column, exp.Bracket) or (
        type(node) is exp.Dot and type(node.expression) is exp.Identifier
    )


def without_parentheses(node: exp.Expr) -> exp.Expr:
    """The node inside some parentheses."""
    while type(node) is exp.Paren:
        node = node.this
    return node


def is_constant(node: exp.Expr) -> bool:
    """Return whether an expression is a literal, at most cast or negated."""
    while type(node) in (exp.Paren, exp.Neg):
        node = node.this
    return type(node) in (exp.Literal, exp.Boolean, exp.Null, exp.Cast, exp.TryCast)
