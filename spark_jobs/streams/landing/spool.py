"""Rows on their way into a table: in memory up to a size, then in files of a folder that is removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

MEMORY = 32 << 20
"""Bytes of rows that a spool has in memory."""


class Spool:
    """Batches of one schema in their order. ``folder``: for its files; ``name``: their beginning, used by no other."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema, memory: int = MEMORY) -> None:
        self.folder, self.name, self.schema, self.memory = folder, name, schema, memory
        self.files, self.batches = list[Path](), list[pa.RecordBatch]()
        self.rows = self.size = self.written = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch at the end."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size += batch.nbytes
        if self.size > self.memory:
            self._write()

    def _write(self) -> None:
        path = self.folder / f"{self.name}-{self.written}.arrow"
        self.written += 1
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, self.schema, options=options) as writer:
            for batch in self.batches:
                writer.write_batch(batch)
        self.files.append(path)
        self.batches, self.size = [], 0

    def take(self, other: Spool) -> None:
        """Add all of another spool, which is empty afterwards."""
        if other.files:
            if self.batches:
                self._write()
            self.files += other.files
            self.rows += other.rows - sum(batch.num_rows for batch in other.batches)
        for batch in other.batches:
            self.add(batch)
        other.files, other.batches, other.rows, other.size = [], [], 0, 0

    def clear(self) -> None:
        """Forget all rows."""
        for path in self.files:
            path.unlink(missing_ok=True)
        self.files, self.batches, self.rows, self.size = [], [], 0, 0

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches in their order."""
        for path in self.files:
            with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
                yield from reader
        yield from self.batches

    def reader(self) -> pa.RecordBatchReader:
        """All batches, for one reading."""
        return pa.RecordBatchReader.from_batches(self.schema, self.read())
