"""Secrets of this process, which no message, log or table may show.

Secrets come in by the environment (the lease's DSN, Airflow's connections and settings, keys of stores) and by Spark's
configuration. Libraries repeat them in the texts of their errors, so every text of a finding and every traceback that
Heddle prints passes through :func:`redacted`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"

_NAMED = re.compile(
    r"passw|passphrase|secret|token|credential|fernet|(access|api|account|private|sas|master).?key|dsn|(^|_)conn(_|$)"
    r"|broker_url|result_backend|connection.?string|spark_remote|(^|_)notify$",
    re.IGNORECASE,
)
_WHOLE = re.compile(
    r"(^|_)conn(_|$)|broker_url|result_backend|connection.?string|spark_remote|(^|_)notify$", re.IGNORECASE
)
"""Names of addresses: what is secret of them is in parts of the value."""
_WEBHOOK = re.compile(r"(^|_)notify$", re.IGNORECASE)
"""Names of addresses of which all but the host is secret."""
_BESIDE_HOST = re.compile(r"https?://(?:([^\s/@]{1,300})@)?[^\s/?#@]{1,300}([/?#]\S{1,2000})?", re.IGNORECASE)
LONG_PART = 12
"""Characters from which on a part of a webhook's path or query is a secret by itself: shorter ones are words."""
_IN_ADDRESS = re.compile(r"//[^\s:/@]{0,100}:(\S{1,300})@")
_IN_PAIRS = re.compile(
    r"(?:password|passwd|pwd|secret|account.?key|access.?key|(?<=[?&;])(?:sig|token))"
    r"[\w.-]{0,40}[\"']?\s{0,9}[=:]\s{0,9}"
    r"('[^'\n]{1,300}|\"[^\"\n]{1,300}|[^\s&,;)'\"]{1,300})",
    re.IGNORECASE,
)
_WORDS = {"true", "false", "none", "null"}

_given: dict[str, str] = {}


def keep_secret(settings: Mapping[str, str]) -> None:
    """Treat the settings with names of secrets as secrets from now on, like variables of the environment."""
    _given.update({name: value for name, value in settings.items() if _is_named(name)})


def redacted(text: str) -> str:
    """Return the text without secrets.

    Removed are values that the environment and :func:`keep_secret` gave under names of secrets (or parts of them, where
    the value is an address or JSON), passwords in addresses, and values after ``password=``.
    """
    for value in _values():
        text = text.replace(value, HIDDEN)
    if "@" in text and "//" in text:
        text = _IN_ADDRESS.sub(lambda match: match[0].replace(f":{match[1]}@", f":{HIDDEN}@"), text)
    return _IN_PAIRS.sub(lambda match: match[0][: match.start(1) - match.start()] + HIDDEN, text)


@lru_cache(4096)
def _is_named(name: str) -> bool:
    return _NAMED.search(name) is not None


def _values() -> list[str]:
    secrets = {name: value for name, value in os.environ.items() if value and _is_named(name)} | _given
    return _parts_of(tuple(sorted(secrets.items())))


@lru_cache(16)
def _parts_of(named: tuple[tuple[str, str], ...]) -> list[str]:
    parts = {part for name, value in named for part in _parts(name, value)}
    parts |= {other for part in parts for other in (unquote(part), quote(part, safe=""))}
    # longest first: one may hold another
    return sorted((part for part in parts if _hides(part)), key=lambda part: (-len(part), part))


def _hides(part: str) -> bool:
    """Return whether a value can be a secret. Short values and plain words would blot out harmless text."""
    return len(part) > 3 and part.lower() not in _WORDS and not (part.isdigit() and len(part) < 6)


def _parts(name: str, value: str) -> Iterator[str]:
    if not _WHOLE.search(name):
        yield value
    for pattern in (_IN_ADDRESS, _IN_PAIRS):
        for match in pattern.finditer(value):
            yield match[1].strip("'\"")
    webhook = _BESIDE_HOST.fullmatch(value.strip()) if _WEBHOOK.search(name) else None
    for part in (webhook[1] or "", webhook[2] or "") if webhook is not None else ():
        yield part
        yield from (piece for piece in re.split(r"[/?#&=:]", part) if len(piece) >= LONG_PART)
    try:
        yield from _of_json(json.loads(value), False)
    except (ValueError, RecursionError):
        return


def _of_json(data: Any, secret: bool) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _of_json(value, secret or _is_named(str(key)))
    elif isinstance(data, list):
        for value in data:
            yield from _of_json(value, secret)
    elif secret and isinstance(data, str):
        yield data
