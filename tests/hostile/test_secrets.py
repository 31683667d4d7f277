"""The password of the lease's DSN: in no message, no record, no log, no output."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optimizer.errors import HeddleError
from spark_jobs.cli import app
from spark_jobs.planning import refresh_plan
from spark_jobs.session import spark_settings
from spark_jobs.tables import Warehouse
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
    told = "".join(traceback.format_exception(refused.value)) + json.dumps(refused.value.diagnostic.to_json())
    with pytest.raises(HeddleError) as refused:
        refresh_plan(place / "house", [place / "w.sql"], place / "streams.yaml", algorithm="shared")
    told += "".join(traceback.format_exception(refused.value)) + caplog.text
    files = [str(place / "w.sql"), "--streams", str(place / "streams.yaml")]
    house = ["--warehouse", str(place / "house")]
    for arguments in (
        ["run", *files, *house, "--from", "2013-01-01", "--to", "2013-01-02", "--json"],
        ["validate", *files, "--json"],
        ["plan", *files, "--json", "--rate", "trades=1"],
        ["status", *house, "--json"],
    ):
        done = CliRunner().invoke(app, arguments)
        told += done.output + "".join(traceback.format_exception(done.exception) if done.exception else [])
    assert "HDL-513" in told and PASSWORD not in told


def test_tables_and_sessions_know_no_dsn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stored plan, the statistics and Spark's settings hold, when the lease worked."""
    monkeypatch.delenv("HEDDLE_LEASE_DSN", raising=False)
    house = Warehouse.open(place / "house")
    import psycopg2

    class Connection:
        """A server that grants everything."""

        def cursor(self) -> Connection:
            return self

        def __enter__(self) -> Connection:
            return self

        def __exit__(self, *_: object) -> None: ...

        def execute(self, *_: object) -> None: ...

        def close(self) -> None: ...

    asked = []
    monkeypatch.setattr(psycopg2, "connect", lambda dsn: asked.append(dsn) or Connection())
    monkeypatch.setenv("HEDDLE_LEASE_DSN", DSNS[0])
    outcome = refresh_plan(house.root, [place / "w.sql"], place / "streams.yaml", algorithm="shared", reason="x")
    assert asked and set(asked) == {DSNS[0]} and outcome["version"] == 1
    stored = b"".join(path.read_bytes() for path in house.root.rglob("*") if path.is_file())
    rows = [house.rows(name) for name in ("sharing_plans", "workload_queries", "stream_statistics", "publish_log")]
    assert rows[0] and b"sharing_plans" in stored
    for told in (json.dumps(outcome), repr(rows), json.dumps(spark_settings()), stored.decode("latin-1")):
        assert PASSWORD not in told
