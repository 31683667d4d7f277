"""Recomputes sampled windows of sampled queries unshared, from raw events, and compares."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import Choice, starts_of
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, Stream
from spark_jobs.arrays.numbering import distinct_rows
from spark_jobs.arrays.texts import as_texts, key_texts
from spark_jobs.checks.inspection import DICTIONARIES, dictionary_codes, instants_as_numbers, single_chunk
from spark_jobs.results.rows import places
from spark_jobs.session.on_demand import OnDemand, session_of
from spark_jobs.sources.decoding import read_splits
from spark_jobs.sources.expressions import arrow_type, evaluate
from spark_jobs.sources.replacements import disjoint
from spark_jobs.sources.splits import Split
from spark_jobs.storage import WHOLE, Place
from spark_jobs.unshared.values import spark_name
from spark_jobs.warehouse.data_files import BUCKETS, bucket_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SAMPLED_QUERIES = 3

SAMPLED_WINDOWS = 2

SAMPLED_EVENTS = 20_000
"""Of windows that hold more events than this, just some groups are recomputed: those of some buckets of keys."""

SCAN_SHARE = 0.15
"""What recomputing samples may cost, as a share of what it costs to read and group the run's events once..."""

LEAST_SECONDS = 0.45
"""...or so much: what that is for ten million events..."""

FEW_EVENTS = 1_000_000
"""...but runs over no more events than this recompute as many queries as any: what they cost is starting anyway."""

SECONDS = {"scanned": 3e-7, "query": 0.3, "read": 5e-8, "recomputed": 2.5e-6}
"""CPU time of Spark's scan of an event, and of a sample: of each query, of an event in a split that is read, and of one
that is recomputed. Measured; only their ratios matter."""

DRAWS = 6
"""Draws of windows of a query, of which the cheapest is taken: as a rule one in splits that are read anyway."""

RARE = 32
"""One audit in so many takes a window of any query, however many events it holds."""

LOCAL_EVENTS = 4_000_000
"""Events of the splits that the driver reads itself; more are read by Spark's tasks."""

Sample = list[tuple[ACQ, list[tuple[int, int]]]]


def recomputed(
    spark: SparkSession | OnDemand,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
) -> list[dict[str, Any]]:
    """Recompute sampled windows from raw events and compare: one check a query."""
    sampled = sample(plan.workload.queries, sources, begin, ends, random.Random(seed))
    wanted = [RecomputedQuery.of(query, windows, sources[query.stream], seed) for query, windows in sampled]
    stored = _staged_rows(staged, sampled)
    found = []
    for events in raw_events(plan, sources, wanted):
        query, windows = events.wanted.query, events.wanted.windows
        ours = [row for row in stored if row["query"] == query.name and events.wanted.has(row["key"])]

        def differences(recompute: Recompute, query: ACQ = query, ours: list[dict[str, Any]] = ours) -> list[str]:
            return compare(query, ours, recompute(query))

        told = f"{len(ours)} answers of {len(windows)} windows, e.g. from {format_instant(windows[0][0])}"
        found.append(events.check(spark, differences, lambda told=told: told))  # type: ignore[misc]
    return found


def sample(
    queries: Sequence[ACQ],
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    chance: random.Random,
) -> Sample:
    """Some queries with the content [start, end) of some of their windows, answered or not, to be recomputed.

    Raw events are dear: queries are taken while they cost little beside the run itself (:data:`SCAN_SHARE`), the
    cheapest of those drawn if none does; but at times (:data:`RARE`) a window of whatever query is drawn first, so that
    long windows over fast streams are recomputed too. Windows of rows are left out.
    """
    held = {name: EventsHeld(sources[name]) for name in ends}
    events = sum(held[name].events(begin, end) for name, end in ends.items())
    budget = inf if events <= FEW_EVENTS else max(LEAST_SECONDS, SCAN_SHARE * SECONDS["scanned"] * events)
    drawn = [query for query in queries if query.stream in ends and not query.window.is_rows]
    chance.shuffle(drawn)
    found: Sample = []
    if not chance.randrange(RARE):
        for query in drawn:
            possible = held[query.stream].instants(query, begin, ends[query.stream])
            if len(possible):
                windows = _draw(query, possible, 1, chance)
                found.append((query, windows))
                held[query.stream].open(windows)
                break
    fallback: tuple[float, ACQ, list[tuple[int, int]]] | None = None
    for query in drawn[: 8 * SAMPLED_QUERIES]:
        possible = held[query.stream].instants(query, begin, ends[query.stream])
        if len(found) == SAMPLED_QUERIES:
            break
        if len(possible) == 0 or any(query is taken for taken, _ in found):
            continue
        draws = [_draw(query, possible, SAMPLED_WINDOWS, chance) for _ in range(DRAWS)]
        cost, windows = min(((held[query.stream].cost(windows), windows) for windows in draws), key=itemgetter(0))
        if cost <= budget:
            budget -= cost
            found.append((query, windows))
            held[query.stream].open(windows)
        elif fallback is None or cost < fallback[0]:
            fallback = cost, query, windows
    if not found and fallback is not None:
        found.append(fallback[1:])
    return found


def _draw(query: ACQ, possible: Choice, most: int, chance: random.Random) -> list[tuple[int, int]]:
    picked = possible[sorted(chance.sample(range(len(possible)), min(most, len(possible))))]
    starts, ends = starts_of(query.window, picked), picked - query.window.ago
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


class EventsHeld:
    """What the splits of a source hold, as far as they say; which of them are read anyway."""

    def __init__(self, splits: Sequence[Split]) -> None:
        unknown = [split.begin is None or split.end is None for split in splits]
        self.spans = [span for split in splits for span in split.spans]
        self.begins = np.array([split.begin or 0 for split in splits], dtype=np.int64)
        self.ends = np.array([split.end or 0 for split in splits], dtype=np.int64)
        self.rows = np.where(unknown, 0, np.array([split.rows or 0 for split in splits], dtype=np.float64))
        self.opened = np.zeros(len(splits), dtype=bool)
        self.has_unknown = any(unknown)

    def instants(self, query: ACQ, begin: int, end: int) -> Choice:
        """The instants of a query in (begin, end] whose windows may hold an event; all of them if none may."""
        window = query.window
        if self.has_unknown:
            return Choice(window, ((begin, end),))
        met = disjoint(
            (max(first + window.ago, begin), min(last - 1 + window.reach, end))
            for first, last in self.spans
            if first is not None and last is not None
        )
        return Choice(window, met or ((begin, end),))

    def events(self, begin: int, end: int) -> float:
        """About how many events lie in [begin, end), spread evenly over each split; unknown ones count as none."""
        overlap = np.clip(np.minimum(self.ends, end) - np.maximum(self.begins, begin), 0, None)
        return float((self.rows * overlap / np.maximum(self.ends - self.begins, 1)).sum())

    def touched(self, windows: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
        """Which splits (n,) hold events of some windows."""
        found = np.zeros(len(self.rows), dtype=bool)
        for begin, end in windows:
            found |= (self.begins < end) & (self.ends > begin)
        return found

    def cost(self, windows: Sequence[tuple[int, int]]) -> float:
        """CPU seconds of recomputing a query's windows, about."""
        events = min(sum(self.events(*window) for window in windows), SAMPLED_EVENTS)
        read = float(self.rows[self.touched(windows) & ~self.opened].sum())
        return SECONDS["query"] + SECONDS["read"] * read + SECONDS["recomputed"] * events

    def open(self, windows: Sequence[tuple[int, int]]) -> None:
        """Count the splits of some windows as read."""
        self.opened |= self.touched(windows)


class RecomputedQuery(NamedTuple):
    """A query with the windows that are recomputed; ``buckets``: of the groups' keys, if just some are (if it counts
    rows, of the keys by which it does)."""

    query: ACQ
    windows: tuple[tuple[int, int], ...]
    buckets: tuple[int, ...] | None

    @classmethod
    def of(cls, query: ACQ, windows: Sequence[tuple[int, int]], splits: Sequence[Split], seed: str) -> RecomputedQuery:
        """A query's recomputation, of a sample of its groups if the windows hold many events; the same for one seed."""
        held = EventsHeld(splits)
        events = sum(held.events(*window) for window in windows)
        buckets = None
        if query.group_by and events > SAMPLED_EVENTS and query.top is None:
            count = max(1, int(BUCKETS * SAMPLED_EVENTS / events))
            buckets = tuple(random.Random(f"{seed}/{query.name}").sample(range(BUCKETS), count))
        return cls(query, tuple(windows), buckets)

    def has(self, key: str) -> bool:
        """Whether a group's key is recomputed."""
        return self.buckets is None or int(bucket_of([key])[0]) in self.buckets

    def columns(self, stream: Stream) -> list[str]:
        """The columns of the stream that the query reads, its time first."""
        return list(dict.fromkeys([stream.time, *self.query.columns()]))

    def of_batch(self, events: pa.RecordBatch, stream: Stream) -> pa.RecordBatch:
        """The events of a batch that have to be recomputed, with the columns that this takes."""
        moments = events.column(stream.time).cast(pa.int64())
        tests = [pc.and_(pc.greater_equal(moments, start), pc.less(moments, end)) for start, end in self.windows]
        chosen = events.filter(pc.fill_null(reduce(pc.or_, tests), False)).select(self.columns(stream))
        if self.buckets is None or chosen.num_rows == 0:
            return chosen
        per = self.query.window.per
        names = [name for name, _ in self.query.group_by if per is None or name in per]
        computed, schema = dict(self.query.derived), stream.types
        grouped = [
            evaluate(computed[name], chosen, schema) if name in computed else chosen.column(name) for name in names
        ]
        values, number, groups = distinct_rows(grouped, chosen.num_rows)
        keys = key_texts([as_texts(column) for column in values], groups).to_pylist()
        return chosen.filter(pa.array(np.isin(bucket_of(keys), self.buckets)[number]))


Recompute = Callable[[ACQ], list[dict[str, Any]]]
"""The rows of a query over the raw events at hand, by one engine or another."""


@dataclass(frozen=True)
class RawEvents:
    """The raw events that a query is recomputed from, of the splits of its stream; ``table``: those that count, with
    the source's own columns, None if they are too many to be read here."""

    wanted: RecomputedQuery
    stream: Stream
    splits: Sequence[Split]
    table: pa.Table | None

    def check(
        self,
        spark: SparkSession | OnDemand,
        differences: Callable[[Recompute], list[str]],
        detail: Callable[[], str],
    ) -> dict[str, Any]:
        """A check of what differs from the answers, as its dict.

        DuckDB recomputes what is read here, and where it finds nothing wrong, nothing is. What it finds wrong, or
        cannot tell, Spark recomputes, and what Spark says counts: a difference between two engines is no reason to
        withhold answers.
        """
        from spark_jobs.unshared.duckdb_expressions import CannotTell
        from spark_jobs.unshared.duckdb_windows import recompute_here

        found, time, windows, table = list[str](), self.stream.time, self.wanted.windows, self.table
        session: SparkSession | None = None
        try:
            if table is not None:
                found = differences(lambda query: recompute_here(table, query, time, windows))
        except CannotTell:
            session = session_of(spark)
            if session is None:
                raise
        noted = ""
        if found or table is None:
            session = session_of(spark)
        if session is not None:
            from spark_jobs.unshared.windows import recompute

            frame, first = self.frame(session), found
            found = differences(lambda query: recompute(frame, query, time, windows).toArrow().to_pylist())
            if first and not found:
                noted = f"; Spark agrees, DuckDB does not: {first[0]}"
        return {
            "check": f"shared=unshared({self.wanted.query.name})",
            "success": not found,
            "detail": "; ".join(found[:3]) or detail() + noted,
        }

    def frame(self, session: SparkSession) -> DataFrame:
        """The events as Spark has them."""
        if self.table is None:
            return _distributed(session, self.stream, self.wanted, self.splits)
        # one partition: nothing has to be exchanged
        held = self.table.rename_columns([spark_name(name) for name in self.table.column_names])
        return session.createDataFrame(held).coalesce(1)


def raw_events(
    plan: SharingPlan, sources: Mapping[str, list[Split]], wanted: Sequence[RecomputedQuery]
) -> Iterator[RawEvents]:
    """The raw events that are to be recomputed, query by query.

    The driver reads the splits of each stream once for all its queries; what holds too much for that, or does not say
    how much it holds, Spark's tasks read query by query.
    """
    for name in dict.fromkeys(one.query.stream for one in wanted):
        stream = plan.workload.stream(name)
        mine = [one for one in wanted if one.query.stream == name]
        windows = [window for one in mine for window in one.windows]
        needed = [split for split in sources[name] if any(split.may_hold(*window) for window in windows)]
        if sum(split.rows_about() for split in needed) > LOCAL_EVENTS:
            yield from (RawEvents(one, stream, needed, None) for one in mine)
            continue
        columns = list(dict.fromkeys(column for one in mine for column in one.columns(stream)))
        found: list[list[pa.RecordBatch]] = [[] for _ in mine]
        for events in read_splits(stream, needed, columns):
            for one, batches in zip(mine, found, strict=True):
                batches.append(one.of_batch(events, stream))
        types = stream.types
        for one, batches in zip(mine, found, strict=True):
            schema = pa.schema([(column, arrow_type(types[column])) for column in one.columns(stream)])
            # Spark 4.2 loses the rows of a table with empty batches before them
            held = pa.Table.from_batches([batch for batch in batches if batch.num_rows], schema).combine_chunks()
            yield RawEvents(one, stream, needed, held)


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


def _staged_rows(staged: list[str], sampled: Sample) -> list[dict[str, Any]]:
    """The staged answers of the sampled windows."""
    if not staged or not sampled:
        return []
    ends = {query.name: np.array([end for _, end in windows], dtype=np.int64) for query, windows in sampled}
    found: list[dict[str, Any]] = []
    for path in staged:
        reader = pq.ParquetFile(Place.of(path).open_unchanging(True, WHOLE), read_dictionary=DICTIONARIES)
        at = reader.schema_arrow.names.index("query")
        for number in range(reader.metadata.num_row_groups):
            bounds = reader.metadata.row_group(number).column(at).statistics
            told = bounds is not None and bounds.has_min_max
            if told and not any(bounds.min <= name <= bounds.max for name in ends):
                continue
            rows = reader.read_row_group(number, columns=["query", "window_end"], use_threads=False)
            query, moments = single_chunk(rows["query"]), instants_as_numbers(single_chunk(rows["window_end"]))
            codes, names = dictionary_codes(query), query.dictionary.to_pylist()
            chosen = np.zeros(len(rows), dtype=bool)
            for name in ends.keys() & set(names):
                chosen |= (codes == names.index(name)) & np.isin(moments, ends[name])
            if chosen.any():
                rows = reader.read_row_group(number, use_threads=False)
                found += rows.filter(pa.array(chosen)).to_pylist()
    return found


def compare(query: ACQ, ours: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Differences between staged rows and recomputed ones, for people; empty when they agree."""
    from spark_jobs.unshared.agreement import agrees, among_first, grain, qualifies
    from spark_jobs.unshared.values import recomputed_parts

    mine = {(row["window_end"], tuple(json.loads(row["key"]))): row for row in ours}
    theirs = {grain(query, row): row for row in expected}
    verdicts = {key: qualifies(query, row) for key, row in theirs.items()}
    among_first(query, theirs, verdicts)
    missing = [key for key, verdict in verdicts.items() if verdict and key not in mine]
    extra = [key for key in mine if verdicts.get(key, False) is False]
    differences = [f"{_told(key)} is missing" for key in sorted(missing, key=str)]
    differences += [f"{_told(key)} should not exist" for key in sorted(extra, key=str)]
    for key in sorted(mine.keys() & theirs.keys(), key=str):
        for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
            value = mine[key][carrier][index]
            if mine[key]["error"] and value is None:
                continue
            if not agrees(output, value, theirs[key]):
                told = {part.name: theirs[key][part.name] for part in recomputed_parts(output)}
                wanted = told if output.parts else theirs[key][output.name]
                differences.append(f"{_told(key)}: {output.name} is {value}, recomputed {wanted}")
    return differences


def _told(grain: tuple[Any, tuple[str | None, ...]]) -> str:
    """Of which answer a difference is, for people."""
    end, key = grain
    return f"window that ends at {end}, group {list(key)}"
