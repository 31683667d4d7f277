"""Answers of many patterns over the same events: chosen executors, one pass each."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.sequences import kernels
from optimizer.sequences.events import Events
from optimizer.sequences.executors import choose
from optimizer.sequences.matches import Answers, Integers, Measure, Numbers, SequenceQuery
from optimizer.sequences.passes import EXECUTORS, FUNCTIONS, Pass


def answers(
    events: Events,
    queries: Sequence[SequenceQuery],
    executor: str | None = None,
    ends: tuple[int, int] | None = None,
) -> list[Answers]:
    """The answers of every query, in the same order, over all events given.

    ``executor``: one of :data:`EXECUTORS` (default: what :func:`choose` finds cheapest; measures always run on
    ``windows``). ``ends``: only windows that end in ``(begin, end]``; a window's events must all be given.
    Raises ValueError for an empty pattern, a range or slide that is not positive, an unknown attribute or executor.
    """
    _check(events, queries, executor)
    runs = kernels.runs_of(events.key)
    answered: dict[int, Answers] = {}
    for group in choose(events, queries, executor):
        members = [queries[i] for i in group.members]
        rows = Pass(events, runs, members, ends, group).counts()
        measured: dict[tuple[int, Measure], Integers | Numbers] = {}
        for measure in dict.fromkeys(measure for query in members for measure in query.measures):
            which = [i for i, query in enumerate(members) if measure in query.measures]
            columns = Pass(events, runs, [members[i] for i in which], ends, group).measured(measure)
            measured |= {(i, measure): column for i, column in zip(which, columns, strict=True)}
        for i, query in enumerate(members):
            run, start, count = rows[i]
            measures = tuple(measured[i, measure] for measure in query.measures)
            answered[group.members[i]] = Answers(events.key[runs[run]], start, count, measures)
    return [answered[i] for i in range(len(queries))]


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
