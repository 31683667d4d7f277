"""Periods of the calendar (UTC) into which the fragments of long windows are combined: days, months, years."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.windows.alignment import Fragments
from optimizer.workload.instants import DAY

PERIODS = ("day", "month", "year")
"""The periods, the shortest first. Each consists of complete ones of the period before."""

LONG = 62 * DAY
"""Length of a synopsis's longest window from which on it has levels: shorter ones read few days anyway."""

_UNITS = {"day": "D", "month": "M", "year": "Y"}


@dataclass(frozen=True)
class Periods(Fragments):
    """Fragments that are periods of one length, in place of those between edges. ``period``: one of
    :data:`PERIODS`."""

    period: str = "day"

    def _numbers(self, times: NDArray[np.int64]) -> NDArray[np.datetime64]:
        return (times // DAY).astype("datetime64[D]").astype(f"datetime64[{_UNITS[self.period]}]")

    def starts(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Start of the period of each instant. Shape (n,) to (n,)."""
        return _instants(self._numbers(times))

    def ends(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """End of each period, given its start. Shape (n,) to (n,)."""
        return _instants(self._numbers(starts) + 1)

    def between(self, begin: int, end: int) -> NDArray[np.int64]:
        """All starts of periods in ``[begin, end]``, ascending."""
        first, last = self._numbers(np.array([begin - 1, end], dtype=np.int64))
        return _instants(np.arange(first + 1, last + 1))


def _instants(numbers: NDArray[np.datetime64]) -> NDArray[np.int64]:
    return numbers.astype("datetime64[D]").astype(np.int64) * DAY
