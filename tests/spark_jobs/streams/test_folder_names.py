"""What is proposed for folders whose names are columns, and that every command reads it alike."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.streams import load_streams
from optimizer.workload.values import DATE, LONG, STRING, TIMESTAMP, Partition
from spark_jobs.operations.project import streams_text
from spark_jobs.streams.sources.decoding import discover_schema, read_splits
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import inspect
from spark_jobs.streams.sources.proposals import Proposal, look, propose, time_of


def proposed(path: Path) -> Proposal:
    data = look(path)
    return propose(data, time_of(data))


def days(root: Path, name: str, ending: str, **columns: Any) -> None:
    """Two events in a file of each of three days."""
    for day in (29, 30, 31):
        folder = root / name.format(day=dt.date(2024, 1, day))
        folder.mkdir(parents=True)
        ts = [dt.datetime(2024, 1, day, hour) for hour in (5, 17)]
        table = pa.table({"ts": ts, "x": [1, 2]} | {key: [value] * 2 for key, value in columns.items()})
        pq.write_table(table, folder / f"part-0{ending}")


def test_columns_and_files_are_proposed_and_read_as_they_are_written(tmp_path: Path) -> None:
    days(tmp_path / "lake", "day={day}/region=a%20b", ".parq")
    (tmp_path / "lake" / "_SUCCESS").touch()
    proposal = proposed(tmp_path / "lake")
    source = proposal.stream.source
    assert source.files == "*.parq" and source.partitions == (Partition("day"), Partition("region"))
    assert dict(proposal.stream.schema) == {"ts": TIMESTAMP, "x": LONG, "day": DATE, "region": STRING}
    assert proposal.rows == 6 and proposal.time.name == "ts"
    assert any("partitions: {day: exact, region: auto}" in note for note in proposal.notes)
    text = streams_text([proposal], tmp_path)
    for words in ("partitions: [day, region]", "partitions: {day: exact, region: auto}"):
        (tmp_path / "streams.yaml").write_text(text.replace("partitions: [day, region]", words))
        streams, diagnostics = load_streams(tmp_path / "streams.yaml")
        assert diagnostics == ()
        stream, _ = discover_schema(streams["lake"])
        assert stream.schema == proposal.stream.schema
        assert inspect(stream, ["day", "region"]).diagnostics == ()
        rows = pa.Table.from_batches(read_splits(stream, splits_of(stream), ["day", "region"])).to_pylist()
        assert {(row["ts"].date(), row["region"]) for row in rows} == {(row["day"], "a b") for row in rows}


def test_folders_of_dates_are_hinted_at(tmp_path: Path) -> None:
    for day in (30, 31):
        folder = tmp_path / "logs" / f"2024/01/{day}"
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text(f"ts,x\n2024-01-{day}T05:00:00,1\n")
    proposal = proposed(tmp_path / "logs")
    assert proposal.stream.source.partitions == () and [name for name, _ in proposal.stream.schema] == ["ts", "x"]
    assert any("/{year}/{month}/{day} behind the path" in note for note in proposal.notes)
    streams = {"logs": {"source": {"format": "csv", "path": "logs/{year}/{month}/{day}", "partitions": "exact"}}}
    streams["logs"] |= {"time": "ts", "schema": {"ts": "timestamp", "x": "long", "day": "int"}}  # type: ignore[dict-item]
    (tmp_path / "streams.yaml").write_text(yaml.safe_dump({"streams": streams}))
    stream = load_streams(tmp_path / "streams.yaml")[0]["logs"]
    rows = pa.Table.from_batches(read_splits(stream, splits_of(stream), ["day"])).to_pylist()
    assert [(row["ts"].day, row["day"]) for row in rows] == [(30, 30), (31, 31)]


def test_the_date_of_a_folder_is_the_time_of_files_without_one(tmp_path: Path) -> None:
    for day in (30, 31):
        folder = tmp_path / "daily" / f"dt=2024-01-{day}"
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text("product,n\na,1\nb,2\n")
    proposal = proposed(tmp_path / "daily")
    assert proposal.time.name == "dt" and dict(proposal.stream.schema)["dt"] == TIMESTAMP
    assert str(proposal.inspection).endswith("from 2024-01-30T00:00:00Z to 2024-01-31T00:00:00Z")


def test_a_column_of_the_files_stays_theirs(tmp_path: Path) -> None:
    days(tmp_path / "lake", "day={day}/region=eu", ".parquet", region="us")
    proposal = proposed(tmp_path / "lake")
    assert [partition.name for partition in proposal.stream.source.partitions] == ["day"]
    assert any(note.startswith("region: in the files and in the names of folders") for note in proposal.notes)


def test_what_only_some_files_have_is_no_column(tmp_path: Path) -> None:
    days(tmp_path / "lake", "day={day}", ".parquet")
    days(tmp_path / "lake" / "old", "day={day}/n=1", ".parquet")
    proposal = proposed(tmp_path / "lake")
    assert [partition.name for partition in proposal.stream.source.partitions] == ["day"]
    assert any(note.startswith("some folders are named by n") for note in proposal.notes)


def test_files_without_an_ending_are_recognised_by_their_beginning(tmp_path: Path) -> None:
    days(tmp_path / "hive", "day={day}", "_0")
    assert proposed(tmp_path / "hive").stream.source.files == "*"
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "notes.doc").write_text("no data")
    with pytest.raises(HeddleError, match="HDL-134"):
        look(tmp_path / "text")
