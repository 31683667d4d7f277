"""Numbers, spans and instants of pages on both sides of each boundary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from heddle.pages.formats import (
    MILLION_YEARS,
    ago,
    bar_width,
    cut,
    duration,
    figure,
    instant,
    interval,
    length,
    number,
    saved,
    seconds,
    window_text,
)
from optimizer.workload.values import SECOND, Window

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = 3600 * SECOND
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [
        (-5, "0 s ago"),
        (0, "0 s ago"),
        (59.9, "59 s ago"),
        (60, "1 min ago"),
        (119, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_399, "23 h ago"),
        (86_400, "1 d ago"),
        (172_800, "2 d ago"),
    ],
)
def test_ago_changes_unit_at_a_whole_one(elapsed: float, text: str) -> None:
    assert ago(NOW - timedelta(seconds=elapsed), NOW) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 s"),
        (1, "0.000001 s"),
        (59_999_999, "59.999999 s"),
        (60 * SECOND, "1 min"),
        (61 * SECOND, "1 min 1 s"),
        (HOUR - 1, "59 min 59.999999 s"),
        (HOUR, "1 h"),
        (DAY - SECOND, "23 h 59 min 59 s"),
        (DAY, "1 d"),
        (MILLION_YEARS, "365250000 d"),
        (MILLION_YEARS + 1, "10^6 years"),
        (11 * MILLION_YEARS, "10^7 years"),
    ],
)
def test_durations_are_exact_up_to_a_million_years(microseconds: int, text: str) -> None:
    assert duration(microseconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.12346, "0.1235"), (999.94, "999.9"), (1000, "1,000"), (-1000, "-1,000"), (12_345.6, "12,346")],
)
def test_figures_have_four_digits_below_a_thousand(value: float, text: str) -> None:
    assert figure(value) == text


def test_short_texts_are_not_cut() -> None:
    assert [cut("abcd", most) for most in (5, 4, 3, 1)] == ["abcd", "abcd", "ab…", "…"]
    assert [number(value) for value in (999, 1000, -1000)] == ["999", "1,000", "-1,000"]
    assert [seconds(value) for value in (None, 0.0, 0.05, 1234.56)] == ["", "0.0", "0.1", "1,234.6"]


@pytest.mark.parametrize(
    ("value", "largest", "text"),
    [(0, 0, "0.40"), (1, 0, "0.40"), (4, 1000, "0.40"), (5, 1000, "0.50"), (1, 1, "100.00")],
)
def test_bars_of_almost_nothing_can_be_seen(value: float, largest: float, text: str) -> None:
    assert bar_width(value, largest) == text


@pytest.mark.parametrize(
    ("before", "after", "text", "kind"),
    [
        (0, 1, "0 %", "bad"),
        (100, 100, "0 %", "good"),
        (100, 44, "−56 %", "good"),
        (100, 144, "+44 %", "bad"),
        (1000, 901, "−9.9 %", "good"),
        (10_000, 9004, "−10 %", "good"),
        (1000, 11, "−99 %", "good"),
        (1000, 10, "−99.0 %", "good"),
        (1000, 2, "−99.8 %", "good"),
        (10_000, 9, "over −99.9 %", "good"),
        (100, 0, "−100 %", "good"),
        (10_000, 9994, "−0.1 %", "good"),
        (100_000, 99_960, "0 %", "good"),
        (1, 100, "+9,900 %", "bad"),
    ],
)
def test_savings_are_rounded_neither_to_nothing_nor_to_all(before: int, after: int, text: str, kind: str) -> None:
    result = saved(before, after)
    assert (result.text, result.kind) == (text, kind)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "1970-01-01"),
        (1, "1970-01-01 00:00:00.000001"),
        (SECOND, "1970-01-01 00:00:01"),
        (60 * SECOND, "1970-01-01 00:01"),
        (DAY, "1970-01-02"),
        (-1, "1969-12-31 23:59:59.999999"),
        (1 << 62, f"{1 << 62} µs"),
    ],
)
def test_instants_are_as_short_as_they_are_exact(microseconds: int, text: str) -> None:
    assert instant(microseconds) == text


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        (0, DAY, "1970-01-01 – 1970-01-02"),
        (0, 31 * DAY, "1970-01-01 – 1970-02-01"),
        (HOUR, 2 * HOUR, "1970-01-01 01:00 – 02:00"),
        (0, HOUR, "1970-01-01 00:00 – 01:00"),
        (1, 2, "1970-01-01 00:00:00.000001 – 00:00:00.000002"),
        (1 << 62, 1 << 62, f"{1 << 62} µs – {1 << 62} µs"),
        (23 * HOUR, 25 * HOUR, "1970-01-01 23:00 – 1970-01-02 01:00"),
    ],
)
def test_intervals_name_a_day_once(begin: int, end: int, text: str) -> None:
    assert interval(begin, end) == text


def test_lengths_of_windows() -> None:
    assert [length(units, ()) for units in (1, 2, 10**12 - 1, 10**12)] == [
        *("1 row", "2 rows", "999,999,999,999 rows", "10^12 rows")
    ]
    assert window_text(Window(HOUR, 60 * SECOND)) == ("1 h", "every 1 min")
    assert window_text(Window(HOUR, SECOND, at_most=60 * SECOND)) == ("1 h", "every at most 1 min")
    assert window_text(Window(3, 1, per=("symbol",))) == ("3 rows", "every 1 row")
