"""Coded, positioned errors: what a person sees when something they wrote cannot be used.

Codes are stable and grouped: ``HDL-1xx`` query text, ``HDL-2xx`` meaning (names, types, windows),
``HDL-3xx`` limits, ``HDL-4xx`` streams and their data, ``HDL-5xx`` warehouse and publishing, ``HDL-6xx`` answers on
demand, ``HDL-9xx`` what nobody foresaw. :mod:`optimizer.errors.codes` declares each of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from optimizer.errors.redaction import redacted

MOST = {"message": 600, "hint": 600, "file": 1024, "query": 160}
"""Characters that a finding keeps of each of its texts: they repeat what somebody wrote, who may have written a lot."""


def printable(text: str, most: int | None = None) -> str:
    """Text that cannot act on a terminal, a page or a log: what is not printable (escape sequences, line ends,
    characters that turn the direction of writing, halves of characters) by its code point, cut after ``most``."""
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    shown = "".join(c if _is_seen(c) else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if most is None or len(shown) <= most else shown[: most - 1] + "…"


def _is_seen(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


@dataclass(frozen=True)
class Diagnostic:
    """One finding about one query, stream or warehouse.

    ``line`` and ``column`` are 1-based positions in ``file`` (0: not about a position);
    ``severity`` is ``"error"`` (the query or stream is skipped) or ``"warning"``. Texts are redacted, made
    printable and cut.
    """

    code: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    query: str = ""
    severity: str = "error"

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            object.__setattr__(self, name, printable(redacted(getattr(self, name)), most))

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else (f"{self.file}: " if self.file else "")
        about = f" [{self.query}]" if self.query else ""
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{place}{self.severity} {self.code}{about} {self.message}{hint}"

    def to_json(self) -> dict[str, object]:
        """The fields as JSON values."""
        return asdict(self)


class HeddleError(Exception):
    """An expected failure that carries its :class:`Diagnostic`; ``causes``: earlier findings that led to it."""

    causes: tuple[Diagnostic, ...] = ()

    def __init__(self, code: str, message: str, hint: str = "", **where: object) -> None:
        self.diagnostic = Diagnostic(code, message, hint, **where)  # type: ignore[arg-type]
        super().__init__(str(self.diagnostic))

    @property
    def code(self) -> str:
        """``HDL-`` and three digits (docs/errors.md)."""
        return self.diagnostic.code

    @property
    def hint(self) -> str:
        """Advice for fixing it; empty if nothing is known."""
        return self.diagnostic.hint

    @property
    def position(self) -> tuple[str, int, int] | None:
        """File, line and column (from 1) of what is wrong; None if it is no text of a file."""
        diagnostic = self.diagnostic
        return (diagnostic.file, diagnostic.line, diagnostic.column) if diagnostic.line else None

    @classmethod
    def of(cls, diagnostic: Diagnostic, *causes: Diagnostic) -> HeddleError:
        """The error of a diagnostic that is there already, with what caused it."""
        error = cls(diagnostic.code, diagnostic.message)
        error.diagnostic, error.causes = diagnostic, causes
        error.args = ("\n".join(map(str, (diagnostic, *causes))),)
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the diagnostic and its causes, for other processes."""
        return HeddleError.of, (self.diagnostic, *self.causes)


def meant(name: str, known: Iterable[str], what: str = "known", shown: int = 12) -> str:
    """A hint for a name that is not known: the nearest that is, else the first of them; \"\" if there are none."""
    known = sorted(known)
    lower = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), lower, 1)
    if close:
        return f"did you mean {lower[close[0]]}?"
    return f"{what}: {', '.join(known[:shown])}" + (", …" if len(known) > shown else "") if known else ""


def count(number: int, noun: str) -> str:
    """A number of things, each called ``noun``: ``1 query``, ``2 queries``."""
    endings = ((r"(?<=[^aeiou])y$", "ies"), (r"sis$", "ses"), (r"(?<=s|x)$|(?<=sh|ch)$", "es"), (r"$", "s"))
    plural = next(re.sub(ending, suffix, noun, count=1) for ending, suffix in endings if re.search(ending, noun))
    return f"{number:,} {noun if number == 1 else plural}"
