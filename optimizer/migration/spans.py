"""Aggregates over spans of time in one grouping, by conditions on the time of events, as windows of one query.

``sum(x) FILTER (WHERE t >= window_end - INTERVAL 1 HOUR)`` is over the window of the last hour. A job without windows
that compares the time with ``current_date`` or ``current_timestamp()`` has the windows that end when it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from optimizer.language.nodes import place_of
from optimizer.language.refusals import Refused
from optimizer.migration.binding import Grouped, Relation, is_marker, markers
from optimizer.migration.functions import calls_aggregate
from optimizer.migration.joins import conjuncts
from optimizer.migration.moments import (
    END,
    MONTHS,
    NOW,
    START,
    UNITS,
    Bounds,
    Moment,
    aggregates_in,
    bounds_of,
    is_relative,
)
from optimizer.migration.windows import ImportedWindow
from optimizer.migration.words import DIFFERS, LEFT_OUT, function_of
from optimizer.workload.instants import DAY, duration_text

HOUR = DAY // 24

_BY_ANOTHER = ("min_by", "max_by", "arg_min", "arg_max", "last_k", "top_k")
"""Aggregates for which a null in the first argument is not the same as no row."""


@dataclass(frozen=True)
class TimeSpan:
    """A span of time, as the length of a window. ``kind``: spans of one query have the same one.

    ``length``, ``ago``: microseconds; of spans of a calendar 0. ``is_closed``: its end is that of a condition, not the
    time of the run.
    """

    name: str
    text: str
    kind: str
    length: int = 0
    ago: int = 0
    is_closed: bool = True


@dataclass
class _Spans:
    """Spans of one grouping while they are read. ``outer``: that of the window, or of WHERE."""

    window: ImportedWindow | None
    at: int
    outer: Bounds | None = None
    spans: list[TimeSpan] = field(default_factory=list)
    is_open: bool = False

    def of(self, bounds: Bounds | None, at: int) -> TimeSpan:
        """The span of an aggregate's bounds, which is one of the query's from now on."""
        if bounds is not None:
            bounds = bounds.both(self.outer, at)
        else:
            bounds = self.outer or Bounds(self.window.time if self.window else "")
        self.is_open |= bounds.is_open
        span = self._within(self.window, bounds, at) if self.window is not None else _until_run(bounds, at)
        if span not in self.spans:
            self.spans.append(span)
        return span

    def _within(self, window: ImportedWindow, bounds: Bounds, at: int) -> TimeSpan:
        """The span of a part of a window."""
        if bounds.time != window.time:
            message = f"a condition on {bounds.time}, in a window on {window.time}"
            raise Refused("HDL-144", message, "windows go by one column, the time of the events", at)
        if not window.size:
            raise Refused("HDL-144", "a part of a window that grows", "take RANGE for all of them", at)
        begin = self._offset(window, bounds.begin or Moment(START), at)
        end = self._offset(window, bounds.end or Moment(END), at)
        if begin >= end:
            raise Refused("HDL-144", "no event of the window is in this span of time", "", at)
        return fixed_span(begin, end, "window")

    def _offset(self, window: ImportedWindow, moment: Moment, at: int) -> int:
        """Microseconds from the end of a window, within it."""
        if moment.anchor not in (START, END) or moment.months:
            hint = "write window_end - INTERVAL 30 DAYS"
            raise Refused("HDL-144", "a part of a window that no fixed length gives", hint, at)
        micros = moment.micros - window.size * (moment.anchor == START)
        return max(-window.size, min(micros, 0))

    def clause(self) -> str:
        """The lengths of the windows as a clause, with what they share. ``outer`` is among the spans."""
        kinds = {span.kind for span in self.spans}
        if len(kinds) > 1 and kinds != {"days", "so far"}:
            hint = "write all with current_date, or all with current_timestamp(); or write two queries"
            raise Refused("HDL-144", f"spans of {' and of '.join(sorted(kinds))} in one query", hint, self.at)
        slide, starting = self._slide(kinds)
        if len(self.spans) == 1:
            return self._single(slide, starting)
        lengths = ", ".join(f"{span.name} AS ({span.text})" for span in self.spans)
        return f"{lengths} SLIDE '{slide}'{starting}"

    def _single(self, slide: str, starting: str) -> str:
        (span,) = self.spans
        if span.kind in ("so far", "today"):
            return f"{span.text} STEP '{slide}'{starting}"
        text, _, ago = span.text.partition(" ENDING ")
        return f"{text} SLIDE '{slide}'" + (f" ENDING {ago}" if ago else "") + starting

    def _slide(self, kinds: set[str]) -> tuple[str, str]:
        if self.window is not None:
            return duration_text(self._common(self.window)), self.window.starting
        if "clock" in kinds:
            return duration_text(math.gcd(DAY, *(part for span in self.spans for part in (span.length, span.ago)))), ""
        if "today" in kinds:
            return "1 hour", ""
        if kinds == {"days"}:
            return "1 day", ""
        return ("1 day" if "so far" in kinds else self.spans[0].kind), " IN 'UTC'"

    def _common(self, window: ImportedWindow) -> int:
        """The slide, in microseconds, with which all spans end when the window does."""
        return math.gcd(window.slide, *(window.size - span.length for span in self.spans))

    def notes(self, has_keys: bool, is_outer_used: bool) -> Iterator[str]:
        """Messages about what the query does not say as the job does."""
        if self.is_open:
            yield "an event exactly at the bound of a span is in the window after it, in the job before it"
        if self.window is not None:
            if (common := self._common(self.window)) != self.window.slide:
                more = f"every {duration_text(common)} instead of every {duration_text(self.window.slide)}"
                yield f"the query answers {more}, so that its windows end together"
            return
        slide, _ = self._slide({span.kind for span in self.spans})
        yield f"how often the job runs is not in its text: its windows end every {slide.removeprefix('1 ')}"
        if any(span.kind in ("days", "so far") and not span.is_closed for span in self.spans):
            yield "windows end at midnight UTC: events of the day of the run are in the next day's answer"
        if has_keys and not is_outer_used:
            yield "a group has a row if it has an event in one of the windows, in the job if it has any event"


def _length_text(micros: int) -> str:
    """A length in words, weeks as days."""
    return duration_text(micros) if micros % DAY or micros <= DAY else f"{micros // DAY} days"


def fixed_span(begin: int, end: int, kind: str, is_closed: bool = True) -> TimeSpan:
    """The span [begin, end), in microseconds from the end of the windows."""
    length, ago = _length_text(end - begin), _length_text(-end)
    name, text = f"last_{length}".replace(" ", "_"), f"RANGE '{length}'"
    if end:
        return TimeSpan(f"{name}_{ago}_ago".replace(" ", "_"), f"{text} ENDING '{ago}' AGO", kind, end - begin, -end)
    return TimeSpan(name, text, kind, end - begin, 0, is_closed)


def _until_run(bounds: Bounds, at: int) -> TimeSpan:
    """The span of a job that runs at some time."""
    begin, end = bounds.begin, bounds.end
    if begin is None:
        hint = "add a condition to WHERE: ts >= current_date - INTERVAL 365 DAYS"
        raise Refused("HDL-141", "a value of all events up to the run, which no window has", hint, at)
    if begin.anchor in (START, END) or (end is not None and end.anchor in (START, END)):
        raise Refused("HDL-141", "the bounds of a window in a query that groups by no window", "", at)
    until = Moment("day" if begin.anchor in UNITS else NOW) if end is None else end
    same = begin.anchor == until.anchor
    if begin.anchor == NOW and same and not begin.months and begin.micros < until.micros <= 0:
        return fixed_span(begin.micros, until.micros, "clock", end is not None)
    if end is None and begin.anchor in UNITS and not begin.months and not begin.micros:
        kind = "today" if begin.anchor == "day" else "so far"
        return TimeSpan(f"this_{begin.anchor}", f"CUMULATE '1 {begin.anchor}'", kind, is_closed=False)
    is_days = begin.anchor == "day" and not begin.months and begin.micros % DAY == 0 == until.micros % DAY
    if same and is_days and begin.micros < until.micros <= 0:
        return fixed_span(begin.micros, until.micros, "days", end is not None)
    if same and (full_units := _full_units(begin, until)) is not None:
        return full_units
    hint = "count in days: current_date - INTERVAL 30 DAYS; or in full months: date_trunc('month', current_date)"
    raise Refused("HDL-144", "a span of time that is no window of one length", hint, at)


def _full_units(begin: Moment, until: Moment) -> TimeSpan | None:
    """The span of full weeks, months, quarters or years, which may have ended some of them ago; None if it is none."""
    unit = begin.anchor
    if unit not in UNITS[1:] or any(each.micros if unit in MONTHS else each.months for each in (begin, until)):
        return None
    size = MONTHS.get(unit, 7 * DAY)
    (first, behind), (last, rest) = (divmod(-(each.months or each.micros), size) for each in (begin, until))
    if behind or rest or not first > last >= 0:
        return None
    length, ago = (f"{count} {unit}{'s' * (count > 1)}" for count in (first - last, last))
    name, text = f"last_{length}", f"RANGE '{length}'"
    if last:
        name, text = f"{name}_{ago}_ago", f"{text} ENDING '{ago}' AGO"
    return TimeSpan(name.replace(" ", "_"), text, f"1 {unit}")


# ---------------------------------------------------------------------------------------- aggregates
def _split(node: exp.Expr) -> tuple[Bounds | None, exp.Expr]:
    """The bounds of an aggregate's conditions on the time, and the aggregate without these. Raises :class:`Refused`."""
    if isinstance(node, exp.Filter):
        bounds, inner = _split(node.this)
        own, rest = _conditions(node.expression.this)
        if own is not None:
            bounds = own.both(bounds, place_of(node))
        return bounds, inner if rest is None else _filtered(inner, rest)
    name, arguments = function_of(node.name), list(node.expressions)
    if not any(is_relative(argument) for argument in arguments):
        return None, node
    if name in ("count_if", "countif") and len(arguments) == 1:
        bounds, rest = _conditions(arguments[0])
        count = exp.Anonymous(this="count", expressions=[exp.Star()])
        return bounds, count if rest is None else _filtered(count, rest)
    return _of_argument(node, name, arguments)


def _filtered(node: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """An aggregate with a filter. Raises :class:`Refused` for one with ELSE 0, which is null where nothing passes."""
    if isinstance(node, exp.Anonymous) and function_of(node.name) == "coalesce":
        hint = "write the filter into the CASE"
        raise Refused("HDL-145", "ELSE 0 of a condition on the time, with a FILTER", hint, place_of(node))
    return exp.Filter(this=node, expression=exp.Where(this=condition))


def _of_argument(node: exp.Expr, name: str, arguments: list[exp.Expr]) -> tuple[Bounds | None, exp.Expr]:
    """The same, of a condition around the first argument: CASE, or if()."""
    distinct = isinstance(arguments[0], exp.Distinct) and len(arguments[0].expressions) == 1
    first = arguments[0].expressions[0].unnest() if distinct else arguments[0].unnest()
    parts = _choice(first)
    if parts is None or any(is_relative(argument) for argument in arguments[1:]) or name in _BY_ANOTHER:
        hint = "write sum(x) FILTER (WHERE t >= …), or sum(CASE WHEN t >= … THEN x END)"
        raise Refused(
            "HDL-145", f"a condition on the time within {name}() that is no filter of it", hint, place_of(node)
        )
    condition, value, other = parts
    bounds, rest = _conditions(condition)
    is_zero = isinstance(other, exp.Literal) and not other.is_string and float(other.name) == 0
    if (other is not None and not (is_zero and name == "sum" and not distinct)) or is_relative(value):
        hint = "leave ELSE out; ELSE 0 is the same in sum() only"
        raise Refused("HDL-145", f"the other value of a condition on the time within {name}()", hint, place_of(node))
    if rest is not None:
        value = exp.Case(ifs=[exp.If(this=rest, true=value)], default=other.copy() if other is not None else None)
    inner = exp.Distinct(expressions=[value]) if distinct else value
    plain: exp.Expr = exp.Anonymous(this=node.this, expressions=[inner, *arguments[1:]])
    if other is None:
        return bounds, plain
    if rest is None and isinstance(value, exp.Literal) and value.name == "1":
        return bounds, exp.Anonymous(this="count", expressions=[exp.Star()])
    return bounds, exp.Anonymous(this="coalesce", expressions=[plain, other.copy()])


def _choice(node: exp.Expr) -> tuple[exp.Expr, exp.Expr, exp.Expr | None] | None:
    """Condition, value and other value of a CASE with one WHEN, or of if(); a null is none."""
    if isinstance(node, exp.Case) and node.this is None and len(node.args["ifs"]) == 1:
        branch = node.args["ifs"][0]
        condition, value, other = branch.this, branch.args["true"], node.args.get("default")
    elif (
        isinstance(node, exp.Anonymous) and function_of(node.name) in ("if", "iff") and len(node.expressions) in (2, 3)
    ):
        condition, value, other = (*node.expressions, None)[:3]
    else:
        return None
    return condition, value, None if isinstance(other, exp.Null) else other


def _conditions(condition: exp.Expr) -> tuple[Bounds | None, exp.Expr | None]:
    """The bounds that the parts of a condition set, and the other parts as one condition."""
    bounds: Bounds | None = None
    rest: list[exp.Expr] = []
    for part in conjuncts(condition):
        if is_relative(part):
            bounds = bounds_of(part).both(bounds, place_of(part))
        else:
            rest.append(part)
    return bounds, exp.and_(*rest, copy=True) if rest else None


# ----------------------------------------------------------------------------------------- groupings
def has_spans(relation: Relation) -> bool:
    """Return whether a grouping has aggregates or conditions that depend on bounds of windows or on the run."""
    grouped = relation.grouped
    assert grouped is not None
    read = [*relation.where, *grouped.having, *(node for _, node in relation.items), *_ranking(grouped)]
    return any(is_relative(node) and not is_marker(node) for node in read)


def _ranking(grouped: Grouped) -> list[exp.Expr]:
    return [grouped.ranked] if grouped.ranked is not None else []


def with_spans(relation: Relation, at: int) -> Relation:
    """The grouping with a window for each span of time. Raises :class:`Refused` for what no windows say."""
    grouped, window = relation.grouped, relation.window
    assert grouped is not None
    where, outer, notes = _outer(relation)
    spans = _Spans(window, at, outer)
    items = tuple(item for item in relation.items if not _is_of_run(item[1]))
    if len(items) < len(relation.items):
        hint = "every answer has window_start and window_end"
        notes.append(Refused(LEFT_OUT, "the time of the run is left out of the values", hint, at))
    read = [*(node for _, node in items), *grouped.having, *_ranking(grouped)]
    split = {id(part): (*_split(part), place_of(part)) for node in read for part in aggregates_in(node)}
    if window is not None and outer is None and not any(bounds for bounds, _, _ in split.values()):
        return replace(relation, items=items, where=where, notes=(*relation.notes, *notes))
    by_node = {key: (spans.of(bounds, place), node) for key, (bounds, node, place) in split.items()}
    having = list(grouped.having)
    has_outer = window is not None or outer is not None
    outer_used = has_outer and (outer_span := spans.of(None, at)) in {span for span, _ in by_node.values()}
    if has_outer and not outer_used:
        counted = exp.Anonymous(this="count", expressions=[exp.Star()])
        by_node[id(counted)] = outer_span, counted
        having.append(exp.GT(this=counted, expression=exp.Literal.number(0)))
    clause = spans.clause()
    is_one = len(spans.spans) == 1
    over = {key: node if is_one else _over(node, span.name) for key, (span, node) in by_node.items()}
    times = {bounds.time for bounds, _, _ in split.values() if bounds is not None} | ({outer.time} if outer else set())
    named = window if is_one and window is not None else None
    has_keys = any(grouped.sets)
    notes += [Refused(DIFFERS, text, "check that this is wanted", at) for text in spans.notes(has_keys, has_outer)]
    return replace(
        relation,
        items=tuple((name, _put(node, over)) for name, node in items),
        where=where,
        window=named or ImportedWindow(window.time if window is not None else times.pop(), clause),
        grouped=replace(
            grouped,
            sets=tuple(tuple(key for key in keys if not _is_of_run(key)) for keys in grouped.sets),
            having=tuple(_put(node, over) for node in having),
            ranked=_put(grouped.ranked, over) if grouped.ranked is not None else None,
        ),
        notes=(*relation.notes, *notes),
    )


def _outer(relation: Relation) -> tuple[tuple[exp.Expr, ...], Bounds | None, list[Refused]]:
    """The other conditions of WHERE, the bounds that it sets, and what is left out of it."""
    where: list[exp.Expr] = []
    outer: Bounds | None = None
    notes: list[Refused] = []
    for part in (part for condition in relation.where for part in conjuncts(condition)):
        if not is_relative(part):
            where.append(part)
            continue
        bounds, place = bounds_of(part), place_of(part)
        if relation.window is not None and not any(markers(part)):
            message = "a condition on the time of the run is left out: every window has an answer"
            notes.append(Refused(LEFT_OUT, message, "read the answers of the windows that you want", place))
            continue
        outer = bounds.both(outer, place)
    return tuple(where), outer, notes


def _is_of_run(node: exp.Expr) -> bool:
    """Return whether a value is computed from only the time of the run."""
    return (
        is_relative(node)
        and not any(markers(node))
        and not any(isinstance(part, exp.Column) or calls_aggregate(part) for part in node.walk())
    )


def _over(node: exp.Expr, name: str) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and function_of(node.name) == "coalesce":
        inner, other = node.expressions
        return exp.Anonymous(this="coalesce", expressions=[_over(inner, name), other])
    return exp.Window(this=node, alias=exp.to_identifier(name))


def _put(node: exp.Expr, over: dict[int, exp.Expr]) -> exp.Expr:
    """An expression with other aggregates in the place of its own."""
    if id(node) in over:
        return over[id(node)].copy()
    copied = node.copy()
    for part, place in zip(list(aggregates_in(node)), list(aggregates_in(copied)), strict=True):
        if part is not node:
            place.replace(over[id(part)].copy())
    return copied
