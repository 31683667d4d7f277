"""Revisions of intervals whose dimensions change or whose events come late: exactly the answers that differ are new."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.windows.alignment import instants, starts_of
from optimizer.workload.attributes import attributes_in
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, LONG, TIMESTAMP, Dimension, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import narrowing
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.expressions import passed
from spark_jobs.streams.sources.late_events import ChangedWindows
from tests.chaos.orders import in_process
from tests.chaos.world import CLOCK, without_audit
from tests.joined_cases import (
    JoinedCase,
    as_read,
    joined_cases,
    joined_events,
    with_matches,
    with_stored_dimensions,
    without_rows,
    write_rows,
)
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, planned, stored
from tests.spark_jobs.kernels import ALGORITHMS
from tests.workloads import POOLS, SCHEMA, Case, spans_of

Answer = tuple[str, int, int | None, str]
"""(query, instant, position, key)"""


@dataclass
class Counted:
    """Checks of a test: revisions of single windows, answers in such windows that stayed, and that differed."""

    narrow: int = 0
    stayed: int = 0
    different: int = 0
    windows: int = 0


def answers(house: Warehouse) -> dict[Answer, tuple[str, str]]:
    """The published answers: what readers see of each, and the run that it is of."""
    columns = ["query", "instant", "position", "key", "window_start", "longs", "doubles", "texts", "error", "run_id"]
    return {
        (row["query"], micros(row["instant"]), row["position"], row["key"]): (
            # a list without elements is as one that is null
            repr([row[name] or None for name in columns[4:9]]),
            row["run_id"],
        )
        for row in house.rows("results", columns)
    }


def changed_rows(joined: JoinedCase, chance: random.Random) -> JoinedCase:
    """The case with other rows of its dimensions: some are gone, or have another value of some column."""
    for dimension in joined.case.stream.dimensions:
        stays = [chance.random() < 0.8 for _ in range(len(joined.rows[dimension.name]))]
        joined = without_rows(joined, dimension, stays)
        table = joined.rows[dimension.name]
        for column in chance.sample([name for name, _ in SCHEMA], chance.randint(1, len(SCHEMA))):
            pool, values = [*POOLS[column], None], table[column].to_pylist()
            values = [chance.choice(pool) if chance.random() < 0.7 else value for value in values]
            place = table.column_names.index(column)
            table = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
        joined = replace(joined, rows={**joined.rows, dimension.name: table})
    return joined


def write_dimensions(joined: JoinedCase) -> None:
    for dimension in joined.case.stream.dimensions:
        write_rows(joined.rows[dimension.name], Path(dimension.source.path), "parquet")


def expected_windows(before: JoinedCase, after: JoinedCase, begin: int, end: int) -> dict[str, list[int]]:
    """The instants in (begin, end] of each query whose windows hold an event that counts otherwise, event by event, of
    the events as DuckDB joins them."""
    stream, tables = after.case.stream, []
    for joined in (before, after):
        numbered = joined.case.events.append_column("number", pa.array(range(len(joined.case.events))))
        of_case = joined_events(replace(joined, case=replace(joined.case, events=numbered))).sort_by("number")
        tables.append(as_read(of_case.drop_columns(["number"]), stream))
    times = tables[0][stream.time].cast(pa.int64()).to_pylist()
    found = {}
    for query in after.case.workload.queries:
        joined_columns = attributes_in(stream, query.columns())
        changed = [
            at
            for at, is_changed in zip(times, _counts_otherwise(query, stream, tables), strict=True)
            if is_changed and joined_columns
        ]
        found[query.name] = [
            at
            for at in instants(query.window, begin, end).tolist()
            if any(starts_of(query.window, np.array([at]))[0] <= moment < at - query.window.ago for moment in changed)
        ]
    return {name: at for name, at in found.items() if at}


def _counts_otherwise(query: ACQ, stream: Stream, tables: list[pa.Table]) -> list[bool]:
    passes = [
        [True] * len(table) if query.filter is None else passed(query.filter, table, stream.types).tolist()
        for table in tables
    ]
    names = [name for name in query.columns(is_filtered=False) if name in attributes_in(stream, query.columns())]
    values = [list(zip(*([repr(each) for each in table[name].to_pylist()] for name in names))) for table in tables]  # noqa: B905
    return [
        was != now or (now and bool(names) and values[0][at] != values[1][at])
        for at, (was, now) in enumerate(zip(*passes, strict=True))
    ]


def reaching_seed(joined: JoinedCase, seed: int) -> int | None:
    """A seed of changes that reach a window; None: none of a few does."""
    for number in range(seed, seed + 10):
        changed = changed_rows(joined, random.Random(number))
        if expected_windows(joined, changed, joined.case.begin, joined.case.end):
            return number
    return None


@contextmanager
def watched() -> Iterator[list[ChangedWindows]]:
    """Collect what runs find that changed."""
    found: list[ChangedWindows] = []
    original = narrowing.change

    def change(*arguments: Any) -> ChangedWindows:
        found.append(original(*arguments))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrowing, "change", change)
        yield found


@dataclass
class History:
    """A warehouse of a case whose dimensions revise everything; it stands against one that computes all at once."""

    joined: JoinedCase
    folder: Path
    algorithm: str
    pieces: int
    counted: Counted
    fresh: int = 0

    def __post_init__(self) -> None:
        self.joined = with_stored_dimensions(self.joined, self.folder / "dimensions", ["parquet"])
        stream = self.joined.case.stream
        dimensions = tuple(replace(each, repair=73000 * DAY) for each in stream.dimensions)
        queries = self.joined.case.workload.queries
        case = replace(self.joined.case, workload=Workload(queries, (replace(stream, dimensions=dimensions),)))
        case = stored(case, self.folder / "source", "parquet")
        self.joined = replace(self.joined, case=case)
        self.house, self.version = planned(case, self.folder / "house", self.algorithm)
        self.run_all(self.house, self.version)

    @property
    def case(self) -> Case:
        return self.joined.case

    def run_all(self, house: Warehouse, version: int) -> None:
        for begin, end in spans_of(self.case, self.pieces):
            run(in_process(), house, version, begin, end, f"first {begin}")

    def come(self, name: str, events: pa.Table) -> None:
        """Let events come late."""
        pq.write_table(events, Path(self.case.stream.source.path) / f"{name}.parquet")
        case = replace(self.case, events=pa.concat_tables([self.case.events, events]))
        self.joined = replace(self.joined, case=case)

    def change(self, chance: random.Random) -> JoinedCase:
        """Change the dimensions; the case as it was."""
        former = self.joined
        self.joined = changed_rows(former, chance)
        write_dimensions(self.joined)
        return former

    def repair(self, name: str) -> None:
        """Repair the warehouse, and compare its answers with those that are computed from nothing."""
        before, is_narrow = answers(self.house), dict[tuple[int, int], bool]()
        for interval in outdated(self.house, CLOCK):
            record = run(
                in_process(), self.house, self.version, interval.begin, interval.end, f"{name} {interval.begin}"
            )
            assert record.radius is not None and record.radius["windows"] == interval.radius.windows
            is_narrow[interval.begin, interval.end] = record.narrow
            self.counted.narrow += record.narrow
            new = sum(run_id == record.run_id for _, run_id in answers(self.house).values())
            assert record.answers == new or not record.narrow
        assert outdated(self.house, CLOCK) == []
        self.fresh += 1
        other, version = planned(self.case, self.folder / f"fresh {self.fresh}", self.algorithm)
        self.run_all(other, version)
        after = answers(self.house)
        assert {key: values for key, (values, _) in after.items()} == {
            key: values for key, (values, _) in answers(other).items()
        }
        for key, (values, run_id) in after.items():
            span = next((low, high) for low, high in spans_of(self.case, self.pieces) if low < key[1] <= high)
            is_different = key not in before or before[key][0] != values
            if is_narrow.get(span, True):
                assert (run_id.startswith(name)) == is_different, key
                self.counted.different += is_different
                self.counted.stayed += span in is_narrow and not is_different


@pytest.mark.reduced
def test_exactly_the_answers_that_differ_are_of_a_new_revision() -> None:
    counted = Counted()

    @settings(DEAR, max_examples=examples(3, 100, slow=40))
    @given(joined_cases(4, 40), st.sampled_from(ALGORITHMS), st.integers(1, 3), st.integers(0, 1 << 20))
    def check(joined: JoinedCase, algorithm: str, pieces: int, seed: int) -> None:
        chance, events = random.Random(seed), joined.case.events
        is_late = [chance.random() < 0.2 for _ in range(len(events))]
        first, late = (
            events.filter(pa.array([each == is_chosen for each in is_late], pa.bool_())) for is_chosen in (False, True)
        )
        joined = with_matches(replace(joined, case=replace(joined.case, events=first)))
        reaching = reaching_seed(joined, seed)
        assume(reaching is not None)
        chances = (random.Random(reaching), chance)
        with TemporaryDirectory() as folder, without_audit():
            history = History(joined, Path(folder), algorithm, pieces, counted)
            for number, chance in enumerate(chances):
                former = history.change(chance)
                spans = spans_of(history.case, pieces)
                with watched() as found:
                    stale = {(each.begin, each.end) for each in outdated(history.house, CLOCK)}
                expected = [expected_windows(former, history.joined, begin, end) for begin, end in spans]
                known = [{name: at.tolist() for name, at in each.instants.items() if at is not None} for each in found]
                known = [{name: at for name, at in each.items() if at} for each in known]
                assert [each for each in known if each] == [each for each in expected if each]
                assert stale == {span for span, windows in zip(spans, expected, strict=True) if windows}
                counted.windows += sum(len(at) for windows in expected for at in windows.values())
                history.repair(f"changed {number}")
            history.come("late 1", late.slice(0, len(late) // 2))
            history.repair("late 1")
            history.change(chance)
            history.come("late 2", late.slice(len(late) // 2))
            history.repair("late 2")

    check()
    # test_dimension_changes.py has cases in which many answers of these windows stay
    assert counted.narrow and counted.windows, counted


TWO_JOINS = """
-- name: both
SELECT count(*) AS n FROM events JOIN a USING (k) JOIN b USING (k) WINDOW RANGE '1 day' ON ts WHERE a.x = 1 AND b.y = 1
"""

Pair = tuple[int, int]
"""The attributes (a.x, b.y) of the only key."""


@pytest.mark.parametrize(
    ("before", "now", "repairs", "is_reached"),
    [
        # passes with neither: each dimension alone would seem to change it
        ((1, 0), (2, 1), "ab", False),
        ((1, 0), (1, 1), "ab", True),
        ((2, 0), (1, 1), "ab", True),
        ((1, 1), (2, 0), "ab", True),
        # b changes nothing that is published, but its answers stand on what it was
        ((1, 1), (2, 0), "a", True),
        ((1, 1), (1, 0), "a", False),
        ((1, 0), (2, 0), "a", False),
    ],
)
def test_versions_of_two_dimensions_are_compared_as_answers_stand_on_them(
    before: Pair, now: Pair, repairs: str, is_reached: bool, tmp_path: Path
) -> None:
    def describe(values: Pair) -> None:
        for name, column, value in zip("ab", "xy", values, strict=True):
            pq.write_table(pa.table({"k": [7], column: [value]}), tmp_path / f"{name}.parquet")

    describe(before)
    dimensions = tuple(
        Dimension(
            name,
            Source("parquet", str(tmp_path / f"{name}.parquet")),
            ("k",),
            (("k", LONG), (column, LONG)),
            repair=73000 * DAY if name in repairs else 0,
        )
        for name, column in zip("ab", "xy", strict=True)
    )
    events = {"ts": pa.array([DAY, DAY + 1]).cast(pa.timestamp("us", "UTC")), "k": pa.array([7, 8])}
    (tmp_path / "events").mkdir()
    pq.write_table(pa.table(events), tmp_path / "events" / "1.parquet")
    columns = (("ts", TIMESTAMP), ("k", LONG))
    stream = Stream("events", Source("parquet", str(tmp_path / "events")), columns, "ts", dimensions=dimensions)
    parsed = parse(TWO_JOINS, {"events": stream})
    assert not parsed.diagnostics
    house = Warehouse.open(tmp_path / "house")
    plan = build_plan(Workload(parsed.queries, (stream,)), {"events": Fraction(1)}, "weave-share")
    version, _ = publish_plan(house, plan)
    run(in_process(), house, version, DAY, 2 * DAY, "first", checks="none")
    describe(now)
    assert [each.radius.windows for each in outdated(house, CLOCK)] == [1] * is_reached
    record = run(in_process(), house, version, DAY, 2 * DAY, "again", checks="none")
    assert (record.status, record.narrow) == (("published", True) if is_reached else ("unchanged", False))
    passes_now = now == (1, 1)
    assert bool(answers(house)) == (passes_now if is_reached else before == (1, 1))
