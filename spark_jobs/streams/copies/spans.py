"""Spans of a watermark, which are the pieces of a source without files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

COUNTED_AGAIN = 3
"""Number of the newest copied spans that are counted again, because rows may have become visible since."""

UNPLACED = -(1 << 63)
"""Both ends of the piece with the rows whose watermark is null, which no span contains."""

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class WatermarkSpan:
    """The rows whose watermark is greater than ``after`` (None: all) and at most ``to``. ``rows``: their number, in the
    name of a piece that replaces another."""

    after: int | None
    to: int
    rows: int | None = None

    @property
    def piece(self) -> str:
        """The name of the piece."""
        ends: dict[str, int | None] = {"after": self.after, "to": self.to}
        return json.dumps(ends if self.rows is None else ends | {"rows": self.rows})

    @property
    def is_unplaced(self) -> bool:
        """Return whether it has the rows without a watermark."""
        return self.after == self.to == UNPLACED


def spans_of(pieces: Iterable[str]) -> list[tuple[WatermarkSpan, str]]:
    """The spans that some pieces are, with their names, by their ends: first that of rows without a watermark."""
    named = [(json.loads(piece), piece) for piece in pieces]
    spans = [(WatermarkSpan(ends["after"], ends["to"], ends.get("rows")), piece) for ends, piece in named]
    return sorted(spans, key=lambda pair: pair[0].to)


def by_clock(instant: int, zone: str | None) -> int:
    """The time that a clock in a zone (None: UTC) shows at an instant, both in microseconds since 1970."""
    if zone is None:
        return instant
    try:
        at = _EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=instant)
        shown = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except OverflowError:
        return instant
    return (shown - _EPOCH) // timedelta(microseconds=1)
