"""The routes of the API, and their OpenAPI document (``/api/v1/openapi.json``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from heddle.api.models import (
    DEFAULT_ROWS,
    MOST_ROWS,
    PROBLEM,
    AnswerList,
    LatestKeys,
    NewestList,
    QueryList,
    responses,
)
from heddle.api.problems import problem
from heddle.api.requests import RefusedRequest, wants_arrow
from heddle.api.service import AnswerService, Reply, newest_matching, newest_of_keys
from heddle.api.values import UNUSABLE
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from spark_jobs.results.newest import NewestAnswers
from spark_jobs.results.relations import Relation

PLACE = "/api/v1"
"""Where ``heddle serve`` has the API."""

MOST_BODY = 1 << 20
"""Bytes of a request's body."""

_ABOUT = "Published answers of a Heddle warehouse. It only reads; docs/api.md has examples."


def build_api(root: Callable[[], str], token: str, memory: int) -> FastAPI:
    """The API of a warehouse, to be mounted at :data:`PLACE`; see :class:`heddle.api.service.AnswerService`."""
    api = FastAPI(
        title="Heddle", version=version("heddle"), description=_ABOUT, docs_url=None, redoc_url=None, servers=[]
    )
    service = AnswerService(root, token, memory)
    _add_routes(api, service)
    document = api.openapi
    api.openapi = lambda: _accurate(document(), bool(token))  # type: ignore[method-assign]
    api.add_exception_handler(HeddleError, _coded)
    api.add_exception_handler(HTTPException, _routed)
    api.add_exception_handler(Exception, _crashed)
    return api


def _add_routes(api: FastAPI, service: AnswerService) -> None:
    loop = asyncio.get_running_loop

    async def latest(query: str, make: Callable[[NewestAnswers, Relation], Response]) -> Response:
        answered: Response | None = await loop().run_in_executor(service.serving, service.warm, query, make)
        if answered is None:
            answered = await loop().run_in_executor(service.reading, service.cold, query, make)
        return answered

    @api.get("/queries", response_model=QueryList, responses=responses(QueryList, 401))
    async def queries(request: Request) -> Response:
        """All queries that a plan has had, with their columns."""
        _check_parameters(request)
        return await loop().run_in_executor(service.reading, service.queries, Reply(False, _none_match(request)))

    @api.get(
        "/answers/{query}",
        response_model=AnswerList,
        responses=responses(AnswerList, 400, 401, 404, 406, 410),
        openapi_extra={"parameters": _LISTED},
    )
    async def answers(query: str, request: Request) -> Response:
        """A page of a query's published answers, in the order of their windows, then groups."""
        pairs = request.query_params.multi_items()
        return await loop().run_in_executor(service.reading, service.answers, query, pairs, _reply(request))

    @api.get(
        "/answers/{query}/latest",
        response_model=NewestList,
        responses=responses(NewestList, 400, 401, 404, 406, 503),
        openapi_extra={"parameters": [_COLUMNS]},
    )
    async def newest(query: str, request: Request) -> Response:
        """The newest answer of each group that matches, at most 1,000."""
        return await latest(query, newest_matching(request.query_params.multi_items(), _reply(request)))

    @api.post(
        "/answers/{query}/latest",
        response_model=NewestList,
        responses=responses(NewestList, 400, 401, 404, 406, 413, 415, 503, is_conditional=False),
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _KEYS}}}},
    )
    async def newest_by_key(query: str, request: Request) -> Response:
        """The newest answer of each of up to 1,000 groups, in their order."""
        _check_parameters(request)
        return await latest(query, newest_of_keys(await _body(request), _reply(request)))


# ------------------------------------------------------------------------------------------- of a request
def _reply(request: Request) -> Reply:
    return Reply(wants_arrow(request.headers.get("accept")), _none_match(request))


def _none_match(request: Request) -> str | None:
    return request.headers.get("if-none-match")


def _check_parameters(request: Request) -> None:
    for name in request.query_params:
        raise HeddleError(UNUSABLE, f"there is no parameter {name[:80]!r} here", "leave it out")


async def _body(request: Request) -> bytes:
    """The body of a request, which is JSON. Raises HDL-630 (413, 415)."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise RefusedRequest(415, "the body is not JSON", "send Content-Type: application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY:
            raise RefusedRequest(413, f"the body is larger than {MOST_BODY:,} bytes", "ask for fewer keys at once")
    return bytes(body)


# ------------------------------------------------------------------------------------------- errors
async def _coded(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeddleError)
    return problem(error.diagnostic, error.status if isinstance(error, RefusedRequest) else None)


async def _routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = f"{PLACE}/openapi.json lists what there is"
    refusal = problem(Diagnostic(UNUSABLE, f"{error.detail}: {request.method} of this path", hint), error.status_code)
    refusal.headers.update(error.headers or {})
    return refusal


async def _crashed(request: Request, error: Exception) -> Response:
    return problem(Diagnostic("HDL-900", "the request failed in a way that was not foreseen", "see the server's log"))


# ------------------------------------------------------------------------------------------- OpenAPI
def _accurate(document: dict[str, Any], has_token: bool) -> dict[str, Any]:
    """The document without what FastAPI adds and the API never answers; errors under their own media type."""
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    for operation in operations:
        operation["responses"].pop("422", None)
        for status, response in operation["responses"].items():
            if int(status) >= 400 and "application/json" in response["content"]:
                response["content"] = {PROBLEM: response["content"]["application/json"]}
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _parameter(name: str, about: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema}


_COLUMNS: dict[str, Any] = _parameter(
    "columns",
    "Values of columns, by name: `?symbol=A`. A column that is there several times has one of the values.",
    type="object",
    additionalProperties={"type": "array", "items": {"type": "string"}},
) | {"style": "form", "explode": True}

_KEYS = LatestKeys.model_json_schema()

_LISTED = [
    _parameter("since", "Answers of instants after this.", type="string", format="date-time"),
    _parameter("until", "Answers of instants up to this.", type="string", format="date-time"),
    _parameter("limit", "The most rows of a page.", type="integer", minimum=1, maximum=MOST_ROWS, default=DEFAULT_ROWS),
    _parameter("cursor", "`next` of the page before.", type="string"),
    _COLUMNS,
]
