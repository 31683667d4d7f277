"""Recomputes sampled answers of sampled queries unshared, from raw events, and compares."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import count as number_of
from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import Choice
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, Stream
from spark_jobs.audit.checks.inspection import json_value
from spark_jobs.audit.checks.kinds import AUDITS
from spark_jobs.audit.checks.sampling import (
    Past,
    Units,
    bucket_count,
    drawn_windows,
    kinds_of,
    query_chances,
    query_weight,
    stratum_chances,
    systematic,
)
from spark_jobs.audit.checks.staged_answers import Staged, units_of
from spark_jobs.audit.unshared.values import spark_name
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.workers import EVENTS, Count
from spark_jobs.results.rows import places
from spark_jobs.store.arrays.numbering import distinct_rows
from spark_jobs.store.arrays.texts import as_texts, key_texts
from spark_jobs.store.warehouse.data_files import BUCKETS, bucket_of
from spark_jobs.store.warehouse.publish_log import coded_error
from spark_jobs.store.warehouse.schemas import micros, moment
from spark_jobs.streams.sources.decoding import read_splits
from spark_jobs.streams.sources.expressions import arrow_type, evaluate
from spark_jobs.streams.sources.formats.source_format import ReadByRun
from spark_jobs.streams.sources.replacements import disjoint
from spark_jobs.streams.sources.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRAWS = 2
"""Windows of a sampled query that are drawn among all that have answers, of large runs one; one more is drawn in a
stratum."""

SAMPLED_EVENTS = 20_000
"""Number of events in its windows above which a query is recomputed only for the groups of some buckets of keys."""

SHARE = 0.18
"""Limit for the cost of recomputing samples, as a share of what the run costs by :data:`SECONDS`. Inspecting the
answers and the inexactness of the estimate make it up to a quarter.
"""

SECONDS = {
    **{"run": 0.25, "answered": 6e-3, "scanned": 1.2e-7, "published": 1.3e-7},
    **{"query": 7e-3, "looked": 5e-8, "listed": 2e-7, "recomputed": 2.5e-6},
}
"""CPU time of a run: of a run at all, of a query, an event and an answer in it. Then of a sample: of each query, of an
answer that is looked at for its window, of an event in a sampled window, and of one in a group that is recomputed.
Measured."""

FEW_EVENTS = 1_000_000
"""Runs over no more events than this read the windows of each query wherever they lie; larger ones at one place."""

TASKS_A_CORE = 4
"""Most tasks a core that read raw events."""

LOCAL_EVENTS = 4_000_000
"""Events of the windows of a query that the driver reads itself. If there are more, tasks read them, each some files,
and hand back the events of the groups that are recomputed."""

LARGEST_FILE = 20_000_000
"""Events in sampled windows of a file up to which a task reads them: it holds them at once."""

LEAST_EVENTS = 100_000
"""Events of the groups that are recomputed that a task may hand back of a file; all files together
:data:`LOCAL_EVENTS`, if that is more."""

SPLITS_AT_ONCE = 256
"""Splits whose events are counted at once."""

TOO_LONG = "HDL-612"
"""Code in the row of a session that is longer than it may be."""

WITHOUT_ANSWERS = 0.25
"""Factor of the weight of a query that has no answers in the run."""


class Drawn(NamedTuple):
    """A sampled query: its windows, the numbers of those that are drawn, and ``buckets`` of the groups' keys (if it
    counts rows, of the keys by which it does), None: all groups are recomputed. ``within``: the spans (low, high] of
    instants whose answers are at hand."""

    units: Units
    numbers: tuple[int, ...]
    buckets: tuple[int, ...] | None
    within: tuple[tuple[int, int], ...] = ()

    @property
    def labels(self) -> list[str]:
        """Labels of the audited query, kinds and strata, as later runs look them up."""
        query = self.units.query
        strata = dict.fromkeys(label for number in self.numbers for label in self.units.labels(number))
        kinds = [f"kind {kind}" for kind in kinds_of(query)]
        return [f"query {query.name}", *kinds, *(f"stratum {query.name} {name}" for name in strata)]


def drawn(
    staged: Staged,
    queries: Sequence[ACQ],
    sources: Mapping[str, Sequence[Split]],
    begin: int,
    ends: Mapping[str, int],
    seed: str,
    past: Past,
    of_all: int | None = None,
) -> list[Drawn]:
    """The sample of a run's answers (:mod:`spark_jobs.audit.checks.sampling`); the same for one seed and past.
    ``of_all``: the number of queries of the run, if these are some of them."""
    if not queries:
        return []
    chance = random.Random(seed)
    counts = staged.counts()
    contents = {name: EventsHeld(sources[name]) for name in ends}
    events = sum(contents[name].events([(begin, end)]) for name, end in ends.items())
    draws = DRAWS if events <= FEW_EVENTS else 1
    costs = costs_of(queries, contents, begin, ends, draws)
    weights = [query_weight(query, past) * (1.0 if counts[query.name] else WITHOUT_ANSWERS) for query in queries]
    part = len(queries) / (of_all or len(queries))
    answers = sum(counts[query.name] for query in queries)
    budget = budget_of(events, len(queries), answers, part)
    # what is alike lies together: systematic sampling spreads the draws over it
    order = sorted(range(len(queries)), key=lambda at: (kinds_of(queries[at])[0], chance.random()))
    chances = query_chances([weights[at] for at in order], [costs[at].seconds for at in order], budget)
    chosen = [order[at] for at in systematic(chances, chance.random())]
    at = chance.random()
    due = {
        queries[index].name: contents[queries[index].stream].instants(
            queries[index], begin, ends[queries[index].stream]
        )
        for index in chosen
    }
    units = units_of(staged, [queries[index] for index in chosen], sources, begin, ends, past, due, chance.random())
    sample = []
    for index in chosen:
        query, own = queries[index], random.Random(f"{seed}/{queries[index].name}")
        query_units = units[query.name]
        place = own.random() if events <= FEW_EVENTS else at
        numbers = drawn_windows(query_units, stratum_chances(query_units, past), draws, place, own.random())
        if numbers:
            within = ((begin, ends[query.stream]),)
            sample.append(Drawn(query_units, tuple(numbers), costs[index].buckets(own), within))
    return sample


def budget_of(events: float, queries: int, answers: int, part: float = 1.0) -> float:
    """Limit for the cost of recomputing a sample, in CPU seconds, of a run that scans some events and answers some
    queries. ``part``: their share of the run's queries.
    """
    run_cost = (SECONDS["run"] + SECONDS["scanned"] * events) * part + SECONDS["answered"] * queries
    return SHARE * (run_cost + SECONDS["published"] * answers) - SECONDS["looked"] * answers


class Cost(NamedTuple):
    """Cost of recomputing the drawn windows of a query: the ``events`` in them, and whether they can be
    ``restricted`` to some of the groups.
    """

    events: float
    restricted: bool

    @property
    def seconds(self) -> float:
        """CPU seconds, about."""
        closely = min(self.events, SAMPLED_EVENTS) if self.restricted else self.events
        return SECONDS["query"] + SECONDS["listed"] * self.events + SECONDS["recomputed"] * closely

    def buckets(self, chance: random.Random) -> tuple[int, ...] | None:
        """The buckets whose groups are recomputed; None: all."""
        count = bucket_count(self.events, SAMPLED_EVENTS, BUCKETS) if self.restricted else BUCKETS
        return None if count == BUCKETS else tuple(sorted(chance.sample(range(BUCKETS), count)))


def costs_of(
    queries: Sequence[ACQ], by_stream: Mapping[str, EventsHeld], begin: int, ends: Mapping[str, int], draws: int
) -> list[Cost]:
    """Cost of recomputing each query, estimated with windows that lie evenly over the interval. ``draws``: as of
    :data:`DRAWS`.
    """
    spans: dict[str, list[tuple[int, int]]] = {name: [] for name in by_stream}
    places: list[slice] = []
    for query in queries:
        stream_spans = spans[query.stream]
        windows = AUDITS[query.kind].examples(query, by_stream[query.stream], begin, ends[query.stream])
        places.append(slice(len(stream_spans), len(stream_spans) + len(windows)))
        stream_spans += windows
    events = {name: by_stream[name].of_spans(spans[name]) for name in by_stream}
    costs = []
    for query, place in zip(queries, places, strict=True):
        audit = AUDITS[query.kind]
        count = audit.events_read(events[query.stream][place], by_stream[query.stream], draws, SAMPLED_EVENTS)
        costs.append(Cost(count, audit.is_restricted(query)))
    return costs


class EventsHeld:
    """Events in the splits of a source, as far as their statistics are known."""

    def __init__(self, splits: Sequence[Split]) -> None:
        unknown = [split.begin is None or split.end is None for split in splits]
        known = [
            (begin, end) for split in splits for begin, end in split.spans if begin is not None and end is not None
        ]
        self.spans = disjoint(known)
        self.has_unknown = any(unknown)
        self.begins = np.array([split.begin or 0 for split in splits], dtype=np.int64)
        self.ends = np.array([split.end or 0 for split in splits], dtype=np.int64)
        self.rows = np.where(unknown, 0, np.array([split.rows or 0 for split in splits], dtype=np.float64))

    def instants(self, query: ACQ, begin: int, end: int) -> Choice:
        """The instants of a query in (begin, end] whose windows may hold an event; all of them if none may."""
        window = query.window
        if self.has_unknown or not self.spans:
            return Choice(window, ((begin, end),))
        known = np.array(self.spans, dtype=np.int64)
        firsts, lasts = np.maximum(known[:, 0] + window.ago, begin), np.minimum(known[:, 1] - 1 + window.reach, end)
        firsts, lasts = firsts[firsts < lasts], lasts[firsts < lasts]
        # the spans are disjoint, so both ascend: what overlaps lies side by side
        cuts = np.flatnonzero(firsts[1:] >= lasts[:-1]) + 1
        pairs = zip(firsts[[0, *cuts]].tolist(), lasts[[*(cuts - 1), -1]].tolist(), strict=True) if len(firsts) else ()
        met = disjoint(pairs)
        return Choice(window, met or ((begin, end),))

    def of_spans(self, spans: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
        """Approximate number of events in each of some spans [start, end), with the events spread evenly over each
        split. Splits without statistics count as empty.
        """
        if not len(spans) or not len(self.rows):
            return np.zeros(len(spans))
        times, place = np.unique(np.array(spans, dtype=np.int64), return_inverse=True)
        before = np.zeros(len(times))
        for first in range(0, len(self.rows), SPLITS_AT_ONCE):
            some = slice(first, first + SPLITS_AT_ONCE)
            begins, ends = self.begins[some, np.newaxis], self.ends[some, np.newaxis]
            before += self.rows[some] @ np.clip((times - begins) / np.maximum(ends - begins, 1), 0.0, 1.0)
        reached = before[place.reshape(len(spans), 2)]
        return np.asarray(reached[:, 1] - reached[:, 0])

    def events(self, spans: Sequence[tuple[int, int]]) -> float:
        """About how many events lie in some spans together."""
        return float(self.of_spans(spans).sum())


# ------------------------------------------------------------------------------------------------ recomputing
def recomputed(
    engine: Engine,
    staged: Staged,
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
    past: Past | None = None,
) -> list[dict[str, Any]]:
    """Recompute sampled windows, all groups of each, from raw events and compare: one check a query."""
    queries = [query for query in plan.workload.queries if query.stream in ends and not AUDITS[query.kind].by_key]
    sample = drawn(staged, queries, sources, begin, ends, seed, past or Past(), len(plan.workload.queries))
    return [recorded(check) for check in compared(engine, staged, plan, sources, sample)]


def recorded(check: Mapping[str, Any]) -> dict[str, Any]:
    """A check as a run records it."""
    return {name: value for name, value in check.items() if name not in ("differences", "noted")}


def compared(
    engine: Engine,
    staged: Staged,
    plan: SharingPlan,
    sources: Mapping[str, Sequence[Split]],
    sample: Sequence[Drawn],
) -> list[dict[str, Any]]:
    """Recompute the drawn windows of time and compare: one check a query, with its ``differences`` and what is
    ``noted`` of how it was made."""
    by_name = {each.units.query.name: each for each in sample}
    recomputed_queries = [RecomputedQuery.of(each) for each in sample]
    stored: dict[str, list[dict[str, Any]]] = {}
    ends = {
        recomputed.query.name: AUDITS[recomputed.query.kind].ends_compared(each.units, recomputed.windows)
        for each, recomputed in zip(sample, recomputed_queries, strict=True)
    }
    for row in staged.rows(ends) if recomputed_queries else ():
        stored.setdefault(row["query"], []).append(row)
    checks = []
    for events in raw_events(engine, plan, sources, recomputed_queries):
        recomputed = events.wanted
        judged = partial(
            AUDITS[recomputed.query.kind].judged,
            recomputed.query,
            spans=recomputed.windows,
            within=by_name[recomputed.query.name].within,
        )
        ours = judged(stored.get(recomputed.query.name, []))
        read = [row for row in ours if recomputed.has(row["key"])]

        def differences(
            judge: Judge,
            query: ACQ = recomputed.query,
            ours: list[dict[str, Any]] = ours,
            read: list[dict[str, Any]] = read,
            judged: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = judged,
        ) -> list[Difference]:
            return compare(query, ours if judge.lists_all else read, judged(judge.rows(query)))

        check = events.check(engine, differences)
        check["detail"] = "; ".join(
            filter(None, (check["detail"], "" if not check["success"] else recomputed.described(len(read))))
        )
        checks.append(check | {"audited": by_name[recomputed.query.name].labels, "events": events.rows})
    return checks


class RecomputedQuery(NamedTuple):
    """A query with the windows that are recomputed; ``buckets``: of the groups' keys, if just some are (if it counts
    rows, of the keys by which it does)."""

    query: ACQ
    windows: tuple[tuple[int, int], ...]
    buckets: tuple[int, ...] | None

    @classmethod
    def of(cls, drawn: Drawn) -> RecomputedQuery:
        """A sampled query with the spans of its windows."""
        units = drawn.units
        spans = [(int(units.starts[number]), int(units.ends[number])) for number in drawn.numbers]
        return cls(units.query, tuple(AUDITS[units.query.kind].spans_read(spans)), drawn.buckets)

    def described(self, answers: int) -> str:
        """Text for people: the number of compared answers and windows."""
        some = "" if self.buckets is None else f", the groups of {len(self.buckets)} of {BUCKETS} buckets"
        return f"{answers} answers of {len(self.windows)} windows, e.g. from {format_instant(self.windows[0][0])}{some}"

    def has(self, key: str) -> bool:
        """Return whether a group's key is recomputed."""
        return self.buckets is None or int(bucket_of([key])[0]) in self.buckets

    def has_group(self, query: ACQ, row: dict[str, Any]) -> bool:
        """Return whether the group of a row is recomputed. ``query``: the query of the row, this one or one over
        the same keys.
        """
        from spark_jobs.audit.unshared.agreement import grain

        names, (_, key) = AUDITS[query.kind].bucketed_by(query), grain(query, row)
        return self.has(
            json_value([value for value, (name, _) in zip(key, query.group_by, strict=True) if name in names])
        )

    def columns(self, stream: Stream) -> list[str]:
        """The columns of the stream that the query reads, its time first."""
        return list(dict.fromkeys([stream.time, *self.query.columns()]))

    def of_batch(self, events: pa.RecordBatch, stream: Stream) -> pa.RecordBatch:
        """The events of a batch that have to be recomputed, with the columns that this takes."""
        chosen = events.filter(_inside(events.column(stream.time), self.windows)).select(self.columns(stream))
        if self.buckets is None or chosen.num_rows == 0:
            return chosen
        names = AUDITS[self.query.kind].bucketed_by(self.query)
        computed, schema = dict(self.query.derived), stream.types
        grouped = [
            evaluate(computed[name], chosen, schema) if name in computed else chosen.column(name) for name in names
        ]
        values, number, groups = distinct_rows(grouped, chosen.num_rows)
        keys = key_texts([as_texts(column) for column in values], groups).to_pylist()
        return chosen.filter(pa.array(np.isin(bucket_of(keys), self.buckets)[number]))


def _inside(times: pa.Array, windows: Sequence[tuple[int, int]]) -> pa.Array:
    moments = times.cast(pa.int64())
    tests = [pc.and_(pc.greater_equal(moments, start), pc.less(moments, end)) for start, end in merged_spans(windows)]
    return pc.fill_null(reduce(pc.or_, tests), False)


def merged_spans(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans that some windows cover together, ascending."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


class Judge(NamedTuple):
    """Source of recomputed answers: ``rows`` of a query over the raw events at hand. ``lists_all``: groups that are
    not recomputed have rows too, without values.
    """

    rows: Callable[[ACQ], list[dict[str, Any]]]
    lists_all: bool


@dataclass(frozen=True)
class RawEvents:
    """The raw events that a query is recomputed from, of the splits of its stream.

    - ``table``: those that count, with the source's own columns; None if they are too many for this process;
    - ``noted``: remarks on how they were read;
    - ``rows``: the query's share of the events that were read, for their cost;
    - ``has_others``: whether events of groups that are not recomputed are in the table.
    """

    wanted: RecomputedQuery
    stream: Stream
    splits: Sequence[Split]
    table: pa.Table | None
    noted: str = ""
    rows: int = 0
    has_others: bool = True

    def check(self, engine: Engine, differences: Callable[[Judge], list[Difference]]) -> dict[str, Any]:
        """Check the answers for differences, as the check's dict.

        DuckDB judges, and its verdict is final. Spark recomputes what DuckDB cannot express, or what is too much to
        read here; the check says so.
        """
        from spark_jobs.audit.unshared.duckdb_expressions import CannotTell

        noted = self.noted
        try:
            if self.table is None:
                raise CannotTell("there is too much to read")
            faults = differences(Judge(self._by_duckdb, self.has_others))
        except CannotTell as error:
            session = engine.session()
            if session is None:
                raise
            noted = f"recomputed by Spark: {error}"
            frame = self.frame(session)
            faults = differences(Judge(lambda query: self._by_spark(frame, query), False))
        check = {"check": f"shared=unshared({self.wanted.query.name})", "success": not faults}
        return check | {"detail": "; ".join(map(str, faults[:3])) or noted, "differences": faults, "noted": noted}

    def _by_duckdb(self, query: ACQ) -> list[dict[str, Any]]:
        from spark_jobs.audit.unshared.duckdb_windows import recompute_here

        is_whole = self.wanted.buckets is None or not self.has_others
        chosen = None if is_whole else partial(self.wanted.has_group, query)
        assert self.table is not None
        return recompute_here(self.table, query, self.stream.time, self.wanted.windows, chosen)

    def _by_spark(self, frame: DataFrame, query: ACQ) -> list[dict[str, Any]]:
        from spark_jobs.audit.unshared.windows import recompute

        rows: list[dict[str, Any]] = (
            recompute(frame, query, self.stream.time, self.wanted.windows).toArrow().to_pylist()
        )
        return rows

    def frame(self, session: SparkSession) -> DataFrame:
        """The events as Spark has them, of the groups that are recomputed."""
        if self.table is None:
            return _distributed(session, self.stream, self.wanted, self.splits)
        batches = [self.wanted.of_batch(batch, self.stream) for batch in self.table.to_batches()]
        # Spark 4.2 loses the rows of a table with empty batches before them
        rows = pa.Table.from_batches([batch for batch in batches if batch.num_rows], _schema(self.wanted, self.stream))
        rows = rows.rename_columns([spark_name(name) for name in rows.column_names])
        # one partition: nothing has to be exchanged
        return session.createDataFrame(rows.combine_chunks()).coalesce(1)


def raw_events(
    engine: Engine, plan: SharingPlan, sources: Mapping[str, Sequence[Split]], wanted: Sequence[RecomputedQuery]
) -> Iterator[RawEvents]:
    """The raw events that are to be recomputed, query by query.

    The driver reads those of each stream once for all its queries, unless the windows of a query hold too many.
    """
    for name in dict.fromkeys(query.query.stream for query in wanted):
        stream, splits = plan.workload.stream(name), sources[name]
        queries = [query for query in wanted if query.query.stream == name]
        contents = EventsHeld(splits)
        large = [query for query in queries if contents.events(merged_spans(query.windows)) > LOCAL_EVENTS]
        yield from _read_elsewhere(engine, stream, splits, large)
        small = [query for query in queries if query not in large]
        if small:
            table, noted = _events(stream, splits, _columns(stream, small), _spans(small))
            yield from (RawEvents(query, stream, splits, table, noted, len(table) // len(small)) for query in small)


def _columns(stream: Stream, wanted: Sequence[RecomputedQuery]) -> list[str]:
    return list(dict.fromkeys(column for query in wanted for column in query.columns(stream)))


def _spans(wanted: Sequence[RecomputedQuery]) -> list[tuple[int, int]]:
    return merged_spans([span for query in wanted for span in query.windows])


def _read_elsewhere(
    engine: Engine, stream: Stream, splits: Sequence[Split], wanted: Sequence[RecomputedQuery]
) -> Iterator[RawEvents]:
    """Raw events of queries whose windows hold too many for the driver: tasks read those of some groups, file by file.
    A plan of Spark's own reads all groups, and what is too much for a task or for the driver."""
    some = [query for query in wanted if query.buckets is not None]
    spans, columns = _spans(some), _columns(stream, some)
    files: dict[str, list[Split]] = {}
    for split in splits:
        if any(split.may_hold(*span) for span in spans):
            files.setdefault(split.path, []).append(split)
    of_files = list(files.values())
    if any(EventsHeld(of_file).events(spans) > LARGEST_FILE for of_file in of_files):
        of_files, some = [], []
    most = max(LEAST_EVENTS, LOCAL_EVENTS // max(len(of_files), 1))

    def task(numbers: Iterable[int], count: Count) -> Iterator[tuple[int, pa.Table | None, str]]:
        for number in numbers:
            events, noted = _events(stream, of_files[number], columns, spans)
            count(EVENTS, len(events))
            for at, query in enumerate(some):
                batches = [query.of_batch(batch, stream) for batch in events.to_batches()]
                chosen = pa.Table.from_batches(batches, _schema(query, stream)).combine_chunks()
                yield at, chosen if len(chosen) <= most else None, noted

    description = f"sample of {number_of(len(some), 'query')} of {stream.name}"
    try:
        outcome = engine.workers.run(task, len(of_files), TASKS_A_CORE * engine.workers.width, description)
    except Exception as error:
        raise coded_error(error) from error
    read = {id(query): [each[1:] for each in outcome.results if each[0] == at] for at, query in enumerate(some)}
    for query in wanted:
        parts = read.get(id(query))
        if parts is None or any(table is None for table, _ in parts):
            yield RawEvents(query, stream, splits, None)
            continue
        chosen = pa.concat_tables([_schema(query, stream).empty_table(), *(table for table, _ in parts)])
        notes = "; ".join(dict.fromkeys(noted for _, noted in parts if noted))
        rows = outcome.counts[EVENTS] // len(some)
        yield RawEvents(query, stream, splits, chosen.combine_chunks(), notes, rows, has_others=False)


def _events(
    stream: Stream, splits: Sequence[Split], columns: Sequence[str], spans: Sequence[tuple[int, int]]
) -> tuple[pa.Table, str]:
    """The events of some spans, and how they are read if not in the audit's own way."""
    try:
        # an executor may lack it
        from spark_jobs.audit.unshared.duckdb_files import events_of
    except ModuleNotFoundError as error:
        noted = f"its events as the run reads them: {error}"
    else:
        try:
            return events_of(stream, splits, columns, spans), ""
        except ReadByRun as reason:
            noted = f"its events as the run reads them: {reason}"
    needed = [split for split in splits if any(split.may_hold(*span) for span in spans)]
    batches = [
        batch.filter(_inside(batch.column(stream.time), spans)) for batch in read_splits(stream, needed, list(columns))
    ]
    schema = pa.schema([(column, arrow_type(stream.types[column])) for column in columns])
    return pa.Table.from_batches([batch.select(list(columns)) for batch in batches], schema).combine_chunks(), noted


def _schema(query: RecomputedQuery, stream: Stream) -> pa.Schema:
    return pa.schema([(column, arrow_type(stream.types[column])) for column in query.columns(stream)])


def _distributed(spark: SparkSession, stream: Stream, query: RecomputedQuery, splits: Sequence[Split]) -> DataFrame:
    columns, types = query.columns(stream), stream.types
    quoted = {name: "`" + spark_name(name).replace("`", "``") + "`" for name in columns}
    ddl = ", ".join(f"{quoted[name]} {'bigint' if types[name].name == 'long' else types[name]}" for name in columns)
    needed = [split for split in splits if any(split.may_hold(*window) for window in query.windows)]
    if not needed:
        return spark.createDataFrame([], ddl)

    def task(batches: Any) -> Any:
        for batch in batches:
            numbers = batch.column("id").to_pylist()
            for events in read_splits(stream, (needed[number] for number in numbers), columns):
                rows = query.of_batch(events, stream)
                yield rows.rename_columns([spark_name(name) for name in rows.schema.names])

    return spark.range(0, len(needed), 1, len(needed)).mapInArrow(task, ddl)


# ------------------------------------------------------------------------------------------------ comparing
@dataclass(frozen=True)
class Difference:
    """Difference of one answer, in the window that ends at ``end`` (microseconds) and a group: the ``output`` with
    the published and the recomputed value. Without an output, ``what`` describes the fault of the answer.
    """

    query: str
    end: int
    group: tuple[str | None, ...]
    what: str = ""
    output: str | None = None
    published: Any = None
    recomputed: Any = None

    def __str__(self) -> str:
        of = f"window that ends at {moment(self.end)}, group {list(self.group)}"
        if self.output is None:
            return f"{of} {self.what}"
        return f"{of}: {self.output} is {self.published}, recomputed {self.recomputed}"

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle audit --json`` prints them."""
        fields: dict[str, Any] = {
            "query": self.query,
            "window_end": format_instant(self.end),
            "group": list(self.group),
        }
        if self.output is None:
            return fields | {"what": self.what}
        values = {"published": self.published, "recomputed": self.recomputed}
        return fields | {"output": self.output} | {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    plain = value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value))
    return value if plain else str(value)


def compare(query: ACQ, ours: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[Difference]:
    """Differences between staged rows and recomputed ones; empty when they agree. Of recomputed rows without values
    only their existence counts."""
    from spark_jobs.audit.unshared.agreement import agrees, among_first, grain, qualifies
    from spark_jobs.audit.unshared.values import recomputed_parts

    staged_rows = {(row["window_end"], tuple(json.loads(row["key"]))): row for row in ours}
    expected_rows = {grain(query, row): row for row in expected}
    bare = {name for name, _ in query.group_by} | {*query.select, "window_start", "window_end"}
    listed = {key for key, row in expected_rows.items() if row.keys() <= bare}
    audit = AUDITS[query.kind]
    exists = audit.exists(query)
    verdicts = {key: exists if key in listed else qualifies(query, row) for key, row in expected_rows.items()}
    among_first(query, expected_rows, verdicts)

    def difference(key: Any, what: str = "", *values: Any) -> Difference:
        return Difference(query.name, micros(key[0]), key[1], what, *values)

    missing = [key for key, verdict in verdicts.items() if verdict and key not in staged_rows]
    # of a session that is longer than it may be there is a row, whatever its values
    is_long = {key for key, row in staged_rows.items() if (row["error"] or "").startswith(TOO_LONG) and key in verdicts}
    extra = [key for key in staged_rows if verdicts.get(key, False) is False and key not in is_long]
    differences = [difference(key, "is missing") for key in sorted(missing, key=str)]
    differences += [difference(key, "should not exist") for key in sorted(extra, key=str)]
    for key in sorted((staged_rows.keys() & expected_rows.keys()) - listed, key=str):
        starts = [row.get("window_start") for row in (staged_rows[key], expected_rows[key])]
        if starts[0] != starts[1] and None not in starts and audit.fixes_starts:
            differences.append(difference(key, f"starts at {starts[0]}, recomputed {starts[1]}"))
        for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
            value = staged_rows[key][carrier][index]
            if staged_rows[key]["error"] and value is None:
                continue
            if not agrees(output, value, expected_rows[key]):
                part_values = {part.name: expected_rows[key][part.name] for part in recomputed_parts(output)}
                expected_value = part_values if output.parts else expected_rows[key][output.name]
                differences.append(difference(key, "", output.name, value, expected_value))
    return differences
