"""Predict the cost of a run from the newest runs of a warehouse: costs that follow this machine, and an interval.

Three steps, each from the newest :data:`REMEMBERED` runs only, so that reading does not grow with history:

1. *Costs*: :func:`spark_jobs.pipeline.costs.fit.fit`, drawn towards the costs from before any run (stored by
   ``heddle calibrate``, or shipped). A run weighs half as much as one that is :data:`HALF` runs newer. A run of
   another machine weighs :data:`FOREIGN` of that. A run whose time none of the others explains (it ran during other
   load) weighs less, the further off it is.
2. *Correction*: the factor by which similar runs (same plan, at most :data:`ALIKE` times as much or as little work)
   took more or less than these costs predict. It is the median of the newest, drawn towards 1 while they are few.
3. *Interval*: the multiples of their own predictions between which the newest runs lay, so that nine in ten hold.
   If enough runs took about as much, only those count. The interval is :data:`SHIPPED_FACTOR` either way until
   :data:`JUDGED` of the runs were predicted here from :data:`ENOUGH` others.

References
----------
Huber, "Robust estimation of a location parameter", 1964 (weights of runs far off); Vovk, Gammerman & Shafer,
Algorithmic Learning in a Random World, 2005 (conformal intervals from residuals).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from spark_jobs.pipeline.costs.fit import SHIPPED, Fit, Observation, fit, fit_of
from spark_jobs.pipeline.costs.measurements import Recorded, machine, newest_costs
from spark_jobs.store.warehouse.warehouse import Warehouse

REMEMBERED = 40
"""The newest runs that anything is learned from."""

HALF = 12
"""Runs after which one weighs half."""

RIDGE = 1e-2
"""The same as :data:`spark_jobs.pipeline.costs.fit.RIDGE`, but larger: a few similar runs reveal less of each cost
than probes made for it.
"""

FOREIGN = 0.02
"""Weight of a run of another machine, compared with one of this machine."""

ALIKE = 2.0
"""Up to how many times as much work, by the costs, runs of one plan are alike."""

CORRECTED_BY = 7
"""The newest of the runs alike that correct a prediction."""

ENOUGH = 5
"""Runs of this machine from which on predictions are by its costs."""

JUDGED = 9
"""Number of judged predictions from which on the interval comes from their errors. Fewer cannot show a bound of nine
in ten.
"""

SHIPPED_FACTOR = 2.0
"""Before that: between half and twice what is predicted."""

COVERED = 0.9
"""Share of the predicted intervals that are to hold."""

NARROWEST = 0.05
"""No interval is narrower than so much either way: measuring the same twice does not agree more closely."""


@dataclass(frozen=True)
class Predicted:
    """Predicted CPU seconds of a run, between ``least`` and ``most`` in nine of ten runs.

    ``runs``: the number of runs of this machine that it is learned from. ``is_measured``: the interval is measured
    too, not the shipped one.
    """

    cpu_seconds: float
    least: float
    most: float
    runs: int
    is_measured: bool

    def to_json(self) -> dict[str, float | int | bool]:
        """The fields as JSON for commands, rounded to a thousandth of a second."""
        seconds = {name: round(getattr(self, name), 3) for name in ("cpu_seconds", "least", "most")}
        return seconds | {"measured_runs": self.runs, "is_measured": self.is_measured}


@dataclass(frozen=True)
class Learned:
    """The costs before any run, and the newest runs, the newest first."""

    prior: Fit
    runs: Sequence[Recorded]
    machine: str

    @classmethod
    def of(cls, warehouse: Warehouse) -> Learned:
        """Read the costs and the newest runs of a warehouse. Raises HDL-516 for a file of costs with other content."""
        return cls(fit_of(warehouse), newest_costs(warehouse, REMEMBERED), machine())

    @cached_property
    def own(self) -> list[Recorded]:
        """The runs of this machine."""
        return [run for run in self.runs if run.machine == self.machine]

    @cached_property
    def costs(self) -> Fit:
        """The costs by which these runs are explained best."""
        seen = [Observation(run.features, run.cpu_seconds) for run in self.runs]
        weights = [
            0.5 ** (age / HALF) * (1.0 if run.machine == self.machine else FOREIGN) for age, run in enumerate(self.runs)
        ]
        return fit(seen, self.prior, weights, RIDGE)

    def predict(self, expected: Mapping[str, float], kind: str) -> Predicted:
        """A run of a plan (:func:`spark_jobs.pipeline.costs.prediction.kind_of`) that is expected to have such
        features."""
        plain = self.costs.seconds(expected)
        predicted = plain * self._correction(plain, kind)
        low, high, is_measured = self._factors(predicted)
        return Predicted(predicted, predicted * low, predicted * high, len(self.own), is_measured)

    def _correction(self, plain: float, kind: str) -> float:
        ratios = []
        for run in self.own:
            if run.kind == kind and run.total > 0:
                predicted = self.costs.seconds(run.expected)
                if predicted > 0 and plain > 0 and 1 / ALIKE <= predicted / plain <= ALIKE:
                    ratios.append(math.log(run.total / predicted))
        ratios = ratios[:CORRECTED_BY]
        if not ratios:
            return 1.0
        # as if one more run had taken just what was said
        return math.exp(_middle(ratios) * len(ratios) / (len(ratios) + 1))

    @cached_property
    def judged(self) -> list[tuple[float, float]]:
        """Predictions of the runs of this machine that were predicted from :data:`ENOUGH` others, the newest first.

        Each is the predicted value and its error (logarithm of the ratio, either way).
        """
        is_full = len(self.runs) >= REMEMBERED
        runs = self.own if is_full else self.own[: max(len(self.own) - ENOUGH, 0)]
        return [
            (run.predicted, abs(math.log(run.total / run.predicted)))
            for run in runs
            if run.predicted is not None and run.predicted > 0 and run.total > 0
        ]

    def _factors(self, predicted: float) -> tuple[float, float, bool]:
        """Between which multiples of a prediction the run is, and whether that was measured here."""
        alike = [error for before, error in self.judged if _alike(before, predicted)]
        errors = alike if len(alike) >= JUDGED else [error for _, error in self.judged]
        if len(errors) < JUDGED:
            return 1 / SHIPPED_FACTOR, SHIPPED_FACTOR, False
        wide = math.exp(max(_bound(errors), NARROWEST))
        return 1 / wide, wide, True


def known_costs(warehouse: Warehouse | None) -> Fit:
    """The costs that the newest runs of a warehouse teach; None, or no runs: those that are there before any."""
    return Fit(SHIPPED) if warehouse is None else Learned.of(warehouse).costs


def _alike(seconds: float, other: float) -> bool:
    return 1 / ALIKE <= seconds / other <= ALIKE if seconds > 0 and other > 0 else False


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _bound(errors: Sequence[float]) -> float:
    """Bound of the next error in :data:`COVERED` of cases, if it is similar to these (at least :data:`JUDGED`): the
    k-th of n, where k/(n + 1) is :data:`COVERED`.
    """
    return sorted(errors)[math.ceil(COVERED * (len(errors) + 1)) - 1]
