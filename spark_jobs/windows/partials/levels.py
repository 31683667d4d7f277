"""Levels of partial aggregates: rows of days, months and years, combined from the fragments inside.

The cells of a window of years are those of its years, of the months before and after these, of the days before and
after those, and of the fragments at its two ends: some 230 in place of 105,120. A level is a synopsis of its own
(:func:`optimizer.synopses.synopsis.period_levels`), with its own rows and marks, derived from the next finer one. It
decides no answer: where it is missing, or of another state of the source, a run reads the rows below it.

- A run reads a period from its level if no window of the run begins or ends inside the period
  (:meth:`StoredLevels.of`). So the same cells serve all windows of the run, and no two of them overlap.
- A run closes periods that end before its interval (:meth:`StoredLevels.to_close`): days, :data:`BATCH` or more at
  once, then the months all of whose days are closed, then the years.
- Where fragments are replaced, the same commit drops the levels above them
  (:func:`spark_jobs.windows.partials.stored_coverage.store_coverage`).

Reference: Arasu & Widom, "Resource sharing in continuous sliding-window aggregates" (VLDB 2004), whose B-Int combines
windows from intervals of several lengths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from numpy.typing import NDArray

from optimizer.synopses.synopsis import Synopsis, period_levels
from optimizer.windows.alignment import (
    day_label,
    ends_of,
    instants,
    instants_between,
    longest_pause,
    newest_instant,
    starts_of,
)
from optimizer.windows.periods import PERIODS
from optimizer.workload.instants import DAY
from optimizer.workload.values import Window
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.splits import Split, Tokens
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.stored_coverage import coverage_under, missing_spans, overlap_of, stored_for
from spark_jobs.windows.partials.synopsis_work import LevelSpan, SynopsisWork

LONG = 62 * DAY
"""Length of a synopsis's longest window from which on it has levels: shorter ones read few days anyway."""

BATCH = 8
"""Days that are closed at once, at least: each time costs a commit, and each day that is not closed a file to open."""

MANY_INSTANTS = 1 << 12
"""Instants of a window up to which each end counts by itself; of more, the spans between the first and the last."""


def is_leveled(part: SynopsisWork) -> bool:
    """Return whether a synopsis is worth levels: it has queries whose windows are long."""
    return part.synopsis.kind.has_fragments and any(query.window.reach >= LONG for query in part.queries)


Cuts = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Spans [low, high] (n,) in which windows begin or end."""

NO_CUTS: Cuts = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def _cuts(part: SynopsisWork, begin: int) -> Cuts:
    """The spans in which windows with an instant after ``begin`` begin or end."""
    lows, highs = [NO_CUTS[0]], [NO_CUTS[1]]
    until = part.last_instant
    for window in dict.fromkeys(query.window for query in part.queries):
        many = instants_between(window, begin, until) > MANY_INSTANTS
        moments = _outermost(window, begin, until) if many else instants(window, begin, until)
        for each in window.each if len(moments) else ():
            for ends in (starts_of(each, moments), ends_of(each, moments)):
                lows.append(ends.min(keepdims=True) if many else ends)
                highs.append(ends.max(keepdims=True) if many else ends)
    return np.concatenate(lows), np.concatenate(highs)


def _outermost(window: Window, begin: int, until: int) -> NDArray[np.int64]:
    """The first and the last instant of a window in (begin, until]."""
    if window.at is not None:
        return instants(window, begin, until)[[0, -1]]
    first = instants(window, begin, begin + longest_pause(window))[0]
    return np.array([first, newest_instant(window, until)], dtype=np.int64)


@dataclass
class _Covered:
    """A part of the work, the ``spans`` of it that levels give, and the ``rest``; both ascending."""

    part: SynopsisWork
    cuts: Cuts = NO_CUTS
    spans: list[LevelSpan] = field(default_factory=list)
    rest: list[tuple[int, int]] = field(default_factory=list)

    def take(self, level: Synopsis, periods: Sequence[tuple[int, int]]) -> None:
        """Cover the rest by periods of a level, in which no window begins or ends."""
        lows, highs = self.cuts
        rest, firsts = list[tuple[int, int]](), [first for first, _ in periods]
        for begin, end in self.rest:
            at = begin
            for first, last in periods[bisect_left(firsts, begin) : bisect_left(firsts, end)]:
                if first < at or last > end or bool(((lows < last) & (highs > first)).any()):
                    continue
                self.spans.append(LevelSpan(level.fingerprint, first, last))
                rest += [(at, first)] if at < first else []
                at = last
            rest += [(at, end)] if at < end else []
        self.rest = rest
        self.spans.sort(key=lambda span: span.begin)


class StoredLevels:
    """The levels that are stored for some work, as of ``current``, and are of the sources as they are."""

    def __init__(self, warehouse: Warehouse, sources: Mapping[str, list[Split]], current: DeltaTable) -> None:
        self._warehouse, self._sources, self._current = warehouse, sources, current
        self._tokens: dict[str, Tokens] = {}
        self._pieces: dict[str, list[tuple[int, int, str]]] = {}

    def of(self, parts: Sequence[SynopsisWork], begin: int) -> list[SynopsisWork]:
        """The work for the instants after ``begin``, with the spans to be read from levels."""
        long = [_Covered(part, _cuts(part, begin)) for part in parts if is_leveled(part)]
        self._cover(long)
        by_part = {id(covered.part): tuple(_joined(covered.spans)) for covered in long}
        return [replace(part, levels=by_part[id(part)]) if id(part) in by_part else part for part in parts]

    def to_close(self, parts: Sequence[SynopsisWork], begin: int, is_filled: bool = True) -> list[FillRequest]:
        """Requests for periods that end until ``begin``, are not stored, and whose next finer cells are.

        ``is_filled``: fragments count if they are stored; False: all, as a run will store them. The work is what
        :meth:`of` returned.
        """
        long = [_Covered(replace(part, end=min(part.end, begin))) for part in parts if is_leveled(part)]
        long = [covered for covered in long if covered.part.begin < covered.part.end]
        self._cover(long, is_read=True)
        requests: list[FillRequest] = []
        for covered in long:
            part = covered.part
            days, *longer = period_levels(part.synopsis)
            lacking = [day for span in covered.rest for day in days.fragments.inside(*span)]
            if len(lacking) >= BATCH:
                runs = [run for run in _runs(lacking) if not is_filled or self._has_fragments(part.over(*run))]
                requests += [FillRequest(days, *run, stored=(part.synopsis,)) for run in runs]
            finer = days
            for level in longer:
                complete = set(self._periods(finer, [(part.begin, part.end)]))
                closed = set(self._periods(level, [(part.begin, part.end)]))
                open_periods = set(level.fragments.inside(part.begin, part.end)) - closed
                due = [each for each in sorted(open_periods) if complete.issuperset(finer.fragments.inside(*each))]
                requests += [FillRequest(level, *run, stored=(finer,)) for run in _runs(due)]
                finer = level
        return requests

    def _cover(self, parts: Sequence[_Covered], is_read: bool = False) -> None:
        """Cover parts by levels, by the longest periods first. Marks of days are read where nothing longer covers.

        ``is_read``: all marks were read before.
        """
        for covered in parts:
            covered.rest = [(covered.part.begin, covered.part.end)]
        for periods in (PERIODS[:0:-1], PERIODS[:1]):
            levels = [
                (covered, level)
                for covered in parts
                for level in reversed(period_levels(covered.part.synopsis))
                if level.period in periods
            ]
            spans = [span for covered in parts for span in covered.rest]
            if levels and spans and not is_read:
                names = sorted({level.fingerprint for _, level in levels})
                self._pieces |= coverage_under(self._warehouse, names, spans, self._current)
            for covered, level in levels:
                covered.take(level, self._periods(level, covered.rest))

    def _periods(self, level: Synopsis, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The stored periods of a level that lie in some spans, as far as marks were read; ascending."""
        splits = self._sources[level.stream]
        is_current = stored_for(level, splits, self._tokens.setdefault(level.stream, {}))
        return [
            (first, last)
            for first, last, name in self._pieces.get(level.fingerprint, ())
            if any(begin <= first and last <= end for begin, end in spans) and is_current(name, first, last)
        ]

    def _has_fragments(self, part: SynopsisWork) -> bool:
        """Return whether all fragments of a part are stored."""
        splits, name = self._sources[part.synopsis.stream], part.synopsis.fingerprint
        pieces = coverage_under(self._warehouse, [name], part.fine, self._current)
        return not missing_spans(part, pieces.get(name, []), splits)


def _joined(spans: Sequence[LevelSpan]) -> list[LevelSpan]:
    """Ascending spans, those of one level that touch in one."""
    joined: list[LevelSpan] = []
    for span in spans:
        if joined and joined[-1].end == span.begin and joined[-1].fingerprint == span.fingerprint:
            joined[-1] = joined[-1]._replace(end=span.end)
        else:
            joined.append(span)
    return joined


def _runs(periods: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending periods, those that touch in one."""
    runs: list[tuple[int, int]] = []
    for first, last in periods:
        if runs and runs[-1][1] == first:
            runs[-1] = runs[-1][0], last
        else:
            runs.append((first, last))
    return runs


# ------------------------------------------------------------------------------------------------ reading levels
class LevelRows:
    """Replaces, among partial rows, those of fragments by those of the levels that some work is to be read from."""

    def __init__(self, parts: Sequence[SynopsisWork]) -> None:
        self._fine: dict[str, list[int]] = {}
        self._levels: dict[str, tuple[str, list[int]]] = {}
        for part in parts:
            for level in part.levels:
                name = part.synopsis.fingerprint
                self._fine.setdefault(name, []).extend((level.begin, level.end))
                self._levels.setdefault(level.fingerprint, (name, []))[1].extend((level.begin, level.end))

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows of fragments outside the levels' spans, and those of the levels inside, named as fragments are."""
        if not self._fine:
            return rows
        names = rows["fingerprint"].cast(pa.string()).combine_chunks()
        names = pa.chunked_array([names]).combine_chunks() if isinstance(names, pa.ChunkedArray) else names
        encoded = names.dictionary_encode()
        known, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
        if not any(name in self._fine or name in self._levels for name in known):
            return rows
        starts = rows["fragment_start"].to_numpy()
        keep = np.ones(len(rows), dtype=bool)
        for code, name in enumerate(known):
            is_level = name in self._levels
            bounds = self._levels[name][1] if is_level else self._fine.get(name)
            if bounds is not None:
                chosen = codes == code
                # inside one of the spans: behind an odd number of their bounds
                inside = np.searchsorted(bounds, starts[chosen], side="right") % 2 == 1
                keep[chosen] = inside if is_level else ~inside
        new_names = pa.array([self._levels.get(name, (name,))[0] for name in known], pa.string())
        column = pa.DictionaryArray.from_arrays(encoded.indices, new_names)
        at = rows.schema.get_field_index("fingerprint")
        type_ = rows.schema.field(at).type
        rows = rows.set_column(at, rows.schema.field(at), column.cast(pa.string()).cast(type_))
        return rows if keep.all() else rows.filter(pa.array(keep))


def needed_files(
    spans: Sequence[tuple[int, int]], levels: Sequence[LevelSpan]
) -> tuple[tuple[str, str], Callable[[pa.Table], pa.Array]]:
    """The first and the last partition of partials, and the choice of their files by Delta's statistics, that may have
    rows of fragments in some spans, or of levels. Files that have nothing but marks are not chosen."""
    bounds = [*spans, *((level.begin, level.end) for level in levels)]
    first, last = day_label(min(begin for begin, _ in bounds)), day_label(max(end for _, end in bounds) - 1)

    def chosen(files: pa.Table) -> pa.Array:
        is_of_level = pc.less(pc.utf8_length(files["partition.day"]), len(first)).to_numpy()
        of_levels = np.zeros(len(files), dtype=bool)
        for level in levels:
            least, most = files["min.fingerprint"], files["max.fingerprint"]
            has_name = pc.and_(pc.less_equal(least, level.fingerprint), pc.greater_equal(most, level.fingerprint))
            of_levels |= has_name.to_numpy() & overlap_of(files, [level[1:]]).to_numpy(zero_copy_only=False)
        is_needed = np.where(is_of_level, of_levels, overlap_of(files, spans).to_numpy(zero_copy_only=False))
        return pa.array(is_needed & (files["max.bucket"].to_numpy() >= 0))

    return (first[: len("2020")] if levels else first, last), chosen
