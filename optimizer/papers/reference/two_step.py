"""The two steps: construct every sequence, then aggregate (Flink, SASE); shared segments once with a plan (SPASS).

Every event is for itself and so is every START, as published.

References
----------
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: section 8.1 (SPASS, Flink).
Deviation: a START event expires with the last window that it is in, at ``floor(time / slide) * slide + range``, not
when the range has passed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from optimizer.papers.reference.sequence_runs import Run, check_windows, counts_of_rows
from optimizer.papers.reference.sequence_segments import Spans, layout_of, segments_of
from optimizer.sequences.events import Events


class TooManySequences(RuntimeError):
    """A two-step baseline would construct more sequences than it may."""


def two_step(
    events: Events,
    patterns: Sequence[Sequence[int]],
    range: int,
    slide: int,
    limit: int,
    sharing: Sequence[Spans] | None = None,
) -> Run:
    """Construct all sequences, then count them by window. Each query is computed separately, or shared segments once
    (``sharing``, as in :func:`optimizer.papers.reference.sharon.sharon`) and joined to the sequences of the queries.

    Raises :class:`TooManySequences` for more than ``limit`` sequences (of segments and of complete patterns), and
    ValueError as :func:`optimizer.papers.reference.sharon.sharon`.
    """
    check_windows(range, slide)
    spans: Sequence[Spans] = [()] * len(patterns) if sharing is None else sharing
    segments = [segments_of(pattern, shared) for pattern, shared in zip(patterns, spans, strict=True)]
    layout = layout_of(segments, False, 1, events)
    each = np.repeat(np.arange(len(events)), events.count)
    key, time, kind = events.key[each], events.time[each], events.type[each]
    uses = np.bincount(layout.parts, minlength=len(layout.pooled))
    columns, rows, constructed, peak = _construct(key, time, kind, range, slide, layout, uses, limit)
    if constructed > limit:
        raise TooManySequences(f"more than {limit:,} sequences")
    return Run(counts_of_rows(columns, rows, slide), constructed, peak)


@numba.njit(cache=True)
def _sequences(time, events, codes, range_, slide, budget):
    """All sequences of some types among one key's events: (m, types) numbers of events, by START's time. Stops beyond
    the budget. events: the key's events of each type by time, (offsets, numbers)."""
    offsets, numbers = events
    length = len(codes)
    matches = np.empty((16, length), np.int64)
    cursor = np.empty(length, np.int64)
    rows, depth = 0, 0
    cursor[0] = offsets[codes[0]]
    expiry = 0
    while depth >= 0:
        if cursor[depth] == offsets[codes[depth] + 1]:
            depth -= 1
            if depth >= 0:
                cursor[depth] += 1
            continue
        now = time[numbers[cursor[depth]]]
        if depth == 0:
            expiry = now // slide * slide + range_
        if now >= expiry:
            # later events come too late as well, except that another START has its own time
            if depth == 0:
                cursor[0] += 1
            else:
                cursor[depth] = offsets[codes[depth] + 1]
        elif depth + 1 < length:
            depth += 1
            low, high = offsets[codes[depth]], offsets[codes[depth] + 1]
            while low < high:
                middle = (low + high) >> 1
                if time[numbers[middle]] <= now:
                    low = middle + 1
                else:
                    high = middle
            cursor[depth] = low
        else:
            if rows == budget:
                return matches[:rows], True
            if rows == len(matches):
                wider = np.empty((2 * rows, length), np.int64)
                wider[:rows] = matches
                matches = wider
            for each in range(length):
                matches[rows, each] = numbers[cursor[each]]
            rows += 1
            cursor[depth] += 1
    return matches[:rows], False


@numba.njit(cache=True)
def _follow(time, former, latter, range_, slide, budget):
    """All sequences of one of ``former`` and, later, one of ``latter``, as :func:`_sequences`."""
    left, right = former.shape[1], latter.shape[1]
    matches = np.empty((16, left + right), np.int64)
    rows = 0
    for earlier in range(len(former)):
        end = time[former[earlier, left - 1]]
        expiry = time[former[earlier, 0]] // slide * slide + range_
        low, high = 0, len(latter)
        while low < high:
            middle = (low + high) >> 1
            if time[latter[middle, 0]] <= end:
                low = middle + 1
            else:
                high = middle
        for other in range(low, len(latter)):
            if time[latter[other, 0]] >= expiry:
                break
            if time[latter[other, right - 1]] < expiry:
                if rows == budget:
                    return matches[:rows], True
                if rows == len(matches):
                    wider = np.empty((2 * rows, left + right), np.int64)
                    wider[:rows] = matches
                    matches = wider
                matches[rows, :left] = former[earlier]
                matches[rows, left:] = latter[other]
                rows += 1
    return matches[:rows], False


@numba.njit(cache=True)
def _construct(key, time, type, range_, slide, layout, uses, limit):
    """The rows of answers, their number, sequences constructed (above the limit: given up), and peak of events."""
    queries = len(layout.path) - 1
    keys, windows = np.empty(64, np.int64), np.empty(64, np.int64)
    exact, approximate = np.empty((64, queries), np.uint64), np.empty((64, queries), np.float64)
    types = len(layout.of_type[0]) - 1
    rows, constructed, peak, at = 0, 0, 0, 0
    while at < len(key):
        begin = at
        offsets = np.zeros(types + 2, np.int64)
        while at < len(key) and key[at] == key[begin]:
            offsets[type[at] + 2] += 1
            at += 1
        offsets = np.cumsum(offsets)
        numbers = np.empty(at - begin, np.int64)
        for event in range(begin, at):
            numbers[offsets[type[event] + 1]] = event
            offsets[type[event] + 1] += 1
        events = offsets, numbers
        first = (time[begin] - range_) // slide + 1
        counts = np.zeros((time[at - 1] // slide - first + 1, queries), np.int64)
        shared = [np.empty((0, 1), np.int64) for _ in uses]
        known = np.zeros(len(uses), np.bool_)
        shared_size, most = 0, 0
        for query in range(queries):
            matches = np.empty((0, 1), np.int64)
            for place in range(layout.path[query], layout.path[query + 1]):
                counter = layout.parts[place]
                over = False
                if known[counter]:
                    part = shared[counter]
                else:
                    codes = layout.codes[layout.nodes[counter] : layout.nodes[counter + 1]]
                    part, over = _sequences(time, events, codes, range_, slide, limit - constructed)
                    constructed += len(part)
                    if uses[counter] > 1:
                        shared[counter], known[counter] = part, True
                        shared_size += part.size
                most = max(most, shared_size + matches.size + part.size)
                if place > layout.path[query] and not over:
                    matches, over = _follow(time, matches, part, range_, slide, limit - constructed)
                    constructed += len(matches)
                else:
                    matches = part
                most = max(most, shared_size + matches.size)
                if over:
                    return (keys, windows, exact, approximate), 0, limit + 1, 0
            for match in range(len(matches)):
                low = (time[matches[match, -1]] - range_) // slide + 1
                for window in range(low, time[matches[match, 0]] // slide + 1):
                    counts[window - first, query] += 1
        peak += most
        for window in range(len(counts)):
            if counts[window].any():
                if rows == len(keys):
                    keys, windows = np.append(keys, keys), np.append(windows, windows)
                    exact = np.concatenate((exact, exact))
                    approximate = np.concatenate((approximate, approximate))
                keys[rows], windows[rows] = key[begin], first + window
                for query in range(queries):
                    exact[rows, query] = counts[window, query]
                    approximate[rows, query] = counts[window, query]
                rows += 1
    return (keys, windows, exact, approximate), rows, constructed, peak
