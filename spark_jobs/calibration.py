"""The measured cost model made true: costs fitted to what runs recorded, and what they predict.

A run counts its work (:data:`spark_jobs.statistics.FEATURES`) beside the CPU time of each of its stages. The time is
taken as linear in the counts: each stage in those that it pays for, never with a negative cost, relative to what the
run took (a tenth of a small run weighs as a tenth of a large one), and drawn towards the shipped costs where the
records say little. What of it a sharing plan can change goes into :class:`optimizer.cost.Coefficients`; the rest, such
as what every run takes however little it does, belongs to the prediction only.

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
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.cost import Coefficients
from optimizer.errors import HeddleError
from optimizer.parser import parse
from optimizer.plan import SharingPlan, build_plan
from optimizer.query import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from optimizer.synopsis import Synopsis, synopses_of
from optimizer.window import DAY, instants
from spark_jobs.final_aggregates import Part, finals_of
from spark_jobs.partial_aggregates import Span, columns_of_synopsis, partials_of
from spark_jobs.sources import Split, read_split, splits_of
from spark_jobs.statistics import last_groups
from spark_jobs.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.run import RunRecord

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

EVER = 1 << 60
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


# --------------------------------------------------------------------------------------------- fitting
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
    return Fit(costs, tuple(_error(made.seconds(seen.features), seen.total) for seen in observations))


def _error(predicted: float, measured: float) -> float:
    return (predicted - measured) / max(measured, LEAST)


def observations_of(warehouse: Warehouse) -> list[Observation]:
    """The runs of a warehouse that recorded their features; those of older versions did not and are left out."""
    found = []
    for row in warehouse.rows("stream_statistics", ["stage_cpu_seconds", "at"]):
        costs = json.loads(row["stage_cpu_seconds"] or "{}")
        features = costs.pop("features", None)
        if features:
            found.append((row["at"], Observation(features, costs)))
    return [seen for _, seen in sorted(found, key=lambda pair: pair[0])]


def fit_of(warehouse: Warehouse) -> Fit:
    """The costs that are stored in a warehouse, or the shipped ones. Raises HDL-516 for a file of something else."""
    path = warehouse.root / FILE
    if not path.exists():
        return Fit(SHIPPED)
    try:
        return Fit.from_json(json.loads(path.read_text()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        hint = "make it anew with `heddle calibrate`, or remove it to use the shipped costs"
        raise HeddleError("HDL-516", f"{path} does not hold costs: {error}", hint) from None


def store(path: Path, fit: Fit) -> None:
    """Write costs to a file, atomically; :data:`FILE` in a warehouse is what :func:`fit_of` reads."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        json.dump(fit.to_json(), file, indent=2)
        file.write("\n")
    Path(file.name).replace(path)


# ------------------------------------------------------------------------------------------ predicting
@dataclass(frozen=True)
class Work:
    """What a run sets out to do: ``parts`` to answer of windows that end after ``begin`` (microseconds), ``spans`` to
    fill before that, from ``sources``."""

    begin: int
    parts: Sequence[Part]
    spans: Sequence[Span]
    sources: Mapping[str, Sequence[Split]]


def predict(costs: Fit, warehouse: Warehouse, plan: SharingPlan, record: RunRecord, work: Work) -> None:
    """Set what a run was predicted to take, and what its features explain, beside what it took.

    By the plan's own model if that is ``measured``, in everything that a plan changes; the rest is as ``costs`` has it.
    """
    own = plan.model.coefficients if plan.model.name == "measured" else None
    taken = sum(record.cpu_seconds.values())
    told = record.features
    known = {name: told[name] for name in ("runs", "sessions", "queries_recomputed", "events_recomputed")}
    predicted = costs.seconds(expected(plan, work, _groups(warehouse, plan)) | known, own)
    record.predicted_cpu_seconds = round(predicted, 3)
    record.prediction_error = round(_error(predicted, taken), 4)
    record.explained_cpu_seconds = round(costs.seconds(told, own), 3)


def expected(plan: SharingPlan, work: Work, groups: Mapping[str, float]) -> dict[str, float]:
    """The features that a run would have if events came at the plan's rates, ``groups`` of them in every fragment.

    Nothing is expected of times for which a stream's source holds nothing, where that is known.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for name, splits in work.sources.items():
        held = _held(splits)
        spans = [span for span in work.spans if span.synopsis.stream == name]
        if spans:
            first, last = min(span.begin for span in spans), max(span.end for span in spans)
            events = float(plan.rate(name)) * max(0, min(last, held[1]) - max(first, held[0])) / SECOND
            found["events"] += events
            found["tree_tuples"] += events * len({span.synopsis.edges for span in spans})
            found["family_tuples"] += events * len(spans)
        for span in spans:
            found["partial_rows_written"] += groups[name] * _fragments(span.synopsis, span.begin, span.end, held)
        for part in work.parts:
            if part.synopsis.stream != name:
                continue
            rows = groups[name] * _fragments(part.synopsis, part.begin, part.end, held)
            found["queries"] += len(part.queries)
            found["partial_rows_read"] += rows
            found["rows_passed"] += rows * len(part.queries)
            for query in part.queries:
                until = min(part.end, held[1] + query.window.range - 1)
                windows = len(instants(query.window, max(work.begin, held[0]), until))
                found["answers"] += groups[name] * windows
                found["fragments_combined"] += rows * windows * query.window.range / (part.end - part.begin)
    return dict(found)


def _held(splits: Sequence[Split]) -> tuple[int, int]:
    """Between which instants a source can hold events."""
    begins = [-EVER if split.begin is None else split.begin for split in splits]
    ends = [EVER if split.end is None else split.end for split in splits]
    return min(begins, default=EVER), max(ends, default=-EVER)


def _fragments(synopsis: Synopsis, begin: int, end: int, held: tuple[int, int]) -> float:
    """How many fragments hold some of the times that a source has in [begin, end): counted over a day at most."""
    begin, end = max(begin, held[0]), min(end, held[1])
    if begin >= end:
        return 0.0
    counted = min(end, begin + DAY)
    inner = synopsis.fragments.between(begin + 1, counted - 1)
    return (len(inner) + 1) * (end - begin) / (counted - begin)


def _groups(warehouse: Warehouse, plan: SharingPlan) -> dict[str, float]:
    """Groups a fragment of each stream: as the plan knows them, else as measured last, else one."""
    known = last_groups(warehouse) | dict(plan.model.groups_per_fragment)
    return {name: float(known.get(name, 1)) for name, _ in plan.rates}


# ------------------------------------------------------------------------------------------ measuring
OUTPUTS = (
    "sum(volume) AS volume",
    "avg(price) AS mean",
    "min(price) AS low, max(price) AS high",
    "count(*) AS trades",
    "stddev(price) AS spread",
    "sum(volume) AS volume, avg(price) AS mean",
)

DAY_START = 1_372_636_800 * SECOND
HOUR = 3600

Seconds = int


@dataclass(frozen=True)
class Probe:
    """A synthetic workload that has much of one feature: every window with every filter, over a day of ``events``.

    ``windows``: (range, slide); ``algorithm`` decides the trees, ``keys`` how many groups there are (0: queries do not
    group).
    """

    name: str
    events: int
    keys: int
    windows: tuple[tuple[Seconds, Seconds], ...]
    filters: int = 1
    algorithm: str = "shared"

    def workload(self, stream: Stream) -> Workload:
        statements = []
        for number, ((range_, slide), bound) in enumerate(product(self.windows, range(self.filters))):
            statements.append(
                f"-- name: q{number}\nSELECT {'symbol, ' if self.keys else ''}{OUTPUTS[number % len(OUTPUTS)]} "
                f"FROM {stream.name} WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' ON ts"
                f"{f' WHERE volume > {100 * bound}' if bound else ''}{' GROUP BY symbol' if self.keys else ''};"
            )
        return Workload(tuple(parse("\n".join(statements), {stream.name: stream}).queries), (stream,))


COARSE = tuple((2 * HOUR, slide) for slide in range(660, 2100, 60))

PROBES = (
    Probe("nothing", 1_000, 10, ((HOUR, HOUR),)),
    Probe("nothing again", 1_000, 10, ((HOUR, HOUR),)),
    Probe("events", 2_000_000, 0, ((600, 600), (1200, 600), (1200, 1200))),
    Probe("trees", 1_000_000, 0, COARSE, algorithm="no-share"),
    Probe("families", 1_000_000, 0, ((HOUR, 1800),), filters=24),
    Probe("rows", 400_000, 200, ((60, 30),)),
    Probe(
        "rows of trees", 200_000, 200, tuple((slide // 5, slide // 10) for _, slide in COARSE[:6]), algorithm="no-share"
    ),
    Probe("states", 600_000, 200, ((60, 30), *((1800 * long, 1800 * long) for long in range(2, 7)))),
    Probe("rows passed", 600_000, 200, ((60, 30), *((1800 * long, 1800 * long) for long in range(2, 42)))),
    Probe("answers", 100_000, 200, tuple((120 * slides, 60) for slides in range(1, 17))),
    Probe("fragments combined", 100_000, 200, tuple((60 * slides, 60) for slides in range(300, 306))),
    Probe("queries", 50_000, 5, tuple((HOUR * hours, HOUR) for hours in range(1, 24)), filters=6),
)
"""What :func:`calibrate` runs."""

ROUNDS = 3
"""Runs of each probe, each into a fresh warehouse; the first but that of a cold session warms up, and is not fitted."""


def calibrate(
    spark: SparkSession, folder: Path, quick: bool = False, report: Callable[[str], None] = lambda line: None
) -> Fit:
    """Run :data:`PROBES` on this machine and fit to them. ``quick``: a quarter of the events, each once.

    ``spark``: a session in which nothing ran, so that its first run shows what a cold one takes; ``folder``: an empty
    one for the events and their warehouses. Two minutes or three, ``quick`` a third of it.
    """
    from spark_jobs.planning import publish_plan
    from spark_jobs.run import run

    seen: list[Observation] = []
    for number, probe in enumerate(PROBES):
        report(f"measuring {probe.name} ({number + 1} of {len(PROBES)})")
        stream = _generate(folder / f"events-{number}", max(1_000, probe.events // (4 if quick else 1)), probe.keys)
        workload = probe.workload(stream)
        rows = sum(split.rows or 0 for split in splits_of(stream))
        plan = build_plan(workload, {stream.name: Fraction(rows * SECOND, DAY)}, probe.algorithm, "measured")
        if number == 0:
            _compile(stream)
        for again in range(1 if quick else ROUNDS):
            warehouse = Warehouse.open(folder / f"warehouse-{number}-{again}")
            version, _ = publish_plan(warehouse, plan)
            at = (version, DAY_START, DAY_START + DAY)
            record = run(spark, warehouse, *at, f"run-{again}", as_of=DAY_START + 2 * DAY)
            # workers load the compiled code of what they do for the first time: that belongs to the session
            if again or quick or number == 0:
                seen.append(Observation(record.features, record.cpu_seconds))
    return fit(seen)


def _generate(folder: Path, events: int, keys: int) -> Stream:
    """A day of events in order of time, in a file for every worker of a small machine."""
    folder.mkdir()
    chance = np.random.default_rng(7)
    names = pa.array([f"S{key:03d}" for key in range(max(keys, 1))])
    files = 4 if events > 10_000 else 1
    for number in range(files):
        first, last = (DAY_START + DAY * part // files for part in (number, number + 1))
        rows = events // files
        table = pa.table(
            {
                "ts": pa.array(np.sort(chance.integers(first, last, rows))).cast(pa.timestamp("us", "UTC")),
                "symbol": names.take(pa.array(chance.integers(0, len(names), rows))),
                "price": chance.lognormal(3.0, 0.5, rows),
                "volume": chance.integers(1, 5000, rows),
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")
    return _stream(folder)


def _stream(folder: Path) -> Stream:
    schema = (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG))
    return Stream("trades", Source("parquet", str(folder)), schema, "ts")


def _compile(stream: Stream) -> None:
    """Compile what lifts and combines before anything is measured: that is paid once a machine, not once a session."""
    window = "WINDOW RANGE '2 hours' SLIDE '1 hour' ON ts"
    statements = [f"-- name: q{number}\nSELECT {output} FROM trades {window};" for number, output in enumerate(OUTPUTS)]
    queries = parse("\n".join(statements), {stream.name: stream}).queries
    for synopsis, mine in synopses_of(stream, queries).items():
        span = Span(synopsis, DAY_START, DAY_START + DAY)
        columns = sorted(columns_of_synopsis(synopsis))
        events = [batch for split in splits_of(stream) for batch in read_split(stream, split, columns)]
        for _ in finals_of(partials_of(events, stream, [span]), synopsis, mine, span.begin, span.end):
            pass
