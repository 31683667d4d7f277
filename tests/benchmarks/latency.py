"""How long a live session takes from a refresh's due moment to its answers: median and p99, beside the goals.

    python -m tests.benchmarks.latency [--refreshes N] [--period SECONDS] [--rate N] [--json FILE] [--profile]

98 queries of the regular benchmark over trades, at least one of which is refreshed every minute. The session is a
process of its own, whose clock goes faster than the wall's: a minute of it takes ``--period`` seconds. The file of a
minute's events is there a fifth of a period before its refresh is due (no lateness), so from the due moment on there is
nothing to wait for. *Latency* is in seconds of the wall: from when a refresh is due until the publication that answers
it, or that stands for it, is logged; readers see the answers a little sooner. Nothing is compressed in it.

Meanwhile, in turns, a file comes late into windows that are published, the plan changes, two queries are paused and
resumed, and the session is killed (SIGKILL) while it answers and followed by the next at once, which starts cold.
``--profile``: where the seconds of warm refreshes go, in this process, instead. Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import os
import pstats
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.plan import instants_due
from optimizer.workload.instants import format_instant
from optimizer.workload.values import SECOND
from tests.benchmarks.trades import DAY_START, OUTPUTS, REGULAR

SESSION = """
from spark_jobs.engine.light_imports import arrow_alone
arrow_alone()
from tests.benchmarks.latency import main
main()
"""
"""The process that is measured: it says how Arrow is to be loaded before anything loads it, as sessions do."""

ROOT = Path(__file__).resolve().parents[2]

GOALS = {"median": 2.0, "p99": 4.0}
"""Seconds."""

MINUTE = 60 * SECOND
BEGIN = DAY_START + 12 * 60 * MINUTE
"""When the clock starts; behind it lie as many events as the longest window covers."""

QUERIES = 98
EVERY = 12
"""Refreshes from one disturbance to the next."""

DISTURBANCES = ("late file", "plan changed", "paused", "killed", "resumed")

STREAMS = """
streams:
  trades:
    source: {format: parquet, path: trades}
    schema: {ts: timestamp, symbol: string, exchange: string, side: string, price: double, volume: long}
    time: ts
    step: 1 minute
"""


# ------------------------------------------------------------------------------------------- the warehouse
def texts(seed: int = 11) -> list[str]:
    """The queries: as the regular benchmark draws them; with a refresh bound where the range is whole minutes."""
    chance = random.Random(seed)
    drawn: dict[tuple[int, int, str], None] = {(600, 60, OUTPUTS[0]): None}
    while len(drawn) < QUERIES:
        slide = chance.choice(REGULAR.slides)
        drawn[REGULAR.range_of(chance, slide), slide, chance.choice(OUTPUTS)] = None
    return [
        f"-- name: q{number:02d}\nSELECT symbol, {outputs} FROM trades WINDOW RANGE '{range_} seconds' "
        f"SLIDE {'' if range_ % 60 else 'AT MOST '}'{slide} seconds' ON ts GROUP BY symbol;\n"
        for number, (range_, slide, outputs) in enumerate(drawn)
    ]


@dataclass
class Place:
    """A folder with the stream, its queries and the warehouse. ``rate``: events a minute."""

    folder: Path
    rate: int

    @property
    def house(self) -> Path:
        return self.folder / "warehouse"

    def events(self, name: str, begin: int, end: int, rows: int, seed: int) -> None:
        """A file of events in [begin, end), there from one moment to the next."""
        chance = np.random.default_rng(seed)
        columns = {
            "ts": pa.array(np.sort(chance.integers(begin, end, rows))).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array([f"SYM{key:03d}" for key in range(200)]).take(pa.array(chance.integers(0, 200, rows))),
            "exchange": pa.array(["X00"] * rows),
            "side": pa.array(["B", "S"]).take(pa.array(chance.integers(0, 2, rows))),
            "price": chance.lognormal(3.0, 0.5, rows),
            "volume": chance.integers(1, 5000, rows),
        }
        place = self.folder / "trades"
        place.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), place / f"_{name}")
        (place / f"_{name}").rename(place / f"{name}.parquet")

    def minute(self, number: int) -> None:
        begin = BEGIN + (number - 1) * MINUTE
        self.events(f"minute-{number:04d}", begin, begin + MINUTE, self.rate, number)

    def plan(self, changed: int = 0) -> None:
        """The plan of all queries, of which one is another each time."""
        from spark_jobs.pipeline.planning.refresh import refresh_plan

        queries = texts()
        queries[1] = queries[1].replace("SELECT symbol, ", f"SELECT symbol, max(volume) + {changed} AS changed, ")
        (self.folder / "queries.sql").write_text("".join(queries))
        (self.folder / "streams.yaml").write_text(STREAMS)
        files = [self.folder / "queries.sql"]
        refresh_plan(self.house, files, self.folder / "streams.yaml", rates={"trades": self.rate / 60}, reason="bench")

    def prepare(self) -> None:
        """History behind the clock, answered, so that live runs go on from where it ends."""
        from spark_jobs.engine.choice import Engine
        from spark_jobs.pipeline.run.interval import run
        from spark_jobs.store.warehouse.warehouse import Warehouse

        first = BEGIN - 600 * MINUTE
        self.events("history", first, BEGIN, 600 * self.rate, 0)
        self.plan()
        house, spark = Warehouse.open(self.house), Engine("latency")
        run(spark, house, 1, first, BEGIN, "history", as_of=BEGIN, checks="none", live=True)
        spark.stop()


# ------------------------------------------------------------------------------------------- the session
def session(place: Path, begun: float, period: float) -> int:
    """The process that is measured: a live session by the clock that goes ``60 / period`` times as fast; a line for
    each refresh, with the second in which it was done."""
    from spark_jobs.audit.checks import suite
    from spark_jobs.engine.light_imports import numba_alone

    suite.begin(None)
    numba_alone()
    from spark_jobs.engine.choice import Engine
    from spark_jobs.operations.maintenance import merge_logs
    from spark_jobs.pipeline.run import live
    from spark_jobs.store.warehouse.publish_log import RunRecord
    from spark_jobs.store.warehouse.warehouse import Warehouse

    faster = 60 / period
    # what it waits between two looks is as long as it is without us
    live.LOOK, live.RETRY = live.LOOK * faster, live.RETRY * faster
    house = Warehouse.open(place / "warehouse", create=False)
    following = live.LiveSession(
        house,
        Engine("latency"),
        meanwhile=lambda: merge_logs(house),
        clock=lambda: BEGIN + round((time.time() - begun) * faster * SECOND),
        wait=lambda seconds: time.sleep(seconds / faster),
    )
    following.make_ready()
    for outcome in following.refreshes():
        if not isinstance(outcome, RunRecord):
            print(json.dumps({"error": str(outcome)}), flush=True)
            continue
        spent = {"wall": outcome.wall_seconds, "cpu": outcome.cpu_seconds, "late": outcome.late}
        print(json.dumps({"end": outcome.end, "begin": outcome.begin, "at": time.time()} | spent), flush=True)
    return 0


@dataclass
class Measured:
    """Sessions, one after the other, and what they said."""

    place: Place
    period: float
    refreshes: int
    begun: float = 0.0
    said: list[dict[str, Any]] = field(default_factory=list)
    happened: dict[int, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    def due(self, minute: float) -> float:
        """When the refresh of a minute is due, by the wall's clock."""
        return self.begun + minute * self.period

    def start(self) -> None:
        command = [sys.executable, "-c", SESSION, "--session", str(self.place.folder)]
        command += ["--begun", repr(self.begun), "--period", repr(self.period)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.said.append(json.loads(line))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def disturb(self, number: int, what: str) -> None:
        """Something happens beside the refresh of a minute."""
        from spark_jobs.pipeline.planning.changes import pause_or_resume
        from spark_jobs.store.warehouse.warehouse import Warehouse

        if what == "late file":
            end = BEGIN + (number - 20) * MINUTE
            self.place.events(f"late-{number:04d}", end - 30 * MINUTE, end, 200, 10_000 + number)
        elif what == "plan changed":
            self.place.plan(number)
        elif what == "killed":
            self.stop()
            self.start()
        else:
            pause_or_resume(Warehouse.open(self.place.house), what, ["q03", "q04"])  # type: ignore[arg-type]

    def play(self, console: Console) -> None:
        """All refreshes, with something happening beside every :data:`EVERY`-th."""
        chance, doing = random.Random(5), list[threading.Thread]()
        self.begun = time.time() + 8
        self.start()
        for number in range(1, self.refreshes + 1):
            _sleep_until(self.due(number - 0.2))
            self.place.minute(number)
            if number % EVERY == 0:
                what = DISTURBANCES[number // EVERY % len(DISTURBANCES) - 1]
                self.happened[number] = what
                # beside the refresh: just before it, or while it is answered
                _sleep_until(self.due(number) + chance.uniform(0.0, 0.6))
                doing.append(threading.Thread(target=self.disturb, args=(number, what)))
                doing[-1].start()
                console.print(f"minute {number}: {what}")
        patience = time.time() + 120
        while self.reached < BEGIN + self.refreshes * MINUTE and time.time() < patience:
            time.sleep(0.2)
        for each in doing:
            each.join()
        self.stop()

    @property
    def reached(self) -> int:
        return max((report["end"] for report in self.said if "end" in report), default=0)

    def latencies(self) -> dict[int, float]:
        """Of each minute's refresh: seconds from when it was due until the first publication that reaches it."""
        done = sorted((report["end"], report["at"]) for report in self.said if "end" in report)
        seconds_by_refresh = {}
        for number in range(1, self.refreshes + 1):
            at = min((at for end, at in done if end >= BEGIN + number * MINUTE), default=math.inf)
            seconds_by_refresh[number] = at - self.due(number)
        return seconds_by_refresh

    def judge(self) -> list[str]:
        """Each minute is a refresh of the plan's, and the publications follow on one another."""
        from spark_jobs.pipeline.planning.live_runs import in_force
        from spark_jobs.store.warehouse.publish_log import publications
        from spark_jobs.store.warehouse.warehouse import Warehouse

        house = Warehouse.open(self.place.house)
        active, end = in_force(house), BEGIN + self.refreshes * MINUTE
        ticks = len(instants_due.ticks(active.schedules, BEGIN, end)) if active is not None else 0
        wrong = [] if ticks == self.refreshes else [f"{ticks} refreshes are due in {self.refreshes} minutes"]
        rows = sorted(publications(house, records=False), key=lambda row: row.begin)
        for before, after in zip(rows[:-1], rows[1:], strict=True):
            if before.end != after.begin:
                wrong.append(f"{format_instant(before.end)} .. {format_instant(after.begin)}")
        return wrong + [report["error"] for report in self.said if "error" in report]


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.time(), 0))


def quantile(values: list[float], share: float) -> float:
    """The least value that so large a share of all do not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


# ------------------------------------------------------------------------------------------- where it goes
def profile(place: Place, refreshes: int, console: Console) -> None:
    """What warm refreshes of this process call, by their own seconds, and each stage's."""
    from spark_jobs.engine.choice import Engine
    from spark_jobs.pipeline.run import live
    from spark_jobs.store.warehouse.publish_log import RunRecord
    from spark_jobs.store.warehouse.warehouse import Warehouse

    now = [BEGIN]

    def wait(seconds: float) -> None:
        now[0] += round(seconds * SECOND)

    def answered(first: int, last: int) -> list[RunRecord]:
        for number in range(first, last + 1):
            place.minute(number)
        following = live.LiveSession(
            Warehouse.open(place.house), Engine("latency"), BEGIN + last * MINUTE, clock=lambda: now[0], wait=wait
        )
        return [outcome for outcome in following.refreshes() if isinstance(outcome, RunRecord)]

    answered(1, 3)
    tracer, begun = cProfile.Profile(), time.perf_counter()
    tracer.enable()
    records = answered(4, 3 + refreshes)
    tracer.disable()
    console.print(f"{len(records)} refreshes in {time.perf_counter() - begun:.1f} s, traced")
    stages = {
        name: median(record.wall_seconds.get(name, 0.0) for record in records) for name in records[0].wall_seconds
    }
    console.print(stages)
    pstats.Stats(tracer).sort_stats("cumulative").print_stats(90)


def main() -> int:
    """Measure and print beside the goals; the exit code."""
    parser = argparse.ArgumentParser(description="from a refresh's due moment to its answers")
    parser.add_argument("--refreshes", type=int, default=120)
    parser.add_argument("--period", type=float, default=6.0, help="seconds that a minute of the clock takes")
    parser.add_argument("--rate", type=int, default=1000, help="events a minute")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--session", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.session is not None:
        return session(options.session, options.begun, options.period)
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), options.rate)
        place.prepare()
        if options.profile:
            profile(place, min(options.refreshes, 20), console)
            return 0
        measured = Measured(place, options.period, options.refreshes)
        try:
            measured.play(console)
        finally:
            measured.stop()
        latencies, wrong = measured.latencies(), measured.judge()
    return told(measured, latencies, wrong, options.json, console)


def told(measured: Measured, found: dict[int, float], wrong: list[str], file: Path | None, console: Console) -> int:
    """The table, and the exit code."""
    values, table = list(found.values()), Table("what", "refreshes", "median, s", "p99, s", "most, s", "goal")
    undisturbed = [found[number] for number in found if number % EVERY not in (0, 1) and number > 2]
    groups = {"all": values, "undisturbed": undisturbed}
    for what in DISTURBANCES:
        groups[what] = [
            found[at]
            for number, disturbance in measured.happened.items()
            if disturbance == what
            for at in (number, number + 1)
            if at in found
        ]
    for what, of in groups.items():
        if of:
            goal = ", ".join(f"{name} {value:g} s" for name, value in GOALS.items()) if what == "all" else ""
            table.add_row(
                what, str(len(of)), *(f"{seconds:.2f}" for seconds in (median(of), quantile(of, 0.99), max(of))), goal
            )
    console.print(table)
    console.print(f"load of the machine over the last 15 minutes: {os.getloadavg()[2]:.1f} of {os.cpu_count()} cores")
    for violation in wrong[:10]:
        console.print(f"wrong: {violation}")
    if file is not None:
        file.write_text(
            json.dumps({"latencies": found, "happened": measured.happened, "said": measured.said}, indent=1)
        )
    missed = median(values) > GOALS["median"] or quantile(values, 0.99) > GOALS["p99"]
    console.print("missed" if missed else "met", highlight=False)
    return int(missed or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
