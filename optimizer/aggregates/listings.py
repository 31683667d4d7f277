"""Answers of several values: in JSON, as results have no lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from optimizer.aggregates.lowering import json_texts, stored, unscaled
from optimizer.aggregates.states import Array, Longs, Lowered, Multisets, States
from optimizer.workload.values import DOUBLE, Output, Type


def lower_several(lower: Callable[[States, Output], Lowered], result: Callable[[Type], Type]) -> Any:
    """Return the lowering of outputs with several fractions: a list in the order in which the fractions are written."""

    def listed(states: States, output: Output) -> Lowered:
        assert output.argument_type is not None
        type = result(output.argument_type)
        columns, valid = [], np.ones(0, dtype=bool)
        for fraction in output.parameters:
            lowered = lower(states, replace(output, parameter=fraction, parameters=()))
            valid = lowered.valid
            columns.append(json_texts(lowered.values[valid], type))
        texts = np.full(len(valid), None, dtype=object)
        texts[valid] = [f"[{', '.join(row)}]" for row in zip(*columns, strict=True)]
        return Lowered(texts, valid)

    return listed


def lower_least(states: States, output: Output) -> Lowered:
    """``collect_set``: the least distinct values, ascending."""
    assert output.argument_type is not None and output.parameter is not None
    type, most = output.argument_type, int(output.parameter)
    multisets: Multisets = states["values"]
    least = [values[:most] for values, _ in multisets.each()]
    return _joined(
        [json_texts(stored(values, values == values, type), type) if len(values) else None for values in least]
    )


def lower_histogram(states: States, output: Output) -> Lowered:
    """``histogram_numeric``: the middle and the number of values of each bin that has any."""
    assert output.argument_type is not None and output.parameter is not None
    type, bins = output.argument_type, int(output.parameter)
    multisets: Multisets = states["values"]
    return _joined(
        [_binned(values, weights, bins, type) if len(values) else None for values, weights in multisets.each()]
    )


def _joined(listed: list[list[str] | None]) -> Lowered:
    texts = np.array(
        [*(None if texts_of_answer is None else f"[{', '.join(texts_of_answer)}]" for texts_of_answer in listed), None],
        dtype=object,
    )[:-1]
    return Lowered(texts, np.array([texts_of_answer is not None for texts_of_answer in listed], dtype=bool))


def _binned(values: Array, weights: Longs, bins: int, type: Type) -> list[str]:
    """The bins of distinct values (m,), ascending, as JSON. Which values a bin has is decided exactly."""
    if type == DOUBLE:
        known = np.isfinite(values)
        values, weights = values[known], weights[known]
        if not len(values):
            return []
    elif values.dtype == object:  # decimals of more digits than integers have
        values = np.array([unscaled(text, type.scale) for text in values], dtype=object)
    least, most = (Fraction(value) for value in (values[[0, -1]]).tolist())
    width = (most - least) / bins
    edges = [_first_from(least + width * at, type) for at in range(1, bins)] if width else []
    number = np.searchsorted(np.array(edges, dtype=values.dtype), values, side="right")
    # in integers of any size, like the counts of the whole
    used, first = np.unique(number, return_index=True)
    counts = np.add.reduceat(weights, first)
    unit = 10**type.scale
    middles = [(least + width * (2 * int(at) + 1) / 2) / unit for at in used]
    return [f"[{json.dumps(float(middle))}, {count}]" for middle, count in zip(middles, counts, strict=True)]


def _first_from(edge: Fraction, type: Type) -> Any:
    """The least value of a type that is not below an edge."""
    if type != DOUBLE:
        return -(-edge.numerator // edge.denominator)
    nearest = float(edge)
    return nearest if Fraction(nearest) >= edge else np.nextafter(nearest, np.inf)
