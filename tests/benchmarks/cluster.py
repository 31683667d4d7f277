"""How runs spread over a cluster: measured on two workers of one core each, and simulated for larger ones.

    python -m tests.benchmarks.cluster workers [--events N] [--rounds N] [--queries N]
    python -m tests.benchmarks.cluster simulate [--events N] [--queries N] [--days N ...] [--cores N ...]

``workers``: a standalone master and two workers on loopback; the same run with one core and with two, in turns.

``simulate``: does real runs with the splits of a day of 1 or 10 billion events and the number of cores of a cluster,
one task after the other on one core, and lays the tasks out on the cores. Each split has some thousand events and says
that it has a million, so the run divides its work, lists, plans, draws its sample and commits as it would. What a
million events cost (to lift, to read for the sample, to checksum) comes from a run over whole files and is laid on the
splits. Everything is CPU seconds, so other work on the machine changes little. Tasks and their outcomes are encoded as
Spark does; tasks go to the core that is free first. Prints what each stage takes, and what part of the cores' time is
work.
"""

from __future__ import annotations

import argparse
import heapq
import os
import pickle
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pyspark
from pyspark import cloudpickle
from rich.console import Console
from rich.table import Table

from optimizer.workload.instants import DAY
from optimizer.workload.values import Stream
from spark_jobs.audit.checks import recompute
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.session import start_session
from spark_jobs.engine.workers import StageOutcome, Task, counting, outcome_of, shares
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import partials_stage
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources import recognition
from spark_jobs.streams.sources.formats import parquet
from tests.benchmarks.peers import INTERVAL, plan_of, shared_run
from tests.benchmarks.trades import generate, workload_of

LOOPBACK = "127.0.0.1"


@contextmanager
def standalone(workers: int) -> Iterator[str]:
    """A master with so many workers of one core each; its URL."""
    home = Path(pyspark.__file__).parent
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind((LOOPBACK, 0))
            ports.append(free.getsockname()[1])
    url = f"spark://{LOOPBACK}:{ports[0]}"
    environment = os.environ | {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    master = ["org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(ports[0])]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--cores", "1", "--memory", "3g", url]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as log_file:
            commands = [[*master, "--webui-port", str(ports[1])], *[[*worker, "--webui-port", "0"]] * workers]
            processes = []
            for command in commands:
                processes.append(
                    subprocess.Popen(
                        [str(home / "bin" / "spark-class"), *command],
                        cwd=folder,
                        env=environment,
                        stdout=log_file,
                        stderr=log_file,
                    )
                )
                while log.read_text().count("started at" if len(processes) == 1 else "registered with master") == 0:
                    assert processes[-1].poll() is None, log.read_text()[-2000:]
                    time.sleep(0.2)
        try:
            yield url
        finally:
            for process in processes:
                process.kill()
                process.wait()


def split_up(made: Stream, folder: Path, files: int) -> Stream:
    """The stream with its events, in order, in so many files."""
    rows = pq.read_table(made.source.path)
    folder.mkdir()
    for number in range(files):
        low, high = len(rows) * number // files, len(rows) * (number + 1) // files
        pq.write_table(rows.slice(low, high - low), folder / f"{number:05}.parquet")
    return replace(made, source=replace(made.source, format="parquet", path=str(folder)))


def _loads(number: int) -> int:
    import spark_jobs.pipeline.run.partials_task as task

    return number + len(task.__name__)


def workers(events: int, rounds: int, queries: int, console: Console) -> None:
    """Measure one core beside two."""
    table = Table("round", "cores", "wall s", "partials", "finals", "audit")
    with tempfile.TemporaryDirectory() as folder, standalone(2) as url:
        generated = generate(Path(folder), events)
        stream = split_up(generated, Path(folder) / "events", 50)
        plan = plan_of(workload_of(generated, queries), events)
        plan = replace(plan, workload=replace(plan.workload, streams=(stream,)))
        for number in range(rounds + 1):
            for cores in (1, 2):
                settings = {"spark.cores.max": str(cores), "spark.driver.host": LOOPBACK, "spark.executor.memory": "2g"}
                spark = start_session(f"cluster {cores}", url, settings=settings)
                house = Warehouse.open(f"{folder}/house-{number}-{cores}")
                version, _ = publish_plan(house, plan)
                # the workers start, and load what they need
                spark.sparkContext.parallelize(range(8), 8).map(
                    lambda n: __import__("spark_jobs.pipeline.run.partials_task")
                ).count()
                begun = time.perf_counter()
                record = shared_run(spark, house, version)
                wall, stage_seconds = time.perf_counter() - begun, record.wall_seconds
                if number:
                    stages = (f"{stage_seconds[name]:.1f}" for name in ("partials", "finals", "audit"))
                    table.add_row(str(number), str(cores), f"{wall:.1f}", *stages)
                spark.stop()
    console.print(table)


# ------------------------------------------------------------------------------------------- simulation
STAGES = ("list", "contents", "partials", "finals", "sampled answers", "sampled events")
"""The stages that have tasks: the audit reads its sample of answers and of events by tasks, too."""

IN_STAGE = {"list": STAGES[:2], "partials": STAGES[2:3], "finals": STAGES[3:4], "audit": STAGES[4:]}
"""Which of them are done in which stage of a run's record."""

SPLIT_EVENTS = 1_000_000
"""Events of each split of a simulated day."""

DAYS = (10**9, 10**10)
"""Events of the days that are simulated."""

CORES = (16, 64, 256)
"""Cores of the clusters that are simulated."""


def stage_of(description: str) -> str:
    """The stage that a job does."""
    first = description.split()[0]
    if first == "sample":
        return "sampled answers" if "file" in description else "sampled events"
    return "contents" if "contents" in description else first


@dataclass(frozen=True)
class Done:
    """A task of a stage: how many pieces of work it did, the CPU ``seconds`` that it took, and those of them in which
    it was ``decoded``."""

    pieces: int
    seconds: float
    decoded: float


class Timing(LocalWorkers):
    """Workers that do the tasks of a cluster of ``cores`` here, one after the other, and measure each; ``is_split``:
    each piece of work is a task of its own."""

    def __init__(self, cores: int, is_split: bool) -> None:
        super().__init__()
        # else a run would not use them before it knows how much it reads
        self.name = "simulated"
        self._cores, self._is_split = cores, is_split
        self.stages: dict[str, list[Done]] = defaultdict(list)

    @property
    def width(self) -> int:
        return self._cores

    def run(self, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
        if pieces == 0:
            return StageOutcome([])
        encoded, yielded = cloudpickle.dumps(counting(task)), list[Any]()
        for numbers in shares(pieces, pieces if self._is_split else most):
            begun = time.process_time()
            work = pickle.loads(encoded)
            decoded = time.process_time()
            outcomes = pickle.dumps(list(work(numbers)))
            done = Done(len(numbers), time.process_time() - begun, decoded - begun)
            self.stages[stage_of(description)].append(done)
            yielded += pickle.loads(outcomes)
        return outcome_of(yielded)


@dataclass(frozen=True)
class Measured:
    """The tasks of a run by stage; CPU seconds of the driver ``alone`` by stage; wall and CPU seconds of the run."""

    tasks: dict[str, list[Done]]
    alone: dict[str, float]
    wall: float
    cpu: float


BEGINNINGS = {
    "listing sources": "list",
    "scanning events": "partials",
    "answering queries": "finals",
    "checking the answers": "audit",
    "publishing": "publish",
}
"""The stages of a run, by what it reports when they begin."""


def measured(stream: Stream, plan: Any, root: Path, cores: int, is_split: bool = False) -> Measured:
    """What a run takes, task by task."""
    timing, marks = Timing(cores, is_split), list[tuple[str, float]]()
    house = Warehouse.open(root)
    version, _ = publish_plan(house, replace(plan, workload=replace(plan.workload, streams=(stream,))))

    def report(line: str) -> None:
        if line in BEGINNINGS:
            marks.append((BEGINNINGS[line], time.process_time()))

    begun, wall = time.process_time(), time.perf_counter()
    begin, end = INTERVAL
    run(Engine("simulated", given=timing), house, version, begin, end, "bench", as_of=end + DAY, report=report)
    wall = time.perf_counter() - wall
    marks.append(("", time.process_time()))
    shutil.rmtree(root)
    alone = {
        stage: after - before - sum(done.seconds for name in IN_STAGE.get(stage, ()) for done in timing.stages[name])
        for (stage, before), (_, after) in pairwise(marks)
    }
    alone["list"] += marks[0][1] - begun
    return Measured(timing.stages, alone, wall, marks[-1][1] - begun)


@contextmanager
def saying(rows: int) -> Iterator[None]:
    """Within, each split of a Parquet file says that it has ``rows`` rows."""
    splits = parquet.parquet_splits

    def more(*arguments: Any, **keywords: Any) -> Any:
        return [replace(split, rows=rows) for split in splits(*arguments, **keywords)]

    parquet.parquet_splits = more
    try:
        yield
    finally:
        parquet.parquet_splits = splits


def makespan(tasks: Sequence[float], cores: int, launch: float, begin: float) -> float:
    """Until the last task is done, each given to the core that is free first.

    ``tasks``: seconds of each task's work; ``launch``: seconds of the driver for each, ``begin`` of the worker.
    """
    free = [0.0] * cores
    for number, seconds in enumerate(tasks):
        heapq.heappush(free, max(heapq.heappop(free), (number + 1) * launch) + begin + seconds)
    return max(free)


SCHEDULING = ("dispatcher-event-loop", "dispatcher-CoarseGrainedScheduler", "dag-scheduler-event-loop")
"""Threads of Spark's driver that take part in each task."""


def seconds_to_launch(spark: Any) -> tuple[float, float]:
    """CPU seconds of Spark's driver to launch a task with nothing to do, and wall seconds of a worker to begin it."""
    threads = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getThreadMXBean()

    def used() -> float:
        thread_infos = threads.getThreadInfo(threads.getAllThreadIds())
        chosen = [each.getThreadId() for each in thread_infos if each and each.getThreadName().startswith(SCHEDULING)]
        return sum(map(threads.getThreadCpuTime, chosen)) / 1e9

    def job(count: int) -> None:
        spark.sparkContext.parallelize(range(count), count).map(str).count()

    count, walls = 200, list[float]()
    job(count)
    begun = used()
    for _ in range(5):
        wall = time.perf_counter()
        job(count)
        walls.append((time.perf_counter() - wall) / count)
    launch = (used() - begun) / (count * len(walls))
    # of all that is measured this alone is wall time: other work makes it longer, never shorter
    return launch, max(0.0, min(walls) - launch)


@dataclass(frozen=True)
class Day:
    """A simulated run: the ``tasks`` of each stage (seconds), laid out on ``cores``; seconds of the driver ``alone``
    by stage."""

    cores: int
    alone: dict[str, float]
    tasks: dict[str, list[float]]
    launch: float
    begin: float

    def ends(self, stage: str) -> float:
        """When a stage ends that begins at 0."""
        return makespan(self.tasks[stage], self.cores, self.launch, self.begin) if self.tasks[stage] else 0.0

    @property
    def driver(self) -> float:
        """Seconds of the driver alone."""
        return sum(self.alone.values())

    @property
    def wall(self) -> float:
        """Seconds of the run."""
        return self.driver + sum(map(self.ends, STAGES))

    @property
    def share(self) -> float:
        """The share of the cores' time in which tasks work."""
        return sum(map(sum, self.tasks.values())) / (self.cores * self.wall)


def at_scale(
    found: Measured, files: Measured, splits: int, checksum: float, cores: int, costs: tuple[float, float]
) -> Day:
    """A measured run with its splits as large as they say. ``files``: a run over a few large files; ``checksum``:
    seconds of the content of one; ``costs``: of launching and of beginning a task."""
    chance, tasks = random.Random(7), {name: [done.seconds for done in found.tasks[name]] for name in STAGES}
    large = {name: [done.seconds for done in files.tasks[name]] for name in STAGES}
    parts = partials_stage.parts_of([1.0] * splits, cores, len(found.tasks["partials"]))
    tasks["partials"] = [
        done.decoded + sum(chance.choice(large["partials"]) for _ in part)
        for done, part in zip(found.tasks["partials"], parts, strict=True)
    ]
    tasks["sampled events"] = [
        done.decoded + sum(chance.choice(large["sampled events"]) for _ in range(done.pieces))
        for done in found.tasks["sampled events"]
    ]
    tasks["contents"] = [done.decoded + done.pieces * checksum for done in found.tasks["contents"]]
    return Day(cores, found.alone, tasks, *costs)


def simulate(events: int, queries: int, days: Sequence[int], clusters: Sequence[int], console: Console) -> None:
    """Measure, and print what larger clusters would take."""
    spark = start_session("simulate", "local[1]")
    costs = seconds_to_launch(spark)
    spark.stop()
    split_count = max(2, events // SPLIT_EVENTS)
    simulated_days: dict[tuple[int, int], Day] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generated = generate(folder, events)
        plan = plan_of(workload_of(generated, queries), events)
        large = split_up(generated, folder / "large", split_count)
        measured(large, plan, folder / "warm", 2)
        first = next(Path(large.source.path).iterdir())
        begun = time.process_time()
        recognition._checksum(str(first))
        checksum = time.process_time() - begun
        for day in days:
            splits = day // SPLIT_EVENTS
            stream = split_up(generated, folder / f"splits-{splits}", splits)
            with saying(day // split_count), patch.object(recompute, "LARGEST_FILE", day):
                files = measured(large, plan, folder / "house", max(clusters), is_split=True)
            for cores in clusters:
                # files are as much smaller
                smaller = recognition.BYTES_A_TASK * events // day
                with saying(SPLIT_EVENTS), patch.object(recognition, "BYTES_A_TASK", smaller):
                    run_ = measured(stream, plan, folder / "house", cores)
                simulated_days[day, cores] = at_scale(run_, files, splits, checksum, cores, costs)
                console.print(f"{day:.0e}, {cores} cores: measured in {run_.wall:.0f} s, {run_.cpu:.0f} CPU-s")
    launch, begin = (f"{seconds * 1000:.1f} ms" for seconds in costs)
    console.print(
        f"the driver launches a task in {launch}, a worker begins it in {begin}; CRC-32 of a split: {checksum:.4f} s"
    )
    overview = Table("events a day", "cores", "driver alone", *STAGES, "wall", "work", title="seconds")
    serial = Table("events a day", "cores", *BEGINNINGS.values(), title="seconds of the driver alone")
    stages = Table("events a day", "cores", "stage", "tasks", "CPU-s", "largest", "ideal", "ends", title="stages")
    for (day, cores), each in simulated_days.items():
        label = f"{day:.0e}", str(cores)
        cells = (f"{seconds:.2f}" for seconds in (each.driver, *map(each.ends, STAGES), each.wall))
        overview.add_row(*label, *cells, f"{each.share:.0%}")
        serial.add_row(*label, *(f"{each.alone[stage]:.2f}" for stage in BEGINNINGS.values()))
        for name in STAGES:
            times = each.tasks[name]
            cells = (
                f"{seconds:.2f}" for seconds in (sum(times), max(times, default=0), sum(times) / cores, each.ends(name))
            )
            stages.add_row(*label, name, str(len(times)), *cells)
    console.print(overview, serial, stages)


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description="runs on clusters")
    parser.add_argument("what", choices=("workers", "simulate"))
    parser.add_argument("--events", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--days", type=float, nargs="*", default=DAYS)
    parser.add_argument("--cores", type=int, nargs="*", default=CORES)
    options = parser.parse_args()
    if options.what == "workers":
        workers(options.events or 50_000_000, options.rounds, options.queries, Console())
    else:
        simulate(options.events or 10_000_000, options.queries, list(map(int, options.days)), options.cores, Console())


if __name__ == "__main__":
    main()
