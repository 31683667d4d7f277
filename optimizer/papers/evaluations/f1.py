"""F1's evaluation again: five sweeps of the plan search with different edge counters, and counts of operations.

Every counter runs inside the same published search (:mod:`optimizer.papers.reference.weave_share_published`). "Ours" is
Heddle's plan search, from raw windows to the plan. Seconds are process time, medians over a few workloads (seeds),
with the counters interleaved. A counter "dies" if it needs more than its limit (``died`` names the limit) or if the
search needs more than the scale's seconds. Rows also have what the published search would need: operations by the
paper's own formulas, and the longest Bit Set against the 96 GB of the paper's machine.

References
----------
Shein et al., F1, CIKM 2015: Figure 6 and section 4 (operations), Table 1 and Figures 7-11 (sweeps), Table 2 (summary).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean, median, median_low
from typing import Any

from optimizer.papers.evaluations.outcome import Chart, Experiment, Measurement, Report, Row, Value
from optimizer.papers.evaluations.window_workload import Windows, generate
from optimizer.papers.reference.weave_share_published import Search, Tally, counter_of, published
from optimizer.search.cost import Partition, SearchProblem
from optimizer.search.weave_share import weave_share
from optimizer.windows.edge_counting import edge_rate

COUNTERS = {"bit_set": "bit-set", "f1": "f1", "f1_opt": "f1-opt"}
"""Columns to the counters of :mod:`optimizer.windows.edge_counting`."""

LIMIT = {"tiny": 0.2, "quick": 1.0, "full": 30.0}
"""Seconds of process time after which a search is given up, by scale."""

RUNS = {"tiny": 1, "quick": 1, "full": 3}
"""Workloads (seeds) per point, by scale; one is enough where a point takes long."""

MEMORY = 96 * 2**30 * 8
"""Bits of the paper's machine."""


@dataclass(frozen=True)
class Sweep:
    """One experiment of Table 1: the parameter that varies, and the claims of Table 2.

    ``points`` by scale, in the paper's order; ``workload``: windows and rate for a value and a seed. ``rising``: each
    point is harder than the one before, so that a counter that died is not tried again.
    """

    figure: str
    symbol: str
    label: str
    points: Mapping[str, tuple[float, ...]]
    workload: Callable[[float, int], tuple[Windows, Fraction]]
    dies_at: float
    average: float
    largest: float
    table_gain: float
    rising: bool = True


def _sweep(sweep: Sweep, scale: str, report: Report) -> list[Row]:
    points = sweep.points[scale]
    rows: list[Row] = []
    dead: set[str] = set()
    _warm_up()
    for done, value in enumerate(points):
        report(done, len(points), f"{sweep.symbol} = {value:g}")
        row, died = _point(sweep, scale, value, dead)
        rows.append(row)
        if sweep.rising:
            dead |= died
    report(len(points), len(points), "done")
    return rows


def _warm_up() -> None:
    """Tables and compiled code are loaded once in a process, not by the first point."""
    problem = generate(20, 30, 0, 5, seed=1, fragments=True).problem(1)
    weave_share(problem)
    for name in COUNTERS.values():
        published(problem, counter_of(name), 1.0)


def _point(sweep: Sweep, scale: str, value: float, dead: set[str]) -> tuple[Row, set[str]]:
    """One point of a sweep: its row, and the counters that died in it."""
    seconds: dict[str, list[float]] = {name: [] for name in [*COUNTERS, "ours"]}
    died = dict.fromkeys(dead, "not tried, died before")
    tallies: list[Tally] = []
    row: Row = {sweep.symbol: value}
    started = time.process_time()
    for seed in range(RUNS[scale]):
        if seed and time.process_time() - started > LIMIT[scale] / 6:
            break
        windows, rate = sweep.workload(value, seed)
        begin = time.process_time()
        problem = windows.problem(rate)
        ours = weave_share(problem)
        seconds["ours"].append(time.process_time() - begin)
        searches = {name: _search(problem, name, scale) for name in COUNTERS if name not in died}
        died |= {name: search.died for name, search in searches.items() if search.died}
        for name, search in searches.items():
            seconds[name].append(search.seconds)
        tally = Tally(counter_of("auto"))
        tallied = published(problem, tally, LIMIT[scale])
        if not tallied.died:
            tallies.append(tally)
        ended = [search.partition for search in [*searches.values(), tallied] if search.partition is not None]
        if not seed:
            row |= {"acqs": len(windows), "edge_sets": len(problem), "trees": len(ours)}
            row |= {"cost": float(problem.cost(ours)), "edge_counts": None if tallied.died else tallied.counts}
        row["same_cost"] = row.get("same_cost", True) and all(_same_cost(problem, ours, other) for other in ended)
    for name in COUNTERS:
        row[f"{name}_seconds"] = None if name in died else median(seconds[name])
        row[f"{name}_died"] = died.get(name, "")
    row["ours_seconds"] = median(seconds["ours"])
    row["bit_set_operations"] = _large(median_low(tally.bit_set for tally in tallies)) if tallies else None
    row["f1_operations"] = _large(median_low(tally.f1 for tally in tallies)) if tallies else None
    row["longest_bit_set"] = _large(median_low(tally.longest for tally in tallies)) if tallies else None
    for ratio, over, under in (
        ("bit_set_over_f1", "bit_set_seconds", "f1_seconds"),
        ("f1_opt_over_f1", "f1_opt_seconds", "f1_seconds"),
        ("f1_over_ours", "f1_seconds", "ours_seconds"),
        ("operations_bit_set_over_f1", "bit_set_operations", "f1_operations"),
    ):
        row[ratio] = row[over] / row[under] if row[over] is not None and row[under] else None
    return row, set(died)


def _search(problem: SearchProblem, name: str, scale: str) -> Search:
    return published(problem, counter_of(COUNTERS[name]), LIMIT[scale])


def _same_cost(problem: SearchProblem, ours: Partition, other: Partition) -> bool:
    return ours == other or problem.cost(ours) == problem.cost(other)


def _large(number: int | Fraction) -> float | None:
    """Return a number as a float, or None if it is too large for one (periods of hundreds of digits)."""
    try:
        return float(number)
    except OverflowError:
        return None


def _known(rows: list[Row], column: str) -> list[float]:
    return [row[column] for row in rows if row[column] is not None]


def _first_died(rows: list[Row], sweep: Sweep, name: str) -> Value:
    return next((row[sweep.symbol] for row in rows if row[f"{name}_died"]), None)


def _last_ended(rows: list[Row], sweep: Sweep, name: str) -> Value:
    return next((row[sweep.symbol] for row in reversed(rows) if row[f"{name}_seconds"] is not None), None)


def _first_beyond_memory(rows: list[Row], sweep: Sweep) -> Value:
    beyond = (row for row in rows if row["longest_bit_set"] is not None and row["longest_bit_set"] > MEMORY)
    return next((row[sweep.symbol] for row in beyond), None)


def _summarise(sweep: Sweep, rows: list[Row], scale: str) -> Measurement:
    ratios, gains = _known(rows, "bit_set_over_f1"), _known(rows, "f1_opt_over_f1")
    fits = [row for row in rows if row["longest_bit_set"] is not None and row["longest_bit_set"] <= MEMORY]
    operations = _known(fits, "operations_bit_set_over_f1")
    ours = _known(rows, "f1_over_ours")
    last = sweep.points["full"][-1]
    measured: dict[str, tuple[Value, Value]] = {
        f"Bit Set dies at {sweep.symbol} (one set beyond 96 GB)": (sweep.dies_at, _first_beyond_memory(rows, sweep)),
        f"Bit Set dies at {sweep.symbol} (our run)": (sweep.dies_at, _first_died(rows, sweep, "bit_set")),
        f"F1 reaches {sweep.symbol}": (last, _last_ended(rows, sweep, "f1")),
        f"ours reaches {sweep.symbol}": (None, rows[-1][sweep.symbol]),
        "seconds Bit Set / F1, average": (sweep.average, fmean(ratios) if ratios else None),
        "seconds Bit Set / F1, largest": (sweep.largest, max(ratios, default=None)),
        "operations Bit Set / F1, average while within 96 GB": (None, fmean(operations) if operations else None),
        "operations Bit Set / F1, largest while within 96 GB": (None, max(operations, default=None)),
        "GCD table saves, %": (sweep.table_gain, 100 * (1 - fmean(gains)) if gains else None),
        "seconds F1 / ours, average": (None, fmean(ours) if ours else None),
        "seconds F1 / ours, largest": (None, max(ours, default=None)),
        "seconds of ours, longest": (None, max(_known(rows, "ours_seconds"))),
        "same cost with every counter": ("yes", "yes" if all(row["same_cost"] for row in rows) else "NO"),
    }
    dies = _first_died(rows, sweep, "f1")
    why = next((row["f1_died"] for row in rows if row["f1_died"]), "")
    sentences = [
        f"Ours goes all the way to {sweep.symbol} = {rows[-1][sweep.symbol]:g} in at most "
        f"{max(_known(rows, 'ours_seconds')):.2g} s a plan.",
        f"The published search with F1 ends at every point ({LIMIT[scale]:g} s allowed)."
        if dies is None
        else f"The published search with F1 dies at {sweep.symbol} = {dies:g} ({why}; {LIMIT[scale]:g} s allowed)"
        f"{_needed(rows, sweep, dies)}.",
    ]
    if ratios:
        sentences.append(
            f"Bit Set takes {fmean(ratios):.3g} times F1's seconds on average where both end (paper: "
            f"{sweep.average:g}): this Bit Set marks whole arrays at a time."
        )
    return Measurement(rows, " ".join(sentences), measured)


def _needed(rows: list[Row], sweep: Sweep, value: Value) -> str:
    needed = next((row["f1_operations"] for row in rows if row[sweep.symbol] == value), None)
    return "" if needed is None else f", where the paper's formula n*2^(n-1) asks for {needed:.1g} operations"


def _generated(**fixed: Any) -> Callable[[float, int], tuple[Windows, Fraction]]:
    """A workload of which one parameter (given as None) is the sweep's value."""

    def workload(value: float, seed: int) -> tuple[Windows, Fraction]:
        parameters: dict[str, Any] = {name: value if number is None else number for name, number in fixed.items()}
        rate = Fraction(str(parameters.pop("rate")))
        count, slide, overlap = (int(parameters.pop(name)) for name in ("count", "largest_slide", "largest_overlap"))
        return generate(count, slide, largest_overlap=overlap, seed=seed, **parameters), rate

    return workload


SWEEPS = {
    1: Sweep(
        "7",
        "acqs",
        "number of ACQs",
        {
            "tiny": (20, 1000),
            "quick": (100, 200, 300, 550, 10_000, 1_000_000),
            "full": (100, 200, 300, 400, 550, 700, 1_000, 2_000, 10_000, 100_000, 1_000_000),
        },
        _generated(count=None, largest_slide=1000, rate="0.002", skew=0.5, largest_overlap=10),
        550,
        350,
        790,
        28,
    ),
    2: Sweep(
        "8",
        "largest_slide",
        "largest slide (s)",
        {
            "tiny": (20, 60),
            "quick": (100, 200, 400, 800, 2_000, 10_000),
            "full": (100, 200, 300, 400, 500, 600, 800, 1_000, 2_000, 5_000, 10_000),
        },
        _generated(count=1000, largest_slide=None, rate=1, skew=3, largest_overlap=100, primes_only=True),
        800,
        2_200,
        10_000,
        18,
    ),
    3: Sweep(
        "9",
        "rate",
        "input rate (tuples/s)",
        {
            "tiny": (100, 400),
            "quick": (100, 400, 900, 2_000, 10_000, 100_000, 1_000_000),
            "full": (100, 200, 400, 600, 900, 2_000, 5_000, 10_000, 30_000, 100_000, 1_000_000),
        },
        _generated(count=1000, largest_slide=100, rate=None, skew=1, largest_overlap=1000),
        900,
        3_800,
        16_000,
        19,
    ),
    4: Sweep(
        "10",
        "skew",
        "slide skew",
        {
            "tiny": (0, 100),
            "quick": (0, 1, 2, 2.25, 3, 10, 50, 100),
            "full": (0, 0.5, 1, 1.5, 2, 2.25, 2.5, 3, 5, 10, 20, 50, 100),
        },
        _generated(count=50, largest_slide=500, rate="0.1", skew=None, largest_overlap=100),
        2.25,
        14_000,
        60_000,
        18,
        rising=False,
    ),
    5: Sweep(
        "11",
        "largest_overlap",
        "largest overlap factor",
        {
            "tiny": (100,),
            "quick": (100, 80, 60, 40, 20, 5, 1),
            "full": (100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5, 2, 1),
        },
        _generated(count=1000, largest_slide=600, rate=1, skew=3, largest_overlap=None, primes_only=True),
        40,
        5_600,
        16_000,
        26,
    ),
}

_measured: dict[tuple[int, str], Measurement] = {}


def _experiment(number: int, scale: str, report: Report) -> Measurement:
    sweep = SWEEPS[number]
    # Table 2 is the summary of the five: it repeats none that this process has measured at the same scale
    if (number, scale) not in _measured:
        _measured[number, scale] = _summarise(sweep, _sweep(sweep, scale, report), scale)
    return _measured[number, scale]


def _sweep_experiment(number: int, minutes: float) -> Experiment:
    sweep = SWEEPS[number]
    claim = (
        f"Bit Set runs out of 96 GB at {sweep.dies_at:g}; F1 is {sweep.average:,.0f} times faster on average "
        f"(at most {sweep.largest:,.0f}) and goes all the way; the GCD table saves {sweep.table_gain}%"
    )
    seconds = {"bit_set": "Bit Set", "f1": "F1", "f1_opt": "F1 + GCD table", "ours": "ours"}
    return Experiment(
        f"f1-{sweep.figure}",
        "f1",
        sweep.figure,
        f"F1 experiment {number}: planning time by {sweep.label}",
        claim,
        minutes,
        Chart(
            sweep.symbol,
            sweep.label,
            {f"{column}_seconds": label for column, label in seconds.items()},
            "seconds of process time per plan",
            log="xy",
            paper=((f"Bit Set dies at {sweep.dies_at:g}", sweep.dies_at, None),),
        ),
        lambda scale, report: _experiment(number, scale, report),
    )


def _table_2(scale: str, report: Report) -> Measurement:
    rows: list[Row] = []
    measured: dict[str, tuple[Value, Value]] = {}
    for done, (number, sweep) in enumerate(SWEEPS.items()):
        report(done, len(SWEEPS), f"experiment {number}")
        # the five tell their own steps; the table only counts experiments
        measurement = _experiment(number, scale, lambda step, total, text: None)
        row: Row = {"experiment": number, "parameter": sweep.symbol}
        for quantity, (paper, ours) in measurement.measured.items():
            label = quantity.replace(f" {sweep.symbol}", "")
            row[f"{label}: paper"], row[f"{label}: measured"] = paper, ours
            measured[f"{number}: {quantity}"] = (paper, ours)
        row["paper"], row["measured"] = sweep.average, measurement.measured["seconds Bit Set / F1, average"][1]
        row["operations"] = measurement.measured["operations Bit Set / F1, average while within 96 GB"][1]
        row["f1_over_ours"] = measurement.measured["seconds F1 / ours, average"][1]
        rows.append(row)
    report(len(SWEEPS), len(SWEEPS), "done")
    return Measurement(rows, "The five experiments, one row each: see theirs for the points.", measured)


def _figure_6(scale: str, report: Report) -> Measurement:
    """Operations for the slides 1..n (the paper's auxiliary set), and ours for n/2+1..n (a set without multiples)."""
    largest = {"tiny": 60, "quick": 500, "full": 700}[scale]
    sizes = [n for n in range(20, largest + 1, 20) if n <= 100 or n % 100 == 0]
    rows: list[Row] = []
    for done, n in enumerate(sizes):
        report(done, len(sizes), f"{n} ACQs")
        period = math.lcm(*range(1, n + 1))
        # Eq. 7, and section 4 with its factor for the LCMs
        bit_set = sum(period // slide for slide in range(1, n + 1))
        f1 = math.ceil(n * 2 ** (n - 1) * math.log2(n))
        begin = time.process_time()
        edge_rate([(slide, 0) for slide in range(n // 2 + 1, n + 1)])
        rows.append(
            {
                "acqs": n,
                "bit_set_operations": _large(bit_set),
                "f1_operations": _large(f1),
                "ratio": _large(Fraction(bit_set, f1)),
                "ours_seconds": time.process_time() - begin,
            }
        )
    report(len(sizes), len(sizes), "done")
    at_500 = next((row["ratio"] for row in rows if row["acqs"] == 500), None)
    last = rows[-1]
    summary = (
        f"At {last['acqs']} ACQs Bit Set needs {last['bit_set_operations']:.1e} operations, F1 "
        f"{last['f1_operations']:.1e}: {last['ratio']:.1e} times fewer, and neither can be run. Ours counts the slides "
        f"{last['acqs'] // 2 + 1} to {last['acqs']} exactly in {last['ours_seconds']:.2g} s. (The auxiliary set holds "
        "slide 1, of which all others are multiples: after the paper's own preparation one slide is left of it.)"
    )
    power = None if at_500 is None else math.log10(at_500)
    measured: dict[str, tuple[Value, Value]] = {
        "log10 of operations Bit Set / F1 at 500 ACQs": (62, power),
        "seconds of ours for half as many slides": (None, last["ours_seconds"]),
    }
    return Measurement(rows, summary, measured)


EXPERIMENTS = (
    Experiment(
        "f1-6",
        "f1",
        "6",
        "Operations of Bit Set and F1 for the slides 1..n",
        "F1 performs about 10^62 times fewer operations for 500 ACQs",
        0.1,
        Chart(
            "acqs",
            "number of ACQs (slides 1..n)",
            {"bit_set_operations": "Bit Set (Eq. 7)", "f1_operations": "F1 (section 4)", "ratio": "Bit Set / F1"},
            "operations",
            log="y",
            paper=(("ratio 1e62", None, 1e62),),
        ),
        _figure_6,
    ),
    *(_sweep_experiment(number, minutes) for number, minutes in ((1, 3.5), (2, 2.0), (3, 0.5), (4, 0.5), (5, 0.5))),
    Experiment(
        "f1-table2",
        "f1",
        "table2",
        "Table 2: the five experiments together",
        "F1 is 350, 2,200, 3,800, 14,000 and 5,600 times faster than Bit Set on average",
        7.0,
        Chart(
            "experiment",
            "experiment",
            {
                "paper": "paper: seconds Bit Set / F1",
                "measured": "seconds Bit Set / F1",
                "operations": "operations Bit Set / F1",
                "f1_over_ours": "seconds F1 / ours",
            },
            "times faster, on average",
            log="y",
        ),
        _table_2,
    ),
)
