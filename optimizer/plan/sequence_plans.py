"""Which patterns the event sequence queries of a tree share: their
:class:`optimizer.sequences.sharing_plan.SequencePlan`.

One plan for each filter and group-by of a tree: those queries go over the same events. Their windows may differ; what
is shared does not depend on them, and rates are those of the longest. Execution computes every prefix and every piece
that patterns have in common once by itself (:mod:`optimizer.sequences`); the plan says which of that pays by Sharon's
costs, with whom a query shares it, and what that is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from optimizer.sequences.candidates import Pattern
from optimizer.sequences.sharing_plan import SequencePlan, plan_sequences, replan
from optimizer.synopses.sharing import Profile
from optimizer.synopses.synopsis import families_of
from optimizer.workload.values import ACQ, SECOND


def sequence_plans(
    queries: Sequence[ACQ],
    rate: Fraction,
    profile: Profile | None,
    previous: Iterable[SequencePlan] = (),
    tolerance: Fraction | float = 0.0,
) -> tuple[SequencePlan, ...]:
    """The plans of the families of one tree, by the names of their first queries.

    ``rate``: the stream's tuples per second; ``profile``: a sample of its events, without which all event types are
    equally frequent and there is one key. A plan of ``previous`` that has some of a family's queries is kept while it
    costs at most ``1 + tolerance`` times the best one (Sharon section 7.4).
    """
    earlier = list(previous)
    found: list[SequencePlan] = []
    for members in families_of(queries).values():
        patterns = [Pattern(query.name, query.pattern.events) for query in members if query.pattern is not None]
        rates = _rates(members, rate, profile)
        names = {pattern.name for pattern in patterns}
        held = [plan for plan in earlier if names & {query.name for query in plan.queries}]
        if held and tolerance > 0:
            found.append(replan(held[0], patterns, rates, float(tolerance)).plan)
        else:
            found.append(plan_sequences(patterns, rates))
    return tuple(sorted(found, key=lambda plan: plan.queries[0].name))


def _rates(queries: Sequence[ACQ], rate: Fraction, profile: Profile | None) -> dict[str, float]:
    """Events per window and key of each event type."""
    pattern = queries[0].pattern
    assert pattern is not None
    types = {event for query in queries if query.pattern for event in query.pattern.events}
    longest = max(query.window.range for query in queries)
    events = float(rate) * longest / SECOND
    if profile is None or pattern.on not in profile.shares:
        return dict.fromkeys(types, events / len(types))
    shares = profile.shares[pattern.on]
    keys = max(profile.groups(pattern.per), 1)
    return {event: events * shares.get(event, 0.0) / keys for event in types}
