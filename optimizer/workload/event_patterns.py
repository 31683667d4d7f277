"""Patterns of event sequences."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pattern:
    """An event sequence SEQ(E1, ..., El): every choice of one event a type, in strictly ascending time (Sharon Def. 1).

    ``events``: the types E1 .. El as texts, a type perhaps several times; ``on``: the column of an event's type;
    ``per``: names, sorted, of the columns in which all events of a sequence agree (PARTITION BY and GROUP BY together);
    ``absent``: empty, or for each event but the last the types, sorted, of which no event with the same ``per`` lies
    between it and the next, both times excluded (``SEQ(E1, NOT X, E2)``).
    """

    events: tuple[str, ...]
    on: str
    per: tuple[str, ...]
    absent: tuple[tuple[str, ...], ...] = field(default=(), metadata={"optional": True})

    def __post_init__(self) -> None:
        if not self.events:
            raise ValueError("a pattern has at least one event type")
        if self.absent and (len(self.absent) != len(self.events) - 1 or not any(self.absent)):
            raise ValueError("some types are absent between two events of a pattern")

    def __str__(self) -> str:
        return f"SEQ({', '.join(self.steps)})"

    @property
    def steps(self) -> tuple[str, ...]:
        """Each event, and behind it what is absent before the next, as they are written."""
        gaps = (*self.absent, ()) if self.absent else ((),) * len(self.events)
        return tuple(", NOT ".join((event, *gap)) for event, gap in zip(self.events, gaps, strict=True))

    @property
    def types(self) -> frozenset[str]:
        """The types of the events that decide which sequences there are."""
        return frozenset(self.events).union(*self.absent)
