"""Alerts by e-mail, one message for each channel. Here a channel is an e-mail address.

export HEDDLE_NOTIFY=alerts_by_email:send HEDDLE_OWNERS='desk=desk@example.com,*=data@example.com'
export ALERTS_SMTP=smtp.example.com:25 ALERTS_FROM=heddle@example.com PYTHONPATH=examples
"""

from __future__ import annotations

import os
import smtplib
from email.message import EmailMessage
from itertools import groupby
from typing import Any


def send(alerts: list[dict[str, Any]]) -> None:
    """Send alerts. Whatever this raises is reported, and the next run sends the same alerts again."""
    host, _, port = os.environ["ALERTS_SMTP"].partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=10) as server:
        for channel, group in groupby(sorted(alerts, key=_channel), key=_channel):
            server.send_message(_mail(channel, list(group)))


def _channel(alert: dict[str, Any]) -> str:
    return str(alert["channel"])


def _mail(channel: str, alerts: list[dict[str, Any]]) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = os.environ["ALERTS_FROM"], channel
    first = alerts[0]
    more = f" and {len(alerts) - 1} more" if len(alerts) > 1 else ""
    mail["Subject"] = f"{first['state']}: {first['query']} {first['kind']}{more}"
    lines = [f"{each['state']} {each['code']} {each['message']}\n    {each['hint']}".rstrip() for each in alerts]
    mail.set_content("\n\n".join(lines))
    return mail
