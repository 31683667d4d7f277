"""Ways to answer the same queries: the shared run, and beside it its peers; here Spark, in engines.py the others.

Every peer answers given queries for one interval: the windows that end in (begin, end], which is what a run
publishes. :meth:`Peer.answer` computes all answers and drops them, so a peer pays neither for writing nor for checks,
which the shared run does; :meth:`Peer.tables` returns them, so that :func:`difference` can compare them with ours.
"""

from __future__ import annotations

import math
import re
import shutil
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, SECOND, Stream, Workload
from spark_jobs.audit.unshared.measure import native_frame
from spark_jobs.audit.unshared.windows import unshared
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.planning.requested import model_of, profiles_of
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.counting import Counting
from tests.benchmarks.query_sql import groups_of, sql, states_of
from tests.benchmarks.trades import DAY_START
from tests.benchmarks.workers import own_processes, read_meanwhile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Interval = tuple[int, int]
"""[begin, end) in microseconds: answered are the windows that end in (begin, end]."""

INTERVAL: Interval = (DAY_START, DAY_START + DAY)

THREADS = 2


@dataclass
class Measured:
    """CPU and wall seconds and the peak memory (bytes) of one way to answer, a value a round; ``cold`` the warming
    round's CPU; ``failure`` why it has no values."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    cold: float = 0.0
    failure: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.cpu) if self.cpu else math.nan

    def add(self, spent: Spent, warming: bool = False) -> None:
        if warming:
            self.cold = spent.cpu
        else:
            self.cpu.append(spent.cpu)
            self.wall.append(spent.wall)
            self.memory.append(spent.memory)


class Spent(NamedTuple):
    """CPU seconds of the process tree, wall seconds, and the sum of the peaks of some processes' resident bytes."""

    cpu: float
    wall: float
    memory: float


def spent_by(
    action: Callable[[], Any], processes: Callable[[], list[psutil.Process]] = own_processes
) -> tuple[Spent, Any]:
    """What an action spent, and what it returned; ``processes``: those whose memory it is."""
    before = processes()
    for process in before:
        with suppress(OSError):  # from here on the peak counts
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    # Spark ends Python workers that are idle for a minute, and nobody waits for them: what they had used would be
    # missing from a difference of two sums over the processes that live
    first = _used()
    last, wall = dict(first), time.perf_counter()
    with read_meanwhile(lambda: last.update(_used())):
        result = action()
        wall = time.perf_counter() - wall
    cpu = math.fsum(used - first.get(process, 0.0) for process, used in last.items())
    return Spent(cpu, wall, math.fsum(map(_peak, processes()))), result


def _peak(process: psutil.Process) -> float:
    """The peak of a process's resident bytes; NaN where the system does not tell."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except FileNotFoundError:
        return 0.0 if Path("/proc/self/status").exists() else math.nan
    match = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) * 1024.0 if match else 0.0


def _used() -> dict[tuple[int, float], float]:
    """CPU seconds of this process and each below it, since it began."""
    this_process, seconds_by_process = psutil.Process(), {}
    for process in (this_process, *this_process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds_by_process[process.pid, process.create_time()] = times.user + times.system
    return seconds_by_process


@contextmanager
def noted(measured: Measured, saying: str, report: Callable[[str], None]) -> Iterator[bool]:
    """Whether to go on with what did not fail before; if it fails now, that is noted and reported."""
    if not measured.failure:
        report(saying)
    try:
        yield not measured.failure
    except Exception as error:
        measured.failure = _told(error)
        report(f"{saying} failed: {measured.failure}")


def _told(error: Exception) -> str:
    """What happened, in a line; of an error in a Python worker the last one of what it said, before the JVM goes on."""
    message = str(error).partition("JVM stacktrace:")[0].split("\n")
    lines = [line for line in message if line.strip()] or [type(error).__name__]
    return lines[-1] if lines[0].endswith(":") else lines[0]


# ------------------------------------------------------------------------------ the shared run, and one scan
def plan_of(workload: Workload, events: int) -> SharingPlan:
    """The plan for a day of so many events of each stream, as a refresh makes it."""
    rates = {stream.name: Fraction(events * SECOND, DAY) for stream in workload.streams}
    model = model_of("measured", [])
    return build_plan(workload, rates, "best", model, profiles=profiles_of(workload, rates, model))


def shared_run(spark: Engine | SparkSession, warehouse: Warehouse, version: int) -> RunRecord:
    """The whole pipeline over the day; ``as_of`` far enough that nothing is withheld."""
    begin, end = INTERVAL
    return run(spark, warehouse, version, begin, end, "bench", as_of=end + DAY)


@contextmanager
def shared(spark: Engine | SparkSession, plan: SharingPlan, root: Path) -> Iterator[tuple[Spent, RunRecord, Warehouse]]:
    """A shared run into a fresh warehouse, which is there as long as the context: what it spent, its record, the
    warehouse."""
    warehouse = Warehouse.open(root)
    version, _ = publish_plan(warehouse, plan)
    try:
        spent, record = spent_by(lambda: shared_run(spark, warehouse, version))
        yield spent, record, warehouse
    finally:
        shutil.rmtree(root)


def scan_and_group(spark: SparkSession, workload: Workload, granule: int, target: Path) -> None:
    """The states that a workload needs in one plain Spark job, as Parquet: grouped at the finest granularity, which is
    the granule (seconds), all columns of its group-bys and the set of its filters that an event satisfies."""
    from pyspark.sql import functions as F

    (stream,) = workload.streams
    queries = workload.queries
    frame = native_frame(spark, stream)
    groups = [F.floor(F.unix_micros(stream.time) / (granule * SECOND)).alias("granule")]
    groups += [F.col(name) for name in dict.fromkeys(name for query in queries for name in groups_of(query))]
    filters = list(dict.fromkeys(sql(query.filter) for query in queries if query.filter is not None))
    if filters:
        bits = [F.when(F.expr(filter), 1 << number).otherwise(0) for number, filter in enumerate(filters)]
        satisfied = reduce(lambda left, right: left + right, bits)
        if all(query.filter is not None for query in queries):
            frame = frame.where(satisfied > 0)
        groups.append(satisfied.alias("satisfied"))
    states = [F.expr(lift).alias(f"state{number}") for number, lift in enumerate(states_of(queries))]
    frame.groupBy(*groups).agg(*states).write.mode("overwrite").parquet(str(target))


# ----------------------------------------------------------------------------------------------- peers
@dataclass(frozen=True)
class Setting:
    """Where peers answer: a session, a Parquet stream, the interval."""

    spark: SparkSession
    stream: Stream
    interval: Interval = INTERVAL


class Peer(ABC):
    """One way to answer queries without sharing among them what Heddle shares. ``least``: how many queries at least
    show what it costs; ``counts_sequences``: whether it can answer queries with a pattern."""

    title: str
    least = 1
    counts_sequences = False

    def __init__(self, setting: Setting) -> None:
        self.stream, self.interval = setting.stream, setting.interval

    @abstractmethod
    def answer(self, queries: Sequence[ACQ]) -> None:
        """Compute every answer of some queries and drop it."""

    @abstractmethod
    def tables(self, queries: Sequence[ACQ]) -> dict[str, pa.Table]:
        """The answers by query: ``window_start`` (int64, microseconds), its group columns, its outputs (doubles)."""

    def prepare(self, queries: Sequence[ACQ]) -> None:  # noqa: B027
        """Find out what has to be known before queries can be answered as cheaply as possible."""

    def processes(self) -> list[psutil.Process]:
        """Those it runs in."""
        return own_processes()

    def close(self) -> None:  # noqa: B027
        """End what was started for it."""


class SparkJobs(Peer):
    """One plain Spark job a query, over Spark's sliding ``window()``: what people write today; for event sequences by
    joins that are grouped after each step, which people would have to think of (:mod:`tests.benchmarks.counting`)."""

    title = "Spark, one job a query"
    counts_sequences = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.spark = setting.spark

    def answer(self, queries: Sequence[ACQ]) -> None:
        with self._quick():
            for query in queries:
                self.frame(query).write.format("noop").mode("overwrite").save()

    def tables(self, queries: Sequence[ACQ]) -> dict[str, pa.Table]:
        with self._quick():
            return {query.name: canonical(query, self.frame(query).toArrow()) for query in queries}

    def frame(self, query: ACQ) -> DataFrame:
        from pyspark.sql import functions as F

        if query.pattern is not None:
            return self.counted(query, "stepped")
        begin, end = (F.timestamp_micros(F.lit(instant)) for instant in self.interval)
        answers = unshared(native_frame(self.spark, self.stream), query, self.stream.time)
        return answers.where((F.col("window_end") > begin) & (F.col("window_end") <= end))

    def counted(self, query: ACQ, way: str) -> DataFrame:
        """The answers of a query that counts event sequences, in a way of :mod:`tests.benchmarks.counting`."""
        native_frame(self.spark, self.stream).createOrReplaceTempView("counted_events")
        events = "counted_events" + (f" WHERE {sql(query.filter)}" if query.filter is not None else "")

        def repeat(rows: str, first: str, last: str, most: int) -> str:
            numbers = f"CASE WHEN {first} < {last} THEN sequence({first}, {last} - 1) END"  # it would count downwards
            return f"SELECT *, explode({numbers}) AS k FROM ({rows}) AS repeated"

        moment = f"unix_micros({self.stream.time})"
        return self.spark.sql(Counting(query, self.interval, events, moment, "DIV", repeat).statement(way))

    @contextmanager
    def _quick(self) -> Iterator[None]:
        """Spark 4.2 generates Java that does not compile for a filter above its sliding window, and interprets then:
        without this elimination the same jobs take about half the time."""
        name = "spark.sql.subexpressionElimination.enabled"
        before = self.spark.conf.get(name) or "true"
        self.spark.conf.set(name, "false")
        try:
            yield
        finally:
            self.spark.conf.set(name, before)


class SparkStatement(SparkJobs):
    """All queries as one Spark statement, a union; in it all have the same columns."""

    title = "Spark, one statement"
    least = 10
    counts_sequences = False

    def answer(self, queries: Sequence[ACQ]) -> None:
        with self._quick():
            self.union(queries).write.format("noop").mode("overwrite").save()

    def tables(self, queries: Sequence[ACQ]) -> dict[str, pa.Table]:
        with self._quick():
            rows = self.union(queries).toArrow()
        answers_by_query = {}
        for query in queries:
            query_rows = rows.filter(pc.equal(rows["query"], query.name))
            columns: dict[str, Any] = {"window_start": query_rows["window_start"]}
            for carrier, names in (("key", groups_of(query)), ("outputs", [output.name for output in query.outputs])):
                columns |= {name: pc.list_element(query_rows[carrier], at) for at, name in enumerate(names)}
            answers_by_query[query.name] = canonical(query, pa.table(columns))
        return answers_by_query

    def union(self, queries: Sequence[ACQ]) -> DataFrame:
        from pyspark.sql import functions as F

        def same(query: ACQ) -> DataFrame:
            outputs = [F.col(output.name).cast("double") for output in query.outputs]
            key = F.array(*(F.col(name).cast("string") for name in groups_of(query))).alias("key")
            name = F.lit(query.name).alias("query")
            return self.frame(query).select(name, "window_start", key, F.array(*outputs).alias("outputs"))

        return reduce(lambda above, below: above.unionAll(below), map(same, queries))


# ------------------------------------------------------------------------------------------- comparing
def canonical(query: ACQ, table: pa.Table) -> pa.Table:
    """The columns of a query's answers in their order, the windows' starts as int64, the outputs as doubles."""
    starts = table["window_start"]
    if pa.types.is_timestamp(starts.type):
        starts = starts.cast(pa.timestamp("us", starts.type.tz))
    columns = {"window_start": starts.cast(pa.int64())}
    columns |= {name: table[name].cast(pa.string()) for name in groups_of(query)}
    columns |= {output.name: table[output.name].cast(pa.float64()) for output in query.outputs}
    return pa.table(columns)


def difference(query: ACQ, ours: pa.Table, theirs: pa.Table) -> str | None:
    """What differs between two tables of answers of a query; None if nothing does.

    Doubles may differ by 1e-9 of their size; deviations by what a sum of squares loses (their squares by 1e-8).
    """
    if len(ours) != len(theirs):
        return f"{len(ours):,} answers and {len(theirs):,}"
    grain = ["window_start", *groups_of(query)]
    order = [(name, "ascending") for name in grain]
    ours, theirs = (canonical(query, table).sort_by(order) for table in (ours, theirs))
    for name in grain:
        if not ours[name].equals(theirs[name]):
            return f"{name} is not the same"
    for output in query.outputs:
        our_values, other = (table[output.name].to_numpy().astype(float) for table in (ours, theirs))
        slack = 0.0
        if output.function == "stddev":
            our_values, other, slack = our_values * our_values, other * other, 1e-8
        wrong = ~np.isclose(our_values, other, rtol=1e-9, atol=slack, equal_nan=True)
        if wrong.any():
            at = int(np.argmax(wrong))
            return f"{output.name} of {ours.slice(at, 1).to_pylist()} and {theirs.slice(at, 1).to_pylist()}"
    return None
