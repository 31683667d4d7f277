"""Edges of windows as published: sets and bit sets (Weave Share), and F1's inclusion and exclusion.

References: Guirguis et al., CIKM 2011, section 4; F1, CIKM 2015, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import Progression, progressions
from optimizer.windows.factors import common_period
from optimizer.workload.values import Window

BIT_SET_LIMIT = 1 << 27
"""Longest period, in ticks of the common divisor, that the bit set marks (one byte each)."""

F1_LIMIT = 1 << 22
"""Most groups of overlapping progressions that F1 expands: some ten seconds."""

GCD_TABLE_BYTES = 1 << 21
"""Memory for the table of gcds of ``f1-opt``, two bytes each: pairs of numbers up to 1,448."""


class CountRefused(HeddleError):
    """A counter's stated limit is reached: the edges of this union are not counted (HDL-350)."""


def edge_set(window: Window) -> tuple[Progression, ...]:
    """The edges of one window specification in lowest terms: equal iff the edges are.

    Usually ``(s, 0)`` alone or with ``(s, r mod s)``, shifted back where the window is historical; two edges half a
    slide apart are the same as half the slide with one edge.
    """
    edges = progressions([window])
    if len(edges) == 2 and 2 * (edges[1][1] - edges[0][1]) == edges[0][0]:
        return ((edges[0][0] // 2, edges[0][1]),)
    return edges


def irregular_edges(windows: Iterable[Window]) -> dict[int, tuple[Progression, ...]]:
    """The edge sets, by number, of those windows whose edges do not follow from range, slide and ``ago``."""
    return {number: edge_set(window) for number, window in enumerate(windows) if not window.is_regular}


def f1_terms(progressions: Iterable[Progression], gcd: Callable[[int, int], int] = math.gcd) -> tuple[int, ...]:
    """The sums ``LCM * G(n, i)``, i = 1.., of F1 Eqs. 3 and 6: with alternating signs, a period's edges.

    Trailing sums without any overlapping group are omitted. Contained progressions
    are not removed first, as in the paper's examples.

    Raises
    ------
    CountRefused
        HDL-350 above :data:`F1_LIMIT` overlapping groups.

    References
    ----------
    F1 Eqs. 2-6. A group overlaps iff all its pairs pass the Overlap Check (Eq. 4): pairwise compatible
    congruences are jointly solvable.
    """
    distinct = sorted(set(progressions))
    period = common_period(distinct)
    terms = [0] * (len(distinct) + 1)
    # later[i]: the later progressions that share instants with i, as a bitmap; a group is never
    # extended by one that clashes with a member, which cuts off every larger group with it
    later = [
        sum(
            1 << j
            for j in range(i + 1, len(distinct))
            if (distinct[i][1] - distinct[j][1]) % gcd(distinct[i][0], distinct[j][0]) == 0
        )
        for i in range(len(distinct))
    ]
    groups = [(1, 1, (1 << len(distinct)) - 1)]
    expanded = 0
    while groups:
        size, multiple, allowed = groups.pop()
        expanded += allowed.bit_count()
        if expanded > F1_LIMIT:
            raise refusal("f1", f"these {len(distinct)} progressions", f"{F1_LIMIT} overlapping groups")
        while allowed:
            lowest = allowed & -allowed
            allowed ^= lowest
            index = lowest.bit_length() - 1
            slide = distinct[index][0]
            joined = multiple // gcd(multiple, slide) * slide
            terms[size] += period // joined
            if allowed & later[index]:
                groups.append((size + 1, joined, allowed & later[index]))
    while terms and not terms[-1]:
        terms.pop()
    return tuple(terms[1:])


def f1_rate(reduced: Sequence[Progression], gcd: Callable[[int, int], int] = math.gcd) -> Fraction:
    """The edge rate by F1: the terms of inclusion and exclusion over the common period."""
    signed = (term if i % 2 == 0 else -term for i, term in enumerate(f1_terms(reduced, gcd)))
    return Fraction(sum(signed), common_period(reduced))


def f1_rate_with_table(reduced: Sequence[Progression]) -> Fraction:
    """:func:`f1_rate` with greatest common divisors out of a table, as the paper's optimised F1 has it."""
    return f1_rate(reduced, _gcd_table(GCD_TABLE_BYTES))


@lru_cache(maxsize=1)
def _gcd_table(size: int) -> Callable[[int, int], int]:
    """Gcds of all pairs of numbers up to sqrt(2 * size / 2), preloaded; Euclid's algorithm until it gets there."""
    bound = math.isqrt(2 * size // 2)
    numbers = np.arange(bound + 1)
    # row a holds gcd(a, b) for b <= a: half of all pairs, two bytes each
    rows = [np.gcd(a, numbers[: a + 1]).astype(np.uint16).data for a in range(bound + 1)]

    def gcd(a: int, b: int) -> int:
        if a < b:
            a, b = b, a
        while a > bound and b:
            a, b = b, a % b
        return rows[a][b] if b else a

    return gcd


def bit_set_rate(reduced: Sequence[Progression]) -> Fraction:
    """The edge rate by marking each edge of the common period. Raises HDL-350 if the period is too long."""
    period = common_period(reduced)
    if period > BIT_SET_LIMIT:
        raise refusal("bit-set", f"a period of {period} ticks", f"{BIT_SET_LIMIT} ticks")
    marks = np.zeros(period, dtype=np.bool_)
    for slide, shift in reduced:
        marks[shift::slide] = True
    return Fraction(int(np.count_nonzero(marks)), period)


def refusal(counter: str, what: str, limit: str) -> CountRefused:
    """The error (HDL-350) of an edge counter that does not take some windows."""
    return CountRefused(
        "HDL-350",
        f"the {counter} edge counter does not take {what} (limit: {limit})",
        "use counter 'auto', put the queries in more trees, or choose slides with common factors",
    )
