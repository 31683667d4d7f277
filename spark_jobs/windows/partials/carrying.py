"""Carry stored partial aggregates over to another version of a dimension, where no event has other attributes in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import Stream
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_versions import any_changed, changed_times, earlier_streams
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.fill_request import columns_of_synopsis
from spark_jobs.windows.partials.stored_coverage import completed_pieces, coverage, named_for, span_of
from spark_jobs.windows.partials.synopsis_work import SynopsisWork


class Carried(NamedTuple):
    """Pieces of partial aggregates of an earlier version: ``unchanged`` are those without a changed event, ``changed``
    the others, which are lifted again.
    """

    unchanged: int
    changed: int


class _Changed(Exception):
    """The pieces are no longer what they were."""


class _Piece(NamedTuple):
    part: SynopsisWork
    begin: int
    end: int
    name: str


def carry_over(warehouse: Warehouse, stream: Stream, parts: Sequence[SynopsisWork], splits: list[Split]) -> Carried:
    """Mark the pieces of partial aggregates, stored for earlier versions of the stream's dimensions, that are those of
    the versions which it has now.

    Raises what reading the stream raises.
    """
    parts = [part for part in parts if attributes_in(stream, columns_of_synopsis(part.synopsis))]
    if not parts:
        return Carried(0, 0)
    stored = coverage(warehouse, [part.synopsis.fingerprint for part in parts], span_of(parts))
    columns = {column for part in parts for column in columns_of_synopsis(part.synopsis)}
    pending: dict[Stream, list[_Piece]] = {}
    earlier: list[Stream] | None = None
    for part in parts:
        is_current = named_for(part.synopsis, splits, stream)
        old = [piece for piece in stored.get(part.synopsis.fingerprint, []) if not is_current(*piece)]
        if old and earlier is None:
            earlier = earlier_streams(warehouse, stream, columns)
        for former in earlier or ():
            is_former = named_for(part.synopsis, splits, former)
            of_former = [piece for piece in old if is_former(*piece)]
            if of_former:
                pending.setdefault(former, []).extend(_Piece(part, *piece) for piece in of_former)
            # a version that differs in other columns alone has the same name
            old = [piece for piece in old if piece not in of_former]
    unchanged: list[_Piece] = []
    changed = 0
    for former, pieces in pending.items():
        if not pieces:
            continue
        spans = [(min(piece.begin for piece in pieces), max(piece.end for piece in pieces))]
        times = changed_times(former, stream, splits, columns, spans)
        for piece in pieces:
            is_changed = any_changed(times, columns_of_synopsis(piece.part.synopsis), piece.begin, piece.end)
            changed += is_changed
            unchanged += [] if is_changed else [piece]
    if unchanged:
        _rename(warehouse, stream, unchanged, splits)
    return Carried(len(unchanged), changed)


def _rename(warehouse: Warehouse, stream: Stream, pieces: Sequence[_Piece], splits: list[Split]) -> None:
    """Store the names that pieces have now in place of those that they had."""
    names = {(piece.part.synopsis.fingerprint, piece.begin): piece.name for piece in pieces}
    fingerprints = sorted({fingerprint for fingerprint, _ in names})
    rows = completed_pieces(stream, splits, [(piece.part.synopsis, piece.begin, piece.end) for piece in pieces])
    days = rows["day"].to_pylist()

    def replaced(stored: pa.Table) -> pa.Array:
        is_mark = pc.is_in(stored["fingerprint"].combine_chunks(), pa.array(fingerprints))
        # a column without a value is in no file
        if "key" in stored.schema.names:
            is_mark = pc.and_(pc.is_null(stored["key"].combine_chunks()), is_mark)
        has_names = "texts" in stored.schema.names
        numbers = np.flatnonzero(is_mark.to_numpy(zero_copy_only=False) & has_names)
        columns = [name for name in ("fingerprint", "fragment_start", "texts") if has_names or name != "texts"]
        some = stored.select(columns).take(pa.array(numbers)).to_pylist()
        is_replaced = np.zeros(len(stored), dtype=bool)
        for number, row in zip(numbers.tolist(), some, strict=True):
            is_replaced[number] = names.get((row["fingerprint"], row["fragment_start"])) == row["texts"][0]
        return pa.array(is_replaced)

    def still() -> None:
        now = coverage(warehouse, fingerprints, span_of([piece.part for piece in pieces]))
        stored_names = {(fingerprint, piece[0]): piece[2] for fingerprint, each in now.items() for piece in each}
        if any(stored_names.get(key) != name for key, name in names.items()):
            raise _Changed

    files, span = list(write_files(warehouse.path("partials"), rows)), (min(days), max(days))
    try:
        warehouse.replace("partials", files, span, replaced, "/".join(span), None, still=still)
    except _Changed:
        # another run stores them now: what it does not, is lifted
        return
