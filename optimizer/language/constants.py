"""Read constants of a query: fractions, k, permitted errors."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal

from sqlglot import exp
from sqlglot.tokens import Token

from optimizer.aggregates.states import LEAST_RANK_ERROR, MOST_ERROR, MOST_FRACTIONS, check_error
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.expressions import ExpressionReader
from optimizer.language.nodes import call_arguments, function_name, is_constant, place_of, refuse
from optimizer.language.refusals import Refused
from optimizer.language.scope import Scope
from optimizer.language.words import RANGES
from optimizer.workload.expression import number
from optimizer.workload.values import Literal


def query_error(token: Token) -> Decimal:
    """The number of ``WITH (error = …)``."""
    try:
        return _within_range(number(token.text), "HDL-216", check_error, token.start)
    except HeddleError as error:
        raise Refused.of(error, token.start) from None


def error_argument(node: exp.Expr, function: str, scope: Scope) -> Decimal:
    """Read the permitted error of an approximate function."""
    return constant_argument(node, "HDL-216", f"the error of {function}", check_error, scope)


def accuracy_argument(node: exp.Expr, function: str, scope: Scope) -> Decimal:
    """The error that an accuracy of Spark's permits: its inverse."""
    accuracy = constant_argument(node, "HDL-216", f"the accuracy of {function}", _check_accuracy, scope)
    return _shortest((1 / accuracy).quantize(Decimal("1e-9"), ROUND_FLOOR))


def constant_argument(node: exp.Expr, code: str, what: str, check: Callable[[Decimal], None], scope: Scope) -> Decimal:
    """Read a constant number. ``code``: of a refusal, also by ``check``; ``what``: its name in messages."""
    if not is_constant(node):
        refuse(code, f"{what} is a number that stands in the query", RANGES[code], node)
    value, type_ = ExpressionReader(scope, scope.column).read(node)
    if not isinstance(value, Literal) or not type_.is_numeric:
        refuse(code, f"{what} is a number, not {type_}", RANGES[code], node)
    return _within_range(value, code, check, place_of(node))


def constant_arguments(
    node: exp.Expr, code: str, what: str, check: Callable[[Decimal], None], scope: Scope
) -> tuple[Decimal, ...]:
    """The numbers of ``array(0.5, 0.9)``, as :func:`constant_argument`, in their order."""
    if function_name(node, scope.text) != "array":
        refuse(code, f"{what} stand in an array", "write array(0.5, 0.9)", node)
    items = call_arguments(node)
    if not 1 <= len(items) <= MOST_FRACTIONS:
        refuse(code, f"{what} are 1 to {MOST_FRACTIONS} numbers, not {len(items)}", RANGES[code], node)
    return tuple(constant_argument(item, code, what, check, scope) for item in items)


def _within_range(literal: Literal, code: str, check: Callable[[Decimal], None], at: int) -> Decimal:
    """A number as it was written, unless it is out of range."""
    value = Decimal(str(literal.value))
    try:
        check(value)
    except ValueError as error:
        raise Refused(code, str(error), RANGES[code], at) from None
    return _shortest(value)


def _check_accuracy(value: Decimal) -> None:
    least, most = int(1 / MOST_ERROR), int(1 / LEAST_RANK_ERROR)
    if value not in range(least, most + 1):
        raise ValueError(f"an accuracy (1/error) is a whole number from {least} to {most}, not {value}")


def _shortest(value: Decimal) -> Decimal:
    """The same number without exponent and without zeros at its end, so that equal ones are written alike."""
    text = f"{value:f}"
    return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)
