"""What an error code is, and the areas of codes."""

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
"""What the codes of a first digit are about."""

Severity = Literal["error", "warning", "either", "record"]
"""``record``: the code stands in a row of a table and ends nothing; ``either``: an error or a warning, as the place
says. ``heddle validate`` tells errors of a stream that no query reads as warnings."""


@dataclass(frozen=True)
class Code:
    """An error code.

    Parameters
    ----------
    code
        ``HDL-`` and three digits.
    meaning
        What has happened, one sentence.
    action
        What a person does about it, one sentence.
    severity
        How it is told: see :data:`Severity`.
    exit_code
        Of a command that it ends: 2 if the command was called wrongly, else 1.
    fatal
        Whether it fails a run as a whole wherever it arises; any other error that arises in the work on one stream
        fails that stream alone, and the run if no stream is left.
    http_status
        Of a page of the Airflow plugin that it ends.
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
        """What it is about: one of :data:`AREAS`."""
        return AREAS[self.code[len("HDL-")]]
