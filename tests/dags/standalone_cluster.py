"""A Spark cluster of processes of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def standalone_cluster(place: Path) -> Iterator[str]:
    """A Spark standalone master with two workers on loopback; its URL."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        **{"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
        **{"SPARK_WORKER_DIR": str(place / "work"), "SPARK_LOG_DIR": str(place / "logs")},
    }
    head = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    master = [head[0], f"{head[1]}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [head[0], f"{head[1]}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"]
    log = (place / "cluster.log").open("w")
    running = [
        subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        for command in (master, *[[*worker, "--memory", "1g", url]] * 2)
    ]
    try:
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)
