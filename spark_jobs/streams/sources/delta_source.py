"""Read the current state of a Delta table from its log: its columns, its files, and facts that a file lacks.

The protocol and the configuration of a table define what a reader must support. Features that :data:`FEATURES` does
not list are refused by name, never guessed at.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.urls import SCHEMES, normalised, scheme_of
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place, check_bucket, is_refusal
from spark_jobs.store.warehouse.data_files import log_place
from spark_jobs.streams.sources.delta_paths import TwoNames, current_names

if TYPE_CHECKING:
    from deltalake import DeltaTable

FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Reader features that are understood; files are read by their own types, and checked against those declared."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:\d{10}\.(\d{10})\.|[0-9a-f-]{36}\.)?(?:parquet|json)")


@dataclass(frozen=True)
class DeltaFile:
    """A data file of a table.

    - ``name``: as in the log, which never gives it to other content;
    - ``partition``: the values of the partition columns;
    - ``begin``, ``end``: its events lie in [begin, end) microseconds, None if the log has no statistics;
    - ``size``, ``modified`` (microseconds): as in the log;
    - ``deleted``: its deleted rows, ascending, None if there are none;
    - ``mapped``: how its columns are identified, ``name`` or ``id``, None: by the table's own names;
    - ``commit``: the state of the table that has it (:attr:`DeltaSnapshot.commit`), if from then on the table's
      feed shows
      which rows change;
    - ``table``: the id of the table, which changes if the table is recreated.
    """

    name: str
    path: str
    partition: dict[str, pa.Scalar]
    begin: int | None
    end: int | None
    size: int
    modified: int
    deleted: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    mapped: str | None = None
    commit: str | None = field(default=None, compare=False)
    table: str = ""

    @property
    def identity(self) -> str:
        """A name that changes whenever its rows, or their columns, may change."""
        name = f"{self.table}|{self.name}"
        if self.deleted is None:
            return name
        return f"{name}|less {hashlib.sha256(self.deleted.tobytes()).hexdigest()[:16]}"


@dataclass(frozen=True)
class DeltaSnapshot:
    """A version of a table: its ``schema``, and its ``files`` in the order of the log. ``table``: its id, which changes
    if the table is recreated.
    """

    table: str
    version: int
    schema: pa.Schema
    files: tuple[DeltaFile, ...]

    @property
    def commit(self) -> str:
        """Identifier of this version of this table."""
        return f"{self.table}@{self.version}"


def read_log(stream: Stream, version: int | None = None) -> DeltaSnapshot:
    """A stream's table, as it is now or as of a version.

    Raises HDL-401 (there is no table), HDL-405 (it uses what is not read here), HDL-430 (its log has a gap).
    """
    from deltalake import DeltaTable

    root = Place.of(stream.source.path)
    if not _has_log(root):
        check_bucket(root)
        hint = "check `path` and `format`"
        raise HeddleError("HDL-401", f"stream {stream.name}: there is no Delta table at {root}", hint)
    try:
        table = DeltaTable(log_place(root.url), version=version)
        mapped = _check_protocol(stream, table)
        actions = pa.table(table.get_add_actions())
        schema = pa.schema(table.schema().to_arrow())
        vectors = _deleted(stream, root, table)
    except (HeddleError, MemoryError):
        raise
    except BaseException as error:
        # what panics in Rust is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if not root.is_local and isinstance(error, Exception) and is_refusal(error):
            raise OSError(str(error)) from error
        raise _unopened(stream, root, _check_log(stream, root)) from error
    log = _check_log(stream, root)
    actions = _current(stream, root, actions, log, int(table.version()))
    logged = _files(stream, root, actions, _physical(schema, stream.time) if mapped else stream.time)
    snapshot = DeltaSnapshot(str(table.metadata().id), int(table.version()), schema, ())
    # a feed calls columns as the table did when it was written
    commit = snapshot.commit if _has_feed(table) and mapped is None else None
    mapped_so = (replace(file, mapped=mapped, commit=commit, table=snapshot.table) for file in logged)
    files = (replace(file, deleted=vectors.get(file.path)) for file in mapped_so)
    return replace(snapshot, files=tuple(files))


def _has_feed(table: DeltaTable) -> bool:
    """Return whether a table has a change data feed, which its protocol requires every writer to maintain."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    is_kept = 4 <= protocol.min_writer_version < 7 or "changeDataFeed" in (protocol.writer_features or ())
    return is_kept and str(configuration.get("delta.enableChangeDataFeed")).lower() == "true"


def _unread(stream: Stream, what: str, hint: str) -> HeddleError:
    return HeddleError("HDL-405", f"stream {stream.name}: the Delta table at {stream.source.path} {what}", hint)


def _check_protocol(stream: Stream, table: DeltaTable) -> str | None:
    """Return how the columns of files are identified: ``name``, ``id``, or None: by the table's own names."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    # version 2 is column mapping, without any list of features
    mode = configuration.get("delta.columnMapping.mode", "none")
    more = [] if mode in ("none", "name", "id") else [f"columnMapping by {mode}"]
    _check_features(stream, protocol.min_reader_version, [*(protocol.reader_features or ()), *more])
    return None if mode == "none" else mode


def _check_features(stream: Stream, version: int, features: Iterable[str]) -> None:
    """Raise HDL-405 if a protocol requires features that are not supported here."""
    used = sorted(set(features) - FEATURES)
    used += [f"reader version {version}"] if version > 3 else []
    if used:
        hint = f"drop what it does not need (ALTER TABLE … DROP FEATURE {used[0]}), copy it to a table without, "
        hint += "or let Spark read it (`reader: auto`)"
        raise _unread(stream, f"uses {' and '.join(used)}, which is not read", hint)


def _unopened(stream: Stream, root: Place, log: _Log) -> HeddleError:
    """Reason why a table cannot be opened, from the actions of its log: required features, or damage of the log."""
    protocol: dict[str, Any] = {}
    for version in sorted(log.commits):
        name = f"{version:020}.json"
        for number, line in enumerate((root / "_delta_log" / name).read().split(b"\n"), 1):
            try:
                action = json.loads(line) if line.strip() else {}
                protocol = action.get("protocol") or protocol
            except (ValueError, AttributeError):
                hint = "restore the file from a copy, or write the table again"
                return _unread(stream, f"cannot be opened: line {number} of {name} in its log is damaged", hint)
    reader, features = protocol.get("minReaderVersion"), protocol.get("readerFeatures")
    try:
        _check_features(
            stream, reader if isinstance(reader, int) else 1, features if isinstance(features, list) else []
        )
    except HeddleError as error:
        return error
    last = max([*log.commits, *log.checkpoints])
    hint = "if Spark reads it, write it again by Spark; if not, restore its log (`RESTORE TABLE`, or a copy)"
    what = f"cannot be opened at version {last}: an action of its log, or its checkpoint, is damaged or unknown"
    return _unread(stream, what, hint)


def _deleted(stream: Stream, root: Place, table: DeltaTable) -> dict[str, NDArray[np.int64]]:
    """The rows of files that deletion vectors name, by the files' places."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    try:
        vectors = pa.table(table.deletion_vectors())
    except Exception as error:
        # delta-rs 1.6 tells them of no table whose types may be widened
        features = [name for name in table.protocol().reader_features or () if name.startswith("typeWidening")]
        hint = f"ALTER TABLE … DROP FEATURE {(features or ['deletionVectors'])[0]}"
        raise _unread(stream, "uses deletionVectors in a form that is not read", hint) from error
    deleted_rows: dict[str, NDArray[np.int64]] = {}
    above = str(table.table_uri).rstrip("/") + "/"
    for path, selection in zip(vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True):
        # rows behind the last that is deleted are left out of it
        rows = np.flatnonzero(~selection.values.to_numpy(zero_copy_only=False))
        if len(rows):
            deleted_rows[file_place(stream, root, path.removeprefix(above))] = rows
    return deleted_rows


def _physical(schema: pa.Schema, name: str) -> str:
    """Name of a column in the log's statistics of a table with column mapping."""
    at = schema.get_field_index(name)
    physical_name = b"" if at < 0 else (schema.field(at).metadata or {}).get(b"delta.columnMapping.physicalName", b"")
    return physical_name.decode() or name


def _has_log(root: Place) -> bool:
    log = root / "_delta_log"
    return log.local().is_dir() if log.is_local else log.exists()


@dataclass(frozen=True)
class _Log:
    """The log of a table as it is listed: the versions of its ``commits``, and the files of its complete
    ``checkpoints``, by version."""

    commits: frozenset[int]
    checkpoints: dict[int, list[str]]


def _check_log(stream: Stream, root: Place) -> _Log:
    """HDL-430 if a commit is missing between the newest checkpoint, or the beginning, and the newest commit."""
    commits, parts = set(), dict[tuple[int, int], list[str]]()
    for path in (root / "_delta_log").listed():
        if match := _COMMIT.fullmatch(path.name):
            commits.add(int(match[1]))
        elif match := _CHECKPOINT.fullmatch(path.name):
            parts.setdefault((int(match[1]), int(match[2] or 1)), []).append(path.name)
    checkpoints = {version: names for (version, of), names in sorted(parts.items()) if len(names) >= of}
    covered = max(checkpoints, default=-1)
    last = max([*commits, covered])
    lost = next((version for version in range(covered + 1, last) if version not in commits), None)
    if lost is not None or last < 0:
        raise HeddleError(
            "HDL-430",
            f"stream {stream.name}: the log of the Delta table at {root} lacks version {lost or 0}"
            + (f", its newest is {last}" if last >= 0 else ", and any other"),
            "put the commit back, or write the table anew",
        )
    return _Log(frozenset(commits), checkpoints)


def _current(stream: Stream, root: Place, actions: pa.Table, log: _Log, version: int) -> pa.Table:
    """The actions that add files, without those that a ``remove`` in another spelling undid."""
    covered = max((number for number in log.checkpoints if number <= version), default=-1)
    since = [number for number in range(covered + 1, version + 1) if number in log.commits]
    names = actions["path"].to_pylist()
    try:
        current = current_names(
            names,
            lambda name: file_place(stream, root, name),
            root / "_delta_log",
            since,
            log.checkpoints.get(covered, []),
        )
    except TwoNames as error:
        raise _unread(
            stream, f"names a file in two ways: {error}", "write it again, or a checkpoint by Spark"
        ) from error
    return actions if len(current) == len(names) else actions.filter(pa.array([name in current for name in names]))


def _files(stream: Stream, root: Place, actions: pa.Table, time: str) -> list[DeltaFile]:
    """The files that actions of the log add, whose statistics call the time column ``time``."""
    values: dict[str, Any] = {}
    if "partition" in actions.schema.names:
        kind = actions.schema.field("partition").type
        values = {kind.field(at).name: pc.struct_field(actions["partition"], at) for at in range(kind.num_fields)}
    lows = _instants(actions, "min", time)
    # the log cuts timestamps down to the millisecond
    highs = [None if at is None else at + 1000 for at in _instants(actions, "max", time)]
    sizes, changed = actions["size_bytes"].to_pylist(), actions["modification_time"].cast(pa.int64()).to_pylist()
    return [
        DeltaFile(
            name,
            file_place(stream, root, name),
            {column: value[number] for column, value in values.items()},
            lows[number],
            highs[number],
            sizes[number],
            changed[number] * 1000,
        )
        for number, name in enumerate(actions["path"].to_pylist())
    ]


def _instants(actions: pa.Table, statistic: str, column: str) -> list[int | None]:
    """A statistic of a column of timestamps in microseconds, None where there is none."""
    instants = pa.nulls(len(actions), pa.int64())
    if statistic in actions.schema.names:
        kind = actions.schema.field(statistic).type
        at = kind.get_field_index(column)
        if at >= 0 and pa.types.is_timestamp(kind.field(at).type) and kind.field(at).type.unit == "us":
            instants = pc.struct_field(actions[statistic], at).cast(pa.int64())
    return list(instants.to_pylist())


def file_place(stream: Stream, root: Place, name: str) -> str:
    """Place of a file that the log names by a percent-encoded path or URI: a path, or a URL, in one spelling."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", name)
    if scheme is None:
        inside = unquote(name)
        if root.is_local:
            return _absolute(root, inside) if inside.startswith("/") else f"{root.local()}/{os.path.normpath(inside)}"
        inside = re.sub(r"/(\./)*/*", "/", inside).removeprefix("./")
        if inside.startswith("/") or not {".", ".."}.isdisjoint(inside.split("/")):
            raise _unread(stream, "has a file elsewhere", "copy the table to a folder of its own")
        return str(root / inside)
    if root.is_local and scheme[1].lower() == "file":
        return _absolute(root, unquote(urlsplit(name).path))
    if root.is_local or SCHEMES.get(scheme[1].lower()) != scheme_of(root.url):
        raise _unread(stream, f"has a file elsewhere ({scheme[1]}:)", "copy the table to a folder here")
    return normalised(unquote(name))


def _absolute(root: Place, path: str) -> str:
    """An absolute path in one spelling, below the root as the stream names it, also if that is a link."""
    path = os.path.normpath(path)
    real = os.path.realpath(root.url)
    return f"{root.local()}/{path[len(real) + 1 :]}" if path.startswith(f"{real}/") else path
