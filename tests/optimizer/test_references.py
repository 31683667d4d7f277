"""What the parts of a SELECT are referred to by: names of items before, positions, expressions that are grouped by."""

from __future__ import annotations

import pytest

from optimizer.language.parser import parse
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream

TRADES = Stream(
    "trades", Source("parquet", "/t"), (("ts", TIMESTAMP), ("symbol", STRING), ("n", LONG), ("price", LONG)), "ts"
)


def fingerprint(text: str) -> str:
    """Of a query whose window is left out."""
    head, group, tail = text.partition("GROUP BY")
    parsed = parse(f"-- name: q\n{head} FROM trades WINDOW RANGE '1 hour' ON ts {group}{tail}", {"trades": TRADES})
    assert not parsed.diagnostics, parsed.diagnostics
    return parsed.queries[0].fingerprint


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("SELECT sum(price) AS s, s / 2 AS m", "SELECT sum(price) AS s, sum(price) / 2 AS m"),
        (
            "SELECT sum(price) AS s, S + 1 AS t, t * 2 AS u",
            "SELECT sum(price) AS s, sum(price) + 1 AS t, (sum(price) + 1) * 2 AS u",
        ),
        (
            "SELECT symbol, sum(price) AS s GROUP BY symbol ORDER BY 2 DESC, 1 LIMIT 3",
            "SELECT symbol, sum(price) AS s GROUP BY symbol ORDER BY s DESC, symbol LIMIT 3",
        ),
        (
            "SELECT upper(symbol) AS u, count(*) GROUP BY 1 ORDER BY 1 LIMIT 3",
            "SELECT upper(symbol) AS u, count(*) GROUP BY 1 ORDER BY u LIMIT 3",
        ),
    ],
)
def test_names_and_positions_stand_for_items_of_select(short: str, whole: str) -> None:
    assert fingerprint(short) == fingerprint(whole)


def test_a_column_of_the_stream_comes_before_the_name_of_an_item() -> None:
    text = "SELECT count(*) AS n, n / 2 AS half FROM trades WINDOW RANGE '1 hour' ON ts"
    assert [diagnostic.code for diagnostic in parse(text, {"trades": TRADES}).diagnostics] == ["HDL-105"]


def test_an_item_that_is_refused_is_reported_once() -> None:
    text = "SELECT sum(nosuch) AS s, count(*) AS c, s / c AS m FROM trades WINDOW RANGE '1 hour' ON ts"
    assert [diagnostic.code for diagnostic in parse(text, {"trades": TRADES}).diagnostics] == ["HDL-202"]


def test_what_is_grouped_by_is_recognised_inside_an_expression() -> None:
    group = "SELECT upper(symbol) AS u, count(*) AS c, length(upper(symbol)){0} AS l GROUP BY 1 HAVING {1} > 2"
    by_name = group.format(" + 0", "length(u)")
    assert fingerprint(by_name) == fingerprint(group.format(" + 0", "length(upper(symbol))"))
    assert fingerprint(group.format(" + c", "c")) == fingerprint(group.format(" + count(*)", "c"))
    assert fingerprint(group.format("", "c"))
