"""The audit's own reading of files gives the events that the run's gives: two ways, one answer."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from optimizer.workload.nested import Nested
from optimizer.workload.streams import with_schema
from optimizer.workload.values import TIMESTAMP, Source, Stream
from spark_jobs.audit.unshared.duckdb_files import events_of
from spark_jobs.streams.sources.decoding import read_splits
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.formats.source_format import ReadByRun
from spark_jobs.streams.sources.splits import Split
from tests import workloads
from tests.sizes import examples

HOUR = 3600 * 10**6
BEGIN = 1_372_636_800 * 10**6
SCHEMA = (("ts", TIMESTAMP), *workloads.SCHEMA)
COLUMNS = [name for name, _ in SCHEMA]

TIMES: dict[str, tuple[Any, str | None]] = {
    "microseconds": (lambda column: column, None),
    "naive": (lambda column: column.cast(pa.timestamp("us")), None),
    "nanoseconds": (lambda column: column.cast(pa.timestamp("us")).cast(pa.timestamp("ns"), safe=False), None),
    "milliseconds": (
        lambda column: column.cast(pa.timestamp("ms", "UTC"), safe=False),
        None,
    ),
    "count": (lambda column: column.cast(pa.int64()), "us"),
    "count of nanoseconds": (lambda column: pc.multiply(column.cast(pa.int64()), 1000), "ns"),
    "texts": (lambda column: pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ"), None),
}


def rows(table: pa.Table) -> list[list[str]]:
    """The rows of a table as texts, in an order of their own; times as numbers."""
    columns = [column.cast(pa.int64()) if name == "ts" else column for name, column in zip(COLUMNS, table, strict=True)]
    return sorted(map(list, zip(*(map(str, column.to_pylist()) for column in columns), strict=True)))


def both(stream: Stream, splits: Sequence[Split], spans: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """The events of some spans as the run reads them, and as the audit does."""
    batches = [batch.select(COLUMNS) for batch in read_splits(stream, splits, COLUMNS)]
    table = pa.Table.from_batches(batches, pa.schema([(name, arrow_type(type)) for name, type in SCHEMA]))
    times = pc.fill_null(table["ts"].cast(pa.int64()), -(2**62)).to_numpy()
    inside = np.zeros(len(times), dtype=bool)
    for start, end in spans:
        inside |= (times >= start) & (times < end)
    return rows(table.filter(pa.array(inside))), rows(events_of(stream, splits, COLUMNS, spans))


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Spans that do not overlap, around the events."""
    at = sorted(draw(st.lists(st.integers(-4, 12), min_size=2, max_size=4, unique=True)))
    return [(BEGIN + start * HOUR, BEGIN + other * HOUR) for start, other in zip(at[::2], at[1::2], strict=False)]


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_parquet_is_read_alike(tmp_path: Path, data: st.DataObject) -> None:
    folder = Path(mkdtemp(dir=tmp_path))
    how, unit = TIMES[data.draw(st.sampled_from(sorted(TIMES)))]
    for number in range(data.draw(st.integers(1, 3))):
        table = data.draw(workloads.events(BEGIN, BEGIN + 8 * HOUR, HOUR))
        table = table.set_column(0, "ts", how(table["ts"]))
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=data.draw(st.sampled_from((3, 100))))
    stream = Stream("s", Source("parquet", str(folder), time_unit=unit), SCHEMA, "ts")
    splits = splits_of(stream)
    if data.draw(st.booleans()):
        at = data.draw(st.lists(st.integers(0, 6), max_size=1))
        refused = tuple((BEGIN + hour * HOUR, BEGIN + (hour + 2) * HOUR) for hour in at)
        splits = [replace(split, refused=refused) for split in splits]
    if data.draw(st.booleans()):
        splits = [
            replace(split, deleted=np.array([at for at in range(int(split.rows or 0)) if at % 3 == 1], dtype=np.int64))
            for split in splits
        ]
    ours, audited = both(stream, splits, data.draw(spans()))
    assert audited == ours


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_csv_is_read_alike(tmp_path: Path, data: st.DataObject) -> None:
    folder = Path(mkdtemp(dir=tmp_path))
    delimiter, header = data.draw(st.sampled_from(",;|\t")), data.draw(st.booleans())
    null = data.draw(st.sampled_from(((), ("NA", "-"))))
    table = data.draw(workloads.events(BEGIN, BEGIN + 8 * HOUR, HOUR))
    table = table.set_column(0, "ts", pc.strftime(table["ts"], "%Y-%m-%dT%H:%M:%SZ"))
    table = table.set_column(11, "seen", pc.strftime(table["seen"], "%Y-%m-%d %H:%M:%S"))
    sink = io.BytesIO()
    options = pcsv.WriteOptions(include_header=header, delimiter=delimiter)
    pcsv.write_csv(table, sink, options)
    (folder / "a.csv").write_bytes(sink.getvalue())
    source = Source("csv", str(folder), delimiter=delimiter, header=header, null=null)
    stream = Stream("s", source, SCHEMA, "ts")
    ours, audited = both(stream, splits_of(stream), data.draw(spans()))
    assert audited == ours


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("2013-07-01T01:00:00.123456Z,a,7", True),
        ("2013-07-01T01:00:00.12345+01:00, a ,7", True),
        ('2013-07-01 01:00:00,"a, b",+7', True),
        ('2013-07-01T01:00:00Z,"",  7', True),
        ('2013-07-01T01:00:00Z,"NA",NA', True),
        ("2013-07-01T01:00:00Z,NA,", True),
        ('2013-07-01T01:00:00Z,"two\nlines ""quoted""",7', True),
    ],
)
def test_texts_are_read_alike(tmp_path: Path, text: str, is_read: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"ts,carrier,volume\n{text}\n")
    types = dict(SCHEMA)
    schema = tuple((name, types[name]) for name in ("ts", "carrier", "volume"))
    stream = Stream("s", Source("csv", str(path), null=("NA",)), schema, "ts")
    names = ["ts", "carrier", "volume"]
    ours = pa.Table.from_batches(read_splits(stream, splits_of(stream), names))
    audited = events_of(stream, splits_of(stream), names, [(BEGIN - 24 * HOUR, BEGIN + 24 * HOUR)])
    assert audited.to_pylist() == ours.select(names).to_pylist()


def test_what_is_not_read_here_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a[1].parquet"
    pq.write_table(workloads.arrow_schema().empty_table(), path)
    stream = Stream("s", Source("parquet", str(path)), SCHEMA, "ts")
    with pytest.raises(ReadByRun, match="the name of a file"):
        events_of(stream, splits_of(stream), COLUMNS, [(0, 1)])
    other = replace(stream, source=Source("parquet", "s3://bucket/a.parquet"))
    with pytest.raises(ReadByRun, match="store"):
        events_of(other, [Split("s3://bucket/a.parquet", "")], COLUMNS, [(0, 1)])


def _json_record(row: dict[str, Any]) -> str:
    """A row as a record, its decimals from their digits, with its time and another column inside an object."""
    moments = {name: value.isoformat() for name, value in row.items() if hasattr(value, "isoformat")}
    numbers = {name: f"digits {value:f}" for name, value in row.items() if isinstance(value, Decimal)}
    record = row | moments | numbers
    text = json.dumps({"in": {name: record.pop(name) for name in ("ts", "price")}} | record)
    return re.sub(r'"digits ([^"]*)"', r"\1", text)


@settings(max_examples=examples(16), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_json_is_read_alike(tmp_path: Path, data: st.DataObject) -> None:
    """Lines, arrays, and arrays in objects, compressed and not, of columns inside objects too; or DuckDB says no."""
    folder = Path(mkdtemp(dir=tmp_path))
    table = data.draw(workloads.events(BEGIN, BEGIN + 8 * HOUR, HOUR))
    texts = [_json_record(row) for row in table.to_pylist()]
    if data.draw(st.booleans()):
        texts = [text.replace('"carrier"', '"Carrier"', 1) for text in texts]
    layout = data.draw(st.sampled_from(["lines", "one line", "array", "object"]))
    path = "f" if layout == "object" else None
    joined = {"lines": "\n", "one line": ""}.get(layout, ",").join(texts)
    text = {"array": f"[{joined}]", "object": f'{{"a": [1], "f": [{joined}]}}'}.get(layout, joined).encode()
    ending = data.draw(st.sampled_from(["", ".gz"]))
    (folder / f"a.json{ending}").write_bytes(gzip.compress(text) if ending else text)
    plain = dict(SCHEMA)
    inner = Nested("struct", (("ts", plain.pop("ts")), ("price", plain.pop("price"))))
    source = Source("json", str(folder), records=path)
    stream = with_schema(Stream("s", source, (), "in.ts"), plain, [("in", inner)])
    splits = splits_of(stream)
    columns = ["in.ts", "in.price", *plain]
    chosen = data.draw(spans())
    batches = [batch.select(columns) for batch in read_splits(stream, splits, columns)]
    ours = [row for batch in batches for row in batch.to_pylist() if _is_inside(row["in.ts"], chosen)]
    try:
        audited = events_of(stream, splits, columns, chosen).to_pylist()
    except ReadByRun as error:
        event("read by the run")
        assert str(error) == "a text of another form", error
        assert b'"Carrier"' in text or re.search(rb"[-0-9.]{16}", text), text
        return
    event("read by DuckDB")
    assert sorted(map(str, audited)) == sorted(map(str, ours))


def _is_inside(moment: Any, chosen: Sequence[tuple[int, int]]) -> bool:
    micros = None if moment is None else round(moment.timestamp() * 10**6)
    return micros is not None and any(start <= micros < end for start, end in chosen)
