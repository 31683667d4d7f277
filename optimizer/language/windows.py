"""The WINDOW clause as a window: of time, of rows, or with a refresh bound."""

from __future__ import annotations

import re
from fractions import Fraction

from sqlglot.tokens import Token

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.clauses import WindowWords
from optimizer.language.grouping import Grouping
from optimizer.language.refusals import Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.words import Limits, resolve_name
from optimizer.workload.instants import duration_text, parse_duration, rows_text
from optimizer.workload.values import Window

_COUNT = re.compile(r"0*[1-9]\d{0,17}", re.ASCII)


def read_window(words: WindowWords, scope: Scope, grouping: Grouping, findings: Findings) -> Window:
    """The window, within the limits; one whose slide leaves events out is warned of."""
    limits = scope.limits
    range = _length(words.first_word, words.range, words.rows, scope)
    slide = _length("SLIDE", words.slide, words.rows, scope)
    ago = _duration("AGO", words.ago, limits) if words.ago is not None else 0
    if not words.rows and slide < limits.slide:
        message = f"SLIDE is shorter than {duration_text(limits.slide)}"
        raise Refused("HDL-306", message, "", words.slide.start)
    length_text = rows_text if words.rows else duration_text
    if Fraction(range, slide) > limits.ratio:
        least = length_text(-(-range // limits.ratio))
        message = f"{words.first_word} is more than {limits.ratio} times SLIDE"
        raise Refused("HDL-308", message, f"a slide of {least} or more is allowed with it", words.slide.start)
    if resolve_name(words.on.text, [scope.stream.time]) is None:
        message = f"windows of {scope.stream.name} are on {scope.stream.time}, not {shown_text(words.on.text)}"
        raise Refused("HDL-205", message, f"write ON {scope.stream.time}", words.on.start)
    if slide > range:
        message = f"the slide ({length_text(slide)}) is longer than the range ({length_text(range)})"
        hint = f"the events between two windows are in none: of every {length_text(slide)} only {length_text(range)} "
        hint += "need count" if words.at_most else "count, the first: windows are [k*slide, k*slide + range)"
        findings.warnings.append(Refused("HDL-210", message, hint, words.slide.start))
    if words.at_most:
        return _with_bound(words, scope, range, slide, ago)
    per = tuple(sorted({_counted_by(token, scope, grouping) for token in words.per})) if words.rows else None
    return Window(range, slide, ago, per)


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
        message = f"rows are counted for each {column}, which the query does not group by"
        raise Refused("HDL-219", message, f"add GROUP BY {column}, or leave PARTITION BY out", token.start)
    return column
