"""Events of the corpus' streams, bunched so that groups, thresholds and sequences come about."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, SECOND, Stream, Type, Workload
from spark_jobs.streams.sources.expressions import arrow_type
from tests.workloads import Case

BEGIN = 1_711_670_400 * SECOND
"""2024-03-29T00:00:00Z: clocks of Europe change two days later, the month ends after three."""

POOLS: dict[str, list[Any]] = {
    "kind": ["view", "cart", "buy", "click", "impression"],
    "device": ["android", "iphone", "wap", "other"],
    "country": ["MX", "DE", "US"],
    "gender": ["female", "Male", "FEMALE"],
    "region": ["Region_6", "region_6", "region_7", "x6"],
    "referrer": ["https://a.example/x", "https://b.example/y", "direct"],
    "user_agent": ["Mozilla", "GoogleBot 2.1", "a crawler"],
    "tier": ["enterprise", "free"],
    "channel": ["web", "app"],
    "status": ["cancelled", "paid", "open"],
    "price": [1, 5, 99, 120, 9_999, 10_000, 1_000_000],
    "latency": [1.5, 20.25, 700.0, 1200.0],
    "signal": [3.0, 11.0, 42.5],
    "battery": [1, 2, 3, 50],
    "temperature": [12.5, 44.0, 60.0, 63.5, 71.25, 84.75, 85.0, 99.0],
    "side": ["buy", "sell"],
    "make": ["Honda", "Toyota", "Ford"],
    "weight": ["1000", "2000", "25000"],
    "sensor": ["temp", "power"],
    "interaction": ["like", "dislike", "view", "comment", "share", "skip"],
    "event_type": ["impression", "click", "conversion"],
    "event_name": ["page_view", "first_visit", "session_start", "purchase"],
    "outcome": ["failed", "success"],
    "command": ["whoami", "netstat", "ipconfig", "ls"],
    "account": [f"account {number}" for number in range(150)],
    "passengers": [1, 2, 3],
    "pickup_lat": [40.7589, 40.76, 40.762, 40.7, 40.8],
    "pickup_lon": [-73.9851, -73.986, -73.988, -73.9, -74.0],
}
CODES = [200, 204, 404, 500, 503]


def value(draw: random.Random, name: str, type: Type) -> Any:
    """A value of a column; now and then none."""
    if draw.random() < 0.05:
        return None
    pool = CODES if name == "status" and type.name == "long" else POOLS.get(name)
    kinds: dict[str, Any] = {
        "string": lambda: draw.choice(pool or ["a", "b", "c"]),
        "boolean": lambda: draw.random() < 0.4,
        "long": lambda: draw.choice(pool or [1, 2, 3, 1000]),
        "double": lambda: float(draw.choice(pool or [0.5, 1.25, 2.0, 350.75, 3.0])),
        "decimal": lambda: Decimal(draw.choice(pool or [1, 20, 99, 101, 250])) + Decimal(draw.randrange(100)) / 100,
        "date": lambda: date(2024, 3, 1),
        "timestamp": lambda: BEGIN + draw.randrange(DAY),
    }
    return kinds[type.name]()


def case_of(query: ACQ, stream: Stream, seed: int, size: int = 120) -> Case:
    """A few windows of a query over ``size`` events, bunched so that groups, thresholds and sequences come about."""
    draw = random.Random(f"{query.name} {seed}")
    length, period = (DAY, DAY) if query.window.is_rows else (query.window.range, query.window.period)
    end = BEGIN + max(2 * period, min(4 * length, 4 * DAY))
    first = BEGIN - min(length, 40 * DAY)
    bunches = [draw.randrange(first, end) for _ in range(6)]
    near = max(SECOND, min(length // 4, DAY))
    times = [min(end, draw.choice(bunches) + draw.randrange(near)) for _ in range(size)]
    columns = {
        name: times if name == stream.time else [value(draw, name, type) for _ in times] for name, type in stream.schema
    }
    schema = pa.schema([(name, arrow_type(type)) for name, type in stream.schema])
    renamed = replace(stream, name="events")
    workload = Workload((replace(query, stream="events"),), (renamed,))
    return Case(workload, pa.table(columns, schema=schema), BEGIN, end)
