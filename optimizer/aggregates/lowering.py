"""Lower combined states to the values of outputs, for arrays of cells at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.exact_sums import decimal_texts, exact_total, long_total
from optimizer.aggregates.states import MULTISETS, Array, Longs, Lowered, Multisets, States, average_type, sum_type
from optimizer.workload.values import BOOLEAN, DOUBLE, Output, Type


def lower_count(states: States, output: Output) -> Lowered:
    """``count``, never null."""
    counts = states["rows" if "rows" in states else "count"]
    return Lowered(counts, np.ones(len(counts), dtype=bool))


def lower_sum(states: States, output: Output) -> Lowered:
    """``sum``: exact of integers and decimals, with overflow; of doubles the exact sum, rounded once."""
    type = output.argument_type
    assert type is not None
    valid = states["count"] > 0
    if type == DOUBLE:
        from optimizer.aggregates.double_moments import sums_of

        return Lowered(sums_of(states, "sum").rounded(), valid)
    if type.name == "decimal":
        texts, overflow = decimal_texts(exact_total(states["sum"]), sum_type(type))
        return Lowered(texts, valid & ~overflow, overflow)
    values, overflow = long_total(states["sum"])
    return Lowered(values, valid & ~overflow, overflow)


def lower_average(states: States, output: Output) -> Lowered:
    """``avg``: of decimals exact and rounded half up, of all others the double that is nearest to the exact mean."""
    type, count = output.argument_type, states["count"]
    assert type is not None
    valid = count > 0
    if type == DOUBLE:
        from optimizer.aggregates.double_moments import sums_of

        return Lowered(sums_of(states, "sum").means(count), valid)
    total = states["sum"]
    if type.name == "decimal":
        average = average_type(type)
        shift = 10 ** (average.scale - type.scale)
        with localcontext(prec=80):
            unscaled = np.array(
                [
                    int((Decimal(int(sum_)) * shift / max(int(n), 1)).to_integral_value(ROUND_HALF_UP))
                    for sum_, n in zip(exact_total(total), count, strict=True)
                ],
                dtype=object,
            )
        texts, overflow = decimal_texts(unscaled, average)
        return Lowered(texts, valid & ~overflow, overflow)
    divisor = np.maximum(count, 1)
    values, large = long_total(total)
    averages = values / divisor
    # beyond 2**53 the conversion to double would round before the division does: divide integers there
    for index in np.flatnonzero(valid & (large | (np.abs(values) > 1 << 53))):
        averages[index] = int(exact_total(total[index : index + 1])[0]) / int(count[index])
    return Lowered(averages, valid)


def lower_as_it_is(kind: str) -> Callable[[States, Output], Lowered]:
    """Return the lowering of outputs that are a state itself, null if there is no value."""
    return lambda states, output: Lowered(states[kind], states["count"] > 0)


def lower_pair(kind: str) -> Callable[[States, Output], Lowered]:
    """Return the lowering of outputs that are the value of a pair, null if the pair has none."""
    return lambda states, output: Lowered(*states[kind])


MEDIAN = Decimal("0.5")


def share_of(count: Longs, fraction: Decimal) -> tuple[Longs, Longs, int]:
    """``count * fraction`` (a,) exactly, for counts >= 0 and a fraction in [0, 1]: its whole part (a,), and the rest
    (a,) in units of 1 / the third."""
    above, unit = fraction.as_integer_ratio()
    # apart by the unit, no product is beyond unit ** 2
    numbers = count if unit <= 10**9 else count.astype(object)
    quotient, part = numbers // unit, numbers % unit * above
    return (quotient * above + part // unit).astype(np.int64), (part % unit).astype(np.int64), unit


def nearest_rank(count: Longs, fraction: Decimal) -> Longs:
    """The rank max(1, ceil(fraction * n)) (a,) of a quantile among n values (a,), exactly."""
    integer, remainder, _ = share_of(count, fraction)
    return np.maximum(integer + (remainder > 0), 1)


def _multiset(states: States) -> Multisets:
    multiset: Multisets = next(state for kind, state in states.items() if kind in MULTISETS)
    return multiset


def stored(values: Array, valid: Array, type: Type) -> Array:
    """Values of a multiset as the results table stores them: decimals as texts."""
    if type.name != "decimal" or values.dtype == object:
        return values
    distinct, number = np.unique(np.where(valid, values, 0), return_inverse=True)
    return decimal_texts(distinct.astype(object), type)[0][number]


def unscaled(text: str, scale: int) -> int:
    """A decimal of any number of digits, as an integer of units of its scale."""
    with localcontext(prec=80):
        return int(Decimal(text).scaleb(scale))


def _as_doubles(values: Array, valid: Array, type: Type) -> NDArray[np.float64]:
    """Numbers of a multiset as the nearest doubles."""
    if type.name != "decimal":
        return values.astype(np.float64)
    distinct, number = np.unique(np.where(valid, values, "0" if values.dtype == object else 0), return_inverse=True)
    if values.dtype == object:
        return np.array([float(text) for text in distinct])[number]
    # the quotient of Python's integers is rounded once
    return np.array([int(value) / 10**type.scale for value in distinct])[number]


def lower_quantile(states: States, output: Output) -> Lowered:
    """The value at the nearest rank."""
    assert output.argument_type is not None
    multisets = _multiset(states)
    total = multisets.total()
    valid = total > 0
    values = multisets.at(nearest_rank(np.maximum(total, 1), MEDIAN if output.parameter is None else output.parameter))
    return Lowered(stored(values, valid, output.argument_type), valid)


def lower_percentile(states: States, output: Output) -> Lowered:
    """Linear interpolation at the position (n - 1) * fraction, which is exact; of a sketch, the nearest rank."""
    type, fraction = output.argument_type, MEDIAN if output.parameter is None else output.parameter
    assert type is not None
    multisets = _multiset(states)
    total = multisets.total()
    valid = total > 0
    count = np.maximum(total, 1)
    if "values" not in states:
        return Lowered(_as_doubles(multisets.at(nearest_rank(count, fraction)), valid, type), valid)
    position, remainder, unit = share_of(count - 1, fraction)
    low = _as_doubles(multisets.at(position + 1), valid, type)
    high = _as_doubles(multisets.at(position + 1 + (remainder > 0)), valid, type)
    weight = remainder / unit
    with np.errstate(invalid="ignore"):
        between = (1.0 - weight) * low + weight * high
    return Lowered(np.where((remainder == 0) | (low == high), low, between), valid)


def lower_distinct(states: States, output: Output) -> Lowered:
    """``count_distinct`` and its approximation, never null."""
    if "values" in states:
        counts = states["values"].distinct()
    else:
        counts = np.rint(states["registers"].cardinality()).astype(np.int64)
    return Lowered(counts, np.ones(len(counts), dtype=bool))


def lower_mode(states: States, output: Output) -> Lowered:
    """``mode``: the most frequent value."""
    assert output.argument_type is not None
    multisets = _multiset(states)
    valid = multisets.total() > 0
    return Lowered(stored(multisets.mode(), valid, output.argument_type), valid)


def lower_top(states: States, output: Output) -> Lowered:
    """``top_k``: the most frequent values with their counts, as JSON."""
    assert output.argument_type is not None and output.parameter is not None
    values, weights = _multiset(states).top(int(output.parameter))
    is_present = weights > 0
    chosen = values[is_present]
    distinct, number = np.unique(chosen, return_inverse=True)
    texts_of_values = json_texts(
        stored(distinct, np.ones(len(distinct), dtype=bool), output.argument_type), output.argument_type
    )
    entries = [f"[{texts_of_values[at]}, {weight}]" for at, weight in zip(number, weights[is_present], strict=True)]
    ends = np.cumsum(is_present.sum(axis=1))
    texts = np.empty(len(values), dtype=object)
    for row, (begin, end) in enumerate(zip(np.concatenate([[0], ends]), ends, strict=False)):
        texts[row] = f"[{', '.join(entries[begin:end])}]"
    return Lowered(texts, is_present[:, 0])


def json_texts(values: Array, type: Type) -> list[str]:
    """Stored values (n,) of a type as JSON: numbers, strings, true and false. Decimals, dates (ISO 8601), timestamps
    (ISO 8601, UTC, microseconds) and what is no finite number (NaN, Infinity, -Infinity) are strings."""
    if type.name in ("date", "timestamp"):
        unit, zone = ("D", "") if type.name == "date" else ("us", "Z")
        return [f'"{text}{zone}"' for text in np.datetime_as_string(values.astype(f"datetime64[{unit}]"))]
    if type == DOUBLE:
        return [json.dumps(value) if np.isfinite(value) else f'"{json.dumps(value)}"' for value in values.tolist()]
    plain = values.astype(bool) if type == BOOLEAN else values
    return [json.dumps(value, ensure_ascii=False) for value in plain.tolist()]
