"""The files of a source as the ledger has them: when they came and went, and what events they have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optimizer.workload.values import Stream
from spark_jobs.store.warehouse.schemas import micros, moment
from spark_jobs.streams.sources.clusters import Cluster


@dataclass(frozen=True)
class Move:
    """A file came or went, at the moment ``noted``, when its table was in the state ``commit``. ``changed``: None, or
    the file is covered by a change data feed: outside these spans, all files that moved at this moment contain the same
    events as before, by the column of times ``by``.
    """

    event: str
    noted: int
    commit: str | None = None
    by: str = ""
    changed: tuple[tuple[int, int], ...] | None = None

    def text(self) -> str | None:
        """The change as stored in the table."""
        return None if self.changed is None else json.dumps({"by": self.by, "spans": self.changed})


@dataclass(frozen=True)
class Arrival:
    """A file of a source as the ledger has it.

    Parameters
    ----------
    stream, path
        Where it lay when it was seen last.
    identity
        The name of its content, given when it was first seen. It stays when the file is moved.
    event, arrived, noted
        What happened last, when the file was written, and when that was noted (microseconds).
    begin, end
        Its events lie in [begin, end) microseconds; None: not known.
    refused, late
        ``late`` events of it lie in the spans ``refused``.
    stamps
        As it was seen, ``inode|time of change (nanoseconds)|CRC-32``; none in a table or store, or if an earlier Heddle
        noted it.
    moves
        When it came and went, in order.
    listings
        What it was listed as (:mod:`spark_jobs.streams.sources.listings`), each with the status that it had then,
        ``inode|time of change``; empty: not known.
    listed
        What it was listed as last; None: an earlier Heddle noted it.
    declared
        The declaration digest of the event times that the span is of; None: an earlier Heddle noted it.
    is_spanned
        Whether the span, and what is refused, are of the event times as they are declared now.
    clusters
        Its events, cut where none lies for long (:mod:`spark_jobs.streams.sources.clusters`); of the same event times.
    """

    stream: str
    identity: str
    path: str
    event: str
    arrived: int
    noted: int
    begin: int | None
    end: int | None
    refused: tuple[tuple[int, int], ...] = ()
    late: int = 0
    stamps: frozenset[str] = frozenset()
    moves: tuple[Move, ...] = ()
    listings: frozenset[tuple[str, str]] = field(default=frozenset(), compare=False)
    listed: str | None = field(default=None, compare=False)
    declared: str | None = None
    is_spanned: bool = True
    clusters: tuple[Cluster, ...] = ()

    @property
    def is_here(self) -> bool:
        return self.event != "gone"

    @property
    def contents(self) -> set[str]:
        """The checksums of what it holds: one, if any is known."""
        return {stamp.rpartition("|")[2] for stamp in self.stamps if "|" in stamp}

    def meets(self, begin: int | None, end: int | None) -> bool:
        """Return whether the file and a span may contain events of one moment."""
        return (self.begin is None or end is None or self.begin < end) and (
            self.end is None or begin is None or begin < self.end
        )

    def row(self, stamp: str | None = None, seen: int | None = None) -> dict[str, Any]:
        """The row of the table. ``stamp``: the only one that the file was seen with now, at the moment ``seen``;
        earlier rows have the others.
        """
        moments = {name: None if at is None else moment(at) for name, at in (("begin", self.begin), ("end", self.end))}
        nothing = Move(self.event, self.noted)
        move = next((each for each in self.moves if (each.event, each.noted) == (self.event, self.noted)), nothing)
        return {
            "stream": self.stream,
            "identity": self.identity,
            "path": self.path,
            "event": self.event,
            "arrived": moment(self.arrived),
            "refused": json.dumps(self.refused) if self.refused else "[]",
            "late": self.late,
            "at": moment(self.noted),
            "stamps": stamp or " ".join(sorted(self.stamps)) or None,
            "commit": move.commit,
            "changed": move.text(),
            "listed": self.listed,
            "seen": None if seen is None else moment(seen),
            "declared": self.declared if self.is_spanned else None,
            "clusters": json.dumps(self.clusters) if self.clusters else None,
            **moments,
        }


def arrival_of(
    stream: str,
    rows: Sequence[Mapping[str, Any]],
    listings: Iterable[tuple[str, str]] = (),
    is_spanned: Callable[[str | None], bool] = lambda declared: True,
) -> Arrival:
    """A file, of its rows by moment. ``is_spanned``: whether spans under a digest are of the event times of now."""
    moves: dict[int, Move] = {}
    for row in rows:
        if row["event"] != "released":
            move = _move(row)
            moves[move.noted] = move
    row = rows[-1]
    spanned = next((row_of_span for row_of_span in reversed(rows) if is_spanned(row_of_span.get("declared"))), None)
    span_values: Mapping[str, Any] = (
        {"begin": None, "end": None, "refused": "[]", "late": 0} if spanned is None else spanned
    )
    return Arrival(
        stream,
        row["identity"],
        row["path"],
        row["event"],
        micros(row["arrived"]),
        micros(row["at"]),
        None if span_values["begin"] is None else micros(span_values["begin"]),
        None if span_values["end"] is None else micros(span_values["end"]),
        tuple((first, last) for first, last in json.loads(span_values["refused"])),
        span_values["late"],
        # of all rows: one that adds a stamp has the moment of the one before it
        frozenset(stamp for row in rows for stamp in (row.get("stamps") or "").split()),
        tuple(moves.values()),
        frozenset(listings),
        row.get("listed"),
        None if spanned is None else spanned.get("declared"),
        spanned is not None,
        tuple(Cluster(*cluster) for cluster in json.loads(span_values.get("clusters") or "[]")),
    )


def _move(row: Mapping[str, Any]) -> Move:
    change = json.loads(row.get("changed") or "null")
    move = Move(row["event"], micros(row["at"]), row.get("commit"))
    if change is None:
        return move
    return replace(move, by=change["by"], changed=tuple((first, last) for first, last in change["spans"]))


def time_named(stream: Stream) -> str:
    """The column of times of a stream, and what it counts."""
    unit = stream.source.time_unit
    return stream.time if unit is None else f"{stream.time} in {unit}"
