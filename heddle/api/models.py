"""What the API takes and returns, for its OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ARROW = "application/vnd.apache.arrow.stream"
PROBLEM = "application/problem+json"

MOST_KEYS = 1_000
"""Groups that one request asks for."""

DEFAULT_ROWS, MOST_ROWS = 1_000, 100_000

Cell = bool | int | float | str | None
Row = dict[str, Cell]


class Model(BaseModel):
    """A JSON object with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class AnswerColumn(Model):
    """A column of a query's answers."""

    name: str
    type: str = Field(description="boolean, long, double, decimal(p,s), string, date, timestamp or binary")
    role: Literal["time", "position", "group", "output", "revision", "error"]
    description: str


class ApiQuery(Model):
    """A query that a plan has had."""

    query: str
    owner: str
    stream: str
    state: str | None = Field(description="running, paused, ended or removed; null if it was never registered")
    text: str
    columns: list[AnswerColumn]


class QueryList(Model):
    """All queries that a plan has had, by name."""

    queries: list[ApiQuery]


class AnswerList(Model):
    """A page of answers, in the order of their windows, then groups."""

    query: str
    snapshot: int = Field(description="the version of the results; all pages of a listing have the same")
    next: str | None = Field(description="the cursor of the next page; null: this is the last")
    rows: list[Row] = Field(description="every row has every column; a null is a value that is not known")


class NewestList(Model):
    """The newest answers of groups."""

    query: str
    snapshot: int = Field(description="the version of the results")
    newest: str | None = Field(description="the end of the newest window of any group; null without answers")
    rows: list[Row | None] = Field(
        description="GET: of the groups that match; POST: one for each key, in their order, null without an answer"
    )


class LatestKeys(Model):
    """The groups to look up, each with a value for every group column."""

    keys: list[Row] = Field(max_length=MOST_KEYS)


class ApiProblem(Model):
    """An error (RFC 9457), with its code in the documentation."""

    type: Literal["about:blank"] = "about:blank"
    title: str = Field(description="the meaning of the code")
    status: int
    code: str = Field(description="HDL- and three digits")
    message: str
    hint: str


_STATUSES = {
    400: "A parameter, a value, a cursor or the body cannot be used.",
    401: "The token is missing or wrong.",
    404: "There is no query of this name.",
    406: "Neither JSON nor Arrow is accepted.",
    410: "The snapshot of a cursor is gone.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    503: "The answers do not fit the server's memory.",
}


def responses(model: type[Model], *statuses: int, is_conditional: bool = True) -> dict[int | str, dict[str, Any]]:
    """The responses of an operation, for OpenAPI: ``model`` or a stream of Arrow, 304 if ``is_conditional``, errors."""
    arrow = {} if model is QueryList else {ARROW: {"schema": {"type": "string", "format": "binary"}}}
    described: dict[int | str, dict[str, Any]] = {200: {"model": model, "content": arrow}}
    if is_conditional:
        described[304] = {"description": "The client has it (If-None-Match)."}
    return described | {status: {"description": _STATUSES[status], "model": ApiProblem} for status in statuses}
