"""Generated cases as sources, plans and published answers of whole runs, compared with the oracle."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from deltalake import write_deltalake
from hypothesis import HealthCheck, Phase, settings

from optimizer.plan.builder import build_plan
from optimizer.workload.values import Source, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.workloads import Case

DEAR = settings(
    max_examples=examples(2, 6),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would start hundreds of runs
)


def stored(case: Case, folder: Path, format: str) -> Case:
    """The case with its events written to a source that runs can read."""
    folder.mkdir()
    path = folder / f"events.{format}"
    if format == "delta":
        write_deltalake(str(path), case.events)
    elif format == "csv":
        path.mkdir()
        # two files: their rows meet in the same fragments
        half = len(case.events) // 2
        for index, part in enumerate((case.events.slice(0, half), case.events.slice(half))):
            pacsv.write_csv(part, path / f"part-{index}.csv")
    else:
        path.mkdir()
        half = len(case.events) // 2
        for index, part in enumerate((case.events.slice(0, half), case.events.slice(half))):
            pq.write_table(part, path / f"part-{index}.parquet", row_group_size=7)
    stream = replace(case.stream, source=Source(format, str(path)))
    return replace(case, workload=Workload(case.workload.queries, (stream,)))


def planned(case: Case, folder: Path, algorithm: str, late: Collection[str] | None = None) -> tuple[Warehouse, int]:
    """A published plan, in a warehouse of its own; ``late``: the names of the queries that it joins late, None: by
    cost."""
    warehouse = Warehouse.open(folder)
    plan = build_plan(case.workload, {"events": Fraction(1)}, algorithm, late=late)
    return warehouse, publish_plan(warehouse, plan)[0]


def published(case: Case, warehouse: Warehouse) -> dict[str, pa.Table]:
    """What a consumer reads of every query."""
    return {query.name: read(warehouse, query.name) for query in case.workload.queries}


def wrong(case: Case, tables: dict[str, pa.Table]) -> list[str]:
    return [
        f"{query.name}: {line}"
        for query in case.workload.queries
        for line in compare(
            query,
            tables[query.name],
            answers(query, case.events, case.stream.time, case.begin, case.end),
        )
    ]


def expects_answers(case: Case) -> bool:
    """A run through Spark is too dear for a case that nothing answers."""
    return any(answers(query, case.events, case.stream.time, case.begin, case.end) for query in case.workload.queries)


def same_bytes(left: dict[str, pa.Table], right: dict[str, pa.Table]) -> bool:
    """Equal answers to the last bit (NaN included, the zeros told apart)."""
    return all(_ipc(left[name]) == _ipc(right[name]) for name in left)


def _ipc(table: pa.Table) -> bytes:
    # rebuilt from Python values: slices and null slots of equal tables may differ underneath
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(table.to_pylist(), table.schema).combine_chunks())
    return sink.getvalue().to_pybytes()
