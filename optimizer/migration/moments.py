"""Moments that a job computes from the end of a window or from the time of its run, and conditions on the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.nodes import place_of
from optimizer.language.refusals import Refused
from optimizer.migration.functions import calls_aggregate
from optimizer.migration.words import function_of
from optimizer.workload.instants import DAY, parse_duration

START, END, NOW = "start", "end", "now"
"""Anchors: the bounds of a window, as the markers of them are named, and the time of the run."""

UNITS = ("day", "week", "month", "quarter", "year")
"""Anchors too: the beginning of the unit of the calendar in which the job runs, the shortest first."""

MONTHS = {"month": 1, "quarter": 3, "year": 12}

_CLOCKS = ("now", "current_timestamp", "localtimestamp", "getdate", "sysdate", "sysdatetime", "current_datetime")
_DATES = ("current_date", "curdate", "today")
_DAYS = ("date", "to_date")
_BACK = ("date_sub", "timestamp_sub", "datetime_sub")
_FORTH = ("date_add", "timestamp_add", "datetime_add", "dateadd", "timestampadd")
_TRUNCATED = {"mm": "month", "mon": "month", "yyyy": "year", "yy": "year", "q": "quarter", "dd": "day"}

UNIT_FIRST = ("dateadd", "date_add", "timestampadd", "datediff", "date_diff", "timestampdiff")
"""Functions whose first of three arguments is a unit."""


@dataclass(frozen=True)
class Moment:
    """An anchor, moved by months and microseconds."""

    anchor: str
    months: int = 0
    micros: int = 0


@dataclass(frozen=True)
class Bounds:
    """Bounds of the time of events: [begin, end); None is none. ``time``: the column, as a query names it.

    ``is_open``: an event exactly at a bound is on the other side of it in the job.
    """

    time: str
    begin: Moment | None = None
    end: Moment | None = None
    is_open: bool = False

    def both(self, other: Bounds | None, at: int) -> Bounds:
        """The bounds that satisfy two conditions. Raises :class:`Refused` if this is not known."""
        if other is None:
            return self
        if other.time != self.time:
            message = f"conditions on two times: {self.time} and {other.time}"
            raise Refused("HDL-144", message, "windows go by one column, the time of the events", at)
        begin, end = _later(self.begin, other.begin, at), _earlier(self.end, other.end, at)
        return Bounds(self.time, begin, end, self.is_open or other.is_open)


def _later(left: Moment | None, right: Moment | None, at: int) -> Moment | None:
    if left is None or right is None or left == right:
        return left or right
    for first, second in ((left, right), (right, left)):
        if _at_least(first, second):
            return first
    raise Refused("HDL-144", "two beginnings of which either may be the later", "leave the wider one out", at)


def _earlier(left: Moment | None, right: Moment | None, at: int) -> Moment | None:
    if left is None or right is None or left == right:
        return left or right
    for first, second in ((left, right), (right, left)):
        if _at_least(first, second):
            return second
    raise Refused("HDL-144", "two ends of which either may be the earlier", "leave the wider one out", at)


_SINCE = {"day": 0, "week": 6, "month": 30, "quarter": 91, "year": 365}
"""The most days from the beginning of a unit to the midnight before the run."""


def _at_least(first: Moment, second: Moment) -> bool:
    """Return whether a moment is never before another."""
    if first.anchor == second.anchor:
        months, micros = first.months - second.months, first.micros - second.micros
        return months * 28 * DAY + micros >= 0 if months > 0 else months * 31 * DAY + micros >= 0
    if START in (first.anchor, second.anchor) or END in (first.anchor, second.anchor):
        return {first.anchor, second.anchor} == {START, END} and first.anchor == END and first.micros >= second.micros
    return _reach(first)[0] >= _reach(second)[1]


def _reach(moment: Moment) -> tuple[int, int]:
    """The earliest and the latest that a moment can be, in microseconds from the midnight before the run."""
    low = high = moment.micros
    low += moment.months * (28 if moment.months > 0 else 31) * DAY
    high += moment.months * (31 if moment.months > 0 else 28) * DAY
    return (low, high + DAY) if moment.anchor == NOW else (low - _SINCE[moment.anchor] * DAY, high)


def _is_past(moment: Moment) -> bool:
    """Return whether a moment may be before the run, and so ends something."""
    if moment.anchor in (START, END):
        return True
    lengths = {NOW: 0, "day": DAY, "week": 7 * DAY}
    if moment.anchor in MONTHS:
        return moment.months < MONTHS[moment.anchor] or moment.micros < 0
    return moment.months < 0 or moment.micros < lengths[moment.anchor]


def is_relative(node: exp.Expr) -> bool:
    """Return whether an expression depends on a window's bounds or on the time of the run."""
    return any(_anchor(part) is not None for part in node.walk())


def _anchor(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Placeholder):
        return node.name if node.name in (START, END) else None
    if isinstance(node, exp.CurrentDate):
        return "day"
    if isinstance(node, exp.CurrentTimestamp | exp.CurrentDatetime):
        return NOW
    if isinstance(node, exp.Anonymous) and not node.expressions:
        name = function_of(node.name)
        return NOW if name in _CLOCKS else "day" if name in _DATES else None
    return None


def moment_of(node: exp.Expr) -> Moment | None:
    """The moment that an expression is; None if it is something else. Raises :class:`Refused`."""
    node = node.unnest()
    anchor = _anchor(node)
    if anchor is not None:
        return Moment(anchor)
    if isinstance(node, exp.Add | exp.Sub):
        sign = -1 if isinstance(node, exp.Sub) else 1
        moment, length = moment_of(node.this), node.expression
        if moment is None and sign == 1:
            moment, length = moment_of(node.expression), node.this
        return _moved(moment, _length(length, "day"), sign)
    if isinstance(node, exp.Cast | exp.TryCast):
        moment = moment_of(node.this)
        return _cut(moment, "day", node) if node.args["to"].this == exp.DType.DATE else moment
    return _called(node) if isinstance(node, exp.Anonymous) else None


def _called(call: exp.Anonymous) -> Moment | None:
    name, arguments = function_of(call.name), call.expressions
    if name in (*_DAYS, "timestamp", "to_timestamp") and len(arguments) == 1:
        moment = moment_of(arguments[0])
        return _cut(moment, "day", call) if name in _DAYS else moment
    if name in ("date_trunc", "trunc") and len(arguments) == 2:
        unit, inner = arguments if name == "date_trunc" else arguments[::-1]
        if not isinstance(unit, exp.Literal):
            unit, inner = inner, unit
        return _cut(moment_of(inner), unit.name.lower(), call)
    if name == "add_months" and len(arguments) == 2:
        return _moved(moment_of(arguments[0]), _length(arguments[1], "month"), 1)
    if name not in (*_BACK, *_FORTH):
        return None
    sign = -1 if name in _BACK else 1
    if len(arguments) == 3:
        return _moved(moment_of(arguments[2]), _length(arguments[1], arguments[0].name.lower()), sign)
    return _moved(moment_of(arguments[0]), _length(arguments[1], "day"), sign) if len(arguments) == 2 else None


def _moved(moment: Moment | None, length: tuple[int, int] | None, sign: int) -> Moment | None:
    if moment is None or length is None:
        return None
    months, micros = length
    return replace(moment, months=moment.months + sign * months, micros=moment.micros + sign * micros)


def _length(node: exp.Expr, unit: str) -> tuple[int, int] | None:
    """Months and microseconds of a constant length. ``unit``: of a plain number."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        length = _length(node.this, unit)
        return None if length is None else (-length[0], -length[1])
    if isinstance(node, exp.Mul):
        for number, length_node in ((node.this, node.expression), (node.expression, node.this)):
            if isinstance(number, exp.Literal) and number.is_int and isinstance(length_node, exp.Interval):
                length = _length(length_node, unit)
                return None if length is None else (length[0] * int(number.name), length[1] * int(number.name))
        return None
    if isinstance(node, exp.Interval):
        named = node.args.get("unit")
        inner = node.this
        if isinstance(inner, exp.Literal):
            return duration_of(f"{inner.name} {named.name}" if isinstance(named, exp.Var) else inner.name)
        return _length(inner, named.name.lower()) if isinstance(named, exp.Var) and inner is not None else None
    if isinstance(node, exp.Literal) and node.is_int:
        return duration_of(f"{node.name} {unit}")
    return None


def duration_of(text: str) -> tuple[int, int] | None:
    """Months and microseconds of ``3 months`` or ``1 day 2 hours``; None of another text."""
    words = text.lower().split()
    sign = -1 if words and words[0].startswith("-") else 1
    if len(words) == 2 and words[0].lstrip("+-").isdecimal() and len(words[0]) < 6:
        count = sign * int(words[0].lstrip("+-"))
        unit = words[1].removesuffix("s")
        if unit in MONTHS:
            return count * MONTHS[unit], 0
    try:
        return 0, sign * parse_duration(text.strip().lstrip("+-").lower())
    except HeddleError:
        return None


def _cut(moment: Moment | None, unit: str, node: exp.Expr) -> Moment | None:
    """The beginning of the unit in which a moment lies, if it is known."""
    unit = _TRUNCATED.get(unit, unit)
    if moment is None or moment.anchor in (START, END) or unit not in UNITS:
        return None
    if moment.anchor == NOW and moment.micros % DAY == 0 and (unit == "day" or not moment.micros):
        moment = replace(moment, anchor="day")
    if moment.anchor == NOW or UNITS.index(moment.anchor) > UNITS.index(unit):
        return None
    if unit == moment.anchor or not (moment.months or moment.micros):
        return replace(moment, anchor=unit)
    months = MONTHS.get(unit, 0)
    if months and moment.months % months == 0 and not moment.micros:
        return replace(moment, anchor=unit)
    if unit == "week" and moment.micros % (7 * DAY) == 0 and not moment.months:
        return replace(moment, anchor=unit)
    hint = "cut the date first: date_trunc('month', current_date) - INTERVAL 1 MONTH"
    raise Refused("HDL-144", f"the {unit} of a moved date", hint, place_of(node))


# ------------------------------------------------------------------------------------------ conditions
_FLIPPED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.EQ: exp.EQ}


def bounds_of(condition: exp.Expr) -> Bounds:
    """The bounds that a condition on the time sets. Raises :class:`Refused` for another that :func:`is_relative`."""
    node = condition.unnest()
    if isinstance(node, exp.And):
        return bounds_of(node.this).both(bounds_of(node.expression), place_of(node))
    if isinstance(node, exp.Between):
        low = _compared(exp.GTE, node.this, node.args["low"], node)
        return low.both(_compared(exp.LTE, node.this, node.args["high"], node), place_of(node))
    if type(node) not in _FLIPPED:
        raise _unknown(node)
    operator, left, right = type(node), node.this, node.expression
    if is_relative(left) and not _is_difference(left):
        operator, left, right = _FLIPPED[operator], right, left
    return _compared(operator, left, right, node)


def _unknown(node: exp.Expr) -> Refused:
    hint = "compare the time of the events with it: t >= window_end - INTERVAL 1 HOUR, ts >= current_date - 7"
    return Refused("HDL-145", "a window's bounds or the time of the run in another expression", hint, place_of(node))


def _is_difference(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), exp.Anonymous) and function_of(node.unnest().name) in ("datediff", "date_diff")


def _compared(operator: type[exp.Expr], left: exp.Expr, right: exp.Expr, node: exp.Expr) -> Bounds:
    if _is_difference(left):
        return _difference(operator, left.unnest(), right, node)
    moment, event = moment_of(right), _event_time(left)
    if moment is None or event is None:
        raise _unknown(node)
    time, unit = event
    if not unit:
        begin = moment if operator in (exp.GT, exp.GTE) else None
        end = moment if operator in (exp.LT, exp.LTE) else None
        if operator is exp.EQ:
            raise _unknown(node)
        if end is not None and not _is_past(end):
            return Bounds(time)
        return Bounds(time, begin, end, operator in (exp.GT, exp.LTE))
    return _of_units(operator, time, unit, moment, node)


def _of_units(operator: type[exp.Expr], time: str, unit: str, moment: Moment, node: exp.Expr) -> Bounds:
    """The bounds of a comparison of the unit that an event lies in with the beginning of another."""
    aligned = moment.anchor in UNITS and UNITS.index(moment.anchor) >= UNITS.index(unit)
    if not aligned or (moment.anchor, unit) in (("month", "week"), ("quarter", "week"), ("year", "week")):
        hint = "compare a date with current_date, a timestamp with current_timestamp()"
        raise Refused("HDL-144", f"the {unit} of an event is compared with a moment within one", hint, place_of(node))
    days = {"day": DAY, "week": 7 * DAY}.get(unit, 0)
    following = replace(moment, months=moment.months + MONTHS.get(unit, 0), micros=moment.micros + days)
    begin = {exp.GT: following, exp.GTE: moment, exp.EQ: moment}.get(operator)
    end = {exp.LT: moment, exp.LTE: following, exp.EQ: following}.get(operator)
    return Bounds(time, begin, end if end is not None and _is_past(end) else None)


def _difference(operator: type[exp.Expr], call: exp.Expr, right: exp.Expr, node: exp.Expr) -> Bounds:
    """The bounds of ``datediff(current_date, ts) <= 7`` and of ``datediff(day, ts, current_date) <= 7``."""
    arguments = call.expressions
    if len(arguments) == 3 and arguments[0].name.lower() in ("day", "days"):
        arguments = arguments[:0:-1]
    days = _length(right, "day")
    if len(arguments) != 2 or days is None or not isinstance(right.unnest(), exp.Literal):
        raise _unknown(node)
    later, event = moment_of(arguments[0]), _event_time(arguments[1])
    later = _cut(later, "day", node)
    if later is None or event is None or event[1] not in ("", "day"):
        raise _unknown(node)
    moment = replace(later, micros=later.micros - days[1])
    return _of_units(_FLIPPED[operator], event[0], "day", moment, node)


def _event_time(node: exp.Expr) -> tuple[str, str] | None:
    """The column of an expression on the time of events, and the unit that it is cut to ('': none)."""
    node, unit = node.unnest(), ""
    if isinstance(node, exp.Cast | exp.TryCast):
        unit = "day" if node.args["to"].this == exp.DType.DATE else ""
        node = node.this.unnest()
    elif isinstance(node, exp.Anonymous):
        name, arguments = function_of(node.name), node.expressions
        if name in _DAYS and len(arguments) == 1:
            node, unit = arguments[0].unnest(), "day"
        elif name == "date_trunc" and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
            unit = arguments[0].name.lower()
            node = arguments[1].unnest() if unit in UNITS else node
    if type(node) is not exp.Column:
        return None
    return node.this.sql(dialect="spark"), unit


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost aggregates of an expression, each with its FILTER."""
    if isinstance(node, exp.Filter) or calls_aggregate(node):
        yield node
        return
    for part in node.iter_expressions():
        yield from aggregates_in(part)
