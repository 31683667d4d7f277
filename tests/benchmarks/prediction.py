"""How well runs are predicted before they begin, and whether the intervals of prices hold.

    python -m tests.benchmarks.prediction [--events N] [--series NAME ...] [--data DIR] [--json FILE]

Series of runs, each into a warehouse of its own that knows of no other: days of the demo; the workloads of
:mod:`tests.benchmarks.ranking`, hours of a day at a time; windows of rows; larger intervals; the same with all that is
computed left to Spark; *changing*, where the plan becomes another one after every second run. The runs of a series are
those of four processes, so that some are cold; a cold one takes turns with warm ones. *Before* each run its CPU seconds
are predicted from the runs before it, as Heddle does by itself, with the interval that a price would name; nothing of
later runs is known. The exit code is 1 where a goal is missed (:data:`GOALS`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Stream, Workload
from spark_jobs.warehouse.warehouse import Warehouse
from tests.benchmarks.ranking import SHAPES
from tests.benchmarks.small import ROOT
from tests.benchmarks.trades import DAY_START, generate

if TYPE_CHECKING:
    from spark_jobs.warehouse.publish_log import RunRecord

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
    found = parse("\n".join(statements), {stream.name: stream})
    if found.diagnostics:
        raise ValueError(found.diagnostics[:3])
    return Workload(tuple(found.queries), (stream,))


def planned(house: Warehouse, shape: str, events: int, data: Path) -> int:
    """Publish the plan of a shape; its version."""
    from optimizer.plan.builder import build_plan
    from spark_jobs.planning.publication import publish_plan
    from spark_jobs.planning.refresh import refresh_plan

    if shape == "demo":
        folder = ROOT / "dags" / "workload"
        refresh_plan(str(house.root), sorted(folder.glob("*.sql")), folder / "streams.yaml", reason="prediction")
        return 1
    stream = generate(data, events)
    plan = build_plan(workload_of(shape, stream), {stream.name: Fraction(events * SECOND, DAY)}, "weave-share")
    return publish_plan(house, plan)[0]


def play(name: str, part: int, folder: Path, events: int, data: Path) -> None:
    """The runs of one process of a series, in this process."""
    from spark_jobs.run.interval import run
    from spark_jobs.session.on_demand import OnDemand

    series, house, spark = SERIES[name], Warehouse.open(folder), OnDemand("prediction")
    done = sum(map(len, series.processes[:part]))
    versions: dict[str, int] = {}
    for number, (begin, end) in enumerate(series.processes[part], done):
        shape = series.plans[number // 2 % len(series.plans)]
        if shape not in versions:
            versions[shape] = planned(house, shape, max(1_000, round(events * series.share)), data)
        at = (versions[shape], DAY_START + begin * HOUR, DAY_START + end * HOUR)
        run(spark, house, *at, f"run {number}", as_of=DAY_START + 60 * DAY)
    spark.stop()


def played(name: str, folder: Path, events: int, data: Path) -> list[RunRecord]:
    """Play a series, each of its processes anew; what its runs recorded, oldest first."""
    from spark_jobs.warehouse import publish_log

    given = ["--events", str(events), "--data", str(data)]
    for part in range(len(SERIES[name].processes)):
        environment = os.environ | {"HEDDLE_IN_PROCESS": str(SERIES[name].in_process)}
        call = [sys.executable, "-m", "tests.benchmarks.prediction", "--play", name, str(part), str(folder), *given]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
    return [row.record for row in publish_log.publications(Warehouse.open(folder))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="prediction", description="CPU seconds of runs, predicted before each")
    parser.add_argument("--events", type=int, default=300_000, help="events in the day, before a series' own share")
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES), metavar="NAME")
    parser.add_argument("--data", type=Path, default=Path("var/bench"), help="where the streams are kept (var/bench)")
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    parser.add_argument("--play", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.play:
        name, part, folder = options.play
        play(name, int(part), Path(folder), options.events, options.data)
        return 0
    found = {}
    with tempfile.TemporaryDirectory(dir=options.data) as place:
        for name in options.series:
            folder = Path(place) / name.replace(" ", "-")
            played(name, folder, options.events, options.data)
            rows = Warehouse.open(folder).rows("stream_statistics", ["stage_cpu_seconds", "at", "stream"])
            found[name] = [json.loads(r["stage_cpu_seconds"]) for r in sorted(rows, key=lambda r: r["at"])]
            for r in found[name]:
                if "features" in r:
                    print(
                        name,
                        {k: v for k, v in r.items() if k not in ("features", "about")},
                        {k: v for k, v in r["features"].items() if v},
                        flush=True,
                    )
    options.json.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
