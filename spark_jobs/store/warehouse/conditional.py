"""Check whether a store lets only one writer create an object: every commit in a store relies on it."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.storage import Place

ROUNDS = 6
WRITERS = 4

_ROW = pa.table({"writer": [0]})


def check_conditional(place: Place) -> None:
    """Let some writers race for the same commits of a table that is removed afterwards.

    Raises HDL-579 if the store confirms a commit to two of them, or loses one.
    """
    probe = place / f"_probe-{uuid.uuid4().hex}"
    DeltaTable.create(str(probe), schema=_ROW.schema)
    commits = 0
    try:
        with ThreadPoolExecutor(WRITERS) as writers:
            for _ in range(ROUNDS):
                tables = [DeltaTable(str(probe)) for _ in range(WRITERS)]
                commits += sum(writers.map(_commits, tables))
        version = int(DeltaTable(str(probe)).version())
    finally:
        with suppress(OSError):
            probe.remove_folder()
    if commits != version or commits > ROUNDS:
        message = f"{place}: {commits} commits were told to be made, {version} stand: its conditional PUT does not hold"
        hint = "use a store that has If-None-Match: Amazon's, Azure's, Google's, or a server that does"
        raise HeddleError("HDL-579", message, hint)


def _commits(table: DeltaTable) -> bool:
    try:
        write_deltalake(table, _ROW, mode="append", commit_properties=CommitProperties(max_commit_retries=0))
    except DeltaError:
        return False
    return True
