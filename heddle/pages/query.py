"""One query: its answers over time, its text, its sharing and cost, its runs, and ways to read it elsewhere.

The values are read by :func:`spark_jobs.operations.answers.read_query`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from heddle.pages.folding import Table, fold
from heddle.pages.formats import count, duration, figure, instant, interval, number, seconds, window_text
from heddle.pages.lines import LineChart, line_chart
from heddle.pages.operations import ROWS_SHOWN
from heddle.pages.plan import Tile
from heddle.pages.render import render
from heddle.pages.spans import Link, field_of, span_links
from optimizer.workload.attributes import described_joins
from optimizer.workload.instants import format_instant
from optimizer.workload.values import SECOND
from spark_jobs.operations.series import FailedAnswer, Group, Happened, QueryCost, QueryRun, QueryView


@dataclass(frozen=True)
class Snippet:
    """Text to copy that reads the answers in some language."""

    title: str
    text: str


@dataclass(frozen=True)
class CostText:
    """Cost of the query, in sentences; ``compared``: the cost measured unshared, "" if there is none."""

    share: str
    measured: str
    estimated: str
    compared: str


@dataclass(frozen=True)
class QueryPage:
    """All that the page of a query shows."""

    view: QueryView
    tiles: Sequence[Tile]
    facts: Sequence[tuple[str, str]]
    spans: Sequence[Link]
    groups: Sequence[Link]
    begin: str
    end: str
    shown: str
    charts: Sequence[tuple[str, LineChart]]
    failed: Table[FailedAnswer]
    runs: Table[QueryRun]
    history: Table[Happened]
    cost: CostText | None
    snippets: Sequence[Snippet]
    data: Sequence[tuple[str, str]]
    """The answers of the span as files: the name of the form, and the address."""


def page(view: QueryView) -> str:
    """The page of a query."""
    return render("query.html.j2", page=query_page(view))


def query_page(view: QueryView) -> QueryPage:
    """Content of a query's page, as texts."""
    span = view.span
    drawn = [(lines.output, line_chart(lines.output, lines.lines)) for lines in view.outputs]
    return QueryPage(
        view=view,
        tiles=_tiles(view),
        facts=_facts(view),
        spans=span_links(span, lambda name: _address(view, span=name)),
        groups=_groups(view),
        begin=field_of(span.begin) if span.name == "between" else "",
        end=field_of(span.end) if span.name == "between" else "",
        shown=_shown(view),
        charts=[(output, chart) for output, chart in drawn if chart is not None],
        failed=_failed(view),
        runs=_runs(view.runs),
        history=_history(view.history),
        cost=_cost(view.cost) if view.cost is not None else None,
        snippets=snippets(view),
        data=[(form.upper(), _data_address(view, form)) for form in ("csv", "json")],
    )


def _tiles(view: QueryView) -> list[Tile]:
    newest = instant(view.newest[1]) if view.newest else "none"
    revision = f"from {instant(view.newest[0])}, revision {view.newest[2]}" if view.newest else "in this span"
    lateness = "no refresh bound" if view.late is None else f"late by {duration(view.late)}" if view.late else "on time"
    return [
        Tile("state", view.state, lateness, "ill" if view.late else ""),
        Tile("newest window ends", newest, revision),
        Tile("answers", number(view.answers), f"in this span, {count(view.revised, 'revised answer')}"),
        Tile("errors", number(view.failures), "answers in this span", "ill" if view.failures else "good"),
    ]


def _facts(view: QueryView) -> list[tuple[str, str]]:
    query, window = view.query, view.query.window
    facts = [
        ("stream", query.stream),
        ("owner", query.owner or "none"),
        ("window", ", ".join(window_text(window))),
        ("joins", "; ".join(join.removeprefix("joins ") for join in described_joins(query.columns()))),
        ("registered", format_instant(view.since // SECOND * SECOND)),
        ("file", _below(view.file)),
        ("fingerprint", query.definition),
    ]
    return [(name, text) for name, text in facts if text]


def _below(file: str) -> str:
    """A file's path, relative to the working directory if it is inside."""
    return str(Path(file).relative_to(Path.cwd())) if Path(file).is_relative_to(Path.cwd()) else file


# ------------------------------------------------------------------------------------------- what is chosen
def _address(view: QueryView, span: str = "", group: str | None = None) -> str:
    """The page of the same query with another span or group."""
    chosen = {"name": view.query.name}
    if span:
        chosen["span"] = span
    elif view.span.name == "between":
        chosen |= {"from": field_of(view.span.begin), "to": field_of(view.span.end)}
    else:
        chosen["span"] = view.span.name
    chosen["group"] = view.group if group is None else group
    return "query?" + urlencode({name: value for name, value in chosen.items() if value}, quote_via=quote)


def _groups(view: QueryView) -> list[Link]:
    if not view.query.group_by:
        return []
    label = f"all {view.groups}" if view.groups <= len(view.top) else f"the {len(view.top)} largest"
    top = Link(_address(view, group=""), label, not view.group)
    return [top, *(_group(view, group) for group in view.top)]


def _group(view: QueryView, group: Group) -> Link:
    note = "" if group.value is None else figure(group.value)
    return Link(_address(view, group=group.key), group.label or "''", group.key == view.group, note)


def _shown(view: QueryView) -> str:
    """Description of the answers in the charts."""
    span = view.span
    when = f"instants in ({instant(span.begin)}, {instant(span.end)}]" if span.begin and span.end else "all instants"
    if (span.begin is None) != (span.end is None):
        at = span.end if span.begin is None else span.begin
        when = f"instants {'up to' if span.begin is None else 'after'} {instant(at or 0)}"
    if view.query.group_by and not view.group and view.groups > len(view.top):
        when += f"; the {len(view.top)} of {count(view.groups, 'group')} with the largest newest values"
    if view.earlier:
        when += f"; {count(view.earlier, 'answer')} of earlier definitions are not drawn"
    return when


def _data_address(view: QueryView, form: str) -> str:
    """The address of the answers in the span as a file."""
    bounds = {"from": field_of(view.span.begin), "to": field_of(view.span.end)}
    chosen = {"name": view.query.name} | {name: text for name, text in bounds.items() if text} | {"format": form}
    return "query-data?" + urlencode(chosen, quote_via=quote)


# -------------------------------------------------------------------------------------------- tables
def _failed(view: QueryView) -> Table[FailedAnswer]:
    columns = [("instant (UTC)", 34), ("group", 33), ("error", 33)]
    return Table("log texts", columns, fold(view.failed, ROWS_SHOWN, view.failures, "error"))


def _runs(runs: Sequence[QueryRun]) -> Table[QueryRun]:
    columns = [
        *(("interval (UTC)", 30), ("status", 13), ("rev.", 8), ("plan", 8), ("late by", 13), ("CPU-s of the run", 14)),
        ("this query’s part", 14),
    ]
    return Table("log queryruns", columns, fold(runs, ROWS_SHOWN, len(runs), "run"))


def _history(history: Sequence[Happened]) -> Table[Happened]:
    columns = [("at (UTC)", 25), ("what", 20), ("plan version", 15), ("reason", 40)]
    return Table("log texts", columns, fold(history, ROWS_SHOWN, len(history), "event"))


def _cost(cost: QueryCost) -> CostText:
    share = (
        f"{cost.share:.2%} of the cost of plan version {cost.plan_version}: the fragments that its own windows "
        "combine, its answers, and an equal part of the rest of its tree’s cost."
    )
    measured = estimated = compared = ""
    if cost.runs:
        runs = "of the newest run" if cost.runs == 1 else f"of the newest {cost.runs} runs"
        measured = f"{_spent(cost.part)} of the {seconds(cost.measured)} CPU-s that were measured {runs} of this plan."
        measured += f" At this pace {cost.a_month} a month." if cost.a_month else ""
        estimated = (
            f"Estimate: {_spent(cost.unshared)} for these runs in a tree of its own. The cost model makes that of what "
            "was measured; nobody has measured it."
        )
    if cost.compared is not None:
        measure, saved = cost.compared, cost.compared.unshared - cost.compared.part
        compared = (
            f"Measured by heddle compare on {measure.at} for {interval(measure.begin, measure.end)}: "
            f"{_spent(measure.unshared)} unshared, as a plain Spark job, and {_spent(measure.part)} as its part of the "
            f"shared run: {_spent(abs(saved))} {'saved' if saved >= 0 else 'more'}."
        )
    return CostText(share, measured, estimated, compared)


def _spent(spent: float) -> str:
    return f"{spent:,.1f} CPU-s" if spent >= 10 else f"{spent:.3g} CPU-s"


# ------------------------------------------------------------------------------------------ snippets
def snippets(view: QueryView) -> list[Snippet]:
    """Code that reads the query's answers elsewhere; names and folders are quoted in the syntax of each language."""
    name, warehouse = view.query.name, view.warehouse
    statement = f'SELECT * FROM "{name.replace(chr(34), 2 * chr(34))}" ORDER BY window_end DESC LIMIT 20'
    shell, shell_name, shell_statement = (
        "'" + text.replace("'", "'\\''") + "'" for text in (warehouse, name, statement)
    )
    return [
        Snippet("Shell", f"heddle read {shell_name} --warehouse {shell} --format csv"),
        Snippet("SQL", f"heddle sql {shell_statement} --warehouse {shell}"),
        Snippet("Python", f"import heddle\n\nanswers = heddle.open({warehouse!r}).read({name!r})"),
        Snippet("DuckDB", f"import heddle\n\nheddle.connect({warehouse!r}).sql({statement!r})"),
        Snippet(
            "Spark",
            f"import heddle\n\nheddle.register(spark, {warehouse!r})\nspark.table({f'`{spark_name(name)}`'!r})",
        ),
    ]


def spark_name(query: str) -> str:
    """Name of a query's view in Spark, unless another query's name differs only in dots and dashes."""
    return re.sub("[.-]", "_", query)
