"""Answers of the chosen metrics by hand-written statements for DuckDB, and how ours differ from them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from optimizer.language.statements import split_statements
from optimizer.workload.values import ACQ
from tests.metrics.corpus import FOLDER
from tests.oracle import column_names
from tests.workloads import Case

ROUNDED = 1e-6
"""Half a unit of the last digit that a mean of decimals has, and less: DuckDB's is a double."""


def answers_by_hand(statement: str, case: Case, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a statement over the events of a case and tables of dimensions: window_end, groups and outputs."""
    time = case.stream.time
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("raw", _without_zones(case.events))
        connection.execute(f'CREATE TABLE events AS SELECT *, "{time}" AS t FROM raw WHERE "{time}" IS NOT NULL')
        connection.execute(
            "CREATE TABLE bounds AS SELECT make_timestamp(?) AS since, make_timestamp(?) AS until",
            [case.begin, case.end],
        )
        for macro in split_statements((FOLDER / "macros.sql").read_text()):
            connection.execute(macro.text)
        for name, table in tables.items():
            connection.register(name, _without_zones(table))
        return connection.sql(statement).to_arrow_table()


def differences_by_hand(query: ACQ, ours: pa.Table, theirs: pa.Table) -> list[str]:
    """The differences between our answers and those of a statement, as lines; empty if there are none."""
    groups = column_names(query)[2 : 2 + len(query.group_by)]
    outputs = [output.name for output in query.outputs]
    expected_names = ["window_end", *groups, *outputs]
    if sorted(theirs.column_names) != sorted(expected_names):
        return [f"columns {theirs.column_names}, expected {expected_names}"]
    our_rows, their_rows = (_by_key(table.select(expected_names), 1 + len(groups)) for table in (ours, theirs))
    lines = [f"{key}: answered more than once" for key, rows in our_rows.items() if len(rows) > 1]
    lines += [f"{key}: not expected" for key in our_rows.keys() - their_rows.keys()]
    lines += [f"{key}: missing" for key in their_rows.keys() - our_rows.keys()]
    for key in our_rows.keys() & their_rows.keys():
        for name, value, expected in zip(outputs, our_rows[key][0], their_rows[key][0], strict=True):
            if not _is_same(value, expected):
                lines.append(f"{key}: {name} = {value!r}, expected {expected!r}")
    return lines


def _without_zones(table: pa.Table) -> pa.Table:
    columns = [
        column.cast(pa.int64()).cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _by_key(table: pa.Table, width: int) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    """The rows of a table by their first columns."""
    keyed: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in zip(*(column.to_pylist() for column in _without_zones(table).columns), strict=True):
        keyed.setdefault(row[:width], []).append(row[width:])
    return keyed


def _is_same(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None or isinstance(theirs, str | bool | datetime):
        return bool(ours == theirs) and isinstance(ours, bool) == isinstance(theirs, bool)
    if isinstance(theirs, list):
        return [Decimal(str(item)) for item in json.loads(ours)] == [Decimal(str(item)) for item in theirs]
    if isinstance(ours, float) or isinstance(theirs, float):
        nearness = ROUNDED if isinstance(ours, Decimal) else 1e-9
        return math.isclose(float(ours), float(theirs), rel_tol=1e-9, abs_tol=nearness)
    return bool(ours == theirs)
