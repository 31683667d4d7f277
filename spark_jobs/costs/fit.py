"""The measured cost model made true: costs fitted to what runs recorded, and what they predict.

A run counts its work (:data:`spark_jobs.costs.measurements.FEATURES`) beside the CPU time of each of its stages. The
time is taken as linear in the counts: each stage in those that it pays for, never with a negative cost, relative to
what the run took (a tenth of a small run weighs as a tenth of a large one), and drawn towards the shipped costs where
the records say little. What of it a sharing plan can change goes into :class:`optimizer.search.cost.Coefficients`; the
rest, such as what every run takes however little it does, belongs to the prediction only.

Two predictions stand beside what a run took. *Predicted*: from the plan's rates, the groups a fragment that were
measured before and the windows of the run, as it was known before the run. *Explained*: from what the run counted. The
first is wrong when rates and groups change, both are when the costs are not those of this machine.

References
----------
Lawson & Hanson, Solving Least Squares Problems, 1974, chapter 23 (non-negative least squares); Hoerl & Kennard, "Ridge
regression", Technometrics 1970.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from optimizer.errors.diagnostics import HeddleError
from optimizer.search.cost import Coefficients
from spark_jobs.costs.measurements import recorded_costs
from spark_jobs.storage import Place
from spark_jobs.warehouse.warehouse import Warehouse

FILE = "coefficients.json"
"""Where a warehouse keeps the costs that were fitted to its runs."""

STAGES: dict[str, tuple[str, ...]] = {
    "list": ("runs",),
    "partials": ("runs", "sessions", "events", "family_tuples", "partial_rows_written"),
    "finals": ("runs", "sessions", "queries", "partial_rows_read", "rows_passed", "answers"),
    "audit": ("runs", "sessions", "queries", "queries_recomputed", "events_recomputed", "answers"),
    "publish": ("runs",),
}
"""The features that each stage of a run pays for.

Two are counted but not paid for. Fragments combined: with tables over them, windows of 300 slides took as long as
windows of 2; where every window has much the same range they grow with the rows passed, and a fit could not tell which
of the two it was. Tuples of a tree: an event is lifted into atoms once, however many trees there are, and what a tree
adds, that its synopses are rolled up and written, grows with its families and their rows.
"""

SHIPPED: dict[str, float] = {
    "runs": 1.1,
    "sessions": 9.2,
    "queries": 6.9e-4,
    "queries_recomputed": 0.49,
    "events_recomputed": 1.1e-7,
    "events": 2.4e-7,
    "tree_tuples": 0.0,
    "family_tuples": 1.1e-8,
    "partial_rows_written": 1.15e-6,
    "partial_rows_read": 1.05e-6,
    "rows_passed": 1.2e-8,
    "fragments_combined": 0.0,
    "answers": 2.4e-7,
}
"""CPU seconds a unit of each feature, as :data:`PROBES` measured them where Heddle was developed; what a row passed
costs, and with it a row read, from two of them ("states", "rows passed") that differ in nothing else."""

TIME_MAX = 1 << 60
"""Microseconds: an instant after all others, and its negative before them."""

RIDGE = 1e-3
"""Square of how far a fit goes, in relative error of one run, to take a cost as far from the shipped one as that is
from zero: little beside ten runs, all that there is without any."""

LEAST = 0.05
"""Seconds: runs that took less count as if they had taken this long, so that noise gets no weight."""


@dataclass(frozen=True)
class Observation:
    """What a run counted and took: amounts by feature, CPU seconds by stage."""

    features: Mapping[str, float]
    cpu_seconds: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.cpu_seconds.values())


@dataclass(frozen=True)
class Fit:
    """Costs that explain some runs.

    ``costs``: CPU seconds a unit of each feature; ``residuals``: (explained - measured) / measured of each run that
    was fitted; ``error``: the median of their sizes, None without runs.
    """

    costs: Mapping[str, float]
    residuals: tuple[float, ...] = ()

    @property
    def error(self) -> float | None:
        return statistics.median(map(abs, self.residuals)) if self.residuals else None

    @property
    def coefficients(self) -> Coefficients:
        """What of the costs a sharing plan changes, for the plan search. A partial row is written and read again."""
        rows = self.costs["partial_rows_written"] + self.costs["partial_rows_read"]
        return Coefficients(
            per_tuple=_decimal(self.costs["tree_tuples"]),
            per_family_tuple=_decimal(self.costs["family_tuples"]),
            per_partial_row=_decimal(rows),
            per_fragment_combined=_decimal(self.costs["fragments_combined"]),
            per_answer=_decimal(self.costs["answers"]),
            per_row_passed=_decimal(self.costs["rows_passed"]),
            per_run=_decimal(self.costs["runs"] + self.costs["sessions"]),
            per_row_read=_decimal(self.costs["partial_rows_read"]),
            per_refresh=_decimal(self.costs["queries"]),
        )

    def seconds(self, features: Mapping[str, float], coefficients: Coefficients | None = None) -> float:
        """CPU seconds of a run with these features; ``coefficients`` stand for what the fit says of the same."""
        costs = dict(self.costs)
        if coefficients is not None:
            rows = costs["partial_rows_written"] + costs["partial_rows_read"]
            written = costs["partial_rows_written"] / rows if rows else 1.0
            per_row = float(coefficients.per_partial_row)
            costs |= {
                "tree_tuples": float(coefficients.per_tuple),
                "family_tuples": float(coefficients.per_family_tuple),
                "partial_rows_written": per_row * written,
                "partial_rows_read": per_row * (1 - written),
                "fragments_combined": float(coefficients.per_fragment_combined),
                "answers": float(coefficients.per_answer),
                "rows_passed": float(coefficients.per_row_passed),
            }
        return sum(cost * features.get(name, 0) for name, cost in costs.items())

    def to_json(self) -> dict[str, Any]:
        """The costs as their file and ``heddle calibrate --json`` have them."""
        return {
            "format_version": 1,
            "costs": dict(self.costs),
            "coefficients": {name: float(value) for name, value in vars(self.coefficients).items()},
            "runs": len(self.residuals),
            "error": self.error,
            "residuals": list(self.residuals),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fit:
        """Inverse of :meth:`to_json`; a cost that is not named is the shipped one. ValueError for a wrong cost."""
        costs = {name: float(data["costs"].get(name, cost)) for name, cost in SHIPPED.items()}
        if wrong := [name for name, cost in costs.items() if not 0 <= cost < float("inf")]:
            raise ValueError(f"costs must be numbers of at least 0: {', '.join(wrong)}")
        return cls(costs, tuple(data.get("residuals", ())))


def _decimal(cost: float) -> Fraction:
    # three digits are more than any measurement is worth, and keep the search's fractions short
    return Fraction(f"{cost:.3g}")


def fit(observations: Sequence[Observation]) -> Fit:
    """The costs that explain some runs best.

    Minimises, over a cost x >= 0 for each stage and feature, the sum over runs and stages of the squared error relative
    to the run's total, and :data:`RIDGE` times the squared relative distance of each feature's cost (the sum over its
    stages) from the shipped one. Without observations that is :data:`SHIPPED`. O(runs * unknowns^2).
    """
    from scipy.optimize import nnls

    unknowns = [(stage, feature) for stage, features in STAGES.items() for feature in features]
    # unknown is by what factor a cost differs from the shipped one: costs themselves span ten orders of magnitude
    rows, wanted = [], []
    for seen in observations:
        weight = 1 / max(seen.total, LEAST)
        for stage in STAGES:
            rows.append(
                [weight * seen.features.get(name, 0) * SHIPPED[name] if at == stage else 0.0 for at, name in unknowns]
            )
            wanted.append(weight * seen.cpu_seconds.get(stage, 0.0))
    for feature in dict.fromkeys(feature for _, feature in unknowns):
        rows.append([RIDGE**0.5 if name == feature else 0.0 for _, name in unknowns])
        wanted.append(RIDGE**0.5)
    found, _ = nnls(np.array(rows), np.array(wanted))
    costs = dict.fromkeys(SHIPPED, 0.0)
    for (_, feature), factor in zip(unknowns, found.tolist(), strict=True):
        costs[feature] += factor * SHIPPED[feature]
    made = Fit(costs)
    return Fit(costs, tuple(relative_error(made.seconds(seen.features), seen.total) for seen in observations))


def relative_error(predicted: float, measured: float) -> float:
    """How far a prediction is off, as a part of what was measured."""
    return (predicted - measured) / max(measured, LEAST)


def observations_of(warehouse: Warehouse) -> list[Observation]:
    """The runs of a warehouse that recorded their features; those of older versions did not and are left out."""
    return [Observation(features, costs) for features, costs in recorded_costs(warehouse)]


def fit_of(warehouse: Warehouse) -> Fit:
    """The costs that are stored in a warehouse, or the shipped ones. Raises HDL-516 for a file of something else."""
    place = warehouse.place / FILE
    try:
        return Fit.from_json(json.loads(place.read()))
    except FileNotFoundError:
        return Fit(SHIPPED)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        hint = "make it anew with `heddle calibrate`, or remove it to use the shipped costs"
        raise HeddleError("HDL-516", f"{place} does not hold costs: {error}", hint) from None


def store(place: Place, fit: Fit) -> None:
    """Write costs to a file, atomically; :data:`FILE` in a warehouse is what :func:`fit_of` reads."""
    place.put(f"{json.dumps(fit.to_json(), indent=2)}\n".encode())
