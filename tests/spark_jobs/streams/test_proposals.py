"""Streams that ``heddle init`` proposes."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.workload.values import SECOND
from spark_jobs.streams.sources.proposals import Proposal


@pytest.mark.parametrize(
    ("first", "last", "span", "rate"),
    [
        (5 * SECOND, 15 * SECOND, 10 * SECOND, Fraction(2)),
        (5 * SECOND, 5 * SECOND, SECOND, Fraction(20)),
        (-5 * SECOND, 0, 5 * SECOND, Fraction(4)),
        (None, None, SECOND, Fraction(20)),
    ],
)
def test_the_rate_is_over_the_span_of_the_events(
    first: int | None, last: int | None, span: int, rate: Fraction
) -> None:
    seen: Any = SimpleNamespace(first=first, last=last, near=None)
    unused: Any = None
    proposal = Proposal(unused, unused, unused, seen, 20, is_about=False, has_schema=True)
    assert (proposal.span, proposal.rate) == (span, rate)
