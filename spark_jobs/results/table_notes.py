"""Note the version of ``results`` that each table of a query reflects, so that hundreds of tables need not be
opened only to see that they are up to date. The notes can be lost: each table itself has the last version that
changed something in it.
"""

from __future__ import annotations

import json
from typing import Any

from optimizer.workload.values import digest
from spark_jobs.results.own_table import TableRequest
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import LOG


class TableNotes:
    """The notes of the tables in a folder: for each the version of ``results``, the table's own version, and the
    request.
    """

    def __init__(self, folder: Place) -> None:
        self.folder, self.path = folder, folder / ".followed.json"
        try:
            self.kept: dict[str, Any] = json.loads(self.path.read())
        except (OSError, ValueError):
            self.kept = {}

    def version_of(self, request: TableRequest) -> int | None:
        """The version of ``results`` that a table is as of; None if the table is no longer as it was noted."""
        noted = self.kept.get(request.table.name)
        if noted is None:
            return None
        log = self.folder / request.table.name / LOG
        is_newest = (log / f"{noted[1]:020}.json").exists() and not (log / f"{noted[1] + 1:020}.json").exists()
        return int(noted[0]) if is_newest else None

    def is_noted(self, request: TableRequest) -> bool:
        """Return whether a table was last written for the request as it is now."""
        noted = self.kept.get(request.table.name)
        return noted is not None and noted[2] == _digest(request)

    def note(self, request: TableRequest, version: int, own: int) -> None:
        """Note that a table is, in its version ``own``, as of a version of ``results``."""
        self.kept[request.table.name] = [version, own, _digest(request)]

    def write(self) -> None:
        """Keep the notes, as far as there is room for them."""
        try:
            self.path.put(json.dumps(self.kept).encode())
        except OSError:
            return


def _digest(request: TableRequest) -> str:
    return digest([request.query, request.description, request.table.has_changes])
