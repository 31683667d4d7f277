"""The password of the lease's DSN, and every other secret that a process was given: in no message, no record, no log,
no output."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors import redaction
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.redaction import HIDDEN, keep_secret, redacted
from spark_jobs.engine.configuration import spark_settings
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.hostile.attacks import STREAM
from tests.hostile.guard import WINDOW

PASSWORD = "hunter2-of-the-lease"
DSNS = (
    f"postgresql://heddle:{PASSWORD}@127.0.0.1:1/airflow",
    f"postgresql//heddle:{PASSWORD}@127.0.0.1:1/airflow",
    f"postgresql://heddle:a/{PASSWORD}@127.0.0.1:1/airflow",
    f"postgresql://heddle:{PASSWORD}@127.0.0.1:1/airflow?no_such_option=1",
    f"postgresql://heddle:x@{PASSWORD}@127.0.0.1:1/airflow",
    f"postgresql://heddle@127.0.0.1:1/airflow?password={PASSWORD}&port=x",
    f"host=127.0.0.1 port=1 user=heddle password={PASSWORD}",
    f"host=127.0.0.1 port={PASSWORD}",
    f"host=127.0.0.1 port=1 password='{PASSWORD}",
    PASSWORD,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "trades.csv").write_text("ts,symbol\n2013-01-01 00:00:00,A\n")
    (tmp_path / "streams.yaml").write_text(STREAM.replace("@PATH", "trades.csv"))
    (tmp_path / "w.sql").write_text(f"SELECT count(*) FROM trades {WINDOW}")
    return tmp_path


@pytest.mark.parametrize("dsn", DSNS)
def test_the_lease_tells_no_password(
    dsn: str, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HEDDLE_LEASE_DSN", dsn)
    with pytest.raises(HeddleError) as refused:
        Warehouse.open(place / "house")
    assert refused.value.diagnostic.code == "HDL-513"
    output = "".join(traceback.format_exception(refused.value)) + json.dumps(refused.value.diagnostic.to_json())
    with pytest.raises(HeddleError) as refused:
        refresh_plan(place / "house", [place / "w.sql"], place / "streams.yaml", algorithm="shared")
    output += "".join(traceback.format_exception(refused.value)) + caplog.text
    files = [str(place / "w.sql"), "--streams", str(place / "streams.yaml")]
    house = ["--warehouse", str(place / "house")]
    for arguments in (
        ["run", *files, *house, "--from", "2013-01-01", "--to", "2013-01-02", "--json"],
        ["validate", *files, "--json"],
        ["plan", *files, "--json", "--rate", "trades=1"],
        ["status", *house, "--json"],
    ):
        done = CliRunner().invoke(app, arguments)
        output += done.output + "".join(traceback.format_exception(done.exception) if done.exception else [])
    assert "HDL-513" in output and PASSWORD not in output


def test_tables_and_sessions_know_no_dsn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stored plan, the statistics and Spark's settings hold, when the lease worked."""
    monkeypatch.delenv("HEDDLE_LEASE_DSN", raising=False)
    house = Warehouse.open(place / "house")
    import psycopg

    class Connection:
        """A server that grants everything."""

        def execute(self, *_: object) -> None: ...

        def close(self) -> None: ...

    dsns = []
    monkeypatch.setattr(psycopg, "connect", lambda dsn: dsns.append(dsn) or Connection())
    monkeypatch.setenv("HEDDLE_LEASE_DSN", DSNS[0])
    outcome = refresh_plan(house.root, [place / "w.sql"], place / "streams.yaml", algorithm="shared", reason="x")
    assert dsns and set(dsns) == {DSNS[0]} and outcome.version == 1
    stored = b"".join(path.read_bytes() for path in house.root.rglob("*") if path.is_file())
    rows = [house.rows(name) for name in ("sharing_plans", "workload_queries", "stream_statistics", "publish_log")]
    assert rows[0] and b"sharing_plans" in stored
    for text in (
        repr(outcome),
        json.dumps(outcome.to_json()),
        repr(rows),
        json.dumps(spark_settings()),
        stored.decode("latin-1"),
    ):
        assert PASSWORD not in text


# ------------------------------------------------------------------------------------------- redaction
SECRET = "s3cr3t/of+the@store"
GIVEN = {
    "HEDDLE_LEASE_DSN": f"postgresql://heddle:{SECRET}@db:5432/airflow",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://heddle:{quote(SECRET, safe='')}@db/airflow",
    "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]", "password": SECRET}),
    "AIRFLOW_CONN_STORE": json.dumps({"host": "a store", "extra": {"keys": [{"secret_key": SECRET}]}}),
    "AIRFLOW__API_AUTH__JWT_SECRET": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "PGPASSWORD": SECRET,
    "SOME_TOKEN": SECRET,
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_secret_of_the_environment_is_in_no_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in GIVEN:
        monkeypatch.delenv(other, raising=False)
    message = f"cannot connect with {SECRET} to db, nor with {quote(SECRET, safe='')}"
    assert redacted(message) == message
    monkeypatch.setenv(name, GIVEN[name])
    assert redacted(message) == f"cannot connect with {HIDDEN} to db, nor with {HIDDEN}"
    diagnostic = Diagnostic("HDL-531", message, message, file=message, query=message)
    assert SECRET not in json.dumps(diagnostic.to_json()) + str(diagnostic) + str(HeddleError.of(diagnostic))
    assert SECRET not in str(HeddleError("HDL-531", f"{'x' * 580} {message}"))


def test_addresses_and_pairs_that_nobody_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    for message in (
        f"could not translate postgresql://me:{PASSWORD}@host:1/db",
        f"could not translate //me:{PASSWORD}@host and jdbc:postgresql://:{PASSWORD}@host",
        f"bad option password={PASSWORD} in DSN",
        f"fs.s3a.secret.key: {PASSWORD}",
        f'{{"user": "me", "password": "{PASSWORD}"}}',
        f"connect(host='x', password='{PASSWORD} and more')",
        f"?user=me&password={PASSWORD}&ssl=true",
    ):
        assert PASSWORD not in redacted(message) and HIDDEN in redacted(message), message
    for harmless in (
        "",
        "2013-07-01T00:00:00Z .. 12:00",
        "see //host/path",
        "a@b",
        "did you mean passage?",
        "x // y: @z",
    ):
        assert redacted(harmless) == harmless


def test_words_and_short_values_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("true", "5", "1234", "x", ""):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", value)
        assert redacted("it is true that 1234 of 5 x") == "it is true that 1234 of 5 x"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://master:7077")
    assert redacted("no answer from spark://master:7077") == "no answer from spark://master:7077"


@given(st.text(max_size=300), st.text(min_size=8, max_size=20))
def test_what_is_kept_is_hidden_wherever_it_stands(text: str, secret: str) -> None:
    saved_secrets = dict(redaction._given)
    try:
        keep_secret({"spark.hadoop.fs.s3a.secret.key": secret, "spark.app.name": "heddle"})
        redacted_text = redacted(f"{text} {secret} {text}")
        assert HIDDEN in redacted_text and not any(secret in piece for piece in redacted_text.split(HIDDEN))
    finally:
        redaction._given.clear()
        redaction._given.update(saved_secrets)


def test_a_hostile_text_takes_no_time() -> None:
    begun = time.process_time()
    for piece in ("//a:", "//a:b", "password=", "password='", "secret" * 3, "@", ":@//", "//:" + "x" * 99):
        redacted(piece * (200_000 // len(piece)))
    assert time.process_time() - begun < 4


def test_the_log_of_runs_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that a task raised, as Spark tells it, and the refusal that is made of it."""
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    monkeypatch.delenv("HEDDLE_LEASE_DSN", raising=False)
    warehouse = Warehouse.open(tmp_path / "house")
    record = publish_log.RunRecord("run", 1, 0, 1)
    message = f"PythonException: Traceback:\n  HeddleError: HDL-402 no answer to {SECRET} from s3://me:{PASSWORD}@store"
    record.diagnostics.append(publish_log.coded_error(RuntimeError(message)).diagnostic.to_json())
    with pytest.raises(HeddleError) as refused:
        publish_log.refuse(warehouse, record, "HDL-505", f"nothing could be read: password={PASSWORD}")
    (row,) = warehouse.rows("publish_log")
    assert "HDL-402" in row["record"] and HIDDEN in row["record"]
    stored = "".join(path.read_bytes().decode("latin-1") for path in warehouse.root.rglob("*") if path.is_file())
    for text in (repr(row), stored, str(refused.value)):
        assert SECRET not in text and PASSWORD not in text


CRASH = """
import sys
from pathlib import Path
import spark_jobs.store.warehouse.warehouse
def broken(*given, **named):
    import psycopg
    raise psycopg.OperationalError("connection failed: FATAL: {secret} is no password of postgresql://me:{other}@db")
spark_jobs.store.warehouse.warehouse.Warehouse.open = broken
sys.argv = ["heddle", "status", "--warehouse", "house"]
from heddle.cli.app import app
app()
"""


@pytest.mark.parametrize("debug", ("", "1"))
def test_a_crash_of_the_command_line_tells_no_secret(debug: str, tmp_path: Path) -> None:
    """Of an error that nobody foresaw: a line and a file, or the traceback itself; none has the secrets of it."""
    program = CRASH.format(secret=SECRET, other=PASSWORD)
    environment = os.environ | {"SOME_TOKEN": SECRET, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"HEDDLE_DEBUG": debug, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "error HDL-900 OperationalError" in done.stderr
    crash_reports = [path.read_text() for path in tmp_path.glob("heddle-*.txt")]
    assert ("Traceback" in done.stderr) == bool(debug) and len(crash_reports) == (not debug)
    for text in (done.stdout, done.stderr, *crash_reports):
        assert SECRET not in text and PASSWORD not in text
    assert all("Traceback" in text and text.count("OperationalError") for text in crash_reports)
