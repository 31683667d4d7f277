"""The one Spark session of a job, and the CPU time that it uses.

Set-up, once (``heddle jars --fetch``): Delta's JVM jar comes with Spark's own package mechanism into a cache, and the
classes that a job loads are archived for the JVM (application class-data sharing), which halves the CPU time that a
cold session takes. Jobs afterwards need no network.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from optimizer.errors.crashes import tell_crash
from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.installing import PROJECT
from optimizer.errors.redaction import keep_secret, redacted
from spark_jobs.engine.configuration import (
    AT_START,
    archive_of,
    check_java,
    check_master,
    check_spark,
    delta_jars,
    is_here,
    spark_settings,
    user_settings,
)
from spark_jobs.engine.freed_memory import KEEPING
from spark_jobs.engine.shipping import archive
from spark_jobs.store.settings import settings as heddle_settings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

JVM_HINT = "Java 17 is needed (`java -version`), and HEDDLE_DRIVER_MEMORY of memory"


def start_session(
    name: str, master: str | None = None, quick: bool = True, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with SQL: that of :func:`start_context`, or of Spark Connect.

    Without ``master``, ``HEDDLE_SPARK_REMOTE`` has a server of Spark Connect compute, which takes none of ``settings``.
    Raises HDL-529 if it cannot be reached, and as :func:`start_context`.
    """
    remote = heddle_settings().spark_remote
    if master is None and remote is not None:
        from spark_jobs.engine.connect import remote_session

        sys.excepthook = tell_crash
        return remote_session(remote, name, PROJECT)
    return sql_session(start_context(name, master, quick, settings))


def start_context(
    name: str, master: str | None = None, quick: bool = True, settings: Mapping[str, str] | None = None
) -> SparkContext:
    """Start the Spark application of this process, for tasks. :func:`sql_session` adds SQL, which takes a second.

    ``master``: default ``HEDDLE_SPARK_MASTER``, then the master of spark-submit, then ``local[*]``. ``quick``: as
    in :func:`spark_jobs.engine.configuration.spark_settings`, whose settings hold unless ``settings`` has others.
    Output of the JVM during its start is shown only if the start fails. A later crash of the process is reported in
    a line. Spark itself logs nothing unless ``HEDDLE_DEBUG`` is set.

    Raises HDL-520 without Delta's jar, HDL-536 if the JVM does not start, HDL-537 if the master does not answer.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # workers import this code from here (on one machine, or from a shared folder)
    os.environ["PYTHONPATH"] = _python_path()
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or heddle_settings().spark_master
    with _quiet() as last_line, _own_interruption():
        try:
            conf = SparkConf()
            if is_submitted:
                # the JVM runs: it has what was submitted, and takes no more of what it starts with
                SparkContext._ensure_initialized()
                user_properties = dict(SparkConf(_jvm=SparkContext._jvm).getAll())
                chosen = chosen or user_properties.get("spark.master")
            else:
                user_properties = user_settings()
                chosen = chosen or "local[*]"
                check_java()
                check_master(chosen)
            is_local = is_here(chosen or "")
            properties = spark_settings(quick, is_local, user_properties)
            if is_submitted:
                properties = {key: value for key, value in properties.items() if key not in AT_START}
            properties |= {f"spark.executorEnv.{key}": value for key, value in KEEPING.items()}
            code = "folder" if is_local else heddle_settings().spark_code
            if code == "folder":
                properties["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
            if is_local:
                properties["spark.driver.host"] = "127.0.0.1"
            if chosen is not None:
                conf.setMaster(chosen)
            for key, value in (properties | dict(settings or {})).items():
                conf.set(key, value)
            context = SparkContext.getOrCreate(conf.setAppName(name))
            if code == "archive":
                folder = tempfile.mkdtemp()
                weakref.finalize(context, shutil.rmtree, folder, ignore_errors=True)
                context.addPyFile(str(archive(Path(folder), PROJECT)))
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise HeddleError("HDL-536", f"Spark's JVM did not start: {last_line()}", JVM_HINT) from error
        except Exception as error:
            raised = getattr(error, "java_exception", None)
            if raised is None:
                raise
            reason = printable(redacted(str(raised)), 300)
            hint = "check the master, and the settings of memory and cores"
            raise HeddleError("HDL-537", f"Spark did not start with the master {chosen}: {reason}", hint) from error
    # errors are reported by Heddle, in a line; with debugging Spark logs all that it knows of them
    context.setLogLevel("ERROR" if heddle_settings().debug else "OFF")
    keep_secret(dict(context.getConf().getAll()))
    sys.excepthook = tell_crash
    return context


def sql_session(context: SparkContext) -> SparkSession:
    """The session of an application, for what only Spark can read or compute."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not heddle_settings().debug
    return SparkSession.builder.getOrCreate()


@contextmanager
def _own_interruption() -> Iterator[None]:
    """Keep the handler of Ctrl-C: Spark would replace it with its own."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not None and current_thread() is main_thread():
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet() -> Iterator[Callable[[], str]]:
    """Keep what is written to standard error, by this process and by those it starts now; show it on failure, but for
    an expected one. Yields what returns its last line."""

    def last_line() -> str:
        captured.seek(0)
        lines = captured.read().decode(errors="replace").strip().splitlines()
        return printable(redacted(lines[-1]), 300) if lines else "it said nothing"

    with tempfile.TemporaryFile() as captured:
        before = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            yield last_line
        except HeddleError:
            raise
        except BaseException:
            captured.seek(0)
            os.write(before, captured.read())
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


def _has_children() -> bool:
    """Return whether a child of this process lives, or ended and was not waited for."""
    if not hasattr(os, "waitid"):  # macOS
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _processes() -> dict[tuple[int, float], _Used]:
    """This process, the JVM and the Python workers, by number and start."""
    this_process, everyone = psutil.Process(), list[psutil.Process]()
    if not (_has_children() or "PYSPARK_GATEWAY_PORT" in os.environ):
        # listing the children of a process reads all processes of the machine, which takes a sixth of a small run
        times = os.times()
        own, waited = times.user + times.system, times.children_user + times.children_system
        return {(this_process.pid, this_process.create_time()): _Used(own, waited, None)}
    # what ends meanwhile, as the JVM of a job that is killed, is not counted
    with suppress(psutil.NoSuchProcess):
        parent = this_process.parent()
        # under spark-submit the JVM is the parent of this process, in local mode its child
        top = parent if parent is not None and "java" in parent.name() else this_process
        everyone = [top, *top.children(recursive=True)]
    usage: dict[tuple[int, float], _Used] = {}
    by_number: dict[int, tuple[int, float]] = {}
    for process in everyone or [this_process]:  # parents first
        try:
            times, key = process.cpu_times(), (process.pid, process.create_time())
            above = by_number.get(process.ppid())
        except psutil.NoSuchProcess:
            continue
        by_number[process.pid] = key
        usage[key] = _Used(times.user + times.system, times.children_user + times.children_system, above)
    return usage


def fetch_jars() -> Path:
    """Fetch Delta's jars into the folder of ``HEDDLE_JARS`` and archive classes; returns the folder.

    Does nothing that is done already. Raises HDL-904 without pyspark, HDL-535 without Java, HDL-580 if it fails.
    """
    configured = heddle_settings()
    check_spark()
    if not any(configured.jars.glob("*delta-spark*.jar")):
        fetch_package(DELTA, configured.jars)
    classes = archive_of(delta_jars(configured))
    if not classes.exists():
        draft = classes.with_suffix(".new")
        _in_new_process(_archive_classes, str(draft))
        draft.rename(classes)
        for former in set(classes.parent.glob("spark*.jsa")) - {classes}:
            former.unlink()
    return configured.jars


def fetch_package(package: str, folder: Path) -> None:
    """Resolve a Maven package by Spark's own mechanism, and put its jars into a folder. Raises HDL-580."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
        _in_new_process(_resolve, package, draft)
        for jar in (Path(draft) / "jars").iterdir():
            jar.replace(folder / jar.name)


def _in_new_process(step: Callable[..., None], *arguments: str) -> None:
    # one JVM a process: the archive is written when a JVM ends
    command = f"from spark_jobs.engine.session import {step.__name__} as step; step(*{list(arguments)!r})"
    environment = os.environ | {"PYTHONPATH": _python_path()}
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True)
    if done.returncode:
        if heddle_settings().debug:
            print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        lines = [line for line in done.stderr.splitlines() if re.match(r"\S*(Error|Exception)\b", line)]
        what = printable(redacted(lines[-1] if lines else f"exit code {done.returncode}"), 300)
        hint = "HEDDLE_DEBUG=1 shows Spark's output; is Maven Central reached from here (spark.jars.ivySettings)?"
        raise HeddleError("HDL-580", f"Spark did not fetch the jars: {what}", hint)


def _python_path() -> str:
    """The search path of processes that import this code."""
    paths = [str(PROJECT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


def _resolve(package: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.jars.packages", package).config("spark.jars.ivy", folder).getOrCreate().stop()


def _archive_classes(draft: str) -> None:
    """Do once what every job does (Python and Arrow tasks, Delta) in a JVM that archives what it loaded.

    A user's own class path has no archive.
    """
    properties = spark_settings(user_values={})
    options = f"{properties['spark.driver.extraJavaOptions']} -XX:ArchiveClassesAtExit={draft}"
    session = start_session("archive", "local[1]", settings=properties | {"spark.driver.extraJavaOptions": options})
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
