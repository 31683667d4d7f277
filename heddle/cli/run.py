"""``heddle run``, ``tick``, ``backfill``, ``repair``, ``compare`` and ``calibrate``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from heddle.cli import changes, terminal
from heddle.cli.changes import plan_changes, print_changes
from heddle.cli.inputs import build_requested_plan, stored_plan
from heddle.cli.options import (
    Algorithm,
    AlgorithmOption,
    AsJson,
    Begin,
    CostModel,
    CostOption,
    DryRun,
    End,
    Exactly,
    Files,
    House,
    Rates,
    Streams,
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
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic, HeddleError, printable
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.costs.fit import Fit
    from spark_jobs.sources.ledger import Arrival
    from spark_jobs.warehouse.warehouse import Warehouse


@app.command(
    epilog="Example: heddle run q.sql --streams streams.yaml --warehouse house --from 2013-07-01 --to 2013-07-02"
)
def run(
    files: Files,
    streams: Streams,
    warehouse: House,
    begin: Begin,
    end: End,
    rate: Rates = None,
    algorithm: AlgorithmOption = Algorithm.best,
    cost_model: CostOption = CostModel.paper,
    recompute: Annotated[bool, typer.Option("--recompute", help="Publish again even if nothing changed.")] = False,
    exactly: Exactly = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Register the queries of FILES beside those that are registered, or in place of those of the same names; plan all,
    compute, check and publish every window that ends after --from and not after --to. Running it again changes
    nothing."""
    from spark_jobs.planning.publication import publish_plan
    from spark_jobs.sources.decoding import parse_instant
    from spark_jobs.warehouse.warehouse import Warehouse

    agreed: set[str] = set()
    with telling_errors():
        first, last = parse_instant(begin), parse_instant(end)
        if last <= first:
            raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
        for attempt in range(1, ATTEMPTS + 1):
            # a command that fails before it has something to store makes no warehouse
            known = Warehouse.existing(warehouse)
            made, failed, asked = build_requested_plan(
                files, streams, rate or [], algorithm, cost_model, known, exactly=exactly
            )
            changes.confirm_removal([name for name in asked.removed if name not in agreed], yes)
            agreed |= set(asked.removed)
            house = known if known is not None else Warehouse.open(warehouse)
            changed = plan_changes(house, asked, made)
            try:
                version, new = publish_plan(house, made, "heddle run", request=asked)
                break
            except HeddleError as error:
                # somebody else registered, paused or removed queries meanwhile
                if error.diagnostic.code != "HDL-522" or attempt == ATTEMPTS:
                    raise
        print_changes(changed)
        terminal.errors.print(
            f"plan version {version}{' (new)' if new else ''}: {number_of(len(made.trees), 'tree')}", highlight=False
        )
        record = _run(house, version, first, last, recompute)
    if as_json:
        print_json(record | {"changes": changed})
    else:
        _show_record(record)
    print_diagnostics([Diagnostic(**found) for found in record["diagnostics"]])
    raise typer.Exit(1 if failed or _has_failed(record) else 0)


ATTEMPTS = 3
"""How often a plan is made that others overtake, before that is told."""


@app.command(
    epilog="Examples: heddle tick --warehouse var/warehouse   |   heddle tick --warehouse house --at 2013-01-05T12:00"
)
def tick(
    warehouse: House,
    at: Annotated[
        str | None, typer.Option("--at", help="The clock (UTC). Default: now.", metavar="INSTANT", show_default=False)
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", help="Where the first tick begins. Default: a day before the clock.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer what is due now by the stored plan's schedule, going on where the last tick ended; what the DAG
    aggregate_windows does when it fires. Exit 0 also if nothing is due."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.planning.live_runs import due
    from spark_jobs.sources.decoding import parse_instant
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        clock = parse_instant(at) if at is not None else time.time_ns() // 1000
        house = Warehouse.open(warehouse, create=False)
        stored_plan(warehouse)
        found = due(house, clock, parse_instant(begin) if begin else None)
        if found is None:
            if as_json:
                print_json({"status": "nothing due", "at": format_instant(clock)})
            else:
                terminal.console.print(f"nothing is due at {format_instant(clock)}", highlight=False)
            return
        record = _run(house, found.plan_version, found.begin, found.end, False, clock, found.late)
    if as_json:
        print_json(record)
    else:
        _show_record(record)
    print_diagnostics([Diagnostic(**problem) for problem in record["diagnostics"]])
    raise typer.Exit(1 if _has_failed(record) else 0)


@app.command(
    epilog="Examples: heddle backfill --warehouse house --from 2013-01-01 --to 2014-01-01 --dry-run   "
    "|   heddle backfill --warehouse house --from 2013-01-01 --to 2014-01-01 --every '30 days'"
)
def backfill(
    warehouse: House,
    begin: Begin,
    end: End,
    every: Annotated[str, typer.Option("--every", help="How much history a run takes.", metavar="DURATION")] = "7 days",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish history by the stored plan, in few large runs, oldest first; what is published already is left as it is,
    so a backfill that was cut off goes on where it was. Live runs may go on beside it."""
    from optimizer.workload.instants import parse_duration
    from spark_jobs.run.history import prices
    from spark_jobs.sources.decoding import parse_instant
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        house = Warehouse.open(warehouse, create=False)
        _, version = stored_plan(warehouse)
        size = parse_duration(every)
        if size <= 0:
            raise HeddleError("HDL-115", "--every is a duration longer than 0", "e.g. --every '7 days'")
        with terminal.errors.status("listing sources"):
            found = prices(house, version, parse_instant(begin), parse_instant(end), time.time_ns() // 1000, size)
        wanted = [(one.begin, one.end) for one in found if not one.published]
        told = [
            [
                interval_text(one.begin, one.end),
                "yes" if one.published else "no",
                f"{one.events:,}",
                f"{one.cpu_seconds:.0f}",
            ]
            for one in found
        ]
        if not as_json:
            print_rows("the runs of this backfill", ("interval", "published", "events to read", "CPU-s"), told)
            total = sum(one.events for one in found), sum(one.cpu_seconds for one in found)
            terminal.console.print(
                f"{number_of(len(wanted), 'run')}, about {number_of(total[0], 'event')} and {total[1]:.0f} CPU-s",
                highlight=False,
            )
        records = [] if dry_run or not wanted else _runs(house, version, wanted, "backfill")
    if as_json:
        print_json(
            {"format_version": 1, "plan_version": version, "runs": [asdict(one) for one in found]} | _ran(records)
        )
    raise typer.Exit(_finish(records, as_json))


@app.command(epilog="Examples: heddle repair --warehouse var/warehouse --dry-run   |   heddle repair --warehouse house")
def repair(warehouse: House, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Find the published intervals whose source has changed since (late events, files that came or went) and publish
    them again, as new revisions, by the stored plan. Needs no JVM to find them."""
    from spark_jobs.run.history import outdated
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        house = Warehouse.open(warehouse, create=False)
        _, version = stored_plan(warehouse)
        with terminal.errors.status("comparing sources with what was published"):
            found = outdated(house, time.time_ns() // 1000)
        if not as_json:
            told = [
                [
                    interval_text(one.begin, one.end),
                    str(one.revision),
                    *(f"{count:,}" for count in (one.radius.files, one.radius.rows, one.radius.fragments)),
                    f"{len(one.radius.queries):,}",
                    f"{one.radius.windows:,}",
                ]
                for one in found
            ]
            columns = ("interval", "revision", "files", "late events", "fragments", "queries", "windows")
            if told:
                print_rows("published of sources that changed", columns, told)
            else:
                terminal.console.print("everything published is of its sources as they are", highlight=False)
        spans = [(one.begin, one.end) for one in found]
        records = [] if dry_run or not spans else _runs(house, version, spans, "repair")
    if as_json:
        print_json({"format_version": 1, "outdated": [asdict(one) for one in found]} | _ran(records))
    raise typer.Exit(_finish(records, as_json))


def arrival_row(arrival: Arrival) -> dict[str, Any]:
    """A file of the ledger for programs; its stamps are the ledger's own."""
    return {name: value for name, value in asdict(arrival).items() if name != "stamps"}


def _ran(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"records": list(records)} if records else {}


def _finish(records: Sequence[dict[str, Any]], as_json: bool) -> int:
    """Tell what went wrong in some runs and what they changed; the exit code."""
    for record in records if not as_json else ():
        for line in _of_readers(record):
            terminal.console.print(f"{record['begin']} .. {record['end']}: {line}", highlight=False)
    print_diagnostics([Diagnostic(**problem) for record in records for problem in record["diagnostics"]])
    return 1 if any(map(_has_failed, records)) else 0


def _has_failed(record: Mapping[str, Any]) -> bool:
    """Whether something was not done that was asked of a run; it may have warnings."""
    return any(found["severity"] == "error" for found in record["diagnostics"])


def _of_readers(record: Mapping[str, Any]) -> list[str]:
    """What a run's revision changed for readers, and which queries have no answers, in lines."""
    lines = []
    if (found := record["readers"]) is not None:
        kinds = (("gained", "have answers now"), ("lost", "have none any more"), ("changed", "have others"))
        told = [
            f"{windows:,} {'window' if windows == 1 else 'windows'} of {queries:,} "
            f"{'query' if queries == 1 else 'queries'} {what}"
            for kind, what in kinds
            for queries, windows in [found[kind]]
            if windows
        ]
        first = f"for readers: {found['before']:,} answers before, {found['after']:,} after"
        same = "for readers: no answers, before and after" if not found["after"] else f"{first}, all as they were"
        lines.append("; ".join([first, *told]) if told else same)
        if found["fewer"]:
            fewer = [f"{name} ({was:,} -> {now:,})" for name, (was, now) in found["fewer"].items()]
            lines.append("fewer answers than before: " + _first(fewer))
    if record["empty"]:
        lines.append("no answer in this interval: " + _first(record["empty"]))
    return lines


def _first(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f", … {len(names) - most} more" if len(names) > most else "")


def _runs(house: Warehouse, version: int, spans: Sequence[tuple[int, int]], kind: str) -> list[dict[str, Any]]:
    """Several intervals in one session, with a progress bar; what was published stays if one fails."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from spark_jobs.run.interval import run as run_interval
    from spark_jobs.session.session import start_session

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    records = []
    with Progress(*columns, console=terminal.errors) as bar:
        line = bar.add_task("starting Spark", total=len(spans))
        spark = start_session(f"heddle {kind}")
        try:
            for begin, end in spans:
                bar.update(line, description=interval_text(begin, end))
                run_id = f"{kind}/{interval_text(begin, end)}"
                records.append(run_interval(spark, house, version, begin, end, run_id).to_json())
                bar.advance(line)
        finally:
            spark.stop()
    return records


def _run(
    house: Warehouse,
    version: int,
    begin: int,
    end: int,
    recompute: bool,
    live_at: int | None = None,
    late: bool = False,
) -> dict[str, Any]:
    """One interval in a session of its own; ``live_at``: the clock of a live run."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.run.interval import run as run_interval
    from spark_jobs.session.session import start_session

    run_id = f"cli/{format_instant(begin)}/{format_instant(end)}"
    with terminal.errors.status("starting Spark") as status:
        spark = start_session("heddle run")
        try:
            record = run_interval(
                spark,
                house,
                version,
                begin,
                end,
                run_id,
                recompute=recompute,
                as_of=live_at,
                live=live_at is not None,
                late=late,
                report=lambda line: status.update(Text(printable(line))),
            )
        finally:
            spark.stop()
    return record.to_json()


def _show_record(record: dict[str, Any]) -> None:
    told = {"published": "published", "unchanged": "nothing changed since"}.get(record["status"], record["status"])
    terminal.console.print(
        f"{told} revision {record['revision']} of {record['begin']} .. {record['end']}: "
        f"{number_of(record['answers'], 'answer')} to {number_of(record['queries'], 'query')}",
        highlight=False,
    )
    if record["status"] == "published":
        spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in record["cpu_seconds"].items())
        terminal.console.print(f"  events scanned {record['rows_scanned']:,}; CPU seconds: {spent}", highlight=False)
        passed = sum(check["success"] for check in record["checks"])
        terminal.console.print(f"  checks: {passed} of {len(record['checks'])} passed", highlight=False)
    for line in _of_readers(record):
        terminal.console.print(f"  {line}", highlight=False, soft_wrap=True)
    if record["refreshes"]:
        first, *others = record["refreshes"]
        told = f"  refreshes: {number_of(first['queries'], 'query')} at {first['at']}"
        terminal.console.print(
            told + (f", and at {number_of(len(others), 'more instant')}" if others else ""), highlight=False
        )
    if record["late"]:
        told = f"  this run came late: {number_of(len(record['lateness']), 'query')} beyond the bound"
        terminal.console.print(told + "; it stands for all refreshes since the run before", highlight=False)
    if record["radius"] and (record["radius"]["files"] or record["radius"]["windows"]):
        found = record["radius"]
        counts = {"file": found["files"], "late event": found["rows"], "fragment": found["fragments"]}
        counts |= {"query": len(found["queries"]), "window": found["windows"]}
        told = ", ".join(number_of(number, noun) for noun, number in counts.items())
        terminal.console.print(f"  of the sources changed since the revision before: {told}", highlight=False)
        if record["narrow"]:
            terminal.console.print(
                "  only these windows were published again: the others keep their revision", highlight=False
            )
    for stream, events in record["repeated"].items():
        terminal.console.print(
            f"  {stream}: {number_of(events, 'event')} left out: they had come before", highlight=False
        )
    for stream, events in record["refused"].items():
        told = f"{number_of(events, 'event')} left out, later than is allowed: `heddle quarantine`"
        terminal.console.print(f"  {stream}: {told}", highlight=False)
    for stream, at in record["withheld"].items():
        terminal.console.print(f"  {stream}: windows that end after its watermark {at} come later", highlight=False)


# ------------------------------------------------------------------------------------------ compare
@app.command(epilog="Example: heddle compare --warehouse var/warehouse --from 2013-07-01 --to 2013-07-02 --sample 5")
def compare(
    warehouse: House,
    begin: Begin,
    end: End,
    sample: Annotated[int, typer.Option("--sample", min=1, help="How many queries to run unshared.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Run a sample of the queries unshared, one plain Spark job each, beside the cost of the shared run."""
    from spark_jobs.sources.decoding import parse_instant
    from spark_jobs.unshared.measure import measure
    from spark_jobs.warehouse import publish_log
    from spark_jobs.warehouse.warehouse import Warehouse

    with telling_errors():
        house = Warehouse.open(warehouse, create=False)
        made, _ = stored_plan(warehouse)
        first, last = parse_instant(begin), parse_instant(end)
        rows = publish_log.rows_of_interval(house, first, last)
        runs = [row.stored_record for row in rows if row.event == "published" and row.record.cpu_seconds]
        if not runs:
            raise HeddleError("HDL-508", "no run of this interval has been published", "see `heddle status`")
        shared = runs[-1]
        from spark_jobs.session.session import start_session

        with terminal.errors.status("starting Spark") as status:
            # long plain jobs are cheaper under the JVM's optimising compiler, short ones under its quick one
            spark = start_session("heddle compare", quick=shared["rows_scanned"] < 1_000_000)
            try:
                samples = measure(
                    spark, made, first, last, sample, report=lambda line: status.update(Text(printable(line)))
                )
            finally:
                spark.stop()
    mean_cpu = sum(found["cpu_seconds"] for found in samples) / len(samples)
    mean_rows = sum(found["rows_scanned"] for found in samples) / len(samples)
    count = len(made.workload.queries)
    data: dict[str, Any] = {
        "queries": count,
        "sampled": samples,
        "shared": {
            "rows_scanned": shared["rows_scanned"],
            "cpu_seconds": sum(shared["cpu_seconds"].values()),
            "cpu_seconds_without_checks": sum(
                spent for name, spent in shared["cpu_seconds"].items() if name != "audit"
            ),
        },
        "unshared_extrapolated": {"rows_scanned": mean_rows * count, "cpu_seconds": mean_cpu * count},
    }
    if as_json:
        print_json(data)
        return
    table = Table(title=f"{begin} .. {end}, {number_of(count, 'query')}", title_justify="left")
    for name in ("", "rows scanned", "CPU seconds"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row(
        "shared, with checks and publication",
        f"{shared['rows_scanned']:,}",
        f"{data['shared']['cpu_seconds']:.1f}",
    )
    for found in samples:
        table.add_row(f"unshared: {found['query']}", f"{found['rows_scanned']:,}", f"{found['cpu_seconds']:.1f}")
    extrapolated = data["unshared_extrapolated"]
    table.add_row(
        f"unshared, all {count} (extrapolated from {len(samples)})",
        f"{extrapolated['rows_scanned']:,.0f}",
        f"{extrapolated['cpu_seconds']:.1f}",
    )
    terminal.console.print(table)


# ---------------------------------------------------------------------------------------- calibrate
@app.command(
    epilog="Examples: heddle calibrate --output var/warehouse/coefficients.json   "
    "|   heddle calibrate --warehouse var/warehouse"
)
def calibrate(
    warehouse: Annotated[
        Path | None,
        typer.Option("--warehouse", help="Fit to what the runs of this warehouse recorded, and store the costs there."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller measurements, so rougher costs.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write the costs to this file; a warehouse reads its coefficients.json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the steps of a run cost on this machine, for the cost model `measured` and its predictions."""
    import tempfile

    from spark_jobs.costs.fit import FILE, fit, observations_of, store
    from spark_jobs.run.calibrate import calibrate
    from spark_jobs.warehouse.warehouse import Warehouse

    if warehouse is not None and quick:
        raise typer.BadParameter("--quick is for measuring; with --warehouse nothing is measured")
    with telling_errors():
        if warehouse is not None:
            house = Warehouse.open(warehouse, create=False)
            seen = observations_of(house)
            if not seen:
                raise HeddleError("HDL-515", "no run of this warehouse recorded what it took", "run it first")
            found = fit(seen)
            store(house.root / FILE, found)
        else:
            from spark_jobs.session.session import start_session

            with terminal.errors.status("starting Spark") as status, tempfile.TemporaryDirectory() as place:
                spark = start_session("heddle calibrate")
                try:
                    found = calibrate(
                        spark, Path(place), quick, report=lambda line: status.update(Text(printable(line)))
                    )
                finally:
                    spark.stop()
    if output is not None:
        write_text(output, json_text(found.to_json()))
    if as_json:
        print_json(found.to_json())
    elif warehouse is not None or output is None:
        _show_costs(found)


def _show_costs(fit: Fit) -> None:
    from spark_jobs.costs.measurements import FEATURES

    table = Table(title=f"CPU time a unit, from {number_of(len(fit.residuals), 'run')}", title_justify="left")
    for name, justify in (("", "left"), ("CPU-s", "right"), ("a unit is", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for feature, cost in fit.costs.items():
        table.add_row(feature, f"{cost:.3g}", FEATURES[feature])
    terminal.console.print(table)
    if fit.error is not None:
        terminal.console.print(f"half of the runs are explained to within {fit.error:.0%}", highlight=False)


if __name__ == "__main__":
    app()
