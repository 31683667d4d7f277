"""Read the joins of a statement: dimensions, each by equality with its entire key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from optimizer.language.expressions import ExpressionReader, settled
from optimizer.language.joined import Joined
from optimizer.language.nodes import is_name, refuse, without_parentheses
from optimizer.language.refusals import NULL, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.words import LEFT_OUT, did_you_mean, resolve_name
from optimizer.workload.attribute_names import read_key
from optimizer.workload.attributes import DEEPEST_CHAIN, shown_key
from optimizer.workload.computed_keys import key_expression, key_name
from optimizer.workload.predicates import tidied
from optimizer.workload.values import STRING, Dimension, Type, columns_of

CODE = "HDL-464"
"""Code of a join that is none with a dimension by its key."""

MOST_JOINS = 8
"""Joins of a query."""

_FORM = "write JOIN <dimension> USING (<key>), or ON <stream>.<column> = <dimension>.<key>; LEFT JOIN keeps all events"

_CASTS = {"long": "bigint"}

_CONSTANT = "a condition on one table belongs in WHERE; ON compares the key with a value of each event"


def check_joins(tokens: Sequence[Token]) -> None:
    """Refuse more than :data:`MOST_JOINS` joins (HDL-464), before sqlglot takes long to nest those without a key."""
    places = [number for number, token in enumerate(tokens) if token.token_type == TokenType.JOIN]
    if len(places) > MOST_JOINS:
        at = tokens[min(places[MOST_JOINS] + 1, len(tokens) - 1)]
        raise Refused(CODE, f"{len(places)} joins; the limit is {MOST_JOINS}", "split the query", at.start)


def with_joins(tree: exp.Select, scope: Scope, unreadable: Collection[str], streams: Collection[str] = ()) -> Scope:
    """The scope with the dimensions that a statement joins; ``unreadable``: names of those that cannot be read,
    ``streams``: of the streams. Raises Refused (HDL-464).
    """
    source = tree.args["from_"].this
    scope = replace(scope, stream_alias=source.alias)
    joins: Sequence[exp.Join] = tree.args.get("joins") or ()
    for node in joins:
        scope = replace(scope, joins=(*scope.joins, _joined(node, scope, unreadable, streams)))
    return scope


def _joined(node: exp.Join, scope: Scope, unreadable: Collection[str], streams: Collection[str]) -> Joined:
    known = {dimension.name: dimension for dimension in scope.stream.dimensions}
    table, kind = node.this, " ".join(filter(None, (node.args.get(part) for part in ("method", "side", "kind"))))
    if kind.upper() not in ("", "INNER", "LEFT", "LEFT OUTER"):
        what = "a comma in FROM" if kind == "CROSS" and not _says(scope, node, "CROSS") else f"{kind.upper()} JOIN"
        refuse("HDL-103", f"{what} is not supported", _FORM, node)
    if type(table) is not exp.Table or not isinstance(table.this, exp.Identifier):
        refuse("HDL-103", "JOIN takes the name of a dimension", _FORM, node)
    if any(value and part not in ("this", "alias") for part, value in table.args.items()) or table.alias_column_names:
        refuse("HDL-103", "JOIN takes the plain name of a dimension", _FORM, node)
    dimension_name = resolve_name(table.name, known)
    if dimension_name is None and resolve_name(table.name, unreadable) is not None:
        message = f"dimension {table.name} cannot be read"
        refuse(LEFT_OUT, message, "the error above says what is wrong", table)
    if dimension_name is None and resolve_name(table.name, streams) is not None:
        hint = "write a query over each and join their answers: heddle sql; or declare the table below `dimensions:`"
        refuse("HDL-103", f"a join of two streams: {shown_text(table.name)} is one", hint, table)
    if dimension_name is None:
        hint = did_you_mean(table.name, known, "dimensions") or "declare it below `dimensions:` in streams.yaml"
        refuse("HDL-201", f"there is no dimension {shown_text(table.name)}", hint, table)
    dimension, name = known[dimension_name], table.alias or dimension_name
    tables = [scope.stream_alias or scope.stream.name, *(joined.name for joined in scope.joins)]
    if name.lower() in (table_name.lower() for table_name in tables):
        refuse(CODE, f"two tables are named {shown_text(name)}", f"write JOIN {dimension_name} AS another_name", node)
    if not dimension.schema:
        refuse("HDL-213", f"the columns of dimension {dimension_name} are not known", "give it a `schema`", node)
    # a join without a condition arrives as ON TRUE
    if not node.args.get("using") and type(node.args.get("on")) in (type(None), exp.Boolean):
        refuse(CODE, f"JOIN {shown_text(name)} says no key", _FORM, node)
    pairs = _using(node, dimension, scope) if node.args.get("using") else _on(node, name, dimension, scope)
    lacking = [key for key in dimension.key if key not in pairs]
    if lacking:
        hint = f"the key of {dimension_name} is ({', '.join(dimension.key)}): name all of it"
        refuse(CODE, f"JOIN {shown_text(name)} lacks the key {', '.join(lacking)}", hint, node)
    joined = Joined(name, dimension, tuple(pairs[key] for key in dimension.key), (node.side or "").upper() != "LEFT")
    plain = [*dict(scope.stream.schema), *dict(scope.stream.nested)]
    if any(f"{dimension_name}(" in column for column in plain) or any(map(read_key, {*plain} & {*joined.keys})):
        refuse(
            CODE, f"a column of {scope.stream.name} is named as attributes of {dimension_name} are", "rename it", node
        )
    if joined.attribute(None).depth > DEEPEST_CHAIN:
        refuse(CODE, f"more than {DEEPEST_CHAIN} dimensions in a chain", "join them before", node)
    return joined


def _says(scope: Scope, node: exp.Join, word: str) -> bool:
    start = node.this.this.meta.get("start", 0) if isinstance(node.this, exp.Table) else 0
    return word in scope.text[:start].upper().rsplit(",", 1)[-1]


def _using(node: exp.Join, dimension: Dimension, scope: Scope) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for identifier in node.args["using"]:
        key = _key(identifier.name, dimension, identifier)
        column, type_ = scope.column(exp.Column(this=identifier.copy()))
        _check_types(type_, dimension, key, column, node)
        pairs[key] = column
    return pairs


def _on(node: exp.Join, name: str, dimension: Dimension, scope: Scope) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for equality in _conjuncts(node.args["on"]):
        if type(equality) is not exp.EQ:
            hint = f"only equalities of keys, with AND between them: conditions on attributes belong in WHERE; {_FORM}"
            refuse(CODE, "ON takes equalities", hint, equality)
        sides = [without_parentheses(equality.this), without_parentheses(equality.expression)]
        for side in sides:
            _check_tables(side, name, scope)
        of_dimension = [_is_of(side, name, dimension, scope) for side in sides]
        if of_dimension == [True, True] or not any(of_dimension):
            for column in _columns_of(equality, name, dimension, scope) if not any(of_dimension) else ():
                refuse(
                    CODE, f"ON computes with a column of {name}: its key has to be one side by itself", _FORM, column
                )
            refuse(CODE, f"ON compares a value of {scope.stream.name} with a key of {name}", _FORM, equality)
        inner, outer = sides if of_dimension[0] else sides[::-1]
        key = _key(inner.name, dimension, inner)
        column, type_ = _outer(outer, name, dimension, scope)
        _check_types(type_, dimension, key, column, equality)
        if pairs.setdefault(key, column) != column:
            refuse(CODE, f"the key {shown_text(key)} is compared with two values", "a key equals one value", equality)
    return pairs


def _outer(node: exp.Expr, name: str, dimension: Dimension, scope: Scope) -> tuple[str, Type]:
    """The side of an equality that events have, by its name as a key, and its type."""
    if is_name(node):
        return scope.column(node)
    own = _columns_of(node, name, dimension, scope)
    if own:
        hint = f"only columns of {scope.stream.name} and of dimensions joined before can be computed with"
        refuse(CODE, f"a key of {name} is compared with a value of {name} itself", hint, own[0])
    value, type_ = ExpressionReader(scope, scope.column).read(node)
    type_ = STRING if type_ == NULL else type_
    expression = tidied(settled(value, type_), scope.schema)
    if not any(columns_of(expression)):
        refuse(CODE, "ON compares a key with a constant", _CONSTANT, node)
    column = key_name(expression)
    if key_expression(column) != expression:
        refuse("HDL-303", "the expression is too long for a key", "shorten it", node)
    return column, type_


def _columns_of(node: exp.Expr, name: str, dimension: Dimension, scope: Scope) -> list[exp.Expr]:
    """The columns in an expression that are of the dimension that is joined."""
    return [part for part in node.walk() if _is_of(part, name, dimension, scope)]


def _check_tables(node: exp.Expr, name: str, scope: Scope) -> None:
    """Refuse a column of a table that the query does not have."""
    for part in node.walk():
        _check_table(part, name, scope)


def _check_table(node: exp.Expr, name: str, scope: Scope) -> None:
    """Refuse a column of a table that the query does not have."""
    table = node.args.get("table") if type(node) is exp.Column and not node.args.get("db") else None
    known = [scope.stream_alias or scope.stream.name, *(joined.name for joined in scope.joins), name]
    is_nested = table is not None and resolve_name(table.name, dict(scope.stream.nested)) is not None
    if table is not None and not is_nested and resolve_name(table.name, known) is None:
        message = f"{shown_text(table.name)} is neither the stream of this query nor a dimension that it joins"
        refuse("HDL-202", message, did_you_mean(table.name, known, "tables"), table)


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    parts, pending = [], [node]
    while pending:
        part = without_parentheses(pending.pop())
        if type(part) is exp.And:
            pending += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def _is_of(node: exp.Expr, name: str, dimension: Dimension, scope: Scope) -> bool:
    """Return whether a side of an equality is a column of the dimension that is joined."""
    if type(node) is not exp.Column or not isinstance(node.this, exp.Identifier):
        return False
    table = node.args.get("table")
    if table is not None:
        return bool(table.name.lower() == name.lower())
    # a bare name is the dimension's where nothing before it has the name
    return resolve_name(node.name, dict(dimension.schema)) is not None and not scope.has(node.name)


def _key(name: str, dimension: Dimension, node: exp.Expr) -> str:
    key = resolve_name(name, dimension.key)
    if key is None:
        close = did_you_mean(name, dimension.key, "its key")
        hint = f"its key is ({', '.join(dimension.key)}); conditions on other columns belong in WHERE"
        hint = close if close.startswith("did you mean") else hint
        refuse(CODE, f"{shown_text(name)} is no key of dimension {dimension.name}", hint, node)
    return key


def _check_types(type_: Type, dimension: Dimension, key: str, column: str, node: exp.Expr) -> None:
    key_type = dimension.type_of(key)
    assert key_type is not None
    if (type_.name, type_.scale) != (key_type.name, key_type.scale):
        message = f"{shown_key(column)} is {type_}, and the key {key} of dimension {dimension.name} is {key_type}"
        hint = f"compare CAST(… AS {_CASTS.get(key_type.name, key_type)}), or declare both with one type in `schema`"
        refuse(CODE, message, hint, node)
