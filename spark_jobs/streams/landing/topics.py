"""The file of topics that the DAG ``land_topics`` lands: TOML, a table a topic."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from optimizer.errors.diagnostics import HeddleError, meant
from spark_jobs.store.settings import Settings

KEYS = {
    "servers": "--servers",
    "stream": "--stream",
    "to": "--to",
    "avro_schema": "--avro-schema",
    "checkpoint": "--checkpoint",
    "starting": "--starting",
}
"""The keys of a topic's table, and the options that they are."""

PATHS = ("to", "avro_schema", "checkpoint")

MOST_BYTES = 1 << 17


def jobs(settings: Settings) -> list[list[str]]:
    """Arguments of ``spark_jobs/jobs/land_topic.py`` for each topic of the file, in its order; empty if there is no
    file.

    Paths are relative to the folder of the file. Raises HDL-626 for invalid content.
    """
    path = settings.topics
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HeddleError("HDL-626", f"cannot be read: {error.strerror}", "check the path", file=str(path)) from None
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        topics = tomllib.loads(content.decode("utf-8-sig"))
        return [
            [name, "--streams", str(settings.streams), *_options(name, table, settings)]
            for name, table in topics.items()
        ]
    except (ValueError, RecursionError) as error:
        hint = 'a topic is: [trades], and below it servers = "broker:9092"'
        raise HeddleError("HDL-626", f"is no file of topics: {error}", hint, file=str(path)) from None


def _options(name: str, table: Any, settings: Settings) -> Iterator[str]:
    """The options of one topic. Raises ValueError."""
    if not isinstance(table, dict) or "servers" not in table:
        raise ValueError(f"the topic {name} has no servers")
    for key, value in table.items():
        if key not in KEYS:
            raise ValueError(f"the topic {name} has a key {key} ({meant(key, KEYS)})")
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"{key} of the topic {name} is no text")
        yield KEYS[key]
        yield str(settings.topics.parent / value) if key in PATHS else value
