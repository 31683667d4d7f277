"""The one Spark session of a job, and the CPU time that it uses.

Set-up, once (``python -m spark_jobs.engine.session --fetch-jars``): Delta's JVM jar comes with Spark's own package
mechanism into the project cache, and the classes that a job loads are archived for the JVM (application class-data
sharing), which halves the CPU time that a cold session takes. Jobs afterwards need no network.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from optimizer.errors.crashes import tell_crash
from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import keep_secret, redacted
from spark_jobs.settings import EVENTS, PROJECT, Settings
from spark_jobs.settings import settings as heddle_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

LOGGING = "spark_jobs/log4j2.properties"

JVM_HINT = "Java 17 is needed (`java -version`), and HEDDLE_DRIVER_MEMORY of memory"

KEPT_DAYS = 7
"""How long the event log of an application is kept in the default folder."""

WORKERS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_TRIM_THRESHOLD_": "1000000000",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
}
"""Environment of the Python workers: large arrays are reused, where giving them back to the system and faulting their
pages in again took a third of what final aggregation costs."""


def spark_settings(quick: bool = True, is_local: bool = True) -> dict[str, str]:
    """Settings of every Heddle session, also for ``spark-submit --conf``.

    ``quick``: the JVM's quick compiler only, which halves what a short run costs but makes long plain Spark jobs up to
    twice as dear; measurements of such jobs must not have it. ``is_local``: Spark runs on this machine alone; else the
    cluster's own settings say where it writes down what it did. Raises HDL-520 without Delta's jar.
    """
    configured = heddle_settings()
    jars = sorted(str(path) for path in configured.jars.glob("*.jar"))
    # of the resolved set only Delta itself is not already in Spark's own distribution
    needed = [jar for jar in jars if any(name in jar for name in ("io.delta_", "unitycatalog", "jts"))]
    if not any("delta-spark" in jar for jar in needed):
        raise HeddleError("HDL-520", f"Delta's jar is not in {configured.jars}", "run `make setup`, or set HEDDLE_JARS")
    return {
        "spark.jars": ",".join(needed),
        # the driver has them on its class path as well: only classes from there can come out of the archive
        "spark.driver.extraClassPath": os.pathsep.join(needed),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.commitInfo.userMetadata": "heddle",
        "spark.python.daemon.module": "spark_jobs.run.workers",
        # a task of Python waits 46 ms for small answers over TCP
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        **(_history(configured) if is_local else {}),
        "spark.driver.extraJavaOptions": _java_options(quick),
        "spark.driver.memory": configured.driver_memory,
    }


def _history(configured: Settings) -> dict[str, str]:
    """Where Spark writes down what it did, if it can."""
    folder = configured.event_log
    if folder is None:
        return {"spark.eventLog.enabled": "false"}
    if "://" not in folder:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            if Path(folder) == configured.home / EVENTS:
                _forget(Path(folder))
        except OSError:
            return {"spark.eventLog.enabled": "false"}
        folder = Path(folder).absolute().as_uri()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder,
        "spark.eventLog.compress": "true",
        "spark.eventLog.rolling.enabled": "false",
    }


def _forget(folder: Path) -> None:
    """Remove what Spark wrote of applications that ended long ago."""
    since = time.time() - KEPT_DAYS * 86_400
    for file in folder.iterdir():
        if file.is_file() and file.stat().st_mtime < since:
            file.unlink(missing_ok=True)


def _archive() -> Path:
    return heddle_settings().jars.parent.parent / "spark.jsa"


def _fresh_archive() -> Path:
    return _archive().with_suffix(".new")


def _java_options(quick: bool) -> str:
    options = f"-XX:+UseSerialGC -Xshare:auto -Dlog4j2.configurationFile={PROJECT / LOGGING}"
    if quick:
        options += " -XX:TieredStopAtLevel=1"
    return f"{options} -Xlog:disable -XX:SharedArchiveFile={_archive()}" if _archive().exists() else options


def start_session(
    name: str, master: str | None = None, quick: bool = True, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, of :func:`spark_settings` and ``settings`` over them.

    ``master``: ``HEDDLE_SPARK_MASTER``, or ``local[*]``, unless spark-submit says. What the JVM prints while it starts
    is shown only if it does not. If the process crashes later, that is told in a line; Spark itself logs nothing unless
    ``HEDDLE_DEBUG`` is set. Without ``master``, ``HEDDLE_SPARK_REMOTE`` has a server of Spark Connect compute; of
    ``settings`` it is told nothing. Raises HDL-529 if it cannot be reached.
    """
    remote = heddle_settings().spark_remote
    if master is None and remote is not None:
        from spark_jobs.engine.connect import remote_session

        sys.excepthook = tell_crash
        return remote_session(remote, name, PROJECT)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # workers import optimizer and spark_jobs from here (on one machine, or from a shared folder)
    paths = [str(PROJECT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    builder = SparkSession.builder.appName(name)
    chosen = master or heddle_settings().spark_master
    if chosen or "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(chosen or "local[*]")
    # who submits to Spark says that of its master
    is_local = "PYSPARK_GATEWAY_PORT" not in os.environ and (chosen or "local").startswith("local")
    for key, value in (spark_settings(quick, is_local) | dict(settings or {})).items():
        builder = builder.config(key, value)
    for key, value in (WORKERS | {"PYTHONPATH": os.environ["PYTHONPATH"]}).items():
        builder = builder.config(f"spark.executorEnv.{key}", value)
    if (chosen or "local[*]").startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1")
    with _quiet() as said, _own_interruption():
        try:
            session = builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise HeddleError("HDL-536", f"Spark's JVM did not start: {said()}", JVM_HINT) from error
    # what fails is told by Heddle, in a line: with it comes all that Spark says of it
    is_debugging = heddle_settings().debug
    session.sparkContext.setLogLevel("ERROR" if is_debugging else "OFF")
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not is_debugging
    keep_secret(dict(session.sparkContext.getConf().getAll()))
    sys.excepthook = tell_crash
    return session


@contextmanager
def _own_interruption() -> Iterator[None]:
    """Keep what Ctrl-C does: Spark would put a handler of its own in its place."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not None and current_thread() is main_thread():
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet() -> Iterator[Callable[[], str]]:
    """Keep what is written to standard error, by this process and by those it starts now; show it on failure, but for
    an expected one. Yields what returns its last line."""

    def last_line() -> str:
        kept.seek(0)
        lines = kept.read().decode(errors="replace").strip().splitlines()
        return printable(redacted(lines[-1]), 300) if lines else "it said nothing"

    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield last_line
        except HeddleError:
            raise
        except BaseException:
            kept.seek(0)
            os.write(before, kept.read())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)


class _Used(NamedTuple):
    """CPU seconds that one process used, its ``own`` and those of its ended children that it ``waited`` for, and its
    ``parent``."""

    own: float
    waited: float
    parent: tuple[int, float] | None


class CpuSeconds:
    """CPU seconds of this process, the JVM and the Python workers from here on.

    Spark ends Python workers that were idle for a minute, and nobody waits for those: a difference of two sums over the
    processes that live would lose what they had used before. So each process is compared with itself. What is lost is
    what a worker used from here on before it was idle and ended.
    """

    def __init__(self) -> None:
        self._before = _processes()

    def spent(self) -> float:
        """CPU seconds so far."""
        now = _processes()
        earlier = dict.fromkeys(now, 0.0)
        for process in self._before.keys() - now.keys():
            # of one that ended whoever waited for it has all that it ever used
            heir = self._before[process].parent
            while heir in self._before and heir not in now:
                heir = self._before[heir].parent
            if heir in earlier:
                earlier[heir] += self._before[process].own + self._before[process].waited
        total = 0.0
        for process, used in now.items():
            own, waited, _ = self._before.get(process, _Used(0.0, 0.0, None))
            total += used.own - own + max(0.0, used.waited - waited - earlier[process])
        return total


def _processes() -> dict[tuple[int, float], _Used]:
    """This process, the JVM and the Python workers, by number and start."""
    here, everyone = psutil.Process(), list[psutil.Process]()
    # what ends meanwhile, as the JVM of a job that is killed, is not counted
    with suppress(psutil.NoSuchProcess):
        parent = here.parent()
        # under spark-submit the JVM is the parent of this process, in local mode its child
        top = parent if parent is not None and "java" in parent.name() else here
        everyone = [top, *top.children(recursive=True)]
    found: dict[tuple[int, float], _Used] = {}
    by_number: dict[int, tuple[int, float]] = {}
    for process in everyone or [here]:  # parents first
        try:
            times, key = process.cpu_times(), (process.pid, process.create_time())
            above = by_number.get(process.ppid())
        except psutil.NoSuchProcess:
            continue
        by_number[process.pid] = key
        found[key] = _Used(times.user + times.system, times.children_user + times.children_system, above)
    return found


def fetch_jars() -> Path:
    """Resolve Delta's jar through Spark into the project cache and archive classes; returns the jars' folder.

    Does nothing that is done already.
    """
    folder = heddle_settings().jars
    if not any(folder.glob("*delta-spark*.jar")):
        fetch_package(DELTA, folder.parent)
    if not _archive().exists():
        _in_new_process(_archive_classes)
        _fresh_archive().rename(_archive())
    return folder


def fetch_package(package: str, folder: Path) -> None:
    """Resolve a Maven package by Spark's own mechanism into ``folder/jars``."""
    _in_new_process(_resolve, package, str(folder))


def _in_new_process(step: Callable[..., None], *arguments: str) -> None:
    # one JVM a process: the archive is written when a JVM ends
    command = f"from spark_jobs.engine.session import {step.__name__} as step; step(*{list(arguments)!r})"
    done = subprocess.run([sys.executable, "-c", command], cwd=PROJECT, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise SystemExit(f"{step.__name__.strip('_')} failed: see above")


def _resolve(package: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.jars.packages", package).config("spark.jars.ivy", folder).getOrCreate().stop()


def _archive_classes() -> None:
    """Do once what every job does (Python and Arrow tasks, Delta) in a JVM that archives what it loaded."""
    options = f"{_java_options(quick=True)} -Xlog:disable -XX:ArchiveClassesAtExit={_fresh_archive()}"
    session = start_session("archive", "local[1]", settings={"spark.driver.extraJavaOptions": options})
    with tempfile.TemporaryDirectory() as place:
        session.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
        frame = session.range(1000).selectExpr("id", "cast(id % 3 AS string) AS day")
        frame = frame.mapInArrow(lambda batches: batches, frame.schema).repartition(2, "day")
        for version in (1, 2):
            writer = frame.write.format("delta").mode("overwrite").partitionBy("day")
            if version == 2:
                writer = writer.option("replaceWhere", "day >= '0' AND day <= '2'")
            writer.option("txnAppId", "archive").option("txnVersion", version).save(place)
        read = session.read.format("delta").option("versionAsOf", 1).load(place)
        read.where("id > 3").groupBy("day").count().collect()
    machine: Any = session.sparkContext._gateway
    session.stop()
    # the JVM ends when its standard input does, and writes the archive before it is gone
    machine.proc.stdin.close()
    machine.proc.wait(timeout=300)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Spark session of Heddle")
    parser.add_argument("--fetch-jars", action="store_true", required=True, help="get Delta's JVM jar into the cache")
    parser.parse_args()
    print(fetch_jars())
