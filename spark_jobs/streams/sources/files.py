"""The files of a stream now, and their splits, whatever its format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optimizer.workload.values import Stream
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.splits import KnownFiles, SourceFiles, Split, failures_of


def splits_of(stream: Stream) -> list[Split]:
    """Return the splits of all files of a stream now, in a fixed order.

    Raises HDL-401 (nothing there), HDL-402 (a file cannot be read), HDL-405 (a feature of a table that is not read),
    HDL-409 (what was not foreseen), HDL-430 (a gap in a Delta table's log), HDL-458 (a file lies where no stream is
    read from).
    """
    files = files_of(stream)
    return files.opened(range(len(files.paths)))


def files_of(stream: Stream, known: KnownFiles | None = None) -> SourceFiles:
    """Return the files of a stream now. ``known``: files that are passed over.

    Raises what :func:`splits_of` raises, except for what is seen once files are opened.
    """
    declared = Declaration(stream)
    with failures_of(stream, stream.source.path):
        files = format_of(stream).files(stream, known)

    def opened(numbers: Sequence[int]) -> list[Split]:
        with failures_of(stream, stream.source.path):
            splits = files.opened(numbers)
        return [replace(split, declared=declared) for split in splits]

    return replace(files, opened=opened)
