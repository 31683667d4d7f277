"""The SELECT list: aggregates, group columns, and the names of both in the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from optimizer.language.aggregate_calls import AggregateCall, AggregateReader
from optimizer.language.derived import DerivedCall, DerivedReader, holds_aggregate, is_aggregate, of_group
from optimizer.language.grouping import Grouping, answer_name
from optimizer.language.nodes import is_name, place_of, refuse, without_parentheses
from optimizer.language.refusals import Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.words import RESERVED, resolve_name, without_spaces, written_name
from optimizer.workload.attributes import shown_column
from optimizer.workload.values import ANY_WINDOW, Column, Output


@dataclass(frozen=True)
class Selection:
    """The SELECT list of a query.

    ``names``: of the group columns in the answers, in their order. ``takes_error``: the query's permitted error applies
    to an output. ``refused``: why an output has no value, by its alias: a HAVING on it fails for the same reason.
    """

    outputs: tuple[Output, ...]
    group_columns: tuple[str, ...]
    names: tuple[str, ...]
    takes_error: bool
    grouping: Grouping
    refused: Mapping[str, Refused]

    @property
    def groups(self) -> dict[str, str]:
        """The group columns, by column and by name in the answers."""
        aliases = dict(zip(self.names, self.group_columns, strict=True))
        return aliases | {column: column for column in self.group_columns}


def read_selection(
    tree: exp.Select, scope: Scope, grouping: Grouping, aggregates: AggregateReader, findings: Findings
) -> Selection:
    """Read the list; a mistake in one item does not affect the others."""
    refused: dict[str, Refused] = {}
    reader = _SelectListReader(scope, grouping, aggregates, refused)
    for item in tree.expressions:
        try:
            reader.read(item)
        except Refused as refusal:
            if refusal not in findings.problems:
                findings.problems.append(refusal)
            refused[item.alias.lower()] = refusal
    for column in grouping.columns:
        if column not in reader.names:
            with findings.collecting():
                reader.names[column] = name = reader.answer_name(column)
                reader.take(name, tree.args["group"], column)
    outputs, limit = reader.outputs, scope.limits.outputs
    if not outputs and not findings.problems:
        findings.problems.append(Refused("HDL-105", "the query computes no aggregate", "add count(*) or another"))
    if len(outputs) > limit:
        message = f"{len(outputs)} outputs; the limit is {limit}"
        findings.problems.append(Refused("HDL-310", message, "split the query"))
    names = tuple(reader.names.get(column, answer_name(column)) for column in grouping.columns)
    return Selection(tuple(outputs), tuple(grouping.columns), names, reader.takes_error, grouping, refused)


def group_value(aggregates: AggregateReader, grouping: Grouping, column: str, node: exp.Expr) -> Output:
    """A group column as a value among aggregates."""
    if grouping.sets:
        hint = "conditions on columns belong in WHERE; select grouping_id() and choose rows where you read them"
        refuse("HDL-206", f"{shown_column(column)} is null in some grouping sets: nothing is made of it", hint, node)
    aggregates.check_group(column, node)
    value, window = grouping.derived.get(column, Column(column)), 0 if aggregates.windows is None else ANY_WINDOW
    return of_group(column, value, grouping.columns[column], window)


def grouped_value(aggregates: AggregateReader, grouping: Grouping, node: exp.Expr) -> Output | None:
    """The value of the group column that an expression is, other than by its name; None if it is none."""
    try:
        column = grouping.name_of(node, aggregates.scope)
    except Refused:
        # what names outputs is no expression over the stream
        return None
    return None if column is None else group_value(aggregates, grouping, column, node)


class _SelectListReader:
    """Reads item by item and remembers which names are taken; ``refused``: by alias, why an item has no value."""

    def __init__(
        self, scope: Scope, grouping: Grouping, aggregates: AggregateReader, refused: Mapping[str, Refused]
    ) -> None:
        self.scope, self.grouping, self.aggregates, self.refused = scope, grouping, aggregates, refused
        self.outputs: list[Output] = []
        self.names: dict[str, str] = {}
        """Names of the selected group columns, by column."""
        self.takes_error = False
        self._taken: set[str] = set()

    def read(self, item: exp.Expr) -> None:
        node, alias, column = item, "", None
        if type(item) is exp.Alias:
            node, alias = item.this, without_spaces(item.alias)
        computed = None if self._names_output(node) else self.grouping.name_of(node, self.scope)
        if is_name(node) or computed is not None:
            column = self._group_column(node, computed)
            self.names[column] = name = alias or self.answer_name(column)
        else:
            if (each := self.aggregates.each_window(node)) is not None:
                for window, over in each:
                    self.read(exp.alias_(over, f"{alias}_{window}", copy=False) if alias else over)
                return
            call = self._value(node, alias)
            self.takes_error |= call.takes_error
            self.outputs.append(call.output)
            name = call.output.name
        if alias and not (alias.isidentifier() and len(alias) <= 64):
            message = f"{shown_text(alias)} cannot name a column of the answers"
            refuse("HDL-208", message, "letters, digits and underscores, not starting with a digit", item)
        self.take(name, item, column)
        if alias and alias != item.alias:
            message = f"the column of the answers is named {alias}, not {shown_text(item.alias)}"
            hint = f"write AS {alias}: columns of tables and of other engines are named without spaces"
            self.aggregates.findings.warnings.append(Refused("HDL-246", message, hint, place_of(item)))

    def _value(self, node: exp.Expr, alias: str) -> AggregateCall | DerivedCall:
        inner = without_parentheses(node)
        is_derived = holds_aggregate(inner, self.scope.text) or self._names_output(inner) or self._holds_group(inner)
        if is_aggregate(inner, self.scope.text) or not is_derived:
            return self.aggregates.read(inner, alias)
        return DerivedReader.of(self.aggregates, self._of_group, self._grouped).output(inner, alias)

    def _names_output(self, node: exp.Expr) -> bool:
        """Return whether an expression contains the name of an earlier item that is no column of the stream."""
        return any(self._output(part) is not None for part in node.walk())

    def _holds_group(self, node: exp.Expr) -> bool:
        """Return whether an expression contains a computed group column."""
        return bool(self.grouping.derived) and any(self._grouped(part) is not None for part in node.walk())

    def _output(self, node: exp.Expr) -> Output | Refused | None:
        """The output before this item whose name a node is, or why that has no value."""
        if type(node) is not exp.Column or node.args.get("table"):
            return None
        if self.scope.has(node.name):
            return None
        outputs = {output.name: output for output in self.outputs}
        name = resolve_name(without_spaces(node.name), outputs)
        return outputs[name] if name is not None else self.refused.get(node.name.lower())

    def _grouped(self, node: exp.Expr) -> Output | None:
        return grouped_value(self.aggregates, self.grouping, node)

    def _of_group(self, node: exp.Expr) -> Output:
        """A group column, or an output before this one, inside an expression over aggregates."""
        output = self._output(node)
        if isinstance(output, Refused):
            raise output
        if output is not None:
            return output
        column, _ = self.scope.column(node)
        if column not in self.grouping.columns:
            shown = shown_column(column)
            message = f"{shown} is neither grouped by nor aggregated"
            refuse("HDL-207", message, f"add GROUP BY {shown}, or write max({shown})", node)
        return group_value(self.aggregates, self.grouping, column, node)

    def take(self, name: str, item: exp.Expr, column: str | None) -> None:
        """Give a name to a column of the answers; ``column``: the group column that it holds."""
        if name.lower() in RESERVED:
            message = f"{name} is the name of a column that answers have of their own"
            hint = f"select it under another name: {written_name(column) if column else '…'} AS its_{name.lower()}"
            refuse("HDL-208", message, hint, item)
        if name.lower() in self._taken:
            refuse("HDL-208", f"two columns of the answers are named {name}", "name one with AS", item)
        self._taken.add(name.lower())

    def answer_name(self, column: str) -> str:
        """The name in the answers of a group column that is given none: that of the stream's column if it is one."""
        return column if column in dict(self.scope.stream.schema) else answer_name(column)

    def _group_column(self, node: exp.Expr, computed: str | None) -> str:
        column = computed or self.scope.column(node)[0]
        if column not in self.grouping.columns:
            shown = shown_column(column)
            message = f"{shown} is neither grouped by nor aggregated"
            refuse("HDL-207", message, f"add GROUP BY {shown}, or write max({shown})", node)
        if column in self.names:
            refuse("HDL-208", f"{shown_column(column)} is selected twice", "", node)
        return column
