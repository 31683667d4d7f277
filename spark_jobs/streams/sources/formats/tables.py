"""Tables whose log or metadata name their Parquet files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Stream
from spark_jobs.store.storage import ObjectVersion, Place
from spark_jobs.streams.sources.delta_source import DeltaFile
from spark_jobs.streams.sources.folders import look_at_once
from spark_jobs.streams.sources.formats.parquet import ParquetFormat, parquet_splits
from spark_jobs.streams.sources.formats.source_format import SparkReading
from spark_jobs.streams.sources.objects import seen
from spark_jobs.streams.sources.partition_columns import Wanted
from spark_jobs.streams.sources.sink_log import origin_warnings
from spark_jobs.streams.sources.splits import KnownFiles, SourceFiles, Split, check_place


class TableFormat(ParquetFormat):
    """A table of Parquet files: the table defines its files, and which of their rows count."""

    endings: ClassVar[tuple[str, ...]] = ()
    named_endings: ClassVar[tuple[str, ...]] = ()
    is_table = True

    @abstractmethod
    def table(self, stream: Stream) -> tuple[pa.Schema, list[DeltaFile]]:
        """Return the columns and files of the table now. Raises HDL-401, HDL-405, HDL-430 and HDL-458."""

    def files(self, stream: Stream, known: KnownFiles | None = None, wanted: Wanted | None = None) -> SourceFiles:
        table, files = self.table(stream)
        files = sorted(files, key=lambda file: file.path)
        return SourceFiles(
            [file.path for file in files],
            lambda: [file.identity for file in files],
            lambda numbers: table_splits(stream, table, [files[number] for number in numbers]),
            [file.name for file in files],
            files[0].commit if files else None,
            # what the columns of a file are called is known once it is opened
            all(file.mapped is None for file in files),
            table=files[0].table if files else None,
            warnings=origin_warnings(stream),
        )

    def schemas(self, stream: Stream) -> Mapping[str, pa.Schema]:
        return {stream.source.path: self.table(stream)[0]}

    def is_of(self, beginning: bytes) -> bool:
        return False

    def declared_columns(self, stream: Stream, files: Sequence[Path | Place]) -> pa.Schema:
        return self.table(stream)[0]

    def spark_reading(self, stream: Stream, splits: Sequence[Split]) -> SparkReading:
        return SparkReading(self.name)


def table_splits(stream: Stream, table: pa.Schema, files: Sequence[DeltaFile]) -> list[Split]:
    """Return the splits of some files of a table. Raises HDL-402 and HDL-458."""
    if any(not Place.of(file.path).is_local for file in files):
        return _stored_splits(stream, table, files)
    folders: set[Path] = set()
    splits: list[Split] = []
    for file in files:
        path = Path(file.path)
        if path.parent not in folders or path.is_symlink():
            check_place(stream, path)
            folders.add(path.parent)
        if not path.is_file():
            raise HeddleError("HDL-402", f"stream {stream.name}: {path} is in the table's log but not on disk")
        splits += parquet_splits(stream, file.path, file.identity, table, file=file)
    return sorted(splits, key=lambda split: (split.path, split.row_groups))


def _stored_splits(stream: Stream, table: pa.Schema, files: Sequence[DeltaFile]) -> list[Split]:
    """Splits of a table in a store, from its log: the content under a file's name never changes."""
    versions = {file.path: ObjectVersion(file.size, "", file.modified) for file in files}
    for path in versions:
        check_place(stream, Place(path))
    looked_at = look_at_once(stream, list(versions), lambda path: seen(path, versions[path]))
    footers = dict(zip(versions, looked_at, strict=True))
    splits_of_table: list[Split] = []
    for file in files:
        version, footer = footers[file.path]
        splits = parquet_splits(stream, file.path, file.identity, table, metadata=footer, file=file)
        splits_of_table += [replace(split, version=version, footer=footer) for split in splits]
    return sorted(splits_of_table, key=lambda split: (split.path, split.row_groups))
