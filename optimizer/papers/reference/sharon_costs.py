"""Cost model of Sharon's executor, :func:`optimizer.papers.reference.sharon.sharon`: additions for a sharing plan.

The paper's Eqs. 1-8 (:class:`optimizer.papers.reference.sharing_candidates.SequenceProblem`) add up two units. Counts
are updated once per *range*, since overlapping windows share the counts of a START. Products are formed when a window
closes, r = range/slide times per range. The equations hold for r = 1. They price combining by products of rates, but
an executor that notes counts for each open window needs about r for each START. A plan by them is wrong both ways: it
cuts patterns too often if events are rare, and not if they are frequent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from optimizer.papers.reference.sharing_candidates import Pattern, SequenceProblem, Span, Types


class SharonCosts(SequenceProblem):
    """Sequence queries that may share, at the costs of the executor: additions per range and key.

    A START lives until its last window closes, 1 - 1/(2r) ranges on average. A segment adds to all live STARTs at each
    event of its later types. If another segment follows it, its counts are added up by window, for a shared one about
    as often as it has an event of its last type. Each START of the segment behind takes a note for every pane of live
    STARTs before it, or for a third and later segment r/2 for every such START. A query pays one addition, or one
    product, for each START of its last segment in each closing window.

    Parameters
    ----------
    queries
        Of different names.
    rates
        Events per range and key of every event type.
    ratio
        r, range/slide.
    pooled
        Whether STARTs of one pane share counts (segments that only begin patterns).
    """

    def __init__(
        self, queries: Iterable[Pattern], rates: Mapping[str, float], ratio: float, pooled: bool = False
    ) -> None:
        super().__init__(queries, rates)
        self.ratio, self.pooled = ratio, pooled
        places = self.occurrences()
        # shared patterns that follow another segment somewhere, and that another segment follows somewhere
        self._later = {types for types, occurrences in places.items() if any(begin > 0 for _, begin in occurrences)}
        self._followed = {
            types
            for types, occurrences in places.items()
            if any(begin + len(types) < len(self.queries[query].types) for query, begin in occurrences)
        }

    def _panes(self, rate: float) -> float:
        """Panes of a closing window that have an event."""
        return self.ratio * -math.expm1(-rate / self.ratio)

    def _live(self, types: Types, is_first: bool) -> float:
        """Counts of a segment that an event is added to: one per live START, or per pane with one."""
        rate = self.rates[types[0]]
        if not (self.pooled and is_first):
            return rate * (1 - 0.5 / self.ratio)
        full, in_pane = self._panes(rate) / self.ratio, rate / self.ratio
        # the current pane has no event yet with a probability that falls as it goes on
        return (self.ratio - 1) * full + (1 - full / in_pane if in_pane else 0.0)

    def _updates(self, types: Types, is_first: bool, summed: float) -> float:
        """Additions to a segment's counts, and to add them up ``summed`` times."""
        return self._live(types, is_first) * (math.fsum(self.rates[kind] for kind in types[1:]) + summed)

    def pattern_cost(self, types: Types) -> float:
        """Additions of a shared segment, once for all queries that share it."""
        return self._updates(types, types not in self._later, self.rates[types[-1]] * (types in self._followed))

    def segment_cost(self, query: int, span: Span, is_shared: bool, second: bool) -> float:
        """Additions that one of a query's segments costs the query."""
        types = self.queries[query].types
        begin, end = span
        is_first, starts = begin == 0, self.rates[types[begin]]
        if end == len(types):
            closed = self._panes(starts) if self.pooled and is_first else starts
            return self._own(types[begin:], is_shared, is_first, 0.0) + self.ratio * closed
        behind, last = self.rates[types[end]], self.rates[types[end - 1]]
        # added up again at a START behind, if an event of the last type has come since
        summed = behind * last / (behind + last) if behind else 0.0
        notes = behind * (self._panes(starts) if is_first else starts * self.ratio / 2)
        return self._own(types[begin:end], is_shared, is_first, summed) + notes

    def _own(self, types: Types, is_shared: bool, is_first: bool, summed: float) -> float:
        return 0.0 if is_shared else self._updates(types, is_first, summed)
