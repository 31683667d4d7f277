"""Where alerts go: a webhook, a callable, or a notifier of Airflow, as ``HEDDLE_NOTIFY`` names it.

The name is the operator's: it comes from the environment or from Airflow's configuration, never from a project file or
a query, because what it names is called.
"""

from __future__ import annotations

import base64
import copy
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import HIDDEN, keep_secret
from spark_jobs.operations.alerts import Passed, Send, pass_alerts, undelivered
from spark_jobs.store.alert_settings import parse_notify
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.warehouse import Warehouse

TIMEOUT = 10.0
"""Seconds that a webhook has for each step of an answer."""


def sender(target: str, context: Mapping[str, Any]) -> Send:
    """Return the function that sends alerts to ``target``, a value of ``HEDDLE_NOTIFY``.

    ``context``: what Airflow's notifiers get in addition to the alert.
    Raises HDL-120 if it is none, HDL-635 if it cannot be imported or called.
    """
    try:
        target = parse_notify(target)
    except ValueError as error:
        raise HeddleError("HDL-120", f"HEDDLE_NOTIFY is {HIDDEN!r}", str(error)) from None
    if "://" in target:
        return lambda alerts: _post(target, alerts)
    called = _imported(target)
    if hasattr(called, "notify") and hasattr(called, "template_fields"):
        return lambda alerts: _notify(called, alerts, context)
    if not callable(called):
        raise _unusable(f"{target} is no callable, but {type(called).__name__}")
    return lambda alerts: _called(called, alerts)


def _called(function: Callable[[list[dict[str, Any]]], object], alerts: Sequence[dict[str, Any]]) -> None:
    function(list(alerts))


def _notify(notifier: Any, alerts: Sequence[dict[str, Any]], context: Mapping[str, Any]) -> None:
    """Have a notifier send each alert: its templates find it as ``alert``."""
    made = notifier() if isinstance(notifier, type) else notifier
    for alert in alerts:
        # a notifier replaces its templates by what they render to
        copy.copy(made)({**context, "alert": alert})


def _imported(path: str) -> Any:
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # it is somebody's module
        raise _unusable(f"{path} cannot be imported: {type(error).__name__}: {error}") from None


def _unusable(message: str) -> HeddleError:
    hint = "HEDDLE_NOTIFY is `module:callable`; the module has to be installed, or on PYTHONPATH"
    return HeddleError("HDL-635", message, hint)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: what is sent is for the host that the operator named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, alerts: Sequence[dict[str, Any]]) -> None:
    """Send alerts as the JSON body of a POST. Raises HDL-635 unless the answer is 2xx. No text has more of the URL than
    its host."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    body = json.dumps({"format_version": 1, "alerts": list(alerts)}).encode()
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), body, method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("User-Agent", "heddle")
    if at:
        request.add_header("Authorization", "Basic " + base64.b64encode(unquote(user).encode()).decode())
    proxies = urllib.request.ProxyHandler({} if parts.scheme == "http" else None)
    try:
        with urllib.request.build_opener(_NoRedirect, proxies).open(request, timeout=TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        error.close()
        moved = " (redirects are not followed)" if 300 <= error.code < 400 else ""
        why = f"HTTP {error.code}{moved}"
    except urllib.error.URLError as error:
        why = str(getattr(error.reason, "strerror", None) or type(error.reason).__name__)
    except (OSError, HTTPException, ValueError) as error:
        why = type(error).__name__
    raise HeddleError("HDL-635", f"the webhook at {host} did not take the alerts: {why}", "check HEDDLE_NOTIFY")


def send_alerts(
    warehouse: Warehouse, now: int, target: str | None = None, context: Mapping[str, Any] | None = None
) -> Passed:
    """Send the alerts of a warehouse (:func:`spark_jobs.operations.alerts.pass_alerts`). Raises nothing.

    Parameters
    ----------
    warehouse, now
        As for the pass.
    target
        Where alerts go. None takes the setting; without one nothing is read or sent.
    context
        What Airflow's notifiers get in addition.
    """
    try:
        target = target or settings().notify
        if target is None:
            return Passed()
        keep_secret({"notify": target})
        # what is raised is stored also if nothing can send it
        return pass_alerts(warehouse, now, lambda alerts: sender(target, context or {})(alerts))
    except Exception as error:  # a run has done its work, whatever becomes of its alerts
        return Passed(problems=(undelivered(error),))
