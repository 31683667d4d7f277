"""Expressions as SQL: for people, and as the names of group columns that are computed. Different ones differ in it."""

from __future__ import annotations

from datetime import timedelta

from optimizer.workload.expression import EPOCH
from optimizer.workload.scalars import SCALARS
from optimizer.workload.values import Column, Expression, Literal

_INFIX = {"=", "!=", "<", "<=", ">", ">=", "and", "or", "like", "+", "-", "*", "/"}
_SCALARS = {function.name for function in SCALARS}


def written(value: Expression, nested: bool = False) -> str:
    """An expression as SQL, in one line; ``nested``: put an operator in parentheses."""
    if isinstance(value, Column):
        return value.name if value.name.isidentifier() else "`" + value.name.replace("`", "``") + "`"
    if isinstance(value, Literal):
        return _constant(value)
    function = value.function
    if function == "cast":
        return f"CAST({written(value.arguments[0])} AS {getattr(value.arguments[1], 'value', '')})"
    parts = [written(part, function not in _SCALARS) for part in value.arguments]
    if function in _INFIX and len(parts) > 1:
        text = f" {function.upper() if function.isalpha() else function} ".join(parts)
        return f"({text})" if nested else text
    if function == "if":
        cases = " ".join(f"WHEN {when} THEN {then}" for when, then in zip(parts[:-1:2], parts[1::2], strict=True))
        return f"CASE {cases} ELSE {parts[-1]} END"
    if function == "at_zone":
        return f"({parts[0]} AT TIME ZONE {parts[1]})" if nested else f"{parts[0]} AT TIME ZONE {parts[1]}"
    if function == "time_diff":
        return f"timestampdiff({getattr(value.arguments[2], 'value', '')}, {parts[0]}, {parts[1]})"
    if function in ("date_trunc", "date_part"):
        return f"{function}({parts[1]}, {parts[0]})"
    if function == "in":
        parts = [
            "null" if getattr(argument, "value", 0) is None else text
            for argument, text in zip(value.arguments, parts, strict=True)
        ]
        return f"{parts[0]} IN ({', '.join(parts[1:])})"
    if function == "is_null":
        return f"{parts[0]} IS NULL"
    if function == "not":
        return f"NOT {parts[0]}"
    return f"-{parts[0]}" if function == "neg" else f"{function}({', '.join(parts)})"


def _constant(literal: Literal) -> str:
    value, type = literal.value, literal.type
    if value is None:
        return f"CAST(NULL AS {type})"
    if isinstance(value, bool):
        return str(value).lower()
    if type.name == "timestamp":
        try:
            return f"timestamp '{(EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)}'"
        except OverflowError:
            return f"timestamp_micros({value})"
    if type.name in ("string", "date"):
        return ("date " if type.name == "date" else "") + "'" + str(value).replace("'", "''") + "'"
    text = str(value)
    return text + "e0" if type.name == "double" and "e" not in text else text
