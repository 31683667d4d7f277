"""Dimensions: read, checked, and looked up for the events of a stream.

A run reads each dimension once, and stores the columns that it uses as one *version*, named by its content. Tasks look
up the keys of events in that file, so that all answers of a run come from the same rows.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.attributes import attributes_in
from optimizer.workload.dimensions import with_columns
from optimizer.workload.values import STRING, TIMESTAMP, Dimension, DimensionVersion, Stream, digest
from spark_jobs.store.settings import settings
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.csv_guess import guess_column
from spark_jobs.streams.sources.decoding import common_columns, folder_columns, read_split
from spark_jobs.streams.sources.dimension_rows import ALWAYS, MARK, VALID_FROM, VALID_TO, attribute_name
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.splits import failures_of

DUPLICATE, TOO_LARGE = "HDL-462", "HDL-463"
"""Codes of a dimension whose key is not unique, and of one that does not fit a task."""

SHARE_OF_TASK = 8
"""The columns of a dimension that are used fit this part of a task's memory."""

OTHERS_SHOWN = 5
"""Other keys with several rows that an error names."""

_HASHES = b"heddle"
"""Metadata of a version's file: the hashes of its columns."""


def stream_of_rows(dimension: Dimension) -> Stream:
    """The stream that reads a dimension's rows. It has no time."""
    return Stream(dimension.name, dimension.source, dimension.schema, "")


def with_schema_of_files(dimension: Dimension) -> tuple[Dimension, tuple[Diagnostic, ...]]:
    """A dimension that leaves its schema out with the columns and types that its files have. Types of texts fit all
    values.

    Raises what :func:`optimizer.workload.dimensions.with_columns` and reading raise, with the dimension's name.
    """
    if dimension.schema:
        return dimension, ()
    try:
        return _with_schema_of_files(dimension)
    except HeddleError as error:
        raise _of_dimension(dimension, error) from error


def _with_schema_of_files(dimension: Dimension) -> tuple[Dimension, tuple[Diagnostic, ...]]:
    stream = stream_of_rows(dimension)
    with failures_of(stream, stream.source.path):
        files = sorted({split.path for split in splits_of(stream)})
        if not files and not format_of(stream).is_table:
            message = f"dimension {dimension.name}: {stream.source.path} holds no data"
            raise HeddleError("HDL-401", message, "check the path")
        guess = format_of(stream).guess([Place.of(path) for path in files[:3]]) if files else None
        if guess is None:
            pairs, _, warnings = common_columns(stream, format_of(stream).schemas(stream), folder_columns(stream))
            return with_columns(dimension, pairs), warnings
    source = replace(dimension.source, **{key: value for key, value in guess.options.items() if key != "null"})
    texts = replace(dimension, source=source, schema=tuple((column.name, STRING) for column in guess.columns))
    rows = read_rows(texts, [column.name for column in guess.columns])
    guessed = [
        guess_column(name, ["" if text is None else text for text in rows[name].to_pylist()])
        for name, _ in texts.schema
    ]
    nulls = tuple(dict.fromkeys((*source.null, *(text for column in guessed for text in column.null))))
    formats = {column.formats for column in guessed if column.type == TIMESTAMP}
    columns = []
    for column in guessed:
        is_other_format = column.type == TIMESTAMP and column.formats != ()
        columns.append((column.name, STRING if is_other_format and len(formats) > 1 else column.type))
    pattern = next((known[0] for known in formats if known), None) if len(formats) == 1 else None
    source = replace(source, null=nulls, timestamp_format=source.timestamp_format or pattern)
    return with_columns(replace(dimension, source=source), [*columns, *folder_columns(stream)]), ()


def files_of_dimension(dimension: Dimension) -> list[str]:
    """The paths of a dimension's files. Raises HDL-401 without files, and what listing files raises."""
    try:
        paths = sorted({split.path for split in splits_of(stream_of_rows(dimension))})
    except HeddleError as error:
        raise _of_dimension(dimension, error) from error
    if not paths:
        message = f"dimension {dimension.name}: {dimension.source.path} holds no data"
        raise HeddleError("HDL-401", message, "check the path")
    return paths


def read_rows(dimension: Dimension, columns: Iterable[str]) -> pa.Table:
    """The rows of a dimension: (n,) of each of some columns, in the Arrow types of the declared ones.

    Raises HDL-401 without files, and what :func:`spark_jobs.streams.sources.decoding.read_split` raises.
    """
    stream, names = stream_of_rows(dimension), list(dict.fromkeys(columns))
    schema = pa.schema([(name, arrow_type(dict(dimension.schema)[name])) for name in names])
    try:
        splits = splits_of(stream)
        batches = [batch.select(names) for split in splits for batch in read_split(stream, split, names)]
    except HeddleError as error:
        raise _of_dimension(dimension, error) from error
    if not splits and not format_of(stream).is_table:
        message = f"dimension {dimension.name}: {dimension.source.path} holds no data"
        raise HeddleError("HDL-401", message, "check the path")
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)


def _of_dimension(dimension: Dimension, error: HeddleError) -> HeddleError:
    """An error of reading a stream as one of the dimension."""
    about, text = error.diagnostic, error.diagnostic.message
    return HeddleError.of(
        replace(about, message=text.replace(f"stream {dimension.name}", f"dimension {dimension.name}"))
    )


# ---------------------------------------------------------------------------------------------- versions
def version_rows(dimension: Dimension, columns: Collection[str]) -> pa.Table:
    """The rows of a dimension as a version stores them: its key, :data:`VALID_FROM` and :data:`VALID_TO` if it has
    validities, and some columns, ordered by key and validity. Rows with a null in the key match no event and are left
    out.

    Raises HDL-462 if a key has two rows at a time, HDL-463 if they do not fit a task, and what :func:`read_rows`
    raises.
    """
    names = [name for name in dict(dimension.schema) if name in columns and name not in dimension.key]
    rows = read_rows(dimension, [*dimension.special, *names]).combine_chunks()
    for key in dimension.key:
        if rows[key].null_count:
            rows = rows.filter(pc.is_valid(rows[key]))
    order = [(key, "ascending") for key in dimension.key]
    parts = {key: rows[key] for key in dimension.key}
    if dimension.valid_from is not None:
        begin = _instants(rows[dimension.valid_from], ALWAYS[0])
        end = _instants(rows[dimension.valid_to], ALWAYS[1]) if dimension.valid_to is not None else None
        parts[VALID_FROM] = pa.chunked_array([begin])
        parts[VALID_TO] = pa.chunked_array([pa.array(np.full(len(rows), ALWAYS[1])) if end is None else end])
        order += [(VALID_FROM, "ascending"), (VALID_TO, "ascending")]
    ordered = pa.table(parts | {attribute_name(name): rows[name] for name in names})
    ordered = ordered.take(pc.sort_indices(ordered, order)).combine_chunks()
    most = settings().task_memory.bytes // SHARE_OF_TASK
    if ordered.nbytes > most:
        message = (
            f"dimension {dimension.name}: its key and {len(names)} columns that queries use take {_mib(ordered.nbytes)}"
        )
        hint = f"{_mib(most)} fit: an eighth of HEDDLE_TASK_MEMORY; give tasks more, or use fewer columns"
        raise HeddleError(TOO_LARGE, message, hint)
    return _unique(dimension, ordered)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def _instants(column: pa.ChunkedArray, missing: int) -> pa.Array:
    """Validities as microseconds (n,); ``missing``: what null is."""
    moments = column.combine_chunks()
    return pc.fill_null(moments.cast(arrow_type(TIMESTAMP)).cast(pa.int64()), missing)


def _unique(dimension: Dimension, rows: pa.Table) -> pa.Table:
    """The ordered rows, without those that are valid at no time. Raises HDL-462 where two are valid at a time."""
    if dimension.valid_from is None:
        same = _same_key(rows, dimension.key)
        if same.any():
            raise _duplicate(dimension, rows, same)
        return rows
    begin, end = (rows[name].to_numpy().copy() for name in (VALID_FROM, VALID_TO))
    same = _same_key(rows, dimension.key)
    if dimension.valid_to is None:
        # a row is valid until the next one of its key
        if (twice := same & (begin[1:] == begin[:-1])).any():
            raise _duplicate(dimension, rows, twice)
        end[:-1][same] = begin[1:][same]
        rows = rows.set_column(rows.schema.get_field_index(VALID_TO), VALID_TO, pa.array(end))
    is_valid = begin < end
    if not is_valid.all():
        rows, begin, end = rows.filter(pa.array(is_valid)), begin[is_valid], end[is_valid]
        same = _same_key(rows, dimension.key)
    if (overlap := same & (begin[1:] < end[:-1])).any():
        raise _duplicate(dimension, rows, overlap)
    return rows


def _same_key(rows: pa.Table, key: Sequence[str]) -> NDArray[np.bool_]:
    """Compare the keys of neighbours: (n - 1,), true where a row has the key of the one before it."""
    same = np.ones(max(len(rows) - 1, 0), dtype=bool)
    for name in key if len(rows) > 1 else ():
        same &= pc.equal(rows[name].slice(1), rows[name].slice(0, len(rows) - 1)).to_numpy()
    return same


def _duplicate(dimension: Dimension, rows: pa.Table, same: NDArray[np.bool_]) -> HeddleError:
    """The error of some rows; ``same``: whether each but the first has the key, and a time, of the one before it."""
    places = np.flatnonzero(same)
    first, second = rows.slice(int(places[0]), 2).to_pylist()
    key = ", ".join(f"{name} = {first[name]!r}" for name in dimension.key)
    # several rows of one key are a run of places
    keys = rows.select(dimension.key).take(places[np.insert(np.diff(places) > 1, 0, True)])
    others = [", ".join(map(str, row.values())) for row in keys.slice(1).to_pylist()]
    shown = [
        ", ".join(
            f"{name.strip(MARK).replace(MARK, ' ')}: {_shown(name, row[name])}"
            for name in list(row)[len(dimension.key) :][:6]
        )
        for row in (first, second)
    ]
    when = "" if dimension.valid_from is None else " at one time"
    message = f"dimension {dimension.name} has two rows for {key}{when}: ({shown[0]}) and ({shown[1]})"
    if others:
        more = f", … {len(others) - OTHERS_SHOWN:,} more" if len(others) > OTHERS_SHOWN else ""
        message += f"; so have {'; '.join(others[:OTHERS_SHOWN])}{more}"
    hint = "remove one, or name the columns that tell them apart: more key columns, or valid_from and valid_to"
    return HeddleError(DUPLICATE, message, hint)


def _shown(name: str, value: Any) -> str:
    if name in (VALID_FROM, VALID_TO):
        return "open" if value in ALWAYS else str(np.datetime64(value, "us"))
    return "null" if value is None else repr(str(value))[:64]


def store_version(dimension: Dimension, columns: Collection[str], folder: Place) -> DimensionVersion:
    """Read a dimension and store the version that its content is, unless it is stored in the ``folder`` of versions.

    Raises what :func:`version_rows` raises.
    """
    rows = version_rows(dimension, columns)
    special = [name for name in rows.column_names if not name.startswith(MARK) or name in dimension.key]
    basis = digest([len(rows), *([name, _content(rows[name])] for name in special)])
    hashes = [(name[1:], _content(rows[name])) for name in rows.column_names[len(special) :]]
    known = dict(hashes) | dict.fromkeys(dimension.key, basis)
    hashes = sorted(known.items())
    place = folder / f"{digest([basis, *map(list, hashes)])}.parquet"
    version = DimensionVersion(str(place), basis, tuple(hashes))
    if not place.exists():
        marked = rows.replace_schema_metadata({_HASHES: json.dumps([basis, hashes]).encode()})
        sink = pa.BufferOutputStream()
        pq.write_table(marked, sink, compression="zstd")
        place.put(sink.getvalue().to_pybytes())
    return version


def stored_version(place: Place) -> DimensionVersion | None:
    """The version in a file; None if the file is gone."""
    try:
        # what a process knows of a file outlives it
        basis, hashes = _hashes(str(place)) if place.exists() else ("", ())
    except OSError:
        return None
    return DimensionVersion(str(place), basis, hashes) if basis else None


@lru_cache(maxsize=256)
def _hashes(place: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    basis, hashes = json.loads(pq.read_schema(Place(place).open()).metadata[_HASHES])
    return basis, tuple((name, hash) for name, hash in hashes)


def _content(column: pa.ChunkedArray) -> str:
    """The hash of a column's values in their order."""
    values = column.combine_chunks()
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    known = values.is_valid().to_numpy(zero_copy_only=False)
    content = hashlib.sha256(f"{column.type}|{len(values)}|".encode())
    content.update(np.packbits(known).tobytes())
    if pa.types.is_string(values.type):
        filled = pc.fill_null(values, "")
        content.update(pc.binary_length(filled).to_numpy().tobytes())
        content.update("".join(filled.to_pylist()).encode())
    else:
        days = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
        numbers = days.cast(pa.int64()) if not pa.types.is_floating(values.type) else values
        content.update(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).tobytes())
    return content.hexdigest()[:16]


def stream_with_versions(stream: Stream, versions: Mapping[str, DimensionVersion]) -> Stream:
    """The stream with versions of its dimensions, by their names; the others without one."""
    dimensions = tuple(replace(dimension, version=versions.get(dimension.name)) for dimension in stream.dimensions)
    return replace(stream, dimensions=dimensions)


def pinned_stream(stream: Stream, columns: Iterable[str]) -> Stream:
    """A stream with its dimensions as they are now, as far as some of its columns are attributes. Writes nothing to a
    warehouse. Raises what reading the dimensions raises."""
    used: dict[str, set[str]] = {}
    for attribute in attributes_in(stream, columns).values():
        used.setdefault(attribute.dimension, set()).update(filter(None, [attribute.column]))
    if not used:
        return stream
    versions = {name: store_version(stream.dimension(name), of, passing(name)) for name, of in used.items()}
    return stream_with_versions(stream, versions)


@cache
def passing(name: str) -> Place:
    """A folder of this process for versions that no run uses."""
    folder = Place(_temporary().name) / name
    folder.make_folder()
    return folder


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="heddle-dimensions-")
