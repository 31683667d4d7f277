"""The measured cost model made true: costs fitted to what runs recorded, and what they predict.

A run counts its work (:data:`spark_jobs.pipeline.costs.measurements.FEATURES`) beside the CPU time of each of its
stages. The time is taken as linear in the counts: each stage in those that it pays for, never with a negative cost,
relative to what the run took (a tenth of a small run weighs as a tenth of a large one), and drawn towards the shipped
costs where the records say little. What of it a sharing plan can change goes into
:class:`optimizer.search.cost.Coefficients`; the rest, such as what every run takes however little it does, belongs to
the prediction only.

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
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.search.cost import Coefficients
from spark_jobs.pipeline.costs.measurements import recorded_costs
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse

FILE = "coefficients.json"
"""Where a warehouse keeps the costs that were fitted to its runs."""

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

Two are counted but not paid for. Fragments combined: with tables over them, windows of 300 slides took as long as
windows of 2; where every window has much the same range they grow with the rows passed, and a fit could not tell which
of the two it was. Tuples of a tree: an event is lifted into atoms once, however many trees there are, and what a tree
adds, that its synopses are rolled up and written, grows with its families and their rows.
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
"""What a run in a process of its own pays once if Spark does its work, whatever it is asked."""

TIME_MAX = 1 << 60
"""Microseconds: an instant after all others, and its negative before them."""

RIDGE = 1e-3
"""Square of how far a fit goes, in relative error of one run, to take a cost as far from the shipped one as that is
from zero: little beside ten runs, all that there is without any."""

FAR = 2.0
"""How many times as far off as half of the runs are a run may be and still weigh all that it should."""

ROUNDS = 6
"""Fits, each of which tells the next one which runs to believe."""

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
            per_run=_decimal(sum(self.costs[name] for name in ONCE)),
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
    given = np.ones(len(observations)) if weights is None else np.array(weights, dtype=float)
    totals = [max(seen.total, LEAST) for seen in observations]
    amounts = np.array(
        [
            [seen.features.get(name, 0) * unit[name] / total for _, name in unknowns]
            for seen, total in zip(observations, totals, strict=True)
        ]
    ).reshape(len(observations), len(unknowns))
    parts = {stage: np.array([at == stage for at, _ in unknowns], dtype=float) for stage in STAGES}
    taken = {
        stage: np.array([seen.cpu_seconds.get(stage, 0.0) for seen in observations]) / np.array(totals)
        for stage in STAGES
    }
    drawn = np.array(
        [[float(name == feature) for _, name in unknowns] for feature in dict.fromkeys(name for _, name in unknowns)]
    )
    towards = np.array([before[name] / unit[name] for name in dict.fromkeys(name for _, name in unknowns)])
    used, found = given, np.zeros(len(unknowns))
    for _ in range(1 if weights is None else ROUNDS):
        square, side = ridge * drawn.T @ drawn, ridge * drawn.T @ towards
        for stage, part in parts.items():
            mine = amounts * part
            square += mine.T @ (used[:, None] * mine)
            side += mine.T @ (used * taken[stage])
        found = nonnegative(square, side)
        if weights is not None and len(observations):
            used = given * _trust(amounts @ found - sum(taken.values()), given)
    costs = dict.fromkeys(SHIPPED, 0.0)
    for (_, feature), factor in zip(unknowns, found.tolist(), strict=True):
        costs[feature] += factor * unit[feature]
    made = Fit(costs)
    return Fit(costs, tuple(relative_error(made.seconds(seen.features), seen.total) for seen in observations))


def _trust(errors: NDArray[np.float64], given: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far runs are believed (n,) that are explained with such relative errors: 1 up to :data:`FAR` times what is
    usual, from there on the less."""
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
    found, free = np.zeros(count), np.zeros(count, dtype=bool)
    # of those that cannot be told apart each gets as much as the others
    regular = square + 1e-11 * max(float(np.diag(square).max(initial=0.0)), 1e-300) * np.eye(count)
    tiny = 1e-9 * max(float(np.abs(side).max(initial=0.0)), 1e-300)
    for _ in range(3 * count):
        slope = np.where(free, -np.inf, side - square @ found)
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
            steps = found[wrong] / np.maximum(found[wrong] - tried[wrong], 1e-300)
            found = found + float(steps.min()) * (tried - found)
            free &= found > 1e-12 * max(float(found.max()), 1e-300)
            found[~free] = 0.0
            if not free.any():
                break
        found = np.where(free, tried, 0.0) if free.any() else np.zeros(count)
    return found


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
