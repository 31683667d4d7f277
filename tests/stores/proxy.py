"""A proxy before an S3 server, on loopback: counts requests, holds them back, loses answers, refuses.

A test says by :class:`Rule` which requests suffer. The proxy knows just enough of HTTP/1.1 to tell messages apart.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

LOOPBACK = "127.0.0.1"

SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"


class Fate(Enum):
    """What happens to a request: it is passed on, passed on and its answer is lost, or refused by 503."""

    PASS = "pass"
    LOSE_ANSWER = "lose answer"
    REFUSE = "refuse"
    LIE = "lie"
    """Passed on; where its condition does not hold, the answer says that it was done all the same."""
    CUT_OFF = "cut off"
    """Passed on; the answer ends in its midst, and the connection with it."""


@dataclass(frozen=True)
class Rule:
    """What happens to ``times`` requests of a method whose path matches, after the first ``skip`` such ones."""

    fate: Fate
    method: str = "PUT"
    path: str = ""
    times: int = 1
    skip: int = 0

    def meets(self, request: Request) -> bool:
        """Whether a request is of those."""
        return request.method == self.method and re.search(self.path, request.path) is not None


@dataclass(frozen=True)
class Request:
    """The head of a request: method, path with its query, header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]


class StoreProxy:
    """The proxy before the server at a port: a process of its own, as clients hold Python's lock while they wait."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.stores.proxy", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://{LOOPBACK}:{self._said()}"
        """Where clients find it."""

    def set(self, delay: float = 0.0, *rules: Rule) -> None:
        """Hold each request for ``delay`` seconds, and follow these rules from now on."""
        encoded_rules = [asdict(rule) | {"fate": rule.fate.value} for rule in rules]
        self._ask({"delay": delay, "rules": encoded_rules})

    def counts(self) -> Counter[str]:
        """How many requests there were since the last call, by method (LIST apart)."""
        return Counter(dict(self._ask({"counts": True})))

    def stop(self) -> None:
        """Listen no more."""
        self._process.kill()
        self._process.wait()

    def _ask(self, what: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return self._said()

    def _said(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class _Serving:
    """The proxy in its own process."""

    def __init__(self, port: int) -> None:
        self.port, self.delay = port, 0.0
        self.rules: list[list[Any]] = []
        self.seen: Counter[str] = Counter()

    async def serve(self) -> None:
        """Listen on a port of loopback, which is printed; do what lines of standard input say."""
        server = await asyncio.start_server(self._connected, LOOPBACK, 0, limit=1 << 26)
        print(server.sockets[0].getsockname()[1], flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            reply: Any = None
            if "counts" in command:
                reply, self.seen = dict(self.seen), Counter()
            else:
                self.delay = command["delay"]
                rules = [Rule(**rule | {"fate": Fate(rule["fate"])}) for rule in command["rules"]]
                self.rules = [[rule, rule.skip, rule.times] for rule in rules]
            print(json.dumps(reply), flush=True)

    def _fate(self, request: Request) -> Fate:
        for rule_state in self.rules:
            rule, skip, times = rule_state
            if times and rule.meets(request):
                rule_state[1:] = [skip - 1, times] if skip else [0, times - 1]
                if not skip:
                    return Fate(rule.fate)
        return Fate.PASS

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        with suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            while head := await _head(reader):
                request = _request(head)
                is_list = request.method == "GET" and re.search("list-type|comp=list", request.path)
                self.seen["LIST" if is_list else request.method] += 1
                if "expect" in request.headers:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    await writer.drain()
                body = await _body(reader, request.headers)
                fate = self._fate(request)
                await asyncio.sleep(self.delay)
                if fate is Fate.REFUSE:
                    error_body = b"" if request.method == "HEAD" else SLOW_DOWN
                    writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\n")
                    writer.write(b"Content-Length: %d\r\n\r\n" % len(error_body) + error_body)
                    await writer.drain()
                    continue
                if upstream is None:
                    upstream = await asyncio.open_connection(LOOPBACK, self.port, limit=1 << 26)
                answer = await _exchange(upstream, head, body, request)
                # Amazon's word, and Azure's
                if fate is Fate.LIE and answer.split(b" ", 2)[1] in (b"412", b"409"):
                    answer = b'HTTP/1.1 200 OK\r\nETag: "0"\r\nContent-Length: 0\r\n\r\n'
                if fate is Fate.LOSE_ANSWER:
                    break
                if fate is Fate.CUT_OFF:
                    writer.write(answer[: -max(1, len(answer) // 3)])
                    await writer.drain()
                    break
                writer.write(answer)
                await writer.drain()
        for each in (writer, upstream[1] if upstream else None):
            if each is not None:
                with suppress(Exception):
                    each.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _request(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    return Request(method, path, _headers(lines))


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        content = b""
        while True:
            line = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
            content += line + chunk
            if len(chunk) == 2:
                return content
    return await reader.readexactly(int(headers.get("content-length", 0)))


async def _exchange(
    upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    head: bytes,
    body: bytes,
    request: Request,
) -> bytes:
    """Pass a request on; the whole answer."""
    reader, writer = upstream
    if "expect" in request.headers:
        lines = head.split(b"\r\n")
        head = b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))
    writer.write(head + body)
    await writer.drain()
    answered = await reader.readuntil(b"\r\n\r\n")
    headers = _headers(answered.decode("latin-1").split("\r\n")[1:])
    status = int(answered.split(b" ", 2)[1])
    if request.method == "HEAD" or status in (204, 304):
        return answered
    return answered + await _body(reader, headers)


if __name__ == "__main__":
    asyncio.run(_Serving(int(sys.argv[1])).serve())
