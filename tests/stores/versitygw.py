"""A second S3 server, of other hands than the embedded one: versitygw over a folder, which `make versitygw` builds."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from heddle.local.object_store import PATIENCE_SECONDS, REGION, ObjectStore
from heddle.local.servers import LOOPBACK
from spark_jobs.store.settings import PROJECT

BINARY = PROJECT / ".cache" / "versitygw" / "versitygw"


class Versitygw(ObjectStore):
    """As the embedded server, by another implementation."""

    def start(self) -> None:
        """Start it, and wait until it answers. Raises AssertionError if it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"ROOT_ACCESS_KEY": self.key, "ROOT_SECRET_KEY": self.secret}
        command = [str(BINARY), "--port", f"{LOOPBACK}:{self.port}", "--region", REGION, "posix", str(self.folder)]
        log = Path(f"{self.folder}.log")
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
            )
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert self.process.poll() is None and time.monotonic() < give_up, log.read_text()[-2000:]
            time.sleep(0.05)
