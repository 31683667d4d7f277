"""Relations: whoever reads one finds the same typed rows, by whatever engine."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hypothesis import Phase, given, settings

from spark_jobs.results.catalogue import register
from spark_jobs.results.connect import connect
from spark_jobs.results.frames import scan
from spark_jobs.results.read import read
from spark_jobs.results.relations import relations
from tests.sizes import examples
from tests.spark_jobs.results.stored import same, store, worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = {"q": "q", "Other.query-1": '"Other.query-1"'}


@given(steps=worlds())
@settings(max_examples=examples(25))
def test_every_reader_without_a_jvm_finds_the_same_typed_rows(steps: Any) -> None:
    with TemporaryDirectory() as folder:
        made = store(Path(folder), steps)
        connection = connect(made.warehouse)
        for name, view in VIEWS.items():
            expected = made.expected(name)
            same(read(made.warehouse, name, full=True), expected)
            same(connection.sql(f"SELECT * FROM {view}").to_arrow_table(), expected)
            same(scan(made.warehouse, name).collect().to_arrow(), expected)
            assert relations(made.warehouse)[name].schema == expected.schema


@given(steps=worlds())
@settings(max_examples=examples(4), phases=(Phase.explicit, Phase.generate))
def test_spark_finds_them_too(spark: SparkSession, steps: Any) -> None:
    with TemporaryDirectory() as folder:
        made = store(Path(folder), steps)
        for name, view in zip(VIEWS, register(spark, made.warehouse, VIEWS), strict=True):
            assert view == name.replace(".", "_").replace("-", "_")
            same(spark.table(view).toArrow(), made.expected(name))
