"""The evaluation of Sharon again: executors that construct sequences, count them, share counts; and the optimizers.

All executors are compiled, read the same compacted events, take turns in one process and have to give the same answers.
Seconds are of process time. The paper's are those of Java on 16 cores: what can be compared are the ratios.

Latency here is the CPU time that one window's events take. The paper's, from the last event of a window to its answer,
waits for a stream; where a stream comes as fast as it is processed, both grow alike.

References
----------
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: section 8, Figures 13-16.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from optimizer.papers.evaluations.outcome import Chart, Experiment, Measurement, Report, Row, Value
from optimizer.papers.evaluations.sequence_streams import HOURS, Stream, position_reports, purchases, routes, workload
from optimizer.papers.evaluations.sequence_workload import compare, generate_sequences
from optimizer.papers.reference.a_seq import a_seq
from optimizer.papers.reference.cheapest_sharing import best_score, cheapest
from optimizer.papers.reference.sequence_runs import Counts, Run
from optimizer.papers.reference.sequence_segments import Spans
from optimizer.papers.reference.sharing_candidates import Pattern, SequenceProblem, gwmin, sharing_of, sharon_graph
from optimizer.papers.reference.sharon import sharon
from optimizer.papers.reference.sharon_costs import SharonCosts
from optimizer.papers.reference.two_step import TooManySequences, two_step
from optimizer.sequences.answering import answers
from optimizer.sequences.events import Events
from optimizer.sequences.matches import Answers, SequenceQuery

EXECUTORS = {
    "a_seq": "A-Seq",
    "sharon": "Sharon",
    "a_seq_pooled": "A-Seq, STARTs pooled",
    "sharon_pooled": "Sharon, STARTs pooled",
    "ours": "Heddle",
}
"""The executors compared: as published (a count per START event), with STARTs of a pane pooled (see
:mod:`optimizer.papers.reference.sharon`), and :func:`optimizer.sequences.answering.answers`. Sharon runs the cheapest
plan by the costs of its executor (:mod:`optimizer.papers.reference.sharon_costs`).
"""

RATIO = 10
"""range/slide of the windows."""

LIMITS = {"tiny": 3_000, "quick": 1_000_000, "full": 5_000_000}
"""Sequences at which constructing them is given up, by scale."""

ROUNDS = {"tiny": 1, "quick": 2, "full": 3}
"""Repetitions that times are the median of, by scale."""

Executor = Callable[[Events], Run | list[Answers]]


class Case(NamedTuple):
    """Patterns to match in a stream, over windows ``[k*slide, k*slide + range)`` (ticks)."""

    events: Events
    patterns: list[tuple[int, ...]]
    range: int
    slide: int

    @property
    def total(self) -> int:
        """Events, before compaction."""
        return int(self.events.count.sum())

    @property
    def span(self) -> int:
        """Ticks from the first event to the last."""
        return int(self.events.time.max() - self.events.time.min()) + 1


def case_of(stream: Stream, patterns: list[tuple[int, ...]], window: float, ratio: int = RATIO) -> Case:
    """The case whose windows hold about ``window`` events, ``ratio`` of them at a time."""
    span = int(stream.time[-1] - stream.time[0]) + 1
    slide = max(1, round(window / ratio * span / len(stream.time)))
    return Case(Events.of(stream.key, stream.time, stream.type), patterns, slide * ratio, slide)


def problem_of(case: Case, pooled: bool = False) -> SequenceProblem:
    """A case at the costs of the paper, by events per window and key of each type; if pooled, equal events are one."""
    weights = None if pooled else case.events.count
    counts = np.bincount(case.events.type, weights, minlength=1 + max(map(max, case.patterns)))
    rates = counts * (case.range / case.span / len(np.unique(case.events.key)))
    # names in order, so that queries keep their numbers
    patterns = [Pattern(f"q{number:06}", tuple(map(str, each))) for number, each in enumerate(case.patterns)]
    return SequenceProblem(patterns, {str(type): rate for type, rate in enumerate(rates.tolist())})


def costs_of(case: Case, pooled: bool = False) -> SharonCosts:
    """A case at the costs of Sharon's executor."""
    problem = problem_of(case, pooled)
    return SharonCosts(problem.queries, problem.rates, case.range / case.slide, pooled)


def greedy_sharing(problem: SequenceProblem) -> Sequence[Spans]:
    """Return the shared spans of GWMIN's plan."""
    graph = sharon_graph(problem)
    return sharing_of(problem, (graph.candidates[vertex] for vertex in gwmin(graph).plan))


def executors(case: Case, only: Sequence[str] = tuple(EXECUTORS)) -> dict[str, Executor]:
    """The executors of :data:`EXECUTORS` named in ``only``."""
    windows = case.patterns, case.range, case.slide
    sequence_queries = [SequenceQuery(pattern, case.range, case.slide) for pattern in case.patterns]
    selected: dict[str, Executor] = {}
    for name in only:
        pooled = name.endswith("_pooled")
        if name == "ours":
            selected[name] = partial(answers, queries=sequence_queries)
        elif name.startswith("a_seq"):
            selected[name] = partial(_a_seq, windows=windows, pooled=pooled)
        else:
            sharing = cheapest(costs_of(case, pooled)).sharing
            selected[name] = partial(_sharon, windows=windows, sharing=sharing, pooled=pooled)
    return selected


def _first(events: Events, count: int) -> Events:
    return Events(events.key[:count], events.time[:count], events.type[:count], events.count[:count])


def _a_seq(events: Events, windows: tuple[list[tuple[int, ...]], int, int], pooled: bool) -> Run:
    return a_seq(events, *windows, pooled)


def _sharon(
    events: Events, windows: tuple[list[tuple[int, ...]], int, int], sharing: Sequence[Spans], pooled: bool
) -> Run:
    patterns, range, slide = windows
    return sharon(events, patterns, sharing, range, slide, pooled)


def race(work: Mapping[str, Executor], events: Events, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """CPU seconds of each, medians over rounds in which they take turns; and what the last calls returned."""
    few = _first(events, 500)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    outputs: dict[str, Any] = {}
    for run in work.values():
        run(few)  # compiled code is loaded
    for _ in range(rounds):
        for name, run in work.items():
            begin = time.process_time()
            outputs[name] = run(events)
            seconds[name].append(time.process_time() - begin)
    return {name: max(median(each), 1e-9) for name, each in seconds.items()}, outputs


def same_answers(runs: Sequence[Run | list[Answers]]) -> bool:
    """Return whether all runs have the same counts, exact modulo 2**64 and in doubles to 1e-9."""
    first, *other_answers = ([_plain(each) for each in _answers(run)] for run in runs)
    return all(
        len(first) == len(other)
        and all(
            np.array_equal(expected.key, two.key)
            and np.array_equal(expected.start, two.start)
            and np.array_equal(expected.matches, two.matches)
            and np.allclose(expected.magnitude, two.magnitude, rtol=1e-9, atol=0)
            for expected, two in zip(first, other, strict=True)
        )
        for other in other_answers
    )


def _answers(run: Run | list[Answers]) -> Sequence[Counts | Answers]:
    return run.answers if isinstance(run, Run) else run


def _plain(answers: Counts | Answers) -> Counts:
    if isinstance(answers, Counts):
        return answers
    low, high = answers.count.low, answers.count.high
    return Counts(answers.key, answers.start, low, (high * 2.0**64 + low).astype(np.float64))


# ------------------------------------------------------------------------------- Figure 13: two steps

TWO_STEPS = {"flink": "two steps (Flink)", "spass": "two steps, shared (SPASS)"}


def _figure_13(scale: str, report: Report) -> Measurement:
    windows = {"tiny": (300, 3_000), "quick": (1_000, 3_000, 5_000, 7_000), "full": tuple(range(1_000, 8_000, 1_000))}
    queries, length = (3, 4) if scale == "tiny" else (20, 10)
    rows: list[Row] = []
    for done, window in enumerate(windows[scale]):
        report(done, len(windows[scale]), f"{window:,} events a window")
        stream = position_reports(0, window / 20)  # two windows of some 40 reports a second
        case = case_of(stream, workload(queries, length, "halves", stream, 5), window)
        rows.append(_constructed(case, scale) | {"window_events": window})
    report(len(rows), len(rows), "done")
    last = rows[-1]
    finished = {name: [row for row in rows if row[f"{name}_latency_ms"] is not None] for name in TWO_STEPS}
    reached = {name: max((row["window_events"] for row in ended), default="none") for name, ended in finished.items()}
    both = [row for row in finished["flink"] if row in finished["spass"]]
    speed_up = both[-1]["flink_latency_ms"] / both[-1]["spass_latency_ms"] if both else None
    orders = None
    if finished["spass"]:
        slowest = finished["spass"][-1]
        orders = float(np.log10(slowest["spass_latency_ms"] / slowest["sharon_latency_ms"]))
    measured: dict[str, tuple[Value, Value]] = {
        "most events a window, Flink": (6_000, reached["flink"]),
        "most events a window, SPASS": (7_000, reached["spass"]),
        "SPASS over Flink at the most both reach": (6, speed_up),
        "Sharon over SPASS at the most it reaches, orders of magnitude": (5, orders),
        "Sharon over A-Seq at the most": ("similar", last["a_seq_latency_ms"] / last["sharon_latency_ms"]),
        "Heddle over Sharon at the most": (None, last["sharon_latency_ms"] / last["ours_latency_ms"]),
        **_all_alike(rows),
    }
    summary = (
        f"With at most {LIMITS[scale]:,} sequences, constructing them one query at a time ends at {reached['flink']} "
        f"events a window, sharing pieces at {reached['spass']}. At {last['window_events']:,} events Sharon takes "
        f"{last['sharon_latency_ms']:.3g} ms a window, A-Seq {last['a_seq_latency_ms']:.3g}, Heddle "
        f"{last['ours_latency_ms']:.3g}."
    )
    return Measurement(rows, summary, measured)


def _constructed(case: Case, scale: str) -> Row:
    """One row of Figure 13: None if a two-step executor gives up."""
    work = executors(case, ("a_seq", "sharon", "ours"))
    sharing = cheapest(costs_of(case)).sharing
    for name, plan in (("flink", None), ("spass", sharing)):
        run = partial(
            two_step,
            patterns=case.patterns,
            range=case.range,
            slide=case.slide,
            limit=LIMITS[scale],
            sharing=plan,
        )
        try:
            run(case.events)
        except TooManySequences:
            continue
        work[name] = run
    return _row(case, work, ROUNDS[scale], (*TWO_STEPS, "a_seq", "sharon", "ours"))


def _row(case: Case, work: Mapping[str, Executor], rounds: int, columns: Sequence[str] = ()) -> Row:
    """Events per second, CPU milliseconds per window, and numbers stored and added, of each executor."""
    seconds, outputs = race(work, case.events, rounds)
    row: Row = {"same_answers": same_answers(list(outputs.values()))}
    row["answers"] = sum(len(each.key) for each in _answers(next(iter(outputs.values()))))
    for name in columns or work:
        took, run = seconds.get(name), outputs.get(name)
        row[f"{name}_rate"] = case.total / took if took else None
        row[f"{name}_latency_ms"] = 1_000 * took * case.range / case.span if took else None
        row[f"{name}_held"] = run.peak if isinstance(run, Run) else _window_vectors(case) if name == "ours" else None
        row[f"{name}_additions"] = run.additions if isinstance(run, Run) else None
    return row


def _window_vectors(case: Case) -> int:
    """Counts that Heddle's executor of window vectors has for all keys: of each open window, for each prefix."""
    prefixes = {pattern[:length] for pattern in case.patterns for length in range(1, len(pattern) + 1)}
    return len(prefixes) * -(-case.range // case.slide) * len(np.unique(case.events.key))


def _all_alike(rows: Sequence[Row]) -> dict[str, tuple[Value, Value]]:
    return {"same answers": ("yes", "yes" if all(row["same_answers"] for row in rows) else "no")}


# -------------------------------------------------------------------------- Figure 14: online executors


class Sweep(NamedTuple):
    """One of the paper's three sweeps: the column ``x`` that varies, its values at each scale, and the case of each.

    ``settings``: parameters that the paper does not state, by name. Its claim holds with the first.
    """

    stream: str
    x: str
    label: str
    values: Mapping[str, tuple[int, ...]]
    settings: Mapping[str, Callable[[str, int], Case]]


def _of_events(scale: str, window: int) -> Case:
    tiny = scale == "tiny"
    stream = routes(2 * window, vehicles=10 if tiny else 500)
    return case_of(stream, workload(4 if tiny else 20, 4 if tiny else 10, "halves", stream, 5), window)


GROUPS = 40
"""Groups of cars: of 200,000 reports in a window each has 100 of every event type. A car has one."""


def _of_queries(halves: int, is_grouped: bool, scale: str, queries: int) -> Case:
    if scale == "tiny":
        stream, length, window = position_reports(0, 20), 4, 400
    else:
        # the last two windows of the three hours
        stream, length, window = position_reports(HOURS * 3600 - 100, ticks=1_000), 10, 200_000
    patterns = workload(queries, length, "halves", stream, halves)
    if is_grouped:
        groups = min(GROUPS, stream.keys // 4)
        stream = stream._replace(key=stream.key % groups, keys=groups)
    return case_of(stream, patterns, window)


def _of_length(scale: str, length: int) -> Case:
    stream = purchases(8_000 if scale == "tiny" else 400_000, ticks=1_000)
    return case_of(stream, workload(4 if scale == "tiny" else 20, length, "halves", stream, 5), len(stream.key) / 2)


SWEEPS = {
    "events": Sweep(
        "TX",
        "window_events",
        "events per window",
        {
            "tiny": (600, 2_000),
            "quick": (200_000, 600_000, 1_200_000),
            "full": tuple(range(200_000, 1_400_000, 200_000)),
        },
        {"": _of_events},
    ),
    "queries": Sweep(
        "LR",
        "queries",
        "queries",
        {"tiny": (2, 4), "quick": (20, 120), "full": tuple(range(20, 140, 20))},
        {
            f"{halves} halves, {each} a window, group and type": partial(_of_queries, halves, is_grouped)
            for is_grouped, each in ((True, "100 events"), (False, "1 event"))
            for halves in (4, 11)
        },
    ),
    "length": Sweep(
        "EC",
        "length",
        "event types per pattern",
        {"tiny": (3, 5), "quick": (10, 20, 30), "full": tuple(range(10, 35, 5))},
        {"": _of_length},
    ),
}

_SWEPT: dict[tuple[str, str], list[Row]] = {}
"""Rows by sweep and scale: panels of one sweep are measured once in a process."""


def _swept(name: str, scale: str, report: Report) -> list[Row]:
    if (name, scale) not in _SWEPT:
        sweep = SWEEPS[name]
        points = [(setting, value) for setting in sweep.settings for value in sweep.values[scale]]
        rows: list[Row] = []
        for done, (setting, value) in enumerate(points):
            report(done, len(points), f"{value:,} {sweep.label}")
            case = sweep.settings[setting](scale, value)
            rows.append({sweep.x: value, "setting": setting} | _row(case, executors(case), ROUNDS[scale]))
        _SWEPT[name, scale] = rows
    report(1, 1, "done")
    return _SWEPT[name, scale]


METRICS = {
    "latency_ms": ("latency", "CPU milliseconds per window"),
    "rate": ("throughput", "events per second"),
    "held": ("memory", "counts held for all keys"),
}


class Panel(NamedTuple):
    """A panel of Figure 14: a metric over a sweep; how many times less Sharon took than A-Seq, at both ends."""

    sweep: str
    metric: str
    first: Value
    last: Value
    claim: str


PANELS = {
    "a": Panel("events", "latency_ms", 5, 7, "Sharon is 5 to 7 times as fast as A-Seq from 200k to 1,200k events"),
    "b": Panel("queries", "latency_ms", 5, 18, "Sharon is 5 to 18 times as fast as A-Seq from 20 to 120 queries"),
    "c": Panel(
        "length", "latency_ms", 4, 6, "Sharon is 4 to 6 times as fast as A-Seq, the more the longer the patterns"
    ),
    "d": Panel("queries", "held", None, "up to 100", "Sharon needs up to a hundredth of A-Seq's memory"),
    "e": Panel("events", "rate", 5, 7, "Sharon's throughput is 5 to 7 times A-Seq's from 200k to 1,200k events"),
    "f": Panel("queries", "rate", 5, 18, "Sharon's throughput is 5 to 18 times A-Seq's from 20 to 120 queries"),
    "g": Panel("length", "rate", 4, 6, "Sharon's gain in throughput grows from 4 to 6 with the patterns' length"),
    "h": Panel("length", "held", None, 20, "Sharon needs 20 times less memory than A-Seq if patterns have 30 types"),
}


def _figure_14(letter: str, scale: str, report: Report) -> Measurement:
    panel = PANELS[letter]
    sweep = SWEEPS[panel.sweep]
    rows = _swept(panel.sweep, scale, report)

    def gain(row: Row, executor: str, baseline: str) -> float:
        """Return how many times better the executor is than the baseline."""
        a, b = row[f"{executor}_{panel.metric}"], row[f"{baseline}_{panel.metric}"]
        return float(a / b if panel.metric == "rate" else b / a)

    what = METRICS[panel.metric][0]
    measured: dict[str, tuple[Value, Value]] = {}
    gains = [("sharon", "a_seq"), ("ours", "a_seq"), ("ours", "sharon"), ("ours", "a_seq_pooled")]
    for number, setting in enumerate(sweep.settings):
        ends = [row for row in rows if row["setting"] == setting]
        ends = [ends[0], ends[-1]]
        of = f" ({setting})" if setting else ""
        for name, other in gains:
            for row, claim in zip(ends, (panel.first, panel.last), strict=True):
                quantity = f"{what}, {EXECUTORS[name]} over {EXECUTORS[other]}, {row[sweep.x]:,} {sweep.label}{of}"
                is_claimed = number == 0 and (name, other) == gains[0]
                measured[quantity] = (claim if is_claimed else None, gain(row, name, other))
        for row in ends:
            quantity = f"additions, A-Seq over Sharon, {row[sweep.x]:,} {sweep.label}{of}"
            measured[quantity] = (None, row["a_seq_additions"] / row["sharon_additions"])
    first = [row for row in rows if row["setting"] == rows[0]["setting"]]
    least, most = first[0], first[-1]
    summary = (
        f"{sweep.stream}, {least[sweep.x]:,} to {most[sweep.x]:,} {sweep.label}: Sharon's {what} is "
        f"{gain(least, 'sharon', 'a_seq'):.3g} to {gain(most, 'sharon', 'a_seq'):.3g} times as good as A-Seq's, "
        f"Heddle's {gain(least, 'ours', 'a_seq'):.3g} to {gain(most, 'ours', 'a_seq'):.3g} times, and "
        f"{gain(least, 'ours', 'a_seq_pooled'):.3g} to {gain(most, 'ours', 'a_seq_pooled'):.3g} times as good as that "
        "of A-Seq with STARTs pooled."
    )
    rows = [row | {"gain": gain(row, "sharon", "a_seq")} for row in rows]
    return Measurement(rows, summary, measured | _all_alike(rows))


def _chart_14(panel: Panel) -> Chart:
    """A line for each executor; of several settings, one for each, of how many times better Sharon is than A-Seq."""
    sweep = SWEEPS[panel.sweep]
    if len(sweep.settings) > 1:
        label = f"{METRICS[panel.metric][0]}, Sharon over A-Seq"
        return Chart(sweep.x, sweep.label, {"gain": label}, label, by="setting", log="y")
    lines = {f"{name}_{panel.metric}": label for name, label in EXECUTORS.items()}
    return Chart(sweep.x, sweep.label, lines, METRICS[panel.metric][1], log="y")


# ------------------------------------------------------------------- Figures 15 and 16: the optimizers

OPTIMIZERS = {
    "greedy": "greedy (GWMIN)",
    "sharon": "Sharon's plan finder",
    "exhaustive": "exhaustive",
    "ours": "integer program (Heddle)",
}


def _figure_15(scale: str, report: Report) -> Measurement:
    counts = {"tiny": (4, 8), "quick": (10, 20, 30, 70, 120, 180), "full": (10, 15, *range(20, 190, 10))}[scale]
    rows: list[Row] = []
    for done, queries in enumerate(counts):
        report(done, len(counts), f"{queries} queries")
        rows.append(compare(SequenceProblem(*generate_sequences(queries, 4 if scale == "tiny" else 10))))
    report(len(counts), len(counts), "done")
    by_count = {row["queries"]: row for row in rows}
    last = rows[-1]
    ended = max((row["queries"] for row in rows if row["exhaustive_seconds"] is not None), default="none")
    proven = max((row["queries"] for row in rows if row.get("sharon_proven")), default="none")
    optimal = max((row["queries"] for row in rows if row["ours_proven"]), default="none")
    twenty, seventy = by_count.get(20), by_count.get(70)
    measured: dict[str, tuple[Value, Value]] = {
        "most queries, exhaustive": (20, ended),
        "most queries, Sharon's plan finder, proven": (None, proven),
        "most queries, integer program, proven": (None, optimal),
        "exhaustive over greedy, seconds at 20 queries": (1e4, _times(twenty, "exhaustive", "greedy", "seconds")),
        "exhaustive over Sharon, seconds at 20 queries": (1e3, _times(twenty, "exhaustive", "sharon", "seconds")),
        "exhaustive over Sharon, memory at 20 queries": (100, _times(twenty, "exhaustive", "sharon", "peak")),
        "Sharon over greedy, seconds at 70 queries": (1e3, _times(seventy, "sharon", "greedy", "seconds")),
        "Sharon over greedy, memory at 70 queries": (100, _times(seventy, "sharon", "greedy", "peak")),
        f"Heddle over greedy, seconds at {last['queries']} queries": (None, _times(last, "ours", "greedy", "seconds")),
        f"Heddle, seconds at {last['queries']} queries": (None, last["ours_seconds"]),
        f"cost of greedy over Heddle's at {last['queries']} queries": (None, last["greedy_cost"] / last["ours_cost"]),
    }
    summary = (
        f"The exhaustive search ends at {ended} queries, Sharon's plan finder proves its plan at {proven} at most, the "
        f"integer program at {optimal}. With {last['queries']} queries GWMIN takes {last['greedy_seconds']:.2g} s and "
        f"the integer program {last['ours_seconds']:.2g} s; the greedy plan costs "
        f"{last['greedy_cost'] / last['ours_cost']:.3g} times as much."
    )
    return Measurement(rows, summary, measured)


def _times(row: Row | None, optimizer: str, baseline: str, column: str) -> float | None:
    """Return how many times as much the optimizer took as the baseline, or None if either gave up."""
    pair = [row.get(f"{name}_{column}") if row else None for name in (optimizer, baseline)]
    return float(pair[0] / pair[1]) if pair[0] and pair[1] else None


PLANS = {"greedy": "greedy (GWMIN)", "score": "highest score (Sharon)", "cost": "least cost (Heddle)"}


def _figure_16(scale: str, report: Report) -> Measurement:
    counts = {"tiny": (4, 8), "quick": (20, 60, 120, 180), "full": tuple(range(20, 200, 20))}[scale]
    tiny = scale == "tiny"
    window = 200 if tiny else 200_000
    stream = routes(2 * window, vehicles=10 if tiny else 500)
    rows: list[Row] = []
    for done, queries in enumerate(counts):
        report(done, len(counts), f"{queries} queries")
        case = case_of(stream, _overlapping(queries, 4 if tiny else 10, stream), window)
        problem, costs = problem_of(case), costs_of(case)
        best = best_score(problem)[0]
        plans = {
            "greedy": greedy_sharing(problem),
            "score": sharing_of(problem, best),
            "cost": cheapest(costs).sharing,
        }
        windows = case.patterns, case.range, case.slide
        work: dict[str, Executor] = {
            name: partial(_sharon, windows=windows, sharing=sharing, pooled=False) for name, sharing in plans.items()
        }
        priced = {f"{name}_cost": costs.cost(tuple(map(tuple, plan))) for name, plan in plans.items()}
        rows.append({"queries": queries} | _row(case, work, ROUNDS[scale]) | priced)
    report(len(counts), len(counts), "done")
    last = rows[-1]
    at = f"{last['queries']} queries"
    measured: dict[str, tuple[Value, Value]] = {
        f"{what}, greedy plan over {PLANS[name]}, {at}": (
            claim if name == "score" else None,
            last[f"greedy_{column}"] / last[f"{name}_{column}"],
        )
        for name in ("score", "cost")
        for what, column, claim in (
            ("latency", "latency_ms", 2),
            ("memory", "held", 3),
            ("cost by the executor's costs", "cost", None),
        )
    }
    summary = (
        f"At {at} Sharon's executor takes {last['greedy_latency_ms']:.3g} ms a window with the greedy plan, "
        f"{last['score_latency_ms']:.3g} with the plan of highest score and {last['cost_latency_ms']:.3g} with the "
        f"cheapest; it holds {last['greedy_held']:,}, {last['score_held']:,} and {last['cost_held']:,} counts."
    )
    return Measurement(rows, summary, measured | _all_alike(rows))


def _overlapping(queries: int, length: int, stream: Stream) -> list[tuple[int, ...]]:
    """Routes with several pieces in common, which overlap: each of eight pieces at every place."""
    kinds = ("middle", "prefix", "suffix")
    each = [workload(-(-queries // 3), length, kind, stream, 8, seed) for seed, kind in enumerate(kinds)]
    return [pattern for patterns in zip(*each, strict=True) for pattern in patterns][:queries]


# -------------------------------------------------------------------------------------- experiments

EXPERIMENTS = (
    Experiment(
        "sharon-13",
        "sharon",
        "13",
        "Constructing sequences against counting them (LR)",
        "two-step executors grow exponentially: Flink fails above 6k events a window, SPASS above 7k; online ones are "
        "five orders of magnitude faster",
        0.2,
        Chart(
            "window_events",
            "events per window",
            {f"{name}_latency_ms": label for name, label in (TWO_STEPS | EXECUTORS).items() if "pooled" not in name},
            "CPU milliseconds per window",
            log="y",
        ),
        _figure_13,
    ),
    *(
        Experiment(
            f"sharon-14{letter}",
            "sharon",
            f"14{letter}",
            f"Online executors: {METRICS[panel.metric][0]} by {SWEEPS[panel.sweep].label} "
            f"({SWEEPS[panel.sweep].stream})",
            panel.claim,
            0.6,
            _chart_14(panel),
            partial(_figure_14, letter),
        )
        for letter, panel in PANELS.items()
    ),
    Experiment(
        "sharon-15",
        "sharon",
        "15",
        "Optimizers by queries",
        "exhaustive search fails above 20 queries, where it is four orders of magnitude slower than greedy and three "
        "than Sharon; at 70 Sharon is three orders slower than greedy",
        0.3,
        Chart(
            "queries",
            "queries",
            {f"{name}_seconds": label for name, label in OPTIMIZERS.items()},
            "CPU seconds",
            log="y",
        ),
        _figure_15,
    ),
    Experiment(
        "sharon-16",
        "sharon",
        "16",
        "Sharon's executor with a greedy and an optimal plan (TX)",
        "with an optimal plan for 180 queries the executor is twice as fast and needs a third of the memory",
        2.0,
        Chart(
            "queries",
            "queries",
            {f"{name}_latency_ms": label for name, label in PLANS.items()},
            "CPU milliseconds per window",
        ),
        _figure_16,
    ),
)
