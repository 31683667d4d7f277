"""Partial rows in memory: the cells of one synopsis as arrays, and their stored form.

A *cell* is one (fragment, shard, group) with its states. Events are lifted into cells, cells are rolled up to
coarser ones (longer fragments, fewer filters, fewer group columns), stored as rows of the partials table, and read
back to be combined into answers: all of it on the arrays of :class:`Cells`. Texts become numbers as soon as they
are read: groups are numbered, texts within states are ranks into a sorted list of texts, so that everything
combines integers.

:class:`optimizer.aggregates.states.State` defines how the three list columns of a row store the state of a cell.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.ordinals import doubles_of_ordinals, ordinals_of_doubles
from optimizer.aggregates.states import State
from optimizer.synopses.synopsis import CARRIERS, POSITION, Synopsis
from optimizer.windows.alignment import SPARE, Fragments
from optimizer.workload.instants import DAY
from optimizer.workload.values import Expression, Type
from spark_jobs.store.arrays.numbering import (
    LONG_MAX,
    LONG_MIN,
    Longs,
    distinct_of,
    distinct_rows,
    encoded,
    numbered,
    numbered_tuples,
    positions_in,
)
from spark_jobs.store.arrays.texts import key_texts
from spark_jobs.store.warehouse.data_files import BUCKETS
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.partials.combining import scatter_add
from spark_jobs.windows.partials.encoding import (
    MOST_BYTES,
    READERS,
    NumberStates,
    StoredLists,
    WrittenLists,
    combined_chunks,
    is_all_numbers,
    placed_numbers,
    stored_numbers,
    written_numbers,
)
from spark_jobs.windows.partials.fill_request import partition_of
from spark_jobs.windows.partials.states import Column, Fixed, States, carry, class_of, numbers_of, scattered


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of one synopsis.

    ``starts``, ``ends`` (n,): the fragments (microseconds, or row numbers); ``shards`` (n,): signatures; ``group``
    (n,): number of the group, below ``groups``; ``key_columns``: for each column of ``synopsis.group_by`` the
    groups' values (groups,) as texts, which :func:`spark_jobs.results.rows.typed` reads back. ``longs`` (n, w) and
    ``doubles`` (n, v): the states of numbers, side by side as in :func:`numbers_of`; ``others``: the other states.
    :attr:`states` has all of them. Rows are in any order, and a cell may occur more than once, except after
    :meth:`combined`.
    """

    synopsis: Synopsis
    starts: Longs
    ends: Longs
    shards: Longs
    group: Longs
    groups: int
    key_columns: tuple[pa.StringArray, ...]
    longs: Longs
    doubles: NDArray[np.float64]
    others: dict[State, Column]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size(self) -> int:
        """Bytes of its arrays, about."""
        rows = 32 * len(self) + self.longs.nbytes + self.doubles.nbytes
        keys = sum(column.nbytes for column in self.key_columns)
        return int(rows + keys + sum(column.size for column in self.others.values()))

    @cached_property
    def states(self) -> States:
        """The columns of each state, in the synopsis's order."""
        columns: States = dict(self.others)
        for carrier, matrix in (("longs", self.longs), ("doubles", self.doubles)):
            for state, first in numbers_of(self.synopsis.states)[carrier].items():
                columns[state] = Fixed(matrix[:, first : first + state.width])
        return {state: columns[state] for state in self.synopsis.states}

    @cached_property
    def keys(self) -> list[tuple[str | None, ...]]:
        """The groups' values as tuples of texts."""
        if not self.key_columns:
            return [()] * self.groups
        return list(zip(*(column.to_pylist() for column in self.key_columns), strict=True))

    @cached_property
    def key_texts(self) -> pa.StringArray:
        """The groups' values as JSON lists of texts, as they are stored."""
        return key_texts(self.key_columns, self.groups)

    def take(self, rows: Longs) -> Cells:
        """Select some rows, in the given order."""
        return replace(
            self,
            starts=self.starts[rows],
            ends=self.ends[rows],
            shards=self.shards[rows],
            group=self.group[rows],
            longs=self.longs.take(rows, axis=0),
            doubles=self.doubles.take(rows, axis=0),
            others={state: column.take(rows) for state, column in self.others.items()},
        )

    def combined(self) -> Cells:
        """Return one row a cell, by group (in the order of :attr:`key_texts`), start and shard; groups without rows
        are dropped.

        The same cells give the same bits in whatever order they arrive. O(n + g log g) for g groups.
        """
        return self._by_key()._regrouped()

    def to_store(self) -> Cells:
        """Return the cells as :meth:`combined` does, but by bucket first."""
        return self._by_bucket()._regrouped()

    def _by_bucket(self) -> Cells:
        """Number the groups in the order of their buckets and :attr:`key_texts`, without those that have no rows."""
        order = pc.sort_indices(
            pa.table([buckets(self), self.key_texts], names=["bucket", "key"]),
            [("bucket", "ascending"), ("key", "ascending")],
        )
        return self._arranged(order.to_numpy())

    def _by_key(self) -> Cells:
        """Number the groups in the order of :attr:`key_texts`, without those that have no rows."""
        return self._arranged(pc.sort_indices(self.key_texts).to_numpy())

    def _arranged(self, order: NDArray[Any]) -> Cells:
        """Number the groups in an order, without those that have no rows."""
        used = np.zeros(self.groups, dtype=bool)
        used[self.group] = True
        order = order.astype(np.int64)
        order = order[used[order]]
        rank = np.zeros(self.groups, dtype=np.int64)
        rank[order] = np.arange(len(order))
        columns = tuple(column.take(pa.array(order)) for column in self.key_columns)
        return replace(self, group=rank[self.group], groups=len(order), key_columns=columns)

    def projected(self, bit: int, group_by: tuple[tuple[str, Type], ...]) -> Cells:
        """The cells of one family, of :meth:`combined` cells: the shards with ``bit`` in one, groups rolled up to some
        of the columns, in the order of ``group_by``; combined in the order that these have, all of shard 1."""
        predicate = self.synopsis.predicates[bit.bit_length() - 1]
        family = replace(
            self.synopsis,
            predicates=(predicate,),
            group_by=group_by,
            bucket_by=tuple(name for name, _ in group_by if name in self.synopsis.bucket_by),
        )
        return self._mapped(family, None)._by_key()._regrouped()

    def rolled_up(self, synopsis: Synopsis, begin: int = LONG_MIN, end: int = LONG_MAX) -> Cells:
        """The cells of a coarser synopsis over the same events, for its fragments that start in [begin, end).

        ``synopsis``: its edges, predicates, group columns and states are among this one's. In any order, and more than
        one of a cell.
        """
        return self._mapped(synopsis, (begin, end))

    def keys_of(
        self, group_by: tuple[tuple[str, Type], ...], predicates: tuple[Expression | None, ...]
    ) -> tuple[tuple[pa.StringArray, ...], int]:
        """The distinct values of some group columns among the tuples that satisfy some of the predicates."""
        bare = replace(self.synopsis, predicates=predicates, group_by=group_by, states=(), bucket_by=())
        cells = self._mapped(bare, None)
        used, _ = numbered(cells.group, cells.groups)
        return tuple(column.take(pa.array(used)) for column in cells.key_columns), len(used)

    def merged(self) -> Cells:
        """Return one row a cell, by start, group and shard."""
        return self._regrouped(by_time=True)

    def _mapped(self, synopsis: Synopsis, span: tuple[int, int] | None) -> Cells:
        """Map every row to a coarser synopsis, without the rows that it does not contain."""
        low, high = LONG_MIN if span is None else span[0], LONG_MAX if span is None else span[1]
        if synopsis == self.synopsis and (self.starts >= low).all() and (self.starts < high).all():
            return self
        cells = self
        signatures, number = distinct_of(self.shards)
        shards = _signatures(signatures, self.synopsis.predicates, synopsis.predicates)[number]
        keep = shards != 0
        if span is not None:
            keep &= (self.starts >= span[0]) & (self.starts < span[1])
        if not keep.all():
            rows = np.flatnonzero(keep)
            cells, shards = self.take(rows), shards[rows]
        starts, ends = cells.starts, cells.ends
        if (synopsis.edges, synopsis.period) != (self.synopsis.edges, self.synopsis.period):
            first, last, number = fragments_of(synopsis.fragments, starts)
            starts, ends = first[number], last[number]
        names = [name for name, _ in self.synopsis.group_by]
        columns = tuple(cells.key_columns[names.index(name)] for name, _ in synopsis.group_by)
        group, groups = cells.group, cells.groups
        is_coarser = synopsis.kind.counts_rows and synopsis.edges != self.synopsis.edges
        if is_coarser:
            of_rows = Fragments(synopsis.edges)
            columns = tuple(
                _first_rows(of_rows, column) if name == POSITION else column
                for (name, _), column in zip(synopsis.group_by, columns, strict=True)
            )
        if is_coarser or len(columns) < len(cells.key_columns):
            columns, number, groups = distinct_rows(columns, groups)
            group = number[group]
        longs, doubles = cells.longs, cells.doubles
        if synopsis.states != self.synopsis.states:
            places = numbers_of(self.synopsis.states)
            chosen = {
                carrier: [places[carrier][state] + k for state in states for k in range(state.width)]
                for carrier, states in numbers_of(synopsis.states).items()
            }
            longs, doubles = longs[:, chosen["longs"]], doubles[:, chosen["doubles"]]
        other_states = {state: cells.others[state] for state in synopsis.states if state in cells.others}
        return Cells(synopsis, starts, ends, shards, group, groups, columns, longs, doubles, other_states)

    def _regrouped(self, by_time: bool = False) -> Cells:
        """Return one row a cell: by group, start and shard, or ``by_time``: by start, group and shard. Of sessions one
        row a run, by group, start and shard: runs that overlap or are at most a gap apart are one, within an hour."""
        if self.synopsis.gap is not None:
            return self._joined(self.synopsis.gap)
        row, cell = self._numbered(by_time)
        cells = len(row)
        if cells == len(self):
            return self if bool((row[1:] > row[:-1]).all()) else self.take(row)
        return self._combined(self.starts[row], self.ends[row], row, cell)

    def _joined(self, gap: int) -> Cells:
        order = np.lexsort((self.starts, self.shards, self.group))
        cuts = self.synopsis.fragments.starts(self.starts)
        number, row, starts, ends = _runs(order, self.group, self.shards, cuts, self.starts, self.ends, gap)
        # by start before shard, as other cells are
        rank = np.lexsort((self.shards[row], starts, self.group[row]))
        place = np.empty(len(rank), dtype=np.int64)
        place[rank] = np.arange(len(rank))
        return self._combined(starts[rank], ends[rank], row[rank], place[number])

    def _combined(self, starts: Longs, ends: Longs, row: Longs, cell: Longs) -> Cells:
        """Cells from ``starts`` (c,) to ``ends``, of the shard and group of any one ``row`` of each; ``cell`` (n,): the
        number of each row's cell."""
        return Cells(
            self.synopsis,
            starts,
            ends,
            self.shards[row],
            self.group[row],
            self.groups,
            self.key_columns,
            self._combined_longs(cell, len(row)),
            self._combined_doubles(cell, len(row)),
            {state: column.combined(state, cell, len(row)) for state, column in self.others.items()},
        )

    def _numbered(self, by_time: bool = False) -> tuple[Longs, Longs]:
        """Any one row (c,) of each cell, in the order of :meth:`_regrouped`, and the number (n,) of each row's
        cell.
        """
        starts, fragment = distinct_of(self.starts)
        shards, shard = distinct_of(self.shards)
        parts = [(self.group, self.groups), (fragment, len(starts)), (shard, len(shards))]
        if by_time:
            parts[:2] = parts[1::-1]
        return numbered_tuples(parts, len(self))

    @property
    def _without_states(self) -> Cells:
        """The same cells, of a synopsis that keeps nothing of them."""
        none = np.empty((len(self), 0))
        synopsis = replace(self.synopsis, states=())
        return replace(self, synopsis=synopsis, longs=none.astype(np.int64), doubles=none, others={})

    @property
    def _number_states(self) -> NumberStates:
        """The states, if they are all numbers."""
        sums: list[Any] = [self.others[state] for state in self.synopsis.states if state in self.others]
        return NumberStates(self.longs, self.doubles, sums)

    def _combined_longs(self, cell: Longs, cells: int) -> Longs:
        places = numbers_of(self.synopsis.states)["longs"]
        out = np.zeros((cells, self.longs.shape[1]), dtype=np.int64)
        sums = [(state, first) for state, first in places.items() if state.operation == "add"]
        columns = [first + k for state, first in sums for k in range(state.width)]
        scatter_add(cell, self.longs, np.array(columns, dtype=np.int64), out)
        for state, first in sums:
            if state.width > 1:
                carry(out[:, first : first + state.width])
        for state, first in places.items():
            if state.operation != "add":
                out[:, first] = scattered(state, cell, self.longs[:, first], cells)
        return out

    def _combined_doubles(self, cell: Longs, cells: int) -> NDArray[np.float64]:
        places = numbers_of(self.synopsis.states)["doubles"]
        out = np.zeros((cells, self.doubles.shape[1]))
        for state, first in places.items():
            # zeros have an order too: the least of both is -0.0, whichever came first
            values = ordinals_of_doubles(self.doubles[:, first], exact=True)
            out[:, first] = doubles_of_ordinals(scattered(state, cell, values, cells))
        return out

    # ------------------------------------------------------------------------------------- stored rows
    @staticmethod
    def decode(synopsis: Synopsis, rows: pa.Table) -> Cells:
        """Rows of :data:`PARTIALS` of one synopsis, all with a key, as cells; in their order."""
        numbers = rows["numbers"]
        if numbers.null_count not in (0, len(rows)):
            # some were written before there were numbers
            new = numbers.is_valid().to_numpy()
            parts = [Cells.decode(synopsis, rows.filter(pa.array(chosen))) for chosen in (new, ~new)]
            return concatenated(parts).take(np.argsort(np.concatenate([np.flatnonzero(new), np.flatnonzero(~new)])))
        rows = rows.drop_columns("numbers").unify_dictionaries().combine_chunks()
        stored, indices = encoded(combined_chunks(rows["key"]))
        # a file's dictionary has the keys of other synopses, too
        used, group = numbered(indices.astype(np.int64), len(stored))
        columns = _key_columns(stored.take(pa.array(used)), len(synopsis.group_by))
        place = rows["fragment_start"].to_numpy(), rows["fragment_end"].to_numpy(), rows["shard"].to_numpy()
        if len(rows) and numbers.null_count == 0:
            return Cells(synopsis, *place, group, len(used), columns, *stored_numbers(synopsis, numbers))
        lists = {carrier: StoredLists.of(synopsis, carrier, combined_chunks(rows[carrier])) for carrier in CARRIERS}
        readers = {state: READERS.get(class_of(state)) for state in synopsis.states}
        return Cells(
            synopsis,
            *place,
            group,
            len(used),
            columns,
            lists["longs"].numbers(),
            lists["doubles"].numbers(),
            {state: reader(state, lists) for state, reader in readers.items() if reader is not None},
        )

    def encode(self) -> pa.Table:
        """The cells as rows of :data:`PARTIALS`, in their order."""
        if is_all_numbers(self.others):
            return self._encoded(written_numbers(self._number_states))
        written = WrittenLists(self)
        return self._encoded(None, [written.column(carrier) for carrier in CARRIERS])

    def _encoded(
        self, numbers: pa.Array | pa.ChunkedArray | None, lists: Sequence[pa.ListArray] | None = None
    ) -> pa.Table:
        """The cells as rows of :data:`PARTIALS` with these states."""
        rows = len(self)
        days, number = distinct_of(self.starts // DAY)
        labels = [partition_of(self.synopsis, day * DAY) for day in days.tolist()]
        return pa.table(
            [
                pa.array(labels, pa.string()).take(pa.array(number)),
                pa.repeat(pa.scalar(self.synopsis.stream), rows),
                pa.repeat(pa.scalar(self.synopsis.fingerprint), rows),
                pa.array(self.starts),
                pa.array(self.ends),
                self.key_texts.take(pa.array(self.group)),
                pa.array(self.shards),
                pa.array(buckets(self)[self.group]),
                *(lists or [pa.nulls(rows, PARTIALS.field(carrier).type) for carrier in CARRIERS]),
                pa.nulls(rows, pa.binary()) if numbers is None else numbers,
            ],
            schema=PARTIALS,
        )


KEYS = 1 << 16
"""Keys that are Python objects at once: those take ten times the memory."""


def _key_columns(keys: pa.StringArray, columns: int) -> tuple[pa.StringArray, ...]:
    """The values of each group column of some keys."""
    parts: list[list[pa.StringArray]] = [[pa.array([], pa.string())] for _ in range(columns)]
    for first in range(0, len(keys) if columns else 0, KEYS):
        values = json.loads("[" + ",".join(keys.slice(first, KEYS).to_pylist()) + "]")
        for part, column in zip(parts, zip(*values, strict=True), strict=True):
            part.append(pa.array(column, pa.string()))
    return tuple(pa.concat_arrays(part) for part in parts)


def concatenated(cells: Sequence[Cells]) -> Cells:
    """Concatenate cells of one synopsis (at least one), with groups and texts renumbered."""
    first = cells[0]
    if len(cells) == 1:
        return first
    total = sum(part.groups for part in cells)
    joined = [pa.concat_arrays(columns) for columns in zip(*(part.key_columns for part in cells), strict=True)]
    columns, number, groups = distinct_rows(joined, total)
    cuts = np.cumsum([0, *(part.groups for part in cells)])
    return Cells(
        first.synopsis,
        np.concatenate([part.starts for part in cells]),
        np.concatenate([part.ends for part in cells]),
        np.concatenate([part.shards for part in cells]),
        np.concatenate([number[low + part.group] for low, part in zip(cuts, cells, strict=False)]),
        groups,
        columns,
        np.concatenate([part.longs for part in cells]),
        np.concatenate([part.doubles for part in cells]),
        {
            state: column.joined(state, [part.others[state] for part in cells])  # type: ignore[misc]
            for state, column in first.others.items()
        },
    )


def stored_rows(parts: Sequence[Cells]) -> pa.Table:
    """Cells of one synopsis (at least one part) as rows to store: ``concatenated(parts).to_store().encode()``.

    If all states are numbers and no cell occurs twice, each part writes its states where they belong in the result:
    nothing else is copied.
    """
    states = [part._number_states for part in parts] if is_all_numbers(parts[0].others) else []
    is_small = sum(map(len, parts)) * 8 * max((part.widest for part in states), default=0) <= MOST_BYTES
    if states and is_small:
        joined = concatenated([part._without_states for part in parts])._by_bucket()
        row, place = joined._numbered()
        if len(row) == len(joined):
            ordered = replace(joined.take(row), synopsis=parts[0].synopsis)
            return ordered._encoded(placed_numbers(states, place))
    return concatenated(parts).to_store().encode()


def buckets(cells: Cells) -> NDArray[np.int32]:
    """Bucket (groups,) of each group: that of its values of ``synopsis.bucket_by`` alone, so that all the groups that
    a family rolls up to one are in one bucket."""
    names = [name for name, _ in cells.synopsis.group_by]
    if list(cells.synopsis.bucket_by) == names:
        return buckets_of(cells.key_texts)
    chosen = [cells.key_columns[names.index(name)] for name in cells.synopsis.bucket_by]
    columns, number, groups = distinct_rows(chosen, cells.groups)
    return buckets_of(key_texts(columns, groups))[number]


def buckets_of(keys: pa.StringArray) -> NDArray[np.int32]:
    """Buckets as from :func:`spark_jobs.store.warehouse.data_files.bucket_of`, without an object a key."""
    return (checksums_of(keys) % BUCKETS).astype(np.int32)


def checksums_of(keys: pa.StringArray) -> NDArray[np.uint32]:
    """CRC-32 (n,) of each key, which decides its bucket."""
    if len(keys) == 0:
        return np.empty(0, dtype=np.uint32)
    _, offsets, data = keys.buffers()
    first = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    checksums: NDArray[np.uint32] = _checksums(first, np.frombuffer(data, dtype=np.uint8), _CHECKSUMS)
    return checksums


_CHECKSUMS = np.array([zlib.crc32(bytes([byte ^ 0xFF])) ^ 0xFF000000 for byte in range(256)], dtype=np.uint32)
"""Table of CRC-32: the checksum of each byte if the other bits of the CRC are 0."""


@numba.njit(cache=True)
def _checksums(offsets, data, table):
    """CRC-32 (n,) of some texts, byte by byte."""
    out = np.empty(len(offsets) - 1, np.uint32)
    for i in range(len(out)):
        checksum = np.uint32(0xFFFFFFFF)
        for at in range(offsets[i], offsets[i + 1]):
            low = (checksum ^ np.uint32(data[at])) & np.uint32(0xFF)
            checksum = (checksum >> np.uint32(8)) ^ table[low]
        out[i] = ~checksum
    return out


@numba.njit(cache=True)
def _runs(order, group, shard, cut, starts, ends, gap):
    """The run (n,) of each row, and of each run one of its rows, its start and its end (r,).

    order: rows by group, shard and start; cut: (n,) what a run does not cross.
    """
    number = np.empty(len(order), np.int64)
    row, first, last = np.empty(len(order), np.int64), np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    at = -1
    for i in range(len(order)):
        this = order[i]
        before = order[i - 1] if i else this
        is_same = group[this] == group[before] and shard[this] == shard[before] and cut[this] == cut[before]
        if i == 0 or not is_same or starts[this] - (last[at] - 1) > gap:
            at += 1
            row[at], first[at], last[at] = this, starts[this], ends[this]
        number[this] = at
        last[at] = max(last[at], ends[this])
    return number, row[: at + 1], first[: at + 1], last[: at + 1]


def fragments_of(fragments: Fragments, instants: Longs) -> tuple[Longs, Longs, Longs]:
    """Starts and ends (f,) of fragments, ascending, and the number (n,) of each instant's; quick where neighbours are
    close in time. Of few instants that lie far apart only their own fragments are there."""
    if len(instants) == 0:
        return instants, instants, instants
    low, high = int(instants.min()), int(instants.max())
    first = fragments.last_edge(low)
    if _edges_between(fragments, first, high) > max(len(instants), min(SPARE * len(instants), 1 << 16)):
        starts, number = distinct_of(fragments.starts(instants))
        return starts, fragments.ends(starts), number
    starts = fragments.between(first, high)
    return starts, np.append(starts[1:], fragments.ends(starts[-1:])), positions_in(starts, instants)


def _first_rows(fragments: Fragments, numbers: pa.StringArray) -> pa.StringArray:
    """The first row numbers of the fragments that rows are in, as texts."""
    return pa.array(fragments.starts(numbers.cast(pa.int64()).to_numpy())).cast(pa.string())


def _edges_between(fragments: Fragments, first: int, last: int) -> int:
    return sum((last - first) // slide + 1 for slide, _ in (*fragments.edges, (DAY, 0)))


def _signatures(shards: Longs, predicates: Sequence[Expression | None], wanted: Sequence[Expression | None]) -> Longs:
    """Signatures over some predicates as signatures over some of them, in their own order."""
    if tuple(predicates) == tuple(wanted):
        return shards
    out = np.zeros(len(shards), dtype=np.int64)
    for bit, predicate in enumerate(wanted):
        out |= ((shards >> predicates.index(predicate)) & 1) << bit
    return out
