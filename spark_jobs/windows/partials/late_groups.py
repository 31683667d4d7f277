"""The cells of one filter and group-by, with attributes of dimensions looked up for the groups where they are joined
late.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.synopses.late import LateForm, late_form
from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.grouping_sets import grouping_ids
from optimizer.workload.values import ACQ, Stream
from spark_jobs.results.rows import typed
from spark_jobs.store.arrays.numbering import distinct_rows, encoded
from spark_jobs.store.arrays.texts import as_texts
from spark_jobs.streams.sources.dimension_rows import with_attributes
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.windows.partials.cells import Cells, concatenated


def family_cells(cells: Cells, query: ACQ, stream: Stream | None) -> Cells:
    """The cells of a query's filter and group-by, of the combined cells of a synopsis that answers it.

    ``stream``: the query's, with the versions of its dimensions; None: no query of the synopsis is joined late.
    """
    synopsis = cells.synopsis
    if synopsis.is_plain(query):
        return cells
    if query.sets:
        return _of_sets(cells.projected(synopsis.bit(query.filter), query.stored_group_by), query)
    if not synopsis.joins_late(query):
        return cells.projected(synopsis.bit(query.filter), query.group_by)
    assert stream is not None
    form = _form(stream, query)
    stored = replace(synopsis, predicates=(form.filter,), group_by=form.group_by, bucket_by=())
    return _joined(cells.rolled_up(stored), query, stream, form).combined()


def _of_sets(cells: Cells, query: ACQ) -> Cells:
    """The cells of all grouping sets of a query, of those by all of its group columns: each rolled up to its own
    columns, with null in the others and the number of the set behind them.
    """
    names = [name for name, _ in query.stored_group_by]
    synopsis = replace(cells.synopsis, group_by=query.group_by, bucket_by=())
    parts = []
    for chosen, id in zip(query.sets, grouping_ids(names, query.sets), strict=True):
        group_by = tuple(column for column in query.stored_group_by if column[0] in chosen)
        part = cells.rolled_up(replace(cells.synopsis, group_by=group_by, bucket_by=()))
        of_set = dict(zip((name for name, _ in group_by), part.key_columns, strict=True))
        nothing = pa.nulls(part.groups, pa.string())
        keys = (*(of_set.get(name, nothing) for name in names), pa.array([str(id)] * part.groups, pa.string()))
        parts.append(replace(part, synopsis=synopsis, key_columns=keys))
    return concatenated(parts).combined()


def stored_bit(synopsis: Synopsis, query: ACQ, stream: Stream | None) -> int:
    """The bit of the shards that have the rows of a query in a synopsis. ``stream``: as for :func:`family_cells`."""
    if stream is None or not synopsis.joins_late(query):
        return synopsis.bit(query.filter)
    return synopsis.bit(_form(stream, query).filter)


def _form(stream: Stream, query: ACQ) -> LateForm:
    form = late_form(stream, query)
    assert form is not None, query.name
    return form


def _joined(cells: Cells, query: ACQ, stream: Stream, form: LateForm) -> Cells:
    """The cells by attributes of cells by keys, in any order; more than one of a cell."""
    texts = dict(zip((name for name, _ in form.group_by), cells.key_columns, strict=True))
    types = dict(form.group_by)
    columns = {key: typed(texts[name], types[name]) for key, name in sorted(form.keys.items())}
    groups = with_attributes(stream, pa.RecordBatch.from_pydict(columns), form.attributes)
    synopsis = replace(cells.synopsis, predicates=(query.filter,), group_by=query.group_by)
    if form.condition is not None:
        passes = pc.fill_null(evaluate(form.condition, groups, stream.types), False)
        cells = cells.take(np.flatnonzero(passes.to_numpy(zero_copy_only=False)[cells.group]))
    attributes = (name for name, _ in query.group_by if name not in texts)
    texts |= {name: _texts(groups.column(name)) for name in attributes}
    values, number, count = distinct_rows([texts[name] for name, _ in query.group_by], cells.groups)
    group = number.astype(np.int64, copy=False)[cells.group]
    return replace(cells, synopsis=synopsis, group=group, groups=count, key_columns=values)


def _texts(column: pa.Array) -> pa.StringArray:
    """A group column as texts."""
    values, indices = encoded(column)
    return as_texts(values).take(pa.array(indices))
