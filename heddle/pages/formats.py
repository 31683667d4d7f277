"""Numbers, costs, durations and instants as the pages show them. Texts only: nothing here is markup."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from optimizer.errors.diagnostics import count
from optimizer.plan.definition import SharingPlan
from optimizer.workload.expression import EPOCH
from optimizer.workload.instants import irregular_words
from optimizer.workload.values import SECOND, Window

__all__ = [
    *("CostUnit", "Saved", "ago", "bar_width", "count", "cut", "duration", "figure", "instant", "interval", "length"),
    *("moment", "number", "saved", "seconds", "window_text"),
]


def cut(text: str, most: int) -> str:
    """The text, of at most ``most`` characters; "…" is the last where something is missing."""
    return text if len(text) <= most else text[: most - 1] + "…"


# ------------------------------------------------------------------------------------------- numbers
def number(value: int) -> str:
    """A whole number with its thousands apart: ``1,234``."""
    return f"{value:,}"


def figure(value: float) -> str:
    """Four significant digits: ``0.1235``, ``12,346``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def bar_width(value: float, largest: float) -> str:
    """Percent of the ``largest`` value that a bar is wide; one that is almost nothing can still be seen."""
    percent = 100 * value / largest if largest else 0.0
    return f"{max(percent, 0.4):.2f}"


# --------------------------------------------------------------------------------------------- costs
@dataclass(frozen=True)
class CostUnit:
    """The unit in which one plan's costs per second are shown: operations, or CPU time of a fitting size.

    ``scale``: what a cost of the plan's model is multiplied with.
    """

    name: str
    scale: float = 1.0

    @classmethod
    def of(cls, plan: SharingPlan) -> CostUnit:
        """The unit in which the plan's largest cost is at least 1."""
        if plan.cost_model == "paper":
            return cls("operations/s")
        largest = float(max(plan.cost, plan.no_share, plan.shared))
        for name, scale in (("CPU-s/s", 1.0), ("CPU-ms/s", 1e3), ("CPU-µs/s", 1e6)):
            if largest * scale >= 1:
                return cls(name, scale)
        return cls("CPU-ns/s", 1e9)

    def text(self, cost: Fraction | float) -> str:
        """A cost in this unit, without its name."""
        return figure(float(cost) * self.scale)


@dataclass(frozen=True)
class Saved:
    """The part of a cost that is saved, as text (``−56 %``), and whether it is ``"good"`` or ``"bad"``."""

    text: str
    kind: str


def saved(before: Fraction | float, after: Fraction | float) -> Saved:
    """Saving of the cost ``after`` compared with ``before``."""
    return Saved(_saved_percent(before, after), "good" if after <= before else "bad")


def _saved_percent(before: Fraction | float, after: Fraction | float) -> str:
    if not before:
        return "0 %"
    percent = float(1 - Fraction(after) / Fraction(before)) * 100
    sign = "−" if percent > 0 else "+"
    # neither a little nor almost all is rounded away
    if percent == 100 or 9.95 <= abs(percent) < 99 or percent < -99:
        return f"{sign}{abs(percent):,.0f} %"
    if percent > 99.9:
        return "over −99.9 %"
    return f"{sign}{abs(percent):.1f} %" if abs(percent) >= 0.05 else "0 %"


# --------------------------------------------------------------------------------------------- times
MILLION_YEARS = 365_250_000 * 86_400 * SECOND


def duration(microseconds: int) -> str:
    """A span of time, exact up to a million years: ``1 h 30 min``."""
    if microseconds > MILLION_YEARS:
        return f"10^{math.floor(math.log10(microseconds) - math.log10(MILLION_YEARS) + 6)} years"
    parts, remainder = [], microseconds
    for name, size in (("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND)):
        times, remainder = divmod(remainder, size)
        if times:
            parts.append(f"{times} {name}")
    if remainder or not parts:
        parts.append(f"{remainder / SECOND:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)


def length(units: int, per: tuple[str, ...] | None) -> str:
    """The length of a window: microseconds as a span of time, or rows where windows are counted ``per`` columns."""
    if per is None:
        return duration(units)
    return count(units, "row") if units < 10**12 else f"10^{math.floor(math.log10(units))} rows"


def window_text(window: Window) -> tuple[str, str]:
    """Length of the windows, and the period between two: ``1 h``, ``every 5 min``."""
    if (words := irregular_words(window)) is not None:
        return words[0], f"every {words[1]}"
    period = f"every {'at most ' if window.at_most else ''}{length(window.period, window.per)}"
    return length(window.range, window.per), period


def seconds(value: float | None) -> str:
    """Seconds to a tenth; "" if they are not known."""
    return "" if value is None else f"{value:,.1f}"


def moment(at: datetime) -> str:
    """An instant of the clock, in UTC to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def instant(microseconds: int) -> str:
    """An instant of the data (microseconds since 1970, UTC) as short as it is exact."""
    try:
        at = EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} µs"
    if at.microsecond:
        return f"{at:%Y-%m-%d %H:%M:%S.%f}"
    return f"{at:%Y-%m-%d}" if microseconds % 86_400_000_000 == 0 else f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


def interval(begin: int, end: int) -> str:
    """Two instants of the data, both with a time or neither: ``2013-07-01 23:00 – 2013-07-02 00:00``. The second has no
    day if that is the first one's."""
    first, last = instant(begin), instant(end)
    if (len(first) == 10) != (len(last) == 10):
        first, last = (f"{text} 00:00" if len(text) == 10 else text for text in (first, last))
    if first[:10] == last[:10] and "-" in first[:10] < first:
        last = last[11:]
    return f"{first} – {last}"


def ago(at: datetime, now: datetime) -> str:
    """``12 min ago``: one unit is enough to judge by."""
    elapsed = max(int((now - at).total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if elapsed >= size:
            return f"{elapsed // size} {unit} ago"
    return f"{elapsed} s ago"
