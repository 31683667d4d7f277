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
from optimizer.workload.grouping_sets import grouping_column
from optimizer.workload.notation import written
from optimizer.workload.predicates import tidied
from optimizer.workload.values import BOOLEAN, DOUBLE, LONG, Column, Expression, Type, columns_of

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)

MOST_SETS = 64
"""Grouping sets of a query."""

GROUPING_ID = "grouping_id"
"""The function that returns the number of an answer's grouping set, and its name in answers that give it none."""


@dataclass(frozen=True)
class Grouping:
    """Group columns with their types, in order; those before the first mistake if it is not ``complete``.

    ``derived``: the expressions of those that are none of the stream's, by the text that is their name; ``sets``: the
    columns of each grouping set, if there are several. Their number then is the last column.
    """

    columns: dict[str, Type]
    complete: bool
    derived: dict[str, Expression] = field(default_factory=dict)
    sets: tuple[tuple[str, ...], ...] = ()

    def name_of(self, node: exp.Expr, scope: Scope) -> str | None:
        """The group column that an item of SELECT is, other than by its name; None if it is none."""
        if self.sets and function_name(node, scope.text) == GROUPING_ID:
            if node.expressions:
                refuse("HDL-104", "grouping_id takes no arguments", "write grouping_id()", node)
            return grouping_column(self.sets)
        if not self.derived or is_name(node) or _has_aggregate(node, scope):
            return None
        name = written(_value(node, scope)[0])
        return name if name in self.columns else None


def answer_name(column: str) -> str:
    """The name in the answers of a group column that is given none."""
    if column.startswith(f"{GROUPING_ID}("):
        return GROUPING_ID
    name = re.sub(r"\W+", "_", shown_column(last_name(column)), flags=re.ASCII).strip("_")[:64]
    return name if name.isidentifier() else f"group_{name}"[:64]


def read_grouping(tree: exp.Select, scope: Scope, findings: Findings) -> Grouping:
    """Read GROUP BY; mistakes in it are added to the findings."""
    group = tree.args.get("group")
    columns: dict[str, Type] = {}
    derived: dict[str, Expression] = {}
    if group is None:
        return Grouping(columns, complete=True)
    complete, sets = False, list[frozenset[str]]()
    with findings.collecting():
        if group.args.get("all") and group.expressions:
            refuse("HDL-206", "ALL is all of GROUP BY", "write GROUP BY ALL, or name the columns", group)
        for nodes in _alternatives(group, _items_without_aggregates(tree, scope) if group.args.get("all") else None):
            chosen = set[str]()
            for node in nodes:
                column, type_, expression = _group_column(node, tree, scope)
                if column in chosen and len(nodes) > 1 and not sets and not _sets_of(group):
                    refuse("HDL-206", f"{shown_column(column)} is grouped by twice", "", node)
                chosen.add(column)
                columns[column] = type_
                if expression is not None:
                    derived[column] = expression
            sets.append(frozenset(chosen))
        most = scope.limits.group_columns
        if len(columns) > most:
            message = f"{len(columns)} group columns; the limit is {most}"
            refuse("HDL-309", message, "", group.expressions[most] if len(group.expressions) > most else group)
        complete = True
    return _grouping(columns, derived, complete, sets)


def _grouping(
    columns: dict[str, Type], derived: dict[str, Expression], complete: bool, sets: Sequence[frozenset[str]]
) -> Grouping:
    """A grouping by one or several sets of columns."""
    if len(sets) < 2 or not complete:
        return Grouping(columns, complete, derived)
    # in an order of their own, so that the same sets are the same query
    distinct = tuple(tuple(name for name in columns if name in names) for names in dict.fromkeys(sets))
    distinct = tuple(sorted(distinct, key=lambda names: [name not in names for name in columns]))
    if len(distinct) == 1:
        return Grouping(columns, complete, derived)
    return Grouping({**columns, grouping_column(distinct): LONG}, complete, derived, distinct)


def _sets_of(group: exp.Expr) -> list[exp.Expr]:
    """ROLLUP, CUBE and GROUPING SETS of a GROUP BY; those of WITH ROLLUP and WITH CUBE have no expressions."""
    behind = [node for name in ("rollup", "cube", "grouping_sets") for node in group.args.get(name) or ()]
    return [*behind, *(node for node in group.expressions if type(node) in _SETS)]


def _alternatives(group: exp.Expr, all_items: list[exp.Expr] | None) -> list[list[exp.Expr]]:
    """The expressions of each grouping set; one of a plain GROUP BY."""
    nodes, several = group.expressions if all_items is None else all_items, _sets_of(group)
    if len(several) == 1 and several[0] not in group.expressions:
        # GROUP BY a, b WITH ROLLUP
        return _bounded(_expanded(several[0], nodes), group)
    alternatives: list[list[exp.Expr]] = [[]]
    for node in nodes:
        choices = _expanded(node, node.expressions) if type(node) in _SETS else [[node]]
        alternatives = _bounded([[*chosen, *more] for chosen in alternatives for more in choices], group)
    return alternatives


def _bounded(alternatives: list[list[exp.Expr]], group: exp.Expr) -> list[list[exp.Expr]]:
    if len(alternatives) > MOST_SETS:
        message = f"{len(alternatives)} grouping sets; the limit is {MOST_SETS}"
        refuse("HDL-309", message, "name those that are needed: GROUPING SETS ((a, b), (a), ())", group)
    return alternatives


def _expanded(node: exp.Expr, nodes: Sequence[exp.Expr]) -> list[list[exp.Expr]]:
    """The grouping sets of a ROLLUP, a CUBE or GROUPING SETS over some expressions."""
    if any(type(part) in _SETS for part in nodes):
        refuse(
            "HDL-206", "grouping sets inside others are not allowed", "name all sets: GROUPING SETS ((a, b), ())", node
        )
    each = [_members(part) for part in nodes]
    if type(node) is exp.GroupingSets:
        return each
    if type(node) is exp.Cube and len(each) > MOST_SETS.bit_length() - 1:
        message = f"a CUBE of {len(each)} columns has more than {MOST_SETS} grouping sets"
        refuse("HDL-309", message, "name those that are needed: GROUPING SETS ((a, b), (a), ())", node)
    sizes = range(len(each), -1, -1)
    chosen = (
        [each[:size] for size in sizes]
        if type(node) is exp.Rollup
        else [combination for size in sizes for combination in itertools.combinations(each, size)]
    )
    return [[part for members in sets for part in members] for sets in chosen]


def _members(node: exp.Expr) -> list[exp.Expr]:
    """The expressions of a grouping set: of ``(a, b)`` two, of ``()`` none, of ``a`` one."""
    if type(node) is exp.Tuple:
        return list(node.expressions)
    return [node]


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
