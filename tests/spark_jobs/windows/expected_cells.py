"""Cells as plain values, and those of some events by the definition of each state."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa

from optimizer.aggregates.exact_doubles import INFINITE, NAN, NEGATIVE, ExactSums
from optimizer.aggregates.exact_sums import exact_total
from optimizer.aggregates.ordinals import hash64, hash64_of_texts, ordinals_of_doubles
from optimizer.aggregates.sketches import precision_of, registers_of
from optimizer.aggregates.states import MULTISETS, PAIRS, State
from optimizer.workload.instants import DAY
from optimizer.workload.values import (
    Column,
    Type,
)
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.states import Fixed, Multiset, Pairs, Texts
from tests.spark_jobs.windows.partial_cases import (
    PREDICATES,
    SECOND,
    TYPES,
)

Content = dict[tuple[int, int, int, tuple[str | None, ...]], dict[State, Any]]


def content(found: Sequence[Cells]) -> Content:
    """Cells as plain values; asserts that every one occurs once."""
    out: Content = {}
    for cells in found:
        for row in range(len(cells)):
            cell = (int(cells.starts[row]), int(cells.ends[row]), int(cells.shards[row]), cells.keys[cells.group[row]])
            assert cell not in out
            out[cell] = {state: told(state, column, row) for state, column in cells.states.items()}
    return out


def told(state: State, column: Any, row: int) -> Any:
    """What a state holds of one cell: sums exactly, as fractions; multisets as dictionaries."""
    if isinstance(column, Fixed):
        values = column.values[row]
        if state.width > 1:
            return exact_total(values[None, :])[0]
        return values[0].item()
    if isinstance(column, ExactSums):
        return column.fraction(row), int(column.special[row])
    if isinstance(column, Texts):
        known = 0 <= column.ranks[row] < len(column.texts)
        return column.texts[int(column.ranks[row])].as_py() if known else None
    if isinstance(column, Pairs):
        if column.present[row] < 0:
            return "nothing"
        return side(column.order[row], column.order_texts), column.present[row] and side(
            column.value[row], column.value_texts
        )
    assert isinstance(column, Multiset)
    part = slice(column.offsets[row], column.offsets[row + 1])
    values = [side(value, column.texts) for value in column.values[part]]
    assert len(set(values)) == len(values)
    return dict(zip(values, column.weights[part].tolist(), strict=True))


def side(value: Any, texts: pa.StringArray | None) -> Any:
    return int(value) if texts is None else texts[int(value)].as_py()


def same(one: Content, other: Content) -> bool:
    """Equal, with NaN equal to itself."""
    if one.keys() != other.keys():
        return False
    for cell, states in one.items():
        if states.keys() != other[cell].keys():
            return False
        for state, value in states.items():
            other_value = other[cell][state]
            if value != other_value and not (value != value and other_value != other_value):
                return False
    return True


def text(value: Any) -> str | None:
    """A group value, or one that states keep as a text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    return str(value).lower()


def ordinal(value: Any, type: Type, exact: bool = False) -> Any:
    """A value as states hold it: a number, or a text where texts are kept."""
    if type.name == "double":
        return int(ordinals_of_doubles(np.array([value], dtype=np.float64), exact)[0])
    if type.name == "timestamp":
        return value
    if type.name == "date":
        return (value - date(1970, 1, 1)).days
    return text(value) if type.name in ("string", "decimal") else int(value)


def comparable(value: Any, type: Type) -> Any:
    return value if type.name in ("string", "decimal") else ordinal(value, type)


def expected_state(state: State, rows: list[dict[str, Any]]) -> Any:
    if state.kind == "rows":
        return len(rows)
    assert isinstance(state.argument, Column)
    type, name = TYPES[state.argument.name], state.argument.name
    values = [row[name] for row in rows if row[name] is not None]
    if state.kind == "count":
        return len(values)
    if state.kind in PAIRS:
        return expected_pair(state, rows, type)
    if state.operation in ("add", "add_exact"):
        return expected_sum(state, values, type)
    if state.kind in ("min", "max"):
        best = min if state.kind == "min" else max
        if not values:
            empty = {"double": (math.nan, -math.inf), "string": (None, None), "decimal": (None, None)}
            return empty.get(type.name, (2**63 - 1, -(2**63)))[state.kind == "max"]
        if type.name == "double":
            chosen = best(ordinal(value, type, exact=True) for value in values)
            return float(np.array([chosen ^ (chosen >> 63 & (2**63 - 1))]).view(np.float64)[0])
        return ordinal(best(values), type)
    if state.kind == "registers":
        texts = type.name in ("string", "decimal") and type.precision == 0 or type.precision > 18
        hashes = (
            hash64_of_texts([text(value) or "" for value in values])
            if texts
            else hash64(np.array([unscaled(value, type) for value in values], dtype=np.int64))
        )
        registers, ranks = registers_of(hashes, precision_of(state.error or Decimal(1)))
        return {int(at): max(ranks[registers == at].tolist()) for at in registers}
    if state.kind in MULTISETS:
        return dict(Counter(kept(value, type) for value in values))
    bits = {"bit_and": lambda a, b: a & b, "bit_or": lambda a, b: a | b, "bit_xor": lambda a, b: a ^ b}[state.kind]
    out = -1 if state.kind == "bit_and" else 0
    for value in values:
        out = bits(out, value)
    return out


def unscaled(value: Any, type: Type) -> int:
    return int(value.scaleb(type.scale)) if type.name == "decimal" else ordinal(value, type)


def kept(value: Any, type: Type) -> Any:
    """A value in a multiset: decimals that fit into 64 bits are numbers there."""
    small = type.name == "decimal" and type.precision <= 18
    return unscaled(value, type) if small else ordinal(value, type)


def expected_pair(state: State, rows: list[dict[str, Any]], type: Type) -> Any:
    assert isinstance(state.argument, Column) and isinstance(state.by, Column)
    name, by, by_type = state.argument.name, state.by.name, TYPES[state.by.name]
    known = [row for row in rows if row[by] is not None and (row[name] is not None or state.kind.endswith("_by"))]
    if not known:
        return "nothing"

    def value(row: dict[str, Any]) -> tuple[Any, ...]:
        if row[name] is None:
            return (0,)
        return 1, row[name] if type.name in ("string", "decimal") else ordinal(row[name], type, exact=True)

    best = (min if state.operation == "least_by" else max)(
        known, key=lambda row: (comparable(row[by], by_type), value(row))
    )
    return ordinal(best[by], by_type), 0 if best[name] is None else ordinal(best[name], type, exact=True)


def expected_sum(state: State, values: list[Any], type: Type) -> Any:
    power = {"sum": 1, "squares": 2, "2": 2, "cubes": 3, "fourths": 4}[state.kind.split("_")[-1]]
    if type.is_exact:
        return sum(unscaled(value, type) ** power for value in values)
    finite = [Fraction(value) ** power for value in values if math.isfinite(value)]
    marks = [
        NAN if value != value else NEGATIVE if value < 0 and power % 2 else INFINITE
        for value in values
        if not math.isfinite(value)
    ]
    return sum(finite, Fraction(0)), reduce(or_, marks, 0)


def expected(span: FillRequest, rows: Sequence[dict[str, Any]]) -> Content:
    """Each cell by its definition."""
    synopsis, cells = span.synopsis, {}
    for row in rows:
        if row["at"] is None:
            continue
        at = row["at"] * SECOND
        midnight = at - at % DAY
        start = max([midnight, *(at - (at - shift) % slide for slide, shift in synopsis.edges)])
        end = min([midnight + DAY, *(at + slide - (at - shift) % slide for slide, shift in synopsis.edges)])
        shard = sum(1 << bit for bit, predicate in enumerate(synopsis.predicates) if PREDICATES[predicate](row))
        key = tuple(text(row[name]) for name, _ in synopsis.group_by)
        if shard and span.begin <= start < span.end:
            cells.setdefault((start, end, shard, key), []).append(row | {"ts": at})
    return {
        cell: {state: expected_state(state, cell_rows) for state in synopsis.states}
        for cell, cell_rows in cells.items()
    }
