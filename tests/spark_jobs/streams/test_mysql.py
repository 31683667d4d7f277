"""Tables of MySQL and MariaDB, read with Spark through both databases' JDBC drivers: every value is the one that SQL
gives, whatever the zones of the server and of this machine. Skipped without a server and the drivers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from optimizer.workload.databases import parse_database_url
from spark_jobs.streams.copies.databases import mysql
from tests.spark_jobs.streams.mysql_server import PASSWORD, MysqlServer, configuration, mysql_server

COLUMNS = {
    "id": ("bigint AUTO_INCREMENT PRIMARY KEY", "long"),
    "flag": ("tinyint(1)", "byte"),
    "yes": ("tinyint(1)", "boolean"),
    "tiny": ("tinyint unsigned", "short"),
    "small": ("smallint", "short"),
    "medium": ("mediumint unsigned", "int"),
    "whole": ("int unsigned", "long"),
    "big": ("bigint unsigned", "decimal(20,0)"),
    "one": ("bit(1)", "boolean"),
    "eight": ("bit(8)", "long"),
    "price": ("decimal(12,2)", "decimal(12,2)"),
    "wide": ("decimal(65,30)", "string"),
    "single": ("float", "double"),
    "score": ("double", "double"),
    "clock": ("datetime(6)", "timestamp"),
    "at": ("timestamp(6) NULL", "timestamp"),
    "day": ("date", "date"),
    "span": ("time(6)", "string"),
    "year": ("year", "int"),
    "kind": ("enum('a','é')", "string"),
    "kinds": ("set('x','y','z')", "string"),
    "record": ("json", "string"),
    "long text": ("text", "string"),
    "select": ("varchar(50)", "string"),
    "fixed": ("char(5)", "string"),
    "a`b.c": ("varchar(20) CHARACTER SET latin1", "string"),
    "raw": ("blob", ""),
}
"""Columns of a table: as the database declares them, and as the stream does (empty: it does not)."""

VALUES = (
    "(1, 1, 1, 255, -32768, 16777215, 4294967295, 18446744073709551615, b'1', b'10000001', -9999999999.99, "
    "12345678901234567890123456789012345.123456789012345678901234567890, 1.1, 1.1e300, '2026-03-29 02:30:00.123456', "
    "'2026-03-29 00:30:00.123456', '2026-03-29', '-838:59:58.123456', 1901, 'é', 'x,z', '{\"a\": \"😀\"}', "
    "'😀 text''', 'é😀', 'c', 'é', x'00ff')",
    "(2, 0, 0, 0, 32767, 0, 0, 0, b'0', b'0', 9999999999.99, 0, 3.4028234e38, -0.0, '9999-12-31 23:59:59', "
    "'2037-10-25 01:30:00', '9999-12-31', '00:00:00', 2155, 'a', '', '[]', '', '', '', '', '')",
    f"(3, 2{', NULL' * 25})",
    "(4, 1, 1, 1, 1, 1, 1, 9223372036854775808, b'1', b'11', 0.01, 0.5, 0.1, 1e-300, "
    "'2026-10-25 02:30:00', '2026-10-25 00:30:00', '1970-01-01', '12:00:00', 2026, 'a', 'y', '1', 'x', 'x', 'x', '', "
    "'')",
)


@pytest.fixture(scope="module")
def server() -> Iterator[MysqlServer]:
    with mysql_server() as running:
        yield running


def heddle(folder: Path, kind: str, *arguments: str, code: int = 0, zone: str = "UTC") -> str:
    """What a command prints. (A process of its own: Java's zone and drivers are those that it began with.)"""
    spark = {"SPARK_CONF_DIR": str(configuration(folder / "conf", kind)), "TZ": zone, "MYSQL_PWD": PASSWORD}
    spark |= {"HEDDLE_STREAMS": "streams.yaml", "HEDDLE_WAREHOUSE": "warehouse", "HEDDLE_COPIES": "copies"}
    command = [sys.executable, "-c", "from heddle.cli.app import app; app()", *arguments]
    done = subprocess.run(command, cwd=folder, env=os.environ | spark, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def declared(folder: Path, server: MysqlServer, kind: str, table: str, schema: dict[str, str], more: str) -> None:
    """Write streams.yaml with a stream over a table."""
    origin = f"format: jdbc, path: '{server.url(kind).replace('reader@', '')}', table: {table}, watermark: id"
    options = "options: {user: reader, password: '${MYSQL_PWD}'" + more + "}"
    text = f"streams: {{orders: {{source: {{{origin}, {options}}}, time: at, schema: {json.dumps(schema)}}}}}"
    (folder / "streams.yaml").write_text(text)


def copy_of(folder: Path) -> list[dict[str, Any]]:
    (place,) = (folder / "copies").glob("orders-*")
    return sorted(DeltaTable(place).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


def as_value(text: str | None, like: Any) -> Any:
    """A text of SQL as a value of the type of another one."""
    if text is None:
        return None
    if isinstance(like, datetime):
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    if isinstance(like, date):
        return date.fromisoformat(text)
    if isinstance(like, bool):
        return text == "1"
    return next(kind(text) for kind in (int, float, Decimal, str) if isinstance(like, kind))


@pytest.mark.parametrize(("kind", "zone"), [("mysql", "Europe/Berlin"), ("mariadb", "Asia/Tokyo")])
def test_values_are_those_of_sql(kind: str, zone: str, server: MysqlServer, tmp_path: Path) -> None:
    columns = ", ".join(f"{mysql.mysql_name(name)} {type_}" for name, (type_, _) in COLUMNS.items())
    server.run(f"DROP TABLE IF EXISTS `or-der`; CREATE TABLE `or-der` ({columns})")
    server.run(f"INSERT INTO `or-der` VALUES {', '.join(VALUES)}")
    schema = {name: type_ for name, (_, type_) in COLUMNS.items() if type_}
    declared(tmp_path, server, kind, "or-der", schema, "")
    heddle(tmp_path, kind, "copy", zone=zone)
    exact = {"single": "single + 0e0", "one": "one + 0", "eight": "eight + 0"}
    said = server.rows(*(exact.get(name, mysql.mysql_name(name)) for name in schema), more="`or-der` ORDER BY id")
    copied = copy_of(tmp_path)
    assert len(said) == len(copied) == len(VALUES)
    for texts, row in zip(said, copied, strict=True):
        for name, text in zip(schema, texts, strict=True):
            assert row[name] == as_value(text, row[name]), (name, text)


def test_a_table_becomes_answers_and_rows_that_come_are_copied(server: MysqlServer, tmp_path: Path) -> None:
    server.run(
        "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, at DATETIME NOT NULL, shop TEXT, price DECIMAL(9,2));"
        "CREATE TABLE shops (shop VARCHAR(9));"
        + "".join(
            f"INSERT INTO orders VALUES ({10 + n}, '2026-03-02' + INTERVAL {n * 10} MINUTE, '{'ab'[n % 2]}', {n}.25);"
            for n in range(100)
        )
    )
    listed = heddle(tmp_path, "mysql", "init", server.url("mysql"))
    assert "shop.orders" in listed and "about 100" in listed and "--table shop.orders" in listed
    made = heddle(tmp_path, "mysql", "init", server.url("mysql"), "--table", "orders")
    assert "shop.orders: 100 rows from 2026-03-02T00:00:00Z to 2026-03-02T16:30:00Z" in made
    file = tmp_path / "streams.yaml"
    parts = "partitionColumn: id, lowerBound: '1', upperBound: '90', numPartitions: '3'"
    text = file.read_text()
    assert "user: reader" in text and "password: ${MYSQL_PWD}" in text and PASSWORD not in text
    file.write_text(
        text.replace(
            "options:\n        user: reader\n        password: ${MYSQL_PWD}",
            f"options: {{{parts}, user: reader, password: '${{MYSQL_PWD}}'}}",
        )
    )
    (tmp_path / "queries" / "first.sql").write_text(
        "-- name: hourly\nSELECT shop, count(*) AS events, sum(price) AS total FROM orders "
        "WINDOW RANGE '1 hour' SLIDE '1 hour' ON at GROUP BY shop;"
    )
    for statement in (
        "",
        "INSERT INTO orders VALUES (200, '2026-03-02 23:30:00', 'é', 1000), (201, '2026-03-03 10:00:00', 'a', 1)",
        # behind the last span, which is counted again
        "INSERT INTO orders VALUES (5, '2026-03-02 23:40:00', 'late', 7)",
    ):
        if statement:
            server.run(statement)
        heddle(tmp_path, "mysql", "run", "--from", "2026-03-02", "--to", "2026-03-04")
        query = "SELECT window_start, shop, events, total FROM hourly"
        shown = json.loads(heddle(tmp_path, "mysql", "sql", query, "--limit", "0", "--json"))
        rows = shown["rows"] if isinstance(shown, dict) else shown
        answers = sorted(
            [
                str(value)[:13].replace("T", " ") if place == 0 else str(value)
                for place, value in enumerate(row.values() if isinstance(row, dict) else row)
            ]
            for row in rows
        )
        hour = "DATE_FORMAT(at, '%Y-%m-%d %H')"
        assert answers == sorted(
            server.rows(hour, "shop", "count(*)", "sum(price)", more=f"orders GROUP BY {hour}, shop")
        )


FAILURES = """
import json, os, sys
from pathlib import Path
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.databases import parse_database_url
from spark_jobs.operations.database_project import plan_database, tables_of
from spark_jobs.streams.copies.readers import spark_session

def outcome(url, table, password):
    os.environ["MYSQL_PWD"] = password
    place = parse_database_url(url, Path())
    try:
        return str(plan_database(place, table, Path("made")).about if table else len(tables_of(place)))
    except HeddleError as error:
        return f"{error.diagnostic.code} {error.diagnostic.message} / {error.diagnostic.hint}"

with spark_session() as spark:
    spark.sparkContext.setLogLevel("OFF")
    print(json.dumps([outcome(*case) for case in json.loads(sys.argv[1])]))
"""


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_what_fails_is_coded(kind: str, server: MysqlServer, tmp_path: Path) -> None:
    server.run(
        "DROP TABLE IF EXISTS zero, `a b`;"
        "CREATE TABLE zero (id INT PRIMARY KEY, at DATETIME, n TIMESTAMP NULL, flag BOOL);"
        "CREATE TABLE `a b` (id INT PRIMARY KEY, at DATETIME); INSERT INTO `a b` VALUES (1, '2026-03-01');"
        "INSERT INTO zero VALUES (1, '2026-03-01', NULL, 0), (7, '0000-00-00', '0000-00-00', 2)"
    )
    cases = {
        (server.url(kind), "", "another-long-secret"): "HDL-490 stream shop: 127.0.0.1:* MYSQL_PWD",
        (server.url(kind, user="stranger"), "", PASSWORD): "HDL-490 *GRANT SELECT",
        (server.url(kind, "nothing"), "", PASSWORD): "HDL-490 *'nothing'*check the name",
        (
            server.url(kind).replace(f":{server.port}", ":1"),
            "",
            PASSWORD,
        ): "HDL-489 *Connection refused*is the server up",
        (server.url(kind).replace("127.0.0.1", "nowhere.invalid"), "", PASSWORD): "HDL-489 *nowhere.invalid",
        (server.url(kind), "zeros", PASSWORD): "HDL-401 *shop.zero",
        (server.url(kind), "a b", PASSWORD): "HDL-457 *shop.a b*view",
        (server.url(kind), "zero", PASSWORD): "('table shop.zero: 2 rows from 2026-03-01T00:00:00Z",
    }
    environment = os.environ | {"SPARK_CONF_DIR": str(configuration(tmp_path / "conf", kind))}
    command = [sys.executable, "-c", FAILURES, json.dumps(list(cases))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for case, outcome in zip(cases.items(), json.loads(done.stdout), strict=True):
        position = 0
        for part in case[1].split("*"):
            position = outcome.find(part, position)
            assert position >= 0, (case, outcome)
    assert "-long-secret" not in done.stdout + done.stderr and PASSWORD not in done.stdout + done.stderr
    schema = {"id": "int", "at": "timestamp"}
    declared(tmp_path, server, kind, "zero", schema, "")
    assert "HDL-404 stream orders: a date of zero has" in (refused := heddle(tmp_path, kind, "copy", code=1)), refused
    assert "row with id 7" in refused and "zeroDateTimeBehavior: CONVERT_TO_NULL" in refused
    as_null = ", zeroDateTimeBehavior: CONVERT_TO_NULL"
    declared(tmp_path, server, kind, "zero", schema | {"flag": "boolean"}, as_null)
    assert "type boolean: 2 is neither 0 nor 1" in heddle(tmp_path, kind, "copy", code=1)
    declared(tmp_path, server, kind, "zero", schema, as_null)
    heddle(tmp_path, kind, "copy")
    assert [row["at"] for row in copy_of(tmp_path)] == [datetime(2026, 3, 1, tzinfo=UTC), None]


def test_without_a_driver_the_error_says_what_to_write(tmp_path: Path) -> None:
    environment = os.environ | {"SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-c", "from heddle.cli.app import app; app()", "init", "mysql://reader@127.0.0.1:1/shop"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "HDL-433" in done.stderr and "spark.jars.packages com.mysql:mysql-connector-j:" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("mysql://h/d", {}, {"url": "jdbc:mysql://h/d", "driver": "D", "connectionTimeZone": "UTC"}),
        (
            "mariadb://h/d?a=b",
            {},
            {"url": "jdbc:mysql://h/d?a=b&permitMysqlScheme=true", "driver": mysql.MARIADB_DRIVER},
        ),
        ("mysql://h/d", {"driver": mysql.MARIADB_DRIVER}, {"url": "jdbc:mysql://h/d?permitMysqlScheme=true"}),
        ("mysql://h/d", {"serverTimezone": "UTC"}, {"connectionTimeZone": None, "tinyInt1isBit": "false"}),
        ("jdbc:mysql://h/d?connectionTimeZone=LOCAL", {}, {"connectionTimeZone": None, "preserveInstants": None}),
        ("mysql://h/d", {"sessionVariables": "time_zone='+01:00'"}, {"connectionTimeZone": None}),
        ("mysql://h/d", {"tinyInt1isBit": "true"}, {"tinyInt1isBit": None, "connectionTimeZone": "UTC"}),
    ],
)
def test_what_a_stream_says_of_the_driver_is_not_replaced(
    url: str, options: dict[str, str], expected: dict[str, str | None]
) -> None:
    driver = mysql.MARIADB_DRIVER if url.startswith("mariadb") else "D"
    said = mysql.driver_options(parse_database_url(url, Path()), options, driver)
    assert {name: said.get(name) for name in expected} == expected
