"""Answers for readers: the newest ones of all queries, and one query over time. Read without a JVM.

A list of thousands of queries opens only the files of the newest days, and of these only the rows of the queries
that its page shows. The values are :mod:`spark_jobs.operations.series`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, SECOND, Output
from spark_jobs.audit.checks.data_docs import FOLDER, documents, query_page_name
from spark_jobs.audit.unshared.comparison import stored_comparisons
from spark_jobs.operations.series import (
    Choice,
    Compared,
    ExpectedSeries,
    FailedAnswer,
    Group,
    Grouping,
    Happened,
    Line,
    ListedQuery,
    Listing,
    OutputLines,
    QueryCost,
    QueryRun,
    QueryView,
    Sample,
    Span,
    Sparkline,
)
from spark_jobs.operations.snapshots import (
    Books,
    Results,
    books_of,
    known_queries,
    limited,
    newest_runs,
    newest_version_with,
)
from spark_jobs.pipeline.costs.money import CpuPrice, covered
from spark_jobs.results.read import typed_rows
from spark_jobs.results.rows import places
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import checks_log
from spark_jobs.store.warehouse.checks_log import CheckRow
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.registry import Registered
from spark_jobs.store.warehouse.schemas import INSTANT, moment
from spark_jobs.store.warehouse.warehouse import Warehouse

SHOWN = 50
"""Queries on a page of the list."""

NEWEST_DAYS = 2
"""Days of results, the newest, that the list reads."""

MORE_DAYS = 8
"""Days that it reads for queries of its page that have no answer in these."""

TOP = 6
"""Groups of a query that are drawn."""

FAILURES_SHOWN = 20
RUNS_SHOWN = 10
SHARERS_SHOWN = 12

ADDITIVE = ("count", "sum", "reached")
"""Functions of which the answers of several groups are added up."""

_READ = [
    *("query", "window_start", "window_end", "instant", "position", "key", "longs", "doubles", "texts", "error"),
    *("revision", "fingerprint"),
]


def is_numeric(output: Output) -> bool:
    """Return whether an output can be drawn over time."""
    return output.type.name in ("long", "double", "decimal")


# -------------------------------------------------------------------------------------------- all queries
def list_answers(warehouse: Warehouse, choice: Choice, now: datetime | None = None) -> Listing:
    """A page of the queries that were ever registered, by name, with their newest answers."""
    now = now or datetime.now(UTC)
    clock = round(now.timestamp() * SECOND)
    known = known_queries(warehouse).queries
    states = {name: query.state(clock) for name, query in known.items()}
    chosen = [name for name in sorted(known) if _is_chosen(known[name], states[name], choice)]
    pages = max(-(-len(chosen) // SHOWN), 1)
    page = min(max(choice.page, 1), pages)
    shown = chosen[(page - 1) * SHOWN : page * SHOWN]
    newest = newest_runs(warehouse)
    lateness = _lateness(newest.rows)
    empty = frozenset(newest.answered.record.empty) if newest.answered is not None else frozenset()
    rows, days = _newest_answers(Results(warehouse), {name: known[name].query for name in shown})
    listed = []
    for name in shown:
        query = known[name].query
        late = lateness.get(name, 0) if query.window.at_most is not None else None
        summary = ListedQuery(name, query.owner, query.stream, states[name], query.window, None, late, name in empty)
        listed.append(_with_answers(summary, query, rows[name]) if name in rows else summary)
    return Listing(
        now,
        replace(choice, page=page),
        tuple(listed),
        len(chosen),
        pages,
        dict(Counter(states.values())),
        tuple(sorted({query.last.owner for query in known.values()})),
        days,
        len(lateness),
    )


def _is_chosen(query: Registered, state: str, choice: Choice) -> bool:
    if (choice.owner and query.last.owner != choice.owner) or (choice.state and state != choice.state):
        return False
    text = choice.text.casefold()
    return not text or text in query.last.query.casefold() or text in query.query.stream.casefold()


def _lateness(newest: Sequence[LogRow]) -> dict[str, int]:
    """Lateness of queries (microseconds) in the newest live run of some rows, newest first."""
    live = (row.record for row in newest if row.event == "published" and row.record.live)
    return dict(next((record.lateness for record in live), {}))


def _newest_answers(results: Results, queries: Mapping[str, ACQ]) -> tuple[dict[str, pa.Table], tuple[str, str]]:
    """The newest results of queries by name, by instant; and the first and last day that was read."""
    days = results.days
    if not days or not queries:
        return {}, ("", "")
    first = days[-NEWEST_DAYS:][0]
    rows = results.rows(first, days[-1], _READ, ds.field("query").isin(list(queries)))
    newest = _by_query(queries, rows)
    missing = {name: query for name, query in queries.items() if name not in newest}
    if missing and len(days) > NEWEST_DAYS:
        first = days[-MORE_DAYS:][0]
        rows = results.rows(first, days[-NEWEST_DAYS - 1], _READ, ds.field("query").isin(list(missing)))
        newest |= _by_query(missing, rows)
    return newest, (first, days[-1])


def _by_query(queries: Mapping[str, ACQ], rows: pa.Table) -> dict[str, pa.Table]:
    """The rows that the definitions in force answered, of each query those by instant."""
    definitions = pa.array([query.definition for query in queries.values()])
    expected = definitions.take(pc.index_in(rows["query"].combine_chunks(), pa.array(list(queries))))
    own = pc.fill_null(pc.equal(rows["fingerprint"], expected), True)
    rows = rows.filter(own).sort_by([("query", "ascending"), ("instant", "ascending")]).combine_chunks()
    by_query, begin = {}, 0
    for counted in pc.value_counts(rows["query"]).to_pylist():
        by_query[counted["values"]] = rows.slice(begin, counted["counts"])
        begin += counted["counts"]
    return by_query


def _with_answers(listed: ListedQuery, query: ACQ, rows: pa.Table) -> ListedQuery:
    """A listed query with what the results have of it; ``rows``: at least one, by instant."""
    listed = replace(listed, newest=_newest_window(rows), errors=len(rows) - rows["error"].null_count)
    for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
        if is_numeric(output):
            return replace(listed, sparkline=_sparkline(query, output, rows, carrier, index))
    return replace(listed, text=_text_of(query, rows))


def _newest_window(rows: pa.Table) -> tuple[int, int, int]:
    """Start, end and newest revision of the newest window of some rows by instant."""
    start, end, instant = (rows[name][len(rows) - 1] for name in ("window_start", "window_end", "instant"))
    revisions = rows["revision"].filter(pc.equal(rows["instant"], instant))
    return start.value, end.value, pc.max(revisions).as_py()


def _sparkline(query: ACQ, output: Output, rows: pa.Table, carrier: str, index: int) -> Sparkline | None:
    """A sparkline with one number per instant; ``rows`` by instant."""
    values = pc.list_element(rows[carrier], index).cast(pa.float64()).to_numpy()
    usable = np.isfinite(values)
    if not usable.any():
        return None
    instants = rows["instant"].cast(pa.int64()).to_numpy()[usable]
    starts = np.flatnonzero(np.diff(instants, prepend=instants[0] - 1))
    is_sum = output.function in ADDITIVE
    together = (np.add if is_sum else np.maximum).reduceat(values[usable], starts)
    revisions = np.maximum.reduceat(rows["revision"].to_numpy()[usable], starts)
    samples = map(Sample, instants[starts].tolist(), together.tolist(), revisions.tolist())
    grouping: Grouping = "" if not query.group_by else "sum" if is_sum else "largest"
    newest = len(instants) - int(starts[-1])
    return Sparkline(output.name, newest, grouping, tuple(samples), _breaks(query, instants[starts]))


def _breaks(query: ACQ, instants: NDArray[np.int64]) -> tuple[int, ...]:
    """The instants (n,) before which days lie that have no answer, or were not read."""
    apart = max(DAY, 2 * query.window.slide if query.kind.has_instants else 0)
    return tuple(instants[1:][np.diff(instants) > apart].tolist())


def _text_of(query: ACQ, rows: pa.Table) -> str:
    """The first output of the newest answer in words; ``rows`` by instant."""
    typed = typed_rows(query, rows.slice(len(rows) - 1))
    value = typed.column(_first_output(query))[0].as_py()
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def _first_output(query: ACQ) -> int:
    """The column of a query's first output in its typed answers."""
    return 2 + bool(query.window.ago) + query.kind.counts_rows + len(query.group_by)


# -------------------------------------------------------------------------------------------- one query
def read_query(
    warehouse: Warehouse, name: str, span: Span | None = None, group: str = "", now: datetime | None = None
) -> QueryView:
    """One query over time.

    ``span`` without limits is counted back from the newest publication; ``group``: the key of the only group that
    is drawn, "": those with the largest newest values. Raises HDL-521 for a query that was never registered.
    """
    now = now or datetime.now(UTC)
    known = known_queries(warehouse)
    if name not in known.queries:
        raise HeddleError("HDL-521", f"there is no registered query {name}", meant(name, known.queries, "registered"))
    registered = known.queries[name]
    query, span = registered.query, limited(warehouse, span or Span("week"))
    stored = _results_in(warehouse, name, span)
    rows = _by_query({name: query}, stored).get(name, stored.slice(0, 0))
    groups = _groups(query, rows)
    drawn = [each_group for each_group in groups if each_group.key == group] if group else list(groups[:TOP])
    outputs = _lines(query, rows, drawn)
    errors = rows.filter(pc.is_valid(rows["error"]))
    runs = newest_runs(warehouse).rows
    version = newest_version_with(warehouse, name)
    books = books_of(warehouse, version) if version is not None else None
    return QueryView(
        now=now,
        query=query,
        state=registered.state(round(now.timestamp() * SECOND)),
        since=registered.since,
        file=registered.file or "",
        span=span,
        outputs=outputs,
        answers=len(rows),
        earlier=len(stored) - len(rows),
        groups=len(groups),
        top=tuple({each_group.key: each_group for each_group in (*groups[:TOP], *drawn)}.values()),
        group=group if drawn else "",
        revised=pc.sum(pc.greater(rows["revision"], 1)).as_py() or 0,
        failed=_failed(query, errors),
        failures=len(errors),
        runs=_runs_of(name, books, version, runs[:RUNS_SHOWN]),
        cost=_cost(warehouse, name, books, version, runs) if books is not None and version is not None else None,
        history=tuple(
            Happened(event.at, event.event, event.plan_version, event.reason)
            for event in reversed(known.events)
            if event.query == name
        ),
        warehouse=str(warehouse.place),
        newest=_newest_window(rows) if len(rows) else None,
        late=_lateness(runs).get(name, 0) if query.window.at_most is not None else None,
        expected=read_expected(warehouse, name, span),
        released=tuple((row.begin, row.end, reason) for row in runs if (reason := row.record.released.get(name))),
    )


def read_expected(warehouse: Warehouse, name: str, span: Span | None = None) -> tuple[ExpectedSeries, ...]:
    """The expectations of a query, or a stream, with their newest outcome and what was observed in a span."""
    by_text: dict[str, list[CheckRow]] = {}
    for row in checks_log.of_query(warehouse, name):
        by_text.setdefault(row.check, []).append(row)
    pages = documents(warehouse.place / FOLDER)
    every = [_expected(rows, span, pages) for rows in by_text.values()]
    return tuple(sorted(every, key=lambda each: (each.is_met, -each.end, each.text)))


def _expected(rows: Sequence[CheckRow], span: Span | None, pages: Collection[str]) -> ExpectedSeries:
    """The outcomes of one expectation, oldest first, as the page has them."""
    newest, by_interval = rows[-1], {(row.begin, row.end): row for row in rows}
    begin, end = (None, None) if span is None else (span.begin, span.end)
    samples = (
        Sample(row.end, row.observed, row.revision or 1)
        for row in sorted(by_interval.values(), key=lambda row: row.end)
        if row.observed is not None and (begin is None or row.end > begin) and (end is None or row.end <= end)
    )
    page = query_page_name(newest.run_id, newest.revision or 0, newest.query or "")
    return ExpectedSeries(
        newest.check.removeprefix("expect(").removesuffix(")"),
        newest.severity or "",
        newest.bound or "",
        newest.success,
        newest.observed,
        newest.detail,
        tuple(json.loads(newest.sample)) if newest.sample else (),
        newest.begin,
        newest.end,
        tuple(samples),
        page if page in pages else "",
    )


def _results_in(warehouse: Warehouse, name: str, span: Span) -> pa.Table:
    """The results of a query in a span, of whatever definition."""
    chosen, first, last = ds.field("query") == name, "", ""
    if span.begin is not None:
        chosen &= ds.field("instant") > pa.scalar(span.begin, INSTANT)
        first = day_label(span.begin)
    if span.end is not None:
        chosen &= ds.field("instant") <= pa.scalar(span.end, INSTANT)
        last = day_label(span.end - 1)
    return Results(warehouse).rows(first, last, _READ, chosen)


def _groups(query: ACQ, rows: pa.Table) -> tuple[Group, ...]:
    """The groups of some rows (by instant), those with the largest newest value of the first numeric output first."""
    if not len(rows):
        return ()
    number = pa.array(range(len(rows)))
    newest = pa.table({"key": rows["key"], "row": number}).group_by("key").aggregate([("row", "max")])
    typed = typed_rows(query, rows.take(newest["row_max"]))
    names = typed.schema.names[_first_output(query) - len(query.group_by) : _first_output(query)]
    columns = [typed[name].to_pylist() for name in names]
    at = next((place for place, output in enumerate(query.outputs) if is_numeric(output)), None)
    values = typed.column(_first_output(query) + at).to_pylist() if at is not None else [None] * len(typed)
    groups = [
        Group(key, ", ".join("null" if part is None else str(part) for part in parts), _number(value))
        for key, value, *parts in zip(newest["key"].to_pylist(), values, *columns, strict=True)
    ]
    return tuple(
        sorted(groups, key=lambda group: (-(group.value if group.value is not None else float("-inf")), group.label))
    )


def _number(value: Any) -> float | None:
    """A value of an output as a number that can be drawn; None: it is none."""
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    number = float(value)
    return number if abs(number) < float("inf") else None


def _lines(query: ACQ, rows: pa.Table, drawn: Sequence[Group]) -> tuple[OutputLines, ...]:
    """The numeric outputs of some groups; ``rows`` by instant."""
    drawn_lines: list[list[Line]] = [[] for output in query.outputs if is_numeric(output)]
    for group in drawn:
        own = rows.filter(pc.equal(rows["key"], group.key))
        typed = typed_rows(query, own)
        instants, revisions = own["instant"].cast(pa.int64()).to_pylist(), own["revision"].to_pylist()
        place = 0
        for number, output in enumerate(query.outputs):
            if not is_numeric(output):
                continue
            values = map(_number, typed.column(_first_output(query) + number).to_pylist())
            samples = (
                Sample(instant, value, revision)
                for instant, value, revision in zip(instants, values, revisions, strict=True)
                if value is not None
            )
            drawn_lines[place].append(Line(group.key, group.label, tuple(samples)))
            place += 1
    names = [output.name for output in query.outputs if is_numeric(output)]
    return tuple(OutputLines(name, tuple(lines)) for name, lines in zip(names, drawn_lines, strict=True))


def _failed(query: ACQ, errors: pa.Table) -> tuple[FailedAnswer, ...]:
    """The newest answers with an error."""
    newest = errors.sort_by([("instant", "descending")]).slice(0, FAILURES_SHOWN)
    labels = {group.key: group.label for group in _groups(query, newest.sort_by("instant"))}
    columns = newest["instant"].cast(pa.int64()), newest["key"], newest["error"]
    return tuple(
        FailedAnswer(instant, labels[key], code)
        for instant, key, code in zip(*(column.to_pylist() for column in columns), strict=True)
    )


# ------------------------------------------------------------------------------------------- runs and costs
def _measured(row: LogRow) -> float | None:
    return sum(row.record.cpu_seconds.values()) if row.record.cpu_seconds else None


def _part(books: Books | None, name: str) -> float:
    """A query's part of its plan's cost, from 0 to 1."""
    if books is None or name not in books.accounts or not books.plan.cost:
        return 0.0
    return float(books.accounts[name].here / books.plan.cost)


def _runs_of(name: str, books: Books | None, version: int | None, rows: Iterable[LogRow]) -> tuple[QueryRun, ...]:
    """Runs as the page of a query shows them: its part is known of those of the plan ``version``."""
    runs = []
    for row in rows:
        measured = _measured(row)
        is_priced = measured is not None and row.plan_version == version and row.event == "published"
        part = measured * _part(books, name) if measured is not None and is_priced else None
        late = row.record.lateness.get(name, 0)
        place = row.begin, row.end, row.revision, row.plan_version
        runs.append(QueryRun(row.run_id, row.event, moment(row.at), *place, late, measured, part, row.record.checked))
    return tuple(runs)


def _cost(warehouse: Warehouse, name: str, books: Books, version: int, rows: Sequence[LogRow]) -> QueryCost:
    """Cost of a query in the plan that answers it, and in the newest runs of that plan."""
    priced = [row for row in rows if row.event == "published" and row.plan_version == version]
    measured = [spent for row in priced if (spent := _measured(row)) is not None]
    price = CpuPrice.parse(settings().cpu_hour_price)
    reached = covered((row.begin, row.end) for row in priced if _measured(row) is not None)
    account, share, total = books.accounts[name], _part(books, name), sum(measured)
    tree = next(tree for tree in books.plan.trees if tree.id == account.tree)
    alone = float(account.alone / books.plan.cost) if books.plan.cost else 0.0
    sharers = [query.name for query in tree.queries if query.name != name]
    return QueryCost(
        version,
        account.tree,
        len(sharers),
        tuple(sharers[:SHARERS_SHOWN]),
        share,
        len(measured),
        total,
        total * share,
        total * alone,
        _compared(warehouse, name),
        price.a_month(total * share, reached) if price is not None else "",
    )


def _compared(warehouse: Warehouse, name: str) -> Compared | None:
    """The newest comparison that ran the query unshared; None: there is none."""
    for stored in reversed(stored_comparisons(warehouse)):
        for sample in stored.samples:
            if sample["query"] == name:
                try:
                    share = _part(books_of(warehouse, stored.plan_version), name)
                except HeddleError:
                    continue
                return Compared(
                    stored.at, stored.begin, stored.end, float(sample["cpu_seconds"]), stored.shared * share
                )
    return None
