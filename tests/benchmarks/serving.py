"""Latency and memory of the newest answers and of listings through ``heddle serve``, on loopback.

    python -m tests.benchmarks.serving [--groups 1000000] [--hours 3] [--rounds 500] [--json FILE]

A warehouse has answers of one query with a group column, a count and a mean. The server is a process of its own; one
client asks it over one connection, one request after the other. Milliseconds are from before a request is sent until
its body has been read, of requests after the first. Memory is the server's resident set.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.reading import filled

KEYS = 1_000
LATEST = "/api/v1/answers/query_00000/latest"
LISTED = "/api/v1/answers/query_00000"
ARROW = "application/vnd.apache.arrow.stream"


@contextmanager
def server(warehouse: Path) -> Iterator[tuple[http.client.HTTPConnection, int]]:
    """A connection to a server of a warehouse, and the server's process id."""
    command = [sys.executable, "-m", "heddle.cli.app", "serve", "--warehouse", str(warehouse), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            place = process.stderr.readline().split("/")[2]
            connection = http.client.HTTPConnection(place, timeout=600)
            yield connection, process.pid
            connection.close()
        finally:
            process.terminate()


def memory(process: int) -> int:
    """Bytes of the resident set of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def cpu_seconds(process: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def milliseconds(connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: Any) -> float:
    """Time of one request."""
    began = time.perf_counter()
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    content = response.read()
    took = (time.perf_counter() - began) * 1000
    assert response.status == 200, content
    return took


def measure(
    connection: http.client.HTTPConnection,
    process: int,
    rounds: int,
    request: Callable[[], tuple[str, str, Any, dict[str, str]]],
) -> dict[str, float]:
    """Milliseconds: the first request, percentiles of those after it, and the server's CPU time for one of them."""
    first, began = milliseconds(connection, *request()), cpu_seconds(process)
    times = np.array([milliseconds(connection, *request()) for _ in range(rounds)])
    cpu = (cpu_seconds(process) - began) * 1000 / rounds
    p50, p99 = (float(np.percentile(times, percent)) for percent in (50, 99))
    return {"first": first, "p50": p50, "p99": p99, "cpu": cpu}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="serving", description="Latency of answers through heddle serve")
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--hours", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    chance = np.random.default_rng(1)

    def key() -> str:
        return f"group {chance.integers(options.groups)}"

    def keys() -> str:
        return json.dumps({"keys": [{"s": key()} for _ in range(KEYS)]})

    as_json = {"Content-Type": "application/json"}
    requests: dict[str, Callable[[], tuple[str, str, Any, dict[str, str]]]] = {
        "newest of one group": lambda: ("GET", f"{LATEST}?s={quote(key())}", None, {}),
        f"newest of {KEYS:,} groups": lambda: ("POST", LATEST, keys(), as_json),
        f"newest of {KEYS:,} groups, Arrow": lambda: ("POST", LATEST, keys(), as_json | {"Accept": ARROW}),
    }
    shown = Table("request", "first, ms", "p50, ms", "p99, ms", "CPU, ms")
    measured: dict[str, Any] = {"groups": options.groups, "hours": options.hours}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "warehouse"
        filled(root, 1, options.groups, options.hours)
        with server(root) as (connection, process):
            connection.request("GET", "/api/v1/queries")
            connection.getresponse().read()
            measured["before"] = memory(process)
            for name, request in requests.items():
                measured[name] = measure(connection, process, options.rounds, request)
            measured["after"] = memory(process)
            listing = measure(connection, process, 5, lambda: ("GET", f"{LISTED}?limit={KEYS}", None, {}))
            measured[f"a page of {KEYS:,} answers"] = listing
    for name, times in measured.items():
        if isinstance(times, dict):
            shown.add_row(name, *(f"{times[each]:,.1f}" for each in ("first", "p50", "p99", "cpu")))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(shown)
    console.print(f"memory: {measured['before'] >> 20:,} MiB before, {measured['after'] >> 20:,} MiB after")
    if options.json:
        options.json.write_text(json.dumps(measured, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
