"""The WINDOW clause as a window: of time, of rows, or with a refresh bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from sqlglot.tokens import Token

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.clauses import WindowWords
from optimizer.language.grouping import Grouping
from optimizer.language.refusals import Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.words import Limits, resolve_name
from optimizer.windows.calendars import check_zone
from optimizer.workload.instants import (
    DAY,
    calendar_text,
    duration_text,
    parse_calendar_span,
    parse_duration,
    rows_text,
)
from optimizer.workload.values import CALENDAR_UNITS, SECOND, Calendar, Window

_COUNT = re.compile(r"0*[1-9]\d{0,17}", re.ASCII)


def read_named_windows(
    words: Sequence[WindowWords], scope: Scope, grouping: Grouping, findings: Findings
) -> dict[str, Window]:
    """The named windows of a query, in their order. Raises Refused, HDL-245 if they do not have the same instants."""
    if len(words) > scope.limits.windows:
        at = words[scope.limits.windows].range.start
        raise Refused("HDL-310", f"{len(words)} windows; the limit is {scope.limits.windows}", "split the query", at)
    windows: dict[str, Window] = {}
    has_months = any(map(_has_months, words))
    for each in words:
        assert each.name is not None
        if resolve_name(each.name.text, windows) is not None:
            message = f"two windows are named {shown_text(each.name.text)}"
            raise Refused("HDL-244", message, "give each its own name", each.name.start)
        window = read_window(each, scope, grouping, findings, has_months)
        if windows:
            _check_instants(next(iter(windows.items())), window, each)
        windows[each.name.text] = window
    return windows


def _check_instants(first: tuple[str, Window], window: Window, words: WindowWords) -> None:
    """Refuse a window whose instants are not those of the first one."""
    name, other = first
    at, written = words.range.start, shown_text(words.range.text)
    if window.slide != other.slide or (window.calendar is None) != (other.calendar is None):
        message = f"{words.first_word} {written} and {name} have no slide in common"
        hint = "write one SLIDE for all windows: days, weeks, months and years of a zone do not go with shorter ones"
        raise Refused("HDL-245", message, hint, at)
    if window.calendar is not None and other.calendar is not None:
        if _phase(window.calendar) != _phase(other.calendar) or window.cumulative < other.cumulative != _is_each(other):
            message = f"windows of {written} do not end when those of {name} do"
            raise Refused("HDL-245", message, "write SLIDE '1 day', or lengths in the unit of the slide", at)
        return
    phase, others = (each.phase % each.slide for each in (window, other))
    if phase != others:
        message = f"windows of {written} do not end when those of {name} do"
        down = window.range - (phase - others) % window.slide
        nearest = [duration_text(length) for length in (down, down + window.slide) if length > 0]
        raise Refused("HDL-245", message, f"{' and '.join(nearest)} do: a slide apart", at)


def _phase(calendar: Calendar) -> tuple[object, ...]:
    """Key of the instants of a calendar's window: equal where they are."""
    if calendar.slide is None:
        return (calendar.zone, calendar.offset)
    count, unit = calendar.slide
    return calendar.zone, calendar.offset, count, unit, calendar.range[0] % count if count > 1 else 0


def _is_each(window: Window) -> bool:
    """Return whether a calendar's window has an instant at each begin of its slide's unit."""
    return window.calendar is None or window.calendar.slide is None or window.calendar.slide[0] == 1


def read_window(
    words: WindowWords, scope: Scope, grouping: Grouping, findings: Findings, has_months: bool = False
) -> Window:
    """The window, within the limits; one whose slide leaves events out is warned of. ``has_months``: it, or one of the
    same query, is in months: then days are those of the calendar too.
    """
    if resolve_name(words.on.text, [scope.stream.time]) is None:
        message = f"windows of {scope.stream.name} are on {scope.stream.time}, not {shown_text(words.on.text)}"
        raise Refused("HDL-205", message, f"write ON {scope.stream.time}", words.on.start)
    if words.kind.ends_with_pauses:
        return _sessions(words, scope, grouping, findings)
    if not words.rows and (words.zone is not None or _is_of_calendar(words, has_months)):
        return _warned(_of_calendar(words, scope, findings), words, findings)
    range = _length(words.first_word, words.range, words.rows, scope)
    slide = _length(words.second_word, words.slide, words.rows, scope)
    ago = _duration("AGO", words.ago, scope.limits) if words.ago is not None else 0
    _check_lengths(range, slide, words, scope.limits, findings)
    if words.first_word == "CUMULATE":
        return _cumulative(words, range, slide, ago)
    if words.at_most:
        if words.starting is not None:
            message = "windows with a refresh bound do not start at a time: the schedule chooses their instants"
            raise Refused("HDL-241", message, "leave STARTING AT out", words.starting.start)
        return _warned(_with_bound(words, scope, range, slide, ago), words, findings, slide)
    per = tuple(sorted({_counted_by(token, scope, grouping) for token in words.per})) if words.rows else None
    offset = 0 if words.rows else _offset(words.starting) % slide
    return _warned(Window(range, slide, ago, per, offset=offset), words, findings)


def _sessions(words: WindowWords, scope: Scope, grouping: Grouping, findings: Findings) -> Window:
    """Sessions of each group, or of each value of the columns of PARTITION BY."""
    gap, longest = _duration("GAP", words.slide, scope.limits), _duration("UP TO", words.range, scope.limits)
    if longest < gap:
        message = f"UP TO ({duration_text(longest)}) is shorter than the gap ({duration_text(gap)})"
        hint = "UP TO is the longest that a session may last: '1 day' is usual"
        raise Refused("HDL-204", message, hint, words.range.start)
    per = {_counted_by(token, scope, grouping) for token in words.per} or set(grouping.columns)
    return Window.of_sessions(gap, longest, tuple(sorted(per)))


def _check_lengths(range: int, slide: int, words: WindowWords, limits: Limits, findings: Findings) -> None:
    """Refuse windows that are too many, and warn of those that are many."""
    if not words.rows and slide < limits.slide:
        message = f"{words.second_word} is shorter than {duration_text(limits.slide)}"
        raise Refused("HDL-306", message, "", words.slide.start)
    length_text = rows_text if words.rows else duration_text
    ratio, most = Fraction(range, slide), limits.warned_ratio if words.rows or words.at_most else limits.ratio
    second = words.second_word.lower()
    if ratio > most:
        message = f"{words.first_word} is more than {most:,} times {words.second_word}"
        hint = f"a {second} of {length_text(-(-range // most))} or more is allowed with it"
        raise Refused("HDL-308", message, hint, words.slide.start)
    if ratio > limits.warned_ratio:
        message = f"each event is in {int(ratio):,} windows: a group has {DAY / slide:,.0f} answers a day"
        hint = f"a {second} of {length_text(-(-range // limits.warned_ratio))} or more has fewer, and runs read less"
        findings.warnings.append(Refused("HDL-319", message, hint, words.slide.start))


def _warned(window: Window, words: WindowWords, findings: Findings, slide: int = 0) -> Window:
    """The window, after a warning about a slide that skips events. ``slide``: the bound in the query."""
    slide = slide or window.slide
    if slide <= window.range:
        return window
    length_text = rows_text if words.rows else duration_text
    range_text, between = length_text(window.range), length_text(slide)
    if window.calendar is not None and window.calendar.slide is not None:
        range_text, between = calendar_text(window.calendar.range), calendar_text(window.calendar.slide)
    message = f"the slide ({between}) is longer than the range ({range_text})"
    hint = f"the events between two windows are in none: of every {between} only {range_text} "
    hint += "need count" if words.at_most else "count, the first: windows are [k*slide, k*slide + range)"
    findings.warnings.append(Refused("HDL-210", message, hint, words.slide.start))
    return window


def _cumulative(words: WindowWords, size: int, step: int, ago: int) -> Window:
    """A window from each multiple of its size to every multiple of its step in it."""
    _check_unbounded(words, "cumulative windows")
    if size % step:
        message = f"CUMULATE ({duration_text(size)}) is no multiple of STEP ({duration_text(step)})"
        raise Refused("HDL-241", message, "a step that divides the size ends where the size does", words.slide.start)
    return Window(size, step, ago, cumulative=True, offset=_offset_of_steps(words, step, size))


_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_START = re.compile(rf"({'|'.join(_WEEKDAYS)})?\s*(?:(\d\d?):(\d\d)(?::(\d\d))?)?", re.ASCII | re.IGNORECASE)
_EPOCH_DAY = 3
"""1970-01-01 was a Thursday."""


def _day_and_time(token: Token) -> tuple[int | None, int] | None:
    """The weekday, from Monday on, and the time of day (microseconds) that a text names; None if it names none."""
    match = _START.fullmatch(token.text.strip())
    if match is None or not token.text.strip():
        return None
    weekday = None if match[1] is None else _WEEKDAYS.index(match[1].lower())
    hours, minutes, seconds = (int(match[at] or 0) for at in (2, 3, 4))
    if hours > 23 or minutes > 59 or seconds > 59:
        hint = "from '00:00' to '23:59:59'"
        raise Refused("HDL-241", f"there is no time of day {shown_text(token.text)}", hint, token.start)
    return weekday, ((hours * 60 + minutes) * 60 + seconds) * SECOND


def _offset(token: Token | None) -> int:
    """Distance from 1970-01-01T00:00Z to where one of the windows starts: a weekday, a time of day or a length."""
    if token is None:
        return 0
    named = _day_and_time(token)
    if named is not None:
        weekday, time = named
        return time if weekday is None else (weekday - _EPOCH_DAY) % 7 * DAY + time
    try:
        return parse_duration(token.text)
    except HeddleError:
        message = f"windows start at no {shown_text(token.text)}"
        hint = "write a time of day, a weekday or a length: '06:00', 'Sunday', 'Monday 06:00', '15 minutes'"
        raise Refused("HDL-241", message, hint, token.start) from None


def _offset_of_steps(words: WindowWords, step: int, size: int) -> int:
    """The offset of a cumulative window: where the size starts, which is where one of the steps does."""
    offset = _offset(words.starting) % size
    if words.starting is not None and offset % step:
        message = f"STARTING AT {shown_text(words.starting.text)} lies within a step ({duration_text(step)})"
        raise Refused("HDL-241", message, "start where a step ends", words.starting.start)
    return offset


def _calendar_offset(words: WindowWords, unit: tuple[int, str], step: int) -> int:
    """The offset of windows of a calendar, whose begins are counted in a unit, by the clock."""
    if words.starting is None:
        return 0
    named, at = _day_and_time(words.starting), words.starting.start
    if named is None:
        hint = "write a time of day, for weeks also a day: '06:00', 'Sunday', 'Monday 06:00'"
        raise Refused("HDL-241", f"days of a calendar start at no {shown_text(words.starting.text)}", hint, at)
    weekday, time = named
    if weekday is not None and (unit[1] != "day" or unit[0] % 7):
        hint = "leave the weekday out, or count in weeks: SLIDE '1 week'"
        raise Refused("HDL-241", "only weeks start at a weekday", hint, at)
    if step and time % step:
        message = f"STARTING AT {shown_text(words.starting.text)} lies within a step ({duration_text(step)})"
        raise Refused("HDL-241", message, "start where a step ends", at)
    return (weekday or 0) * DAY + time


def _check_unbounded(words: WindowWords, what: str) -> None:
    if words.at_most:
        message = f"{what} have no refresh bound: their instants are those of the calendar"
        raise Refused("HDL-241", message, "leave AT MOST out", words.slide.start)


def _has_months(words: WindowWords) -> bool:
    """Return whether a length is in months, quarters or years."""
    if words.rows or words.kind.ends_with_pauses:
        return False
    tokens = [token for token in (words.range, words.slide, words.ago) if token is not None]
    return any((span := _calendar_span(token)) is not None and span[1] == "month" for token in tokens)


def _is_of_calendar(words: WindowWords, has_months: bool) -> bool:
    """Return whether a window is of a calendar without IN. ``has_months``: one of the same query has months."""
    lengths = [_calendar_span(token) for token in (words.range, words.slide)]
    if any(span is not None and span[1] == "month" for span in lengths):
        return True
    return lengths[0] is not None and (has_months or _has_months(words))


def _calendar_span(token: Token) -> tuple[int, str] | None:
    try:
        return parse_calendar_span(token.text)
    except HeddleError as error:
        raise Refused.of(error, token.start) from None


def _of_calendar(words: WindowWords, scope: Scope, findings: Findings) -> Window:
    """A window of days, weeks, months, quarters or years of a time zone."""
    _check_unbounded(words, "windows of a calendar")
    zone = _zone(words.zone)
    range, slide = _calendar_span(words.range), _calendar_span(words.slide)
    if range is None:
        message = f"{words.first_word} is in days, weeks, months, quarters or years of a calendar"
        hint = "hours are the same in every zone: leave IN out, or write '1 day' for the days of the zone"
        raise Refused("HDL-241", f"{message}, not {shown_text(words.range.text)}", hint, words.range.start)
    for span, token, word in ((range, words.range, words.first_word), (slide, words.slide, words.second_word)):
        _check_units(span, token, word, scope.limits)
    step = 0
    if words.first_word == "CUMULATE":
        step = _calendar_step(words, range, slide, scope)
    elif slide is None or slide[1] != range[1]:
        message = f"RANGE is in {range[1]}s, SLIDE is not: {shown_text(words.slide.text)}"
        hint = f"write SLIDE '1 {range[1]}', or a range of days: '30 days'"
        raise Refused("HDL-241", message, hint if range[1] == "month" else "write SLIDE '1 day'", words.slide.start)
    begins = range if words.first_word == "CUMULATE" else slide
    assert begins is not None
    offset, ago = _calendar_offset(words, begins, step), _calendar_ago(words, scope.limits)
    calendar = Calendar(zone, range, None if step else slide, offset, ago)
    window = Window.of_calendar(calendar, step, words.first_word == "CUMULATE")
    if window.range > scope.limits.range:
        message = f"{words.first_word} is longer than {duration_text(scope.limits.range)}"
        raise Refused("HDL-307", message, "", words.range.start)
    _check_lengths(window.range, window.slide, words, scope.limits, findings)
    return window


_MOST_UNITS = 10_000
"""No range of a calendar has more days; a longer one is refused before it is multiplied."""


def _check_units(span: tuple[int, str] | None, token: Token, word: str, limits: Limits) -> None:
    if span is not None and not 0 < span[0] <= _MOST_UNITS:
        code, what = ("HDL-307", "too long") if span[0] else ("HDL-204", "zero")
        raise Refused(code, f"{word} is {what}", f"{duration_text(limits.range)} are the longest", token.start)


def _calendar_ago(words: WindowWords, limits: Limits) -> tuple[int, str] | None:
    """The days or months that a historical window of a calendar is moved back by."""
    token = words.ago
    if token is None:
        return None
    span = _calendar_span(token)
    _check_units(span, token, "AGO", limits)
    if span is None:
        hours = _duration("AGO", token, limits)
        days = max(1, round(hours / DAY))
        message = f"windows of a calendar end days, weeks, months, quarters or years ago, not {shown_text(token.text)}"
        raise Refused("HDL-241", message, f"write ENDING '{duration_text(days * DAY)}' AGO", token.start)
    if span[0] * CALENDAR_UNITS[span[1]] > limits.range:
        raise Refused("HDL-307", f"AGO is longer than {duration_text(limits.range)}", "", token.start)
    return span


def _calendar_step(words: WindowWords, size: tuple[int, str], step: tuple[int, str] | None, scope: Scope) -> int:
    """The step of a cumulative window in microseconds where it is a part of a day; 0: it is one of the calendar's."""
    at = words.slide.start
    if step is None:
        part = _duration("STEP", words.slide, scope.limits)
        if DAY % part:
            message = f"STEP ({duration_text(part)}) does not divide a day"
            raise Refused("HDL-241", message, "write a part of a day such as '1 hour', or days", at)
        return part
    fits = step[0] in (1, size[0]) or size[0] % step[0] == 0 if step[1] == size[1] else step == (1, "day")
    if not fits or (step[1] == size[1] and step[0] > size[0]):
        message = f"STEP ({calendar_text(step)}) does not divide CUMULATE ({calendar_text(size)})"
        raise Refused("HDL-241", message, "write '1 day', or a part of the size", at)
    return 0


def _zone(token: Token | None) -> str:
    """The time zone that a window is in. Raises Refused (HDL-240) for an unknown one."""
    name = "UTC" if token is None else token.text
    try:
        check_zone(name)
    except HeddleError as error:
        raise Refused.of(error, token.start if token else 0) from None
    return name


def _with_bound(words: WindowWords, scope: Scope, range: int, bound: int, ago: int) -> Window:
    """A window that is refreshed at instants of the schedule's choice, multiples of the stream's step."""
    stream, step = scope.stream, scope.stream.step
    if bound < step:
        message = f"AT MOST is shorter than the step of {stream.name} ({duration_text(step)})"
        hint = f"allow {duration_text(step)} or more, or give the stream a shorter `step` in streams.yaml"
        raise Refused("HDL-224", message, hint, words.slide.start)
    if range % step:
        message = f"RANGE is no multiple of the step of {stream.name} ({duration_text(step)})"
        nearest = duration_text(range - range % step or step)
        hint = f"{nearest} is, or give the stream another `step` in streams.yaml"
        raise Refused("HDL-225", message, hint, words.range.start)
    # a bound is kept just as well by the multiple of the step below it
    return Window(range, step, ago, at_most=bound - bound % step)


def _length(word: str, token: Token, in_rows: bool, scope: Scope) -> int:
    """The range or the slide, in rows or in microseconds."""
    return _rows(word, token, scope) if in_rows else _duration(word, token, scope.limits)


def _duration(word: str, token: Token, limits: Limits) -> int:
    try:
        duration = parse_duration(token.text)
    except HeddleError as error:
        raise Refused.of(error, token.start) from None
    if duration <= 0:
        raise Refused("HDL-204", f"{word} must be longer than zero", "", token.start)
    if duration > limits.range:
        raise Refused("HDL-307", f"{word} is longer than {duration_text(limits.range)}", "", token.start)
    return duration


def _rows(word: str, token: Token, scope: Scope) -> int:
    written = scope.written(token)
    if not _COUNT.fullmatch(written):
        message = f"{word} takes a whole number of rows, not {shown_text(written)}"
        raise Refused("HDL-204", message, "one row or more", token.start)
    if int(written) > scope.limits.rows:
        raise Refused("HDL-307", f"{word} is more than {scope.limits.rows:,} rows", "", token.start)
    return int(written)


def _counted_by(token: Token, scope: Scope, grouping: Grouping) -> str:
    column = scope.column_of_token(token)
    if column not in grouping.columns and grouping.complete:
        message = f"PARTITION BY names {column}, which the query does not group by"
        raise Refused("HDL-219", message, f"add GROUP BY {column}, or leave PARTITION BY out", token.start)
    return column
