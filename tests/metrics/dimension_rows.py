"""Dimensions of the corpus' streams as files, and the events as DuckDB joins them."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.workload.attributes import attributes_in, read_attribute
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, Dimension, Source, Stream
from spark_jobs.streams.sources.expressions import arrow_type
from tests.metrics.corpus import streams
from tests.metrics.events import BEGIN, case_of, value
from tests.oracle import answers
from tests.workloads import Case


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
