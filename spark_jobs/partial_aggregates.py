"""Partial aggregates: one pass over a stream fills every synopsis of every tree.

Each task reads its splits itself (:mod:`spark_jobs.sources`) and lifts the events into cells (fragment, group)
with NumPy and Numba; only partial rows, not events, cross into the JVM. What several synopses share is computed
once a batch: the fragment of each event per edge set, group codes per group-by set, a mask per filter, the values
of each argument. Rows of one cell that come from several splits are then combined after one shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates import LIMB, State, limbs_of
from optimizer.intervals import ADD_DOUBLE, MAX, MIN, fold
from optimizer.query import Expression, Stream, Type, columns_of
from optimizer.synopsis import CARRIERS, Synopsis
from optimizer.window import DAY
from spark_jobs.expressions import evaluate
from spark_jobs.files import bucket_of, write_files
from spark_jobs.sources import Split, read_split, times_of

PARTIALS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("fragment_start", pa.int64(), nullable=False),
        pa.field("fragment_end", pa.int64(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("longs", pa.list_(pa.int64())),
        pa.field("doubles", pa.list_(pa.float64())),
        pa.field("texts", pa.list_(pa.string())),
    ]
)
"""Rows of the partials table. ``key``: the group's values as a JSON list of texts (see :func:`group_keys`); null in
the rows that say which fragments of a synopsis are complete. ``bucket``: see :mod:`spark_jobs.files`."""

CELLS = 1 << 22
"""Most cells (fragments x groups) of a batch that are addressed directly; more are numbered by sorting."""

LONG_MIN, LONG_MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Span:
    """Fill a synopsis for the fragments that start in [begin, end) (microseconds; both are edges)."""

    synopsis: Synopsis
    begin: int
    end: int


# ------------------------------------------------------------------------------------- numba: lifting
@numba.njit(cache=True)
def _count(cells, valid, out):
    for i in range(len(cells)):
        if valid[i]:
            out[cells[i]] += 1


@numba.njit(cache=True)
def _add_limbs(cells, low, high, valid, out, at):
    for i in range(len(cells)):
        if valid[i]:
            out[cells[i], at] += low[i]
            out[cells[i], at + 1] += high[i]


@numba.njit(cache=True)
def _add_doubles(cells, values, valid, out, at, squared):
    for i in range(len(cells)):
        if valid[i]:
            x = values[i]
            error = 0.0
            if squared:
                # x * x and its rounding error (Dekker)
                split = 134217729.0 * x
                high = split - (split - x)
                low = x - high
                x = x * x
                error = low * low - ((x - high * high) - 2.0 * high * low)
                if not np.isfinite(error):
                    error = 0.0
            cell = cells[i]
            before = out[cell, at]
            total = before + x
            if np.isfinite(total):
                virtual = total - before
                out[cell, at + 1] += (before - (total - virtual)) + (x - virtual) + error
            else:
                out[cell, at + 1] = 0.0
            out[cell, at] = total


@numba.njit(cache=True)
def _extreme(cells, values, valid, out, at, greatest):
    for i in range(len(cells)):
        if valid[i]:
            x, best = values[i], out[cells[i], at]
            # Spark's order: NaN is the greatest value of all
            if greatest:
                if x > best or x != x:
                    out[cells[i], at] = x
            elif x < best or best != best:
                out[cells[i], at] = x


# ------------------------------------------------------------------------------------------- lifting
class _Batch:
    """One decoded batch with everything that several synopses share, computed once."""

    def __init__(self, batch: pa.RecordBatch, times: NDArray[np.int64], schema: dict[str, Type]) -> None:
        self.batch, self.times, self.schema = batch, times, schema
        self._fragments: dict[Any, NDArray[np.int64]] = {}
        self._masks: dict[Any, NDArray[np.bool_]] = {}
        self._groups: dict[Any, tuple[NDArray[np.int64], list[str]]] = {}
        self._values: dict[Any, tuple[Any, NDArray[np.bool_]]] = {}

    def fragment_starts(self, synopsis: Synopsis) -> NDArray[np.int64]:
        if synopsis.edges not in self._fragments:
            self._fragments[synopsis.edges] = synopsis.fragments.starts(self.times)
        return self._fragments[synopsis.edges]

    def mask(self, filter: Expression | None) -> NDArray[np.bool_]:
        if filter not in self._masks:
            if filter is None:
                self._masks[filter] = np.ones(len(self.times), dtype=bool)
            else:
                passes = _flat(evaluate(filter, self.batch, self.schema))
                self._masks[filter] = pc.fill_null(passes, False).to_numpy(zero_copy_only=False)
        return self._masks[filter]

    def groups(self, columns: tuple[tuple[str, Type], ...]) -> tuple[NDArray[np.int64], list[str]]:
        if columns not in self._groups:
            self._groups[columns] = group_keys([self.batch.column(name) for name, _ in columns], len(self.times))
        return self._groups[columns]

    def values(self, argument: Expression) -> tuple[pa.Array, NDArray[np.bool_]]:
        if argument not in self._values:
            array = _flat(evaluate(argument, self.batch, self.schema))
            self._values[argument] = (array, array.is_valid().to_numpy(zero_copy_only=False))
        return self._values[argument]


def _flat(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def group_keys(columns: Sequence[pa.Array], rows: int) -> tuple[NDArray[np.int64], list[str]]:
    """Group number (n,) of each row, and each group's key: the JSON list of its values as texts, null as null."""
    codes = np.zeros(rows, dtype=np.int64)
    texts: list[list[str | None]] = [[]]
    for column in columns:
        encoded = _flat(column).dictionary_encode(null_encoding="encode")
        values = _as_texts(encoded.dictionary)
        combined = codes * len(values) + encoded.indices.to_numpy(zero_copy_only=False)
        present, codes = renumbered(combined, len(texts) * len(values))
        texts = [[*texts[code // len(values)], values[code % len(values)]] for code in present]
    return codes, [json.dumps(text, separators=(",", ":"), ensure_ascii=False) for text in texts]


def renumbered(codes: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct codes, ascending, and the number of each row's among them; codes are in [0, most)."""
    if most > CELLS:
        return np.unique(codes, return_inverse=True)
    present = np.flatnonzero(np.bincount(codes, minlength=most))
    number = np.zeros(most, dtype=np.int64)
    number[present] = np.arange(len(present))
    return present, number[codes]


def _as_texts(dictionary: pa.Array) -> list[str | None]:
    """Group values as texts that :func:`spark_jobs.read.typed` reads back: timestamps as microseconds."""
    if pa.types.is_timestamp(dictionary.type):
        dictionary = dictionary.cast(pa.int64())
    values = dictionary.to_pylist()
    if pa.types.is_boolean(dictionary.type):
        return [None if value is None else str(value).lower() for value in values]
    if pa.types.is_decimal(dictionary.type):
        return [None if value is None else format(value, "f") for value in values]
    return [None if value is None else str(value) for value in values]


def lift(batch: pa.RecordBatch, stream: Stream, spans: Sequence[Span]) -> tuple[list[pa.Table], int, int]:
    """Partial rows of one decoded batch for each span, its rows with a time in some span, and rows without time."""
    times, batch, missing = times_of(batch, stream)
    begin, end = min(span.begin for span in spans), max(span.end for span in spans)
    inside = (times >= begin) & (times < end)
    if not inside.all():
        keep = np.flatnonzero(inside)
        times, batch = times[keep], batch.take(pa.array(keep))
    shared = _Batch(batch, times, dict(stream.schema))
    tables = [] if len(times) == 0 else [_lift_span(shared, span) for span in spans]
    return [table for table in tables if table is not None], len(times), missing


def _lift_span(batch: _Batch, span: Span) -> pa.Table | None:
    synopsis = span.synopsis
    starts = batch.fragment_starts(synopsis)
    chosen = batch.mask(synopsis.filter) & (starts >= span.begin) & (starts < span.end)
    rows = np.flatnonzero(chosen)
    if len(rows) == 0:
        return None
    whole = len(rows) == len(starts)
    codes, keys = batch.groups(synopsis.group_by)
    if not whole:
        starts, codes = starts[rows], codes[rows]
    fragments, fragment = _numbered(starts)
    cell_of = fragment * len(keys) + codes
    total = len(fragments) * len(keys)
    if total > CELLS:
        occupied, cell_of = np.unique(cell_of, return_inverse=True)
        total = len(occupied)
    else:
        occupied = np.arange(total)
    longs, doubles, texts = (
        _initial(synopsis, "longs", total, np.int64),
        _initial(synopsis, "doubles", total, np.float64),
        np.full((total, synopsis.width("texts")), None, dtype=object),
    )
    ones = np.ones(len(rows), dtype=bool)
    for carrier in CARRIERS:
        for state, at in synopsis.layout(carrier):
            if state.kind == "rows":
                _count(cell_of, ones, longs[:, at])
                continue
            assert state.argument is not None
            array, valid = batch.values(state.argument)
            if not whole:
                array, valid = array.take(pa.array(rows)), valid[rows]
            if state.kind == "count":
                _count(cell_of, valid, longs[:, at])
            elif carrier == "texts":
                _extreme_texts(state, cell_of, array, valid, texts, at)
            elif state.kind == "sum" and carrier == "longs":
                for limb, (low, high) in enumerate(_limbs(array, state.type)):
                    _add_limbs(cell_of, low, high, valid, longs, at + 2 * limb)
            elif state.kind in ("sum", "total", "sum_squares"):
                _add_doubles(cell_of, _doubles(array), valid, doubles, at, state.kind == "sum_squares")
            elif carrier == "longs":
                _extreme(cell_of, _ordinals(array), valid, longs, at, state.kind == "max")
            else:
                _extreme(cell_of, _doubles(array), valid, doubles, at, state.kind == "max")
    used = np.flatnonzero(longs[:, 0])  # `rows` is always the first state
    group = occupied[used] % len(keys)
    begins = fragments[occupied[used] // len(keys)]
    _carry(synopsis, longs)
    return _table(
        synopsis,
        begins,
        synopsis.fragments.ends(begins),
        pa.array(keys, pa.string()).take(pa.array(group)),
        longs[used],
        doubles[used],
        texts[used],
    )


def _numbered(starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct values, ascending, and the number of each row's; quick when rows are nearly in order."""
    changes = np.flatnonzero(starts[1:] != starts[:-1]) + 1
    runs = np.concatenate([[0], changes])
    values, number = np.unique(starts[runs], return_inverse=True)
    return values, np.repeat(number, np.diff(np.concatenate([runs, [len(starts)]])))


def _initial(synopsis: Synopsis, carrier: str, cells: int, dtype: type) -> NDArray[Any]:
    out: NDArray[Any] = np.zeros((cells, synopsis.width(carrier)), dtype=dtype)
    for state, at in synopsis.layout(carrier):
        if state.kind == "min":
            out[:, at] = LONG_MAX if carrier == "longs" else np.nan
        elif state.kind == "max":
            out[:, at] = LONG_MIN if carrier == "longs" else -np.inf
    return out


def _ordinals(array: pa.Array) -> NDArray[np.int64]:
    """Integers, booleans, dates and timestamps as int64 in their own order; nulls as anything."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    return pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def _doubles(array: pa.Array) -> NDArray[np.float64]:
    """Numbers as float64; decimals unscaled (the variance divides by the scale squared); nulls as anything."""
    if pa.types.is_decimal(array.type):
        low, high = _words(array)
        negative = high < 0
        # magnitude and sign: two's complement would cancel small negative numbers away
        unsigned = low.view(np.uint64)
        low = np.where(negative, np.uint64(0) - unsigned, unsigned)
        high = np.where(negative, ~high + (low == 0), high)
        magnitude = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
        return np.where(negative, -magnitude, magnitude)
    # not a safe cast: variance takes integers beyond 2**53 as doubles, as Spark's does
    return pc.fill_null(array.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)


def _limbs(array: pa.Array, type: Type | None) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Integers or unscaled decimals as pairs of 32-bit limbs, lowest first; the highest limb is signed."""
    mask = (1 << LIMB) - 1
    if not pa.types.is_decimal(array.type):
        values = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return [(values & mask, values >> LIMB)]
    low, high = _words(array)
    if limbs_of(type) == 2:
        return [(low & mask, low >> LIMB)]
    return [(low & mask, (low >> LIMB) & mask), (high & mask, high >> LIMB)]


def _words(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The low and the high 64 bits of unscaled decimals, in two's complement over both; nulls as anything."""
    words = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    return np.ascontiguousarray(words[0::2]), np.ascontiguousarray(words[1::2])


def _carry(synopsis: Synopsis, longs: NDArray[np.int64]) -> None:
    """Move what exceeds 32 bits in each limb of the exact sums to the next, in place."""
    for state, at in synopsis.layout("longs"):
        if state.kind == "sum":
            for limb in range(at, at + state.width - 1):
                longs[:, limb + 1] += longs[:, limb] >> LIMB
                longs[:, limb] &= (1 << LIMB) - 1


def _extreme_texts(
    state: State,
    cells: NDArray[np.int64],
    array: pa.Array,
    valid: NDArray[np.bool_],
    out: NDArray[Any],
    at: int,
) -> None:
    """Least or greatest string or decimal a cell, by ranks in the batch's sorted distinct values."""
    encoded = array.dictionary_encode()
    ordered = sorted(range(len(encoded.dictionary)), key=encoded.dictionary.to_pylist().__getitem__)
    rank = np.empty(len(ordered) + 1, dtype=np.int64)
    rank[ordered] = np.arange(len(ordered))
    codes = pc.fill_null(encoded.indices, len(ordered)).to_numpy(zero_copy_only=False)
    greatest = state.kind == "max"
    best = np.full((len(out), 1), -1 if greatest else len(ordered), dtype=np.int64)
    _extreme(cells, rank[codes], valid, best, 0, greatest)
    texts = _as_texts(encoded.dictionary)
    values = [texts[index] for index in ordered]
    for cell in np.flatnonzero((best[:, 0] >= 0) & (best[:, 0] < len(ordered))):
        out[cell, at] = values[best[cell, 0]]


def _table(
    synopsis: Synopsis,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    keys: pa.Array,
    longs: NDArray[np.int64],
    doubles: NDArray[np.float64],
    texts: NDArray[Any],
) -> pa.Table:
    rows = len(begins)
    days = np.datetime_as_string((begins // DAY).astype("datetime64[D]")) if rows else np.array([], dtype=str)
    return pa.table(
        [
            pa.array(days, pa.string()),
            pa.array([synopsis.stream] * rows, pa.string()),
            pa.array([synopsis.fingerprint] * rows, pa.string()),
            pa.array(begins, pa.int64()),
            pa.array(ends, pa.int64()),
            keys,
            _buckets(keys),
            lists(longs, pa.int64()),
            lists(doubles, pa.float64()),
            lists(texts, pa.string()),
        ],
        schema=PARTIALS,
    )


def _buckets(keys: pa.Array) -> pa.Array:
    encoded = keys.dictionary_encode()
    return pa.array(bucket_of(encoded.dictionary.to_pylist())).take(encoded.indices)


def lists(matrix: NDArray[Any], type: pa.DataType, valid: NDArray[np.bool_] | None = None) -> pa.ListArray:
    """A matrix (n, c) as n lists of c values; ``valid`` (n, c) False makes an element null."""
    rows, columns = matrix.shape
    mask = None if valid is None else ~valid.reshape(-1)
    flat = pa.array(matrix.reshape(-1), type, mask=mask) if columns else pa.array([], type)
    return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * columns, flat)


def matrix(column: pa.ChunkedArray | pa.Array, width: int) -> NDArray[Any]:
    """Inverse of :func:`lists`: (n, width)."""
    flat = _flat(column).flatten()
    return flat.to_numpy(zero_copy_only=False).reshape(len(column), width)


# ----------------------------------------------------------------------------------------- combining
OPERATIONS = {"add_double": ADD_DOUBLE, "min": MIN, "max": MAX}
"""The operation of :mod:`optimizer.intervals` that combines a state; exact sums are added up as they are."""


def combine(synopsis: Synopsis, partials: pa.Table) -> pa.Table:
    """Rows of one synopsis with one row a (fragment, group): states of the same cell are combined.

    Rows come out by group, then by time. Equal cells are combined in an order that their contents decide, so the same
    partial rows give the same bits however they arrive.
    """
    starts = partials["fragment_start"].to_numpy()
    encoded = _flat(partials["key"]).dictionary_encode()
    texts_of = encoded.dictionary.to_pylist()
    ordered = sorted(range(len(texts_of)), key=texts_of.__getitem__)
    rank = np.empty(len(ordered), dtype=np.int64)
    rank[ordered] = np.arange(len(ordered))
    codes = rank[encoded.indices.to_numpy()]
    order = np.lexsort((starts, codes))
    starts, codes = starts[order], codes[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (starts[1:] != starts[:-1]) | (codes[1:] != codes[:-1])
    if first.all():
        return partials.take(pa.array(order))
    low = np.flatnonzero(first)
    high = np.append(low[1:], len(order))
    longs, doubles, texts = (matrix(partials[carrier], synopsis.width(carrier)) for carrier in CARRIERS)
    cell = np.cumsum(first)[np.argsort(order)]
    order = np.lexsort((*doubles.T[::-1], *longs.T[::-1], cell))
    longs, doubles, texts = longs[order], doubles[order], texts[order]
    out_longs = np.add.reduceat(longs, low, axis=0)
    for state, at in synopsis.layout("longs"):
        if state.operation != "add":
            reduce = np.minimum if state.operation == "min" else np.maximum
            out_longs[:, at] = reduce.reduceat(longs[:, at], low)
    _carry(synopsis, out_longs)
    out_doubles = np.empty((len(low), synopsis.width("doubles")))
    for state, at in synopsis.layout("doubles"):
        columns = slice(at, at + state.width)
        out_doubles[:, columns] = fold(doubles[:, columns], OPERATIONS[state.operation], low, high)
    out_texts = np.full((len(low), synopsis.width("texts")), None, dtype=object)
    for state, at in synopsis.layout("texts"):
        out_texts[:, at] = reduce_texts(state, texts[:, at], low, high)
    kept = partials.take(pa.array(order[low]))
    return _table(
        synopsis,
        kept["fragment_start"].to_numpy(),
        kept["fragment_end"].to_numpy(),
        _flat(kept["key"]),
        out_longs,
        out_doubles,
        out_texts,
    )


def text_ranks(state: State, texts: NDArray[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Rank (n,) of each text in the order of the state's type, and the texts by rank; null: the identity."""
    from decimal import Decimal

    assert state.type is not None
    distinct = {text for text in texts if text is not None}
    values = sorted(distinct, key=Decimal if state.type.name == "decimal" else None)
    ranks = {text: rank for rank, text in enumerate(values)}
    identity = LONG_MIN if state.kind == "max" else LONG_MAX
    return np.array([identity if text is None else ranks[text] for text in texts], dtype=np.int64), values


def reduce_texts(state: State, texts: NDArray[Any], low: NDArray[np.int64], high: NDArray[np.int64]) -> list[Any]:
    ranks, values = text_ranks(state, texts)
    reduce = np.maximum if state.kind == "max" else np.minimum
    best = reduce.reduceat(ranks, low)
    return [values[rank] if 0 <= rank < len(values) else None for rank in best]


def partials_of(batches: Iterable[pa.RecordBatch], stream: Stream, spans: Sequence[Span]) -> pa.Table:
    """Partial rows of decoded batches, combined: the whole stage without Spark (tests, small sources)."""
    lifted = [table for batch in batches for table in lift(batch, stream, spans)[0]]
    rows = pa.concat_tables(lifted) if lifted else PARTIALS.empty_table()
    parts = []
    for span in spans:
        mine = rows.filter(pc.equal(rows["fingerprint"], span.synopsis.fingerprint))
        if len(mine):
            parts.append(combine(span.synopsis, mine))
    return pa.concat_tables(parts) if parts else PARTIALS.empty_table()


def by_fingerprint(rows: pa.Table) -> dict[str, pa.Table]:
    """Partial rows apart by synopsis, in the order of the fingerprints. O(n), however many synopses there are."""
    encoded = rows["fingerprint"].dictionary_encode().unify_dictionaries().combine_chunks()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return {names[0]: rows}
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    ascending = sorted(range(len(names)), key=names.__getitem__)
    return {names[code]: rows.take(pa.array(order[cuts[code] : cuts[code + 1]])) for code in ascending}


def combined(rows: pa.Table, synopses: dict[str, Synopsis]) -> Iterator[pa.Table]:
    """Combine the rows of several synopses, by fingerprint."""
    for fingerprint, mine in by_fingerprint(rows).items():
        yield combine(synopses[fingerprint], mine)


# --------------------------------------------------------------------------------------- Spark's task
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def lift_task(
    stream: Stream, splits: list[Split], spans: list[Span], columns: list[str], root: str, rows: Any, untimed: Any
) -> Task:
    """The task that reads the splits whose numbers (``id``) it is given and writes their partial rows under ``root``.

    Returns descriptions of the files. ``rows`` and ``untimed``: accumulators that count the events, and those without
    a time.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lifted = []
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for events in read_split(stream, splits[number], columns):
                    tables, inside, missing = lift(events, stream, spans)
                    lifted += tables
                    rows.add(inside)
                    untimed.add(missing)
        if lifted:
            synopses = {span.synopsis.fingerprint: span.synopsis for span in spans}
            whole = pa.concat_tables(list(combined(pa.concat_tables(lifted), synopses)))
            for file in write_files(root, whole):
                yield file.describe()

    return task


def columns_of_synopsis(synopsis: Synopsis) -> set[str]:
    """Source columns that filling a synopsis reads, without the time column."""
    found = {name for name, _ in synopsis.group_by} | set(columns_of(synopsis.filter))
    for state in synopsis.states:
        found |= set(columns_of(state.argument))
    return found - {synopsis.time}
