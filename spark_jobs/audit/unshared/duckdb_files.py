"""Read raw events of some spans from a stream's files with DuckDB, independently of the decoding of answers.

Answers are computed from events that :mod:`spark_jobs.streams.sources` reads. A fault there would be in both sides
of a comparison that reads through it as well. So the audit reads Parquet and CSV with another library, makes values
of texts and numbers with separate casts, and decides with separate conditions which events lie in a span. It still
takes from the run which files there are, and which of their rows a table has deleted or a ledger has refused or
seen before.

Each format names the function of DuckDB that reads its files
(:meth:`spark_jobs.streams.sources.formats.source_format.SourceFormat.duckdb_reading`).
:class:`spark_jobs.streams.sources.formats.source_format.ReadByRun` is raised if DuckDB cannot read them (a store, a
nested column, a form of text that it does not know). The audit then reads as the run does, and reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.workload.attributes import columns_read
from optimizer.workload.partitions import NULL, pattern_regex
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import Stream, Type
from spark_jobs.audit.unshared.duckdb_expressions import quoted, text_literal
from spark_jobs.audit.unshared.duckdb_joins import joined_events
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.decoding import repeated_rows
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.formats.source_format import DuckdbReading, DuckdbText, ReadByRun
from spark_jobs.streams.sources.partition_columns import in_files
from spark_jobs.streams.sources.splits import Split

ALL_FILES = 32
"""Largest number of files with statistics that are all read, whatever their times."""

FILE, FOLDERS = "file of these rows", "folder_"
"""Names of columns that DuckDB adds: of a row's file, and, with a number, of what the names of its folders have."""

Spans = Sequence[tuple[int, int]]


def events_of(stream: Stream, splits: Sequence[Split], columns: Sequence[str], spans: Spans) -> pa.Table:
    """The events of some spans [start, end), microseconds: ``columns``, the time among them, in the stream's types.
    Attributes of dimensions are joined by DuckDB, too.

    Raises ReadByRun.
    """
    names = columns_read(stream, [stream.time, *columns])
    types = {name: stream.types[name] for name in names}
    if not format_of(stream).reads_fields and not types.keys() <= dict(stream.schema).keys():
        raise ReadByRun("a column is nested")
    parts = _parts(stream, splits, spans)
    try:
        tables = [_read(stream, part, names, spans) for part in parts]
        schema = pa.schema([(name, arrow_type(types[name])) for name in names])
        table = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
        return joined_events(_reader(), stream, table, columns)
    except (duckdb.Error, OSError, UnicodeDecodeError, OverflowError, pa.ArrowInvalid) as error:
        raise ReadByRun(f"DuckDB cannot read it: {type(error).__name__}") from error


# ------------------------------------------------------------------------------------------------ which files
class _Part(NamedTuple):
    """Files that are read by one statement. ``gone``: numbers of rows, from the first of the file on, that do not
    count (only for a single file); ``refused``: spans whose events do not count; ``constants``: values of
    columns.
    """

    paths: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    refused: tuple[tuple[int, int], ...] = ()
    gone: tuple[int, ...] = ()


def _parts(stream: Stream, splits: Sequence[Split], spans: Spans) -> Iterator[_Part]:
    by_path: dict[str, list[Split]] = {}
    for split in splits:
        by_path.setdefault(split.path, []).append(split)
    together: dict[Any, list[str]] = {}
    format = format_of(stream)
    is_all = format.has_statistics and len(by_path) <= ALL_FILES
    for path, file_splits in by_path.items():
        if not is_all and not any(split.may_hold(*span) for split in file_splits for span in spans):
            continue
        first = file_splits[0]
        if not Place.of(path).is_local or first.version is not None:
            raise ReadByRun("its files are in a store")
        if first.names or any(mark in path for mark in "*?[]{}"):
            raise ReadByRun("its columns have other names in its files" if first.names else "the name of a file")
        deleted = sorted(row for split in file_splits for row in _gone(split))
        special = first.refused, tuple(deleted)
        if any(special):
            yield _Part((path,), first.constants, *special)
        else:
            together.setdefault(first.constants, []).append(path)
    for constants, paths in together.items():
        yield from (
            [_Part((path,), constants) for path in paths]
            if format.is_each_complete
            else [_Part(tuple(paths), constants)]
        )


def _gone(split: Split) -> Iterator[int]:
    """The rows of a split's file, from its first row on, that do not count."""
    if split.deleted is None and not split.repeated:
        return
    if split.deleted is not None and len(split.deleted) and split.repeated:
        raise ReadByRun("rows of it are both deleted and repeated")
    before = 0
    if split.row_groups:
        metadata = pq.read_metadata(split.path)
        before = sum(metadata.row_group(group).num_rows for group in range(split.row_groups[0]))
    rows = repeated_rows(split) if split.repeated else split.deleted
    yield from (int(row) + before for row in np.asarray(rows).tolist())


# ------------------------------------------------------------------------------------------------ reading
def _read(stream: Stream, part: _Part, wanted: Sequence[str], spans: Spans) -> pa.Table:
    connection, types = _reader(), {name: stream.types[name] for name in wanted}
    schema = pa.schema([(name, arrow_type(types[name])) for name in wanted])
    reading = format_of(stream).duckdb_reading(in_files(stream), part.paths, bool(part.gone))
    if reading.columns is not None and not reading.columns:
        return schema.empty_table()
    reading, of_folders = _with_folders(stream, reading)
    source = reading.relation.format(_source(reading))
    if stream.source.folders:
        source = _of_pattern(stream, source)
    is_described = reading.columns is None and reading.text_of is None
    columns = _described(connection, source) if is_described else reading.columns or {}
    if not is_described or stream.source.folders:
        columns = {**columns, **of_folders}
    if any(partition.name.lower() not in columns for partition in stream.source.partitions):
        raise ReadByRun("the name of a folder")
    values, texts, parameters = _values(stream, part, wanted, columns, reading.text_of)
    if texts:
        # where DuckDB does not read a text as its type, it may be written in a way that it does not know
        failed = connection.execute(f"SELECT count(*) FROM {source} e WHERE {' OR '.join(texts)}").fetchall()
        if failed != [(0,)]:
            raise ReadByRun("a text of another form")
    keep = [" OR ".join(f"(c0 >= {start} AND c0 < {end})" for start, end in spans)]
    keep += [f"NOT (c0 >= {start} AND c0 < {end})" for start, end in part.refused]
    rows = f"{source} e"
    if part.gone:
        values.append(f"{reading.row} AS place")
        keep.append("place NOT IN (SELECT gone FROM gone)")
        connection.register("gone", pa.table({"gone": pa.array(part.gone, pa.int64())}))
    elif early := _early(columns.get(stream.time.lower()), spans):
        rows += f" WHERE {early}"
    names = ", ".join(f"c{number}" for number in range(len(wanted)))
    condition = " AND ".join(f"({clause})" for clause in keep)
    try:
        sql = f"SELECT {names} FROM (SELECT {', '.join(values)} FROM {rows}) WHERE {condition}"
        table: pa.Table = connection.sql(sql, params=parameters).to_arrow_table()
    finally:
        if part.gone:
            connection.unregister("gone")
    arrays = [
        _as_declared(column.combine_chunks(), types[name]) for name, column in zip(wanted, table.columns, strict=True)
    ]
    return pa.table(arrays, schema=schema)


def _with_folders(stream: Stream, reading: DuckdbReading) -> tuple[DuckdbReading, dict[str, tuple[str, str]]]:
    """Arguments for DuckDB that add the columns of folders, as texts; and these columns."""
    names = [partition.name for partition in stream.source.partitions]
    if not names:
        return reading, {}
    if not stream.source.folders:
        options = {**reading.options, "hive_partitioning": True, "hive_types_autocast": 0}
        return reading._replace(options=options), {name.lower(): (name, "VARCHAR") for name in names}
    return reading._replace(options={**reading.options, "filename": FILE}), {
        name.lower(): (f"{FOLDERS}{number}", "VARCHAR") for number, name in enumerate(names, 1)
    }


def _of_pattern(stream: Stream, source: str) -> str:
    """A table function's rows with a column for each name in the pattern of their folders."""
    below = f"substr({quoted(FILE)}, {len(stream.source.path.rstrip('/')) + 2})"
    regex = text_literal(pattern_regex(stream.source.folders))
    columns = [
        f"CASE regexp_extract({below}, {regex}, {number}) WHEN {text_literal(NULL)} THEN NULL "
        f"ELSE regexp_extract({below}, {regex}, {number}) END AS {FOLDERS}{number}"
        for number in range(1, len(stream.source.partitions) + 1)
    ]
    return f"(SELECT *, {', '.join(columns)} FROM {source})"


def _values(
    stream: Stream,
    part: _Part,
    wanted: Sequence[str],
    columns: _Columns,
    text_of: Callable[[str], DuckdbText] | None = None,
) -> tuple[list[str], list[str], list[Any]]:
    """SQL of some columns, named c0, c1, …; conditions of rows with a text that is not read as its type or not as
    it is written; and what the parameters of the former are."""
    types, constants = {name: stream.types[name] for name in wanted}, dict(part.constants)
    values, texts, parameters = list[str](), list[str](), list[Any]()
    for number, name in enumerate(wanted):
        type = types[name]
        if name in constants:
            constant, sql = constants[name].as_py(), "NULL"
            if constant is not None:
                kind = "VARCHAR" if isinstance(constant, str) else _duckdb_type(type)
                sql = _value(stream, name, type, f"?::{kind}", kind)
                # a parameter counts as often as it stands there
                parameters += [constant] * sql.count("?")
        elif text_of is None and name.lower() not in columns:
            sql = "NULL"
        else:
            # of what has texts of its own only the columns of folders are among the others
            if text_of is None or name.lower() in columns:
                read, kind = f"e.{quoted(columns[name.lower()][0])}", columns[name.lower()][1]
            else:
                (read, doubts), kind = text_of(name), "VARCHAR"
                texts += doubts
            sql = _value(stream, name, type, read, kind)
            if kind == "VARCHAR" and type.name != "string":
                texts.append(f"({_text(stream, read)} IS NOT NULL AND ({sql}) IS NULL)")
        values.append(f"({sql})::{_stored_type(type)} AS c{number}")
    return values, texts, parameters


def _as_declared(column: pa.Array, type: Type) -> pa.Array:
    target = arrow_type(type)
    if type.name == "timestamp":
        return column.cast(pa.int64()).cast(target)
    return column if column.type == target else column.cast(target)


_Columns = Mapping[str, tuple[str, str]]
"""Columns of a file, by their names in small letters: the name and DuckDB's type."""


def _source(reading: DuckdbReading) -> str:
    """A call of DuckDB's table function."""
    options = "".join(f", {name} = {_literal(value)}" for name, value in reading.options.items())
    paths = _literal(reading.paths[0] if len(reading.paths) == 1 else list(reading.paths))
    return f"{reading.function}({paths}{options})"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text_literal(name)}: {_literal(of)}' for name, of in value.items())}}}"
    return f"[{', '.join(map(_literal, value))}]" if isinstance(value, list) else str(value)


def _described(connection: duckdb.DuckDBPyConnection, source: str) -> _Columns:
    columns: dict[str, tuple[str, str]] = {}
    for name, kind, *_ in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall():
        if name.lower() in columns:
            raise ReadByRun("columns that differ by case")
        columns[name.lower()] = name, kind
    return columns


def _early(column: tuple[str, str] | None, spans: Spans) -> str:
    """A condition on the time as it is stored, by which DuckDB passes over parts of files."""
    functions = {"TIMESTAMP": "make_timestamp", "TIMESTAMP WITH TIME ZONE": "make_timestamptz"}
    if column is None or column[1] not in functions:
        return ""
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    make = functions[column[1]]
    return f"{quoted(column[0])} >= {make}({low}) AND {quoted(column[0])} < {make}({high})"


# ------------------------------------------------------------------------------------------------ casts
def _text(stream: Stream, sql: str) -> str:
    """A text without the spaces around it, null if it represents null."""
    nulls = ", ".join(map(text_literal, ["", *stream.source.null]))
    return f"(CASE WHEN trim({sql}) IN ({nulls}) THEN NULL ELSE trim({sql}) END)"


def _value(stream: Stream, name: str, declared: Type, sql: str, kind: str) -> str:
    """A column of a file in DuckDB's form of the declared type; timestamps as integer microseconds."""
    if declared.name == "timestamp":
        return _moment(stream, sql, kind, name == stream.time)
    if declared.name == "string":
        return sql
    if kind != "VARCHAR":
        return sql
    text = _text(stream, sql)
    if declared.name == "boolean":
        cases = ("WHEN lower({0}) IN ('true', 't', '1') THEN true", "WHEN lower({0}) IN ('false', 'f', '0') THEN false")
        return f"CASE {' '.join(cases).format(text)} END"
    return f"TRY_CAST({text} AS {_duckdb_type(declared)})"


def _moment(stream: Stream, sql: str, kind: str, is_time: bool) -> str:
    unit = stream.source.time_unit if is_time else None
    if kind == "VARCHAR":
        text = _text(stream, sql)
        if unit is not None:
            return _counted(f"TRY_CAST({text} AS HUGEINT)", unit)
        if is_time and stream.source.timestamp_format is not None:
            return f"epoch_us(try_strptime({text}, {text_literal(stream.source.timestamp_format)}))"
        cut = f"regexp_replace({text}, '([.][0-9]{{6}})[0-9]+', '\\1')"
        return f"epoch_us(TRY_CAST({cut} AS TIMESTAMPTZ))"
    if kind == "TIMESTAMP_NS":
        return f"((epoch_ns({sql}) - ((epoch_ns({sql}) % 1000) + 1000) % 1000) // 1000)"
    if kind in ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS"):
        return f"epoch_us({sql}::TIMESTAMP)"
    if kind.startswith("TIMESTAMP"):
        return f"epoch_us({sql})"
    if unit is None:
        raise ReadByRun(f"a time that is {kind}")
    return _counted(f"({sql})::HUGEINT", unit)


def _counted(number: str, unit: str) -> str:
    """Microseconds of a number of units since 1970, rounded down."""
    factor, divisor = TIME_UNITS[unit]
    micros = f"({number} * {factor})"
    quotient = f"(({micros} - (({micros} % {divisor}) + {divisor}) % {divisor}) // {divisor})"
    return f"(CASE WHEN {quotient} BETWEEN -9223372036854775807 AND 9223372036854775807 THEN {quotient} END)"


def _duckdb_type(type: Type) -> str:
    known = {"long": "BIGINT", "string": "VARCHAR", "timestamp": "TIMESTAMPTZ"}
    return known.get(type.name, str(type).upper())


def _stored_type(type: Type) -> str:
    return "BIGINT" if type.name == "timestamp" else _duckdb_type(type)


@cache
def _reader() -> duckdb.DuckDBPyConnection:
    """The database of this process that may open files: no text of a query comes near it."""
    connection = duckdb.connect(":memory:", config={"threads": 1, "autoinstall_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    return connection
