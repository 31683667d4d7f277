"""The JSON schema of ``streams.yaml``, for editors: made of what :mod:`optimizer.workload.streams` reads.

What it refuses is refused there too; not the other way round: which columns there are, or how long a duration is, a
schema does not know.
"""

from __future__ import annotations

from typing import Any

from optimizer.workload.formats import DECLARED, UNNAMED
from optimizer.workload.partitions import EXACT, MOST_PARTITIONS
from optimizer.workload.stated_expectations import MOST_STATED, STATED_KEYS
from optimizer.workload.streams import (
    DECIMAL,
    DIMENSION_KEYS,
    LEVELS_KEYS,
    MOST_DIMENSIONS,
    MOST_KEYS,
    MOST_NULLS,
    MOST_OPTIONS,
    READERS,
    SOURCE_KEYS,
    STREAM_KEYS,
    STREAM_NAME,
    TABLE,
    TIME_UNITS,
    TYPES,
)

URL = "https://json-schema.org/draft/2020-12/schema"

_ANY = {"type": ["string", "number", "boolean", "null"]}
"""A single value: YAML takes ``2013`` and ``yes`` for something else than text, streams do not."""

_MEANINGS = {
    "source": "Where the events are, and how they are written.",
    "time": "The column of the event time.",
    "schema": "Columns and their types. Default: as the files say.",
    "lateness": "How long runs wait for events that come late, e.g. 2 hours. Default: not at all.",
    "step": "Queries with SLIDE AT MOST are answered at multiples of it; a day is one. Default: 1 minute.",
    "allowed_lateness": "What comes later than this is left out until it is released. Default: nothing is.",
    "levels": "What is kept below the rows of complete days, months and years of long windows.",
    "keep_fine": "`heddle maintain` drops older partial aggregates where rows of days cover them, e.g. 90 days.",
    "expect": "What is expected of its events: sentences such as price >= 0 mostly 0.999, or mappings.",
    "event_id": "A column whose values name events, so that those that come again are left out.",
    "format": "What the files are.",
    "path": "A file, folder or table; relative to this file.",
    "delimiter": "Of CSV: one character between values, or tab.",
    "header": "Of CSV: whether the first line has the names.",
    "quote": "Of CSV: one character around values, or none.",
    "null": "Of CSV and JSON: the text, or texts, that mean null.",
    "records": "Of JSON: the keys, with dots between them, of the array whose elements are events.",
    "timestamp_format": "Of CSV and JSON: as strptime has it, e.g. %d/%m/%Y %H:%M.",
    "time_unit": "What an integer time counts since 1970.",
    "reader": "Who reads the events: Heddle itself where it can, itself alone, or Spark.",
    "table": "A table of Spark's catalogue, or of the database.",
    "options": "Credentials, or options of Spark's reader; ${NAME} is taken from the environment.",
    "watermark": "A column whose values grow as rows come in, by which later ones are known.",
    "zone": "Of databases: the time zone of timestamps that name none. Default: UTC.",
    "key": "The columns of the key: there is at most one row for a key, or for a key at a time.",
    "valid_from": "The column with the first instant at which a row is valid. Default: rows are valid at all times.",
    "valid_to": "The column with the first instant at which a row is no longer valid; null: it stays valid.",
    "repair": "How far back a change revises published answers, e.g. 30 days. Default: published answers stay.",
    "files": "A pattern of the names of the files that are read, e.g. *.parq. Default: the format's endings.",
    "partitions": "Columns in the names of folders (day=2024-01-31), each with a type, or exact: a part of the time.",
    "since": "Earlier events are not read: a day, or a moment in UTC.",
}
"""Descriptions of the keys that editors show."""


def streams_schema() -> dict[str, Any]:
    """The schema, as JSON values."""
    values: dict[str, Any] = dict.fromkeys({**STREAM_KEYS, **LEVELS_KEYS, **DIMENSION_KEYS, **SOURCE_KEYS}, _ANY)
    values["format"] = {"enum": list(DECLARED)}
    values["header"] = {"enum": [True, False, "true", "false"]}
    values["time_unit"] = {"enum": list(TIME_UNITS)}
    values["null"] = {"anyOf": [_ANY, {"type": "array", "items": _ANY, "maxItems": MOST_NULLS}]}
    decimal = rf"^\s*{_any_case(DECIMAL.pattern)}\s*$"
    plain_types = rf"^\s*({'|'.join(map(_any_case, TYPES))})\s*$"
    nested = rf"^\s*({'|'.join(map(_any_case, ('struct', 'map', 'array')))})\s*<[\s\S]*>\s*$"
    patterns = [{"type": "string", "pattern": pattern} for pattern in (plain_types, decimal, nested)]
    types = {"anyOf": [{"enum": list(TYPES)}, *patterns]}
    values["schema"] = {
        "type": "object",
        "additionalProperties": types,
        "propertyNames": {"minLength": 1, "maxLength": 255},
    }
    values["reader"] = {"enum": list(READERS)}
    value_lists = dict.fromkeys(("between", "in"), {"type": "array", "items": _ANY})
    keys = {key: value_lists.get(key, _ANY) for key in STATED_KEYS}
    mapping = {"type": "object", "properties": keys, "required": ["column"], "additionalProperties": False}
    expectation = {"anyOf": [{"type": "string"}, mapping]}
    values["expect"] = {"type": "array", "items": expectation, "minItems": 1, "maxItems": MOST_STATED}
    values["table"] = {"type": "string", "pattern": rf"^\s*{TABLE.pattern}\s*$"}
    values["files"] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^/]+$"}
    names = {"type": "array", "items": _ANY, "maxItems": MOST_PARTITIONS}
    by_name = {"type": "object", "additionalProperties": _ANY, "maxProperties": MOST_PARTITIONS}
    values["partitions"] = {"anyOf": [names, by_name, {"const": EXACT}]}
    values["options"] = {"type": "object", "additionalProperties": _ANY, "maxProperties": MOST_OPTIONS}
    values["source"] = _object(SOURCE_KEYS, values) | {"allOf": [_of_format(name) for name in DECLARED]}
    values["source"]["anyOf"] = [{"required": ["format"]}, {"required": ["table"]}]
    values["levels"] = _object(LEVELS_KEYS, values)
    streams = _named(_object(STREAM_KEYS, values))
    values["schema"] = {**values["schema"], "additionalProperties": {"anyOf": [{"enum": list(TYPES)}, *patterns[:2]]}}
    values["key"] = {"anyOf": [_ANY, {"type": "array", "items": _ANY, "minItems": 1, "maxItems": MOST_KEYS}]}
    dimensions = _named(_object(DIMENSION_KEYS, values)) | {"maxProperties": MOST_DIMENSIONS}
    return {
        "$schema": URL,
        "title": "Heddle: streams.yaml",
        "type": "object",
        "properties": {"streams": streams, "dimensions": dimensions},
        "required": ["streams"],
        "additionalProperties": False,
    }


def _named(value: dict[str, Any]) -> dict[str, Any]:
    """Values by names that streams, and dimensions, may have."""
    return {
        "type": "object",
        "patternProperties": {f"^{STREAM_NAME.pattern}$": value},
        "additionalProperties": False,
    }


def _object(keys: dict[str, bool], values: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: {"description": _MEANINGS.get(key, "")} | values[key] for key in keys},
        "required": [key for key, required in keys.items() if required],
        "additionalProperties": False,
    }


def _of_format(name: str) -> dict[str, Any]:
    """The keys that a source of a format has, and has not."""
    declared = DECLARED[name]
    other_keys = [key for key in SOURCE_KEYS if key not in ("format", *declared.keys)]
    then: dict[str, Any] = {"properties": dict.fromkeys(other_keys, False)}
    if declared.is_either:
        then["oneOf"] = [
            {"required": ["path"], "properties": {"table": False}},
            {"required": ["table"], "properties": {"path": False}},
        ]
    else:
        then["required"] = list(declared.required)
    is_it: dict[str, Any] = {"properties": {"format": {"const": name}}}
    if name != UNNAMED:
        is_it["required"] = ["format"]
    return {"if": is_it, "then": then}


def _any_case(pattern: str) -> str:
    """A pattern that letters of any case match: JSON Schema has no flag for that."""
    expanded, at = "", 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            expanded, at = expanded + pattern[at : at + 2], at + 2
            continue
        expanded += f"[{letter.upper()}{letter}]" if letter.isalpha() else letter
        at += 1
    return expanded
