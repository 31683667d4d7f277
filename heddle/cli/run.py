"""``heddle run``, ``tick``, ``backfill``, ``repair``, ``compare`` and ``calibrate``."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.table import Table

from heddle.cli import changes, terminal
from heddle.cli.alerts import send_after
from heddle.cli.changes import plan_changes, print_changes
from heddle.cli.inputs import existing_warehouse, planned_workload, planning_request, stored_plan
from heddle.cli.intervals import requested_interval
from heddle.cli.options import (
    Algorithm,
    AlgorithmOption,
    AsJson,
    Begin,
    ChecksOption,
    CostModel,
    CostOption,
    DryRun,
    End,
    EngineOption,
    Exactly,
    Files,
    Rates,
    RunBegin,
    RunEnd,
    Streams,
    WarehouseOption,
    Yes,
)
from heddle.cli.output import (
    interval_text,
    json_text,
    print_diagnostics,
    print_json,
    print_rows,
    telling_errors,
    write_text,
)
from heddle.cli.progress import stages
from heddle.cli.root import app
from heddle.cli.sessions import check_engine, live_session, publish_interval, publish_intervals, spark_session
from heddle.cli.tables import follow_tables
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from optimizer.plan.definition import SharingPlan
    from spark_jobs.audit.unshared.comparison import Comparison
    from spark_jobs.pipeline.costs.fit import Fit
    from spark_jobs.pipeline.planning.requested import PlanningRequest
    from spark_jobs.pipeline.run.break_even import BreakEven
    from spark_jobs.pipeline.run.estimate import RunEstimate
    from spark_jobs.pipeline.run.history import Outdated
    from spark_jobs.store.warehouse.publish_log import LogRow
    from spark_jobs.store.warehouse.warehouse import Warehouse


@app.command(
    epilog="Example: heddle run q.sql --streams streams.yaml --warehouse house --from 2013-07-01 --to 2013-07-02"
)
def run(
    context: typer.Context,
    files: Files,
    streams: Streams,
    warehouse: WarehouseOption,
    begin: RunBegin = None,
    end: RunEnd = None,
    rate: Rates = None,
    algorithm: AlgorithmOption = Algorithm.best,
    cost_model: CostOption = CostModel.paper,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Read the events again, whatever is stored, and publish again.")
    ] = False,
    exactly: Exactly = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove registered queries that came from FILES and are no longer there."),
    ] = False,
    checks: ChecksOption = None,
    engine: EngineOption = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Publish an interval after the newest event as idle.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Register queries, and compute, check and publish an interval. The queries of FILES are added to the
    registered ones, or replace those with the same names. The interval has every window that ends after --from and
    not after --to. Running it again changes nothing."""
    with telling_errors():
        first, last = requested_interval(context, files, streams, begin, end)
        request = planning_request(files, streams, rate, algorithm, cost_model)
        stored = _stored_request(replace(request, exactly=exactly, prune=prune, reuse=True), warehouse, yes, engine)
        show_stored_request(stored)
        _show_price(stored, first, last, checks)
        opened, version = stored.warehouse, stored.version
        record = publish_interval(
            opened, version, first, last, recompute, checks=checks, engine=engine, allow_empty=allow_empty
        )
    raise typer.Exit(1 if show_run(record, as_json, {"changes": stored.changes}) or stored.has_failed else 0)


class _StoredRequest(NamedTuple):
    """A plan of files that was stored: its version, whether that is new, what it changes of what was registered,
    whether something in the files was not usable, and whether the plan ``holds`` without being made again."""

    warehouse: Warehouse
    plan: SharingPlan
    version: int
    is_new: bool
    changes: list[str]
    has_failed: bool
    holds: bool = False


def _stored_request(request: PlanningRequest, folder: str, yes: bool, engine: str | None = None) -> _StoredRequest:
    """Plan some files and store the plan, once somebody has agreed to what it removes; again if others were first. If
    nothing that decides the plan has changed, nothing is read or stored. Raises what the ``engine`` lacks before."""
    from spark_jobs.pipeline.planning.kept_plan import fingerprint, note_plan, unchanged_plan
    from spark_jobs.store.warehouse.warehouse import Warehouse

    check_engine(engine)
    existing = Warehouse.existing(folder)
    unchanged = None if existing is None else unchanged_plan(existing, request)
    if existing is not None and unchanged is not None:
        plan, version = unchanged
        return _StoredRequest(existing, plan, version, False, [], False, True)
    from spark_jobs.pipeline.planning.publication import publish_plan

    agreed: set[str] = set()
    for attempt in range(1, ATTEMPTS + 1):
        # a command that fails before it has something to store makes no warehouse
        existing, before = Warehouse.existing(folder), fingerprint(request)
        planned = planned_workload(request, existing)
        plan, registration, sources = planned.plan, planned.registration, planned.sources
        changes.confirm_removal([name for name in registration.removed if name not in agreed], yes)
        agreed |= set(registration.removed)
        warehouse = existing if existing is not None else Warehouse.open(folder)
        changed = plan_changes(warehouse, registration, plan)
        # files that somebody wrote meanwhile are not those that were read
        digest = before if sources is not None and before == fingerprint(request) else None
        noted = partial(note_plan, warehouse, plan, planned.searched, request=digest, sources=sources)
        try:
            version, is_new = publish_plan(warehouse, plan, "heddle run", request=registration, noted=noted)
            return _StoredRequest(warehouse, plan, version, is_new, changed, planned.has_failed, planned.holds)
        except HeddleError as error:
            # somebody else registered, paused or removed queries meanwhile
            if error.diagnostic.code != "HDL-522" or attempt == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def show_stored_request(stored: _StoredRequest) -> None:
    """Print the changes of a stored plan, its version, and its number of trees."""
    print_changes(stored.changes)
    trees = number_of(len(stored.plan.trees), "tree")
    state = " (new)" if stored.is_new else " still holds" if stored.holds else ""
    terminal.errors.print(f"plan version {stored.version}{state}: {trees}", highlight=False)


ATTEMPTS = 3
"""Number of times that a plan is made and others overtake it, before that is reported."""


@app.command(
    epilog="Examples: heddle tick --warehouse var/warehouse   |   heddle tick --warehouse house --at 2013-01-05T12:00"
)
def tick(
    warehouse: WarehouseOption,
    at: Annotated[
        str | None, typer.Option("--at", help="The clock (UTC). Default: now.", metavar="INSTANT", show_default=False)
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", help="Where the first tick begins. Default: a day before the clock.", show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on answering each refresh as it falls due, until --until or Ctrl-C."),
    ] = False,
    until: Annotated[
        str | None,
        typer.Option("--until", help="When --follow ends (UTC).", metavar="INSTANT", show_default=False),
    ] = None,
    checks: ChecksOption = None,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Answer what is due now. It follows the stored plan's schedule, from where the last tick ended, as the DAG
    aggregate_windows does. Exit 0 also if nothing is due. With --follow it continues in one process and prints a
    line (or JSON object) for each refresh."""
    if (until is not None and not follow) or (follow and at is not None):
        raise typer.BadParameter("--until is for --follow, which goes by the clock: no --at")
    first, last = _instant(begin), _instant(until)
    if follow:
        raise typer.Exit(_follow(warehouse, first, last, checks, engine, as_json))
    raise typer.Exit(_tick(warehouse, _instant(at), first, checks, engine, as_json))


def _instant(text: str | None) -> int | None:
    from spark_jobs.streams.sources.decoding import parse_instant

    with telling_errors():
        return parse_instant(text) if text else None


def _tick(
    warehouse: str, at: int | None, begin: int | None, checks: str | None, engine: str | None, as_json: bool
) -> int:
    """Answer what is due at a clock; the exit code."""
    from spark_jobs.pipeline.planning.live_runs import due

    with telling_errors():
        clock = at if at is not None else time.time_ns() // 1000
        opened = existing_warehouse(warehouse)
        stored_plan(warehouse)
        run = due(opened, clock, begin)
        if run is None:
            follow_tables(opened)
            send_after(opened, clock)
            show_nothing_due(clock, as_json)
            return 0
        record = publish_interval(
            opened, run.plan_version, run.begin, run.end, False, clock, run.late, checks, engine=engine
        )
    return 1 if show_run(record, as_json) else 0


def _follow(
    warehouse: str, begin: int | None, until: int | None, checks: str | None, engine: str | None, as_json: bool
) -> int:
    """Answer refreshes until a clock, or the first Ctrl-C; the exit code: 1 if something in the last one failed."""
    failed = False
    with telling_errors():
        opened = existing_warehouse(warehouse)
        stored_plan(warehouse)
        with live_session(opened, begin, until, checks, engine) as session:
            for outcome in session.refreshes():
                send_after(opened)
                if isinstance(outcome, HeddleError):
                    failed = True
                    print_diagnostics([outcome.diagnostic, *outcome.causes])
                    continue
                record = outcome.to_json()
                if as_json:
                    # a line each, so that others can read along
                    print(json.dumps({"format_version": 1} | record), flush=True)
                failed = _has_failed(record) if as_json else show_run(record, False)
    return int(failed)


def show_nothing_due(clock: int, as_json: bool) -> None:
    """That a tick had nothing to do."""
    from optimizer.workload.instants import format_instant

    if as_json:
        print_json({"status": "nothing due", "at": format_instant(clock)})
    else:
        terminal.console.print(f"nothing is due at {format_instant(clock)}", highlight=False)


@app.command(
    epilog="Examples: heddle backfill --warehouse house --from 2013-01-01 --to 2014-01-01 --dry-run   "
    "|   heddle backfill --warehouse house --from 2013-01-01 --to 2014-01-01 --every '30 days'"
)
def backfill(
    warehouse: WarehouseOption,
    begin: Begin,
    end: End,
    every: Annotated[str, typer.Option("--every", help="How much history a run takes.", metavar="DURATION")] = "7 days",
    checks: ChecksOption = None,
    engine: EngineOption = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish history in few large runs, oldest first. It uses the stored plan. Published intervals stay as they
    are, so an interrupted backfill continues where it stopped. Live runs may continue at the same time."""
    with telling_errors():
        opened, (_, version) = existing_warehouse(warehouse), stored_plan(warehouse)
        estimates = _backfill_runs(opened, version, begin, end, every, checks)
        if not as_json:
            show_estimates(estimates)
        missing = [(run.begin, run.end) for run in estimates if not run.published]
        records = [] if dry_run else publish_intervals(opened, version, missing, "backfill", checks, engine)
    if as_json:
        data = {"format_version": 1, "plan_version": version, "runs": [asdict(run) for run in estimates]}
        print_json(data | _records_json(records))
    raise typer.Exit(_finish(records, as_json))


def _backfill_runs(
    warehouse: Warehouse, version: int, begin: str, end: str, every: str, checks: str | None
) -> Sequence[RunEstimate]:
    """The runs of a backfill in order, with what each is about to cost."""
    from optimizer.workload.instants import parse_duration
    from spark_jobs.pipeline.run.history import prices
    from spark_jobs.streams.sources.decoding import parse_instant

    size = parse_duration(every)
    if size <= 0:
        raise HeddleError("HDL-115", "--every is a duration longer than 0", "e.g. --every '7 days'")
    with stages("listing sources"):
        span = parse_instant(begin), parse_instant(end)
        return prices(warehouse, version, *span, time.time_ns() // 1000, size, checks)


def show_estimates(estimates: Sequence[RunEstimate]) -> None:
    """The runs of a backfill as a table, and what they come to."""
    rows = [
        (
            interval_text(run.begin, run.end),
            "yes" if run.published else "no",
            f"{run.events:,}",
            _price([run]),
        )
        for run in estimates
    ]
    print_rows("the runs of this backfill", ("interval", "published", "events to read", "CPU-s"), rows)
    missing = sum(not run.published for run in estimates)
    events = sum(run.events for run in estimates)
    summary = f"{number_of(missing, 'run')}, about {number_of(events, 'event')}; CPU seconds: {_price(estimates)}"
    terminal.console.print(summary, highlight=False)
    if summary.endswith(GUESSED):
        terminal.console.print(GUESSED_MEANS, highlight=False, soft_wrap=True)


GUESSED = " *"

GUESSED_MEANS = "  *: half to twice what is predicted, as long as too few runs were measured here to say it better"


def _price(estimates: Sequence[RunEstimate]) -> str:
    """Between how many CPU seconds some runs are going to take."""
    least, most = sum(run.least for run in estimates), sum(run.most for run in estimates)
    digits = 1 if most < 10 else 0
    seconds = f"{least:.{digits}f} to {most:.{digits}f}" if most else "0"
    return seconds if all(run.published or run.is_measured for run in estimates) else f"{seconds}{GUESSED}"


def _show_price(stored: _StoredRequest, first: int, last: int, checks: str | None) -> None:
    """Print the cost of a run before it starts, on a terminal."""
    if not terminal.errors.is_terminal:
        return
    from spark_jobs.pipeline.run.history import prices

    with stages("listing sources"):
        estimates = prices(stored.warehouse, stored.version, first, last, time.time_ns() // 1000, abs(last), checks)
    events = sum(run.events for run in estimates)
    summary = f"about {number_of(events, 'event')} to read; CPU seconds: {_price(estimates)}"
    terminal.errors.print(summary, highlight=False)
    if summary.endswith(GUESSED):
        terminal.errors.print(GUESSED_MEANS, highlight=False, soft_wrap=True)


@app.command(epilog="Examples: heddle repair --warehouse var/warehouse --dry-run   |   heddle repair --warehouse house")
def repair(
    warehouse: WarehouseOption, engine: EngineOption = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Publish intervals again whose source has changed. It finds late events and added, changed or removed files,
    and publishes new revisions with the stored plan. Needs no JVM to find them."""
    from spark_jobs.pipeline.run.history import outdated
    from spark_jobs.store.warehouse.publish_log import lost_publications

    with telling_errors():
        opened, (_, version) = existing_warehouse(warehouse), stored_plan(warehouse)
        with stages("comparing sources with what was published"):
            lost, stale = lost_publications(opened), outdated(opened, time.time_ns() // 1000)
        if not as_json:
            show_outdated(stale)
        records = _repaired(opened, version, lost, stale, dry_run, engine)
        refused = 0 if records or dry_run else _note_refused(opened, version, as_json)
    if as_json:
        print_json(_repair_json(lost, stale, refused) | _records_json(records))
    raise typer.Exit(_finish(records, as_json))


def _note_refused(warehouse: Warehouse, version: int, as_json: bool) -> int:
    """Record and show the late events of new files that are refused, as no run does; their number."""
    from spark_jobs.pipeline.run.history import note_refused

    refused = note_refused(warehouse, version, time.time_ns() // 1000, "repair")
    if refused and not as_json:
        message = f"{number_of(refused, 'late event')} refused (HDL-411): `heddle quarantine` lists their files"
        terminal.console.print(message, highlight=False)
    return refused


def _repair_json(lost: Sequence[LogRow], stale: Sequence[Outdated], refused: int) -> dict[str, Any]:
    data = {"format_version": 1, "outdated": [asdict(interval) for interval in stale]}
    return data | ({"lost": [row.interval for row in lost]} if lost else {}) | ({"refused": refused} if refused else {})


def _repaired(
    warehouse: Warehouse,
    version: int,
    lost: Sequence[LogRow],
    stale: Sequence[Outdated],
    dry_run: bool,
    engine: str | None,
) -> list[dict[str, Any]]:
    """The records of the runs that publish lost and outdated intervals again."""
    from spark_jobs.store.warehouse.publish_log import lost_commits

    if lost:
        print_diagnostics([lost_commits(lost).diagnostic])
    intervals = sorted({(row.begin, row.end) for row in lost} | {(interval.begin, interval.end) for interval in stale})
    if dry_run:
        return []
    if lost or not intervals:
        # tables that follow results go back with it, before its next version is theirs again
        follow_tables(warehouse)
    if not intervals:
        send_after(warehouse)
    return publish_intervals(warehouse, version, intervals, "repair", engine=engine)


def show_outdated(stale: Sequence[Outdated]) -> None:
    """The published intervals whose sources have changed since, as a table."""
    rows = [
        (
            interval_text(interval.begin, interval.end),
            str(interval.revision),
            *(f"{count:,}" for count in (interval.radius.files, interval.radius.rows, interval.radius.fragments)),
            f"{len(interval.radius.queries):,}",
            f"{interval.radius.windows:,}",
        )
        for interval in stale
    ]
    columns = ("interval", "revision", "files", "late events", "fragments", "queries", "windows")
    if rows:
        print_rows("published of sources that changed", columns, rows)
        declared = [interval for interval in stale if interval.radius.declared]
        if declared:
            names = ", ".join(sorted({name for interval in declared for name in interval.radius.declared}))
            message = f"{number_of(len(declared), 'interval')}: {names} declared otherwise since"
            terminal.console.print(message, highlight=False)
        joined = [interval for interval in stale if interval.radius.dimensions]
        if joined:
            names = ", ".join(sorted({name for interval in joined for name in interval.radius.dimensions}))
            message = f"{number_of(len(joined), 'interval')}: rows of {names} have changed since, or cannot be read"
            terminal.console.print(message, highlight=False)
    else:
        terminal.console.print("everything published is of its sources as they are", highlight=False)


def _records_json(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"records": list(records)} if records else {}


def _finish(records: Sequence[dict[str, Any]], as_json: bool) -> int:
    """Tell what went wrong in some runs and what they changed; the exit code."""
    for record in records if not as_json else ():
        for line in _of_revision(record):
            terminal.console.print(f"{record['begin']} .. {record['end']}: {line}", highlight=False)
    print_diagnostics([Diagnostic(**problem) for record in records for problem in record["diagnostics"]])
    return 1 if any(map(_has_failed, records)) else 0


def _has_failed(record: Mapping[str, Any]) -> bool:
    """Return whether a part of a run's work was not done; it may have warnings."""
    return any(diagnostic["severity"] == "error" for diagnostic in record["diagnostics"])


def _of_revision(record: Mapping[str, Any]) -> list[str]:
    """Lines with the changes of a revision for readers, the queries without answers, and the other answers that were
    rewritten.
    """
    lines = []
    if (readers := record["readers"]) is not None:
        kinds = (("gained", "have answers now"), ("lost", "have none any more"), ("changed", "have others"))
        differences = [
            f"{windows:,} {'window' if windows == 1 else 'windows'} of {queries:,} "
            f"{'query' if queries == 1 else 'queries'} {what}"
            for kind, what in kinds
            for queries, windows in [readers[kind]]
            if windows
        ]
        first = f"for readers: {readers['before']:,} answers before, {readers['after']:,} after"
        same = "for readers: no answers, before and after" if not readers["after"] else f"{first}, all as they were"
        lines.append("; ".join([first, *differences]) if differences else same)
        if readers["fewer"]:
            fewer = [f"{name} ({was:,} -> {now:,})" for name, (was, now) in readers["fewer"].items()]
            lines.append("fewer answers than before: " + _first(fewer))
    if record["empty"]:
        lines.append("no answer in this interval: " + _first(record["empty"]))
    if (again := record["rewritten"]).get("files"):
        much = f"{number_of(again['rows'], 'other answer')} in {number_of(again['files'], 'file')}"
        lines.append(f"written again with what was replaced: {much}, {again['bytes'] / 1e6:.1f} MB")
    return lines


def _first(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f", … {len(names) - most} more" if len(names) > most else "")


def show_run(record: dict[str, Any], as_json: bool, more: Mapping[str, Any] | None = None) -> bool:
    """Print the outcome of a run and its errors; return whether a part of its work was not done. ``more``: additional
    keys of its JSON object.
    """
    if as_json:
        print_json(record | dict(more or {}))
    else:
        _show_record(record)
    print_diagnostics([Diagnostic(**stored) for stored in record["diagnostics"]])
    return _has_failed(record)


def _show_record(record: dict[str, Any]) -> None:
    from spark_jobs.engine.workers import Job

    text = {"published": "published", "unchanged": "nothing changed since"}.get(record["status"], record["status"])
    terminal.console.print(
        f"{text} revision {record['revision']} of {record['begin']} .. {record['end']}: "
        f"{number_of(record['answers'], 'answer')} to {number_of(record['queries'], 'query')}",
        highlight=False,
    )
    if record["status"] == "published":
        spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in record["cpu_seconds"].items())
        terminal.console.print(f"  events scanned {record['rows_scanned']:,}; CPU seconds: {spent}", highlight=False)
        terminal.console.print(f"  checks: {_checks_told(record)}", highlight=False)
        terminal.console.print(f"  computed on {record['engine']}: {record['engine_because']}", highlight=False)
        for job in record["jobs"]:
            terminal.console.print(f"    {Job(**job).line}", highlight=False)
    for line in _of_revision(record):
        terminal.console.print(f"  {line}", highlight=False, soft_wrap=True)
    if record["refreshes"]:
        first, *refreshes = record["refreshes"]
        text = f"  refreshes: {number_of(first['queries'], 'query')} at {first['at']}"
        terminal.console.print(
            text + (f", and at {number_of(len(refreshes), 'more instant')}" if refreshes else ""), highlight=False
        )
    if record["late"]:
        text = f"  this run came late: {number_of(len(record['lateness']), 'query')} beyond the bound"
        terminal.console.print(text + "; it covers all refreshes since the run before", highlight=False)
    if record["radius"] and (record["radius"]["files"] or record["radius"]["windows"]):
        radius = record["radius"]
        counts = {"file": radius["files"], "late event": radius["rows"], "fragment": radius["fragments"]}
        counts |= {"query": len(radius["queries"]), "window": radius["windows"]}
        text = ", ".join(number_of(number, noun) for noun, number in counts.items())
        terminal.console.print(f"  of the sources changed since the revision before: {text}", highlight=False)
        if record["narrow"]:
            terminal.console.print(
                "  only answers of these windows that differ were published: all others keep their revision",
                highlight=False,
            )
    for stream, events in record["repeated"].items():
        terminal.console.print(
            f"  {stream}: {number_of(events, 'event')} left out: they had come before", highlight=False
        )
    for stream, events in record["refused"].items():
        text = f"{number_of(events, 'event')} left out, later than is allowed: `heddle quarantine`"
        terminal.console.print(f"  {stream}: {text}", highlight=False)
    for stream, at in record["withheld"].items():
        terminal.console.print(f"  {stream}: windows that end after its watermark {at} come later", highlight=False)


def _checks_told(record: Mapping[str, Any]) -> str:
    passed = f"{sum(check['success'] for check in record['checks'])} of {len(record['checks'])} passed"
    return {"none": "none, as was asked for", "sample": f"{passed}, of a sample alone"}.get(record["checked"], passed)


# ------------------------------------------------------------------------------------------ compare
@app.command(epilog="Example: heddle compare --warehouse var/warehouse --from 2013-07-01 --to 2013-07-02 --sample 5")
def compare(
    warehouse: WarehouseOption,
    begin: Begin,
    end: End,
    sample: Annotated[int, typer.Option("--sample", min=1, help="How many queries to run unshared.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare the shared run with one Spark job for each query. It runs a sample of the queries unshared."""
    with telling_errors():
        comparison = _compared(warehouse, begin, end, sample)
        break_even = _break_even(warehouse, comparison)
    if as_json:
        print_json(comparison.to_json() | {"break_even": break_even.to_json()})
    else:
        show_comparison(comparison, f"{begin} .. {end}")
        terminal.console.print(break_even.sentence(), highlight=False, soft_wrap=True)


def _break_even(warehouse: str, comparison: Comparison) -> BreakEven:
    """Number of queries from which on sharing wins, by a comparison."""
    from spark_jobs.pipeline.costs.learned import known_costs
    from spark_jobs.pipeline.run.break_even import of_comparison

    costs, shared = known_costs(existing_warehouse(warehouse)), comparison.shared
    return of_comparison(costs, shared.features, comparison.shared_cpu, comparison.queries, comparison.samples)


def _compared(warehouse: str, begin: str, end: str, sample: int) -> Comparison:
    from spark_jobs.audit.unshared.comparison import Comparison, keep_comparison, measured_run
    from spark_jobs.audit.unshared.measure import measure
    from spark_jobs.streams.sources.decoding import parse_instant

    opened, (plan, _) = existing_warehouse(warehouse), stored_plan(warehouse)
    first, last = parse_instant(begin), parse_instant(end)
    shared = measured_run(opened, first, last)
    # long plain jobs are cheaper under the JVM's optimising compiler, short ones under its quick one
    with spark_session("heddle compare", quick=shared.rows_scanned < 1_000_000) as (spark, report):
        samples = measure(spark, plan, first, last, sample, report=report)
    comparison = Comparison(len(plan.workload.queries), tuple(samples), shared)
    try:
        keep_comparison(opened, comparison)
    except HeddleError as error:
        # what was measured is shown all the same
        print_diagnostics([replace(error.diagnostic, severity="warning")])
    return comparison


def show_comparison(comparison: Comparison, interval: str) -> None:
    """The shared run, the sample, and what all queries would cost unshared, as a table."""
    table = Table(title=f"{interval}, {number_of(comparison.queries, 'query')}", title_justify="left")
    for name in ("", "rows scanned", "CPU seconds"):
        table.add_column(name, justify="left" if not name else "right")
    scanned = f"{comparison.shared.rows_scanned:,}"
    table.add_row("shared, with checks and publication", scanned, f"{comparison.shared_cpu:.1f}")
    for sample in comparison.samples:
        table.add_row(f"unshared: {sample['query']}", f"{sample['rows_scanned']:,}", f"{sample['cpu_seconds']:.1f}")
    table.add_row(
        f"unshared, all {comparison.queries} (extrapolated from {len(comparison.samples)})",
        f"{comparison.extrapolated('rows_scanned'):,.0f}",
        f"{comparison.extrapolated('cpu_seconds'):.1f}",
    )
    terminal.console.print(table)


# ---------------------------------------------------------------------------------------- calibrate
@app.command(
    epilog="Examples: heddle calibrate --output var/warehouse/coefficients.json   "
    "|   heddle calibrate --warehouse var/warehouse"
)
def calibrate(
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", help="Fit to what the runs of this warehouse recorded, and store the costs there."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller measurements, so rougher costs.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write the costs to this file; a warehouse reads its coefficients.json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a run's steps cost on this machine. The cost model `measured` and its predictions use the
    result."""
    if warehouse is not None and quick:
        raise typer.BadParameter("--quick is for measuring; with --warehouse nothing is measured")
    with telling_errors():
        costs = _fitted(warehouse) if warehouse is not None else _measured(quick)
    if output is not None:
        write_text(output, json_text(costs.to_json()))
    if as_json:
        print_json(costs.to_json())
    elif warehouse is not None or output is None:
        _show_costs(costs)


def _fitted(warehouse: str) -> Fit:
    """The costs that explain the runs of a warehouse, stored there."""
    from spark_jobs.pipeline.costs.fit import FILE, fit, observations_of, store

    opened = existing_warehouse(warehouse)
    seen = observations_of(opened)
    if not seen:
        raise HeddleError("HDL-515", "no run of this warehouse recorded what it took", "run it first")
    costs = fit(seen)
    store(opened.place / FILE, costs)
    return costs


def _measured(quick: bool) -> Fit:
    """The costs of this machine, measured now."""
    import tempfile

    from spark_jobs.pipeline.run.calibrate import calibrate

    with tempfile.TemporaryDirectory() as place, spark_session("heddle calibrate") as (spark, report):
        return calibrate(spark, Path(place), quick, report=report)


def _show_costs(fit: Fit) -> None:
    from spark_jobs.pipeline.costs.measurements import FEATURES

    table = Table(title=f"CPU time a unit, from {number_of(len(fit.residuals), 'run')}", title_justify="left")
    for name, justify in (("", "left"), ("CPU-s", "right"), ("a unit is", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for feature, cost in fit.costs.items():
        table.add_row(feature, f"{cost:.3g}", FEATURES[feature])
    terminal.console.print(table)
    if fit.error is not None:
        terminal.console.print(f"half of the runs are explained to within {fit.error:.0%}", highlight=False)
