"""Expressions of the language over Arrow batches.

Null and NaN follow Spark: logic is three-valued, NaN equals NaN and is greater than everything, -0.0 equals
0.0, ``x / 0`` is null. Integers and decimals are computed exactly in the type that
:mod:`optimizer.workload.expression` has proven wide enough, so nothing here checks for overflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.workload.expression import call_type, type_of
from optimizer.workload.types import as_decimal
from optimizer.workload.values import DOUBLE, TIMESTAMP, Call, Column, Expression, Literal, Type
from spark_jobs.streams.sources.conversions import Kernel, Value, as_double, as_type, as_wide_decimal, narrow
from spark_jobs.streams.sources.conversions import arrow_type as arrow_type
from spark_jobs.streams.sources.scalars import SCALAR_KERNELS, less


def evaluate(
    expression: Expression, batch: pa.RecordBatch | pa.Table, schema: Mapping[str, Type]
) -> pa.Array | pa.ChunkedArray:
    """The values of an expression for the rows of a batch, in :func:`arrow_type` of its type.

    ``batch`` holds the columns of ``schema`` (others are ignored) in their Arrow types. Shape (n,): a
    ChunkedArray for a Table, else an Array. Raises what :func:`optimizer.workload.expression.type_of` raises.
    """
    if isinstance(batch, pa.Table):
        chunks = [evaluate(expression, piece, schema) for piece in batch.to_batches()]
        return pa.chunked_array(chunks, arrow_type(type_of(expression, schema)))
    value, _ = _evaluate(expression, batch, schema)
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, batch.num_rows)
    return value


def passed(condition: Expression, batch: pa.RecordBatch | pa.Table, schema: Mapping[str, Type]) -> NDArray[np.bool_]:
    """Mask (n,) of the rows of a batch for which a condition is true, as for :func:`evaluate`."""
    is_true = pc.fill_null(evaluate(condition, batch, schema), False)
    mask: NDArray[np.bool_] = np.asarray(is_true.to_numpy(zero_copy_only=False), dtype=bool)
    return mask


def _evaluate(expression: Expression, batch: Any, schema: Mapping[str, Type]) -> tuple[Value, Type]:
    if isinstance(expression, Column):
        return batch.column(expression.name), schema[expression.name]
    if isinstance(expression, Literal):
        return _scalar(expression), expression.type
    pairs = [_evaluate(argument, batch, schema) for argument in expression.arguments]
    values, types = [value for value, _ in pairs], [type for _, type in pairs]
    result = call_type(expression.function, types, expression.arguments)
    return _KERNELS[expression.function](values, types, result, expression), result


def _scalar(literal: Literal) -> pa.Scalar:
    value = literal.value
    if literal.type.name == "date" and value is not None:
        value = np.datetime64(value, "D").item()
    return pa.scalar(value, arrow_type(literal.type))


# ------------------------------------------------------------------------------------------ conversions
def _comparable(values: list[Value], types: list[Type]) -> tuple[Value, Value, bool]:
    """Two values in one Arrow type, and whether they are doubles."""
    if types[0].is_numeric and types[0].name != types[1].name or "decimal" in (types[0].name, types[1].name):
        if DOUBLE in types:
            left, right = (as_double(value, type) for value, type in zip(values, types, strict=True))
            return left, right, True
        scale = max(as_decimal(type)[1] for type in types)
        left, right = (as_wide_decimal(value, type, scale) for value, type in zip(values, types, strict=True))
        return left, right, False
    if types[0] != types[1] and TIMESTAMP in types:
        left, right = (value.cast(arrow_type(TIMESTAMP)) for value in values)
        return left, right, False
    return values[0], values[1], types[0] == DOUBLE


# ---------------------------------------------------------------------------------------------- kernels
def _equal(left: Value, right: Value, doubles: bool) -> Value:
    same = pc.equal(left, right)
    if doubles:
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return same


def _compare(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    left, right, doubles = _comparable(values, types)
    if call.function == "=":
        return _equal(left, right, doubles)
    if call.function == "!=":
        return pc.invert(_equal(left, right, doubles))
    if call.function == "<":
        return less(left, right, doubles)
    if call.function == ">":
        return less(right, left, doubles)
    if call.function == "<=":
        return pc.invert(less(right, left, doubles))
    return pc.invert(less(left, right, doubles))


def _in(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    if {type.name for type in types} <= {"long"} or {type.name for type in types} == {"string"}:
        return _in_set(values[0], [value for value in values[1:] if value.is_valid], len(values) - 1)
    equal = []
    for value, type in zip(values[1:], types[1:], strict=True):
        left, right, doubles = _comparable([values[0], value], [types[0], type])
        equal.append(_equal(left, right, doubles))
    return reduce(pc.or_kleene, equal)


def _in_set(value: Value, items: list[pa.Scalar], listed: int) -> Value:
    """IN by one hash lookup. ``items`` are the ``listed`` ones that are not null: with a null in the list no value is
    known to be absent.
    """
    is_in = pc.is_in(value, value_set=pa.array([item.as_py() for item in items], value.type))
    if len(items) < listed:
        is_in = pc.if_else(is_in, is_in, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), is_in)


def _arithmetic(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    compute = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[call.function]
    if result == DOUBLE:
        return compute(*(as_double(value, type) for value, type in zip(values, types, strict=True)))
    if result.name == "long":
        return compute(*values)
    wide = [as_wide_decimal(value, type, as_decimal(type)[1]) for value, type in zip(values, types, strict=True)]
    return narrow(compute(*wide), result)


def _divide(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    left, right = (as_double(value, type) for value, type in zip(values, types, strict=True))
    zero = pc.equal(right, 0.0)
    return pc.divide(left, pc.if_else(zero, pa.scalar(None, pa.float64()), right))


def _sign(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    compute = pc.negate if call.function == "neg" else pc.abs
    if result.name == "decimal" and types[0].name == "long":
        return narrow(compute(as_wide_decimal(values[0], types[0], 0)), result)
    return compute(values[0])


def _case(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    """Upper or lower case as Java does it: by Unicode's full mapping ('ß' to 'SS'), which Arrow lacks."""
    value = values[0]
    change = str.lower if call.function == "lower" else str.upper
    if isinstance(value, pa.Scalar):
        return pa.scalar(None if value.as_py() is None else change(value.as_py()), pa.utf8())
    if pc.all(pc.string_is_ascii(value), min_count=0).as_py():
        return pc.ascii_lower(value) if call.function == "lower" else pc.ascii_upper(value)
    return pa.array([None if text is None else change(text) for text in value.to_pylist()], pa.utf8())


def _coalesce(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    return pc.coalesce(*(as_type(value, type, result) for value, type in zip(values, types, strict=True)))


def _like(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
    return pc.match_like(values[0], pattern=values[1].as_py())


_KERNELS: dict[str, Kernel] = {
    **dict.fromkeys(("=", "!=", "<", "<=", ">", ">="), _compare),
    **dict.fromkeys(("+", "-", "*"), _arithmetic),
    **dict.fromkeys(("neg", "abs"), _sign),
    **dict.fromkeys(("lower", "upper"), _case),
    "/": _divide,
    "and": lambda values, types, result, call: reduce(pc.and_kleene, values),
    "or": lambda values, types, result, call: reduce(pc.or_kleene, values),
    "not": lambda values, types, result, call: pc.invert(values[0]),
    "is_null": lambda values, types, result, call: pc.is_null(values[0]),
    "in": _in,
    "like": _like,
    "coalesce": _coalesce,
    **SCALAR_KERNELS,
}
