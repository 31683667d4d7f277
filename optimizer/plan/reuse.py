"""Whether a plan holds without being searched again: the same queries, at about the same rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from optimizer.plan.definition import SharingPlan
from optimizer.search.cost import CostModel
from optimizer.workload.values import Workload


@dataclass(frozen=True)
class Searched:
    """What a search was given besides the queries, and what came of it.

    ``model``: before samples told it more. ``excess``: by how much the plan that was chosen costs more than the one
    from scratch, as their ratio.
    """

    algorithm: str
    model: CostModel
    rates: tuple[tuple[str, Fraction], ...]
    excess: Fraction

    @classmethod
    def of(cls, plan: SharingPlan, model: CostModel) -> Searched:
        """Of a search that has just ended with ``plan``."""
        scratch = plan.from_scratch if plan.from_scratch is not None else plan.cost
        return cls(plan.algorithm, model, plan.rates, max(plan.cost / scratch, Fraction(1)) if scratch else Fraction(1))

    def to_json(self) -> dict[str, Any]:
        """As JSON data; :meth:`from_json` gives an equal value back."""
        rates = {name: str(rate) for name, rate in self.rates}
        return {
            "algorithm": self.algorithm,
            "model": self.model.to_json(),
            "rates": rates,
            "excess": str(self.excess),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Searched:
        """Raises KeyError, TypeError, ValueError or AttributeError for data of another form."""
        rates = tuple((name, Fraction(rate)) for name, rate in data["rates"].items())
        return cls(data["algorithm"], CostModel.from_json(data["model"]), rates, Fraction(data["excess"]))


def reused(
    plan: SharingPlan,
    searched: Searched,
    workload: Workload,
    rates: Mapping[str, Fraction],
    algorithm: str,
    model: CostModel,
    tolerance: float,
) -> SharingPlan | None:
    """The plan in force, for queries of the same meaning, if a search would keep it; None if it has to be searched.

    A search keeps the plan in force while it costs at most ``1 + tolerance`` times one from scratch
    (:func:`optimizer.search.search.keep`). Every cost is a sum of products of rates, coefficients and groups per
    fragment. So if each of them is at most f times what it was, or at least a g-th, no plan has become dearer by more
    than f, and none cheaper by more than g: the plan in force costs at most f·g times as much, compared with any
    other, as when it was searched. Of sequences of k events the product has k rates.

    What is not compared is the sample of events by which filters and group-bys share synopses: it is taken again when
    a plan is searched.
    """
    read = {query.stream for query in workload.queries}
    streams = tuple(stream for stream in workload.streams if stream.name in read)
    mine = [(query.name, query.fingerprint) for query in plan.workload.queries]
    same = (
        searched.algorithm == plan.algorithm == algorithm
        and searched.model.name == plan.model.name == model.name
        and streams == plan.workload.streams
        and [(query.name, query.fingerprint) for query in workload.queries] == mine
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
    by_name = {query.name: query for query in workload.queries}
    trees = tuple(replace(tree, queries=tuple(by_name[query.name] for query in tree.queries)) for tree in plan.trees)
    return replace(plan, trees=trees, workload=replace(workload, streams=streams))


def _spread(then: Mapping[str, Fraction], now: Mapping[str, Fraction]) -> Fraction | None:
    """By how much costs that are proportional to some amounts can have moved against one another; None: without a
    bound."""
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
