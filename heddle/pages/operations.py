"""The operating view: what runs did, and what is late, wrong, changed or saved.

Its values are read from the warehouse by :mod:`spark_jobs.operations.read`. The page is for somebody whom an alert
wakes: problems come first, with their code and remedy, everything else below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from heddle.pages.charts import Chart, Column, chart
from heddle.pages.folding import Table, fold
from heddle.pages.formats import ago, bar_width, duration, interval, moment, number, seconds
from heddle.pages.plan import Tile
from heddle.pages.render import render
from optimizer.errors.diagnostics import Diagnostic, count
from spark_jobs.operations.values import (
    Check,
    Operations,
    Publication,
    Quarantined,
    Radius,
    Refreshed,
    Run,
    Sampled,
    Saving,
    Stale,
    Touched,
)

ROWS_SHOWN = 8
"""Rows of a table before the fold, and problems of the verdict."""

FINDINGS_SHOWN = 3
"""Problems and warnings of one run in the table of runs."""

CHARTED = 120
"""Runs of the consistency chart, the newest."""


# ----------------------------------------------------------------------------------------- problems
@dataclass(frozen=True)
class Problem:
    """Something that a person has to look at: where on the page, what, and what to do; answers lack nothing if it is
    a warning."""

    anchor: str
    title: str
    detail: str
    remedy: str
    is_warning: bool = False


def problems(view: Operations) -> list[Problem]:
    """Present problems, the worst first; empty if all is well."""
    wrong: list[Problem] = []
    different = [sample for sample in view.sampled if sample.names]
    if different:
        newest = different[-1]
        wrong.append(
            Problem(
                "consistency",
                f"{count(sum(len(sample.names) for sample in different), 'sampled query')} differed from unshared",
                f"last in {newest.run_id}: {', '.join(newest.names[:3])}",
                "nothing of such a run was published: see the failed check; heddle rollback restores an earlier plan",
            )
        )
    wrong += [problem for run in _latest(view.runs) if (problem := _problem_of(run, view)) is not None]
    live = max(
        (run for run in view.runs if run.live and run.status == "published"), key=lambda run: run.end, default=None
    )
    for warning in live.warnings if live is not None else ():
        wrong.append(Problem("runs", f"the newest live run: {warning.message}", warning.code, warning.hint, True))
    late = [refreshed for refreshed in view.refreshed if refreshed.now]
    if late:
        worst = max(late, key=lambda refreshed: refreshed.now)
        wrong.append(
            Problem(
                "lateness",
                f"{count(len(late), 'query')} answered too late in the newest live run",
                f"{worst.query} by {duration(worst.now)}",
                "runs take longer than their refreshes are apart: see predicted against measured",
            )
        )
    if view.stale:
        wrong.append(
            Problem(
                "revisions",
                f"{count(len(view.stale), 'published interval')} no longer of the source as it is",
                ", ".join(interval(stale.begin, stale.end) for stale in view.stale[:3]),
                "the DAG repair_results publishes them again, or heddle repair",
            )
        )
    return wrong


def _problem_of(run: Run, view: Operations) -> Problem | None:
    """Problem with the newest run of an interval."""
    when = interval(run.begin, run.end)
    if run.status == "failed":
        codes = run.problems[:3] or (Diagnostic("", "the run failed"),)
        return Problem(
            "runs",
            f"{when} is not published: its newest run failed {ago(run.at, view.now)}",
            "; ".join(f"{problem.code} {problem.message}".strip() for problem in codes),
            next((problem.hint for problem in codes if problem.hint), "") or "clear the run's task in Airflow to retry",
        )
    if run.problems:
        return Problem(
            "runs",
            f"{when} is published without some of its streams or queries",
            "; ".join(f"{problem.code} {problem.message}" for problem in run.problems[:3]),
            next((problem.hint for problem in run.problems if problem.hint), ""),
        )
    if run.fewer:
        return Problem(
            "runs",
            f"{when}: {count(len(run.fewer), 'query')} with fewer answers than before",
            ", ".join(f"{name} ({was:,} → {now:,})" for name, was, now in run.fewer[:3]),
            "if nobody meant that: heddle diff shows what the plan changed, heddle repair runs it again",
        )
    if run.status == "no end" and _is_overdue(run, view):
        return Problem(
            "runs",
            f"{when}: a run began {ago(run.at, view.now)} and has no end in the log",
            f"run {run.run_id}, revision {run.revision}",
            "if Airflow shows it as running, wait; if not, it died: a retry goes on under its revision",
        )
    return None


OVERDUE = timedelta(minutes=15)
"""A run without an end that is younger may well be running..."""

OVERDUE_TIMES = 3
"""...and so may one that is younger than this number of times the longest run shown."""


def _is_overdue(run: Run, view: Operations) -> bool:
    longest = max((other.wall or 0.0 for other in view.runs), default=0.0)
    return view.now - run.at > max(OVERDUE, OVERDUE_TIMES * timedelta(seconds=longest))


def _latest(runs: Sequence[Run]) -> list[Run]:
    """The newest run of each interval, newest first."""
    known: dict[tuple[int, int], Run] = {}
    for run in sorted(runs, key=lambda run: run.at, reverse=True):
        known.setdefault((run.begin, run.end), run)
    return list(known.values())


# ---------------------------------------------------------------------------------- what the page shows
@dataclass(frozen=True)
class RunRow:
    """A row of the table of runs: a run, or something about the run above it.

    ``problem``: one of its findings; ``note``: which queries have fewer answers, or none, and what Spark did.
    """

    run: Run | None = None
    problem: Diagnostic | None = None
    note: str = ""


@dataclass(frozen=True)
class Day:
    """Unshared recomputations in the runs of one day."""

    day: str
    runs: int
    queries: int
    different: int


@dataclass(frozen=True)
class PublicationRow:
    """A publication of an interval, and whether it is the newest, or the first, of that interval."""

    begin: int
    end: int
    is_newest: bool
    is_first: bool
    publication: Publication


@dataclass(frozen=True)
class SavingRow:
    """An owner's part, with the width of its bar in percent, what was saved, and what it costs a month, as text."""

    saving: Saving
    width: str
    saved: str
    a_month: str = ""


@dataclass(frozen=True)
class Costs:
    """Predicted and measured CPU seconds of runs; ``ratio``: how they compare, in words."""

    chart: Chart
    ratio: str


@dataclass(frozen=True)
class Consistency:
    """Queries recomputed unshared: their chart, their days, and how many differed of how many in how many runs."""

    chart: Chart
    days: Table[Day]
    total: int
    different: int
    runs: int


@dataclass(frozen=True)
class Savings:
    """Savings of owners over the ``runs`` shown, in CPU seconds."""

    table: Table[SavingRow]
    runs: int
    part: float
    unshared: float
    saved: str
    a_month: str = ""


@dataclass(frozen=True)
class OperationsPage:
    """All that the operating view shows; what is None or has no row was never met."""

    view: Operations
    problems: Sequence[Problem]
    tiles: Sequence[Tile]
    runs: Table[RunRow]
    costs: Costs | None
    lateness: Table[Refreshed]
    failed_checks: Table[Check]
    checked_runs: Table[Run]
    consistency: Consistency | None
    stale: Table[Stale]
    revisions: Table[PublicationRow]
    quarantine: Table[Quarantined]
    savings: Savings | None


# ------------------------------------------------------------------------------------------- the page
def page(view: Operations) -> str:
    """The operating view as a page."""
    return render("operations.html.j2", page=operations_page(view), problems_shown=ROWS_SHOWN)


def operations_page(view: Operations) -> OperationsPage:
    """Content of the operating view, counted and put into words."""
    return OperationsPage(
        view=view,
        problems=problems(view),
        tiles=_tiles(view),
        runs=_runs(view.runs),
        costs=_costs(view.runs),
        lateness=_lateness(view.refreshed),
        failed_checks=_failed_checks(view),
        checked_runs=_checked_runs(view.runs),
        consistency=_consistency(view.sampled),
        stale=_stale(view.stale or ()),
        revisions=_revisions(view),
        quarantine=_quarantine(view.quarantined),
        savings=_savings(view),
    )


def _tiles(view: Operations) -> list[Tile]:
    if not view.runs:
        return []
    newest = max(view.runs, key=lambda run: run.at)
    failed = sum(run.status == "failed" for run in view.runs)
    passed, wrong = view.all_checks
    sampled, different = _differences(view.sampled)
    shown = "idle" if newest.is_idle else newest.status
    note = f"{failed} of the {len(view.runs)} runs shown failed"
    return [
        Tile("newest run", shown, ago(newest.at, view.now), "ill" if newest.status == "failed" else ""),
        Tile("intervals published", number(view.intervals), note),
        Tile("checks failed", number(wrong), f"of {passed + wrong:,} ever", "ill" if wrong else "good"),
        Tile(
            "differences",
            number(different),
            f"of {sampled:,} sampled queries; goal 0",
            "ill" if different else "good",
        ),
    ]


def _runs(runs: Sequence[Run]) -> Table[RunRow]:
    rows = []
    for run in runs:
        rows.append(RunRow(run=run))
        rows += [RunRow(problem=problem) for problem in (*run.problems, *run.warnings)[:FINDINGS_SHOWN]]
        if run.application:
            rows.append(RunRow(note=f"{run.engine}, application {run.application}: {'; '.join(run.jobs)}"))
        fewer = [f"{name} ({was:,} → {now:,})" for name, was, now in run.fewer]
        for what, names in (("fewer answers than before", fewer), ("no answer in this interval", run.empty)):
            if names:
                more = f", … {len(names) - 12} more" if len(names) > 12 else ""
                rows.append(RunRow(note=f"{what}: {', '.join(names[:12])}{more}"))
    columns = [
        *(("interval (UTC)", 21), ("at", 14), ("status", 12), ("rev.", 4), ("plan", 5), ("answers", 9), ("events", 9)),
        *(("predicted", 8), ("CPU-s", 7), ("wall s", 5), ("checks", 6)),
    ]
    return Table("log runs", columns, fold(rows, ROWS_SHOWN, len(rows), "row"))


def _costs(runs: Sequence[Run]) -> Costs | None:
    known = [run for run in sorted(runs, key=lambda run: run.at) if run.measured is not None]
    if not known:
        return None
    columns = [
        Column(
            f"{interval(run.begin, run.end)}, revision {run.revision}: measured {seconds(run.measured)}, predicted "
            f"{seconds(run.predicted) or 'nothing'} CPU-s",
            [("own" if run.status == "published" else "end", run.measured or 0.0)],
            run.predicted,
        )
        for run in known
    ]
    ratios = sorted(run.predicted / run.measured for run in known if run.predicted is not None and run.measured)
    ratio = "No run was predicted."
    if ratios:
        ratio = (
            f"Predicted is {ratios[len(ratios) // 2]:.2f} times measured in the middle of {count(len(ratios), 'run')} "
            f"(from {ratios[0]:.2f} to {ratios[-1]:.2f} times). Each is predicted from "
            "what those before it took."
        )
    return Costs(chart(columns, "CPU seconds"), ratio)


def _lateness(refreshed: Sequence[Refreshed]) -> Table[Refreshed]:
    rows = sorted(refreshed, key=lambda row: (-row.now, -row.latest, row.query))
    columns = [
        *(("query", 28), ("at most", 10), ("on average", 10), ("answered for", 18), ("late now by", 12)),
        *(("latest by", 12), ("late runs", 10)),
    ]
    return Table("log lateness", columns, fold(rows, ROWS_SHOWN, len(rows), "query"))


def _failed_checks(view: Operations) -> Table[Check]:
    _, failed = view.all_checks
    columns = [("interval (UTC)", 22), ("at", 14), ("check", 26), ("what was found", 38)]
    return Table("log texts", columns, fold(view.failed_checks, ROWS_SHOWN, failed, "failed check"))


def _checked_runs(runs: Sequence[Run]) -> Table[Run]:
    """Runs with checks, those first that failed one, newest first."""
    ranked = sorted(runs, key=lambda run: (run.passed == run.checks, -run.at.timestamp()))
    rows = [run for run in ranked if run.checks]
    columns = [("run", 40), ("at", 24), ("checks passed", 18), ("Great Expectations", 18)]
    return Table("log texts", columns, fold(rows, ROWS_SHOWN, len(rows), "run"))


def _differences(sampled: Sequence[Sampled]) -> tuple[int, int]:
    """Numbers of recomputed queries and of those that differed."""
    return sum(sample.queries for sample in sampled), sum(len(sample.names) for sample in sampled)


def _consistency(sampled: Sequence[Sampled]) -> Consistency | None:
    total, different = _differences(sampled)
    if not total:
        return None
    columns = [
        Column(
            f"{moment(sample.at)} {sample.run_id}: {sample.queries} recomputed, {len(sample.names)} different",
            [("own", float(sample.queries - len(sample.names))), ("end", float(len(sample.names)))],
        )
        for sample in sampled[-CHARTED:]
    ]
    by_day: dict[str, Counter[str]] = {}
    for sample in sampled:
        sums = by_day.setdefault(moment(sample.at)[:10], Counter())
        sums.update(runs=1, queries=sample.queries, different=len(sample.names))
    days = [
        Day(day, sums["runs"], sums["queries"], sums["different"]) for day, sums in sorted(by_day.items(), reverse=True)
    ]
    names = [("day of the run", 40), ("runs", 20), ("queries recomputed", 20), ("different", 20)]
    table = Table("log texts", names, fold(days, ROWS_SHOWN, len(days), "day"))
    return Consistency(chart(columns, "queries"), table, total, different, len(sampled))


def _stale(stale: Sequence[Stale]) -> Table[Stale]:
    columns = [
        *(("outdated interval (UTC)", 36), ("revision", 10), ("late events", 13), ("fragments", 13), ("queries", 13)),
        ("windows touched", 15),
    ]
    return Table("log", columns, fold(stale, ROWS_SHOWN, len(stale), "interval"))


def _revisions(view: Operations) -> Table[PublicationRow]:
    rows = [
        PublicationRow(revised.begin, revised.end, place == 0, each.revision == revised.publications[0].revision, each)
        for revised in view.revised
        for place, each in enumerate(reversed(revised.publications))
    ]
    columns = [
        *(("interval (UTC)", 22), ("rev.", 6), ("published", 16), ("plan", 6), ("answers", 12), ("events read", 12)),
        ("what was new", 26),
    ]
    return Table("log revisions", columns, fold(rows, ROWS_SHOWN, len(rows), "publication"))


def _quarantine(quarantined: Sequence[Quarantined]) -> Table[Quarantined]:
    columns = [("stream", 18), ("code", 10), ("rows", 12), ("runs", 8), ("last", 16), ("why", 36)]
    return Table("log texts quarantined", columns, fold(quarantined, ROWS_SHOWN, len(quarantined), "reason"))


def _savings(view: Operations) -> Savings | None:
    if not view.savings:
        return None
    largest = max(saving.unshared for saving in view.savings)

    def a_month(spent: float) -> str:
        return view.price.a_month(spent, view.covered) if view.price is not None else ""

    rows = [
        SavingRow(saving, bar_width(saving.part, largest), _saved(saving.part, saving.unshared), a_month(saving.part))
        for saving in view.savings
    ]
    part, unshared = sum(saving.part for saving in view.savings), sum(saving.unshared for saving in view.savings)
    runs = sum(run.status == "published" and run.measured is not None for run in view.runs) - view.unpriced
    columns = [("owner", 28), ("queries", 10), ("unshared CPU-s", 16), ("part CPU-s", 14), ("", 20), ("saved", 12)]
    if view.price is not None:
        columns = [("owner", 24), ("queries", 9), ("unshared CPU-s", 15), ("part CPU-s", 13), ("", 15), ("saved", 10)]
        columns.append(("a month", 14))
    table = Table("log owners", columns, fold(rows, ROWS_SHOWN, len(rows), "owner"))
    return Savings(table, runs, part, unshared, _saved(part, unshared), a_month(part))


def _saved(part: float, unshared: float) -> str:
    """Saving of ``part`` compared with ``unshared``, rounded to percents: these are estimates."""
    if not unshared:
        return "0 %"
    percent = (1 - part / unshared) * 100
    # neither side of nothing at all is "-0"
    return f"{'−' if percent > 0 else '+'}{abs(percent):.0f} %" if abs(percent) >= 0.5 else "0 %"


# -------------------------------------------------------------------------------------- blast radius
def radius(change: Radius) -> str:
    """Page with the changes of one publication."""
    rows = sorted(change.queries, key=lambda row: (-row.changed - row.new - row.gone, row.query))
    columns = [("query", 55), ("changed", 15), ("new", 15), ("gone", 15)]
    queries: Table[Touched] = Table("log", columns, fold(rows, ROWS_SHOWN, len(rows), "query"))
    totals = Touched("", *(sum(counts) for counts in zip(*(row[1:] for row in rows), strict=True))) if rows else None
    return render("radius.html.j2", change=change, queries=queries, totals=totals or Touched("", 0, 0, 0))
