"""CPU seconds of the checks of an interval in which every query has two expectations, judged row by row.

``python -m tests.benchmarks.expectations [--queries 1000] [--alone]``: ``--alone`` judges each expectation by itself,
as plain Great Expectations would, and not together with others of the same template.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_jobs.audit.checks import expected, suite
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.run import expectations_stage
from spark_jobs.store.warehouse.publish_log import RunRecord
from tests.spark_jobs.laboratory import Laboratory, steady

SYMBOLS = 10

EXPECT = "-- expect: mean between 0 and 1000 mostly 0.99\n-- expect: total is not null\n"


def workload(queries: int, expect: str) -> str:
    """Queries over one stream, each with other filters, so that each has rows of its own."""
    return "\n".join(
        f"-- name: q{number}\n{expect}SELECT symbol, avg(price) AS mean, sum(volume) AS total FROM trades "
        f"WINDOW RANGE '{20 + number % 40} minutes' SLIDE '20 minutes' ON ts WHERE volume >= {number % 7 - 3} "
        "GROUP BY symbol;"
        for number in range(queries)
    )


def measured(folder: Path, queries: int, expect: str) -> tuple[RunRecord, float]:
    """The record of a run over a day, and the CPU seconds of judging expectations in it."""
    laboratory = Laboratory(Engine("benchmark", requested="local"), folder)  # type: ignore[arg-type]
    laboratory.write([(at, "ABCDEFGHIJ"[round(at) % SYMBOLS], price, volume) for at, _, price, volume in steady(1440)])
    version = laboratory.plan(workload(queries, expect), "no-share" if queries < 10 else "shared")
    spent = 0.0
    judge = expectations_stage.judge_expectations

    def judged(*arguments: object) -> object:
        nonlocal spent
        begun = time.process_time()
        try:
            return judge(*arguments)  # type: ignore[arg-type]
        finally:
            spent += time.process_time() - begun

    expectations_stage.judge_expectations = judged  # type: ignore[assignment]
    try:
        return laboratory.run(version, 0, 1440, "run"), spent
    finally:
        expectations_stage.judge_expectations = judge


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args(arguments)
    begun = time.process_time()
    suite.great_expectations()
    print(f"import of Great Expectations: {time.process_time() - begun:.1f} CPU-s")
    if options.alone:
        frame_of = expected.frame_of

        def alone(request: expected.ExpectationRequest, number: int) -> expected.Frame:
            frame = frame_of(request, number)
            template = frame.template
            own = expected.Template(template.name, template.arguments, template.columns, template.kind, number)
            return expected.Frame(**{**vars(frame), "template": own})

        expected.frame_of = alone
    for expect in ("", EXPECT):
        with TemporaryDirectory() as folder:
            record, spent = measured(Path(folder), options.queries, expect)
        lines = expect.count("\n")
        print(
            f"{options.queries:,} queries, {lines} expectations each, {record.answers:,} answers: "
            f"audit {record.cpu_seconds['audit']:.1f} CPU-s, of them expectations {spent:.1f}"
        )


if __name__ == "__main__":
    main()
