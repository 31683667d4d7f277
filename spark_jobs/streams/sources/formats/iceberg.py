"""Iceberg tables, in a folder or in a catalogue."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from optimizer.workload.streams import BY_CATALOGUE
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.delta_source import DeltaFile
from spark_jobs.streams.sources.formats.source_format import SparkReading, unreadable_by_spark
from spark_jobs.streams.sources.formats.tables import TableFormat
from spark_jobs.streams.sources.splits import Split, check_place


class IcebergFormat(TableFormat):
    """Iceberg tables."""

    name = "iceberg"
    is_listing_complete = False

    def table(self, stream: Stream) -> tuple[pa.Schema, list[DeltaFile]]:
        # Iceberg's library is not for those who read none
        from spark_jobs.streams.sources.iceberg_source import read_iceberg

        if not stream.source.path.startswith(BY_CATALOGUE):
            root = Place.of(stream.source.path)
            check_place(stream, root if not root.is_local else root.local())
        return read_iceberg(stream)

    def spark_reading(self, stream: Stream, splits: Sequence[Split]) -> SparkReading:
        raise unreadable_by_spark(stream, "that it is an Iceberg table")


FORMAT = IcebergFormat()
