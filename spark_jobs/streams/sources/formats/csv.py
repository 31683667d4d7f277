"""CSV files, which declare nothing but the names of their columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources import csv_source
from spark_jobs.streams.sources.compression import codec_ending, with_codecs
from spark_jobs.streams.sources.csv_guess import guess_csv, header_of
from spark_jobs.streams.sources.formats.source_format import (
    SMALL,
    DuckdbReading,
    Guess,
    Outline,
    ReadByRun,
    SourceFormat,
    SparkReading,
    unreadable_by_spark,
)
from spark_jobs.streams.sources.splits import Split

LONGEST_LINE = 64 << 20
"""Bytes of the longest record that the audit reads with DuckDB."""


_NO_TEXT = "\ufdd0"
"""What no text holds: a character that Unicode reserves for use inside programs."""


class CsvFormat(SourceFormat):
    """Folders of CSV files: :mod:`spark_jobs.streams.sources.csv_source` reads them."""

    name = "csv"
    endings = with_codecs([".csv"])
    lone_endings = with_codecs([".tsv"])
    named_endings = with_codecs([".txt"])
    is_each_complete = True

    def columns(
        self, stream: Stream, split: Split, names: Sequence[str], needed: Sequence[str] = ()
    ) -> dict[str, pa.DataType | None]:
        if needed:
            csv_source.check_columns(stream, split.path, needed, split.version)
        present = self.column_names(stream, split)
        return dict.fromkeys(name for name in (present or names) if name in names)

    def column_names(self, stream: Stream, split: Split) -> Sequence[str]:
        return csv_source.names_of(stream, split.path, split.version)

    def read(
        self, stream: Stream, split: Split, columns: Sequence[str], encoded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        return csv_source.read(stream, split.path, columns, split.version)

    def head(self, stream: Stream, split: Split, columns: Sequence[str]) -> pa.RecordBatch | None:
        return csv_source.head(stream, split.path, columns, split.version)

    def tail_bytes(self, split: Split) -> int:
        return SMALL if codec_ending(split.path) else csv_source.HEAD

    def last_times(self, stream: Stream, split: Split) -> pa.Array:
        if codec_ending(split.path):
            return self.all_times(stream, split)
        return csv_source.last_times(stream, split.path, split.version)

    def is_of(self, beginning: bytes) -> bool:
        return True

    def guess(self, files: Sequence[Path | Place]) -> Guess:
        guess = guess_csv(files)
        nulls = tuple(dict.fromkeys(text for column in guess.columns for text in column.null))
        options = {"delimiter": guess.delimiter, "header": guess.header, "null": nulls}
        return Guess(guess.columns, options, guess.row_bytes, guess.header)

    def outline(self, stream: Stream, file: Path | Place) -> Outline:
        delimiter, names = header_of(file)
        if names is None:
            outline = super().outline(stream, file)
            return Outline(outline.names, (delimiter, *outline.written))
        return Outline(frozenset(name.lower() for name in names), (delimiter,))

    def spark_reading(self, stream: Stream, splits: Sequence[Split]) -> SparkReading:
        source = stream.source
        files = {split.path: split for split in splits}
        orders = {names for split in files.values() if (names := tuple(self.column_names(stream, split)))}
        if len(orders) > 1:
            raise unreadable_by_spark(stream, "files with other columns, or in another order, than the first")
        if len(source.null) > 1:
            raise unreadable_by_spark(stream, "several texts that are null")
        options = {"header": source.header, "sep": source.delimiter, "quote": source.quote or ""}
        options["multiLine"] = source.quote is not None
        if source.quote is not None:
            options["escape"] = source.quote
        # Spark takes an empty field for this text, and this text for null: by default also the quoted empty text
        options["nullValue"] = source.null[0] if source.null else _NO_TEXT
        # Spark goes by the order of a given schema, not by the header's names
        return SparkReading(self.name, list(files), options, next(iter(orders), tuple(dict(stream.schema))))

    def duckdb_reading(self, stream: Stream, paths: Sequence[str], is_numbered: bool) -> DuckdbReading:
        source, row = stream.source, "row_number() OVER () - 1"
        (path,) = paths
        if codec_ending(path) == ".bz2":
            raise ReadByRun("DuckDB does not read bzip2")
        with io.TextIOWrapper(pa.input_stream(path), encoding="utf-8-sig", newline="") as file:
            if source.quote is None:
                reader = csv.reader(file, delimiter=source.delimiter, quoting=csv.QUOTE_NONE)
            else:
                reader = csv.reader(file, delimiter=source.delimiter, quotechar=source.quote)
            names = next((record for record in reader if record), [])
        if not names:
            return DuckdbReading("read_csv", [path], {}, row, {})
        if not source.header:
            names = [name for name, _ in stream.schema]
        if len({name.lower() for name in names}) < len(names):
            raise ReadByRun("columns that differ by case")
        options = {
            **{"auto_detect": False, "header": source.header, "delim": source.delimiter},
            **{"quote": source.quote or "", "escape": source.quote or "", "nullstr": ["", *source.null]},
            **{"allow_quoted_nulls": False, "columns": dict.fromkeys(names, "VARCHAR")},
            "max_line_size": LONGEST_LINE,
        }
        columns = {name.lower(): (name, "VARCHAR") for name in names}
        return DuckdbReading("read_csv", [path], options, row, columns)


FORMAT = CsvFormat()
