"""Cumulative windows and those of calendars, worked out day by day with ``datetime``: the oracle's."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import pyarrow as pa

from optimizer.workload.values import Calendar, Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400 * 1_000_000


def windows_between(window: Window, begin: int, end: int) -> pa.Table:
    """The windows with an instant in (begin, end]: ``since``, ``until`` and the ``instant``, microseconds."""
    starts = dict[int, int]()
    for since, until in sorted(_windows(window, begin, end)):
        # of those that end together the first one
        if since < until and begin < until <= end:
            starts.setdefault(until, since)
    spans = [(_moved(window, since, False), _moved(window, until, True), until) for until, since in starts.items()]
    columns = zip(*spans, strict=True) if spans else ((), (), ())
    return pa.table(
        {name: pa.array(at, pa.int64()) for name, at in zip(("since", "until", "instant"), columns, strict=True)}
    )


def _moved(window: Window, bound: int, is_end: bool) -> int:
    """Where a historical window of some instant begins or ends, from where it would if it were not historical."""
    calendar = window.calendar
    if calendar is None:
        return bound - window.ago
    if calendar.ago is None:
        return bound
    step = window.slide if calendar.slide is None else DAY
    return _moved_by_date(calendar.zone, calendar.offset % DAY, calendar.ago, step, bound, is_end)


@cache
def _moved_by_date(name: str, offset: int, ago: tuple[int, str], step: int, bound: int, is_end: bool) -> int:
    zone, about = zone_of(name), (EPOCH + timedelta(microseconds=bound)).date()
    day = max(day for day in _around(about) if _begin(day, zone, offset) <= bound)
    passed = [at for at in range(0, DAY, step) if (first := _shown_first(day, at + offset, zone)) and first[0] <= bound]
    time = 0 if _begin(day, zone, offset) == bound else max(passed, default=0)
    if ago[1] == "day":
        day -= timedelta(days=ago[0])
    else:
        number, month = divmod(day.year * 12 + day.month - 1 - ago[0], 12)
        last = monthrange(number, month + 1)[1]
        if day.day > last:
            day, time = date(number, month + 1, last) + timedelta(days=is_end), 0
        else:
            day = date(number, month + 1, day.day)
    for at in range(time, 0, -step):
        if first := _shown_first(day, at + offset, zone):
            return max(first[0], _begin(day, zone, offset))
        # the clock leaves it out, and is put forward at this very time
        if before := _shown_first(day, at + offset - 1, zone):
            return max(before[0] + 1, _begin(day, zone, offset))
    return _begin(day, zone, offset)


def _around(day: date) -> list[date]:
    return [day + timedelta(days=days) for days in range(-3, 4)]


def _shown_first(day: date, time: int, zone: ZoneInfo) -> tuple[int] | None:
    """The instant at which a clock first shows a time of a day; None if it does not."""
    shown = datetime(day.year, day.month, day.day) + timedelta(microseconds=time)
    if shown.date() <= EPOCH.date():
        return (_begin(day, zone, time),)
    moment = shown.replace(tzinfo=zone).astimezone(UTC)
    return (micros(moment),) if moment.astimezone(zone).replace(tzinfo=None) == shown else None


@cache
def zone_of(name: str) -> ZoneInfo:
    """A zone by the pinned rules: those of the machine may be others."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, name)


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def _windows(window: Window, begin: int, end: int) -> Iterator[tuple[int, int]]:
    calendar = window.calendar
    if calendar is None:
        offset, width = window.offset, window.range
        for until in range((begin - offset) // window.slide * window.slide + offset, end + 1, window.slide):
            yield (until - offset - 1) // width * width + offset, until
        return
    zone = zone_of(calendar.zone)
    first = (EPOCH + timedelta(microseconds=begin)).date() - timedelta(days=calendar.range[0] * 32 + 3)
    last = (EPOCH + timedelta(microseconds=end)).date() + timedelta(days=2)
    if not window.cumulative:
        assert calendar.slide is not None
        for day in _multiples(calendar.slide, first, last):
            yield _begin(day, zone, calendar.offset), _begin(_later(day, calendar.range), zone, calendar.offset)
        return
    starts = sorted({_begin(day, zone, calendar.offset) for day in _multiples(calendar.range, first, last)})
    for until in {*starts, *_steps(calendar, window.slide, first, last)}:
        if begin < until <= end:
            yield max(start for start in starts if start < until), until


def _steps(calendar: Calendar, step: int, first: date, last: date) -> Iterator[int]:
    zone = zone_of(calendar.zone)
    if calendar.slide is not None:
        yield from (_begin(day, zone, calendar.offset) for day in _multiples(calendar.slide, first, last))
        return
    for day in _multiples((1, "day"), first, last):
        yield _begin(day, zone, calendar.offset)
        for at in range(0, DAY, step):
            shown = datetime(day.year, day.month, day.day) + timedelta(microseconds=at)
            for fold in (0, 1):
                moment = shown.replace(tzinfo=zone, fold=fold).astimezone(UTC)
                # the clock leaves out some, and shows others twice
                if moment.astimezone(zone).replace(tzinfo=None) == shown:
                    yield micros(moment)


def _begin(day: date, zone: ZoneInfo, offset: int) -> int:
    shown = datetime(day.year, day.month, day.day) + timedelta(microseconds=offset)
    if day <= EPOCH.date():
        # before 1970 a clock goes on with the offset that it has then
        first = EPOCH.astimezone(zone)
        return micros((shown - (first.replace(tzinfo=None) - EPOCH.replace(tzinfo=None))).replace(tzinfo=UTC))
    return micros(shown.replace(tzinfo=zone))


def _later(day: date, span: tuple[int, str]) -> date:
    if span[1] == "day":
        return day + timedelta(days=span[0])
    months = day.year * 12 + day.month - 1 + span[0]
    return date(months // 12, months % 12 + 1, 1)


def _multiples(span: tuple[int, str], first: date, last: date) -> Iterator[date]:
    """The days between two days on which multiples of a span begin."""
    count, unit = span
    for ordinal in range(first.toordinal(), last.toordinal() + 1):
        day = date.fromordinal(ordinal)
        if unit == "month":
            begins = day.day == 1 and ((day.year - 1970) * 12 + day.month - 1) % count == 0
        elif count % 7 == 0:
            begins = (day - date(1970, 1, 5)).days % count == 0
        else:
            begins = (day - date(1970, 1, 1)).days % count == 0
        if begins:
            yield day
