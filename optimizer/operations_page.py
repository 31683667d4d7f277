"""The operating view as HTML: what runs did, what is late, wrong, changed or saved, and how plans followed one another.

Pure functions of values that :mod:`spark_jobs.operations` reads from the warehouse. The page is for somebody who is
woken by it: what is wrong stands first, with its code and what to do, everything else below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from optimizer.errors import Diagnostic
from optimizer.markup import LOGO, bar, count, cut, document, duration, escape, figure, folded_table, menu
from optimizer.plan import PlanDiff

ROWS_SHOWN = 8
"""Rows of a table before the fold."""

CHANGES_SHOWN = 60
"""Lines of a difference before the fold."""

CHANGES_FOLDED = 2_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Status = Literal["published", "failed", "no end"]


# -------------------------------------------------------------------------------------------- values
@dataclass(frozen=True)
class Run:
    """One run of the log. ``begin``, ``end``: its interval (microseconds); times in seconds.

    ``status``: ``"no end"`` is a run that was given a revision and neither published nor failed: it runs, or it died.
    ``docs``: name of its Data Docs page, "" if there is none.
    """

    run_id: str
    status: Status
    at: datetime
    begin: int
    end: int
    revision: int
    plan_version: int
    answers: int = 0
    queries: int = 0
    events: int = 0
    measured: float | None = None
    predicted: float | None = None
    wall: float | None = None
    passed: int = 0
    checks: int = 0
    live: bool = False
    late: bool = False
    lateness: tuple[tuple[str, int], ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    docs: str = ""


@dataclass(frozen=True)
class Refreshed:
    """A query with a refresh bound (microseconds): ``answered`` last at that instant, late in ``late_runs`` of the runs
    shown, by at most ``latest``, in the newest run by ``now``."""

    query: str
    bound: int
    average: int
    answered: int | None
    latest: int
    late_runs: int
    now: int


@dataclass(frozen=True)
class Check:
    """One check of a run's answers that failed."""

    run_id: str
    at: datetime
    begin: int
    end: int
    name: str
    detail: str


@dataclass(frozen=True)
class Sampled:
    """Queries that one run recomputed unshared, and how many of them differed. ``names``: of those that did."""

    run_id: str
    at: datetime
    queries: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Publication:
    """One publication of an interval, and why it came after the one before."""

    revision: int
    at: datetime
    run_id: str
    plan_version: int
    answers: int
    events: int
    why: str


@dataclass(frozen=True)
class Revised:
    """An interval that was published more than once, its publications oldest first."""

    begin: int
    end: int
    publications: tuple[Publication, ...]


class Touched(NamedTuple):
    """So many answers of a query differ, are new, or are gone."""

    query: str
    changed: int
    new: int
    gone: int


@dataclass(frozen=True)
class Radius:
    """What one publication changed for readers; ``answers``: of the interval, before and after."""

    begin: int
    end: int
    revision: int
    answers: tuple[int, int]
    queries: tuple[Touched, ...]


@dataclass(frozen=True)
class Stale:
    """A published interval whose source has changed since: late ``events``, the ``fragments`` that they fall into, and
    the queries and windows that may be others now."""

    begin: int
    end: int
    revision: int
    events: int
    fragments: int
    queries: int
    windows: int


@dataclass(frozen=True)
class Quarantined:
    """Rows of a stream that were left out for one reason, over all runs."""

    stream: str
    code: str
    rows: int
    runs: int
    last: datetime
    detail: str


@dataclass(frozen=True)
class Saving:
    """CPU seconds of an owner's queries over the runs shown: their part in what was measured, and unshared.

    A run's measured CPU seconds are divided as its plan's cost is: an owner's part is measured × here / cost, and
    unshared it would have been measured × alone / cost, where *here* and *alone* are the sums over the owner's queries
    of :class:`optimizer.plan_page.Account`, and *cost* is the plan's.
    """

    owner: str
    queries: int
    part: float
    unshared: float


@dataclass(frozen=True)
class Version:
    """A stored plan version, as its history lists it. Costs are per second in the unit of its model."""

    number: int
    made: datetime
    by: str
    because: str
    algorithm: str
    cost_model: str
    cost: float
    no_share: float
    queries: int
    trees: int


@dataclass(frozen=True)
class Operations:
    """All that the operating view shows. ``stale`` None: nobody looked, which means listing all sources.

    ``sampled``: of all runs ever, oldest first; ``recomputed`` their sum; ``all_checks``: (passed, failed) ever.
    """

    now: datetime
    plan_version: int | None = None
    queries: int = 0
    runs: tuple[Run, ...] = ()
    refreshed: tuple[Refreshed, ...] = ()
    failed_checks: tuple[Check, ...] = ()
    all_checks: tuple[int, int] = (0, 0)
    sampled: tuple[Sampled, ...] = ()
    revised: tuple[Revised, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    savings: tuple[Saving, ...] = ()
    unpriced: int = 0
    stale: tuple[Stale, ...] | None = None
    looked_at: int = 0
    intervals: int = 0


# -------------------------------------------------------------------------------------------- texts
def moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def instant(microseconds: int) -> str:
    """An instant as short as it is exact."""
    try:
        at = EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} µs"
    if at.microsecond:
        return f"{at:%Y-%m-%d %H:%M:%S.%f}"
    return f"{at:%Y-%m-%d}" if microseconds % 86_400_000_000 == 0 else f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


def interval(begin: int, end: int) -> str:
    """``2013-07-01 .. 02`` is read more easily than both in full."""
    first, last = instant(begin), instant(end)
    if len(first) == len(last) == 10 and first[:8] == last[:8]:
        last = last[8:]
    elif first[:10] == last[:10] and "-" in first[:10] < first:
        last = last[11:]
    return f"{first} .. {last}"


def ago(at: datetime, now: datetime) -> str:
    """``12 min ago``: one unit is enough to judge by."""
    seconds = max(int((now - at).total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _cell(text: str, most: int = 60) -> str:
    """A cell's text, cut, whole when it is pointed at."""
    shown = escape(cut(text, most))
    return f'<span title="{escape(cut(text, 600))}">{shown}</span>' if len(text) > most else shown


def _card(anchor: str, title: str, note: str, body: str) -> str:
    told = f" <small>{escape(note)}</small>" if note else ""
    return f'<section class="card" id="{anchor}"><h2>{escape(title)}{told}</h2>{body}</section>'


def _quiet(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'


def _grid(widths: Sequence[int], names: Sequence[str], rows: Sequence[str], total: int, noun: str, kind: str) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    return folded_table(f"log {kind}", widths, head, rows, ROWS_SHOWN, total, noun)


def _row(cells: Sequence[str], kind: str = "") -> str:
    return f'<tr class="{kind}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


# ----------------------------------------------------------------------------------------- problems
@dataclass(frozen=True)
class Problem:
    """Something that a person has to look at: where on the page, what, and what to do."""

    anchor: str
    title: str
    detail: str
    remedy: str


def problems(found: Operations) -> list[Problem]:
    """What is wrong now, the worst first; nothing if all is well."""
    told: list[Problem] = []
    different = [one for one in found.sampled if one.names]
    if different:
        newest = different[-1]
        told.append(
            Problem(
                "consistency",
                f"{count(sum(len(one.names) for one in different), 'sampled query')} differed from unshared",
                f"last in {newest.run_id}: {', '.join(newest.names[:3])}",
                "nothing of such a run was published: see the failed check; heddle rollback restores an earlier plan",
            )
        )
    latest = _latest(found.runs)
    for run in latest:
        if run.status == "failed":
            codes = run.problems[:3] or (Diagnostic("", "the run failed"),)
            told.append(
                Problem(
                    "runs",
                    f"{interval(run.begin, run.end)} is not published: its newest run failed {ago(run.at, found.now)}",
                    "; ".join(f"{one.code} {one.message}".strip() for one in codes),
                    next((one.hint for one in codes if one.hint), "") or "clear the run's task in Airflow to retry",
                )
            )
        elif run.problems:
            told.append(
                Problem(
                    "runs",
                    f"{interval(run.begin, run.end)} is published without some of its streams or queries",
                    "; ".join(f"{one.code} {one.message}" for one in run.problems[:3]),
                    next((one.hint for one in run.problems if one.hint), ""),
                )
            )
        elif run.status == "no end" and _is_overdue(run, found):
            told.append(
                Problem(
                    "runs",
                    f"{interval(run.begin, run.end)}: a run began {ago(run.at, found.now)} and has no end in the log",
                    f"run {run.run_id}, revision {run.revision}",
                    "if Airflow shows it as running, wait; if not, it died: a retry goes on under its revision",
                )
            )
    late = [one for one in found.refreshed if one.now]
    if late:
        worst = max(late, key=lambda one: one.now)
        told.append(
            Problem(
                "lateness",
                f"{count(len(late), 'query')} answered too late in the newest live run",
                f"{worst.query} by {duration(worst.now)}",
                "runs take longer than their refreshes are apart: see predicted against measured",
            )
        )
    if found.stale:
        told.append(
            Problem(
                "revisions",
                f"{count(len(found.stale), 'published interval')} no longer of the source as it is",
                ", ".join(interval(one.begin, one.end) for one in found.stale[:3]),
                "the DAG repair_results publishes them again, or heddle repair",
            )
        )
    return told


OVERDUE = timedelta(minutes=15)
"""A run without an end that is younger may well be running..."""

OVERDUE_TIMES = 3
"""...and so may one that is not so many times as old as the longest run shown."""


def _is_overdue(run: Run, found: Operations) -> bool:
    longest = max((other.wall or 0.0 for other in found.runs), default=0.0)
    return found.now - run.at > max(OVERDUE, OVERDUE_TIMES * timedelta(seconds=longest))


def _latest(runs: Sequence[Run]) -> list[Run]:
    """Of each interval its newest run, newest first."""
    known: dict[tuple[int, int], Run] = {}
    for run in sorted(runs, key=lambda run: run.at, reverse=True):
        known.setdefault((run.begin, run.end), run)
    return list(known.values())


def _verdict(found: Operations, told: Sequence[Problem]) -> str:
    if not found.runs:
        note = (
            "No run yet. The DAG aggregate_windows makes them."
            if found.plan_version
            else ("No plan yet. Trigger the DAG refresh_sharing_plan.")
        )
        return f'<section class="card verdict"><h2>Nothing to show</h2>{_quiet(note)}</section>'
    if not told:
        return (
            '<section class="card verdict well"><h2>All is well</h2>'
            + _quiet(
                "Of every interval shown the newest run is published, or still running; no sampled query ever differed."
            )
            + "</section>"
        )
    items = "".join(
        f'<li><a href="#{one.anchor}"><b>{escape(cut(one.title, 200))}</b></a>'
        f"<p>{escape(cut(one.detail, 400))}</p>"
        + (f'<p class="remedy">→ {escape(cut(one.remedy, 300))}</p>' if one.remedy else "")
        + "</li>"
        for one in told[:ROWS_SHOWN]
    )
    more = _quiet(f"and {len(told) - ROWS_SHOWN} more below") if len(told) > ROWS_SHOWN else ""
    return f'<section class="card verdict ill"><h2>{count(len(told), "problem")}</h2><ol>{items}</ol>{more}</section>'


# --------------------------------------------------------------------------------------- the page
_ANCHORS = (
    ("runs", "Runs"),
    ("costs", "Predicted and measured"),
    ("lateness", "Lateness"),
    ("quality", "Quality"),
    ("consistency", "Consistency"),
    ("revisions", "Revisions"),
    ("quarantine", "Quarantine"),
    ("savings", "Savings"),
)


def operations(found: Operations) -> str:
    """The operating view as a page."""
    told = problems(found)
    body = [
        menu("operations"),
        _head("Operations", {"as of": f"{moment(found.now)} UTC", "plan version": str(found.plan_version or "none")}),
        _verdict(found, told),
        _tiles(found),
        '<nav class="jump">' + "".join(f'<a href="#{name}">{title}</a>' for name, title in _ANCHORS) + "</nav>",
        _runs(found),
        _costs(found.runs),
        _lateness(found),
        _quality(found),
        _consistency(found),
        _revisions(found),
        _quarantine(found),
        _savings(found),
    ]
    return document("Sharing plan: operations", body)


def _head(title: str, facts: dict[str, str]) -> str:
    chips = "".join(f"<span><i>{escape(name)}</i> {escape(cut(value, 300))}</span>" for name, value in facts.items())
    return f'<header>{LOGO}<div><h1>{escape(title)}</h1><p class="chips">{chips}</p></div></header>'


def _tiles(found: Operations) -> str:
    def tile(label: str, value: str, note: str, kind: str = "") -> str:
        return (
            f'<div class="tile {kind}"><p>{escape(label)}</p><strong>{escape(value)}</strong>'
            f"<small>{escape(note)}</small></div>"
        )

    if not found.runs:
        return ""
    newest = max(found.runs, key=lambda run: run.at)
    failed = sum(run.status == "failed" for run in found.runs)
    passed, wrong = found.all_checks
    sampled, different = _differences(found.sampled)
    return (
        '<section class="tiles">'
        + tile("newest run", newest.status, ago(newest.at, found.now), "" if newest.status != "failed" else "ill")
        + tile("intervals published", f"{found.intervals:,}", f"{failed} of the {len(found.runs)} runs shown failed")
        + tile("checks failed", f"{wrong:,}", f"of {passed + wrong:,} ever", "ill" if wrong else "good")
        + tile(
            "differences", f"{different:,}", f"of {sampled:,} sampled queries; goal 0", "ill" if different else "good"
        )
        + "</section>"
    )


def _runs(found: Operations) -> str:
    rows = []
    for run in found.runs:
        marks = ", ".join(name for name, on in (("live", run.live), ("late", run.late)) if on)
        kind = {"published": "", "failed": "ill", "no end": "warn"}[run.status]
        checks = f"{run.passed}/{run.checks}" if run.checks else ""
        if run.docs:
            checks = f'<a href="data-docs/{escape(run.docs)}">{checks or "docs"}</a>'
        rows.append(
            _row(
                [
                    f'{escape(interval(run.begin, run.end))}<small class="under">{_cell(run.run_id, 44)}</small>',
                    moment(run.at)[:-3],
                    f'<b class="{kind or "good"}">{run.status}</b><small class="under">{marks}</small>',
                    str(run.revision),
                    f'<a href="./?version={run.plan_version}">{run.plan_version}</a>',
                    f"{run.answers:,}",
                    f"{run.events:,}",
                    _seconds(run.predicted),
                    _seconds(run.measured),
                    _seconds(run.wall),
                    checks,
                ],
                kind,
            )
        )
        rows += [
            f'<tr class="problem"><td colspan="11">{escape(one.code)} {escape(cut(one.message, 400))}'
            + (f'<span class="remedy"> → {escape(cut(one.hint, 200))}</span>' if one.hint else "")
            + "</td></tr>"
            for one in run.problems[:3]
        ]
    names = (
        "interval (UTC)",
        "at",
        "status",
        "rev.",
        "plan",
        "answers",
        "events",
        "predicted",
        "CPU-s",
        "wall s",
        "checks",
    )
    if not rows:
        return _card("runs", "Runs", "", _quiet("No run yet."))
    table = _grid((21, 14, 12, 4, 5, 9, 9, 8, 7, 5, 6), names, rows, len(rows), "row", "runs")
    return _card("runs", "Runs", "newest first; checks lead to Great Expectations' Data Docs", table)


_CHART_WIDTH, _CHART_HEIGHT, _CHART_LEFT = 1040, 96, 46


def _chart(columns: Sequence[tuple[str, Sequence[tuple[str, float]], float | None]], unit: str) -> str:
    """Stacked columns, one a run, oldest left: (what it is, (kind, value)s from below, a mark above or None)."""
    if not columns:
        return ""
    tops = [max(sum(value for _, value in parts), mark or 0.0) for _, parts, mark in columns]
    largest = max(tops) or 1.0
    pitch = (_CHART_WIDTH - _CHART_LEFT - 4) / max(len(columns), 12)
    width = max(pitch * 0.72, 1.0)
    drawn = []
    for number, (told, parts, mark) in enumerate(columns):
        x, y = _CHART_LEFT + number * pitch, float(_CHART_HEIGHT)
        shapes = []
        for kind, value in parts:
            height = value / largest * (_CHART_HEIGHT - 10)
            y -= height
            if value:
                shapes.append(
                    f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 1):.1f}"/>'
                )
        if mark is not None:
            at = _CHART_HEIGHT - mark / largest * (_CHART_HEIGHT - 10)
            shapes.append(f'<path class="mark" d="M{x - 1:.1f} {at:.1f}h{width + 2:.1f}"/>')
        drawn.append(f"<g><title>{escape(told)}</title>{''.join(shapes)}</g>")
    return (
        f'<div class="wide"><svg class="chart" viewBox="0 0 {_CHART_WIDTH} {_CHART_HEIGHT + 4}" role="img" '
        f'aria-label="{escape(unit)} of {len(columns)} runs">'
        f'<text class="dim" x="{_CHART_LEFT - 8}" y="16" text-anchor="end">{escape(figure(largest))}</text>'
        f'<text class="dim" x="{_CHART_LEFT - 8}" y="{_CHART_HEIGHT}" text-anchor="end">0</text>'
        f'<path class="axis" d="M{_CHART_LEFT} {_CHART_HEIGHT + 1}H{_CHART_WIDTH}"/>{"".join(drawn)}</svg></div>'
    )


def _costs(runs: Sequence[Run]) -> str:
    known = [run for run in sorted(runs, key=lambda run: run.at) if run.measured is not None]
    if not known:
        return _card("costs", "Predicted and measured", "", _quiet("No run has been measured yet."))
    columns = [
        (
            f"{interval(run.begin, run.end)}, revision {run.revision}: measured {_seconds(run.measured)}, predicted "
            f"{_seconds(run.predicted) or 'nothing'} CPU-s",
            [("own" if run.status == "published" else "end", run.measured or 0.0)],
            run.predicted,
        )
        for run in known
    ]
    both = [run for run in known if run.predicted is not None and run.measured]
    told = "No run was predicted."
    if both:
        ratios = sorted(run.predicted / run.measured for run in both if run.predicted is not None and run.measured)
        middle = ratios[len(ratios) // 2]
        told = (
            f"Predicted is {middle:.2f} times measured in the middle of {count(len(both), 'run')} "
            f"(from {ratios[0]:.2f} to {ratios[-1]:.2f} times). heddle calibrate --warehouse fits the costs to "
            "what was measured."
        )
    legend = (
        '<p class="legend"><span class="key fill own"></span> measured <span class="key fill end"></span> of a failed '
        'run <span class="key line"></span> predicted beforehand</p>'
    )
    return _card(
        "costs",
        "Predicted and measured",
        "CPU seconds a run, oldest left",
        legend + _chart(columns, "CPU seconds") + _quiet(told),
    )


def _lateness(found: Operations) -> str:
    if not found.refreshed:
        note = "No query has a refresh bound (SLIDE AT MOST): nothing can be late."
        return _card("lateness", "Lateness", "", _quiet(note))
    rows = [
        _row(
            [
                _cell(one.query, 48),
                duration(one.bound),
                duration(one.average),
                "never" if one.answered is None else escape(instant(one.answered)),
                duration(one.now) if one.now else "–",
                duration(one.latest) if one.latest else "–",
                str(one.late_runs) if one.late_runs else "–",
            ],
            "ill" if one.now else "warn" if one.late_runs else "",
        )
        for one in sorted(found.refreshed, key=lambda one: (-one.now, -one.latest, one.query))
    ]
    names = ("query", "at most", "on average", "answered for", "late now by", "latest by", "late runs")
    table = _grid((28, 10, 10, 18, 12, 12, 10), names, rows, len(rows), "query", "lateness")
    note = "by how much refresh bounds were exceeded, in data time, over the runs shown"
    return _card("lateness", "Lateness", note, table)


def _quality(found: Operations) -> str:
    passed, failed = found.all_checks
    told = _quiet(
        f"{passed:,} checks passed and {failed:,} failed, over all runs. A run whose checks fail publishes nothing."
    )
    rows = [
        _row(
            [
                f'{escape(interval(one.begin, one.end))}<small class="under">{_cell(one.run_id, 40)}</small>',
                moment(one.at),
                f"<code>{_cell(one.name, 60)}</code>",
                _cell(one.detail, 160),
            ],
            "ill",
        )
        for one in found.failed_checks
    ]
    table = ""
    if rows:
        table = _grid(
            (22, 14, 26, 38), ("interval (UTC)", "at", "check", "what was found"), rows, failed, "failed check", "texts"
        )
    latest = [
        _row(
            [
                f'{escape(interval(run.begin, run.end))}<small class="under">{_cell(run.run_id, 40)}</small>',
                moment(run.at),
                f'<b class="{"good" if run.passed == run.checks else "bad"}">{run.passed}/{run.checks}</b>',
                f'<a href="data-docs/{escape(run.docs)}">Data Docs</a>' if run.docs else "",
            ],
            "" if run.passed == run.checks else "ill",
        )
        for run in sorted(found.runs, key=lambda run: (run.passed == run.checks, -run.at.timestamp()))
        if run.checks
    ]
    runs = _grid(
        (40, 24, 18, 18), ("run", "at", "checks passed", "Great Expectations"), latest, len(latest), "run", "texts"
    )
    return _card("quality", "Quality", "failures first", told + table + (runs if latest else ""))


def _differences(sampled: Sequence[Sampled]) -> tuple[int, int]:
    return sum(one.queries for one in sampled), sum(len(one.names) for one in sampled)


CHARTED = 120
"""Runs of the consistency chart, the newest."""


def _consistency(found: Operations) -> str:
    total, different = _differences(found.sampled)
    if not total:
        return _card("consistency", "Consistency", "shared against unshared", _quiet("No query was recomputed yet."))
    columns = [
        (
            f"{moment(one.at)} {one.run_id}: {one.queries} recomputed, {len(one.names)} different",
            [("own", float(one.queries - len(one.names))), ("end", float(len(one.names)))],
            None,
        )
        for one in found.sampled[-CHARTED:]
    ]
    days: dict[str, Counter[str]] = {}
    for one in found.sampled:
        day = days.setdefault(moment(one.at)[:10], Counter())
        day.update(runs=1, queries=one.queries, different=len(one.names))
    rows = [
        _row(
            [day, f"{held['runs']:,}", f"{held['queries']:,}", f"{held['different']:,}"],
            "ill" if held["different"] else "",
        )
        for day, held in sorted(days.items(), reverse=True)
    ]
    table = _grid(
        (40, 20, 20, 20), ("day of the run", "runs", "queries recomputed", "different"), rows, len(rows), "day", "texts"
    )
    told = (
        f"<p>Each run recomputes some windows of sampled queries <b>unshared</b>, from raw events with Spark’s own "
        f"aggregates, before it publishes. Of {total:,} queries in {count(len(found.sampled), 'run')} "
        f'<b class="{"bad" if different else "good"}">{different:,}</b> differed; the goal is 0.</p>'
    )
    legend = '<p class="legend"><span class="key fill own"></span> agree <span class="key fill end"></span> differ</p>'
    return _card(
        "consistency",
        "Consistency",
        "shared against unshared, over time; goal 0",
        told + legend + _chart(columns, "queries") + table,
    )


def _revisions(found: Operations) -> str:
    if found.stale is None:
        look = _quiet("Whether published intervals are still of their sources is looked up when asked: it lists them.")
        look += '<p><a class="button" href="operations?look=1#revisions">Look now</a></p>'
    elif not found.stale:
        looked = count(found.looked_at, "published interval")
        look = f'<p class="good">The newest {looked} are of their sources as they are.</p>'
    else:
        rows = [
            _row(
                [escape(interval(one.begin, one.end))]
                + [f"{told:,}" for told in (one.revision, one.events, one.fragments, one.queries, one.windows)],
                "ill",
            )
            for one in found.stale
        ]
        told_of = ("outdated interval (UTC)", "revision", "late events", "fragments", "queries", "windows touched")
        look = _grid((36, 10, 13, 13, 13, 15), told_of, rows, len(rows), "interval", "")
    if not found.revised:
        told = _quiet("No interval was published more than once: no late data, no rerun, no changed plan was repaired.")
        return _card("revisions", "Revisions and late data", "", told + look)
    rows = []
    for one in found.revised:
        for number, each in enumerate(reversed(one.publications)):
            rows.append(
                _row(
                    [
                        escape(interval(one.begin, one.end)) if number == 0 else "",
                        _revision(one, each),
                        moment(each.at),
                        f'<a href="./?version={each.plan_version}">{each.plan_version}</a>',
                        f"{each.answers:,}",
                        f"{each.events:,}",
                        _cell(each.why, 90),
                    ]
                )
            )
    names = ("interval (UTC)", "rev.", "published", "plan", "answers", "events read", "what was new")
    table = _grid((22, 6, 16, 6, 12, 12, 26), names, rows, len(rows), "publication", "revisions")
    note = f"{count(len(found.revised), 'interval')} published more than once; a revision leads to what it changed"
    return _card("revisions", "Revisions and late data", note, table + look)


def _revision(one: Revised, each: Publication) -> str:
    if each.revision == one.publications[0].revision:
        return str(each.revision)
    return f'<a href="radius?from={one.begin}&amp;to={one.end}&amp;revision={each.revision}">{each.revision}</a>'


def radius(found: Radius) -> str:
    """What one publication changed, as a page."""
    before, after = found.answers
    rows = [
        _row([_cell(one.query, 80), f"{one.changed:,}", f"{one.new:,}", f"{one.gone:,}"])
        for one in sorted(found.queries, key=lambda one: (-one.changed - one.new - one.gone, one.query))
    ]
    changed, new, gone = (
        sum(one.changed for one in found.queries),
        sum(one.new for one in found.queries),
        sum(one.gone for one in found.queries),
    )
    told = (
        f"<p>Of {before:,} answers <b>{changed:,}</b> changed, <b>{new:,}</b> came and <b>{gone:,}</b> went; "
        f"{after:,} stand since. The others are as they were.</p>"
    )
    names = ("query", "changed", "new", "gone")
    table = _grid((55, 15, 15, 15), names, rows, len(rows), "query", "") if rows else ""
    head = _head(
        "What a revision changed", {"interval": interval(found.begin, found.end), "revision": str(found.revision)}
    )
    note = f"{count(len(rows), 'query')} of which readers see other answers since"
    return document(
        "Sharing plan: revision", [menu("operations"), head, _card("radius", "Blast radius", note, told + table)]
    )


def _quarantine(found: Operations) -> str:
    if not found.quarantined:
        return _card("quarantine", "Quarantine", "", _quiet("No row was left out."))
    rows = [
        _row(
            [
                _cell(one.stream, 40) or "<i>all streams</i>",
                escape(one.code),
                f"{one.rows:,}",
                f"{one.runs:,}",
                moment(one.last),
                _cell(one.detail, 110),
            ]
        )
        for one in found.quarantined
    ]
    names = ("stream", "code", "rows", "runs", "last", "why")
    table = _grid((18, 10, 12, 8, 16, 36), names, rows, len(rows), "reason", "texts quarantined")
    note = "rows that were left out, counted again by each run that met them"
    return _card("quarantine", "Quarantine", note, table)


def _savings(found: Operations) -> str:
    if not found.savings:
        return _card("savings", "Savings", "", _quiet("No published run was measured yet."))
    largest = max(one.unshared for one in found.savings)
    rows = [
        _row(
            [
                _cell(one.owner, 40) or "<i>no owner</i>",
                f"{one.queries:,}",
                f"{one.unshared:,.1f}",
                f"{one.part:,.1f}",
                f'<div class="part"><div class="track">{bar(one.part, largest, "own")}</div></div>',
                _percent(one),
            ]
        )
        for one in found.savings
    ]
    part, unshared = sum(one.part for one in found.savings), sum(one.unshared for one in found.savings)
    total = Saving("", 0, part, unshared)
    runs = sum(run.status == "published" and run.measured is not None for run in found.runs) - found.unpriced
    told = (
        f"<p>Over the {count(runs, 'published run')} shown: <b>{part:,.1f} CPU-s</b> measured, about "
        f"<b>{unshared:,.1f}</b> unshared (<b>{_percent(total)}</b>).</p>"
    )
    if found.unpriced:
        told += _quiet(f"{count(found.unpriced, 'run')} of plans that are not stored any more are left out.")
    names = ("owner", "queries", "unshared CPU-s", "part CPU-s", "", "saved")
    table = _grid((28, 10, 16, 14, 20, 12), names, rows, len(rows), "owner", "owners")
    meaning = (
        "A run’s measured CPU seconds are divided among owners as its plan’s cost is. Part: measured × here / cost, "
        "unshared: measured × alone / cost. Here: of each of the owner’s queries the fragments that its windows "
        "combine, its answers, and an equal part of the rest of its tree’s cost; alone: the cost of the query in a "
        "tree of its own; cost: the plan’s; all by the plan’s cost model. Parts add up to what was measured. Unshared "
        "is what the model makes of it, not a measurement: heddle compare runs queries unshared."
    )
    return _card("savings", "Savings per owner", "CPU seconds over the runs shown", told + table + _quiet(meaning))


def _percent(one: Saving) -> str:
    if not one.unshared:
        return "0 %"
    percent = (1 - one.part / one.unshared) * 100
    # neither side of nothing at all is "-0"
    return f"{'−' if percent > 0 else '+'}{abs(percent):.0f} %" if abs(percent) >= 0.5 else "0 %"


# ------------------------------------------------------------------------------------------- history
def history(
    versions: Sequence[Version], total: int, newest: int, shown: int | None, change: PlanDiff | None, now: datetime
) -> str:
    """The versions of the plan, newest first, and what changed from the one before ``shown`` to it.

    ``total``: how many there are; ``change`` None: nothing is stored before ``shown``, or nothing is shown.
    """
    rows = []
    for one in versions:
        mark = '<b class="good">in force</b>' if one.number == newest else ""
        current = ' aria-current="true"' if one.number == shown else ""
        rows.append(
            _row(
                [
                    f'<a href="./?version={one.number}">{one.number}</a> {mark}',
                    f'{moment(one.made)}<small class="under">{_cell(one.by, 60)}</small>',
                    _cell(one.because, 60),
                    f'{escape(one.algorithm)}<small class="under">{escape(one.cost_model)}</small>',
                    f"{one.queries:,}",
                    f"{one.trees:,}",
                    figure(one.cost),
                    figure(one.no_share),
                    f'<a href="history?version={one.number}#change"{current}>changes</a>',
                ],
                "chosen" if one.number == shown else "",
            )
        )
    names = ("version", "made (UTC), by", "because", "search", "queries", "trees", "cost/s", "No Share", "")
    body = [menu("history"), _head("History of the plan", {"as of": f"{moment(now)} UTC", "versions": f"{total:,}"})]
    if not rows:
        body.append(_card("versions", "Versions", "", _quiet("No plan yet. Trigger the DAG refresh_sharing_plan.")))
    else:
        body.append(
            _card(
                "versions",
                "Versions",
                "newest first",
                _grid((10, 20, 20, 12, 8, 7, 8, 8, 7), names, rows, total, "version", "texts history"),
            )
        )
    if shown is not None:
        body.append(_change(shown, change))
    return document("Sharing plan: history", body)


def _change(shown: int, change: PlanDiff | None) -> str:
    title = f"What version {shown} changed" if shown > 1 else "Version 1 was the first"
    if change is None:
        return _card("change", title, "", _quiet("There is no version before it."))
    before = f"{change.cost[0]:.6g} before, {change.cost[1]:.6g} after" if shown > 1 else ""
    return _card("change", title, before, difference(change.lines()))


def difference(lines: Sequence[str]) -> str:
    """The lines of a difference between plans, long ones folded."""

    def drawn(part: Sequence[str]) -> str:
        kinds = {"+": "plus", "-": "minus", "~": "other", ">": "other"}
        return "".join(f'<li class="{kinds.get(line[:1], "")}">{escape(cut(line, 400))}</li>' for line in part)

    found = f'<ul class="diff">{drawn(lines[:CHANGES_SHOWN])}</ul>'
    if len(lines) > CHANGES_SHOWN:
        rest = lines[CHANGES_SHOWN : CHANGES_SHOWN + CHANGES_FOLDED]
        left = len(lines) - CHANGES_SHOWN - len(rest)
        told = _quiet(f"Left out: {count(left, 'line')}.") if left else ""
        found += (
            f"<details><summary>{count(len(lines) - CHANGES_SHOWN, 'more line')}</summary>"
            f'<ul class="diff">{drawn(rest)}</ul>{told}</details>'
        )
    return found
