"""Projects whose declarations, files, settings and places change between commands, and their judge.

A project has many small streams. A :class:`Variation` changes one key of the declaration of one stream, or its files.
The judge is a differential test: the readers of the project see of each published interval what they would see in a
*fresh* warehouse that the same code fills from the same files, declarations and queries. Tasks run in this process.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from deltalake import write_deltalake

from optimizer.workload.instants import format_instant
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from tests.in_process import Clock, Said, heddle

MINUTE = 60_000_000
START = 1_372_716_000_000_000
"""2013-07-01T22:00:00Z: all minutes count from it."""

Interval = tuple[int, int]
"""[begin, end) of a run, in minutes."""

INTERVALS: tuple[Interval, ...] = ((0, 120), (120, 240), (240, 360))
NOW = 600
"""The minute of the first command: all windows of :data:`INTERVALS` are complete."""

Row = dict[str, Any]
Declaration = dict[str, Any]
"""A stream as ``streams.yaml`` declares it."""

COLUMNS = ("t1", "t2", "id1", "id2", "sym", "num", "k", "j", "extra")
"""The columns of all files: two times, two ids, a text with quotes and ``NA`` among its values, a text with numbers,
and three integers."""

QUERIES = {
    "range": "SELECT sym, count(*) AS n, count(k) AS c, sum(CAST(k AS long)) AS total, max(num) AS high FROM {stream} "
    "WINDOW RANGE '1 hour' SLIDE '30 minutes' ON {time} GROUP BY sym",
    "filter": "SELECT count(*) AS n, max(k) AS high FROM {stream} WINDOW RANGE '90 minutes' SLIDE '30 minutes' ON "
    "{time} WHERE CAST(num AS double) > 9 OR k IS NULL",
    "rows": "SELECT count(*) AS n, max(k) AS high, count(num) AS c FROM {stream} WINDOW ROWS 3 SLIDE 2 ON {time}",
    "sequence": "SELECT count(*) AS found FROM {stream} PATTERN SEQ(a, b) ON sym "
    "WINDOW RANGE '1 hour' SLIDE '1 hour' ON {time}",
    "bound": "SELECT sym, count(k) AS c FROM {stream} "
    "WINDOW RANGE '1 hour' SLIDE AT MOST '1 hour' ON {time} GROUP BY sym",
    "calendar": "SELECT count(*) AS n, max(num) AS high FROM {stream} "
    "WINDOW CUMULATE '1 day' STEP '1 hour' IN 'Europe/Berlin' ON {time}",
}
"""One query of each kind of window. They are valid whatever types a variation declares."""


def rows(minutes: Iterable[int]) -> list[Row]:
    """Events whose two times are 45 minutes apart. Each id comes twice."""
    return [
        {
            "t1": at,
            "t2": at + 45,
            "id1": at // 20,
            "id2": at // 30,
            "sym": ("a", "b", "NA", "'a'")[at // 10 % 4],
            "num": ("1.5", "10", "9.25", "2")[at // 10 % 4],
            "k": at // 10 % 7,
            "j": at // 10 % 5 + 20,
            "extra": at,
        }
        for at in minutes
    ]


# ------------------------------------------------------------------------------------------------ files
def iso(minute: int) -> str:
    return format_instant(START + minute * MINUTE).removesuffix("Z")


def day_first(minute: int) -> str:
    """A day as ``%d/%m``, of every second event as ``%m/%d``: read in the wrong order it is half a year away."""
    at = iso(minute)
    year, month, day = at[:4], at[5:7], at[8:10]
    first, second = (day, month) if minute // 10 % 2 else (month, day)
    return f"{first}/{second}/{year} {at[11:16]}"


def csv_text(events: Sequence[Row], header: bool, time: Callable[[int], Any], delimiter: str = ",") -> str:
    lines = [delimiter.join(COLUMNS)] if header else []
    for row in events:
        values = [time(row[name]) if name in ("t1", "t2") else row[name] for name in COLUMNS]
        lines.append(delimiter.join(str(value) for value in values))
    return "\n".join(lines) + "\n"


def write_csv(folder: Path, file: str, events: Sequence[Row], **options: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file}.csv").write_text(csv_text(events, **({"header": True, "time": iso} | options)))


def arrow(events: Sequence[Row], digits: int = 6) -> pa.Table:
    """The events as Parquet and Delta have them: ``t2`` counts milliseconds, ``num`` is a decimal."""
    instants = [[START + row[name] * MINUTE for row in events] for name in ("t1", "t2")]
    columns: dict[str, pa.Array] = {
        "t1": pa.array(instants[0], pa.timestamp("us", "UTC")),
        "t2": pa.array(instants[1], pa.timestamp("us", "UTC")),
        "ms": pa.array([at // 1000 for at in instants[0]], pa.int64()),
        "num": pa.array([Decimal(row["num"]) for row in events], pa.decimal128(digits, 2)),
    }
    columns |= {name: pa.array([row[name] for row in events], pa.int64()) for name in ("id1", "id2", "k", "j", "extra")}
    columns["sym"] = pa.array([row["sym"] for row in events])
    return pa.table(columns)


def arrow_of_texts(events: Sequence[Row]) -> pa.Table:
    """The events as streams of texts are declared first."""
    table = arrow(events)
    return table.set_column(table.schema.get_field_index("num"), "num", pa.array([row["num"] for row in events]))


def write_parquet(folder: Path, file: str, events: Sequence[Row], digits: int = 6) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow(events, digits), folder / f"{file}.parquet")


def write_delta(folder: Path, file: str, events: Sequence[Row]) -> None:
    write_deltalake(folder, arrow(events), mode="append")


def write_both(folder: Path, file: str, events: Sequence[Row]) -> None:
    """Each file as CSV and as Parquet, which has other values."""
    write_csv(folder, file, events)
    write_parquet(folder, file, [row | {"k": row["k"] + 100} for row in events])


# ------------------------------------------------------------------------------------------ kinds of streams
@dataclass(frozen=True)
class Kind:
    """Streams of one format: their declaration without ``path``, how a file is written, and their kinds of queries."""

    declaration: Declaration
    write: Callable[[Path, str, Sequence[Row]], None]
    queries: tuple[str, ...] = ("range",)


TYPES = {"t1": "timestamp", "t2": "timestamp", "id1": "long", "id2": "long", "sym": "string", "num": "string"}
TYPES |= dict.fromkeys(("k", "j", "extra"), "long")

KINDS: dict[str, Kind] = {
    "headed": Kind({"source": {"format": "csv"}, "schema": TYPES, "time": "t1"}, write_csv, ("range", "filter")),
    "headless": Kind(
        {"source": {"format": "csv", "header": False, "delimiter": ";"}, "schema": TYPES, "time": "t1"},
        lambda folder, file, events: write_csv(folder, file, events, header=False, delimiter=";"),
        ("range",),
    ),
    "stamped": Kind(
        {"source": {"format": "csv", "timestamp_format": "%d/%m/%Y %H:%M"}, "schema": TYPES, "time": "t1"},
        lambda folder, file, events: write_csv(folder, file, events, time=day_first),
        ("range",),
    ),
    "counted": Kind(
        {
            "source": {"format": "csv", "time_unit": "s"},
            "schema": TYPES | {"t1": "long", "t2": "long"},
            "time": "t1",
        },
        lambda folder, file, events: write_csv(
            folder, file, events, time=lambda minute: (START + minute * MINUTE) // 1_000_000
        ),
    ),
    "parquet": Kind({"source": {"format": "parquet"}, "time": "t1"}, write_parquet, ("range",)),
    "delta": Kind({"source": {"format": "delta"}, "time": "t1"}, write_delta, ("range",)),
    "both": Kind({"source": {"format": "csv"}, "schema": TYPES, "time": "t1"}, write_both, ("range",)),
}


@dataclass
class Stream:
    """A stream of a project: its first name, which its queries have; its name now, how it is declared now, and where
    its files are, relative to the project."""

    first_name: str
    name: str
    kind: str
    declaration: Declaration
    folder: str
    queries: tuple[str, ...]

    def reset(self) -> None:
        """Declare it as at first. Files stay as they are."""
        self.name, self.declaration = self.first_name, copy.deepcopy(KINDS[self.kind].declaration)

    @property
    def declared(self) -> Declaration:
        declaration = copy.deepcopy(self.declaration)
        declaration["source"].setdefault("path", self.folder)
        return declaration

    def query_texts(self) -> str:
        time = self.declaration["time"]
        return "".join(
            f"-- name: {self.first_name}_{kind}\n{QUERIES[kind].format(stream=self.name, time=time)};\n"
            for kind in self.queries
        )


# ------------------------------------------------------------------------------------------------ variations
Change = Callable[["Project", Stream], None]


@dataclass(frozen=True)
class Variation:
    """A change of one stream between two commands. It starts from the declaration of its kind.

    Parameters
    ----------
    key
        The key of ``streams.yaml`` that it changes, those of a source as ``source.…``; or what else it changes.
    kind
        The kind of stream that it applies to.
    change
        Changes the project.
    is_unread
        No query reads what it changes: nothing is read again.
    is_quick
        Whether `make test` plays it: the others change a key that another variation changes too.
    """

    key: str
    kind: str
    change: Change = field(repr=False)
    about: str = ""
    is_unread: bool = False
    is_quick: bool = True

    @property
    def is_declared(self) -> bool:
        """Whether it changes how the same events are read, not where or which they are."""
        return self.key not in ("files", "source.path", "stream")

    def __str__(self) -> str:
        return f"{self.kind}: {self.key} {self.about}".rstrip()


def setting(key: str, value: Any) -> Change:
    """Set a key of the declaration, ``source.…`` of its source; None: it has none."""

    def change(project: Project, stream: Stream) -> None:
        place = stream.declaration["source"] if key.startswith("source.") else stream.declaration
        name = key.removeprefix("source.")
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value

    return change


def schema(**types: str | None) -> Change:
    """Declare columns with other types; None: not at all."""

    def change(project: Project, stream: Stream) -> None:
        declared = dict(stream.declaration.get("schema") or TYPES) | types
        stream.declaration["schema"] = {name: type for name, type in declared.items() if type is not None}

    return change


def ordered(*pairs: tuple[str, str]) -> Change:
    """Declare columns in each other's place, with their types."""

    def change(project: Project, stream: Stream) -> None:
        names = list(stream.declaration["schema"])
        for column, other in pairs:
            first, second = names.index(column), names.index(other)
            names[first], names[second] = other, column
        stream.declaration["schema"] = {name: stream.declaration["schema"][name] for name in names}

    return change


def both(*changes: Change) -> Change:
    def change(project: Project, stream: Stream) -> None:
        for each in changes:
            each(project, stream)

    return change


def renamed(project: Project, stream: Stream) -> None:
    """The stream has another name, and its queries keep theirs."""
    stream.name = f"{stream.name}_renamed"


def elsewhere(project: Project, stream: Stream) -> None:
    """The same files lie in another folder."""
    old = stream.folder
    stream.folder = f"data/copy_{project.clock.now}_{stream.first_name}"
    shutil.copytree(project.root / old, project.root / stream.folder, copy_function=shutil.copy2)


def other_files(project: Project, stream: Stream) -> None:
    """Another folder with other files of the same names."""
    stream.folder = f"data/other_{project.clock.now}_{stream.first_name}"
    for file, events in FILES.items():
        KINDS[stream.kind].write(project.root / stream.folder, file, [row | {"k": row["k"] + 1} for row in events])
    project.touch(stream)


def _of_same_size(project: Project, stream: Stream, one: str, other: str) -> tuple[Path, str]:
    """A CSV file, and its text with the values ``one`` and ``other``, which are as long, in each other's place."""
    file = min((project.root / stream.folder).glob("*.csv"))
    swapped = {one: other, other: one}
    pattern = rf"(?<=,)({re.escape(one)}|{re.escape(other)})(?=,)"
    text = re.sub(pattern, lambda match: swapped[match[0]], file.read_text())
    assert text != file.read_text() and len(text) == file.stat().st_size
    return file, text


def same_size(project: Project, stream: Stream) -> None:
    """A file has other bytes under its size and time of modification."""
    file, text = _of_same_size(project, stream, "10", "80")
    old = file.stat()
    file.write_text(text)
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))


def same_size_anew(project: Project, stream: Stream) -> None:
    """As :func:`same_size`, by a new file that takes the place of the old."""
    file, text = _of_same_size(project, stream, "9.25", "8.75")
    old, new = file.stat(), file.with_name("_new")
    new.write_text(text)
    os.utime(new, ns=(old.st_atime_ns, old.st_mtime_ns))
    new.replace(file)


def touched(project: Project, stream: Stream) -> None:
    """The files have other times and the same bytes."""
    for file in (project.root / stream.folder).glob("*.*"):
        if file.is_file():
            os.utime(file, ns=(project.clock.now * 1000,) * 2)


def late(project: Project, stream: Stream) -> None:
    KINDS[stream.kind].write(project.root / stream.folder, f"late{project.clock.now}", rows([33, 155]))
    project.touch(stream)


def gone(project: Project, stream: Stream) -> None:
    files = sorted((project.root / stream.folder).glob("*.*"))
    if len(files) > 1:
        files[-1].unlink()


def widened(project: Project, stream: Stream) -> None:
    """A later file has a decimal with more digits, which nobody declared."""
    write_parquet(project.root / stream.folder, f"wide{project.clock.now}", rows([200, 205]), digits=12)
    project.touch(stream)


def recreated(project: Project, stream: Stream) -> None:
    """The Delta table is made again: other events in files of the same names."""
    folder = project.root / stream.folder
    names = sorted(path.name for path in folder.glob("*.parquet"))
    more = project.clock.now % 97
    shutil.rmtree(folder)
    for file, events in FILES.items():
        write_delta(folder, file, [row | {"k": row["k"] + more} for row in events])
    for old, new in zip(names, sorted(path.name for path in folder.glob("*.parquet")), strict=False):
        (folder / new).rename(folder / old)
        for log in folder.glob("_delta_log/*.json"):
            log.write_text(log.read_text().replace(new, old))
    project.touch(stream)


VARIATIONS: tuple[Variation, ...] = (
    # ---- CSV with a header
    Variation("time", "headed", setting("time", "t2")),
    Variation("schema", "headed", schema(num="double"), "string to double"),
    Variation("schema", "headed", schema(k="int"), "long to int", is_quick=False),
    Variation("schema", "headed", schema(k="string"), "long to string"),
    Variation("schema", "headed", schema(num="decimal(8,2)"), "string to decimal", is_quick=False),
    Variation("event_id", "headed", setting("event_id", "id1"), "none to id1"),
    Variation(
        "event_id", "headed", both(setting("event_id", "id2"), schema(id2="string")), "and its type", is_quick=False
    ),
    Variation("source.null", "headed", setting("source.null", ["NA", "2"])),
    Variation("source.quote", "headed", setting("source.quote", "'")),
    Variation("source.header", "headed", setting("source.header", False)),
    Variation("source.delimiter", "headed", setting("source.delimiter", ";")),
    Variation("source.files", "headed", setting("source.files", "*.csv"), is_unread=True),
    Variation("source.path", "headed", elsewhere, "to a copy"),
    Variation("source.path", "headed", other_files, "to other files"),
    Variation("lateness", "headed", setting("lateness", "20 minutes")),
    Variation("allowed_lateness", "headed", setting("allowed_lateness", "1 hour")),
    Variation("step", "headed", setting("step", "30 minutes")),
    Variation("stream", "headed", renamed, "renamed"),
    Variation("files", "headed", same_size, "same size and time, other bytes"),
    Variation("files", "headed", same_size_anew, "replaced with the same size and time"),
    Variation("files", "headed", touched, "with other times", is_unread=True),
    Variation("files", "headed", late, "late"),
    Variation("files", "headed", gone, "gone", is_quick=False),
    Variation("schema", "headed", schema(extra="string"), "unread column retyped", is_unread=True),
    Variation("schema", "headed", ordered(("extra", "t1")), "columns in another order", is_unread=True),
    Variation("schema", "headed", schema(j=None), "unread column dropped", is_unread=True, is_quick=False),
    # ---- CSV without a header
    Variation("schema", "headless", ordered(("k", "j")), "columns in another order"),
    Variation("schema", "headless", ordered(("t1", "t2")), "times in another order"),
    Variation("schema", "headless", ordered(("id1", "extra")), "unread columns in another order", is_unread=True),
    Variation("schema", "headless", schema(extra="double"), "unread column retyped", is_unread=True),
    Variation("source.delimiter", "headless", setting("source.delimiter", "|"), is_quick=False),
    Variation("source.header", "headless", setting("source.header", True), is_quick=False),
    Variation("source.null", "headless", setting("source.null", ["NA"]), is_quick=False),
    Variation("source.quote", "headless", setting("source.quote", None), is_quick=False),
    Variation("time", "headless", setting("time", "t2"), is_quick=False),
    # ---- times
    Variation("source.timestamp_format", "stamped", setting("source.timestamp_format", "%m/%d/%Y %H:%M")),
    Variation(
        "source.timestamp_format", "stamped", setting("source.timestamp_format", None), "to none", is_quick=False
    ),
    Variation("time", "stamped", setting("time", "t2"), is_quick=False),
    Variation("source.time_unit", "counted", setting("source.time_unit", "ms")),
    Variation("time", "counted", setting("time", "t2"), is_quick=False),
    # ---- Parquet
    Variation("time", "parquet", setting("time", "t2")),
    Variation(
        "source.time_unit", "parquet", both(setting("time", "ms"), setting("source.time_unit", "us")), "and time"
    ),
    Variation("source.reader", "parquet", setting("source.reader", "direct"), is_unread=True),
    Variation("event_id", "parquet", setting("event_id", "id2")),
    Variation("files", "parquet", widened, "with a wider decimal"),
    Variation("files", "parquet", late, "late", is_quick=False),
    Variation("source.path", "parquet", elsewhere, "to a copy", is_quick=False),
    Variation("stream", "parquet", renamed, "renamed", is_quick=False),
    # ---- Delta
    Variation("time", "delta", setting("time", "t2")),
    Variation("files", "delta", recreated, "recreated under the same names"),
    Variation("files", "delta", late, "late", is_quick=False),
    Variation("source.path", "delta", elsewhere, "to a copy", is_quick=False),
    Variation("event_id", "delta", setting("event_id", "id1")),
    Variation("source.reader", "delta", setting("source.reader", "direct"), is_unread=True),
    # ---- formats
    Variation("source.format", "both", both(setting("source.format", "parquet"), setting("schema", None))),
)

NEED_A_JVM = {"source.options", "source.watermark", "source.since", "source.table"}
"""Keys of sources that only Spark, a database or a catalogue reads."""

NEED_OTHERS = {"source.zone", "source.records", "source.partitions", "levels", "expect"}
"""Keys of sources that need a database, JSON, or folders whose names are columns; and those of streams that change no
answer: ``tests/spark_jobs/windows/test_keep_fine.py`` and ``tests/spark_jobs/audit`` change them."""

FILES = {"first": rows(range(0, 180, 10)), "second": rows(range(180, 420, 10))}


# --------------------------------------------------------------------------------------------------- projects
@dataclass
class Project:
    """A project in a folder, with its streams, the clock of its commands, and the intervals that it has published.
    Streams that are ``spoiled``, by their first names, are not judged any more."""

    root: Path
    clock: Clock
    streams: list[Stream] = field(default_factory=list)
    published: list[Interval] = field(default_factory=list)
    warehouse: str = "warehouse"
    streams_file: str = "streams.yaml"
    queries_file: str = "queries.sql"
    spoiled: set[str] = field(default_factory=set)

    def add(self, name: str, kind: str, queries: tuple[str, ...] = ()) -> Stream:
        declared = copy.deepcopy(KINDS[kind].declaration)
        stream = Stream(name, name, kind, declared, f"data/{name}", queries or KINDS[kind].queries)
        for file, events in FILES.items():
            KINDS[kind].write(self.root / stream.folder, file, events)
        self.touch(stream)
        self.streams.append(stream)
        return stream

    def touch(self, stream: Stream) -> None:
        """Give new files the time of the clock."""
        for path in (self.root / stream.folder).rglob("*.*"):
            if path.is_file() and path.stat().st_mtime_ns > self.clock.now * 1000 + 1_000_000_000:
                os.utime(path, ns=(self.clock.now * 1000,) * 2)

    def write(self) -> None:
        """Write ``streams.yaml`` and the queries as they are declared now."""
        place = (self.root / self.streams_file).parent
        declared = {}
        for stream in self.streams:
            declared[stream.name] = stream.declared
            path = self.root / declared[stream.name]["source"]["path"]
            declared[stream.name]["source"]["path"] = os.path.relpath(path, place)
        for file, text in (
            (self.streams_file, yaml.safe_dump({"streams": declared}, sort_keys=False)),
            (self.queries_file, "".join(stream.query_texts() for stream in self.streams)),
        ):
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / file).write_text(text)

    # ---------------------------------------------------------------------------------------------- commands
    def command(self, name: str, *arguments: str, warehouse: str | None = None) -> tuple[Said, dict[str, Any]]:
        """Run a command in the folder of the project; what it printed, and its JSON."""
        before = Path.cwd()
        os.chdir(self.root)
        try:
            outcome = heddle(name, *arguments, "--warehouse", warehouse or self.warehouse, "--json")
        finally:
            os.chdir(before)
        assert "HDL-9" not in outcome.err, outcome.err
        return outcome, json.loads(outcome.out) if outcome.out.startswith("{") else {}

    def run(self, interval: Interval, *options: str, warehouse: str | None = None) -> dict[str, Any]:
        """``heddle run`` by the files as they are; the record of the run."""
        rates = [word for stream in self.streams for word in ("--rate", f"{stream.name}=1")]
        outcome, record = self.command(
            "run",
            *(self.queries_file, "--streams", self.streams_file, *rates, "--algorithm", "weave-share", *options),
            *("--from", iso(interval[0]), "--to", iso(interval[1])),
            warehouse=warehouse,
        )
        assert record, outcome
        if warehouse is None:
            self.publish(interval)
        return record

    def tick(self) -> Interval | None:
        """``heddle tick`` an hour after the end of what is published; the interval that it published."""
        last = max(end for _, end in self.published)
        _, record = self.command("tick", "--from", iso(last), "--at", iso(last + 60))
        if record.get("status") != "published":
            return None
        begin, end = ((parse_instant(record[name]) - START) // MINUTE for name in ("begin", "end"))
        self.publish((begin, end))
        return begin, end

    def declared_otherwise(self) -> set[tuple[int, str]]:
        """The intervals, by the minute in which they begin, that `heddle status` names as standing on an earlier
        declaration, with each of the streams."""
        intervals = self.command("status")[1].get("declared_otherwise", ())
        return {
            ((parse_instant(interval["begin"]) - START) // MINUTE, stream)
            for interval in intervals
            for stream in interval["streams"]
        }

    def release(self) -> None:
        """Take in what came later than is allowed: a fresh warehouse refuses nothing."""
        paths = [file["path"] for file in self.command("quarantine")[1]["refused"]]
        for path in paths:
            self.command("quarantine", "--release", path)
        if paths:
            self.command("repair")

    def publish(self, interval: Interval) -> None:
        if interval not in self.published:
            self.published.append(interval)

    def seen(self, warehouse: str | None = None) -> Seen:
        """What readers see of each query now."""
        house = Warehouse.open(self.root / (warehouse or self.warehouse), create=False)
        return Seen.of(house.table("results").to_pyarrow_table())

    def fresh(self) -> tuple[Seen, set[str]]:
        """What readers see of a new warehouse, and the streams that cannot be read."""
        shutil.rmtree(self.root / "fresh", ignore_errors=True)
        span = min(begin for begin, _ in self.published), max(end for _, end in self.published)
        record = self.run(span, warehouse="fresh")
        return self.seen("fresh"), set(record["failed"])

    # ------------------------------------------------------------------------------------------------ places
    def moved(self) -> None:
        """The folder of the project is renamed."""
        self.root = self.root.rename(self.root.with_name(f"renamed_{self.clock.now}"))

    def copied(self, with_times: bool) -> Project:
        """A copy of the project in another folder, as ``cp -a`` or ``cp -r`` makes it; the project is the copy now.
        Returns the original."""
        original = replace(self, streams=copy.deepcopy(self.streams), published=list(self.published))
        self.root = self.root.with_name(f"copy_{self.clock.now}")
        shutil.copytree(original.root, self.root, copy_function=shutil.copy2 if with_times else shutil.copy)
        if not with_times:
            for stream in self.streams:
                self.touch(stream)
        return original


Answer = tuple[Any, ...]


@dataclass(frozen=True)
class Seen:
    """Answers of a results table: by query and instant (minutes) the rows without what names their run."""

    rows: Mapping[str, Mapping[float, tuple[Answer, ...]]]

    @classmethod
    def of(cls, table: pa.Table) -> Seen:
        answers_by_query: dict[str, dict[float, list[Answer]]] = {}
        columns = ("position", "key", "longs", "doubles", "texts", "error")
        begins, ends, instants = (
            [(at - START) / MINUTE for at in table[name].cast(pa.int64()).to_pylist()]
            for name in ("window_start", "window_end", "instant")
        )
        values = [table[name].to_pylist() for name in columns]
        for query, at, *row in zip(table["query"].to_pylist(), instants, begins, ends, *values, strict=True):
            answer = tuple(tuple(value or ()) if isinstance(value, list) or value is None else value for value in row)
            answers_by_query.setdefault(query, {}).setdefault(at, []).append(answer)
        return cls(
            {
                query: {at: tuple(sorted(answers, key=repr)) for at, answers in instants.items()}
                for query, instants in answers_by_query.items()
            }
        )

    def within(self, query: str, interval: Interval) -> dict[float, tuple[Answer, ...]]:
        instants = self.rows.get(query, {})
        return {at: answers for at, answers in instants.items() if interval[0] < at <= interval[1]}


def differences(project: Project, old: Seen, fresh: Seen, failed: set[str], interval: Interval) -> dict[str, str]:
    """Of each stream whose answers in an interval are not the fresh ones: the first difference."""
    differing = {}
    for stream in project.streams:
        if stream.name in failed or stream.first_name in project.spoiled:
            continue
        for kind in stream.queries:
            name = f"{stream.first_name}_{kind}"
            actual, expected = old.within(name, interval), fresh.within(name, interval)
            if kind == "bound":
                # a tick stands for all refreshes since the last
                expected = {at: answers for at, answers in expected.items() if at in actual}
            if actual != expected:
                at = min(at for at in actual.keys() | expected.keys() if actual.get(at) != expected.get(at))
                differing[stream.first_name] = f"{name} at minute {at:g}: {actual.get(at)} is not {expected.get(at)}"
    return differing


# --------------------------------------------------------------------------------------------------- settings
Set = Callable[[Project], Mapping[str, str]]
"""Changes a project; returns the variables of the environment that have to be set."""


def moved_warehouse(project: Project) -> Mapping[str, str]:
    (project.root / project.warehouse).rename(project.root / "house")
    project.warehouse = "house"
    return {}


def moved_streams(project: Project) -> Mapping[str, str]:
    project.streams_file = "conf/declared/streams.yml"
    project.write()
    return {}


def moved_queries(project: Project) -> Mapping[str, str]:
    project.queries_file = "sql/all.sql"
    project.write()
    return {}


def variable(name: str, value: str) -> Set:
    """``{root}`` in a value is the folder of the project."""
    return lambda project: {name: value.format(root=project.root)}


SETTINGS: dict[str, Set] = {
    "home": variable("HEDDLE_HOME", "{root}"),
    "warehouse": moved_warehouse,
    "streams": moved_streams,
    "workload": moved_queries,
    "source_roots": variable("HEDDLE_SOURCES", "{root}"),
    "copies": variable("HEDDLE_COPIES", "{root}/copies"),
    "owner": variable("HEDDLE_OWNER", "desk"),
    "owner_quota": variable("HEDDLE_OWNER_QUOTA", "500"),
    "tables_of_owners": variable("HEDDLE_TABLES_OF_OWNERS", "nobody"),
    "notify": variable("HEDDLE_NOTIFY", "https://alerts.example/hook"),
    "owners": variable("HEDDLE_OWNERS", "desk=#desk"),
    "openlineage": variable("HEDDLE_OPENLINEAGE", "off"),
    "serve_memory": variable("HEDDLE_SERVE_MEMORY", "64m"),
    "serve_token": variable("HEDDLE_SERVE_TOKEN", "0123456789abcdef"),
    "serve_token_file": variable("HEDDLE_SERVE_TOKEN_FILE", "{root}/token"),
    "spark_master": variable("HEDDLE_SPARK_MASTER", "local[1]"),
    "spark_code": variable("HEDDLE_SPARK_CODE", "archive"),
    "engine": variable("HEDDLE_ENGINE", "local"),
    "event_log": variable("HEDDLE_EVENT_LOG", "none"),
    "spark_history": variable("HEDDLE_SPARK_HISTORY", "http://127.0.0.1:18080"),
    "local_events": variable("HEDDLE_LOCAL_EVENTS", "1000000"),
    "dimension_days": variable("HEDDLE_DIMENSION_DAYS", "400"),
    "in_process": variable("HEDDLE_IN_PROCESS", "1000000"),
    "driver_memory": variable("HEDDLE_DRIVER_MEMORY", "1g"),
    "task_memory": variable("HEDDLE_TASK_MEMORY", "64m"),
    "jars": variable("HEDDLE_JARS", "{root}/jars"),
    "topics": variable("HEDDLE_TOPICS", "{root}/topics.toml"),
    "kafka_options": variable("HEDDLE_KAFKA_OPTIONS", "{root}/kafka.properties"),
    "session": variable("HEDDLE_SESSION", "1 hour"),
    "cpu_hour_price": variable("HEDDLE_CPU_HOUR_PRICE", "0.05 EUR"),
    "debug": variable("HEDDLE_DEBUG", "1"),
    "airflow_port": variable("HEDDLE_AIRFLOW_PORT", "8081"),
    "checks": variable("HEDDLE_CHECKS", "sample"),
    "TZ": variable("TZ", "America/New_York"),
    "LC_ALL": variable("LC_ALL", "de_DE.UTF-8"),
}
"""Settings by their fields, and variables of the environment: none of them changes an answer or an event that is
read."""

ELSEWHERE = {"spark_remote", "lease_dsn", "catalog_schema", "project"}
"""Settings that need a server, and the project, which is what all others are about."""
