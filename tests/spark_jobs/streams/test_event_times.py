"""What ``init``, ``validate``, ``streams`` and ``preview`` state about events is true, or called a sample."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.values import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream
from spark_jobs.operations.project import plan_project
from spark_jobs.operations.stream_profiles import profile_of
from spark_jobs.streams.sources import event_times as module
from spark_jobs.streams.sources.event_times import EventTimes, event_times
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import inspect
from tests.in_process import Clock, heddle, without_spark

BEGIN = 1_425_000_000 * SECOND
FAR_AHEAD = 7_258_118_400 * SECOND
"""The year 2200, which nanoseconds can state."""

SCHEMA = (("ts", TIMESTAMP), ("series", STRING), ("value", DOUBLE), ("number", LONG))
NANOSECONDS = pa.timestamp("ns")


@dataclass(frozen=True)
class DataFile:
    """Events of a file: their times in nanoseconds since 1970, or None; rows of a row group; whether the time column
    has statistics."""

    times: Sequence[int | None]
    group: int
    has_statistics: bool

    def table(self) -> pa.Table:
        """The events, with columns of few, no and many different values."""
        rows = len(self.times)
        columns = {
            "ts": pa.array(self.times, NANOSECONDS),
            "series": pa.array([None if at % 3 == 0 else f"s{at % 4}" for at in range(rows)], pa.string()),
            "value": pa.array([at / 2 for at in range(rows)], pa.float64()),
            "number": pa.array([(at * 7) % 5 - 2 for at in range(rows)], pa.int64()),
        }
        return pa.table(columns)


NEAR = st.integers(BEGIN * 1000, (BEGIN + 40 * DAY) * 1000)
TIMES = st.lists(st.one_of(NEAR, NEAR, NEAR, st.none(), st.just(FAR_AHEAD * 1000), st.just(-1)), max_size=12)
FILES = st.lists(st.builds(DataFile, TIMES, st.integers(1, 5), st.booleans()), min_size=1, max_size=4)


def written(folder: Path, files: Sequence[DataFile], format: str, unit: str) -> Stream:
    """Files of a stream: Parquet with timestamps or integers of a ``unit``, or CSV."""
    folder.mkdir()
    for number, file in enumerate(files):
        table, path = file.table(), folder / f"{number}.{format}"
        if format == "csv":
            texts = pc.strftime(table["ts"].cast(pa.timestamp("us"), safe=False), "%Y-%m-%dT%H:%M:%S")
            pcsv.write_csv(table.set_column(0, "ts", texts), path)
            continue
        if unit:
            factor = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
            counts = [None if time is None else time // factor for time in file.times]
            table = table.set_column(0, "ts", pa.array(counts, pa.int64()))
        names = [name for name in table.column_names if name != "ts" or file.has_statistics]
        pq.write_table(table, path, row_group_size=file.group, write_statistics=names)
    source = Source(format, str(folder), time_unit=unit or None)
    return Stream("metrics", source, SCHEMA, "ts")


def by_duckdb(stream: Stream) -> tuple[int | None, int | None, int, int]:
    """First and last time (microseconds), events with a time, and events without, of all rows."""
    path, unit = stream.source.path, stream.source.time_unit
    if stream.source.format == "csv":
        rows, time = f"read_csv('{path}/*.csv', all_varchar=true, header=true)", "epoch_ns(CAST(ts AS TIMESTAMP))"
    else:
        rows = f"read_parquet('{path}/*.parquet')"
        time = f"ts * { ({'s': 10**9, 'ms': 10**6, 'us': 1000, 'ns': 1}[unit]) }" if unit else "epoch_ns(ts)"
    query = f"SELECT min({time}), max({time}), count(ts), count(*) - count(ts) FROM {rows}"
    ((first, last, events, untimed),) = duckdb.connect().execute(query).fetchall()
    return (None if first is None else first // 1000, None if last is None else last // 1000, events, untimed)


def stated(times: EventTimes) -> tuple[int | None, int | None, int | None, int]:
    """The same of the times of a stream."""
    return times.first, times.last, times.rows, sum(times.untimed.values())


@given(files=FILES, shape=st.sampled_from([("csv", ""), *(("parquet", unit) for unit in ("", "s", "ms", "us", "ns"))]))
def test_times_are_those_of_all_rows(
    tmp_path_factory: pytest.TempPathFactory, files: list[DataFile], shape: tuple[str, str]
) -> None:
    stream = written(tmp_path_factory.mktemp("times") / "data", files, *shape)
    splits = splits_of(stream)
    for keeps in (False, True):
        times = event_times(stream, splits, keeps)
        assert stated(times) == by_duckdb(stream) and times.sample is None and times.problems == ()
        assert len(times.kept) + sum(span.rows or 0 for span in times.spans) == times.rows


@given(files=FILES)
def test_beyond_the_bounds_a_sample_is_called_one(
    tmp_path_factory: pytest.TempPathFactory, files: list[DataFile]
) -> None:
    stream = written(tmp_path_factory.mktemp("times") / "data", files, "parquet", "")
    first, last, events, untimed = by_duckdb(stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_ROWS", 6)
        times = event_times(stream, splits_of(stream))
    if times.sample is None:
        assert stated(times) == (first, last, events, untimed)
        return
    assert times.sample <= sum(len(file.times) for file in files)
    if times.first is not None and times.last is not None:
        assert first is not None and last is not None
        assert first <= times.first <= times.last <= last


@given(files=FILES, format=st.sampled_from(["csv", "parquet"]))
def test_columns_are_described_by_all_rows(
    tmp_path_factory: pytest.TempPathFactory, files: list[DataFile], format: str
) -> None:
    stream = written(tmp_path_factory.mktemp("times") / "data", files, format, "")
    profile = profile_of(stream)
    rows = pa.concat_tables(file.table() for file in files)
    assert not profile.is_sampled and profile.sample == len(rows)
    for column in profile.columns[1:]:
        query = f"SELECT count(DISTINCT {column.name}), min({column.name}), max({column.name}) FROM rows"
        ((distinct, least, greatest),) = duckdb.connect().execute(query).fetchall()
        nulls = rows[column.name].null_count
        assert column.distinct == distinct
        assert (column.least, column.greatest) == tuple("" if each is None else str(each) for each in (least, greatest))
        assert column.nulls == nulls / max(1, len(rows))


# ---------------------------------------------------------------------------------------- four commands
def commands_state() -> dict[str, dict[str, Any]]:
    """What each command states about the events in the folder ``data``, as programs read it."""
    with without_spark(Clock(FAR_AHEAD + DAY)):
        init = json.loads(heddle("init", "data", "--json").out)["streams"][0]
        validate = json.loads(heddle("validate", "--json").out)["streams"][0]
        streams = json.loads(heddle("streams", "--json").out)["streams"][0]
        preview = json.loads(heddle("preview", "--json").out)["queries"][0]
    return {"init": init, "validate": validate, "streams": streams, "preview": preview}


SHUFFLED = [(BEGIN + (at * 7919 % 1000) * 60 * SECOND) * 1000 + 999 for at in range(1000)]
SHAPES = {
    "shuffled": ("parquet", [DataFile(SHUFFLED, 100, True)]),
    "without statistics": ("parquet", [DataFile(SHUFFLED, 1000, False)]),
    "partial statistics": ("parquet", [DataFile(SHUFFLED[:500], 50, True), DataFile(SHUFFLED[500:], 70, False)]),
    "null times": ("parquet", [DataFile([None, *SHUFFLED, None], 100, True)]),
    "one far ahead": ("parquet", [DataFile([*SHUFFLED[:500], FAR_AHEAD * 1000, *SHUFFLED[500:]], 100, True)]),
    "shuffled text": ("csv", [DataFile(SHUFFLED, 1, True)]),
    "one far ahead, text": ("csv", [DataFile([*SHUFFLED, FAR_AHEAD * 1000], 1, True)]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_four_commands_agree(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    format, files = SHAPES[name]
    stream = written(tmp_path / "data", files, format, "")
    monkeypatch.chdir(tmp_path)
    for variable in ("WAREHOUSE", "STREAMS", "WORKLOAD"):
        monkeypatch.delenv(f"HEDDLE_{variable}", raising=False)
    commands = commands_state()
    first, last, events, _ = by_duckdb(stream)
    assert first is not None and last is not None
    newest = max(time for time in SHUFFLED) // 1000
    if format == "csv":
        newest = newest // SECOND * SECOND
    expected = {
        "events": events,
        "first": format_instant(first),
        "last": format_instant(last),
        "newest": format_instant(newest),
        "about": False,
    }
    for command in ("init", "validate", "streams"):
        assert {key: commands[command][key] for key in expected} == expected, command
    assert commands["preview"]["newest_event"] == expected["newest"]
    assert commands["preview"]["newest_event_sample"] is None


def test_four_commands_call_a_sample_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "data", SHAPES["without statistics"][1], "parquet", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    commands = commands_state()
    samples = {commands[name]["sample"] for name in ("init", "validate")}
    assert samples == {commands["streams"]["times_sample"], commands["preview"]["newest_event_sample"]} == {1000}
    assert len({commands[name]["newest"] for name in ("init", "validate", "streams")}) == 1
    assert "about from" in heddle("validate").out and "(a sample of 1,000 rows)" in heddle("validate").out


def test_an_event_far_ahead_decides_neither_the_window_nor_the_next_command(tmp_path: Path) -> None:
    written(tmp_path / "data", SHAPES["one far ahead"][1], "parquet", "")
    project = plan_project([tmp_path / "data"], tmp_path)
    (proposal,) = project.proposals
    assert proposal.span < 2 * DAY
    assert "1 event at 2200-01-01T00:00:00Z" in proposal.inspection.span_text
    assert "heddle run --from 2015-02-27 --to 2015-02-28" in project.next_steps


def test_what_statistics_tell_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(tmp_path / "data", SHAPES["shuffled"][1], "parquet", "")
    monkeypatch.setattr(module, "read_split", None)
    assert stated(event_times(stream, splits_of(stream))) == by_duckdb(stream)


def test_a_file_that_cannot_be_read_is_a_problem_and_the_rest_a_sample(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,value\n2015-03-05T10:00:00,1\nsoon,2\n")
    (tmp_path / "b.csv").write_text("ts,value\n2015-03-06T10:00:00,1\n")
    stream = Stream("m", Source("csv", str(tmp_path)), (("ts", TIMESTAMP), ("value", LONG)), "ts")
    times = event_times(stream, splits_of(stream))
    assert [problem.code for problem in times.problems] == ["HDL-404"] and "line 3" in times.problems[0].message
    assert times.sample == 1 and times.last == np.datetime64("2015-03-06T10:00:00", "us").astype(int)
    assert [problem.code for problem in inspect(stream, []).diagnostics] == ["HDL-404"]
