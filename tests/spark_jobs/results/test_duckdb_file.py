"""A DuckDB file of views: the newest answers for every reader of such a file, without an extension."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import assume, given, settings

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.results.duckdb_file import COMMITTED, write_duckdb_file
from spark_jobs.store.warehouse.data_files import now_millis, write_files
from spark_jobs.store.warehouse.schemas import RESULTS
from spark_jobs.store.warehouse.warehouse import added
from tests.in_process import heddle
from tests.sizes import examples
from tests.spark_jobs.results.stored import BY_TEXT, WHOLE, Stored, row, same, store, worlds

APART = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def opened(path: Path) -> duckdb.DuckDBPyConnection:
    """A connection as a BI tool has one: to the file, read-only, without the network."""
    connection = duckdb.connect(str(path), read_only=True, config=APART)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def published(stored: Stored, rows: Sequence[dict[str, Any]], replaced: bool = False) -> None:
    """Publish rows in one commit; with ``replaced`` in the place of all files that are there."""
    from deltalake.transaction import RemoveAction

    from tests.spark_jobs.results.stored import _stored

    house = stored.warehouse
    table = pa.Table.from_pylist([_stored(each, 1) for each in rows], RESULTS)
    with house.lease() as token:
        current = house.table("results")
        actions: list[Any] = [added(file) for file in write_files(house.path("results"), table)]
        for file in house.files("results", "", "9", current) if replaced else ():
            actions.append(RemoveAction(file["path"], True, now_millis(), file["size"], {"day": file["day"]}))
        house.commit("results", current, actions, token)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return store(tmp_path / "w", [([BY_TEXT, WHOLE], [row(BY_TEXT, n, n, "A") for n in range(3)])])


COUNT = 'SELECT count(*), max(n) FROM "by.text"'


@given(steps=worlds())
@settings(max_examples=examples(10))
def test_the_file_has_the_rows_that_every_reader_finds(steps: Any) -> None:
    with TemporaryDirectory() as folder:
        stored, path = store(Path(folder) / "w", steps), Path(folder) / "house.duckdb"
        assume(stored.rows)
        assert write_duckdb_file(stored.warehouse, path) == ["Other.query-1", "q"]
        with opened(path) as connection:
            for name in ("q", "Other.query-1"):
                same(connection.sql(f'SELECT * FROM "{name}"').to_arrow_table(), stored.expected(name))


def test_new_answers_and_revisions_are_seen_without_another_file(stored: Stored, tmp_path: Path) -> None:
    path = tmp_path / "house.duckdb"
    write_duckdb_file(stored.warehouse, path)
    with opened(path) as connection:
        assert connection.sql(COUNT).fetchall() == [(3, 2)]
        published(stored, [row(BY_TEXT, 30, 9, "B")])
        assert connection.sql(COUNT).fetchall() == [(4, 9)]
        published(stored, [row(BY_TEXT, 30, 10, "B")], replaced=True)
        assert connection.sql(COUNT).fetchall() == [(1, 10)]
        stored.warehouse.table("results").create_checkpoint()
        assert connection.sql(COUNT).fetchall() == [(1, 10)]
        published(stored, [row(BY_TEXT, 31, 11, "B")])
        assert connection.sql(COUNT).fetchall() == [(2, 11)]


def test_files_that_no_commit_names_are_not_seen(stored: Stored, tmp_path: Path) -> None:
    path, day = tmp_path / "house.duckdb", "day=2013-07-01"
    write_duckdb_file(stored.warehouse, path)
    folder = Path(stored.warehouse.path("results"))
    (file,) = (folder / day).glob("*.parquet")
    (folder / day / "part-00-staged.parquet").write_bytes(file.read_bytes())
    (folder / day / "part-0123456789abcdef.parquet").write_bytes(b"PAR1 half of a fi")
    with opened(path) as connection:
        assert connection.sql(COUNT).fetchall() == [(3, 2)]


class Listing(LocalFileSystem):
    """Local files as ``listed:///…``; notes which patterns are listed."""

    protocol = "listed"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.patterns: list[str] = []

    def glob(self, path: str, **options: Any) -> Any:
        self.patterns.append(path.rpartition("/")[2])
        return super().glob(path.removeprefix("listed://"), **options)


def test_data_files_are_listed_after_the_log_that_names_them(stored: Stored, tmp_path: Path) -> None:
    """Listed before, files of a publication in between would be missing, and those that it replaced be gone."""
    write_duckdb_file(stored.warehouse, tmp_path / "house.duckdb")
    with opened(tmp_path / "house.duckdb") as connection:
        ((text,),) = connection.sql("SELECT sql FROM duckdb_views() WHERE schema_name = 'heddle'").fetchall()
    files, root = Listing(), str(tmp_path)
    with duckdb.connect(config=APART) as connection:
        connection.register_filesystem(files)
        rows = text.partition(" AS ")[2].rstrip(";").replace(f"'{root}", f"'listed://{root}")
        assert connection.execute(f"SELECT count(*) FROM ({rows})").fetchall() == [(3,)]
    assert sorted(files.patterns[:-1]) == ["*.checkpoint.parquet", "*.json"] and files.patterns[-1] == COMMITTED


def test_a_reader_keeps_the_file_that_is_replaced(stored: Stored, tmp_path: Path) -> None:
    """In another process: DuckDB shares what one process has open."""
    path = tmp_path / "house.duckdb"
    write_duckdb_file(stored.warehouse, path, ["by.text"])
    text = f"""
import duckdb
connection = duckdb.connect({str(path)!r}, read_only=True)
print(connection.sql("SHOW TABLES").fetchall(), flush=True)
input()
print(connection.sql("SHOW TABLES").fetchall(), connection.sql('{COUNT}').fetchall(), flush=True)
"""
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None and reader.stdout.readline() == "[('by.text',)]\n"
        write_duckdb_file(stored.warehouse, path)
        out, _ = reader.communicate("\n")
    assert out == "[('by.text',)] [(3, 2)]\n"
    with opened(path) as connection:
        assert connection.sql("SHOW TABLES").fetchall() == [("by.text",), ("whole",)]
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["house.duckdb"]


def test_the_command_says_what_renews_the_file(stored: Stored, tmp_path: Path) -> None:
    house, path = ["--warehouse", str(tmp_path / "w")], tmp_path / "house.duckdb"
    said = heddle("views", *house, "--output", str(path))
    assert said.code == 0 and "wrote 2 views" in said.err and "Write it again after a new plan version" in said.err
    assert heddle("views", *house, "--output", str(path), "--dialect", "spark").code == 2
    assert heddle("views", "nope", *house, "--output", str(path)).code != 0


def test_other_files_are_not_replaced(stored: Stored, tmp_path: Path) -> None:
    path = tmp_path / "house.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE precious AS SELECT 1 AS x")
    for before in (path.read_bytes(), b"no database"):
        path.write_bytes(before)
        with pytest.raises(HeddleError, match="HDL-643"):
            write_duckdb_file(stored.warehouse, path)
        assert path.read_bytes() == before


def test_a_folder_with_signs_of_patterns_is_refused(tmp_path: Path) -> None:
    stored = store(tmp_path / "w*", [([WHOLE], [row(WHOLE, 1, 1)])])
    with pytest.raises(HeddleError, match="HDL-642"):
        write_duckdb_file(stored.warehouse, tmp_path / "house.duckdb")


def test_a_quote_in_a_path_is_a_quote(tmp_path: Path) -> None:
    stored = store(tmp_path / "it's", [([WHOLE], [row(WHOLE, 1, 7)])])
    write_duckdb_file(stored.warehouse, tmp_path / "house.duckdb")
    with opened(tmp_path / "house.duckdb") as connection:
        assert connection.sql("SELECT n FROM whole").fetchall() == [(7,)]


def test_a_store_is_refused(stored: Stored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(type(stored.warehouse.place), "is_local", False)
    with pytest.raises(HeddleError, match="HDL-642"):
        write_duckdb_file(stored.warehouse, tmp_path / "house.duckdb")


def test_a_warehouse_without_answers_is_refused(tmp_path: Path) -> None:
    stored = store(tmp_path / "w", [([WHOLE], [])])
    with pytest.raises(HeddleError, match="HDL-548"):
        write_duckdb_file(stored.warehouse, tmp_path / "house.duckdb")
    assert not list(tmp_path.glob("*.duckdb"))
