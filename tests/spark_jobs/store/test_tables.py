"""The warehouse: what it accepts as its own, and the lease that orders every commit."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse import held_tables
from spark_jobs.store.warehouse.schemas import FORMAT, MARKER, TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse

ROUNDS = 150


def _increment(root: str, rounds: int, together: Barrier) -> None:
    """Add one to a number in a file, under the lease, at the same time as another process."""
    warehouse = Warehouse.open(root)
    counter = Path(root) / "counter"
    together.wait(timeout=60)
    for _ in range(rounds):
        with warehouse.lease() as token:
            number = int(counter.read_text())
            warehouse.check_lease(token)
            counter.write_text(str(number + 1))


def test_two_processes_lose_no_write_under_the_lease(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    Warehouse.open(root)
    (root / "counter").write_text("0")
    before = int((root / ".lease").read_text())
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(2)
    workers = [context.Process(target=_increment, args=(str(root), ROUNDS, together)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
        assert worker.exitcode == 0
    assert int((root / "counter").read_text()) == 2 * ROUNDS
    assert int((root / ".lease").read_text()) == before + 2 * ROUNDS  # a token is given out once


def test_the_lease_of_a_process_that_dies_is_free_again(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    warehouse = Warehouse.open(root)
    code = (
        "import os, sys\nfrom spark_jobs.store.warehouse.warehouse import Warehouse\n"
        "with Warehouse.open(sys.argv[1]).lease():\n    os._exit(9)\n"
    )
    project = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code, str(root)], cwd=project, timeout=60, check=False)
    assert done.returncode == 9
    with warehouse.lease() as token:
        warehouse.check_lease(token)


def test_a_holder_that_lost_the_lease_commits_nothing(tmp_path: Path) -> None:
    warehouse = Warehouse.open(tmp_path)
    row = {"run_id": "r", "stream": "s", "code": "HDL-410", "rows": 1, "detail": "", "at": None}
    with warehouse.lease() as token:
        (tmp_path / ".lease").write_text(str(token + 1))  # another host believes that this one is dead
        with pytest.raises(HeddleError, match=f"HDL-510 .*token {token}, now {token + 1}"):
            warehouse.append("quarantine", [row], token)
    assert warehouse.version("quarantine") == 0 and warehouse.rows("quarantine") == []


def test_an_append_of_one_transaction_is_done_once(tmp_path: Path) -> None:
    import datetime as dt

    warehouse = Warehouse.open(tmp_path)
    at = dt.datetime(2013, 7, 1, tzinfo=dt.UTC)
    for transaction in (("job", 1), ("job", 1), ("job", 2), ("other", 1)):
        row = {"run_id": "r", "stream": "s", "code": "c", "rows": 1, "detail": str(transaction), "at": at}
        with warehouse.lease() as token:
            warehouse.append("quarantine", [row], token, transaction)
    details = sorted(row["detail"] for row in warehouse.rows("quarantine"))
    assert details == ["('job', 1)", "('job', 2)", "('other', 1)"]


def appended(warehouse: Warehouse, detail: str) -> list[str]:
    """The details of a table's rows after one more was appended."""
    row = {
        "run_id": "r",
        "stream": "s",
        "code": "c",
        "rows": 1,
        "detail": detail,
        "at": datetime(2013, 7, 1, tzinfo=UTC),
    }
    with warehouse.lease() as token:
        warehouse.append("quarantine", [row], token)
    return sorted(row["detail"] for row in warehouse.rows("quarantine"))


def test_an_append_is_read_without_opening_the_table_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse, opened = Warehouse.open(tmp_path), list[str]()
    assert appended(warehouse, "0") == ["0"]
    monkeypatch.setattr(held_tables, "DeltaTable", lambda url: opened.append(url) or DeltaTable(url))
    for number in range(1, 4):
        assert appended(warehouse, str(number)) == [str(each) for each in range(number + 1)]
    assert opened == []


def test_a_log_that_is_put_back_after_an_append_is_read_again(tmp_path: Path) -> None:
    warehouse = Warehouse.open(tmp_path / "warehouse")
    table, copy = tmp_path / "warehouse" / "quarantine", tmp_path / "copy"
    assert appended(warehouse, "first") == ["first"]
    shutil.copytree(table, copy)
    assert appended(warehouse, "second") == ["first", "second"]
    shutil.rmtree(table)
    shutil.copytree(copy, table)
    assert [row["detail"] for row in warehouse.rows("quarantine")] == ["first"]
    # the same version, by another process
    write_deltalake(str(table), DeltaTable(str(copy)).to_pyarrow_table(), mode="append")
    assert appended(warehouse, "third") == ["first", "first", "third"]


def test_every_table_is_there_and_isolates_serializably(tmp_path: Path) -> None:
    warehouse = Warehouse.open(tmp_path / "new" / "warehouse")
    for name, (schema, partition) in TABLES.items():
        table = DeltaTable(warehouse.path(name))
        assert [field.name for field in table.schema().fields] == schema.names
        assert table.metadata().partition_columns == partition
        assert table.metadata().configuration["delta.isolationLevel"] == "Serializable"
        # readers other than Spark read deletion vectors only partly: published tables have none
        assert "deletionVectors" not in (table.protocol().reader_features or [])
    again = Warehouse.open(warehouse.root)
    assert again == warehouse and again.version("results") == 0


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(HeddleError, match="HDL-501 .*not a Heddle warehouse"):
        Warehouse.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(HeddleError, match="HDL-501"):
        Warehouse.open(tmp_path / "thesis.txt")


def test_a_warehouse_is_not_made_where_one_is_only_read(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match="HDL-502"):
        Warehouse.open(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    Warehouse.open(tmp_path)
    (tmp_path / MARKER).write_text(json.dumps({"kind": "heddle warehouse", "format": FORMAT + 1}))
    with pytest.raises(HeddleError, match="HDL-503"):
        Warehouse.open(tmp_path)


def test_creation_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    Warehouse.open(tmp_path)
    (tmp_path / MARKER).unlink()
    shutil.rmtree(tmp_path / "results")
    again = Warehouse.open(tmp_path)
    assert again.version("results") == 0 and (tmp_path / MARKER).exists()
    # the same tables beside something else are not ours to finish
    (tmp_path / MARKER).unlink()
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(HeddleError, match="HDL-501"):
        Warehouse.open(tmp_path)


def test_processes_that_open_a_new_warehouse_at_once_all_get_it(tmp_path: Path) -> None:
    place = str(tmp_path / "new")
    command = "from spark_jobs.store.warehouse.warehouse import Warehouse; "
    command += f"print(Warehouse.open({place!r}).version('results'))"
    root = Path(__file__).resolve().parents[3]
    running = [
        subprocess.Popen([sys.executable, "-c", command], cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in running] == ["0"] * 4


def test_tables_are_read_without_python_in_arrows_threads(tmp_path: Path) -> None:
    """A file system in Python aborts the process, now and then, if a thread lets go of a file at its very end."""
    warehouse = Warehouse.open(tmp_path / "warehouse")
    for table in TABLES:
        dataset = warehouse.dataset(table)
        assert dataset.filesystem.type_name == "subtree" and dataset.filesystem.base_fs.type_name == "local"
        assert dataset.count_rows() == 0
