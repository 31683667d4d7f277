"""Writes the files of the results table, row group by row group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from optimizer.synopses.synopsis import CARRIERS
from optimizer.windows.alignment import starts_of
from optimizer.workload.values import ACQ
from spark_jobs.results.rows import AnswerRows, ResultColumns, places
from spark_jobs.store.settings import TASK_MEMORY
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import DataFile, NewFile
from spark_jobs.store.warehouse.schemas import RESULTS

ROW_GROUP = 1 << 17
"""Rows at which a row group is written."""

PENDING = 1 << 20
"""Rows that a task keeps for the files of all days together before it writes those of the fullest."""

SHARED_TIMES = 8
"""Answers an instant, of the first in a file, from which on a dictionary of instants is smaller and quicker."""

_SCHEMA = pa.schema([column for column in RESULTS if column.name != "day"])

_TEXTS = [column.name for column in _SCHEMA if pa.types.is_string(column.type)]

_TIMES = ["window_start", "window_end", "instant"]

_DIFFERENCES = [*_TIMES, "position", "longs.list.element", "plan_version", "revision"]
"""Columns that are written as differences, which are smaller than a dictionary where values ascend or repeat, and
quicker to write and to read; but for times that many groups have in common (:func:`_are_common`)."""


def _columns_of(queries: Sequence[ACQ]) -> list[str]:
    """The columns that some answer of these queries has a value in."""
    used = {carrier for query in queries for carrier, _ in places(query)}
    if any(query.kind.counts_rows for query in queries):
        used.add("position")
    return [name for name in _SCHEMA.names if name not in (*CARRIERS, "position") or name in used]


class ResultsFiles:
    """The files of one task, one a day, under the folder of the results table; no reader sees them until a commit
    names them. ``queries``: all whose answers may come; ``stamp``: constant columns (plan version, revision, run id).

    Answers of a query have to come by group (in the order of the keys) and instant: the audit relies on it. ``most``:
    bytes of answers, about, that may wait for their files.
    """

    def __init__(
        self,
        root: str | Place,
        queries: Iterable[ACQ],
        stamp: Mapping[str, pa.Scalar],
        most: int = TASK_MEMORY.piece,
    ) -> None:
        queries, self.most = list(queries), most
        self.root, self.stamp, self.columns = Place.of(root), stamp, _columns_of(queries)
        self.definitions = {query.name: query.definition for query in queries}
        self._files: dict[str, _File] = {}

    def add(self, day: str, answered: AnswerRows) -> None:
        """Write answers of a day; what is pending in memory stays within :data:`PENDING` and the bytes for it."""
        if day not in self._files:
            self._files[day] = _File(self.root, day, self.columns, self.stamp, self.definitions)
        self._files[day].add(answered)
        if len(self._files) > 1 and sum(file.pending for file in self._files.values()) > PENDING:
            max(self._files.values(), key=lambda file: file.pending).flush()
        if sum(file.bytes for file in self._files.values()) > self.most:
            max(self._files.values(), key=lambda file: file.bytes).flush()

    def close(self) -> Iterator[DataFile]:
        """Write what is left; the descriptions of the files."""
        while self._files:
            yield self._files.pop(next(iter(self._files))).close()


class _File:
    def __init__(
        self,
        root: Place,
        day: str,
        columns: Sequence[str],
        stamp: Mapping[str, pa.Scalar],
        definitions: Mapping[str, str],
    ) -> None:
        self.file = NewFile(root, day)
        self.stamp, self.definitions = stamp, definitions
        self.constants: dict[str, pa.Array] = {}
        self.parts: list[AnswerRows] = []
        self.pending = self.bytes = self.rows = 0
        self.bounds = _Bounds(definitions)
        stored = [_SCHEMA.field(name) for name in columns]
        texts = [name for name in columns if name in _TEXTS]
        self.schema = pa.schema(
            [
                field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in texts else field
                for field in stored
            ]
        )
        self.writer: pq.ParquetWriter | None = None

    def _open(self, instants: pa.Array) -> pq.ParquetWriter:
        """The writer, as suits the first instants."""
        listed = [name for name in _TEXTS if name in self.schema.names]
        if _are_common(instants):
            listed += _TIMES
        differences = [name for name in _DIFFERENCES if name.split(".")[0] in self.schema.names and name not in listed]
        return pq.ParquetWriter(
            self.file.path,
            self.schema,
            compression="snappy",
            use_dictionary=listed,
            column_encoding=dict.fromkeys(differences, "DELTA_BINARY_PACKED"),
            # of row groups just those that queries are found by; Delta has the whole file's
            write_statistics=["query"],
            write_batch_size=ROW_GROUP,
            store_schema=False,
            write_page_checksum=True,
        )

    def add(self, answered: AnswerRows) -> None:
        self.parts.append(answered)
        self.pending += len(answered.instants)
        self.bytes += answered.size
        self.bounds.add(answered)
        if self.pending >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if not self.parts:
            return
        result_columns = ResultColumns(self.parts, self.definitions)
        columns = {name: self._constant(name, result_columns.rows) for name in self.stamp}
        columns |= {name: result_columns.of(name) for name in self.schema.names if name not in columns}
        self.bounds.keys += pc.min_max(columns["key"].dictionary).as_py().values()
        with self.file.writing():
            if self.writer is None:
                self.writer = self._open(columns["instant"])
            self.writer.write_table(pa.table(columns, schema=self.schema), row_group_size=result_columns.rows)
        self.parts, self.pending, self.bytes, self.rows = [], 0, 0, self.rows + result_columns.rows

    def _constant(self, name: str, rows: int) -> pa.Array:
        known = len(self.constants.get(name, ()))
        if known < rows:
            # twice as many, so that it is seldom made: groups of rows are of about one size
            repeated = pa.repeat(self.stamp[name], 2 * rows)
            self.constants[name] = repeated.dictionary_encode() if name in _TEXTS else repeated
        return self.constants[name].slice(0, rows)

    def close(self) -> DataFile:
        self.flush()
        statistics = self.bounds.statistics(self.rows, {name: value.as_py() for name, value in self.stamp.items()})
        with self.file.writing():
            assert self.writer is not None
            self.writer.close()
            return self.file.named(self.rows, statistics)


def _are_common(instants: pa.Array) -> bool:
    """Return whether instants repeat so often that a dictionary of them is small."""
    return bool(SHARED_TIMES * pc.count_distinct(instants).as_py() < len(instants))


class _Bounds:
    """Delta's statistics of a file, of every column of the table that is no list: least and greatest value, nulls.

    Every column has them: delta-rs takes a column without a number of nulls for one without nulls, and a column
    without bounds, if others have them, for one that no value can match.
    """

    def __init__(self, definitions: Mapping[str, str]) -> None:
        self.definitions = definitions
        self.texts: dict[str, set[str]] = {"stream": set(), "query": set(), "fingerprint": set(), "error": set()}
        self.times: dict[str, list[int]] = {"window_start": [], "window_end": [], "instant": []}
        self.keys: list[str] = []
        self.positions: list[int] = []
        self.errors = self.placed = 0

    def add(self, answered: AnswerRows) -> None:
        self.texts["stream"].add(answered.stream)
        self.texts["query"].add(answered.query)
        self.texts["fingerprint"].add(self.definitions[answered.query])
        self.texts["error"].update("; ".join(messages) for messages in answered.errors.values())
        self.errors += len(answered.errors)
        moments, window = np.array([answered.instants.min(), answered.instants.max()]), answered.window
        starts = starts_of(window, moments)
        if answered.starts is not None:
            starts = np.array([answered.starts.min(), answered.starts.max()])
        if answered.positions is not None:
            self.positions += [int(answered.positions.min()), int(answered.positions.max())]
            self.placed += len(answered.positions)
        times = starts, moments - window.end_before, moments
        for name, bounds in zip(self.times, times, strict=True):
            self.times[name] += bounds.tolist()

    def statistics(self, rows: int, stamp: Mapping[str, Any]) -> str:
        extremes: dict[str, list[Any]] = {name: sorted(texts) for name, texts in self.texts.items()}
        for name, times in self.times.items():
            extremes[name] = [f"{np.datetime64(time, 'us')}Z" for time in (min(times), max(times))]
        extremes |= {name: [value] for name, value in stamp.items()}
        extremes |= {"key": sorted(self.keys), "position": sorted(self.positions)}
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: values[0] if values else None for name, values in extremes.items()},
                "maxValues": {name: values[-1] if values else None for name, values in extremes.items()},
                "nullCount": dict.fromkeys(extremes, 0) | {"position": rows - self.placed, "error": rows - self.errors},
            }
        )
