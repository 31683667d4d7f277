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

from optimizer.experiments.outcome import Chart, Experiment, Found, Report, Row, Value
from optimizer.experiments.sequence_streams import HOURS, Stream, position_reports, purchases, routes, workload
from optimizer.experiments.sharon_workload import compare, generate_sequences
from optimizer.sequence_baselines import Counts, Run, Spans, TooManySequences, a_seq, sharon, two_step
from optimizer.sequences import Answers, Asked, Events, answers
from optimizer.sharon import Pattern, SequenceProblem, best_score, cheapest, gwmin, sharing_of, sharon_graph

EXECUTORS = {
    "a_seq": "A-Seq",
    "sharon": "Sharon",
    "a_seq_pooled": "A-Seq, STARTs pooled",
    "sharon_pooled": "Sharon, STARTs pooled",
    "ours": "Heddle",
}
"""What is compared: as published (a count per START event), with STARTs of a pane pooled (see
:mod:`optimizer.sequence_baselines`), and :func:`optimizer.sequences.answers`."""

RATIO = 10
"""range/slide of the windows."""

LIMITS = {"tiny": 10_000, "quick": 1_000_000, "full": 5_000_000}
"""Sequences at which constructing them is given up, by scale."""

ROUNDS = {"tiny": 1, "quick": 2, "full": 3}
"""Repetitions that times are the median of, by scale."""

Executor = Callable[[Events], Run | list[Answers]]


class Case(NamedTuple):
    """Patterns asked of a stream, over windows ``[k*slide, k*slide + range)`` (ticks)."""

    events: Events
    patterns: list[tuple[int, ...]]
    range: int
    slide: int

    @property
    def count(self) -> int:
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


def problem_of(case: Case, pooled: bool) -> SequenceProblem:
    """What the optimizer is told of a case: events per window and key by type; if pooled, equal ones are one."""
    weights = None if pooled else case.events.count
    counts = np.bincount(case.events.type, weights, minlength=1 + max(map(max, case.patterns)))
    rates = counts * (case.range / case.span / len(np.unique(case.events.key)))
    # names in order, so that queries keep their numbers
    patterns = [Pattern(f"q{number:06}", tuple(map(str, each))) for number, each in enumerate(case.patterns)]
    return SequenceProblem(patterns, {str(type): rate for type, rate in enumerate(rates.tolist())})


def greedy_sharing(problem: SequenceProblem) -> Sequence[Spans]:
    """What GWMIN's plan shares."""
    graph = sharon_graph(problem)
    return sharing_of(problem, (graph.candidates[vertex] for vertex in gwmin(graph).plan))


def executors(case: Case, only: Sequence[str] = tuple(EXECUTORS)) -> dict[str, Executor]:
    """Those of :data:`EXECUTORS`; Sharon's with the cheapest plan."""
    windows = case.patterns, case.range, case.slide
    asked = [Asked(pattern, case.range, case.slide) for pattern in case.patterns]
    found: dict[str, Executor] = {}
    for name in only:
        pooled = name.endswith("_pooled")
        if name == "ours":
            found[name] = partial(answers, asked=asked)
        elif name.startswith("a_seq"):
            found[name] = partial(_a_seq, windows=windows, pooled=pooled)
        else:
            sharing = cheapest(problem_of(case, pooled)).sharing
            found[name] = partial(_sharon, windows=windows, sharing=sharing, pooled=pooled)
    return found


def _a_seq(events: Events, windows: tuple[list[tuple[int, ...]], int, int], pooled: bool) -> Run:
    return a_seq(events, *windows, pooled)


def _sharon(
    events: Events, windows: tuple[list[tuple[int, ...]], int, int], sharing: Sequence[Spans], pooled: bool
) -> Run:
    patterns, range, slide = windows
    return sharon(events, patterns, sharing, range, slide, pooled)


def race(work: Mapping[str, Executor], events: Events, rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """CPU seconds of each, medians over rounds in which they take turns; and what the last calls returned."""
    few = Events(events.key[:500], events.time[:500], events.type[:500], events.count[:500])
    seconds: dict[str, list[float]] = {name: [] for name in work}
    found: dict[str, Any] = {}
    for run in work.values():
        run(few)  # compiled code is loaded
    for _ in range(rounds):
        for name, run in work.items():
            begin = time.process_time()
            found[name] = run(events)
            seconds[name].append(time.process_time() - begin)
    return {name: max(median(each), 1e-9) for name, each in seconds.items()}, found


def same_answers(runs: Sequence[Run | list[Answers]]) -> bool:
    """Did all count alike? As far as 64 bits tell, and doubles beyond (1e-9)."""
    first, *others = ([_plain(each) for each in (run.answers if isinstance(run, Run) else run)] for run in runs)
    return all(
        len(first) == len(other)
        and all(
            np.array_equal(one.key, two.key)
            and np.array_equal(one.start, two.start)
            and np.array_equal(one.count, two.count)
            and np.allclose(one.magnitude, two.magnitude, rtol=1e-9, atol=0)
            for one, two in zip(first, other, strict=True)
        )
        for other in others
    )


def _plain(found: Counts | Answers) -> Counts:
    if isinstance(found, Counts):
        return found
    low, high = found.count.low, found.count.high
    return Counts(found.key, found.start, low, high * 2.0**64 + low)


# ------------------------------------------------------------------------------- Figure 13: two steps

TWO_STEPS = {"flink": "two steps (Flink)", "spass": "two steps, shared (SPASS)"}


def _figure_13(scale: str, report: Report) -> Found:
    windows = {"tiny": (100, 200), "quick": (1_000, 3_000, 5_000, 7_000), "full": tuple(range(1_000, 8_000, 1_000))}
    queries, length = (3, 4) if scale == "tiny" else (20, 10)
    rows: list[Row] = []
    for done, window in enumerate(windows[scale]):
        report(done, len(windows[scale]), f"{window:,} events a window")
        stream = position_reports(0, window / 20)  # two windows of some 40 reports a second
        case = case_of(stream, workload(queries, length, "mixed", stream, 2), window)
        rows.append(_constructed(case, scale) | {"window_events": window})
    report(len(rows), len(rows), "done")
    last = rows[-1]
    finished = {name: [row for row in rows if row[f"{name}_latency_ms"] is not None] for name in TWO_STEPS}
    reached = {
        name: max((row["window_events"] for row in found), default="none") for name, found in finished.items()
    }
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
    return Found(rows, summary, measured)


def _constructed(case: Case, scale: str) -> Row:
    """One row of Figure 13: None where a two-step executor gives up."""
    work = executors(case, ("a_seq", "sharon", "ours"))
    sharing = cheapest(problem_of(case, False)).sharing
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
    """Events a second, CPU milliseconds per window, and counts (events) held of each executor."""
    seconds, found = race(work, case.events, rounds)
    row: Row = {"same_answers": same_answers(list(found.values()))}
    for name in columns or work:
        took, run = seconds.get(name), found.get(name)
        row[f"{name}_rate"] = case.count / took if took else None
        row[f"{name}_latency_ms"] = 1_000 * took * case.range / case.span if took else None
        row[f"{name}_held"] = run.peak if isinstance(run, Run) else None
    return row


def _all_alike(rows: Sequence[Row]) -> dict[str, tuple[Value, Value]]:
    return {"same answers": ("yes", "yes" if all(row["same_answers"] for row in rows) else "no")}
