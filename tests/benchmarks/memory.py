"""Measures how much memory the tasks of a run take at their peak, of a stream with very many keys.

    python -m tests.benchmarks.memory [--events N] [--memory SIZE ...] [--limit BYTES] [--shapes SHAPE ...]
        [--json FILE]

Half of the events have one key, every other has a key of its own, all in one window of a day. Each figure comes from a
process of its own, which may take ``--limit`` bytes of address space: it does the work of one task of a stage, and says
how much memory it had at its peak beside what it had once everything was loaded and compiled. The shapes:

- ``sums``: a count, a sum and an average of each key;
- ``ungrouped``: the number of distinct keys, and the median: one cell as large as the stream;
- ``both``: grouped and not, in one synopsis, whose millions of rows are rolled up for the second query;
- ``texts``: the least, the most frequent and the latest text of each key;
- ``minutes``: a sum and an extreme of each key in windows of many minutes: every key in many fragments.

``--shapes sparse`` measures a complete run instead of a stage: eight events in four groups, from 1970 to 2600, with an
event id, answered by windows of a second, of a day, of months and of rows over all that time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.synopses.synopsis import synopsis_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.pipeline.run.partials_task import lift_task
from spark_jobs.store.settings import Settings, TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.windows.finals.passes import TooLarge
from spark_jobs.windows.finals.stage import finals_task
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from tests.chaos.orders import in_process

SPARSE = "sparse"

START = 1_372_636_800 * SECOND
"""2013-07-01T00:00:00Z."""

FILE_ROWS = 1_000_000

WARM = 20_000
"""Events of the work that is done first, so that everything is loaded and compiled."""

SCHEMA = (("ts", TIMESTAMP), ("key", STRING), ("price", DOUBLE), ("volume", LONG))

DAILY = "WINDOW RANGE '1 day' SLIDE '1 day' ON ts"
HOURLY = "WINDOW RANGE '6 hours' SLIDE '10 minutes' ON ts"
SHAPES = {
    "sums": [f"SELECT key, count(*) AS n, sum(volume) AS v, avg(price) AS p FROM trades {DAILY} GROUP BY key"],
    "ungrouped": [f"SELECT count(DISTINCT key) AS n, median(price) AS p FROM trades {DAILY}"],
    "both": [
        f"SELECT key, sum(price) AS p FROM trades {DAILY} GROUP BY key",
        f"SELECT count(*) AS n, sum(price) AS p FROM trades {DAILY}",
    ],
    "texts": [f"SELECT key, min(key) AS a, mode(key) AS b, max_by(key, ts) AS c FROM trades {DAILY} GROUP BY key"],
    "minutes": [f"SELECT key, sum(price) AS p, max(volume) AS v FROM trades {HOURLY} GROUP BY key"],
}


def generate(folder: Path, events: int) -> Stream:
    """The stream, in Parquet files of a million rows."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(7)
    for number, first in enumerate(range(0, events, FILE_ROWS)):
        rows = min(FILE_ROWS, events - first)
        places = np.arange(first, first + rows)
        keys = np.where(places % 2 == 0, "everywhere", np.char.add("customer ", places.astype(str)))
        columns = {
            "ts": pa.array(START + places * (DAY // events)).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(keys),
            "price": pa.array(chance.lognormal(3.0, 1.0, rows)),
            "volume": pa.array(chance.integers(1, 1000, rows)),
        }
        pq.write_table(pa.table(columns), folder / f"{number:03d}.parquet")
    return stream_of(folder)


def stream_of(folder: Path) -> Stream:
    """The stream whose files lie in a folder."""
    return Stream("trades", Source("parquet", str(folder)), SCHEMA, "ts")


def work_of(shape: str, stream: Stream) -> SynopsisWork:
    """The queries of a shape over the day, in one synopsis."""
    queries: list[ACQ] = []
    for number, text in enumerate(SHAPES[shape]):
        (query,) = parse(f"-- name: {shape}_{number}\n{text}", {"trades": stream}).queries
        queries.append(query)
    synopsis = synopsis_of(stream, queries)
    return SynopsisWork(synopsis, tuple(queries), START, START + DAY)


def partials(work: SynopsisWork, stream: Stream, folder: Path, memory: TaskMemory) -> list[str]:
    """The first stage in one task."""
    splits, request = splits_of(stream), FillRequest(work.synopsis, work.begin, work.end)
    task = lift_task(stream, splits, [[request]], str(folder / "partials"), memory)
    return [outcome.path for outcome in task(range(len(splits))) if isinstance(outcome, DataFile)]


def finals(work: SynopsisWork, folder: Path, memory: TaskMemory) -> tuple[int, list[str]]:
    """The final stage in one task: how many answers, and what is too large."""
    paths = sorted(map(str, (folder / "partials").rglob("*.parquet")))
    stamp = {"plan_version": pa.scalar(1), "revision": pa.scalar(1), "run_id": pa.scalar("memory")}
    task = finals_task([work], START, paths, str(folder / "results"), stamp, memory=memory)
    outcomes = list(task(range(BUCKETS)))
    answers = sum(outcome.rows for outcome in outcomes if isinstance(outcome, DataFile))
    return answers, sorted({outcome.query for outcome in outcomes if isinstance(outcome, TooLarge)})


def resident(line: str) -> int:
    """A line of what the kernel says of this process, in bytes."""
    text = Path("/proc/self/status").read_text()
    return next(1024 * int(row.split()[1]) for row in text.splitlines() if row.startswith(f"{line}:"))


def measure(stage: str, shape: str, folder: Path, memory: TaskMemory) -> dict[str, Any]:
    """One figure, in a process that does nothing else: what it took to do a stage."""
    if stage == "run":
        return measure_sparse(folder, memory)
    for place in (folder / "warm", folder):
        stream = stream_of(place / "events")
        work = work_of(shape, stream)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        begun = time.process_time()
        figures: dict[str, Any] = {}
        if stage == "partials":
            figures["files"] = len(partials(work, stream, place / shape, memory))
        else:
            figures["answers"], figures["too_large"] = finals(work, place / shape, memory)
    return figures | {"peak": resident("VmHWM") - before, "loaded": before, "cpu": time.process_time() - begun}


SPARSE_QUERIES = """
-- name: seconds
SELECT count(*) AS n, sum(volume) AS v FROM trades WINDOW RANGE '1 second' SLIDE '1 second' ON ts;
-- name: days
SELECT key, avg(price) AS p FROM trades WINDOW RANGE '7 days' SLIDE '1 day' ON ts GROUP BY key;
-- name: months
SELECT max(price) AS p FROM trades WINDOW RANGE '1 month' SLIDE '1 month' IN 'Europe/Berlin' ON ts;
-- name: rows
SELECT sum(volume) AS v FROM trades WINDOW ROWS 3 SLIDE 1 ON ts;
"""


def measure_sparse(folder: Path, memory: TaskMemory) -> dict[str, Any]:
    """A run over all of a sparse stream, after one over a minute has loaded and compiled everything."""
    first, last = -DAY, 19_900_000_000 * SECOND
    measured: dict[str, Any] = {}
    for name, gap in (("warm", 10 * SECOND), ("sparse", 210 * 365 * DAY)):
        place = folder / name
        (place / "events").mkdir(parents=True, exist_ok=True)
        times = [group * gap + at * SECOND for group in range(4) for at in range(2)]
        volumes = list(range(len(times)))
        columns = {"key": ["a", "b"] * 4, "price": [float(each) for each in volumes], "volume": volumes}
        table = pa.table({"ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")), **columns})
        pq.write_table(table, place / "events" / "0.parquet")
        stream = replace(stream_of(place / "events"), event_id="volume")
        warehouse, queries = Warehouse.open(place / "house"), parse(SPARSE_QUERIES, {"trades": stream}).queries
        plan = build_plan(Workload(queries, (stream,)), {"trades": Fraction(1)}, "weave-share")
        version, _ = publish_plan(warehouse, plan)
        end = last if name == "sparse" else 90 * SECOND
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        begun = time.process_time()
        record = run(in_process(), warehouse, version, first, end, name, as_of=last, checks="none")
        files = sum(1 for table in ("partials", "results") for _ in (place / "house" / table).rglob("*.parquet"))
        measured = {"answers": record.answers, "files written": files}
        measured |= {"peak": resident("VmHWM") - before, "loaded": before, "cpu": time.process_time() - begun}
    return measured


def child(arguments: Sequence[str], limit: int) -> dict[str, Any]:
    """What a process of its own measures; what it died of."""
    command = [sys.executable, "-m", "tests.benchmarks.memory", "--child", *arguments]
    environment = os.environ | {"HEDDLE_TASK_MEMORY": arguments[-1]}
    limited = lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))  # noqa: E731
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, check=False, env=environment)
    if done.returncode:
        return {"died": (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Measure what the command line says."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--events", type=int, default=5_000_000)
    reader.add_argument("--memory", nargs="+", default=["128m", "512m", "2g"])
    reader.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=[*SHAPES, SPARSE])
    reader.add_argument("--limit", type=int, default=6 << 30)
    reader.add_argument("--json", type=Path)
    reader.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = reader.parse_args()
    if options.child:
        stage, shape, folder, size = options.child
        sys.stdout.write(json.dumps(measure(stage, shape, Path(folder), TaskMemory(int(size)))) + "\n")
        return
    rows: list[dict[str, Any]] = []
    for size in options.memory:
        with tempfile.TemporaryDirectory(prefix="heddle-memory-") as place:
            folder = Path(place)
            generate(folder / "events", options.events)
            generate(folder / "warm" / "events", WARM)
            memory = Settings({"HEDDLE_TASK_MEMORY": size}).task_memory
            for shape in options.shapes:
                for stage in ("run",) if shape == SPARSE else ("partials", "finals"):
                    figures = child([stage, shape, place, str(memory.bytes)], options.limit)
                    rows.append({"memory": size, "shape": shape, "stage": stage} | figures)
                    sys.stderr.write(f"{rows[-1]}\n")
    if options.json:
        options.json.write_text(json.dumps(rows))
    Console().print(table(rows))


def table(found: Sequence[dict[str, Any]]) -> Table:
    """The figures, a row each."""
    columns = ("memory", "shape", "stage", "loaded (MB)", "peak above (MB)", "CPU (s)", "what")
    shown = Table(*columns)
    for row in found:
        what = row.get("died") or f"{row.get('files', row.get('answers')):,} {'files' if 'files' in row else 'answers'}"
        if row.get("too_large"):
            what = f"too large: {', '.join(row['too_large'])}"
        numbers = (f"{row[name] / 1e6:,.0f}" if name in row else "" for name in ("loaded", "peak"))
        shown.add_row(row["memory"], row["shape"], row["stage"], *numbers, f"{row.get('cpu', 0):.1f}", what)
    return shown


if __name__ == "__main__":
    main()
