"""Whole runs whose queries join dimensions, against the oracle over the events as DuckDB joins them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.synopses.late import late_form
from optimizer.workload.attribute_names import JoinedAttribute
from optimizer.workload.computed_keys import key_name
from optimizer.workload.predicates import tidied
from optimizer.workload.values import (
    ACQ,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    Dimension,
    Output,
    Source,
    Stream,
    Type,
    Window,
    Workload,
)
from spark_jobs.pipeline.run.interval import run
from spark_jobs.streams.sources.expressions import arrow_type
from tests.chaos.orders import in_process
from tests.joined_cases import COMPUTED, FORMATS, JoinedCase, joined_cases, with_joined_events, with_stored_dimensions
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, same_bytes, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS
from tests.workloads import POOLS, SCHEMA, TYPES, Case, arrow_schema, calendar_cases, cases, sequence_cases, spans_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_files(joined: JoinedCase, folder: Path, formats: tuple[str, str]) -> tuple[Case, Case]:
    """The case with its events and dimensions in files, and the one that the oracle answers."""
    joined = with_stored_dimensions(joined, folder / "dimensions", FORMATS if formats[1] == "all" else [formats[1]])
    case = stored(joined.case, folder / "source", formats[0])
    return case, replace(with_joined_events(joined), workload=case.workload)


@pytest.mark.parametrize(
    ("formats", "generated"),
    [
        (("parquet", "parquet"), cases),
        (("delta", "csv"), cases),
        (("csv", "delta"), cases),
        (("parquet", "all"), sequence_cases),
        (("parquet", "all"), calendar_cases),
    ],
)
def test_joined_answers_are_the_oracles(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    formats: tuple[str, str],
    generated: Callable[[int, int], st.SearchStrategy[Case]],
) -> None:
    """Whatever is joined by which keys, and wherever its attributes stand."""

    @settings(DEAR, max_examples=examples(2, 12))
    @given(joined_cases(6, 50, generated), st.sampled_from(ALGORITHMS), st.booleans())
    def check(joined: JoinedCase, algorithm: str, is_late: bool) -> None:
        folder = tmp_path_factory.mktemp("joined")
        case, expected = with_files(joined, folder, formats)
        assume(expects_answers(expected))
        queries = case.workload.queries
        late = [query.name for query in queries if is_late and late_form(case.stream, query) is not None]
        warehouse, version = planned(case, folder / "warehouse", algorithm, late)
        record = run(engine, warehouse, version, case.begin, case.end, "run-1")
        assert [each for each in record.diagnostics if each["severity"] == "error"] == []
        assert wrong(expected, published(case, warehouse)) == []

    check()


@settings(DEAR, max_examples=examples(2, 8))
@given(joined=joined_cases(4, 50), data=st.data())
def test_live_runs_give_the_bytes_of_one_backfill(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, joined: JoinedCase, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("live")
    case, expected = with_files(joined, folder, ("parquet", "parquet"))
    assume(expects_answers(expected))
    warehouse, version = planned(case, folder / "backfill", "weave-share")
    run(engine, warehouse, version, case.begin, case.end, "backfill")
    other, version = planned(case, folder / "live", "weave-share")
    for begin, end in data.draw(st.permutations(spans_of(case, 3))):
        run(engine, other, version, begin, end, f"live-{begin}")
    answers = published(case, warehouse)
    assert wrong(expected, answers) == []
    assert same_bytes(published(case, other), answers)


@pytest.mark.longer
@pytest.mark.spark
@settings(DEAR, max_examples=examples(1, 6, slow=2))
@given(joined=joined_cases(4, 50))
def test_spark_gives_the_bytes_of_this_process(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, joined: JoinedCase
) -> None:
    folder = tmp_path_factory.mktemp("engines")
    case, expected = with_files(joined, folder, ("parquet", "parquet"))
    assume(expects_answers(expected))
    answers: list[dict[str, pa.Table]] = []
    for name, engine in (("spark", spark), ("here", in_process())):
        warehouse, version = planned(case, folder / name, "weave-share")
        run(engine, warehouse, version, case.begin, case.end, "run-1")
        answers.append(published(case, warehouse))
    assert wrong(expected, answers[0]) == []
    assert same_bytes(*answers)


@pytest.mark.parametrize("form", COMPUTED, ids=str)
def test_late_joins_by_computed_keys_of_every_type(engine: Any, tmp_path: Path, form: tuple[str, int]) -> None:
    """Groups of computed keys have rows: all values that the events have, but one."""
    day = 86_400_000_000
    count = max(map(len, POOLS.values())) + 1
    columns = {name: [*POOLS[name], None] for name, _ in SCHEMA}
    values = {name: [pool[at % len(pool)] for at in range(count)] for name, pool in columns.items()}
    events = pa.table({"ts": [at * day // 7 for at in range(count)], **values}, schema=arrow_schema())
    for number, (column, build, sql) in enumerate(COMPUTED[form]):
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            computed = connection.sql(f"SELECT DISTINCT {sql.format(column)} AS k FROM events").to_arrow_table()["k"]
        key_type = TYPES[column] if form[0] == "decimal" else Type(form[0], 19 * (form[0] == "long"))
        known = computed.drop_null().cast(arrow_type(key_type))[:-1]
        rows = pa.table({"k": known, "label": [f"l{at // 2}" for at in range(len(known))]})
        dimension = Dimension("d", Source("parquet", "d"), ("k",), (("k", key_type), ("label", STRING)))
        stream = Stream(
            "events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts", dimensions=(dimension,)
        )
        name = key_name(tidied(build(Column(column)), stream.types))
        attribute = JoinedAttribute("d", (name,), "label")
        outputs = (Output("n", "count", None, None, LONG), Output("s", "sum", Column("volume"), LONG, LONG))
        groups = ((attribute.name, STRING),)
        query = ACQ("q", "events", Window(day, day), outputs, group_by=groups, select=("label",))
        case = Case(Workload((query,), (stream,)), events, 0, 2 * day)
        joined = JoinedCase(case, {"d": rows}, {"d": []}, {attribute.row.name: attribute.row}, {name: (column, sql)})
        folder = tmp_path / str(number)
        folder.mkdir()
        case, expected = with_files(joined, folder, ("parquet", "parquet"))
        assert late_form(case.stream, query) is not None and expects_answers(expected)
        for late in ([], ["q"]):
            warehouse, version = planned(case, folder / f"late {len(late)}", "weave-share", late)
            record = run(engine, warehouse, version, 0, 2 * day, "run-1")
            assert [each for each in record.diagnostics if each["severity"] == "error"] == []
            tables = published(case, warehouse)
            assert wrong(expected, tables) == [] and "l0" in tables["q"]["label"].to_pylist()
