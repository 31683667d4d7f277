"""Writes files of partial rows, with as many rows at once as memory allows."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKET_ROWS, DataFile, write_files


class PartialsFiles:
    """The files of partial rows that a task writes under a table's folder, bit by bit. ``group_rows``: as of
    :func:`spark_jobs.store.warehouse.data_files.write_files`."""

    def __init__(self, root: str, memory: TaskMemory, group_rows: int = BUCKET_ROWS) -> None:
        self.root, self.most, self.group_rows = root, memory.piece, group_rows
        self._files: list[DataFile] = []

    def write(self, tables: Iterable[pa.Table]) -> None:
        """Write tables as they come; few large files rather than many small ones."""
        waiting: list[pa.Table] = []
        size = 0
        for table in tables:
            waiting.append(table)
            size += table.nbytes
            if size > self.most:
                self._files += write_files(self.root, pa.concat_tables(waiting), self.group_rows)
                waiting, size = [], 0
        if waiting:
            self._files += write_files(self.root, pa.concat_tables(waiting), self.group_rows)

    def taken(self) -> list[DataFile]:
        """The files that were written since the last call."""
        files, self._files = self._files, []
        return files
