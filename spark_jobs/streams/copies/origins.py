"""Read origins with Spark: their columns, and the pieces in which their rows come and go.

A *piece* is the unit of copying and removing: a file of a folder or of a table; for sources without files (JDBC,
views, other connectors) the rows whose watermark, or else event time, lies in a span. The name of a piece changes
whenever its rows may have changed, so a copy is brought up to date by comparing names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import redacted
from optimizer.workload.nested import Nested
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.urls import normalised
from optimizer.workload.values import Origin, Stream, Type
from spark_jobs.store.storage import ObjectVersion, Place, check_bucket
from spark_jobs.store.warehouse.publish_log import coded_error
from spark_jobs.streams.copies.databases.mysql import ZERO
from spark_jobs.streams.copies.databases.opening import option_value
from spark_jobs.streams.copies.jdbc_reading import database_failure, database_frame, zero_date
from spark_jobs.streams.copies.json_records import LENIENT, records_task
from spark_jobs.streams.copies.spans import COUNTED_AGAIN, UNPLACED, WatermarkSpan, by_clock, spans_of
from spark_jobs.streams.sources.sink_log import read_names
from spark_jobs.streams.sources.splits import check_place

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

PATH = "__path"
"""The column of a frame with the path of a row's file."""

FILES = ("orc", "json", "avro", "parquet")
"""Formats of files in a folder."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Name of a folder that stands for null."""

_ESCAPED = re.compile(r"([\\*?\[\]{},^])")


@dataclass(frozen=True)
class Reading:
    """Rows that are to be copied: a ``frame`` with the stream's columns as the origin calls them, and of files
    :data:`PATH`; ``pieces``: what the piece of each path is called, of what has no files under the empty path.
    ``misfit`` looks for the value that does not fit, once Spark has failed on one that it does not name."""

    frame: DataFrame
    pieces: Mapping[str, str]
    misfit: Callable[[], HeddleError | None] = lambda: None


@dataclass(frozen=True)
class Change:
    """Changes of an origin since it was copied: the pieces that ``came``, and those that are ``gone``."""

    came: tuple[Reading, ...]
    gone: tuple[str, ...]


def changes_since(spark: SparkSession, stream: Stream, known: Mapping[str, int], clock: int) -> Change:
    """Changes that turn a copy of the ``known`` pieces, with their numbers of rows, into a copy of the stream's origin
    as of now.

    ``clock`` (microseconds): rows later than it, less the stream's lateness, may still be arriving.
    Raises HDL-401 (there is nothing), HDL-433 (Spark cannot read it), HDL-458 (its place is not allowed for streams).
    """
    origin = _origin(stream)
    with failures(stream):
        if origin.format in FILES:
            pieces = _listed(stream, origin)
            new = {path: piece for path, piece in pieces.items() if piece not in known}
            came = (_of_files(spark, stream, origin, new),) if new else ()
        else:
            frame, listed = _relation(spark, stream, origin)
            if listed is None:
                return _spans_changed(stream, origin, frame, known, clock)
            pieces = listed
            new = {path: piece for path, piece in pieces.items() if piece not in known}
            came = (Reading(_since(stream, _with_paths(frame, list(new))), new),) if new else ()
        current_pieces = set(pieces.values())
        return Change(came, tuple(piece for piece in known if piece not in current_pieces))


def origin_columns(spark: SparkSession, stream: Stream) -> T.StructType:
    """The columns of a stream's origin. Raises as :func:`change_of` does."""
    origin = _origin(stream)
    with failures(stream):
        if origin.format not in FILES:
            return _relation(spark, stream, origin)[0].schema
        paths = list(_listed(stream, origin))
        schema = _reader(spark, origin).format(origin.format).load(list(map(_spark_path, paths))).schema
        folder_columns = dict.fromkeys(name for path in paths for name in in_folders(_below(origin, path)))
        file_fields = [field for field in schema.fields if field.name.lower() not in folder_columns]
        return T.StructType([*file_fields, *(T.StructField(name, T.StringType()) for name in folder_columns)])


def location_of(spark: SparkSession, stream: Stream) -> tuple[str, str] | None:
    """The format and the place of a table of Spark's catalogue whose files Heddle reads itself; None: it cannot.

    Raises HDL-401 if there is no such table.
    """
    with failures(stream):
        description = _described(spark, _origin(stream))
    has_partitions = "# Partition Information" in description or "# Partitioning" in description
    format, place = description.get("Provider", "").lower(), path_from_spark(description.get("Location", ""))
    is_read = format == "delta" or (format == "parquet" and not has_partitions)
    return (format, place) if is_read and place is not None else None


def _origin(stream: Stream) -> Origin:
    assert stream.source.origin is not None
    return stream.source.origin


@contextmanager
def failures(stream: Stream) -> Iterator[None]:
    """Turn errors of Spark about an origin into coded errors of the stream."""
    origin = _origin(stream)
    try:
        yield
    except HeddleError:
        raise
    except Exception as error:
        if not isinstance(error, PySparkException) and type(error).__name__ != "Py4JJavaError":
            raise
        java = getattr(error, "java_exception", None)
        text = str(error) if java is None else str(java.toString())
        reason = printable(redacted(" ".join(text.split("JVM stacktrace")[0].split())), 400)
        if re.search("TABLE_OR_VIEW_NOT_FOUND|PATH_NOT_FOUND|SCHEMA_NOT_FOUND|DELTA_TABLE_NOT_FOUND", text):
            hint = "check its name; SPARK_CONF_DIR says where Spark's configuration of catalogues is"
            raise HeddleError("HDL-401", f"stream {stream.name}: there is no {origin.name}", hint) from error
        if "HeddleError: " in str(error):
            raise coded_error(error) from error
        if origin.format == "jdbc" and (known := database_failure(stream, f"{text}\n{error}")) is not None:
            raise known from error
        hint = "is Spark's package for it there (spark.jars.packages in SPARK_CONF_DIR), and the other side up?"
        raise HeddleError(
            "HDL-433", f"stream {stream.name}: Spark cannot read {origin.name}: {reason}", hint
        ) from error


# ------------------------------------------------------------------------------------------- files
def _listed(stream: Stream, origin: Origin) -> dict[str, str]:
    """The pieces of a folder's files by their paths, in order."""
    root = Place.of(origin.path)
    check_place(stream, root.local() if root.is_local else root)
    if root.is_local:
        path = root.local()
        if not path.exists():
            raise HeddleError("HDL-401", f"stream {stream.name}: there is no {path}", "check `path`")
        files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
        for file in files:
            if file.is_symlink():
                check_place(stream, file)
        if path.is_file():
            return {str(path): _piece(str(path))}
        names = [str(file.relative_to(path)) for file in files]
    else:
        check_bucket(root)
        names = [file.name for file in root.listed(recursive=True)]
        if not names and root.info() is not None:
            return {str(root): _piece(str(root))}
    paths = [str(root / name) for name in read_names(stream, root, names).names]
    if not paths:
        raise HeddleError("HDL-401", f"stream {stream.name}: no file in {root}", "check `path`")
    return {path: _piece(path) for path in paths}


def _below(origin: Origin, path: str) -> str:
    """The path of a file from the folder on that is read."""
    return path.removeprefix(origin.path.rstrip("/")).lstrip("/")


def said_by_folders(stream: Stream, path: str) -> dict[str, str | None]:
    """Columns of a stream that the folders of a file define, under their declared names, with their values as texts."""
    origin = _origin(stream)
    folder_values = in_folders(_below(origin, path)) if origin.format in FILES else {}
    return {name: folder_values[name.lower()] for name, _ in stream.schema if name.lower() in folder_values}


def _piece(path: str) -> str:
    """The name of a file as a piece."""
    place = Place.of(path)
    if place.is_local:
        status = place.local().stat()
        return f"{path}|{status.st_size}|{status.st_mtime_ns}"
    with place.open() as file:
        version = ObjectVersion.of(file)
    return f"{path}|{version.size}|{version.tag}"


def _reader(spark: SparkSession, origin: Origin) -> Any:
    reader = spark.read
    for name, value in origin.options:
        reader = reader.option(name, option_value(value))
    if origin.format in ("orc", "parquet"):
        reader = reader.option("mergeSchema", "true")
    # what folders say, the copy adds: Spark itself loses the files that lie beside such folders
    return reader.option("recursiveFileLookup", "true") if origin.format in FILES else reader


def _of_files(spark: SparkSession, stream: Stream, origin: Origin, pieces: Mapping[str, str]) -> Reading:
    """The rows of some files, each with the file's path."""
    paths = list(pieces)
    if origin.format == "json" and not any(name.lower() in LENIENT for name, _ in origin.options):
        records = _json_records(spark, stream, origin, paths)
        options = {name: option_value(value) for name, value in origin.options}
        # a record that is none is an error, never a row of nulls
        typed = _typed_records(stream, records, options | {"mode": "FAILFAST"}).select("typed.*", PATH)
        return Reading(_since(stream, typed), pieces, lambda: _misfit(stream, records, options))
    reader = _reader(spark, origin)
    if origin.format in ("json", "avro"):
        reader = reader.schema(_ddl(stream))
    if origin.format == "json":
        # a record that is none is an error, never a row of nulls
        reader = reader.option("mode", "FAILFAST")
    frame = reader.format(origin.format).load([_spark_path(path) for path in paths])
    return Reading(_since(stream, frame.withColumn(PATH, F.col("_metadata.file_path"))), pieces)


def _json_records(spark: SparkSession, stream: Stream, origin: Origin, paths: list[str]) -> DataFrame:
    """The records of JSON files, which are looked at one by one before Spark types them
    (:mod:`spark_jobs.streams.copies.json_records`)."""
    known = {name.lower(): option_value(value) for name, value in origin.options}
    reader = spark.read.option("recursiveFileLookup", "true")
    reader = reader.option("wholetext", known.get("multiline", "false"))
    if "linesep" in known:
        reader = reader.option("lineSep", known["linesep"])
    lines = reader.format("text").load([_spark_path(path) for path in paths])
    lines = lines.select("value", F.col("_metadata.file_path").alias(PATH))
    task = records_task(stream, lambda path: path_from_spark(path) or path)
    return lines.mapInArrow(task, f"record string, {PATH} string")


def _typed_records(stream: Stream, records: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Records with the stream's columns in ``typed``."""
    typed = F.from_json(F.col("record"), _ddl(stream), dict(options))
    return records.select("record", typed.alias("typed"), PATH)


def _misfit(stream: Stream, records: DataFrame, options: Mapping[str, str]) -> HeddleError | None:
    """The first text of a column of times or dates that Spark takes for none; None if there is none."""
    rows = _typed_records(stream, records, {**options, "mode": "PERMISSIVE"})
    for name, type_ in stream.schema:
        if type_.name not in ("timestamp", "date") or "'" in name:
            continue
        text = F.get_json_object("record", f"$['{name}']")
        misfit = rows.where(text.isNotNull() & F.col("typed")[name].isNull()).select(text, PATH).first()
        if misfit is not None:
            message = (
                f"stream {stream.name}: column {name} of {path_from_spark(misfit[1]) or misfit[1]} does not fit its "
            )
            message += f"declared type {type_}: {printable(str(misfit[0]), 80)!r}"
            return HeddleError("HDL-404", message, "correct `schema` in streams.yaml, or the record")
    return None


def in_folders(path: str) -> dict[str, str | None]:
    """Columns that the folders of a file define (``day=2026-01-01``), in lower case, with their values as texts."""
    values: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, is_one, value = part.partition("=")
        if is_one and name:
            values[unquote(name).lower()] = None if value == NO_VALUE else unquote(value)
    return values


def _spark_path(path: str, escaped: bool = True) -> str:
    """A path as Spark takes it, of which stars and the like mean themselves."""
    text = _ESCAPED.sub(r"\\\1", path) if escaped else path
    return f"file:{text}" if text.startswith(("/", "\\")) else re.sub("^s3://", "s3a://", text)


def path_from_spark(path: str) -> str | None:
    """The path or URL that one of Spark's is; None if Heddle does not know its kind."""
    if path.startswith("file:"):
        return "/" + unquote(path.removeprefix("file:")).lstrip("/")
    scheme, separator, path_in_store = path.partition("://")
    if not separator:
        return unquote(path) if path.startswith("/") else None
    with suppress(HeddleError):
        return normalised(f"{scheme}://{unquote(path_in_store)}")
    return None


def _with_paths(frame: DataFrame, paths: list[str]) -> DataFrame:
    """The rows of some files of a relation, and maybe of others, each with the file's path."""
    names = [path.rpartition("/")[2] for path in paths]
    if all(re.fullmatch(r"[A-Za-z0-9._=-]+", name) for name in names):
        # whoever reads leaves files out by it; names that Spark writes in another way are not known here
        frame = frame.where(F.col("_metadata.file_name").isin(names))
    return frame.withColumn(PATH, F.col("_metadata.file_path"))


def _relation(spark: SparkSession, stream: Stream, origin: Origin) -> tuple[DataFrame, dict[str, str] | None]:
    """The rows of a table, and the pieces of its files by their paths; None: it has no files, or none known here."""
    if origin.format == "delta":
        return _delta(spark, stream, origin.path)
    if origin.format == "jdbc":
        return database_frame(spark, stream, origin.table), None
    place = _delta_place(spark, origin)
    if place is not None:
        return _delta(spark, stream, place)
    frame = spark.table(_quoted(origin.table))
    try:
        frame.select("_metadata.file_path").schema  # noqa: B018 - asks whether there is such a column
        paths = [path_from_spark(name) for name in frame.inputFiles()]
        return frame, {path: _piece(path) for path in paths if path is not None} if None not in paths else None
    except PySparkException:
        return frame, None


def _delta_place(spark: SparkSession, origin: Origin) -> str | None:
    """Place of a table of the catalogue, if it is a Delta table at a place that Heddle knows."""
    description = _described(spark, origin)
    return (
        path_from_spark(description.get("Location", "")) if description.get("Provider", "").lower() == "delta" else None
    )


def _described(spark: SparkSession, origin: Origin) -> dict[str, str]:
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {_quoted(origin.table)}").collect()
    return {str(row["col_name"]): str(row["data_type"]) for row in rows}


def _delta(spark: SparkSession, stream: Stream, root: str) -> tuple[DataFrame, dict[str, str]]:
    """The rows of a Delta table's newest version, and the pieces: a deletion vector makes a file another piece."""
    place = Place.of(root)
    check_place(stream, place.local() if place.is_local else place)
    java: Any = spark
    if not hasattr(spark, "_jvm"):
        hint = "use a classic Spark master, or write the table without what Heddle does not read"
        raise HeddleError("HDL-433", f"stream {stream.name}: Spark Connect does not tell a Delta table's files", hint)
    path = _spark_path(root, escaped=False)
    none = getattr(getattr(java._jvm.scala, "None$"), "MODULE$")
    log = java._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java._jsparkSession, path)
    snapshot = log.update(False, none, none)
    if snapshot.version() < 0:
        raise HeddleError("HDL-401", f"stream {stream.name}: there is no Delta table at {root}", "check `path`")
    files = DataFrame(snapshot.allFiles().toDF(), spark).select("path", "deletionVector.*").collect()
    pieces = {}
    for file in files:
        name = str(file["path"])
        known = path_from_spark(name) if name.startswith("/") or ":/" in name else f"{root.rstrip('/')}/{unquote(name)}"
        without = "" if file["storageType"] is None else f"|less {file['pathOrInlineDv']} {file['offset']}"
        pieces[str(known)] = f"{name}{without}"
    return spark.read.format("delta").option("versionAsOf", snapshot.version()).load(path), pieces


def _since(stream: Stream, frame: DataFrame) -> DataFrame:
    """The rows that are not before the moment from which a stream is read; those without a time stay."""
    origin = _origin(stream)
    if origin.since is None:
        return frame
    time, first = _column(frame, stream.time), _moment(frame, stream, stream.time, origin.since)
    if first is None:
        message = f"stream {stream.name}: `since` cannot be compared with {stream.time}"
        raise HeddleError("HDL-434", message, "its time has to be a timestamp, or have a `time_unit`")
    return frame.where(time.isNull() | (time >= _literal(frame, stream.time, first)))


# ------------------------------------------------------------------------------------------- spans
def _spans_changed(stream: Stream, origin: Origin, frame: DataFrame, known: Mapping[str, int], clock: int) -> Change:
    """Rows after the last span, those of the newest spans whose number of rows has changed, and those without a
    watermark if that has."""
    name = origin.watermark or stream.time
    number = _number(frame, stream, name)
    spans = spans_of(known)
    placed = [(span, piece) for span, piece in spans if not span.is_unplaced]
    outdated, came = list[str](), list[Reading]()

    def replace_by(pieces: Mapping[str, int], rows: DataFrame, after: int | None, to: int, count: int) -> None:
        if count == sum(pieces.values()):
            return
        outdated.extend(pieces)
        if count or to != UNPLACED:
            came.append(_span(stream, name, rows, WatermarkSpan(after, to, count)))

    for span, piece in placed[-COUNTED_AGAIN:]:
        rows = _since(stream, frame.where(_between(frame, name, span.after, span.to)))
        replace_by({piece: known[piece]}, rows, span.after, span.to, rows.count())
    last = placed[-1][0].to if placed else None
    is_unplaced = _column(frame, name).isNull()
    if ZERO in frame.columns:
        # it is none, and no span has it that begins later
        is_unplaced = is_unplaced | (F.col(ZERO) > 0)
    unplaced = _since(stream, frame.where(is_unplaced))
    without = {piece: known[piece] for span, piece in spans if span.is_unplaced}
    replace_by(without, unplaced, UNPLACED, UNPLACED, unplaced.count())
    # a driver gives all rows that are asked for, of which Spark takes the greatest
    newer = frame if last is None else frame.where(_column(frame, name) > _literal(frame, name, last))
    most = newer.agg(F.max(number)).collect()[0][0]
    end = _moment(frame, stream, name, clock - stream.lateness - 1)
    if most is not None and end is not None:
        most = min(int(most), end)
    if most is not None and (last is None or most > last):
        rows = _since(stream, frame.where(_between(frame, name, last, int(most))))
        came.append(_span(stream, name, rows, WatermarkSpan(last, int(most))))
    return Change(tuple(came), tuple(outdated))


def _span(stream: Stream, name: str, rows: DataFrame, span: WatermarkSpan) -> Reading:
    """The rows of a span, of which none may have a zero date."""
    if ZERO not in rows.columns:
        return Reading(rows, {"": span.piece})

    def misfit() -> HeddleError | None:
        row = rows.where(F.col(ZERO) > 0).select(_column(rows, name).cast("string")).first()
        return None if row is None else zero_date(stream, f": row with {name} {printable(str(row[0]), 40)}")

    checked = rows.where(F.when(F.col(ZERO) > 0, F.raise_error(F.lit("zero date"))).otherwise(F.lit(True)))
    return Reading(checked, {"": span.piece}, misfit)


def _between(frame: DataFrame, name: str, after: int | None, to: int) -> Column:
    column = _column(frame, name)
    is_below = column <= _literal(frame, name, to)
    return is_below if after is None else is_below & (column > _literal(frame, name, after))


def _column(frame: DataFrame, name: str) -> Column:
    return frame[_quote(_field(frame, name).name)]


def _field(frame: DataFrame, name: str) -> T.StructField:
    matches = [field for field in frame.schema.fields if field.name.lower() == name.lower()]
    if not matches:
        hint = f"it has {', '.join(frame.columns[:16])}"
        raise HeddleError("HDL-403", f"there is no column {name} in what Spark reads", hint)
    return matches[0]


def _moment(frame: DataFrame, stream: Stream, name: str, instant: int) -> int | None:
    """An instant (microseconds) as :func:`_number` counts a column, rounded down; None if the column contains no
    instants.
    """
    type_ = _field(frame, name).dataType
    if isinstance(type_, T.TimestampNTZType):
        return by_clock(instant, _origin(stream).zone)
    if isinstance(type_, T.TimestampType):
        return instant
    unit = stream.source.time_unit if name.lower() == stream.time.lower() else None
    if unit is None or not isinstance(type_, T.IntegralType):
        return None
    factor, divisor = TIME_UNITS[unit]
    return instant * divisor // factor


def _number(frame: DataFrame, stream: Stream, name: str) -> Column:
    """A column as integers that grow with it: timestamps as microseconds."""
    column, type_ = _column(frame, name), _field(frame, name).dataType
    if isinstance(type_, (T.TimestampType, T.TimestampNTZType)):
        return F.unix_micros(column.cast("timestamp"))
    if isinstance(type_, T.IntegralType) or (isinstance(type_, T.DecimalType) and type_.scale == 0):
        return column.cast("long")
    message = f"stream {stream.name}: new rows cannot be determined by {name}, which is {type_.simpleString()}"
    raise HeddleError("HDL-434", message, "name a `watermark` of integers or timestamps that grow as rows come in")


def _literal(frame: DataFrame, name: str, number: int) -> Column:
    """A number of :func:`_number`, as a value of the column."""
    type_ = _field(frame, name).dataType
    is_timestamp = isinstance(type_, (T.TimestampType, T.TimestampNTZType))
    return (F.timestamp_micros(F.lit(number)) if is_timestamp else F.lit(number)).cast(type_)


# ------------------------------------------------------------------------------------------- names and types
def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(table: str) -> str:
    """The name of a table, of which every part is a name and nothing else."""
    return ".".join(map(_quote, table.split(".")))


def _ddl(stream: Stream) -> str:
    """The stream's columns as Spark declares them."""
    unit = stream.source.time_unit
    types: list[tuple[str, Type | Nested]] = [*stream.schema, *stream.nested]
    declared = [
        (name, "bigint" if name == stream.time and unit is not None else _spark_type(type_)) for name, type_ in types
    ]
    return ", ".join(f"{_quote(name)} {type_}" for name, type_ in declared)


def _spark_type(type_: Type | Nested) -> str:
    """A type as Spark writes it."""
    if not isinstance(type_, Nested):
        return "bigint" if type_.name == "long" else str(type_)
    inner = [(name, _spark_type(field)) for name, field in type_.fields]
    if type_.kind == "struct":
        return f"struct<{', '.join(f'{_quote(name)}: {text}' for name, text in inner)}>"
    return f"{type_.kind}<{', '.join(text for _, text in inner)}>"
