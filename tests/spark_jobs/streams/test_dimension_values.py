"""Values of dimensions of every type: stored by content, looked up by key, and described."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.attributes import JoinedAttribute
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Dimension, Source, Stream, decimal
from spark_jobs.operations.dimension_profiles import profile_of_dimension
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.dimension_checks import inspect_dimension
from spark_jobs.streams.sources.dimensions import pinned_stream, version_rows
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.files import splits_of

VALUES: dict[str, tuple[Any, list[Any]]] = {
    "a long": (LONG, [1, -5, 7]),
    "a text": (STRING, ["a", "", "ü"]),
    "a date": (DATE, [date(2024, 2, 29), date(1969, 12, 31), date(1, 1, 1)]),
    "a moment": (TIMESTAMP, [datetime(year, 1, 1, tzinfo=UTC) for year in (2024, 1900, 2)]),
    "a truth": (BOOLEAN, [True, False]),
    "a price": (decimal(10, 2), [Decimal("1.50"), Decimal("-2.00"), Decimal("0.00")]),
    "a double": (DOUBLE, [1.5, float("inf"), -0.0]),
}  # fmt: skip


def write(path: Path, types: dict[str, Any], rows: list[dict[str, Any]]) -> Source:
    schema = pa.schema([(name, arrow_type(type)) for name, type in types.items()])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return Source("parquet", str(path))


@pytest.mark.parametrize("name", [name for name in VALUES if name != "a double"])
def test_keys_of_every_type_find_their_rows(name: str, tmp_path: Path) -> None:
    type, values = VALUES[name]
    types = {"key": type} | {column: of for column, (of, _) in VALUES.items()}
    rows = [
        {"key": key} | {column: pool[at % len(pool)] for column, (_, pool) in VALUES.items()}
        for at, key in enumerate(values[:2])
    ]
    rows.append({"key": None})
    dimension = Dimension("d", write(tmp_path / "d.parquet", types, rows), ("key",), tuple(types.items()))
    events = [{"ts": datetime(2024, 1, 1, tzinfo=UTC), "k": key} for key in (*values, None, values[0])]
    columns = {"ts": TIMESTAMP, "k": type}
    source = write(tmp_path / "events.parquet", columns, events)
    stream = Stream("s", source, tuple(columns.items()), "ts", dimensions=(dimension,))
    attributes = {column: JoinedAttribute("d", ("k",), column).name for column in VALUES}
    pinned = pinned_stream(stream, list(attributes.values()))
    (split,) = splits_of(pinned)
    (batch,) = read_split(pinned, split, ["k", *attributes.values()])
    by_key = {row["key"]: row for row in rows[:2]}
    for at, event in enumerate(events):
        expected = by_key.get(event["k"], {}) if event["k"] is not None else {}
        assert [batch.column(shown)[at].as_py() for shown in attributes.values()] == [
            expected.get(column) for column in attributes
        ]


def test_a_profile_counts_all_rows_and_bounds_of_validities(tmp_path: Path) -> None:
    types = {"key": LONG, "since": TIMESTAMP, "until": DATE, "owner": STRING}
    rows = [
        {"key": 1, "since": None, "until": date(2024, 1, 1), "owner": "a"},
        {"key": 1, "since": datetime(2024, 1, 1, tzinfo=UTC), "until": None, "owner": None},
        {"key": None, "since": None, "until": None, "owner": "lost"},
    ]
    source = write(tmp_path / "d.parquet", types, rows)
    dimension = Dimension("d", source, ("key",), tuple(types.items()), valid_from="since", valid_to="until")
    profile = profile_of_dimension(replace(dimension, schema=()), ("q",))
    assert not profile.diagnostics and (profile.rows, profile.files) == (3, 1)
    assert profile.to_json()["first"] == profile.to_json()["last"] == "2024-01-01T00:00:00Z"
    owner = next(column for column in profile.columns if column.name == "owner")
    assert (owner.distinct, round(owner.nulls, 2)) == (2, 0.33)
    # a row without a key matches nothing
    assert inspect_dimension(dimension, ["owner"]).rows == 2


def test_keys_with_several_rows_are_counted_once_each(tmp_path: Path) -> None:
    types = {"a": LONG, "b": STRING, "x": LONG}
    keys = [(1, "u")] * 3 + [(1, "v")] + [(2, "u")] * 2 + [(number, "w") for number in range(3, 12) for _ in range(2)]
    rows = [{"a": a, "b": b, "x": number} for number, (a, b) in enumerate(keys)]
    dimension = Dimension("d", write(tmp_path / "d.parquet", types, rows), ("a", "b"), tuple(types.items()))
    with pytest.raises(HeddleError, match="HDL-462") as refused:
        version_rows(dimension, ["x"])
    message = refused.value.diagnostic.message
    assert (
        "two rows for a = 1, b = 'u': (x: '0') and (x: '1'); so have 2, u; 3, w; 4, w; 5, w; 6, w, … 5 more" in message
    )
    inspection = inspect_dimension(dimension, ["x"])
    assert inspection.rows is None and [each.code for each in inspection.diagnostics] == ["HDL-462"]
