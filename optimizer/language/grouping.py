"""Read the GROUP BY clause: columns and expressions with their types, also by names of outputs and positions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from optimizer.language.expressions import ExpressionReader, settled
from optimizer.language.nodes import function_name, is_name, refuse, without_parentheses
from optimizer.language.refusals import NULL, Findings, shown_text
from optimizer.language.scope import Scope
from optimizer.language.words import FORMS, resolve_name
from optimizer.workload.attributes import last_name, shown_column
from optimizer.workload.notation import written
from optimizer.workload.predicates import tidied
from optimizer.workload.values import BOOLEAN, DOUBLE, Column, Expression, Type, columns_of

_SETS: dict[type[exp.Expr], str] = {exp.Rollup: "rollup", exp.Cube: "cube", exp.GroupingSets: "grouping sets"}


@dataclass(frozen=True)
class Grouping:
    """Group columns with their types, in order; those before the first mistake if it is not ``complete``.

    ``derived``: the expressions of those that are none of the stream's, by the text that is their name.
    """

    columns: dict[str, Type]
    complete: bool
    derived: dict[str, Expression] = field(default_factory=dict)

    def name_of(self, node: exp.Expr, scope: Scope) -> str | None:
        """The group column that an item of SELECT is, other than by its name; None if it is none."""
        if not self.derived or is_name(node) or _has_aggregate(node, scope):
            return None
        name = written(_value(node, scope)[0])
        return name if name in self.columns else None


def answer_name(column: str) -> str:
    """The name in the answers of a group column that is given none."""
    name = re.sub(r"\W+", "_", shown_column(last_name(column)), flags=re.ASCII).strip("_")[:64]
    return name if name.isidentifier() else f"group_{name}"[:64]


def read_grouping(tree: exp.Select, scope: Scope, findings: Findings) -> Grouping:
    """Read GROUP BY; mistakes in it are added to the findings."""
    group = tree.args.get("group")
    columns: dict[str, Type] = {}
    derived: dict[str, Expression] = {}
    if group is None:
        return Grouping(columns, complete=True)
    complete = False
    with findings.collecting():
        for name, value in group.args.items():
            if value and name not in ("expressions", "all"):
                _refuse_sets(name, [*group.expressions, *(value if isinstance(value, list) else ())], scope, tree)
        if group.args.get("all") and group.expressions:
            refuse("HDL-206", "ALL is all of GROUP BY", "write GROUP BY ALL, or name the columns", group)
        for node in _items_without_aggregates(tree, scope) if group.args.get("all") else group.expressions:
            column, type_, expression = _group_column(node, tree, scope)
            if column in columns:
                refuse("HDL-206", f"{shown_column(column)} is grouped by twice", "", node)
            columns[column] = type_
            if expression is not None:
                derived[column] = expression
        most = scope.limits.group_columns
        if len(columns) > most:
            message = f"{len(columns)} group columns; the limit is {most}"
            refuse("HDL-309", message, "", group.expressions[most] if group.expressions else group)
        complete = True
    return Grouping(columns, complete, derived)


def _items_without_aggregates(tree: exp.Select, scope: Scope) -> list[exp.Expr]:
    """The items of SELECT that GROUP BY ALL groups by: those that neither hold an aggregate nor name one that does."""
    computed: set[str] = set()
    items = []
    for item in tree.expressions:
        names = (node.name.lower() for node in item.walk() if type(node) is exp.Column and not scope.has(node.name))
        if _has_aggregate(item, scope) or any(name in computed for name in names):
            computed.add(item.alias.lower())
        else:
            items.append(_without_alias(item))
    return items


def _group_column(node: exp.Expr, tree: exp.Select, scope: Scope) -> tuple[str, Type, Expression | None]:
    """A group column: its name and type, and what it is computed of."""
    if type(node) in _SETS:
        _refuse_sets(_SETS[type(node)], node.expressions, scope, tree)
    target = _meant(without_parentheses(node), tree, scope)
    if is_name(target):
        column, type_ = scope.column(target)
        expression = None
    else:
        if _has_aggregate(target, scope):
            refuse("HDL-206", "GROUP BY takes no aggregate", "group by columns of the stream", node)
        expression, type_ = _value(target, scope)
        column = written(expression)
        if isinstance(expression, Column):
            column, expression = expression.name, None
        elif not any(columns_of(expression)):
            refuse("HDL-206", "grouping by a constant", "leave it out: there is one group", node)
        elif column in scope.schema:
            message = f"the stream has a column that is named {shown_text(column)}"
            refuse("HDL-206", message, "write the expression in another way", node)
    if column == scope.stream.time:
        hint = "the windows already divide time: choose RANGE and SLIDE"
        refuse("HDL-206", f"grouping by the time column {column}", hint, node)
    if type_ == DOUBLE:
        what = "column" if expression is None else "value"
        hint = "equal doubles are chance: group by an integer, decimal or string column, or CAST it to a decimal"
        refuse("HDL-206", f"grouping by the double {what} {shown_column(column)}", hint, node)
    return column, type_, expression


def _meant(node: exp.Expr, tree: exp.Select, scope: Scope) -> exp.Expr:
    """The node that a position or the name of an item of SELECT refers to; a column of the stream comes first."""
    items = tree.expressions
    if type(node) is exp.Literal and not node.is_string:
        if not node.this.isdigit() or not 1 <= int(node.this[:9]) <= len(items):
            refuse("HDL-206", f"SELECT has no item {shown_text(node.this)}", f"1 to {len(items)}", node)
        return _without_alias(items[int(node.this) - 1])
    if type(node) is exp.Column and not node.args.get("table") and not scope.has(node.name):
        aliases = {item.alias: item.this for item in items if type(item) is exp.Alias}
        name = resolve_name(node.name, aliases)
        if name is not None:
            return without_parentheses(aliases[name])
    return node


def _without_alias(item: exp.Expr) -> exp.Expr:
    return without_parentheses(item.this if type(item) is exp.Alias else item)


def _has_aggregate(node: exp.Expr, scope: Scope) -> bool:
    return any(function_name(inner, scope.text) in FORMS for inner in node.walk())


def _value(node: exp.Expr, scope: Scope) -> tuple[Expression, Type]:
    value, type_ = ExpressionReader(scope, scope.column).read(node)
    type_ = BOOLEAN if type_ == NULL else type_
    return tidied(settled(value, type_), scope.schema), type_


def _refuse_sets(word: str, nodes: Sequence[exp.Expr], scope: Scope, tree: exp.Select) -> None:
    """Refuse several groupings in one query, and suggest the equivalent queries."""
    starts = [[part.meta for part in node.walk() if "start" in part.meta] for node in nodes]
    names = [
        scope.text[min(m["start"] for m in offsets) : max(m["end"] for m in offsets) + 1]
        for offsets in starts
        if offsets
    ]
    sets: list[tuple[str, ...]] = []
    if word == "rollup":
        sets = [tuple(names[:count]) for count in range(len(names), -1, -1)]
    elif word == "cube" and len(names) <= 3:
        sets = [chosen for count in range(len(names), -1, -1) for chosen in itertools.combinations(names, count)]
    queries = "; ".join(f"GROUP BY {', '.join(columns)}" if columns else "no GROUP BY" for columns in sets)
    hint = "write a query for each grouping, they share their work" + (f": {queries}" if queries else "")
    refuse("HDL-206", f"GROUP BY {word.upper().replace('_', ' ')} is not allowed", hint, tree)
