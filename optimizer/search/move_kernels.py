"""Compiled steps of the local search (:mod:`optimizer.search.local_search`): items and trees as bitmaps of probes.

Trees are rows of tables, as many as items and a spare one. The first ``count[0]`` numbers of ``live`` are those
with items, the others are free. The items of a tree are a list that begins with ``first[tree]``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEP = 200
"""Work of one step besides its words, in words."""

FRUITLESS = 200
"""Shakes without gain after which the search ends, times the number of items."""

PATIENCE = 0.25
"""Or after this part of its work that gained nothing."""

ROUNDING = 1e-9
"""Gains below this, relative to the cost of the first plan, are rounding."""

LOOK = 16
"""Work of looking at a tree whose probes need not be counted, in words."""

OWN, NOWHERE = -1, -2
"""Instead of the number of a tree: a new one, and none."""

MERGE, SPLIT, DEAL, KINDS = 0, 1, 4, 6
"""Kinds of shakes: from :data:`DEAL` on, items are dealt; below it, those of entire trees go where they cost least."""


_step = njit(cache=True, _nrt=False, no_cfunc_wrapper=True)
"""Compiled without counting references, which would take ten times as long as what is done: none of these functions
makes an array, and all that they are given outlive the call."""

_part = njit(cache=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""The same for functions that Python does not call."""


class MoveItems(NamedTuple):
    """Constants of the items.

    - ``hits``: bitmaps of probes, (items, words).
    - ``alone``: edges per second, (items,); ``weights``: cost per fragment, (items,); ``rare``: never moved,
      (items,).
    - The families of item i are ``families[family_at[i] : family_at[i + 1]]``; their costs are ``family_fixed`` and
      ``family_base``.
    - ``fixed``: cost per second of a tree; ``per_hit``: edges per second of a probe.
    - ``fewest``: trees of at most this number of edges a second are not merged.
    """

    hits: Bits
    alone: Floats
    weights: Floats
    rare: NDArray[np.bool_]
    family_at: Integers
    families: Integers
    family_fixed: Floats
    family_base: Floats
    fixed: float
    per_hit: float
    fewest: float


class MoveTrees(NamedTuple):
    """Mutable state of the trees and items.

    - Of trees: ``once``, ``twice``: the probes that at least one item hits, and at least two, (trees, words);
      ``rates``: edges per second; ``sums``, ``bases``: cost per fragment of items and families; ``fixeds``: cost
      per second of families; ``of_family``: items by family, (trees, families); ``changed``: when; ``place``: in
      ``live``; ``newer``, ``older``: live trees in the order in which they changed, with the last number for both
      ends.
    - Of items: ``tree_of``; ``following``, ``before``: in the list of their tree; ``seen``: when they were moved or
      stayed.
    - One number each: ``clock``, ``left`` (work), ``least`` (a gain below it is rounding), ``random``, ``alive``
      (live trees).
    """

    once: Bits
    twice: Bits
    rates: Floats
    sums: Floats
    bases: Floats
    fixeds: Floats
    of_family: NDArray[np.int32]
    sizes: Integers
    changed: Integers
    first: Integers
    live: Integers
    place: Integers
    newer: Integers
    older: Integers
    tree_of: Integers
    following: Integers
    before: Integers
    seen: Integers
    clock: Integers
    left: Floats
    least: Floats
    random: Bits
    alive: Integers


# ------------------------------------------------------------------------------------------------------- counting
@intrinsic
def _ones(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@_part
def _count(row: Bits) -> np.int64:
    ones: Any = np.uint64(0)
    for word in row:
        ones += _ones(word)
    return np.int64(ones)


@_part
def _count_new(hits: Bits, once: Bits) -> np.int64:
    """Probes of an item that a tree has not."""
    ones: Any = np.uint64(0)
    for at in range(len(hits)):
        ones += _ones(hits[at] & ~once[at])
    return np.int64(ones)


@_part
def _count_lone(hits: Bits, once: Bits, twice: Bits) -> np.int64:
    """Probes of an item of a tree that no other item of it has."""
    ones: Any = np.uint64(0)
    for at in range(len(hits)):
        ones += _ones(hits[at] & once[at] & ~twice[at])
    return np.int64(ones)


# ---------------------------------------------------------------------------------------------------- bookkeeping
@_part
def _draw(trees: MoveTrees, below: int) -> np.int64:
    """A pseudo-random number (xorshift)."""
    number: Any = trees.random[0]
    number ^= number << np.uint64(13)
    number ^= number >> np.uint64(7)
    number ^= number << np.uint64(17)
    trees.random[0] = number
    return np.int64((number >> np.uint64(20)) % np.uint64(below))


@_part
def _unlink(trees: MoveTrees, item: int) -> None:
    """Take an item out of the list of its tree."""
    ahead, behind = trees.before[item], trees.following[item]
    if ahead < 0:
        trees.first[trees.tree_of[item]] = behind
    else:
        trees.following[ahead] = behind
    if behind >= 0:
        trees.before[behind] = ahead


@_part
def _link(trees: MoveTrees, item: int, tree: int) -> None:
    """Put an item into the list of a tree."""
    head = trees.first[tree]
    trees.before[item], trees.following[item] = -1, head
    if head >= 0:
        trees.before[head] = item
    trees.first[tree], trees.tree_of[item] = item, tree


@_part
def _touch(trees: MoveTrees, tree: int) -> None:
    """A tree has changed: it is the newest of the live ones, if it has items."""
    trees.clock[0] += 1
    trees.changed[tree] = trees.clock[0]
    at, count = trees.place[tree], trees.alive[0]
    if at < count:
        newer, older = trees.newer[tree], trees.older[tree]
        trees.older[newer], trees.newer[older] = older, newer
    alive = trees.sizes[tree] > 0
    if alive:
        end = len(trees.newer) - 1
        newest = trees.older[end]
        trees.newer[tree], trees.older[tree] = end, newest
        trees.newer[newest] = trees.older[end] = tree
    if alive == (at < count):
        return
    end = count if alive else count - 1
    trees.alive[0] += 1 if alive else -1
    other = trees.live[end]
    trees.live[at], trees.live[end] = other, tree
    trees.place[other], trees.place[tree] = at, end


@_part
def _add(items: MoveItems, trees: MoveTrees, item: int, tree: int) -> None:
    """Count an item of a tree."""
    hits, once, twice = items.hits[item], trees.once[tree], trees.twice[tree]
    for at in range(len(hits)):
        twice[at] |= once[at] & hits[at]
        once[at] |= hits[at]
    trees.sums[tree] += items.weights[item]
    trees.sizes[tree] += 1
    for at in range(items.family_at[item], items.family_at[item + 1]):
        family = items.families[at]
        if trees.of_family[tree, family] == 0:
            trees.bases[tree] += items.family_base[family]
            trees.fixeds[tree] += items.family_fixed[family]
        trees.of_family[tree, family] += 1
    trees.left[0] -= 2 * len(hits)


@_step
def recount(items: MoveItems, trees: MoveTrees, tree: int) -> None:
    """Bitmaps and sums of one tree from its items."""
    trees.once[tree, :], trees.twice[tree, :], trees.of_family[tree, :] = 0, 0, 0
    trees.sums[tree] = trees.bases[tree] = trees.fixeds[tree] = 0.0
    trees.sizes[tree] = 0
    item = trees.first[tree]
    while item >= 0:
        _add(items, trees, item, tree)
        item = trees.following[item]
    trees.rates[tree] = _count(trees.once[tree]) * items.per_hit
    trees.left[0] -= STEP + trees.once.shape[1]
    _touch(trees, tree)


@_part
def _place(items: MoveItems, trees: MoveTrees, item: int, tree: int) -> None:
    """Put an item that is in no tree into one, or one of its :data:`OWN`."""
    if tree == OWN:
        tree = trees.live[trees.alive[0]]
    _link(trees, item, tree)
    _add(items, trees, item, tree)
    trees.rates[tree] = _count(trees.once[tree]) * items.per_hit
    trees.left[0] -= STEP
    _touch(trees, tree)


@_step
def start(items: MoveItems, trees: MoveTrees) -> None:
    """Set up the trees as in ``tree_of``."""
    for item in range(len(trees.tree_of)):
        _link(trees, item, trees.tree_of[item])
    for tree in range(len(trees.first)):
        if trees.first[tree] >= 0:
            recount(items, trees, tree)
    trees.least[0] = ROUNDING * total(items, trees)


@_step
def total(items: MoveItems, trees: MoveTrees) -> float:
    """Cost of the plan without constants."""
    cost = 0.0
    for tree in trees.live[: trees.alive[0]]:
        cost += _cost(items, trees, tree)
    return cost


@_part
def _cost(items: MoveItems, trees: MoveTrees, tree: int) -> float:
    return items.fixed + trees.fixeds[tree] + trees.rates[tree] * (trees.sums[tree] + trees.bases[tree])


# ---------------------------------------------------------------------------------------------------------- moves
@_part
def _own(items: MoveItems, item: int) -> float:
    """Cost of an item in a separate tree."""
    fixed, charge = items.fixed, items.weights[item]
    for at in range(items.family_at[item], items.family_at[item + 1]):
        fixed += items.family_fixed[items.families[at]]
        charge += items.family_base[items.families[at]]
    return fixed + items.alone[item] * charge


@_part
def _released(items: MoveItems, trees: MoveTrees, item: int) -> float:
    """Saving of the plan without an item."""
    tree = trees.tree_of[item]
    if trees.sizes[tree] == 1:
        return _cost(items, trees, tree)
    lone = _count_lone(items.hits[item], trees.once[tree], trees.twice[tree])
    trees.left[0] -= trees.once.shape[1]
    fixed, charge = items.fixed + trees.fixeds[tree], trees.sums[tree] - items.weights[item] + trees.bases[tree]
    for at in range(items.family_at[item], items.family_at[item + 1]):
        family = items.families[at]
        if trees.of_family[tree, family] == 1:
            fixed -= items.family_fixed[family]
            charge -= items.family_base[family]
    return _cost(items, trees, tree) - (fixed + (trees.rates[tree] - lone * items.per_hit) * charge)


@_part
def _added(items: MoveItems, trees: MoveTrees, item: int, tree: int, below: float) -> float:
    """Additional cost of the plan with an item in a tree; infinite if that is certainly not below a bound."""
    fixed, before = 0.0, trees.sums[tree] + trees.bases[tree]
    after, rate = before + items.weights[item], trees.rates[tree]
    for at in range(items.family_at[item], items.family_at[item + 1]):
        family = items.families[at]
        if trees.of_family[tree, family] == 0:
            fixed += items.family_fixed[family]
            after += items.family_base[family]
    trees.left[0] -= LOOK
    if fixed + max(rate, items.alone[item]) * after - rate * before >= below:
        return np.inf
    rise = _count_new(items.hits[item], trees.once[tree]) * items.per_hit
    trees.left[0] -= trees.once.shape[1]
    return fixed + (rate + rise) * after - rate * before


@_part
def _move(items: MoveItems, trees: MoveTrees, item: int) -> bool:
    """Move an item to where the plan gets cheapest, and skip trees unchanged since its last turn."""
    since, home = trees.seen[item], trees.tree_of[item]
    if items.rare[item] or since == trees.clock[0]:
        return False
    trees.seen[item] = trees.clock[0]
    anywhere, end = trees.changed[home] > since, len(trees.newer) - 1
    below, target, tree = _released(items, trees, item) - trees.least[0], NOWHERE, trees.older[end]
    while tree != end and (anywhere or trees.changed[tree] > since):
        if tree != home:
            cost = _added(items, trees, item, tree, below)
            if cost < below:
                below, target = cost, tree
        tree = trees.older[tree]
    if anywhere and trees.sizes[home] > 1 and _own(items, item) < below:
        target = OWN
    if target == NOWHERE:
        return False
    _unlink(trees, item)
    recount(items, trees, home)
    _place(items, trees, item, target)
    return True


@_step
def descend(items: MoveItems, trees: MoveTrees) -> None:
    """Move items until none gains, or work ends."""
    moving = True
    while moving and trees.left[0] > 0:
        moving = False
        for item in range(len(trees.tree_of)):
            moving |= _move(items, trees, item)
            if trees.left[0] <= 0:
                return


@_part
def _merge(items: MoveItems, trees: MoveTrees, x: int, y: int) -> None:
    """Put the items of tree y into tree x."""
    item = trees.first[y]
    while item >= 0:
        behind = trees.following[item]
        _link(trees, item, x)
        item = behind
    trees.first[y] = -1
    recount(items, trees, y)
    recount(items, trees, x)


@_part
def _gain(items: MoveItems, trees: MoveTrees, x: int, y: int, above: float) -> float:
    """Saving from merging two trees; minus infinity if that is certainly not above a bound."""
    saved, charge = items.fixed, trees.sums[x] + trees.bases[x] + trees.sums[y] + trees.bases[y]
    apart = trees.rates[x] * (trees.sums[x] + trees.bases[x]) + trees.rates[y] * (trees.sums[y] + trees.bases[y])
    for family in range(len(items.family_fixed)):
        if trees.of_family[x, family] and trees.of_family[y, family]:
            saved += items.family_fixed[family]
            charge -= items.family_base[family]
    trees.left[0] -= LOOK + len(items.family_fixed)
    if saved + apart - max(trees.rates[x], trees.rates[y]) * charge <= above:
        return -np.inf
    rise = _count_new(trees.once[y], trees.once[x]) * items.per_hit
    trees.left[0] -= trees.once.shape[1]
    return saved + apart - (trees.rates[x] + rise) * charge


@_step
def merge(items: MoveItems, trees: MoveTrees) -> None:
    """Merge pairs of trees while the best pair gains, or until work ends."""
    while trees.left[0] > 0:
        best, x, y = trees.least[0], -1, -1
        count = trees.alive[0]
        for place in range(count):
            # a tree that is hardly seen would seem to cost others nothing
            if trees.rates[trees.live[place]] <= items.fewest:
                continue
            for other in range(place + 1, count):
                if trees.rates[trees.live[other]] > items.fewest:
                    gain = _gain(items, trees, trees.live[place], trees.live[other], best)
                    if gain > best:
                        best, x, y = gain, trees.live[place], trees.live[other]
            if trees.left[0] <= 0:
                return
        if x < 0:
            return
        _merge(items, trees, x, y)


# --------------------------------------------------------------------------------------------------------- shakes
@_part
def _take(items: MoveItems, trees: MoveTrees, tree: int, out: Integers, count: int) -> int:
    """Take the items that may be moved out of a tree, into ``out`` after its first ``count``: how many that makes."""
    item = trees.first[tree]
    while item >= 0:
        behind = trees.following[item]
        if not items.rare[item]:
            _unlink(trees, item)
            out[count] = item
            count += 1
        item = behind
    return count


@njit(cache=True)
def shake(items: MoveItems, trees: MoveTrees) -> None:
    """Change the plan at random: merge two trees, split one, or take the items of some out and deal them among those
    trees, or put each where it costs least. One more tree is taken with probability 1/2, and so on."""
    live = trees.live[: trees.alive[0]].copy()
    kind, tree = _draw(trees, KINDS), live[_draw(trees, len(live))]
    trees.left[0] -= STEP
    if kind == MERGE:
        other = live[_draw(trees, len(live))]
        if other != tree:
            _merge(items, trees, tree, other)
        return
    taken_items, chosen = np.empty(len(trees.tree_of), dtype=np.int64), np.empty(len(live) + 1, dtype=np.int64)
    count, chosen[0], size = _take(items, trees, tree, taken_items, 0), tree, 1
    while kind != SPLIT and size < len(live) and ((kind >= DEAL and size == 1) or _draw(trees, 2)):
        other = live[_draw(trees, len(live))]
        if (chosen[:size] == other).any():
            break
        count, chosen[size], size = _take(items, trees, other, taken_items, count), other, size + 1
    for at in range(count - 1, 0, -1):
        other = _draw(trees, at + 1)
        taken_items[at], taken_items[other] = taken_items[other], taken_items[at]
    if kind == SPLIT:
        chosen[1], size = trees.live[trees.alive[0]], 2
        leaving = _draw(trees, count + 1)
        for at in range(count):
            _link(trees, taken_items[at], chosen[int(at < leaving)])
    elif kind >= DEAL:
        if _draw(trees, 2):
            chosen[size], size = trees.live[trees.alive[0]], size + 1
        for item in taken_items[:count]:
            _link(trees, item, chosen[_draw(trees, size)])
    for tree in chosen[:size]:
        recount(items, trees, tree)
    if kind == SPLIT or kind >= DEAL:
        return
    for item in taken_items[:count]:
        below, target = _own(items, item), OWN
        for tree in trees.live[: trees.alive[0]]:
            cost = _added(items, trees, item, tree, below)
            if cost < below:
                below, target = cost, tree
        _place(items, trees, item, target)


@njit(cache=True)
def restore(items: MoveItems, trees: MoveTrees, wanted: Integers) -> None:
    """Back to a plan that no move makes cheaper: only the trees that differ from it are set up again."""
    differs = np.zeros(len(trees.first), dtype=np.bool_)
    for item in range(len(wanted)):
        tree = trees.tree_of[item]
        if tree != wanted[item]:
            differs[tree] = differs[wanted[item]] = True
            _unlink(trees, item)
            _link(trees, item, wanted[item])
    for tree in np.flatnonzero(differs):
        recount(items, trees, tree)
    trees.seen[:] = trees.clock[0]


@njit(cache=True)
def search(items: MoveItems, trees: MoveTrees) -> Integers:
    """The tree of every item in the cheapest plan. The search ends with its work, or after a long time without gain."""
    work = trees.left[0]
    start(items, trees)
    descend(items, trees)
    merge(items, trees)
    descend(items, trees)
    cost, best = total(items, trees), trees.tree_of.copy()
    fruitless, last = 0, trees.left[0]
    while trees.left[0] > 0 and fruitless < FRUITLESS * len(best) and last - trees.left[0] < PATIENCE * work:
        shake(items, trees)
        descend(items, trees)
        shaken_cost = total(items, trees)
        fruitless += 1
        if shaken_cost < cost - trees.least[0]:
            cost, fruitless, last = shaken_cost, 0, trees.left[0]
            best[:] = trees.tree_of
        else:
            restore(items, trees, best)
    return best
