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
from optimizer.workload.values import ACQ, DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, Type, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.declarations import on_earlier_declarations
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.orders import in_process
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
    names: list[str] = field(default_factory=lambda: list(QUERIES))
    place: Path | None = None

    def __post_init__(self) -> None:
        (self.folder / "events").mkdir(parents=True)
        self.warehouse = Warehouse.open(self.folder / "warehouse")
        self.fresh = 0

    @property
    def stream(self) -> Stream:
        options = {"time_unit": "s"} | self.options
        source = Source(self.format, str(self.place or self.folder / "events"), **options)
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

    def queries(self) -> tuple[ACQ, ...]:
        """Those that the declaration of now allows."""
        texts = [f"-- name: {name}\n{QUERIES[name].format(time=self.time)};" for name in self.names]
        return parse("\n".join(texts), {"events": self.stream}).queries

    def planned(self, warehouse: Warehouse) -> int:
        workload = Workload(self.queries(), (self.stream,))
        return publish_plan(warehouse, build_plan(workload, {"events": Fraction(1)}, "weave-share"))[0]

    def run(self, begin: int, end: int, warehouse: Warehouse | None = None, **options: Any) -> RunRecord:
        """Plan what is declared now, and publish some hours."""
        house = self.warehouse if warehouse is None else warehouse
        first, last = DAY + begin * HOUR, DAY + end * HOUR
        return run(in_process(), house, self.planned(house), first, last, "run", as_of=LATER, **options)

    def repair(self) -> int:
        """How many intervals were published again."""
        version = self.planned(self.warehouse)
        intervals = outdated(self.warehouse, LATER)
        for interval in intervals:
            run(
                in_process(),
                self.warehouse,
                version,
                interval.begin,
                interval.end,
                f"repair {interval.begin}",
                as_of=LATER,
            )
        return len(intervals)

    def answers(self, house: Warehouse, begin: int, end: int) -> dict[str, list[str]]:
        answer_lines = {}
        for query in self.queries():
            rows = read(house, query.name, DAY + begin * HOUR, DAY + end * HOUR).to_pylist()
            answer_lines[query.name] = sorted(map(str, rows))
        return answer_lines

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


def stored(world: World) -> int:
    """How many rows of partial aggregates were ever written."""
    return world.warehouse.version("partials")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_nobody_reads_changes_nothing(tmp_path: Path, kind: str) -> None:
    """Declared, retyped, moved or dropped: nothing is read, stored or outdated. Windows of rows read all columns."""
    world = World(tmp_path, kind, names=[name for name in QUERIES if name != "rows"])
    world.write()
    world.run(0, 4)
    before = stored(world)
    for types in ({"y": STRING if kind == "csv" else LONG}, {"z": DOUBLE}, {"y": None, "z": None}):
        if kind == "csv":
            types.pop("z", None)
        world.schema = {name: type for name, type in (world.schema | types).items() if type is not None}
        world.schema = dict(reversed(world.schema.items()))
        record = world.run(0, 4)
        assert (record.status, record.rows_scanned) == ("unchanged", 0)
        assert on_earlier_declarations(world.warehouse) == [] and outdated(world.warehouse, LATER) == []
    assert stored(world) == before


def test_recompute_trusts_nothing_that_is_stored(tmp_path: Path) -> None:
    """Partial aggregates, repetitions, row numbers and spans that are wrong, as damage or an error leaves them."""
    world = World(tmp_path, "csv", event_id="id")
    world.write()
    world.run(0, 4)
    expected_answers = world.expected(0, 4)
    house = world.warehouse
    partials = house.table("partials").to_pyarrow_table()
    wrong = [None if each is None else [7 * number for number in each] for each in partials["longs"].to_pylist()]
    numbers = [None if each is None else bytes(len(each)) for each in partials["numbers"].to_pylist()]
    for name, values in (("longs", wrong), ("numbers", numbers)):
        at = partials.schema.get_field_index(name)
        partials = partials.set_column(
            at, partials.schema.field(name), pa.array(values, partials.schema.field(name).type)
        )
    write_deltalake(house.table("partials"), partials, mode="overwrite", partition_by=["day"])
    for file in (house.root / "repeated").glob("*.parquet"):
        pq.write_table(pq.read_table(file).slice(0, 0), file)
    files = house.table("source_files").to_pyarrow_table()
    late = pa.array([LATER] * len(files), files.schema.field("begin").type)
    for name in ("begin", "end"):
        files = files.set_column(files.schema.get_field_index(name), files.schema.field(name), late)
    write_deltalake(house.table("source_files"), files, mode="overwrite")
    record = world.run(0, 4, recompute=True)
    assert (record.status, record.revision) == ("published", 2) and record.rows_scanned > 0
    assert world.answers(house, 0, 4) == expected_answers
    # and what it stored is right
    assert world.run(0, 4).status == "unchanged"
    world.run(0, 6)
    assert world.answers(house, 0, 6) == world.expected(0, 6)


def test_repair_goes_on_after_files_are_moved_and_changed(tmp_path: Path) -> None:
    """Copied without times, and one of them with other bytes of the same size: that one is another file."""
    world = World(tmp_path, "csv")
    world.write()
    world.write()
    world.run(0, 4)
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for file in (tmp_path / "events").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    world.place = copy
    assert world.run(0, 4).status == "unchanged"
    assert outdated(world.warehouse, LATER) == []
    assert world.warehouse.rows("sharing_plans", ["plan_version"])[-1]["plan_version"] == 1
    text = (copy / "0.csv").read_text()
    (copy / "0.csv").write_text(text.replace(",A,", ",B,", 1))
    assert len((copy / "0.csv").read_text()) == len(text)
    (interval,) = outdated(world.warehouse, LATER)
    assert interval.radius.files == 2
    assert world.run(0, 4).status == "published"
    assert world.answers(world.warehouse, 0, 4) == world.expected(0, 4)


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
            earlier_spans = [(interval.begin, interval.end) for interval in on_earlier_declarations(world.warehouse)]
            assert (DAY + pieces[0][0] * HOUR, DAY + pieces[0][1] * HOUR) not in earlier_spans
            codes = [diagnostic["code"] for diagnostic in record.diagnostics]
            assert ("HDL-470" in codes) == bool(earlier_spans)
        for piece in pieces:
            assert world.answers(world.warehouse, *piece) == world.expected(*piece), (step, piece)
    world.repair()
    assert on_earlier_declarations(world.warehouse) == [] and outdated(world.warehouse, LATER) == []
    for piece in ((0, 4), (4, 8)):
        assert world.answers(world.warehouse, *piece) == world.expected(*piece)
