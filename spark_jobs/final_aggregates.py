"""Final aggregates: the answers of each query from the sorted partial rows of its synopsis.

One call takes all rows of one synopsis that one task holds (whole groups), finds for every query which windows
of which groups exist, combines the run of fragments under each (:mod:`optimizer.intervals`) and lowers the
states to the query's outputs. States that several queries share are decoded once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates import AGGREGATES, State, carrier_of
from optimizer.intervals import MIN, combine_runs, runs, sums
from optimizer.query import ACQ
from optimizer.synopsis import CARRIERS, Synopsis
from optimizer.window import window_ends
from spark_jobs.partial_aggregates import PARTIALS, Task, combine, lists, matrix, operations, text_ranks

ANSWERS = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("window_start", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("window_end", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.list_(pa.string()), nullable=False),
        pa.field("longs", pa.list_(pa.int64()), nullable=False),
        pa.field("doubles", pa.list_(pa.float64()), nullable=False),
        pa.field("texts", pa.list_(pa.string()), nullable=False),
        pa.field("error", pa.string()),
    ]
)
"""One row an answer: outputs in the list of their carrier, in the query's order (see :func:`places`)."""

ANSWERS_DDL = (
    "query string, window_start timestamp, window_end timestamp, key array<string>, longs array<bigint>, "
    "doubles array<double>, texts array<string>, error string"
)

OVERFLOW = "HDL-601"
"""Code of an answer that does not fit its type; its output is null and the row says which."""

BATCH_ROWS = 1 << 16


def places(query: ACQ) -> list[tuple[str, int]]:
    """Carrier and position in its list of each output of a query, in the query's order."""
    used = dict.fromkeys(CARRIERS, 0)
    found = []
    for output in query.outputs:
        carrier = carrier_of(output.type)
        found.append((carrier, used[carrier]))
        used[carrier] += 1
    return found


class _Rows:
    """The sorted partial rows of one synopsis as matrices, one a carrier."""

    def __init__(self, synopsis: Synopsis, rows: pa.Table) -> None:
        rows = combine(synopsis, rows).combine_chunks()
        self.synopsis = synopsis
        self.starts = np.ascontiguousarray(rows["fragment_start"].to_numpy())
        encoded = rows["key"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()  # rows are sorted by key: codes ascend
        self.keys = pa.array(
            [json.loads(key) for key in encoded.dictionary.to_pylist()], pa.list_(pa.string())
        )
        self.groups = np.searchsorted(codes, np.arange(len(self.keys) + 1)).astype(np.int64)
        self.longs = np.ascontiguousarray(matrix(rows["longs"], synopsis.width("longs")))
        width = synopsis.width("doubles")
        self.doubles = (
            np.ascontiguousarray(matrix(rows["doubles"], width)) if width else np.zeros((len(rows), 0))
        )
        self.texts: dict[State, list[str]] = {}
        ranks = np.zeros((len(rows), synopsis.width("texts")), dtype=np.int64)
        if synopsis.width("texts"):
            texts = matrix(rows["texts"], synopsis.width("texts"))
            for state, at in synopsis.layout("texts"):
                ranks[:, at], self.texts[state] = text_ranks(state, texts[:, at])
        self.ranks = ranks

    def states(self, group: Any, low: Any, high: Any) -> dict[State, NDArray[Any]]:
        """The combined states of some runs: (a,) or (a, width) an entry."""
        found: dict[State, NDArray[Any]] = {}
        codes = operations(self.synopsis, "longs")
        added, extreme = np.flatnonzero(codes < MIN), np.flatnonzero(codes >= MIN)
        longs = np.empty((len(low), len(codes)), dtype=np.int64)
        longs[:, added] = sums(self.longs[:, added], low, high)
        for values, columns, out in (
            (self.longs, extreme, longs),
            (self.doubles, np.arange(self.doubles.shape[1]), np.empty((len(low), self.doubles.shape[1]))),
            (self.ranks, np.arange(self.ranks.shape[1]), np.empty((len(low), self.ranks.shape[1]), np.int64)),
        ):
            carrier = "longs" if out is longs else "doubles" if values is self.doubles else "texts"
            if len(columns):
                chosen = np.ascontiguousarray(values[:, columns])
                code = operations(self.synopsis, carrier)[columns]
                out[:, columns] = combine_runs(chosen, code, self.groups, group, low, high)
            for state, at in self.synopsis.layout(carrier):
                found[state] = out[:, at] if state.width == 1 else out[:, at : at + state.width]
        for state, ordered in self.texts.items():
            padded = np.array([*ordered, None], dtype=object)
            ranks = found[state]
            found[state] = padded[np.where((ranks >= 0) & (ranks < len(ordered)), ranks, len(ordered))]
        return found


def finals_of(
    partials: pa.Table, synopsis: Synopsis, queries: Sequence[ACQ], begin: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Answers of some queries of one synopsis for the windows whose end lies in (begin, end].

    ``partials``: rows of the synopsis, whole groups, covering every window asked for; in any order.
    Yields batches of :data:`ANSWERS`, by query, group and window.
    """
    if len(partials) == 0:
        return
    rows = _Rows(synopsis, partials)
    for query in queries:
        ends = window_ends(query.window, begin, end)
        if len(ends) == 0:
            continue
        starts = ends - query.window.range
        group, window, low, high = runs(rows.starts, rows.groups, starts, ends)
        for first in range(0, len(group), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            states = rows.states(group[part], low[part], high[part])
            yield _answers(query, rows.keys, group[part], starts[window[part]], ends[window[part]], states)


def _answers(
    query: ACQ,
    keys: pa.Array,
    group: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    states: dict[State, NDArray[Any]],
) -> pa.RecordBatch:
    lowered = []
    for output in query.outputs:
        aggregate = AGGREGATES[output.function]
        needed = aggregate.states(output.argument, output.argument_type)
        lowered.append(aggregate.lower({state.kind: states[state] for state in needed}, output.argument_type))
    columns: dict[str, list[tuple[NDArray[Any], NDArray[np.bool_]]]] = {carrier: [] for carrier in CARRIERS}
    error = np.full(len(group), None, dtype=object)
    for output, (carrier, _), value in zip(query.outputs, places(query), lowered, strict=True):
        columns[carrier].append((value.values, value.valid))
        if value.overflow is not None:
            for row in np.flatnonzero(value.overflow):
                error[row] = f"{error[row]}; " if error[row] else ""
                error[row] += f"{OVERFLOW} {output.name} does not fit {output.type}"
    types = {"longs": pa.int64(), "doubles": pa.float64(), "texts": pa.string()}
    stacked = []
    for carrier in CARRIERS:
        if columns[carrier]:
            values = np.stack([value for value, _ in columns[carrier]], axis=1)
            valid = np.stack([valid for _, valid in columns[carrier]], axis=1)
        else:
            values, valid = np.zeros((len(group), 0), dtype=np.int64), np.zeros((len(group), 0), dtype=bool)
        stacked.append(lists(values, types[carrier], valid))
    instant = pa.timestamp("us", tz="UTC")
    return pa.RecordBatch.from_arrays(
        [
            pa.array([query.name] * len(group), pa.string()),
            pa.array(starts).cast(instant),
            pa.array(ends).cast(instant),
            keys.take(pa.array(group)),
            *stacked,
            pa.array(error, pa.string()),
        ],
        schema=ANSWERS,
    )


# -------------------------------------------------------------------------------------- Spark's task
@dataclass(frozen=True)
class Part:
    """One synopsis in a run: its queries, and the fragments [begin, end) that their windows cover."""

    synopsis: Synopsis
    queries: tuple[ACQ, ...]
    begin: int
    end: int


def finals_task(parts: list[Part], begin: int) -> Task:
    """The task that answers every query for the groups whose partial rows it receives."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if not found:
            return
        rows = pa.Table.from_batches(found).cast(PARTIALS)
        for part in parts:
            chosen = pc.equal(rows["fingerprint"], part.synopsis.fingerprint)
            chosen = pc.and_(chosen, pc.greater_equal(rows["fragment_start"], part.begin))
            chosen = pc.and_(chosen, pc.less(rows["fragment_start"], part.end))
            for batch in finals_of(rows.filter(chosen), part.synopsis, part.queries, begin, part.end):
                stream = pa.array([part.synopsis.stream] * batch.num_rows, pa.string())
                yield pa.RecordBatch.from_arrays([stream, *batch.columns], names=["stream", *batch.schema.names])

    return task
