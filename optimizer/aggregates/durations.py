"""Durations between events in seconds, and values in the order of events, from multisets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any

import numpy as np

from optimizer.aggregates.exact_sums import decimal_texts
from optimizer.aggregates.lowering import json_texts, unscaled
from optimizer.aggregates.states import Array, Longs, Lowered, Multisets, States, average_type, sum_type
from optimizer.workload.ordered import DISTINCT, time_at, value_at
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, TIMESTAMP, Output, Type

SECOND = 10**6
"""Microseconds."""


def _nullable(answers: Iterable[Any], dtype: Any) -> Lowered:
    """The answers, null where they are None."""
    listed = list(answers)
    valid = np.array([answer is not None for answer in listed], dtype=bool)
    values = np.array([*(0 if answer is None else answer for answer in listed), None], dtype=object)[:-1]
    return Lowered(values.astype(dtype), valid)


# ------------------------------------------------------------------------------------------ durations
def lower_time_while(states: States, output: Output) -> Lowered:
    """``time_while``: the seconds from each event whose condition holds to the next one. The values are those of
    :func:`optimizer.workload.ordered.state_in_time`; of events at one time the condition of one suffices. No more than
    ``parameter`` microseconds count after an event."""
    multisets: Multisets = states["values"]
    most = np.iinfo(np.int64).max if output.parameter is None else int(output.parameter)
    return _nullable((_time_while(values, most) if len(values) else None for values, _ in multisets.each()), np.float64)


def _time_while(values: Longs, most: int) -> float:
    moments, holds = values >> 1, (values & 1).astype(bool)
    # the second of two values of one moment is the one that holds
    passed = np.minimum(np.diff(moments)[holds[:-1]], most)
    return int(passed.sum(dtype=np.int64)) / SECOND if len(values) > 1 else 0.0


def lower_longest_gap(states: States, output: Output) -> Lowered:
    """``longest_gap``: the most seconds between two events that follow each other; null without two."""
    multisets: Multisets = states["values"]
    return _nullable((_longest_gap(*each) for each in multisets.each()), np.float64)


def _longest_gap(values: Longs, weights: Longs) -> float | None:
    if len(values) < 2:
        return 0.0 if len(values) and weights[0] > 1 else None
    return int(np.diff(values).max()) / SECOND


def lower_mean_gap(states: States, output: Output) -> Lowered:
    """``mean_gap``: the mean seconds between two events that follow each other; null without two."""
    counts = states["count"]
    valid = counts > 1
    spans = np.where(valid, states["max"] - states["min"], 0)
    pairs = zip(spans.tolist(), np.where(valid, counts - 1, 1).tolist(), strict=True)
    # the quotient of Python's integers is rounded once
    return Lowered(np.array([span / (count * SECOND) for span, count in pairs], dtype=np.float64), valid)


def lower_rate(states: States, output: Output) -> Lowered:
    """``rate``: by how much a counter rises in a second, from the first event to the last; where it falls it began
    again at 0. Null without two times. Of one time the values ascend."""
    return _by_time_passed(states, output, _increase)


def _increase(steps: list[tuple[int, int]]) -> int:
    # a value that is there again does not rise
    return SECOND * sum(later - value if later >= value else later for (_, value), (_, later) in pairwise(steps))


def lower_time_weighted(states: States, output: Output) -> Lowered:
    """``time_weighted_avg``: the mean of a number from the first event to the last, each value as long as until the
    next event. Null without two times. Of one time the values ascend, so the greatest holds on."""
    return _by_time_passed(states, output, _area)


def _area(steps: list[tuple[int, int]]) -> int:
    return sum(value * (later - moment) for (moment, value), (later, _) in pairwise(steps))


def _by_time_passed(states: States, output: Output, total_of: Callable[[list[tuple[int, int]]], int]) -> Lowered:
    """Totals of events, times and unscaled values in order, by the microseconds from the first to the last."""
    assert output.by_type is not None
    scale = output.by_type.scale
    multisets: Multisets = states["values"]

    def quotient(texts: list[str]) -> float | None:
        steps = sorted((time_at(text), unscaled(value_at(text), scale)) for text in texts)
        passed = steps[-1][0] - steps[0][0] if steps else 0
        return float(Fraction(total_of(steps), passed * 10**scale)) if passed else None

    return _nullable((quotient(texts.tolist()) for texts, _ in multisets.each()), np.float64)


# ------------------------------------------------------------------------------------ distinct values
def lower_distinct_total(states: States, output: Output) -> Lowered:
    """``sum`` and ``avg`` of the distinct values: exact, or rounded once."""
    type = output.argument_type
    assert type is not None
    multisets: Multisets = states["values"]
    is_mean = output.function.startswith("avg")
    if type == DOUBLE:
        return _nullable((_double_total(values, is_mean) for values, _ in multisets.each()), np.float64)
    each = [(_unscaled(values, type), len(values)) for values, _ in multisets.each()]
    valid = np.array([count > 0 for _, count in each], dtype=bool)
    if not is_mean:
        return _exact([total for total, _ in each], valid, sum_type(type))
    if type.name != "decimal":
        return Lowered(np.array([total / max(count, 1) for total, count in each], dtype=np.float64), valid)
    result = average_type(type)
    shift = 10 ** (result.scale - type.scale)
    return _exact([_half_up(Fraction(total * shift, max(count, 1))) for total, count in each], valid, result)


def _exact(totals: list[int], valid: Array, type: Type) -> Lowered:
    unscaled = np.array([*totals, None], dtype=object)[:-1]
    if type.name == "decimal":
        texts, overflow = decimal_texts(unscaled, type)
        return Lowered(texts, valid & ~overflow, overflow)
    overflow = np.array([not -(2**63) <= total < 2**63 for total in totals], dtype=bool)
    return Lowered(np.where(overflow, 0, unscaled).astype(np.int64), valid & ~overflow, overflow)


def _unscaled(values: Array, type: Type) -> int:
    if values.dtype == object:  # decimals of more digits than integers have
        return sum(unscaled(text, type.scale) for text in values)
    return sum(values.tolist())


def _half_up(value: Fraction) -> int:
    rounded = int(abs(value) + Fraction(1, 2))
    return rounded if value >= 0 else -rounded


def _double_total(values: Array, is_mean: bool) -> float | None:
    if not len(values):
        return None
    strange = set(values[~np.isfinite(values)].tolist())
    if strange:
        return strange.pop() if len(strange) == 1 else float("nan")
    total = sum(map(Fraction, values.tolist()), Fraction(0)) / (len(values) if is_mean else 1)
    try:
        return float(total)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


# -------------------------------------------------------------------------------- values in their order
def lower_last(states: States, output: Output) -> Lowered:
    """``last_k``: the last values in the order, the last one at the end, in JSON."""
    return _lowered_list(states, output, _last)


def lower_last_distinct(states: States, output: Output) -> Lowered:
    """``last_distinct``: the last different values, each where it came last, the last one at the end, in JSON."""
    return _lowered_list(states, output, _last_distinct)


def _lowered_list(states: States, output: Output, values_of: Callable[[Array, Longs, int], list[str]]) -> Lowered:
    assert output.parameter is not None and output.by_type is not None
    most, type = int(output.parameter), output.by_type
    multisets: Multisets = states["values"]
    lists = (json_texts(_parsed(values_of(*each, most), type), type) for each in multisets.each())
    return _nullable((f"[{', '.join(items)}]" if items else None for items in lists), object)


def _last(texts: Array, weights: Longs, most: int) -> list[str]:
    return [value_at(text) for text in np.repeat(texts[-most:], weights[-most:])[-most:].tolist()]


def _last_distinct(texts: Array, weights: Longs, most: int) -> list[str]:
    latest_first = islice(dict.fromkeys(value_at(text) for text in texts[::-1]), most)
    return list(latest_first)[::-1]


def _parsed(texts: list[str], type: Type) -> Array:
    """Values as the results table has them, from their texts."""
    if type.name == "long":
        return np.array([int(text) for text in texts], dtype=np.int64)
    if type == BOOLEAN:
        return np.array([text == "true" for text in texts], dtype=bool)
    if type in (DATE, TIMESTAMP):
        unit = "D" if type == DATE else "us"
        return np.array(texts, dtype=f"datetime64[{unit}]").astype(np.int64)
    return np.array([*texts, None], dtype=object)[:-1]


def lower_joined(states: States, output: Output) -> Lowered:
    """``string_agg``: the texts in their order, each behind the separator except for the first. ``parameter``: the
    characters of the separator."""
    assert output.parameter is not None
    length = int(output.parameter)
    multisets: Multisets = states["values"]
    return _nullable((_joined(*each, length) for each in multisets.each()), object)


def _joined(texts: Array, weights: Longs, length: int) -> str | None:
    if not len(texts):
        return None
    times = [1] * len(texts) if texts[0].startswith(DISTINCT) else weights.tolist()
    return "".join(value_at(text) * count for text, count in zip(texts, times, strict=True))[length:]
