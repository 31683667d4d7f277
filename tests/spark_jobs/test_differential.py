"""The whole path against the oracle: random workloads x random events x random plans.

First the kernels without Spark, on hundreds of cases; then runs through Spark and Delta on few.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.pipeline.run import finals_stage
from spark_jobs.pipeline.run.interval import run
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.historical import historical_cases
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, same_bytes, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS, FAST, differences, kernel_answers
from tests.workloads import (
    Case,
    calendar_cases,
    cases,
    long_cases,
    outputs,
    reached,
    sequence_cases,
    session_cases,
    several_cases,
    spans_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EVERY = (cases, sequence_cases, calendar_cases, several_cases, historical_cases, session_cases)


@FAST
@given(
    cases(),
    st.sampled_from(ALGORITHMS),
    st.lists(st.integers(0, 100), max_size=2),
    st.lists(st.integers(0, 2), max_size=6),
)
def test_kernels_answer_as_the_oracle(case: Case, algorithm: str, cuts: list[int], homes: list[int]) -> None:
    """Whatever the plan, the pieces in which events come, and the synopses that filters and group-bys share."""
    assert differences(case, kernel_answers(case, algorithm, cuts, case.begin, case.end, homes)) == []


@settings(FAST, max_examples=examples(60))
@given(calendar_cases(), st.sampled_from(ALGORITHMS), st.integers(1, 4))
def test_calendars_answer_as_the_oracle(case: Case, algorithm: str, pieces: int) -> None:
    """Windows of calendars and cumulative ones beside ordinary ones, however the span is cut."""
    parts = [kernel_answers(case, algorithm, [], *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


DURATIONS = ("rate", "time_weighted_avg", "time_while", "longest_gap", "mean_gap", "sum_distinct", "avg_distinct")
LISTS = ("last_k", "last_distinct", "string_agg")


@pytest.mark.parametrize("functions", [DURATIONS, LISTS])
@settings(FAST, max_examples=examples(40))
@given(cases(3, 40), st.data(), st.sampled_from(ALGORITHMS), st.integers(1, 3))
def test_values_in_the_order_of_time_answer_as_the_oracle(
    functions: tuple[str, ...], case: Case, data: st.DataObject, algorithm: str, pieces: int
) -> None:
    """Durations, counters, lists in an order, and distinct sums, however the span is cut."""
    queries = []
    for query in case.workload.queries:
        drawn = tuple(data.draw(outputs(f"out_{at}", functions)) for at in range(3))
        # without groups and filters more events follow each other
        groups = data.draw(st.sampled_from((query.group_by, ())))
        select, condition = (query.select, query.filter) if groups else ((), None)
        changed = {"outputs": drawn, "group_by": groups, "select": select, "filter": condition}
        queries.append(replace(query, **changed, having=(), top=None))
    case = replace(case, workload=replace(case.workload, queries=tuple(queries)))
    parts = [kernel_answers(case, algorithm, [], *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


@settings(FAST, max_examples=examples(40))
@given(long_cases(), st.sampled_from(ALGORITHMS), st.integers(1, 3))
def test_long_windows_answer_as_the_oracle(case: Case, algorithm: str, pieces: int) -> None:
    """Windows of years, up to a million times their slide, however the span is cut."""
    parts = [kernel_answers(case, algorithm, [], *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


@settings(FAST, max_examples=examples(60))
@given(several_cases(), st.sampled_from(ALGORITHMS), st.integers(1, 4), st.lists(st.integers(0, 2), max_size=4))
def test_several_windows_answer_as_the_oracle(case: Case, algorithm: str, pieces: int, homes: list[int]) -> None:
    """Several windows in one answer, whatever the plan, the synopses, and however the span is cut."""
    parts = [kernel_answers(case, algorithm, [], *span, homes) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


@settings(FAST, max_examples=examples(60))
@given(historical_cases(), st.sampled_from(ALGORITHMS), st.integers(1, 4), st.lists(st.integers(0, 2), max_size=4))
def test_historical_windows_of_calendars_answer_as_the_oracle(
    case: Case, algorithm: str, pieces: int, homes: list[int]
) -> None:
    """Windows that are moved back by days, months or years, however the span is cut."""
    parts = [kernel_answers(case, algorithm, [], *span, homes) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


@settings(FAST, max_examples=examples(120))
@given(session_cases(), st.sampled_from(ALGORITHMS), st.integers(1, 4), st.lists(st.integers(0, 100), max_size=3))
def test_sessions_answer_as_the_oracle(case: Case, algorithm: str, pieces: int, cuts: list[int]) -> None:
    """Sessions of all gaps, filters and keys, in whatever pieces events come, and however the span is cut."""
    parts = [kernel_answers(case, algorithm, cuts, *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


@FAST
@given(sequence_cases(), st.sampled_from(ALGORITHMS), st.lists(st.integers(0, 100), max_size=3))
def test_sequences_answer_as_the_oracle(case: Case, algorithm: str, cuts: list[int]) -> None:
    """Of every pattern, window, key and aggregate, in whatever pieces events come."""
    assert differences(case, kernel_answers(case, algorithm, cuts, case.begin, case.end)) == []


@settings(FAST, max_examples=examples(60))
@given(sequence_cases(3, 40), st.data(), st.sampled_from(ALGORITHMS), st.integers(1, 3))
def test_funnels_answer_as_the_oracle(case: Case, data: st.DataObject, algorithm: str, pieces: int) -> None:
    """Of every step, whether events are absent or not, however the span is cut."""
    funnels = []
    for query in (query for query in case.workload.queries if query.pattern is not None and query.pattern.per):
        length = len(query.sequence.events)
        steps = data.draw(st.lists(st.integers(1, length), min_size=1, max_size=length))
        asked = (*(reached(f"step_{at}", step) for at, step in enumerate(steps)), query.outputs[0])
        funnels.append(replace(query, outputs=asked[: data.draw(st.integers(1, len(asked)))]))
    assume(funnels)
    case = replace(case, workload=replace(case.workload, queries=tuple(funnels)))
    parts = [kernel_answers(case, algorithm, [], *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


@settings(FAST, max_examples=examples(20))
@given(st.one_of(cases(), sequence_cases()), st.integers(1, 5), st.sampled_from(ALGORITHMS))
def test_answers_do_not_depend_on_how_the_span_is_cut(case: Case, pieces: int, algorithm: str) -> None:
    parts = [kernel_answers(case, algorithm, [], *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


# ----------------------------------------------------------------------------------- through Spark and Delta


@pytest.mark.parametrize(
    ("format", "generated_cases"),
    [
        ("parquet", cases),
        ("csv", cases),
        ("delta", cases),
        ("parquet", sequence_cases),
        ("csv", calendar_cases),
        ("parquet", several_cases),
        ("parquet", historical_cases),
        ("parquet", session_cases),
    ],
)
def test_published_answers_are_the_oracles(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    format: str,
    generated_cases: Callable[..., st.SearchStrategy[Case]],
) -> None:
    @settings(DEAR, max_examples=examples(4, 8))
    @given(generated_cases(most_queries=10, most_events=60), st.sampled_from(ALGORITHMS))
    def check(generated: Case, algorithm: str) -> None:
        assume(expects_answers(generated))
        folder = tmp_path_factory.mktemp("differential")
        case = stored(generated, folder / "source", format)
        warehouse, version = planned(case, folder / "warehouse", algorithm)
        run(engine, warehouse, version, case.begin, case.end, "run-1")
        assert wrong(case, published(case, warehouse)) == []

    check()


@pytest.mark.parametrize("generated_cases", [cases, sequence_cases])
def test_how_queries_are_spread_over_tasks_changes_no_byte(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, generated_cases: Callable[..., st.SearchStrategy[Case]]
) -> None:
    """More tasks than there are buckets of groups, and many for queries without groups."""

    @settings(DEAR, max_examples=examples(3, 12, slow=6))
    @given(
        generated_cases(most_queries=10, most_events=60),
        st.sampled_from(ALGORITHMS),
        st.sampled_from([2, 5, 65, 200, 1000]),
    )
    def check(generated: Case, algorithm: str, width: int) -> None:
        assume(expects_answers(generated))
        folder = tmp_path_factory.mktemp("spread")
        case = stored(generated, folder / "source", "parquet")
        warehouse, version = planned(case, folder / "warehouse", algorithm)
        run(engine, warehouse, version, case.begin, case.end, "run-1")
        published_answers = published(case, warehouse)
        assert wrong(case, published_answers) == []
        other, version = planned(case, folder / "spread", algorithm)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(finals_stage, "ANSWERS_A_TASK", 1)
            patch.setattr(finals_stage, "ROWS_A_TASK", 1 / width)
            run(engine, other, version, case.begin, case.end, "run-1")
        assert same_bytes(published(case, other), published_answers)

    check()


@pytest.fixture(scope="module")
def processes() -> Iterator[Engine]:
    """The local engine with several processes, however little there is to do."""
    workers = LocalWorkers(2)
    yield Engine("processes", given=workers)
    workers.close()


@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.parametrize("generated_cases", EVERY)
def test_every_engine_gives_the_same_bytes(
    spark: SparkSession,
    processes: Engine,
    tmp_path_factory: pytest.TempPathFactory,
    generated_cases: Callable[..., st.SearchStrategy[Case]],
) -> None:
    """So that tests of other things may leave Spark out (the fixture engine)."""

    @DEAR
    @given(generated_cases(most_queries=10, most_events=60), st.sampled_from(ALGORITHMS))
    def check(generated: Case, algorithm: str) -> None:
        assume(expects_answers(generated))
        folder = tmp_path_factory.mktemp("alike")
        case = stored(generated, folder / "source", "parquet")
        warehouse, version = planned(case, folder / "warehouse", algorithm)
        run(spark, warehouse, version, case.begin, case.end, "run-1")
        published_answers = published(case, warehouse)
        assert wrong(case, published_answers) == []
        for name, engine in (("in process", in_process()), ("processes", processes)):
            other, version = planned(case, folder / name, algorithm)
            with without_audit():
                run(engine, other, version, case.begin, case.end, "run-1")
            assert same_bytes(published(case, other), published_answers)

    check()


@pytest.mark.parametrize("generated_cases", EVERY)
def test_rerun_splitting_and_order_change_no_byte(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    generated_cases: Callable[..., st.SearchStrategy[Case]],
) -> None:
    """One interval at once, twice; the same span as consecutive live runs; backfilled in any order: the
    answers are equal byte for byte. Under another plan doubles may round differently, but stay within the
    oracle's bounds."""

    @settings(DEAR, max_examples=examples(1, 8, slow=2))
    @given(generated_cases(most_queries=6, most_events=60), st.randoms(use_true_random=False))
    def check(generated: Case, chance: random.Random) -> None:
        assume(expects_answers(generated))
        folder = tmp_path_factory.mktemp("repeat")
        case = stored(generated, folder / "source", "parquet")
        warehouse, version = planned(case, folder / "whole", "weave-share")
        first = run(engine, warehouse, version, case.begin, case.end, "run-1")
        published_answers = published(case, warehouse)
        assert wrong(case, published_answers) == []

        retried = run(engine, warehouse, version, case.begin, case.end, "run-1")
        again = run(engine, warehouse, version, case.begin, case.end, "run-2")
        assert (first.status, retried.status, again.status) == ("published", "unchanged", "unchanged")
        assert same_bytes(published(case, warehouse), published_answers)

        forced = run(engine, warehouse, version, case.begin, case.end, "run-3", recompute=True)
        assert forced.revision > first.revision
        assert same_bytes(published(case, warehouse), published_answers)

        spans = spans_of(case, 3)
        shuffled = chance.sample(spans, len(spans))
        for name, order in (("live", spans), ("backfill", shuffled)):
            other, number = planned(case, folder / name, "weave-share")
            for begin, end in order:
                run(engine, other, number, begin, end, f"{name}-{begin}")
            assert same_bytes(published(case, other), published_answers), name

        other, number = planned(case, folder / "replanned", "no-share")
        run(engine, other, number, case.begin, case.end, "run-1")
        assert wrong(case, published(case, other)) == []

    check()


@settings(DEAR, max_examples=examples(3, 40, slow=6))
@given(
    generated=st.one_of(calendar_cases(), several_cases(), historical_cases(), session_cases(), sequence_cases()),
    algorithm=st.sampled_from(ALGORITHMS),
    data=st.data(),
)
def test_late_events_reach_irregular_windows_and_sequences(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, generated: Case, algorithm: str, data: st.DataObject
) -> None:
    """Live runs over some of the events, in any order; then the others come, and a run answers what they change."""
    assume(len(generated.events) > 2 and expects_answers(generated))
    folder = tmp_path_factory.mktemp("late")
    cut = data.draw(st.integers(1, len(generated.events) - 1))
    early = replace(generated, events=generated.events.slice(0, cut))
    case = stored(early, folder / "source", "parquet")
    warehouse, version = planned(case, folder / "warehouse", algorithm)
    spans = data.draw(st.permutations(spans_of(case, 3)))
    for begin, end in spans:
        run(engine, warehouse, version, begin, end, f"first-{begin}")
    assert wrong(case, published(case, warehouse)) == []
    pq.write_table(generated.events.slice(cut), Path(case.stream.source.path) / "late.parquet")
    for begin, end in spans:
        run(engine, warehouse, version, begin, end, f"second-{begin}")
    assert wrong(replace(case, events=generated.events), published(case, warehouse)) == []
