"""Measures the shared pipeline beside its peers, which answer the same queries without sharing.

    python -m tests.benchmarks.sharing [--workloads KIND ...] [--queries N ...] [--peers PEER ...] [--events N]
        [--rounds N] [--sample N] [--growth] [--data DIR] [--json FILE] [--charts FOLDER]

Over a generated stream (:mod:`tests.benchmarks.trades`; for event sequences :mod:`tests.benchmarks.purchases`) and one
Spark session, each round runs in turn, for every kind of workload: the whole shared pipeline into a fresh warehouse,
for every number of queries (partials, finals, audit, publication; on Spark or here, as ``HEDDLE_ENGINE`` has it); a
sample of the queries by each peer (:mod:`tests.benchmarks.engines`), answers dropped; one plain
scan-and-group of the same states at the finest granularity of the largest workload, written to Parquet (of event
sequences none). A first round warms everything up, compares all answers to the sample with the published ones, and is
not counted; the exit code is 1 if a shared run failed or a peer's answers are not its.

Seconds are CPU seconds of the whole process tree (this process, the JVMs and Python workers). What peers spend on N
queries is what they spend on one of the sample times N. Ratios are medians of the rounds' ratios. Planning, which needs
no events, is reported apart. ``--growth`` measures instead how the shared run grows (:mod:`tests.benchmarks.growth`).

As JSON there are also wall seconds, the peak memory (the sum of the peaks of the processes that a way to answer runs
in: its worker, or this process with the JVM and its Python workers, whose heap keeps what an earlier step made it
take), and bytes: those of the warehouse after a run, and those of a peer's answers as one Parquet file a query, which
it is spared. ``--charts`` draws all of them (:mod:`tests.benchmarks.charts`).

``--workloads features`` measures something else, with options of its own: :mod:`tests.benchmarks.features`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import Workload
from spark_jobs.engine import choice
from spark_jobs.engine.session import start_session
from spark_jobs.results.read import read
from tests.benchmarks import rollup_days
from tests.benchmarks.charts import draw
from tests.benchmarks.counting import WAYS as COUNTING
from tests.benchmarks.engines import PEERS, Engine, installed
from tests.benchmarks.growth import CURVES, curve_table, grow
from tests.benchmarks.peers import (
    Measured,
    Peer,
    Setting,
    Spent,
    difference,
    noted,
    plan_of,
    scan_and_group,
    shared,
    spent_by,
)
from tests.benchmarks.peers import shared_run as shared_run
from tests.benchmarks.purchases import PATTERNS, Patterns
from tests.benchmarks.rollup import ROLLUPS, Rollup
from tests.benchmarks.trades import KINDS, Kind
from tests.benchmarks.workers import versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.store.warehouse.warehouse import Warehouse


Answers = dict[str, dict[str, pa.Table]]
"""Peer, query: answers."""

WORKLOADS: dict[str, Kind | Patterns] = {**KINDS, **PATTERNS}

FEATURES = "features"
"""What is measured by :mod:`tests.benchmarks.features`."""


# ------------------------------------------------------------------------------------------- measuring
@dataclass
class Shared:
    """The shared run of one number of queries. ``stages``: CPU seconds, a value a round; ``compared``: the queries
    whose answers were compared with the peers'; ``written``: bytes of the warehouse."""

    queries: int
    plan: SharingPlan
    answers: int = 0
    written: int = 0
    planning: Measured = field(default_factory=Measured)
    run: Measured = field(default_factory=Measured)
    stages: dict[str, list[float]] = field(default_factory=dict)
    compared: list[str] = field(default_factory=list)

    @property
    def stage_medians(self) -> dict[str, float]:
        """CPU seconds of each stage and of what is none."""
        medians = {name: statistics.median(values) for name, values in self.stages.items()}
        return medians | {"rest": max(0.0, self.run.median - math.fsum(medians.values()))}


@dataclass
class Comparison:
    """One kind of workload: its shared runs by number of queries, what peers spend on *one* query (their memory is that
    of the whole sample), the bytes of one answer as Parquet, and the scan-and-group (``granule`` None: not measured).
    ``ways``: by peer and query what each way to answer took, in CPU seconds; ``lengths``: of the queries' patterns."""

    kind: str
    events: int
    granule: int | None
    shared: dict[int, Shared] = field(default_factory=dict)
    peers: dict[str, Measured] = field(default_factory=dict)
    sampled: dict[str, list[str]] = field(default_factory=dict)
    parquet: dict[str, float] = field(default_factory=dict)
    ways: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    scan: Measured = field(default_factory=Measured)

    def ratio(self, queries: int, peer: str) -> float:
        """How many times a peer's CPU seconds are the shared run's; NaN if it was not measured."""
        ours = self.shared[queries].run.cpu
        return _median([peer_cpu * queries / our for peer_cpu, our in zip(self.peers[peer].cpu, ours, strict=False)])

    def of_scan(self, queries: int) -> float:
        """How many times the scan-and-group's CPU seconds the shared run's are."""
        ours = self.shared[queries].run.cpu
        return _median([our / scan for our, scan in zip(ours, self.scan.cpu, strict=False)])

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "events": self.events,
            "granule_seconds": self.granule,
            "scan": _measured(self.scan),
            "peers": {
                name: {"title": PEERS[name].title}
                | _measured(spent)
                | {
                    "sampled": self.sampled[name],
                    "answer_bytes": self.parquet.get(name),
                    "ways": self.ways.get(name, {}),
                }
                for name, spent in self.peers.items()
            },
            "shared": [
                {
                    "queries": size.queries,
                    "trees": len(size.plan.trees),
                    "answers": size.answers,
                    "written_bytes": size.written,
                    "planning": _measured(size.planning),
                    "run": _measured(size.run),
                    "stage_cpu": size.stage_medians,
                    "compared": size.compared,
                    "over_scan": _number(self.of_scan(size.queries)),
                    "peers_over_shared": {name: _number(self.ratio(size.queries, name)) for name in self.peers},
                }
                for size in self.shared.values()
            ],
        }


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _measured(spent: Measured) -> dict[str, Any]:
    return asdict(spent) | {"median": _number(spent.median)}


def measure(
    setting: Setting,
    events: int,
    kind: Kind | Patterns,
    sizes: Sequence[int],
    rounds: int,
    sample: int,
    peers: Mapping[str, Peer],
    scratch: Path,
    report: Callable[[str], None],
) -> Comparison:
    """Interleave the shared runs of one kind of workload with its peers.

    What fails, or answers otherwise than the others, is reported and from then on left out.
    """
    comparison = Comparison(kind.name, events, kind.granule)
    for size in sorted(sizes):
        comparison.shared[size] = Shared(size, plan_of(kind.workload(setting.stream, size), events))
    largest = kind.workload(setting.stream, max(sizes))
    samples = {name: kind.sample(largest.queries, max(sample, peer.least)) for name, peer in peers.items()}
    comparison.sampled = {name: [query.name for query in queries] for name, queries in samples.items()}
    comparison.peers = {name: Measured() for name in peers}
    patterns = {query.name: query.pattern for query in largest.queries}
    comparison.lengths = {name: len(pattern.events) for name, pattern in patterns.items() if pattern is not None}
    answers: Answers = {}
    for number in range(rounds + 1):
        title = f"{kind.name}, " + (f"round {number} of {rounds}" if number else "warming up")
        for name, peer in peers.items():
            with noted(comparison.peers[name], f"{title}: {peer.title}", report) as going:
                if going and not number:
                    answers[name] = peer.tables(samples[name])
                    comparison.parquet[name] = _parquet_bytes(answers[name].values())
                    peer.prepare(samples[name])
                    if isinstance(peer, Engine):
                        comparison.ways[name] = peer.spent
                elif going:
                    spent, _ = spent_by(partial(peer.answer, samples[name]), peer.processes)
                    queries = len(samples[name])
                    comparison.peers[name].add(Spent(spent.cpu / queries, spent.wall / queries, spent.memory))
        for size, ours in comparison.shared.items():
            with noted(ours.run, f"{title}: {size:,} queries shared", report) as going:
                if going:
                    _share(ours, events, scratch / "warehouse", answers, warming=not number)
        if kind.granule is not None:
            with noted(comparison.scan, f"{title}: one plain scan-and-group", report) as going:
                if going:
                    scan = partial(scan_and_group, setting.spark, largest, kind.granule, scratch / "scan")
                    comparison.scan.add(spent_by(scan)[0], warming=not number)
        answers.clear()
    return comparison


def _share(ours: Shared, events: int, root: Path, answers: Answers, warming: bool) -> None:
    """One shared run, as ``heddle run`` does it: on Spark, or in this process where there is less to do than
    ``HEDDLE_ENGINE``. ``answers``: the peers', to be compared with it."""
    ours.planning.add(spent_by(partial(plan_of, ours.plan.workload, events))[0], warming)
    # the session that there is, if it has to be one
    with shared(choice.Engine("bench", quick=False), ours.plan, root) as (spent, record, warehouse):
        ours.run.add(spent, warming)
        ours.answers = record.answers
        ours.written = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        if not warming:
            for stage, seconds in record.cpu_seconds.items():
                ours.stages.setdefault(stage, []).append(seconds)
        ours.compared += _compared(warehouse, ours.plan.workload, answers)


def _parquet_bytes(answers: Collection[pa.Table]) -> float:
    """What an answer takes where each query's are one Parquet file."""
    written = 0
    for table in answers:
        file = pa.BufferOutputStream()
        pq.write_table(table, file)
        written += file.getvalue().size
    return written / sum(map(len, answers))


def _compared(warehouse: Warehouse, workload: Workload, answers: Answers) -> list[str]:
    """The queries of a workload that peers answered, and as we did; ValueError if one answers otherwise."""
    known = {query.name for query in workload.queries}
    names = sorted({name for peer_tables in answers.values() for name in peer_tables if name in known})
    for name in names:
        ours = read(warehouse, name)
        for peer, peer_tables in answers.items():
            if name in peer_tables and (problem := difference(workload.query(name), ours, peer_tables[name])):
                raise ValueError(f"{name}: {peer} does not answer as we do: {problem}")
    return names


# ------------------------------------------------------------------------------------------- reporting
def tables(found: Comparison) -> list[Table]:
    """What was measured of one kind of workload, for people."""
    sizes = list(found.shared.values())
    medians = Table(title=f"{found.kind}, {found.events:,} events", title_justify="left", caption_justify="left")
    stages = Table(title=f"{found.kind}, the shared run's stages", title_justify="left")
    for shown, first in ((medians, "queries"), (stages, "queries")):
        shown.add_column(first)
        for size in sizes:
            shown.add_column(f"{size.queries:,}", justify="right")
    medians.add_row("answers", *(f"{size.answers:,}" for size in sizes))
    medians.add_row("execution trees", *(str(len(size.plan.trees)) for size in sizes))
    medians.add_row("planning", *(f"{size.planning.median:.2f}" for size in sizes), end_section=True)
    medians.add_row("shared run", *(_seconds(size.run) for size in sizes), style="bold", end_section=True)
    for name in PEERS:
        if name not in found.peers:
            medians.add_row(PEERS[name].title, *("not measured" for _ in sizes))
            continue
        spent = found.peers[name]
        cells = (f"{_short(spent.median * size.queries)} ({_short(found.ratio(size.queries, name))})" for size in sizes)
        medians.add_row(f"{PEERS[name].title} *", *(["fails"] * len(sizes) if spent.failure else cells))
    if found.granule is not None:
        medians.add_section()
        medians.add_row(f"one plain scan-and-group, {found.granule} s", *(_seconds(found.scan) for _ in sizes))
        medians.add_row("shared run / scan-and-group", *(f"{found.of_scan(size.queries):.2f}" for size in sizes))
    medians.caption = (
        "CPU seconds, medians; in brackets: times the shared run's. * a sample's mean times the number of queries; "
        "answers are dropped, the shared run's published."
    )
    for name in dict.fromkeys(name for size in sizes for name in size.stage_medians):
        stages.add_row(name, *(_portion(size, name) for size in sizes))
    return [medians, stages, *([_ways(found)] if found.lengths else [])]


def _ways(found: Comparison) -> Table:
    """What each way to count sequences took, by the length of the pattern."""
    lengths = sorted({found.lengths[query] for spent in found.ways.values() for query in spent})
    shown = Table("engine", "way", *(f"length {length}" for length in lengths), title_justify="left")
    shown.title = (
        f"{found.kind}: CPU seconds of one query by the length of its pattern; + another question; - not tried"
    )
    for name, spent in found.ways.items():
        for way in dict.fromkeys(way for each in spent.values() for way in each):
            cells = []
            for length in lengths:
                seconds = [each[way] for query, each in spent.items() if found.lengths[query] == length and way in each]
                cells.append(_short(_median(seconds)) if seconds else "-")
            shown.add_row(PEERS[name].title, way if way in COUNTING else f"{way} +", *cells)
    return shown


def _short(number: float) -> str:
    """Three digits, or all before the point."""
    return f"{number:,.{0 if number >= 100 else 1 if number >= 10 else 2}f}"


def _seconds(spent: Measured) -> str:
    return "fails" if spent.failure else _short(spent.median)


def _portion(one: Shared, stage: str) -> str:
    seconds = one.stage_medians.get(stage, 0.0)
    return "fails" if one.run.failure else f"{seconds:.1f} ({seconds / one.run.median:.0%})"


def main(arguments: Sequence[str] | None = None) -> int:
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--workloads", nargs="+")
    chosen, remaining = first.parse_known_args(arguments)
    if chosen.workloads == [FEATURES]:
        from tests.benchmarks import features

        return features.main(remaining)
    parser = argparse.ArgumentParser(
        prog="sharing",
        description="The shared pipeline beside its peers",
        epilog=f"--workloads {FEATURES}: instead, features of customers over long windows, with options of its own "
        f"(--workloads {FEATURES} --help)",
    )
    add = parser.add_argument
    add(
        "--workloads",
        nargs="+",
        choices=WORKLOADS,
        default=list(WORKLOADS),
        metavar="KIND",
        help=f"of {', '.join(WORKLOADS)} (all)",
    )
    add("--queries", type=int, nargs="+", default=[10, 100, 500, 2000], help="workload sizes (10 100 500 2000)")
    add("--peers", nargs="*", choices=PEERS, default=list(PEERS), metavar="PEER", help=f"of {', '.join(PEERS)} (all)")
    add("--events", type=int, default=10_000_000, help="events in the day (10,000,000)")
    add("--rounds", type=int, default=3, help="measured rounds after the warming one (3)")
    add("--sample", type=int, default=8, help="queries that each peer runs in each round (8)")
    add(
        "--growth",
        nargs="*",
        choices=CURVES,
        metavar="CURVE",
        help=f"instead, how runs grow: of {', '.join(CURVES)} (all)",
    )
    add("--rollup", action="store_true", help="instead, Heddle next to the rollups that engines can build")
    add("--on-spark", action="store_true", help="with --rollup: Heddle on Spark, too, warm and a spark-submit a day")
    add("--data", type=Path, default=Path("var/bench"), help="where the streams are kept (var/bench)")
    add("--json", type=Path, help="also write the measurements to this file")
    add("--charts", type=Path, metavar="FOLDER", help="also draw them, a few SVG files for each kind of workload")
    options = parser.parse_args(arguments)
    if min(options.events, options.rounds, options.sample, *options.queries) < 1:
        parser.error("--events, --queries, --rounds and --sample must be at least 1")
    console, report = Console(width=None if sys.stdout.isatty() else 140), Console(stderr=True).print
    document: dict[str, Any] = {"format_version": 3, "events": options.events, "rounds": options.rounds}
    document["machine"] = machine()
    failed = False
    options.data.mkdir(parents=True, exist_ok=True)
    if options.rollup:
        measuring, needs_spark = _rollups, "spark" in options.peers or options.on_spark
    else:
        measuring, needs_spark = _workloads if options.growth is None else _curves, True
    spark = start_session("bench", quick=False) if needs_spark else cast("SparkSession", None)
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        # what is measured is shown and kept at once: a whole run takes hours
        for section, measurements, shown, runs in measuring(spark, options, Path(scratch), report):
            for table in shown:
                console.print(table)
            document.setdefault(section, []).extend(measurements)
            failed = failed or any(run.failure for run in runs)
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(document, indent=2) + "\n")
            if options.charts:
                draw(document, options.charts)
    return 1 if failed else 0


def machine() -> dict[str, Any]:
    """What a machine must be said to be so that figures mean something; no name of it."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions(),
    }


Part = tuple[str, list[dict[str, Any]], list[Table], list[Measured]]
"""Some measurements: under which name as JSON, as JSON, for people; the shared runs."""


def _workloads(
    spark: SparkSession, options: argparse.Namespace, scratch: Path, report: Callable[[str], None]
) -> Iterator[Part]:
    for name in options.peers:
        if not installed(name):
            report(f"{PEERS[name].title}: skipped, it is not installed (make peers)")
    for kind in (WORKLOADS[name] for name in options.workloads):
        setting = Setting(spark, kind.stream(options.data, options.events))
        able = [name for name in options.peers if isinstance(kind, Kind) or PEERS[name].counts_sequences]
        peers = {name: PEERS[name](setting) for name in able if installed(name)}
        try:
            parameters = (options.queries, options.rounds, options.sample, peers, scratch, report)
            comparison = measure(setting, options.events, kind, *parameters)
            yield (
                "workloads",
                [comparison.to_json()],
                tables(comparison),
                [size.run for size in comparison.shared.values()],
            )
        finally:
            for peer in peers.values():
                peer.close()


def _rollups(
    spark: SparkSession, options: argparse.Namespace, scratch: Path, report: Callable[[str], None]
) -> Iterator[Part]:
    names = [name for name in options.peers if name in ROLLUPS and installed(name)]
    local = choice.Engine("bench", requested="local")
    on_spark = choice.Engine("bench", requested="spark", quick=False) if options.on_spark else None
    rollups: dict[str, Rollup] = {}
    try:
        for kind in (KINDS[name] for name in options.workloads if name in KINDS):
            ground = rollup_days.Ground.of(options.data, options.events, scratch, local, on_spark)
            for name in names:
                rollups[name] = ROLLUPS[name](Setting(spark, ground.stream))
                rollups[name].begin()
            sizes: list[rollup_days.Size] = []
            for size in rollup_days.measure(ground, kind, options.queries, options.rounds, rollups, report):
                sizes.append(size)
                measured = {"kind": kind.name, "events": options.events} | size.to_json()
                shown = rollup_days.tables(kind.name, options.events, sizes)
                runs = [spent for days in size.ours.values() for spent in days]
                yield "rollups", [measured], shown if len(sizes) == len(options.queries) else [], runs
            while rollups:
                rollups.popitem()[1].close()
    finally:
        for each in rollups.values():
            each.close()
        for engine in filter(None, (local, on_spark)):
            engine.stop()


def _curves(
    spark: SparkSession, options: argparse.Namespace, scratch: Path, report: Callable[[str], None]
) -> Iterator[Part]:
    for name in options.growth or CURVES:
        points = CURVES[name].points(options.events)
        grown_points = grow(spark, options.data, name, points, options.rounds, scratch, report)
        yield (
            "growth",
            [grown.to_json() for grown in grown_points],
            [curve_table(name, grown_points)],
            [grown.run for grown in grown_points],
        )


if __name__ == "__main__":
    sys.exit(main())
