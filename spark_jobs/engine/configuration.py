"""The settings of every Spark application of Heddle, and the class archive of its JVM."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import IS_CHECKOUT, PROJECT, check_installed
from spark_jobs.store.settings import DRIVER_MEMORY, EVENTS, Settings
from spark_jobs.store.settings import settings as heddle_settings

LOGGING = "spark_jobs/log4j2.properties"

KEPT_DAYS = 7
"""Days for which the event log of an application stays in the default folder."""

JOINED = {
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.sql.extensions": ",",
}
"""Settings of which a user's value and ours both hold, by what separates the parts of a value."""

AT_START = ("spark.driver.memory", "spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
"""Settings that a JVM has when it starts, or not at all."""

REQUIRED = ("spark.sql.session.timeZone",)
"""Settings that answers depend on: a user's value does not replace ours."""

LEAST_JAVA = 17

PATIENCE = 10.0
"""Seconds in which a master or a server has to answer."""

PYTHON_MEMORY = 512 << 20
"""Bytes of a Python worker in addition to the data of its task: Python, Arrow and compiled kernels."""


def spark_settings(
    quick: bool = True, is_local: bool = True, user_values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Settings of every Heddle application, also for ``spark-submit --conf``.

    quick
        Whether the JVM has its quick compiler only and loads classes from the archive, for a local driver that lives
        for seconds. It halves what a short run costs, but makes long plain Spark jobs up to twice as dear.
    is_local
        Whether Spark runs on this machine only. Otherwise the JVM's options and the event log are the cluster's, and
        the memory of Python workers is added to that of executors.
    user_values
        What the user has set; default: :func:`user_settings`. It holds, but for :data:`REQUIRED`; of :data:`JOINED`
        ours is appended.

    Raises HDL-520 without Delta's jar, unless the user's settings name it.
    """
    configured = heddle_settings()
    user_values = user_settings() if user_values is None else user_values
    needed = delta_jars(configured, user_values)
    ours = {
        "spark.driver.extraClassPath": os.pathsep.join(needed),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.commitInfo.userMetadata": "heddle",
        "spark.python.daemon.module": "spark_jobs.pipeline.run.workers",
        # a task of Python waits 46 ms for small answers over TCP
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": configured.driver_memory,
    }
    if configured.spark_code == "archive" and not is_local:
        # forked before a worker knows of the archive
        del ours["spark.python.daemon.module"]
    if is_local:
        ours |= _history(configured)
        ours["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={PROJECT / LOGGING}"
        if quick:
            paths = _joined("spark.driver.extraClassPath", ours, user_values).split(os.pathsep)
            ours["spark.driver.extraJavaOptions"] += f" {_quick_options(archive_of(paths))}"
    else:
        # on this machine the driver's class path has them
        ours["spark.jars"] = ",".join(needed)
        ours["spark.executor.memoryOverhead"] = _overhead(configured, user_values)
    # a setting of Heddle's own is not replaced by a general one of Spark's
    explicit_keys = () if configured.driver_memory == DRIVER_MEMORY else ("spark.driver.memory",)
    own_settings = {
        key: value for key, value in ours.items() if key in (*REQUIRED, *explicit_keys) or key not in user_values
    }
    settings = own_settings | {key: _joined(key, ours, user_values) for key in JOINED if key in ours}
    return {key: value for key, value in settings.items() if value or key not in JOINED}


def _joined(key: str, ours: Mapping[str, str], user_values: Mapping[str, str]) -> str:
    """The user's value, and after it ours, unless it is in there."""
    separator, value = JOINED[key], user_values.get(key, "").strip()
    known = value.split(separator)
    more = [part for part in ours[key].split(separator) if part and part not in known]
    return separator.join([value, *more] if value else more)


def user_settings() -> dict[str, str]:
    """Settings of the user for Spark on this machine.

    They come from ``spark-defaults.conf`` of ``SPARK_CONF_DIR`` or ``SPARK_HOME``. ``--conf`` and ``--jars`` of
    ``PYSPARK_SUBMIT_ARGS`` override it.
    """
    folder = os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf"
    properties: dict[str, str] = {}
    try:
        text = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        # as in a properties file of Java: the key ends at a blank, `=` or `:`
        matched = re.fullmatch(r"\s*([^\s#!=:][^\s=:]*)\s*[=:\s]\s*(.*?)\s*", line)
        if matched is not None:
            properties[matched[1]] = matched[2]
    words = iter(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    for word in words:
        option, is_joined, value = word.partition("=")
        if option in ("--conf", "-c", "--jars"):
            value = value if is_joined else next(words, "")
            key, _, text = ("spark.jars", "", value) if option == "--jars" else value.partition("=")
            properties[key] = text
    return properties


def is_here(master: str) -> bool:
    """Return whether a master runs its tasks in processes of this driver."""
    return master == "local" or master.startswith("local[")


def spark_home() -> Path:
    """The folder of Spark's distribution."""
    configured, spec = os.environ.get("SPARK_HOME"), find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(configured) if configured else Path(spec.origin).parent


def delta_jars(configured: Settings, user_values: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Delta's jars, which Spark's distribution does not have; none if only the user's settings name Delta, as those of
    a driver do that a cluster starts. Raises HDL-520 without them.
    """
    jars = sorted(str(path) for path in configured.jars.glob("*.jar"))
    needed = [jar for jar in jars if any(name in jar for name in ("io.delta_", "unitycatalog", "jts"))]
    if any("delta-spark" in user_values.get(key, "") for key in ("spark.jars", "spark.jars.packages")):
        return needed
    if not any("delta-spark" in jar for jar in needed):
        hint = "run `make setup`" if IS_CHECKOUT else "run `heddle jars --fetch`"
        raise HeddleError("HDL-520", f"Delta's jar is not in {configured.jars}", f"{hint}, or set HEDDLE_JARS")
    return needed


def _overhead(configured: Settings, user_values: Mapping[str, str]) -> str:
    """The memory of an executor outside of its JVM, which a cluster manager reserves: what Spark itself reserves, and
    for each core what a Python worker takes."""
    heap = _bytes(user_values.get("spark.executor.memory", "1g"))
    cores = int(user_values.get("spark.executor.cores", "1"))
    size = max(384 << 20, heap // 10) + cores * (configured.task_memory.bytes + PYTHON_MEMORY)
    return f"{-(-size // (1 << 20))}m"


def _bytes(text: str) -> int:
    """A size as Spark writes it; without a unit it is in MiB."""
    matched = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    return int(matched[1]) << {"k": 10, "m": 20, "": 20, "g": 30, "t": 40}[matched[2]] if matched else 1 << 30


# -------------------------------------------------------------------------------------------------- event log
def _history(configured: Settings) -> dict[str, str]:
    """Settings of Spark's event log; it is off if there is no folder for it."""
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


# ---------------------------------------------------------------------------------------------- class archive
def archive_of(class_path: Sequence[str]) -> Path:
    """Path of the archive of the classes that a JVM loads with these paths before Spark's own.

    An archive is valid for one class path, with the files as they were, and one Java. A JVM with a wrong archive
    starts twice as slowly and logs nothing. So the name of the file depends on all of these.
    """
    home = spark_home()
    of_java = Path(_java() or "java").resolve().parent.parent / "release"
    known = [of_java.read_text() if of_java.is_file() else str(of_java), str(home)]
    known += [os.environ.get(name, "") for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    for jar in (*map(Path, class_path), *sorted((home / "jars").glob("*.jar"))):
        try:
            status = jar.stat()
        except OSError:
            continue
        known.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
    name = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    return heddle_settings().jars.parent.parent / f"spark-{name}.jsa"


def _quick_options(archive: Path) -> str:
    options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Xlog:disable"
    return f"{options} -XX:SharedArchiveFile={archive}" if archive.exists() else options


def is_archived() -> bool:
    """Return whether the JVM of a local driver loads its classes from an archive."""
    try:
        return "-XX:SharedArchiveFile=" in spark_settings()["spark.driver.extraJavaOptions"]
    except HeddleError:  # without Delta's jar it does not start
        return False


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def has_java() -> bool:
    """Return whether there is a Java to start a JVM with."""
    java = _java()
    return java is not None and Path(java).exists()


def check_spark() -> None:
    """Raise HDL-904 without pyspark, HDL-535 without a Java to start it with."""
    check_installed("pyspark")
    if not has_java():
        hint = "install Java 17, set JAVA_HOME, or compute without it: `--engine local`"
        raise HeddleError("HDL-535", "there is no Java to start Spark with", hint)


def check_java() -> None:
    """Raise HDL-536 if the Java on this machine is known to be too old for Spark."""
    release = Path(_java() or "java").resolve().parent.parent / "release"
    if not release.is_file():
        return
    matched = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(errors="replace"), re.MULTILINE)
    if matched is not None and int(matched[1]) < LEAST_JAVA:
        message = f"{release.parent} is Java {matched[1]}, Spark needs {LEAST_JAVA} or later"
        raise HeddleError("HDL-536", message, f"set JAVA_HOME to a Java {LEAST_JAVA}")


def check_master(url: str) -> None:
    """Raise HDL-537 if no master of a standalone cluster (``spark://host:port,host:port``) listens.

    Spark itself tries for a minute, and logs nothing.
    """
    if not url.startswith("spark://"):
        return
    problems = []
    for place in url.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
            return
        except (OSError, OverflowError, ValueError) as error:
            problems.append(f"{place[:128]}: {error}")
    hint = "HEDDLE_SPARK_MASTER is a URL as spark://host:7077; is the master up?"
    raise HeddleError("HDL-537", f"no Spark master answers ({'; '.join(problems)})", hint)
