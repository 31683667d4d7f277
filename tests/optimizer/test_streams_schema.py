"""Patterns of the JSON schema of ``streams.yaml``."""

from __future__ import annotations

import pytest

from optimizer.workload.streams_schema import _any_case


@pytest.mark.parametrize(
    ("pattern", "any_case"),
    [("ab", "[Aa][Bb]"), (r"\dab", r"\d[Aa][Bb]"), (r"a\s\(b", r"[Aa]\s\([Bb]"), (r"1,2\d", r"1,2\d")],
)
def test_letters_match_in_any_case_and_classes_stay(pattern: str, any_case: str) -> None:
    assert _any_case(pattern) == any_case
