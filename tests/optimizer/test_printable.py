"""Texts of others as they may be shown."""

from __future__ import annotations

import pytest

from optimizer.errors.diagnostics import printable


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("abcd", None, "abcd"),
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("a\x1b", None, "a\\x1b"),
        ("a\x1b", 5, "a\\x1b"),
        ("a\x1b", 4, "a\\x…"),
    ],
)
def test_texts_are_cut_after_so_many_characters(text: str, most: int | None, shown: str) -> None:
    assert printable(text, most) == shown
