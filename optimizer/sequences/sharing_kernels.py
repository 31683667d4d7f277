"""Compiled steps of the search for a cheap sharing plan (:mod:`optimizer.sequences.sharing_search`).

A plan is the set of patterns that are *open*, shared by whoever gains by it: every query goes its cheapest way through
them, and what fewer than two places of queries use is closed. Opening or closing one pattern concerns few queries. So
it is done in place, in some microseconds, and taken back where it saves nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

ROUNDING = 1e-9
"""Gains below this, relative to the cost of the plan, are rounding."""

MOST_FLIPPED = 8
"""Most patterns that a shake opens or closes at random."""

TRIES = 20
"""Spans of a query that are drawn before one of a pattern is given up."""


class Ways(NamedTuple):
    """Queries (n,), patterns (p,) and how they lie in one another.

    ``lengths`` (n,); ``rates`` (n, l) of a query's types; ``spans`` (n, l, l + 1): the pattern of each [begin, end), or
    -1; ``counting`` (p,): what a pattern costs; ``holders``, by pattern from ``first`` (p + 1,): queries that have it.
    """

    lengths: Longs
    rates: Floats
    spans: Longs
    counting: Floats
    holders: Longs
    first: Longs


class Routes(NamedTuple):
    """A plan. ``prices`` (p,) of patterns: 0 if open, else infinite. ``chosen`` (n, l): the pattern that begins as a
    shared segment at each position, or -1. ``own`` (n,): what a query costs besides its shared patterns. ``places``
    (p,): how many of ``chosen`` each pattern is."""

    prices: Floats
    chosen: Longs
    own: Floats
    places: Longs


class Journal(NamedTuple):
    """What taking a flip back takes: the queries that it led another way, with their ``chosen`` and ``own`` of before,
    and the patterns that it opened or closed. ``marked`` (n,): the number of the flip that changed a query last;
    ``rows`` (n,): queries to be led anew; ``clock``: number of the flip."""

    queries: Longs
    chosen: Longs
    own: Floats
    patterns: Longs
    marked: Longs
    rows: Longs
    clock: Longs


class Waiting(NamedTuple):
    """Patterns to be tried: a ring ``queue`` (p,), its first and how many (``state``), and which are in it."""

    queue: Longs
    state: Longs
    there: NDArray[np.bool_]


@njit(cache=True)
def route(rows: Longs, ways: Ways, prices: Floats, chosen: Longs, own: Floats) -> None:
    """Shortest paths of some queries through the patterns, at their ``prices``. Sets their rows of ``chosen`` and
    ``own`` (:meth:`optimizer.sequences.candidates.SequenceProblem.own_cost`, and the prices)."""
    size = ways.rates.shape[1] + 1
    # by position: is the segment that comes next the second, does it follow one of the query's own
    costs = np.empty((size, 2, 2))
    came = np.empty((size, 2, 2, 4), np.int64)
    total = np.zeros(size)
    for query in rows:
        length, rate = ways.lengths[query], ways.rates[query]
        for at in range(length):
            total[at + 1] = total[at] + rate[at]
        costs[:] = np.inf
        costs[0, 0, 0] = 0.0
        for begin in range(length):
            for second in range(2):
                for after_own in range(2):
                    before = costs[begin, second, after_own]
                    if before == np.inf:
                        continue
                    for end in range(begin + 1, length + 1):
                        combined = 0.0
                        if begin and end < length:
                            combined = rate[0] * rate[begin] * rate[end]
                        elif begin and second:
                            combined = rate[0] * rate[begin]
                        after = int(begin == 0)
                        pattern = ways.spans[query, begin, end]
                        if pattern >= 0:
                            cost = before + combined + prices[pattern]
                            if cost < costs[end, after, 0]:
                                costs[end, after, 0] = cost
                                came[end, after, 0] = begin, second, after_own, pattern
                        if not after_own:
                            cost = before + combined + rate[begin] * (total[end] - total[begin])
                            if cost < costs[end, after, 1]:
                                costs[end, after, 1] = cost
                                came[end, after, 1] = begin, second, after_own, -1
        at, second, after_own = length, 0, 0
        for one in range(2):
            for other in range(2):
                if costs[length, one, other] < costs[at, second, after_own]:
                    second, after_own = one, other
        own[query] = costs[at, second, after_own]
        chosen[query] = -1
        while at:
            begin, one, other, pattern = came[at, second, after_own]
            chosen[query, begin] = pattern
            at, second, after_own = begin, one, other


@njit(cache=True)
def _take(ways: Ways, plan: Routes, query: int) -> float:
    """A query leaves its places; what it costs no more."""
    saved = plan.own[query]
    for at in range(ways.lengths[query]):
        pattern = plan.chosen[query, at]
        if pattern >= 0:
            plan.places[pattern] -= 1
            saved += ways.counting[pattern] * (plan.places[pattern] == 0)
    return saved


@njit(cache=True)
def _put(ways: Ways, plan: Routes, query: int) -> float:
    """A query takes its places; what it costs from now on."""
    cost = plan.own[query]
    for at in range(ways.lengths[query]):
        pattern = plan.chosen[query, at]
        if pattern >= 0:
            cost += ways.counting[pattern] * (plan.places[pattern] == 0)
            plan.places[pattern] += 1
    return cost


@njit(cache=True)
def _uses(plan: Routes, query: int, pattern: int) -> bool:
    return pattern in plan.chosen[query]


@njit(cache=True)
def _close_lonely(
    ways: Ways, plan: Routes, journal: Journal, begin: Longs, queries: int, flipped: int
) -> tuple[int, int]:
    """Close the patterns among those that begin somewhere (``begin``, a row of ``chosen``) that fewer than two places
    use. Returns how many queries are to be led anew, and patterns flipped so far."""
    for pattern in begin:
        if pattern < 0 or plan.places[pattern] > 1 or plan.prices[pattern] != 0.0:
            continue
        plan.prices[pattern] = np.inf
        journal.patterns[flipped] = pattern
        flipped += 1
        for at in range(ways.first[pattern], ways.first[pattern + 1] if plan.places[pattern] else 0):
            query = ways.holders[at]
            if _uses(plan, query, pattern) and query not in journal.rows[:queries]:
                journal.rows[queries] = query
                queries += 1
    return queries, flipped


@njit(cache=True)
def _flip(ways: Ways, plan: Routes, journal: Journal, pattern: int) -> tuple[float, int, int]:
    """Open or close a pattern, and lead anew who is concerned until no pattern has a single place. Returns what the
    plan costs more, and how many queries and patterns the journal has."""
    journal.clock[0] += 1
    closing = plan.prices[pattern] == 0.0
    plan.prices[pattern] = np.inf if closing else 0.0
    journal.patterns[0] = pattern
    more, changed, flipped, left = 0.0, 0, 1, 0
    for at in range(ways.first[pattern], ways.first[pattern + 1]):
        query = ways.holders[at]
        if not closing or _uses(plan, query, pattern):
            journal.rows[left] = query
            left += 1
    while left:
        for at in range(left):
            query = journal.rows[at]
            if journal.marked[query] != journal.clock[0]:
                journal.marked[query] = journal.clock[0]
                journal.queries[changed] = query
                journal.chosen[changed] = plan.chosen[query]
                journal.own[changed] = plan.own[query]
                changed += 1
            more -= _take(ways, plan, query)
        route(journal.rows[:left], ways, plan.prices, plan.chosen, plan.own)
        for at in range(left):
            more += _put(ways, plan, journal.rows[at])
        left = 0
        for at in range(changed):
            left, flipped = _close_lonely(ways, plan, journal, plan.chosen[journal.queries[at]], left, flipped)
            left, flipped = _close_lonely(ways, plan, journal, journal.chosen[at], left, flipped)
    if plan.prices[pattern] == 0.0 and plan.places[pattern] == 0:
        # nobody wants it
        plan.prices[pattern] = np.inf
        journal.patterns[flipped] = pattern
        flipped += 1
    return more, changed, flipped


@njit(cache=True)
def _take_back(ways: Ways, plan: Routes, journal: Journal, changed: int, flipped: int) -> None:
    for at in range(changed):
        _take(ways, plan, journal.queries[at])
    for at in range(changed):
        query = journal.queries[at]
        plan.chosen[query] = journal.chosen[at]
        plan.own[query] = journal.own[at]
        _put(ways, plan, query)
    for at in range(flipped):
        pattern = journal.patterns[at]
        plan.prices[pattern] = np.inf if plan.prices[pattern] == 0.0 else 0.0


@njit(cache=True)
def _wait_for(ways: Ways, waiting: Waiting, query: int, but: int) -> None:
    """Every pattern of a query is to be tried, ``but`` one."""
    for begin in range(ways.lengths[query]):
        for end in range(begin + 2, ways.lengths[query] + 1):
            pattern = ways.spans[query, begin, end]
            if pattern >= 0 and pattern != but and not waiting.there[pattern]:
                waiting.there[pattern] = True
                waiting.queue[(waiting.state[0] + waiting.state[1]) % len(waiting.queue)] = pattern
                waiting.state[1] += 1


@njit(cache=True)
def _descend(ways: Ways, plan: Routes, journal: Journal, waiting: Waiting, cost: float) -> float:
    """Open and close patterns that wait to be tried, where it saves anything; whom a change led elsewhere lets all its
    patterns wait. Returns the cost."""
    while waiting.state[1]:
        pattern = waiting.queue[waiting.state[0]]
        waiting.state[0] = (waiting.state[0] + 1) % len(waiting.queue)
        waiting.state[1] -= 1
        waiting.there[pattern] = False
        more, changed, flipped = _flip(ways, plan, journal, pattern)
        if more < -ROUNDING * cost:
            cost += more
            for at in range(changed):
                _wait_for(ways, waiting, journal.queries[at], pattern)
        else:
            _take_back(ways, plan, journal, changed, flipped)
    return cost


@njit(cache=True)
def _settle(ways: Ways, plan: Routes) -> float:
    """Lead all queries their cheapest ways, close what is not shared, until nothing is to be closed; the cost."""
    everybody, lonely = np.arange(len(ways.lengths)), True
    while lonely:
        route(everybody, ways, plan.prices, plan.chosen, plan.own)
        plan.places[:] = 0
        cost = 0.0
        for query in everybody:
            cost += _put(ways, plan, query)
        lonely = False
        for pattern in range(len(plan.places)):
            if plan.places[pattern] < 2:
                lonely |= plan.places[pattern] == 1
                plan.prices[pattern] = np.inf
    return cost


@njit(cache=True)
def _below(random: NDArray[np.uint64], limit: int) -> np.int64:
    """A pseudo-random number (xorshift)."""
    number: Any = random[0]
    number ^= number << np.uint64(13)
    number ^= number >> np.uint64(7)
    number ^= number << np.uint64(17)
    random[0] = number
    return np.int64(number % np.uint64(limit))


@njit(cache=True)
def _shake(
    ways: Ways, plan: Routes, journal: Journal, waiting: Waiting, random: NDArray[np.uint64], cost: float
) -> float:
    """Open or close some patterns of one query at random; the others of who is led elsewhere wait. The cost."""
    query = _below(random, len(ways.lengths))
    length = ways.lengths[query]
    for _ in range(1 + _below(random, MOST_FLIPPED)):
        for _ in range(TRIES):
            begin = _below(random, length)
            end = min(begin + 2 + _below(random, length), len(ways.spans[query, begin]) - 1)
            pattern = ways.spans[query, begin, end]
            if pattern >= 0:
                more, changed, _ = _flip(ways, plan, journal, pattern)
                cost += more
                for at in range(changed):
                    _wait_for(ways, waiting, journal.queries[at], pattern)
                break
    return cost


@njit(cache=True)
def _copy(plan: Routes, to: Routes) -> None:
    to.prices[:], to.chosen[:], to.own[:], to.places[:] = plan.prices, plan.chosen, plan.own, plan.places


@njit(cache=True)
def _descend_all(ways: Ways, plan: Routes, journal: Journal, waiting: Waiting, order: Longs, cost: float) -> float:
    """Try all patterns until none saves anything: what one saves depends on queries that do not have it, too."""
    tried = np.inf
    while cost < tried:
        tried = cost
        waiting.queue[:], waiting.there[:] = order, True
        waiting.state[0], waiting.state[1] = 0, len(order)
        cost = _descend(ways, plan, journal, waiting, cost)
    return cost


@njit(cache=True)
def cheap_routes(ways: Ways, prices: Floats, order: Longs, shakes: int) -> Longs:
    """``chosen`` of a plan that no pattern more or less makes cheaper, found from the patterns with a price of 0.

    ``order``: in which the patterns are tried. Then the plan is shaken so often, and descends again from where it is;
    what is dearer than before is taken back. O(holders * l^2) for each pattern that is tried.
    """
    queries, patterns, longest = len(ways.lengths), len(prices), ways.rates.shape[1]
    plan = Routes(prices, np.empty((queries, longest), np.int64), np.empty(queries), np.zeros(patterns, np.int64))
    journal = Journal(
        np.empty(queries, np.int64), np.empty((queries, longest), np.int64), np.empty(queries),
        np.empty(patterns + 2, np.int64), np.zeros(queries, np.int64), np.empty(queries, np.int64),
        np.zeros(1, np.int64),
    )  # fmt: skip
    waiting = Waiting(np.empty(patterns, np.int64), np.zeros(2, np.int64), np.zeros(patterns, np.bool_))
    random = np.full(1, 88172645463325252, np.uint64)
    cost = _descend_all(ways, plan, journal, waiting, order, _settle(ways, plan))
    best = Routes(plan.prices.copy(), plan.chosen.copy(), plan.own.copy(), plan.places.copy())
    for _ in range(shakes):
        found = _descend(ways, plan, journal, waiting, _shake(ways, plan, journal, waiting, random, cost))
        if found <= cost * (1 + ROUNDING):
            cost = found
            _copy(plan, best)
        else:
            _copy(best, plan)
    if shakes:
        _descend_all(ways, plan, journal, waiting, order, cost)
    return plan.chosen
