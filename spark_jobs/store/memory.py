"""How much memory a task of a run may take."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class TaskMemory:
    """The memory that the data of one task may take, in ``bytes``, and what it is divided into.

    Data is copied while it is worked on: batches are merged, cells rolled up, encoded, put in order and written. So
    what a task gathers before it spills or splits is a fraction of what it may take (measured:
    ``python -m tests.benchmarks.memory``). Beside it a task has what every worker has: Python, Arrow and the compiled
    kernels.
    """

    bytes: int

    def __str__(self) -> str:
        unit = next(unit for unit in reversed(_UNITS) if self.bytes % _UNITS[unit] == 0)
        return f"{self.bytes // _UNITS[unit]}{unit}"

    @classmethod
    def parse(cls, text: str) -> TaskMemory:
        """The memory as a setting has it: ``512m``. Raises ValueError."""
        size = re.fullmatch(r"([1-9]\d{0,14})([kmg]?)b?", text.strip().lower(), re.ASCII)
        if size is None:
            raise ValueError("a size in bytes, with k, m or g behind it: `512m`")
        return cls(int(size[1]) * _UNITS[size[2]])

    @property
    def cells(self) -> int:
        """Bytes of cells that a task of the first stage gathers before it writes them."""
        return self.bytes // 8

    @property
    def piece(self) -> int:
        """Bytes of partial rows that are put in order and written at once, and of answers that wait for their file."""
        return self.bytes // 16

    @property
    def partial_rows(self) -> int:
        """Bytes of stored partial rows that a task of the final stage answers from at once."""
        return self.bytes // 8


TASK_MEMORY = TaskMemory(2 << 30)
"""Default of ``HEDDLE_TASK_MEMORY``: the memory that a task may take."""
