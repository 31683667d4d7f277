"""How runs spread over a cluster: measured on two workers of one core each, and simulated for larger ones.

    python -m tests.benchmarks.cluster workers [--events N] [--rounds N] [--queries N]
    python -m tests.benchmarks.cluster simulate [--events N] [--queries N]

``workers``: a standalone master and two workers on loopback; the same run with one core and with two, in turns.

``simulate``: measures what each task of a run takes, one after the other on one core, and what the driver does alone,
once with few splits and once with many, and prints what the driver does alone in each stage. Then prints for 16, 64 and
256 cores how long the run over a day of 1 and of 10 billion events would take, which stage takes how much of that, and
what share of the cores' time is work. Tasks go to the core that is free first. What a split costs is taken from those
measured; what grows with splits (files that the final stage opens, the driver's lists) by the line through both
measurements; what Spark takes to start a task, and a worker to begin one, is that of empty tasks.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
from rich.console import Console
from rich.table import Table

from optimizer.workload.instants import DAY
from optimizer.workload.values import Stream
from spark_jobs.audit.checks import recompute, suite
from spark_jobs.audit.checks.staged_answers import ANSWERS_A_TASK
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.session import start_session
from spark_jobs.engine.workers import StageOutcome, Task, counting, outcome_of, shares
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import partials_stage, preparation, stage_tasks
from spark_jobs.store.warehouse.data_files import BUCKETS
from spark_jobs.store.warehouse.warehouse import Warehouse
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
        with log.open("w") as told:
            commands = [[*master, "--webui-port", str(ports[1])], *[[*worker, "--webui-port", "0"]] * workers]
            processes = []
            for command in commands:
                processes.append(
                    subprocess.Popen(
                        [str(home / "bin" / "spark-class"), *command],
                        cwd=folder,
                        env=environment,
                        stdout=told,
                        stderr=told,
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
        made = generate(Path(folder), events)
        stream = split_up(made, Path(folder) / "events", 50)
        plan = plan_of(workload_of(made, queries), events)
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
                wall, told = time.perf_counter() - begun, record.wall_seconds
                if number:
                    stages = (f"{told[name]:.1f}" for name in ("partials", "finals", "audit"))
                    table.add_row(str(number), str(cores), f"{wall:.1f}", *stages)
                spark.stop()
    console.print(table)


# ------------------------------------------------------------------------------------------- simulation
STAGES = ("partials", "finals", "sampled answers", "sampled events")
"""The stages that have tasks: the audit reads its sample of answers and of events by tasks, too."""


def stage_of(description: str) -> str:
    """The stage that a job does."""
    first = description.split()[0]
    if first == "sample":
        return STAGES[2] if "file" in description else STAGES[3]
    return first


@dataclass
class Measured:
    """Seconds of each task by stage, and of the driver alone by stage; the ``answers``."""

    tasks: dict[str, list[float]] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    answers: int = 0

    @property
    def driver(self) -> float:
        """Seconds of the driver alone."""
        return sum(self.alone.values())


class Timing(LocalWorkers):
    """Workers that do tasks here, one piece of work after the other, and time each; Spark's own jobs stay."""

    def __init__(self, spark: Any) -> None:
        super().__init__()
        self._spark = spark
        self.measured: dict[str, list[float]] = {}

    @property
    def width(self) -> int:
        return BUCKETS

    def run(self, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
        times, yielded, counted = list[float](), list[Any](), counting(task)
        for number in range(pieces):
            begun = time.perf_counter()
            yielded += counted([number])
            times.append(time.perf_counter() - begun)
        self.measured.setdefault(stage_of(description), []).extend(times)
        return outcome_of(yielded)

    def session(self) -> Any:
        return self._spark


def measured(spark: Any, stream: Stream, plan: Any, root: str) -> Measured:
    """What a run takes, task by task."""
    timing = Timing(spark)
    house = Warehouse.open(root)
    version, _ = publish_plan(house, replace(plan, workload=replace(plan.workload, streams=(stream,))))
    begun = time.perf_counter()
    record = shared_run(Engine("simulated", given=timing), house, version)
    wall = time.perf_counter() - begun
    tasks = timing.measured
    in_stage = {"partials": STAGES[:1], "finals": STAGES[1:2], "audit": STAGES[2:]}
    alone = {
        name: seconds - sum(sum(tasks.get(stage, ())) for stage in in_stage.get(name, ()))
        for name, seconds in record.wall_seconds.items()
    }
    return Measured(tasks, alone | {"rest": wall - sum(record.wall_seconds.values())}, record.answers or 0)


LISTED = 1000
"""Files of the source of which it is measured how long listing takes: those of a billion events."""


def seconds_to_list(plan: Any, stream: Stream, root: str) -> float:
    """Seconds that a run takes to list the files of a stream, none of which it has seen before."""
    house, workload = Warehouse.open(root), replace(plan.workload, streams=(stream,))
    begun = time.perf_counter()
    preparation.listed(house, replace(plan, workload=workload), INTERVAL[1] + DAY, "listing", within=INTERVAL)
    return time.perf_counter() - begun


def makespan(parts: list[float], cores: int, launch: float, begin: float) -> float:
    """Until the last task is done, each given to the core that is free first. ``parts``: seconds of each task's work;
    ``launch``: seconds of the driver for each, ``begin`` of the worker."""
    free = [0.0] * cores
    for number, seconds in enumerate(parts):
        heapq.heappush(free, max(heapq.heappop(free), number * launch) + begin + seconds)
    return max(free)


def together(times: list[float], runs: Sequence[range]) -> list[float]:
    """The seconds of tasks that do some consecutive pieces of work each."""
    return [sum(times[each.start : each.stop]) for each in runs]


def empty_tasks(job: Any, count: int) -> float:
    """Seconds of each of many tasks with nothing to do."""
    job(8)
    begun = time.perf_counter()
    job(count)
    return (time.perf_counter() - begun) / count


DAYS = (10**9, 10**10)
"""Events of the days that are simulated."""


def simulate(events: int, queries: int, console: Console) -> None:
    """Measure, and print what larger clusters would take."""
    chance = random.Random(7)
    spark = start_session("simulate", "local[1]")
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder), events)
        plan = plan_of(workload_of(made, queries), events)
        few, many = max(2, events // 1_000_000), 8 * max(2, events // 1_000_000)
        streams = {files: split_up(made, Path(folder) / f"events-{files}", files) for files in (few, many)}
        # tasks read the events of a sample where there are too many for the driver, as there would be
        recompute.LOCAL_EVENTS = recompute.LOCAL_EVENTS * events // DAYS[0]
        suite.begin("all")
        measured(spark, streams[few], plan, f"{folder}/warm")
        found = {files: measured(spark, streams[files], plan, f"{folder}/house-{files}") for files in (few, many)}
        listing = seconds_to_list(plan, split_up(made, Path(folder) / "events-listed", LISTED), f"{folder}/listed")
        launch = empty_tasks(lambda n: spark.range(0, n, 1, n).count(), 2000)
        begin = empty_tasks(lambda n: spark.sparkContext.parallelize(range(n), n).map(str).count(), 200) - launch
    spark.stop()

    def line(value: Any, splits: int) -> float:
        low, high = value(found[few]), value(found[many])
        return float(low + max(0.0, high - low) * (splits - few) / (many - few))

    told = Table("", "few splits", "many splits")
    for name in STAGES:
        cells = (f"{len(of.tasks[name])} x {sum(of.tasks[name]) / len(of.tasks[name]):.3f} s" for of in found.values())
        told.add_row(f"{name}, tasks", *cells)
    for name in found[few].alone:
        told.add_row(f"driver alone, {name}", *(f"{of.alone[name]:.2f} s" for of in found.values()))
    told.add_row("driver alone", *(f"{of.driver:.2f} s" for of in found.values()))
    told.add_row(f"list {LISTED} files", f"{listing:.2f} s", "")
    console.print(told, f"a task takes {launch * 1000:.1f} ms to start and {begin * 1000:.1f} ms to begin")
    table = Table("events a day", "cores", "driver alone", *STAGES, "wall", "work")
    for day in DAYS:
        splits = day * few // events
        lifted = [chance.choice(found[few].tasks["partials"]) for _ in range(splits)]
        # partial rows of whole buckets come out of as many files as tasks wrote
        for cores in (16, 64, 256):
            files = min(splits, stage_tasks.TASKS_A_CORE * cores)
            slices = -(-cores // BUCKETS)
            final = line(lambda of: sum(of.tasks["finals"]) / BUCKETS, files) / slices
            read = line(lambda of: max(of.tasks["finals"]) / max(sum(of.tasks["finals"]) / BUCKETS, 1e-9), files)
            finals = [final * (1 + (read - 1) * chance.random() / 2) for _ in range(BUCKETS * slices)]
            answers = found[few].tasks["sampled answers"]
            drawn = found[few].tasks["sampled events"]
            budgets = [recompute.budget_of(amount, queries, found[few].answers) for amount in (events, day)]
            sampled = [chance.choice(drawn) for _ in range(round(len(drawn) * budgets[1] / budgets[0]))]
            # sources are listed file by file; else what the driver does grows with the files that tasks write
            driver = listing * splits / LISTED
            driver += line(lambda of: of.driver - of.alone["list"], files)
            stages = (lifted, finals, answers, sampled)
            at_most = cores, found[few].answers // ANSWERS_A_TASK, recompute.TASKS_A_CORE * cores
            tasks = [
                together(lifted, partials_stage.parts_of([1.0] * splits, cores, stage_tasks.TASKS_A_CORE * cores)),
                *(together(times, shares(len(times), most)) for times, most in zip(stages[1:], at_most, strict=True)),
            ]
            spans = [makespan(parts, cores, launch, begin) for parts in tasks]
            wall, work = driver + sum(spans), sum(map(sum, stages))
            share = work / (cores * wall)
            cells = (f"{seconds:.1f}" for seconds in (driver, *spans, wall))
            table.add_row(f"{day:.0e}", str(cores), *cells, f"{share:.0%}")
    console.print(
        table, "work: the share of the cores' time in which tasks work; the goal is 70 % with 64 cores and 1e+09 events"
    )


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description="runs on clusters")
    parser.add_argument("what", choices=("workers", "simulate"))
    parser.add_argument("--events", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--queries", type=int, default=100)
    given = parser.parse_args()
    if given.what == "workers":
        workers(given.events or 50_000_000, given.rounds, given.queries, Console())
    else:
        simulate(given.events or 10_000_000, given.queries, Console())


if __name__ == "__main__":
    main()
