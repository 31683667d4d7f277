"""What commands print of durations and lists, on both sides of each boundary."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from heddle.cli.answers import show_answers
from heddle.cli.output import LISTED, interval_text, json_text, print_rows, seconds_text, unit_text

DAY = 86_400
YEAR = 31_557_600


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.5, "0.5 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "61 s"),
        (90, "90 s"),
        (3540, "59 min"),
        (3600, "1 h"),
        (5400, "90 min"),
        (DAY - 3600, "23 h"),
        (DAY, "1 d"),
        (999 * DAY, "999 d"),
        (1000 * DAY - 1, "8.64e+07 s"),
        (1000 * DAY, "≈ 1,000 d"),
        (1000 * YEAR - 1, "≈ 365,250 d"),
        (1000 * YEAR, "≈ 1,000 years"),
        (10**13, "≈ 316,881 years"),
        (10**13 + 10**5, "10^5 years"),
        (32 * 10**12, "10^6 years"),
    ],
)
def test_durations_are_in_their_largest_whole_unit(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_dates_and_instants_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    moment = dt.datetime(2024, 1, 31, 5, tzinfo=dt.UTC)
    show_answers(pa.table({"day": [dt.date(2024, 1, 31), None], "at": [moment, None]}), "days")
    assert "│ 2024-01-31 │ 2024-01-31 05:00:00 │" in capsys.readouterr().out


def test_intervals_and_json() -> None:
    assert interval_text(0, DAY * 1_000_000) == "1970-01-01T00:00:00Z .. 1970-01-02T00:00:00Z"
    assert json_text({"a": 1}) == '{\n  "format_version": 1,\n  "a": 1\n}\n'


@pytest.mark.parametrize("more", [0, 1])
def test_a_list_says_how_many_rows_it_leaves_out(capsys: pytest.CaptureFixture[str], more: int) -> None:
    print_rows("title", ["query", "n"], [(f"q{number}", str(number)) for number in range(LISTED + more)])
    text = capsys.readouterr().out
    assert f"q{LISTED - 1}" in text and f"q{LISTED}" not in text
    assert ("… 1 more" in text) == bool(more)


@pytest.mark.parametrize(("model", "unit"), [("paper", "operations/s"), ("measured", "CPU-s/s")])
def test_costs_have_a_unit(model: str, unit: str) -> None:
    assert unit_text(model) == unit
