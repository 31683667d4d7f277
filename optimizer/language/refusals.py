"""How text is refused: the error that the reading functions raise, and the pieces that its messages need."""

from __future__ import annotations

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
        found = error.diagnostic
        return cls(found.code, found.message, found.hint, at)


QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)

NULL = Type("null")
"""Type of NULL until what stands beside it is known; never leaves this module."""

_SHOWN = 60
"""Characters of somebody's text that a message repeats."""


def shown_text(text: str) -> str:
    """A piece of the user's text as messages quote it, cut where it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


# ---------------------------------------------------------------------------------- our clauses, as words
TIME_WINDOW = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON <time column>"
