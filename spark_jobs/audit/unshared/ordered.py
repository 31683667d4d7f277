"""Durations between events, and values in the order of events: their definitions in plain Python, and in Spark.

An event is one text or number (:mod:`optimizer.workload.ordered`): its place in the order, then its value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

from optimizer.workload.ordered import KEY_DIGITS, TIME_DIGITS
from optimizer.workload.values import BOOLEAN, Output, Type
from spark_jobs.audit.unshared.values import EPOCH

MICROSECOND = timedelta(microseconds=1)


def value_from(text: str) -> int:
    """The position, from 0 on, of the separator and the value in a text."""
    return {"k": 1 + KEY_DIGITS + TIME_DIGITS, "d": 1}.get(text[:1], TIME_DIGITS)


# ------------------------------------------------------------------------------------------- durations
def define_time_while(output: Output, values: Sequence[int], others: Sequence[Any]) -> dict[str, Any]:
    """The seconds from each event whose condition holds to the next, as many as count; of events of one moment the
    greatest counts."""
    states = {value // 2: value % 2 for value in sorted(values)}
    passed = [later - moment for moment, later in pairwise(states) if states[moment]]
    if output.parameter is not None:
        passed = [min(each, int(output.parameter)) for each in passed]
    return {"": sum(passed) / 10**6 if states else None}


def longest_gap(values: Sequence[datetime]) -> float | None:
    """The most seconds from an event to the next; null of one event."""
    gaps = [(later - moment) // MICROSECOND for moment, later in pairwise(sorted(values))]
    return max(gaps) / 10**6 if gaps else None


def define_mean_gap(output: Output, values: Sequence[Any], others: Sequence[Any]) -> dict[str, Any]:
    """The mean seconds from an event to the next, with the span of all."""
    if len(values) < 2:
        return {"": None, "span": 0, "count": len(values)}
    span = (max(values) - min(values)) // MICROSECOND
    return {"": span / (10**6 * (len(values) - 1)), "span": span, "count": len(values)}


def agrees_mean_gap(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a mean is the quotient of the span, rounded once."""
    if evidence["count"] < 2:
        return value is None
    return bool(value == int(evidence["span"]) / (10**6 * (evidence["count"] - 1)))


def mean_gap_slack(output: Output, evidence: Mapping[str, Any]) -> float:
    """Largest error of the quotient as Spark computes it."""
    return 1e-15 * abs(evidence[""] or 0.0)


def define_rate(output: Output, values: Sequence[Any], others: Sequence[Any]) -> dict[str, Any]:
    """The increase of a counter in a second, with the increase and the microseconds."""
    steps = _steps(values)
    with localcontext(prec=80):
        rises = [now - before if now >= before else now for (_, before), (_, now) in pairwise(steps)]
        increase = sum(rises, Decimal(0))
    passed = steps[-1][0] - steps[0][0] if steps else 0
    return {"": _quotient(increase, passed, 10**6), "dividend": increase, "passed": passed}


def define_time_weighted(output: Output, values: Sequence[Any], others: Sequence[Any]) -> dict[str, Any]:
    """The mean of a number over time, with the sum of its products with microseconds, and the microseconds."""
    steps = _steps(values)
    with localcontext(prec=80):
        total = sum((value * (later - moment) for (moment, value), (later, _) in pairwise(steps)), Decimal(0))
    passed = steps[-1][0] - steps[0][0] if steps else 0
    return {"": _quotient(total, passed, 1), "dividend": total, "passed": passed}


def _steps(texts: Sequence[str]) -> list[tuple[int, Decimal]]:
    return sorted((int(text[:TIME_DIGITS]), Decimal(text[TIME_DIGITS:])) for text in texts)


def _quotient(total: Decimal, passed: int, unit: int) -> float | None:
    return float(Fraction(total) * unit / passed) if passed else None


def agrees_rate(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a rate is the quotient of increase and time, rounded once."""
    return _agrees(value, evidence, 10**6)


def agrees_time_weighted(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a mean is the quotient of the products and the time, rounded once."""
    return _agrees(value, evidence, 1)


def _agrees(value: Any, evidence: Mapping[str, Any], unit: int) -> bool:
    # of a dividend beyond 38 digits Spark knows nothing
    if evidence["passed"] and evidence["dividend"] is None:
        return value is not None
    return bool(value == _quotient(Decimal(evidence["dividend"] or 0), int(evidence["passed"] or 0), unit))


def by_time_slack(output: Output, evidence: Mapping[str, Any]) -> float:
    """Largest error of a quotient by time as Spark computes it."""
    return 1e-14 * abs(evidence[""] or 0.0)


# -------------------------------------------------------------------------------- values in their order
def define_last(output: Output, values: Sequence[Any], others: Sequence[Any]) -> dict[str, Any]:
    """The last values in the order, as JSON."""
    assert output.parameter is not None
    last = sorted(values)[-int(output.parameter) :]
    return _listed([text[value_from(text) :] for text in last], output)


def define_last_distinct(output: Output, values: Sequence[Any], others: Sequence[Any]) -> dict[str, Any]:
    """The last different values in the order, as JSON."""
    assert output.parameter is not None
    last: list[str] = []
    for text in sorted(values, reverse=True):
        value = text[value_from(text) :]
        if value not in last and len(last) < int(output.parameter):
            last.insert(0, value)
    return _listed(last, output)


def _listed(texts: Sequence[str], output: Output) -> dict[str, Any]:
    assert output.by_type is not None
    items = [_in_json(text, output.by_type) for text in texts]
    return {"": f"[{', '.join(items)}]" if items else None}


def _in_json(text: str, type: Type) -> str:
    if type.name == "long" or type == BOOLEAN:
        return text
    if type.name == "timestamp":
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH
        text = (EPOCH + moment).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return json.dumps(text, ensure_ascii=False)


def define_joined(output: Output, values: Sequence[Any], others: Sequence[Any]) -> dict[str, Any]:
    """The texts in their order, with the separator between them."""
    assert output.parameter is not None
    listed = sorted({text for text in values if text[:1] == "d"} or values)
    texts = [text[value_from(text) + int(output.parameter) :] for text in listed]
    separators = {text[value_from(text) : value_from(text) + int(output.parameter)] for text in values}
    return {"": max(separators, default="").join(texts) if texts else None}


SECONDS = Decimal("0.000001")
"""In a microsecond."""
