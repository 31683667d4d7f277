"""The most frequent values of runs that move forward: a tournament of counts."""

from __future__ import annotations

import numba
import numpy as np

from optimizer.combine.runs import check_runs
from optimizer.combine.wavelet_matrix import Longs, rank_codes


def check_forward(elements: int, weights: int, group: Longs, low: Longs, high: Longs) -> None:
    """Raises ValueError unless runs move forward within each group and each element has one weight."""
    check_runs(low, high, elements, shortest=0)
    same = group[1:] == group[:-1]
    if elements != weights or len(group) != len(low) or (same & ((np.diff(low) < 0) | (np.diff(high) < 0))).any():
        raise ValueError("one number each an element, and runs that move forward within a group")


@numba.njit(cache=True)
def _gain(winners, weights, rank, weight):
    """More weight for one rank: it may now win over those it meets on the way up."""
    weights[rank] += weight
    node = (len(winners) // 2 + rank) >> 1
    while node:
        winner = winners[node]
        if winner != rank:
            if weights[winner] > weights[rank] or (weights[winner] == weights[rank] and winner < rank):
                break
            winners[node] = rank
        node >>= 1


@numba.njit(cache=True)
def _lose(winners, weights, rank, weight):
    """Subtract weight from one rank, and decide again only the nodes where it won."""
    weights[rank] -= weight
    node = (len(winners) // 2 + rank) >> 1
    while node and winners[node] == rank:
        left, right = winners[2 * node], winners[2 * node + 1]
        winners[node] = right if weights[right] > weights[left] else left
        node >>= 1


@numba.njit(cache=True)
def _tournament(ranks, weights, group, low, high, best, best_weights, places):
    """The first ``best.shape[1]`` of each run; ``places``: a power of two above all ranks."""
    winners = np.empty(2 * places, np.int64)
    for node in range(2 * places - 1, 0, -1):
        winners[node] = node - places if node >= places else winners[2 * node]
    totals = np.zeros(places, np.int64)
    begin = end = 0
    for i in range(len(low)):
        fresh = i == 0 or group[i] != group[i - 1] or low[i] >= end
        for j in range(begin, end if fresh else low[i]):
            _lose(winners, totals, ranks[j], weights[j])
        for j in range(low[i] if fresh else end, high[i]):
            _gain(winners, totals, ranks[j], weights[j])
        begin, end = low[i], high[i]
        count = 0
        # each winner leaves until the next ones are known
        while count < best.shape[1] and totals[winners[1]] > 0:
            rank = winners[1]
            best[i, count], best_weights[i, count] = rank, totals[rank]
            count += 1
            if count < best.shape[1]:
                _lose(winners, totals, rank, totals[rank])
        for j in range(min(count, best.shape[1] - 1)):
            _gain(winners, totals, best[i, j], best_weights[i, j])


def top_k(ranks: Longs, weights: Longs, group: Longs, low: Longs, high: Longs, k: int) -> tuple[Longs, Longs]:
    """The ``k`` heaviest values of each run of elements, by weight descending, then by rank ascending.

    ``ranks`` (m,): values as integers from 0, in their order; ``weights`` (m,) positive; ``group``, ``low``, ``high``
    (a,): runs of elements that move forward within a group. Returns ranks (a, k), -1 where a run has fewer values, and
    their total weights (a, k), 0 there. Elements enter and leave once: O(log d) each, less as a rule, and O(k log d) an
    answer, for d distinct ranks. Raises ValueError if runs do not move forward.
    """
    if k < 1:
        raise ValueError(f"the first {k} of something")
    check_forward(len(ranks), len(weights), group, low, high)
    if len(ranks) and (int(ranks.min()) < 0 or int(weights.min()) < 1):
        raise ValueError("ranks are at least 0, weights at least 1")
    codes, values = rank_codes(np.asarray(ranks, dtype=np.int64))
    best, best_weights = np.full((len(low), k), -1, dtype=np.int64), np.zeros((len(low), k), dtype=np.int64)
    places = 1 << max(1, (len(values) - 1).bit_length())
    _tournament(codes, np.asarray(weights, dtype=np.int64), group, low, high, best, best_weights, places)
    return np.append(values, -1)[best], best_weights


def modes(ranks: Longs, weights: Longs, group: Longs, low: Longs, high: Longs) -> Longs:
    """The rank of the greatest total weight in each run (of equal ones the smallest), -1 for an empty run: (a,).

    Arguments as for :func:`top_k`.
    """
    return top_k(ranks, weights, group, low, high, 1)[0][:, 0]
