"""Commands of the code of an earlier commit, on a warehouse in the current folder, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

_RUN = """
import json, sys
from tests.in_process import Clock, heddle, without_spark
now, commands = json.loads(sys.argv[1])
with without_spark(Clock(now)):
    for command in commands:
        completed = heddle(*command, "--json")
        print(json.dumps([completed.code, completed.out, completed.err]))
"""


@dataclass(frozen=True)
class EarlierCode:
    """The files of a commit in a folder."""

    folder: Path

    @classmethod
    def of(cls, commit: str) -> EarlierCode:
        """The code of a commit, whose compiled kernels are kept. Skips the test in a checkout without its history."""
        folder = ROOT / ".cache" / "earlier" / commit
        if not folder.exists():
            archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
            if archive.returncode:
                pytest.skip(f"this checkout has no commit {commit}")
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as place:
                unpacked = Path(place) / commit
                unpacked.mkdir()
                subprocess.run(["tar", "x"], cwd=unpacked, input=archive.stdout, check=True)
                # another process may have been first
                with suppress(OSError):
                    unpacked.rename(folder)
        return cls(folder)

    def run(self, now: int, *commands: Sequence[str]) -> list[dict[str, Any]]:
        """Run commands at a moment (microseconds), and return the JSON that each prints."""
        environment = os.environ | {"PYTHONPATH": str(self.folder), "HEDDLE_HOME": str(self.folder)}
        process = subprocess.run(
            [sys.executable, "-c", _RUN, json.dumps([now, commands])],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        replies = []
        for code, out, err in map(json.loads, process.stdout.splitlines()[-len(commands) :]):
            assert code == 0, err
            replies.append(json.loads(out))
        return replies
