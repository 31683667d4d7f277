"""Expressions of the language: the allow-list of operators and functions, and how each is typed.

Nothing outside :data:`FUNCTIONS` can be computed by a query. Arithmetic on integers and decimals is exact and
cannot overflow: every type knows how many digits its values can have, and a result that could need more than
38 is refused when the query is registered, not when a row arrives. Doubles follow IEEE 754 with Spark's order
(NaN equals NaN and is greater than everything, -0.0 equals 0.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.scalars import SCALARS
from optimizer.workload.types import DECIMAL_DIGITS as DECIMAL_DIGITS
from optimizer.workload.types import LONG_DIGITS as LONG_DIGITS
from optimizer.workload.types import Function, as_decimal, check_numbers, exact_type, too_wide, type_error, unified
from optimizer.workload.types import family_of as family_of
from optimizer.workload.types import names_of as names_of
from optimizer.workload.values import (
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    Column,
    Expression,
    Literal,
    Type,
    decimal,
)


# ------------------------------------------------------------------------------------------------ rules
def _comparison(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    if len({family_of(type) for type in types}) == 1:
        return BOOLEAN
    families = {family_of(type) for type in types}
    hint = "both sides need the same kind of type"
    if families == {"string", "number"}:
        hint = "strings and numbers are not converted into each other: write numbers without quotes"
    elif families == {"string", "time"}:
        hint = "only string literals are read as dates and timestamps, never string columns"
    raise type_error(f"{name} cannot compare {names_of(types)}", hint)


def _in(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    if not all(isinstance(item, Literal) for item in arguments[1:]):
        raise type_error("the list of IN holds something that is not a constant", "write `a = b OR a = c`")
    for type in types[1:]:
        _comparison("IN", (types[0], type), arguments)
    return BOOLEAN


def _logic(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    for type in types:
        if type != BOOLEAN:
            raise type_error(f"{name.upper()} needs conditions, not {type}", "compare the value with something")
    return BOOLEAN


def _boolean(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    return BOOLEAN


def _like(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    if types[0] != STRING:
        raise type_error(f"LIKE needs a string, not {types[0]}")
    pattern = arguments[1]
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise type_error("the pattern of LIKE must be a string literal")
    if re.search(r"\\(?![%_\\])", re.sub(r"\\[%_\\]", "", pattern.value)):
        raise HeddleError(
            "HDL-110",
            f"the pattern {pattern.value!r} has a backslash that escapes nothing",
            "a backslash may stand before %, _ and another backslash only",
        )
    return BOOLEAN


def _sum(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers(name, types)
    if DOUBLE in types:
        return DOUBLE
    if all(type.name == "long" for type in types):
        return exact_type(name, types, max(type.digits for type in types) + 1)
    integer_digits = max(as_decimal(type)[0] for type in types) + 1
    scale = max(as_decimal(type)[1] for type in types)
    if integer_digits + scale > DECIMAL_DIGITS:
        raise too_wide(name, types, integer_digits + scale)
    return decimal(integer_digits + scale, scale)


def _product(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers(name, types)
    if DOUBLE in types:
        return DOUBLE
    if all(type.name == "long" for type in types):
        return exact_type(name, types, types[0].digits + types[1].digits)
    parts = [as_decimal(type) for type in types]
    precision = sum(integer_digits + scale for integer_digits, scale in parts) + 1
    if precision > DECIMAL_DIGITS:
        raise too_wide(name, types, precision)
    return decimal(precision, sum(scale for _, scale in parts))


def _quotient(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers(name, types)
    return DOUBLE


def _sign(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers({"neg": "the minus sign"}.get(name, name), types)
    # -(-2**63) does not fit 64 bits: a long of 19 digits becomes a decimal
    return exact_type(name, types, types[0].digits) if types[0].name == "long" else types[0]


def _text(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    if types[0] != STRING:
        raise type_error(f"{name} needs a string, not {types[0]}")
    return STRING


def _coalesce(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    type_ = unified(types)
    if type_ is None:
        raise type_error(f"coalesce cannot choose between {names_of(types)}", "all its arguments need one type")
    return type_


FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        *(Function(name, 2, 2, _comparison, "comparison") for name in ("=", "!=", "<", "<=", ">", ">=")),
        Function("and", 2, None, _logic, "false if any is false, else null if any is null, else true", "own"),
        Function("or", 2, None, _logic, "true if any is true, else null if any is null, else false", "own"),
        Function("not", 1, 1, _logic, "negation; null stays null"),
        Function("is_null", 1, 1, _boolean, "whether the value is null; never null itself", "own"),
        Function("in", 2, None, _in, "whether the first is one of the others, which are literals"),
        Function("like", 2, 2, _like, "% any text, _ any character, backslash escapes; matches line ends too"),
        Function("+", 2, 2, _sum, "sum"),
        Function("-", 2, 2, _sum, "difference"),
        Function("*", 2, 2, _product, "product"),
        Function("/", 2, 2, _quotient, "quotient as a double; null if the divisor is zero"),
        Function("neg", 1, 1, _sign, "the negative"),
        Function("abs", 1, 1, _sign, "absolute value"),
        Function("lower", 1, 1, _text, "lower case (Unicode)"),
        Function("upper", 1, 1, _text, "upper case (Unicode)"),
        Function("coalesce", 1, None, _coalesce, "the first value that is not null", "choice"),
        *SCALARS,
    )
}
"""Everything that an expression can compute, by the name in :class:`optimizer.workload.values.Call`."""


# ----------------------------------------------------------------------------------------------- typing
def call_type(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    """The type of one call from its arguments' types.

    Raises HDL-104 (not in the allow-list, or a wrong number of arguments), HDL-203 (types that do not fit),
    HDL-211 (an exact result could need more than 38 digits), HDL-110 (a bad LIKE pattern).
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise HeddleError("HDL-104", f"there is no function {name}")
    if len(types) < function.least or (function.most is not None and len(types) > function.most):
        expected = str(function.least) if function.least == function.most else f"at least {function.least}"
        raise HeddleError("HDL-104", f"{name} takes {expected} argument(s), not {len(types)}")
    return function.rule(name, types, arguments)


def type_of(expression: Expression, schema: Mapping[str, Type]) -> Type:
    """The type of an expression over columns of these types.

    Raises what :func:`call_type` raises, and HDL-202 for a column that the schema does not have.
    """
    if isinstance(expression, Column):
        type_ = schema.get(expression.name)
        if type_ is None:
            raise HeddleError("HDL-202", f"there is no column {expression.name}")
        return type_
    if isinstance(expression, Literal):
        return expression.type
    types = [type_of(argument, schema) for argument in expression.arguments]
    return call_type(expression.function, types, expression.arguments)


# --------------------------------------------------------------------------------------------- literals
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\s?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)


def number(text: str) -> Literal:
    """A number as Spark reads it: ``5`` an integer (a decimal beyond 64 bits), ``2.50`` decimal(3,2), ``1e3``
    a double. Raises HDL-110 if it is none, HDL-305 if it is too large."""
    try:
        if "e" in text.lower():
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise HeddleError("HDL-305", f"the number {text} is too large for a double")
            return Literal(value, DOUBLE)
        return exact_literal(Decimal(text))
    except (ValueError, InvalidOperation):
        raise HeddleError("HDL-110", f"{text!r} is not a number") from None


def exact_literal(value: Decimal | int) -> Literal:
    """An integer or decimal constant with the narrowest type that holds it; HDL-305 beyond 38 digits."""
    _, digits, exponent = Decimal(value).as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale, 1)
    if precision > DECIMAL_DIGITS:
        raise HeddleError("HDL-305", f"a number of {precision} digits is too long: exact numbers have 38", "use 1e0")
    if scale == 0 and -(2**63) <= int(value) < 2**63:
        return Literal(int(value), Type("long", precision))
    return Literal(Decimal(value), decimal(precision, scale))


def negated(literal: Literal) -> Literal:
    """The negative of a number literal."""
    if literal.type == DOUBLE:
        return Literal(-literal.value, DOUBLE)
    # Decimal's minus would round to the context's 28 digits
    return exact_literal(-literal.value if isinstance(literal.value, int) else literal.value.copy_negate())


def moment(text: str, type: Type) -> Literal:
    """A date or timestamp constant from ISO 8601 text; without zone it is UTC.

    Raises HDL-110 if the text is no such value.
    """
    example = "2013-07-04" if type == DATE else "2013-07-04 18:30:00"
    match = _MOMENT.fullmatch(text.strip())
    try:
        if match is None or (type == DATE and match[2]):
            raise ValueError(text)
        if type == DATE:
            return Literal(date.fromisoformat(match[1]).isoformat(), DATE)
        zone = "+00:00" if match[3] in (None, "Z") else match[3]
        instant = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}{zone}")
        return Literal((instant - EPOCH) // timedelta(microseconds=1), TIMESTAMP)
    except (ValueError, OverflowError):
        raise HeddleError(
            "HDL-110",
            f"{text!r} is not a {type}",
            f"write it as '{example}'" + (", in UTC" if type != DATE else ""),
        ) from None
