"""Errors of the API as documents (RFC 9457), each with its code."""

from __future__ import annotations

from fastapi.responses import Response

from heddle.api.models import PROBLEM, ApiProblem
from optimizer.errors.codes import CODES, http_status
from optimizer.errors.diagnostics import Diagnostic

OF_CLIENTS = ("HDL-114", "HDL-630", "HDL-631")
"""Codes of requests that cannot be used."""

NO_MEMORY = "HDL-901"


def problem(diagnostic: Diagnostic, status: int | None = None) -> Response:
    """The response of a finding. ``status``: None, that of its code; 500 for one that is not about the request."""
    code = diagnostic.code
    if status is None:
        declared = 503 if code == NO_MEMORY else http_status(code)
        status = 500 if declared == 400 and code not in OF_CLIENTS else declared
    title = CODES[code].meaning if code in CODES else code
    content = ApiProblem(title=title, status=status, code=code, message=diagnostic.message, hint=diagnostic.hint)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(content.model_dump_json(), status, headers, PROBLEM)
