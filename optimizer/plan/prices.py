"""Cost of an execution tree: synopsis by synopsis, as it is executed.

With the papers' costs, every query of a tree pays for all of the tree's fragments. With measured costs, windows of
time pay for those of their *synopsis* (:mod:`optimizer.synopses.synopsis`): its rows are cut at the edges of the
queries that it answers, and the rest of the tree costs them nothing. So a tree costs the sum of its synopses, each
of them as if it were a separate tree, and the queries of every synopsis are searched separately. Windows of rows
and event sequences are cut at the edges of their entire tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from optimizer.search.cost import Coefficients, CostModel, SearchProblem
from optimizer.synopses.sharing import choose
from optimizer.workload.values import ACQ


def pays_by_synopsis(model: CostModel, query: ACQ) -> bool:
    """Does a query pay for the fragments of its synopsis alone? Else for those of its tree."""
    return model.name == "measured" and query.kind.shares_synopses


def payers(queries: Sequence[ACQ], model: CostModel, together: Iterable[Sequence[str]] = ()) -> list[list[int]]:
    """The queries, by number and in their order, that pay for the same fragments wherever they are in one tree.

    ``queries``: at least one, all of one domain. ``together``: names of queries whose families share a synopsis.
    """
    if not pays_by_synopsis(model, queries[0]):
        return [list(range(len(queries)))]
    sharing = choose(None, queries, Coefficients(), together)
    place = {name: number for number, names in enumerate(sharing) for name in names}
    parts: dict[object, list[int]] = {}
    for number, query in enumerate(queries):
        parts.setdefault(place.get(query.name, (query.filter, query.group_by)), []).append(number)
    return list(parts.values())


def priced_problem(
    queries: Sequence[ACQ], rate: Fraction, model: CostModel, collapse: bool = True, counter: str = "auto"
) -> SearchProblem:
    """Search problem of queries that pay for the same fragments (:func:`payers`)."""
    return SearchProblem.of(queries, rate, model, collapse, counter, pays_by_synopsis(model, queries[0]))


def tree_cost(
    queries: Sequence[ACQ], rate: Fraction, model: CostModel, together: Iterable[Sequence[str]] = ()
) -> Fraction:
    """Cost per second of a tree of some queries; an upper bound where their edges cannot be counted."""
    total = Fraction(0)
    for numbers in payers(queries, model, together):
        problem = priced_problem([queries[number] for number in numbers], rate, model)
        total += problem.tree_cost(range(len(problem)))
    return total
