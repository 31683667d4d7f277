"""Types and headers that are guessed of CSV files, on both sides of each boundary."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Type
from spark_jobs.streams.sources.csv_guess import LONGEST_INTEGER, guess_csv, is_nameable, left_out


def guessed(folder: Path, *texts: str) -> Type:
    """The type of a column of some texts."""
    path = folder / "a.csv"
    path.write_text("\n".join(["name,other", *(f"{text},x" for text in texts)]) + "\n")
    return guess_csv([path]).columns[0].type


@pytest.mark.parametrize(
    ("texts", "type"),
    [
        (("0",), LONG),
        (("9" * LONGEST_INTEGER,), LONG),
        (("1", "9" * LONGEST_INTEGER), LONG),
        # these may not fit into 64 bits
        (("9" * (LONGEST_INTEGER + 1),), STRING),
        (("1", "9" * (LONGEST_INTEGER + 1)), STRING),
        (("-" + "9" * (LONGEST_INTEGER - 1),), LONG),
        (("-" + "9" * LONGEST_INTEGER,), DOUBLE),
        (("012",), STRING),
        (("-0",), LONG),
        (("1", "1.5"), DOUBLE),
        (("1", "x"), STRING),
        (("true", "FALSE"), BOOLEAN),
        (("2024-01-31",), DATE),
        (("2024-01-31", "2024-01-31T10:00:00"), TIMESTAMP),
        (("", "NA", "7"), LONG),
        (("", "NA"), STRING),
    ],
)
def test_a_column_has_the_narrowest_type_that_all_texts_fit(tmp_path: Path, texts: tuple[str, ...], type: Type) -> None:
    assert guessed(tmp_path, *texts) == type


def test_names_that_no_schema_can_have_are_left_out() -> None:
    assert [is_nameable(name) for name in ("", "a", "a" * 255, "a" * 256, "\u202e")] == [
        *(False, True, True, False, False)
    ]
    assert left_out(["a", "A", "b", ""]) == ["A", ""]
