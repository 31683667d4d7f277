"""Judge the answers of a run by what their owners expect, and keep those of blocked queries unpublished.

Judged are the answers that a reader would see of the interval: those of the run and, if it is narrow, the published
ones that stay. A query that is blocked keeps its former answers; all others are published.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import Diagnostic, printable
from optimizer.errors.redaction import redacted
from optimizer.workload.expectations import AGE, RATIO, Expectation
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, Type, columns_of
from spark_jobs.audit.checks.data_docs import FOLDER, document, query_page_name, write_document
from spark_jobs.audit.checks.expected import ExpectationOutcome, ExpectationRequest, Judge, judged
from spark_jobs.pipeline.run import publication
from spark_jobs.pipeline.run.stream_events import StreamEvents, stream_requests
from spark_jobs.pipeline.run.values import AnsweredRun, FilledRun, Run
from spark_jobs.results.read import shaped
from spark_jobs.results.relations import slotted
from spark_jobs.store.warehouse import checks_log, publish_log, registry
from spark_jobs.store.warehouse.checks_log import CheckRow
from spark_jobs.store.warehouse.data_files import DataFile, read_file, write_files
from spark_jobs.store.warehouse.plans import planned
from spark_jobs.store.warehouse.publish_log import BLOCKED, LogRow
from spark_jobs.store.warehouse.schemas import ANSWERS, INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from spark_jobs.audit.checks.judging import PandasJudge

MOST_DOCS = 20
"""Queries of a run that Data Docs are written of: each is judged again for them, by itself."""

MOST_TOLD = 100
"""Findings about expectations that a record has; the checks of the run have all."""


@dataclass(frozen=True)
class Expected:
    """Outcome of the expectations of a run: a row of checks each, and the blocked queries with the sentences that
    block them."""

    rows: tuple[CheckRow, ...] = ()
    blocked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def expectations_of(warehouse: Warehouse, queries: Iterable[ACQ]) -> dict[str, tuple[Expectation, ...]]:
    """The expectations of some queries, by name: as they are registered now, if they still mean the same."""
    known = registry.registered(registry.events(warehouse))
    expected = {}
    for query in queries:
        now = known.get(query.name)
        is_current = now is not None and not now.removed and now.last.fingerprint == query.definition
        expected[query.name] = now.last.expect if now is not None and is_current else query.expect
    return {name: each for name, each in expected.items() if each}


def judge_expectations(run: Run, answered: AnsweredRun) -> Expected:
    """Judge the answers of a run, and note in its record what is not as expected."""
    filled = answered.filled
    queries = {query.name: query for query in _due(run, filled)}
    expected = expectations_of(run.warehouse, queries.values())
    requests: list[ExpectationRequest] = []
    raw: dict[str, pa.Table] = {}
    events = stream_requests(run, filled) if run.request.release is None else []
    if expected:
        raw = _answers(run, answered, expected.keys())
        compared = _Past(run, filled)
        for name, expectations in expected.items():
            query = queries[name]
            schema = dict(_columns(query))
            rows = _typed(query, raw[name], _named(expectations))
            requests += [compared.request(query, each, rows, schema) for each in expectations]
    if not requests and not events:
        return Expected()
    from spark_jobs.audit.checks.judging import PandasJudge

    judge_ = PandasJudge()
    judging_: Judge = judge_
    if run.engine.choice.name == "spark":
        from spark_jobs.audit.checks.spark_judging import SparkJudge

        judging_ = SparkJudge(run.engine.session, judge_)
    outcomes = judged(requests, judging_)
    _write_docs(run, judge_, outcomes)
    now = publish_log.now_micros()
    rows, blocked = list[CheckRow](), defaultdict[str, list[str]](list)
    for stream_events in events:
        for outcome in judged(stream_events.requests, judging_):
            _judge_events(run, filled, stream_events, outcome, rows, blocked, now)
    for outcome in outcomes:
        query = queries[outcome.request.subject]
        examples = _examples(query, raw[query.name], outcome)
        rows.append(_row(run, query, outcome, examples, now))
        if not outcome.success and outcome.request.expectation.blocks and not _is_released(run, query):
            blocked[query.name].append(outcome.request.expectation.text)
        # the record names all that block a query, and describes the first
        if len(blocked.get(query.name, ())) < 2 or not outcome.request.expectation.blocks:
            _tell(run, query, outcome, examples)
    release = run.request.release
    if release is not None:
        run.record.released[release.query] = release.reason
        message = f"released, although an expectation blocked revision {release.revision}: {release.reason}"
        warning = Diagnostic("HDL-567", message, "", query=release.query, severity="warning")
        run.record.diagnostics.append(warning.to_json())
    return Expected(tuple(rows), {name: tuple(texts) for name, texts in blocked.items()})


def _write_docs(run: Run, judge_: PandasJudge, outcomes: Sequence[ExpectationOutcome]) -> None:
    """Write Data Docs of the queries that have an expectation which is not met, a suite each."""
    from spark_jobs.audit.checks.judging import validated_alone

    failed = dict.fromkeys(each.request.subject for each in outcomes if not each.success)
    for name in list(failed)[:MOST_DOCS]:
        requests = [each.request for each in outcomes if each.request.subject == name]
        facts = {
            "query": name,
            "answers of": f"{format_instant(run.record.begin)} .. {format_instant(run.record.end)}",
            "revision": str(run.record.revision),
        }
        try:
            content = document(validated_alone(judge_, name, requests), facts)
        except Exception:
            # the outcomes are in quality_results: a page less is no reason to withhold answers of others
            continue
        page = query_page_name(run.record.run_id, run.record.revision, name)
        write_document(run.warehouse.place / FOLDER, page, content)


def _is_released(run: Run, query: ACQ) -> bool:
    return run.request.release is not None and run.request.release.query == query.name


def _due(run: Run, filled: FilledRun) -> Iterable[ACQ]:
    """The queries that the run has answered, and that may have answers in the interval."""
    for query in filled.narrowed.workload.queries:
        if query.stream not in filled.ends:
            continue
        until = filled.ends[query.stream] if query.until is None else min(filled.ends[query.stream], query.until)
        if publication.is_due(query, run.record.begin, until):
            yield query


def _columns(query: ACQ) -> Sequence[tuple[str, Type]]:
    return [(column.name, column.type) for column, _ in slotted(query)]


def _named(expectations: Iterable[Expectation]) -> set[str]:
    """The columns that expectations name."""
    return {name for each in expectations for name in (*each.columns, *columns_of(each.where))}


# ---------------------------------------------------------------------------------------------- events
def _judge_events(
    run: Run,
    filled: FilledRun,
    events: StreamEvents,
    outcome: ExpectationOutcome,
    rows: list[CheckRow],
    blocked: dict[str, list[str]],
    now: int,
) -> None:
    """Note the outcome of an expectation of a stream, and block the queries that read its columns."""
    expectation, stream = outcome.request.expectation, events.stream
    examples = [events.shown(place, expectation) for place in outcome.examples]
    rows.append(_row(run, None, outcome, examples, now, events.sampled))
    if outcome.success:
        return
    names = _named([expectation])
    readers = [
        query.name
        for query in filled.narrowed.workload.queries_of(stream.name)
        if names & {stream.time, *query.deciding_columns(stream)}
    ]
    message = f"stream {stream.name}: expected {expectation.text}: {outcome.summary()}"
    message += f": {'; '.join(examples)}" if examples else ""
    if expectation.blocks and readers:
        for name in readers:
            blocked[name].append(f"of stream {stream.name}: {expectation.text}")
        more = f", … {len(readers) - 5} more" if len(readers) > 5 else ""
        message += f"; not published: {', '.join(readers[:5])}{more}"
        hint = "correct the events and `heddle repair`, or publish a query: `heddle release QUERY --reason …`"
        run.record.diagnostics.append(Diagnostic(BLOCKED, message, hint).to_json())
    else:
        hint = "no query of the run reads the column" if expectation.blocks else "the answers are published"
        run.record.diagnostics.append(Diagnostic("HDL-565", message, hint, severity="warning").to_json())


# --------------------------------------------------------------------------------------------- answers
def _answers(run: Run, answered: AnsweredRun, names: Collection[str]) -> dict[str, pa.Table]:
    """The stored rows of some queries as they would be published, by query."""
    root, filled, record = run.warehouse.place / "results", answered.filled, run.record
    chosen = pa.array(sorted(names), pa.string())
    tables = []
    for file in answered.staged:
        rows = publication.with_declared_columns(read_file(root / file.path), ANSWERS.names)
        tables.append(rows.filter(pc.is_in(rows["query"].cast(pa.string()), value_set=chosen)))
    if filled.instants is not None:
        # of a narrow run the other answers of the interval stay
        begin, end = pa.scalar(record.begin, INSTANT), pa.scalar(record.end, INSTANT)
        stays = (ds.field("instant") > begin) & (ds.field("instant") <= end) & ds.field("query").isin(chosen)
        stored = run.warehouse.dataset("results", where=stays).to_table(filter=stays)
        until = publication.last_instants(filled)
        replaced = publication.answers_at(stored, until, filled.instants)
        tables.append(publication.with_declared_columns(stored.filter(pc.invert(replaced)), ANSWERS.names))
    empty = publication.with_declared_columns(pa.table({"query": pa.array([], pa.string())}), ANSWERS.names)
    rows = pa.concat_tables([table.cast(empty.schema) for table in tables] or [empty]).combine_chunks()
    encoded = rows["query"].combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    rows = rows.take(pa.array(order))
    by_query = {
        name: rows.slice(edges[code], edges[code + 1] - edges[code])
        for code, name in enumerate(encoded.dictionary.to_pylist())
    }
    return {name: by_query.get(name, empty) for name in names}


def _typed(query: ACQ, rows: pa.Table, names: Collection[str]) -> pa.Table:
    """Some columns of a query's answers, with the number of rows if there are none."""
    columns = [(column, slot) for column, slot in slotted(query) if column.name in names]
    if not columns:
        return rows.select(["instant"])
    return shaped(columns, rows)


def _examples(query: ACQ, rows: pa.Table, outcome: ExpectationOutcome) -> list[str]:
    """The first rows that are not as expected, as texts."""
    if not outcome.examples:
        return []
    named = _named([outcome.request.expectation])
    columns = [
        (column, slot)
        for column, slot in slotted(query)
        if column.role in ("position", "group") or column.name in ("window_end", "instant") or column.name in named
    ]
    shown = shaped(columns, rows.take(pa.array(outcome.examples)))
    return [
        printable(redacted(", ".join(f"{name}={_value(value)}" for name, value in row.items())), 200)
        for row in shown.to_pylist()
    ]


def _value(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    return "null" if value is None else str(value)


# ---------------------------------------------------------------------------------------------- the past
class _Past:
    """Numbers of rows of earlier intervals, each read once."""

    def __init__(self, run: Run, filled: FilledRun) -> None:
        self.run, self.filled = run, filled
        self._counts: dict[int, dict[str, int]] = {}
        self._publications: dict[int, list[LogRow]] = {}
        self._plans: dict[int, set[str]] = {}

    def request(
        self, query: ACQ, expectation: Expectation, rows: pa.Table, schema: Mapping[str, Type]
    ) -> ExpectationRequest:
        """The request for one expectation, with what it is compared with."""
        record, clock = self.run.record, self.run.request.clock
        request = ExpectationRequest(query.name, expectation, rows, schema, clock=clock)
        if expectation.form == AGE:
            next_end = record.end + (record.end - record.begin)
            lateness = self.filled.plan.workload.stream(query.stream).lateness
            is_past = next_end <= clock - lateness
            return replace(request, skipped="a later interval is due already") if is_past else request
        if expectation.form != RATIO:
            return request
        before, reason = self._before(query, expectation.span)
        return replace(request, before=before, skipped=reason)

    def _before(self, query: ACQ, span: int) -> tuple[int | None, str]:
        """The number of rows of the same interval a span ago; else why there is none to compare with."""
        begin, end = self.run.record.begin - span, self.run.record.end - span
        label = f"{format_instant(begin)} .. {format_instant(end)}"
        if not self._is_whole(query, begin, end, span):
            return None, f"nothing to compare with: {label} is not published in full"
        if span not in self._counts:
            at = (ds.field("instant") > pa.scalar(begin, INSTANT)) & (ds.field("instant") <= pa.scalar(end, INSTANT))
            stored = self.run.warehouse.dataset("results", where=at).to_table(["query"], filter=at)
            counts = pc.value_counts(stored["query"]).to_pylist()
            self._counts[span] = {entry["values"]: entry["counts"] for entry in counts}
        rows = self._counts[span].get(query.name, 0)
        return (rows, "") if rows else (None, f"nothing to compare with: no rows in {label}")

    def _is_whole(self, query: ACQ, begin: int, end: int, span: int) -> bool:
        """Return whether publications in force cover an interval with answers of a query."""
        if span not in self._publications:
            publications = publish_log.overlapping(self.run.warehouse, begin, end, publish_log.PUBLISHED)
            self._publications[span] = publish_log.standing(publications)
            for version in {row.plan_version for row in publications} - self._plans.keys():
                stored = planned(self.run.warehouse, ds.field("plan_version") == version)
                self._plans[version] = {row.query for row in stored}
        reached = begin
        for row in self._publications[span]:
            if row.begin <= reached and query.name in self._plans[row.plan_version] and _has_answered(row, query):
                reached = max(reached, row.end)
        return reached >= end


def _has_answered(row: LogRow, query: ACQ) -> bool:
    """Return whether a publication has all of its interval's answers to a query."""
    record = row.record
    by_itself = any(each["query"] == query.name and each["severity"] == "error" for each in record.diagnostics)
    return (
        not by_itself
        and query.name not in record.blocked
        and query.stream not in record.failed
        and query.stream not in record.withheld
    )


# ------------------------------------------------------------------------------------------- diagnostics
def _row(
    run: Run, query: ACQ | None, outcome: ExpectationOutcome, examples: Sequence[str], now: int, more: str = ""
) -> CheckRow:
    """The outcome as a row of the checks. ``query``: None for events of a stream."""
    expectation = outcome.request.expectation
    return CheckRow(
        run.record.run_id,
        run.record.begin,
        run.record.end,
        f"expect({expectation.text})",
        outcome.success,
        now,
        printable("; ".join(filter(None, (outcome.summary(), more, outcome.difference))), 600),
        query=outcome.request.subject,
        owner="" if query is None else query.owner,
        kind="events" if query is None else "answers",
        severity=expectation.severity,
        observed=outcome.observed,
        bound=outcome.bound,
        unexpected=outcome.unexpected,
        sample=json.dumps(list(examples), ensure_ascii=False) if examples else None,
        revision=run.record.revision,
    )


def _tell(run: Run, query: ACQ, outcome: ExpectationOutcome, examples: Sequence[str]) -> None:
    """Note in the record of a run what is not as expected."""
    expectation, diagnostics = outcome.request.expectation, run.record.diagnostics
    if len(diagnostics) > MOST_TOLD and not expectation.blocks:
        return
    if outcome.difference:
        message = f"{expectation.text}: {outcome.difference}; the stricter verdict counts"
        hint = "report it; the checks of the run have both counts"
        diagnostics.append(Diagnostic("HDL-566", message, hint, query=query.name, severity="warning").to_json())
    if outcome.success:
        return
    rows = f": {'; '.join(examples)}" if examples else ""
    message = f"expected {expectation.text}: {outcome.summary()}{rows}"
    if expectation.blocks and not _is_released(run, query):
        hint = f"correct the data and `heddle repair`, or publish it: heddle release {query.name} --reason …"
        diagnostics.append(Diagnostic(BLOCKED, message, hint, query=query.name).to_json())
    else:
        hint = "the answers are published: without (warn), or a release, they would not be"
        diagnostics.append(Diagnostic("HDL-565", message, hint, query=query.name, severity="warning").to_json())


def log_expected(warehouse: Warehouse, expected: Expected) -> None:
    """Log the outcomes of the expectations of a run."""
    if expected.rows:
        checks_log.log(warehouse, expected.rows)


# -------------------------------------------------------------------------------------------- publication
def without_blocked(run: Run, answered: AnsweredRun, blocked: Collection[str]) -> AnsweredRun:
    """The staged answers without those of blocked queries. Files that have some are written again."""
    if not blocked:
        return answered
    root, names = run.warehouse.place / "results", pa.array(sorted(blocked), pa.string())
    staged: list[DataFile] = []
    for file in answered.staged:
        queries = read_file(root / file.path, ["query"])["query"].cast(pa.string())
        is_blocked = pc.is_in(queries, value_set=names)
        if not pc.any(is_blocked).as_py():
            staged.append(file)
            continue
        rows = read_file(root / file.path).filter(pc.invert(is_blocked))
        if len(rows):
            rows = rows.append_column("day", pa.array([file.day] * len(rows), pa.string()))
            staged += write_files(root, rows)
        (root / file.path).remove()
    return replace(answered, staged=tuple(staged), findings=None)
