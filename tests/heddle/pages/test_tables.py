"""Tables of the page of a plan."""

from __future__ import annotations

from typing import Any

from heddle.pages.plan import _queries


def test_columns_fill_the_table() -> None:
    unit: Any = None
    table = _queries([], unit)
    assert sum(width for _, width in table.columns) == 100
