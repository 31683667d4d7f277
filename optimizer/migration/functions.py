"""The functions of Spark and Flink under Heddle's names, and what is worth knowing of those that differ."""

from __future__ import annotations

from sqlglot import exp

from optimizer.language.words import FORMS, MEANT
from optimizer.migration.words import Dialect, function_of

RENAMED = {
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "ceiling": "ceil",
    "first_value": "first",
    "last_value": "last",
    "mean": "avg",
    "std": "stddev",
    "var": "variance",
    "lcase": "lower",
    "ucase": "upper",
    "pow": "power",
    "log": "ln",
    "rlike": "regexp_like",
    "regexp": "regexp_like",
    "percentile_cont": "percentile",
    "arg_min": "min_by",
    "arg_max": "max_by",
}
"""Names that mean the same, by theirs. ``log`` only where it has one argument."""

AGGREGATING = frozenset({*FORMS, *MEANT, *RENAMED, "count_if", "countif", "collect_set", "collect_list", "listagg"})
"""Names that may aggregate; the language itself decides which of them it has."""

SCALAR = frozenset(
    {"ifnull", "nvl", "ucase", "lcase", "length", "len", "char_length", "character_length", "substr", "substring"}
    | {"ceiling", "ceil", "pow", "power", "log", "ln", "rlike", "regexp", "array", "if", "coalesce"}
)

BY_TIME = frozenset({"first", "last"})

JOINED_BY_TIME = frozenset({"listagg", "string_agg"})
"""Aggregates that join texts, in the order of time unless one is given."""


def rename(call: exp.Anonymous, dialect: Dialect) -> None:
    """Give a call Heddle's name, and its arguments as Heddle takes them, in place."""
    name, arguments = function_of(call.name), call.expressions
    if name == "split_index" and dialect is Dialect.flink and len(arguments) == 3 and arguments[2].is_int:
        # Flink counts from 0
        call.set("expressions", [*arguments[:2], exp.Literal.number(int(arguments[2].name) + 1)])
        name = "split_part"
    elif name in ("first", "last") and dialect is Dialect.timescale and len(arguments) == 2:
        name = "min_by" if name == "first" else "max_by"
    elif name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Literal):
        call.set("expressions", [exp.Star()])
    elif name != "log" or len(arguments) == 1:
        name = RENAMED.get(name, name)
    call.set("this", name)


def calls_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is a call that aggregates rows."""
    if not isinstance(node, exp.Anonymous):
        return False
    name = function_of(node.name)
    return name in AGGREGATING and name not in SCALAR


def divides_whole_numbers(node: exp.Expr) -> bool:
    """Return whether Flink may round a node that Heddle does not: a division or a mean without a decimal point in
    it.
    """
    if isinstance(node, exp.Div) or (isinstance(node, exp.Anonymous) and function_of(node.name) == "avg"):
        fractions = (part for part in node.find_all(exp.Literal) if not part.is_string and not part.is_int)
        casts = (part for part in node.find_all(exp.Cast, exp.TryCast) if part.args["to"].this in _FRACTIONS)
        return not any(fractions) and not any(casts)
    return False


_FRACTIONS = (exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.DECIMAL)
