"""Counting edges exactly: how many instants of a period begin or end some window.

A tree's edges are the union of *progressions* (slide, shift): the instants ``shift + k*slide``
(:mod:`optimizer.window` derives them from windows). Its edge rate E decides whether sharing pays, and
counting it is the hard part of planning: the period is an LCM and grows beyond any bit set,
inclusion-exclusion doubles with every progression. Three counters answer exactly and identically; none is
best everywhere, ``auto`` chooses.

``bit-set``
    Mark every edge of one period in a bitmap and count the marks (the reference).
``f1``
    Inclusion-exclusion over groups of progressions that overlap.
``conditioning``
    Count the instants that *no* progression hits. Progressions whose slides share no factor are independent
    (Chinese remainder theorem), so such components multiply. Where a factor q connects a component, fix the
    residue of time modulo a power of q: the classes ``a mod q^v`` of the progressions are nested or
    disjoint, so one smaller problem without q is left for every distinct class, weighted by the residues
    that belong to that class and to no finer one. Everything is a sum of products of non-negative integers:
    nothing cancels.

All counters first divide by the greatest common divisor of slides and shifts, so that windows in
microseconds cost no more than the same windows in minutes.

References
----------
Guirguis et al., "Optimized processing of multiple aggregate continuous queries" (Weave Share), CIKM 2011:
Definition 1, section 8 (edges bitmap). Shein et al., "F1: accelerating the optimization of aggregate
continuous queries", CIKM 2015: Eqs. 2-7. Deviations: F1's removal of "multiples" compares shifts as well as
slides (by slides alone it is wrong with fragments); conditioning is not in the papers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from optimizer.errors import HeddleError
from optimizer.query import Window
from optimizer.window import Progression, absorb, progressions

BIT_SET_LIMIT = 1 << 27
"""Longest period, in ticks of the common divisor, that the bit set marks (one byte each)."""

F1_LIMIT = 22
"""Most progressions, after absorption, that F1 expands (up to 2^22 groups)."""

CONDITIONING_LIMIT = 20_000
"""Most subproblems that conditioning opens for one count, some seconds of work: exact counting is #P-hard,
so it has to end somewhere. 200 random windows with fragments and slides up to 1,000 ticks need some 3,000."""

SMALL_PERIOD = 1 << 15
"""Periods up to this many ticks are marked in a bitmap rather than split further."""


class CountRefused(HeddleError):
    """A counter's stated limit is reached: the edges of this union are not counted (HDL-350)."""


def edge_set(window: Window) -> tuple[Progression, ...]:
    """The edges of one window specification in lowest terms: equal iff the edges are.

    Usually ``(s, 0)`` alone or with ``(s, r mod s)``; an inner edge in the middle of the slide is the same as
    half the slide without an inner edge.
    """
    found = progressions([window])
    half = window.slide // 2
    if found == ((window.slide, 0), (window.slide, half)) and 2 * half == window.slide:
        return ((half, 0),)
    return found


def edge_rate(progressions: Iterable[Progression], counter: str = "auto") -> Fraction:
    """Edges per unit of time of the union of some progressions, exactly.

    Parameters
    ----------
    progressions
        (slide, shift) pairs in any one integer unit, slide > 0; shifts are taken modulo their slide.
    counter
        ``"auto"`` or one of :data:`COUNTERS`.

    Returns
    -------
    Fraction
        Edges per unit, in (0, 1] (0 without progressions). Times a common multiple of the slides it is an
        integer.

    Raises
    ------
    CountRefused
        HDL-350 where the counter would need more than its stated limit (``auto``: that of conditioning).
    ValueError
        Unknown counter, or a slide that is not positive.
    """
    reduced, unit = _reduce(progressions)
    if not reduced:
        return Fraction(0)
    if counter == "auto":
        counter = "bit-set" if _period(reduced) <= SMALL_PERIOD else "conditioning"
    if counter not in COUNTERS:
        raise ValueError(f"unknown counter {counter!r}: one of auto, {', '.join(COUNTERS)}")
    return _counted(counter, reduced) / unit


@lru_cache(maxsize=4096)
def _counted(counter: str, reduced: tuple[Progression, ...]) -> Fraction:
    """Plans, baselines and explanations ask for the same trees again."""
    return COUNTERS[counter](reduced)


def weaveability(a: Iterable[Progression], b: Iterable[Progression]) -> Fraction:
    """Common edges over all edges (of the union) of two trees, in [0, 1] (Weave Share Definition 1)."""
    a, b = list(a), list(b)
    union = edge_rate(a + b)
    return (edge_rate(a) + edge_rate(b) - union) / union


def f1_terms(progressions: Iterable[Progression]) -> tuple[int, ...]:
    """The sums ``LCM * G(n, i)``, i = 1.., of F1 Eqs. 3 and 6: with alternating signs, a period's edges.

    Trailing sums without any overlapping group are left out. Progressions are taken as given: contained
    ones are not removed first, as in the paper's examples.

    Raises
    ------
    CountRefused
        HDL-350 above :data:`F1_LIMIT` progressions.

    References
    ----------
    F1 Eqs. 2-6. A group overlaps iff all its pairs pass the Overlap Check (Eq. 4): pairwise compatible
    congruences are jointly solvable.
    """
    given = sorted(set(progressions))
    if len(given) > F1_LIMIT:
        raise _refusal("f1", f"{len(given)} progressions", f"{F1_LIMIT}")
    period = _period(given)
    terms = [0] * (len(given) + 1)
    # later[i]: the later progressions that share instants with i, as a bitmap; a group is never
    # extended by one that clashes with a member, which cuts off every larger group with it
    later = [
        sum(
            1 << j
            for j in range(i + 1, len(given))
            if (given[i][1] - given[j][1]) % math.gcd(given[i][0], given[j][0]) == 0
        )
        for i in range(len(given))
    ]
    groups = [(1, 1, (1 << len(given)) - 1)]
    while groups:
        size, multiple, allowed = groups.pop()
        while allowed:
            lowest = allowed & -allowed
            allowed ^= lowest
            index = lowest.bit_length() - 1
            joined = math.lcm(multiple, given[index][0])
            terms[size] += period // joined
            if allowed & later[index]:
                groups.append((size + 1, joined, allowed & later[index]))
    while terms and not terms[-1]:
        terms.pop()
    return tuple(terms[1:])


def _bit_set(reduced: Sequence[Progression]) -> Fraction:
    period = _period(reduced)
    if period > BIT_SET_LIMIT:
        raise _refusal("bit-set", f"a period of {period} ticks", f"{BIT_SET_LIMIT} ticks")
    return Fraction(period - _unmarked(reduced, period), period)


def _f1(reduced: Sequence[Progression]) -> Fraction:
    signed = (term if i % 2 == 0 else -term for i, term in enumerate(f1_terms(reduced)))
    return Fraction(sum(signed), _period(reduced))


def _conditioning(reduced: Sequence[Progression]) -> Fraction:
    period = _period(reduced)
    return Fraction(period - _Conditioning(reduced).misses(tuple(reduced)), period)


COUNTERS: dict[str, Callable[[tuple[Progression, ...]], Fraction]] = {
    "bit-set": _bit_set,
    "f1": _f1,
    "conditioning": _conditioning,
}
"""Exact counters by name: absorbed progressions with greatest common divisor 1, to edges per tick."""


class _Conditioning:
    """One count by conditioning: the factors of its slides, and a memo of its subproblems.

    Slides are factored only as far as they have to be told apart: ``factors`` are pairwise coprime integers
    of whose powers every slide is a product, found with gcds alone (no primes needed, so a slide of many
    microseconds costs nothing).
    """

    def __init__(self, reduced: Sequence[Progression]) -> None:
        slides = {slide for slide, _ in reduced}
        self.factors = _coprime_base(slides)
        self.memo: dict[tuple[Progression, ...], int] = {}
        self.divisors: dict[int, tuple[tuple[int, int], ...]] = {}
        self.factor_sets: dict[int, int] = {}

    def misses(self, progressions: tuple[Progression, ...]) -> int:
        """How many ticks of one period (LCM of slides) none of some absorbed, sorted progressions hits."""
        product = 1
        for component in self._components(progressions):
            product *= self._misses_connected(component)
            if not product:
                break
        return product

    def _misses_connected(self, component: tuple[Progression, ...]) -> int:
        if len(component) == 1:
            return component[0][0] - 1
        period = _period(component)
        if len(component) == 2:
            (s, a), (t, b) = component
            return period - period // s - period // t + ((a - b) % math.gcd(s, t) == 0)
        # a translation changes no count: start at the first progression, so that more subproblems are equal
        origin = component[0][1]
        key = tuple(sorted((slide, (shift - origin) % slide) for slide, shift in component))
        if key not in self.memo:
            if len(self.memo) >= CONDITIONING_LIMIT:
                raise _refusal("conditioning", "this set of slides", f"{CONDITIONING_LIMIT} subproblems")
            self.memo[key] = _unmarked(key, period) if period <= SMALL_PERIOD else self._condition(key, period)
        return self.memo[key]

    def _condition(self, component: tuple[Progression, ...], period: int) -> int:
        """Sum over the nested residue classes of the factor that divides most slides."""
        frequency: dict[int, int] = defaultdict(int)
        for slide, _ in component:
            for factor, _ in self._powers(slide):
                frequency[factor] += 1
        factor = max(frequency, key=lambda f: (frequency[f], -f))

        free: list[Progression] = []
        members: dict[tuple[int, int], list[Progression]] = {(1, 0): []}
        for slide, shift in component:
            power = next((p for f, p in self._powers(slide) if f == factor), 1)
            rest = slide // power
            if power == 1:
                free.append((slide, shift))
            else:
                members.setdefault((power, shift % power), []).append((rest, shift % rest))
        top = max(power for power, _ in members)
        rest_period = period // top

        # own: residues modulo `top` in a class and in none of its finer classes. Visit coarse classes
        # first: each takes its residues from the finest class so far that contains it
        own: dict[tuple[int, int], int] = {}
        chain: dict[tuple[int, int], list[Progression]] = {}
        for power, residue in sorted(members):
            own[power, residue] = top // power
            parent, coarser = None, power // factor
            while power > 1 and parent is None:
                parent = (coarser, residue % coarser) if (coarser, residue % coarser) in own else None
                coarser //= factor
            if parent is None:
                chain[power, residue] = free + members[power, residue]
            else:
                own[parent] -= top // power
                chain[power, residue] = chain[parent] + members[power, residue]

        total = 0
        for where, residues in own.items():
            if residues:
                left = absorb(chain[where])
                if not left or left[0][0] > 1:
                    total += residues * self.misses(left) * (rest_period // _period(left))
        return total

    def _components(self, found: tuple[Progression, ...]) -> list[tuple[Progression, ...]]:
        """Split into sets whose slides share no factor; smallest first."""
        groups: list[tuple[int, list[Progression]]] = []
        for progression in found:
            factors = self._factor_set(progression[0])
            merged: list[Progression] = [progression]
            apart = []
            for group in groups:
                if group[0] & factors:
                    factors |= group[0]
                    merged += group[1]
                else:
                    apart.append(group)
            groups = [*apart, (factors, merged)]
        return sorted((tuple(sorted(held)) for _, held in groups), key=len)

    def _factor_set(self, slide: int) -> int:
        """The factors that divide a slide, as bits."""
        known = self.factor_sets.get(slide)
        if known is None:
            known = sum(1 << index for index, factor in enumerate(self.factors) if slide % factor == 0)
            self.factor_sets[slide] = known
        return known

    def _powers(self, slide: int) -> tuple[tuple[int, int], ...]:
        """(factor, factor**exponent) of a slide."""
        known = self.divisors.get(slide)
        if known is None:
            powers = []
            for factor in self.factors:
                power = 1
                while slide % (power * factor) == 0:
                    power *= factor
                if power > 1:
                    powers.append((factor, power))
            known = self.divisors[slide] = tuple(powers)
        return known


def _coprime_base(numbers: Iterable[int]) -> list[int]:
    """Pairwise coprime integers > 1 of whose powers each number is a product (factor refinement by gcds)."""
    base: list[int] = []
    pending = sorted(numbers)
    while pending:
        number = pending.pop()
        if number == 1:
            continue
        for index, known in enumerate(base):
            shared = math.gcd(number, known)
            if shared > 1:
                if number != known:
                    del base[index]
                    pending += [shared, known // shared, number // shared]
                break
        else:
            base.append(number)
    return sorted(base)


def _reduce(found: Iterable[Progression]) -> tuple[tuple[Progression, ...], int]:
    """Absorbed progressions in ticks, and the tick: the gcd of all slides and distances between shifts."""
    given = sorted(set(found))
    if not given:
        return (), 1
    if given[0][0] <= 0:
        raise ValueError("slides must be positive")
    origin = given[0][1]
    unit = math.gcd(*(slide for slide, _ in given), *(shift - origin for _, shift in given))
    return absorb((slide // unit, (shift - origin) % slide // unit) for slide, shift in given), unit


def _period(found: Iterable[Progression]) -> int:
    return math.lcm(*(slide for slide, _ in found))


def _unmarked(found: Iterable[Progression], period: int) -> int:
    free = np.ones(period, dtype=np.bool_)
    for slide, shift in found:
        free[shift::slide] = False
    return int(np.count_nonzero(free))


def _refusal(counter: str, what: str, limit: str) -> CountRefused:
    return CountRefused(
        "HDL-350",
        f"the {counter} edge counter does not take {what} (limit: {limit})",
        "use counter 'auto', put the queries in more trees, or choose slides with common factors",
    )
