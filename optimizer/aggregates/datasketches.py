"""Sketches in the binary form of Apache DataSketches, from exact multisets: equal multisets give equal bytes.

Values are hashed as Spark 4.2 hashes them, so that its functions read these sketches and combine them with their own.
HyperLogLog and Theta sketches are the library's, fed in ascending order. A KLL sketch of the library is made by chance,
so equal values have sketches of different bytes; ours is laid out here: every run of ``2**h`` values in a row is
represented by the middle one, at level h.

References: Karnin, Lang, Liberty, "Optimal quantile approximation in streams" (FOCS 2016), for the levels; the format
of ``KllPreambleUtil`` of DataSketches-Java 6.2.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.states import Array, Longs, Lowered, Multisets, States
from optimizer.workload.values import Output

Made = Callable[[Array, Longs, int], bytes | None]
"""A sketch of distinct values (m,), ascending, with their weights (m,) and the sketch's parameter; None of no value."""


def hll_sketch(values: Array, weights: Longs, lgk: int) -> bytes | None:
    """HyperLogLog with 2**lgk registers of 8 bits, as ``hll_sketch_agg``."""
    from datasketches import HLL_8, hll_sketch

    sketch: Any = _updated(hll_sketch(lgk, HLL_8), values)
    return sketch.serialize_compact() if len(values) else None


def theta_sketch(values: Array, weights: Longs, lgk: int) -> bytes | None:
    """Theta sketch with 2**lgk entries, nominally, as ``theta_sketch_agg``."""
    from datasketches import update_theta_sketch

    sketch: Any = _updated(update_theta_sketch(lgk), values)
    return sketch.compact().serialize() if len(values) else None


def _updated(sketch: Any, values: Array) -> Any:
    for value in values.tolist():
        sketch.update(value)
    return sketch


LEAST_LEVEL = 8
"""Items that every level of a KLL sketch has room for."""


def quantile_sketch(values: Array, weights: Longs, k: int) -> bytes | None:
    """A KLL sketch of at most k + 62 items, compatible with ``kll_sketch_agg_bigint`` and ``_double``; NaN is ignored.

    For n > k values, ranks are off by at most n / k. For fewer values the sketch stores all of them.
    """
    if values.dtype == np.float64:
        known = ~np.isnan(values)
        values, weights = values[known], weights[known]
    total = int(weights.sum())
    if total == 0:
        return None
    code = "<d" if values.dtype == np.float64 else "<q"
    if total == 1:
        return struct.pack("<BBBBHBB", 2, 2, 15, 4, k, LEAST_LEVEL, 0) + struct.pack(code, values[0])
    levels = _levels(values, weights, total, k)
    room = sum(_capacity(k, len(levels) - 1 - level) for level in range(len(levels)))
    sizes = [len(level) for level in levels]
    begins = room - sum(sizes) + np.concatenate([[0], np.cumsum(sizes[:-1])])
    head = struct.pack("<BBBBHBBQHBB", 5, 1, 15, 2, k, LEAST_LEVEL, 0, total, k, len(levels), 0)
    items = np.concatenate([values[:1], values[-1:], *levels]).astype(code)
    return head + begins.astype("<u4").tobytes() + items.tobytes()


def _levels(values: Array, weights: Longs, total: int, k: int) -> list[NDArray[Any]]:
    """The items of each level, ascending; an item of level h represents 2**h values."""
    top = 0
    while total >> top > k:
        top += 1
    sizes = [1 << level for level in range(top) if total >> level & 1] + [1 << top] * (total >> top)
    run = np.array(sizes, dtype=np.int64)
    middle = np.cumsum(run) - run // 2
    chosen = values[np.searchsorted(np.cumsum(weights), middle)]
    return [chosen[run == 1 << level] for level in range(top + 1)]


def _capacity(k: int, depth: int) -> int:
    """Number of items that fit into a level, ``depth`` levels below the highest: k * (2 / 3) ** depth."""
    if depth > 30:
        return max(LEAST_LEVEL, _two_thirds(_two_thirds(k, depth // 2), depth - depth // 2))
    return max(LEAST_LEVEL, _two_thirds(k, depth))


def _two_thirds(k: int, power: int) -> int:
    return ((k << power + 1) // 3**power + 1) >> 1


def lower_sketch(make: Made) -> Callable[[States, Output], Lowered]:
    """Return the lowering of outputs that are a sketch: its bytes in base64, null if there is no value."""

    def lower(states: States, output: Output) -> Lowered:
        assert output.parameter is not None
        multisets: Multisets = states["values"]
        return _texts(_encoded(make(*multiset, int(output.parameter))) for multiset in multisets.each())

    return lower


def _encoded(sketch: bytes | None) -> str | None:
    return None if sketch is None else base64.b64encode(sketch).decode()


def _texts(encoded: Iterable[str | None]) -> Lowered:
    texts = np.array([*encoded, None], dtype=object)[:-1]
    valid = np.array([text is not None for text in texts], dtype=bool)
    return Lowered(texts, valid)
