"""Read the PATTERN clause as a pattern: event types, the column that contains them, and the columns of equality."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot.tokens import Token, TokenType

from optimizer.language.clauses import PatternWords
from optimizer.language.refusals import TIME_WINDOW, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.workload.event_patterns import Pattern
from optimizer.workload.instants import DAY, duration_text
from optimizer.workload.values import DOUBLE, Window


def read_pattern(
    words: PatternWords, scope: Scope, windows: Mapping[str, Window], group_columns: Collection[str]
) -> Pattern:
    """The pattern, within the limits. ``windows``: those of the query by name (one without a name: an empty one), none
    if they were refused."""
    for name, window in windows.items():
        _check_window(name, window, words)
    if len(words.events) + len(words.absent) > scope.limits.pattern:
        message = f"SEQ has {len(words.events) + len(words.absent)} events; the limit is {scope.limits.pattern}"
        raise Refused("HDL-220", message, "split it into shorter sequences", words.seq.start)
    on = scope.column_of_token(words.on)
    if scope.schema[on].name not in ("string", "long"):
        message = f"{on} is {scope.schema[on]}: event types are strings or integers"
        raise Refused("HDL-221", message, "name the column that tells what an event is", words.on.start)
    events = tuple(_event_type(token, on, scope) for token in words.events)
    absent: list[set[str]] = [set() for _ in events[1:]]
    for behind, token in words.absent:
        if not 0 <= behind < len(absent):
            where = "ends" if behind >= 0 else "begins"
            message = f"SEQ {where} with NOT {shown_text(token.text)}: what is absent lies between two events"
            raise Refused("HDL-220", message, "write SEQ(A, NOT B, C)", token.start)
        absent[behind].add(_event_type(token, on, scope))
    per = set(group_columns) | {_key_column(token, scope) for token in words.per}
    most = scope.limits.group_columns
    if len(per) > most:
        message = f"PARTITION BY and GROUP BY name {len(per)} columns; the limit is {most}"
        raise Refused("HDL-309", message, "", words.seq.start)
    gaps = tuple(tuple(sorted(types)) for types in absent)
    return Pattern(events, on, tuple(sorted(per)), gaps if any(gaps) else ())


def _check_window(name: str, window: Window, words: PatternWords) -> None:
    """Refuse a window that event sequences do not lie in."""
    if not window.kind.has_instants:
        message = f"an event sequence lies in a window of time, not in {window.kind.words}"
        raise Refused("HDL-220", message, f"write {TIME_WINDOW}", words.seq.start)
    calendars = [part for part in window.each if part.calendar is not None]
    if calendars or any(part.cumulative or part.since is not None for part in window.each):
        message, hint = "an event sequence lies in windows that are all equally long", f"write {TIME_WINDOW}"
        if name:
            length = duration_text(max(DAY, window.range // DAY * DAY) if calendars else window.range)
            message += f", and those of {name} are not"
            hint = f"write {name} AS (RANGE '{length}')" + (", without IN" if calendars else "")
        raise Refused("HDL-220", message, hint, words.seq.start)


def _event_type(token: Token, on: str, scope: Scope) -> str:
    written = scope.written(token)
    if scope.schema[on].name == "string":
        if token.token_type == TokenType.NUMBER:
            hint = f"quote it: '{written}'"
            raise Refused("HDL-221", f"{on} is a string: {shown_text(written)} is a number", hint, token.start)
        return token.text
    if token.token_type != TokenType.NUMBER or not written.isdecimal() or len(written) > 18:
        message = f"{on} is {scope.schema[on]}: {shown_text(token.text)} is no value of it"
        raise Refused("HDL-221", message, "write whole numbers: SEQ(1, 2, 3)", token.start)
    return str(int(written))


def _key_column(token: Token, scope: Scope) -> str:
    column = scope.column_of_token(token)
    if column == scope.stream.time or scope.schema[column] == DOUBLE:
        what = "the time column" if column == scope.stream.time else "the double column"
        message = f"sequences by {what} {column}"
        raise Refused("HDL-206", message, "name an integer, decimal or string column", token.start)
    return column
