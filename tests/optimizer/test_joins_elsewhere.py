"""Joins of dimensions outside of the parser: imported from jobs, laid out, read as names, and as lineage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.layout import lay_out
from optimizer.language.parser import parse
from optimizer.migration.importing import import_job
from optimizer.migration.words import Dialect
from optimizer.plan.column_lineage import Dependency, column_lineage
from optimizer.workload.attributes import JoinedAttribute, described_column, shown_column, shown_columns
from optimizer.workload.values import ACQ, DATE, LONG, STRING, TIMESTAMP, Dimension, Source, Stream
from tests.sizes import examples

NOWHERE = Source("parquet", "x")
PRODUCTS = Dimension("products", NOWHERE, ("pid",), (("pid", LONG), ("dept", STRING), ("bid", LONG), ("cost", LONG)))
BRANDS = Dimension("brands", NOWHERE, ("bid",), (("bid", LONG), ("brand", STRING)))
OWNERS = Dimension(
    "owners", NOWHERE, ("pid",), (("pid", LONG), ("owner", STRING), ("since", TIMESTAMP), ("until", DATE)),
    valid_from="since", valid_to="until",
)  # fmt: skip
SCHEMA = (("ts", TIMESTAMP), ("pid", LONG), ("cost", LONG), ("kind", STRING))
STREAMS = {"orders": Stream("orders", NOWHERE, SCHEMA, "ts", dimensions=(PRODUCTS, BRANDS, OWNERS))}
WINDOW = "WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts"


def query_of(text: str) -> ACQ:
    parsed = parse(f"-- name: q\n{text}", STREAMS)
    assert not parsed.errors, parsed.errors
    (query,) = parsed.queries
    return query


# ---------------------------------------------------------------------------------------------- heddle import
@st.composite
def jobs(draw: st.DrawFn) -> tuple[str, str]:
    """A statement of a job, and the query that means the same."""
    is_left, is_view, is_chained = (draw(st.booleans()) for _ in range(3))
    alias = draw(st.sampled_from(["products", "p"]))
    named = alias if alias == "products" else f"products {draw(st.sampled_from(['AS ', '']))}p"
    stream = draw(st.sampled_from(["o", "orders"]))
    key = draw(st.sampled_from([f"ON {stream}.pid = {alias}.pid", f"ON ({alias}.pid = {stream}.pid)"]))
    if not is_view:
        key = draw(st.sampled_from([key, "USING (pid)"]))
    by = "USING (pid)"
    if draw(st.booleans()):
        key = f"ON {alias}.pid = (abs(CAST({stream}.pid AS INT)))"
        by = f"ON abs(CAST(orders.pid AS int)) = {alias}.pid"
    further = "" if is_left or "USING" in key else draw(st.sampled_from(["", f" AND {alias}.dept <> 'x'"]))
    side = draw(st.sampled_from(["LEFT JOIN", "LEFT OUTER JOIN"] if is_left else ["JOIN", "INNER JOIN"]))
    source = "orders" if stream == "orders" else "orders AS o"
    if is_view:
        source = f"(SELECT pid, ts, cost AS spent FROM orders WHERE kind = 'buy') {stream}"
    spent = f"{stream}.spent" if is_view else f"{stream}.cost"
    bid = draw(st.sampled_from([f"{alias}.bid", f"CAST({alias}.dept AS BIGINT)", f"length({alias}.dept)"]))
    chained = f" LEFT JOIN brands b ON {bid} = b.bid" if is_chained else ""
    group = "b.brand" if is_chained else f"{alias}.dept"
    job = (
        f"INSERT INTO q SELECT {group} AS g, sum({spent} - {alias}.cost) AS margin FROM {source} "
        f"{side} {named} {key}{further}{chained} GROUP BY window({stream}.ts, '1 hour'), {group}"
    )
    conditions = ["kind = 'buy'"] * is_view + [f"{alias}.dept <> 'x'"] * bool(further)
    query = (
        f"SELECT {group} AS g, sum(orders.cost - {alias}.cost) AS margin FROM orders "
        f"{'LEFT ' * is_left}JOIN {named} {by}{chained} {WINDOW} "
        + (f"WHERE {' AND '.join(conditions)} " if conditions else "")
        + f"GROUP BY {group}"
    )
    return job, query


@settings(max_examples=examples(60), deadline=None)
@given(texts=jobs())
def test_a_job_with_joins_is_the_query_that_means_the_same(texts: tuple[str, str]) -> None:
    job, expected = texts
    imported = import_job(job, Dialect.spark, streams=STREAMS)
    assert not imported.errors, (job, imported.errors)
    (query,) = parse(imported.text, STREAMS).queries
    assert query.fingerprint == query_of(expected).fingerprint, imported.text
    # without streams it is written the same
    assert import_job(job, Dialect.spark).text == imported.text


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("RIGHT JOIN products USING (pid)", "a RIGHT JOIN"),
        ("JOIN orders x ON x.pid = orders.pid", "a join with 'orders', which is no dimension"),
        ("JOIN product USING (pid)", "a join with 'product', which is no dimension"),
        ("JOIN (SELECT * FROM products) p USING (pid)", "something else than a table"),
        ("LEFT JOIN products p ON orders.pid = p.pid AND p.dept = 'x'", "another condition of a LEFT JOIN"),
        ("JOIN products p ON orders.pid > p.pid", "ON compares no column of 'p'"),
        ("LEFT JOIN products p ON abs(p.cost) = p.pid", "another condition of a LEFT JOIN"),
        ("LEFT JOIN products p ON p.pid = 5", "another condition of a LEFT JOIN"),
        ("JOIN products USING (pid) JOIN products USING (pid)", "two tables are named 'products'"),
        (", products", "a CROSS JOIN"),
    ],
)
def test_other_joins_of_a_job_are_refused_at_their_place(clause: str, message: str) -> None:
    text = f"SELECT kind, count(*) AS n FROM orders {clause} GROUP BY window(ts, '1 hour'), kind"
    (error,) = import_job(text, Dialect.spark, streams=STREAMS).errors
    assert error.code == "HDL-142" and message in error.message and error.line == 1 and error.column > 30


# ---------------------------------------------------------------------------------------------- heddle format
LAID_OUT = """\
-- name: q
SELECT b.brand, count(*) AS n, max(left(p.dept, 2)) AS l
FROM orders o
LEFT OUTER JOIN products AS p USING (pid)
INNER JOIN brands b ON p.bid = b.bid
WINDOW RANGE '1h' SLIDE '1h' ON ts
WHERE p.dept <> 'x'
GROUP BY b.brand;
"""


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_a_join_has_a_line_of_its_own(data: st.DataObject) -> None:
    head, _, body = LAID_OUT.partition("\n")
    words = body.replace("USING (", "USING(").replace("\n", " ").split(" ")
    spaces = data.draw(st.lists(st.sampled_from([" ", "\n", "\n  "]), min_size=len(words), max_size=len(words)))
    keywords = {"SELECT", "FROM", "LEFT", "OUTER", "JOIN", "INNER", "AS", "ON", "USING(pid)", "WHERE", "GROUP", "BY"}
    written = (word.lower() if word in keywords and data.draw(st.booleans()) else word for word in words)
    text = "".join(word + space for word, space in zip(written, spaces, strict=True))
    assert lay_out(f"{head}\n{text}").text == LAID_OUT
    assert lay_out(LAID_OUT).text == LAID_OUT


# ---------------------------------------------------------------------------------------------- names, lineage
def test_an_attribute_reads_as_a_column_of_its_dimension() -> None:
    department = JoinedAttribute("products", ("pid",), "dept")
    chained = JoinedAttribute("brands", (department._replace(column="bid").name,), "brand name")
    assert shown_column(department.name) == "products.dept" and shown_column(chained.name) == "brands.`brand name`"
    assert shown_column(department.row.name) == "pid IN products"
    assert shown_column(chained.row.name) == "products.bid IN brands"
    assert shown_column(JoinedAttribute("d", ("a", "b"), None).name) == "(a, b) IN d"
    assert described_column(chained.name, "orders") == "brand name of brands, by products.bid"
    assert described_column("kind", "orders") == "kind of orders"
    assert shown_columns(["kind", department.row.name, department.name, "kind"]) == ["kind", "products.dept"]
    (group,) = query_of(
        f"SELECT count(*) AS n FROM orders JOIN products USING (pid) {WINDOW} GROUP BY upper(dept)"
    ).group_by
    assert shown_column(group[0]) == "upper(products.dept)"
    assert shown_column("concat(kind, `a b`)") == "concat(kind, `a b`)"


def test_a_group_of_an_attribute_is_named_without_its_key() -> None:
    query = query_of(
        "SELECT dept, upper(brand), count(*) AS n FROM orders JOIN products USING (pid) JOIN brands USING (bid) "
        f"{WINDOW} GROUP BY dept, upper(brand)"
    )
    assert query.select == ("dept", "upper_brands_brand")


def test_lineage_has_both_sides_of_the_key_and_validities() -> None:
    text = f"SELECT owner, sum(cost) AS spent FROM orders JOIN owners USING (pid) {WINDOW} GROUP BY owner"
    lineage = column_lineage(query_of(text), STREAMS["orders"])
    owner = JoinedAttribute("owners", ("pid",), "owner")
    assert lineage.groups == (((owner.name, Dependency.IDENTITY),),)
    assert lineage.outputs == ((("cost", Dependency.AGGREGATION),),)
    joins = {name for name, dependency in lineage.answers if dependency == Dependency.JOIN}
    assert joins == {"pid", "ts", *(owner._replace(column=name).name for name in ("pid", "since", "until"))}
    assert owner.row.name not in lineage.columns


def test_lineage_has_what_a_key_is_computed_of() -> None:
    text = (
        "SELECT brand, count(*) AS n FROM orders LEFT JOIN products AS p ON CAST(kind AS bigint) = p.pid "
        f"LEFT JOIN brands AS b ON length(concat(p.dept, kind)) = b.bid {WINDOW} GROUP BY brand"
    )
    lineage = column_lineage(query_of(text), STREAMS["orders"])
    joins = {shown_column(name) for name, dependency in lineage.answers if dependency == Dependency.JOIN}
    assert joins == {"kind", "products.pid", "products.dept", "brands.bid"}
    assert set(map(shown_column, lineage.columns)) >= joins - {"brands.bid"}
