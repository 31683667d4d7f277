"""HAVING and ORDER BY … LIMIT: which of a window's answers exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from optimizer.aggregates.states import MOST_TOP
from optimizer.language.aggregate_calls import AggregateReader
from optimizer.language.derived import DerivedReader, check_value, is_aggregate
from optimizer.language.expressions import ExpressionReader, Typed, typed_call
from optimizer.language.nodes import is_constant, refuse, without_parentheses
from optimizer.language.refusals import NULL, Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.select_list import Selection, group_value, grouped_value
from optimizer.language.words import BINARY, FLIPPED, did_you_mean, resolve_name, without_spaces
from optimizer.workload.attributes import shown_column
from optimizer.workload.values import BOOLEAN, Call, Column, Condition, Literal, Order, Output, Top

TOP = "the first groups of each window: ORDER BY sum(x) DESC LIMIT 10"


@dataclass(frozen=True)
class Thresholds:
    """``takes_error``: what one of them compares may be off by what the query permits."""

    conditions: tuple[Condition, ...]
    top: Top | None
    takes_error: bool


def read_thresholds(
    tree: exp.Select, start: int, scope: Scope, selection: Selection, aggregates: AggregateReader, findings: Findings
) -> Thresholds:
    """The conditions of HAVING, which starts at an offset of the statement, and the order with its limit."""
    having = tree.args.get("having")
    pending, conditions = [having.this] if having else [], list[Condition]()
    reader = _ThresholdReader(scope, selection, aggregates)
    while pending:
        node = without_parentheses(pending.pop())
        if type(node) is exp.And:
            pending += [node.expression, node.this]
            continue
        try:
            conditions.append(reader.read(node))
        except Refused as refused:
            if refused not in findings.problems:
                refused.at = refused.at or start
                findings.problems.append(refused)
    top = None
    try:
        top = _read_top(tree, reader)
    except Refused as refused:
        if refused not in findings.problems:
            findings.problems.append(refused)
    limit = scope.limits.outputs
    compared = [condition.output for condition in conditions] + [
        order.output for order in (top.orders if top is not None else ())
    ]
    plain = {replace(part, name="") for output in (*selection.outputs, *compared) for part in output.plain}
    beyond = plain - {replace(output, name="") for output in selection.outputs}
    if len(selection.outputs) + len(beyond) > max(len(selection.outputs), limit):
        message = f"{len(selection.outputs)} outputs and {len(beyond)} other aggregates; the limit is {limit}"
        findings.problems.append(Refused("HDL-310", message, "split the query", start))
    return Thresholds(tuple(dict.fromkeys(conditions)), top, reader.takes_error)


def _read_top(tree: exp.Select, reader: _ThresholdReader) -> Top | None:
    """The order and the limit, which belong together."""
    order, limit = tree.args.get("order"), tree.args.get("limit")
    if order is None and limit is None:
        return None
    if limit is None:
        hint = f"order them when you read it, or ask for {TOP}"
        refuse("HDL-229", "ORDER BY without LIMIT: answers are a table", hint, order)
    if order is None:
        refuse("HDL-229", "LIMIT without ORDER BY: nobody knows which answers", f"ask for {TOP}", limit)
    if not reader.aggregates.kind.ranks_groups:
        message = f"ORDER BY … LIMIT is for windows of time, not for {reader.aggregates.kind.words}"
        refuse("HDL-229", message, "take the first answers when you read them", order)
    if not reader.selection.group_columns:
        refuse("HDL-229", "each window has one answer: there is nothing to put in order", "add GROUP BY", order)
    for name, value in limit.args.items():
        if value and name != "expression":
            refuse("HDL-103", f"LIMIT {name} is not allowed", f"ask for {TOP}", limit)
    number = limit.expression
    if type(number) is not exp.Literal or number.is_string or not str(number.this).isdigit():
        refuse("HDL-229", "LIMIT takes a whole number", f"ask for {TOP}", limit)
    k = int(number.this[:10])
    if not 1 <= k <= MOST_TOP:
        refuse("HDL-229", f"LIMIT is from 1 to {MOST_TOP:,}, not {shown_text(number.this)}", "", number)
    for name, value in order.args.items():
        if value and name != "expressions":
            refuse("HDL-103", f"{name} is not allowed in ORDER BY", f"ask for {TOP}", order)
    return Top(k, tuple(reader.order(node, tree.expressions) for node in order.expressions))


class _ThresholdReader:
    """Reads one condition after the other; ``computed``: the outputs and what thresholds compare beyond them."""

    def __init__(self, scope: Scope, selection: Selection, aggregates: AggregateReader) -> None:
        self.scope, self.selection, self.aggregates = scope, selection, aggregates
        self.computed = list(selection.outputs)
        self.takes_error = False

    def read(self, node: exp.Expr) -> Condition:
        """A threshold, or any other condition as an output that has to be true."""
        comparison = BINARY.get(type(node), "")
        if comparison in FLIPPED:
            subject, constant = without_parentheses(node.this), without_parentheses(node.expression)
            if is_constant(subject):
                subject, constant, comparison = constant, subject, FLIPPED[comparison]
            compared = self._single(subject) if is_constant(constant) else None
            value, type_ = self._constant(constant) if compared is not None else (None, NULL)
            if compared is not None and isinstance(value, Literal):
                return _threshold(compared, comparison, (value, type_), node)
        output = self._derived(node)
        if output.type != BOOLEAN:
            refuse("HDL-217", f"HAVING needs conditions, not {output.type}", "compare it: sum(x) > 10", node)
        return Condition(output, "=", Literal(True, BOOLEAN))

    def order(self, node: exp.Expr, items: Sequence[exp.Expr]) -> Order:
        """Read one item of ORDER BY; an integer is the position of one of SELECT's ``items``."""
        for name, value in node.args.items():
            if value and name not in ("this", "desc", "nulls_first"):
                refuse("HDL-103", f"{name} is not allowed in ORDER BY", f"ask for {TOP}", node)
        subject = node.this
        if type(subject) is exp.Literal and not subject.is_string:
            if not subject.this.isdigit() or not 1 <= int(subject.this[:9]) <= len(items):
                refuse("HDL-229", f"SELECT has no item {shown_text(subject.this)}", f"1 to {len(items)}", node)
            item = items[int(subject.this) - 1]
            subject = item.this if type(item) is exp.Alias else item
        subject = without_parentheses(subject)
        if is_constant(subject):
            refuse("HDL-229", "ORDER BY takes aggregates and names of outputs, no constants", f"ask for {TOP}", node)
        output = self._single(subject) or self._derived(subject)
        check_value(output, subject)
        return Order(replace(output, name=""), bool(node.args.get("desc")), bool(node.args.get("nulls_first")))

    def _constant(self, node: exp.Expr) -> Typed:
        return ExpressionReader(self.scope, self.scope.column).read(node)

    def _single(self, subject: exp.Expr) -> Output | None:
        """The output of a name or a single aggregate; None for other expressions and group columns."""
        if type(subject) is exp.Column:
            name = resolve_name(without_spaces(subject.name), self._outputs) if not subject.args.get("table") else None
            return self._outputs[name] if name is not None else None
        if not is_aggregate(subject, self.scope.text):
            return None
        call = self.aggregates.read(subject, "")
        self.takes_error |= call.takes_error
        return _output_among(call.output, self.computed)

    def _derived(self, node: exp.Expr) -> Output:
        reader = DerivedReader.of(self.aggregates, self._named, self._grouped)
        call = reader.output(node, "having")
        self.takes_error |= call.takes_error
        if not reader.parts:
            refuse("HDL-217", "this reads no aggregate and no group column", "write sum(x) > 10", node)
        return call.output

    def _grouped(self, node: exp.Expr) -> Output | None:
        return grouped_value(self.aggregates, self.selection.grouping, node)

    @property
    def _outputs(self) -> dict[str, Output]:
        return {output.name: output for output in self.selection.outputs}

    def _named(self, node: exp.Expr) -> Output:
        """The output that a name refers to, else a group column."""
        outputs, groups = self._outputs, self.selection.groups
        if type(node) is not exp.Column:
            return self._of_column(self.scope.column(node)[0], node)
        is_qualified = bool(node.args.get("table"))
        if not is_qualified and node.name.lower() in self.selection.refused:
            raise self.selection.refused[node.name.lower()]
        name = resolve_name(without_spaces(node.name), outputs) if not is_qualified else None
        if name is not None:
            return outputs[name]
        name = resolve_name(without_spaces(node.name), groups) if not is_qualified else None
        column = groups[name] if name else None
        if column is None and is_qualified:
            column = self.scope.column(node)[0]
        if column is None and self.scope.has(node.name):
            column = self.scope.column(node)[0]
        if column is None:
            hint = did_you_mean(node.name, [*outputs, *self.scope.names], "outputs and columns")
            refuse("HDL-202", f"there is no output or column {shown_text(node.name)}", hint, node)
        return self._of_column(column, node)

    def _of_column(self, column: str, node: exp.Expr) -> Output:
        if column not in self.selection.group_columns:
            _refuse_column(column, node)
        return group_value(self.aggregates, self.selection.grouping, column, node)


def _threshold(output: Output, comparison: str, constant: Typed, node: exp.Expr) -> Condition:
    if constant[1] == NULL:
        refuse("HDL-217", "a comparison with NULL is never true", "compare with a value, or write IS NULL", node)
    call, _ = typed_call(comparison, [(Column(output.name), output.type), constant], node)
    assert isinstance(call, Call) and isinstance(call.arguments[1], Literal)
    return Condition(output, comparison, call.arguments[1])


def _refuse_column(column: str, node: exp.Expr) -> NoReturn:
    column = shown_column(column)
    hint = f"filter events in WHERE, or aggregate it: max({column})"
    refuse("HDL-217", f"HAVING is for aggregates; {column} has many values in a window", hint, node)


def _output_among(output: Output, computed: list[Output]) -> Output:
    """The output of ``computed`` that differs only by name, else this output, added under a unique name."""
    for other in computed:
        if replace(output, name=other.name) == other:
            return other
    names = {other.name.lower() for other in computed}
    while output.name.lower() in names:
        output = replace(output, name=output.name + "_")
    computed.append(output)
    return output
