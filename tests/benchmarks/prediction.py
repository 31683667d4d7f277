"""How well runs are predicted before they begin, and whether the intervals of prices hold.

    python -m tests.benchmarks.prediction [--events N] [--series NAME ...] [--data DIR] [--json FILE] [--judge FILE]

Series of runs, each into a warehouse of its own that knows of no other: days of the demo; the workloads of
:mod:`tests.benchmarks.ranking`, hours of a day at a time; windows of rows; larger intervals; the same with all that is
computed left to Spark; *changing*, where the plan becomes another one after every second run. The runs of a series are
those of four processes, so that some are cold; a cold one takes turns with warm ones. *Before* each run its CPU seconds
are predicted from the runs before it, as Heddle does by itself, with the interval that a price would name; nothing of
later runs is known. Kernels are compiled before. The exit code is 1 where a goal is missed (:data:`GOALS`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Stream, Workload
from spark_jobs.pipeline.costs.fit import SHIPPED, Fit
from spark_jobs.pipeline.costs.learned import ENOUGH, REMEMBERED, Learned
from spark_jobs.pipeline.costs.measurements import Recorded, newest_costs
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.ranking import SHAPES
from tests.benchmarks.small import ROOT
from tests.benchmarks.trades import DAY_START, generate

GOALS = {
    "first runs within a factor of 2": 0.9,
    "median error": 0.15,
    "within 30 %": 0.9,
    "all intervals hold": 0.9,
    "measured intervals hold": 0.9,
}
"""Of the runs of all series together. The first are those before the sixth of a warehouse, which knows nothing but the
shipped costs; all others are of those after them."""

HOUR = 3600 * SECOND

Interval = tuple[int, int]

HOURS: tuple[tuple[Interval, ...], ...] = (
    tuple((hour, hour + 1) for hour in range(5)),
    ((5, 6),),
    tuple((hour, hour + 1) for hour in range(6, 12)),
    ((12, 13),),
    (*((hour, hour + 1) for hour in range(13, 20)), (20, 24)),
)
"""The hours of a day that the processes of a series publish, interval by interval."""


@dataclass(frozen=True)
class Series:
    """Runs into one warehouse: ``plans`` of some shapes in turn, two runs each; ``share`` of the events;
    ``in_process``: the setting, events up to which no Spark is started."""

    plans: tuple[str, ...]
    share: float = 1.0
    in_process: int = 5_000_000
    processes: tuple[tuple[Interval, ...], ...] = HOURS


DEMO = tuple(
    tuple((24 * day, 24 * day + 24) for day in days) for days in (range(4), (4,), range(5, 10), (10,), range(11, 20))
)

SERIES: dict[str, Series] = {
    "regular, in Spark": Series(("regular",), 10.0, 0),
    "filters and group-bys, in Spark": Series(("filters and group-bys",), 3.0, 0),
    "demo": Series(("demo",), processes=DEMO),
    "large": Series(("regular",), 30.0),
    "changing": Series(("regular", "filters", "prime-ish", "group-bys", "few")),
    "rows": Series(("rows",)),
    **{
        name: Series((name,))
        for name in ("regular", "prime-ish", "fragmented", "filters", "group-bys", "many keys", "low rate", "holistic")
    },
}


# ---------------------------------------------------------------------------------------------- playing
def workload_of(shape: str, stream: Stream) -> Workload:
    """The queries of a shape; those of windows of rows are this benchmark's own."""
    if shape != "rows":
        return SHAPES[shape].workload(stream)
    windows = [(1_000 * number, 500 * number) for number in range(1, 9)]
    statements = [
        f"-- name: q{number}\nSELECT symbol, sum(volume) AS volume, avg(price) AS mean FROM trades "
        f"WINDOW ROWS {rows} SLIDE {slide} ON ts GROUP BY symbol;"
        for number, (rows, slide) in enumerate(windows)
    ]
    parsed = parse("\n".join(statements), {stream.name: stream})
    if parsed.diagnostics:
        raise ValueError(parsed.diagnostics[:3])
    return Workload(tuple(parsed.queries), (stream,))


def planned(house: Warehouse, shape: str, events: int, data: Path) -> int:
    """Publish the plan of a shape; its version."""
    from optimizer.plan.builder import build_plan
    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.pipeline.planning.refresh import refresh_plan

    if shape == "demo":
        folder = ROOT / "dags" / "workload"
        refresh_plan(str(house.root), sorted(folder.glob("*.sql")), folder / "streams.yaml", reason="prediction")
        return 1
    stream = generate(data, events)
    plan = build_plan(workload_of(shape, stream), {stream.name: Fraction(events * SECOND, DAY)}, "weave-share")
    return publish_plan(house, plan)[0]


def play(name: str, part: int, folder: Path, events: int, data: Path) -> None:
    """The runs of one process of a series, in this process."""
    from spark_jobs.engine.choice import Engine
    from spark_jobs.pipeline.run.interval import run

    series, house, spark = SERIES[name], Warehouse.open(folder), Engine("prediction")
    done = sum(map(len, series.processes[:part]))
    versions: dict[str, int] = {}
    for number, (begin, end) in enumerate(series.processes[part], done):
        shape = series.plans[number // 2 % len(series.plans)]
        if shape not in versions:
            versions[shape] = planned(house, shape, max(1_000, round(events * series.share)), data)
        at = (versions[shape], DAY_START + begin * HOUR, DAY_START + end * HOUR)
        run(spark, house, *at, f"run {number}", as_of=DAY_START + 60 * DAY)
    spark.stop()


def played(name: str, folder: Path, events: int, data: Path, parts: int | None = None) -> list[Recorded]:
    """Play a series, or its first ``parts``, each of its processes anew: its runs, oldest first."""
    arguments = ["--events", str(events), "--data", str(data)]
    for part in range(len(SERIES[name].processes))[:parts]:
        environment = os.environ | {"HEDDLE_LOCAL_EVENTS": str(SERIES[name].in_process)}
        call = [sys.executable, "-m", "tests.benchmarks.prediction", "--play", name, str(part), str(folder), *arguments]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
    return newest_costs(Warehouse.open(folder), 1_000)[::-1]


# --------------------------------------------------------------------------------------------- judging
@dataclass(frozen=True)
class Judged:
    """One run: CPU seconds measured and predicted before it, between which bounds, and how many runs of the warehouse
    there were before; ``is_measured``: the bounds were measured; ``is_cold``: it was the first of its process."""

    before: int
    measured: float
    predicted: float
    least: float
    most: float
    is_measured: bool
    is_cold: bool

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of what was measured."""
        return abs(self.predicted - self.measured) / self.measured

    @property
    def holds(self) -> bool:
        return self.least <= self.measured <= self.most


def judged(runs: Sequence[Recorded]) -> list[Judged]:
    """What was predicted before each of some runs, oldest first, from those before it alone."""
    judgements: list[Judged] = []
    for number, run in enumerate(runs):
        before = [
            replace(earlier, predicted=past.predicted) for earlier, past in zip(runs[:number], judgements, strict=True)
        ]
        prediction = Learned(Fit(SHIPPED), before[::-1][:REMEMBERED], run.machine).predict(run.expected, run.kind)
        bounds = prediction.cpu_seconds, prediction.least, prediction.most
        judgements.append(Judged(number, run.total, *bounds, prediction.is_measured, bool(run.features["processes"])))
    return judgements


def shares(runs: Sequence[Judged]) -> dict[str, float]:
    """How good predictions are, by what is told of them."""
    early, late = ([run for run in runs if (run.before < ENOUGH) == is_early] for is_early in (True, False))
    measured_runs = [run for run in runs if run.is_measured]
    figures: dict[str, float] = {}
    if early:
        figures["first runs within a factor of 2"] = _part(0.5 <= run.predicted / run.measured <= 2 for run in early)
    if late:
        figures["median error"] = statistics.median(run.error for run in late)
        figures["within 30 %"] = _part(run.error <= 0.3 for run in late)
        figures["all intervals hold"] = _part(run.holds for run in late)
    if measured_runs:
        figures["measured intervals hold"] = _part(run.holds for run in measured_runs)
        figures["most over least"] = statistics.median(run.most / run.least for run in measured_runs)
    return figures


def _part(holds: Iterable[bool]) -> float:
    flags = list(holds)
    return sum(flags) / len(flags)


def table(found: Mapping[str, Sequence[Judged]]) -> Table:
    """What was measured, for people."""
    shown = Table(title="CPU seconds of runs, predicted before each")
    for heading in ("series", "runs", "CPU-s a run", *GOALS, "most over least"):
        shown.add_column(heading, justify="left" if heading == "series" else "right")
    every = [run for runs in found.values() for run in runs]
    for name, runs in [*found.items(), ("all", every)]:
        figures = shares(runs)
        spent = f"{min(run.measured for run in runs):.1f} to {max(run.measured for run in runs):.1f}"
        cells = [f"{figures[what]:.0%}" if what in figures else "" for what in GOALS]
        wide = f"{figures['most over least']:.1f}" if "most over least" in figures else ""
        shown.add_row(name, str(len(runs)), spent, *cells, wide)
    goals = [f"{'at most' if what == 'median error' else 'at least'} {goal:.0%}" for what, goal in GOALS.items()]
    shown.add_row("goals", "", "", *goals, "")
    return shown


def missed(runs: Sequence[Judged]) -> list[str]:
    """The goals that all runs together miss, or say nothing of."""
    figures = shares(runs)
    return [
        what
        for what, goal in GOALS.items()
        if what not in figures or (figures[what] > goal if what == "median error" else figures[what] < goal)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="prediction", description="CPU seconds of runs, predicted before each")
    add = parser.add_argument
    add("--events", type=int, default=300_000, help="events in the day, before a series' own share (300,000)")
    add("--series", nargs="+", choices=SERIES, default=list(SERIES), metavar="NAME", help=f"of {', '.join(SERIES)}")
    add("--data", type=Path, default=Path("var/bench"), help="where the streams are kept (var/bench)")
    add("--json", type=Path, help="also write the runs to this file, for --judge")
    add("--judge", type=Path, help="run nothing: judge the runs in a file that --json wrote")
    add("--play", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.play:
        name, part, folder = options.play
        play(name, int(part), Path(folder), options.events, options.data)
        return 0
    runs: dict[str, list[Recorded]] = {}
    if options.judge:
        stored = json.loads(options.judge.read_text())["series"]
        runs = {name: [Recorded(**run) for run in of_series] for name, of_series in stored.items()}
    else:
        options.data.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=options.data) as place:
            # kernels that nobody has run yet are compiled once a machine: that is no run's
            for name in ("demo", "rows", "holistic"):
                played(name, Path(place) / f"{name}, compiled", options.events, options.data, parts=1)
            for name in options.series:
                runs[name] = played(name, Path(place) / name, options.events, options.data)
                print(f"{name}: {len(runs[name])} runs", file=sys.stderr, flush=True)
                if options.json:
                    document = {"format_version": 1, "series": runs}
                    options.json.write_text(json.dumps(document, default=asdict, indent=1) + "\n")
    judged_runs = {name: judged(of_series) for name, of_series in runs.items()}
    Console(width=None if sys.stdout.isatty() else 160).print(table(judged_runs))
    short = missed([run for of_series in judged_runs.values() for run in of_series])
    print("missed: " + ", ".join(short) if short else "all goals are met")
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
