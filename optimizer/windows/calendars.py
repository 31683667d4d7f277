"""Time zones: when their days and months begin, in microseconds UTC.

The clock of a zone is that of the tz database in the package ``tzdata``, whose version is pinned, never that of the
machine. It is known from 1970 to 2200; before and after that it goes on with the offset that it then has.

A day begins at its midnight. A midnight that the clock shows twice is the first one; one that it leaves out is where it
would have been by the offset before.
"""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Calendar, digest

Longs = NDArray[np.int64]

LAST_YEAR = 2200
"""The clocks of zones are known from the beginning of 1970 to that of :data:`LAST_YEAR`."""

_MONDAY = 4
"""Days from 1970-01-01 to the first Monday."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """The names of all zones."""
    return frozenset(importlib.resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


def check_zone(name: str) -> None:
    """Raises HDL-240 unless there is a zone of a name."""
    if name not in zones():
        same = [zone for zone in zones() if zone.lower() == name.lower()]
        hint = f"did you mean {same[0]}?" if same else meant(name, sorted(zones()), "zones")
        message = f"there is no time zone {name[:60]!r}"
        raise HeddleError("HDL-240", message, hint or "write one of the tz database: 'Europe/Berlin'")


def edition(zone: str) -> str:
    """A digest of all changes of a zone's clock."""
    known = clock(zone)
    return digest([known.moments.tolist(), known.offsets.tolist()])


@dataclass(frozen=True, eq=False)
class Clock:
    """The clock of a zone. ``moments`` (n,): since when it has each of its ``offsets`` (n + 1,) from UTC, the first of
    which it has before."""

    moments: Longs
    offsets: Longs

    @cached_property
    def every_offset(self) -> tuple[int, ...]:
        """The distinct offsets."""
        return tuple(sorted(set(self.offsets.tolist())))

    @cached_property
    def _shown(self) -> Longs:
        """Time of the clock from which on each change has happened for good (n,)."""
        return self.moments + np.maximum(self.offsets[:-1], self.offsets[1:])

    def local(self, instants: Longs) -> Longs:
        """Times on the clock at some instants, as instants at which a clock in UTC shows them. Shape (n,) to (n,)."""
        return instants + self.offsets[np.searchsorted(self.moments, instants, side="right")]

    def instants_of(self, numbers: Longs, unit: str, offset: int = 0) -> Longs:
        """Begins of days or months, which are numbered from 1970-01-01, by the clock so many microseconds later. Shape
        (n,) to (n,).
        """
        days = numbers if unit == "day" else numbers.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        shown = days * DAY + offset
        return shown - self.offsets[np.searchsorted(self._shown, shown, side="right")]

    def days_at(self, instants: Longs, offset: int) -> Longs:
        """The number of the newest day that has begun at some instants, if days begin by the clock so many microseconds
        later. Shape (n,) to (n,).
        """
        near = (self.local(instants) - offset) // DAY
        # a midnight that the clock shows twice is the first one
        day = np.where(self.instants_of(near + 1, "day", offset) <= instants, near + 1, near)
        return np.where(self.instants_of(day, "day", offset) > instants, day - 1, day)

    def steps_at(self, instants: Longs, step: int) -> Longs:
        """The latest multiple of a step that the clock has shown by some instants. Shape (n,) to (n,)."""
        number = np.searchsorted(self.moments, instants, side="right")
        shown = instants + self.offsets[number]
        if len(self.moments):
            # in an hour that the clock repeats it has shown later ones before
            last = np.maximum(number - 1, 0)
            before = np.where(number > 0, self.moments[last] + self.offsets[last] - 1, shown)
            shown = np.maximum(shown, before)
        return shown // step * step

    def first_shown(self, times: Longs, step: int) -> Longs:
        """When the clock first shows some times, multiples of a step; of one that it leaves out, the last step before
        the change. Shape (n,) to (n,).
        """
        number = np.searchsorted(self._shown, times, side="right")
        if len(self.moments):
            following = np.minimum(number, len(self.moments) - 1)
            left_out_from = (self.moments + self.offsets[:-1])[following]
            is_put_forward = (number < len(self.moments)) & (np.diff(self.offsets)[following] > 0)
            times = np.where(is_put_forward & (times > left_out_from), left_out_from // step * step, times)
        return times - self.offsets[number]

    def shows_multiples(self, step: int, begin: int, end: int) -> Longs:
        """The instants in ``(begin, end]`` at which the clock shows a multiple of a step, which divides a day."""
        low, high = (int(at) for at in np.searchsorted(self.moments, [begin, end], side="right"))
        bounds = [begin + 1, *self.moments[low:high].tolist(), end + 1]
        pieces = [np.empty(0, dtype=np.int64)]
        for offset, (first, last) in zip(self.offsets[low : high + 1].tolist(), pairwise(bounds), strict=True):
            pieces.append(np.arange(first + -(first + offset) % step, last, step, dtype=np.int64))
        return np.concatenate(pieces)


@lru_cache(maxsize=1024)
def clock(zone: str) -> Clock:
    """The clock of a zone. Raises KeyError for one that is not in the tz database."""
    if zone not in zones():
        raise KeyError(zone)
    with importlib.resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as file:
        rules = ZoneInfo.from_file(file, zone)

    # a call for each day of 230 years
    def offset(second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, rules).utcoffset()

    day = DAY // SECOND
    last = (datetime(LAST_YEAR, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
    moments, shifts = list[int](), [offset(0)]
    for second in range(day, last + 1, day):
        if (now := offset(second)) != shifts[-1]:
            # no zone changes its clock twice within a day
            low, high = second - day, second
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == shifts[-1] else (low, middle)
            moments.append(high * SECOND)
            shifts.append(now)
    offsets = [0 if shift is None else shift // timedelta(microseconds=1) for shift in shifts]
    return Clock(np.array(moments, dtype=np.int64), np.array(offsets, dtype=np.int64))


def numbers(clock: Clock, span: tuple[int, str], begin: int, end: int) -> Longs:
    """The numbers of the days or months, multiples of a span, that begin in ``[begin, end]``, and of one more on
    either side at least. Multiples of seven days are counted from Mondays, all others from 1970-01-01."""
    count, unit = span
    # the midnights next to an instant are at most a day of the clock, and a day of its changes, away from what it shows
    shown = clock.local(np.array([begin, end], dtype=np.int64)) // DAY + np.array([-2, 2])
    if unit == "month":
        shown = shown.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    origin = _MONDAY if unit == "day" and count % 7 == 0 else 0
    first, last = (int(at) for at in (shown - origin) // count)
    return np.arange(first - 1, last + 3, dtype=np.int64) * count + origin


def moved_back(clock: Clock, calendar: Calendar, bounds: Longs, step: int, are_ends: bool) -> Longs:
    """Bounds of windows, moved back by the days or months of a calendar's ``ago``: to the same time of the clock on an
    earlier date. Shape (n,) to (n,), ascending if the bounds are.

    A month may lack the date. Then a start is on its last day, and an end, which is exclusive, is the end of that day:
    the windows that end with 29, 30 and 31 March end a month ago with 28 February.

    ``step``: where instants are within days, multiples of it by the clock; else a day.
    """
    assert calendar.ago is not None
    (count, unit), offset = calendar.ago, calendar.offset % DAY
    day = clock.days_at(bounds, offset)
    time = clock.steps_at(bounds, step) - offset - day * DAY
    time = np.where(clock.instants_of(day, "day", offset) == bounds, 0, np.clip(time, 0, DAY - 1) // step * step)
    if unit == "month":
        date = day.astype("datetime64[D]")
        month = date.astype("datetime64[M]") - count
        first, following = (each.astype("datetime64[D]").astype(np.int64) for each in (month, month + 1))
        moved = first + (day - date.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64))
        is_lacking = moved >= following
        moved = np.where(is_lacking, following if are_ends else following - 1, moved)
        time = np.where(is_lacking, 0, time)
    else:
        moved = day - count
    begins = clock.instants_of(moved, "day", offset)
    within = clock.first_shown(moved * DAY + offset + time, step)
    return np.where(time > 0, np.maximum(within, begins), begins)
