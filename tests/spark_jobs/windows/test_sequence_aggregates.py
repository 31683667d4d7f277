"""Event sequences from events to rows to answers, without Spark: what the differential test has too few events for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from optimizer.language.parser import parse
from optimizer.synopses.synopsis import Synopsis, synopses_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, LONG, SECOND, STRING, TIMESTAMP, Source, Stream
from spark_jobs.results.rows import group_values
from spark_jobs.store.settings import TaskMemory
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.sequences.answers import answered, joined, lowered
from spark_jobs.windows.sequences.encoding import decoded
from spark_jobs.windows.sequences.lifting import SequenceLifting
from spark_jobs.windows.sequences.stage import within
from tests.spark_jobs.sequence_finals import finals_of_sequences

STREAM = Stream(
    "reports",
    Source("parquet", "/reports"),
    (("ts", TIMESTAMP), ("street", STRING), ("vehicle", LONG), ("zone", STRING), ("toll", LONG)),
    "ts",
)
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("street", pa.string()),
        ("vehicle", pa.int64()),
        ("zone", pa.string()),
        ("toll", pa.int64()),
    ]
)
HOUR = 3600 * SECOND
WINDOW = "WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts"


def query(text: str) -> ACQ:
    result = parse(text, {"reports": STREAM}, "w.sql")
    assert result.errors == ()
    return result.queries[0]


def counts(seq: Sequence[str], rest: str = "", select: str = "count(*) AS n", window: str = WINDOW) -> ACQ:
    return query(
        f"SELECT {select} FROM reports PATTERN SEQ({', '.join(seq)}) ON street PARTITION BY vehicle {window} {rest}"
    )


def events(rows: Sequence[tuple[int, str, int]], zone: str = "z", toll: int = 1) -> pa.RecordBatch:
    """Rows of (microseconds, street, vehicle)."""
    event_rows = [dict(zip(("ts", "street", "vehicle"), row, strict=True), zone=zone, toll=toll) for row in rows]
    return pa.RecordBatch.from_pylist(event_rows, SCHEMA)


def made_for(*queries: ACQ) -> Synopsis:
    (synopsis,) = synopses_of(STREAM, queries)
    return synopsis


def lifted(synopsis: Synopsis, batches: Sequence[pa.RecordBatch], end: int = DAY, begin: int = 0) -> pa.Table:
    lifting = SequenceLifting(STREAM, [FillRequest(synopsis, begin, end)])
    for batch in batches:
        lifting.add(batch)
    return pa.concat_tables(lifting.tables())


def answers(one: ACQ, rows: pa.Table, end: int = DAY, begin: int = 0) -> list[dict[str, Any]]:
    batches = finals_of_sequences(rows, made_for(one), [one], begin, end)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("length", [1, 30, 40])
def test_counts_beyond_64_bits_are_exact(length: int) -> None:
    query = counts(["A"] * length, select="count(*) AS n, count(A) AS a, sum(A.toll) AS t, avg(A.toll) AS mean")
    rows = lifted(made_for(query), [events([(second * SECOND, "A", 7) for second in range(100)], toll=3)])
    (row,) = answers(query, rows)
    matches = math.comb(100, length)
    assert row["texts"] == [str(matches), str(length * matches), str(3 * length * matches)]
    assert row["doubles"] == [3.0] and row["error"] is None


def test_what_exceeds_38_digits_says_so_and_nothing_else_suffers() -> None:
    query = counts(["A"] * 64, select="count(*) AS n, min(A.toll) AS least")
    other = replace(counts(["A", "A"]), name="other")
    batch = events([(second * SECOND, "A", 7) for second in range(200)])
    assert math.comb(200, 64) > 10**38
    rows = lifted(made_for(query, other), [batch])
    batches = finals_of_sequences(rows, made_for(query, other), [query, other], 0, DAY)
    huge, small = [row for part in batches for row in part.to_pylist()]
    assert huge["texts"] == [None] and "HDL-601 n does not fit" in huge["error"]
    assert huge["longs"] == [1]
    assert small["texts"] == [str(math.comb(200, 2))] and small["error"] is None


def test_a_threshold_on_what_exceeds_38_digits_is_told() -> None:
    query = counts(["A"] * 64, "HAVING count(*) < 5", select="max(A.toll) AS most")
    rows = lifted(made_for(query), [events([(second * SECOND, "A", 7) for second in range(200)])])
    (row,) = answers(query, rows)
    assert "HDL-601 HAVING" in row["error"] and row["longs"] == [None]


def test_rows_are_one_a_key_and_day_and_windows_reach_over_midnight() -> None:
    query = counts(["A", "B"], window="WINDOW RANGE '2 days' SLIDE '1 day' ON ts")
    batch = events([(HOUR, "A", 1), (2 * HOUR, "A", 1), (DAY + HOUR, "B", 1), (HOUR, "A", 2), (HOUR, "C", 3)])
    rows = lifted(made_for(query), [batch], end=2 * DAY)
    stored = [(row["key"], row["fragment_start"], row["fragment_end"]) for row in rows.to_pylist()]
    assert sorted(stored) == [('["1"]', 0, DAY), ('["1"]', DAY, 2 * DAY), ('["2"]', 0, DAY)]
    # a part that begins within a day needs that day's row
    assert len(within(rows, DAY // 2, 2 * DAY)) == 3 and len(within(rows, DAY, 2 * DAY)) == 1
    (row,) = answers(query, rows, end=2 * DAY, begin=DAY)
    assert row["texts"] == ["2"] and row["window_start"].day == 1


def test_tasks_may_lift_the_events_of_a_key_and_instant_in_any_pieces() -> None:
    query = counts(["A", "B"], select="count(*) AS n, sum(B.toll) AS t")
    synopsis = made_for(query)
    rows = [(10, "A", 1), (10, "A", 1), (20, "B", 1), (20, "B", 1), (20, "A", 1), (30, "B", 1)]
    expected_answers = answers(query, lifted(synopsis, [events(rows)]))
    pieces = [lifted(synopsis, [events([row])]) for row in reversed(rows)]
    assert answers(query, pa.concat_tables(pieces)) == expected_answers
    assert expected_answers[0]["texts"] == ["7", "7"]


def test_keys_are_added_up_to_groups_and_by_the_driver_where_there_are_none() -> None:
    grouped = counts(["A", "B"], "GROUP BY zone", select="zone, count(*) AS n, max(B.toll) AS most")
    batches = [
        events([(10, "A", vehicle), (20, "B", vehicle)], zone, toll)
        for vehicle, zone, toll in ((1, "x", 5), (2, "x", 9), (3, "y", 2))
    ]
    zone_answers = answers(grouped, lifted(made_for(grouped), batches))
    (zones,) = group_values(pa.array([row["key"] for row in zone_answers]), 1)
    assert [(zone, row["texts"], row["longs"]) for zone, row in zip(zones.to_pylist(), zone_answers, strict=True)] == [
        ("x", ["2"], [9]),
        ("y", ["1"], [2]),
    ]
    plain = counts(["A", "B"], select="count(*) AS n, max(B.toll) AS most")
    synopsis = made_for(plain)
    parts = [lifted(synopsis, [batch]) for batch in batches]
    several = [answered(synopsis, [plain], decoded(synopsis, part), 0, DAY)[0] for part in parts]
    ((_, lowered_answers),) = lowered(plain, synopsis, joined(several))
    (row,) = lowered_answers.rows().to_pylist()
    assert (row["key"], row["texts"], row["longs"]) == ("[]", ["3"], [9])


FUNNEL = [
    *[(10, "A", 1), (20, "B", 1), (30, "C", 1), (40, "C", 1)],  # the last step, twice
    *[(10, "A", 2), (10, "B", 2), (20, "B", 2)],
    *[(10, "B", 3), (20, "A", 3), (30, "C", 3)],  # the wrong order
    *[(10, "B", 4), (20, "C", 4)],
    *[(HOUR + 10, "A", 5)],
]


@pytest.mark.parametrize("zones", [1, 2])
def test_a_funnel_counts_the_keys_of_each_step_and_has_a_row_from_the_first_on(zones: int) -> None:
    steps = "reached(1) AS a, reached(2) AS b, reached(3) AS c, count(*) AS n, max(C.toll) AS most, sum(C.toll) AS t"
    funnel = counts(["A", "B", "C"], select=f"{steps}, reached(3) / reached(1) AS share")
    # keys of other groups of events, and of other tasks
    parts = [events([row for row in FUNNEL if row[2] % zones == part], toll=-7) for part in range(zones)]
    synopsis = made_for(funnel)
    several = [answered(synopsis, [funnel], decoded(synopsis, lifted(synopsis, [part])), 0, DAY)[0] for part in parts]
    ((_, lowered_answers),) = lowered(funnel, synopsis, joined(several))
    first, second = lowered_answers.rows().to_pylist()
    assert (first["longs"], first["texts"], first["doubles"]) == ([3, 2, 1, -7], ["2", "-14"], [1 / 3])
    assert (second["longs"], second["texts"], second["doubles"]) == ([1, 0, 0, None], ["0", None], [0.0])
    plain = counts(["A", "B", "C"])
    assert [row["texts"] for row in answers(plain, lifted(made_for(plain), [events(FUNNEL)]))] == [["2"]]


def test_an_event_at_the_time_of_another_does_not_lie_between() -> None:
    def counted(rows: list[tuple[int, str, int]]) -> list[str]:
        pairs = query(f"SELECT count(*) AS n FROM reports PATTERN SEQ(A, NOT B, C) ON street {WINDOW}")
        return [row["texts"][0] for row in answers(pairs, lifted(made_for(pairs), [events(rows)]))]

    pair = [(10, "A", 1), (20, "C", 1)]
    assert counted(pair) == counted([*pair, (10, "B", 1), (20, "B", 1), (5, "B", 1), (25, "B", 1)]) == ["1"]
    assert counted([*pair, (15, "B", 1)]) == []
    assert counted([*pair, (15, "B", 1), (15, "A", 1), (20, "C", 1)]) == ["2"]


def test_keys_that_take_too_much_memory_are_written_early() -> None:
    query = counts(["A"])
    batches = [events([(10 + at, "A", vehicle) for vehicle in range(11)]) for at in range(5)]
    pieces: list[pa.Table] = []
    lifting = SequenceLifting(STREAM, [FillRequest(made_for(query), 0, DAY)], TaskMemory(1 << 14), pieces.extend)
    for batch in batches:
        lifting.add(batch)
    assert len(pieces) > 1
    pieces += lifting.tables()
    assert answers(query, pa.concat_tables(pieces)) == answers(query, lifted(made_for(query), batches))


def test_events_without_time_and_of_other_types_are_left_out_and_counted() -> None:
    query = counts(["A", "B"])
    lifting = SequenceLifting(STREAM, [FillRequest(made_for(query), 0, DAY)])
    batch = events([(10, "A", 1), (20, "B", 1), (30, "C", 1)])
    missing = pa.RecordBatch.from_pylist([{"ts": None, "street": "A", "vehicle": 1}], SCHEMA)
    lifting.add(pa.concat_batches([batch, missing]))
    assert (lifting.inside, lifting.untimed) == (3, 1)
    (table,) = lifting.tables()
    assert len(table["longs"][0]) == 2 * 3  # time, type and count of two events


def test_means_of_integers_are_the_nearest_doubles() -> None:
    query = counts(["A", "A"], select="avg(A.toll) AS mean, sum(A.toll) AS t")
    tolls = [2**53 + 1, 2**53 + 3, 1]
    batches = [events([(second, "A", 1)], toll=toll) for second, toll in enumerate(tolls)]
    (row,) = answers(query, lifted(made_for(query), batches))
    assert row["texts"] == [str(2 * sum(tolls))]
    assert row["doubles"] == [float(Decimal(2 * sum(tolls)) / 6)]
