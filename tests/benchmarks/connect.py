"""Measures runs of the demo's queries through a classic session and through Spark Connect, in processes of their own.

    python -m tests.benchmarks.connect [--days N]

Day by day in turns; one row a day: wall seconds of each. Both compute on two workers of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.store.settings import PROJECT
from tests.connect_server import connect_server

RUNNER = """
import json, sys, time
from spark_jobs.pipeline.run.interval import run
from spark_jobs.engine.session import CpuSeconds, start_session
from spark_jobs.store.warehouse.warehouse import Warehouse
begun = time.perf_counter()
spark = start_session("connect", None if sys.argv[2] == "connect" else "local[2]")
print(json.dumps({"session": time.perf_counter() - begun}), flush=True)
for line in sys.stdin:
    day = int(line)
    begun = time.perf_counter()
    record = run(spark, Warehouse.open(sys.argv[1]), 1, day, day + 86_400_000_000, f"r {day}")
    print(json.dumps({"run": time.perf_counter() - begun, "answers": record.answers}), flush=True)
"""

FIRST = 1_372_636_800_000_000


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Spark Connect beside a classic session")
    parser.add_argument("--days", type=int, default=5)
    days = parser.parse_args().days
    table = Table("", "classic, s", "connect, s", "answers")
    workload = PROJECT / "dags" / "workload"
    with tempfile.TemporaryDirectory() as folder, connect_server(Path(folder)) as url:
        runners = {}
        for name in ("classic", "connect"):
            refresh_plan(f"{folder}/{name}", sorted(workload.glob("*.sql")), workload / "streams.yaml", reason="bench")
            environment = os.environ | {"PYTHONPATH": str(PROJECT)}
            environment |= {"HEDDLE_SPARK_REMOTE": url} if name == "connect" else {}
            runners[name] = subprocess.Popen(
                [sys.executable, "-c", RUNNER, f"{folder}/{name}", name],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        reports = {name: json.loads(runner.stdout.readline()) for name, runner in runners.items()}  # type: ignore[union-attr]
        table.add_row("session", *(f"{reports[name]['session']:.1f}" for name in runners), "")
        for day in range(days):
            for name, runner in runners.items():
                assert runner.stdin is not None and runner.stdout is not None
                print(FIRST + day * 86_400_000_000, file=runner.stdin, flush=True)
                reports[name] = json.loads(runner.stdout.readline())
            assert reports["classic"]["answers"] == reports["connect"]["answers"]
            seconds = (f"{reports[name]['run']:.1f}" for name in runners)
            table.add_row(f"day {day + 1}", *seconds, f"{reports['classic']['answers']:,}")
        for runner in runners.values():
            assert runner.stdin is not None
            runner.stdin.close()
            runner.wait()
    Console().print(table)


if __name__ == "__main__":
    main()
