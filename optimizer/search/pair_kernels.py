"""Compiled loops of Weave Share over thousands of trees (:mod:`optimizer.search.weave_share`): pairs of trees.

The same numbers as the NumPy expressions that fewer trees are looked through with, operation by operation, where all
trees hold the same families: then what a merge saves of them is the same for every pair.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

SLACK = 1e-14
"""Head-room of benefits over their rounding errors, relative to the costs they are made of."""

BLOCK = 64
"""Rows and columns of the table of pairs that are mirrored together, so that both of its halves stay in the cache."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class PairCosts(NamedTuple):
    """Savings of every merge a second and a fragment, and the fixed cost of a tree."""

    saved: float
    base: float
    fixed: float


@intrinsic
def _trailing_zeros(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@njit(cache=True)
def _gcd(a: int, b: int) -> int:
    """Greatest common divisor of two positive numbers, without a division."""
    shift = _trailing_zeros(a | b)
    a >>= _trailing_zeros(a)
    while b:
        b >>= _trailing_zeros(b)
        difference = b - a
        a = min(a, b)
        b = abs(difference)
    return a << shift


@njit(cache=True)
def _divisors(number: int) -> Integers:
    """Ascending."""
    small = large = 0
    divisors, step = np.empty(2 * int(math.sqrt(number)) + 2, dtype=np.int64), 1
    while step * step <= number:
        if number % step == 0:
            divisors[small] = step
            small += 1
            if step * step < number:
                large += 1
                divisors[len(divisors) - large] = number // step
        step += 1
    divisors[small : small + large] = divisors[len(divisors) - large :]
    return divisors[: small + large]


@njit(cache=True)
def _residue(number: int, divisor: int, inverse: float) -> int:
    """A number below 2^52 modulo another one whose reciprocal is known: a fraction of a division."""
    remainder = number - int(number * inverse) * divisor
    return remainder + divisor if remainder < 0 else (remainder - divisor if remainder >= divisor else remainder)


@njit(cache=True, error_model="numpy")
def fill_pair_rates(
    slides: Integers,
    kinds: Integers,
    first: Integers,
    shifts: Integers,
    rates: Floats,
    per_second: float,
    tabled: int,
    out: Floats,
) -> None:
    """Edges per second of the union of every two trees, into ``out`` of shape (K, K).

    Parameters
    ----------
    slides
        The distinct slides of trees whose progressions have one slide, in ticks; 0 stands for those of others,
        whose unions are bounded from below.
    kinds
        Index into ``slides`` of each tree. Shape (K,).
    first, shifts
        The shifts of tree x are ``shifts[first[x] : first[x + 1]]``.
    tabled
        Largest slide up to which greatest common divisors are computed for an entire row at once; above, one by
        one.
    """
    count, largest = len(kinds), slides.max()
    gcds = np.ones(largest + 1 if largest <= tabled else 0, dtype=np.int64)
    divisor_of, inverse_of, share_of = np.ones(len(slides), dtype=np.int64), np.ones(len(slides)), np.ones(len(slides))
    # no kind before the row's first is asked for again where each tree has a slide of its own, in ascending order
    sorted_kinds = np.all(kinds[1:] >= kinds[:-1])
    without_shifts = len(shifts) == count and not shifts.any()
    for x in range(count):
        slide, rate, row = slides[kinds[x]], rates[x], out[x]
        if slide == 0:
            for y in range(x, count):
                row[y] = max(rate, rates[y])
            continue
        _set_divisors(slide, slides[kinds[x] if sorted_kinds else 0 :], gcds, divisor_of)
        own_shifts, size = shifts[first[x] : first[x + 1]], float(slide)
        begin = kinds[x] if sorted_kinds else 0
        for kind in range(begin, len(slides)):
            divisor = float(divisor_of[kind - begin])
            share_of[kind] = divisor / (size * slides[kind]) * per_second
        if without_shifts:
            for y in range(x, count):
                row[y] = rate + rates[y] - share_of[kinds[y]]
            continue
        for kind in range(begin, len(slides)):
            inverse_of[kind] = 1.0 / divisor_of[kind - begin]
        for y in range(x, count):
            kind, start, end = kinds[y], first[y], first[y + 1]
            if slides[kind] == 0:
                row[y] = max(rate, rates[y])
                continue
            divisor, met = divisor_of[kind - begin], 0
            if divisor == 1:
                met = len(own_shifts) * (end - start)
            else:
                for place in range(start, end):
                    for shift in own_shifts:
                        apart = abs(shift - shifts[place])
                        met += apart == 0 or _residue(apart, divisor, inverse_of[kind]) == 0
            row[y] = rate + rates[y] - met * share_of[kind]
    for top in range(0, count, BLOCK):
        for left in range(top, count, BLOCK):
            for x in range(top, min(top + BLOCK, count)):
                for y in range(max(left, x), min(left + BLOCK, count)):
                    out[y, x] = out[x, y]


@njit(cache=True)
def _set_divisors(slide: int, slides: Integers, gcds: Integers, out: Integers) -> None:
    """Greatest common divisors of a slide with others. ``gcds``: room by number, empty where it would be too large."""
    if len(gcds) == 0:
        for kind, other in enumerate(slides):
            out[kind] = _gcd(slide, other) if other else 1
        return
    gcds[:] = 1
    for divisor in _divisors(slide)[1:]:
        # ascending: the largest divisor that divides a number stays
        gcds[divisor::divisor] = divisor
    for kind, other in enumerate(slides):
        out[kind] = gcds[other]


@njit(cache=True)
def pair_benefit(x: int, y: int, union: float, rates: Floats, charges: Floats, costs: PairCosts) -> float:
    """Upper bound of the saving from merging two trees whose union has ``union`` edges a second (Eq. 5)."""
    charge_x, charge_y = charges[x], charges[y]
    raised = (union - rates[x]) * charge_x + (union - rates[y]) * charge_y
    size = costs.fixed + union * (charge_x + charge_y)
    return costs.saved + union * costs.base - raised + SLACK * size


@njit(cache=True)
def best_partner(
    x: int, later: Integers, bounds: Floats, rates: Floats, charges: Floats, costs: PairCosts
) -> tuple[float, int]:
    """The highest benefit of a tree with some others, and the first of those that has it; (-inf, -1) without any."""
    best, partner = -np.inf, -1
    for y in later:
        value = pair_benefit(x, y, bounds[x, y], rates, charges, costs)
        if value > best:
            best, partner = value, y
    return best, partner


@njit(cache=True)
def best_partners(
    bounds: Floats, rates: Floats, charges: Floats, costs: PairCosts, best: Floats, partner: Integers
) -> None:
    """:func:`best_partner` of every tree among all after it, into ``best`` and ``partner``."""
    numbers = np.arange(len(rates))
    for x in numbers[:-1]:
        best[x], partner[x] = best_partner(x, numbers[x + 1 :], bounds, rates, charges, costs)


@njit(cache=True)
def at_least(
    x: int, later: Integers, floor: float, bounds: Floats, rates: Floats, charges: Floats, costs: PairCosts
) -> Integers:
    """The trees among ``later`` with which a tree's benefit is at least ``floor``."""
    partners, count = np.empty_like(later), 0
    for y in later:
        if pair_benefit(x, y, bounds[x, y], rates, charges, costs) >= floor:
            partners[count] = y
            count += 1
    return partners[:count]


@njit(cache=True)
def bound_unions(bounds: Floats, x: int, y: int, others: Integers, rates: Floats, union: float) -> None:
    """Bound the unions of x and y with other trees, in row and column x.

    ``union``: lower bound of the edges a second of the union of x and y.
    """
    for other in others:
        with_x, with_y = bounds[x, other], bounds[y, other]
        diminishing = union - rates[x] - rates[y] - rates[other] + with_x + with_y
        diminishing -= 8e-16 * (union + with_x + with_y)
        bounds[x, other] = bounds[other, x] = max(with_x, with_y, rates[other], union, diminishing)


@njit(cache=True)
def offer(
    x: int,
    before: Integers,
    bounds: Floats,
    rates: Floats,
    charges: Floats,
    costs: PairCosts,
    best: Floats,
    partner: Integers,
) -> None:
    """Make a tree the best partner of those of some others for whom it is."""
    for other in before:
        value = pair_benefit(x, other, bounds[x, other], rates, charges, costs)
        if value > best[other]:
            best[other], partner[other] = value, x


@njit(cache=True)
def top(
    alive: Integers,
    tie: float,
    bounds: Floats,
    rates: Floats,
    charges: Floats,
    costs: PairCosts,
    best: Floats,
    partner: Integers,
) -> tuple[int, int]:
    """The pair of the highest benefit among living trees, and the first of those; (-1, -1) if it is at most ``tie``.

    A row whose remembered pair is gone or overestimated is searched again when it reaches the top.
    """
    living = np.zeros(len(best), dtype=np.bool_)
    living[alive] = True
    while True:
        x = alive[0]
        for other in alive:
            if best[other] > best[x]:
                x = other
        if best[x] <= tie:
            return -1, -1
        y = partner[x]
        if y >= 0 and living[y] and pair_benefit(x, y, bounds[x, y], rates, charges, costs) >= best[x]:
            return x, y
        later = alive[np.searchsorted(alive, x, side="right") :]
        best[x], partner[x] = best_partner(x, later, bounds, rates, charges, costs)


@njit(cache=True)
def cheapest_cuts(weights: Floats, per_edge: float, saved: float, base: float) -> Integers:
    """For each end, the begin of the last tree in the cheapest partition of edge sets into consecutive trees.

    ``weights``: descending, of sets that have one progression in common and one more each, all of one slide. So k
    of them have k + 1 times ``per_edge`` edges per second. Of two trees the heavier sets belong in the one with
    fewer (else exchanging two would save), so trees are runs. O(n^2).
    """
    count = len(weights)
    sums, best, cuts = np.zeros(count + 1), np.zeros(count + 1), np.zeros(count + 1, dtype=np.int64)
    for end in range(1, count + 1):
        sums[end] = sums[end - 1] + weights[end - 1]
        best[end] = np.inf
        for begin in range(end):
            charge = base + sums[end] - sums[begin]
            cost = best[begin] + saved + (end - begin + 1) * per_edge * charge
            if cost < best[end]:
                best[end], cuts[end] = cost, begin
    return cuts
