"""Connections of the pages' server: how much a client may send, how long it may take, how many there may be.

uvicorn limits the bytes of headers and the time between two requests. It waits for ever for a client that opens a
connection and sends nothing, sends a request byte by byte, or does not read its answer. :class:`GuardedConnection` ends
those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from fastapi import FastAPI

STOPPING = 3
"""Seconds that requests have to end once the server gets a signal to stop."""

PIECE = 4096
"""Bytes that are parsed at once. h11 checks the size of headers only while they are incomplete."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the server for one client, and for all together.

    Parameters
    ----------
    header_bytes
        Bytes of a request's first line and headers; a longer request is answered with 400.
    request_seconds
        Time for a client to send a request, from its connection or the request's first byte on.
    stalled_seconds
        Time for which a client may read nothing of an answer that waits for it.
    idle_seconds
        Time for which a connection stays open between two requests.
    connections
        Connections up to which requests are answered. With more they get 503; twice that number are closed at once.
    """

    header_bytes: int = 16 << 10
    request_seconds: float = 15
    stalled_seconds: float = 60
    idle_seconds: int = 5
    connections: int = 256


def server_config(app: FastAPI, limits: ConnectionLimits | None = None) -> Config:
    """Uvicorn's configuration that serves an app within limits."""
    chosen = ConnectionLimits() if limits is None else limits
    return Config(
        app,
        http=type("Connection", (GuardedConnection,), {"limits": chosen}),
        ws="none",
        log_level="warning",
        server_header=False,
        h11_max_incomplete_event_size=chosen.header_bytes,
        timeout_keep_alive=chosen.idle_seconds,
        timeout_graceful_shutdown=STOPPING,
        limit_concurrency=chosen.connections,
    )


class GuardedConnection(H11Protocol):
    """A connection that is closed if its client takes too long."""

    limits = ConnectionLimits()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._request, self._answer = _Deadline(), _Deadline()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request; close the connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()
            return
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Parse what came, in pieces."""
        for first in range(0, len(data), PIECE):
            if self.transport.is_closing():
                break
            super().data_received(data[first : first + PIECE])
        self._watch_request()

    def pause_writing(self) -> None:
        """Begin to wait for a client that reads too slowly."""
        super().pause_writing()
        self._watch_answer(None)

    def resume_writing(self) -> None:
        """The client has read enough."""
        super().resume_writing()
        self._answer.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all deadlines of the connection."""
        self._request.stop()
        self._answer.stop()
        super().connection_lost(exc)

    def _watch_request(self) -> None:
        """Let an incomplete request end in time; a complete one may be answered for longer."""
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._request.start(self.loop, self.limits.request_seconds, self.transport.abort)
        else:
            self._request.stop()

    def _watch_answer(self, waiting: int | None) -> None:
        """Close the connection if all the bytes that waited at the last look still wait."""
        now = self.transport.get_write_buffer_size()
        self._answer.stop()
        if now == waiting:
            self.transport.abort()
        else:
            self._answer.start(self.loop, self.limits.stalled_seconds, partial(self._watch_answer, now))


class _Deadline:
    """A moment at which something is done, unless it is called off."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[[], object]) -> None:
        """Call ``act`` in ``seconds`` seconds, unless the deadline was started before."""
        if self._timer is None:
            self._timer = loop.call_later(seconds, act)

    def stop(self) -> None:
        """Call it off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
