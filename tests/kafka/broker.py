"""A Kafka broker on loopback (one node, KRaft), of its Maven jars, for the tests of landing.

python -m tests.kafka.broker --fetch-jars    # make test-slow does it
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path

from heddle.local.servers import LOOPBACK, free_port
from spark_jobs.engine.session import fetch_package
from spark_jobs.store.settings import settings

PACKAGE = "org.apache.kafka:kafka_2.13:4.4.0"

PATIENCE_SECONDS = 120.0

JVM = ["-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def jars_folder() -> Path:
    """Apart from those that Spark reads Kafka with: a broker has other versions of some."""
    return settings().jars.parent.parent / "kafka-broker" / "jars"


def is_there() -> bool:
    """Whether the broker's jars are fetched."""
    return any(jars_folder().glob("*kafka_2.13*.jar"))


def fetch() -> Path:
    """Fetch the broker's jars, unless they are there; their folder."""
    if not is_there():
        fetch_package(PACKAGE, jars_folder())
    return jars_folder()


def class_path() -> str:
    """The broker's jars, and Scala's library, which Spark has and so does not fetch."""
    import pyspark

    (library,) = (Path(str(pyspark.__file__)).parent / "jars").glob("scala-library-*.jar")
    return f"{jars_folder()}/*:{library}"


@dataclass
class Broker:
    """A broker over a folder, which keeps its topics over restarts."""

    folder: Path
    port: int = field(default_factory=free_port)
    controller: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Format its folder if it is new, start it, and wait until it takes connections."""
        properties = self.folder / "server.properties"
        if not properties.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            properties.write_text(self._properties())
            cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
            self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["java", *JVM, "-cp", class_path(), "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise RuntimeError(f"the broker did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it at once; its topics stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _java(self, *command: str) -> None:
        done = subprocess.run(["java", *JVM, "-cp", class_path(), *command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _answers(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), 1).close()
        except OSError:
            return False
        return True

    def _properties(self) -> str:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.controller}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self.controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "num.partitions": "2",
            "auto.create.topics.enable": "true",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.message.timestamp.type": "LogAppendTime",
            "group.initial.rebalance.delay.ms": "0",
        }
        return "".join(f"{name}={value}\n" for name, value in properties.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="a Kafka broker for tests")
    parser.add_argument("--fetch-jars", action="store_true", required=True, help="get the broker into the cache")
    parser.parse_args()
    print(fetch())
