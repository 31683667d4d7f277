"""Files that others publish to test readers (tests/fixtures/public): each is read as DuckDB reads it, or named by a
code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream, Type
from spark_jobs.streams.sources.decoding import discover_schema, read_split
from spark_jobs.streams.sources.delta_source import read_log
from spark_jobs.streams.sources.files import splits_of

PUBLIC = Path(__file__).parents[2] / "fixtures" / "public"

TIMES = {
    "alltypes": "timestamp_col",
    "datapage_v1": "a",
    "plain-dict": "long_field",
    "rle-dict": "long_field",
    "delta_encoding": "c_customer_sk",
    "int96": "a",
    "nation": "nation_key",
    "dict-page": "l_partkey",
}
"""By the beginning of a file's name its column of times; integers count seconds."""

REFUSED = {"datapage_v1-corrupt-checksum.parquet", "rle-dict-uncompressed-corrupt-checksum.parquet"}


@pytest.mark.parametrize("path", sorted((PUBLIC / "parquet").glob("*.parquet")), ids=lambda path: path.name)
def test_a_public_parquet_file(path: Path) -> None:
    time = next(name for begin, name in TIMES.items() if path.name.startswith(begin))
    unit = "s" if pq.read_schema(path).field(time).type in ("int32", "int64") else None
    stream, _ = discover_schema(Stream("s", Source("parquet", str(path), time_unit=unit), (), time))
    names = [name for name, type in stream.schema if type in (LONG, STRING) or type.name == "int"]

    def read() -> list[dict[str, object]]:
        batches = [batch for split in splits_of(stream) for batch in read_split(stream, split, names)]
        return [row for batch in batches for row in batch.select([name for name in names if name != time]).to_pylist()]

    if path.name in REFUSED:
        with pytest.raises(HeddleError, match="HDL-402") as caught:
            read()
        assert str(path) in str(caught.value)
        return
    columns = ", ".join(f'"{name}"' for name in names if name != time)
    expected = duckdb.sql(f"SELECT {columns or 1} FROM read_parquet('{path}')").to_arrow_table().to_pylist()
    assert read() == (expected if columns else [{}] * len(expected))


ONE_COLUMN = '{"type":"struct","fields":[{"name":"v","type":"long","nullable":true,"metadata":{}}]}'

FILES = {
    "delete-re-add-same-file-different-transactions": ["bar", "foo"],
    "log-replay-special-characters-b": ["special p@#h"],
}
"""Of golden tables of Delta the files that they have by Delta's own tests; of the others: none."""


@pytest.mark.parametrize("name", sorted(path.name for path in (PUBLIC / "delta").iterdir()))
def test_a_golden_delta_table(name: str, tmp_path: Path) -> None:
    shutil.copytree(PUBLIC / "delta" / name, tmp_path / "table")
    first = tmp_path / "table" / "_delta_log" / f"{0:020}.json"
    # some have no columns, without which delta-rs opens no table
    text = first.read_text()
    if "schemaString" not in text:
        first.write_text(
            text.replace('"partitionColumns"', f'"schemaString":{json.dumps(ONE_COLUMN)},"partitionColumns"')
        )
    types: tuple[tuple[str, Type], ...] = (("ts", TIMESTAMP),)
    files = read_log(Stream("s", Source("delta", str(tmp_path / "table")), types, "ts")).files
    names = [str(Path(file.path).relative_to(tmp_path / "table")) for file in files]
    if name == "log-replay-dv-key-cases":
        (file,) = files
        assert file.deleted is not None and len(file.deleted)
    else:
        assert sorted(names) == FILES.get(name, [])
