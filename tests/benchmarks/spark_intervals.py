"""What an interval of the demo costs by engine: CPU seconds of the whole process tree, with all checks.

    python -m tests.benchmarks.spark_intervals [--rounds N] [--beside FOLDER] [--only WAY ...] [--json FILE]

Ways: *local* and *spark*, a process for an interval; *submit*, the same by ``spark-submit``, as the DAGs start it;
*warm spark* and *warm local*, the following intervals of one process; *empty tasks*, a stage of 64 tasks that do
nothing, warm. Ways take turns, each round in a new warehouse. ``--beside``: another checkout that takes turns as well.
Processes that outlive their parents are waited for, so that daemons and workers of Spark count.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.benchmarks.small import ROOT, arguments_of, planned

GOALS = {"spark": 6.5, "submit": 6.5, "warm spark": 1.2, "empty tasks": 0.25}
"""CPU seconds, but for the wall seconds of the stage of empty tasks."""

WARM = """
import json, sys, time
from pathlib import Path
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.session import CpuSeconds
from spark_jobs.pipeline.run.interval import run
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.small import day
from tests.benchmarks.spark_intervals import nothing
house, name, days = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
engine, found = Engine("warm", requested=name), []
for number in range(days):
    begin, end = map(parse_instant, day(number))
    spent, begun = CpuSeconds(), time.perf_counter()
    run(engine, Warehouse.open(house), 1, begin, end, f"day {number}")
    found.append((spent.spent(), time.perf_counter() - begun))
empty = []
for _ in range(5 if name == "spark" else 0):
    spent, begun = CpuSeconds(), time.perf_counter()
    engine.workers.run(nothing, 64, 64, "nothing")
    empty.append((spent.spent(), time.perf_counter() - begun))
engine.stop()
print(json.dumps({"days": found[1:], "empty": empty[1:]}))
"""


def nothing(numbers, count):  # type: ignore[no-untyped-def]
    """The task that does nothing."""
    yield from ()


def adopt_orphans() -> None:
    """Have processes whose parents ended become children of this one, which can then wait for them."""
    set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def spent(command: Sequence[str], home: Path, more: Mapping[str, str]) -> tuple[float, float, str]:
    """CPU seconds of a command and of all processes that it starts, wall seconds, and what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PYTHONPATH": str(home), "HEDDLE_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = path
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=home, env=environment | more, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begun
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, done.stdout


def submitted(home: Path, arguments: Sequence[str]) -> list[str]:
    """The command by which a DAG starts the job of an interval."""
    from spark_jobs.engine.configuration import spark_settings

    settings = [part for key, value in spark_settings().items() for part in ("--conf", f"{key}={value}")]
    submit = str(Path(sys.executable).parent / "spark-submit")
    job = str(home / "spark_jobs" / "jobs" / "aggregate_windows.py")
    return [submit, "--master", "local[*]", *settings, "--name", "heddle", job, *arguments]


def measure(way: str, home: Path, house: Path) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds of one way, by what is measured."""
    job = [sys.executable, str(home / "spark_jobs" / "jobs" / "aggregate_windows.py"), *arguments_of(house, 0)]
    if way.startswith("warm"):
        name = way.removeprefix("warm ")
        *_, output = spent([sys.executable, "-c", WARM, str(house), name, "5"], home, {})
        report = json.loads(output.splitlines()[-1])
        return {way: report["days"], **({"empty tasks": report["empty"]} if report["empty"] else {})}
    if way == "submit":
        job = json.loads(
            subprocess.run(
                [sys.executable, "-c", SUBMITTED, str(home), *arguments_of(house, 0)],
                cwd=home,
                env=os.environ | {"PYTHONPATH": str(home), "HEDDLE_HOME": str(home)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    cpu, wall, _ = spent(job, home, {"HEDDLE_ENGINE": "local" if way == "local" else "spark"})
    return {way: [(cpu, wall)]}


SUBMITTED = """
import json, sys
from pathlib import Path
from tests.benchmarks.spark_intervals import submitted
print(json.dumps(submitted(Path(sys.argv[1]), sys.argv[2:])))
"""

WAYS = ("local", "spark", "submit", "warm spark", "warm local")


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="what an interval costs by engine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout, whose runs take turns with ours")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    adopt_orphans()
    homes = {"": ROOT, **({f" {options.beside.name}": options.beside.resolve()} if options.beside else {})}
    times_by_way: dict[str, list[tuple[float, float]]] = {}
    console = Console()
    with tempfile.TemporaryDirectory() as place:
        first = Path(place) / "planned"
        planned(first)
        for number in range(options.rounds):
            for way in options.only:
                for suffix, home in homes.items():
                    house = Path(place) / f"{number}{way}{suffix}".replace(" ", "-")
                    shutil.copytree(first, house)
                    for name, values in measure(way, home, house).items():
                        times_by_way.setdefault(f"{name}{suffix}", []).extend(values)
                    shutil.rmtree(house)
    table = Table("way", "CPU-s", "least", "wall s", "goal")
    for name, values in times_by_way.items():
        goal = GOALS.get(name)
        cpu, wall = [pair[0] for pair in values], [pair[1] for pair in values]
        table.add_row(
            name, f"{median(cpu):.2f}", f"{min(cpu):.2f}", f"{median(wall):.2f}", "" if goal is None else f"{goal}"
        )
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(times_by_way, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
