"""Elements of one to three columns, which runs of fragments combine, and the kernels that join two of them.

References: Arasu & Widom, "Resource sharing in continuous sliding-window aggregates" (VLDB 2004), section 3.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from optimizer.aggregates.state_kinds import (
    ADD_DOUBLE,
    GREATEST_PAIR,
    LEAST_PAIR,
    STATE_KINDS,
    combine,
    subtract,
)
from optimizer.combine.kernel_stamps import stamp_kernels

_KINDS = {kind.code: kind for kind in STATE_KINDS.values() if kind.code is not None}

IDEMPOTENT = frozenset(code for code, kind in _KINDS.items() if kind.is_idempotent)

IDENTITIES = {code: kind.identity for code, kind in _KINDS.items() if kind.identity is not None}
"""The number without a value, by the operation that combines it."""

SUBTRACTABLE = frozenset(code for code, kind in _KINDS.items() if kind.is_subtractable)

_ON_DOUBLES = frozenset({ADD_DOUBLE, *(code for code, kind in _KINDS.items() if kind.no_double is not None)})

WIDE = {ADD_DOUBLE: 2, LEAST_PAIR: 3, GREATEST_PAIR: 3}

Longs = NDArray[np.int64]

Columns = tuple[NDArray[Any], ...]
"""Elements by column: one of integers, two of a double-double, three of a pair and its index."""


combine_numbers = numba.njit(cache=True)(combine)
"""Combine two integers by an operation, in kernels."""

subtract_numbers = numba.njit(cache=True)(subtract)
"""Subtract one integer from another by an operation, in kernels."""


# An element is a tuple of scalars. `len` of a tuple is known when a kernel is compiled, so only the branch that fits
# is compiled, and each structure is written once for all carriers.
@numba.njit(cache=True)
def take_element(columns, index):
    """The element at an index of one to three columns."""
    if len(columns) == 1:
        return (columns[0][index],)
    if len(columns) == 2:
        return columns[0][index], columns[1][index]
    return columns[0][index], columns[1][index], columns[2][index]


@numba.njit(cache=True)
def put_element(columns, index, element):
    """Store an element at an index of one to three columns."""
    columns[0][index] = element[0]
    if len(columns) > 1:
        columns[1][index] = element[1]
    if len(columns) > 2:
        columns[2][index] = element[2]


@numba.njit(cache=True)
def join_elements(operation, a, b):
    """Combine two elements, ``a`` the earlier: of equal pairs the first wins."""
    if len(a) == 1:
        return (combine_numbers(operation, a[0], b[0]),)
    if len(a) == 2:
        # the sum of two double-doubles (Dekker); an infinity or NaN carries no rounding error
        total = a[0] + b[0]
        virtual = total - a[0]
        error = (a[0] - (total - virtual)) + (b[0] - virtual) + a[1] + b[1]
        high = total + error
        if np.isfinite(high):
            return high, error - (high - total)
        return total, 0.0
    if a[0] == b[0] and a[1] == b[1]:
        return a
    return b if (a[0] < b[0] or (a[0] == b[0] and a[1] < b[1])) == (operation == GREATEST_PAIR) else a


@intrinsic
def _leading_zeros(typing_context, number):
    def code(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], cgutils.false_bit)

    return numba.int64(numba.int64), code


@numba.njit(cache=True)
def log2(number):
    """The position of the highest bit of a number > 0."""
    return 63 - _leading_zeros(number)


_SIGNLESS = np.int64(2**63 - 1)

_INFINITY = np.float64(np.inf).view(np.int64)

_NAN = np.float64(np.nan).view(np.int64) & _SIGNLESS


@numba.njit(cache=True)
def _flip(bits, out):
    for i in range(len(bits)):
        word = bits[i]
        if (word & _SIGNLESS) > _INFINITY:
            word = _NAN
        out[i] = word ^ ((word >> 63) & _SIGNLESS)


def ordinals(values: NDArray[np.float64]) -> Longs:
    """Integers (n,) in the order of doubles (n,): -inf < ... < -0.0 < 0.0 < ... < inf < NaN (all NaN alike)."""
    out = np.empty(len(values), dtype=np.int64)
    _flip(np.ascontiguousarray(values, dtype=np.float64).view(np.int64), out)
    return out


def doubles(numbers: Longs) -> NDArray[np.float64]:
    """Inverse of :func:`ordinals`."""
    return (numbers ^ ((numbers >> 63) & _SIGNLESS)).view(np.float64)


def element_columns(values: NDArray[Any], operation: int) -> Columns:
    """Values (n, width) as the columns that kernels take. Raises ValueError if the operation does not apply."""
    exact = np.issubdtype(values.dtype, np.integer)
    if values.ndim != 2 or values.shape[1] != WIDE.get(operation, 1):
        raise ValueError(f"operation {operation} does not combine values of shape {values.shape}")
    if operation not in (IDENTITIES if exact else _ON_DOUBLES):
        raise ValueError(f"operation {operation} does not combine {values.dtype}")
    if exact:
        return (np.ascontiguousarray(values[:, 0], dtype=np.int64),)
    if operation == ADD_DOUBLE:
        return np.ascontiguousarray(values[:, 0]), np.ascontiguousarray(values[:, 1])
    return (ordinals(values[:, 0]),)


def empty_columns(columns: Columns, size: int) -> Columns:
    """Columns of another size and of the same types, not filled."""
    return tuple(np.empty(size, column.dtype) for column in columns)


def column_values(columns: Columns, dtype: Any) -> NDArray[Any]:
    """Inverse of :func:`_columns`: (a, width)."""
    if len(columns) == 1:
        return (columns[0] if np.issubdtype(dtype, np.integer) else doubles(columns[0]))[:, None]
    return np.stack(columns, axis=1)


stamp_kernels(globals())
