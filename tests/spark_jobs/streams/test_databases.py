"""Tables of databases that Heddle reads itself: whatever is inserted between copies, a copy holds what SQL says of the
rows that are seen, each once; what cannot be read is a coded error without a secret."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.databases import parse_database_url
from optimizer.workload.values import Stream
from spark_jobs.streams.copies.copying import Copied, bring_up_to_date
from spark_jobs.streams.copies.databases import batch, opening
from spark_jobs.streams.copies.databases.connection import Connection
from spark_jobs.streams.copies.databases.files import DuckdbConnection
from spark_jobs.streams.copies.readers import known_streams, reason, unseen
from spark_jobs.streams.copies.spans import COUNTED_AGAIN, by_clock, spans_of
from tests.sizes import examples
from tests.spark_jobs.streams.database_tables import (
    BEGIN,
    Database,
    Duckdb,
    Postgres,
    PostgresServer,
    Row,
    Sqlite,
    declared,
    plain,
    postgres_server,
)

CLOCK = (BEGIN + timedelta(days=300) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
KINDS = ("postgresql", "sqlite", "duckdb")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with postgres_server(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture
def make(server: PostgresServer, tmp_path: Path) -> Callable[[str], Database]:
    """Makes an empty table in a database of a kind."""
    made: dict[str, Callable[[], Database]] = {
        "postgresql": lambda: Postgres(server),
        "sqlite": lambda: Sqlite(tmp_path),
        "duckdb": lambda: Duckdb(tmp_path),
    }
    return lambda kind: made[kind]()


def copied(stream: Stream, clock: int = CLOCK) -> Copied:
    done = bring_up_to_date(None, stream, clock)
    assert done is not None
    return done


def rows_of(stream: Stream) -> list[dict[str, Any]]:
    table = DeltaTable(stream.source.path).to_pyarrow_table()
    return table.drop_columns(["__piece"]).to_pylist()


def counted(stream: Stream) -> Counter[tuple[Any, ...]]:
    return Counter(plain(tuple(row.values())) for row in rows_of(stream))


values = st.tuples(
    st.sampled_from(["a", "é\n'\"", "", None]),
    st.decimals(-(10**9), 10**9, places=2) | st.none(),
    st.floats(allow_nan=False, allow_infinity=False) | st.none(),
)
events = st.tuples(st.integers(0, 9), st.booleans(), values)
"""How far behind the newest row one is, whether it has no watermark, and its values."""

histories = st.lists(st.lists(events, max_size=7), min_size=1, max_size=5)


@pytest.mark.parametrize("watermark", ["id", "seq", "at"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(history=histories, span_rows=st.integers(1, 4), buffered=st.sampled_from([1, 1 << 20]))
def test_a_copy_holds_what_sql_says_of_the_rows_that_are_seen(
    kind: str,
    watermark: str,
    history: list[list[tuple[int, bool, Any]]],
    span_rows: int,
    buffered: int,
    make: Callable[[str], Database],
    tmp_path: Path,
) -> None:
    if (kind, watermark) == ("sqlite", "at"):
        watermark = "rowid"
    database, copies = make(kind), Counter[tuple[Any, ...]]()
    stream = database.stream(tmp_path, "" if watermark == "at" else f", watermark: {watermark}")
    place = {"id": 0, "rowid": 0, "seq": 1, "at": 2}[watermark]
    number = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "SPAN_ROWS", span_rows)
        patch.setattr(batch, "BUFFERED", buffered)
        for inserted in history:
            rows: list[Row] = []
            taken = {row[0] for row in database.rows()}
            for behind, is_null, (name, price, score) in inserted:
                number += 2
                # a transaction that took its number early and ended late
                key = next(at for at in range(number - 2 * behind + 1, number + 2, 1) if at not in taken)
                taken.add(key)
                at = BEGIN + timedelta(minutes=number - behind)
                null = is_null and watermark != "id"
                seq = None if null else number // 3 - behind
                rows.append((key, seq, None if null else at, name, price, score))
            database.insert(rows)
            copies = expected(database, stream, place, copies)
            done = copied(stream)
            assert counted(stream) == copies, (done, history)
            again = copied(stream)
            assert (again.pieces, again.rows, again.gone) == (0, 0, 0)


def expected(database: Database, stream: Stream, place: int, before: Counter[tuple[Any, ...]]) -> Counter[Any]:
    """What the copy shall hold: of what is behind its three newest spans what it held, all else as SQL says."""
    pieces = []
    if DeltaTable.is_deltatable(stream.source.path):
        added = pa.table(DeltaTable(stream.source.path).get_add_actions(flatten=True))
        pieces = set(added["partition.__piece"].to_pylist())
    spans = [span for span, _ in spans_of(pieces) if not span.is_unplaced]
    after = spans[-COUNTED_AGAIN].after if len(spans) >= COUNTED_AGAIN else None

    def is_old(row: tuple[Any, ...]) -> bool:
        return after is not None and row[place] is not None and row[place] <= after

    return Counter(row for row in database.rows() if not is_old(row)) + Counter(
        {row: count for row, count in before.items() if is_old(row)}
    )


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
def test_rows_of_the_last_lateness_wait(kind: str, make: Callable[[str], Database], tmp_path: Path) -> None:
    database = make(kind)
    database.insert([(n, n, BEGIN + timedelta(minutes=n), "a", None, None) for n in range(60)])
    stream = database.stream(tmp_path, top=", lateness: 10 minutes")
    for minutes in (30, 45, 100):
        copied(stream, plain((0, 0, BEGIN + timedelta(minutes=minutes), "", None, 0))[2])
        assert sorted(row["id"] for row in rows_of(stream)) == list(range(min(60, minutes - 10)))


@pytest.mark.parametrize("kind", KINDS)
def test_earlier_events_are_left_out(kind: str, make: Callable[[str], Database], tmp_path: Path) -> None:
    database = make(kind)
    database.insert([(n, n, BEGIN + timedelta(days=n), "a", None, None) for n in range(10)])
    database.insert([(10, 10, None, "a", None, None)])
    stream = database.stream(tmp_path, ", watermark: id, since: 2026-03-05")
    if kind == "sqlite":
        # its texts are no instants to the database
        with pytest.raises(HeddleError, match="HDL-434"):
            copied(stream)
        return
    copied(stream)
    assert sorted(row["id"] for row in rows_of(stream)) == [4, 5, 6, 7, 8, 9, 10]


def test_all_of_a_batch_is_of_one_snapshot(
    make: Callable[[str], Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = make("postgresql")
    database.insert([(n, n, BEGIN, "a", None, None) for n in range(10)])
    stream = database.stream(tmp_path, ", watermark: seq")
    copied(stream)
    database.insert([(n, n, BEGIN, "b", None, None) for n in range(20, 30)])
    numbers, pending = Connection.numbers, iter([(31, 5), (32, 25), (33, 99)])

    def meanwhile(self: Connection, statement: str) -> list[int | None]:
        # another transaction commits after each statement: below, within and above what is being copied
        counted_before = numbers(self, statement)
        if (row := next(pending, None)) is not None:
            database.insert([(row[0], row[1], BEGIN, "late", None, None)])
        return counted_before

    monkeypatch.setattr(Connection, "numbers", meanwhile)
    assert copied(stream).rows == 10
    assert "late" not in {row["name"] for row in rows_of(stream)}
    monkeypatch.undo()
    copied(stream)
    assert counted(stream) == Counter(database.rows())


def test_values_of_postgresql_are_exact(
    server: PostgresServer, make: Callable[[str], Database], tmp_path: Path
) -> None:
    database = make("postgresql")
    database.execute("DROP TABLE IF EXISTS odd")
    database.execute("DROP TYPE IF EXISTS mood")
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    database.execute(
        'CREATE TABLE "odd" (id serial PRIMARY KEY, "a ""b" int, n numeric, big numeric(38,0), ts timestamp, '
        "tz timestamptz, d date, u uuid, j jsonb, m mood, f float4, ok bool, raw bytea, parts int[], c char(3), "
        "span interval)"
    )
    database.execute(
        "INSERT INTO odd VALUES (1, -5, 12345678901234567890.123456789012345678, 10::numeric ^ 37, "
        "'2026-01-01 00:00:00.000001', '2026-01-01 00:00:00.000001+05:30', '0001-01-01', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": [1, null]}', 'ok', 0.1, true, '\\x00', '{1}', 'x', '1 day'), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'NaN', NULL, NULL, NULL, NULL, NULL)"
    )
    file = tmp_path / "streams.yaml"
    source = f"format: jdbc, reader: direct, path: '{database.address}', table: odd, watermark: id, zone: UTC"
    file.write_text(f"streams: {{orders: {{source: {{{source}}}, time: tz}}}}")
    _, known, problems = known_streams(file)
    assert not problems
    stream = known["orders"]
    types = {name: str(type_) for name, type_ in stream.schema}
    assert types == {
        **{"id": "int", 'a "b': "int", "n": "decimal(38,18)", "big": "decimal(38,0)", "ts": "timestamp"},
        **{"tz": "timestamp", "d": "date", "u": "string", "j": "string", "m": "string", "f": "double"},
        **{"ok": "boolean", "c": "string", "span": "string"},
    }
    copied(stream)
    first, second = sorted(rows_of(stream), key=lambda row: row["id"])
    assert first == {
        **{"id": 1, 'a "b': -5, "n": Decimal("12345678901234567890.123456789012345678"), "big": Decimal(10) ** 37},
        "ts": datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
        "tz": datetime(2025, 12, 31, 18, 30, 0, 1, UTC),
        **{"d": datetime(1, 1, 1).date(), "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "j": '{"a": [1, null]}'},
        **{"m": "ok", "f": float(pa.scalar(0.1, pa.float32()).as_py()), "ok": True, "c": "x  ", "span": "1 day"},
    }
    assert [name for name, value in second.items() if value is not None] == ["id", "f"]


UNFIT = [
    ("n", "numeric", "'NaN'", "decimal(10,2)", "'nan'"),
    ("n", "numeric", "1.123", "decimal(10,2)", "'1.123'"),
    ("n", "numeric", "10::numeric ^ 20", "decimal(10,2)", ""),
    ("n", "numeric(10,0)", "1", "long", "declared long"),
    ("n", "text", "'x'", "long", "declared long"),
    ("n", "timestamptz", "'infinity'", "timestamp", "years"),
    ("n", "date", "'infinity'", "date", "years"),
    ("n", "bytea", "'x'", "string", "bytea"),
]


@pytest.mark.parametrize(("name", "type_", "value", "declared_type", "shown"), UNFIT)
def test_a_value_that_does_not_fit_is_named_with_its_row(
    name: str, type_: str, value: str, declared_type: str, shown: str, make: Callable[[str], Database], tmp_path: Path
) -> None:
    database = make("postgresql")
    database.create(f"id bigint PRIMARY KEY, at timestamptz, {name} {type_}")
    database.execute("INSERT INTO orders SELECT g, now(), NULL FROM generate_series(1, 100) g")
    database.execute(f"INSERT INTO orders VALUES (777, now(), {value})")
    schema = f"{{id: long, at: timestamp, {name}: '{declared_type}'}}"
    stream = database.stream(tmp_path, ", watermark: id", schema)
    with pytest.raises(HeddleError, match="HDL-404") as caught:
        copied(stream, 1 << 62)
    message = str(caught.value)
    assert shown in message and f"column {name} of public.orders" in message
    assert "row with id 777" in message or declared_type in ("long", "string"), message
    assert not list(Path(stream.source.path).glob("*.parquet"))
    database.execute("DELETE FROM orders WHERE id = 777")
    if declared_type not in ("long", "string"):
        assert copied(stream, 1 << 62).rows == 100


SQLITE_UNFIT = [
    ("long", "'x'", "'x' is text"),
    ("long", "1.5", "'1.5' is real"),
    ("double", "9007199254740993", "integer"),
    ("string", "5", "'5' is integer"),
    ("string", "x'00ff'", "blob"),
    ("boolean", "2", "'2' is integer"),
    ("decimal(4,1)", "0.1 + 0.2", "real"),
    ("decimal(4,1)", "1.25", "data loss"),
    ("decimal(4,1)", "'abc'", "abc"),
    ("timestamp", "'tomorrow'", "tomorrow"),
    ("timestamp", "17", "'17' is integer"),
    ("date", "'2026-13-01'", "2026-13-01"),
]


@pytest.mark.parametrize(("declared_type", "value", "shown"), SQLITE_UNFIT)
def test_values_of_sqlite_are_compared_with_their_declared_type(
    declared_type: str, value: str, shown: str, make: Callable[[str], Database], tmp_path: Path
) -> None:
    database = make("sqlite")
    database.create("id INTEGER PRIMARY KEY, at TEXT, v")
    database.execute("INSERT INTO orders VALUES (1, '2026-01-01T00:00:00Z', NULL)")
    stream = database.stream(tmp_path, ", watermark: id", f"{{id: long, at: timestamp, v: '{declared_type}'}}")
    copied(stream)
    database.execute(f"INSERT INTO orders VALUES (2, '2026-01-01 00:00:01', {value})")
    with pytest.raises(HeddleError, match="HDL-404") as caught:
        copied(stream)
    assert shown in str(caught.value) and "column v of orders" in str(caught.value)
    database.execute("DELETE FROM orders WHERE id = 2")
    assert [row["v"] for row in rows_of(stream)] == [None]


SQLITE_FIT = [
    ("long", "9223372036854775807", 2**63 - 1),
    ("double", "2", 2.0),
    ("double", "0.1", 0.1),
    ("boolean", "1", True),
    ("decimal(5,2)", "1.10", Decimal("1.10")),
    ("decimal(38,2)", "'123456789012345678901234567890.12'", Decimal("123456789012345678901234567890.12")),
    ("date", "'2026-02-28'", datetime(2026, 2, 28).date()),
    ("string", "'é\n'", "é\n"),
]


@pytest.mark.parametrize(("declared_type", "value", "read"), SQLITE_FIT)
def test_values_of_sqlite_are_exact(
    declared_type: str, value: str, read: Any, make: Callable[[str], Database], tmp_path: Path
) -> None:
    database = make("sqlite")
    database.create("id INTEGER PRIMARY KEY, at TEXT, v")
    database.execute(f"INSERT INTO orders VALUES (1, '2026-01-01T00:00:00Z', NULL), (2, '2026-01-01', {value})")
    stream = database.stream(tmp_path, ", watermark: rowid", f"{{id: long, at: timestamp, v: '{declared_type}'}}")
    copied(stream)
    assert [row["v"] for row in sorted(rows_of(stream), key=lambda row: row["id"])] == [None, read]


# ------------------------------------------------------------------------------------------- failures
def test_what_cannot_be_reached_or_read_is_coded(
    server: PostgresServer, make: Callable[[str], Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = make("postgresql")
    assert isinstance(database, Postgres)
    database.insert([(1, 1, BEGIN, "a", None, None)])
    stream = database.stream(tmp_path, ", watermark: id")
    copied(stream)

    def refused(stream: Stream, code: str, *shown: str) -> None:
        with pytest.raises(HeddleError) as caught:
            copied(stream)
        text = str(caught.value)
        assert caught.value.diagnostic.code == code and caught.value.diagnostic.hint, text
        assert all(part in text for part in shown), text
        assert (
            server.password not in text
            and "wrong-secret" not in text
            and "\n    " not in caught.value.diagnostic.message
        )

    database.execute("ALTER TABLE orders ALTER COLUMN name TYPE bigint USING 5")
    database.execute("INSERT INTO orders VALUES (2, 2, now(), 6)")
    refused(stream, "HDL-404", "name of public.orders", "declared type string")
    database.execute("ALTER TABLE orders DROP COLUMN name")
    refused(stream, "HDL-403", "no column name", "it has id, seq")
    database.execute("DROP TABLE orders")
    refused(stream, "HDL-401", "no table orders")
    database.create("id bigint, at timestamptz")
    database.execute("DROP ROLE IF EXISTS guest")
    database.execute(f"CREATE ROLE guest LOGIN PASSWORD '{server.password}'")
    guest = declared(
        tmp_path, f"{{format: jdbc, path: '{server.url(user='guest')}', table: orders}}", "{at: timestamp}"
    )
    refused(guest, "HDL-490", "permission denied", "GRANT SELECT")
    monkeypatch.setenv("PGPASSWORD", "a-wrong-secret")
    refused(stream, "HDL-490", "refuses the user", "password authentication failed")
    monkeypatch.delenv("PGPASSWORD")
    refused(stream, "HDL-434", "PGPASSWORD")
    monkeypatch.setenv("PGPASSWORD", server.password)
    nowhere = declared(tmp_path, f"{{format: jdbc, path: '{server.url('nowhere')}', table: orders}}")
    refused(nowhere, "HDL-489", 'database "nowhere" does not exist')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        down = f"postgresql://heddle:${{PGPASSWORD}}@127.0.0.1:{free.getsockname()[1]}/postgres"
        refused(declared(tmp_path, f"{{format: jdbc, path: '{down}', table: orders}}"), "HDL-489", "Connection refused")


LOCKS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_files_that_are_no_databases_are_refused(make: Callable[[str], Database], tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("id,at\n1,2026-01-01\n" * 100)
    with closing(sqlite3.connect(tmp_path / "locked.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, at TEXT)")
    sources = {
        "sqlite:///none.db": "HDL-401",
        "duckdb:///none.duckdb": "HDL-401",
        "sqlite:///no.db": "HDL-489",
        "duckdb:///no.db": "HDL-489",
        "sqlite:///locked.db": "HDL-489",
    }
    # locks of a process are none to itself
    writer = subprocess.Popen(
        [sys.executable, "-c", LOCKS, str(tmp_path / "locked.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdin is not None and writer.stdout is not None and writer.stdout.readline() == b"locked\n"
    for path, code in sources.items():
        stream = declared(tmp_path, f"{{format: jdbc, path: '{path}', table: orders}}", "{id: long, at: timestamp}")
        with pytest.raises(HeddleError) as caught:
            copied(stream)
        assert caught.value.diagnostic.code == code, (path, caught.value)
    writer.communicate(b"\n")


def test_texts_of_sqlite_are_no_watermark(make: Callable[[str], Database], tmp_path: Path) -> None:
    database = make("sqlite")
    database.insert([(1, 1, BEGIN, "a", None, None)])
    with pytest.raises(HeddleError, match="HDL-434[\\s\\S]*rowid"):
        copied(database.stream(tmp_path))


def test_nothing_that_is_written_is_run(make: Callable[[str], Database], tmp_path: Path) -> None:
    database = make("postgresql")
    name = "a\"; DROP TABLE orders; --'"
    database.create("id bigint PRIMARY KEY, at timestamptz")
    database.execute('ALTER TABLE orders ADD COLUMN "a""; DROP TABLE orders; --\'" int')
    database.execute("INSERT INTO orders VALUES (1, now(), 7)")
    stream = database.stream(
        tmp_path, ", watermark: id", '{id: long, at: timestamp, "a\\"; DROP TABLE orders; --\'": int}'
    )
    copied(stream, 1 << 62)
    assert rows_of(stream)[0][name] == 7 and database.execute("SELECT count(*) FROM orders") == [(1,)]


# ------------------------------------------------------------------------------------------- zones
@settings(max_examples=examples(60), deadline=None)
@given(
    shown=st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)) | st.none(), max_size=20),
    near=st.lists(st.integers(-3 * 3600, 3 * 3600), max_size=10),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]),
)
def test_a_clock_in_a_zone_is_an_instant(shown: list[datetime | None], near: list[int], zone: str) -> None:
    changes = [datetime(2026, 3, 29, 1), datetime(2026, 10, 25, 1), datetime(2026, 3, 8, 7), datetime(2026, 4, 4, 15)]
    clocks = [*shown, *(change + timedelta(seconds=seconds) for change in changes for seconds in near)]
    read = batch.in_zone(pa.array(clocks, pa.timestamp("us")), zone)
    expected = [None if at is None else at.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC) for at in clocks]
    assert [None if at is None else at.astimezone(UTC) for at in read.to_pylist()] == expected
    for at, instant in zip(clocks, read.cast(pa.int64()).to_pylist(), strict=True):
        if at is not None and at == at.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).astimezone(
            ZoneInfo(zone)
        ).replace(tzinfo=None):
            assert by_clock(instant, zone) == (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def test_timestamps_without_a_zone_are_of_the_declared_one(
    make: Callable[[str], Database], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = make("postgresql")
    database.create("id bigint PRIMARY KEY, at timestamp")
    database.execute("INSERT INTO orders VALUES (1, '2026-07-01 12:00'), (2, 'infinity'), (3, NULL)")
    schema = "{id: long, at: timestamp}"
    for zone, hour in (("", 12), (", zone: UTC", 12), (", zone: Europe/Berlin", 10)):
        for watermark in ("", ", watermark: id"):
            stream = database.stream(tmp_path, zone + watermark, schema)
            copied(stream, 1 << 62)
            times = {row["id"]: row["at"] for row in rows_of(stream)}
            assert times == {1: datetime(2026, 7, 1, hour, tzinfo=UTC), 2: None, 3: None}
    monkeypatch.setattr(batch.time, "timezone", -3600)
    with pytest.raises(HeddleError, match="HDL-492.*at of public.orders"):
        copied(database.stream(tmp_path, "", schema))


# ------------------------------------------------------------------------------------------- who reads
def test_a_copy_of_spark_goes_on(make: Callable[[str], Database], tmp_path: Path) -> None:
    """Names of pieces, and the place of a copy, as they were when only Spark read databases."""
    database = make("postgresql")
    database.insert([(n, n, BEGIN + timedelta(minutes=n), "a", None, None) for n in range(10)])
    by_id, by_time = database.stream(tmp_path, ", watermark: id"), database.stream(tmp_path)
    for stream in (by_id, by_time):
        copied(stream)
    added = [pa.table(DeltaTable(stream.source.path).get_add_actions(flatten=True)) for stream in (by_id, by_time)]
    newest = plain((0, 0, BEGIN + timedelta(minutes=9), "", None, 0))[2]
    assert [each["partition.__piece"].to_pylist() for each in added] == [
        ['{"after": null, "to": 9}'],
        [f'{{"after": null, "to": {newest}}}'],
    ]
    database.insert([(20, 2, BEGIN + timedelta(minutes=2), "late", None, None)])
    assert (copied(by_time).gone, copied(by_id).pieces) == (1, 1)
    stream = declared(tmp_path, "{format: jdbc, path: 'jdbc:postgresql://h/db', table: a.b}", "{at: timestamp}")
    other = declared(tmp_path, "{format: jdbc, path: 'postgresql://h/db', table: a.b}", "{at: timestamp}")
    assert stream.source.path.endswith("/orders-7696fc1dff7b"), stream.source.path
    assert other.source.path.endswith("/orders-7696fc1dff7b")


READERS = [
    ("postgresql://h/db", "", None),
    ("jdbc:postgresql://h/db?sslmode=require", ", options: {user: me, driver: org.postgresql.Driver}", None),
    ("jdbc:postgresql://h/db?loadBalanceHosts=true", "", "loadBalanceHosts"),
    ("postgresql://h/db", ", options: {customSchema: id INT}", "customSchema"),
    ("postgresql://h/db", ", reader: spark", "as `reader` says"),
    ("jdbc:sqlite::memory:", "", "JDBC drivers"),
    ("sqlite:///a.db", "", None),
    ("duckdb:///a.duckdb", "", None),
    ("mysql://h/db", "", "no other reader of mysql"),
    ("jdbc:oracle:thin:@h:1521:x", "", "no other reader of oracle"),
]


@pytest.mark.parametrize(("path", "more", "why"), READERS)
def test_who_reads_is_said_and_can_be_fixed(path: str, more: str, why: str | None, tmp_path: Path) -> None:
    stream = declared(tmp_path, f"{{format: jdbc, path: '{path}', table: orders{more}}}")
    said = opening.why_spark(stream)
    assert (said is None) == (why is None) and (why or "") in (said or "")
    assert reason(stream).startswith("Heddle itself" if why is None else "Spark, into a copy at")
    assert "lower at" in unseen(stream)
    if why is not None and "reader" not in more:
        forced = declared(tmp_path, f"{{format: jdbc, path: '{path}', table: orders, reader: direct{more}}}")
        with pytest.raises(HeddleError, match="HDL-405"):
            opening.why_spark(forced)


def test_without_the_package_spark_reads_if_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = declared(tmp_path, "{format: jdbc, path: 'postgresql://h/db', table: orders}")
    installed = {"pyspark"}
    monkeypatch.setattr(opening, "find_spec", lambda name: object() if name in installed else None)
    monkeypatch.setattr("optimizer.errors.installing.find_spec", lambda name: None)
    monkeypatch.setattr(opening, "has_java", lambda: True)
    assert opening.why_spark(stream) == "adbc_driver_postgresql is not installed"
    installed.clear()
    with pytest.raises(HeddleError, match="HDL-904.*adbc_driver_postgresql"):
        opening.why_spark(stream)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://me:secret-of-mine@h/db", "HDL-458"),
        ("postgresql://h/db?password=secret-of-mine", "HDL-458"),
        ("postgresql://h/db?sslpassword=secret-of-mine", "HDL-458"),
        ("jdbc:postgresql://me:secret-of-mine@h/db", "HDL-458"),
        ("jdbc:mysql://h/db?user=me&password=secret-of-mine", "HDL-458"),
        ("sqlite:///", "HDL-457"),
        ("sqlite:///a.db?mode=rw", "HDL-457"),
        ("postgresql:db", "HDL-457"),
        ("jdbc:", "HDL-457"),
    ],
)
def test_urls_with_secrets_are_refused(url: str, code: str) -> None:
    with pytest.raises(HeddleError) as caught:
        parse_database_url(url, Path())
    assert caught.value.diagnostic.code == code and "secret-of-mine" not in str(caught.value)


def test_a_statement_that_the_database_ends_is_coded(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    duckdb.connect(str(path)).close()
    with (
        closing(DuckdbConnection("stream s", path)) as connection,
        pytest.raises(HeddleError, match="HDL-491") as raised,
    ):
        list(connection.batches("SELECT 1 / 'x'::INTEGER"))
    assert "nothing of this time was copied" in raised.value.diagnostic.hint
