"""Check that the data files of a warehouse are those that were committed: every byte of every file of the newest
versions is read. Needs no JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.results import current_dimensions, own_table
from spark_jobs.store.warehouse.checksums import Checksums, check_content
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.schemas import TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class DamagedFile:
    """A file that is not the one that was committed: its table, day (empty: the table has none), path below the table,
    and what is wrong with it."""

    table: str
    day: str
    path: str
    reason: str

    @property
    def mended_by(self) -> str:
        """The command that makes up for it."""
        if self.table == "partials":
            return "`heddle maintain` drops them, the next run computes them again"
        if self.table == "results":
            return f"`heddle run --recompute` for {self.day}"
        if self.table in TABLES:
            return "put the file back from a copy"
        if self.table.startswith(f"{current_dimensions.FOLDER}/"):
            return f"remove the folder {self.table} of the warehouse: the next run makes it anew"
        return f"`heddle tables --rebuild {self.table.rpartition('/')[2]}`"


@dataclass(frozen=True)
class CheckedFiles:
    """Result of a check: the total ``files`` and ``bytes``, files ``without_checksum`` (of an earlier Heddle, or
    written by Delta's library), which are decoded instead, and those that are damaged.
    """

    files: int
    bytes: int
    without_checksum: int
    damaged: tuple[DamagedFile, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle audit --files --json`` prints them."""
        return {"format_version": 1, **asdict(self)}


def check_files(
    warehouse: Warehouse, tables: Sequence[str] | None = None, report: Callable[[str], None] = lambda line: None
) -> CheckedFiles:
    """Read all files of some tables (None: of all) and compare them with what was committed."""
    files = size = bare = 0
    damaged = []
    every = (*TABLES, *own_table.names(warehouse), *current_dimensions.table_names(warehouse))
    for name in tables if tables is not None else every:
        report(f"reading {name}")
        for path, day, committed in _committed(warehouse, name):
            files, size = files + 1, size + committed
            bare += Checksums.named(path).content is None
            reason = damage_of(warehouse, name, path, committed)
            if reason:
                damaged.append(DamagedFile(name, day, path, reason))
    return CheckedFiles(files, size, bare, tuple(damaged))


def _committed(warehouse: Warehouse, name: str) -> Iterator[tuple[str, str, int]]:
    """Path, day and bytes of each file of the newest version of a table."""
    actions = pa.table(warehouse.table(name).get_add_actions(flatten=True)).to_pylist()
    for row in sorted(actions, key=lambda row: str(row["path"])):
        yield row["path"], row.get("partition.day") or "", row["size_bytes"]


def damage_of(warehouse: Warehouse, table: str, path: str, size: int) -> str:
    """Damage of a file of a table; empty if the file is the one that was committed."""
    place = warehouse.place / table / path
    try:
        with reading(place):
            check_content(place, size)
    except HeddleError as error:
        if error.code != "HDL-543":
            raise
        return error.diagnostic.message
    return ""
