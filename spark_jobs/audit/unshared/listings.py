"""Compare answers with several values, and sketches, by the values that they represent."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from optimizer.workload.values import DOUBLE, LONG, Output, Type
from spark_jobs.audit.unshared.values import EPOCH

Agrees = Callable[[Output, Any, Mapping[str, Any]], bool]

DEVIATIONS = 6
"""So many standard errors a sketch may be off."""

RANKS = tuple(Decimal(tenth) / 10 for tenth in range(1, 10))
"""The fractions at which a quantile sketch is read."""


def jsonable(value: Any) -> Any:
    """A value as it comes out of the JSON of an answer."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value


# ------------------------------------------------------------------------------------------ percentiles
def each_fraction(output: Output) -> list[Output]:
    """An output for each fraction."""
    disc = output.function == "percentiles_disc"
    type = output.argument_type if disc else DOUBLE
    assert type is not None
    single = replace(output, function="percentile_disc" if disc else "percentile", type=type, parameters=())
    return [replace(single, parameter=fraction) for fraction in output.parameters]


def agrees_several(agrees: Agrees) -> Agrees:
    """The comparison of percentiles of several fractions, from that of one."""

    def agree(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
        each = each_fraction(output)
        items = [None] * len(each) if value is None else json.loads(value)
        return len(items) == len(each) and all(
            agrees(percentile, _stored(item, percentile.type), _of_number(evidence, number))
            for number, (percentile, item) in enumerate(zip(each, items, strict=True))
        )

    return agree


def _of_number(evidence: Mapping[str, Any], number: int) -> dict[str, Any]:
    start = f"{number} "
    numbered = {name[len(start) :]: fact for name, fact in evidence.items() if name.startswith(start)}
    return numbered | {"": numbered["answer"]}


def _stored(item: Any, type: Type) -> Any:
    """Convert a value from JSON to its form in the results table."""
    if item is None or type.name in ("string", "decimal", "long"):
        return item
    if type.name == "date":
        return (date.fromisoformat(item) - EPOCH.date()).days
    if type.name == "timestamp":
        since = datetime.fromisoformat(item.replace("Z", "+00:00")) - EPOCH
        return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return int(item) if type.name == "boolean" else float(item)


# -------------------------------------------------------------------------------------- sets, histograms
def agrees_least(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether the least values are the same."""
    expected = [jsonable(item) for item in evidence[""]]
    return value is None and not expected if value is None or not expected else bool(json.loads(value) == expected)


def agrees_histogram(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether every value is in its bin, except those at an edge."""
    assert output.parameter is not None
    if value is None or not evidence["count"]:
        return value is None and not evidence["count"]
    listed, bins = json.loads(value), int(output.parameter)
    least, most, total = evidence["least"], evidence["greatest"], evidence[""]
    if least is None or least == most:
        return bool(listed == ([[least, total]] if total else []))
    width = (Fraction(most) - Fraction(least)) / bins
    passed, counts = 0, [0] * bins
    for middle, count in listed:
        at = math.floor((Fraction(middle) - Fraction(least)) / width)
        off = abs(Fraction(middle) - Fraction(least) - width * (2 * at + 1) / 2)
        if not 0 <= at < bins or off > Fraction(1e-15) * (abs(Fraction(least)) + abs(Fraction(most))):
            return False
        counts[at] += count
    for count, edge in zip(counts, evidence["edges"] or (), strict=False):
        passed += count
        if not edge["below"] <= passed <= edge["most"]:
            return False
    return sum(counts) == total and all(count > 0 for _, count in listed)


# --------------------------------------------------------------------------------------------- sketches
def agrees_counted(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a HyperLogLog or Theta sketch estimates the recomputed number of distinct values."""
    from datasketches import compact_theta_sketch, hll_sketch

    assert output.parameter is not None
    if value is None or not evidence["count"]:
        return value is None and not evidence["count"]
    kind: Any = hll_sketch if output.function.startswith("hll") else compact_theta_sketch
    estimate, count = kind.deserialize(base64.b64decode(value)).get_estimate(), evidence[""]
    return bool(abs(estimate - count) <= 0.01 + DEVIATIONS * count / math.sqrt(2 ** int(output.parameter)))


def agrees_quantiles(output: Output, value: Any, evidence: Mapping[str, Any]) -> bool:
    """Return whether a KLL sketch ranks values within its promised error."""
    from datasketches import PyDoublesSerDe, PyLongsSerDe, kll_items_sketch

    assert output.parameter is not None and output.argument_type is not None
    count = evidence["count"]
    if value is None or not count:
        return value is None and not count
    long = output.argument_type.name == LONG.name
    sketch = kll_items_sketch.deserialize(base64.b64decode(value), PyLongsSerDe() if long else PyDoublesSerDe())
    off = math.ceil(count / int(output.parameter)) if count > int(output.parameter) else 0
    return sketch.n == count and all(
        edge["upto"] - off - 1e-6 <= sketch.get_rank(edge["value"], True) * count <= edge["upto"] + off + 1e-6
        for edge in evidence["ranks"]
    )
