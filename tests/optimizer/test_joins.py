"""Joins of a query with dimensions: what they mean, and positioned errors for everything else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.language.parser import parse
from optimizer.workload.attribute_names import read_attribute
from optimizer.workload.computed_keys import key_expression, key_name
from optimizer.workload.values import LONG, STRING, Call, Column, Dimension, Stream
from tests.optimizer.joined_orders import FILE, ORDERS, PRODUCTS, WINDOW, parsed, query


def test_an_inner_join_leaves_events_without_a_row_out() -> None:
    text = (
        "SELECT category, sum(qty * price) AS revenue FROM orders {} JOIN products USING (product_id) {{w}} GROUP BY 1"
    )
    inner, left = query(text.format("")), query(text.format("LEFT"))
    assert inner.filter == Column("products(product_id).*") and left.filter is None
    assert inner.group_by == left.group_by == (("products(product_id).category", STRING),)
    assert inner.outputs == left.outputs and inner.select == ("category",)
    assert inner.outputs[0].argument == Call("*", (Column("qty"), Column("products(product_id).price")))
    assert query(text.format("INNER")) == inner and query(text.format("LEFT OUTER")) == left


@pytest.mark.parametrize(
    "on",
    [
        "USING (product_id)",
        "USING (PRODUCT_ID)",
        "ON orders.product_id = products.product_id",
        "ON (products.Product_ID = Orders.product_id)",
        "ON product_id = products.product_id",
    ],
)
def test_a_key_is_written_in_several_ways(on: str) -> None:
    plain = query("SELECT count(*) AS n FROM orders JOIN products USING (product_id) {w}")
    assert query(f"SELECT count(*) AS n FROM orders JOIN products {on} {{w}}") == plain


def test_all_columns_of_a_key_are_in_its_order() -> None:
    text = "SELECT max(`size m2`) AS size, min(s.opened) AS first FROM orders LEFT JOIN stores AS s {} {{w}}"
    names = ["stores(region, store).`size m2`", "stores(region, store).opened"]
    for on in ("USING (store, region)", "ON s.store = orders.store AND (orders.region = s.region)"):
        assert [column for output in query(text.format(on)).outputs for column in output.columns()] == names


def test_a_dimension_is_joined_twice_and_in_a_chain() -> None:
    chained = query(
        "SELECT d.name, up.name AS above, count(*) AS n FROM orders o JOIN products p ON p.product_id = o.other_id "
        "JOIN departments d USING (department_id) LEFT JOIN departments AS up ON up.department_id = d.parent_id {w} "
        "GROUP BY d.name, up.name"
    )
    department = "departments(products(other_id).department_id)"
    assert [name for name, _ in chained.group_by] == [f"{department}.name", f"departments({department}.parent_id).name"]
    assert chained.select == ("name", "above")
    assert isinstance(chained.filter, Call) and {*chained.filter.arguments} == {
        Column("products(other_id).*"),
        Column(f"{department}.*"),
    }


@pytest.mark.parametrize(
    ("on", "keys"),
    [
        ("upper(o.kind) = s.region AND s.store = o.store", "=upper(kind), store"),
        ("(o.kind || o.region) = s.region AND abs(o.qty) = s.store", "=concat(kind, region), =abs(qty)"),
        ("s.region = left(kind, 2) AND (store) = s.store", "=substring(kind, long(1) '1', long(1) '2'), store"),
        ("s.store = CAST(kind AS int) AND orders.region = s.region", "region, =cast(kind, 'int')"),
        (
            "s.region = CASE WHEN qty > 0 THEN kind ELSE 'it\\'s `x`' END AND s.store = length(kind)",
            "=if(>(qty, long(1) '0'), kind, 'it''s `x`'), =length(kind)",
        ),
        ("region = s.region AND s.store = length(products.category)", "region, =length(products(product_id).category)"),
    ],
)
def test_a_key_equals_an_expression_of_the_stream(on: str, keys: str) -> None:
    stream = "orders AS o" if "o." in on.replace("o.k", "o.") and "orders." not in on else "orders"
    text = f"FROM {stream} JOIN products USING (product_id) LEFT JOIN stores AS s ON {on} {{w}}"
    joined = query(f"SELECT s.opened, count(*) AS n {text} GROUP BY s.opened")
    name = f"stores({keys}).opened"
    assert [column for column, _ in joined.group_by] == [name]
    attribute = read_attribute(name)
    assert attribute is not None and attribute.name == name
    assert [key_name(key_expression(key)) for key in attribute.keys] == list(attribute.keys)
    described = query(f"SELECT opened, count(*) AS n {text} GROUP BY 1")
    assert described.fingerprint == joined.fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("qty + store = p.product_id", "p.product_id = (store + qty)"),
        ("CASE WHEN qty > 5 THEN product_id END = p.product_id", "IF(NOT qty <= 5, product_id, NULL) = p.product_id"),
        ("CAST(kind AS bigint) = p.product_id", "p.product_id = kind::bigint"),
    ],
)
def test_equal_expressions_are_one_key(one: str, other: str) -> None:
    texts = [f"SELECT count(*) AS n FROM orders JOIN products AS p ON {on} {{w}}" for on in (one, other)]
    assert query(texts[0]) == query(texts[1])


def test_a_column_that_is_named_as_a_computed_key_is_refused() -> None:
    columns = (*ORDERS.schema, ("=length(kind)", LONG))
    stream = replace(ORDERS, schema=columns)
    for on in ("`=length(kind)` = products.product_id", "length(kind) = products.product_id"):
        text = f"SELECT count(*) FROM orders JOIN products ON {on} {WINDOW}"
        (diagnostic,) = parse(text, {"orders": stream}).diagnostics
        assert diagnostic.code == "HDL-464" and diagnostic.hint == "rename it"


def test_attributes_stand_wherever_columns_do() -> None:
    everywhere = query(
        "SELECT upper(category) AS kind, count(*) FILTER (WHERE price > 2) AS dear, max_by(category, price) AS dearest "
        "FROM orders LEFT JOIN products USING (product_id) {w} WHERE category LIKE 'a%' GROUP BY upper(category) "
        "HAVING max(price) > 3 ORDER BY sum(price) DESC LIMIT 3"
    )
    assert set(everywhere.columns()) == {"products(product_id).category", "products(product_id).price"}
    assert everywhere.top is not None and everywhere.having[0].output.argument == Column("products(product_id).price")


def test_attributes_stand_in_filters_and_arguments_of_sequences() -> None:
    sequences = query(
        "SELECT count(*) AS n, max(B.price) AS high FROM orders JOIN products USING (product_id) "
        "PATTERN SEQ(A, B) ON kind WINDOW RANGE '1 hour' ON ts WHERE price < 5"
    )
    assert "products(product_id).price" in sequences.columns() and sequences.pattern is not None


def test_columns_of_the_stream_are_named_with_its_name_or_alias() -> None:
    text = "SELECT {}.qty, count(*) AS n FROM orders {} JOIN products USING (product_id) {{w}} GROUP BY {}.qty"
    assert query(text.format("o", "AS o", "o")) == query(text.format("orders", "", "orders"))


@pytest.mark.parametrize(
    ("marked", "code", "message", "hint"),
    [
        ("JOIN ^product USING (product_id)", "HDL-201", "there is no dimension", "did you mean products"),
        ("JOIN ^xyz USING (product_id)", "HDL-201", "there is no dimension", "departments, products, stores"),
        ("JOIN ^lost USING (product_id)", "HDL-122", "dimension lost cannot be read", "the error above"),
        (", ^products", "HDL-103", "a comma in FROM", "JOIN <dimension> USING"),
        ("CROSS JOIN ^products", "HDL-103", "CROSS JOIN", "JOIN <dimension> USING"),
        ("RIGHT JOIN ^products USING (product_id)", "HDL-103", "RIGHT JOIN", "LEFT JOIN keeps"),
        ("FULL OUTER JOIN ^products USING (product_id)", "HDL-103", "FULL OUTER JOIN", "LEFT JOIN keeps"),
        ("LEFT SEMI JOIN ^products USING (product_id)", "HDL-103", "LEFT SEMI JOIN", "LEFT JOIN keeps"),
        ("LEFT ANTI JOIN ^products USING (product_id)", "HDL-103", "LEFT ANTI JOIN", "LEFT JOIN keeps"),
        ("NATURAL JOIN ^products", "HDL-103", "NATURAL JOIN", "JOIN <dimension> USING"),
        ("JOIN (^SELECT 1) USING (product_id)", "HDL-103", "subqueries", "no subqueries"),
        ("JOIN LATERAL ^products USING (product_id)", "HDL-103", "name of a dimension", "JOIN <dimension> USING"),
        ("JOIN ^a.products USING (product_id)", "HDL-103", "plain name", "JOIN <dimension> USING"),
        ("JOIN ^products TABLESAMPLE (3 ROWS) USING (product_id)", "HDL-103", "plain name", "JOIN <dimension> USING"),
        ("JOIN ^products p(a, b) USING (product_id)", "HDL-103", "plain name", "JOIN <dimension> USING"),
        ("JOIN ^products", "HDL-464", "", "JOIN <dimension> USING"),
        ("JOIN products USING (^category)", "HDL-464", "'category' is no key", "its key is (product_id)"),
        ("JOIN ^stores USING (region)", "HDL-464", "lacks the key store", "(region, store)"),
        ("JOIN stores ON ^region = 'eu'", "HDL-464", "compares a value of orders", "JOIN <dimension> USING"),
        ("JOIN products ON ^qty > products.product_id", "HDL-464", "equalities", "WHERE"),
        ("JOIN products ON ^product_id = products.product_id OR ok", "HDL-464", "equalities", "WHERE"),
        ("JOIN products ON ^products.product_id = products.product_id", "HDL-464", "compares", "JOIN <dimension>"),
        ("JOIN products ON ^other_id + 1 = products.product_id", "HDL-464", "is decimal(20,0)", "CAST(… AS bigint)"),
        ("JOIN products ON ^7 = products.product_id", "HDL-464", "with a constant", "WHERE"),
        ("JOIN products ON ^abs(-7) = products.product_id", "HDL-464", "with a constant", "WHERE"),
        ("JOIN products ON ^products.product_id = NULL", "HDL-464", "with a constant", "WHERE"),
        ("JOIN products ON abs(^products.price) = product_id", "HDL-464", "by itself", "JOIN <dimension>"),
        ("JOIN products p ON length(^category) = p.product_id", "HDL-464", "value of p itself", "joined before"),
        ("JOIN products ON qty = abs(^products.product_id)", "HDL-464", "by itself", "JOIN <dimension>"),
        ("JOIN products ON ^max(qty) = products.product_id", "HDL-105", "cannot stand here", "SELECT and HAVING"),
        ("JOIN products ON length(^nix) = products.product_id", "HDL-202", "no column 'nix'", "columns: amount"),
        ("JOIN products ON length(^s.region) = products.product_id", "HDL-202", "neither the stream", "tables"),
        ("JOIN products ON ^nix(qty) = products.product_id", "HDL-104", "there is no function", "functions: abs"),
        ("JOIN products ON ^upper(qty) = products.product_id", "HDL-203", "upper needs a string", ""),
        ("JOIN products ON other_id = ^products.category", "HDL-464", "'category' is no key", "WHERE"),
        ("JOIN products ON ^region = products.product_id", "HDL-464", "region is string", "`schema`"),
        ("JOIN products ON ^amount = products.product_id", "HDL-464", "amount is double", "`schema`"),
        ("JOIN products ON ^orders.nix = products.product_id", "HDL-202", "no column 'nix'", "columns: amount"),
        (
            "JOIN products ON other_id = products.product_id AND ^orders.product_id = products.product_id",
            "HDL-464",
            "compared with two values",
            "one value",
        ),
        ("JOIN products USING (product_id) JOIN ^products USING (product_id)", "HDL-464", "two tables", "AS another"),
        ("JOIN ^products AS Orders USING (product_id)", "HDL-464", "two tables are named", "AS another_name"),
        ("JOIN products USING (product_id) WHERE ^products.nix = 1", "HDL-202", "no column 'nix'", "category"),
        ("JOIN products USING (product_id) WHERE ^p.price = 1", "HDL-202", "neither the stream", "write"),
        (
            "JOIN products USING (product_id) JOIN products b ON other_id = b.product_id WHERE ^price = 1",
            "HDL-202",
            "several tables have a column 'price'",
            "products.price or b.price",
        ),
    ],
)
def test_mistakes_are_coded_and_positioned(marked: str, code: str, message: str, hint: str) -> None:
    text = f"SELECT count(*) FROM orders {marked}"
    result = parsed(text.replace("^", "", 1) + " {w}")
    assert not result.queries and len(result.diagnostics) == 1
    (diagnostic,) = result.diagnostics
    assert (diagnostic.code, diagnostic.line, diagnostic.column) == (code, 1, text.index("^") + 1)
    assert message in diagnostic.message and hint in diagnostic.hint


def test_a_query_joins_eight_dimensions_at_most() -> None:
    joins = [f"JOIN products p{number} ON orders.other_id = p{number}.product_id" for number in range(9)]
    assert not parsed(f"SELECT count(*) FROM orders {' '.join(joins[:8])} {{w}}").diagnostics
    text = f"SELECT count(*) FROM orders {' '.join(joins)} {{w}}"
    (diagnostic,) = parsed(text).diagnostics
    assert (diagnostic.code, diagnostic.column) == ("HDL-464", text.index("products p8") + 1)
    assert "the limit is 8" in diagnostic.message


def test_windows_of_rows_join_no_dimension() -> None:
    (diagnostic,) = parsed(
        "SELECT count(*) FROM orders JOIN products USING (product_id) WINDOW ROWS 6 SLIDE 3 ON ts"
    ).diagnostics
    assert diagnostic.code == "HDL-464" and "joins no dimension" in diagnostic.message


def test_what_is_neither_grouped_nor_aggregated_is_shown_as_it_is_written() -> None:
    (diagnostic,) = parsed("SELECT category, count(*) FROM orders JOIN products USING (product_id) {w}").diagnostics
    assert (diagnostic.code, diagnostic.column) == ("HDL-207", 8)
    assert "GROUP BY products.category" in diagnostic.hint


def test_other_queries_of_a_file_are_read() -> None:
    result = parsed(
        "SELECT count(*) FROM orders JOIN xyz USING (a) {w};\n-- name: good\nSELECT count(*) FROM orders {w}"
    )
    assert [each.name for each in result.queries] == ["good"]


def test_a_dimension_in_from_is_named_as_one() -> None:
    (diagnostic,) = parsed("SELECT count(*) FROM products {w}").diagnostics
    assert (diagnostic.code, diagnostic.column) == ("HDL-201", 22)
    assert "is a dimension" in diagnostic.message and "JOIN products USING" in diagnostic.hint


def test_a_join_without_a_key_says_so() -> None:
    (diagnostic,) = parsed("SELECT count(*) FROM orders JOIN products {w}").diagnostics
    assert "says no key" in diagnostic.message


def test_the_hint_for_an_unknown_table_names_one_that_has_the_column() -> None:
    text = "SELECT count(*) FROM orders JOIN products USING (product_id) {w} WHERE p.category = 'a'"
    (diagnostic,) = parsed(text).diagnostics
    assert "products.category" in diagnostic.hint and "orders.category" not in diagnostic.hint


def test_the_hint_for_an_ambiguous_name_names_tables_that_have_it() -> None:
    text = (
        "SELECT count(*) FROM orders JOIN products a USING (product_id) JOIN products b ON other_id = b.product_id {w} "
        "WHERE category = 'a'"
    )
    (diagnostic,) = parsed(text).diagnostics
    assert diagnostic.hint == "write a.category or b.category"


def test_a_key_that_equals_another_column_is_ambiguous() -> None:
    joined = "SELECT product_id, count(*) FROM orders JOIN products ON other_id = products.product_id"
    text = f"{joined} {{w}} GROUP BY product_id"
    assert {diagnostic.code for diagnostic in parsed(text).diagnostics} == {"HDL-202"}


def test_many_keys_that_are_attributes_are_no_long_chain() -> None:
    keys = [f"k{number}" for number in range(8)]
    wide = Dimension("wide", FILE, tuple(keys), tuple((key, LONG) for key in (*keys, "value")))
    stream = Stream("orders", FILE, ORDERS.schema, "ts", dimensions=(PRODUCTS, wide))
    products = Dimension("products", FILE, ("product_id",), (("product_id", LONG), *((key, LONG) for key in keys)))
    stream = Stream("orders", FILE, ORDERS.schema, "ts", dimensions=(products, wide))
    on = " AND ".join(f"wide.{key} = products.{key}" for key in keys)
    text = f"SELECT max(value) AS n FROM orders JOIN products USING (product_id) JOIN wide ON {on} {WINDOW}"
    assert not parse(text, {"orders": stream}).diagnostics
