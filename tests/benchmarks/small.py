"""What a small run costs: CPU seconds of the whole process tree, with all checks, beside the goals.

    python -m tests.benchmarks.small [--rounds N] [--beside FOLDER] [--profile] [--command] [--json FILE]

*Cold* is a process of its own over a day of the demo (98 queries); *nothing to do* the same interval again; *warm* the
days after it in one process; *regular* 100 queries of the regular benchmark over 10,000 events, warm. ``--beside``:
another checkout, whose cold runs take turns with ours. ``--profile``: what each CPU second of a cold run is.
``--command``: only what people type, ``heddle run`` over that day: the first time, again with nothing changed, and once
a late file came. Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]

GOALS = {
    **{"cold": 7.0, "cold, wall": 7.0, "nothing to do": 0.6, "warm": 1.0, "regular, warm": 0.7, "audit": 0.25},
    **{"command": 4.0, "command, nothing changed": 0.7},
}
"""CPU seconds, but for the wall seconds of a cold run, and the audit's share of a warm one."""

COMMAND = "import sys; from heddle.cli.app import app; sys.exit(app(sys.argv[1:]))"

JOB = "import sys; from spark_jobs.jobs.aggregate_windows import main; sys.exit(main(sys.argv[1:]))"

FIRST = date(2013, 7, 1)

PROFILED = (
    ("Python and what is imported", None),
    ("the plan, its sources and what is stored", "list"),
    ("partials", "partials"),
    ("finals", "finals"),
    ("Great Expectations imported, and its first suite", "gx"),
    ("the rest of the checks", "audit"),
    ("publication", "publish"),
    ("logs", "rest"),
)


def day(number: int) -> tuple[str, str]:
    """An interval of one day of the demo, from and to."""
    return str(FIRST + timedelta(days=number)), str(FIRST + timedelta(days=number + 1))


def process(code: str, *arguments: str, home: Path = ROOT) -> tuple[float, float, str]:
    """CPU seconds and wall seconds of a process of Python with its children, and what it says. Raises on failure."""
    environment = os.environ | {"PYTHONPATH": str(home), "HEDDLE_HOME": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    # as people have it: what was imported once is compiled
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.setdefault("PYTHONPYCACHEPREFIX", str(Path(tempfile.gettempdir()) / "heddle-small-pycache"))
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.perf_counter() - begun, done.stdout


def arguments_of(house: Path, number: int) -> list[str]:
    """Those of the job that publishes a day."""
    begin, end = day(number)
    arguments = ["--warehouse", str(house), "--plan-version", "1", "--from", begin, "--to", end]
    return [*arguments, "--run-id", f"day {number}"]


def demo_of(folder: Path) -> list[str]:
    """A copy of the demo's workload and flights in a folder; the arguments of ``heddle run`` over its first day."""
    workload, flights = folder / "dags" / "workload", Path("var") / "data" / "flights"
    workload.mkdir(parents=True)
    for name in (*sorted((ROOT / "dags" / "workload").glob("*.sql")), ROOT / "dags" / "workload" / "streams.yaml"):
        shutil.copy2(name, workload)
    shutil.copytree(ROOT / flights, folder / flights)
    begin, end = day(0)
    files = [str(file) for file in sorted(workload.glob("*.sql"))]
    arguments = ["--streams", str(workload / "streams.yaml"), "--warehouse", str(folder / "warehouse")]
    return ["run", *files, *arguments, "--from", begin, "--to", end]


def add_late_file(folder: Path) -> None:
    """Append a file with ten more flights of the first day to the demo's table."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable, write_deltalake

    table = DeltaTable(str(folder / "var" / "data" / "flights"))
    flights = table.to_pyarrow_dataset().to_table().sort_by("event_time")
    first = pa.scalar(datetime.combine(FIRST, time_of_day.min, UTC), flights.schema.field("event_time").type)
    write_deltalake(table, flights.filter(pc.greater_equal(flights["event_time"], first)).slice(500, 10), mode="append")


def command(rounds: int, other: Path | None, console: Console) -> dict[str, list[float]]:
    """CPU and wall seconds of ``heddle run``, a value a round."""
    values_by_figure: dict[str, list[float]] = {}
    homes = {"command": ROOT} | ({"command, the other": other} if other is not None else {})
    # the first of each home, which compiles modules and kernels, is not counted
    for number in range(rounds + 1):
        for name, home in homes.items():
            with tempfile.TemporaryDirectory() as place:
                arguments = demo_of(Path(place))
                for what in ("", ", nothing changed", ", a late file"):
                    if what == ", a late file":
                        add_late_file(Path(place))
                    spent, took, _ = process(COMMAND, *arguments, home=home)
                    if number:
                        values_by_figure.setdefault(f"{name}{what}", []).append(spent)
                        values_by_figure.setdefault(f"{name}{what}, wall", []).append(took)
                        console.print(f"round {number}: {name}{what} {spent:.2f} CPU s, {took:.2f} s")
    return values_by_figure


def planned(house: Path) -> None:
    """A warehouse with the demo's plan."""
    from spark_jobs.pipeline.planning.refresh import refresh_plan

    workload = ROOT / "dags" / "workload"
    refresh_plan(str(house), sorted(workload.glob("*.sql")), workload / "streams.yaml", reason="small")


def spent_by(step: Callable[..., Any], *given: Any) -> tuple[float, Any]:
    """CPU seconds of this process in a step, and what it returns."""
    before = time.process_time()
    returned = step(*given)
    return time.process_time() - before, returned


def warm(house: Path, days: range) -> list[tuple[float, float]]:
    """CPU seconds of each day in this process, and the audit's share of them."""
    from spark_jobs.engine.choice import Engine
    from spark_jobs.pipeline.run.interval import run
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from spark_jobs.streams.sources.decoding import parse_instant

    spark, measurements = Engine("small"), []
    for number in days:
        begin, end = map(parse_instant, day(number))
        spent, record = spent_by(run, spark, Warehouse.open(house), 1, begin, end, f"day {number}")
        measurements.append((spent, record.cpu_seconds["audit"] / spent))
    assert not spark.is_started
    return measurements


def regular(folder: Path, rounds: int) -> list[float]:
    """CPU seconds of 100 queries over 10,000 events, each round into a new warehouse."""
    from spark_jobs.engine.choice import Engine
    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from tests.benchmarks.peers import plan_of, shared_run
    from tests.benchmarks.trades import generate, workload_of

    events, seconds = 10_000, []
    plan = plan_of(workload_of(generate(folder, events), 100), events)
    for number in range(rounds + 1):
        house = Warehouse.open(folder / f"regular-{number}")
        version, _ = publish_plan(house, plan)
        spent, _ = spent_by(shared_run, Engine("small"), house, version)
        seconds.append(spent)
    return seconds[1:]


PROFILE = """
import json, sys, time
begun = time.process_time()
from spark_jobs.jobs.aggregate_windows import main
from spark_jobs.pipeline.run import interval
from spark_jobs.audit.checks import suite
imported = time.process_time()
run, expectations = interval.run, suite.expectations
found = {}
def judged(*given):
    before = time.process_time()
    try:
        return expectations(*given)
    finally:
        found["gx"] = time.process_time() - before
def kept(*given, **named):
    record = run(*given, **named)
    found.update(record.cpu_seconds)
    return record
suite.expectations = judged
interval.run = kept
main(sys.argv[1:])
found["import"] = imported
found["all"] = time.process_time()
print("\\nPROFILE " + json.dumps(found))
"""


def profile(house: Path, number: int) -> dict[str, float]:
    """CPU seconds of a cold run, by what they are."""
    _, _, output = process(PROFILE, *arguments_of(house, number))
    seconds_by_stage: dict[str, float] = json.loads(output.split("PROFILE ")[1])
    stages = sum(seconds_by_stage.get(name, 0.0) for name in ("list", "partials", "finals", "audit", "publish"))
    seconds_by_part = seconds_by_stage | {
        "rest": seconds_by_stage["all"] - seconds_by_stage["import"] - stages,
        "audit": seconds_by_stage["audit"] - seconds_by_stage["gx"],
    }
    return {what: seconds_by_part["import"] if name is None else seconds_by_part[name] for what, name in PROFILED}


def measure(rounds: int, other: Path | None, console: Console) -> dict[str, list[float]]:
    """Every figure, a value a round."""
    values_by_figure: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        values_by_figure.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "planned"
        planned(template)
        for number in range(rounds):
            houses = {"cold": ROOT} | ({"cold, the other": other} if other is not None else {})
            for name, home in houses.items():
                house = Path(folder) / f"{name} {number}"
                shutil.copytree(template, house)
                spent, took, _ = process(JOB, *arguments_of(house, 0), home=home)
                note(name, spent)
                note(f"{name}, wall", took)
                note(name.replace("cold", "nothing to do"), process(JOB, *arguments_of(house, 0), home=home)[0])
                console.print(f"round {number + 1}: {name} {spent:.2f} CPU s, {took:.2f} s")
        for spent, share in warm(template, range(rounds + 2))[2:]:
            note("warm", spent)
            note("audit", share)
        values_by_figure["regular, warm"] = regular(Path(folder), rounds)
    return values_by_figure


def main() -> int:
    """Measure and print beside the goals; the exit code."""
    parser = argparse.ArgumentParser(description="what a small run costs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--command", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console()
    # the demo's data, unless they are there
    loader = ROOT / "dags" / "workload" / "load_flights.py"
    subprocess.run([sys.executable, str(loader), str(ROOT / "var" / "data" / "flights")], cwd=ROOT, check=True)
    if options.profile:
        with tempfile.TemporaryDirectory() as folder:
            planned(Path(folder) / "house")
            profiled = profile(Path(folder) / "house", 0)
        table = Table("what", "CPU seconds", "share")
        for name, value in profiled.items():
            table.add_row(name, f"{value:.2f}", f"{value / sum(profiled.values()):.0%}")
        table.add_row("all", f"{sum(profiled.values()):.2f}", "")
        console.print(table)
        return 0
    step = command if options.command else measure
    measured = step(options.rounds, options.beside and options.beside.resolve(), console)
    table, missed = Table("what", "median", "least", "greatest", "goal"), False
    for name, values in measured.items():
        goal = GOALS.get(name)
        missed |= goal is not None and median(values) > goal
        goal_text = "" if goal is None else f"{goal:g}" + ("  missed" if median(values) > goal else "")
        table.add_row(name, *(f"{value:.2f}" for value in (median(values), min(values), max(values))), goal_text)
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
