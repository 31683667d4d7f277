"""Answers of generated cases by the kernels alone, without a warehouse, compared with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, settings

from optimizer.plan.builder import build_plan
from optimizer.plan.pinning import since_origins
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.instants import DAY
from optimizer.workload.predicates import normal
from optimizer.workload.values import ACQ, Workload
from spark_jobs.engine.workers import uncounted
from spark_jobs.results.rows import group_values, places, typed
from spark_jobs.store.warehouse.schemas import ANSWERS, PARTIALS
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.finals.stage import finals_of
from spark_jobs.windows.finals.top import TopAnswers
from spark_jobs.windows.kinds import EXECUTIONS
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.synopsis_work import SynopsisWork, merged, span_covered
from spark_jobs.windows.sessions.answers import session_answers
from tests.oracle import answers, column_names, compare
from tests.sizes import examples
from tests.spark_jobs.sequence_finals import finals_of_sequences
from tests.workloads import Case

ALGORITHMS = ("weave-share", "no-share", "shared")


def decoded(case: Case) -> pa.Table:
    """The events as sources hand them to the kernels."""
    types = dict(case.stream.schema)
    return pa.table([case.events[name].cast(arrow_type(type)) for name, type in types.items()], names=list(types))


def as_read(query: ACQ, rows: pa.Table) -> pa.Table:
    """Rows of the answers' layout as the typed table of one query."""
    columns = {"window_start": rows["window_start"], "window_end": rows["window_end"], "instant": rows["instant"]}
    names = column_names(query)[2:]

    def element(lists: pa.ChunkedArray, index: int) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array([row[index] for row in lists.to_pylist()], lists.type.value_type)])

    values = group_values(rows["key"], len(query.group_by))
    for name, (_, type), texts in zip(names, query.group_by, values, strict=False):
        columns[name] = typed(texts, type)
    for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
        columns[output.name] = typed(element(rows[carrier], index), output.type)
    columns["error"] = rows["error"]
    return pa.table(columns)


def normalised(case: Case) -> Case:
    """The case with its filters as the parser leaves them."""
    schema = dict(case.stream.schema)
    queries = tuple(replace(query, filter=normal(query.filter, schema)) for query in case.workload.queries)
    return replace(case, workload=Workload(queries, case.workload.streams))


def kernel_answers(
    case: Case, algorithm: str, cuts: Sequence[int], begin: int, end: int, homes: Sequence[int] = ()
) -> pa.Table:
    """All answers of an interval by the kernels alone, the events arriving in pieces cut at ``cuts``.

    ``homes``: number of the synopsis that each query's family is put into; without them each has its own.
    """
    case = normalised(case)
    table = decoded(case)
    plan = build_plan(case.workload, {"events": Fraction(1)}, algorithm)
    first = pc.min(table[case.stream.time].cast(pa.int64())).as_py()
    plan = since_origins(plan, {} if first is None else {case.stream.name: first // DAY * DAY})
    bounds = sorted({0, len(table), *(cut % (len(table) + 1) for cut in cuts)})
    pieces = [table.slice(low, high - low).combine_chunks() for low, high in zip(bounds, bounds[1:], strict=False)]
    together: dict[int, list[str]] = {}
    for query, home in zip(case.workload.queries, homes, strict=False):
        together.setdefault(home, []).append(query.name)
    parts: list[SynopsisWork] = []
    for tree in plan.trees:
        for synopsis, members in synopses_of(case.stream, tree.queries, together.values()).items():
            first, last = span_covered(synopsis, [query.window for query in members], begin, end)
            if first < last:
                parts.append(SynopsisWork(synopsis, members, first, last, end))
    parts = merged(parts)
    if not parts:
        return ANSWERS.empty_table()
    spans = [FillRequest(part.synopsis, part.begin, part.end) for part in parts]
    partials: list[pa.Table] = []
    for kind, execution in EXECUTIONS.items():
        of_kind = [span for span in spans if span.synopsis.kind == kind]
        for piece in pieces if of_kind else ():
            lifting = execution.lifting(case.stream, of_kind)
            for batch in piece.to_batches():
                lifting.add(batch)
            partials += lifting.tables()
    rows = pa.concat_tables(partials) if partials else PARTIALS.empty_table()
    answer_batches: list[pa.RecordBatch] = []
    for part in parts:
        synopsis_rows = rows.filter(pc.equal(rows["fingerprint"], part.synopsis.fingerprint))
        if part.synopsis.gap is not None:
            days = session_answers(part, begin, synopsis_rows, TopAnswers(part.queries), uncounted)
            answer_batches += [answered.rows() for _, answered in days]
            continue
        finals = finals_of if part.synopsis.sequenced is None else finals_of_sequences
        answer_batches += finals(synopsis_rows, part.synopsis, part.queries, begin, end)
    return pa.Table.from_batches(answer_batches, ANSWERS)


def of_query(table: pa.Table, query: ACQ) -> pa.Table:
    return table.filter(pc.equal(table["query"], query.name))


def differences(case: Case, table: pa.Table) -> list[str]:
    lines = []
    for query in case.workload.queries:
        expected = answers(query, case.events, case.stream.time, case.begin, case.end)
        lines += [f"{query.name}: {line}" for line in compare(query, as_read(query, of_query(table, query)), expected)]
    return lines


FAST = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
