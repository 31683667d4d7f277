"""Generated streams and patterns like those of Sharon's evaluation: taxis, Linear Road, e-commerce.

The taxi data is 330 GB and does not contain routes through streets. Linear Road needs a separate simulator. The
patterns of the queries are not published. So this module generates what decides the costs: events per window, key and
type, the number of keys, and whether the types of one key follow one another as routes or at random.

References
----------
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: section 8.1 (data sets,
queries, defaults). Arasu et al., "Linear Road: a stream data management benchmark", VLDB 2004.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]

HOURS = 3
"""Length of the paper's generated streams."""

SHARED = ("middle", "prefix", "suffix", "mixed", "halves")
"""Positions at which the patterns of :func:`workload` have a piece in common."""

_FURTHER = 3
"""Most road segments from one event type of a pattern to the next."""


class Stream(NamedTuple):
    """Events in the order of time.

    ``key`` (n,) int64, ``time`` (n,) int64 ticks, ``type`` (n,) int32; ``keys`` and ``types``: keys are 0..keys-1,
    types 0..types-1; ``follows``: (types, successors) which types of a key come after a type (empty where they come in
    any order).
    """

    key: Longs
    time: Longs
    type: NDArray[np.int32]
    keys: int
    types: int
    follows: Longs

    def rate(self, window: int) -> float:
        """Average events per type, window of ``window`` ticks and key."""
        return len(self.time) * window / max(int(self.time[-1] - self.time[0]), 1) / self.keys / self.types


def purchases(
    events: int, items: int = 50, users: int = 20, rate: float = 3_000, ticks: int = 1, seed: int = 0
) -> Stream:
    """EC: item and customer of every purchase are drawn uniformly, ``rate`` purchases a second.

    ``ticks``: of time, per second; the paper's times are in seconds.
    """
    rng = np.random.default_rng(seed)
    time = (np.arange(events) * (ticks / rate)).astype(np.int64)
    key, type = rng.integers(0, users, events), rng.integers(0, items, events).astype(np.int32)
    return Stream(key, time, type, users, items, np.empty((items, 0), np.int64))


def position_reports(
    begin: float = 0,
    end: float = HOURS * 3600,
    first_rate: float = 40,
    last_rate: float = 4_000,
    segments: int = 50,
    stay: float = 0.5,
    ticks: int = 1,
    seed: int = 0,
) -> Stream:
    """LR: cars on a ring of segments of road, each of which reports its segment (the event type) every second.

    Cars join so that reports per second rise evenly from ``first_rate`` to ``last_rate`` in three hours; only seconds
    [begin, end) of these are generated. From one report to the next a car stays in its segment with probability
    ``stay``, otherwise it is in the next one. (Linear Road's cars report every 30 seconds. The paper's windows would
    hold one or two reports of a car, no sequences of ten.) Patterns may leave out up to two segments at a time.
    """
    rng = np.random.default_rng(seed)
    seconds = np.arange(int(begin), int(end))
    cars = (first_rate + (last_rate - first_rate) * seconds / (HOURS * 3600)).astype(np.int64)
    second = np.repeat(np.arange(len(seconds)), cars)
    key = np.arange(len(second)) - np.repeat(np.cumsum(cars) - cars, cars)
    shape = len(seconds), int(cars.max(initial=0))
    moves = rng.random(shape, np.float32) >= stay
    place = rng.integers(0, segments, shape[1], np.int32) + np.cumsum(moves, axis=0, dtype=np.int32)
    type = (place[second, key] % segments).astype(np.int32)
    # within a second each car has its own moment
    moment = (rng.random(shape[1]) * ticks).astype(np.int64)
    time = seconds[second] * ticks + moment[key]
    order = np.argsort(time, kind="stable")
    follows = (np.arange(segments)[:, None] + np.arange(1, 1 + _FURTHER)) % segments
    return Stream(key[order], time[order], type[order], shape[1], segments, follows)


def routes(
    events: int,
    vehicles: int = 500,
    streets: int = 50,
    successors: int = 3,
    pause: float = 5,
    trip: int = 15,
    ticks: int = 1,
    seed: int = 0,
) -> Stream:
    """TX: trips of vehicles over streets (the event types), a Markov chain.

    From a street a vehicle turns into one of ``successors``, drawn once for the city, the i-th of them with a
    probability proportional to 1/i; it reports every street, after a time uniform in 0.4 to 1.6 times ``pause``
    seconds. A trip has ``trip`` streets on average, then the vehicle begins another one anywhere.
    """
    rng = np.random.default_rng(seed)
    # the first successor leads through all streets, so that none is out of reach
    tour = rng.permutation(streets)
    follows = np.argsort(rng.random((streets, streets)), axis=1)[:, :successors]
    follows[tour, 0] = np.roll(tour, -1)
    steps = -(-events // vehicles)
    shares = 1 / np.arange(1, successors + 1)
    turn = rng.choice(successors, (steps, vehicles), p=shares / shares.sum())
    anew = rng.random((steps, vehicles)) < 1 / trip
    street = np.empty((steps, vehicles), np.int64)
    street[0] = rng.integers(0, streets, vehicles)
    for step in range(1, steps):
        street[step] = np.where(anew[step], rng.integers(0, streets, vehicles), follows[street[step - 1], turn[step]])
    gaps = rng.uniform(0.4 * pause, 1.6 * pause, (steps, vehicles))
    gaps[0] = rng.uniform(0, pause, vehicles)
    time = (np.cumsum(gaps, axis=0) * ticks).astype(np.int64).ravel()
    key = np.tile(np.arange(vehicles), steps)
    order = np.argsort(time, kind="stable")[:events]
    return Stream(key[order], time[order], street.ravel()[order].astype(np.int32), vehicles, streets, follows)


def workload(
    queries: int, length: int, shared: str, stream: Stream, common: int = 1, seed: int = 0, piece: int | None = None
) -> list[tuple[int, ...]]:
    """Generate patterns of different event types with pieces in common.

    Parameters
    ----------
    shared
        Position of a common piece in the pattern, one of :data:`SHARED`. ``mixed``: each in turn. ``halves``: two
        common pieces, one after the other, make the pattern.
    stream
        Source of the event types. If its types follow one another, so do those of the patterns: a route continues
        after the piece, and backwards before it (if it gets stuck, any other type comes next).
    common
        Number of different pieces (of halves: first ones and second ones), query by query in turn.
    piece
        Length of a common piece (of the first of two), by default half of the pattern's.

    Raises ValueError for an unknown ``shared``, or if the stream has fewer types than a pattern.
    """
    if shared not in SHARED:
        raise ValueError(f"unknown kind {shared!r}: one of {', '.join(SHARED)}")
    if length > stream.types:
        raise ValueError(f"{length} different event types of {stream.types}")
    size = piece or max(1, length // 2)
    rng = np.random.default_rng(seed)
    after = [list(each) for each in stream.follows.tolist()]
    before: list[list[int]] = [[] for _ in after]
    for type, successors in enumerate(after):
        for successor in successors:
            before[successor].append(type)
    if shared == "halves":
        return _halves(queries, length, size, after, before, common, rng)
    types = range(stream.types)
    pieces = [_walked([], size, after, types, rng) for _ in range(common)]
    patterns = []
    for number in range(queries):
        kind = SHARED[number % 3] if shared == "mixed" else shared
        front = {"middle": (length - size) // 2, "prefix": 0, "suffix": length - size}[kind]
        tail = _walked(pieces[number % common], length - front, after, types, rng)
        patterns.append(tuple(reversed(_walked(tail[::-1], length, before, types, rng))))
    return patterns


def _halves(
    queries: int,
    length: int,
    front: int,
    after: list[list[int]],
    before: list[list[int]],
    common: int,
    rng: np.random.Generator,
) -> list[tuple[int, ...]]:
    """First halves that lead to one type, and second halves that go on from there."""
    types = rng.permutation(len(after)).tolist()
    # where types come in any order, no type is in a first and in a second half; routes may meet again
    early, late = (types, types) if any(after) else (types[: len(types) // 2], types[len(types) // 2 :])
    firsts = [_walked(types[:1], front, before, early, rng)[::-1] for _ in range(common)]
    seconds = [_walked(types[:1], 1 + length - front, after, late, rng)[1:] for _ in range(common)]
    turns = ((firsts[turn % common], seconds[(turn + turn // common) % common]) for turn in range(common * common))
    pairs = [(*head, *other) for head, other in turns if not set(head) & set(other)]
    return [pairs[number % len(pairs)] for number in range(queries)]


def _walked(
    begun: Sequence[int], length: int, after: list[list[int]], types: Sequence[int], rng: np.random.Generator
) -> list[int]:
    """A walk made longer, without coming to a type again."""
    walk = list(begun)
    while len(walk) < length:
        last = after[walk[-1]] if walk else []
        open_to = [type for type in last if type not in walk] or [type for type in types if type not in walk]
        walk.append(open_to[rng.integers(len(open_to))])
    return walk
