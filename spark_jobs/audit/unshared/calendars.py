"""Cumulative windows and those of calendars with Spark's own functions of time, independent of the optimizer.

A zone reaches Spark as a literal. Spark's knowledge of zones is the tz database of its JVM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from optimizer.workload.instants import DAY
from optimizer.workload.values import Calendar, Window

_MONDAY = 4
"""Days from 1970-01-01 to the first Monday."""


def windows_holding(window: Window, time: SparkColumn) -> SparkColumn:
    """The windows that hold an event: an array of structs of ``start`` and ``end``, timestamps."""
    if window.calendar is None and not window.cumulative:
        spans = _shifted(F.unix_micros(time), window)
    elif window.calendar is None:
        spans = _steps_of(F.unix_micros(time) - window.offset, window.range, window.slide)
        spans = F.transform(spans, lambda span: _span(span["start"] + window.offset, span["end"] + window.offset))
    elif window.cumulative:
        spans = _cumulative(window.calendar, window.slide, time)
    else:
        spans = _ranges(window.calendar, time)
    return F.transform(
        spans,
        lambda span: F.struct(
            F.timestamp_micros(span["start"]).alias("start"), F.timestamp_micros(span["end"]).alias("end")
        ),
    )


def instants_holding(window: Window, time: SparkColumn) -> SparkColumn:
    """The instants (microseconds) whose windows hold an event, historical ones too: an array."""
    micros, plain = F.unix_micros(time), _not_historical(window)
    calendar = window.calendar
    if calendar is None or calendar.ago is None:
        spans = windows_holding(plain, F.timestamp_micros(micros + window.ago))
        return F.transform(spans, lambda span: F.unix_micros(span["end"]))
    # the same dates are so many days later; a window that has one of them holds its begin
    count, unit = calendar.ago
    least, most = (count * days for days in ((28, 31) if unit == "month" else (1, 1)))
    near = _day(time, calendar.zone)
    begins = F.transform(
        F.sequence(near + least - 1, near + most + 1),
        lambda day: _begins(day, "day", calendar.zone, calendar.offset % DAY),
    )
    spans = F.flatten(F.transform(begins, lambda begin: windows_holding(plain, F.timestamp_micros(begin))))
    holding = F.filter(
        F.array_distinct(spans),
        lambda span: (
            (_moved_back(window, F.unix_micros(span["start"]), False) <= micros)
            & (micros < _moved_back(window, F.unix_micros(span["end"]), True))
        ),
    )
    return F.transform(holding, lambda span: F.unix_micros(span["end"]))


def start_at(window: Window, instant: SparkColumn) -> SparkColumn:
    """The start (microseconds) of a window at an instant that it has."""
    spans = windows_holding(_not_historical(window), F.timestamp_micros(instant - 1))
    at_instant = F.filter(spans, lambda span: F.unix_micros(span["end"]) == instant)
    return _moved_back(window, F.unix_micros(F.element_at(at_instant, 1)["start"]), False)


def _not_historical(window: Window) -> Window:
    calendar = window.calendar
    return replace(window, ago=0, calendar=None if calendar is None else replace(calendar, ago=None))


def _moved_back(window: Window, bound: SparkColumn, is_end: bool) -> SparkColumn:
    """Move a bound (microseconds) of a window that is not historical to that of the historical one."""
    calendar = window.calendar
    if calendar is None or calendar.ago is None:
        return bound - window.ago
    ago, zone, offset = calendar.ago, calendar.zone, calendar.offset % DAY
    step = window.slide if calendar.slide is None else DAY

    def moved(date: SparkColumn) -> SparkColumn:
        return _at_time(zone, offset, step, *_earlier(date["day"], date["time"], ago, is_end))

    return _let(bound, lambda known: _let(_date_of(zone, offset, step, known), moved))


def _let(value: SparkColumn, body: Callable[[SparkColumn], SparkColumn]) -> SparkColumn:
    """The body of a value, which is evaluated once: a column is written out wherever it is used."""
    return F.element_at(F.transform(F.array(value), body), 1)


def _date_of(zone: str, offset: int, step: int, bound: SparkColumn) -> SparkColumn:
    """The number of the day of a bound, and the time since its begin by the clock, as a struct."""
    near = _day(F.timestamp_micros(bound - offset), zone)
    begun = F.filter(F.sequence(near - 2, near + 2), lambda day: _begins(day, "day", zone, offset) <= bound)
    # the latest step that the clock has shown by then: of an hour that it shows twice, one of the first time
    passed = _let(
        _local(bound, zone),
        lambda shown: F.array_max(
            F.filter(
                F.sequence(shown, shown + bound - _utc(shown, zone), F.lit(step).cast("bigint")),
                lambda local: _utc(local, zone) <= bound,
            )
        ),
    )

    def since(day: SparkColumn) -> SparkColumn:
        most, zero = F.lit(DAY - 1).cast("bigint"), F.lit(0).cast("bigint")
        time = F.least(F.greatest(passed - offset - day * DAY, zero), most)
        time = F.when(_begins(day, "day", zone, offset) == bound, zero).otherwise(time)
        return F.struct(day.alias("day"), (time - F.pmod(time, F.lit(step))).alias("time"))

    return _let(F.array_max(begun), since)


def _earlier(
    day: SparkColumn, time: SparkColumn, ago: tuple[int, str], is_end: bool
) -> tuple[SparkColumn, SparkColumn]:
    """A day and a time of it so many days or months ago; of a month without the day, its end."""
    count, unit = ago
    if unit == "day":
        return day - count, time
    date = F.date_add(F.make_date(F.lit(1970), F.lit(1), F.lit(1)), day.cast("int"))
    earlier = F.add_months(date, -count)
    is_lacking = F.dayofmonth(earlier) < F.dayofmonth(date)
    number = F.unix_date(earlier).cast("bigint") + F.when(is_lacking, int(is_end)).otherwise(0)
    return number, F.when(is_lacking, F.lit(0).cast("bigint")).otherwise(time)


def _at_time(zone: str, offset: int, step: int, day: SparkColumn, time: SparkColumn) -> SparkColumn:
    """The instant at which a clock shows a time of a day; of one that it leaves out, the last step before."""

    def ends(local: SparkColumn) -> SparkColumn:
        left_out = _local(_utc(local, zone), zone) - local
        first = local - (left_out - F.pmod(left_out, F.lit(step))) - step
        steps = F.sequence(first, local, F.lit(step).cast("bigint"))
        return F.array_max(F.transform(steps, lambda at: _reached(at, zone)))

    return _let(
        F.struct(day.alias("day"), time.alias("time")),
        lambda date: F.greatest(
            _begins(date["day"], "day", zone, offset),
            F.when(date["time"] > 0, _let(date["day"] * DAY + offset + date["time"], ends)),
        ),
    )


def _local(instant: SparkColumn, zone: str) -> SparkColumn:
    return F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(instant), zone))


def _utc(local: SparkColumn, zone: str) -> SparkColumn:
    return F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(local), zone))


def _reached(local: SparkColumn, zone: str) -> SparkColumn:
    """When a clock shows a time, or would if it were not put forward just then; null if it never gets there."""
    instant, before = _utc(local, zone), _utc(local - 1, zone)
    is_before = _local(before, zone) == local - 1
    return F.when(_local(instant, zone) == local, instant).when(is_before, before + 1)


def _span(start: SparkColumn, end: SparkColumn) -> SparkColumn:
    return F.struct(start.alias("start"), end.alias("end"))


def _shifted(micros: SparkColumn, window: Window) -> SparkColumn:
    """The windows that start so far behind the multiples of their slide."""
    slide, at = F.lit(window.slide).cast("bigint"), micros + (window.ago - window.offset)
    before = at - window.range
    first, last = before - F.pmod(before, slide) + slide, at - F.pmod(at, slide)
    spans = F.transform(
        F.sequence(first, last, slide),
        lambda start: _span(start + (window.offset - window.ago), start + (window.offset - window.ago + window.range)),
    )
    # a sequence that would end before it begins is an error
    return F.when(first <= last, spans).otherwise(F.array().cast("array<struct<start: bigint, end: bigint>>"))


def _steps_of(micros: SparkColumn, size: int, step: int) -> SparkColumn:
    """The windows whose size is a span of time, at the multiples of a step."""
    start, row = micros - F.pmod(micros, F.lit(size)), F.lit(step).cast("bigint")
    first = micros - F.pmod(micros, F.lit(step)) + step
    return F.transform(F.sequence(first, start + size, row), lambda end: _span(start, end))


def _day(time: SparkColumn, zone: str) -> SparkColumn:
    """The number of the day that a zone's clock shows."""
    return F.unix_date(F.to_date(F.from_utc_timestamp(time, zone))).cast("bigint")


def _begins(number: SparkColumn, unit: str, zone: str, offset: int = 0) -> SparkColumn:
    """The begin of a day or month (microseconds), by its number since 1970, so much later by the clock."""
    first = F.make_date(F.lit(1970), F.lit(1), F.lit(1))
    date = F.add_months(first, number.cast("int")) if unit == "month" else F.date_add(first, number.cast("int"))
    shown = F.timestamp_micros(F.unix_micros(date.cast("timestamp")) + offset)
    return F.unix_micros(F.to_utc_timestamp(shown, zone))


def _numbers(calendar: Calendar, span: tuple[int, str], back: int, day: SparkColumn) -> SparkColumn:
    """The numbers, multiples of a span, from ``back`` and two units before a day to two units after it."""
    count, unit = span
    origin = _MONDAY if unit == "day" and count % 7 == 0 else 0
    if unit == "month":
        date = F.date_add(F.make_date(F.lit(1970), F.lit(1), F.lit(1)), day.cast("int"))
        day = ((F.year(date) - 1970) * 12 + F.month(date) - 1).cast("bigint")
    first, last = day - back - 2 - origin, day + 2 - origin
    step = F.lit(count).cast("bigint")
    numbered = F.sequence(first - F.pmod(first, step), last - F.pmod(last, step) + step, step)
    return F.transform(numbered, lambda number: number + origin)


def _ranges(calendar: Calendar, time: SparkColumn) -> SparkColumn:
    """The calendar windows that contain a time. If several end at one instant, because a zone skipped a day, only
    the first.
    """
    assert calendar.slide is not None
    (length, unit), (between, _), zone, offset = calendar.range, calendar.slide, calendar.zone, calendar.offset
    micros = F.unix_micros(time)
    spans = F.transform(
        _numbers(calendar, calendar.slide, length, _day(F.timestamp_micros(micros - offset), zone)),
        lambda number: F.struct(
            _begins(number, unit, zone, offset).alias("start"),
            _begins(number + length, unit, zone, offset).alias("end"),
            _begins(number + length - between, unit, zone, offset).alias("before"),
        ),
    )
    holding = F.filter(
        spans, lambda span: (span["start"] <= micros) & (micros < span["end"]) & (span["before"] != span["end"])
    )
    return F.transform(holding, lambda span: _span(span["start"], span["end"]))


def _cumulative(calendar: Calendar, step: int, time: SparkColumn) -> SparkColumn:
    """The windows from the start of a period of the calendar to each of its instants."""
    zone, (size, unit), micros, offset = calendar.zone, calendar.range, F.unix_micros(time), calendar.offset
    periods = F.transform(
        _numbers(calendar, calendar.range, size, _day(F.timestamp_micros(micros - offset), zone)),
        lambda number: _span(_begins(number, unit, zone, offset), _begins(number + size, unit, zone, offset)),
    )
    period = F.element_at(F.filter(periods, lambda span: (span["start"] <= micros) & (micros < span["end"])), 1)
    begin, end = _day(time, zone), _day(F.timestamp_micros(period["end"]), zone)
    if calendar.slide is None:
        days = F.sequence(begin - 1, end + 1)
        instants = F.flatten(F.transform(days, lambda day: _shown(day, step, zone)))
        midnights = F.transform(days, lambda day: _begins(day, "day", zone, offset))
        instants = F.array_union(instants, midnights)
    else:
        count, of = calendar.slide
        last = _numbers(calendar, calendar.slide, 0, end)
        first = _numbers(calendar, calendar.slide, 0, begin)
        numbered = F.sequence(F.element_at(first, 1), F.element_at(last, -1), F.lit(count).cast("bigint"))
        instants = F.transform(numbered, lambda number: _begins(number, of, zone, offset))
    instants = F.array_union(instants, F.array(period["end"]))
    due = F.filter(instants, lambda instant: (instant > micros) & (instant <= period["end"]))
    return F.transform(due, lambda instant: _span(period["start"], instant))


def _shown(day: SparkColumn, step: int, zone: str) -> SparkColumn:
    """The instants (microseconds) at which a zone's clock shows the multiples of a step on a day."""
    begin = day * DAY
    shown = F.sequence(begin, begin + DAY - step, F.lit(step).cast("bigint"))

    def offset(local: SparkColumn) -> SparkColumn:
        return local - F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(local), zone))

    def at(local: SparkColumn) -> SparkColumn:
        candidates = F.array(local - offset(local - DAY), local - offset(local + DAY))
        return F.filter(
            candidates, lambda instant: F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(instant), zone)) == local
        )

    return F.flatten(F.transform(shown, at))
