"""Compare shared answers with recomputed ones, to the exactness that is promised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from optimizer.aggregates.states import Lowered, carrier_of
from optimizer.workload.values import ACQ, BOOLEAN, DATE, DOUBLE, LONG, TIMESTAMP, Condition, Literal, Output, Type
from spark_jobs.audit.unshared.audited import audit_of
from spark_jobs.audit.unshared.tolerances import (
    EPSILON,
    Evidence,
    all_finite,
    as_stored,
    equals_stored,
    mean_of,
    ordering_key,
)
from spark_jobs.audit.unshared.values import COMPARISONS, EPOCH, compared_outputs, recomputed_parts
from spark_jobs.results.derived import derived

Grain = tuple[Any, tuple[str | None, ...]]
"""Key of an answer row: the end of its window, and its group."""


def agrees(output: Output, value: Any, row: Mapping[str, Any]) -> bool:
    """Return whether a stored output value equals the recomputed row's, to the exactness of its type:

    - exact types, averages of them and moments with exact evidence: to the last digit;
    - doubles: within what Spark's own plain summation may lose (n*eps*sum|x|; for variances as Welford's
      recurrence, Chan, Golub and LeVeque 1983);
    - sketches: within the error that the query permits: ranks and counts by it times the number of values, distinct
      counts by :data:`DEVIATIONS` times it.

    ``value``: as the results table stores it (dates as days, timestamps as microseconds, decimals as text).
    """
    if output.parts:
        return _agrees_derived(output, value, row)
    evidence = _evidence(output, row)
    if evidence.get("exact"):
        return equals_stored(value, evidence[""])
    return audit_of(output).agrees(output, value, evidence)


def _evidence(output: Output, row: Mapping[str, Any]) -> Evidence:
    evidence = {"": row[output.name]}
    evidence |= {name: row[column] for name, column in _evidence_columns(output.name, tuple(row))}
    if isinstance(evidence.get("count"), Decimal):  # of event sequences
        evidence["count"] = int(evidence["count"])
    return evidence


@lru_cache(maxsize=1 << 10)
def _evidence_columns(output: str, columns: tuple[str, ...]) -> list[tuple[str, str]]:
    """The names of an output's evidence, with the columns that have it: the same for all rows of a query."""
    return [(name[len(output) + 1 :], name) for name in columns if name.startswith(f"{output} ")]


def qualifies(query: ACQ, row: Mapping[str, Any]) -> bool | None:
    """Return whether a recomputed row satisfies HAVING, so that its answer has to exist.

    None if either is right: a threshold lies within what :func:`agrees` permits of a double or a sketch, or a
    compared value overflowed.
    """
    verdicts = [
        _satisfies(condition, output, row)
        for condition, output in zip(query.having, compared_outputs(query), strict=False)
    ]
    return False if False in verdicts else None if None in verdicts else True


def _satisfies(condition: Condition, output: Output, row: Mapping[str, Any]) -> bool | None:
    if output.parts:
        return _derived_satisfies(condition, output, row)
    if recomputed_value(output, row)[1] == math.inf:
        # nothing is known of it: it may have overflowed here, or there
        return None
    recomputed, threshold = as_stored(row[output.name]), _threshold(condition.value, output.type)
    count, total = row.get(f"{output.name} count"), row.get(f"{output.name} total")
    if total is not None and count:
        recomputed = mean_of(output, total, count)
    if recomputed is None:
        return None if count and audit_of(output).family == "sum" else False
    if audit_of(output).is_list or (output.function == "mode" and output.error is not None):
        # the values of lists are compared one by one; as the text that they are told in there is nothing to recompute
        return None
    if output.type == LONG and not -(2**63) <= recomputed < 2**63:
        return None
    is_rounded = output.type == DOUBLE and audit_of(output).slack is not None and not row.get(f"{output.name} exact")
    inexact = output.error is not None or is_rounded
    if inexact and agrees(output, threshold, row):
        return None
    if isinstance(recomputed, float) or isinstance(threshold, float):
        recomputed, threshold = float(recomputed), float(threshold)
    return bool(COMPARISONS[condition.comparison](ordering_key(recomputed), ordering_key(threshold)))


def _threshold(literal: Literal, type: Type) -> Any:
    """A literal as the results table stores values of a type."""
    value = literal.value
    if literal.type == DATE:
        value = (date.fromisoformat(value) - EPOCH.date()).days
        return value * 86_400 * 10**6 if type == TIMESTAMP else value
    if type == DOUBLE:
        return float(value)
    return int(value) if literal.type == BOOLEAN else value


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
        order_values = {key: [_order_value(output, rows[key]) for output in orders] for key in keys}
        if any(verdicts[key] is None or None in order_values[key] for key in keys):
            verdicts |= dict.fromkeys(keys)
            continue
        values = {key: [pair for pair in pairs if pair is not None] for key, pairs in order_values.items()}
        names = query.select or tuple(name for name, _ in query.group_by)
        keys.sort(key=lambda key: [(rows[key][name] is not None, rows[key][name]) for name in names])
        for at, order in reversed(list(enumerate(query.top.orders))):
            keys.sort(key=lambda key: values[key][at][1:], reverse=order.descending)
            keys.sort(key=lambda key: values[key][at][0] != order.nulls_first)
        verdicts |= dict.fromkeys(keys[query.top.k :], False)


def _order_value(output: Output, row: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The value that a row is ordered by, as (is null, sort key); None if it may be another value as well."""
    if output.parts:
        candidates = derived_values(output, row)
        if candidates is None or len(candidates) > 1:
            return None
        value = _unscaled(output, candidates[0])
    else:
        value, off = recomputed_value(output, row)
        unknown = value is None and row.get(f"{output.name} count") and audit_of(output).family == "sum"
        beyond = output.type == LONG and value is not None and not -(2**63) <= value < 2**63
        if off or output.error is not None or unknown or beyond or audit_of(output).is_list:
            return None
    return (True,) if value is None else (False, ordering_key(value))


# -------------------------------------------------------------------------------- values made of aggregates
def derived_values(output: Output, row: Mapping[str, Any]) -> list[Any] | None:
    """Possible values of a derived output, as the results table stores it: of its recomputed parts, then with each
    of them moved as far as it may be off. None if nothing is known: a part overflowed, is a sketch, or is a list
    (whose values are recomputed, not the text).
    """
    exact: list[Any] = []
    moved: list[tuple[int, float]] = []
    for at, part in enumerate(recomputed_parts(output)):
        if audit_of(part).is_list:
            return None
        value, off = recomputed_value(part, row)
        if value is None and row.get(f"{part.name} count") and audit_of(part).family == "sum":
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
    derived_column = derived(output, columns)
    if derived_column.overflow is not None:
        return None
    pairs = zip(derived_column.values.tolist(), derived_column.valid.tolist(), strict=True)
    return [value if valid else None for value, valid in pairs]


def recomputed_value(output: Output, row: Mapping[str, Any]) -> tuple[Any, float]:
    """A plain output of a recomputed row, as the results table stores it, and how far a double may be off (infinity:
    nothing is known of it)."""
    value, evidence = as_stored(row[output.name]), _evidence(output, row)
    if evidence.get("total") is not None and evidence["count"]:
        value = mean_of(output, evidence["total"], evidence["count"])
    if output.type == DOUBLE and value is not None:
        value = float(value)  # an approximate percentile of decimals is one of them in Spark
    slack_of = audit_of(output).slack
    if output.type != DOUBLE or slack_of is None or evidence.get("exact"):
        return value, 0.0
    slack = slack_of(output, evidence)
    if not all_finite(value):
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
    candidates = derived_values(output, row)
    if candidates is None or any(equals_stored(value, _unscaled(output, other)) for other in candidates):
        return True
    if output.type != DOUBLE or not all_finite(value, *candidates):
        # which one it is depends on how something is rounded
        return len({str(other) for other in candidates}) > 1 and output.type != DOUBLE
    first, *moved = candidates
    slack = 2 * sum(abs(other - first) for other in moved) + 8 * EPSILON * abs(first) + 5e-324
    return bool(abs(value - first) <= slack)


def _unscaled(output: Output, value: Any) -> Any:
    return Decimal(value) if value is not None and output.type.name == "decimal" else value


def _derived_satisfies(condition: Condition, output: Output, row: Mapping[str, Any]) -> bool | None:
    candidates, threshold = derived_values(output, row), _threshold(condition.value, output.type)
    verdicts = set()
    for candidate in candidates or ():
        value = _unscaled(output, candidate)
        if value is None:
            verdicts.add(False)
            continue
        if isinstance(value, float) or isinstance(threshold, float):
            value, threshold = float(value), float(threshold)
        verdicts.add(bool(COMPARISONS[condition.comparison](ordering_key(value), ordering_key(threshold))))
    return verdicts.pop() if len(verdicts) == 1 else None


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
    return str(as_stored(value)) if isinstance(value, datetime) else str(value)
