"""Iceberg tables: whatever is appended, deleted, renamed and added, a stream holds what pyiceberg reads then."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan, Table
from pyiceberg.types import LongType
from pyiceberg.utils.config import Config

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.streams import load_streams
from optimizer.workload.values import Stream
from spark_jobs.streams.copies.readers import known_streams
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import splits_of
from tests.sizes import examples
from tests.spark_jobs.laboratory import ARROW, DAY, MINUTE, Laboratory, steady, table_of


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalogue of this test, which its environment describes."""
    settings = {"uri": f"sqlite:///{tmp_path}/catalogue.db", "warehouse": f"file://{tmp_path}/iceberg"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    # it is read once a process
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    sql_catalog = SqlCatalog("prod", **settings)
    sql_catalog.create_namespace("db")
    return sql_catalog


def stream_of(folder: Path, source: str, columns: str = "") -> Stream:
    file = folder / f"{uuid.uuid4().hex}.yaml"
    file.write_text(f"streams: {{trades: {{source: {source}, time: ts{columns}}}}}")
    _, known, problems = known_streams(file)
    if problems:
        raise HeddleError.of(problems[0])
    return known["trades"]


def rows_of(stream: Stream) -> Counter[str]:
    columns = [name for name, _ in stream.schema]
    batches = [batch for split in splits_of(stream) for batch in read_split(stream, split, columns)]
    return Counter(repr(sorted(row.items())) for batch in batches for row in batch.to_pylist())


def rows_in(table: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in table.to_pylist())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9)),
        st.tuples(st.just("delete"), st.integers(0, 12)),
        st.tuples(st.just("rename"), st.sampled_from(["volume", "price"])),
        st.tuples(st.just("add"), st.sampled_from(["extra", "more"])),
        st.tuples(st.just("drop"), st.sampled_from(["price", "symbol"])),
        st.tuples(st.just("overwrite"), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=7,
)


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(steps=STEPS)
def test_a_stream_is_what_the_table_holds(steps: list[tuple[str, Any]], catalogue: Catalog, tmp_path: Path) -> None:
    name = f"db.t{uuid.uuid4().hex}"
    table = catalogue.create_table(name, schema=ARROW)
    table.append(table_of(steady(5)))
    for number, (step, given_) in enumerate(steps):
        columns = {field.name for field in table.schema().fields}
        if step in ("append", "overwrite"):
            rows = table_of(steady(given_, first=10 * number))
            selected = [column for column in rows.column_names if column in columns]
            (table.append if step == "append" else table.overwrite)(rows.select(selected))
        elif step == "delete" and "volume" in columns:
            table.delete(f"volume = {given_}")
        elif step == "add" and given_ not in columns:
            with table.update_schema() as update:
                update.add_column(given_, LongType())
        elif step in ("rename", "drop") and given_ in columns:
            with table.update_schema() as update:
                if step == "drop":
                    update.delete_column(given_)
                else:
                    # by and by a column is called as another one was
                    update.rename_column(given_, f"{given_}_{number}")
        table = catalogue.load_table(name)
        expected = table.scan().to_arrow()
        assert rows_of(stream_of(tmp_path, f"{{format: iceberg, table: prod.{name}}}")) == rows_in(expected), steps


def test_rows_that_delete_files_name_are_left_out(
    catalogue: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalogue.create_table("db.deleted", schema=ARROW)
    table.append(table_of(steady(30)))
    stream = stream_of(tmp_path, "{format: iceberg, table: prod.db.deleted}")
    before = {split.identity for split in splits_of(stream)}
    plan = DataScan.plan_files
    deletes = tmp_path / "deletes.parquet"

    def planned(self: DataScan, *arguments: Any, **more: Any) -> Any:
        for task in plan(self, *arguments, **more):
            paths = [task.file.file_path] * 3 + ["file:///another.parquet"]
            pq.write_table(pa.table({"file_path": paths, "pos": [4, 29, 0, 7]}), deletes)
            kinds = {"content": SimpleNamespace(name=kind), "file_format": SimpleNamespace(name="PARQUET")}
            task.delete_files = {SimpleNamespace(file_path=f"file://{deletes}", **kinds)}
            yield task

    class Hashed(SimpleNamespace):
        __hash__ = object.__hash__  # type: ignore[assignment]

    monkeypatch.setitem(globals(), "SimpleNamespace", Hashed)
    monkeypatch.setattr(DataScan, "plan_files", planned)
    kind = "POSITION_DELETES"
    remaining = [event for number, event in enumerate(steady(30)) if number not in (0, 4, 29)]
    assert rows_of(stream) == rows_in(table_of(remaining))
    # windows are answered again
    assert before.isdisjoint(split.identity for split in splits_of(stream))
    kind = "EQUALITY_DELETES"
    with pytest.raises(HeddleError, match="HDL-405.*deletes by equality"):
        splits_of(stream)


def test_late_rows_and_deletes_are_answered_again(catalogue: Catalog, engine: Any, tmp_path: Path) -> None:
    table = catalogue.create_table("db.live", schema=ARROW)
    laboratory = Laboratory(engine, tmp_path)
    rows = list(steady(120))
    laboratory.write(rows)
    table.append(table_of(rows))
    version = laboratory.plan()
    stream = stream_of(tmp_path, "{format: iceberg, table: prod.db.live}")
    from dataclasses import replace

    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.store.warehouse.plans import load_plan

    plan = load_plan(laboratory.warehouse, version)
    streams = tuple(
        replace(each, source=stream.source) if each.name == "trades" else each for each in plan.workload.streams
    )
    version = publish_plan(laboratory.warehouse, replace(plan, workload=replace(plan.workload, streams=streams)))[0]
    for step in range(3):
        if step == 1:
            table.append(table_of([(33.5, "A", 5.0, 9)]))
            rows.append((33.5, "A", 5.0, 9))
        elif step == 2:
            table.delete("volume = 3")
            rows = [row for row in rows if row[3] != 3]
        laboratory.events["trades"] = table_of(rows)
        laboratory.run(version, 0, 120, f"run {step}", as_of=DAY + 500 * MINUTE)
        assert laboratory.wrong(version, 0, 120) == []


def test_a_table_without_a_catalogue(catalogue: Catalog, tmp_path: Path) -> None:
    table = catalogue.create_table("db.plain", schema=ARROW)
    table.append(table_of(steady(7)))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    folder = metadata.parent.parent
    with pytest.raises(HeddleError, match="HDL-405.*which of its metadata is in force"):
        stream_of(tmp_path, f"{{format: iceberg, path: '{folder}'}}")
    assert rows_of(stream_of(tmp_path, f"{{format: iceberg, path: '{metadata}'}}")) == rows_in(table_of(steady(7)))
    (metadata.parent / "v3.metadata.json").write_bytes(metadata.read_bytes())
    (metadata.parent / "version-hint.text").write_text("3\n")
    assert rows_of(stream_of(tmp_path, f"{{format: iceberg, path: '{folder}'}}")) == rows_in(table_of(steady(7)))
    (metadata.parent / "version-hint.text").write_text("4")
    with pytest.raises(HeddleError, match="HDL-401"):
        stream_of(tmp_path, f"{{format: iceberg, path: '{folder}'}}")


def test_what_is_not_read_is_told(catalogue: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source, code in (
        ("{format: iceberg, table: prod.db.none}", "HDL-401"),
        ("{format: iceberg, table: nowhere.db.t}", "HDL-405"),
        (f"{{format: iceberg, path: {tmp_path / 'none'}}}", "HDL-401"),
    ):
        with pytest.raises(HeddleError) as caught:
            stream_of(tmp_path, source)
        assert caught.value.diagnostic.code == code, caught.value
    diagnostics = load_streams(_file(tmp_path, "{format: iceberg, path: x, table: a.b}"))[1]
    assert [each.code for each in diagnostics] == ["HDL-453"]
    diagnostics = load_streams(_file(tmp_path, "{format: iceberg, table: t}"))[1]
    assert [each.code for each in diagnostics] == ["HDL-457"]
    table: Table = catalogue.create_table("db.ruined", schema=ARROW)
    table.append(table_of(steady(3)))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(content)[:-40])
    with pytest.raises(HeddleError, match="HDL-405.*cannot be opened"):
        stream_of(tmp_path, "{format: iceberg, table: prod.db.ruined}")


def _file(folder: Path, source: str) -> Path:
    file = folder / f"{uuid.uuid4().hex}.yaml"
    file.write_text(f"streams: {{trades: {{source: {source}, time: ts}}}}")
    return file
