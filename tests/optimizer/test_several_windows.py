"""Several windows in one answer: how they are written, what they are, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optimizer.language.parser import ParseResult, parse
from optimizer.plan.builder import build_plan
from optimizer.plan.explain import true_operations
from optimizer.windows.alignment import instants, progressions, starts_of
from optimizer.workload.instants import DAY, irregular_words
from optimizer.workload.values import (
    ACQ,
    ANY_WINDOW,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Source,
    Stream,
    Window,
    Workload,
    from_json,
    to_json,
)

COLUMNS = (("t", TIMESTAMP), ("user", STRING), ("amount", LONG), ("kind", STRING))
STREAM = Stream("payments", Source("parquet", "payments"), COLUMNS, "t", step=60 * SECOND)
HOUR = 3600 * SECOND
WINDOWS = "h AS (RANGE '1 hour'), d AS (RANGE '1 day'), w AS (RANGE '1 hour' ENDING '7 days' AGO)"


def parsed(text: str) -> ParseResult:
    return parse(text.replace("FROM p ", "FROM payments "), {"payments": STREAM})


def query(select: str, windows: str = WINDOWS, rest: str = "", slide: str = "SLIDE '1 hour'") -> ACQ:
    result = parsed(f"SELECT {select} FROM payments WINDOW {windows} {slide} ON t {rest}")
    assert not result.errors, result.errors
    (only,) = result.queries
    return only


def test_a_query_has_the_windows_that_its_aggregates_are_over() -> None:
    both = query("sum(amount) OVER d AS s, sum(amount) OVER h - sum(amount) OVER d AS less")
    assert both.window == Window.of_several([Window(HOUR, HOUR), Window(DAY, HOUR)])
    day = both.window.parts.index(Window(DAY, HOUR))
    assert both.outputs[0].window == day and [part.window for part in both.outputs[1].parts] == [1 - day, day]


def test_one_window_under_a_name_is_the_query_without_names() -> None:
    plain = parsed("SELECT sum(amount) AS s FROM payments WINDOW RANGE '1 day' SLIDE '1 hour' ON t").queries[0]
    assert query("sum(amount) OVER d AS s").fingerprint == plain.fingerprint
    same = query("sum(amount) OVER a AS s, count(*) OVER b AS n", "a AS (RANGE '1 day'), b AS (RANGE '24 hours')")
    assert not same.window.parts and {output.window for output in same.outputs} == {0}


def test_the_only_window_may_be_historical_in_a_calendar() -> None:
    text = "SELECT sum(amount) AS s FROM p WINDOW CUMULATE '1 month' STEP '1 day' ENDING '1 month' AGO IN 'UTC' ON t"
    (plain,) = parsed(text).queries
    named = query("sum(amount) OVER m AS s", "m AS (CUMULATE '1 month' ENDING '1 month' AGO)", slide="SLIDE '1 day'")
    assert len(named.window.parts) == 1 and named.fingerprint == plain.fingerprint


def test_names_and_order_of_windows_have_no_meaning() -> None:
    renamed = WINDOWS.replace("h AS", "x AS").replace("d AS", "y AS")
    first = query("sum(amount) OVER h AS a, sum(amount) OVER d AS b, sum(amount) OVER w AS c")
    backwards = ", ".join(reversed(renamed.split(", ")))
    assert query("sum(amount) OVER x AS a, sum(amount) OVER y AS b, sum(amount) OVER w AS c", backwards) == first


def test_stored_values_come_back() -> None:
    stored = query("sum(amount) OVER h AS a, count(*) OVER w AS c", rest="HAVING count(*) OVER d > 3")
    assert from_json(to_json(stored)) == stored


def test_a_list_of_windows_is_an_output_for_each() -> None:
    outputs = query("sum(amount) OVER (h, d) AS s, max(amount) OVER (d, w)").outputs
    assert [output.name for output in outputs] == ["s_h", "s_d", "max_amount_d", "max_amount_w"]


def test_outputs_without_names_have_those_of_their_windows() -> None:
    assert [output.name for output in query("count(*) OVER h, count(*) OVER d").outputs] == ["count_h", "count_d"]


def test_a_group_column_among_aggregates_is_of_any_window() -> None:
    made = query(
        "user, concat(user, CAST(count(*) OVER h AS string)) AS who, sum(amount) OVER d AS s", rest="GROUP BY user"
    )
    assert [part.window for part in made.outputs[0].parts] == [ANY_WINDOW, 0]


def test_conditions_and_orders_are_over_windows() -> None:
    rest = "GROUP BY user HAVING count(*) OVER h < 0.5 * count(*) OVER w ORDER BY sum(amount) OVER d DESC LIMIT 3"
    both = query("user, count(*) OVER h AS n", rest=rest)
    assert len(both.window.parts) == 3
    assert both.top is not None and both.top.orders[0].output.window == both.window.parts.index(Window(DAY, HOUR))


@pytest.mark.parametrize("slide", ["SLIDE '15 minutes'", "SLIDE AT MOST '1 hour'"])
def test_the_hull_has_the_instants_of_its_parts_and_starts_with_the_first(slide: str) -> None:
    window = query("count(*) OVER h, count(*) OVER d, count(*) OVER w", slide=slide).window
    due = instants(window, 0, DAY)
    assert all((due == instants(part, 0, DAY)).all() for part in window.parts)
    assert (due - starts_of(window, due) == 7 * DAY + HOUR).all() and window.reach == 7 * DAY + HOUR
    assert set(progressions([window])) == set(progressions(window.parts))
    assert window.ago == 0 and window.average == sum(part.average for part in window.parts)


@pytest.mark.parametrize(
    ("windows", "slide", "words"),
    [
        (WINDOWS, "SLIDE '1 hour'", ("1 hour, 1 day and 1 hour ending 1 week ago", "1 hour")),
        (
            "h AS (CUMULATE '1 month'), d AS (CUMULATE '1 month' ENDING '1 month' AGO), w AS (RANGE '1 day')",
            "SLIDE '1 day'",
            ("1 day in UTC, up to 1 month in UTC and up to 1 month in UTC ending 1 month ago", "1 day"),
        ),
        (
            "h AS (CUMULATE '1 month'), d AS (RANGE '7 days'), w AS (RANGE '1 day')",
            "SLIDE '1 day' IN 'Europe/Berlin'",
            ("1 day in Europe/Berlin, 1 week in Europe/Berlin and up to 1 month in Europe/Berlin", "1 day"),
        ),
    ],
)
def test_windows_in_words(windows: str, slide: str, words: tuple[str, str]) -> None:
    assert (
        irregular_words(query("count(*) OVER h, count(*) OVER d, count(*) OVER w", windows, slide=slide).window)
        == words
    )


def test_a_window_that_nothing_uses_is_warned_of() -> None:
    result = parsed(f"SELECT count(*) OVER h FROM payments WINDOW {WINDOWS} SLIDE '1 hour' ON t")
    assert [(each.code, each.severity) for each in result.diagnostics] == [("HDL-244", "warning")] * 2
    assert "window d" in result.diagnostics[0].message


@pytest.mark.parametrize(
    ("marked", "code", "message", "hint"),
    [
        ("^sum(amount) FROM payments WINDOW h AS (RANGE '1 hour') ON t", "HDL-244", "sum names no window", "OVER h"),
        ("^sum(amount) OVER x FROM payments WINDOW h AS (RANGE '1 hour') ON t", "HDL-244", "no window 'x'", "h"),
        ("^sum(amount) OVER x FROM payments WINDOW RANGE '1 hour' ON t", "HDL-244", "no window 'x'", "leave OVER out"),
        (
            "^sum(amount) OVER (h, h) + 1 AS n FROM payments WINDOW h AS (RANGE '1 hour') ON t",
            "HDL-244",
            "several",
            "one",
        ),
        (
            "^sum(amount) OVER (PARTITION BY user) FROM payments WINDOW RANGE '1 hour' ON t",
            "HDL-103",
            "name of a",
            "AS (",
        ),
        ("^sum(amount) OVER () FROM payments WINDOW RANGE '1 hour' ON t", "HDL-103", "name of a window", "AS ("),
        (
            "count(*) OVER h FROM payments WINDOW h AS (RANGE '1 hour'), ^H AS (RANGE '2 hours') SLIDE '1 hour' ON t",
            "HDL-244",
            "two windows are named 'H'",
            "its own name",
        ),
        (
            "count(*) OVER (h, d) FROM p WINDOW h AS (RANGE '1 hour'), d AS (RANGE ^'90 minutes') SLIDE '1 hour' ON t",
            "HDL-245",
            "do not end when those of h do",
            "1 hour and 2 hours",
        ),
        (
            "count(*) OVER (h, d) FROM p WINDOW h AS (RANGE '90 min'), d AS (CUMULATE ^'1 day') SLIDE '1 hour' ON t",
            "HDL-245",
            "do not end when those of h do",
            "slide apart",
        ),
        (
            "count(*) OVER (h, d) FROM p WINDOW h AS (RANGE '1 hour'), d AS (RANGE ^'1 day') ON t",
            "HDL-245",
            "no slide in common",
            "one SLIDE",
        ),
        (
            "count(*) OVER (h, d) FROM p WINDOW h AS (RANGE '1 month'), d AS (RANGE '1 day') SLIDE ^'1 day' ON t",
            "HDL-241",
            "RANGE is in months",
            "30 days",
        ),
        (
            "count(*) OVER (h, d) FROM p "
            "WINDOW h AS (RANGE '1 hour'), d AS (RANGE '1 hour' ENDING ^'1 month' AGO) ON t",
            "HDL-204",
            "months have no fixed length",
            "days",
        ),
        (
            "count(*) OVER (h, d) FROM p "
            "WINDOW h AS (CUMULATE '1 month'), d AS (CUMULATE '1 month' ENDING ^'1 hour' AGO) SLIDE '1 hour' ON t",
            "HDL-241",
            "days, weeks, months, quarters or years ago",
            "ENDING '1 day' AGO",
        ),
        (
            "count(*) OVER h FROM payments WINDOW h AS (CUMULATE '1 day') SLIDE AT MOST ^'1 hour' ON t",
            "HDL-241",
            "no refresh bound",
            "AT MOST",
        ),
        (
            "count(*) OVER h FROM payments WINDOW h AS (^ROWS 3) SLIDE '1 hour' ON t",
            "HDL-107",
            "RANGE or CUMULATE",
            "AS (",
        ),
        ("count(*) OVER h FROM payments WINDOW h AS (RANGE '1 hour') ^PARTITION BY user ON t", "HDL-107", "ON", "AS ("),
        (
            "count(*) OVER h FROM payments PATTERN ^SEQ(a, b) ON kind WINDOW h AS (RANGE '1 hour') SLIDE '1 hour' ON t",
            "HDL-222",
            "one window",
            "without a name",
        ),
        (
            "count(*) OVER w0 FROM payments WINDOW "
            + ", ".join(f"w{n} AS (RANGE '{n + 1} hours')" for n in range(16))
            + ", w16 AS (RANGE ^'17 hours') SLIDE '1 hour' ON t",
            "HDL-310",
            "17 windows",
            "split",
        ),
    ],
)
def test_mistakes_are_coded_and_positioned(marked: str, code: str, message: str, hint: str) -> None:
    text = f"SELECT {marked}"
    errors = parsed(text.replace("^", "", 1)).errors
    place = text.replace("FROM p ", "FROM payments ").index("^") + 1
    assert (errors[0].code, errors[0].column) == (code, place), errors
    assert message in errors[0].message and hint in errors[0].hint


def test_the_fragments_of_all_windows_are_counted() -> None:
    several = query("count(*) OVER h, count(*) OVER d, count(*) OVER w")
    plan = build_plan(Workload((several,), (STREAM,)), {"payments": Fraction(1)})
    assert true_operations(plan.trees[0], several) == Fraction(1 + 24 + 1, 3600) == plan.trees[0].edge_rate * 26


def test_shifted_windows_combine_what_others_do() -> None:
    result = parsed(
        "SELECT count(*) FROM p WINDOW RANGE '90 minutes' SLIDE '1 hour' STARTING AT '10 minutes' ON t;"
        "SELECT count(*) FROM p WINDOW RANGE '90 minutes' SLIDE '1 hour' ON t"
    )
    shifted, plain = result.queries
    trees = [build_plan(Workload((each,), (STREAM,)), {"payments": Fraction(1)}).trees[0] for each in (shifted, plain)]
    assert true_operations(trees[0], shifted) == true_operations(trees[1], plain)
