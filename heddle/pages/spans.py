"""The time span of a page: parsed from an address, and as links to the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optimizer.workload.instants import format_instant
from spark_jobs.operations.series import Span, SpanName

NAMES: dict[SpanName, str] = {"day": "last day", "week": "last week", "month": "last month", "all": "all"}


@dataclass(frozen=True)
class Link:
    """A choice that is a link; ``is_chosen``: it is the one that is shown; ``note``: the text after its label."""

    address: str
    label: str
    is_chosen: bool
    note: str = ""


def span_of(name: str, begin: int | None, end: int | None, first: SpanName = "week") -> Span:
    """The requested span: a name of :data:`NAMES`, or instants (microseconds); ``first`` for anything else."""
    if begin is not None or end is not None:
        return Span("between", begin, end)
    return Span(next((known for known in NAMES if known == name), first))


def span_links(span: Span, address: Callable[[SpanName], str], names: Sequence[SpanName] = tuple(NAMES)) -> list[Link]:
    """Links to the spans that have a name."""
    return [Link(address(name), NAMES[name], span.name == name) for name in names]


def field_of(at: int | None) -> str:
    """An instant as a form has it."""
    return "" if at is None else format_instant(at).removesuffix("Z")
