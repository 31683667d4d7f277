"""Under which declaration of a stream something was stored, and whether that is still the declaration of now.

What Heddle stores names its declaration by :func:`optimizer.workload.declarations.declaration_digest`. Warehouses that
were written before there were digests do not: there the stored plans of then say how the stream was declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from optimizer.workload.declarations import all_columns, declaration_digest, time_digest
from optimizer.workload.values import Stream

BETWEEN = "|"
"""Between a token and the digest of the declaration that it is for."""


@dataclass(frozen=True)
class Declaration:
    """How a stream is declared now. ``plans``: reads how the plans of before there were digests declare it."""

    stream: Stream
    plans: Callable[[], tuple[Stream, ...]] = tuple

    @cached_property
    def former(self) -> tuple[Stream, ...]:
        """How the plans of before there were digests declare the stream."""
        return self.plans()

    def of(self, columns: Iterable[str] | None) -> Named:
        """The declaration of some columns; None: of all in their order."""
        return Named(self, None if columns is None else tuple(columns))

    @cached_property
    def of_times(self) -> str:
        """The digest that spans of event times are named by."""
        return time_digest(self.stream)

    @cached_property
    def is_former_of_times(self) -> bool:
        """Whether spans that name no declaration are those of the times of now."""
        return bool(self.former) and all(time_digest(one) == self.of_times for one in self.former)


@dataclass(frozen=True)
class Named:
    """How some ``columns`` of a stream are declared now; None: all, and their order counts."""

    declaration: Declaration
    columns: tuple[str, ...] | None

    @cached_property
    def digest(self) -> str:
        """The declaration digest of the columns."""
        return self._digest_in(self.declaration.stream)

    def _digest_in(self, stream: Stream) -> str:
        if self.columns is None:
            return declaration_digest(stream, all_columns(stream), in_order=True)
        return declaration_digest(stream, self.columns)

    @cached_property
    def is_former(self) -> bool:
        """Whether what names no declaration was stored under the one of now."""
        former = self.declaration.former
        return bool(former) and all(self._digest_in(one) == self.digest for one in former)

    def token(self, token: str, has_content: bool) -> str:
        """A token with the digest, as it is stored. Where there is no content there is nothing to declare."""
        return f"{token}{BETWEEN}{self.digest if has_content else ''}"

    def is_token(self, stored: str, token: str, has_content: bool) -> bool:
        """Whether a stored token is this one, under the declaration of now."""
        if stored == token:
            return not has_content or self.is_former
        return stored == self.token(token, has_content)

    def is_of(self, stored: str) -> bool:
        """Whether a stored token is of the declaration of now, whatever its content."""
        _, between, digest = stored.partition(BETWEEN)
        return digest in ("", self.digest) if between else self.is_former
