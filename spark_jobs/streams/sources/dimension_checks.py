"""Check dimensions before anything runs: their files, columns, values and keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count
from optimizer.workload.values import Dimension
from spark_jobs.streams.sources.dimensions import files_of_dimension, version_rows


@dataclass(frozen=True)
class DimensionInspection:
    """Result of checking a dimension: the number of its files, the number of rows that a join finds (None: they cannot
    be used), and the diagnostics.
    """

    dimension: str
    key: tuple[str, ...]
    files: int
    rows: int | None
    diagnostics: tuple[Diagnostic, ...]

    def __str__(self) -> str:
        rows = "not usable" if self.rows is None else count(self.rows, "row")
        return f"dimension {self.dimension}: {count(self.files, 'file')}, {rows}, key {', '.join(self.key)}"

    def to_json(self) -> dict[str, Any]:
        """The findings as ``heddle validate --json`` prints them."""
        return {"name": self.dimension, "key": list(self.key), "files": self.files, "rows": self.rows}


def inspect_dimension(dimension: Dimension, columns: Collection[str]) -> DimensionInspection:
    """Read the key of a dimension and the ``columns`` that queries use, as a run does.

    Raises nothing for problems of the data: files that cannot be read, columns that are missing or of another type,
    values that do not fit, and keys with several rows are errors.
    """
    files, rows, diagnostics = 0, None, list[Diagnostic]()
    try:
        files = len(files_of_dimension(dimension))
        rows = len(version_rows(dimension, columns))
    except HeddleError as error:
        diagnostics.append(error.diagnostic)
    return DimensionInspection(dimension.name, dimension.key, files, rows, tuple(diagnostics))
