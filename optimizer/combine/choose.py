"""Combine many windows over one array of fragments.

A window's answer is the combine of a *run* ``[low, high)`` of consecutive stored fragments of one group. All arrays
are over the fragments of many groups, one group after the other, by time within a group; a run stays in one group.

**For batches of answers**:

- exact integer sums (and xor): running totals, one subtraction an answer (exact even when they wrap, modulo 2**64);
- runs that move forward, as the windows of one query do: *two stacks*, at most two combines a fragment and one an
  answer, whatever the range;
- runs in any order: a *sparse table* over blocks where combining a fragment twice does no harm (least, greatest, and,
  or), else a *disjoint sparse table*: two look-ups and at most one combine an answer;
- a few short runs: one fragment after the other.

Runs use :func:`combine_runs` (two stacks) for sums of doubles over the keys of event sequences. They use
:func:`combine_pairs` (the structure that is cheapest by :data:`COSTS`) for ``min_by``, ``max_by``, ``first`` and
``last``. For other states :mod:`spark_jobs.finals.structures` fixes a structure by kind. :func:`combine_many` chooses
for any operation; only tests use it. The paper's own structures, which take one element after the other, are in
:mod:`optimizer.papers.reference.online_intervals`.

Exact sums of doubles are integers here, in limbs. Double-doubles, which sums over event sequences still are, are never
subtracted. Least and greatest doubles are compared as :func:`ordinals`, in Spark's order (NaN last), so one set of
kernels serves integers and doubles, and every structure gives the same bits. Quantiles and other holistic aggregates
are in :mod:`optimizer.combine.wavelet_matrix`.

References
----------
Arasu & Widom (VLDB 2004): section 3, Figures 3 (B-INT), 5 (L-INT), 6 (R-INT), section 3.1.3 (PSoup).
Tangwongsan, Hirzel, Schneider, "Low-latency sliding-window aggregation in worst-case constant time" (DEBS 2017),
section 2: two stacks. Bender & Farach-Colton, "The LCA problem revisited" (LATIN 2000): sparse tables over blocks.
Alon & Schieber, "Optimal preprocessing for answering on-line product queries" (1987): the disjoint table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.state_kinds import ADD_DOUBLE, GREATEST_PAIR, LEAST_PAIR
from optimizer.combine.elements import (
    IDEMPOTENT,
    SUBTRACTABLE,
    WIDE,
    Columns,
    Longs,
    column_values,
    element_columns,
)
from optimizer.combine.prefix_sums import PrefixSums
from optimizer.combine.runs import check_runs
from optimizer.combine.sparse_tables import combine_level_by_level, combine_sparse
from optimizer.combine.two_stacks import combine_forward, combine_one_by_one


def combine_runs(values: NDArray[Any], operation: int, group: Longs, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run, by two stacks.

    ``values`` (n, 1) int64 or float64, or (n, 2) double-doubles; ``operation``: see the constants above; ``group``,
    ``low``, ``high`` (a,) as :func:`runs` gives them: by group, both bounds ascending within one. Returns (a, width).
    O(n + a).
    """
    check_runs(low, high, len(values), group=group)
    return column_values(combine_forward(element_columns(values, operation), operation, group, low, high), values.dtype)


def combine_pairs(order: Longs, payload: Longs, greatest: bool, group: Longs, low: Longs, high: Longs) -> Longs:
    """Which fragment of each run has the least (or greatest) pair, compared by ``order``, then by ``payload``.

    The state of argmin and argmax, first and last: ``order`` (n,) is what is compared, ``payload`` (n,) what is
    wanted, both as integers (doubles as :func:`ordinals`). ``group``, ``low``, ``high`` (a,) as for
    :func:`combine_runs`, or in any order. Returns (a,) indices of fragments; of equal pairs the first.
    """
    if len(order) != len(payload):
        raise ValueError(f"{len(order)} pairs with {len(payload)} payloads")
    columns = *(np.ascontiguousarray(part, dtype=np.int64) for part in (order, payload)), np.arange(len(order))
    return _combine(columns, GREATEST_PAIR if greatest else LEAST_PAIR, group, low, high)[2]


@dataclass(frozen=True)
class Cost:
    """What a structure costs, in nanoseconds: per ``fragment`` (and ``level``) to build, per ``answer``, per fragment
    ``passed`` by runs that move forward, and per fragment ``covered`` by a run, over all runs."""

    fragment: float = 0.0
    level: float = 0.0
    answer: float = 0.0
    passed: float = 0.0
    covered: float = 0.0


COSTS: dict[str, tuple[Cost, Cost, Cost]] = {
    "prefix": (Cost(fragment=2.5, answer=6.0), Cost(), Cost()),
    "fold": (Cost(answer=5.0, covered=0.3), Cost(answer=3.5, covered=7.7), Cost(answer=16.0, covered=2.2)),
    "two-stacks": (Cost(answer=8.5, passed=2.2), Cost(answer=12.0, passed=11.0), Cost(answer=16.5, passed=4.5)),
    "sparse": (Cost(fragment=4.1, answer=14.0), Cost(), Cost(fragment=10.5, answer=55.0)),
    "disjoint": (Cost(level=0.9, answer=37.0), Cost(level=2.6, answer=54.0), Cost(level=3.0, answer=100.0)),
}
"""Measured costs of each structure for elements of one, two and three columns (``python -m tests.benchmarks.intervals
--costs``, 10**5 fragments). Only their ratios matter."""


def choose(
    operation: int,
    exact: bool,
    fragments: int,
    answers: int,
    monotone: bool,
    *,
    passed: int | None = None,
    covered: int | None = None,
) -> str:
    """The cheapest structure by :data:`COSTS`: ``prefix``, ``two-stacks``, ``sparse``, ``disjoint`` or ``fold``.

    ``exact``: the values are integers; ``monotone``: runs move forward within a group. ``passed``: fragments between
    the first and the last run of each group, in all (default: every fragment once); ``covered``: fragments of all runs
    (default: as random runs have).
    """
    passed = fragments if passed is None else passed
    covered = answers * fragments // 3 if covered is None else covered
    applies = {
        "prefix": exact and operation in SUBTRACTABLE,
        "two-stacks": monotone,
        "sparse": operation in IDEMPOTENT,
        "disjoint": True,
        "fold": True,
    }

    def nanoseconds(name: str) -> float:
        cost = COSTS[name][WIDE.get(operation, 1) - 1]
        build = fragments * (cost.fragment + cost.level * max(1, fragments.bit_length()))
        return build + answers * cost.answer + passed * cost.passed + covered * cost.covered

    return min((name for name, fits in applies.items() if fits), key=nanoseconds)


@numba.njit(cache=True)
def _survey(group, low, high):
    """Whether runs move forward within a group, what they then pass over, and how many fragments they cover."""
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
    "prefix": lambda columns, operation, group, low, high: (
        PrefixSums(columns[0][:, None], operation).combine(low, high)[:, 0],
    ),
    "sparse": lambda columns, operation, group, low, high: combine_sparse(columns, operation)(low, high),
    "disjoint": combine_level_by_level,
    "two-stacks": combine_forward,
    "fold": combine_one_by_one,
}
"""What :func:`choose` names: from the columns of elements, an operation, and group, low and high of the runs."""


def _combine(columns: Columns, operation: int, group: Longs, low: Longs, high: Longs) -> Columns:
    check_runs(low, high, len(columns[0]), group=group)
    monotone, passed, covered = _survey(group, low, high)
    # doubles among these are summed, or else ordinals
    exact = operation != ADD_DOUBLE
    name = choose(operation, exact, len(columns[0]), len(low), monotone, passed=passed, covered=covered)
    return STRUCTURES[name](columns, operation, group, low, high)


def combine_many(values: NDArray[Any], operation: int, group: Longs, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run, by the structure that :func:`choose` finds cheapest.

    ``values`` (n, width) int64 or float64 (double-doubles for ADD_DOUBLE; any width for ADD and BIT_XOR);
    ``group``, ``low``, ``high`` (a,): runs in any order, of any groups. Returns (a, width). Raises ValueError if the
    operation does not apply to the values or a run is empty or outside.
    """
    if operation in SUBTRACTABLE and values.ndim == 2 and values.shape[1] != 1:
        check_runs(low, high, len(values))
        return PrefixSums(values, operation).combine(low, high)
    return column_values(_combine(element_columns(values, operation), operation, group, low, high), values.dtype)
