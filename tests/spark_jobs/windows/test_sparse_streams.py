"""Streams with gaps of decades and with outlying events: answers as the oracle's, cost and files linear in events.

What a run does is counted, never timed: files, folders, rows that say what is complete, instants that are enumerated,
events that are read. All of it is bounded by the number of events; the length of time between them occurs in no bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.synopses.synopsis import synopsis_of
from optimizer.windows import alignment, calendars
from optimizer.workload.instants import DAY, FAR_APART
from optimizer.workload.values import ACQ, LONG, SECOND, STRING, TIMESTAMP, Calendar, Source, Stream, Window, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.pipeline.run.partials_task import lift_task
from spark_jobs.results.read import read
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.clusters import Cluster, far_groups, grouped_clusters, of_times
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.ledger import REPEATED
from spark_jobs.streams.sources.replacements import disjoint
from spark_jobs.windows.finals import passes as passes_module
from spark_jobs.windows.finals.passes import Pass, TooLarge
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from tests import oracle
from tests.chaos.orders import in_process
from tests.in_process import Clock, heddle, without_spark
from tests.sizes import examples

HOUR = 3600 * SECOND
SCHEMA = (("ts", TIMESTAMP), ("k", STRING), ("v", LONG), ("id", LONG))
ARROW = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.int64()), ("id", pa.int64())])

QUERIES = {
    "daily": "SELECT k, count(*) AS n, sum(v) AS t FROM s WINDOW RANGE '2 days' SLIDE '1 day' ON ts GROUP BY k",
    "seconds": "SELECT count(*) AS n, max(v) AS high FROM s WINDOW RANGE '2 seconds' SLIDE '1 second' ON ts",
    "filtered": "SELECT count(*) AS n FROM s WINDOW RANGE '3 hours' SLIDE '1 hour' ON ts WHERE v > 5",
    "before": "SELECT sum(v) AS t FROM s WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING '7 days' AGO ON ts",
    "month": "SELECT k, avg(v) AS a FROM s WINDOW RANGE '1 month' SLIDE '1 month' IN 'Europe/Berlin' ON ts GROUP BY k",
    "local": "SELECT median(v) AS m FROM s WINDOW RANGE '1 day' SLIDE '1 day' IN 'America/New_York' ON ts",
    "so_far": "SELECT count(*) AS n FROM s WINDOW CUMULATE '1 day' STEP '1 hour' ON ts",
    "rows": "SELECT sum(v) AS t, count(*) AS n FROM s WINDOW ROWS 3 SLIDE 1 ON ts",
    "rows_by_key": "SELECT k, max(v) AS high FROM s WINDOW ROWS 2 SLIDE 2 PARTITION BY k ON ts GROUP BY k",
    "pairs": "SELECT count(*) AS n FROM s PATTERN SEQ(a, b) ON k WINDOW RANGE '10 seconds' SLIDE '5 seconds' ON ts",
}
"""One query of each kind of window."""

NOWHERE_NEAR = ("0001-01-03", "0950-06-30T23:59:59", "1969-12-31T23:59:59", "1970-01-01", "1999-12-31T23:00:00")
USUAL = ("2013-07-01T00:00:00", "2013-07-02T10:00:00", "2015-07-02T10:00:00", "2024-02-29T12:00:00")
AHEAD = ("2038-01-19T03:14:07", "2600-05-05", "9999-12-20T23:59:59")
BEGIN, END = parse_instant("0001-01-02"), parse_instant("9999-12-30")

ENUMERATED = 40 * alignment.SPARE
"""Instants, edges and days that a run may enumerate for each query and event."""

CLOCKS = parse_instant("1970-02-01"), parse_instant("2199-12-01")
"""Between which instants the clocks of time zones are known."""

Event = tuple[int, str, int, int]
"""(microseconds, key, value, event id)"""


@dataclass
class Counts:
    """What a run did: ``enumerated`` instants, edges and days, the most at once, and in all."""

    enumerated: list[int] = field(default_factory=lambda: [0])


class _Counting:
    """NumPy, whose ranges are counted."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def arange(self, *given: Any, **named: Any) -> Any:
        numbers = np.arange(*given, **named)
        self.counts.enumerated.append(len(numbers))
        return numbers


@contextmanager
def counted() -> Iterator[Counts]:
    """Count what is enumerated of windows and calendars."""
    counts = Counts()
    with pytest.MonkeyPatch.context() as patch:
        for module in (alignment, calendars):
            patch.setattr(module, "np", _Counting(counts))
        yield counts


class World:
    """A stream in files that come one after the other, a warehouse, and the oracle."""

    def __init__(self, folder: Path, names: Sequence[str], format: str = "csv", event_id: str | None = None) -> None:
        self.folder, self.engine, self.events = folder, in_process(), list[Event]()
        (folder / "in").mkdir(parents=True)
        self.stream = Stream("s", Source(format, str(folder / "in")), SCHEMA, "ts", event_id=event_id)
        self.warehouse = Warehouse.open(folder / "house")
        parsed = parse("".join(f"-- name: {name}\n{QUERIES[name]};\n" for name in names), {"s": self.stream})
        assert not parsed.diagnostics, parsed.diagnostics
        self.queries: tuple[ACQ, ...] = parsed.queries
        plan = build_plan(Workload(parsed.queries, (self.stream,)), {"s": Fraction(1)}, "weave-share")
        self.version, _ = publish_plan(self.warehouse, plan)

    def write(self, events: Sequence[Event]) -> None:
        """One more file."""
        number = len(list((self.folder / "in").iterdir()))
        rows = [dict(zip(ARROW.names, event, strict=True)) for event in events]
        table = pa.Table.from_pylist([row | {"ts": None} for row in rows], ARROW)
        times = pa.array([event[0] for event in events], pa.int64()).cast(ARROW.field("ts").type)
        table = table.set_column(0, ARROW.field("ts"), times)
        path = self.folder / "in" / f"{number:03}.{self.stream.source.format}"
        if self.stream.source.format == "csv":
            texts = [f"{np.datetime64(event[0], 'us')}Z" for event in events]
            pacsv.write_csv(table.set_column(0, "ts", pa.array(texts)), path)
        else:
            pq.write_table(table, path)
        self.events += events

    def run(self, begin: int = BEGIN, end: int = END) -> RunRecord:
        return run(self.engine, self.warehouse, self.version, begin, end, f"{begin}/{end}", as_of=END, checks="none")

    def counting_events(self) -> list[Event]:
        """The events that count: the first of each id on a day, as files and rows stand."""
        if self.stream.event_id is None:
            return self.events
        first: dict[tuple[int, int], Event] = {}
        for event in self.events:
            first.setdefault((event[3], event[0] // DAY), event)
        return list(first.values())

    def wrong(self, begin: int = BEGIN, end: int = END) -> list[str]:
        """What differs from the oracle."""
        events = self.counting_events()
        columns: list[Any] = [list(column) for column in zip(*events, strict=True)]
        columns[0] = pa.array(columns[0], pa.int64()).cast(ARROW.field("ts").type)
        table = pa.table(columns, schema=ARROW)
        differences = []
        for query in load_plan(self.warehouse, self.version).workload.queries:
            ours, expected = read(self.warehouse, query.name), dict[oracle.Key, oracle.Row]()
            spans = [(begin, end)]
            if not query.window.is_regular:
                # the oracle enumerates these windows; before and after the years of CLOCKS it knows other offsets
                low, high = (begin, end) if query.window.calendar is None else CLOCKS
                near = [(max(at - 1, low), min(at + query.window.reach, high)) for at, *_ in events]
                spans = list(disjoint(near))
                inside = pc.and_(
                    pc.greater(ours["window_end"], pa.scalar(low, INSTANT)),
                    pc.less_equal(ours["window_end"], pa.scalar(high, INSTANT)),
                )
                ours = ours.filter(inside)
            for first, last in spans:
                expected |= oracle.answers(query, table, "ts", first, last)
            differences += [f"{query.name}: {line}" for line in oracle.compare(query, ours, expected)]
        return differences

    def files(self, table: str) -> list[Path]:
        return list((self.folder / "house" / table).rglob("*.parquet"))

    def marks(self) -> int:
        """Rows that say what is complete."""
        return sum(row["key"] is None for row in self.warehouse.rows("partials", ["key"]))


def clusters() -> st.SearchStrategy[list[list[Event]]]:
    """Files with few events, in clusters with gaps of up to ten thousand years."""
    anchors = st.lists(
        st.sampled_from((*NOWHERE_NEAR, *USUAL, *AHEAD)).map(parse_instant), min_size=2, max_size=5, unique=True
    )
    near = st.sampled_from((0, 1, SECOND, 7 * SECOND, 90 * SECOND, HOUR, 30 * HOUR))

    @st.composite
    def files(draw: st.DrawFn) -> list[list[Event]]:
        times = [at + draw(near) for at in draw(anchors) for _ in range(draw(st.integers(1, 3)))]
        keys, values = st.sampled_from("abc"), st.integers(-3, 30)
        # few ids: some repeat on a day, others on days that are far apart
        events = [(at, draw(keys), draw(values), draw(st.integers(0, 2))) for at in times]
        parts: list[list[Event]] = [[] for _ in range(draw(st.integers(1, 3)))]
        for event in events:
            parts[draw(st.integers(0, len(parts) - 1))].append(event)
        return [part for part in parts if part]

    return files()


def outlier(at: str, usual: int = 3) -> list[list[Event]]:
    """A file of events that follow one another, and one event elsewhere."""
    first = parse_instant("2013-07-01T23:59:58")
    return [
        [
            (parse_instant(at), "a", 7, 9),
            *((first + number * SECOND, "ab"[number % 2], 1, 1) for number in range(usual)),
        ]
    ]


SOME = st.lists(st.sampled_from(list(QUERIES)), min_size=3, max_size=4, unique=True)


@settings(max_examples=examples(3, 60), deadline=None)
@given(files=clusters(), names=SOME, format=st.sampled_from(("csv", "parquet")), has_ids=st.booleans())
@example(files=outlier("1970-01-01"), names=list(QUERIES), format="csv", has_ids=True)
@example(files=outlier("9999-12-20"), names=["daily", "rows", "month"], format="parquet", has_ids=True)
@example(files=outlier("0001-01-02"), names=["daily", "before", "so_far"], format="csv", has_ids=False)
def test_sparse_streams_are_answered_as_by_the_oracle_at_a_cost_of_their_events(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Event]], names: list[str], format: str, has_ids: bool
) -> None:
    folder = tmp_path_factory.mktemp("sparse")
    world = World(folder, names, format, "id" if has_ids else None)
    for events in files:
        world.write(events)
    with counted() as counts:
        record = world.run()
    assert record.status == "published" and world.wrong() == []
    events, queries = len(world.events), len(names)
    # what a day of fragments costs is predicted by a day of them
    assert sum(counts.enumerated) <= (ENUMERATED * events + 2 * DAY // SECOND) * queries
    # a day has a file a task and stage; a synopsis says of each day, and of each gap, that it is complete
    days = len({at // DAY for at, *_ in world.events})
    assert len({path.parent for path in world.files("partials")}) <= 2 * days + 2 * queries
    assert world.marks() <= 2 * queries * (2 * days + 2)
    assert len(world.files("partials")) <= 4 * (2 * days + 2 * queries)
    assert len(world.files("results")) <= sum(len(read(world.warehouse, query.name)) for query in world.queries)
    assert len(list((folder / "house" / REPEATED).glob("*"))) <= 4 * events
    assert record.rows_scanned <= 2 * events


def test_the_same_events_cost_the_same_however_far_apart_they_are(tmp_path: Path) -> None:
    done = []
    for years in (3, 30, 3000):
        world = World(tmp_path / str(years), ["daily", "seconds", "rows", "so_far"], event_id="id")
        for number in range(2):
            first = parse_instant("2001-05-05T10:00:00") + number * years * 365 * DAY
            world.write([(first + at * SECOND, "a", at, at) for at in range(3)])
        with counted() as counts:
            record = world.run()
        files = {table: len(world.files(table)) for table in ("partials", "results", REPEATED)}
        done.append((sum(counts.enumerated), world.marks(), record.rows_scanned, record.answers, files))
    assert done[0] == done[1] == done[2]


def test_a_late_outlier_is_read_for_its_own_days_alone(tmp_path: Path) -> None:
    world = World(tmp_path, ["daily", "filtered", "rows_by_key"])
    for day in range(6):
        first = parse_instant("2019-07-01") + day * 400 * DAY
        world.write([(first + at * HOUR, "ab"[at % 2], at, 0) for at in range(8)])
    before = world.run()
    assert before.rows_scanned == len(world.events)
    world.write([(parse_instant("1970-01-01"), "a", 9, 0), (parse_instant("2024-12-25T01:00:00"), "b", 9, 0)])
    again = world.run()
    assert world.wrong() == [] and again.narrow
    # what is numbered anew is counted apart: of windows of time the two late events alone are read
    assert again.rows_scanned <= 4


@given(
    times=st.lists(st.integers(-(20 * FAR_APART), 20 * FAR_APART), max_size=12),
    cuts=st.lists(st.integers(0, 11), max_size=3),
)
def test_clusters_are_the_events_between_gaps_that_no_window_spans(times: list[int], cuts: list[int]) -> None:
    edges = sorted({0, len(times), *(cut % (len(times) + 1) for cut in cuts)})
    parts = [np.array(times[low:high], dtype=np.int64) for low, high in pairwise(edges)]
    clusters = grouped_clusters(cluster for part in parts for cluster in of_times(part))
    groups: list[list[int]] = []
    for at in sorted(times):
        if groups and at - groups[-1][-1] <= FAR_APART:
            groups[-1].append(at)
        else:
            groups.append([at])
    assert clusters == tuple(Cluster(group[0], group[-1] + 1, len(group)) for group in groups)
    far, total = far_groups(clusters), len(times)
    assert all(cluster.events == 1 or 10 * cluster.events < total for cluster in far)
    assert sum(cluster.events for cluster in far) * 2 < total or not far


@given(
    window=st.sampled_from(
        [
            Window(3 * DAY, DAY),
            Window(90, 7, ago=1000),
            Window(DAY, HOUR, cumulative=True),
            Window(50, 10, at=(20, 60, 100, 70_000, 10**15)),
            Window.of_calendar(Calendar("Europe/Berlin", (1, "month"), (1, "month"))),
            Window.of_calendar(Calendar("America/New_York", (7, "day"), (1, "day"))),
        ]
    ),
    offsets=st.lists(st.integers(0, 4 * 10**7), min_size=1, max_size=6),
    scale=st.sampled_from((1, 10**6, 10**7)),
)
def test_instants_over_events_are_those_whose_windows_hold_them(window: Window, offsets: list[int], scale: int) -> None:
    moments = np.unique(np.array(offsets, dtype=np.int64) * scale)
    begin, end = int(moments[0]) - 5, int(moments[-1]) + 5 + window.reach
    if alignment.instants_between(window, begin, end) > 10**6:
        begin, end = int(moments[0]) - 5, int(moments[0]) + 10**6 * window.slide
    every = alignment.instants(window, begin, end)
    starts, ends = alignment.starts_of(window, every), every - window.ago
    holds = np.searchsorted(moments, starts) < np.searchsorted(moments, ends)
    instants = alignment.instants_over(window, moments, begin, end)
    assert set(every[holds].tolist()) <= set(instants.tolist()) <= set(every.tolist())
    assert (np.diff(instants) > 0).all()
    assert alignment.has_instant(window, begin, end) == (len(every) > 0)
    choice = alignment.Choice(window, ((begin, end),))
    assert len(choice) == len(every) and choice[range(len(choice))].tolist() == every.tolist()


# ------------------------------------------------------------------------------------------- one estimate
@pytest.mark.parametrize("instants", [2, 40])
def test_a_window_that_is_too_large_is_refused_without_trying_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instants: int
) -> None:
    events, most = 20_000, TaskMemory(1 << 22)
    stream = Stream("s", Source("parquet", str(tmp_path / "in.parquet")), SCHEMA, "ts")
    first = parse_instant("2013-07-01")
    times = pa.array(first + np.arange(events) * SECOND).cast(ARROW.field("ts").type)
    column = np.arange(events)
    pq.write_table(
        pa.table([times, pa.array(np.full(events, "a")), column, column], schema=ARROW), tmp_path / "in.parquet"
    )
    slide = events // instants
    text = (
        "-- name: small\nSELECT sum(v) AS t FROM s WINDOW RANGE '1 second' SLIDE '1 second' ON ts;\n"
        f"-- name: large\nSELECT sum(v) AS t FROM s WINDOW RANGE '{events} seconds' SLIDE '{slide} seconds' ON ts;"
    )
    queries = parse(text, {"s": stream}).queries
    synopsis = synopsis_of(stream, queries)
    begin, end = first - 2 * DAY, first + 3 * DAY
    task = lift_task(
        stream,
        splits_of(stream),
        [[FillRequest(synopsis, begin, end)]],
        str(tmp_path / "partials"),
    )
    paths = [str(tmp_path / "partials" / file.path) for file in task(range(1)) if isinstance(file, DataFile)]
    tried: list[str] = []
    divided = passes_module._divided

    def watched(piece: Any, *args: Any) -> Any:
        tried.extend(query.name for query in piece.queries)
        return divided(piece, *args)

    monkeypatch.setattr(passes_module, "_divided", watched)
    work = SynopsisWork(synopsis, queries, begin, end)
    outcomes = list(passes_module.passes(paths, frozenset(range(BUCKETS)), [work], begin, most))
    refused = [outcome.query for outcome in outcomes if isinstance(outcome, TooLarge)]
    answered = {
        query.name
        for outcome in outcomes
        if isinstance(outcome, Pass)
        for part in outcome.parts
        for query in part.queries
    }
    assert refused == ["large"] and answered == {"small"}
    assert tried.count("large") <= 12  # whatever the number of its instants


# ------------------------------------------------------------------------------------------- commands
def project(folder: Path, *files: Sequence[str]) -> None:
    """A project over CSV files with these times."""
    (folder / "in").mkdir()
    for number, times in enumerate(files):
        rows = "".join(f"{at},a,1,{number}\n" for at in times)
        (folder / "in" / f"{number}.csv").write_text(f"ts,k,v,id\n{rows}")
    schema = "{ts: timestamp, k: string, v: long, id: long}"
    source = "{format: csv, path: in}"
    (folder / "streams.yaml").write_text(f"streams:\n  s:\n    source: {source}\n    time: ts\n    schema: {schema}\n")
    (folder / "q.sql").write_text(f"-- name: daily\n{QUERIES['daily']};\n-- name: rows\n{QUERIES['rows']};\n")


def test_commands_name_what_is_far_and_refuse_an_interval_after_the_newest_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = ["2024-03-01T00:00:00Z", "2024-03-01T10:00:00Z", "2024-03-02T00:00:00Z"]
    project(tmp_path, ["1970-01-01T00:00:00Z", *usual], ["9999-12-31T23:59:59.999999Z"])
    arguments = ("q.sql", "--streams", "streams.yaml")
    with without_spark(Clock(parse_instant("2024-03-05"))):
        shown = heddle("preview", *arguments)
        assert shown.code == 0 and "2024-03-02" in shown.out and shown.err.count("HDL-475") == 2
        assert "1970-01-01T00:00:00Z" in shown.err and "1.csv" in shown.err
        assert heddle("streams", "--streams", "streams.yaml").err.count("HDL-475") == 2
        (tmp_path / "in" / "1.csv").unlink()
        arguments = (*arguments, "--warehouse", "house")
        first_run = heddle("run", *arguments, "--checks", "none")
        assert first_run.code == 2 and "HDL-477" in first_run.err and "2024-03-02T00:00:00Z" in first_run.err
        example = first_run.err.partition("e.g. heddle ")[2].split("\n")[0].split()
        assert example[:2] == ["run", "q.sql"] and "--checks" in example
        ran = heddle(*example)
        assert ran.code == 0 and "1 event at 1970-01-01T00:00:00Z" in ran.err
        later = ("--from", "2024-03-02T00:00:01", "--to", "2024-03-03", "--checks", "none")
        refused = heddle("run", *arguments, *later)
        assert refused.code == 2 and "HDL-476" in refused.err and "2024-03-02T00:00:00Z" in refused.err
        idle = heddle("run", *arguments, *later, "--allow-empty")
        assert idle.code == 0 and "HDL-413" in idle.err
        # what was published before is published again
        assert heddle("run", *arguments, *later).code == 0
        status = heddle("status", "--warehouse", "house", "--json")
        assert [warning["code"] for warning in json.loads(status.out)["warnings"]] == ["HDL-475"]


def test_only_the_newest_event_of_all_streams_counts_and_streams_without_one_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project(tmp_path, ["2024-03-01T00:00:00Z", "2024-03-01T10:00:00Z"])
    for name, times in (("late", ["2024-04-01T00:00:00Z"]), ("empty", [])):
        (tmp_path / f"{name}.csv").write_text("ts,k,v,id\n" + "".join(f"{at},a,1,0\n" for at in times))
        more = (tmp_path / "streams.yaml").read_text().partition("  s:\n")[2].replace("path: in", f"path: {name}.csv")
        with (tmp_path / "streams.yaml").open("a") as file:
            file.write(f"  {name}:\n{more.partition('  late:')[0]}")
        (tmp_path / f"{name}.sql").write_text(
            f"-- name: of_{name}\n{QUERIES['daily'].replace('FROM s', f'FROM {name}')};"
        )
    span = ("--from", "2024-03-05", "--to", "2024-03-06", "--checks", "none")

    def code(house: str, *files: str) -> int:
        return heddle("run", *files, "--streams", "streams.yaml", "--warehouse", house, *span).code

    with without_spark(Clock(parse_instant("2024-05-05"))):
        assert code("1", "q.sql") == 2
        assert code("2", "q.sql", "empty.sql") == 2
        assert code("3", "q.sql", "late.sql") == 0
        assert code("4", "empty.sql") == 0
