"""Generated warehouses whose answers are known: queries that mean this and that over plan versions, and rows written
as runs write them, beside what anybody who reads a relation has to find."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from optimizer.aggregates.states import carrier_of
from optimizer.plan.builder import build_plan
from optimizer.workload.values import (
    ACQ,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    Output,
    Source,
    Stream,
    Type,
    Window,
    Workload,
    decimal,
)
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.schemas import RESULTS
from spark_jobs.store.warehouse.warehouse import Warehouse, added
from spark_jobs.streams.sources.expressions import arrow_type

HOUR = 3_600_000_000
NOON = 1_372_680_000_000_000
"""2013-07-01T12:00:00Z."""

TYPES: dict[str, Type] = {
    "text": STRING,
    "small": INT,
    "whole": LONG,
    "truth": BOOLEAN,
    "day": DATE,
    "moment": TIMESTAMP,
    "money": decimal(10, 2),
    "wide": decimal(38, 10),
    "real": DOUBLE,
}
"""The stream's columns: one of each type."""

STREAM = Stream("events", Source("parquet", "none"), (("ts", TIMESTAMP), *TYPES.items()), "ts")

POOLS: dict[str, list[Any]] = {
    "string": [
        "",
        "AA",
        'say "x"',
        "it's",
        "back\\slash",
        "a,b",
        "é ü 漢 🧵",
        "null",
        "${env:HOME}",
        "line\nend",
        "\x00",
    ],
    "long": [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "timestamp": [-62_135_596_800_000_000, -1, 0, 1, NOON + 1, 253_402_300_799_999_999],
    "decimal": ["0", "0.01", "-0.01", "99999999.99", "-99999999.99"],
    "wide": ["0", "1E-10", "-1E-10", "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10],
    "double": [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 0.1, 1e308],
}
NAMES = ("a", "B", "c d", "sélect", "key", "longs", "from")
"""Of columns: with capitals and spaces, words of SQL, and columns of the results themselves."""


def values(type: Type) -> st.SearchStrategy[Any]:
    """Values of a type, null among them; instants as microseconds."""
    pool = POOLS["wide" if type.precision == 38 else type.name]
    if type.name == "decimal":
        step = Decimal(1).scaleb(-type.scale)
        pool = [Decimal(text).quantize(step, context=_EXACT) for text in pool]
    if type == INT:
        pool = [number for number in pool if abs(number) < 2**31]
    return st.one_of(st.none(), st.sampled_from(pool))


_EXACT = __import__("decimal").Context(prec=60)


@st.composite
def definitions(draw: st.DrawFn, name: str) -> ACQ:
    """What a query means: groups of any type, outputs of any, under names that other definitions use for others."""
    names = draw(st.permutations(NAMES))
    grouped = draw(st.lists(st.sampled_from([n for n in TYPES if n != "real"]), max_size=3, unique=True))
    outputs = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=len(NAMES) - len(grouped)))
    windows = (
        *(Window(2 * HOUR, HOUR), Window(HOUR, HOUR, ago=HOUR), Window(20, 10, per=())),
        Window.of_sessions(HOUR, 2 * HOUR, ()),
    )
    return ACQ(
        name,
        STREAM.name,
        draw(st.sampled_from((*windows[:1], *windows))),
        tuple(
            Output(called, "max", Column(column), TYPES[column], TYPES[column])
            for called, column in zip(names[len(grouped) :], outputs, strict=False)
        ),
        group_by=tuple((column, TYPES[column]) for column in grouped),
        select=tuple(names[: len(grouped)]),
    )


@dataclass
class Stored:
    """A warehouse in the making: its plan versions, and of each query what its relation has to hold (``rows``)."""

    warehouse: Warehouse
    meant: dict[str, list[tuple[int, ACQ]]] = field(default_factory=dict)
    rows: dict[str, list[tuple[ACQ, dict[str, Any]]]] = field(default_factory=dict)

    def plan(self, queries: Sequence[ACQ]) -> int:
        """A version of the plan that has these queries."""
        new_plan = build_plan(Workload(tuple(queries), (STREAM,)), {STREAM.name: Fraction(1)}, "no-share")
        version, _ = publish_plan(self.warehouse, new_plan)
        for query in queries:
            self.meant.setdefault(query.name, []).append((version, query))
        return version

    def expected(self, name: str) -> pa.Table:
        """The rows of a relation, by the newest meaning of its query: the oracle."""
        query = self.meant[name][-1][1]
        types = columns_of(query)
        rows = []
        for answered, row in self.rows.get(name, []):
            old_types = columns_of(answered)
            rows.append({
                column: row.get(column)
                if column in OWN or (column in old_types and fits(type, old_types[column])) else None
                for column, type in types.items()
            })  # fmt: skip
        schema = pa.schema([(column, arrow_type(type)) for column, type in types.items()])
        return pa.Table.from_pylist(rows, schema)


OWN = ("window_start", "window_end", "instant", "position", "revision", "error")


def fits(type: Type, other: Type) -> bool:
    """Of the types that are drawn: the same, or a number that 28 digits before the point and ten behind it hold."""
    return (
        type.name == other.name and other.precision <= type.precision or (type.precision == 38 and other.name == "long")
    )


def columns_of(query: ACQ) -> dict[str, Type]:
    """The columns of a query's relation."""
    times = ["window_start", "window_end"] + ["instant"] * bool(query.window.ago)
    return (
        dict.fromkeys(times, TIMESTAMP)
        | ({"position": LONG} if query.window.is_rows else {})
        | {name: type for name, (_, type) in zip(query.select, query.group_by, strict=True)}
        | {output.name: output.type for output in query.outputs}
        | {"revision": LONG, "error": STRING}
    )


@st.composite
def worlds(draw: st.DrawFn) -> list[tuple[list[ACQ], list[dict[str, Any]]]]:
    """Versions of a plan, each with rows that it answered: what is to be stored, as values."""
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        queries = [draw(definitions(name)) for name in ("q", "Other.query-1")]
        rows = [draw(answers(query)) for query in queries for _ in range(draw(st.integers(0, 4)))]
        steps.append((queries, rows))
    return steps


@st.composite
def answers(draw: st.DrawFn, query: ACQ) -> dict[str, Any]:
    """One row of a query: its own columns, and what a row says of itself. ``marked``: with a fingerprint."""
    end = NOON + draw(st.integers(0, 40)) * HOUR
    broken = draw(st.integers(0, 3)) == 0
    row: dict[str, Any] = {"query": query, "revision": draw(st.integers(1, 3)), "marked": draw(st.integers(0, 4)) > 0}
    row |= {"window_start": end - query.window.range if not query.window.is_rows else end - 1, "window_end": end}
    row |= {
        "instant": end + query.window.end_before,
        "position": draw(st.integers(0, 99)) if query.window.is_rows else None,
    }
    row["error"] = 'HDL-601 it\'s "too" large' if broken else None
    for name, (_, type) in zip(query.select, query.group_by, strict=True):
        row[name] = draw(values(type))
    for output in query.outputs:
        row[output.name] = None if broken else draw(values(output.type))
    return row


def store(folder: Path, steps: Iterable[tuple[list[ACQ], list[dict[str, Any]]]]) -> Stored:
    """A warehouse with plans and rows."""
    stored = Stored(Warehouse.open(folder))
    for queries, rows in steps:
        version = stored.plan(queries)
        for row in rows:
            stored.rows.setdefault(row["query"].name, []).append((row["query"], row))
        table = pa.Table.from_pylist([_stored(row, version) for row in rows], RESULTS)
        with stored.warehouse.lease() as token:
            current = stored.warehouse.table("results")
            files = [added(file) for file in write_files(stored.warehouse.path("results"), table)] if rows else []
            stored.warehouse.commit("results", current, files, token)
    return stored


def _stored(row: dict[str, Any], version: int) -> dict[str, Any]:
    """A row as the results table has it."""
    query: ACQ = row["query"]
    lists: dict[str, list[Any]] = {"longs": [], "doubles": [], "texts": []}
    for output in query.outputs:
        lists[carrier_of(output.type)].append(_carried(row[output.name], output.type))
    key = [_text(row[name], type) for name, (_, type) in zip(query.select, query.group_by, strict=True)]
    stamp = {name: row[name] for name in ("window_start", "window_end", "instant", "position", "revision", "error")}
    day = date.fromtimestamp((row["instant"] - 1) // 1_000_000).isoformat()
    about = {"day": day, "stream": STREAM.name, "query": query.name, "plan_version": version, "run_id": "run"}
    marks = {"fingerprint": query.definition if row["marked"] else None, "key": json.dumps(key, ensure_ascii=False)}
    return about | marks | stamp | {name: carried_values or None for name, carried_values in lists.items()}


def _carried(value: Any, type: Type) -> Any:
    if value is None:
        return None
    if type.name == "decimal":
        return format(value, "f")
    return (value - date(1970, 1, 1)).days if type.name == "date" else int(value) if type == BOOLEAN else value


def _text(value: Any, type: Type) -> str | None:
    """A group's value as text."""
    if value is None or type.name == "string":
        return value
    if type.name == "decimal":
        return format(value, "f")
    return str(value).lower()


def same(found: pa.Table, expected: pa.Table) -> None:
    """Both have the same columns, of the same types, and the same rows, in any order: bit for bit."""
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        type, expected_type = found.schema.field(name).type, expected.schema.field(name).type
        assert type == expected_type or (pa.types.is_string(expected_type) and pa.types.is_large_string(type)), (
            name,
            type,
            expected_type,
        )
    assert rows_of(found.cast(expected.schema)) == rows_of(expected)


def rows_of(table: pa.Table) -> list[str]:
    instants = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in instants:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.int64()))
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


BY_TEXT = ACQ(
    "by.text",
    "events",
    Window(HOUR, HOUR),
    (Output("n", "max", Column("whole"), LONG, LONG), Output("last", "max", Column("text"), STRING, STRING)),
    group_by=(("text", STRING),),
    select=("who",),
)
WHOLE = replace(BY_TEXT, name="whole", group_by=(), select=())


def row(query: ACQ, hours: int, n: int, who: str | None = None) -> dict[str, Any]:
    end = NOON + hours * HOUR
    stamp = {"window_start": end - HOUR, "window_end": end, "instant": end, "position": None, "error": None}
    return {"query": query, "revision": 1, "marked": True, "n": n, "last": "it's", "who": who, **stamp}
