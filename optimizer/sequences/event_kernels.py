"""Compiled loops over events: which of them are alike, which have a type, which a window's matches can take.

Nothing is counted here: that is :mod:`optimizer.sequences.kernels`. A *run*: the events of one key.
"""

from __future__ import annotations

import numba
import numpy as np

_kernel = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
_inlined = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy", forceinline=True)


# ----------------------------------------------------------------------------------------- compaction
@_kernel
def is_ascending(key, time, kind):
    """Return whether rows ascend by (key, time, kind), without duplicates."""
    for i in range(1, len(key)):
        if key[i] == key[i - 1]:
            if time[i] < time[i - 1] or (time[i] == time[i - 1] and kind[i] <= kind[i - 1]):
                return False
        elif key[i] < key[i - 1]:
            return False
    return True


@_kernel
def codes(key, time, kind, first_key, first_time, first_kind, times, kinds):
    """One number (n,) for each combination, in the same order."""
    out = np.empty(len(key), np.int64)
    for i in range(len(key)):
        out[i] = ((key[i] - first_key) * times + time[i] - first_time) * kinds + kind[i] - first_kind
    return out


@_kernel
def histogram(code, count, cells):
    """The sum of the counts (n,) of each code (n,) below ``cells``."""
    total = np.zeros(cells, np.int64)
    for i in range(len(code)):
        total[code[i]] += count[i]
    return total


@_kernel
def wide_sums(low, high, first):
    """Sums of 128-bit integers (n,) over the runs that begin at ``first`` (r,)."""
    low_sum, high_sum = np.zeros(len(first), np.uint64), np.zeros(len(first), np.int64)
    for run in range(len(first)):
        end = first[run + 1] if run + 1 < len(first) else len(low)
        for i in range(first[run], end):
            before = low_sum[run]
            low_sum[run] += low[i]
            high_sum[run] += high[i] + (low_sum[run] < before)
    return low_sum, high_sum


@_kernel
def runs_of(key):
    """First event of each key (k + 1,), of ascending keys (n,), by doubling steps: a key has many events."""
    starts = [0]
    at = 0
    while at < len(key):
        step, low = 1, at
        while low + step < len(key) and key[low + step] == key[at]:
            low += step
            step *= 2
        high = min(low + step, len(key))
        while high - low > 1:
            middle = (low + high) // 2
            if key[middle] == key[at]:
                low = middle
            else:
                high = middle
        at = high
        starts.append(at)
    return np.array(starts)


@_kernel
def with_more(key, time, kind, count, rows, kinds, counts):
    """Compacted events (n,) and more of them (m,), which are at the keys and times of some ``rows``, ascending, and of
    greater types: columns (n + m,), each behind those of its key and time, as they come."""
    n, m = len(key), len(rows)
    keys, times = np.empty(n + m, np.int64), np.empty(n + m, np.int64)
    types, often = np.empty(n + m, np.int32), np.empty(n + m, np.int64)
    to = more = 0
    for event in range(n):
        keys[to], times[to], types[to], often[to] = key[event], time[event], kind[event], count[event]
        to += 1
        if event + 1 < n and time[event + 1] == time[event] and key[event + 1] == key[event]:
            continue
        first = to
        while more < m and rows[more] <= event:
            # of one moment by type: those are few
            place = to
            while place > first and types[place - 1] > kinds[more]:
                types[place], often[place] = types[place - 1], often[place - 1]
                place -= 1
            keys[to], times[to], types[place], often[place] = key[event], time[event], kinds[more], counts[more]
            to += 1
            more += 1
    return keys, times, types, often


# ------------------------------------------------------------------------------------------ by type
@_kernel
def by_type(kind, kinds, runs, time):
    """The events (n,) by local type, those of one type as they come, their times, and where those of each type and run
    begin among them (types, k + 1); ``runs`` (k + 1,)."""
    keys = len(runs) - 1
    first = np.zeros((kinds, keys + 1), np.int64)
    for run in range(keys):
        for event in range(runs[run], runs[run + 1]):
            first[kind[event], run] += 1
    total = np.int64(0)
    for own in range(kinds):
        for run in range(keys + 1):
            count = first[own, run]
            first[own, run] = total
            total += count
    order, times, at = np.empty(len(kind), np.int64), np.empty(len(kind), np.int64), first[:, 0].copy()
    for event in range(len(kind)):
        place = at[kind[event]]
        order[place], times[place] = event, time[event]
        at[kind[event]] += 1
    return order, times, first


@_kernel
def marks_of(time, first, slide, bases, marks):
    """Fill ``marks`` (types, m) with the first event of each type and run at or after every multiple of ``slide``.

    ``time`` (n,) and ``first`` as of :func:`by_type`; ``bases`` (k + 1, 2): of each run the number of the first
    multiple, and where its marks begin (of the last: their end).
    """
    for kind in range(len(marks)):
        for run in range(len(bases) - 1):
            at, last = first[kind, run], first[kind, run + 1]
            begin, end = bases[run, 1], bases[run + 1, 1]
            bound = bases[run, 0] * slide
            for place in range(begin, end):
                while at < last and time[at] < bound:
                    at += 1
                marks[kind, place] = at
                bound += slide


@_kernel
def extreme_values(rows, known, best, absent):
    """The ``best`` values (m,) of some events (m,) that have one, else ``absent``; and how many before each have one
    (m + 1,)."""
    values, before = np.empty(len(rows), np.int64), np.empty(len(rows) + 1, np.int64)
    before[0] = 0
    for i in range(len(rows)):
        is_known = known[rows[i]] > 0
        values[i] = best[rows[i]] if is_known else absent
        before[i + 1] = before[i] + is_known
    return values, before


@_inlined
def _gallop(time, first, near, last, bound):
    """The first index in [first, last) whose time is not below the bound; by steps from ``near`` that double, then by
    halves."""
    step = 1
    if near > first and time[near - 1] >= bound:
        near -= 1
        while near - step >= first and time[near - step] >= bound:
            near -= step
            step *= 2
        low, high = max(first, near - step + 1), near
    else:
        while near + step <= last and time[near + step - 1] < bound:
            near += step
            step *= 2
        low, high = near, min(last, near + step - 1)
    while low < high:
        middle = (low + high) // 2
        if time[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@_kernel
def taking_part(time, first, pattern, position, run, start, range_, slide, bases, marks, low, high):
    """Range [low, high) of the type's events, at a position of a pattern, that take part in a match, by answer (a,).

    These are the events behind the earliest match of the types before the position and ahead of the latest match of the
    types behind it.

    - ``time`` (n,): by type, key and time.
    - ``first`` (types, k + 1): index where those of each begin.
    - ``pattern`` (l,): local types.
    - ``run``, ``start`` of the answers: ascending; each answer has a match.
    - ``bases``, ``marks``: as of :func:`marks_of`, where the search begins; None: where the previous answer ended.
    """
    length, before = len(pattern), np.int64(-1)
    ahead, behind = np.zeros(length, np.int64), np.zeros(length, np.int64)
    for i in range(len(run)):
        if run[i] != before:
            before = run[i]
            for j in range(length):
                ahead[j] = behind[j] = first[pattern[j], before]
        if marks is not None:
            begin, most = bases[before, 1] - bases[before, 0], bases[before + 1, 1] - 1
            front = min(max(begin + start[i] // slide, bases[before, 1]), most)
            back = min(begin + (start[i] + range_) // slide, most)
            for j in range(position + 1):
                ahead[j] = marks[pattern[j], front]
            for j in range(position, length):
                behind[j] = marks[pattern[j], back]
        bound = start[i]
        for j in range(position + 1):
            kind = pattern[j]
            ahead[j] = _gallop(time, first[kind, before], ahead[j], first[kind, before + 1], bound)
            bound = time[ahead[j]] + 1
        low[i] = ahead[position]
        bound = start[i] + range_
        for j in range(length - 1, position - 1, -1):
            kind = pattern[j]
            behind[j] = _gallop(time, first[kind, before], behind[j], first[kind, before + 1], bound)
            bound = time[behind[j] - 1]
        high[i] = behind[position]
