"""Exact edge counting: the number of instants of a period at which some window begins or ends.

A tree's edges are the union of *progressions* (slide, shift): the instants ``shift + k*slide``
(:mod:`optimizer.windows.alignment` derives them from windows). Its edge rate E decides whether sharing pays, and
counting it is the hard part of planning: the period is an LCM and grows beyond any bit set,
inclusion-exclusion doubles with every progression, and in general the count is #P-hard. These counters
answer exactly and identically. Each has a limit, given below, beyond which it refuses (HDL-350):

``bit-set``
    F1 Eqs. 7-8, Weave Share section 8: mark every edge of one period in a bitmap, one pass per progression,
    and count the marks. The reference; period at most :data:`BIT_SET_LIMIT`.
``f1``
    F1 Eqs. 2-6: inclusion-exclusion over groups of progressions. Before it, duplicates and contained
    progressions are removed (F1 section 4); a group that fails the Overlap Check (Eq. 4) is cut off with all
    that extend it. At most :data:`F1_LIMIT` groups.
``f1-opt``
    The same with gcds from a table of limited size (F1 section 3.3). In Python the table saves nothing, because
    ``math.gcd`` is as fast as a look-up; it exists for comparison.
``conditioning``
    Count the instants that *no* progression hits. Progressions whose slides share no factor are independent
    (Chinese remainder theorem), so such components multiply. If a factor q connects a component, fix the
    residue of time modulo a power of q: the classes ``a mod q^v`` of the progressions are nested or
    disjoint, so one smaller problem without q remains for every distinct class, weighted by the residues
    that belong to that class and to no finer one. Everything is a sum of products of non-negative numbers:
    nothing cancels. Small periods are marked in the bits of an integer, subproblems are remembered up to
    translation. At most :data:`CONDITIONING_LIMIT` progressions in all subproblems.

``auto`` is conditioning, with the bitmap for small periods. All counters first divide by the greatest common
divisor of slides and shifts, so that windows in microseconds cost no more than the same windows in minutes.

A plan search uses :class:`EdgeCounter`, the same conditioning in floats. If counting is too hard, it and
:func:`edge_bounds` give certified intervals, by a chain of truncated counts:
``E(p1..pn) = sum of U(p1..p(i-1) | pi) / si``, where U(A | p) is the share of the instants of p that A misses, a
smaller problem of the same kind. The progressions of shortest slide are counted together. For each further one,
only those of shortest slide among A give an upper bound of U. Subtracting what the others could hit in addition
gives a lower one (Bonferroni). With a larger budget the classes of residues of one factor get an interval each,
added up by weight, and so on down. The interval narrows as the budget grows, but there is no guarantee about its
width, nor that every single step narrows it: with 1,500 random fragmented slides up to 10,000 ticks in one tree it
still is some 0.2 wide after a second.

References
----------
Guirguis et al., "Optimized processing of multiple aggregate continuous queries" (Weave Share), CIKM 2011:
Definition 1, section 8 (edges bitmap). Shein et al., "F1: accelerating the optimization of aggregate
continuous queries", CIKM 2015: Eqs. 2-8, sections 3.3 and 4. Deviations: F1's removal of "multiples" compares
shifts as well as slides (by slides only it is wrong with fragments); the bound of its table of gcds is
sqrt(2b/g), printed sqrt(2b)/g; conditioning is not in the papers. Lower bounds if all progressions meet:
Heilbronn and Rohrbach, 1937 (their misses are positively correlated).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from optimizer.windows import conditioning
from optimizer.windows.alignment import Progression
from optimizer.windows.conditioning import ConditioningInFloats, ConditioningInIntegers, Intervals, canonical
from optimizer.windows.edge_sets import bit_set_rate, f1_rate, f1_rate_with_table, refusal
from optimizer.windows.factors import BudgetSpent, absorbed_in_ticks, left_at

CONDITIONING_LIMIT = 5_000_000
"""Most work of one exact count by conditioning: progressions in all subproblems, one to three microseconds each."""

DEFAULT_BUDGET = 300_000
"""Work for one answer that may be an interval, in the same unit: about a second where it is used up."""

EXACT_PART = 3
"""Divisor of a budget: this part of it goes to exact counting, before an interval is computed."""

ADDED_ONE_BY_ONE = 4
"""Largest number of added progressions that are conditioned on one by one; larger trees are counted together."""

CHAIN_LENGTH = 2_000
"""Most progressions that an interval distinguishes; the shortest slides, as it takes all pairs."""

CHAIN_STEP = 25
"""Work that an interval is charged for one progression, in addition to its subproblems."""

SPLIT_FROM = 4
"""An interval is divided into residue classes if it may cost this multiple of its chain."""

MARKED_PERIOD = 1 << 12
"""Longest period marked to determine which instants of light progressions are hit by heavy ones."""

INTERVALS_SIZE = 1 << 12
"""Intervals that one counter remembers."""

SLACK = 1e-12
"""Bounds are rounded outwards by this much, relatively; far above the rounding errors of the sums."""


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
    reduced, unit = absorbed_in_ticks(progressions)
    if not reduced:
        return Fraction(0)
    if counter == "conditioning":
        rate = _conditioned(reduced, CONDITIONING_LIMIT)
        if rate is None:
            raise refusal("conditioning", "this set of slides", f"{CONDITIONING_LIMIT} progressions in subproblems")
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
    reduced, unit = absorbed_in_ticks(progressions)
    low, high = _bounded(reduced, budget)
    return low / unit, high / unit


def weaveability(a: Iterable[Progression], b: Iterable[Progression]) -> Fraction:
    """Common edges over all edges (of the union) of two trees, in [0, 1] (Weave Share Definition 1)."""
    a, b = list(a), list(b)
    union = edge_rate(a + b)
    return (edge_rate(a) + edge_rate(b) - union) / union


def _conditioning(reduced: Sequence[Progression]) -> Fraction:
    return edge_rate(reduced, "conditioning")


COUNTERS: dict[str, Callable[[tuple[Progression, ...]], Fraction]] = {
    "bit-set": bit_set_rate,
    "f1": f1_rate,
    "f1-opt": f1_rate_with_table,
    "conditioning": _conditioning,
}
"""Exact counters by name: absorbed progressions with greatest common divisor 1, to edges per tick."""


@lru_cache(maxsize=1024)
def _counted(counter: str, reduced: tuple[Progression, ...]) -> Fraction:
    """Plans, baselines and explanations ask for the same trees again."""
    return COUNTERS[counter](reduced)


@lru_cache(maxsize=4096)
def _conditioned(reduced: tuple[Progression, ...], limit: int) -> Fraction | None:
    """Edge density of reduced progressions by conditioning; None if the limit is reached."""
    engine = ConditioningInIntegers(limit)
    try:
        misses, period = engine.product(engine.factors.parts(reduced))
    except BudgetSpent:
        return None
    return Fraction(period - misses, period)


@lru_cache(maxsize=4096)
def _bounded(reduced: tuple[Progression, ...], budget: int) -> tuple[Fraction, Fraction]:
    attempt = budget // EXACT_PART
    rate = _conditioned(reduced, attempt) if reduced else Fraction(0)
    if rate is not None:
        return rate, rate
    counter = EdgeCounter(budget=budget - attempt)
    low, high = counter._bounds(counter._engine.factors.parts(reduced), budget - attempt)[1]
    return Fraction(low * (1 - SLACK)), Fraction(min(1.0, high * (1 + SLACK)))


class EdgeCounter:
    """Edge densities for one plan search: floats, certified intervals if counting is too hard.

    Densities are edges per tick, as (low, high): the same float twice if they are counted (relative error
    below 1e-12), otherwise an interval that contains the exact value, rounding included. Subproblems are
    remembered between answers, in bounded memory.

    Parameters
    ----------
    unit
        The tick: a common divisor of all slides and shifts that will be counted, in their unit.
    counter
        ``"auto"`` and ``"conditioning"`` are this engine; the other :data:`COUNTERS` count separately, exactly,
        and may raise CountRefused.
    budget
        Most work for one answer, in the unit of :data:`CONDITIONING_LIMIT`: it bounds the time.
    """

    def __init__(self, unit: int = 1, counter: str = "auto", budget: int = DEFAULT_BUDGET) -> None:
        self.unit = unit
        self.budget = budget
        self._counter = _known_counter(counter)
        self._engine = ConditioningInFloats(0)
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
        """Rise of the density of ``edges`` (which is ``density``) when the progressions ``added`` join.

        The instants of each added progression are conditioned on, so that a small rise keeps its relative
        precision. Many are counted together with the others, if the rise turns out not to be small.
        """
        if self._counter != "conditioning":
            rise = edge_rate([*edges, *added], self._counter) - edge_rate(edges, self._counter)
            return float(rise * self.unit), float(rise * self.unit)
        own_ticks, joining = list(self._ticks(edges)), self._ticks(added)
        if own_ticks and joining and own_ticks[0][0] == own_ticks[-1][0] and joining[0][0] == joining[-1][0]:
            # two slides: a closed form in integers
            s, t = own_ticks[0][0], joining[0][0]
            shared = math.gcd(s, t)
            residues = Counter(shift % shared for _, shift in own_ticks)
            common = sum([residues[shift % shared] for _, shift in joining])
            closed = (len(joining) * s - common * shared) / (s * t)
            return closed, closed
        if len(joining) > ADDED_ONE_BY_ONE:
            low, high = self._count(self._engine.factors.absorb([*own_ticks, *joining]))[1]
            if low < high or density[0] < density[1]:
                return _outwards(max(0.0, low - density[1]), max(0.0, high - density[0]))
            if low - density[0] > 1e-3 * low:
                return low - density[0], low - density[0]
        low = high = 0.0
        for slide, shift in joining:
            misses = self._misses_at(own_ticks, slide, shift)
            low += misses[0] / slide
            high += misses[1] / slide
            own_ticks.append((slide, shift))
        return low, high

    def _ticks(self, edges: Sequence[Progression]) -> Sequence[Progression]:
        if self.unit == 1:
            return edges
        return [(slide // self.unit, shift // self.unit) for slide, shift in edges]

    def _misses_at(self, edges: Iterable[Progression], slide: int, shift: int) -> tuple[float, float]:
        """Share of a progression's own instants that none of ``edges`` hits: low, high."""
        remaining = left_at(edges, slide, shift)
        if remaining is None:
            return 0.0, 0.0
        self._engine.factors.learn(slide)
        return self._count(self._engine.factors.absorb(remaining))[0]

    def _count(self, progressions: Sequence[Progression]) -> Intervals:
        """Bounds of the misses and of the hits of absorbed progressions."""
        engine = self._engine
        engine.factors.limit = engine.factors.work + self.budget
        components = engine.factors.parts(progressions)
        try:
            misses, hits = engine.product(components)
            return (misses, misses), (hits, hits)
        except BudgetSpent:
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
        except BudgetSpent:
            return None

    def _interval(self, component: list[Progression], allowance: int) -> Intervals:
        """Bounds of misses and hits of a component that may be too hard, for a stated amount of work."""
        if len(component) == 1:
            slide = component[0][0]
            return ((slide - 1) / slide, (slide - 1) / slide), (1 / slide, 1 / slide)
        counted = self._attempt([component], allowance // 8)
        if counted is not None:
            return (counted[0], counted[0]), (counted[1], counted[1])
        key = canonical(component)
        known = self._intervals.get(key)
        if known is not None and known[0] >= allowance:
            return known[1]
        first = self.work
        low, high = self._chain(key, allowance)
        bounds = (max(0.0, 1.0 - high - SLACK), 1.0 - low + SLACK), (low, high)
        spent = self.work - first
        if allowance > SPLIT_FROM * spent and self._engine.depth < conditioning.DEEPEST // 2:
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
            bounds = self._bounds(components, allowance * residues * size // max(1, total))
            allowance -= min(allowance, self.work - before)
            total -= residues * size
            weight = residues / top
            low, high = low + weight * bounds[0][0], high + weight * bounds[0][1]
            least, most = least + weight * bounds[1][0], most + weight * bounds[1][1]
        self._engine.depth -= 3
        return _outwards(low, high), _outwards(least, most)

    def _chain(self, key: tuple[Progression, ...], allowance: int) -> tuple[float, float]:
        """Bounds of the hits: the shortest slides exactly, then what each further progression adds."""
        factors = self._engine.factors
        first = self.work
        exact_count, low = 1, 1 / key[0][0]
        size = min(len(key), 8)
        number = min(len(key), CHAIN_LENGTH)
        while exact_count < number:
            before = self.work
            counted = self._attempt(factors.parts(key[:size]), allowance // 8)
            if counted is None:
                break
            exact_count, low = size, counted[1]
            if self.work - before > allowance // 16:
                break
            size = min(number, size + max(4, size // 4))
        number = min(number, exact_count + allowance // CHAIN_STEP)
        high = low
        kind = np.int64 if key[-1][0] < 1 << 31 else object
        slides = np.array([slide for slide, _ in key[:number]], dtype=kind)
        shifts = np.array([shift for _, shift in key[:number]], dtype=kind)
        together = 16
        for index in range(exact_count, number):
            slide, shift = key[index]
            factors.work += CHAIN_STEP // 2 + index // 16
            share = max(0, allowance - (self.work - first)) // (number - index)
            few, many, together = self._truncated(slides[:index], shifts[:index], slide, shift, together, share)
            low += few / slide
            high += many / slide
        high += _share_missed(key[:exact_count], key[number:])
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
        heaviest = meeting[order[: 8 * together]]
        light = float(np.sum(1.0 / rests[order[8 * together :]].astype(np.float64)))
        remaining = left_at([(int(slides[i]), int(shifts[i])) for i in heaviest], slide, shift)
        if remaining is None:
            return 0.0, 0.0, together
        heavy = self._engine.factors.absorb(remaining)
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


def _share_missed(progressions: Iterable[Progression], others: Iterable[Progression]) -> float:
    """The densities of ``others``, added up, each without its instants that some of ``progressions`` hit."""
    period, marks = 1, []
    for progression in progressions:
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


def _known_counter(counter: str) -> str:
    if counter != "auto" and counter not in COUNTERS:
        raise ValueError(f"unknown counter {counter!r}: one of auto, {', '.join(COUNTERS)}")
    return "conditioning" if counter == "auto" else counter
