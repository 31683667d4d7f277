"""Definition of an error code, and the areas of codes."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

AREAS = MappingProxyType(
    {
        "1": "Text, files and options",
        "2": "Meaning of a query",
        "3": "Limits",
        "4": "Streams and their data",
        "5": "Warehouse, publishing and servers",
        "6": "Answers",
        "9": "Not foreseen",
    }
)
"""Area of codes by their first digit."""

Severity = Literal["error", "warning", "either", "record"]
"""``record``: the code is stored in a row of a table and ends nothing; ``either``: an error or a warning, depending on
the place. ``heddle validate`` reports errors of a stream that no query reads as warnings.
"""


@dataclass(frozen=True)
class Code:
    """An error code.

    Parameters
    ----------
    code
        ``HDL-`` and three digits.
    meaning
        What happened, one sentence.
    action
        What to do about it, one sentence.
    severity
        How it is reported: see :data:`Severity`.
    exit_code
        Exit code of a command that it ends: 2 if the command was called wrongly, else 1.
    fatal
        Whether it fails the run wherever it arises. Any other error that arises in the work on one stream fails only
        that stream, and the run if no stream remains.
    http_status
        HTTP status of a page of the Airflow plugin that it ends.
    """

    code: str
    meaning: str
    action: str
    severity: Severity = "error"
    exit_code: Literal[1, 2] = 1
    fatal: bool = False
    http_status: int = 400

    @property
    def area(self) -> str:
        """Area of the code: one of :data:`AREAS`."""
        return AREAS[self.code[len("HDL-")]]
