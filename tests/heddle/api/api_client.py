"""The API as its clients see it, and the values that its JSON represents."""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pyarrow as pa
import uvicorn
from fastapi.testclient import TestClient

from heddle.cli.serve import listening, pages_of
from heddle.pages.connections import server_config

ARROW = "application/vnd.apache.arrow.stream"

WITHIN = 60
"""Seconds after which a test gives up."""


def client_of(root: Path | str, token: str = "", **options: Any) -> TestClient:
    """A client of the server of a warehouse, below ``/api/v1/``."""
    return TestClient(pages_of(str(root), "127.0.0.1", token), base_url="http://127.0.0.1/api/v1/", **options)


def next_page(client: TestClient, page: Any) -> Any:
    """The response behind the link to the next page."""
    return client.get(urljoin(str(page.url), page.links["next"]["url"]))


def arrow_table(content: bytes) -> pa.Table:
    """The table of a response in Arrow."""
    return pa.ipc.open_stream(content).read_all()


def plain(value: Any, type: pa.DataType) -> Any:
    """A value of JSON as Arrow gives it to Python, by the rules of docs/api.md."""
    if value is None:
        return None
    if pa.types.is_floating(type):
        return float(value)
    if pa.types.is_integer(type):
        return int(value)
    if pa.types.is_decimal(type):
        return Decimal(value)
    if pa.types.is_timestamp(type):
        return datetime.fromisoformat(value)
    if pa.types.is_date(type):
        return date.fromisoformat(value)
    return base64.b64decode(value) if pa.types.is_binary(type) else value


def plain_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> list[str]:
    """Rows of JSON, bit for bit."""
    assert all(list(row) == schema.names for row in rows)
    return [repr([plain(row[field.name], field.type) for field in schema]) for row in rows]


def python_rows(table: pa.Table) -> list[str]:
    """Rows of Arrow, in the same words."""
    return [
        repr([cell.astimezone(UTC) if isinstance(cell, datetime) else cell for cell in row.values()])
        for row in table.to_pylist()
    ]


def parameter(value: Any) -> str:
    """A value as a parameter has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), repr(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def equals(value: Any, other: Any) -> bool:
    """Return whether a row's value is the one that a parameter names: NaN is itself, null is none."""
    if isinstance(value, float) and isinstance(other, float) and math.isnan(other):
        return math.isnan(value)
    return value is not None and value == other


@contextmanager
def serving(root: Path | str, token: str = "") -> Iterator[tuple[str, int]]:
    """The address of the server of a warehouse, as the command starts it."""
    server = uvicorn.Server(server_config(pages_of(str(root), "127.0.0.1", token)))
    place = listening("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([place],), daemon=True)
    thread.start()
    try:
        yield place.getsockname()
    finally:
        server.should_exit = True
        thread.join(WITHIN)
        place.close()
