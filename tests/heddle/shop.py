"""A project whose queries join dimensions, as files."""

from __future__ import annotations

from pathlib import Path

STREAMS = """
streams:
  orders:
    source: {format: csv, path: orders.csv}
    schema: {ordered_at: timestamp, product_id: long, amount: long}
    time: ordered_at
dimensions:
  products:
    source: {format: csv, path: products.csv}
    key: product_id
  brands:
    source: {format: csv, path: brands.csv}
    key: brand_id
  owners:
    source: {format: csv, path: owners.csv}
    key: product_id
    valid_from: since
    valid_to: until
    repair: 30 days
    schema: {product_id: long, owner: string, since: timestamp, until: date}
"""

QUERIES = """
-- name: by_department
SELECT department, count(*) AS orders, sum(amount) AS sales FROM orders LEFT JOIN products USING (product_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON ordered_at GROUP BY department;
-- name: by_brand
SELECT upper(b.brand) AS brand, max(amount) FILTER (WHERE p.department = 'toys') AS toys
FROM orders AS o JOIN products AS p ON o.product_id = p.product_id JOIN brands AS b USING (brand_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON ordered_at GROUP BY upper(b.brand);
-- name: by_owner
SELECT owner, sum(amount) AS sales FROM orders JOIN owners USING (product_id)
WINDOW RANGE '1 day' SLIDE '1 day' ON ordered_at GROUP BY owner;
"""

FILES = {
    "orders.csv": """ordered_at,product_id,amount
2025-03-03T08:00:00Z,7,10
2025-03-03T09:00:00Z,8,3
2025-03-03T17:00:00Z,7,4
2025-03-04T10:00:00Z,9,20
2025-03-04T11:00:00Z,42,6
""",
    "products.csv": """product_id,name,department,brand_id
7,ball,toys,1
8,bread,food,2
9,puzzle,toys,1
,lost,,
""",
    "brands.csv": "brand_id,brand\n1,acme\n2,bolt\n",
    "owners.csv": """product_id,owner,since,until
7,ann,,2025-03-03
7,bob,2025-03-03T12:00:00Z,
9,ann,2025-03-01T00:00:00Z,2025-03-05
""",
}


def write_shop(folder: Path) -> None:
    """Write the project into a folder."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "queries.sql").write_text(QUERIES)
    (folder / "heddle.toml").write_text('streams = "streams.yaml"\nworkload = "queries.sql"\nwarehouse = "warehouse"\n')
