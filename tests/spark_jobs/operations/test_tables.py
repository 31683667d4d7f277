"""Folders of several tables: ``heddle init`` makes streams of those with times, and dimensions of those they need."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from optimizer.workload.streams import load_streams
from spark_jobs.operations import project as module
from spark_jobs.operations import table_roles
from spark_jobs.operations.project import plan_project
from spark_jobs.operations.table_roles import dimensions_lines
from spark_jobs.streams.sources import file_groups
from spark_jobs.streams.sources.file_groups import groups_at
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.table_keys import is_id, singular, words_of
from tests.in_process import Clock, heddle, without_spark

NOW = 1_800_000_000_000_000
BEGIN = datetime(2025, 3, 3, tzinfo=UTC)
PRODUCTS = 40
ROWS = 400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("WAREHOUSE", "STREAMS", "WORKLOAD"):
        monkeypatch.delenv(f"HEDDLE_{name}", raising=False)
    return tmp_path


# ------------------------------------------------------------------------------------------------ data
def sales(rows: int = ROWS, first: int = 0) -> pa.Table:
    """Lines of baskets, several to a basket, in no order of time."""
    numbers = range(first, first + rows)
    return pa.table(
        {
            "basket_id": [31_000_000_000 + at // 4 for at in numbers],
            "product_id": [100 + at * 7 % PRODUCTS for at in numbers],
            "coupon_upc": [None if at % 20 else 59_000_000_000 + at for at in numbers],
            "alert": [None if at % 50 else "recall" for at in numbers],
            "channel": [("web", "shop", "phone")[at % 3] for at in numbers],
            "sales_value": [at % 30 / 4 for at in numbers],
            "sold_at": [BEGIN + timedelta(minutes=at * 37 % rows) for at in numbers],
        }
    )


def products() -> pa.Table:
    numbers = range(PRODUCTS)
    return pa.table(
        {
            "product_id": [100 + at for at in numbers],
            "department": [("food", "toys")[at % 2] for at in numbers],
            "size": [at % 5 for at in numbers],
        }
    )


def returns() -> pa.Table:
    """Another stream, with its own columns and a few repeated rows."""
    numbers = [*range(60), 3, 17, 17]
    return pa.table(
        {
            "return_id": [f"r{at}" for at in numbers],
            "product_id": [100 + at % PRODUCTS for at in numbers],
            "amount": [at / 2 for at in numbers],
            "returned_at": [BEGIN + timedelta(minutes=at * 5) for at in numbers],
        }
    )


def campaigns() -> pa.Table:
    """A small table with times of its own, which events refer to."""
    return pa.table({"campaign_id": [1, 2, 3], "kind": ["a", "b", "a"], "start_date": [BEGIN.date()] * 3})


def zstd_open(path: Path, mode: str, encoding: str) -> Any:
    """Open a file that is compressed as it is written."""
    assert mode == "wt"
    return io.TextIOWrapper(pa.CompressedOutputStream(str(path), "zstd"), encoding=encoding)


def write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        pcsv.write_csv(table, path)
    else:
        pq.write_table(table, path)


def shop(folder: Path) -> None:
    """Five files of four tables."""
    write(sales(), folder / "sales.parquet")
    write(products(), folder / "products.csv")
    write(returns(), folder / "returns.csv")
    write(pa.table({"note": ["a", "a", "b"]}), folder / "notes.csv")


def streams_of(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((folder / "streams.yaml").read_text())["streams"]
    return read


# ----------------------------------------------------------------------------------------------- folders
def test_a_folder_of_tables_takes_five_commands_and_no_edit(folder: Path) -> None:
    shop(folder)
    with without_spark(Clock(NOW)):
        init = heddle("init", "--yes")
        steps = [step.split()[1:] for step in init.out.partition("next:\n")[2].split("\n") if step]
        outcomes = {step[0]: heddle(*step) for step in steps}
    assert list(outcomes) == ["validate", "preview", "run", "read"]
    assert {name: said.code for name, said in outcomes.items()} == dict.fromkeys(outcomes, 0), outcomes
    assert "4 queries usable, 0 errors" in outcomes["validate"].out
    assert set(streams_of(folder)) == {"sales", "returns"}
    assert "dimension products: 40 rows, key product_id; for returns.product_id, sales.product_id" in init.out
    assert "HDL-494 notes.csv is left out" in init.err
    # the answers are those of all rows
    (name, size), *_ = re.findall(r"-- name: (sales_\w+)\n(?:.*\n){2}WINDOW RANGE '([^']+)'", init_queries())
    answers = list(csv.DictReader(heddle("read", name, "--format", "csv").out.splitlines()))
    assert answers
    for answer in answers:
        end = f"TIMESTAMPTZ '{answer['window_end']}'"
        where = f"channel = '{answer['channel']}' AND sold_at < {end} AND sold_at >= {end} - INTERVAL '{size}'"
        query = f"SELECT count(*) FROM 'sales.parquet' WHERE {where}"
        assert duckdb.connect().execute(query).fetchall() == [(int(answer["events"]),)]


def init_queries() -> str:
    """The queries that were written into the working folder."""
    return Path("queries/first.sql").read_text()


SPREADS = ("file", "folder", "days", "mixed")
FORMATS = ("csv", "parquet")


def spread(table: pa.Table, folder: Path, name: str, how: str, format: str, parts: int) -> int:
    """Write a table as one file, as files of a folder of its own, or of folders for days; return how many files."""
    size = -(-len(table) // parts)
    pieces = [table.slice(at, size) for at in range(0, len(table), size)] if how != "file" else [table]
    for number, piece in enumerate(pieces):
        path = {
            "file": folder / f"{name}.{format}",
            "folder": folder / name / f"part-{number:04}.{format}",
            "days": folder / name / "2025" / f"{number + 1:02}" / f"data.{format}",
            "mixed": folder / name / f"{'abc'[number % 3]}_{number}.{format}",
        }[how]
        write(piece, path)
    return len(pieces)


@given(
    hows=st.lists(st.sampled_from(SPREADS), min_size=3, max_size=3),
    formats=st.lists(st.sampled_from(FORMATS), min_size=3, max_size=3),
    parts=st.integers(1, 20),
)
def test_each_table_is_one_stream_or_dimension_however_its_files_lie(
    tmp_path_factory: pytest.TempPathFactory, hows: list[str], formats: list[str], parts: int
) -> None:
    data = tmp_path_factory.mktemp("tables") / "data"
    tables = {"sales": sales(), "products": products(), "returns": returns()}
    for (name, table), how, format in zip(tables.items(), hows, formats, strict=True):
        spread(table, data, name, how, format, parts)
    made = plan_project([data], data.parent)
    assert {proposal.stream.name for proposal in made.proposals} == {"sales", "returns"}
    assert [(dimension.name, dimension.key, dimension.rows) for dimension in made.dimensions] == [
        ("products", ("product_id",), PRODUCTS)
    ]
    made.write()
    read, problems = load_streams(data.parent / "streams.yaml")
    assert not problems
    for name, stream in read.items():
        counted = next(proposal for proposal in made.proposals if proposal.stream.name == name).inspection
        path = stream.source.path + ("" if Path(stream.source.path).is_file() else f"/**/*.{stream.source.format}")
        reading = {"csv": f"read_csv('{path}')", "parquet": f"read_parquet('{path}')"}[stream.source.format]
        ((rows,),) = duckdb.connect().execute(f"SELECT count(*) FROM {reading}").fetchall()
        assert counted.events == rows == len(tables[name]) and splits_of(stream)


def test_names_are_those_of_files_or_folders_and_differ(folder: Path) -> None:
    for place in ("eu/Order Items.csv", "us/Order Items.csv", "us/part-0.parquet", "2024 sales.csv", "union.csv"):
        rows = {f"c{number}": [1] for number in range(len(place))}
        write(pa.table({"ts": [BEGIN], **rows}), folder / "data" / place)
    write_deltalake(str(folder / "data" / "visits"), pa.table({"ts": [BEGIN], "v": [1]}))
    write(pa.table({"ts": [BEGIN], "other": [1]}), folder / "data" / "eu/Order Items.csv")
    names = {str(group.path)[len("data/") :]: group.name for group in groups_at(Path("data"))}
    assert names == {
        "2024 sales.csv": "stream_2024_sales",
        "union.csv": "union_data",
        "eu/Order Items.csv": "eu_order_items",
        "us/Order Items.csv": "us_order_items",
        "us/part-0.parquet": "us",
        "visits": "visits",
    }


def test_a_folder_of_one_schema_is_one_stream_as_before(folder: Path) -> None:
    for number in range(3):
        write(sales(10, number * 10), folder / "shop" / f"{number}.csv")
    (folder / "shop" / "empty.csv").touch()
    (group,) = groups_at(Path("shop"))
    assert (group.path, group.name, len(group.files)) == (Path("shop"), "shop", 4)


def test_files_beside_others_are_named_by_a_pattern(folder: Path) -> None:
    for year in (2024, 2025):
        write(sales(10, year), folder / "data" / f"sales_{year}.csv")
    write(products(), folder / "data" / "products.csv")
    named = {group.name: (group.path, group.file_pattern) for group in groups_at(Path("data"))}
    assert named == {"products": (Path("data/products.csv"), None), "sales": (Path("data"), "sales_*.csv")}
    heddle("init", "data", "--yes")
    assert streams_of(folder)["sales"]["source"]["files"] == "sales_*.csv"
    assert "stream sales: 2 files, 20 events" in heddle("validate").out


def test_files_of_the_working_folder_are_named_by_what_they_are_called(folder: Path) -> None:
    for year in (2024, 2025):
        write(sales(10, year), folder / f"sales_{year}.csv")
    (folder / "empty.csv").touch()
    completed = heddle("init", "--yes")
    assert "HDL-135 empty.csv is empty" in completed.err
    assert streams_of(folder)["sales"]["source"] == {"format": "csv", "path": ".", "files": "sales_*.csv"}
    assert "stream sales: 2 files, 20 events" in heddle("validate").out


@pytest.mark.parametrize("ending", ["csv.gz", "jsonl", "json.zst"])
def test_tables_of_other_formats_are_grouped_too(folder: Path, ending: str) -> None:
    opened: Any = {"gz": gzip.open, "zst": zstd_open}.get(ending.rpartition(".")[2], open)
    for name, table in (("sales", sales()), ("products", products()), ("returns", returns())):
        path = folder / "data" / f"{name}.{ending}"
        path.parent.mkdir(exist_ok=True)
        lines = [json.dumps(row, default=datetime.isoformat) for row in table.to_pylist()]
        if ending.startswith("csv"):
            sink = io.BytesIO()
            pcsv.write_csv(table, sink)
            lines = sink.getvalue().decode().splitlines()
        with opened(path, "wt", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    made = plan_project([folder / "data"], folder)
    counted = {proposal.stream.name: proposal.inspection.events for proposal in made.proposals}
    assert counted == {"sales": ROWS, "returns": 63}
    assert [(dimension.name, dimension.key) for dimension in made.dimensions] == [("products", ("product_id",))]
    assert next(each for each in made.proposals if each.stream.name == "returns").stream.event_id == "return_id"
    made.write()
    assert heddle("validate").code == 0


def test_of_many_files_that_are_called_alike_only_some_are_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(file_groups.OPENED + 1):
        write(sales(5), folder / "data" / f"part-{number:05}.csv")
    opened = list[str]()
    outline = file_groups.FORMATS["csv"].outline

    def noted(stream: Any, file: Any) -> Any:
        opened.append(str(file))
        return outline(stream, file)

    monkeypatch.setattr(file_groups.FORMATS["csv"], "outline", noted)
    assert len(groups_at(Path("data"))) == 1 and len(opened) == 3


# ------------------------------------------------------------------------------------------------- roles
def test_a_table_with_times_that_events_refer_to_is_a_dimension_unless_a_time_is_named(folder: Path) -> None:
    write(campaigns(), folder / "campaigns.csv")
    write(sales().append_column("campaign_id", pa.array([1 + at % 3 for at in range(ROWS)])), folder / "sales.csv")
    (dimension,) = plan_project([], folder).dimensions
    assert (dimension.name, dimension.key) == ("campaigns", ("campaign_id",))
    assert "a stream with --time campaigns=start_date" in str(dimension)
    made = plan_project([], folder, ["campaigns=start_date"])
    assert {proposal.stream.name for proposal in made.proposals} == {"campaigns", "sales"} and not made.dimensions


def test_what_orders_and_their_lines_are(folder: Path) -> None:
    """Both are streams: there are a few lines to an order, and an order has a time of its own."""
    hours = [BEGIN + timedelta(hours=at) for at in range(300)]
    orders = pa.table({"order_id": range(100), "ordered_at": hours[:100]})
    lines = pa.table({"order_id": [at // 3 for at in range(300)], "at": hours})
    write(orders, folder / "orders.csv")
    write(lines, folder / "order_lines.csv")
    made = plan_project([], folder)
    assert {proposal.stream.name for proposal in made.proposals} == {"orders", "order_lines"} and not made.dimensions


@pytest.mark.parametrize("format", FORMATS)
def test_dimensions_are_declared(folder: Path, format: str) -> None:
    write(sales(), folder / "sales.parquet")
    write(products(), folder / f"products.{format}")
    dimensions = plan_project([], folder).dimensions
    text = "\n".join(dimensions_lines(dimensions, folder))
    declared = {"source": {"format": format, "path": f"products.{format}"}, "key": ["product_id"]}
    if format == "csv":
        declared["schema"] = {"product_id": "long", "department": "string", "size": "long"}
    assert yaml.safe_load(text) == {"dimensions": {"products": declared}}
    assert list(dimensions_lines((), folder)) == []


def test_a_query_joins_the_largest_dimension_that_events_refer_to(folder: Path) -> None:
    shop(folder)
    products_by_sku = products().rename_columns(["sku", "department", "size"])
    coded = products_by_sku.set_column(0, "sku", pa.array([f"SKU{at}" for at in range(PRODUCTS)]))
    write(coded, folder / "catalogue.csv")
    lines = sales().append_column("item", pa.array([f"SKU{at % PRODUCTS}" for at in range(ROWS)]))
    write(lines, folder / "sales.parquet")
    with without_spark(Clock(NOW)):
        heddle("init", "--yes")
        assert heddle("validate").code == 0
        shown = {query["name"]: query for query in json.loads(heddle("preview", "--json").out)["queries"]}
    text = init_queries()
    assert "FROM sales JOIN products USING (product_id)\n" in text or "JOIN catalogue ON sales.item" in text
    name = next(name for name in shown if name.startswith("sales_by_department"))
    (size,) = re.findall(rf"-- name: {name}\n(?:.*\n){{2}}WINDOW RANGE '([^']+)'", text)
    assert shown[name]["rows"]
    for row in shown[name]["rows"]:
        end = f"TIMESTAMPTZ '{row['window_end']}'"
        query = (
            "SELECT count(*) FROM 'sales.parquet' JOIN 'products.csv' USING (product_id) "
            f"WHERE department = '{row['department']}' AND sold_at < {end} AND sold_at >= {end} - INTERVAL '{size}'"
        )
        assert duckdb.connect().execute(query).fetchall() == [(row["events"],)]


def test_a_key_of_two_columns_needs_both(folder: Path) -> None:
    prices = pa.table({"store_id": [1, 1, 2, 2], "product_id": [1, 2, 1, 2], "price": [1.5, 2.5, 3.5, 4.5]})
    write(prices, folder / "prices.csv")
    write(sales(), folder / "sales.csv")
    assert [dimension.key for dimension in plan_project([], folder).dimensions] == [("store_id", "product_id")]


def test_a_table_that_cannot_be_read_is_left_out_and_others_are_not(folder: Path) -> None:
    shop(folder)
    rows = [f"{at},x{at}" for at in range(5000)]
    (folder / "stores.csv").write_text("\n".join(["store_id,name", *rows, "1,2,3", ""]))
    completed = heddle("init", "--yes")
    assert completed.code == 0 and "warning HDL-421" in completed.err and "stores.csv" in completed.err
    assert set(streams_of(folder)) == {"sales", "returns"}
    assert set(yaml.safe_load((folder / "streams.yaml").read_text())["dimensions"]) == {"products"}


def test_more_dimensions_than_a_file_may_have_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_roles, "MOST_DIMENSIONS", 1)
    shop(folder)
    write(pa.table({"store_id": [1, 2], "name": ["a", "b"]}), folder / "a_stores.csv")
    completed = heddle("init", "--yes")
    assert "HDL-496 of the dimensions 1 are proposed; left out: a_stores" in completed.err
    assert set(yaml.safe_load((folder / "streams.yaml").read_text())["dimensions"]) == {"products"}


def test_without_any_stream_the_tables_are_named(folder: Path) -> None:
    write(products(), folder / "products.csv")
    write(pa.table({"a": [1, 1], "b": [2.5, 2.5]}), folder / "other.csv")
    completed = heddle("init")
    assert completed.code == 2 and "HDL-136 none of other, products has a column of times" in completed.err
    assert not Path("streams.yaml").exists()


# ------------------------------------------------------------------------------------- times, ids, queries
def two_times(folder: Path) -> None:
    orders = pa.table(
        {
            "order_id": range(50),
            "created_at": [BEGIN + timedelta(hours=at) for at in range(50)],
            "shipped_at": [BEGIN + timedelta(hours=at + 30) for at in range(50)],
        }
    )
    write(orders, folder / "orders.csv")
    write(returns(), folder / "returns.csv")


def test_two_columns_of_times_are_asked_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_times(folder)
    completed = heddle("init", "--yes")
    assert "2 columns have times; shipped_at is taken. To take created_at: --time orders=created_at" in completed.out
    assert re.search(
        r"^    # time: created_at   # also .*--time orders=created_at$", Path("streams.yaml").read_text(), re.M
    )
    assert "time: created_at" in heddle("init", "--time", "orders=created_at", "--folder", "b").out
    assert "columns have times" not in heddle("init", "--time", "created_at", "--folder", "c").out
    monkeypatch.setattr("heddle.cli.changes.is_at_terminal", lambda: True)
    replies = iter(["created_at"])
    monkeypatch.setattr("typer.prompt", lambda *arguments, **options: next(replies))
    assert heddle("init", "--folder", "d").code == 0
    assert streams_of(folder / "d")["orders"]["time"] == "created_at"


@pytest.mark.parametrize(
    ("option", "code", "text"),
    [
        ("order=created_at", "HDL-495", "did you mean orders?"),
        ("nothing", "HDL-495", "no table has such a column"),
        ("orders=created", "HDL-136", "did you mean created_at?"),
    ],
)
def test_a_time_of_no_table_is_an_error(folder: Path, option: str, code: str, text: str) -> None:
    two_times(folder)
    completed = heddle("init", "--time", option)
    assert completed.code == 2 and code in completed.err and text in completed.err


def test_repeated_rows_are_counted_once_and_repeated_ids_are_told(folder: Path) -> None:
    write(returns(), folder / "returns.csv")
    with without_spark(Clock(NOW)):
        init = heddle("init", "--yes")
        assert streams_of(folder)["returns"]["event_id"] == "return_id"
        assert "3 rows of 63 repeat another one: `event_id: return_id` counts it once" in init.out
        Path("queries/first.sql").write_text(
            "-- name: all_returns\nSELECT count(*) AS n FROM returns WINDOW RANGE '1 day' SLIDE '1 day' ON returned_at;"
        )
        shown = json.loads(heddle("preview", "--json").out)["queries"][0]
    ((different,),) = duckdb.connect().execute("SELECT count(DISTINCT return_id) FROM 'returns.csv'").fetchall()
    assert [row["n"] for row in shown["rows"]] == [different] == [60]
    changed = returns().set_column(2, "amount", pa.array([at * 1.5 for at in range(63)]))
    write(changed, folder / "other" / "returns.csv")
    init = heddle("init", "other/returns.csv", "--folder", "b", "--yes")
    assert "with other values: no `event_id` is proposed" in init.out
    assert "event_id" not in streams_of(folder / "b")["returns"]


def test_lines_of_a_basket_repeat_no_event(folder: Path) -> None:
    write(sales(), folder / "baskets.csv")
    heddle("init", "--yes")
    assert "event_id" not in streams_of(folder)["baskets"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_first_query_measures_no_id_and_groups_by_no_column_that_is_nearly_null(folder: Path, format: str) -> None:
    shop(folder)
    write(sales(), folder / f"sales.{format}")
    if format == "csv":
        (folder / "sales.parquet").unlink()
    heddle("init", "--yes")
    text = Path("queries/first.sql").read_text()
    assert "SELECT channel, count(*) AS events, avg(sales_value) AS mean_sales_value\nFROM sales" in text
    assert set(re.findall(r"avg\((.+?)\)", text)) == {"sales_value", "amount"} and "BY alert" not in text


def test_a_group_of_sorted_rows_is_seen_by_reading_all(folder: Path) -> None:
    rows = 6000
    ordered = {
        "ts": [BEGIN + timedelta(minutes=at) for at in range(rows)],
        "origin": [("EWR", "JFK", "LGA")[at // 2000] for at in range(rows)],
    }
    write(pa.table(ordered), folder / "weather.csv")
    heddle("init", "--yes")
    assert "SELECT origin, count(*) AS events" in Path("queries/first.sql").read_text()


def test_neither_row_numbers_nor_constants_are_measured_if_there_is_more(folder: Path) -> None:
    rows = {
        "ts": [BEGIN + timedelta(minutes=at) for at in range(100)],
        "row": [f"+{at}" for at in range(100)],
        "fee": [0.0] * 95 + [1.5] * 5,
        "week": [9 + at // 50 for at in range(100)],
        "load": [at % 7 / 2 for at in range(100)],
    }
    write(pa.table(rows), folder / "meters.csv")
    heddle("init", "--yes")
    assert "SELECT count(*) AS events, avg(load) AS mean_load" in init_queries()


def test_more_tables_than_are_proposed_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STREAMS", 2)
    for number, name in enumerate(("ants", "bees", "cats")):
        write(pa.table({"ts": [BEGIN], **{f"c{at}": [at] for at in range(number + 1)}}), folder / f"{name}.csv")
    completed = heddle("init", "--yes")
    assert completed.code == 0 and "HDL-496 only 2 streams are proposed; left out: cats" in completed.err


# ------------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            (name, True)
            for name in ("id", "household_id", "userId", "StoreID", "coupon_upc", "CustomerKey", "customerid")
        ),
        *((name, False) for name in ("paid", "valid", "price", "width", "grid", "number_of_items", "sales_value")),
    ],
)
def test_names_of_identifiers(name: str, expected: bool) -> None:
    assert is_id(name) is expected


def test_words_and_rows_of_names() -> None:
    assert words_of("HTTPStatus code") == ["http", "status", "code"]
    assert [singular(name) for name in ("products", "categories", "glasses", "glass")] == [
        *("product", "category", "glass", "glass"),
    ]
