"""Settings of alerts: conversions of their texts. They raise ValueError, with what to write instead."""

from __future__ import annotations

import re

_LOCAL_HOSTS = r"(127\.0\.0\.1|localhost|\[::1\])"
_NOTIFY = re.compile(
    rf"https://[^\s/@]+(@[^\s/@]+)?([/?]\S*)?|http://{_LOCAL_HOSTS}(:\d+)?([/?]\S*)?"
    r"|[^\W\d]\w*(\.[^\W\d]\w*)*[:.][^\W\d]\w*"
)
"""Plain http is for this machine only."""


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
