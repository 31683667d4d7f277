"""Instants and durations: their units, and how they are written."""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import SECOND, Window

DAY = 86_400 * 1_000_000
"""Microseconds in a UTC day: partials and results are partitioned by it."""


FAR_APART = 366 * DAY
"""Events that are further apart (microseconds) share no window: no range is longer. What is stored, read and warned of
goes by the groups of events between such gaps."""

_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
    "day": DAY,
    "week": 7 * DAY,
}

_ABBREVIATED = {"us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second", "min": "minute"}

_ABBREVIATED |= {"m": "minute", "h": "hour", "hr": "hour", "d": "day", "w": "week"}

_IN_CALENDAR = {"day": (1, "day"), "week": (7, "day"), "month": (1, "month"), "quarter": (3, "month")}

_IN_CALENDAR |= {"year": (12, "month")}
"""Units of a calendar, each as a number of days or months."""

_LONGEST_DURATION = 256

_TERM = re.compile(r"([+-]?\d{1,18}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII)


def parse_duration(text: str) -> int:
    """Microseconds of a duration like ``'90 seconds'``, ``'1 day 6 hours'`` or ``'1h30m'``; may be zero or negative.

    Raises HDL-204 if it is malformed, uses months or years, or is not a whole number of microseconds.
    """
    example = "write it like '5 minutes', '90 seconds' or '1 day 6 hours'"
    if len(text) > _LONGEST_DURATION:
        raise HeddleError("HDL-204", f"a duration of {len(text)} characters", example)
    total, unread = Fraction(0), text.strip().lower()
    if not unread:
        raise HeddleError("HDL-204", "the duration is empty", example)
    while unread:
        term = _TERM.match(unread)
        if term is None:
            raise HeddleError("HDL-204", f"{text!r} is not a duration", example)
        unit = _unit(term[2])
        if unit in ("month", "year", "quarter"):
            raise HeddleError(
                "HDL-204", f"{text!r}: {unit}s have no fixed length", "write the days: '30 days', '365 days'"
            )
        if unit not in _UNITS:
            close = difflib.get_close_matches(unit, _UNITS, 1)
            hint = f"did you mean {close[0]}s?" if close else "units: " + ", ".join(name + "s" for name in _UNITS)
            raise HeddleError("HDL-204", f"{text!r}: there is no unit {term[2]}", hint)
        total += Fraction(term[1]) * _UNITS[unit]
        unread = unread[term.end() :].lstrip()
    if total.denominator != 1:
        raise HeddleError("HDL-204", f"{text!r} is not a whole number of microseconds")
    return int(total)


def _unit(word: str) -> str:
    """A unit without its plural and abbreviation, known or not."""
    return _ABBREVIATED.get(word) or _ABBREVIATED.get(word.removesuffix("s")) or word.removesuffix("s")


def is_unit(word: str) -> bool:
    """Return whether a word is a unit of durations or of calendars."""
    return _unit(word.lower()) in {**_UNITS, **_IN_CALENDAR}


def parse_calendar_span(text: str) -> tuple[int, str] | None:
    """A number of ``day`` or of ``month`` of a text like ``'1 week'`` or ``'3 months'``; None for other durations.

    Raises HDL-204 if it has months together with days or shorter units.
    """
    terms = [(term, _IN_CALENDAR.get(_unit(term[2]))) for term in _TERM.finditer(text.strip().lower())]
    units = {calendar_unit[1] if calendar_unit else "" for _, calendar_unit in terms}
    if "month" in units and len(units) > 1:
        message = f"{text!r}: months have no fixed length in days"
        raise HeddleError("HDL-204", message, "write months alone, or days: '30 days', '365 days'")
    is_complete = "".join(text.split()).lower() == "".join("".join(term[0].split()) for term, _ in terms)
    if not is_complete or len(units) != 1 or units == {""} or not all(term[1].isdecimal() for term, _ in terms):
        return None
    return sum(int(term[1]) * calendar_unit[0] for term, calendar_unit in terms if calendar_unit), units.pop()


def calendar_text(span: tuple[int, str]) -> str:
    """A number of days or months in words: ``1 quarter``."""
    count, unit = span
    for name, (size, of) in reversed(_IN_CALENDAR.items()):
        if of == unit and count % size == 0:
            return f"{count // size} {name}" + ("" if count == size else "s")
    return f"{count} {unit}s"


def irregular_words(window: Window) -> tuple[str, str] | None:
    """Range and slide, in words, of a window whose length is not that of all, or of sessions: ``1 month in Rome``."""
    if window.is_regular:
        return None
    if window.gap is not None:
        return f"session up to {duration_text(window.range)}", f"pause of {duration_text(window.gap)}"
    if window.parts:
        sizes = [_part_words(part) for part in window.parts]
        first = irregular_words(window.parts[0])
        slide = duration_text(window.period) if first is None else first[1]
        return " and ".join(filter(None, (", ".join(sizes[:-1]), sizes[-1]))), slide
    size, slide, offset = duration_text(window.range), duration_text(window.slide), window.offset
    if window.calendar is not None:
        size, offset = f"{calendar_text(window.calendar.range)} in {window.calendar.zone}", window.calendar.offset
        slide = slide if window.calendar.slide is None else calendar_text(window.calendar.slide)
    size += f" from {duration_text(offset)} on" if offset else ""
    size += f" ending {duration_text(window.ago)} ago" if window.ago else ""
    if window.calendar is not None and window.calendar.ago is not None:
        size += f" ending {calendar_text(window.calendar.ago)} ago"
    return f"up to {size}" if window.cumulative else size, slide


def _part_words(part: Window) -> str:
    """The length of one of several windows in words."""
    words = irregular_words(part)
    if words is not None:
        return words[0]
    size = duration_text(part.range)
    return f"{size} ending {duration_text(part.ago)} ago" if part.ago else size


def duration_text(microseconds: int) -> str:
    """A duration in words: ``90 minutes``."""
    for unit, size in reversed(_UNITS.items()):
        if microseconds % size == 0 and abs(microseconds) >= size:
            count = microseconds // size
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return "0 seconds"


def instant_of_text(text: str) -> int | None:
    """An ISO 8601 instant or date as microseconds UTC; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def rows_text(count: int) -> str:
    """A number of rows as text."""
    return f"{count} row" + ("" if count == 1 else "s")


def format_instant(instant: int) -> str:
    """Microseconds UTC as ISO 8601, e.g. ``2013-07-01T00:00:00Z``."""
    text = str(np.datetime64(instant, "us"))
    return text.removesuffix(".000000") + "Z"
