"""The join of a plain Spark job, which ``heddle compare`` measures, against the join by DuckDB."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.audit.unshared.columns import with_leaves
from spark_jobs.audit.unshared.measure import measure, native_frame
from spark_jobs.audit.unshared.spark_joins import joined_frame
from spark_jobs.audit.unshared.values import spark_name
from spark_jobs.store.warehouse.plans import load_plan
from tests.joined_cases import JoinedCase, as_read, in_order, joined_cases, joined_events, with_stored_dimensions
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, planned, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@settings(DEAR, max_examples=examples(3, 20))
@given(joined=joined_cases(1, 30), formats=st.lists(st.sampled_from(("parquet", "csv")), min_size=1, max_size=2))
def test_a_plain_spark_job_joins_alike(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, joined: JoinedCase, formats: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("frames")
    joined = with_stored_dimensions(joined, folder / "dimensions", formats)
    stream = stored(joined.case, folder / "source", "parquet").stream
    names = [*joined.joins]
    for attribute in joined.joins.values():
        names += [attribute._replace(column=column).name for column in ("carrier", "fine", "late", "huge")]
    read = partial(native_frame, spark)
    frame = joined_frame(with_leaves(read(stream), stream, []), stream, names, read)
    columns = ["ts", *names]
    rows = frame.toArrow().select([spark_name(name) for name in columns]).rename_columns(columns)
    expected = joined_events(joined, names).select(columns)
    assert in_order(as_read(rows, stream)) == in_order(as_read(expected, stream))


@settings(DEAR, max_examples=1)
@given(joined=joined_cases(2, 30))
def test_the_plain_job_of_a_joined_query_is_measured(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, joined: JoinedCase
) -> None:
    folder = tmp_path_factory.mktemp("measured")
    joined = with_stored_dimensions(joined, folder / "dimensions", ["parquet"])
    case = stored(joined.case, folder / "source", "parquet")
    warehouse, version = planned(case, folder / "warehouse", "weave-share")
    measured = measure(spark, load_plan(warehouse, version), case.begin, case.end, 2)
    assert {each["query"] for each in measured} <= {query.name for query in case.workload.queries} and measured
