"""Choose the files of a folder whose status a live run need not read.

Reading size, inode and times of a hundred thousand files takes longer than a refresh. A folder lists the names and
inodes of its files at once: these show which files are new, gone, renamed, or replaced. They do not show a file that is
*rewritten in place*, under its name and with its inode. So each file has a *turn*, by its inode: its status is read
once an hour, a part of all files at each refresh. In between, a live run assumes that a file has not changed if the
ledger had had it so for an hour before that, and no window of the run reads it. New files, and files that a run reads,
are always checked; runs that are not live, repairs and backfills check everything.

The time of each turn is stored in the folder ``looks`` of the warehouse, once the ledger has everything that was seen.
If it is lost, the next run checks everything.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.workload.values import Stream, digest, to_json
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.schemas import HOUR
from spark_jobs.store.warehouse.warehouse import Warehouse

LOOKS = "looks"
"""Folder of the warehouse for what is known of turns."""

TURNS = 64
WITHIN = HOUR
"""Microseconds after which a turn comes again."""

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Fibonacci hashing: neighbouring inodes have different turns."""


def clock_micros() -> int:
    """Now, in microseconds."""
    return time.time_ns() // 1000


def turns_of(inodes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The turns (n,) of files, by their inodes."""
    return (inodes * SPREAD >> np.uint64(58)).astype(np.int64)


@dataclass(frozen=True)
class Look:
    """A look at a stream's files that begins at a ``moment``. ``before``: the last time of each turn; 0: never (all in
    microseconds). ``place``: where that is stored, for a stream with the declaration ``of``.
    """

    place: Place
    of: str
    moment: int
    before: NDArray[np.int64]

    @classmethod
    def begin(cls, warehouse: Warehouse, stream: Stream) -> Look:
        """Read the previous looks, at the beginning of a new one."""
        place, of = warehouse.place / LOOKS / f"{digest(stream.name)}.json", digest(to_json(stream))
        before = np.zeros(TURNS, dtype=np.int64)
        try:
            known = json.loads(place.read())
            if known["of"] == of and len(known["turns"]) == TURNS:
                before = np.array(known["turns"], dtype=np.int64)
        except (OSError, ValueError, TypeError, KeyError):
            pass  # nothing is known
        return cls(place, of, clock_micros(), before)

    @property
    def is_due(self) -> NDArray[np.bool_]:
        """Mask of the turns that are due, including those of a clock that was ahead of this one."""
        return (self.moment - self.before >= WITHIN) | (self.before > self.moment)

    def knows(self, inodes: NDArray[np.uint64], noted: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mask of the files (n,) that have not changed since the ledger noted them, if their names and inodes have not:
        files that had been so for an hour when they were read within the last one.
        """
        turns = turns_of(inodes)
        return ~self.is_due[turns] & (noted <= self.before[turns] - HOUR)

    def keep(self) -> None:
        """Note that the files whose turn it was are as the ledger has them."""
        due = self.is_due
        if not due.any():
            return
        after = np.where(due, self.moment, self.before)
        if due.all():
            # not all at once the next time
            after -= np.arange(TURNS) * WITHIN // TURNS
        self.place.put(json.dumps({"of": self.of, "turns": after.tolist()}).encode())
