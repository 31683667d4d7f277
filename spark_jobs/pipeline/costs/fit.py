"""Fit costs to the work and CPU time that runs recorded, and predict the cost of further runs.

A run counts its work (:data:`spark_jobs.pipeline.costs.measurements.FEATURES`) and measures the CPU time of each of
its stages. The model is linear: the time of a stage is the sum of the counts that it pays for, each times a cost
that is never negative. Errors are relative to the time of the run, so a tenth of a small run weighs as much as a
tenth of a large one. Where the records say little, the fit is drawn towards the shipped costs. The costs that a
sharing plan can change go into :class:`optimizer.search.cost.Coefficients`. The others, such as the fixed costs of
every run, belong to the prediction only.

Each run records its CPU time with two predictions. *Predicted* uses the plan's rates, the groups per fragment that
were measured before, and the windows of the run: all that was known before the run. *Explained* uses the counts of
the run itself. The first is wrong when rates and groups change. Both are wrong when the costs are not those of this
machine.

References
----------
Lawson & Hanson, Solving Least Squares Problems, 1974, chapter 23 (non-negative least squares); Hoerl & Kennard,
"Ridge regression", Technometrics 1970.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.search.cost import Coefficients
from spark_jobs.pipeline.costs.measurements import recorded_costs
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse

FILE = "coefficients.json"
"""File of a warehouse with the costs that were fitted to its runs."""

STAGES: dict[str, tuple[str, ...]] = {
    "list": ("runs", "processes"),
    "partials": ("runs", "processes", "sessions", "spark_runs", "events", "family_tuples", "partial_rows_written"),
    "finals": ("runs", "processes", "sessions", "spark_runs", "queries", "partial_rows_read", "rows_passed", "answers"),
    "audit": (
        *("runs", "processes", "suites", "sessions", "spark_runs"),
        *("queries", "queries_recomputed", "events_recomputed", "answers"),
    ),
    "publish": ("runs", "processes"),
}
"""The features that each stage of a run pays for.

Two features are counted but not paid for:

- Fragments combined. With tables over them, windows of 300 slides took as long as windows of 2. Where all windows
  have much the same range, this count grows with the rows passed, and a fit could not separate the two.
- Tuples of a tree. An event is lifted into atoms once, however many trees there are. A tree adds the rolling up and
  writing of its synopses, which grow with its families and their rows.
"""

SHIPPED: dict[str, float] = {
    "runs": 0.25,
    "processes": 0.9,
    "suites": 1.4,
    "sessions": 5.0,
    "spark_runs": 0.5,
    "queries": 6.9e-4,
    "queries_recomputed": 0.008,
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
costs, and with it a row read, from two of them ("states", "rows passed") that differ in nothing else; what it takes to
be a run, a process and a session, from ``python -m tests.benchmarks.prediction``; the first checks of a process, from
``make profile``."""

ONCE = ("runs", "processes", "suites", "sessions", "spark_runs")
"""Features that a run in a process of its own pays for once, whatever its queries, if Spark does its work."""

TIME_MAX = 1 << 60
"""Microseconds: an instant after all others, and its negative before them."""

RIDGE = 1e-3
"""Square of the relative error of one run that the fit accepts to take a cost as far from the shipped one as that is
from zero. It weighs little compared with ten runs, and is the only term without any.
"""

FAR = 2.0
"""Multiple of the median error of the runs up to which a run keeps its full weight."""

ROUNDS = 6
"""Number of fits. Each fit sets the weights of the runs for the next one."""

LEAST = 0.05
"""Seconds: runs that took less count as if they had taken this long, so that noise gets no weight."""


@dataclass(frozen=True)
class Observation:
    """Work and time of a run: amounts by feature, CPU seconds by stage."""

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
        """The costs that a sharing plan changes, for the plan search. A partial row is written and read again."""
        rows = self.costs["partial_rows_written"] + self.costs["partial_rows_read"]
        return Coefficients(
            per_tuple=_decimal(self.costs["tree_tuples"]),
            per_family_tuple=_decimal(self.costs["family_tuples"]),
            per_partial_row=_decimal(rows),
            per_fragment_combined=_decimal(self.costs["fragments_combined"]),
            per_answer=_decimal(self.costs["answers"]),
            per_row_passed=_decimal(self.costs["rows_passed"]),
            per_run=_decimal(sum(self.costs[name] for name in ONCE)),
            per_row_read=_decimal(self.costs["partial_rows_read"]),
            per_refresh=_decimal(self.costs["queries"]),
        )

    def seconds(self, features: Mapping[str, float], coefficients: Coefficients | None = None) -> float:
        """Predict the CPU seconds of a run with these features. ``coefficients`` replace the same costs of the fit."""
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


def fit(
    observations: Sequence[Observation],
    prior: Fit | None = None,
    weights: Sequence[float] | None = None,
    ridge: float = RIDGE,
) -> Fit:
    """The costs that explain some runs best.

    Minimises, over a cost x >= 0 for each stage and feature, the sum over runs and stages of the squared error relative
    to the run's total, and ``ridge`` times the squared relative distance of each feature's cost (the sum over its
    stages) from that of ``prior`` (None: the shipped one). Without observations that is the prior. ``weights``: of each
    run, at most 1 (None: all weigh the same); with them, runs that are further off than the others (:data:`FAR`) weigh
    less, as :data:`ROUNDS` fits find out. O(runs * unknowns^2).
    """
    before = SHIPPED | dict(prior.costs) if prior is not None else SHIPPED
    # what was measured as nothing has to start from something to become more
    unit = {name: cost or SHIPPED[name] for name, cost in before.items()}
    unknowns = [(stage, feature) for stage, features in STAGES.items() for feature in features]
    base_weights = np.ones(len(observations)) if weights is None else np.array(weights, dtype=float)
    totals = [max(seen.total, LEAST) for seen in observations]
    amounts = np.array(
        [
            [seen.features.get(name, 0) * unit[name] / total for _, name in unknowns]
            for seen, total in zip(observations, totals, strict=True)
        ]
    ).reshape(len(observations), len(unknowns))
    parts = {stage: np.array([at == stage for at, _ in unknowns], dtype=float) for stage in STAGES}
    relative_seconds = {
        stage: np.array([seen.cpu_seconds.get(stage, 0.0) for seen in observations]) / np.array(totals)
        for stage in STAGES
    }
    drawn = np.array(
        [[float(name == feature) for _, name in unknowns] for feature in dict.fromkeys(name for _, name in unknowns)]
    )
    towards = np.array([before[name] / unit[name] for name in dict.fromkeys(name for _, name in unknowns)])
    used, solution = base_weights, np.zeros(len(unknowns))
    for _ in range(1 if weights is None else ROUNDS):
        square, side = ridge * drawn.T @ drawn, ridge * drawn.T @ towards
        for stage, part in parts.items():
            stage_amounts = amounts * part
            square += stage_amounts.T @ (used[:, None] * stage_amounts)
            side += stage_amounts.T @ (used * relative_seconds[stage])
        solution = nonnegative(square, side)
        if weights is not None and len(observations):
            used = base_weights * _trust(amounts @ solution - sum(relative_seconds.values()), base_weights)
    costs = dict.fromkeys(SHIPPED, 0.0)
    for (_, feature), factor in zip(unknowns, solution.tolist(), strict=True):
        costs[feature] += factor * unit[feature]
    fitted = Fit(costs)
    return Fit(costs, tuple(relative_error(fitted.seconds(seen.features), seen.total) for seen in observations))


def _trust(errors: NDArray[np.float64], given: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights (n,) of runs that are explained with these relative errors: 1 up to :data:`FAR` times the usual error,
    less beyond it.
    """
    size = np.abs(errors)
    order = np.argsort(size, kind="stable")
    passed = np.cumsum(given[order])
    usual = float(size[order][np.searchsorted(passed, passed[-1] / 2)])
    allowed = FAR * max(usual, LEAST)
    return np.minimum(1.0, allowed / np.maximum(size, allowed))


def nonnegative(square: NDArray[np.float64], side: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x >= 0 that minimises x'Ax/2 - b'x, of a symmetric matrix A (n, n) and b (n,): least squares of normal
    equations, by Lawson and Hanson's active sets (their algorithm NNLS). A may be singular."""
    count = len(side)
    solution, free = np.zeros(count), np.zeros(count, dtype=bool)
    # of those that cannot be told apart each gets as much as the others
    regular = square + 1e-11 * max(float(np.diag(square).max(initial=0.0)), 1e-300) * np.eye(count)
    tiny = 1e-9 * max(float(np.abs(side).max(initial=0.0)), 1e-300)
    for _ in range(3 * count):
        slope = np.where(free, -np.inf, side - square @ solution)
        at = int(np.argmax(slope))
        if slope[at] <= tiny:
            break
        free[at] = True
        while True:
            tried = np.zeros(count)
            tried[free] = np.linalg.solve(regular[np.ix_(free, free)], side[free])
            wrong = free & (tried <= 0)
            if not wrong.any():
                break
            steps = solution[wrong] / np.maximum(solution[wrong] - tried[wrong], 1e-300)
            solution = solution + float(steps.min()) * (tried - solution)
            free &= solution > 1e-12 * max(float(solution.max()), 1e-300)
            solution[~free] = 0.0
            if not free.any():
                break
        solution = np.where(free, tried, 0.0) if free.any() else np.zeros(count)
    return solution


def relative_error(predicted: float, measured: float) -> float:
    """Error of a prediction, as a part of the measured value."""
    return (predicted - measured) / max(measured, LEAST)


def observations_of(warehouse: Warehouse) -> list[Observation]:
    """The runs of a warehouse that recorded their features. Runs of older versions recorded none and are skipped."""
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
