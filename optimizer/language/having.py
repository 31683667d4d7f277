"""The HAVING clause: thresholds on aggregates, joined by AND."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from optimizer.language.aggregate_calls import AggregateReader
from optimizer.language.expressions import ExpressionReader, typed_call
from optimizer.language.nodes import function_name, is_constant, refuse, without_parentheses
from optimizer.language.refusals import NULL, Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.select_list import Selection
from optimizer.language.words import BINARY, FLIPPED, FORMS, NOT_IN_HAVING, did_you_mean, resolve_name
from optimizer.workload.values import Call, Column, Condition, Literal, Output


@dataclass(frozen=True)
class Thresholds:
    """``takes_error``: what one of them compares may be off by what the query permits."""

    conditions: tuple[Condition, ...]
    takes_error: bool


def read_thresholds(
    tree: exp.Select, start: int, scope: Scope, selection: Selection, aggregates: AggregateReader, findings: Findings
) -> Thresholds:
    """The thresholds of HAVING, which starts at an offset of the statement."""
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
    limit = scope.limits.outputs
    if len(reader.computed) > max(len(selection.outputs), limit):
        message = f"{len(reader.computed)} aggregates in SELECT and HAVING; the limit is {limit}"
        findings.problems.append(Refused("HDL-310", message, "split the query", start))
    return Thresholds(tuple(dict.fromkeys(conditions)), reader.takes_error)


class _ThresholdReader:
    """Reads one threshold after the other; ``computed``: the outputs and what these compare beyond them."""

    def __init__(self, scope: Scope, selection: Selection, aggregates: AggregateReader) -> None:
        self.scope, self.selection, self.aggregates = scope, selection, aggregates
        self.computed = list(selection.outputs)
        self.takes_error = False

    def read(self, node: exp.Expr) -> Condition:
        comparison = BINARY.get(type(node), "")
        if comparison not in FLIPPED:
            what, hint = NOT_IN_HAVING.get(type(node), ("other conditions", "sum(x) > 10, any(y) = TRUE"))
            refuse("HDL-217", f"HAVING takes comparisons joined by AND, not {what}", hint, node)
        subject, constant = without_parentheses(node.this), without_parentheses(node.expression)
        if is_constant(subject):
            subject, constant, comparison = constant, subject, FLIPPED[comparison]
        if is_constant(subject) or not is_constant(constant):
            hint = "an aggregate or the name of an output on one side, a number, text or moment on the other"
            refuse("HDL-217", "HAVING compares an aggregate with a constant", hint, node)
        output = self._compared(subject, node)
        value, type_ = ExpressionReader(self.scope, self.scope.column).read(constant)
        if not isinstance(value, Literal):
            refuse(
                "HDL-217",
                "HAVING compares with a value as it is written",
                "write it in the type of the aggregate",
                node,
            )
        if type_ == NULL:
            refuse("HDL-217", "a comparison with NULL is never true", "compare with a value", node)
        call, _ = typed_call(comparison, [(Column(output.name), output.type), (value, type_)], node)
        assert isinstance(call, Call) and isinstance(call.arguments[1], Literal)
        return Condition(output, comparison, call.arguments[1])

    def _compared(self, subject: exp.Expr, comparison: exp.Expr) -> Output:
        if type(subject) is exp.Column:
            return self._output_named(subject)
        call = subject.this if type(subject) is exp.Filter else subject
        if function_name(call, self.scope.text) not in FORMS:
            hint = "inside an aggregate arithmetic is allowed"
            refuse("HDL-217", "HAVING compares single aggregates, not other expressions", hint, comparison)
        read = self.aggregates.read(subject, "")
        self.takes_error |= read.takes_error
        return _output_among(read.output, self.computed)

    def _output_named(self, node: exp.Expr) -> Output:
        """The output that a name refers to."""
        outputs, groups = {output.name: output for output in self.selection.outputs}, self.selection.groups
        if node.args.get("table"):
            _refuse_column(self.scope.column(node)[0], node, groups)
        if node.name.lower() in self.selection.refused:
            raise self.selection.refused[node.name.lower()]
        name = resolve_name(node.name, outputs)
        if name is not None:
            return outputs[name]
        name = resolve_name(node.name, groups)
        column = groups[name] if name else resolve_name(node.name, self.scope.schema)
        if column is None:
            hint = did_you_mean(node.name, [*outputs, *self.scope.schema], "outputs and columns")
            refuse("HDL-202", f"there is no output or column {shown_text(node.name)}", hint, node)
        _refuse_column(column, node, groups)


def _refuse_column(column: str, node: exp.Expr, groups: dict[str, str]) -> NoReturn:
    if column in groups:
        hint = "a condition on it belongs in WHERE"
        refuse("HDL-217", f"HAVING is for aggregates; {column} is a group column", hint, node)
    hint = f"filter events in WHERE, or aggregate it: max({column})"
    refuse("HDL-217", f"HAVING is for aggregates; {column} has many values in a window", hint, node)


def _output_among(output: Output, computed: list[Output]) -> Output:
    """The output of ``computed`` that is the same but for its name, else this one, added under a name of its own."""
    for other in computed:
        if replace(output, name=other.name) == other:
            return other
    names = {other.name.lower() for other in computed}
    while output.name.lower() in names:
        output = replace(output, name=output.name + "_")
    computed.append(output)
    return output
