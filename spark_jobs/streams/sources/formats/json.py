"""JSON files: lines, arrays, and arrays inside objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from optimizer.workload.nested import Nested
from optimizer.workload.values import DATE, TIMESTAMP, Stream, Type
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources import json_source
from spark_jobs.streams.sources.compression import ending_of, with_codecs
from spark_jobs.streams.sources.csv_source import BOM, HEAD
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.formats.source_format import SMALL, Guess, SourceFormat
from spark_jobs.streams.sources.json_guess import guess_json
from spark_jobs.streams.sources.splits import Split

SAMPLED = 8
"""Files at most from whose beginnings an undeclared schema is taken."""


class JsonFormat(SourceFormat):
    """Folders of JSON files: :mod:`spark_jobs.streams.sources.json_source` reads them. A key that a record lacks is
    null.
    """

    name = "json"
    was_copied = True
    is_schema_sampled = True
    endings = with_codecs([".json", ".jsonl", ".ndjson", ".geojson"])

    def read(
        self, stream: Stream, split: Split, columns: Sequence[str], encoded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        return json_source.read(stream, split.path, columns, split.version)

    def head(self, stream: Stream, split: Split, columns: Sequence[str]) -> pa.RecordBatch | None:
        return next(json_source.read(stream, split.path, columns, split.version, HEAD), None)

    def tail_bytes(self, split: Split) -> int:
        # of a file that does not consist of lines all is read
        return HEAD if split.bytes_about() > SMALL and not ending_of(split.path) else SMALL

    def last_times(self, stream: Stream, split: Split) -> pa.Array:
        if split.bytes_about() <= SMALL:
            return self.all_times(stream, split)
        times = json_source.last_times(stream, split.path, split.version)
        return SourceFormat.last_times(self, stream, split) if times is None else times

    def schemas(self, stream: Stream) -> Mapping[str, pa.Schema]:
        files = self.files(stream).paths
        chosen = sorted({round(at * (len(files) - 1) / (SAMPLED - 1)) for at in range(SAMPLED)}) if files else []
        places = [Place.of(files[at]) for at in chosen]
        guess = guess_json([place.local() if place.is_local else place for place in places], stream.source.records)
        fields = [pa.field(column.name, _arrow(column.type, column.name == stream.time)) for column in guess.columns]
        fields += [pa.field(name, _arrow(type_, False, name, stream.time)) for name, type_ in guess.nested]
        return {stream.source.path: pa.schema(fields)}

    def is_of(self, beginning: bytes) -> bool:
        text = beginning.removeprefix(BOM).lstrip()
        return re.match(rb'\{\s*"|\[\s*\{\s*"', text) is not None

    def guess(self, files: Sequence[Path | Place]) -> Guess:
        guess = guess_json(files)
        nulls = tuple(dict.fromkeys(text for column in (*guess.columns, *guess.fields) for text in column.null))
        options = {"null": nulls, "records": guess.records}
        return Guess(guess.columns, options, guess.row_bytes, True, guess.nested, guess.fields, guess.unused)


def _arrow(type_: Type | Nested, is_time: bool, name: str = "", time: str = "") -> pa.DataType:
    """The Arrow type of a column whose schema nobody declared: texts are times where they are the events'."""
    if isinstance(type_, Nested):
        fields = [
            (field, _arrow(inner, f"{name}.{field}" == time, f"{name}.{field}", time)) for field, inner in type_.fields
        ]
        return pa.struct(fields) if type_.kind == "struct" else pa.list_(fields[0][1])
    return pa.string() if type_ in (DATE, TIMESTAMP) and not is_time else arrow_type(type_)


FORMAT = JsonFormat()
