"""Calls of functions of single values as they are written: which function answers each, and its constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from optimizer.language.nodes import refuse, without_parentheses
from optimizer.workload.expression import exact_literal, negated, number
from optimizer.workload.values import STRING, Literal


@dataclass(frozen=True)
class Written:
    """The form of a function: ``function`` answers it, with ``least`` to ``most`` values (None: any number), then
    constants of these kinds, ``optional`` of which may be missing. ``leading``: the constants precede the values.
    ``fixed``: constants that the name implies.
    """

    function: str
    least: int = 1
    most: int | None = 1
    constants: tuple[str, ...] = ()
    optional: int = 0
    leading: bool = False
    fixed: tuple[Literal, ...] = ()


def _field(name: str) -> Written:
    return Written("date_part", fixed=(Literal(name, STRING),))


_ROUND = Written("round", constants=("whole number",), optional=1)
_SUBSTRING = Written("substring", constants=("whole number", "whole number"), optional=1)
_PART = Written("date_part", constants=("text",), leading=True)
_DIFFERENCE = Written("time_diff", 2, 2, constants=("unit",), leading=True)
_MATCH = Written("regexp_like", constants=("text",))

SCALAR_CALLS: dict[str, Written] = {
    **{name: Written(name) for name in ("abs", "lower", "upper", "length", "trim", "ltrim", "rtrim")},
    **{name: Written(name) for name in ("floor", "ceil", "sqrt", "ln", "exp", "sin", "cos", "asin")},
    "char_length": Written("length"),
    "ceiling": Written("ceil"),
    "coalesce": Written("coalesce", 1, None),
    **dict.fromkeys(("ifnull", "nvl"), Written("coalesce", 2, 2)),
    **{name: Written(name, 2, None) for name in ("greatest", "least")},
    "if": Written("if", 3, 3),
    "nullif": Written("nullif", 2, 2),
    **dict.fromkeys(("power", "pow"), Written("power", 2, 2)),
    "mod": Written("mod", 2, 2),
    "try_divide": Written("/", 2, 2),
    "concat": Written("concat", 1, None),
    "round": _ROUND,
    **dict.fromkeys(("substring", "substr"), _SUBSTRING),
    **{name: Written(name, constants=("whole number",)) for name in ("left", "right")},
    "split_part": Written("split_part", constants=("text", "whole number")),
    "replace": Written("replace", constants=("text", "text"), optional=1),
    **dict.fromkeys(("regexp_like", "rlike"), _MATCH),
    "from_utc_timestamp": Written("at_zone", constants=("text",)),
    "date_trunc": Written("date_trunc", constants=("text",), leading=True),
    **dict.fromkeys(("date_part", "datepart"), _PART),
    "timestampdiff": _DIFFERENCE,
    **dict.fromkeys(("datediff", "date_diff"), replace(_DIFFERENCE, optional=1)),
    **{name: _field(name) for name in ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear")},
    **{name: _field(name) for name in ("hour", "minute")},
    "dayofmonth": _field("day"),
    "weekofyear": _field("week"),
    "second": _field("whole second"),
    **{name: Written(name, constants=("text",), optional=1) for name in ("to_timestamp", "to_date")},
}
"""Every function of single values as it is called."""

FIELD_NAMES = {
    **{name: name for name in ("year", "quarter", "month", "week", "day", "dayofweek", "hour", "minute", "second")},
    **{"doy": "dayofyear", "dow": "dayofweek", "yr": "year", "mon": "month", "weeks": "week", "days": "day"},
    **{"years": "year", "months": "month", "hours": "hour", "minutes": "minute", "seconds": "second"},
}
"""Fields of a time as ``extract`` and ``date_part`` name them."""

_DEFAULTS = {"replace": Literal("", STRING), "round": exact_literal(0)}

_UNIT_NAMES = {"yyyy": "year", "yy": "year", "mm": "month", "mon": "month", "dd": "day"}

Arguments = tuple[list[exp.Expr], tuple[Literal, ...]]


def sort_arguments(name: str, nodes: Sequence[exp.Expr], node: exp.Expr) -> Arguments:
    """The values of a call, and its constants in the order in which the function takes them."""
    shape = SCALAR_CALLS[name]
    least, most = shape.least + len(shape.constants) - shape.optional, shape.most
    limit = None if most is None else most + len(shape.constants)
    if len(nodes) < least or (limit is not None and len(nodes) > limit):
        argument_count = (
            str(least) if least == limit else f"at least {least}" if limit is None else f"{least} to {limit}"
        )
        refuse("HDL-104", f"{name} takes {argument_count} argument(s), not {len(nodes)}", "", node)
    values, written = list(nodes), list[exp.Expr]()
    if shape.constants:
        at = len(nodes) - shape.least if shape.leading else shape.least
        values, written = (values[at:], values[:at]) if shape.leading else (values[:at], values[at:])
    kinds = shape.constants[: len(written)]
    constants = [_constant(constant_node, kind, name) for constant_node, kind in zip(written, kinds, strict=True)]
    if len(written) < len(shape.constants) and shape.function in _DEFAULTS:
        constants.append(_DEFAULTS[shape.function])
    return values, (*_canonical(shape.function, constants), *shape.fixed)


def _constant(node: exp.Expr, kind: str, name: str) -> Literal:
    inner = without_parentheses(node)
    if type(inner) is exp.Literal and inner.is_string and kind in ("text", "unit"):
        return Literal(inner.this, STRING)
    if kind == "unit" and type(inner) is exp.Column and not inner.table:
        return Literal(inner.name, STRING)
    sign = type(inner) is exp.Neg
    digits = inner.this if sign else inner
    if type(digits) is exp.Literal and not digits.is_string and kind == "whole number" and digits.this.isdigit():
        literal = number(digits.this)
        return negated(literal) if sign else literal
    refuse("HDL-203", f"{name} takes a {kind} here that stands in the query", "write the value", node)


def _canonical(function: str, constants: list[Literal]) -> list[Literal]:
    """The constants, with fields and units by their one name."""
    if function == "date_part" and constants:
        name = str(constants[0].value).lower()
        return [Literal(FIELD_NAMES.get(name, name), STRING)]
    if function == "time_diff":
        return [Literal(str(unit.value).lower().removesuffix("s"), STRING) for unit in constants]
    if function == "date_trunc":
        name = str(constants[0].value).lower()
        return [Literal(_UNIT_NAMES.get(name, name), STRING)]
    return constants


def target_name(node: exp.Expr) -> str:
    """The type that a cast names, as :func:`optimizer.workload.scalars.cast_type` reads it."""
    parameters = [parameter.this.name for parameter in node.expressions if type(parameter) is exp.DataTypeParam]
    plain = type(node) is exp.DataType and isinstance(node.this, exp.DType) and len(parameters) == len(node.expressions)
    if not plain:
        refuse("HDL-203", "this is no type that values are cast to", "CAST(x AS double)", node)
    name = _TYPES.get(node.this, node.this.name.lower())
    return f"{name}({','.join(parameters)})" if parameters else name


_TYPES = {
    exp.DType.TEXT: "string",
    exp.DType.VARCHAR: "string",
    exp.DType.BIGINT: "long",
    exp.DType.INT: "int",
    exp.DType.SMALLINT: "short",
    exp.DType.TINYINT: "byte",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
}
"""Types by sqlglot's names for them, where ours are others."""
