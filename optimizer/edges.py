"""Counting edges exactly: how many instants of a period begin or end some window.

A tree's edges are the union of *progressions* (slide, shift): the instants ``shift + k*slide``
(:mod:`optimizer.window` derives them from windows). Its edge rate E decides whether sharing pays, and
counting it is the hard part of planning: the period is an LCM and grows beyond any bit set,
inclusion-exclusion doubles with every progression, and in general the count is #P-hard. These counters
answer exactly and identically, each up to a limit stated beside it, beyond which it refuses (HDL-350):

``bit-set``
    F1 Eqs. 7-8, Weave Share section 8: mark every edge of one period in a bitmap, one pass per progression,
    and count the marks. The reference; period at most :data:`BIT_SET_LIMIT`.
``f1``
    F1 Eqs. 2-6: inclusion-exclusion over groups of progressions. Before it, duplicates and contained
    progressions are removed (F1 section 4); a group that fails the Overlap Check (Eq. 4) is cut off with all
    that extend it. At most :data:`F1_LIMIT` groups.
``f1-opt``
    The same with gcds from a table of limited size (F1 section 3.3). In Python the table saves nothing, because
    ``math.gcd`` is as fast as a look-up; it is there to be compared.
``conditioning``
    Count the instants that *no* progression hits. Progressions whose slides share no factor are independent
    (Chinese remainder theorem), so such components multiply. Where a factor q connects a component, fix the
    residue of time modulo a power of q: the classes ``a mod q^v`` of the progressions are nested or
    disjoint, so one smaller problem without q is left for every distinct class, weighted by the residues
    that belong to that class and to no finer one. Everything is a sum of products of non-negative numbers:
    nothing cancels. Small periods are marked in the bits of an integer, subproblems are remembered up to
    translation. At most :data:`CONDITIONING_LIMIT` progressions in all subproblems.

``auto`` is conditioning, with the bitmap for small periods. All counters first divide by the greatest common
divisor of slides and shifts, so that windows in microseconds cost no more than the same windows in minutes.

A plan search asks :class:`EdgeCounter`, the same conditioning in floats. Where counting is too hard, it and
:func:`edge_bounds` give certified intervals, by a chain of truncated counts:
``E(p1..pn) = sum of U(p1..p(i-1) | pi) / si``, where U(A | p) is the share of the instants of p that A misses, a
smaller problem of the same kind. The progressions of shortest slide are counted together; for each further
one, those of shortest slide among A alone give an upper bound of U, and taking off what the others could hit
beside them a lower one (Bonferroni). With a larger budget the classes of residues of one factor get an
interval each, added up by weight, and so on down. The interval narrows as the budget grows, but nothing is
promised about its width, and not that every single step narrows it: with 1,500 random fragmented slides up to
10,000 ticks in one tree it still is some 0.2 wide after a second.

References
----------
Guirguis et al., "Optimized processing of multiple aggregate continuous queries" (Weave Share), CIKM 2011:
Definition 1, section 8 (edges bitmap). Shein et al., "F1: accelerating the optimization of aggregate
continuous queries", CIKM 2015: Eqs. 2-8, sections 3.3 and 4. Deviations: F1's removal of "multiples" compares
shifts as well as slides (by slides alone it is wrong with fragments); the bound of its table of gcds is
sqrt(2b/g), printed sqrt(2b)/g; conditioning is not in the papers. Lower bounds where all progressions meet:
Heilbronn and Rohrbach, 1937 (their misses are positively correlated).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from optimizer.errors import HeddleError
from optimizer.query import Window
from optimizer.window import Progression, progressions

BIT_SET_LIMIT = 1 << 27
"""Longest period, in ticks of the common divisor, that the bit set marks (one byte each)."""

F1_LIMIT = 1 << 22
"""Most groups of overlapping progressions that F1 expands: some ten seconds."""

GCD_TABLE_BYTES = 1 << 21
"""Memory for the table of gcds of ``f1-opt``, two bytes each: pairs of numbers up to 1,448."""

CONDITIONING_LIMIT = 5_000_000
"""Most work of one exact count by conditioning: progressions in all subproblems, one to three microseconds each."""

DEFAULT_BUDGET = 300_000
"""Work for one answer that may be an interval, in the same unit: about a second where it is used up."""

SMALL_PERIOD = 1 << 13
"""Periods up to this many ticks are marked in the bits of an integer rather than split further."""

ADDED_ONE_BY_ONE = 4
"""Up to so many added progressions are conditioned on one by one; larger trees are counted together."""

CHAIN_LENGTH = 2_000
"""Most progressions that an interval tells apart; the shortest slides, as it takes all pairs."""

CHAIN_STEP = 25
"""Work that an interval is charged for one progression, beside its subproblems."""

SPLIT_FROM = 4
"""An interval is divided into residue classes if it may cost so many times as much as its chain."""

MARKED_PERIOD = 1 << 12
"""Longest period marked to tell which instants of light progressions are hit by heavy ones."""

MEMO_SIZE = 1 << 20
"""Progressions of the subproblems that one counter remembers (twice as many before the oldest are forgotten)."""

INTERVALS_SIZE = 1 << 12
"""Intervals that one counter remembers."""

DEEPEST = 120
"""Deepest nesting of subproblems, well within Python's limit of recursion."""

SLACK = 1e-12
"""Bounds are rounded outwards by this much, relatively; far above the rounding errors of the sums."""

_SMALL_PRIMES = tuple(n for n in range(2, 1000) if all(n % d for d in range(2, math.isqrt(n) + 1)))


class CountRefused(HeddleError):
    """A counter's stated limit is reached: the edges of this union are not counted (HDL-350)."""


def edge_set(window: Window) -> tuple[Progression, ...]:
    """The edges of one window specification in lowest terms: equal iff the edges are.

    Usually ``(s, 0)`` alone or with ``(s, r mod s)``, shifted back where the window is historical; two edges half a
    slide apart are the same as half the slide with one edge.
    """
    found = progressions([window])
    if len(found) == 2 and 2 * (found[1][1] - found[0][1]) == window.slide:
        return ((window.slide // 2, found[0][1]),)
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
    counter = _known_counter(counter)
    reduced, unit = _reduce(progressions)
    if not reduced:
        return Fraction(0)
    if counter == "conditioning":
        rate = _conditioned(reduced, CONDITIONING_LIMIT)
        if rate is None:
            raise _refusal("conditioning", "this set of slides", f"{CONDITIONING_LIMIT} progressions in subproblems")
        return rate / unit
    return _counted(counter, reduced) / unit


def edge_bounds(
    progressions: Iterable[Progression], counter: str = "auto", budget: int = DEFAULT_BUDGET
) -> tuple[Fraction, Fraction]:
    """Edges per unit of time, from below and above: equal where they are counted within the budget.

    ``budget`` is in the unit of :data:`CONDITIONING_LIMIT`; the time is bounded by it. Counters other than
    ``"auto"`` and ``"conditioning"`` count exactly. Raises as :func:`edge_rate`, but never refuses with those two.
    """
    counter = _known_counter(counter)
    if counter != "conditioning":
        rate = edge_rate(progressions, counter)
        return rate, rate
    reduced, unit = _reduce(progressions)
    low, high = _bounded(reduced, budget)
    return low / unit, high / unit


def weaveability(a: Iterable[Progression], b: Iterable[Progression]) -> Fraction:
    """Common edges over all edges (of the union) of two trees, in [0, 1] (Weave Share Definition 1)."""
    a, b = list(a), list(b)
    union = edge_rate(a + b)
    return (edge_rate(a) + edge_rate(b) - union) / union


def f1_terms(progressions: Iterable[Progression], gcd: Callable[[int, int], int] = math.gcd) -> tuple[int, ...]:
    """The sums ``LCM * G(n, i)``, i = 1.., of F1 Eqs. 3 and 6: with alternating signs, a period's edges.

    Trailing sums without any overlapping group are left out. Progressions are taken as given: contained
    ones are not removed first, as in the paper's examples.

    Raises
    ------
    CountRefused
        HDL-350 above :data:`F1_LIMIT` overlapping groups.

    References
    ----------
    F1 Eqs. 2-6. A group overlaps iff all its pairs pass the Overlap Check (Eq. 4): pairwise compatible
    congruences are jointly solvable.
    """
    given = sorted(set(progressions))
    period = _period(given)
    terms = [0] * (len(given) + 1)
    # later[i]: the later progressions that share instants with i, as a bitmap; a group is never
    # extended by one that clashes with a member, which cuts off every larger group with it
    later = [
        sum(
            1 << j for j in range(i + 1, len(given)) if (given[i][1] - given[j][1]) % gcd(given[i][0], given[j][0]) == 0
        )
        for i in range(len(given))
    ]
    groups = [(1, 1, (1 << len(given)) - 1)]
    expanded = 0
    while groups:
        size, multiple, allowed = groups.pop()
        expanded += allowed.bit_count()
        if expanded > F1_LIMIT:
            raise _refusal("f1", f"these {len(given)} progressions", f"{F1_LIMIT} overlapping groups")
        while allowed:
            lowest = allowed & -allowed
            allowed ^= lowest
            index = lowest.bit_length() - 1
            slide = given[index][0]
            joined = multiple // gcd(multiple, slide) * slide
            terms[size] += period // joined
            if allowed & later[index]:
                groups.append((size + 1, joined, allowed & later[index]))
    while terms and not terms[-1]:
        terms.pop()
    return tuple(terms[1:])


def _f1(reduced: Sequence[Progression], gcd: Callable[[int, int], int] = math.gcd) -> Fraction:
    signed = (term if i % 2 == 0 else -term for i, term in enumerate(f1_terms(reduced, gcd)))
    return Fraction(sum(signed), _period(reduced))


def _f1_with_table(reduced: Sequence[Progression]) -> Fraction:
    return _f1(reduced, _gcd_table(GCD_TABLE_BYTES))


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


def _bit_set(reduced: Sequence[Progression]) -> Fraction:
    period = _period(reduced)
    if period > BIT_SET_LIMIT:
        raise _refusal("bit-set", f"a period of {period} ticks", f"{BIT_SET_LIMIT} ticks")
    marks = np.zeros(period, dtype=np.bool_)
    for slide, shift in reduced:
        marks[shift::slide] = True
    return Fraction(int(np.count_nonzero(marks)), period)


def _conditioning(reduced: Sequence[Progression]) -> Fraction:
    return edge_rate(reduced, "conditioning")


COUNTERS: dict[str, Callable[[tuple[Progression, ...]], Fraction]] = {
    "bit-set": _bit_set,
    "f1": _f1,
    "f1-opt": _f1_with_table,
    "conditioning": _conditioning,
}
"""Exact counters by name: absorbed progressions with greatest common divisor 1, to edges per tick."""


@lru_cache(maxsize=1024)
def _counted(counter: str, reduced: tuple[Progression, ...]) -> Fraction:
    """Plans, baselines and explanations ask for the same trees again."""
    return COUNTERS[counter](reduced)


@lru_cache(maxsize=4096)
def _conditioned(reduced: tuple[Progression, ...], limit: int) -> Fraction | None:
    """None where the limit is reached."""
    engine = _InIntegers(limit)
    try:
        misses, period = engine.product(engine.factors.parts(reduced))
    except _Spent:
        return None
    return Fraction(period - misses, period)


@lru_cache(maxsize=4096)
def _bounded(reduced: tuple[Progression, ...], budget: int) -> tuple[Fraction, Fraction]:
    rate = _conditioned(reduced, budget) if reduced else Fraction(0)
    if rate is not None:
        return rate, rate
    counter = EdgeCounter(budget=budget)
    low, high = counter._bounds(counter._engine.factors.parts(reduced), budget)[1]
    return Fraction(low * (1 - SLACK)), Fraction(min(1.0, high * (1 + SLACK)))


class _Spent(Exception):
    """The work allowed for one count is used up."""


Branches = list[tuple[int, list[list[Progression]]]]
"""(residues, components of what is left of a problem at each of them)."""


class _Factors:
    """How sets of progressions fall apart: factors of slides, components, residue classes.

    Slides are products of powers of pairwise coprime factors, learnt as slides appear: small primes by trial
    division; what is left is told apart by gcds alone, so that a large slide costs little.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._divisors: dict[int, tuple[int, ...] | None] = {}
        self._bits: dict[int, int] = {}
        self.work = 0
        self.limit = 0.0
        # factors without small primes, with the slides they occur in, and their product
        self._large: dict[int, list[int]] = {}
        self._product = 1

    def learn(self, slide: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The factors of a slide as bits, and (factor, its power in the slide) for each."""
        known = self._known.get(slide)
        if known is not None:
            return known
        rest, powers = slide, []
        for prime in _SMALL_PRIMES:
            if prime * prime > rest:
                break
            if rest % prime == 0:
                power = prime
                rest //= prime
                while rest % prime == 0:
                    power *= prime
                    rest //= prime
                powers.append((prime, power))
        if 1 < rest <= _SMALL_PRIMES[-1]:
            powers.append((rest, rest))
        elif rest > 1:
            if rest not in self._large:
                self._refine(rest)
            for factor in (rest,) if rest in self._large else self._large:
                power = 1
                while rest % factor == 0:
                    power *= factor
                    rest //= factor
                if power > 1:
                    powers.append((factor, power))
                    self._large[factor].append(slide)
        bits = 0
        for factor, _ in powers:
            bits |= 1 << self._bits.setdefault(factor, len(self._bits))
        self._known[slide] = bits, tuple(powers)
        return self._known[slide]

    def _refine(self, number: int) -> None:
        """Make a number a product of powers of the large factors, which stay pairwise coprime."""
        pending = [number]
        while pending:
            number = pending.pop()
            if number == 1 or number in self._large:
                continue
            if math.gcd(number, self._product % number) == 1:
                self._large[number] = []
                self._product *= number
                continue
            factor, shared = next((f, g) for f in self._large if (g := math.gcd(number, f)) > 1)
            pending.append(number // shared)
            if shared != factor:
                for slide in self._large.pop(factor):
                    self._known.pop(slide, None)
                    self._divisors.pop(slide, None)
                self._product //= factor
                pending += [shared, factor // shared]

    def absorb(self, found: Iterable[Progression]) -> list[Progression]:
        """Drop progressions inside others; sorted. Linear but for the divisors of each slide."""
        shifts: dict[int, set[int]] = {}
        for slide, shift in found:
            shifts.setdefault(slide, set()).add(shift)
        self._absorb(shifts, shifts)
        return [(slide, shift) for slide in sorted(shifts) for shift in sorted(shifts[slide])]

    def _absorb(self, shifts: dict[int, set[int]], others: dict[int, set[int]]) -> None:
        """Take out of ``shifts`` what lies inside ``others``, both by slide."""
        small = sorted(others)
        for slide in sorted(shifts):
            divisors = self._proper_divisors(slide)
            for divisor in small if divisors is None or len(small) < len(divisors) else divisors:
                if divisor >= slide:
                    break
                inside = others.get(divisor)
                if inside and slide % divisor == 0:
                    shifts[slide] = {shift for shift in shifts[slide] if shift % divisor not in inside}

    def _proper_divisors(self, slide: int) -> tuple[int, ...] | None:
        """Divisors between 1 and the slide, ascending; None if there are many."""
        if slide not in self._divisors:
            found: list[int] | None = [1]
            for factor, power in self.learn(slide)[1]:
                if found is not None:
                    powers = [1]
                    while powers[-1] < power:
                        powers.append(powers[-1] * factor)
                    found = [a * b for a in found for b in powers] if len(found) * len(powers) <= 128 else None
            self._divisors[slide] = None if found is None else tuple(sorted(found)[1:-1])
        return self._divisors[slide]

    def components(self, found: Iterable[Progression]) -> list[tuple[int, list[Progression]]]:
        """Sets whose slides share no factor, each with its factors as bits; single progressions first."""
        known, learn = self._known, self.learn
        once = twice = 0
        numbered = []
        for progression in found:
            bits = (known.get(progression[0]) or learn(progression[0]))[0]
            twice |= once & bits
            once |= bits
            numbered.append((bits, progression))
        single = []
        groups: list[tuple[int, list[Progression]]] = []
        for bits, progression in numbered:
            if not bits & twice:
                single.append((bits, [progression]))
                continue
            for index, group in enumerate(groups):  # noqa: B007 (used below)
                if group[0] & bits:
                    break
            else:
                groups.append((bits, [progression]))
                continue
            group[1].append(progression)
            if bits & ~group[0]:
                bits |= group[0]
                apart = groups[:index]
                for other in groups[index + 1 :]:
                    if other[0] & bits:
                        bits |= other[0]
                        group[1].extend(other[1])
                    else:
                        apart.append(other)
                # the largest group first: most progressions belong there
                groups = [(bits, group[1]), *apart]
        return single + sorted(groups, key=lambda group: len(group[1]))

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > self.limit:
            raise _Spent

    def parts(self, found: Sequence[Progression]) -> list[list[Progression]]:
        """The components of slides that may be new."""
        for slide, _ in found:
            # a slide may refine the factors of others: all have to be known before any are compared
            self.learn(slide)
        return [part for _, part in self.components(found)]

    def split(self, component: Sequence[Progression]) -> tuple[int, Branches]:
        """Fix the residue of time modulo a number: (that number, [(residues, what is left at them)]).

        What is left at a residue is absorbed and split into components; residues that are hit whatever the
        rest of time are left out.
        """
        shared = math.gcd(*[slide for slide, _ in component])
        if shared > 1:
            residues: dict[int, list[Progression]] = {}
            for slide, shift in component:
                residues.setdefault(shift % shared, []).append((slide // shared, shift // shared))
            left: Branches = [(1, self.parts(held)) for held in residues.values()]
            if len(residues) < shared:
                left.append((shared - len(residues), []))
            return shared, left
        self.spend(len(component))
        factor = self._pivot(component)
        free: list[Progression] = []
        members: dict[tuple[int, int], list[Progression]] = {(1, 0): []}
        for slide, shift in component:
            if slide % factor:
                free.append((slide, shift))
                continue
            power = factor
            rest = slide // factor
            while rest % factor == 0:
                power *= factor
                rest //= factor
            where = power, shift % power
            if where in members:
                members[where].append((rest, shift % rest))
            else:
                members[where] = [(rest, shift % rest)]
        classes = sorted(members)
        top = classes[-1][0]
        # own: residues modulo `top` in a class and in none of its finer classes. Coarse classes come first:
        # each takes its residues from the finest class so far that contains it
        own: dict[tuple[int, int], int] = {}
        chain: dict[tuple[int, int], list[Progression]] = {}
        for where in classes:
            power, residue = where
            parent, coarser = (1, 0), power // factor
            while coarser > 1:
                if (coarser, residue % coarser) in own:
                    parent = coarser, residue % coarser
                    break
                coarser //= factor
            if power == 1:
                own[where], chain[where] = top, []
            else:
                own[where] = top // power
                own[parent] -= top // power
                above = chain[parent]
                chain[where] = above + members[where] if above else members[where]
        parts = self.components(free)
        by_slide: dict[int, set[int]] = {}
        for slide, shift in free:
            by_slide.setdefault(slide, set()).add(shift)
        left = []
        for where, count in own.items():
            if count:
                joined = self._join(parts, by_slide, chain[where])
                if joined is not None:
                    left.append((count, joined))
        return top, left

    def _pivot(self, component: Sequence[Progression]) -> int:
        """The factor that divides most slides; where none divides many, one in the middle, to fall apart sooner."""
        frequency: dict[int, int] = {}
        known, learn = self._known, self.learn
        for slide, _ in component:
            for factor, _ in (known.get(slide) or learn(slide))[1]:
                frequency[factor] = frequency.get(factor, 0) + 1
        most = max(frequency.values())
        best = sorted([factor for factor, count in frequency.items() if count == most])
        return best[0] if most > 3 else best[len(best) // 2]

    def _join(
        self,
        parts: Sequence[tuple[int, list[Progression]]],
        by_slide: dict[int, set[int]],
        added: Sequence[Progression],
    ) -> list[list[Progression]] | None:
        """Absorb and split the union of ``parts`` (absorbed, split) and more; None if it hits everything."""
        if not added:
            return [part for _, part in parts]
        shifts: dict[int, set[int]] = {}
        bits = 0
        for slide, shift in added:
            held = shifts.get(slide)
            if held is None:
                if slide == 1:
                    return None
                shifts[slide] = {shift}
                bits |= self.learn(slide)[0]
            else:
                held.add(shift)
        if len(shifts) > 1:
            self._absorb(shifts, shifts)
        apart = [part for group, part in parts if not group & bits]
        touched = [(group, part) for group, part in parts if group & bits]
        self.spend(len(added) + sum([len(part) for _, part in touched]))
        # what is added lies inside none of the parts: the set that all of them come from is absorbed
        for slide, inside in shifts.items():
            # every residue of one slide: nothing is missed
            if len(inside) + len(by_slide.get(slide, ())) == slide:
                return None
        units = []
        for group, part in touched:
            left = self._outside(part, shifts)
            # what lost nothing still hangs together
            units += [(group, part)] if len(left) == len(part) else self.components(left)
        for slide, inside in shifts.items():
            if inside:
                units.append((self.learn(slide)[0], [(slide, shift) for shift in inside]))
        return apart + _merged(units)

    def _outside(self, part: list[Progression], shifts: dict[int, set[int]]) -> list[Progression]:
        """Those of ``part`` that do not lie inside progressions of smaller slides, given by slide."""
        if len(shifts) <= 12:
            for slide, inside in shifts.items():
                if inside:
                    part = [p for p in part if p[0] % slide or p[1] % slide not in inside]
            return part
        kept: dict[int, set[int]] = {}
        for slide, shift in part:
            kept.setdefault(slide, set()).add(shift)
        self._absorb(kept, shifts)
        return [(slide, shift) for slide, held in kept.items() for shift in held]


def _merged(units: list[tuple[int, list[Progression]]]) -> list[list[Progression]]:
    """Join sets that share factors, given with their factors as bits; the sets themselves stay as they are."""
    once = twice = 0
    for bits, _ in units:
        twice |= once & bits
        once |= bits
    groups: list[tuple[int, list[Progression]]] = []
    for bits, held in units:
        if bits & twice:
            apart = []
            for group in groups:
                if group[0] & bits:
                    bits |= group[0]
                    held = group[1] + held
                else:
                    apart.append(group)
            groups = [(bits, held), *apart]
    left = [held for bits, held in units if not bits & twice]
    return left + [held for _, held in sorted(groups, key=lambda group: len(group[1]))]


Intervals = tuple[tuple[float, float], tuple[float, float]]
"""Bounds of the misses and of the hits per tick, each (low, high)."""

Count = TypeVar("Count")


class _Conditioning(ABC, Generic[Count]):
    """The recursion, whatever its numbers: subproblems, their memo and the work so far. What a count is, and how
    counts are put together, is for :class:`_InIntegers` and :class:`_InFloats` to say."""

    def __init__(self, limit: float) -> None:
        self.factors = _Factors()
        self.factors.limit = limit
        self.depth = 0
        self._held = 0
        self._memo: dict[tuple[Progression, ...], Count] = {}
        self._older: dict[tuple[Progression, ...], Count] = {}

    @abstractmethod
    def product(self, components: Iterable[list[Progression]]) -> Count:
        """Independent components together."""

    @abstractmethod
    def _known(self, marked: int, period: int) -> Count:
        """The count of so many marked ticks in a period."""

    @abstractmethod
    def _sum(self, key: tuple[Progression, ...], top: int, branches: Branches) -> Count:
        """What is left at the residues modulo ``top``, added up."""

    def connected(self, component: list[Progression]) -> Count:
        """One absorbed component of at least two progressions."""
        closed = _closed(component)
        if closed is not None:
            return self._known(*closed)
        key = _canonical(component)
        found = self._memo.get(key) or self._older.get(key)
        if found is None:
            if self.depth >= DEEPEST:
                raise _Spent
            self.depth += 1
            try:
                found = self._sum(key, *self.factors.split(key))
            finally:
                self.depth -= 1
            self._held += len(key)
            if self._held > MEMO_SIZE:
                self._older, self._memo, self._held = self._memo, {}, len(key)
            self._memo[key] = found
        return found


class _InIntegers(_Conditioning[tuple[int, int]]):
    """(misses in one period, the period)."""

    def product(self, components: Iterable[list[Progression]]) -> tuple[int, int]:
        misses = period = 1
        for component in components:
            if len(component) == 1:
                slide = component[0][0]
                misses *= slide - 1
                period *= slide
            else:
                few, ticks = self.connected(component)
                if not few:
                    return 0, 1
                misses *= few
                period *= ticks
        return misses, period

    def _known(self, marked: int, period: int) -> tuple[int, int]:
        return period - marked, period

    def _sum(self, key: tuple[Progression, ...], top: int, branches: Branches) -> tuple[int, int]:
        period = _period(key)
        rest = period // top
        total = 0
        for residues, components in branches:
            misses, ticks = self.product(components)
            total += residues * misses * (rest // ticks)
        return total, period


class _InFloats(_Conditioning[tuple[float, float]]):
    """(misses, hits) per tick: each relatively precise, as a subproblem that is all but covered has few misses and
    one of long slides few hits."""

    def product(self, components: Iterable[list[Progression]]) -> tuple[float, float]:
        misses, hits = 1.0, 0.0
        for component in components:
            if len(component) == 1:
                slide = component[0][0]
                hits += misses / slide
                misses *= (slide - 1) / slide
            else:
                # hits = 1 - (1 - a)(1 - b) = a + (1 - a) b
                few, most = self.connected(component)
                hits += misses * most
                misses *= few
                if not misses:
                    return 0.0, 1.0
        return misses, hits

    def _known(self, marked: int, period: int) -> tuple[float, float]:
        return (period - marked) / period, marked / period

    def _sum(self, key: tuple[Progression, ...], top: int, branches: Branches) -> tuple[float, float]:
        covered = top - sum([residues for residues, _ in branches])
        misses, hits = 0.0, covered / top
        for residues, components in branches:
            few, most = self.product(components)
            misses += residues / top * few
            hits += residues / top * most
        return misses, hits


class EdgeCounter:
    """Edge densities for one plan search: floats, certified intervals where counting is too hard.

    Densities are edges per tick, as (low, high): the same float twice where they are counted (relative error
    below 1e-12), otherwise an interval that contains the exact value, rounding included. Subproblems are
    remembered from answer to answer, in bounded memory.

    Parameters
    ----------
    unit
        The tick: a common divisor of all slides and shifts that will be asked for, in their unit.
    counter
        ``"auto"`` and ``"conditioning"`` are this engine; the other :data:`COUNTERS` count by themselves, exactly,
        and may raise CountRefused.
    budget
        Most work for one answer, in the unit of :data:`CONDITIONING_LIMIT`: it bounds the time.
    """

    def __init__(self, unit: int = 1, counter: str = "auto", budget: int = DEFAULT_BUDGET) -> None:
        self.unit = unit
        self.budget = budget
        self._counter = _known_counter(counter)
        self._engine = _InFloats(0)
        self._intervals: dict[tuple[Progression, ...], tuple[int, Intervals]] = {}

    @property
    def work(self) -> int:
        """Progressions in all subproblems opened so far."""
        return self._engine.factors.work

    def density(self, edges: Sequence[Progression]) -> tuple[float, float]:
        """Edges per tick of the union of absorbed progressions."""
        if self._counter != "conditioning":
            rate = float(edge_rate(edges, self._counter) * self.unit)
            return rate, rate
        if len(edges) == 1:
            return self.unit / edges[0][0], self.unit / edges[0][0]
        return self._count(self._ticks(edges))[1]

    def increment(
        self, edges: Sequence[Progression], density: tuple[float, float], added: Sequence[Progression]
    ) -> tuple[float, float]:
        """How much the density of ``edges`` (which is ``density``) rises when the progressions ``added`` join.

        The instants of each added progression are conditioned on, so that a small rise keeps its relative
        precision; many are counted together with the others, if the rise turns out not to be small.
        """
        if self._counter != "conditioning":
            rise = edge_rate([*edges, *added], self._counter) - edge_rate(edges, self._counter)
            return float(rise * self.unit), float(rise * self.unit)
        held, joining = list(self._ticks(edges)), self._ticks(added)
        if held and joining and held[0][0] == held[-1][0] and joining[0][0] == joining[-1][0]:
            # two slides: a closed form in integers
            s, t = held[0][0], joining[0][0]
            shared = math.gcd(s, t)
            common = sum([(a - b) % shared == 0 for _, a in held for _, b in joining])
            closed = (len(joining) * s - common * shared) / (s * t)
            return closed, closed
        if len(joining) > ADDED_ONE_BY_ONE:
            low, high = self._count(self._engine.factors.absorb([*held, *joining]))[1]
            if low < high or density[0] < density[1]:
                return _outwards(max(0.0, low - density[1]), max(0.0, high - density[0]))
            if low - density[0] > 1e-3 * low:
                return low - density[0], low - density[0]
        low = high = 0.0
        for slide, shift in joining:
            misses = self._misses_at(held, slide, shift)
            low += misses[0] / slide
            high += misses[1] / slide
            held.append((slide, shift))
        return low, high

    def _ticks(self, edges: Sequence[Progression]) -> Sequence[Progression]:
        if self.unit == 1:
            return edges
        return [(slide // self.unit, shift // self.unit) for slide, shift in edges]

    def _misses_at(self, found: Iterable[Progression], slide: int, shift: int) -> tuple[float, float]:
        """Share of a progression's own instants that none of ``found`` hits: low, high."""
        left = _at(found, slide, shift)
        if left is None:
            return 0.0, 0.0
        self._engine.factors.learn(slide)
        return self._count(self._engine.factors.absorb(left))[0]

    def _count(self, found: Sequence[Progression]) -> Intervals:
        """Bounds of the misses and of the hits of absorbed progressions."""
        engine = self._engine
        engine.factors.limit = engine.factors.work + self.budget
        components = engine.factors.parts(found)
        try:
            misses, hits = engine.product(components)
            return (misses, misses), (hits, hits)
        except _Spent:
            return self._bounds(components, self.budget)

    def _bounds(self, components: list[list[Progression]], allowance: int) -> Intervals:
        """Bounds of the misses and of the hits of components that are too hard together."""
        low, high, least, most = 1.0, 1.0, 0.0, 0.0
        size = sum([len(component) for component in components])
        for component in sorted(components, key=len):
            before = self.work
            (few, many), (down, up) = self._interval(component, allowance * len(component) // size)
            least, most = least + high * down, most + low * up
            low, high = low * few, high * many
            allowance -= min(allowance, self.work - before)
            size -= len(component)
        return (low, high), (least, most)

    def _attempt(self, components: Iterable[list[Progression]], allowance: int) -> tuple[float, float] | None:
        engine = self._engine
        engine.factors.limit = engine.factors.work + allowance
        try:
            return engine.product(components)
        except _Spent:
            return None

    def _interval(self, component: list[Progression], allowance: int) -> Intervals:
        """Bounds of misses and hits of a component that may be too hard, for a stated amount of work."""
        if len(component) == 1:
            slide = component[0][0]
            return ((slide - 1) / slide, (slide - 1) / slide), (1 / slide, 1 / slide)
        counted = self._attempt([component], allowance // 8)
        if counted is not None:
            return (counted[0], counted[0]), (counted[1], counted[1])
        key = _canonical(component)
        known = self._intervals.get(key)
        if known is not None and known[0] >= allowance:
            return known[1]
        first = self.work
        low, high = self._chain(key, allowance)
        bounds = (max(0.0, 1.0 - high - SLACK), 1.0 - low + SLACK), (low, high)
        spent = self.work - first
        if allowance > SPLIT_FROM * spent and self._engine.depth < DEEPEST // 2:
            finer = self._divided(key, allowance - spent)
            bounds = _tighter(bounds[0], finer[0]), _tighter(bounds[1], finer[1])
        if len(self._intervals) >= INTERVALS_SIZE:
            self._intervals.clear()
        self._intervals[key] = allowance, bounds
        return bounds

    def _divided(self, key: tuple[Progression, ...], allowance: int) -> Intervals:
        """Condition on residues as an exact count does; each class is allowed work by its weight and size."""
        factors = self._engine.factors
        factors.limit = math.inf
        top, branches = factors.split(key)
        covered = top - sum([residues for residues, _ in branches])
        low, high, least, most = 0.0, 0.0, covered / top, covered / top
        sizes = [sum([len(component) for component in components]) for _, components in branches]
        total = sum([residues * size for (residues, _), size in zip(branches, sizes, strict=True)])
        # the lightest first: what they leave over goes to the others
        self._engine.depth += 3
        for (residues, components), size in sorted(
            zip(branches, sizes, strict=True), key=lambda branch: branch[0][0] * branch[1]
        ):
            before = self.work
            found = self._bounds(components, allowance * residues * size // max(1, total))
            allowance -= min(allowance, self.work - before)
            total -= residues * size
            weight = residues / top
            low, high = low + weight * found[0][0], high + weight * found[0][1]
            least, most = least + weight * found[1][0], most + weight * found[1][1]
        self._engine.depth -= 3
        return _outwards(low, high), _outwards(least, most)

    def _chain(self, key: tuple[Progression, ...], allowance: int) -> tuple[float, float]:
        """Bounds of the hits: the shortest slides exactly, then what each further progression adds."""
        factors = self._engine.factors
        first = self.work
        held, low = 1, 1 / key[0][0]
        size = min(len(key), 8)
        number = min(len(key), CHAIN_LENGTH)
        while held < number:
            before = self.work
            counted = self._attempt(factors.parts(key[:size]), allowance // 8)
            if counted is None:
                break
            held, low = size, counted[1]
            if self.work - before > allowance // 16:
                break
            size = min(number, size + max(4, size // 4))
        number = min(number, held + allowance // CHAIN_STEP)
        high = low
        kind = np.int64 if key[-1][0] < 1 << 31 else object
        slides = np.array([slide for slide, _ in key[:number]], dtype=kind)
        shifts = np.array([shift for _, shift in key[:number]], dtype=kind)
        together = 16
        for index in range(held, number):
            slide, shift = key[index]
            factors.work += CHAIN_STEP // 2 + index // 16
            share = max(0, allowance - (self.work - first)) // (number - index)
            few, many, together = self._truncated(slides[:index], shifts[:index], slide, shift, together, share)
            low += few / slide
            high += many / slide
        high += _share_missed(key[:held], key[number:])
        if not any(shift for _, shift in key):
            # misses of progressions that all meet are positively correlated
            high = min(high, -math.expm1(sum([math.log1p(-1 / slide) for slide, _ in key])))
        return low * (1 - SLACK), min(1.0, high * (1 + SLACK))

    def _truncated(
        self, slides: np.ndarray, shifts: np.ndarray, slide: int, shift: int, together: int, share: int
    ) -> tuple[float, float, int]:
        """Bounds of the misses at a progression's instants, and how many of the heaviest to count next time."""
        shared = np.gcd(slides, slide)
        rests = slides // shared
        meeting = np.flatnonzero((shifts - shift) % shared == 0)
        rests = rests[meeting]
        order = np.argsort(rests, kind="stable")
        kept = meeting[order[: 8 * together]]
        light = float(np.sum(1.0 / rests[order[8 * together :]].astype(np.float64)))
        left = _at([(int(slides[i]), int(shifts[i])) for i in kept], slide, shift)
        if left is None:
            return 0.0, 0.0, together
        heavy = self._engine.factors.absorb(left)
        while True:
            before = self._engine.factors.work
            counted = self._attempt(self._engine.factors.parts(heavy[:together]), share)
            if counted is not None:
                break
            together = together // 2
        light += _share_missed(heavy[:together], heavy[together:])
        if 2 * (self._engine.factors.work - before) < share:
            together += max(1, together // 8)
        return max(0.0, counted[0] - light), counted[0], together


def _at(found: Iterable[Progression], slide: int, shift: int) -> list[Progression] | None:
    """What is left of progressions at the instants of another one; None where they hit them all.

    Those that meet it get the slide ``t / gcd(s, t)``. Time is measured anew modulo the factors of s only, so that
    the shifts modulo other factors, and with them most subproblems, stay the same.
    """
    left: dict[Progression, None] = {}
    for other, start in found:
        shared = math.gcd(slide, other)
        if shared == 1:
            left[other, start] = None
            continue
        apart = start - shift
        if apart % shared:
            continue
        rest = other // shared
        if rest == 1:
            return None
        if start == shift == 0:
            left[rest, 0] = None
            continue
        coprime = rest
        common = math.gcd(coprime, slide)
        while common > 1:
            coprime //= common
            common = math.gcd(coprime, common)
        if coprime == rest:
            left[rest, start % rest] = None
            continue
        # modulo the factors of the slide: k where shift + k * slide = start; modulo the others: start
        within = rest // coprime
        place = apart // shared * pow(slide // shared, -1, within) % within
        place += within * ((start - place) * pow(within, -1, coprime) % coprime)
        left[rest, place] = None
    return list(left)


def _share_missed(found: Iterable[Progression], others: Iterable[Progression]) -> float:
    """The densities of ``others``, added up, each without its instants that some of ``found`` hit."""
    period, marks = 1, []
    for progression in found:
        joined = math.lcm(period, progression[0])
        if joined <= MARKED_PERIOD:
            period = joined
            marks.append(progression)
    missed = np.ones(period, dtype=np.bool_)
    for slide, shift in marks:
        missed[shift::slide] = False
    shares: dict[int, list[float]] = {}
    total = 0.0
    for slide, shift in others:
        step = math.gcd(slide, period)
        if step not in shares:
            shares[step] = np.mean(missed.reshape(-1, step), axis=0).tolist()
        total += shares[step][shift % step] / slide
    return total


def _tighter(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), min(a[1], b[1])


def _outwards(low: float, high: float) -> tuple[float, float]:
    if low == high:
        return low, high
    return max(0.0, low - SLACK * high), min(1.0, high + SLACK * high)


def _canonical(component: list[Progression]) -> tuple[Progression, ...]:
    """Sorted, and translated (which changes no count) to start at 0, so that more subproblems are equal."""
    component.sort()
    origin = component[0][1]
    if origin:
        return tuple(sorted([(slide, (shift - origin) % slide) for slide, shift in component]))
    return tuple(component)


def _closed(component: Sequence[Progression]) -> tuple[int, int] | None:
    """(Hits, period) of an absorbed set where they are found without splitting it."""
    slides: dict[int, int] = {}
    period = 1
    for slide, _ in component:
        if slide in slides:
            slides[slide] += 1
        else:
            slides[slide] = 1
            period = math.lcm(period, slide)
        if period > SMALL_PERIOD and len(slides) > 2:
            return None
    if len(slides) == 1:
        return len(component), component[0][0]
    if len(slides) == 2:
        return _two_slides(component, *slides)
    marks = 0
    for slide, shift in component:
        marks |= _multiples(slide, period) << shift
    return marks.bit_count(), period


def _two_slides(component: Sequence[Progression], s: int, t: int) -> tuple[int, int]:
    """Progressions of one slide are disjoint, so only pairs of different slides are counted twice."""
    shared = math.gcd(s, t)
    residues: dict[int, int] = {}
    count = 0
    for slide, shift in component:
        if slide == s:
            count += 1
            residues[shift % shared] = residues.get(shift % shared, 0) + 1
    common = sum([residues.get(shift % shared, 0) for slide, shift in component if slide != s])
    period = s // shared * t
    return count * (t // shared) + (len(component) - count) * (s // shared) - common, period


@lru_cache(maxsize=8192)
def _multiples(slide: int, period: int) -> int:
    """The multiples of a slide in a period, as bits."""
    return ((1 << period) - 1) // ((1 << slide) - 1)


def _reduce(found: Iterable[Progression]) -> tuple[tuple[Progression, ...], int]:
    """Absorbed progressions in ticks, and the tick: the gcd of all slides and distances between shifts."""
    given = sorted(set(found))
    if not given:
        return (), 1
    if given[0][0] <= 0:
        raise ValueError("slides must be positive")
    origin = given[0][1]
    unit = math.gcd(*(slide for slide, _ in given), *(shift - origin for _, shift in given))
    ticks = [(slide // unit, (shift - origin) % slide // unit) for slide, shift in given]
    return tuple(_Factors().absorb(ticks)), unit


def _period(found: Iterable[Progression]) -> int:
    return math.lcm(*[slide for slide, _ in found])


def _known_counter(counter: str) -> str:
    if counter != "auto" and counter not in COUNTERS:
        raise ValueError(f"unknown counter {counter!r}: one of auto, {', '.join(COUNTERS)}")
    return "conditioning" if counter == "auto" else counter


def _refusal(counter: str, what: str, limit: str) -> CountRefused:
    return CountRefused(
        "HDL-350",
        f"the {counter} edge counter does not take {what} (limit: {limit})",
        "use counter 'auto', put the queries in more trees, or choose slides with common factors",
    )
