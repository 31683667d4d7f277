"""Tables are opened once a process, and told what is new: opening one reads its log, in a store a request a commit.

Small files of a store are read whole and kept: they never change, and to read some columns costs as many requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from spark_jobs.storage import SMALL, keep, kept, reached_by


class TableAt(DeltaTable):
    """A table that is kept open, at a version: what it says stays as it was when the other goes on."""

    def __init__(self, current: DeltaTable) -> None:
        self._current, self._at = current, int(current.version())
        self._storage_options = None
        self._own: DeltaTable | None = None

    @property
    def _table(self) -> Any:
        if self._own is None:
            if int(self._current.version()) == self._at:
                return self._current._table
            self._own = DeltaTable(self._current.table_uri, version=self._at)
        return self._own._table

    def version(self) -> int:
        """Its version, whatever was committed since."""
        return self._at


AT_ONCE = 8
"""Files that are read side by side: a request takes longer than what it brings."""

_threads = threading.local()


def current_table(url: str, identity: str, log: Path | None = None) -> DeltaTable:
    """The table at a URL as it is now. ``identity``: another one for another table at the same place; ``log``: the
    folder of its log on this machine, by which that is seen. Raises what delta-rs raises."""
    # neither threads nor processes that were forked share one
    key = (os.getpid(), url, identity, reached_by())
    tables: dict[tuple[int, str, str, tuple[str, ...]], tuple[DeltaTable, Any]] = _threads.__dict__.setdefault(
        "tables", {}
    )
    known, stamp = tables.get(key, (None, None))
    # before the log is read: what changes meanwhile is another one the next time
    checkpoint = _status(log, "_last_checkpoint")
    if known is not None and (_commit(log, known), checkpoint) == stamp:
        # its log may no longer go on from where it was
        with suppress(DeltaError):
            known.update_incremental()
            tables[key] = known, (_commit(log, known), checkpoint)
            return TableAt(known)
    known = DeltaTable(url)
    tables[key] = known, (_commit(log, known), checkpoint)
    return TableAt(known)


def _commit(log: Path | None, table: DeltaTable) -> Any:
    """What is another one once a log, or its newest commit, is not the one that was read: it was put back, or made
    anew."""
    return _status(log, ""), _status(log, f"{table.version():020}.json")


def _status(log: Path | None, name: str) -> tuple[int, ...] | None:
    """What tells a file of a log from another one in its place; None: it is not there. A table reads its checkpoint
    when it is asked for files: with another one, those before may be gone."""
    if log is None:
        return None
    try:
        found = (log / name).stat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if name else (found.st_ino,)


def with_small_files(table: ds.Dataset, current: DeltaTable, where: ds.Expression | None) -> ds.Dataset:
    """A table's dataset with the files alone that may hold rows that meet a condition, the small ones in memory: each
    took one request, or none if this process has had it before. Raises OSError."""
    sizes: dict[str, int] = current._table.get_add_file_sizes()
    handler = DeltaStorageHandler.from_table(current._table, None, sizes)
    chosen = list(table.get_fragments(filter=where))
    with ThreadPoolExecutor(AT_ONCE) as readers:
        contents = list(readers.map(lambda one: _content(handler, current.table_uri, one.path, sizes), chosen))
    fragments = [
        one if content is None else table.format.make_fragment(content, partition_expression=one.partition_expression)
        for one, content in zip(chosen, contents, strict=True)
    ]
    return ds.FileSystemDataset(fragments, table.schema, table.format)


def _content(handler: DeltaStorageHandler, root: str, path: str, sizes: Mapping[str, int]) -> pa.Buffer | None:
    """A small file; None if it is not small."""
    if sizes.get(path, SMALL + 1) > SMALL:
        return None
    url = f"{root.rstrip('/')}/{path}"
    content = kept(url)
    if content is None:
        # its size is known: Arrow's own file system would ask for it
        with handler.open_input_file(path) as file:
            content = keep(url, pa.py_buffer(file.read()))
    return content
