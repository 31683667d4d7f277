"""Writes the data of the three examples again: the same rows on every machine.

python examples/make_data.py [FOLDER]
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

DAY = datetime(2025, 3, 3, tzinfo=UTC)
"""All events are of this day, UTC."""


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """One line a row, the columns of ``header`` first."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def web_requests(folder: Path) -> None:
    """1,200 requests of four hours: 3 hosts, 4 paths, more errors in the third hour."""
    chance = random.Random(1)
    seconds = sorted(chance.randrange(4 * 3600) for _ in range(1200))
    rows = []
    for second in seconds:
        failing = 0.25 if 7200 <= second < 10800 else 0.03
        status = 500 if chance.random() < failing else chance.choice([200, 200, 200, 304, 404])
        rows.append(
            (
                (DAY + timedelta(hours=8, seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ"),
                chance.choice(["web-1", "web-2", "web-3"]),
                chance.choice(["/", "/search", "/cart", "/login"]),
                status,
                chance.randrange(5, 120) + (400 if status == 500 else 0),
            )
        )
    write_csv(folder / "requests.csv", ["time", "host", "path", "status", "milliseconds"], rows)


def sensor_readings(folder: Path) -> None:
    """A reading of each of 4 sensors every minute of six hours, a few missing; one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = random.Random(2)
    rows = [
        {
            "measured_at": DAY + timedelta(minutes=minute),
            "sensor": f"hall-{sensor}",
            "celsius": round(18 + sensor + minute / 120 + chance.choice([-0.5, -0.25, 0.0, 0.25, 0.5]), 2),
            "door_open": chance.random() < 0.1,
        }
        for minute in range(6 * 60)
        for sensor in range(1, 5)
        if chance.random() > 0.02
    ]
    schema = pa.schema(
        [
            ("measured_at", pa.timestamp("us", "UTC")),
            ("sensor", pa.string()),
            ("celsius", pa.float64()),
            ("door_open", pa.bool_()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "readings.parquet")


def shop_orders(folder: Path) -> None:
    """Visits of 60 customers in twelve hours: views, carts, orders, and what an order is worth; and the products."""
    chance, choice = random.Random(3), random.Random(4)
    rows = []
    for customer in range(1, 61):
        for _ in range(chance.randrange(1, 4)):
            second = chance.randrange(11 * 3600)
            country = "FR" if customer % 3 == 0 else "DE"
            product = f"p{choice.randrange(1, 13):02}"
            for kind, likely in (("view", 1.0), ("cart", 0.6), ("order", 0.5)):
                if chance.random() > likely:
                    break
                euros = chance.randrange(10, 200) if kind == "order" else 0
                rows.append((second, f"c{customer:02}", country, kind, euros, product))
                second += chance.randrange(30, 1200)
    lines = [
        ((DAY + timedelta(hours=8, seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ"), *others)
        for second, *others in sorted(rows)
    ]
    write_csv(folder / "events.csv", ["at", "customer", "country", "kind", "euros", "product"], lines)
    products = [(f"p{number:02}", ("garden", "kitchen", "toys")[number % 3]) for number in range(1, 12)]
    write_csv(folder / "products.csv", ["product", "department"], products)


def main(root: Path) -> None:
    for name, write in (
        ("web-requests", web_requests),
        ("sensor-readings", sensor_readings),
        ("shop-orders", shop_orders),
    ):
        (root / name / "data").mkdir(parents=True, exist_ok=True)
        write(root / name / "data")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)
