"""The tables of a warehouse: their columns, their partitions, the marker of its folder."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

PARTIALS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("fragment_start", pa.int64(), nullable=False),
        pa.field("fragment_end", pa.int64(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("shard", pa.int64()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("longs", pa.list_(pa.int64())),
        pa.field("doubles", pa.list_(pa.float64())),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("numbers", pa.binary()),
    ]
)
"""Rows of the partials table.

``key``: the group's values as a JSON list of texts. ``shard``: the signature of its tuples (bit i: predicate i).
Both are null in the rows that mark the complete fragments of a synopsis. ``bucket``: see :func:`buckets`.
``numbers``: if all states are numbers, those of ``longs`` and then those of ``doubles``, eight bytes each, the
lowest first. The lists are null then, because lists are slower to read.
"""

INSTANT = pa.timestamp("us", tz="UTC")

ANSWERS = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("window_start", INSTANT, nullable=False),
        pa.field("window_end", INSTANT, nullable=False),
        pa.field("instant", INSTANT, nullable=False),
        pa.field("position", pa.int64()),
        pa.field("key", pa.string(), nullable=False),
        pa.field("longs", pa.list_(pa.int64())),
        pa.field("doubles", pa.list_(pa.float64())),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("error", pa.string()),
    ]
)
"""One row per answer: of ``instant``, over the content [``window_start``, ``window_end``). The instant is the window's
end unless the window is historical.

``position``: the number of a window's first row, null for windows of time. ``key``: the group's values as a JSON
list of texts (:func:`group_values`). Outputs are in the list of their carrier, in the query's order
(:func:`places`); a list is null or empty if the query has no output of its carrier.
"""

RESULTS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        *ANSWERS,
        pa.field("plan_version", pa.int64(), nullable=False),
        pa.field("revision", pa.int64(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string()),
    ]
)
"""Answers for consumers, partitioned by ``day``: the UTC day of the microsecond before the instant. ``fingerprint``:
of the definition that answered the row (:attr:`optimizer.workload.values.ACQ.definition`); null in rows from before
there was one.
"""

MARKER = "heddle.json"

FORMAT = 2
"""Version of the tables' schemas. 2: partials have shards, results an instant and a position."""

LATER = ("source_files", "alerts")
"""Tables that came later than the format: older warehouses get them. No other table is recreated: one without its log
has lost its rows.
"""

COLUMNS = 3
"""Version of the columns that came later than the format, in tables whose rows tasks write. Warehouses with an older
version in their marker get them, and the tables of :data:`LATER`. 1: results have a fingerprint. 2: partials have
numbers. 3: there are alerts, also in a store.
"""

BREAKING = 2
"""The newest version of :data:`COLUMNS` whose rows earlier code cannot read. Only ``heddle upgrade --apply`` takes a
warehouse beyond it, later versions add what earlier code ignores, and opening a warehouse adds them.
"""

DELETED = "results/deleted"
"""The application of commits that delete answers by name (:mod:`spark_jobs.results.deletion`)."""

TOKEN_DIGITS = 20

HOUR = 3_600_000_000

INSTANT = pa.timestamp("us", tz="UTC")


def micros(moment: Any) -> int:
    """A moment of a table's row as microseconds since the epoch."""
    return int(pa.scalar(moment, INSTANT).value)


def moment(instant: int) -> Any:
    """Microseconds since the epoch as a table's row has them: the inverse of :func:`micros`."""
    return pa.scalar(instant, INSTANT).as_py()


READ = pa.struct(
    [("stream", pa.string()), ("begin", pa.int64()), ("end", pa.int64()), ("listed", pa.int64()), ("of", pa.string())]
)
"""The parts of a stream that decided published answers: events of [begin, end) (microseconds) of the files that its
ledger knew at the moment ``listed``, and the stream's declaration (``of``: a hash).
"""

TABLES: dict[str, tuple[pa.Schema, list[str]]] = {
    "workload_queries": (
        pa.schema(
            [
                pa.field("query", pa.string(), nullable=False),
                pa.field("fingerprint", pa.string(), nullable=False),
                pa.field("owner", pa.string()),
                pa.field("text", pa.string()),
                pa.field("definition", pa.string()),
                pa.field("event", pa.string(), nullable=False),
                pa.field("at", INSTANT, nullable=False),
                pa.field("plan_version", pa.int64()),
                pa.field("reason", pa.string()),
                pa.field("file", pa.string()),
            ]
        ),
        [],
    ),
    "stream_statistics": (
        pa.schema(
            [
                pa.field("stream", pa.string(), nullable=False),
                pa.field("interval_start", INSTANT, nullable=False),
                pa.field("interval_end", INSTANT, nullable=False),
                pa.field("rows", pa.int64(), nullable=False),
                pa.field("rate", pa.float64(), nullable=False),
                pa.field("groups_per_fragment", pa.float64()),
                pa.field("stage_cpu_seconds", pa.string()),
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("at", INSTANT, nullable=False),
            ]
        ),
        [],
    ),
    "sharing_plans": (
        pa.schema(
            [
                pa.field("plan_version", pa.int64(), nullable=False),
                pa.field("created_at", INSTANT, nullable=False),
                pa.field("created_by", pa.string()),
                pa.field("reason", pa.string()),
                pa.field("fingerprint", pa.string(), nullable=False),
                pa.field("stream", pa.string(), nullable=False),
                pa.field("tree", pa.string(), nullable=False),
                pa.field("query", pa.string(), nullable=False),
                pa.field("row", pa.string(), nullable=False),
            ]
        ),
        [],
    ),
    "publish_log": (
        pa.schema(
            [
                pa.field("interval_start", INSTANT, nullable=False),
                pa.field("interval_end", INSTANT, nullable=False),
                pa.field("revision", pa.int64(), nullable=False),
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("event", pa.string(), nullable=False),
                pa.field("plan_version", pa.int64(), nullable=False),
                pa.field("content", pa.string()),
                pa.field("answers", pa.int64()),
                pa.field("table_version", pa.int64()),
                pa.field("record", pa.string()),
                pa.field("at", INSTANT, nullable=False),
                pa.field("read", pa.list_(READ)),
            ]
        ),
        [],
    ),
    "quality_results": (
        pa.schema(
            [
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("interval_start", INSTANT, nullable=False),
                pa.field("interval_end", INSTANT, nullable=False),
                pa.field("check", pa.string(), nullable=False),
                pa.field("success", pa.bool_(), nullable=False),
                pa.field("detail", pa.string()),
                pa.field("at", INSTANT, nullable=False),
                pa.field("audited", pa.string()),
                pa.field("query", pa.string()),
                pa.field("owner", pa.string()),
                pa.field("kind", pa.string()),
                pa.field("severity", pa.string()),
                pa.field("observed", pa.float64()),
                pa.field("bound", pa.string()),
                pa.field("unexpected", pa.int64()),
                pa.field("sample", pa.string()),
                pa.field("revision", pa.int64()),
            ]
        ),
        [],
    ),
    "source_files": (
        pa.schema(
            [
                pa.field("stream", pa.string(), nullable=False),
                pa.field("identity", pa.string(), nullable=False),
                pa.field("path", pa.string(), nullable=False),
                pa.field("event", pa.string(), nullable=False),
                pa.field("arrived", INSTANT, nullable=False),
                pa.field("begin", INSTANT),
                pa.field("end", INSTANT),
                pa.field("refused", pa.string(), nullable=False),
                pa.field("late", pa.int64(), nullable=False),
                pa.field("at", INSTANT, nullable=False),
                pa.field("stamps", pa.string()),
                pa.field("commit", pa.string()),
                pa.field("changed", pa.string()),
                pa.field("listed", pa.string()),
                pa.field("seen", INSTANT),
                pa.field("declared", pa.string()),
                pa.field("clusters", pa.string()),
            ]
        ),
        [],
    ),
    "quarantine": (
        pa.schema(
            [
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("stream", pa.string(), nullable=False),
                pa.field("code", pa.string(), nullable=False),
                pa.field("rows", pa.int64(), nullable=False),
                pa.field("detail", pa.string()),
                pa.field("at", INSTANT, nullable=False),
            ]
        ),
        [],
    ),
    "alerts": (
        pa.schema(
            [
                pa.field("number", pa.int64(), nullable=False),
                pa.field("id", pa.string(), nullable=False),
                pa.field("event", pa.string(), nullable=False),
                pa.field("at", INSTANT, nullable=False),
                pa.field("until", INSTANT),
                pa.field("alert", pa.string()),
            ]
        ),
        [],
    ),
    "partials": (PARTIALS, ["day"]),
    "results": (RESULTS, ["day"]),
}
"""Schema and partition columns of each table."""
