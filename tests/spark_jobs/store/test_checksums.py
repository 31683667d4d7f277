"""Files that are not the ones that were committed: flipped bytes in every page, other files under the same name."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations.file_checks import check_files
from spark_jobs.operations.snapshots import Results
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import checksums
from spark_jobs.store.warehouse.checksums import Checksums, check_bytes, check_committed, check_content
from spark_jobs.store.warehouse.data_files import opened, read_file, write_files
from spark_jobs.store.warehouse.schemas import RESULTS
from spark_jobs.store.warehouse.warehouse import Warehouse, added
from tests.in_process import heddle
from tests.sizes import examples

ENCODINGS = {
    "dictionary": {"use_dictionary": True},
    "plain": {"use_dictionary": False},
    "differences": {
        "use_dictionary": False,
        "column_encoding": {"whole": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "real": "BYTE_STREAM_SPLIT"},
    },
    "lengths": {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY", "flag": "RLE"}},
}


def values(rows: int, seed: int) -> pa.Table:
    chance = random.Random(seed)
    return pa.table(
        {
            "whole": pa.array([chance.choice([None, chance.randrange(1000)]) for _ in range(rows)], pa.int64()),
            "real": [chance.random() for _ in range(rows)],
            "text": [f"group {chance.randrange(9)}" for _ in range(rows)],
            "flag": [chance.random() < 0.5 for _ in range(rows)],
            "several": [[chance.randrange(5)] * chance.randrange(3) for _ in range(rows)],
        }
    )


def put(table: pa.Table, folder: Path, **options: Any) -> Path:
    """A file with its checksums in its name."""
    draft = folder / "draft"
    pq.write_table(table, draft, write_page_checksum=True, data_page_size=256, row_group_size=400, **options)
    return draft.rename(folder / f"part-{'0' * 32}-{Checksums.of_file(draft).suffix}.parquet")


def places_of(path: Path, chance: random.Random) -> list[int]:
    """A byte of every page, and the edges of each column: pages are at most some 300 bytes long."""
    offsets = {0, 3, path.stat().st_size - 1}
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            last = first + chunk.total_compressed_size - 1
            offsets |= {first, last, *(min(last, at + chance.randrange(128)) for at in range(first, last + 1, 128))}
    return sorted(offsets)


@settings(max_examples=examples(8))
@given(
    encoding=st.sampled_from(sorted(ENCODINGS)),
    compression=st.sampled_from(["none", "snappy", "lz4", "zstd", "gzip"]),
    rows=st.integers(1, 900),
    seed=st.integers(0, 9),
)
def test_a_flipped_byte_in_every_page_is_noticed(
    encoding: str, compression: str, rows: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whoever reads the file gets what was written or an error; whoever checks it always gets an error."""
    chance, table = random.Random(seed), values(rows, seed)
    path = put(table, tmp_path_factory.mktemp("pages"), compression=compression, **ENCODINGS[encoding])
    content, size = path.read_bytes(), path.stat().st_size
    check_content(Place(str(path)), size)
    assert read_file(path).equals(table)
    for at in places_of(path, chance):
        damaged = bytearray(content)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(OSError):
            check_content(Place(str(path)), size)
        with pytest.raises(OSError):
            check_bytes(path.name, bytes(damaged))
        try:
            # the magic number at the beginning, and unused bits, decide nothing
            assert read_file(path).equals(table), at
        except HeddleError as error:
            assert error.code == "HDL-543"


def test_files_of_an_earlier_heddle_are_read_and_checked(tmp_path: Path) -> None:
    """Their names have the sum of the footer alone, or none; a damaged page is noticed by its own sum."""
    table = values(500, 1)
    path = put(table, tmp_path)
    footer = path.name.rpartition("-")[2]
    for name in (f"part-{'0' * 32}-{footer}", "part-00000-4984dab8-1d94-4ad6-bec9-dc7f91918eed-c000.snappy.parquet"):
        old = tmp_path / name
        shutil.copy(path, old)
        size = old.stat().st_size
        check_content(Place(str(old)), size)
        assert read_file(old).equals(table) and Checksums.named(name).content is None
        content = bytearray(old.read_bytes())
        content[size // 3] ^= 16
        old.write_bytes(content)
        with pytest.raises(OSError):
            check_content(Place(str(old)), size)
        with pytest.raises(OSError, match="bytes, not"):
            check_content(Place(str(old)), size + 1)


# ------------------------------------------------------------------------------------------------ committed files
def answers(groups: int) -> pa.Table:
    """Rows of results."""
    known: dict[str, Any] = {"query": "q", "stream": "trades", "day": "2013-07-01", "plan_version": 1, "revision": 1}
    columns = []
    for field in RESULTS:
        value = known.get(field.name)
        if field.name == "key":
            columns.append(pa.array([str(number) for number in range(groups)], field.type))
        elif value is not None:
            columns.append(pa.array([value] * groups, field.type))
        elif pa.types.is_timestamp(field.type):
            columns.append(pa.array([1_372_636_800_000_000] * groups, pa.int64()).cast(field.type))
        else:
            columns.append(pa.nulls(groups, field.type))
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in RESULTS]))


@pytest.fixture
def house(tmp_path: Path) -> Warehouse:
    """A warehouse with one file of answers."""
    warehouse = Warehouse.open(tmp_path / "house")
    commit(warehouse, answers(50))
    return warehouse


def commit(warehouse: Warehouse, rows: pa.Table) -> None:
    with warehouse.lease() as token:
        current = warehouse.table("results")
        files = [added(file) for file in write_files(warehouse.path("results"), rows)]
        warehouse.commit("results", current, files, token)


def victim(warehouse: Warehouse) -> Path:
    [file] = warehouse.files("results", "", "9")
    return warehouse.root / "results" / file["path"]


def other_rows(path: Path) -> None:
    pq.write_table(pq.ParquetFile(path).read().slice(1), path, write_page_checksum=True)


def other_rows_of_the_same_size(path: Path) -> None:
    """Another valid file: its footer is padded until it is as long."""
    size, rows, padding = path.stat().st_size, pq.ParquetFile(path).read().slice(25), 1
    for _ in range(9):
        with pq.ParquetWriter(path, rows.schema, compression="gzip", store_schema=False) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata({"padding": "x" * padding})
        padding += size - path.stat().st_size
    assert path.stat().st_size == size


def another_file_before_the_same_footer(path: Path) -> None:
    """Bytes that no page has, where pages are looked for by their places: only the size and the complete sum know."""
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(content[:-length] + b"more" + content[-length:])


SWAPS: list[Callable[[Path], None]] = [other_rows, other_rows_of_the_same_size, another_file_before_the_same_footer]


@pytest.mark.parametrize("swap", SWAPS)
def test_another_file_in_the_place_of_a_committed_one_is_never_read(
    swap: Callable[[Path], None], house: Warehouse
) -> None:
    path, chosen = victim(house), ds.field("query") == "q"
    current = house.table("results")
    readers: list[Callable[[], object]] = [
        lambda: house.dataset("results", where=chosen).to_table(filter=chosen),
        lambda: house.dataset("results").count_rows(),
        lambda: house.checked_dataset("results", current).to_table(),
        lambda: Results(house).rows("2013-07-01", "", ["query"], chosen),
        lambda: opened(path).read(),
        lambda: read_file(path),
    ]
    for reader in readers:
        reader()
    swap(path)
    for reader in readers:
        with pytest.raises((HeddleError, OSError)) as raised:
            reader()
        assert not isinstance(raised.value, HeddleError) or raised.value.code == "HDL-543"
    [damaged] = check_files(house).damaged
    assert damaged.table == "results" and path.name in damaged.reason
    done = heddle("audit", "--files", "--warehouse", str(house.root))
    assert done.code == 1 and "HDL-534" in done.err and "--recompute" in done.err


def test_a_file_that_no_reader_asks_for_is_not_looked_at(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of looking is that of the files that are read, once a process."""
    commit(house, answers(20).set_column(RESULTS.names.index("query"), "query", pa.array(["other"] * 20)))
    looked: list[Place] = []
    real_footer_of = checksums.footer_of
    monkeypatch.setattr(checksums, "_seen", {})
    monkeypatch.setattr(checksums, "footer_of", lambda file: looked.append(file) or real_footer_of(file))
    chosen = ds.field("query") == "other"
    for _ in range(3):
        assert house.dataset("results", where=chosen).to_table(filter=chosen).num_rows == 20
    assert len(looked) == 1


def test_a_file_that_changes_is_looked_at_again(house: Warehouse) -> None:
    path = victim(house)
    place, size = Place(str(path)), path.stat().st_size
    check_committed(place, size)
    content = bytearray(path.read_bytes())
    content[-30] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with pytest.raises(OSError, match="its footer is not what was written"):
        check_committed(place, size)


@pytest.mark.parametrize("length", [4, 8, 9, 40])
def test_a_footer_is_read_at_any_length(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "TAIL", 16)
    footer = bytes(range(length)) + length.to_bytes(4, "little") + b"PAR1"
    for before in (b"", b"pages" * 10):
        assert checksums.footer_of(pa.BufferReader(before + footer)) == footer
    # a length that no footer of the file has
    assert checksums.footer_of(pa.BufferReader(b"\xff\xff\0\0PAR1")) == b"\xff\xff\0\0PAR1"
