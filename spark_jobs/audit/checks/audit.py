"""Checks of staged answers before anything is published.

Two kinds, both on exactly the files that the publishing commit will name: a Great Expectations suite (schema, keys,
grain, windows, ranges) over what one pass over all answers counted of each query, and our own check, which recomputes
a sample of the answers unshared, from raw events, and compares: answers, and which windows and groups exist at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import format_instant
from spark_jobs.audit.checks import suite
from spark_jobs.audit.checks.data_docs import page_name, write_document
from spark_jobs.audit.checks.recompute import recomputed
from spark_jobs.audit.checks.row_windows import recomputed_rows
from spark_jobs.audit.checks.sampling import Past
from spark_jobs.audit.checks.staged_answers import Staged
from spark_jobs.engine.choice import Engine
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.splits import Split


def audit(
    engine: Engine,
    findings: Sequence[Mapping[str, Any]] | None,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
    docs: Place | None = None,
    past: Past | None = None,
) -> list[dict[str, Any]]:
    """All checks of one staged interval: dicts of ``check``, ``success`` and ``detail``.

    ``findings``: what the inspection counted of each query (:func:`spark_jobs.audit.checks.inspection.summed`); None:
    only the sample is recomputed. ``staged``: the files that hold the answers of the windows that end in
    (begin, ends[stream]], exactly those that the publishing commit will name; ``seed`` decides the sample; ``docs``:
    the folder of the Data Docs; ``past``: what earlier runs audited.
    """
    counts = None if findings is None else Counter({row["query"]: row["answers"] for row in findings})
    answers = Staged(staged, counts, engine.workers)

    def recomputed_too() -> list[dict[str, Any]]:
        arguments = answers, plan, sources, begin, ends, seed, past
        return recomputed(engine, *arguments) + recomputed_rows(engine, *arguments)

    if findings is None:
        return recomputed_too()
    facts = {
        "answers of": f"{format_instant(begin)} .. {format_instant(max(ends.values()))}",
        "files": str(len(staged)),
    }
    with suite.judging(findings, facts) as judgement:
        again = recomputed_too()
        checks, document = judgement()
    if document is not None and docs is not None:
        write_document(docs, page_name(seed), document)
    return checks + again
