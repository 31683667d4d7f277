"""Queries as SQL that all engines read: expressions, aggregates over events, and over what fragments have of them.

Ways over *fragments* group the events once, at paired fragments (two a slide) or at the greatest common divisor of
range and slide where that cuts no more often, and then combine groups into windows.

References: paired windows: Krishnamurthy, Wu, Franklin, "On-the-fly sharing for streamed aggregation", SIGMOD 2006.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.workload.values import ACQ, Call, Column, Expression, Output, Window


def sql(expression: Expression) -> str:
    """An expression over numbers and strings as SQL that Spark, DuckDB, Polars and Flink all read."""
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Call):
        return _call(expression.function, [sql(argument) for argument in expression.arguments])
    value = expression.value
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _call(function: str, arguments: Sequence[str]) -> str:
    if function == "in":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if len(arguments) == 1:
        return {"not": "(NOT {})", "neg": "(-{})", "is_null": "({} IS NULL)"}[function].format(arguments[0])
    operator = {"!=": "<>"}.get(function, function.upper())
    return "(" + f" {operator} ".join(arguments) + ")"


def plain(output: Output) -> str:
    """An output column over events."""
    function = {"stddev": "stddev_samp"}.get(output.function, output.function)
    return f"{function}({'*' if output.argument is None else sql(output.argument)})"


@dataclass(frozen=True)
class Recipe:
    """How an aggregate comes out of groups: its states over events, as (SQL, how two combine); the answer of those."""

    states: tuple[tuple[str, str], ...]
    answer: str


RECIPES = {
    "count": Recipe((("count({})", "sum"),), "{}"),
    "sum": Recipe((("sum({})", "sum"),), "{}"),
    "avg": Recipe((("sum({})", "sum"), ("count({})", "sum")), "(CAST({} AS DOUBLE) / {})"),
    "min": Recipe((("min({})", "min"),), "{}"),
    "max": Recipe((("max({})", "max"),), "{}"),
    "stddev": Recipe(
        (("count({})", "sum"), ("sum({0})", "sum"), ("sum({0} * {0})", "sum")),
        "CASE WHEN {0} > 1 THEN sqrt(greatest({2} - {1} * {1} / {0}, 0) / ({0} - 1)) END",
    ),
}


def states_of(queries: Sequence[ACQ]) -> dict[str, str]:
    """The states that some queries need: SQL over events, and how two of them combine."""
    states: dict[str, str] = {}
    for output in (output for query in queries for output in query.outputs):
        argument = "*" if output.argument is None else sql(output.argument)
        states |= {lift.format(argument): combine for lift, combine in RECIPES[output.function].states}
    return states


def answer_of(output: Output, names: Mapping[str, str]) -> str:
    """An output column over states, whose names are given."""
    argument = "*" if output.argument is None else sql(output.argument)
    recipe = RECIPES[output.function]
    return recipe.answer.format(*(names[lift.format(argument)] for lift, _ in recipe.states))


def groups_of(query: ACQ) -> list[str]:
    return [name for name, _ in query.group_by]


@dataclass(frozen=True)
class Fragments:
    """Fragments of one query, numbered: ``a_slide`` of them in a slide, window k holds the ``a_window`` ones from
    number ``k * a_slide`` on. ``second``: where the second of a slide starts (microseconds); None if all have one
    length."""

    a_slide: int
    a_window: int
    slide: int
    second: int | None

    @classmethod
    def of(cls, window: Window) -> Fragments:
        full_slides, remainder = divmod(window.range, window.slide)
        step = math.gcd(window.range, window.slide)
        if window.slide // step <= 2:
            return cls(window.slide // step, window.range // step, window.slide, None)
        return cls(2, 2 * full_slides + 1, window.slide, remainder)

    def number(self, time: str, divide: str) -> str:
        """SQL of the number of an instant (microseconds); ``divide`` is the operator of integer division."""
        if self.second is None:
            return f"{time} {divide} {self.slide // self.a_slide}"
        return f"{time} {divide} {self.slide} * 2 + CAST({time} % {self.slide} >= {self.second} AS BIGINT)"
