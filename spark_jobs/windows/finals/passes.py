"""Work of a task of the final stage, in passes whose partial rows fit into its memory.

As a rule everything fits, and there is one pass. Work that does not fit is divided by the first of these rules that
applies. Each part is tried again, until it fits. Each pass reads the rows that it needs once more, row group by row
group, and keeps no others:

1. the buckets of group keys; 2. the synopses; 3. the groups, by a hash of the group columns that all queries at hand
have; 4. (windows of time) the families of a synopsis: each skips tuples of other filters, and all groups of some
families
   have columns that others lack (3);
5. (windows of time) the remaining rows are reduced while they are read: combined into the cells of the family,
   where many rows are of one cell (groups rolled up, or one key whose events are everywhere);
6. (windows of time) the instants whose windows are not empty, each with the fragments under its windows; those of
   the heaviest window first; then the queries.

Whole groups, and all fragments of a window, are always in one pass: a window of one group of one query that does
not fit is :class:`TooLarge`. The query is then dropped from all remaining passes. As its heaviest window is tried
first, none of its other windows is computed. Windows of rows and sequences need all rows of a key at once (1, 2,
3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.states import MULTISETS
from optimizer.synopses.synopsis import families_of, states_of
from optimizer.windows.alignment import ends_of, history_start, instants_over, starts_of
from optimizer.workload.values import ACQ, Window
from spark_jobs.store.arrays.numbering import distinct_of
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import read_buckets, stored_bytes
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.partials.cells import Cells, concatenated
from spark_jobs.windows.partials.late_groups import family_cells, stored_bit
from spark_jobs.windows.partials.levels import LevelRows

if TYPE_CHECKING:
    from spark_jobs.windows.partials.synopsis_work import SynopsisWork

TOO_LARGE = "HDL-610"
"""Code of a query that needs more memory at once than a task may take."""

HASHINGS = 2
"""Number of times that groups are divided by a hash; work that is still too large is taken for one group."""

LARGE_ROW = 1 << 11
"""Bytes of a row from which on its states are taken for multisets."""

MOST_PIECES = 1 << 10
"""Pieces that groups are divided into at once."""

EXPANDS = 16
"""Bytes of rows for each byte of their files, at most as a rule. Files that fit even then are read at once, without a
look at their footers before."""


@dataclass(frozen=True)
class TooLarge:
    """A query that a task cannot answer within its memory: its name, the code and what is wrong."""

    query: str
    code: str
    message: str


@dataclass(eq=False)
class Pass:
    """Work with its partial ``rows``; of ``parts`` the instants in (``begin``, their last] are answered."""

    parts: tuple[SynopsisWork, ...]
    begin: int
    rows: pa.Table

    def forget(self) -> None:
        """Drop the rows."""
        self.rows = PARTIALS.empty_table()


class _Hash(NamedTuple):
    """Groups for whose values of some ``columns`` the hash has this ``remainder``, after a number of ``hashings``."""

    columns: tuple[str, ...]
    divisor: int
    remainder: int
    hashings: int


@dataclass(frozen=True)
class _Piece:
    """Work that may fit; ``hashes``: what the hashes of rows' groups have to be; ``is_whole``: all rows of the buckets
    are needed, whatever they are of."""

    buckets: frozenset[int]
    parts: tuple[SynopsisWork, ...]
    begin: int
    hashes: tuple[_Hash, ...] = ()
    is_whole: bool = False

    @property
    def queries(self) -> list[ACQ]:
        return [query for part in self.parts for query in part.queries]

    @property
    def families(self) -> int:
        return len(families_of(self.queries))

    @property
    def is_family(self) -> bool:
        """Return whether it is one family of windows of time."""
        return len(self.parts) == 1 and self.parts[0].synopsis.kind.has_fragments and self.families == 1

    def without(self, names: AbstractSet[str]) -> _Piece:
        """The piece without some queries, and the parts that have no others."""
        if not any(query.name in names for query in self.queries):
            return self
        pairs = [(part, tuple(query for query in part.queries if query.name not in names)) for part in self.parts]
        return replace(self, parts=tuple(_of_queries(part, queries, self.begin) for part, queries in pairs if queries))

    @property
    def span(self) -> tuple[int, int] | None:
        """The span [begin, end) of the fragments that it needs, if it has windows of time alone."""
        if not all(part.synopsis.kind.has_fragments for part in self.parts):
            return None
        return min(part.begin for part in self.parts), max(part.end for part in self.parts)

    def stored(self, paths: Sequence[str], most: int) -> Iterator[pa.Table]:
        """The rows of its buckets in some files, at most about ``most`` bytes at once; levels in place of fragments."""
        return map(LevelRows(self.parts).of, read_buckets(paths, self.buckets, most, self.span))

    def chosen(self, rows: pa.Table) -> pa.Table:
        """The rows that it needs of some rows of its buckets."""
        if self.is_whole:
            return rows
        fingerprints = pa.array([part.synopsis.fingerprint for part in self.parts])
        names = rows["fingerprint"].cast(pa.string())
        mask = pc.is_in(names, fingerprints)
        first, last = min(part.begin for part in self.parts), max(part.end for part in self.parts)
        mask = pc.and_(mask, pc.greater(rows["fragment_end"], first))
        mask = pc.and_(mask, pc.less(rows["fragment_start"], last))
        if self.is_family:
            bit = stored_bit(self.parts[0].synopsis, self.queries[0], self.parts[0].stream)
            mask = pc.and_(mask, pc.fill_null(pc.not_equal(pc.bit_wise_and(rows["shard"], bit), 0), False))
        rows = _compact(rows.filter(pc.fill_null(mask, False)))
        for hashed in self.hashes:
            rows = rows.filter(pa.array(self._remainders(rows, hashed) == hashed.remainder))
        return _compact(rows) if self.hashes else rows

    def _remainders(self, rows: pa.Table, hashed: _Hash) -> NDArray[np.int64]:
        """The remainder (n,) of the hash of each row's group."""
        names = [name for name, _ in self.parts[0].synopsis.group_by]
        places = [names.index(name) for name in hashed.columns]
        remainders = [np.empty(0, dtype=np.int64)]
        for chunk in rows["key"].chunks:
            keys = chunk.dictionary
            if len(places) < len(names):
                parsed = (json.loads(key) for key in keys.to_pylist())
                keys = pa.array([json.dumps([values[at] for at in places]) for values in parsed], pa.string())
            numbers = _hashes(keys) % np.uint64(hashed.divisor)
            remainders.append(numbers.astype(np.int64)[chunk.indices.to_numpy(zero_copy_only=False)])
        return np.concatenate(remainders)


def _hashes(texts: pa.StringArray) -> NDArray[np.uint64]:
    """A hash (n,) of each text, which has nothing to do with its bucket."""
    if len(texts) == 0:
        return np.empty(0, dtype=np.uint64)
    _, offsets, data = texts.buffers()
    first = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    hashes: NDArray[np.uint64] = _hash_each(first, np.frombuffer(data, dtype=np.uint8))
    return hashes


@numba.njit(cache=True)
def _hash_each(offsets, data):
    """FNV-1a with 64 bits, its high bits mixed into the low ones."""
    out = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(out)):
        hashed = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            hashed = (hashed ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        out[i] = hashed ^ (hashed >> np.uint64(29))
    return out


def _weight(rows: pa.Table) -> int:
    """Bytes of rows; twice those of states that are large, for the structures over their elements are larger."""
    size: int = rows.nbytes
    return 2 * size if size > LARGE_ROW * len(rows) else size


def _compact(rows: pa.Table) -> pa.Table:
    """Rows of the same schema whose dictionaries have only the values that occur, ready to be concatenated with
    others.
    """
    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            texts = rows[field.name].cast(pa.string()).combine_chunks()
            texts = pa.chunked_array([texts]) if isinstance(texts, pa.Array) else texts
            rows = rows.set_column(at, field, texts.dictionary_encode())
    return rows


def passes(
    paths: Sequence[str], buckets: AbstractSet[int], parts: Sequence[SynopsisWork], begin: int, memory: TaskMemory
) -> Iterator[Pass | TooLarge]:
    """Yield the work for some buckets in some files of partial rows, one pass after the other, and the queries of
    which a window does not fit.
    """
    refused: set[str] = set()
    is_small = _are_small(paths, memory.partial_rows // EXPANDS)
    waiting = [_Piece(frozenset(buckets), tuple(parts), begin, is_whole=True)]
    while waiting:
        piece = waiting.pop().without(refused)
        if not piece.parts:
            continue
        weights = _FragmentBytes()
        rows, size = None, 0
        if piece.is_whole and len(piece.buckets) > 1 and not is_small:
            size = stored_bytes(paths, piece.buckets, piece.span)
        if size <= memory.partial_rows:
            rows, size = _read(paths, piece, memory.partial_rows, weights)
        if rows is None and piece.is_family:
            reduced = _reduced(paths, piece, memory.partial_rows)
            if reduced is not None:
                piece, rows = reduced
        if rows is not None:
            if len(rows):
                next_pass = Pass(piece.parts, piece.begin, rows)
                del rows
                yield next_pass
            continue
        smaller = _divided(piece, max(2, -(-2 * size // memory.partial_rows)), weights)
        if smaller is not None:
            waiting += smaller[::-1]
        else:
            refused.update(query.name for query in piece.queries)
            yield from (TooLarge(query.name, TOO_LARGE, _said(query, size, memory)) for query in piece.queries)


def _are_small(paths: Sequence[str], most: int) -> bool:
    """Return whether files of this machine have at most ``most`` bytes together."""
    places = [Place.of(path) for path in paths]
    if not all(place.is_local for place in places):
        return False
    size = 0
    for place in places:
        # a missing file is reported when it is read
        with suppress(OSError):
            size += Path(place.url).stat().st_size
        if size > most:
            return False
    return True


class _FragmentBytes:
    """Bytes of the rows of each fragment, counted as they are read."""

    def __init__(self) -> None:
        self._starts: list[NDArray[np.int64]] = []
        self._bytes: list[NDArray[np.float64]] = []

    def add(self, rows: pa.Table) -> None:
        """Count some more rows, each with its share of all their bytes."""
        starts, number = distinct_of(rows["fragment_start"].to_numpy())
        self._starts.append(starts)
        row = _weight(rows) / max(len(rows), 1)
        self._bytes.append((np.bincount(number, minlength=len(starts)) * row).astype(np.float64))

    @cached_property
    def fragments(self) -> NDArray[np.int64]:
        """Starts of the fragments (f,), ascending."""
        return distinct_of(np.concatenate([np.empty(0, dtype=np.int64), *self._starts]))[0]

    @cached_property
    def _before(self) -> NDArray[np.float64]:
        """The bytes of all fragments before each, and of all (f + 1,)."""
        totals = np.zeros(len(self.fragments) + 1)
        for starts, size in zip(self._starts, self._bytes, strict=True):
            totals[np.searchsorted(self.fragments, starts) + 1] += size
        return np.cumsum(totals)

    def under(self, window: Window, moments: NDArray[np.int64]) -> NDArray[np.float64]:
        """The bytes under the windows of some instants (n,)."""
        low = np.searchsorted(self.fragments, starts_of(window, moments))
        return self._before[np.searchsorted(self.fragments, ends_of(window, moments))] - self._before[low]


def _said(query: ACQ, size: int, memory: TaskMemory) -> str:
    what = "a window of one group" if query.kind.has_fragments else "the rows of one key"
    return f"{what} takes some {size:,} bytes of partial rows, of which a task may hold {memory.partial_rows:,} at once"


def _read(paths: Sequence[str], piece: _Piece, most: int, weights: _FragmentBytes) -> tuple[pa.Table | None, int]:
    """The rows of a piece, None if they have more bytes than ``most``; how many they have. Of a family's rows those of
    each fragment are counted in ``weights``."""
    tables: list[pa.Table] = []
    size = 0
    for rows in piece.stored(paths, most // 4):
        needed = piece.chosen(rows)
        size += _weight(needed)
        if piece.is_family:
            weights.add(needed)
        tables = [*tables, needed] if size <= most else []
    if size > most:
        return None, size
    return pa.concat_tables(tables) if tables else PARTIALS.empty_table(), size


def _reduced(paths: Sequence[str], piece: _Piece, most: int) -> tuple[_Piece, pa.Table] | None:
    """A family with its rows combined into its cells as they are read, of the states that its queries need; None if
    those have more bytes than ``most``."""
    # the buckets also hold rows of other synopses
    piece = replace(piece, is_whole=False)
    (part,) = piece.parts
    query, waiting, size = part.queries[0], list[pa.Table](), 0
    # some queries need nothing of what others of their family made large
    narrow = replace(part.synopsis, states=states_of(part.queries))
    heaviest = most if any(state.kind in MULTISETS for state in narrow.states) else 4 * most
    cells: Cells | None = None

    def combined(tables: Sequence[pa.Table], before: Cells | None) -> Cells:
        new_cells = Cells.decode(part.synopsis, pa.concat_tables(tables)).rolled_up(narrow)
        if not narrow.is_plain(query):
            new_cells = family_cells(new_cells.combined(), query, part.stream)
        return (new_cells if before is None else concatenated([before, new_cells])).combined()

    for needed in _slices(map(piece.chosen, piece.stored(paths, most // 4)), most // 4):
        more = _weight(needed)
        if size + more > most // 2 and waiting:
            cells, waiting, size = combined(waiting, cells), [], 0
        if more > heaviest or (cells is not None and cells.size > most // 2):
            return None
        waiting.append(needed)
        size += more
    cells = combined(waiting, cells) if waiting else cells
    if cells is None:
        return piece, PARTIALS.empty_table()
    rows = cells.encode()
    return (replace(piece, parts=(replace(part, synopsis=cells.synopsis),)), rows) if _weight(rows) <= most else None


def _slices(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Tables cut where they weigh more than ``most``, as far as they have rows."""
    for table in tables:
        rows = max(1, len(table) * most // max(_weight(table), most))
        if rows >= len(table):
            yield table
        else:
            yield from (_compact(table.slice(first, rows)) for first in range(0, len(table), rows))


def _divided(piece: _Piece, pieces: int, weights: _FragmentBytes) -> list[_Piece] | None:
    """Divide a piece into about ``pieces`` smaller ones; None if it cannot be divided. ``weights``: the bytes of
    its fragments, if it is a family that was read.
    """
    if len(piece.buckets) > 1:
        cuts = np.array_split(np.array(sorted(piece.buckets)), min(pieces, len(piece.buckets)))
        return [replace(piece, buckets=frozenset(cut.tolist())) for cut in cuts]
    piece = replace(piece, is_whole=False)
    if len(piece.parts) > 1:
        size = -(-len(piece.parts) // pieces)
        return [replace(piece, parts=piece.parts[at : at + size]) for at in range(0, len(piece.parts), size)]
    rules = (_by_group, _by_family, partial(_by_instant, weights=weights), _by_query)
    has_fragments = piece.parts[0].synopsis.kind.has_fragments
    return next(
        (divided for rule in rules[: None if has_fragments else 1] if (divided := rule(piece, pieces)) is not None),
        None,
    )


def _by_group(piece: _Piece, pieces: int) -> list[_Piece] | None:
    (part,) = piece.parts
    columns = part.synopsis.bucket_by
    if part.synopsis.kind.has_fragments:
        common = frozenset.intersection(*(query.answered_by for query in piece.queries))
        columns = tuple(name for name, _ in part.synopsis.group_by if name in common)
    before = next((hashed for hashed in piece.hashes if hashed.columns == columns), _Hash(columns, 1, 0, 0))
    if not columns or before.hashings == HASHINGS:
        return None
    other_hashes = tuple(hashed for hashed in piece.hashes if hashed.columns != columns)
    pieces = min(pieces, MOST_PIECES)
    new_hashes = [
        before._replace(
            divisor=before.divisor * pieces,
            remainder=before.remainder + before.divisor * number,
            hashings=before.hashings + 1,
        )
        for number in range(pieces)
    ]
    return [replace(piece, hashes=(*other_hashes, hashed)) for hashed in new_hashes]


def _by_family(piece: _Piece, pieces: int) -> list[_Piece] | None:
    (part,) = piece.parts
    if piece.families == 1:
        return None
    return [replace(piece, parts=(replace(part, queries=members),)) for members in families_of(part.queries).values()]


def _by_instant(piece: _Piece, pieces: int, weights: _FragmentBytes) -> list[_Piece] | None:
    (part,) = piece.parts
    until = part.last_instant
    windows = list(dict.fromkeys(query.window for query in part.queries))
    due = [instants_over(window, weights.fragments, piece.begin, until) for window in windows]
    sizes = [weights.under(window, moments) for window, moments in zip(windows, due, strict=True)]
    known, number = distinct_of(np.concatenate(due))
    if len(known) < 2:
        return None
    heaviest = int(number[np.argmax(np.concatenate(sizes))])
    cuts = np.array_split(np.arange(len(known)), min(pieces, len(known)))
    edges = [piece.begin, *(int(known[cut[-1]]) for cut in cuts)]
    divided: list[_Piece] = []
    for at, (first, last) in enumerate(pairwise(edges)):
        work = part.between(first, last)
        if work is not None:
            divided.insert(0 if heaviest in cuts[at] else len(divided), replace(piece, parts=(work,), begin=first))
    return divided


def _by_query(piece: _Piece, pieces: int) -> list[_Piece] | None:
    (part,) = piece.parts
    if len(part.queries) == 1:
        return None
    return [replace(piece, parts=(_of_queries(part, (query,), piece.begin),)) for query in part.queries]


def _of_queries(part: SynopsisWork, queries: tuple[ACQ, ...], begin: int) -> SynopsisWork:
    """The part with some of its queries, and no more history than their windows after ``begin`` cover."""
    if part.synopsis.kind.has_fragments:
        windows, until = [query.window for query in queries], part.last_instant
        start = max(part.begin, history_start(windows, begin, until))
        end = min(part.end, until - min(window.ago for window in windows))
        part = replace(part, begin=min(start, end), end=end, until=until)
    return replace(part, queries=queries)
