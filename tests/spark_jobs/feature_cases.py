"""Generated labels of generated queries, their features by the product, and by the oracle label by label."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from optimizer.workload.values import ACQ, SECOND, Source, Window
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.operations.feature_labels import feature_request, group_names
from spark_jobs.operations.features import features_of_table
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.calendars import windows_between
from tests.oracle import Cell, Row, answers
from tests.workloads import POOLS, Case

Labels = list[dict[str, Any]]
"""Rows of labels: ``moment`` in microseconds, and the group columns as the files of events have them."""

COUNTS = ("count", "count_distinct", "approx_count_distinct", "regr_count")
"""Aggregates that are 0 over no events."""

FAR = 1 << 50
"""A slide that is longer than any window: one window of it ends at a moment."""

NOWHERE = -FAR, 1 - FAR
"""A span without events."""


@dataclass(frozen=True)
class LabelledCase:
    """A case with labels. ``lateness``, ``delay``: microseconds."""

    case: Case
    labels: Labels
    accuracy: str
    lateness: int
    delay: int


def plain(query: ACQ) -> ACQ:
    """A query that can be in a feature set."""
    window = replace(query.window, at=None)
    group_by, derived, select = query.group_by, query.derived, query.select
    if query.sets:
        group_by, select = query.stored_group_by, query.select[: len(query.stored_group_by)]
    return replace(query, top=None, sets=(), window=window, group_by=group_by, derived=derived, select=select)


@st.composite
def labelled(draw: st.DrawFn, cases: st.SearchStrategy[Case], most_labels: int = 6) -> LabelledCase:
    """Labels at and beside the times of events, at instants and anywhere, of keys that have events and of others."""
    case = draw(cases)
    queries = tuple(plain(query) for query in case.workload.queries)
    # one label has the key columns of all queries
    queries = tuple(query for query in queries if group_names(query) == group_names(queries[0]))
    queries = tuple(query for query in queries if query.group_by == queries[0].group_by)
    lateness = draw(st.sampled_from((0, 0, 300 * SECOND)))
    stream = replace(case.stream, lateness=lateness)
    case = replace(case, workload=replace(case.workload, queries=queries, streams=(stream,)))
    times = [at for at in case.events["ts"].cast(pa.int64()).to_pylist() if at is not None]
    near = st.builds(int.__add__, st.sampled_from(times or [case.begin]), st.sampled_from((-1, 0, 0, 1, lateness)))
    moments = st.one_of(near, near, st.integers(case.begin, case.end), st.integers(case.begin, case.end + 10**12))
    from_events = case.events.to_pylist()
    labels = []
    for _ in range(draw(st.integers(1, most_labels))):
        row = draw(st.sampled_from(from_events)) if from_events and draw(st.integers(0, 4)) else None
        keys = dict(row) if row else {name: draw(st.sampled_from([None, *pool])) for name, pool in POOLS.items()}
        labels.append({"moment": draw(moments), **keys})
    delay = draw(st.sampled_from((0, 0, 1, 60 * SECOND)))
    parts = [part for query in queries for part in query.window.each]
    has_instants = any(part.calendar is not None and part.calendar.ago is not None for part in parts)
    accuracy = "refreshed" if has_instants else draw(st.sampled_from(("refreshed", "exact")))
    return LabelledCase(case, labels, accuracy, lateness, delay)


# ------------------------------------------------------------------------------------------- the product
def group_values(query: ACQ, labels: Labels, case: Case) -> dict[str, list[Any]]:
    """The values of the group columns of labels, by the names that labels have them under: expressions by DuckDB."""
    import duckdb

    from spark_jobs.audit.unshared.duckdb_expressions import FLOOR_DIV, Translator

    rows = pa.table(
        {
            name: pa.array([row.get(name) for row in labels], case.events.schema.field(name).type)
            for name in case.events.column_names
        }
    )
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(FLOOR_DIV)
    from tests.oracle import _plain

    connection.register("labels", _plain(rows))
    translate, computed, values = Translator(rows.schema), dict(query.derived), {}
    for shown, (name, _) in zip(group_names(query), query.group_by, strict=True):
        sql = translate(computed[name])[0] if name in computed else f'"{name}"'
        values[shown] = [row[0] for row in connection.execute(f"SELECT {sql} FROM labels").fetchall()]
    return values


def label_table(query: ACQ, labels: Labels, case: Case) -> pa.Table:
    from spark_jobs.streams.sources.expressions import arrow_type

    columns = {"moment": pa.array([row["moment"] for row in labels]).cast(pa.timestamp("us", "UTC"))}
    values = group_values(query, labels, case)
    for shown, (_, type) in zip(group_names(query), query.group_by, strict=True):
        of_type = values[shown]
        if type.name in ("timestamp",):
            columns[shown] = pa.array(of_type, pa.int64()).cast(arrow_type(type))
        else:
            columns[shown] = pa.array(of_type, arrow_type(type))
    return pa.table(columns)


def features(warehouse: Warehouse, labelled: LabelledCase, labels: pa.Table, known: str = "now") -> pa.Table:
    """The features of labels by the product."""
    names = [query.name for query in labelled.case.workload.queries]
    request = feature_request(names, "moment", {}, labelled.accuracy, known, None, True)
    request = replace(request, rule=replace(request.rule, delay=labelled.delay))
    engine = Engine("tests", given=LocalWorkers())
    return features_of_table(warehouse, request, labels, labels.column_names, engine)[0]


# ------------------------------------------------------------------------------------------- the oracle
def instant_of(window: Window, moment: int, is_exact: bool) -> int:
    """The instant of a label's features by the definition."""
    window = window.each[0]
    if is_exact:
        return moment
    if window.calendar is None and not window.cumulative:
        first = window.range + window.offset
        return (moment - first) // window.slide * window.slide + first
    far = 40 * 24 * 3600 * SECOND * (13 if window.calendar is not None else 1)
    return int(windows_between(window, moment - far, moment)["instant"].to_pylist()[-1])


def span_of(window: Window, instant: int, is_exact: bool) -> tuple[int, int]:
    """The window [start, end) at an instant, or of ``is_exact`` ones at any moment."""
    if window.calendar is None and not window.cumulative:
        return instant - window.ago - window.range, instant - window.ago
    far = 40 * 24 * 3600 * SECOND * (13 if window.calendar is not None else 1)
    windows = windows_between(window, instant - 1, instant + far)
    start, end = windows["since"].to_pylist()[0], windows["until"].to_pylist()[0]
    if is_exact:
        end = instant - window.ago
    # between two windows that do not meet none is open
    return (start, end) if start < end else NOWHERE


def over_spans(query: ACQ, spans: Sequence[tuple[int, int]]) -> ACQ:
    """The query over windows that are one-off: they all belong to one instant."""
    instant = max(end for _, end in spans)
    # what is historical begins so long before a multiple of the slide
    agos = [(start, end, instant - end) for start, end in spans]
    windows = [Window(end - start, FAR, ago, offset=(start + ago) % FAR) for start, end, ago in agos]
    if len(windows) == 1:
        return replace(query, window=windows[0])
    several = Window.of_several(windows)
    places = {number: several.parts.index(window) if several.parts else 0 for number, window in enumerate(windows)}
    return query.over(several, {**places, -1: -1})


def expected(query: ACQ, labelled: LabelledCase, moment: int, events: pa.Table) -> tuple[int, dict[Any, Row]]:
    """The instant of a label's features, and the answers of all groups by the oracle."""
    is_exact = labelled.accuracy == "exact"
    ready = moment - labelled.delay - (0 if is_exact else labelled.lateness)
    instant = instant_of(query.window, ready, is_exact)
    spans = [span_of(part, instant, is_exact) for part in query.window.each]
    last = max(end for _, end in spans)
    return instant, answers(over_spans(query, spans), events, "ts", last - 1, last)


def wrong_features(
    labelled: LabelledCase, table: pa.Table, made: pa.Table, events: Mapping[int, pa.Table]
) -> list[str]:
    """The differences between features and the oracle's; ``events``: those that count for each label."""
    differences = []
    for query in labelled.case.workload.queries:
        groups = [_told(table[name]) for name in group_names(query)]
        columns = [_told(made[f"{query.name}__{output.name}"]) for output in query.outputs]
        upto = _told(made[f"{query.name}__upto"])
        for row, moment in enumerate(_told(table["moment"])):
            instant, rows = expected(query, labelled, moment, events[row])
            if upto[row] != instant:
                differences.append(f"{query.name}, label {row}: up to {upto[row]}, expected {instant}")
            key = tuple(group[row] for group in groups)
            of_group = [answer for other, answer in rows.items() if other[1:] == key]
            values = [column[row] for column in columns]
            if not of_group:
                differences += _of_nothing(query, values, row, bool(query.having))
                continue
            differences += _of_answer(query, of_group[0], values, row)
    return differences


def _of_nothing(query: ACQ, values: Sequence[Any], row: int, has_having: bool) -> list[str]:
    """A label without an answer: no event counts for it, or its answer fails HAVING, which the oracle does not tell."""
    if has_having and all(value is None for value in values):
        return []
    return [
        f"{query.name}, label {row}: {output.name} of no events is {value!r}"
        for output, value in zip(query.outputs, values, strict=True)
        if not output.parts and value != (0 if output.function in COUNTS else None)
    ]


def _of_answer(query: ACQ, answer: Row, values: Sequence[Any], row: int) -> list[str]:
    if (answer.failure or not answer.certain) and all(value is None for value in values):
        return []
    if answer.failure == "must":
        return [f"{query.name}, label {row}: what HAVING compares overflows, and it is {values}"]

    def is_right(cell: Cell, value: Any) -> bool:
        return cell.matches(value)

    return [
        f"{query.name}, label {row}: {output.name} is {value!r}, expected {cell}"
        for output, cell, value in zip(query.outputs, answer, values, strict=True)
        if not is_right(cell, value)
    ]


def _told(column: pa.ChunkedArray) -> list[Any]:
    return list((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())


def house_of(labelled: LabelledCase, folder: Path, format: str = "parquet") -> tuple[LabelledCase, Warehouse]:
    """The case with its events in files, and a warehouse with its plan."""
    from tests.spark_jobs.case_runs import planned, stored

    case = stored(labelled.case, folder / "source", format)
    return replace(labelled, case=case), planned(case, folder / "house", "shared")[0]


def arrived(
    labelled: LabelledCase, folder: Path, moments: Sequence[int]
) -> tuple[LabelledCase, list[tuple[int, pa.Table]]]:
    """The case with its events in one file for each of some moments, at which it arrived; and what came when."""
    events, path = labelled.case.events, folder / "source" / "events"
    path.mkdir(parents=True)
    came = []
    for number, moment in enumerate(moments):
        part = events.take(pa.array(range(number, len(events), len(moments)), pa.int64()))
        pq.write_table(part, path / f"{number}.parquet")
        os.utime(path / f"{number}.parquet", ns=(moment * 1000, moment * 1000))
        came.append((moment, part))
    stream = replace(labelled.case.stream, source=Source("parquet", str(path)))
    workload = replace(labelled.case.workload, streams=(stream,))
    return replace(labelled, case=replace(labelled.case, workload=workload)), came
