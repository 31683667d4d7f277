"""Marked secrets are in no output: of no command, page, table, log, plan, announcement, crash report or setting.

Every secret that a project can be given has a mark of its own. All commands run in a project with these secrets, as
they should be called, with addresses that hold secrets, and over errors that repeat all of them. A command, a choice,
a flag or a route that is new fails here until it has a case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from starlette.testclient import TestClient

from heddle.cli import serve
from heddle.cli.root import MODULES
from optimizer.errors import redaction
from spark_jobs.engine import configuration
from spark_jobs.operations.announcements import of_others
from spark_jobs.store import settings as declared_settings
from spark_jobs.store.warehouse import warehouse as warehouse_module
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import COMMAND, Clock, Said, heddle, without_spark

MARK = re.compile(r"Zx9[a-z_]+?Qv7")


def mark(place: str) -> str:
    return f"Zx9{place}Qv7"


SECRETS = {
    "HEDDLE_LEASE_DSN": f"postgresql://heddle:{mark('lease')}@127.0.0.1:1/airflow",
    "AWS_SECRET_ACCESS_KEY": mark("aws_key"),
    "AWS_SESSION_TOKEN": mark("aws_token"),
    "AZURE_STORAGE_ACCOUNT_KEY": mark("azure_key"),
    "AZURE_STORAGE_SAS_TOKEN": f"sv=2022-11-02&sp=r&sig={mark('azure_sas')}",
    "AZURE_STORAGE_CONNECTION_STRING": f"AccountName=a;AccountKey={mark('azure_string')};EndpointSuffix=x",
    "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({"type": "service_account", "private_key": mark("google")}),
    "AIRFLOW_CONN_STORE": json.dumps({"host": "a store", "password": mark("airflow")}),
    "JDBC_PASSWORD": mark("jdbc"),
}
"""Variables of the environment."""
if any(setting.variable == "HEDDLE_NOTIFY" for setting in declared_settings.DECLARED):
    SECRETS["HEDDLE_NOTIFY"] = f"http://127.0.0.1:1/services/T0/{mark('webhook')}"

REMOTE = f"sc://127.0.0.1:1/;token={mark('remote')}"
ADDRESSES = (f"s3://AKIA:{mark('address')}@bucket/house", f"abfss://c@a.dfs.core.windows.net/x?sig={mark('address')}")

QUERIES = f"""
-- name: counted
-- owner: desk
-- table: counted
-- the copy of postgresql://me:{mark("comment")}@db/trades, password={mark("comment_pair")}
SELECT symbol, count(*) AS n, -- of //me:{mark("comment_inside")}@db
  sum(price) AS total /* password={mark("comment_block")} */
FROM trades WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol;
-- name: other
SELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;
-- name: blocked
-- expect: n > 1000
SELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts WHERE price > 0;
"""

STREAMS = """
streams:
  trades:
    source: {format: parquet, path: trades}
    time: ts
    step: 30 minutes
"""

BAD_STREAMS = f"""
streams:
  in_path:
    source: {{format: csv, path: "s3://AKIA:{mark("stream_path")}@bucket/trades"}}
    schema: {{ts: timestamp}}
    time: ts
  in_options:
    source: {{format: orc, path: trades, options: {{password: {mark("stream_option")}}}}}
    schema: {{ts: timestamp}}
    time: ts
  trades:
    source: {{format: jdbc, path: "jdbc:postgresql://me:{mark("stream_url")}@db/x?password={mark("stream_url")}"}}
    schema: {{ts: timestamp, symbol: string, price: double}}
    time: ts
  in_url:
    source: {{format: jdbc, table: x, path: "postgresql://me:{mark("stream_server")}@db/x"}}
    schema: {{ts: timestamp}}
    time: ts
"""

DATABASE_STREAMS = """
streams:
  trades:
    source: {format: jdbc, path: "postgresql://me:${JDBC_PASSWORD}@127.0.0.1:1/x", table: trades}
    schema: {ts: timestamp, symbol: string, price: double}
    time: ts
"""
"""A database that is down."""

BEGIN, END = "2013-07-01T00:00:00Z", "2013-07-01T02:00:00Z"
INTERVAL = ("--from", BEGIN, "--to", END)
RATE = ("--rate", "trades=1")

CASES: dict[str, tuple[tuple[str, ...], ...]] = {
    # in the order in which they run; the project has a run already
    "run": ((*RATE, *INTERVAL), (*RATE, *INTERVAL, "--recompute", "--checks", "none")),
    "init": (("--dry-run", "trades"), ("--dry-run", "trades", "--airflow")),
    "streams": ((), ("trades",)),
    "preview": ((),),
    "test": tuple(("--format", form) for form in ("text", "json", "github")),
    "validate": tuple(("--format", form) for form in ("text", "json", "github")),
    "plan": (
        *(("--warehouse", "house", "--format", form) for form in ("text", "json", "mermaid", "html")),
        ("queries.sql", *RATE, "--summary"),
    ),
    "explain": (("counted", "--warehouse", "house"), ("counted", "queries.sql", *RATE)),
    "diff": tuple(("1", "1", "--format", form) for form in ("text", "json", "github", "markdown")),
    "what-if": (("--warehouse", "house"), ("queries.sql", *RATE)),
    "tick": (("--at", "2013-07-01T02:30:00"),),
    "backfill": (INTERVAL, (*INTERVAL, "--dry-run")),
    "repair": (("--dry-run",), ()),
    "compare": (INTERVAL,),
    "calibrate": (("--quick",),),
    "audit": (INTERVAL, ("--files",)),
    "quarantine": ((),),
    "release": (("blocked", "--reason", f"see postgresql://me:{mark('reason')}@db"),),
    "pause": (("other", "--reason", f"see postgresql://me:{mark('reason')}@db"),),
    "resume": (("other",),),
    "queries": ((), ("--at", "2013-07-02")),
    "read": tuple(("counted", "--format", form) for form in ("table", "csv", "json")),
    "features": tuple(
        ("labels.csv", "--at", "at", "--queries", "counted", "--output", "train.csv", "--known", known, *more)
        for known, more in (("now", ("--accuracy", "exact")), ("then", ("--accuracy", "refreshed", "--upto")))
    ),
    "lookup": tuple(("other", *INTERVAL, "--format", form) for form in ("table", "csv", "json")),
    "sql": tuple(("SELECT * FROM counted", "--format", form) for form in ("table", "csv", "json")),
    "views": ((), ("--dialect", "duckdb"), ("--dbt", "--output", "models")),
    "tables": ((), ("--rebuild", "counted")),
    "serve": (("--host", "192.0.2.1"),),
    "sql-server": (("--host", "192.0.2.1"),),
    "maintain": (("--dry-run",), ("--erase",)),
    "status": ((), *(("--format", form) for form in ("table", "json", "openmetrics"))),
    "contract": (("counted",), ("counted", "--output", "tmp/contract.yaml")),
    "jars": ((),),
    "upgrade": (("--check",), ("--apply",)),
    "alerts": ((), ("--send",), ("--test",)),
    "airflow": (("export", "exported", "--force"),),
    "format": (
        ("--diff", "plain.sql"),
        *(("--check", "--format", form, "plain.sql") for form in ("text", "json", "github")),
    ),
    "import": (("job.sql",), *(("job.sql", "--dialect", dialect) for dialect in ("flink", "timescale"))),
    "land": (("trades", "--stream", "trades", "--servers", f"me:{mark('servers')}@127.0.0.1:1"),),
    "copy": ((),),
    "config": ((),),
    "schema": (("streams",), ("heddle.toml",)),
    "experiments": (("f1", "--list"),),
    "rollback": (("1", "--dry-run"), ("1", "--yes")),
    "remove": (("other", "--dry-run"), ("other", "--with-answers", "--yes")),
}
"""Calls of each command, without ``--json``, with which each is called once more."""

WRONG = ("serve", "sql-server", "land", "compare", "calibrate", "test")
"""Commands that are called wrongly here: they would serve, or start Spark."""

WITHOUT_OUTPUT = {
    *("--json", "--yes", "--exactly", "--prune", "--allow-empty", "--follow", "--expose", "--full", "--all", "--quick"),
    *("--fetch", "--kafka"),
    *("--algorithm", "--cost-model", "--edge-counter", "--engine", "--checks", "--starting", "paper"),
    *("--format=parquet", "--format=avro", "--format=json", "--dialect=spark", "--apply"),
}
"""Flags and choices that print nothing of their own."""

ROUTES: dict[str, tuple[str, ...]] = {
    "/": ("/", "/?tree=trades-1"),
    "/plan": ("/plan",),
    "/query-data": ("/query-data?name=counted", "/query-data?name=none&format=json"),
    "/history": ("/history", "/history?version=1"),
    "/answers": ("/answers", "/answers?q=counted"),
    "/query": ("/query?name=counted&from=2013-07-01&to=2013-07-02", "/query?name=none"),
    "/operations": ("/operations", "/operations?look=1"),
    "/run": ("/run?id=cli",),
    "/streams": ("/streams",),
    "/trends": ("/trends",),
    "/radius": ("/radius?from=0&to=1&revision=1",),
    "/data-docs/{name}": ("/data-docs/x.html",),
    "/refresh": ("/refresh",),
    "/metrics": ("/metrics",),
    "/api/v1/openapi.json": ("/api/v1/openapi.json",),
    "/api/v1/queries": ("/api/v1/queries",),
    "/api/v1/answers/{query}": ("/api/v1/answers/counted", "/api/v1/answers/none"),
    "/api/v1/answers/{query}/latest": ("/api/v1/answers/counted/latest",),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder: a project with secrets wherever it can have some, and a warehouse that was published to."""
    folder = tmp_path_factory.mktemp("project")
    saved = dict(redaction._given)
    with pytest.MonkeyPatch.context() as patch, without_spark(Clock(1_372_645_800_000_000)):
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        for name in ("HEDDLE_WAREHOUSE", "HEDDLE_STREAMS", "HEDDLE_WORKLOAD"):
            patch.delenv(name, raising=False)
        patch.setenv("TMPDIR", str(folder / "tmp"))
        patch.setattr("tempfile.tempdir", str(folder / "tmp"))
        patch.setattr(warehouse_module, "postgres_lease", lambda name: nullcontext())
        patch.chdir(folder)
        (folder / "tmp").mkdir()
        (folder / "trades").mkdir()
        (folder / "heddle.toml").write_text(
            f'warehouse = "house"\nstreams = "streams.yaml"\nworkload = "queries.sql"\njars = "none"\n'
            f'lease_dsn = "postgresql://heddle:{mark("file")}@127.0.0.1:1/airflow"\n'
        )
        (folder / "streams.yaml").write_text(STREAMS)
        (folder / "bad.yaml").write_text(BAD_STREAMS)
        (folder / "database.yaml").write_text(DATABASE_STREAMS)
        (folder / "queries.sql").write_text(QUERIES)
        # what it prints is the text of the file itself
        (folder / "plain.sql").write_text("select count(*) from trades window range '1 hour' slide '1 hour' on ts")
        (folder / "labels.csv").write_text("at,symbol\n2100-01-01,A\n")
        (folder / "job.sql").write_text(
            "SELECT symbol, count(*) FROM trades GROUP BY symbol, window(ts, '1 hour') "
            f"-- of jdbc:postgresql://me:{mark('job')}@db"
        )
        moments = [datetime(2013, 7, 1, 0, minute, tzinfo=UTC) for minute in range(0, 60, 5)]
        rows = {"ts": moments, "symbol": ["A", "B"] * 6, "price": [1.5] * 12}
        schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("symbol", pa.string()), ("price", pa.float64())])
        pq.write_table(pa.table(rows, schema), folder / "trades" / "first.parquet")
        # the answers of one query are not what is expected
        assert heddle("run", *CASES["run"][0]).code == 3
        yield folder
    redaction._given.clear()
    redaction._given.update(saved)


def check(what: str, *texts: str) -> None:
    leaks = sorted({leak for text in texts for leak in MARK.findall(text)})
    assert not leaks, f"{what} shows {', '.join(leaks)}"


def call(*arguments: str) -> Said:
    return heddle(*arguments)


def parameters(name: str) -> Iterator[tuple[str, Any]]:
    """The options of a command, each with its type."""
    for parameter in COMMAND.commands[name].params:  # type: ignore[attr-defined]
        annotation = parameter.type_descriptor.annotation
        yield parameter.opts[0], next(iter(get_args(annotation)), annotation)


def test_every_command_flag_and_choice_has_a_case() -> None:
    assert set(CASES) == set(MODULES)
    missing = []
    for name in CASES:
        said = " ".join(word for case in CASES[name] for word in ("", *case, "")) + " "
        for option, kind in parameters(name):
            choices = [each.value for each in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []
            if option in WITHOUT_OUTPUT or not (choices or kind is bool):
                continue
            for form in choices or [""]:
                shown = f" {option} {form} " if option.startswith("-") and form else f" {form or option} "
                if shown not in said and f"{option}={form}" not in WITHOUT_OUTPUT:
                    missing.append(f"{name} {option} {form}")
    assert not missing


@pytest.mark.parametrize("name", CASES)
def test_a_command_shows_no_secret(project: Path, name: str) -> None:
    has_json = "--json" in dict(parameters(name))
    for case in CASES[name]:
        for more in ((), ("--json",)) if has_json and not {"--format", "--dbt"} & {*case} else ((),):
            said = call(name, *case, *more)
            assert said.code != 2 or name in WRONG, (case, more, said)
            check(f"heddle {name} {' '.join((*case, *more))}", said.out, said.err)


@pytest.mark.parametrize("name", CASES)
def test_an_address_with_a_secret_is_not_repeated(project: Path, name: str) -> None:
    options = dict(parameters(name))
    for option, values in (("--warehouse", ADDRESSES), ("--streams", ("bad.yaml", "database.yaml"))):
        for value in values if option in options else ():
            said = call(name, *CASES[name][-1], option, value)
            check(f"heddle {name} {option} {value}", said.out, said.err.replace(value, ""))


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://me:{}@127.0.0.1:1/x", "mysql://me:{}@127.0.0.1:1/x", "jdbc:postgresql://h/x?password={}"),
        *("postgresql://me@h/x?password={}", "postgres://me:{}@h:no/x", "postgresq://me:{}@h/x"),
    ],
)
def test_the_password_of_a_database_is_not_repeated(project: Path, url: str) -> None:
    for more in ((), ("--table", "trades")):
        said = call("init", url.format(mark("init")), "--dry-run", *more)
        assert said.code != 0
        check(f"heddle init {url}", said.out, said.err)
    said = call("init", "postgresql://me:${JDBC_PASSWORD}@127.0.0.1:1/x", "--dry-run")
    assert said.code != 0 and "HDL-489" in said.err
    check("heddle init", said.out, said.err)


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("name", CASES)
def test_an_unforeseen_error_shows_no_secret(
    project: Path, name: str, debug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the warehouse or the settings: its text repeats all values."""

    def broken(*given: Any, **named: Any) -> Any:
        raise RuntimeError(" ".join((*SECRETS.values(), REMOTE, *ADDRESSES)))

    monkeypatch.setenv("HEDDLE_DEBUG", debug)
    monkeypatch.setenv("HEDDLE_SPARK_REMOTE", REMOTE)
    monkeypatch.setattr(Warehouse, "existing", broken)
    monkeypatch.setattr(declared_settings, "settings", broken)
    said = call(name, *CASES[name][-1])
    check(f"heddle {name}, HEDDLE_DEBUG={debug}", said.out, said.err)


def test_settings_are_shown_without_secrets(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_SPARK_REMOTE", REMOTE)
    for arguments in ((), ("--json",)):
        said = call("config", *arguments)
        assert "lease_dsn" in said.out
        check("heddle config", said.out, said.err)
    monkeypatch.setattr(configuration, "delta_jars", lambda *given: [])
    check("the settings of Spark, which its event log has", json.dumps(configuration.spark_settings()))


def test_pages_show_no_secret(project: Path) -> None:
    pages = serve.pages_of(str(project / "house"), "127.0.0.1", mark("server"))
    paths = {
        f"{route.path}{inner.path}" if inner else route.path
        for route in pages.routes
        for inner in (getattr(route, "routes", None) or [None])
    }
    assert paths == set(ROUTES)
    headers = {"Authorization": f"Bearer {mark('server')}"}
    client = TestClient(pages, base_url="http://127.0.0.1:8765", headers=headers)
    for path in (path for paths in ROUTES.values() for path in paths):
        answer = client.get(path)
        assert answer.status_code in (200, 400, 404), (path, answer.text)
        check(path, answer.text, str(answer.headers))


def test_what_is_stored_has_no_secret(project: Path) -> None:
    """Rows and commits of all tables, all other files below the warehouse and of ``--output``, crash reports."""
    tables = [path.parent for path in (project / "house").rglob("_delta_log")]
    assert "counted" in {table.name for table in tables}
    for table in tables:
        delta = DeltaTable(str(table))
        check(f"the table {table.name}", json.dumps(delta.to_pyarrow_table().to_pylist(), default=str))
        check(f"the history of {table.name}", json.dumps(delta.history(), default=str), str(delta.metadata()))
    folders = [project / name for name in ("house", "models", "exported", "tmp")]
    for file in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        check(file.name, file.read_bytes().decode("latin-1"))


def test_what_airflow_is_told_has_no_secret(project: Path) -> None:
    announced = of_others(Warehouse.open(project / "house"), 1_372_645_800_000_000)
    check("announcements (XCom and asset events)", json.dumps([asdict(each) for each in announced], default=str))
