"""Reads one statement into one query: guarded tokens, then clauses, then typed values; every problem with its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.errors.redaction import redacted
from optimizer.language.aggregate_calls import AggregateReader, NamedWindows, SequenceReader
from optimizer.language.clauses import WindowWords, cut_clauses
from optimizer.language.constants import query_error
from optimizer.language.expressions import read_filter
from optimizer.language.foreign_windows import drop_window_columns
from optimizer.language.grouping import Grouping, read_grouping
from optimizer.language.guards import guarded_tokens
from optimizer.language.having import read_thresholds
from optimizer.language.joins import check_joins, with_joins
from optimizer.language.nodes import place_of, put_in_session_lengths
from optimizer.language.patterns import read_pattern
from optimizer.language.quoting import quoted_names
from optimizer.language.refusals import Findings, Refused
from optimizer.language.scope import Scope
from optimizer.language.select_list import read_selection
from optimizer.language.syntax import parse_select, stream_of
from optimizer.language.windows import read_named_windows, read_window
from optimizer.language.words import Limits
from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import ACQ, ANY_WINDOW, Stream, Window
from optimizer.workload.window_kinds import SEQUENCE, WindowKind


@dataclass(frozen=True)
class NamedStatement:
    """A statement with its comments blanked, the name and owner of its query, and its ``source`` as it was written.
    ``is_registered()``: whether a query of this name is registered with the same source."""

    text: str
    name: str
    owner: str
    source: str
    is_registered: Callable[[], bool] = bool


def read_query(
    statement: NamedStatement,
    streams: Mapping[str, Stream],
    limits: Limits,
    unreadable: Collection[str],
    findings: Findings,
) -> ACQ | None:
    """The query, or None with problems among the findings. Raises Refused for what leaves nothing else to be read."""
    text = statement.text
    tokens = guarded_tokens(text, limits)
    check_joins(tokens)
    clauses = cut_clauses(tokens)
    tree = parse_select(clauses.rest, text, limits, findings)
    scope = Scope(text, stream_of(tree, streams, unreadable), limits)
    doubtful = list(quoted_names(tokens, scope, [item.alias for item in tree.expressions if item.alias]))
    if doubtful:
        is_kept = statement.is_registered()
        (findings.warnings if is_kept else findings.problems).extend(doubtful)
        if not is_kept:
            # other errors would be about a text that nobody meant
            return None
    scope = with_joins(tree, scope, unreadable, streams)
    if clauses.windows[0].kind.ends_with_pauses:
        put_in_session_lengths(tree, text, scope.stream.time)
    drop_window_columns(tree, scope, findings)
    grouping = read_grouping(tree, scope, findings)
    kind, pattern, error, filter = clauses.windows[0].kind, None, None, None
    window, named = _windows(clauses.windows, scope, grouping, findings)
    if clauses.pattern is not None:
        # what the aggregates mean depends on it: no collecting
        kind, pattern = SEQUENCE, read_pattern(clauses.pattern, scope, window, grouping.columns)
    with findings.collecting():
        error = query_error(clauses.error) if clauses.error is not None else None
    # of a window that was refused nobody knows what it would take
    findings.problems.extend(_unfit_groups(grouping, kind, window is not None or pattern is not None, tree))
    read_by = partial(AggregateReader, windows=named) if pattern is None else partial(SequenceReader, pattern=pattern)
    aggregates = read_by(scope, kind, error, findings)
    selection = read_selection(tree, scope, grouping, aggregates, findings)
    thresholds = read_thresholds(tree, clauses.having, scope, selection, aggregates, findings)
    with findings.collecting():
        filter = read_filter(tree, scope)
    if findings.problems or window is None:
        return None
    if clauses.error is not None and not (selection.takes_error or thresholds.takes_error):
        takers = ", ".join(name for name, aggregate in AGGREGATES.items() if aggregate.sketch)
        message = "WITH (error = …) changes nothing: every aggregate of the query is exact or names its own error"
        findings.warnings.append(Refused("HDL-218", message, f"{takers} take it", clauses.error.start))
    query = ACQ(
        name=statement.name,
        stream=scope.stream.name,
        window=window,
        outputs=selection.outputs,
        filter=filter,
        group_by=tuple(grouping.columns.items()),
        select=selection.names,
        owner=statement.owner,
        text=redacted(statement.source),
        having=thresholds.conditions,
        pattern=pattern,
        derived=tuple(grouping.derived.items()),
        top=thresholds.top,
        sets=grouping.sets,
    )
    if named is not None:
        query = _over_used(query, named, clauses.windows, findings)
    attributes = attributes_in(scope.stream, query.columns())
    if attributes and query.kind.reads_every_column:
        message = f"a query over {query.kind.words} joins no dimension"
        findings.problems.append(Refused("HDL-464", message, "ask for a window of time", place_of(tree)))
        return None
    leaves = [name for name in query.columns() if name not in dict(scope.stream.schema) and name not in attributes]
    if leaves and not query.kind.reads_expressions:
        message = f"{leaves[0]} stands in a nested column, which only windows of time read"
        findings.problems.append(Refused("HDL-242", message, "write its fields to plain columns", place_of(tree)))
        return None
    return query


def _unfit_groups(grouping: Grouping, kind: WindowKind, is_known: bool, tree: exp.Select) -> Iterator[Refused]:
    """Grouping sets and expressions in GROUP BY that windows of a kind do not take. ``is_known``: the window was
    not refused."""
    if grouping.sets and not kind.ranks_groups:
        hint = "ask for a window of time"
        message = f"GROUP BY over {kind.words} takes one grouping set"
        yield Refused("HDL-206", message, hint, place_of(tree.args["group"]))
    if grouping.derived and is_known and not kind.reads_expressions:
        hint = "group by columns of the stream, or ask for a window of time"
        message = f"GROUP BY over {kind.words} takes columns: {next(iter(grouping.derived))}"
        yield Refused("HDL-206", message, hint, place_of(tree.args["group"]))


def _windows(
    words: Sequence[WindowWords], scope: Scope, grouping: Grouping, findings: Findings
) -> tuple[Window | None, NamedWindows | None]:
    """The window of a query, None if it is refused, and its named windows, if it has some."""
    if words[0].name is None:
        with findings.collecting():
            return Window.of_several([read_window(words[0], scope, grouping, findings)]), None
        return None, None
    with findings.collecting():
        windows = read_named_windows(words, scope, grouping, findings)
        return next(iter(windows.values())), NamedWindows(windows)
    # of windows that are refused the names are known
    names = [each.name.text for each in words if each.name is not None]
    return None, NamedWindows(dict.fromkeys(names, Window(1, 1)))


def _over_used(query: ACQ, named: NamedWindows, words: Sequence[WindowWords], findings: Findings) -> ACQ:
    """The query over those of its named windows that it uses; a warning for each of the others."""
    windows = list(named.windows.values())
    for each, value in zip(words, windows, strict=True):
        assert each.name is not None
        if windows.index(value) not in named.used:
            message = f"no aggregate is over window {each.name.text}"
            findings.warnings.append(Refused("HDL-244", message, "name it with OVER, or remove it", each.name.start))
    window = Window.of_several(windows[number] for number in sorted(named.used))
    numbers = {number: window.each.index(windows[number]) for number in named.used}
    numbers[ANY_WINDOW] = ANY_WINDOW if window.parts else 0
    return query.over(window, numbers)
