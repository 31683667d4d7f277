"""Rows of answers for groups that have none at an instant, so that a series has no gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import instants, starts_of
from optimizer.workload.values import ACQ, EARLIEST
from spark_jobs.results.relations import relation
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.plans import definitions, planned
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse

MOST = 20_000_000
"""Rows of a filled table."""


def filled(
    warehouse: Warehouse, query: str, answers: pa.Table, value: Decimal, begin: int | None, end: int | None
) -> pa.Table:
    """The ``answers`` of a query that :func:`spark_jobs.results.read.read` gave for (begin, end], with a row for each
    of their groups at every published instant: numbers that are missing are ``value``, all else is null.

    Raises HDL-549 for a query whose missing rows have another reason (HAVING, LIMIT, windows of rows, a refresh bound),
    for a value that a column cannot hold, and for more than :data:`MOST` rows.
    """
    definition = definitions(warehouse, query)[query][-1].query
    _check(definition)
    due, starts = _due(warehouse, definition, begin, end)
    names = relation(warehouse, query).named("group")
    groups = answers.group_by(names, use_threads=False).aggregate([]) if names else pa.table({})
    size = len(groups) if names else int(len(answers) > 0 or len(due) > 0)
    if size * len(due) > MOST:
        message = f"{query} has {size:,} groups at {len(due):,} instants: more than {MOST:,} rows"
        raise HeddleError("HDL-549", message, "read a shorter time: --from and --to")
    number = _numbers(answers, groups, names)
    ends = due - definition.window.ago
    at = pc.cast(answers["window_end"], INSTANT).cast(pa.int64()).to_numpy()
    place = np.searchsorted(ends, at)
    is_there = np.zeros((max(size, 1), len(due)), dtype=bool)
    known = (place < len(due)) & (ends[np.minimum(place, max(len(due) - 1, 0))] == at) if len(due) else place < 0
    is_there[number[known], place[known]] = True
    group, instant = np.nonzero(~is_there[:size])
    missing = _rows(answers, definition, groups, names, group, (starts[instant], due[instant]), value)
    together = pa.concat_tables([answers, missing])
    return together.sort_by([(name, "ascending") for name in ("window_end", *names)])


def _check(query: ACQ) -> None:
    """Refuse a query of which a row may be missing though its window has events, or whose instants do not follow."""
    reasons = {
        "HAVING leaves groups out": bool(query.having),
        "LIMIT leaves groups out": query.top is not None,
        f"its windows are of {query.kind.words}": not query.kind.has_instants,
        "its schedule chooses the instants": query.window.at_most is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            hint = "a missing row does not say that there were no events: leave --fill out"
            raise HeddleError("HDL-549", f"{query.name} has no series to fill: {reason}", hint)


def _due(
    warehouse: Warehouse, query: ACQ, begin: int | None, end: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The instants in (begin, end] of intervals that were published for a query, ascending, and the starts of their
    windows."""
    versions = {row.plan_version for row in planned(warehouse, ds.field("query") == query.name)}
    pieces = []
    for row in publish_log.standing(publish_log.publications(warehouse)):
        failed = any(each["query"] == query.name and each["severity"] == "error" for each in row.record.diagnostics)
        if row.plan_version not in versions or query.stream in row.record.failed or failed:
            continue
        first = row.begin if begin is None else max(row.begin, begin)
        last = row.end if end is None else min(row.end, end)
        if first < last:
            at = instants(query.window, first, last)
            window = query.window.from_origin(row.record.origins.get(query.stream, EARLIEST))
            pieces.append(np.stack([at, starts_of(window, at)]))
    every = np.concatenate([np.zeros((2, 0), dtype=np.int64), *pieces], axis=1)
    due, chosen = np.unique(every[0], return_index=True)
    return due, every[1][chosen]


def _numbers(answers: pa.Table, groups: pa.Table, names: Sequence[str]) -> NDArray[np.int64]:
    """The number of the group of each answer (n,)."""
    if not names:
        return np.zeros(len(answers), dtype=np.int64)
    known = {values: number for number, values in enumerate(_values(groups, names))}
    return np.array([known[values] for values in _values(answers, names)], dtype=np.int64)


def _values(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of each row in some columns; NaN is one value."""
    columns = [["NaN" if value != value else value for value in table[name].to_pylist()] for name in names]
    return zip(*columns, strict=True)


def _rows(
    answers: pa.Table,
    query: ACQ,
    groups: pa.Table,
    names: Sequence[str],
    group: NDArray[np.int64],
    windows: tuple[NDArray[np.int64], NDArray[np.int64]],
    value: Decimal,
) -> pa.Table:
    """Rows of some groups (n,) in some ``windows``, their starts and instants (n,), in the columns of the answers."""
    starts, due = windows
    times = {"window_start": starts, "window_end": due - query.window.ago, "instant": due}
    columns = []
    for field in answers.schema:
        if field.name in names:
            columns.append(groups[field.name].take(pa.array(group)).cast(field.type))
        elif field.name in times:
            columns.append(pa.array(times[field.name]).cast(INSTANT).cast(field.type))
        elif field.name != "error" and _is_number(field.type):
            columns.append(pa.array([_of_type(value, field)] * len(due), field.type))
        else:
            columns.append(pa.nulls(len(due), field.type))
    return pa.table(columns, schema=answers.schema)


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _of_type(value: Decimal, field: pa.Field) -> Any:
    """The value as a column holds it. Raises HDL-549."""
    if pa.types.is_floating(field.type):
        return float(value)
    is_whole = value == value.to_integral_value()
    try:
        if is_whole or not pa.types.is_integer(field.type):
            return pa.scalar(int(value) if pa.types.is_integer(field.type) else value, field.type).as_py()
    except (pa.ArrowException, OverflowError):
        pass
    hint = "give a number that all columns of numbers can hold: --fill 0"
    raise HeddleError("HDL-549", f"the column {field.name} ({field.type}) cannot hold {value}", hint)
