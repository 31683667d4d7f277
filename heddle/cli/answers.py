"""``heddle read`` and ``lookup``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from heddle.cli import terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, Format, OptionalBegin, OptionalEnd, Query, WarehouseOption
from heddle.cli.output import telling_errors, writing_to
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of
from spark_jobs.results.encoding import encoded, plain_value

if TYPE_CHECKING:
    import pyarrow as pa

    from optimizer.workload.values import ACQ
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from spark_jobs.windows.loading import QueryLookups


@app.command(
    epilog="Examples: heddle read hourly_volume --warehouse house --from 2013-07-01 --format csv   "
    "|   heddle read hourly_volume --warehouse house --last 5"
)
def read(
    query: Query,
    warehouse: WarehouseOption,
    begin: OptionalBegin = None,
    end: OptionalEnd = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.table,
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file (parquet needs one).")] = None,
    newest: Annotated[
        int | None, typer.Option("--last", min=1, help="Only the newest so many windows, newest first.", metavar="N")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most rows of the table format; 0: all.")] = 40,
    fill: Annotated[
        str | None,
        typer.Option("--fill", help="A row for each group at every published instant, with this number.", metavar="X"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the published answers of a query. Columns have the query's own names. Needs no JVM."""
    from spark_jobs.streams.sources.decoding import parse_instant

    format = chosen_format(format, output, as_json)
    with telling_errors():
        first, last = parse_instant(begin) if begin else None, parse_instant(end) if end else None
        value = None if fill is None else _number(fill)
        table, doubtful = _published(existing_warehouse(warehouse), query, first, last, newest, value)
    deliver_answers(table, query, format, output, limit, more={"unchecked": doubtful} if doubtful else {})
    for interval in doubtful:
        note = f"note: {interval['begin']} .. {interval['end']} was published with --checks {interval['checks']}"
        terminal.errors.print(note, highlight=False, soft_wrap=True)


def _published(
    warehouse: Warehouse, query: str, begin: int | None, end: int | None, newest: int | None, value: Decimal | None
) -> tuple[pa.Table, list[dict[str, str]]]:
    """The published answers of a query (with ``newest``, only of the newest windows), and its unchecked intervals."""
    from spark_jobs.results.read import check_answered, newest_windows, partly_checked
    from spark_jobs.results.read import read as read_answers

    table = read_answers(warehouse, query, begin, end)
    if not table.num_rows:
        check_answered(warehouse, query, begin, end)
    if value is not None:
        from spark_jobs.results.filling import filled

        table = filled(warehouse, query, table, value, begin, end)
    return table if newest is None else newest_windows(table, newest), partly_checked(warehouse, query, begin, end)


def _number(text: str) -> Decimal:
    """The number that ``--fill`` gives."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise typer.BadParameter(f"--fill takes a number such as 0, not {text!r}")
    return value


def chosen_format(format: Format, output: Path | None, as_json: bool) -> Format:
    """The format that options ask for, if they agree."""
    if as_json and format not in (Format.table, Format.json):
        raise typer.BadParameter(f"--json is --format json, not {format.value}")
    if format is Format.parquet and output is None:
        raise typer.BadParameter("--format parquet needs --output FILE")
    return Format.json if as_json else format


def show_answers(table: pa.Table, title: str, limit: int = 40, noun: str = "answer") -> None:
    """Answers as a table for people: the first ``limit`` rows (0: all)."""
    shown = Table(title=f"{title}: {number_of(table.num_rows, noun)}", title_justify="left")
    for field in table.schema:
        numeric = str(field.type) in ("int64", "double") or "decimal" in str(field.type)
        shown.add_column(field.name, justify="right" if numeric else "left", no_wrap=True)
    for row in (table.slice(0, limit) if limit else table).to_pylist():
        shown.add_row(*(_cell(value) for value in row.values()))
    terminal.console.print(shown)
    if limit and table.num_rows > limit:
        terminal.console.print(f"… {table.num_rows - limit:,} more (--limit 0 shows all)")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return _figure(value)
    if isinstance(value, datetime):
        return value.isoformat(" ").replace("+00:00", "")
    return str(plain_value(value) if isinstance(value, bytes) else value)


DIGITS = 5
"""Significant digits of doubles in tables."""


def _figure(value: float) -> str:
    """A double for people: integers without decimals, others by their significant digits, and never less than cents."""
    size = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    if not math.isfinite(value) or not -5 < size < 15:
        return f"{value:.{DIGITS}g}"
    text = f"{value:,.{max(2, DIGITS - 1 - size)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ------------------------------------------------------------------------------------------- lookup
@app.command(
    epilog="Examples: heddle lookup by_symbol --warehouse house --at 2013-07-01T12:00 --group AAPL; "
    "heddle lookup by_symbol --warehouse house --range '3 hours' --ending-at 2013-07-01T12:00 --having 'n >= 100'; "
    "heddle lookup by_symbol --warehouse house --from 2013-07-01 --to 2013-07-02 --format csv"
)
def lookup(
    query: Query,
    warehouse: WarehouseOption,
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
    """Answer a query at any instant, from stored partial aggregates. It can use another window, too. Needs no JVM."""
    from spark_jobs.streams.sources.decoding import parse_instant
    from spark_jobs.windows.loading import Reader, parse_group

    _check_when(at, range_, ending_at, begin, end, having)
    format = chosen_format(format, output, as_json)
    with telling_errors():
        forms = Reader(warehouse, plan_version).forms(query)
        chosen = parse_group(forms.query, _csv_line(group)) if group is not None else None
        if at is not None:
            instant = parse_instant(at)
            table = forms.answer(lambda lookups: lookups.at(instant, chosen))
        else:
            table = forms.answer(_window(forms.query, range_, ending_at, begin, end, having, chosen))
    deliver_answers(table, query, format, output, limit)


def _check_when(
    at: str | None,
    range_: str | None,
    ending_at: str | None,
    begin: str | None,
    end: str | None,
    having: str | None,
) -> None:
    ways = at is not None, range_ is not None and ending_at is not None, begin is not None and end is not None
    option_count = sum(option is not None for option in (at, range_, ending_at, begin, end))
    if sum(ways) != 1 or option_count != (1 if at is not None else 2):
        raise typer.BadParameter("say when: --at, or --range with --ending-at, or --from with --to")
    if having is not None and at is not None:
        raise typer.BadParameter("--having is for other windows (--range, --from); --at answers the query as it is")


def _window(
    query: ACQ,
    range_: str | None,
    ending_at: str | None,
    begin: str | None,
    end: str | None,
    having: str | None,
    group: Any,
) -> Callable[[QueryLookups], pa.Table]:
    """Answers over the window of ``--range`` and ``--ending-at``, or of ``--from`` and ``--to``."""
    from optimizer.workload.instants import parse_duration
    from spark_jobs.streams.sources.decoding import parse_instant
    from spark_jobs.windows.loading import parse_having

    last = parse_instant(ending_at or end or "")
    first = parse_instant(begin) if begin is not None else last - parse_duration(range_ or "")
    condition = parse_having(query, having) if having is not None else True
    return lambda lookups: lookups.window(first, last, condition, group)


def _csv_line(text: str) -> list[str]:
    import csv

    try:
        return next(csv.reader([text]), [""])
    except csv.Error:
        raise HeddleError("HDL-605", "--group is no line of CSV", "its values in the query's order") from None


def deliver_answers(
    table: pa.Table,
    query: str,
    format: Format,
    output: Path | None,
    limit: int,
    noun: str = "answer",
    more: Mapping[str, Any] | None = None,
) -> None:
    """Print answers, or write them to a file. ``more``: of the JSON object."""
    if format is Format.table:
        show_answers(table, query, limit, noun)
        return
    data = encoded(table, query, format.value, more or {})
    if output is not None:
        with telling_errors(), writing_to(output):
            output.write_bytes(data)
        terminal.errors.print(f"wrote {number_of(table.num_rows, noun)} to {output}", highlight=False)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
