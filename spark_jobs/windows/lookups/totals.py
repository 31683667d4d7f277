"""Running totals over all cells: counts and exact sums by two look-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.states import LIMB, ROWS
from optimizer.workload.values import Output
from spark_jobs.windows.lookups.kernels import Longs
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.states import Fixed


class RunningTotal(NamedTuple):
    """Running totals (n + 1, 2) over all cells: of what must not be 0 for a value, and of what is summed. ``mean``:
    the value is their quotient. No run of cells exceeds 63 bits (with ``mean``: 53)."""

    totals: Longs
    mean: bool


# ---------------------------------------------------------------------------------------- running totals
def total_column(cells: Cells, kind: str, output: Output) -> Any:
    """The column of the state of a kind that an output needs."""
    state = next(state for state in AGGREGATES[output.function].states(output) if state.kind == kind)
    return cells.states[state]


def _accumulated(counts: Longs, values: Longs, mean: bool) -> RunningTotal | None:
    if float(np.abs(values.astype(np.float64)).sum()) >= (2.0**53 if mean else 2.0**62):
        return None
    totals = np.zeros((len(values) + 1, 2), dtype=np.int64)
    np.cumsum(counts, out=totals[1:, 0])
    np.cumsum(values, out=totals[1:, 1])
    return RunningTotal(totals, mean)


def _count_total(cells: Cells, output: Output) -> RunningTotal | None:
    kind = "rows" if output.argument is None else "count"
    rows = cells.states[ROWS]
    assert isinstance(rows, Fixed)
    return _accumulated(rows.values[:, 0], total_column(cells, kind, output).values[:, 0], mean=False)


def _sum_total(cells: Cells, output: Output) -> RunningTotal | None:
    if output.argument_type is None or output.argument_type.name != "long":
        return None
    limbs = total_column(cells, "sum", output).values
    if not (np.abs(limbs[:, 1]) < 1 << 30).all():
        return None
    values = (limbs[:, 1] << LIMB) + limbs[:, 0]
    return _accumulated(total_column(cells, "count", output).values[:, 0], values, mean=output.function == "avg")


TOTALS: dict[str, Callable[[Cells, Output], RunningTotal | None]] = {
    "count": _count_total,
    "sum": _sum_total,
    "avg": _sum_total,
}
