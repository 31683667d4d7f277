"""Computed keys of joins: the names that expressions have as keys, and the expressions that such names denote."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from optimizer.workload.attribute_names import COMPUTED, KeyCall, KeyConstant, KeyPart, key_text, read_key
from optimizer.workload.values import Call, Column, Expression, Literal, Type

_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")


def key_name(expression: Expression) -> str:
    """The name of an expression as a key: that of a column, or a text that equal expressions share."""
    if isinstance(expression, Column):
        return expression.name
    return COMPUTED + key_text(_part(expression))


@lru_cache(maxsize=8192)
def key_expression(key: str) -> Expression:
    """The expression that a key denotes: inverse of :func:`key_name`."""
    computed = read_key(key)
    return Column(key) if computed is None else _value(computed)


def _part(value: Expression) -> KeyPart:
    if isinstance(value, Column):
        return value.name
    if isinstance(value, Call):
        return KeyCall(value.function, tuple(map(_part, value.arguments)))
    return KeyConstant(_type_text(value.type), None if value.value is None else _constant_text(value))


def _value(part: KeyPart) -> Expression:
    if isinstance(part, str):
        return Column(part)
    if isinstance(part, KeyCall):
        return Call(part.function, tuple(map(_value, part.arguments)))
    type_ = _type(part.type)
    return Literal(None if part.text is None else _constant(part.text, type_), type_)


def _type_text(type: Type) -> str:
    if type.name == "long":
        return f"long({type.digits})"
    return f"decimal({type.precision},{type.scale})" if type.name == "decimal" else type.name


def _type(text: str) -> Type:
    match = _TYPE.fullmatch(text)
    assert match is not None, text
    first, second = (int(number or 0) for number in match.groups()[1:])
    return Type("decimal", 0, first, second) if match[1] == "decimal" else Type(match[1], first)


def _constant_text(literal: Literal) -> str:
    value = literal.value
    return value.hex() if isinstance(value, float) else str(value)


def _constant(text: str, type: Type) -> object:
    if type.name == "boolean":
        return text == "True"
    if type.name in ("long", "timestamp"):
        return int(text)
    if type.name == "double":
        return float.fromhex(text)
    return Decimal(text) if type.name == "decimal" else text
