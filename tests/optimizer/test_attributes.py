"""Names of attributes: every one is read as what it denotes, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from optimizer.workload.attributes import (
    JoinedAttribute,
    attributes_in,
    columns_read,
    last_name,
    read_attribute,
    shown_column,
    with_joined_dimensions,
)
from optimizer.workload.nested import read_path
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Dimension, Source, Stream, Workload, from_json, to_json
from tests.optimizer.joined_orders import ORDERS, query

DIMENSIONS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
COLUMNS = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    st.sampled_from(("a", "é", "x y", "`", "``", "a`b", "a)", "a.b", "(", "*", ", ", "1st", "m['k']", "l[0].x")),
).filter(lambda name: read_attribute(name) is None)


name_of = attrgetter("name")


def attributes(depth: int = 2) -> st.SearchStrategy[JoinedAttribute]:
    keys = COLUMNS
    if depth:
        keys = st.one_of(COLUMNS, attributes(depth - 1).filter(lambda each: each.column is not None).map(name_of))
    columns = st.one_of(st.none(), COLUMNS)
    return st.builds(JoinedAttribute, DIMENSIONS, st.lists(keys, min_size=1, max_size=3).map(tuple), columns)


@given(attributes())
def test_a_name_is_read_as_its_attribute(attribute: JoinedAttribute) -> None:
    assert read_attribute(attribute.name) == attribute
    assert read_path(attribute.name) is None


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
