"""The words of the language: clauses, functions and their forms, what is forbidden and what was meant by it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp
from sqlglot.tokens import TokenType

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.states import LEAST_ERROR
from optimizer.errors.diagnostics import meant
from optimizer.language.refusals import Refused
from optimizer.workload.instants import DAY
from optimizer.workload.values import DATE, SECOND, TIMESTAMP


@dataclass(frozen=True)
class Limits:
    """Limits of one query. Durations in microseconds; ``ratio`` is the largest range/slide, ``warned_ratio`` the
    largest without a warning, and the largest of windows of rows and of refresh bounds;
    ``literal`` the longest string or name in characters; ``depth`` counts parentheses and prefix operators
    around one place; ``connectives`` ANDs, ORs and commas of a query; ``rows`` the longest range of a window of rows;
    ``outputs`` the aggregates of a query, in SELECT and HAVING; ``windows`` its named windows; ``pattern`` the longest
    event sequence.
    """

    bytes: int = 16384
    tokens: int = 4096
    depth: int = 24
    connectives: int = 1024
    literal: int = 256
    slide: int = SECOND
    range: int = 3660 * DAY
    rows: int = 10_000_000
    ratio: int = 1_000_000
    warned_ratio: int = 1440
    group_columns: int = 16
    outputs: int = 128
    windows: int = 16
    pattern: int = 64


SOURCES = "a query reads one stream: FROM <stream>"

CLAUSES: dict[str, tuple[str, str, str]] = {
    "laterals": ("LATERAL", "LATERAL is not allowed", SOURCES),
    "sort": ("SORT BY", "SORT BY is not allowed", "answers are a table: order them when you read it"),
    "cluster": ("CLUSTER BY", "CLUSTER BY is not allowed", "the plan decides how work is split"),
    "distribute": ("DISTRIBUTE BY", "DISTRIBUTE BY is not allowed", "the plan decides how work is split"),
    "offset": ("OFFSET", "OFFSET is not allowed", "answers are a table: limit them when you read it"),
    "distinct": ("DISTINCT", "SELECT DISTINCT is not allowed", "use GROUP BY"),
    "qualify": ("QUALIFY", "QUALIFY is not allowed", "filter events in WHERE"),
    "windows": (
        "WINDOW",
        "named windows are not allowed",
        "write WINDOW RANGE '1 hour' SLIDE '5 minutes' ON <time>",
    ),
}

NAMES_OF_SYNTAX: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Star: ("*", "name the columns; only count(*) takes a star"),
    exp.NullSafeEQ: ("<=>", "write `a = b OR (a IS NULL AND b IS NULL)`"),
    exp.IntDiv: ("integer division", "arithmetic is + - * /"),
    exp.ILike: ("ILIKE", "write lower(x) LIKE 'text%'"),
    exp.Escape: ("ESCAPE", "a backslash escapes % and _"),
    exp.Distinct: (
        "DISTINCT",
        "count(DISTINCT x) takes it, as do sum, avg, string_agg and array_agg(DISTINCT x, 9)",
    ),
    exp.Filter: ("FILTER", "it follows an aggregate: sum(x) FILTER (WHERE c)"),
    exp.Bracket: ("[ ]", "it follows a column: m['key'], a[0]"),
    exp.WithinGroup: (
        "WITHIN GROUP",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY x), percentile_disc and mode take it",
    ),
    exp.IgnoreNulls: ("IGNORE NULLS", "every aggregate skips nulls"),
    exp.RespectNulls: ("RESPECT NULLS", "every aggregate skips nulls"),
    exp.Order: ("ORDER BY in a function", "first and last go by time; min_by(x, y) and max_by(x, y) by any order"),
    exp.Window: ("OVER", "OVER stands behind an aggregate: sum(x) OVER name"),
    exp.Placeholder: ("a placeholder", "write the value"),
    exp.Tuple: ("a list of values", "only IN takes a list"),
}

FORBIDDEN: dict[TokenType, tuple[str, str]] = {
    TokenType.INTERVAL: ("INTERVAL is not allowed", "durations are quoted: RANGE '1 hour'"),
    TokenType.L_BRACE: ("substitutions are not allowed", "write the value"),
    TokenType.BLOCK_START: ("templates are not allowed", "write the value"),
    TokenType.PARAMETER: ("substitutions are not allowed", "write the value"),
    TokenType.PLACEHOLDER: ("placeholders are not allowed", "write the value"),
    TokenType.ARROW: ("-> is not allowed", ""),
    TokenType.COLON: (": is not allowed", ""),
    TokenType.PIPE_GT: ("|> is not allowed", "write one SELECT"),
    TokenType.SEMICOLON: ("a statement ends here", "one statement at a time"),
}

MEANT = {"mean": "avg", "average": "avg", "std": "stddev", "var": "variance"}

MEANT |= {"ucase": "upper", "lcase": "lower", "iff": "if", "iif": "if", "len": "length", "trunc": "date_trunc"}

MEANT |= {"regexp_matches": "regexp_like", "regexp": "regexp_like", "strptime": "to_timestamp", "log": "ln"}

MEANT |= {"percentile_cont": "percentile", "quantile": "percentile", "quantile_cont": "percentile"}

MEANT |= {"quantile_disc": "percentile_disc", "approx_quantile": "approx_percentile"}

MEANT |= {"approx_distinct": "approx_count_distinct", "arg_min": "min_by", "argmin": "min_by"}

MEANT |= {"arg_max": "max_by", "argmax": "max_by", "first_value": "first", "last_value": "last"}

MEANT |= {"geomean": "geometric_mean", "covariance": "covar_samp", "correlation": "corr", "skew": "skewness"}

MEANT |= {"collect_list": "collect_set", "list": "collect_set", "histogram": "histogram_numeric", "hll": "hll_sketch"}

MEANT |= {"kurtosis_pop": "kurtosis", "skewness_pop": "skewness", "arbitrary": "any_value"}

MEANT |= {"approx_set": "hll_sketch", "kll_sketch": "quantile_sketch", "kll_sketch_agg_float": "kll_sketch_agg_double"}

MEANT |= {"approx_median": "median", "approx_quantiles": "approx_percentile"}

MEANT |= {"logical_and": "bool_and", "logical_or": "bool_or"}

CALLABLE = (
    *(
        "abs",
        "asin",
        "ceil",
        "ceiling",
        "char_length",
        "coalesce",
        "concat",
        "cos",
        "date_diff",
        "date_part",
        "date_trunc",
        "datediff",
    ),
    *("datepart", "day"),
    *(
        "dayofmonth",
        "dayofweek",
        "dayofyear",
        "exp",
        "floor",
        "from_utc_timestamp",
        "greatest",
        "hour",
        "if",
        "ifnull",
        "least",
        "left",
    ),
    *("length", "ln", "lower", "ltrim", "minute", "mod", "month", "nullif", "nvl", "pow", "power", "quarter"),
    *("regexp_like", "replace", "right", "rlike", "round", "rtrim", "second", "sin", "split_part", "sqrt", "substr"),
    *(
        "substring",
        "timestampdiff",
        "to_date",
        "to_timestamp",
        "trim",
        "try_divide",
        "upper",
        "weekday",
        "weekofyear",
        "year",
    ),
)
"""Functions of single values by the names that they are called by."""

OF_GROUPS = ("grouping_id",)
"""Functions of an answer's group, by the names that they are called by."""

READ_BY_SQLGLOT = ("cast", "try_cast", "extract")
"""Calls with words between their arguments: those reach sqlglot under their own names."""

BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "mod", exp.DPipe: "concat",
}  # fmt: skip

FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Form:
    """The form of a function: the first ``least`` of its ``roles`` are required.

    ``function`` is the aggregate that answers it. ``error`` and ``k`` apply to a call that names none.
    """

    function: str
    roles: tuple[str, ...]
    least: int
    error: Decimal | None = None
    k: Decimal | None = None

    @property
    def counts(self) -> str:
        """The number of arguments of the function, as a phrase for messages."""
        most = len(self.roles)
        return f"{self.least} to {most} arguments" if self.least < most else f"{most} argument" + "s" * (most > 1)


_ROLES = {
    "value": ("x",),
    "value+time": ("x",),
    "value+by": ("x", "y"),
    "number+number": ("x", "y"),
    "value+fraction": ("x", "fraction"),
    "value+fractions": ("x", "fractions"),
    "value+k": ("x", "k"),
    "value+lgk": ("x", "lgk"),
    "value+entries": ("x", "lgk"),
    "value+size": ("x", "k"),
    "state": ("condition", "longest"),
    "ordered": ("x",),
    "ordered+k": ("x", "k"),
    "ordered+separator": ("x", "separator"),
}
"""Roles of arguments by the signature of an aggregate: ``x``, ``y`` and ``condition`` are expressions, all others
values."""

_QUANTILE = Form("percentile_disc", ("x", "fraction", "accuracy"), 2, LEAST_ERROR)

FORMS = {
    **{
        name: Form(name, roles := _ROLES[form.signature], len(roles) - (form.default is not None), k=form.default)
        for name, form in AGGREGATES.items()
    },
    "count_if": Form("count", ("x",), 1),
    "time_while": Form("time_while", _ROLES["state"], 1),
    "reached": Form("reached", ("step",), 1),
    "array_agg": Form("collect_set", ("x", "k"), 2),
    "approx_count_distinct": Form("count_distinct", ("x", "error"), 1, Decimal("0.05")),
    "approx_percentile": _QUANTILE,
    "percentile_approx": _QUANTILE,
    "approx_top_k": Form("top_k", ("x", "k"), 1, Decimal("0.01"), Decimal(5)),
}
"""Every aggregate as written. Approximations have Spark's names and defaults, except for the accuracy of a percentile
(Spark: 10,000, here the most accurate one allowed) and the error of ``approx_top_k``, which Spark bounds by the number
of its counters.
"""

PARAMETERS = {"fraction": "HDL-214", "fractions": "HDL-214", "k": "HDL-215", "lgk": "HDL-215"}

RANGES = {
    "HDL-214": "0.5 is the median, 0.99 the value that one in a hundred exceeds",
    "HDL-215": "top_k(x, 10) has the ten most frequent values, hll_sketch(x, 12) is of 4096 registers",
    "HDL-216": "0.01 permits one per cent, an accuracy of 100 the same; at best 0.001, and an accuracy of 10000",
}

SEVERAL = {
    name: replace(form, function=several, roles=("x", "fractions", *form.roles[2:]))
    for name, form in FORMS.items()
    if (several := {"percentile": "percentiles", "percentile_disc": "percentiles_disc"}.get(form.function))
}
"""Aggregates that answer percentiles with several fractions, ``array(0.5, 0.9)``."""

DISTINCT_FORMS = {
    "count": "count_distinct",
    "array_agg": "collect_set",
    "sum": "sum_distinct",
    "avg": "avg_distinct",
    "last_k": "last_distinct",
    **{name: name for name in ("min", "max", "bool_and", "bool_or")},
}
"""The functions that take DISTINCT, and what then answers them."""

ORDERED = {name for name, form in AGGREGATES.items() if form.signature.startswith("ordered+")}
"""The aggregates whose arguments end with ORDER BY."""

WITHIN_GROUP = {"percentile_cont": "percentile", "percentile_disc": "percentile_disc", "mode": "mode"}
"""The functions that take WITHIN GROUP (ORDER BY x), and what they are."""

OPAQUE = {*FORMS, *CALLABLE, *OF_GROUPS, *MEANT, "array"}

MOMENTS = {
    exp.DType.DATE: DATE,
    exp.DType.TIMESTAMP: TIMESTAMP,
    exp.DType.TIMESTAMPTZ: TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: TIMESTAMP,
}

OPERANDS = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
}

QUERY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}", re.ASCII)

LEFT_OUT = "HDL-122"
"""The code of a query whose stream is declared but cannot be read."""

_MOST_COMPARED = 256
"""Known names that a wrong name is compared with, to suggest a correction."""

RESERVED = (
    *("window_start", "window_end", "instant", "position", "error", "query"),
    *("revision", "plan_version", "run_id", "fingerprint"),
)
"""Columns that answers have, or may have, in addition to the query's; neither outputs nor group columns have such
names.
"""

MOST_PROBLEMS = 32
"""Findings about one query that are reported, the first ones."""


_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters that nobody sees, or that make a text look like another: controls, zero width, direction of writing, tags,
halves of characters. The joiners U+200C and U+200D are not among them: some scripts need them in literals."""


def check_characters(text: str, start: int) -> None:
    """Refuse characters that nobody sees; ``start``: where the text begins."""
    match = _UNSEEN.search(text)
    if match is not None:
        message = f"the character U+{ord(match[0]):04X} cannot be seen and is not allowed"
        raise Refused("HDL-119", message, "remove it", start + match.start())


def written_name(name: str) -> str:
    """A name as it has to be written."""
    return name if name.isidentifier() else f"`{name}`"


def without_spaces(name: str) -> str:
    """A name of several words as columns of answers have it: ``total sales`` as ``total_sales``."""
    words = name.split(" ")
    return "_".join(words) if all(words) and "_".join(words).isidentifier() else name


def resolve_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant, as Spark resolves: case does not matter unless two names differ by it."""
    known = list(known)
    if name in known:
        return name
    same = [candidate for candidate in known if candidate.lower() == name.lower()]
    return same[0] if len(same) == 1 else None


def did_you_mean(name: str, known: Iterable[str], what: str) -> str:
    """The hint for an unknown name: the nearest ones of the first that are known."""
    return meant(name, itertools.islice(known, _MOST_COMPARED), what)
