"""What a request asks for: parameters, the body of keys, the form of the answer. Raises coded errors (HDL-630)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from heddle.api.models import ARROW, DEFAULT_ROWS, MOST_KEYS, MOST_ROWS
from heddle.api.values import UNUSABLE, parse_json_values, parse_value
from optimizer.errors.diagnostics import HeddleError, meant
from spark_jobs.results.relations import Relation, RelationColumn
from spark_jobs.streams.sources.decoding import parse_instant

RESERVED = ("since", "until", "limit", "cursor")
"""Parameters of a listing. A column of such a name cannot be compared."""

Pairs = Sequence[tuple[str, str]]


class RefusedRequest(HeddleError):
    """HDL-630 with a status of its own."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(UNUSABLE, message, hint)
        self.status = status


@dataclass(frozen=True)
class ListingRequest:
    """Answers of instants in (since, until] that have one of the values of ``matching`` in each of its columns."""

    since: int | None
    until: int | None
    matching: Mapping[str, Sequence[Any]]
    limit: int
    cursor: str | None
    digest: str

    @classmethod
    def of(cls, pairs: Pairs, known: Relation) -> ListingRequest:
        """The request of some parameters. Raises HDL-114 and HDL-630."""
        own = {name: text for name, text in pairs if name in RESERVED}
        if sum(name in RESERVED for name, _ in pairs) > len(own):
            raise HeddleError(UNUSABLE, "since, until, limit or cursor is there twice", "give each of them once")
        since, until = (parse_instant(own[name]) if name in own else None for name in ("since", "until"))
        compared = [pair for pair in pairs if pair[0] not in RESERVED]
        matching = conditions(compared, known.columns)
        request = json.dumps([known.name, since, until, sorted(compared)])
        digest = hashlib.sha256(request.encode(errors="surrogatepass")).hexdigest()[:16]
        return cls(since, until, matching, _limit(own.get("limit")), own.get("cursor"), digest)


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_ROWS
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_ROWS):
        raise HeddleError(UNUSABLE, f"limit is {text[:80]!r}", f"write a whole number from 1 to {MOST_ROWS:,}")
    return int(text)


def conditions(pairs: Pairs, columns: Sequence[RelationColumn]) -> dict[str, list[Any]]:
    """The values that some columns may have. Raises HDL-630 for an unknown column and for a value of another type."""
    known = {column.name: column for column in columns}
    values: dict[str, list[Any]] = {}
    for name, text in pairs:
        values.setdefault(name, []).append(parse_value(text, _column(name, known)))
    return values


def _column(name: str, known: Mapping[str, RelationColumn]) -> RelationColumn:
    if name not in known:
        hint = meant(name[:80], known, "columns") or "the query has no group columns: leave it out"
        raise HeddleError(UNUSABLE, f"there is no column {name[:80]!r} to compare", hint)
    return known[name]


def group_columns(known: Relation) -> list[RelationColumn]:
    """The columns that name a group."""
    return [column for column in known.columns if column.role == "group"]


def keys_of_body(body: bytes, known: Relation) -> pa.Table:
    """The groups of a body ``{"keys": [{"column": value, …}, …]}``. Raises HDL-630."""
    columns, example = group_columns(known), '{"keys": [{"column": "value"}]}'
    try:
        content = json.loads(body, parse_constant=_refused_constant)
    except (ValueError, RecursionError) as error:
        raise HeddleError(UNUSABLE, "the body is not JSON", f"send {example}") from error
    keys = content.get("keys") if isinstance(content, dict) and len(content) == 1 else None
    if not isinstance(keys, list):
        raise HeddleError(UNUSABLE, "the body has no list of keys", f"send {example}")
    if len(keys) > MOST_KEYS:
        raise HeddleError(UNUSABLE, f"the body has {len(keys):,} keys", f"send at most {MOST_KEYS:,} at once")
    names = {column.name for column in columns}
    for number, key in enumerate(keys):
        if not isinstance(key, dict) or key.keys() != names:
            listed = ", ".join(sorted(names)) or "no column: {}"
            raise HeddleError(UNUSABLE, f"keys[{number}] is no object of the group columns", f"give it {listed}")
    arrays = {column.name: parse_json_values([key[column.name] for key in keys], column) for column in columns}
    # a query without groups has one
    return pa.table(arrays) if arrays else pa.table({"": pa.nulls(len(keys))})


def _refused_constant(name: str) -> Any:
    raise ValueError(name)


# --------------------------------------------------------------------------------------------- headers
def wants_arrow(accept: str | None) -> bool:
    """Return whether the answer is a stream of Arrow: JSON unless a client prefers Arrow. Raises HDL-630 (406)."""
    weights = {"json": 0.0, "arrow": 0.0}
    for part in (accept or "*/*").split(","):
        media, *parameters = (text.strip().lower() for text in part.split(";"))
        weight = _weight(parameters)
        if media in ("*/*", "application/*", "application/json"):
            weights["json"] = max(weights["json"], weight)
        if media == ARROW:
            weights["arrow"] = max(weights["arrow"], weight)
    if not any(weights.values()):
        raise RefusedRequest(406, "the answer can have none of the types of Accept", f"application/json or {ARROW}")
    return weights["arrow"] >= weights["json"]


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return min(max(float(parameter[2:]), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0


def has_current(none_match: str | None, tag: str) -> bool:
    """Return whether a client has the version that a tag names (If-None-Match)."""
    tags = [text.strip().removeprefix("W/") for text in (none_match or "").split(",")]
    return tag in tags or tags == ["*"]
