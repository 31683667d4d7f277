"""Rows that came to a table since it was copied: counted, read and checked in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import BOOLEAN, DATE, SECOND, TIMESTAMP, Origin, Stream, Type
from spark_jobs.streams.copies.databases.connection import (
    Connection,
    TableColumn,
    is_position,
    positions_of,
    storage_of,
)
from spark_jobs.streams.copies.spans import COUNTED_AGAIN, UNPLACED, WatermarkSpan, by_clock, spans_of
from spark_jobs.streams.sources.decoding import instants_of_column, rows_of_spark
from spark_jobs.streams.sources.expressions import arrow_type

SPAN_ROWS = 1_000_000
"""Rows of a span at most, about: so many are copied again if some become visible late."""

BUFFERED = 128 << 20
"""Bytes of rows of all spans in memory at which files are written."""

MARK, MISFITS = "__watermark", "__misfits"
"""Columns that are read in addition to those of the stream."""

Write = Callable[[Sequence[pa.RecordBatch], pa.Schema], tuple[str, int]]
"""Writes rows as a file of the copy: its name, and its bytes."""

_UTC = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1)
_HOUR = 3600 * SECOND
_FIRST = (datetime(2, 1, 1) - _EPOCH) // timedelta(microseconds=1)
_LAST = (datetime(9998, 1, 1) - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Request:
    """Rows to be read with one statement: those of ``spans``, which follow one another, that meet ``condition``."""

    spans: tuple[WatermarkSpan, ...]
    condition: str


@dataclass
class TableBatch:
    """The rows of a table that a copy lacks.

    - ``requests``: what is read; ``gone``: pieces of the copy that it replaces.
    - ``schema``: the Arrow columns of the copy.
    """

    connection: Connection
    stream: Stream
    relation: tuple[str, ...]
    columns: Mapping[str, TableColumn]
    mark: TableColumn
    requests: list[Request] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    @property
    def pieces(self) -> list[str]:
        """Names of the pieces that come."""
        return [span.piece for request in self.requests for span in request.spans]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, arrow_type(type_)) for name, type_ in self.stream.schema])

    # ---------------------------------------------------------------------------------------------- statements
    @property
    def source(self) -> str:
        """The table, as a statement has it."""
        return ".".join(map(self.connection.quoted, self.relation))

    def within(self, span: WatermarkSpan) -> str:
        """The condition for the rows of a span."""
        name = self.connection.quoted(self.mark.name)
        if span.is_unplaced:
            return self.connection.unpositioned(self.mark)
        conditions = [f"{name} <= {self.connection.position(self.mark, span.to)}"]
        if span.after is not None:
            conditions.append(f"{name} > {self.connection.position(self.mark, span.after)}")
        if not self.mark.is_required:
            conditions.append(f"NOT ({self.connection.unpositioned(self.mark)})")
        return " AND ".join(conditions)

    def number(self, expression: str, *conditions: str) -> int | None:
        """The number that an aggregate gives of the rows that meet all conditions."""
        where = " AND ".join(f"({condition})" for condition in conditions if condition)
        statement = f"SELECT {expression} AS n FROM {self.source}" + (f" WHERE {where}" if where else "")
        return self.connection.numbers(statement)[0]

    # ---------------------------------------------------------------------------------------------- reading
    def files(self, write: Write) -> Iterator[tuple[str, str, int, int]]:
        """Read the requests and write their rows: of each file the piece, the path, the bytes and the rows. Raises
        HDL-404 for a value that does not fit, HDL-491."""
        for request in self.requests:
            yield from _Files(request.spans, write, self.schema).of(self._read(request))

    def sample(self, rows: int) -> pa.Table:
        """Some rows, in the types of the stream. Raises as :meth:`files`."""
        batches = [batch for _, batch in self._read(Request((), "1 = 1"), rows)]
        return pa.Table.from_batches(batches, self.schema)

    def _read(self, request: Request, most: int = 0) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """The rows of a request (``most``: so many of them at most; 0: all) in the types of the stream, and their
        watermarks."""
        schema, connection = self.stream.schema, self.connection
        columns = [(self.columns[name.lower()], type_) for name, type_ in schema]
        expressions = [
            f"{connection.value(column, type_)} AS {connection.quoted(name)}"
            for (column, type_), (name, _) in zip(columns, schema, strict=True)
        ]
        first = [connection.read_as(column, type_) for column, type_ in columns]
        expressions.append(f"{connection.value(self.mark, None)} AS {connection.quoted(MARK)}")
        first.append(connection.read_as(self.mark, None))
        misfits = [condition for column, type_ in columns if (condition := self._misfit(column, type_))]
        if misfits:
            total = " + ".join(f"({condition})" for condition in misfits)
            expressions.append(f"{total} AS {connection.quoted(MISFITS)}")
            first.append("0")
        statement = f"SELECT {', '.join(expressions)} FROM {self.source} WHERE {request.condition}"
        if most:
            statement = f"SELECT * FROM ({statement} LIMIT {most}) AS sampled"
        skipped = any(first)
        if skipped:
            # which types there are is known by the first row
            statement = f"SELECT {', '.join(first)} UNION ALL {statement}"
        names = [*(name for name, _ in schema), MARK, *([MISFITS] if misfits else [])]
        for raw in connection.batches(statement):
            batch = pa.RecordBatch.from_arrays([storage_of(values) for values in raw.columns], names)
            if skipped:
                batch, skipped = batch.slice(1), False
            if not len(batch):
                continue
            if misfits and pc.any(pc.greater(batch.column(MISFITS), 0)).as_py():
                raise self._sqlite_misfit(columns, request.condition)
            positions = np.zeros(len(batch), dtype=np.int64)
            if len(request.spans) > 1:
                positions = positions_of(batch.column(MARK)).to_numpy(zero_copy_only=False)
            yield positions, self._checked(batch)

    def _misfit(self, column: TableColumn, type_: Type) -> str | None:
        if column.name.lower() == self.stream.time.lower() and self.stream.source.time_unit is not None:
            return self.connection.misfit(column, replace(BOOLEAN, name="long"))
        return self.connection.misfit(column, type_)

    def _sqlite_misfit(self, columns: Sequence[tuple[TableColumn, Type]], condition: str) -> HeddleError:
        """The error for the first value that does not fit, of a database whose values have types of their own."""
        for column, type_ in columns:
            misfit = self._misfit(column, type_)
            if misfit is None:
                continue
            name = self.connection.quoted(column.name)
            rows = self.connection.rows(
                "SELECT '' AS kind, '' AS value UNION ALL SELECT * FROM (SELECT typeof("
                f"{name}), substr(CAST({name} AS TEXT), 1, 80) FROM {self.source} WHERE ({condition}) AND ({misfit}) "
                "LIMIT 1)"
            )
            if len(rows) > 1:
                kind, value = rows[1]
                return self._unfit(column.name, type_, f"{value!r} is {kind}")
        raise AssertionError

    def _unfit(self, name: str, type_: Type, why: str) -> HeddleError:
        message = f"stream {self.stream.name}: column {name} of {'.'.join(self.relation)} does not fit its declared "
        hint = "correct `schema` in streams.yaml, or the row; nothing of this time was copied"
        return HeddleError("HDL-404", f"{message}type {type_}: {printable(why, 200)}", hint)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the types of the stream. Raises HDL-404, which names the row by its watermark."""
        try:
            return self._typed(batch)
        except HeddleError:
            low, high = 0, len(batch)
            while high - low > 1:
                middle = (low + high) // 2
                try:
                    self._typed(batch.slice(low, middle - low))
                    low = middle
                except HeddleError:
                    high = middle
        try:
            self._typed(batch.slice(low, 1))
        except HeddleError as error:
            at = f"{self.mark.name} {printable(str(batch.column(MARK)[low].as_py()), 40)}"
            message = error.diagnostic.message.replace(": row 1, ", f": row with {at}, ", 1)
            hint = "correct `schema` in streams.yaml, or the row; nothing of this time was copied"
            raise HeddleError(error.diagnostic.code, message, hint) from None
        raise AssertionError

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for name, type_ in self.stream.schema:
            column, values = self.columns[name.lower()], batch.column(name)
            try:
                arrays.append(self._converted(column, type_, values))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                shown = f"row 1, {values[0].as_py()!r}: {error}" if len(values) == 1 else str(error)
                raise self._unfit(name, type_, shown) from error
        rows = pa.RecordBatch.from_arrays(arrays, [name for name, _ in self.stream.schema])
        return rows_of_spark(self.stream, ".".join(self.relation), rows)

    def _converted(self, column: TableColumn, type_: Type, values: pa.Array) -> pa.Array:
        """Values as a file of Parquet would have them."""
        origin = _origin(self.stream)
        is_text = pa.types.is_string(values.type)
        if is_text and type_.name == "decimal":
            return values.cast(arrow_type(type_))
        if is_text and column.arrow is not None and pa.types.is_decimal(column.arrow):
            return values.cast(column.arrow)
        if is_text and type_ == DATE and column.arrow != pa.string():
            return values.cast(pa.date32())
        if type_ == BOOLEAN and pa.types.is_integer(values.type) and self.connection.kind == "sqlite":
            return values.cast(pa.bool_())
        if type_ == TIMESTAMP and column.is_local and origin.zone is not None:
            return in_zone(instants_of_column(values), origin.zone)
        return values


class _Files:
    """Files of spans that are read together, in whatever order their rows come."""

    def __init__(self, spans: Sequence[WatermarkSpan], write: Write, schema: pa.Schema) -> None:
        self._spans, self._write, self._schema = spans, write, schema
        self._ends = np.array([span.to for span in spans], dtype=np.int64)
        self._rows: list[list[pa.RecordBatch]] = [[] for _ in spans]
        self._sizes = [0] * len(spans)
        self._counts = [0] * len(spans)

    def of(self, batches: Iterator[tuple[np.ndarray, pa.RecordBatch]]) -> Iterator[tuple[str, str, int, int]]:
        """Write rows: of each file the piece, the path, the bytes and the rows."""
        for positions, batch in batches:
            places = np.searchsorted(self._ends, positions) if len(self._spans) > 1 else np.zeros(len(batch), int)
            for place in np.unique(places):
                part = batch if len(self._spans) == 1 else batch.filter(pa.array(places == place))
                self._rows[place].append(part)
                self._sizes[place] += part.nbytes
                self._counts[place] += len(part)
            while sum(self._sizes) >= BUFFERED or max(self._counts) >= SPAN_ROWS:
                full = int(np.argmax(self._counts)) if max(self._counts) >= SPAN_ROWS else int(np.argmax(self._sizes))
                yield self._flushed(full)
        for place, rows in enumerate(self._rows):
            if rows:
                yield self._flushed(place)

    def _flushed(self, place: int) -> tuple[str, str, int, int]:
        rows, count = self._rows[place], self._counts[place]
        self._rows[place], self._sizes[place], self._counts[place] = [], 0, 0
        return (self._spans[place].piece, *self._write(rows, self._schema), count)


# ---------------------------------------------------------------------------------------------- what came
def batch_since(connection: Connection, stream: Stream, known: Mapping[str, int], clock: int) -> TableBatch:
    """The rows that a copy of the ``known`` pieces, with their numbers of rows, lacks of a table.

    ``clock`` (microseconds): rows later than it, less the stream's lateness, may still be arriving. Raises HDL-401
    (there is no table), HDL-403 (a column is missing), HDL-434 (new rows are not known), HDL-492 (the zone of its
    timestamps is not known).
    """
    origin = _origin(stream)
    relation = connection.relation(origin.table)
    columns = by_lower_name(stream, connection.columns(relation), relation)
    mark = _column(stream, columns, origin.watermark or stream.time, relation)
    _check_columns(connection, stream, columns, relation)
    if not is_position(mark) and connection.kind != "sqlite":
        raise _untold(stream, mark)
    batch = TableBatch(connection, stream, relation, columns, mark)
    since = _since(batch)
    spans = spans_of(known)
    placed = [(span, piece) for span, piece in spans if not span.is_unplaced]
    for span, piece in placed[-COUNTED_AGAIN:]:
        _count_again(batch, span, piece, known[piece], since)
    _count_unplaced(batch, {piece: known[piece] for span, piece in spans if span.is_unplaced}, since)
    last = placed[-1][0].to if placed else None
    _newer(batch, last, clock, since)
    return batch


def _count_again(batch: TableBatch, span: WatermarkSpan, piece: str, known: int, since: str) -> None:
    """Read a span again if its number of rows is not the known one."""
    count = batch.number("count(*)", batch.within(span), since) or 0
    if count != known:
        batch.gone.append(piece)
        batch.requests.append(_request(batch, (replace(span, rows=count),), since))


def _count_unplaced(batch: TableBatch, known: Mapping[str, int], since: str) -> None:
    if batch.mark.is_required:
        return
    span = WatermarkSpan(UNPLACED, UNPLACED)
    count = batch.number("count(*)", batch.within(span), since) or 0
    if count != sum(known.values()):
        batch.gone += known
        batch.requests += [_request(batch, (replace(span, rows=count),), since)] if count else []


def _newer(batch: TableBatch, last: int | None, clock: int, since: str) -> None:
    """Read the rows after the last span, as spans of about :data:`SPAN_ROWS`."""
    connection, mark, stream = batch.connection, batch.mark, batch.stream
    name = connection.quoted(mark.name)
    placed = "" if mark.is_required else f"NOT ({connection.unpositioned(mark)})"
    beyond = "" if last is None else f"{name} > {connection.position(mark, last)}"
    most = batch.number(f"max({connection.value(mark, None)})", placed, beyond, since)
    if most is None:
        is_sqlite = last is None and connection.kind == "sqlite"
        if is_sqlite and batch.number("count(*)", f"{name} IS NOT NULL", connection.unpositioned(mark), since):
            raise _untold(stream, mark)
        return
    end = position_of_instant(stream, mark, clock - stream.lateness - 1)
    most = most if end is None else min(most, end)
    if last is not None and most <= last:
        return
    span = WatermarkSpan(last, most)
    count = batch.number("count(*)", batch.within(span), since) or 0
    parts = -(-count // SPAN_ROWS)
    spans = [span]
    if parts > 1:
        least = batch.number(f"min({connection.value(mark, None)})", batch.within(span), since)
        assert least is not None
        ends = sorted({least + (most - least) * part // parts for part in range(1, parts + 1)})
        spans = [WatermarkSpan(after, to) for after, to in zip([last, *ends[:-1]], ends, strict=True)]
    batch.requests.append(_request(batch, tuple(spans), since))


def _request(batch: TableBatch, spans: tuple[WatermarkSpan, ...], since: str) -> Request:
    complete = WatermarkSpan(spans[0].after, spans[-1].to)
    conditions = filter(None, (batch.within(complete), since))
    return Request(spans, " AND ".join(f"({condition})" for condition in conditions))


def _since(batch: TableBatch) -> str:
    """The condition for rows that are not before the moment from which a stream is read; those without a time stay."""
    stream, origin, connection = batch.stream, _origin(batch.stream), batch.connection
    if origin.since is None:
        return ""
    column = batch.columns[stream.time.lower()]
    first = position_of_instant(stream, column, origin.since)
    if first is None or not (is_position(column) or stream.source.time_unit is not None):
        message = f"stream {stream.name}: `since` cannot be compared with {stream.time}, which is {column.declared}"
        raise HeddleError("HDL-434", message, "its time has to be a timestamp, or have a `time_unit`")
    name = connection.quoted(column.name)
    return f"{name} IS NULL OR {name} >= {connection.position(column, first)}"


# ---------------------------------------------------------------------------------------------- columns
def by_lower_name(stream: Stream, columns: Sequence[TableColumn], relation: Sequence[str]) -> dict[str, TableColumn]:
    """The columns of a table by their names in lower case. Raises HDL-456 if two of the stream's differ by case."""
    known: dict[str, TableColumn] = {}
    for column in columns:
        other = known.setdefault(column.name.lower(), column)
        if other is not column and stream.type_of(column.name) is not None:
            message = f"stream {stream.name}: columns {other.name} and {column.name} of {'.'.join(relation)} differ by"
            raise HeddleError("HDL-456", f"{message} case at most", "rename one, in a view")
    return known


def _column(stream: Stream, columns: Mapping[str, TableColumn], name: str, relation: Sequence[str]) -> TableColumn:
    column = columns.get(name.lower())
    if column is None:
        shown = ", ".join(each.name for each in list(columns.values())[:16])
        message = f"stream {stream.name}: there is no column {name} in {'.'.join(relation)}"
        raise HeddleError("HDL-403", message, f"it has {shown}; correct `schema` in streams.yaml, or the table")
    return column


def _check_columns(
    connection: Connection, stream: Stream, columns: Mapping[str, TableColumn], relation: Sequence[str]
) -> None:
    """Raise HDL-403 for a column that is missing, HDL-404 for one of a type that is not read, HDL-492."""
    local = []
    for name, type_ in stream.schema:
        column = _column(stream, columns, name, relation)
        if column.arrow is None and connection.kind != "sqlite":
            message = f"stream {stream.name}: column {name} of {'.'.join(relation)} is {column.declared}, declared "
            raise HeddleError("HDL-404", f"{message}{type_}", "leave it out of `schema`, or cast it in a view")
        if column.is_local and type_ == TIMESTAMP:
            local.append(name)
    is_utc = time.timezone == 0 and (not time.daylight or time.altzone == 0)
    if local and _origin(stream).zone is None and connection.kind == "postgresql" and not is_utc:
        message = f"stream {stream.name}: {', '.join(local[:4])} of {'.'.join(relation)} name no time zone, and the "
        hint = "add `zone: UTC`, or the zone of the values, under `source`; that makes another copy"
        raise HeddleError("HDL-492", f"{message}clock of this machine is not UTC", hint)


def position_of_instant(stream: Stream, column: TableColumn, instant: int) -> int | None:
    """An instant (microseconds) as a watermark counts it, rounded down; None if it counts no instants."""
    unit = stream.source.time_unit if column.name.lower() == stream.time.lower() else None
    if unit is not None:
        factor, divisor = TIME_UNITS[unit]
        return instant * divisor // factor
    arrow = column.arrow
    if arrow is None or not (pa.types.is_timestamp(arrow) or pa.types.is_date(arrow)):
        return None
    return by_clock(instant, _origin(stream).zone if column.is_local or pa.types.is_date(arrow) else None)


def _untold(stream: Stream, mark: TableColumn) -> HeddleError:
    message = f"stream {stream.name}: new rows cannot be determined by {mark.name}, which is {mark.declared}"
    hint = "name a `watermark` of integers or timestamps that grow as rows come in"
    return HeddleError("HDL-434", message, f"{hint}; in SQLite `rowid` is such a column")


def _origin(stream: Stream) -> Origin:
    assert stream.source.origin is not None
    return stream.source.origin


# ---------------------------------------------------------------------------------------------- zones
def in_zone(shown: pa.Array, zone: str) -> pa.Array:
    """Instants of what clocks in a zone showed. Of two instants with the same clock the earlier is taken; a clock that
    was put forward past a value is taken as if it had not been, as Spark does.

    Arrow's own conversion knows no daylight saving after 2037.
    """
    numbers = shown.cast(pa.int64())
    clocks = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    inside = (clocks >= _FIRST) & (clocks < _LAST)
    hours, places = np.unique(np.where(inside, clocks, 0) // _HOUR, return_inverse=True)
    starts, ends = _offsets(hours * _HOUR, zone), _offsets((hours + 1) * _HOUR, zone)
    offsets = starts[places]
    changing = np.flatnonzero((starts != ends)[places] & inside)
    offsets[changing] = _offsets(clocks[changing], zone)
    instants = np.where(inside, clocks - offsets, clocks)
    return pa.array(instants, pa.int64(), mask=numbers.is_null().to_numpy(zero_copy_only=False)).cast(_UTC)


def _offsets(clocks: np.ndarray, zone: str) -> np.ndarray:
    """The time by which clocks in a zone are ahead of UTC when they show something; all in microseconds."""
    place, unit = ZoneInfo(zone), timedelta(microseconds=1)
    moments = [(_EPOCH + timedelta(microseconds=int(clock))).replace(tzinfo=place) for clock in clocks]
    return np.array([(moment.utcoffset() or timedelta(0)) // unit for moment in moments], dtype=np.int64)
