"""What a tree costs: two models of one form, so that one search serves both.

The cost of a tree per second of stream is ``fixed + E * (base + sum of weights) + sum of constants`` where
E is its edge rate (fragments per second), ``fixed`` is paid once per tree, ``base`` per fragment, a query's
weight per fragment of the tree that it is in, and a query's constant wherever it is. Sharing saves
``fixed`` and common fragments, and raises the edge rate that every query of the tree pays.

``paper``
    Operations per second, C = m*lambda + sum of E_i*Omega_i: ``fixed`` is the rate lambda in tuples/s, a
    query's weight its overlap factor r/s. Exact fractions, so that the papers' figures can be reproduced to
    the last digit.
``measured``
    Seconds of CPU per second of stream, from :class:`Coefficients` fitted to what runs measured.

E*Omega is a model: it equals the real number of combined fragments only when each slide divides its range
(:func:`optimizer.plan.explain` gives both).

References
----------
Guirguis et al., Weave Share, CIKM 2011: Eqs. 1 and 3 (cost), 2 (overlap factor), 5 (benefit of a merge).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from optimizer.edges import edge_rate
from optimizer.query import ACQ, SECOND, Window
from optimizer.window import Progression, progressions


@dataclass(frozen=True)
class Coefficients:
    """Costs of the steps of a run, in the unit of the model (CPU seconds for ``measured``).

    The defaults are orders of magnitude seen with the compiled partial stage and Arrow batches on ten
    million events; a deployment replaces them by what it measures.

    Attributes
    ----------
    per_tuple
        Per source tuple and tree: fragment look-up and hash aggregation.
    per_partial_row
        Per partial aggregate (fragment and group) that a tree writes and reads again.
    per_fragment_combined
        Per partial aggregate combined into one answer of one query.
    per_answer
        Per answer row written; no plan changes it, but it belongs in a prediction.
    """

    per_tuple: Fraction = Fraction("2e-7")
    per_partial_row: Fraction = Fraction("1e-6")
    per_fragment_combined: Fraction = Fraction("1e-8")
    per_answer: Fraction = Fraction("3e-7")

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            # a decimal as it is written, so that 0.1 is a tenth
            exact = Fraction(str(value))
            if exact < 0:
                raise ValueError(f"{name} must not be negative")
            object.__setattr__(self, name, exact)


@dataclass(frozen=True)
class CostModel:
    """A named set of coefficients and, per stream, the groups that an average fragment holds.

    ``groups_per_fragment`` are sorted (stream, groups) pairs; a stream that is not named has one group.
    """

    name: str
    coefficients: Coefficients
    groups_per_fragment: tuple[tuple[str, Fraction], ...] = ()

    def groups(self, stream: str) -> Fraction:
        return dict(self.groups_per_fragment).get(stream, Fraction(1))

    def fixed(self, rate: Fraction) -> Fraction:
        """Cost per second of one more tree over a stream of ``rate`` tuples/s."""
        return rate * self.coefficients.per_tuple

    def base(self, stream: str) -> Fraction:
        """Cost per fragment of a tree, whatever its queries."""
        return self.groups(stream) * self.coefficients.per_partial_row

    def weight(self, query: ACQ) -> Fraction:
        """Cost per fragment of one query: r/s windows hold each fragment."""
        return self.groups(query.stream) * self.coefficients.per_fragment_combined * query.window.overlap_factor

    def constant(self, query: ACQ) -> Fraction:
        """Cost per second of writing one query's answers."""
        answers = self.groups(query.stream) * Fraction(SECOND, query.window.slide)
        return answers * self.coefficients.per_answer

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "coefficients": {name: str(value) for name, value in asdict(self.coefficients).items()},
            "groups_per_fragment": {stream: str(groups) for stream, groups in self.groups_per_fragment},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CostModel:
        groups = ((stream, Fraction(value)) for stream, value in data["groups_per_fragment"].items())
        coefficients = Coefficients(**{name: Fraction(text) for name, text in data["coefficients"].items()})
        return cls(data["name"], coefficients, tuple(sorted(groups)))


PAPER = CostModel("paper", Coefficients(Fraction(1), Fraction(0), Fraction(1), Fraction(0)))
"""Weave Share Eq. 1: one operation per tuple and tree and one per fragment combined; fragments are free."""


def measured(
    coefficients: Coefficients | None = None,
    groups_per_fragment: Mapping[str, Fraction | float] | None = None,
) -> CostModel:
    """The ``measured`` model: CPU seconds per second of stream.

    ``groups_per_fragment``: stream name to average number of groups (> 0) that one fragment holds.
    """
    groups = {stream: Fraction(str(value)) for stream, value in (groups_per_fragment or {}).items()}
    if any(value <= 0 for value in groups.values()):
        raise ValueError("groups per fragment must be positive")
    return CostModel("measured", coefficients or Coefficients(), tuple(sorted(groups.items())))


COST_MODELS = ("paper", "measured")


def cost_model(name: str) -> CostModel:
    """A cost model with its default coefficients, by name."""
    if name not in COST_MODELS:
        raise ValueError(f"unknown cost model {name!r}: one of {', '.join(COST_MODELS)}")
    return PAPER if name == "paper" else measured()


Partition = list[list[int]]
"""Trees as sorted lists of query indices, sorted by their first index."""


@dataclass(frozen=True)
class SearchProblem:
    """What a plan search works on: the queries of one stream as windows and costs.

    ``weights[i]`` and ``constants[i]`` belong to ``windows[i]``; ``fixed`` and ``base`` to every tree.
    """

    windows: tuple[Window, ...]
    fixed: Fraction
    base: Fraction
    weights: tuple[Fraction, ...]
    constants: tuple[Fraction, ...]

    @classmethod
    def of(cls, queries: Sequence[ACQ], rate: Fraction, model: CostModel) -> SearchProblem:
        """The queries (at least one, all of one stream) at ``rate`` tuples/s under a cost model."""
        return cls(
            tuple(query.window for query in queries),
            model.fixed(rate),
            model.base(queries[0].stream),
            tuple(model.weight(query) for query in queries),
            tuple(model.constant(query) for query in queries),
        )

    def edge_rate(self, members: Iterable[int]) -> Fraction:
        """Edges per second of a tree of these queries."""
        return edges_per_second(progressions(self.windows[i] for i in members))

    def tree_cost(self, members: Sequence[int]) -> Fraction:
        """Cost per second of a tree of these queries."""
        per_fragment = self.base + sum(self.weights[i] for i in members)
        return self.fixed + self.edge_rate(members) * per_fragment + sum(self.constants[i] for i in members)

    def cost(self, partition: Partition) -> Fraction:
        """Cost per second of a plan (Weave Share Eq. 3)."""
        return sum((self.tree_cost(members) for members in partition), Fraction(0))


def edges_per_second(edges: Iterable[Progression]) -> Fraction:
    """Edge rate of progressions in microseconds."""
    return edge_rate(edges) * SECOND
