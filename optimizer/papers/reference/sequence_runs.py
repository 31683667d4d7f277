"""Results of a published executor of event sequences: the answers of each query, and the work they took.

The executors are :func:`optimizer.papers.reference.a_seq.a_seq`, :func:`optimizer.papers.reference.sharon.sharon` and
:func:`optimizer.papers.reference.two_step.two_step`. :mod:`optimizer.sequences` is measured against them, with the same
compacted events, the same windows and the same answers. All count matches (COUNT(*)) of several patterns in windows of
one range and slide.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]

EXACT_BELOW = 2.0**62
"""Limit of exact counts. Counts are kept modulo 2**64 and as doubles; a count whose double is below this is exact."""


class Counts(NamedTuple):
    """Answers of one query, ascending by (key, start); windows without a match have none.

    ``key``, ``start`` (of the window, ticks), ``matches`` (modulo 2**64), ``magnitude`` (the same as a double,
    from which it follows whether the count is exact): (a,).
    """

    key: Longs
    start: Longs
    matches: NDArray[np.uint64]
    magnitude: NDArray[np.float64]

    @property
    def inexact(self) -> NDArray[np.bool_]:
        """(a,) Where the count may have wrapped."""
        return self.magnitude >= EXACT_BELOW


class Run(NamedTuple):
    """Answers of a baseline, and the work they took.

    ``answers``: of each query; ``additions``: counts that were added to (two-step: sequences constructed); ``peak``:
    most counts in memory at the same time (two-step: events in sequences), per key, summed over the keys.
    """

    answers: list[Counts]
    additions: int
    peak: int


def check_windows(range: int, slide: int) -> None:
    """Raises ValueError for a range or slide that is not positive."""
    if range < 1 or slide < 1:
        raise ValueError(f"range and slide are positive, not {range} and {slide}")


def answer_rows(size: int, queries: int) -> tuple[NDArray[Any], ...]:
    """Buffers of (key, window) and the counts of every query in it."""
    shape = size, queries
    return np.empty(size, np.int64), np.empty(size, np.int64), np.empty(shape, np.uint64), np.empty(shape)


def counts_of_rows(columns: tuple[NDArray[Any], ...], rows: int, slide: int) -> list[Counts]:
    """The answers of each query in the first ``rows`` rows of such buffers."""
    key, window, exact, approximate = (column[:rows] for column in columns)
    answers = []
    for query in range(exact.shape[1]):
        matched = np.flatnonzero(approximate[:, query])
        answers.append(
            Counts(key[matched], window[matched] * slide, exact[matched, query], approximate[matched, query])
        )
    return answers
