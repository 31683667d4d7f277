"""Conventions of every engine that recomputes answers: the parts of outputs, comparisons, names of columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from optimizer.windows.alignment import ends_of, starts_of
from optimizer.workload.attribute_names import read_attribute
from optimizer.workload.grouping_sets import grouping_ids
from optimizer.workload.values import (
    ACQ,
    ANY_WINDOW,
    BOOLEAN,
    Call,
    Column,
    Literal,
    Output,
    Window,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_KEY = re.compile(r"\['(?:[^']|'')*'\]")
_TEXT = re.compile(r"'(?:[^']|'')*'")
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
    """A column's name in frames, which do not distinguish ``m['K']`` from ``m['k']``: capitals in keys of maps, and in
    texts of computed keys of joins, are numbers there.
    """
    return _texts_in(name).sub(lambda text: _CAPITAL.sub(lambda match: f"\\u{ord(match[0]):06x}", text[0]), name)


def from_spark(name: str) -> str:
    """Inverse of :func:`spark_name`."""
    return _texts_in(name).sub(lambda text: _NUMBER.sub(lambda match: chr(int(match[1], 16)), text[0]), name)


def _texts_in(name: str) -> re.Pattern[str]:
    return _KEY if read_attribute(name) is None else _TEXT


def fraction_of(output: Output) -> Decimal:
    """The fraction of a percentile; a median's is one half."""
    return Decimal("0.5") if output.parameter is None else output.parameter


def compared_outputs(query: ACQ) -> list[Output]:
    """The outputs that HAVING compares and that the order uses, under their names in recomputed rows."""
    return [replace(output, name=f"having {index}") for index, output in enumerate(query.compared)]


def recomputed_parts(output: Output) -> list[Output]:
    """The aggregates that an output takes, under the names that recomputed rows have them."""
    return [replace(part, name=f"{output.name} part {part.name}") for part in output.parts] or [output]


# ------------------------------------------------------------------------------------------------- grouping sets
SET = "heddle set"
"""The column with the number of the grouping set that an event is grouped by, once for each."""


def sets_with(query: ACQ, column: str) -> list[int]:
    """The numbers of the grouping sets of a query that have a group column."""
    ids = grouping_ids([name for name, _ in query.stored_group_by], query.sets)
    return [id for id, names in zip(ids, query.sets, strict=True) if column in names]


# -------------------------------------------------------------------------------- several windows in one answer
def over_column(number: int) -> str:
    """The name of the column that says whether an event is in the part of a window with a number."""
    return f"heddle over {number}"


def over_events(query: ACQ) -> ACQ:
    """A query over several windows as one over their hull: outputs take the events of their own part alone, by its
    :func:`over_column`.
    """
    if not query.window.parts:
        return query

    def over(output: Output) -> Output:
        if output.parts:
            return replace(output, parts=tuple(map(over, output.parts)))
        return output if output.window == ANY_WINDOW else _where(output, Column(over_column(output.window)))

    return query.with_outputs(over)


def _where(output: Output, condition: Column) -> Output:
    """An output over the events for which a condition holds: it takes null of the others."""
    if output.by is not None:
        assert output.by_type is not None
        return replace(output, by=Call("if", (condition, output.by, Literal(None, output.by_type))))
    value, type_ = output.argument, output.argument_type
    if value is None or type_ is None:
        value, type_ = Literal(True, BOOLEAN), BOOLEAN
    return replace(output, argument=Call("if", (condition, value, Literal(None, type_))), argument_type=type_)


def part_spans(window: Window, until: int) -> list[tuple[int, int]]:
    """The spans [start, end) in microseconds of each part of a window at the instant ``until``; none of a window
    without parts.
    """
    moment = np.array([until], dtype=np.int64)
    return [(int(starts_of(part, moment)[0]), int(ends_of(part, moment)[0])) for part in window.parts]
