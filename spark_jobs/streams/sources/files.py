"""The files of a stream now, and their splits, whatever its format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from optimizer.workload.values import Stream, digest
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.partition_columns import Wanted, split_folders
from spark_jobs.streams.sources.splits import KnownFiles, SourceFiles, Split, failures_of


def splits_of(stream: Stream) -> list[Split]:
    """Return the splits of all files of a stream now, in a fixed order.

    Raises HDL-401 (nothing there), HDL-402 (a file cannot be read), HDL-405 (a feature of a table that is not read),
    HDL-409 (what was not foreseen), HDL-430 (a gap in a Delta table's log), HDL-458 (a file lies where no stream is
    read from).
    """
    files = files_of(stream)
    return files.opened(range(len(files.paths)))


def files_of(stream: Stream, known: KnownFiles | None = None, wanted: Wanted | None = None) -> SourceFiles:
    """Return the files of a stream now. ``known``: files that are passed over. ``wanted``: the folders to list, None:
    all.

    Raises what :func:`splits_of` raises, except for what is seen once files are opened.
    """
    declared = Declaration(stream)
    with failures_of(stream, stream.source.path):
        files = format_of(stream).files(stream, known, wanted)

    def opened(numbers: Sequence[int]) -> list[Split]:
        with failures_of(stream, stream.source.path):
            splits = files.opened(numbers)
        return [with_folders(replace(split, declared=declared)) for split in splits]

    with_folders = split_folders(stream, files.paths, files.names)
    return replace(files, opened=opened)


def reopened(stream: Stream, path: str, name: str) -> list[Split]:
    """Return the splits of a file that was not listed, by its path and its name below the source. Raises what opening
    raises."""
    source = replace(stream.source, path=path, partitions=(), folders="")
    give = split_folders(stream, [path], [name])
    return [give(split) for split in files_of(replace(stream, source=source)).opened([0])]


def files_digest(stream: Stream) -> str:
    """Return a digest of the files of a stream as they are listed now; empty if a listing does not reveal all changes
    of their content, or warns.

    Raises what :func:`files_of` raises.
    """
    if stream.source.origin is not None or not format_of(stream).is_listing_complete:
        return ""
    files = files_of(stream)
    if files.warnings:
        return ""
    marks = files.marks.to_pylist() if isinstance(files.marks, pa.Array) else list(files.marks)
    return digest([files.table, files.commit, list(files.names), marks])
