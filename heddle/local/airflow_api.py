"""A small client of Airflow's stable REST API (``/api/v2``), on the standard library alone.

Speaks to the embedded Airflow on loopback, where the simple auth manager gives a token without a password
(``simple_auth_manager_all_admins``).
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

RETRY_STATUS = frozenset({429, 500, 502, 503, 504})
"""Statuses that a busy Airflow 3.3 returns for requests that succeed a moment later (asset events of a run that is
still queued: 500; backfill creation while others write: 503).
"""


class AirflowApiError(Exception):
    """Airflow refused a request; ``status`` is the HTTP status (0: no answer at all)."""

    def __init__(self, status: int, method: str, path: str, body: str) -> None:
        self.status = status
        super().__init__(f"Airflow answered {status or 'nothing'} to {method} {path}: {body[:500]}")


class AirflowApi:
    """Requests to one Airflow.

    Parameters: ``base_url`` as ``http://127.0.0.1:8080``; ``timeout`` in seconds for one request;
    ``patience`` in seconds during which refusals in :data:`RETRY_STATUS` and lost connections of
    *reading* requests are tried again.
    """

    def __init__(self, base_url: str, timeout: float = 60.0, patience: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self.patience = patience
        self._token = ""

    def get(self, path: str) -> Any:
        """The JSON answer to ``GET path``; raises :class:`AirflowApiError`."""
        give_up = time.monotonic() + self.patience
        while True:
            try:
                return self._authorised("GET", path, None)
            except AirflowApiError as error:
                if (error.status and error.status not in RETRY_STATUS) or time.monotonic() > give_up:
                    raise
                time.sleep(1.0)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The JSON answer to ``POST path``; tried once, because a repeated POST may act twice."""
        return self._authorised("POST", path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        """The JSON answer to ``PATCH path``; tried once."""
        return self._authorised("PATCH", path, body)

    def _authorised(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        if not self._token:
            self._token = self._send("GET", "/auth/token", None, {})["access_token"]
        try:
            return self._send(method, path, body, {"Authorization": f"Bearer {self._token}"})
        except AirflowApiError as error:
            if error.status != 401:
                raise
            # The token has expired: a demo left open over night. Ask for a new one, once.
            self._token = self._send("GET", "/auth/token", None, {})["access_token"]
            return self._send(method, path, body, {"Authorization": f"Bearer {self._token}"})

    def health(self) -> dict[str, str]:
        """Component -> status (``healthy``, ``unhealthy`` or ``starting``), never an exception."""
        components = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        try:
            answer = self._send("GET", "/api/v2/monitor/health", None, {}, timeout=5.0)
        except AirflowApiError:
            return dict.fromkeys(("api_server", *components), "starting")
        parts = {name: str((answer.get(name) or {}).get("status") or "starting") for name in components}
        return {"api_server": "healthy", **parts}

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str],
        timeout: float | None = None,
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data=data, method=method)
        request.add_header("Accept", "application/json")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in headers.items():
            request.add_header(name, value)
        # Loopback: a proxy that the environment names must not be asked.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout or self.timeout) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise AirflowApiError(error.code, method, path, error.read().decode(errors="replace")) from error
        except (OSError, http.client.HTTPException) as error:
            raise AirflowApiError(0, method, path, str(error)) from error
        return json.loads(text) if text else None
