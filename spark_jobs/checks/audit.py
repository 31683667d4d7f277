"""Checks of staged answers before anything is published.

Two kinds, both on exactly the files that the publishing commit will name: a Great Expectations suite (schema, keys,
grain, windows, ranges) over what one pass over all answers counted of each query, and our own check, which recomputes
sampled windows of sampled queries unshared, from raw events, with Spark's own aggregates, and compares: answers, and
which windows and groups exist at all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from optimizer.plan.definition import SharingPlan
from spark_jobs.checks import inspection
from spark_jobs.checks.inspection import inspected, write_data_docs
from spark_jobs.checks.recompute import recomputed
from spark_jobs.checks.row_windows import recomputed_rows
from spark_jobs.session.on_demand import OnDemand, workers
from spark_jobs.sources.splits import Split
from spark_jobs.storage import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audit(
    spark: SparkSession | OnDemand,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
    docs: Place | None = None,
    answers: int = 0,
) -> list[dict[str, Any]]:
    """All checks of one staged interval: dicts of ``check``, ``success`` and ``detail``.

    Without ``docs`` the sample is recomputed alone. ``staged``: the files that hold the answers of the windows that end
    in (begin, ends[stream]], exactly those that the publishing commit will name; ``seed`` decides the sample; ``docs``:
    the folder of the Data Docs; ``answers``: how many there are.
    """
    checks: list[dict[str, Any]] = []
    if docs is not None:
        document = partial(write_data_docs, docs, staged, seed, begin, ends)
        inspectors = workers(spark, answers)
        checks += inspection.expectations(inspected(inspectors, staged, plan, begin, ends), document)
    checks += recomputed(spark, staged, plan, sources, begin, ends, seed)
    return checks + recomputed_rows(spark, staged, plan, sources, ends, seed)
