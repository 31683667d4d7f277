"""Queries over matches and their answers: patterns, measures, exact counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.sequences import kernels
from optimizer.sequences.events import Longs


@dataclass(frozen=True)
class Measure:
    """An aggregate over the events of one ``type`` in all matches of a window (an event counts once for every match
    and every position of the pattern at which the match has it).

    ``function``: ``sum`` (of no value: 0; ask for ``known`` to detect null), ``known`` (number of values that are not
    null), ``min``, ``max`` of ``attribute`` (Spark's order of doubles, NaN greatest).
    """

    function: str
    attribute: str
    type: int


@dataclass(frozen=True)
class SequenceQuery:
    """One query: ``pattern`` of type codes (at least one), windows ``[k*slide, k*slide + range)`` in ticks.

    ``absent``: empty, or for each code of the pattern those of which no event lies between it and the next one (behind
    the last: none).
    """

    pattern: tuple[int, ...]
    range: int
    slide: int
    measures: tuple[Measure, ...] = ()
    absent: tuple[tuple[int, ...], ...] = ()

    def first(self, steps: int) -> SequenceQuery:
        """The query of a prefix, without measures."""
        absent = (*self.absent[: steps - 1], ()) if any(self.absent[: steps - 1]) else ()
        return SequenceQuery(self.pattern[:steps], self.range, self.slide, (), absent)


@dataclass(frozen=True)
class Integers:
    """Exact integers (a,): 128-bit two's complement, ``low`` uint64 and ``high`` int64, which is a decimal128's buffer.

    ``over`` (a,): the integer has more than 38 digits (or is undetermined); its ``low`` and ``high`` mean nothing.
    """

    low: NDArray[np.uint64]
    high: Longs
    over: NDArray[np.bool_]

    def integers(self) -> list[int | None]:
        """Return Python integers; None where ``over``."""
        parts = zip(self.low.tolist(), self.high.tolist(), self.over.tolist(), strict=True)
        return [None if over else (high << 64) + low for low, high, over in parts]


@dataclass(frozen=True)
class Numbers:
    """Values (a,), int64 or float64, and which of them are ``known`` (not null)."""

    values: NDArray[Any]
    known: NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Answers of one query, ascending by (key, start): ``key`` and ``start`` of the window (a,), number of matches
    ``count`` (>= 1), and for each measure of the query Integers (sum of integers, known) or Numbers (sum of doubles,
    min, max)."""

    key: Longs
    start: Longs
    count: Integers
    measures: tuple[Integers | Numbers, ...] = ()


def lanes_for(windows: int) -> int:
    """The number of lanes for this number of windows: a multiple of :data:`kernels.LANES`."""
    return -(-windows // kernels.LANES) * kernels.LANES
