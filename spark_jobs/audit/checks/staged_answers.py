"""Read staged answers for the audit: their windows, and the answers of some windows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.errors.diagnostics import count as number_of
from optimizer.synopses.synopsis import CARRIERS
from optimizer.windows.alignment import Choice, instants
from optimizer.workload.values import ACQ
from spark_jobs.audit.checks.inspection import DICTIONARIES, Longs, dictionary_codes, instants_as_numbers, single_chunk
from spark_jobs.audit.checks.kinds import AUDITS, AnsweredWindows
from spark_jobs.audit.checks.sampling import Past, Units
from spark_jobs.engine.workers import Count, Workers
from spark_jobs.store.storage import WHOLE, Place
from spark_jobs.store.warehouse.publish_log import coded_error
from spark_jobs.streams.sources.splits import Split

_FRAME = ["query", "window_start", "window_end", "instant", "key", "position"]

_ANSWERS = ["query", "window_start", "window_end", "key", "position", *CARRIERS, "error"]

MOST_DUE = 10_000
"""Instants of a query that are looked at for windows without answers, about: a long interval may have many more."""

KEPT_ROWS = 2_000_000
"""Answers up to which this process reads the files of a run, and keeps the windows that they are of."""

ANSWERS_A_TASK = 500_000
"""Answers that are worth a task: it reads two columns of most of them."""


T = TypeVar("T")

Columns = dict[str, pa.Array]
"""Columns (n,) of some answers, by name."""


class Staged:
    """The files of a run's staged answers. ``counts``: the number of answers of each query, where it is known;
    ``workers``: who reads the files if there are many answers; None: this process."""

    def __init__(
        self, paths: Sequence[str], counts: Counter[str] | None = None, workers: Workers | None = None
    ) -> None:
        self._paths, self._counts, self._workers = list(paths), counts, workers
        self._frames: list[Columns] | None = None
        self._open: list[pq.ParquetFile] = []

    def _files(self) -> list[pq.ParquetFile]:
        """The files, which stay open: in a store opening one again reads it again."""
        self._open = self._open or list(map(_opened, self._paths))
        return self._open

    def counts(self) -> Counter[str]:
        """The number of answers of each query."""
        if self._counts is None:
            files = self._files()
            if sum(file.metadata.num_rows for file in files) <= KEPT_ROWS:
                self._frames = [rows for file in files for rows in _rows_of(file, None, _FRAME)]
            totals: Counter[str] = Counter()
            for table in self._frames or (rows for file in files for rows in _rows_of(file, None, ["query"])):
                column = table["query"]
                counts = np.bincount(dictionary_codes(column), minlength=len(column.dictionary) + 1).tolist()
                totals.update(dict(zip(column.dictionary.to_pylist(), counts, strict=False)))
            self._counts = +totals
        return self._counts

    def frames(self, wanted: Set[str]) -> Iterator[Columns]:
        """Windows of the answers of some queries; answers of other queries may be among them."""
        if self._frames is not None:
            yield from self._frames
        else:
            yield from self._of_each(lambda file: _frames_of(file, wanted), "windows")

    def rows(self, windows: Mapping[str, Collection[int]]) -> list[dict[str, Any]]:
        """The answers of some windows: by query the ends of their content."""
        ends = {name: np.array(sorted(each), dtype=np.int64) for name, each in windows.items()}
        return list(self._of_each(lambda file: _answers_of(file, ends), "answers"))

    def _of_each(self, read: Callable[[pq.ParquetFile], Iterator[T]], what: str) -> Iterable[T]:
        """Read each file, in tasks if there are many answers. ``what``: for the tasks' description."""
        paths = self._paths
        if self._workers is None or self.counts().total() <= KEPT_ROWS:
            return (part for file in self._files() for part in read(file))

        def task(numbers: Iterable[int], count: Count) -> Iterator[T]:
            for number in numbers:
                yield from read(_opened(paths[number]))

        most = min(self._workers.width, -(-self.counts().total() // ANSWERS_A_TASK))
        description = f"sample of {number_of(len(paths), 'file')}: {what}"
        try:
            return self._workers.run(task, len(paths), most, description).results
        except Exception as error:
            raise coded_error(error) from error


def _opened(path: str) -> pq.ParquetFile:
    return pq.ParquetFile(Place.of(path).open_unchanging(True, WHOLE), read_dictionary=DICTIONARIES)


def _frames_of(file: pq.ParquetFile, wanted: Set[str]) -> Iterator[Columns]:
    """The windows that answers of some queries in a file are of."""
    for table in _rows_of(file, wanted, _FRAME):
        names = table["query"].dictionary.to_pylist()
        chosen = np.array([*(name in wanted for name in names), False])[dictionary_codes(table["query"])]
        yield {name: column.filter(pa.array(chosen)) for name, column in table.items()}


def _answers_of(file: pq.ParquetFile, ends: Mapping[str, Longs]) -> Iterator[dict[str, Any]]:
    """The answers of some windows in a file: by query the ends of their content."""
    for table in _rows_of(file, ends.keys(), _ANSWERS):
        codes, moments = dictionary_codes(table["query"]), instants_as_numbers(table["window_end"])
        chosen = np.zeros(len(codes), dtype=bool)
        for code, name in enumerate(table["query"].dictionary.to_pylist()):
            if name in ends:
                chosen |= (codes == code) & np.isin(moments, ends[name])
        if chosen.any():
            mask = pa.array(chosen)
            columns = {name: column.filter(mask).to_pylist() for name, column in table.items()}
            yield from (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _rows_of(file: pq.ParquetFile, wanted: Set[str] | None, columns: Sequence[str]) -> Iterator[Columns]:
    """Columns of the row groups that have answers of some queries, as far as the file has them; None: of all."""
    present = [name for name in columns if name in file.schema_arrow.names]
    for number in range(file.metadata.num_row_groups):
        queries = file.read_row_group(number, columns=["query"], use_threads=False)
        if wanted is None or not wanted.isdisjoint(single_chunk(queries["query"]).dictionary.to_pylist()):
            rows = queries if present == ["query"] else file.read_row_group(number, present, use_threads=False)
            yield {name: single_chunk(rows[name]) for name in rows.schema.names}


def units_of(
    staged: Staged,
    queries: Sequence[ACQ],
    sources: Mapping[str, Sequence[Split]],
    begin: int,
    ends: Mapping[str, int],
    past: Past,
    due: Mapping[str, Choice] | None = None,
    place: float = 0.0,
) -> dict[str, Units]:
    """The windows of some queries, by the names of the queries: those that have staged answers, and those that are due
    without. ``due``: the instants that are looked at for the latter, about :data:`MOST_DUE` of them, spread evenly from
    a ``place`` in [0, 1); None: all."""
    pieces: dict[str, list[AnsweredWindows]] = {query.name: [] for query in queries}
    by_key = {query.name for query in queries if AUDITS[query.kind].by_key}
    for table in staged.frames(pieces.keys()):
        codes, names = dictionary_codes(table["query"]), table["query"].dictionary.to_pylist()
        keys = table["key"].dictionary.to_pylist()
        is_null = np.array([*map(_has_null, keys), False])[dictionary_codes(table["key"])]
        starts, moments, at = (instants_as_numbers(table[name]) for name in ("window_start", "window_end", "instant"))
        position = instants_as_numbers(table["position"]) if "position" in table else np.zeros_like(at)
        for code, name in enumerate(names):
            if name not in pieces:
                continue
            chosen = codes == code
            texts = table["key"].filter(pa.array(chosen)).to_pylist() if name in by_key else []
            columns = (column[chosen] for column in (starts, moments, at, position, is_null))
            pieces[name].append(AnsweredWindows._make((*columns, texts)))
    units = {}
    for query in queries:
        edges = _edges(sources[query.stream])
        until = ends[query.stream] if query.until is None else min(ends[query.stream], query.until)
        expected = (
            partial(instants, query.window, begin, until)
            if due is None
            else partial(_some, due[query.name], until, place)
        )
        answered = AnsweredWindows.of(pieces[query.name])
        units[query.name] = AUDITS[query.kind].units(query, answered, edges, begin, expected, past)
    return units


def _has_null(key: str) -> bool:
    try:
        return "null" in key and None in json.loads(key)
    except (ValueError, TypeError):  # it is no key: to say so is the inspection's
        return False


def _some(due: Choice, until: int, place: float) -> Longs:
    step = max(1, len(due) // MOST_DUE)
    sampled = due[range(int(place * step), len(due), step)]
    return sampled[sampled <= until]


def _edges(splits: Sequence[Split]) -> Longs:
    """Known begins and ends of the event times of splits, ascending."""
    known = {at for split in splits for at in (split.begin, split.end) if at is not None}
    return np.array(sorted(known), dtype=np.int64)
