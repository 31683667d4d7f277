"""Long tables and lists: the part that is shown at once, the part that is folded, and the number of omitted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from optimizer.errors.diagnostics import count

Item = TypeVar("Item")

LINES_SHOWN = 60
"""Lines of a difference before the fold."""

LINES_FOLDED = 2_000


@dataclass(frozen=True)
class Fold(Generic[Item]):
    """Items before and below a fold. ``more``: the name of the fold; ``left_out``: what is in neither ("": nothing)."""

    shown: Sequence[Item]
    folded: Sequence[Item] = ()
    more: str = ""
    left_out: str = ""


@dataclass(frozen=True)
class Table(Generic[Item]):
    """A table of CSS classes ``kind``; ``columns``: the name of each, and its width in percent."""

    kind: str
    columns: Sequence[tuple[str, int]]
    rows: Fold[Item]


def fold(items: Sequence[Item], first: int, total: int, noun: str) -> Fold[Item]:
    """The ``first`` items shown and the others folded. ``total``: how many there are, of which ``items`` are the first;
    ``noun``: what one of them is called."""
    # a fold for one row is longer than the row
    shown = first + 1 if len(items) == first + 1 else first
    if len(items) <= shown:
        return Fold(items)
    left_out = f"Left out: {count(total - len(items), noun)}." if total > len(items) else ""
    return Fold(items[:shown], items[shown:], count(total - shown, f"more {noun}"), left_out)


def fold_lines(lines: Sequence[str]) -> Fold[str]:
    """The lines of a difference between plans (:meth:`optimizer.plan.diff.PlanDiff.lines`), long ones folded."""
    folded = lines[LINES_SHOWN : LINES_SHOWN + LINES_FOLDED]
    if not folded:
        return Fold(lines)
    beyond = len(lines) - LINES_SHOWN - len(folded)
    left_out = f"Left out: {count(beyond, 'line')}." if beyond else ""
    return Fold(lines[:LINES_SHOWN], folded, count(len(lines) - LINES_SHOWN, "more line"), left_out)
