"""Requests with a token, and those without, which are refused."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi.responses import PlainTextResponse, Response

from heddle.api.problems import problem
from optimizer.errors.diagnostics import Diagnostic

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class TokenGuard:
    """An app that answers requests with a token only: ``Authorization: Bearer TOKEN``, or, as browsers ask for it,
    Basic with the token as the password of any user."""

    def __init__(self, app: App, token: str) -> None:
        self.app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer a request, or refuse it with 401 (HDL-633)."""
        if scope["type"] != "http" or self._permits(scope):
            await self.app(scope, receive, send)
            return
        await self._refusal(scope["path"])(scope, receive, send)

    def _permits(self, scope: Scope) -> bool:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        kind, _, text = (values[0] if len(values) == 1 else b"").partition(b" ")
        presented = text.strip()
        if kind.lower() == b"basic":
            try:
                presented = base64.b64decode(presented, validate=True).partition(b":")[2]
            except ValueError:
                presented = b""
        elif kind.lower() != b"bearer":
            presented = b""
        return hmac.compare_digest(presented, self._token)

    @staticmethod
    def _refusal(path: str) -> Response:
        if path.startswith("/api/"):
            hint = "send Authorization: Bearer TOKEN"
            refusal = problem(Diagnostic("HDL-633", "the request has no token that permits it", hint))
            refusal.headers["WWW-Authenticate"] = 'Bearer realm="Heddle"'
            return refusal
        text = "HDL-633 the request has no token that permits it: sign in with any name, and the token as password"
        headers = {"WWW-Authenticate": 'Basic realm="Heddle", charset="UTF-8"', "Cache-Control": "no-store"}
        return PlainTextResponse(text, 401, headers)
