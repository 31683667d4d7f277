"""What every test of hostile text watches: time, a file that nobody may open, a secret that nobody may tell."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optimizer.errors.diagnostics import Diagnostic
from optimizer.language.parser import ParseResult, parse
from optimizer.workload.nested import Nested
from optimizer.workload.values import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Dimension,
    Source,
    Stream,
    decimal,
    from_json,
    to_json,
)

SECRET_NAME = "HEDDLE_TEST_CANARY"
LONGEST = 2600
"""Characters of one finding: place, message and hint."""

WINDOW = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts"
SCHEMA = {
    "ts": TIMESTAMP,
    "symbol": STRING,
    "price": DOUBLE,
    "volume": LONG,
    "qty": INT,
    "fee": decimal(10, 2),
    "day": DATE,
    "ok": BOOLEAN,
}
_LEAF = Nested("struct", (("volume", LONG),))
NESTED = (
    ("place", _LEAF),
    ("counts", Nested("map", (("key", STRING), ("value", LONG)))),
    ("by_id", Nested("map", (("key", INT), ("value", LONG)))),
    ("legs", Nested("array", (("element", _LEAF),))),
)
NAMES = Dimension(
    "names",
    Source("csv", "names.csv"),
    ("sign", "unit"),
    (("sign", STRING), ("unit", LONG), ("sector", STRING), ("owner_id", INT)),
)
_TRADES = Source("parquet", "trades")
STREAMS = {"trades": Stream("trades", _TRADES, tuple(SCHEMA.items()), "ts", nested=NESTED, dimensions=(NAMES,))}

_opened: list[str] = []
_watched: set[str] = set()


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], (str, bytes)):
        name = os.fsdecode(arguments[0])
        if any(canary in name for canary in _watched):
            _opened.append(name)


sys.addaudithook(_listen)


@dataclass(frozen=True)
class Canary:
    """A file and an environment variable, each with a content that must turn up nowhere."""

    path: Path
    content: str
    secret: str

    @property
    def opened(self) -> bool:
        """Whether it was opened: by Python, or by native code as its access time tells."""
        return bool(_opened) or self.path.stat().st_atime_ns != 0

    def check(self, *texts: str) -> None:
        assert not self.opened
        for text in texts:
            assert self.content not in text and self.secret not in text


@contextmanager
def canary_in(folder: Path) -> Iterator[Canary]:
    """A canary for a while."""
    canary = Canary(folder / "canary.csv", "the-canary-sings-4711", "the-secret-of-the-canary-0815")
    canary.path.write_text(f"{canary.content},ts\n1,2\n")
    # read once and older than what was changed: the next access would be written down
    os.utime(canary.path, ns=(0, 10**9))
    _opened.clear()
    _watched.add(canary.path.name)
    os.environ[SECRET_NAME] = canary.secret
    try:
        yield canary
    finally:
        _watched.clear()
        _opened.clear()
        del os.environ[SECRET_NAME]


class TooLong(BaseException):
    """Some text took more CPU time than it may. No ``except Exception`` on the way turns it into a finding."""


@contextmanager
def bounded(what: str, seconds: float = 2.0) -> Iterator[None]:
    """Stops what takes more CPU time than this, so that a hang is a failure that says what hung."""

    def stop(*_: object) -> None:
        raise TooLong(f"more than {seconds} CPU seconds for {what[:400]!r}")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def told(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """Everything that is said of some findings: to people and as JSON."""
    findings = list(diagnostics)
    return [*map(str, findings), *(json.dumps(finding.to_json(), ensure_ascii=False) for finding in findings)]


def check_findings(diagnostics: Iterable[Diagnostic], text: str) -> None:
    """Coded, short, printable, and placed inside the text."""
    lines = text.split("\n")
    for diagnostic in diagnostics:
        assert diagnostic.code.startswith("HDL-") and diagnostic.message
        assert len(str(diagnostic)) <= LONGEST
        for line in str(diagnostic).split("\n"):
            assert all(c.isprintable() or c == "\u00a0" for c in line), diagnostic
        if diagnostic.line:
            assert 1 <= diagnostic.line <= len(lines), diagnostic
            assert 1 <= diagnostic.column <= len(lines[diagnostic.line - 1]) + 1, diagnostic


def filled(text: str, canary: Canary) -> str:
    return text.replace("@W", WINDOW).replace("@CANARY", str(canary.path)).replace("@SECRET", SECRET_NAME)


def parsed(text: str, canary: Canary) -> ParseResult:
    """A workload file, and what holds of every one: in time, no canary, findings as they should be, and whatever is a
    query is one again after it was stored."""
    with bounded(text):
        result = parse(text, STREAMS, "w.sql")
    canary.check(*told(result.diagnostics), repr(result.queries))
    check_findings(result.diagnostics, text)
    for query in result.queries:
        assert from_json(json.loads(json.dumps(to_json(query)))) == query
    return result
