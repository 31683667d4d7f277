"""Plans of a few queries for pages."""

from __future__ import annotations

from fractions import Fraction

from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import (
    ACQ,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Output,
    Source,
    Stream,
    Window,
    Workload,
)

SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("volume", LONG))
COUNT = (Output("n", "count", None, None, LONG),)


def stream(name: str = "trades") -> Stream:
    return Stream(name, Source("csv", "trades.csv"), SCHEMA, "ts")


def query(name: str, seconds_range: int, seconds_slide: int, **rest: object) -> ACQ:
    window = Window(seconds_range * SECOND, seconds_slide * SECOND)
    return ACQ(name, rest.pop("stream", "trades"), window, COUNT, **rest)  # type: ignore[arg-type]


def planned(
    queries: list[ACQ], rate: str = "1.2", algorithm: str = "weave-share", model: object = "paper"
) -> SharingPlan:
    names = list(dict.fromkeys(query.stream for query in queries))
    workload = Workload(tuple(queries), tuple(map(stream, names)))
    return build_plan(workload, dict.fromkeys(names, Fraction(rate)), algorithm, model)  # type: ignore[arg-type]


EXAMPLE_3 = [query("a", 16, 4, owner="ops"), query("b", 10, 5, owner="ops"), query("c", 8, 4)]
