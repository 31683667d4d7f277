"""``heddle init`` over a database that only Spark reads: Derby, which comes with Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from heddle.cli.app import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def database(spark: SparkSession) -> str:
    """The URL of a database with a table of orders and one of shops."""
    url = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
    java: Any = spark
    statement = java._jvm.java.sql.DriverManager.getConnection(url).createStatement()
    statement.execute("CREATE TABLE shops (name VARCHAR(20))")
    statement.execute(
        "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, ordered TIMESTAMP, shop VARCHAR(9), price DECIMAL(9,2))"
    )
    for number in range(300):
        at = f"2026-03-02 {number // 60:02}:{number % 60:02}:00"
        statement.execute(f"INSERT INTO orders VALUES ({number}, '{at}', '{'ab'[number % 2]}', {number / 10})")
    return url


def test_tables_of_a_jdbc_driver_are_listed_and_one_becomes_a_project(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    listed = runner.invoke(app, ["init", database])
    assert listed.exit_code == 0 and "APP.ORDERS" in listed.stdout and "APP.SHOPS" in listed.stdout, listed.output
    assert "SYS" not in listed.stdout and "--table APP.ORDERS" in listed.stdout
    made = runner.invoke(app, ["init", database, "--table", "orders"])
    assert made.exit_code == 0, made.output
    assert "table APP.ORDERS: 300 rows from 2026-03-02T00:00:00Z to 2026-03-02T04:59:00Z" in made.stdout
    text = (tmp_path / "streams.yaml").read_text()
    assert f"path: {database}" in text and "watermark: ID" in text and "zone: UTC" in text, text
    shown = runner.invoke(app, ["preview", "--limit", "1"])
    assert shown.exit_code == 0 and "orders_" in shown.stdout, shown.output
    unknown = runner.invoke(app, ["init", database, "--table", "order", "--folder", "other"])
    assert unknown.exit_code != 0 and "HDL-401" in unknown.output and "APP.ORDERS" in unknown.output
