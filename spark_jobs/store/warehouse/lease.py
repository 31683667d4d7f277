"""Lease for commits: a lock of the file system, or of PostgreSQL if processes run on several machines."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import check_installed
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.data_files import unwritable


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """A file, locked: its descriptor. The file that has the name now, should it have been removed meanwhile."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _same(path, file):
                yield file
                return
        finally:
            os.close(file)


def _same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def check_driver() -> None:
    """Raise HDL-904 if PostgreSQL keeps the lease and its driver is not installed."""
    if settings().lease_dsn:
        check_installed("psycopg")


@contextmanager
def postgres_lease(name: Callable[[], str]) -> Iterator[None]:
    """Hold the lease of a name with a lock in the configured PostgreSQL.

    If no PostgreSQL is configured, no lock is taken and the name is not computed. Raises HDL-513 if the server
    cannot be reached, or goes away while this waits for it.
    """
    dsn = settings().lease_dsn
    if not dsn:
        yield
        return
    import psycopg

    try:
        connection = psycopg.connect(dsn)
    except psycopg.Error as error:
        raise _unreached("cannot be reached", error) from None
    try:
        try:
            # released by the server when the connection ends, however it ends
            connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (name(),))
        except psycopg.Error as error:
            raise _unreached("went while it was waited for", error) from None
        yield
    finally:
        connection.close()


def _unreached(what: str, error: Any) -> HeddleError:
    # psycopg repeats the DSN, or what it took for the host, with the password in it: nothing of it goes on
    state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    hint = "check HEDDLE_LEASE_DSN and the server"
    return HeddleError("HDL-513", f"the PostgreSQL of the lease {what}{state}", hint)
