"""Stored state that look-ups are answered from: the groups, and the spans of time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import ends_of, has_instant, instants, longest_pause, starts_of
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, Window
from spark_jobs.results.rows import typed
from spark_jobs.windows.lookups.kernels import Group, Longs, Span, unknown_group


class StoredGroups:
    """The ``size`` groups of a query, numbered in the order of ``columns``: for each of its group columns the groups'
    values (size,) as texts."""

    def __init__(self, query: ACQ, columns: Sequence[pa.StringArray], size: int) -> None:
        self.query, self.columns, self.size = query, columns, size

    @cached_property
    def values(self) -> list[Group]:
        """The groups as tuples of their values in the query's order."""
        columns = [
            typed(column, type).to_pylist() for column, (_, type) in zip(self.columns, self.query.group_by, strict=True)
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * self.size

    @cached_property
    def numbers(self) -> dict[Group, int]:
        """The number of each group; NaN is one value."""
        return {_hashable(group): number for number, group in enumerate(self.values)}

    def number(self, group: Group) -> int:
        """The number of a group. Raises HDL-605 for one that has no stored partials."""
        try:
            return self.numbers[_hashable(group)]
        except (KeyError, TypeError) as error:
            raise unknown_group(self.query, [group]) from error

    def numbered(self, groups: Any) -> Longs:
        """The numbers (n,) of groups, which are given as tuples or as numbers. Raises HDL-605."""
        if not isinstance(groups, np.ndarray) or groups.dtype == object:
            groups = [group if isinstance(group, (int, np.integer)) else self.number(tuple(group)) for group in groups]
        numbers = np.ascontiguousarray(groups, dtype=np.int64).reshape(-1)
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < self.size):
            wrong = int(numbers[(numbers < 0) | (numbers >= self.size)][0])
            raise HeddleError("HDL-605", f"{self.query.name} has no group number {wrong}", f"{self.size} groups")
        return numbers


def _hashable(group: Group) -> Group:
    return tuple("NaN" if isinstance(value, float) and value != value else value for value in group)


class StoredSpans:
    """The spans [begin, end) of time, microseconds, ascending, of which all partial rows of a query are stored."""

    def __init__(self, query: str, spans: Sequence[Span]) -> None:
        self.query, self.spans = query, list(spans)

    def check(self, start: int, end: int) -> None:
        """Raises HDL-604 unless [start, end) is stored."""
        if any(first <= start and end <= last for first, last in self.spans):
            return
        description = f"{self.query}: {format_instant(start)} .. {format_instant(end)}"
        if not self.spans:
            raise HeddleError("HDL-604", f"{description} is not stored: nothing is")
        shown = ", ".join(f"{format_instant(first)} .. {format_instant(last)}" for first, last in self.spans[:5])
        shown += ", ..." if len(self.spans) > 5 else ""
        reason = "has fragments that are not stored"
        if start < self.spans[0][0]:
            reason = "begins before the first stored fragment"
        elif end > self.spans[-1][1]:
            reason = "ends after the last stored fragment"
        raise HeddleError("HDL-604", f"{description} {reason}", f"stored: {shown}")

    def check_windows(self, moments: Longs, window: Window) -> None:
        """Raise HDL-604 for the first of some instants whose window is not stored. ``window``: the query's, or one
        from a request.
        """
        starts, ends = starts_of(window, moments), ends_of(window, moments)
        wrong = np.flatnonzero(~self.inside(moments, window))
        if len(wrong):
            self.check(int(starts[wrong[0]]), int(ends[wrong[0]]))

    def check_between(self, window: Window, begin: int, end: int) -> None:
        """Raises HDL-604 unless the windows of all instants in (begin, end] are stored, for the first that is not.
        ``window``: a regular one. O(spans), however many windows there are."""
        at = begin
        for first, last in [*self.spans, (end, end)]:
            # the windows of these instants lie in the span
            low, high = first + window.reach - 1, last + window.ago
            if has_instant(window, at, min(low, end)):
                missing = instants(window, at, at + longest_pause(window))
                self.check(*(int(missing[0]) - before for before in (window.reach, window.ago)))
            at = max(at, high) if low < high else at

    def inside(self, moments: Longs, window: Window) -> NDArray[np.bool_]:
        """Return whether the window of each instant (n,) is stored."""
        starts, ends = starts_of(window, moments), ends_of(window, moments)
        inside = np.zeros(len(moments), dtype=bool)
        for first, last in self.spans:
            inside |= (starts >= first) & (ends <= last)
        return inside


class StoredLookups:
    """Look-ups of one query, of whatever kind its windows are: its stored groups, and spans of time.

    ``columns``: for each of its group columns the values (size,) of its ``size`` groups, as texts.
    """

    def __init__(self, query: ACQ, columns: Sequence[pa.StringArray], size: int, stored: Sequence[Span]) -> None:
        self.query = query
        self._groups, self._spans = StoredGroups(query, columns, size), StoredSpans(query.name, stored)

    @property
    def groups(self) -> list[Group]:
        """The groups that are stored, as values in the query's order."""
        return self._groups.values

    @property
    def stored(self) -> list[Span]:
        """The spans of time that are stored."""
        return self._spans.spans

    def number(self, group: Group) -> int:
        """The number of a group. Raises HDL-605 for one that has no stored partials."""
        return self._groups.number(group)

    def _requested(self, at: Any, groups: Any) -> tuple[Longs, Longs, tuple[int, ...]]:
        """Return the instants and the group numbers of a batch of look-ups, and the shape of its results."""
        times = np.asarray(at)
        if np.issubdtype(times.dtype, np.datetime64):
            times = times.astype("datetime64[us]")
        times = np.ascontiguousarray(times.astype(np.int64, copy=False)).reshape(-1)
        if groups is None:
            size = self._groups.size
            return np.tile(times, size), np.repeat(np.arange(size), len(times)), (size, len(times))
        numbers = self._groups.numbered(groups)
        if numbers.shape != times.shape:
            raise ValueError(f"{len(times)} instants, {len(numbers)} groups")
        return times, numbers, times.shape
