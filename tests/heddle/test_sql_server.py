"""``heddle sql-server``: what a Flight SQL client gets, what it cannot get, and what a statement may take."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from hypothesis import given, settings
from pyarrow import flight

from heddle.flight.messages import message, wrapped
from heddle.flight.server import AnswersServer, Limits
from spark_jobs.results.connect import Question
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import heddle
from tests.sizes import examples
from tests.snippets import FLIGHT_SQL
from tests.spark_jobs.results.mistakes import MISTAKES
from tests.spark_jobs.results.stored import BY_TEXT, WHOLE, Stored, row, same, store, worlds

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "sesame-sesame-sesame"
ENDLESS = "SELECT max(hash(a.range + b.range)) FROM range(1000000000000) a, range(1000) b"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    rows = [row(BY_TEXT, hours, hours * 10 + n, who) for hours in range(0, 72, 6) for n, who in enumerate(("A", None))]
    rows += [row(WHOLE, hours, hours) for hours in range(0, 72, 6)]
    return store(tmp_path_factory.mktemp("sql") / "warehouse", [([BY_TEXT, WHOLE], rows)])


@contextmanager
def serving(warehouse: Warehouse, limits: Limits | None = None, **options: Any) -> Iterator[str]:
    """The address of a server that ends with the block."""
    scheme = "grpc+tls" if "tls" in options else "grpc"
    server = AnswersServer(lambda: warehouse, f"{scheme}://127.0.0.1:0", limits or Limits(), **options)
    try:
        yield f"{scheme}://127.0.0.1:{server.port}"
    finally:
        server.shutdown()


def connected(address: str, **options: str) -> closing[flight_sql.Connection]:
    return closing(flight_sql.connect(address, db_kwargs=options, autocommit=True))


@pytest.fixture(scope="module")
def client(made: Stored) -> Iterator[flight_sql.Connection]:
    with serving(made.warehouse) as address, connected(address) as connection:
        yield connection


def asked(connection: flight_sql.Connection, sql: str, parameters: tuple[Any, ...] = ()) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
        return cursor.fetch_arrow_table()


def asked_unprepared(connection: flight_sql.Connection, sql: str) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query(sql)
        handle, _ = cursor.adbc_statement.execute_query()
        return pa.RecordBatchReader._import_from_c(handle.address).read_all()


# ------------------------------------------------------------------------------------------- what is answered
@given(steps=worlds())
@settings(max_examples=examples(4), deadline=None)
def test_a_client_finds_the_same_typed_rows_as_every_reader(steps: Any) -> None:
    with TemporaryDirectory() as folder:
        stored = store(Path(folder), steps)
        with serving(stored.warehouse) as address, connected(address) as connection:
            for name in ("q", "Other.query-1"):
                same(asked(connection, f'SELECT * FROM memory.main."{name}"'), stored.expected(name))
                assert connection.adbc_get_table_schema(name) == stored.expected(name).schema


def test_values_of_expressions_keep_their_types(client: flight_sql.Connection) -> None:
    found = asked(
        client,
        "SELECT 9223372036854775807 AS n, 1.50::DECIMAL(38, 10) AS d, [1e0, 'nan', '-inf', NULL]::DOUBLE[] AS x, "
        "TIMESTAMPTZ '2013-01-01 00:00:00.000001Z' AS t, DATE '9999-12-31' AS day, NULL::VARCHAR AS s, "
        "'\\xFF'::BLOB AS b, {'a': true} AS r",
    )
    (values,) = found.to_pylist()
    assert str(values.pop("x")) == "[1.0, nan, -inf, None]"
    assert values == {
        "n": 2**63 - 1,
        "d": Decimal("1.5000000000"),
        "t": datetime(2013, 1, 1, microsecond=1, tzinfo=UTC),
        "day": date(9999, 12, 31),
        "s": None,
        "b": b"\xff",
        "r": {"a": True},
    }
    assert found.schema.field("t").type == pa.timestamp("us", "UTC") and found.schema.field("n").type == pa.int64()


def test_parameters_are_bound_and_never_text(client: flight_sql.Connection) -> None:
    sql = "SELECT n FROM whole WHERE last = ? AND n > ? ORDER BY n LIMIT 1"
    assert asked(client, sql, ("it's", 12)).to_pydict() == {"n": [18]}
    assert asked(client, sql, ("' OR true --", 12)).num_rows == 0
    assert asked(client, 'SELECT count(*) AS c FROM "by.text" WHERE who = $1', ("A",)).to_pydict() == {"c": [12]}


def test_the_guide_reads_answers(tmp_path: Path) -> None:
    delay = replace(BY_TEXT.outputs[0], name="mean_delay")
    query = replace(BY_TEXT, name="carrier_delay_1h", outputs=(delay,), select=("carrier",))
    rows = [row(query, 0, 0) | {"carrier": carrier, "mean_delay": 5} for carrier in ("AA", "UA")]
    world = store(tmp_path / "w", [([query], rows)])
    found: dict[str, Any] = {}
    with serving(world.warehouse) as address:
        exec(FLIGHT_SQL.replace("grpc://127.0.0.1:8766", address), found)  # noqa: S102
    assert found["delays"].column_names == ["window_end", "carrier", "mean_delay"]
    assert found["delays"]["carrier"].to_pylist() == ["AA"] and found["delays"]["mean_delay"].to_pylist() == [5]


def test_a_client_sees_a_view_for_each_query(client: flight_sql.Connection) -> None:
    (catalog,) = client.adbc_get_objects(depth="all").read_all().to_pylist()
    (schema,) = catalog["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert (catalog["catalog_name"], schema["db_schema_name"]) == ("memory", "main")
    assert list(tables) == ["by.text", "whole"] and tables["whole"]["table_type"] == "VIEW"
    columns = [column["column_name"] for column in tables["by.text"]["table_columns"]]
    assert columns == ["window_start", "window_end", "who", "n", "last", "revision", "error"]
    only = client.adbc_get_objects(depth="tables", table_name_filter="w_o%").read_all().to_pylist()
    assert [table["table_name"] for table in only[0]["catalog_db_schemas"][0]["db_schema_tables"]] == ["whole"]
    assert client.adbc_get_table_types() == ["VIEW"] and client.adbc_get_info()["vendor_name"] == "Heddle"
    found = asked(client, "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal")
    assert {"by.text", "whole"} <= set(found["view_name"].to_pylist())


def test_each_statement_reads_one_revision_and_the_newest(tmp_path: Path) -> None:
    """Three clients ask while intervals are published, each with a row of both queries."""
    world = store(tmp_path / "w", [([BY_TEXT, WHOLE], [row(BY_TEXT, 0, 0, "A"), row(WHOLE, 0, 0)])])
    counts, done = list[tuple[int, int]](), threading.Event()

    def ask(address: str) -> None:
        with connected(address) as connection:
            while True:
                last = done.is_set()
                counted = asked(connection, 'SELECT (SELECT count(*) FROM whole), (SELECT count(*) FROM "by.text")')
                counts.append(tuple(column[0].as_py() for column in counted.columns))
                if last:
                    return

    with serving(world.warehouse) as address:
        clients = [threading.Thread(target=ask, args=(address,)) for _ in range(3)]
        for each in clients:
            each.start()
        for hours in range(1, 6):
            store(world.warehouse.root, [([BY_TEXT, WHOLE], [row(BY_TEXT, hours, hours, "A"), row(WHOLE, hours, 1)])])
        done.set()
        for each in clients:
            each.join()
    assert all(one == other for one, other in counts), counts
    assert counts.count((6, 6)) >= 3


def test_a_query_that_is_planned_later_is_there_without_a_restart(tmp_path: Path) -> None:
    world = store(tmp_path / "w", [([WHOLE], [row(WHOLE, 0, 1)])])
    with serving(world.warehouse) as address, connected(address) as connection:
        assert asked(connection, "SELECT n FROM whole").to_pydict() == {"n": [1]}
        newer = replace(WHOLE, name="newer")
        store(world.warehouse.root, [([WHOLE, newer], [row(newer, 1, 7)])])
        assert asked(connection, "SELECT n FROM newer").to_pydict() == {"n": [7]}


# ----------------------------------------------------------------------------------------------- what is refused
ATTACKS = (
    # the client itself refuses a text that is empty
    *((text, code) for text, code, *_ in MISTAKES if text),
    (";", "HDL-620"),
    ("SELECT 1; COPY whole TO 'secret.csv'", "HDL-620"),
    ("COPY (SELECT 1) TO 'secret.csv'", "HDL-622"),
    ("EXPORT DATABASE 'secret'", "HDL-622"),
    ("IMPORT DATABASE 'secret'", "HDL-622"),
    ("ATTACH ':memory:' AS other", "HDL-622"),
    ("DETACH memory", "HDL-622"),
    ("LOAD httpfs", "HDL-622"),
    ("INSTALL 'secret.csv'", "HDL-622"),
    ("RESET enable_external_access", "HDL-622"),
    ("PRAGMA enable_external_access = true", "HDL-622"),
    ("PRAGMA version", "HDL-622"),
    ("CALL pragma_version()", "HDL-622"),
    ("SELECT set_config('enable_external_access', 'true', false)", "HDL-620"),
    ("DROP VIEW whole", "HDL-622"),
    ("CREATE OR REPLACE VIEW whole AS SELECT 1", "HDL-622"),
    ("CREATE MACRO f(x) AS x", "HDL-622"),
    ("INSERT INTO whole SELECT * FROM whole", "HDL-622"),
    ('DELETE FROM "heddle results"', "HDL-622"),
    ("UPDATE whole SET n = 1", "HDL-622"),
    ("BEGIN TRANSACTION", "HDL-622"),
    ("CHECKPOINT", "HDL-622"),
    ("PREPARE p AS SELECT 1", "HDL-622"),
    ("EXECUTE p", "HDL-622"),
    ("EXPLAIN ANALYZE DELETE FROM whole", "HDL-620"),
    ("SELECT * FROM 'secret.parquet'", "HDL-622"),
    ("SELECT * FROM read_text('secret.csv')", "HDL-622"),
    ("SELECT * FROM read_blob('/etc/passwd')", "HDL-622"),
    ("SELECT * FROM read_json('http://127.0.0.1:1/x')", "HDL-62"),
    ("SELECT * FROM read_parquet('s3://bucket/x')", "HDL-62"),
    ("SELECT * FROM sniff_csv('secret.csv')", "HDL-622"),
    ("SELECT * FROM sqlite_scan('secret.db', 't')", "HDL-62"),
    ("SELECT * FROM delta_scan('secret')", "HDL-62"),
    ("SELECT getenv('HOME')", "HDL-620"),
    ("SELECT * FROM query('COPY whole TO ''secret.csv''')", "HDL-62"),
    ("SELECT * FROM query_table('secret.csv')", "HDL-62"),
    ("SELECT nextval('s')", "HDL-62"),
    ("SELECT \x00 1", "HDL-620"),
    ("SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "HDL-620"),
)


@pytest.mark.parametrize(("text", "code"), ATTACKS, ids=[text[:40] for text, _ in ATTACKS])
@pytest.mark.parametrize("ask", [asked, asked_unprepared])
def test_an_attack_is_refused_by_its_code_and_told_nothing_else(
    client: flight_sql.Connection, ask: Any, text: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("secret.csv", "secret.parquet", "secret.db"):
        (tmp_path / name).write_text("password\nhush\n")
    secret_table = pa.table({"password": ["hush"]})
    # a result that fails while it is read is Arrow's error
    with pytest.raises((flight_sql.Error, pa.ArrowException, OSError)) as caught:
        ask(client, text)
    said = str(caught.value)
    assert re.search(rf"error {code}\d*", said), said
    assert "Traceback" not in said and "hush" not in said and str(ROOT) not in said, said
    assert {path.read_text() for path in tmp_path.iterdir()} == {"password\nhush\n"} and len(secret_table) == 1
    assert asked(client, "SELECT count(*) AS c FROM whole").to_pydict() == {"c": [12]}


def test_what_is_no_flight_sql_is_refused(made: Stored) -> None:
    longest = message("CommandStatementQuery", query="SELECT '" + "x" * (1 << 20) + "'")
    with serving(made.warehouse) as address, flight.FlightClient(address) as client:
        for data in (b"", b"\xff\xff", b"SELECT 1", wrapped(longest)):
            with pytest.raises(flight.FlightError, match="HDL-590"):
                client.get_flight_info(flight.FlightDescriptor.for_command(data))
            with pytest.raises(flight.FlightError, match=r"HDL-5(90|88)"):
                client.do_get(flight.Ticket(data)).read_all()
        for action in ("BeginTransaction", "CreatePreparedSubstraitPlan", "rm -rf"):
            with pytest.raises(flight.FlightError, match="HDL-590"):
                list(client.do_action(flight.Action(action, b"")))
        handle = wrapped(message("CommandPreparedStatementQuery", prepared_statement_handle=b"\xff"))
        with pytest.raises(flight.FlightError, match="HDL-590"):
            client.do_get(flight.Ticket(handle))


# ------------------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    ("sql", "limits", "limit"),
    [
        ("SELECT * FROM range(30001)", Limits(rows=30_000), "more than 30,000 rows"),
        (ENDLESS, Limits(seconds=1), "more than 1 seconds"),
        ("SELECT pg_sleep(600)", Limits(seconds=1), "more than 1 seconds"),
        ("SELECT list(i) FROM range(100000000) t(i)", Limits(megabytes=64), "more than 64 MB"),
    ],
)
def test_a_statement_ends_at_a_limit_and_the_next_is_answered(
    made: Stored, sql: str, limits: Limits, limit: str
) -> None:
    with serving(made.warehouse, replace(limits, statements=1)) as address, connected(address) as connection:
        with pytest.raises(flight_sql.Error, match=f"HDL-588 (the answer has )?{limit}"):
            asked(connection, sql)
        assert asked(connection, "SELECT max(n) AS m FROM whole").to_pydict() == {"m": [66]}
        assert asked(connection, "SELECT * FROM range(30000)").num_rows == 30_000


def test_a_statement_waits_for_a_slot(made: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    plain = Question.batches
    monkeypatch.setattr(Question, "batches", lambda *arguments: (begun.set(), plain(*arguments))[1])
    failed = list[str]()

    def endless(address: str) -> None:
        with connected(address) as connection:
            try:
                asked(connection, ENDLESS)
            except flight_sql.Error as error:
                failed.append(str(error))

    with serving(made.warehouse, Limits(statements=1, seconds=3)) as address, connected(address) as connection:
        first = threading.Thread(target=endless, args=(address,))
        first.start()
        assert begun.wait(60)
        assert asked(connection, "SELECT 1 AS x").to_pydict() == {"x": [1]}
        first.join()
    assert len(failed) == 1 and "HDL-588" in failed[0]


def test_a_statement_is_refused_if_no_slot_gets_free(made: Stored) -> None:
    """One client does not read on."""
    limits = Limits(statements=1, seconds=1, rows=10_000_000)
    with serving(made.warehouse, limits) as address, connected(address) as one, connected(address) as other:
        with one.cursor() as cursor:
            cursor.execute("SELECT range AS a, range AS b FROM range(9000000)")
            cursor.fetch_record_batch().read_next_batch()
            with pytest.raises(flight_sql.Error, match="HDL-589 1 statements run already"):
                asked(other, "SELECT 1")
        assert asked(other, "SELECT 1 AS x").to_pydict() == {"x": [1]}


def test_a_client_that_is_killed_frees_its_slot(made: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would for ten minutes."""
    begun = threading.Event()
    plain = Question.batches
    monkeypatch.setattr(Question, "batches", lambda *arguments: (begun.set(), plain(*arguments))[1])
    program = (
        "import sys, adbc_driver_flightsql.dbapi as d; cursor = d.connect(sys.argv[1], autocommit=True).cursor(); "
        f"cursor.execute({ENDLESS!r}); cursor.fetchall()"
    )
    with serving(made.warehouse, Limits(statements=1, seconds=600)) as address, connected(address) as connection:
        other = subprocess.Popen([sys.executable, "-c", program, address])
        assert begun.wait(60)
        other.kill()
        other.wait()
        assert asked(connection, "SELECT 1 AS x").to_pydict() == {"x": [1]}


# ------------------------------------------------------------------------------------------- tokens and command
def test_only_clients_with_the_token_are_answered(made: Stored) -> None:
    header = DatabaseOptions.AUTHORIZATION_HEADER.value
    with serving(made.warehouse, token=TOKEN) as address:
        for options in ({"username": "any", "password": TOKEN}, {header: f"Bearer {TOKEN}"}):
            with connected(address, **options) as connection:
                assert asked(connection, "SELECT count(*) AS c FROM whole").to_pydict() == {"c": [12]}
        for options in ({}, {"username": TOKEN, "password": "x"}, {header: "Bearer "}, {header: f"Bearer {TOKEN}x"}):
            with pytest.raises(flight_sql.Error, match="HDL-587"), connected(address, **options) as connection:
                asked(connection, "SELECT 1")


def test_the_token_travels_encrypted(made: Stored, tmp_path: Path) -> None:
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out tls.pem "
        "-days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    certificate = (tmp_path / "tls.pem").read_bytes()
    tls = (certificate, (tmp_path / "key.pem").read_bytes())
    with serving(made.warehouse, token=TOKEN, tls=tls) as address:
        options = {DatabaseOptions.TLS_ROOT_CERTS.value: certificate.decode(), "username": "a", "password": TOKEN}
        with connected(address, **options) as connection:
            assert asked(connection, "SELECT 1 AS x").to_pydict() == {"x": [1]}
        with pytest.raises(flight_sql.Error), connected(address) as connection:
            asked(connection, "SELECT 1")


def test_the_command_wants_a_token_for_what_others_reach(made: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    house = ("--warehouse", str(made.warehouse.root), "--port", "0")
    monkeypatch.delenv("HEDDLE_SERVE_TOKEN", raising=False)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        invocation = heddle("sql-server", *house, "--host", host)
        assert invocation.code == 2 and "HDL-572" in invocation.err
    monkeypatch.setenv("HEDDLE_SERVE_TOKEN", "fifteen-letters")
    invocation = heddle("sql-server", *house)
    assert invocation.code == 2 and "HDL-634" in invocation.err and "fifteen-letters" not in invocation.err
    assert heddle("sql-server", *house, "--certificate", "x.pem").code == 2


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_stopped(made: Stored, stop: signal.Signals) -> None:
    command = [sys.executable, "-m", "heddle.cli.app", "sql-server", "--warehouse", str(made.warehouse.root)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HEDDLE_SERVE_TOKEN": TOKEN}
    with subprocess.Popen(
        [*command, "--port", "0", "--memory", "64"], stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            assert server.stderr is not None
            said = server.stderr.readline()
            address = re.match(r"grpc://127\.0\.0\.1:\d+", said)
            assert address is not None and "whoever has the token" in said and TOKEN not in said, said
            with connected(address[0], username="any", password=TOKEN) as connection:
                assert asked(connection, "SELECT max(n) AS m FROM whole").to_pydict() == {"m": [66]}
                # more than DuckDB counts
                with pytest.raises(flight_sql.Error, match="HDL-588"):
                    asked(connection, "SELECT range(1000000000)")
                assert asked(connection, "SELECT max(n) AS m FROM whole").to_pydict() == {"m": [66]}
        finally:
            server.send_signal(stop)
            try:
                server.wait(30)
            finally:
                server.kill()
    assert server.returncode == (0 if stop is signal.SIGINT else -signal.SIGTERM)
