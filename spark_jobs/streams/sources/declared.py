"""Compare the declaration under which something was stored with the current declaration of its stream.

Stored data name their declaration by :func:`optimizer.workload.declarations.declaration_digest`. Warehouses from
before there were digests do not: their stored plans contain the stream's declaration.
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
    """The current declaration of a stream. ``plans``: reads the declarations in plans from before there were
    digests.
    """

    stream: Stream
    plans: Callable[[], tuple[Stream, ...]] = tuple

    @cached_property
    def former(self) -> tuple[Stream, ...]:
        """Declarations of the stream in plans from before there were digests."""
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
        """Return whether spans without a declaration are those of the current times."""
        return bool(self.former) and all(time_digest(stream) == self.of_times for stream in self.former)


@dataclass(frozen=True)
class Named:
    """Current declaration of some ``columns`` of a stream; None: of all, and their order counts."""

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
        """Return whether data without a declaration were stored under the current one."""
        former = self.declaration.former
        return bool(former) and all(self._digest_in(stream) == self.digest for stream in former)

    def token(self, token: str, has_content: bool) -> str:
        """A token with the digest, as it is stored. Where there is no content there is nothing to declare."""
        return f"{token}{BETWEEN}{self.digest if has_content else ''}"

    def is_token(self, stored: str, token: str, has_content: bool) -> bool:
        """Return whether a stored token equals this one, under the current declaration."""
        if stored == token:
            return not has_content or self.is_former
        return stored == self.token(token, has_content)

    def is_of(self, stored: str) -> bool:
        """Return whether a stored token has the current declaration, regardless of its content."""
        _, between, digest = stored.partition(BETWEEN)
        return digest in ("", self.digest) if between else self.is_former
