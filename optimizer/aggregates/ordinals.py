"""Numbers that are in order as their doubles are, and hashes that every machine agrees on."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.states import Longs

_LOW_BITS = (1 << 63) - 1

_NAN = int(np.array([np.nan]).view(np.int64)[0]) & _LOW_BITS


def ordinals_of_doubles(values: NDArray[np.float64], exact: bool = False) -> Longs:
    """Doubles (n,) as int64 (n,) in the same order: NaN is the greatest, equal to itself, and comes back as one NaN.

    -0.0 becomes 0.0, as the values of one order are one value; ``exact`` keeps it, just below 0.0, for doubles that
    are carried along. :func:`doubles_of_ordinals` is the inverse.
    """
    with np.errstate(invalid="ignore"):  # signalling NaN
        bits = (values.copy() if exact else values + 0.0).view(np.int64)
    bits[np.isnan(values)] = _NAN
    return bits ^ ((bits >> 63) & _LOW_BITS)


def doubles_of_ordinals(ordinals: Longs) -> NDArray[np.float64]:
    """Inverse of :func:`ordinals_of_doubles`."""
    return (ordinals ^ ((ordinals >> 63) & _LOW_BITS)).view(np.float64)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

_MURMUR = np.uint64(0xC6A4A7935BD1E995)


@numba.njit(cache=True, inline="always")
def _mixed(x):
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@numba.njit(cache=True)
def hash64(ordinals):
    """A 64-bit hash (n,) uint64 of each number (n,) int64: the same on every machine and in every run.

    References: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014), the finaliser.
    """
    out = np.empty(len(ordinals), np.uint64)
    for i in range(len(ordinals)):
        out[i] = _mixed(np.uint64(ordinals[i]))
    return out


def hash64_of_texts(texts: Sequence[str]) -> NDArray[np.uint64]:
    """A 64-bit hash (n,) of each text's UTF-8 bytes: the same on every machine and in every run (MurmurHash64A)."""
    pieces = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, pieces)])
    return _hash_bytes(ends, np.frombuffer(b"".join(pieces), dtype=np.uint8))


@numba.njit(cache=True)
def _hash_bytes(ends, data):
    out = np.empty(len(ends) - 1, np.uint64)
    for i in range(len(out)):
        begin, end = ends[i], ends[i + 1]
        h = np.uint64(end - begin) * _MURMUR
        for first in range(begin, end, 8):
            word = np.uint64(0)
            for at in range(min(first + 8, end) - 1, first - 1, -1):
                word = (word << np.uint64(8)) | np.uint64(data[at])
            word = word * _MURMUR
            word = (word ^ (word >> np.uint64(47))) * _MURMUR
            h = (h ^ word) * _MURMUR
        out[i] = _mixed(h)
    return out
