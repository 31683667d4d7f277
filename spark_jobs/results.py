"""The results table: what a row of it holds, and the files that tasks write for it.

Answers are by far the most rows that a run writes, and what they cost is what writing them costs: answers stay in
arrays until a row group is full; whatever repeats is written as a dictionary or as differences; a column that no row
of a file has is not in the file (every reader of Delta takes it for null).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.aggregates import carrier_of
from optimizer.query import ACQ, Type, Window
from optimizer.synopsis import CARRIERS
from spark_jobs.cells import numbered
from spark_jobs.expressions import arrow_type
from spark_jobs.files import DataFile, signed, writing

INSTANT = pa.timestamp("us", tz="UTC")

ANSWERS = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("window_start", INSTANT, nullable=False),
        pa.field("window_end", INSTANT, nullable=False),
        pa.field("instant", INSTANT, nullable=False),
        pa.field("position", pa.int64()),
        pa.field("key", pa.string(), nullable=False),
        pa.field("longs", pa.list_(pa.int64())),
        pa.field("doubles", pa.list_(pa.float64())),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("error", pa.string()),
    ]
)
"""One row an answer: of ``instant``, over the content [``window_start``, ``window_end``); the instant is the window's
end unless the window is historical. ``position``: the number of a window's first row, null for windows of time.
``key``: the group's values as a JSON list of texts (:func:`group_values`). Outputs are in the list of their carrier,
in the query's order (:func:`places`); a list is null or empty where the query has no output of its carrier."""

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
"""What consumers read, partitioned by ``day``: the UTC day of the microsecond before the instant."""

ROW_GROUP = 1 << 17
"""Rows at which a row group is written."""

PENDING = 1 << 20
"""Rows that a task keeps for the files of all days together before it writes those of the fullest."""

Longs = NDArray[np.int64]


# ------------------------------------------------------------------------------------------ what a row holds
def places(query: ACQ) -> list[tuple[str, int]]:
    """Carrier and position in its list of each output of a query, in the query's order."""
    used = dict.fromkeys(CARRIERS, 0)
    found = []
    for output in query.outputs:
        carrier = carrier_of(output.type)
        found.append((carrier, used[carrier]))
        used[carrier] += 1
    return found


def group_values(keys: pa.Array | pa.ChunkedArray, columns: int) -> list[pa.StringArray]:
    """The values (n,) of each of so many group columns, as texts that :func:`typed` takes; ``keys`` (n,) of results."""
    encoded = keys.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    told = json.loads(f"[{','.join(encoded.dictionary.to_pylist())}]")
    return [pa.array([key[at] for key in told], pa.string()).take(encoded.indices) for at in range(columns)]


def typed(values: pa.Array | pa.ChunkedArray, type: Type) -> pa.Array | pa.ChunkedArray:
    """Stored values (int64, float64 or text) as the Arrow type of a column's type."""
    target, stored = arrow_type(type), values.type
    if type.name == "decimal":
        texts = [None if text is None else Decimal(text) for text in values.to_pylist()]
        return pa.array(texts, target)
    if type.name == "boolean" and pa.types.is_integer(stored):
        return pc.not_equal(values, 0)
    if type.name == "date" and pa.types.is_integer(stored):
        values = values.cast(pa.int32())
    elif type.name == "timestamp" and pa.types.is_string(stored):
        values = values.cast(pa.int64())
    return values.cast(target)


# -------------------------------------------------------------------------------------------- answers in arrays
class Carried(NamedTuple):
    """The outputs of one carrier: ``width`` a row, one row after the other; ``valid`` None: none of them is null."""

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None
    width: int


class Answered(NamedTuple):
    """Some answers (a,) of one query. ``group`` (a,) numbers the ``keys``; ``carried``: the outputs by carrier;
    ``errors``: what is wrong, by row."""

    stream: str
    query: str
    window: Window
    keys: pa.StringArray
    group: Longs
    instants: Longs
    carried: Mapping[str, Carried]
    errors: Mapping[int, Sequence[str]]

    def rows(self) -> pa.RecordBatch:
        """As rows of :data:`ANSWERS`."""
        columns = _Columns([self])
        return pa.RecordBatch.from_arrays([columns.of(name).cast(type) for name, type in _ANSWERED], schema=ANSWERS)


_ANSWERED = [(field.name, field.type) for field in ANSWERS]

_ELEMENTS = {"longs": pa.int64(), "doubles": pa.float64(), "texts": pa.string()}


class _Columns:
    """The columns of some answers one after the other; texts that repeat as dictionaries of just those that occur."""

    def __init__(self, parts: Sequence[Answered]) -> None:
        self.parts = parts
        self.sizes = [len(part.instants) for part in parts]
        self.rows = sum(self.sizes)
        self.cuts = [0, *np.cumsum(self.sizes).tolist()]

    def of(self, name: str) -> pa.Array:
        return self._lists(name) if name in CARRIERS else getattr(self, f"_{name}")()

    def _stream(self) -> pa.DictionaryArray:
        return self._repeated([part.stream for part in self.parts])

    def _query(self) -> pa.DictionaryArray:
        return self._repeated([part.query for part in self.parts])

    def _window_start(self) -> pa.Array:
        return self._times([part.window.reach for part in self.parts])

    def _window_end(self) -> pa.Array:
        return self._times([part.window.ago for part in self.parts])

    def _instant(self) -> pa.Array:
        return self._times([0] * len(self.parts))

    def _position(self) -> pa.Array:
        return pa.nulls(self.rows, pa.int64())

    def _key(self) -> pa.DictionaryArray:
        codes, texts, known, first = np.empty(self.rows, dtype=np.int32), [], 0, 0
        while first < len(self.parts):
            keys, last = self.parts[first].keys, first + 1
            while last < len(self.parts) and self.parts[last].keys is keys:
                last += 1
            groups = np.concatenate([part.group for part in self.parts[first:last]])
            least, most = int(groups.min()), int(groups.max()) + 1
            groups -= least
            occurs = np.zeros(most - least, dtype=bool)
            occurs[groups] = True
            if occurs.all():
                texts.append(keys.slice(least, most - least))
            else:
                used, groups = numbered(groups, most - least)
                texts.append(keys.take(pa.array(used + least)))
            codes[self.cuts[first] : self.cuts[last]] = groups + known
            known, first = known + len(texts[-1]), last
        if len(texts) == 1:
            return pa.DictionaryArray.from_arrays(codes, texts[0])
        # families with the same group columns have the same keys, and a dictionary with repeats is not written as one
        again = pa.concat_arrays(texts).dictionary_encode()
        return pa.DictionaryArray.from_arrays(again.indices.to_numpy()[codes], again.dictionary)

    def _error(self) -> pa.DictionaryArray:
        if not any(part.errors for part in self.parts):
            return pa.DictionaryArray.from_arrays(pa.nulls(self.rows, pa.int32()), pa.array([], pa.string()))
        codes, distinct = np.full(self.rows, -1, dtype=np.int32), dict[str, int]()
        for part, cut in zip(self.parts, self.cuts, strict=False):
            for row, told in part.errors.items():
                codes[cut + row] = distinct.setdefault("; ".join(told), len(distinct))
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(list(distinct), pa.string()))

    def _repeated(self, texts: Sequence[str]) -> pa.DictionaryArray:
        distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        codes = np.repeat(np.array([distinct[text] for text in texts], dtype=np.int32), self.sizes)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(distinct), pa.string()))

    def _times(self, before: Sequence[int]) -> pa.Array:
        """The moments so far before the instants."""
        moments = np.empty(self.rows, dtype=np.int64)
        for part, cut, size, span in zip(self.parts, self.cuts, self.sizes, before, strict=False):
            np.subtract(part.instants, span, out=moments[cut : cut + size])
        return pa.array(moments).cast(INSTANT)

    def _lists(self, carrier: str) -> pa.ListArray:
        offsets, at = np.zeros(self.rows + 1, dtype=np.int32), 0
        parts = [part.carried[carrier] for part in self.parts]
        for part, cut, size in zip(parts, self.cuts, self.sizes, strict=False):
            ends = offsets[cut + 1 : cut + size + 1]
            ends[:] = at
            if part.width:
                ends += np.arange(part.width, (size + 1) * part.width, part.width, dtype=np.int32)
                at += size * part.width
        values = np.concatenate([part.values for part in parts])
        mask = None
        if any(part.valid is not None for part in parts):
            mask = np.concatenate([np.zeros(len(p.values), dtype=bool) if p.valid is None else ~p.valid for p in parts])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, _ELEMENTS[carrier], mask=mask))


# ------------------------------------------------------------------------------------------------- files
_SCHEMA = pa.schema([column for column in RESULTS if column.name != "day"])

_TEXTS = [column.name for column in _SCHEMA if pa.types.is_string(column.type)]

_ENCODINGS = dict.fromkeys(
    ("window_start", "window_end", "instant", "longs.list.element", "plan_version", "revision"), "DELTA_BINARY_PACKED"
)
"""Differences are smaller than dictionaries where values ascend or repeat, and quicker to write and to read."""


def _columns_of(queries: Iterable[ACQ]) -> list[str]:
    """The columns that some answer of these queries has a value in."""
    queries = list(queries)
    used = {carrier for query in queries for carrier, _ in places(query)}
    if any(query.window.is_rows for query in queries):
        used.add("position")
    return [name for name in _SCHEMA.names if name not in (*CARRIERS, "position") or name in used]


class ResultsFiles:
    """The files of one task, one a day, under the folder of the results table; no reader sees them until a commit
    names them. ``queries``: all whose answers may come; ``stamp``: constant columns (plan version, revision, run id).

    Answers of a query have to come by group (in the order of the keys) and instant: the audit relies on it.
    """

    def __init__(self, root: str | Path, queries: Iterable[ACQ], stamp: Mapping[str, pa.Scalar]) -> None:
        self.root, self.stamp, self.columns = Path(root), stamp, _columns_of(queries)
        self._files: dict[str, _File] = {}

    def add(self, day: str, answered: Answered) -> None:
        if day not in self._files:
            self._files[day] = _File(self.root, day, self.columns, self.stamp)
        self._files[day].add(answered)
        if len(self._files) > 1 and sum(file.pending for file in self._files.values()) > PENDING:
            max(self._files.values(), key=lambda file: file.pending).flush()

    def close(self) -> Iterator[DataFile]:
        """Write what is left; the descriptions of the files."""
        while self._files:
            yield self._files.pop(next(iter(self._files))).close()


class _File:
    def __init__(self, root: Path, day: str, columns: Sequence[str], stamp: Mapping[str, pa.Scalar]) -> None:
        self.day, self.file = day, root / f"day={day}/part-{uuid.uuid4().hex}.parquet"
        self.stamp = stamp
        self.constants: dict[str, pa.Array] = {}
        self.parts: list[Answered] = []
        self.pending = self.rows = 0
        self.bounds = _Bounds()
        stored = [_SCHEMA.field(name) for name in columns]
        texts = [name for name in columns if name in _TEXTS]
        self.schema = pa.schema(
            [one.with_type(pa.dictionary(pa.int32(), one.type)) if one.name in texts else one for one in stored]
        )
        with writing(self.file):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.writer = pq.ParquetWriter(
                self.file,
                self.schema,
                compression="snappy",
                use_dictionary=texts,
                column_encoding={name: how for name, how in _ENCODINGS.items() if name.split(".")[0] in columns},
                # of row groups just those that queries are found by; Delta has the whole file's
                write_statistics=["query"],
                write_batch_size=ROW_GROUP,
                store_schema=False,
                write_page_checksum=True,
            )

    def add(self, answered: Answered) -> None:
        self.parts.append(answered)
        self.pending += len(answered.instants)
        self.bounds.add(answered)
        if self.pending >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if not self.parts:
            return
        found = _Columns(self.parts)
        columns = {name: self._constant(name, found.rows) for name in self.stamp}
        columns |= {name: found.of(name) for name in self.schema.names if name not in columns}
        self.bounds.keys += pc.min_max(columns["key"].dictionary).as_py().values()
        with writing(self.file):
            self.writer.write_table(pa.table(columns, schema=self.schema), row_group_size=found.rows)
        self.parts, self.pending, self.rows = [], 0, self.rows + found.rows

    def _constant(self, name: str, rows: int) -> pa.Array:
        if len(self.constants.get(name, ())) < rows:
            repeated = pa.repeat(self.stamp[name], max(rows, 2 * ROW_GROUP))
            self.constants[name] = repeated.dictionary_encode() if name in _TEXTS else repeated
        return self.constants[name].slice(0, rows)

    def close(self) -> DataFile:
        self.flush()
        with writing(self.file):
            self.writer.close()
            named = signed(self.file)
            size = named.stat().st_size
        told = self.bounds.told(self.rows, {name: value.as_py() for name, value in self.stamp.items()})
        return DataFile(f"day={self.day}/{named.name}", self.day, size, self.rows, told)


class _Bounds:
    """Delta's statistics of a file, of every column of the table that is no list: least and greatest value, nulls.

    Of every one: delta-rs takes a column without a number of nulls for one without nulls, and one without bounds,
    beside others that have them, for one that no value can match.
    """

    def __init__(self) -> None:
        self.texts: dict[str, set[str]] = {"stream": set(), "query": set(), "error": set()}
        self.times: dict[str, list[int]] = {"window_start": [], "window_end": [], "instant": []}
        self.keys: list[str] = []
        self.errors = 0

    def add(self, answered: Answered) -> None:
        self.texts["stream"].add(answered.stream)
        self.texts["query"].add(answered.query)
        self.texts["error"].update("; ".join(told) for told in answered.errors.values())
        self.errors += len(answered.errors)
        for name, before in zip(self.times, (answered.window.reach, answered.window.ago, 0), strict=True):
            self.times[name] += [int(answered.instants.min()) - before, int(answered.instants.max()) - before]

    def told(self, rows: int, stamp: Mapping[str, Any]) -> str:
        found: dict[str, list[Any]] = {name: sorted(texts) for name, texts in self.texts.items()}
        for name, times in self.times.items():
            found[name] = [f"{np.datetime64(time, 'us')}Z" for time in (min(times), max(times))]
        found |= {name: [value] for name, value in stamp.items()} | {"key": sorted(self.keys), "position": []}
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: values[0] if values else None for name, values in found.items()},
                "maxValues": {name: values[-1] if values else None for name, values in found.items()},
                "nullCount": dict.fromkeys(found, 0) | {"position": rows, "error": rows - self.errors},
            }
        )
