"""Windows of rows: numbers the rows of a stream, day by day, and answers from partial aggregates by row number.

The rows of a stream, its events that have a time, are numbered from 0: all together, or separately for each key
(``Window.per``). They are in the order of time, equal times in the order of all the stream's columns; rows that are
equal in all of them may change places. Window k is over the rows [k*slide, k*slide + range). Its answer exists once
its last row exists, whatever the filter, and has an instant like any other: the time of that row, plus a
microsecond.

Three steps, each on what the previous one stored, so that a run reads only the days that changed:

1. the number of rows of each key on each day: an ordinary synopsis (:func:`optimizer.synopses.synopsis.counts_of`),
   so each day's first number is known without its rows (:class:`Counts`);
2. each day separately: its rows in order, numbered, and lifted into cells of a fragment of *row numbers*, which is
   one more group column (:class:`RowLifting`); a fragment that midnight cuts has cells on both days;
3. answers (:func:`finals_of_rows`): the cells of all days combined; the unfiltered cells show which windows are
   complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.aggregates.ordinals import ordinals_of_doubles
from optimizer.aggregates.states import ROWS, State
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import Fragments, Progression, absorb
from optimizer.workload.instants import DAY
from optimizer.workload.values import Stream, Type, Window
from spark_jobs.store.arrays.numbering import LONG_MIN, Longs, distinct_rows, encoded, ranked
from spark_jobs.store.arrays.texts import as_texts
from spark_jobs.store.settings import TASK_MEMORY
from spark_jobs.streams.sources.decoding import read_split, times_of
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.cells import Cells, fragments_of
from spark_jobs.windows.partials.states import Fixed

Per = tuple[str, ...]
"""The columns whose values are numbered separately; none: the whole stream is numbered together."""

Read = Callable[[list[str]], Iterable[pa.RecordBatch]]
"""Reads some columns of a stream, and its time column: the same rows in the same order whenever it is called."""

BLOCK_ROWS = 4_000_000
"""Rows that one task numbers at once, if there are not more on one day."""


# ------------------------------------------------------------------------------------------- counting
@dataclass(frozen=True, eq=False)
class Counts:
    """Number of rows of each key on each day.

    ``days``, ``key``, ``rows`` (n,): midnight at the start of the day (microseconds), number of the key, rows; by
    key, then day. ``keys``: for each column of ``per`` the keys' values as texts (k,).
    """

    per: Per
    days: Longs
    key: Longs
    rows: Longs
    keys: tuple[pa.StringArray, ...]
    size: int

    @staticmethod
    def of(synopsis: Synopsis, partials: pa.Table) -> Counts:
        """Read the counts of all days from the stored rows of the synopsis that counts them."""
        cells = Cells.decode(synopsis, partials).combined()
        per = tuple(name for name, _ in synopsis.group_by)
        return Counts(per, cells.starts, cells.group, state_numbers(cells, ROWS), cells.key_columns, cells.groups)

    def between(self, begin: int, end: int) -> Longs:
        """Rows of each key (k,) on the days that start in [begin, end)."""
        inside = (self.days >= begin) & (self.days < end)
        counts = np.zeros(self.size, dtype=np.int64)
        np.add.at(counts, self.key[inside], self.rows[inside])
        return counts

    def before(self, day: int, columns: Sequence[pa.Array], size: int) -> Longs:
        """The first number (g,) on a day of each of g keys, which are given as columns of texts."""
        joined = [pa.concat_arrays(pair) for pair in zip(columns, self.keys, strict=True)]
        _, number, most = distinct_rows(joined, size + self.size)
        first_numbers = np.zeros(max(most, 1), dtype=np.int64)
        first_numbers[number[size:]] = self.between(LONG_MIN, day)
        return first_numbers[number[:size]]

    def blocks(self, begin: int, end: int, most: int = BLOCK_ROWS) -> list[tuple[int, int]]:
        """Cut [begin, end), both midnights, into pieces of whole days with at most ``most`` rows, unless a single
        day has more. Cuts are only before days that have rows, so there are no more pieces than such days.
        """
        inside = (self.days >= begin) & (self.days < end)
        days, number = np.unique(self.days[inside], return_inverse=True)
        row_count, starts = 0, [begin] if begin < end else []
        for day, more in zip(days.tolist(), np.bincount(number, self.rows[inside]).tolist(), strict=True):
            if row_count and row_count + more > most:
                starts.append(day)
                row_count = 0
            row_count += more
        return list(pairwise([*starts, end])) if starts else []

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

    Splits without statistics of their times (CSV) are read.
    """
    times = []
    for split in splits:
        if split.begin is not None:
            times.append(split.begin)
            continue
        for batch in read_split(stream, split, []):
            least = pc.min(batch.column(stream.time).cast(pa.int64())).as_py()
            times += [] if least is None else [least]
    return _midnight(min(times)) if times else None


def _midnight(instant: int) -> int:
    return instant - instant % DAY


def state_numbers(cells: Cells, state: State) -> Longs:
    """The numbers (n,) of a state of one column."""
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
    """Select the rows, each with its fragment, whose key and time also occur in another fragment."""
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


class RowsTooLarge(Exception):
    """The rows of some days take more memory than they may."""


class RowBlock:
    """The rows of a stream with a time in [begin, end), by time. Raises RowsTooLarge beyond ``most`` bytes.

    ``columns``: those to read, ``groups`` those of them that rows are grouped by; ``row`` (n,): which of all the rows
    that ``read`` gives each is.
    """

    def __init__(
        self,
        stream: Stream,
        read: Read,
        columns: Iterable[str],
        groups: Iterable[str],
        begin: int,
        end: int,
        most: int = TASK_MEMORY.bytes,
    ) -> None:
        self.stream, self.read = stream, read
        names = sorted({*columns} - {stream.time})
        tables, times, rows, seen, size = [], [], [], 0, 0
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
                size += timed.nbytes + 16 * len(at)
                if size > most:
                    raise RowsTooLarge
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
        """A column of the block as one array."""
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
        """Columns to compare some rows by, of all the stream's columns; those that were not read yet are read now."""
        schema = dict(self.stream.schema)
        missing = [name for name in schema if name not in self.rows.schema.names]
        more = _picked(self.read(missing), missing, self.row[rows]) if missing else {}
        columns = []
        for name, type in schema.items():
            if name != self.stream.time:
                values = more[name] if name in more else self.rows[name].take(pa.array(rows)).combine_chunks()
                columns += _in_order(values, type)
        return columns


def _picked(batches: Iterable[pa.RecordBatch], columns: list[str], rows: Longs) -> dict[str, pa.Array]:
    """Some columns of some of the rows (n,) of consecutive batches."""
    ascending = np.sort(rows)
    parts, seen = [], 0
    for batch in batches:
        low, high = np.searchsorted(ascending, [seen, seen + batch.num_rows])
        parts.append(batch.select(columns).take(pa.array(ascending[low:high] - seen)))
        seen += batch.num_rows
    table = pa.Table.from_batches(parts).take(pa.array(np.searchsorted(ascending, rows)))
    return {name: table[name].combine_chunks() for name in columns}
