"""The job of the DAG ``repair_results``: publishes intervals again whose source has changed, by a plan version.

spark-submit spark_jobs/jobs/repair_results.py --warehouse DIR --plan-version N --days D
"""

from __future__ import annotations

import argparse
import atexit
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # spark-submit puts this file's folder first; the project root is its parent
    sys.path[0] = str(next(folder for folder in Path(__file__).resolve().parents if (folder / "heddle").is_dir()))

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import DAY
from spark_jobs.engine.light_imports import arrow_alone, set_aside
from spark_jobs.engine.submitted import engine_of_job, log, run_job


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish again the intervals of the last days whose sources have changed; the exit code."""
    parser = argparse.ArgumentParser(description="publish intervals again whose source has changed")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--plan-version", type=int, required=True)
    parser.add_argument("--days", type=float, required=True, help="look so far back from now")
    options = parser.parse_args(arguments)
    arrow_alone()
    atexit.register(set_aside)
    from spark_jobs.pipeline.planning.project_streams import of_project
    from spark_jobs.pipeline.run.history import outdated
    from spark_jobs.pipeline.run.interval import run
    from spark_jobs.results.tables import follow
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.publish_log import BLOCKED, lost_commits, lost_publications
    from spark_jobs.store.warehouse.warehouse import Warehouse

    warehouse = of_project(Warehouse.open(options.warehouse, create=False), settings().warehouse, settings().streams)
    clock = time.time_ns() // 1000
    stale = outdated(warehouse, clock, clock - round(options.days * DAY))
    problems: list[Any] = []
    lost = lost_publications(warehouse)
    if lost:
        print(lost_commits(lost), file=sys.stderr, flush=True)
        follow(warehouse)
    intervals = {(row.begin, row.end): "published again: its commit was lost" for row in lost}
    intervals |= {(interval.begin, interval.end): str(interval.radius) for interval in stale}
    if not intervals:
        return 0
    engine = engine_of_job("heddle repair")
    try:
        for (begin, end), reason in sorted(intervals.items()):
            log(reason)
            record = run(engine, warehouse, options.plan_version, begin, end, f"repair/{begin}/{end}")
            errors = [Diagnostic(**stored) for stored in record.diagnostics if stored["severity"] == "error"]
            # what expectations block has been judged again: owners are alerted, and the task has done its work
            problems += [error for error in errors if error.code != BLOCKED]
            for error in errors:
                if error.code == BLOCKED:
                    print(error, file=sys.stderr, flush=True)
            print(json.dumps(record.to_json()), flush=True)
    except HeddleError as error:
        problems.append(error)
    finally:
        engine.stop()
    # last, where a task's log ends
    for problem in problems:
        print(problem, file=sys.stderr, flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(run_job(main))
