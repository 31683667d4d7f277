"""Expressions over aggregates, in SELECT, HAVING and ORDER BY: one output made of plain ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.aggregate_calls import AggregateReader
from optimizer.language.expressions import (
    ExpressionReader,
    Typed,
    between_times,
    is_between_times,
    settled,
    typed_call,
)
from optimizer.language.nodes import function_name, is_name, place_of, refuse
from optimizer.language.refusals import NULL, Refused
from optimizer.language.scope import Scope
from optimizer.language.words import BINARY, FORMS
from optimizer.workload.derived import CHECKED, derived_call_type, derived_type, renamed
from optimizer.workload.values import BOOLEAN, DERIVED, Call, Column, Expression, Output, Type

_LONGEST_NAME = 64
"""Characters of a name that an output gets when it is given none."""


def is_aggregate(node: exp.Expr, text: str) -> bool:
    """Return whether a node is the call of an aggregate, including FILTER, WITHIN GROUP and OVER around it."""
    return type(node) in (exp.Filter, exp.WithinGroup, exp.Window) or function_name(node, text) in FORMS


def holds_aggregate(node: exp.Expr, text: str) -> bool:
    """Return whether an expression contains the call of an aggregate."""
    return any(is_aggregate(part, text) for part in node.walk())


def of_group(column: str, value: Expression, type_: Type, window: int) -> Output:
    """The value that a group column has in its group: the least of equal ones."""
    return Output(column, "min", value, type_, AGGREGATES["min"].output_type(type_), window=window)


def check_value(output: Output, node: exp.Expr) -> None:
    """Raises HDL-203 for the bytes of a sketch, which nothing is compared with or made of."""
    if output.type.name == "binary":
        hint = "select it by itself, and estimate from it where it is read"
        refuse("HDL-203", f"{output.function} is a sketch: nothing is compared with its bytes", hint, node)


@dataclass(frozen=True)
class DerivedCall:
    """An output; ``takes_error``: a part of it may be off by what the query permits."""

    output: Output
    takes_error: bool


@dataclass(frozen=True)
class _PartsScope(Scope):
    """A scope whose columns are the parts of the expression that is read, as far as it was read."""

    parts: dict[Output, Output]

    @property
    def schema(self) -> dict[str, Type]:
        return {str(number): part.type for number, part in enumerate(self.parts.values())}


@dataclass(frozen=True)
class DerivedReader(ExpressionReader):
    """Read one expression over aggregates; ``named``: the output with a name; ``grouped``: the value of the group
    column that an expression equals, None if it equals none.
    """

    aggregates: AggregateReader
    named: Callable[[exp.Expr], Output]
    grouped: Callable[[exp.Expr], Output | None]
    parts: dict[Output, Output] = field(default_factory=dict)
    """The plain aggregates, each once: by what they are without a name, under the name that the expression has."""
    takers: list[Output] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        aggregates: AggregateReader,
        named: Callable[[exp.Expr], Output],
        grouped: Callable[[exp.Expr], Output | None],
    ) -> DerivedReader:
        """A reader for one expression."""
        around, parts = aggregates.scope, dict[Output, Output]()
        scope = _PartsScope(around.text, around.stream, around.limits, parts)
        return cls(scope, scope.column, aggregates, named, grouped, parts)

    def output(self, node: exp.Expr, alias: str) -> DerivedCall:
        """The output of an expression; ``alias``: its name in the answers, made from its parts if empty."""
        try:
            expression, type_ = self.read(node)
        except HeddleError as error:
            raise Refused.of(error, place_of(node)) from None
        expression, type_ = settled(expression, BOOLEAN), BOOLEAN if type_ == NULL else type_
        name = alias or re.sub(r"\W", "_", "_".join(part.name for part in self.parts.values()))[:_LONGEST_NAME]
        parts = tuple(replace(part, name=str(number)) for number, part in enumerate(self.parts.values()))
        try:
            type_ = derived_type(expression, {part.name: part.type for part in parts})
        except HeddleError as error:
            raise Refused.of(error, place_of(node)) from None
        output = Output(name, DERIVED, None, None, type_, parts=parts, expression=expression)
        return DerivedCall(output, bool(self.takers))

    def read(self, node: exp.Expr, depth: int = 0) -> Typed:
        """Read an expression in which names and calls stand for aggregates; arithmetic works as over sums."""
        if is_aggregate(node, self.scope.text):
            call = self.aggregates.read(node, "")
            self.takers.extend([call.output] * call.takes_error)
            return self._taken(call.output, node)
        kind = type(node)
        if is_name(node):
            return self._taken(self.named(node), node)
        group = self.grouped(node)
        if group is not None:
            return self._taken(group, node)
        is_number = kind is exp.Neg and type(node.this) in (exp.Literal, exp.Cast, exp.TryCast)
        name = BINARY.get(kind) or ("neg" if kind is exp.Neg else function_name(node, self.scope.text))
        if name not in CHECKED or is_number or depth > 2 * self.scope.limits.depth:
            return super().read(node, depth)
        sides = [node.this, node.expression] if kind in BINARY else [node.this] if kind is exp.Neg else node.expressions
        values = [self.read(side, depth + 1) for side in sides]
        return between_times(values, node) if is_between_times(node, values) else _checked_call(name, values, node)

    def _taken(self, output: Output, node: exp.Expr) -> Typed:
        """An output as a column of the expression, or what a derived one is made of."""
        check_value(output, node)
        if output.function == DERIVED:
            assert output.expression is not None
            columns = {part.name: self._column(part) for part in output.parts}
            return renamed(output.expression, columns), output.type
        return Column(self._column(output)), output.type

    def _column(self, part: Output) -> str:
        same = replace(part, name="")
        self.parts.setdefault(same, part)
        return str(list(self.parts).index(same))


def _checked_call(name: str, arguments: list[Typed], node: exp.Expr) -> Typed:
    """Arithmetic over aggregates: what can be too wide is computed as far as it fits."""
    try:
        values: tuple[Expression, ...] = tuple(value for value, _ in arguments)
        types = [type_ for _, type_ in arguments]
        if NULL not in types:
            return Call(name, values), derived_call_type(name, types, values)
    except HeddleError as error:
        raise Refused.of(error, place_of(node)) from None
    return typed_call(name, arguments, node)
