"""The windows of Spark and Flink as Heddle's clause."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.nodes import place_of
from optimizer.language.refusals import Refused
from optimizer.migration.words import DIFFERS, CutWindow
from optimizer.workload.instants import duration_text, parse_duration

SESSION_WINDOW = "session_window"
"""Spark's sessions."""

GROUP_WINDOWS = ("tumble", "hop", "session")
"""Flink's functions in GROUP BY, before it had them in FROM."""

LONGEST = "1 day"
"""Longest session of what is imported: other engines know no limit."""

BOUNDS = {
    f"{name}_{suffix}": bound
    for name in GROUP_WINDOWS
    for suffix, bound in (("start", "start"), ("end", "end"), ("rowtime", "end"))
}
"""Bounds of a window that Flink selects in GROUP BY."""

COLUMNS = {"window_start": "start", "window_end": "end", "window_time": "end"}
"""The columns that a windowing table function adds."""

FIELDS = {"start": "start", "end": "end"}
"""The fields of Spark's window."""


@dataclass(frozen=True)
class ImportedWindow:
    """A window of time on a plain column, in Heddle's words. Two are equal if they are the same windows.

    ``size``, ``slide``: in microseconds, ``starting``: the words of an offset; of windows that slide, else nothing.
    ``keys``: the columns that Flink's table function partitions sessions by; None: sessions are of each group.
    """

    time: str
    clause: str
    size: int = 0
    slide: int = 0
    starting: str = ""
    keys: tuple[str, ...] | None = None

    def notes(self) -> tuple[Refused, ...]:
        """Differences from what was imported."""
        if not self.clause.startswith("SESSION"):
            return ()
        message = f"sessions longer than {LONGEST} have no values (HDL-612): UP TO '{LONGEST}' was added"
        return (Refused(DIFFERS, message, "write the longest that a session may last"),)


def sessions(time: str, gap: str, at: int, keys: tuple[str, ...] | None = None) -> ImportedWindow:
    """Sessions with a constant gap."""
    try:
        length = duration_text(parse_duration(gap))
    except HeddleError as error:
        raise Refused.of(error, at) from None
    return ImportedWindow(time, f"SESSION GAP '{length}' UP TO '{LONGEST}'", keys=keys)


def sliding(time: str, size: str, slide: str, offset: str, at: int) -> ImportedWindow:
    """``RANGE`` and ``SLIDE``; an offset is none if it is a multiple of the slide."""
    try:
        length, step = parse_duration(size), parse_duration(slide)
        starting = _starting(offset, step)
    except HeddleError as error:
        raise Refused.of(error, at) from None
    clause = f"RANGE '{duration_text(length)}' SLIDE '{duration_text(step)}'{starting}"
    return ImportedWindow(time, clause, length, step, starting)


def _starting(offset: str, every: int) -> str:
    """STARTING AT, if windows start other than at the multiples of a length."""
    late = parse_duration(offset) % every if offset else 0
    return f" STARTING AT '{duration_text(late)}'" if late else ""


def of_table_function(cut: CutWindow, time: str) -> ImportedWindow:
    """The window of Flink's TUMBLE, HOP and CUMULATE in FROM."""
    if cut.function == "session":
        return sessions(time, cut.durations.get("gap", ""), cut.at, cut.per)
    size, offset = cut.durations.get("size", ""), cut.durations.get("offset", "")
    if not size:
        raise Refused("HDL-146", f"{cut.function.upper()} has no size", "INTERVAL '10' MINUTES", cut.at)
    if cut.function == "cumulate":
        step = cut.durations.get("step", "")
        try:
            clause = f"CUMULATE '{duration_text(parse_duration(size))}' STEP '{duration_text(parse_duration(step))}'"
            clause += _starting(offset, parse_duration(size))
        except HeddleError as error:
            raise Refused.of(error, cut.at) from None
        return ImportedWindow(time, clause)
    slide = cut.durations.get("slide", "") if cut.function == "hop" else size
    return sliding(time, size, slide, offset, cut.at)


def of_call(call: exp.Anonymous, name: str) -> ImportedWindow:
    """The window of Spark's ``window(t, size[, slide[, start]])`` and Flink's ``TUMBLE(t, size)``, ``HOP(t, slide,
    size)``, ``SESSION(t, gap)``.

    The arguments are bound: the time must be a column of the stream by now.
    """
    at, (first, *arguments) = place_of(call), call.expressions or [exp.Null()]
    if type(first) is not exp.Column:
        message = "the time of a window is computed, not a column of the stream"
        raise Refused("HDL-144", message, "declare the column as timestamp in streams.yaml", at)
    durations = [_duration(argument, at) for argument in arguments]
    if not 1 <= len(durations) <= 3:
        raise Refused("HDL-146", f"{name} takes a time and one to three durations", "", at)
    time = first.this.sql(dialect="spark")
    if name in ("session", SESSION_WINDOW):
        if len(durations) > 1:
            raise Refused("HDL-146", f"{name} takes a time and a gap", "", at)
        return sessions(time, durations[0], at)
    if name == "hop":
        slide, size, offset = (*durations, "", "")[:3]
        if not size:
            raise Refused("HDL-146", "HOP takes a slide and a size", "", at)
        return sliding(time, size, slide, offset, at)
    if name == "tumble":
        return sliding(time, durations[0], durations[0], (*durations, "")[1], at)
    return sliding(time, durations[0], (*durations, durations[0])[1], (*durations, "", "")[2], at)


def _duration(node: exp.Expr, at: int) -> str:
    if isinstance(node, exp.Literal) and node.is_string:
        return node.name.lower().removeprefix("interval").strip()
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        return f"{node.this.name} {unit.name.lower()}" if isinstance(unit, exp.Var) else node.this.name
    raise Refused("HDL-144", "the durations of a window are constants", "'10 minutes' or INTERVAL '10' MINUTES", at)
