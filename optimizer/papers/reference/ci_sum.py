"""CI-SUM: which of many substreams have a sum of positive integers above, or below, v over the last T.

As CI-COUNT (:mod:`optimizer.papers.reference.ci_count`): an element of weight w counts as w elements at one time, which
are entered together.

References
----------
Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: section 4.2. Deviations: an
element is entered in O(p log m) whatever its weight; for others see :mod:`optimizer.papers.reference.ci_levels`.
"""

from __future__ import annotations

from typing import Any

import numba

from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.papers.reference.ci_levels import CollectiveIndex, level_at, more_levels
from optimizer.papers.reference.substream_updates import TOTAL_LIMIT, expired_instant


@numba.njit(cache=True)
def add_weight(stamps, lengths, p, key, time, weight, expired):
    """Enter an element of weight >= 1 as that number of elements at one time, else like ``add_element`` of CI-COUNT.

    Each level's element is a new one, or sits at a level known from before: O(levels), whatever the weight.
    """
    rows = stamps.shape[0]
    length = lengths[key] + weight  # only its last 61 bits count: it may wrap
    j = rows // p
    if p <= TOTAL_LIMIT >> j:
        nearest = (p << j) - p + 1
        before = nearest + ((length - nearest + 1) & ((1 << j) - 1)) - weight
        if before < 1:
            return False
        level = level_at(before, p)
        if level < rows and stamps[level, key] > expired:
            return False
    for j in range(rows // p - 1, -1, -1):
        for i in range(p - 1, -1, -1):
            nearest = ((p + i) << j) - p + 1
            before = nearest + ((length - nearest + 1) & ((1 << j) - 1)) - weight
            if before < 1:
                stamps[p * j + i, key] = time
            else:
                level = level_at(before, p)
                # in levels much larger than the weight the element mostly stays
                if level != p * j + i:
                    stamps[p * j + i, key] = stamps[level, key]
    lengths[key] = length
    return True


@numba.njit(cache=True)
def _feed_weights(stamps, lengths, p, keys, times, weights, limit):
    for at in range(len(keys)):
        key, time = keys[at], times[at]
        while not add_weight(stamps, lengths, p, key, time, weights[at], expired_instant(time, limit)):
            stamps = more_levels(stamps, p)
    return stamps


class CollectiveSum(CollectiveIndex):
    """CI-SUM: which of many substreams have a sum of positive integers above, or below, v over the last T.

    Parameters as of :class:`optimizer.papers.reference.ci_count.CollectiveCount`; an update takes O(p log m), m the sum
    of a substream, whatever the weight.

    References: Arasu & Widom (VLDB 2004) section 4.2.
    """

    def __init__(self, keys: int, p: int = 8, span_limit: int | None = None, exact: bool = True) -> None:
        super().__init__(keys, p, span_limit, exact, weighted=True)

    def update(self, key: int, time: int, weight: int) -> None:
        """Add one element of a weight of 1..2**61.

        Raises ValueError for another weight or if times do not ascend, IndexError for an unknown key, OverflowError
        if a key's total would exceed 2**61 (noticed only by an ``exact`` index).
        """
        if not 1 <= weight <= TOTAL_LIMIT:
            raise ValueError(f"weights are 1..2**61, not {weight}")
        expired = self._tick(key, time)
        if self.totals is not None:
            self.totals.append(key, time, weight, expired)
        while not add_weight(self.stamps, self.lengths, self.p, key, time, weight, expired):
            self.stamps = more_levels(self.stamps, self.p)

    def update_many(self, keys: Any, times: Any, weights: Any) -> None:
        """Elements in order: keys (n,), times (n,), weights (n,) of 1..2**61.

        Raises as :meth:`update`; what comes before a weight that is too much has been entered then.
        """
        self._enter(_feed_weights, keys, times, weights)


stamp_kernels(globals())
