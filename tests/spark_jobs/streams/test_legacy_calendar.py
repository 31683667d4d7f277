"""Dates and timestamps that Spark wrote in its legacy calendar are read as the dates that were meant, or refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import DAY
from optimizer.workload.values import DATE, LONG, TIMESTAMP, Source, Stream
from spark_jobs.streams.sources.decoding import first_rows, read_split
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.legacy_calendar import CHANGE, shift
from tests.sizes import examples

SPARK_2 = {b"org.apache.spark.version": b"2.4.6"}
ANCIENT = {b"org.apache.spark.sql.parquet.row.metadata": b"{}"}
LEGACY = {b"org.apache.spark.version": b"4.2.0", b"org.apache.spark.legacyDateTime": b""}
SPARK_4 = {b"org.apache.spark.version": b"4.2.0", b"org.apache.spark.legacyINT96": b""}
OTHERS: dict[bytes, bytes] = {b"pandas": b"{}"}


def julian_days() -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Every day from 1582-10-04 back to 0001-01-01 of the Julian calendar, counted from 1970, and its date."""
    lengths = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    day, (year, month, of_month) = CHANGE - 1, (1582, 10, 4)
    while year > 0:
        yield day, (year, month, of_month)
        day, of_month = day - 1, of_month - 1
        if of_month == 0:
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            of_month = lengths[month - 1] + (month == 2 and year % 4 == 0)


def test_every_day_of_the_julian_calendar_keeps_its_date() -> None:
    """Against a calendar that is counted day by day; 29 February of 1500 and its like are 1 March, as in Spark."""
    days, dates = zip(*julian_days(), strict=True)
    moved = np.array(days) + shift(np.array(days))
    first = dt.date(1970, 1, 1).toordinal()
    for day, (year, month, of_month) in zip(moved.tolist(), dates, strict=True):
        if of_month not in (1, 2, 28, 29):
            continue
        expected = dt.date(year, month, 1) + dt.timedelta(of_month - 1)
        assert day + first == expected.toordinal(), (year, month, of_month)
    later = np.arange(CHANGE, CHANGE + 1000)
    assert (shift(later) == 0).all() and (np.diff(moved) <= 0).all()


def stream_of(path: Path, unit: str | None = None) -> Stream:
    columns = (("ts", TIMESTAMP), ("day", DATE), ("at", TIMESTAMP), ("v", LONG))
    return Stream("s", Source("parquet", str(path), time_unit=unit), columns, "ts")


def write(path: Path, days: list[int], said: dict[bytes, bytes], unit: str = "us", **options: Any) -> None:
    """A file with the same days, at 01:02:03, as times and as dates."""
    micros = pa.array([day * DAY + 3_723_000_000 for day in days], pa.int64())
    times = micros.cast(pa.timestamp("us")).cast(pa.timestamp(unit))
    dates = pa.array(days, pa.int32()).cast(pa.date32())
    table = pa.table({"ts": times, "day": dates, "at": times, "v": pa.array(range(len(days)), pa.int64())})
    pq.write_table(table.replace_schema_metadata(said), path, **options)


def read(path: Path, begin: int | None = None, end: int | None = None) -> list[tuple[Any, ...]]:
    stream = stream_of(path)
    rows = []
    for split in splits_of(stream):
        if begin is None or end is None or split.may_hold(begin, end):
            for batch in read_split(stream, split, ["day", "at"]):
                columns = [
                    batch.column(0).cast(pa.int64()),
                    batch.column(1).cast(pa.int32()),
                    batch.column(2).cast(pa.int64()),
                ]
                rows += list(zip(*(column.to_pylist() for column in columns), strict=True))
    return rows


@pytest.mark.parametrize("said", [SPARK_2, ANCIENT, LEGACY, SPARK_4, OTHERS], ids=["2", "2.0", "legacy", "4", "others"])
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    days=st.lists(st.integers(-719_100, 20_000) | st.integers(CHANGE - 12, CHANGE + 12), min_size=1, max_size=6),
    kind=st.sampled_from(["us", "ms", "int96"]),
)
def test_a_file_is_read_by_the_calendar_it_was_written_in(
    said: dict[bytes, bytes], days: list[int], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    options = {"use_deprecated_int96_timestamps": True} if kind == "int96" else {}
    write(path, days, said, "us" if kind == "int96" else kind, **options)
    numbers = np.array(days)
    moved = (numbers + shift(numbers)).tolist()
    dates = moved if said in (SPARK_2, ANCIENT, LEGACY) else days
    is_moved = said in (SPARK_2, ANCIENT) or said is (SPARK_4 if kind == "int96" else LEGACY)
    instants = [day * DAY + 3_723_000_000 for day in (moved if is_moved else days)]
    expected = list(zip(instants, dates, instants, strict=True))
    assert read(path) == expected
    stream = stream_of(path)
    (split,) = splits_of(stream)
    assert all(split.may_hold(instant, instant + 1) for instant in instants)
    rows = first_rows(stream, split, ["day"])
    assert rows is not None and rows.column("day").cast(pa.int32()).to_pylist() == dates
    # what is stored of a file stands, unless what it means is another now
    knows = kind != "int96" and is_moved
    proven = min(numbers) < CHANGE and (said in (SPARK_2, ANCIENT, LEGACY) or knows)
    assert ("moved dates" in split.identity) == proven


@pytest.mark.parametrize("kind", ["us", "int96"])
def test_a_timestamp_before_1900_of_another_zone_is_refused(kind: str, tmp_path: Path) -> None:
    metadata = SPARK_2 | {b"org.apache.spark.timeZone": b"America/Los_Angeles"}
    options = {"use_deprecated_int96_timestamps": True} if kind == "int96" else {}
    for day in (-150_000, -30_000):
        write(tmp_path / "a.parquet", [10, day], metadata, **options)
        with pytest.raises(HeddleError, match=r"HDL-418 .*column (ts|at) of .*a\.parquet has 1") as caught:
            read(tmp_path / "a.parquet")
        assert "America/Los_Angeles" in caught.value.hint
    write(tmp_path / "a.parquet", [10, -20_000], metadata, **options)
    assert len(read(tmp_path / "a.parquet")) == 2
    for zone in (b"UTC", b"Etc/UTC", b"Z", b"GMT"):
        write(tmp_path / "a.parquet", [-150_000], SPARK_2 | {b"org.apache.spark.timeZone": zone}, **options)
        assert [row[1] for row in read(tmp_path / "a.parquet")] == [-150_000 + int(shift(np.array([-150_000]))[0])]


def test_the_first_day_that_spark_2_knows_is_an_event_of_the_year_1(tmp_path: Path) -> None:
    """0001-01-01 of its calendar lies before the year 1 of ours: unmoved it would be no time."""
    days = pc.subtract(pa.scalar(-719_162), pa.scalar(2)).as_py()
    write(tmp_path / "a.parquet", [days], SPARK_2)
    assert read(tmp_path / "a.parquet")[0][0] == -719_162 * DAY + 3_723_000_000


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "INT96"])
def test_what_spark_writes_is_read_as_spark_reads_it(spark: Any, mode: str, kind: str, tmp_path: Path) -> None:
    names = ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite")
    chosen = {f"spark.sql.parquet.{name}": mode for name in names} | {"spark.sql.parquet.outputTimestampType": kind}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        texts = ("0001-01-01", "0099-02-28", "1500-03-01", "1582-10-04", "1582-10-15", "1899-12-31", "2020-02-29")
        rows = " UNION ALL ".join(
            f"SELECT TIMESTAMP'{text} 01:02:03' ts, DATE'{text}' day, TIMESTAMP'{text} 01:02:03' at, {at}L v"
            for at, text in enumerate(texts)
        )
        spark.sql(rows).coalesce(1).write.parquet(str(tmp_path / "t"))
    finally:
        for name in chosen:
            spark.conf.unset(name)
    frame = spark.read.parquet(str(tmp_path / "t")).selectExpr("unix_micros(ts)", "unix_date(day)", "unix_micros(at)")
    assert sorted(read(tmp_path / "t")) == sorted(tuple(row) for row in frame.collect())
