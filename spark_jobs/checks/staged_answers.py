"""What the audit reads of staged answers: which windows they are of, and the answers of some windows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.windows.alignment import instants, starts_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ
from spark_jobs.checks.inspection import DICTIONARIES, Longs, dictionary_codes, instants_as_numbers, single_chunk
from spark_jobs.checks.sampling import EMPTY, Mask, Past, Units
from spark_jobs.sources.splits import Split
from spark_jobs.storage import WHOLE, Place

_FRAME = ["query", "window_start", "window_end", "instant", "key"]


def answer_counts(staged: Sequence[str]) -> Counter[str]:
    """The number of staged answers of each query."""
    found: Counter[str] = Counter()
    for reader in _readers(staged):
        for number in range(reader.metadata.num_row_groups):
            column = single_chunk(reader.read_row_group(number, columns=["query"], use_threads=False)["query"])
            names = column.dictionary.to_pylist()
            counts = np.bincount(dictionary_codes(column), minlength=len(names) + 1)
            found.update({name: int(count) for name, count in zip(names, counts.tolist(), strict=False) if count})
    return found


def units_of(
    staged: Sequence[str],
    queries: Sequence[ACQ],
    sources: Mapping[str, Sequence[Split]],
    begin: int,
    ends: Mapping[str, int],
    past: Past,
) -> dict[str, Units]:
    """The windows of some queries, by the names of the queries: those that have staged answers, and those that are due
    without."""
    pieces: dict[str, list[tuple[Longs, Longs, Longs, Longs, Mask, list[str]]]] = {query.name: [] for query in queries}
    rows = {query.name for query in queries if query.window.is_rows}
    for table in _rows_of(staged, lambda name: name in pieces, _FRAME, ["position"] if rows else []):
        codes, names = dictionary_codes(table["query"]), table["query"].dictionary.to_pylist()
        keys = table["key"].dictionary.to_pylist()
        is_null = np.array([*(None in json.loads(key) for key in keys), False])[dictionary_codes(table["key"])]
        starts, moments, at = (instants_as_numbers(table[name]) for name in ("window_start", "window_end", "instant"))
        position = instants_as_numbers(table["position"]) if "position" in table else np.zeros_like(at)
        for code, name in enumerate(names):
            if name not in pieces:
                continue
            chosen = codes == code
            texts = table["key"].filter(pa.array(chosen)).to_pylist() if name in rows else []
            pieces[name].append((starts[chosen], moments[chosen], at[chosen], position[chosen], is_null[chosen], texts))
    found = {}
    for query in queries:
        edges = _edges(sources[query.stream])
        until = ends[query.stream] if query.until is None else min(ends[query.stream], query.until)
        build = _row_units if query.window.is_rows else _time_units
        found[query.name] = build(query, pieces[query.name], edges, begin, until, past)
    return found


def _time_units(query: ACQ, pieces: Sequence[tuple], edges: Longs, begin: int, until: int, past: Past) -> Units:
    at = np.concatenate([piece[2] for piece in pieces]) if pieces else np.zeros(0, np.int64)
    nulls = np.concatenate([piece[4] for piece in pieces]) if pieces else np.zeros(0, bool)
    answered, place, counts = np.unique(at, return_inverse=True, return_counts=True)
    with_null = np.bincount(place, nulls, len(answered)) > 0
    due = np.setdiff1d(instants(query.window, begin, until), answered)
    moments = np.concatenate([answered, due])
    starts, ends = starts_of(query.window, moments), moments - query.window.ago
    is_due = np.arange(len(moments)) >= len(answered)
    answers = np.concatenate([counts, np.zeros(len(due), np.int64)])
    strata = _strata(starts, ends, edges, begin, past, ~is_due)
    strata |= {"null": np.concatenate([with_null, np.zeros(len(due), bool)]), EMPTY: is_due}
    return Units(query, starts, ends, answers, strata)


def _row_units(query: ACQ, pieces: Sequence[tuple], edges: Longs, begin: int, until: int, past: Past) -> Units:
    columns = [np.concatenate([piece[at] for piece in pieces]) if pieces else np.zeros(0, np.int64) for at in range(5)]
    keys = [key for piece in pieces for key in piece[5]]
    order = np.argsort(columns[2], kind="stable")
    starts, ends, _, positions, nulls = (column[order] for column in columns)
    answers = np.ones(len(order), np.int64)
    strata = _strata(starts, ends, edges, begin, past, answers > 0) | {"null": nulls.astype(bool)}
    return Units(query, starts, ends, answers, strata, positions, tuple(keys[at] for at in order.tolist()))


def _strata(starts: Longs, ends: Longs, edges: Longs, begin: int, past: Past, answered: Mask) -> dict[str, Mask]:
    """Which windows are in the strata that follow from their spans. Those without answers are in a stratum of their
    own."""
    across = np.searchsorted(edges, ends, "left") > np.searchsorted(edges, starts, "right")
    return {
        "day": answered & (starts // DAY != (ends - 1) // DAY),
        "file": answered & across,
        "interval": answered & (starts < begin),
        "repaired": answered & past.repaired,
    }


def _edges(splits: Sequence[Split]) -> Longs:
    """Where the event times of splits begin or end, as far as they are known, ascending."""
    known = {at for split in splits for at in (split.begin, split.end) if at is not None}
    return np.array(sorted(known), dtype=np.int64)


def staged_rows(staged: Sequence[str], windows: Mapping[str, Collection[int]]) -> list[dict[str, object]]:
    """The staged answers of some windows: by query the ends of their content."""
    ends = {name: np.array(sorted(each), dtype=np.int64) for name, each in windows.items()}
    found: list[dict[str, object]] = []
    for table in _rows_of(staged, lambda name: name in ends, None, []):
        codes, moments = dictionary_codes(table["query"]), instants_as_numbers(table["window_end"])
        chosen = np.zeros(len(codes), dtype=bool)
        for code, name in enumerate(table["query"].dictionary.to_pylist()):
            if name in ends:
                chosen |= (codes == code) & np.isin(moments, ends[name])
        if chosen.any():
            mask = pa.array(chosen)
            columns = {name: column.filter(mask).to_pylist() for name, column in table.items()}
            found += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return found


def _readers(staged: Sequence[str]) -> Iterator[pq.ParquetFile]:
    for path in staged:
        yield pq.ParquetFile(Place.of(path).open_unchanging(True, WHOLE), read_dictionary=DICTIONARIES)


def _rows_of(
    staged: Sequence[str], wanted: Callable[[str], bool], columns: list[str] | None, more: list[str]
) -> Iterator[dict[str, pa.Array]]:
    """Columns of the row groups that may have answers of some queries; None: all columns. ``more``: further ones, where
    a file has them."""
    for reader in _readers(staged):
        present = set(reader.schema_arrow.names)
        chosen = None if columns is None else [*columns, *(name for name in more if name in present)]
        for number in range(reader.metadata.num_row_groups):
            named = single_chunk(reader.read_row_group(number, columns=["query"], use_threads=False)["query"])
            if not any(map(wanted, named.dictionary.to_pylist())):
                continue
            rows = reader.read_row_group(number, columns=chosen, use_threads=False)
            yield {name: single_chunk(rows[name]) for name in rows.schema.names}
