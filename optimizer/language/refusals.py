"""Refusals of text: the error that the reading functions raise, and the pieces that its messages need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot.tokens import TokenType

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Type


class Refused(Exception):
    """Ends the reading of one clause; ``at`` is an offset in the statement's text."""

    def __init__(self, code: str, message: str, hint: str = "", at: int = 0) -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.at = code, message, hint, at

    @classmethod
    def of(cls, error: HeddleError, at: int) -> Refused:
        """The refusal of a place in the text, for the reason of an error."""
        diagnostic = error.diagnostic
        return cls(diagnostic.code, diagnostic.message, diagnostic.hint, at)


@dataclass(frozen=True)
class Findings:
    """Problems and warnings of one statement, in the order of discovery.

    Clauses are read one by one into the same findings, so that several mistakes are reported at once.
    """

    problems: list[Refused] = field(default_factory=list)
    warnings: list[Refused] = field(default_factory=list)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """A refusal inside is a problem and goes no further."""
        try:
            yield
        except Refused as refused:
            self.problems.append(refused)


QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)

NULL = Type("null")
"""Type of NULL until its neighbours' type is known; never leaves this package."""

_SHOWN = 60
"""Characters of somebody's text that a message repeats."""


def shown_text(text: str) -> str:
    """A piece of the user's text as messages quote it, cut where it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


# ---------------------------------------------------------------------------------- our clauses, as words
TIME_WINDOW = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON <time column>"
