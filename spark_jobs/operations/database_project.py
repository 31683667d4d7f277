"""A project made from a table of a database: ``heddle init postgresql://…``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, urlencode

import pyarrow as pa
import yaml

from optimizer.errors.diagnostics import HeddleError, count
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
from optimizer.workload.urls import SCHEMES, scheme_of
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Origin, Source, Stream, Type
from spark_jobs.operations import project
from spark_jobs.streams.copies.databases.batch import TableBatch, by_lower_name
from spark_jobs.streams.copies.databases.connection import Connection, TableColumn, TableSummary, is_position
from spark_jobs.streams.copies.databases.opening import PACKAGES, connect_to, value_of
from spark_jobs.streams.sources.csv_source import instants_of_texts
from spark_jobs.streams.sources.decoding import type_of_arrow
from spark_jobs.streams.sources.inspection import Inspection
from spark_jobs.streams.sources.proposals import Data, Proposal, TimeCandidate, candidates_of, stream_name, time_of
from spark_jobs.streams.sources.splits import check_place

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
    """The tables of a database, by name. Raises HDL-401, HDL-405 for a database that only Spark reads, HDL-489,
    HDL-490, HDL-904."""
    connection = _opened(url)
    try:
        return connection.tables()
    finally:
        connection.close()


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
    connection = _opened(url)
    try:
        column = time if time is None or isinstance(time, str) else next(iter(time), None)
        proposal, origin, summary = _proposed(connection, url, table, column, name, choose)
    finally:
        connection.close()
    notes = _notes(proposal, origin, summary)
    lines = [*_stream_lines(proposal, origin, url, folder, notes)]
    header = f"# yaml-language-server: $schema={project.SCHEMAS}/{project.STREAMS}.json"
    text = "\n".join(
        [header, "# A table that is copied, a part at a time. All keys: docs/sources.md.", "streams:", *lines]
    )
    files = [(project.STREAMS, text + "\n"), *project.files_beside([proposal], folder, airflow)]
    about = f"table {summary.name}: {_events(proposal)}; time: {proposal.time}"
    return DatabaseProject(folder, (proposal,), tuple(files), lines=(about, *(f"  {note}" for note in notes)))


def _opened(url: DatabaseUrl) -> Connection:
    if url.kind not in PACKAGES:
        hint = "write streams.yaml by hand, `heddle copy` reads it by Spark: docs/sources.md, Databases"
        raise HeddleError("HDL-405", f"`heddle init` does not read {url.kind}: only Spark does", hint)
    from optimizer.errors.installing import EXTRAS, check_installed

    if PACKAGES[url.kind] in EXTRAS:
        check_installed(PACKAGES[url.kind])
    if url.file:
        check_place(Stream("init", Source("delta", ""), (), ""), Path(url.file))
    account = Account.of(url)
    return connect_to("heddle init", url, account.user, value_of(account.password) if account.password else "")


# ------------------------------------------------------------------------------------------- looking
def _proposed(
    connection: Connection,
    url: DatabaseUrl,
    table: str,
    time: str | None,
    name: str | None,
    choose: project.Choose | None,
) -> tuple[Proposal, Origin, TableSummary]:
    relation = connection.relation(table)
    spelled = ".".join(relation)
    summary = next((each for each in connection.tables() if each.name == spelled), None)
    assert summary is not None
    columns = connection.columns(relation)
    pairs = _types(connection, relation, columns)
    if not pairs:
        raise HeddleError("HDL-135", f"{spelled} has no column that queries can use", "arrays and bytes are not read")
    origin = Origin("jdbc", url.jdbc, spelled)
    stream = Stream(stream_name(Path(relation[-1])), Source("delta", "", origin=origin), tuple(pairs), "")
    by_name = by_lower_name(stream, columns, relation)
    batch = TableBatch(connection, stream, relation, by_name, columns[0])
    sample = batch.sample(SAMPLED)
    if not len(sample):
        raise HeddleError("HDL-135", f"{spelled} has no rows", "wait until it has events")
    # a path only names the table in messages
    unused = tuple(column.name for column in columns if column.name not in dict(pairs) and column.name != "rowid")
    data = Data(Path(spelled), connection.kind, (), tuple(pairs), sample, candidates_of(pairs, sample), unused)
    chosen, called = time_of(data, time), name or stream.name
    if choose is not None:
        chosen, called = choose(data, chosen, called)
    schema = tuple((each, TIMESTAMP if each == chosen.name and chosen.unit is None else type_) for each, type_ in pairs)
    source = replace(stream.source, time_unit=chosen.unit)
    stream = replace(stream, name=called, schema=schema, time=chosen.name, source=source)
    at = by_name[chosen.name.lower()]
    key = summary.key if summary.key is not None else chosen.name
    if summary.key is None and not is_position(at):
        hint = "a column of integers or timestamps that grow as rows come in is needed: make a view that has one"
        raise HeddleError("HDL-434", f"{spelled}: what came since it was copied cannot be told", hint)
    zone = "UTC" if any(column.is_local and column.name in dict(pairs) for column in columns) else None
    origin = replace(origin, watermark=key if key != chosen.name else None, zone=zone)
    proposal = Proposal(stream, data, chosen, _inspected(batch, stream, at, chosen), 0, False, True)
    rows = summary.rows if summary.rows is not None and summary.rows > MOST_COUNTED else None
    number = rows if rows is not None else batch.number("count(*)") or 0
    return replace(proposal, rows=number, is_about=rows is not None), origin, summary


MOST_COUNTED = 20_000_000
"""Rows up to which a table is counted; of a larger one the database estimates it."""


def _inspected(batch: TableBatch, stream: Stream, at: TableColumn, chosen: TimeCandidate) -> Inspection:
    """The times of the first and last event."""
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
    if chosen.unit is not None:
        from optimizer.workload.streams import TIME_UNITS

        factor, divisor = TIME_UNITS[chosen.unit]
        ends = [None if end is None else end * factor // divisor for end in ends]
    return Inspection(stream.name, 0, ends[0], ends[1], None, None, ())


def _types(connection: Connection, relation: tuple[str, ...], columns: Sequence[TableColumn]) -> list[tuple[str, Type]]:
    """The columns that queries can use, with their types; in SQLite by some values."""
    if connection.kind == "sqlite":
        typed = ((column, _sqlite_type(connection, relation, column)) for column in columns if column.name != "rowid")
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


def _notes(proposal: Proposal, origin: Origin, summary: TableSummary) -> list[str]:
    """The lines that a person should know of a copy."""
    mark = origin.watermark or proposal.stream.time
    notes = [
        f"not seen: rows that are changed or deleted after they were copied, and rows that come with a lower {mark}"
    ]
    if origin.watermark is None:
        notes.append("no integer key: add `lateness` for as long as transactions last, or name a `watermark`")
    if origin.zone is not None:
        local = [column.name for column in summary.columns if column.is_local]
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
