"""Buckets of TimescaleDB, and times cut to a unit in GROUP BY, as windows that do not overlap."""

from __future__ import annotations

import datetime

from sqlglot import exp

from optimizer.language.nodes import place_of
from optimizer.language.refusals import Refused, shown_text
from optimizer.migration.moments import UNITS, duration_of
from optimizer.migration.windows import ImportedWindow, sliding
from optimizer.migration.words import Dialect
from optimizer.workload.instants import DAY, duration_text

BUCKET = "time_bucket"

MONDAY = datetime.date(2000, 1, 3)
"""Where buckets start whose origin is not given; those of months and years start with the year 2000."""

TOOLKIT = {
    "percentile_agg": "percentile(x, 0.95), or approx_percentile(x, 0.95), is one step",
    "uddsketch": "approx_percentile(x, 0.95) is one step",
    "tdigest": "approx_percentile(x, 0.95) is one step",
    "hyperloglog": "approx_count_distinct(x) is one step, hll_sketch(x) the sketch",
    "distinct_count": "approx_count_distinct(x) is one step",
    "stats_agg": "avg(x), stddev(x), skewness(x) and corr(x, y) are one step each",
    "counter_agg": "rate(x) is the increase of a counter per second",
    "gauge_agg": "max(x) - min(x), first(x) and last(x) are aggregates",
    "time_weight": "time_while(c) is the time for which a condition holds",
    "candlestick_agg": "first(x), max(x), min(x) and last(x) are aggregates",
    "state_agg": "time_while(state = 'a') is the time in a state",
    "compact_state_agg": "time_while(state = 'a') is the time in a state",
    "heartbeat_agg": "longest_gap(t) is the longest time between events",
    "freq_agg": "approx_top_k(x, 10) counts the most frequent values",
    "mcv_agg": "approx_top_k(x, 10) counts the most frequent values",
    "rollup": "aggregate the hypertable itself: queries share its partial aggregates anyway",
    "histogram": "histogram_numeric(x, 10) has bins between the least and the greatest value",
    "time_bucket_gapfill": "a window without events has no row: fill gaps when you read",
    "locf": "fill gaps when you read",
    "interpolate": "fill gaps when you read",
    "time_bucket_ng": "write time_bucket",
}
"""Functions of TimescaleDB and its toolkit that are no aggregate of one step, and what to write."""

_UNIX = datetime.date(1970, 1, 1)


def of_bucket(call: exp.Expr, dialect: Dialect) -> ImportedWindow:
    """The window of ``time_bucket(width, t[, timezone][, origin][, offset])``, whose arguments are bound.

    Databricks counts buckets from 1970, TimescaleDB from :data:`MONDAY`. Raises :class:`Refused` for one that is no
    window.
    """
    at, arguments = place_of(call), list(call.expressions)
    named = {part.this.name.lower(): part.expression for part in arguments if isinstance(part, exp.Kwarg)}
    plain = [part for part in arguments if not isinstance(part, exp.Kwarg)]
    if len(plain) < 2:
        raise Refused("HDL-146", "time_bucket takes a width and a time", "time_bucket('1 hour', t)", at)
    zone = named.get("timezone")
    time = plain[1].unnest()
    if isinstance(time, exp.AtTimeZone):
        zone, time = time.args["zone"], time.this.unnest()
    if type(time) is not exp.Column:
        hint = "declare the column as timestamp in streams.yaml"
        raise Refused("HDL-144", "the time of a bucket is computed, not a column of the stream", hint, at)
    offset, origin = named.get("offset"), named.get("origin")
    for other in plain[2:]:
        if (_span(other) or _date(other)) is None and zone is None:
            zone = other
        elif _span(other) is not None:
            offset = other
        else:
            origin = other
    column = time.this.sql(dialect="spark")
    first = MONDAY if dialect is Dialect.timescale else _UNIX
    width = _span(plain[0])
    if width is None or (width[0] > 0) == (width[1] > 0):
        hint = "'15 minutes', or INTERVAL '1 day'"
        raise Refused("HDL-144", "the width of a bucket is no constant length of time", hint, at)
    if width[0] or zone is not None:
        return _of_calendar(column, width, zone, offset or origin, first, at)
    return sliding(column, duration_text(width[1]), duration_text(width[1]), _start(offset, origin, first, at), at)


def of_unit(time: exp.Column, unit: str, at: int) -> ImportedWindow:
    """The window of ``date_trunc(unit, t)``."""
    column = time.this.sql(dialect="spark")
    if unit in UNITS[1:]:
        return ImportedWindow(column, f"RANGE '1 {unit}' SLIDE '1 {unit}' IN 'UTC'")
    return sliding(column, f"1 {unit}", f"1 {unit}", "", at)


def truncated(node: exp.Expr) -> tuple[exp.Column, str] | None:
    """The column and the unit of an expression that cuts a time to a unit."""
    node = node.unnest()
    if isinstance(node, exp.Cast | exp.TryCast) and node.args["to"].this == exp.DType.DATE:
        inner, unit = node.this.unnest(), "day"
    elif isinstance(node, exp.Anonymous) and node.name.lower().removeprefix("=") in ("date", "to_date"):
        inner, unit = (*node.expressions, exp.Null())[0].unnest(), "day"
    elif isinstance(node, exp.Anonymous) and node.name.lower().removeprefix("=") == "date_trunc":
        arguments = node.expressions
        is_known = len(arguments) == 2 and isinstance(arguments[0], exp.Literal)
        unit = arguments[0].name.lower() if is_known else ""
        inner = arguments[1].unnest() if is_known else exp.Null()
    else:
        return None
    known = (*UNITS, "second", "minute", "hour")
    return (inner, unit) if isinstance(inner, exp.Column) and unit in known else None


def _span(node: exp.Expr) -> tuple[int, int] | None:
    """Months and microseconds of a width or an offset."""
    node = node.unnest()
    if isinstance(node, exp.Cast | exp.TryCast) and node.args["to"].this == exp.DType.INTERVAL:
        node = node.this.unnest()
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        return duration_of(f"{node.this.name} {unit.name}" if isinstance(unit, exp.Var) else node.this.name)
    return duration_of(node.name) if isinstance(node, exp.Literal) and node.is_string else None


def _date(node: exp.Expr) -> datetime.datetime | None:
    """The moment of an origin, without a zone."""
    node = node.unnest()
    if isinstance(node, exp.Cast | exp.TryCast):
        node = node.this.unnest()
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    try:
        moment = datetime.datetime.fromisoformat(node.name.strip())
    except ValueError:
        return None
    return moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _start(offset: exp.Expr | None, origin: exp.Expr | None, first: datetime.date, at: int) -> str:
    """The start of some bucket, as a length of time since 1970."""
    start = (first - _UNIX).days * DAY
    if origin is not None:
        moment = _date(origin)
        if moment is None:
            raise Refused("HDL-144", "the origin of a bucket is no constant", "origin => '2000-01-03'", at)
        start = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    if offset is not None:
        span = _span(offset)
        if span is None or span[0]:
            raise Refused("HDL-144", "the offset of a bucket is no constant length", "'6 hours'", at)
        start += span[1]
    return duration_text(start)


def _of_calendar(
    time: str,
    width: tuple[int, int],
    zone: exp.Expr | None,
    shifted: exp.Expr | None,
    first: datetime.date,
    at: int,
) -> ImportedWindow:
    """The window of months and years, or of days in a time zone."""
    months, micros = width
    if shifted is not None:
        hint = "STARTING AT shifts days and weeks: write the query by hand"
        raise Refused("HDL-144", "an offset or an origin of months, or in a time zone", hint, at)
    if zone is not None and not isinstance(zone, exp.Literal):
        raise Refused("HDL-144", "the time zone of a bucket is no constant", "'Europe/Berlin'", at)
    name = zone.name if zone is not None else "UTC"
    if not all(letter.isalnum() or letter in "/_+-" for letter in name):
        raise Refused("HDL-144", f"{shown_text(name)} is no time zone", "'Europe/Berlin'", at)
    length = _calendar_length(months, micros, first)
    if not length and zone is None:
        hint = "take a width that divides 30 years"
        raise Refused("HDL-144", f"buckets of {months} months, which start elsewhere", hint, at)
    if not length:
        hint = "hours are the same in UTC where a zone is off by hours: leave it out; or take days"
        raise Refused("HDL-144", "buckets of a time zone that are no days, weeks, months or years", hint, at)
    return ImportedWindow(time, f"RANGE '{length}' SLIDE '{length}' IN '{name}'")


def _calendar_length(months: int, micros: int, first: datetime.date) -> str:
    """A width in units of the calendar, counted from 1970; '' if buckets start elsewhere than such windows."""
    since, since_months = (first - _UNIX).days, (first.year - _UNIX.year) * 12
    days, rest = divmod(micros, DAY)
    if months and not micros:
        years = months // 12
        if months % 12 == 0 and since_months % months == 0:
            return f"{years} year{'s' * (years > 1)}"
        return f"{months} month{'s' * (months > 1)}" if since_months % months == 0 else ""
    if months or rest:
        return ""
    if days == 7 and since % 7 == 4:
        return "1 week"
    return f"{days} day{'s' * (days > 1)}" if days == 1 or (since % days == 0 and days % 7) else ""
