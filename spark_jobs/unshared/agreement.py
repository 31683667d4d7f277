"""Whether shared answers agree with recomputed ones, to the exactness that is promised."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from optimizer.aggregates.states import Lowered, carrier_of
from optimizer.workload.values import ACQ, BOOLEAN, DATE, DOUBLE, LONG, TIMESTAMP, Condition, Literal, Output, Type
from spark_jobs.results.derived import derived
from spark_jobs.unshared import listings, moments
from spark_jobs.unshared.values import (
    COMPARISONS,
    COUNTED,
    EPOCH,
    LISTED,
    MEANS,
    PAIRED,
    PERCENTILES,
    QUANTILES,
    ROUNDED,
    SHAPES,
    SPREADS,
    compared_outputs,
    fraction_of,
    recomputed_parts,
)

EPSILON = 2.0**-52

DEVIATIONS = 6
"""So many standard errors a HyperLogLog may be off; its error is a standard deviation, and no bound."""


Evidence = Mapping[str, Any]
"""What a recomputation says of one output in one row, by what it is; the answer itself under the empty name."""


Grain = tuple[Any, tuple[str | None, ...]]
"""Of what a row is the answer: the end of its window, and its group."""


def _no_slack(output: Output, evidence: Evidence) -> float:
    return 0.0


@dataclass(frozen=True)
class _Audit:
    """How a stored value of one kind of output (as the results table stores it) is compared, and how far a recomputed
    double may be off (infinity: nothing is known of it)."""

    agrees: Callable[[Output, Any, Evidence], bool]
    slack: Callable[[Output, Evidence], float] = _no_slack


def _audit_of(output: Output) -> _Audit:
    """How an output is compared."""
    if output.argument is None or output.function not in _AUDITS:
        return _EXACT
    return _AUDITS[output.function]


def agrees(output: Output, value: Any, row: Mapping[str, Any]) -> bool:
    """Whether a stored output value equals the recomputed row's: exact types to the last digit, and so averages of them
    and moments of which the evidence is exact; doubles within what Spark's own plain summation may lose (n*eps*sum|x|;
    for variances as Welford's recurrence, Chan, Golub and LeVeque 1983), sketches within the error that the query
    permits: ranks and counts by it times the number of values, distinct counts by :data:`DEVIATIONS` times it.

    ``value``: as the results table stores it (dates as days, timestamps as microseconds, decimals as text).
    """
    if output.parts:
        return _agrees_derived(output, value, row)
    evidence = _evidence(output, row)
    if evidence.get("exact"):
        return _same(value, evidence[""])
    return _audit_of(output).agrees(output, value, evidence)


def _evidence(output: Output, row: Mapping[str, Any]) -> Evidence:
    named = {"": row[output.name]}
    named |= {name[len(output.name) + 1 :]: told for name, told in row.items() if name.startswith(f"{output.name} ")}
    if isinstance(named.get("count"), Decimal):  # of event sequences
        named["count"] = int(named["count"])
    return named


def qualifies(query: ACQ, row: Mapping[str, Any]) -> bool | None:
    """Whether a recomputed row satisfies HAVING, so that its answer has to exist.

    None where either is right: a threshold lies within what :func:`agrees` permits of a double or a sketch, or what is
    compared overflowed.
    """
    found = [
        _satisfies(condition, output, row)
        for condition, output in zip(query.having, compared_outputs(query), strict=False)
    ]
    return False if False in found else None if None in found else True


def _satisfies(condition: Condition, output: Output, row: Mapping[str, Any]) -> bool | None:
    if output.parts:
        return _derived_satisfies(condition, output, row)
    if recomputed_value(output, row)[1] == math.inf:
        # nothing is known of it: it may have overflowed here, or there
        return None
    theirs, threshold = _ordinal(row[output.name]), _threshold(condition.value, output.type)
    count, total = row.get(f"{output.name} count"), row.get(f"{output.name} total")
    if total is not None and count:
        theirs = _mean(output, total, count)
    if theirs is None:
        return None if count and output.function in MEANS else False
    if output.function in LISTED or (output.function == "mode" and output.error is not None):
        # the values of lists are compared one by one; as the text that they are told in there is nothing to recompute
        return None
    if output.type == LONG and not -(2**63) <= theirs < 2**63:
        return None
    is_rounded = output.type == DOUBLE and output.function in ROUNDED and not row.get(f"{output.name} exact")
    inexact = output.error is not None or is_rounded
    if inexact and agrees(output, threshold, row):
        return None
    if isinstance(theirs, float) or isinstance(threshold, float):
        theirs, threshold = float(theirs), float(threshold)
    return bool(COMPARISONS[condition.comparison](_order(theirs), _order(threshold)))


def _threshold(literal: Literal, type: Type) -> Any:
    """A literal as the results table stores values of a type."""
    value = literal.value
    if literal.type == DATE:
        value = (date.fromisoformat(value) - EPOCH.date()).days
        return value * 86_400 * 10**6 if type == TIMESTAMP else value
    if type == DOUBLE:
        return float(value)
    return int(value) if literal.type == BOOLEAN else value


def _order(value: Any) -> Any:
    """What to compare by: NaN is the greatest, and equal to itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def among_first(query: ACQ, rows: Mapping[Grain, Mapping[str, Any]], verdicts: dict[Grain, bool | None]) -> None:
    """Tell the verdicts which answers are not among the first of their windows; in windows where that depends on how
    something is rounded nobody knows. ``rows``: all groups of each window."""
    if query.top is None:
        return
    orders = compared_outputs(query)[len(query.having) :]
    windows: dict[Any, list[Grain]] = {}
    for key in rows:
        if verdicts[key] is not False:
            windows.setdefault(key[0], []).append(key)
    for keys in windows.values():
        found = {key: [_order_value(output, rows[key]) for output in orders] for key in keys}
        if any(verdicts[key] is None or None in found[key] for key in keys):
            verdicts |= dict.fromkeys(keys)
            continue
        values = {key: [one for one in told if one is not None] for key, told in found.items()}
        names = query.select or tuple(name for name, _ in query.group_by)
        keys.sort(key=lambda key: [(rows[key][name] is not None, rows[key][name]) for name in names])
        for at, order in reversed(list(enumerate(query.top.orders))):
            keys.sort(key=lambda key: values[key][at][1:], reverse=order.descending)
            keys.sort(key=lambda key: values[key][at][0] != order.nulls_first)
        verdicts |= dict.fromkeys(keys[query.top.k :], False)


def _order_value(output: Output, row: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Whether what a row is put in order by is null, and what it is; None: it may be another value as well."""
    if output.parts:
        found = derived_values(output, row)
        if found is None or len(found) > 1:
            return None
        value = _unscaled(output, found[0])
    else:
        value, off = recomputed_value(output, row)
        unknown = value is None and row.get(f"{output.name} count") and output.function in MEANS
        beyond = output.type == LONG and value is not None and not -(2**63) <= value < 2**63
        if off or output.error is not None or unknown or beyond or output.function in LISTED:
            return None
    return (True,) if value is None else (False, _order(value))


# -------------------------------------------------------------------------------- values made of aggregates
def derived_values(output: Output, row: Mapping[str, Any]) -> list[Any] | None:
    """What a derived output may be, as the results table stores it: of its parts as they were recomputed, then of each
    of them moved as far as it may be off. None: a part overflowed, is a sketch, or is a list (of which the values are
    recomputed, not the text), and nothing is known."""
    exact: list[Any] = []
    moved: list[tuple[int, float]] = []
    for at, part in enumerate(recomputed_parts(output)):
        if part.function in LISTED:
            return None
        value, off = recomputed_value(part, row)
        if value is None and row.get(f"{part.name} count") and part.function in MEANS:
            return None
        if part.error is not None or (part.type == LONG and value is not None and not -(2**63) <= value < 2**63):
            return None
        if off == math.inf:
            return None
        exact.append(value)
        moved += [(at, value + by) for by in (-off, off)] if off else []
    cases = [exact, *([*exact[:at], value, *exact[at + 1 :]] for at, value in moved)]
    columns = []
    for at, part in enumerate(output.parts):
        values = [None if case[at] is None else case[at] for case in cases]
        columns.append(_as_lowered(part, values))
    found = derived(output, columns)
    if found.overflow is not None:
        return None
    pairs = zip(found.values.tolist(), found.valid.tolist(), strict=True)
    return [value if valid else None for value, valid in pairs]


def recomputed_value(output: Output, row: Mapping[str, Any]) -> tuple[Any, float]:
    """A plain output of a recomputed row, as the results table stores it, and how far a double may be off (infinity:
    nothing is known of it)."""
    value, evidence = _ordinal(row[output.name]), _evidence(output, row)
    if evidence.get("total") is not None and evidence["count"]:
        value = _mean(output, evidence["total"], evidence["count"])
    if output.type == DOUBLE and value is not None:
        value = float(value)  # an approximate percentile of decimals is one of them in Spark
    if output.type != DOUBLE or output.function not in ROUNDED or evidence.get("exact"):
        return value, 0.0
    slack = _audit_of(output).slack(output, evidence)
    if not _finite(value):
        return value, slack if slack == math.inf else 0.0
    return value, max(slack, abs(value) * 4 * EPSILON, 5e-324)


def _as_lowered(output: Output, values: list[Any]) -> Lowered:
    """Values as the results table stores them, in arrays."""
    carrier = carrier_of(output.type)
    valid = np.array([value is not None for value in values])
    if carrier == "texts":
        texts = [format(value, "f") if isinstance(value, Decimal) else value for value in values]
        return Lowered(np.array([*texts, None], dtype=object)[:-1], valid)
    kind = np.float64 if carrier == "doubles" else np.int64
    return Lowered(np.array([kind(0) if value is None else kind(value) for value in values]), valid)


def _agrees_derived(output: Output, value: Any, row: Mapping[str, Any]) -> bool:
    found = derived_values(output, row)
    if found is None or any(_same(value, _unscaled(output, other)) for other in found):
        return True
    if not _finite(value, *found) or output.type != DOUBLE:
        # which one it is depends on how something is rounded
        return len({str(other) for other in found}) > 1 and output.type != DOUBLE
    first, *others = found
    slack = 2 * sum(abs(other - first) for other in others) + 8 * EPSILON * abs(first) + 5e-324
    return bool(abs(value - first) <= slack)


def _unscaled(output: Output, value: Any) -> Any:
    return Decimal(value) if value is not None and output.type.name == "decimal" else value


def _derived_satisfies(condition: Condition, output: Output, row: Mapping[str, Any]) -> bool | None:
    found, threshold = derived_values(output, row), _threshold(condition.value, output.type)
    verdicts = set()
    for one in found or ():
        value = _unscaled(output, one)
        if value is None:
            verdicts.add(False)
            continue
        if isinstance(value, float) or isinstance(threshold, float):
            value, threshold = float(value), float(threshold)
        verdicts.add(bool(COMPARISONS[condition.comparison](_order(value), _order(threshold))))
    return verdicts.pop() if len(verdicts) == 1 else None


# --------------------------------------------------------------------------- how each output is audited
def _agrees_exactly(output: Output, value: Any, evidence: Evidence) -> bool:
    return _same(value, _ordinal(evidence[""]))


def _agrees_sum(output: Output, value: Any, evidence: Evidence) -> bool:
    theirs, count = evidence[""], evidence["count"]
    if "total" in evidence:
        return _agrees_average(output, value, evidence["total"], count)
    if output.type.is_exact:
        fits = theirs is not None and (output.type != LONG or -(2**63) <= theirs < 2**63)
        return _same(value, theirs if fits else None)
    if not _finite(value, theirs):
        return _same(value, theirs)
    return bool(abs(value - theirs) <= _sum_slack(output, evidence))


def _sum_slack(output: Output, evidence: Evidence) -> float:
    if "magnitude" not in evidence or not evidence["count"] or not _finite(evidence[""]):
        return 0.0
    bound = (evidence["count"] + 4) * EPSILON * evidence["magnitude"] + 5e-324
    return float(bound / evidence["count"] if output.function == "avg" else bound)


def _agrees_average(output: Output, value: Any, total: Decimal | None, count: int) -> bool:
    if not count:
        return value is None
    if total is None:
        # a total beyond 38 digits is null in Spark: nothing to compare with
        return True
    mean = _mean(output, total, count)
    if value is None:
        return output.type.name == "decimal" and abs(mean) >= 10 ** (output.type.precision - output.type.scale)
    if output.type.name == "decimal":
        return bool(Decimal(value) == mean)
    return bool(value == mean)


def _mean(output: Output, total: Decimal, count: int) -> Any:
    """A mean of exact values: a decimal rounded half up, or the nearest double."""
    if output.type.name != "decimal":
        return float(Fraction(total) / count)
    with localcontext(prec=100):
        return (total / count).quantize(Decimal(1).scaleb(-output.type.scale), ROUND_HALF_UP)


def _agrees_spread(output: Output, value: Any, evidence: Evidence) -> bool:
    theirs = evidence[""]
    if not _finite(value, theirs):
        return _same(value, theirs)
    if output.function.startswith("std"):
        value, theirs = value * value, theirs * theirs
    return bool(abs(value - theirs) <= _variance_slack(output, theirs, evidence))


def _variance_slack(output: Output, variance: float, evidence: Evidence) -> float:
    count, squares = evidence["count"], evidence["squares"]
    freedom = 0 if output.function.endswith("pop") else 1
    root = math.sqrt(squares) * math.sqrt(variance * (count - freedom))
    bound = (count + 8) * (8 * EPSILON * root + 8 * EPSILON**2 * squares) + count * 2.3e-308
    return float(bound / (count - freedom) + 8 * EPSILON * variance)


def _spread_slack(output: Output, evidence: Evidence) -> float:
    theirs = evidence[""]
    if not _finite(theirs):
        return 0.0
    if not output.function.startswith("std"):
        return _variance_slack(output, theirs, evidence)
    slack = _variance_slack(output, theirs * theirs, evidence)
    return min(math.sqrt(slack), slack / theirs if theirs else math.inf)


def _agrees_quantile(output: Output, value: Any, evidence: Evidence) -> bool:
    if value is None or "least" not in evidence:
        return _same(value, _ordinal(evidence[""]))
    bounds = [_ordinal(evidence[name]) for name in ("least", "greatest")]
    if None in bounds:
        return False
    if output.type == DOUBLE:
        least, ours, greatest = (_order(float(item)) for item in (bounds[0], value, bounds[1]))
    else:
        least, greatest = bounds
        ours = Decimal(value) if output.type.name == "decimal" else value
    return bool(least <= ours <= greatest)


def _agrees_percentile(output: Output, value: Any, evidence: Evidence) -> bool:
    if "low" not in evidence or not _finite(value, evidence[""]):
        return _agrees_quantile(output, value, evidence)
    low, high = Fraction(evidence["low"]), Fraction(evidence["high"])
    way = Fraction(evidence["rest"]) / fraction_of(output).as_integer_ratio()[1]
    error = abs(Fraction(value) - (low + way * (high - low)))
    return error <= 4 * Fraction(EPSILON) * max(abs(low), abs(high)) + Fraction(5e-324)


def _percentile_slack(output: Output, evidence: Evidence) -> float:
    bounds = [evidence.get(name) for name in ("low", "high")]
    return (
        0.0 if not _finite(*bounds) else 4 * EPSILON * max(abs(float(bound)) for bound in bounds if bound is not None)
    )


def _agrees_distinct(output: Output, value: Any, evidence: Evidence) -> bool:
    if value is None or output.error is None:
        return _same(value, evidence[""])
    return bool(abs(value - evidence[""]) <= DEVIATIONS * output.error * evidence[""] + 1)


def _agrees_mode(output: Output, value: Any, evidence: Evidence) -> bool:
    if value is None or evidence[""] is None or output.error is None:
        return _same(value, _ordinal(evidence[""]))
    counts = [-entry["missing"] for entry in evidence["top"]]
    theirs = next((-e["missing"] for e in evidence["top"] if _same(value, _ordinal(e["value"]))), None)
    if theirs is None:
        # rarer than all that are listed, unless all are
        theirs = counts[-1] if len(counts) == 1 + math.ceil(1 / output.error) else 0
    return bool(theirs > 0 and theirs >= counts[0] - output.error * evidence["count"])


def _agrees_top(output: Output, value: Any, evidence: Evidence) -> bool:
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
    found = dict(map(tuple, ours))
    counts = [count for _, count in ours]
    near = all(known.get(one, 0) - slack <= count <= known.get(one, unlisted) for one, count in ours)
    least = counts[-1] if len(ours) == most else 0
    complete = all(count - slack <= least for one, count in listed if one not in found)
    descending = counts == sorted(counts, reverse=True) and len(found) == len(ours) <= most
    return near and complete and descending


_EXACT = _Audit(_agrees_exactly)

_AUDITS: dict[str, _Audit] = {
    **dict.fromkeys(MEANS, _Audit(_agrees_sum, _sum_slack)),
    **dict.fromkeys(SPREADS, _Audit(_agrees_spread, _spread_slack)),
    **dict.fromkeys(PERCENTILES, _Audit(_agrees_percentile, _percentile_slack)),
    "percentile_disc": _Audit(_agrees_quantile),
    "count_distinct": _Audit(_agrees_distinct),
    "mode": _Audit(_agrees_mode),
    "top_k": _Audit(_agrees_top),
    **dict.fromkeys(PAIRED, _Audit(moments.agrees_pair, moments.pair_slack)),
    **dict.fromkeys(SHAPES, _Audit(moments.agrees_shape, moments.shape_slack)),
    "geometric_mean": _Audit(moments.agrees_geometric, moments.geometric_slack),
    "percentiles": _Audit(listings.agrees_several(_agrees_percentile)),
    "percentiles_disc": _Audit(listings.agrees_several(_agrees_quantile)),
    "histogram_numeric": _Audit(listings.agrees_histogram),
    "collect_set": _Audit(listings.agrees_least),
    **dict.fromkeys(COUNTED, _Audit(listings.agrees_counted)),
    **dict.fromkeys(QUANTILES, _Audit(listings.agrees_quantiles)),
}
"""How outputs are audited that are not simply equal."""


# -------------------------------------------------------------------------------------------- comparing
def grain(query: ACQ, row: Mapping[str, Any]) -> Grain:
    """(window end, group values as the texts of the results table's ``key``) of a recomputed row."""
    names = query.select or tuple(name for name, _ in query.group_by)
    return row["window_end"], tuple(_text(row[name]) for name in names)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(_ordinal(value)) if isinstance(value, datetime) else str(value)


def _ordinal(value: Any) -> Any:
    """Booleans, dates and timestamps as the integers that results store; a naive timestamp is local time, as
    Spark collects it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def _finite(*values: Any) -> bool:
    return all(value is not None and math.isfinite(value) for value in values)


def _same(value: Any, theirs: Any) -> bool:
    if value is None or theirs is None:
        return value is theirs
    if isinstance(theirs, float) and math.isnan(theirs):
        return math.isnan(value)
    if isinstance(theirs, Decimal):
        return Decimal(value) == theirs
    return bool(value == theirs)
