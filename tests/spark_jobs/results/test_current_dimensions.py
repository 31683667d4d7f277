"""Tables and views of dimensions: who reads one by any engine has the rows that a run used last."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
import yaml
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from heddle.pages import streams as streams_page
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Dimension, Source
from spark_jobs.operations.file_checks import check_files
from spark_jobs.operations.maintenance import maintain
from spark_jobs.operations.trends import read_streams
from spark_jobs.results import current_dimensions
from spark_jobs.results.catalogue import create_views, register
from spark_jobs.results.current_dimensions import (
    current_place,
    follow_current,
    held_file,
    held_version,
    stored_columns,
    table_names,
    table_of,
)
from spark_jobs.results.dimension_tables import stored_select
from spark_jobs.results.relations import relations
from spark_jobs.results.views import DIALECTS, dimension_view_names, dimension_views, table_named
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_versions import note_current, versions_folder
from spark_jobs.streams.sources.dimensions import store_version, with_schema_of_files
from tests import goldens, snippets
from tests.heddle.api.api_client import client_of
from tests.heddle.shop import FILES, write_shop
from tests.in_process import Clock, Said, heddle, without_spark
from tests.sizes import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_741_200_000_000_000
EPOCH = datetime(2025, 1, 1, tzinfo=UTC)

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
}

COLUMNS = [f"of {name}" if name == "boolean" else f"a_{name}" for name in VALUES]


@st.composite
def dimensions(draw: st.DrawFn) -> tuple[pa.Table, list[str], list[str]]:
    """Rows of a dimension, its key, and the columns of its validity."""
    parts = draw(st.lists(st.sampled_from([name for name in VALUES if name != "double"]), min_size=1, max_size=2))
    names = [f"k{number}" for number in range(len(parts))]
    key_of = st.tuples(*(VALUES[part][1] | st.none() for part in parts))
    keys = draw(st.lists(key_of, max_size=8, unique=True))
    bounds = [name for name in ("valid_since", "valid_until") if draw(st.booleans())]
    bounds = bounds[: 0 if "valid_since" not in bounds else 2]
    kinds = {bound: draw(st.sampled_from(["date", "timestamp"])) for bound in bounds}
    rows: list[dict[str, Any]] = []
    for each in keys:
        first = draw(st.integers(0, 50))
        for number in range(draw(st.integers(1, 3)) if bounds else 1):
            # spans that follow one another, the last perhaps open
            moments = [EPOCH + timedelta(days=first + 10 * number), EPOCH + timedelta(days=first + 10 * number + 7)]
            row = dict(zip(names, each, strict=True))
            row |= dict(zip(bounds, moments, strict=False))
            if "valid_until" in bounds and number == 2 and draw(st.booleans()):
                row["valid_until"] = None
            rows.append(row | {c: draw(v | st.none()) for c, (_, v) in zip(COLUMNS, VALUES.values(), strict=True)})
    types = dict(zip(names, (VALUES[part][0] for part in parts), strict=True))
    types |= {bound: VALUES[kinds[bound]][0] for bound in bounds}
    types |= {column: type for column, (type, _) in zip(COLUMNS, VALUES.values(), strict=True)}
    columns = {
        name: [row[name].date() if kinds.get(name) == "date" and row[name] else row[name] for row in rows]
        for name in types
    }
    return pa.table({name: pa.array(columns[name], type) for name, type in types.items()}), names, bounds


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=str)


def used(warehouse: Warehouse, rows: pa.Table, key: Sequence[str], bounds: Sequence[str], folder: Path) -> Dimension:
    """The dimension ``things`` with some rows, of which a run has noted a version with all columns."""
    pq.write_table(rows, folder / "rows.parquet")
    options = dict(zip(("valid_from", "valid_to"), bounds, strict=False))
    source = Source("parquet", str(folder / "rows.parquet"))
    dimension, _ = with_schema_of_files(Dimension("things", source, tuple(key), (), **options))
    version = store_version(dimension, rows.column_names, versions_folder(warehouse, "things"))
    note_current(warehouse, "things", version)
    return dimension


def delta_rows(warehouse: Warehouse, name: str) -> pa.Table:
    return DeltaTable(warehouse.path(table_of(name))).to_pyarrow_table()


def check_table(folder: Path, rows: pa.Table, key: list[str], bounds: list[str]) -> Warehouse:
    """A warehouse whose table of ``things`` has the rows with a complete key."""
    warehouse = Warehouse.open(folder / "w")
    for part in (rows, rows.slice(1), rows):
        dimension = used(warehouse, part, key, bounds, folder)
        assert follow_current(warehouse, [dimension]) == []
        expected = part.filter(pa.compute.and_kleene(*([part[name].is_valid() for name in (key * 2)[:2]])))
        stored = delta_rows(warehouse, "things")
        assert stored.schema.equals(expected.schema)
        assert ordered(stored) == ordered(expected)
        place = current_place(warehouse, "things")
        assert place is not None
        text = stored_select(dimension, stored_columns(dimension, place), exp.to_table("stored")).sql("duckdb")
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("stored", pq.read_table(place.open()))
            assert ordered(connection.execute(text).to_arrow_table().cast(stored.schema)) == ordered(stored)
    return warehouse


@given(made=dimensions())
@settings(max_examples=examples(30))
def test_a_table_has_the_rows_of_the_version_under_their_names_and_types(made: Any) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(current_dimensions, "ROW_GROUP", 3)
        check_table(Path(folder), *made)


@pytest.mark.longer
@given(made=dimensions())
@settings(max_examples=examples(4), phases=(Phase.explicit, Phase.generate))
def test_spark_reads_the_same_rows(spark: SparkSession, made: Any) -> None:
    with TemporaryDirectory() as folder:
        warehouse = check_table(Path(folder), *made)
        frame = spark.sql(f"SELECT * FROM delta.`{warehouse.path(table_of('things'))}`")
        stored = delta_rows(warehouse, "things")
        assert ordered(frame.toArrow().cast(stored.schema)) == ordered(stored)


def test_the_documents_show_how_a_table_is_read(shop: Warehouse) -> None:
    *steps, shown = snippets.DIMENSION_TABLE.replace("var/warehouse", shop.path("")).strip().splitlines()
    names: dict[str, Any] = {"duckdb": duckdb, "DeltaTable": DeltaTable}
    exec("\n".join(steps), names)  # noqa: S102 - our own documentation
    assert sorted(eval(shown, names).fetchall()) == [(7, "toys"), (8, "food"), (9, "toys")]  # noqa: S307


# --------------------------------------------------------------------------------------------- following
@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """The warehouse of a project in the working folder that joins dimensions, with a run."""
    write_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    with without_spark(Clock(NOW)):
        assert run().code == 0
        yield Warehouse.open("warehouse", create=False)


def run(*arguments: str) -> Said:
    return heddle("run", "--from", "2025-03-03", "--to", "2025-03-05", *arguments)


def edit(file: str, before: str, after: str) -> None:
    text = Path(file).read_text()
    assert before in text
    Path(file).write_text(text.replace(before, after))


def stands(warehouse: Warehouse, name: str) -> bool:
    """Whether a table has the version that `current` names."""
    return held_version(warehouse, table_of(name)) == (versions_folder(warehouse, name) / "current").read().decode()


def departments(warehouse: Warehouse) -> dict[int, str]:
    rows = delta_rows(warehouse, "products").to_pylist()
    return {row["product_id"]: row["department"] for row in rows}


def test_a_version_that_the_table_has_is_not_written_again(shop: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: held_file(shop, name) for name in table_names(shop)}
    assert [*files] == [table_of(name) for name in ("brands", "owners", "products")] and all(files.values())
    monkeypatch.setattr(current_dimensions, "_written", lambda *_: pytest.fail("written again"))
    assert run().code == 0 and run("--recompute").code == 0
    assert {name: held_file(shop, name) for name in table_names(shop)} == files
    assert [shop.version(name) for name in files] == [0, 0, 0]


def test_each_run_brings_the_table_to_the_version_that_it_uses(shop: Warehouse) -> None:
    for text in (FILES["products.csv"].replace("bread,food", "bread,drink"), FILES["products.csv"]):
        Path("products.csv").write_text(text)
        assert run().code == 0
        assert stands(shop, "products") and departments(shop)[8] == ("drink" if "drink" in text else "food")
    assert shop.version(table_of("products")) == 2 and shop.version(table_of("brands")) == 0
    # the former rows are read as a version of the table
    former = DeltaTable(shop.path(table_of("products")), version=1).to_pyarrow_table().to_pylist()
    assert {"product_id": 8, "department": "drink", "brand_id": 2} in former


def test_columns_in_use_are_those_of_the_table(shop: Warehouse) -> None:
    edit("queries.sql", "SELECT department, count(*)", "SELECT name, count(*)")
    edit("queries.sql", "GROUP BY department", "GROUP BY name")
    edit("queries.sql", " FILTER (WHERE p.department = 'toys')", "")
    assert run().code == 0
    assert delta_rows(shop, "products").column_names == ["product_id", "name", "brand_id"]


def cut(*_: object, **__: object) -> Any:
    raise OSError("the disk is gone")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_commit_that_fails_is_made_up_for_by_the_next_run(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    if is_first:
        (shop.place / current_dimensions.FOLDER).remove_folder()
    Path("products.csv").write_text(FILES["products.csv"].replace("bread,food", "bread,drink"))
    with monkeypatch.context() as patch:
        patch.setattr(current_dimensions, "create_table_with_add_actions", cut)
        patch.setattr(DeltaTable, "create_write_transaction", cut_for_dimensions())
        done = run("--recompute")
    assert "HDL-563 the table of dimension products was not written" in done.err and "the disk is gone" in done.err
    assert not stands(shop, "products")
    # the answers are published all the same
    assert ',"drink",1,3' in heddle("read", "by_department", "--format", "csv").out
    assert is_first or departments(shop)[8] == "food"
    assert run().code == 0
    assert stands(shop, "products") and departments(shop)[8] == "drink"


def cut_for_dimensions() -> Any:
    """Delta's commit, which fails for tables of dimensions."""
    commit = DeltaTable.create_write_transaction

    def cutting(self: DeltaTable, actions: Any, mode: str, *rest: Any, **options: Any) -> None:
        if mode == "overwrite":
            cut()
        commit(self, actions, mode, *rest, **options)

    return cutting


def test_a_process_that_ends_before_the_commit_leaves_the_table_as_it_was(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> Any:
        raise KeyboardInterrupt

    Path("products.csv").write_text(FILES["products.csv"].replace("bread,food", "bread,drink"))
    with monkeypatch.context() as patch:
        patch.setattr(current_dimensions, "_commit", killed)
        assert run().code != 0
    assert departments(shop)[8] == "food" and not stands(shop, "products")
    assert run().code == 0
    assert departments(shop)[8] == "drink" and stands(shop, "products")


def test_a_run_that_another_one_overtook_leaves_the_table_to_it(
    shop: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, current = current_dimensions._written, (versions_folder(shop, "products") / "current").read()

    def overtaken(*arguments: Any) -> Any:
        file = written(*arguments)
        if arguments[0].name == "products":
            (versions_folder(shop, "products") / "current").put(current)
        return file

    Path("products.csv").write_text(FILES["products.csv"].replace("bread,food", "bread,drink"))
    with monkeypatch.context() as patch:
        patch.setattr(current_dimensions, "_written", overtaken)
        assert run().code == 0
    assert stands(shop, "products") and departments(shop)[8] == "food"
    assert len([*(shop.root / table_of("products")).glob("*.parquet")]) == 1


def test_a_lost_file_is_written_again(shop: Warehouse) -> None:
    table = table_of("products")
    (shop.place / table / str(held_file(shop, table))).remove()
    assert run().code == 0
    assert departments(shop) == {7: "toys", 8: "food", 9: "toys"}


def test_a_warehouse_without_tables_gets_them_with_the_next_run(shop: Warehouse) -> None:
    (shop.place / current_dimensions.FOLDER).remove_folder()
    assert dimension_views(shop, relations(shop), "spark") == []
    assert run().code == 0
    assert len(table_names(shop)) == 3


# ------------------------------------------------------------------------------------------- maintenance
def test_maintenance_removes_former_versions_and_what_is_damaged(shop: Warehouse) -> None:
    table = table_of("products")
    Path("products.csv").write_text(FILES["products.csv"].replace("bread,food", "bread,drink"))
    assert run().code == 0
    files = shop.root / table
    assert len([*files.glob("*.parquet")]) == 2
    for file in files.glob("*.parquet"):
        os.utime(file, (0, 0))
    assert maintain(shop, retention=0).tables[table] == 1
    assert [file.name for file in files.glob("*.parquet")] == [held_file(shop, table)]
    damaged = files / str(held_file(shop, table))
    content = bytearray(damaged.read_bytes())
    content[8] ^= 1
    damaged.write_bytes(content)
    (found,) = check_files(shop).damaged
    assert (found.table, found.mended_by) == (
        table,
        "remove the folder dimension_tables/products of the warehouse: the next run makes it anew",
    )
    maintain(shop)
    assert held_file(shop, table) is None and run().code == 0
    assert departments(shop)[8] == "drink"


def test_values_of_former_rows_are_told_of_by_an_erasure(shop: Warehouse) -> None:
    Path("products.csv").write_text(FILES["products.csv"].replace("bread,food", "bread,drink"))
    assert run().code == 0
    holders = {holder.what for holder in maintain(shop, erase=True).holders}
    assert "dimension_tables/products: files of earlier versions" in holders


# ----------------------------------------------------------------------------------------------- views
JOIN = """
SELECT p.product_id, q.sales FROM by_department q JOIN {0}products p USING (department) WHERE q.sales < 20
"""


@pytest.mark.longer
def test_spark_joins_answers_with_dimensions(spark: SparkSession, shop: Warehouse) -> None:
    expected = [(7, 14), (8, 3), (9, 14)]
    made = register(spark, shop)
    assert {"products", "dimensions_products", "dimensions_owners"} <= {*made}
    assert register(spark, shop, ["by_owner"]) == ["by_owner"]
    for name in ("", "dimensions_"):
        assert sorted(map(tuple, spark.sql(JOIN.format(name)).collect())) == expected
    assert spark.table("owners").toArrow().to_pylist() == delta_rows(shop, "owners").to_pylist()
    spark.sql("CREATE SCHEMA IF NOT EXISTS shop_of_tests")
    try:
        assert {"products", "dimensions_products"} <= {*create_views(spark, shop, "shop_of_tests")}
        text = JOIN.format("shop_of_tests.").replace("FROM by_", "FROM shop_of_tests.by_")
        assert sorted(map(tuple, spark.sql(text).collect())) == expected
        # a view that stays has new rows, and new columns
        Path("products.csv").write_text(FILES["products.csv"].replace("bread,food", "bread,toys"))
        edit("queries.sql", "SELECT department, count(*)", "SELECT department, max(name) AS name, count(*)")
        assert run().code == 0
        rows = spark.sql("SELECT product_id, department, name FROM shop_of_tests.products").collect()
        assert sorted(map(tuple, rows)) == [(7, "toys", "ball"), (8, "toys", "bread"), (9, "toys", "puzzle")]
    finally:
        spark.sql("DROP SCHEMA shop_of_tests CASCADE")
        for view in made:
            spark.catalog.dropTempView(view)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_text_for_each_engine_is_as_it_was_looked_at(shop: Warehouse, dialect: str) -> None:
    place, schema = table_named("mart.answers", dialect), table_named("lake.dimensions", dialect)
    made = dimension_views(shop, relations(shop), dialect, place, schema)
    assert [view for _, view, _ in made] == [
        view for name in ("brands", "owners", "products") for view in (name, f"dimensions_{name}")
    ]
    for _, _, text in made:
        parsed = sqlglot.parse(text, dialect=dialect)
        assert len(parsed) == 1 and parsed[0] is not None and parsed[0].sql(dialect, pretty=True) == text
    goldens.check(f"views_of_dimensions_{dialect}.sql", ";\n\n".join(text for _, _, text in made[2:4]) + "\n")


def test_duckdb_executes_its_views(shop: Warehouse) -> None:
    """DuckDB's extension is not here: the tables are given to it under the names that the text has for them."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; CREATE SCHEMA lake")
        for name in ("brands", "owners", "products"):
            connection.register(f"rows of {name}", delta_rows(shop, name))
            connection.execute(f'CREATE TEMP VIEW "{name}_" AS FROM "rows of {name}"')
        for dimension, view, text in dimension_views(
            shop, relations(shop), "duckdb", None, table_named("lake", "duckdb")
        ):
            text = text.replace(f'"lake"."{dimension}"', f'"{dimension}_"').replace("VIEW", "TEMP VIEW", 1)
            connection.execute(text)
            rows = connection.execute(f'FROM "{view}"').to_arrow_table()
            assert rows.to_pylist() == delta_rows(shop, dimension).to_pylist()


def test_views_that_stay_are_made_before_a_run_has_used_a_dimension(shop: Warehouse) -> None:
    for folder in (current_dimensions.FOLDER, "dimensions"):
        (shop.place / folder).remove_folder()
    made = list[str]()
    create_views(SimpleNamespace(sql=made.append), shop, "mart.answers")  # type: ignore[arg-type]
    assert any("VIEW `mart`.`answers`.`dimensions_products`\nWITH SCHEMA EVOLUTION" in text for text in made)
    planned = {name: delta_rows(shop, name) for name in ("brands", "owners", "products")}
    assert not any(len(rows) for rows in planned.values())
    assert run("--recompute").code == 0
    for name, rows in planned.items():
        used = delta_rows(shop, name)
        assert len(used) and used.schema.equals(rows.schema)


def test_a_query_and_a_dimension_of_one_name_have_views_of_their_own() -> None:
    names = dimension_view_names(["Products", "owners", "x"], ["products", "dimensions_owners", "y"], "trino")
    assert names["Products"] == ["dimensions_Products"] and names["x"] == ["x", "dimensions_x"]
    first, second = names["owners"]
    assert first == "owners" and re.fullmatch(r"dimensions_owners_[0-9a-f]{8}", second)
    for dialect, spoken in DIALECTS.items():
        long = ["d" * 128, "d" * 127 + "e", "dimensions_x", "x", "X"]
        views = [view for of in dimension_view_names(long, ["x"], dialect).values() for view in of]
        assert len({view.lower() for view in views}) == len(views)
        assert all(len(view) <= spoken.longest and view.isidentifier() for view in views)


def test_the_command_prints_them_and_says_what_is_missing(shop: Warehouse) -> None:
    edit("queries.sql", "-- name: by_owner", "-- name: Owners")
    assert run().code == 0
    printed = heddle("views", "--dialect", "spark").out
    path = shop.path(table_of("products"))
    assert f"CREATE OR REPLACE VIEW `products`\nWITH SCHEMA EVOLUTION AS\nSELECT\n  *\nFROM delta.`{path}`" in printed
    assert "VIEW `owners`" not in printed and "VIEW `dimensions_owners`" in printed
    only = heddle("views", "Owners", "--dialect", "spark").out
    assert "dimension" not in only
    named = ("views", "--dialect", "trino", "--from", "delta.heddle.results", "--catalog-schema", "delta.answers")
    done = heddle(*named)
    assert "dimensions_products" not in done.out
    assert "no views of brands, owners, products: --dimensions-from names the schema" in done.err
    listed = json.loads(heddle(*named, "--dimensions-from", "delta.dimensions", "--json").out)
    assert [each["view"] for each in listed["dimensions"]][:2] == ["brands", "dimensions_brands"]
    assert 'FROM "delta"."dimensions"."brands"' in listed["dimensions"][0]["statement"]
    done = heddle(*named, "--dimensions-from", "delta.Answers")
    assert done.code == 2 and "HDL-623" in done.err and "take the names of their tables" in done.err


def test_dbt_knows_dimensions(shop: Warehouse) -> None:
    (source,) = yaml.safe_load(heddle("views", "--dbt").out)["sources"]
    (table,) = (each for each in source["tables"] if each["name"] == "owners")
    assert [(column["name"], column["data_type"]) for column in table["columns"]] == [
        ("product_id", "BIGINT"), ("owner", "TEXT"), ("since", "TIMESTAMPTZ"), ("until", "DATE"),
    ]  # fmt: skip
    assert [column.get("data_tests") for column in table["columns"]] == [["not_null"], None, None, None]


def test_a_file_of_views_has_a_dimension_that_a_query_shadows(shop: Warehouse) -> None:
    edit("queries.sql", "-- name: by_owner", "-- name: Owners")
    assert run().code == 0 and heddle("views", "--output", "house.duckdb").code == 0
    with duckdb.connect("house.duckdb", read_only=True) as file:
        assert file.execute(
            "SELECT count(*) FROM dimensions_owners JOIN dimensions.owners USING (owner)"
        ).fetchone() == (5,)
        assert file.execute("SELECT max(sales) FROM main.owners").fetchone() == (20,)


# ------------------------------------------------------------------------------------------------ who reads them
def test_an_engine_whose_sql_is_not_known_is_refused(shop: Warehouse) -> None:
    with pytest.raises(HeddleError, match="HDL-623"):
        dimension_views(shop, relations(shop), "trino")


def test_what_is_handed_out_has_no_dimensions(shop: Warehouse) -> None:
    """The API and contracts have answers alone."""
    described = heddle("contract").out
    names = ["by_brand", "by_department", "by_owner"]
    assert [each["name"] for each in yaml.safe_load(described)["schema"]] == names
    client = client_of(shop.root)
    assert [each["query"] for each in client.get("queries").json()["queries"]] == names
    statuses = [client.get(f"answers/{name}").status_code for name in ("by_owner", "products", "dimensions.products")]
    assert statuses == [200, 404, 404]
    assert client_of(shop.root, "t" * 16).get("queries").status_code == 401


def test_the_page_of_streams_names_the_table(shop: Warehouse) -> None:
    html = streams_page.page(read_streams(shop))
    assert "Delta table" in html and "<td>dimension_tables/products</td>" in html
    (shop.place / current_dimensions.FOLDER).remove_folder()
    assert "dimension_tables" not in streams_page.page(read_streams(shop))
