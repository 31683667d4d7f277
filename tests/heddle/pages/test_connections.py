"""Clients that send too much, too slowly or not at all, and those that do not read, against the server on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heddle.cli.serve import listening
from heddle.pages.connections import ConnectionLimits, server_config
from tests.sizes import examples

BIG = 32 << 20
"""Bytes of an answer that no buffer of a system holds."""

GET = b"GET /small HTTP/1.1\r\nHost: localhost\r\n"

WITHIN = 60
"""Seconds after which a test gives up."""


async def pages(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """`/big` is a long answer in pieces, everything else a short one; bodies of requests are not read."""
    if scope["type"] != "http":
        return
    pieces = BIG >> 20 if scope["path"] == "/big" else 1
    size = pieces << 20 if scope["path"] == "/big" else 2
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(size).encode())]})
    for piece in range(pieces):
        content = bytes(1 << 20) if size > 2 else b"ok"
        await send({"type": "http.response.body", "body": content, "more_body": piece + 1 < pieces})


@contextmanager
def served(limits: ConnectionLimits) -> Iterator[tuple[str, int]]:
    """The address of a server with these limits."""
    config = server_config(pages, limits)  # type: ignore[arg-type]
    server, place = uvicorn.Server(config), listening("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([place],), daemon=True)
    thread.start()
    try:
        yield place.getsockname()
    finally:
        server.should_exit = True
        thread.join(WITHIN)
        place.close()


QUICK = ConnectionLimits(request_seconds=0.3, stalled_seconds=0.3, idle_seconds=1, connections=8)


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """A server whose limits are short."""
    with served(QUICK) as host_and_port:
        yield host_and_port


def exchange(address: tuple[str, int], *sent: bytes) -> bytes:
    """All that a connection brings until the server closes it."""
    with socket.create_connection(address, WITHIN) as client:
        received = []
        with suppress(ConnectionError):
            for piece in sent:
                client.sendall(piece)
            while piece := client.recv(1 << 16):
                received.append(piece)
        return b"".join(received)


SLOW = {
    "nothing": [b""],
    "half a line": [b"GET /sm"],
    "headers without an end": [GET],
    "a body that does not come": [b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12"],
    "a chunk that does not come": [b"POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n1"],
    "a second request that does not end": [GET + b"\r\n", GET],
    "half a request behind a whole one": [GET + b"\r\n" + GET],
    "nothing after an answer": [GET + b"\r\n"],
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_a_client_that_does_not_go_on_is_let_go(sent: list[bytes], address: tuple[str, int]) -> None:
    received = exchange(address, *sent)
    assert received.count(b"200 OK") <= 1 and b" 500 " not in received


@pytest.mark.parametrize("begun", [b"", GET, SLOW["a body that does not come"][0].replace(b"10", b"1000000")])
def test_a_client_that_sends_byte_by_byte_is_let_go(begun: bytes, address: tuple[str, int]) -> None:
    """Each byte comes in time, the request does not."""
    with socket.create_connection(address, 0.02) as client:
        client.sendall(begun)
        sent, is_open = 0, True
        while is_open and sent < 1000:
            try:
                client.sendall(b"x")
                sent += 1
                is_open = client.recv(1 << 10) != b""
            except TimeoutError:
                continue
            except ConnectionError:
                is_open = False
    assert not is_open


def test_a_client_that_does_not_read_is_let_go(address: tuple[str, int]) -> None:
    """Once the server has given up, no more than what systems had buffered comes."""
    with socket.create_connection(address, WITHIN) as client:
        client.sendall(GET.replace(b"small", b"big") + b"\r\n")
        replies = [exchange(address, GET) for _ in range(5)]  # each takes as long as the limit
        received = 0
        with suppress(ConnectionError):
            while piece := client.recv(1 << 20):
                received += len(piece)
    assert replies == [b""] * 5 and received < BIG


def test_a_client_that_reads_gets_a_long_answer(address: tuple[str, int]) -> None:
    assert len(exchange(address, GET.replace(b"small", b"big") + b"Connection: close\r\n\r\n")) > BIG


@settings(max_examples=examples(20))
@example(names=[3000] * 7, pieces=300_000)
@given(
    names=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    pieces=st.sampled_from([1, 100, 5_000, 300_000]),
)
def test_headers_are_answered_exactly_up_to_the_limit(address: tuple[str, int], names: list[int], pieces: int) -> None:
    """However the bytes of a request are cut, its headers are taken up to the limit and refused beyond it."""
    headers = b"".join(b"X-%d: %s\r\n" % (number, b"v" * size) for number, size in enumerate(names))
    request = GET + b"Connection: close\r\n" + headers + b"\r\n"
    received = exchange(address, *(request[first : first + pieces] for first in range(0, len(request), pieces)))
    limit = QUICK.header_bytes
    if len(request) <= limit:
        assert received.startswith(b"HTTP/1.1 200")
    elif len(request) > limit + 4096:
        # a client that goes on sending may lose the answer
        assert received.startswith(b"HTTP/1.1 400") or not received


def test_many_connections_are_answered_with_503_and_more_are_closed() -> None:
    with served(ConnectionLimits(connections=4, idle_seconds=60, request_seconds=60)) as address, ExitStack() as open_:
        waiting = [open_.enter_context(socket.create_connection(address, WITHIN)) for _ in range(3)]
        for client in waiting:
            client.sendall(GET + b"\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        assert exchange(address, GET + b"\r\n").startswith(b"HTTP/1.1 503")
        idle = [open_.enter_context(socket.create_connection(address, WITHIN)) for _ in range(5)]
        assert exchange(address, GET + b"\r\n") == b""
        assert len(idle) == 5
