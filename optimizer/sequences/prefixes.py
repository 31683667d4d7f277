"""The distinct prefixes of many sequences, as the nodes of a trie."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


class Prefixes(NamedTuple):
    """The prefixes of some sequences (s,) of codes, numbered 1..n in preorder; 0 is the empty one.

    ``last``, ``parent``, ``depth`` (n + 1,): last code of each (of the empty one -1), the prefix without it, and
    length. ``number`` (s, longest): of each sequence its prefixes, the shortest first; 0 behind its end. ``lengths``
    (s,).
    """

    last: Longs
    parent: Longs
    depth: Longs
    number: Longs
    lengths: Longs


def prefixes(sequences: Sequence[Sequence[int]]) -> Prefixes:
    """The prefixes of sequences of codes, which are not negative. Sorting takes O(s * longest * log s)."""
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    longest = int(lengths.max(initial=0))
    codes = np.full((len(lengths), longest), -1, dtype=np.int64)
    present = np.arange(longest) < lengths[:, None]
    codes[present] = np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum()))
    # a sequence comes before those that it is a prefix of
    order = np.lexsort(codes.T[::-1]) if longest else np.arange(len(lengths))
    ascending = codes[order]
    new = ascending >= 0
    new[1:] &= np.logical_or.accumulate(ascending[1:] != ascending[:-1], axis=1)
    number = np.zeros_like(codes)
    number[new] = np.arange(1, 1 + np.count_nonzero(new))
    # a prefix that the sequence before has too keeps its number
    number = np.maximum.accumulate(number, axis=0)
    row, column = np.nonzero(new)
    parent = np.where(column > 0, number[row, column - 1], 0)
    number[ascending < 0] = 0
    numbers = np.empty_like(number)
    numbers[order] = number
    nothing = np.zeros(1, dtype=np.int64)
    return Prefixes(
        np.concatenate([nothing - 1, ascending[new]]),
        np.concatenate([nothing, parent]),
        np.concatenate([nothing, column + 1]),
        numbers,
        lengths,
    )
