"""The responses of the API, made of the warehouse as it is now or as it was at a cursor."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
from deltalake import DeltaTable
from fastapi.responses import Response

from heddle.api.cursors import Cursor, signing_key
from heddle.api.models import ARROW, MOST_KEYS
from heddle.api.requests import ListingRequest, Pairs, conditions, group_columns, has_current, keys_of_body
from heddle.api.values import UNUSABLE, arrow_stream, json_rows
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import format_instant
from spark_jobs.operations.queries import list_queries
from spark_jobs.results.newest import NewestAnswers, NewestCache, Version
from spark_jobs.results.relations import Relation, Relations, unknown
from spark_jobs.results.snapshot import AnswerSnapshot, Resume, definition_digest, matching_rows
from spark_jobs.store.warehouse.plans import definitions
from spark_jobs.store.warehouse.warehouse import Warehouse

LONGEST_NAME = 200
"""Characters of a query's name that is looked for."""

READERS = 2
"""Requests at once that read tables; as many others are answered from memory."""

GONE = ("HDL-543", "HDL-544")
"""Codes of files and logs that are not there."""


@dataclass(frozen=True)
class Opened:
    """The warehouse as of a version of its tables. Threads do not share one."""

    warehouse: Warehouse
    results: DeltaTable
    version: Version
    relations: Relations

    def known(self, query: str) -> Relation:
        """A query's relation. Raises HDL-507."""
        if query not in self.relations:
            raise unknown(query[:LONGEST_NAME], self.relations if len(query) <= LONGEST_NAME else {})
        return self.relations[query]

    def snapshot(self, query: str) -> AnswerSnapshot:
        """The answers of a query. Raises HDL-507."""
        return AnswerSnapshot(self.warehouse, self.results, self.relations, self.known(query).name)


@dataclass(frozen=True)
class Reply:
    """The form of a response by its request's headers: whether Arrow, and what the client has (If-None-Match)."""

    is_arrow: bool
    none_match: str | None


class AnswerService:
    """Responses of one warehouse. Its methods are called in the threads of ``reading`` and ``serving``.

    ``root``: returns the warehouse's place; ``token``: that of the server, empty: none; ``memory``: bytes that the
    newest answers in memory may take.
    """

    def __init__(self, root: Callable[[], str], token: str, memory: int) -> None:
        self._root, self._token, self._newest = root, token, NewestCache(memory)
        self._lock = threading.Lock()
        self._relations: tuple[tuple[str, int], Relations] | None = None
        self.reading = ThreadPoolExecutor(READERS, "heddle-api-reading")
        self.serving = ThreadPoolExecutor(READERS, "heddle-api-serving")

    # ------------------------------------------------------------------------------------------- responses
    def queries(self, reply: Reply) -> Response:
        """All queries that a plan has had."""
        opened = self._opened()
        listed = {each.name: each for each in list_queries(opened.warehouse, time.time_ns() // 1000)}
        states = [f"{name} {each.state}" for name, each in listed.items()]
        tag = _tag("queries", str(opened.version[::2]), *states)
        if has_current(reply.none_match, tag):
            return _unchanged(tag)
        shown = []
        for name in opened.relations:
            known, registered = opened.relations[name], listed.get(name)
            columns = [
                {"name": each.name, "type": str(each.type), "role": each.role, "description": each.description}
                for each in known.columns
            ]
            state = None if registered is None else registered.state
            facts = {"query": name, "owner": known.owner, "stream": known.stream, "state": state}
            shown.append({**facts, "text": known.text, "columns": columns})
        return _response(json.dumps({"queries": shown}), "application/json", tag)

    def answers(self, query: str, pairs: Pairs, reply: Reply) -> Response:
        """A page of a query's answers, of the snapshot of its cursor or of now."""
        opened = self._opened()
        snapshot = opened.snapshot(query)
        request = ListingRequest.of(pairs, snapshot.known)
        key, first = signing_key(self._token, opened.version[0]), None
        try:
            if request.cursor is not None:
                cursor = Cursor.of(request.cursor, key)
                snapshot, first = _resumed(snapshot, cursor, request), Resume(cursor.after, cursor.rows)
            digest = snapshot.digest(request.since, request.until)
            tag = _tag(digest, request.digest, str(request.limit), request.cursor or "", str(reply.is_arrow))
            if has_current(reply.none_match, tag):
                return _unchanged(tag)
            page = snapshot.page(request.limit, request.since, request.until, request.matching, first)
        except HeddleError as error:
            if request.cursor is None or error.code not in GONE:
                raise
            raise _gone(str(error.diagnostic.message)) from error
        following, link = None, None
        if page.following is not None:
            place = (snapshot.version, definition_digest(snapshot.known), request.digest, *page.following)
            following = Cursor(*place).text(key)
            parameters = [*((name, text) for name, text in pairs if name != "cursor"), ("cursor", following)]
            link = f'<?{urlencode(parameters, errors="replace")}>; rel="next"'
        facts = {"query": query, "snapshot": snapshot.version, "next": following}
        return _table(snapshot.known, page.rows, facts, reply, tag, link)

    def warm(self, query: str, make: Callable[[NewestAnswers, Relation], Response]) -> Response | None:
        """A response of a query's newest answers in memory; None if they have to be read."""
        opened = self._opened()
        known = opened.known(query)
        newest = self._newest.cached(query, opened.version)
        return None if newest is None else make(newest, known)

    def cold(self, query: str, make: Callable[[NewestAnswers, Relation], Response]) -> Response:
        """A response of a query's newest answers, which are read first."""
        opened = self._opened()
        snapshot = opened.snapshot(query)
        return make(self._newest.load(opened.version, snapshot), snapshot.known)

    # ------------------------------------------------------------------------------------------- what is stored
    def _opened(self) -> Opened:
        warehouse = Warehouse.open(self._root(), create=False)
        results = warehouse.table("results")
        # after the results: whatever answered a row was planned earlier
        plans = warehouse.table("sharing_plans")
        version = (str(results.metadata().id), int(results.version()), int(plans.version()))
        state = version[0], version[2]
        with self._lock:
            if self._relations is None or self._relations[0] != state:
                self._relations = state, Relations(definitions(warehouse), range(1 << 62))
            return Opened(warehouse, results, version, self._relations[1])


# ------------------------------------------------------------------------------------------- the newest answers
def newest_matching(pairs: Pairs, reply: Reply) -> Callable[[NewestAnswers, Relation], Response]:
    """The response of the groups that have these values in group columns; raises HDL-630 for more than 1,000."""

    def make(newest: NewestAnswers, known: Relation) -> Response:
        columns = group_columns(known)
        matching = conditions(pairs, columns)
        tag = _tag(newest.digest, *map(repr, sorted(pairs)), str(reply.is_arrow))
        if has_current(reply.none_match, tag):
            return _unchanged(tag)
        if len(matching) == len(columns) and all(len(values) == 1 for values in matching.values()):
            types = [known.schema.field(column.name).type for column in columns]
            names = [column.name for column in columns] or [""]
            values = [pa.array(matching[name], type) for name, type in zip(names, types, strict=False)]
            rows = newest.find(pa.table(values or [pa.nulls(1)], names=names))
            rows = rows.filter(rows["window_end"].is_valid())
        else:
            rows = matching_rows(newest.answers, matching)
        if len(rows) > MOST_KEYS:
            hint = f"name more group columns ({', '.join(column.name for column in columns)}), or list the answers"
            raise HeddleError(UNUSABLE, f"{len(rows):,} groups match; at most {MOST_KEYS:,} are returned", hint)
        # equal tags are of equal bytes, and DuckDB's groups are in any order
        in_order = rows.sort_by([(column.name, "ascending") for column in columns]) if columns else rows
        return _table(known, in_order, _facts(newest), reply, tag)

    return make


def newest_of_keys(body: bytes, reply: Reply) -> Callable[[NewestAnswers, Relation], Response]:
    """The response with a row for each key of a body."""

    def make(newest: NewestAnswers, known: Relation) -> Response:
        return _table(known, newest.find(keys_of_body(body, known)), _facts(newest), reply, None)

    return make


def _facts(newest: NewestAnswers) -> dict[str, Any]:
    moment = newest.newest
    end = None if moment is None else format_instant(moment)
    return {"query": newest.query, "snapshot": newest.version, "newest": end}


def _resumed(snapshot: AnswerSnapshot, cursor: Cursor, request: ListingRequest) -> AnswerSnapshot:
    """The snapshot of a cursor. Raises HDL-631 for that of another listing, HDL-632 if the query was redefined."""
    if cursor.request != request.digest:
        hint = "take `next` of the page before, with the same since, until and columns"
        raise HeddleError("HDL-631", "the cursor is of another listing", hint)
    if cursor.definition != definition_digest(snapshot.known):
        raise _gone(f"{snapshot.query} was redefined")
    if cursor.version == snapshot.version:
        return snapshot
    results = snapshot.warehouse.table("results", cursor.version)
    return AnswerSnapshot(snapshot.warehouse, results, snapshot.relations, snapshot.query)


def _gone(why: str) -> HeddleError:
    return HeddleError("HDL-632", f"the listing cannot go on: {why}", "begin again without a cursor")


# ------------------------------------------------------------------------------------------- forms of responses
def _table(
    known: Relation, rows: pa.Table, facts: dict[str, Any], reply: Reply, tag: str | None, link: str | None = None
) -> Response:
    """Rows as JSON, behind facts about them, or as Arrow, whose schema has the facts as metadata."""
    if reply.is_arrow:
        metadata = {f"heddle.{name}": str(value) for name, value in facts.items() if value is not None}
        return _response(arrow_stream(rows, metadata), ARROW, tag, link)
    return _response(_joined(facts, json_rows(known.columns, rows)), "application/json", tag, link)


def _joined(facts: dict[str, Any], rows: Iterable[str]) -> str:
    return f'{json.dumps(facts)[:-1]}, "rows": [{",".join(rows)}]}}'


def _tag(*parts: str) -> str:
    """A strong validator: everything that decides the bytes of a response."""
    return f'"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"'


def _headers(tag: str | None, link: str | None = None) -> dict[str, str]:
    headers = {"X-Content-Type-Options": "nosniff", "Vary": "Accept, Authorization"}
    headers |= {"Cache-Control": "no-store"} if tag is None else {"Cache-Control": "private, no-cache", "ETag": tag}
    return headers if link is None else headers | {"Link": link}


def _response(content: str | bytes, media: str, tag: str | None, link: str | None = None) -> Response:
    return Response(content, 200, _headers(tag, link), media)


def _unchanged(tag: str) -> Response:
    return Response(status_code=304, headers=_headers(tag))
