"""Decide whether a plan can be kept without a new search: the same queries, at about the same rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from optimizer.plan.definition import SharingPlan
from optimizer.search.cost import CostModel
from optimizer.workload.values import Workload

MOVED = Fraction(3, 2)
"""Factor by which groups per event of a sample may move before a plan is searched again."""


@dataclass(frozen=True)
class Searched:
    """Input of a search in addition to the queries, and its result.

    ``model``: before samples refined it. ``excess``: cost of the chosen plan over that of the plan from scratch, as a
    ratio. ``densities``: from samples of the streams' events
    (:meth:`optimizer.synopses.sharing.Profile.densities`), by stream and number.
    """

    algorithm: str
    model: CostModel
    rates: tuple[tuple[str, Fraction], ...]
    excess: Fraction
    densities: tuple[tuple[str, Fraction], ...] = ()

    @classmethod
    def of(cls, plan: SharingPlan, model: CostModel, densities: Mapping[str, Fraction] | None = None) -> Searched:
        """Inputs and outcome of a search that has just ended with ``plan``."""
        scratch = plan.from_scratch if plan.from_scratch is not None else plan.cost
        excess = max(plan.cost / scratch, Fraction(1)) if scratch else Fraction(1)
        return cls(plan.algorithm, model, plan.rates, excess, tuple((densities or {}).items()))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data; :meth:`from_json` returns an equal value."""
        return {
            "algorithm": self.algorithm,
            "model": self.model.to_json(),
            "rates": {name: str(rate) for name, rate in self.rates},
            "excess": str(self.excess),
            "densities": {name: str(density) for name, density in self.densities},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Searched:
        """Raises KeyError, TypeError, ValueError or AttributeError for data of another form."""
        rates, densities = (
            tuple((name, Fraction(amount)) for name, amount in data[key].items()) for key in ("rates", "densities")
        )
        return cls(data["algorithm"], CostModel.from_json(data["model"]), rates, Fraction(data["excess"]), densities)


def reused(
    plan: SharingPlan,
    searched: Searched,
    workload: Workload,
    rates: Mapping[str, Fraction],
    algorithm: str,
    model: CostModel,
    tolerance: float,
    densities: Callable[[], Mapping[str, Fraction]] = dict,
) -> SharingPlan | None:
    """The plan in force, for queries of the same meaning, if a search would keep it; None if it has to be searched.

    A search keeps the plan in force while it costs at most ``1 + tolerance`` times one from scratch
    (:func:`optimizer.search.search.keep`). Every cost is a sum of products of rates, coefficients and groups per
    fragment. So if each of them is at most f times what it was, or at least a g-th, no plan has become dearer by more
    than f, and none cheaper by more than g: the plan in force costs at most f·g times as much, compared with any
    other, as when it was searched. Of sequences of k events the product has k rates.

    ``densities``: those of :class:`Searched` now. A sample differs from day to day, so a plan is searched again only if
    they have moved against one another, or all together, by more than :data:`MOVED`. The sample is taken only if all
    else would keep the plan. How much filters overlap is not compared.
    """
    read = {query.stream for query in workload.queries}
    streams = tuple(stream for stream in workload.streams if stream.name in read)
    planned = [(query.name, query.fingerprint) for query in plan.workload.queries]
    same = (
        searched.algorithm == plan.algorithm == algorithm
        and searched.model.name == plan.model.name == model.name
        and streams == plan.workload.streams
        and [(query.name, query.fingerprint) for query in workload.queries] == planned
    )
    if not same:
        return None
    then = dict(searched.rates)
    spread = _spread(then, {name: rates[name] for name in then if name in rates})
    power = max((query.combined_events for query in workload.queries), default=1)
    factors = (
        None if spread is None else spread**power,
        _spread(asdict(searched.model.coefficients), asdict(model.coefficients)),
        _spread(dict(searched.model.groups_per_fragment), dict(model.groups_per_fragment)),
    )
    excess = searched.excess
    for factor in factors:
        if factor is None:
            return None
        excess *= factor
    if excess > 1 + Fraction(tolerance):
        return None
    moved = _spread(dict(searched.densities), densities())
    if moved is None or moved > MOVED:
        return None
    by_name = {query.name: query for query in workload.queries}
    trees = tuple(replace(tree, queries=tuple(by_name[query.name] for query in tree.queries)) for tree in plan.trees)
    return replace(plan, trees=trees, workload=replace(workload, streams=streams))


def _spread(then: Mapping[str, Fraction], now: Mapping[str, Fraction]) -> Fraction | None:
    """Largest factor by which costs that are proportional to some amounts can have moved against one another.

    None: without a bound.
    """
    if then.keys() != now.keys():
        return None
    most = least = Fraction(1)
    for name, before in then.items():
        after = now[name]
        if before == after:
            continue
        if not before or not after:
            return None
        most, least = max(most, Fraction(after) / before), min(least, Fraction(after) / before)
    return most / least
