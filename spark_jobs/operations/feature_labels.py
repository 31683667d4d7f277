"""Labels of a feature set: which of their columns are the moment and the keys, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.errors.diagnostics import count as number_of
from optimizer.workload.attributes import shown_column
from optimizer.workload.instants import parse_duration
from optimizer.workload.values import ACQ, Type
from spark_jobs.store.arrays.texts import flat
from spark_jobs.streams.sources.decoding import instants_of_column
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.splits import FIRST, LAST
from spark_jobs.windows.features.labels import KeyColumns
from spark_jobs.windows.features.moments import ACCURACIES, KNOWLEDGE, Longs, MomentRule

SEPARATOR = "__"
"""Separator of the name of a query and that of an output in the name of a feature."""

UPTO = "upto"
"""The instant up to which events count, as the name of a feature."""


@dataclass(frozen=True)
class FeatureRequest:
    """A request for features.

    Attributes
    ----------
    queries
        Names of queries, each once.
    at
        The column of the labels' moments.
    keys
        Names of columns of labels, with those of the group columns that they are; others match by their own names.
    rule
        Which events count for a label.
    with_upto
        Whether the features of each query have the instant up to which events count.
    """

    queries: tuple[str, ...]
    at: str
    keys: Mapping[str, str]
    rule: MomentRule
    with_upto: bool = False


def feature_request(
    queries: Sequence[str],
    at: str,
    keys: Mapping[str, str],
    accuracy: str = ACCURACIES[0],
    known: str = KNOWLEDGE[0],
    delay: str | None = None,
    with_upto: bool = False,
) -> FeatureRequest:
    """A request in the words of a user; ``delay`` as ``"5 minutes"``. Raises HDL-204 for a delay that is no duration,
    HDL-115 for a negative one, HDL-641 for other words, and a query or group column that is named twice."""
    for name, word, words in (("accuracy", accuracy, ACCURACIES), ("known", known, KNOWLEDGE)):
        if word not in words:
            raise HeddleError("HDL-641", f"{name} is {str(word)[:80]!r}", f"one of {', '.join(words)}")
    for what, each in (("query", list(queries)), ("group column", list(keys.values()))):
        twice = sorted({name for name in each if each.count(name) > 1})
        if twice:
            raise HeddleError("HDL-641", f"the {what} {twice[0]} is named twice", "name each once")
    span = 0 if delay is None else parse_duration(delay)
    if span < 0:
        raise HeddleError("HDL-115", "a delay is a duration, not negative", "e.g. '5 minutes'")
    rule = MomentRule(accuracy == "exact", known == "then", span)
    return FeatureRequest(tuple(queries), at, dict(keys), rule, with_upto)


def group_names(query: ACQ) -> list[str]:
    """The names of a query's group columns, as its answers have them, in the order of ``query.group_by``."""
    shown = [shown_column(name) for name, _ in query.group_by]
    return list(query.select) if len(query.select) == len(shown) else shown


def key_columns_of(query: ACQ, bucket_by: Sequence[str] | None = None) -> KeyColumns:
    """The key columns of the labels of a query: its group columns. ``bucket_by``: None: all decide the bucket."""
    names = tuple(name for name, _ in query.group_by)
    return KeyColumns(query.group_by, names if bucket_by is None else tuple(bucket_by))


@dataclass(frozen=True)
class LabelForm:
    """The columns of labels that features need: that of the moment, and of each group column of the queries the column
    of the labels that has its values."""

    at: str
    columns: Mapping[str, str]
    types: Mapping[str, Type]

    @classmethod
    def of(cls, request: FeatureRequest, queries: Sequence[ACQ], names: Sequence[str]) -> LabelForm:
        """The columns that a request means, among the ``names`` of those of the labels. Raises HDL-641 for what they do
        not have, or have twice."""
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise HeddleError("HDL-641", f"the labels have several columns {twice[0]}", "give each column one name")
        if request.at not in names:
            raise HeddleError("HDL-641", f"the labels have no column {request.at}", meant(request.at, names))
        for name in request.keys:
            if name not in names:
                raise HeddleError("HDL-641", f"the labels have no column {name}", meant(name, names))
        column_of = {group: name for name, group in request.keys.items()}
        known = {group for query in queries for group in group_names(query)}
        for group in request.keys.values():
            if group not in known:
                message = f"no query of the feature set is grouped by {group}"
                raise HeddleError("HDL-641", message, meant(group, sorted(known)))
        columns: dict[str, str] = {}
        types: dict[str, Type] = {}
        for query in queries:
            for shown, (group, type) in zip(group_names(query), query.group_by, strict=True):
                column = column_of.get(shown, shown)
                if column not in names:
                    message = f"{query.name} is grouped by {shown}, and the labels have no column {column}"
                    raise HeddleError("HDL-641", message, f"name the column that has it: --key COLUMN={shown}")
                if types.setdefault(group, type) != type or columns.setdefault(group, column) != column:
                    message = f"{query.name} has {shown} as {type}, another query as {types[group]}"
                    raise HeddleError("HDL-641", message, "make two feature sets of these queries")
        form = cls(request.at, columns, types)
        form._check_names(request, queries, names)
        return form

    def _check_names(self, request: FeatureRequest, queries: Sequence[ACQ], names: Sequence[str]) -> None:
        for name in (field.name for query in queries for field in feature_fields(query, request.with_upto)):
            if name in names:
                raise HeddleError("HDL-641", f"the labels have a column {name} already", "rename it")

    @property
    def read(self) -> list[str]:
        """The columns of the labels that are read."""
        return list(dict.fromkeys([self.at, *self.columns.values()]))

    def values(self, labels: pa.Table, first: int = 0) -> tuple[Longs, dict[str, pa.Array]]:
        """The moments (n,) of labels in microseconds, and the values (n,) of each group column in its type.

        ``first``: the number of the first row, for messages. Raises HDL-641 for values that are none of their type,
        HDL-644 for a moment that is missing or not in the years 1 to 9999.
        """
        moments = self._moments(_column(labels, self.at), first)
        values = {}
        for group, column in self.columns.items():
            values[group] = self._keys(_column(labels, column), column, self.types[group], first)
        return moments, values

    def _moments(self, column: pa.Array, first: int) -> Longs:
        if not _is_moment(column.type):
            message = f"column {self.at} of the labels has no moments: it is {column.type}"
            raise HeddleError("HDL-641", message, "give timestamps, dates, or texts in ISO 8601")
        try:
            moments = _micros(column)
        except pa.ArrowInvalid:
            row = next(at for at in range(len(column)) if not _can(_micros, column.slice(at, 1)))
            raise _wrong_row("HDL-644", self.at, first + row, column[row], "is no moment") from None
        if moments.null_count:
            row = int(np.flatnonzero(moments.is_null().to_numpy(zero_copy_only=False))[0])
            message = f"column {self.at} of the labels: {number_of(moments.null_count, 'moment')} missing"
            raise HeddleError("HDL-644", f"{message}, the first in row {first + row + 1}", "leave such rows out")
        times: Longs = moments.to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero((times < FIRST) | (times >= LAST))
        if len(wrong):
            row = int(wrong[0])
            raise _wrong_row("HDL-644", self.at, first + row, column[row], "is not in the years 1 to 9999")
        return times

    def _keys(self, column: pa.Array, name: str, type: Type, first: int) -> pa.Array:
        target = arrow_type(type)

        def cast(values: pa.Array) -> pa.Array:
            if type.name == "timestamp":
                return _micros(values).cast(target)
            if _family(values.type) != _family(target):
                raise pa.ArrowInvalid("another type")
            return values.cast(target)

        try:
            return cast(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            row = next((at for at in range(len(column)) if not _can(cast, column.slice(at, 1))), 0)
            raise _wrong_row("HDL-641", name, first + row, column[row], f"is no {type} ({column.type})") from None


def _column(labels: pa.Table, name: str) -> pa.Array:
    column = labels[name].combine_chunks()
    return flat(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column)


def _is_moment(type: pa.DataType) -> bool:
    return pa.types.is_timestamp(type) or pa.types.is_date(type) or _family(type) == "text"


def _family(type: pa.DataType) -> str:
    """Types whose values are alike."""
    if pa.types.is_integer(type) or pa.types.is_decimal(type):
        return "number"
    if pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return "text"
    return str(type)


def _micros(column: pa.Array) -> pa.Array:
    """Moments as microseconds, cut down to the microsecond. Raises ArrowInvalid."""
    return instants_of_column(column).cast(pa.int64())


def _can(convert: object, column: pa.Array) -> bool:
    try:
        convert(column)  # type: ignore[operator]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _wrong_row(code: str, column: str, row: int, value: pa.Scalar, what: str) -> HeddleError:
    try:
        shown = str(value.as_py())[:80]
    except (OverflowError, ValueError):
        # Python's times are of the years 1 to 9999
        shown = str(value.value)
    return HeddleError(code, f"row {row + 1} of the labels: {column} {shown!r} {what}", "correct it, or leave it out")


def feature_fields(query: ACQ, with_upto: bool) -> Iterator[pa.Field]:
    """The columns of a query's features."""
    for output in query.outputs:
        yield pa.field(f"{query.name}{SEPARATOR}{output.name}", arrow_type(output.type))
    if with_upto:
        yield pa.field(f"{query.name}{SEPARATOR}{UPTO}", pa.timestamp("us", "UTC"))
