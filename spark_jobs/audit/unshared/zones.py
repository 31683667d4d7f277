"""Changes of the clocks of time zones, read from the pinned tz database without the optimizer's help."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=64)
def changes_of(name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The moments (n,) at which a zone's clock changes from 1970 to 2200, and its offsets from UTC before, between and
    after them (n + 1,), both in microseconds.
    """
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        zone = ZoneInfo.from_file(rules, name)
    moments, offsets = list[int](), [_offset(_FIRST, zone)]
    at, step = _FIRST, timedelta(hours=20)
    while at < _LAST:
        later = min(at + step, _LAST)
        if _offset(later, zone) != offsets[-1]:
            low, high = at, later
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // timedelta(seconds=2) * timedelta(seconds=1)
                low, high = (middle, high) if _offset(middle, zone) == offsets[-1] else (low, middle)
            moments.append((high - _FIRST) // _MICROSECOND)
            offsets.append(_offset(high, zone))
        at = later
    return tuple(moments), tuple(offsets)


def _offset(at: datetime, zone: ZoneInfo) -> int:
    shift = at.astimezone(zone).utcoffset()
    return 0 if shift is None else shift // _MICROSECOND
