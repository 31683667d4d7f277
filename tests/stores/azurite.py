"""Azure's blobs on loopback: Azurite over a folder, which `make azurite` fetches. It has no hierarchical namespace."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from pathlib import Path

import pyarrow.fs as fs

from heddle.local.object_store import PATIENCE_SECONDS, ObjectStore
from heddle.local.servers import LOOPBACK
from spark_jobs.store.settings import PROJECT

SCRIPT = PROJECT / ".cache" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"

ACCOUNT = "heddletests"


class Azurite(ObjectStore):
    """As the embedded server, by Azure's protocol."""

    @property
    def secret_key(self) -> str:
        """The account's key: bytes in base 64."""
        return base64.b64encode(self.secret.encode()).decode()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach it."""
        return {
            "AZURE_STORAGE_ACCOUNT_KEY": self.secret_key,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.url,
            "AZURE_ALLOW_HTTP": "true",
        }

    def start(self) -> None:
        """Start it, and wait until it answers. Raises AssertionError if it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        address_options = ["--blobHost", LOOPBACK, "--blobPort", str(self.port), "--location", str(self.folder)]
        # clients speak later versions of the protocol than it knows
        command = ["node", str(SCRIPT), *address_options, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        environment = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.secret_key}"}
        log = Path(f"{self.folder}.log")
        with log.open("ab") as written:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT
            )
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert self.process.poll() is None and time.monotonic() < give_up, log.read_text()[-2000:]
            time.sleep(0.05)

    def stop(self) -> None:
        """End it when it has written down what it has: it does so every few seconds, and at its end."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def make_bucket(self, name: str) -> None:
        """Make a container, unless it is there."""
        authorities = {
            "blob_storage_authority": f"{LOOPBACK}:{self.port}",
            "dfs_storage_authority": f"{LOOPBACK}:{self.port}",
        }
        schemes = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
        fs.AzureFileSystem(ACCOUNT, account_key=self.secret_key, **authorities, **schemes).create_dir(name)
