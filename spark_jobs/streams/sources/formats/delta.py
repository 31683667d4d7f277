"""Delta tables, also those into which Heddle copies what only Spark reads, and lands what Kafka has."""

from __future__ import annotations

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.delta_source import DeltaFile, read_log
from spark_jobs.streams.sources.formats.tables import TableFormat
from spark_jobs.streams.sources.splits import check_place

UNREAD = "HDL-405"
"""Properties in the log of a Delta table that Heddle does not support."""


class DeltaFormat(TableFormat):
    """Delta tables."""

    name = "delta"
    log = "_delta_log"
    has_feed = True
    is_landed = True

    def table(self, stream: Stream) -> tuple[pa.Schema, list[DeltaFile]]:
        root = Place.of(stream.source.path)
        check_place(stream, root if not root.is_local else root.local())
        if stream.source.origin is not None and not (root / self.log).exists():
            message = f"stream {stream.name}: {stream.source.origin.name} is not copied yet"
            raise HeddleError("HDL-432", message, "the next run copies it, or `heddle copy`")
        if root.is_local:
            log = root.local() / self.log
            for path in (log, *log.rglob("*")):
                if path.is_symlink():
                    check_place(stream, path)
        snapshot = read_log(stream)
        return snapshot.schema, list(snapshot.files)

    def is_understood(self, stream: Stream) -> bool:
        try:
            self.table(stream)
        except HeddleError as error:
            return error.diagnostic.code != UNREAD or f"at {stream.source.path} uses " not in error.diagnostic.message
        return True


FORMAT = DeltaFormat()
