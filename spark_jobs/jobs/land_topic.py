"""The job of the DAG ``land_topics``: brings what a topic of Kafka has now into a Delta table, each record once.

spark-submit spark_jobs/jobs/land_topic.py TOPIC --servers HOST:PORT --streams streams.yaml [--to FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # spark-submit puts this file's folder first; the project root is its parent
    sys.path[0] = str(next(folder for folder in Path(__file__).resolve().parents if (folder / "heddle").is_dir()))

from spark_jobs.engine.session import start_session
from spark_jobs.engine.submitted import log, run_job
from spark_jobs.streams.landing.kafka import session_settings
from spark_jobs.streams.landing.land import STARTS, land, topic_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Land a topic, as the arguments define it; returns the exit code."""
    parser = argparse.ArgumentParser(description="bring what a topic of Kafka has now into a Delta table")
    parser.add_argument("topic")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--streams", required=True)
    parser.add_argument("--stream")
    parser.add_argument("--to", dest="table")
    parser.add_argument("--avro-schema")
    parser.add_argument("--checkpoint")
    parser.add_argument("--starting", choices=STARTS, default=STARTS[0])
    options = vars(parser.parse_args(arguments))
    topic = topic_of(options.pop("topic"), options.pop("servers"), options.pop("streams"), **options)
    spark = start_session("heddle land", settings=session_settings())
    try:
        landed = land(spark, topic, report=log)
    finally:
        spark.stop()
    print(json.dumps(landed.to_json()), flush=True)
    for diagnostic in landed.diagnostics:
        print(diagnostic, file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_job(main))
