"""The whole path against the oracle: random workloads x random events x random plans.

First the kernels without Spark, on hundreds of cases; then runs through Spark and Delta on few.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from optimizer.plan.builder import build_plan
from optimizer.synopses.synopsis import synopses_of
from optimizer.windows.alignment import history_start
from optimizer.workload.predicates import normal
from optimizer.workload.values import ACQ, Source, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import finals_stage
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.results.rows import group_values, places, typed
from spark_jobs.store.warehouse.schemas import ANSWERS, PARTIALS
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.finals.stage import finals_of
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.partials.synopsis_work import SynopsisWork, merged
from spark_jobs.windows.sequences.lifting import SequenceLifting
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.oracle import answers, column_names, compare
from tests.sizes import examples
from tests.spark_jobs.sequence_finals import finals_of_sequences
from tests.workloads import Case, calendar_cases, cases, sequence_cases, spans_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALGORITHMS = ("weave-share", "no-share", "shared")


def decoded(case: Case) -> pa.Table:
    """The events as sources hand them to the kernels."""
    types = dict(case.stream.schema)
    return pa.table([case.events[name].cast(arrow_type(type)) for name, type in types.items()], names=list(types))


def as_read(query: ACQ, rows: pa.Table) -> pa.Table:
    """Rows of the answers' layout as the typed table of one query."""
    columns = {"window_start": rows["window_start"], "window_end": rows["window_end"], "instant": rows["instant"]}
    names = column_names(query)[2:]

    def element(lists: pa.ChunkedArray, index: int) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array([row[index] for row in lists.to_pylist()], lists.type.value_type)])

    values = group_values(rows["key"], len(query.group_by))
    for name, (_, type), texts in zip(names, query.group_by, values, strict=False):
        columns[name] = typed(texts, type)
    for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
        columns[output.name] = typed(element(rows[carrier], index), output.type)
    columns["error"] = rows["error"]
    return pa.table(columns)


def normalised(case: Case) -> Case:
    """The case with its filters as the parser leaves them."""
    schema = dict(case.stream.schema)
    queries = tuple(replace(query, filter=normal(query.filter, schema)) for query in case.workload.queries)
    return replace(case, workload=Workload(queries, case.workload.streams))


def kernel_answers(
    case: Case, algorithm: str, cuts: Sequence[int], begin: int, end: int, homes: Sequence[int] = ()
) -> pa.Table:
    """All answers of an interval by the kernels alone, the events arriving in pieces cut at ``cuts``.

    ``homes``: number of the synopsis that each query's family is put into; without them each has its own.
    """
    case = normalised(case)
    plan = build_plan(case.workload, {"events": Fraction(1)}, algorithm)
    table = decoded(case)
    bounds = sorted({0, len(table), *(cut % (len(table) + 1) for cut in cuts)})
    pieces = [table.slice(low, high - low).combine_chunks() for low, high in zip(bounds, bounds[1:], strict=False)]
    together: dict[int, list[str]] = {}
    for query, home in zip(case.workload.queries, homes, strict=False):
        together.setdefault(home, []).append(query.name)
    parts: list[SynopsisWork] = []
    for tree in plan.trees:
        for synopsis, members in synopses_of(case.stream, tree.queries, together.values()).items():
            first = history_start([query.window for query in members], begin, end)
            last = synopsis.fragments.last_edge(end)
            if first < last:
                parts.append(SynopsisWork(synopsis, members, first, last))
    parts = merged(parts)
    if not parts:
        return ANSWERS.empty_table()
    spans = [FillRequest(part.synopsis, part.begin, part.end) for part in parts]
    plain = [span for span in spans if span.synopsis.sequenced is None]
    partials = [partials_of(piece.to_batches(), case.stream, plain) for piece in pieces if plain]
    for piece in pieces:
        lifting = SequenceLifting(case.stream, [span for span in spans if span.synopsis.sequenced is not None])
        for batch in piece.to_batches():
            lifting.add(batch)
        partials += lifting.tables()
    rows = pa.concat_tables(partials) if partials else PARTIALS.empty_table()
    found: list[pa.RecordBatch] = []
    for part in parts:
        mine = rows.filter(pc.equal(rows["fingerprint"], part.synopsis.fingerprint))
        finals = finals_of if part.synopsis.sequenced is None else finals_of_sequences
        found += finals(mine, part.synopsis, part.queries, begin, end)
    return pa.Table.from_batches(found, ANSWERS)


def of_query(table: pa.Table, query: ACQ) -> pa.Table:
    return table.filter(pc.equal(table["query"], query.name))


def differences(case: Case, table: pa.Table) -> list[str]:
    found = []
    for query in case.workload.queries:
        expected = answers(query, case.events, case.stream.time, case.begin, case.end)
        found += [f"{query.name}: {line}" for line in compare(query, as_read(query, of_query(table, query)), expected)]
    return found


FAST = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


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


@FAST
@given(sequence_cases(), st.sampled_from(ALGORITHMS), st.lists(st.integers(0, 100), max_size=3))
def test_sequences_answer_as_the_oracle(case: Case, algorithm: str, cuts: list[int]) -> None:
    """Of every pattern, window, key and aggregate, in whatever pieces events come."""
    assert differences(case, kernel_answers(case, algorithm, cuts, case.begin, case.end)) == []


@settings(FAST, max_examples=examples(20))
@given(st.one_of(cases(), sequence_cases()), st.integers(1, 5), st.sampled_from(ALGORITHMS))
def test_answers_do_not_depend_on_how_the_span_is_cut(case: Case, pieces: int, algorithm: str) -> None:
    parts = [kernel_answers(case, algorithm, [], *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


# ----------------------------------------------------------------------------------- through Spark and Delta
DEAR = settings(
    max_examples=examples(2, 6),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would start hundreds of runs
)


def stored(case: Case, folder: Path, format: str) -> Case:
    """The case with its events written to a source that runs can read."""
    folder.mkdir()
    path = folder / f"events.{format}"
    if format == "delta":
        write_deltalake(str(path), case.events)
    elif format == "csv":
        path.mkdir()
        # two files: their rows meet in the same fragments
        half = len(case.events) // 2
        for index, part in enumerate((case.events.slice(0, half), case.events.slice(half))):
            pacsv.write_csv(part, path / f"part-{index}.csv")
    else:
        path.mkdir()
        half = len(case.events) // 2
        for index, part in enumerate((case.events.slice(0, half), case.events.slice(half))):
            pq.write_table(part, path / f"part-{index}.parquet", row_group_size=7)
    stream = replace(case.stream, source=Source(format, str(path)))
    return replace(case, workload=Workload(case.workload.queries, (stream,)))


def planned(case: Case, folder: Path, algorithm: str) -> tuple[Warehouse, int]:
    warehouse = Warehouse.open(folder)
    plan = build_plan(case.workload, {"events": Fraction(1)}, algorithm)
    return warehouse, publish_plan(warehouse, plan)[0]


def published(case: Case, warehouse: Warehouse) -> dict[str, pa.Table]:
    """What a consumer reads of every query."""
    return {query.name: read(warehouse, query.name) for query in case.workload.queries}


def wrong(case: Case, tables: dict[str, pa.Table]) -> list[str]:
    return [
        f"{query.name}: {line}"
        for query in case.workload.queries
        for line in compare(
            query,
            tables[query.name],
            answers(query, case.events, case.stream.time, case.begin, case.end),
        )
    ]


def expects_answers(case: Case) -> bool:
    """A run through Spark is too dear for a case that nothing answers."""
    return any(answers(query, case.events, case.stream.time, case.begin, case.end) for query in case.workload.queries)


def same_bytes(left: dict[str, pa.Table], right: dict[str, pa.Table]) -> bool:
    """Equal answers to the last bit (NaN included, the zeros told apart)."""
    return all(_ipc(left[name]) == _ipc(right[name]) for name in left)


def _ipc(table: pa.Table) -> bytes:
    # rebuilt from Python values: slices and null slots of equal tables may differ underneath
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(table.to_pylist(), table.schema).combine_chunks())
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("format", "generated_cases"),
    [("parquet", cases), ("csv", cases), ("delta", cases), ("parquet", sequence_cases), ("csv", calendar_cases)],
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
        found = published(case, warehouse)
        assert wrong(case, found) == []
        other, version = planned(case, folder / "spread", algorithm)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(finals_stage, "ANSWERS_A_TASK", 1)
            patch.setattr(finals_stage, "ROWS_A_TASK", 1 / width)
            run(engine, other, version, case.begin, case.end, "run-1")
        assert same_bytes(published(case, other), found)

    check()


@pytest.fixture(scope="module")
def processes() -> Iterator[Engine]:
    """The local engine with several processes, however little there is to do."""
    workers = LocalWorkers(2)
    yield Engine("processes", given=workers)
    workers.close()


@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.parametrize("generated_cases", [cases, sequence_cases, calendar_cases])
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
        found = published(case, warehouse)
        assert wrong(case, found) == []
        for name, engine in (("in process", in_process()), ("processes", processes)):
            other, version = planned(case, folder / name, algorithm)
            with without_audit():
                run(engine, other, version, case.begin, case.end, "run-1")
            assert same_bytes(published(case, other), found)

    check()


@pytest.mark.parametrize("generated_cases", [cases, sequence_cases, calendar_cases])
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
        whole = published(case, warehouse)
        assert wrong(case, whole) == []

        retried = run(engine, warehouse, version, case.begin, case.end, "run-1")
        again = run(engine, warehouse, version, case.begin, case.end, "run-2")
        assert (first.status, retried.status, again.status) == ("published", "unchanged", "unchanged")
        assert same_bytes(published(case, warehouse), whole)

        forced = run(engine, warehouse, version, case.begin, case.end, "run-3", recompute=True)
        assert forced.revision > first.revision
        assert same_bytes(published(case, warehouse), whole)

        spans = spans_of(case, 3)
        shuffled = chance.sample(spans, len(spans))
        for name, order in (("live", spans), ("backfill", shuffled)):
            other, number = planned(case, folder / name, "weave-share")
            for begin, end in order:
                run(engine, other, number, begin, end, f"{name}-{begin}")
            assert same_bytes(published(case, other), whole), name

        other, number = planned(case, folder / "replanned", "no-share")
        run(engine, other, number, case.begin, case.end, "run-1")
        assert wrong(case, published(case, other)) == []

    check()


@settings(DEAR, max_examples=examples(3, 40, slow=6))
@given(generated=calendar_cases(most_queries=4, most_events=40), algorithm=st.sampled_from(ALGORITHMS), data=st.data())
def test_late_events_reach_the_windows_of_calendars(
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
