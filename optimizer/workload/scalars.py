"""Functions of single values: conditionals, casts, times, texts and numbers, each with the rule of its type.

Constants of a call (a unit, a pattern, a number of digits) are its last arguments, literals that are checked here when
a query is registered. A value that has no answer (a text that is no number, a number that does not fit, the logarithm
of zero) is null: no event makes a run fail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.patterns import readable_pattern
from optimizer.workload.types import (
    DECIMAL_DIGITS,
    Function,
    as_decimal,
    check_numbers,
    exact_type,
    family_of,
    names_of,
    too_wide,
    type_error,
    unified,
)
from optimizer.workload.values import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    Call,
    Expression,
    Literal,
    Type,
    decimal,
)

MOST_DIGITS = 38
"""Most digits for round, to either side of the point."""

MOST_GROWTH = 8
"""Largest factor by which a replacement may be longer than the text that it replaces."""

LONGEST = 2**31 - 1
"""Greatest position or length in a text, as in Spark."""

# ---------------------------------------------------------------------------------------------- constants
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
"""Units to which ``date_trunc`` cuts times."""

LENGTHS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
"""Units in which ``time_diff`` counts."""

FIELDS: dict[str, Type] = {
    "year": Type("long", 7),
    "quarter": Type("long", 1),
    "month": Type("long", 2),
    "week": Type("long", 2),
    "day": Type("long", 2),
    "dayofweek": Type("long", 1),
    "weekday": Type("long", 1),
    "dayofyear": Type("long", 4),
    "hour": Type("long", 2),
    "minute": Type("long", 2),
    "whole second": Type("long", 2),
    "second": decimal(8, 6),
}
"""Fields of a time, and their types: ``dayofweek`` is 1 on Sundays, ``weekday`` 0 on Mondays, ``week`` that of ISO
8601, ``second`` with its fraction."""

CAST_TYPES: dict[str, Type] = {
    "boolean": BOOLEAN,
    "byte": BYTE,
    "tinyint": BYTE,
    "short": SHORT,
    "smallint": SHORT,
    "int": INT,
    "integer": INT,
    "long": LONG,
    "bigint": LONG,
    "double": DOUBLE,
    "string": STRING,
    "date": DATE,
    "timestamp": TIMESTAMP,
}

_DECIMAL = re.compile(r"decimal(?:\((\d{1,2})(?:,(\d{1,2}))?\))?", re.ASCII)


def cast_type(text: str) -> Type:
    """The type that a cast names, as Spark writes it. Raises HDL-203 if there is none."""
    known = CAST_TYPES.get(text)
    if known is not None:
        return known
    match = _DECIMAL.fullmatch(text)
    if match is not None and 1 <= (precision := int(match[1] or 10)) <= DECIMAL_DIGITS:
        scale = int(match[2] or 0)
        if scale <= precision:
            return decimal(precision, scale)
    hint = (
        "float is not among them: double is" if text in ("float", "real") else f"{', '.join(CAST_TYPES)}, decimal(p,s)"
    )
    raise type_error(f"values are not cast to {text[:60]}", hint)


def constant(arguments: Sequence[Expression], at: int, kind: type) -> object:
    """A constant among the arguments. Raises HDL-203 if it is none of this kind."""
    argument = arguments[at]
    if not isinstance(argument, Literal) or type(argument.value) is not kind:
        what = {str: "text", int: "whole number"}[kind]
        raise type_error(f"argument {at + 1} must be a {what} that stands in the query")
    return argument.value


def _time(name: str, type: Type) -> None:
    if family_of(type) != "time":
        raise type_error(f"{name} needs a date or timestamp, not {type}", "a text becomes one by CAST(x AS timestamp)")


def _strings(name: str, types: Sequence[Type]) -> None:
    for type in types:
        if type != STRING:
            raise type_error(f"{name} needs strings, not {type}", "other values become texts by CAST(x AS string)")


def _common(name: str, types: Sequence[Type]) -> Type:
    type_ = unified(types)
    if type_ is None:
        raise type_error(f"{name} cannot choose between {names_of(types)}", "all its values need one type")
    return type_


# ------------------------------------------------------------------------------------------------- rules
def _conditional(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    if len(types) % 2 == 0:
        raise HeddleError("HDL-104", "if takes conditions with their values, and a last value", "if(c, a, b)")
    for type in types[:-1:2]:
        if type != BOOLEAN:
            raise type_error(f"CASE and if need conditions, not {type}", "compare the value with something")
    return _common("CASE", [*types[1::2], types[-1]])


_CASTS = {
    "long": ("boolean", "long", "double", "decimal", "string", "timestamp"),
    "double": ("boolean", "long", "double", "decimal"),
    "decimal": ("boolean", "long", "double", "decimal", "string"),
    "string": ("boolean", "long", "double", "decimal", "string", "date", "timestamp"),
    "boolean": ("boolean", "long", "double", "decimal", "string"),
    "date": ("date", "timestamp", "string"),
    "timestamp": ("date", "timestamp", "string", "long", "double"),
}
"""Types that a value of each type can be cast to."""


def _cast(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    target = cast_type(str(constant(arguments, 1, str)))
    if target.name not in _CASTS[types[0].name]:
        hint = f"a {types[0].name} becomes {', '.join(_CASTS[types[0].name])}"
        if (types[0], target) == (DOUBLE, STRING):
            hint = "engines write doubles differently: cast it to a decimal first"
        raise type_error(f"a {types[0]} is not cast to {target}", hint)
    return target


def _truncated(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _time(name, types[0])
    if constant(arguments, 1, str) not in UNITS:
        raise type_error(f"date_trunc has no unit {constant(arguments, 1, str)!r}", ", ".join(UNITS))
    return TIMESTAMP


def _distance(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    for type in types[:2]:
        _time("timestampdiff", type)
    if constant(arguments, 2, str) not in LENGTHS:
        raise type_error(f"timestampdiff has no unit {constant(arguments, 2, str)!r}", ", ".join(LENGTHS))
    return LONG


def _part(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _time(name, types[0])
    field = constant(arguments, 1, str)
    if field not in FIELDS:
        raise type_error(
            f"times have no field {field!r}", ", ".join(field_name for field_name in FIELDS if " " not in field_name)
        )
    return FIELDS[str(field)]


def _zoned(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    constant(arguments, 1, str)
    if types[0] != TIMESTAMP:
        hint = "a date has no time of day: CAST(x AS timestamp) is its midnight in UTC"
        raise type_error(f"AT TIME ZONE needs a timestamp, not {types[0]}", hint)
    return TIMESTAMP


def _parsed(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _strings(name, types[:1])
    time_format(str(constant(arguments, 1, str)))
    return TIMESTAMP if name == "to_timestamp" else DATE


def _length(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _strings(name, types)
    return INT


def _texts(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _strings(name, types)
    return STRING


def _substring(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _strings(name, types[:1])
    for at in range(1, len(arguments)):
        if abs(int(str(constant(arguments, at, int)))) > LONGEST:
            raise type_error("positions and lengths of a text have 31 bits")
    return STRING


def _split(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _substring(name, [types[0]], [arguments[0], arguments[2]])
    if not constant(arguments, 1, str) or not constant(arguments, 2, int):
        raise type_error("split_part needs a separator, and a place that is not 0", "the first is 1, the last -1")
    return STRING


def _replaced(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _strings(name, types[:1])
    old, new = str(constant(arguments, 1, str)), str(constant(arguments, 2, str))
    if not old:
        raise type_error("replace needs a text to look for")
    if len(new) > MOST_GROWTH * len(old) or (len(new) > len(old) and _grows(arguments[0])):
        hint = f"a replacement is up to {MOST_GROWTH} times as long, and no other one is replaced in"
        raise type_error("replace makes texts too long", hint)
    return STRING


def _grows(value: Expression) -> bool:
    """Return whether a text was made longer by replacing."""
    inner = value.arguments if isinstance(value, Call) else ()
    if isinstance(value, Call) and value.function == "replace":
        old, new = (str(getattr(argument, "value", "")) for argument in inner[1:])
        return len(new) > len(old) or _grows(inner[0])
    return any(map(_grows, inner))


def _matched(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    _strings(name, types[:1])
    readable_pattern(str(constant(arguments, 1, str)))
    return BOOLEAN


def _rounded(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers(name, types[:1])
    places = int(str(constant(arguments, 1, int)))
    if abs(places) > MOST_DIGITS:
        raise type_error(f"round takes up to {MOST_DIGITS} places")
    type = types[0]
    if type == DOUBLE:
        return DOUBLE
    integer_digits, scale = as_decimal(type)
    if type.name == "long":
        return type if places >= 0 else exact_type(name, types, max(integer_digits, -places) + 1)
    if places >= scale:
        return type
    # 9.99 may become 10
    integer_digits, scale = max(integer_digits, -places) + 1, max(places, 0)
    if integer_digits + scale > DECIMAL_DIGITS:
        raise too_wide(name, types, integer_digits + scale)
    return decimal(integer_digits + scale, scale)


def _whole(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers(name, types)
    if types[0] == DOUBLE:
        return LONG
    integer_digits, scale = as_decimal(types[0])
    if not scale:
        return types[0]
    return exact_type(name, types, integer_digits + 1)


def _real(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers(name, types)
    return DOUBLE


def _rest(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    check_numbers(name, types)
    if DOUBLE in types:
        return DOUBLE
    (integer_digits, scale), (other, places) = map(as_decimal, types)
    if all(type.name == "long" for type in types):
        return min(types, key=lambda type: type.digits)
    if unified(types) is None:
        raise too_wide(name, types, max(integer_digits, other) + max(scale, places))
    integer_digits, scale = min(integer_digits, other), max(scale, places)
    return decimal(max(1, integer_digits + scale), scale)


def _extreme(name: str, types: Sequence[Type], arguments: Sequence[Expression]) -> Type:
    return _common(name, types)


SCALARS = (
    Function("if", 3, None, _conditional, "the value behind the first condition that is true, else the last", "own"),
    Function("cast", 2, 2, _cast, "the value as another type; null where it is none", "partial"),
    Function("date_trunc", 2, 2, _truncated, "the time cut to its year, …, millisecond (UTC; weeks begin on Mondays)"),
    Function("date_part", 2, 2, _part, "one field of a time (UTC)"),
    Function(
        "time_diff",
        3,
        3,
        _distance,
        "the full units from a time to another, negative if that is earlier; null beyond 64 bits of microseconds",
        "partial",
    ),
    Function("at_zone", 2, 2, _zoned, "the time that the clock of a time zone shows, as a timestamp"),
    Function("to_timestamp", 2, 2, _parsed, "the timestamp that a text is by a format, else null", "partial"),
    Function("to_date", 2, 2, _parsed, "the date that a text is by a format, else null", "partial"),
    Function("substring", 2, 3, _substring, "characters from a place (1 is the first, -1 the last), so many"),
    Function("length", 1, 1, _length, "number of characters"),
    Function("split_part", 3, 3, _split, "a piece of a text between separators; empty if there are fewer"),
    Function("concat", 1, None, _texts, "the texts, one behind the other"),
    Function("trim", 1, 1, _texts, "without spaces at both ends"),
    Function("ltrim", 1, 1, _texts, "without spaces at the beginning"),
    Function("rtrim", 1, 1, _texts, "without spaces at the end"),
    Function("replace", 3, 3, _replaced, "with every occurrence of a text replaced"),
    Function("regexp_like", 2, 2, _matched, "whether a regular expression matches some part"),
    Function("round", 2, 2, _rounded, "rounded half up (away from zero) to so many places"),
    Function("floor", 1, 1, _whole, "the next whole number below; of a double null beyond 64 bits", "partial"),
    Function("ceil", 1, 1, _whole, "the next whole number above; of a double null beyond 64 bits", "partial"),
    Function("sqrt", 1, 1, _real, "square root; NaN of what is negative"),
    Function("ln", 1, 1, _real, "natural logarithm; null of what is not positive", "partial"),
    Function("exp", 1, 1, _real, "e to the power"),
    Function("sin", 1, 1, _real, "sine of an angle in radians"),
    Function("cos", 1, 1, _real, "cosine of an angle in radians"),
    Function("asin", 1, 1, _real, "angle in radians whose sine it is; NaN beyond -1 and 1"),
    Function("power", 2, 2, _real, "the first to the power of the second"),
    Function(
        "mod", 2, 2, _rest, "the rest of a division, with the sign of the first; null if the second is 0", "partial"
    ),
    Function("greatest", 2, None, _extreme, "the greatest of the values that are not null", "choice"),
    Function("least", 2, None, _extreme, "the least of the values that are not null", "choice"),
)
"""The functions of this module, by the names in :class:`optimizer.workload.values.Call`."""


# ---------------------------------------------------------------------------------------------- formats
_LETTERS = {"yyyy": r"\d{4}", "MM": r"\d\d", "dd": r"\d\d", "HH": r"\d\d", "mm": r"\d\d", "ss": r"\d\d"}
_FORMAT = re.compile(r"([a-zA-Z])\1*|'(?:[^']|'')*'|[^a-zA-Z']", re.ASCII)


def time_format(text: str) -> re.Pattern[str]:
    """Compile a format of times to the expression that matches such texts; groups by their letters.

    Each of ``yyyy MM dd HH mm ss`` and ``S`` to ``SSSSSS`` at most once, the first three always, a part of the day
    only after the greater ones; other characters stand for themselves, letters between quotes. Raises HDL-110.
    """
    hint = "e.g. 'dd/MM/yyyy HH:mm': yyyy MM dd HH mm ss S…SSSSSS, letters between quotes"
    pieces, seen = list[str](), list[str]()
    for match in _FORMAT.finditer(text):
        piece = match[0]
        if piece in _LETTERS or re.fullmatch("S{1,6}", piece):
            seen.append(piece[0])
            pieces.append(f"(?P<{piece[0]}>{_LETTERS.get(piece) or rf'[0-9]{{{len(piece)}}}'})")
        elif piece[0].isalpha() and piece[0].isascii() or piece[0] in "#{}[]":
            raise HeddleError("HDL-110", f"formats of times have no {piece!r}", hint)
        else:
            pieces.append(re.escape(piece[1:-1].replace("''", "'") if len(piece) > 1 else piece))
    needed = ["y", "M", "d", "H", "m", "s", "S"]
    if text.count("'") % 2 or len(text) > 64 or sorted(seen, key=needed.index) != needed[: max(3, len(seen))]:
        raise HeddleError("HDL-110", f"{text[:64]!r} is no format of times", hint)
    return re.compile("".join(pieces), re.ASCII)
