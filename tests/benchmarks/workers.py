"""Processes that answer statements for the peers, each in an environment of its own.

What an engine needs decides nothing of what Heddle runs with, and the memory of its process is the engine's alone.
``make peers`` lays the environments; where one is missing, :func:`python_of` says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import psutil

ENVIRONMENTS = Path(__file__).resolve().parents[2] / ".venv-peers"

FLINK_PARQUET = "org.apache.flink:flink-sql-parquet:2.3.0"


READ_EVERY = 1.0
"""Seconds between two looks at the processes that live."""


@contextmanager
def read_meanwhile(look: Callable[[], object]) -> Iterator[None]:
    """A look at what changes is taken at once, every :data:`READ_EVERY` seconds, and last at the end."""
    ended = threading.Event()

    def follow() -> None:
        look()
        while not ended.wait(READ_EVERY):
            look()

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()
        look()


def python_of(engine: str) -> Path | None:
    """The Python that has an engine: of its environment; ours for those that Heddle has; None if there is none."""
    if engine in ("duckdb", "polars", "polars_scripts"):
        return Path(sys.executable)
    folder = ENVIRONMENTS / engine
    return folder / "bin" / "python" if (folder / ".packages").exists() else None


def versions() -> dict[str, str]:
    """The versions of what answers: of our own packages, and of the engines that are installed apart."""
    version_by_package = {name: metadata.version(name) for name in ("pyspark", "duckdb", "polars", "pyarrow", "numpy")}
    for engine, package in (("clickhouse", "chdb"), ("datafusion", "datafusion"), ("flink", "apache-flink")):
        if python_of(engine) is not None:
            pinned = Path(__file__).with_name("environments") / f"{engine}.txt"
            version_by_package |= dict(re.findall(rf"^({package})==(\S+)$", pinned.read_text(), re.MULTILINE))
    return version_by_package


def fetch_flink_jars() -> Path:
    """Resolve what Flink reads Parquet with by Spark's own mechanism; the folder of jars."""
    from spark_jobs.engine.session import fetch_package

    folder = ENVIRONMENTS / "flink" / "jars"
    if not any(folder.glob("*parquet*.jar")):
        fetch_package(FLINK_PARQUET, folder)
    return folder


class Worker:
    """A process of an engine (:mod:`tests.benchmarks.engine_worker`) that runs one statement after another."""

    running: ClassVar[set[int]] = set()
    """Process ids of all of them."""

    def __init__(self, engine: str, threads: int) -> None:
        python = python_of(engine)
        if python is None:
            raise RuntimeError(f"{engine} is not installed: make peers")
        self.engine = engine
        self.process = subprocess.Popen(
            [str(python), "-P", str(Path(__file__).with_name("engine_worker.py")), engine, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | (_flink_jars() if engine == "flink" else {}),
        )
        self.running.add(self.process.pid)

    def run(self, statement: str, into: Path | None = None) -> None:
        """Run a statement; its rows are dropped, or become Parquet files in a folder. RuntimeError if it fails."""
        assert self.process.stdin is not None and self.process.stdout is not None
        into_text = None if into is None else str(into)
        print(json.dumps({"statement": statement, "into": into_text}), file=self.process.stdin, flush=True)
        answered = self.process.stdout.readline()
        if not answered:
            raise RuntimeError(f"{self.engine} ended")
        if problem := json.loads(answered):
            causes = re.findall(r"^(?:Caused by: |: )(.*)$", problem, re.MULTILINE)
            raise RuntimeError(causes[-1] if causes else problem)

    def processes(self) -> list[psutil.Process]:
        """Its process and all below it."""
        return tree_of(self.process.pid)

    def cpu_seconds(self) -> float:
        """What they have used so far."""
        return cpu_seconds(self.processes())

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.running.discard(self.process.pid)


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """What processes have used so far: on Linux by their own clocks, which do not count in hundredths of a second."""
    total = 0.0
    for process in processes:
        if sys.platform == "linux":
            with suppress(OSError):
                total += time.clock_gettime((~process.pid << 3) | 2)  # CPUCLOCK_SCHED of another process
            continue
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def tree_of(root: int) -> list[psutil.Process]:
    """A process and all below it; none if it has ended."""
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(root)
        return [top, *top.children(recursive=True)]
    return []


def own_processes() -> list[psutil.Process]:
    """This process and all below it but workers: where Heddle, Spark and its Python workers run."""
    apart = {process.pid for worker in Worker.running for process in tree_of(worker)}
    return [process for process in tree_of(os.getpid()) if process.pid not in apart]


def _flink_jars() -> dict[str, str]:
    """The environment in which Flink reads Parquet; Hadoop's classes are those of Spark."""
    import pyspark

    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    parquet = fetch_flink_jars().glob("*.jar")
    return {
        "HADOOP_CLASSPATH": os.pathsep.join(map(str, hadoop)),
        "FLINK_JARS": ";".join(path.as_uri() for path in parquet),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Environments of the peers")
    parser.add_argument("--fetch-jars", action="store_true", required=True, help="get what Flink reads Parquet with")
    parser.parse_args()
    print(fetch_flink_jars())
