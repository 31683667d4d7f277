"""The memory of a task: less of it makes more files and more passes, and the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import ACQ
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.settings import TASK_MEMORY, Settings, TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile
from spark_jobs.windows.finals.passes import Pass, TooLarge, passes
from spark_jobs.windows.finals.stage import finals_task
from spark_jobs.windows.partials import fill_request
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from tests.benchmarks import memory as benchmark
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, same_bytes, stored
from tests.spark_jobs.kernels import ALGORITHMS
from tests.spark_jobs.laboratory import Laboratory
from tests.workloads import Case, calendar_cases, cases, row_cases, sequence_cases, session_cases, several_cases


@contextmanager
def little(memory: str) -> Iterator[None]:
    """Tasks may take so much, and look at each batch for itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEDDLE_TASK_MEMORY", memory)
        patch.setattr(fill_request, "BATCH_ROWS", 1)
        yield


def depends_on_cuts(query: ACQ) -> bool:
    """Whether where the source is cut may show in the last bits: of sums of doubles, and of what is approximate."""
    floating = [output.argument_type is not None and output.type.name == "double" for output in query.computed]
    return any(floating) or any(output.error is not None for output in query.computed)


def computed(query: ACQ) -> list[str]:
    """The names of its outputs."""
    return [output.name for output in query.outputs]


@pytest.mark.reduced
@pytest.mark.parametrize(
    "generated_cases", [cases, calendar_cases, several_cases, sequence_cases, row_cases, session_cases]
)
def test_how_much_memory_there_is_changes_no_byte(
    tmp_path_factory: pytest.TempPathFactory, generated_cases: Callable[..., st.SearchStrategy[Case]]
) -> None:
    """Of every aggregate; sums of doubles and sketches, which come in more pieces, stay within the oracle's bounds.
    What cannot be divided as far as it would have to be is told of, and nothing else is lost."""

    @settings(DEAR, max_examples=examples(2, 100, slow=4))
    @given(
        generated_cases(most_queries=8, most_events=60),
        st.sampled_from(ALGORITHMS),
        st.sampled_from(["8k", "16k", "32k", "64k", "256k"]),
    )
    def check(generated: Case, algorithm: str, memory: str) -> None:
        assume(expects_answers(generated))
        folder = tmp_path_factory.mktemp("memory")
        case = stored(generated, folder / "source", "parquet")
        warehouse, version = planned(case, folder / "plenty", algorithm)
        other, same = planned(case, folder / "little", algorithm)
        with without_audit():
            run(in_process(), warehouse, version, case.begin, case.end, "run-1")
            with little(memory):
                try:
                    record = run(in_process(), other, same, case.begin, case.end, "run-1")
                except HeddleError as error:
                    assert error.diagnostic.code == "HDL-517"
                    return
        failed = {diagnostic["query"] for diagnostic in record.diagnostics if diagnostic["severity"] == "error"}
        assert {diagnostic["code"] for diagnostic in record.diagnostics if diagnostic["severity"] == "error"} <= {
            "HDL-610"
        }
        plenty_answers, little_answers = published(case, warehouse), published(case, other)
        for query in case.workload.queries:
            name = query.name
            if name in failed:
                assert len(little_answers[name]) == 0
            elif depends_on_cuts(query) and query.window.is_rows:
                assert (
                    little_answers[name]
                    .drop_columns(computed(query))
                    .equals(plenty_answers[name].drop_columns(computed(query)))
                )
            elif depends_on_cuts(query):
                expected = answers(query, case.events, case.stream.time, case.begin, case.end)
                assert compare(query, little_answers[name], expected) == []
            else:
                assert same_bytes({name: plenty_answers[name]}, {name: little_answers[name]}), name

    check()


# ------------------------------------------------------------------------------------------- one task
EVENTS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of ten thousand keys, half of them of one."""
    place = tmp_path_factory.mktemp("keys")
    benchmark.generate(place / "events", EVENTS)
    return place


def results(
    folder: Path, work: SynopsisWork, paths: list[str], memory: int
) -> tuple[list[pa.ChunkedArray], set[str], int]:
    """The answers in an order of their own, what is too large, and how many files there are.

    Of hundreds of thousands of answers columns are compared, doubles by their bits: the place, then of each list how
    many values it has, and all values.
    """
    stamp = {"plan_version": pa.scalar(1), "revision": pa.scalar(1), "run_id": pa.scalar("memory")}
    task = finals_task([work], work.begin, paths, str(folder), stamp, memory=TaskMemory(memory))
    outcomes = list(task(range(BUCKETS)))
    files = [outcome for outcome in outcomes if isinstance(outcome, DataFile)]
    # a file has no column that none of its rows has a value in
    tables = [pq.ParquetFile(folder / file.path).read() for file in files]
    place = ["query", "key", "instant"]
    rows = pa.concat_tables(tables, promote_options="default").sort_by([(name, "ascending") for name in place])
    columns = [rows[name] for name in place]
    for name in ("longs", "doubles", "texts"):
        lists = (
            rows[name] if name in rows.schema.names else pa.chunked_array([pa.nulls(len(rows), pa.list_(pa.null()))])
        )
        columns.append(pc.fill_null(pc.list_value_length(lists), 0))
        values = pc.list_flatten(lists)
        columns.append(values.cast(pa.float64()).combine_chunks().view(pa.int64()) if name == "doubles" else values)
    return columns, {o.query for o in outcomes if isinstance(o, TooLarge)}, len(files)


@pytest.mark.parametrize("shape", ["sums", "both", "texts", "minutes"])
def test_passes_of_one_task_find_the_same_answers(folder: Path, tmp_path: Path, shape: str) -> None:
    work = benchmark.work_of(shape, stream := benchmark.stream_of(folder / "events"))
    benchmark.partials(work, stream, tmp_path, TASK_MEMORY)
    paths = sorted(map(str, (tmp_path / "partials").rglob("*.parquet")))
    plenty, nothing, files = results(tmp_path / "plenty", work, paths, TASK_MEMORY.bytes)
    little, too_large, more = results(tmp_path / "little", work, paths, 1 << 20)
    assert (nothing, too_large) == (set(), set())
    assert len(plenty[0]) > 0 and little == plenty
    assert more > 2 * files


@pytest.mark.parametrize(("shape", "other"), [("sums", "texts"), ("texts", "minutes"), ("minutes", "sums")])
def test_rows_of_other_synopses_in_the_same_buckets_change_no_answer(
    folder: Path, tmp_path: Path, shape: str, other: str
) -> None:
    stream = benchmark.stream_of(folder / "events")
    work = benchmark.work_of(shape, stream)
    benchmark.partials(work, stream, tmp_path / "mine", TASK_MEMORY)
    benchmark.partials(benchmark.work_of(other, stream), stream, tmp_path / "others", TASK_MEMORY)
    own_paths, other_paths = (sorted(map(str, (tmp_path / name).rglob("*.parquet"))) for name in ("mine", "others"))
    expected, *_ = results(tmp_path / "plenty", work, own_paths, TASK_MEMORY.bytes)
    for memory in (TASK_MEMORY.bytes, 1 << 20):
        answered, too_large, _ = results(tmp_path / f"with {memory}", work, [*own_paths, *other_paths], memory)
        assert too_large == set() and answered == expected and len(expected[0]) > 0


def test_passes_over_instants_have_windows_of_their_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of one group, and too large together: what is left to divide by is time
    text = "SELECT count(DISTINCT key) AS n, median(price) AS p FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts"
    monkeypatch.setitem(benchmark.SHAPES, "hours", [text])
    test_passes_of_one_task_find_the_same_answers(folder, tmp_path, "hours")


def test_each_pass_fits_and_no_row_is_lost(folder: Path, tmp_path: Path) -> None:
    work = benchmark.work_of("both", stream := benchmark.stream_of(folder / "events"))
    benchmark.partials(work, stream, tmp_path, TASK_MEMORY)
    paths = sorted(map(str, (tmp_path / "partials").rglob("*.parquet")))
    memory = TaskMemory(1 << 20)
    outcomes = list(passes(paths, frozenset(range(BUCKETS)), [work], work.begin, memory))
    fitting = [task_pass for task_pass in outcomes if isinstance(task_pass, Pass)]
    assert len(fitting) == len(outcomes) > 3
    assert max(task_pass.rows.nbytes for task_pass in fitting) <= memory.partial_rows
    grouped = [task_pass for task_pass in fitting if task_pass.parts[0].queries[0].group_by]
    assert sum(len(task_pass.rows) for task_pass in grouped) == EVENTS // 2 + 1
    keys = [set(task_pass.rows["key"].to_pylist()) for task_pass in grouped]
    assert len(set().union(*keys)) == sum(map(len, keys))


def test_a_window_that_does_not_fit_is_told_of(folder: Path, tmp_path: Path) -> None:
    work = benchmark.work_of("ungrouped", stream := benchmark.stream_of(folder / "events"))
    benchmark.partials(work, stream, tmp_path, TASK_MEMORY)
    paths = sorted(map(str, (tmp_path / "partials").rglob("*.parquet")))
    (too_large,) = passes(paths, frozenset(range(BUCKETS)), [work], work.begin, TaskMemory(1 << 20))
    assert isinstance(too_large, TooLarge)
    assert (too_large.query, too_large.code) == ("ungrouped_0", "HDL-610")
    assert "a window of one group takes some" in too_large.message


def test_a_query_that_is_too_large_fails_alone(tmp_path: Path) -> None:
    """Also where others of its family read the same partial rows."""
    lab = Laboratory(in_process(), tmp_path)
    lab.write([(number / 60, "AB"[number % 2], 1.0, number) for number in range(3000)])
    window = "FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts"
    large = f"-- name: large\nSELECT count(DISTINCT volume) AS n {window};\n"
    small = f"-- name: small\nSELECT count(*) AS n {window};\n"
    both, alone = lab.plan(large + small), lab.plan(large)
    with without_audit(), little("32k"):
        record = lab.run(both, 0, 60)
        (error,) = [diagnostic for diagnostic in record.diagnostics if diagnostic["severity"] == "error"]
        assert (error["code"], error["query"]) == ("HDL-610", "large")
        assert [row["n"] for row in lab.rows("small")] == [3000]
        assert lab.rows("large") == []
        with pytest.raises(HeddleError, match="HDL-517"):
            lab.run(alone, 0, 60, "again")
    with without_audit():
        assert lab.run(both, 0, 60, "with more", recompute=True).diagnostics == []
    assert [row["n"] for row in lab.rows("large")] == [3000]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5g", "2 t", "g", "١k"])
def test_what_is_no_size_is_refused(text: str) -> None:
    configured = Settings({"HEDDLE_TASK_MEMORY": text} if text else {})
    if not text:
        assert configured.task_memory == TASK_MEMORY
        return
    with pytest.raises(HeddleError, match="HDL-120"):
        _ = configured.task_memory


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("64k", 1 << 16), ("512M", 1 << 29), (" 3gb ", 3 << 30)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert Settings({"HEDDLE_TASK_MEMORY": text}).task_memory == TaskMemory(size)
