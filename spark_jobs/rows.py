"""Windows of rows: numbers the rows of a stream, day by day, and answers from partial aggregates by row number.

The rows of a stream, its events that have a time, are numbered from 0: all of them, or those of each key apart
(``Window.per``). They stand in the order of time, equal times in the order of all the stream's columns; rows that are
equal in all of them may change places. Window k is over the rows [k*slide, k*slide + range). Its answer exists once its
last row is there, whatever the filter, and has an instant like any other: the time of that row, plus a microsecond.

Three steps, each on what the one before stored, so that a run reads the days that changed and no others:

1. how many rows of each key each day has: an ordinary synopsis (:func:`optimizer.synopsis.counts_of`), so each day's
   first number is known without its rows (:class:`Counts`);
2. each day alone: its rows in order, numbered, and lifted into cells of a fragment of *row numbers*, which is one more
   group column (:class:`RowLifting`); a fragment that midnight cuts has cells on both days;
3. answers (:func:`finals_of_rows`): the cells of all days put together; the unfiltered say which windows are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.aggregates import ROWS, State, ordinals_of_doubles
from optimizer.errors import HeddleError
from optimizer.query import ACQ, LONG, Column, Stream, Type, Window
from optimizer.synopsis import DAILY, POSITION, Synopsis
from optimizer.window import DAY, Fragments, Progression, absorb, day_label
from spark_jobs.cells import (
    LONG_MIN,
    PARTIALS,
    Cells,
    Fixed,
    Longs,
    distinct_of,
    distinct_rows,
    encoded,
    fragments_of,
    ranked,
)
from spark_jobs.files import DataFile, Failed, Task, read_buckets, write_files
from spark_jobs.final_aggregates import Answers, Asked, Chunk, Count, Part, Runs, uncounted, views
from spark_jobs.partial_aggregates import (
    GROUP_LIMIT,
    Lifting,
    Span,
    as_texts,
    by_fingerprint,
    columns_of_synopsis,
)
from spark_jobs.results import ANSWERS, INSTANT, RESULTS
from spark_jobs.sources import Split, read_split, times_of

Per = tuple[str, ...]
"""The columns whose values are numbered apart; none: the stream is numbered as a whole."""

Read = Callable[[list[str]], Iterable[pa.RecordBatch]]
"""Reads some columns of a stream, and its time column: the same rows in the same order whenever it is called."""

BLOCK_ROWS = 4_000_000
"""Rows that one task numbers at once, if there are not more on one day."""


# ------------------------------------------------------------------------------------------- counting
@dataclass(frozen=True, eq=False)
class Counts:
    """How many rows of each key each day has.

    ``days``, ``key``, ``rows`` (n,): midnight at the start of the day (microseconds), number of the key, rows; by key,
    then day. ``keys``: for each column of ``per`` the keys' values as texts (k,).
    """

    per: Per
    days: Longs
    key: Longs
    rows: Longs
    keys: tuple[pa.StringArray, ...]
    size: int

    @staticmethod
    def of(synopsis: Synopsis, partials: pa.Table) -> Counts:
        """From the stored rows of the synopsis that counts them, of all days."""
        cells = Cells.decode(synopsis, partials).combined()
        per = tuple(name for name, _ in synopsis.group_by)
        return Counts(per, cells.starts, cells.group, _numbers(cells, ROWS), cells.key_columns, cells.groups)

    def between(self, begin: int, end: int) -> Longs:
        """Rows of each key (k,) on the days that start in [begin, end)."""
        inside = (self.days >= begin) & (self.days < end)
        found = np.zeros(self.size, dtype=np.int64)
        np.add.at(found, self.key[inside], self.rows[inside])
        return found

    def before(self, day: int, columns: Sequence[pa.Array], size: int) -> Longs:
        """The first number (g,) on a day of each of g keys, which are given as columns of texts."""
        joined = [pa.concat_arrays(pair) for pair in zip(columns, self.keys, strict=True)]
        _, number, most = distinct_rows(joined, size + self.size)
        found = np.zeros(max(most, 1), dtype=np.int64)
        found[number[size:]] = self.between(LONG_MIN, day)
        return found[number[:size]]

    def blocks(self, begin: int, end: int, most: int = BLOCK_ROWS) -> list[tuple[int, int]]:
        """[begin, end), both midnights, in pieces of whole days that have at most so many rows if they are several."""
        inside = (self.days >= begin) & (self.days < end)
        rows = np.bincount((self.days[inside] - begin) // DAY, self.rows[inside], (end - begin) // DAY)
        found: list[tuple[int, int]] = []
        held = 0
        for day, more in zip(range(begin, end, DAY), rows, strict=True):
            if found and held + more <= most:
                found[-1], held = (found[-1][0], day + DAY), held + more
            else:
                found.append((day, day + DAY))
                held = more
        return found

    def history_start(self, windows: Iterable[Window], begin: int, end: int) -> int:
        """Start of the earliest day that holds a row of a window whose instant lies in (begin, end]; ``end`` if none
        does.

        The last row of such a window has a time in [begin, end); all rows of the days of those are taken for such.
        """
        first_day, last_day = _midnight(begin), _midnight(end - 1) + DAY
        low = self.between(LONG_MIN, first_day)
        high = self.between(LONG_MIN, last_day)
        earliest = np.full(self.size, np.iinfo(np.int64).max)
        for window in windows:
            # the first window of each key whose last row is not before `low`
            number = np.maximum(-((window.range - 1 - low) // window.slide), 0)
            first = number * window.slide
            exists = first + window.range <= high
            earliest[exists] = np.minimum(earliest[exists], first[exists])
        after = np.cumsum(self.rows)
        after -= np.concatenate([[0], after])[np.searchsorted(self.key, np.arange(self.size))][self.key]
        holds = (after - self.rows <= earliest[self.key]) & (earliest[self.key] < after)
        return int(self.days[holds].min(initial=end))


def first_day(stream: Stream, splits: Iterable[Split]) -> int | None:
    """The midnight before the first row of a stream, None if it has no row with a time.

    Splits that do not say which times they hold (CSV) are read.
    """
    found = []
    for split in splits:
        if split.begin is not None:
            found.append(split.begin)
            continue
        for batch in read_split(stream, split, []):
            least = pc.min(batch.column(stream.time).cast(pa.int64())).as_py()
            found += [] if least is None else [least]
    return _midnight(min(found)) if found else None


def _midnight(instant: int) -> int:
    return instant - instant % DAY


def _numbers(cells: Cells, state: State) -> Longs:
    column = cells.states[state]
    assert isinstance(column, Fixed)
    return np.ascontiguousarray(column.values[:, 0])


# ----------------------------------------------------------------------------------------- numbering
@numba.njit(cache=True)
def _number(times, key, following):
    """Numbers (n,) of rows in the order of time, and for each the first row of its key with the same time.

    ``following`` (k,): the next number of each key, in place.
    """
    position, first = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
    last = np.full(len(following), -1, np.int64)
    for i in range(len(times)):
        k = key[i]
        position[i] = following[k]
        following[k] += 1
        tied = last[k] >= 0 and times[last[k]] == times[i]
        first[i] = first[last[k]] if tied else i
        last[k] = i
    return position, first


@numba.njit(cache=True)
def _tied(first):
    """The rows that are not alone, given the first of their key and time."""
    several = np.zeros(len(first), np.bool_)
    for i in range(len(first)):
        if first[i] != i:
            several[i] = several[first[i]] = True
    return np.flatnonzero(several)


@numba.njit(cache=True)
def _cut(rows, first, fragment):
    """Those of some rows, each with its fragment, whose key and time others have that lie in another fragment."""
    known = np.full(len(first), -1, np.int64)
    cut = np.zeros(len(first), np.bool_)
    for i in range(len(rows)):
        run = first[rows[i]]
        if known[run] < 0:
            known[run] = fragment[i]
        cut[run] |= known[run] != fragment[i]
    return rows[cut[first[rows]]]


def _in_order(column: pa.Array, type: Type) -> list[Longs]:
    """Integers (n,) to sort by, one after the other: null first, -0.0 before 0.0, NaN last, texts by code points."""
    if type.name == "double":
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
        return [valid.astype(np.int64), ordinals_of_doubles(values, exact=True)]
    return [ranked(column.cast(pa.int8()) if type.name == "boolean" else column, type)[0]]


class _Block:
    """The rows of a stream with a time in [begin, end), by time.

    ``columns``: those to read, ``groups`` those of them that rows are grouped by; ``row`` (n,): which of all the rows
    that ``read`` gives each is.
    """

    def __init__(
        self, stream: Stream, read: Read, columns: Iterable[str], groups: Iterable[str], begin: int, end: int
    ) -> None:
        self.stream, self.read = stream, read
        names = sorted({*columns} - {stream.time})
        tables, times, rows, seen = [], [], [], 0
        for batch in read(names):
            at, timed, missing = times_of(batch, stream)
            row = np.arange(seen, seen + batch.num_rows)
            seen += batch.num_rows
            if missing:
                row = row[batch.column(stream.time).is_valid().to_numpy(zero_copy_only=False)]
            inside = (at >= begin) & (at < end)
            if not inside.all():
                at, row, timed = at[inside], row[inside], timed.filter(pa.array(inside))
            if len(at):
                times.append(at)
                rows.append(row)
                tables.append(timed)
        if not tables:
            self.times = self.row = np.empty(0, dtype=np.int64)
            return
        self.times, self.row = np.concatenate(times), np.concatenate(rows)
        self.rows = pa.Table.from_batches(tables).combine_chunks()
        if (self.times[1:] < self.times[:-1]).any():
            order = np.argsort(self.times, kind="stable")
            self.times, self.row, self.rows = self.times[order], self.row[order], self.rows.take(pa.array(order))
        for number, name in enumerate(self.rows.schema.names):
            if name in groups:
                # once for all that group by it
                self.rows = self.rows.set_column(number, name, self.column(name).dictionary_encode())

    def __len__(self) -> int:
        return len(self.times)

    def column(self, name: str) -> pa.Array:
        return self.rows[name].combine_chunks()

    def positions(self, counts: Counts, begin: int, edges: Sequence[Progression]) -> Longs:
        """The number of each row, given those of each key on the days before ``begin``.

        Rows of one key and time are put in order only where an edge falls between them: elsewhere it is all the same.
        """
        texts = []
        for name in counts.per:
            values, indices = encoded(self.column(name))
            texts.append(pa.DictionaryArray.from_arrays(pa.array(indices), as_texts(values)))
        keys, key, size = distinct_rows(texts, len(self))
        position, first = _number(self.times, key, counts.before(begin, keys, size))
        tied = _tied(first)
        if len(tied):
            _, _, fragment = fragments_of(Fragments(absorb(edges)), position[tied])
            tied = _cut(tied, first, fragment)
        if len(tied):
            run, numbers = first[tied], position[tied]
            order = np.lexsort((*reversed(self._to_compare(tied)), run))
            position[tied[order]] = numbers[np.lexsort((numbers, run))]
        return position

    def _to_compare(self, rows: Longs) -> list[Longs]:
        """What to compare some rows by, of all the stream's columns: those that were not read yet are read now."""
        schema = dict(self.stream.schema)
        missing = [name for name in schema if name not in self.rows.schema.names]
        more = _picked(self.read(missing), missing, self.row[rows]) if missing else {}
        found = []
        for name, type in schema.items():
            if name != self.stream.time:
                values = more[name] if name in more else self.rows[name].take(pa.array(rows)).combine_chunks()
                found += _in_order(values, type)
        return found


def _picked(batches: Iterable[pa.RecordBatch], columns: list[str], rows: Longs) -> dict[str, pa.Array]:
    """Some columns of some of the rows (n,) that batches have one after the other."""
    ascending = np.sort(rows)
    parts, seen = [], 0
    for batch in batches:
        low, high = np.searchsorted(ascending, [seen, seen + batch.num_rows])
        parts.append(batch.select(columns).take(pa.array(ascending[low:high] - seen)))
        seen += batch.num_rows
    found = pa.Table.from_batches(parts).take(pa.array(np.searchsorted(ascending, rows)))
    return {name: found[name].combine_chunks() for name in columns}


# -------------------------------------------------------------------------------------------- lifting
class RowLifting:
    """Lifts the rows of some days into the cells of synopses that count rows.

    ``counts``: of each ``per`` among the synopses those of all earlier days, and of these. :attr:`inside`: rows that
    were lifted; :attr:`failed`: by fingerprint the synopses of more than ``group_limit`` groups (not counting fragments
    as such), which have no cells.
    """

    def __init__(
        self,
        stream: Stream,
        synopses: Sequence[Synopsis],
        counts: Mapping[Per, Counts],
        group_limit: int = GROUP_LIMIT,
    ) -> None:
        self.stream, self.counts, self.group_limit = stream, counts, group_limit
        self.schema = dict(stream.schema)
        self.inside = 0
        self.failed: dict[str, Failed] = {}
        self.families: dict[Per, dict[tuple[Progression, ...], list[Synopsis]]] = {}
        for synopsis in synopses:
            assert synopsis.per is not None
            self.families.setdefault(synopsis.per, {}).setdefault(synopsis.edges, []).append(synopsis)
        self.columns = {column for synopsis in synopses for column in columns_of_synopsis(synopsis)} - {POSITION}
        self.groups = {name for synopsis in synopses for name, _ in synopsis.group_by} - {POSITION}

    def cells(self, read: Read, begin: int, end: int) -> Iterator[Cells]:
        """The cells of the days [begin, end), both midnights, as they are to be stored.

        Raises HDL-408 if there are not as many rows as were counted.
        """
        block = _Block(self.stream, read, self.columns, self.groups, begin, end)
        self.inside += len(block)
        for counts in self.counts.values():
            if len(block) != counts.between(begin, end).sum():
                message = f"stream {self.stream.name} changed while its rows were numbered"
                raise HeddleError("HDL-408", message, "run again; write files under another name and rename them")
        if len(block) == 0:
            return
        for per, trees in self.families.items():
            positions = block.positions(self.counts[per], begin, [edge for edges in trees for edge in edges])
            for edges, synopses in trees.items():
                fitting = [synopsis for synopsis in synopses if self._fits(synopsis, block)]
                yield from self._lifted(block, positions, edges, fitting, begin, end)

    def _fits(self, synopsis: Synopsis, block: _Block) -> bool:
        names = [name for name, _ in synopsis.group_by if name != POSITION]
        _, _, groups = distinct_rows([block.column(name) for name in names], len(block))
        if groups > self.group_limit:
            message = f"more than {self.group_limit:,} groups of {', '.join(names)} in one part of stream"
            found = Failed(synopsis.fingerprint, "HDL-602", f"{message} {self.stream.name}")
            self.failed[synopsis.fingerprint] = found
        return groups <= self.group_limit

    def _lifted(
        self,
        block: _Block,
        positions: Longs,
        edges: tuple[Progression, ...],
        synopses: Sequence[Synopsis],
        begin: int,
        end: int,
    ) -> Iterator[Cells]:
        """Cells of synopses with the same fragments: to the lifting a fragment of rows is a group, of each day."""
        starts, _, fragment = fragments_of(Fragments(edges), positions)
        column = pa.DictionaryArray.from_arrays(pa.array(fragment.astype(np.int32)), pa.array(starts))
        rows = block.rows.append_column(POSITION, column).combine_chunks()
        stream = replace(self.stream, schema=(*self.stream.schema, (POSITION, LONG)))
        daily = {synopsis: replace(synopsis, edges=DAILY, per=None) for synopsis in synopses}
        lifting = Lifting(stream, [Span(other, begin, end) for other in daily.values()], len(block) + 1)
        for batch in rows.to_batches():
            lifting.add(batch)
        named = {other.fingerprint: synopsis for synopsis, other in daily.items()}
        for cells in lifting.cells():
            yield replace(cells, synopsis=named[cells.synopsis.fingerprint])


def rows_task(
    stream: Stream,
    splits: Sequence[Split],
    blocks: Sequence[tuple[int, int]],
    synopses: Sequence[Synopsis],
    counts: Mapping[Per, Counts],
    root: str,
    rows: Any,
    group_limit: int = GROUP_LIMIT,
) -> Task:
    """The task that writes the partial rows of the blocks of days whose numbers it is given under ``root``.

    ``blocks``: see :meth:`Counts.blocks`; ``counts``: of all days to the last block's; ``rows``: an accumulator that
    counts the rows. The others, and what the task returns, as of :func:`spark_jobs.partial_aggregates.lift_task`.
    """

    def task(numbers: Iterable[int]) -> Iterator[DataFile | Failed]:
        lifting = RowLifting(stream, synopses, counts, group_limit)
        for number in numbers:
            begin, end = blocks[number]
            wanted = [split for split in splits if split.may_hold(begin, end)]
            tables = [cells.encode() for cells in lifting.cells(_reading(stream, wanted), begin, end)]
            if tables:
                yield from write_files(root, pa.concat_tables(tables))
        rows.add(lifting.inside)
        yield from lifting.failed.values()

    return task


def _reading(stream: Stream, splits: Sequence[Split]) -> Read:
    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            yield from read_split(stream, split, columns)

    return read


# ------------------------------------------------------------------------------------------- answering
class _Windows(NamedTuple):
    """The whole windows of one kind that have to be answered, by key: those of key k are [offsets[k], offsets[k + 1]).

    ``position`` (w,): number of the first row, ascending within a key; ``start``: the time of that row, ``instant``: a
    microsecond after that of the last.
    """

    offsets: Longs
    position: Longs
    start: Longs
    instant: Longs


@numba.njit(cache=True)
def _whole(starts, rows, least, greatest, offsets, range_, slide, begin, end):
    """The windows of range_ rows whose instant lies in (begin, end]; see _Windows.

    starts, rows, least, greatest: (n,) first number, rows, first and last time of fragments, ascending within a key;
    offsets: (k + 1,) of the keys in them.
    """
    found = np.zeros(len(offsets), np.int64)
    count = 0
    for fill in range(2):
        if fill == 1:
            position = np.empty(count, np.int64)
            start = np.empty(count, np.int64)
            instant = np.empty(count, np.int64)
        count = 0
        for key in range(len(offsets) - 1):
            first = last = offsets[key]
            stop = offsets[key + 1]
            held = 0
            number = -(-starts[first] // slide) * slide
            while number + range_ <= starts[stop - 1] + rows[stop - 1]:
                while first < stop and starts[first] < number:
                    held -= rows[first] if first < last else 0
                    first += 1
                last = max(first, last)
                while last < stop and starts[last] < number + range_:
                    held += rows[last]
                    last += 1
                if held == range_ and begin < greatest[last - 1] + 1 <= end:
                    if fill == 1:
                        position[count], start[count], instant[count] = number, least[first], greatest[last - 1] + 1
                    count += 1
                number += slide
            found[key + 1] = count
    return found, position, start, instant


@numba.njit(cache=True)
def _covered(starts, offsets, key, windows, position, range_, g, w, group, window, low, high):
    """The run of cells under each window that holds any, by group and window, from group g and window w on, until the
    last four arrays are full: how many, and the group and window to go on with.

    starts: (n,) first numbers, ascending within a group; offsets: (g + 1,) of the groups in them; key: (g,) of each
    group; windows: (k + 1,) of the keys in position.
    """
    count = 0
    while g < len(key):
        end, after = offsets[g + 1], windows[key[g] + 1]
        w = max(w, windows[key[g]])
        first = last = offsets[g]
        while w < after:
            while first < end and starts[first] < position[w]:
                first += 1
            if first == end:
                break
            if starts[first] >= position[w] + range_:
                # on to the first window that reaches the cell
                w += np.searchsorted(position[w:after], starts[first] - range_ + 1)
                continue
            last = max(first, last)
            while last < end and starts[last] < position[w] + range_:
                last += 1
            if count == len(group):
                return count, g, w
            group[count], window[count], low[count], high[count] = g, w, first, last
            count += 1
            w += 1
        g += 1
        w = 0
    return count, g, w


def _by_row(cells: Cells) -> Cells:
    """Cells of a synopsis that counts rows, under the fragments of rows, which are a group column no more."""
    synopsis = cells.synopsis
    names = [name for name, _ in synopsis.group_by]
    first = cells.key_columns[names.index(POSITION)].cast(pa.int64()).to_numpy()
    kept = [at for at, name in enumerate(names) if name != POSITION]
    columns, number, groups = distinct_rows([cells.key_columns[at] for at in kept], cells.groups)
    starts = first[cells.group]
    return replace(
        cells,
        synopsis=replace(synopsis, group_by=tuple(synopsis.group_by[at] for at in kept)),
        starts=starts,
        ends=Fragments(synopsis.edges).ends(starts),
        group=number[cells.group].astype(np.int64),
        groups=groups,
        key_columns=columns,
    )


class _Numbering:
    """The rows of each key that some cells stand for, whatever the filter, and so which windows are whole.

    Raises HDL-518 unless they are consecutive.
    """

    def __init__(self, cells: Cells, begin: int, end: int) -> None:
        synopsis = cells.synopsis
        assert synopsis.per is not None
        self.begin, self.end = begin, end
        states = (ROWS, *_times(synopsis))
        per = tuple(column for column in synopsis.group_by if column[0] in synopsis.per)
        unfiltered = replace(synopsis, predicates=(None,), group_by=per, states=states)
        self.cells = cells.rolled_up(unfiltered).combined()
        self.offsets = np.searchsorted(self.cells.group, np.arange(self.cells.groups + 1)).astype(np.int64)
        self.rows, self.least, self.greatest = (_numbers(self.cells, state) for state in states)
        self._windows: dict[Window, _Windows] = {}
        self._check()

    def _check(self) -> None:
        starts, group = self.cells.starts, self.cells.group
        missing = starts[1:] - starts[:-1] - self.rows[:-1]
        # of the first fragment of a key there may be the rows of later days alone
        inner = np.ones(len(missing), dtype=bool)
        inner[self.offsets[:-1][self.offsets[:-1] < len(missing)]] = False
        wrong = (group[1:] == group[:-1]) & ((missing < 0) | (inner & (missing > 0)))
        if wrong.any():
            key = self.cells.key_texts[int(group[np.argmax(wrong)])].as_py()
            message = f"stored partial rows of stream {self.cells.synopsis.stream} lack rows, or have some twice: {key}"
            raise HeddleError("HDL-518", message, "run again once the source is still: its days are then numbered anew")

    def windows(self, window: Window) -> _Windows:
        """The whole windows with an instant in (begin, end]."""
        if window not in self._windows:
            told = self.cells.starts, self.rows, self.least, self.greatest, self.offsets
            self._windows[window] = _Windows(*_whole(*told, window.range, window.slide, self.begin, self.end))
        return self._windows[window]

    def keys_of(self, cells: Cells) -> Longs:
        """The key (g,) of each group of a family's cells."""
        names = [name for name, _ in cells.synopsis.group_by]
        columns = [cells.key_columns[names.index(name)] for name, _ in self.cells.synopsis.group_by]
        joined = [pa.concat_arrays(pair) for pair in zip(columns, self.cells.key_columns, strict=True)]
        _, number, most = distinct_rows(joined, cells.groups + self.cells.groups)
        known = np.empty(most, dtype=np.int64)
        known[number[cells.groups :]] = np.arange(self.cells.groups)
        return known[number[: cells.groups]]


def _times(synopsis: Synopsis) -> tuple[State, State]:
    """The states of the first and the last time."""
    by_kind = {state.kind: state for state in synopsis.states if state.argument == Column(synopsis.time)}
    return by_kind["min"], by_kind["max"]


def finals_of_rows(
    partials: pa.Table, synopsis: Synopsis, queries: Sequence[ACQ], begin: int, end: int, count: Count = uncounted
) -> Iterator[pa.RecordBatch]:
    """Answers of some queries of one synopsis that counts rows, for the instants in (begin, end].

    ``partials``: rows of the synopsis, whole keys, of all days from that on that :meth:`Counts.history_start` says; in
    any order. ``count`` and what it yields: as of :func:`spark_jobs.final_aggregates.finals_of`, with ``position`` the
    number of the window's first row.
    """
    if len(partials) == 0:
        return
    cells = _by_row(Cells.decode(synopsis, partials))
    numbering = _Numbering(cells, begin, end)
    # which instants there are the rows say
    asked = [Asked.of(query, cells.synopsis, 0, 0) for query in queries]
    for view, family in views(cells, cells.synopsis, asked):
        keys = numbering.keys_of(view.cells)
        for chunk in view.chunks():
            for one in family:
                count("rows_passed", chunk.rows.stop - chunk.rows.start)
                windows = numbering.windows(one.query.window)
                for answers in _answers(one, chunk, keys[chunk.first : chunk.first + chunk.groups], windows):
                    count("fragments_combined", int((answers.runs.high - answers.runs.low).sum()))
                    yield _batch(answers, windows, synopsis.stream)


def _answers(asked: Asked, chunk: Chunk, keys: Longs, windows: _Windows) -> Iterator[Answers]:
    """The answers to a query, some at a time; for their instants stand the numbers of their windows."""
    starts = chunk.view.cells.starts[chunk.rows]
    told = starts, chunk.offsets, keys, windows.offsets, windows.position, asked.query.window.range
    group = window = 0
    while group < chunk.groups:
        space = [np.empty(asked.block, dtype=np.int64) for _ in range(4)]
        count, group, window = _covered(*told, group, window, *space)
        numbers, at, low, high = (column[:count] for column in space)
        if count:
            found = Answers(asked, chunk, Runs(numbers, low, high), at).qualifying()
            if len(found.instants):
                yield found


def _batch(answers: Answers, windows: _Windows, stream: str) -> pa.RecordBatch:
    at = answers.instants
    rows = answers.answered(stream)._replace(instants=windows.instant[at]).rows()
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns |= {"window_start": pa.array(windows.start[at]).cast(INSTANT), "position": pa.array(windows.position[at])}
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=ANSWERS)


def row_finals_task(
    parts: Sequence[Part],
    begin: int,
    partials: Sequence[str],
    root: str,
    stamp: Mapping[str, pa.Scalar],
    count: Count = uncounted,
) -> Task:
    """The task that answers the windows of rows for the buckets of groups whose numbers it is given.

    As :func:`spark_jobs.final_aggregates.finals_task`; of each part the days [begin, end), both midnights, are the
    fragments that are read.
    """

    def task(numbers: Iterable[int]) -> Iterator[DataFile]:
        found = list(read_buckets(partials, set(numbers)))
        if not found:
            return
        stored = by_fingerprint(pa.concat_tables(found))
        del found
        answered: list[pa.Table] = []
        for part in parts:
            rows = stored.get(part.synopsis.fingerprint, PARTIALS.empty_table())
            starts = rows["fragment_start"]
            rows = rows.filter(pc.and_(pc.greater_equal(starts, part.begin), pc.less(starts, part.end)))
            count("partial_rows_read", len(rows))
            until = part.end if part.until is None else part.until
            for batch in finals_of_rows(rows, part.synopsis, part.queries, begin, until, count):
                answered.append(_stamped(batch, part.synopsis.stream, stamp))
        if answered:
            yield from write_files(root, pa.concat_tables(answered))

    return task


def _stamped(batch: pa.RecordBatch, stream: str, stamp: Mapping[str, pa.Scalar]) -> pa.Table:
    days, number = distinct_of((batch.column("instant").cast(pa.int64()).to_numpy() - 1) // DAY)
    labels = pa.array([day_label(day * DAY) for day in days.tolist()], pa.string())
    told: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
    told |= {"day": labels.take(pa.array(number)), "stream": pa.repeat(stream, len(batch))}
    told |= {name: pa.repeat(value, len(batch)) for name, value in stamp.items()}
    return pa.table([told[field.name] for field in RESULTS], schema=RESULTS)
