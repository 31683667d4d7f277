"""The file of topics and folders that the DAG ``land_topics`` lands: TOML, a table for each."""

from __future__ import annotations

import tomllib
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

FOLDER_KEYS = ("folder", "stream", "to")
"""The keys of a folder's table."""

PATHS = ("folder", "to", "avro_schema", "checkpoint")

MOST_BYTES = 1 << 17


def jobs(settings: Settings) -> list[list[str]]:
    """Arguments of ``spark_jobs/jobs/land_topic.py`` for each topic of the file, in its order; empty if there is no
    file.

    Paths are relative to the folder of the file. Raises HDL-626 for invalid content.
    """
    topics = [(name, table) for name, table in _tables(settings).items() if "folder" not in table]
    return [
        [
            name,
            "--streams",
            str(settings.streams),
            *(part for key, value in table.items() for part in (KEYS[key], value)),
        ]
        for name, table in topics
    ]


def folder_jobs(settings: Settings) -> list[dict[str, str]]:
    """The folders of the file as arguments of :func:`spark_jobs.streams.landing.folders.raw_folder_of`: ``folder``,
    ``streams``, and perhaps ``stream`` and ``table``. Raises HDL-626 for invalid content."""
    folders = [table for table in _tables(settings).values() if "folder" in table]
    return [
        {"streams": str(settings.streams)} | {"table" if key == "to" else key: value for key, value in table.items()}
        for table in folders
    ]


def _tables(settings: Settings) -> dict[str, dict[str, str]]:
    """The tables of the file, checked, with absolute paths. Raises HDL-626."""
    path = settings.topics
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HeddleError("HDL-626", f"cannot be read: {error.strerror}", "check the path", file=str(path)) from None
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        parsed = tomllib.loads(content.decode("utf-8-sig"))
        return {name: _checked(name, table, settings) for name, table in parsed.items()}
    except (ValueError, RecursionError) as error:
        hint = (
            'a topic is: [trades], and below it servers = "broker:9092"; a folder: [orders] and folder = "raw/orders"'
        )
        raise HeddleError("HDL-626", f"is no file of topics: {error}", hint, file=str(path)) from None


def _checked(name: str, table: Any, settings: Settings) -> dict[str, str]:
    """The keys of one topic or folder. Raises ValueError."""
    if not isinstance(table, dict) or not ("servers" in table or "folder" in table):
        raise ValueError(f"{name} has neither servers (a topic) nor folder")
    is_folder = "folder" in table
    known = FOLDER_KEYS if is_folder else tuple(KEYS)
    for key, value in table.items():
        if key not in known:
            raise ValueError(f"the {'folder' if is_folder else 'topic'} {name} has a key {key} ({meant(key, known)})")
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"{key} of {name} is no text")
    return {key: str(settings.topics.parent / value) if key in PATHS else value for key, value in table.items()}
