"""Read the current state of an Iceberg table: its columns, its files, and their deleted rows.

pyiceberg reads the metadata and plans the files. These are Parquet, and read like those of a Delta table whose columns
are identified by ids. Unsupported features (files of other formats, deletes by equality, defaults) are refused by name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import redacted
from optimizer.workload.streams import BY_CATALOGUE
from optimizer.workload.urls import normalised, scheme_of
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place, endpoint
from spark_jobs.streams.sources.delta_source import DeltaFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table

HINT = "version-hint.text"
"""Names the newest metadata of a table without a catalogue."""


def read_iceberg(stream: Stream) -> tuple[pa.Schema, list[DeltaFile]]:
    """The columns of a stream's table and its files, in the order in which they were planned.

    Raises HDL-401 (there is no such table), HDL-405 (it cannot be opened, or uses what is not read here).
    """
    with _failures(stream):
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        table = _table(stream)
        _check_schema(stream, table)
        columns = pa.schema(schema_to_pyarrow(table.schema()))
        tasks = list(table.scan().plan_files())
        deletes: dict[str, dict[str, NDArray[np.int64]]] = {}
        for delete in {each.file_path: each for task in tasks for each in task.delete_files}.values():
            deletes[delete.file_path] = _deleted(stream, delete)
        return columns, [_file(stream, table, columns, task, deletes) for task in tasks]


def _unread(stream: Stream, what: str, hint: str) -> HeddleError:
    return HeddleError("HDL-405", f"stream {stream.name}: the Iceberg table at {stream.source.path} {what}", hint)


@contextmanager
def _failures(stream: Stream) -> Iterator[None]:
    # pyiceberg tells how it reads, and of every file system that it has not
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    try:
        yield
    except (HeddleError, MemoryError):
        raise
    except FileNotFoundError as error:
        message = f"stream {stream.name}: there is no Iceberg table at {stream.source.path}: {_told(error)}"
        raise HeddleError("HDL-401", message, "check `path`") from error
    except Exception as error:
        if type(error).__name__ in ("NoSuchTableError", "NoSuchNamespaceError"):
            message = f"stream {stream.name}: there is no Iceberg table {stream.source.path}: {_told(error)}"
            raise HeddleError("HDL-401", message, "check its name") from error
        hint = "is it whole, and its catalogue described to pyiceberg (PYICEBERG_CATALOG__…, .pyiceberg.yaml)?"
        raise _unread(stream, f"cannot be opened ({type(error).__name__})", hint) from error


def _told(error: Exception) -> str:
    return printable(redacted(" ".join(str(error).split())), 300)


def _table(stream: Stream) -> Table:
    """The table from its catalogue, or from the newest metadata in its folder."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    path = stream.source.path
    if path.startswith(BY_CATALOGUE):
        catalogue, _, name = path.removeprefix(BY_CATALOGUE).partition(".")
        return load_catalog(catalogue).load_table(name)
    properties = {"s3.endpoint": place} if (place := endpoint()) else {}
    if path.endswith(".metadata.json"):
        return StaticTable.from_metadata(path, properties)
    folder = Place.of(path) / "metadata"
    if not (folder / HINT).exists():
        if not folder.exists():
            raise FileNotFoundError(f"{folder} is not there")
        # the newest file there may be of a commit that did not come about
        hint = "name it by its catalogue (`table`), or the metadata.json that is to be read"
        raise _unread(stream, f"has no {HINT}: a catalogue knows which of its metadata is in force", hint)
    version = (folder / HINT).read().decode().strip()
    name = version if version.endswith(".json") else f"v{version}.metadata.json"
    return StaticTable.from_metadata(str(folder / name), properties)


def _check_schema(stream: Stream, table: Table) -> None:
    for field in table.schema().fields:
        if field.initial_default is not None:
            raise _unread(stream, f"has a default for earlier rows ({field.name})", "write the table anew")


def _file(
    stream: Stream,
    table: Table,
    columns: pa.Schema,
    task: Any,
    deletes: Mapping[str, Mapping[str, NDArray[np.int64]]],
) -> DeltaFile:
    data = task.file
    if data.file_format.name != "PARQUET":
        raise _unread(stream, f"has files of {data.file_format.name}", "write it as Parquet")
    deletes_of_file = [deletes[each.file_path].get(data.file_path) for each in task.delete_files]
    rows = [each for each in deletes_of_file if each is not None]
    # which snapshot brought it is not planned: this is the newest that can have
    snapshot = table.current_snapshot()
    written = 0 if snapshot is None else snapshot.timestamp_ms * 1000
    path = _path(stream, data.file_path)
    return DeltaFile(
        data.file_path,
        path,
        _identical(table, columns, data),
        None,
        None,
        int(data.file_size_in_bytes),
        written,
        np.unique(np.concatenate(rows)) if rows else None,
        "id",
        table=str(table.metadata.table_uuid),
    )


def _path(stream: Stream, text: str) -> str:
    """Path or URL of a file."""
    if text.startswith("file:"):
        return "/" + text.removeprefix("file:").lstrip("/")
    if scheme_of(text) is None:
        return text
    return normalised(text)


def _identical(table: Table, columns: pa.Schema, data: Any) -> dict[str, pa.Scalar]:
    """The values of columns by which the table is partitioned as they are: files of other writers may lack them."""
    values = {}
    for number, field in enumerate(table.specs()[data.spec_id].fields):
        if str(field.transform) != "identity":
            continue
        name = table.schema().find_column_name(field.source_id)
        if name is None or name not in columns.names:
            continue
        value, type_ = data.partition[number], columns.field(name).type
        if isinstance(value, int) and (pa.types.is_date(type_) or pa.types.is_timestamp(type_)):
            values[name] = pa.scalar(value, pa.int32() if pa.types.is_date(type_) else pa.int64()).cast(type_)
        else:
            values[name] = pa.scalar(value, type_)
    return values


def _deleted(stream: Stream, delete: Any) -> dict[str, NDArray[np.int64]]:
    """The rows that a file of deletes names, by the files that they are of, ascending."""
    if delete.content.name != "POSITION_DELETES":
        raise _unread(stream, "has deletes by equality", "compact it (rewrite_data_files), or read it by Spark")
    place = Place.of(_path(stream, delete.file_path))
    with place.open() as file:
        if delete.file_format.name == "PUFFIN":
            from pyiceberg.table.puffin import PuffinFile

            positions_by_file: Iterable[tuple[str, Any]] = PuffinFile(bytes(file.read())).to_vector().items()
            return {
                name: np.sort(np.asarray(positions.to_numpy(), dtype=np.int64)) for name, positions in positions_by_file
            }
        rows = pq.read_table(file, columns=["file_path", "pos"], page_checksum_verification=True)
    names = rows["file_path"].cast(pa.string())
    return {
        name: np.sort(rows["pos"].filter(pc.equal(names, name)).to_numpy().astype(np.int64))
        for name in pc.unique(names).to_pylist()
    }
