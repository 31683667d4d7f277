"""Steady live runs under faults, for as long as is asked: do memory, files and run time stay where they are?

    python -m tests.soak.soak --minutes 20 --seed 1                (make soak SOAK=20)
    python -m tests.soak.soak --days 365 --hours 24 --seed 1       (make soak SOAK_DAYS=365 SOAK_HOURS=24)

Two streams grow by files, data time going many times faster than the clock; ``heddle tick`` answers what is due, in a
process of its own each time. Every 30 seconds something happens, drawn from the seed: a tick is killed at some moment,
events come late, a file is there half, the plan is refreshed with other queries or queries are paused or resumed while
a run goes on, maintenance runs beside it. At checkpoints `heddle repair` publishes again what came late, maintenance
removes what nothing refers to, and the judge, which shares nothing with the pipeline but the language, compares all
that is published with DuckDB over the events: of every interval by the plan that published it, of paused queries by the
events of the time.

The warehouse keeps logs and files for a minute here instead of days, so that a plateau has the time to show. What is
kept for ever by intent (answers, the history of runs) is measured per answer and per run; there is as much data at the
start as partial aggregates are kept for. A quantity *grows* if the median of its last quarter of samples is above that
of the quarter before the middle by more than its slack; too few samples say nothing (exit code 2).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.planning.changes import pause_or_resume
from spark_jobs.pipeline.planning.live_runs import frontier
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.schemas import TABLES, micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests import oracle
from tests.spark_jobs.laboratory import DAY as START
from tests.spark_jobs.laboratory import MINUTE, Event, table_of

ROOT = Path(__file__).resolve().parents[2]
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
STEP = 3 * HOUR
"""Data time between two ticks, if not another is given."""
LATENESS = 10 * MINUTE
KEPT = DAY
"""Partial aggregates are kept so long beyond the longest window."""
FULL = KEPT + DAY
"""Data time that is there at the start: as much as is ever kept, no window is longer than a day."""
FAULT_EVERY = 30.0
CHECK_EVERY = 60.0
JUDGED = 4.0
"""Checks, which compare all that was ever published, begin so many times later than the one before took, at least."""
MINUTES_LOG = 100.0
"""Log files that the runs of a minute write."""
PATIENCE = 600.0
"""Seconds that a child process may take."""

DENSITY = {"trades": 30, "quotes": 90}
"""Seconds between two events of a stream."""
STREAM = """
  {0}:
    source: {{format: parquet, path: {0}}}
    schema: {{ts: timestamp, symbol: string, price: double, volume: long}}
    time: ts
    lateness: 10 minutes
    step: 1 hour
"""
QUERIES = {
    "by_symbol": "SELECT symbol, count(*) AS n, sum(volume) AS total, avg(price) AS mean, max(price) AS high "
    "FROM trades WINDOW RANGE '{0} minutes' SLIDE '30 minutes' ON ts GROUP BY symbol",
    "busy": "SELECT count(*) AS n, min(price) AS low FROM trades "
    "WINDOW RANGE '{1} minutes' SLIDE '1 hour' ON ts WHERE volume > 5",
    "spread": "SELECT stddev(price) AS spread, median(price) AS middle FROM trades "
    "WINDOW RANGE '6 hours' SLIDE '1 hour' ON ts",
    "watch": "SELECT symbol, sum(volume) AS total FROM trades "
    "WINDOW RANGE '6 hours' SLIDE AT MOST '3 hours' ON ts GROUP BY symbol",
    "watch_day": "SELECT count(*) AS n, sum(volume) AS total FROM trades "
    "WINDOW RANGE '24 hours' SLIDE AT MOST '9 hours' ON ts",
    "quoted": "SELECT symbol, count(*) AS n, last(price) AS newest FROM quotes "
    "WINDOW RANGE '{2} minutes' SLIDE '45 minutes' ON ts GROUP BY symbol",
    "symbols": "SELECT count(DISTINCT symbol) AS symbols, bit_or(volume) AS bits FROM quotes "
    "WINDOW RANGE '4 hours' SLIDE '2 hours' ON ts",
    "extra": "SELECT max(volume) AS most FROM quotes WINDOW RANGE '100 minutes' SLIDE '20 minutes' ON ts",
}
RANGES = ((90, 120, 150), (180, 200), (60, 75, 90))
NEVER_PAUSED = "spread"


@dataclass
class Tick:
    """A child process that did its work: most resident memory of its Python driver and of its JVM (MiB), seconds."""

    driver: float
    jvm: float
    wall: float
    cpu: float


@dataclass
class Checkpoint:
    """What the warehouse holds after maintenance; of its logs, of what was there before that."""

    minutes: float
    ticks: int
    faults: int
    days: float
    runs: int
    files: dict[str, int]
    kilobytes: dict[str, float]
    log_files: int
    log_kilobytes: float
    answers: int


@dataclass
class Piece:
    """Answers of a query for (begin, end] by a plan version, published at some time (microseconds of the clock);
    ``frozen`` once the interval was published again without the query, which was paused or is registered no more:
    what was published stays. ``failed``: its stream could not be read, so nothing was."""

    begin: int
    end: int
    version: int
    at: int
    frozen: bool = False
    failed: bool = False


@dataclass
class Soak:
    place: Path
    seed: int
    tell: Callable[[str], None] = print
    step: int = STEP
    chance: random.Random = field(init=False)
    data: dict[str, list[Event]] = field(default_factory=lambda: {name: [] for name in DENSITY})
    sizes: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    ticks: list[Tick] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    deck: list[str] = field(default_factory=list)
    steps: int = 0
    files: int = 0
    choice: tuple[int, ...] = (90, 180, 60)
    with_extra: bool = False
    judged: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for name in DENSITY:
            (self.place / name).mkdir()
        (self.place / "streams.yaml").write_text("streams:" + "".join(STREAM.format(name) for name in DENSITY))
        for _ in range(FULL // self.step):
            self.grow()
        self.refresh()
        self.warehouse = Warehouse.open(self.place / "warehouse", create=False)
        for name in TABLES:
            keep = {"delta.logRetentionDuration": "interval 1 minutes"}
            DeltaTable(self.warehouse.path(name)).alter.set_table_properties(keep)

    # ------------------------------------------------------------------------------------------ the world
    @property
    def clock(self) -> int:
        return START + self.steps * self.step + LATENESS

    def grow(self) -> None:
        """The next hours of both streams come in."""
        begin = self.steps * self.step // MINUTE
        self.steps += 1
        for name, seconds in DENSITY.items():
            times = [begin + number * seconds / 60 for number in range(self.step // MINUTE * 60 // seconds)]
            self.write(name, [self.event(at) for at in times])

    def event(self, minute: float) -> Event:
        return minute, self.chance.choice("ABC"), round(100 + self.chance.gauss(0, 5), 2), self.chance.randrange(100)

    def write(self, stream: str, events: list[Event], half: bool = False) -> Path:
        """A new file of a stream; ``half``: as it is while somebody still writes it."""
        self.files += 1
        path, complete = self.place / stream / f"{self.files:06}.parquet", self.place / "whole.parquet"
        pq.write_table(table_of(events), complete)
        if half:
            content = complete.read_bytes()
            path.write_bytes(content[: self.chance.randrange(1, len(content))])
        else:
            complete.rename(path)
            self.data[stream] += events
            self.sizes.append(
                (time.time_ns() // 1000, {name: len(stream_events) for name, stream_events in self.data.items()})
            )
        return path

    @property
    def names(self) -> list[str]:
        """Of the registered queries."""
        return [name for name in QUERIES if name != "extra" or self.with_extra]

    def refresh(self) -> None:
        text = "\n".join(f"-- name: {name}\n{QUERIES[name].format(*self.choice)};" for name in self.names)
        (self.place / "queries.sql").write_text(text)
        rates = {name: 1 / seconds for name, seconds in DENSITY.items()}
        files = [self.place / "queries.sql"]
        refresh_plan(self.place / "warehouse", files, self.place / "streams.yaml", rates=rates, algorithm="weave-share")

    # ---------------------------------------------------------------------------------------- child processes
    def child(
        self, *arguments: str, meanwhile: Callable[[], None] | None = None, kill_after: float | None = None
    ) -> tuple[int, Tick, str]:
        """Run a heddle command; do something while it runs, or kill it and all that it started."""
        environment = os.environ | {"HEDDLE_SPARK_MASTER": "local[2]", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "heddle.cli.app", *arguments, "--warehouse", str(self.place / "warehouse")]
        started, most = time.monotonic(), [0.0, 0.0]
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, start_new_session=True
            )
            moment = self.chance.uniform(0.0, self.usual) if meanwhile is not None else 0.0
            while process.poll() is None:
                spent = time.monotonic() - started
                if spent > min(PATIENCE, PATIENCE if kill_after is None else kill_after):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                elif meanwhile is not None and spent > moment:
                    meanwhile()
                    meanwhile = None
                else:
                    _sample(process.pid, most)
                    try:
                        process.wait(0.2)
                    except subprocess.TimeoutExpired:
                        continue
            out.seek(0)
            output = out.read().decode(errors="replace")
        if meanwhile is not None:
            meanwhile()
        wall = time.monotonic() - started
        if kill_after is None and wall > PATIENCE:
            raise AssertionError(f"{arguments} took longer than {PATIENCE:.0f} s\n{output}")
        return process.returncode, Tick(*most, wall, _cpu_of(output)), output

    @property
    def usual(self) -> float:
        """How long a tick takes."""
        return statistics.median([tick.wall for tick in self.ticks[-9:]] or [20.0])

    def tick(self, meanwhile: Callable[[], None] | None = None, kill_after: float | None = None) -> None:
        clock = ("--at", format_instant(self.clock), "--from", format_instant(START))
        code, measured, output = self.child("tick", *clock, "--json", meanwhile=meanwhile, kill_after=kill_after)
        if kill_after is None and code != 0:
            raise AssertionError(f"a tick failed with {code}:\n{output}")
        if code == 0 and measured.cpu and meanwhile is None:
            self.ticks.append(measured)

    # ------------------------------------------------------------------------------------------------ faults
    def fault(self) -> None:
        # as a deck of cards: each before any comes again
        self.deck = self.deck or self.chance.sample(FAULTS, len(FAULTS))
        name = self.deck.pop()
        self.faults[name] = self.faults.get(name, 0) + 1
        self.tell(f"  {name}")
        getattr(self, name)()

    def killed(self) -> None:
        self.tick(kill_after=self.chance.uniform(0.0, self.usual))
        self.tick()

    def late(self) -> None:
        """Into an interval that is published already."""
        minutes = self.steps * self.step // MINUTE
        at = sorted(self.chance.uniform(max(0, minutes - 2 * 1440), minutes - 200) for _ in range(3))
        self.write(self.chance.choice(sorted(DENSITY)), [self.event(round(minute, 3)) for minute in at if minute > 0])

    def half_written(self) -> None:
        """The stream cannot be read, the other one goes on; then the file is whole."""
        stream = self.chance.choice(sorted(DENSITY))
        minute = self.steps * self.step / MINUTE - self.chance.uniform(1, 170)
        events = [self.event(round(minute, 3))]
        half = self.write(stream, events, half=True)
        self.grow()
        clock = ("--at", format_instant(self.clock), "--json")
        code, _, output = self.child("tick", *clock)
        if "nothing due" not in output and (code != 1 or "HDL-4" not in output):
            raise AssertionError(f"half a file went by unseen: {code}\n{output}")
        half.unlink()
        self.write(stream, events)

    def refreshed(self) -> None:
        """Other windows, and a query that comes or goes, while a run goes on."""
        self.choice = tuple(self.chance.choice(ranges) for ranges in RANGES)
        self.with_extra = not self.with_extra
        self.paused &= set(self.names)
        self.grow()
        self.tick(meanwhile=self.refresh)

    def paused_or_resumed(self) -> None:
        """While a run goes on; what is resumed has its gap filled."""
        self.grow()
        if not self.paused:
            names = [name for name in self.names if name != NEVER_PAUSED]
            self.tick(meanwhile=lambda: self.change("paused", self.chance.sample(names, 2)))
            return
        self.tick(meanwhile=lambda: self.change("resumed", sorted(self.paused)))
        reached = frontier(self.warehouse) or self.clock
        span = ("--from", format_instant(reached - DAY // 2), "--to", format_instant(reached), "--every", "6 hours")
        code, _, output = self.child("backfill", *span, "--json")
        if code != 0:
            raise AssertionError(f"a backfill failed with {code}:\n{output}")

    def change(self, event: Any, names: Sequence[str]) -> None:
        pause_or_resume(self.warehouse, event, names)
        self.paused = self.paused | set(names) if event == "paused" else self.paused - set(names)

    def maintained(self) -> None:
        """Beside a run, with the retention that readers and runs need."""
        self.grow()
        self.tick(meanwhile=lambda: (maintain(self.warehouse, KEPT), None)[1])

    # ------------------------------------------------------------------------------------------------- the judge
    def pieces(self) -> dict[str, list[Piece]]:
        """What stands of each query, by what was logged as published: later publications over earlier ones."""
        pieces_by_query: dict[str, list[Piece]] = {}
        rows = [row for row in self.warehouse.rows("publish_log") if row["event"] == "published"]
        for row in sorted(rows, key=lambda row: row["table_version"]):
            begin, end, at = (micros(row[name]) for name in ("interval_start", "interval_end", "at"))
            queries = load_plan(self.warehouse, row["plan_version"]).workload.queries
            planned, failed = {query.name for query in queries}, json.loads(row["record"]).get("failed", [])
            unread = {query.name for query in queries if query.stream in failed}
            for name in planned | set(pieces_by_query):
                inside = [piece for piece in pieces_by_query.get(name, []) if piece.begin < end and piece.end > begin]
                remaining = [piece for piece in pieces_by_query.get(name, []) if piece not in inside]
                if name in unread and inside:
                    continue
                for piece in inside:
                    remaining += [replace(piece, end=begin)] * (piece.begin < begin)
                    remaining += [replace(piece, begin=end)] * (piece.end > end)
                    if name not in planned and not piece.failed:
                        overlap = max(begin, piece.begin), min(end, piece.end)
                        remaining.append(Piece(*overlap, piece.version, piece.at, True))
                new_piece = Piece(begin, end, row["plan_version"], at, failed=name in unread)
                pieces_by_query[name] = remaining + [new_piece] * (name in planned)
        return pieces_by_query

    def held(self, query: ACQ, piece: Piece) -> pa.Table:
        """The events that a piece is of."""
        events = self.data[query.stream]
        if piece.frozen:
            events = events[: max((size[query.stream] for at, size in self.sizes if at < piece.at), default=0)]
        return table_of(events)

    def wrong(self) -> list[str]:
        violations: list[str] = []
        for name, pieces in self.pieces().items():
            answers = read(self.warehouse, name)
            ends = answers["window_end"].cast("timestamp[us]").cast("int64")
            covered = pa.array([False] * len(answers))
            for piece in _joined(sorted(pieces, key=lambda piece: piece.begin)):
                query = load_plan(self.warehouse, piece.version).workload.query(name)
                inside = pc.and_(pc.greater(ends, piece.begin), pc.less_equal(ends, piece.end))
                answers_inside = answers.filter(inside)
                if query.window.at_most is not None:
                    # when is another question; what was answered then is asked here
                    instants = sorted(set(ends.filter(inside).to_pylist()))
                    violations += _gaps(query, instants, piece)
                    query = oracle.asked_at(query, instants)
                expected = oracle.answers(query, self.held(query, piece), "ts", piece.begin, piece.end)
                violations += [f"{name}: {line}" for line in oracle.compare(query, answers_inside, expected)]
                covered, self.judged = pc.or_(covered, inside), self.judged + len(answers_inside)
            strangers = len(answers) - (pc.sum(covered).as_py() or 0)
            violations += [f"{name}: {strangers} answers that nobody asked for"] * bool(strangers)
        return violations

    # ----------------------------------------------------------------------------------------------- checkpoints
    def logs(self) -> set[Path]:
        """The files of all logs."""
        return {path for name in TABLES for path in (Path(self.warehouse.path(name)) / "_delta_log").iterdir()}

    def check(self, started: float) -> None:
        earlier = self.logs()
        code, _, output = self.child("repair", "--json")
        if code != 0:
            raise AssertionError(f"a repair failed with {code}:\n{output}")
        # twice: files that the first one replaced are removed by the second
        for _ in range(2):
            maintain(self.warehouse, KEPT, retention=0)
        if wrong := self.wrong():
            raise AssertionError("\n".join([f"{len(wrong)} differences", *wrong[:10]]))
        files = {name: sorted(Path(self.warehouse.path(name)).rglob("*.parquet")) for name in TABLES}
        files = {name: [path for path in paths if "_delta_log" not in path.parts] for name, paths in files.items()}
        # what a check itself writes depends on how long ago the last was: the rarer, the more it repairs
        logs = self.logs() & earlier
        rows = self.warehouse.rows("publish_log", ["event"])
        self.checkpoints.append(
            Checkpoint(
                (time.monotonic() - started) / 60,
                len(self.ticks),
                sum(self.faults.values()),
                self.steps * self.step / DAY,
                sum(row["event"] == "published" for row in rows),
                {name: len(paths) for name, paths in files.items()},
                {name: sum(path.stat().st_size for path in paths) / 1024 for name, paths in files.items()},
                len(logs),
                sum(path.stat().st_size for path in logs) / 1024,
                self.warehouse.dataset("results").count_rows(),
            )
        )
        self.tell(_line(self.checkpoints[-1], self.ticks))

    def run(self, minutes: float, days: float = 0) -> list[str]:
        """Go on for so many minutes, or until there are so many days of data; what grew without bound. Raises
        AssertionError for a wrong answer or a failed command."""
        started = fault = check = time.monotonic()
        took = 0.0

        def is_over() -> bool:
            return self.steps * self.step >= days * DAY if days else time.monotonic() - started >= minutes * 60

        while not is_over():
            self.grow()
            self.tick()
            if time.monotonic() - fault >= min(FAULT_EVERY, minutes * 5):
                fault = time.monotonic()
                self.fault()
            if time.monotonic() - check >= max(CHECK_EVERY, JUDGED * took) or is_over():
                begun = time.monotonic()
                self.check(started)
                check = time.monotonic()
                took = check - begun
        return grown(self.ticks, self.checkpoints)


FAULTS = ("killed", "late", "half_written", "refreshed", "paused_or_resumed", "maintained")


def _sample(pid: int, most: list[float]) -> None:
    try:
        process = psutil.Process(pid)
        jvms = [child for child in process.children(recursive=True) if "java" in child.name()]
        for number, processes in enumerate([[process], jvms]):
            most[number] = max(most[number], sum(each.memory_info().rss for each in processes) / 2**20)
    except psutil.NoSuchProcess:
        pass


def _cpu_of(told: str) -> float:
    """CPU seconds of all stages of the run that a command printed as JSON; 0 if it printed none."""
    try:
        return float(sum(json.loads(told[told.index("{\n") :]).get("cpu_seconds", {}).values()))
    except (ValueError, AttributeError):
        return 0.0


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours of one plan and of all events as one."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        alike = last and (last.version, last.end, last.frozen, False) == (
            piece.version,
            piece.begin,
            False,
            piece.frozen,
        )
        if last and alike:
            joined[-1] = Piece(last.begin, piece.end, piece.version, piece.at)
        else:
            joined.append(piece)
    return joined


def _gaps(query: ACQ, instants: Sequence[int], piece: Piece) -> list[str]:
    """A piece that is longer than a refresh bound has an answer in it."""
    bound = query.window.at_most or 0
    if piece.end - piece.begin > bound and not instants:
        return [f"{query.name}: not refreshed in {format_instant(piece.begin)} .. {format_instant(piece.end)}"]
    return []


# --------------------------------------------------------------------------------------------------- plateaus
ENOUGH = 8
"""Samples, from which on something is said to grow or not."""


def growth(values: Sequence[float]) -> float | None:
    """The median of the last quarter of some samples over that of the quarter before the middle; None: too few."""
    if len(values) < ENOUGH:
        return None
    quarter = len(values) // 4
    before = statistics.median(values[len(values) // 2 - quarter : len(values) // 2])
    return statistics.median(values[-quarter:]) / before if before else None


def quantities(ticks: Sequence[Tick], checkpoints: Sequence[Checkpoint]) -> dict[str, tuple[list[float], float]]:
    """What must not grow: its samples, and by how much (1.2: 20 %) its medians may differ by chance."""
    states = ("partials", "sharing_plans", "workload_queries")
    samples_by_quantity: dict[str, tuple[list[float], float]] = {
        "driver MiB": ([tick.driver for tick in ticks], 1.15),
        "JVM MiB": ([tick.jvm for tick in ticks], 1.15),
        "run CPU s": ([tick.cpu for tick in ticks], 1.3),
        # as many as the runs of a minute may have written, which maintenance must not remove yet
        "log files": ([MINUTES_LOG + check.log_files for check in checkpoints], 1.4),
        "partials KiB": ([check.kilobytes["partials"] for check in checkpoints], 1.5),
        # plans have more and fewer queries: not per day
        "result B an answer": ([1024 * check.kilobytes["results"] / check.answers for check in checkpoints], 1.3),
        "files a day": ([sum(check.files.values()) / check.days for check in checkpoints], 1.3),
        "history KiB a run": (
            [sum(size for name, size in check.kilobytes.items() if name not in (*states, "results")) / check.runs
             for check in checkpoints],
            1.3,
        ),
    }  # fmt: skip
    return samples_by_quantity


def grown(ticks: Sequence[Tick], checkpoints: Sequence[Checkpoint]) -> list[str]:
    violations = []
    for name, (values, slack) in quantities(ticks, checkpoints).items():
        grew = growth(values)
        if grew is not None and grew > slack:
            violations.append(f"{name} grew by {grew - 1:.0%} in the second half, more than {slack - 1:.0%}")
    return violations


def _line(one: Checkpoint, ticks: Sequence[Tick]) -> str:
    last = ticks[-9:] or [Tick(0, 0, 0, 0)]
    medians = [statistics.median(getattr(tick, name) for tick in last) for name in ("driver", "jvm", "wall", "cpu")]
    return (
        f"{one.minutes:5.1f} min: {one.ticks} ticks, {one.faults} faults, {one.days:.1f} days, {one.runs} runs; "
        f"driver {medians[0]:.0f} MiB, JVM {medians[1]:.0f} MiB, {medians[2]:.1f} s, {medians[3]:.1f} CPU-s; "
        f"{sum(one.files.values())} files, {sum(one.kilobytes.values()):.0f} KiB, {one.log_files} log files of "
        f"{one.log_kilobytes:.0f} KiB"
    )


def summary(soak: Soak) -> Table:
    table = Table(title=f"{len(soak.ticks)} ticks, faults {soak.faults}, {soak.judged:,} answers judged")
    for name in ("", "first", "middle", "last", "growth", "permitted", "samples"):
        table.add_column(name, justify="right" if name else "left")
    for name, (values, slack) in quantities(soak.ticks, soak.checkpoints).items():
        if values:
            grew = growth(values)
            cells = [f"{values[at]:.1f}" for at in (0, len(values) // 2, -1)]
            table.add_row(
                name, *cells, "" if grew is None else f"{grew - 1:+.0%}", f"{slack - 1:+.0%}", str(len(values))
            )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="steady live runs under faults")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--days", type=float, default=0, help="of data, instead of minutes")
    parser.add_argument("--hours", type=int, default=STEP // HOUR, help="of data between two ticks")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    console = Console(width=150)
    with tempfile.TemporaryDirectory() as place:
        soak = Soak(Path(place), options.seed, lambda line: print(line, flush=True), options.hours * HOUR)
        try:
            violations = soak.run(options.minutes, options.days)
        finally:
            console.print(summary(soak))
    for line in violations:
        print(line, file=sys.stderr)
    fewest = min(len(values) for values, _ in quantities(soak.ticks, soak.checkpoints).values())
    if violations or fewest < ENOUGH:
        untold = f"too short to tell what grows: {fewest} samples, {ENOUGH} are needed"
        print(f"no answer was wrong; {'NOT a plateau' if violations else untold}", flush=True)
        return 1 if violations else 2
    print("no answer was wrong, nothing grew without bound", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
