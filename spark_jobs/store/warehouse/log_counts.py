"""What is counted since the first row of a log, without counting it again: kept whenever the log's files are merged.

Files of a log never change, and its rows are never removed: what was counted of some files holds as long as all of them
are there. So a count is that of the files that it was kept for, and of those that came since. A merge, which puts one
file in the place of many, keeps it anew under the same lease. Who finds nothing kept, or not for files that are there,
counts everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from spark_jobs.store.warehouse.warehouse import Warehouse

COUNTS = "counts"
"""Folder of the warehouse for what is kept."""

Counts = dict[str, int]

Counted = Callable[[Warehouse, ds.Dataset, Mapping[str, int]], Counts]
"""What is counted of the rows of some files of a log, beyond those of which the counts are given (empty: there are
none)."""


def counted_log(warehouse: Warehouse, table: str, count: Counted) -> Counts:
    """What a log holds. Raises OSError and Arrow's errors."""
    current = warehouse.table(table)
    files, known = _kept(warehouse, table)
    paths = set(_paths(current))
    if not files or not files <= paths:
        files, known = set(), {}
    dataset = warehouse.dataset(table, current, ds.field("at").is_valid())
    later = [each for each in dataset.get_fragments() if each.path.rpartition("/")[2] not in files]
    if files and not later:
        return known
    return count(warehouse, ds.FileSystemDataset(later, dataset.schema, dataset.format), known)


def keep_counts(warehouse: Warehouse, table: str, counted: Counts) -> None:
    """Keep what a log holds now, whose lease the caller has held since it was counted."""
    content = {"files": _paths(warehouse.table(table)), "counts": counted}
    (warehouse.place / COUNTS / f"{table}.json").put(json.dumps(content).encode())


def _paths(current: DeltaTable) -> list[str]:
    paths: list[str] = pa.table(current.get_add_actions())["path"].to_pylist()
    return paths


def _kept(warehouse: Warehouse, table: str) -> tuple[set[str], Counts]:
    try:
        kept = json.loads((warehouse.place / COUNTS / f"{table}.json").read())
        return set(kept["files"]), {str(name): int(number) for name, number in kept["counts"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return set(), {}
