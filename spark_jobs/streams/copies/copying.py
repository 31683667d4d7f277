"""Bring copies up to date: new rows are read, and one commit adds them and removes those that are gone.

A copy is a Delta table with the stream's columns and :data:`PIECE`, by which it is partitioned: the piece of the origin
(:mod:`spark_jobs.streams.copies.origins`) that a row belongs to. Runs read it like any Delta table: its log shows late,
removed, refused and repeated rows. Tasks write its files. A commit names them, on exactly the version that was read, so
that two runs at once copy nothing twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from optimizer.errors.diagnostics import HeddleError, count
from optimizer.workload.values import BOOLEAN, Stream
from spark_jobs.store.storage import Draft, Place
from spark_jobs.store.warehouse.conditional import check_conditional
from spark_jobs.store.warehouse.data_files import UNWRITABLE, is_awkward, log_place, now_millis, unwritable
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.copies.databases.batch import batch_since
from spark_jobs.streams.copies.databases.opening import is_direct, opened
from spark_jobs.streams.sources.decoding import rows_of_spark
from spark_jobs.streams.sources.expressions import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from spark_jobs.streams.copies.origins import Change, Reading

PIECE = "__piece"
"""The column with the piece of the origin that a row belongs to."""

FILE_ROWS = 1_000_000
"""Rows of a file at most, about."""

FILE_BYTES = 256 << 20
"""Bytes of rows in memory at which a file is written."""

ROW_GROUP = 1 << 17
"""Rows of a row group."""

TRIES = 5
"""Number of times that a commit is tried if other runs commit first."""

_OUTCOME = "piece string, path string, size bigint, rows bigint"


@dataclass(frozen=True)
class Copied:
    """Result of copying a ``stream``: the numbers of new ``pieces`` and of their ``rows``, and of pieces that are
    ``gone``.
    """

    stream: str
    pieces: int
    rows: int
    gone: int

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        message = f"{self.stream}: copied {count(self.rows, 'row')} of {count(self.pieces, 'new piece')}"
        return f"{message}, {self.gone:,} gone" if self.gone else message


def bring_up_to_date(
    spark: SparkSession | None, stream: Stream, clock: int, report: Callable[[str], None] = lambda line: None
) -> Copied | None:
    """Bring the copy of a stream's origin up to date; None if it has no origin.

    ``spark``: None if Heddle reads the origin itself (:func:`is_direct`). ``clock``: microseconds. Raises what
    :func:`spark_jobs.streams.copies.origins.changes_since` and
    :func:`spark_jobs.streams.copies.databases.batch.batch_since` raise, HDL-404 for a value that is not of its declared
    type (nothing is copied then), HDL-510 if other runs keep committing first, HDL-542 if nothing can be written.
    """
    if stream.source.origin is None:
        return None
    for attempt in range(TRIES):
        try:
            return _followed(spark, stream, clock, report)
        except HeddleError as error:
            if error.diagnostic.code != "HDL-510" or attempt == TRIES - 1:
                raise
    raise AssertionError


def sweep(stream: Stream, retention: int, dry_run: bool = False) -> int:
    """Remove the files of a copy that no version has referred to for so long (microseconds), and shorten its log; how
    many went. Raises HDL-542."""
    place = Place.of(stream.source.path)
    if not DeltaTable.is_deltatable(log_place(place.url)) or is_awkward(place.url):
        return 0
    warehouse = Warehouse(place.parent)
    with warehouse.lease() as token:
        table = warehouse.table(place.name)
        warehouse.check_lease(token)
        try:
            hours = retention // (3600 * 1_000_000)
            removed = table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
            if not dry_run:
                table = warehouse.table(place.name)
                table.create_checkpoint()
                table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            raise unwritable(place, error) from error
        return len(removed)


def _followed(spark: SparkSession | None, stream: Stream, clock: int, report: Callable[[str], None]) -> Copied:
    place = Place.of(stream.source.path)
    warehouse, name = Warehouse(place.parent), place.name
    table = warehouse.table(name) if DeltaTable.is_deltatable(log_place(place.url)) else None
    known = _known(table) if table is not None else {}
    counts = {piece: sum(rows for _, _, rows in of) for piece, of in known.items()}
    with (_read_here if is_direct(stream) else _read_by_spark)(spark, stream, counts, clock) as came:
        if not came.pieces and not came.gone and table is not None:
            return Copied(stream.name, 0, 0, 0)
        report(f"copying {stream.name}")
        files = list[tuple[str, str, int, int]]()
        try:
            came.write(place, files)
            empty = came.pieces - {each[0] for each in files}
            files += [(piece, *_write(place, [], came.schema), 0) for piece in sorted(empty)]
            _commit(warehouse, name, table, came.schema, files, {piece: known[piece] for piece in came.gone})
        except HeddleError as error:
            # no commit names them; of what is not known to have failed they stay until maintenance
            if error.diagnostic.code != UNWRITABLE:
                for _, path, *_ in files:
                    (place / path).remove()
            raise
    return Copied(stream.name, len(came.pieces), sum(rows for *_, rows in files), len(came.gone))


@dataclass(frozen=True)
class _Came:
    """Rows that a copy lacks: names of their ``pieces``, the columns of their files, and a function that writes them
    into a place and adds each file to a list (piece, path, bytes, rows). ``gone``: pieces that are no more.
    """

    pieces: frozenset[str]
    gone: Sequence[str]
    schema: pa.Schema
    write: Callable[[Place, list[tuple[str, str, int, int]]], None]


@contextmanager
def _read_here(spark: SparkSession | None, stream: Stream, known: Mapping[str, int], clock: int) -> Iterator[_Came]:
    with opened(stream) as connection:
        batch = batch_since(connection, stream, known, clock)

        def write(place: Place, files: list[tuple[str, str, int, int]]) -> None:
            for file in batch.files(lambda rows, schema: _write(place, rows, schema)):
                files.append(file)

        yield _Came(frozenset(batch.pieces), batch.gone, batch.schema, write)


@contextmanager
def _read_by_spark(spark: SparkSession | None, stream: Stream, known: Mapping[str, int], clock: int) -> Iterator[_Came]:
    from spark_jobs.streams.copies.origins import changes_since

    assert spark is not None, "given workers read what is here"
    session, change = spark, changes_since(spark, stream, known, clock)

    def write(place: Place, files: list[tuple[str, str, int, int]]) -> None:
        for reading in change.came:
            files += _written(session, stream, reading, place)

    pieces = frozenset(piece for reading in change.came for piece in reading.pieces.values())
    yield _Came(pieces, change.gone, _schema(stream, change), write)


def _known(table: DeltaTable) -> dict[str, list[tuple[str, int, int]]]:
    """The files of each piece: path, bytes, rows."""
    files: dict[str, list[tuple[str, int, int]]] = {}
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        of_piece = files.setdefault(row[f"partition.{PIECE}"], [])
        of_piece.append((row["path"], row["size_bytes"], row["num_records"]))
    return files


def _schema(stream: Stream, change: Change) -> pa.Schema:
    """The columns of files that hold what has come: those declared ones that the origin has."""
    from pyspark.sql.pandas.types import to_arrow_type

    from spark_jobs.streams.copies.origins import said_by_folders

    fields: dict[str, pa.Field] = {}
    for reading in change.came:
        types = {field.name.lower(): field.dataType for field in reading.frame.schema.fields}
        folder_columns = {name for path in reading.pieces for name in said_by_folders(stream, path)}
        for name, type_ in stream.schema:
            if name.lower() in types or name in folder_columns:
                fields[name] = pa.field(name, arrow_type(type_))
        for name, _ in stream.nested:
            if name.lower() in types:
                fields[name] = pa.field(name, to_arrow_type(types[name.lower()], timezone="UTC"))
    return pa.schema(list(fields.values()))


def _written(spark: SparkSession, stream: Stream, reading: Reading, place: Place) -> list[tuple[str, str, int, int]]:
    """Write the rows of some pieces: of each file the piece, the path in the table, the bytes and the rows."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    from spark_jobs.streams.copies.origins import PATH, failures

    frame, declared = reading.frame, [name for name, _ in (*stream.schema, *stream.nested)]
    known = {name.lower(): name for name in frame.columns}
    zone = None if stream.source.origin is None else stream.source.origin.zone

    def column(name: str) -> Column:
        chosen = F.col(_quote(known[name.lower()]))
        if zone is None or not isinstance(frame.schema[known[name.lower()]].dataType, T.TimestampNTZType):
            return chosen.alias(name)
        return F.to_utc_timestamp(chosen.cast("timestamp"), zone).alias(name)

    chosen = [column(name) for name in declared if name.lower() in known]
    if not chosen and frame.columns:
        hint = f"it has {', '.join(frame.columns[:16])}"
        raise HeddleError("HDL-403", f"stream {stream.name}: what Spark reads has none of its columns", hint)
    by_path = PATH in frame.columns
    frame = frame.select(*chosen, *([F.col(PATH)] if by_path else []))
    task = _task(stream, dict(reading.pieces), place, frame.columns)
    # Spark takes a name with a dot or a backtick for something else
    frame = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    with failures(stream):
        try:
            return [tuple(row) for row in frame.mapInArrow(task, _OUTCOME).collect()]
        except Exception as error:
            if "HeddleError: " not in str(error) and (misfit := reading.misfit()) is not None:
                raise misfit from error
            raise


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _task(
    stream: Stream, pieces: Mapping[str, str], place: Place, names: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that writes rows with columns of those names into files of their pieces, and names these."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        piece, rows = "", list[pa.RecordBatch]()

        def flush() -> Iterator[pa.RecordBatch]:
            if rows:
                path, size = _write(place, rows, rows[0].schema)
                written_files = {"piece": [piece], "path": [path], "size": [size], "rows": [sum(map(len, rows))]}
                rows.clear()
                yield pa.RecordBatch.from_pydict(written_files)

        for batch in batches:
            for path, part in _by_path(batch.rename_columns(names)):
                if path not in pieces:
                    continue
                if pieces[path] != piece:
                    yield from flush()
                    piece = pieces[path]
                values = _with_booleans(stream, _with_folders(stream, path, part))
                rows.append(rows_of_spark(stream, path or stream.name, values))
                if sum(map(len, rows)) >= FILE_ROWS or sum(each.nbytes for each in rows) >= FILE_BYTES:
                    yield from flush()
        yield from flush()

    return task


def _with_folders(stream: Stream, path: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns that the folders of a file define to its rows, converted to their declared types."""
    from spark_jobs.streams.copies.origins import said_by_folders

    for name, text in said_by_folders(stream, path).items():
        declared = arrow_type(dict(stream.schema)[name])
        try:
            value = pa.scalar(text, pa.string()).cast(declared)
        except pa.ArrowInvalid as error:
            message = f"stream {stream.name}: column {name} of {path}: its folder says {text!r}, which is none"
            raise HeddleError("HDL-404", message, "correct `schema` in streams.yaml, or the folder") from error
        column = pa.repeat(value, len(rows))
        at = rows.schema.get_field_index(name)
        rows = rows.append_column(name, column) if at < 0 else rows.set_column(at, name, column)
    return rows


def _with_booleans(stream: Stream, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose integers 0 and 1 are booleans where these are declared: some databases have no booleans. Raises
    HDL-404 for another integer."""
    for at, field in enumerate(rows.schema):
        if stream.type_of(field.name) != BOOLEAN or not pa.types.is_integer(field.type):
            continue
        values = rows.column(at)
        others = pc.drop_null(values.filter(pc.invert(pc.is_in(values, pa.array([0, 1], field.type)))))
        if len(others):
            origin = stream.source.origin
            where = f"column {field.name} of {stream.name if origin is None else origin.table or origin.path}"
            message = f"stream {stream.name}: {where} does not fit its declared type boolean: {others[0].as_py()}"
            raise HeddleError("HDL-404", f"{message} is neither 0 nor 1", "declare it `int` in `schema`, or correct it")
        rows = rows.set_column(at, field.name, values.cast(pa.bool_()))
    return rows


def _by_path(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by the file that they are of."""
    from spark_jobs.streams.copies.origins import PATH, path_from_spark

    if PATH not in batch.schema.names:
        yield "", batch
        return
    paths, rows = batch.column(PATH), batch.drop_columns([PATH])
    for name in pc.unique(paths).to_pylist():
        same = pc.equal(paths, name)
        yield path_from_spark(name) or name, rows if pc.all(same).as_py() else rows.filter(same)


def _write(place: Place, rows: Sequence[pa.RecordBatch], schema: pa.Schema) -> tuple[str, int]:
    """Write rows as one file of a table: its name there, and its bytes."""
    name = f"part-{uuid.uuid4().hex}.parquet"
    try:
        draft = Draft(place, f".{name}")
        try:
            table = pa.Table.from_batches(rows, schema)
            pq.write_table(table, draft.file, row_group_size=ROW_GROUP, write_page_checksum=True)
            return name, draft.put(name)
        except BaseException:
            draft.drop()
            raise
    except OSError as error:
        raise unwritable(str(place), error) from error


def _commit(
    warehouse: Warehouse,
    name: str,
    table: DeltaTable | None,
    schema: pa.Schema,
    files: Sequence[tuple[str, str, int, int]],
    gone: Mapping[str, Sequence[tuple[str, int, int]]],
) -> None:
    """Add files to a copy and remove those of pieces that are gone, as the version after the one that was read."""
    columns = schema.append(pa.field(PIECE, pa.string()))
    warehouse.place.make_folder()
    with warehouse.lease() as token:
        if table is None:
            if DeltaTable.is_deltatable(log_place(warehouse.path(name))):
                raise HeddleError("HDL-510", f"{warehouse.path(name)} was made meanwhile", "run it again")
            if not warehouse.place.is_local:
                # as for a warehouse: of a store that lets two writers win, commits would be lost
                check_conditional(warehouse.place)
            table = DeltaTable.create(log_place(warehouse.path(name)), schema=columns, partition_by=[PIECE])
        present = {field.name for field in table.schema().fields}
        new = [field for field in columns if field.name not in present]
        if new:
            with warehouse.exactly(name, table) as properties:
                table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields, commit_properties=properties)
            table = warehouse.table(name)
        actions: list[AddAction | RemoveAction] = [
            AddAction(path, size, {PIECE: piece}, now_millis(), True, json.dumps({"numRecords": rows}))
            for piece, path, size, rows in files
        ]
        for piece, removed in gone.items():
            actions += [RemoveAction(path, True, now_millis(), size, {PIECE: piece}) for path, size, _ in removed]
        warehouse.check_lease(token)
        with warehouse.exactly(name, table) as properties:
            current_schema = pa.schema(table.schema().to_arrow())
            table.create_write_transaction(
                actions, "append", Schema.from_arrow(current_schema), [PIECE], commit_properties=properties
            )
