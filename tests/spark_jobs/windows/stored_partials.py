"""Warehouses with partials and a plan, as runs leave them, written without a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import ACQ, Stream, Workload
from optimizer.workload.window_kinds import SEQUENCE
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.preparation import synopsis_work
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.replacements import FAR
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.partials.stored_coverage import _completed, coverage, missing_spans
from spark_jobs.windows.sequences.lifting import SequenceLifting


def stored(
    root: Path | str,
    workload: Workload,
    table: pa.Table,
    pieces: Sequence[tuple[int, int]],
    algorithm: str = "weave-share",
    together: Sequence[Sequence[str]] = (),
) -> Warehouse:
    """A warehouse as runs over some intervals leave it, without Spark and without results."""
    warehouse = Warehouse.open(root)
    plan = build_plan(workload, dict.fromkeys((stream.name for stream in workload.streams), Fraction(1)), algorithm)
    plan = replace(plan, trees=tuple(replace(tree, together=_within(tree.queries, together)) for tree in plan.trees))
    publish_plan(warehouse, plan)
    for number, (begin, end) in enumerate(pieces):
        store(warehouse, plan, table, begin, end, number)
    return warehouse


def _within(queries: Sequence[ACQ], together: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    names = {query.name for query in queries}
    name_groups = (tuple(name for name in homes if name in names) for homes in together)
    return tuple(homes for homes in name_groups if len(homes) > 1)


def nothing_of(stream: Stream) -> list[Split]:
    """A source in which no event can be, with the stream's declaration."""
    return [Split("", "", begin=FAR, end=FAR, declared=Declaration(stream))]


def store(
    warehouse: Warehouse, plan: SharingPlan, table: pa.Table, begin: int, end: int, number: int, again: bool = False
) -> None:
    """``again``: the source changed since the interval was stored, so that event sequences are stored once more."""
    # as runs do it: trees that need the same synopsis fill it once
    for part in synopsis_work(plan, begin, {stream.name: end for stream in plan.workload.streams}):
        stream, span = plan.workload.stream(part.synopsis.stream), FillRequest(part.synopsis, part.begin, part.end)
        if part.synopsis.kind == SEQUENCE:
            # whole pieces: a row of events does not end at the begin of a span
            pieces = coverage(warehouse, [span.synopsis.fingerprint]).get(span.synopsis.fingerprint, [])
            missing_requests = missing_spans(
                part, [(*piece[:2], "before" if again else piece[2]) for piece in pieces], nothing_of(stream)
            )
            if not missing_requests:
                continue
            (span,) = missing_requests
        if part.synopsis.kind == SEQUENCE:
            sequences = SequenceLifting(stream, [span])
            for batch in table.to_batches():
                sequences.add(batch)
            lifted = pa.concat_tables([PARTIALS.empty_table(), *sequences.tables()])
        else:
            lifted = partials_of(table.to_batches(), stream, [span])
        rows = pa.concat_tables([lifted, _completed(stream, nothing_of(stream), [span])])
        files = list(write_files(warehouse.path("partials"), rows))
        is_replaced = lambda rows, span=span: pa.array(  # noqa: E731
            (rows["fragment_start"].to_numpy() >= span.begin)
            & (rows["fragment_start"].to_numpy() < span.end)
            & (np.array(rows["fingerprint"].to_pylist()) == span.synopsis.fingerprint)
        )
        warehouse.replace("partials", files, ("0000", "9999"), is_replaced, span.synopsis.fingerprint, number + 1)
