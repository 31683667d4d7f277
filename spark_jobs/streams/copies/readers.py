"""Choose the reader of a stream: Heddle itself, or Spark into a copy that Heddle reads."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.workload.formats import COPIED_AS
from optimizer.workload.streams import has_columns, load_streams, with_copy
from optimizer.workload.values import Dimension, Origin, Source, Stream
from spark_jobs.store.settings import settings
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import log_place
from spark_jobs.streams.copies.databases.opening import is_direct, opened, why_spark
from spark_jobs.streams.sources.decoding import discover_schema, discovered_types
from spark_jobs.streams.sources.dimensions import with_schema_of_files
from spark_jobs.streams.sources.formats import FORMATS, format_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.streams.copies.copying import Copied

StrPath = str | Path

Report = Callable[[str], None]
"""Receives progress messages."""


def known_streams(path: StrPath) -> tuple[tuple[str, ...], dict[str, Stream], list[Diagnostic]]:
    """Names that a file of streams declares, the valid streams with their readers and all columns, and the
    diagnostics.
    """
    declared, findings = load_streams(path, settings().source_roots, settings().copies)
    diagnostics, known = list(findings), dict[str, Stream]()
    dimensions, problems = known_dimensions(next(iter(declared.values())).dimensions if declared else ())
    diagnostics += problems
    for name, stream in declared.items():
        try:
            stream = replace(read_by(stream), dimensions=dimensions)
            if not has_columns(stream):
                stream, warnings = discovered(stream)
                diagnostics += warnings
            known[name] = _as_expected(stream, path) if stream.expect else stream
        except HeddleError as error:
            diagnostics.append(error.diagnostic)
    return tuple(declared), known, diagnostics


def _as_expected(stream: Stream, path: StrPath) -> Stream:
    # the parser's library is not for those who expect nothing of a stream
    from optimizer.language.expectations import with_expectations

    return with_expectations(stream, str(path))


def known_dimensions(declared: Sequence[Dimension]) -> tuple[tuple[Dimension, ...], list[Diagnostic]]:
    """The declared dimensions with all columns, and what is wrong with the others."""
    known: list[Dimension] = []
    diagnostics: list[Diagnostic] = []
    for dimension in declared:
        try:
            complete, warnings = with_schema_of_files(dimension)
            known.append(complete)
            diagnostics += warnings
        except HeddleError as error:
            diagnostics.append(error.diagnostic)
    return tuple(known), diagnostics


def read_by(stream: Stream) -> Stream:
    """Choose the reader of a stream. A table of a catalogue is read directly if Heddle reads its files. A Delta table
    that Heddle does not understand is read with Spark, unless its ``reader`` forbids it.

    Raises HDL-401 for a table that does not exist, HDL-405 for one that only Spark reads and may not, HDL-433.
    """
    source, origin = stream.source, stream.source.origin
    if origin is None:
        if source.reader == "auto" and not format_of(stream).is_understood(stream):
            copied = Origin(source.format, source.path, copies=settings().copies)
            stream = replace(stream, source=replace(source, origin=copied))
            return with_copy(stream) if has_columns(stream) else stream
        return _with_former_copy(stream)
    if origin.format != "table" or source.reader == "spark":
        return stream
    from spark_jobs.streams.copies.origins import location_of

    with spark_session() as spark:
        location = location_of(spark, stream)
    if location is not None:
        direct = replace(stream, source=replace(source, format=location[0], path=location[1], origin=None))
        if format_of(direct).is_understood(direct):
            return direct
    if source.reader == "direct":
        message = f"stream {stream.name}: only Spark reads {origin.name}"
        raise HeddleError("HDL-405", message, "`reader: auto` lets it be copied")
    return stream


def _with_former_copy(stream: Stream) -> Stream:
    """The stream over its copy, if an earlier Heddle has copied it with Spark: what was published stands on the copy's
    files, and goes on with them.
    """
    source = stream.source
    if not format_of(stream).was_copied or source.reader != "auto" or source.has_own_keys:
        return stream
    origin = Origin(source.format, source.path, copies=settings().copies)
    copied = Source(COPIED_AS, "", time_unit=source.time_unit, reader=source.reader, origin=origin)
    former = replace(stream, source=copied)
    if has_columns(stream):
        former = with_copy(former)
        return former if DeltaTable.is_deltatable(log_place(former.source.path)) else stream
    # where a copy lies depends on columns that only Spark knows
    names = (file.name for file in Place.of(origin.copies).listed(recursive=True))
    pattern = re.compile(rf"{re.escape(stream.name)}-[0-9a-f]{{12}}/_delta_log/.*")
    return former if any(map(pattern.fullmatch, names)) else stream


def reason(stream: Stream) -> str:
    """The reader of a stream that :func:`read_by` returned, and the reason, in words."""
    source, origin = stream.source, stream.source.origin
    if origin is None:
        place = f"{source.path}/{source.folders}" if source.folders else source.path
        columns = [partition.name + " (exact)" * partition.is_exact for partition in source.partitions]
        return f"Heddle itself: {source.format} at {place}" + (
            f"; columns in its folders: {', '.join(columns)}" if columns else ""
        )
    why: str | None = "the table has features that only Spark reads"
    if origin.format in FORMATS and FORMATS[origin.format].was_copied and source.reader != "spark":
        keys = [*(["options"] if origin.options else []), *(["since"] if origin.since is not None else [])]
        why = f"as it has {' and '.join(keys)}"
        if not keys:
            why = "made by an earlier Heddle; delete it, and Heddle reads the files itself, all of them as new ones"
    elif source.reader == "spark" or origin.format not in FORMATS:
        try:
            why = why_spark(stream)
        except HeddleError as error:
            why = error.diagnostic.message
    if why is None:
        return f"Heddle itself, into a copy at {source.path}"
    return f"Spark, into a copy at {source.path}: {why}"


def unseen(stream: Stream) -> str:
    """Changes of a stream's data that are not noticed, in words; empty: all are noticed."""
    origin = stream.source.origin
    if origin is None or origin.format not in ("jdbc", "table"):
        return ""
    if origin.format == "jdbc":
        lower = origin.watermark or stream.time
        return f"rows that are changed or deleted after they were copied, and rows that come with a lower {lower}"
    if origin.watermark is not None:
        return f"if it has no files: rows that change, or come later without a greater {origin.watermark}"
    return f"if it has no files: rows that change, or come when later ones of {stream.time} have been copied"


def discovered(stream: Stream) -> tuple[Stream, tuple[Diagnostic, ...]]:
    """A stream that leaves its schema out with that of its source (:func:`discover_schema`), of an origin with what
    Spark finds."""
    if stream.source.origin is None:
        return discover_schema(stream)
    if is_direct(stream) and (described := _described(stream)) is not None:
        return discovered_types(stream, {stream.source.origin.name: described})
    from pyspark.sql.pandas.types import to_arrow_schema

    from spark_jobs.streams.copies.origins import origin_columns

    with spark_session() as spark:
        columns = origin_columns(spark, stream)
    return discovered_types(stream, {stream.source.origin.name: to_arrow_schema(columns, timezone="UTC")})


def _described(stream: Stream) -> pa.Schema | None:
    """The columns of a table that Heddle reads; None if it has some that only Spark reads, and Spark is there."""
    origin = stream.source.origin
    assert origin is not None
    with opened(stream) as connection:
        columns = connection.columns(connection.relation(origin.table))
    if any(column.is_nested for column in columns) and stream.source.reader == "auto" and find_spec("pyspark"):
        return None
    return pa.schema([pa.field(column.name, column.arrow) for column in columns if column.arrow is not None])


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The session of this process, or one for now."""
    from pyspark.sql import SparkSession

    from spark_jobs.engine.session import start_session

    running = SparkSession.getActiveSession()
    spark = start_session("heddle columns") if running is None else running
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


def bring_named(path: StrPath, names: Sequence[str], report: Report) -> tuple[list[Copied], list[Diagnostic]]:
    """:func:`bring` of the streams of a file (``names``; none: all). Raises HDL-111 if there is no file, HDL-201 for an
    unknown name."""
    if not Path(path).is_file():
        raise HeddleError("HDL-111", f"there is no file {path}", "check the path", file=str(path))
    declared, known, problems = known_streams(path)
    for name in names:
        if name not in declared:
            raise HeddleError.of(HeddleError("HDL-201", f"there is no stream {name}", meant(name, declared)).diagnostic)
    copied, wrong = bring([stream for name, stream in known.items() if not names or name in names], report)
    return copied, [*problems, *wrong]


def bring(streams: Sequence[Stream], report: Report = lambda line: None) -> tuple[list[Copied], list[Diagnostic]]:
    """Bring the copies of the streams that have one up to date, and what is wrong with the others. No session is
    started for none."""
    copied: list[Copied] = []
    problems: list[Diagnostic] = []
    streams = [stream for stream in streams if stream.source.origin is not None]
    if not streams:
        return copied, problems
    from spark_jobs.streams.copies.copying import bring_up_to_date

    with ExitStack() as stack:
        spark: SparkSession | None = None
        for stream in streams:
            try:
                by_spark = not is_direct(stream)
                if by_spark and spark is None:
                    report("starting Spark")
                    spark = stack.enter_context(spark_session())
                copied += filter(None, [bring_up_to_date(spark, stream, time.time_ns() // 1000, report)])
            except HeddleError as error:
                problems.append(error.diagnostic)
    return copied, problems
