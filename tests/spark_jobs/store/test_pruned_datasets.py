"""A table of which files are passed over by what its log says of them gives the rows that the whole table has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.operations.maintenance import written_as
from spark_jobs.store.warehouse.held_tables import pruned_dataset
from spark_jobs.store.warehouse.schemas import INSTANT
from tests.sizes import examples

SCHEMA = pa.schema([("day", pa.string()), ("at", INSTANT), ("number", pa.int64()), ("name", pa.string())])
LONG = ["b" * 80, "b" * 80 + "a", "é" * 50, "\U0010ffff" * 20]
"""Of which merged files have no more than the beginning as bounds."""

moments = st.one_of(st.none(), st.integers(0, 5000))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "day": st.sampled_from(["2024-01-01", "2024-01-02"]),
            "at": moments,
            "number": st.one_of(st.none(), st.integers(-3, 3)),
            "name": st.one_of(st.none(), st.sampled_from(["", "a", "b" * 40, "é", "number", *LONG])),
        }
    ),
    min_size=1,
    max_size=4,
)
compared = st.sampled_from(["<", "<=", "==", ">", ">=", "null"])
conditions = st.lists(
    st.one_of(
        st.tuples(st.just("at"), compared, st.integers(0, 5000).map(lambda at: pa.scalar(at, INSTANT))),
        st.tuples(st.just("number"), compared, st.integers(-3, 3)),
        st.tuples(st.just("name"), compared, st.sampled_from(["", "a", "b" * 40, "b" * 32, "é", "z", "at", *LONG])),
        st.tuples(st.just("day"), compared, st.sampled_from(["2024-01-01", "2024-01-02", "2023"])),
    ),
    min_size=1,
    max_size=3,
)


def condition(parts: list[tuple[str, str, Any]], is_all: bool) -> ds.Expression:
    combined = None
    for name, kind, value in parts:
        field = ds.field(name)
        by = {"<": field < value, "<=": field <= value, "==": field == value, ">": field > value, ">=": field >= value}
        comparison = field.is_null() if kind == "null" else by[kind]
        combined = comparison if combined is None else (combined & comparison if is_all else combined | comparison)
    assert combined is not None
    return combined


@settings(max_examples=examples(60), deadline=None)
@given(
    files=st.lists(rows, min_size=1, max_size=4),
    parts=conditions,
    is_all=st.booleans(),
    is_not=st.booleans(),
    merged=st.integers(0, 4),
)
def test_what_is_passed_over_has_no_such_row(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[Any],
    parts: list[Any],
    is_all: bool,
    is_not: bool,
    merged: int,
) -> None:
    folder = tmp_path_factory.mktemp("pruned")
    predicate = condition(parts, is_all)
    predicate = ~predicate if is_not else predicate
    for number, content in enumerate(files):
        data = pa.Table.from_pylist(content, SCHEMA)
        write_deltalake(folder, data, mode="append", partition_by=["day"])
        # what is known of files before is used again
        matching_rows = of(folder, predicate) if number % 2 else None
        if number + 1 == merged:
            DeltaTable(folder).optimize.compact(writer_properties=written_as("publish_log"))
    everything = DeltaTable(folder).to_pyarrow_table()
    expected = everything.filter(predicate).select(SCHEMA.names).to_pylist()
    matching_rows = of(folder, predicate)
    assert sorted(map(str, matching_rows)) == sorted(map(str, expected))


def of(folder: Path, where: ds.Expression) -> list[dict[str, Any]]:
    filesystem = pa.fs.SubTreeFileSystem(str(folder), pa.fs.LocalFileSystem())
    rows: list[dict[str, Any]] = (
        pruned_dataset(DeltaTable(folder), filesystem, where).to_table(SCHEMA.names, filter=where).to_pylist()
    )
    return rows


def test_files_are_passed_over(tmp_path: Path) -> None:
    for number in range(4):
        rows = [{"day": f"2024-01-0{1 + number % 2}", "at": 10 * number, "number": number, "name": "ab"[number % 2]}]
        write_deltalake(tmp_path, pa.Table.from_pylist(rows, SCHEMA), mode="append", partition_by=["day"])

    def chosen(predicate: ds.Expression) -> int:
        filesystem = pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())
        return len(list(pruned_dataset(DeltaTable(tmp_path), filesystem, predicate).get_fragments(filter=predicate)))

    assert chosen(ds.field("number") >= 3) == 1
    assert chosen(ds.field("day") == "2024-01-01") == 2
    assert chosen((ds.field("name") == "b") & (ds.field("number") < 2)) == 1
    # a log has milliseconds alone
    assert chosen(ds.field("at") >= pa.scalar(29, INSTANT)) == 4
    assert chosen(ds.field("at") >= pa.scalar(2000, INSTANT)) == 0
