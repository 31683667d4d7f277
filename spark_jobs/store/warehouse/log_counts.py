"""Running counts of a log since its first row, without counting it again: stored whenever the log's files are merged.

Files of a log never change, and its rows are never removed: a count of some files holds as long as all of them
exist. So a count is that of the files that it was stored for, plus that of the later ones. A merge, which replaces
many files by one, stores it again under the same lease. If no count is stored, or one of its files is missing,
everything is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.warehouse import Warehouse

COUNTS = "counts"
"""Folder of the warehouse for stored counts."""

FORMAT = 2
"""Version of what is counted: counts of another version, or of none, are made again. 2: runs have their costs."""

Counts = dict[str, int]

Counted = Callable[[Warehouse, ds.Dataset, Mapping[str, int]], Counts]
"""Counts the rows of some files of a log and adds them to the counts of those before (empty: there are none)."""


def counted_log(warehouse: Warehouse, table: str, count: Counted) -> Counts:
    """Counts of a log. Raises HDL-543 if its files cannot be read."""
    current = warehouse.table(table)
    files, known = _kept(warehouse, table)
    paths = set(_paths(current))
    if not files or not files <= paths:
        files, known = set(), {}
    dataset = warehouse.dataset(table, current, ds.field("at").is_valid())
    later = [each for each in dataset.get_fragments() if each.path.rpartition("/")[2] not in files]
    if files and not later:
        return known
    with reading(warehouse.path(table)):
        return count(warehouse, ds.FileSystemDataset(later, dataset.schema, dataset.format), known)


def keep_counts(warehouse: Warehouse, table: str, counted: Counts) -> None:
    """Store the current counts of a log. The caller has had its lease since the rows were counted."""
    content = {"format": FORMAT, "files": _paths(warehouse.table(table)), "counts": counted}
    (warehouse.place / COUNTS / f"{table}.json").put(json.dumps(content).encode())


def _paths(current: DeltaTable) -> list[str]:
    paths: list[str] = pa.table(current.get_add_actions())["path"].to_pylist()
    return paths


def _kept(warehouse: Warehouse, table: str) -> tuple[set[str], Counts]:
    try:
        stored = json.loads((warehouse.place / COUNTS / f"{table}.json").read())
        if stored["format"] != FORMAT:
            return set(), {}
        return set(stored["files"]), {str(name): int(number) for name, number in stored["counts"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return set(), {}
