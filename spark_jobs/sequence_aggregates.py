"""Event sequences on Spark: from events to partial rows, and from those to answers.

1. Partial rows (:class:`SequenceLifting`): of each key and day the events that some pattern can use, those of equal
   time and type compacted into one. Compacting is commutative and associative, so tasks read splits in any order, late
   events are lifted like all others, and no pattern is matched yet: windows of every range and slide, and every
   pattern over these types, are answered from the same rows.
2. Answers (:func:`sequence_task`): the rows of a key put together, in time; the executors of :mod:`optimizer.sequences`
   match all patterns over them at once. Sequences of different keys are added up to the query's groups; where a query
   has no groups its keys lie in all buckets, tasks return what they found (:class:`Rolled`) and the driver adds it up.

Source: Poppe et al., "Sharon: Shared Online Event Sequence Aggregation" (ICDE 2018), lifted from one window, filter and
group-by to any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates import (
    Lowered,
    carrier_of,
    decimal_texts,
    exact_total,
)
from optimizer.intervals import ADD_DOUBLE, combine_runs, doubles, ordinals
from optimizer.query import ACQ, DOUBLE, Output, Stream, Type
from optimizer.sequences import Answers, Asked, Attribute, Events, Integers, Measure, answers, compacted, merged
from optimizer.synopsis import Sequenced, Synopsis
from optimizer.window import DAY, day_label
from spark_jobs.cells import LONG_MAX, LONG_MIN, PARTIALS, distinct_of, distinct_rows, encoded, key_texts
from spark_jobs.expressions import evaluate
from spark_jobs.files import DataFile, Failed, bucket_of, read_buckets
from spark_jobs.final_aggregates import Count, Part, carried_by, qualifying, uncounted
from spark_jobs.partial_aggregates import GROUP_LIMIT, MEMORY, Span, as_texts, by_fingerprint, flat
from spark_jobs.results import Answered, ResultsFiles
from spark_jobs.sources import times_of

Longs = NDArray[np.int64]

COMPACTED = 1 << 20
"""Events that are gathered before they are compacted once more."""


# ---------------------------------------------------------------------------------------------- lifting
class SequenceLifting:
    """Lifts the events of one task for the synopses of event sequences of one stream; as
    :class:`spark_jobs.partial_aggregates.Lifting`."""

    def __init__(self, stream: Stream, spans: Sequence[Span], group_limit: int = GROUP_LIMIT) -> None:
        self.stream, self.group_limit = stream, group_limit
        self.schema = dict(stream.schema)
        self.inside = self.untimed = 0
        self.failed: dict[str, Failed] = {}
        self._filling = [_Filling(span) for span in spans]

    def add(self, batch: pa.RecordBatch) -> None:
        """Lift a decoded batch: the time column and those of ``columns_of_synopsis``."""
        times, batch, missing = times_of(batch, self.stream)
        self.untimed += missing
        if len(times) == 0:
            return
        inside = np.zeros(len(times), dtype=bool)
        plain: dict[str, pa.Array] = {name: flat(batch.column(name)) for name in batch.schema.names}
        events = pa.RecordBatch.from_pydict(plain)
        for one in self._filling:
            inside |= one.add(events, times, self.schema)
            if len(one.keys) > self.group_limit:
                synopsis = one.span.synopsis
                names = ", ".join(name for name, _ in synopsis.group_by)
                message = f"more than {self.group_limit:,} keys of {names} in one part of stream {self.stream.name}"
                self.failed[synopsis.fingerprint] = Failed(synopsis.fingerprint, "HDL-602", message)
        self._filling = [one for one in self._filling if one.span.synopsis.fingerprint not in self.failed]
        self.inside += int(inside.sum())

    @property
    def is_full(self) -> bool:
        """Whether the events take so much memory that they should be written now."""
        return sum(one.size for one in self._filling) > MEMORY

    def tables(self) -> Iterator[pa.Table]:
        """What was lifted since the last call, as rows of :data:`PARTIALS`."""
        for one in self._filling:
            found = one.table()
            if len(found):
                yield found


class _Filling:
    """One synopsis that is being filled: its events so far, and the numbers of their keys."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.sequenced = sequenced_of(span.synopsis)
        self.keys: dict[str, int] = {}
        self.bucket_keys: list[str] = []
        self.parts: list[Events] = []
        self.codes = {type_: code for code, type_ in enumerate(self.sequenced.types)}

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(map(len, self.parts)) * (28 + 48 * len(self.sequenced.attributes))

    def add(self, events: pa.RecordBatch, times: Longs, schema: Mapping[str, Type]) -> NDArray[np.bool_]:
        """Lift the events; which of them (n,) lie in the span."""
        synopsis, kept = self.span.synopsis, self.sequenced
        inside: NDArray[np.bool_] = (times >= self.span.begin) & (times < self.span.end)
        chosen = inside
        (filter,) = synopsis.predicates
        if filter is not None:
            passes = pc.fill_null(evaluate(filter, events, schema), False)
            chosen = chosen & passes.to_numpy(zero_copy_only=False)
        values, number = encoded(events.column(kept.on))
        codes = np.array([self.codes.get(type_, -1) for type_ in as_texts(values).to_pylist()] or [-1], dtype=np.int32)
        types = codes[number]
        rows = np.flatnonzero(chosen & (types >= 0))
        if len(rows) == 0:
            return inside
        events = events.take(pa.array(rows))
        attributes = {
            str(at): _values(evaluate(argument, events, schema), type_)
            for at, (argument, type_) in enumerate(kept.attributes)
        }
        self.parts.append(Events.of(self._numbered(events), times[rows], types[rows], attributes))
        if len(self.parts) > 1 and sum(map(len, self.parts[1:])) > max(COMPACTED, len(self.parts[0])):
            self.parts = [compacted(self.parts)]
        return inside

    def _numbered(self, events: pa.RecordBatch) -> Longs:
        """The number (n,) of each event's key."""
        names = [name for name, _ in self.span.synopsis.group_by]
        found, number, groups = distinct_rows([events.column(name) for name in names], events.num_rows)
        columns = [as_texts(column) for column in found]
        by = [columns[names.index(name)] for name in self.span.synopsis.bucket_by]
        local = np.empty(groups, dtype=np.int64)
        texts = key_texts(columns, groups).to_pylist()
        # a single column's values need not all occur
        occurs = np.zeros(groups, dtype=bool)
        occurs[number] = True
        buckets = key_texts(by, groups).to_pylist()
        for at in np.flatnonzero(occurs).tolist():
            local[at] = self.keys.setdefault(texts[at], len(self.keys))
            if local[at] == len(self.bucket_keys):
                self.bucket_keys.append(buckets[at])
        return local[number]

    def table(self) -> pa.Table:
        """The events as rows, one a key and day, and forget them."""
        parts, self.parts = self.parts, []
        if not parts:
            return PARTIALS.empty_table()
        return _encoded(self.span, compacted(parts), list(self.keys), self.bucket_keys)


def sequenced_of(synopsis: Synopsis) -> Sequenced:
    """What a synopsis keeps of event sequences; it has to be one of those."""
    assert synopsis.sequenced is not None
    return synopsis.sequenced


def _values(column: pa.Array, type: Type) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Values (n,) as doubles or integers (decimals unscaled, dates in days, moments in microseconds), and which of them
    are not null."""
    valid = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    if type.name == "decimal":
        words = np.frombuffer(column.cast(pa.decimal128(38, type.scale)).buffers()[1], dtype=np.int64)
        whole = words.reshape(-1, 2)[column.offset : column.offset + len(column), 0]
        return (whole if valid is None else np.where(valid, whole, 0)), valid
    if type.name == "date":
        column = column.cast(pa.int32())
    column = column.cast(pa.float64() if type == DOUBLE else pa.int64())
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), valid


# --------------------------------------------------------------------------------------------- partial rows
def _longs(events: Events, sequenced: Sequenced) -> list[Longs]:
    """The columns (n,) of an event that are stored as longs."""
    found = [events.time, events.type.astype(np.int64), events.count]
    for at in range(len(sequenced.attributes)):
        kept = events.attributes[str(at)]
        found += [kept.known, kept.least, kept.greatest]
        if kept.special is None:
            found += [kept.sum[0].view(np.int64), kept.sum[1]]
        else:
            found.append(kept.special.astype(np.int64))
    return found


def _encoded(span: Span, events: Events, keys: Sequence[str], bucket_keys: Sequence[str]) -> pa.Table:
    sequenced = sequenced_of(span.synopsis)
    days = events.time // DAY
    heads = np.flatnonzero(np.append(True, (events.key[1:] != events.key[:-1]) | (days[1:] != days[:-1])))
    cuts = np.append(heads, len(events))
    starts = np.maximum(days[heads] * DAY, span.begin)
    ends = np.minimum((days[heads] + 1) * DAY, span.end)
    labels, number = distinct_of(days[heads])
    texts = pa.array([day_label(day * DAY) for day in labels.tolist()], pa.string())
    doubles = [part for at in range(len(sequenced.attributes)) for part in _doubles(events.attributes[str(at)])]
    key = pa.array(events.key[heads])
    return pa.table(
        [
            texts.take(pa.array(number)),
            pa.repeat(span.synopsis.stream, len(heads)),
            pa.repeat(span.synopsis.fingerprint, len(heads)),
            pa.array(starts),
            pa.array(ends),
            pa.array(keys, pa.string()).take(key),
            pa.repeat(pa.scalar(1, pa.int64()), len(heads)),
            pa.array(bucket_of(bucket_keys)).take(key),
            _lists(_longs(events, sequenced), cuts, pa.int64()),
            _lists(doubles, cuts, pa.float64()),
            _lists([], cuts, pa.string()),
        ],
        schema=PARTIALS,
    )


def _doubles(kept: Attribute) -> tuple[NDArray[Any], ...]:
    return kept.sum if kept.special is not None else ()


def _lists(columns: Sequence[NDArray[Any]], cuts: Longs, type: pa.DataType) -> pa.ListArray:
    """Lists of the columns' values, event by event, of the runs of events between cuts."""
    values = pa.array(np.stack(columns, axis=1).reshape(-1) if columns else [], type)
    return pa.ListArray.from_arrays(pa.array((cuts * len(columns)).astype(np.int32)), values)


class Decoded(NamedTuple):
    """The events of some partial rows; their keys are numbered in the order of ``keys`` (JSON lists of texts)."""

    events: Events
    keys: list[str]


def decoded(synopsis: Synopsis, rows: pa.Table) -> Decoded:
    """The events of partial rows of a synopsis, in any order, in one piece."""
    sequenced = sequenced_of(synopsis)
    parts: list[Events] = []
    named = rows["key"].unify_dictionaries().combine_chunks()
    if isinstance(named, pa.ChunkedArray):
        named = pa.concat_arrays(named.chunks) if named.num_chunks else pa.array([], pa.string())
    texts, number = encoded(named)
    # a file's dictionary has the keys of other synopses, too
    used, codes = distinct_of(number.astype(np.int64))
    texts = texts.take(pa.array(used))
    order = np.argsort(np.array(texts.to_pylist(), dtype=object), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    first = 0
    for batch in rows.select(["longs", "doubles"]).to_batches():
        key = rank[codes[first : first + batch.num_rows]]
        first += batch.num_rows
        if batch.num_rows:
            parts.append(_events(sequenced, key, batch.column("longs"), batch.column("doubles")))
    return Decoded(compacted(parts), [texts[at].as_py() for at in order.tolist()])


def _events(sequenced: Sequenced, key: Longs, longs: pa.ListArray, doubles: pa.ListArray) -> Events:
    exact = [type_ != DOUBLE for _, type_ in sequenced.attributes]
    width = 3 + sum(5 if one else 4 for one in exact)
    sizes = np.diff(longs.offsets.to_numpy()) // width
    columns = longs.flatten().to_numpy().reshape(-1, width).T
    reals = doubles.flatten().to_numpy().reshape(len(columns[0]), -1).T if not all(exact) else []
    attributes, at, real = {}, 3, 0
    for place, whole in enumerate(exact):
        known, least, greatest = (np.ascontiguousarray(columns[at + by]) for by in range(3))
        if whole:
            total = (np.ascontiguousarray(columns[at + 3]).view(np.uint64), np.ascontiguousarray(columns[at + 4]))
            attributes[str(place)] = Attribute(known, total, least, greatest)
        else:
            pair = (np.ascontiguousarray(reals[real]), np.ascontiguousarray(reals[real + 1]))
            attributes[str(place)] = Attribute(known, pair, least, greatest, columns[at + 3].astype(np.uint8))
            real += 2
        at += 5 if whole else 4
    time, code, count = (np.ascontiguousarray(columns[by]) for by in range(3))
    return merged(np.repeat(key, sizes), time, code.astype(np.int32), count, attributes)


# --------------------------------------------------------------------------------- answers, key by key
class _Column(NamedTuple):
    """Something that is kept of an answer, and how those of several keys combine: ``add`` (limbs of 32 bits),
    ``add_double`` (double-doubles), ``ieee`` (doubles), ``or``, ``min``, ``max``."""

    operation: str
    values: NDArray[Any]

    def of(self, rows: Longs) -> _Column:
        return _Column(self.operation, self.values[rows])

    def reduced(self, heads: Longs, size: int) -> _Column:
        """Combined from head to head; ``size`` rows in all."""
        if len(heads) == size:
            return self
        if self.operation == "add_double":
            ends = np.append(heads[1:], size)
            runs = np.arange(len(heads)), heads, ends
            return _Column(self.operation, combine_runs(self.values, ADD_DOUBLE, *runs))
        reduce = _REDUCE[self.operation]
        return _Column(self.operation, reduce(self.values, heads, axis=0))


_REDUCE: dict[str, Callable[..., NDArray[Any]]] = {
    "add": np.add.reduceat,
    "ieee": np.add.reduceat,
    "or": np.logical_or.reduceat,
    "min": np.minimum.reduceat,
    "max": np.maximum.reduceat,
}


@dataclass(frozen=True)
class Rolled:
    """Answers of one query, not lowered yet, ascending by (group, instant): ``keys`` of the groups (JSON lists of
    texts, ascending), ``group`` and ``instants`` (a,), and what is kept by (number of the measure, what)."""

    query: str
    keys: tuple[str, ...]
    group: Longs
    instants: Longs
    columns: Mapping[tuple[int, str], _Column]


def _limbs(integers: Integers) -> NDArray[np.int64]:
    low = integers.low.astype(np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    parts = [low & mask, low >> np.uint64(32)]
    words = [part.astype(np.int64) for part in parts] + [integers.high & 0xFFFFFFFF, integers.high >> 32]
    limbs: NDArray[np.int64] = np.stack(words, axis=1)
    limbs[integers.over] = 0
    return limbs


def _integer_columns(number: int, what: str, found: Integers) -> dict[tuple[int, str], _Column]:
    return {
        (number, what): _Column("add", _limbs(found)),
        (number, f"{what} over"): _Column("or", found.over),
    }


def _columns(query: ACQ, sequenced: Sequenced, found: Answers) -> dict[tuple[int, str], _Column]:
    kept = _integer_columns(-1, "count", found.count)
    for number, (measure, value) in enumerate(zip(_measures(query, sequenced), found.measures, strict=True)):
        if isinstance(value, Integers):
            kept |= _integer_columns(number, measure.function, value)
        elif measure.function == "sum":
            finite = np.isfinite(value.values)
            pairs = np.stack([np.where(finite, value.values, 0.0), np.zeros(len(finite))], axis=1)
            kept[number, "sum"] = _Column("add_double", pairs)
            kept[number, "strange"] = _Column("ieee", np.where(finite, 0.0, value.values))
        else:
            real = value.values.dtype == np.float64
            values = ordinals(value.values) if real else value.values
            absent = LONG_MAX if measure.function == "min" else LONG_MIN
            kept[number, measure.function] = _Column(measure.function, np.where(value.known, values, absent))
            kept[number, "known"] = _Column("or", value.known)
    return kept


def _measures(query: ACQ, sequenced: Sequenced) -> tuple[Measure, ...]:
    """What the executors have to keep beside the count."""
    assert query.pattern is not None
    found: dict[Measure, None] = {}
    for output in query.computed:
        for function in _FUNCTIONS[output.function]:
            measure = _measure(query, sequenced, output, function)
            if measure is not None:
                found[measure] = None
    return tuple(found)


_FUNCTIONS = {"count": ("known",), "sum": ("sum", "known"), "avg": ("sum", "known"), "min": ("min",), "max": ("max",)}


def _measure(query: ACQ, sequenced: Sequenced, output: Output, function: str) -> Measure | None:
    """A measure of an output; None: it counts whole sequences, or events that its pattern does not have."""
    assert query.pattern is not None
    if output.argument is None or output.event not in query.pattern.events:
        return None
    attribute = sequenced.attributes.index((output.argument, output.argument_type))
    return Measure(function, str(attribute), sequenced.types.index(output.event))


def answered(synopsis: Synopsis, queries: Sequence[ACQ], found: Decoded, begin: int, end: int) -> list[Rolled]:
    """Answers of queries of one synopsis for the instants in (begin, end], of all keys of some events."""
    sequenced = sequenced_of(synopsis)
    alike: dict[tuple[int, int, int], list[ACQ]] = {}
    for query in queries:
        at = query.window.at
        # of instants that are named: no window before the first, none behind the last
        span = (begin, end) if at is None else (max(begin, min(at, default=end) - 1), min(end, max(at, default=begin)))
        alike.setdefault((query.window.ago, *span), []).append(query)
    rolled: list[Rolled] = []
    for (ago, first, last), members in alike.items():
        # a historical window is one over the past as if it were now
        events = replace(found.events, time=found.events.time + ago) if ago else found.events
        codes = {type_: code for code, type_ in enumerate(sequenced.types)}
        asked = [
            Asked(
                tuple(codes[event] for event in query.pattern.events),
                query.window.range,
                query.window.slide,
                _measures(query, sequenced),
            )
            for query in members
            if query.pattern is not None
        ]
        for query, answer in zip(members, answers(events, asked, ends=(first, last)), strict=True):
            keys = [_group_key(synopsis, query, key) for key in found.keys]
            instants = answer.start + query.window.range
            columns = _columns(query, sequenced, answer)
            rolled.append(_rolled(query.name, keys, answer.key, instants, columns, query.window.at))
    return rolled


def _group_key(synopsis: Synopsis, query: ACQ, key: str) -> str:
    """The key of the group that the sequences of a key are added up to."""
    values = dict(zip((name for name, _ in synopsis.group_by), json.loads(key), strict=True))
    chosen = [values[name] for name, _ in query.group_by]
    return json.dumps(chosen, ensure_ascii=False, separators=(",", ":"))


def _rolled(
    query: str,
    keys: Sequence[str],
    key: Longs,
    instants: Longs,
    columns: Mapping[tuple[int, str], _Column],
    asked: Sequence[int] | None = None,
) -> Rolled:
    """Answers of keys, whose groups are ``keys``, added up by group and instant; only of instants ``asked`` for."""
    distinct = sorted(set(keys))
    place = {text: number for number, text in enumerate(distinct)}
    group = np.array([place[text] for text in keys], dtype=np.int64)[key] if len(key) else key
    order = np.lexsort((instants, group))
    if asked is not None:
        order = order[np.isin(instants[order], np.array(asked, dtype=np.int64))]
    group, instants = group[order], instants[order]
    heads = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (instants[1:] != instants[:-1])))
    heads = heads[: len(group)]
    kept = {name: column.of(order).reduced(heads, len(group)) for name, column in columns.items()}
    return Rolled(query, tuple(distinct), group[heads], instants[heads], kept)


def joined(parts: Sequence[Rolled]) -> Rolled:
    """What several tasks found of one query."""
    keys = [key for part in parts for key in part.keys]
    cuts = np.cumsum([0, *(len(part.keys) for part in parts)])
    key = np.concatenate([cut + part.group for cut, part in zip(cuts, parts, strict=False)])
    instants = np.concatenate([part.instants for part in parts])
    columns = {
        name: _Column(column.operation, np.concatenate([part.columns[name].values for part in parts]))
        for name, column in parts[0].columns.items()
    }
    return _rolled(parts[0].query, keys, key, instants, columns)


# ------------------------------------------------------------------------------------------- lowering
def lowered(query: ACQ, synopsis: Synopsis, found: Rolled) -> Iterator[tuple[str, Answered]]:
    """The answers that satisfy HAVING, day by day (of the microsecond before the instant), on their way into files."""
    sequenced = sequenced_of(synopsis)
    known: dict[Output, Lowered] = {}

    def of(output: Output) -> Lowered:
        same = replace(output, name="")
        if same not in known:
            known[same] = _lowered(query, sequenced, output, found)
        return known[same]

    rows, failed, errors = qualifying(query, [of(condition.output) for condition in query.having], len(found.instants))
    if len(rows) == 0:
        return
    outputs = [of(output).where(rows) for output in query.outputs]
    group, instants = found.group[rows], found.instants[rows]
    days, number = distinct_of((instants - 1) // DAY)
    keys = pa.array(found.keys, pa.string())
    for at, day in enumerate(days.tolist()):
        mine = np.flatnonzero(number == at)
        place = {int(row): new for new, row in enumerate(mine.tolist())}
        told = {place[row]: list(messages) for row, messages in errors.items() if row in place}
        lost = None if failed is None else failed[mine]
        carried = carried_by(query, [one.where(mine) for one in outputs], lost, told)
        yield (
            day_label(day * DAY),
            Answered(synopsis.stream, query.name, query.window, keys, group[mine], instants[mine], carried, told),
        )


def _lowered(query: ACQ, sequenced: Sequenced, output: Output, found: Rolled) -> Lowered:
    """The values of one output."""
    assert query.pattern is not None
    size = len(found.instants)
    measures = _measures(query, sequenced)

    def column(function: str, what: str = "") -> NDArray[Any]:
        measure = _measure(query, sequenced, output, function)
        assert measure is not None
        return found.columns[measures.index(measure), what or function].values

    always = np.ones(size, dtype=bool)
    if output.function == "count" and output.argument is None:
        times = 1 if output.event is None else query.pattern.events.count(output.event)
        counted = found.columns[-1, "count"].values
        over = found.columns[-1, "count over"].values & (times > 0)
        return _exact(times * exact_total(counted), always, over, output.type)
    if _measure(query, sequenced, output, _FUNCTIONS[output.function][0]) is None:
        # events that no sequence has
        if output.function == "count":
            return _exact(np.zeros(size, dtype=object), always, ~always, output.type)
        return _absent(size, output.type)
    if output.function == "count":
        return _exact(exact_total(column("known")), always, column("known", "known over"), output.type)
    if output.function in ("min", "max"):
        valid, values = column(output.function, "known"), column(output.function)
        return _extreme(values, valid, output.type)
    counts = exact_total(column("known"))
    valid = np.array(counts != 0, dtype=bool) | column("known", "known over")
    if output.argument_type == DOUBLE:
        pairs, strange = column("sum"), column("sum", "strange")
        total = np.where(strange == 0, pairs[:, 0] + pairs[:, 1], strange)
        if output.function == "avg":
            divisor = np.array([float(count) if count else 1.0 for count in counts])
            total = total / divisor
            return Lowered(total, valid, column("known", "known over"))
        return Lowered(total, valid)
    total, over = exact_total(column("sum")), column("sum", "sum over")
    if output.function == "sum":
        return _exact(total, valid, over, output.type)
    over = over | column("known", "known over")
    assert output.argument_type is not None
    scale = output.argument_type.scale
    means = [Fraction(int(value), int(count) or 1) / 10**scale for value, count in zip(total, counts, strict=True)]
    if output.type == DOUBLE:
        return Lowered(np.array([float(mean) for mean in means]), valid & ~over, over)
    unscaled = np.array([_half_up(mean * 10**output.type.scale) for mean in means], dtype=object)
    return _exact(unscaled, valid, over, output.type)


def _half_up(value: Fraction) -> int:
    rounded = int(abs(value) + Fraction(1, 2))
    return rounded if value >= 0 else -rounded


def _exact(unscaled: NDArray[Any], valid: NDArray[np.bool_], over: NDArray[np.bool_], type: Type) -> Lowered:
    texts, beyond = decimal_texts(unscaled, type)
    overflow = (beyond | over) & valid
    return Lowered(texts, valid & ~overflow, overflow if overflow.any() else None)


def _extreme(values: Longs, valid: NDArray[np.bool_], type: Type) -> Lowered:
    if type == DOUBLE:
        return Lowered(doubles(np.where(valid, values, 0)), valid)
    if type.name == "decimal":
        return Lowered(decimal_texts(np.where(valid, values, 0).astype(object), type)[0], valid)
    return Lowered(np.where(valid, values, 0), valid)


def _absent(size: int, type: Type) -> Lowered:
    kind: Any = {"longs": np.int64, "doubles": np.float64, "texts": object}[carrier_of(type)]
    return Lowered(np.zeros(size, dtype=kind), np.zeros(size, dtype=bool))


def finals_of_sequences(
    partials: pa.Table, synopsis: Synopsis, queries: Sequence[ACQ], begin: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Answers of some queries of one synopsis for the instants in (begin, end], as
    :func:`spark_jobs.final_aggregates.finals_of`; ``partials`` are rows of whole groups."""
    by_name = {query.name: query for query in queries}
    if len(partials):
        for found in answered(synopsis, queries, decoded(synopsis, partials), begin, end):
            for _, told in lowered(by_name[found.query], synopsis, found):
                yield told.rows()


# ------------------------------------------------------------------------------------------ Spark's task
SequenceTask = Callable[[Iterable[int]], Iterator[DataFile | Failed | Rolled]]


def sequence_task(
    parts: Sequence[Part],
    begin: int,
    partials: Sequence[str],
    root: str,
    stamp: Mapping[str, pa.Scalar],
    count: Count = uncounted,
) -> SequenceTask:
    """The task that answers the queries of event sequences for the buckets of keys whose numbers it is given.

    As :func:`spark_jobs.final_aggregates.finals_task`. Queries without groups are not written: what was found of them
    is returned, to be :func:`joined`.
    """

    def task(numbers: Iterable[int]) -> Iterator[DataFile | Failed | Rolled]:
        files = ResultsFiles(root, [query for part in parts for query in part.queries], stamp)
        scattered: dict[str, list[Rolled]] = {}
        # one bucket after the other: so much has to fit in memory
        for bucket in numbers:
            rows = list(read_buckets(partials, {bucket}))
            stored = by_fingerprint(pa.concat_tables(rows)) if rows else {}
            for part in parts:
                mine = within(stored.get(part.synopsis.fingerprint, PARTIALS.empty_table()), part.begin, part.end)
                if len(mine) == 0:
                    continue
                count("partial_rows_read", len(mine))
                until = part.end if part.until is None else part.until
                by_name = {query.name: query for query in part.queries}
                for found in answered(part.synopsis, part.queries, decoded(part.synopsis, mine), begin, until):
                    query = by_name[found.query]
                    if not query.group_by:
                        scattered.setdefault(query.name, []).append(found)
                        continue
                    for day, told in lowered(query, part.synopsis, found):
                        files.add(day, told)
        yield from files.close()
        for several in scattered.values():
            yield joined(several)

    return task


def within(rows: pa.Table, begin: int, end: int) -> pa.Table:
    """The partial rows that have events of [begin, end): their days may begin before."""
    chosen = pc.and_(pc.greater(rows["fragment_end"], begin), pc.less(rows["fragment_start"], end))
    return rows.filter(pc.and_(chosen, pc.is_valid(rows["key"])))


def write_joined(
    parts: Sequence[Part], found: Iterable[Rolled], root: str, stamp: Mapping[str, pa.Scalar]
) -> Iterator[DataFile]:
    """Write the answers of queries without groups, once all tasks have told what they found."""
    scattered: dict[str, list[Rolled]] = {}
    for one in found:
        scattered.setdefault(one.query, []).append(one)
    files = ResultsFiles(root, [query for part in parts for query in part.queries], stamp)
    for part in parts:
        for query in part.queries:
            if query.name in scattered:
                for day, told in lowered(query, part.synopsis, joined(scattered[query.name])):
                    files.add(day, told)
    yield from files.close()
