"""Alerts to Slack, by an incoming webhook for each channel.

export HEDDLE_NOTIFY=alerts_to_slack:send HEDDLE_OWNERS='desk=#desk' PYTHONPATH=examples
export SLACK_WEBHOOKS='{"#desk": "https://hooks.slack.com/services/…", "*": "https://hooks.slack.com/services/…"}'
"""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

ICONS = {"open": ":red_circle:", "resolved": ":large_green_circle:", "test": ":wave:"}


def send(alerts: list[dict[str, Any]]) -> None:
    """Send alerts. Whatever this raises is reported, and the next run sends the same alerts again."""
    webhooks = json.loads(os.environ["SLACK_WEBHOOKS"])
    texts: dict[str, list[str]] = {}
    for alert in alerts:
        webhook = webhooks.get(alert["channel"]) or webhooks["*"]
        texts.setdefault(webhook, []).append(f"{ICONS[alert['state']]} {_escaped(alert['message'])}")
    for webhook, lines in texts.items():
        body = json.dumps({"text": "\n".join(lines)}).encode()
        request = urllib.request.Request(webhook, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10):
            pass


def _escaped(text: str) -> str:
    """The text without Slack's markup: a query's name must not call a whole channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
