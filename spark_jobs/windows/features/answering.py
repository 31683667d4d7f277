"""The task that answers the labels of some buckets from the cells of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import ACQ, Stream
from spark_jobs.engine.workers import Count, Task, uncounted
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import BUCKETS, read_buckets
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.features.answers import FeatureCells, features_of
from spark_jobs.windows.features.labels import read_labels, write_features
from spark_jobs.windows.features.moments import Longs, MomentRule
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.late_groups import family_cells

OVERFLOWS = "values that do not fit"
"""Name of the count of values that are null because they overflow their types."""

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
            known: dict[tuple[str, tuple[str, ...]], Cells] = {}
            for number, unit in sorted(enumerate(units), key=lambda pair: pair[1].keys):
                if unit.keys != keys:
                    keys, labels = unit.keys, read_labels(place, unit.keys, parts, buckets)
                    known = {}
                source = unit.synopsis.fingerprint, unit.files
                if source not in known:
                    # queries of one source follow each other
                    known = {source: _cells(unit, buckets)}
                moments = labels["moment"].to_numpy()
                is_answered = unit.answered.mask(unit.query, unit.stream, unit.rule, moments)
                chosen = labels if is_answered.all() else labels.filter(pa.array(is_answered))
                cells = FeatureCells(unit.query, _of_query(unit, known[source]))
                columns, upto, overflows = features_of(unit.query, unit.stream, unit.rule, cells, chosen)
                count(OVERFLOWS, overflows)
                names = ["row", "upto", *(output.name for output in unit.query.outputs)]
                row = chosen["row"].combine_chunks()
                batch = pa.RecordBatch.from_arrays([row, upto, *columns], names=names)
                write_features(place, number, piece, len(parts), batch)
        yield from ()

    return task


def _cells(unit: FeatureUnit, buckets: range) -> Cells:
    """The cells of some buckets, one a fragment and group."""
    tables = []
    for table in read_buckets(unit.files, set(buckets)) if unit.files else ():
        chosen = pc.and_(pc.equal(table["fingerprint"], unit.synopsis.fingerprint), pc.is_valid(table["key"]))
        tables.append(table.filter(chosen))
    rows = pa.concat_tables(tables) if tables else PARTIALS.empty_table().drop_columns("day")
    cells = Cells.decode(unit.synopsis, rows)
    if unit.spans is not None:
        inside = np.zeros(len(cells), dtype=bool)
        for first, last in unit.spans:
            inside |= (cells.starts >= first) & (cells.starts < last)
        cells = cells.take(np.flatnonzero(inside))
    return cells.combined()


def _of_query(unit: FeatureUnit, cells: Cells) -> Cells:
    if unit.rule.knows_then:
        # they are lifted for queries of this filter and these group columns, and know when they arrived
        return cells
    return family_cells(cells, unit.query, unit.stream)
