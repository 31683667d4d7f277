"""The declaration digest: every key of streams.yaml is classified, and decides exactly if it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from optimizer.workload.declarations import declaration_digest, time_digest
from optimizer.workload.nested import Nested
from optimizer.workload.streams import SOURCE_KEYS, STREAM_KEYS, load_streams
from optimizer.workload.values import DOUBLE, LONG, STRING, Stream

DECIDING = {
    "stream": ("source", "time", "schema", "event_id"),
    "source": (
        *("format", "delimiter", "header", "quote", "null", "timestamp_format", "time_unit", "records"),
        *("options", "since", "watermark", "partitions", "zone"),
    ),
}
"""Keys of streams.yaml that decide what an event is."""

LOCATING = {"stream": (), "source": ("path", "table", "reader", "files")}
"""Keys that say where the events are and who reads them. Files and tables have identities of their own."""

SCHEDULING = {"stream": ("lateness", "step", "allowed_lateness", "levels", "expect"), "source": ()}
"""Keys that say when windows are answered, which late files are refused, how long partial aggregates are kept, and what
events are checked for."""

BASE: dict[str, Any] = {
    "source": {"format": "csv", "path": "data"},
    "schema": {"at": "timestamp", "sent": "timestamp", "id": "long", "x": "string", "y": "long"},
    "time": "at",
}
READ = ["x"]

CHANGED: dict[str, tuple[str, Any]] = {
    "time": ("time", "sent"),
    "schema": ("schema", BASE["schema"] | {"x": "double"}),
    "event_id": ("event_id", "id"),
    "lateness": ("lateness", "1 hour"),
    "step": ("step", "5 minutes"),
    "allowed_lateness": ("allowed_lateness", "1 day"),
    "levels": ("levels", {"keep_fine": "90 days"}),
    "expect": ("expect", ["y >= 0"]),
    "source": ("source", {"format": "parquet", "path": "data"}),
}
"""Of each key of a stream another value."""

SOURCES: dict[str, dict[str, Any]] = {
    "format": {"format": "parquet", "path": "data"},
    "path": {"format": "csv", "path": "elsewhere"},
    "delimiter": {"delimiter": ";"},
    "header": {"header": False},
    "quote": {"quote": "'"},
    "null": {"null": ["NA"]},
    "timestamp_format": {"timestamp_format": "%d/%m/%Y %H:%M"},
    "time_unit": {"time_unit": "ms"},
    "options": {"format": "json", "path": "data", "options": {"multiLine": "true"}},
    "since": {"format": "json", "path": "data", "since": "2026-01-01"},
    "records": {"format": "json", "path": "data", "records": "features"},
    "watermark": {"format": "jdbc", "path": "jdbc:postgresql:x", "table": "a", "watermark": "id"},
    "zone": {"format": "jdbc", "path": "jdbc:postgresql:x", "table": "a", "zone": "Europe/Berlin"},
    "table": {"format": "jdbc", "path": "jdbc:postgresql:x", "table": "b"},
    "reader": {"format": "parquet", "path": "data", "reader": "direct"},
    "files": {"files": "*.txt"},
    "partitions": {"partitions": ["x"]},
}
"""Of each key of a source one that differs from that of the same format without the key."""


def declared(tmp_path: Path, stream: dict[str, Any]) -> Stream:
    (tmp_path / "streams.yaml").write_text(yaml.safe_dump({"streams": {"s": stream}}, sort_keys=False))
    streams, diagnostics = load_streams(tmp_path / "streams.yaml", copies=str(tmp_path / "copies"))
    assert not diagnostics, diagnostics
    return streams["s"]


def test_every_key_is_classified() -> None:
    for keys, part in ((STREAM_KEYS, "stream"), (SOURCE_KEYS, "source")):
        classified = [*DECIDING[part], *LOCATING[part], *SCHEDULING[part]]
        assert sorted(classified) == sorted(keys), "a new key decides what an event is, where it is, or when it counts"
    assert set(CHANGED) == set(STREAM_KEYS) and set(SOURCES) == set(SOURCE_KEYS)


@pytest.mark.parametrize("key", list(STREAM_KEYS))
def test_a_key_of_a_stream_decides_as_it_is_classified(tmp_path: Path, key: str) -> None:
    name, value = CHANGED[key]
    before, after = declared(tmp_path, BASE), declared(tmp_path, BASE | {name: value})
    digests = [declaration_digest(stream, READ) for stream in (before, after)]
    assert (digests[0] != digests[1]) == (key in DECIDING["stream"])


@pytest.mark.parametrize("key", list(SOURCE_KEYS))
def test_a_key_of_a_source_decides_as_it_is_classified(tmp_path: Path, key: str) -> None:
    other = SOURCES[key]
    kind = {"format": other.get("format", "csv"), "path": "data"}
    kind = {"format": "jdbc", "path": "jdbc:postgresql:x", "table": "a"} if kind["format"] == "jdbc" else kind
    first = {"format": "csv", "path": "data"} if key == "format" else kind
    before, after = (declared(tmp_path, BASE | {"source": source}) for source in (first, first | other))
    digests = [declaration_digest(stream, READ) for stream in (before, after)]
    assert (digests[0] != digests[1]) == (key in DECIDING["source"])


def test_what_is_not_read_does_not_decide(tmp_path: Path) -> None:
    stream = declared(tmp_path, BASE)
    variants = [
        replace(stream, schema=tuple((name, DOUBLE if name == "y" else type) for name, type in stream.schema)),
        replace(stream, schema=(*stream.schema, ("z", STRING))),
        replace(stream, schema=tuple(reversed(stream.schema))),
        replace(stream, name="t"),
    ]
    for other in variants:
        assert declaration_digest(stream, READ) == declaration_digest(other, READ)
        assert time_digest(stream) == time_digest(other)
    for other in variants[:3]:
        columns = [[name for name, _ in variant.schema] for variant in (stream, other)]
        digests = [
            declaration_digest(variant, of, in_order=True) for variant, of in zip((stream, other), columns, strict=True)
        ]
        assert digests[0] != digests[1]


def test_without_a_header_the_places_of_the_columns_decide(tmp_path: Path) -> None:
    stream = declared(tmp_path, BASE | {"source": {"format": "csv", "path": "data", "header": False}})
    moved = replace(stream, schema=(*stream.schema[:2], *reversed(stream.schema[2:4]), *stream.schema[4:]))
    assert declaration_digest(stream, ["x"]) != declaration_digest(moved, ["x"])
    assert declaration_digest(stream, ["y"]) == declaration_digest(moved, ["y"])
    assert time_digest(stream) == time_digest(moved)


def test_the_event_id_does_not_decide_the_times(tmp_path: Path) -> None:
    stream = declared(tmp_path, BASE)
    assert time_digest(stream) == time_digest(replace(stream, event_id="id"))
    assert time_digest(stream) != time_digest(replace(stream, time="sent"))


def test_a_leaf_is_declared_by_what_it_lies_in(tmp_path: Path) -> None:
    stream = declared(tmp_path, BASE)
    nested = [
        Nested("array", (("element", LONG),)),
        Nested("map", (("key", LONG), ("value", LONG))),
        Nested("array", (("element", DOUBLE),)),
    ]
    streams = [replace(stream, nested=(("m", type),)) for type in nested]
    assert len({declaration_digest(variant, ["m[0]"]) for variant in streams}) == 3
    assert len({declaration_digest(variant, ["x"]) for variant in (stream, *streams)}) == 1
