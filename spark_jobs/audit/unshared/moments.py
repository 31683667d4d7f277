"""Moments and regressions, and how far both sides' rounding may take them apart.

Spark's are Welford's recurrences and their generalisations (Pébay 2008) in doubles: ours are of exact sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optimizer.workload.values import Output

EPSILON = 2.0**-52

OPEN = 0.01
"""Variances that rounding leaves open by more than this part of them are not compared with."""


def agrees_pair(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a covariance, a correlation or a regression is as near as rounding allows."""
    expected = evidence[""]
    if evidence["count"] == 0:
        return value is None
    if not all(map(math.isfinite, (*_squares(evidence), *_spreads(evidence)))):
        return value is None or not math.isfinite(value) or expected is None or not math.isfinite(expected)
    slack = pair_slack(output, evidence)
    return slack == math.inf or _near(value, expected, slack)


def pair_slack(output: Output, evidence: Mapping[str, Any]) -> float:
    """Largest error of a covariance, a correlation or a regression; infinity: rounding leaves it open."""
    n, squares, spreads = evidence["count"], _squares(evidence), _spreads(evidence)
    if n == 0:
        return 0.0
    if not all(map(math.isfinite, (*squares, *spreads))):
        return math.inf
    norms, roots = [math.sqrt(square) for square in squares], [math.sqrt(spread) for spread in spreads]
    lost = (n + 8) * 8 * EPSILON
    products = lost * (norms[0] * roots[1] + norms[1] * roots[0] + EPSILON * norms[0] * norms[1]) + n * 2.3e-308
    if output.function.startswith("covar"):
        freedom = 0 if output.function == "covar_pop" else 1
        return products / (n - freedom) if n > freedom else 0.0
    open_ = [_share_lost(lost, norm, root, n) for norm, root in zip(norms, roots, strict=True)]
    if (open_[1] > OPEN or (output.function in ("corr", "regr_r2") and open_[0] > OPEN)) and n > 1:
        return math.inf
    if output.function in ("corr", "regr_r2"):
        return 2 * (products / max(roots[0] * roots[1], 5e-324) + open_[0] + open_[1] + 8 * EPSILON)
    slope = abs(products / max(spreads[1], 5e-324)) + 2 * (roots[0] / max(roots[1], 5e-324)) * (open_[1] + 8 * EPSILON)
    if output.function == "regr_slope":
        return slope
    means = abs(evidence["mean x"]) + abs(evidence["mean y"]) * roots[0] / max(roots[1], 5e-324)
    return float(slope * abs(evidence["mean y"]) + 2 * lost * (means + norms[0] / math.sqrt(n)))


def _squares(evidence: Mapping[str, Any]) -> list[float]:
    return [0.0 if evidence["count"] == 0 else evidence[f"squares {name}"] for name in "xy"]


def _spreads(evidence: Mapping[str, Any]) -> list[float]:
    """The sums of squared deviations."""
    return [0.0 if evidence["count"] == 0 else evidence[f"variance {name}"] * evidence["count"] for name in "xy"]


def _share_lost(lost: float, norm: float, root: float, n: int) -> float:
    """The part of a sum of squared deviations that rounding leaves open."""
    return (lost * (norm * root + EPSILON * norm * norm) + n * 2.3e-308) / max(root * root, 5e-324)


def agrees_shape(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a skewness or a kurtosis is as near as rounding allows."""
    n = evidence["count"]
    if n == 0:
        return value is None
    if not (math.isfinite(evidence["squares"]) and math.isfinite(evidence["variance"])):
        # squares that overflowed judge nothing
        return value is None or not math.isfinite(value) or not math.isnan(evidence["squares"])
    slack = shape_slack(output, evidence)
    if n == 1:
        return value is None
    return slack == math.inf or _near(value, evidence[""], slack)


def shape_slack(output: Output, evidence: Mapping[str, Any]) -> float:
    """Largest error of a skewness or a kurtosis; infinity: rounding leaves it open."""
    n = evidence["count"]
    if n == 0:
        return 0.0
    if not (math.isfinite(evidence["squares"]) and math.isfinite(evidence["variance"])):
        return math.inf
    mean_square, variance = evidence["squares"] / n, evidence["variance"]
    if n == 1 or variance == 0 or variance < 1e-120 or mean_square > 1e140:
        return math.inf
    ratio = math.sqrt(mean_square / variance)
    if ratio > 1e6 / n:
        return math.inf
    power = 3 if output.function == "skewness" else 4
    lost = 64 * (n + 16) * EPSILON * (1 + ratio) + (n + 16) ** 2 * 2.0**-96 * ratio**power
    return float(lost * (4 + n ** (power / 2 - 1)))


def agrees_geometric(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a geometric mean is as near as rounding of the logarithms allows."""
    slack = geometric_slack(output, evidence)
    return _near(value, evidence[""], 0.0 if slack == math.inf else slack)


def geometric_slack(output: Output, evidence: Mapping[str, Any]) -> float:
    """Largest error of a geometric mean; infinity: no bound is known."""
    if evidence[""] is None:
        return 0.0
    if not math.isfinite(evidence["logs"]):
        return math.inf
    # decimals are taken unscaled: their logarithms are greater by up to 88
    return float(8 * (evidence["count"] + 16) * EPSILON * (100 + evidence["logs"]) * abs(evidence[""]))


def _near(value: Any, theirs: Any, bound: float) -> bool:
    if value is None or theirs is None:
        return value is theirs
    if math.isnan(value) or math.isnan(theirs):
        return math.isnan(value) and math.isnan(theirs)
    return value == theirs or abs(value - theirs) <= bound + 5e-324
