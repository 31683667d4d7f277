"""Coded, positioned errors: what a person sees when something they wrote cannot be used.

Codes are stable and grouped: ``HDL-1xx`` query text, ``HDL-2xx`` meaning (names, types, windows),
``HDL-3xx`` limits, ``HDL-4xx`` streams and their data, ``HDL-5xx`` warehouse and publishing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One finding about one query, stream or warehouse.

    ``line`` and ``column`` are 1-based positions in ``file`` (0: not about a position);
    ``severity`` is ``"error"`` (the query or stream is left out) or ``"warning"``.
    """

    code: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    query: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: " if self.line else (f"{self.file}: " if self.file else "")
        about = f" [{self.query}]" if self.query else ""
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{where}{self.severity} {self.code}{about} {self.message}{hint}"

    def to_json(self) -> dict[str, object]:
        return asdict(self)


class HeddleError(Exception):
    """An expected failure that carries its :class:`Diagnostic`."""

    def __init__(self, code: str, message: str, hint: str = "", **where: object) -> None:
        self.diagnostic = Diagnostic(code, message, hint, **where)  # type: ignore[arg-type]
        super().__init__(str(self.diagnostic))

    @classmethod
    def of(cls, diagnostic: Diagnostic) -> HeddleError:
        error = cls(diagnostic.code, diagnostic.message)
        error.diagnostic = diagnostic
        error.args = (str(diagnostic),)
        return error
