"""How to audit each aggregate: one table, separate from the one that answers.

The definitions are plain Python over the values of a window and group
(:mod:`spark_jobs.audit.unshared.plain_evidence`). They share only the names of the aggregates with
:mod:`optimizer.aggregates`, so that a fault there is not also a fault here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_, xor
from typing import Any

from optimizer.workload.values import Output
from spark_jobs.audit.unshared import listings, moments, ordered, plain_evidence, tolerances
from spark_jobs.audit.unshared.plain_evidence import Definition


@dataclass(frozen=True)
class Audit:
    """Recomputation and comparison of one aggregate.

    - ``define``: the evidence from all values, by the definition;
    - ``spark``: Spark's functions of the argument, the aggregate first and what is applied to its result behind it;
      empty where the ``family`` has a column of its own (:data:`spark_jobs.audit.unshared.columns.ANSWERS`);
    - ``in_spark``: the same for what such a chain cannot say, from the module of Spark's functions and the argument;
      the answer is null where all values are;
    - ``family``: the aggregates that Spark recomputes alike
    (:data:`spark_jobs.audit.unshared.spark_evidence.EVIDENCE`);
    - ``agrees``: whether a stored value, as the results table stores it, agrees with the evidence;
    - ``slack``: how far a recomputed double may be off (infinity: nothing is known of it); None: it is not rounded;
    - ``is_list``: the answer is a list of values, in JSON;
    - ``keeps_nulls``: of two arguments the first may be null.
    """

    define: Definition
    spark: str = ""
    family: str = "value"
    agrees: Callable[[Output, Any, tolerances.Evidence], bool] = tolerances.agrees_exactly
    slack: Callable[[Output, tolerances.Evidence], float] | None = None
    is_list: bool = False
    keeps_nulls: bool = False
    in_spark: Callable[[Any, Any], Any] | None = None


_LEAST = plain_evidence.of_values(plain_evidence.least_value)
_SUM = Audit(plain_evidence.define_total, "", "sum", tolerances.agrees_sum, tolerances.sum_slack)
_DISTINCT_SUM = Audit(
    plain_evidence.define_distinct_total, "", "distinct sum", tolerances.agrees_sum, tolerances.sum_slack
)
_SPREAD = Audit(plain_evidence.define_spread, "", "spread", tolerances.agrees_spread, tolerances.spread_slack)
_SHAPE = Audit(plain_evidence.define_shape, "", "shape", moments.agrees_shape, moments.shape_slack)
_REGRESSION = Audit(plain_evidence.define_regressed, "", "regression", moments.agrees_pair, moments.pair_slack)
_PERCENTILE = Audit(
    plain_evidence.define_percentile, "", "percentile", tolerances.agrees_percentile, tolerances.percentile_slack
)
_AT_LEAST = Audit(plain_evidence.define_at_least_order, family="order")
_AT_GREATEST = Audit(plain_evidence.define_at_greatest_order, family="order")
_ALL, _ANY = Audit(plain_evidence.of_values(all), "bool_and"), Audit(plain_evidence.of_values(any), "bool_or")
_SKETCH = Audit(plain_evidence.define_sketched, "", "distinct sketch", listings.agrees_counted)
_HLL, _THETA = replace(_SKETCH, spark="hll_sketch_agg"), replace(_SKETCH, spark="theta_sketch_agg")
_KLL = Audit(plain_evidence.define_ranked, "kll_sketch_agg_{}", "quantile sketch", listings.agrees_quantiles)

AUDITED: dict[str, Audit] = {
    "count": Audit(plain_evidence.define_counted, "count"),
    "sum": replace(_SUM, spark="try_sum"),
    "avg": replace(_SUM, spark="try_avg"),
    "min": Audit(_LEAST, "min"),
    "max": Audit(plain_evidence.of_values(plain_evidence.greatest_value), "max"),
    "any_value": Audit(_LEAST, "min"),
    **{
        name: replace(_SPREAD, spark=name)
        for name in ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")
    },
    **{name: replace(_SHAPE, spark=name) for name in ("skewness", "kurtosis")},
    "geometric_mean": Audit(
        plain_evidence.define_geometric, "", "geometric mean", moments.agrees_geometric, moments.geometric_slack
    ),
    **dict.fromkeys(("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2"), _REGRESSION),
    "regr_count": Audit(plain_evidence.define_counted, family="pairs counted"),
    "first": _AT_LEAST,
    "last": _AT_GREATEST,
    "min_by": replace(_AT_LEAST, keeps_nulls=True),
    "max_by": replace(_AT_GREATEST, keeps_nulls=True),
    **dict.fromkeys(("bool_and", "every"), _ALL),
    **dict.fromkeys(("bool_or", "some", "any"), _ANY),
    "bit_and": Audit(plain_evidence.of_values(lambda values: reduce(and_, values)), "bit_and"),
    "bit_or": Audit(plain_evidence.of_values(lambda values: reduce(or_, values)), "bit_or"),
    "bit_xor": Audit(plain_evidence.of_values(lambda values: reduce(xor, values)), "bit_xor"),
    "count_distinct": Audit(plain_evidence.define_distinct, family="distinct", agrees=tolerances.agrees_distinct),
    "percentile": _PERCENTILE,
    "median": _PERCENTILE,
    "percentile_disc": Audit(plain_evidence.define_quantile, family="quantile", agrees=tolerances.agrees_quantile),
    "mode": Audit(plain_evidence.define_frequent, family="mode", agrees=tolerances.agrees_mode),
    "top_k": Audit(plain_evidence.define_frequent, family="top", agrees=tolerances.agrees_top, is_list=True),
    "percentiles": Audit(
        plain_evidence.define_several(plain_evidence.define_percentile),
        family="percentiles",
        agrees=listings.agrees_several(tolerances.agrees_percentile),
        is_list=True,
    ),
    "percentiles_disc": Audit(
        plain_evidence.define_several(plain_evidence.define_quantile),
        family="quantiles",
        agrees=listings.agrees_several(tolerances.agrees_quantile),
        is_list=True,
    ),
    "histogram_numeric": Audit(
        plain_evidence.define_histogram, family="histogram", agrees=listings.agrees_histogram, is_list=True
    ),
    "collect_set": Audit(
        plain_evidence.define_least_distinct, family="set", agrees=listings.agrees_least, is_list=True
    ),
    **dict.fromkeys(("sum_distinct", "avg_distinct"), _DISTINCT_SUM),
    "last_k": Audit(ordered.define_last, family="last"),
    "last_distinct": Audit(ordered.define_last_distinct, family="last distinct"),
    **dict.fromkeys(("string_agg", "listagg"), Audit(ordered.define_joined, family="joined")),
    "time_while": Audit(ordered.define_time_while, family="time while"),
    "longest_gap": Audit(plain_evidence.of_values(ordered.longest_gap), family="longest gap"),
    "mean_gap": Audit(ordered.define_mean_gap, "", "mean gap", ordered.agrees_mean_gap, ordered.mean_gap_slack),
    "rate": Audit(ordered.define_rate, "", "rate", ordered.agrees_rate, ordered.by_time_slack),
    "time_weighted_avg": Audit(
        ordered.define_time_weighted, "", "time weighted", ordered.agrees_time_weighted, ordered.by_time_slack
    ),
    **dict.fromkeys(("hll_sketch", "hll_sketch_agg"), _HLL),
    **dict.fromkeys(("theta_sketch", "theta_sketch_agg"), _THETA),
    **dict.fromkeys(("quantile_sketch", "kll_sketch_agg_bigint", "kll_sketch_agg_double"), _KLL),
}
"""The audit of every aggregate of the language."""

_ROWS_COUNTED = Audit(plain_evidence.define_counted)


def audit_of(output: Output) -> Audit:
    """The audit of an output; of ``count(*)`` one without an argument."""
    return _ROWS_COUNTED if output.argument is None else AUDITED[output.function]


def evidence(output: Output, values: Sequence[Any], others: Sequence[Any]) -> plain_evidence.Evidence:
    """The answer of an output under the empty name, and what :func:`agrees
    <spark_jobs.audit.unshared.agreement.agrees>` needs in addition.

    - ``values``: its argument where that is not null; of an aggregate of two arguments where both are not null (with
      :attr:`Audit.keeps_nulls` where the second is not); of ``COUNT(*)`` anything, once a row;
    - ``others``: the second arguments, in the same order.
    """
    return audit_of(output).define(output, values, others)
