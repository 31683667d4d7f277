"""The lease in PostgreSQL, by the embedded server: one holder at a time, whoever is killed; faults are coded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from heddle.local.servers import Place, Server, account_for, namespace_prefix, start_postgres
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse.warehouse import Warehouse

pytestmark = pytest.mark.longer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("lease"))


def started(place: Place) -> Server:
    return start_postgres(place, account_for(place, os.getuid() == 0, namespace_prefix()), lambda line: None)


@pytest.fixture
def server(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    postgres = started(place)
    secret = place.secret("postgres")
    monkeypatch.setenv("HEDDLE_LEASE_DSN", f"postgresql://heddle:{secret}@127.0.0.1:{postgres.ports['sql']}/postgres")
    yield postgres
    postgres.stop(signal.SIGINT, 30)


HOLDS = """
import sys
from spark_jobs.store.warehouse.warehouse import Warehouse
with Warehouse.open(sys.argv[1], create=False).lease():
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def linked(tmp_path: Path) -> tuple[Path, Path]:
    """A warehouse by two paths, as two hosts may mount it; the second has a lock file of its own, as on a volume whose
    locks do not reach other hosts."""
    first, second = tmp_path / "first", tmp_path / "second"
    Warehouse.open(first)
    second.mkdir()
    for entry in first.iterdir():
        if entry.name != ".lease":
            (second / entry.name).symlink_to(entry)
    return first, second


def someone_waits(place: Place, server: Server) -> None:
    """Return once the server says that a lock is waited for."""
    secret, port = place.secret("postgres"), server.ports["sql"]
    with closing(psycopg.connect(f"postgresql://heddle:{secret}@127.0.0.1:{port}/postgres")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            waits, give_up = 0, time.monotonic() + 60
            while not waits and time.monotonic() < give_up:
                cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
                ((waits,),) = cursor.fetchall()
    assert waits


def test_hosts_that_mount_a_warehouse_elsewhere_wait_for_each_other(
    server: Server, place: Place, tmp_path: Path
) -> None:
    first, second = linked(tmp_path)
    with holder(first) as lock_holder:
        assert lock_holder.stdout is not None and lock_holder.stdout.readline() == "held\n"
        acquired = threading.Event()

        def wait() -> None:
            with Warehouse.open(second, create=False).lease():
                acquired.set()

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        someone_waits(place, server)
        assert not acquired.is_set()
        # whoever is killed holds nothing any more
        lock_holder.kill()
        assert acquired.wait(30)
        waiting.join()


def test_a_server_that_goes_is_coded(server: Server, place: Place, tmp_path: Path) -> None:
    first, second = linked(tmp_path)
    errors: list[HeddleError] = []
    with holder(first) as lock_holder:
        assert lock_holder.stdout is not None and lock_holder.stdout.readline() == "held\n"

        def wait() -> None:
            with pytest.raises(HeddleError) as raised, Warehouse.open(second, create=False).lease():
                pass
            errors.append(raised.value)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        someone_waits(place, server)
        server.stop(signal.SIGINT, 30)
        waiting.join(30)
        lock_holder.communicate("\n")
    with pytest.raises(HeddleError) as raised, Warehouse.open(first, create=False).lease():
        pass
    errors.append(raised.value)
    assert [error.diagnostic.code for error in errors] == ["HDL-513", "HDL-513"]
    assert all(place.secret("postgres") not in str(error) for error in errors)
