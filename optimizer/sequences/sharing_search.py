"""A cheap sharing plan of event sequences by local search, where the cheapest cannot be proven."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from optimizer.sequences.candidates import SequenceProblem, Sharing, Span, Types


class Router:
    """Cheapest ways to cut queries into segments where some patterns are counted anyway."""

    def __init__(self, problem: SequenceProblem) -> None:
        # a plan that the relaxation proves must not pay for the import
        from optimizer.sequences import sharing_kernels

        self.problem = problem
        self._kernels = sharing_kernels
        places = problem.occurrences()
        self.patterns = list(places)
        longest = max((len(query.types) for query in problem.queries), default=0)
        rates = np.zeros((len(problem.queries), longest))
        for row, one in zip(rates, problem.queries, strict=True):
            row[: len(one.types)] = [problem.rates[kind] for kind in one.types]
        spans = np.full((len(problem.queries), longest, longest + 1), -1, dtype=np.int64)
        for number, (types, occurrences) in enumerate(places.items()):
            for query, begin in occurrences:
                spans[query, begin, begin + len(types)] = number
        holders = [np.unique([query for query, _ in occurrences]) for occurrences in places.values()]
        self._ways = sharing_kernels.Ways(
            np.array([len(query.types) for query in problem.queries], dtype=np.int64),
            rates,
            spans,
            np.array([problem.counting(types) for types in self.patterns]),
            np.concatenate([*holders, np.empty(0, dtype=np.int64)]),
            np.cumsum([0, *map(len, holders)]),
        )

    def route(self, query: int, shared: Set[Types], through: Span | None = None) -> tuple[Span, ...]:
        """The shared spans of one query if ``shared`` patterns cost nothing; ``through`` is one of them in any case."""
        prices = self._prices(shared)
        row = slice(query, query + 1)
        spans = self._ways.spans[row].copy()
        if through:
            # a segment that is worth more than all others can cost
            spans[0, through[0], through[1]] = len(prices)
            prices = np.append(prices, -4.0 * self.problem.unshared(query) - 1.0)
        ways = self._ways._replace(lengths=self._ways.lengths[row], rates=self._ways.rates[row], spans=spans)
        chosen, own = np.empty((1, spans.shape[1]), dtype=np.int64), np.empty(1)
        self._kernels.route(np.zeros(1, np.int64), ways, prices, chosen, own)
        sizes = [*map(len, self.patterns), through[1] - through[0] if through else 0]
        return _spans(chosen, sizes)[0]

    def descend(self, shared: Set[Types], shakes: int = 0) -> Sharing:
        """A good plan near one that shares the patterns ``shared``, one pattern opened or closed at a time.

        All queries go their cheapest ways through the open patterns; those that fewer than two places use are closed.
        Opening or closing one lets only the queries go elsewhere that have it or use it. Ends where no such move
        saves; after that some patterns are opened or closed at random ``shakes`` times, the search goes on from there,
        and goes back where it finds nothing better. The same for the same problem on all machines.
        """
        if not self.patterns:
            return ((),) * len(self.problem.queries)
        order = np.argsort(-self._ways.counting, kind="stable")
        return _spans(
            self._kernels.cheap_routes(self._ways, self._prices(shared), order, shakes), [*map(len, self.patterns)]
        )

    def _prices(self, shared: Set[Types]) -> NDArray[np.float64]:
        return np.array([0.0 if types in shared else np.inf for types in self.patterns])


def _spans(chosen: NDArray[np.int64], sizes: Sequence[int]) -> Sharing:
    """Shared spans from the number of the pattern that begins at each position (-1: none), given their lengths."""
    return tuple(tuple((int(at), int(at) + sizes[row[at]]) for at in np.flatnonzero(row >= 0)) for row in chosen)
