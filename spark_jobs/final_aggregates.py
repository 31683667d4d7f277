"""Final aggregates: the answers of each query from the sorted partial rows of its synopsis.

One call takes all rows of one synopsis that one task holds (whole groups), finds for every query which windows
of which groups exist, combines the run of fragments under each (:mod:`optimizer.intervals`) and lowers the
states to the query's outputs. States that several queries share are decoded once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates import AGGREGATES, State, carrier_of
from optimizer.intervals import combine_runs, running_totals, runs
from optimizer.query import ACQ
from optimizer.synopsis import CARRIERS, Synopsis, states_of
from optimizer.window import DAY, day_label, window_ends
from spark_jobs.files import read_buckets, write_files
from spark_jobs.partial_aggregates import OPERATIONS, Task, by_fingerprint, combine, lists, matrix, text_ranks

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

RESULTS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        *ANSWERS,
        pa.field("plan_version", pa.int64(), nullable=False),
        pa.field("revision", pa.int64(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
    ]
)
"""What consumers read, partitioned by ``day``: the UTC day of the window's last instant. One row an answer."""

OVERFLOW = "HDL-601"
"""Code of an answer that does not fit its type; its output is null and the row says which."""

BATCH_ROWS = 1 << 16

Count = Callable[[str, int], None]
"""Told how much of a feature (:data:`spark_jobs.statistics.FEATURES`) some work had."""


COUNTED = ("partial_rows_read", "rows_passed", "fragments_combined")
"""The features that final tasks tell."""


def _uncounted(feature: str, amount: int) -> None:
    pass


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
    """The sorted partial rows of one synopsis as matrices, ready to answer queries.

    ``starts`` (n,) fragment starts, by group then time; ``groups`` (g + 1,) offsets of the groups; ``keys`` the
    groups' values as lists of texts. Running totals of the exact sums are made once for all queries.
    """

    def __init__(self, synopsis: Synopsis, rows: pa.Table) -> None:
        rows = combine(synopsis, rows).combine_chunks()
        self.synopsis = synopsis
        self.starts = np.ascontiguousarray(rows["fragment_start"].to_numpy())
        encoded = rows["key"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()  # rows are sorted by key: codes ascend
        self.keys = pa.array([json.loads(key) for key in encoded.dictionary.to_pylist()], pa.list_(pa.string()))
        self.groups = np.searchsorted(codes, np.arange(len(self.keys) + 1)).astype(np.int64)
        self.columns: dict[State, NDArray[Any]] = {}
        self.texts: dict[State, NDArray[Any]] = {}
        for carrier in CARRIERS:
            width = synopsis.width(carrier)
            stored = matrix(rows[carrier], width) if width else None
            for state, at in synopsis.layout(carrier):
                assert stored is not None
                if carrier == "texts":
                    ranks, values = text_ranks(state, stored[:, at])
                    self.columns[state] = ranks[:, None]
                    self.texts[state] = np.array([*values, None], dtype=object)
                elif state.operation == "add":
                    self.columns[state] = running_totals(stored[:, at : at + state.width])
                else:
                    self.columns[state] = np.ascontiguousarray(stored[:, at : at + state.width])

    def combined(self, state: State, group: Any, low: Any, high: Any) -> NDArray[Any]:
        """A state over some runs of fragments: (a,), or (a, width) for sums of several columns."""
        values = self.columns[state]
        if state.operation == "add":
            out = values[high] - values[low]
        else:
            out = combine_runs(values, OPERATIONS[state.operation], group, low, high)
        if state.width > 1:
            return out
        out = out[:, 0]
        if state in self.texts:
            known = self.texts[state]
            return known[np.where((out >= 0) & (out < len(known) - 1), out, len(known) - 1)]
        return out


def finals_of(
    partials: pa.Table, synopsis: Synopsis, queries: Sequence[ACQ], begin: int, end: int, count: Count = _uncounted
) -> Iterator[pa.RecordBatch]:
    """Answers of some queries of one synopsis for the windows whose end lies in (begin, end].

    ``partials``: rows of the synopsis, whole groups, covering every window asked for; in any order.
    ``count`` is told ``rows_passed`` and ``fragments_combined``. Yields batches of :data:`ANSWERS`, by query,
    group and window.
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
        count("rows_passed", len(rows.starts))
        count("fragments_combined", int((high - low).sum()))
        for first in range(0, len(group), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            covered = group[part], low[part], high[part]
            states = {state: rows.combined(state, *covered) for state in states_of([query])}
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
            pa.repeat(query.name, len(group)),
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


def finals_task(
    parts: list[Part], begin: int, partials: list[str], root: str, stamp: dict[str, Any], count: Count = _uncounted
) -> Task:
    """The task that answers every query for the buckets of groups whose numbers (``id``) it is given.

    ``partials``: paths of the files of partial rows; ``root``: the results table, where the answers are written as
    files that no commit names yet; ``stamp``: constant columns (plan version, revision, run id); ``count`` is told
    ``partial_rows_read`` besides what :func:`finals_of` tells. Returns descriptions of the files.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        buckets = {number for batch in batches for number in batch.column("id").to_pylist()}
        found = list(read_buckets(partials, buckets))
        if not found:
            return
        rows = pa.concat_tables(found)
        count("partial_rows_read", len(rows))
        answered: list[pa.Table] = []
        stored = by_fingerprint(rows)
        for part in parts:
            mine = stored.get(part.synopsis.fingerprint, rows.slice(0, 0))
            starts = mine["fragment_start"]
            mine = mine.filter(pc.and_(pc.greater_equal(starts, part.begin), pc.less(starts, part.end)))
            for batch in finals_of(mine, part.synopsis, part.queries, begin, part.end, count):
                answered.append(_stamped(batch, part.synopsis.stream, stamp))
        if answered:
            for file in write_files(root, pa.concat_tables(answered)):
                yield file.describe()

    return task


def _stamped(batch: pa.RecordBatch, stream: str, stamp: dict[str, Any]) -> pa.Table:
    last_instants = batch.column("window_end").cast(pa.int64()).to_numpy() - 1
    days, number = np.unique(last_instants // DAY, return_inverse=True)
    labels = pa.array([day_label(int(day) * DAY) for day in days], pa.string())
    rows = batch.num_rows
    return pa.table(
        {
            "day": labels.take(pa.array(number)),
            "stream": pa.repeat(stream, rows),
            **dict(zip(batch.schema.names, batch.columns, strict=True)),
            **{name: pa.repeat(value, rows) for name, value in stamp.items()},
        },
        schema=RESULTS,
    )
