"""Choose the published answers to recompute: a stratified sample with known inclusion probabilities.

An answer is a query, a window and a group. Three independent draws decide whether it is recomputed. Each has a
declared probability, so that the product is the probability of the answer:

1. the query: systematic sampling with probabilities proportional to a weight over the square root of its cost.
   Queries that were never audited weigh most, then those audited longest ago;
2. its windows: some among all windows that have answers, one more in a stratum of windows that faults prefer
   (:data:`STRATA`). The cost of reading a window does not matter: step 1 accounts for expensive queries;
3. its groups: all of them, or those of some buckets of keys if the windows contain many events.

In large runs all queries use one random number for step 2, so that their windows lie in the same files.

References: Horvitz and Thompson (1952) for unequal probabilities, Madow (1949) for systematic sampling with them,
Neyman (1934) for the square root of the cost, Ohlsson (1995) for permanent random numbers, which coordinate
samples.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optimizer.workload.values import ACQ
from optimizer.workload.window_kinds import TIME

Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]

EMPTY = "empty"
"""The stratum of windows that are due and have no answer: a window that is missing lies there."""

STRATA = ("day", "file", "interval", "null", "repaired", EMPTY)
"""Strata of windows: they cross midnight UTC, an edge between files, the begin of the interval; they have an answer
whose group has a null; they are answered again; they have no answer."""

LONGEST_AGO = 16
"""Number of runs since an audit after which the weight no longer grows."""

NEVER = 8 * LONGEST_AGO
"""...but what never was."""

SAMPLED_QUERIES = 16
"""Approximate number of queries that a run recomputes, for a prediction of its costs."""


@dataclass(frozen=True)
class Past:
    """Audits of earlier runs: for each label the number of runs since (0: the last one). ``repaired``: whether this
    run answers windows again.
    """

    runs_ago: Mapping[str, int] = field(default_factory=dict)
    repaired: bool = False

    @classmethod
    def of(cls, audits: Sequence[Collection[str]], repaired: bool = False) -> Past:
        """The past of runs that audited these labels each, the last run first."""
        runs_ago: dict[str, int] = {}
        for number, labels in enumerate(audits):
            for label in labels:
                runs_ago.setdefault(label, number)
        return cls(runs_ago, repaired)

    def weight(self, label: str) -> int:
        """Weight of a label: the longer ago it was audited, the larger."""
        return min(self.runs_ago[label] + 1, LONGEST_AGO) if label in self.runs_ago else NEVER


def kinds_of(query: ACQ) -> list[str]:
    """Parts of the shared execution that decide a query's answers: the kind of its windows, with that of each
    aggregate.
    """
    window = query.window
    if query.kind != TIME:
        kind = query.kind.name + (" several" if window.parts else "")
    elif window.parts:
        kind = "several"
    elif window.since is not None:
        kind = "since first"
    elif window.calendar is not None:
        kind = "calendar"
    elif window.cumulative:
        kind = "cumulative"
    elif window.at_most is not None:
        kind = "at most"
    else:
        kind = "ago" if window.ago else "range"
    functions = sorted({f"{part.function}({_type_of(part.argument_type)})" for part in query.computed})
    traits = [name for name, is_there in (("top", query.top), ("having", query.having)) if is_there]
    return [f"{kind}", *(f"{kind} {what}" for what in (*functions, *traits))]


def _type_of(type: object) -> str:
    return "" if type is None else getattr(type, "name", str(type))


# --------------------------------------------------------------------------------------------- step 1: queries
def query_weight(query: ACQ, past: Past) -> float:
    """Weight of a query: that of the query itself, and of the rarest of its kinds."""
    return past.weight(f"query {query.name}") + 2 * max(past.weight(f"kind {kind}") for kind in kinds_of(query))


def query_chances(weights: Sequence[float], costs: Sequence[float], budget: float) -> NDArray[np.float64]:
    """The probability (n,) of each query, so that the expected cost is the budget; of at least one query in all."""
    if not len(weights):
        return np.zeros(0)
    cost = np.maximum(np.asarray(costs, dtype=np.float64), 1e-9)
    pull = np.asarray(weights, dtype=np.float64) / np.sqrt(cost)
    chances = _scaled(pull, cost, budget)
    return chances if chances.sum() >= 1 else _scaled(pull, np.ones(len(pull)), 1.0)


def _scaled(pull: NDArray[np.float64], cost: NDArray[np.float64], budget: float) -> NDArray[np.float64]:
    """``min(1, t * pull)`` with the ``t`` that makes the expected cost the budget."""
    certain = np.zeros(len(pull), dtype=bool)
    while True:
        remaining = budget - cost[certain].sum()
        expected_cost = float((pull * cost)[~certain].sum())
        if remaining <= 0 or expected_cost == 0:
            return np.where(certain, 1.0, 0.0)
        factor = remaining / expected_cost
        more = ~certain & (factor * pull >= 1)
        if not more.any():
            return np.where(certain, 1.0, factor * pull)
        certain |= more


def systematic(chances: NDArray[np.float64], start: float) -> list[int]:
    """The numbers that are drawn, each with its own probability: where a comb of step 1 that begins at ``start``, in
    [0, 1), meets the running sum. What lies together in the order is spread over the draws."""
    sums = np.concatenate([[0.0], np.cumsum(chances)])
    hits = np.ceil(sums - start)
    return np.flatnonzero(hits[1:] > hits[:-1]).tolist()


# --------------------------------------------------------------------------------------------- step 2: windows
@dataclass(frozen=True)
class Units:
    """The windows of one query that an audit may recompute, in order of time: those with answers, then those that are
    due and have none (:data:`EMPTY`).

    ``starts``, ``ends``: their content [start, end) in microseconds; ``answers``: the number of their answers;
    ``strata``: which of them (n,) are in a stratum. Windows of rows have a ``position`` and a ``key`` each.
    """

    query: ACQ
    starts: Longs
    ends: Longs
    answers: Longs
    strata: Mapping[str, Mask]
    positions: Longs | None = None
    keys: tuple[str, ...] = ()

    @property
    def answered(self) -> Longs:
        """The numbers of the windows that have answers."""
        return np.flatnonzero(self.answers > 0)

    def of(self, stratum: str) -> Longs:
        """The numbers of the windows in a stratum."""
        return np.flatnonzero(self.strata[stratum])

    def labels(self, number: int) -> list[str]:
        """The strata that a window is in."""
        return [name for name in STRATA if name in self.strata and self.strata[name][number]]


def stratum_chances(units: Units, past: Past) -> dict[str, float]:
    """Probability of each stratum that has windows to be the one that gets an extra draw."""
    weights = {
        name: float(past.weight(f"stratum {units.query.name} {name}"))
        for name in STRATA
        if name in units.strata and units.strata[name].any()
    }
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def drawn_windows(units: Units, strata: Mapping[str, float], draws: int, at: float, which: float) -> list[int]:
    """The windows of a query: ``draws`` of all that have answers, evenly spread from the place ``at``, and one of the
    stratum that ``which`` falls on (both in [0, 1))."""
    numbers = dict.fromkeys(_comb(units.answered, draws, at))
    stratum = _chosen(strata, which)
    if stratum is not None:
        numbers |= dict.fromkeys(_comb(units.of(stratum), 1, at))
    return sorted(numbers)


def _comb(numbers: Longs, draws: int, at: float) -> list[int]:
    if not len(numbers):
        return []
    places = [math.floor((at + draw / draws) % 1.0 * len(numbers)) for draw in range(draws)]
    return [int(numbers[min(place, len(numbers) - 1)]) for place in places]


def _chosen(strata: Mapping[str, float], which: float) -> str | None:
    reached = 0.0
    for name, chance in strata.items():
        reached += chance
        if which < reached:
            return name
    return next(reversed(list(strata)), None)


# --------------------------------------------------------------------------------------------- step 3: groups
def bucket_count(events: float, most: float, buckets: int) -> int:
    """Number of buckets whose groups are recomputed in windows with a number of ``events``, of which about ``most``
    are to be read closely. The probability of a group is this over ``buckets``.
    """
    return buckets if events <= most else max(1, int(buckets * most / events))
