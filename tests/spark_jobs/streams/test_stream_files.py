"""What counts as a file of a stream: of every generated folder each event is read exactly once, or its file is named
with a code, or its name is one that docs/sources.md says is skipped."""

from __future__ import annotations

import gzip
import shutil
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import LONG, TIMESTAMP, Source, Stream
from spark_jobs.store.storage import Stored
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import files_of
from spark_jobs.streams.sources.folders import _without_warehouses
from spark_jobs.streams.sources.inspection import inspect
from spark_jobs.streams.sources.ledger import ledger, opened
from spark_jobs.streams.sources.splits import SourceFiles
from tests.sizes import examples
from tests.spark_jobs.streams.sink_log import batch

FORMATS = ("csv", "parquet")
READ = {
    "csv": (".csv", ".CSV", ".tar.csv", ".Csv"),
    "parquet": (".parquet", ".PARQUET", ".snappy.parquet", ".c000.Parquet"),
}
NAMED = {
    "csv": (".csv.xz", ".csv.lz4", "", ".txt", ".csv.bak", "_0", ".parquet", ".csv.1"),
    "parquet": (".parq", ".pq", "", "_0", ".parquet.gz", ".bin", ".csv", ".parquet.old"),
}
SKIPPED = (".tmp", ".TMP", "._COPYING_", ".inprogress", ".crc", ".swp", "~", ".filepart")
FOLDERS = ("", "a/", "day=1/", "_day=2/x/", "b c/é%20/")
HIDDEN = ("_old/", ".git/", "a/_temporary/0/")


class Written(NamedTuple):
    """A file: its name, whether it is to be ``read``, ``named`` or ``skipped``, and the ids of its events."""

    name: str
    fate: str
    ids: tuple[int, ...]


def stream_of(format: str, folder: Path) -> Stream:
    return Stream("trades", Source(format, str(folder)), (("ts", TIMESTAMP), ("id", LONG)), "ts")


def write(path: Path, ids: Sequence[int], format: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    times = pa.array([1_600_000_000_000_000 + number for number in ids], pa.timestamp("us"))
    table = pa.table({"ts": times, "id": pa.array(ids, pa.int64())})
    (pcsv.write_csv if format == "csv" else pq.write_table)(table, str(path))


@st.composite
def folders(draw: st.DrawFn, format: str) -> list[Written]:
    """Files by name, each with events of its own; at least one is read."""
    fates = st.sampled_from(["read", "named", "skipped", "hidden", "in hidden"])
    files, used = (
        [Written(f"{draw(st.sampled_from(FOLDERS))}first{draw(st.sampled_from(READ[format]))}", "read", (0,))],
        1,
    )
    for number, fate in enumerate(draw(st.lists(fates, max_size=8))):
        folder, endings = draw(st.sampled_from(FOLDERS)), READ[format]
        if fate == "named":
            endings = NAMED[format]
        elif fate == "skipped":
            endings = tuple(f".{format}{ending}" for ending in SKIPPED)
        elif fate == "in hidden":
            folder = draw(st.sampled_from(HIDDEN))
        stem = f"{draw(st.sampled_from(['_', '.'])) if fate == 'hidden' else ''}f{number}"
        count = draw(st.integers(0, 3))
        name = f"{folder}{stem}{draw(st.sampled_from(endings))}"
        files.append(Written(name, "skipped" if "hidden" in fate else fate, tuple(range(used, used + count))))
        used += count
    return files


def read(stream: Stream, files: SourceFiles | None = None) -> Counter[int]:
    """The ids of all events that a run reads."""
    files = files_of(stream) if files is None else files
    splits = files.opened(range(len(files.paths)))
    return Counter(
        number for split in splits for batch in read_split(stream, split, ["id"]) for number in batch["id"].to_pylist()
    )


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_file_is_read_named_or_skipped(format: str, data: st.DataObject, tmp_path: Path) -> None:
    root = tmp_path / uuid.uuid4().hex
    written = data.draw(folders(format))
    for file in written:
        write(root / file.name, file.ids, format)
    stream = stream_of(format, root)
    files = files_of(stream)
    assert {str(Path(path).relative_to(root)) for path in files.paths} == {
        file.name for file in written if file.fate == "read"
    }
    assert read(stream, files) == in_duckdb(format, [root / file.name for file in written if file.fate == "read"])
    named_files = sorted(file.name for file in written if file.fate == "named")
    messages = " ".join(warning.message for warning in files.warnings)
    assert [warning.code for warning in files.warnings] == ["HDL-414"] * bool(named_files)
    assert all(name in messages for name in named_files[:3])
    assert not named_files or f"does not read {len(named_files)} file" in messages
    assert [diagnostic for diagnostic in inspect(stream, ["id"]).diagnostics if diagnostic.code == "HDL-414"] == list(
        files.warnings
    )


def in_duckdb(format: str, paths: Sequence[Path]) -> Counter[int]:
    """The ids of the events of some files, as another engine reads them."""
    function = "read_csv" if format == "csv" else "read_parquet"
    more = ", header = true, columns = {'ts': 'TIMESTAMP', 'id': 'BIGINT'}" if format == "csv" else ""
    id_counts: Counter[int] = Counter()
    for path in paths:
        # a star would be a pattern; one file at a time is none
        text = str(path).replace("'", "''")
        rows = duckdb.sql(f"SELECT id FROM {function}('{text}'{more})").fetchall()
        id_counts.update(number for (number,) in rows)
    return id_counts


def test_what_a_folder_without_any_readable_file_holds_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.csv.xz", [1], "csv")
    with pytest.raises(HeddleError, match="HDL-401") as caught:
        files_of(stream_of("csv", tmp_path))
    assert "a.csv.xz" in caught.value.hint


def test_links_to_folders_and_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.csv", [1], "csv")
    write(tmp_path / "else" / "b.csv", [2], "csv")
    (tmp_path / "data" / "year").symlink_to(tmp_path / "else")
    (tmp_path / "data" / "c.csv").symlink_to(tmp_path / "nowhere.csv")
    (tmp_path / "data" / "d.csv").symlink_to(tmp_path / "data" / "d.csv")
    (tmp_path / "data" / "e.csv").symlink_to(tmp_path / "else" / "b.csv")
    files = files_of(stream_of("csv", tmp_path / "data"))
    assert read(stream_of("csv", tmp_path / "data"), files) == Counter([1, 2])
    (warning,) = files.warnings
    assert warning.code == "HDL-414" and "3 links: c.csv, d.csv, year" in warning.message


def test_files_that_come_are_named_although_others_are_known(tmp_path: Path) -> None:
    """A run lists only files that the ledger does not know; those that are not read are named all the same."""
    house, data = Warehouse.open(tmp_path / "house"), tmp_path / "data"
    write(data / "a.csv", [1], "csv")
    write(data / "b.CSV.XZ", [2], "csv")
    files = opened(stream_of("csv", data), ledger(house, "trades"), (0, 1))
    assert [warning.code for warning in files.warnings] == ["HDL-414"]


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie"])
def test_a_table_that_is_read_as_files_is_named(log: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1], "parquet")
    (tmp_path / log).mkdir()
    (warning,) = files_of(stream_of("parquet", tmp_path)).warnings
    assert warning.code == "HDL-417" and warning.severity == "warning"


def test_a_warehouse_below_a_source_is_no_part_of_it(tmp_path: Path) -> None:
    """As in a project whose files lie beside its warehouse."""
    write(tmp_path / "a.parquet", [1], "parquet")
    write(tmp_path / "day" / "b.parquet", [2], "parquet")
    Warehouse.open(tmp_path / "warehouse")
    write(tmp_path / "warehouse" / "results" / "c.parquet", [3], "parquet")
    files = files_of(stream_of("parquet", tmp_path))
    assert read(stream_of("parquet", tmp_path), files) == Counter([1, 2]) and files.warnings == ()
    # a folder that only has a file of that name is one like others
    (tmp_path / "day" / "heddle.json").touch()
    assert read(stream_of("parquet", tmp_path), files_of(stream_of("parquet", tmp_path))) == Counter([1, 2])


def test_a_warehouse_in_a_store_is_no_part_of_the_source_above_it() -> None:
    names = [
        "a.csv",
        "x/b.csv",
        "x/house/heddle.json",
        "x/house/publish_log/_delta_log/0.json",
        "x/house/results/c.csv",
    ]
    names += ["y/heddle.json", "y/d.csv"]
    files = {tuple(name.split("/")): Stored(name, 1, 0) for name in names}
    kept = ["/".join(parts) for parts in _without_warehouses(files)]
    assert kept == ["a.csv", "x/b.csv", "y/heddle.json", "y/d.csv"]


# ------------------------------------------------------------------------------------------ half-written
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(share=st.floats(0, 1, exclude_max=True), rows=st.integers(1, 40))
def test_a_half_written_parquet_file_is_refused_by_name(share: float, rows: int, tmp_path: Path) -> None:
    path = tmp_path / f"{uuid.uuid4().hex}" / "a.parquet"
    write(path, range(rows), "parquet")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(HeddleError, match="HDL-402") as caught:
        read(stream_of("parquet", path.parent))
    assert str(path) in str(caught.value)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(share=st.floats(0, 1), rows=st.integers(1, 40))
def test_a_half_written_csv_file_loses_no_complete_record(share: float, rows: int, tmp_path: Path) -> None:
    """A cut within a record of two fields is refused, or gives a shorter number: CSV has no mark at its end."""
    path = tmp_path / f"{uuid.uuid4().hex}" / "a.csv"
    write(path, range(rows), "csv")
    content = path.read_bytes()[: int(share * path.stat().st_size)]
    path.write_bytes(content)
    try:
        id_counts = read(stream_of("csv", path.parent))
    except HeddleError as error:
        assert error.code in ("HDL-403", "HDL-404", "HDL-421", "HDL-422") and str(path) in str(error)
        return
    assert id_counts.total() >= max(content.count(b"\n") - 1, 0)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (gzip.compress(b"ts,id\n2020-01-01,1\n", mtime=0), "gzip"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd"),
        (b"BZh91AY&SY\x00\x01", "bzip2"),
        (b"\xfd7zXZ\x00\x00", "xz"),
        (b"PK\x03\x04\x14\x00", "zip"),
        (b"PAR1\x15\x04", "Parquet"),
    ],
)
def test_a_csv_file_that_is_compressed_or_of_another_format_is_refused(
    content: bytes, word: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    for path in (tmp_path, tmp_path / "a.csv"):
        with pytest.raises(HeddleError, match=f"HDL-415.*{word}"):
            read(stream_of("csv", path))


def test_a_csv_file_may_begin_with_the_letters_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ORC,ts,id\nx,2020-01-01,1\n")
    assert read(stream_of("csv", tmp_path)) == Counter([1])


# ------------------------------------------------------------------------------------------ commit logs


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(st.lists(st.sampled_from([*"abcdefgh"]), max_size=3), min_size=1, max_size=6),
    more=st.sets(st.sampled_from([*"uvwxyz"]), max_size=3),
    gone=st.sets(st.sampled_from([*"abc"]), max_size=1),
    every=st.integers(2, 4),
    deeper=st.sampled_from(["", "day=1/", "s p%c/"]),
    is_below=st.booleans(),
    is_moved=st.booleans(),
)
def test_only_files_that_a_sink_has_committed_are_read(
    format: str,
    batches: list[list[str]],
    more: set[str],
    gone: set[str],
    every: int,
    deeper: str,
    is_below: bool,
    is_moved: bool,
    tmp_path: Path,
) -> None:
    root = tmp_path / uuid.uuid4().hex
    sink = root / "sink" if is_below else root
    ids = {name: number for number, name in enumerate([*"abcdefghuvwxyz", "beside"])}
    committed = list(dict.fromkeys(name for names in batches for name in names))
    files = {name: f"{deeper}part-{name}.{format}" for name in [*committed, *sorted(more)]}
    for name, file in files.items():
        if name not in gone:
            write(sink / file, [ids[name]], format)
    if is_below:
        write(root / f"beside.{format}", [ids["beside"]], format)
    before, known = "/warehouse/former" if is_moved else "", list[tuple[str, str]]()
    for number, names in enumerate(batches):
        actions = [("add", files[name]) for name in names]
        known += actions
        is_compact = (number + 1) % every == 0
        batch(sink, number, known if is_compact else actions, is_compact, before)
        if is_compact and number > every:
            # Spark removes what a later batch has too
            for old in range(number):
                for path in (sink / "_spark_metadata").glob(f"{old}*"):
                    path.unlink()
    expected = Counter(
        {ids[name]: 1 for name in committed if name not in gone} | ({ids["beside"]: 1} if is_below else {})
    )
    stream = stream_of(format, root)
    if not expected:
        with pytest.raises(HeddleError, match="HDL-401"):
            files_of(stream)
        return
    listed = files_of(stream)
    if is_moved and not any(name not in gone for name in committed):
        return
    assert read(stream, listed) == expected
    assert [warning.code for warning in listed.warnings] == ["HDL-416"] * (bool(more) + bool(gone & set(committed)))


def test_a_partition_of_a_sink_is_read_by_the_log_above_it(tmp_path: Path) -> None:
    for name, number in (("day=1/a", 1), ("day=1/b", 2), ("day=2/c", 3)):
        write(tmp_path / f"{name}.csv", [number], "csv")
    batch(tmp_path, 0, [("add", "day=1/a.csv"), ("add", "day=2/c.csv")])
    stream = stream_of("csv", tmp_path / "day=1")
    assert read(stream) == Counter([1])
    (warning,) = files_of(stream).warnings
    assert "b.csv" in warning.message and "c.csv" not in warning.message


def test_a_deleted_action_takes_a_file_out(tmp_path: Path) -> None:
    for name, number in (("a", 1), ("b", 2)):
        write(tmp_path / f"{name}.csv", [number], "csv")
    batch(tmp_path, 0, [("add", "a.csv"), ("add", "b.csv")])
    batch(tmp_path, 1, [("delete", "b.csv")])
    assert read(stream_of("csv", tmp_path)) == Counter([1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: (log / "0").unlink(),
        lambda log: (log / "0").write_text("v2\n"),
        lambda log: (log / "1").write_text("v1\n{"),
    ],
)
def test_a_log_that_cannot_be_read_is_an_error(damage: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", [1], "csv")
    for number in range(2):
        batch(tmp_path, number, [("add", "a.csv")])
    damage(tmp_path / "_spark_metadata")
    with pytest.raises(HeddleError, match="HDL-416") as caught:
        files_of(stream_of("csv", tmp_path))
    assert "_spark_metadata" in str(caught.value) and caught.value.hint


def test_a_file_that_was_counted_and_is_not_committed_is_gone(tmp_path: Path) -> None:
    """Of a warehouse from before: the ledger knows the file, and no run passes it over."""
    house, data = Warehouse.open(tmp_path / "house"), tmp_path / "data"
    for name, number in (("a", 1), ("b", 2)):
        write(data / f"{name}.csv", [number], "csv")
    stream = stream_of("csv", data)
    from spark_jobs.streams.sources.ledger import admitted

    known = ledger(house, "trades")
    assert admitted(house, stream, known, opened(stream, known, None), 1 << 50, "one") is not None
    batch(data, 0, [("add", "a.csv")])
    known = ledger(house, "trades")
    listed = opened(stream, known, (0, 1))
    assert [
        Path(arrival.path).name for arrival in known.missing(listed.settled, [s.identity for s in listed.splits])
    ] == ["b.csv"]


# ------------------------------------------------------------------------------------------ damaged pages
ENCODINGS: tuple[dict[str, Any], ...] = (
    {"use_dictionary": True},
    {"use_dictionary": False},
    {"use_dictionary": False, "column_encoding": {"ts": "DELTA_BINARY_PACKED", "id": "DELTA_BINARY_PACKED"}},
    {"use_dictionary": False, "column_encoding": {"ts": "BYTE_STREAM_SPLIT", "id": "BYTE_STREAM_SPLIT"}},
    {"use_dictionary": False, "column_encoding": {"ts": "PLAIN", "id": "PLAIN"}},
)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(options=st.sampled_from(ENCODINGS), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_page_with_a_checksum_is_refused(
    compression: str, version: str, options: dict[str, Any], where: float, bit: int, tmp_path: Path
) -> None:
    """Whichever bit of the pages is flipped: the answer is right, or HDL-402 with the file."""
    path = tmp_path / uuid.uuid4().hex / "a.parquet"
    path.parent.mkdir()
    times = pa.array([1_600_000_000_000_000 + 7 * number for number in range(300)], pa.timestamp("us"))
    table = pa.table({"ts": times, "id": pa.array([number % 13 for number in range(300)], pa.int64())})
    pq.write_table(
        table,
        path,
        write_page_checksum=True,
        compression=compression,
        data_page_version=version,
        data_page_size=400,
        **options,
    )
    right = read(stream_of("parquet", path.parent))
    content, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
    first = metadata.row_group(0).column(0)
    begin = min(place for place in (first.dictionary_page_offset, first.data_page_offset) if place is not None)
    end = begin + sum(metadata.row_group(0).column(at).total_compressed_size for at in range(2))
    content[begin + int(where * (end - begin))] ^= 1 << bit
    path.write_bytes(content)
    try:
        id_counts = read(stream_of("parquet", path.parent))
    except HeddleError as error:
        assert error.code in ("HDL-402", "HDL-404") and str(path) in str(error)
        return
    assert id_counts == right


def test_pages_with_fewer_rows_than_the_footer_says_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.parquet", range(10), "parquet")
    real = pq.ParquetFile.read_row_groups
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", lambda *arguments, **more: real(*arguments, **more).slice(1))
    with pytest.raises(HeddleError, match=r"HDL-402.*footer says 10 rows, its pages have 9"):
        read(stream_of("parquet", tmp_path))


def test_a_copy_of_a_folder_reads_the_same(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "here" / f"{number}.csv", [number], "csv")
    batch(tmp_path / "here", 0, [("add", f"{number}.csv") for number in range(2)])
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    assert read(stream_of("csv", tmp_path / "there")) == Counter([0, 1])
