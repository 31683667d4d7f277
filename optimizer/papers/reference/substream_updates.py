"""Common base of the structures over many substreams: keys, times, windows, and validation.

A stream is partitioned by key (stock symbols, hosts) and many queries ask for the keys whose COUNT, SUM, MAX or MIN
over their own window passes their own threshold. A look-up in every substream takes time in the number of keys
(:mod:`optimizer.papers.reference.r_int`). A *collective index* over all of them leaves a few to check
(:mod:`optimizer.papers.reference.ci_count`, :mod:`optimizer.papers.reference.ci_sum`,
:mod:`optimizer.papers.reference.ci_max_min`). The same question over stored partial aggregates, fragments instead of
single events, is :class:`optimizer.combine.threshold_index.HavingIndex`.

Times are integers (microseconds in Heddle), ascending in the order of updates; equal times are allowed. Windows are the
paper's: at time ``now`` the last T are the instants ``now - T + 1 .. now``, both included. Keys are numbers 0..keys-1.
"""

from __future__ import annotations

import operator
from typing import Any

import numba
import numpy as np

from optimizer.combine.threshold_index import NEVER, Longs

TOTAL_LIMIT = 1 << 61
"""The largest sum over what one key holds."""

TOO_LARGE = "the sum of what one key holds exceeds 2**61"


@numba.njit(cache=True, inline="always")
def floor_log2(x):
    """floor(log2(x)) for 1 <= x < 2**63."""
    exponent = 0
    for step in (32, 16, 8, 4, 2, 1):
        if x >> step:
            x >>= step
            exponent += step
    return exponent


@numba.njit(cache=True, inline="always")
def expired_instant(time, limit):
    """The latest instant that no window from this time on holds. ``limit``: the longest window, 0 for any."""
    return time - limit if limit and time > NEVER + limit else NEVER


class SubstreamClock:
    """Common state of the structures: number of keys, longest span of windows, time of the last update."""

    def __init__(self, keys: int, span_limit: int | None) -> None:
        if keys < 1:
            raise ValueError(f"at least one key, not {keys}")
        if span_limit is not None and not 1 <= span_limit < 1 << 62:
            raise ValueError(f"the longest window is 1 instant or longer, not {span_limit}")
        self.keys = keys
        self.span_limit = span_limit
        self.latest = NEVER
        self._limit = span_limit or 0
        self._found = np.empty(keys, np.int64)

    def _tick(self, key: int, time: int) -> int:
        """Register one update and return the last instant that has expired. Raises as :meth:`_taken`."""
        if not 0 <= key < self.keys:
            raise IndexError(f"keys are 0..{self.keys - 1}, not {key}")
        if time < self.latest or time == NEVER:
            raise ValueError(f"times ascend: {time} is before {self.latest}")
        self.latest = time
        return max(time - self._limit, NEVER) if self._limit else NEVER

    def _taken(self, keys: Any, times: Any) -> tuple[Longs, Longs]:
        """Updates as arrays. Raises ValueError if they are not in order, IndexError for an unknown key."""
        numbers = np.ascontiguousarray(keys, dtype=np.int64)
        moments = np.ascontiguousarray(times, dtype=np.int64)
        if numbers.ndim != 1 or numbers.shape != moments.shape:
            raise ValueError("one time for each key")
        if len(numbers):
            if numbers.min() < 0 or numbers.max() >= self.keys:
                raise IndexError(f"keys are 0..{self.keys - 1}")
            if moments[0] < self.latest or moments[0] == NEVER or (moments[1:] < moments[:-1]).any():
                raise ValueError("times ascend from one update to the next")
            self.latest = int(moments[-1])
        return numbers, moments

    def _cutoff(self, now: int, span: int) -> int:
        """The first instant of a window. Raises ValueError for a window that cannot be looked up."""
        if now < self.latest:
            raise ValueError(f"windows end at the last update ({self.latest}) or later, not at {now}")
        if span < 1 or (self.span_limit is not None and span > self.span_limit):
            raise ValueError(f"a window is 1..{self.span_limit or 'any number of'} instants, not {span}")
        return max(now - span + 1, NEVER + 1)


def weights_of(weights: Any, count: int) -> Longs:
    """Weights (count,) as the kernels take them. Raises ValueError unless each is in 1..2**61."""
    converted = np.ascontiguousarray(weights, dtype=np.int64)
    if converted.shape != (count,) or (count and not 1 <= converted.min() <= converted.max() <= TOTAL_LIMIT):
        raise ValueError("weights are 1..2**61, one for each key")
    return converted


def threshold_of(v: int) -> int:
    """A threshold in the form of the kernels. Sums never pass the limit, so all larger thresholds are equal."""
    if v < 0:
        raise ValueError(f"counts and sums of positive numbers are compared with 0 or more, not {v}")
    return min(operator.index(v), TOTAL_LIMIT + 1)
