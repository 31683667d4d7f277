"""Combines states of equal cells, with Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
import numpy as np
import pyarrow as pa

from optimizer.combine.elements import IDENTITIES, combine_numbers
from optimizer.workload.values import Type
from spark_jobs.store.arrays.numbering import LONG_MAX, Longs, ranked


@numba.njit(cache=True)
def scatter_add(cells, values, columns, out):
    """Add columns of rows (n, width) to those of their cells, in place."""
    for i in range(len(cells)):
        for column in columns:
            out[cells[i], column] += values[i, column]


def _scatter_with(operation: int) -> Callable[..., None]:
    """The kernel that combines numbers (n,) into their cells (c,), in place, by one operation."""

    @numba.njit(cache=True)
    def scatter(cells, values, out):
        for i in range(len(cells)):
            out[cells[i]] = combine_numbers(operation, out[cells[i]], values[i])

    return scatter


SCATTER = {operation: _scatter_with(operation) for operation in IDENTITIES}
"""A kernel for each operation: a kernel that decides for each number takes up to 10 % longer."""


@numba.njit(cache=True)
def winners(cells, present, order, value, greatest, out):
    """The row (c,) of each cell whose pair wins, written to ``out`` (-1 before): of those with ``present`` >= 0 the one
    of the least or greatest (order, present, value); for cells without any, any row."""
    for i in range(len(cells)):
        best = out[cells[i]]
        if best < 0:
            out[cells[i]] = i
            continue
        if present[i] < 0:
            continue
        if present[best] < 0:
            out[cells[i]] = i
            continue
        if order[i] != order[best]:
            better = order[i] > order[best]
        elif present[i] != present[best]:
            better = present[i] > present[best]
        elif value[i] != value[best]:
            better = value[i] > value[best]
        else:
            continue
        if better == greatest:
            out[cells[i]] = i


@numba.njit(cache=True)
def unite(cells, values, weights, count, greatest):
    """Elements (m,) by cell and value, one each: offsets (count + 1,), values, weights."""
    offsets = np.zeros(count + 1, np.int64)
    for i in range(len(cells)):
        offsets[cells[i] + 1] += 1
    for cell in range(count):
        offsets[cell + 1] += offsets[cell]
    place = offsets[:-1].copy()
    sorted_values = np.empty(len(values), np.int64)
    sorted_weights = np.empty(len(values), np.int64)
    for i in range(len(cells)):
        at = place[cells[i]]
        place[cells[i]] += 1
        sorted_values[at] = values[i]
        sorted_weights[at] = weights[i]
    written = 0
    for cell in range(count):
        low, high = offsets[cell], offsets[cell + 1]
        offsets[cell] = written
        ascending = True
        for i in range(low + 1, high):
            if sorted_values[i] < sorted_values[i - 1]:
                ascending = False
                break
        if not ascending:
            order = np.argsort(sorted_values[low:high], kind="mergesort")
            sorted_values[low:high] = sorted_values[low:high][order]
            sorted_weights[low:high] = sorted_weights[low:high][order]
        first = written
        for i in range(low, high):
            if written > first and sorted_values[written - 1] == sorted_values[i]:
                if not greatest:
                    sorted_weights[written - 1] += sorted_weights[i]
                elif sorted_weights[i] > sorted_weights[written - 1]:
                    sorted_weights[written - 1] = sorted_weights[i]
            else:
                sorted_values[written] = sorted_values[i]
                sorted_weights[written] = sorted_weights[i]
                written += 1
    offsets[count] = written
    return offsets, sorted_values[:written].copy(), sorted_weights[:written].copy()


@numba.njit(cache=True)
def ragged(first, counts):
    """Positions first[i], first[i] + 1, ... of counts[i] elements for each i, one after the other."""
    out = np.empty(counts.sum(), np.int64)
    at = 0
    for i in range(len(first)):
        for j in range(counts[i]):
            out[at] = first[i] + j
            at += 1
    return out


def unified(parts: Sequence[pa.StringArray | None], type: Type | None) -> tuple[list[Longs], pa.StringArray | None]:
    """One sorted list of the texts of all parts, and for each part the new ranks of its texts; None if not texts."""
    if parts[0] is None:
        return [], None
    assert type is not None
    if all(part is not None and part.equals(parts[0]) for part in parts):
        return [np.arange(len(parts[0]), dtype=np.int64)] * len(parts), parts[0]
    ranks, texts = ranked(pa.concat_arrays(parts), type)
    cuts = np.cumsum([len(part) for part in parts if part is not None])
    return np.split(ranks, cuts[:-1]), texts


def reranked(ranks: Longs, renumbering: Longs) -> Longs:
    """Ranks in a new list of texts; what is no rank (the identity of min or max) stays."""
    known = (ranks >= 0) & (ranks < LONG_MAX)
    return np.where(known, renumbering[np.where(known, ranks, 0)], ranks) if len(renumbering) else ranks
