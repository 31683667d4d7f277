"""The metrics with joins: which are expressed, and that their answers are those over events that DuckDB joined."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.workload.attributes import attributes_in, read_attribute
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, Dimension, Source, Stream, Workload
from spark_jobs.operations.in_process import answers_of
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.dimensions import pinned_stream
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.files import splits_of
from tests.metrics.corpus import joined, read, streams
from tests.metrics.events import BEGIN, case_of, value
from tests.oracle import answers, compare
from tests.spark_jobs.kernels import differences, kernel_answers
from tests.workloads import Case

LEAST = 36
"""Metrics of the forty that the language has to express."""

by_name = {metric.name: metric for metric in joined()}
EXPRESSED = [query for metric in joined() if not metric.code for query in read(metric).queries]

THROUGH_A_RUN = (
    "metricflow_food_revenue_share",
    "metricflow_revenue_by_continent",
    "metricflow_revenue_by_tier",
    "chronon_purchases_as_of",
    "tecton_abroad",
    "looker_billing_and_shipping",
)
"""Metrics that all stages of a run answer."""


@pytest.mark.parametrize("name", by_name)
def test_a_metric_with_joins_is_accepted_or_refused_as_it_says(name: str) -> None:
    metric = by_name[name]
    result = read(metric)
    if metric.code:
        assert metric.reason and not result.queries
        assert metric.code in {error.code for error in result.errors}, result.errors
    else:
        assert not result.errors and [query.name for query in result.queries] == [name]


def test_there_are_forty_and_thirty_six_can_be_expressed() -> None:
    assert len(by_name) == len(joined()) == 40
    assert len(EXPRESSED) >= LEAST
    assert {metric.product for metric in joined()} == {"dbt MetricFlow", "Chronon", "Tecton", "Looker"}
    assert all(any(map(read_attribute, query.columns())) for query in EXPRESSED)


# --------------------------------------------------------------------------------------------- answers
def rows_of(dimension: Dimension, draw: random.Random) -> pa.Table:
    """Rows of a dimension: all but one of the keys that events have, and others; with validities, several of a key."""
    types = dict(dimension.schema)
    pools: dict[str, list[Any]] = {"string": ["a", "b", "c"], "long": [1, 2, 3, 1000]}
    pool = pools[types[dimension.key[0]].name]
    keys = [key for key in pool if key != draw.choice(pool)] + [
        {"string": "z", "long": 7}[types[dimension.key[0]].name]
    ]
    rows: list[dict[str, Any]] = []
    for key in keys:
        bounds: list[int | None] = [None]
        if dimension.valid_from is not None:
            bounds = [*sorted(BEGIN + draw.randrange(-DAY, 2 * DAY) for _ in range(4))]
        for begin, end in zip(bounds, [*bounds[1:], None], strict=True):
            row = {name: value(draw, name, type) for name, type in types.items()} | {dimension.key[0]: key}
            row |= {name: date(draw.choice([2023, 2024]), 3, 1) for name, type in types.items() if type.name == "date"}
            if dimension.valid_from is not None and dimension.valid_to is not None:
                # now and then nothing is valid until the next row
                row |= {dimension.valid_from: begin, dimension.valid_to: end if draw.random() < 0.7 else begin}
            rows.append(row)
    columns = {name: [row[name] for row in rows] for name in types}
    return pa.table(columns, schema=pa.schema([(name, arrow_type(type)) for name, type in types.items()]))


def joined_by_duckdb(stream: Stream, events: pa.Table, tables: dict[str, pa.Table], columns: list[str]) -> pa.Table:
    """The events with attributes as columns, by LEFT JOINs."""
    attributes = attributes_in(stream, columns)
    aliases = {row: f"d{at}" for at, row in enumerate(dict.fromkeys(each.row for each in attributes.values()))}

    def place(name: str) -> str:
        attribute = read_attribute(name)
        return f'e."{name}"' if attribute is None else f'{aliases[attribute.row]}."{attribute.column}"'

    text, selected = "events AS e", [f'e."{name}"' for name, _ in stream.schema]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("events", events)
        for row, alias in aliases.items():
            dimension = stream.dimension(row.dimension)
            connection.register(f"rows of {row.dimension}", tables[row.dimension])
            pairs = zip(row.keys, dimension.key, strict=True)
            condition = " AND ".join(f'{place(outer)} = {alias}."{inner}"' for outer, inner in pairs)
            if dimension.valid_from is not None:
                until = f"coalesce({alias}.\"{dimension.valid_to}\", TIMESTAMPTZ 'infinity')"
                condition += (
                    f' AND e."{stream.time}" >= {alias}."{dimension.valid_from}" AND e."{stream.time}" < {until}'
                )
            dimension_rows = f'SELECT *, true AS "there is one" FROM "rows of {row.dimension}"'
            text += f" LEFT JOIN ({dimension_rows}) AS {alias} ON {condition}"
        for name, attribute in attributes.items():
            of_row = f'coalesce({aliases[attribute.row]}."there is one", false)'
            selected.append(f'{place(name) if attribute.column is not None else of_row} AS "{name}"')
        return connection.execute(f"SELECT {', '.join(selected)} FROM {text}").to_arrow_table()


def case_with_answers(query: ACQ, folder: Path) -> tuple[Case, Stream, pa.Table]:
    """A case over files in which the query has answers: the stream, whose dimensions are files too, and the events as
    DuckDB joins them."""
    for seed in range(40):
        case, stream, wide = case_with_files(query, folder, seed)
        everything = replace(query, stream="events")
        if answers(everything, wide, stream.time, case.begin, case.end):
            return case, stream, wide
    raise AssertionError("no answer, so nothing can be compared")


def case_with_files(query: ACQ, folder: Path, seed: int) -> tuple[Case, Stream, pa.Table]:
    """A case over files, with or without answers."""
    stream = streams()[query.stream]
    case = case_of(query, stream, seed)
    draw = random.Random(f"{query.name} rows {seed}")
    pq.write_table(case.events, folder / "events.parquet")
    tables, dimensions = {}, []
    for dimension in stream.dimensions:
        if any(attribute.dimension == dimension.name for attribute in attributes_in(stream, query.columns()).values()):
            tables[dimension.name] = rows_of(dimension, draw)
            pq.write_table(tables[dimension.name], folder / f"{dimension.name}.parquet")
            source = Source("parquet", str(folder / f"{dimension.name}.parquet"))
            dimensions.append(replace(dimension, source=source))
    filed = replace(stream, name="events", source=Source("parquet", str(folder / "events.parquet")))
    filed = replace(filed, dimensions=tuple(dimensions))
    return case, filed, joined_by_duckdb(filed, case.events, tables, query.columns())


@pytest.mark.parametrize("query", EXPRESSED, ids=lambda query: query.name)
def test_the_answers_are_those_over_events_that_duckdb_joined(query: ACQ, tmp_path: Path) -> None:
    case, stream, wide = case_with_answers(query, tmp_path)
    names = [*dict(stream.schema), *attributes_in(stream, query.columns())]
    pinned = pinned_stream(stream, query.columns())
    batches = [batch for split in splits_of(pinned) for batch in read_split(pinned, split, names)]
    looked_up = pa.Table.from_batches(batches).select(names)
    everything = replace(stream, schema=tuple((name, stream.types[name]) for name in names), dimensions=())
    expected = [wide[name].cast(arrow_type(type)) for name, type in everything.schema]
    assert rows(looked_up) == rows(pa.table(expected, names=names))
    wide_case = replace(case, workload=Workload(case.workload.queries, (everything,)), events=wide)
    table = kernel_answers(replace(wide_case, events=looked_up), "shared", [40, 90], case.begin, case.end)
    assert len(table) and differences(wide_case, table) == []


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("name", THROUGH_A_RUN)
def test_a_run_answers_as_over_events_that_duckdb_joined(name: str, tmp_path: Path) -> None:
    (query,) = read(by_name[name]).queries
    case, stream, wide = case_with_answers(query, tmp_path)
    asked = replace(query, stream="events")
    typed, problems = answers_of(Workload((asked,), (stream,)), case.begin, case.end)
    assert not [problem for problem in problems if problem.severity == "error"], problems
    expected = answers(asked, wide, stream.time, case.begin, case.end)
    assert compare(asked, typed[name], expected) == []
