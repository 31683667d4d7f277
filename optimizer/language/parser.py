"""Query text to typed values, for text that nobody trusts.

Strategy: limit first, cut second, parse third, allow-list last. A linear scanner of our own splits a file
into statements (so that a broken one costs only itself) and blanks comments. Bytes, tokens, nesting and
connectives are counted on the token list of the *stock* sqlglot tokenizer before any recursive code sees it.
Our own clauses are cut out of that list, the rest is parsed by stock sqlglot (dialect ``spark``, never a
subclass; it sees our functions under names that it does not know, so that each arrives as it was written),
and the tree is mapped node by node to :mod:`optimizer.workload.values` values. A node, an argument of a node
or a function that is not named here is refused, so new syntax of a later sqlglot is refused too. The text
itself goes no further.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count
from optimizer.language.files import read_text, shown_path
from optimizer.language.reader import NamedStatement, read_query
from optimizer.language.refusals import Findings, Refused
from optimizer.language.statements import Broken, Settings, Statement, settings_of, split_statements
from optimizer.language.words import LEFT_OUT, MOST_PROBLEMS, QUERY_NAME, Limits, check_characters
from optimizer.workload.values import ACQ, AnswerTable, Stream, Workload


@dataclass(frozen=True)
class ParseResult:
    """The queries that can be answered, in file order, and all errors and warnings.

    ``positions``: line and column (1-based) at which each query begins.
    """

    queries: tuple[ACQ, ...]
    diagnostics: tuple[Diagnostic, ...]
    positions: tuple[tuple[int, int], ...] = ()

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(diagnostic for diagnostic in self.diagnostics if diagnostic.severity == "error")


def _nothing_registered(name: str) -> str:
    return ""


def _is_registered(registered_text: Callable[[str], str], name: str, source: str) -> bool:
    return registered_text(name) == source


def parse(
    text: str,
    streams: Mapping[str, Stream],
    file: str = "",
    limits: Limits | None = None,
    unreadable: Collection[str] = (),
    registered_text: Callable[[str], str] = _nothing_registered,
) -> ParseResult:
    """Parse all queries of one workload file.

    ``unreadable``: declared streams that cannot be read. ``registered_text``: the source of the registered query of a
    name, or "": such a query keeps its meaning where a rule came later (HDL-243 is a warning for it).

    Never raises for bad text: a query with an error is skipped and reported, with line and column in ``file`` (1-based,
    columns in characters). The others are returned. Linear in the text.

    Statements end with ``;``. A line ``-- name: x`` before a statement names it (otherwise the file's stem and its
    number in the file do), ``-- owner: y`` names its owner, ``-- until: instant`` the last instant that it answers,
    ``-- table: z`` a Delta table that also contains its answers, and ``-- asset`` makes Airflow announce new answers. A
    statement is::

        SELECT <group column, aggregate or expression over them> [AS name], … FROM stream
        [PATTERN SEQ(type, [NOT type,] …) ON column [PARTITION BY column, …]]
        WINDOW RANGE '…' SLIDE [AT MOST] '…' [ENDING '…' AGO] ON time
             | ROWS n SLIDE m [PARTITION BY column, …] ON time
        [WHERE condition] [GROUP BY column, expression, name or position, …]
        [HAVING <condition over aggregates, outputs and group columns>]
        [ORDER BY <aggregate, output or expression over them> [ASC | DESC] [NULLS FIRST | LAST], … LIMIT k]
        [WITH (error = number)]

    with the WINDOW and PATTERN clauses anywhere after FROM and WITH at the end.

    - ``PATTERN``: aggregates the sequences of events of these types, in strictly ascending time, all in one window and
      equal in the columns of PARTITION BY and GROUP BY; ``count(*)`` counts them, ``count(E)``, ``sum(E.x)``, ``avg``,
      ``min`` and ``max`` apply to their events of type E. WHERE filters the events first.
    - ``AT MOST``: a refresh bound. Windows end at those multiples of the stream's step that the schedule chooses, never
      further apart than the bound; RANGE is a multiple of the step.
    - ``ENDING``: shifts every window back by this length, see :class:`optimizer.workload.values.Window`; those of
      calendars by dates (:func:`optimizer.windows.calendars.moved_back`).
    - ``ROWS``: all rows of the stream are numbered from 0 in the order of time, rows of equal time in the order of the
      values of all the stream's columns; window k covers the rows [k*m, k*m + n), and WHERE filters rows within it.
      ``PARTITION BY`` numbers the rows of each of its keys separately; its columns are group columns.
    - ``HAVING``: only answers for which the condition is true exist.
    - ``ORDER BY … LIMIT``: of those only the first k groups of each window exist; ties go by their group columns.
    - ``WITH (error = …)``: the permitted error of distinct counts, percentiles, modes and top-k, in HAVING too,
      unless one
      of them names its own error, as Spark's approximate functions can. Without it, answers are exact.
    """
    limits = limits or Limits()
    queries: dict[str, ACQ] = {}
    report = Report(text, file)
    starts: dict[str, int] = {}
    for statement, settings in _statements(text, file):
        name = settings.name
        broken = [*statement.broken, *settings.broken, *_unseen_characters(statement, text, limits)]
        if name in starts:
            hint = f"the first is in line {report.position(starts[name])[0]} and is kept"
            broken.append((statement.start, "HDL-209", f"two queries are named {name}", hint))
        starts.setdefault(name, statement.start)
        for at, code, message, hint in broken:
            report.add(Refused(code, message, hint, at), name)
        if broken:
            continue
        source = text[statement.start : statement.end].rstrip()
        findings, query = Findings(), None
        with findings.collecting():
            is_registered = partial(_is_registered, registered_text, name, source)
            named_statement = NamedStatement(statement.text, name, settings.owner, source, is_registered)
            query = read_query(named_statement, streams, limits, unreadable, findings)
        for problem in findings.problems[:MOST_PROBLEMS]:
            report.add(problem, name, statement.start)
        for warning in findings.warnings:
            report.add(warning, name, statement.start, "warning")
        if query is not None and settings.until is not None and not query.kind.has_instants:
            hint = "remove -- until, or ask for a window of time"
            message = f"a query over {query.kind.words} has no lifetime"
            report.add(Refused("HDL-109", message, hint), name, statement.start)
        elif query is not None:
            queries[name] = replace(query, until=settings.until, table=settings.table, asset=settings.asset)
    positions = tuple(report.position(starts[name]) for name in queries)
    return ParseResult(tuple(queries.values()), tuple(report.diagnostics), positions)


def query_names(text: str, file: str) -> frozenset[str] | None:
    """The names of the queries of a workload file, those with a mistake among them; None if a quote or a comment is
    never closed, so that it is not certain where queries end."""
    statements = list(_statements(text, file))
    if any(code == "HDL-108" for statement, _ in statements for _, code, *_ in statement.broken):
        return None
    return frozenset(settings.name for _, settings in statements)


def _statements(text: str, file: str) -> Iterator[tuple[Statement, Settings]]:
    """The statements of a file; without a name they are called by the file and their number in it."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(file).stem) or "query"
    stem = stem if QUERY_NAME.match(stem) else "_" + stem
    for ordinal, statement in enumerate(split_statements(text), 1):
        yield statement, settings_of(statement, f"{stem[:100]}_{ordinal}")


class Report:
    """The findings about one file, each with its line and column."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.diagnostics: list[Diagnostic] = []
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(self, at: int) -> tuple[int, int]:
        """Line and column, from 1, of an offset in the file."""
        line = bisect.bisect_right(self._lines, at)
        return line, at - self._lines[line - 1] + 1

    def add(self, refused: Refused, query: str, start: int = 0, severity: str = "error") -> None:
        """``start``: the offset in the file of the text that the refusal is about."""
        place = self.position(start + refused.at)
        diagnostic = Diagnostic(refused.code, refused.message, refused.hint, self.file, *place, query, severity)
        self.diagnostics.append(diagnostic)


def _unseen_characters(statement: Statement, text: str, limits: Limits) -> Iterator[Broken]:
    """In its comments too, which may be made to look like the query; the first one."""
    try:
        for at, comment in statement.comments:
            check_characters(comment, at)
        readable = text[statement.start : min(statement.end, statement.start + limits.bytes)]
        check_characters(readable, statement.start)
    except Refused as refused:
        yield refused.at, refused.code, refused.message, refused.hint


def beyond_quota(query: ACQ, quota: int, file: str, line: int = 0, column: int = 0) -> Diagnostic:
    """HDL-311: its owner has as many queries as are permitted without it."""
    whose = f"of {query.owner}" if query.owner else "without an owner"
    message = f"there are {quota} queries {whose} already, the quota"
    hint = "remove some, or raise HEDDLE_OWNER_QUOTA"
    return Diagnostic("HDL-311", message, hint, file, line, column, query.name)


def table_taken(query: ACQ, by: ACQ, file: str, line: int = 0, column: int = 0) -> Diagnostic:
    """HDL-226: another query asks for its table. Names that differ only in case are one folder on some disks."""
    name = query.table.name if query.table is not None else ""
    message = f"{query.name} asks for the table {name}, which is that of {by.name}"
    return Diagnostic("HDL-226", message, "give it another -- table", file, line, column, query.name)


def load_workload(
    files: Iterable[str | Path],
    streams: Mapping[str, Stream],
    limits: Limits | None = None,
    quota: int | None = None,
    origin: dict[str, str] | None = None,
    unreadable: Collection[str] = (),
    wrong: set[str] | None = None,
    tables_of: Collection[str] = (),
    owner: str = "",
    registered_text: Callable[[str], str] = _nothing_registered,
) -> tuple[Workload, tuple[Diagnostic, ...]]:
    """The workload of some files, and the diagnostics about them.

    - ``unreadable``: declared streams that cannot be read, which was reported; the queries over one are reported once;
    - ``quota``: the most queries of one owner (queries without an owner count as one owner's); the first ones stay, the
      others are refused one by one (HDL-311);
    - ``origin`` receives the file of each query, ``wrong`` the names of queries with an error, as in the findings;
    - ``tables_of``: owners whose queries each have a table, under the query's name where it names none;
    - ``owner``: the owner of queries that name none.

    A file that cannot be read gives HDL-111, a name of an earlier file HDL-209, a table of an earlier query HDL-226;
    the first one stays.
    """
    queries: dict[str, ACQ] = {}
    origin = {} if origin is None else origin
    per_owner: Counter[str] = Counter()
    tables: dict[str, ACQ] = {}
    diagnostics: list[Diagnostic] = []
    for path in files:
        try:
            text = read_text(path)
        except HeddleError as error:
            diagnostics.append(error.diagnostic)
            continue
        path = shown_path(path)
        parsed = parse(text, streams, path, limits, unreadable, registered_text)
        diagnostics += parsed.diagnostics
        for parsed_query, position in zip(parsed.queries, parsed.positions, strict=True):
            read = replace(parsed_query, owner=parsed_query.owner or owner)
            keeps_table = read.table is not None or read.owner not in tables_of
            query = read if keeps_table else replace(read, table=AnswerTable(read.name))
            if query.name in queries:
                message = f"two queries are named {query.name}"
                hint = f"the first is in {origin[query.name]} and is kept"
                diagnostics.append(Diagnostic("HDL-209", message, hint, str(path), *position, query.name))
            elif quota is not None and per_owner[query.owner] >= quota:
                diagnostics.append(beyond_quota(query, quota, str(path), *position))
            elif (answer_table := query.table) is not None and answer_table.name.lower() in tables:
                diagnostics.append(table_taken(query, tables[answer_table.name.lower()], str(path), *position))
            else:
                tables |= {query.table.name.lower(): query} if query.table is not None else {}
                per_owner[query.owner] += 1
                queries[query.name], origin[query.name] = query, str(path)
    if wrong is not None:
        wrong |= {diagnostic.query for diagnostic in diagnostics if diagnostic.severity == "error"}
    return Workload(tuple(queries.values()), tuple(streams.values())), tuple(_merged(diagnostics))


def _merged(diagnostics: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """The findings, those about one unreadable stream as one, at the first of its queries."""
    counts = Counter(warning.message for warning in diagnostics if warning.code == LEFT_OUT)
    for diagnostic in diagnostics:
        if diagnostic.code != LEFT_OUT:
            yield diagnostic
        elif number := counts.pop(diagnostic.message, 0):
            left_out = f"{diagnostic.message}: {count(number, 'query')} over it left out"
            yield replace(diagnostic, message=left_out, query=diagnostic.query if number == 1 else "")
