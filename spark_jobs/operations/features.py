"""Features of labels: the answers of queries as of the moment of each label (docs/features.md).

:mod:`spark_jobs.windows.features.moments` states the rule. A set is computed in four steps:

1. each part of the labels is written by bucket of its keys (:mod:`spark_jobs.windows.features.labels`);
2. the events of labelled keys are lifted into cells, one a fragment of the query (``refreshed``) or one a microsecond
   (``exact``), but for time of which the warehouse has them (:mod:`spark_jobs.windows.features.lifting`);
3. tasks answer the labels of some buckets from the cells of these (:mod:`spark_jobs.windows.features.answering`);
4. the features of each part are put into the order of its labels.

A sample of the labels is recomputed before anything is handed over (:mod:`spark_jobs.operations.feature_checks`).
"""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import Synopsis, families_of
from optimizer.workload.attributes import attributes_in
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, Stream, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.workers import Count, Workers, tasks_for, uncounted
from spark_jobs.operations.feature_checks import DrawnLabels, LabelEvents, check_query
from spark_jobs.operations.feature_labels import (
    SEPARATOR,
    FeatureRequest,
    LabelForm,
    feature_fields,
    key_columns_of,
)
from spark_jobs.operations.feature_stores import CurrentRows, planned_synopsis, remaining, stored_spans
from spark_jobs.pipeline.run import preparation
from spark_jobs.pipeline.run.dimensions import versions_over_time
from spark_jobs.store.settings import settings
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile, SynopsisFailure
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.publish_log import coded_error
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_versions import version_named, with_version
from spark_jobs.streams.sources.ledger import Ledger
from spark_jobs.streams.sources.repetitions import distinct
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.features.answering import OVERFLOWS, AnsweredBy, FeatureUnit, Span, answer_labels
from spark_jobs.windows.features.labels import PART_ROWS, KeyColumns, KeyFilter, read_features, write_labels
from spark_jobs.windows.features.lifting import LiftedCells, lift_labelled

FOLDER = "features"
"""Folder of a warehouse for files on their way between tasks on other machines."""

EVENTS_A_TASK = 2_000_000
"""Events that justify a task that lifts them, beyond one a core."""

LABELS_A_PIECE = 250_000
"""Labels that a piece of work answers, about; there are at most as many pieces as buckets."""

CELLS_A_PIECE = 1_000_000
"""Cells that a piece of work reads, about."""

SAMPLE = 2_000
"""Labels of a set that are recomputed."""

EVER = 1 << 62


class FeaturePlan(NamedTuple):
    """The queries of a feature set, in the order of the request, and their streams as declared."""

    queries: tuple[ACQ, ...]
    streams: tuple[Stream, ...]
    plan: SharingPlan


def feature_plan(warehouse: Warehouse, request: FeatureRequest) -> FeaturePlan:
    """The queries of a request by the plan in force. Raises HDL-507 for an unknown one, HDL-648 for one that cannot be
    in a feature set."""
    version = current_version(warehouse)
    plan = load_plan(warehouse, version) if version else None
    known = {query.name: query for query in plan.workload.queries} if plan else {}
    queries = []
    for name in request.queries:
        if name not in known:
            raise HeddleError("HDL-507", f"there is no query {name} in the plan", meant(name, known))
        query = known[name]
        reason = None
        if not query.kind.has_fragments:
            reason = f"is over {query.kind.words}"
        elif query.top is not None:
            reason = f"answers the first {query.top.k} groups of each window"
        elif query.sets:
            reason = "has several grouping sets"
        elif query.window.has_origin:
            reason = "has windows since the first event"
        elif query.window.at_most is not None and not request.rule.is_exact:
            reason = "has a refresh bound, so that its instants follow from the runs: take --accuracy exact"
        elif request.rule.is_exact and any(part.calendar and part.calendar.ago for part in query.window.each):
            reason = "is over historical windows of a calendar, which have instants: take --accuracy refreshed"
        if reason is not None:
            raise HeddleError("HDL-648", f"{name} {reason}", "take queries over windows of time without LIMIT")
        queries.append(query)
    if plan is None or not queries:
        raise HeddleError("HDL-507", "a feature set needs a query", "`heddle queries` lists them")
    names = dict.fromkeys(query.stream for query in queries)
    return FeaturePlan(tuple(queries), tuple(plan.workload.stream(name) for name in names), plan)


@dataclass(frozen=True)
class PartSummary:
    """A part of the labels that was written.

    ``first``, ``last``: the least and the greatest moment (microseconds), ``earliest``: the number of the row of the
    former. Some of the rows, drawn at random, are to be recomputed: ``priorities`` (s,), ``places`` (s,) in the part,
    ``moments`` (s,) and ``keys`` (s,) by group column.
    """

    name: str
    rows: int
    first: int
    last: int
    earliest: int
    priorities: Any
    places: Any
    moments: Any
    keys: pa.Table


def write_part(
    place: Place, form: LabelForm, key_columns: Sequence[KeyColumns], labels: pa.Table, first: int = 0
) -> PartSummary:
    """Write a part of the labels (one row or more). ``first``: the number of its first row, for messages. Raises
    HDL-641 and HDL-644 for labels that cannot be used."""
    moments, values = form.values(labels, first)
    name = uuid.uuid4().hex
    write_labels(place, name, moments, values, key_columns)
    chance = np.random.default_rng()
    priorities = chance.random(len(moments))
    places = np.argsort(priorities)[:SAMPLE] if len(moments) > SAMPLE else np.arange(len(moments))
    keys = pa.table({group: column.take(pa.array(places)) for group, column in values.items()})
    earliest = int(np.argmin(moments))
    bounds = int(moments[earliest]), int(moments.max()), first + earliest
    return PartSummary(name, len(moments), *bounds, priorities[places], places, moments[places], keys)


def drawn_places(parts: Sequence[PartSummary], most: int) -> list[Any]:
    """The places, among the rows that each part has drawn, of at most so many of all parts."""
    every = np.concatenate([np.empty(0), *(part.priorities for part in parts)])
    limit = np.inf if len(every) <= most else np.partition(every, most)[most]
    return [np.flatnonzero(part.priorities < limit) for part in parts]


class StreamSource(NamedTuple):
    """A stream as it is read for features: with the versions of its dimensions, its files without repetitions, and the
    ledger of these."""

    stream: Stream
    splits: list[Split]
    arrivals: Ledger


class PartReader(NamedTuple):
    """The features of the parts of labels, as tasks have written them: of each query by some ``units``, in ``pieces``.
    ``rows``: of each part; ``fields``: the columns."""

    place: Place
    queries: tuple[ACQ, ...]
    units: list[list[int]]
    pieces: int
    rows: list[int]
    fields: pa.Schema
    with_upto: bool

    def part(self, number: int) -> pa.Table:
        """The features of a part's labels, in their order."""
        columns: list[pa.ChunkedArray] = []
        for query, units in zip(self.queries, self.units, strict=True):
            features = read_features(self.place, units, self.pieces, number, self.rows[number])
            columns += [features[output.name] for output in query.outputs]
            columns += [features["upto"]] if self.with_upto else []
        return pa.table(columns, schema=self.fields)


@dataclass
class FeatureSet:
    """Features in the making: parts of labels are added, then all are computed, then read part by part.

    ``place``: the folder of files on their way; ``recomputed``: labels of which the features were; ``findings``:
    warnings.
    """

    warehouse: Warehouse
    request: FeatureRequest
    planned: FeaturePlan
    form: LabelForm
    engine: Engine
    place: Place
    parts: list[PartSummary] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)
    units: list[FeatureUnit] = field(default_factory=list)
    sources: dict[str, StreamSource] = field(default_factory=dict)
    pieces: int = 1
    rows: int = 0
    overflows: bool = False
    recomputed: int = 0
    synopses: dict[str, Synopsis] = field(default_factory=dict)
    cells: int = 0

    def __post_init__(self) -> None:
        queries, rule = self.planned.queries, self.request.rule
        streams = {stream.name: stream for stream in self.planned.streams}
        if not (rule.is_exact or rule.knows_then):
            # of both the cells are not stored
            for query in queries:
                if (synopsis := planned_synopsis(self.planned.plan, query, streams[query.stream])) is not None:
                    self.synopses[query.name] = synopsis
        keys = [key_columns_of(query) for query in queries]
        keys += [
            key_columns_of(query, self.synopses[query.name].bucket_by)
            for query in queries
            if query.name in self.synopses
        ]
        self.key_columns = list(dict.fromkeys(keys))

    def add(self, labels: pa.Table) -> None:
        """Add a part of the labels. Raises as :func:`write_part`."""
        if len(labels):
            self.add_written(write_part(self.place, self.form, self.key_columns, labels, self.rows))

    def add_written(self, part: PartSummary) -> None:
        """Add a part that was written."""
        self.parts.append(part)
        self.rows += part.rows

    @property
    def moments(self) -> tuple[int, int]:
        """The least and the greatest moment of the labels."""
        return min(part.first for part in self.parts), max(part.last for part in self.parts)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the features."""
        return [each for query in self.planned.queries for each in feature_fields(query, self.request.with_upto)]

    def compute(self) -> None:
        """Compute the features of all parts. Raises what reading the streams raises."""
        if not self.parts:
            return
        self._list()
        for stream in self.sources.values():
            self._lift(stream)
        self.pieces = min(max(1, self.rows // LABELS_A_PIECE, self.cells // CELLS_A_PIECE), BUCKETS)
        names = [part.name for part in self.parts]
        task = answer_labels(str(self.place), names, self.units, self.pieces)
        counts = self._done(task, self.pieces, tasks_for(self.rows, self.workers.width, 0), "features").counts
        self.overflows = bool(counts[OVERFLOWS])
        if self.overflows:
            message = f"{counts[OVERFLOWS]:,} values of features do not fit their types: they are null"
            hint = "compute them in double, for instance by multiplying with 1e0"
            self.findings.append(Diagnostic("HDL-649", message, hint, severity="warning"))

    def checked_parts(self) -> Iterator[pa.Table]:
        """Yield the features of each part, and after the last recompute a sample of all labels from raw events
        (:mod:`spark_jobs.operations.feature_checks`).

        Nothing may be handed over before it ends. Raises HDL-530 if a feature differs, HDL-531 if the check fails.
        """
        places, read = drawn_places(self.parts, SAMPLE), self._reader()
        drawn = []
        for number in range(len(self.parts)):
            features = read.part(number)
            drawn.append(features.take(pa.array(self.parts[number].places[places[number]])))
            yield features
        self._check(places, drawn)

    def write_checked(self, attached: Callable[[str, pa.Table], None]) -> None:
        """Have tasks hand over the features of each part, with its name, and recompute a sample as
        :meth:`checked_parts` does. Raises as that, and what a task raises."""
        places, read = drawn_places(self.parts, SAMPLE), self._reader()
        chosen = [part.places[of_part] for part, of_part in zip(self.parts, places, strict=True)]
        names = [part.name for part in self.parts]

        def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[tuple[int, pa.Table]]:
            for number in numbers:
                features = read.part(number)
                attached(names[number], features)
                yield number, features.take(pa.array(chosen[number]))

        drawn = dict(self._done(task, len(names), len(names), "features").results)
        self._check(places, [drawn[number] for number in range(len(names))])

    def _check(self, places: Sequence[Any], drawn: Sequence[pa.Table]) -> None:
        """Recompute the features of labels at some ``places`` among those that each part has drawn."""
        if not drawn:
            return
        features = pa.concat_tables(drawn)
        pairs = list(zip(self.parts, places, strict=True))
        moments = np.concatenate([part.moments[chosen] for part, chosen in pairs])
        keys = pa.concat_tables([part.keys.take(pa.array(chosen)) for part, chosen in pairs])
        # of too many events only the first labels are recomputed: they are in no order
        order = np.random.default_rng().permutation(len(moments))
        labels = DrawnLabels(moments[order], keys.take(pa.array(order)))
        for unit in {(unit.query.name, unit.answered.begin): unit for unit in self.units}.values():
            chosen = np.flatnonzero((labels.moments >= unit.answered.begin) & (labels.moments < unit.answered.end))
            if not len(chosen):
                continue
            columns = [features[f"{unit.query.name}{SEPARATOR}{output.name}"] for output in unit.query.outputs]
            own = pa.table(columns, names=[output.name for output in unit.query.outputs])
            own = own.take(pa.array(order[chosen]))
            some = DrawnLabels(labels.moments[chosen], labels.keys.take(pa.array(chosen)))
            source = self.sources[unit.query.stream]
            events = LabelEvents(unit.stream, source.splits, self._arrived(source, source.splits))
            try:
                count = check_query(unit.query, self.request.rule, events, some, own, self.workers, self.overflows)
                self.recomputed = max(self.recomputed, count)
            except HeddleError:
                raise
            except Exception as error:
                message = f"the check of {unit.query.name} failed: {type(error).__name__}: {error}"
                raise HeddleError("HDL-531", message, "report it") from error

    def _reader(self) -> PartReader:
        queries = self.planned.queries
        units = [[at for at, unit in enumerate(self.units) if unit.query.name == query.name] for query in queries]
        fields, rows = pa.schema(self.fields), [part.rows for part in self.parts]
        return PartReader(self.place, queries, units, self.pieces, rows, fields, self.request.with_upto)

    @property
    def workers(self) -> Workers:
        """The workers that compute them."""
        return self.engine.workers

    def _done(self, task: Any, pieces: int, most: int, description: str) -> Any:
        try:
            return self.workers.run(task, pieces, most, description)
        except Exception as error:
            raise coded_error(error) from error

    # ------------------------------------------------------------------------------------------- events
    def _list(self) -> None:
        """List the files of the streams that events may be in."""
        queries, streams, rule = self.planned.queries, self.planned.streams, self.request.rule
        workload = Workload(queries, streams)
        plan = build_plan(workload, {stream.name: Fraction(1) for stream in streams}, "shared")
        first, last = self.moments
        instants = [
            rule.instants(query, workload.stream(query.stream), np.array([first, last])).tolist() for query in queries
        ]
        within = min(least for least, _ in instants) - 1, max(greatest for _, greatest in instants)
        clock = time.time_ns() // 1000
        listing = preparation.listed(self.warehouse, plan, clock, within=within)
        errors = [Diagnostic(**problem) for problem in listing.problems if problem["severity"] == "error"]
        if listing.failed or listing.unfit:
            raise HeddleError.of(errors[0], *errors[1:])
        for stream in streams:
            pinned = listing.streams.get(stream.name, stream)
            of_stream = [query for query in queries if query.stream == stream.name]
            begin, end = self._span(of_stream, pinned, (first, last))
            splits, arrivals = listing.sources[stream.name], listing.arrivals[stream.name]
            if rule.knows_then:
                # of events that repeat each other the first to arrive counts
                known = arrivals.of(split.identity for split in splits)
                splits = sorted(splits, key=lambda split: known[split.identity].arrived)
            splits = distinct(self.warehouse, pinned, splits, begin, end)
            self.sources[stream.name] = StreamSource(pinned, splits, arrivals)

    def _span(self, queries: Sequence[ACQ], stream: Stream, moments: tuple[int, int]) -> Span:
        """The time [begin, end) of the events that count for labels with moments between two, both included."""
        rule, begins, ends = self.request.rule, [], []
        for query in queries:
            spans = rule.spans(query, rule.instants(query, stream, np.array(moments)))
            begins += [int(starts[0]) for starts, _ in spans]
            ends += [int(last[1]) for _, last in spans]
        return min(begins), max(max(ends), min(begins))

    def _lift(self, source: StreamSource) -> None:
        """Plan the units of a stream's queries, and lift the cells that are not stored."""
        queries = [query for query in self.planned.queries if query.stream == source.stream.name]
        rule = self.request.rule
        for (first, last), stream in self._streams_over_time(source, queries):
            moments = max(first, self.moments[0]), min(last - 1, self.moments[1])
            known = self._stored(source, queries, moments)
            units: list[FeatureUnit] = []
            lifted: list[Span] = []
            for members in families_of(queries).values():
                synopsis = rule.synopsis(stream, members)
                for query in members:
                    spans = known[query.name].spans if query.name in known else ()
                    span = remaining(spans, *self._span([query], stream, moments), query.window.reach)
                    if span is not None:
                        lifted.append(span)
                        keys = self.key_columns.index(key_columns_of(query))
                        answered = AnsweredBy(first, last, spans, False)
                        units.append(FeatureUnit(query, stream, rule, keys, synopsis, (), answered))
            if units:
                begin, end = min(begin for begin, _ in lifted), max(end for _, end in lifted)
                fragments = [unit.synopsis.fragments for unit in units]
                begin = min(each.last_edge(begin) for each in fragments)
                end = max(each.next_edge(end - 1) for each in fragments)
                files = self._lifted(source._replace(stream=stream), units, begin, end)
                self.units += [unit._replace(files=files) for unit in units]

    def _stored(self, source: StreamSource, queries: Sequence[ACQ], moments: tuple[int, int]) -> dict[str, CurrentRows]:
        """The stored rows that answer some labels of queries, by name; their units are planned."""
        known: dict[str, CurrentRows] = {}
        rows: dict[str, int] = {}
        current = self.warehouse.table("partials") if self.synopses else None
        for query in queries:
            if query.name not in self.synopses:
                continue
            assert current is not None
            stream = source.stream
            synopsis = planned_synopsis(self.planned.plan, query, stream) or self.synopses[query.name]
            begin, end = self._span([query], stream, moments)
            stored = stored_spans(self.warehouse, synopsis, source.splits, begin, end, current)
            if stored.spans:
                known[query.name] = stored
                rows[synopsis.fingerprint] = stored.rows
                keys = self.key_columns.index(key_columns_of(query, synopsis.bucket_by))
                answered = AnsweredBy(-EVER, EVER, stored.spans, True)
                unit = FeatureUnit(query, stream, self.request.rule, keys, synopsis, stored.files, answered)
                self.units.append(unit._replace(spans=stored.spans))
        self.cells += sum(rows.values())
        return known

    def _streams_over_time(self, source: StreamSource, queries: Sequence[ACQ]) -> Iterator[tuple[Span, Stream]]:
        """The stream with the versions of its dimensions that labels know, each with the moments [begin, end) of these
        labels. Raises HDL-647 for labels before anything is recorded."""
        stream, rule = source.stream, self.request.rule
        if not rule.knows_then:
            yield (-EVER, EVER), stream
            return
        arrivals = [arrival.arrived for arrival in source.arrivals.all()]
        self._check_recorded(min(arrivals, default=EVER), f"the first file of stream {stream.name} arrived")
        columns = sorted({column for query in queries for column in query.columns()})
        used = {attribute.dimension for attribute in attributes_in(stream, columns).values()}
        versions = versions_over_time(self.warehouse, used)
        for name, known in versions.items():
            self._check_recorded(known[0][0] if known else EVER, f"a run first used dimension {name}")
        cuts = sorted({at for known in versions.values() for at, _ in known if at <= self.moments[1]} | {-EVER})
        for first, last in pairwise([*cuts, EVER]):
            if last > self.moments[0]:
                in_force = {
                    name: [id for at, id in known if at <= max(first, self.moments[0])][-1]
                    for name, known in versions.items()
                }
                yield (first, last), self._with_versions(stream, in_force)

    def _check_recorded(self, since: int, what: str) -> None:
        """Raises HDL-647 for labels before a moment."""
        earliest = min(self.parts, key=lambda part: part.first)
        if earliest.first < since:
            at = format_instant(earliest.first)
            recorded = f"{what} at {format_instant(since)}" if since < EVER else f"it is not recorded when {what}"
            message = f"row {earliest.earliest + 1} of the labels is of {at}, and {recorded}"
            raise HeddleError("HDL-647", message, "leave such labels out, or take what is known now: `--known now`")

    def _with_versions(self, stream: Stream, ids: Mapping[str, str]) -> Stream:
        for name, id in ids.items():
            version = version_named(self.warehouse, name, id)
            if version is None:
                message = f"the version {id} of dimension {name}, which runs used then, was removed"
                raise HeddleError("HDL-647", message, "keep versions for more days: HEDDLE_DIMENSION_DAYS")
            stream = with_version(stream, name, version)
        return stream

    def _lifted(self, source: StreamSource, units: Sequence[FeatureUnit], begin: int, end: int) -> tuple[str, ...]:
        """The files with the cells of some units, of the events in [begin, end)."""
        by_keys: dict[int, dict[Synopsis, None]] = {}
        for unit in units:
            by_keys.setdefault(unit.keys, {})[unit.synopsis] = None
        cells = [
            LiftedCells(tuple(synopses), begin, end, str(self._filter(keys))) for keys, synopses in by_keys.items()
        ]
        splits = [split for split in source.splits if split.may_hold(begin, end)]
        events = sum(split.rows_about() for split in splits)
        self.engine.decide(events + self.rows, f"features/{self.place.name}")
        if not splits:
            return ()
        root = self.place / f"cells-{len(self.units)}"
        root.make_folder()
        arrived = self._arrived(source, splits)
        task = lift_labelled(source.stream, splits, cells, str(root), settings().task_memory, arrived)
        width = tasks_for(events, self.workers.width, len(splits))
        most = min(len(splits), max(width, int(events // EVENTS_A_TASK)))
        outcome = self._done(task, len(splits), most, f"events of {source.stream.name}")
        failures = [result for result in outcome.results if isinstance(result, SynopsisFailure)]
        if failures:
            raise HeddleError(failures[0].code, failures[0].message)
        files = [result for result in outcome.results if isinstance(result, DataFile)]
        self.cells += sum(file.rows for file in files)
        return tuple(str(root / file.path) for file in files)

    def _arrived(self, source: StreamSource, splits: Sequence[Split]) -> dict[str, int] | None:
        """The moments at which the files of some splits arrived, by identity; None if it does not matter."""
        if not self.request.rule.knows_then:
            return None
        known = source.arrivals.of(split.identity for split in splits)
        return {name: arrival.arrived for name, arrival in known.items()}

    def _filter(self, keys: int) -> Place:
        """The file of the filter of the keys that labels have in some key columns."""
        file = self.place / f"keys-{keys}.bits"
        if not file.exists():
            KeyFilter.of_parts(self.place, keys, [part.name for part in self.parts]).write(file)
        return file


@contextmanager
def feature_folder(warehouse: Warehouse, engine: Engine) -> Iterator[Place]:
    """A folder for files on their way between tasks, which is removed at the end: in the warehouse if other machines
    have to reach it."""
    fixed = engine.fixed()
    if fixed is None or fixed.name != "spark":
        folder = tempfile.mkdtemp(prefix="heddle-features-")
        try:
            yield Place.of(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    place = warehouse.place / FOLDER / uuid.uuid4().hex
    place.make_folder()
    try:
        yield place
    finally:
        place.remove_folder()


def features_of_table(
    warehouse: Warehouse, request: FeatureRequest, labels: pa.Table, names: Sequence[str], engine: Engine
) -> tuple[pa.Table, list[Diagnostic]]:
    """The features of labels, in their order, and warnings. ``labels``: at least the columns that are read;
    ``names``: of all columns.

    Raises HDL-507, HDL-641, HDL-644, HDL-648, and what reading the streams raises.
    """
    planned = feature_plan(warehouse, request)
    form = LabelForm.of(request, planned.queries, names)
    with feature_folder(warehouse, engine) as place:
        made = FeatureSet(warehouse, request, planned, form, engine, place)
        for first in range(0, len(labels), PART_ROWS):
            made.add(labels.slice(first, PART_ROWS))
        made.compute()
        tables = list(made.checked_parts())
        features = pa.concat_tables(tables) if tables else pa.schema(made.fields).empty_table()
    return features, made.findings


def sweep_features(warehouse: Warehouse, before: int, dry_run: bool) -> int:
    """Remove the files of features that were handed over as frames of Spark, or left behind, and were written before a
    moment (microseconds); the number of folders."""
    removed = 0
    for name in (warehouse.place / FOLDER).folders():
        folder = warehouse.place / FOLDER / name
        if max((file.modified for file in folder.listed(recursive=True)), default=0) < before:
            removed += 1
            if not dry_run:
                folder.remove_folder()
    return removed
