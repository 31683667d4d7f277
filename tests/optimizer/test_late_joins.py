"""Which queries may be joined late, what is stored for them, and which of both is chosen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff
from optimizer.plan.explain import explain
from optimizer.plan.export import to_json
from optimizer.plan.stored_rows import from_rows, to_rows
from optimizer.synopses.late import late_form, with_late_forms
from optimizer.synopses.sharing import ONE_BUCKET, Profile
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.notation import written
from optimizer.workload.values import (
    ACQ,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Dimension,
    Source,
    Stream,
    Workload,
    columns_of,
)

PRODUCTS = Dimension(
    "products",
    Source("parquet", "/products.parquet"),
    ("product_id",),
    (("product_id", LONG), ("category", STRING), ("department", STRING), ("price", DOUBLE), ("since", TIMESTAMP)),
)
DEPARTMENTS = Dimension(
    "departments",
    Source("parquet", "/departments.parquet"),
    ("department",),
    (("department", STRING), ("division", STRING)),
)
STREAM = Stream(
    "orders",
    Source("parquet", "/orders"),
    (("t", TIMESTAMP), ("product_id", LONG), ("shop", STRING), ("qty", LONG)),
    "t",
    dimensions=(PRODUCTS, DEPARTMENTS),
)
CATEGORY, DIVISION = "products(product_id).category", "departments(products(product_id).department).division"


def queries(*texts: str, stream: Stream = STREAM) -> tuple[ACQ, ...]:
    """Queries q0, q1, … of a day each unless they name a window."""
    windowed = (
        text if "WINDOW" in text else text.replace(" GROUP BY", " WINDOW RANGE '1 day' ON t GROUP BY") for text in texts
    )
    written_queries = (text if "WINDOW" in text else f"{text} WINDOW RANGE '1 day' ON t" for text in windowed)
    parsed = parse("".join(f"-- name: q{at}\n{text};\n" for at, text in enumerate(written_queries)), {"orders": stream})
    assert not parsed.diagnostics, parsed.diagnostics
    return parsed.queries


BY_CATEGORY = "SELECT category, count(*) AS n FROM orders LEFT JOIN products USING (product_id) GROUP BY category"
BY_SHOP = (
    "SELECT category, count(*) AS n FROM orders LEFT JOIN products p ON length(shop) = p.product_id GROUP BY category"
)
BY_PRODUCT = "SELECT product_id, count(*) AS n FROM orders GROUP BY product_id"


@pytest.mark.parametrize(
    ("text", "filter", "group_by", "condition"),
    [
        (BY_CATEGORY, None, ["product_id"], None),
        (
            "SELECT shop, category, sum(qty) AS s FROM orders JOIN products USING (product_id)"
            " WHERE qty > 3 AND department = 'x' GROUP BY shop, category",
            "qty >= 4",
            ["product_id", "shop"],
            {"products(product_id).*", "products(product_id).department"},
        ),
        (
            "SELECT division, count(*) AS n FROM orders LEFT JOIN products USING (product_id)"
            " LEFT JOIN departments USING (department) GROUP BY division",
            None,
            ["product_id"],
            None,
        ),
        (
            "SELECT count(*) AS n FROM orders LEFT JOIN products USING (product_id)"
            " WHERE category = 'a' OR product_id = 3",
            None,
            ["product_id"],
            {CATEGORY, "product_id"},
        ),
        (
            "SELECT category, count(*) AS n FROM orders LEFT JOIN products p ON coalesce(qty, 1) = p.product_id"
            " WHERE qty > 3 GROUP BY category",
            "qty >= 4",
            ["coalesce(qty, 1)"],
            None,
        ),
        (
            # what is computed of an attribute is computed of the groups, which have the rest
            "SELECT division, shop, upper(shop), count(*) AS n FROM orders LEFT JOIN products p USING (product_id)"
            " JOIN departments d ON concat(p.department, shop) = d.department GROUP BY division, shop, upper(shop)",
            None,
            ["product_id", "shop", "upper(shop)"],
            {"departments(=concat(products(product_id).department, shop)).*"},
        ),
    ],
)
def test_conditions_on_attributes_and_group_columns_become_keys(
    text: str, filter: str | None, group_by: list[str], condition: set[str] | None
) -> None:
    (query,) = queries(text)
    form = late_form(STREAM, query)
    assert form is not None
    assert (form.filter and written(form.filter)) == filter
    assert [name for name, _ in form.group_by] == group_by
    assert (form.condition and set(columns_of(form.condition))) == condition


TIMED = replace(STREAM, dimensions=(replace(PRODUCTS, valid_from="since"), DEPARTMENTS))


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        (BY_PRODUCT, STREAM),
        ("SELECT sum(price) AS s FROM orders JOIN products USING (product_id)", STREAM),
        ("SELECT count(*) FILTER (WHERE category = 'a') AS n FROM orders JOIN products USING (product_id)", STREAM),
        ("SELECT count(*) AS n FROM orders JOIN products USING (product_id) WHERE category = 'a' OR qty > 3", STREAM),
        (BY_CATEGORY, TIMED),
        # a column has the name that the computed key would have as a group column
        (BY_SHOP, replace(STREAM, schema=(*STREAM.schema, ("length(shop)", LONG)))),
        # of a condition on attributes and columns, only the keys are known of the groups
        (f"{BY_SHOP.partition(' GROUP')[0]} WHERE category = 'a' OR shop = 's' GROUP BY category", STREAM),
    ],
)
def test_what_reads_an_attribute_of_an_event_is_joined_early(text: str, stream: Stream) -> None:
    (query,) = queries(text, stream=stream)
    assert late_form(stream, query) is None
    ((synopsis, _),) = synopses_of(stream, [query], late=["q0"]).items()
    assert synopsis.group_by[: len(query.group_by)] == query.group_by and not synopsis.joins_late(query)


def test_queries_by_attributes_and_by_the_key_share_a_synopsis() -> None:
    chosen = queries(
        BY_CATEGORY,
        BY_PRODUCT,
        "SELECT count(*) AS n FROM orders JOIN products USING (product_id) WHERE category = 'a'",
    )
    ((synopsis, members),) = synopses_of(STREAM, chosen, late=["q0", "q2"]).items()
    assert members == (chosen[0], chosen[2], chosen[1]) or set(members) == set(chosen)
    assert synopsis.group_by == (("product_id", LONG),) and synopsis.predicates == (None,)
    assert synopsis.bucket_by == (), "answers by category need all products"
    assert [synopsis.joins_late(query) for query in chosen] == [True, False, True]
    ((alone, _),) = synopses_of(STREAM, [chosen[1]]).items()
    assert alone.bucket_by == ("product_id",)


def test_queries_by_attributes_and_by_the_computed_key_share_a_synopsis() -> None:
    chosen = queries(
        BY_SHOP,
        "SELECT length(shop) AS l, count(*) AS n FROM orders GROUP BY length(shop)",
        BY_SHOP.replace("length(shop)", "(char_length(shop))"),
    )
    assert chosen[0].group_by == chosen[2].group_by
    ((synopsis, members),) = synopses_of(STREAM, chosen, late=["q0", "q2"]).items()
    assert set(members) == set(chosen) and [name for name, _ in synopsis.group_by] == ["length(shop)"]
    assert [name for name, _ in synopsis.derived] == ["length(shop)"]
    assert [synopsis.joins_late(query) for query in chosen] == [True, False, True]
    assert synopses_of(STREAM, [chosen[1]]).keys() != synopses_of(STREAM, [chosen[0]]).keys()


def profile(products: int, categories: int, events: int = 20_000, rate: float = 1.0) -> Profile:
    """A sample of a stream with as many products and categories."""
    random = np.random.default_rng(7)
    product = random.integers(0, products, events)
    texts = (BY_CATEGORY, BY_PRODUCT, BY_DIVISION, OF_CATEGORY)
    forms = with_late_forms(STREAM, queries(*texts))
    filters = {query.filter for query in forms} - {None}
    category = product % categories
    columns = {"product_id": product, CATEGORY: category, DIVISION: category % 3}
    times = (np.arange(events) * (1e6 / rate)).astype(np.int64)
    return Profile(times, columns, {each: category == 0 for each in filters if each is not None}, rate)


BY_DIVISION = (
    "SELECT division, count(*) AS n FROM orders LEFT JOIN products USING (product_id)"
    " LEFT JOIN departments USING (department) GROUP BY division"
)
OF_CATEGORY = "SELECT count(*) AS n FROM orders LEFT JOIN products USING (product_id) WHERE category = 'a'"


def planned(
    texts: Sequence[str],
    products: int,
    changes: float = 1.0,
    previous: SharingPlan | None = None,
    rate: float = 1.0,
    late: Collection[str] | None = None,
) -> SharingPlan:
    """The plan of some queries over a stream with as many products in 30 categories."""
    workload = Workload(queries(*texts), (STREAM,))
    return build_plan(
        workload,
        {"orders": Fraction(rate)},
        "weave-share",
        "measured",
        previous=previous,
        profiles={"orders": profile(products, 30, rate=rate)},
        changes={"products": changes, "departments": changes},
        late=late,
    )


def test_the_cheaper_join_is_chosen() -> None:
    assert planned([BY_CATEGORY], 10_000, 0.001).late == (), "many more rows, and the dimension hardly changes"
    assert planned([BY_CATEGORY], 40, 100.0).late == ("q0",), "few more rows, and the dimension changes often"
    # the rows by key are stored anyway
    assert planned([BY_PRODUCT, BY_CATEGORY, BY_DIVISION, OF_CATEGORY], 4_000, 20.0).late == ("q1", "q2", "q3")


def test_a_join_stays_while_it_costs_about_the_same() -> None:
    late = planned([BY_CATEGORY], 40, 100.0)
    (price,) = late.joins
    # the number of changes a day at which both cost the same
    least, most = 0.0, 100.0
    for _ in range(40):
        middle = (least + most) / 2
        least, most = (least, middle) if planned([BY_CATEGORY], 40, middle).late else (middle, most)
    assert planned([BY_CATEGORY], 40, least * 0.999).late == ()
    assert planned([BY_CATEGORY], 40, least * 0.999, late).late == ("q0",)
    early = planned([BY_CATEGORY], 40, least * 0.999)
    assert planned([BY_CATEGORY], 40, most * 1.001, early).late == ()
    assert planned([BY_CATEGORY], 40, 0.0, late).late == () or price.late < price.early


def test_rows_of_too_many_keys_are_not_put_into_one_task() -> None:
    plan = planned([BY_CATEGORY], 10_000, 1e6, rate=10.0)
    (price,) = plan.joins
    assert 10_000 < price.key_rows < ONE_BUCKET and plan.late == ("q0",)
    many = planned([BY_CATEGORY.replace(" GROUP BY", " WINDOW RANGE '1 hour' ON t GROUP BY")], 10_000, 1e6, rate=10.0)
    (price,) = many.joins
    assert price.key_rows > ONE_BUCKET and not price.fits and many.late == ()
    assert "too many for one task" in explain(many, "q0").joins[-1]


def test_without_a_sample_joins_stay_as_they_were() -> None:
    workload = Workload(queries(BY_CATEGORY, BY_DIVISION), (STREAM,))
    fresh = build_plan(workload, {"orders": Fraction(1)}, "weave-share")
    assert fresh.late == ()
    late = build_plan(workload, {"orders": Fraction(1)}, "weave-share", late=["q1"])
    assert build_plan(workload, {"orders": Fraction(1)}, "weave-share", previous=late).late == ("q1",)


def test_plans_store_and_explain_how_queries_are_joined() -> None:
    late = planned([BY_PRODUCT, BY_CATEGORY], 40, 100.0)
    assert late.late == ("q1",)
    rows = to_rows(late)
    assert from_rows(rows) == late
    line = explain(late, "q1").joins[-1]
    assert line.startswith("joined late: ") and "partial rows a day by product_id" in line
    assert "by products.category" in line
    assert to_json(late)["trees"][0]["joined_late"] == ["q1"]
    early = planned([BY_PRODUCT, BY_CATEGORY], 40, late=())
    assert early.fingerprint != late.fingerprint
    assert not any("joined" in line for line in explain(early, "q1").joins)
    change = diff(early, late)
    assert not change.rebuilt and change.derived + change.reused == 1, "the rows by product are there already"
    assert "q1" in [query for query, _, _ in diff(late, early).rebuilt]


def test_plans_of_earlier_versions_read_as_joined_early() -> None:
    early = planned([BY_PRODUCT, BY_CATEGORY], 40, late=())
    rows: list[dict[str, Any]] = [
        {name: value for name, value in row.items() if name not in ("late", "join_price")} for row in to_rows(early)
    ]
    assert from_rows(rows) == early
