"""The GROUP BY clause: plain columns with their types."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from optimizer.language.nodes import refuse
from optimizer.language.refusals import Findings
from optimizer.language.scope import Scope
from optimizer.workload.values import DOUBLE, Type


@dataclass(frozen=True)
class Grouping:
    """Group columns with their types, in order; those before the first mistake if it is not ``complete``."""

    columns: dict[str, Type]
    complete: bool


def read_grouping(tree: exp.Select, scope: Scope, findings: Findings) -> Grouping:
    """What GROUP BY says; what is wrong with it goes to the findings."""
    group = tree.args.get("group")
    columns: dict[str, Type] = {}
    if group is None:
        return Grouping(columns, complete=True)
    complete = False
    with findings.collecting():
        for name, value in group.args.items():
            if value and name != "expressions":
                refuse("HDL-206", f"GROUP BY {name.upper()} is not allowed", "name the columns", tree)
        for node in group.expressions:
            column, type_ = _group_column(node, scope)
            if column in columns:
                refuse("HDL-206", f"{column} is grouped by twice", "", node)
            columns[column] = type_
        most = scope.limits.group_columns
        if len(columns) > most:
            message = f"{len(columns)} group columns; the limit is {most}"
            refuse("HDL-309", message, "", group.expressions[most])
        complete = True
    return Grouping(columns, complete)


def _group_column(node: exp.Expr, scope: Scope) -> tuple[str, Type]:
    if type(node) is not exp.Column:
        message = "GROUP BY takes column names"
        refuse("HDL-206", message, "expressions and positions are not allowed", node)
    column, type_ = scope.column(node)
    if column == scope.stream.time:
        hint = "the windows already divide time: choose RANGE and SLIDE"
        refuse("HDL-206", f"grouping by the time column {column}", hint, node)
    if type_ == DOUBLE:
        hint = "equal doubles are chance: group by an integer, decimal or string column"
        refuse("HDL-206", f"grouping by the double column {column}", hint, node)
    return column, type_
