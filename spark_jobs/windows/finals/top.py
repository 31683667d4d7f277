"""ORDER BY … LIMIT k: the first k groups of each window.

Groups are spread over the tasks of the final stage. Each task keeps the first k of its groups in every window, with
the values of their order. The driver merges those of all tasks. So each task sends at most windows x k answers of a
query, and nothing more is computed of groups that cannot be among the first.

If the order of an answer overflows, its place is unknown. The answer stays, in addition to the k, with null in all
outputs and an error message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.workload.values import ACQ, Top
from spark_jobs.results.rows import group_values, stamped, typed
from spark_jobs.store.warehouse.data_files import DataFile, write_files

Longs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TopRows:
    """Some answers of one query: ``table``: rows of :data:`ANSWERS`, ``orders``: the values of their order, typed;
    ``failed`` (a,): the answers whose place is unknown.
    """

    query: str
    table: pa.Table
    orders: tuple[pa.ChunkedArray, ...]
    failed: NDArray[np.bool_]

    def first(self, query: ACQ) -> TopRows:
        """The first k of each window, and those that failed; by window and group as they came."""
        assert query.top is not None
        windows = self.table["instant"].cast(pa.int64()).to_numpy()
        groups = group_codes(query, self.table["key"])
        rows = first_of_each(query.top, windows, self.orders, groups, self.failed)
        index = pa.array(rows)
        return TopRows(self.query, self.table.take(index), tuple(o.take(index) for o in self.orders), self.failed[rows])


def gathered(parts: Sequence[TopRows]) -> TopRows:
    """Concatenate the answers of one query from several parts."""
    orders = [
        pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)
        for columns in zip(*(part.orders for part in parts), strict=True)
    ]
    rows = pa.concat_tables([part.table for part in parts])
    return TopRows(parts[0].query, rows, tuple(orders), np.concatenate([part.failed for part in parts]))


class TopAnswers:
    """The first answers of queries, collected piece by piece."""

    def __init__(self, queries: Iterable[ACQ]) -> None:
        self.queries = {query.name: query for query in queries if query.top is not None}
        self._found: dict[str, list[TopRows]] = {}
        self._new: dict[str, int] = {}

    def add(self, rows: TopRows) -> None:
        """Add some answers, of whole windows or not; those that cannot be among the first are dropped in time."""
        pieces = self._found.setdefault(rows.query, [])
        pieces.append(rows)
        self._new[rows.query] = self._new.get(rows.query, 0) + len(rows.table)
        if len(pieces) > 1 and self._new[rows.query] > max(_ENOUGH, len(pieces[0].table)):
            self._found[rows.query] = [self._first(rows.query)]
            self._new[rows.query] = 0

    def close(self) -> Iterator[TopRows]:
        """The first answers of each query that has any."""
        for name in self._found:
            yield self._first(name)

    def _first(self, name: str) -> TopRows:
        return gathered(self._found[name]).first(self.queries[name])


_ENOUGH = 1 << 16
"""So many new answers are put in order at once."""


def write_top(
    queries: Sequence[tuple[str, ACQ]], parts: Iterable[TopRows], root: str, stamp: Mapping[str, pa.Scalar]
) -> Iterator[DataFile]:
    """Write the first answers of queries, each with its stream, after all tasks have returned theirs."""
    answers = TopAnswers(query for _, query in queries)
    for part in parts:
        answers.add(part)
    streams = {query.name: stream for stream, query in queries}
    definitions = {query.name: query.definition for _, query in queries}
    tables = [
        stamped(batch, streams[top_rows.query], stamp, definitions)
        for top_rows in answers.close()
        for batch in top_rows.table.combine_chunks().to_batches()
    ]
    if tables:
        yield from write_files(root, pa.concat_tables(tables))


# ---------------------------------------------------------------------------------------------------- order
def first_of_each(
    top: Top,
    windows: Longs,
    orders: Sequence[pa.Array | pa.ChunkedArray],
    groups: Sequence[Longs],
    failed: NDArray[np.bool_],
) -> Longs:
    """The numbers, ascending, of the first k answers of each window and of those that ``failed``, which do not count.

    ``windows`` (a,): whose answer each is; ``orders``: what it is put in order by; ``groups``: what equals are, the
    first column first.
    """
    keys = [
        _codes(column, order.descending, order.nulls_first) for column, order in zip(orders, top.orders, strict=True)
    ]
    able = np.flatnonzero(~failed)
    # the last key of lexsort is the first
    order = able[np.lexsort([key[able] for key in (*reversed((*keys, *groups)), windows)])]
    sorted_windows = windows[order]
    heads = np.searchsorted(sorted_windows, sorted_windows)
    first_rows = order[np.arange(len(order)) - heads < top.k]
    return np.sort(np.concatenate([first_rows, np.flatnonzero(failed)]))


def group_codes(query: ACQ, keys: pa.Array | pa.ChunkedArray) -> list[Longs]:
    """Numbers (a,) in the order of the values of each group column of the keys (a,)."""
    texts = group_values(keys, len(query.group_by))
    return [_codes(typed(text, type), False, True) for text, (_, type) in zip(texts, query.group_by, strict=True)]


def _codes(column: pa.Array | pa.ChunkedArray, descending: bool, nulls_first: bool) -> Longs:
    """Numbers (a,) in the order of the values: NaN is the greatest and equal to itself, as are both zeros."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    known = array.drop_null()
    if pa.types.is_boolean(known.type) or pa.types.is_timestamp(known.type):
        known = known.cast(pa.int64())
    elif pa.types.is_date(known.type):
        known = known.cast(pa.int32())
    if pa.types.is_decimal(known.type) or pa.types.is_string(known.type):
        known = pc.dictionary_encode(known)
        listed = known.dictionary.to_pylist()
        rank = np.empty(len(listed), dtype=np.int64)
        rank[np.array(sorted(range(len(listed)), key=listed.__getitem__), dtype=np.int64)] = np.arange(len(listed))
        numbers = rank[known.indices.to_numpy(zero_copy_only=False)] if len(listed) else rank
    else:
        _, numbers = np.unique(known.to_numpy(zero_copy_only=False), return_inverse=True)
    codes = np.full(len(array), -1 if nulls_first else len(array) + 1, dtype=np.int64)
    codes[valid] = len(array) - numbers if descending else numbers
    return codes
