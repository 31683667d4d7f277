"""Types of values computed from aggregates: arithmetic over sums, counts and other outputs.

Inside an aggregate a type gives the largest number of digits of a value, and arithmetic is proven to fit. A sum has
all the digits of its type, so over aggregates little could be proven. There arithmetic behaves as sums do: it is
exact, sums and differences of integers are integers of 64 bits, everything else has up to 38 digits. A value that
does not fit when it is computed is null, and its row reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.expression import DECIMAL_DIGITS, as_decimal, call_type
from optimizer.workload.values import LONG, Call, Column, Expression, Literal, Type, decimal

CHECKED = ("+", "-", "*", "neg", "abs")
"""Functions that are computed exactly and whose results then have to fit their type."""


def derived_call_type(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    """The type of one call over aggregates. Raises what :func:`optimizer.workload.expression.call_type` raises, HDL-211
    only for a product with more than 38 digits behind the point."""
    try:
        proven = call_type(name, types, arguments)
    except HeddleError as error:
        if error.diagnostic.code != "HDL-211" or name not in CHECKED:
            raise
        scales = [as_decimal(type)[1] for type in types]
        scale = sum(scales) if name == "*" else max(scales)
        if scale > DECIMAL_DIGITS:
            raise
        return decimal(DECIMAL_DIGITS, scale)
    are_integers = all(type.name == "long" for type in types)
    return LONG if name in CHECKED and name != "*" and are_integers and proven.name == "decimal" else proven


def derived_type(expression: Expression, types: Mapping[str, Type]) -> Type:
    """The type of an expression over the parts of an output, which have these types by their names."""
    if isinstance(expression, Column):
        return types[expression.name]
    if isinstance(expression, Literal):
        return expression.type
    arguments = [derived_type(argument, types) for argument in expression.arguments]
    return derived_call_type(expression.function, arguments, expression.arguments)


def may_overflow(call: Call, types: Sequence[Type]) -> bool:
    """Return whether a call, over arguments of these types, is not proven to fit."""
    if call.function not in CHECKED:
        return False
    try:
        return call_type(call.function, types, call.arguments) != derived_call_type(
            call.function, types, call.arguments
        )
    except HeddleError:
        return True


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """The expression over columns of other names."""
    if isinstance(expression, Column):
        return Column(names[expression.name])
    if isinstance(expression, Call):
        return Call(expression.function, tuple(renamed(argument, names) for argument in expression.arguments))
    return expression
