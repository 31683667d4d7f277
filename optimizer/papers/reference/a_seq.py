"""A-Seq (the Non-Shared method): every query counts its own sequences, without constructing them.

Each query has for each START event (one of its pattern's first type) that has not expired a count for each prefix
of the pattern. An event of the j-th type adds the counts of the prefix j - 1 to those of the prefix j. That is Sharon's
executor with a plan that shares nothing (:mod:`optimizer.papers.reference.sharon`, whose deviations hold here too).

References
----------
Qi, Cao, Ray, Rundensteiner, "Complex event analytics: online aggregation of stream sequence patterns", SIGMOD 2014.
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.papers.reference.sequence_runs import Run
from optimizer.papers.reference.sharon import sharon
from optimizer.sequences.events import Events


def a_seq(events: Events, patterns: Sequence[Sequence[int]], range: int, slide: int, pooled: bool = True) -> Run:
    """A-Seq: every query for itself.

    Parameters
    ----------
    patterns
        Type codes of each query, one at least; a type may be repeated.
    range, slide
        Of the windows ``[k*slide, k*slide + range)``, in the ticks of the events' times.
    pooled
        STARTs of one pane share counts; otherwise as published, a count per START event.

    For e events of a query's types, additions in O(e * STARTs), of all that have not expired: range/slide at most if
    pooled. Raises ValueError for an empty pattern, or a range or slide that is not positive.
    """
    return sharon(events, patterns, [()] * len(patterns), range, slide, pooled)
