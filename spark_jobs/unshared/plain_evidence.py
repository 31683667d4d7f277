"""What plain Python says of an output over the values of one window and group: the answer, and what judging it takes.

Every value is there, so ranks, counts, exact sums and moments of integers and decimals are what the definition says,
word by word; doubles are summed without loss (:func:`math.fsum`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor
from typing import Any

from optimizer.workload.values import Output
from spark_jobs.unshared import exact_moments
from spark_jobs.unshared.listings import RANKS, each_fraction
from spark_jobs.unshared.values import COUNTED, PAIRED, QUANTILES, SHAPES, SPREADS, fraction_of

Evidence = dict[str, Any]

WITH_NULLS = ("min_by", "max_by")
"""What takes the second value of a pair also where it is null."""


def _order(value: Any) -> tuple[int, Any]:
    """What to sort by: null is the least, NaN the greatest and equal to itself."""
    if value is None:
        return 0, 0
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted((0.0 if isinstance(value, float) and value == 0 else value for value in values), key=_order)


def evidence(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Evidence:
    """The answer of an output under the empty name, and what :func:`agrees <spark_jobs.unshared.agreement.agrees>`
    needs beside it.

    ``values``: its argument where that is not null; of an aggregate of two arguments where both are not null (of
    :data:`WITH_NULLS` where the second is not), ``others`` being the second ones; of ``COUNT(*)`` anything, once a row.
    """
    if output.argument is None:
        return {"": len(values)}
    if output.by is not None and output.function not in _BY_FUNCTION:
        return {"": _paired(output, values, others)}
    if output.by is not None and exact_moments.takes_exact(output) and output.function != "regr_count":
        return {"": exact_moments.pairs(output, values, others), "count": len(values), "exact": True}
    if output.by is not None:
        return _pairs(output, [float(value) for value in values], [float(value) for value in others])
    return _BY_FUNCTION.get(output.function, _exact)(output, values)


# ------------------------------------------------------------------------------------------ one value
_ONE: dict[str, Callable[[Sequence[Any]], Any]] = {
    **dict.fromkeys(("min", "any_value"), lambda values: min(values, key=_order)),
    "max": lambda values: max(values, key=_order),
    **dict.fromkeys(("bool_and", "every"), all),
    **dict.fromkeys(("bool_or", "some", "any"), any),
    "bit_and": lambda values: reduce(and_, values),
    "bit_or": lambda values: reduce(or_, values),
    "bit_xor": lambda values: reduce(xor, values),
}


def _exact(output: Output, values: Sequence[Any]) -> Evidence:
    if output.function == "count":
        return {"": len(values)}
    return {"": _ONE[output.function](values) if values else None}


def _paired(output: Output, values: Sequence[Any], others: Sequence[Any]) -> Any:
    """The value beside the least or greatest other; of several the least or greatest."""
    if not others:
        return None
    best = min if output.function in ("first", "min_by") else max
    return best(zip(others, values, strict=True), key=lambda pair: (_order(pair[0]), _order(pair[1])))[1]


# -------------------------------------------------------------------------------------- sums and moments
def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _sum(values: Sequence[float]) -> float:
    """A sum without loss; of values that are not finite as IEEE adds them."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan if len({value for value in values if not math.isfinite(value)}) > 1 else float(sum(values))


def _total(output: Output, values: Sequence[Any]) -> Evidence:
    count, type = len(values), output.argument_type
    assert type is not None
    if not type.is_exact:
        double = _sum(values) if values else None
        answer = double / count if double is not None and output.function == "avg" else double
        return {"": answer, "count": count, "magnitude": _sum([abs(value) for value in values])}
    with localcontext(prec=100):
        total = sum(map(Decimal, values), Decimal(0)) if values else None
    if output.function == "avg":
        return {"": None, "count": count, "total": total}
    if total is not None and output.type.name == "decimal":
        digits = 10 ** (output.type.precision - output.type.scale)
        total = total if abs(total) < digits else None
    return {"": total, "count": count}


def _deviations(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the sum of squared deviations from it."""
    mean = _sum(values) / len(values)
    if not math.isfinite(mean):
        return mean, math.nan
    return mean, _sum([_squared(value - mean) for value in values])


def _squared(value: float) -> float:
    return value * value


def _squares(values: Sequence[float]) -> float:
    return _sum([_squared(value) for value in values])


def _spread(output: Output, values: Sequence[Any]) -> Evidence:
    if exact_moments.takes_exact(output):
        return {"": exact_moments.spread(output, values), "count": len(values), "exact": True}
    doubles = [float(value) for value in values]
    freedom = 0 if output.function.endswith("pop") else 1
    answer = None
    if len(doubles) > freedom:
        answer = _deviations(doubles)[1] / (len(doubles) - freedom)
        answer = math.sqrt(answer) if output.function.startswith("std") else answer
    return {"": answer, "count": len(doubles), "squares": _squares(doubles)}


def _pairs(output: Output, x: Sequence[float], y: Sequence[float]) -> Evidence:
    n = len(x)
    if output.function == "regr_count":
        return {"": n}
    if not n:
        return {"": None, "count": 0}
    (mean_x, spread_x), (mean_y, spread_y) = _deviations(x), _deviations(y)
    products = _sum([(one - mean_x) * (other - mean_y) for one, other in zip(x, y, strict=True)])
    found = {"count": n, "squares x": _squares(x), "squares y": _squares(y), "mean x": mean_x, "mean y": mean_y}
    found |= {"variance x": spread_x / n, "variance y": spread_y / n}
    return {"": _of_pairs(output.function, n, (mean_x, mean_y), (spread_x, spread_y), products)} | found


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


def _shape(output: Output, values: Sequence[Any]) -> Evidence:
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


def _geometric(output: Output, values: Sequence[Any]) -> Evidence:
    logs = [_logarithm(float(value)) for value in values]
    if not logs:
        return {"": None, "count": 0, "logs": None}
    mean = _sum(logs) / len(logs)
    return {"": math.exp(mean), "count": len(logs), "logs": _sum([abs(one) for one in logs]) / len(logs)}


def _logarithm(value: float) -> float:
    """-inf of zeros, NaN of negative numbers."""
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


# --------------------------------------------------------------------------------------- values in order
def _nearest(count: int, fraction: Decimal) -> int:
    """The nearest rank of a fraction of so many values: 1 at least."""
    return max(1, math.ceil(count * Fraction(fraction)))


def _at(values: Sequence[Any], rank: int) -> Any:
    return values[rank - 1] if 1 <= rank <= len(values) else None


def _quantile(output: Output, values: Sequence[Any]) -> Evidence:
    """The value at the nearest rank, and with an error the ``least`` and ``greatest`` that may stand for it."""
    ordered = _ordered(values)
    rank = _nearest(len(ordered), fraction_of(output))
    found = {"": _at(ordered, rank), "count": len(ordered)}
    if output.error is None:
        return found
    off = math.floor(len(ordered) * Fraction(output.error))
    least, greatest = max(rank - off, 1), min(rank + off, len(ordered))
    return found | {"least": _at(ordered, least), "greatest": _at(ordered, greatest)}


def _percentile(output: Output, values: Sequence[Any]) -> Evidence:
    """Interpolated between ``low`` and ``high``, ``rest`` parts of the way."""
    if output.error is not None:
        return _quantile(output, values)
    ordered = _ordered(values)
    if not ordered:
        return {"": None, "count": 0, "low": None, "high": None, "rest": 0}
    position = (len(ordered) - 1) * Fraction(fraction_of(output))
    whole = math.floor(position)
    low, high = ordered[whole], ordered[math.ceil(position)]
    rest = (position - whole) * fraction_of(output).as_integer_ratio()[1]
    answer = float(low)
    if low != high and rest:
        way = float(position - whole)
        answer = (1 - way) * float(low) + way * float(high)
    return {"": answer, "count": len(ordered), "low": low, "high": high, "rest": rest}


def _several(single: Callable[[Output, Sequence[Any]], Evidence]) -> Callable[[Output, Sequence[Any]], Evidence]:
    """Of percentiles of several fractions, from that of one: numbered."""

    def numbered(output: Output, values: Sequence[Any]) -> Evidence:
        each = enumerate(each_fraction(output))
        named = {
            f"{number} {name or 'answer'}": value for number, one in each for name, value in single(one, values).items()
        }
        return {"": named["0 answer"]} | named

    return numbered


# ------------------------------------------------------------------------------------ values by frequency
def _distinct(output: Output, values: Sequence[Any]) -> Evidence:
    return {"": len({_order(value) for value in values})}


def _frequent(output: Output, values: Sequence[Any]) -> Evidence:
    """The most frequent values, counted (``top``), and with an error so many that any other is as rare as it."""
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


def _least(output: Output, values: Sequence[Any]) -> Evidence:
    assert output.parameter is not None
    return {"": list({_order(value): value for value in _ordered(values)}.values())[: int(output.parameter)]}


def _histogram(output: Output, values: Sequence[Any]) -> Evidence:
    """The finite ``least`` and ``greatest`` value, how many are ``finite``, and how many are surely below each edge of
    the bins and how many perhaps (``edges``): edges are rounded here."""
    assert output.parameter is not None
    bins, known = int(output.parameter), sorted(one for one in map(float, values) if math.isfinite(one))
    found: Evidence = {"": len(known), "count": len(values), "least": None, "greatest": None, "edges": []}
    if not known:
        return found
    least, greatest = known[0], known[-1]
    slack = (abs(least) + abs(greatest)) * 1e-15
    edges = (least * (1 - at / bins) + greatest * (at / bins) for at in range(1, bins))
    counted = [
        {"below": sum(one < edge - slack for one in known), "most": sum(one < edge + slack for one in known)}
        for edge in edges
    ]
    return found | {"least": least, "greatest": greatest, "edges": counted}


# --------------------------------------------------------------------------------------------- sketches
def _sketched(output: Output, values: Sequence[Any]) -> Evidence:
    """How many distinct values there are that DataSketches does not ignore."""
    return {"": len({_order(value) for value in values if value != ""}), "count": len(values)}


def _ranked(output: Output, values: Sequence[Any]) -> Evidence:
    """How many values there are that are no NaN, and those at some ranks, each with how many are below and up to it."""
    ordered = _ordered(value for value in values if not (isinstance(value, float) and math.isnan(value)))
    at = [_at(ordered, _nearest(len(ordered), fraction)) for fraction in RANKS] if ordered else []
    ranks = [
        {"value": value, "below": sum(one < value for one in ordered), "upto": sum(one <= value for one in ordered)}
        for value in at
    ]
    return {"": len(ordered), "count": len(ordered), "ranks": ranks}


_BY_FUNCTION: dict[str, Any] = {
    **dict.fromkeys(("sum", "avg"), _total),
    **dict.fromkeys(SPREADS, _spread),
    **dict.fromkeys(("percentile", "median"), _percentile),
    "percentile_disc": _quantile,
    "count_distinct": _distinct,
    **dict.fromkeys(("mode", "top_k"), _frequent),
    **dict.fromkeys((*PAIRED, "regr_count"), _pairs),
    **dict.fromkeys(SHAPES, _shape),
    "geometric_mean": _geometric,
    "percentiles": _several(_percentile),
    "percentiles_disc": _several(_quantile),
    "histogram_numeric": _histogram,
    "collect_set": _least,
    **dict.fromkeys(COUNTED, _sketched),
    **dict.fromkeys(QUANTILES, _ranked),
}
"""Of the outputs that are not simply one of their values."""
