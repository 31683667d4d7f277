"""The tables of a folder that is landed, and which of its files they have.

A batch of files is one transaction of the table, with the batch's number. What the batch consists of is written before
into the *ledger*, a file a batch in the table's folder; it counts once the table has the transaction. Rows that do not
fit are appended to the quarantine first, under the same number. So the table alone decides: of a batch that it does not
have, the next landing removes the ledger's file and the rows in quarantine, and reads the files again as they are then.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse.data_files import unwritable
from spark_jobs.streams.landing.places import LOCK, delta_table
from spark_jobs.streams.landing.spool import Spool

FOLDER = "_landed"
"""The folder in that of the table with the ledger; readers and writers of Delta pass it over."""

MERGED = 256
"""Files of the ledger at which they are merged into one."""

LANDED_COLUMNS = (
    pa.field("landed_file", pa.utf8()),
    pa.field("landed_row", pa.int64()),
    pa.field("landed_at", pa.timestamp("us", "UTC")),
)
"""Columns of a landed table about each row: its file below the folder, its number there (from 1), and when it came."""

MISFITS = pa.schema(
    [
        ("landed_at", pa.timestamp("us", "UTC")),
        ("landing", pa.utf8()),
        ("file", pa.utf8()),
        ("line", pa.int64()),
        ("row", pa.int64()),
        ("why", pa.utf8()),
        ("value", pa.binary()),
        ("value_bytes", pa.int64()),
    ]
)
"""The table of rows that did not fit. ``landing``: the batch; ``line``, ``row``: null for an entire file."""


@dataclass(frozen=True)
class LandedFile:
    """A file that was landed.

    Parameters
    ----------
    name
        Its path below the folder.
    size, modified
        Bytes, and time of modification in nanoseconds.
    crc
        CRC-32 of its bytes.
    rows, misfits
        Number of its rows in the table and in the quarantine.
    is_again
        Whether its rows replaced those of an earlier landing.
    """

    name: str
    size: int
    modified: int
    crc: int
    rows: int
    misfits: int
    is_again: bool = False


class FolderTable:
    """Tables of a landed folder, open for one process (:func:`folder_table`)."""

    def __init__(self, table: Path, quarantine: Path) -> None:
        self.table, self.quarantine = table, quarantine
        self.ledger, self.staging = table / FOLDER / "batches", table / FOLDER / "staging"
        self.identity = str(DeltaTable(str(table)).metadata().id)
        self.application = f"heddle-land-files/{self.identity}"
        self.landed: dict[str, LandedFile] = {}
        self.reached = DeltaTable(str(table)).transaction_version(self.application) or 0

    # ----------------------------------------------------------------------------------------- opening
    def recover(self) -> None:
        """Read the ledger, and remove what a landing left that ended early. Raises HDL-627 for a ledger with gaps."""
        shutil.rmtree(self.staging, ignore_errors=True)
        self.staging.mkdir(parents=True)
        self.ledger.mkdir(exist_ok=True)
        merged, numbers = self._listed()
        missing = self.reached - merged - len(numbers)
        if missing:
            message = f"{self.ledger} lacks {missing:,} of {self.reached:,} batches that the table {self.table} has"
            raise HeddleError("HDL-627", message, "put the folder back as it was, or land into another table")
        newest: list[LandedFile] = []
        for number in sorted([merged, *numbers] if merged else numbers):
            newest = _entries(numbers.get(number, self._merged(merged)))
            self.landed |= {entry.name: entry for entry in newest}
        quarantine = DeltaTable(str(self.quarantine))
        if (quarantine.transaction_version(self.application) or 0) > self.reached:
            quarantine.delete(f"landing = {_literal(self.landing(self.reached + 1))}")
        if merged != self.reached:
            self._forget([entry.name for entry in newest if entry.is_again])
        if len(numbers) > MERGED:
            write_ledger(self._merged(self.reached), list(self.landed.values()))
            self._listed()

    def _merged(self, number: int) -> Path:
        """The file of the ledger that has all batches up to a number."""
        return self.ledger / f"to-{number:012}.json"

    def _listed(self) -> tuple[int, dict[int, Path]]:
        """The number up to which batches are in one file of the ledger (0: there is none), and the files of those
        behind it. All other files are removed: drafts, batches that the table does not have, and what was merged."""
        files = {path.name: path for path in self.ledger.iterdir()}
        merged = max((int(name[3:-5]) for name in files if re.fullmatch(r"to-\d+\.json", name)), default=0)
        numbers = {int(name[:-5]): path for name, path in files.items() if re.fullmatch(r"\d+\.json", name)}
        numbers = {number: path for number, path in numbers.items() if merged < number <= self.reached}
        for path in files.values():
            if path not in (*numbers.values(), self._merged(merged)):
                path.unlink()
        return merged, numbers

    def landing(self, number: int) -> str:
        """The name of a batch in the quarantine."""
        return f"{self.identity}/{number}"

    # ---------------------------------------------------------------------------------------- committing
    def commit(self, files: Sequence[LandedFile], rows: Spool, misfits: Spool) -> None:
        """Commit a batch of files. ``misfits``: of the columns of :data:`MISFITS`. A file that is landed again is the
        only one of its batch.

        Raises HDL-627 if another process commits to the table meanwhile, HDL-542 if nothing can be written.
        """
        number = self.reached + 1
        again = [file.name for file in files if file.is_again]
        assert not again or len(files) == 1
        write_ledger(self.ledger / f"{number:012}.json", files)
        properties = CommitProperties(app_transactions=[Transaction(self.application, number)])
        try:
            if misfits.rows:
                append_misfits(self.quarantine, misfits, properties)
            current = DeltaTable(str(self.table))
            if (current.transaction_version(self.application) or 0) != self.reached:
                raise HeddleError("HDL-627", f"another process landed files into {self.table}", "run it again")
            append_rows(current, rows, properties, f"landed_file = {_literal(again[0])}" if again else None)
        except (DeltaError, OSError) as error:
            raise unwritable(self.table, error) from error
        self.reached = number
        self.landed |= {file.name: file for file in files}
        self._forget(again)

    def _forget(self, names: Sequence[str]) -> None:
        """Remove the rows in quarantine of earlier landings of files that the newest batch landed again."""
        for name in names:
            earlier = f"file = {_literal(name)} AND landing <> {_literal(self.landing(self.reached))}"
            DeltaTable(str(self.quarantine)).delete(earlier)


@contextmanager
def folder_table(table: Path, columns: pa.Schema) -> Iterator[FolderTable]:
    """Create or open the tables of a folder for one process at a time, as the last complete batch left them.

    ``columns``: of the table, with :data:`LANDED_COLUMNS`. Raises HDL-627 if another process lands into the table, or
    if the table has other columns.
    """
    quarantine = table.with_name(f"{table.name}_quarantine")
    table.mkdir(parents=True, exist_ok=True)
    with (table / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another process is landing into {table}"
            raise HeddleError("HDL-627", message, "wait until it is done") from None
        delta_table(table, columns)
        delta_table(quarantine, MISFITS)
        opened = FolderTable(table, quarantine)
        opened.recover()
        try:
            yield opened
        finally:
            shutil.rmtree(opened.staging, ignore_errors=True)


def append_misfits(quarantine: Path, misfits: Spool, properties: CommitProperties) -> None:
    """Append the rows that do not fit, in one commit."""
    write_deltalake(str(quarantine), misfits.reader(), mode="append", commit_properties=properties)


def append_rows(table: DeltaTable, rows: Spool, properties: CommitProperties, replaced: str | None) -> None:
    """Append rows in one commit. ``replaced``: a predicate for rows that the commit removes; None: it removes none."""
    if replaced is None:
        write_deltalake(table, rows.reader(), mode="append", commit_properties=properties)
    else:
        write_deltalake(table, rows.reader(), mode="overwrite", predicate=replaced, commit_properties=properties)


def write_ledger(path: Path, files: Sequence[LandedFile]) -> None:
    """Write the ledger's file of a batch, so that it is there completely before the table's commit."""
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        json.dump([asdict(each) for each in files], file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _entries(path: Path) -> list[LandedFile]:
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return [LandedFile(**entry) for entry in entries]
    except (ValueError, TypeError):
        hint = "put it back as it was, or land into another table"
        raise HeddleError("HDL-627", f"{path} is damaged", hint) from None


def _literal(text: str) -> str:
    """A text as a constant of a predicate."""
    return "'" + text.replace("'", "''") + "'"
