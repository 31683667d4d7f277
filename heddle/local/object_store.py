"""An S3 server on loopback (s3proxy), for the demo and the tests: a folder of this machine behind Amazon's protocol.

``make setup`` fetches it once. It is a separate process, keeps its objects over restarts, and guarantees what
commits rely on: with a conditional PUT only one writer creates an object.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as fs

from heddle.local.servers import LOOPBACK, free_port
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.engine.session import fetch_package
from spark_jobs.store.settings import settings

PACKAGE = "org.gaul:s3proxy:4.1.0"

REGION = "us-east-1"

PATIENCE_SECONDS = 60.0

_LOGGING = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %-5level %logger{20} %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="out"/></root></configuration>
"""


def jars_folder() -> Path:
    """Folder of its jars: apart from Delta's, of which Spark loads all."""
    return settings().jars.parent.parent / "s3proxy" / "jars"


def fetch() -> Path:
    """Fetch the server's jars, unless they are there; their folder."""
    folder = jars_folder()
    if not any(folder.glob("*s3proxy*.jar")):
        fetch_package(PACKAGE, folder)
    return folder


@dataclass
class ObjectStore:
    """A server over a folder. ``folder``: its objects, a folder a bucket. Its settings and its log lie next to it."""

    folder: Path
    port: int
    key: str
    secret: str
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def over(cls, folder: Path, port: int = 0) -> ObjectStore:
        """A server that is not started yet, with its port and new credentials."""
        return cls(folder, free_port(port), f"K{secrets.token_hex(8)}", secrets.token_urlsafe(24))

    @property
    def url(self) -> str:
        """Address at which it listens."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment that a process needs to reach it."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        """Start it, and wait until it answers. Raises HDL-597 if it does not, HDL-598 without its jars."""
        jars = jars_folder()
        if not any(jars.glob("*s3proxy*.jar")):
            raise HeddleError("HDL-598", f"the embedded S3 server is not in {jars}", "run `make setup`")
        self.folder.mkdir(parents=True, exist_ok=True)
        properties, logging = self._beside("properties"), self._beside("logback.xml")
        properties.touch(mode=0o600)
        properties.write_text(_properties(self))
        logging.write_text(_LOGGING)
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlogback.configurationFile={logging}"]
        command = ["java", *options, "-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(properties)]
        with self._beside("log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise HeddleError("HDL-597", "the embedded S3 server does not answer", f"see {self._beside('log')}")
            time.sleep(0.1)

    def make_bucket(self, name: str) -> None:
        """Make a bucket, unless it is there."""
        options = {"access_key": self.key, "secret_key": self.secret, "region": REGION}
        fs.S3FileSystem(endpoint_override=self.url, allow_bucket_creation=True, **options).create_dir(name)

    def stop(self) -> None:
        """End it at once; its objects stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _beside(self, suffix: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{suffix}")

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


def _properties(store: ObjectStore) -> str:
    properties: Mapping[str, object] = {
        "s3proxy.endpoint": store.url,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": store.key,
        "s3proxy.credential": store.secret,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": store.folder,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the embedded S3 server")
    parser.add_argument("--fetch-jars", action="store_true", required=True, help="get the server into the cache")
    parser.parse_args()
    print(fetch())
