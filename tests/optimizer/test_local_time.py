"""Times by the clock of a zone: how they are written, and what they are."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.synopses import synopsis
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.notation import written
from optimizer.workload.values import DATE, LONG, STRING, TIMESTAMP, Call, Column, Literal, Source, Stream
from spark_jobs.audit.unshared.zones import changes_of
from spark_jobs.streams.sources.expressions import evaluate
from tests.calendars import micros, zone_of
from tests.workloads import ZONES

STREAM = Stream("events", Source("parquet", "events"), (("t", TIMESTAMP), ("d", DATE), ("n", LONG), ("s", STRING)), "t")
WINDOW = "FROM events WINDOW RANGE '1 day' ON t"


@given(st.sampled_from(ZONES), st.lists(st.integers(0, 7_000_000_000_000_000), min_size=1, max_size=20))
def test_clocks_show_what_the_standard_library_says(zone: str, instants: list[int]) -> None:
    rules: ZoneInfo = zone_of(zone)
    moments, offsets = changes_of(zone)
    # about the changes, too
    instants += [moment + by for moment in moments[:: max(1, len(moments) // 8)] for by in (-1, 0, 1)]
    batch = pa.table({"t": pa.array([*instants, None], pa.int64()).cast(pa.timestamp("us", "UTC"))})
    call = Call("at_zone", (Column("t"), Literal(zone, STRING)))
    shown = evaluate(call, batch, {"t": TIMESTAMP}).cast(pa.int64()).to_pylist()
    expected = []
    for instant in instants:
        local = datetime.fromtimestamp(instant // 1_000_000, UTC).astimezone(rules).replace(tzinfo=UTC)
        expected.append(micros(local) + instant % 1_000_000)
    assert shown == [*expected, None]
    by_audit = [at + offsets[int(np.searchsorted(moments, at, side="right"))] for at in instants]
    assert by_audit == expected


@pytest.mark.parametrize(
    "text",
    [
        "t AT TIME ZONE 'Europe/Berlin'",
        "from_utc_timestamp(t, 'Europe/Berlin')",
        "(t AT TIME ZONE 'Europe/Berlin')",
    ],
)
def test_ways_to_write_it_are_one(text: str) -> None:
    (query,) = parse(f"SELECT count(*) {WINDOW} WHERE hour({text}) = 8", {"events": STREAM}).queries
    assert query.filter is not None and written(query.filter) == "date_part('hour', t AT TIME ZONE 'Europe/Berlin') = 8"


@pytest.mark.parametrize(
    ("condition", "code", "hint"),
    [
        ("t AT TIME ZONE 'europe/berlin' > '2024-01-01'", "HDL-240", "Europe/Berlin"),
        ("t AT TIME ZONE s > '2024-01-01'", "HDL-240", "'Europe/Berlin'"),
        ("d AT TIME ZONE 'UTC' > '2024-01-01'", "HDL-203", "CAST"),
        ("n AT TIME ZONE 'UTC' > '2024-01-01'", "HDL-203", ""),
        ("from_utc_timestamp(t) > '2024-01-01'", "HDL-104", ""),
        ("from_utc_timestamp(t, s) > '2024-01-01'", "HDL-203", "write the value"),
    ],
)
def test_mistakes_are_coded(condition: str, code: str, hint: str) -> None:
    (error,) = parse(f"SELECT count(*) {WINDOW} WHERE {condition}", {"events": STREAM}).errors
    assert error.code == code and hint in error.hint


@pytest.mark.parametrize(
    "select",
    [
        "SELECT hour(t AT TIME ZONE 'Europe/Berlin') AS h, count(*) {} GROUP BY h",
        "SELECT count(*) {} WHERE hour(t AT TIME ZONE 'Europe/Berlin') = 8",
        "SELECT max(hour(t AT TIME ZONE 'Europe/Berlin')) {}",
        "SELECT max_by(n, t AT TIME ZONE 'Europe/Berlin') {}",
    ],
)
def test_another_edition_of_the_zones_makes_other_partials(select: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (query,) = parse(select.format(WINDOW), {"events": STREAM}).queries

    def fingerprint() -> str:
        (stored,) = synopses_of(STREAM, [query])
        return stored.fingerprint

    first = fingerprint()
    assert fingerprint() == first
    monkeypatch.setattr(synopsis, "edition", lambda zone: f"another of {zone}")
    assert fingerprint() != first
