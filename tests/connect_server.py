"""A Spark Connect server on loopback, whose workers find nothing of this project."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Its URL, while it is up; what it logs is in a folder. Raises AssertionError if it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    base = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    environment = base | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)}
    log = folder / "log"
    with log.open("w") as sink:
        process = subprocess.Popen([*command, "spark-internal"], cwd=folder, env=environment, stdout=sink, stderr=sink)
    try:
        with log.open() as lines:
            while "Connect server started" not in (line := lines.readline()):
                assert process.poll() is None or line, log.read_text()[-2000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
