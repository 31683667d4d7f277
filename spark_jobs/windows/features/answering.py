"""The task that answers the labels of some buckets from the cells of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import ACQ, Stream
from spark_jobs.engine.workers import Count, Task, uncounted
from spark_jobs.store.arrays.numbering import distinct_rows
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import BUCKETS, read_buckets
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.features.answers import NOWHERE, FeatureCells, cut_at_bounds, features_of
from spark_jobs.windows.features.labels import read_labels, write_features
from spark_jobs.windows.features.moments import Longs, MomentRule
from spark_jobs.windows.partials.cells import Cells, concatenated
from spark_jobs.windows.partials.late_groups import family_cells

OVERFLOWS = "values that do not fit"
"""Name of the count of values that are null because they overflow their types."""

CUT_CELLS = 4_000_000
"""Cells from which on those of a microsecond are cut at the bounds of windows."""

Span = tuple[int, int]


class AnsweredBy(NamedTuple):
    """The labels of a query that a unit of work answers: those with moments in [begin, end), whose windows lie in one
    of the ``stored`` spans, ascending; ``is_stored`` False: in none of them."""

    begin: int
    end: int
    stored: tuple[Span, ...]
    is_stored: bool

    def mask(self, query: ACQ, stream: Stream, rule: MomentRule, moments: Longs) -> NDArray[np.bool_]:
        """Mask (n,) of the moments of the labels that are answered."""
        is_answered = (moments >= self.begin) & (moments < self.end)
        if not self.stored:
            return is_answered & (not self.is_stored)
        spans = rule.spans(query, rule.instants(query, stream, moments))
        starts = np.minimum.reduce([starts for starts, _ in spans])
        ends = np.maximum.reduce([ends for _, ends in spans])
        inside = np.zeros(len(moments), dtype=bool)
        for first, last in self.stored:
            inside |= (starts >= first) & (ends <= last)
        return is_answered & (inside == self.is_stored)


class FeatureUnit(NamedTuple):
    """The features of a query that come from one source of cells.

    - ``keys``: the number of the key columns whose labels it answers;
    - ``stream``: the query's, with the versions of its dimensions;
    - ``synopsis``: of the rows in ``files``, whose cells the features are combined from; ``spans``: these cells count,
      None: all.
    """

    query: ACQ
    stream: Stream
    rule: MomentRule
    keys: int
    synopsis: Synopsis
    files: tuple[str, ...]
    answered: AnsweredBy
    spans: tuple[Span, ...] | None = None


def buckets_of_pieces(pieces: int) -> list[range]:
    """The buckets of each of some pieces of work."""
    return [range(BUCKETS * at // pieces, BUCKETS * (at + 1) // pieces) for at in range(pieces)]


def answer_labels(root: str, parts: Sequence[str], units: Sequence[FeatureUnit], pieces: int) -> Task:
    """The task that answers, for pieces with the given numbers, the labels of their buckets and writes the features
    under ``root``; it yields nothing. ``parts``: the names of the parts of the labels."""
    place = Place.of(root)

    def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[None]:
        for piece in numbers:
            buckets = buckets_of_pieces(pieces)[piece]
            keys, labels = -1, pa.table({})
            for (own_keys, *_), members in groupby(sorted(enumerate(units), key=_source), key=_source):
                if own_keys != keys:
                    keys, labels = own_keys, read_labels(place, own_keys, parts, buckets)
                numbered = list(members)
                answered = [(number, unit, _answered(unit, labels)) for number, unit in numbered]
                read = _cells([(unit, chosen) for _, unit, chosen in answered], buckets)
                for number, unit, chosen in answered:
                    cells = FeatureCells(unit.query, _of_query(unit, read))
                    columns, upto, overflows = features_of(unit.query, unit.stream, unit.rule, cells, chosen)
                    count(OVERFLOWS, overflows)
                    names = ["row", "upto", *(output.name for output in unit.query.outputs)]
                    row = chosen["row"].combine_chunks()
                    batch = pa.RecordBatch.from_arrays([row, upto, *columns], names=names)
                    write_features(place, number, piece, len(parts), batch)
        yield from ()

    return task


def _source(numbered: tuple[int, FeatureUnit]) -> tuple[int, str, tuple[str, ...]]:
    """The cells that a unit answers from, and the labels: those of one source are read once."""
    _, unit = numbered
    return unit.keys, unit.synopsis.fingerprint, unit.files


def _answered(unit: FeatureUnit, labels: pa.Table) -> pa.Table:
    """The labels that a unit answers."""
    is_answered = unit.answered.mask(unit.query, unit.stream, unit.rule, labels["moment"].to_numpy())
    return labels if is_answered.all() else labels.filter(pa.array(is_answered))


def _cells(answered: Sequence[tuple[FeatureUnit, pa.Table]], buckets: range) -> Cells:
    """The cells of some buckets for units of one source with their labels, one a fragment and group. If cells of a
    microsecond are many, those between two neighbouring bounds of windows of a key's labels are one."""
    unit = answered[0][0]
    tables: list[pa.Table] = []
    cut: Cells | None = None
    for table in read_buckets(unit.files, set(buckets)) if unit.files else ():
        chosen = pc.and_(pc.equal(table["fingerprint"], unit.synopsis.fingerprint), pc.is_valid(table["key"]))
        tables.append(table.filter(chosen))
        if unit.rule.is_exact and sum(map(len, tables)) > CUT_CELLS:
            bounds = WindowBounds.of(answered)
            part = bounds.cut(_decoded(unit, tables))
            cut = part if cut is None else concatenated([cut, part]).combined()
            tables = []
    if cut is not None:
        return concatenated([cut, WindowBounds.of(answered).cut(_decoded(unit, tables))]).combined()
    cells = _decoded(unit, tables)
    if unit.spans is not None:
        inside = np.zeros(len(cells), dtype=bool)
        for first, last in unit.spans:
            inside |= (cells.starts >= first) & (cells.starts < last)
        cells = cells.take(np.flatnonzero(inside))
    return cells.combined()


def _decoded(unit: FeatureUnit, tables: Sequence[pa.Table]) -> Cells:
    rows = pa.concat_tables(tables) if tables else PARTIALS.empty_table().drop_columns("day")
    return Cells.decode(unit.synopsis, rows)


class WindowBounds(NamedTuple):
    """The bounds of the windows of labels: for each key (k,), with the texts of its ``columns``, those from its number
    in ``offsets`` (k + 1,) on, ascending."""

    columns: tuple[pa.StringArray, ...]
    offsets: Longs
    bounds: Longs

    @classmethod
    def of(cls, answered: Sequence[tuple[FeatureUnit, pa.Table]]) -> WindowBounds:
        """The bounds for the labels of some units with the same group columns."""
        numbers, bounds, rows = [], [], 0
        for unit, labels in answered:
            moments = labels["moment"].to_numpy()
            spans = unit.rule.spans(unit.query, unit.rule.instants(unit.query, unit.stream, moments))
            numbers += [np.arange(rows, rows + len(labels))] * (2 * len(spans))
            bounds += [bound for span in spans for bound in span]
            rows += len(labels)
        names = [name for name, _ in answered[0][0].query.group_by]
        keys = [pa.concat_arrays([labels[name].combine_chunks() for _, labels in answered]) for name in names]
        columns, number, count = distinct_rows(keys, rows)
        count = count if columns else 1
        key = number.astype(np.int64)[np.concatenate(numbers)]
        bound = np.concatenate(bounds)
        order = np.lexsort((bound, key))
        key, bound = key[order], bound[order]
        is_first = np.ones(len(key), dtype=bool)
        is_first[1:] = (np.diff(key) != 0) | (np.diff(bound) != 0)
        key, bound = key[is_first], bound[is_first]
        return cls(columns, np.searchsorted(key, np.arange(count + 1)).astype(np.int64), bound)

    def cut(self, cells: Cells) -> Cells:
        """The cells of the keys, each from a bound to the next, without those that no window has."""
        known = len(self.offsets) - 1
        own = cells.key_columns[: len(self.columns)]
        both = [
            pa.concat_arrays([left.cast(pa.string()), right.cast(pa.string())])
            for left, right in zip(self.columns, own, strict=True)
        ]
        _, number, count = distinct_rows(both, known + cells.groups)
        key_of = np.full(count if both else 1, -1, dtype=np.int64)
        key_of[number[:known]] = np.arange(known)
        starts = np.empty_like(cells.starts)
        cut_at_bounds(cells.starts, key_of[number[known:]][cells.group], self.offsets, self.bounds, starts)
        rows = np.flatnonzero(starts > NOWHERE)
        return replace(cells.take(rows), starts=starts[rows], ends=starts[rows] + 1).combined()


def _of_query(unit: FeatureUnit, cells: Cells) -> Cells:
    if unit.rule.knows_then:
        # they are lifted for queries of this filter and these group columns, and know when they arrived
        return cells
    return family_cells(cells, unit.query, unit.stream)
