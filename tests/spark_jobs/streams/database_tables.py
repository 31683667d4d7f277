"""Tables of PostgreSQL, SQLite and DuckDB for tests: made and changed by each database's own client."""

from __future__ import annotations

import os
import signal
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from heddle.local.servers import Place, account_for, namespace_prefix, start_postgres
from optimizer.workload.streams import load_streams
from optimizer.workload.values import Stream

Row = tuple[int, int | None, datetime | None, str | None, Decimal | None, float | None]
"""id, seq, at, name, price, score."""

SCHEMA = "{id: long, seq: long, at: timestamp, name: string, price: 'decimal(12,2)', score: double}"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SECRET = "a-long-secret-of-the-shop"


@dataclass(frozen=True)
class PostgresServer:
    """A running server: its port, and the password of its user heddle."""

    port: int
    password: str

    def url(self, database: str = "postgres", user: str = "heddle") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url(), password=self.password, autocommit=True)


@contextmanager
def postgres_server(folder: Path) -> Iterator[PostgresServer]:
    """An embedded PostgreSQL; its password is in PGPASSWORD as long as it runs."""
    place = Place(folder)
    account = account_for(place, os.getuid() == 0, namespace_prefix() if os.getuid() == 0 else None)
    server = start_postgres(place, account, lambda line: None)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSWORD", place.secret("postgres"))
            yield PostgresServer(server.ports["sql"], place.secret("postgres"))
    finally:
        server.stop(signal.SIGINT, 30)


class Database(ABC):
    """A database with a table ``orders``."""

    kind: str
    address: str

    @abstractmethod
    def execute(self, statement: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement, which is run for each of ``rows`` if there are some."""

    def create(self, columns: str, table: str = "orders") -> None:
        self.execute(f"DROP TABLE IF EXISTS {table}")
        self.execute(f"CREATE TABLE {table} ({columns})")

    @abstractmethod
    def insert(self, rows: Sequence[Row]) -> None:
        """Add rows to ``orders``."""

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows of ``orders``, as SQL says."""
        return [plain(row) for row in self.execute('SELECT id, seq, "at", name, price, score FROM orders')]

    def stream(self, folder: Path, more: str = "", schema: str = SCHEMA, time: str = "at", top: str = "") -> Stream:
        """The stream ``orders`` with a copy of its own."""
        return declared(folder, f"{{format: jdbc, path: '{self.address}', table: orders{more}}}", schema, time, top)


def declared(folder: Path, source: str, schema: str = SCHEMA, time: str = "at", top: str = "") -> Stream:
    """A stream of a source as streams.yaml has it."""
    file = folder / f"{uuid.uuid4().hex}.yaml"
    file.write_text(f"streams: {{orders: {{source: {source}, time: {time}, schema: {schema}{top}}}}}")
    streams, problems = load_streams(file, None, str(folder / "copies" / uuid.uuid4().hex))
    assert not problems, problems
    return streams["orders"]


def plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row of any database in the same types: instants in microseconds since 1970."""
    number, seq, at, name, price, score = row
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    if isinstance(at, datetime):
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        at = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return number, seq, at, name, None if price is None else Decimal(str(price)).quantize(Decimal("0.01")), score


class Postgres(Database):
    kind = "postgresql"

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.address = server, server.url().replace("heddle@", "heddle:${PGPASSWORD}@")
        self._connection = server.connect()
        self.create("id bigint PRIMARY KEY, seq bigint, at timestamptz, name text, price numeric(12,2), score float8")

    def execute(self, statement: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, rows) if rows else cursor.execute(statement)
            return cursor.fetchall() if cursor.description and not rows else []

    def insert(self, rows: Sequence[Row]) -> None:
        if rows:
            self.execute("INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s)", rows)


class Sqlite(Database):
    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"{uuid.uuid4().hex}.db"
        self.address = f"sqlite:///{self.file}"
        self._connection = sqlite3.connect(self.file, isolation_level=None)
        self.create("id INTEGER PRIMARY KEY, seq INTEGER, at TEXT, name TEXT, price NUMERIC(12, 2), score REAL")

    def execute(self, statement: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        done = self._connection.executemany(statement, rows) if rows else self._connection.execute(statement)
        return done.fetchall()

    def insert(self, rows: Sequence[Row]) -> None:
        texts = [
            (number, seq, None if at is None else at.isoformat(" "), name, None if price is None else str(price), score)
            for number, seq, at, name, price, score in rows
        ]
        if rows:
            self.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", texts)


class Duckdb(Database):
    kind = "duckdb"

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"{uuid.uuid4().hex}.duckdb"
        self.address = f"duckdb:///{self.file}"
        self.create(
            'id BIGINT PRIMARY KEY, seq BIGINT, "at" TIMESTAMPTZ, name VARCHAR, price DECIMAL(12,2), score DOUBLE'
        )

    def execute(self, statement: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        # a file that is open to be written cannot be read by others
        with duckdb.connect(str(self.file)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            if rows:
                connection.executemany(statement, rows)
                return []
            return connection.execute(statement).fetchall()

    def insert(self, rows: Sequence[Row]) -> None:
        if rows:
            self.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)", rows)
