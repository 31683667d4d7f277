"""The embedded servers: what is started, what is recorded, and that nothing else is ever stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg2
import pytest

from heddle.local import servers
from heddle.local.servers import (
    LOOPBACK,
    Account,
    Place,
    Server,
    account_for,
    airflow_environment,
    down,
    free_port,
    namespace_prefix,
    server_status,
    start_postgres,
    wait_healthy,
)
from optimizer.errors.diagnostics import HeddleError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def sleeper() -> tuple[subprocess.Popen[str], int]:
    """A leader of its own session with a child; returns it and the child's pid."""
    script = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid, flush=True); c.wait()"
    leader = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert leader.stdout is not None
    return leader, int(leader.stdout.readline())


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_down_stops_the_whole_session_and_is_idempotent(place: Place) -> None:
    leader, child = sleeper()
    Server("airflow", leader.pid, psutil.Process(leader.pid).create_time()).save(place)
    messages: list[str] = []
    down(place, messages.append)
    leader.wait(10)
    assert gone(child) and not place.record("airflow").exists()
    down(place, messages.append)
    assert messages == ["airflow: stopped", "nothing runs here"]


def test_down_finds_children_whose_leader_is_gone(place: Place) -> None:
    leader, child = sleeper()
    Server("airflow", leader.pid, psutil.Process(leader.pid).create_time()).save(place)
    leader.kill()
    leader.wait()
    assert not gone(child)
    down(place, lambda line: None)
    assert gone(child)


def test_a_stale_record_never_stops_a_process_that_inherited_the_number(place: Place) -> None:
    leader, child = sleeper()
    try:
        stale = Server("airflow", leader.pid, psutil.Process(leader.pid).create_time() - 1000)
        stale.save(place)
        assert not stale.is_alive() and stale.members() == []
        down(place, lambda line: None)
        assert leader.poll() is None and not gone(child)
        assert not place.record("airflow").exists()
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()


def test_a_broken_record_counts_as_none(place: Place) -> None:
    place.record("airflow").parent.mkdir(parents=True)
    place.record("airflow").write_text('{"name": "air')
    assert Server.load(place, "airflow") is None
    assert server_status(place)["airflow"] == {"running": False, "ports": {}}
    down(place, lambda line: None)


def test_a_taken_port_is_not_given_out() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert free_port(port) != port
    assert free_port(0) > 0


def test_secrets_are_generated_once_and_private(place: Place) -> None:
    first = place.secret("jwt")
    assert len(first) >= 32 and place.secret("jwt") == first and place.secret("api") != first
    assert stat.S_IMODE((place.var / "secrets" / "jwt").stat().st_mode) == 0o600


def test_airflow_listens_on_loopback_only_and_keeps_heddles_settings(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("HEDDLE_WAREHOUSE", "/elsewhere")
    monkeypatch.setenv("HEDDLE_SPARK_MASTER", "spark://127.0.0.1:7077")
    environment = airflow_environment(place, 5433, {"api": 8090, "worker_logs": 1, "trigger_logs": 2})
    assert environment["AIRFLOW__API__HOST"] == LOOPBACK
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == f"http://{LOOPBACK}:8090/execution/"
    assert environment["AIRFLOW__CORE__EXECUTOR"] == "heddle.airflow.attempts.ExplainingExecutor"
    assert f"@{LOOPBACK}:5433/airflow" in environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == "spark://127.0.0.1:7077"
    assert environment["HEDDLE_WAREHOUSE"] == "/elsewhere"


def accounts() -> list[str]:
    return ["as started", "nobody"] if os.geteuid() == 0 else ["as started"]


@pytest.mark.parametrize("account_name", accounts())
def test_postgres_starts_asks_for_the_password_and_stops(place: Place, account_name: str) -> None:
    as_root = os.geteuid() == 0
    prefix = namespace_prefix() if as_root and account_name == "as started" else None
    account = account_for(place, as_root, prefix)
    server = start_postgres(place, account, lambda line: None)
    try:
        assert start_postgres(place, account, lambda line: None) == server
        assert psutil.Process(server.pid).uids().real == (65534 if account.identity else os.getuid())
        arguments = {"host": LOOPBACK, "port": server.ports["sql"], "user": "heddle", "dbname": "airflow"}
        with pytest.raises(psycopg2.OperationalError, match="password"):
            psycopg2.connect(**arguments, password="wrong")
        connection = psycopg2.connect(**arguments, password=place.secret("postgres"))
        connection.close()
        # A crash leaves a pid file behind; the next start must not mind.
        os.kill(server.pid, signal.SIGKILL)
        os.waitpid(server.pid, 0)
        server = start_postgres(place, account, lambda line: None)
        assert server.is_alive()
    finally:
        down(place, lambda line: None)
        if account.identity:
            subprocess.run(["rm", "-rf", (place.postgres / "outside").read_text()], check=True)
    assert gone(server.pid)


# ------------------------------------------------------------------------------- what keeps servers from starting
def test_without_a_free_port_no_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "LOOPBACK", "192.0.2.1")  # an address that no machine has
    with pytest.raises(HeddleError, match="HDL-591"):
        free_port(8080)


def test_without_its_wheel_postgres_is_not_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HeddleError, match="HDL-592"):
        account_for(place, as_root=False, prefix=None)


def test_root_without_another_user_cannot_run_postgres(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_user(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(servers.pwd, "getpwnam", no_user)
    with pytest.raises(HeddleError, match="HDL-593"):
        account_for(place, as_root=True, prefix=None)


def test_a_cluster_that_cannot_be_made_is_told_with_its_reason(place: Place) -> None:
    initdb = place.postgres / "initdb"
    initdb.parent.mkdir(parents=True)
    initdb.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    initdb.chmod(0o755)
    with pytest.raises(HeddleError, match=r"HDL-594(?s:.*)no room"):
        start_postgres(place, Account(initdb.parent, place.postgres / "data"), lambda line: None)


def test_an_airflow_that_ended_is_told_with_its_log(place: Place) -> None:
    leader = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    server = Server("airflow", leader.pid, psutil.Process(leader.pid).create_time(), {"api": free_port()})
    leader.wait()
    place.log("airflow").parent.mkdir(parents=True)
    place.log("airflow").write_text("the reason\n")
    with pytest.raises(HeddleError, match=r"HDL-595(?s:.*)ended(?s:.*)the reason"):
        wait_healthy(place, server, say=lambda line: None)
