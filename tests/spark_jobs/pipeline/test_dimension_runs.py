"""Runs over files whose queries join dimensions: the acceptance examples, what is wrong with a dimension, its changes,
and what ``heddle audit`` makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import Said, heddle

CASES = {
    case["id"]: case for case in json.loads((Path(__file__).parents[2] / "fixtures/dimension_cases.json").read_text())
}

TYPES = {
    "timestamp": pa.timestamp("us", "UTC"),
    "bigint": pa.int64(),
    "varchar": pa.string(),
    "decimal(8,2)": pa.decimal128(8, 2),
}

Rows = Sequence[Sequence[Any]]


def table_of(input: Mapping[str, Any], rows: Rows | None = None) -> pa.Table:
    """A table of a case."""
    names, types = zip(*(column.split(": ") for column in input["columns"]), strict=True)
    columns = list(zip(*(input["rows"] if rows is None else rows), strict=True))

    def value(each: Any, type: str) -> Any:
        if each is None or type not in ("timestamp", "decimal(8,2)"):
            return each
        return datetime.fromisoformat(each).replace(tzinfo=UTC) if type == "timestamp" else Decimal(str(each))

    arrays = [
        pa.array([value(each, type) for each in column], TYPES[type])
        for column, type in zip(columns, types, strict=True)
    ]
    return pa.table(arrays, names=list(names))


@dataclass
class Project:
    """A folder with streams.yaml, the files that it names, queries and a warehouse."""

    folder: Path

    def streams(self, dimensions: str, path: str = "orders.parquet") -> None:
        text = f"streams:\n  orders: {{source: {{format: parquet, path: {path}}}, time: t}}\n" + dimensions
        (self.folder / "streams.yaml").write_text(text + "\n")

    def write(self, name: str, table: pa.Table) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".csv":
            pacsv.write_csv(table, path)
        else:
            pq.write_table(table, path)

    def queries(self, **texts: str) -> None:
        text = ";\n".join(f"-- name: {name}\n{text}" for name, text in texts.items())
        (self.folder / "queries.sql").write_text(text + "\n")

    def house(self, command: str, *arguments: str) -> Said:
        return heddle(command, "--warehouse", str(self.folder / "warehouse"), *arguments)

    def run(self, span: Mapping[str, str], *arguments: str) -> Said:
        file, streams = str(self.folder / "queries.sql"), str(self.folder / "streams.yaml")
        span_options = ["--from", span["from"], "--to", span["to"]]
        return self.house("run", file, "--streams", streams, *span_options, "--yes", *arguments)

    def rows(self, query: str, columns: Sequence[str]) -> list[list[Any]]:
        """The answers of a query, in the order of a case."""
        said = self.house("read", query, "--json")
        assert said.code == 0, said.err
        return sorted(
            (
                ["" if row[name] is None else _plain(row[name]) for name in columns]
                for row in json.loads(said.out)["rows"]
            ),
            key=str,
        )

    def audit(self, span: Mapping[str, str]) -> dict[str, Any]:
        said = self.house("audit", "--from", span["from"], "--to", span["to"], "--all", "--json")
        result: dict[str, Any] = json.loads(said.out)
        assert said.code == bool(result["wrong"])
        return result


def _plain(value: Any) -> Any:
    text = str(value).removesuffix("Z")
    try:
        return str(float(text))
    except ValueError:
        return text


def expected(case: Mapping[str, Any]) -> list[list[Any]]:
    return sorted((["" if value is None else _plain(value) for value in row] for row in case["rows"]), key=str)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEDDLE_ENGINE", "local")
    return Project(tmp_path)


def revisions(project: Project, query: str) -> set[tuple[datetime, int]]:
    """The ends of the windows of a query's answers, each with the revision that published it."""
    rows = DeltaTable(str(project.folder / "warehouse" / "results")).to_pyarrow_table().to_pylist()
    return {(row["window_end"].replace(tzinfo=None), row["revision"]) for row in rows if row["query"] == query}


# ------------------------------------------------------------------------------------------------ J1, J2
J1, J2 = CASES["J1"], CASES["J2"]
NAMES = {"JOIN": "inner_join", "LEFT JOIN": "left_join", "JOIN, WHERE price >= 2": "dear"}
JOINS = {
    "inner_join": J1["query"].replace("{LEFT} ", ""),
    "left_join": J1["query"].replace("{LEFT}", "LEFT"),
    "dear": J1["query"].replace("{LEFT} ", "").replace("GROUP BY", "WHERE price >= 2 GROUP BY"),
    "all_orders": "SELECT count(*) AS n FROM orders WINDOW RANGE '1 hour' ON t",
}


@pytest.fixture
def shop(project: Project) -> Project:
    project.write("orders.parquet", table_of(J1["input"]["orders"]))
    project.write("products.csv", table_of(J1["input"]["products"]))
    project.streams(J1["streams_yaml"])
    project.queries(**JOINS)
    return project


def test_a_dimension_of_the_current_state(shop: Project) -> None:
    said = shop.run(J1["run"])
    assert said.code == 0, said.err
    for title, name in NAMES.items():
        case = J1["expected"][title]
        assert shop.rows(name, case["columns"]) == expected(case), title
    result = shop.audit(J1["run"])
    assert (result["answers"], result["wrong"], result["outdated"], result["notes"]) == (4 + 5 + 2 + 2, [], [], [])


def test_a_key_that_is_there_twice_leaves_other_queries(shop: Project) -> None:
    rows = [*J1["input"]["products"]["rows"], *J1["error_case"]["products plus"]]
    shop.write("products.csv", table_of(J1["input"]["products"], rows))
    said = shop.run(J1["run"])
    assert "HDL-462" in said.err and "product_id = 2" in said.err
    assert "food" in said.err and "drinks" in said.err
    assert shop.rows("all_orders", ["n"]) == [["2.0"], ["5.0"]]
    for name in NAMES.values():
        assert shop.rows(name, ["category"]) == []


@pytest.fixture
def owners(project: Project) -> Project:
    project.write("orders.parquet", table_of(J2["input"]["orders"]))
    project.write("owners.parquet", table_of(J2["input"]["owners"]))
    # the acceptance example lies behind any span that is repaired from now on
    project.streams(J2["streams_yaml"].replace("30 days", "3660 days"))
    project.queries(by_owner=J2["query"])
    return project


def test_a_row_as_of_the_event_and_one_that_comes_late(owners: Project) -> None:
    assert owners.run(J2["run"]).code == 0
    first, second = J2["expected"].values()
    assert owners.rows("by_owner", first["columns"]) == expected(first)
    owners.write("owners.parquet", table_of(J2["input"]["owners later"]))
    said = owners.house("repair", "--json")
    assert said.code == 0, said.err
    assert owners.rows("by_owner", second["columns"]) == expected(second)
    revised = {end.isoformat() for end, revision in revisions(owners, "by_owner") if revision > 1}
    assert revised == set(J2["expected_repaired_windows"])
    result = owners.audit(J2["run"])
    assert (result["wrong"], result["outdated"], result["notes"]) == ([], [], [])


# ------------------------------------------------------------------------------------------------ audit
def test_published_answers_are_audited_with_the_version_that_they_stand_on(shop: Project) -> None:
    assert shop.run(J1["run"]).code == 0
    dearer = [[number, "toys", 100] for number in range(1, 9)]
    shop.write("products.csv", table_of(J1["input"]["products"], dearer))
    result = shop.audit(J1["run"])
    assert (result["answers"], result["wrong"], result["outdated"], result["notes"]) == (13, [], [], [])
    # nor does it matter that nothing can be read now
    (shop.folder / "products.csv").unlink()
    result = shop.audit(J1["run"])
    assert (result["answers"], result["wrong"], result["outdated"], result["notes"]) == (13, [], [], [])


def damaged(project: Project, query: str) -> None:
    """Change a value in every published answer of a query."""
    table = DeltaTable(str(project.folder / "warehouse" / "results"))
    rows = table.to_pyarrow_table()
    longs = [
        [value[0] + 1, *value[1:]] if name == query else value
        for name, value in zip(rows["query"].to_pylist(), rows["longs"].to_pylist(), strict=True)
    ]
    column = pa.chunked_array([pa.array(longs, pa.list_(pa.int64()))])
    write_deltalake(table, rows.set_column(rows.schema.names.index("longs"), "longs", column), mode="overwrite")


def test_a_wrong_answer_is_wrong_whatever_became_of_the_dimension(shop: Project) -> None:
    assert shop.run(J1["run"]).code == 0
    shop.write("products.csv", table_of(J1["input"]["products"], [[1, "food", 1]]))
    damaged(shop, "left_join")
    result = shop.audit(J1["run"])
    assert len(result["wrong"]) == 5 and result["outdated"] == []
    assert {difference["query"] for difference in result["wrong"]} == {"left_join"}


def test_answers_of_a_version_that_is_gone_are_not_audited(shop: Project) -> None:
    assert shop.run(J1["run"]).code == 0
    (version,) = (shop.folder / "warehouse" / "dimensions" / "products").glob("*.parquet")
    version.unlink()
    result = shop.audit(J1["run"])
    assert (result["answers"], result["wrong"], result["outdated"]) == (2, [], [])
    (note,) = result["notes"]
    assert note.startswith(
        "HDL-497 dimension products: its version of 2026-02-01T00:00:00Z .. 2026-02-01T02:00:00Z is gone"
    )


def test_the_look_up_and_the_audit_do_not_share_a_fault(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose look-up loses the last row does not pass."""
    from spark_jobs.streams.sources import dimension_rows

    found = dimension_rows.VersionRows.numbers

    def lost(*arguments: Any) -> Any:
        numbers = found(*arguments)
        numbers[numbers == 2] = -1
        return numbers

    monkeypatch.setattr(dimension_rows.VersionRows, "numbers", lost)
    said = shop.run(J1["run"], "--checks", "all")
    assert said.code != 0 and "HDL-530" in said.err


def test_answers_of_one_interval_that_stand_on_two_versions_are_audited(shop: Project) -> None:
    """A late event revises its window by the rows of now, and leaves the next one by those of then."""
    shop.write("orders/1.parquet", table_of(J1["input"]["orders"]))
    shop.streams(J1["streams_yaml"], "orders")
    assert shop.run(J1["run"]).code == 0
    shop.write("products.csv", table_of(J1["input"]["products"], [[1, "games", 9], [2, "drinks", 8]]))
    shop.write("orders/2.parquet", table_of(J1["input"]["orders"], [["2026-02-01T00:15:00", 2, 3]]))
    assert shop.house("repair").code == 0
    rows = shop.rows("inner_join", ["window_end", "category"])
    assert rows == [
        ["2026-02-01T01:00:00", "drinks"],
        ["2026-02-01T01:00:00", "games"],
        ["2026-02-01T02:00:00", "food"],
    ]
    result = shop.audit(J1["run"])
    assert (result["wrong"], result["outdated"], result["notes"]) == ([], [], []) and result["answers"] > 8
    damaged(shop, "inner_join")
    assert {difference["query"] for difference in shop.audit(J1["run"])["wrong"]} == {"inner_join"}


# ------------------------------------------------------------------------------------------------ what changes nothing
def published_versions(project: Project) -> dict[str, int]:
    warehouse = Warehouse.open(project.folder / "warehouse")
    return {name: warehouse.version(name) for name in ("results", "partials")}


def test_columns_that_no_query_uses_change_nothing(shop: Project) -> None:
    assert shop.run(J1["run"]).code == 0
    versions = published_versions(shop)
    rows = table_of(J1["input"]["products"])
    more = rows.append_column("weight", pa.array([1, 2, None])).append_column("Colour", pa.array(["a", None, "b"]))
    shop.write("products.csv", more.select(["weight", "price", "product_id", "Colour", "category"]))
    said = shop.run(J1["run"])
    assert said.code == 0 and published_versions(shop) == versions
    for title, name in NAMES.items():
        assert shop.rows(name, J1["expected"][title]["columns"]) == expected(J1["expected"][title])


def test_rows_that_no_event_has_change_no_answer(shop: Project) -> None:
    assert shop.run(J1["run"]).code == 0
    rows = [*J1["input"]["products"]["rows"], [900, "new", 1], [None, "nothing", 2], [None, "nothing", 3]]
    shop.write("products.csv", table_of(J1["input"]["products"], rows))
    assert shop.run(J1["run"]).code == 0
    for title, name in NAMES.items():
        case = J1["expected"][title]
        assert shop.rows(name, case["columns"]) == expected(case), title
        assert {revision for _, revision in revisions(shop, name)} == {1}


def test_an_inner_join_is_a_left_join_with_a_row(shop: Project) -> None:
    """A column that no row leaves null says the same as the join."""
    text = "SELECT category, sum(qty) AS qty FROM orders {} WINDOW RANGE '1 hour' ON t {} GROUP BY category"
    shop.queries(
        inner_join=text.format("JOIN products USING (product_id)", ""),
        with_row=text.format("LEFT JOIN products p USING (product_id)", "WHERE p.product_id IS NOT NULL"),
    )
    assert shop.run(J1["run"]).code == 0
    columns = ["window_end", "category", "qty"]
    assert shop.rows("inner_join", columns) == shop.rows("with_row", columns) != []


def test_an_event_without_a_time_is_left_out(shop: Project) -> None:
    rows = [*J1["input"]["orders"]["rows"], [None, 1, 7]]
    shop.write("orders.parquet", table_of(J1["input"]["orders"], rows))
    assert shop.run(J1["run"]).code == 0
    for title, name in NAMES.items():
        assert shop.rows(name, J1["expected"][title]["columns"]) == expected(J1["expected"][title])


def test_a_delta_table_without_rows_is_an_empty_dimension(shop: Project) -> None:
    write_deltalake(str(shop.folder / "products"), table_of(J1["input"]["products"]).slice(0, 0))
    shop.streams("dimensions:\n  products: {source: {format: delta, path: products}, key: [product_id]}")
    assert shop.run(J1["run"]).code == 0
    assert shop.rows("inner_join", ["n"]) == [] and len(shop.rows("left_join", ["n"])) == 2
