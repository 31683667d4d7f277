"""Windows since the first event of a stream (RANGE UNBOUNDED): complete runs against the oracle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.windows.alignment import instants, starts_of
from optimizer.workload.values import ACQ, SECOND, Source, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.operations.audit import recompute_published
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.windows.loading import Reader
from spark_jobs.windows.partials import levels
from tests.lifetimes import DAY, lifetime_cases
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS, FAST, differences, kernel_answers
from tests.workloads import Case, arrow_schema, spans_of


@pytest.fixture
def eager() -> Iterator[None]:
    """Every window is long, and each day is closed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "LONG", 0)
        patch.setattr(levels, "BATCH", 1)
        yield


@settings(FAST, max_examples=examples(60, 1000))
@given(
    case=lifetime_cases(),
    algorithm=st.sampled_from(ALGORITHMS),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    homes=st.lists(st.integers(0, 2), max_size=4),
)
def test_shared_answers_are_those_of_the_oracle(case: Case, algorithm: str, cuts: list[int], homes: list[int]) -> None:
    """Under any plan, of any synopses, in whatever pieces events come."""
    assert differences(case, kernel_answers(case, algorithm, cuts, case.begin, case.end, homes)) == []


@settings(DEAR, max_examples=examples(12, 200, slow=40))
@given(
    generated=lifetime_cases(),
    format=st.sampled_from(("parquet", "parquet", "csv", "delta")),
    algorithm=st.sampled_from(ALGORITHMS),
    data=st.data(),
)
def test_published_answers_are_those_of_the_oracle(
    engine: Any,
    eager: None,
    tmp_path_factory: pytest.TempPathFactory,
    generated: Case,
    format: str,
    algorithm: str,
    data: st.DataObject,
) -> None:
    """Under any plan and any cut of the interval, in any order, with maintenance in between."""
    assume(expects_answers(generated))
    folder = tmp_path_factory.mktemp("lifetimes")
    case = stored(generated, folder / "source", format)
    warehouse, version = planned(case, folder / "warehouse", algorithm)
    first = pc.min(generated.events["ts"].cast(pa.int64())).as_py()
    for begin, end in data.draw(st.permutations(spans_of(case, data.draw(st.integers(1, 4))))):
        again = data.draw(st.integers(0, 4)) == 0
        record = run(engine, warehouse, version, begin, end, f"run-{begin}", recompute=again)
        if first < end:
            assert record.origins == {"events": first // DAY * DAY}
        if data.draw(st.integers(0, 4)) == 0:
            maintain(warehouse, retention=0)
    tables = published(case, warehouse)
    assert wrong(generated, tables) == []
    for query in case.workload.queries:
        if query.window.has_origin and query.window.at is None and len(tables[query.name]):
            looked_up = Reader(warehouse).query(query.name).between(case.begin, case.end)
            assert compare(query, looked_up, answers(query, generated.events, "ts", case.begin, case.end)) == []


class Landed(NamedTuple):
    """A file of events, and when it was written (microseconds)."""

    name: str
    events: pa.Table
    arrived: int

    @property
    def times(self) -> list[int]:
        return cast(list[int], self.events["ts"].cast(pa.int64()).to_pylist())


class History:
    """A source that files come to and go from, a warehouse over it, and which files the answers know, by the begin of
    their interval and by query."""

    def __init__(self, engine: Any, folder: Path, case: Case, algorithm: str) -> None:
        self.engine, self.source = engine, folder / "events"
        self.source.mkdir()
        stream = replace(case.stream, source=Source("parquet", str(self.source)))
        self.case = replace(case, workload=Workload(case.workload.queries, (stream,)))
        self.warehouse, self.version = planned(self.case, folder / "warehouse", algorithm)
        self.clock = case.end + case.stream.lateness + SECOND
        self.files: dict[str, Landed] = {}
        self.here: set[str] = set()
        self.known: dict[tuple[tuple[int, int], str], frozenset[str]] = {}
        self.runs = 0

    def land(self, events: pa.Table, arrived: int) -> None:
        """A file comes."""
        name = f"part-{len(self.files)}.parquet"
        pq.write_table(events, self.source / name)
        os.utime(self.source / name, ns=(arrived * 1000, arrived * 1000))
        self.files[name] = Landed(name, events, arrived)
        self.here.add(name)

    def remove(self, name: str) -> None:
        """A file goes."""
        (self.source / name).unlink()
        self.here.remove(name)

    def answer(self, span: tuple[int, int], recompute: bool = False) -> None:
        """A run over an interval, which may have been published before."""
        self.runs += 1
        run(self.engine, self.warehouse, self.version, *span, f"{self.runs}", as_of=self.clock, recompute=recompute)
        for query in self.case.workload.queries:
            known = self.known.get((span, query.name))
            if recompute or known is None or self.is_revised(query, span, known):
                self.known[span, query.name] = frozenset(self.here)

    def is_revised(self, query: ACQ, span: tuple[int, int], known: frozenset[str]) -> bool:
        """Whether an answer of a query in an interval is computed again, as files came or went."""
        came = [self.files[name] for name in self.here - known]
        went = [self.files[name] for name in known - self.here]
        lateness = self.case.stream.lateness
        for instant in instants(query.window, *span).tolist():
            for part in query.window.each:
                begin, end = int(starts_of(part, np.array([instant]))[0]), instant - part.ago
                if any(min(file.times) < end and max(file.times) >= begin for file in went):
                    return True
                for file in came:
                    since = begin if part.since is None else file.arrived - lateness
                    if any(since <= time < end for time in file.times):
                        return True
        return False

    def repair(self) -> None:
        """Run every interval again whose source has changed; none of them a second time."""
        for interval in outdated(self.warehouse, self.clock):
            self.answer((interval.begin, interval.end))
        assert outdated(self.warehouse, self.clock) == []

    def check(self) -> None:
        """What is published is what the oracle and the audit make of the files that it knows."""
        tables, lines = published(self.case, self.warehouse), list[str]()
        for (span, name), known in self.known.items():
            query, table = self.case.workload.query(name), tables[name]
            at = table["instant" if query.window.ago else "window_end"].cast(pa.int64()).to_numpy()
            rows = table.filter(pa.array((at > span[0]) & (at <= span[1])))
            events = pa.concat_tables([self.files[file].events for file in sorted(known)] or [ARROW.empty_table()])
            lines += compare(query, rows, answers(query, events, "ts", *span))
        assert lines == []
        for begin, end in {span for span, _ in self.known}:
            engine = Engine("audit")
            audited = recompute_published(self.warehouse, begin, end, 1.0, self.clock, engine, lambda line: None)
            assert audited.wrong == []


ARROW = arrow_schema()


@settings(DEAR, max_examples=examples(10, 100, slow=20))
@given(generated=lifetime_cases(most_queries=3), algorithm=st.sampled_from(ALGORITHMS), data=st.data())
def test_answers_hold_what_was_known_and_came_in_time(
    engine: Any,
    eager: None,
    tmp_path_factory: pytest.TempPathFactory,
    generated: Case,
    algorithm: str,
    data: st.DataObject,
) -> None:
    """Files come late, in time and too late, and go; intervals are answered in any order, repaired and recomputed."""
    timed = generated.events.filter(generated.events["ts"].is_valid())
    assume(len(timed) > 4)
    lateness = data.draw(st.sampled_from((0, DAY, 3 * DAY, 500 * DAY)))
    queries = [replace(query, filter=None) for query in generated.workload.queries]
    stream = replace(generated.stream, lateness=lateness)
    case = replace(generated, events=timed, workload=Workload(tuple(queries), (stream,)))
    history = History(engine, tmp_path_factory.mktemp("history"), case, algorithm)
    cuts = data.draw(st.lists(st.integers(1, len(timed) - 1), min_size=2, max_size=3, unique=True))
    pieces = [timed.slice(low, high - low) for low, high in pairwise([0, *sorted(cuts), len(timed)])]
    history.land(pieces[0], history.clock)
    spans = spans_of(case, data.draw(st.integers(2, 4)))
    todo = list(data.draw(st.permutations(spans)))
    for number, piece in enumerate([*pieces[1:], None]):
        for span in todo[: 1 if number == 0 else 2]:
            history.answer(span)
            todo.remove(span)
        history.check()
        if piece is not None:
            ahead = data.draw(st.sampled_from((0, lateness, lateness // 2, 2 * lateness + 1, 900 * DAY)))
            history.land(piece, min(history.clock, max(piece["ts"].cast(pa.int64()).to_pylist()) + ahead))
        elif data.draw(st.booleans()):
            history.remove("part-0.parquet")
        if data.draw(st.booleans()):
            history.answer(data.draw(st.sampled_from(sorted({span for span, _ in history.known}))), recompute=True)
        if data.draw(st.integers(0, 2)):
            history.repair()
            history.check()
    history.repair()
    history.check()
