"""Runs Flink SQL statements in batch mode in an environment of its own, for :class:`tests.benchmarks.peers.Flink`.

    python flink_worker.py THREADS

Reads one JSON list of statements a line from standard input, runs them one after another, each to its end, and answers
each line with one of JSON: null, or the error. Needs PyFlink with ``flink-sql-parquet`` among its jars, and Hadoop's
classes in ``HADOOP_CLASSPATH``; nothing of Heddle.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    # Flink prints as it likes: the answers have standard output to themselves
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    environment = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    settings = environment.get_config()
    settings.set("parallelism.default", sys.argv[1])
    settings.set("table.local-time-zone", "UTC")
    for line in sys.stdin:
        problem = None
        try:
            for statement in json.loads(line):
                environment.execute_sql(statement).wait()
        except Exception as error:
            problem = str(error)
        print(json.dumps(problem), file=answers, flush=True)


if __name__ == "__main__":
    main()
