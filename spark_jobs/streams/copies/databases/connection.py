"""A connection to a database: one transaction that sees one snapshot, read as Arrow batches."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, meant, printable
from optimizer.errors.redaction import redacted
from optimizer.workload.values import Type

MOST_TABLES = 1_000
"""Tables of a database that are listed."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    - ``declared``: its type, as the database calls it.
    - ``arrow``: the type of its values when they are read; None: queries cannot use it.
    - ``is_local``: whether its values are timestamps that name no zone.
    - ``is_text``: whether the database writes its values as texts before they are read.
    - ``is_required``: whether each of its values has a place in the order of a watermark.
    - ``is_nested``: whether its values are arrays or rows, which only Spark reads.
    """

    name: str
    declared: str
    arrow: pa.DataType | None
    is_local: bool = False
    is_text: bool = False
    is_nested: bool = False
    is_required: bool = False


@dataclass(frozen=True)
class TableSummary:
    """A table or view: its ``name`` with its schema, its number of ``rows`` (None: not known; ``is_about``: estimated
    by the database), its columns, and the integer column by which rows are numbered as they come in, if it has one.
    """

    name: str
    rows: int | None
    is_about: bool
    columns: tuple[TableColumn, ...]
    key: str | None = None

    @property
    def times(self) -> tuple[str, ...]:
        """Names of the columns of timestamps, then of dates."""
        stamps = [column.name for column in self.columns if column.arrow and pa.types.is_timestamp(column.arrow)]
        return (*stamps, *(column.name for column in self.columns if column.arrow and pa.types.is_date(column.arrow)))


class Connection(ABC):
    """An open connection, in a transaction that changes nothing and sees the same rows until it is closed.

    Every statement is made here, of names that are quoted and numbers: nothing that a user wrote is part of one.
    """

    kind: str
    """Its name in URLs."""

    def __init__(self, name: str) -> None:
        self.name = name

    # ---------------------------------------------------------------------------------------------- tables
    @abstractmethod
    def tables(self) -> tuple[TableSummary, ...]:
        """The tables and views that can be read, by name."""

    @abstractmethod
    def relation(self, table: str) -> tuple[str, ...]:
        """The parts of the name of a table, as the database spells them. Raises HDL-401 if there is none."""

    @abstractmethod
    def columns(self, relation: tuple[str, ...]) -> tuple[TableColumn, ...]:
        """The columns of a table, in their order."""

    def no_table(self, table: str, known: list[str]) -> HeddleError:
        """The error for a table that is not there."""
        hint = meant(table, known) if known else "check its name: schema.table; may the user read it?"
        return HeddleError("HDL-401", f"{self.name}: there is no table {table} in the database", hint)

    # ---------------------------------------------------------------------------------------------- statements
    @abstractmethod
    def batches(self, statement: str) -> Iterator[pa.RecordBatch]:
        """The rows of a statement, a part at a time. Raises HDL-491."""

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement that has a few, of numbers and texts."""
        columns = (list(map(storage_of, batch.columns)) for batch in self.batches(statement))
        return [row for arrays in columns for row in zip(*(array.to_pylist() for array in arrays), strict=True)]

    def numbers(self, statement: str) -> list[int | None]:
        """The values of a statement with one row, as :func:`positions_of` counts them."""
        batches = list(self.batches(statement))
        return [
            next((number for batch in batches for number in positions_of(batch.column(place)).to_pylist()), None)
            for place in range(batches[0].num_columns if batches else 0)
        ]

    @abstractmethod
    def close(self) -> None:
        """End the transaction and the connection."""

    def value(self, column: TableColumn, declared: Type | None) -> str:
        """The expression that reads a column as what its stream declares."""
        return self.quoted(column.name)

    def misfit(self, column: TableColumn, declared: Type) -> str | None:
        """The condition for values of a column that :meth:`value` does not give as they are; None: all are."""
        return None

    def read_as(self, column: TableColumn, declared: Type | None) -> str:
        """The kind of value that :meth:`value` gives, where a database does not say it: integer, real or text."""
        return ""

    @staticmethod
    def quoted(name: str) -> str:
        """A name as SQL has it."""
        return '"' + name.replace('"', '""') + '"'

    def unpositioned(self, column: TableColumn) -> str:
        """The condition for values that have no place in the order of a watermark."""
        return f"{self.quoted(column.name)} IS NULL"

    def position(self, column: TableColumn, number: int) -> str:
        """The literal of a number of :func:`positions_of`, for comparisons with a column."""
        return f"({number})"

    # ---------------------------------------------------------------------------------------------- failures
    @contextmanager
    def failures(self, table: str = "") -> Iterator[None]:
        """Turn errors of the driver into coded errors."""
        try:
            yield
        except HeddleError:
            raise
        except Exception as error:
            if not self.is_own(error):
                raise
            raise self.coded(error, table) from None

    @abstractmethod
    def is_own(self, error: Exception) -> bool:
        """Return whether the driver raised an error."""

    def coded(self, error: Exception, table: str) -> HeddleError:
        """The coded error of one that the driver raised while it read."""
        hint = "run it again: nothing of this time was copied, and nothing is copied twice"
        what = f" {table}" if table else ""
        return HeddleError(
            "HDL-491", f"{self.name}: reading{what} from the database failed: {driver_message(error)}", hint
        )


class AdbcConnection(Connection):
    """A connection through a driver of ADBC, ``_connection``, whose errors are of ``_error``."""

    _connection: Any
    _error: type[Exception]
    _options: Mapping[str, str] = MappingProxyType({})

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._cursors: list[Any] = []

    def batches(self, statement: str) -> Iterator[pa.RecordBatch]:
        with self.failures(), self._connection.cursor() as cursor:
            self._cursors.append(cursor)
            if self._options:
                cursor.adbc_statement.set_options(**self._options)
            cursor.execute(statement)
            yield from cursor.fetch_record_batch()
            self._cursors.remove(cursor)

    def close(self) -> None:
        # a driver does not close a connection whose rows somebody has stopped reading
        for cursor in self._cursors:
            cursor.close()
        self._connection.close()

    def is_own(self, error: Exception) -> bool:
        return isinstance(error, (self._error, OSError, pa.ArrowException))


def driver_message(error: Exception) -> str:
    """The message of a driver, in a line without secrets."""
    text = re.sub(r"Query was: .*", "", str(error), flags=re.DOTALL)
    text = re.sub(r"^[A-Z_]+: (\[libpq\] |\[SQLite\] )?", "", " ".join(text.split()))
    return printable(redacted(text), 300)


def storage_of(values: pa.Array) -> pa.Array:
    """Values without the name that a driver gives to their type."""
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def is_position(column: TableColumn) -> bool:
    """Return whether the values of a column can be a watermark."""
    arrow = column.arrow
    if arrow is None or column.is_text:
        return False
    is_whole = pa.types.is_integer(arrow) or (pa.types.is_decimal(arrow) and arrow.scale == 0)
    return is_whole or pa.types.is_timestamp(arrow) or pa.types.is_date(arrow)


def positions_of(values: pa.Array) -> pa.Array:
    """Values of a watermark as integers that grow with them: timestamps and dates in microseconds since 1970, by their
    own clock if they name no zone. Raises ArrowInvalid for what 64 bits do not hold."""
    values = storage_of(values)
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
    return (
        values.cast(pa.decimal128(38, 0)).cast(pa.int64())
        if pa.types.is_string(values.type)
        else values.cast(pa.int64())
    )
