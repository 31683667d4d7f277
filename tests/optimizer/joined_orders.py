"""A stream of orders with dimensions, and queries that join them."""

from __future__ import annotations

from optimizer.language.parser import ParseResult, parse
from optimizer.workload.values import (
    ACQ,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Dimension,
    Source,
    Stream,
    decimal,
)

FILE = Source("parquet", "/files")
PRODUCTS = Dimension(
    "products",
    FILE,
    ("product_id",),
    (("product_id", LONG), ("category", STRING), ("price", decimal(8, 2)), ("department_id", INT)),
)
DEPARTMENTS = Dimension(
    "departments", FILE, ("department_id",), (("department_id", INT), ("name", STRING), ("parent_id", INT))
)
STORES = Dimension(
    "stores", FILE, ("region", "store"), (("region", STRING), ("store", INT), ("size m2", LONG), ("opened", DATE))
)
ORDERS = Stream(
    "orders",
    FILE,
    (
        ("ts", TIMESTAMP),
        ("product_id", LONG),
        ("other_id", LONG),
        ("qty", INT),
        ("region", STRING),
        ("store", INT),
        ("amount", DOUBLE),
        ("kind", STRING),
    ),
    "ts",
    dimensions=(PRODUCTS, DEPARTMENTS, STORES),
)
WINDOW = "WINDOW RANGE '1 hour' ON ts"


def parsed(text: str) -> ParseResult:
    return parse(text.replace("{w}", WINDOW), {"orders": ORDERS}, "w.sql", unreadable=("lost",))


def query(text: str) -> ACQ:
    result = parsed(f"-- name: q\n{text}")
    assert not result.diagnostics, result.diagnostics
    return result.queries[0]
