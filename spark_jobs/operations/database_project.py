"""A project made from a table of a database: ``heddle init postgresql://…``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pyarrow as pa
import yaml

from optimizer.errors.diagnostics import HeddleError, count, printable
from optimizer.workload.databases import (
    FILES,
    SERVERS,
    VARIABLES,
    DatabaseUrl,
    is_database_url,
    kind_of_file,
    parse_database_url,
)
from optimizer.workload.instants import format_instant
from optimizer.workload.streams import TABLE, TIME_UNITS
from optimizer.workload.urls import SCHEMES, scheme_of
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Origin, Source, Stream, Type
from spark_jobs.engine.configuration import check_spark
from spark_jobs.operations import project
from spark_jobs.streams.copies.databases.batch import TableBatch, by_lower_name
from spark_jobs.streams.copies.databases.connection import (
    Connection,
    TableColumn,
    TableSummary,
    is_position,
    positions_of,
)
from spark_jobs.streams.copies.databases.files import ROWID
from spark_jobs.streams.copies.databases.opening import opened, why_spark
from spark_jobs.streams.copies.readers import spark_session
from spark_jobs.streams.sources.decoding import type_of_arrow
from spark_jobs.streams.sources.inspection import Inspection
from spark_jobs.streams.sources.proposals import Data, Proposal, TimeCandidate, candidates_of, stream_name, time_of
from spark_jobs.streams.sources.text_values import instants_of_texts

if TYPE_CHECKING:
    from spark_jobs.streams.copies.jdbc_tables import JdbcTables

SAMPLED = 1_000
"""Rows by which the columns of a table are looked at."""

BEGINNING = 16
"""Bytes by which the file of a database is recognised."""


@dataclass(frozen=True)
class DatabaseProject(project.Project):
    """Proposal of ``heddle init`` for a table. ``lines``: what it holds."""

    lines: tuple[str, ...] = ()

    @property
    def about(self) -> tuple[str, ...]:
        return self.lines


@dataclass(frozen=True)
class Account:
    """Credentials as a file of streams has them: the ``user``, and a reference ``${NAME}`` for the ``password``."""

    user: str
    password: str

    @classmethod
    def of(cls, url: DatabaseUrl) -> Account:
        """The credentials of a URL; of a password that it does not name the variable of the database's own programs."""
        variable = VARIABLES.get(url.kind, "")
        is_set = bool(os.environ.get(variable))
        return cls(url.user, url.password or (f"${{{variable}}}" if is_set else ""))


def database_at(text: str) -> DatabaseUrl | None:
    """The database that an argument of ``heddle init`` names: a URL, or a file; None: it names none.

    Raises HDL-457 for a URL that is none, HDL-458 for one with a password in it.
    """
    if is_database_url(text):
        return parse_database_url(text, Path())
    scheme, separator, _ = text.partition("://")
    if separator and scheme.isalnum() and scheme_of(text) not in SCHEMES:
        hint = f"databases: {', '.join((*SERVERS, *FILES))}, jdbc; stores: {', '.join(SCHEMES)}"
        raise HeddleError("HDL-457", f"no URL of {scheme} is read here", hint)
    path = Path(text)
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING)
    except OSError:
        return None
    kind = kind_of_file(path.name, beginning)
    return None if kind is None else parse_database_url(f"{kind}:///{quote(str(path.absolute()))}", Path())


def tables_of(url: DatabaseUrl) -> tuple[TableSummary, ...]:
    """The tables of a database, by name. Raises HDL-401, HDL-433, HDL-489, HDL-490, HDL-904."""
    with _opened(url) as database:
        return database.tables()


def plan_database(
    url: DatabaseUrl,
    table: str,
    folder: Path,
    time: str | Sequence[str] | None = None,
    name: str | None = None,
    airflow: bool = False,
    choose: project.Choose | None = None,
) -> DatabaseProject:
    """A project over a table of a database; arguments as of :func:`spark_jobs.operations.project.plan_project`.

    Raises as :func:`tables_of`, HDL-135 for a table without rows, HDL-136 for one without a time, HDL-404.
    """
    column = time if time is None or isinstance(time, str) else next(iter(time), None)
    with _opened(url) as database:
        proposal, origin = _proposed(seen := _looked_at(database, url, table), url, column, name, choose)
    summary = seen.summary
    notes = _notes(proposal, origin, seen.columns.values())
    lines = [*_stream_lines(proposal, origin, url, folder, notes)]
    header = f"# yaml-language-server: $schema={project.SCHEMAS}/{project.STREAMS}.json"
    text = "\n".join(
        [header, "# A table that is copied, a part at a time. All keys: docs/sources.md.", "streams:", *lines]
    )
    files = [(project.STREAMS, text + "\n"), *project.files_beside([proposal], folder, airflow)]
    about = f"table {summary.name}: {_events(proposal)}; time: {proposal.time}"
    return DatabaseProject(folder, (proposal,), tuple(files), lines=(about, *(f"  {note}" for note in notes)))


@contextmanager
def _opened(url: DatabaseUrl) -> Iterator[Connection | JdbcTables]:
    """The database, as Heddle or Spark reads it."""
    account = Account.of(url)
    given = {"user": account.user, "password": account.password}
    options = tuple(sorted((key, value) for key, value in given.items() if value))
    origin, name = Origin("jdbc", url.jdbc, options=options), stream_name(Path(url.database or url.file or url.kind))
    stream = Stream(name, Source("delta", "", origin=origin), (), "")
    if why_spark(stream) is None:
        with opened(stream) as connection:
            yield connection
        return
    if find_spec("pyspark") is None:
        check_spark()
    from spark_jobs.streams.copies.jdbc_tables import JdbcTables
    from spark_jobs.streams.copies.origins import failures

    with spark_session() as spark, failures(stream):
        yield JdbcTables(spark, stream)


# ------------------------------------------------------------------------------------------- looking
@dataclass(frozen=True)
class SeenTable:
    """A table, looked at.

    - ``types``: the columns that queries can use, with their types; ``sample``: some of their rows.
    - ``count``: counts its rows; ``ends``: reads the least and greatest value of a column of times, as numbers.
    """

    summary: TableSummary
    kind: str
    columns: Mapping[str, TableColumn]
    types: Sequence[tuple[str, Type]]
    sample: pa.Table
    count: Callable[[], int]
    ends: Callable[[TimeCandidate], tuple[int | None, int | None]]


def _looked_at(database: Connection | JdbcTables, url: DatabaseUrl, table: str) -> SeenTable:
    if isinstance(database, Connection):
        return _seen(database, url, table)
    return _seen_by_spark(database, url, table)


def _seen(connection: Connection, url: DatabaseUrl, table: str) -> SeenTable:
    relation = connection.relation(table)
    spelled = ".".join(relation)
    columns = connection.columns(relation)
    listed = next((each for each in connection.tables() if each.name == spelled), None)
    # partitions of a table, and tables of the server's own, are not listed
    summary = TableSummary(spelled, None, False, columns) if listed is None else listed
    pairs = _types(connection, relation, columns)
    origin = Origin("jdbc", url.jdbc, spelled)
    stream = Stream("init", Source("delta", "", origin=origin), tuple(pairs), "")
    by_name = by_lower_name(stream, columns, relation)
    batch = TableBatch(connection, stream, relation, by_name, columns[0])
    sample = batch.sample(SAMPLED) if pairs else pa.table({})
    return SeenTable(
        *(summary, connection.kind, by_name, pairs, sample),
        lambda: batch.number("count(*)") or 0,
        lambda chosen: _ends(batch, by_name[chosen.name.lower()], chosen),
    )


def _seen_by_spark(database: JdbcTables, url: DatabaseUrl, table: str) -> SeenTable:
    summary = database.table(table)
    frame = database.frame(summary.name)
    sample = frame.limit(SAMPLED).toArrow()
    known = ((field.name, type_of_arrow(field.type)) for field in sample.schema)
    pairs = [(name, type_) for name, type_ in known if type_ is not None]

    def ends(chosen: TimeCandidate) -> tuple[int | None, int | None]:
        name = "`" + chosen.name.replace("`", "``") + "`"
        read = frame.selectExpr(f"min({name})", f"max({name})").toArrow()
        least, most = (positions_of(values.combine_chunks())[0].as_py() for values in read.columns)
        return least, most

    columns = {
        field.name.lower(): TableColumn(
            *(field.name, str(field.type), field.type),
            is_local=pa.types.is_timestamp(field.type) and field.type.tz is None,
        )
        for field in sample.schema
    }
    return SeenTable(summary, url.kind, columns, pairs, sample.select([name for name, _ in pairs]), frame.count, ends)


def _proposed(
    seen: SeenTable, url: DatabaseUrl, time: str | None, name: str | None, choose: project.Choose | None
) -> tuple[Proposal, Origin]:
    spelled, summary, pairs = seen.summary.name, seen.summary, seen.types
    if TABLE.fullmatch(spelled) is None:
        hint = "make a view of it whose name has letters, digits, _, $ and - only"
        raise HeddleError("HDL-457", f"streams.yaml cannot name the table {printable(spelled, 100)}", hint)
    if not pairs:
        raise HeddleError("HDL-135", f"{spelled} has no column that queries can use", "arrays and bytes are not read")
    if not len(seen.sample):
        raise HeddleError("HDL-135", f"{spelled} has no rows", "wait until it has events")
    unused = tuple(
        column.name for column in seen.columns.values() if column.name not in dict(pairs) and column.name != ROWID
    )
    # a path only names the table in messages
    candidates = candidates_of(pairs, seen.sample)
    data = Data(Path(spelled), seen.kind, (), tuple(pairs), seen.sample, candidates, unused)
    chosen, called = time_of(data, time), name or stream_name(Path(spelled.rpartition(".")[2]))
    if choose is not None:
        chosen, called = choose(data, chosen, called)
    schema = tuple((each, TIMESTAMP if each == chosen.name and chosen.unit is None else type_) for each, type_ in pairs)
    key = summary.key if summary.key is not None else chosen.name
    if summary.key is None and not is_position(seen.columns[chosen.name.lower()]):
        hint = "a column of integers or timestamps that grow as rows come in is needed: make a view that has one"
        raise HeddleError("HDL-434", f"{spelled}: what came since it was copied cannot be determined", hint)
    is_local = any(column.is_local and column.name in dict(pairs) for column in seen.columns.values())
    origin = Origin(
        *("jdbc", url.jdbc, spelled),
        watermark=key if key != chosen.name else None,
        zone="UTC" if is_local else None,
    )
    stream = Stream(called, Source("delta", "", time_unit=chosen.unit, origin=origin), schema, chosen.name)
    inspection = Inspection(called, 0, *_instants(seen.ends(chosen), chosen), None, None, ())
    is_about = summary.rows is not None and summary.rows > MOST_COUNTED
    rows = summary.rows if summary.rows is not None and is_about else seen.count()
    return Proposal(stream, data, chosen, inspection, rows, is_about, True), origin


MOST_COUNTED = 20_000_000
"""Rows up to which a table is counted; of a larger one the database estimates it."""


def _ends(batch: TableBatch, at: TableColumn, chosen: TimeCandidate) -> tuple[int | None, int | None]:
    """The least and the greatest value of a column of times."""
    ends: list[int | None] = []
    name, connection = batch.connection.quoted(at.name), batch.connection
    for function in ("min", "max"):
        condition = f"NOT ({connection.unpositioned(at)})" if is_position(at) and connection.kind != "sqlite" else ""
        if connection.kind == "sqlite" and chosen.unit is None:
            # texts in ISO 8601: their order is that of the times, if all are written alike
            kind = f"(SELECT {function}({name}) FROM {batch.source} WHERE typeof({name}) = 'text')"
            ((_,), (text,)) = connection.rows(f"SELECT '' AS t UNION ALL SELECT {kind}")
            ends.append(None if text is None else instants_of_texts(pa.array([text])).cast(pa.int64())[0].as_py())
        else:
            ends.append(batch.number(f"{function}({connection.value(at, None)})", condition))
    return ends[0], ends[1]


def _instants(ends: tuple[int | None, int | None], chosen: TimeCandidate) -> tuple[int | None, int | None]:
    """Values of a column of times as microseconds since 1970."""
    factor, divisor = (1, 1) if chosen.unit is None else TIME_UNITS[chosen.unit]
    first, last = (None if end is None else end * factor // divisor for end in ends)
    return first, last


def _types(connection: Connection, relation: tuple[str, ...], columns: Sequence[TableColumn]) -> list[tuple[str, Type]]:
    """The columns that queries can use, with their types; in SQLite by some values."""
    if connection.kind == "sqlite":
        typed = ((column, _sqlite_type(connection, relation, column)) for column in columns if column.name != ROWID)
        return [(column.name, type_) for column, type_ in typed if type_ is not None]
    known = ((column.name, type_of_arrow(column.arrow)) for column in columns if column.arrow is not None)
    return [(name, type_) for name, type_ in known if type_ is not None]


def _sqlite_type(connection: Connection, relation: tuple[str, ...], column: TableColumn) -> Type | None:
    """The type that the first values of a column fit, whatever it is declared as."""
    name, table = connection.quoted(column.name), connection.quoted(relation[0])
    rows = connection.rows(
        "SELECT '' AS kind, '' AS least, '' AS most UNION ALL "
        "SELECT typeof(v), CAST(min(v) AS TEXT), CAST(max(v) AS TEXT) "
        f"FROM (SELECT {name} AS v FROM {table} WHERE {name} IS NOT NULL LIMIT {SAMPLED}) GROUP BY 1"
    )[1:]
    kinds = {kind: (least, most) for kind, least, most in rows}
    declared = None if column.arrow is None else type_of_arrow(column.arrow)
    if not kinds or "blob" in kinds or ("text" in kinds and len(kinds) > 1):
        return declared if not kinds else None
    if "text" in kinds:
        if declared == DATE or (declared is not None and declared.name == "decimal"):
            return declared
        return TIMESTAMP if declared == TIMESTAMP and _are_times(kinds["text"]) else STRING
    if declared is not None and declared.name == "decimal":
        return declared
    if "real" in kinds:
        return DOUBLE
    return BOOLEAN if declared == BOOLEAN and set(kinds["integer"]) <= {"0", "1"} else LONG


def _are_times(texts: Sequence[str]) -> bool:
    try:
        instants_of_texts(pa.array(texts))
    except pa.ArrowInvalid:
        return False
    return True


# ------------------------------------------------------------------------------------------- writing
def _events(proposal: Proposal) -> str:
    about, inspection = "about " if proposal.is_about else "", proposal.inspection
    if inspection.first is None or inspection.last is None:
        return f"{about}{count(proposal.rows, 'row')}"
    span = f"from {format_instant(inspection.first)} to {format_instant(inspection.last)}"
    return f"{about}{count(proposal.rows, 'row')} {span}"


def _notes(proposal: Proposal, origin: Origin, columns: Iterable[TableColumn]) -> list[str]:
    """The lines that a person should know of a copy."""
    mark = origin.watermark or proposal.stream.time
    notes = [
        f"not seen: rows that are changed or deleted after they were copied, and rows that come with a lower {mark}"
    ]
    if origin.watermark is None:
        notes.append("no integer key: add `lateness` for as long as transactions last, or name a `watermark`")
    if origin.zone is not None:
        local = [column.name for column in columns if column.is_local]
        notes.append(f"{', '.join(local[:6])}: no time zone, taken as UTC; `zone` says another")
    if proposal.data.unused:
        notes.append(f"not read: {', '.join(map(repr, proposal.data.unused[:6]))}")
    return notes


def _stream_lines(
    proposal: Proposal, origin: Origin, url: DatabaseUrl, folder: Path, notes: Sequence[str]
) -> Iterator[str]:
    stream = proposal.stream
    yield f"  {stream.name}:"
    for line in (_events(proposal), *notes):
        yield f"    # {' '.join(line.split())}"
    yield "    source:"
    yield "      format: jdbc"
    yield f"      path: {_plain(_address(url, folder))}"
    yield f"      table: {_plain(origin.table)}"
    if origin.watermark is not None:
        yield f"      watermark: {_plain(origin.watermark)}"
    if origin.zone is not None:
        yield f"      zone: {origin.zone}"
    if stream.source.time_unit is not None:
        yield f"      time_unit: {stream.source.time_unit}"
    account = Account.of(url)
    given = {"user": account.user, "password": account.password}
    options = {key: value for key, value in given.items() if value}
    if options:
        yield "      options:"
        yield from (f"        {key}: {_plain(value)}" for key, value in options.items())
    yield f"    time: {_plain(stream.time)}"
    others = [candidate.name for candidate in proposal.data.candidates if candidate.name != stream.time]
    if others:
        yield f"    # other columns with times: {' '.join(', '.join(others[:6]).split())}"
    yield "    # lateness: 10 minutes   # how long events may still come after the clock has passed their time"
    yield "    schema:"
    for name, type_ in stream.schema:
        declared = LONG if name == stream.time and stream.source.time_unit is not None else type_
        yield f"      {_plain(name)}: {_plain(str(declared))}"


def _address(url: DatabaseUrl, folder: Path) -> str:
    """The URL of a database as streams.yaml has it: without credentials, and relative to its folder."""
    if url.file:
        base, file = folder.resolve(), Path(url.file).resolve()
        return f"{url.kind}:///{quote(str(file.relative_to(base) if file.is_relative_to(base) else file))}"
    if url.kind not in SERVERS.values() or not url.host:
        return url.jdbc
    query = f"?{urlencode(dict(url.parameters))}" if url.parameters else ""
    return url.jdbc.removeprefix("jdbc:").partition("?")[0] + query


def _plain(text: str) -> str:
    dumped = yaml.safe_dump(text, default_flow_style=True, allow_unicode=True, width=10_000)
    return dumped.removesuffix("\n").removesuffix("...").rstrip("\n")


def listing_json(tables: Sequence[TableSummary]) -> list[dict[str, object]]:
    """Tables as ``heddle init --json`` prints them."""
    return [
        {"name": table.name, "rows": table.rows, "about": table.is_about, "times": list(table.times), "key": table.key}
        for table in tables
    ]
