"""Checking a workload and the data that it reads, without planning it: ``heddle validate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.errors.diagnostics import Diagnostic
from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import Dimension, Workload
from spark_jobs.pipeline.planning.query_files import missing_queries, missing_warnings
from spark_jobs.pipeline.planning.requested import Inputs, StrPath, load_inputs
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_checks import DimensionInspection, inspect_dimension
from spark_jobs.streams.sources.inspection import Inspection, inspect


@dataclass(frozen=True)
class Validation:
    """The content of files, with all findings about them and their data, and an inspection of each stream and of each
    dimension that a query joins."""

    inputs: Inputs
    streams: tuple[Inspection, ...]
    dimensions: tuple[DimensionInspection, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The validation as ``heddle validate --json`` prints it."""
        columns = ("name", "stream", "owner", "fingerprint")
        return {
            "queries": [{name: getattr(query, name) for name in columns} for query in self.inputs.workload.queries],
            "streams": [inspection.to_json() for inspection in self.streams],
            **({"dimensions": [each.to_json() for each in self.dimensions]} if self.dimensions else {}),
            "diagnostics": [diagnostic.to_json() for diagnostic in self.inputs.diagnostics],
        }


def validate_files(files: Sequence[StrPath], streams_file: StrPath, warehouse: Warehouse | None = None) -> Validation:
    """Read files and look at the data of their streams. ``warehouse``: where their queries may be registered. Raises
    HDL-111 if a file is missing."""
    inputs = load_inputs(files, streams_file, warehouse)
    inspections: list[Inspection] = []
    diagnostics: list[Diagnostic] = list(inputs.diagnostics)
    if warehouse is not None:
        diagnostics += missing_warnings(
            missing_queries(registry.live(warehouse), inputs.given, inputs.workload.queries)
        )
    for stream in inputs.workload.streams:
        queries = inputs.workload.queries_of(stream.name)
        inspection = inspect(stream, sorted({name for query in queries for name in query.columns()}))
        # what nobody reads keeps nothing from running
        diagnostics += [
            replace(diagnostic, severity=diagnostic.severity if queries else "warning")
            for diagnostic in inspection.diagnostics
        ]
        inspections.append(inspection)
    dimensions = tuple(
        inspect_dimension(dimension, columns) for dimension, columns in joined_dimensions(inputs.workload)
    )
    diagnostics += [diagnostic for inspection in dimensions for diagnostic in inspection.diagnostics]
    diagnostics += _shadowed(inputs.workload)
    return Validation(replace(inputs, diagnostics=tuple(diagnostics)), tuple(inspections), dimensions)


def _shadowed(workload: Workload) -> list[Diagnostic]:
    """Warnings of the dimensions that have the name of a query."""
    names = {query.name.lower(): query.name for query in workload.queries}
    declared = {dimension.name for stream in workload.streams for dimension in stream.dimensions}
    return [
        Diagnostic(
            "HDL-469",
            f"{names[name.lower()]} is a query and a dimension: in SQL over answers the name is the query",
            f"write dimensions.{name} for the dimension, or rename the query",
            severity="warning",
        )
        for name in sorted(declared)
        if name.lower() in names
    ]


def joined_dimensions(workload: Workload) -> list[tuple[Dimension, set[str]]]:
    """The dimensions that a workload's queries join, each with the columns that they use."""
    joined: dict[str, tuple[Dimension, set[str]]] = {}
    for stream in workload.streams:
        columns = {column for query in workload.queries_of(stream.name) for column in query.columns()}
        for attribute in attributes_in(stream, columns).values():
            _, used = joined.setdefault(attribute.dimension, (stream.dimension(attribute.dimension), set()))
            used.update(filter(None, [attribute.column]))
    return list(joined.values())
