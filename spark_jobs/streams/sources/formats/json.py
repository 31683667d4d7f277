"""JSON files: lines, arrays, and arrays inside objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from optimizer.workload.nested import Nested
from optimizer.workload.partitions import folder_names
from optimizer.workload.values import DATE, TIMESTAMP, Stream, Type
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources import json_source
from spark_jobs.streams.sources.compression import codec_ending, with_codecs
from spark_jobs.streams.sources.csv_source import BOM, HEAD
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.formats.source_format import (
    SMALL,
    DuckdbReading,
    DuckdbText,
    Guess,
    ReadByRun,
    SourceFormat,
    SparkReading,
    unreadable_by_spark,
)
from spark_jobs.streams.sources.json_guess import guess_json
from spark_jobs.streams.sources.leaves import path_of
from spark_jobs.streams.sources.splits import Split

LARGEST = 64 << 20
"""Bytes of an object with an array of records that the audit reads with DuckDB."""

SAMPLED = 8
"""Files at most from whose beginnings an undeclared schema is taken."""


class JsonFormat(SourceFormat):
    """Folders of JSON files: :mod:`spark_jobs.streams.sources.json_source` reads them. A key that a record lacks is
    null.
    """

    name = "json"
    was_copied = True
    is_schema_sampled = True
    reads_fields = True
    endings = with_codecs([".json", ".jsonl", ".ndjson", ".geojson"])

    def columns(
        self, stream: Stream, split: Split, names: Sequence[str], needed: Sequence[str] = ()
    ) -> dict[str, pa.DataType | None]:
        # a key may be in any record, but what the folders are named by hardly is
        below = split.path.removeprefix(stream.source.path).split("/")[:-1]
        folders = {name.lower() for name in folder_names(below)}.intersection(map(str.lower, names))
        if not folders:
            return dict.fromkeys(names)
        named = [name for name in names if name.lower() in folders]
        rows = self.head(stream, split, named)
        empty = {name for name in named if rows is None or rows.column(name).null_count == len(rows)}
        return dict.fromkeys(name for name in names if name not in empty)

    def read(
        self, stream: Stream, split: Split, columns: Sequence[str], encoded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        return json_source.read_json(stream, split.path, columns, split.version)

    def head(self, stream: Stream, split: Split, columns: Sequence[str]) -> pa.RecordBatch | None:
        return next(json_source.read_json(stream, split.path, columns, split.version, HEAD), None)

    def tail_bytes(self, split: Split) -> int:
        # of a file that does not consist of lines all is read
        return HEAD if split.bytes_about() > SMALL and not codec_ending(split.path) else SMALL

    def last_times(self, stream: Stream, split: Split) -> pa.Array:
        if split.bytes_about() <= SMALL:
            return self.all_times(stream, split)
        times = json_source.last_json_times(stream, split.path, split.version)
        return SourceFormat.last_times(self, stream, split) if times is None else times

    def spark_reading(self, stream: Stream, splits: Sequence[Split]) -> SparkReading:
        files = list(dict.fromkeys(split.path for split in splits))
        if stream.nested:
            raise unreadable_by_spark(stream, "nested columns of JSON")
        if stream.source.records is not None or any(_first_mark(path) == b"[" for path in files):
            raise unreadable_by_spark(stream, "arrays of records")
        if stream.source.null or any(codec_ending(path) == ".zst" for path in files):
            raise unreadable_by_spark(stream, "texts that are null, or files that end in .zst")
        return SparkReading(self.name, files, {}, tuple(dict(stream.schema)))

    def duckdb_reading(self, stream: Stream, paths: Sequence[str], is_numbered: bool) -> DuckdbReading:
        if any(codec_ending(path) == ".bz2" for path in paths):
            raise ReadByRun("DuckDB does not read bzip2")
        beginnings = {_first_mark(path) for path in paths} - {b""}
        if len(beginnings) > 1:
            raise ReadByRun("files of different layouts")
        options: dict[str, Any] = {"format": "array" if beginnings == {b"["} else "unstructured"}
        keys = json_source.records_path(stream)
        relation = "{}"
        if keys:
            options["maximum_object_size"] = LARGEST
            place = _literal(f"$.{'.'.join(map(_json_key, keys))}[*]")
            # of an object without the array there would be no row
            relation = f"(SELECT unnest(json_extract(json, {place})) AS json, * EXCLUDE (json) FROM {{}})"
        if is_numbered:
            relation = f"(SELECT *, row_number() OVER () - 1 AS number FROM {relation})"
        return DuckdbReading(
            "read_json_objects",
            list(paths),
            options,
            "number",
            relation=relation,
            text_of=lambda name: _duckdb_text(stream, name),
        )

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


def _first_mark(path: str) -> bytes:
    """The first character of a file's content, but spaces; none: it has none."""
    with pa.input_stream(path) as file:
        return bytes(file.read(HEAD)).removeprefix(BOM).lstrip()[:1]


def _literal(text: str) -> str:
    """A text as a constant of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _json_key(name: str) -> str:
    """A key in a path of DuckDB."""
    if '"' in name or "\\" in name or "*" in name:
        raise ReadByRun("the name of a key")
    return f'"{name}"'


def _duckdb_text(stream: Stream, name: str) -> DuckdbText:
    """A column as DuckDB takes it out of a record."""
    path = path_of(stream, name)
    steps = [path.root, *(step.value for step in path.steps)]
    place = _literal("$" + "".join(f"[{step}]" if isinstance(step, int) else f".{_json_key(step)}" for step in steps))
    value, kind = f"(e.json ->> {place})", f"json_type(e.json, {place})"
    type_ = stream.types[name]
    # DuckDB writes a number anew, and keeps the digits of a double at most
    doubts = ["json_type(e.json) <> 'OBJECT'", f"{kind} IN ('OBJECT', 'ARRAY')"]
    if type_.name == "string":
        doubts.append(f"{kind} NOT IN ('VARCHAR', 'NULL')")
    elif type_.name == "decimal":
        doubts.append(f"{kind} = 'DOUBLE' AND length({value}) > 15")
    fields = [step for step in steps if isinstance(step, str)]
    if not all(field.isascii() for field in fields):
        raise ReadByRun("the name of a key")
    text, lower = "e.json::VARCHAR", "lower(e.json::VARCHAR)"
    for field in fields:
        # a key in another case, or written with escapes, is one that DuckDB does not know
        key, known = _literal(f'"{field}"'), _literal(f'"{field.lower()}"')
        any_case = f"length({lower}) - length(replace({lower}, {known}, ''))"
        exact = f"length({text}) - length(replace({text}, {key}, ''))"
        doubts.append(f"{value} IS NULL AND (contains({text}, '\\u00') OR {any_case} <> {exact})")
    if stream.source.null:
        value = f"(CASE WHEN {value} IN ({', '.join(map(_literal, stream.source.null))}) THEN NULL ELSE {value} END)"
    return DuckdbText(value, tuple(f"coalesce({doubt}, false)" for doubt in doubts))


def _arrow(type_: Type | Nested, is_time: bool, name: str = "", time: str = "") -> pa.DataType:
    """The Arrow type of a column whose schema nobody declared: texts are times where they are the events'."""
    if isinstance(type_, Nested):
        fields = [
            (field, _arrow(inner, f"{name}.{field}" == time, f"{name}.{field}", time)) for field, inner in type_.fields
        ]
        return pa.struct(fields) if type_.kind == "struct" else pa.list_(fields[0][1])
    return pa.string() if type_ in (DATE, TIMESTAMP) and not is_time else arrow_type(type_)


FORMAT = JsonFormat()
