"""A server of MariaDB or MySQL for tests, if this machine has one: started in a folder of its own, on loopback."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SERVER = "HEDDLE_TEST_MYSQLD"
"""The variable with the server's executable, if it is not on the PATH."""

DRIVERS = "HEDDLE_TEST_JDBC_DRIVERS"
"""The variable with the folder of JDBC drivers, if Maven's repository does not have them."""

PASSWORD = "a-long-secret-of-the-shop"
JARS = {"mysql": "mysql-connector-j-*.jar", "mariadb": "mariadb-java-client-*.jar"}


@dataclass(frozen=True)
class MysqlServer:
    """A running server, whose database ``shop`` its user ``reader`` may read. Its clock is two hours before UTC's."""

    port: int
    client: tuple[str, ...]

    def url(self, kind: str, database: str = "shop", user: str = "reader") -> str:
        return f"{kind}://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, statements: str) -> str:
        """What the client prints of statements, run by root with UTC for clock."""
        text = f"SET time_zone = '+00:00'; SET sql_mode = ''; {statements}"
        done = subprocess.run([*self.client, "shop"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, *expressions: str, more: str) -> list[list[Any]]:
        """The rows of a query, whose values are texts or None."""
        texts = ", ".join(f"CAST({expression} AS CHAR)" for expression in expressions)
        return [json.loads(line) for line in self.run(f"SELECT JSON_ARRAY({texts}) FROM {more}").splitlines()]


def executable() -> Path | None:
    """The server's executable; None: there is none."""
    named = os.environ.get(SERVER) or shutil.which("mariadbd") or shutil.which("mysqld")
    return None if named is None else Path(named)


def jar(kind: str) -> Path | None:
    """The newest jar of a JDBC driver; None: there is none."""
    folder = Path(os.environ.get(DRIVERS) or Path.home() / ".m2" / "repository")
    return max(folder.rglob(JARS[kind]), default=None, key=lambda path: path.name)


def without() -> str | None:
    """What is missing for these tests, in words; None: nothing."""
    if executable() is None:
        return f"no mariadbd or mysqld on the PATH; {SERVER} names one"
    missing = [name for kind, name in JARS.items() if jar(kind) is None]
    return f"no {' and no '.join(missing)}; {DRIVERS} names their folder" if missing else None


def configuration(folder: Path, kind: str) -> Path:
    """A folder for SPARK_CONF_DIR with a JDBC driver."""
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(f"spark.jars {jar(kind)}\n")
    return folder


@contextmanager
def mysql_server() -> Iterator[MysqlServer]:
    """A server with the database ``shop``. Skips the test if there is none."""
    if (missing := without()) is not None:
        pytest.skip(missing)
    program = executable()
    assert program is not None
    # sockets have short names
    folder = Path(tempfile.mkdtemp(prefix="mysql"))
    process: subprocess.Popen[bytes] | None = None
    try:
        _prepare(program, folder / "data")
        server, process = _start(program, folder)
        server.run(
            f"CREATE USER 'reader'@'%' IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON shop.* TO 'reader'@'%'; "
            f"CREATE USER 'stranger'@'%' IDENTIFIED BY '{PASSWORD}'"
        )
        yield server
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)
        shutil.rmtree(folder)


def _prepare(program: Path, data: Path) -> None:
    base, user = program.parent.parent, ["--user=root"] if os.getuid() == 0 else []
    if program.name == "mariadbd":
        install = next(path for path in (base / "bin" / "mariadb-install-db", base / "scripts" / "mariadb-install-db"))
        more = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        command = [str(install), "--no-defaults", f"--basedir={base}", f"--datadir={data}", *more, *user]
    else:
        command = [str(program), "--no-defaults", "--initialize-insecure", f"--datadir={data}", *user]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _start(program: Path, folder: Path) -> tuple[MysqlServer, subprocess.Popen[bytes]]:
    base, own = program.parent.parent, folder / "s.sock"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(str(program), "--no-defaults", f"--basedir={base}", f"--datadir={folder / 'data'}", f"--socket={own}"),
        *("--bind-address=127.0.0.1", f"--port={port}", "--default-time-zone=+02:00", f"--pid-file={folder / 'pid'}"),
        *(["--user=root"] if os.getuid() == 0 else []),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    names = ("mariadb", "mysql")
    places = [base / "bin" / name for name in names]
    client = next((str(path) for path in places if path.is_file()), None) or next(
        filter(None, map(shutil.which, names))
    )
    arguments = ("--no-defaults", "-uroot", f"--socket={own}", "--default-character-set=utf8mb4", "--batch", "--raw")
    server = MysqlServer(port, (client, *arguments, "--skip-column-names", "--skip-password"))
    deadline = time.monotonic() + 60
    while True:
        made = subprocess.run(
            [*server.client, "-e", "CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4"],
            capture_output=True,
            check=False,
        )
        if made.returncode == 0:
            return server, process
        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.2)
