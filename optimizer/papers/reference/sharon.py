"""Sharon's executor (the Shared method): segments of patterns are counted once for the queries that share them.

A query is cut into segments by a plan, and every segment is counted as in :mod:`optimizer.papers.reference.a_seq`, once
for the queries that share it. When a START event of a later segment arrives, the count of all before it is noted with
it, for each open window: matches whose own START the window has. When a window closes, its note is multiplied with the
counts that the START leads to. Queries of the same segments up to a START share its notes.

By default STARTs are *pooled*: those of one pane (equal ``floor(time / slide)``) are in exactly the same windows, so
one count serves all of them, and equal events of one instant are one event of a multiplicity. The papers have a count
per START event, and every event for itself; that is ``pooled=False``.

References
----------
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: sections 3.2 (Non-Shared
method, taken from A-Seq) and 3.3 (Shared method). Deviations: a START event expires with the last window that it is in,
at ``floor(time / slide) * slide + range``, not when the range has passed. A window's count is added up when the window
closes, not at each END event, and so holds only what lies in it from START to END. Counts before a later segment are
added up by window, once until they change: a START of a second segment takes one note for each pane (at most
range/slide) of the STARTs before it, and one product when a window closes, where the paper's Eq. 5 has the rate of
START events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.papers.reference.sequence_runs import Counts, Longs, Run, answer_rows, check_windows, counts_of_rows
from optimizer.papers.reference.sequence_segments import Layout, Segment, Spans, layout_of, segments_of
from optimizer.sequences.events import Events

_CACHED = 1 << 14
"""Counts that a block of queries is to hold: 256 KiB."""

_RECOUNTED = 4
"""Queries that share segments are put in different blocks if the block is at least this many times the shared part."""

_STALE = -(1 << 63)
_ROWS, _ADDED, _PEAK = 0, 1, 2
_ROWS_FULL, _DONE = -2, -1


def sharon(
    events: Events,
    patterns: Sequence[Sequence[int]],
    sharing: Sequence[Spans],
    range: int,
    slide: int,
    pooled: bool = True,
) -> Run:
    """Run Sharon's executor. ``sharing``: the plan, of each query the spans that are shared segments; the other
    parameters are those of :func:`optimizer.papers.reference.a_seq.a_seq`.

    Equal shared segments are counted once (if many queries share little, once for every few of them). The segments
    between them are counted for each query. STARTs of segments that begin a pattern are pooled. Those of later segments
    cannot be, since different counts precede them.

    :class:`optimizer.papers.reference.sharon_costs.SharonCosts` models the number of additions. Raises ValueError as
    A-Seq does, and for spans that are not ascending, disjoint and within their pattern.
    """
    check_windows(range, slide)
    segments = [segments_of(pattern, spans) for pattern, spans in zip(patterns, sharing, strict=True)]
    panes = -(-range // slide)
    starts = float(panes)
    if not pooled and len(events):
        per_type = events.count.sum() / len(np.unique(events.key)) / len(np.unique(events.type))
        starts = per_type * range / max(int(events.time.max() - events.time.min()), range)
    answers: dict[int, Counts] = {}
    additions = peak = 0
    for queries in _blocks(segments, starts):
        layout = layout_of([segments[query] for query in queries], pooled, panes, events)
        run = _counted(events, layout, range, slide, pooled)
        answers |= zip(queries, run.answers, strict=True)
        additions, peak = additions + run.additions, peak + run.peak
    return Run([answers[query] for query in sorted(answers)], additions, peak)


def _counted(events: Events, layout: Layout, range: int, slide: int, pooled: bool) -> Run:
    room = np.where(layout.pooled, 2 * layout.panes, 16)
    state = _state(layout, room)
    answers = answer_rows(64, len(layout.path) - 1)
    tally = np.zeros(3, np.int64)
    at = 0
    while at < len(events):
        at, full = _feed(
            events.key, events.time, events.type, events.count, at, range, slide, pooled, layout, state, answers, tally
        )
        # a key that did not fit begins again with more room: other segments have about as many STARTs
        if full >= 0:
            room[~layout.pooled] *= 2
            state = _state(layout, room)
        elif full == _ROWS_FULL:
            answers = tuple(np.concatenate([column, np.empty_like(column)]) for column in answers)
    return Run(counts_of_rows(answers, tally[_ROWS], slide), int(tally[_ADDED]), int(tally[_PEAK]))


def _blocks(segments: Sequence[Sequence[Segment]], starts: float) -> list[list[int]]:
    """Cut the queries into blocks, which are counted one after the other so that their counts (``starts`` for each
    position) stay in the caches. Shared segments are counted once in each block that has some of their queries. A block
    may be larger if they are most of it.
    """
    leader = list(range(len(segments)))

    def led(query: int) -> int:
        while leader[query] != query:
            query = leader[query]
        return query

    known: dict[tuple[int, ...], int] = {}
    for query, pieces in enumerate(segments):
        for text, shared in pieces:
            if shared:
                leader[led(query)] = led(known.setdefault(text, query))
    together: dict[int, list[int]] = {}
    for query in range(len(segments)):
        together.setdefault(led(query), []).append(query)
    blocks: list[list[int]] = []
    shared_texts: set[tuple[int, ...]] = set()
    size = 0
    for group in together.values():
        for query in group:
            again = 0 if query == group[0] else _RECOUNTED * sum(map(len, shared_texts))
            if not blocks or size >= max(_CACHED / starts, again):
                blocks.append([])
                shared_texts, size = set(), 0
            blocks[-1].append(query)
            size += sum(len(text) for text, shared in segments[query] if not shared or text not in shared_texts)
            shared_texts |= {text for text, shared in segments[query] if shared}
    return blocks


class _State(NamedTuple):
    """The counts of one key. A counter has a *column* for each START (event or pane) that has not expired.

    - ``first``, ``last`` (counters,): its live columns [first, last).
    - ``room`` (counters,): columns that it has space for.
    - ``fresh`` (counters,): whether a START of this instant matters.
    - ``pane``: floor(START / slide) of each column, those of counter c from ``panes[c]`` on.
    - ``exact``, ``approximate``: counts modulo 2**64 and as doubles, those of node x from ``rows[x]`` on.
    - ``exact_noted``, ``approximate_noted``: at place p of a query the counts before column y in each open window, by
      how many slides the window is older than y's pane, from ``notes[p] + y*panes`` on.
    - ``exact_sums``, ``approximate_sums`` (counters * panes,): counts of complete segments in each open window, by how
      many slides the window is older than pane ``summed`` (counters,), which is _STALE if they changed.
    - ``steps`` (counters,): panes of the STARTs in these sums.
    """

    first: Longs
    last: Longs
    room: Longs
    fresh: NDArray[np.bool_]
    pane: Longs
    panes: Longs
    exact: NDArray[np.uint64]
    approximate: NDArray[np.float64]
    rows: Longs
    exact_noted: NDArray[np.uint64]
    approximate_noted: NDArray[np.float64]
    notes: Longs
    exact_sums: NDArray[np.uint64]
    approximate_sums: NDArray[np.float64]
    summed: Longs
    steps: Longs


def _state(layout: Layout, room: Longs) -> _State:
    counters = len(room)
    rows = np.cumsum([0, *room[layout.owner]])
    places = np.arange(len(layout.parts))
    has_notes = ~np.isin(places, layout.path) & (layout.noted == places)
    notes = np.cumsum([0, *np.where(has_notes, room[layout.parts] * layout.panes, 0)])
    return _State(
        np.zeros(counters, np.int64),
        np.zeros(counters, np.int64),
        room,
        np.zeros(counters, np.bool_),
        np.empty(int(room.sum()), np.int64),
        np.cumsum([0, *room])[:-1],
        np.empty(rows[-1], np.uint64),
        np.empty(rows[-1], np.float64),
        rows[:-1],
        np.empty(notes[-1], np.uint64),
        np.empty(notes[-1], np.float64),
        notes[layout.noted],
        np.empty(counters * layout.panes, np.uint64),
        np.empty(counters * layout.panes, np.float64),
        np.empty(counters, np.int64),
        np.empty(counters, np.int64),
    )


@numba.njit(inline="always")
def _add(to, at, by, begin, many, factor):
    """to[at : at + many] += factor * by[begin : begin + many]; unsigned, so that it is compiled to vectors."""
    for each in range(np.uint64(many)):
        to[np.uint64(at) + each] += factor * by[np.uint64(begin) + each]


@numba.njit(cache=True, fastmath={"reassoc"})
def _total(numbers, begin, end):
    total = numbers[begin]
    for each in range(np.uint64(begin + 1), np.uint64(end)):
        total += numbers[each]
    return total


@numba.njit(cache=True)
def _first_of_pane(pane_of, offset, low, end, pane):
    """The first of columns [low, end) that is of this pane or a later one."""
    if end == low or pane_of[offset + end - 1] < pane:
        return end
    high = end - 1
    while low < high:
        middle = (low + high) // 2
        if pane_of[offset + middle] < pane:
            low = middle + 1
        else:
            high = middle
    return high


@numba.njit(cache=True)
def _has_room(layout, state, counter, more):
    """Return whether there is space for more columns, after expired ones were overwritten."""
    room, first, last = state.room[counter], state.first[counter], state.last[counter]
    if last + more <= room:
        return True
    if 2 * first < room or last - first + more > room:
        return False
    live = last - first
    for node in range(layout.nodes[counter], layout.nodes[counter + 1]):
        row = state.rows[node]
        state.exact[row : row + live] = state.exact[row + first : row + last]
        state.approximate[row : row + live] = state.approximate[row + first : row + last]
    begin = state.panes[counter]
    state.pane[begin : begin + live] = state.pane[begin + first : begin + last]
    panes = layout.panes
    for at in range(layout.joins[0][counter], layout.joins[0][counter + 1]):
        begin = state.notes[layout.joins[1][at]]
        low, high = begin + first * panes, begin + last * panes
        state.exact_noted[begin : begin + live * panes] = state.exact_noted[low:high]
        state.approximate_noted[begin : begin + live * panes] = state.approximate_noted[low:high]
    state.first[counter], state.last[counter] = 0, live
    return True


@numba.njit(cache=True)
def _note(layout, state, counter, columns, pane, oldest, tally):
    """Beside the new columns of STARTs of a later segment, note the counts of all segments before in each open window;
    before any count of the instant changes. Returns whether there was room."""
    if not _has_room(layout, state, counter, columns):
        return False
    panes, nodes, parts, second = layout.panes, layout.nodes, layout.parts, layout.second
    offsets, joins = layout.joins
    firsts, lasts, rows, notes, pane_offsets = state.first, state.last, state.rows, state.notes, state.panes
    exact, approximate, pane_of, summed = state.exact, state.approximate, state.pane, state.summed
    exact_noted, approximate_noted = state.exact_noted, state.approximate_noted
    exact_sums, approximate_sums, steps = state.exact_sums, state.approximate_sums, state.steps
    matters, added = layout.leads[counter], 0
    open_windows = min(panes, pane - oldest + 1)
    for join in range(offsets[counter], offsets[counter + 1]):
        place = joins[join]
        before = parts[place - 1]
        first, last, row = firsts[before], lasts[before], rows[nodes[before + 1] - 1]
        if second[place] and summed[before] != pane:
            total, size, end = np.uint64(0), 0.0, last
            steps[before] = 0
            for age in range(panes):
                # the STARTs of one pane more are in the next older window
                begin = _first_of_pane(pane_of, pane_offsets[before], first, end, pane - age)
                if begin < end:
                    total += _total(exact, row + begin, row + end)
                    size += _total(approximate, row + begin, row + end)
                    steps[before] += 1
                exact_sums[before * panes + age] = total
                approximate_sums[before * panes + age] = size
                end = begin
            added += last - first
            summed[before] = pane
        for column in range(lasts[counter], lasts[counter] + columns):
            begin = notes[place] + column * panes
            for age in range(panes):
                exact_noted[begin + age] = exact_sums[before * panes + age] if second[place] else np.uint64(0)
                approximate_noted[begin + age] = approximate_sums[before * panes + age] if second[place] else 0.0
            if second[place]:
                matters |= approximate_noted[begin + open_windows - 1] > 0
                added += steps[before]
                continue
            for other in range(first, last):
                scale = approximate[row + other]
                if scale > 0:
                    later = pane - pane_of[pane_offsets[before] + other]
                    ages = min(panes - later, pane_of[pane_offsets[before] + other] - oldest + 1)
                    source = notes[place - 1] + other * panes
                    _add(exact_noted, begin + later, exact_noted, source, ages, exact[row + other])
                    _add(approximate_noted, begin + later, approximate_noted, source, ages, scale)
                    added += ages
                    matters = True
    tally[_ADDED] += added
    state.fresh[counter] = matters
    return True


@numba.njit(cache=True)
def _close(layout, state, window, exact_found, approximate_found, tally):
    """The counts of all queries in the oldest window, whose events have all come: what every live START of a query has
    led to. Returns whether there are any."""
    exact, approximate, pane_of, panes = state.exact, state.approximate, state.pane, layout.panes
    exact_noted, approximate_noted = state.exact_noted, state.approximate_noted
    some, added = False, 0
    for query in range(len(layout.path) - 1):
        place = layout.path[query + 1] - 1
        counter = layout.parts[place]
        first, last, pane_offset = state.first[counter], state.last[counter], state.panes[counter]
        row = state.rows[layout.nodes[counter + 1] - 1]
        total, size = np.uint64(0), 0.0
        if place == layout.path[query]:
            for column in range(row + first, row + last):
                total += exact[column]
                size += approximate[column]
            added += last - first
        else:
            for column in range(first, last):
                if approximate[row + column] > 0:
                    note = state.notes[place] + column * panes + pane_of[pane_offset + column] - window
                    total += exact_noted[note] * exact[row + column]
                    size += approximate_noted[note] * approximate[row + column]
                    added += 1
        exact_found[query], approximate_found[query] = total, size
        some |= size > 0
    tally[_ADDED] += added
    return some


@numba.njit(cache=True)
def _expire(layout, state, window):
    """Drop the STARTs that are in no window after this one. Returns the number of counts before that."""
    counts = 0
    for counter in range(len(state.first)):
        begin, first, last = state.panes[counter], state.first[counter], state.last[counter]
        joins = layout.joins[0][counter + 1] - layout.joins[0][counter]
        counts += (last - first) * (layout.nodes[counter + 1] - layout.nodes[counter] + joins * layout.panes)
        while first < last and state.pane[begin + first] <= window:
            first += 1
        if first == last:
            first, state.last[counter] = 0, 0
        state.first[counter] = first
    return counts


@numba.njit(cache=True)
def _settle(layout, state, key, oldest, newest, answers, tally):
    """Close the windows of a key one after the other. Returns the most counts in memory, -1 if the rows are full."""
    keys, windows, exact, approximate = answers
    peak = 0
    for window in range(oldest, newest + 1):
        row = tally[_ROWS]
        if row == len(keys):
            return -1
        keys[row], windows[row] = key, window
        tally[_ROWS] += _close(layout, state, window, exact[row], approximate[row], tally)
        peak = max(peak, _expire(layout, state, window))
    return peak


@numba.njit(cache=True)
def _feed(key, time, type, count, at, range_, slide, pooled, layout, state, answers, tally):
    """All keys from an event on. Returns the event to go on with and what is full: a counter, or the rows."""
    first, last, rows, exact, approximate = state.first, state.last, state.rows, state.exact, state.approximate
    pane_of, panes = state.pane, state.panes
    nodes, codes, owner = layout.nodes, layout.codes, layout.owner
    offsets, of_type = layout.of_type
    (joined_offsets, joined), (join_offsets, joins) = layout.joined, layout.joins
    leads, parts, fresh, summed = layout.leads, layout.parts, state.fresh, state.summed
    present = np.zeros(len(offsets) - 1, np.int64)
    due = np.empty(len(codes), np.int64)
    while at < len(key):
        begin, rows_before, added_before, added, peak = at, tally[_ROWS], tally[_ADDED], 0, 0
        first[:] = 0
        last[:] = 0
        summed[:] = _STALE
        pane, oldest = time[at] // slide, (time[at] - range_) // slide + 1
        newest, full = oldest - 1, _DONE  # pane of the last START
        while at < len(key) and key[at] == key[begin]:
            now, upto = time[at], at + 1
            while upto < len(key) and time[upto] == now and key[upto] == key[begin]:
                upto += 1
            if now >= oldest * slide + range_:
                closed = (now - range_) // slide
                settled_peak = _settle(layout, state, key[begin], oldest, min(closed, newest), answers, tally)
                if settled_peak < 0:
                    full = _ROWS_FULL
                    break
                peak, oldest = max(peak, settled_peak), closed + 1
            if now >= (pane + 1) * slide:
                pane = now // slide
            if now >= pane * slide + range_:
                at = upto  # between two windows
                continue
            # events of one instant do not follow one another: nothing is noted after a change, later positions first
            for event in range(at, upto):
                code = type[event]
                present[code] = count[event]
                for each in range(joined_offsets[code], joined_offsets[code + 1]):
                    counter = joined[each]
                    matters = leads[counter]
                    for join in range(join_offsets[counter], join_offsets[counter + 1]):
                        before = parts[joins[join] - 1]
                        matters |= first[before] < last[before]
                    fresh[counter] = False
                    columns = 1 if pooled else count[event]
                    if matters and not _note(layout, state, counter, columns, pane, oldest, tally):
                        full = counter
            many = 0
            if upto == at + 1:
                for each in range(offsets[type[at]], offsets[type[at] + 1]):
                    due[many] = of_type[each]
                    many += 1
            else:
                for node in range(len(codes) - 1, -1, -1):
                    due[many] = node
                    many += present[codes[node]] > 0
            for each in range(many):
                node = due[each]
                counter, times = owner[node], present[codes[node]]
                if node + 1 == nodes[counter + 1]:
                    summed[counter] = _STALE
                live = last[counter] - first[counter]
                repeats, weight = (1, times) if pooled else (times, 1)
                if node > nodes[counter]:
                    to, by = rows[node] + first[counter], rows[node - 1] + first[counter]
                    for _ in range(repeats):
                        _add(exact, to, exact, by, live, np.uint64(weight))
                        _add(approximate, to, approximate, by, live, np.float64(weight))
                    added += repeats * live
                elif layout.pooled[counter] and live and pane_of[panes[counter] + last[counter] - 1] == pane:
                    exact[rows[node] + last[counter] - 1] += np.uint64(weight)
                    approximate[rows[node] + last[counter] - 1] += weight
                elif join_offsets[counter] == join_offsets[counter + 1] or fresh[counter]:
                    if last[counter] + repeats > state.room[counter] and not _has_room(layout, state, counter, repeats):
                        full = counter
                        break
                    newest = pane
                    for column in range(last[counter], last[counter] + repeats):
                        for other in range(node, nodes[counter + 1]):
                            exact[rows[other] + column] = 0
                            approximate[rows[other] + column] = 0.0
                        exact[rows[node] + column] = np.uint64(weight)
                        approximate[rows[node] + column] = weight
                        pane_of[panes[counter] + column] = pane
                    last[counter] += repeats
            if full != _DONE:
                break
            for event in range(at, upto):
                present[type[event]] = 0
            at = upto
        if full == _DONE:
            settled_peak = _settle(layout, state, key[begin], oldest, newest, answers, tally)
            full = _DONE if settled_peak >= 0 else _ROWS_FULL
            peak = max(peak, settled_peak)
        if full != _DONE:
            tally[_ROWS], tally[_ADDED] = rows_before, added_before
            return begin, full
        tally[_ADDED] += added
        tally[_PEAK] += peak
    return at, _DONE
