"""Answers of many patterns over the same events: chosen executors, one pass each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optimizer.sequences.events import Events
from optimizer.sequences.executors import choose
from optimizer.sequences.matches import Answers, Integers, Measure, Numbers, SequenceQuery
from optimizer.sequences.measuring import Measuring, Rows, Weighing
from optimizer.sequences.passes import EXECUTORS, FUNCTIONS, Pass


def answers(
    events: Events,
    queries: Sequence[SequenceQuery],
    executor: str | None = None,
    ends: tuple[int, int] | None = None,
) -> list[Answers]:
    """The answers of every query, in the same order, over all events given.

    ``executor``: one of :data:`EXECUTORS` (default: what :func:`choose` finds cheapest; what takes a pass of
    its own runs on ``windows``). ``ends``: only windows that end in ``(begin, end]``, whose events must all be given.
    Raises ValueError for an empty pattern, a range or slide that is not positive, an unknown attribute or executor.
    """
    _check(events, queries, executor)
    # what ends matches is no pattern of weighted events
    weighing = Weighing(events, queries)
    measuring = {query: Measuring(weighing, query) for query in queries if not query.absent}
    patterns = [replace(query, measures=()) for query in queries]
    counted = _counted(
        weighing.events,
        [*patterns, *(query for each in measuring.values() for query in each.wanted.values())],
        executor,
        ends,
    )
    values: dict[tuple[int, Measure], Integers | Numbers] = {}
    for i, query in enumerate(queries):
        if query not in measuring:
            continue
        weighted_counts = {key: counted[pattern] for key, pattern in measuring[query].wanted.items()}
        for measure in query.measures:
            value = measuring[query].value(measure, counted[patterns[i]], weighted_counts)
            if value is not None:
                values[i, measure] = value
    values |= _measured(events, queries, ends, values)
    keys = events.key[events.runs[:-1]]
    answered = []
    for i, query in enumerate(queries):
        run, start, count = counted[patterns[i]]
        measures = tuple(values[i, measure] for measure in query.measures)
        answered.append(Answers(keys[run], start, count, measures))
    return answered


def _counted(
    events: Events, queries: Sequence[SequenceQuery], executor: str | None, ends: tuple[int, int] | None
) -> dict[SequenceQuery, Rows]:
    """Counts of each query; equal queries are counted once."""
    distinct = list(dict.fromkeys(queries))
    counted: dict[SequenceQuery, Rows] = {}
    for group in choose(events, distinct, executor):
        members = [distinct[i] for i in group.members]
        counts = Pass(events, members, ends, group).counts()
        counted |= zip(members, counts, strict=True)
    return counted


def _measured(
    events: Events,
    queries: Sequence[SequenceQuery],
    ends: tuple[int, int] | None,
    known: Mapping[tuple[int, Measure], Integers | Numbers],
) -> dict[tuple[int, Measure], Integers | Numbers]:
    """The measures that are not known yet, by a pass each."""
    pending: dict[Measure, list[int]] = {}
    for i, query in enumerate(queries):
        for measure in query.measures:
            if (i, measure) not in known:
                pending.setdefault(measure, []).append(i)
    measured: dict[tuple[int, Measure], Integers | Numbers] = {}
    for measure, indices in pending.items():
        members = list(dict.fromkeys(indices))
        for group in choose(events, [queries[i] for i in members], "windows"):
            group_queries = [members[place] for place in group.members]
            columns = Pass(events, [queries[i] for i in group_queries], ends, group).measured(measure)
            measured |= {(i, measure): column for i, column in zip(group_queries, columns, strict=True)}
    return measured


def _check(events: Events, queries: Sequence[SequenceQuery], executor: str | None) -> None:
    if executor is not None and executor not in EXECUTORS:
        raise ValueError(f"no executor is named {executor!r}")
    for query in queries:
        if not query.pattern or query.range <= 0 or query.slide <= 0:
            raise ValueError(f"a pattern has a type at least, and range and slide are positive: {query}")
        for measure in query.measures:
            if measure.function not in FUNCTIONS:
                raise ValueError(f"no function of event sequences is named {measure.function!r}")
            if measure.attribute not in events.attributes:
                raise ValueError(f"the events have no attribute {measure.attribute!r}")
