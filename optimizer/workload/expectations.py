"""What an owner expects of answers, or of a stream's events: typed values that quality checks judge.

An expectation changes no answer, so it is not part of a query's fingerprint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

WARN, BLOCK = "warn", "block"
"""Severities: the answers are published with a warning, or are not published."""

VALUES, PAIR, UNIQUE = "values", "pair", "unique"
"""Forms that are judged row by row."""

AGGREGATE, ROWS, RATIO, AGE = "aggregate", "rows", "ratio", "age"
"""Forms that are judged by one number."""

OF_ROWS = (VALUES, PAIR, UNIQUE)

STATISTICS = ("mean", "median", "min", "max", "sum", "stdev", "distinct")
"""Numbers that an expectation may take of a column."""


def _absent(default: Any) -> Any:
    return field(default=default, metadata={"optional": True})


@dataclass(frozen=True)
class ExpectedRange:
    """The values from ``low`` to ``high``, each a literal or None for no bound; ``above``, ``below``: the bound itself
    is outside.
    """

    low: Any = None
    high: Any = None
    above: bool = _absent(False)
    below: bool = _absent(False)


@dataclass(frozen=True)
class Expectation:
    """One expectation.

    - ``text``: as it was written, without its severity; unique within one query or stream.
    - ``severity``: :data:`WARN` or :data:`BLOCK`.
    - ``form``: one of the forms of this module.
    - ``rule``: of :data:`VALUES`: ``between``, ``not null``, ``number``, ``in`` or ``matches``; of :data:`PAIR` the
      comparison; of :data:`AGGREGATE` one of :data:`STATISTICS`.
    - ``columns``: those that it is about.
    - ``condition``: of forms that are judged row by row, the expression that is true of expected rows and null of rows
      that do not count. None: :data:`UNIQUE`.
    - ``bounds``, ``items``: what the rule compares with.
    - ``span``: of :data:`RATIO` how long ago, of :data:`AGE` the greatest age (microseconds).
    - ``mostly``: the share of rows that have to be as expected; None: all.
    - ``where``: the rows that it is about; None: all.
    - ``at``: line and column in streams.yaml of one that is not read yet, of which only text and severity are known.
    """

    text: str
    severity: str
    form: str = _absent("")
    rule: str = _absent("")
    columns: tuple[str, ...] = _absent(())
    condition: Any = _absent(None)
    bounds: ExpectedRange = _absent(ExpectedRange())
    items: tuple[Any, ...] = _absent(())
    span: int = _absent(0)
    mostly: Decimal | None = _absent(None)
    where: Any = _absent(None)
    at: tuple[int, ...] = _absent(())

    @property
    def blocks(self) -> bool:
        """Return whether answers that are not as expected stay unpublished."""
        return self.severity == BLOCK

    @property
    def is_of_rows(self) -> bool:
        """Return whether it is judged row by row."""
        return self.form in OF_ROWS
