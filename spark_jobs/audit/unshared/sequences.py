"""Event sequences window by window, in plain Python over the raw events of one window and group.

What the shared execution is compared with and audited by: it shares nothing with it but the definition. Counts are
Python integers, sums exact fractions; one pass over a key's events in order of time keeps, for every prefix of the
pattern, how many sequences match it and what is aggregated over them (A-Seq's recurrence, Sharon section 3.2, without
its expiry: a window is all there is).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

from optimizer.workload.event_patterns import Pattern
from optimizer.workload.values import ACQ, DOUBLE, REACHED, Output, Type, decimal

Event = tuple[int, str, tuple[Any, ...]]
"""Time in microseconds, type, and the value of each output's argument."""

PlacedEvent = tuple[Hashable, Event, Sequence[bool]]
"""An event of a window: its key, itself, and whether it lies in each of the window's parts."""

COUNT = decimal(38, 0)


class _Over(Protocol):
    """An aggregate over some sequences."""

    def extended(self, sequences: int, value: Any) -> _Over:
        """Over the same sequences, each with one event more that is aggregated."""

    def joined(self, other: Any) -> _Over:
        """Over these sequences and others."""


@dataclass(frozen=True)
class Total:
    """Sum over values: how many, the exact sum of the finite ones and of their magnitudes, and what is not finite."""

    count: int = 0
    total: Fraction = Fraction(0)
    magnitude: Fraction = Fraction(0)
    strange: frozenset[str] = frozenset()

    def extended(self, sequences: int, value: Any) -> Total:
        """Over the same sequences, each with a value more; null adds nothing."""
        if value is None or not sequences:
            return self
        if isinstance(value, float) and not math.isfinite(value):
            return replace(self, count=self.count + sequences, strange=self.strange | {str(value)})
        # dates and moments are only counted
        exact = sequences * Fraction(value) if isinstance(value, (int, float, Decimal)) else Fraction(0)
        return replace(
            self, count=self.count + sequences, total=self.total + exact, magnitude=self.magnitude + abs(exact)
        )

    def joined(self, other: Total) -> Total:
        """Over these sequences and others."""
        return Total(
            self.count + other.count,
            self.total + other.total,
            self.magnitude + other.magnitude,
            self.strange | other.strange,
        )

    @property
    def double(self) -> float:
        """The sum as a double."""
        if not self.strange:
            return _float(self.total)
        return float(next(iter(self.strange))) if len(self.strange) == 1 else math.nan


@dataclass(frozen=True)
class Extreme:
    """The least or greatest value, NaN the greatest of all; None: there is none."""

    best: Callable[..., Any]
    value: Any = None

    def extended(self, sequences: int, value: Any) -> Extreme:
        """Over the same sequences, each with a value more."""
        return self if not sequences else self.joined(Extreme(self.best, value))

    def joined(self, other: Extreme) -> Extreme:
        """Over these sequences and others."""
        known = [value for value in (self.value, other.value) if value is not None]
        return replace(self, value=self.best(known, key=_order) if known else None)


def _order(value: Any) -> tuple[bool, Any]:
    strange = isinstance(value, float) and math.isnan(value)
    return strange, 0 if strange else value


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def matches(
    events: Iterable[Event], pattern: Pattern, over: Sequence[tuple[str | None, _Over]]
) -> tuple[list[int], list[Any]]:
    """Numbers of sequences of one key's events that match the prefixes of a pattern, from the empty one on, whatever
    follows them, and the aggregates over those that match all of it.

    ``over``: for each output the type of the events that it aggregates (None: nothing) and its value over nothing.
    """
    nothing = [start for _, start in over]
    counts = [1] + [0] * len(pattern.events)
    totals = list(counts)
    states: list[list[Any]] = [list(nothing) for _ in counts]
    for _, together in groupby(sorted(events, key=itemgetter(0)), key=itemgetter(0)):
        # events of one time do not follow one another: all extend what was there before
        more, known = list(counts), [list(values) for values in states]
        moment = list(together)
        for place, types in enumerate(pattern.absent, 1):
            if any(type_ in types for _, type_, _ in moment):
                # nothing later follows what was there before (recounting of A-Seq)
                more[place], known[place] = 0, list(nothing)
        for _, type_, values in moment:
            for place, event in enumerate(pattern.events):
                if event != type_ or not counts[place]:
                    continue
                more[place + 1] += counts[place]
                totals[place + 1] += counts[place]
                for number, (aggregated, _) in enumerate(over):
                    extended = states[place][number]
                    if aggregated == event:
                        extended = extended.extended(counts[place], values[number])
                    known[place + 1][number] = known[place + 1][number].joined(extended)
        counts, states = more, known
    return totals, states[-1]


def fitting(value: Fraction | int, type: Type) -> Decimal | None:
    """An exact value as a decimal, rounded half up; None if it does not fit."""
    scaled = abs(Fraction(value)) * 10**type.scale
    unscaled = math.floor(scaled + Fraction(1, 2))
    if unscaled >= 10**type.precision:
        return None
    with localcontext(prec=100):
        return Decimal(unscaled if value >= 0 else -unscaled).scaleb(-type.scale)


# ------------------------------------------------------------------------------------------ answers of a query
def evidence_of(output: Output) -> dict[str, Type]:
    """Types of the evidence that :func:`answer` returns for an output: the answer under the empty name, and what an
    audit needs to judge sums and means (:func:`spark_jobs.audit.unshared.agreement.agrees`).
    """
    types = {"": output.type}
    if output.function in ("sum", "avg"):
        assert output.argument_type is not None
        types["count"] = COUNT
        if not output.argument_type.is_exact:
            types["magnitude"] = DOUBLE
        elif output.function == "avg":
            types["total"] = decimal(38, output.argument_type.scale)
    return types


def answer(query: ACQ, outputs: Sequence[Output], events: Iterable[PlacedEvent]) -> list[dict[str, Any]] | None:
    """The evidence of each output over the sequences of the events of one window and group; None if there is no
    answer: no sequence matches, or, where keys are counted by their steps, no key has the first one. A window with
    parts has an answer if one of them has.
    """
    parts = range(max(1, len(query.window.parts)))
    keys: list[dict[Hashable, list[Event]]] = [{} for _ in parts]
    for key, event, inside in events:
        for number in parts:
            if not query.window.parts or inside[number]:
                keys[number].setdefault(key, []).append(event)
    evidence: list[dict[str, Any]] = [{} for _ in outputs]
    is_answered = False
    for number in parts:
        chosen = [at for at, output in enumerate(outputs) if output.window == number]
        exists, each = _over_sequences(query.sequence, [outputs[at] for at in chosen], chosen, keys[number].values())
        is_answered |= exists
        for at, known in zip(chosen, each, strict=True):
            evidence[at] = known
    return evidence if is_answered else None


def _over_sequences(
    pattern: Pattern, outputs: Sequence[Output], places: Sequence[int], keys: Iterable[Iterable[Event]]
) -> tuple[bool, list[dict[str, Any]]]:
    """Evidence of the outputs over the sequences of the events of some keys, behind whether there is an answer.
    ``places``: of the values of their arguments among those of an event.
    """
    over = [(output.event if output.argument is not None else None, _over(output)) for output in outputs]
    sequences, states = 0, [start for _, start in over]
    reached = [0] * (len(pattern.events) + 1)
    for events in keys:
        arguments = ((at, type_, tuple(values[place] for place in places)) for at, type_, values in events)
        counts, more = matches(arguments, pattern, over)
        sequences += counts[-1]
        reached = [known + (count > 0) for known, count in zip(reached, counts, strict=True)]
        states = [known.joined(new) for known, new in zip(states, more, strict=True)]
    counts_keys = any(output.function == REACHED for output in outputs)
    return bool(reached[1] if counts_keys else sequences), [
        {"": reached[int(output.parameter or 0)]}
        if output.function == REACHED
        else _told(pattern, output, sequences, value)
        for output, value in zip(outputs, states, strict=True)
    ]


def _over(output: Output) -> Any:
    return Extreme(min if output.function == "min" else max) if output.function in ("min", "max") else Total()


def _told(pattern: Pattern, output: Output, sequences: int, over: Any) -> dict[str, Any]:
    if isinstance(over, Extreme):
        return {"": over.value}
    if output.function == "count":
        times = 1 if output.event is None else pattern.events.count(output.event)
        return {"": fitting(over.count if output.argument is not None else times * sequences, output.type)}
    evidence: dict[str, Any] = {"": None, "count": fitting(over.count, COUNT)}
    types = evidence_of(output)
    evidence |= {"magnitude": _float(over.magnitude)} if "magnitude" in types else {}
    evidence |= {"total": fitting(over.total, types["total"])} if "total" in types else {}
    if over.count:
        mean = over.total / over.count if output.function == "avg" else over.total
        strange = over.double if over.strange else _float(mean)
        evidence[""] = strange if output.type == DOUBLE else fitting(mean, output.type)
    return evidence
