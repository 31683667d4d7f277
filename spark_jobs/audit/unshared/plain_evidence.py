"""Evidence of an output over the values of one window and group, in plain Python: the answer, and what judging it
takes.

Every value is available, so ranks, counts, exact sums and moments of integers and decimals follow the definition
word by word; doubles are summed without loss (:func:`math.fsum`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from optimizer.workload.values import Output
from spark_jobs.audit.unshared import exact_moments
from spark_jobs.audit.unshared.listings import RANKS, each_fraction
from spark_jobs.audit.unshared.values import fraction_of

Evidence = dict[str, Any]
"""The answer of an output under the empty name, and what its comparison needs in addition."""

Definition = Callable[[Output, Sequence[Any], Sequence[Any]], Evidence]
"""The evidence of an output from its values and, of an aggregate of two arguments, the second ones."""


def _order(value: Any) -> tuple[int, Any]:
    """Sort key of a value: null is the least, NaN the greatest and equal to itself."""
    if value is None:
        return 0, 0
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted((0.0 if isinstance(value, float) and value == 0 else value for value in values), key=_order)


# ------------------------------------------------------------------------------------------ one value
def of_values(answer: Callable[[Sequence[Any]], Any]) -> Definition:
    """The definition of an aggregate that is a function of all values; null without any."""
    return lambda output, values, by_values: {"": answer(values) if values else None}


def least_value(values: Sequence[Any]) -> Any:
    """The least value: null is less than all others, NaN greater."""
    return min(values, key=_order)


def greatest_value(values: Sequence[Any]) -> Any:
    """The greatest value, in the order of :func:`least_value`."""
    return max(values, key=_order)


def define_counted(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The number of values."""
    return {"": len(values)}


def define_at_least_order(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The value at the least other; of several the least."""
    return {"": min(zip(others, values, strict=True), key=_both_orders)[1] if others else None}


def define_at_greatest_order(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The value at the greatest other; of several the greatest."""
    return {"": max(zip(others, values, strict=True), key=_both_orders)[1] if others else None}


def _both_orders(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    return _order(pair[0]), _order(pair[1])


# -------------------------------------------------------------------------------------- sums and moments
def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _sum(values: Sequence[float]) -> float:
    """The exact sum, rounded once; of values that are not finite as IEEE adds them."""
    if all(map(math.isfinite, values)):
        try:
            return math.fsum(values)
        except OverflowError:
            # on the way: the sum itself may be a double
            return _float(sum(map(Fraction, values), Fraction(0)))
    return math.nan if len({value for value in values if not math.isfinite(value)}) > 1 else float(sum(values))


def _mean(values: Sequence[float]) -> float:
    total = _sum(values)
    if math.isfinite(total) or not all(map(math.isfinite, values)):
        return total / len(values)
    return _float(sum(map(Fraction, values), Fraction(0)) / len(values))


def define_total(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """A sum or a mean: of exact types the exact total, of doubles rounded once."""
    count, type = len(values), output.argument_type
    assert type is not None
    if not type.is_exact:
        double = _sum(values) if values else None
        answer = _mean(values) if double is not None and output.function == "avg" else double
        return {"": answer, "count": count, "magnitude": _sum([abs(value) for value in values])}
    with localcontext(prec=100):
        total = sum(map(Decimal, values), Decimal(0)) if values else None
    if output.function == "avg":
        return {"": None, "count": count, "total": total}
    if total is not None and output.type.name == "decimal":
        digits = 10 ** (output.type.precision - output.type.scale)
        total = total if abs(total) < digits else None
    return {"": total, "count": count}


def define_distinct_total(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """A sum or a mean of the distinct values; -0.0 is 0.0."""
    distinct = dict.fromkeys("NaN" if value != value else 0.0 if value == 0.0 else value for value in values)
    numbers = [math.nan if value == "NaN" else value for value in distinct]
    return define_total(replace(output, function=output.function.removesuffix("_distinct")), numbers, ())


def _deviations(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the sum of squared deviations from it."""
    mean = _mean(values)
    if not math.isfinite(mean):
        return mean, math.nan
    return mean, _sum([_squared(value - mean) for value in values])


def _squared(value: float) -> float:
    return value * value


def _squares(values: Sequence[float]) -> float:
    return _sum([_squared(value) for value in values])


def define_spread(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """A variance or a standard deviation."""
    if exact_moments.takes_exact(output):
        return {"": exact_moments.spread(output, values), "count": len(values), "exact": True}
    doubles = [float(value) for value in values]
    freedom = 0 if output.function.endswith("pop") else 1
    answer = None
    if len(doubles) > freedom:
        answer = _deviations(doubles)[1] / (len(doubles) - freedom)
        answer = math.sqrt(answer) if output.function.startswith("std") else answer
        if not math.isfinite(answer) and all(map(math.isfinite, doubles)):
            answer = _huge_spread(output, doubles, freedom)
    return {"": answer, "count": len(doubles), "squares": _squares(doubles)}


def _huge_spread(output: Output, values: Sequence[float], freedom: int) -> float | None:
    """A variance or deviation of values whose squares are no doubles; None: neither is it."""
    mean = sum(map(Fraction, values), Fraction(0)) / len(values)
    variance = sum(((Fraction(value) - mean) ** 2 for value in values), Fraction(0)) / (len(values) - freedom)
    rounded = math.isqrt(math.floor(variance)) if output.function.startswith("std") else math.floor(variance)
    return float(rounded) if rounded < 2**1024 - 2**970 else None


def define_regressed(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """A covariance, a correlation or a regression; exact of integers and decimals."""
    if exact_moments.takes_exact(output):
        return {"": exact_moments.pairs(output, values, others), "count": len(values), "exact": True}
    x, y = [float(value) for value in values], [float(value) for value in others]
    n = len(x)
    if not n:
        return {"": None, "count": 0}
    (mean_x, spread_x), (mean_y, spread_y) = _deviations(x), _deviations(y)
    products = _sum([(x_value - mean_x) * (other - mean_y) for x_value, other in zip(x, y, strict=True)])
    evidence = {"count": n, "squares x": _squares(x), "squares y": _squares(y), "mean x": mean_x, "mean y": mean_y}
    evidence |= {"variance x": spread_x / n, "variance y": spread_y / n}
    return {"": _of_pairs(output.function, n, (mean_x, mean_y), (spread_x, spread_y), products)} | evidence


def _of_pairs(
    function: str, n: int, means: tuple[float, float], spreads: tuple[float, float], products: float
) -> float | None:
    """Covariance, correlation, or the regression of the first values on the second ones."""
    if function.startswith("covar"):
        freedom = 0 if function == "covar_pop" else 1
        return products / (n - freedom) if n > freedom else None
    root = math.sqrt(spreads[0]) * math.sqrt(spreads[1])
    if function == "corr":
        return products / root if root else None
    if not spreads[1]:
        return None
    if function == "regr_r2":
        return _squared(products / root) if root else 1.0
    slope = products / spreads[1]
    return slope if function == "regr_slope" else means[0] - slope * means[1]


def define_shape(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """A skewness or an excess kurtosis."""
    if exact_moments.takes_exact(output):
        return {"": exact_moments.shape(output, values), "count": len(values), "exact": True}
    doubles, answer = [float(value) for value in values], None
    n = len(doubles)
    if not n:
        return {"": None, "count": 0, "squares": None, "variance": None}
    mean, spread = _deviations(doubles)
    power = 3 if output.function == "skewness" else 4
    if math.isfinite(spread) and spread > 0:
        root = math.sqrt(spread / n)
        answer = _sum([((value - mean) / root) ** power for value in doubles]) / n - (3 if power == 4 else 0)
    return {"": answer, "count": n, "squares": _squares(doubles), "variance": spread / n}


def define_geometric(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """A geometric mean, and the mean magnitude of the logarithms."""
    logs = [_logarithm(float(value)) for value in values]
    if not logs:
        return {"": None, "count": 0, "logs": None}
    mean = _sum(logs) / len(logs)
    return {"": math.exp(mean), "count": len(logs), "logs": _sum([abs(log) for log in logs]) / len(logs)}


def _logarithm(value: float) -> float:
    """-inf of zeros, NaN of negative numbers."""
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


# --------------------------------------------------------------------------------------- values in order
def _nearest(count: int, fraction: Decimal) -> int:
    """The nearest rank of a fraction of ``count`` values: 1 at least."""
    return max(1, math.ceil(count * Fraction(fraction)))


def _at(values: Sequence[Any], rank: int) -> Any:
    return values[rank - 1] if 1 <= rank <= len(values) else None


def define_quantile(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The value at the nearest rank, and with an error the ``least`` and ``greatest`` that are accepted for it."""
    ordered = _ordered(values)
    rank = _nearest(len(ordered), fraction_of(output))
    evidence = {"": _at(ordered, rank), "count": len(ordered)}
    if output.error is None:
        return evidence
    off = math.floor(len(ordered) * Fraction(output.error))
    least, greatest = max(rank - off, 1), min(rank + off, len(ordered))
    return evidence | {"least": _at(ordered, least), "greatest": _at(ordered, greatest)}


def define_percentile(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """Interpolated between ``low`` and ``high``, ``rest`` parts of the way."""
    if output.error is not None:
        return define_quantile(output, values, others)
    ordered = _ordered(values)
    if not ordered:
        return {"": None, "count": 0, "low": None, "high": None, "rest": 0}
    position = (len(ordered) - 1) * Fraction(fraction_of(output))
    index = math.floor(position)
    low, high = ordered[index], ordered[math.ceil(position)]
    remainder = (position - index) * fraction_of(output).as_integer_ratio()[1]
    answer = float(low)
    if low != high and remainder:
        way = float(position - index)
        answer = (1 - way) * float(low) + way * float(high)
    return {"": answer, "count": len(ordered), "low": low, "high": high, "rest": remainder}


def define_several(single: Definition) -> Definition:
    """Definition for several fractions, from that of one fraction; the evidence is numbered."""

    def numbered(output: Output, values: Sequence[Any], by_values: Sequence[Any]) -> Evidence:
        each = enumerate(each_fraction(output))
        evidence = {
            f"{number} {name or 'answer'}": value
            for number, percentile in each
            for name, value in single(percentile, values, by_values).items()
        }
        return {"": evidence["0 answer"]} | evidence

    return numbered


# ------------------------------------------------------------------------------------ values by frequency
def define_distinct(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The number of distinct values."""
    return {"": len({_order(value) for value in values})}


def define_frequent(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The most frequent values, counted (``top``). With an error, enough of them that any other is as rare as the
    error.
    """
    ordered = _ordered(values)
    counts, first = Counter(map(_order, ordered)), dict[Any, Any]()
    for value in ordered:
        first.setdefault(_order(value), value)
    most = 1 if output.parameter is None else int(output.parameter)
    if output.error is not None:
        most += math.ceil(1 / output.error)
    # of equals the least: they are found in order, and sorting keeps that
    top = [{"missing": -counts[key], "value": first[key]} for key in sorted(first, key=lambda key: -counts[key])[:most]]
    if output.function == "mode":
        return {"": top[0]["value"] if top else None, "count": len(ordered), "top": top or None}
    return {"": top or None, "count": len(ordered), "top": top or None}


def define_least_distinct(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The least distinct values."""
    assert output.parameter is not None
    return {"": list({_order(value): value for value in _ordered(values)}.values())[: int(output.parameter)]}


def define_histogram(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The finite ``least`` and ``greatest`` value, how many are ``finite``, and how many are surely below each edge of
    the bins and how many perhaps (``edges``): edges are rounded here."""
    assert output.parameter is not None
    bins, known = int(output.parameter), sorted(double for double in map(float, values) if math.isfinite(double))
    evidence: Evidence = {"": len(known), "count": len(values), "least": None, "greatest": None, "edges": []}
    if not known:
        return evidence
    least, greatest = known[0], known[-1]
    slack = (abs(least) + abs(greatest)) * 1e-15
    edges = (least * (1 - at / bins) + greatest * (at / bins) for at in range(1, bins))
    counted = [
        {
            "below": sum(double < edge - slack for double in known),
            "most": sum(double < edge + slack for double in known),
        }
        for edge in edges
    ]
    return evidence | {"least": least, "greatest": greatest, "edges": counted}


# --------------------------------------------------------------------------------------------- sketches
def define_sketched(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """Number of distinct values that DataSketches does not ignore."""
    return {"": len({_order(value) for value in values if value != ""}), "count": len(values)}


def define_ranked(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """Number of values that are not NaN, and the values at some ranks, each with the numbers of values below it and
    up to it.
    """
    ordered = _ordered(value for value in values if not (isinstance(value, float) and math.isnan(value)))
    at = [_at(ordered, _nearest(len(ordered), fraction)) for fraction in RANKS] if ordered else []
    ranks = [
        {
            "value": value,
            "below": sum(other < value for other in ordered),
            "upto": sum(other <= value for other in ordered),
        }
        for value in at
    ]
    return {"": len(ordered), "count": len(ordered), "ranks": ranks}
