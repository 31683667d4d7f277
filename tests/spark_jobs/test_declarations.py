"""What is stored names the declaration that it comes from: whatever a user corrects in it, answers are those of a
warehouse that never knew another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, Type, Workload
from spark_jobs.planning.publication import publish_plan
from spark_jobs.results.read import read
from spark_jobs.run.declarations import on_earlier_declarations
from spark_jobs.run.history import outdated
from spark_jobs.run.interval import run
from spark_jobs.warehouse.publish_log import RunRecord
from spark_jobs.warehouse.warehouse import Warehouse
from tests.chaos.orders import InProcess
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE

HOUR = 60 * MINUTE
LATER = DAY + 30 * 24 * HOUR

QUERIES = {
    "by_kind": "SELECT kind, count(*) AS n, max(id) AS last FROM events WINDOW RANGE '2 hours' SLIDE '1 hour' ON {time}"
    " GROUP BY kind",
    "filtered": "SELECT count(*) AS n FROM events WHERE CAST(x AS double) > 5 WINDOW RANGE '1 hour' SLIDE '1 hour'"
    " ON {time}",
    "extremes": "SELECT min(x) AS low, max(x) AS high, count(x) AS n FROM events WINDOW RANGE '3 hours' SLIDE '1 hour'"
    " ON {time}",
    "by_x": "SELECT x, count(*) AS n FROM events WINDOW RANGE '1 hour' SLIDE '1 hour' ON {time} GROUP BY x",
    "rows": "SELECT count(*) AS n, max(id) AS last FROM events WINDOW ROWS 4 SLIDE 2 ON {time}",
    "steps": "SELECT count(*) AS n FROM events PATTERN SEQ('A', 'B') ON kind WINDOW RANGE '2 hours' SLIDE '1 hour'"
    " ON {time}",
}

ARROW = pa.schema(
    [
        *(("at", pa.int64()), ("sent", pa.int64()), ("kind", pa.string())),
        *(("x", pa.string()), ("id", pa.int64()), ("y", pa.int64())),
    ]
)


@pytest.fixture(autouse=True)
def unaudited() -> Iterator[None]:
    with without_audit():
        yield


def events(first: int, many: int) -> list[dict[str, Any]]:
    """Events of some minutes: the second time lies hours before the first, texts are numbers and words for null."""
    return [
        {
            "at": DAY // 1_000_000 + 60 * (first + 7 * number),
            "sent": DAY // 1_000_000 + 60 * (first + 7 * number) - 5400 - 60 * (number % 50),
            "kind": "AB"[number * 5 % 3 % 2],
            "x": ["10", "9", "NA", "7.50", "", "7.5", "010"][number * 3 % 7],
            "id": (first + number) * 11 % 37,
            "y": number * 13 % 10,
        }
        for number in range(many)
    ]


TYPES: dict[str, Type] = {"at": TIMESTAMP, "sent": TIMESTAMP, "kind": STRING, "x": STRING, "id": LONG, "y": LONG}


@dataclass
class World:
    """Files of one stream, how it is declared now, and a warehouse that has seen everything before."""

    folder: Path
    format: str = "csv"
    schema: dict[str, Type] = field(default_factory=lambda: dict(TYPES))
    time: str = "at"
    event_id: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    files: int = 0

    def __post_init__(self) -> None:
        (self.folder / "events").mkdir(parents=True)
        self.warehouse = Warehouse.open(self.folder / "warehouse")
        self.fresh = 0

    @property
    def stream(self) -> Stream:
        options = {"time_unit": "s"} | self.options
        source = Source(self.format, str(self.folder / "events"), **options)
        types = {name: LONG if name in ("at", "sent") else type for name, type in self.schema.items()}
        types[self.time] = TIMESTAMP
        return Stream("events", source, tuple(types.items()), self.time, event_id=self.event_id)

    def write(self, many: int = 40) -> None:
        rows = pa.Table.from_pylist(events(100 * self.files, many), ARROW)
        path = self.folder / "events" / f"{self.files}.{self.format}"
        self.files += 1
        if self.format == "delta":
            write_deltalake(str(self.folder / "events"), rows, mode="append")
        elif self.format == "parquet":
            pq.write_table(rows, path)
        else:
            has_header = self.options.get("header", True)
            pcsv.write_csv(rows, path, pcsv.WriteOptions(include_header=has_header, quoting_style="none"))
        if self.format != "delta":
            os.utime(path, (0, (DAY + self.files * MINUTE) / 1e6))

    def planned(self, warehouse: Warehouse) -> int:
        texts = [f"-- name: {name}\n{text.format(time=self.time)};" for name, text in QUERIES.items()]
        found = parse("\n".join(texts), {"events": self.stream})
        workload = Workload(found.queries, (self.stream,))
        return publish_plan(warehouse, build_plan(workload, {"events": Fraction(1)}, "weave-share"))[0]

    def run(self, begin: int, end: int, warehouse: Warehouse | None = None, **options: Any) -> RunRecord:
        """Plan what is declared now, and publish some hours."""
        house = self.warehouse if warehouse is None else warehouse
        first, last = DAY + begin * HOUR, DAY + end * HOUR
        return run(InProcess(), house, self.planned(house), first, last, "run", as_of=LATER, **options)

    def repair(self) -> int:
        """How many intervals were published again."""
        version = self.planned(self.warehouse)
        found = outdated(self.warehouse, LATER)
        for one in found:
            run(InProcess(), self.warehouse, version, one.begin, one.end, f"repair {one.begin}", as_of=LATER)
        return len(found)

    def answers(self, house: Warehouse, begin: int, end: int) -> dict[str, list[str]]:
        found = {}
        for query in parse("\n".join(f"-- name: {n}\n{t.format(time=self.time)};" for n, t in QUERIES.items()),
                           {"events": self.stream}).queries:  # fmt: skip
            rows = read(house, query.name, DAY + begin * HOUR, DAY + end * HOUR).to_pylist()
            found[query.name] = sorted(map(str, rows))
        return found

    def expected(self, begin: int, end: int) -> dict[str, list[str]]:
        """The answers of a warehouse that knows nothing but what is declared now."""
        self.fresh += 1
        house = Warehouse.open(self.folder / f"fresh{self.fresh}")
        self.run(begin, end, house)
        return self.answers(house, begin, end)


def declare(world: World, step: str) -> None:
    """What a user corrects."""
    if step == "time":
        world.time = "sent" if world.time == "at" else "at"
    elif step == "type":
        world.schema["x"] = DOUBLE if world.schema["x"] == STRING else STRING
        if world.schema["x"] == DOUBLE:
            world.options["null"] = ("NA",)
    elif step == "null":
        world.options["null"] = ("NA", "9") if world.options.get("null") == ("NA",) else ("NA",)
    elif step == "order":
        names = list(world.schema)
        at, to = names.index("id"), names.index("y")
        names[at], names[to] = names[to], names[at]
        world.schema = {name: world.schema[name] for name in names}
    elif step == "event_id":
        world.event_id = "id" if world.event_id is None else None
    elif step == "unit":
        world.options["time_unit"] = "ms" if world.options.get("time_unit", "s") == "s" else "s"
    elif step == "unread":
        world.schema["y"] = DOUBLE if world.schema["y"] == LONG else LONG


STEPS = {
    "csv": ("time", "type", "null", "event_id", "unit", "unread"),
    "bare": ("time", "type", "null", "order", "event_id", "unread"),
    "parquet": ("time", "event_id", "unit"),
    "delta": ("time", "event_id", "unit"),
}


def world_of(folder: Path, kind: str) -> World:
    options: dict[str, Any] = {"header": False} if kind == "bare" else {}
    return World(folder, "csv" if kind == "bare" else kind, options=options)


@pytest.mark.parametrize("kind", list(STEPS))
@settings(max_examples=examples(2, 30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_after_any_correction_answers_are_those_of_a_fresh_warehouse(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    world = world_of(tmp_path_factory.mktemp("world"), kind)
    world.write()
    world.run(0, 4)
    world.run(4, 8)
    for step in data.draw(st.lists(st.sampled_from([*STEPS[kind], "write"]), min_size=1, max_size=3)):
        if step == "write":
            world.write(10)
        else:
            declare(world, step)
        if data.draw(st.booleans()):
            world.repair()
            pieces = [(0, 4), (4, 8)]
        else:
            pieces = [data.draw(st.sampled_from([(0, 4), (4, 8)]))]
            record = world.run(*pieces[0])
            others = [(one.begin, one.end) for one in on_earlier_declarations(world.warehouse)]
            assert (DAY + pieces[0][0] * HOUR, DAY + pieces[0][1] * HOUR) not in others
            told = [found["code"] for found in record.diagnostics]
            assert ("HDL-470" in told) == bool(others)
        for piece in pieces:
            assert world.answers(world.warehouse, *piece) == world.expected(*piece), (step, piece)
    world.repair()
    assert on_earlier_declarations(world.warehouse) == [] and outdated(world.warehouse, LATER) == []
    for piece in ((0, 4), (4, 8)):
        assert world.answers(world.warehouse, *piece) == world.expected(*piece)
