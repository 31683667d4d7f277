"""The fourth stage of a run: checks the staged answers; without all of them right nothing is published."""

from __future__ import annotations

from dataclasses import replace

from optimizer.errors.diagnostics import Diagnostic
from optimizer.workload.values import digest
from spark_jobs.audit.checks.audit import audit
from spark_jobs.audit.checks.data_docs import FOLDER
from spark_jobs.audit.checks.inspection import summed
from spark_jobs.audit.checks.sampling import Past
from spark_jobs.pipeline.run import publication
from spark_jobs.pipeline.run.values import AnsweredRun, CheckedRun, Run
from spark_jobs.store.warehouse import checks_log, publish_log
from spark_jobs.store.warehouse.publish_log import refuse

UNCHECKED = Diagnostic(
    "HDL-532",
    "these answers were not checked before they were published",
    "`--checks none`, or HEDDLE_CHECKS, asked for that; run it again with `--checks all`",
    severity="warning",
)
"""Warning in the record of a run without checks."""


def check(run: Run, answered: AnsweredRun) -> CheckedRun:
    """Check the answers to the extent that the request asks for, and log the findings.

    Raises HDL-530 if a check of Heddle's own fails; the staged files are removed. If answers are not what the owner of
    a query expects, those of this query alone are left out.
    """
    record, filled = run.record, answered.filled
    seed = digest([record.run_id, record.revision])
    root = run.warehouse.place
    paths = [root / "results" / file.path for file in answered.staged]
    staged = [str(path) for path in paths]
    try:
        if record.checked == "none":
            record.diagnostics.append(UNCHECKED.to_json())
        else:
            audit_scope = filled.narrowed, filled.sources, record.begin, filled.ends
            is_repaired = filled.instants is not None or record.revision > 1
            past = Past.of(checks_log.audits(run.warehouse), is_repaired)
            findings = None if answered.findings is None else summed(answered.findings)
            record.checks = audit(run.engine, findings, staged, *audit_scope, seed, root / FOLDER, past)
            sampled = [check for check in record.checks if "audited" in check]
            record.features["queries_recomputed"] = len(sampled)
            record.features["events_recomputed"] = sum(check.pop("events", 0) for check in sampled)
        publication.log_checks(run.warehouse, record)
        for check in record.checks:
            check.pop("audited", None)  # it stands with the checks, and a record is read often
        failed = [check for check in record.checks if not check["success"]]
        if failed:
            detail = "; ".join(f"{check['check']}: {check['detail']}" for check in failed)
            refuse(run.warehouse, record, "HDL-530", f"the checks failed, nothing was published: {detail}")
        if record.checked != "none":
            answered = _as_expected(run, answered)
    except BaseException:
        for path in paths:  # no commit names them
            path.remove()
        raise
    return CheckedRun(answered, seed)


def _as_expected(run: Run, answered: AnsweredRun) -> AnsweredRun:
    """The answers that are published: all but those that their owners' expectations block."""
    from spark_jobs.pipeline.run import expectations_stage

    record, filled = run.record, answered.filled
    expected = expectations_stage.judge_expectations(run, answered)
    base = filled.allocated.base
    if base is not None:
        # what a narrow run does not answer again stays as it is
        again = {query.name for query in filled.narrowed.workload.queries}
        record.blocked = {name: texts for name, texts in base.record.blocked.items() if name not in again}
    record.blocked |= {name: list(texts) for name, texts in expected.blocked.items()}
    expectations_stage.log_expected(run.warehouse, expected)
    if not record.blocked:
        return answered
    answered = expectations_stage.without_blocked(run, answered, expected.blocked)
    record.answers = sum(file.rows for file in answered.staged)
    content = publish_log.blocked_content(filled.content, record.blocked)
    # what is logged if this process dies between the commit and its log
    publish_log.note_content(run.warehouse, record, content)
    return replace(answered, filled=replace(filled, content=content))
