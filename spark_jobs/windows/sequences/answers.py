"""Answers of sequence queries, key by key, and lowered to their outputs.

Each window of a query with several is answered as if it were a query of its own (:func:`single_windows`): the executors
share what they share between queries. The answers are put side by side before they are lowered (:func:`side_by_side`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.aggregates.exact_sums import decimal_texts, exact_total
from optimizer.aggregates.state_kinds import ADD_DOUBLE
from optimizer.aggregates.states import Lowered, carrier_of
from optimizer.combine.choose import combine_runs
from optimizer.combine.elements import doubles, ordinals
from optimizer.sequences.answering import answers
from optimizer.sequences.matches import Answers, Integers, Measure, SequenceQuery
from optimizer.synopses.synopsis import Sequenced, Synopsis
from optimizer.workload.values import ACQ, DOUBLE, REACHED, Output, Type
from spark_jobs.results.derived import derived
from spark_jobs.results.rows import AnswerRows
from spark_jobs.store.arrays.numbering import LONG_MAX, LONG_MIN
from spark_jobs.windows.finals.answers import carried_by, qualifying
from spark_jobs.windows.sequences.encoding import Decoded, Longs, sequenced_of


class _Column(NamedTuple):
    """One component of answers, with the operation that combines those of several keys: ``add`` (limbs of 32 bits, or
    numbers of keys), ``add_double`` (double-doubles), ``ieee`` (doubles), ``or``, ``min``, ``max``.
    """

    operation: str
    values: NDArray[Any]

    def spread(self, rows: Longs, size: int) -> _Column:
        """The values at these rows of ``size``; over nothing in the others."""
        nothing = {"min": LONG_MAX, "max": LONG_MIN}.get(self.operation, 0)
        values = np.full((size, *self.values.shape[1:]), nothing, self.values.dtype)
        values[rows] = self.values
        return _Column(self.operation, values)

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
    texts, ascending), ``group`` and ``instants`` (a,), and the components by (number of the window, number of the
    measure, component).
    """

    query: str
    keys: tuple[str, ...]
    group: Longs
    instants: Longs
    columns: Mapping[tuple[int, int, str], _Column]

    def at(self, wanted: Sequence[int] | Longs) -> Rolled:
        """The answers of some instants alone."""
        rows = np.flatnonzero(np.isin(self.instants, np.array(wanted, dtype=np.int64)))
        columns = {name: column.of(rows) for name, column in self.columns.items()}
        return Rolled(self.query, self.keys, self.group[rows], self.instants[rows], columns)


def _limbs(integers: Integers) -> NDArray[np.int64]:
    low = integers.low.astype(np.uint64)
    mask = np.uint64(0xFFFFFFFF)
    parts = [low & mask, low >> np.uint64(32)]
    words = [part.astype(np.int64) for part in parts] + [integers.high & 0xFFFFFFFF, integers.high >> 32]
    limbs: NDArray[np.int64] = np.stack(words, axis=1)
    limbs[integers.over] = 0
    return limbs


def single_windows(query: ACQ) -> tuple[ACQ, ...]:
    """The query over each of its windows alone, with the aggregates over it and without HAVING; itself if it has one
    window.
    """
    if not query.window.parts:
        return (query,)
    return tuple(
        replace(
            query,
            window=replace(part, at=query.window.at),
            outputs=tuple(replace(output, window=0) for output in query.computed if output.window == number),
            having=(),
        )
        for number, part in enumerate(query.window.parts)
    )


def _integer_columns(number: int, what: str, integers: Integers) -> dict[tuple[int, str], _Column]:
    return {
        (number, what): _Column("add", _limbs(integers)),
        (number, f"{what} over"): _Column("or", integers.over),
    }


def _columns(query: ACQ, sequenced: Sequenced, answers: Answers) -> dict[tuple[int, str], _Column]:
    columns = _integer_columns(-1, "count", answers.count)
    for number, (measure, value) in enumerate(zip(_measures(query, sequenced), answers.measures, strict=True)):
        if isinstance(value, Integers):
            columns |= _integer_columns(number, measure.function, value)
        elif measure.function == "sum":
            finite = np.isfinite(value.values)
            pairs = np.stack([np.where(finite, value.values, 0.0), np.zeros(len(finite))], axis=1)
            columns[number, "sum"] = _Column("add_double", pairs)
            columns[number, "strange"] = _Column("ieee", np.where(finite, 0.0, value.values))
        else:
            real = value.values.dtype == np.float64
            values = ordinals(value.values) if real else value.values
            absent = LONG_MAX if measure.function == "min" else LONG_MIN
            columns[number, measure.function] = _Column(measure.function, np.where(value.known, values, absent))
            columns[number, "known"] = _Column("or", value.known)
    return columns


def _measures(query: ACQ, sequenced: Sequenced) -> tuple[Measure, ...]:
    """Measures that the executors have to keep in addition to the count."""
    measures: dict[Measure, None] = {}
    for output in query.computed:
        for function in _FUNCTIONS.get(output.function, ()):
            measure = _measure(query, sequenced, output, function)
            if measure is not None:
                measures[measure] = None
    return tuple(measures)


_FUNCTIONS = {"count": ("known",), "sum": ("sum", "known"), "avg": ("sum", "known"), "min": ("min",), "max": ("max",)}


def _measure(query: ACQ, sequenced: Sequenced, output: Output, function: str) -> Measure | None:
    """The measure of an output; None if it counts whole sequences, or events that its pattern does not have."""
    if output.argument is None or output.event not in query.sequence.events:
        return None
    attribute = sequenced.arguments.index(output.argument)
    return Measure(function, str(attribute), sequenced.types.index(output.event))


def sequence_queries(query: ACQ, sequenced: Sequenced) -> list[SequenceQuery]:
    """The query as the executors take it: its pattern, and the prefixes of the steps that it counts the keys of, the
    first step before the others. Raises ValueError if the synopsis does not keep what it takes.
    """
    window, number = query.window, sequenced.types.index
    pattern = tuple(map(number, query.sequence.events))
    absent = tuple(tuple(map(number, types)) for types in query.sequence.absent)
    sequences = SequenceQuery(
        pattern, window.range, window.slide, _measures(query, sequenced), (*absent, ()) if absent else ()
    )
    return [sequences, *map(sequences.first, _steps(query))]


def _steps(query: ACQ) -> list[int]:
    """The steps whose answers are needed: the first decides which windows have an answer."""
    return sorted({1, *query.steps}) if query.steps else []


def answered(synopsis: Synopsis, queries: Sequence[ACQ], decoded: Decoded, begin: int, end: int) -> list[Rolled]:
    """Answers of queries of one synopsis for the instants in (begin, end], of all keys of some events."""
    sequenced = sequenced_of(synopsis)
    alike: dict[tuple[int, int, int, int], list[tuple[ACQ, int, ACQ]]] = {}
    for query in queries:
        at = query.window.at
        # of instants that are named: no window before the first, none behind the last
        span = (begin, end) if at is None else (max(begin, min(at, default=end) - 1), min(end, max(at, default=begin)))
        for number, single in enumerate(single_windows(query)):
            alike.setdefault((single.window.ago, single.window.offset, *span), []).append((query, number, single))
    rolled_windows: dict[str, dict[int, Rolled]] = {query.name: {} for query in queries}
    # queries of the same group columns have the same groups
    groups: dict[object, tuple[list[str], Longs]] = {}
    for (ago, offset, first, last), members in alike.items():
        # a historical window is one over the past as if it were now, and windows of the executors start at multiples
        # of their slide
        is_moved = ago != offset
        events = replace(decoded.events, time=decoded.events.time + (ago - offset)) if is_moved else decoded.events
        sequences = [sequence_queries(single, sequenced) for _, _, single in members]
        ends = first - offset, last - offset
        each = iter(answers(events, list(chain.from_iterable(sequences)), ends=ends))
        for (query, number, single), several in zip(members, sequences, strict=True):
            if query.group_by not in groups:
                groups[query.group_by] = numbered_groups([group_key(synopsis, query, key) for key in decoded.keys])
            keys, group = groups[query.group_by]
            rolled_answers = rolled(single, sequenced, keys, group, [next(each) for _ in several])
            if single.window.at is not None:
                rolled_answers = rolled_answers.at(single.window.at)
            rolled_windows[query.name][number] = rolled_answers
    return [side_by_side(query, rolled_windows[query.name]) for query in queries]


def rolled(query: ACQ, sequenced: Sequenced, keys: Sequence[str], group: Longs, each: Sequence[Answers]) -> Rolled:
    """Add up the executors' answers of a query over one window, ``each`` of its :func:`sequence_queries`, by group;
    ``group`` (k,): for each key of the events the number of its group, whose ``keys`` ascend.
    """
    answer, *reached = each
    window = query.window
    instants = answer.start + window.phase
    columns = {(0, *name): column for name, column in _columns(query, sequenced, answer).items()}
    sequences = _rolled(query.name, keys, group[answer.key], instants, columns)
    if not reached:
        return sequences
    least = int(reached[0].start.min(initial=0))
    width = int(reached[0].start.max(initial=least) - least) // window.slide + 1

    def codes(groups: Longs, starts: Longs) -> Longs:
        return groups * width + (starts - least) // window.slide

    counted = [np.unique(codes(group[one.key], one.start), return_counts=True) for one in reached]
    rows = counted[0][0]
    at = np.searchsorted(rows, codes(sequences.group, sequences.instants - window.phase))
    columns = {name: column.spread(at, len(rows)) for name, column in sequences.columns.items()}
    for step, (reached_rows, number) in zip(_steps(query), counted, strict=True):
        column = _Column("add", number.astype(np.int64))
        columns[0, step, REACHED] = column.spread(np.searchsorted(rows, reached_rows), len(rows))
    instants = rows % width * window.slide + least + window.phase
    return Rolled(query.name, tuple(keys), rows // width, instants, columns)


def side_by_side(query: ACQ, windows: Mapping[int, Rolled]) -> Rolled:
    """The answers of a query, of those over each of its windows: a group has one where it has one over any of them.
    ``windows``: by number, all of the same groups.
    """
    if not query.window.parts:
        return windows[0]
    slide, parts = query.window.slide, [windows[number] for number in range(len(windows))]
    moments = np.concatenate([part.instants for part in parts])
    least = int(moments.min()) if len(moments) else 0
    width = int(moments.max(initial=least) - least) // slide + 1
    codes = [part.group * width + (part.instants - least) // slide for part in parts]
    rows = np.unique(np.concatenate(codes))
    columns = {
        (number, measure, what): column.spread(np.searchsorted(rows, codes[number]), len(rows))
        for number, part in enumerate(parts)
        for (_, measure, what), column in part.columns.items()
    }
    return Rolled(query.name, parts[0].keys, rows // width, rows % width * slide + least, columns)


def numbered_groups(texts: Sequence[str]) -> tuple[list[str], Longs]:
    """The distinct texts, ascending, and for each text its number among them."""
    distinct = sorted(set(texts))
    place = {text: number for number, text in enumerate(distinct)}
    return distinct, np.array([place[text] for text in texts], dtype=np.int64)


def group_key(synopsis: Synopsis, query: ACQ, key: str) -> str:
    """The key of the group that the sequences of a key are added up to."""
    values = dict(zip((name for name, _ in synopsis.group_by), json.loads(key), strict=True))
    chosen = [values[name] for name, _ in query.group_by]
    return json.dumps(chosen, ensure_ascii=False, separators=(",", ":"))


def _rolled(
    query: str,
    keys: Sequence[str],
    group: Longs,
    instants: Longs,
    columns: Mapping[tuple[int, int, str], _Column],
) -> Rolled:
    """Answers of groups, whose ascending ``keys`` are numbered, added up by group and instant."""
    order = np.lexsort((instants, group))
    group, instants = group[order], instants[order]
    heads = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (instants[1:] != instants[:-1])))
    heads = heads[: len(group)]
    reduced = {name: column.of(order).reduced(heads, len(group)) for name, column in columns.items()}
    return Rolled(query, tuple(keys), group[heads], instants[heads], reduced)


def joined(parts: Sequence[Rolled]) -> Rolled:
    """Add up the answers of one query from several tasks."""
    keys, number = numbered_groups([key for part in parts for key in part.keys])
    cuts = np.cumsum([0, *(len(part.keys) for part in parts)])
    group = number[np.concatenate([cut + part.group for cut, part in zip(cuts, parts, strict=False)])]
    instants = np.concatenate([part.instants for part in parts])
    columns = {
        name: _Column(column.operation, np.concatenate([part.columns[name].values for part in parts]))
        for name, column in parts[0].columns.items()
    }
    return _rolled(parts[0].query, keys, group, instants, columns)


# ------------------------------------------------------------------------------------------- lowering
class LoweredAnswers(NamedTuple):
    """Some answers (a,) of a query, ascending by (group, instant), that satisfy HAVING or for which this is
    unknown: ``group`` and ``instants`` (a,), each of the query's ``outputs``; ``failed`` (a,), if any: those for
    which it is unknown; ``errors``: error messages, by row.
    """

    group: Longs
    instants: Longs
    outputs: list[Lowered]
    failed: NDArray[np.bool_] | None
    errors: dict[int, list[str]]


def lowered_answers(query: ACQ, synopsis: Synopsis, rolled: Rolled) -> LoweredAnswers:
    """The values of the answers that satisfy HAVING."""
    sequenced, windows = sequenced_of(synopsis), single_windows(query)
    known: dict[Output, Lowered] = {}

    def of(output: Output) -> Lowered:
        same = replace(output, name="")
        if same not in known:
            parts = [of(part) for part in output.parts]
            known[same] = derived(output, parts) if parts else _lowered(windows, sequenced, output, rolled)
        return known[same]

    rows, failed, errors = qualifying(query, [of(condition.output) for condition in query.having], len(rolled.instants))
    outputs = [of(output).where(rows) for output in query.outputs] if len(rows) else []
    return LoweredAnswers(rolled.group[rows], rolled.instants[rows], outputs, failed, errors)


def lowered(query: ACQ, synopsis: Synopsis, rolled: Rolled) -> Iterator[tuple[str, AnswerRows]]:
    """The answers that satisfy HAVING, day by day, on their way into files."""
    group, instants, outputs, failed, errors = lowered_answers(query, synopsis, rolled)
    if len(instants) == 0:
        return
    carried = carried_by(query, outputs, failed, errors)
    keys = pa.array(rolled.keys, pa.string())
    yield from AnswerRows(synopsis.stream, query.name, query.window, keys, group, instants, carried, errors).by_day()


def _lowered(windows: Sequence[ACQ], sequenced: Sequenced, output: Output, rolled: Rolled) -> Lowered:
    """The values of one output of a query, of which ``windows`` are the :func:`single_windows`."""
    size, window, query = len(rolled.instants), output.window, windows[output.window]
    measures = _measures(query, sequenced)

    def column(function: str, what: str = "") -> NDArray[Any]:
        measure = _measure(query, sequenced, output, function)
        assert measure is not None
        return rolled.columns[window, measures.index(measure), what or function].values

    always = np.ones(size, dtype=bool)
    if output.function == REACHED:
        return Lowered(rolled.columns[window, int(output.parameter or 0), REACHED].values, always)
    if output.function == "count" and output.argument is None:
        times = 1 if output.event is None else query.sequence.events.count(output.event)
        counted = rolled.columns[window, -1, "count"].values
        over = rolled.columns[window, -1, "count over"].values & (times > 0)
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
