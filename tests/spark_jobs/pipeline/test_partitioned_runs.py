"""Runs over folders that are columns: the oracle's answers, whatever is pruned, and no event in a wrong folder lost."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import DATE, LONG, STRING, TIMESTAMP, Partition, Source, Stream, Workload
from spark_jobs.audit.unshared.duckdb_files import events_of
from spark_jobs.pipeline.planning.kept_plan import sources_of
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.history import note_refused, outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources import decoding, folders
from spark_jobs.streams.sources.exact_folders import misplaced_files
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import inspect
from spark_jobs.streams.sources.ledger import ledger
from spark_jobs.streams.sources.refusals import refusals
from tests import oracle
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY

LENGTH = 86_400_000_000
LATER = DAY + 100 * LENGTH
QUERIES = """
-- name: eu
SELECT count(*) AS n, sum(x) AS total FROM events WINDOW RANGE '1 day' SLIDE '12 hours' ON ts WHERE region = 'eu';
-- name: by_folder
SELECT day, region, count(*) AS n, max(x) AS most, min(day) AS first FROM events
WINDOW RANGE '2 days' SLIDE '1 day' ON ts WHERE region <> 'us' OR region IS NULL GROUP BY day, region;
"""
ALL = """
-- name: all
SELECT region, count(*) AS n FROM events WINDOW RANGE '1 day' SLIDE '1 day' ON ts GROUP BY region;
"""
TYPES = {"day": DATE, "region": STRING}


class Event(NamedTuple):
    """An event ``hour`` hours after the first day, in the folder of a ``day`` (a number) and a region."""

    hour: int
    day: int
    region: str | None
    x: int


@dataclass
class Lake:
    """A stream in folders by day and region, with exact days, and a warehouse over it."""

    folder: Path
    format: str = "parquet"
    partitions: tuple[Partition, ...] = (Partition("day", None, True), Partition("region"))
    folders: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.root = self.folder / "lake"
        source = Source(self.format, str(self.root), partitions=self.partitions, folders=self.folders)
        columns = {"year": LONG, "month": LONG, "day": LONG} if self.folders else TYPES
        self.stream = Stream("events", source, (("ts", TIMESTAMP), ("x", LONG), *columns.items()), "ts", **self.options)
        self.warehouse = Warehouse.open(self.folder / "warehouse")

    def path(self, day: int, region: str | None) -> Path:
        date = dt.date(2013, 7, 1) + dt.timedelta(days=day)
        if self.folders:
            return self.root / f"{date:%Y/%m/%d}"
        return self.root / f"day={date}" / f"region={'__HIVE_DEFAULT_PARTITION__' if region is None else region}"

    def write(self, events: Sequence[Event]) -> None:
        """A new file in each folder that has one of some events."""
        self.events += events
        for day, region in dict.fromkeys((event.day, event.region) for event in events):
            rows = [event for event in events if (event.day, event.region) == (day, region)]
            times = pa.array([DAY + event.hour * LENGTH // 24 for event in rows], pa.timestamp("us", "UTC"))
            table = pa.table({"ts": times, "x": pa.array([event.x for event in rows], pa.int64())})
            path, self.count = self.path(day, region) / f"{self.count}.{self.format}", self.count + 1
            path.parent.mkdir(parents=True, exist_ok=True)
            (pcsv.write_csv if self.format == "csv" else pq.write_table)(table, str(path))

    def plan(self, text: str = QUERIES) -> int:
        parsed = parse(text, {"events": self.stream})
        assert not parsed.diagnostics
        workload = Workload(parsed.queries, (self.stream,))
        return publish_plan(self.warehouse, build_plan(workload, {"events": Fraction(1)}, "weave-share"))[0]

    def run(self, version: int, first: int, last: int, **options: Any) -> RunRecord:
        """A run over the days [first, last)."""
        self.count += 1
        begin, end = DAY + first * LENGTH, DAY + last * LENGTH
        return run(in_process(), self.warehouse, version, begin, end, f"run {self.count}", as_of=LATER, **options)

    def repair(self, version: int) -> list[int]:
        """Answer what is outdated again, as often as something is; the days of it."""
        days = []
        while intervals := outdated(self.warehouse, LATER):
            for interval in intervals:
                days.append((interval.begin - DAY) // LENGTH)
                self.run(version, days[-1], (interval.end - DAY) // LENGTH)
            assert len(days) < 50
        note_refused(self.warehouse, version, LATER, "repair")
        return days

    def table(self) -> pa.Table:
        """All events, with the columns of their folders."""
        rows = self.events
        return pa.table(
            {
                "ts": pa.array([DAY + row.hour * LENGTH // 24 for row in rows], pa.timestamp("us", "UTC")),
                "x": pa.array([row.x for row in rows], pa.int64()),
                "day": pa.array([dt.date(2013, 7, 1) + dt.timedelta(days=row.day) for row in rows], pa.date32()),
                "region": pa.array([row.region for row in rows], pa.string()),
            }
        )

    def wrong(self, version: int, first: int, last: int) -> list[str]:
        """What differs from the oracle's answers for the days [first, last)."""
        differences = []
        for query in load_plan(self.warehouse, version).workload.queries:
            expected = oracle.answers(query, self.table(), "ts", DAY + first * LENGTH, DAY + last * LENGTH)
            differences += oracle.compare(query, read(self.warehouse, query.name), expected)
        return differences


@pytest.fixture(autouse=True)
def unaudited() -> Iterator[None]:
    with without_audit():
        yield


def codes(record: RunRecord) -> list[str]:
    return [str(diagnostic["code"]) for diagnostic in record.diagnostics]


REGIONS = st.sampled_from(["eu", "us", "a%20b", "ü", None])
EVENTS = st.lists(
    st.tuples(st.integers(0, 119), st.sampled_from([0, 0, 0, 0, 0, -1, 1, -3, 3]), REGIONS, st.integers(-9, 9)).map(
        lambda drawn: Event(drawn[0], max(drawn[0] // 24 + drawn[1], 0), drawn[2], drawn[3])
    ),
    min_size=1,
    max_size=12,
)


def unescaped(events: Sequence[Event]) -> list[Event]:
    return [event._replace(region="a b") if event.region == "a%20b" else event for event in events]


@pytest.mark.parametrize("format", ["csv", "parquet"])
@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=st.lists(EVENTS, min_size=1, max_size=3), days=st.permutations(range(5)))
def test_answers_are_the_oracles_whatever_folder_an_event_is_in(
    tmp_path_factory: pytest.TempPathFactory, format: str, batches: list[list[Event]], days: list[int]
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"), format)
    lake.write(batches[0])
    version = lake.plan()
    for number, day in enumerate(days):
        if 0 < number < len(batches):
            lake.write(batches[number])
        lake.run(version, day, day + 1)
    lake.repair(version)
    lake.events = unescaped(lake.events)
    assert lake.wrong(version, 0, 5) == []
    every = splits_of(lake.stream)
    audited = events_of(lake.stream, every, ["x", "day", "region"], [(0, LATER)]).to_pylist()
    assert sorted(map(str, audited)) == sorted(map(str, lake.table().select(["x", "day", "region"]).to_pylist()))


def listed_folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are listed from now on, below the lake."""
    seen: list[str] = []
    scandir = os.scandir

    def watched(path: Any) -> Any:
        seen.append(str(path).partition("/lake/")[2])
        return scandir(path)

    monkeypatch.setattr(folders.os, "scandir", watched)
    return seen


def a_week(regions: Sequence[str | None] = ("eu", "us")) -> list[Event]:
    return [Event(24 * day + hour, day, region, hour) for day in range(7) for hour in (0, 13) for region in regions]


@pytest.mark.parametrize("folders_", ["", "{year}/{month}/{day}"])
def test_a_run_lists_only_the_folders_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders_: str
) -> None:
    names = ("year", "month", "day") if folders_ else ("day",)
    partitions = tuple(Partition(name, None, True) for name in names)
    lake = Lake(tmp_path, "csv", partitions if folders_ else (*partitions, Partition("region")), folders_)
    lake.write(a_week())
    version = lake.plan(ALL.replace("region, ", "").replace("GROUP BY region", ""))
    below = [str(lake.path(day, "us").relative_to(lake.root)) for day in range(7)]
    seen = listed_folders(monkeypatch)
    lake.run(version, 3, 4)
    # its windows begin on day 2; and what lies next to days 2 and 3
    assert [day for day, folder in enumerate(below) if seen.count(folder)] == [1, 2, 3, 4]
    assert len(seen) == {"": 1 + 4 * 3, "{year}/{month}/{day}": 3 + 4}[folders_]
    assert len(ledger(lake.warehouse, lake.stream)) == 4 * (1 if folders_ else 2) * (2 if folders_ else 1)
    seen.clear()
    assert lake.repair(version) == [] and set(below) <= set(seen)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_event_in_a_wrong_folder_is_late_data(tmp_path: Path, format: str) -> None:
    lake = Lake(tmp_path, format)
    lake.write(a_week())
    # an event of day 2 in the folder of day 6, and one in that of day 3
    lake.write([Event(24 * 2 + 5, 6, "eu", 100), Event(24 * 2 + 5, 3, "eu", 10)])
    version = lake.plan()
    assert "HDL-486" in codes(lake.run(version, 2, 3))
    rows = [
        row
        for row in read(lake.warehouse, "eu").to_pylist()
        if row["window_end"].day == 4 and row["window_end"].hour == 0
    ]
    # what lies next to the day is read, what is far is not yet known
    assert [(row["n"], row["total"]) for row in rows] == [(3, 23)]
    assert lake.repair(version) == [2]
    assert lake.wrong(version, 2, 3) == []
    lake.run(version, 3, 7)
    assert lake.wrong(version, 2, 7) == [] and outdated(lake.warehouse, LATER) == []
    if format == "parquet":
        (warning,) = misplaced_files(lake.stream, splits_of(lake.stream))
        assert warning.code == "HDL-486" and "2 files" in warning.message
        assert "HDL-486" in [finding.code for finding in inspect(lake.stream, ["x"]).diagnostics]


def test_an_event_in_a_wrong_folder_is_left_out_and_counted_if_it_is_too_late(tmp_path: Path) -> None:
    lake = Lake(tmp_path, options={"allowed_lateness": LENGTH})
    lake.write(a_week())
    version = lake.plan()
    lake.run(version, 2, 3)
    lake.write([Event(24 * 2 + 5, 6, "eu", 100)])
    lake.events.pop()
    assert lake.repair(version) == [] and lake.wrong(version, 2, 3) == []
    (file,) = refusals(lake.warehouse)
    assert file.late == 1 and "day=2013-07-07" in file.path


def test_a_filter_on_a_folder_spares_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, partitions=(Partition("day"), Partition("region")))
    lake.write(a_week(("eu", "us", "a", None)))
    version = lake.plan()
    lake.run(version, 0, 1)
    read_files: list[str] = []
    reading = decoding.read_split

    def watched(stream: Stream, split: Any, *arguments: Any) -> Any:
        read_files.append(split.path)
        return reading(stream, split, *arguments)

    monkeypatch.setattr(decoding, "read_split", watched)
    record = lake.run(version, 1, 7)
    assert read_files and not any("region=us" in path for path in read_files)
    assert record.rows_scanned == len(read_files) * 2
    assert lake.wrong(version, 0, 7) == []
    # a query without the filter reads the others, and shares what is stored
    read_files.clear()
    version = lake.plan(QUERIES + ALL)
    lake.run(version, 0, 7)
    assert any("region=us" in path for path in read_files)
    assert lake.wrong(version, 0, 7) == []


def test_a_lake_that_is_moved_is_the_same(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write(a_week())
    version = lake.plan()
    lake.run(version, 2, 4)
    moved = tmp_path / "moved" / "lake"
    moved.parent.mkdir()
    lake.root.rename(moved)
    lake.root, lake.stream = moved, replace(lake.stream, source=replace(lake.stream.source, path=str(moved)))
    version = lake.plan()
    assert lake.repair(version) == []
    assert lake.run(version, 2, 4).rows_scanned == 0


def test_files_in_folders_that_are_not_listed_stay_known(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write(a_week())
    version = lake.plan()
    lake.run(version, 0, 1)
    known = set(ledger(lake.warehouse, lake.stream))
    lake.run(version, 5, 6)
    files = ledger(lake.warehouse, lake.stream)
    assert known < set(files) and all(file.is_here and len(file.moves) == 1 for file in files.all())
    # a file that has an event for the run is listed with its folder, however far that is
    lake.write([Event(24 * 6 + 1, 0, "eu", 7)])
    assert lake.repair(version) == []
    lake.run(version, 6, 7)
    lake.run(version, 1, 5)
    assert lake.wrong(version, 0, 7) == [] and lake.repair(version) == []


def test_files_that_went_are_noticed_by_a_repair(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write(a_week())
    version = lake.plan()
    lake.run(version, 0, 7)
    (file,) = lake.path(1, "eu").iterdir()
    file.unlink()
    lake.events = [event for event in lake.events if (event.day, event.region) != (1, "eu")]
    lake.run(version, 7, 8)
    assert lake.repair(version) == [0]
    assert lake.wrong(version, 0, 8) == []


def test_a_plan_holds_until_a_folder_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    lake.write(a_week())
    before = sources_of([lake.stream])
    seen = listed_folders(monkeypatch)
    lake.write([Event(3, 0, "eu", 1)])
    assert sources_of([lake.stream]) == before and len(seen) == 0
    lake.write([Event(24 * 8, 8, "eu", 1)])
    assert sources_of([lake.stream]) != before


def test_an_interval_after_all_events_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write(a_week())
    with pytest.raises(HeddleError, match="HDL-476.*2013-07-07T13:00:00Z"):
        lake.run(lake.plan(), 20, 21, allow_empty=False)
