"""The commit log of Spark's file sink."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote


def batch(
    root: Path, number: int, actions: Sequence[tuple[str, str]], compact: bool = False, root_in_log: str = ""
) -> None:
    """Write a batch of a sink's log, as Spark does."""
    log = root / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {
                "path": f"file://{quote(root_in_log or str(root))}/{quote(name)}",
                **{"size": 1, "isDir": False, "modificationTime": 1, "blockReplication": 1, "blockSize": 1},
                "action": action,
            }
        )
        for action, name in actions
    ]
    (log / f"{number}{'.compact' if compact else ''}").write_text("\n".join(["v1", *lines]))
