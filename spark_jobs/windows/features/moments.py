"""The rule of all features: which events count for a label, by its moment.

A label has a moment m. Its features are over windows [start, end): **the end is exclusive, in every path**, so an event
at the end itself never counts. Two choices, which do not depend on each other, decide the rest:

- *accuracy*: of ``refreshed`` features the window is that of the newest instant t of the query with
  t + lateness + delay <= m, as a reader of published answers had it at m. Of ``exact`` features it ends at m - delay.
- *knowledge*: ``now`` every event counts that has arrived until now; ``then`` only those whose files had arrived at m.

References: Feast's point-in-time joins and Chronon's temporal accuracy, whose users were bitten where ends, arrival and
event time are mixed (docs/features.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.synopses.synopsis import Synopsis, synopsis_of
from optimizer.windows.alignment import ends_of, newest_instants, open_starts, starts_of
from optimizer.workload.values import ACQ, LONG, Stream

Longs = NDArray[np.int64]

ACCURACIES = ("refreshed", "exact")

KNOWLEDGE = ("now", "then")

ARRIVED = "heddle arrived"
"""Group column of cells for what was known then: when the file of the events had arrived (microseconds)."""

MICROSECOND = ((1, 0),)
"""Edges of the finest fragments: each has the events of one time."""


@dataclass(frozen=True)
class MomentRule:
    """The choice of the events that count for a label, by its moment.

    ``is_exact``: the accuracy; ``knows_then``: the knowledge; ``delay`` (microseconds): how long before its moment a
    label's features end at the latest.
    """

    is_exact: bool = False
    knows_then: bool = False
    delay: int = 0

    def instants(self, query: ACQ, stream: Stream, moments: Longs) -> Longs:
        """The instants (n,) up to which events count for labels at some moments (n,), for windows without ``ago``."""
        if self.is_exact:
            return moments - self.delay
        ready = moments - (self.delay + stream.lateness)
        return newest_instants(query.window, ready if query.until is None else np.minimum(ready, query.until))

    def spans(self, query: ACQ, instants: Longs) -> list[tuple[Longs, Longs]]:
        """Starts and ends (n,) of the windows at some of the :meth:`instants`, for each part of the query's window."""
        starts = open_starts if self.is_exact else starts_of
        return [(starts(part, instants), ends_of(part, instants)) for part in query.window.each]

    def synopsis(self, stream: Stream, queries: Sequence[ACQ]) -> Synopsis:
        """The partial aggregates of queries of one filter and group-by that their features are combined from."""
        synopsis = synopsis_of(stream, queries)
        if self.is_exact:
            synopsis = replace(synopsis, edges=MICROSECOND)
        if self.knows_then:
            synopsis = replace(synopsis, group_by=(*synopsis.group_by, (ARRIVED, LONG)))
        return synopsis
