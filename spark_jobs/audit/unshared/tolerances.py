"""Compare stored values with recomputed ones, for each way to recompute: comparisons and their slacks.

Exact types agree to the last digit. Doubles agree within what Spark's own plain summation may lose (for variances
as Welford's recurrence, Chan, Golub and LeVeque 1983), sketches within the error that the query permits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

from optimizer.workload.values import DOUBLE, LONG, Output
from spark_jobs.audit.unshared import listings
from spark_jobs.audit.unshared.values import EPOCH, fraction_of

EPSILON = 2.0**-52

DEVIATIONS = 6
"""Standard errors that a HyperLogLog may be off; its error is a standard deviation, and no bound."""

Evidence = Mapping[str, Any]
"""Recomputed facts of one output in one row, by name; the answer itself under the empty name."""


def agrees_exactly(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether a stored value equals the recomputed one, or is null where that exceeds 64 bits."""
    return equals_stored(value, _fitting(output, as_stored(evidence[""])))


def agrees_sum(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether a sum or a mean agrees: of exact types to the last digit, or null if it overflowed."""
    recomputed, count = evidence[""], evidence["count"]
    if "total" in evidence:
        return _agrees_average(output, value, evidence["total"], count)
    if output.type.is_exact:
        return equals_stored(value, _fitting(output, recomputed))
    if not all_finite(value, recomputed):
        return equals_stored(value, recomputed)
    return bool(abs(value - recomputed) <= sum_slack(output, evidence))


def _fitting(output: Output, value: Any) -> Any:
    """A recomputed value, or None if the type of the output cannot hold it."""
    is_beyond = output.type == LONG and value is not None and not -(2**63) <= value < 2**63
    return None if is_beyond else value


def sum_slack(output: Output, evidence: Evidence) -> float:
    """Largest error of a sum or a mean of doubles: n * eps * sum|x|."""
    if "magnitude" not in evidence or not evidence["count"] or not all_finite(evidence[""]):
        return 0.0
    bound = (evidence["count"] + 4) * EPSILON * evidence["magnitude"]
    # the least double is added last: a part of it is nothing
    return float((bound / evidence["count"] if output.function.startswith("avg") else bound) + 5e-324)


def _agrees_average(output: Output, value: Any, total: Decimal | None, count: int) -> bool:
    if not count:
        return value is None
    if total is None:
        # a total beyond 38 digits is null in Spark: nothing to compare with
        return True
    mean = mean_of(output, total, count)
    if value is None:
        return output.type.name == "decimal" and abs(mean) >= 10 ** (output.type.precision - output.type.scale)
    if output.type.name == "decimal":
        return bool(Decimal(value) == mean)
    return bool(value == mean)


def mean_of(output: Output, total: Decimal, count: int) -> Any:
    """A mean of exact values: a decimal rounded half up, or the nearest double."""
    if output.type.name != "decimal":
        return float(Fraction(total) / count)
    with localcontext(prec=100):
        return (total / count).quantize(Decimal(1).scaleb(-output.type.scale), ROUND_HALF_UP)


def agrees_spread(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether a variance or a standard deviation is as near as rounding allows."""
    expected = evidence[""]
    is_root = output.function.startswith("std")
    if evidence["squares"] is not None and not math.isfinite(evidence["squares"]):
        # an engine whose squares overflowed cannot judge; an exact judge has the root
        if not all_finite(expected):
            return value is None or is_root or not all_finite(value)
        return all_finite(value) and abs(value - expected) <= (evidence["count"] + 8) * 8 * EPSILON * abs(expected)
    if not all_finite(value, expected):
        return equals_stored(value, expected)
    if is_root:
        value, expected = value * value, expected * expected
    return bool(abs(value - expected) <= _variance_slack(output, expected, evidence))


def _variance_slack(output: Output, variance: float, evidence: Evidence) -> float:
    count, squares = evidence["count"], evidence["squares"]
    freedom = 0 if output.function.endswith("pop") else 1
    root = math.sqrt(squares) * math.sqrt(variance * (count - freedom))
    bound = (count + 8) * (8 * EPSILON * root + 8 * EPSILON**2 * squares) + count * 2.3e-308
    return float(bound / (count - freedom) + 8 * EPSILON * variance)


def spread_slack(output: Output, evidence: Evidence) -> float:
    """Largest error of a variance or a standard deviation."""
    expected = evidence[""]
    if not all_finite(expected):
        return 0.0
    if not output.function.startswith("std"):
        return _variance_slack(output, expected, evidence)
    slack = _variance_slack(output, expected * expected, evidence)
    return min(math.sqrt(slack), slack / expected if expected else math.inf)


def agrees_quantile(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether a value is at its rank, or within the error that the query permits."""
    if value is None or "least" not in evidence:
        return equals_stored(value, as_stored(evidence[""]))
    bounds = [as_stored(evidence[name]) for name in ("least", "greatest")]
    if None in bounds:
        return False
    if output.type == DOUBLE:
        least, ours, greatest = (ordering_key(float(item)) for item in (bounds[0], value, bounds[1]))
    else:
        least, greatest = bounds
        ours = Decimal(value) if output.type.name == "decimal" else value
    return bool(least <= ours <= greatest)


def agrees_percentile(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether an interpolated percentile is as near as rounding allows."""
    if "low" not in evidence or not all_finite(value, evidence[""]):
        return agrees_quantile(output, value, evidence)
    low, high = Fraction(evidence["low"]), Fraction(evidence["high"])
    way = Fraction(evidence["rest"]) / fraction_of(output).as_integer_ratio()[1]
    error = abs(Fraction(value) - (low + way * (high - low)))
    return error <= 4 * Fraction(EPSILON) * max(abs(low), abs(high)) + Fraction(5e-324)


def percentile_slack(output: Output, evidence: Evidence) -> float:
    """Largest error of an interpolated percentile."""
    bounds = [evidence.get(name) for name in ("low", "high")]
    return (
        0.0
        if not all_finite(*bounds)
        else 4 * EPSILON * max(abs(float(bound)) for bound in bounds if bound is not None)
    )


def agrees_distinct(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether a distinct count is exact, or within :data:`DEVIATIONS` standard errors of its sketch."""
    if value is None or output.error is None:
        return equals_stored(value, evidence[""])
    return bool(abs(value - evidence[""]) <= DEVIATIONS * output.error * evidence[""] + 1)


def agrees_mode(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether a value is the most frequent one, or frequent enough for the error that the query permits."""
    if value is None or evidence[""] is None or output.error is None:
        return equals_stored(value, as_stored(evidence[""]))
    counts = [-entry["missing"] for entry in evidence["top"]]
    count = next((-e["missing"] for e in evidence["top"] if equals_stored(value, as_stored(e["value"]))), None)
    if count is None:
        # rarer than all that are listed, unless all are
        count = counts[-1] if len(counts) == 1 + math.ceil(1 / output.error) else 0
    return bool(count > 0 and count >= counts[0] - output.error * evidence["count"])


def agrees_top(output: Output, value: Any, evidence: Evidence) -> bool:
    """Return whether the most frequent values and their counts are right, within the error that the query permits."""
    assert output.parameter is not None
    if value is None or evidence["top"] is None:
        return value is None and evidence["top"] is None
    most, listed = int(output.parameter), [[listings.jsonable(e["value"]), -e["missing"]] for e in evidence["top"]]
    ours = json.loads(value)
    if output.error is None:
        return bool(ours == listed)
    slack = output.error * evidence["count"]
    # rarer than all that are listed, unless all are
    unlisted = listed[-1][1] if len(listed) == most + math.ceil(1 / output.error) else 0
    known = dict(map(tuple, listed))
    stored_counts = dict(map(tuple, ours))
    counts = [count for _, count in ours]
    near = all(known.get(frequent, 0) - slack <= count <= known.get(frequent, unlisted) for frequent, count in ours)
    least = counts[-1] if len(ours) == most else 0
    complete = all(count - slack <= least for frequent, count in listed if frequent not in stored_counts)
    descending = counts == sorted(counts, reverse=True) and len(stored_counts) == len(ours) <= most
    return near and complete and descending


# -------------------------------------------------------------------------------------------- comparing
def ordering_key(value: Any) -> Any:
    """Key for comparing a value: NaN is the greatest, and equal to itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def as_stored(value: Any) -> Any:
    """Booleans, dates and timestamps as the integers that results store; a naive timestamp is local time, as
    Spark collects it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def all_finite(*values: Any) -> bool:
    """Return whether all values are finite numbers."""
    return all(value is not None and math.isfinite(value) for value in values)


def equals_stored(value: Any, theirs: Any) -> bool:
    """Return whether two values are equal, NaN and null each to itself."""
    if value is None or theirs is None:
        return value is theirs
    if isinstance(theirs, float) and math.isnan(theirs):
        return math.isnan(value)
    if isinstance(theirs, Decimal):
        return Decimal(value) == theirs
    return bool(value == theirs)
