"""Checking a workload and the data that it reads, without planning it: ``heddle validate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.errors.diagnostics import Diagnostic
from spark_jobs.pipeline.planning.query_files import missing_queries, missing_warnings
from spark_jobs.pipeline.planning.requested import Inputs, StrPath, load_inputs
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.inspection import Inspection, inspect


@dataclass(frozen=True)
class Validation:
    """The content of files, with all findings about them and their data, and an inspection of each stream."""

    inputs: Inputs
    streams: tuple[Inspection, ...]

    def to_json(self) -> dict[str, Any]:
        """The validation as ``heddle validate --json`` prints it."""
        columns = ("name", "stream", "owner", "fingerprint")
        return {
            "queries": [{name: getattr(query, name) for name in columns} for query in self.inputs.workload.queries],
            "streams": [inspection.to_json() for inspection in self.streams],
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
    return Validation(replace(inputs, diagnostics=tuple(diagnostics)), tuple(inspections))
