"""The job of the DAG ``aggregate_windows``: computes, checks and publishes one interval.

spark-submit spark_jobs/jobs/aggregate_windows.py --warehouse DIR --plan-version N --from T --to T --run-id ID
"""

from __future__ import annotations

import argparse
import atexit
import json
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # spark-submit puts this file's folder first; the project root is its parent
    sys.path[0] = str(next(folder for folder in Path(__file__).resolve().parents if (folder / "heddle").is_dir()))

from optimizer.errors.diagnostics import Diagnostic
from spark_jobs.engine.light_imports import arrow_alone, set_aside
from spark_jobs.engine.submitted import engine_of_job, log, run_job


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute, check and publish one interval, as the arguments define it; returns the exit code."""
    parser = argparse.ArgumentParser(description="compute, check and publish one interval")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--plan-version", type=int, required=True)
    parser.add_argument("--from", dest="begin", required=True)
    parser.add_argument("--to", dest="end", required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--late", action="store_true")
    options = parser.parse_args(arguments)
    arrow_alone()
    atexit.register(set_aside)
    from spark_jobs.pipeline.planning.project_streams import of_project
    from spark_jobs.pipeline.run.interval import run
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from spark_jobs.streams.sources.decoding import parse_instant

    engine = engine_of_job()
    try:
        record = run(
            engine,
            of_project(Warehouse.open(options.warehouse, create=False), settings().warehouse, settings().streams),
            options.plan_version,
            parse_instant(options.begin),
            parse_instant(options.end),
            options.run_id,
            recompute=options.recompute,
            live=options.live,
            late=options.late,
            report=log,
        )
    finally:
        engine.stop()
    log(f"computed on {record.engine}: {record.engine_because}")
    print(json.dumps(record.to_json()), flush=True)
    # last, where a task's log ends
    for diagnostic in record.diagnostics:
        print(Diagnostic(**diagnostic), file=sys.stderr, flush=True)
    # what expectations block is no failure of the task: the others are published, and announced, and owners alerted
    return 1 if record.has_failed else 0


if __name__ == "__main__":
    sys.exit(run_job(main))
