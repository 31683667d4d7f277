"""A server on loopback that takes what a webhook is sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "s3cr3t-of-this-webhook"
"""In the path of the server's URL: no output may show it."""


class _Hook(BaseHTTPRequestHandler):
    answer, location = 204, ""
    got: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).got += body.get("alerts", [body])
        self.send_response(self.answer)
        if self.location:
            self.send_header("Location", self.location)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def webhook(answer: int = 204, location: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server on loopback: its URL, and the alerts that it got."""
    got: list[dict[str, Any]] = []
    handler = type("Hook", (_Hook,), {"answer": answer, "location": location, "got": got})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/services/{SECRET}", got
    finally:
        server.shutdown()
        server.server_close()
