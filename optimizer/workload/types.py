"""Types of values: what can be compared and converted, how many digits a result needs, and how each is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import DOUBLE, TIMESTAMP, Expression, Type, decimal

LONG_DIGITS = 18
"""Largest number of digits for which every integer fits 64 bits; results that may have more become decimals."""

DECIMAL_DIGITS = 38
"""Digits of the widest decimal of Spark and Delta."""

Rule = Callable[[str, Sequence[Type], Sequence[Expression]], Type]


@dataclass(frozen=True)
class Function:
    """One operator or function.

    - ``least``, ``most``: number of arguments (``most`` None: any number).
    - ``rule``: returns its type from its name, its arguments' types and the arguments, or raises a coded error.
    - ``null``: when it is null; filters in normal form rely on it. ``strict``: if and only if an argument is.
      ``partial``: if an argument is, and perhaps elsewhere. ``choice``: if and only if all arguments are. ``own``:
      by a separate rule.
    """

    name: str
    least: int
    most: int | None
    rule: Rule
    meaning: str
    null: str = "strict"


def family_of(type: Type) -> str:
    """Family of types that can be compared: ``number``, ``time`` (date, timestamp), ``string`` or ``boolean``."""
    if type.is_numeric:
        return "number"
    return "time" if type.name in ("date", "timestamp") else type.name


def as_decimal(type: Type) -> tuple[int, int]:
    """Digits before and after the point of an exact type."""
    return (type.digits, 0) if type.name == "long" else (type.precision - type.scale, type.scale)


def unified(types: Sequence[Type]) -> Type | None:
    """The type that values of all these types can be converted to without loss, as Spark promotes them (any
    double: double), or None if there is none."""
    if len(set(types)) == 1:
        return types[0]
    if len({family_of(type) for type in types}) != 1:
        return None
    if family_of(types[0]) == "time":
        return TIMESTAMP
    if DOUBLE in types:
        return DOUBLE
    if all(type.name == "long" for type in types):
        return max(types, key=lambda type: type.digits)
    integer_digits = max(as_decimal(type)[0] for type in types)
    scale = max(as_decimal(type)[1] for type in types)
    return decimal(integer_digits + scale, scale) if integer_digits + scale <= DECIMAL_DIGITS else None


def names_of(types: Sequence[Type]) -> str:
    """Types as messages name them."""
    return " and ".join(str(type) for type in types)


def type_error(message: str, hint: str = "") -> HeddleError:
    """Values of a type that does not fit."""
    return HeddleError("HDL-203", message, hint)


def too_wide(name: str, types: Sequence[Type], digits: int) -> HeddleError:
    """HDL-211: an exact result could need ``digits`` digits."""
    return HeddleError(
        "HDL-211",
        f"{name} of {names_of(types)} can need {digits} digits; exact numbers have {DECIMAL_DIGITS}",
        "make one side a double, for instance by multiplying with 1e0",
    )


def check_numbers(name: str, types: Sequence[Type]) -> None:
    """Raises HDL-203 unless all types are numbers."""
    for type in types:
        if not type.is_numeric:
            raise type_error(f"{name} needs numbers, not {type}")


def exact_type(name: str, types: Sequence[Type], digits: int) -> Type:
    """An integer type of ``digits`` digits: long while that always fits 64 bits, else decimal(digits, 0)."""
    if digits <= LONG_DIGITS:
        return Type("long", digits)
    if digits > DECIMAL_DIGITS:
        raise too_wide(name, types, digits)
    return decimal(digits, 0)
