"""Arrow values in the types of the language: which type holds which, and exact ways from one to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.types import DECIMAL_DIGITS, as_decimal
from optimizer.workload.values import DOUBLE, Call, Type

Value = Any
"""An Arrow Array or, for what does not depend on the row, a Scalar."""

Kernel = Callable[[list[Value], list[Type], Type, Call], Value]
"""Compute the values of a call from its arguments' values and types, and the type of its result."""

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.utf8(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}

EXACT_DOUBLE = 15
"""Decimals with at most this number of digits are exact as an integer in a double, and so is the power of ten."""


def arrow_type(type: Type) -> pa.DataType:
    """The Arrow type that holds values of a type, in batches and in results."""
    if type.name == "decimal":
        return pa.decimal128(type.precision, type.scale)
    return _PLAIN[type.name]


def as_double(value: Value, type: Type) -> Value:
    """Nearest double of each number. Arrow's own cast of decimals is off by one unit in the last place for
    one decimal(5,2) in eight, which moves rows across a comparison."""
    if type == DOUBLE:
        return value
    if type.name == "long":
        return value.cast(pa.float64(), safe=False)
    if isinstance(value, pa.Scalar):
        return pa.scalar(None if value.as_py() is None else float(value.as_py()), pa.float64())
    if type.precision <= EXACT_DOUBLE:
        # one correctly rounded division of two exact doubles; the low of a value's two words holds it whole
        words = np.frombuffer(value.buffers()[1], dtype=np.int64)
        unscaled = words[2 * value.offset : 2 * (value.offset + len(value)) : 2]
        return pa.array(unscaled / 10.0**type.scale, mask=value.is_null().to_numpy(zero_copy_only=False))
    return pa.array([None if item is None else float(item) for item in value.to_pylist()], pa.float64())


def as_wide_decimal(value: Value, type: Type, scale: int) -> Value:
    """An exact number as decimal256 with a scale: room for every comparison and product of two decimals."""
    digits, _ = as_decimal(type)
    if type.name == "long":
        return value.cast(pa.decimal256(max(19, digits) + scale, scale))
    return value.cast(pa.decimal256(digits + scale, scale))


def narrow(value: Value, result: Type) -> Value:
    """A wide decimal in the type that was proven to hold it."""
    return value.cast(pa.decimal256(DECIMAL_DIGITS, result.scale)).cast(arrow_type(result))


def as_type(value: Value, type: Type, result: Type) -> Value:
    """Convert a value to a common type, see :func:`optimizer.workload.types.unified`."""
    if result == DOUBLE:
        return as_double(value, type)
    if result.name == "decimal":
        return narrow(as_wide_decimal(value, type, result.scale), result)
    return value.cast(arrow_type(result))


def over_arrays(kernel: Kernel, first: bool = False) -> Kernel:
    """A kernel that sees arrays alone; ``first``: the one of the first argument, as the others are constants."""

    def run(values: list[Value], types: list[Type], result: Type, call: Call) -> Value:
        inputs = values[:1] if first else values
        rows = next((len(value) for value in inputs if not isinstance(value, pa.Scalar)), None)
        arrays = [pa.repeat(value, rows or 1) if isinstance(value, pa.Scalar) else value for value in inputs]
        if rows == 0:
            arrays = [array.slice(0, 0) for array in arrays]
        output = kernel(arrays, types, result, call)
        return output if rows is not None else output[0]

    return run


def each(value: pa.Array, change: Callable[[Any], Any], type: pa.DataType) -> pa.Array:
    """A Python function of each value that is not null, called once for equal ones."""
    encoded = value.dictionary_encode()
    answers = pa.array([change(item) for item in encoded.dictionary.to_pylist()], type)
    return answers.take(encoded.indices)


def only_where(known: pa.Array, value: pa.Array) -> pa.Array:
    """The values where something is known, null elsewhere."""
    return pc.if_else(known, value, pa.scalar(None, value.type))


def whole_numbers(rounded: np.ndarray[Any, np.dtype[np.float64]], nulls: pa.Array, bits: int) -> pa.Array:
    """Doubles that are whole numbers, as integers; null if they need more than ``bits`` bits, and for NaN."""
    fits = (rounded >= -(2.0 ** (bits - 1))) & (rounded < 2.0 ** (bits - 1))
    numbers = np.where(fits, rounded, 0.0).astype(np.int64)
    return pa.array(numbers, mask=~fits | np.asarray(nulls))


def nulls_of(value: pa.Array) -> Sequence[bool]:
    """Null mask of an array, as NumPy."""
    return value.is_null().to_numpy(zero_copy_only=False)
