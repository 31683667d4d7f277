"""Every aggregate of the language, declared: what it takes and gives, which states it keeps, how it is lowered.

The language and the kernels take an aggregate from its line in :data:`AGGREGATES`, and its states from
:data:`optimizer.aggregates.state_kinds.STATE_KINDS`. The auditor and the oracle compute it by themselves:
docs/contributing.md has the recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from optimizer.aggregates.datasketches import Made, hll_sketch, lower_sketch, quantile_sketch, theta_sketch
from optimizer.aggregates.durations import (
    lower_distinct_total,
    lower_joined,
    lower_last,
    lower_last_distinct,
    lower_longest_gap,
    lower_mean_gap,
    lower_rate,
    lower_time_weighted,
    lower_time_while,
)
from optimizer.aggregates.listings import lower_histogram, lower_least, lower_several
from optimizer.aggregates.lowering import (
    lower_as_it_is,
    lower_average,
    lower_count,
    lower_distinct,
    lower_mode,
    lower_pair,
    lower_percentile,
    lower_quantile,
    lower_sum,
    lower_top,
)
from optimizer.aggregates.moments import (
    lower_correlation,
    lower_covariance,
    lower_determination,
    lower_geometric_mean,
    lower_intercept,
    lower_pairs_counted,
    lower_shape,
    lower_slope,
    lower_variance,
)
from optimizer.aggregates.state_kinds import STATE_KINDS
from optimizer.aggregates.states import (
    BOTH,
    CHECKS,
    DOUBLE_SUMS,
    EXACT_KINDS,
    PAIRS,
    ROWS,
    SKETCHES,
    WIDE,
    Lowered,
    State,
    States,
    average_type,
    sum_type,
)
from optimizer.workload.values import BINARY, BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Output, Type, decimal


@dataclass(frozen=True)
class Aggregate:
    """One SQL aggregate.

    - ``kinds``: the states that it stores;
    - ``sketch``: the states that it stores where the query permits an error; empty if the aggregate is exact anyway;
    - ``result``: the type of the output, from the argument's type;
    - ``lowering``: the answers, from the states;
    - ``klass``: distributive, algebraic or holistic;
    - ``counts``: over no events it is 0, as a count is; all others are null;
    - ``takes``: the arguments that it applies to, of :data:`TAKES`; ``star``: it also applies to ``*``;
    - ``signature``: the arguments in its parentheses:

      - ``value``; ``value+by``: two expressions; ``number+number``: two numbers; ``value+fraction``, ``value+k``: an
        expression and a literal, the output's ``parameter``; ``value+fractions``: several, its ``parameters``;
      - ``value+lgk``, ``value+entries``, ``value+size``: an expression and the size of a sketch (:data:`CHECKS`), which
        has a ``default``;
      - ``value+time``: one expression; ``by`` is the stream's time column;
      - ``state``: a condition, kept as :func:`optimizer.workload.ordered.state_in_time`;
      - ``ordered``, ``ordered+k``, ``ordered+separator``: an expression of the type ``by_type``, kept in an order as
        :func:`optimizer.workload.ordered.value_in_order`, and nothing, a number or the length of a text.
    """

    name: str
    kinds: tuple[str, ...]
    result: Callable[[Type], Type]
    lowering: Callable[[States, Output], Lowered]
    klass: str
    meaning: str
    takes: str = "a column"
    signature: str = "value"
    sketch: tuple[str, ...] = ()
    star: bool = False
    default: Decimal | None = None
    counts: bool = False

    def states(self, output: Output, former: bool = False) -> tuple[State, ...]:
        """The states that an output of this function needs; ``former``: those that earlier versions stored for it."""
        if output.argument is None:
            return (ROWS,)
        error = output.error.normalize() if output.error is not None and self.sketch else None
        is_exact = _is_exact(output.argument_type, output.by_type) and not former
        needed = []
        for kind in self.sketch if error is not None else self.kinds:
            if kind == "total" and output.argument_type == DOUBLE:
                kind = "sum"  # the sum of doubles is their total already
            elif is_exact:
                kind = EXACT_KINDS.get(kind, kind)
            if not former and f"exact_{kind}" in DOUBLE_SUMS and _is_of_doubles(kind, output):
                kind = f"exact_{kind}"
            state = State(kind, output.argument, None if kind == "count" else output.argument_type)
            if kind in PAIRS or STATE_KINDS[kind].takes_two:
                state = replace(state, by=output.by, by_type=output.by_type)
            needed.append(replace(state, error=error) if kind in SKETCHES else state)
        return tuple(needed)

    def output_type(self, type: Type | None, by_type: Type | None = None) -> Type:
        """Type of the answers for arguments of these types (None: ``*``); raises TypeError with the reason."""
        holds, what = TAKES[self.takes]
        if type is None:
            if self.star:
                return LONG
            raise TypeError(f"{self.name}(*) has no meaning: name a column")
        if not holds(type):
            raise TypeError(f"{self.name} needs {what}, not {type}")
        if self.signature == "value+by" and by_type is None:
            raise TypeError(f"{self.name} needs a second argument: what orders the values")
        if self.signature == "number+number" and (by_type is None or not by_type.is_numeric):
            raise TypeError(f"{self.name} needs a number as its second argument, not {by_type or '*'}")
        return self.result(type)

    def check_parameter(self, value: Decimal) -> None:
        """Raises ValueError, with the reason, unless the aggregate has a parameter and it may have this value."""
        if self.signature not in CHECKS:
            raise ValueError(f"{self.name} has no parameter")
        CHECKS[self.signature](value)

    def lower(self, states: States, output: Output) -> Lowered:
        """The answers of an output from the states under them."""
        return self.lowering(states, output)


def _is_exact(type: Type | None, by_type: Type | None) -> bool:
    """Return whether sums of powers and products of these types are exact; ``by_type`` None: there is one argument."""
    return type is not None and type.is_exact and (by_type is None or by_type.is_exact)


TAKES: dict[str, tuple[Callable[[Type], bool], str]] = {
    "a column": (lambda type: True, "a column"),
    "a number": (lambda type: type.is_numeric, "a number"),
    "an integer": (lambda type: type.name == "long", "an integer"),
    "an integer or a text": (lambda type: type.name in ("long", "string"), "an integer or a text"),
    "an integer or a double": (lambda type: type.name in ("long", "double"), "an integer or a double"),
    "an integer, a double or a text": (
        lambda type: type.name in ("long", "double", "string"),
        "an integer, a double or a text",
    ),
    "a double": (lambda type: type == DOUBLE, "a double"),
    "a text": (lambda type: type == STRING, "a text"),
    "a timestamp": (lambda type: type == TIMESTAMP, "a timestamp"),
    "a condition": (lambda type: type == BOOLEAN, "a condition"),
}
"""Kinds of arguments: whether a type is one, and how messages call it."""


def _is_of_doubles(kind: str, output: Output) -> bool:
    """Return whether a sum is one of doubles: sums of logarithms, and of pairs in which at least one is a double."""
    return kind == "sum_logs" or output.argument_type == DOUBLE or (kind in BOTH and output.by_type == DOUBLE)


def _same(type: Type) -> Type:
    return type


def _sequence_sum(type: Type | None) -> Type:
    if type is None or not type.is_numeric:
        raise TypeError(f"sum needs a number, not {type or '*'}")
    return DOUBLE if type == DOUBLE else decimal(38, _kept_of("sum", type).scale)


def _sequence_average(type: Type | None) -> Type:
    if type is None or not type.is_numeric:
        raise TypeError(f"avg needs a number, not {type or '*'}")
    return average_type(_kept_of("avg", type))


def _sequence_extreme(type: Type | None) -> Type:
    if type is None or type.name in ("string", "boolean"):
        raise TypeError(f"min and max over sequences need a number, date or moment, not {type or '*'}")
    return _kept_of("min and max", type)


def _kept_of(what: str, type: Type) -> Type:
    if type.name == "decimal" and type.precision > WIDE:
        raise TypeError(f"{what} over sequences takes decimals of up to {WIDE} digits, not {type}")
    return type


def _variance(freedom: int, root: bool, what: str) -> Aggregate:
    kinds, lower = ("count", "total", "sum_squares"), lower_variance(freedom, root)
    kind = "standard deviation" if root else "variance"
    return Aggregate("", kinds, lambda type: DOUBLE, lower, "algebraic", f"{what.format(kind)}", takes="a number")


def _shape(power: int, meaning: str) -> Aggregate:
    kinds = ("count", "total", "sum_squares", "sum_cubes", "sum_fourths")[: power + 1]
    return Aggregate("", kinds, lambda type: DOUBLE, lower_shape(power), "algebraic", meaning, "a number")


def _both(kinds: str, lowering: Callable[[States, Output], Lowered], meaning: str, counts: bool = False) -> Aggregate:
    kinds_of_pairs = tuple(f"both_{kind}" if kind else "both" for kind in ["", *kinds.split()])
    result = LONG if counts else DOUBLE
    return Aggregate(
        "",
        kinds_of_pairs,
        lambda type: result,
        lowering,
        "algebraic",
        meaning,
        "a number",
        "number+number",
        counts=counts,
    )


def _kept(kind: str, meaning: str, takes: str = "a column", result: Callable[[Type], Type] = _same) -> Aggregate:
    return Aggregate("", ("count", kind), result, lower_as_it_is(kind), "distributive", meaning, takes)


def _pair(kind: str, signature: str, meaning: str) -> Aggregate:
    return Aggregate("", (kind,), _same, lower_pair(kind), "algebraic", meaning, signature=signature)


def _holistic(
    result: Callable[[Type], Type],
    lowering: Callable[[States, Output], Lowered],
    sketch: str,
    meaning: str,
    takes: str = "a column",
    signature: str = "value",
) -> Aggregate:
    return Aggregate("", ("values",), result, lowering, "holistic", meaning, takes, signature, (sketch,))


def _listed(lowering: Callable[[States, Output], Lowered], meaning: str, takes: str = "a column") -> Aggregate:
    return Aggregate("", ("values",), lambda type: STRING, lowering, "holistic", meaning, takes, "value+k")


def _of_distinct(result: Callable[[Type], Type], meaning: str) -> Aggregate:
    return Aggregate("", ("values",), result, lower_distinct_total, "holistic", meaning, "a number")


def _in_order(lowering: Callable[[States, Output], Lowered], meaning: str, signature: str) -> Aggregate:
    default = Decimal(0) if signature == "ordered+separator" else None
    what = "a text", signature
    return Aggregate("", ("values",), lambda type: STRING, lowering, "holistic", meaning, *what, default=default)


def _duration(
    kinds: tuple[str, ...],
    lowering: Callable[[States, Output], Lowered],
    meaning: str,
    takes: str = "a timestamp",
    signature: str = "value",
) -> Aggregate:
    return Aggregate("", kinds, lambda type: DOUBLE, lowering, "holistic", meaning, takes, signature)


def _sketch(make: Made, meaning: str, takes: str, signature: str, default: int) -> Aggregate:
    lower, size = lower_sketch(make), Decimal(default)
    return Aggregate("", ("values",), lambda type: BINARY, lower, "holistic", meaning, takes, signature, default=size)


_SAMPLE, _POPULATION = "sample {} (null for one value)", "population {}"

_DECLARED: tuple[tuple[str, Aggregate], ...] = (
    (
        "count",
        Aggregate(
            "",
            ("count",),
            lambda type: LONG,
            lower_count,
            "distributive",
            "rows, or values not null",
            star=True,
            counts=True,
        ),
    ),
    ("sum", Aggregate("", ("count", "sum"), sum_type, lower_sum, "distributive", "sum, exact", "a number")),
    ("avg", Aggregate("", ("count", "sum"), average_type, lower_average, "algebraic", "mean", "a number")),
    ("min", _kept("min", "least value")),
    ("max", _kept("max", "greatest value")),
    ("any_value", _kept("min", "some value: the least")),
    ("variance var_samp", _variance(1, False, _SAMPLE)),
    ("var_pop", _variance(0, False, _POPULATION)),
    ("stddev stddev_samp", _variance(1, True, _SAMPLE)),
    ("stddev_pop", _variance(0, True, _POPULATION)),
    ("skewness", _shape(3, "skewness of the population (null where all are equal)")),
    ("kurtosis", _shape(4, "excess kurtosis of the population (null where all are equal)")),
    (
        "geometric_mean",
        Aggregate(
            "",
            ("count", "sum_logs"),
            lambda type: DOUBLE,
            lower_geometric_mean,
            "algebraic",
            "geometric mean (0 with a zero, NaN with a negative number)",
            "a number",
        ),
    ),
    ("covar_pop", _both("x y xy", lower_covariance(0), "population covariance")),
    ("covar_samp", _both("x y xy", lower_covariance(1), "sample covariance (null for one pair)")),
    ("corr", _both("x y xx yy xy", lower_correlation, "correlation (null where one does not vary)")),
    ("regr_count", _both("", lower_pairs_counted, "rows where neither is null", counts=True)),
    ("regr_slope", _both("x y yy xy", lower_slope, "slope of the line that gives the first from the second")),
    ("regr_intercept", _both("x y yy xy", lower_intercept, "where that line is if the second is 0")),
    ("regr_r2", _both("x y xx yy xy", lower_determination, "square of the correlation (1 if the first is constant)")),
    ("first", _pair("first", "value+time", "earliest value (of equal times the least)")),
    ("last", _pair("last", "value+time", "latest value (of equal times the greatest)")),
    ("min_by", _pair("least_by", "value+by", "value where the second is least (of equals the least)")),
    ("max_by", _pair("greatest_by", "value+by", "value where the second is greatest (of equals the greatest)")),
    ("bool_and every", _kept("min", "whether all are true", "a condition")),
    ("bool_or some any", _kept("max", "whether one is true", "a condition")),
    ("bit_and", _kept("bit_and", "bits that all have", "an integer", lambda type: LONG)),
    ("bit_or", _kept("bit_or", "bits that one has", "an integer", lambda type: LONG)),
    ("bit_xor", _kept("bit_xor", "bits that an odd number have", "an integer", lambda type: LONG)),
    (
        "count_distinct",
        replace(_holistic(lambda type: LONG, lower_distinct, "registers", "number of distinct values"), counts=True),
    ),
    ("sum_distinct", _of_distinct(sum_type, "sum of the distinct values, exact")),
    ("avg_distinct", _of_distinct(average_type, "mean of the distinct values")),
    (
        "percentile",
        _holistic(
            lambda type: DOUBLE,
            lower_percentile,
            "quantiles",
            "percentile, interpolated",
            "a number",
            "value+fraction",
        ),
    ),
    ("median", _holistic(lambda type: DOUBLE, lower_percentile, "quantiles", "percentile of 0.5", "a number")),
    (
        "percentile_disc",
        _holistic(_same, lower_quantile, "quantiles", "the value at a percentile", signature="value+fraction"),
    ),
    ("mode", _holistic(_same, lower_mode, "frequent", "most frequent value (of equals the least)")),
    (
        "top_k",
        _holistic(
            lambda type: STRING,
            lower_top,
            "frequent",
            "the k most frequent values, counted, in JSON",
            signature="value+k",
        ),
    ),
    (
        "percentiles",
        _holistic(
            lambda type: STRING,
            lower_several(lower_percentile, lambda type: DOUBLE),
            "quantiles",
            "several percentiles, interpolated, in JSON",
            "a number",
            "value+fractions",
        ),
    ),
    (
        "percentiles_disc",
        _holistic(
            lambda type: STRING,
            lower_several(lower_quantile, _same),
            "quantiles",
            "the values at several percentiles, in JSON",
            signature="value+fractions",
        ),
    ),
    ("histogram_numeric", _listed(lower_histogram, "values counted in k bins of one width, in JSON", "a number")),
    ("collect_set", _listed(lower_least, "the k least distinct values, in JSON")),
    (
        "last_k",
        _in_order(lower_last, "the last k values in the order of time, or of ORDER BY, in JSON", "ordered+k"),
    ),
    (
        "last_distinct",
        _in_order(lower_last_distinct, "the last k different values, each where it came last, in JSON", "ordered+k"),
    ),
    (
        "string_agg listagg",
        _in_order(lower_joined, "the texts in the order of time, or of ORDER BY, joined", "ordered+separator"),
    ),
    (
        "time_while",
        _duration(("values",), lower_time_while, "seconds for which it holds, by events", "an integer", "state"),
    ),
    ("longest_gap", _duration(("values",), lower_longest_gap, "longest time between consecutive events, in seconds")),
    (
        "mean_gap",
        replace(
            _duration(("count", "min", "max"), lower_mean_gap, "mean time between consecutive events, in seconds"),
            klass="algebraic",
        ),
    ),
    ("rate", _duration(("values",), lower_rate, "increase of a counter per second", "a text", "ordered")),
    (
        "time_weighted_avg",
        _duration(
            ("values",), lower_time_weighted, "mean over time, each value until the next event", "a text", "ordered"
        ),
    ),
    (
        "hll_sketch hll_sketch_agg",
        _sketch(hll_sketch, "HyperLogLog sketch, binary", "an integer or a text", "value+lgk", 12),
    ),
    (
        "theta_sketch theta_sketch_agg",
        _sketch(theta_sketch, "Theta sketch, binary", "an integer, a double or a text", "value+entries", 12),
    ),
    (
        "quantile_sketch",
        _sketch(quantile_sketch, "KLL sketch, binary", "an integer or a double", "value+size", 200),
    ),
    (
        "kll_sketch_agg_bigint",
        _sketch(quantile_sketch, "KLL sketch of integers, binary", "an integer", "value+size", 200),
    ),
    (
        "kll_sketch_agg_double",
        _sketch(quantile_sketch, "KLL sketch of doubles, binary", "a double", "value+size", 200),
    ),
)

AGGREGATES: dict[str, Aggregate] = {
    name: replace(declared, name=name) for names, declared in _DECLARED for name in names.split()
}
"""Every aggregate of the language, by its SQL name (lower case)."""

SEQUENCES: dict[str, Callable[[Type | None], Type]] = {
    "count": lambda type: decimal(38, 0),
    "sum": _sequence_sum,
    "avg": _sequence_average,
    "min": _sequence_extreme,
    "max": _sequence_extreme,
    "reached": lambda type: LONG,
}
"""The aggregates of event sequences, each with its type from its argument's (None: ``*``); TypeError, with the reason,
for others. There are many more sequences than events: counts and exact sums have 38 digits. ``reached`` counts keys."""
