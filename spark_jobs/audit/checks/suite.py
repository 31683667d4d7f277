"""Judge the counts of the pass over all answers with Great Expectations, in a separate process if one has begun.

Its import takes a second of Python code, so no other Python code runs in this process meanwhile. A live session
begins the other process before anything else (:func:`begin`). It has loaded everything by the time there are
answers to check, and judges those of all refreshes. If it cannot start, or has ended, this process does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # this file's folder is first; the project root is above it
    sys.path[0] = str(next(folder for folder in Path(__file__).resolve().parents if (folder / "heddle").is_dir()))

import atexit
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from subprocess import DEVNULL, PIPE, Popen
from typing import TYPE_CHECKING, Any

from spark_jobs.engine.light_imports import Absent, Deferred, Uncollected, set_aside
from spark_jobs.store.settings import settings

if TYPE_CHECKING:
    import pandas as pd


FINDINGS = (
    "wrong_schema",
    "null_keys",
    "repeated",
    "wrong_window",
    "wrong_shape",
    "negative_counts",
    "disordered",
    "impossible",
)
"""Counts over each query's staged answers; every count must be zero:

a file without the columns of the results table, or with others; missing query, window or group; a (query, window,
group) that occurs twice; a window that is not the query's or not of this interval; a key or lists of another length
than the query has group columns or outputs, or a query or stream that is not in the plan; counts below zero; a
mean, quantile or mode below the least value or above the greatest; values that no events can give (a null count, an
infinite mean of integers, a negative variance, a boolean that is neither 0 nor 1).
"""

COLUMNS = ("query", "answers", *FINDINGS, "examples")
"""Columns of the judged summary."""

Judgement = tuple[list[dict[str, Any]], dict[str, Any] | None]
"""The checks, and the content of their page (:func:`spark_jobs.audit.checks.data_docs.document`)."""

_idle: list[Popen[str]] = []
"""The other process, while it is idle."""


def begin(level: str | None) -> None:
    """Have another process load Great Expectations, to judge for this one from now on, if all answers are checked.
    ``level``: None means the setting.
    """
    if (settings().checks if level is None else level) == "all" and not _idle:
        # what it says of itself, this process says too if it has to judge instead
        with suppress(OSError):
            _idle.append(Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True))


@atexit.register
def end() -> None:
    """End the other process."""
    while _idle:
        _end(_idle.pop())


def _end(process: Popen[str]) -> None:
    # it ends once there is nothing to read, or nobody to answer: killed, it would leave its files behind
    with suppress(OSError), process:
        pass


@contextmanager
def judging(summary: Sequence[Mapping[str, Any]], facts: Mapping[str, str]) -> Iterator[Callable[[], Judgement]]:
    """Judge a summary (rows of :data:`COLUMNS`) in parallel with the body of the context. Calling the yielded
    function, once, waits for the judgement. ``facts``: lines for the head of its page.
    """
    process = _idle.pop() if _idle else None
    if process is None:
        judgement = _judged(summary, facts)
        yield lambda: judgement
        return

    def answer() -> Judgement:
        try:
            assert process.stdout is not None
            checks, document = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            return _judged(summary, facts)
        # only who has answered may be asked again: what is read next is the answer to that
        _idle.append(process)
        return checks, document

    try:
        # it is not there any more: nothing is to be read either
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.write(json.dumps([list(summary), dict(facts)]) + "\n")
            process.stdin.flush()
        yield answer
    finally:
        if process not in _idle:
            _end(process)


def _judged(summary: Sequence[Mapping[str, Any]], facts: Mapping[str, str]) -> Judgement:
    import pandas as pd

    from spark_jobs.audit.checks.data_docs import document

    documents: list[dict[str, Any]] = []
    frame = pd.DataFrame(summary, columns=list(COLUMNS))
    with Uncollected():
        checks = expectations(frame, lambda result: documents.append(document(result, facts)))
    return checks, documents[0] if documents else None


def _serve() -> None:
    """Judge each line of the standard input, until it ends."""
    # only a session that has ended, however, ends this
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # the first takes longer than those that follow, which say what is right in its words
    with Uncollected():
        _judged([dict.fromkeys(COLUMNS, 0) | {"query": "", "examples": ""}], {})
    for line in sys.stdin:
        print(json.dumps(_judged(*json.loads(line))), file=answers, flush=True)


def great_expectations() -> Any:
    """Great Expectations, whose import takes seconds: less than half without SQL, of which nothing here gives it any
    data, without Spark unless this process has it already, and without distributions, charts, schemas of JSON and
    Markdown, which no expectation here is about."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    is_new = "great_expectations" not in sys.modules
    with (
        Uncollected(),
        nullcontext() if "pyspark" in sys.modules else Absent("pyspark"),
        Absent("sqlalchemy"),
        Deferred("scipy.stats", "altair", "jsonschema", "mistune"),
    ):
        import great_expectations
    if is_new:
        set_aside()
    return great_expectations


def expectations(summary: pd.DataFrame, document: Callable[[Any], None] | None = None) -> list[dict[str, Any]]:
    """The Great Expectations suite over the result of :func:`spark_jobs.audit.checks.inspection.inspected`: one
    check an expectation. ``document`` is called with Great Expectations' result, for its Data Docs.
    """
    gx = great_expectations()
    expect = gx.expectations
    suite_of = [
        expect.ExpectTableColumnsToMatchSet(column_set=list(summary.columns), exact_match=True),
        expect.ExpectColumnValuesToNotBeNull(column="query"),
        expect.ExpectColumnValuesToBeUnique(column="query"),
        expect.ExpectColumnValuesToBeBetween(column="answers", min_value=0),
        # of counts, and quicker than to ask that each is zero
        *(expect.ExpectColumnSumToBeBetween(column=finding, max_value=0) for finding in FINDINGS),
    ]
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("staged").add_dataframe_asset("answers")
    batch = asset.add_batch_definition_whole_dataframe("all")
    suite = context.suites.add(gx.ExpectationSuite("answers", expectations=suite_of))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name="answers", data=batch, suite=suite))
    result = validation.run(batch_parameters={"dataframe": summary})
    if document is not None:
        document(result)
    checks = []
    for check in result.results:
        column = check.expectation_config.kwargs.get("column", "table")
        detail = ""
        if not check.success:
            # either of the whole expectation, or one a metric
            errors = check.exception_info or {}
            each = [errors] if "raised_exception" in errors else list(errors.values())
            raised = "; ".join(str(info["exception_message"]) for info in each if info["raised_exception"])
            rows = summary[summary[column] != 0] if column in FINDINGS else summary
            lines = [f"{row['query']}: {row[column]} ({row['examples']})" for _, row in rows.head(3).iterrows()]
            detail = raised[:300] or "; ".join(lines)
        checks.append(
            {"check": f"gx:{check.expectation_config.type}({column})", "success": bool(check.success), "detail": detail}
        )
    return checks


if __name__ == "__main__":
    _serve()
