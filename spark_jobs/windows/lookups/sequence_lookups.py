"""Answers on demand of event sequences: at any instant, or over any window of time, from stored events.

The rows of a synopsis of event sequences hold the events themselves (:mod:`spark_jobs.windows.sequences.lifting`),
so a window need not end at an edge of fragments. Events are loaded and put in order by key and time once. A look-up
finds those of its window and its groups with two searches a key. Matching (:mod:`optimizer.sequences.answering`)
and lowering (:mod:`spark_jobs.windows.sequences.answers`) are those of a run, so an answer on demand is the one
that would be published.

Many look-ups are answered a *block* of windows at a time: one pass over the events of the requested groups, and
then one step from instant and group to the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.states import carrier_of
from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.errors.diagnostics import HeddleError
from optimizer.sequences import event_kernels
from optimizer.sequences.answering import answers
from optimizer.sequences.events import Attribute, Events
from optimizer.sequences.matches import SequenceQuery
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import instants, newest_instant, newest_instants
from optimizer.workload.values import ACQ, Condition, Window
from spark_jobs.results.read import typed_answers, typed_rows
from spark_jobs.results.rows import group_values
from spark_jobs.store.warehouse.schemas import ANSWERS
from spark_jobs.windows.finals.window_query import seek
from spark_jobs.windows.lookups.kernels import DTYPES, Answered, Group, Longs, Span
from spark_jobs.windows.lookups.stored import StoredLookups
from spark_jobs.windows.sequences.answers import (
    Rolled,
    group_key,
    lowered,
    lowered_answers,
    numbered_groups,
    rolled,
    sequence_queries,
    side_by_side,
    single_windows,
)
from spark_jobs.windows.sequences.encoding import Decoded, sequenced_of

BLOCK_WINDOWS = 256
"""Minimum number of windows that are answered together, to share a pass; at least four times as many as overlap."""

BLOCK_ANSWERS = 1 << 22
"""Groups times windows of a block, at most: the table by which look-ups find their answers."""

KEPT_ANSWERS = 1 << 20
"""Approximate number of answers that are kept for the next look-ups of one group and instant; the oldest are
dropped first.
"""


class SequenceLookups(StoredLookups):
    """Look-ups of one query over sequences of stored events; made by :meth:`Reader.query`.

    Groups, instants and errors are as in :class:`spark_jobs.windows.lookups.lookups.Lookups`. All loaded events
    stay ``decoded`` in memory: 28 bytes each, and 48 for each attribute that is aggregated. Not safe for several
    threads at once.
    """

    def __init__(self, query: ACQ, synopsis: Synopsis, decoded: Decoded, stored: Sequence[Span]) -> None:
        texts, of_key = numbered_groups([group_key(synopsis, query, key) for key in decoded.keys])
        super().__init__(query, group_values(pa.array(texts, pa.string()), len(query.group_by)), len(texts), stored)
        self.synopsis = synopsis
        self._sequenced = sequenced_of(synopsis)
        self._asked = self._sequences(query)
        self._decoded, self._keys, self._of_key = decoded, texts, of_key
        self._runs = event_kernels.runs_of(decoded.events.key)
        self._by_group = np.argsort(of_key, kind="stable")
        self._first = np.searchsorted(of_key[self._by_group], np.arange(len(texts) + 1))
        window = query.window
        self._block = max(BLOCK_WINDOWS, 4 * -(-window.range // window.slide))
        self._phase = window.each[0].phase
        self._known: dict[tuple[int, int], dict[int, tuple[Any, ...]]] = {}
        self._kept = 0

    def of_groups(self, groups: Sequence[Group]) -> SequenceLookups:
        """Look-ups of some groups alone. Raises HDL-605 for an unknown one."""
        numbers = np.array([self.number(group) for group in groups], dtype=np.int64)
        keys = np.flatnonzero(np.isin(self._of_key, numbers))
        events = _of_keys(self._decoded.events, self._runs, keys, None)
        names = [self._decoded.keys[key] for key in keys.tolist()]
        return SequenceLookups(self.query, self.synopsis, Decoded(events, names), self.stored)

    # ------------------------------------------------------------------------------------------ tables
    def at(self, instant: int, group: Group | None = None) -> pa.Table:
        """The answers of the newest instant that is not after the given one, as :func:`spark_jobs.results.read.read`
        returns them; ``group``: of this group alone. Raises HDL-604 and HDL-605."""
        return self._table(np.array([newest_instant(self.query.window, instant)]), group)

    def between(self, begin: int, end: int, group: Group | None = None) -> pa.Table:
        """The answers of all instants in (begin, end], by window and group. Raises HDL-604 if one is not stored."""
        window = self.query.window
        if window.at is not None or window.parts:
            return self._table(instants(window, begin, end), group)
        self._spans.check_between(window, begin, end)
        first, last = (newest_instant(window, at) for at in (begin + window.slide, end))
        matched = self._found(self.query, self._asked, self._chosen(group), first, last) if first <= last else None
        return typed_answers(self.query, self._rows(self.query, matched))

    def window(
        self, start: int, end: int, having: bool | Sequence[Condition] = True, group: Group | None = None
    ) -> pa.Table:
        """The query's outputs over [start, end), whatever its range and slide; columns as of :meth:`at`, without
        ``instant``.

        ``having``: the query's own thresholds (True), none (False), or these, of outputs whose events and attributes
        are stored (else HDL-608). Raises HDL-604, HDL-605, HDL-606 for an empty window, and HDL-609 for a query over
        several windows.
        """
        self._check_one_window()
        if end <= start:
            raise HeddleError("HDL-606", "the window is empty", "its end must be after its start")
        if isinstance(having, bool):
            having = self.query.having if having else ()
        query = replace(self.query, window=Window(end - start, end - start), having=tuple(having))
        try:
            sequences = self._sequences(query)
        except ValueError as error:
            message = "the stored events do not hold what HAVING compares"
            raise HeddleError("HDL-608", message, "compare outputs of the query") from error
        self._spans.check(start, end)
        # a window begins at a multiple of its slide: at 0 of an axis that begins with it
        matched = self._found(query, sequences, self._chosen(group), end - start, end - start, start)
        if matched is not None:
            matched = replace(matched, instants=matched.instants + start)
        return typed_answers(query, self._rows(query, matched))

    def _sequences(self, query: ACQ) -> list[list[SequenceQuery]]:
        """Sequences to match for each of a query's windows."""
        return [sequence_queries(single, self._sequenced) for single in single_windows(query)]

    def _table(self, moments: Longs, group: Group | None) -> pa.Table:
        """The answers of some instants, ascending."""
        self._spans.check_windows(moments, self.query.window)
        return typed_answers(self.query, self._rows(self.query, self._at_moments(self._chosen(group), moments)))

    def _chosen(self, group: Group | None) -> Longs | None:
        return None if group is None else np.array([self.number(group)])

    def _rows(self, query: ACQ, matched: Rolled | None) -> pa.Table:
        """Answers as rows of :data:`ANSWERS`, ascending by group within each day."""
        day_answers = [] if matched is None else lowered(query, self.synopsis, matched)
        return pa.Table.from_batches([answered.rows() for _, answered in day_answers], ANSWERS)

    # ---------------------------------------------------------------------------------------- matching
    def _at_moments(self, groups: Longs | None, moments: Longs) -> Rolled | None:
        """Matches in the windows of some instants of the query, ascending; as :meth:`_found`."""
        if len(moments) == 0:
            return None
        window, first, last = self.query.window, int(moments[0]), int(moments[-1])
        matched = self._found(self.query, self._asked, groups, first, last)
        if matched is None or len(moments) == (last - first) // window.slide + 1:
            return matched
        return matched.at(moments)

    def _found(
        self,
        query: ACQ,
        sequences: Sequence[Sequence[SequenceQuery]],
        groups: Longs | None,
        first: int,
        last: int,
        origin: int = 0,
    ) -> Rolled | None:
        """Matches of the ``sequences`` of a query in its windows of the instants in [first, last], in the time of the
        events less ``origin``; None if there are no events. ``groups`` (k,): only these, in this order.
        """
        keys, of_key, texts = np.arange(len(self._of_key)), self._of_key, self._keys
        if groups is not None:
            several = [self._by_group[slice(*self._first[group : group + 2])] for group in groups.tolist()]
            keys = np.concatenate([keys[:0], *several])
            of_key = np.repeat(np.arange(len(groups)), [len(each) for each in several])
            texts = [texts[group] for group in groups.tolist()]
        singles, events_of_windows = single_windows(query), []
        for single in singles:
            window = single.window
            # the executors see a historical window as one over the past as if it were now, and each as one that starts
            # at a multiple of the slide
            shift = window.ago - window.offset - origin
            span = first - window.phase - shift, last - window.offset - shift
            events = _of_keys(self._decoded.events, self._runs, keys, span)
            events_of_windows.append(replace(events, time=events.time + shift) if shift else events)
        if not any(map(len, events_of_windows)):
            return None
        windows: dict[int, Rolled] = {}
        for number, (single, events) in enumerate(zip(singles, events_of_windows, strict=True)):
            ends = first - single.window.offset - 1, last - single.window.offset
            each = answers(events, sequences[number], ends=ends)
            windows[number] = rolled(single, self._sequenced, texts, of_key, each)
        return side_by_side(query, windows)

    # ----------------------------------------------------------------------------------------- many at once
    def batch(self, at: Any, groups: Any = None) -> Answered:
        """Many look-ups at once: by output its values and whether each is an answer that is not null; as
        :meth:`spark_jobs.windows.lookups.lookups.Lookups.batch`. Raises HDL-604 and HDL-605."""
        times, numbers, shape = self._requested(at, groups)
        window, outputs = self.query.window, self.query.outputs
        moments = newest_instants(window, times)
        self._spans.check_windows(moments, window)
        columns: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {}
        for output in outputs:
            dtype = DTYPES[carrier_of(output.type)]
            values = np.full(len(times), None, dtype) if dtype is object else np.zeros(len(times), dtype)
            columns[output.name] = values, np.zeros(len(times), dtype=bool)
        place = (moments - self._phase) // window.slide
        block = place // self._block
        together = max(1, BLOCK_ANSWERS // self._block)
        order = np.lexsort((numbers // together, block))
        part = np.stack([block[order], numbers[order] // together])
        cuts = np.flatnonzero((part[:, 1:] != part[:, :-1]).any(axis=0)) + 1
        for rows in np.split(order, cuts) if len(order) else []:
            self._answer_block(int(block[rows[0]]), numbers[rows], place[rows], rows, list(columns.values()))
        return {name: (values.reshape(shape), valid.reshape(shape)) for name, (values, valid) in columns.items()}

    def _answer_block(
        self,
        block: int,
        numbers: Longs,
        places: Longs,
        rows: Longs,
        out: Sequence[tuple[NDArray[Any], NDArray[np.bool_]]],
    ) -> None:
        """The look-ups ``rows`` of one block: ``numbers`` of their groups and ``places`` of their windows."""
        window = self.query.window
        groups, number = np.unique(numbers, return_inverse=True)
        first, last = int(places.min()), int(places.max())
        begin, end = (place * window.slide + self._phase for place in (first, last))
        matched = self._found(self.query, self._asked, groups, begin, end)
        if matched is None:
            return
        group, instant, outputs, failed, _ = lowered_answers(self.query, self.synopsis, matched)
        if len(instant) == 0:
            return
        windows = last - first + 1
        answer = np.full(len(groups) * windows, -1, dtype=np.int32)
        at = (instant - self._phase) // window.slide - first
        answer[group * windows + at] = np.arange(len(group))
        chosen = answer[number * windows + places - first]
        has_answer = chosen >= 0
        rows, chosen = rows[has_answer], chosen[has_answer]
        for lowered_output, (values, valid) in zip(outputs, out, strict=True):
            known = lowered_output.valid if failed is None else lowered_output.valid & ~failed
            values[rows], valid[rows] = lowered_output.values[chosen], known[chosen]

    # ------------------------------------------------------------------------------------- one at a time
    def single(self, instant: int, *group: Any) -> tuple[Any, ...] | None:
        """Return the outputs of a group at the newest instant that is not after the given one (microseconds), as in
        the rows of :meth:`at`; None if there is no answer: no sequence in the window, or HAVING is not satisfied.

        The first look-up in a block of windows matches the whole block for its group; the next ones take a
        microsecond. Raises HDL-604 and HDL-605.
        """
        window = self.query.window
        number = self._groups.numbers.get(group)
        if number is None:
            number = self.number(group)
        place = (instant - self._phase) // window.slide
        known = self._known.get((number, place // self._block))
        if known is None:
            known = self._block_of(number, place // self._block)
        moment = place * window.slide + self._phase
        if moment not in known:
            self._spans.check(moment - window.reach, moment - window.ago)
        return known.get(moment)

    def _block_of(self, number: int, block: int) -> dict[int, tuple[Any, ...]]:
        """The answers of a group in a block of windows, by instant: those of windows that are stored."""
        window = self.query.window
        moments = (np.arange(self._block) + block * self._block) * window.slide + self._phase
        moments = moments[self._spans.inside(moments, window)]
        rows = self._rows(self.query, self._at_moments(np.array([number]), moments))
        table = typed_rows(self.query, rows).select([output.name for output in self.query.outputs])
        values = zip(*(column.to_pylist() for column in table.columns), strict=True)
        while self._known and self._kept > KEPT_ANSWERS:
            self._kept -= len(self._known.pop(next(iter(self._known)))) + 1
        self._kept += len(rows) + 1
        by_instant = dict(zip(pc.cast(rows["instant"], pa.int64()).to_pylist(), values, strict=True))
        self._known[number, block] = by_instant
        return by_instant


@numba.njit(cache=True)
def _bounds(time, runs, keys, begin, end, low, high):
    """The positions [low, high) of the events of each key with times in [begin, end)."""
    for i in range(len(keys)):
        first, last = runs[keys[i]], runs[keys[i] + 1]
        low[i] = seek(time, first, last, begin)
        high[i] = seek(time, low[i], last, end)


def _of_keys(events: Events, runs: Longs, keys: Longs, span: Span | None) -> Events:
    """The events of some keys (k,), renumbered in this order; ``span``: only events with times in [begin, end)."""
    low, high = runs[keys], runs[keys + 1]
    if span is not None:
        low, high = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.int64)
        _bounds(events.time, runs, keys, *span, low, high)
    sizes = high - low
    total = int(sizes.sum())
    if total == len(events) and len(keys) == len(runs) - 1 and (np.diff(keys) > 0).all():
        return events
    before = np.cumsum(sizes) - sizes
    rows = np.arange(total) + np.repeat(low - before, sizes)
    attributes = {name: _attribute(column, rows) for name, column in events.attributes.items()}
    key = np.repeat(np.arange(len(keys)), sizes)
    return Events(key, events.time[rows], events.type[rows], events.count[rows], attributes)


def _attribute(kept: Attribute, rows: Longs) -> Attribute:
    special = None if kept.special is None else kept.special[rows]
    total = kept.sum[0][rows], kept.sum[1][rows]
    return Attribute(kept.known[rows], total, kept.least[rows], kept.greatest[rows], special)


stamp_kernels(globals())
