"""The papers' workload generator: windows drawn by slide skew and overlap factor.

Neither paper defines its "Zipf distribution of slides". P(s) proportional to s^skew fits F1's parameters (skew 0 is
uniform, a larger one prefers large slides, 100 repeats the largest only) and the numbers of trees in its third
experiment; the rank form does not.

References
----------
Guirguis et al., Weave Share, CIKM 2011, section 6 (ACQs); Shein et al., F1, CIKM 2015, section 5.1 (parameters).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import PAPER, SearchProblem
from optimizer.workload.values import SECOND

TICK = SECOND // 2
"""Microseconds of the unit of slides in the figures of Weave Share.

The paper's table of parameters is lost in the scan and its text names no slides. Slides of 1 to 20 *half seconds*
without fragments give the five savings that it prints for Figure 8 within eight points, and Figure 9's limits."""

LARGEST_SLIDE = 20
"""In units of :data:`TICK`."""

SKEW = 0.6
"""Weave Share's, wherever skew does not vary."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of a generated workload, in seconds (or another tick). Shapes (n,)."""

    ranges: NDArray[np.int64]
    slides: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.slides)

    def problem(self, rate: Fraction | int, collapse: bool = True, tick: int = SECOND) -> SearchProblem:
        """These windows over a stream of ``rate`` tuples/s under the papers' cost (Weave Share Eq. 1).

        ``tick``: microseconds per unit of the windows.
        """
        return SearchProblem.of_windows(
            self.ranges * tick, self.slides * tick, Fraction(rate), PAPER, collapse=collapse
        )


def generate(
    count: int,
    largest_slide: int,
    skew: float,
    largest_overlap: int,
    primes_only: bool = False,
    seed: int = 0,
    fragments: bool = False,
) -> Windows:
    """Random windows as in the papers' evaluations; a larger ``count`` extends a smaller one of the same seed.

    Parameters
    ----------
    count
        Number of windows.
    largest_slide
        Slides are drawn from 1 .. ``largest_slide`` seconds with P(s) proportional to s^``skew``.
    largest_overlap
        Overlap factors are uniform in [1, ``largest_overlap``]: rounded to integers, so that the slide divides the
        range, or with ``fragments`` real, the range being rounded to a second.
    primes_only
        Draw from the primes alone (F1's diverse generator).

    Raises
    ------
    ValueError
        No slide to draw from, or a parameter below 1.
    """
    if count < 1 or largest_overlap < 1:
        raise ValueError("count and largest_overlap must be at least 1")
    choices = _primes(largest_slide) if primes_only else np.arange(1, largest_slide + 1, dtype=np.int64)
    if not len(choices):
        raise ValueError(f"no slide to draw up to {largest_slide}")
    # relative to the largest: 10,000^100 is no float
    popularity = np.cumsum((choices / choices[-1]) ** skew)
    for_slides, for_overlaps = (np.random.default_rng([seed, part]) for part in range(2))
    slides = choices[np.searchsorted(popularity, for_slides.random(count) * popularity[-1], side="right")]
    overlaps = 1 + for_overlaps.random(count) * (largest_overlap - 1)
    if fragments:
        return Windows(np.maximum(np.rint(overlaps * slides).astype(np.int64), 1), slides)
    return Windows(np.rint(overlaps).astype(np.int64) * slides, slides)


def _primes(largest: int) -> NDArray[np.int64]:
    is_prime = np.ones(max(largest + 1, 2), dtype=np.bool_)
    is_prime[:2] = False
    for number in range(2, int(largest**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = False
    return np.flatnonzero(is_prime).astype(np.int64)
