"""The ``heddle`` command: plans, their differences, runs, answers, comparisons, experiments. Works without Airflow.

Exit codes: 0 done, 1 something failed (a query is not usable, a check failed), 2 the command was used wrongly.
``--json`` prints one JSON object with a ``format_version`` on standard output; messages go to standard error.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from optimizer.errors import Diagnostic, HeddleError, printable
from optimizer.redaction import tell_crash

if TYPE_CHECKING:
    import pyarrow as pa

    from optimizer.bare_windows import WindowPlan
    from optimizer.experiments import Experiment, Outcome
    from optimizer.plan import PlanDiff, SharingPlan
    from optimizer.query import ACQ, Workload
    from spark_jobs.calibration import Fit
    from spark_jobs.planning import Inputs
    from spark_jobs.tables import Warehouse


class _App(typer.Typer):
    """Whatever crashes, no secret is in what it prints."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        try:
            return super().__call__(*given, **named)
        except Exception as error:
            tell_crash(type(error), error, error.__traceback__)
            sys.exit(1)


app = _App(
    help="Shares the processing of sliding-window aggregate queries over the same streams.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


class _Plain(Console):
    """Prints texts as they are: names, owners and values are users' text, and neither markup nor escape sequences."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(markup=False, emoji=False, **arguments)

    def render_str(self, text: str, **arguments: Any) -> Text:
        lines = "\n".join(printable(line) for line in text.split("\n"))
        return super().render_str(lines, **arguments)


# into a pipe or a log, lines are as long as the tables need
console = _Plain(width=None if sys.stdout.isatty() else 160)
errors = _Plain(stderr=True)

TREES_SHOWN = 60
"""Most trees of a plan's table: the dearest."""

RECOMPUTED = "shared=unshared("
"""What checks are called that compare shared answers with unshared ones."""

USAGE = {"HDL-111", "HDL-112", "HDL-114", "HDL-115", "HDL-116", "HDL-407", "HDL-501", "HDL-502", "HDL-504"}
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
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, show what would be done.")]
OptionalBegin = Annotated[str | None, typer.Option("--from", help="Only windows that end after this instant.")]
OptionalEnd = Annotated[str | None, typer.Option("--to", help="Only windows that end at or before this instant.")]


class Algorithm(StrEnum):
    best = "best"
    optimal = "optimal"
    weave_share = "weave-share"
    no_share = "no-share"
    shared = "shared"
    random = "random"
    insert_then_weave = "insert-then-weave"
    local_search = "local-search"


class Counter(StrEnum):
    auto = "auto"
    conditioning = "conditioning"
    bit_set = "bit-set"
    f1 = "f1"
    f1_opt = "f1-opt"


class CostModel(StrEnum):
    paper = "paper"
    measured = "measured"


class PlanFormat(StrEnum):
    text = "text"
    json = "json"
    mermaid = "mermaid"
    html = "html"


class Paper(StrEnum):
    f1 = "f1"
    weave_share = "weave-share"
    arasu_widom = "arasu-widom"
    sharon = "sharon"
    golab = "golab"


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


AlgorithmOption = Annotated[Algorithm, typer.Option("--algorithm", help="How queries are grouped into trees.")]
CounterOption = Annotated[
    Counter, typer.Option("--edge-counter", help="How edges are counted: auto, or a reference of the papers.")
]
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


def _json(data: dict[str, Any]) -> str:
    return json.dumps({"format_version": 1} | data, indent=2) + "\n"


def _print_json(data: dict[str, Any]) -> None:
    sys.stdout.write(_json(data))


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
    counter: Counter = Counter.auto,
    budget: float | None = None,
) -> tuple[SharingPlan, bool, tuple[ACQ, ...]]:
    """The plan of some files, whether something in them or in their streams was not usable, and which of their queries
    it leaves out because they are paused.

    A warehouse knows measured costs and rates, and the plan in force that is kept if it is about as cheap.
    """
    from optimizer.plan import build_plan
    from optimizer.search import SECONDS
    from spark_jobs.planning import (
        TOLERANCE,
        comparable_plan,
        model_of,
        parse_rates,
        profiles_of,
        rates_of,
        without_paused,
    )

    inputs = _inputs(files, streams)
    if not inputs.workload.queries:
        raise HeddleError("HDL-113", "there is no usable query", "see the messages above")
    workload, paused = without_paused(inputs.workload, warehouse)
    found, measurements, unreadable = rates_of(workload, parse_rates(rates), warehouse)
    _tell(unreadable)
    model, seconds = model_of(cost_model.value, measurements, warehouse), SECONDS if budget is None else budget
    previous = comparable_plan(warehouse, algorithm.value, cost_model.value)
    plan = build_plan(
        workload,
        found,
        algorithm.value,
        model,
        counter.value,
        seconds,
        previous,
        TOLERANCE,
        profiles_of(workload, found),
    )
    return plan, bool(inputs.errors or unreadable), paused


def _window_plan(
    windows: Path,
    rates: Sequence[str],
    algorithm: Algorithm,
    cost_model: CostModel,
    counter: Counter,
    budget: float | None,
) -> tuple[WindowPlan, bool]:
    """The plan of a CSV file of windows, and whether some rows were not usable."""
    from optimizer.bare_windows import plan_windows, read_windows
    from optimizer.search import SECONDS
    from spark_jobs.planning import model_of, parse_rate

    if len(rates) != 1:
        raise HeddleError("HDL-112", f"--windows needs one --rate, not {len(rates)}", "e.g. --rate 1200 (tuples/s)")
    rate = parse_rate(rates[0])
    found, diagnostics = read_windows(windows)
    _tell(diagnostics)
    seconds = SECONDS if budget is None else budget
    model = model_of(cost_model.value, [])
    return plan_windows(found, rate, algorithm.value, model, counter.value, seconds), bool(diagnostics)


def _house(warehouse: Path | None) -> Warehouse | None:
    from spark_jobs.tables import Warehouse

    return Warehouse.open(warehouse, create=False) if warehouse is not None else None


def _stored(warehouse: Path, version: int | None = None) -> tuple[SharingPlan, int]:
    """A stored plan and its version (None: the newest)."""
    from spark_jobs.planning import current_version, load_plan
    from spark_jobs.tables import Warehouse

    house = Warehouse.open(warehouse, create=False)
    chosen = version if version is not None else current_version(house) or 0
    return load_plan(house, chosen), chosen


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
    "|   heddle plan --warehouse var/warehouse --format html --output plan.html   "
    "|   heddle plan --windows windows.csv --rate 1200 --summary"
)
def plan(
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            help="STREAM=TUPLES_PER_SECOND, may be given again (default: measured from the source); "
            "with --windows the number alone.",
        ),
    ] = None,
    algorithm: AlgorithmOption = Algorithm.best,
    cost_model: CostOption = CostModel.paper,
    warehouse: OptionalHouse = None,
    windows: Annotated[
        Path | None,
        typer.Option("--windows", help="Plan bare windows: a CSV file with columns range,slide in seconds."),
    ] = None,
    counter: CounterOption = Counter.auto,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0.0,
            max=3600.0,
            help="CPU seconds to improve on Weave Share (for best).",
            show_default="0.4",
        ),
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Leave the lists of queries out.")] = False,
    format: Annotated[
        PlanFormat, typer.Option("--format", help="A table, JSON, a Mermaid flowchart or a self-contained page.")
    ] = PlanFormat.text,
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Which queries share an execution tree, and what that costs beside No Share and Shared. Needs no JVM."""
    if as_json and format not in (PlanFormat.text, PlanFormat.json):
        raise typer.BadParameter(f"--json is --format json, not {format.value}")
    failed = False
    facts: dict[str, Any] = {}
    made: SharingPlan | None = None
    format = PlanFormat.json if as_json else format
    if windows is not None and format in (PlanFormat.mermaid, PlanFormat.html):
        raise typer.BadParameter("--windows has no streams and queries to draw: use --format text or json")
    with _coded():
        started = time.process_time()
        if windows is not None:
            if files or warehouse is not None:
                raise typer.BadParameter("give --windows, or FILES and --streams, or --warehouse")
            bare, failed = _window_plan(windows, rate or [], algorithm, cost_model, counter, budget)
            data = bare.to_json(summary)
        elif warehouse is not None and not files:
            made, facts["plan_version"] = _stored(warehouse)
        elif files and streams is not None:
            house = _house(warehouse)
            made, failed, _ = _built(files, streams, rate or [], algorithm, cost_model, house, counter, budget)
            facts["seconds"] = round(time.process_time() - started, 6)
        else:
            raise typer.BadParameter("give FILES and --streams, or --warehouse, or --windows")
    if made is not None:
        from optimizer.plan import to_json

        data = to_json(made) | facts
        if summary:
            for tree in data["trees"]:
                tree["query_count"] = len(tree.pop("queries"))
    _deliver_plan(made, data, facts, format, output)
    raise typer.Exit(1 if failed else 0)


def _deliver_plan(
    made: SharingPlan | None, data: dict[str, Any], facts: dict[str, Any], format: PlanFormat, output: Path | None
) -> None:
    """Print a plan, or write it to a file. ``facts``: what else its page says."""
    if format is PlanFormat.text and output is None:
        show_plan(data)
        return
    if format is PlanFormat.text:
        plain = _Plain(width=160, color_system=None, force_terminal=False)
        with plain.capture() as captured:
            show_plan(data, plain)
        text = captured.get()
    elif format is PlanFormat.json:
        text = _json(data)
    else:
        from optimizer.plan_page import mermaid, page

        assert made is not None
        # a plan's page is the same whenever it is drawn
        told = {name.replace("_", " "): str(value) for name, value in facts.items() if name != "seconds"}
        text = mermaid(made) if format is PlanFormat.mermaid else page(made, told)
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text)


def _write(path: Path, text: str) -> None:
    with _coded():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise HeddleError("HDL-115", f"{path} cannot be written: {error.strerror}", "check --output") from None
    errors.print(f"wrote {path}", highlight=False, markup=False)


def show_plan(data: dict[str, Any], console: Console = console) -> None:
    """A plan (as ``heddle plan --json``) as a table for people."""
    unit = _unit(data["cost_model"])
    bounded = set(data["upper_bounds"])
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
    shown_trees = sorted(data["trees"], key=lambda tree: -tree["cost"])[:TREES_SHOWN]
    listed = {tree["id"] for tree in shown_trees}
    for tree in data["trees"]:
        if tree["id"] not in listed:
            continue
        queries = tree.get("queries", [])
        table.add_row(
            tree["id"],
            f"{tree.get('query_count', len(queries)):,}",
            f"{_large(tree['composite_slide'])} rows" if "rows_per" in tree else _seconds(tree["composite_slide"]),
            "uncounted" if tree["edges"] is None else _large(tree["edges"]),
            ("≤ " if tree["id"] in bounded else "") + f"{float(Fraction(tree['edge_rate'])):.4g}",
            f"{float(Fraction(tree['overlap_factor'])):.4g}",
            ("≤ " if tree["id"] in bounded else "") + f"{tree['cost']:.4g}",
            ", ".join(queries[:2]) + (f", … {len(queries) - 2} more" if len(queries) > 2 else ""),
        )
    console.print(table)
    if len(data["trees"]) > TREES_SHOWN:
        console.print(f"… and {len(data['trees']) - TREES_SHOWN:,} cheaper trees (--json shows all)", highlight=False)
    for tree in shown_trees:
        for found in tree.get("sequences", ()):
            told, alone = found["cost"], found["baselines"]["unshared"]
            shared, patterns = len(found["shared"]), len(found["queries"])
            console.print(
                f"sequences of {tree['id']}: {patterns} patterns, {shared} pieces shared; {told:.4g} operations a "
                f"window and key, {alone / told if told else 1:.2f} times less than unshared"
                + (", proven" if found["proven"] else ""),
                highlight=False,
            )
    for found in data.get("schedules", ()):
        console.print(f"refreshes: {found['summary']}", highlight=False)
    rates = ", ".join(f"{name} {float(Fraction(value)):.4g}/s" for name, value in data["rates"].items())
    console.print(f"rates: {rates}", highlight=False)
    baselines = data["baselines"]
    if data["algorithm"] == "weave-share":
        baselines = baselines | {"weave_share": None}
    for name, cost, is_bound in (
        ("this plan", data["cost"], bool(bounded - {"shared", "weave_share"})),
        ("Weave Share", baselines["weave_share"], "weave_share" in bounded),
        ("No Share", baselines["no_share"], False),
        ("Shared", baselines["shared"], "shared" in bounded),
        ("From scratch", baselines.get("from_scratch"), False),
        ("Factor Windows", baselines.get("factor_windows"), False),
    ):
        if cost is not None:
            times = f"  {cost / data['cost']:.2f} times" if data["cost"] else ""
            shown = ("≤ " if is_bound else "") + f"{cost:,.4f}"
            console.print(f"  {name:<14}{shown:>14} {unit}{times}", highlight=False)
    if data["optimal"]:
        console.print("  no plan is cheaper (proven)", highlight=False)
    if bounded:
        console.print("  ≤: edges that cannot all be counted exactly; a certified upper bound", highlight=False)


def _large(number: int) -> str:
    return f"{number:,}" if number < 10**12 else f"10^{math.floor(math.log10(number))}"


def _seconds(seconds: float) -> str:
    if seconds > 10**13:
        return f"10^{math.floor(math.log10(seconds) - math.log10(31_557_600))} years"
    for size, unit in ((31_557_600, "years"), (86400, "d")):
        if seconds >= 1000 * size:
            return f"≈ {seconds / size:,.0f} {unit}"
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
    algorithm: AlgorithmOption = Algorithm.best,
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
            made, *_ = _built(files, streams, rate or [], algorithm, cost_model, _house(warehouse))
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


# --------------------------------------------------------------------------------------------- diff
@app.command(
    epilog="Examples: heddle diff --warehouse var/warehouse   |   heddle diff 3 7 --warehouse var/warehouse --json"
)
def diff(
    warehouse: House,
    plan_a: Annotated[
        int | None, typer.Argument(help="A plan version. Default: the one before PLAN_B.", show_default=False)
    ] = None,
    plan_b: Annotated[
        int | None, typer.Argument(help="A plan version. Default: the newest.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What one stored plan changes of another: queries, trees, costs, and which stored partials stay valid."""
    from optimizer.plan import diff as diff_plans

    with _coded():
        new, new_version = _stored(warehouse, plan_b)
        if plan_a is None and new_version == 1:
            raise HeddleError("HDL-506", f"{warehouse} has one plan version: there is nothing to compare it with")
        old, old_version = _stored(warehouse, plan_a if plan_a is not None else new_version - 1)
        change = diff_plans(old, new)
    if as_json:
        versions = {"old": old_version, "new": new_version}
        _print_json(change.to_json() | {"versions": versions, "cost_models": [old.cost_model, new.cost_model]})
        return
    console.print(f"plan version {old_version} -> {new_version}", highlight=False)
    if old.cost_model != new.cost_model:
        console.print(f"  costs cannot be compared: {old.cost_model} and {new.cost_model}", highlight=False)
    show_diff(change, new)


LISTED = 20
"""Names and rows of a list that are shown to people."""


def show_diff(change: PlanDiff, new: SharingPlan) -> None:
    """What a plan changes, as tables for people. ``new``: the plan that the change ends in."""
    unit = _unit(new.cost_model)
    console.print(f"  cost  {_figures(*change.cost)} {unit}", highlight=False)
    regrouped = [f"{query} ({old} -> {tree})" for query, old, tree in change.moved]
    for what, names in (
        ("added", change.added),
        ("removed", change.removed),
        ("changed", change.changed),
        ("regrouped", regrouped),
    ):
        if names:
            told = ", ".join(names[:LISTED]) + (f", … {len(names) - LISTED} more" if len(names) > LISTED else "")
            console.print(f"  {what}: {len(names)}  {told}", highlight=False, markup=False, soft_wrap=True)
    if change.is_empty:
        console.print("  same queries in the same trees")
    rows = [row for row in change.trees if row[2] != row[3]]
    if rows:
        _print_rows(
            f"trees that change ({unit})",
            ("old", "new", "cost before", "cost after"),
            [(old or "-", tree or "-", f"{before:.6g}", f"{after:.6g}") for old, tree, before, after in rows],
        )
    console.print(
        f"  stored partials: {change.reused} synopses stay valid, {change.built} are new; "
        f"{len(change.rebuilt)} of {len(new.workload.queries)} queries read history again",
        highlight=False,
    )
    if change.rebuilt:
        windows = {query.name: query.window for query in new.workload.queries}
        _print_rows(
            "history that the next run reads again",
            ("query", "because", "windows a group", "back"),
            [
                (query, reason, f"{count:,}", _seconds(windows[query].range / 1_000_000))
                for query, reason, count in change.rebuilt
            ],
        )


def _print_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in columns:
        left = name in ("old", "new", "query", "because", "quantity", "experiment")
        table.add_column(name, justify="left" if left else "right")
    for row in rows[:LISTED]:
        table.add_row(*row)
    console.print(table)
    if len(rows) > LISTED:
        console.print(f"  … {len(rows) - LISTED:,} more (--json has all)")


def _unit(cost_model: str) -> str:
    return "operations/s" if cost_model == "paper" else "CPU-s/s"


def _figures(before: float, after: float) -> str:
    percent = f" ({(after - before) / before:+.1%})" if before and before != after else ""
    return f"{before:.6g} -> {after:.6g}{percent}"


# ------------------------------------------------------------------------------------------ what-if
@app.command(
    "what-if",
    epilog="Examples: heddle what-if --warehouse var/warehouse --add new.sql --remove hourly_volume   "
    "|   heddle what-if q.sql --streams streams.yaml --rate tradesx10",
)
def what_if(
    files: OptionalFiles = None,
    streams: OptionalStreams = None,
    warehouse: OptionalHouse = None,
    add: Annotated[list[Path] | None, typer.Option("--add", help="A workload file; may be given again.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="A query's name; may be given again.")] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", help="STREAM=TUPLES_PER_SECOND, or STREAMxFACTOR; may be given again."),
    ] = None,
    base_rate: Annotated[
        list[str] | None,
        typer.Option("--base-rate", help="STREAM=TUPLES_PER_SECOND before the change, for FILES. Default: measured."),
    ] = None,
    algorithm: Annotated[
        Algorithm | None, typer.Option("--algorithm", help="Default: the plan's.", show_default=False)
    ] = None,
    cost_model: Annotated[
        CostModel | None, typer.Option("--cost-model", help="Default: the plan's.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cost and trees if queries came or went or rates changed, beside the stored plan (or FILES'). Stores nothing."""
    from spark_jobs.planning import model_of
    from spark_jobs.what_if import RateChange
    from spark_jobs.what_if import what_if as ask

    failed = False
    with _coded():
        changes = [RateChange.parse(text) for text in rate or []]
        if warehouse is not None and not files:
            base, _ = _stored(warehouse)
        elif files and streams is not None:
            chosen = algorithm or Algorithm.best, cost_model or CostModel.paper
            base, failed, _ = _built(files, streams, base_rate or [], *chosen, _house(warehouse))
        else:
            raise typer.BadParameter("give FILES and --streams, or --warehouse")
        extra, rates, wrong = _additional(base, add or [], streams, changes)
        model = None
        if cost_model is not None and cost_model.value != base.cost_model:
            model = model_of(cost_model.value, [], _house(warehouse))
        found = ask(
            base, extra.queries, remove or [], changes, extra, rates, algorithm.value if algorithm else None, model
        )
    if as_json:
        kept = {"cost_kept": float(found.kept), "cost_model": found.after.cost_model}
        _print_json(found.diff.to_json() | kept)
    else:
        unit = _unit(found.after.cost_model)
        before, kept_cost, after = float(found.before.cost), float(found.kept), float(found.after.cost)
        console.print("what if (nothing is stored)")
        console.print(f"  now                        {before:>12.6g} {unit}", highlight=False)
        console.print(f"  then, trees as they are    {kept_cost:>12.6g} {unit}", highlight=False)
        console.print(f"  then, planned again        {after:>12.6g} {unit}", highlight=False)
        show_diff(found.diff, found.after)
    raise typer.Exit(1 if failed or wrong else 0)


def _additional(
    base: SharingPlan, files: Sequence[Path], streams: Path | None, changes: Sequence[Any]
) -> tuple[Workload, dict[str, Fraction], bool]:
    """The queries to add, the rates of streams that only they read, and whether something was not usable."""
    from optimizer.parser import load_workload
    from optimizer.query import Workload
    from spark_jobs.planning import load_inputs, rates_of

    known = {stream.name: stream for stream in base.workload.streams}
    diagnostics: list[Diagnostic] = []
    if files and streams is not None:
        inputs = load_inputs([], streams)
        diagnostics += inputs.diagnostics
        known = {stream.name: stream for stream in inputs.workload.streams} | known
    for path in files:
        if not path.is_file():
            raise HeddleError("HDL-111", f"there is no file {path}", "check the path", file=str(path))
    found, wrong = load_workload(files, known)
    diagnostics += wrong
    read = {stream.name for stream in base.workload.streams}
    new = Workload(tuple(query for query in found.queries if query.stream not in read), found.streams)
    given = {change.stream: change.number for change in changes if not change.is_factor and change.stream not in read}
    rates, _, unreadable = rates_of(new, given)
    diagnostics += unreadable
    _tell(diagnostics)
    return found, rates, any(told.severity == "error" for told in diagnostics)


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
    algorithm: AlgorithmOption = Algorithm.best,
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
        made, failed, paused = _built(files, streams, rate or [], algorithm, cost_model, house)
        version, changed = publish_plan(house, made, "heddle run", paused=paused)
        errors.print(f"plan version {version}{' (new)' if changed else ''}: {len(made.trees)} trees", highlight=False)
        record = _run(house, version, first, last, recompute)
    if as_json:
        _print_json(record)
    else:
        _show_record(record)
    _tell([Diagnostic(**found) for found in record["diagnostics"]])
    raise typer.Exit(1 if failed or record["diagnostics"] else 0)


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
    from spark_jobs.planning import due
    from spark_jobs.sources import format_instant, parse_instant
    from spark_jobs.tables import Warehouse

    with _coded():
        clock = parse_instant(at) if at is not None else time.time_ns() // 1000
        house = Warehouse.open(warehouse, create=False)
        _stored(warehouse)
        found = due(house, clock, parse_instant(begin) if begin else None)
        if found is None:
            if as_json:
                _print_json({"status": "nothing due", "at": format_instant(clock)})
            else:
                console.print(f"nothing is due at {format_instant(clock)}", highlight=False)
            return
        record = _run(house, found.plan_version, found.begin, found.end, False, clock, found.late)
    if as_json:
        _print_json(record)
    else:
        _show_record(record)
    _tell([Diagnostic(**problem) for problem in record["diagnostics"]])
    raise typer.Exit(1 if record["diagnostics"] else 0)


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
    from optimizer.parser import parse_duration
    from spark_jobs.history import prices
    from spark_jobs.sources import parse_instant
    from spark_jobs.tables import Warehouse

    with _coded():
        house = Warehouse.open(warehouse, create=False)
        _, version = _stored(warehouse)
        size = parse_duration(every)
        if size <= 0:
            raise HeddleError("HDL-115", "--every is a duration longer than 0", "e.g. --every '7 days'")
        with errors.status("listing sources"):
            found = prices(house, version, parse_instant(begin), parse_instant(end), time.time_ns() // 1000, size)
        wanted = [(one.begin, one.end) for one in found if not one.published]
        told = [
            [
                _interval(one.begin, one.end),
                "yes" if one.published else "no",
                f"{one.events:,}",
                f"{one.cpu_seconds:.0f}",
            ]
            for one in found
        ]
        if not as_json:
            _print_rows("the runs of this backfill", ("interval", "published", "events to read", "CPU-s"), told)
            total = sum(one.events for one in found), sum(one.cpu_seconds for one in found)
            console.print(f"{len(wanted)} runs, about {total[0]:,} events and {total[1]:.0f} CPU-s", highlight=False)
        records = [] if dry_run or not wanted else _runs(house, version, wanted, "backfill")
    if as_json:
        _print_json(
            {"format_version": 1, "plan_version": version, "runs": [asdict(one) for one in found]} | _ran(records)
        )
    raise typer.Exit(_finish(records))


@app.command(epilog="Examples: heddle repair --warehouse var/warehouse --dry-run   |   heddle repair --warehouse house")
def repair(warehouse: House, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Find the published intervals whose source has changed since (late events, files that came or went) and publish
    them again, as new revisions, by the stored plan. Needs no JVM to find them."""
    from spark_jobs.history import outdated
    from spark_jobs.tables import Warehouse

    with _coded():
        house = Warehouse.open(warehouse, create=False)
        _, version = _stored(warehouse)
        with errors.status("comparing sources with what was published"):
            found = outdated(house, time.time_ns() // 1000)
        if not as_json:
            told = [
                [
                    _interval(one.begin, one.end),
                    str(one.revision),
                    *(f"{count:,}" for count in (one.radius.files, one.radius.rows, one.radius.fragments)),
                    f"{len(one.radius.queries):,}",
                    f"{one.radius.windows:,}",
                ]
                for one in found
            ]
            columns = ("interval", "revision", "files", "late events", "fragments", "queries", "windows")
            if told:
                _print_rows("published of sources that changed", columns, told)
            else:
                console.print("everything published is of its sources as they are", highlight=False)
        spans = [(one.begin, one.end) for one in found]
        records = [] if dry_run or not spans else _runs(house, version, spans, "repair")
    if as_json:
        _print_json({"format_version": 1, "outdated": [asdict(one) for one in found]} | _ran(records))
    raise typer.Exit(_finish(records))


@app.command(
    epilog="Examples: heddle quarantine --warehouse house   |   heddle quarantine --warehouse DIR --release part-7.csv"
)
def quarantine(
    warehouse: House,
    take: Annotated[
        list[str] | None, typer.Option("--release", help="Take in what is refused of a file.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The files with events that came later than their stream's allowed_lateness, so that they are left out of what is
    published; --release takes them in: `heddle repair` publishes anew what they change. Needs no JVM."""
    from spark_jobs.arrivals import refusals, release
    from spark_jobs.sources import format_instant
    from spark_jobs.tables import Warehouse

    with _coded():
        house = Warehouse.open(warehouse, create=False)
        released = release(house, take) if take else []
        found = refusals(house)
    if as_json:
        _print_json(
            {
                "format_version": 1,
                "refused": [asdict(one) for one in found],
                "released": [asdict(one) for one in released],
            }
        )
        return
    for one in released:
        console.print(f"released: {one.late:,} events of {one.path}; `heddle repair` takes them in", highlight=False)
    rows = [
        [one.stream, Path(one.path).name, format_instant(one.arrived), f"{one.late:,}", spans]
        for one in found
        for spans in ["; ".join(_interval(*span) for span in one.refused)]
    ]
    if rows:
        _print_rows("events that came too late", ("stream", "file", "came", "events", "of"), rows)
    else:
        console.print("no event came too late", highlight=False)


@app.command(epilog="Examples: heddle rollback 3 --warehouse var/warehouse --reason 'slower since 4'")
def rollback(
    plan_version: Annotated[int, typer.Argument(help="The version to go back to.", show_default=False)],
    warehouse: House,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the plan.")] = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make an earlier plan the plan in force, queries and all, as a new version: runs that started keep theirs, stored
    partial aggregates of its synopses are used again. Queries that are paused stay so. The next refresh plans anew from
    the registered files."""
    from optimizer.plan import diff as diff_plans
    from spark_jobs.planning import publish_plan, replanned, without_paused
    from spark_jobs.tables import Warehouse

    with _coded():
        house = Warehouse.open(warehouse, create=False)
        current, newest = _stored(warehouse)
        earlier, _ = _stored(warehouse, plan_version)
        workload, paused = without_paused(earlier.workload, house)
        if paused:
            earlier = replanned(earlier, workload)
        change = diff_plans(current, earlier)
        version = newest
        if not dry_run:
            version, _ = publish_plan(house, earlier, "heddle rollback", reason or f"back to version {plan_version}")
    if as_json:
        _print_json(change.to_json() | {"from": newest, "to": plan_version, "version": version, "dry_run": dry_run})
        return
    console.print(f"plan version {newest} -> {plan_version}" + ("" if dry_run else f", as {version}"), highlight=False)
    show_diff(change, earlier)


# ---------------------------------------------------------------------------------------- lifecycle
Names = Annotated[list[str], typer.Argument(help="Names of queries.", metavar="QUERY...", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Kept with the event and the plan.")]


@app.command(epilog="Example: heddle pause hourly_volume by_host --warehouse var/warehouse --reason 'costs too much'")
def pause(names: Names, warehouse: House, reason: Reason = "", as_json: AsJson = False) -> None:
    """Answer some queries no more until they are resumed: a new plan version without them, at once, and so every later
    one. They stay registered and their published answers stay, also where their intervals are run again. Needs no
    JVM."""
    _pause_or_resume(names, warehouse, "paused", reason, as_json)


@app.command(epilog="Example: heddle resume hourly_volume --warehouse var/warehouse")
def resume(names: Names, warehouse: House, reason: Reason = "", as_json: AsJson = False) -> None:
    """Answer paused queries again, from the next run on, by a new plan version; `heddle backfill` fills the gap. Needs
    no JVM."""
    _pause_or_resume(names, warehouse, "resumed", reason, as_json)


def _pause_or_resume(
    names: Sequence[str], warehouse: Path, event: Literal["paused", "resumed"], reason: str, as_json: bool
) -> None:
    from spark_jobs.planning import pause_or_resume
    from spark_jobs.tables import Warehouse

    with _coded():
        found = pause_or_resume(Warehouse.open(warehouse, create=False), event, names, reason)
    if as_json:
        _print_json(found)
        return
    for what, which in ((event, found["queries"]), (f"{event} already", found["already"])):
        if which:
            console.print(f"{what}: {', '.join(which)}", highlight=False, soft_wrap=True)
    console.print(f"plan version {found['version']}{' (new)' if found['changed'] else ''}", highlight=False)
    for line in found["diff"]:
        console.print(f"  {line}", highlight=False, soft_wrap=True)


@app.command(
    epilog="Examples: heddle queries --warehouse var/warehouse   "
    "|   heddle queries --warehouse var/warehouse --history hourly_volume"
)
def queries(
    warehouse: House,
    history: Annotated[
        str | None, typer.Option("--history", help="All that happened to this query.", metavar="QUERY")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", help="The clock that lifetimes are compared with (UTC). Default: now.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every query that was ever registered: whose it is, whether it is running, paused, expired or removed, since when
    and until when, and the newest plan that has it. Needs no JVM."""
    from spark_jobs.lifecycle import check_registered, events, registered
    from spark_jobs.sources import format_instant, parse_instant
    from spark_jobs.tables import Warehouse, micros

    with _coded():
        clock = parse_instant(at) if at is not None else time.time_ns() // 1000
        house = Warehouse.open(warehouse, create=False)
        told = events(house)
        held = registered(told)
        if history is not None and history not in held:
            check_registered(held, [history])
    if history is not None:
        mine = [
            {
                "at": format_instant(micros(row["at"])),
                "event": row["event"],
                "owner": row["owner"] or "",
                "fingerprint": row["fingerprint"],
                "plan_version": row.get("plan_version"),
                "reason": row.get("reason") or "",
                "text": row["text"] or "",
            }
            for row in told
            if row["query"] == history
        ]
        if as_json:
            _print_json({"query": history, "events": mine})
        else:
            _print_table(
                f"history of {history}", ("at", "event", "owner", "fingerprint", "plan_version", "reason"), mine
            )
        return
    versions: dict[str, int] = {}
    for row in house.rows("sharing_plans", ["plan_version", "query"]):
        versions[row["query"]] = max(versions.get(row["query"], 0), row["plan_version"])
    found = [
        {
            "query": name,
            "owner": one.query.owner,
            "state": one.state(clock),
            "paused": one.paused,
            "stream": one.query.stream,
            "registered": format_instant(one.since),
            "until": format_instant(one.query.until) if one.query.until is not None else None,
            "fingerprint": one.query.fingerprint,
            "plan_version": versions.get(name),
            "text": one.query.text,
        }
        for name, one in sorted(held.items())
    ]
    if as_json:
        _print_json({"queries": found})
        return
    states = [one["state"] for one in found]
    counted = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    columns = ("query", "owner", "state", "stream", "registered", "until", "fingerprint", "plan_version")
    _print_table(counted or "no query was ever registered", columns, found)


STATES = ("running", "paused", "expired", "removed")


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows, each value as it is, fingerprints in short."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        cells = {"fingerprint": str(row["fingerprint"])[:8]}
        table.add_row(*(cells.get(name) or ("" if row[name] is None else str(row[name])) for name in columns))
    console.print(table)


@app.command(
    epilog="Examples: heddle maintain --warehouse DIR --dry-run   |   heddle maintain --warehouse DIR --keep '90 days'"
)
def maintain(
    warehouse: House,
    keep: Annotated[
        str, typer.Option("--keep", help="Keep partial aggregates so long beyond the longest window.")
    ] = "30 days",
    retention: Annotated[
        str, typer.Option("--retention", help="Keep files that nothing refers to so long, for readers.")
    ] = "7 days",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge small files, drop partial aggregates that no recent plan uses, remove files that nothing refers to. Answers
    do not change; runs and readers go on. Needs no JVM."""
    from optimizer.parser import parse_duration
    from spark_jobs.maintenance import maintain as maintain_warehouse
    from spark_jobs.tables import Warehouse

    with _coded(), errors.status("reading the logs") as status:
        house = Warehouse.open(warehouse, create=False)
        spans = parse_duration(keep), parse_duration(retention)
        if min(spans) < 0:
            raise HeddleError("HDL-115", "--keep and --retention are durations, not negative", "e.g. '7 days'")
        found = maintain_warehouse(house, *spans, dry_run, report=lambda line: status.update(line))
    if as_json:
        _print_json(found.to_json() | {"dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    for line in found.damaged:
        told = f"damaged: {line}; the partial aggregates of its day {would}dropped, and computed again when needed"
        errors.print(told, highlight=False, markup=False)
    console.print(f"{found.merged:,} small files {would}merged into {found.into:,}", highlight=False)
    dropped = f"{found.rows_of_no_plan:,} of no recent plan, {found.rows_too_old:,} older than any window"
    console.print(f"partial rows {would}dropped: {dropped}", highlight=False)
    console.print(f"{found.removed:,} files {would}removed that nothing refers to", highlight=False)


def _interval(begin: int, end: int) -> str:
    from spark_jobs.sources import format_instant

    return f"{format_instant(begin)} .. {format_instant(end)}"


def _ran(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"records": list(records)} if records else {}


def _finish(records: Sequence[dict[str, Any]]) -> int:
    """Tell what went wrong in some runs; the exit code."""
    problems = [Diagnostic(**problem) for record in records for problem in record["diagnostics"]]
    _tell(problems)
    return 1 if problems else 0


def _runs(house: Warehouse, version: int, spans: Sequence[tuple[int, int]], kind: str) -> list[dict[str, Any]]:
    """Several intervals in one session, with a progress bar; what was published stays if one fails."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from spark_jobs.run import run as run_interval
    from spark_jobs.session import start_session

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    records = []
    with Progress(*columns, console=errors) as bar:
        line = bar.add_task("starting Spark", total=len(spans))
        spark = start_session(f"heddle {kind}")
        try:
            for begin, end in spans:
                bar.update(line, description=_interval(begin, end))
                run_id = f"{kind}/{_interval(begin, end)}"
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
    if record["refreshes"]:
        first, *others = record["refreshes"]
        told = f"  refreshes: {first['queries']} queries at {first['at']}"
        console.print(told + (f" and {len(others)} more instants" if others else ""), highlight=False)
    if record["late"]:
        told = f"  this run came late: {len(record['lateness'])} queries beyond their bounds"
        console.print(told + "; it stands for all refreshes since the run before", highlight=False)
    if record["radius"]:
        found = record["radius"]
        told = f"{found['files']:,} files, {found['rows']:,} late events in {found['fragments']:,} fragments"
        told += f", {len(found['queries']):,} queries, {found['windows']:,} windows"
        console.print(f"  changed since the revision before: {told}", highlight=False)
        if record["narrow"]:
            console.print("  only these windows were published again: the others keep their revision", highlight=False)
    for stream, events in record["repeated"].items():
        console.print(f"  {stream}: {events:,} events had come before and were left out", highlight=False)
    for stream, events in record["refused"].items():
        told = f"{events:,} events came later than is allowed and are left out: `heddle quarantine`"
        console.print(f"  {stream}: {told}", highlight=False)
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
    as_json: AsJson = False,
) -> None:
    """The published answers of a query, under its own column names. Needs no JVM."""
    from spark_jobs.read import read as read_answers
    from spark_jobs.sources import parse_instant
    from spark_jobs.tables import Warehouse

    if as_json and format not in (Format.table, Format.json):
        raise typer.BadParameter(f"--json is --format json, not {format.value}")
    format = Format.json if as_json else format
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


# ------------------------------------------------------------------------------------------- lookup
@app.command(
    epilog="Examples: heddle lookup by_symbol --warehouse house --at 2013-07-01T12:00 --group AAPL; "
    "heddle lookup by_symbol --warehouse house --range '3 hours' --ending-at 2013-07-01T12:00 --having 'n >= 100'; "
    "heddle lookup by_symbol --warehouse house --from 2013-07-01 --to 2013-07-02 --format csv"
)
def lookup(
    query: Annotated[str, typer.Argument(help="Name of the query.", show_default=False)],
    warehouse: House,
    at: Annotated[str | None, typer.Option("--at", help="Its newest answer at this instant (UTC).")] = None,
    range_: Annotated[
        str | None, typer.Option("--range", help="Another window: of this length, e.g. '3 hours', with --ending-at.")
    ] = None,
    ending_at: Annotated[str | None, typer.Option("--ending-at", help="End of the window of --range.")] = None,
    begin: Annotated[str | None, typer.Option("--from", help="Another window: its start, with --to.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="End of the window, exclusive.")] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Only this group: its values in the query's order, as a line of CSV; \\N: null."),
    ] = None,
    having: Annotated[
        str | None, typer.Option("--having", help="Thresholds instead of the query's, e.g. 'n >= 100 AND high < 5'.")
    ] = None,
    plan_version: Annotated[
        int | None, typer.Option("--plan-version", help="Use this plan's partial aggregates. Default: the newest.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.table,
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file (parquet needs one).")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most rows of the table format; 0: all.")] = 40,
    as_json: AsJson = False,
) -> None:
    """Answer a query from the stored partial aggregates, at any instant or over another window. Needs no JVM."""
    from optimizer.parser import parse_duration
    from spark_jobs.lookup import Reader, parse_group, parse_having
    from spark_jobs.sources import parse_instant

    asked = at is not None, range_ is not None and ending_at is not None, begin is not None and end is not None
    given = sum(one is not None for one in (at, range_, ending_at, begin, end))
    if sum(asked) != 1 or given != (1 if at is not None else 2):
        raise typer.BadParameter("say when: --at, or --range with --ending-at, or --from with --to")
    if having is not None and at is not None:
        raise typer.BadParameter("--having is for other windows (--range, --from); --at answers the query as it is")
    if as_json and format not in (Format.table, Format.json):
        raise typer.BadParameter(f"--json is --format json, not {format.value}")
    format = Format.json if as_json else format
    if format is Format.parquet and output is None:
        raise typer.BadParameter("--format parquet needs --output FILE")
    with _coded():
        lookups = Reader(warehouse, plan_version).query(query)
        chosen = parse_group(lookups.query, _csv_line(group)) if group is not None else None
        if at is not None:
            table = lookups.at(parse_instant(at), chosen)
        else:
            last = parse_instant(ending_at or end or "")
            first = parse_instant(begin) if begin is not None else last - parse_duration(range_ or "")
            wanted = parse_having(lookups.query, having) if having is not None else True
            table = lookups.window(first, last, wanted, chosen)
    _deliver_answers(table, query, format, output, limit)


def _csv_line(text: str) -> list[str]:
    import csv

    try:
        return next(csv.reader([text]), [""])
    except csv.Error:
        raise HeddleError("HDL-605", "--group is no line of CSV", "its values in the query's order") from None


def _deliver_answers(table: pa.Table, query: str, format: Format, output: Path | None, limit: int) -> None:
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
        "recomputed": {
            "queries": sum(row["check"].startswith(RECOMPUTED) for row in checks),
            "different": sum(row["check"].startswith(RECOMPUTED) and not row["success"] for row in checks),
        },
        "refreshes": _lateness(made, runs),
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
    compared = data["recomputed"]
    told = f"{compared['queries']:,}, different {compared['different']}"
    console.print(f"sampled queries recomputed unshared from raw events: {told}", highlight=False)
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
        "predicted",
        "error",
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
            # older runs were not predicted, nor are those that failed
            _told(found.get("predicted_cpu_seconds"), ".1f"),
            _told(found.get("prediction_error"), "+.0%"),
            f"{sum(found['wall_seconds'].values()):.1f}",
            f"{passed}/{len(found['checks'])}",
        )
    console.print(table)
    if data["refreshes"]:
        late = [found for found in data["refreshes"] if found["late_seconds"]]
        console.print(
            f"queries with a refresh bound: {len(data['refreshes'])}, of which {len(late)} were late in these runs",
            highlight=False,
        )
        shown = sorted(data["refreshes"], key=lambda found: -found["late_seconds"])[:TREES_SHOWN]
        rows = [
            [
                found["query"],
                _seconds(found["at_most_seconds"]),
                _seconds(found["every_seconds"]),
                found["answered"] or "never",
                _seconds(found["late_seconds"]) if found["late_seconds"] else "",
                str(found["late_runs"]) if found["late_runs"] else "",
            ]
            for found in shown
        ]
        _print_rows("refreshes", ("query", "at most", "scheduled", "answered", "latest by", "late runs"), rows)
    for found in data["runs"]:
        _tell([Diagnostic(**told) for told in found["diagnostics"]])


def _lateness(made: SharingPlan, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each query with a refresh bound when it was answered last, and how late it was, newest run first."""
    from optimizer.refreshes import rhythms
    from spark_jobs.sources import format_instant

    records = [json.loads(row["record"]) for row in runs if row["event"] == "published"]
    found = []
    for one in (one for schedule in made.schedules for one in rhythms(schedule)):
        answered = max((record.get("refreshed", {}).get(one.query, 0) for record in records), default=0)
        late = [record["lateness"][one.query] for record in records if one.query in record.get("lateness", {})]
        found.append(
            {
                "query": one.query,
                "at_most_seconds": one.bound / 1e6,
                "every_seconds": float(one.average) / 1e6,
                "answered": format_instant(answered) if answered else None,
                "late_seconds": max(late, default=0) / 1e6,
                "late_runs": len(late),
            }
        )
    return found


def _told(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)


# -------------------------------------------------------------------------------------- experiments
@app.command(
    epilog="Examples: heddle experiments --list   |   heddle experiments f1 --figure 7   "
    "|   heddle experiments weave-share --full --output var/experiments"
)
def experiments(
    paper: Annotated[Paper | None, typer.Argument(help="Whose figures to measure.", show_default=False)] = None,
    figure: Annotated[str | None, typer.Option("--figure", help="Only this figure or table (see --list).")] = None,
    full: Annotated[bool, typer.Option("--full", help="The papers' whole ranges (minutes each).")] = False,
    output: Annotated[Path, typer.Option("--output", help="Folder for the CSV and PNG files.")] = Path(
        "var/experiments"
    ),
    listing: Annotated[bool, typer.Option("--list", help="List the experiments and what the papers claim.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the papers' figures and tables again, on their workloads, beside what the papers say. Needs no JVM."""
    from optimizer.experiments import EXPERIMENTS, write

    chosen = [
        found
        for found in EXPERIMENTS.values()
        if (paper is None or found.paper == paper.value) and (figure is None or found.figure == figure)
    ]
    if listing:
        _list_experiments(chosen, as_json)
        return
    if paper is None:
        raise typer.BadParameter("say which paper (f1, weave-share, arasu-widom, sharon or golab), or --list")
    with _coded():
        if not chosen:
            figures = ", ".join(found.figure for found in EXPERIMENTS.values() if found.paper == paper.value)
            raise HeddleError("HDL-116", f"{paper.value} has no experiment for figure {figure}", f"figures: {figures}")
        told = []
        for experiment in chosen:
            outcome = _measured(experiment, "full" if full else "quick")
            try:
                paths = write(outcome, output)
            except OSError as error:
                message = f"{output} cannot be written: {error.strerror}"
                raise HeddleError("HDL-115", message, "check --output") from None
            told.append(_outcome_json(outcome, paths))
            if not as_json:
                _show_outcome(outcome, paths)
    if as_json:
        _print_json({"experiments": told})


def _list_experiments(chosen: Sequence[Experiment], as_json: bool) -> None:
    if as_json:
        columns = ("name", "paper", "figure", "title", "claim", "minutes")
        _print_json({"experiments": [{name: getattr(found, name) for name in columns} for found in chosen]})
        return
    table = Table(title="experiments", title_justify="left")
    for name in ("paper", "figure", "title", "the paper says", "minutes (--full)"):
        table.add_column(name, justify="right" if name.startswith("minutes") else "left")
    for found in chosen:
        cells = (found.paper, found.figure, found.title, found.claim, f"{found.minutes:g}")
        table.add_row(*cells)
    console.print(table)


def _measured(experiment: Experiment, scale: str) -> Outcome:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.fields[name]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=errors, transient=True) as progress:
        task = progress.add_task("", total=None, name=experiment.name)

        def report(done: int, total: int, text: str) -> None:
            progress.update(task, completed=done, total=total, description=text)

        return experiment.run(scale, report)


def _outcome_json(outcome: Outcome, paths: Sequence[Path]) -> dict[str, Any]:
    experiment = outcome.experiment
    return {
        "name": experiment.name,
        "title": experiment.title,
        "claim": experiment.claim,
        "scale": outcome.scale,
        "summary": outcome.summary,
        "measured": {
            quantity: {"paper": said, "measured": ours} for quantity, (said, ours) in outcome.measured.items()
        },
        "files": [str(path) for path in paths],
    }


def _show_outcome(outcome: Outcome, paths: Sequence[Path]) -> None:
    from rich.markdown import Markdown

    from optimizer.experiments import table

    experiment = outcome.experiment
    for line in (
        f"{experiment.name}: {experiment.title} ({outcome.scale})",
        f"  the paper says: {experiment.claim}",
        f"  we measured:    {outcome.summary}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if outcome.measured:
        console.print(Markdown(table([outcome])))
    console.print(f"  {', '.join(map(str, paths))}", markup=False, highlight=False, soft_wrap=True)


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

    from spark_jobs.calibration import FILE, calibrate, fit, observations_of, store
    from spark_jobs.tables import Warehouse

    if warehouse is not None and quick:
        raise typer.BadParameter("--quick is for measuring; with --warehouse nothing is measured")
    with _coded():
        if warehouse is not None:
            house = Warehouse.open(warehouse, create=False)
            seen = observations_of(house)
            if not seen:
                raise HeddleError("HDL-515", "no run of this warehouse recorded what it took", "run it first")
            found = fit(seen)
            store(house.root / FILE, found)
        else:
            from spark_jobs.session import start_session

            with errors.status("starting Spark") as status, tempfile.TemporaryDirectory() as place:
                spark = start_session("heddle calibrate")
                try:
                    found = calibrate(
                        spark, Path(place), quick, report=lambda line: status.update(Text(printable(line)))
                    )
                finally:
                    spark.stop()
    if output is not None:
        _write(output, _json(found.to_json()))
    if as_json:
        _print_json(found.to_json())
    elif warehouse is not None or output is None:
        _show_costs(found)


def _show_costs(found: Fit) -> None:
    from spark_jobs.statistics import FEATURES

    table = Table(title=f"CPU time a unit, from {len(found.residuals)} runs", title_justify="left")
    for name, justify in (("", "left"), ("CPU-s", "right"), ("a unit is", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for feature, cost in found.costs.items():
        table.add_row(feature, f"{cost:.3g}", FEATURES[feature])
    console.print(table)
    if found.error is not None:
        console.print(f"half of the runs are explained to within {found.error:.0%}", highlight=False)


if __name__ == "__main__":
    app()
