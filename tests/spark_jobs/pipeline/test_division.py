"""How the final stage is divided into tasks, and that answers do not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.synopses.synopsis import synopsis_of
from optimizer.windows.alignment import instants, starts_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.workers import StageOutcome, Task, counting, outcome_of, shares
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import division
from spark_jobs.pipeline.run.division import Slice, by_bucket, evened
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, StoredGroup
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from tests.benchmarks import skew
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, same_bytes, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS
from tests.workloads import Case, calendar_cases, cases, row_cases, sequence_cases, session_cases, several_cases


class Wide(LocalWorkers):
    """Workers that do the tasks of a stage apart, as a number of cores would; ``descriptions`` of what they did, with
    the number of tasks."""

    def __init__(self, cores: int) -> None:
        super().__init__()
        self.cores, self.tasks = cores, dict[str, int]()

    @property
    def width(self) -> int:
        return self.cores

    def run(self, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
        counted, parts = counting(task), shares(pieces, most)
        self.tasks[description.split()[0]] = len(parts)
        return outcome_of([outcome for numbers in parts for outcome in counted(numbers)])


@contextmanager
def finely() -> Iterator[None]:
    """Every bucket is worth dividing, however much is read again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "BYTES_A_TASK", 1)
        patch.setattr(division, "READ_AGAIN", float("inf"))
        patch.setattr(division, "READ_IN_PASSES", float("inf"))
        yield


@pytest.mark.parametrize(
    "generated_cases", [cases, calendar_cases, several_cases, row_cases, sequence_cases, session_cases]
)
@pytest.mark.usefixtures("engine")
def test_how_tasks_are_divided_changes_no_byte(
    tmp_path_factory: pytest.TempPathFactory, generated_cases: Callable[..., st.SearchStrategy[Case]]
) -> None:
    """Of every aggregate, in windows of every kind, with and without groups; and all checks of the answers pass."""

    @settings(DEAR, max_examples=examples(8, 30))
    @given(generated_cases(most_queries=8, most_events=60), st.sampled_from(ALGORITHMS), st.sampled_from([1, 3, 40]))
    def check(generated: Case, algorithm: str, cores: int) -> None:
        assume(expects_answers(generated))
        folder = tmp_path_factory.mktemp("division")
        case = stored(generated, folder / "source", "parquet")
        warehouse, version = planned(case, folder / "whole", algorithm)
        run(Engine("whole", given=Wide(1)), warehouse, version, case.begin, case.end, "run-1")
        other, version = planned(case, folder / "divided", algorithm)
        with finely():
            run(Engine("divided", given=Wide(cores)), other, version, case.begin, case.end, "run-1")
        answers = published(case, other)
        assert wrong(case, answers) == []
        assert same_bytes(answers, published(case, warehouse))

    check()


@pytest.mark.usefixtures("engine")
def test_an_instant_that_two_tasks_answer_fails_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files hold the same bucket; only the spans of instants tell them apart."""
    shape = skew.SHAPES["ungrouped"]
    stream = skew.generate(tmp_path / "events", shape, 2000)
    workload = Workload(tuple(parse(shape.query("distinct", 3600), {stream.name: stream}).queries), (stream,))

    def answered_once(name: str) -> int:
        warehouse = Warehouse.open(tmp_path / name)
        version, _ = publish_plan(warehouse, build_plan(workload, {stream.name: Fraction(1)}, "shared"))
        workers = Wide(8)
        with finely():
            run(Engine(name, given=workers), warehouse, version, START, START + DAY, "run-1")
        return workers.tasks["finals"]

    assert answered_once("once") > 8
    between = division._between
    monkeypatch.setattr(
        division,
        "_between",
        lambda undivided, first, last: between(undivided, max(undivided.begin, first - 20 * MINUTE), last),
    )
    with pytest.raises(HeddleError, match=r"\(repeated\)|'repeated': [1-9]"):
        answered_once("twice")


# ------------------------------------------------------------------------------------------ the division alone
STREAM = Stream("trades", Source("parquet", "/trades"), (("ts", TIMESTAMP), ("key", STRING), ("id", LONG)), "ts")
START = 1_372_636_800 * SECOND
MINUTE = 60 * SECOND


def work_of(*windows: str, by: str = "key") -> SynopsisWork:
    """A query of distinct counts for each window, over a day."""
    groups, columns = (f" GROUP BY {by}", f"{by}, ") if by else ("", "")
    texts = [
        f"-- name: q{at}\nSELECT {columns}count(DISTINCT id) AS n FROM trades WINDOW {window} ON ts{groups};"
        for at, window in enumerate(windows)
    ]
    queries = tuple(parse("\n".join(texts), {"trades": STREAM}).queries)
    return SynopsisWork(synopsis_of(STREAM, queries), queries, START - DAY, START + DAY)


MINUTES = "RANGE '10 minutes' SLIDE '1 minute'"
HALF_DAY = "RANGE '12 hours' SLIDE '1 hour'"


def divided(
    monkeypatch: pytest.MonkeyPatch, groups: list[StoredGroup], work: SynopsisWork, memory: TaskMemory = TASK_MEMORY
) -> list[Slice]:
    """The work by bucket, divided for 64 tasks at once over row groups."""
    monkeypatch.setattr(division, "stored_groups", lambda paths: groups)
    return evened([Slice((work,), START, by_bucket())], ["one"], 64, 1, memory)


def row_groups(sizes: dict[int, int], hours: int = 24) -> list[StoredGroup]:
    """Buckets of some bytes each, spread evenly over the first hours of a day, an hour a row group."""
    return [
        StoredGroup(100, size // hours, bucket, bucket, START + hour * 60 * MINUTE, START + (hour + 1) * 60 * MINUTE)
        for bucket, size in sizes.items()
        for hour in range(hours)
    ]


def answered(slices: list[Slice]) -> dict[int, list[int]]:
    """By bucket, all instants that are answered, as often as they are."""
    answered_instants: dict[int, list[int]] = {bucket: [] for bucket in range(BUCKETS)}
    for task_slice in slices:
        for part in task_slice.parts:
            for query in part.queries:
                moments = instants(query.window, task_slice.begin, part.last_instant)
                # nothing is missing under the windows
                assert not len(moments) or part.begin <= starts_of(query.window, moments).min()
                for piece in task_slice.pieces:
                    for bucket in piece:
                        answered_instants[bucket] += moments.tolist()
    return {bucket: sorted(moments) for bucket, moments in answered_instants.items()}


@pytest.mark.parametrize(("windows", "memory"), [([MINUTES], "2g"), ([MINUTES, HALF_DAY], "2g"), ([MINUTES], "64m")])
def test_each_instant_of_each_bucket_is_answered_once(
    monkeypatch: pytest.MonkeyPatch, windows: list[str], memory: str
) -> None:
    work = work_of(*windows)
    every = sorted(moment for query in work.queries for moment in instants(query.window, START, START + DAY).tolist())
    size = int(memory[:-1]) << (30 if memory.endswith("g") else 20)
    groups = row_groups(dict.fromkeys(range(BUCKETS), 1 << 20) | {7: 1 << 28, 9: 1 << 27})
    assert answered(divided(monkeypatch, groups, work, TaskMemory(size))) == dict.fromkeys(range(BUCKETS), every)


def test_a_bucket_with_half_of_the_bytes_is_divided_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = dict.fromkeys(range(BUCKETS), (1 << 29) // 63)
    slices = divided(monkeypatch, row_groups(sizes | {7: 1 << 29}), work_of(MINUTES))
    large = [task_slice for task_slice in slices if task_slice.pieces == (frozenset([7]),)]
    assert len(large) == (1 << 29) // division.BYTES_A_TASK and slices[: len(large)] == large
    (small,) = slices[len(large) :]
    assert max(map(len, small.pieces)) - min(map(len, small.pieces)) <= 1
    lengths = np.array([part.last_instant - task_slice.begin for task_slice in large for part in task_slice.parts])
    assert lengths.max() < 1.2 * lengths.min()


def test_what_is_read_again_limits_the_number_of_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    def spans(window: str, size: int) -> int:
        return len(divided(monkeypatch, row_groups({7: size}), work_of(window, by=""))) - 1

    fits, too_much = TASK_MEMORY.partial_rows // 2, 1 << 32
    assert spans(MINUTES, fits) == round(fits / division.BYTES_A_TASK)
    assert spans("RANGE '1 hour' SLIDE '1 hour'", fits) == round(fits / division.BYTES_A_TASK)
    assert spans("RANGE '1 hour' SLIDE '10 minutes'", fits) == 3
    assert spans(HALF_DAY, fits) == 0
    assert spans(HALF_DAY, too_much) == 3
    assert 20 < spans("RANGE '1 hour' SLIDE '10 minutes'", too_much) < 27


def test_spans_follow_the_bytes_and_not_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All events in the first hour of the day."""
    slices = divided(monkeypatch, row_groups({7: 1 << 27}, hours=1), work_of("RANGE '1 minute' SLIDE '1 minute'"))
    begins = [task_slice.begin for task_slice in slices if task_slice.pieces == (frozenset([7]),)]
    assert len(begins) == 4 and all(begin < START + 60 * MINUTE for begin in begins)
