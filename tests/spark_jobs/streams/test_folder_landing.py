"""Folders of raw files into Delta tables: each row of each file once, whatever dies, as the json and csv modules read
them."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream
from spark_jobs.streams.landing import folder_table as folder_table_module
from spark_jobs.streams.landing.folder_table import folder_table
from spark_jobs.streams.landing.folders import LandedFolder, RawFolder, land_folder, raw_folder_of
from spark_jobs.streams.sources.decoding import discover_schema, read_splits
from spark_jobs.streams.sources.files import splits_of
from tests.chaos.harness import Died, Failpoint
from tests.sizes import examples

SCHEMA = (("ts", TIMESTAMP), ("name", STRING), ("n", LONG))
OLD = 1_700_000_000
"""Seconds since 1970 at which files were written: long before they are landed."""

FAILPOINTS = [
    Failpoint(folder_table_module, name, after, call)
    for name in ("write_ledger", "append_misfits", "append_rows")
    for call in (1, 2)
    for after in (False, True)
]


class Row(NamedTuple):
    """A row as an oracle reads it: None for one that does not fit."""

    ts: datetime
    name: str | None
    n: int | None


# ------------------------------------------------------------------------------------------- oracles
def typed(ts: Any, name: Any, n: Any) -> Row | None:
    """A row of texts, None for null; None if it does not fit."""
    if ts is None or (name is not None and not isinstance(name, str)):
        return None
    try:
        at = datetime.fromisoformat(ts)
        number = None if n is None else int(n) if re.fullmatch(r"[+-]?\d+", n, re.ASCII) else None
    except (TypeError, ValueError):
        return None
    if n is not None and (number is None or not -(1 << 63) <= number < 1 << 63):
        return None
    return Row(at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC), name, number)


def csv_rows(content: bytes) -> list[Row | None]:
    records = [record for record in csv.reader(io.StringIO(content.decode(), newline="")) if record]
    return [typed(*(text or None for text in record)) if len(record) == len(SCHEMA) else None for record in records[1:]]


def json_rows(content: bytes) -> list[Row | None] | None:
    """None: the file does not consist of records at all."""
    rows, has_object, is_broken = list[Row | None](), False, False
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            is_broken = True
            rows.append(None)
            continue
        has_object = has_object or isinstance(record, dict)
        if not isinstance(record, dict):
            rows.append(None)
            continue
        n = record.get("n")
        if isinstance(n, bool | float | list | dict):
            rows.append(None)
            continue
        rows.append(typed(record.get("ts"), record.get("name"), n if n is None else str(n)))
    return None if is_broken and not has_object else rows


# ------------------------------------------------------------------------------------------- files
GOOD_TIMES = st.sampled_from(["2024-01-01T00:00:00Z", "2024-02-29T23:59:59.5+02:00"])
TIMES = GOOD_TIMES | st.sampled_from(["2024-03-01T01:02:03", "x", "2024-13-01"])
NAMES = st.sampled_from(["a", "ü", "a,b", 'say "x"', "two\nlines", "it's"])
NUMBERS = st.sampled_from(["0", "-7", "9223372036854775807", "9223372036854775808", "1.5", "x", ""])


@st.composite
def csv_files(draw: st.DrawFn) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    writer.writerow([name for name, _ in SCHEMA])
    for kind in draw(st.lists(st.sampled_from(["good", "good", "any", "short", "long"]), max_size=8)):
        row = [draw(GOOD_TIMES if kind == "good" else TIMES), draw(NAMES), "5" if kind == "good" else draw(NUMBERS)]
        writer.writerow(row[:2] if kind == "short" else [*row, "more"] if kind == "long" else row)
    return text.getvalue().encode()


JSON_BAD = st.sampled_from(
    ['{"ts": ', "no json", "5", "null", '{"name": "a"}', '{"ts": 5}', '{"ts": "2024-01-01", "n": [1]}', "\u00fc"]
)
JSON_VALUES = st.sampled_from([0, -7, "12", None, 1 << 63, 1.5, True, "x"])


@st.composite
def json_files(draw: st.DrawFn) -> bytes:
    lines = []
    for kind in draw(st.lists(st.sampled_from(["good", "good", "any", "bad", "empty"]), max_size=8)):
        record = {"ts": draw(GOOD_TIMES), "name": draw(NAMES), "n": 5, "more": {"x": [1]}}
        if kind == "any":
            record |= {"ts": draw(TIMES), "n": draw(JSON_VALUES)}
        lines.append(draw(JSON_BAD) if kind == "bad" else "" if kind == "empty" else json.dumps(record))
    return "\n".join(lines).encode() + draw(st.sampled_from([b"", b"\n"]))


FILES = {
    "csv": (csv_files(), csv_rows, [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)]),
    "json": (json_files(), json_rows, [("", bytes), (".gz", gzip.compress)]),
}


def put(folder: Path, name: str, content: bytes, at: float = OLD) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (at, at))


def rows(folder: Path | str) -> list[dict[str, Any]]:
    return DeltaTable(str(folder)).to_pyarrow_table().to_pylist()


def raw_of(tmp_path: Path, format: str = "json", **options: Any) -> RawFolder:
    (tmp_path / "raw").mkdir(exist_ok=True)
    source = Source(format, str(tmp_path / "raw"), **options)
    return RawFolder(Stream("raw", source, SCHEMA, "ts"), tmp_path / "table")


def check(raw: RawFolder, expected: dict[str, list[Row | None] | None]) -> None:
    """Every row of the files is in one of the tables, once."""
    table = rows(raw.table)
    landed = [((row["landed_file"], row["landed_row"]), Row(row["ts"], row["name"], row["n"])) for row in table]
    good = {
        (name, number): row for name, content in expected.items() for number, row in enumerate(content or [], 1) if row
    }
    assert len(landed) == len(good) and dict(landed) == good
    misfits = rows(f"{raw.table}_quarantine")
    bad = [
        (name, None if content is None else number)
        for name, content in expected.items()
        for number, row in enumerate([None] if content is None else content, 1)
        if row is None
    ]
    assert sorted(((each["file"], each["row"]) for each in misfits), key=str) == sorted(bad, key=str)
    assert all(each["why"] and (each["line"] or each["row"] is None) for each in misfits)


# ------------------------------------------------------------------------------------------- histories
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_row_lands_once_whatever_dies(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("landing")
    format = data.draw(st.sampled_from(sorted(FILES)))
    contents, oracle, codecs = FILES[format]
    raw, expected = raw_of(tmp_path, format), dict[str, list[Row | None] | None]()
    most_files, memory = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 1 << 20]))
    put(raw.path, f"first.{format}", b"")
    expected[f"first.{format}"] = []
    for step in range(data.draw(st.integers(1, 3))):
        for number in range(data.draw(st.integers(0, 3))):
            content, (ending, compress) = data.draw(contents), data.draw(st.sampled_from(codecs))
            name = f"{step}/it's {number}.{format}{ending}"
            put(raw.path, name, compress(content))
            expected[name] = oracle(content)
        point = data.draw(st.none() | st.sampled_from(FAILPOINTS))
        if point is not None:
            try:
                with point.armed():
                    land_folder(raw, most_files=most_files, memory=memory)
            except Died:
                pass
        result = land_folder(raw, most_files=most_files, memory=memory)
        assert not result.waiting and not result.rewritten
        check(raw, expected)
        assert not list((raw.table / "_landed").rglob("*.arrow"))
        if data.draw(st.booleans()) and step:
            (raw.path / f"first.{format}").unlink(missing_ok=True)
        again = land_folder(raw, most_files=most_files)
        assert (again.files, again.commits) == (0, 0)
    _check_read_as_a_stream(raw, expected)


def _check_read_as_a_stream(raw: RawFolder, expected: dict[str, list[Row | None] | None]) -> None:
    """Runs read the table as they would read the rows of the files."""
    landed, _ = discover_schema(Stream("landed", Source("delta", str(raw.table)), (), "ts"))
    assert dict(landed.schema).items() >= dict(SCHEMA).items()
    events = [
        Row(*row.values())
        for batch in read_splits(landed, splits_of(landed), ["name", "n"])
        for row in batch.select(["ts", "name", "n"]).to_pylist()
    ]
    assert sorted(events, key=str) == sorted((row for each in expected.values() for row in each or [] if row), key=str)


# ------------------------------------------------------------------------------------------- formats
GOOD = '{"ts": "2024-01-01", "name": "a", "n": 1}'


def landed_of(tmp_path: Path, files: dict[str, bytes | str], **options: Any) -> tuple[RawFolder, LandedFolder]:
    raw = raw_of(tmp_path, **options)
    for name, content in files.items():
        put(raw.path, name, content.encode() if isinstance(content, str) else content)
    return raw, land_folder(raw)


def whys(raw: RawFolder) -> list[tuple[str, int | None, int | None, str]]:
    misfits = rows(f"{raw.table}_quarantine")
    return sorted((each["file"], each["line"], each["row"], each["why"].split()[0]) for each in misfits)


def test_layouts_of_json(tmp_path: Path) -> None:
    pretty = json.dumps(json.loads(GOOD), indent=2)
    raw, landed = landed_of(
        tmp_path,
        {
            "array.json": f'[{GOOD}, 5, {{"ts": "x"}},\n {GOOD}]',
            "cut.json": f"[{GOOD}, {GOOD}",
            "pretty.json": f'{pretty}\n{{"n": 1}}\n{pretty}',
            "pretty-cut.json": f"{pretty}\n{{\n{pretty}",
            "several.jsonl": f"{GOOD} {GOOD}\n{GOOD} x\n[{GOOD}, 1]\n {GOOD}",
            "utf8.jsonl": b'{"ts": "2024-01-01", "name": "\xff"}\n' + GOOD.encode(),
            "surrogate.jsonl": '{"ts": "2024-01-01", "name": "\\ud800"}\n' + GOOD,
            "twice.jsonl": '{"ts": "2024-01-01", "n": 1, "n": 2}\n' + GOOD,
            "parquet.json": b"PAR1\0\0\1\2",
            "wide.json": GOOD.encode("utf-16"),
            "cut.json.gz": gzip.compress(GOOD.encode() * 1000)[:-9],
        },
    )
    assert whys(raw) == [
        ("array.json", 1, 2, "HDL-481"),
        ("array.json", 1, 3, "HDL-404"),
        ("cut.json", None, None, "HDL-481"),
        ("cut.json.gz", None, None, "HDL-402"),
        ("parquet.json", None, None, "HDL-415"),
        ("pretty-cut.json", None, None, "HDL-481"),
        ("pretty.json", 6, 2, "HDL-410"),
        ("several.jsonl", 2, 3, "HDL-481"),
        ("several.jsonl", 3, 5, "HDL-481"),
        ("several.jsonl", 4, 6, "HDL-481"),
        ("surrogate.jsonl", 1, 1, "HDL-404"),
        ("twice.jsonl", 1, 1, "HDL-456"),
        ("utf8.jsonl", 1, 1, "HDL-420"),
        ("wide.json", None, None, "HDL-420"),
    ]
    assert set(landed.unreadable) == {"cut.json", "cut.json.gz", "parquet.json", "pretty-cut.json", "wide.json"}
    assert (landed.landed, landed.quarantined, len(rows(raw.table))) == (10, 14, 10)


def test_options_of_a_csv_source_and_files_that_are_none(tmp_path: Path) -> None:
    raw, landed = landed_of(
        tmp_path,
        {
            "a.csv": 'n;ts;name\n1;2024-01-01;"a;b"\nNA;2024-01-01;x\n2;2024-01-01;"open\n3;2024-01-01;y\n',
            "utf8.csv": b"ts;name;n\n2024-01-01;\xff;1\n2024-01-01;a;x\n2024-01-01;a;2\n",
            "header.csv": "ts;n\n2024-01-01;1\n",
            "empty.csv": "",
            ".hidden.csv": "x",
            "half.csv.tmp": "x",
            "day=1/_temporary/x.csv": "x",
        },
        format="csv",
        delimiter=";",
        null=("NA",),
    )
    assert sorted((row["n"] or 0, row["name"]) for row in rows(raw.table)) == [(0, "x"), (1, "a;b"), (2, "a")]
    assert whys(raw) == [
        ("a.csv", 4, 3, "HDL-422"),
        ("header.csv", None, None, "HDL-403"),
        ("utf8.csv", 2, 1, "HDL-420"),
        ("utf8.csv", 3, 2, "HDL-404"),
    ]
    assert landed.files == 4 and landed.unreadable == ("header.csv",)


STREAMS = """
streams:
  quakes:
    source: {format: json, path: quakes, records: features, time_unit: ms}
    time: properties.time
    schema: {id: string, properties: 'struct<mag: double, place: struct<name: string>, time: long>'}
  shop:
    source: {format: csv, path: shop, partitions: {day: date}}
    time: ts
    schema: {ts: timestamp, n: int, day: date}
  shop_landed:
    source: {format: delta, path: data/shop}
    time: ts
  tags:
    source: {format: json, path: tags}
    time: ts
    schema: {ts: timestamp, tags: array<string>}
  reserved:
    source: {format: json, path: reserved}
    time: ts
    schema: {ts: timestamp, landed_row: long}
"""


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    path = tmp_path / "streams.yaml"
    path.write_text(STREAMS)
    return path


def test_nested_columns_and_columns_in_the_names_of_folders(tmp_path: Path, streams: Path) -> None:
    quakes = [
        {"id": "a", "properties": {"mag": 1.5, "place": {"name": "Köln"}, "time": 1_700_000_000_000}},
        {"id": "b", "properties": {"mag": "x", "time": 1_700_000_000_000}},
        {"id": "c", "properties": {"time": 1_700_000_000_001}},
    ]
    put(tmp_path / "quakes", "q.geojson", json.dumps({"type": "x", "features": quakes}).encode())
    raw = raw_folder_of(tmp_path / "quakes", streams, table=tmp_path / "data" / "quakes")
    assert land_folder(raw).quarantined == 1
    landed = {row["id"]: row["properties"] for row in rows(raw.table)}
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert landed["a"] == {"mag": 1.5, "place": {"name": "Köln"}, "time": at}
    assert landed["c"] == {"mag": None, "place": {"name": None}, "time": at.replace(microsecond=1000)}
    put(tmp_path / "shop", "day=2024-01-01/a.csv", b"ts,n\n2024-01-01,1\n2024-01-01,x\n2024-01-01,9999999999\n")
    raw = raw_folder_of(tmp_path / "shop", streams, "shop_landed")
    assert raw.table == tmp_path / "data" / "shop" and land_folder(raw).quarantined == 2
    assert [(row["n"], str(row["day"])) for row in rows(raw.table)] == [(1, "2024-01-01")]
    put(tmp_path / "shop", "day=2024-01-02/b.csv", b"ts,n,day\n2024-01-01,1,2024-01-03\n2024-01-01,2,\n")
    assert land_folder(raw).quarantined == 1 and whys(raw)[-1] == ("day=2024-01-02/b.csv", 2, 1, "HDL-487")
    assert sorted((row["n"], str(row["day"])) for row in rows(raw.table))[1:] == [(2, "2024-01-02")]


def refused(code: str, call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    with pytest.raises(HeddleError) as caught:
        call(*arguments, **named)
    assert caught.value.code == code
    return caught.value.diagnostic.message


def test_what_cannot_be_landed(tmp_path: Path, streams: Path) -> None:
    for name in ("tags", "reserved", "other", "shop"):
        put(tmp_path / name, "a.json", b"{}")
    to = tmp_path / "data" / "t"
    assert "there is no folder" in refused("HDL-474", raw_folder_of, tmp_path / "none", streams, table=to)
    assert "no stream of" in refused("HDL-474", raw_folder_of, tmp_path / "other", streams, table=to)
    assert "declares no stream" in refused("HDL-474", raw_folder_of, tmp_path / "other", streams, "x", to)
    assert "nothing says" in refused("HDL-474", raw_folder_of, tmp_path / "shop", streams)
    for place in ("s3://bucket/x", tmp_path / "shop" / "t", tmp_path, tmp_path / "a%20b", "/etc/x"):
        refused("HDL-474", raw_folder_of, tmp_path / "shop", streams, table=place)
    for name in ("tags", "reserved"):
        refused("HDL-474", land_folder, raw_folder_of(tmp_path / name, streams, table=to))
    assert not to.exists()


# ----------------------------------------------------------------------------------- files that change
def test_a_file_that_changes_after_landing_lands_again_only_on_request(tmp_path: Path) -> None:
    raw, _ = landed_of(tmp_path, {"a's.json": f"{GOOD}\nbad\n{GOOD}", "b.json": f"{GOOD}\nx"})
    path = raw.path / "a's.json"
    os.utime(path, (OLD + 5, OLD + 5))
    assert land_folder(raw).is_complete
    put(raw.path, path.name, f"{GOOD}\nworse\n{GOOD[:-2]}2}}\n{GOOD}".encode(), OLD + 9)
    landed = land_folder(raw)
    assert (landed.files, landed.rewritten) == (0, ("a's.json",)) and landed.diagnostics[0].code == "HDL-471"
    refused("HDL-474", land_folder, RawFolder(raw.stream, raw.table, ("c.json",)))
    again = RawFolder(raw.stream, raw.table, ("a's.json",))
    for point in FAILPOINTS:
        try:
            with point.armed():
                land_folder(again)
        except Died:
            pass
    put(raw.path, "new.json", GOOD.encode())
    landed = land_folder(again)
    assert (landed.files, landed.landed, landed.quarantined, landed.commits) == (2, 4, 1, 2)
    landed_rows = sorted((row["landed_file"], row["landed_row"], row["n"]) for row in rows(raw.table))
    assert landed_rows == [
        ("a's.json", 1, 1),
        ("a's.json", 3, 2),
        ("a's.json", 4, 1),
        ("b.json", 1, 1),
        ("new.json", 1, 1),
    ]
    assert sorted((each["file"], each["value"]) for each in rows(f"{raw.table}_quarantine")) == [
        ("a's.json", b"worse"),
        ("b.json", b"x"),
    ]


def test_a_file_that_is_being_written_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    raw = raw_of(tmp_path)
    now = time.time()
    put(raw.path, "half.json", f'{GOOD}\n{{"ts": "20'.encode(), now)
    put(raw.path, "half.json.gz", gzip.compress(GOOD.encode() * 99)[:-9], now)
    put(raw.path, "bad.json", f"{GOOD}\nx\n".encode(), now)
    landed = land_folder(raw)
    assert [name for name, _ in landed.waiting] == ["half.json", "half.json.gz"] and landed.files == 1
    assert not landed.is_complete and [each.code for each in landed.diagnostics] == ["HDL-472", "HDL-473"]
    put(raw.path, "half.json", f"{GOOD}\n{GOOD}".encode(), now)
    put(raw.path, "half.json.gz", gzip.compress(GOOD.encode() * 99)[:-9])
    landed = land_folder(raw)
    assert (landed.files, landed.landed, landed.unreadable) == (2, 2, ("half.json.gz",))


# ------------------------------------------------------------------------------------------- tables
def test_one_process_at_a_time_and_a_ledger_without_gaps(tmp_path: Path) -> None:
    raw, _ = landed_of(tmp_path, {"a.json": GOOD})
    schema = pa.schema(DeltaTable(str(raw.table)).schema().to_arrow())
    with folder_table(raw.table, schema):
        assert "another process" in refused("HDL-627", land_folder, raw)
    (entry,) = (raw.table / "_landed" / "batches").iterdir()
    content = entry.read_text()
    entry.write_text("[")
    refused("HDL-627", land_folder, raw)
    entry.unlink()
    assert "lacks 1 of 1 batches" in refused("HDL-627", land_folder, raw)
    entry.write_text(content)
    assert land_folder(raw).is_complete
    other = RawFolder(Stream("raw", raw.stream.source, SCHEMA[:2], "ts"), raw.table)
    assert "other columns" in refused("HDL-627", land_folder, other)


def test_the_ledger_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_table_module, "MERGED", 2)
    raw = raw_of(tmp_path)
    for number in range(7):
        put(raw.path, f"{number}.json", GOOD.encode())
        assert land_folder(raw).files == 1
        assert len(list((raw.table / "_landed" / "batches").iterdir())) <= 4
    assert land_folder(raw).files == 0 and len(rows(raw.table)) == 7
    next((raw.table / "_landed" / "batches").glob("to-*")).unlink()
    refused("HDL-627", land_folder, raw)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.spark_jobs.streams import test_folder_landing as t
plain = getattr(t.folder_table_module, sys.argv[2])
def dying(*arguments):
    plain(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(t.folder_table_module, sys.argv[2], dying)
t.land_folder(t.raw_of(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("point", ["append_misfits", "append_rows"])
def test_a_killed_process_is_continued(tmp_path: Path, point: str) -> None:
    raw = raw_of(tmp_path)
    put(raw.path, "a.json", f"{GOOD}\nbad\n".encode())
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), point], check=False)
    assert done.returncode == -signal.SIGKILL
    landed = land_folder(raw)
    assert landed.files == (1 if point == "append_misfits" else 0)
    check(raw, {"a.json": json_rows(f"{GOOD}\nbad\n".encode())})


def test_the_command(tmp_path: Path, streams: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["land", *arguments, "--streams", str(streams)])
        return done.exit_code, done.output

    put(tmp_path / "shop", "day=2024-01-01/a.csv", b"ts,n\n2024-01-01,1\n")
    assert run("shop", "--stream", "shop_landed")[0] == 0
    put(tmp_path / "shop", "day=2024-01-02/b.csv", b"ts,n\n2024-01-02,x\n")
    code, output = run("shop", "--to", "data/shop", "--json")
    report = json.loads(output[output.index("{\n") : output.rindex("}") + 1])
    assert code == 1 and (report["files"], report["quarantined"]) == (1, 1) and "HDL-472" in output
    put(tmp_path / "shop", "day=2024-01-02/b.csv", b"ts,n\n2024-01-02,7\n", OLD + 1)
    assert run("shop", "--to", "data/shop")[0] == 1
    code, output = run("shop", "--to", "data/shop", "--again", "shop/day=2024-01-02/b.csv")
    assert code == 0 and not rows(tmp_path / "data" / "shop_quarantine")
    assert pc.sum(DeltaTable(str(tmp_path / "data" / "shop")).to_pyarrow_table()["n"]).as_py() == 8
    assert run("none", "--to", "data/shop")[0] == 2
    assert run("shop", "--to", "data/shop", "--checkpoint", "x")[0] == 2
    assert run("trades", "--servers", "h:1", "--again", "x")[0] == 2
