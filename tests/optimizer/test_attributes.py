"""Names of attributes: every one is read as what it denotes, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from optimizer.workload.attribute_names import JoinedAttribute, inputs_of, read_attribute, read_key
from optimizer.workload.attributes import (
    attributes_in,
    columns_read,
    described_column,
    described_joins,
    last_name,
    shown_column,
    with_joined_dimensions,
)
from optimizer.workload.computed_keys import key_expression, key_name
from optimizer.workload.nested import read_path
from optimizer.workload.notation import written
from optimizer.workload.values import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Dimension,
    Expression,
    Literal,
    Source,
    Stream,
    Type,
    Workload,
    columns_of,
    decimal,
    from_json,
    to_json,
)
from tests.optimizer.joined_orders import ORDERS, query

DIMENSIONS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
COLUMNS = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    st.sampled_from(("a", "é", "x y", "`", "``", "a`b", "a)", "a.b", "(", "*", ", ", "1st", "m['k']", "l[0].x")),
).filter(lambda name: read_attribute(name) is None)


name_of = attrgetter("name")

LITERALS = st.one_of(
    st.builds(
        Literal, st.none() | st.text(max_size=6) | st.sampled_from(("'", "`", "\", 'x')", "null")), st.just(STRING)
    ),
    st.builds(Literal, st.none() | st.booleans(), st.just(BOOLEAN)),
    st.builds(Literal, st.floats(allow_nan=False), st.just(DOUBLE)),
    st.builds(
        Literal, st.none() | st.integers(-(2**63), 2**63 - 1), st.sampled_from((LONG, Type("long", 1), TIMESTAMP))
    ),
    st.builds(Literal, st.decimals(-999, 999, places=2), st.just(decimal(5, 2))),
    st.builds(Literal, st.dates().map(str), st.just(DATE)),
)
FUNCTION_NAMES = st.sampled_from(("=", "!=", "<=", "-", "*", "/", "upper", "cast", "if", "products", "is_null"))


def expressions(names: st.SearchStrategy[str]) -> st.SearchStrategy[Call]:
    """Calls, well-typed or not."""
    leaves = st.one_of(st.builds(Column, names), LITERALS)
    arguments = st.recursive(leaves, lambda inner: calls_of(st.one_of(leaves, inner)), max_leaves=4)
    return calls_of(arguments)


def calls_of(arguments: st.SearchStrategy[Expression]) -> st.SearchStrategy[Call]:
    return st.builds(Call, FUNCTION_NAMES, st.lists(arguments, min_size=1, max_size=3).map(tuple))


def attributes(depth: int = 2) -> st.SearchStrategy[JoinedAttribute]:
    names = COLUMNS
    if depth:
        names = st.one_of(COLUMNS, attributes(depth - 1).filter(lambda each: each.column is not None).map(name_of))
    keys = st.one_of(names, expressions(names).map(key_name))
    columns = st.one_of(st.none(), COLUMNS)
    return st.builds(JoinedAttribute, DIMENSIONS, st.lists(keys, min_size=1, max_size=3).map(tuple), columns)


@given(attributes())
def test_a_name_is_read_as_its_attribute(attribute: JoinedAttribute) -> None:
    assert read_attribute(attribute.name) == attribute
    assert read_path(attribute.name) is None


@given(expressions(st.one_of(COLUMNS, attributes(1).map(name_of))))
def test_a_computed_key_is_read_as_its_expression(expression: Call) -> None:
    key = key_name(expression)
    assert key_expression(key) == expression
    assert inputs_of(key) == list(dict.fromkeys(columns_of(expression)))
    # a part of an expression is no number that is equal to another's
    assert repr(key_expression(key)) == repr(expression)


@given(attributes(1), attributes(1))
def test_different_attributes_have_different_names(some: JoinedAttribute, other: JoinedAttribute) -> None:
    assert (some == other) == (some.name == other.name)


@given(attributes(), st.integers(0, 40), st.sampled_from(("(", ")", ".", "`", " ", ", ", "x")))
def test_a_damaged_name_is_another_attribute_or_none(attribute: JoinedAttribute, at: int, text: str) -> None:
    name = attribute.name[:at] + text + attribute.name[at:]
    read = read_attribute(name)
    assert read is None or read.name == name


def test_how_attributes_are_shown() -> None:
    attribute = JoinedAttribute("products", ("product_id",), "category")
    assert (attribute.name, shown_column(attribute.name)) == ("products(product_id).category", "products.category")
    assert last_name(attribute.name) == "category" and last_name(attribute.row.name) == "products"
    assert last_name("qty") == shown_column("qty") == "qty"
    chained = JoinedAttribute("departments", (attribute._replace(column="department id").name,), None)
    assert chained.name == "departments(products(product_id).`department id`).*"


def test_keys_come_before_what_is_read_by_them() -> None:
    key = JoinedAttribute("products", ("other_id",), "department_id").name
    name = JoinedAttribute("departments", (key,), "name").name
    found = attributes_in(ORDERS, [name, "qty"])
    assert list(found) == [key, name]
    assert columns_read(ORDERS, [name, "qty"]) == ["qty", "other_id"]
    assert columns_read(replace(ORDERS, dimensions=()), [name]) == [name]


def test_computed_keys_are_read_from_columns_and_shown_as_they_are_written() -> None:
    key = key_name(Call("lower", (Column(JoinedAttribute("products", ("product_id",), "category").name),)))
    mixed = key_name(Call("+", (Column("qty"), Literal(1, Type("long", 1)))))
    attribute = JoinedAttribute("stores", (key, mixed), "opened")
    name = attribute.name
    assert name == "stores(=lower(products(product_id).category), =+(qty, long(1) '1')).opened"
    assert list(attributes_in(ORDERS, [name])) == ["products(product_id).category", name]
    assert columns_read(ORDERS, [name]) == ["product_id", "qty"] and attribute.depth == 2
    assert shown_column(name) == "stores.opened"
    assert shown_column(attribute.row.name) == "(lower(products.category), qty + 1) IN stores"
    assert described_column(name, "orders") == "opened of stores, by lower(products.category), qty + 1"
    assert described_joins([name]) == [
        "joins products by product_id, for category: null where there is no row",
        "joins stores by lower(products.category), qty + 1, for opened: null where there is no row",
    ]
    assert shown_column(written(Call("upper", (Column(name),)))) == "upper(stores.opened)"
    assert shown_column(f"concat('`{name}`', x)") == f"concat('`{name}`', x)"


def test_a_key_that_is_nested_too_deep_is_none() -> None:
    assert read_key("=" + "f(" * 100_000) is None and read_attribute("d(=" + "f(" * 100_000) is None
    assert read_key("=" + "f(" * 40 + "x" + ")" * 40) is not None


def test_a_plan_has_only_the_dimensions_that_its_queries_join() -> None:
    joined = query("SELECT count(*) AS n FROM orders JOIN products USING (product_id) {w}")
    workload = with_joined_dimensions(Workload((joined,), (ORDERS,)))
    assert [dimension.name for dimension in workload.streams[0].dimensions] == ["products"]
    assert from_json(to_json(workload)) == workload


def test_a_stream_without_dimensions_has_no_attributes() -> None:
    stream = Stream("s", Source("parquet", "s"), (("ts", TIMESTAMP), ("a(b).c", STRING)), "ts")
    dimension = Dimension("d", Source("parquet", "d"), ("k",), (("k", LONG),))
    assert attributes_in(stream, ["a(b).c"]) == {} and columns_read(stream, ["a(b).c"]) == ["a(b).c"]
    assert attributes_in(replace(stream, dimensions=(dimension,)), ["a(b).c"]) == {}
