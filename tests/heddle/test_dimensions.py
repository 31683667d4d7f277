"""Dimensions where people meet them: what is declared, what is wrong with it, and SQL over answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

import heddle as public
from heddle.flight.messages import SCHEMAS
from heddle.flight.metadata import metadata
from heddle.pages import streams as streams_page
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations.lineage import LineageRun, answers_dataset, lineage_events
from spark_jobs.operations.trends import read_streams
from spark_jobs.results.connect import Question, ask
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.heddle.shop import write_shop
from tests.in_process import Clock, heddle, without_spark

DAYS = 1_741_200_000_000_000
"""2025-03-05T18:40:00Z, in microseconds."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the project, whose answers of two days are published."""
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder)
    with pytest.MonkeyPatch.context() as patch, without_spark(Clock(DAYS)):
        patch.chdir(folder)
        done = heddle("run", "--from", "2025-03-03", "--to", "2025-03-05")
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def inside(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(shop)
    with without_spark(Clock(DAYS)):
        yield shop


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the project, without answers."""
    write_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    with without_spark(Clock(DAYS)):
        yield tmp_path


def edit(file: str, before: str, after: str) -> None:
    text = Path(file).read_text()
    assert before in text
    Path(file).write_text(text.replace(before, after))


# ----------------------------------------------------------------------------------------- what is declared
def test_dimensions_are_described_with_who_joins_them(project: Path) -> None:
    shown = heddle("streams").out
    assert "dimension products: csv, 1 file, 4 rows\n  key: product_id\n  a change revises nothing" in shown
    assert "joined by by_department, by_brand" in shown and "joined by by_owner" in shown
    assert "a row is valid from since until until: 2025-03-01T00:00:00Z to 2025-03-05T00:00:00Z" in shown
    listed = json.loads(heddle("streams", "owners", "--json").out)
    assert listed["streams"] == [] and [each["name"] for each in listed["dimensions"]] == ["owners"]
    (owners,) = listed["dimensions"]
    assert (owners["key"], owners["rows"], owners["repair"], owners["joined_by"]) == (
        ["product_id"], 3, "30 days", ["by_owner"],
    )  # fmt: skip
    assert [(each["name"], each["type"], each["distinct"]) for each in owners["columns"]][:2] == [
        ("product_id", "long", 2), ("owner", "string", 2),
    ]  # fmt: skip


def test_a_name_of_neither_is_refused_with_the_nearest(project: Path) -> None:
    done = heddle("streams", "product")
    assert done.code == 1 and "there is no stream or dimension product" in done.err
    assert "did you mean products?" in done.err


def test_every_key_with_several_rows_is_named(project: Path) -> None:
    Path("products.csv").write_text(
        "product_id,name,department,brand_id\n7,a,x,1\n7,b,y,1\n7,c,z,1\n8,d,x,1\n9,e,x,1\n9,f,x,1\n"
    )
    for command in (["streams", "products"], ["validate"]):
        done = heddle(*command)
        assert done.code == 1 and "HDL-462" in done.err
        assert "two rows for product_id = 7" in done.err and "so have 9" in done.err
    assert "dimension products: 1 file, not usable, key product_id" in heddle("validate").out
    assert "brands: 1 file, 2 rows, key brand_id" in heddle("validate").out


@pytest.mark.parametrize(
    ("file", "before", "after", "code", "message"),
    [
        ("streams.yaml", "path: products.csv", "path: product.csv", "HDL-401", "dimension products: there is no"),
        ("streams.yaml", "key: brand_id", "key: brnd_id", "HDL-455", "did you mean brand_id?"),
        ("queries.sql", "LEFT JOIN products USING (product_id)", "LEFT JOIN products USING (prodct_id)", "HDL-464",
         "did you mean product_id?"),
        ("queries.sql", "o.product_id = p.product_id", "o.product_id = q.product_id", "HDL-202",
         "'q' is neither the stream of this query nor a dimension"),
        ("queries.sql", "JOIN owners", "JOIN orders", "HDL-103", "a join of two streams: 'orders' is one"),
        ("owners.csv", "7,bob,2025-03-03T12", "7,bob,2025-03-02T12", "HDL-462", "at one time"),
        ("owners.csv", "9,ann", "x,ann", "HDL-404", "dimension owners"),
    ],
)  # fmt: skip
def test_mistakes_are_found_before_a_run(
    project: Path, file: str, before: str, after: str, code: str, message: str
) -> None:
    edit(file, before, after)
    done = heddle("validate")
    assert done.code == 1 and code in done.err and message in done.err, done.err


def test_validate_reads_only_dimensions_that_are_joined(project: Path) -> None:
    Path("owners.csv").write_text("product_id\n7\n7\n")
    edit("queries.sql", "JOIN owners USING (product_id)", "JOIN products USING (product_id)")
    edit("queries.sql", "SELECT owner, sum", "SELECT name, sum")
    edit("queries.sql", "GROUP BY owner", "GROUP BY name")
    validated = json.loads(heddle("validate", "--json").out)
    assert {each["name"]: each["rows"] for each in validated["dimensions"]} == {"products": 3, "brands": 2}
    assert validated["diagnostics"] == []


def test_a_query_with_the_name_of_a_dimension_is_warned_of(project: Path) -> None:
    edit("queries.sql", "-- name: by_owner", "-- name: Owners")
    done = heddle("validate")
    assert done.code == 0 and "warning HDL-469 Owners is a query and a dimension" in done.err


# ------------------------------------------------------------------------------------------- how it reads
def test_attributes_read_as_columns_of_their_dimension(inside: Path) -> None:
    explained = heddle("explain", "by_brand").out
    assert "joins products by product_id, for brand_id, department: leaves out events without a row" in explained
    assert "joins brands by products.brand_id, for brand: leaves out events without a row" in explained
    assert "joins products by product_id, for department: null where" in heddle("explain", "by_department").out
    contract = yaml.safe_load(heddle("contract").out)
    described = {
        (each["name"], column["name"]): column["description"]
        for each in contract["schema"]
        for column in each["properties"]
    }
    assert described["by_department", "department"] == "group: department of products, by product_id"
    assert described["by_brand", "brand"] == "group: upper(brands.brand) of orders"
    assert described["by_brand", "toys"] == "max of products.department, amount"
    every = (explained, heddle("contract").out, heddle("plan", "--format", "html").out)
    assert not any("products(product_id)" in text for text in every)


def test_explain_names_the_version_that_the_newest_run_used(inside: Path) -> None:
    versions = json.loads(heddle("explain", "by_brand", "--json").out)["dimensions"]
    used = {file.parent.name: file.read_text() for file in Path("warehouse/dimensions").glob("*/current")}
    assert {"products", "brands"} == versions.keys() and versions.items() <= used.items()
    assert f"dimension products is in version {versions['products']}" in heddle("explain", "by_brand").out


def test_lineage_names_the_columns_of_dimensions(inside: Path) -> None:
    warehouse = Warehouse.open("warehouse", create=False)
    plan = load_plan(warehouse, 1)
    (row,) = publish_log.publications(warehouse)
    run = LineageRun(row.record, plan, {}, str(warehouse.place), DAYS)
    completed = next(each for each in lineage_events(run) if each["eventType"] == "COMPLETE")
    names = {each["name"].rpartition("/")[2] for each in completed["inputs"]}
    assert {"orders.csv", "products.csv", "brands.csv", "owners.csv"} <= names
    query = plan.workload.query("by_brand")
    facet = answers_dataset(run, query).facets["columnLineage"]

    def fields(of: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
        return {
            (each["name"].rpartition("/")[2], each["field"], way["subtype"])
            for each in of
            for way in each["transformations"]
        }

    assert fields(facet["fields"]["brand"]["inputFields"]) == {("brands.csv", "brand", "TRANSFORMATION")}
    assert fields(facet["fields"]["toys"]["inputFields"]) == {
        ("orders.csv", "amount", "AGGREGATION"), ("products.csv", "department", "AGGREGATION"),
    }  # fmt: skip
    assert {
        ("orders.csv", "product_id", "JOIN"), ("products.csv", "product_id", "JOIN"),
        ("products.csv", "brand_id", "JOIN"), ("brands.csv", "brand_id", "JOIN"), ("brands.csv", "brand", "GROUP_BY"),
    } <= fields(facet["dataset"])  # fmt: skip


def test_the_page_of_streams_shows_dimensions_in_use(inside: Path) -> None:
    html = streams_page.page(read_streams(Warehouse.open("warehouse", create=False)))
    assert (
        'id="dimensions"' in html
        and "<td>products</td><td>product_id</td><td>department, brand_id</td><td>2</td>" in html
    )
    assert "<td>30 d</td>" in html


# ------------------------------------------------------------------------------------- SQL over answers
JOIN = """
SELECT p.name, sum(q.sales) AS sales FROM by_department q JOIN products p USING (department) GROUP BY ALL ORDER BY ALL
"""


def test_answers_are_joined_with_a_dimension_as_its_source_is_now(inside: Path) -> None:
    rows = json.loads(heddle("sql", JOIN, "--json").out)["rows"]
    assert rows == [{"name": "ball", "sales": "34"}, {"name": "bread", "sales": "3"}, {"name": "puzzle", "sales": "34"}]
    assert public.open("warehouse").sql(JOIN).num_rows == 3
    # not only what a run read
    assert len(ask(Warehouse.open("warehouse"), "FROM products")) == 4


def test_outside_of_the_project_only_columns_in_use_are_there(shop: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse.open(shop / "warehouse", create=False)
    table = ask(warehouse, "FROM products ORDER BY ALL")
    assert table.to_pylist() == [
        {"product_id": 7, "department": "toys", "brand_id": 1},
        {"product_id": 8, "department": "food", "brand_id": 2},
        {"product_id": 9, "department": "toys", "brand_id": 1},
    ]
    with pytest.raises(HeddleError, match="name"):
        ask(warehouse, "SELECT name FROM products")
    owners = ask(warehouse, "SELECT owner, since::VARCHAR AS since, until::VARCHAR AS until FROM owners ORDER BY ALL")
    assert owners.to_pylist() == [
        {"owner": "ann", "since": "2025-03-01 00:00:00+00", "until": "2025-03-05"},
        {"owner": "ann", "since": None, "until": "2025-03-03"},
        {"owner": "bob", "since": "2025-03-03 12:00:00+00", "until": None},
    ]


def test_what_reads_answers_reads_the_same_dimensions(shop: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse.open(shop / "warehouse", create=False)
    text = "SELECT * FROM dimensions.owners JOIN products USING (product_id) ORDER BY ALL"
    expected = ask(warehouse, text).to_pylist()
    with public.connect(str(shop / "warehouse")) as connection:
        assert connection.execute(text).to_arrow_table().to_pylist() == expected
    assert heddle("views", "--warehouse", str(shop / "warehouse"), "--output", "x.duckdb").code == 0
    with duckdb.connect("x.duckdb", read_only=True) as file:
        assert file.execute(text).to_arrow_table().to_pylist() == expected
    with Question(warehouse, "FROM brands") as question:
        assert question.schema().names == ["brand_id", "brand"]


class Command:
    """A request for tables, as a client of Flight SQL sends it."""

    include_schema, table_types = True, ("VIEW",)

    def HasField(self, name: str) -> bool:
        return False


def test_flight_clients_see_dimensions_among_the_tables(shop: Path) -> None:
    table = metadata(Warehouse.open(shop / "warehouse", create=False), "CommandGetTables", Command())
    names = table["table_name"].to_pylist()
    assert names == ["brands", "by_brand", "by_department", "by_owner", "owners", "products"]
    assert len(SCHEMAS) > 0 and all(table["table_schema"].to_pylist())


def test_statements_about_the_views_see_dimensions(inside: Path) -> None:
    shown = heddle("sql", "SHOW TABLES", "--format", "csv").out
    assert {'"by_owner"', '"products"', '"owners"', '"brands"'} <= set(shown.splitlines())
    done = heddle("sql", "FROM prodcts")
    assert done.code == 2 and "HDL-621" in done.err and "did you mean products?" in done.err


def test_a_query_comes_before_a_dimension_of_its_name(project: Path) -> None:
    edit("queries.sql", "-- name: by_owner", "-- name: Owners")
    assert heddle("run", "--from", "2025-03-03", "--to", "2025-03-05").code == 0
    done = heddle("sql", "SELECT sales FROM owners ORDER BY 1", "--format", "csv")
    assert done.out.splitlines() == ['"sales"', "4", "20"]
    assert "warning HDL-469 owners is a query and a dimension: the query is read" in done.err
    done = heddle("sql", "SELECT count(*) AS n FROM owners o, dimensions.owners d", "--format", "csv")
    assert done.out.splitlines() == ['"n"', "6"]
    done = heddle("sql", "SELECT count(*) AS n FROM dimensions.owners", "--format", "csv")
    assert done.out.splitlines() == ['"n"', "3"]


def test_a_dimension_that_cannot_be_read_fails_what_names_it_alone(inside: Path) -> None:
    moved = Path("brands.csv").rename("brands.gone")
    try:
        assert heddle("sql", "SELECT count(*) FROM by_owner").code == 0
        done = heddle("sql", "FROM brands")
        assert done.code == 1 and "HDL-401 dimension brands: there is no" in done.err
    finally:
        moved.rename("brands.csv")
