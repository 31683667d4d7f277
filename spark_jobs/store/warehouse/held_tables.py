"""Tables that a process opens once and then updates: opening one reads its log, with a request per commit in a store.

The log's statistics of a file (the least and the greatest value of each column) become a condition for Arrow, by
which it skips the file. delta-rs builds one of all columns of all files each time, a tenth of a second for a year's
days. So this module builds it only of the columns that the reader's condition names, once per process and file:
files never change.

Small files of a store are read completely and cached: they never change, and reading some columns takes as many
requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from spark_jobs.store.storage import SMALL, Place, keep, kept, reached_by
from spark_jobs.store.warehouse.checksums import check_bytes, check_committed


class TableAt(DeltaTable):
    """A table that is kept open, at a version: its content stays the same when the other one advances."""

    def __init__(self, current: DeltaTable) -> None:
        self._current, self._at = current, int(current.version())
        self._storage_options = None
        self._own: DeltaTable | None = None
        self._actions: dict[bool, Any] = {}

    @property
    def _table(self) -> Any:
        if self._own is None:
            if int(self._current.version()) == self._at:
                return self._current._table
            self._own = DeltaTable(self._current.table_uri, version=self._at)
        return self._own._table

    def version(self) -> int:
        """Its version, whatever was committed since."""
        return self._at

    def get_add_actions(self, flatten: bool = False) -> Any:
        """The files of its version, which are listed once."""
        if flatten not in self._actions:
            self._actions[flatten] = super().get_add_actions(flatten)
        return self._actions[flatten]


AT_ONCE = 8
"""Files that are read side by side: a request takes longer than what it brings."""

_threads = threading.local()

_Key = tuple[int, str, str, tuple[str, ...]]
"""What tells a table from others: process, URL, identity and how its store is reached."""


def current_table(url: str, identity: str, log: Path | None = None) -> DeltaTable:
    """The table at a URL as it is now. ``identity``: another one for another table at the same place; ``log``: the
    folder of its log on this machine, by which that is seen. Raises what delta-rs raises."""
    # neither threads nor processes that were forked share one
    key = (os.getpid(), url, identity, reached_by())
    tables = _tables()
    known, stamp = tables.get(key, (None, None))
    # before the log is read: what changes meanwhile is another one the next time
    checkpoint = _status(log, "_last_checkpoint")
    if known is not None and (_commit(log, known), checkpoint) == stamp:
        # versions follow one another: to look for a file takes a hundredth of listing a log
        if log is not None and _status(log, f"{known.version() + 1:020}.json") is None:
            return _at_now(key, known)
        # its log may no longer go on from where it was
        with suppress(DeltaError):
            known.update_incremental()
            tables[key] = known, (_commit(log, known), checkpoint)
            return _at_now(key, known)
    known = DeltaTable(url)
    tables[key] = known, (_commit(log, known), checkpoint)
    return _at_now(key, known)


def _at_now(key: _Key, known: DeltaTable) -> TableAt:
    """A table at the version that it has now: the same object as before, if nothing was committed since."""
    at_version: dict[_Key, tuple[DeltaTable, TableAt]] = _threads.__dict__.setdefault("at", {})
    if key not in at_version or at_version[key][0] is not known or at_version[key][1].version() != known.version():
        at_version[key] = known, TableAt(known)
    return at_version[key][1]


def note_commit(url: str, identity: str, log: Path | None, before: int) -> None:
    """Note that this thread has just committed to :func:`current_table` on top of the version ``before``, under the
    lease: delta-rs has read its own commit, so the table need not be opened again."""
    key = (os.getpid(), url, identity, reached_by())
    known, stamp = _tables().get(key, (None, None))
    if known is not None and known.version() == before + 1 and _status(log, "_last_checkpoint") == stamp[1]:
        _tables()[key] = known, (_commit(log, known), stamp[1])


def _tables() -> dict[_Key, tuple[DeltaTable, Any]]:
    """The tables of this thread, each with what tells its newest commit and its checkpoint from others."""
    tables: dict[_Key, tuple[DeltaTable, Any]] = _threads.__dict__.setdefault("tables", {})
    return tables


def _commit(log: Path | None, table: DeltaTable) -> Any:
    """Identity of a log and its newest commit. It changes if the log is not the one that was read, because it was
    restored or recreated.
    """
    return _status(log, ""), _status(log, f"{table.version():020}.json")


def _status(log: Path | None, name: str) -> tuple[int, ...] | None:
    """Identity of a file of a log, to distinguish it from another one in its place; None: it does not exist.

    A table reads its checkpoint when its files are listed: with another checkpoint, the former files may be missing.
    """
    if log is None:
        return None
    try:
        status = (log / name).stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns) if name else (status.st_ino,)


PADDING = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""Most that the greatest moment may be later than the log's value, which has milliseconds: in each unit."""


Files = Callable[[pa.Table], pa.Array]
"""A choice of files: the mask (n,) over the rows (n,) of a table's log, flattened as delta-rs does it."""


def pruned_dataset(
    current: DeltaTable, filesystem: pa.fs.FileSystem, where: ds.Expression | None, files: Files | None = None
) -> ds.Dataset:
    """A table's dataset. Scans with a condition skip at least the files that can contain no row that meets it.

    ``where``: the condition; None: nothing is known of it. ``files``: a choice that is quick for many files, by
    statistics; files that are not chosen are not there.
    """
    actions = pa.table(current.get_add_actions(flatten=True))
    total = len(actions)
    if files is not None and total:
        actions = actions.filter(files(actions))
    if where is None or current.protocol().min_reader_version > 1:
        paths = None if files is None else frozenset(actions["path"].to_pylist())
        return _page_checked(current.to_pyarrow_dataset(filesystem=filesystem), paths)
    schema = pa.schema(current.schema().to_arrow())
    partitions = [name for name in schema.names if f"partition.{name}" in actions.schema.names]
    text = str(where)
    # a name in a literal is one condition too many
    columns = tuple(name for name in schema.names if name in partitions or name in text)
    conditions: dict[tuple[str, tuple[str, ...]], dict[str, ds.Expression]] = _threads.__dict__.setdefault("known", {})
    key = current.table_uri, columns
    before, paths = conditions.get(key, {}), actions["path"].to_pylist()
    new = [number for number, path in enumerate(paths) if path not in before]
    new_conditions = _conditions(schema, columns, actions.take(pa.array(new, pa.int64())))
    known = before | dict(zip((paths[number] for number in new), new_conditions, strict=True))
    known = {path: known[path] for path in paths}
    # of files that are not chosen nothing is forgotten, unless most are no longer in the table
    conditions[key] = known if files is None or len(before) > total else before | known
    fragments = [
        FORMAT.make_fragment(path, filesystem=filesystem, partition_expression=each) for path, each in known.items()
    ]
    return ds.FileSystemDataset(fragments, schema, FORMAT, filesystem)


FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)
)
"""Format for scanning files: a page that differs from what was written is an error, if it has a checksum."""


def _page_checked(dataset: ds.Dataset, paths: Collection[str] | None = None) -> ds.Dataset:
    fragments = [
        FORMAT.make_fragment(each.path, each.filesystem, partition_expression=each.partition_expression)
        for each in dataset.get_fragments()
        if paths is None or each.path in paths
    ]
    return ds.FileSystemDataset(fragments, dataset.schema, FORMAT, dataset.filesystem)


def checked_files(dataset: ds.Dataset, current: DeltaTable, table: Place, where: ds.Expression | None) -> ds.Dataset:
    """The dataset with the files alone that may hold rows that meet a condition, which have been looked at: each is as
    large as the log has it, and has the footer that its name has. Raises OSError with the file's name.

    Small files of a store are looked at when they are read (:func:`with_small_files`).
    """
    sizes: dict[str, int] = current._table.get_add_file_sizes()
    chosen = list(dataset.get_fragments(filter=where))
    for fragment in chosen:
        # a file that was committed meanwhile is in neither
        size = sizes.get(fragment.path)
        if size is None or (size <= SMALL and not table.is_local):
            continue
        with _naming(fragment.path):
            check_committed(table / fragment.path, size)
    return ds.FileSystemDataset(chosen, dataset.schema, dataset.format, dataset.filesystem)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add a file's name to errors. A missing file keeps its kind of error."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(f"{path}: {error}") from error


def _conditions(schema: pa.Schema, columns: Sequence[str], actions: pa.Table) -> Iterator[ds.Expression]:
    """Yield for each of some files (n,) the condition on some columns that all of its rows meet."""
    column_stats = {name: _told(schema.field(name).type, name, actions) for name in columns}
    for number in range(len(actions)):
        known = ds.scalar(True)
        for name, (values, nulls, least, most) in column_stats.items():
            column = ds.field(name)
            if values is not None:
                known &= column.is_null() if values[number] is None else column == values[number]
                continue
            bounds = [column >= least[number]] * (least[number] is not None)
            bounds += [column <= most[number]] * (most[number] is not None)
            for bound in bounds:
                known &= bound if nulls[number] == 0 else bound | column.is_null()
        yield known


def _told(arrow: pa.DataType, name: str, actions: pa.Table) -> tuple[Any, list[Any], list[Any], list[Any]]:
    """Statistics of a column of some files, as scalars: its one value, if it is a partition's, its number of nulls,
    its least and its greatest value; None: unknown.
    """

    def scalars(column: str) -> list[Any]:
        known = column in actions.schema.names
        if not known or not (pa.types.is_integer(arrow) or pa.types.is_timestamp(arrow) or pa.types.is_string(arrow)):
            return [None] * len(actions)
        values = actions[column].cast(arrow)
        if column.startswith("max.") and pa.types.is_timestamp(arrow):
            values = pc.add(values.cast(pa.int64()), PADDING[arrow.unit]).cast(arrow)
        return [value if value.is_valid else None for value in values]

    if f"partition.{name}" in actions.schema.names:
        return scalars(f"partition.{name}"), [], [], []
    nulls = actions[f"null_count.{name}"].to_pylist() if f"null_count.{name}" in actions.schema.names else []
    return None, nulls or [None] * len(actions), scalars(f"min.{name}"), scalars(f"max.{name}")


def with_small_files(
    table: ds.Dataset, current: DeltaTable, where: ds.Expression | None, is_checked: bool = False
) -> ds.Dataset:
    """A table's dataset with the files alone that may hold rows that meet a condition, the small ones in memory: each
    took one request, or none if this process has had it before. ``is_checked``: they have to be what was committed.
    Raises OSError."""
    sizes: dict[str, int] = current._table.get_add_file_sizes()
    handler = DeltaStorageHandler.from_table(current._table, None, sizes)
    chosen = list(table.get_fragments(filter=where))
    with ThreadPoolExecutor(AT_ONCE) as readers:
        contents = list(
            readers.map(lambda file: _content(handler, current.table_uri, file.path, sizes, is_checked), chosen)
        )
    fragments = [
        file if content is None else table.format.make_fragment(content, partition_expression=file.partition_expression)
        for file, content in zip(chosen, contents, strict=True)
    ]
    return ds.FileSystemDataset(fragments, table.schema, table.format)


def _content(
    handler: DeltaStorageHandler, root: str, path: str, sizes: Mapping[str, int], is_checked: bool
) -> pa.Buffer | None:
    """A small file; None if it is not small."""
    if sizes.get(path, SMALL + 1) > SMALL:
        return None
    url = f"{root.rstrip('/')}/{path}"
    content = kept(url)
    if content is None:
        # its size is known: Arrow's own file system would ask for it
        with handler.open_input_file(path) as file, _naming(path):
            read = file.read()
            if is_checked:
                check_bytes(path, read, sizes[path])
            content = keep(url, pa.py_buffer(read))
    return content
