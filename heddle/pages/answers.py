"""All queries with their newest answers, a page of them at a time.

The values are read by :func:`spark_jobs.operations.answers.list_answers`. Searching and choosing is a form that the
server answers: the page runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from heddle.pages.formats import count, duration, figure, interval, number, window_text
from heddle.pages.lines import SPARK_HEIGHT, SPARK_WIDTH, sparkline
from heddle.pages.plan import Tile
from heddle.pages.render import render
from spark_jobs.operations.series import Choice, ListedQuery, Listing

STATES = ("running", "paused", "expired", "removed")


@dataclass(frozen=True)
class Spark:
    """A query's newest values as a small line: its path, the newest value, and what it is of, in words."""

    path: str
    value: str
    about: str


@dataclass(frozen=True)
class AnswerRow:
    """A query of the list as texts; "" if there is none."""

    name: str
    owner: str
    stream: str
    state: str
    window: str
    newest: str
    revision: str
    lateness: str
    is_late: bool
    note: str
    spark: Spark | None
    text: str


@dataclass(frozen=True)
class AnswersPage:
    """The list as a page shows it. ``before``, ``after``: addresses of its neighbours, "" where there is none;
    ``place``: which page this is, in words."""

    listing: Listing
    tiles: Sequence[Tile]
    rows: Sequence[AnswerRow]
    before: str
    after: str
    place: str
    about: str


def page(listing: Listing) -> str:
    """The list of answers as a page."""
    return render(
        "answers.html.j2",
        page=answers_page(listing),
        states=STATES,
        spark_width=SPARK_WIDTH,
        spark_height=SPARK_HEIGHT,
    )


def answers_page(listing: Listing) -> AnswersPage:
    """Content of the list of answers, as texts."""
    page = listing.choice.page
    first, last = listing.days
    about = f"newest answers of {first}{f' and {last}' if last != first else ''} (UTC days)" if first else ""
    return AnswersPage(
        listing=listing,
        tiles=_tiles(listing),
        rows=[_row(query) for query in listing.queries],
        before=_address(listing.choice, page - 1) if page > 1 else "",
        after=_address(listing.choice, page + 1) if page < listing.pages else "",
        place=f"{count(listing.total, 'query')}, page {page} of {listing.pages}",
        about=about,
    )


def _tiles(listing: Listing) -> list[Tile]:
    if not listing.states:
        return []
    tiles = [Tile(state, number(listing.states[state]), "queries") for state in STATES if state in listing.states]
    late = Tile("late", number(listing.late), "in the newest live run", "ill" if listing.late else "good")
    return [*tiles, late]


def _address(choice: Choice, page: int) -> str:
    chosen = {"q": choice.text, "owner": choice.owner, "state": choice.state, "page": str(page)}
    return "answers?" + urlencode({name: value for name, value in chosen.items() if value}, quote_via=quote)


def _row(query: ListedQuery) -> AnswerRow:
    notes = []
    if query.errors:
        notes.append(f"{count(query.errors, 'answer')} with an error")
    if query.is_missing and query.state == "running":
        notes.append("no answer in the newest run that has answers")
    if query.newest is None and query.state == "running":
        notes.append("no answer in the days read")
    return AnswerRow(
        name=query.name,
        owner=query.owner,
        stream=query.stream,
        state=query.state,
        window=", ".join(window_text(query.window)),
        newest=interval(*query.newest[:2]) if query.newest else "",
        revision=str(query.newest[2]) if query.newest else "",
        lateness=_lateness(query),
        is_late=bool(query.late),
        note="; ".join(notes),
        spark=_spark(query),
        text=query.text,
    )


def _lateness(query: ListedQuery) -> str:
    if query.late is None or query.state != "running":
        return ""
    return f"late by {duration(query.late)}" if query.late else "on time"


_GROUPINGS: Mapping[str, str] = {
    "": "{output}",
    "sum": "{output}, sum of {groups}",
    "largest": "{output}, max of {groups}",
}


def _spark(query: ListedQuery) -> Spark | None:
    series = query.sparkline
    if series is None:
        return None
    about = _GROUPINGS[series.grouping].format(output=series.output, groups=count(series.groups, "group"))
    return Spark(sparkline(series.samples, series.breaks), figure(series.samples[-1].value), about)
