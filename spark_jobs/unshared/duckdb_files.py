"""Raw events of some spans, read from a stream's files by DuckDB: the audit's own way past the decoding of answers.

What answers are computed from comes through :mod:`spark_jobs.sources`; a fault there would be in both sides of a
comparison that reads through it as well. So the audit reads Parquet and CSV with another library, makes values of texts
and numbers with casts of its own, and decides with its own conditions which events lie in a span. It still takes from
the run which files there are, and which of their rows a table has deleted or a ledger has refused or seen before.

:class:`ReadByRun` is raised where that is not possible (a store, a nested column, a form of text that DuckDB does not
know). The audit then reads as the run does, and says so.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import Stream, Type
from spark_jobs.sources.decoding import repeated_rows
from spark_jobs.sources.expressions import arrow_type
from spark_jobs.sources.splits import Split
from spark_jobs.storage import Place
from spark_jobs.unshared.duckdb_expressions import quoted, text_literal

ALL_FILES = 32
"""Of a stream with no more Parquet files all are looked at, whatever is known of their times."""

LONGEST_LINE = 64 << 20
"""Bytes of the longest record of a CSV file that is read here."""

Spans = Sequence[tuple[int, int]]


class ReadByRun(Exception):
    """These events are not read here, and why."""


def events_of(stream: Stream, splits: Sequence[Split], columns: Sequence[str], spans: Spans) -> pa.Table:
    """The events of some spans [start, end), microseconds: ``columns``, the time among them, in the stream's types.

    Raises ReadByRun.
    """
    types = dict(stream.schema)
    wanted = list(dict.fromkeys([stream.time, *columns]))
    if not all(name in types for name in wanted):
        raise ReadByRun("a column is nested")
    parts = _parts(stream, splits, spans)
    try:
        found = [_read(stream, part, wanted, spans) for part in parts]
    except (duckdb.Error, OSError, UnicodeDecodeError, OverflowError, pa.ArrowInvalid) as error:
        raise ReadByRun(f"DuckDB cannot read it: {type(error).__name__}") from error
    schema = pa.schema([(name, arrow_type(types[name])) for name in wanted])
    table = pa.concat_tables([schema.empty_table(), *found])
    return table.select(list(columns)).combine_chunks()


# ------------------------------------------------------------------------------------------------ which files
class _Part(NamedTuple):
    """Files that are read by one statement. ``gone``: numbers of rows, from the first of the file on, that do not
    count (of one file alone); ``refused``: spans whose events do not count; ``constants``: values of columns."""

    format: str
    paths: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    refused: tuple[tuple[int, int], ...] = ()
    gone: tuple[int, ...] = ()


def _parts(stream: Stream, splits: Sequence[Split], spans: Spans) -> Iterator[_Part]:
    by_path: dict[str, list[Split]] = {}
    for split in splits:
        by_path.setdefault(split.path, []).append(split)
    together: dict[Any, list[str]] = {}
    is_all = stream.source.format != "csv" and len(by_path) <= ALL_FILES
    for path, mine in by_path.items():
        if not is_all and not any(split.may_hold(*span) for split in mine for span in spans):
            continue
        first = mine[0]
        if not Place.of(path).is_local or first.version is not None:
            raise ReadByRun("its files are in a store")
        if first.names or any(mark in path for mark in "*?[]{}"):
            raise ReadByRun("its columns have other names in its files" if first.names else "the name of a file")
        gone = sorted(row for split in mine for row in _gone(split))
        special = first.refused, tuple(gone)
        if any(special):
            yield _Part(first.format, (path,), first.constants, *special)
        else:
            together.setdefault((first.format, first.constants), []).append(path)
    for (format, constants), paths in together.items():
        yield from (
            [_Part(format, (path,), constants) for path in paths]
            if format == "csv"
            else [_Part(format, tuple(paths), constants)]
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
    connection, types = _reader(), dict(stream.schema)
    schema = pa.schema([(name, arrow_type(types[name])) for name in wanted])
    source, columns = _csv(stream, part) if part.format == "csv" else _parquet(connection, part)
    if not columns:
        return schema.empty_table()
    values, texts, given = _values(stream, part, wanted, columns)
    if texts:
        # where DuckDB does not read a text as its type, it may be written in a way that it does not know
        failed = connection.execute(f"SELECT count(*) FROM {source} e WHERE {' OR '.join(texts)}").fetchall()
        if failed != [(0,)]:
            raise ReadByRun("a text of another form")
    keep = [" OR ".join(f"(c0 >= {start} AND c0 < {end})" for start, end in spans)]
    keep += [f"NOT (c0 >= {start} AND c0 < {end})" for start, end in part.refused]
    rows = f"{source} e"
    if part.gone:
        values.append(f"{_PLACES[part.format]} AS place")
        keep.append("place NOT IN (SELECT gone FROM gone)")
        connection.register("gone", pa.table({"gone": pa.array(part.gone, pa.int64())}))
    elif early := _early(columns.get(stream.time.lower()), spans):
        rows += f" WHERE {early}"
    names = ", ".join(f"c{number}" for number in range(len(wanted)))
    where = " AND ".join(f"({one})" for one in keep)
    try:
        sql = f"SELECT {names} FROM (SELECT {', '.join(values)} FROM {rows}) WHERE {where}"
        found: pa.Table = connection.sql(sql, params=given).to_arrow_table()
    finally:
        if part.gone:
            connection.unregister("gone")
    arrays = [
        _as_declared(column.combine_chunks(), types[name]) for name, column in zip(wanted, found.columns, strict=True)
    ]
    return pa.table(arrays, schema=schema)


_PLACES = {"csv": "row_number() OVER () - 1", "parquet": "file_row_number"}
"""The number of a row in its file."""


def _values(
    stream: Stream, part: _Part, wanted: Sequence[str], columns: _Columns
) -> tuple[list[str], list[str], list[Any]]:
    """SQL of some columns, named c0, c1, …; conditions of rows with a text that is not read as its type; and what the
    parameters of the former are."""
    types, constants = dict(stream.schema), dict(part.constants)
    values, texts, given = list[str](), list[str](), list[Any]()
    for number, name in enumerate(wanted):
        type = types[name]
        if name in constants:
            constant, sql = constants[name].as_py(), "NULL"
            if constant is not None:
                kind = "VARCHAR" if isinstance(constant, str) else _duckdb_type(type)
                sql = _value(stream, name, type, f"?::{kind}", kind)
                # a parameter counts as often as it stands there
                given += [constant] * sql.count("?")
        elif (column := columns.get(name.lower())) is None:
            sql = "NULL"
        else:
            read = f"e.{quoted(column[0])}"
            sql = _value(stream, name, type, read, column[1])
            if column[1] == "VARCHAR" and type.name != "string":
                texts.append(f"({_text(stream, read)} IS NOT NULL AND ({sql}) IS NULL)")
        values.append(f"({sql})::{_stored_type(type)} AS c{number}")
    return values, texts, given


def _as_declared(column: pa.Array, type: Type) -> pa.Array:
    target = arrow_type(type)
    if type.name == "timestamp":
        return column.cast(pa.int64()).cast(target)
    return column if column.type == target else column.cast(target)


_Columns = Mapping[str, tuple[str, str]]
"""Of the columns of a file, by their names in small letters, the name and DuckDB's type."""


def _has_old_calendar(path: str) -> bool:
    """Whether Spark may have written days before 1582 by the Julian calendar, which DuckDB does not know of."""
    known = pq.read_metadata(path).metadata or {}
    version = known.get(b"org.apache.spark.version", b"3")
    return version < b"3" or any(key.startswith(b"org.apache.spark.legacy") for key in known)


def _parquet(connection: duckdb.DuckDBPyConnection, part: _Part) -> tuple[str, _Columns]:
    if any(map(_has_old_calendar, part.paths)):
        raise ReadByRun("Spark may have written it by an old calendar")
    paths = ", ".join(map(text_literal, part.paths))
    source = f"read_parquet([{paths}], union_by_name = true{', file_row_number = true' if part.gone else ''})"
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    columns: dict[str, tuple[str, str]] = {}
    for name, kind, *_ in described:
        if name.lower() in columns:
            raise ReadByRun("columns that differ by case")
        columns[name.lower()] = name, kind
    return source, columns


def _csv(stream: Stream, part: _Part) -> tuple[str, _Columns]:
    source, (path,) = stream.source, part.paths
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        if source.quote is None:
            reader = csv.reader(file, delimiter=source.delimiter, quoting=csv.QUOTE_NONE)
        else:
            reader = csv.reader(file, delimiter=source.delimiter, quotechar=source.quote)
        names = next((row for row in reader if row), [])
    if not names:
        return "(SELECT 1)", {}
    if not source.header:
        names = [name for name, _ in stream.schema]
    if len({name.lower() for name in names}) < len(names):
        raise ReadByRun("columns that differ by case")
    declared = ", ".join(f"{text_literal(name)}: 'VARCHAR'" for name in names)
    quote = text_literal(source.quote or "")
    nulls = ", ".join(map(text_literal, ["", *source.null]))
    options = (
        f"auto_detect = false, header = {str(source.header).lower()}, delim = {text_literal(source.delimiter)}, "
        f"quote = {quote}, escape = {quote}, nullstr = [{nulls}], allow_quoted_nulls = false, "
        f"columns = {{{declared}}}, max_line_size = {LONGEST_LINE}"
    )
    return f"read_csv({text_literal(path)}, {options})", {name.lower(): (name, "VARCHAR") for name in names}


def _early(column: tuple[str, str] | None, spans: Spans) -> str:
    """A condition on the time as it is stored, by which DuckDB passes over parts of files."""
    made = {"TIMESTAMP": "make_timestamp", "TIMESTAMP WITH TIME ZONE": "make_timestamptz"}
    if column is None or column[1] not in made:
        return ""
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    make = made[column[1]]
    return f"{quoted(column[0])} >= {make}({low}) AND {quoted(column[0])} < {make}({high})"


# ------------------------------------------------------------------------------------------------ casts
def _text(stream: Stream, sql: str) -> str:
    """A text without the spaces around it, null where it stands for null."""
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
    whole = f"(({micros} - (({micros} % {divisor}) + {divisor}) % {divisor}) // {divisor})"
    return f"(CASE WHEN {whole} BETWEEN -9223372036854775807 AND 9223372036854775807 THEN {whole} END)"


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
