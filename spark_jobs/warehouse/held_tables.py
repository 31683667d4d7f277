"""Tables in a store are opened once a process, and told what is new: to open one costs a request for each commit."""

from __future__ import annotations

import os
import threading
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs.storage import reached_by


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


_threads = threading.local()


def current_table(url: str, identity: str) -> DeltaTable:
    """The table at a URL as it is now. ``identity``: another one for another table at the same place. Raises what
    delta-rs raises."""
    # neither threads nor processes that were forked share one
    key = (os.getpid(), url, identity, reached_by())
    tables: dict[tuple[int, str, str, tuple[str, ...]], DeltaTable] = _threads.__dict__.setdefault("tables", {})
    if (known := tables.get(key)) is None:
        tables[key] = known = DeltaTable(url)
        return TableAt(known)
    try:
        known.update_incremental()
    except DeltaError:
        # its log no longer goes on from where it was
        tables[key] = known = DeltaTable(url)
    return TableAt(known)
