"""The evaluation of shared sliding-window aggregates again: R-INT, B-INT and PSoup, quantiles, and substream filters.

Everything that is compared runs in compiled loops, so that no call from Python is measured. All get the same inputs, in
turns within one process. Seconds are process time. The paper's rates are those of a 700 MHz Pentium III, so only ratios
can be compared.

References
----------
Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: section 6, Figures 9-12.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from statistics import fmean, median
from typing import Any, NamedTuple

import numba
import numpy as np

from optimizer.aggregates.state_kinds import ADD, MAX
from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.sparse_tables import SparseTable
from optimizer.combine.threshold_index import Longs
from optimizer.combine.wavelet_matrix import WaveletMatrix
from optimizer.papers.evaluations.outcome import Chart, Experiment, Measurement, Report, Row, Value
from optimizer.papers.reference.ci_count import CollectiveCount, add_element
from optimizer.papers.reference.ci_levels import check, levels_of, more_levels, relative_error, scan
from optimizer.papers.reference.ci_sum import CollectiveSum, add_weight
from optimizer.papers.reference.interval_quantiles import BaseIntervalQuantiles, quantile_rank
from optimizer.papers.reference.online_intervals import (
    BaseIntervals,
    MaterializeAll,
    MaterializeNone,
    OnlineAggregate,
    RunningIntervals,
    SearchTree,
)
from optimizer.papers.reference.r_int import FULL, SubstreamTotals, append, ask_each, more_room, total_since

ROUNDS = {"tiny": 1, "quick": 4, "full": 5}
"""Repetitions that a rate is the median of, by scale."""


def _rates(work: Mapping[str, Callable[[], Any]], count: int, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Things done a second, ``count`` in each call, measured in turns; and what the last calls returned."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    outputs: dict[str, Any] = {}
    for turn in range(rounds + 1):
        for name, call in work.items():
            begin = time.process_time()
            outputs[name] = call()
            # the first turn loads code and touches memory
            if turn:
                seconds[name].append(time.process_time() - begin)
    return {name: count / max(median(each), 1e-9) for name, each in seconds.items()}, outputs


def _spread(rows: list[Row], column: str) -> float:
    """The best rate over the worst."""
    rates = [row[column] for row in rows]
    return float(max(rates) / min(rates))


# Figure 9: R-INT and B-INT against the alternatives

OPERATORS = 1000
"""SUM over the last N elements, N = 0..999. N = 0 is empty and is never looked up."""

METHODS = {
    "r_int": "R-INT",
    "b_int": "B-INT",
    "psoup": "PSoup",
    "all": "materialize all",
    "none": "materialize none",
}


def _methods(operators: int) -> dict[str, OnlineAggregate]:
    return {
        "r_int": RunningIntervals(operators),
        "b_int": BaseIntervals(operators, ADD),
        "psoup": SearchTree(operators, ADD),
        "all": MaterializeAll([(length, 0) for length in range(1, operators)]),
        "none": MaterializeNone(operators, ADD),
    }


def _figure_9(scale: str, report: Report) -> Measurement:
    operators = {"tiny": 30, "quick": OPERATORS, "full": OPERATORS}[scale]
    inputs = {"tiny": 400, "quick": 200_000, "full": 400_000}[scale]
    percents = {"tiny": (0, 50, 100), "quick": (0, 10, 25, 50, 75, 90, 100), "full": (*range(0, 100, 10), 95, 99, 100)}
    rng = np.random.default_rng(0)
    structures = _methods(operators)
    first = rng.integers(0, 1000, 2 * operators)
    for structure in structures.values():
        structure.update_many(first)
        structure.lookup(first.size, first.size)
    rows: list[Row] = []
    for done, percent in enumerate(percents[scale]):
        report(done, len(percents[scale]), f"{percent} % updates")
        updates = rng.permutation(np.arange(inputs) < inputs * percent // 100)
        values = rng.integers(0, 1000, np.count_nonzero(updates))
        lengths = rng.integers(1, operators, inputs - len(values))
        arguments = updates, values, lengths, np.zeros_like(lengths)
        work = {name: partial(structure.replay, *arguments) for name, structure in structures.items()}
        rates, outputs = _rates(work, inputs, ROUNDS[scale])
        same = all((answers == outputs["none"]).all() for answers in outputs.values())
        rate_columns = {f"{name}_rate": rate for name, rate in rates.items()}
        rows.append({"updates_percent": percent, **rate_columns, "same_answers": same})
    report(len(percents[scale]), len(percents[scale]), "done")
    return _summarise_9(rows)


def _summarise_9(rows: list[Row]) -> Measurement:
    lookups, updates = rows[0], rows[-1]
    sharing = ("r_int", "b_int", "psoup")
    beaten = [row for row in rows if row["r_int_rate"] < max(row[f"{name}_rate"] for name in sharing)]
    spread = {name: _spread(rows, f"{name}_rate") for name in METHODS}
    best = {row["updates_percent"]: max(METHODS, key=lambda name: row[f"{name}_rate"]) for row in rows}
    measured: dict[str, tuple[Value, Value]] = {
        "R-INT above B-INT and PSoup at every ratio": ("yes", "no" if beaten else "yes"),
        "B-INT over PSoup, look-ups only": (1, lookups["b_int_rate"] / lookups["psoup_rate"]),
        "B-INT over PSoup, updates only": ("more than 1", updates["b_int_rate"] / updates["psoup_rate"]),
        "B-INT: updates only over look-ups only": ("more than 1", updates["b_int_rate"] / lookups["b_int_rate"]),
        "PSoup: updates only over look-ups only": ("less than 1", updates["psoup_rate"] / lookups["psoup_rate"]),
        **{
            f"{METHODS[name]}: best rate over worst": ("stable" if name in sharing else "large", spread[name])
            for name in METHODS
        },
        "same answers": ("yes", "yes" if all(row["same_answers"] for row in rows) else "no"),
    }
    except_at = ", ".join(f"{row['updates_percent']} %" for row in beaten)
    winners = ", ".join(f"{METHODS[name]} at {percent} %" for percent, name in best.items())
    summary = (
        f"R-INT takes {min(row['r_int_rate'] for row in rows):.2g} to {max(row['r_int_rate'] for row in rows):.2g} "
        f"inputs/s and is above B-INT and PSoup at every share of updates{f' but {except_at}' if beaten else ''}. "
        f"Best of all five: {winners}. Rates vary by a factor of {spread['r_int']:.2g} (R-INT), "
        f"{spread['b_int']:.2g} (B-INT), {spread['psoup']:.2g} (PSoup), {spread['all']:.3g} (materialize all), "
        f"{spread['none']:.3g} (none)."
    )
    return Measurement(rows, summary, measured)


# Figures 10 and 11: updates and look-ups of R-INT (SUM), B-INT (MAX) and B-INT-QNT (QUANTILE)

LARGEST = {"tiny": 64, "quick": 100_000, "full": 100_000}
"""The largest N_max, by scale."""

BASIC_LABELS = {"r_int_rate": "R-INT (SUM)", "b_int_rate": "B-INT (MAX)", "b_int_qnt_rate": "B-INT-QNT (QUANTILE)"}

MEDIAN = Fraction(1, 2)


def _steps(largest: int, scale: str) -> list[int]:
    """Powers of ten up to the largest, at full scale also twice as much."""
    factors = (1, 2) if scale == "full" else (1,)
    powers = (10**exponent for exponent in range(1, 6))
    return [step for power in powers for factor in factors if (step := factor * power) < largest] + [largest]


def _basic(longest: int) -> dict[str, RunningIntervals | BaseIntervals | BaseIntervalQuantiles]:
    return {
        "r_int": RunningIntervals(longest),
        "b_int": BaseIntervals(longest, MAX),
        "b_int_qnt": BaseIntervalQuantiles(longest),
    }


def _figure_10(scale: str, report: Report) -> Measurement:
    sizes = _steps(LARGEST[scale], scale)
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    for done, longest in enumerate(sizes):
        report(done, len(sizes), f"N_max {longest:,}")
        values = rng.integers(0, 1 << 30, 300 if scale == "tiny" else 1_000_000)
        structures = _basic(longest)
        for structure in structures.values():
            structure.update_many(values[:longest])
        work = {name: partial(structure.update_many, values) for name, structure in structures.items()}
        rates, _ = _rates(work, len(values), ROUNDS[scale])
        rows.append({"longest": longest, **{f"{name}_rate": rate for name, rate in rates.items()}})
    report(len(sizes), len(sizes), "done")
    last = rows[-1]
    measured: dict[str, tuple[Value, Value]] = {
        f"{label}, updates/s at N_max {last['longest']:,}": ("up to millions", last[column])
        for column, label in BASIC_LABELS.items()
    }
    for column, label in BASIC_LABELS.items():
        measured[f"{label}: best rate over worst"] = (None, _spread(rows, column))
    summary = (
        f"At N_max {last['longest']:,} R-INT takes {last['r_int_rate']:.2g} updates/s, B-INT {last['b_int_rate']:.2g} "
        f"and B-INT-QNT {last['b_int_qnt_rate']:.2g}; only the last is to depend on N_max, O(log N_max), and varies by "
        f"a factor of {_spread(rows, 'b_int_qnt_rate'):.2g}."
    )
    return Measurement(rows, summary, measured)


def _figure_11(scale: str, report: Report) -> Measurement:
    longest = LARGEST[scale]
    lookups = {"tiny": 40, "quick": 20_000, "full": 200_000}[scale]
    # of the width N_max there is one window only
    widths = [*_steps(longest, scale)[:-1], longest // 2, longest * 9 // 10]
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 30, longest)
    structures = _basic(longest)
    for structure in structures.values():
        structure.update_many(values)
    sums, maxima, quantiles = structures.values()
    assert isinstance(sums, RunningIntervals) and isinstance(maxima, BaseIntervals)
    assert isinstance(quantiles, BaseIntervalQuantiles)
    sparse, wavelet = SparseTable(values[:, None], MAX), WaveletMatrix(values)
    rows: list[Row] = []
    for done, width in enumerate(widths):
        report(done, len(widths), f"windows of {width:,}")
        low = rng.integers(0, longest - width + 1, lookups)
        high = low + width
        left, rank = low + 1, np.full(lookups, quantile_rank(MEDIAN, width))
        work = {
            "r_int": partial(sums.lookup_many, left, high),
            "b_int": partial(maxima.lookup_many, left, high),
            "b_int_qnt": partial(quantiles.lookup_many, left, high, rank),
            "sparse": partial(sparse.combine, low, high),
            "wavelet": partial(wavelet.quantile, low, high, rank),
        }
        rates, outputs = _rates(work, lookups, ROUNDS[scale])
        same = (outputs["b_int"] == outputs["sparse"][:, 0]).all() and (
            outputs["b_int_qnt"] == outputs["wavelet"]
        ).all()
        rate_columns = {f"{name}_rate": rate for name, rate in rates.items()}
        rows.append({"width": width, **rate_columns, "same_answers": bool(same)})
    report(len(widths), len(widths), "done")
    last = rows[-1]
    at = f"look-ups/s at windows of {last['width']:,}"
    measured: dict[str, tuple[Value, Value]] = {
        f"R-INT (SUM), {at}": (1e7, last["r_int_rate"]),
        f"B-INT (MAX), {at}": ("millions", last["b_int_rate"]),
        f"B-INT-QNT (median), {at}": (22_000, last["b_int_qnt_rate"]),
        f"sparse table (MAX, ours, in batches), {at}": (None, last["sparse_rate"]),
        f"wavelet matrix (median, ours, in batches), {at}": (None, last["wavelet_rate"]),
        "R-INT: best rate over worst (O(1) a look-up)": ("uniform", _spread(rows, "r_int_rate")),
        "same answers": ("yes", "yes" if all(row["same_answers"] for row in rows) else "no"),
    }
    summary = (
        f"Windows of {last['width']:,}: R-INT {last['r_int_rate']:.2g} look-ups/s, B-INT {last['b_int_rate']:.2g}, "
        f"B-INT-QNT {last['b_int_qnt_rate']:.2g}. On stored fragments, where no element comes in between, a sparse "
        f"table answers MAX {last['sparse_rate'] / last['b_int_rate']:.3g} times as fast as B-INT and a wavelet matrix "
        f"medians {last['wavelet_rate'] / last['b_int_qnt_rate']:.3g} times as fast as B-INT-QNT."
    )
    return Measurement(rows, summary, measured)


# Figure 12: substream filters

MINUTE = 60_000_000
"""In microseconds, the unit of the times of trades."""

DAY = 390 * MINUTE
"""A trading day."""

SPANS = tuple(minutes * MINUTE for minutes in (15, 30, 45, 60, 90, 120, 150, 180))
"""The windows of the paper's queries: 15 minutes to 3 hours."""

SELECTIVITY = 0.04
"""Selectivity of the thresholds; the paper's are 0.03 to 0.05."""

POINTS = {"tiny": (1, 2, 4), "quick": (1, 2, 4, 8, 16), "full": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)}
"""Values of p, by scale."""


class Trace(NamedTuple):
    """Trades of many symbols, and a look-up after each of the later ones.

    keys, times: (n,); weights: (n,) shares traded, or (0,) where trades are counted; spans, thresholds: (m,) of the
    look-ups after the last m trades; symbols: how many keys there are.
    """

    keys: Longs
    times: Longs
    weights: Longs
    spans: Longs
    thresholds: Longs
    symbols: int

    @property
    def before(self) -> int:
        """Trades before the first look-up."""
        return len(self.keys) - len(self.spans)


def trades(symbols: int, per_day: int, lookups: int, weighted: bool = False, skew: float = 1.0, seed: int = 0) -> Trace:
    """Generate trades like an exchange's, in place of the paper's one-day file (TAQ, not public).

    The i-th most traded of the symbols has a share proportional to i**-skew. The first three hours come before the
    first look-up. A look-up has one of :data:`SPANS` and a threshold that a share of :data:`SELECTIVITY` of the
    symbols exceeded when the look-ups began.
    """
    rng = np.random.default_rng(seed)
    before = per_day * max(SPANS) // DAY
    shares = np.arange(1.0, symbols + 1) ** -skew
    keys = rng.permutation(symbols)[rng.choice(symbols, before + lookups, p=shares / shares.sum())]
    times = np.sort(rng.integers(0, max(SPANS) * (before + lookups) // before, before + lookups))
    weights = (100 + 100 * rng.lognormal(0, 1, before + lookups if weighted else 0)).astype(np.int64)
    spans = rng.choice(np.array(SPANS), lookups)
    thresholds = np.empty(lookups, np.int64)
    for span in SPANS:
        recent = slice(int(np.searchsorted(times, times[before - 1] - span, side="right")), before)
        totals = np.bincount(keys[recent], weights[recent] if weighted else None, minlength=symbols)
        thresholds[spans == span] = np.sort(totals)[-max(1, round(SELECTIVITY * symbols)) - 1]
    return Trace(keys, times, weights, spans, thresholds, symbols)


@numba.njit(cache=True)
def _by_each(rings, keys, times, weights, spans, thresholds, limit, counts, marks):
    """Update and look-up in turn by R-INT on each substream; of each look-up how many keys, and a mark of which."""
    out = np.empty(len(rings.keys), np.int64)
    for at in range(len(keys)):
        now = times[at]
        while append(rings, keys[at], now, weights[at] if len(weights) else 1, now - limit) == FULL:
            rings = more_room(rings, keys[at], now - limit)
        count = ask_each(rings, now - spans[at] + 1, thresholds[at], False, out)
        counts[at], marks[at] = count, out[:count].sum()
    return rings


@numba.njit(cache=True)
def _by_index(stamps, lengths, p, rings, keys, times, weights, spans, thresholds, limit, sure, seen, counts, marks):
    """Update and look-up in turn by the index; every candidate checked by R-INT, or (``sure``) as Heddle does."""
    out = np.empty(len(lengths), np.int64)
    for at in range(len(keys)):
        now, key = times[at], keys[at]
        while append(rings, key, now, weights[at] if len(weights) else 1, now - limit) == FULL:
            rings = more_room(rings, key, now - limit)
        if len(weights):
            while not add_weight(stamps, lengths, p, key, now, weights[at], now - limit):
                stamps = more_levels(stamps, p)
        else:
            while not add_element(stamps, lengths, p, key, now, now - limit):
                stamps = more_levels(stamps, p)
        cutoff, v = now - spans[at] + 1, thresholds[at]
        near, far = levels_of(v, p, False)
        count = scan(stamps, near, len(lengths), cutoff, False, out)
        seen[at] = count
        if sure:
            count = check(stamps, far, rings, cutoff, v, False, out, count)
        else:
            qualifying = 0
            for candidate in range(count):
                out[qualifying] = out[candidate]
                qualifying += total_since(rings, out[candidate], cutoff) > v
            count = qualifying
        counts[at], marks[at] = count, out[:count].sum()
    return stamps, rings


def _loaded(trace: Trace, p: int) -> CollectiveSum | CollectiveCount:
    """An index of the trades before the first look-up."""
    keys, times, weights = (column[: trace.before] for column in (trace.keys, trace.times, trace.weights))
    if len(weights):
        sums = CollectiveSum(trace.symbols, p, max(SPANS))
        sums.update_many(keys, times, weights)
        return sums
    counts = CollectiveCount(trace.symbols, p, max(SPANS))
    counts.update_many(keys, times)
    return counts


def filter_rates(trace: Trace, points: tuple[int, ...], rounds: int, report: Report) -> list[Row]:
    """Inputs per second, updates and look-ups in turn, of the substreams and of the index for each p.

    The trace's look-ups are cut into pieces, two for each of the ``rounds`` and two before. Each piece goes through
    R-INT on each substream and through every index. Every other piece checks the candidates as published. Rates are
    medians over the pieces. ``same_answers``: all structures return the same keys every time.
    """
    limit, weighted = max(SPANS), len(trace.weights) > 0
    start = trace.before
    loaded = trace.keys[:start], trace.times[:start]
    naive = SubstreamTotals(trace.symbols, limit, weighted)
    naive.update_many(*loaded, trace.weights[:start] if weighted else None)
    indexes = [_loaded(trace, p) for p in points]
    pieces = np.array_split(np.arange(len(trace.spans)), 2 * rounds + 2)
    seconds: dict[tuple[int, bool] | None, list[float]] = {}
    seen: dict[int, list[int]] = {p: [] for p in points}
    same = dict.fromkeys(points, True)
    selected: list[int] = []
    for turn, piece in enumerate(pieces):
        report(turn, len(pieces), f"{len(piece)} updates and look-ups")
        rows = slice(start + piece[0], start + piece[-1] + 1)
        columns = trace.keys[rows], trace.times[rows], trace.weights[rows], trace.spans[piece], trace.thresholds[piece]
        expected, candidates, *outputs = (np.empty((2, len(piece)), np.int64) for _ in range(2 + len(points)))
        begin = time.process_time()
        naive.rings = _by_each(naive.rings, *columns, limit, *expected)
        elapsed: dict[tuple[int, bool] | None, float] = {None: time.process_time() - begin}
        sure = turn % 2 == 0
        for index, output in zip(indexes, outputs, strict=True):
            assert index.totals is not None
            begin = time.process_time()
            index.stamps, index.totals.rings = _by_index(
                index.stamps, index.lengths, index.p, index.totals.rings, *columns, limit, sure, candidates[0], *output
            )
            elapsed[index.p, sure] = time.process_time() - begin
            same[index.p] &= bool((output == expected).all())
            seen[index.p] += candidates[0].tolist()
        selected += expected[0].tolist()
        # the first two warm up: compiled code is loaded, either way of checking
        if turn > 1:
            for method, each in elapsed.items():
                seconds.setdefault(method, []).append(each / (2 * len(piece)))
    report(len(pieces), len(pieces), "done")
    rates = {method: 1 / max(median(each), 1e-9) for method, each in seconds.items()}
    return [
        {
            "p": p,
            "epsilon": float(relative_error(p)),
            "selectivity": fmean(selected) / trace.symbols,
            "keys_found": fmean(selected),
            "candidates": fmean(seen[p]),
            "each_rate": rates[None],
            "published_rate": rates[p, False],
            "ours_rate": rates[p, True],
            "published_over_each": rates[p, False] / rates[None],
            "ours_over_each": rates[p, True] / rates[None],
            "index_bytes": index.stamps.nbytes,
            "history_bytes": naive.rings.times.nbytes + naive.rings.totals.nbytes,
            "same_answers": same[p],
        }
        for p, index in zip(points, indexes, strict=True)
    ]


def _figure_12(scale: str, report: Report) -> Measurement:
    symbols, per_day, lookups, rounds = {
        "tiny": (50, 5_000, 60, 1),
        "quick": (5_000, 1_000_000, 2_200, 5),
        "full": (5_000, 5_000_000, 12_600, 10),
    }[scale]
    rows = filter_rates(trades(symbols, per_day, lookups), POINTS[scale], rounds, report)
    published = max(rows, key=lambda row: row["published_rate"])
    ours = max(rows, key=lambda row: row["ours_rate"])
    measured: dict[str, tuple[Value, Value]] = {
        "inputs/s, R-INT on each substream": (1_000, ours["each_rate"]),
        "inputs/s, CI-COUNT and R-INT at the best p": (25_000, published["published_rate"]),
        "CI-COUNT and R-INT over R-INT on each": (25, published["published_over_each"]),
        "CI-COUNT with a second row (ours) over R-INT on each": (None, ours["ours_over_each"]),
        "best p, as published": (None, published["p"]),
        "best p, ours": (None, ours["p"]),
        "selectivity": ("0.03–0.05", round(ours["selectivity"], 3)),
        "same answers": ("yes", "yes" if all(row["same_answers"] for row in rows) else "no"),
    }
    summary = (
        f"{symbols:,} substreams, {per_day:,} trades a day: R-INT on each takes {ours['each_rate']:,.0f} inputs/s, "
        f"CI-COUNT with every candidate checked by R-INT {published['published_rate']:,.0f} at p = {published['p']} "
        f"({published['published_over_each']:.3g} times as many). Ours, which reads a second row to see which "
        f"candidates need no check, {ours['ours_rate']:,.0f} at p = {ours['p']} ({ours['ours_over_each']:.3g} times)."
    )
    return Measurement(rows, summary, measured)


EXPERIMENTS = (
    Experiment(
        "arasu-widom-9",
        "arasu-widom",
        "9",
        "1000 SUM operators: R-INT and B-INT against the alternatives",
        "R-INT outperforms B-INT and PSoup, all three are stable; materialize all and none are good at one end only",
        1.0,
        Chart(
            "updates_percent",
            "updates, % of the inputs",
            {f"{name}_rate": label for name, label in METHODS.items()},
            "inputs (updates and look-ups) per second",
            log="y",
        ),
        _figure_9,
    ),
    Experiment(
        "arasu-widom-10",
        "arasu-widom",
        "10",
        "Updates per second by N_max",
        "up to millions of updates a second, depending on N_max",
        0.2,
        Chart("longest", "N_max", BASIC_LABELS, "updates per second", log="xy"),
        _figure_10,
    ),
    Experiment(
        "arasu-widom-11",
        "arasu-widom",
        "11",
        "Look-ups per second by the width of the windows",
        "R-INT is uniformly around 10^7 look-ups/s, B-INT up to millions, B-INT-QNT about 22,000 at the largest window",
        0.5,
        Chart(
            "width",
            "width of the windows, W (N_max 100,000)",
            BASIC_LABELS
            | {"sparse_rate": "sparse table (MAX, ours, in batches)", "wavelet_rate": "wavelet matrix (median, ours)"},
            "look-ups per second",
            log="xy",
            paper=(("R-INT, 10^7", None, 1e7), ("B-INT-QNT at the largest, 22,000", None, 22_000)),
        ),
        _figure_11,
    ),
    Experiment(
        "arasu-widom-12",
        "arasu-widom",
        "12",
        "Substream filters: CI-COUNT for several p",
        "at 5,000 substreams and selectivities of 0.03 to 0.05 CI-COUNT processes 25,000 inputs/s, R-INT on each 1,000",
        0.5,
        Chart(
            "p",
            "p, levels of each size",
            {
                "ours_rate": "CI-COUNT, few candidates checked (ours)",
                "published_rate": "CI-COUNT and R-INT (as published)",
                "each_rate": "R-INT on each substream",
            },
            "inputs (updates and look-ups) per second",
            log="y",
            paper=(("CI-COUNT, 25,000", None, 25_000), ("R-INT on each, 1,000", None, 1_000)),
        ),
        _figure_12,
    ),
)


stamp_kernels(globals())
