"""Relations: whoever reads one finds the same typed rows, by whatever engine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import sqlglot
import yaml
from hypothesis import Phase, given, settings

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.jobs import create_views as job
from spark_jobs.results.catalogue import create_views, register
from spark_jobs.results.connect import connect
from spark_jobs.results.dbt import sources
from spark_jobs.results.frames import scan
from spark_jobs.results.read import read
from spark_jobs.results.relations import relations
from spark_jobs.results.views import DIALECTS, table_named, view_names, view_statements
from tests import goldens
from tests.sizes import examples
from tests.spark_jobs.results.stored import BY_TEXT, HOUR, TYPES, WHOLE, Stored, row, same, store, worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = {"q": "q", "Other.query-1": '"Other.query-1"'}


@given(steps=worlds())
@settings(max_examples=examples(25))
def test_every_reader_without_a_jvm_finds_the_same_typed_rows(steps: Any) -> None:
    with TemporaryDirectory() as folder:
        stored = store(Path(folder), steps)
        connection = connect(stored.warehouse)
        for name, view in VIEWS.items():
            expected = stored.expected(name)
            same(read(stored.warehouse, name, full=True), expected)
            same(connection.sql(f"SELECT * FROM {view}").to_arrow_table(), expected)
            same(scan(stored.warehouse, name).collect().to_arrow(), expected)
            assert relations(stored.warehouse)[name].schema == expected.schema


@pytest.mark.longer
@given(steps=worlds())
@settings(max_examples=examples(4), phases=(Phase.explicit, Phase.generate))
def test_spark_finds_them_too(spark: SparkSession, steps: Any) -> None:
    with TemporaryDirectory() as folder:
        stored = store(Path(folder), steps)
        for name, view in zip(VIEWS, register(spark, stored.warehouse, VIEWS), strict=True):
            assert view == name.replace(".", "_").replace("-", "_")
            same(spark.table(view).toArrow(), stored.expected(name))


@pytest.mark.longer
def test_a_catalogue_keeps_views_of_all_that_was_ever_answered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on with the table, are made anew over new definitions, and those of removed queries stay."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS answers_of_tests")
    try:
        stored = store(tmp_path / "w\u00e9 `x", [([WHOLE, BY_TEXT], [row(WHOLE, 0, 1), row(BY_TEXT, 0, 5, "A")])])
        assert create_views(spark, stored.warehouse, "answers_of_tests") == ["by_text", "whole"]
        longer = replace(WHOLE, window=replace(WHOLE.window, range=2 * HOUR))
        again = store(stored.warehouse.root, [([WHOLE], [row(WHOLE, 1, 2)]), ([longer], [row(longer, 2, 3)])])
        read_by = {name: f"SELECT max(n) FROM spark_catalog.answers_of_tests.{name}" for name in ("whole", "by_text")}
        assert spark.sql(read_by["whole"]).collect()[0][0] == 2
        create_views(spark, again.warehouse, "spark_catalog.answers_of_tests")
        assert [spark.sql(text).collect()[0][0] for text in read_by.values()] == [3, 5]
        arguments = ["--warehouse", str(stored.warehouse.root), "--catalog-schema"]
        session = SimpleNamespace(sql=spark.sql, stop=lambda: None, conf=spark.conf)
        monkeypatch.setattr(job, "start_session", lambda name: session)
        for schema in ("answers_of_tests", "spark_catalog.answers_of_tests"):
            with pytest.raises(HeddleError, match=r"HDL-624.*gone with this job"):
                job.main([*arguments, schema])
        session.conf = {"spark.sql.catalogImplementation": "hive"}
        assert job.main([*arguments, "answers_of_tests", "--plan-version", "3"]) == 0
        with pytest.raises(HeddleError, match=r"HDL-624.*no_such_schema"):
            job.main([*arguments, "no_such_schema"])
    finally:
        spark.sql("DROP SCHEMA answers_of_tests CASCADE")


# ------------------------------------------------------------------------------------------ text of views
@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A query with a group and an output of every type."""
    grouped = tuple((name, type) for name, type in TYPES.items() if name != "real")
    outputs = tuple(replace(BY_TEXT.outputs[0], name=f"max_{name}", type=type) for name, type in TYPES.items())
    query = replace(BY_TEXT, name="team-a.typed", outputs=outputs, group_by=grouped, select=())
    return store(tmp_path_factory.mktemp("typed") / "w", [([query, WHOLE], [])])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_text_for_each_engine_is_as_it_was_looked_at(typed: Stored, dialect: str) -> None:
    """What it should be was compared with each engine's manual; DuckDB and Spark run theirs above."""
    source, place = table_named("lake.heddle.results", dialect), table_named("mart.answers", dialect)
    ((_, text),) = view_statements(relations(typed.warehouse), source, dialect, place, ["team-a.typed"])
    parsed = sqlglot.parse(text, dialect=dialect)
    assert len(parsed) == 1 and parsed[0] is not None and parsed[0].sql(dialect, pretty=True) == text
    goldens.check(f"views_{dialect}.sql", re.sub("'[0-9a-f]{16}'", "'…'", text) + "\n")


def test_views_have_names_that_engines_take(tmp_path: Path) -> None:
    long = "q" * 128
    queries = [replace(WHOLE, name=name) for name in ("a.b", "a-b", "A_B", long, long[:-1] + "x")]
    known = relations(store(tmp_path / "w", [(queries, [])]).warehouse)
    for dialect, spoken in DIALECTS.items():
        names = view_names(known, dialect)
        assert len({name.lower() for name in names.values()}) == 5
        assert all(len(name) <= spoken.longest for name in names.values())
        assert not spoken.plain or all(name.isidentifier() for name in names.values())


@pytest.mark.parametrize("text", ["", "a b", "a;b", "f(x)", "(SELECT 1)", "a.b.c.d.e f", "a JOIN b"])
def test_what_is_no_name_of_a_table_is_refused(text: str) -> None:
    with pytest.raises(HeddleError, match="HDL-623"):
        table_named(text, "duckdb")


def test_sources_of_dbt_have_a_name_and_their_tests_too(tmp_path: Path) -> None:
    world = store(tmp_path / "w", [([BY_TEXT, WHOLE, replace(WHOLE, name="by-text")], [])])
    (source,) = yaml.safe_load(sources(relations(world.warehouse), "duckdb", source_name="prod"))["sources"]
    tests = [table["data_tests"][0]["unique"]["name"] for table in source["tables"]]
    assert source["name"] == "prod" and "unique_prod_whole" in tests
    assert len(set(tests)) == 3 and all(name.isidentifier() for name in tests)


def test_dbt_is_told_of_columns_grain_and_age(tmp_path: Path) -> None:
    hostile = replace(BY_TEXT, owner="{{ env_var('SECRET') }}", text="SELECT '{% raw %}{# x' -- : | >\nFROM t")
    world = store(
        tmp_path / "w", [([hostile], [row(BY_TEXT, n, n, who) for n in range(3) for who in ("A", None, "-")])]
    )
    text = sources(relations(world.warehouse), "duckdb", table_named("lake.answers", "duckdb"))
    (source,) = yaml.safe_load(text)["sources"]
    assert (source["database"], source["schema"]) == ("lake", "answers")
    (table,) = source["tables"]
    assert table["freshness"] == {"warn_after": {"count": 1, "period": "hour"}}
    assert table["name"] == "by.text" and not re.search(r"\{[{%#]", text)
    assert [column["name"] for column in table["columns"]][2:5] == ["who", "n", "last"]
    assert source["name"] == "heddle" and table["config"]["meta"]["owner"] == "{ { env_var('SECRET') }}"
    # dbt's own test, as it is written there
    unique = table["data_tests"][0]["unique"]["column_name"]
    counted = f'SELECT {unique} AS unique_field, count(*) AS n FROM "by.text" WHERE {unique} IS NOT NULL GROUP BY 1'
    groups = connect(world.warehouse).sql(counted).fetchall()
    assert len(groups) == 9 and all(n == 1 for _, n in groups)
