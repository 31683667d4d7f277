"""Combine many windows over one array of fragments.

A window's answer is the combine of a *run* ``[low, high)`` of consecutive stored fragments of one group. All arrays
are over the fragments of many groups, one group after the other, by time within a group; a run stays in one group.

**For batches of answers**:

- exact integer sums (and xor): running totals, one subtraction an answer (exact even when they wrap, modulo 2**64);
- runs that move forward, as the windows of one query do: *two stacks*, at most two combines a fragment and one an
  answer, whatever the range;
- runs in any order, where combining a fragment twice does no harm (least, greatest, and, or): a *sparse table* over
  blocks, a few look-ups an answer;
- a few short runs: one fragment after the other.

:func:`combine_runs` (two stacks) serves sums of doubles over the keys of event sequences. :func:`combine_pairs` (the
structure that is cheapest by :data:`COSTS`) serves ``min_by``, ``max_by``, ``first`` and ``last``. For other states
:mod:`spark_jobs.windows.finals.structures` fixes a structure by kind. The paper's own structures, which take one
element after the other, are in :mod:`optimizer.papers.reference.online_intervals`.

Exact sums of doubles are integers here, in limbs. Double-doubles, which sums over event sequences still are, are never
subtracted. Least and greatest doubles are compared as :func:`ordinals`, in Spark's order (NaN last), so one set of
kernels serves integers and doubles, and every structure gives the same bits. Quantiles and other holistic aggregates
are in :mod:`optimizer.combine.wavelet_matrix`.

References
----------
Arasu & Widom (VLDB 2004): section 3, Figures 3 (B-INT), 5 (L-INT), 6 (R-INT), section 3.1.3 (PSoup).
Tangwongsan, Hirzel, Schneider, "Low-latency sliding-window aggregation in worst-case constant time" (DEBS 2017),
section 2: two stacks. Bender & Farach-Colton, "The LCA problem revisited" (LATIN 2000): sparse tables over blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.state_kinds import GREATEST_PAIR, LEAST_PAIR
from optimizer.combine.elements import (
    Columns,
    Longs,
    column_values,
    element_columns,
)
from optimizer.combine.runs import check_runs
from optimizer.combine.sparse_tables import combine_sparse
from optimizer.combine.two_stacks import combine_forward, combine_one_by_one


def combine_runs(values: NDArray[Any], operation: int, group: Longs, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run, by two stacks.

    ``values`` (n, 1) int64 or float64, or (n, 2) double-doubles; ``operation``: see the constants above; ``group``,
    ``low``, ``high`` (a,): by group, both bounds ascending within one. Returns (a, width).
    O(n + a).
    """
    check_runs(low, high, len(values), group=group)
    return column_values(combine_forward(element_columns(values, operation), operation, group, low, high), values.dtype)


def combine_pairs(order: Longs, payload: Longs, greatest: bool, group: Longs, low: Longs, high: Longs) -> Longs:
    """Index of the fragment with the least (or greatest) pair in each run, compared by ``order``, then by ``payload``.

    The state of argmin and argmax, first and last: ``order`` (n,) is compared first, ``payload`` (n,) is the value
    returned to the user, both as integers (doubles as :func:`ordinals`). ``group``, ``low``, ``high`` (a,) as for
    :func:`combine_runs`, or in any order. Returns (a,) indices of fragments; for equal pairs the first.
    """
    if len(order) != len(payload):
        raise ValueError(f"{len(order)} pairs with {len(payload)} payloads")
    columns = *(np.ascontiguousarray(part, dtype=np.int64) for part in (order, payload)), np.arange(len(order))
    check_runs(low, high, len(order), group=group)
    monotone, passed, covered = _survey(group, low, high)
    structure = STRUCTURES[choose(len(order), len(low), monotone, passed, covered)]
    return structure(columns, GREATEST_PAIR if greatest else LEAST_PAIR, group, low, high)[2]


@dataclass(frozen=True)
class Cost:
    """Cost of a structure in nanoseconds: per ``fragment`` to build, per ``answer``, per fragment ``passed`` by runs
    that move forward, and per fragment ``covered`` by a run, over all runs.
    """

    fragment: float = 0.0
    answer: float = 0.0
    passed: float = 0.0
    covered: float = 0.0


COSTS: dict[str, Cost] = {
    "fold": Cost(answer=16.0, covered=2.2),
    "two-stacks": Cost(answer=16.5, passed=4.5),
    "sparse": Cost(fragment=10.5, answer=55.0),
}
"""Measured costs of each structure for pairs (``python -m tests.benchmarks.intervals --costs``, 10**5 fragments). Only
their ratios matter."""


def choose(fragments: int, answers: int, monotone: bool, passed: int, covered: int) -> str:
    """The cheapest structure for pairs by :data:`COSTS`: ``two-stacks``, ``sparse`` or ``fold``.

    ``monotone``: runs move forward within a group. ``passed``: fragments between the first and the last run of each
    group, in all; ``covered``: fragments of all runs.
    """

    def nanoseconds(name: str) -> float:
        cost = COSTS[name]
        return fragments * cost.fragment + answers * cost.answer + passed * cost.passed + covered * cost.covered

    return min((name for name in COSTS if monotone or name != "two-stacks"), key=nanoseconds)


@numba.njit(cache=True)
def _survey(group, low, high):
    """Return whether runs move forward within a group, and the numbers of fragments that they pass and cover."""
    monotone, passed, covered = True, 0, 0
    for i in range(len(low)):
        covered += high[i] - low[i]
        if i == 0 or group[i] != group[i - 1]:
            passed += high[i] - low[i]
        else:
            monotone &= low[i] >= low[i - 1] and high[i] >= high[i - 1]
            passed += high[i] - max(low[i], high[i - 1])
    return monotone, passed, covered


STRUCTURES: dict[str, Callable[[Columns, int, Longs, Longs, Longs], Columns]] = {
    "sparse": lambda columns, operation, group, low, high: combine_sparse(columns, operation)(low, high),
    "two-stacks": combine_forward,
    "fold": combine_one_by_one,
}
"""Structures by the name that :func:`choose` returns: from columns of elements, operation, group, low and high of
runs.
"""
