"""What a fixed project stores of each format's files is named as it always was.

A warehouse names its rows by split identities, listings and declaration digests. A change of any of them recomputes
every warehouse, so the texts are written out here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from optimizer.workload.declarations import declaration_digest, time_digest
from optimizer.workload.streams import load_streams
from optimizer.workload.values import Stream, digest
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import files_of, splits_of
from spark_jobs.streams.sources.ledger import admitted, ledger, opened
from spark_jobs.streams.sources.splits import ContentName, Split

JULY = 1_372_636_800_000_000
WRITTEN = 1_700_000_000_123_456_789
"""When the files were written, in nanoseconds."""

EVENTS = pa.table(
    {"ts": pa.array([JULY, JULY + 1_000_000, JULY + 5_000_000], pa.timestamp("us", "UTC")), "x": [1, 2, 3]}
)
CSV = "ts;x\n2013-07-01T00:00:00Z;1\n2013-07-01T00:00:01Z;2\n2013-07-01T00:00:05Z;3\n"

DIGESTS = {
    "csv": ("a868182b821cdf04", "2f2e78a1ca8fa6c3"),
    "csv without a header": ("13982e0aeac174b4", "d9a2f7f9d7a5af4d"),
    "json": ("fe89b0687e4e8cc0", "48b7b034c51f89a5"),
    "json in an object": ("168e6141d6b94503", "e6b5cf6b2a11de2e"),
    "parquet": ("7217a542a157d561", "cfdb4e9998dd9feb"),
    "delta": ("d6740dad9f7fd08f", "656bde8e9c041225"),
    "iceberg": ("30a2009ba3c4f506", "98375414b99464a8"),
}
"""The declaration digests of column ``x`` and of the event times."""


def declared(folder: Path, source: str) -> Stream:
    file = folder / "streams.yaml"
    file.write_text(f"streams: {{s: {{source: {{{source}}}, time: ts, schema: {{ts: timestamp, x: long}}}}}}")
    streams, problems = load_streams(file)
    assert not problems
    return streams["s"]


def written(path: Path, content: str | pa.Table) -> int:
    """Write a file of a fixed time, and return its size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content)
    else:
        pq.write_table(content, path, row_group_size=2)
    os.utime(path, ns=(WRITTEN, WRITTEN))
    return path.stat().st_size


def check(stream: Stream, expected: list[str], format: str) -> list[Split]:
    """Check the identities, digests and names of a stream's files, and return its splits."""
    files = files_of(stream)
    splits = files.opened(range(len(files.paths)))
    assert splits == splits_of(stream)
    assert [split.identity for split in splits] == expected
    listed = files.marks.to_pylist() if isinstance(files.marks, pa.Array) else list(files.marks)
    assert [mark.partition("\n")[0] for mark in listed] == expected
    assert (declaration_digest(stream, ["x"]), time_digest(stream)) == DIGESTS[format]
    end = JULY + 10_000_000
    assert ContentName(splits, ["x"]).of(JULY, end) == f"{digest(sorted(set(expected)))}|{DIGESTS[format][0]}"
    events = [row["x"] for split in splits for batch in read_split(stream, split, ["x"]) for row in batch.to_pylist()]
    assert sorted(events) == sorted([1, 2, 3] * len({split.path for split in splits}))
    return splits


def test_csv_files(tmp_path: Path) -> None:
    size = written(tmp_path / "data" / "b.csv", CSV)
    written(tmp_path / "data" / "day=1" / "a.CSV", CSV)
    stream = declared(tmp_path, "format: csv, path: data, delimiter: ';'")
    splits = check(stream, [f"b.csv|{size}|{WRITTEN}", f"day=1/a.CSV|{size}|{WRITTEN}"], "csv")
    assert [(split.rows, split.begin, split.end) for split in splits] == [(None, None, None)] * 2


def test_csv_files_without_a_header(tmp_path: Path) -> None:
    size = written(tmp_path / "b.csv", CSV.removeprefix("ts;x\n"))
    stream = declared(tmp_path, "format: csv, path: b.csv, delimiter: ';', header: false, 'null': NA")
    check(stream, [f"b.csv|{size}|{WRITTEN}"], "csv without a header")


def test_json_files(tmp_path: Path) -> None:
    lines = (
        '{"ts": "2013-07-01T00:00:00Z", "x": 1}\n{"ts": "2013-07-01T00:00:01Z", "x": 2}\n{"ts": "2013-07-01", "x": 3}\n'
    )
    size = written(tmp_path / "data" / "a.jsonl", lines)
    check(declared(tmp_path, "format: json, path: data"), [f"a.jsonl|{size}|{WRITTEN}"], "json")
    (tmp_path / "data" / "a.jsonl").unlink()
    size = written(tmp_path / "data" / "b.json", f'{{"f": [{lines.strip().replace(chr(10), ",")}]}}')
    check(declared(tmp_path, "format: json, path: data, records: f"), [f"b.json|{size}|{WRITTEN}"], "json in an object")


def test_parquet_files(tmp_path: Path) -> None:
    size = written(tmp_path / "data" / "a.parquet", EVENTS)
    stream = declared(tmp_path, "format: parquet, path: data")
    (split,) = check(stream, [f"a.parquet|{size}|{WRITTEN}"], "parquet")
    assert (split.rows, split.begin, split.end) == (3, JULY, JULY + 5_000_001)


def test_files_of_a_delta_table(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "data", EVENTS)
    write_deltalake(tmp_path / "data", EVENTS, mode="append")
    stream = declared(tmp_path, "format: delta, path: data")
    names = sorted(path.name for path in (tmp_path / "data").glob("*.parquet"))
    table = files_of(stream).table
    splits = check(stream, [f"{table}|{name}" for name in names], "delta")
    assert [(split.rows, split.begin, split.end) for split in splits] == [(3, JULY, JULY + 5_000_001)] * 2


def test_files_of_an_iceberg_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"uri": f"sqlite:///{tmp_path}/catalogue.db", "warehouse": f"file://{tmp_path}/iceberg"}
    for name, value in (settings | {"type": "sql"}).items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    catalogue = SqlCatalog("prod", **settings)
    catalogue.create_namespace("db")
    table = catalogue.create_table("db.t", schema=EVENTS.schema)
    table.append(EVENTS)
    stream = declared(tmp_path, "format: iceberg, table: prod.db.t")
    (task,) = catalogue.load_table("db.t").scan().plan_files()
    check(stream, [f"{table.metadata.table_uuid}|{task.file.file_path}"], "iceberg")


@pytest.mark.parametrize("format", ["csv", "parquet", "delta"])
def test_rows_of_the_ledger(tmp_path: Path, format: str) -> None:
    """What the ledger notes of a file: its listing as its identity, and the span of its events."""
    if format == "delta":
        write_deltalake(tmp_path / "data", EVENTS)
    else:
        written(tmp_path / "data" / f"a.{format}", EVENTS if format == "parquet" else CSV)
    stream = declared(tmp_path, f"format: {format}, path: data" + (", delimiter: ';'" if format == "csv" else ""))
    (split,) = splits_of(stream)
    warehouse = Warehouse.open(tmp_path / "warehouse")
    known = ledger(warehouse, stream)
    assert admitted(warehouse, stream, known, opened(stream, known, None), JULY, "run") is not None
    (row,) = ledger(warehouse, stream).rows.to_pylist()
    assert (row["identity"], row["listed"], row["event"]) == (split.identity, split.identity, "came")
    assert row["declared"] == DIGESTS[format][1]
    begin, end = (ledger(warehouse, stream).rows[name].cast(pa.int64()).to_pylist() for name in ("begin", "end"))
    assert (begin, end) == ([JULY], [JULY + 5_000_001])
