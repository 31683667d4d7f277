"""The fourth stage of a run: checks the staged answers; without all of them right nothing is published."""

from __future__ import annotations

from optimizer.errors.diagnostics import Diagnostic
from optimizer.workload.values import digest
from spark_jobs.audit.checks.audit import audit
from spark_jobs.audit.checks.data_docs import FOLDER
from spark_jobs.audit.checks.inspection import summed
from spark_jobs.audit.checks.sampling import Past
from spark_jobs.pipeline.run import publication
from spark_jobs.pipeline.run.values import AnsweredRun, CheckedRun, Run
from spark_jobs.store.warehouse import checks_log
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

    Raises HDL-530 if a check fails; the staged files are removed.
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
    except BaseException:
        for path in paths:  # no commit names them
            path.remove()
        raise
    return CheckedRun(answered, seed)
