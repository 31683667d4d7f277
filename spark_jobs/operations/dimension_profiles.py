"""Profile the declared dimensions, before any query joins them: ``heddle streams``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.attributes import attributes_in
from optimizer.workload.instants import duration_text, format_instant
from optimizer.workload.streams import load_streams
from optimizer.workload.values import TIMESTAMP, Dimension
from spark_jobs.operations.stream_profiles import ColumnProfile, column_profile
from spark_jobs.pipeline.planning.requested import load_inputs
from spark_jobs.store.settings import said, settings
from spark_jobs.streams.copies.readers import StrPath
from spark_jobs.streams.sources.dimension_checks import inspect_dimension
from spark_jobs.streams.sources.dimensions import DUPLICATE, read_rows, with_schema_of_files
from spark_jobs.streams.sources.expressions import arrow_type

MOST_ROWS = 1_000_000
"""Rows of a dimension of which all columns are described; of larger ones only the key is read."""


COLUMNS_COMPARED = 8
"""Columns by which two rows of one key are shown."""


@dataclass(frozen=True)
class DimensionProfile:
    """Profile of a dimension's rows.

    Parameters
    ----------
    dimension
        The dimension, with its columns if they are known.
    files
        The number of its files.
    rows
        The number of its rows; None: they cannot be read.
    columns
        Its columns, by all rows; none if there are more than :data:`MOST_ROWS`.
    first, last
        The least and greatest bound of its validities (microseconds); None: it has none.
    joined_by
        The names of the queries of the project that join it; None: the project names no queries.
    diagnostics
        What is wrong with it.
    """

    dimension: Dimension
    files: int
    rows: int | None
    columns: tuple[ColumnProfile, ...]
    first: int | None
    last: int | None
    joined_by: tuple[str, ...] | None
    diagnostics: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, Any]:
        """The dimension as ``heddle streams --json`` prints it."""
        dimension = self.dimension
        return {
            "name": dimension.name,
            "format": dimension.source.format,
            "path": dimension.source.path,
            "key": list(dimension.key),
            "valid_from": dimension.valid_from,
            "valid_to": dimension.valid_to,
            "repair": duration_text(dimension.repair) if dimension.repair else None,
            "files": self.files,
            "rows": self.rows,
            "first": None if self.first is None else format_instant(self.first),
            "last": None if self.last is None else format_instant(self.last),
            "joined_by": None if self.joined_by is None else list(self.joined_by),
            "columns": [column.to_json() for column in self.columns],
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


def profile_of_dimension(dimension: Dimension, joined_by: tuple[str, ...] | None = None) -> DimensionProfile:
    """Profile of a dimension. Raises nothing for problems of its data."""
    nothing = DimensionProfile(dimension, 0, None, (), None, None, joined_by, ())
    try:
        dimension, warnings = with_schema_of_files(dimension)
        inspection = inspect_dimension(dimension, ())
        if any(problem.code == DUPLICATE for problem in inspection.diagnostics):
            inspection = inspect_dimension(dimension, list(dict(dimension.schema))[:COLUMNS_COMPARED])
        rows = read_rows(dimension, dimension.special)
        columns = _columns(dimension) if len(rows) <= MOST_ROWS else ()
    except HeddleError as error:
        return replace(nothing, dimension=dimension, diagnostics=(error.diagnostic,))
    first, last = _validity(dimension, rows)
    diagnostics = (*warnings, *inspection.diagnostics)
    return DimensionProfile(dimension, inspection.files, len(rows), columns, first, last, joined_by, diagnostics)


def _columns(dimension: Dimension) -> tuple[ColumnProfile, ...]:
    """The columns of a dimension, by all of its rows."""
    rows = read_rows(dimension, dict(dimension.schema))
    return tuple(column_profile(rows[name], name, type) for name, type in dimension.schema)


def _validity(dimension: Dimension, rows: pa.Table) -> tuple[int | None, int | None]:
    """The least and the greatest bound of the validities of some rows, in microseconds; None: there is none."""
    names = dimension.special[len(dimension.key) :]
    extremes = [pc.min_max(rows[name].cast(arrow_type(TIMESTAMP)).cast(pa.int64())).as_py() for name in names]
    least = [each["min"] for each in extremes if each["min"] is not None]
    greatest = [each["max"] for each in extremes if each["max"] is not None]
    return min(least, default=None), max(greatest, default=None)


def dimension_profiles(path: StrPath, name: str | None = None) -> list[DimensionProfile]:
    """The dimensions that a file declares (``name``: only this one), as far as the file can be read."""
    streams, _ = load_streams(path, settings().source_roots, settings().copies)
    declared = next((stream.dimensions for stream in streams.values()), ())
    chosen = [dimension for dimension in declared if name in (None, dimension.name)]
    joined = joins_of_workload(path) if chosen and said("workload") is not None else None
    return [
        profile_of_dimension(dimension, None if joined is None else joined.get(dimension.name, ()))
        for dimension in chosen
    ]


def joins_of_workload(path: StrPath) -> dict[str, tuple[str, ...]]:
    """The queries of the project's files that join each dimension, by its name; ``path``: the file of streams."""
    try:
        workload = load_inputs(settings().workload_files(), path).workload
    except HeddleError:
        return {}
    joined: dict[str, list[str]] = {}
    for query in workload.queries:
        attributes = attributes_in(workload.stream(query.stream), query.columns()).values()
        for name in sorted({attribute.dimension for attribute in attributes}):
            joined.setdefault(name, []).append(query.name)
    return {name: tuple(queries) for name, queries in joined.items()}
