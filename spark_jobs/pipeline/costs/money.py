"""Cost of CPU seconds in money per month: ``HEDDLE_CPU_HOUR_PRICE``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import SECOND

MONTH = 2_629_746 * SECOND
"""A twelfth of the Gregorian calendar's mean year, in microseconds."""

_PRICE = re.compile(r"\s*(\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})\s*([^\d\s.,][^\d\s]{0,11})?\s*")


@dataclass(frozen=True)
class CpuPrice:
    """Price of a CPU hour: an amount, and the text of the currency as configured, which may be empty."""

    amount: float
    currency: str = ""

    @classmethod
    def parse(cls, text: str) -> CpuPrice | None:
        """``0.05`` or ``0.05 EUR``; None: no text. Raises HDL-120 for anything else."""
        if not text.strip():
            return None
        match = _PRICE.fullmatch(text)
        if match is None:
            hint = "an amount, with a currency behind it or not: `0.05 EUR`"
            raise HeddleError("HDL-120", f"HEDDLE_CPU_HOUR_PRICE is {text[:64]!r}", hint)
        return cls(float(match[1]), match[2] or "")

    def a_month(self, cpu_seconds: float, span: int) -> str:
        """Cost per month at the pace of ``cpu_seconds`` for a ``span`` of event time (microseconds); "" for an empty
        span.
        """
        if span <= 0:
            return ""
        cost = self.amount * cpu_seconds / 3600 * MONTH / span
        digits = ",.2f" if cost >= 1 or not cost else ".2g"
        return f"{cost:{digits}} {self.currency}".rstrip()


def covered(intervals: Iterable[tuple[int, int]]) -> int:
    """Microseconds that lie in some of the intervals [begin, end)."""
    total, reached = 0, None
    for begin, end in sorted(intervals):
        if reached is None or begin > reached:
            reached = begin
        total += max(end - reached, 0)
        reached = max(end, reached)
    return total
