"""Conversions of texts into values of settings. They raise ValueError, with what to write instead."""

from __future__ import annotations

import re

_LOCAL_HOSTS = r"(127\.0\.0\.1|localhost|\[::1\])"
_NOTIFY = re.compile(
    rf"https://[^\s/@]+(@[^\s/@]+)?([/?]\S*)?|http://{_LOCAL_HOSTS}(:\d+)?([/?]\S*)?"
    r"|[^\W\d]\w*(\.[^\W\d]\w*)*[:.][^\W\d]\w*"
)
"""Plain http is for this machine only."""


def parse_owner(text: str) -> str:
    """An owner of queries."""
    owner = text.strip()
    if not owner.isprintable() or len(owner) > 128:
        raise ValueError("1 to 128 printable characters")
    return owner


def parse_address(text: str) -> str | None:
    """The address of a server; None: empty."""
    address = text.strip().rstrip("/")
    if address and not re.fullmatch(r"https?://[^\s\"'<>?#]{1,500}", address):
        raise ValueError("the address of its first page, as http://history:18080")
    return address or None


def parse_notify(text: str) -> str:
    """A target of alerts: a webhook, or the path of something to call."""
    target = text.strip()
    if len(target) > 2000 or _NOTIFY.fullmatch(target) is None:
        raise ValueError("`https://…`, `module:callable`, or the path of an Airflow notifier")
    return target


def parse_owners(texts: tuple[str, ...]) -> dict[str, str]:
    """The channels of owners."""
    pairs = [tuple(part.strip() for part in text.partition("=")) for text in texts if text.strip()]
    if not all(owner and equals and channel for owner, equals, channel in pairs):
        raise ValueError("`owner=channel`, `,` between them")
    return {owner: channel for owner, _, channel in pairs}
