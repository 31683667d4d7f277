"""Windows as others write them, and windows that are not all equally long: text to values, and what is refused."""

from __future__ import annotations

import pytest

from optimizer.language.parser import ParseResult, parse
from optimizer.workload.instants import irregular_words
from optimizer.workload.values import (
    ACQ,
    INT,
    SECOND,
    STRING,
    TIMESTAMP,
    Calendar,
    Source,
    Stream,
    Window,
    from_json,
    to_json,
)

SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("qty", INT))
STREAMS = {
    "trades": Stream("trades", Source("csv", "/trades"), SCHEMA, "ts"),
    "odd": Stream("odd", Source("csv", "/odd"), (*SCHEMA, ("window_start", STRING)), "ts"),
}
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
MONTH = 2_629_746 * SECOND
BERLIN = "Europe/Berlin"


def parsed(text: str) -> ParseResult:
    return parse(text, STREAMS)


def read(text: str) -> ACQ:
    result = parsed(text)
    assert result.errors == ()
    (query,) = result.queries
    return query


def window_of(clause: str) -> Window:
    return read(f"SELECT count(*) FROM trades WINDOW {clause} ON ts").window


# ------------------------------------------------------------------------------------------ one window, many ways
@pytest.mark.parametrize(
    "clause",
    [
        "RANGE '1h' SLIDE '5 min'",
        "RANGE '60 mins' SLIDE '5m'",
        "range '3600 s' slide '300 secs'",
        "RANGE '1hr' SLIDE '4 minutes 60 s'",
        "RANGE '30m30m' SLIDE '300000ms'",
        "RANGE INTERVAL '1' HOUR SLIDE INTERVAL 5 MINUTES",
        "RANGE interval '1 hour' SLIDE interval '5' minute",
        "RANGE INTERVAL 30 MINUTES 30 MINUTES SLIDE INTERVAL '5 minutes'",
    ],
)
def test_lengths_in_other_words_are_the_same_window(clause: str) -> None:
    query = read(f"SELECT count(*) FROM trades WINDOW {clause} ON ts")
    native = read("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts")
    assert query.window == native.window == Window(HOUR, 5 * MINUTE)
    assert query.fingerprint == native.fingerprint


def test_a_window_without_a_slide_is_a_tumbling_one() -> None:
    assert window_of("RANGE '1h30m'") == Window(90 * MINUTE, 90 * MINUTE)
    assert window_of("ROWS 10") == Window(10, 10, per=())
    assert window_of("RANGE '1 hour' ENDING '1 day' AGO") == Window(HOUR, HOUR, DAY)


NATIVE = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts"
HOP = "INTERVAL '5' MINUTES, INTERVAL '1' HOUR"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT symbol, count(*) AS n FROM trades WHERE qty > 1 GROUP BY symbol, window(ts, '1 hour', '5 minutes')",
        "SELECT window, window.start, window.end, symbol, count(*) AS n FROM trades WHERE qty > 1 "
        "GROUP BY window(ts, '1 hour', '5 minutes'), symbol",
        "SELECT window.start AS window_start, window.end AS window_end, symbol, count(*) AS n FROM trades "
        "WHERE qty > 1 GROUP BY window(trades.ts, interval 1 hour, interval 5 minutes), symbol",
        "SELECT window(ts, '1 hour', '5 minutes').start, symbol, count(*) AS n FROM trades WHERE qty > 1 "
        "GROUP BY symbol, window(ts, '1 hour', '5 minutes')",
        "SELECT symbol, count(*) AS n FROM trades WHERE qty > 1 "
        "GROUP BY window(ts, '1 hour', '5 minutes', '10 minutes'), symbol",
        f"SELECT window_start, window_end, symbol, count(*) AS n FROM TABLE(HOP(TABLE trades, DESCRIPTOR(ts), {HOP})) "
        "WHERE qty > 1 GROUP BY window_start, window_end, symbol",
        f"SELECT window_start, symbol, count(*) AS n FROM HOP(TABLE trades, DESCRIPTOR(ts), {HOP}) AS w "
        "WHERE qty > 1 GROUP BY symbol, window_end, window_start",
        f"SELECT HOP_START(ts, {HOP}), HOP_END(ts, {HOP}) AS window_end, symbol, count(*) AS n FROM trades "
        f"WHERE qty > 1 GROUP BY HOP(ts, {HOP}), symbol",
        f"SELECT window_start, symbol, count(*) AS n FROM trades {NATIVE} WHERE qty > 1 GROUP BY window_start, symbol",
    ],
)
def test_spark_and_flink_windows_are_the_same_query(text: str) -> None:
    native = read(f"SELECT symbol, count(*) AS n FROM trades {NATIVE} WHERE qty > 1 GROUP BY symbol")
    assert read(text).fingerprint == native.fingerprint


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("FROM trades GROUP BY window(ts, '1 hour')", Window(HOUR, HOUR)),
        ("FROM trades GROUP BY TUMBLE(ts, INTERVAL '10' MINUTES)", Window(10 * MINUTE, 10 * MINUTE)),
        (
            "FROM trades GROUP BY window(ts, '1 hour', '5 minutes', '2 minutes')",
            Window(HOUR, 5 * MINUTE, offset=2 * MINUTE),
        ),
        ("FROM trades GROUP BY window(ts, '1 day', '1 day', '-1 hour')", Window(DAY, DAY, offset=23 * HOUR)),
        (
            "FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL 10 MINUTE)) t GROUP BY window_start, window_end",
            Window(10 * MINUTE, 10 * MINUTE),
        ),
        (
            "FROM TABLE(CUMULATE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)) "
            "GROUP BY window_start, window_end",
            Window(DAY, HOUR, cumulative=True),
        ),
        (
            "FROM trades GROUP BY window(ts, '1 month')",
            Window.of_calendar(Calendar("UTC", (1, "month"), (1, "month"))),
        ),
    ],
)
def test_each_function_is_its_window(text: str, window: Window) -> None:
    query = read(f"SELECT count(*) {text}")
    assert (query.window, query.group_by) == (window, ())


def test_a_column_of_the_stream_is_meant_before_one_of_the_window() -> None:
    query = read(f"SELECT window_start AS begun, count(*) FROM odd {NATIVE} GROUP BY window_start")
    assert (query.group_by, query.select) == ((("window_start", STRING),), ("begun",))


# ----------------------------------------------------------------------------------------------- calendars
@pytest.mark.parametrize(
    ("clause", "window", "words"),
    [
        (
            "RANGE '1 day' IN 'Europe/Berlin'",
            Window.of_calendar(Calendar(BERLIN, (1, "day"), (1, "day"))),
            ("1 day in Europe/Berlin", "1 day"),
        ),
        (
            "RANGE '1 week' SLIDE '1 day' IN 'Europe/Berlin'",
            Window(7 * DAY, DAY, calendar=Calendar(BERLIN, (7, "day"), (1, "day"))),
            ("1 week in Europe/Berlin", "1 day"),
        ),
        (
            "RANGE '3 months' SLIDE '1 month'",
            Window(3 * MONTH, MONTH, calendar=Calendar("UTC", (3, "month"), (1, "month"))),
            ("1 quarter in UTC", "1 month"),
        ),
        (
            "RANGE '1 year' SLIDE '1 quarter' IN 'Asia/Kathmandu'",
            Window(12 * MONTH, 3 * MONTH, calendar=Calendar("Asia/Kathmandu", (12, "month"), (3, "month"))),
            ("1 year in Asia/Kathmandu", "1 quarter"),
        ),
        (
            "RANGE INTERVAL '1' MONTH",
            Window(MONTH, MONTH, calendar=Calendar("UTC", (1, "month"), (1, "month"))),
            ("1 month in UTC", "1 month"),
        ),
        ("CUMULATE '1 day' STEP '1 hour'", Window(DAY, HOUR, cumulative=True), ("up to 1 day", "1 hour")),
        (
            "SESSION GAP INTERVAL '30' MINUTES UP TO INTERVAL 1 DAY",
            Window.of_sessions(30 * MINUTE, DAY, ()),
            ("session up to 1 day", "pause of 30 minutes"),
        ),
        ("RANGE '1 day' STARTING AT '06:00'", Window(DAY, DAY, offset=6 * HOUR), ("1 day from 6 hours on", "1 day")),
        ("RANGE '2 hours' SLIDE '1 hour' STARTING AT '75 minutes'", Window(2 * HOUR, HOUR, offset=15 * MINUTE), None),
        ("RANGE '7 days' STARTING AT 'Sunday'", Window(7 * DAY, 7 * DAY, offset=3 * DAY), None),
        (
            "CUMULATE '1 day' STEP '1 hour' STARTING AT '06:00'",
            Window(DAY, HOUR, cumulative=True, offset=6 * HOUR),
            None,
        ),
        (
            "RANGE '1 day' STARTING AT '06:00' IN 'Europe/Berlin'",
            Window.of_calendar(Calendar(BERLIN, (1, "day"), (1, "day"), 6 * HOUR)),
            ("1 day in Europe/Berlin from 6 hours on", "1 day"),
        ),
        (
            "RANGE '1 week' STARTING AT 'sunday 06:30' IN 'Europe/Berlin'",
            Window.of_calendar(Calendar(BERLIN, (7, "day"), (7, "day"), 6 * DAY + 390 * MINUTE)),
            None,
        ),
        (
            "CUMULATE '1 day' STEP '30 min' IN 'Europe/Berlin'",
            Window(DAY, 30 * MINUTE, cumulative=True, calendar=Calendar(BERLIN, (1, "day"), None)),
            ("up to 1 day in Europe/Berlin", "30 minutes"),
        ),
        (
            "CUMULATE '1 month' STEP '1 day'",
            Window(MONTH, DAY, cumulative=True, calendar=Calendar("UTC", (1, "month"), (1, "day"))),
            ("up to 1 month in UTC", "1 day"),
        ),
    ],
)
def test_windows_of_calendars(clause: str, window: Window, words: tuple[str, str] | None) -> None:
    parsed_window = window_of(clause)
    assert parsed_window == window and (words is None or irregular_words(parsed_window) == words)
    assert from_json(to_json(parsed_window)) == parsed_window


@pytest.mark.parametrize(
    ("clause", "part", "words"),
    [
        (
            "RANGE '1 month' ENDING '1 year' AGO",
            Window.of_calendar(Calendar("UTC", (1, "month"), (1, "month"), 0, (12, "month"))),
            ("1 month in UTC ending 1 year ago", "1 month"),
        ),
        (
            "CUMULATE '1 month' STEP '1 day' ENDING '1 month' AGO IN 'Europe/Berlin'",
            Window.of_calendar(Calendar(BERLIN, (1, "month"), (1, "day"), 0, (1, "month")), 0, True),
            ("up to 1 month in Europe/Berlin ending 1 month ago", "1 day"),
        ),
        (
            "CUMULATE '1 month' STEP '1 hour' ENDING '2 weeks' AGO STARTING AT '06:00' IN 'Europe/Berlin'",
            Window.of_calendar(Calendar(BERLIN, (1, "month"), None, 6 * HOUR, (14, "day")), HOUR, True),
            ("up to 1 month in Europe/Berlin from 6 hours on ending 2 weeks ago", "1 hour"),
        ),
        # days without IN are those of UTC if anything is in months
        (
            "RANGE '7 days' SLIDE '1 day' ENDING '1 quarter' AGO",
            Window.of_calendar(Calendar("UTC", (7, "day"), (1, "day"), 0, (3, "month"))),
            ("1 week in UTC ending 1 quarter ago", "1 day"),
        ),
        (
            "CUMULATE '1 day' STEP '1 hour' ENDING '1 day' AGO",
            Window(DAY, HOUR, DAY, cumulative=True),
            ("up to 1 day ending 1 day ago", "1 hour"),
        ),
    ],
)
def test_historical_windows_whose_answers_are_known_by_their_instants(
    clause: str, part: Window, words: tuple[str, str]
) -> None:
    window = window_of(clause)
    assert window == Window.of_several([part]) and window.parts == (part,) and irregular_words(window) == words
    assert from_json(to_json(window)) == window and window.ago == 0 and window.reach == part.reach


def test_ordinary_windows_are_stored_as_before() -> None:
    """So that fingerprints of queries, plans and partials stay what they are."""
    day = Window.of_calendar(Calendar("UTC", (1, "day"), (1, "day")))
    assert set(to_json(day)["calendar"]) == {"is", "zone", "range", "slide"}
    assert to_json(Window(HOUR, MINUTE)) == {"is": "Window", "range": HOUR, "slide": MINUTE}
    assert irregular_words(Window(HOUR, MINUTE)) is None


# ------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("marked", "code", "hint"),
    [
        ("FROM trades WINDOW RANGE ^'1 x' ON ts", "HDL-204", "units"),
        ("FROM trades WINDOW RANGE ^INTERVAL HOUR ON ts", "HDL-204", "INTERVAL '1' HOUR"),
        ("FROM trades WINDOW RANGE ^INTERVAL 5 ON ts", "HDL-204", "5 minutes"),
        ("FROM trades WINDOW RANGE INTERVAL '1' HOUR ^TO SECOND ON ts", "HDL-107", "WINDOW RANGE"),
        ("FROM trades WINDOW RANGE ^INTERVAL '-1' HOUR ON ts", "HDL-204", ""),
        (f"FROM trades {NATIVE} WHERE qty > ^INTERVAL '1' HOUR", "HDL-103", "quoted"),
        ("FROM trades WINDOW RANGE '1 day' IN ^'Europe/Berln' ON ts", "HDL-240", "Europe/Berlin"),
        ("FROM trades WINDOW RANGE '1 day' IN ^'europe/berlin' ON ts", "HDL-240", "Europe/Berlin"),
        ("FROM trades WINDOW RANGE '1 day' IN ^'../../etc/passwd' ON ts", "HDL-240", ""),
        ("FROM trades WINDOW RANGE '1 day' IN ^'' ON ts", "HDL-240", ""),
        ("FROM trades WINDOW RANGE '1 day' IN ^Berlin ON ts", "HDL-107", "WINDOW RANGE"),
        ("FROM trades WINDOW ROWS 10 ^IN 'UTC' ON ts", "HDL-107", "ROWS"),
        ("FROM trades WINDOW RANGE ^'24 hours' IN 'Europe/Berlin' ON ts", "HDL-241", "'1 day'"),
        ("FROM trades WINDOW RANGE '1 day' SLIDE ^'1 hour' IN 'UTC' ON ts", "HDL-241", "SLIDE '1 day'"),
        ("FROM trades WINDOW RANGE '1 day' SLIDE ^'1 month' ON ts", "HDL-241", "SLIDE '1 day'"),
        ("FROM trades WINDOW RANGE ^'1 month 3 days' ON ts", "HDL-204", "30 days"),
        ("FROM trades WINDOW RANGE ^'0 months' ON ts", "HDL-204", ""),
        ("FROM trades WINDOW RANGE ^'11 years' ON ts", "HDL-307", ""),
        ("FROM trades WINDOW RANGE ^'130 months' ON ts", "HDL-307", ""),
        ("FROM trades WINDOW RANGE ^'999999999999999999 months' ON ts", "HDL-307", "3660 days"),
        ("FROM trades WINDOW RANGE ^'3661 days' IN 'UTC' ON ts", "HDL-307", ""),
        ("FROM trades WINDOW RANGE '1 month' ENDING ^'1 hour' AGO ON ts", "HDL-241", "ENDING '1 day' AGO"),
        ("FROM trades WINDOW RANGE '1 day' ENDING ^'47 hours' AGO IN 'UTC' ON ts", "HDL-241", "ENDING '2 days' AGO"),
        ("FROM trades WINDOW RANGE '1 month' ENDING ^'1 month 3 days' AGO ON ts", "HDL-204", "months alone"),
        ("FROM trades WINDOW RANGE '1 month' ENDING ^'0 months' AGO ON ts", "HDL-204", ""),
        ("FROM trades WINDOW RANGE '1 month' ENDING ^'-1 month' AGO ON ts", "HDL-204", ""),
        ("FROM trades WINDOW RANGE '1 month' ENDING ^'11 years' AGO ON ts", "HDL-307", ""),
        ("FROM trades WINDOW RANGE '1 month' ENDING ^'999999999999999999 months' AGO ON ts", "HDL-307", "3660 days"),
        ("FROM trades WINDOW RANGE '1 day' SLIDE ^'1 hour' ENDING '1 month' AGO ON ts", "HDL-241", "SLIDE '1 day'"),
        ("FROM trades WINDOW RANGE ^'1 hour' ENDING '1 month' AGO IN 'UTC' ON ts", "HDL-241", "'1 day'"),
        ("FROM trades WINDOW CUMULATE '6 hours' STEP '1 hour' ENDING ^'1 month' AGO ON ts", "HDL-204", "days"),
        (
            "FROM trades PATTERN ^SEQ(a, b) ON symbol WINDOW CUMULATE '1 day' STEP '1 hour' ENDING '1 day' AGO ON ts",
            "HDL-220",
            "WINDOW",
        ),
        ("FROM trades WINDOW RANGE '1 day' SLIDE AT MOST ^'1 day' IN 'UTC' ON ts", "HDL-241", "AT MOST"),
        ("FROM trades WINDOW CUMULATE '1 day' ^ON ts", "HDL-107", "CUMULATE"),
        ("FROM trades WINDOW CUMULATE '1 day' ^SLIDE '1 hour' ON ts", "HDL-107", "STEP"),
        ("FROM trades WINDOW CUMULATE '1 day' STEP ^AT MOST '1 hour' ON ts", "HDL-107", "STEP"),
        ("FROM trades WINDOW CUMULATE '1 day' STEP ^'7 hours' ON ts", "HDL-241", "divides"),
        ("FROM trades WINDOW CUMULATE '1 hour' STEP ^'1 day' ON ts", "HDL-241", "divides"),
        ("FROM trades WINDOW CUMULATE '1 day' STEP ^'7 hours' IN 'UTC' ON ts", "HDL-241", "1 hour"),
        ("FROM trades WINDOW CUMULATE '1 month' STEP ^'7 days' ON ts", "HDL-241", "1 day"),
        ("FROM trades WINDOW CUMULATE '7 days' STEP ^'1 month' ON ts", "HDL-241", "1 day"),
        ("FROM trades WINDOW CUMULATE '1 day' STEP ^'7 days' IN 'UTC' ON ts", "HDL-241", "1 day"),
        ("FROM trades WINDOW CUMULATE '3000 days' STEP ^'1 minute' ON ts", "HDL-308", "259200 milliseconds"),
        ("FROM trades WINDOW CUMULATE '1 day' STEP ^'0 seconds' ON ts", "HDL-204", ""),
        ("FROM trades PATTERN ^SEQ(a, b) ON symbol WINDOW RANGE '1 month' ON ts", "HDL-220", "WINDOW RANGE"),
        ("FROM trades PATTERN ^SEQ(a, b) ON symbol WINDOW CUMULATE '1 day' STEP '1 hour' ON ts", "HDL-220", "WINDOW"),
        ("FROM trades GROUP BY ^session_window(ts, '5 minutes')", "HDL-121", "GAP '5 minutes' UP TO '1 day' ON ts"),
        (
            "FROM TABLE(^SESSION(TABLE trades, DESCRIPTOR(ts), INTERVAL '5' MINUTE))",
            "HDL-121",
            "GAP '5 MINUTE' UP TO '1 day' ON ts",
        ),
        ("FROM trades GROUP BY ^session()", "HDL-121", "WINDOW SESSION"),
        ("FROM trades GROUP BY window(ts, '1 day', '1 day', ^'an hour')", "HDL-241", "'15 minutes'"),
        ("FROM trades WINDOW RANGE '1 day' STARTING AT ^'25:00' ON ts", "HDL-241", "23:59:59"),
        ("FROM trades WINDOW RANGE '1 day' STARTING AT ^'' ON ts", "HDL-241", "'06:00'"),
        ("FROM trades WINDOW RANGE '1 day' STARTING ^ON ts", "HDL-107", "WINDOW RANGE"),
        ("FROM trades WINDOW RANGE '1 day' STARTING AT ^'6 hours' IN 'UTC' ON ts", "HDL-241", "'06:00'"),
        ("FROM trades WINDOW RANGE '1 day' STARTING AT ^'Sunday' IN 'UTC' ON ts", "HDL-241", "weeks"),
        ("FROM trades WINDOW RANGE '1 month' STARTING AT ^'Sunday 06:00' ON ts", "HDL-241", "weeks"),
        ("FROM trades WINDOW CUMULATE '1 day' STEP '1 hour' STARTING AT ^'06:30' ON ts", "HDL-241", "a step ends"),
        ("FROM trades WINDOW CUMULATE '1 day' STEP '1 hour' STARTING AT ^'06:30' IN 'UTC' ON ts", "HDL-241", "step"),
        ("FROM trades WINDOW RANGE '1 day' SLIDE AT MOST '1 hour' STARTING AT ^'06:00' ON ts", "HDL-241", "leave"),
        ("FROM trades WINDOW ROWS 10 ^STARTING AT '06:00' ON ts", "HDL-107", "ROWS"),
        ("FROM trades GROUP BY ^window(ts)", "HDL-121", "window(<time>"),
        ("FROM trades GROUP BY ^window(ts, 5)", "HDL-121", "window(<time>"),
        ("FROM trades GROUP BY ^window('ts', '1 hour')", "HDL-121", "window(<time>"),
        ("FROM trades GROUP BY ^window(ts, '1 h', '1 h', '1 h', '1 h')", "HDL-121", "window(<time>"),
        ("FROM trades GROUP BY window(^qty, '1 hour')", "HDL-205", "ON ts"),
        ("FROM trades GROUP BY window(ts, ^'1 huor')", "HDL-204", "hour"),
        ("FROM trades GROUP BY window(ts, '1 hour', ^'1 ms')", "HDL-306", ""),
        ("FROM trades GROUP BY ^cumulate(ts, '1 hour')", "HDL-121", "CUMULATE(TABLE"),
        ("FROM trades GROUP BY window(ts, '1 hour'), ^window(ts, '2 hours')", "HDL-107", ""),
        (f"FROM trades {NATIVE} GROUP BY ^window(ts, '1 hour')", "HDL-107", ""),
        ("FROM trades WHERE ^window(ts, '1 hour').start > '2020-01-01'", "HDL-121", "WINDOW RANGE"),
        ("FROM trades GROUP BY lower(^window(ts, '1 hour'))", "HDL-121", "WINDOW RANGE"),
        (f"FROM TABLE(^HOP(TABLE trades, DESCRIPTOR(ts), {HOP}))", "HDL-121", "GROUP BY window_start, window_end"),
        (
            f"FROM TABLE(^HOP(TABLE trades, DESCRIPTOR(ts), {HOP})) GROUP BY window_start",
            "HDL-121",
            "GROUP BY window_start, window_end",
        ),
        (f"FROM TABLE(^HOP(trades, DESCRIPTOR(ts), {HOP})) GROUP BY window_start, window_end", "HDL-121", "HOP(TABLE"),
        (f"FROM TABLE(^HOP(TABLE trades, ts, {HOP})) GROUP BY window_start, window_end", "HDL-121", "DESCRIPTOR"),
        (
            f"FROM TABLE(HOP(TABLE ^trads, DESCRIPTOR(ts), {HOP})) GROUP BY window_start, window_end",
            "HDL-201",
            "trades",
        ),
        (f"FROM (SELECT 1 FROM TABLE(^HOP(TABLE trades, DESCRIPTOR(ts), {HOP})))", "HDL-121", "WINDOW RANGE"),
    ],
)
def test_mistakes_are_coded_positioned_and_say_what_to_do(marked: str, code: str, hint: str) -> None:
    text = "SELECT count(*) " + marked
    result = parsed(text.replace("^", ""))
    assert result.queries == ()
    diagnostic = result.diagnostics[0]
    assert (diagnostic.code, diagnostic.column) == (code, text.index("^") + 1), diagnostic
    assert hint in diagnostic.hint


@pytest.mark.parametrize(
    ("marked", "code", "hint"),
    [
        ("SELECT ^window.start AS begun, count(*) FROM trades GROUP BY window(ts, '1 hour')", "HDL-208", "AS out"),
        (f"SELECT ^window_end AS done, count(*) FROM trades {NATIVE}", "HDL-208", "AS out"),
        ("SELECT ^window(ts, '2 hours'), count(*) FROM trades GROUP BY window(ts, '1 hour')", "HDL-121", "GROUP BY"),
        ("SELECT ^TUMBLE_START(ts, INTERVAL '1' HOUR), count(*) FROM trades", "HDL-121", "GROUP BY"),
        ("^SELECT window_start, window_end FROM trades GROUP BY window(ts, '1 hour')", "HDL-105", "count(*)"),
        (f"SELECT count(*) FROM trades {NATIVE} HAVING ^window_start > '2020-01-01'", "HDL-202", ""),
    ],
)
def test_what_is_selected_of_a_window(marked: str, code: str, hint: str) -> None:
    result = parsed(marked.replace("^", ""))
    diagnostic = result.diagnostics[0]
    assert (diagnostic.code, diagnostic.column) == (code, marked.index("^") + 1), diagnostic
    assert hint in diagnostic.hint


def test_a_slide_of_a_calendar_beyond_its_range_is_warned_of() -> None:
    result = parsed("SELECT count(*) FROM trades WINDOW RANGE '1 month' SLIDE '1 quarter' ON ts")
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["HDL-210"] and len(result.queries) == 1
    assert "1 quarter" in result.diagnostics[0].message
