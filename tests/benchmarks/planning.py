"""How fast plans are found, and how good they are.

    python -m tests.benchmarks.planning [--quick] [--only PART ...] [--json FILE]

Seconds are CPU seconds, under the paper's cost model. The parts: a million windows, reading them, the whole
command over them, thousands of distinct edge sets, the gap to the proven optimum, what ``best`` saves over Weave
Share, how often plans of event sequences are proven the cheapest, and adding one query to a plan of ten thousand. Of
the first and of the distinct edge sets there is also what grouping windows by edge set takes, and the search alone; all
of it takes costs in fractions and a lower bound besides. Whatever may take too long runs in a process of its own, which
is ended after its time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from optimizer.papers.evaluations.sequence_workload import KINDS, generate_sequences
from optimizer.papers.reference.cheapest_sharing import cheapest
from optimizer.papers.reference.incremental_weave_share import IncrementalPlan
from optimizer.papers.reference.sharing_candidates import SequenceProblem
from optimizer.plan.bare_windows import read_windows
from optimizer.search.cost import PAPER, SearchProblem
from optimizer.search.local_search import improve
from optimizer.search.optimum import optimum
from optimizer.search.search import ALGORITHMS, SECONDS, find
from optimizer.search.weave_share import weave_share
from optimizer.workload.values import SECOND, Window

LIMIT = 180
"""Seconds after which one search is given up."""

TEMPLATE = np.array([1, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600])
"""Slides that people choose, in seconds."""

Row = dict[str, Any]
Arrays = tuple[NDArray[np.int64], NDArray[np.int64]]


def workload(number: int, largest: int, skew: float, overlap: float, fragments: bool, seed: int) -> Arrays:
    """Ranges and slides in seconds: P(slide) ~ slide^skew up to ``largest``, r/s uniform up to 2 * ``overlap`` - 1."""
    chosen = np.random.default_rng(seed)
    sizes = np.arange(1, largest + 1)
    slides = chosen.choice(sizes, number, p=sizes**skew / (sizes**skew).sum())
    ranges = slides * chosen.integers(1, int(2 * overlap), number)
    return ranges + (chosen.integers(0, slides) if fragments else 0), slides


def distinct(number: int, fragments: bool, seed: int = 3) -> Arrays:
    """Windows of as many distinct edge sets."""
    chosen = np.random.default_rng(seed)
    if not fragments:
        slides = np.arange(60, 60 + number)
        return slides * chosen.integers(1, 20, number), slides
    slides = chosen.integers(60, 1001, 4 * number)
    pairs = np.unique(np.stack([slides, chosen.integers(1, slides)], axis=1), axis=0)
    pairs = chosen.permutation(pairs[2 * pairs[:, 1] != pairs[:, 0]])[:number]
    slides = pairs[:, 0]
    return slides * chosen.integers(0, 20, number) + pairs[:, 1], slides


def problem_of(windows: Arrays, rate: Fraction, collapse: bool = True) -> SearchProblem:
    ranges, slides = windows
    return SearchProblem.of_windows(ranges * SECOND, slides * SECOND, rate, PAPER, collapse=collapse)


def timed(action: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    started = time.process_time()
    done = action(*arguments)
    return done, time.process_time() - started


# ------------------------------------------------------------------------------- in processes of their own
def one_search(case: Row) -> Row:
    """Plan one workload and tell what it took."""
    if case["kind"] == "million":
        windows = workload(case["number"], 1000, 0.5, 10, False, 1)
    else:
        windows = distinct(case["number"], case["kind"] == "fragments")
    rate = Fraction(case["rate"])
    if case["kind"] == "million":
        # the first search in a process pays for imports and compiled kernels
        find(
            lambda collapse: problem_of(workload(1000, 100, 0.5, 10, False, 2), rate, collapse), case["algorithm"], 0.01
        )
    times: dict[str, list[float]] = {"grouping_seconds": [], "search_seconds": [], "seconds": []}
    for _ in range(case["rounds"]):
        problem, seconds = timed(problem_of, windows, rate)
        times["grouping_seconds"].append(seconds)
        times["search_seconds"].append(timed(ALGORITHMS[case["algorithm"]], problem)[1])
        plan, seconds = timed(lambda: find(lambda collapse: problem_of(windows, rate, collapse), case["algorithm"]))
        times["seconds"].append(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    gap = max(float(high / low - 1) for low, high in plan.bounds)
    spent = {name: median(values) for name, values in times.items()}
    return (
        case
        | spent
        | {
            "sets": plan.distinct_edge_sets,
            "trees": len(plan.partition),
            "peak_mb": peak,
            "widest_bound": gap,
        }
    )


def apart(case: Row) -> Row:
    """:func:`one_search` in a process, at most :data:`LIMIT` seconds."""
    command = [sys.executable, "-m", "tests.benchmarks.planning", "--case", json.dumps(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return case | {"failed": f"over {LIMIT} s"}
    if done.returncode:
        return case | {"failed": done.stderr.strip().splitlines()[-1][:60] if done.stderr else "died"}
    return dict(json.loads(done.stdout))


def searches(cases: list[Row]) -> list[Row]:
    return [apart(case) for case in cases]


def million(quick: bool) -> list[Row]:
    rates = ["1/500", "100"] if quick else ["1/500", "1", "100", "10000", "1000000"]
    return searches(
        [
            {"kind": "million", "number": 1_000_000, "rate": rate, "algorithm": algorithm, "rounds": 3}
            for rate in rates
            for algorithm in ("weave-share", "best")
        ]
    )


def reading(quick: bool) -> list[Row]:
    """Seconds to read the million windows from a CSV file, as ``heddle plan --windows`` does."""
    count = 100_000 if quick else 1_000_000
    ranges, slides = workload(count, 1000, 0.5, 10, False, 1)
    with TemporaryDirectory() as folder:
        path = stored((ranges, slides), Path(folder))
        read_windows(path)  # the first pays for imports
        seconds = [timed(read_windows, path)[1] for _ in range(3)]
    return [{"rows": count, "seconds": median(seconds)}]


def stored(windows: Arrays, folder: Path) -> Path:
    """Windows as a CSV file that ``heddle plan --windows`` reads."""
    path = folder / "windows.csv"
    rows = "".join(f"{r},{s}\n" for r, s in zip(*(column.tolist() for column in windows), strict=True))
    path.write_text("range,slide\n" + rows)
    return path


def command(quick: bool) -> list[Row]:
    """CPU and wall seconds of the whole command `heddle plan --windows` over the million windows."""
    count, rows = 100_000 if quick else 1_000_000, []
    with TemporaryDirectory() as folder:
        path = stored(workload(count, 1000, 0.5, 10, False, 1), Path(folder))
        for rate in ("0.002", "100", "1000000"):
            for algorithm in ("weave-share", "best"):
                arguments = ["plan", "--windows", str(path), "--rate", rate, "--algorithm", algorithm]
                before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                subprocess.run([sys.executable, "-m", "heddle.cli.app", *arguments], check=True, capture_output=True)
                wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                rows.append({"rate": rate, "algorithm": algorithm, "cpu_seconds": cpu, "wall_seconds": wall})
    return rows


def edge_sets(quick: bool) -> list[Row]:
    plain = [("plain", 2_000 if quick else 10_000, rate) for rate in ("1", "1000")]
    fragments = [("fragments", 1_000 if quick else 6_000, rate) for rate in ("1/10", "1", "100")]
    cases = [(*case, "weave-share") for case in plain + fragments]
    if not quick:
        # trees beyond exact counting, the largest table of pairs, and blocks of trees beyond it
        cases += [("fragments", 6_000, "100", "best"), ("fragments", 10_000, "10", "weave-share")]
        cases += [("fragments", 20_000, "10", "best")]
    return searches(
        [
            {"kind": kind, "number": number, "rate": rate, "algorithm": algorithm, "rounds": 1}
            for kind, number, rate, algorithm in cases
        ]
    )


# --------------------------------------------------------------------------------------------- quality
def small(number: int, seed: int) -> tuple[Arrays, Fraction]:
    """A random workload with fragments of exactly that many edge sets."""
    chosen = np.random.default_rng([number, seed])
    rate = Fraction(round(10 ** chosen.uniform(-1, 2), 3))
    while True:
        if seed % 2:
            slides = chosen.choice(TEMPLATE, number)
        else:
            sizes = np.arange(1, 101)
            slides = chosen.choice(sizes, number, p=sizes**0.6 / (sizes**0.6).sum())
        ranges = slides * chosen.integers(1, 20, number) + chosen.integers(0, slides)
        if len(problem_of((ranges, slides), rate)) == number:
            return (ranges, slides), rate


def gaps(quick: bool) -> list[Row]:
    """How far Weave Share, and the search after it, are from the proven optimum."""
    rows = []
    for number, times in ((8, 100), (12, 100), (15, 100), (18, 100)):
        dearer: dict[str, list[float]] = {"weave-share": [], "improved": []}
        seconds: dict[str, list[float]] = {"optimum": [], "weave-share": [], "improved": []}
        for seed in range(10 if quick else times):
            windows, rate = small(number, seed)
            problem = problem_of(windows, rate)
            plan, spent = timed(optimum, problem)
            seconds["optimum"].append(spent)
            least = problem.cost(plan)
            greedy, spent = timed(weave_share, problem)
            seconds["weave-share"].append(spent)
            improved, spent = timed(improve, problem, greedy, 0.05)
            seconds["improved"].append(spent)
            for name, partition in (("weave-share", greedy), ("improved", improved)):
                dearer[name].append(float(problem.cost(partition) / least) - 1)
        rows += [
            {
                "number": number,
                "workloads": len(excesses),
                "algorithm": name,
                "optimal": mean(gap < 1e-9 for gap in excesses),
                "mean_gap": mean(excesses),
                "worst_gap": max(excesses),
                "seconds": median(seconds[name]),
                "optimum_seconds": median(seconds["optimum"]),
            }
            for name, excesses in dearer.items()
        ]
    return rows


def savings(quick: bool) -> list[Row]:
    """What ``best`` saves over Weave Share on a thousand queries with fragments."""
    rows = []
    for rate in (10,) if quick else (10, 50, 300):
        saved, greedy, seconds = [], [], []
        for seed in range(2 if quick else 5):
            windows = workload(1000, 1000, 0.6, 50, True, seed)
            problem = problem_of(windows, Fraction(rate))
            start, spent = timed(weave_share, problem)
            greedy.append(spent)
            better, spent = timed(improve, problem, start, SECONDS)
            seconds.append(spent)
            saved.append(max(0.0, 1 - float(problem.cost(better) / problem.cost(start))))
        rows.append(
            {
                "rate": rate,
                "seeds": len(saved),
                "mean_saving": mean(saved),
                "worst_saving": min(saved),
                "weave_share_seconds": median(greedy),
                "improve_seconds": median(seconds),
            }
        )
    return rows


def additions(quick: bool) -> list[Row]:
    """Milliseconds to add one query to a plan of ten thousand, and to take it out again."""
    rows = []
    for fragments in (False, True):
        for rate in (1,) if quick else (1, 100):
            windows = workload(10_050, 1000, 0.5, 10, False, 6)
            chosen = np.random.default_rng(8)
            ranges, slides = windows
            if fragments:
                # one in ten: two thousand edge sets
                ranges = ranges + np.where(chosen.random(len(slides)) < 0.1, chosen.integers(0, slides), 0)
            plan = IncrementalPlan(rate, tolerance=float("inf"))
            pairs = [Window(int(r) * SECOND, int(s) * SECOND) for r, s in zip(ranges, slides, strict=True)]
            _, planned = timed(plan.add_all, dict(enumerate(pairs[:10_000])))
            added, removed = [], []
            for name, window in enumerate(pairs[10_000 : 10_010 if quick else None], start=10_000):
                added.append(timed(plan.add, name, window)[1] * 1000)
            for name in range(10_000, 10_000 + len(added)):
                removed.append(timed(plan.remove, name)[1] * 1000)
            rows.append(
                {
                    "fragments": fragments,
                    "rate": rate,
                    "trees": len(plan.trees),
                    "scratch_seconds": planned,
                    "add_median_ms": median(added),
                    "add_worst_ms": max(added),
                    "remove_median_ms": median(removed),
                    "remove_worst_ms": max(removed),
                }
            )
    return rows


def sequences(quick: bool) -> list[Row]:
    """How often the plan of 180 sequence queries is proven the cheapest, how long it takes, and how far a plan that is
    not proven may be from the cheapest."""
    rows = []
    for kind in KINDS:
        for rate in (4.0,) if quick else (2.0, 4.0, 8.0):
            seconds, gap = [], []
            for seed in range(1 if quick else 4):
                problem = SequenceProblem(*generate_sequences(180, kind=kind, rate=rate, seed=seed))
                plan, spent = timed(cheapest, problem)
                seconds.append(spent)
                gap.append(0.0 if plan.proven else plan.cost / plan.bound - 1)
            rows.append(
                {
                    "kind": kind,
                    "rate": rate,
                    "workloads": len(gap),
                    "proven": sum(not excess for excess in gap),
                    "median_seconds": median(seconds),
                    "worst_seconds": max(seconds),
                    "widest_gap": max(gap),
                }
            )
    return rows


PARTS: dict[str, tuple[str, Callable[[bool], list[Row]]]] = {
    "million": ("A million windows (slides to 1,000 s)", million),
    "reading": ("Reading a CSV file of windows", reading),
    "command": ("The whole command over a million windows", command),
    "sets": ("Distinct edge sets", edge_sets),
    "gap": ("Gap to the proven optimum", gaps),
    "saving": ("Best over Weave Share, 1,000 queries with fragments", savings),
    "sequences": ("180 event sequences of 10 types", sequences),
    "incremental": ("One query more or less in a plan of 10,000", additions),
}


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(title: str, rows: list[Row]) -> Table:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    grid = Table(title=title, title_justify="left")
    for column in columns:
        grid.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        grid.add_row(*(shown(row[column]) if column in row else "" for column in columns))
    return grid


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="planning", description="Speed and quality of sharing plans")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the parts")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case:
        print(json.dumps(one_search(json.loads(options.case))))
        return 0
    console = Console()
    # what goes to a file is not cut to a terminal's width
    console.width = console.width if console.is_terminal else 140
    measured = {}
    for name in options.only:
        title, measure = PARTS[name]
        measured[name] = measure(options.quick)
        console.print(table(title, measured[name]))
    if options.json:
        options.json.write_text(json.dumps({"format_version": 1, **measured}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
