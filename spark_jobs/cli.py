"""The ``heddle`` command: validate, plan, explain, run, read, status, compare. Works without Airflow.

Exit codes: 0 done, 1 something failed (a query is not usable, a check failed), 2 the command was used wrongly.
``--json`` prints one JSON object with a ``format_version`` on standard output; messages go to standard error.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from optimizer.errors import Diagnostic, HeddleError

if TYPE_CHECKING:
    import pyarrow as pa

    from optimizer.plan import SharingPlan
    from spark_jobs.planning import Inputs
    from spark_jobs.tables import Warehouse

app = typer.Typer(
    help="Shares the processing of sliding-window aggregate queries over the same streams.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
# into a pipe or a log, lines are as long as the tables need
console = Console(width=None if sys.stdout.isatty() else 160)
errors = Console(stderr=True)

USAGE = {"HDL-111", "HDL-112", "HDL-114", "HDL-407", "HDL-501", "HDL-502", "HDL-504"}
"""Codes that mean the command was called wrongly: exit code 2."""

Files = Annotated[list[Path], typer.Argument(help="Workload files (SQL).", show_default=False)]
OptionalFiles = Annotated[list[Path] | None, typer.Argument(help="Workload files (SQL).", show_default=False)]
Streams = Annotated[Path, typer.Option("--streams", help="The file that declares the streams.")]
OptionalStreams = Annotated[Path | None, typer.Option("--streams", help="The file that declares the streams.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
House = Annotated[Path, typer.Option("--warehouse", help="The folder that holds Heddle's tables.")]
OptionalHouse = Annotated[Path | None, typer.Option("--warehouse", help="Take the plan stored in this warehouse.")]
Rates = Annotated[
    list[str] | None,
    typer.Option("--rate", help="STREAM=TUPLES_PER_SECOND; may be given again. Default: measured from the source."),
]
Begin = Annotated[str, typer.Option("--from", help="Start of the interval (UTC, e.g. 2013-07-01).")]
End = Annotated[str, typer.Option("--to", help="End of the interval, exclusive (UTC).")]
OptionalBegin = Annotated[str | None, typer.Option("--from", help="Only windows that end after this instant.")]
OptionalEnd = Annotated[str | None, typer.Option("--to", help="Only windows that end at or before this instant.")]


class Algorithm(StrEnum):
    weave_share = "weave-share"
    no_share = "no-share"
    shared = "shared"


class CostModel(StrEnum):
    paper = "paper"
    measured = "measured"


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


AlgorithmOption = Annotated[Algorithm, typer.Option("--algorithm", help="How queries are grouped into trees.")]
CostOption = Annotated[CostModel, typer.Option("--cost-model", help="What a plan costs: operations or CPU seconds.")]


@contextmanager
def _coded() -> Iterator[None]:
    """Expected failures become a message and an exit code."""
    try:
        yield
    except HeddleError as error:
        _tell([error.diagnostic])
        raise typer.Exit(2 if error.diagnostic.code in USAGE else 1) from None


def _tell(diagnostics: Sequence[Diagnostic]) -> None:
    for found in diagnostics:
        errors.print(
            str(found),
            style="red" if found.severity == "error" else "yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _print_json(data: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"format_version": 1} | data, indent=2) + "\n")


def _inputs(files: Sequence[Path], streams: Path) -> Inputs:
    from spark_jobs.planning import load_inputs

    inputs = load_inputs(files, streams)
    _tell(inputs.diagnostics)
    return inputs


def _built(
    files: Sequence[Path],
    streams: Path,
    rates: Sequence[str],
    algorithm: Algorithm,
    cost_model: CostModel,
    warehouse: Warehouse | None = None,
) -> tuple[SharingPlan, bool]:
    """The plan of some files, and whether something in them or in their streams was not usable."""
    from optimizer.plan import build_plan
    from spark_jobs.planning import model_of, parse_rates, rates_of

    inputs = _inputs(files, streams)
    if not inputs.workload.queries:
        raise HeddleError("HDL-113", "there is no usable query", "see the messages above")
    found, measurements, unreadable = rates_of(inputs.workload, parse_rates(rates), warehouse)
    _tell(unreadable)
    plan = build_plan(inputs.workload, found, algorithm.value, model_of(cost_model.value, measurements))
    return plan, bool(inputs.errors or unreadable)


def _stored(warehouse: Path) -> tuple[SharingPlan, int]:
    from spark_jobs.planning import current_version, load_plan
    from spark_jobs.tables import Warehouse

    house = Warehouse.open(warehouse, create=False)
    version = current_version(house)
    return load_plan(house, version or 0), version or 0


# ----------------------------------------------------------------------------------------- validate
@app.command(epilog="Example: heddle validate dags/workload/flights.sql --streams dags/workload/streams.yaml")
def validate(files: Files, streams: Streams, as_json: AsJson = False) -> None:
    """Check queries and streams: every problem with its code, its place and what to do about it."""
    from spark_jobs.planning import load_inputs

    with _coded():
        inputs = load_inputs(files, streams)
    if as_json:
        queries = [
            {
                "name": query.name,
                "stream": query.stream,
                "owner": query.owner,
                "fingerprint": query.fingerprint,
            }
            for query in inputs.workload.queries
        ]
        _print_json({"queries": queries, "diagnostics": [found.to_json() for found in inputs.diagnostics]})
    else:
        _tell(inputs.diagnostics)
        console.print(f"{len(inputs.workload.queries)} queries usable, {len(inputs.errors)} errors")
    raise typer.Exit(1 if inputs.errors else 0)


# --------------------------------------------------------------------------------------------- plan
@app.command(
    epilog="Examples: heddle plan q.sql --streams streams.yaml --rate trades=1200 --json   "
    "|   heddle plan --warehouse var/warehouse"
)
def plan(
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    rate: Rates = None,
    algorithm: AlgorithmOption = Algorithm.weave_share,
    cost_model: CostOption = CostModel.paper,
    warehouse: OptionalHouse = None,
    as_json: AsJson = False,
) -> None:
    """Which queries share an execution tree, and what that costs beside No Share and Shared. Needs no JVM."""
    from optimizer.plan import to_json

    failed = False
    with _coded():
        if warehouse is not None and not files:
            made, version = _stored(warehouse)
            data = to_json(made) | {"plan_version": version}
        elif files and streams is not None:
            made, failed = _built(files, streams, rate or [], algorithm, cost_model)
            data = to_json(made)
        else:
            raise typer.BadParameter("give FILES and --streams, or --warehouse")
    if as_json:
        _print_json(data)
    else:
        show_plan(data)
    raise typer.Exit(1 if failed else 0)


def show_plan(data: dict[str, Any]) -> None:
    """A plan (as ``heddle plan --json``) as a table for people."""
    unit = "operations/s" if data["cost_model"] == "paper" else "CPU-s/s"
    table = Table(title=f"{data['algorithm']}: {len(data['trees'])} execution trees", title_justify="left")
    for name, justify in (
        ("tree", "left"),
        ("queries", "right"),
        ("composite slide", "right"),
        ("edges", "right"),
        ("edges/s", "right"),
        ("overlap", "right"),
        (unit, "right"),
        ("members", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for tree in data["trees"]:
        table.add_row(
            tree["id"],
            str(len(tree["queries"])),
            _seconds(tree["composite_slide"]),
            f"{tree['edges']:,}",
            f"{float(Fraction(tree['edge_rate'])):.4g}",
            f"{float(Fraction(tree['overlap_factor'])):.4g}",
            f"{tree['cost']:.4g}",
            ", ".join(tree["queries"][:2])
            + (f", … {len(tree['queries']) - 2} more" if len(tree["queries"]) > 2 else ""),
        )
    console.print(table)
    rates = ", ".join(f"{name} {float(Fraction(value)):.4g}/s" for name, value in data["rates"].items())
    console.print(f"rates: {rates}", highlight=False)
    baselines = data["baselines"]
    for name, cost in (
        ("this plan", data["cost"]),
        ("No Share", baselines["no_share"]),
        ("Shared", baselines["shared"]),
    ):
        if cost is None:
            console.print(f"  {name:<10}{'too many edges to count':>14}", highlight=False)
            continue
        times = f"  {cost / data['cost']:.2f} times" if data["cost"] else ""
        console.print(f"  {name:<10}{cost:>14,.4f} {unit}{times}", highlight=False)


def _seconds(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size:g} {unit}"
    return f"{seconds:g} s"


# ------------------------------------------------------------------------------------------ explain
@app.command(
    epilog="Examples: heddle explain hourly_volume q.sql --streams streams.yaml   "
    "|   heddle explain hourly_volume --warehouse var/warehouse"
)
def explain(
    query: Annotated[str, typer.Argument(help="Name of the query.", show_default=False)],
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    rate: Rates = None,
    algorithm: AlgorithmOption = Algorithm.weave_share,
    cost_model: CostOption = CostModel.paper,
    warehouse: OptionalHouse = None,
    as_json: AsJson = False,
) -> None:
    """Why a query shares, with whom, what it would cost alone, and why the nearest others are in other trees."""
    from optimizer.plan import explain as explain_query

    with _coded():
        if warehouse is not None and not files:
            made, _ = _stored(warehouse)
        elif files and streams is not None:
            made, _ = _built(files, streams, rate or [], algorithm, cost_model)
        else:
            raise typer.BadParameter("give FILES and --streams, or --warehouse")
        if query not in {found.name for found in made.workload.queries}:
            known = ", ".join(sorted(found.name for found in made.workload.queries)[:20])
            raise HeddleError("HDL-507", f"there is no query {query} in the plan", f"known: {known}")
        found = explain_query(made, query)
    if as_json:
        _print_json(found.to_json())
    else:
        for line in found.lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)


# ---------------------------------------------------------------------------------------------- run
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
    algorithm: AlgorithmOption = Algorithm.weave_share,
    cost_model: CostOption = CostModel.paper,
    recompute: Annotated[bool, typer.Option("--recompute", help="Publish again even if nothing changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan, compute, check and publish every window that ends in (from, to]. Running it again changes nothing."""
    from spark_jobs.planning import publish_plan
    from spark_jobs.sources import parse_instant
    from spark_jobs.tables import Warehouse

    with _coded():
        first, last = parse_instant(begin), parse_instant(end)
        if last <= first:
            raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
        house = Warehouse.open(warehouse)
        made, failed = _built(files, streams, rate or [], algorithm, cost_model, house)
        version, changed = publish_plan(house, made, "heddle run")
        errors.print(f"plan version {version}{' (new)' if changed else ''}: {len(made.trees)} trees", highlight=False)
        record = _run(house, version, first, last, recompute)
    if as_json:
        _print_json(record)
    else:
        _show_record(record)
    _tell([Diagnostic(**found) for found in record["diagnostics"]])
    raise typer.Exit(1 if failed or record["diagnostics"] else 0)


def _run(house: Warehouse, version: int, begin: int, end: int, recompute: bool) -> dict[str, Any]:
    from spark_jobs.run import run as run_interval
    from spark_jobs.session import start_session
    from spark_jobs.sources import format_instant

    run_id = f"cli/{format_instant(begin)}/{format_instant(end)}"
    with errors.status("starting Spark") as status:
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
                report=lambda line: status.update(line),
            )
        finally:
            spark.stop()
    return record.to_json()


def _show_record(record: dict[str, Any]) -> None:
    told = {"published": "published", "unchanged": "nothing changed since"}.get(record["status"], record["status"])
    console.print(
        f"{told} revision {record['revision']} of {record['begin']} .. {record['end']}: {record['answers']:,} answers "
        f"{record['queries']} queries",
        highlight=False,
    )
    if record["status"] == "published":
        spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in record["cpu_seconds"].items())
        console.print(f"  events scanned {record['rows_scanned']:,}; CPU seconds: {spent}", highlight=False)
        passed = sum(check["success"] for check in record["checks"])
        console.print(f"  checks: {passed} of {len(record['checks'])} passed", highlight=False)
    for stream, at in record["withheld"].items():
        console.print(f"  {stream}: windows that end after its watermark {at} come later", highlight=False)


# --------------------------------------------------------------------------------------------- read
@app.command(epilog="Example: heddle read hourly_volume --warehouse house --from 2013-07-01 --format csv")
def read(
    query: Annotated[str, typer.Argument(help="Name of the query.", show_default=False)],
    warehouse: House,
    begin: OptionalBegin = None,
    end: OptionalEnd = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.table,
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file (parquet needs one).")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most rows of the table format; 0: all.")] = 40,
) -> None:
    """The published answers of a query, under its own column names. Needs no JVM."""
    from spark_jobs.read import read as read_answers
    from spark_jobs.sources import parse_instant
    from spark_jobs.tables import Warehouse

    if format is Format.parquet and output is None:
        raise typer.BadParameter("--format parquet needs --output FILE")
    with _coded():
        table = read_answers(
            Warehouse.open(warehouse, create=False),
            query,
            parse_instant(begin) if begin else None,
            parse_instant(end) if end else None,
        )
    if format is Format.table:
        show_answers(table, query, limit)
        return
    data = _encoded(table, query, format)
    if output is not None:
        output.write_bytes(data)
        errors.print(f"wrote {table.num_rows:,} answers to {output}", highlight=False)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _encoded(table: pa.Table, query: str, format: Format) -> bytes:
    import io

    import pyarrow.csv as pcsv
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    if format is Format.csv:
        pcsv.write_csv(table, sink)
    elif format is Format.parquet:
        pq.write_table(table, sink)
    else:
        rows = [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]
        data = {"format_version": 1, "query": query, "columns": table.schema.names, "rows": rows}
        sink.write((json.dumps(data, indent=1) + "\n").encode())
    return sink.getvalue()


def _plain(value: Any) -> Any:
    """A value as JSON has it: instants in ISO 8601, decimals and non-finite doubles as text."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    return value


def show_answers(table: pa.Table, title: str, limit: int = 40) -> None:
    """Answers as a table for people: the first ``limit`` rows (0: all)."""
    shown = Table(title=f"{title}: {table.num_rows:,} answers", title_justify="left")
    for field in table.schema:
        numeric = str(field.type) in ("int64", "double") or "decimal" in str(field.type)
        shown.add_column(field.name, justify="right" if numeric else "left", no_wrap=True)
    for row in (table.slice(0, limit) if limit else table).to_pylist():
        shown.add_row(*(_cell(value) for value in row.values()))
    console.print(shown)
    if limit and table.num_rows > limit:
        console.print(f"… {table.num_rows - limit:,} more (--limit 0 shows all)")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}"
    if hasattr(value, "isoformat"):
        return str(value.isoformat(" ")).replace("+00:00", "")
    return str(value)


# ------------------------------------------------------------------------------------------- status
@app.command(epilog="Example: heddle status --warehouse var/warehouse")
def status(
    warehouse: House,
    last: Annotated[int, typer.Option("--last", help="How many runs to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """The plan in force, the last runs, what is published and how the checks went. Needs no JVM."""
    from optimizer.plan import to_json
    from spark_jobs.tables import Warehouse

    with _coded():
        house = Warehouse.open(warehouse, create=False)
        made, version = _stored(warehouse)
    log = sorted(house.rows("publish_log"), key=lambda row: row["at"], reverse=True)
    runs = [row for row in log if row["event"] in ("published", "failed")]
    intervals = {(row["interval_start"], row["interval_end"]) for row in runs if row["event"] == "published"}
    checks = house.rows("quality_results")
    data = {
        "warehouse": str(house.root),
        "plan_version": version,
        "plan_cost": to_json(made)["cost"],
        "queries": len(made.workload.queries),
        "trees": len(made.trees),
        "intervals_published": len(intervals),
        "checks_passed": sum(row["success"] for row in checks),
        "checks_failed": sum(not row["success"] for row in checks),
        "runs": [json.loads(row["record"]) | {"event": row["event"], "at": _plain(row["at"])} for row in runs[:last]],
    }
    if as_json:
        _print_json(data)
        return
    console.print(
        f"plan version {version}: {data['queries']} queries in {data['trees']} trees; {len(intervals)} intervals "
        f"published; checks passed {data['checks_passed']}, failed {data['checks_failed']}",
        highlight=False,
    )
    table = Table(title="last runs", title_justify="left")
    for name in (
        "at",
        "interval",
        "status",
        "revision",
        "plan",
        "answers",
        "events",
        "CPU-s",
        "wall s",
        "checks",
    ):
        table.add_column(name)
    for found in data["runs"]:
        passed = sum(check["success"] for check in found["checks"])
        table.add_row(
            found["at"][:19],
            f"{found['begin']} .. {found['end']}",
            found["event"],
            str(found["revision"]),
            str(found["plan_version"]),
            f"{found['answers']:,}",
            f"{found['rows_scanned']:,}",
            f"{sum(found['cpu_seconds'].values()):.1f}",
            f"{sum(found['wall_seconds'].values()):.1f}",
            f"{passed}/{len(found['checks'])}",
        )
    console.print(table)
    for found in data["runs"]:
        _tell([Diagnostic(**told) for told in found["diagnostics"]])


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
    from spark_jobs.sources import parse_instant
    from spark_jobs.tables import Warehouse
    from spark_jobs.unshared import measure

    with _coded():
        house = Warehouse.open(warehouse, create=False)
        made, _ = _stored(warehouse)
        first, last = parse_instant(begin), parse_instant(end)
        runs = [
            json.loads(row["record"])
            for row in sorted(house.rows("publish_log"), key=lambda row: row["at"])
            if row["event"] == "published" and json.loads(row["record"])["cpu_seconds"]
        ]
        mine = [run for run in runs if parse_instant(run["begin"]) == first and parse_instant(run["end"]) == last]
        if not mine:
            raise HeddleError("HDL-508", "no run of this interval has been published", "see `heddle status`")
        shared = mine[-1]
        from spark_jobs.session import start_session

        with errors.status("starting Spark") as status:
            # long plain jobs are cheaper under the JVM's optimising compiler, short ones under its quick one
            spark = start_session("heddle compare", quick=shared["rows_scanned"] < 1_000_000)
            try:
                samples = measure(spark, made, first, last, sample, report=lambda line: status.update(line))
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
        _print_json(data)
        return
    table = Table(title=f"{begin} .. {end}, {count} queries", title_justify="left")
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
    console.print(table)


if __name__ == "__main__":
    app()
