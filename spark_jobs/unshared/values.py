"""What every engine that recomputes answers goes by: the parts of outputs, comparisons, names of columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from optimizer.workload.values import ACQ, Output

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MEANS = ("sum", "avg")

SPREADS = ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")

PERCENTILES = ("percentile", "median")

PAIRED = ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2")

SHAPES = ("skewness", "kurtosis")

LISTED = ("top_k", "percentiles", "percentiles_disc", "histogram_numeric", "collect_set")

COUNTED = ("hll_sketch", "hll_sketch_agg", "theta_sketch", "theta_sketch_agg")

QUANTILES = ("quantile_sketch", "kll_sketch_agg_bigint", "kll_sketch_agg_double")

ROUNDED = (*MEANS, *SPREADS, *PERCENTILES, *PAIRED, *SHAPES, "geometric_mean")
"""Functions whose doubles are rounded on the way."""

_KEY = re.compile(r"\['(?:[^']|'')*'\]")
_CAPITAL = re.compile(r"[\\A-Z]|[^\x00-\x7f]")
_NUMBER = re.compile(r"\\u([0-9a-f]{6})")

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def spark_name(name: str) -> str:
    """A column's name in frames, which do not tell ``m['K']`` from ``m['k']``: capitals in keys are numbers there."""
    return _KEY.sub(lambda key: _CAPITAL.sub(lambda found: f"\\u{ord(found[0]):06x}", key[0]), name)


def from_spark(name: str) -> str:
    """Inverse of :func:`spark_name`."""
    return _KEY.sub(lambda key: _NUMBER.sub(lambda found: chr(int(found[1], 16)), key[0]), name)


def fraction_of(output: Output) -> Decimal:
    """The fraction of a percentile; a median's is one half."""
    return Decimal("0.5") if output.parameter is None else output.parameter


def compared_outputs(query: ACQ) -> list[Output]:
    """What HAVING compares and the order goes by, under the names that recomputed rows have them."""
    return [replace(output, name=f"having {index}") for index, output in enumerate(query.compared)]


def recomputed_parts(output: Output) -> list[Output]:
    """The aggregates that an output takes, under the names that recomputed rows have them."""
    return [replace(part, name=f"{output.name} part {part.name}") for part in output.parts] or [output]
