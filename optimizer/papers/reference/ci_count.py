"""CI-COUNT: which of many substreams have more, or fewer, than v elements in the last T.

References
----------
Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: sections 4.1.1 (Figure 7)
and 4.1.2 (p). Deviations: see :mod:`optimizer.papers.reference.ci_levels`.
"""

from __future__ import annotations

from typing import Any

import numba

from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.papers.reference.ci_levels import CollectiveIndex, more_levels
from optimizer.papers.reference.substream_updates import expired_instant


@numba.njit(cache=True)
def add_element(stamps, lengths, p, key, time, expired):
    """Enter one element (Figure 7, UPDATE); False, and nothing is changed, if a level more is needed for it.

    stamps: (levels, keys or more) times by level and key; lengths: (keys,) elements so far; expired: instants up to
    this one lie in no window to come.
    """
    rows = stamps.shape[0]
    number = lengths[key] + 1 + p
    top = p
    while number & 1 == 0 and top <= rows:  # one exponent more for each trailing zero
        number >>= 1
        top += p
    if top > rows:
        if stamps[rows - 1, key] > expired:
            return False
        top = rows
    for level in range(top - 1, 0, -1):
        stamps[level, key] = stamps[level - 1, key]
    stamps[0, key] = time
    lengths[key] += 1
    return True


@numba.njit(cache=True)
def _feed_elements(stamps, lengths, p, keys, times, weights, limit):
    for at in range(len(keys)):
        key, time = keys[at], times[at]
        while not add_element(stamps, lengths, p, key, time, expired_instant(time, limit)):
            stamps = more_levels(stamps, p)
    return stamps


class CollectiveCount(CollectiveIndex):
    """CI-COUNT: substreams that have more, or fewer, than v elements in the last T, for any v and T.

    Parameters
    ----------
    keys
        Number of substreams.
    p
        Levels of each power-of-two size. More levels give fewer false candidates (``relative_error`` of
        :mod:`optimizer.papers.reference.ci_levels`) but take more work and memory: an update copies 2p times on
        average, and each key has p * log2(elements / p) levels.
    span_limit
        The longest window of look-ups (T_max; None: any). Levels that only older elements reach are dropped.
    exact
        Keep histories, so that :meth:`exact` can check candidates.

    References: Arasu & Widom (VLDB 2004) sections 4.1.1 (Figure 7) and 4.1.2 (p).
    """

    def __init__(self, keys: int, p: int = 8, span_limit: int | None = None, exact: bool = True) -> None:
        super().__init__(keys, p, span_limit, exact, weighted=False)

    def update(self, key: int, time: int) -> None:
        """Add one element. Raises ValueError if times do not ascend, IndexError for an unknown key."""
        expired = self._tick(key, time)
        if self.totals is not None:
            self.totals.append(key, time, 1, expired)
        while not add_element(self.stamps, self.lengths, self.p, key, time, expired):
            self.stamps = more_levels(self.stamps, self.p)

    def update_many(self, keys: Any, times: Any) -> None:
        """Elements in order: keys (n,), times (n,). Raises as :meth:`update`."""
        self._enter(_feed_elements, keys, times)


stamp_kernels(globals())
